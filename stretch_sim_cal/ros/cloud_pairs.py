"""The stream of cloud pairs of both lidars, with all that can be wrong with it said in words; and a few of them into an
.npz file (`ros_capture_clouds FILE`), for pictures and for trying things by hand, or as arrays."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.recording.clouds import returns_from_message
from stretch_sim_cal.recording.dataset import cloud_name
from stretch_sim_cal.recording.frame_tree import complaint_about_frame
from stretch_sim_cal.recording.pairing import MILLISECOND, Pair, StampPairing, stamp_of
from stretch_sim_cal.robot.profile import ProfiledLidar, profile_called
from stretch_sim_cal.ros.node_commands import CLOUD_OPTIONS, TIMEOUT_OPTION
from stretch_sim_cal.ros.node_main import NodeCommand, NodeContext, in_node
from stretch_sim_cal.ros.subscription import MatchedSubscription
from stretch_sim_cal.ros.watchdog import Progress, Watchdog

VERIFY = NodeCommand(
    executable="stretch-sim-cal verify",
    node_name="verify_calibration",
    description="Listen to both lidars.",
    example="stretch-sim-cal verify",
    options=(*CLOUD_OPTIONS, TIMEOUT_OPTION),
)


@dataclass(frozen=True)
class CloudPair:
    """Two clouds taken at about the same time; `stamp` (ns) is the left one's. Of a robot with one lidar the right one
    has no message and no returns."""

    left_message: Any
    right_message: Any
    stamp: int

    @cached_property
    def left(self) -> np.ndarray:
        """The left lidar's returns (N, 5) float32 in its own frame: x, y, z, ring, intensity;
        (N, 3) if it sends no more."""
        return returns_from_message(self.left_message)

    @cached_property
    def right(self) -> np.ndarray:
        """The right lidar's returns, as `left`."""
        return self.left[:0] if self.right_message is None else returns_from_message(self.right_message)


class CloudPairs:
    """Subscribes to both lidars and pairs what they send. `options` are those of `CLOUD_OPTIONS`.

    Clouds without a single return are skipped and counted. While a pair is being worked on, up to `depth` clouds per
    topic wait in the middleware; beyond that the oldest are lost, which costs pairs but never breaks one. Who takes a
    number of pairs names it as depth, and gets the first ones, however busy the machine is.
    """

    def __init__(self, context, options, watchdog: Watchdog | None = None, depth: int = 5,
                 on_pair: Callable[[CloudPair], None] | None = None):  # fmt: skip
        from sensor_msgs.msg import PointCloud2

        self._context = context
        self._watchdog = watchdog
        self._pairing: StampPairing = StampPairing(options.max_time_difference)
        self._pairs: deque[CloudPair] = deque()
        self._on_pair = on_pair or self._pairs.append
        self._frames = {"left": options.left_lidar_frame, "right": options.right_lidar_frame}
        self._complained: set[str] = set()
        self.empty = dict.fromkeys(SIDES, 0)
        self.topics = {"left": options.left_lidar_topic, "right": options.right_lidar_topic}
        self._sides = SIDES
        if self.topics["left"] == self.topics["right"]:
            if self._frames["left"] != self._frames["right"]:
                raise InputError(f"left_lidar_topic and right_lidar_topic are both {self.topics['left']}")
            self._sides = SIDES[:1]  # the robot has one lidar
        context.log.info(f"listening to {' and '.join(self.topics[side] for side in self._sides)}", once=True)
        self._subscriptions = []
        for side in self._sides:
            subscription = MatchedSubscription(
                context, PointCloud2, self.topics[side], lambda message, side=side: self._take(side, message), depth
            )
            self._subscriptions.append(subscription)
            if watchdog:
                watchdog.watch(self._silence(side), subscription.diagnose)

    def close(self) -> None:
        """Stop listening to the lidars, and watching for their silence."""
        for subscription in self._subscriptions:
            subscription.close()
        if self._watchdog:
            for name in (*map(self._silence, SIDES), self._no_pairs):
                self._watchdog.forget(name)

    @property
    def counts(self):
        return self._pairing.counts

    def take(self, count: int, label: str) -> Iterator[CloudPair]:
        """Yield `count` pairs as they arrive, showing progress, and stop listening: more would be sent, and simulated,
        for nobody while these are worked on. Raises `RunFailure` (watchdog) if none come."""
        with Progress(label, count) as progress:
            while progress.count < count:
                self._context.spin_until(self._has_pair)
                if progress.count == count - 1:
                    self.close()
                yield self._pairs.popleft()
                progress.advance()

    def summary(self) -> str:
        """Return what arrived and what of it was of use, as one line."""
        empty = f", empty: {self.empty['left']} left, {self.empty['right']} right" if any(self.empty.values()) else ""
        return self._pairing.counts.sentence() + empty

    def _has_pair(self) -> bool:
        if self._watchdog:
            self._watchdog.tick()
        return bool(self._pairs)

    def _silence(self, side: str) -> str:
        return f"no messages on {self.topics[side]}"

    @property
    def _no_pairs(self) -> str:
        return f"no pair of clouds from {self.topics['left']} and {self.topics['right']}"

    def _take(self, side: str, message) -> None:
        if self._watchdog:
            self._watchdog.seen(self._silence(side))
            if all(self._pairing.counts.received.values()):
                self._watchdog.watch(self._no_pairs, self._why_no_pairs)
        self._check_frame(side, message.header.frame_id)
        for each in SIDES if self._sides != SIDES else (side,):
            for pair in self._pairing.add(each, stamp_of(message), message):
                self._offer(pair)

    def _offer(self, pair: Pair) -> None:
        clouds = CloudPair(pair.left, pair.right if self._sides == SIDES else None, pair.stamp)
        counts = {side: len(getattr(clouds, side)) for side in self._sides}
        if not all(counts.values()):
            for side in self._sides:
                self.empty[side] += not counts[side]
            return
        if self._watchdog:
            self._watchdog.seen(self._no_pairs)
        self._on_pair(clouds)

    def _check_frame(self, side: str, frame: str) -> None:
        options = {"topics": "left_lidar_topic and right_lidar_topic", "frame": f"{side}_lidar_frame"}
        complaint = complaint_about_frame(side, self.topics[side], frame, self._frames, options)
        if complaint and complaint not in self._complained:
            self._complained.add(complaint)
            self._context.log.warning(complaint)

    def _why_no_pairs(self) -> str:
        counts = self._pairing.counts
        if any(self.empty.values()):
            return f"{self.empty['left']} left and {self.empty['right']} right clouds held no return at all"
        if counts.duplicates or counts.out_of_order:
            return f"{counts.duplicates} clouds repeat the stamp of the one before and {counts.out_of_order} are older"
        if counts.closest_miss is not None:
            return (
                f"both topics send, but their stamps are never closer than {counts.closest_miss / MILLISECOND:.0f} ms; "
                f"{self._pairing.bound / MILLISECOND:.0f} ms are allowed (max_time_difference); are the clocks of both "
                "lidars synchronised?"
            )
        return "too few clouds came since the last one"


