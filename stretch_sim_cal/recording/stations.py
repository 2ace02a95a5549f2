"""The stations of a robot's way in a recording: the stretches of time in which its odometry stands still, the clouds
scanned within them, and the odometry of the way to each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.recording.clouds import returns_from_message
from stretch_sim_cal.recording.pairing import RESTART, stamp_of
from stretch_sim_cal.recording.topics import cloud_messages

if TYPE_CHECKING:  # rosbags takes a third of a second to import
    from stretch_sim_cal.recording.rosbag import Recording

ODOMETRY_TYPE = "nav_msgs/msg/Odometry"
STILL = np.array([0.001, 0.001, 0.002])  # m, m, rad: what odometry may change while the robot stands
SETTLE = 300_000_000  # ns that the robot stands before a scan counts, so that nothing swings
SCAN = 150_000_000  # ns that a scan may take, counted from its stamp or up to it


@dataclass(frozen=True)
class RecordedStation:
    """A station: `clouds` (N, 5 or 3) by lidar, as many of each, and the `odometry` (K, 3), x, y (m), yaw (rad), of the
    way there, the last one at the station."""

    clouds: dict[str, list[np.ndarray]]
    odometry: np.ndarray


def recorded_stations(
    recording: "Recording", odometry_topic: str, topics: Mapping[str, str], frames: Mapping[str, str], limit: int,
    warn: Callable[[str], None],
) -> list[RecordedStation]:  # fmt: skip
    """Return where the robot stood, with up to `limit` clouds of each lidar, two stations or more.

    `topics`, `frames` and `warn` are as of `cloud_messages`, with its errors. Odometry and clouds are compared by the
    stamps in their headers. Raises `InputError` if odometry is missing or jumps back in time, or the robot stood at
    fewer than two places long enough for a scan of each lidar.
    """
    stamps, poses = _odometry(recording, odometry_topic)
    spans = _standing(stamps, poses)
    clouds: list[dict[str, list[np.ndarray]]] = [{name: [] for name in topics} for _ in spans]
    begins = np.array([stamps[first] + SETTLE for first, _ in spans], dtype=np.int64)
    ends = np.array([stamps[last] for _, last in spans], dtype=np.int64)
    for name, message in cloud_messages(recording, topics, frames, warn):
        stamp = stamp_of(message)
        number = int(np.searchsorted(begins, stamp - SCAN, side="right")) - 1
        if number < 0 or stamp + SCAN > ends[number] or len(clouds[number][name]) == limit:
            continue
        if len(cloud := returns_from_message(message)):
            clouds[number][name].append(cloud)
    found, left = [], 0
    for (first, last), seen in zip(spans, clouds, strict=True):
        if count := min(map(len, seen.values())):
            way = np.vstack([poses[left:first], poses[first : last + 1].mean(axis=0)])
            found.append(RecordedStation({name: own[:count] for name, own in seen.items()}, way))
            left = last
    if len(found) < 2:
        raise InputError(
            f"{recording.path}: by {odometry_topic} the robot stood at {len(spans)} places, at {len(found)} of them "
            f"long enough for a scan of every lidar; stop for 2 s or more at two places or more"
        )
    return found


def yaw_of(message: Any) -> float:
    """Return the yaw (rad) of a `nav_msgs/Odometry`."""
    turned = message.pose.pose.orientation
    return float(np.arctan2(2.0 * (turned.w * turned.z + turned.x * turned.y), 1.0 - 2.0 * (turned.y**2 + turned.z**2)))


def _odometry(recording: "Recording", topic: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the stamps (K,) in ns and the poses (K, 3) of a topic, in their order."""
    recording.require(topic, ODOMETRY_TYPE)
    stamps: list[int] = []
    poses: list[tuple[float, float, float]] = []
    for _, message in recording.messages([topic]):
        stamp, pose = stamp_of(message), message.pose.pose
        if stamps and stamp < stamps[-1] - RESTART:
            raise InputError(f"{recording.path}: {topic}: stamps jump back; record again, or cut the recording there")
        if stamps and stamp <= stamps[-1]:
            continue
        stamps.append(stamp)
        poses.append((float(pose.position.x), float(pose.position.y), yaw_of(message)))
    found = np.array(poses)
    if not np.isfinite(found).all():
        raise InputError(f"{recording.path}: {topic}: holds a pose that is no number")
    found[:, 2] = np.unwrap(found[:, 2])
    return np.array(stamps, dtype=np.int64), found


def _standing(stamps: np.ndarray, poses: np.ndarray) -> list[tuple[int, int]]:
    """Return the first and the last message of each stretch in which the robot stands long enough."""
    found, first = [], 0
    for number in range(1, len(stamps) + 1):
        if number == len(stamps) or np.any(np.abs(poses[number] - poses[first]) > STILL):
            if stamps[number - 1] - stamps[first] > SETTLE + SCAN:
                found.append((first, number - 1))
            first = number
    return found
