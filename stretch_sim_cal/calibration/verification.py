"""Is a stored calibration still valid on fresh data? Yes, no or undetermined, with the drift and its uncertainty.

The calibration is estimated again from a few frames and compared. If the lidars' errors of the stored calibration are
known (`observations.py`), they are subtracted, not estimated again: their remaining uncertainty is the same in both,
and no drift. A drift is compared with `SIGMAS` standard deviations of both results together: beyond the tolerance by
all of them it has drifted, within by all of them it holds, otherwise it is undetermined.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.calibration_file import TO_LEFT, CalibrationFile
from stretch_sim_cal.calibration.checks import deviations
from stretch_sim_cal.calibration.finding import coded
from stretch_sim_cal.calibration.lidars import lidars_at
from stretch_sim_cal.calibration.mounts.file import seen_from, with_units
from stretch_sim_cal.calibration.observations import load_beside
from stretch_sim_cal.calibration.pipeline import Clouds, calibrated
from stretch_sim_cal.calibration.results import AlignmentResult, FloorResult
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import floor_error
from stretch_sim_cal.geometry.transforms import SIDES, error
from stretch_sim_cal.sensor.sensor import Sensors

SIGMAS = 3.0
HOLDS, DRIFTED, CANNOT_TELL = "holds", "drifted", "cannot tell"


@dataclass(frozen=True)
class Tolerances:
    """The largest drift of a valid calibration: m and rad."""

    length: float = 2e-3
    angle: float = math.radians(0.1)


@dataclass(frozen=True)
class Drift:
    """The drift of one number of the calibration: `value`, `standard_deviation` and `tolerance` in m or rad."""

    name: str
    value: float
    standard_deviation: float
    tolerance: float
    angular: bool

    @property
    def verdict(self) -> str:
        """One of `HOLDS`, `DRIFTED`, `CANNOT_TELL`."""
        if self.value + SIGMAS * self.standard_deviation <= self.tolerance:
            return HOLDS
        return DRIFTED if self.value - SIGMAS * self.standard_deviation > self.tolerance else CANNOT_TELL

    def sentence(self) -> str:
        """Return the drift as one line, in mm or deg."""
        scale, unit = (math.degrees(1.0), "deg") if self.angular else (1e3, "mm")
        known = f"standard deviation {scale * self.standard_deviation:.3f} {unit}"
        tolerance = f"tolerance {scale * self.tolerance:g} {unit}"
        return f"{self.name}: {scale * self.value:.3f} {unit}, {known}, {tolerance}: {self.verdict}"


@dataclass(frozen=True)
class Verification:
    """The measured drifts, and the reasons why others were not measured, `open_questions`."""

    drifts: list[Drift] = field(default_factory=list)
    open_questions: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """`DRIFTED` if anything has, else `CANNOT_TELL` if anything is open, else `HOLDS`."""
        verdicts = {drift.verdict for drift in self.drifts}
        if DRIFTED in verdicts:
            return DRIFTED
        return CANNOT_TELL if self.open_questions or CANNOT_TELL in verdicts or not verdicts else HOLDS


@dataclass(frozen=True)
class Reestimate:
    """Alignment and floor estimated again from fresh clouds, or the reasons why they are not, `open_questions`. `file`
    is the stored calibration, with the floor that follows from the known errors of the lidars; if `same_lidars`, these
    are known, and subtracted in both. `aligned` are the transforms to the left lidar by the name of the other one."""

    file: CalibrationFile
    same_lidars: bool
    aligned: dict[str, AlignmentResult] = field(default_factory=dict)
    floor: FloorResult | None = None
    open_questions: list[str] = field(default_factory=list)


def reestimate(
    file: CalibrationFile, clouds: Iterable[Clouds], base_from_left: np.ndarray,
    nominal_footprint_from_base: np.ndarray, sensor: Sensors = None, body: Mapping[str, Any] | None = None,
) -> Reestimate:  # fmt: skip
    """Estimate alignment and floor again; arguments and errors are those of `verify`."""
    if not file.aligned:
        raise InputError(f"{file.path}: has no alignment of the lidars to verify; run ros_align_dual_lidar first")
    if not file.to_left and file.floor_plane is None:
        return Reestimate(file, False, open_questions=["lidars: there is one, and the file has no floor to verify"])
    poses = file.lidars_at(seen_from(file, base_from_left))
    known = load_beside(file)
    units = None if known is None else dict(zip(known.names, known.units, strict=True))
    if units is not None and units.keys() != poses.keys():
        known = units = None
    lidars = lidars_at(poses, sensor)
    # The floor through today's alignment, so that a drift of the lidars does not read as one of the floor.
    given = lidars, list(clouds), nominal_footprint_from_base, file.floor_plane is not None, body
    aligned, floor = calibrated(*given, units=units)
    same = known is not None
    if not aligned.accepted:
        why = [*aligned.refusals, *(finding for finding in aligned.warnings if coded(finding).code == "pair_left_out")]
        return Reestimate(file, same, open_questions=[f"lidars: {reason}" for reason in why])
    pairs = {name: aligned.aligned("left", name) for name in file.to_left}
    if floor is None or not floor.accepted:
        return Reestimate(file, same, pairs, None, [f"floor: {why}" for why in (floor.refusals if floor else ())])
    if known is not None and known.floor is not None:  # the stored floor by the lidars' known errors
        none = np.zeros((len(known.floor.scalars),) * 2)
        file = with_units(file, known.floor, known.units[: len(SIDES)], none)
    return Reestimate(file, same, pairs, floor)


def verify(
    file: CalibrationFile, clouds: Iterable[Clouds], base_from_left: np.ndarray,
    nominal_footprint_from_base: np.ndarray, tolerances: Tolerances = Tolerances(), sensor: Sensors = None,
    body: Mapping[str, Any] | None = None,
) -> Verification:  # fmt: skip
    """Compare the calibration in `file` with fresh clouds of all its lidars, each in its own frame; `sensor` is their
    kind, `body` as of `body_settings`. The floor is verified only if the lidars could be aligned; `base_from_left` and
    `nominal_footprint_from_base` (4, 4) are the description's. Raises `InputError` if the file has no alignment."""
    now = reestimate(file, clouds, base_from_left, nominal_footprint_from_base, sensor, body)
    drifts, parts = [], []
    for name, aligned in now.aligned.items():
        which = f"lidars left and {name}" if len(now.aligned) > 1 else "lidars"
        apart = error(file.to_left[name], aligned.right_to_left)
        parts.append((f"{which}, translation", f"{which}, rotation", apart, f"{name}{TO_LEFT}", aligned.covariance))
    if now.floor is not None:
        apart = floor_error(now.file.floor_plane, now.floor.plane)
        parts.append(("floor, height", "floor, tilt", apart, now.file.floor_key, now.floor.covariance))
    for of_length, of_angle, (distance, turned), key, fresh in parts:
        length, angle = deviations(_covariance(now, key, fresh))
        drifts.append(Drift(of_length, distance, length, tolerances.length, False))
        drifts.append(Drift(of_angle, turned, angle, tolerances.angle, True))
    return Verification(drifts, now.open_questions)


def _covariance(now: Reestimate, key: str, fresh: np.ndarray) -> np.ndarray:
    """Return the covariance of a drift: the `fresh` result's plus the stored one's, which a published file lacks; of
    floors that are seen from one pose of the left lidar, whose uncertainty is excluded."""
    if now.same_lidars:
        return 2.0 * fresh
    stored = now.file.seen_covariance(key)
    return fresh if stored is None else fresh + stored
