"""The clouds of all lidars of a robot, in sets of one time, and in words what can be wrong with them; and the robot
beside them."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.lidars import DescribedLidar
from stretch_sim_cal.calibration.surfaces import body_settings
from stretch_sim_cal.command import enumerated
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.recording.frame_tree import FrameCheck
from stretch_sim_cal.recording.pairing import MILLISECOND, CloudSet, StampMatching, stamp_of
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.ros.subscription import MatchedSubscription
from stretch_sim_cal.ros.watchdog import Progress, Watchdog
from stretch_sim_cal.sensor.sensor import for_each, sensors_called


def with_right(clouds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return clouds by lidar, of a robot with one lidar with an empty right one beside it."""
    return dict(clouds) if len(clouds) > 1 else {"left": clouds["left"], "right": clouds["left"][:0]}


def lidars_of(options: Any) -> dict[str, tuple[str, str]]:
    """Return topic and frame of each of a robot's lidars by name, as `CLOUD_OPTIONS` and the robot's profile have them;
    only the left one if the robot has one. Raises `InputError` if two lidars have one topic."""
    profile = profile_called(options.robot)
    left = (options.left_lidar_topic, options.left_lidar_frame)
    right = (options.right_lidar_topic, options.right_lidar_frame)
    both = {"left": left} if profile.one_lidar or left == right else {"left": left, "right": right}
    if len(both) == 2 and left[0] == right[0]:
        raise InputError(f"left_lidar_topic and right_lidar_topic are both {left[0]}")
    return both | {name: (lidar.topic, lidar.frame) for name, lidar in profile.further.items()}


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
        with Progress(label, count) as progress:
            while progress.count < count:
                self._context.spin_until(lambda: self._has_set(progress.count + 1))
                progress.advance()
        self.close()
        for _ in range(count):
            yield self._sets.popleft()

    def summary(self) -> str:
        """Return what arrived and what of it was of use, as one line."""
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

    @property
    def description(self) -> str | None:
        return self.frames.description

    @cached_property
    def lidars(self) -> dict[str, tuple[str, str]]:
        """Topic and frame of each lidar by name."""
        return lidars_of(self._options)

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
        sensors = for_each(sensors_called(self._options.sensor), len(poses))
        return {name: DescribedLidar(poses[name], sensor) for name, sensor in zip(poses, sensors, strict=True)}

    def in_footprint(self, name: str, cloud: np.ndarray) -> np.ndarray:
        """Return a lidar's returns (N, 5 or 3) as points (N, 3) in base_footprint, by its described pose."""
        return apply(self.footprint_from_base @ self.described[name], cloud[:, :3])

    def clouds(self, label: str) -> Iterator[dict[str, np.ndarray]]:
        count = self._options.num_samples
        sets = self._context.clouds(self._options, self.watchdog, depth=depth_for(count))
        for seen in sets.take(count, label):
            yield seen.clouds
        self._context.log.info(sets.summary())
