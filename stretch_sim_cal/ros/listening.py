"""What a node hears of a robot: topics of any quality of service, joints, frames, and the clouds of all lidars in sets
of one time; and why a topic is silent."""

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.calibration_file import calibrated_frame
from stretch_sim_cal.calibration.lidars import DescribedLidar, lidars_at
from stretch_sim_cal.command import enumerated
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.recording.frame_tree import FrameCheck, FrameTree, transform_of_message, tree_of_description
from stretch_sim_cal.recording.pairing import MILLISECOND, CloudSet, StampMatching, stamp_of
from stretch_sim_cal.recording.topics import DESCRIPTION_TOPIC, JOINT_STATES, positions_of
from stretch_sim_cal.robot.profile import RobotProfile, profile_called, stretch_profile
from stretch_sim_cal.robot.surfaces import body_settings
from stretch_sim_cal.ros.options import checked_topic
from stretch_sim_cal.ros.watchdog import Watchdog, progressing
from stretch_sim_cal.sensor.sensor import sensors_called

LOOK_EVERY = 0.25  # s of wall time
STALE = 1.0  # s without the arm's joints on /joint_states after which nobody knows where it is
SYNCHRONISE = "synchronise the lidars' clocks with the robot's"


def type_name(message_type: type) -> str:
    """Return the ROS name of a message class, such as sensor_msgs/msg/PointCloud2."""
    package, kind = message_type.__module__.split(".")[:2]
    return f"{package}/{kind}/{message_type.__name__}"


def node_name(info) -> str:
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


class MatchedSubscription:
    """Subscribes to `topic` as soon as a publisher of the right type appears, with a quality of service that hears all
    of them: a reliable subscription never hears a best-effort publisher, a best-effort one loses big clouds of a
    reliable publisher, a latched (transient local) one never hears a volatile publisher. With `latched`, what
    transient-local publishers have sent before is asked for as well. The graph is looked at every `LOOK_EVERY`, so a
    driver that is restarted with another profile is heard again. `watchdog` watches for silence."""

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
        for reliability, durability in wanted - set(self._subscriptions):
            quality = QoSProfile(depth=self._depth, reliability=reliability, durability=durability)
            subscription = self._node.create_subscription(self._type, self.topic, self._take, quality)
            self._subscriptions[reliability, durability] = subscription

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
    """Keeps the latest `positions` (m, rad) of all joints by their names, of all publishers. `watchdog` watches for the
    topic's silence, if the robot has planned ones."""

    def __init__(self, context, watchdog=None, profile: RobotProfile | None = None):
        from sensor_msgs.msg import JointState

        self.positions: dict[str, float] = {}
        self._heard, self._profile = -math.inf, profile or stretch_profile()
        watchdog = watchdog if self._profile.planned else None
        MatchedSubscription(context, JointState, JOINT_STATES, self._take, watchdog=watchdog)

    @property
    def commanded(self) -> dict[str, float]:
        """The joints of a dataset that are known so far (see `RobotProfile.named_positions`)."""
        return self._profile.named_positions(self.positions)

    @property
    def stale(self) -> bool:
        return time.monotonic() - self._heard > STALE

    def _take(self, message: Any) -> None:
        positions = positions_of(message)
        self.positions |= positions
        if self._profile.named_positions(positions):
            self._heard = time.monotonic()


