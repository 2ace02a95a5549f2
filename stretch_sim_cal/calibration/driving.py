"""Calibration by driving: lidars, floor and wheels, by scans at the stations of a robot that drives.

    driven = DrivenArray({"left": DescribedLidar(pose), "right": DescribedLidar(pose)}, footprint_from_base)
    for station in stations:
        driven.new_station(station.odometry)         # x, y (m), yaw (rad) by the wheels' odometry
        driven.add({"left": cloud, "right": cloud})  # as often as scans were taken there
    result = driven.solve()

The scans of all lidars at all stations are views of one room, in one least-squares problem: the pose of the view of
station s and lidar l is T_s Y_l, with the lidars' poses Y in base_footprint and the stations' poses T over the floor.
Beside the room's patches (`room.py`) there are factors (`drive_problem.py`) of

* the floor: its patches lie at z = 0, apart from unevenness;
* the stance: the base's height and tilt over the mean floor, of a size estimated from the data;
* odometry: from one station to the next, with a scale of each axis and of the angle, and slip that grows with the root
  of the way; larger slip is estimated from the data.

Turning determines a lidar's position against the centre of rotation, driving straight its yaw against the direction of
driving (hand-eye calibration: R. Tsai, R. Lenz, 1989; of wheeled robots with errors of the odometry: A. Censi et al.,
"Simultaneous calibration of odometry and sensor parameters for mobile robots", 2013). Lidars without a common view are
related by the surfaces that they see from different stations.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import block_diag

from stretch_sim_cal.calibration import findings as checks
from stretch_sim_cal.calibration.alignment.second_opinion import second_opinion
from stretch_sim_cal.calibration.cloud_frames import covariance_of_frames, wrong_rotor_angles
from stretch_sim_cal.calibration.clouds import DirectionCells, FrameIntake
from stretch_sim_cal.calibration.coarse import coarse_alignment, credible
from stretch_sim_cal.calibration.consistency import View, Views, between, seen_by_another
from stretch_sim_cal.calibration.drive_problem import (
    ODOMETRY_ERRORS,
    OFF_PLANE,
    STANCE,
    Drive,
    DriveFactors,
    DrivenUnknowns,
    ViewUnknowns,
)
from stretch_sim_cal.calibration.finding import Finding, when
from stretch_sim_cal.calibration.floor.cells import RADIUS
from stretch_sim_cal.calibration.floor.findings import uncertain_floor
from stretch_sim_cal.calibration.floor.fit import WAVES
from stretch_sim_cal.calibration.floor.support_method import JointFloor
from stretch_sim_cal.calibration.lidars import DescribedLidar
from stretch_sim_cal.calibration.motion import motion_of
from stretch_sim_cal.calibration.observability import Direction, unobserved
from stretch_sim_cal.calibration.observations import by_poses
from stretch_sim_cal.calibration.patches import Noise
from stretch_sim_cal.calibration.problem import FIXED, NormalEquations, State, columns_of
from stretch_sim_cal.calibration.results import FloorResult, LidarPoses
from stretch_sim_cal.calibration.room import FloorTrust, RoomBlock, remeasured_block, room_block
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings, accepting
from stretch_sim_cal.calibration.solver import Solution, Solver, sensor_numbers
from stretch_sim_cal.calibration.surfaces import Lidar, without_body
from stretch_sim_cal.calibration.wheel_odometry import (
    AXES,
    PLANAR,
    STEP,
    DrivingSettings,
    Leg,
    Sweep,
    Wheels,
    most_gained,
    motions,
)
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.planes import LEVEL, floor_between, footprint_from_base
from stretch_sim_cal.geometry.transforms import adjoint, apply, exp, inverse
from stretch_sim_cal.sensor.points import coordinates, returns_of

# The distance (m) that the views' surfaces may still have, the number of shifted grids of patches, and whether the
# floor is used.
PASSES = ((0.01, 1, False), (0.002, 1, False), (0.001, 1, True), (0.0, 2, True))
# The prior of a described pose in base_footprint: x, y, z (m), roll, pitch, yaw (rad).
DESCRIBED = np.array([1.0, 1.0, 0.05, 0.1, 0.1, 1.0])
PARTNERS = 5  # views that a view is compared with
ENOUGH = 50.0  # patches that two lidars see, for an opinion
TURNED = 0.25  # share of a floor's tilt (variance) that remains on average over stations with enough headings
ON_FLOOR = 0.01  # m, how far from the plane patches may be floor
LEAST_UNEVENNESS = 0.0005  # m
FLOOR_REMEDY = "identify the lidars' own errors first: a drive cannot separate the floor's height from range errors"
STRAFED = 0.1  # m sideways, farther than a base without strafing
# Of a lidar's x, y and yaw: their reference, the finding's code, and the remedy.
LEVER = (
    "centre of rotation", "unobserved_lever", "turn on the spot by a full circle and back, with a stop every 45 deg",
)  # fmt: skip
YAW = "direction of driving", "unobserved_yaw", "drive straight ahead and back by 1 m or more, with stops"
OF_ODOMETRY = (
    "check the model and the mounts, whether lidars are swapped, and that the odometry's pose is that of the centre of "
    "rotation with x ahead"
)
SLIPPERY = 3.0  # times the expected slip, for a warning


@dataclass(frozen=True, kw_only=True)
class DrivenResult(LidarPoses):
    """A `LidarPoses` of a robot that drove, in the base_link in which its first lidar has its described pose, and the
    lidars against the `wheels`, None if these are left out."""

    wheels: Wheels | None


@dataclass(frozen=True)
class _Station:
    """The scans at a station: summed in `cells` by lidar, or, if the base moves (`sweep`), sets of `clouds` of all
    lidars, returns with their times. `intake` counts rejected clouds and returns."""

    intake: FrameIntake
    cells: tuple[DirectionCells, ...]
    sweep: Sweep | None
    clouds: list[tuple[np.ndarray, ...]] = field(default_factory=list)

    @property
    def velocity(self) -> np.ndarray:
        return np.zeros(3) if self.sweep is None else self.sweep.velocity

    @property
    def farthest(self) -> float:
        """The largest time (s) between the measurement of a point and the base's passage of the station."""
        stamps = (cloud["timestamp"] for clouds in self.clouds for cloud in clouds)
        return max(float(np.abs(times - self.sweep.time).max(initial=0.0)) for times in stamps)


