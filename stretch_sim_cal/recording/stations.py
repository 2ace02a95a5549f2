"""Where the robot, or its arm, stood still in a recording, and what was scanned there; and scans on the move. Joint
states, odometry and clouds are compared by the stamps in their headers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stretch_sim_cal.calibration.wheel_odometry import Sweep
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import lengths
from stretch_sim_cal.recording.clouds import records_from_message, returns_from_message, scan_from_message
from stretch_sim_cal.recording.pairing import RESTART, stamp_of
from stretch_sim_cal.recording.topics import JOINT_STATES, RecordedSets, cloud_messages, positions_of
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile

if TYPE_CHECKING:  # rosbags takes a third of a second to import
    from stretch_sim_cal.recording.rosbag import Recording

ODOMETRY_TYPE, JOINT_STATE_TYPE = "nav_msgs/msg/Odometry", "sensor_msgs/msg/JointState"
# Changes up to this (m, rad) are noise of an encoder, not motion: of joints that move in m, and of any other.
STILL_WITHIN = (0.001, 0.01)
STILL = np.array([0.001, 0.001, 0.002])  # m, m, rad: what odometry may change while the robot stands
SETTLE = 300_000_000  # ns that the robot, or its joints, stand still before a scan counts, so that nothing swings
SCAN = 150_000_000  # ns that a scan may take, counted from its stamp or up to it
# Of scans on the move: the way, x, y (m) and angle (rad), between two; and for the ways in `WINDOW` (s) before and
# after, how much they may differ, so that neither acceleration nor the clocks' offset matters, and how long they are.
SPACING = np.array([0.4, 0.4, np.radians(45.0)])
WINDOW = 0.15
STEADY, SLOW = np.array([0.002, 0.002, np.radians(0.1)]), np.array([0.05, 0.05, np.radians(6.0)])
APART = 0.1  # s between the middles of the lidars' scans, at most
GAP = 0.11  # s between messages of odometry, at most
UNIT = 0.01  # by how much the length of a quaternion may differ from 1
NONE_MOVING = (
    "--continuous adds nothing: between the stops there is no scan of all lidars while the base moved steadily, by "
    f"{SLOW[0] / WINDOW:.2f} m/s and {np.degrees(SLOW[2]) / WINDOW:.0f} deg/s at most, over {SPACING[0]:g} m or "
    f"{np.degrees(SPACING[2]):.0f} deg"
)


@dataclass(frozen=True)
class RecordedStation:
    """A station: `clouds` (N, 5 or 3) by lidar, as many of each, and the `odometry` (K, 3), x, y (m), yaw (rad), of the
    way there, the last one at the station. On the move the base goes as `sweep` has it, and clouds are structured, with
    the `timestamp` of each point."""

    clouds: dict[str, list[np.ndarray]]
    odometry: np.ndarray
    sweep: Sweep | None = None


class Scan(NamedTuple):
    """The `begin` and `end` (s) of a scan, and what holds its points."""

    begin: float
    end: float
    held: Any

    @property
    def middle(self) -> float:
        return (self.begin + self.end) / 2

    @classmethod
    def of(cls, message: Any) -> "Scan":
        """Return that of a cloud's message. Raises `InputError` if its points have no times of their own, or times of
        another clock than its stamp."""
        records, stamp, times = records_from_message(message), 1e-9 * stamp_of(message), np.zeros(0)
        who, remedy = f"a cloud of '{message.header.frame_id}'", "use only the stops (without --continuous)"
        if "timestamp" in records.dtype.names:
            times = records["timestamp"][records["timestamp"] != 0]
        if len(records) and not len(times):
            raise InputError(f"{who} has no time for each point (a field 'timestamp' in s); {remedy}")
        begin, end = (float(times.min()), float(times.max())) if len(times) else (stamp, stamp)
        if not (abs(begin - stamp) < 2e-9 * SCAN and abs(end - stamp) < 2e-9 * SCAN):
            raise InputError(f"{who} is of {stamp:.3f} s, its points of {begin:.3f} to {end:.3f} s; {remedy}")
        if begin == end and len(records) > 1:
            cause = "as of a driver that knows no other, or of Gazebo, which casts a scan at one instant"
            need = f"scans on the move need the time of each point; {remedy}"
            raise InputError(f"all points of {who} have the same time, {cause}: {need}")
        return cls(begin, end, message)


Moving = tuple[Sweep, dict[str, Scan]]  # scans of all lidars, and the motion while they were taken


def sweeps_between(times: np.ndarray, poses: np.ndarray, scans: Mapping[str, Sequence[Scan]]) -> list[Moving]:
    """Return scans of all lidars, by name, on the way from one stop to the next, `SPACING` apart, where the base moved
    steadily and slowly by the odometry of the way: `times` (K,) in s, `poses` (K, 3) without jumps."""
    found: list[tuple[float, Sweep, dict[str, Scan]]] = []
    ways = np.r_[0.0, np.cumsum(np.linalg.norm(np.diff(poses, axis=0) / SPACING, axis=1))]
    for middle in [scan.middle for scan in next(iter(scans.values()))]:
        near = {name: [each for each in own if abs(each.middle - middle) < APART] for name, own in scans.items()}
        if not all(near.values()):
            continue
        together = {name: min(own, key=lambda each: abs(each.middle - middle)) for name, own in near.items()}
        begin, end = min(each.begin for each in together.values()), max(each.end for each in together.values())
        time = (begin + end) / 2
        around = slice(
            int(np.searchsorted(times, min(begin, time - WINDOW))) - 1,
            int(np.searchsorted(times, max(end, time + WINDOW), side="right")) + 1,
        )
        if around.start < 0 or around.stop > len(times):
            continue
        sweep = Sweep(time, times[around], poses[around])
        before, after = sweep.steps(np.array([time - WINDOW, time + WINDOW])) * [[-1.0], [1.0]]
        steady = bool(np.all(np.abs(after - before) < STEADY) and np.all(np.abs([before, after]) < SLOW))
        if steady and np.diff(sweep.times).max() < GAP and np.any(np.abs(after) > STILL):
            found.append((float(np.interp(time, times, ways)), sweep, together))
    count, chosen = round(ways[-1]) - 1, []
    for number in range(1, count + 1):
        wanted = ways[-1] * number / (count + 1)
        nearest = min(found, key=lambda each: abs(each[0] - wanted), default=None)
        if nearest is not None and abs(nearest[0] - wanted) < 0.5 and nearest not in chosen:
            chosen.append(nearest)
    return [(sweep, together) for _, sweep, together in chosen]


def recorded_stations(
    recording: "Recording", odometry_topic: str, topics: Mapping[str, str], frames: Mapping[str, str], limit: int,
    warn: Callable[[str], None], continuous: bool = False,
) -> list[RecordedStation]:  # fmt: skip
    """Return where the robot stood, with up to `limit` clouds of each lidar, two stations or more, and if it is
    `continuous` scans on the move between them. `topics`, `frames` and `warn` are as of `cloud_messages`, with its
    errors. Odometry and clouds are compared by the stamps in their headers. Raises `InputError` if odometry is missing
    or jumps back in time, or the robot stood at fewer than two places long enough for a scan of each lidar."""
    recording.require(odometry_topic, ODOMETRY_TYPE)
    odometry = (message for _, message in recording.messages([odometry_topic]))
    clouds = ((name, stamp_of(message), message) for name, message in cloud_messages(recording, topics, frames, warn))
    return stations_of(f"{recording.path}: {odometry_topic}", odometry, clouds, list(topics), limit, continuous)


def stations_of(
    where: str, odometry: Iterable[Any], clouds: Iterable[tuple[str, int, Any]], names: Sequence[str], limit: int,
    continuous: bool,
) -> list[RecordedStation]:  # fmt: skip
    """Return the stations of messages of odometry, and (lidar, stamp in ns, message or, at stops, its returns) of
    clouds, each in order of time; `limit`, `continuous` and errors, which begin with `where`, as of
    `recorded_stations`."""
    stamps, poses = way_of(odometry, where)
    spans = _standing(stamps, poses)
    seen_at: list[dict[str, list[np.ndarray]]] = [{name: [] for name in names} for _ in spans]
    begins = np.array([stamps[first] + SETTLE for first, _ in spans], dtype=np.int64)
    ends = np.array([stamps[last] for _, last in spans], dtype=np.int64)
    ways: dict[int, dict[str, list[Scan]]] = {}  # by the station that they lead to
    moving: dict[int, list[Moving]] = {}

    def choose(before: int) -> None:
        """Choose scans on the ways to stations with a smaller number, and forget the others."""
        for to in [number for number in ways if number < before]:
            part = slice(spans[to - 1][1], spans[to][0] + 1)
            moving[to] = sweeps_between(1e-9 * stamps[part], poses[part], ways.pop(to))

    scans, outside = 0, 0  # of odometry's time
    for name, stamp, held in clouds:
        scans, outside = scans + 1, outside + (not len(stamps) or not stamps[0] <= stamp <= stamps[-1])
        number = int(np.searchsorted(begins, stamp - SCAN, side="right")) - 1
        on_the_way = 0 <= number < len(spans) - 1 and stamp + SCAN > ends[number]
        if continuous and on_the_way and not isinstance(held, np.ndarray):
            ways.setdefault(number + 1, {each: [] for each in names})[name].append(Scan.of(held))
            choose(number + 1)
        if number < 0 or stamp + SCAN > ends[number] or len(seen_at[number][name]) == limit:
            continue
        if len(cloud := held if isinstance(held, np.ndarray) else returns_from_message(held)):
            seen_at[number][name].append(cloud)
    choose(len(spans))
    found, left = [], 0
    for number, ((first, last), seen) in enumerate(zip(spans, seen_at, strict=True)):
        for sweep, together in moving.get(number, ()) if found else ():
            here = int(np.searchsorted(stamps, 1e9 * sweep.time))
            at = [np.interp(1e9 * sweep.time, stamps, column) for column in poses.T]
            points = {name: [scan_from_message(scan.held)] for name, scan in together.items()}
            found.append(RecordedStation(points, np.vstack([poses[left:here], at]), sweep))
            left = here
        if count := min(map(len, seen.values())):
            # The median: the first and last messages are of a base that still, or already, creeps.
            way = np.vstack([poses[left:first], np.median(poses[first : last + 1], axis=0)])
            found.append(RecordedStation({name: own[:count] for name, own in seen.items()}, way))
            left = last
    if (stood := sum(station.sweep is None for station in found)) < 2:
        if len(stamps) and outside > 0.5 * scans:
            fault = f"{outside} of {scans} clouds have stamps that are not between those of odometry"
            raise InputError(f"{where}: {fault}; stamp both by the same clock")
        places = f"places where the robot stood: {len(spans)}, long enough for a scan of every lidar: {stood}"
        raise InputError(f"{where}: {places}; stop for 2 s or more at two places or more")
    return found


def way_of(messages: Iterable[Any], where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the stamps (K,) in ns and the poses (K, 3), x, y (m), yaw (rad) without jumps, of messages of odometry in
    their order. Raises `InputError`, which begins with `where`, if they jump back in time, or are no poses."""
    stamps: list[int] = []
    poses: list[tuple[float, float, float]] = []
    for message in messages:
        stamp, pose = stamp_of(message), message.pose.pose
        if stamps and stamp < stamps[-1] - RESTART:
            raise InputError(f"{where}: stamps jump back; record again, or cut the recording there")
        if stamps and stamp <= stamps[-1]:
            continue
        stamps.append(stamp)
        x, y, z, w = (getattr(pose.orientation, axis) for axis in "xyzw")
        yaw = float(np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y**2 + z**2)))
        poses.append((float(pose.position.x), float(pose.position.y), yaw))
        length = float(np.linalg.norm([x, y, z, w]))
        if abs(length - 1.0) > UNIT:
            raise InputError(f"{where}: its orientation is a quaternion of length {length:.3g}; correct the driver")
    found = np.array(poses).reshape(-1, 3)
    if not np.isfinite(found).all():
        raise InputError(f"{where}: contains a pose that is not a number")
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


