"""The drive of `ros_calibrate_by_driving [DIR]`: turns and straight ways with stops, and the clouds of each stop as a
recording that `stretch-sim-cal calibrate DIR --drive` reads, too.

Checks, plan, question, then stop by stop drive, stand and scan, until enough is known. While the robot moves every scan
is searched for obstacles.
"""

import contextlib
import functools
import json
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.driving import DrivenResult
from stretch_sim_cal.calibration.wheel_odometry import DrivingSettings
from stretch_sim_cal.collection.drive_plan import (
    SCANS,
    UNSURE,
    Course,
    DrivePlan,
    DriveSettings,
    DrivingBody,
    Known,
    Stop,
    plan_drive,
)
from stretch_sim_cal.collection.plan import duration
from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.recording.clouds import CLOUD_TYPE
from stretch_sim_cal.recording.pairing import stamp_of
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.recording.stations import (
    NONE_MOVING,
    ODOMETRY_TYPE,
    SCAN,
    SETTLE,
    RecordedStation,
    Scan,
    stations_of,
    sweeps_between,
    way_of,
)
from stretch_sim_cal.recording.topics import DESCRIPTION_TOPIC, TF_TYPE
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.ros.base_motion import BaseMotion, Odometer, Speeds
from stretch_sim_cal.ros.captures import STALE
from stretch_sim_cal.ros.lidar_clouds import CloudSet, LidarClouds
from stretch_sim_cal.ros.node_main import NodeContext
from stretch_sim_cal.ros.permission import ask, check_can_ask, check_driver
from stretch_sim_cal.ros.watchdog import Patience

BLIND_AFTER = 1.0  # s of silence of odometry or a lidar while the robot moves
PER_STOP = 1.5  # s of the robot's time per stop beside its scans: slowing down and settling
FRAME_PERIOD = 0.1  # s
QUEUED = 5  # clouds of each lidar that wait to be looked at
Solve = Callable[[Sequence[RecordedStation]], DrivenResult]
LATE = 5.0  # s of odometry that has to come after a scan


@dataclass(frozen=True)
class DrivenRobot:
    """The robot before it drives: topics and frames of its `lidars` and their described poses (4, 4) in base_link by
    name, base_link's pose in base_footprint, the settings of its body, and its `description` (URDF)."""

    profile: RobotProfile
    lidars: Mapping[str, tuple[str, str]]
    base_from_lidar: Mapping[str, np.ndarray]
    footprint_from_base: np.ndarray
    body: Mapping[str, Any]
    description: str

    @property
    def topics(self) -> dict[str, str]:
        return {name: topic for name, (topic, _) in self.lidars.items()}

    @property
    def frames(self) -> dict[str, str]:
        return {name: frame for name, (_, frame) in self.lidars.items()}

    def in_footprint(self, name: str, cloud: np.ndarray) -> np.ndarray:
        """Return a lidar's returns (N, 5 or 3) as points (N, 3) in base_footprint."""
        return apply(self.footprint_from_base @ self.base_from_lidar[name], cloud[:, :3])


def check_asked(arguments: Any, directory: Path) -> None:
    """Raise `InputError` if nobody can be asked whether the robot may drive, or the folder is there already."""
    check_can_ask(arguments, "the robot")
    if directory.exists():
        raise InputError(f"{directory}: exists already; a drive cannot be continued, name another folder")


def planned(options: Any, robot: DrivenRobot, points: np.ndarray) -> tuple[DrivingBody, DrivePlan]:
    """Return the robot's body, and the drive for which the `points` (N, 3), in base_footprint, leave room. Raises
    `Refused` if there is none."""
    body = DrivingBody.of(robot.body, robot.footprint_from_base)
    settings = DriveSettings(np.radians(options.turn_step), options.distance, options.clearance)
    return body, plan_drive(body, points, robot.profile.driven_base.strafes, settings)