class FrameListener:
    """Keeps a `FrameTree` up to date from /tf and /tf_static, and one from /robot_description beside it.
    `ignore(parent, child, parent_from_child)` says which transforms are not listened to: those of the node itself."""

    # Frames come from several publishers: one that is missing gets this many seconds after the first has been heard. On
    # a busy machine (ten runnable threads a core) more than 3 s were seen until the next one was found.
    GRACE = 10.0

    def __init__(self, context, ignore: Callable[[str, str, np.ndarray], bool] | None = None):
        from std_msgs.msg import String
        from tf2_msgs.msg import TFMessage

        self._context, self._ignore = context, ignore or (lambda parent, child, transform: False)
        self._complained: set[str] = set()
        self.tree = FrameTree()
        self.described: FrameTree | None = None
        self.description: str | None = None
        static, moving = (
            MatchedSubscription(context, TFMessage, topic, self._take, depth=100, latched=True)
            for topic in ("/tf_static", "/tf")
        )
        take = self._take_description
        description = MatchedSubscription(context, String, DESCRIPTION_TOPIC, take, depth=1, latched=True)
        self._subscriptions = (static, moving, description)
        # Published once, before this node began to listen: it may take its time on a busy machine.
        self._latched = (static, description)

    def close(self) -> None:
        """Stop listening; what was heard stays known."""
        for subscription in self._subscriptions:
            subscription.close()

    def lookup(self, target: str, source: str) -> np.ndarray:
        """Return `target_from_source` from TF, else from /robot_description. Raises `InputError` (see `FrameTree`)."""
        try:
            return self.tree.lookup(target, source)
        except InputError as error:
            if self.described is None:
                raise
            try:
                return self.described.lookup(target, source)
            except InputError as also:
                raise InputError(f"{error}; {also}") from also

    def footprint_from(self, base: str, footprint: str) -> np.ndarray:
        """Return `footprint_from_base` as described; that of the base itself, with a warning, if it begins there."""
        try:
            return self.lookup(footprint, base)
        except InputError as error:
            self._complain(f"{error}; the floor is searched at the origin of {base}")
            return np.eye(4)

    def wait_for(self, *pairs: tuple[str, str], watchdog) -> list[np.ndarray]:
        """Return `target_from_source` of each (target, source), waiting until all are known. Raises `InputError` if a
        frame is still missing `GRACE` s after all that publish frames have been heard, and `RunFailure` (from the
        watchdog) if one of them stays silent."""
        silence = f"no frames from /tf_static or {DESCRIPTION_TOPIC}"
        watchdog.watch(silence, lambda: "; ".join(f"{each.topic}: {each.diagnose()}" for each in self._latched))
        result: list[np.ndarray] = []

        def found() -> bool:
            watchdog.tick()
            with contextlib.suppress(InputError):
                result[:] = [self.lookup(target, source) for target, source in pairs]
            return bool(result)

        def heard() -> bool:
            published = [source for source in self._latched if source.published]
            everyone = bool(published or self.tree.frames) and all(source.heard for source in published)
            return found() or everyone

        self._context.spin_until(heard)
        watchdog.forget(silence)
        if not self._context.spin_until(found, timeout=self.GRACE):
            result = [self.lookup(target, source) for target, source in pairs]
        return result

    def wait_for_description(self, watchdog) -> str:
        """Return the URDF text on /robot_description. Raises `RunFailure` (watchdog) if there is none."""
        silence = f"no message on {DESCRIPTION_TOPIC}"
        watchdog.watch(silence, lambda: "the poses are planned on it; is the robot's driver running?")
        self._context.spin_until(lambda: self.description is not None, watchdog=watchdog)
        watchdog.forget(silence)
        return self.description

    def _take(self, message) -> None:
        for transform in message.transforms:
            parent, child = transform.header.frame_id, transform.child_frame_id
            try:
                parent_from_child = transform_of_message(transform.transform)
            except InputError as error:
                self._complain(f"TF of '{child}' below '{parent}' {error} and is ignored")
                continue
            ignored = self._ignore(parent, child, parent_from_child)
            if not ignored and (former := self.tree.connect(parent, child, parent_from_child)):
                self._complain(f"TF: '{child}' has two parents, '{former}' and '{parent}': two nodes publish it")

    def _take_description(self, message) -> None:
        self.description = message.data
        try:
            self.described = tree_of_description(message.data)
        except InputError as error:
            self._complain(f"{DESCRIPTION_TOPIC} cannot be used: {error}")

    def _complain(self, sentence: str) -> None:
        if sentence not in self._complained:
            self._complained.add(sentence)
            self._context.log.warning(sentence)


def calibrated_frame_of(name: str, options: Any) -> str:
    """Return the frame in which a lidar other than the left one, by its name, is calibrated."""
    return options.right_calibrated_frame if name == "right" else calibrated_frame(name)