def still_within(profile: RobotProfile) -> dict[str, float]:
    """Return up to which change (m, rad) each planned joint stands still."""
    return {joint.name: STILL_WITHIN[0 if joint.linear else 1] for joint in profile.planned}


@dataclass
class StillPose:
    """A stretch of time, `begin` to `end` (ns, stamps), in which no joint moves; `joints` are the mean positions (m,
    rad) by the description's names, `scans` returns (N, 3 or 5) float64 by lidar, each in its own frame."""

    begin: int
    end: int
    joints: dict[str, float]
    scans: list[dict[str, np.ndarray]] = field(default_factory=list)

    @property
    def clouds(self) -> dict[str, np.ndarray]:
        """The returns of all scans."""
        return {name: np.concatenate([scan[name] for scan in self.scans]) for name in self.scans[0]}


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
            found.append(StillPose(begin + SETTLE, last, latest | means))

    for _, message in recording.messages([JOINT_STATES]):
        stamp = stamp_of(message)
        if stamp < before - RESTART:
            raise _unusable(recording, "jump back")
        positions = positions_of(message)
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
        if stamp >= begin + SETTLE:
            for name, value in positions.items():
                settled[name] = settled.get(name, np.zeros(2)) + (value, 1.0)
    if not before:
        raise _unusable(recording, "are zero")
    if missing := sorted(needed - still_at.keys()):
        raise InputError(f"{recording.path}: {JOINT_STATES} has no {', '.join(missing)}")
    end()
    poses = [pose for pose in found if needed <= profile.commanded_positions(model, pose.joints).keys()]
    if not poses:
        moving = f"the joints never stand still for more than {1e-9 * SETTLE:.1f} s"
        raise InputError(f"{recording.path}: {moving}; hold each arm pose for some seconds")
    return [StillPose(pose.begin, pose.end, profile.joint_positions(model, pose.joints)) for pose in poses]


