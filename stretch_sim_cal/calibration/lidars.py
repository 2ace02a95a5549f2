"""The relative poses of any number of a robot's lidars, from their common views, as one estimate.

`RoomAlignment` (`alignment/planes.py`) estimates them from the clouds. If extrinsics of lidars in base_link are known
(`mount`), they are priors of a second estimate with the floor that the lidars see, by the observations of the first:
so lidars without a common view are tied, too. Without them the first lidar keeps its described pose.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.alignment.planes import RoomAlignment
from stretch_sim_cal.calibration.calibration_file import RIGHT_TO_LEFT, CalibrationFile
from stretch_sim_cal.calibration.cloud_frames import covariance_of_frames, wrong_rotor_angles
from stretch_sim_cal.calibration.clouds import model_of_rows
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.findings import distorted, unit_warnings
from stretch_sim_cal.calibration.floor.support_method import JointFloor
from stretch_sim_cal.calibration.observability import unobserved
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.problem import State, Unknowns
from stretch_sim_cal.calibration.results import LidarPoses, SeenPair
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings, accepting
from stretch_sim_cal.calibration.solver import Solution, Solver, sensor_numbers
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, check_rigid, inverse
from stretch_sim_cal.sensor.sensor import Sensor, Sensors, for_each

STEPS = 8
CONVERGED = 1e-7  # m, rad
# Findings of the common views that mounts and floor may resolve, and those that are checked again with them.
PARTLY = {"unobserved"}
OF_ALL = {"beyond_sensor_file", "driver_uncorrected", "rounded_coordinates", "scan_motion"}
NO_ROOM = "little_overlap"


@dataclass(frozen=True)
class DescribedLidar:
    """A lidar of a robot: its nominal pose `base_from_lidar` (4, 4), its kind, and, if its `mount` is known, that pose
    (4, 4) with its covariance (6, 6), a twist in base_link with true = exp(twist) @ pose."""

    base_from_lidar: np.ndarray
    sensor: Sensor | None = None
    mount: tuple[np.ndarray, np.ndarray] | None = None


def lidars_at(poses: Mapping[str, np.ndarray], sensors: Sensors = None) -> dict[str, DescribedLidar]:
    """Return lidars at poses (4, 4) in base_link, of these kinds. Raises `InputError` for another number of them."""
    kinds = for_each(sensors, len(poses))
    return {name: DescribedLidar(pose, kind) for (name, pose), kind in zip(poses.items(), kinds, strict=True)}


def known_mount(name: str, mount: tuple[np.ndarray, np.ndarray] | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a lidar's mount, pose (4, 4) and covariance (6, 6), checked. Raises `InputError` naming the lidar."""
    if mount is None:
        return None
    if not isinstance(mount, list | tuple) or len(mount) != 2:
        raise InputError(f"mounts: {name}: expected a pose (4, 4) and its covariance (6, 6)")
    pose, covariance = mount[0], np.asarray(mount[1], dtype=float)
    if covariance.shape != (6, 6) or not np.isfinite(covariance).all() or np.linalg.eigvalsh(covariance)[0] <= 0:
        raise InputError(f"mounts: {name}: the covariance must be a positive definite 6x6 matrix")
    return check_rigid(pose, f"mounts: {name}"), covariance


def with_lidars(file: CalibrationFile, result: LidarPoses, robot_id: str) -> CalibrationFile:
    """Return the file with all lidars' transforms to the first, its left lidar. Raises `Refused` for refusals."""
    left, right = result.first_two
    file = file.with_alignment(result.aligned(left, right), robot_id)
    for name in result.names[len(SIDES) :]:
        beside = result.covariance_between(left, name, right)
        file = file.with_further(name, result.aligned(left, name), beside, robot_id)
    return file


def of_file(file: CalibrationFile, base_from_left: np.ndarray) -> LidarPoses:
    """Return the lidars of a calibration file, as `with_lidars` wrote them, the left one at `base_from_left` (4, 4).
    Errors of those beyond two count as independent, except their covariances with the right one's. Raises `InputError`
    if a covariance is missing."""
    entry, names = file.entries[RIGHT_TO_LEFT], tuple(file.to_left)
    covariance = file.covariance_to_left(names)
    if covariance is None:
        raise InputError(f"{file.path}: has no covariance of {', '.join(names)}; align the lidars again")
    to_base = np.kron(np.eye(len(names)), adjoint(base_from_left))
    poses = file.lidars_at(base_from_left)
    of_poses = np.zeros((6 * len(poses), 6 * len(poses)))
    of_poses[6:, 6:] = to_base @ covariance @ to_base.T
    return LidarPoses(poses, of_poses, [], entry.num_frames or 0, entry.rmse or 0.0)


