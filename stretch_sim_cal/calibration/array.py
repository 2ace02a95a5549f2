"""The lidars of one robot: to each other from what they see in common, and to the floor that they see.

What all see in common is one estimate (`alignment/planes.py`); what it observed, without priors, and the floor patches
of all are another one (`floor/support_method.py`), over the poses of all lidars, the floor, and the errors of every
unit. A lidar whose mount is known has its pose as prior; without any the first lidar stays where the description has
it.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.alignment.planes import AlignedLidars, RoomAlignment, SeenPair
from stretch_sim_cal.calibration.calibration_file import ARRAY, RIGHT_TO_LEFT, CalibrationFile
from stretch_sim_cal.calibration.cloud_frames import covariance_of_frames, wrong_rotor_angles
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.findings import (
    distorted,
    unit_warnings,
)
from stretch_sim_cal.calibration.floor.support_method import JointFloor
from stretch_sim_cal.calibration.observability import unobserved
from stretch_sim_cal.calibration.observations import Observations, by_poses
from stretch_sim_cal.calibration.problem import (
    FIXED,
    Solution,
    Solver,
    State,
    Unknowns,
    sensor_numbers,
)
from stretch_sim_cal.calibration.results import AlignmentResult, FloorResult
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings, accepting
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, check_rigid, inverse
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit import UNKNOWN_SENSOR, ErrorModel

STEPS = 8
SETTLED = 1e-7  # m, rad
# A finding of what all see in common that floor and mounts answer as well.
PARTLY = {"unobserved"}
# Findings that the estimate with the floor answers anew.
OF_ALL = {"beyond_sensor_file", "driver_uncorrected"}
NO_ROOM = "little_overlap"


@dataclass(frozen=True)
class ArrayLidar:
    """A lidar of the array: its nominal pose `base_from_lidar` (4, 4), its kind, and, if its `mount` was found, that
    pose (4, 4) with its covariance (6, 6), a twist in base_link with true = exp(twist) @ pose."""

    base_from_lidar: np.ndarray
    sensor: Sensor | None = None
    mount: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True)
class ArrayResult:
    """The lidars of a robot.

    `base_from_lidar` are their poses (4, 4) by name and `pose_covariance` (6 n, 6 n) is over their twists in base_link
    in the same order, true = exp(twist) @ pose; without known mounts the first lidar is where the description has it,
    and the others and the floor as seen from there. `pairs` are what every two of them see in common, `rmse` (m) the
    root mean square distance between their surfaces. `floor` is None if it was not asked for. `numbers` are the lidars'
    own errors as in an alignment's diagnostics, by their names, and `method` says what aligned them. A result with
    `refusals` must not be written. `observations`, if there are any, are for later stages.
    """

    base_from_lidar: dict[str, np.ndarray]
    pose_covariance: np.ndarray
    pairs: list[SeenPair]
    floor: FloorResult | None
    numbers: dict[str, float]
    num_frames: int
    rmse: float
    refusals: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    method: str = ARRAY
    observations: Observations | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The lidars' names, in the order in which they were given."""
        return tuple(self.base_from_lidar)

    @property
    def accepted(self) -> bool:
        """Whether the data supports the lidars' poses; the floor has its own refusals."""
        return not self.refusals

    def transform(self, target: str, source: str) -> np.ndarray:
        """Return the transform (4, 4) that maps points of lidar `source` into the frame of lidar `target`."""
        found: np.ndarray = inverse(self.base_from_lidar[target]) @ self.base_from_lidar[source]
        return found

    def covariance(self, target: str, source: str) -> np.ndarray:
        """Return the covariance (6, 6) of `transform`, in the target's frame, `true = exp(xi) @ transform`."""
        return self.covariance_between(target, source, source)

    def covariance_between(self, target: str, source: str, other: str) -> np.ndarray:
        """Return the covariance (6, 6) between the twists of `transform(target, source)` and `(target, other)`."""
        size, blocks = len(self.names), []
        for name in (source, other):
            change = np.zeros((6, 6 * size))
            by_both = by_poses(self.base_from_lidar[target])
            for lidar, part in ((target, by_both[:, :6]), (name, by_both[:, 6:])):
                change[:, 6 * self.names.index(lidar) :][:, :6] += part
            blocks.append(change)
        found: np.ndarray = blocks[0] @ self.pose_covariance @ blocks[1].T
        return found

    @property
    def to_first(self) -> dict[str, np.ndarray]:
        """The transforms (4, 4) of all lidars but the first into its frame, by name."""
        first, *others = self.names
        return {name: self.transform(first, name) for name in others}

    @property
    def covariance_to_first(self) -> np.ndarray:
        """The covariance (6 (n - 1), 6 (n - 1)) of the twists of `to_first`, in its order, in the first one's frame."""
        change = by_poses(self.base_from_lidar[self.names[0]], len(self.names) - 1)
        found: np.ndarray = change @ self.pose_covariance @ change.T
        return found

    @property
    def known(self) -> Observations:
        """The observations for later stages: the estimate's own, or the lidars' transforms by their covariance."""
        return self.observations or Observations.of_known_poses(
            tuple(self.to_first.values()), self.covariance_to_first, self.names
        )

    def aligned(self, target: str, source: str) -> AlignmentResult:
        """Return the transform between two lidars as all of them give it, in the form of an alignment of two."""
        pair = next((pair for pair in self.pairs if set(pair.names) == {target, source}), None)
        return AlignmentResult(
            self.transform(target, source), self.covariance(target, source), self.rmse, self.num_frames, self.method,
            0.0 if pair is None else pair.overlap, [],
        )  # fmt: skip


