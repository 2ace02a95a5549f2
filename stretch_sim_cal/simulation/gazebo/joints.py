"""The joints of a robot in Gazebo: commanded as in the embedded simulator, moved by Gazebo's controllers."""

from collections.abc import Callable, Iterable, Mapping

from stretch_sim_cal import command
from stretch_sim_cal.robot.model import Limit, RobotModel
from stretch_sim_cal.robot.stretch import ARM_JOINT, ARM_SEGMENTS, GRIPPER_JOINT
from stretch_sim_cal.simulation.gazebo.messages import JointStates
from stretch_sim_cal.simulation.joints import Joints

# Lets Gazebo lead its joints to positions (by the description's names), for some s, and says where they are then.
Drive = Callable[[Mapping[str, float], float], JointStates]
# s of simulated time: a joint is within two steps where it was led to, if nothing is in its way.
PATIENCE = 1.0


class GazeboJoints:
    """Joints whose commands are those of `Joints`, and whose positions are what Gazebo says.

    The embedded joints' motion is what the controllers are told to follow, step by step, so speeds and limits are the
    same in both simulators; physics decides what becomes of it.
    """

    arrival_tolerance = 5e-4
    """How far (m, rad) a joint may be from its target when it counts as arrived: physics ends nowhere exactly."""

    def __init__(
        self, model: RobotModel, states: JointStates, drive: Drive, complain: Callable[[str], None] = command.warn
    ):
        self._planned = Joints(model)
        self._states = states
        self._drive = drive
        self._complain = complain
        self._rested = 0.0

    @property
    def ranges(self) -> dict[str, Limit]:
        """The commanded joints' limits."""
        return self._planned.ranges

    @property
    def movable(self) -> set[str]:
        """The description's joints that commands reach."""
        return self._planned.movable

    @property
    def positions(self) -> dict[str, float]:
        """The positions (m, rad) of the commanded joints, as they are."""
        return {name: self._commanded(name) for name in self.ranges}

    @property
    def joint_positions(self) -> dict[str, float]:
        """The positions (m, rad) of the description's moving joints, as they are."""
        return {name: self._states.positions.get(name, 0.0) for name in self._planned.joint_positions}

    @property
    def joint_velocities(self) -> dict[str, float]:
        """The velocities (m/s, rad/s) of the description's moving joints, as they are."""
        return {name: self._states.velocities.get(name, 0.0) for name in self._planned.joint_positions}

    @property
    def moving(self) -> bool:
        """Whether any joint is on its way to a target."""
        return self._planned.moving

    def command(self, targets: Mapping[str, float], speeds: Mapping[str, float] | None = None) -> None:
        """Let joints move to their targets, as `Joints.command` does and with its errors."""
        self._planned.command(targets, speeds)

    def hold(self) -> None:
        """Let all joints stay where they were told to be last."""
        self._planned.hold()

    def stick(self, names: Iterable[str]) -> None:
        """Let commanded joints never move again. Raises `InputError` for unknown ones."""
        self._planned.stick(names)

    def step(self, duration: float) -> None:
        """Let `duration` s of simulated time pass in Gazebo."""
        self._planned.step(duration)
        targets = self._planned.joint_positions
        self._states = self._drive({name: targets[name] for name in sorted(self.movable)}, duration)
        self._notice_stragglers(duration)

    def missing(self, targets: Mapping[str, float]) -> dict[str, float]:
        """Return how far (m, rad) each commanded joint is from its target, for those that have not arrived."""
        gaps = {name: target - self._commanded(name) for name, target in targets.items()}
        return {name: gap for name, gap in gaps.items() if abs(gap) > self.arrival_tolerance}

    def _notice_stragglers(self, duration: float) -> None:
        """Complain, once for every rest of the planned motion, of joints that are not where they were led to."""
        before, self._rested = self._rested, 0.0 if self.moving else self._rested + duration
        if before < PATIENCE <= self._rested:
            for name, gap in self.missing(self._planned.positions).items():
                self._complain(
                    f"Gazebo's {name} is at {self._commanded(name):.4f}, {gap:+.4f} from where it was led {PATIENCE:g} s "
                    "ago: something is in its way, or its controller does not lead it"
                )

    def _commanded(self, name: str) -> float:
        positions = self._states.positions
        if name == ARM_JOINT:
            return sum(positions.get(segment, 0.0) for segment in ARM_SEGMENTS)
        if name == GRIPPER_JOINT:
            fingers = sorted(joint for joint in self.movable if "finger" in joint)
            return positions.get(fingers[0], 0.0) if fingers else 0.0
        return positions.get(name, 0.0)
