"""The drive of `ros_calibrate_by_driving [DIR]`: turns and straight ways with stops, recorded for `stretch-sim-cal
calibrate DIR --drive`. While the robot moves every scan is searched for obstacles."""

import contextlib
import functools
import json
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.driving import DrivenResult
from stretch_sim_cal.calibration.wheel_odometry import DrivingSettings
from stretch_sim_cal.collection import drive_plan
from stretch_sim_cal.collection.drive_plan import Course, DrivePlan, DrivingBody, Ending, Known, Stop
from stretch_sim_cal.collection.plan import duration
from stretch_sim_cal.errors import Refused, RunFailure
from stretch_sim_cal.recording import stations
from stretch_sim_cal.recording.clouds import CLOUD_TYPE
from stretch_sim_cal.recording.pairing import CloudSet, stamp_of
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.recording.stations import SCAN, SETTLE, RecordedStation, Scan
from stretch_sim_cal.recording.topics import DESCRIPTION_TOPIC, TF_TYPE
from stretch_sim_cal.ros.arm import STALE
from stretch_sim_cal.ros.base_motion import BaseMotion, Odometer, Speeds
from stretch_sim_cal.ros.listening import SYNCHRONISE, LidarClouds, LiveRobot
from stretch_sim_cal.ros.node_main import NodeContext
from stretch_sim_cal.ros.permission import SoleUse, ask, check_driver
from stretch_sim_cal.ros.watchdog import Patience

BLIND_AFTER = 1.0  # s of silence of odometry or a lidar while the robot moves
PER_STOP = 1.5  # s of the robot's time per stop beside its scans: slowing down and settling
FRAME_PERIOD = 0.1  # s
QUEUED = 5  # clouds of each lidar that wait to be looked at
LATE = 5.0  # s of odometry that has to come after a scan
Solve = Callable[[Sequence[RecordedStation]], DrivenResult]


def planned(options: Any, robot: LiveRobot, points: np.ndarray) -> tuple[DrivingBody, DrivePlan]:
    """Return the robot's body, and the drive for which the `points` (N, 3), in base_footprint, leave room. Raises
    `Refused` if there is none."""
    body = DrivingBody.of(robot.body, robot.footprint_from_base)
    strafes, turn_step = robot.profile.driven_base.strafes, np.radians(options.turn_step)
    return body, drive_plan.plan_drive(body, points, strafes, turn_step, options.distance, options.clearance)


def course_of(options: Any, robot: LiveRobot, plan: DrivePlan) -> Course:
    base = robot.profile.driven_base
    speeds = Speeds.of(base, options.speed, np.radians(options.turn_speed))
    goal = DrivingSettings(
        track_width=base.track_width, max_std_translation=1e-3 * options.target_mm,
        max_std_yaw=np.radians(options.target_deg),
    )  # fmt: skip

    def seconds(before: np.ndarray, after: np.ndarray) -> float:
        x, y, angle = np.abs(after - before)
        return float(np.hypot(x, y) / speeds.linear + angle / speeds.angular) + _standing_time(options)

    poses = [robot.footprint_from_base @ pose for pose in robot.described.values()]
    return Course(plan, poses, goal, seconds, options.max_duration)


def known_of(result: DrivenResult) -> Known:
    """Return what a result knows of the lidars against the wheels."""
    wheels = result.wheels
    scales = np.array([wheels.odometry[name] for name in ("scale_x", "scale_y", "turn")])
    accepted = not (result.refusals or result.floor.refusals or wheels.refusals)
    return Known(wheels.known, scales, wheels.slip, wheels.deviations, accepted)