def capture(context: NodeContext) -> int:
    """Collect clouds of all lidars and write them, complete or not at all."""
    options = context.options
    further = profile_called(options.robot).further
    frames = take_frames(
        context, options, context.watchdog(options.timeout), options.num_samples, "capturing", further
    )  # fmt: skip
    lidars = (*SIDES, *further)
    clouds = {
        cloud_name(name): np.concatenate(own) for name, own in zip(lidars, zip(*frames, strict=True), strict=True)
    }
    write_atomic(context.arguments.file, lambda stream: np.savez_compressed(stream, **clouds))
    counts = " and ".join(f"{len(cloud)} {name}" for name, cloud in zip(lidars, clouds.values(), strict=True))
    context.log.info(f"{len(frames)} pairs, {counts} returns, in {context.arguments.file}")
    return 0


def with_each(options, further: Mapping[str, ProfiledLidar]) -> dict[str, Any]:
    """Return by name, for the right lidar and those beyond two, the options under which `CloudPairs` pairs the left
    one's clouds with its own."""
    return {"right": options} | {
        name: SimpleNamespace(
            **vars(options) | {"right_lidar_topic": lidar.topic, "right_lidar_frame": lidar.frame}
        )
        for name, lidar in further.items()
    }  # fmt: skip


def take_frames(
    context, options, watchdog: Watchdog, count: int, label: str, further: Mapping[str, ProfiledLidar] = {}
) -> list[tuple[np.ndarray, ...]]:
    """Return `count` frames: the clouds (N, 5 or 3) of the left, the right and the `further` lidars, each in its own
    frame. The left one is listened to with each of the others in turn, so the robot has to stand still."""
    clouds: list[list[np.ndarray]] = []
    for name, own in with_each(options, further).items():
        pairs = context.clouds(own, watchdog, depth=count)
        taken = list(pairs.take(count, label if name == "right" else f"{label} (left and {name})"))
        context.log.info(pairs.summary().replace("right", name))
        clouds += [[pair.left for pair in taken]] * (not clouds) + [[pair.right for pair in taken]]
    return list(zip(*clouds, strict=True))


def live_clouds(
    count: int, left_topic: str, right_topic: str, left_frame: str, right_frame: str, base: str, footprint: str,
    max_time_difference: float, further: Mapping[str, ProfiledLidar] = {},
) -> tuple[list[tuple[np.ndarray, ...]], np.ndarray, np.ndarray, str | None]:  # fmt: skip
    """Return `count` frames as of `take_frames`, base_from_left and the nominal footprint_from_base (4, 4), and
    /robot_description if it is heard.

    Raises `RunFailure` if a topic stays silent, `InputError` if frames are missing or ROS 2 is not there.
    """

    def listen(context: NodeContext):
        watchdog = context.watchdog(context.options.timeout)
        frames = context.frames()
        (base_from_left,) = frames.wait_for((base, context.options.left_lidar_frame), watchdog=watchdog)
        taken = take_frames(context, context.options, watchdog, count, "verifying", further)
        return taken, base_from_left, frames.footprint_from(base, footprint), frames.description

    arguments = [
        f"--left-lidar-topic={left_topic}", f"--right-lidar-topic={right_topic}", f"--left-lidar-frame={left_frame}",
        f"--right-lidar-frame={right_frame}", f"--max-time-difference={max_time_difference}",
    ]  # fmt: skip
    return in_node(VERIFY, listen, arguments)