def _untied_lidar(name: str, pairs: Sequence[SeenPair]) -> Finding:
    """Return the refusal of a lidar that cannot be aligned to any other, with the reason of the pair with the largest
    overlap: other reasons than a narrow view come first, since they cause one."""
    unused = [pair for pair in pairs if name in pair.names and not pair.used]
    likely = max(unused, key=lambda pair: (pair.refusals[0].code != NO_ROOM, pair.overlap), default=None)
    why = None if likely is None else likely.refusals[0]
    if why is None or why.code == NO_ROOM:
        seen = "" if why is None or not likely.overlap else f" ({' and '.join(likely.names)}: {why.sentence})"
        return Finding(
            "untied_lidar",
            f"the {name} lidar shares no common view with any other{seen}",
            "move the robot to where another lidar sees the same surfaces, or give its mount",
        )
    sentence = f"the {name} lidar cannot be aligned to any other: {why.sentence} ({' and '.join(likely.names)})"
    return Finding("untied_lidar", sentence, why.remedy)


class LidarAlignment(RoomAlignment):
    """Aligns the lidars of a robot; `add` takes a cloud of each by name, `solve` returns the result."""

    def __init__(
        self, lidars: Mapping[str, DescribedLidar], body: Mapping[str, Any] | None = None,
        accept: tuple[float, float] | None = None, units: Mapping[str, np.ndarray] | None = None,
        nominal_footprint_from_base: np.ndarray | None = None, **given: Any,
    ):  # fmt: skip
        """`lidars` by name; `body` as of `body_settings`, `accept` as of `accepting`; `units` are the parameters of the
        lidars' errors by name, if they are known. With `nominal_footprint_from_base` (4, 4), where the description has
        base_footprint, and known mounts the estimate includes the floor. `given` are further `AlignmentSettings`."""
        self._given = tuple(lidars)
        # The order in the estimate must not depend on the lidars' names.
        places = {name: tuple(lidar.base_from_lidar.round(9).ravel()) for name, lidar in lidars.items()}
        order = sorted(lidars, key=places.__getitem__, reverse=True)
        self._described = [lidars[name].base_from_lidar for name in order]
        self._mounts = [lidars[name].mount for name in order]
        of_lidars = {
            "sensor": tuple(lidars[name].sensor for name in order),
            "units": None if units is None else tuple(units[name] for name in order), **(body or {}),
        }  # fmt: skip
        to_first = inverse(self._described[0])
        super().__init__(
            [to_first @ pose for pose in self._described],
            AlignmentSettings(base_from_left=self._described[0], **of_lidars, **accepting(accept), **given), order,
        )  # fmt: skip
        self._footprint_from_base, self._floor = nominal_footprint_from_base, None
        if nominal_footprint_from_base is not None and any(self._mounts):
            first_two = [order.index(name) for name in self._given[:2]]
            self._floor = JointFloor(
                self._described, nominal_footprint_from_base, FloorSettings(**of_lidars), order, first_two
            )

    def add(self, clouds: Mapping[str, np.ndarray]) -> None:
        """Take a cloud of each lidar by name, as of `RoomAlignment.add`."""
        if len(self._names) == 1:
            return
        in_order = [clouds[name] for name in self._names]
        super().add(*in_order)
        if self._floor is not None:
            self._floor.add(*in_order)

    def solve(self) -> LidarPoses:
        """Return the result, with refusals if the data does not support it."""
        if len(self._given) == 1:
            return LidarPoses.of_one_lidar(self._given[0], self._described[0])
        aligned = self.aligned()
        untied = self._untied(aligned.pairs)
        result = self._with_mounts(aligned, untied) if any(self._mounts) else self._by_views(aligned)
        refusals = [_untied_lidar(name, aligned.pairs) for name in untied]
        warnings = [
            Finding(
                "pair_left_out",
                f"lidars {' and '.join(pair.names)} cannot be aligned by their common view: "
                f"{pair.refusals[0].sentence}",
            ) for pair in aligned.pairs
            if not pair.used and pair.refusals[0].code != NO_ROOM
            and not any(pair.refusals[0].sentence in refusal for refusal in refusals)
        ]  # fmt: skip
        return replace(
            result, refusals=list(dict.fromkeys([*result.refusals, *refusals])),
            warnings=list(dict.fromkeys([*result.warnings, *warnings])),
        )  # fmt: skip

    def _by_views(self, aligned: LidarPoses) -> LidarPoses:
        """Return the alignment with the lidar that was given first at its described pose."""
        names, count, poses = self._given, len(self._given), aligned.base_from_lidar
        first = self._names.index(names[0])
        base_from_common = self._described[first] @ inverse(poses[names[0]])
        # Twists against the first lidar in base_link, by those in the estimate's common frame.
        change = np.kron(np.eye(count) - np.eye(count)[first], adjoint(base_from_common))
        result = replace(
            aligned, pose_covariance=change @ aligned.pose_covariance @ change.T,
            base_from_lidar={name: base_from_common @ pose for name, pose in poses.items()}
            | {names[0]: self._described[first]},
        )  # fmt: skip
        result, observed = result.in_order(names), aligned.observations
        result = replace(result, observations=self._observed(result, observed, observed and observed.units))
        if count > len(SIDES):
            return replace(result, directions=[])
        directions = self._settings.directions(result.covariance(*names), result.base_from_lidar[names[0]])
        return replace(result, method=self.name, directions=directions)

    def _with_mounts(self, aligned: LidarPoses, untied: Sequence[str]) -> LidarPoses:
        """Return the estimate by the alignment's observations, the known mounts and, if it is asked for, the floor."""
        names, aligned_poses = self._names, tuple(aligned.base_from_lidar.values())
        if aligned.observations is None:
            observed = Observations.of_known_poses(aligned_poses[1:], aligned.pose_covariance[6:, 6:])
        else:
            observed = aligned.observations.bias_corrected()
        # The estimate begins at the aligned poses.
        base_from_first = self._described[0] @ inverse(aligned_poses[0])
        poses, priors = [base_from_first @ pose for pose in aligned_poses], [None] * len(names)
        for number, mount in enumerate(self._mounts):
            if mount is not None:
                poses[number], priors[number] = mount
        unknowns, state, solution = self._by_alignment(observed, poses, priors)
        columns, floor = np.ix_(unknowns.pose_columns, unknowns.pose_columns), None
        covariance = solution.covariance[columns]
        if self._floor is not None:
            to_footprint, turned = self._footprint_from_base, adjoint(self._footprint_from_base)
            self._floor.begin_from(
                [to_footprint @ pose for pose in poses], observed,
                [None if prior is None else turned @ prior @ turned.T for prior in priors],
            )  # fmt: skip
            floor = self._floor.solve()
            # The floor constrains lidars that are tied by mounts alone; of others it is used already.
            if self._floor.state is not None and not untied and self._untied(aligned.pairs, by_mounts=False):
                state, solution = self._floor.state, self._floor.solution
                state = replace(state, base_from_lidar=tuple(inverse(to_footprint) @ p for p in state.base_from_lidar))
                to_base = np.kron(np.eye(len(names)), adjoint(inverse(to_footprint)))
                covariance = to_base @ solution.covariance[columns] @ to_base.T
        numbers, sensors = sensor_numbers(unknowns, state, solution, names), self._sensors
        result = replace(
            aligned, base_from_lidar=dict(zip(names, state.base_from_lidar, strict=True)), directions=[], floor=floor,
            pose_covariance=covariance + covariance_of_frames(state.base_from_lidar, numbers, sensors, names),
            diagnostics=aligned.diagnostics | numbers,
        ).in_order(self._given)  # fmt: skip
        # With mounts and floor these are checked again.
        refusals = [finding for finding in aligned.refusals if finding.code not in PARTLY]
        warnings = [finding for finding in aligned.warnings if finding.code not in OF_ALL]
        first, *others = [name for name in result.names if name not in untied]
        for name in others:
            directions = self._settings.directions(result.covariance(first, name), result.base_from_lidar[first])
            refusals += [each.at(f"lidar {name} to {first}") for each in unobserved(directions)]
        return replace(
            result, refusals=refusals + distorted(wrong_rotor_angles(state.base_from_lidar, numbers, names)),
            warnings=warnings + unit_warnings(numbers, sensors, names),
            observations=self._observed(result, aligned.observations, state.units),
        )  # fmt: skip

    def _by_alignment(
        self, observed: Observations, poses: Sequence[np.ndarray], priors: Sequence[np.ndarray | None]
    ) -> tuple[Unknowns, State, Solution]:
        """Return the estimate of the lidars' poses in base_link without the floor."""
        # Of lidars that were not aligned only the scalars matter.
        unaligned = (model_of_rows(sensor, np.zeros(1)) for sensor in self._sensors)
        models = observed.models if observed.knows_units else tuple(unaligned)
        unknowns = Unknowns(models)
        solver, state = Solver.starting(unknowns, poses, priors, self._settings.units if observed.knows_units else None)
        for step in range(STEPS):
            state, solution = solver.step(observed.equations_at(state, unknowns), state, learn=step == 0)
            if np.abs(solution.change[unknowns.pose_columns]).max() < CONVERGED:
                break
        return unknowns, state, solution

    def _observed(self, result: LidarPoses, observed: Observations | None, units: Any) -> Observations | None:
        """Return the observations in the result's order of lidars; `units` are in the estimate's order."""
        if observed is None:
            return None
        order = [self._names.index(name) for name in result.names]
        names = (*SIDES, *result.names[len(SIDES) :])
        return observed.in_order(order, names, result.to_first, result.covariance_to_first, units)

    def _untied(self, pairs: Sequence[SeenPair], by_mounts: bool = True) -> list[str]:
        """Return the lidars that no pairs, and no mounts if these count, tie to most of the others."""
        groups = [{name} for name in self._given]
        mounts = dict(zip(self._names, self._mounts, strict=True))
        mounted = [name for name in self._given if by_mounts and mounts[name] is not None]
        for one, other in [pair.names for pair in pairs if pair.used] + list(itertools.pairwise(mounted)):
            joined = [group for group in groups if one in group or other in group]
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
        most = max(groups, key=lambda group: (len(group), self._given[0] in group))
        return [name for name in self._given if name not in most]