def known_mount(name: str, mount: tuple[np.ndarray, np.ndarray] | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a lidar's mount, pose (4, 4) and covariance (6, 6), checked. Raises `InputError` naming the lidar."""
    if mount is None:
        return None
    pose, covariance = mount
    covariance = np.asarray(covariance, dtype=float)
    if covariance.shape != (6, 6) or not np.isfinite(covariance).all() or np.linalg.eigvalsh(covariance)[0] <= 0:
        raise InputError(f"mounts: {name}: the covariance must be a positive definite 6x6 matrix")
    return check_rigid(pose, f"mounts: {name}"), covariance


def with_lidars(file: CalibrationFile, result: ArrayResult, robot_id: str) -> CalibrationFile:
    """Return the file with all lidars of an accepted result of two or more; the first two are left and right."""
    left, right, *further = result.names
    file = file.with_alignment(result.aligned(left, right), robot_id)
    for name in further:
        beside = result.covariance_between(left, name, right)
        file = file.with_further(name, result.aligned(left, name), beside, robot_id)
    return file


def left_from_lidars(aligned: Any) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Return the transforms (4, 4) of all lidars but the left one to it by name, as a method found them, and their
    covariance (6 n, 6 n), None if it gives none."""
    if isinstance(aligned, ArrayResult):
        return aligned.to_first, aligned.covariance_to_first
    return {"right": aligned.right_to_left}, getattr(aligned, "covariance", None)


def of_file(file: CalibrationFile, base_from_left: np.ndarray) -> ArrayResult:
    """Return the lidars of a calibration file, as `with_lidars` wrote them, the left one at `base_from_left` (4, 4).
    What the errors of those beyond two do not have in common with the right one's counts as independent. Raises
    `InputError` if a covariance is missing."""
    entry, names = file.entries[RIGHT_TO_LEFT], tuple(file.to_left)
    covariance = file.covariance_to_left(names)
    if covariance is None:
        raise InputError(f"{file.path}: lacks a covariance of {', '.join(names)}; align the lidars again")
    to_base = np.kron(np.eye(len(names)), adjoint(base_from_left))
    poses = {"left": base_from_left} | {name: base_from_left @ pose for name, pose in file.to_left.items()}
    of_poses = np.zeros((6 * len(poses), 6 * len(poses)))
    of_poses[6:, 6:] = to_base @ covariance @ to_base.T
    return ArrayResult(poses, of_poses, [], None, {}, entry.num_frames or 0, entry.rmse or 0.0)


class LidarArray:
    """Calibrates the lidars of a robot; `add` takes a cloud of each, `solve` returns the result."""

    def __init__(
        self, lidars: Mapping[str, ArrayLidar], nominal_footprint_from_base: np.ndarray, floor: bool = True,
        body: Mapping[str, Any] | None = None, accept: tuple[float, float] | None = None,
        units: Mapping[str, np.ndarray] | None = None,
    ):  # fmt: skip
        """`lidars` by name, two or more; `nominal_footprint_from_base` (4, 4) is where the description has
        base_footprint, near which the `floor` is looked for if it is asked for; `body` as of `body_settings`, `accept`
        as of `accepting`; `units` are the parameters of the lidars' own errors by name, if they are known."""
        self._lidars, self._accept, body = dict(lidars), accepting(accept), body or {}
        # Which one is the first in the estimate must not depend on what the lidars are called.
        self._order = sorted(lidars, key=lambda name: tuple(lidars[name].base_from_lidar.round(9).ravel()))
        self._described = [lidars[name].base_from_lidar for name in self._order]
        self._sensors = tuple(lidars[name].sensor for name in self._order)
        # Where a mount is known it is the prior; else the lidar that was given first stays where it is.
        self._mounts = [lidars[name].mount for name in self._order]
        self._fixed = None if any(self._mounts) else self._order.index(next(iter(lidars)))
        self._units = None if units is None else tuple(units[name] for name in self._order)
        of_lidars = {"sensor": self._sensors, "units": self._units, **body}
        settings = AlignmentSettings(base_from_left=self._described[0], **of_lidars, **self._accept)
        to_first = inverse(self._described[0])
        self._alignment = RoomAlignment([to_first @ pose for pose in self._described], settings, self._order)
        self._floor = None
        if floor:
            first_two = [self._order.index(name) for name in list(lidars)[:2]]
            self._floor = JointFloor(
                self._described, nominal_footprint_from_base, FloorSettings(**of_lidars), self._order,
                first_two=first_two,
            )  # fmt: skip
        self._footprint_from_base = nominal_footprint_from_base
        self._num_frames = 0

    def new_place(self) -> None:
        """Begin with the clouds of another standing place, as of `RoomAlignment.new_place`; the floor is that of the
        first one."""
        self._alignment.new_place()

    def save_places(self, path: Path) -> None:
        """Keep what was seen of all standing places in a file, as of `RoomAlignment.save_places`."""
        self._alignment.save_places(path)

    def load_places(self, path: Path) -> None:
        """Begin with the standing places that a file keeps, as of `RoomAlignment.load_places`."""
        self._alignment.load_places(path)

    def add(self, clouds: Mapping[str, np.ndarray], floor: bool = True) -> None:
        """Take a cloud of each lidar by name, as of `RoomAlignment.add`; the `floor` is looked for in it, or not."""
        self._num_frames += 1
        in_order = [clouds[name] for name in self._order]
        self._alignment.add(*in_order)
        if floor and self._floor is not None:
            self._floor.add(*in_order)

    def solve(self) -> ArrayResult:
        """Return the result, with refusals if the data does not support it."""
        aligned = self._alignment.aligned()
        if aligned.observations is None:
            observed = Observations.of_known_poses(aligned.poses[1:], aligned.covariance)
        else:
            observed = aligned.observations.bias_corrected(aligned.by_chance)
        # The estimate begins with the lidars as they are aligned.
        one = self._fixed if self._fixed is not None else 0
        base_from_first = self._described[one] @ inverse(aligned.poses[one])
        poses, priors = [base_from_first @ pose for pose in aligned.poses], [None] * len(self._order)
        for number, mount in enumerate(self._mounts):
            if mount is not None:
                poses[number], priors[number] = mount
        if self._fixed is not None:
            priors[self._fixed] = FIXED
        unknowns, state, solution = self._by_alignment(observed, poses, priors)
        covariance, floor = self._covariance(unknowns, solution), None
        if self._floor is not None:
            to_footprint, turned = self._footprint_from_base, adjoint(self._footprint_from_base)
            self._floor.begin_from(
                [to_footprint @ pose for pose in poses], observed,
                [None if prior is None else turned @ prior @ turned.T for prior in priors],
            )  # fmt: skip
            floor = self._floor.solve()
            # Of lidars that mounts alone tie the floor says how they stand; of others it says nothing new.
            tied_by_mounts = not self._untied(aligned.pairs) and self._untied(aligned.pairs, by_mounts=False)
            if self._floor.state is not None and tied_by_mounts:
                state, solution = self._floor.state, self._floor.solution
                state = replace(state, base_from_lidar=tuple(inverse(to_footprint) @ p for p in state.base_from_lidar))
                to_base = np.kron(np.eye(len(self._order)), adjoint(inverse(to_footprint)))
                covariance = to_base @ self._covariance(unknowns, solution) @ to_base.T
        return self._result(unknowns, state, solution, covariance, aligned, floor)

    def _covariance(self, unknowns: Unknowns, solution: Solution) -> np.ndarray:
        """Return the covariance (6 n, 6 n) of the twists of all lidars, in the estimate's order."""
        return solution.covariance[np.ix_(unknowns.pose_columns, unknowns.pose_columns)]

    def _by_alignment(
        self, observed: Observations, poses: Sequence[np.ndarray], priors: Sequence[np.ndarray | None]
    ) -> tuple[Unknowns, State, Solution]:
        """Return the estimate of the lidars' poses in base_link without the floor."""
        models = observed.models if observed.knows_units else tuple(map(_scalars_alone, self._sensors))
        unknowns = Unknowns(models)
        solver, state = Solver.starting(unknowns, poses, priors, self._units if observed.knows_units else None)
        for step in range(STEPS):
            state, solution = solver.step(observed.equations_at(state, unknowns), state, learn=step == 0)
            if np.abs(solution.change[unknowns.pose_columns]).max() < SETTLED:
                break
        return unknowns, state, solution

    def _result(
        self, unknowns: Unknowns, state: State, solution: Solution, covariance: np.ndarray, aligned: AlignedLidars,
        floor: FloorResult | None,
    ) -> ArrayResult:  # fmt: skip
        names = tuple(self._lidars)
        own = np.concatenate([6 * self._order.index(name) + np.arange(6) for name in names])
        numbers = sensor_numbers(unknowns, state, solution, self._order)
        poses = [state.base_from_lidar[self._order.index(name)] for name in names]
        frames = covariance_of_frames(poses, numbers, [self._lidars[name].sensor for name in names], names)
        result = ArrayResult(
            dict(zip(names, poses, strict=True)), covariance[np.ix_(own, own)] + frames, aligned.pairs, floor, numbers,
            self._num_frames, aligned.rmse,
        )  # fmt: skip
        refusals = [said for said in aligned.refusals if said.code not in PARTLY]
        warnings = [said for said in aligned.warnings if said.code not in OF_ALL]
        for pair in aligned.pairs:
            if not pair.used and pair.refusals[0].code != NO_ROOM:
                sentence = (
                    f"lidars {' and '.join(pair.names)} are not brought together by what both see: "
                    f"{pair.refusals[0].sentence}"
                )
                warnings.append(Finding("pair_left_out", sentence))
        untied = self._untied(aligned.pairs)
        refusals += [
            Finding(
                "untied_lidar",
                f"nothing ties the {name} lidar to the others: it sees too little in common with any of them",
                "move the robot to where another lidar sees the same surfaces, or give its mount, found by the robot's "
                "returns",
            ) for name in untied
        ]  # fmt: skip
        settings = AlignmentSettings(**self._accept)
        tied = [name for name in names if name not in untied]
        for name in tied[1:]:
            found = settings.directions(result.covariance(tied[0], name), result.base_from_lidar[tied[0]])
            refusals += [said.at(f"lidar {name} to {tied[0]}") for said in unobserved(found)]
        warnings += unit_warnings(numbers, self._sensors, self._order)
        refusals += distorted(wrong_rotor_angles(state.base_from_lidar, numbers, self._order))
        observed = aligned.observations
        if observed is not None:
            order, called = [self._order.index(name) for name in names], (*SIDES, *names[2:])
            observed = observed.in_order(order, called, result.to_first, result.covariance_to_first, state.units)
        return replace(
            result, refusals=list(dict.fromkeys(refusals)), warnings=list(dict.fromkeys(warnings)),
            observations=observed,
        )  # fmt: skip

    def _untied(self, pairs: Sequence[SeenPair], by_mounts: bool = True) -> list[str]:
        """Return the lidars that no pairs, and no mounts if these count, tie to most of the others."""
        groups = [{name} for name in self._lidars]
        mounted = [name for name, lidar in self._lidars.items() if by_mounts and lidar.mount is not None]
        for one, other in [pair.names for pair in pairs if pair.used] + list(itertools.pairwise(mounted)):
            joined = [group for group in groups if one in group or other in group]
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
        most = max(groups, key=lambda group: (len(group), next(iter(self._lidars)) in group))
        return [name for name in self._lidars if name not in most]


def _scalars_alone(sensor: Sensor | None) -> ErrorModel:
    """Return the error model of a lidar that was not aligned: one of the scalars alone."""
    spread, centre = (UNKNOWN_SENSOR, np.zeros(3)) if sensor is None else (sensor.expected, sensor.optical_centre)
    return ErrorModel(spread, np.zeros(1), np.zeros(1), centre)
