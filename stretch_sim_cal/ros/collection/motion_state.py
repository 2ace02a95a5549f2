"""Where the arm is and since when it stands still, from /joint_states."""

from typing import Any

from stretch_sim_cal.recording.dataset import JOINTS
from stretch_sim_cal.robot import stretch
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.stretch import COMMANDED_NAMES
from stretch_sim_cal.ros.listening.joints import JOINT_STATES, STILL_WITHIN


class ArmState:
    """The latest values of all joints. Several publishers may each send a part of them.

    `watchdog` counts the topic's silence; it is ticked by whoever waits.
    """

    def __init__(self, context: Any, model: RobotModel, watchdog: Any):
        from sensor_msgs.msg import JointState

        from stretch_sim_cal.ros.listening.subscription import MatchedSubscription

        self._context = context
        self._model = model
        self._watchdog = watchdog
        self.positions: dict[str, float] = {}
        self.stamp = 0
        self._still_at: dict[str, float] = {}
        self._still_since: dict[str, int] = {}
        self._silence = f"no messages on {JOINT_STATES}"
        subscription = MatchedSubscription(context, JointState, JOINT_STATES, self._take)
        watchdog.watch(self._silence, subscription.diagnose)

    @property
    def arm(self) -> dict[str, float]:
        """The values (m, rad) of the joints of a dataset that have been heard of."""
        commanded = stretch.commanded_positions(self._model, self.positions)
        return {joint: float(commanded[name]) for joint, name in COMMANDED_NAMES.items() if name in commanded}

    @property
    def is_known(self) -> bool:
        """Whether all of them have been heard of."""
        return len(self.arm) == len(JOINTS)

    @property
    def still_since(self) -> int:
        """The stamp (ns) from which on no joint of the arm has moved."""
        return max(self._still_since.values(), default=self.stamp)

    def wait_until_known(self) -> None:
        """Wait for all joints. Raises `RunFailure` (watchdog) where nothing comes."""
        while not self.is_known:
            self._context.spin_once()
            self._watchdog.tick()

    def _take(self, message: Any) -> None:
        self._watchdog.seen(self._silence)
        self.positions |= zip(message.name, message.position)
        stamp = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        self.stamp = stamp or self._context.node.get_clock().now().nanoseconds  # some drivers do not stamp
        for joint, value in self.arm.items():
            if abs(value - self._still_at.get(joint, float("inf"))) > STILL_WITHIN[joint]:
                self._still_at[joint] = value
                self._still_since[joint] = self.stamp
