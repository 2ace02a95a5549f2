"""A short drive for calibration within the space that the lidars see free, and when it ends. Obstacles that no lidar
sees are not detected: this is not a safety function, and does not replace the hand at the run-stop."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration import wheel_odometry
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.wheel_odometry import DrivingSettings, Leg, Manoeuvre
from stretch_sim_cal.collection.clearance import ENOUGH, OWN, Obstacle
from stretch_sim_cal.errors import Refused
from stretch_sim_cal.geometry.transforms import apply, wrapped

FLOOR_WITHIN = 0.1  # m above and below the floor, which 2 deg of error in a described lidar move by 7 cm at 2 m
# m by which things may seem nearer to the way while the robot drives than when it was planned: noise, odometry's slip,
# a scan that is taken on the move, and the description's errors once more, from another side.
UNSURE = 0.1
SECTORS = 72  # of directions about the robot, each of which is seen as far as its farthest return
SHORTEST = 0.3  # m: of a straight path that is of use; slip hides shorter ones
GRID = 0.05  # m: step of the search for the length of a straight path
SCANS = 3  # of each lidar that a plan is made from
FURTHER = 2.0  # times the distance of the plan, that an added straight way may have


@dataclass(frozen=True)
class DrivingBody:
    """The robot's own body: its `radius` about the axis that it turns about, and its `height` (m); `shape` are points
    (N, 3) on it, or None for a cylinder about `axis` (2,)."""

    radius: float
    height: float
    shape: np.ndarray | None
    axis: np.ndarray

    @classmethod
    def of(cls, body: Mapping[str, Any], footprint_from_base: np.ndarray) -> "DrivingBody":
        """Return that of the settings of `body_settings`, with base_link's pose (4, 4) in base_footprint."""
        axis = footprint_from_base[:2, 3]
        if "body" in body:
            shape = apply(footprint_from_base, body["body"])
            return cls(float(np.hypot(*shape[:, :2].T).max()), float(shape[:, 2].max()), shape, axis)
        radius = body.get("body_radius", AlignmentSettings.body_radius)
        height = body.get("body_height", AlignmentSettings.body_height)
        return cls(float(radius + np.hypot(*axis)), float(height + footprint_from_base[2, 3]), None, axis)

    def others(self, points: np.ndarray) -> np.ndarray:
        if self.shape is not None:
            near = np.flatnonzero(np.hypot(*points[:, :2].T) < self.radius + OWN)
            own = cKDTree(self.shape).query(points[near], distance_upper_bound=OWN)[0] < np.inf
            return np.delete(points, near[own], axis=0)
        own = (np.hypot(*(points[:, :2] - self.axis).T) < self.radius) & (points[:, 2] < self.height)
        return points[~own]

    def in_way(self, points: np.ndarray, end: np.ndarray, clearance: float) -> Obstacle | None:
        """Return what of the points (N, 3) is nearer than `clearance` to the robot on a straight way to `end` (2,), the
        origin for a turn: anything above or below the floor, up to the robot's height."""
        near = np.hypot(*points[:, :2].T) < np.hypot(*end) + self.radius + clearance
        near &= (np.abs(points[:, 2]) > FLOOR_WITHIN) & (points[:, 2] < self.height + UNSURE)
        points = self.others(points[near])
        share = np.clip(points[:, :2] @ end / max(float(end @ end), 1e-12), 0.0, 1.0)
        distances = np.hypot(*(points[:, :2] - share[:, None] * end).T)
        found = np.flatnonzero(distances < self.radius + clearance)
        if len(found) < ENOUGH:
            return None
        return Obstacle(len(found), points[found[np.argmin(distances[found])]])


@dataclass(frozen=True)
class Stop:
    """A stop at x, y (m) and yaw (rad), which counts whole turns, (3,), in base_footprint at the beginning; a turn on
    the spot or a straight way leads there from the one before, as `words` say."""

    target: np.ndarray
    words: str


