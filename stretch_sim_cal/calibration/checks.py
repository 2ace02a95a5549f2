"""Checks of a calibration file: consistency, plausibility, uncertainty and age; and comparisons of two files."""

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np

from stretch_sim_cal.calibration.calibration_file import (
    AGREEMENT_M,
    AGREEMENT_RAD,
    DIGEST,
    FLOORS,
    LEFT_POSE,
    RIGHT_TO_LEFT,
    SEEN_COVARIANCE,
    TO_LEFT,
    WHEELS,
    CalibrationFile,
    Entry,
    alignment_called,
)
from stretch_sim_cal.calibration.drive_results import DIFFERS, stored_wheels, transform_to_left
from stretch_sim_cal.calibration.findings import model_findings
from stretch_sim_cal.calibration.mounts.file import MOUNTS, each_mount, seen_from, stored_mounts
from stretch_sim_cal.calibration.mounts.result import FARTHEST, FARTHEST_ANGLE, at_lidar
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import UP, floor_between, floor_error, floor_of_footprint
from stretch_sim_cal.geometry.transforms import SIDES, error, inverse, log, wrapped

FAR_HEIGHT, FAR_TILT = 0.05, float(np.deg2rad(5.0))
# base_link may lie so far (m) below the floor, or lower than it is described there: it may lie on it.
BELOW = 0.01
# Standard deviations beyond which a user is warned.
CERTAIN_TRANSLATION, CERTAIN_ROTATION = 0.001, float(np.deg2rad(0.02))
CERTAIN_TILT = float(np.deg2rad(0.1))  # of the floor: under the wheels, even an even one is unsure by 0.02 deg
OLD = datetime.timedelta(days=365)
# The entries that are read; others are kept as they are, and those so similar to one are reported.
READ, MISSPELLED = (RIGHT_TO_LEFT, *FLOORS, MOUNTS, WHEELS), 0.9


@dataclass(frozen=True)
class Described:
    """The transforms (4, 4) of the robot's description, as far as it has them: by name those of the other lidars to the
    left one, that of base_link into base_footprint, and by name those of all lidars into base_link."""

    to_left: Mapping[str, np.ndarray] = field(default_factory=dict)
    footprint_from_base: np.ndarray | None = None
    base_from_lidar: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """How far two calibrations of one part are apart: `distance` (m), `angle` (rad); the largest standard deviations
    (m, rad) `before` and `after`, None for a calibration without. `sigmas` is the change over both uncertainties
    together, root mean square over its directions: about 1 for two calibrations of an unchanged robot."""

    what: str
    distance: float
    angle: float
    before: tuple[float, float] | None = None
    after: tuple[float, float] | None = None
    sigmas: float | None = None

    def within(self, distance: float, angle: float) -> bool:
        """Return whether neither bound is exceeded."""
        return self.distance <= distance and self.angle <= angle


def check_lidars(file: CalibrationFile, lidars: Collection[str]) -> None:
    """Raise `InputError` unless the file holds the lidars beyond two that the robot has, by their names."""
    for name in (set(lidars) ^ set(file.to_left)) - set(SIDES):
        fault = f"has no {name}{TO_LEFT}" if name in lidars else f"has a lidar {name} that the robot does not have"
        raise InputError(f"{file.path}: {fault}; calibrate again, or give its robot with --robot")


def problems(calibration: CalibrationFile, described: Described | None = None) -> list[str]:
    """Return one sentence for each reason not to use the calibration."""
    described = described or Described()
    sentences = list(calibration.contradictions)
    plane = calibration.floor_plane
    if not calibration.aligned and plane is None and MOUNTS not in calibration.data:
        sentences.append("has neither an alignment of the lidars nor a floor")
    for name, pose in calibration.to_left.items():
        far, _ = model_findings(described.to_left.get(name), pose, ("left", name))
        sentences += [f"{name}{TO_LEFT}: {finding}" for finding in far]
    footprint = described.footprint_from_base
    floor = None if footprint is None else floor_of_footprint(footprint)
    if plane is not None and plane.offset < min(0.0 if floor is None else floor.offset, 0.0) - BELOW:
        sentences.append(f"base_link lies {-plane.offset * 1e3:.1f} mm below the floor; the transform may be inverted")
    elif plane is not None and plane.normal[2] < 0.5:
        sentences.append("base_link's z axis does not point up from the floor; the transform is between other frames")
    elif plane is not None and floor is not None:
        height, tilt = floor_error(floor, plane)
        if height > FAR_HEIGHT or tilt > FAR_TILT:
            sentences.append(f"the floor is {height * 1e3:.0f} mm and {np.degrees(tilt):.1f} deg from the description")
    robots = sorted({entry.robot_id for entry in calibration.entries.values() if entry.robot_id})
    if len(robots) > 1:
        sentences.append(f"its entries belong to different robots: {', '.join(robots)}")
    return sentences


