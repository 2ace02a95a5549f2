"""How the simulated joints move: along straight segments to their targets, as fast as their limits allow and no faster.

Simulated time only: where a joint is depends on the commands and on how much time was advanced, not on the steps.
There is no acceleration; a joint has its velocity at once, as a controller with a good trajectory seems to have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.robot.model import Joint, RobotModel, near
from stretch_sim_cal.robot.stretch import ARM_JOINT, ARM_SEGMENTS, GRIPPER_JOINT

GRIPPER_FINGERS = ("gripper_finger_left_joint", "gripper_finger_right_joint")
GROUPS = {ARM_JOINT: ARM_SEGMENTS, GRIPPER_JOINT: GRIPPER_FINGERS}
SUMMED = {ARM_JOINT}  # the arm's value is the sum of its segments', the gripper's that of either finger
LIMIT_TOLERANCE = 1e-6

ACTIVE, SUCCEEDED, STOPPED, PREEMPTED = "active", "succeeded", "stopped", "preempted"

# The arm drawn in above the base, the wrist turned back so that hand and tool are within the base's outline.
STOW = {
    "lift_joint": 0.3,
    ARM_JOINT: 0.0,
    "wrist_yaw_joint": 3.0,
    "wrist_pitch_joint": 0.0,
    "wrist_roll_joint": 0.0,
    GRIPPER_JOINT: 0.0,
}
# Where homing ends: lift at half its height, all else at zero.
HOME = STOW | {"lift_joint": 0.6, "wrist_yaw_joint": 0.0}


@dataclass(frozen=True)
class Waypoint:
    """Positions (m, rad) by commanded joint name, to be reached `time_from_start` s after the start, or later where
    the joints' velocity limits demand it."""

    positions: Mapping[str, float]
    time_from_start: float = 0.0


@dataclass(frozen=True)
class Range:
    """What a commanded joint can do: positions from `lower` to `upper`, at up to `velocity` per s."""

    lower: float
    upper: float
    velocity: float


@dataclass
class Goal:
    """A motion under way or ended. `status` is active, succeeded, stopped or preempted (by a later goal)."""

    targets: dict[str, float]
    duration: float
    status: str = ACTIVE
    _start: int = 0
    _paths: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)

    def _elapsed(self, now: int) -> float:
        return (now - self._start) * 1e-9


