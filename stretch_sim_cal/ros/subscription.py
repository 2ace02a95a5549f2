"""Subscriptions whose quality of service follows the publishers that are there, words for why a topic is silent, and
the joints of /joint_states.

A fixed profile is deaf to some driver: a reliable subscription never hears a best-effort publisher, a best-effort one
loses big clouds of a reliable publisher, a latched (transient local) one never hears a volatile publisher.
"""

from collections.abc import Callable
from typing import Any

from stretch_sim_cal.recording.topics import JOINT_STATES
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile

LOOK_EVERY = 0.25


def type_name(message_type: type) -> str:
    """Return the ROS name of a message class, such as sensor_msgs/msg/PointCloud2."""
    package, kind = message_type.__module__.split(".")[:2]
    return f"{package}/{kind}/{message_type.__name__}"


class MatchedSubscription:
    """Subscribes to `topic` as soon as a publisher of the right type appears, with a profile that hears all of them.

    With `latched`, what transient-local publishers have already said is asked for as well. The graph is looked at every
    `LOOK_EVERY` s of wall time, so a driver that is restarted with another profile is heard again.
    """

    def __init__(
        self, context, message_type: type, topic: str, callback: Callable[[Any], None], depth: int = 10,
        latched: bool = False,
    ):  # fmt: skip
        self._node = context.node
        self._type = message_type
        self.topic = topic
        self._callback = callback
        self.heard = False
        self._depth = depth
        self._latched = latched
        self._subscriptions: dict[tuple, Any] = {}
        self.refresh()
        self._timer = context.every(LOOK_EVERY, self.refresh)

    def close(self) -> None:
        """Stop listening for good."""
        self._node.destroy_timer(self._timer)
        while self._subscriptions:
            self._node.destroy_subscription(self._subscriptions.popitem()[1])

    def refresh(self) -> None:
        """Look at the graph, and subscribe anew if the profiles there call for it."""
        from rclpy.qos import HistoryPolicy, QoSProfile

        wanted = self._profiles()
        if not wanted:  # keep listening: a publisher that went away may come back as it was
            return
        for profile in set(self._subscriptions) - wanted:
            self._node.destroy_subscription(self._subscriptions.pop(profile))
        for profile in wanted - set(self._subscriptions):
            reliability, durability = profile
            qos = QoSProfile(
                history=HistoryPolicy.KEEP_LAST, depth=self._depth, reliability=reliability, durability=durability
            )
            self._subscriptions[profile] = self._node.create_subscription(self._type, self.topic, self._take, qos)

    @property
    def published(self) -> bool:
        """Whether somebody publishes the topic with the right type."""
        return bool(self._profiles())

    def _take(self, message) -> None:
        self.heard = True
        self._callback(message)

    def _profiles(self) -> set[tuple]:
        """Return the (reliability, durability) pairs that together hear every publisher."""
        from rclpy.qos import DurabilityPolicy

        publishers = [info for info in _publishers(self._node, self.topic) if info.topic_type == type_name(self._type)]
        if not publishers:
            return set()
        if not self._latched:
            return {(_weakest_reliability(publishers), DurabilityPolicy.VOLATILE)}
        profiles = set()
        for durability in (DurabilityPolicy.TRANSIENT_LOCAL, DurabilityPolicy.VOLATILE):
            same = [p for p in publishers if (p.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL)
                    == (durability == DurabilityPolicy.TRANSIENT_LOCAL)]  # fmt: skip
            if same:
                profiles.add((_weakest_reliability(same), durability))
        return profiles

    def diagnose(self) -> str:
        """Return why nothing may be heard on the topic, as part of a sentence."""
        return describe_topic(self._node, self.topic, self._type)


class JointListener:
    """Keeps the latest `positions` (m, rad) of all joints by their names; several publishers
    may each send a part of them.

    `watchdog`, if there is one, counts the topic's silence; `messages` counts what came.
    """

    def __init__(self, context, watchdog=None, profile: RobotProfile | None = None):
        from sensor_msgs.msg import JointState

        self.positions: dict[str, float] = {}
        self._profile = profile or stretch_profile()
        self.messages = 0
        self._watchdog = watchdog
        self._silence = f"no messages on {JOINT_STATES}"
        subscription = MatchedSubscription(context, JointState, JOINT_STATES, self._take)
        if watchdog and self._profile.planned:
            watchdog.watch(self._silence, subscription.diagnose)

    @property
    def commanded(self) -> dict[str, float]:
        """The joints of a dataset that are known so far (see `RobotProfile.named_positions`)."""
        return self._profile.named_positions(self.positions)

    def _take(self, message: Any) -> None:
        if self._watchdog and self._profile.planned:
            self._watchdog.seen(self._silence)
        self.messages += 1
        self.positions |= zip(message.name, message.position, strict=False)


def describe_topic(node, topic: str, message_type: type) -> str:
    """Return who publishes `topic` and how, or what similar topics there are, as part of a sentence."""
    wanted = type_name(message_type)
    publishers = _publishers(node, topic)
    right = [info for info in publishers if info.topic_type == wanted]
    if right:
        return f"published by {', '.join(_describe(info) for info in right)}, but no message comes"
    if publishers:
        others = ", ".join(f"{info.topic_type} by {node_name(info)}" for info in publishers)
        return f"it is published as {others}; {wanted} was expected"
    similar = sorted(
        name for name, types in node.get_topic_names_and_types()
        if wanted in types and name != topic and node.count_publishers(name)
    )  # fmt: skip
    if similar:
        return f"nobody publishes it; topics with {wanted} are {', '.join(similar)}"
    return f"nobody publishes it, nor any other {wanted}; does its node run, with the same ROS_DOMAIN_ID?"


def _publishers(node, topic: str) -> list:
    return [info for info in node.get_publishers_info_by_topic(topic) if info.node_name != node.get_name()]


def _weakest_reliability(publishers) -> Any:
    from rclpy.qos import ReliabilityPolicy

    best_effort = any(info.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT for info in publishers)
    return ReliabilityPolicy.BEST_EFFORT if best_effort else ReliabilityPolicy.RELIABLE


def node_name(info) -> str:
    """Return the full name of the node of an endpoint of the graph."""
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


def _describe(info) -> str:
    words = [info.qos_profile.reliability.name, info.qos_profile.durability.name]
    return f"{node_name(info)} ({', '.join(word.lower().replace('_', ' ') for word in words)})"
