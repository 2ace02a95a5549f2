"""Publishers that the simulator's parts share: to DDS, and into a recording where one was asked for."""

import math
import time
from typing import Any

from rclpy.event_handler import PublisherEventCallbacks
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message

from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.ros.listening.subscription import type_name


class Publisher:
    """Publishes one topic and, where there is a recording, writes it there as well.

    Not more than `rate` messages per second of wall time are sent, however fast simulated time passes: every message
    that a node written in Python takes costs it up to a millisecond. A recording gets all of them.
    """

    def __init__(
        self, node: Node, kind: type, topic: str, depth: int, latched: bool, rate: float,
        recording: RecordingWriter | None,
    ):  # fmt: skip
        durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
        profile = QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE, durability=durability)
        self._publisher = node.create_publisher(
            kind, topic, profile, event_callbacks=PublisherEventCallbacks(use_default_callbacks=False)
        )  # without QoS events: each would be looked at whenever the node looks for callbacks
        self._topic = self._publisher.topic_name
        self._interval = 1.0 / rate
        self._sent = -math.inf
        self._recording = recording
        if recording is not None:
            recording.add_topic(self._topic, type_name(kind), latched)

    @property
    def is_heard(self) -> bool:
        """Whether anybody, a subscriber or the recording, takes what is published."""
        return self._recording is not None or self._publisher.get_subscription_count() > 0

    @property
    def is_due(self) -> bool:
        """Whether a message would be taken now."""
        return self.is_heard and (self._recording is not None or self._may_send)

    @property
    def _may_send(self) -> bool:
        return time.monotonic() - self._sent >= self._interval

    def publish(self, message: Any, stamp: int) -> None:
        """Publish a message at simulated time `stamp`, in ns, unless the last one was too short a while ago."""
        if self._may_send:
            self._sent = time.monotonic()
            self._publisher.publish(message)
        if self._recording is not None:
            self._recording.write_message(self._topic, stamp, message, serialize_message(message))


class Publishers:
    """Makes publishers on one node, all with or without a recording."""

    def __init__(self, node: Node, recording: RecordingWriter | None = None):
        self._node = node
        self._recording = recording

    def create(
        self, kind: type, topic: str, depth: int = 10, latched: bool = False, recorded: bool = True,
        rate: float = math.inf,
    ) -> Publisher:  # fmt: skip
        """Return a reliable publisher; a `latched` one (transient local) also serves those who subscribe later."""
        recording = self._recording if recorded else None
        return Publisher(self._node, kind, topic, depth, latched, rate, recording)
