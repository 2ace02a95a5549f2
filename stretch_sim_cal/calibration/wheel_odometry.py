"""Wheel odometry: the leg between two stations, its covariance, the lidars relative to the wheels, and the information
of a motion about these."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from stretch_sim_cal import validate
from stretch_sim_cal.calibration.finding import Checked
from stretch_sim_cal.calibration.observability import Direction
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import about_origin, exp, from_xyz_rpy, inverse, log, wrapped

STEP = 1e-6  # of differences in place of derivatives
PLANAR = [0, 1, 5]  # of a twist
CIRCLE = 8  # stops of a full circle
# Of a lidar relative to the wheels, with factor and unit for messages.
AXES = (("x", 1e3, "mm"), ("y", 1e3, "mm"), ("yaw", float(np.degrees(1.0)), "deg"))


def turned(vectors: np.ndarray, yaw: np.ndarray | float) -> np.ndarray:
    """Return vectors (..., 2 or more) whose x and y are turned by `yaw` (rad), as (..., 2)."""
    cosine, sine, x, y = np.cos(yaw), np.sin(yaw), vectors[..., 0], vectors[..., 1]
    return np.stack([cosine * x - sine * y, sine * x + cosine * y], axis=-1)


LOOSEST = 100.0  # of all settings: nothing is known then


@dataclass(frozen=True)
class DrivingSettings:
    """Prior standard deviations of wheel odometry, and bounds of the result. `scale` and `turn` are relative errors of
    distances and of angles, `slip` (m) and `slip_angle` (rad) are for 1 m of the wheels' travel, `track_width` (m)
    gives their travel in a turn, `clock` (s) is that of the offset of odometry's stamps, which matters for scans on the
    move. `max_std_translation` (m) and `max_std_yaw` (rad) bound the standard deviations of a lidar's x, y and yaw
    relative to the wheels. Raises `InputError` for values that are not positive, or above `LOOSEST`."""

    scale: float = 0.02
    turn: float = 0.02
    slip: float = 0.005
    slip_angle: float = float(np.radians(0.2))
    track_width: float = 0.4
    clock: float = 0.02
    max_std_translation: float = 0.005
    max_std_yaw: float = float(np.radians(0.5))

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if validate.number(value, f"driving: {name}", high=LOOSEST) <= 0:
                raise InputError(f"driving: {name} = {value} must be greater than zero")

    @property
    def slips(self) -> np.ndarray:
        """Slip (3,) along x and y (m) and in the angle (rad) for 1 m of the wheels' travel."""
        return np.array([self.slip, self.slip, self.slip_angle])

    @property
    def bounds(self) -> np.ndarray:
        """The bounds (3,) of a lidar's x, y (m) and yaw (rad)."""
        return np.array([self.max_std_translation, self.max_std_translation, self.max_std_yaw])


