"""The unknowns of a drive, its estimate, and its factors beside those of the room: the slip within scans on the move,
the stations' stance over the floor, and wheel odometry."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stretch_sim_cal.calibration.problem import NormalEquations, State, Unknowns, columns_of
from stretch_sim_cal.calibration.wheel_odometry import PLANAR, STEP, DrivingSettings, Leg
from stretch_sim_cal.geometry.planes import LEVEL
from stretch_sim_cal.geometry.transforms import adjoint, exp, from_xyz_rpy, inverse, log

# Standard deviations of a station's height (m), roll and pitch (rad) over the mean floor: before the floor is known,
# the prior (with the weight of one station), and the smallest.
STANCE = np.array([0.005, 0.01, 0.01])
LIKELY_STANCE, LEAST_STANCE = np.array([1e-3, 2e-3, 2e-3]), np.array([1e-4, 1e-4, 1e-4])
PRIOR_SLIP = 4.0  # values of slip, the weight of the expected one
FIXED_STATION = 1e-6  # m, rad
OFF_PLANE = [2, 3, 4]  # of a twist
# Three scales and, with scans on the move, the delay (s) of the stamps.
ODOMETRY_ERRORS = ("scale_x", "scale_y", "turn", "clock")


class DrivenUnknowns(Unknowns):
    """The unknowns of lidars in base_footprint; `others` are a twist of each station in the floor's frame, then the
    errors of `odometry`, the `with_clock` or the three scales only."""

    def __init__(self, models: tuple, num_stations: int, with_clock: bool = False):
        super().__init__(models, 6 * num_stations + 3 + with_clock)
        first = self.others.start
        self.stations = [slice(first + 6 * number, first + 6 * number + 6) for number in range(num_stations)]
        self.odometry = slice(first + 6 * num_stations, self.others.stop)
        self.scales = slice(self.odometry.start, self.odometry.start + 3)
        self.views = list(itertools.product(range(num_stations), range(len(models))))

    @property
    def free_poses(self) -> np.ndarray:
        """The columns of the twists of lidars and stations."""
        return np.concatenate(list(map(columns_of, (*self.poses, *self.stations))))


class ViewUnknowns(Unknowns):
    """The driven unknowns, then a pose of each view in the floor's frame."""

    def __init__(self, driven: DrivenUnknowns):
        self.driven, count = driven, len(driven.views)
        self.models = tuple(driven.models[lidar] for _, lidar in driven.views)
        self.units = tuple(driven.units[lidar] for _, lidar in driven.views)
        self.floor, self.curvature = driven.floor, driven.curvature
        self.poses = tuple(slice(driven.size + 6 * n, driven.size + 6 * n + 6) for n in range(count))
        self.size = driven.size + 6 * count

    def by_driven(self, stations: Sequence[np.ndarray]) -> np.ndarray:
        """Return the derivatives (size, driven size) of these unknowns by the driven ones."""
        change = np.zeros((self.size, self.driven.size))
        change[: self.driven.size] = np.eye(self.driven.size)
        for view, (station, lidar) in zip(self.poses, self.driven.views, strict=True):
            change[view, self.driven.poses[lidar]] = adjoint(stations[station])
            change[view, self.driven.stations[station]] = np.eye(6)
        return change


@dataclass(frozen=True)
class Drive:
    """An estimate: the lidars' `state` in base_footprint, the `stations` (4, 4) over the floor, the errors of
    `odometry` as of `ODOMETRY_ERRORS`, the standard deviations (3,) of the stations' `stance`, and the `slip` over the
    expected one."""

    state: State
    stations: list[np.ndarray]
    odometry: np.ndarray
    stance: np.ndarray
    slip: float = 1.0

    @property
    def scales(self) -> np.ndarray:
        return self.odometry[:3]

    @property
    def clock(self) -> float:
        return float(self.odometry[3:].sum())

    def views(self, unknowns: DrivenUnknowns) -> State:
        """Return the views' poses, and the parameters of their lidars."""
        return State(
            tuple(self.stations[station] @ self.state.base_from_lidar[lidar] for station, lidar in unknowns.views),
            tuple(self.state.units[lidar] for _, lidar in unknowns.views), LEVEL,
        )  # fmt: skip

    def stances(self) -> np.ndarray:
        """Return the base's height (m), roll and pitch (rad) at each station, (S, 3)."""
        return np.array([log(inverse(_planar(pose)) @ pose)[OFF_PLANE] for pose in self.stations])


