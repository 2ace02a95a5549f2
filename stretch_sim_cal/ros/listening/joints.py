"""The joints of /joint_states under the names of the body-shape model (lift, arm, wrist_yaw, ...)."""

from typing import Any

from stretch_sim_cal.recording.dataset import JOINTS
from stretch_sim_cal.robot.stretch import ARM_JOINT, ARM_SEGMENTS

JOINT_STATES = "/joint_states"
# Changes up to this (m or rad) are noise of an encoder, not motion.
STILL_WITHIN = {joint: 0.001 if joint in ("lift", "arm") else 0.01 for joint in JOINTS}


def commanded_joints(positions: dict[str, float]) -> dict[str, float]:
    """Return the values (m, rad) of the joints that the positions (by the description's names) determine.

    The arm's extension is that of `arm_joint` where a driver publishes it, else the sum of the four segments. Older
    drivers put the word joint in front.
    """
    result = {}
    for joint in JOINTS:
        for name in (f"{joint}_joint", f"joint_{joint}"):
            if name in positions:
                result[joint] = positions[name]
    if ARM_JOINT not in positions and all(name in positions for name in ARM_SEGMENTS):
        result["arm"] = sum(positions[name] for name in ARM_SEGMENTS)
    return result


def latest_joints(context) -> dict[str, float]:
    """Return the positions (m, rad) by name, which change as messages come in; nobody minds where none does."""
    from sensor_msgs.msg import JointState

    from stretch_sim_cal.ros.listening.subscription import MatchedSubscription

    positions: dict[str, float] = {}
    MatchedSubscription(
        context, JointState, JOINT_STATES,
        lambda message: positions.update(zip(message.name, map(float, message.position), strict=False)),
    )  # fmt: skip
    return positions


class JointListener:
    """Keeps the latest joint positions; `watchdog` counts the topic's silence."""

    def __init__(self, context, watchdog):
        from sensor_msgs.msg import JointState

        from stretch_sim_cal.ros.listening.subscription import MatchedSubscription

        self._watchdog = watchdog
        self._silence = f"no messages on {JOINT_STATES}"
        self._positions: dict[str, float] = {}
        subscription = MatchedSubscription(context, JointState, JOINT_STATES, self._take)
        watchdog.watch(self._silence, subscription.diagnose)

    @property
    def commanded(self) -> dict[str, float]:
        """The joints that are known so far (see `commanded_joints`)."""
        return commanded_joints(self._positions)

    def _take(self, message: Any) -> None:
        self._watchdog.seen(self._silence)
        self._positions |= zip(message.name, message.position, strict=False)
