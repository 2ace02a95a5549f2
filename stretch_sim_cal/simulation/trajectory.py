"""A FollowJointTrajectory goal: which ones the driver refuses, and how joints with speed limits follow the others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from stretch_sim_cal.errors import StretchSimCalError
from stretch_sim_cal.robot.model import Limit
from stretch_sim_cal.simulation.joints import Joints

# control_msgs/action/FollowJointTrajectory, Result
SUCCESSFUL = 0
INVALID_GOAL = -1
INVALID_JOINTS = -2
OLD_HEADER_TIMESTAMP = -3
PATH_TOLERANCE_VIOLATED = -4
GOAL_TOLERANCE_VIOLATED = -5

# Positions that rounding has pushed over a limit are meant to be on it.
LIMIT_TOLERANCE = 1e-6


class GoalRefused(StretchSimCalError):
    """A goal that cannot be followed; `code` is the action's result code for it."""

    exit_code = 1

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Waypoint:
    """Joint positions to go through, the speed asked for on the way (may be absent), and the time asked for.

    `time` is in s since the trajectory's start; 0 means as soon as possible.
    """

    positions: dict[str, float]
    speeds: dict[str, float]
    time: float


def read_waypoints(trajectory: Any, ranges: Mapping[str, Limit]) -> list[Waypoint]:
    """Return the waypoints of a `trajectory_msgs/JointTrajectory`. Raises `GoalRefused` saying why it is refused."""
    names = list(trajectory.joint_names)
    _check_joints(names, ranges)
    if not trajectory.points:
        raise GoalRefused(INVALID_GOAL, "the trajectory has no points")
    waypoints: list[Waypoint] = []
    for index, point in enumerate(trajectory.points):
        waypoint = _read_point(f"point {index}", names, point, ranges)
        if waypoints and waypoint.time < waypoints[-1].time:
            raise GoalRefused(INVALID_GOAL, f"point {index}: its time_from_start is before that of the point before")
        waypoints.append(waypoint)
    return waypoints


def _check_joints(names: Sequence[str], ranges: Mapping[str, Limit]) -> None:
    if not names:
        raise GoalRefused(INVALID_JOINTS, "the trajectory names no joints")
    unknown = [name for name in names if name not in ranges]
    if unknown:
        raise GoalRefused(INVALID_JOINTS, f"unknown joint {', '.join(unknown)}; there is {', '.join(ranges)}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GoalRefused(INVALID_JOINTS, f"joint {', '.join(twice)} is named twice")


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


# A joint that is this much later than its speed allows does not arrive any more.
PATIENCE = 2.0


class Arrival(Enum):
    """Where the joints are on the way to the last waypoint."""

    MOVING = "moving"
    ARRIVED = "arrived"
    LATE = "late"


class Following:
    """Leads `joints` through `waypoints`, one after another; call `update` at every step of simulated time (s).

    A joint moves at the speed asked for, at most at its own; if a waypoint's time allows more than that needs, the
    joints move slower, so that they arrive at that time together. Between waypoints the joints stop.
    """

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
        """Go on to the next waypoint if the present one is reached, and say how it stands."""
        while not self.missing() and now >= self._earliest:
            if self._index + 1 == len(self._waypoints):
                return Arrival.ARRIVED
            self._index += 1
            self._begin(now)
        return Arrival.LATE if now > self._latest else Arrival.MOVING

    def missing(self) -> dict[str, float]:
        """Return how far, in m or rad, each joint that has not arrived yet has to go."""
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