class Joints:
    """The joints of a robot in simulated time.

    Commanded are the names of the trajectory action: a joint of the description, or a group of them (`arm_joint` is the
    four telescoping joints, each with a quarter of the extension; `gripper_joint` both fingers).
    """

    def __init__(self, model: RobotModel, positions: Mapping[str, float] | None = None):
        self._model = model
        self._moving = {joint.name: joint for joint in model.moving_joints() if joint.variables == 1}
        self._groups = {
            group: members for group, members in GROUPS.items() if all(name in self._moving for name in members)
        }
        grouped = {name for members in self._groups.values() for name in members}
        singles = [name for name, joint in self._moving.items() if name not in grouped and _range(joint) is not None]
        self.ranges: dict[str, Range] = {name: self._range_of(name) for name in [*singles, *self._groups]}
        self.positions: dict[str, float] = dict.fromkeys(self._moving, 0.0)
        self.velocities: dict[str, float] = dict.fromkeys(self._moving, 0.0)
        self.goal: Goal | None = None
        self.runstopped = False
        self._now = 0  # ns, whole numbers, so that many small steps end where one large one does
        self.place(STOW if positions is None else positions)

    @property
    def time(self) -> float:
        """The simulated time in s that was advanced so far."""
        return self._now * 1e-9

    @property
    def moving(self) -> bool:
        """Whether a motion is under way."""
        return self.goal is not None and self.goal.status == ACTIVE

    def commanded(self, name: str) -> float:
        """Return the position of a commanded joint. Raises `InputError` for an unknown one."""
        self._checked(name)
        members = self._groups.get(name, (name,))
        values = [self.positions[member] for member in members]
        return sum(values) if name in SUMMED else values[0]

    def place(self, positions: Mapping[str, float]) -> None:
        """Put joints at positions at once, without motion. Raises `InputError` for unknown joints and beyond limits.

        Joints of a standard pose that this robot lacks (a gripper, say) are passed over.
        """
        self._end(PREEMPTED)
        for name, value in positions.items():
            if positions in (STOW, HOME) and name not in self.ranges:
                continue
            for member, share in self._shares(name, self._checked_value(name, value)).items():
                self.positions[member] = share

    def set_target(self, positions: Mapping[str, float]) -> Goal:
        """Start moving to positions of commanded joints, each at its velocity limit; ends any motion under way.

        Raises `InputError` for unknown joints and positions beyond limits, `Refused` while the runstop is on.
        """
        return self.follow([Waypoint(positions)])

    def follow(self, trajectory: Sequence[Waypoint]) -> Goal:
        """Start moving through waypoints that all name the same commanded joints; ends any motion under way.

        A segment takes as long as its waypoints say, or as the velocity limits need; within it a joint that has the
        time moves evenly, one that lacks it moves at its limit. Raises as `set_target`, and for an empty trajectory or
        times that do not increase.
        """
        if self.runstopped:
            raise Refused("the runstop is on; release it before moving")
        self._check_trajectory(trajectory)
        names = list(trajectory[0].positions)
        times, positions = {}, {}
        for name in names:
            for member in self._groups.get(name, (name,)):
                times[member], positions[member] = [0.0], [self.positions[member]]
        clock, previous = 0.0, 0.0
        for waypoint in trajectory:
            duration = waypoint.time_from_start - previous
            previous = waypoint.time_from_start
            targets: dict[str, float] = {}
            for name in names:
                targets |= self._shares(name, self._checked_value(name, waypoint.positions[name]))
            needed = {
                member: max(duration, abs(target - positions[member][-1]) / _range(self._moving[member]).velocity)
                for member, target in targets.items()
            }
            slowest = max(needed.values())
            for member, target in targets.items():
                times[member] += [clock + needed[member], clock + slowest]
                positions[member] += [target, target]
            clock += slowest
        self._end(PREEMPTED)
        paths = {member: (np.array(times[member]), np.array(positions[member])) for member in times}
        self.goal = Goal(dict(trajectory[-1].positions), clock, _start=self._now, _paths=paths)
        self._update()
        return self.goal

    def stow(self) -> Goal:
        """Start moving to the stow pose, wrist and arm first, then the lift."""
        return self._pose(STOW)

    def home(self) -> Goal:
        """Start moving to where homing ends."""
        return self._pose(HOME)

    def stop(self) -> None:
        """End any motion; the joints stay where they are."""
        self._end(STOPPED)

    def set_runstop(self, on: bool) -> None:
        """Press (stops, and refuses motions until it is released) or release the runstop."""
        self.runstopped = on
        if on:
            self.stop()

    def advance(self, duration: float) -> None:
        """Let `duration` s of simulated time pass (whole ns). Raises `InputError` for a negative one."""
        if duration < 0:
            raise InputError(f"time goes forward only, not by {duration:g} s")
        self._now += round(duration * 1e9)
        self._update()

    def _update(self) -> None:
        """Bring positions, velocities and the goal's status to the present time."""
        if not self.moving:
            return
        elapsed = self.goal._elapsed(self._now)
        for member, (times, positions) in self.goal._paths.items():
            self.positions[member] = float(np.interp(elapsed, times, positions))
            segment = np.searchsorted(times, elapsed, side="right") - 1
            under_way = segment + 1 < len(times) and times[segment + 1] > times[segment]
            rise = positions[segment + 1] - positions[segment] if under_way else 0.0
            self.velocities[member] = float(rise / (times[segment + 1] - times[segment])) if under_way else 0.0
        if elapsed >= self.goal.duration:
            self._end(SUCCEEDED)

    def _end(self, status: str) -> None:
        if self.moving:
            self.goal.status = status
        self.velocities = dict.fromkeys(self._moving, 0.0)

    def _pose(self, pose: Mapping[str, float]) -> Goal:
        known = {name: value for name, value in pose.items() if name in self.ranges}
        drawn_in = known | {name: self.commanded(name) for name in ("lift_joint",) if name in known}
        return self.follow([Waypoint(drawn_in), Waypoint(known)])

    def _check_trajectory(self, trajectory: Sequence[Waypoint]) -> None:
        if not trajectory or not trajectory[0].positions:
            raise InputError("the trajectory is empty; give at least one point with at least one joint")
        previous = None
        for index, waypoint in enumerate(trajectory):
            if set(waypoint.positions) != set(trajectory[0].positions):
                raise InputError(f"trajectory point {index}: names other joints than the first point does")
            time = waypoint.time_from_start
            if not np.isfinite(time) or time < 0 or (previous is not None and time < previous):
                raise InputError(f"trajectory point {index}: its time_from_start {time:g} s does not follow the one before")
            previous = time
            for name, value in waypoint.positions.items():
                self._checked_value(name, value)
        twice = [name for name in trajectory[0].positions if name in self._groups]
        for group in twice:
            if set(self._groups[group]) & set(trajectory[0].positions):
                raise InputError(f"trajectory: commands {group} and its parts at once")

    def _shares(self, name: str, value: float) -> dict[str, float]:
        """Return the positions of the description's joints for one of a commanded joint."""
        members = self._groups.get(name, (name,))
        return {member: value / len(members) if name in SUMMED else value for member in members}

    def _checked(self, name: str) -> Range:
        if name in self.ranges:
            return self.ranges[name]
        if name in self._moving and (known := _range(self._moving[name])) is not None:
            return known
        raise InputError(f"joint '{name}' cannot be commanded{near(name, self.ranges)}")

    def _checked_value(self, name: str, value: float) -> float:
        """Return `value` brought to within the limits that it may exceed by rounding. Raises `InputError` beyond."""
        limits = self._checked(name)
        if not limits.lower - LIMIT_TOLERANCE <= value <= limits.upper + LIMIT_TOLERANCE:  # false for NaN, too
            raise InputError(f"joint '{name}': {value:g} is not within its limits {limits.lower:g} to {limits.upper:g}")
        return float(min(max(value, limits.lower), limits.upper))

    def _range_of(self, name: str) -> Range:
        ranges = [_range(self._moving[member]) for member in self._groups.get(name, (name,))]
        if name in SUMMED:
            count = len(ranges)
            return Range(
                count * max(entry.lower for entry in ranges),
                count * min(entry.upper for entry in ranges),
                count * min(entry.velocity for entry in ranges),
            )
        return Range(
            max(entry.lower for entry in ranges),
            min(entry.upper for entry in ranges),
            min(entry.velocity for entry in ranges),
        )


def _range(joint: Joint) -> Range | None:
    """Return what a joint can do by its description; None where that gives no limits (wheels)."""
    if joint.limit is None or joint.limit.velocity <= 0:
        return None
    lower, upper = (-np.inf, np.inf) if joint.type == "continuous" else (joint.limit.lower, joint.limit.upper)
    return Range(lower, upper, joint.limit.velocity)
