"""How the simulated joints move, straight to their targets within limits and speeds, without acceleration; and how they
follow a FollowJointTrajectory goal. Positions depend on commands and simulated time, not on its steps."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.model import Limit, RobotModel, near
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile

LIMIT_TOLERANCE = 1e-6  # positions that rounding has pushed over a limit are meant to be on it
PATIENCE = 2.0  # A joint that is this much later than its speed allows does not arrive any more


@dataclass(frozen=True)
class _Motion:
    """From `origin` at time `start` (ns) to `target` at a signed `velocity` (per s)."""

    origin: float
    target: float
    start: int
    velocity: float

    def position(self, now: int) -> float:
        travelled = (now - self.start) * 1e-9 * self.velocity
        return self.target if abs(travelled) >= abs(self.target - self.origin) else self.origin + travelled


class Joints:
    """The joints of a robot in simulated time. Commanded are the names of the trajectory action, by the profile (the
    Stretch's by default), which may stand for several tied joints. Joints without limits (wheels) stand still."""

    arrival_tolerance = 1e-6
    """How far (m, rad) a joint may be from its target when it counts as arrived."""

    def __init__(self, model: RobotModel, profile: RobotProfile | None = None):
        self._model = model
        self.profile = profile or stretch_profile()
        limits = self.profile.commanded_limits(model)
        self.ranges = {name: limit for name, limit in limits.items() if limit.velocity > 0}
        self._positions = {name: min(max(0.0, limit.lower), limit.upper) for name, limit in self.ranges.items()}
        self._at_rest = {joint.name: 0.0 for joint in model.moving_joints() if joint.variables == 1}
        self._motions: dict[str, _Motion] = {}
        self._stuck: set[str] = set()
        self._now = 0  # ns, whole numbers, so that many small steps end where one large one does

    @property
    def positions(self) -> Mapping[str, float]:
        """The positions (m, rad) of the commanded joints."""
        return MappingProxyType(self._positions)

    @property
    def movable(self) -> set[str]:
        """The description's joints that commands reach."""
        return set(self.profile.joint_positions(self._model, self._positions))

    @property
    def joint_positions(self) -> dict[str, float]:
        """The positions (m, rad) of the description's moving joints."""
        return self._described(self._positions)

    @property
    def joint_velocities(self) -> dict[str, float]:
        """The velocities (m/s, rad/s) of the description's moving joints."""
        return self._described({name: motion.velocity for name, motion in self._motions.items()})

    @property
    def moving(self) -> bool:
        return bool(self._motions)

    def command(self, targets: Mapping[str, float], speeds: Mapping[str, float] | None = None) -> None:
        """Move joints to their targets, each at its speed (at most, and by default, its limit); others go on. Raises
        `InputError` for unknown joints, targets beyond limits and speeds that are not above zero."""
        checked = {name: self._checked(name, target) for name, target in targets.items()}
        speeds = speeds or {}
        for name in targets:
            if not speeds.get(name, 1.0) > 0:  # also NaN
                raise InputError(f"joint '{name}': its speed {speeds[name]:g} is not above 0")
        for name, target in checked.items():
            self._motions.pop(name, None)
            if name not in self._stuck and target != (origin := self._positions[name]):
                limit = self.ranges[name].velocity
                velocity = math.copysign(min(speeds.get(name, limit), limit), target - origin)
                self._motions[name] = _Motion(origin, target, self._now, velocity)

    def hold(self) -> None:
        self._motions.clear()

    def place(self, positions: Mapping[str, float]) -> None:
        """Put joints at positions at once. Raises `InputError` for unknown joints and beyond limits."""
        checked = {name: self._checked(name, value) for name, value in positions.items()}
        for name, value in checked.items():
            self._motions.pop(name, None)
            self._positions[name] = value

    def stick(self, names: Iterable[str]) -> None:
        """Let joints never move again. Raises `InputError` for unknown ones."""
        for name in names:
            self._known(name)
            self._stuck.add(name)
            self._motions.pop(name, None)

    def missing(self, targets: Mapping[str, float]) -> dict[str, float]:
        """Return how far (m, rad) each joint that has not arrived is from its target."""
        gaps = {name: target - self.positions[name] for name, target in targets.items()}
        return {name: gap for name, gap in gaps.items() if abs(gap) > self.arrival_tolerance}

    def step(self, duration: float) -> None:
        """Let `duration` s of simulated time pass (whole ns). Raises `InputError` for a negative one."""
        if not duration >= 0:
            raise InputError(f"time cannot advance by {duration:g} s")
        self._now += round(duration * 1e9)
        for name, motion in list(self._motions.items()):
            self._positions[name] = motion.position(self._now)
            if self._positions[name] == motion.target:
                del self._motions[name]

    def _described(self, commanded: Mapping[str, float]) -> dict[str, float]:
        described = self.profile.joint_positions(self._model, commanded)
        return self._at_rest | {name: float(value) for name, value in described.items()}

    def _known(self, name: str) -> Limit:
        if name not in self.ranges:
            raise InputError(f"joint '{name}' cannot be commanded{near(name, self.ranges)}")
        return self.ranges[name]

    def _checked(self, name: str, value: float) -> float:
        limit = self._known(name)
        if (within := _within(limit, value)) is None:
            raise InputError(f"joint '{name}': {value:g} is not within its limits {limit.lower:g} to {limit.upper:g}")
        return within


def _within(limit: Limit, value: float) -> float | None:
    """Return a value within limits, which it may exceed by rounding; None beyond."""
    if limit.lower - LIMIT_TOLERANCE <= value <= limit.upper + LIMIT_TOLERANCE:  # not NaN
        return float(min(max(value, limit.lower), limit.upper))
    return None


@dataclass(frozen=True)
class Waypoint:
    """Joint positions, speeds on the way there (or none), and `time` in s since the start; 0: as soon as possible."""

    positions: dict[str, float]
    speeds: dict[str, float]
    time: float


def read_waypoints(trajectory: Any, ranges: Mapping[str, Limit]) -> list[Waypoint]:
    """Return the waypoints of a `trajectory_msgs/JointTrajectory`. Raises `InputError`."""
    names = list(trajectory.joint_names)
    if not names:
        raise InputError("the trajectory names no joints")
    if unknown := [name for name in names if name not in ranges]:
        raise InputError(f"unknown joint {', '.join(unknown)}; available: {', '.join(ranges)}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"joint {', '.join(twice)} occurs twice")
    if not trajectory.points:
        raise InputError("the trajectory has no points")
    waypoints: list[Waypoint] = []
    for index, point in enumerate(trajectory.points):
        try:
            waypoints.append(_waypoint(names, point, ranges, waypoints[-1].time if waypoints else 0.0))
        except InputError as error:
            raise InputError(f"point {index}: {error}") from error
    return waypoints


def _waypoint(names: Sequence[str], point: Any, ranges: Mapping[str, Limit], earliest: float) -> Waypoint:
    if len(point.positions) != len(names):
        raise InputError(f"{len(point.positions)} positions for {len(names)} joints")
    if len(point.velocities) not in (0, len(names)):
        raise InputError(f"{len(point.velocities)} velocities for {len(names)} joints")
    positions, speeds = {}, {}
    for name, position in zip(names, point.positions, strict=True):
        limit = ranges[name]
        if (within := _within(limit, position)) is None:
            raise InputError(f"{name} at {position:g} is outside its limits {limit.lower:g} .. {limit.upper:g}")
        positions[name] = within
    for name, velocity in zip(names, point.velocities, strict=False):
        if not math.isfinite(velocity):
            raise InputError(f"the velocity of {name} is {velocity}")
        if velocity:
            speeds[name] = min(abs(velocity), ranges[name].velocity)
    time = point.time_from_start.sec + 1e-9 * point.time_from_start.nanosec
    if time < 0:
        raise InputError("its time_from_start is negative")
    if time < earliest:
        raise InputError("its time_from_start is before the previous point's")
    return Waypoint(positions, speeds, time)


class Arrival(Enum):
    MOVING = "moving"
    ARRIVED = "arrived"
    LATE = "late"


class Following:
    """Leads `joints` through `waypoints`, stopping at each; call `update` at every step of simulated time (s). A joint
    moves at the commanded speed, or slower if a waypoint's time allows it, so that all arrive together."""

    def __init__(self, joints: Joints, waypoints: Sequence[Waypoint], now: float):
        self._joints, self._started = joints, now
        self._rest = list(waypoints)
        self._begin(now)

    def update(self, now: float) -> Arrival:
        """Continue to the next waypoint if the present one is reached, and return the state."""
        while not self.missing() and now >= self._earliest:
            if not self._rest:
                return Arrival.ARRIVED
            self._begin(now)
        return Arrival.LATE if now > self._latest else Arrival.MOVING

    def missing(self) -> dict[str, float]:
        """Return how far (m, rad) each joint that has not arrived has to go."""
        return self._joints.missing(self.waypoint.positions)

    def _begin(self, now: float) -> None:
        self.waypoint = waypoint = self._rest.pop(0)
        """The waypoint that the joints are on their way to, or at."""
        speeds = {name: waypoint.speeds.get(name, self._joints.ranges[name].velocity) for name in waypoint.positions}
        distances = {name: abs(gap) for name, gap in self.missing().items()}
        needed = max((distance / speeds[name] for name, distance in distances.items()), default=0.0)
        self._earliest = self._started + waypoint.time if waypoint.time else now
        if self._earliest - now > needed:
            needed = self._earliest - now
            speeds |= {name: distance / needed for name, distance in distances.items()}
        self._latest = now + needed + PATIENCE
        self._joints.command(waypoint.positions, speeds)