@dataclass(frozen=True)
class DrivePlan:
    """The `stops` after the place where the robot stands, and a `note` if some kind of motion finds no room, ""
    otherwise; `reach` (m) is how far from that place the robot's body comes. `additions` are motions from there and
    back that may be added, each in words and its stops; with these it comes as far as `further` (m)."""

    stops: tuple[Stop, ...]
    note: str
    reach: float
    additions: tuple[tuple[str, tuple[Stop, ...]], ...]
    further: float

    @property
    def only_turns(self) -> bool:
        return not any(stop.target[:2].any() for stop in self.stops)

    def moving_time(self, speed: float, turn_speed: float) -> float:
        """Return about how long (s) the motions take at speeds in m/s and rad/s."""
        targets = np.vstack([np.zeros(3), *(stop.target for stop in self.stops)])
        ways = np.abs(np.diff(targets, axis=0))
        return float(np.sum(np.hypot(*ways[:, :2].T) / speed + ways[:, 2] / turn_speed))


def plan_drive(
    body: DrivingBody, points: np.ndarray, strafes: bool, turn_step: float = np.pi / 3, distance: float = 0.8,
    clearance: float = 0.3,
) -> DrivePlan:  # fmt: skip
    """Return the drive that the points (N, 3) of a few scans, in base_footprint where the robot stands, leave room for,
    `clearance` (m) from any obstacle, with the robot as a disc about the axis that it turns about: a full turn and back
    with a stop every `turn_step` (rad), and in the direction, among those of its stops, that has most room straight
    ahead and back, `distance` (m) at most, behind and back, and to both sides for a base that `strafes`. Raises
    `Refused` if there is no room to turn."""
    reach = body.radius + clearance
    obstacle = body.in_way(points, np.zeros(2), clearance)
    if obstacle is not None:
        x, y, z = obstacle.nearest
        raise Refused(
            f"no room to turn: {obstacle.count} points are nearer than {reach:.2f} m to the axis that the robot turns "
            f"about ({body.radius:.2f} m of robot, {clearance:.2f} m of clearance), the nearest at x {x:.2f} "
            f"y {y:.2f} z {z:.2f} m in base_footprint; clear the place, or stow the arm"
        )
    # How far each direction is seen, by points that are not the robot's own.
    low, seen = body.others(points[points[:, 2] < body.height]), np.zeros(SECTORS)
    np.maximum.at(seen, _sectors(low), np.hypot(*low[:, :2].T))
    count = max(2, int(np.ceil(2.0 * np.pi / turn_step - 1e-9)))
    yaws = 2.0 * np.pi / count * np.arange(count)
    aside = ((0.0, "ahead"), (np.pi, "behind")) + ((np.pi / 2, "left"), (-np.pi / 2, "right")) * strafes

    def free(yaw: float, longest: float) -> list[float]:
        return [_free_length(body, points, seen, yaw + angle, clearance, longest) for angle, _ in aside]

    lengths = np.array([free(yaw, distance) for yaw in yaws])
    best = int(np.argmax(lengths.sum(axis=1)))
    turns, stops = (*yaws[1:], 2.0 * np.pi, *yaws[:0:-1], 0.0), []
    for yaw in turns:
        stops.append(_turn(yaw))
        turned_back = len(stops) > count
        if turned_back and yaw == yaws[best]:
            for (angle, words), length in zip(aside, lengths[best], strict=True):
                stops += _there_and_back(yaw, angle, length, words)
    lacking = [words for (_, words), length in zip(aside, lengths[best], strict=True) if not length]
    note = f"there is no room for a straight path of {SHORTEST:g} m " if lacking else ""
    if len(lacking) == len(aside):
        note, remedy = f"{note}in any direction", "move it to a place with more room"
        if distance < SHORTEST:
            note, remedy = f"straight paths of {distance:g} m are too short", f"allow {SHORTEST:g} m or more"
        note += f", so the robot turns only: yaw against the direction of driving stays unknown; {remedy}"
    else:
        note += " and ".join(lacking)
    additions = [("another full turn and back", tuple(map(_turn, turns)))]
    heading = wrapped(yaws[best])
    towards, back = ((_turn(yaw),) * bool(best) for yaw in (heading, 0.0))
    room = np.maximum(free(heading, FURTHER * distance), lengths[best]) * (lengths[best] > 0)
    for (angle, words), length in zip(aside, room, strict=True):
        if length:
            way = (*towards, *_there_and_back(heading, angle, length, words), *back)
            additions.append((f"{length:.2f} m {words} and back", way))
    reach, further = (float(body.radius + most) for most in (lengths[best].max(), room.max()))
    return DrivePlan(tuple(stops), note, reach, tuple(additions), further)