def inconsistencies(calibration: CalibrationFile, described: Described | None = None) -> list[str]:
    """Return one sentence for each two statements of the file about the same poses that differ by more than both
    uncertainties allow, for a floor without the mounts that it is of, and for each lidar that is farther from its
    description than a calibration accepts."""
    mounts, wheels = stored_mounts(calibration), stored_wheels(calibration)
    placed = {} if mounts is None else mounts.base_from_lidar
    sentences = []
    for name, pose in placed.items():
        nominal = (described or Described()).base_from_lidar.get(name, pose)
        far = error(nominal, pose)
        if far[0] > FARTHEST or far[1] > FARTHEST_ANGLE:
            sentences.append(f"{MOUNTS}: the {name} lidar is {_apart(far)} from its described pose")
    floor = next((key for key in FLOORS if LEFT_POSE in calibration.data.get(key, {})), None)
    if floor is not None and placed:
        off = error(placed["left"], seen_from(calibration, placed["left"]))
        if off[0] > AGREEMENT_M or off[1] > AGREEMENT_RAD:
            sentences.append(f"{MOUNTS} and {LEFT_POSE} in {floor} have the left lidar {_apart(off)} apart")
    elif floor is not None and SEEN_COVARIANCE in calibration.data[floor]:
        sentences.append(f"{floor} is of the left lidar in {MOUNTS}, which is missing; calibrate the floor again")
    by_part = [] if mounts is None else [(MOUNTS, placed, mounts.covariance)]
    by_part += [] if wheels is None else [(WHEELS, wheels.footprint_from_lidar, wheels.covariance)]
    for part, poses, covariance in by_part:
        for name in filter(poses.__contains__, calibration.to_left if "left" in poses else ()):
            key = f"{name}{TO_LEFT}"
            pose, uncertain = transform_to_left(poses, covariance, name)
            change = _pose_change(key, calibration.to_left[name], pose, [_covariance(calibration, key), uncertain])
            if (change.sigmas or 0.0) > DIFFERS:
                apart = f"{_apart((change.distance, change.angle))} apart, relative to the left one"
                sentences.append(f"{part} and {key} have the {name} lidar {apart} ({change.sigmas:.1f} sigma)")
    return sentences


def _apart(off: tuple[float, float]) -> str:
    return f"{off[0] * 1e3:.1f} mm and {np.degrees(off[1]):.2f} deg"


def _covariance(calibration: CalibrationFile, key: str) -> np.ndarray | None:
    return calibration.entries.get(key, Entry()).covariance


def concerns(
    calibration: CalibrationFile, now: datetime.datetime, robot_id: str | None = None,
    described: Described | None = None,
) -> list[str]:  # fmt: skip
    """Return one sentence for each warning; none of them forbids the use of the calibration."""
    sentences = [
        f"{part}: was edited since it was written; if that is meant, take '{DIGEST}' out of the entry"
        for part in calibration.edited
    ]
    for name, pose in calibration.to_left.items():
        _, far = model_findings((described or Described()).to_left.get(name), pose, ("left", name))
        sentences += [f"{name}{TO_LEFT}: {finding}" for finding in far]
    for key in calibration.data:
        near = get_close_matches(str(key), READ, 1, MISSPELLED)
        if near and key not in READ and not str(key).endswith(TO_LEFT):
            sentences.append(f"{key}: is not read; did you mean {near[0]}?")
    for key, entry in calibration.entries.items():
        if entry.timestamp is not None:
            age = _age(entry, now)
            if age < -datetime.timedelta(days=1):
                sentences.append(f"{key}: has a timestamp in the future ({entry.timestamp:%Y-%m-%d}); check the clock")
            elif age > OLD:
                sentences.append(f"{key}: is {age.days} days old; check it with 'stretch-sim-cal verify'")
        if entry.robot_id and robot_id and entry.robot_id != robot_id:
            sentences.append(f"{key}: belongs to robot {entry.robot_id}, this one is {robot_id}")
    entries = calibration.entries
    alignment = entries.get(RIGHT_TO_LEFT)
    floor = entries.get(calibration.floor_key)
    if alignment and floor and alignment.timestamp and floor.timestamp and _age(alignment, now) < _age(floor, now):
        sentences.append("the floor is older than the alignment; run the floor calibration again")
    parts = {"the alignment": alignment, "the floor": floor}
    others = (name for name in calibration.to_left if name != "right")
    parts |= {f"the {name} lidar's alignment": entries.get(f"{name}{TO_LEFT}") for name in others}
    for what, entry in parts.items():
        if entry is not None and entry.covariance is None:
            sentences.append(f"{what} has no covariance (written by another program); its accuracy is unknown")
        elif entry is not None:
            translation, rotation = deviations(entry.covariance)
            certain = CERTAIN_TILT if entry is floor else CERTAIN_ROTATION
            if translation > CERTAIN_TRANSLATION or rotation > certain:
                deviation = f"{translation * 1e3:.2f} mm, {np.degrees(rotation):.3f} deg"
                sentences.append(f"{what} is uncertain: standard deviation {deviation}")
    return sentences