def _unusable(recording: "Recording", fault: str) -> InputError:
    remedy = "clouds cannot be assigned to poses; record the robot's own messages, once"
    return InputError(f"{recording.path}: stamps on {JOINT_STATES} {fault}: {remedy}")


def seen_poses(
    sets: RecordedSets, poses: Sequence[StillPose], num_frames: int, period: float, reach: float
) -> list[StillPose]:
    """Return the poses with up to `num_frames` `scans` of each lidar that were scanned wholly within each. `period` (s)
    is how long a scan takes; returns further than `reach` (m) from their lidar, and poses without a scan, are left out.
    Raises `InputError` if none is left."""
    for found in sets.messages():
        first, last = found.span
        for pose in poses:
            if pose.begin <= first and last + round(period * 1e9) <= pose.end and len(pose.scans) < num_frames:
                near = {name: cloud[lengths(cloud[:, :3]) < reach] for name, cloud in found.clouds.items()}
                pose.scans.append({name: cloud.astype(float) for name, cloud in near.items()})
        if all(len(pose.scans) == num_frames for pose in poses):
            break
    seen = [pose for pose in poses if pose.scans]
    if not seen:
        remedy = "hold each arm pose for some seconds, with the clocks of lidars and robot synchronised"
        fault = f"no scans of all lidars while the joints stood still ({sets.counts.sentence()})"
        raise InputError(f"{sets.path}: {fault}; {remedy}")
    return seen