def _turn(yaw: float) -> Stop:
    return Stop(np.array([0.0, 0.0, yaw]), f"turned to {np.degrees(yaw):.0f} deg")


def _there_and_back(yaw: float, angle: float, length: float, words: str) -> list[Stop]:
    """Return the stops of a straight way at an `angle` to the heading `yaw`, none of one without length."""
    if not length:
        return []
    x, y = length * np.cos(yaw + angle), length * np.sin(yaw + angle)
    return [Stop(np.array([x, y, yaw]), f"{length:.2f} m {words}"), Stop(np.array([0.0, 0.0, yaw]), "and back")]


class Known(NamedTuple):
    """What is known of the lidars against the wheels: the `covariance` (6, 6) of x, y and yaw of their common twist in
    base_footprint and of the odometry's `scales` (3,), the `slip` over the expected one, the standard `deviations`
    (lidars, 3) of each one's x, y (m) and yaw (rad), and whether the result is `accepted`."""

    covariance: np.ndarray
    scales: np.ndarray
    slip: float
    deviations: np.ndarray
    accepted: bool = True

    def after(self, legs: Sequence[Leg], poses: Sequence[np.ndarray], settings: DrivingSettings) -> "Known":
        """Return what is to be expected after further legs, of lidars at `poses` (4, 4) in base_footprint."""
        covariance = wheel_odometry.known_after(self.covariance, self.scales, settings, self.slip, legs)
        deviations = np.array([wheel_odometry.deviations_of(covariance, pose) for pose in poses])
        return self._replace(covariance=covariance, deviations=deviations)


class Ending(NamedTuple):
    """How a drive ended: `why`, in words, the `stops` that it had, and what is `known` then."""

    why: str
    stops: list[Stop]
    known: Known


