"""The joints of /joint_states, and the arm poses in a recording: the stretches of time in which all joints stand still,
and the returns scanned within them. Joint states and clouds are compared by the stamps in their headers, as on the
robot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import lengths
from stretch_sim_cal.recording.pairing import RESTART, stamp_of
from stretch_sim_cal.recording.topics import JOINT_STATES, RecordedSets
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile

if TYPE_CHECKING:  # rosbags takes a third of a second to import
    from stretch_sim_cal.recording.rosbag import Recording

# Changes up to this (m, rad) are noise of an encoder, not motion: of joints that move in m, and of any other.
STILL_WITHIN = (0.001, 0.01)
JOINT_STATE_TYPE = "sensor_msgs/msg/JointState"
SETTLE_TIME = 300_000_000  # ns that all joints stand still before a scan counts, as when poses are collected


def still_within(profile: RobotProfile) -> dict[str, float]:
    """Return up to which change (m, rad) each planned joint stands still."""
    return {joint.name: STILL_WITHIN[0 if joint.linear else 1] for joint in profile.planned}


@dataclass(frozen=True)
class StillPose:
    """A stretch of time, `begin` to `end` (ns, stamps), in which no joint moves; `joints` are the mean positions (m,
    rad) by the description's names."""

    begin: int
    end: int
    joints: dict[str, float]


@dataclass(frozen=True)
class SeenPose:
    """A pose with the returns (N, 3 or 5) of its frames by lidar, each in its own frame, float64."""

    pose: StillPose
    num_frames: int
    clouds: dict[str, np.ndarray]


def still_poses(recording: "Recording", model: RobotModel, profile: RobotProfile | None = None) -> list[StillPose]:
    """Return the stretches in which all joints stand still, without the time in which they settle. Changes up to
    `STILL_WITHIN` are noise of the encoders. Raises `InputError` if the recording has no joint states, these lack a
    joint of the arm or stamps, or if there is no such stretch."""
    recording.require(JOINT_STATES, JOINT_STATE_TYPE)
    profile = profile or stretch_profile()
    within = {profile.commands[joint]: tolerance for joint, tolerance in still_within(profile).items()}
    needed = set(profile.commands.values()) & set(profile.commanded_limits(model))
    found: list[StillPose] = []
    latest: dict[str, float] = {}
    still_at: dict[str, float] = {}
    settled: dict[str, np.ndarray] = {}  # sum and count of the positions since the joints have settled
    begin = last = before = 0

    def end() -> None:
        if settled:
            means = {name: float(total / count) for name, (total, count) in settled.items()}
            found.append(StillPose(begin + SETTLE_TIME, last, latest | means))

    for _, message in recording.messages([JOINT_STATES]):
        stamp = stamp_of(message)
        if stamp < before - RESTART:
            raise _unusable(recording, "jump back")
        positions = dict(zip(message.name, map(float, message.position), strict=False))
        known = profile.commanded_positions(model, latest | positions)
        moved = {
            name: value for name, value in known.items()
            if not abs(value - still_at.get(name, np.inf)) <= within.get(name, STILL_WITHIN[1])
        }  # fmt: skip
        if moved or not begin:
            end()
            still_at, begin, last, settled = still_at | moved, stamp, stamp, {}
        last, before = max(last, stamp), max(before, stamp)
        latest |= positions
        if stamp >= begin + SETTLE_TIME:
            for name, value in positions.items():
                settled[name] = settled.get(name, np.zeros(2)) + (value, 1.0)
    if not before:
        raise _unusable(recording, "are zero")
    if missing := sorted(needed - still_at.keys()):
        raise InputError(f"{recording.path}: {JOINT_STATES} has no {', '.join(missing)}")
    end()
    poses = [pose for pose in found if needed <= profile.commanded_positions(model, pose.joints).keys()]
    if not poses:
        raise InputError(
            f"{recording.path}: the joints never stand still for more than {1e-9 * SETTLE_TIME:.1f} s; hold each arm "
            "pose for some seconds"
        )
    return [StillPose(pose.begin, pose.end, profile.joint_positions(model, pose.joints)) for pose in poses]


def _unusable(recording: "Recording", fault: str) -> InputError:
    remedy = "clouds cannot be assigned to poses; record the robot's own messages, once"
    return InputError(f"{recording.path}: stamps on {JOINT_STATES} {fault}: {remedy}")


def seen_poses(
    sets: RecordedSets, poses: Sequence[StillPose], num_frames: int, period: float, reach: float
) -> list[SeenPose]:
    """Return the poses with the returns of up to `num_frames` scans of each lidar that were scanned wholly within each.
    `period` (s) is how long a scan takes; returns further than `reach` (m) from their lidar are left out. Poses without
    a scan of each are left out. Raises `InputError` if none is left."""
    clouds: list[list[dict[str, np.ndarray]]] = [[] for _ in poses]
    for found in sets.messages():
        first, last = found.span
        for pose, own in zip(poses, clouds, strict=True):
            if pose.begin <= first and last + round(period * 1e9) <= pose.end and len(own) < num_frames:
                near = {name: cloud[lengths(cloud[:, :3]) < reach] for name, cloud in found.clouds.items()}
                own.append({name: cloud.astype(float) for name, cloud in near.items()})
        if all(len(own) == num_frames for own in clouds):
            break
    seen = [
        SeenPose(pose, len(own), {name: np.concatenate([each[name] for each in own]) for name in own[0]})
        for pose, own in zip(poses, clouds, strict=True) if own
    ]  # fmt: skip
    if not seen:
        raise InputError(
            f"{sets.path}: no scans of all lidars while the joints stood still ({sets.counts.sentence()}); "
            "hold each arm pose for some seconds, with the clocks of lidars and robot synchronised"
        )
    return seen