def lidars_of(options: Any) -> dict[str, tuple[str, str]]:
    """Return topic and frame of each of a robot's lidars by name, as `CLOUD_OPTIONS` and the robot's profile have them;
    only the left one if the robot has one. Raises `InputError` if two lidars have one topic."""
    left = (options.left_lidar_topic, options.left_lidar_frame)
    right = (options.right_lidar_topic, options.right_lidar_frame)
    lidars = profile_called(options.robot).topics_and_frames(left, right)
    if "right" in lidars and left[0] == right[0]:
        raise InputError(f"left_lidar_topic and right_lidar_topic are both {left[0]}")
    return lidars


def described_poses(options: Any, frames: Any, watchdog: Any) -> dict[str, np.ndarray]:
    """Return the poses (4, 4) of all lidars in base_link as TF, or the description, has them, by name. Raises as
    `FrameListener.wait_for` does."""
    lidars = lidars_of(options)
    poses = frames.wait_for(*((options.base_link_frame, frame) for _, frame in lidars.values()), watchdog=watchdog)
    return dict(zip(lidars, poses, strict=True))


def depth_for(count: int) -> int:
    """Return the depth with which whoever begins to spin at once gets the first `count` sets also on a busy machine,
    where clouds come faster than they are taken. The simulator's are then those of its seed."""
    return 2 * count + 10


class LidarClouds:
    """Listens to `lidars`, topic and frame by name, and gives their clouds in sets: to each scan of the first lidar one
    of each of the others, whose stamp is at most `bound` (s) from it; with None each scan is a set by itself. Clouds
    without a single return are skipped and counted. While a set is being worked on, up to `depth` clouds per topic wait
    in the middleware; beyond that the oldest are lost, which costs sets but never breaks one: see `depth_for`. `on_set`
    is called with every set; without it `take` gives them. `watchdog` watches for lidars, and sets, that do not
    come."""

    def __init__(
        self, context: Any, lidars: Mapping[str, tuple[str, str]], bound: float | None,
        watchdog: Watchdog | None = None, depth: int = 5, on_set: Callable[[CloudSet], Any] | None = None,
    ):  # fmt: skip
        from sensor_msgs.msg import PointCloud2

        self._context, self._watchdog = context, watchdog or Watchdog(math.inf, print)  # one that nobody ticks
        self.topics = {name: topic for name, (topic, _) in lidars.items()}
        frames = {name: frame for name, (_, frame) in lidars.items()}
        topics = "left_lidar_topic and right_lidar_topic" if len(lidars) == 2 else "topics of the lidars"
        self._frame_check = FrameCheck(frames, topics, "{}_lidar_frame", context.log.warning)
        groups = [tuple(lidars)] if bound is not None else [(name,) for name in lidars]
        self._matching: dict[str, StampMatching] = {}
        for group in groups:
            self._matching |= dict.fromkeys(group, StampMatching(group, bound or 0.0))
        self._sets: deque[CloudSet] = deque()
        self._on_set = on_set or self._sets.append
        self.empty = dict.fromkeys(lidars, 0)
        context.log.info(f"listening to {enumerated(list(self.topics.values()))}", once=True)
        self._subscriptions = [
            MatchedSubscription(context, PointCloud2, topic, partial(self._take, name), depth, watchdog=watchdog)
            for name, topic in self.topics.items()
        ]

    def close(self) -> None:
        for subscription in self._subscriptions:
            subscription.close()
        for matching in self._matching.values():
            self._watchdog.forget(self._no_sets(matching))

    def take(self, count: int, label: str) -> Iterator[CloudSet]:
        """Yield the first `count` sets. All of them are heard, showing progress, before the first one is worked on:
        clouds that come meanwhile would be lost, and sent, and simulated, for nobody. Raises `RunFailure` (watchdog) if
        none come."""
        with contextlib.closing(progressing(range(1, count + 1), label)) as numbers:
            for number in numbers:
                self._context.spin_until(partial(self._has_set, number))
        self.close()
        for _ in range(count):
            yield self._sets.popleft()

    def summary(self) -> str:
        counted = {id(matching): matching.counts.sentence() for matching in self._matching.values()}
        return "; ".join(counted.values()) + (f", empty: {self._empty(', ')}" if any(self.empty.values()) else "")

    def _has_set(self, count: int = 1) -> bool:
        self._watchdog.tick()
        return len(self._sets) >= count

    def _empty(self, between: str) -> str:
        return between.join(f"{count} {name}" for name, count in self.empty.items())

    def _no_sets(self, matching: StampMatching) -> str:
        topics = [self.topics[name] for name in matching.counts.received]
        called = {1: "returns", 2: "pair of clouds"}.get(len(topics), "set of clouds")
        return f"no {called} from {enumerated(topics)}"

    def _take(self, name: str, message: Any) -> None:
        matching = self._matching[name]
        if all(matching.counts.received.values()):
            self._watchdog.watch(self._no_sets(matching), partial(self._why_no_sets, matching))
        self._frame_check.check(name, self.topics[name], message.header.frame_id)
        for found in matching.add(name, stamp_of(message), message):
            empty = [each for each, cloud in found.clouds.items() if not len(cloud)]
            for each in empty:
                self.empty[each] += 1
            if not empty:
                self._watchdog.seen(self._no_sets(matching))
                self._on_set(found)

    def _why_no_sets(self, matching: StampMatching) -> str:
        counts = matching.counts
        if any(self.empty[name] for name in counts.received):
            return f"{self._empty(' and ')} clouds had no return"
        if counts.duplicates or counts.out_of_order:
            return f"{counts.duplicates} clouds repeat the previous stamp and {counts.out_of_order} are older"
        if counts.closest_miss is not None:
            every = {2: "both topics have messages"}.get(len(counts.received), "all topics have messages")
            return (
                f"{every}, but their stamps are never closer than {counts.closest_miss / MILLISECOND:.0f} ms; "
                f"{matching.bound / MILLISECOND:.0f} ms are allowed (max_time_difference); are the clocks of the "
                "lidars synchronised?"
            )
        return "too few clouds since the last one"