class DrivenArray:
    """Calibrates the lidars of a robot that drives: `new_station` and `add`, then `solve`."""

    def __init__(
        self, lidars: Mapping[str, DescribedLidar], nominal_footprint_from_base: np.ndarray,
        settings: DrivingSettings | None = None, body: Mapping[str, Any] | None = None,
        accept: tuple[float, float] | None = None,
    ):  # fmt: skip
        """`lidars` by name, one or more; `nominal_footprint_from_base` (4, 4) is the description's; `body` as of
        `body_settings`, `accept` as of `accepting`."""
        self._names, self._settings = tuple(lidars), settings or DrivingSettings()
        self._described = [nominal_footprint_from_base @ lidar.base_from_lidar for lidar in lidars.values()]
        self._base_from_first = next(iter(lidars.values())).base_from_lidar
        self._sensors = tuple(lidar.sensor for lidar in lidars.values())
        body = dict(body or {})
        self._checks = AlignmentSettings(base_from_left=self._described[0], sensor=self._sensors, **accepting(accept))
        if "body" in body:
            body["body"] = apply(nominal_footprint_from_base, body["body"])
        self._body = AlignmentSettings(**body)
        # The first station's views are constrained by those of all other stations.
        of_floor = FloorSettings(sensor=self._sensors, typical_std_translation=1e-4, typical_std_rotation=1e-5, **body)
        self._floor = JointFloor(self._described, np.eye(4), of_floor, self._names)
        self._stations: list[_Station] = []
        self._legs: list[Leg] = []
        self._at = np.zeros(3)

    def new_station(self, odometry: np.ndarray | Sequence[float], sweep: Sweep | None = None) -> None:
        """Begin another station, at x, y (m) and yaw (rad) by odometry, (3,), or (K, 3) on the way there, the last row
        at the station; the latter is needed if the robot both turns and drives on the way. The base stands there, or
        moves as in `sweep`, but stands at the first. Raises `InputError` for other arrays."""
        number = len(self._stations)
        try:
            poses = np.atleast_2d(np.asarray(odometry, dtype=float))
        except (TypeError, ValueError):
            poses = np.empty((0, 3))
        if poses.ndim != 2 or poses.shape[1] != 3 or not len(poses) or not np.isfinite(poses).all():
            raise InputError(f"station {number + 1}: odometry: expected finite numbers x, y, yaw, or rows of these")
        if sweep is not None and not number:
            raise InputError("station 1: the robot has to stand still at the first station")
        self._stations.append(_Station(FrameIntake(self._names), self._empty_cells(number), sweep))
        if number:
            velocities = np.array([station.velocity for station in self._stations[-2:]])
            self._legs.append(Leg.along(np.vstack([self._at, poses]), velocities))
        self._at = poses[-1]

    def _empty_cells(self, station: int, deskewed: bool = False) -> tuple[DirectionCells, ...]:
        return DirectionCells.of_views(self._sensors, station * len(self._sensors), deskewed)

    def add(self, clouds: Mapping[str, np.ndarray]) -> None:
        """Add a cloud of each lidar by name, each in its own frame, as of `RoomAlignment.add`; of a station on the move
        structured arrays with a `timestamp` (s) of each point. Raises `InputError` if they have none."""
        in_order, station = tuple(clouds[name] for name in self._names), self._stations[-1]
        where = f"station {len(self._stations)}"
        if station.sweep is None:
            station.intake.add_to(station.cells, in_order)
            if len(self._stations) == 1:
                self._floor.add(*in_order)
            return
        if any("timestamp" not in (cloud.dtype.names or ()) for cloud in in_order):
            needed = "clouds that were taken on the move need the time of each point, a field 'timestamp' in s"
            raise InputError(f"{where}: {needed}")
        station.intake.admit(*in_order)
        # Drivers give misses any time, or none.
        returns, known = tuple(map(returns_of, in_order)), station.sweep.times
        times = np.concatenate([cloud["timestamp"] for cloud in returns])
        if len(times) and not known[0] <= times.min() <= times.max() <= known[-1]:
            taken = f"{times.min():.3f} to {times.max():.3f} s"
            raise InputError(f"{where}: its points are of {taken}, its sweep of {known[0]:.3f} to {known[-1]:.3f} s")
        station.clouds.append(returns)

    @property
    def _moves(self) -> bool:
        return any(station.sweep is not None for station in self._stations)

    @property
    def _factors(self) -> DriveFactors:
        within_scans = {
            number: station.sweep.slip(station.farthest, self._settings)
            for number, station in enumerate(self._stations) if station.sweep is not None
        }  # fmt: skip
        return DriveFactors(self._settings, self._legs, within_scans)

    def solve(self) -> DrivenResult:
        """Return the result, with refusals if the data does not support it. Raises `InputError` for fewer than two
        stations, or a lidar without any return at one, `Refused` if the views of two stations do not fit."""
        if len(self._stations) < 2:
            raise InputError(f"driving: {len(self._stations)} stations; at least two are needed")
        lidars = self._views()
        views = [View(lidar.surface) for lidar in lidars]
        first, suspects = self._first_drive(lidars, views)
        models = tuple(lidar.model for lidar in lidars[: len(self._names)])
        unknowns = DrivenUnknowns(models, len(self._stations), self._moves)
        solver, state = Solver.starting(unknowns, first.state.base_from_lidar, [np.diag(DESCRIBED**2)])
        drive = replace(first, state=state)
        poses = drive.views(unknowns).base_from_lidar
        pairs = self._pairs(views, poses)
        _, lidars = seen_by_another(lidars, poses, pairs, AlignmentSettings())
        noise, floor, trust = Noise.first(len(lidars)), None, None
        for slack, grids, on_floor in PASSES:
            if on_floor and floor is None:
                if self._moves:
                    poses = drive.views(unknowns).base_from_lidar
                    _, lidars = seen_by_another(self._views(drive), poses, pairs, AlignmentSettings())
                drive, floor = self._onto_floor(drive)
                solver.priors = replace(solver.priors, nominal=drive.state)
                if floor.accepted:
                    unevenness = max(floor.diagnostics["unevenness"], LEAST_UNEVENNESS)
                    trust = FloorTrust(_near(drive.stations), unevenness, ON_FLOOR, of_room=True)
            block = room_block(lidars, drive.views(unknowns), noise, slack, grids, trust, pairs=pairs)
            reduced, noise_information, beside = self._equations(block, drive, unknowns, lidars)
            # The noise information is of the room only: along a corridor it exceeds that of odometry.
            state, solution = solver.step(reduced, drive.state, noise_information, beside=beside)
            drive = replace(
                drive, state=state, odometry=drive.odometry + solution.change[unknowns.odometry], stations=[
                    exp(solution.change[part]) @ pose
                    for part, pose in zip(unknowns.stations, drive.stations, strict=True)
                ],
            )  # fmt: skip
            noise = block.noise
            if on_floor:
                drive = self._factors.with_variances(drive)
        last = remeasured_block(lidars, drive.views(unknowns), replace(block, elements=None), trust)
        return self._result(unknowns, drive, solution, last, floor, suspects)

    def _views(self, drive: Drive | None = None) -> list[Lidar]:
        """Return the views in the lidars' frames, by station and lidar; those on the move are deskewed by odometry with
        the errors and poses of the drive, by default the description's."""
        poses, scales, clock = self._described, np.zeros(3), 0.0
        if drive is not None:
            poses, scales, clock = list(drive.state.base_from_lidar), drive.scales, drive.clock
        places = []
        for number, station in enumerate(self._stations):
            places.append(station.cells if station.sweep is None else self._empty_cells(number, deskewed=True))
            intake = FrameIntake(self._names)
            for clouds in station.clouds:
                moved = (_deskewed(*each, station.sweep, scales, clock) for each in zip(clouds, poses, strict=True))
                for cells, cloud in zip(places[-1], intake.admit(*moved), strict=True):
                    cells.add(cloud)
        stations = Lidar.of_places(places, self._names, "station")
        return [
            Lidar(without_body(lidar.surface, pose, self._body), lidar.model)
            for station in stations for lidar, pose in zip(station, self._described, strict=True)
        ]  # fmt: skip

    def _first_drive(self, lidars: Sequence[Lidar], views: Sequence[View]) -> tuple[Drive, list[int]]:
        """Return the stations and lidars by their views, and the numbers of stations that fit no earlier one."""
        count, poses = len(self._names), list(self._described)

        def aligned(first: int, second: int, given: np.ndarray) -> np.ndarray | None:
            try:
                return coarse_alignment(lidars[first].surface, lidars[second].surface, given, self._checks)
            except Refused:
                return None

        for lidar in range(1, count):
            given = between(poses, (0, lidar))
            if credible(Views(views[0], views[lidar]).under(given)):
                first_from_lidar = aligned(0, lidar, given)
                poses[lidar] = poses[lidar] if first_from_lidar is None else poses[0] @ first_from_lidar
        stations, suspects = [np.eye(4)], []
        for number in range(1, len(self._stations)):
            guess = stations[-1] @ self._legs[number - 1].transform(np.zeros(3))
            tried = []
            for lidar, before in itertools.product(range(count), range(number)):
                given = inverse(stations[before] @ poses[lidar]) @ guess @ poses[lidar]
                both = Views(views[before * count + lidar], views[number * count + lidar])
                tried.append((both.under(given, every=5, leniency=3.0).score, lidar, before, given, both))
            found = []
            for _, lidar, before, given, both in sorted(tried, key=lambda each: -each[0])[:2]:
                moved = aligned(before * count + lidar, number * count + lidar, given)
                if moved is not None:
                    fit, pose = both.under(moved), stations[before] @ poses[lidar] @ moved @ inverse(poses[lidar])
                    found.append((fit.score, pose, credible(fit, near=True)))
            _, pose, fits = max(found, key=lambda each: each[0], default=(0.0, guess, False))
            suspects += [] if fits else [number + 1]
            stations.append(pose)
        return Drive(State(tuple(poses), ()), stations, np.zeros(3 + self._moves), STANCE), suspects

    def _pairs(self, views: Sequence[View], poses: Sequence[np.ndarray]) -> list[tuple[int, int]]:
        """Return the pairs of views that are compared: each view with those of the largest overlap, with those of its
        station, and with the same lidar's at the station before."""
        overlaps = np.full((len(views), len(views)), -1.0)
        for pair in itertools.combinations(range(len(views)), 2):
            overlap = Views(*(views[view] for view in pair)).under(between(poses, pair), every=10).overlap
            overlaps[pair] = overlaps[pair[::-1]] = overlap
        count, pairs = len(self._names), set()
        for view, of_view in enumerate(overlaps):
            others = [*np.argsort(-of_view)[:PARTNERS], *range(view - view % count, view - view % count + count)]
            pairs |= {(min(view, int(other)), max(view, int(other))) for other in others if other != view}
            # Along the path as well, or groups of similar views would be separate.
            pairs |= {(view - count, view)} if view >= count else set()
        return sorted(pairs)

    def _onto_floor(self, drive: Drive) -> tuple[Drive, FloorResult]:
        """Return the drive over the floor at the first station, level on average, and that floor."""
        poses = [drive.stations[0] @ pose for pose in drive.state.base_from_lidar]
        self._floor.settings = replace(self._floor.settings, units=drive.state.units)
        self._floor.begin_from(poses, None, [FIXED])
        floor = self._floor.solve()
        # All stations determine the lidars' poses and the floor better than the first one, and give the findings about
        # the lidars' errors; a robot that turns is tilted to all sides by a floor with waves.
        ignored = ["lidars_disagree", "uncertain_floor"]
        if _over_stations(np.eye(3), drive.stations)[1:, 1:].max() < TURNED:
            ignored.append("floor_near_robot")
        refusals = [finding for finding in floor.refusals if finding.code not in ignored]
        warnings = [finding for finding in floor.warnings if finding.code != "beyond_sensor_file"]
        floor = replace(floor, refusals=refusals, warnings=warnings)
        onto = footprint_from_base(floor.plane)
        drive = replace(drive, stations=[onto @ station for station in drive.stations])
        mean = np.zeros(6)
        mean[OFF_PLANE] = drive.stances().mean(axis=0)
        level = exp(mean)
        state = replace(drive.state, base_from_lidar=tuple(level @ pose for pose in drive.state.base_from_lidar))
        return replace(drive, state=state, stations=[pose @ inverse(level) for pose in drive.stations]), floor

    def _equations(
        self, block: RoomBlock, drive: Drive, unknowns: DrivenUnknowns, lidars: Sequence[Lidar]
    ) -> tuple[NormalEquations, np.ndarray, np.ndarray]:  # fmt: skip
        """Return the equations of views, floor and odometry, the noise information about the poses (room.py), and the
        part of the information that is not of the views."""
        of_views, factors = ViewUnknowns(unknowns), self._factors
        equations = NormalEquations.empty(of_views.size)
        block.add_to(equations, of_views, lidars)
        factors.add_deskewing(equations, drive, of_views)
        change = of_views.by_driven(drive.stations)
        rows = sparse.csr_array(change)  # it is nearly all zeros
        reduced = NormalEquations(rows.T @ equations.information @ rows, rows.T @ equations.gradient)
        of_room = reduced.information.copy()
        factors.add_stances(reduced, drive, unknowns)
        factors.add_odometry(reduced, drive, unknowns)
        # A motion of all views as one body changes nothing.
        against_first = by_poses(np.eye(4), len(of_views.poses) - 1)
        by_driven = against_first @ change[np.ix_(of_views.pose_columns, unknowns.free_poses)]
        noise_information = by_driven.T @ block.noise_information() @ by_driven
        return reduced, noise_information, reduced.information - of_room

    def _result(
        self, unknowns: DrivenUnknowns, drive: Drive, solution: Solution, last: RoomBlock, floor: FloorResult,
        suspects: Sequence[int],
    ) -> DrivenResult:  # fmt: skip
        names, poses, count = self._names, drive.state.base_from_lidar, len(self._names)
        numbers_of_units = sensor_numbers(unknowns, drive.state, solution, names)
        motion, columns = motion_of(last.surface, last.flat, last.noise), unknowns.pose_columns
        covariance = solution.covariance[np.ix_(columns, columns)] * last.scale**2
        covariance += np.kron(np.eye(count), motion.covariance / len(drive.stations))
        covariance += covariance_of_frames(poses, numbers_of_units, self._sensors, names)
        base_from_footprint = self._base_from_first @ inverse(poses[0])
        to_base = np.kron(np.eye(count), adjoint(base_from_footprint))
        to_base[:, :6] -= np.tile(adjoint(base_from_footprint), (count, 1))
        wheels = self._wheels(drive, solution, unknowns, covariance)
        result = DrivenResult(
            {name: base_from_footprint @ pose for name, pose in zip(names, poses, strict=True)},
            to_base @ covariance @ to_base.T, [], sum(each.intake.num_frames for each in self._stations), last.rmse,
            floor=self._floor_of(floor, base_from_footprint, covariance[:6, :6], drive.stations), wheels=wheels,
            diagnostics=numbers_of_units,
        )  # fmt: skip
        moving = float((np.bincount(last.surface.side, last.surface.moving) / np.bincount(last.surface.side)).max())
        remedy = "keep people out of view, stop at shorter distances, and drive where the wheels do not slip"
        sentence = "the views at station {} agree with those of no earlier station"
        refusals = [Finding("stations_differ", sentence.format(number), remedy) for number in suspects]
        refusals = refusals or checks.movement(motion, moving, last.num_used)
        first, far, near = result.base_from_lidar[names[0]], [], []
        for name in names[1:]:
            between_two = result.transform(names[0], name)
            directions = self._checks.directions(result.covariance(names[0], name), first)
            where = f"lidar {name} to {names[0]}" if count > 2 else ""
            refusals += [finding.at(where) if where else finding for finding in unobserved(directions)]
            described = inverse(self._described[0]) @ self._described[names.index(name)]
            against = checks.model_findings(described, between_two, (names[0], name))
            far, near = far + against[0], near + against[1]
        refusals = refusals or checks.large_residuals(last.scale, result.rmse)
        refusals = refusals or checks.distorted(wrong_rotor_angles(poses, numbers_of_units, names)) or far
        refusals = refusals or self._opinions(last, covariance)
        warnings = list(dict.fromkeys(warning for each in self._stations for warning in each.intake.warnings()))
        warnings += near + checks.disturbance(moving)
        warnings += checks.unit_warnings(numbers_of_units, self._sensors, names)
        return replace(result, refusals=list(dict.fromkeys(refusals)), warnings=list(dict.fromkeys(warnings)))

    def _opinions(self, last: RoomBlock, covariance: np.ndarray) -> list[Finding]:
        """Return findings if registrations of all cells of two lidars at the first station contradict the estimate."""
        findings, to_first = [], by_poses(np.eye(4), len(self._names) - 1)
        for number, change in enumerate(to_first.reshape(-1, 6, len(covariance)), start=1):
            if last.used_between((0, number)) >= ENOUGH:
                opinion = second_opinion(last.surface, (0, number))
                findings += checks.another_opinion(opinion, change @ covariance @ change.T)
        return findings

    def _wheels(self, drive: Drive, solution: Solution, unknowns: DrivenUnknowns, covariance: np.ndarray) -> Wheels:
        deviations = np.sqrt(np.diag(solution.covariance[unknowns.odometry, unknowns.odometry]))
        odometry = {}
        for name, value, deviation in zip(ODOMETRY_ERRORS, drive.odometry, deviations, strict=False):
            odometry |= {name: float(value), f"{name}_std": float(deviation)}
        wheels = Wheels(
            dict(zip(self._names, drive.state.base_from_lidar, strict=True)), covariance, odometry, drive.slip,
            drive.stations,
        )  # fmt: skip
        of_first = np.r_[columns_of(unknowns.poses[0])[PLANAR], columns_of(unknowns.scales)]
        strafes = sum(float(np.abs(leg.steps[:, 1]).sum()) for leg in self._legs) > STRAFED
        known = solution.covariance[np.ix_(of_first, of_first)]
        first = drive.state.base_from_lidar[0]
        gain = most_gained(known, first, drive.scales, self._settings, drive.slip, motions(strafes))
        directions, refusals = [], []
        limits = list(zip(AXES, (LEVER, LEVER, YAW), self._settings.bounds.tolist(), strict=True))
        for lidar, deviations in zip(self._names, wheels.deviations.tolist(), strict=True):
            for number, ((axis, factor, unit), (against, code, remedy), bound) in enumerate(limits):
                name, deviation = f"the {lidar} lidar's {axis} relative to the {against}", deviations[number]
                directions.append(Direction(name, deviation, bound))
                refusals += when(
                    not directions[-1].observed, code,
                    f"the drive does not determine {name}: standard deviation {factor * deviation:.2g} {unit}, at most "
                    f"{factor * bound:.2g} {unit} is allowed",
                    gain.words if gain is not None and gain.of == number else remedy,
                )  # fmt: skip
        slipped = f"the wheels slipped {drive.slip:.1f} times as much as expected"
        remedy = "clean the wheels, drive more slowly, or set the slip of this floor"
        warnings = when(drive.slip > SLIPPERY, "slippery", slipped, remedy)
        beyond, near = (
            [Finding(far.code, f"relative to the wheels {far.sentence}", OF_ODOMETRY) for far in found]
            for found in checks.model_findings(self._described[0], first, self._names[:1])
        )
        refusals, warnings = refusals + beyond, warnings + near
        return replace(wheels, directions=directions, gain=gain, known=known, refusals=refusals, warnings=warnings)

    def _floor_of(
        self, floor: FloorResult, base_from_footprint: np.ndarray, covariance: np.ndarray,
        stations: Sequence[np.ndarray],
    ) -> FloorResult:  # fmt: skip
        """Return the floor in base_link under all `stations` (4, 4), from that at the first one, with its covariance by
        that (6, 6) of the first lidar's pose; refused if it is too uncertain."""
        plane = LEVEL.moved(base_from_footprint)
        change = np.column_stack([
            floor_between(plane, LEVEL.moved(base_from_footprint @ exp(-step))) / STEP for step in STEP * np.eye(6)
        ])  # fmt: skip
        known = change @ covariance @ change.T
        if floor.systematic is not None:
            known += _over_stations(floor.systematic, stations)
        refusals = floor.refusals or uncertain_floor(known, self._floor.settings, FLOOR_REMEDY)
        footprint = footprint_from_base(plane)
        return replace(floor, plane=plane, footprint_from_base=footprint, covariance=known, refusals=refusals)


