"""The drive of `ros_calibrate_by_driving [DIR]`: turns and straight ways with stops, and the clouds of each stop as a
recording that `stretch-sim-cal calibrate DIR --drive` reads, too.

Checks, plan, question, then stop by stop drive, stand and scan. While the robot moves every scan is searched for
obstacles.
"""

import contextlib
import functools
import json
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.wheel_odometry import DrivingSettings, expected
from stretch_sim_cal.collection.drive_plan import SCANS, UNSURE, DrivePlan, DriveSettings, DrivingBody, plan_drive
from stretch_sim_cal.collection.plan import duration
from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.recording.rosbag import Recording, RecordingWriter
from stretch_sim_cal.recording.stations import ODOMETRY_TYPE, SCAN, SETTLE, RecordedStation, recorded_stations
from stretch_sim_cal.recording.topics import CLOUD_TYPE, DESCRIPTION_TOPIC, TF_TYPE
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
        raise InputError(f"{directory}: exists already; a drive is recorded as a whole, name another folder")


def planned(options: Any, robot: DrivenRobot, points: np.ndarray) -> tuple[DrivingBody, DrivePlan]:
    """Return the robot's body, and the drive for which the `points` (N, 3), in base_footprint, leave room. Raises
    `Refused` if there is none."""
    body = DrivingBody.of(robot.body, robot.footprint_from_base)
    settings = DriveSettings(np.radians(options.turn_step), options.distance, options.clearance)
    return body, plan_drive(body, points, robot.profile.driven_base.strafes, settings)


def driven_stations(
    context: NodeContext, robot: DrivenRobot, directory: Path
) -> tuple[DrivePlan, list[RecordedStation]] | None:
    """Drive as `drive` does, and return the plan and the stations of the recording; None of a dry run."""
    plan, options = drive(context, robot, directory), context.options
    if plan is None:
        return None
    topic = options.odometry_topic or robot.profile.driven_base.odometry
    limit, warn = options.scans, context.log.warning
    with Recording(directory) as recording:
        return plan, recorded_stations(recording, topic, robot.topics, robot.frames, limit, warn)


def drive(context: NodeContext, robot: DrivenRobot, directory: Path) -> DrivePlan | None:
    """Check, plan, ask, drive, and write the recording `directory`. Return the plan, None of a dry run. Raises
    `Refused` if there is no room, something comes near, or the base does not obey."""
    options, arguments = context.options, context.arguments
    say = functools.partial(print, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    base = robot.profile.driven_base
    speeds = Speeds.of(base, options.speed, np.radians(options.turn_speed))
    watchdog, blind = context.watchdog(options.timeout), context.watchdog(BLIND_AFTER)
    odometer = Odometer(context, options.odometry_topic or base.odometry, (watchdog, blind))
    scanned: deque[CloudSet] = deque(maxlen=QUEUED * len(robot.lidars))
    lidars = LidarClouds(context, robot.lidars, None, (watchdog, blind), depth=2, on_set=scanned.append)
    points, begin = _look_around(context, robot, scanned, odometer, watchdog)
    body, plan = planned(options, robot, points)
    seconds = plan.moving_time(speeds.linear, speeds.angular)
    seconds += (PER_STOP + options.scans * FRAME_PERIOD) * (len(plan.stops) + 1)
    first = robot.footprint_from_base @ next(iter(robot.base_from_lidar.values()))
    x, y, yaw = expected([stop.target for stop in plan.stops], first, DrivingSettings(track_width=base.track_width))
    _tell(plan, seconds, say)
    say(
        f"expected of it, one standard deviation: lidars against the centre of rotation {1e3 * x:.2g} mm along x and "
        f"{1e3 * y:.2g} mm along y, against the direction of driving {np.degrees(yaw):.2g} deg"
    )
    if arguments.dry_run:
        if arguments.json:
            said = {"stops": [stop.target.tolist() for stop in plan.stops], "note": plan.note}
            known = {"expected_mm": [1e3 * x, 1e3 * y], "expected_yaw_deg": float(np.degrees(yaw))}
            print(json.dumps(said | {"seconds": round(seconds, 1)} | known), flush=True)
        return None
    topic = options.command_topic or base.command or base.stamped_command or ""
    motion = BaseMotion(context, odometer, base, topic, speeds, blind)
    motion.wait_for_driver()
    check_driver(context, robot.profile, base.modes, homed=False)
    ask(
        arguments, f"The robot is going to drive, and its body comes {plan.reach:.1f} m from where it stands. Is the "
        "floor around it clear, and the arm stowed?",
    )  # fmt: skip

    def look(left: np.ndarray) -> None:
        for name, cloud in {name: cloud for seen in _taken(scanned) for name, cloud in seen.clouds.items()}.items():
            found = body.in_way(robot.in_footprint(name, cloud), left, options.clearance - UNSURE)
            if found is not None:
                x, y, z = found.nearest
                raise Refused(
                    f"the robot was stopped: something came near its way, at x {x:.1f} y {y:.1f} z {z:.1f} m in "
                    f"base_footprint ({found.count} points of the {name} lidar); clear the place and drive again"
                )
        tape.write_odometry()

    with _Tape(context, robot, odometer, directory) as tape, motion.stopping():
        scans = functools.partial(_stand, context, robot.topics, scanned, odometer, watchdog, tape, options.scans)
        scans()
        cosine, sine = np.cos(begin[2]), np.sin(begin[2])
        for number, stop in enumerate(plan.stops, start=1):
            x, y, yaw = stop.target
            target = begin + [cosine * x - sine * y, sine * x + cosine * y, yaw]
            motion.drive(target, look)
            scans()
            say(f"stop {number} of {len(plan.stops)}: {stop.words}")
    say(f"the drive is recorded in {directory}")
    lidars.close()  # more would be sent, and simulated, for nobody while the result is computed
    odometer.close()
    return plan


def _look_around(
    context: NodeContext, robot: DrivenRobot, scanned: deque[CloudSet], odometer: Odometer, watchdog: Any
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the points of a few scans of each lidar while the robot stands, (N, 3) in base_footprint, and its pose by
    odometry, (3,)."""
    seen: dict[str, list[np.ndarray]] = {name: [] for name in robot.topics}

    def enough() -> bool:
        for scan in _taken(scanned):
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
        f"{plan.reach:.1f} m of where it stands"
    )


class _Tape(contextlib.AbstractContextManager):
    """The recording of a drive: the robot's description and frames, all odometry, and the clouds of its stops. The
    folder is complete when the context ends, also by an exception."""

    def __init__(self, context: NodeContext, robot: DrivenRobot, odometer: Odometer, directory: Path):
        from rclpy.serialization import serialize_message
        from std_msgs.msg import String

        from stretch_sim_cal.ros.messages import transforms_message

        self._clock, self._odometer, self._serialize = context.node.get_clock(), odometer, serialize_message
        self._topics, options = robot.topics, context.options
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
        for message in messages:
            self._write(self._odometer.topic, message)

    def write_cloud(self, name: str, message: Any) -> None:
        self._write(self._topics[name], message)

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
                tape.write_cloud(name, message)
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
        f"the stamps of {who} are {1e-9 * (stamp - odometer.stamp):+.1f} s from those of {odometer.topic}: it cannot "
        "be determined which scans were taken while the robot stood; synchronise the lidars' clocks with the robot's"
    )
