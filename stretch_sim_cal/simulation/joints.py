"""How the simulated joints move: straight to their targets, as fast as they are told to and their limits allow.

Simulated time only: where a joint is depends on its commands and on how much time has passed, not on the size of the
steps. There is no acceleration; a joint has its velocity at once, and stands still at its target.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.model import Limit, RobotModel, near
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile

LIMIT_TOLERANCE = 1e-6


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
    """The joints of a robot in simulated time.

    Commanded are the names of the trajectory action, by the robot's profile (the Stretch's by default): its `arm_joint`
    stands for the four telescoping joints, `gripper_joint` for both fingers. Joints without limits (wheels) stand still.
    """

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
        """Let joints move to their targets, each at its speed (at most, and by default, its limit).

        Joints that are not named go on with what they are doing.
        Raises `InputError` for unknown joints, targets beyond limits and speeds that are not above zero.
        """
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
        """Let all joints stay where they are."""
        self._motions.clear()

    def place(self, positions: Mapping[str, float]) -> None:
        """Put joints at positions at once, without motion. Raises `InputError` for unknown joints and beyond limits."""
        checked = {name: self._checked(name, value) for name, value in positions.items()}
        for name, value in checked.items():
            self._motions.pop(name, None)
            self._positions[name] = value

    def stick(self, names: Iterable[str]) -> None:
        """Let commanded joints never move again, whatever they are told. Raises `InputError` for unknown ones."""
        for name in names:
            self._known(name)
            self._stuck.add(name)
            self._motions.pop(name, None)

    def step(self, duration: float) -> None:
        """Let `duration` s of simulated time pass (whole ns). Raises `InputError` for a negative one."""
        if not duration >= 0:
            raise InputError(f"time goes forward only, not by {duration:g} s")
        self._now += round(duration * 1e9)
        for name, motion in list(self._motions.items()):
            self._positions[name] = motion.position(self._now)
            if self._positions[name] == motion.target:
                del self._motions[name]

    def _described(self, commanded: Mapping[str, float]) -> dict[str, float]:
        """Return the values of the description's joints for those of the commanded joints."""
        described = self.profile.joint_positions(self._model, commanded)
        return self._at_rest | {name: float(value) for name, value in described.items()}

    def _known(self, name: str) -> Limit:
        if name not in self.ranges:
            raise InputError(f"joint '{name}' cannot be commanded{near(name, self.ranges)}")
        return self.ranges[name]

    def _checked(self, name: str, value: float) -> float:
        """Return `value` brought to within the limits that it may exceed by rounding. Raises `InputError` beyond."""
        known = self._known(name)
        if not known.lower - LIMIT_TOLERANCE <= value <= known.upper + LIMIT_TOLERANCE:  # also NaN
            raise InputError(f"joint '{name}': {value:g} is not within its limits {known.lower:g} to {known.upper:g}")
        return float(min(max(value, known.lower), known.upper))