@dataclass(frozen=True)
class Leg:
    """The motion between two stations by odometry: `steps` (K, 3), each x, y (m) along its mean heading and the angle
    (rad) turned in it; `velocities` (2, 3) at its ends, x, y (m/s) along the heading there and the rate (rad/s)."""

    steps: np.ndarray
    velocities: np.ndarray = field(default_factory=lambda: np.zeros((2, 3)))

    @classmethod
    def along(cls, poses: np.ndarray, velocities: np.ndarray | None = None) -> "Leg":
        """Return the leg along poses (K + 1, 3), x, y (m), yaw (rad) by odometry, none of them more than half a turn
        from the one before; at rest at its ends without `velocities`."""
        angles = wrapped(np.diff(poses[:, 2]))
        ways = turned(np.diff(poses, axis=0), -(poses[:-1, 2] + angles / 2.0))
        steps = np.column_stack([ways, angles])
        return cls(steps) if velocities is None else cls(steps, velocities)

    def poses(self, scales: np.ndarray) -> np.ndarray:
        """Return the poses (K + 1, 3) at the steps' ends in the first one's frame, if odometry measures (1 + `scales`
        (3,)) times the distance along x, along y, and the angle."""
        steps = self.steps / (1.0 + scales)
        yaw = np.r_[0.0, np.cumsum(steps[:, 2])]
        places = np.cumsum(turned(steps, yaw[:-1] + steps[:, 2] / 2.0), axis=0)
        return np.column_stack([np.vstack([np.zeros(2), places]), yaw])

    def transform(self, scales: np.ndarray, clock: float = 0.0) -> np.ndarray:
        """Return the later station's pose (4, 4) in the earlier one's frame, if odometry's stamps are late by `clock`
        (s)."""
        x, y, yaw = self.poses(scales)[-1]
        pose = from_xyz_rpy((x, y, 0.0), (0.0, 0.0, yaw))
        if not clock:
            return pose
        before, after = np.zeros((2, 6))
        before[PLANAR], after[PLANAR] = clock * self.velocities / (1.0 + scales)
        return exp(-before) @ pose @ exp(after)

    def slip_root(self, settings: DrivingSettings) -> np.ndarray:
        """Return the lower root (3, 3) of the covariance by slip of the later station's pose, in its frame."""
        poses = self.poses(np.zeros(3))
        travels = np.hypot(*self.steps[:, :2].T) + np.abs(self.steps[:, 2]) * settings.track_width / 2.0
        travels *= max(1.0, 0.02 / max(travels.sum(), 1e-9))  # m, the smallest travel that slip is computed for
        covariance = np.diag([STEP, STEP, STEP]) ** 2
        sizes, yaw = settings.slips, poses[-1, 2]
        for (x, y, angle), travel in zip(poses[-1] - poses[1:], travels, strict=True):
            # Slip in the last frame; an angle moves all later poses sideways.
            ahead = np.eye(3)
            ahead[:2, :2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
            ahead[:2, 2] = [-np.cos(yaw) * y + np.sin(yaw) * x, np.sin(yaw) * y + np.cos(yaw) * x]
            covariance += travel * (ahead * sizes**2) @ ahead.T
        return np.linalg.cholesky(covariance)


@dataclass(frozen=True)
class Sweep:
    """The motion of the base while the scans of a station were taken: `times` (K,) in s by the stamps of odometry,
    ascending, and its `poses` (K, 3), x, y (m), yaw (rad) without jumps. The station is the pose of the base at `time`
    (s), by the clock of the lidars."""

    time: float
    times: np.ndarray
    poses: np.ndarray

    def steps(self, times: np.ndarray, clock: float = 0.0) -> np.ndarray:
        """Return the motion (N, 3) from the station to times (N,) of the lidars, x, y (m) along the station's heading
        and the angle (rad), if odometry's stamps are late by `clock` (s)."""
        at = np.append(times, self.time) + clock
        poses = np.stack([np.interp(at, self.times, column) for column in self.poses.T], axis=1)
        steps = poses[:-1] - poses[-1]
        return np.column_stack([turned(steps, -poses[-1, 2]), steps[:, 2]])

    @property
    def velocity(self) -> np.ndarray:
        """The mean velocity (3,), x, y (m/s) along the station's heading and the rate (rad/s)."""
        begin, end = self.steps(self.times[[0, -1]])
        velocity: np.ndarray = (end - begin) / (self.times[-1] - self.times[0])
        return velocity

    def slip(self, farthest: float, settings: DrivingSettings) -> np.ndarray:
        """Return the standard deviations (3,) of x, y (m) and angle (rad) of a scan relative to the station by slip, if
        its points are measured at most `farthest` (s) from the station's time: a random walk over the wheels' travel,
        on average over half of the scan."""
        x, y, rate = np.abs(self.velocity)
        travel = farthest * float(np.hypot(x, y) + rate * settings.track_width / 2.0)
        return np.sqrt(travel / 3.0) * settings.slips

    def deskewed(
        self, points: np.ndarray, times: np.ndarray, footprint_from_lidar: np.ndarray, scales: np.ndarray,
        clock: float = 0.0,
    ) -> np.ndarray:  # fmt: skip
        """Return points (N, 3) of a lidar, measured at times (N,) in s, in the lidar's frame at the station, if
        odometry measures (1 + `scales` (3,)) times the truth, and `clock` as of `steps`."""
        steps = self.steps(times, clock) / (1.0 + scales)
        rotation, place = footprint_from_lidar[:3, :3], footprint_from_lidar[:3, 3]
        in_base = points @ rotation.T + place
        in_base[:, :2] = turned(in_base, steps[:, 2]) + steps[:, :2]
        result: np.ndarray = (in_base - place) @ rotation
        return result


class Manoeuvre(NamedTuple):
    """A drive with stops, in `words`, and its `legs` from one stop to the next."""

    words: str
    legs: list[Leg]


class Gain(NamedTuple):
    """The gain of one more `motion`, in words: the standard deviation (m, rad) `before` and `after` it of the weakest
    direction, number `of` x, y, yaw."""

    motion: str
    of: int
    before: float
    after: float

    @property
    def words(self) -> str:
        """The motion and its gain."""
        name, factor, unit = AXES[self.of]
        before, after = (f"{factor * deviation:.2g}" for deviation in (self.before, self.after))
        return f"{self.motion}: the standard deviation of {name} would be {after} {unit} in place of {before}"


def motions(strafes: bool) -> list[Manoeuvre]:
    """Return the motions of a base that are proposed."""

    def there_and_back(step: Sequence[float], times: int = 1) -> list[Leg]:
        return [Leg(sign * np.array([step], dtype=float)) for sign in [1.0] * times + [-1.0] * times]

    circle = there_and_back((0.0, 0.0, 2.0 * np.pi / CIRCLE), CIRCLE)
    known = [
        Manoeuvre("drive 1 m straight ahead and back, with stops", there_and_back((1.0, 0.0, 0.0))),
        Manoeuvre("drive 2 m straight ahead and back, with stops", there_and_back((2.0, 0.0, 0.0))),
        Manoeuvre("turn on the spot by a full circle and back, with a stop every 45 deg", circle),
    ]
    sideways = Manoeuvre("drive 1 m sideways and back, with stops", there_and_back((0.0, 1.0, 0.0)))
    return [*known, sideways] if strafes else known


def deviations_of(covariance: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Return the standard deviations (3,) of x, y and yaw of a lidar at `pose` (4, 4) by the covariance of x, y and yaw
    of its twist in base_footprint, (3, 3) or more."""
    at_lidar = about_origin(pose)[np.ix_(PLANAR, PLANAR)]
    return np.sqrt(np.diag(at_lidar @ covariance[:3, :3] @ at_lidar.T))


def known_after(
    covariance: np.ndarray, scales: np.ndarray, settings: DrivingSettings, slip: float, legs: Sequence[Leg]
) -> np.ndarray:
    """Return the `covariance` (6, 6) of x, y and yaw of a lidar's twist in base_footprint and of the odometry's
    `scales` (3,) after further `legs`, with an exact lidar and `slip` times the slip of `settings`."""
    information = np.linalg.inv(covariance)
    for leg in legs:
        root, way = slip * leg.slip_root(settings), leg.transform(scales)

        def slipped(change: np.ndarray, leg: Leg = leg, way: np.ndarray = way) -> np.ndarray:
            twist = np.zeros(6)
            twist[PLANAR] = change[:3]
            moved = exp(twist)
            return log(inverse(leg.transform(scales + change[3:])) @ moved @ way @ inverse(moved))[PLANAR]

        rows = np.linalg.solve(root, np.column_stack([slipped(step) for step in STEP * np.eye(6)]) / STEP)
        information += rows.T @ rows
    return np.linalg.inv(information)


def unknown(settings: DrivingSettings) -> np.ndarray:
    """Return the prior covariance (6, 6) as of `known_after`: 1 m, 1 rad, and the odometry's."""
    return np.diag([1.0, 1.0, 1.0, settings.scale, settings.scale, settings.turn]) ** 2


def most_gained(
    covariance: np.ndarray, pose: np.ndarray, scales: np.ndarray, settings: DrivingSettings, slip: float,
    choices: Sequence[Manoeuvre],
) -> Gain | None:  # fmt: skip
    """Return the gain of the best motion for the weakest direction, by `known_after`; None if there is none."""
    before = deviations_of(covariance, pose)
    weakest = int(np.argmax(before / settings.bounds))
    known = [known_after(covariance, scales, settings, slip, choice.legs) for choice in choices]
    after = [deviations_of(each, pose)[weakest] for each in known]
    if not after:
        return None
    best = int(np.argmin(after))
    if after[best] > 0.95 * before[weakest]:  # of the standard deviation; a motion that leaves more has no gain
        return None
    return Gain(choices[best].words, weakest, float(before[weakest]), float(after[best]))


@dataclass(frozen=True)
class Wheels(Checked):
    """The lidars relative to the wheels: their poses `footprint_from_lidar` (4, 4) by name, with base_footprint on the
    floor at the centre of rotation, x along the direction of driving, and the `covariance` (6 n, 6 n) of their twists.

    `odometry` are its errors with their standard deviations (`scale_x`, `scale_x_std`, ..., `turn`), `slip` is over the
    expected one, `stations` are the stations' poses (4, 4) over the floor. `directions` are x, y and yaw of each lidar
    with their bounds; `known` (6, 6) is the covariance of x, y and yaw of the first one's twist and of the odometry's
    scales, and `gain` that of one more motion for the weakest of its directions, None if there is none.
    """

    footprint_from_lidar: dict[str, np.ndarray]
    covariance: np.ndarray
    odometry: dict[str, float]
    slip: float
    stations: list[np.ndarray]
    directions: list[Direction] = field(default_factory=list)
    gain: Gain | None = None
    known: np.ndarray | None = None

    @property
    def enough(self) -> bool:
        """Whether x, y and yaw are within their bounds: the drive may end."""
        return all(direction.observed for direction in self.directions)

    @property
    def deviations(self) -> np.ndarray:
        """The standard deviations (lidars, 3) of x, y (m) and yaw (rad) of each lidar."""
        return np.array([np.sqrt(np.diag(self.planar(name)[1])) for name in self.footprint_from_lidar])

    def planar(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return x, y (m) and yaw (rad) of a lidar against the centre of rotation and the direction of driving, (3,),
        with their covariance (3, 3)."""
        pose = self.footprint_from_lidar[name]
        at_lidar = about_origin(pose)[PLANAR]
        planar = np.array([pose[0, 3], pose[1, 3], np.arctan2(pose[1, 0], pose[0, 0])])
        return planar, at_lidar @ self.covariance_of(name) @ at_lidar.T

    def covariance_of(self, name: str) -> np.ndarray:
        """Return the covariance (6, 6) of one lidar's pose."""
        start = 6 * list(self.footprint_from_lidar).index(name)
        return self.covariance[start : start + 6, start : start + 6]