def course_of(options: Any, robot: DrivenRobot, plan: DrivePlan) -> Course:
    """Return how a drive goes along its plan, and when it ends."""
    base = robot.profile.driven_base
    speeds = Speeds.of(base, options.speed, np.radians(options.turn_speed))
    goal = DrivingSettings(
        track_width=base.track_width, max_std_translation=1e-3 * options.target_mm,
        max_std_yaw=np.radians(options.target_deg),
    )  # fmt: skip

    def seconds(before: np.ndarray, after: np.ndarray) -> float:
        x, y, angle = np.abs(after - before)
        return float(np.hypot(x, y) / speeds.linear + angle / speeds.angular) + _standing_time(options)

    poses = [robot.footprint_from_base @ pose for pose in robot.base_from_lidar.values()]
    return Course(plan, poses, goal, seconds, options.max_duration)


def known_of(result: DrivenResult) -> Known:
    """Return what a result knows of the lidars against the wheels."""
    wheels = result.wheels
    scales = np.array([wheels.odometry[name] for name in ("scale_x", "scale_y", "turn")])
    accepted = not (result.refusals or result.floor.refusals or wheels.refusals)
    return Known(wheels.known, scales, wheels.slip, wheels.deviations, accepted)


def drive(
    context: NodeContext, robot: DrivenRobot, directory: Path, solve: Solve
) -> tuple[DrivePlan, DrivenResult] | None:
    """Check, plan, ask, drive until `solve` knows enough, and write the recording `directory`. Return the plan and what
    `solve` found last, None of a dry run. Raises `Refused` if there is no room, something comes near, or the base does
    not obey."""
    options, arguments = context.options, context.arguments
    say = functools.partial(print, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    base, clock = robot.profile.driven_base, context.node.get_clock()
    speeds = Speeds.of(base, options.speed, np.radians(options.turn_speed))
    watchdog, blind = context.watchdog(options.timeout), context.watchdog(BLIND_AFTER)
    odometer = Odometer(context, options.odometry_topic or base.odometry, (watchdog, blind))
    scanned: deque[CloudSet] = deque(maxlen=QUEUED * len(robot.lidars))

    def listen() -> LidarClouds:
        return LidarClouds(context, robot.lidars, None, (watchdog, blind), depth=2, on_set=scanned.append)

    lidars = listen()
    points, begin = _look_around(context, robot, scanned, odometer, watchdog)
    body, plan = planned(options, robot, points)
    course = course_of(options, robot, plan)
    seconds = plan.moving_time(speeds.linear, speeds.angular) + _standing_time(options) * (len(plan.stops) + 1)
    ending = course.expected()
    _tell(plan, seconds, say)
    say(f"expected: after {_counted(ending.stops, plan)} {ending.why}")
    if arguments.dry_run:
        if arguments.json:
            x, y, yaw = ending.known.deviations.max(axis=0)
            said = {"stops": [stop.target.tolist() for stop in plan.stops], "note": plan.note}
            known = {"expected_mm": [1e3 * x, 1e3 * y], "expected_yaw_deg": float(np.degrees(yaw))}
            ends = {"ends_after": len(ending.stops), "ends_because": ending.why}
            print(json.dumps(said | {"seconds": round(seconds, 1)} | known | ends), flush=True)
        return None
    topic = options.command_topic or base.command or base.stamped_command or ""
    motion = BaseMotion(context, odometer, base, topic, speeds, blind)
    motion.wait_for_driver()
    check_driver(context, robot.profile, base.modes, homed=False)
    ask(
        arguments, f"The robot is going to drive, and its body moves up to {plan.reach:.1f} m from its present place, "
        f"{plan.further:.1f} m if longer paths are needed. Is the floor around it clear, and the arm stowed?",
    )  # fmt: skip
    moving: list[tuple[str, Any]] = []

    def look(left: np.ndarray) -> None:
        taken = _taken(scanned)
        for name, cloud in {name: cloud for seen in taken for name, cloud in seen.clouds.items()}.items():
            found = body.in_way(robot.in_footprint(name, cloud), left, options.clearance - UNSURE)
            if found is not None:
                x, y, z = found.nearest
                raise Refused(
                    f"the robot was stopped: an obstacle near its path, at x {x:.1f} y {y:.1f} z {z:.1f} m in "
                    f"base_footprint ({found.count} points of the {name} lidar); clear the place and drive again"
                )
        if options.continuous:
            moving.extend(each for seen in taken for each in seen.messages.items())
        tape.write_odometry()

    scans = functools.partial(_stand, context, robot.topics, scanned, odometer, watchdog)
    number, results = 0, []

    def go(stop: Stop, added: bool) -> float:
        nonlocal lidars, number
        if lidars is None:
            lidars = listen()
            _look_around(context, robot, scanned, odometer, watchdog)
        began, (x, y, yaw) = clock.now().nanoseconds, stop.target
        cosine, sine = np.cos(begin[2]), np.sin(begin[2])
        with motion.stopping():
            motion.drive(begin + [cosine * x - sine * y, sine * x + cosine * y, yaw], look)
            tape.write_moving(moving)
            moving.clear()
            scans(tape, options.scans)
        number += 1
        say(f"stop {number} of {len(plan.stops)}: {stop.words}" if not added else f"stop {number}, added: {stop.words}")
        return 1e-9 * (clock.now().nanoseconds - began)

    def estimate() -> Known:
        nonlocal lidars
        if lidars is not None:
            lidars.close()  # more would be sent, and simulated, for nobody while the result is computed
        lidars = None
        context.log.info(f"estimating from {number} stops")
        stations = tape.stations()
        if options.continuous and all(station.sweep is None for station in stations):
            context.log.warning(NONE_MOVING)
        results.append(solve(stations))
        return known_of(results[-1])

    with _Tape(context, robot, odometer, directory) as tape:
        with motion.stopping():
            scans(tape, options.scans)
        ending = course.follow(go, estimate)
    odometer.close()
    say(f"the drive ends after {_counted(ending.stops, plan)} {ending.why}")
    say(f"the drive is recorded in {directory}")
    return plan, results[-1]


def _standing_time(options: Any) -> float:
    """Return how long (s) a stop takes."""
    return float(PER_STOP + options.scans * FRAME_PERIOD)


def _counted(stops: Sequence[Stop], plan: DrivePlan) -> str:
    added = len(stops) - len(plan.stops)
    return f"{len(stops)} of {len(plan.stops)} stops," if added <= 0 else f"all stops and {added} added ones,"


def _look_around(
    context: NodeContext, robot: DrivenRobot, scanned: deque[CloudSet], odometer: Odometer, watchdog: Any
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the points of a few scans of each lidar while the robot stands, (N, 3) in base_footprint, and its pose by
    odometry, (3,)."""
    seen: dict[str, list[np.ndarray]] = {name: [] for name in robot.topics}

    def enough() -> bool:
        for scan in _taken(scanned):
            if context.options.continuous:
                for message in scan.messages.values():
                    Scan.of(message)  # clouds without times of their points show before anything moves
            for name, cloud in scan.clouds.items():
                if len(seen[name]) < SCANS:
                    seen[name].append(robot.in_footprint(name, cloud))
        return odometer.pose is not None and min(map(len, seen.values())) == SCANS

    context.spin_until(enough, watchdog=watchdog)
    return np.concatenate([points for own in seen.values() for points in own]), odometer.pose


def _taken(scanned: deque[CloudSet]) -> list[CloudSet]:
    taken = list(scanned)
    scanned.clear()
    return taken


def _tell(plan: DrivePlan, seconds: float, say: Callable) -> None:
    for number, stop in enumerate(plan.stops, start=1):
        say(f"{number:4d}. {stop.words}")
    if plan.note:
        say(plan.note)
    say(
        f"{len(plan.stops)} stops, about {duration(seconds)} of the robot's time; its body stays within "
        f"{plan.reach:.1f} m of its present place"
    )


class _Tape(contextlib.AbstractContextManager):
    """The recording of a drive: the robot's description and frames, all odometry, and the clouds of its stations. The
    folder is complete when the context ends, also by an exception."""

    def __init__(self, context: NodeContext, robot: DrivenRobot, odometer: Odometer, directory: Path):
        from rclpy.serialization import serialize_message
        from std_msgs.msg import String

        from stretch_sim_cal.ros.messages import transforms_message

        self._clock, self._odometer, self._serialize = context.node.get_clock(), odometer, serialize_message
        self._topics, options = robot.topics, context.options
        self._scans, self._continuous = options.scans, options.continuous
        self._said: list[Any] = []
        self._clouds: list[tuple[str, int, Any]] = []
        frames = {(options.footprint_frame, options.base_link_frame): robot.footprint_from_base}
        frames |= {(options.base_link_frame, robot.frames[name]): pose for name, pose in robot.base_from_lidar.items()}
        self._writer = RecordingWriter(directory)
        self._writer.add_topic(DESCRIPTION_TOPIC, "std_msgs/msg/String", latched=True)
        self._writer.add_topic("/tf_static", TF_TYPE, latched=True)
        self._writer.add_topic(odometer.topic, ODOMETRY_TYPE)
        for topic in self._topics.values():
            self._writer.add_topic(topic, CLOUD_TYPE)
        self._write(DESCRIPTION_TOPIC, String(data=robot.description))
        self._write("/tf_static", transforms_message(frames, self._clock.now().nanoseconds))

    def __exit__(self, *_exception: object) -> None:
        self._writer.close()

    def write_odometry(self) -> None:
        """Write the odometry that came since the last time."""
        messages, self._odometer.messages = self._odometer.messages, []
        self._said += messages
        for message in messages:
            self._write(self._odometer.topic, message)

    def write_cloud(self, name: str, message: Any, returns: np.ndarray | None = None) -> None:
        """Write a cloud; the `returns` at a stop take less memory than the message."""
        self._clouds.append((name, stamp_of(message), message if returns is None else returns))
        self._write(self._topics[name], message)

    def write_moving(self, clouds: Sequence[tuple[str, Any]]) -> None:
        """Write those of the clouds that came on the way from the last stop which are stations."""
        if not clouds:
            return
        scans: dict[str, list[Scan]] = {name: [] for name in self._topics}
        for name, message in clouds:
            scans[name].append(Scan.of(message))
        stamps, poses = way_of(self._said, self._odometer.topic)
        since = int(np.searchsorted(1e-9 * stamps, min(scan.begin for own in scans.values() for scan in own) - 1.0))
        for _, together in sweeps_between(1e-9 * stamps[since:], poses[since:], scans):
            for name, scan in together.items():
                self.write_cloud(name, scan.held)

    def stations(self) -> list[RecordedStation]:
        """Return the stations of what was written."""
        self.write_odometry()
        names = list(self._topics)
        return stations_of(self._odometer.topic, self._said, self._clouds, names, self._scans, self._continuous)

    def _write(self, topic: str, message: Any) -> None:
        self._writer.write_message(topic, self._clock.now().nanoseconds, message, self._serialize(message))


def _stand(
    context: NodeContext, topics: Mapping[str, str], scanned: deque[CloudSet], odometer: Odometer, watchdog: Any,
    tape: _Tape, scans: int,
) -> None:  # fmt: skip
    """Write so many scans of each lidar while the robot stands, and odometry until after them. Raises `RunFailure` if
    the stamps of clouds and odometry do not go together."""
    settled, counts, stale, last = -1, dict.fromkeys(topics, 0), dict.fromkeys(topics, 0), 0
    waiting = Patience(context, LATE, LATE)
    while True:
        context.spin_once(timeout=0.05)
        watchdog.tick()
        tape.write_odometry()
        if odometer.still_since + SETTLE != settled:  # it moved after all: what was scanned before is another stop's
            settled, last = odometer.still_since + SETTLE, 0
            counts = dict.fromkeys(counts, 0)
        for seen in _taken(scanned):
            ((name, message),), stamp = seen.messages.items(), seen.stamp
            if stamp - SCAN < settled:
                stale[name] += 1
            elif counts[name] < scans:
                tape.write_cloud(name, message, seen.clouds[name])
                counts[name] += 1
                last = max(last, stamp)
                waiting.begin()
            if stale[name] > STALE:
                raise _apart(topics[name], stamp, odometer)
        if min(counts.values()) == scans:
            if odometer.stamp > last + SCAN:
                return
            if waiting.over:
                raise _apart("the lidars", last, odometer)


def _apart(who: str, stamp: int, odometer: Odometer) -> RunFailure:
    return RunFailure(
        f"the stamps of {who} are {1e-9 * (stamp - odometer.stamp):+.1f} s from those of {odometer.topic}: "
        "scans cannot be matched with stops; synchronise the lidars' clocks with the robot's"
    )
