"""How the simulated joints move: straight to their targets, as fast as commanded and within limits; and how they follow
a FollowJointTrajectory goal, with the goals that the driver rejects.

Simulated time only: positions depend on commands and time, not on the size of the steps. There is no acceleration.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np

from stretch_sim_cal.errors import InputError, StretchSimCalError
from stretch_sim_cal.robot.model import Limit, RobotModel, near
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile

LIMIT_TOLERANCE = 1e-6  # positions that rounding has pushed over a limit are meant to be on it
# control_msgs/action/FollowJointTrajectory, Result
INVALID_GOAL = -1
INVALID_JOINTS = -2
PATIENCE = 2.0  # A joint that is this much later than its speed allows does not arrive any more


@dataclass(frozen=True)
class _Motion:
    """From `origin` at time `start` (ns) to `target` at `speed` (per s)."""

    origin: float
    target: float
    start: int
    speed: float

    @property
    def direction(self) -> float:
        return float(np.sign(self.target - self.origin))

    def position(self, now: int) -> float:
        travelled = (now - self.start) * 1e-9 * self.speed
        if travelled >= abs(self.target - self.origin):
            return self.target
        return self.origin + self.direction * travelled


class Joints:
    """The joints of a robot in simulated time. Commanded are the names of the trajectory action, by the robot's profile
    (the Stretch's by default): its `arm_joint` stands for the four telescoping joints, `gripper_joint` for both
    fingers. Joints without limits (wheels) stand still."""

    arrival_tolerance = 1e-6
    """How far (m, rad) a joint may be from its target when it counts as arrived."""

    def __init__(self, model: RobotModel, profile: RobotProfile | None = None):
        self._model = model
        self.profile = profile or stretch_profile()
        self.ranges: dict[str, Limit] = {
            name: limit for name, limit in self.profile.commanded_limits(model).items() if limit.velocity > 0
        }
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
        velocities = {name: motion.speed * motion.direction for name, motion in self._motions.items()}
        return self._described(velocities)

    @property
    def moving(self) -> bool:
        """Whether any joint is on its way to a target."""
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
            if name not in self._stuck and target != self._positions[name]:
                limit = self.ranges[name].velocity
                speed = min(speeds.get(name, limit), limit)
                self._motions[name] = _Motion(self._positions[name], target, self._now, speed)

    def hold(self) -> None:
        """Stop all joints where they are."""
        self._motions.clear()

    def place(self, positions: Mapping[str, float]) -> None:
        """Put joints at positions at once, without motion. Raises `InputError` for unknown joints and beyond limits."""
        checked = {name: self._checked(name, value) for name, value in positions.items()}
        for name, value in checked.items():
            self._motions.pop(name, None)
            self._positions[name] = value

    def stick(self, names: Iterable[str]) -> None:
        """Let commanded joints never move again. Raises `InputError` for unknown ones."""
        for name in names:
            self._known(name)
            self._stuck.add(name)
            self._motions.pop(name, None)

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
        """Return `value` within the limits, which it may exceed by rounding. Raises `InputError` beyond."""
        known = self._known(name)
        if not known.lower - LIMIT_TOLERANCE <= value <= known.upper + LIMIT_TOLERANCE:  # also NaN
            raise InputError(f"joint '{name}': {value:g} is not within its limits {known.lower:g} to {known.upper:g}")
        return float(min(max(value, known.lower), known.upper))


class GoalRefused(StretchSimCalError):
    """A goal that cannot be followed; `code` is the action's result code for it."""

    exit_code = 1

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Waypoint:
    """Joint positions to go through, the speeds on the way (may be absent), and the `time` in s since the trajectory's
    start; 0 means as soon as possible."""

    positions: dict[str, float]
    speeds: dict[str, float]
    time: float


def read_waypoints(trajectory: Any, ranges: Mapping[str, Limit]) -> list[Waypoint]:
    """Return the waypoints of a `trajectory_msgs/JointTrajectory`. Raises `GoalRefused` with the cause."""
    names = list(trajectory.joint_names)
    _check_joints(names, ranges)
    if not trajectory.points:
        raise GoalRefused(INVALID_GOAL, "the trajectory has no points")
    waypoints: list[Waypoint] = []
    for index, point in enumerate(trajectory.points):
        waypoint = _read_point(f"point {index}", names, point, ranges)
        if waypoints and waypoint.time < waypoints[-1].time:
            raise GoalRefused(INVALID_GOAL, f"point {index}: its time_from_start is before the previous point's")
        waypoints.append(waypoint)
    return waypoints


def _check_joints(names: Sequence[str], ranges: Mapping[str, Limit]) -> None:
    if not names:
        raise GoalRefused(INVALID_JOINTS, "the trajectory names no joints")
    unknown = [name for name in names if name not in ranges]
    if unknown:
        raise GoalRefused(INVALID_JOINTS, f"unknown joint {', '.join(unknown)}; available: {', '.join(ranges)}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GoalRefused(INVALID_JOINTS, f"joint {', '.join(twice)} occurs twice")


def _read_point(where: str, names: Sequence[str], point: Any, ranges: Mapping[str, Limit]) -> Waypoint:
    if len(point.positions) != len(names):
        raise GoalRefused(INVALID_GOAL, f"{where}: {len(point.positions)} positions for {len(names)} joints")
    if len(point.velocities) not in (0, len(names)):
        raise GoalRefused(INVALID_GOAL, f"{where}: {len(point.velocities)} velocities for {len(names)} joints")
    positions = {}
    for name, position in zip(names, point.positions, strict=False):
        allowed = ranges[name]
        if not allowed.lower - LIMIT_TOLERANCE <= position <= allowed.upper + LIMIT_TOLERANCE:  # also NaN
            raise GoalRefused(
                INVALID_GOAL,
                f"{where}: {name} at {position:g} is outside its limits {allowed.lower:g} .. {allowed.upper:g}",
            )
        positions[name] = min(max(position, allowed.lower), allowed.upper)
    speeds = {}
    for name, velocity in zip(names, point.velocities, strict=False):
        if not math.isfinite(velocity):
            raise GoalRefused(INVALID_GOAL, f"{where}: the velocity of {name} is {velocity}")
        if velocity:
            speeds[name] = min(abs(velocity), ranges[name].velocity)
    time = point.time_from_start.sec + 1e-9 * point.time_from_start.nanosec
    if time < 0:
        raise GoalRefused(INVALID_GOAL, f"{where}: its time_from_start is negative")
    return Waypoint(positions, speeds, time)


class Arrival(Enum):
    """State of the joints on the way to the last waypoint."""

    MOVING = "moving"
    ARRIVED = "arrived"
    LATE = "late"


class Following:
    """Leads `joints` through `waypoints`, one after another; call `update` at every step of simulated time (s). A joint
    moves at the commanded speed, or slower if a waypoint's time allows it, so that all arrive together. Between
    waypoints the joints stop."""

    def __init__(self, joints: Joints, waypoints: Sequence[Waypoint], now: float):
        self._joints = joints
        self._waypoints = list(waypoints)
        self._started = now
        self._index = 0
        self._begin(now)

    @property
    def waypoint(self) -> Waypoint:
        """The waypoint that the joints are on their way to, or at."""
        return self._waypoints[self._index]

    def update(self, now: float) -> Arrival:
        """Continue to the next waypoint if the present one is reached, and return the state."""
        while not self.missing() and now >= self._earliest:
            if self._index + 1 == len(self._waypoints):
                return Arrival.ARRIVED
            self._index += 1
            self._begin(now)
        return Arrival.LATE if now > self._latest else Arrival.MOVING

    def missing(self) -> dict[str, float]:
        """Return how far (m, rad) each joint that has not arrived has to go."""
        gaps = {name: target - self._joints.positions[name] for name, target in self.waypoint.positions.items()}
        return {name: gap for name, gap in gaps.items() if abs(gap) > self._joints.arrival_tolerance}

    def _begin(self, now: float) -> None:
        waypoint = self.waypoint
        speeds = {name: waypoint.speeds.get(name, self._joints.ranges[name].velocity) for name in waypoint.positions}
        distances = {name: abs(gap) for name, gap in self.missing().items()}
        needed = max((distance / speeds[name] for name, distance in distances.items()), default=0.0)
        self._earliest = self._started + waypoint.time if waypoint.time else now
        if self._earliest - now > needed:
            needed = self._earliest - now
            speeds |= {name: distance / needed for name, distance in distances.items()}
        self._latest = now + needed + PATIENCE
        self._joints.command(waypoint.positions, speeds)
