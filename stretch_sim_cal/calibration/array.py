"""The lidars of one robot: to each other from what they see in common, and to the floor that each one sees.

What all see in common is one estimate (`alignment/planes.py`), and every lidar finds the floor by itself
(`floor/support_method.py`). What these observed, without priors, is added up in one problem (`problem.py`) over the
poses of all lidars, the floor, and the errors of every unit. A lidar whose mount is known has its pose as prior;
without any the first lidar stays where the description has it.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.alignment.planes import AlignedLidars, RoomAlignment, SeenPair
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.cloud_frames import covariance_of_frames, wrong_rotor_angles
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.findings import (
    UNLIKELY,
    Findings,
    check_support,
    distorted,
    unit_warnings,
)
from stretch_sim_cal.calibration.floor.support import widest_gap
from stretch_sim_cal.calibration.floor.support_method import SupportFloor
from stretch_sim_cal.calibration.observability import directions, unobserved
from stretch_sim_cal.calibration.observations import Observations, by_poses, columns_of
from stretch_sim_cal.calibration.problem import (
    FIXED,
    FLOOR,
    NormalEquations,
    Priors,
    Solution,
    Solver,
    State,
    Unknowns,
    sensor_numbers,
)
from stretch_sim_cal.calibration.results import AlignmentResult, FloorResult, Support
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings, accepting
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import Plane, floor_between, footprint_from_base
from stretch_sim_cal.geometry.transforms import check_rigid, exp, inverse
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit import SCALARS, UNKNOWN_SENSOR, ErrorModel

STEPS = 8
SETTLED = 1e-7  # m, rad
SMALL = 1e-6  # m, rad: of the difference that gives a plane's derivatives
# A finding of what all see in common that floor and mounts answer as well.
PARTLY = {"unobserved"}
# Findings of all lidars, or of one lidar's floor, that all together answer anew.
OF_ALL = {"beyond_sensor_file", "driver_uncorrected", "floor_of_one_lidar"}
OF_ONE_VIEW = {"little_floor", "floor_on_one_side", "uncertain_floor"}
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
    root mean square distance between their surfaces. `floor` is None if it was not asked for;
    `floors` is what each lidar sees of it by itself. `numbers` are the lidars' own errors as in an alignment's
    diagnostics, by their names. A result with `refusals` must not be written.
    """

    base_from_lidar: dict[str, np.ndarray]
    pose_covariance: np.ndarray
    pairs: list[SeenPair]
    floor: FloorResult | None
    floors: dict[str, FloorResult]
    numbers: dict[str, float]
    num_frames: int
    rmse: float
    refusals: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

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

    def aligned(self, target: str, source: str) -> AlignmentResult:
        """Return the transform between two lidars as all of them give it, in the form of an alignment of two."""
        pair = next((pair for pair in self.pairs if set(pair.names) == {target, source}), None)
        return AlignmentResult(
            self.transform(target, source), self.covariance(target, source), self.rmse, self.num_frames, "array",
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


class LidarArray:
    """Calibrates the lidars of a robot; `add` takes a cloud of each, `solve` returns the result."""

    def __init__(
        self, lidars: Mapping[str, ArrayLidar], nominal_footprint_from_base: np.ndarray, floor: bool = True,
        body: Mapping[str, Any] | None = None, accept: tuple[float, float] | None = None,
    ):  # fmt: skip
        """`lidars` by name; `nominal_footprint_from_base` (4, 4) is where the description has base_footprint, near
        which the `floor` is looked for if it is asked for; `body` as of `body_settings`, `accept` as of `accepting`."""
        self._lidars, self._with_floor, body = dict(lidars), floor, body or {}
        self._accept = accepting(accept)
        # Which one is the first in the estimate must not depend on what the lidars are called.
        self._order = sorted(lidars, key=lambda name: tuple(lidars[name].base_from_lidar.round(9).ravel()))
        first = lidars[self._order[0]].base_from_lidar
        self._alignment = RoomAlignment(
            [inverse(first) @ lidars[name].base_from_lidar for name in self._order],
            AlignmentSettings(
                base_from_left=first, sensor=tuple(lidars[name].sensor for name in self._order), **body, **self._accept
            ),
            self._order,
        )
        self._floors = {
            name: SupportFloor(
                lidar.base_from_lidar,
                np.eye(4),
                nominal_footprint_from_base,
                FloorSettings(sensor=lidar.sensor, **body),
            )  # fmt: skip
            for name, lidar in lidars.items()
        }
        self._num_frames = 0

    def add(self, clouds: Mapping[str, np.ndarray], floor: bool = True) -> None:
        """Take a cloud of each lidar by name, as of `PlaneAlignment.add`; the `floor` is looked for in it, or not."""
        self._num_frames += 1
        self._alignment.add(*(clouds[name] for name in self._order))
        if floor and self._with_floor:
            for name, method in self._floors.items():
                method.add(clouds[name], clouds[name][:0])

    def solve(self) -> ArrayResult:
        """Return the result, with refusals if the data does not support it."""
        aligned = self._alignment.aligned()
        floors = {name: method.solve() for name, method in self._floors.items()} if self._with_floor else {}
        observed, by_chance = aligned.observations, self._alignment.information_by_chance()
        if observed is None:
            observed = Observations.of_known_poses(aligned.poses[1:], aligned.covariance)
        elif by_chance is not None:
            observed = observed.less_by_chance(by_chance)
        return self._result(_Problem(self._lidars, self._order, observed, floors), aligned, floors)

    def _result(self, found: "_Problem", aligned: AlignedLidars, floors: dict[str, FloorResult]) -> ArrayResult:
        names = tuple(self._lidars)
        columns = np.concatenate([columns_of(found.unknowns.poses[self._order.index(name)]) for name in names])
        numbers = sensor_numbers(found.unknowns, found.state, found.solution, self._order)
        floor = found.floor(floors) if self._with_floor else None
        poses = [found.state.base_from_lidar[self._order.index(name)] for name in names]
        frames = covariance_of_frames(poses, numbers, [self._lidars[name].sensor for name in names], names)
        result = ArrayResult(
            dict(zip(names, poses, strict=True)),
            found.solution.covariance[np.ix_(columns, columns)] + frames, aligned.pairs, floor, floors, numbers,
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
        refusals += [self._said_untied(name, floors.get(name)) for name in untied]
        settings = AlignmentSettings(**self._accept)
        tied = [name for name in names if name not in untied]
        for name in tied[1:]:
            own = directions(
                result.covariance(tied[0], name), result.base_from_lidar[tied[0]], settings.max_std_translation,
                settings.max_std_rotation,
            )  # fmt: skip
            refusals += [said.at(f"lidar {name} to {tied[0]}") for said in unobserved(own)]
        kinds = tuple(self._lidars[name].sensor for name in self._order)
        warnings += unit_warnings(numbers, kinds, self._order)
        refusals += distorted(wrong_rotor_angles(found.state.base_from_lidar, numbers, self._order))
        return replace(result, refusals=list(dict.fromkeys(refusals)), warnings=list(dict.fromkeys(warnings)))

    def _untied(self, pairs: Sequence[SeenPair]) -> list[str]:
        """Return the lidars that no pairs and no mounts tie to most of the others."""
        groups = [{name} for name in self._lidars]
        mounted = [name for name, lidar in self._lidars.items() if lidar.mount is not None]
        for one, other in [pair.names for pair in pairs if pair.used] + list(itertools.pairwise(mounted)):
            joined = [group for group in groups if one in group or other in group]
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
        most = max(groups, key=lambda group: (len(group), next(iter(self._lidars)) in group))
        return [name for name in self._lidars if name not in most]

    @staticmethod
    def _said_untied(name: str, floor: FloorResult | None) -> Finding:
        open_yet = "" if floor is None or floor.by_units is None else (
            ", and the floor, which it sees, does not tell where on it and which way round it is"
        )  # fmt: skip
        return Finding(
            "untied_lidar",
            f"nothing ties the {name} lidar to the others: it sees too little in common with any of them{open_yet}",
            "move the robot to where another lidar sees the same surfaces, or give its mount, found by the robot's "
            "returns",
        )


class _Problem:
    """All observations in one least-squares problem, solved; lidars are numbered in `order`."""

    def __init__(
        self, lidars: Mapping[str, ArrayLidar], order: Sequence[str], observed: Observations,
        floors: Mapping[str, FloorResult],
    ):  # fmt: skip
        self._lidars, self._order, self._observed = lidars, order, observed
        self._floors = {name: floor for name, floor in floors.items() if floor.by_units is not None}
        self.unknowns = Unknowns(tuple(self._model(name) for name in order))
        poses = tuple(
            lidars[name].base_from_lidar if lidars[name].mount is None else lidars[name].mount[0] for name in order
        )
        floor = next((self._floors[name].plane for name in order if name in self._floors), None)
        self.state = State(poses, tuple(np.zeros(model.size) for model in self.unknowns.models), floor)
        known = [None if lidars[name].mount is None else lidars[name].mount[1] for name in order]
        if all(each is None for each in known):
            known[order.index(next(iter(lidars)))] = FIXED
        self._solver = Solver(self.unknowns, Priors(self.state, known[0], known[1], further=tuple(known[2:])))
        self.solution = self._solved()

    def _model(self, name: str) -> ErrorModel:
        """Return the error model of a lidar as it was aligned; if it was not, one of the scalars alone."""
        if self._observed.knows_units:
            return self._observed.models[self._order.index(name)]
        sensor = self._lidars[name].sensor
        spread, centre = (UNKNOWN_SENSOR, np.zeros(3)) if sensor is None else (sensor.expected, sensor.optical_centre)
        return ErrorModel(spread, np.zeros(1), np.zeros(1), centre)

    def _solved(self) -> Solution:
        for step in range(STEPS):
            equations = self._observed.equations_at(self.state, self.unknowns)
            for name, floor in self._floors.items():
                self._add_floor(equations, self._order.index(name), floor)
            solution = self._solver.solve(equations, self.state, learn=step == 0)
            self.state = self._solver.decided(self.unknowns.moved(self.state, solution.change), solution)
            if np.abs(solution.change[np.concatenate(list(map(columns_of, self.unknowns.poses)))]).max() < SETTLED:
                break
        return solution

    def _floor_of(self, number: int, floor: FloorResult) -> Plane:
        """Return a lidar's floor at its present pose."""
        nominal = self._lidars[self._order[number]].base_from_lidar
        return floor.plane.moved(self.state.base_from_lidar[number] @ inverse(nominal))

    def _floor_residual(self, number: int, floor: FloorResult) -> np.ndarray:
        """Return by how much the floor is off the one that a lidar sees (3,): height in m, tilts in rad."""
        by_units, count = floor.by_units, len(SCALARS)
        own = by_units.gain[:, :count] @ (self.state.units[number][:count] - by_units.scalars[:count])
        return floor_between(self._floor_of(number, floor), self.state.floor) - own

    def _add_floor(self, equations: NormalEquations, number: int, floor: FloorResult) -> None:
        """Add what a lidar by itself tells of the floor."""
        pose, seen = self.unknowns.poses[number], self._floor_of(number, floor)
        by_pose = np.column_stack([floor_between(seen, seen.moved(exp(SMALL * axis))) / SMALL for axis in np.eye(6)])
        jacobian = np.hstack([np.eye(3), -by_pose, -floor.by_units.gain[:, : len(SCALARS)]])
        scalars = self.unknowns.units[number].start + np.arange(len(SCALARS))
        columns = np.concatenate([columns_of(FLOOR), columns_of(pose), scalars])
        weighted = np.linalg.solve(floor.by_units.conditional + floor.systematic, jacobian)
        equations.information[np.ix_(columns, columns)] += jacobian.T @ weighted
        equations.gradient[columns] -= weighted.T @ self._floor_residual(number, floor)

    def floor(self, floors: Mapping[str, FloorResult]) -> FloorResult:
        """Return the floor that all lidars together see, and whether it may be used; `floors` is what each sees."""
        if not self._floors:
            name, first = next(iter(floors.items()))
            return replace(first, refusals=[said.at(f"lidar {name}, and no other sees one") for said in first.refusals])
        settings, plane = FloorSettings(), self.state.floor.facing(np.array([0.0, 0.0, 1.0]))
        covariance = self.solution.covariance[FLOOR, FLOOR]
        seen = list(self._floors.values())
        refusals = [
            said.at(f"lidar {name}")
            for name, floor in self._floors.items()
            for said in floor.refusals
            if said.code not in OF_ONE_VIEW
        ]
        warnings = [
            said.at(f"lidar {name}")
            for name, floor in self._floors.items()
            for said in floor.warnings
            if said.code not in OF_ALL
        ]
        for name, floor in self._floors.items():
            number = self._order.index(name)
            off = self._floor_residual(number, floor)
            known = floor.by_units.conditional + floor.systematic + covariance
            sentence = (
                f"the {name} lidar sees the floor {1e3 * abs(off[0]):.2f} mm and "
                f"{np.degrees(np.linalg.norm(off[1:])):.3f} deg off that of all lidars together"
            )
            far = abs(off[0]) > settings.max_disagreement_height
            far |= float(np.linalg.norm(off[1:])) > settings.max_disagreement_tilt
            if off @ np.linalg.solve(known, off) > UNLIKELY:
                (refusals if far else warnings).append(Finding("lidars_disagree", sentence, "move to a flat floor"))
        support = union(one.support for one in seen if one.support is not None)
        findings = Findings()
        check_support(findings, support, "", covariance, settings)
        return FloorResult(
            footprint_from_base(plane), plane, covariance,
            rmse=float(np.sqrt(np.average([one.rmse**2 for one in seen], weights=[one.num_inliers for one in seen]))),
            num_frames=max(one.num_frames for one in seen), num_inliers=sum(one.num_inliers for one in seen),
            method=SupportFloor.name,
            support=support, warnings=findings.warnings + warnings, refusals=findings.refusals + refusals,
        )  # fmt: skip


def union(supports) -> Support:
    """Return the floor that supports any of several fits: in every sector the best of them."""
    supports = list(supports)
    sectors = np.max([one.sectors for one in supports], axis=0)
    bearings = 2 * np.pi / len(sectors) * np.flatnonzero(sectors > 0)
    gap, bearing = widest_gap(bearings)
    return Support(
        area=float(sectors.sum()), sectors=sectors, reach=np.max([one.reach for one in supports], axis=0), gap=gap,
        gap_bearing=bearing, level_share=min(one.level_share for one in supports),
        unevenness=max(one.unevenness for one in supports), nearest=min(one.nearest for one in supports),
    )  # fmt: skip
