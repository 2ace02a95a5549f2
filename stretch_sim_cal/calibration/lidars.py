"""The poses of a robot's lidars to each other, any number of them, from what they see in common, as one estimate.

`RoomAlignment` (`alignment/planes.py`) estimates them from the clouds. If extrinsics of lidars in base_link are known
(`mount`), they are priors of a second estimate with the floor that the lidars see, over what the first one observed:
so lidars without a common view are tied, too. Without them the first lidar stays where the description has it.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.alignment.another_place import AnotherPlace
from stretch_sim_cal.calibration.alignment.planes import AlignedLidars, RoomAlignment, SeenPair
from stretch_sim_cal.calibration.calibration_file import ARRAY, ONE_LIDAR, RIGHT_TO_LEFT, CalibrationFile
from stretch_sim_cal.calibration.cloud_frames import covariance_of_frames, wrong_rotor_angles
from stretch_sim_cal.calibration.finding import Finding, coded
from stretch_sim_cal.calibration.findings import distorted, unit_warnings
from stretch_sim_cal.calibration.floor.support_method import JointFloor
from stretch_sim_cal.calibration.observability import Direction, unobserved
from stretch_sim_cal.calibration.observations import Observations, by_poses
from stretch_sim_cal.calibration.problem import Solution, Solver, State, Unknowns, sensor_numbers
from stretch_sim_cal.calibration.results import AlignmentResult, FloorResult
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings, accepting
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, check_rigid, inverse
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit import UNKNOWN_SENSOR, ErrorModel

STEPS = 8
CONVERGED = 1e-7  # m, rad
# Findings of what the lidars see in common which mounts and floor may cure, and which are checked anew with them.
PARTLY = {"unobserved"}
OF_ALL = {"beyond_sensor_file", "driver_uncorrected"}
NO_ROOM = "little_overlap"


@dataclass(frozen=True)
class DescribedLidar:
    """A lidar of a robot: its nominal pose `base_from_lidar` (4, 4), its kind, and, if its `mount` was found, that
    pose (4, 4) with its covariance (6, 6), a twist in base_link with true = exp(twist) @ pose."""

    base_from_lidar: np.ndarray
    sensor: Sensor | None = None
    mount: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True)
class LidarPoses:
    """The poses of a robot's lidars to each other.

    `base_from_lidar` are their poses (4, 4) by name and `pose_covariance` (6 n, 6 n) is over their twists in base_link
    in the same order, true = exp(twist) @ pose; without known mounts the first lidar is where the description has it,
    and the others as seen from there. `pairs` are what every two of them see in common, `rmse` (m) the root mean square
    distance between their surfaces, `diagnostics` the lidars' errors and other figures, `method` the method's name.
    `directions` (of two lidars) are how well each direction of their transform is determined. `floor` is that of an
    estimate which included it. A result with `refusals` must not be written. `observations` are for later stages.
    """

    base_from_lidar: dict[str, np.ndarray]
    pose_covariance: np.ndarray
    pairs: list[SeenPair]
    num_frames: int
    rmse: float
    refusals: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    method: str = ARRAY
    diagnostics: dict[str, float] = field(default_factory=dict)
    directions: list[Direction] = field(default_factory=list)
    floor: FloorResult | None = None
    observations: Observations | None = field(default=None, repr=False)

    @classmethod
    def of_one_lidar(cls, name: str, base_from_lidar: np.ndarray) -> "LidarPoses":
        """Return the result for a robot with one lidar, which there is nothing to align to."""
        return cls({name: base_from_lidar}, np.zeros((6, 6)), [], 0, 0.0, method=ONE_LIDAR)

    @classmethod
    def of_pairs(cls, first: str, base_from_first: np.ndarray, found: Mapping[str, AlignmentResult]) -> "LidarPoses":
        """Return the result of a method for two that aligned each of the other lidars with the `first` one; their
        errors count as independent. Findings name the lidar if there are several."""

        def named(sentences: Sequence[str], name: str) -> list[Finding]:
            return [coded(each) if len(found) == 1 else coded(each).at(f"lidar {name}") for each in sentences]

        results = list(found.values())
        poses = {first: base_from_first} | {
            name: base_from_first @ result.right_to_left for name, result in found.items()
        }
        covariance, to_base = np.zeros((6 * len(poses), 6 * len(poses))), adjoint(base_from_first)
        for number, result in enumerate(results, start=1):
            block = slice(6 * number, 6 * number + 6)
            covariance[block, block] = to_base @ result.covariance @ to_base.T
        pairs = [
            SeenPair((first, name), result.overlap, named(result.refusals, name)) for name, result in found.items()
        ]
        of_two = results[0] if len(results) == 1 else None
        return cls(
            poses, covariance, pairs, results[0].num_frames, max(result.rmse for result in results),
            [finding for pair in pairs for finding in pair.refusals],
            [finding for name, result in found.items() for finding in named(result.warnings, name)],
            results[0].method, of_two.diagnostics if of_two else {}, of_two.directions if of_two else [],
            observations=of_two.observations if of_two else None,
        )  # fmt: skip

    @property
    def names(self) -> tuple[str, ...]:
        """The lidars' names, in the order in which they were given."""
        return tuple(self.base_from_lidar)

    @property
    def first_two(self) -> tuple[str, str]:
        """The names of the first two lidars, which a file calls left and right; the same one twice of one lidar."""
        return self.names[0], self.names[min(1, len(self.names) - 1)]

    @property
    def accepted(self) -> bool:
        """Whether the data supports the lidars' poses; the floor has its own refusals."""
        return not self.refusals

    def transform(self, target: str, source: str) -> np.ndarray:
        """Return the transform (4, 4) that maps points of lidar `source` into the frame of lidar `target`; of one lidar
        it is exactly the identity."""
        if target == source:
            return np.eye(4)
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
    def known(self) -> Observations | None:
        """The observations for later stages: the estimate's, or the lidars' transforms by their covariance; None of one
        lidar."""
        if self.observations is not None or len(self.names) == 1:
            return self.observations
        return Observations.of_known_poses(tuple(self.to_first.values()), self.covariance_to_first, self.names)

    def aligned(self, target: str, source: str) -> AlignmentResult:
        """Return the transform between two lidars, with the findings on all of them; directions and observations are of
        all lidars in their order, and so only of two."""
        overlaps = (pair.overlap for pair in self.pairs if set(pair.names) == {target, source})
        of_all = (target, source) == self.names
        return AlignmentResult(
            self.transform(target, source), self.covariance(target, source), self.rmse, self.num_frames, self.method,
            next(overlaps, float(target == source)), self.directions if of_all else [], list(self.warnings),
            list(self.refusals), self.diagnostics, self.observations if of_all else None,
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


def with_lidars(file: CalibrationFile, result: LidarPoses, robot_id: str) -> CalibrationFile:
    """Return the file with the transforms of all lidars to the first one; the first two are the file's left and right.
    Raises `Refused` for a refused result."""
    left, right = result.first_two
    file = file.with_alignment(result.aligned(left, right), robot_id)
    for name in result.names[len(SIDES) :]:
        beside = result.covariance_between(left, name, right)
        file = file.with_further(name, result.aligned(left, name), beside, robot_id)
    return file


def of_file(file: CalibrationFile, base_from_left: np.ndarray) -> LidarPoses:
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
    return LidarPoses(poses, of_poses, [], entry.num_frames or 0, entry.rmse or 0.0)


class LidarAlignment:
    """Aligns the lidars of a robot; `add` takes a cloud of each, `solve` returns the result."""

    def __init__(
        self, lidars: Mapping[str, DescribedLidar], body: Mapping[str, Any] | None = None,
        accept: tuple[float, float] | None = None, units: Mapping[str, np.ndarray] | None = None,
        nominal_footprint_from_base: np.ndarray | None = None, **given: Any,
    ):  # fmt: skip
        """`lidars` by name; `body` as of `body_settings`, `accept` as of `accepting`; `units` are the parameters of the
        lidars' errors by name, if they are known. With `nominal_footprint_from_base` (4, 4), where the description has
        base_footprint, and known mounts the estimate includes the floor. `given` are further `AlignmentSettings`."""
        self._lidars, body = dict(lidars), body or {}
        # Which one is the first in the estimate must not depend on what the lidars are called.
        places = {name: tuple(lidar.base_from_lidar.round(9).ravel()) for name, lidar in lidars.items()}
        self._order = sorted(lidars, key=places.__getitem__, reverse=True)
        self._described = [lidars[name].base_from_lidar for name in self._order]
        self._sensors = tuple(lidars[name].sensor for name in self._order)
        self._mounts = [lidars[name].mount for name in self._order]
        self._units = None if units is None else tuple(units[name] for name in self._order)
        of_lidars = {"sensor": self._sensors, "units": self._units, **body}
        self._settings = AlignmentSettings(base_from_left=self._described[0], **of_lidars, **accepting(accept), **given)
        to_first = inverse(self._described[0])
        self._alignment = RoomAlignment([to_first @ pose for pose in self._described], self._settings, self._order)
        self._footprint_from_base, self._floor = nominal_footprint_from_base, None
        if nominal_footprint_from_base is not None and any(self._mounts):
            first_two = [self._order.index(name) for name in list(lidars)[:2]]
            self._floor = JointFloor(
                self._described, nominal_footprint_from_base, FloorSettings(**of_lidars), self._order,
                first_two=first_two,
            )  # fmt: skip

    def new_place(self) -> None:
        """Begin with the clouds of another standing place, as of `RoomAlignment.new_place`; the floor is that of the
        first one."""
        self._alignment.new_place()

    def another_place(self) -> AnotherPlace | None:
        """Return what a further standing place would gain on what was solved; None if that is not known."""
        return self._alignment.another_place() if len(self._lidars) == len(SIDES) else None

    def save_places(self, path: Path) -> None:
        """Keep what was seen of all standing places in a file, as of `RoomAlignment.save_places`."""
        self._alignment.save_places(path)

    def load_places(self, path: Path) -> None:
        """Begin with the standing places that a file keeps, as of `RoomAlignment.load_places`."""
        self._alignment.load_places(path)

    def add(self, clouds: Mapping[str, np.ndarray]) -> None:
        """Take a cloud of each lidar by name, as of `RoomAlignment.add`."""
        if len(self._order) == 1:
            return
        in_order = [clouds[name] for name in self._order]
        self._alignment.add(*in_order)
        if self._floor is not None:
            self._floor.add(*in_order)

    def solve(self) -> LidarPoses:
        """Return the result, with refusals if the data does not support it."""
        names = tuple(self._lidars)
        if len(names) == 1:
            return LidarPoses.of_one_lidar(names[0], self._described[0])
        aligned = self._alignment.aligned()
        result = self._with_mounts(aligned) if any(self._mounts) else self._by_views(aligned)
        untied = [
            Finding(
                "untied_lidar",
                f"nothing ties the {name} lidar to the others: it sees too little in common with any of them",
                "move the robot to where another lidar sees the same surfaces, or give its mount, found by the robot's "
                "returns",
            ) for name in self._untied(aligned.pairs)
        ]  # fmt: skip
        left_out = [
            Finding(
                "pair_left_out",
                f"lidars {' and '.join(pair.names)} are not brought together by what both see: "
                f"{pair.refusals[0].sentence}",
            ) for pair in aligned.pairs if not pair.used and pair.refusals[0].code != NO_ROOM
        ]  # fmt: skip
        return replace(
            result, refusals=list(dict.fromkeys([*result.refusals, *untied])),
            warnings=list(dict.fromkeys([*result.warnings, *left_out])),
        )  # fmt: skip

    def _by_views(self, aligned: AlignedLidars) -> LidarPoses:
        """Return the alignment with the lidar that was given first where the description has it."""
        names, count = tuple(self._lidars), len(self._lidars)
        first = self._order.index(names[0])
        base_from_common = self._described[first] @ inverse(aligned.poses[first])
        poses = [base_from_common @ pose for pose in aligned.poses]
        poses[first] = self._described[first]
        # Twists against the first lidar in base_link, by those in the estimate's common frame.
        change = np.kron(np.eye(count) - np.eye(count)[first], adjoint(base_from_common))
        covariance = np.zeros((6 * count, 6 * count))
        covariance[6:, 6:] = aligned.covariance
        result = self._in_order(
            aligned, poses, change @ covariance @ change.T, aligned.refusals, aligned.warnings, aligned.diagnostics
        )  # fmt: skip
        if aligned.observations is not None:
            result = self._observing(result, aligned.observations, aligned.observations.units)
        if count > len(SIDES):
            return result
        directions = self._settings.directions(result.covariance(*names), result.base_from_lidar[names[0]])
        return replace(result, method=self._alignment.name, directions=directions)

    def _with_mounts(self, aligned: AlignedLidars) -> LidarPoses:
        """Return the estimate by what the alignment observed, the known mounts and, if it is asked for, the floor."""
        if aligned.observations is None:
            observed = Observations.of_known_poses(aligned.poses[1:], aligned.covariance)
        else:
            observed = aligned.observations.bias_corrected(aligned.by_chance)
        # The estimate begins with the lidars as they are aligned.
        base_from_first = self._described[0] @ inverse(aligned.poses[0])
        poses, priors = [base_from_first @ pose for pose in aligned.poses], [None] * len(self._order)
        for number, mount in enumerate(self._mounts):
            if mount is not None:
                poses[number], priors[number] = mount
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
        numbers = sensor_numbers(unknowns, state, solution, self._order)
        covariance = covariance + covariance_of_frames(state.base_from_lidar, numbers, self._sensors, self._order)
        # With mounts and floor these are checked again.
        refusals = [finding for finding in aligned.refusals if finding.code not in PARTLY]
        warnings = [finding for finding in aligned.warnings if finding.code not in OF_ALL]
        result = self._in_order(
            aligned, state.base_from_lidar, covariance, refusals,
            warnings + unit_warnings(numbers, self._sensors, self._order), aligned.diagnostics | numbers,
        )  # fmt: skip
        untied = self._untied(aligned.pairs)
        first, *others = [name for name in result.names if name not in untied]
        for name in others:
            found = self._settings.directions(result.covariance(first, name), result.base_from_lidar[first])
            refusals = refusals + [each.at(f"lidar {name} to {first}") for each in unobserved(found)]
        refusals = refusals + distorted(wrong_rotor_angles(state.base_from_lidar, numbers, self._order))
        result = replace(result, refusals=refusals, floor=floor)
        if aligned.observations is None:
            return result
        return self._observing(result, aligned.observations, state.units)

    def _by_alignment(
        self, observed: Observations, poses: Sequence[np.ndarray], priors: Sequence[np.ndarray | None]
    ) -> tuple[Unknowns, State, Solution]:
        """Return the estimate of the lidars' poses in base_link without the floor."""
        models = observed.models if observed.knows_units else tuple(map(_scalars_alone, self._sensors))
        unknowns = Unknowns(models)
        solver, state = Solver.starting(unknowns, poses, priors, self._units if observed.knows_units else None)
        for step in range(STEPS):
            state, solution = solver.step(observed.equations_at(state, unknowns), state, learn=step == 0)
            if np.abs(solution.change[unknowns.pose_columns]).max() < CONVERGED:
                break
        return unknowns, state, solution

    @staticmethod
    def _covariance(unknowns: Unknowns, solution: Solution) -> np.ndarray:
        """Return the covariance (6 n, 6 n) of the twists of all lidars, in the estimate's order."""
        return solution.covariance[np.ix_(unknowns.pose_columns, unknowns.pose_columns)]

    def _in_order(
        self, aligned: AlignedLidars, poses: Sequence[np.ndarray], covariance: np.ndarray,
        refusals: Sequence[Finding], warnings: Sequence[Finding], diagnostics: Mapping[str, float],
    ) -> LidarPoses:  # fmt: skip
        """Return a result by `poses` (4, 4) in base_link and their `covariance` (6 n, 6 n), both in the estimate's
        order, with the lidars in theirs."""
        numbers = [self._order.index(name) for name in self._lidars]
        columns = np.concatenate([6 * number + np.arange(6) for number in numbers])
        return LidarPoses(
            dict(zip(self._lidars, (poses[number] for number in numbers), strict=True)),
            covariance[np.ix_(columns, columns)], aligned.pairs, aligned.num_frames, aligned.rmse, list(refusals),
            list(warnings), diagnostics=dict(diagnostics),
        )  # fmt: skip

    def _observing(self, result: LidarPoses, observed: Observations, units: Sequence[np.ndarray]) -> LidarPoses:
        """Return the result with what was observed, the lidars in their order, and the parameters of their errors
        `units`, in the estimate's order."""
        order = [self._order.index(name) for name in result.names]
        names = (*SIDES, *result.names[len(SIDES) :])
        observations = observed.in_order(order, names, result.to_first, result.covariance_to_first, units)
        return replace(result, observations=observations)

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