def _deskewed(cloud: np.ndarray, pose: np.ndarray, sweep: Sweep, scales: np.ndarray, clock: float) -> np.ndarray:
    """Return a structured cloud in the lidar's frame at the station, the lidar at `pose` (4, 4)."""
    cloud = cloud.copy()
    points = sweep.deskewed(coordinates(cloud).astype(float), cloud["timestamp"], pose, scales, clock)
    for axis, values in zip("xyz", points.T, strict=True):
        cloud[axis] = values
    return cloud


def _over_stations(at_first: np.ndarray, stations: Sequence[np.ndarray]) -> np.ndarray:
    """Return the covariance (3, 3) that the floor's shape adds to the mean over stations (4, 4), by that `at_first`
    (height, tilt about x, tilt about y): it is the same of stations at one place, in the floor's frame, and independent
    far away. A robot that turns is tilted to all sides."""
    places = np.array([pose[:2, 3] for pose in stations])
    yaws = [np.arctan2(pose[1, 0], pose[0, 0]) for pose in stations]
    turned = np.array([block_diag(1.0, [[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]]) for yaw in yaws])
    turned = turned @ turned[0].T
    alike = np.exp(-np.linalg.norm(places[:, None] - places, axis=2) / WAVES)
    return np.einsum("st,sij,jk,tlk->il", alike, turned, at_first, turned) / len(stations) ** 2


def _near(stations: Sequence[np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the weight (N,) of points (N, 3) as floor: 1 within `RADIUS` of a station."""
    places = np.array([pose[:2, 3] for pose in stations])

    def near(points: np.ndarray) -> np.ndarray:
        apart = np.linalg.norm(points[:, None, :2] - places, axis=2)
        return (apart.min(axis=1) < RADIUS).astype(float)

    return near