def deviations(covariance: np.ndarray) -> tuple[float, float]:
    """Return the largest standard deviations (m, rad) of a transform's covariance (6, 6), or a floor's (3, 3)."""
    lengths = 3 if len(covariance) == 6 else 1
    return largest_deviation(covariance[:lengths, :lengths]), largest_deviation(covariance[lengths:, lengths:])


def changes(old: CalibrationFile, new: CalibrationFile) -> list[Change]:
    """Return the changes of the parts that both files have. Two floors, one by the described and one by the calibrated
    pose of the left lidar, have no common uncertainty: their `sigmas` are None."""
    parts = []
    mounts, wheels = ([stored(file) for file in (old, new)] for stored in (stored_mounts, stored_wheels))
    for name in filter(new.to_left.__contains__, old.to_left):
        known = [_covariance(file, f"{name}{TO_LEFT}") for file in (old, new)]
        parts.append(_pose_change(alignment_called(name), old.to_left[name], new.to_left[name], known))
    if old.floor_plane is not None and new.floor_plane is not None:
        planes = [file.floor_plane.facing(UP) for file in (old, new)]
        covariances = [_covariance(file, file.floor_key) for file in (old, new)]
        comparable = (mounts[0] is None) == (mounts[1] is None)
        sigmas = sigmas_of(floor_between(*planes), covariances) if comparable else None
        parts.append(Change("floor", *floor_error(*planes), *_deviations(covariances), sigmas))
    every = [each_mount(file, of_file) for file, of_file in zip((old, new), mounts, strict=True)]
    for name in filter(every[1].__contains__, every[0]):
        poses = [of_file[name][0] for of_file in every]
        # About the lidar's origin: a turn about base_link's would count as a shift as well.
        covariances = [at_lidar(of_file[name][1], of_file[name][0]) for of_file in every]
        parts.append(_pose_change(f"{name} lidar on the robot", *poses, covariances, at_lidar=True))
    lidars = [[] if of_file is None else list(of_file.footprint_from_lidar) for of_file in wheels]
    for name in filter(lidars[1].__contains__, lidars[0]):
        (before, of_before), (after, of_after) = (of_file.planar(name) for of_file in wheels)
        step, covariances = after - before, (of_before, of_after)
        step[2] = wrapped(step[2])
        known = [(largest_deviation(each[:2, :2]), float(np.sqrt(each[2, 2]))) for each in covariances]
        distance, angle = float(np.hypot(*step[:2])), float(abs(step[2]))
        parts.append(Change(f"{name} lidar to the wheels", distance, angle, *known, sigmas_of(step, covariances)))
    return parts


def _pose_change(
    what: str, old: np.ndarray, new: np.ndarray, covariances: Sequence[np.ndarray | None], at_lidar: bool = False
) -> Change:
    step = log(new @ inverse(old))
    if at_lidar:
        step[:3] = new[:3, 3] - old[:3, 3]
    return Change(what, *error(old, new), *_deviations(covariances), sigmas_of(step, covariances))


def _deviations(covariances: Sequence[np.ndarray | None]) -> list[tuple[float, float] | None]:
    return [None if known is None else deviations(known) for known in covariances]


def largest_deviation(covariance: np.ndarray) -> float:
    """Return the largest standard deviation along any direction."""
    return float(np.sqrt(max(np.linalg.eigvalsh(covariance)[-1], 0.0)))


def sigmas_of(step: np.ndarray, covariances: Sequence[np.ndarray | None]) -> float | None:
    """Return a difference (n,) over the sum of two covariances (n, n), rms over its directions; None if one is None."""
    if any(known is None for known in covariances):
        return None
    return float(np.sqrt(step @ np.linalg.pinv(sum(covariances), hermitian=True) @ step / len(step)))


def _age(entry: Entry, now: datetime.datetime) -> datetime.timedelta:
    """Return an entry's age; times without a zone are local."""
    return now.astimezone() - entry.timestamp.astimezone()