class Course:
    """How a drive goes on from stop to stop: along its plan until enough is known, and beyond it if too little is.
    `poses` (4, 4) are the described ones of the lidars in base_footprint, `goal` has the standard deviations that are
    wanted of each one's x, y and yaw as its bounds; `seconds` says how long a motion between two targets, and the stop
    after it, take, and `longest` (s) is how long all of them may."""

    def __init__(
        self, plan: DrivePlan, poses: Sequence[np.ndarray], goal: DrivingSettings,
        seconds: Callable[[np.ndarray, np.ndarray], float], longest: float,
    ):  # fmt: skip
        self.plan, self._poses, self._goal = plan, poses, goal
        self._seconds, self._longest = seconds, longest
        self._bounds = np.array([goal.max_std_translation, goal.max_std_translation, goal.max_std_yaw])

    def expected(self) -> Ending:
        return self.follow(lambda _stop, _added: None)

    def follow(self, go: Callable[[Stop, bool], float | None], estimate: Callable[[], Known] | None = None) -> Ending:
        """Drive: `go` to a stop, which may be added to the plan, and return how long (s) that took, by default as is
        expected. Wherever the robot is back at its place and the prediction is as wanted, and at the end, `estimate`
        says what is really known, and is the base of further predictions. By default the prediction is believed."""
        known = Known(wheel_odometry.unknown(self._goal), np.zeros(3), 1.0, np.full((len(self._poses), 3), np.inf))
        queue, done, at, spent = list(self.plan.stops), [], np.zeros(3), 0.0
        planned, estimated, over = len(queue), False, False
        while True:
            while queue and not (done and known.accepted and self._reached(known)):
                block = queue[: 1 + next(n for n, stop in enumerate(queue) if not stop.target[:2].any())]
                ways = list(itertools.pairwise([at, *(stop.target for stop in block)]))
                over = bool(done) and spent + self._time(ways) > self._longest
                if over:
                    break
                for stop, way in zip(block, ways, strict=True):
                    took = go(stop, len(done) >= planned)
                    spent += self._time([way]) if took is None else took
                    done.append(stop)
                known = known.after(_legs(ways), self._poses, self._goal)
                at, queue = block[-1].target, queue[len(block) :]
            if estimated and not queue and not self._reached(known) and (added := self._added(known, spent)):
                queue += added  # even with that, the prediction has it, too little would be known
                continue
            if estimate is not None:
                known, estimated = estimate(), True
            if known.accepted and self._reached(known):
                return Ending(f"target reached: {self._said(known)}", done, known)
            if over:
                return Ending(f"time limit of {self._longest:g} s reached: {self._too_little(known)}", done, known)
            if queue:
                continue
            if self._reached(known):
                return Ending("the result is refused, and no further motion would help", done, known)
            if not (added := self._added(known, spent)):
                why = f"no further motion within the time limit helps much: {self._too_little(known)}"
                return Ending(why, done, known)
            queue += added

    def _time(self, ways: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
        return sum(self._seconds(*way) for way in ways)

    def _added(self, known: Known, spent: float) -> Sequence[Stop]:
        """Return the stops of the motion that gains most for the least certain direction, of those that there is time
        for; none if none of them gains much."""
        choices = {}
        for words, stops in self.plan.additions:
            ways = list(itertools.pairwise([np.zeros(3), *(stop.target for stop in stops)]))
            if spent + self._time(ways) <= self._longest:
                choices[words] = Manoeuvre(words, _legs(ways)), stops
        lidar = int(np.argmax((known.deviations / self._bounds).max(axis=1)))
        motions = [motion for motion, _ in choices.values()]
        pose, settings = self._poses[lidar], self._goal
        gain = wheel_odometry.most_gained(known.covariance, pose, known.scales, settings, known.slip, motions)
        return () if gain is None else choices[gain.motion][1]

    def _reached(self, known: Known) -> bool:
        return bool(np.all(known.deviations <= self._bounds))

    def _said(self, known: Known) -> str:
        x, y, yaw = known.deviations.max(axis=0)
        deviations = f"{1e3 * x:.2f} mm, {1e3 * y:.2f} mm and {np.degrees(yaw):.3f} deg"
        return f"x, y and yaw of every lidar have standard deviations of at most {deviations}"

    def _too_little(self, known: Known) -> str:
        wanted = f"{1e3 * self._bounds[0]:.2g} mm and {np.degrees(self._bounds[2]):.2g} deg"
        return f"{self._said(known)}, above the targets of {wanted}"


def _legs(ways: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[Leg]:
    return [Leg.along(np.array(way)) for way in ways]


def _free_length(
    body: DrivingBody, points: np.ndarray, seen: np.ndarray, heading: float, clearance: float, longest: float
) -> float:  # fmt: skip
    """Return how far it is free, and seen or seen past (`seen`, m by sector), into a direction, up to the `longest`
    way; 0 if that is less than `SHORTEST`."""
    ahead, reach = np.array([np.cos(heading), np.sin(heading)]), body.radius + clearance
    across = np.array([-ahead[1], ahead[0]])
    for length in np.arange(longest, SHORTEST - 1e-9, -GRID):
        ways, sides = np.arange(0.0, length + reach, GRID), np.linspace(-reach, reach, 9)
        places = np.array([way * ahead + side * across for way, side in itertools.product(ways, sides)])
        apart = np.hypot(*(places - np.clip(places @ ahead, 0.0, length)[:, None] * ahead).T)
        places = places[(apart <= reach) & (np.hypot(*places.T) > reach)]
        in_sight = bool(np.all(np.hypot(*places.T) <= seen[_sectors(places)]))
        if in_sight and body.in_way(points, length * ahead, clearance) is None:
            return float(length)
    return 0.0


def _sectors(points: np.ndarray) -> np.ndarray:
    azimuth = np.arctan2(points[:, 1], points[:, 0])
    return np.floor((azimuth + np.pi) / (2.0 * np.pi) * SECTORS).astype(np.int64) % SECTORS
