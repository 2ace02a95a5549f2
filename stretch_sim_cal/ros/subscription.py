"""Subscriptions whose quality of service follows the publishers that are there, the reason why a topic is silent, and
the joints of /joint_states. A fixed profile is deaf to some driver: a reliable subscription never hears a best-effort
publisher, a best-effort one loses big clouds of a reliable publisher, a latched (transient local) one never hears a
volatile publisher."""

import math
from collections.abc import Callable
from typing import Any

from stretch_sim_cal.recording.topics import JOINT_STATES
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.ros.options import checked_topic
from stretch_sim_cal.ros.watchdog import Watchdog

LOOK_EVERY = 0.25  # s of wall time


def type_name(message_type: type) -> str:
    """Return the ROS name of a message class, such as sensor_msgs/msg/PointCloud2."""
    package, kind = message_type.__module__.split(".")[:2]
    return f"{package}/{kind}/{message_type.__name__}"


def node_name(info) -> str:
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


class MatchedSubscription:
    """Subscribes to `topic` as soon as a publisher of the right type appears, with a profile that hears all of them.
    With `latched`, what transient-local publishers have sent before is asked for as well. The graph is looked at every
    `LOOK_EVERY`, so a driver that is restarted with another profile is heard again. `watchdog` watches for silence."""

    def __init__(
        self, context, message_type: type, topic: str, callback: Callable[[Any], object], depth: int = 10,
        latched: bool = False, watchdog: Watchdog | None = None,
    ):  # fmt: skip
        self._node, self._type, self._callback = context.node, message_type, callback
        self.topic, self.heard = checked_topic(context.node, topic), False
        self._depth, self._latched = depth, latched
        self._watchdog = watchdog or Watchdog(math.inf, print)  # one that nobody ticks
        self._silence = f"no messages on {topic}"
        self._subscriptions: dict[tuple, Any] = {}
        self.refresh()
        self._timer = context.every(LOOK_EVERY, self.refresh)
        self._watchdog.watch(self._silence, self.diagnose)

    def close(self) -> None:
        """Stop listening, and watching for silence, for good."""
        self._node.destroy_timer(self._timer)
        while self._subscriptions:
            self._node.destroy_subscription(self._subscriptions.popitem()[1])
        self._watchdog.forget(self._silence)

    def refresh(self) -> None:
        """Look at the graph, and subscribe anew if the profiles there call for it."""
        from rclpy.qos import QoSProfile

        wanted = self._profiles()
        if not wanted:  # keep listening: a publisher that went away may come back as it was
            return
        for profile in set(self._subscriptions) - wanted:
            self._node.destroy_subscription(self._subscriptions.pop(profile))
        for profile in wanted - set(self._subscriptions):
            qos = QoSProfile(depth=self._depth, **dict(zip(("reliability", "durability"), profile, strict=True)))
            self._subscriptions[profile] = self._node.create_subscription(self._type, self.topic, self._take, qos)

    @property
    def published(self) -> bool:
        return bool(self._profiles())

    def _take(self, message) -> None:
        self.heard = True
        self._watchdog.seen(self._silence)
        self._callback(message)

    def _publishers(self) -> list:
        infos = self._node.get_publishers_info_by_topic(self.topic)
        return [info for info in infos if info.node_name != self._node.get_name()]

    def _profiles(self) -> set[tuple]:
        """Return the (reliability, durability) pairs that together hear every publisher."""
        from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

        weakest: dict[DurabilityPolicy, ReliabilityPolicy] = {}
        for info in self._publishers():
            if info.topic_type == type_name(self._type):
                quality = info.qos_profile
                latched = self._latched and quality.durability == DurabilityPolicy.TRANSIENT_LOCAL
                durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
                weakest.setdefault(durability, ReliabilityPolicy.RELIABLE)
                if quality.reliability == ReliabilityPolicy.BEST_EFFORT:
                    weakest[durability] = ReliabilityPolicy.BEST_EFFORT
        return {(reliability, durability) for durability, reliability in weakest.items()}

    def diagnose(self) -> str:
        """Return who publishes the topic and how, or what similar topics there are, as part of a sentence."""
        wanted, publishers = type_name(self._type), self._publishers()
        right = [_described(info) for info in publishers if info.topic_type == wanted]
        if right:
            return f"published by {', '.join(right)}, but no messages arrive"
        if publishers:
            others = ", ".join(f"{info.topic_type} by {node_name(info)}" for info in publishers)
            return f"it is published as {others}; expected {wanted}"
        others = [name for name, types in self._node.get_topic_names_and_types() if wanted in types]
        if similar := [name for name in sorted(others) if name != self.topic and self._node.count_publishers(name)]:
            return f"no node publishes it; topics with {wanted} are {', '.join(similar)}"
        return f"no node publishes it or any other {wanted}; is its node running, with the same ROS_DOMAIN_ID?"


def _described(info) -> str:
    words = [info.qos_profile.reliability.name, info.qos_profile.durability.name]
    return f"{node_name(info)} ({', '.join(word.lower().replace('_', ' ') for word in words)})"


class JointListener:
    """Keeps the latest `positions` (m, rad) of all joints by their names; several publishers may each send a part of
    them. `watchdog`, if there is one, watches for the topic's silence, if the robot has planned joints; `messages`
    counts what came."""

    def __init__(self, context, watchdog=None, profile: RobotProfile | None = None):
        from sensor_msgs.msg import JointState

        self.positions: dict[str, float] = {}
        self.messages, self._profile = 0, profile or stretch_profile()
        watchdog = watchdog if self._profile.planned else None
        MatchedSubscription(context, JointState, JOINT_STATES, self._take, watchdog=watchdog)

    @property
    def commanded(self) -> dict[str, float]:
        """The joints of a dataset that are known so far (see `RobotProfile.named_positions`)."""
        return self._profile.named_positions(self.positions)

    def _take(self, message: Any) -> None:
        self.messages += 1
        self.positions |= zip(message.name, message.position, strict=False)