class LiveRobot:
    """A robot as a calibration node hears it (see `collection.stages.Source`): its frames and description and, only
    while `clouds` are taken, its lidars. `context` is a `RobotContext`."""

    def __init__(self, context: Any):
        self._context, self._options = context, context.options
        self.profile = profile_called(self._options.robot)
        self.watchdog, self.frames = context.watchdog(self._options.timeout), context.frames()
        self.lidars = lidars_of(self._options)  # topic and frame of each by name

    @property
    def description(self) -> str | None:
        return self.frames.description

    @cached_property
    def described(self) -> dict[str, np.ndarray]:
        return described_poses(self._options, self.frames, self.watchdog)

    @cached_property
    def footprint_from_base(self) -> np.ndarray:
        return self.frames.footprint_from(self._options.base_link_frame, self._options.footprint_frame)

    @cached_property
    def body(self) -> dict[str, Any]:
        if self.profile.body is None:  # TF may have been heard first
            self._context.spin_until(lambda: self.frames.description is not None, timeout=self.frames.GRACE)
        return body_settings(self.profile, self.frames.description, self._context.log.info)

    def at(self, poses: dict[str, np.ndarray]) -> dict[str, DescribedLidar]:
        """Return the lidars at poses (4, 4) in base_link."""
        return lidars_at(poses, sensors_called(self._options.sensor))

    def in_footprint(self, name: str, cloud: np.ndarray) -> np.ndarray:
        """Return a lidar's returns (N, 5 or 3) as points (N, 3) in base_footprint, by its described pose."""
        return apply(self.footprint_from_base @ self.described[name], cloud[:, :3])

    def clouds(self, label: str) -> Iterator[dict[str, np.ndarray]]:
        count = self._options.num_samples
        sets = self._context.clouds(self._options, self.watchdog, depth=depth_for(count))
        for seen in sets.take(count, label):
            yield seen.clouds
        self._context.log.info(sets.summary())