def drive(context, robot: LiveRobot, directory: Path, solve: Solve) -> tuple[DrivePlan, DrivenResult] | None:
    """Check, plan, ask, drive until `solve` knows enough, and write the recording `directory`. Return the plan and what
    `solve` found last, None of a dry run. Raises `Refused` if there is no room, something comes near, or the base does
    not obey."""
    options, arguments, base = context.options, context.arguments, robot.profile.driven_base
    say = functools.partial(print, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    speeds = Speeds.of(base, options.speed, np.radians(options.turn_speed))
    driven = _Drive(context, robot, solve, say)
    points, begin = driven.look_around()
    body, plan = planned(options, robot, points)
    course = course_of(options, robot, plan)
    seconds = plan.moving_time(speeds.linear, speeds.angular) + _standing_time(options) * (len(plan.stops) + 1)
    for number, stop in enumerate(plan.stops, start=1):
        say(f"{number:4d}. {stop.words}")
    if plan.note:
        say(plan.note)
    takes, near = f"about {duration(seconds)} of the robot's time", f"within {plan.reach:.1f} m of its present place"
    say(f"{len(plan.stops)} stops, {takes}; its body stays {near}")
    ending = course.expected()
    say(f"expected: after {_counted(ending, plan)} {ending.why}")
    if arguments.dry_run:
        if arguments.json:
            x, y, yaw = ending.known.deviations.max(axis=0)
            print(json.dumps({
                "stops": [stop.target.tolist() for stop in plan.stops], "note": plan.note,
                "seconds": round(seconds, 1), "expected_mm": [1e3 * x, 1e3 * y],
                "expected_yaw_deg": float(np.degrees(yaw)),
                "ends_after": len(ending.stops), "ends_because": ending.why,
            }), flush=True)  # fmt: skip
        return None
    topic = options.command_topic or base.command or base.stamped_command or ""
    motion = BaseMotion(context, driven.odometer, base, topic, speeds, robot.watchdog)
    motion.wait_for_driver()
    use = SoleUse(context, "base", topic)
    use.refuse_second()
    check_driver(context, base.modes, homed=False)
    ask(
        arguments, f"The robot is going to drive, and its body moves up to {plan.reach:.1f} m from its present place, "
        f"{plan.further:.1f} m if longer paths are needed. Is the floor around it clear, and the arm stowed?",
    )  # fmt: skip
    with use.held():
        ending = driven.follow(course, begin, motion, body, directory)
    say(f"the drive ends after {_counted(ending, plan)} {ending.why}")
    say(f"the drive is recorded in {directory}")
    return plan, driven.results[-1]


def _standing_time(options: Any) -> float:
    return float(PER_STOP + options.scans * FRAME_PERIOD)


def _counted(ending: Ending, plan: DrivePlan) -> str:
    count, foreseen = len(ending.stops), len(plan.stops)
    return f"{count} of {foreseen} stops," if count <= foreseen else f"all stops and {count - foreseen} added ones,"


class _Drive:
    """A drive on its way: what is heard meanwhile, and the `results` of `solve` so far."""

    def __init__(self, context: NodeContext, robot: LiveRobot, solve: Solve, say: Callable[[str], None]):
        self._context, self._robot, self._solve, self._say = context, robot, solve, say
        self._options, self._clock = context.options, context.node.get_clock()
        topic = self._options.odometry_topic or robot.profile.driven_base.odometry
        self.odometer = Odometer(context, topic, robot.watchdog)
        self._scanned: deque[CloudSet] = deque(maxlen=QUEUED * len(robot.lidars))
        self._lidars: LidarClouds | None = None
        self._moving: list[tuple[str, Any]] = []  # clouds on the way to the next stop, by lidar
        self.results: list[DrivenResult] = []

    def look_around(self) -> tuple[np.ndarray, np.ndarray]:
        """Begin to listen to the lidars, and return the points of a few scans of each while the robot stands, (N, 3) in
        base_footprint, and its pose by odometry, (3,)."""
        robot, take = self._robot, self._scanned.append
        self._lidars = LidarClouds(self._context, robot.lidars, None, robot.watchdog, depth=2, on_set=take)
        seen: dict[str, list[np.ndarray]] = {name: [] for name in self._robot.lidars}

        def enough() -> bool:
            for scan in self._taken():
                if self._options.continuous:
                    for message in scan.messages.values():
                        Scan.of(message)  # clouds without times of their points show before anything moves
                for name, cloud in scan.clouds.items():
                    if len(seen[name]) < drive_plan.SCANS:
                        seen[name].append(self._robot.in_footprint(name, cloud))
            return self.odometer.pose is not None and min(map(len, seen.values())) == drive_plan.SCANS

        self._context.spin_until(enough, watchdog=self._robot.watchdog)
        return np.concatenate([points for own in seen.values() for points in own]), self.odometer.pose

    def follow(self, course: Course, begin: np.ndarray, motion: BaseMotion, body: DrivingBody, folder: Path) -> Ending:
        """Drive along a course from the pose `begin`, (3,) by odometry, and record it in a folder."""
        cosine, sine = np.cos(begin[2]), np.sin(begin[2])
        number, foreseen = 0, len(course.plan.stops)

        def go(stop: Stop, added: bool) -> float:
            nonlocal number
            if self._lidars is None:
                self.look_around()
            began, (x, y, yaw) = self._clock.now().nanoseconds, stop.target
            target = begin + [cosine * x - sine * y, sine * x + cosine * y, yaw]
            with motion.stopping():
                with self._robot.watchdog.within(BLIND_AFTER):
                    motion.drive(target, functools.partial(self._look, body, tape))
                tape.write_moving(self._moving)
                self._moving.clear()
                self._stand(tape)
            number += 1
            self._say(f"stop {number}, added: {stop.words}" if added else f"stop {number} of {foreseen}: {stop.words}")
            return 1e-9 * (self._clock.now().nanoseconds - began)

        def estimate() -> Known:
            if self._lidars is not None:
                self._lidars.close()  # more would be sent, and simulated, for nobody while the result is computed
            self._lidars = None
            self._context.log.info(f"estimating from {number} stops")
            found = tape.stations()
            if self._options.continuous and all(station.sweep is None for station in found):
                self._context.log.warning(stations.NONE_MOVING)
            self.results.append(self._solve(found))
            return known_of(self.results[-1])

        with _Tape(self._context, self._robot, self.odometer, folder) as tape:
            with motion.stopping():
                self._stand(tape)
            ending = course.follow(go, estimate)
        self.odometer.close()
        return ending

    def _taken(self) -> list[CloudSet]:
        taken = list(self._scanned)
        self._scanned.clear()
        return taken

    def _look(self, body: DrivingBody, tape: "_Tape", left: np.ndarray) -> None:
        """Look for obstacles on what is left of the way (2,). Raises `Refused` if there is one."""
        taken = self._taken()
        for name, cloud in {name: cloud for seen in taken for name, cloud in seen.clouds.items()}.items():
            points, clearance = self._robot.in_footprint(name, cloud), self._options.clearance - drive_plan.UNSURE
            found = body.in_way(points, left, clearance)
            if found is not None:
                x, y, z = found.nearest
                raise Refused(
                    f"the robot was stopped: an obstacle near its path, at x {x:.1f} y {y:.1f} z {z:.1f} m in "
                    f"base_footprint ({found.count} points of the {name} lidar); clear the place and drive again"
                )
        if self._options.continuous:
            self._moving.extend(each for seen in taken for each in seen.messages.items())
        tape.write_odometry()

    def _stand(self, tape: "_Tape") -> None:
        """Write the scans of each lidar while the robot stands, and odometry until after them. Raises `RunFailure` if
        the robot does not rest, or the stamps of clouds and odometry do not go together."""
        odometer, lidars, began = self.odometer, self._robot.lidars, self.odometer.stamp
        settled, counts, stale, last = -1, dict.fromkeys(lidars, 0), dict.fromkeys(lidars, 0), 0
        waiting = Patience(self._context, LATE, LATE)
        while True:
            self._context.spin_once(timeout=0.05)
            self._robot.watchdog.tick()
            tape.write_odometry()
            if odometer.still_since + SETTLE != settled:  # it moved after all: what was scanned is another stop's
                settled, last = odometer.still_since + SETTLE, 0
                counts = dict.fromkeys(counts, 0)
            for seen in self._taken():
                ((name, message),), stamp = seen.messages.items(), seen.stamp
                if stamp - SCAN < settled:
                    stale[name] += 1
                elif counts[name] < self._options.scans:
                    tape.write_cloud(name, message, seen.clouds[name])
                    counts[name] += 1
                    last = max(last, stamp)
                    waiting.begin()
                if stale[name] > STALE:
                    raise odometer.restless if odometer.still_since > began else self._apart(lidars[name][0], stamp)
            if min(counts.values()) == self._options.scans:
                if odometer.stamp > last + SCAN:
                    return
                if waiting.over:
                    raise self._apart("the lidars", last)

    def _apart(self, who: str, stamp: int) -> RunFailure:
        apart = f"{1e-9 * (stamp - self.odometer.stamp):+.1f} s from those of {self.odometer.topic}"
        matched = "scans cannot be matched with stops"
        return RunFailure(f"the stamps of {who} are {apart}: {matched}; {SYNCHRONISE}")


class _Tape(contextlib.AbstractContextManager):
    """The recording of a drive: the robot's description and frames, all odometry, and the clouds of its stations. The
    folder is complete when the context ends, also by an exception."""

    def __init__(self, context: NodeContext, robot: LiveRobot, odometer: Odometer, directory: Path):
        from rclpy.serialization import serialize_message
        from std_msgs.msg import String

        from stretch_sim_cal.ros.messages import transforms_message

        self._clock, self._odometer, self._serialize = context.node.get_clock(), odometer, serialize_message
        self._topics = {name: topic for name, (topic, _) in robot.lidars.items()}
        self._options = options = context.options
        self._said: list[Any] = []
        self._clouds: list[tuple[str, int, Any]] = []
        frames = {(options.footprint_frame, options.base_link_frame): robot.footprint_from_base}
        frames |= {(options.base_link_frame, robot.lidars[name][1]): pose for name, pose in robot.described.items()}
        self._writer = RecordingWriter(directory)
        self._writer.add_topic(DESCRIPTION_TOPIC, "std_msgs/msg/String", latched=True)
        self._writer.add_topic("/tf_static", TF_TYPE, latched=True)
        self._writer.add_topic(odometer.topic, stations.ODOMETRY_TYPE)
        for topic in self._topics.values():
            self._writer.add_topic(topic, CLOUD_TYPE)
        self._write(DESCRIPTION_TOPIC, String(data=robot.description))
        self._write("/tf_static", transforms_message(frames, self._clock.now().nanoseconds))

    def __exit__(self, *_exception: object) -> None:
        self._writer.close()

    def write_odometry(self) -> None:
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
        stamps, poses = stations.way_of(self._said, self._odometer.topic)
        since = int(np.searchsorted(1e-9 * stamps, min(scan.begin for own in scans.values() for scan in own) - 1.0))
        for _, together in stations.sweeps_between(1e-9 * stamps[since:], poses[since:], scans):
            for name, scan in together.items():
                self.write_cloud(name, scan.held)

    def stations(self) -> list[RecordedStation]:
        self.write_odometry()
        where, names, options = self._odometer.topic, list(self._topics), self._options
        return stations.stations_of(where, self._said, self._clouds, names, options.scans, options.continuous)

    def _write(self, topic: str, message: Any) -> None:
        self._writer.write_message(topic, self._clock.now().nanoseconds, message, self._serialize(message))
