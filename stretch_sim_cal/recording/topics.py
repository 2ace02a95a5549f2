"""Frames, the description, joints and pairs of clouds from the topics of a recording. Needs no ROS."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.recording.clouds import CLOUD_TYPE, returns_from_message, scan_from_message
from stretch_sim_cal.recording.frame_tree import FrameCheck, FrameTree, transform_of_message, tree_of_description
from stretch_sim_cal.recording.pairing import CloudSet, MatchingCounts, StampMatching, stamp_of
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.signature import Observer, Signature, sync_line

if TYPE_CHECKING:  # rosbags takes a third of a second to import
    from stretch_sim_cal.recording.rosbag import Recording

TF_TYPE = "tf2_msgs/msg/TFMessage"
DESCRIPTION_TOPIC = "/robot_description"
JOINT_STATES = "/joint_states"
FIRST_MESSAGES = 20  # several nodes may share a topic, each with other joints or frames


def recorded_tree(
    recording: "Recording", base: str, lidars: Iterable[str], model: str | None = None, otherwise: str | None = None
) -> FrameTree:
    """Return the frames of `model` (URDF text of --model) if it is given, else of the recording's /robot_description,
    else of its /tf_static, else of `otherwise` (URDF text of --robot's profile): the first that connect the frames of
    all `lidars` with the base. Raises `InputError` that names what is missing and what is there."""
    problems = []
    given = partial(tree_of_description, model or "", source="--model")
    for tree_of in [given] if model is not None else _trees(recording, otherwise):
        try:
            tree = tree_of()
            for frame in lidars:
                tree.lookup(base, frame)
            return tree
        except InputError as error:
            problems.append(str(error))
    if model is not None:
        raise InputError(f"{problems[0]}; give the URDF of this robot")
    remedy = "give the robot's URDF with --model, or its profile with --robot"
    causes = f" ({'; '.join(problems)})" if problems else ""
    raise InputError(f"{recording.path}: has no poses of the lidars; {remedy}{causes}")


def recorded_description(recording: "Recording") -> str | None:
    if recording.topics.get(DESCRIPTION_TOPIC) != "std_msgs/msg/String":
        return None
    return next((message.data for _, message in recording.messages([DESCRIPTION_TOPIC])), None)


def positions_of(message: Any) -> dict[str, float]:
    """Return the positions (m, rad) in joint states by joint, but those that are not finite: of what a driver does not
    measure."""
    positions = dict(zip(message.name, map(float, message.position), strict=False))
    return {name: position for name, position in positions.items() if math.isfinite(position)}


def recorded_joints(recording: "Recording") -> dict[str, float]:
    """Return the first position (m, rad) of every joint on /joint_states, by its name; empty if there is none."""
    positions: dict[str, float] = {}
    if recording.topics.get(JOINT_STATES) == "sensor_msgs/msg/JointState":
        for _, message in itertools.islice(recording.messages([JOINT_STATES]), FIRST_MESSAGES):
            positions = positions_of(message) | positions
    return positions


def _trees(recording: "Recording", otherwise: str | None) -> Iterator[Callable[[], FrameTree]]:
    if (recorded := recorded_description(recording)) is not None:
        yield partial(tree_of_description, recorded)
    yield partial(_published_tree, recording)
    if otherwise is not None:
        yield partial(tree_of_description, otherwise, source="--robot")


def _published_tree(recording: "Recording") -> FrameTree:
    tree, without = FrameTree("/tf_static"), set()
    for topic, count in (("/tf_static", None), ("/tf", FIRST_MESSAGES)):
        if recording.topics.get(topic) == TF_TYPE:
            for _, message in itertools.islice(recording.messages([topic]), count):
                for each in message.transforms:
                    parent, child = each.header.frame_id, each.child_frame_id
                    try:
                        tree.connect(parent, child, transform_of_message(each.transform))
                    except InputError as error:
                        without.add(f"'{child}' below '{parent}', which {error}")
    tree.source += f" (without {'; '.join(sorted(without))})" if without else ""
    return tree


def recorded_signatures(
    recording: "Recording", topics: dict[str, str], scans: int, candidates: Sequence[Sensor]
) -> dict[str, Signature | InputError]:
    """Return the signature of sensor and driver in the first scans of each lidar, or why there is none. Raises
    `InputError` if a topic is missing."""
    for topic in topics.values():
        recording.require(topic, CLOUD_TYPE)
    observers = {topic: Observer() for topic in topics.values()}
    for topic, message in recording.messages(list(observers)):
        if observers[topic].num_scans < scans:
            try:
                observers[topic].add(scan_from_message(message), 1e-9 * stamp_of(message))
            except InputError as error:
                raise InputError(f"{recording.path}: {topic}: {error}") from error
        elif all(observer.num_scans >= scans for observer in observers.values()):
            break
    found: dict[str, Signature | InputError] = {}
    for side, topic in topics.items():
        try:
            found[side] = observers[topic].signature(candidates)
        except InputError as error:
            found[side] = error
    return found


def sensor_lines(found: dict[str, Signature | InputError]) -> list[str]:
    """Return a line for each finding about sensor and driver in both lidars' points, with the remedy."""
    lines = []
    for side, seen in found.items():
        lines += [f"{side} lidar: {line}" for line in ([str(seen)] if isinstance(seen, InputError) else seen.lines)]
    if len(found) == len(SIDES) and all(isinstance(seen, Signature) for seen in found.values()):
        lines.append(sync_line(*found.values())[1])
    return lines


def cloud_messages(
    recording: "Recording", topics: Mapping[str, str], frames: Mapping[str, str], warn: Callable[[str], None]
) -> Iterator[tuple[str, Any]]:
    """Yield (lidar, message) of lidars' clouds in the order in which they were received. `topics` and `frames` are by
    lidar; `warn` is called once for each unexpected frame. Raises `InputError` if a topic is missing, is that of two
    lidars, or holds another lidar's clouds."""
    for topic in topics.values():
        recording.require(topic, CLOUD_TYPE)
    name_of, options = {topic: name for name, topic in topics.items()}, "--left-topic and --right-topic"
    if len(name_of) < len(topics):
        raise InputError(f"{recording.path}: two lidars have the same topic: {', '.join(topics.values())}")
    if set(frames) != set(SIDES):
        options = "topics of the lidars (--left-topic, --right-topic, lidars.NAME.topic in the profile)"
    frame_check = FrameCheck(frames, options, "--{}-frame", warn)
    for topic, message in recording.messages(list(name_of)):
        frame_check.check(name_of[topic], topic, message.header.frame_id)
        yield name_of[topic], message


def recorded_clouds(
    recording: "Recording", topics: Mapping[str, str], frames: Mapping[str, str], limit: int,
    warn: Callable[[str], None],
) -> dict[str, list[np.ndarray]]:  # fmt: skip
    """Return up to `limit` clouds (N, 5 or 3) of each lidar by name, as many of each: the first ones with returns, in
    order. The robot stands still, so they need not be of the same time. The arguments are as of `cloud_messages`, with
    its errors. Raises `InputError` naming topic and lidar if one has no returns."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in topics}
    for name, message in cloud_messages(recording, topics, frames, warn):
        if len(found[name]) < limit and len(cloud := returns_from_message(message)):
            found[name].append(cloud)
        if all(len(clouds) == limit for clouds in found.values()):
            break
    count = min(map(len, found.values()))
    if not count:
        empty = next(name for name, clouds in found.items() if not clouds)
        raise InputError(f"{recording.path}: {topics[empty]}: has no returns of the {empty} lidar")
    return {name: clouds[:count] for name, clouds in found.items()}


class RecordedSets:
    """Clouds of one time in a recording, in order; iterating yields clouds by lidar, (N, 5) each (x, y, z, ring,
    intensity; (N, 3) if a cloud has no more), without sets of which one is empty. `topics`, `frames` and `warn` are as
    of `cloud_messages`, with its errors. `bound` (s) is how far apart the stamps of a set may be, `limit` the most sets
    to yield, `read` what makes a cloud of a message. Raises `InputError` if there is no set."""

    def __init__(
        self, recording: "Recording", topics: dict[str, str], frames: dict[str, str], bound: float, limit: int,
        warn: Callable[[str], None], read: Callable[[Any], np.ndarray] = returns_from_message,
    ):  # fmt: skip
        if not 0 <= bound < 10:
            raise InputError(f"--max-time-difference: {bound} s; give a number from 0 to 10")
        for topic in topics.values():
            recording.require(topic, CLOUD_TYPE)
        self.path, self._recording, self._topics, self._frames = recording.path, recording, topics, frames
        self._warn, self._bound, self._limit, self._read = warn, bound, limit, read
        self.counts = MatchingCounts({}, {})
        self.total = min(limit, *(recording.count(topic) for topic in topics.values()))

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        given = 0
        for seen in self.messages():
            clouds = {name: self._read(message) for name, message in seen.messages.items()}
            if all(map(len, clouds.values())):
                yield clouds
                given += 1
            if given == self._limit:
                return
        if not given:
            called = "pair" if len(self._topics) < 3 else "set"
            fault = f"no {called} of clouds within {1e3 * self._bound:.0f} ms"
            raise InputError(f"{self.path}: {fault}: {self._why_none()}")

    def _why_none(self) -> str:
        counts = self.counts
        if counts.sets:
            return f"in each of {counts.sets} a cloud has no returns; look at its lidar and driver, and record again"
        if back := counts.out_of_order + counts.restarts:
            return f"{back} stamps are before those of earlier clouds; record again, with a clock that is not set back"
        if counts.closest_miss is None:
            received = " and ".join(f"{count} {name}" for name, count in counts.received.items())
            return f"there are only {received} clouds; record both lidars for longer"
        remedy = "raise --max-time-difference if the lidars' clocks are known to differ"
        return f"their stamps are never closer than {counts.closest_miss / 1e6:.0f} ms; {remedy}"

    def messages(self) -> Iterator[CloudSet]:
        """Yield all sets of messages by lidar, with their stamps in ns, in order."""
        matching = StampMatching(list(self._topics), self._bound)
        self.counts = matching.counts
        for name, message in cloud_messages(self._recording, self._topics, self._frames, self._warn):
            yield from matching.add(name, stamp_of(message), message)