class DriveFactors:
    """The factors of the odometry's `legs`, of the stances, and of slip `within_scans`, standard deviations (3,) of x,
    y (m) and angle (rad) by the number of the station on the move."""

    def __init__(self, settings: DrivingSettings, legs: Sequence[Leg], within_scans: Mapping[int, np.ndarray]):
        self._settings, self._legs, self._within_scans = settings, legs, within_scans
        self._roots = [leg.slip_root(settings) for leg in legs]

    def add_deskewing(self, equations: NormalEquations, drive: Drive, of_views: ViewUnknowns) -> None:
        """Marginalise the slip within the scan of each view that was taken on the move."""
        columns, deviations = [], []
        for view, (number, _) in zip(of_views.poses, of_views.driven.views, strict=True):
            if number in self._within_scans:
                column = np.zeros((of_views.size, 3))
                column[view] = adjoint(drive.stations[number])[:, PLANAR]
                columns.append(column)
                deviations.append(drive.slip * self._within_scans[number])
        if columns:
            slips = np.hstack(columns)
            coupling = equations.information @ slips
            information = slips.T @ coupling + np.diag(np.concatenate(deviations) ** -2.0)
            equations.gradient -= coupling @ np.linalg.solve(information, slips.T @ equations.gradient)
            equations.information -= coupling @ np.linalg.solve(information, coupling.T)

    def add_stances(self, equations: NormalEquations, drive: Drive, unknowns: DrivenUnknowns) -> None:
        """Add the stances, and fix the first station, which is the floor's frame."""
        for part, pose, stance in zip(unknowns.stations, drive.stations, drive.stances(), strict=True):
            rows = adjoint(inverse(_planar(pose)))[OFF_PLANE] / drive.stance[:, None]
            equations.information[part, part] += rows.T @ rows
            equations.gradient[part] -= rows.T @ (stance / drive.stance)
        first = columns_of(unknowns.stations[0])[PLANAR]
        equations.information[first, first] += FIXED_STATION**-2.0

    def add_odometry(self, equations: NormalEquations, drive: Drive, unknowns: DrivenUnknowns) -> None:
        """Add the odometry of all legs, and the priors of its errors."""
        for number, residual in enumerate(self._slipped(drive), start=1):
            before, after = unknowns.stations[number - 1], unknowns.stations[number]
            columns = np.concatenate(list(map(columns_of, (before, after, unknowns.odometry))))
            rows = np.empty((3, len(columns)))
            for column, step in enumerate(STEP * np.eye(len(columns))):
                stations = list(drive.stations)
                stations[number - 1] = exp(step[:6]) @ stations[number - 1]
                stations[number] = exp(step[6:12]) @ stations[number]
                moved = replace(drive, stations=stations, odometry=drive.odometry + step[12:])
                rows[:, column] = (self._slipped_on(moved, number) - residual) / STEP
            rows, residual = rows / drive.slip, residual / drive.slip
            equations.information[np.ix_(columns, columns)] += rows.T @ rows
            equations.gradient[columns] -= rows.T @ residual
        settings, columns = self._settings, columns_of(unknowns.odometry)
        precision = np.array([settings.scale, settings.scale, settings.turn, settings.clock])[: len(columns)] ** -2.0
        equations.information[columns, columns] += precision
        equations.gradient[columns] -= precision * drive.odometry

    def _slipped(self, drive: Drive) -> np.ndarray:
        """Return the slip on the leg to each station but the first, (S - 1, 3): x, y, angle, over the expected one."""
        return np.array([self._slipped_on(drive, number) for number in range(1, len(drive.stations))])

    def _slipped_on(self, drive: Drive, number: int) -> np.ndarray:
        leg = self._legs[number - 1]
        moved = inverse(drive.stations[number - 1]) @ drive.stations[number]
        slip = log(inverse(leg.transform(drive.scales, drive.clock)) @ moved)[PLANAR]
        return np.linalg.solve(self._roots[number - 1], slip)

    def with_variances(self, drive: Drive) -> Drive:
        """Return the drive with the sizes of stances and slip estimated from the data (empirical Bayes)."""
        stances, slipped = drive.stances(), self._slipped(drive)
        squares = np.sum(stances**2, axis=0) + LIKELY_STANCE**2
        stance = np.maximum(np.sqrt(squares / (len(stances) + 1.0)), LEAST_STANCE)
        # The same legs determine lever, yaw, three scales, and the clock.
        freedom = max(slipped.size - 6 - bool(self._within_scans), 0)
        slip = np.sqrt((np.sum(slipped**2) + PRIOR_SLIP) / (freedom + PRIOR_SLIP))
        return replace(drive, stance=stance, slip=float(slip))


def _planar(pose: np.ndarray) -> np.ndarray:
    """Return the projection of a nearly level pose (4, 4) onto the plane."""
    return from_xyz_rpy((pose[0, 3], pose[1, 3], 0.0), (0.0, 0.0, float(np.arctan2(pose[1, 0], pose[0, 0]))))
