"""`stretch-sim-cal calibrate RECORDING --out FILE`: alignment and floor from a rosbag2 recording, no ROS needed.

With `--mounts`: the lidars' extrinsics in base_link, from recorded arm poses. With `--drive`: all of it, and where the
lidars are against the wheels, from a recording of a robot that drove with stops on the way.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from stretch_sim_cal.calibration import summaries
from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_robot_id
from stretch_sim_cal.calibration.checks import check_lidars
from stretch_sim_cal.calibration.clouds import given_clouds
from stretch_sim_cal.calibration.methods import (
    ALIGNMENT_METHODS_HELP,
    DEFAULT_ALIGNMENT_METHOD,
    DEFAULT_FLOOR_METHOD,
    FLOOR_METHODS_HELP,
    alignment_method,
    floor_method,
    gain_of_another_place,
)
from stretch_sim_cal.calibration.mounts.file import each_mount, left_pose, with_floor, with_mounts
from stretch_sim_cal.calibration.observations import Observations, known_alignment, load_beside
from stretch_sim_cal.calibration.results import ONE_LIDAR, AlignmentResult
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings, accepting
from stretch_sim_cal.calibration.surfaces import body_settings
from stretch_sim_cal.command import add_view_arguments, only_with, tell, warn
from stretch_sim_cal.commands.described import is_own
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.recording.clouds import returns_from_message
from stretch_sim_cal.recording.joint_states import seen_poses, still_poses
from stretch_sim_cal.recording.rosbag import Recording, is_recording
from stretch_sim_cal.recording.topics import (
    RecordedSets,
    recorded_clouds,
    recorded_description,
    recorded_frames,
    recorded_joints,
    recorded_signatures,
    sensor_lines,
)
from stretch_sim_cal.robot.description import load_model, load_urdf_text
from stretch_sim_cal.robot.profile import ProfiledLidar, RobotProfile, profile_called, stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.sensor.recognition import SCANS, recognised
from stretch_sim_cal.sensor.sensor import Sensors, by_lidar, for_each, of_two, sensors_called
from stretch_sim_cal.sensor.signature import Signature, known_sensors
from stretch_sim_cal.view import opened

EXAMPLE = "stretch-sim-cal calibrate my_recording --out dual_lidar_calibration.yaml --report report"
MAX_TIME_DIFFERENCE = 0.05  # s
DEFAULT_SAMPLES = {"alignment": 100, "floor": 30, "drive": 10}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "recording", type=Path, nargs="+",
        help="a rosbag2 folder, or a single .mcap or .db3 file; from several, between which the robot was moved or "
        "turned, the alignment is found together, and the floor from the first",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="calibration file to write or to update"
    )
    parser.add_argument(
        "--only", choices=("alignment", "floor"), help="one of the two; floor needs an alignment in FILE"
    )
    parser.add_argument("--report", type=Path, metavar="DIR", help="write a page with pictures into this folder")
    parser.add_argument(
        "--num-samples", type=int,
        help="pairs of clouds to use (default: 100 for alignment, 30 for floor, 5 in each arm pose with --mounts, 10 "
        "at each stop with --drive)",
    )  # fmt: skip
    add_recording_arguments(parser)
    parser.add_argument(
        "--accept", nargs=2, type=float, metavar=("MM", "DEG"),
        help="accept lidar to lidar up to these standard deviations (default: the profile's, or 5 mm and 0.1 deg)",
    )  # fmt: skip
    parser.add_argument("--method", help=f"alignment method; {ALIGNMENT_METHODS_HELP}")
    parser.add_argument("--floor-method", help=f"floor method; {FLOOR_METHODS_HELP}")
    parser.add_argument("--robot-id", help="robot's name in the file (default: HELLO_FLEET_ID)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON on standard output")
    add_view_arguments(parser)
    parser.add_argument(
        "--drive", action="store_true",
        help="the robot drove, with stops of 2 s or more: find lidar to lidar, floor, and the lidars against the "
        "centre of rotation and the direction of driving",
    )  # fmt: skip
    parser.add_argument("--odometry-topic", help="of the wheels' odometry (default: the profile's; with --drive)")
    add_mounts_arguments(parser)


def add_recording_arguments(parser: argparse.ArgumentParser, with_sensor: bool = True) -> None:
    """Declare the names of topics and frames in a recording; those that are not given are the robot profile's."""
    profile = stretch_profile()
    parser.add_argument(
        "--robot", metavar="FILE",
        help="the robot's profile, a name in config/robots/ or a path, which names topics, frames and sensor that are "
        "not given (default: the Stretch's)",
    )  # fmt: skip
    for name, default in recorded_names(profile).items():
        older = {"left_frame": ", or link_lidar_left", "right_frame": ", or link_lidar_right"}.get(name, "")
        parser.add_argument(f"--{name.replace('_', '-')}", help=f"default: {default}{older}")
    if with_sensor:
        parser.add_argument(
            "--sensor", metavar="NAME",
            help="kind of the lidars, or LEFT,RIGHT: names in config/, or sensor files; unknown for others (default: "
            f"the profile's, {profile.sensor}, or in a recording whose points do not fit it the one that they fit)",
        )  # fmt: skip
    parser.add_argument(
        "--model", metavar="FILE", help="URDF with the lidars' poses, if the recording has none (or stretch4)"
    )
    parser.add_argument(
        "--max-time-difference", type=float, metavar="S", help=f"of a pair (default: {MAX_TIME_DIFFERENCE} s)"
    )


def recorded_names(profile: RobotProfile) -> dict[str, str]:
    """Return the names of topics and frames in recordings of a robot, by the arguments that give them."""
    names = {"base_frame": profile.base_frame, "footprint_frame": profile.footprint_frame}
    for side, lidar in profile.lidars.items():
        names |= {f"{side}_topic": lidar.topic, f"{side}_frame": lidar.frame}
    return names


def with_defaults(args: argparse.Namespace) -> RobotProfile:
    """Return the robot's profile, having filled in the arguments of `add_recording_arguments` that were not given."""
    profile = profile_called(args.robot)
    for name, value in (recorded_names(profile) | {"max_time_difference": MAX_TIME_DIFFERENCE}).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return profile


def recorded_pairs(recording, args: argparse.Namespace, limit: int, read=returns_from_message) -> RecordedSets:
    """Return up to `limit` pairs of clouds of an open recording; `read` makes a cloud of a message."""
    return RecordedSets(recording, _topics(args), _frames(args), args.max_time_difference, limit, warn, read)


Further = Mapping[str, ProfiledLidar]
"""The lidars beyond the left and the right one, by name."""


def _topics(args: argparse.Namespace, further: Further = MappingProxyType({})) -> dict[str, str]:
    return {"left": args.left_topic, "right": args.right_topic} | {name: one.topic for name, one in further.items()}


def _frames(args: argparse.Namespace, further: Further = MappingProxyType({})) -> dict[str, str]:
    return {"left": args.left_frame, "right": args.right_frame} | {name: one.frame for name, one in further.items()}


@dataclass
class _Source:
    """An open recording with its first guesses, and pairs of clouds as often as they are asked for."""

    recording: Recording
    frames: object
    args: argparse.Namespace
    description: str | None  # the robot's URDF
    profile: RobotProfile

    @cached_property
    def signatures(self) -> dict[str, Signature | InputError]:
        """What the first clouds of each lidar show of sensor and driver."""
        return recorded_kinds(self.recording, self.args, self.profile.further)

    @cached_property
    def sensors(self) -> Sensors:
        """The kinds of all lidars: as named, else as recognised, having told which."""
        return taken_sensors(self.signatures, self.args, self.profile)

    @property
    def sensor(self) -> Sensors:
        """Those of the left and the right lidar."""
        return of_two(self.sensors)

    @cached_property
    def body(self) -> dict[str, Any]:
        """The settings that say what of a scan is the robot's own body."""
        return body_settings(self.profile, self.description, warn)

    @property
    def accept(self) -> tuple[float, float] | None:
        """The standard deviations (m, rad) up to which lidar to lidar is accepted."""
        if self.args.accept is None:
            return self.profile.accept
        millimetres, degrees = self.args.accept
        if not (0 < millimetres <= 1e3 and 0 < degrees <= 90):
            raise InputError(f"--accept {millimetres:g} {degrees:g}: greater than zero, at most 1000 mm and 90 deg")
        return 1e-3 * millimetres, float(np.deg2rad(degrees))

    @property
    def footprint_from_base(self) -> np.ndarray:
        """As described; the identity if the description has no base_footprint."""
        return np.eye(4) if self.frames.footprint_from_base is None else self.frames.footprint_from_base

    def every_cloud(self, limit: int) -> dict[str, list[np.ndarray]]:
        """Return up to `limit` clouds (N, 5 or 3) of every lidar of a robot with more than two by name, as many of
        each."""
        topics, frames = (named(self.args, self.profile.further) for named in (_topics, _frames))
        return recorded_clouds(self.recording, topics, frames, limit, warn)

    def pairs(self, limit: int, label: str, read=returns_from_message):
        """Yield up to `limit` (left, right) with a progress bar, then print how many clouds were used; `read`
        makes a cloud of a message."""
        from stretch_sim_cal.ros.watchdog import Progress

        pairs = recorded_pairs(self.recording, self.args, limit, read)
        with Progress(label, pairs.total) as progress:
            for pair in pairs:
                yield pair
                progress.advance()
        print(f"{label}: {pairs.counts.sentence()}", file=sys.stderr)


def open_source(args: argparse.Namespace, recording: Recording) -> _Source:
    """Return an open recording as the source of a calibration. Raises `InputError` if something is missing."""
    profile = with_defaults(args)
    description = None
    if args.model:
        description = (
            nominal_description() if is_own(args.model)
            else load_urdf_text(args.model, folders=profile.description.packages)
        )  # fmt: skip
    frames = recorded_frames(
        recording, args.base_frame, args.left_frame, args.right_frame, args.footprint_frame, description,
        {name: lidar.frame for name, lidar in profile.further.items()},
    )  # fmt: skip
    if frames.footprint_from_base is None and args.footprint_frame != stretch_profile().footprint_frame:
        raise InputError(f"--footprint-frame {args.footprint_frame}: {frames.source} has no such frame")
    return _Source(recording, frames, args, recorded_description(recording) or description, profile)


def recorded_kinds(
    recording, args: argparse.Namespace, further: Further = MappingProxyType({})
) -> dict[str, Signature | InputError]:
    """Return what the first clouds of an open recording show of sensor and driver, by lidar. Raises `InputError` if a
    topic is missing."""
    topics = _topics(args, further)
    if args.left_topic == args.right_topic:  # the robot has one lidar
        del topics["right"]
    return recorded_signatures(recording, topics, SCANS, known_sensors())


def taken_sensors(found: Mapping[str, Signature | InputError], args: argparse.Namespace, profile: RobotProfile):
    """Return the kinds of a recording's lidars: `--sensor`, else as recognised, having told which. Raises `InputError`
    if several fit."""
    if args.sensor:
        return sensors_called(args.sensor)
    usual = sensors_called(profile.sensor)
    usual = for_each(usual if len(found) > 2 else of_two(usual), len(found))
    sensors, lines = recognised(found, usual, known_sensors())
    print("\n".join(lines), file=sys.stderr)
    return sensors


def run(args: argparse.Namespace) -> int:
    """Calibrate, write the accepted results, and return 0, or 1 if a result was refused."""
    if args.num_samples is not None and args.num_samples < 1:
        raise InputError(f"--num-samples: is {args.num_samples}, at least 1 is needed")
    if len(args.recording) > 1 and (args.mounts or args.only == "floor"):
        raise InputError(
            f"{'--mounts' if args.mounts else '--only floor'}: takes one recording, {len(args.recording)} were given"
        )
    if args.mounts:
        only_with(args, {"view": False, "view_file": None, "view_port": None, "view_host": None}, "alignment and floor")
        return calibrate_mounts(args)
    only_with(args, MOUNTS_DEFAULTS, "--mounts")
    if not args.drive:
        only_with(args, {"odometry_topic": None}, "--drive")
    elif len(args.recording) > 1:
        raise InputError(f"--drive: takes one recording, {len(args.recording)} were given")
    else:
        only_with(
            args, dict.fromkeys((*OTHER_OPTIONS, "max_time_difference")), "a robot that stands, not with --drive,"
        )
    view = opened(args.view, args.view_file, args.view_port, args.view_host)
    if args.only:
        other = {"alignment": "floor_method", "floor": "method"}[args.only]
        only_with(args, {other: None}, f"--only {'floor' if args.only == 'alignment' else 'alignment'}, or both,")
    for method, name in ((alignment_method, args.method), (floor_method, args.floor_method)):
        if name is not None:
            method(name)  # an unknown one shows now, not after the alignment
    if len(args.recording) > 1 and not hasattr(alignment_method(args.method or DEFAULT_ALIGNMENT_METHOD), "new_place"):
        raise InputError(f"--method {args.method}: takes one recording, {len(args.recording)} were given")
    file = CalibrationFile.load_or_empty(args.out)
    robot_id = args.robot_id or default_robot_id()
    if args.only == "floor" and file.right_to_left is None:
        raise InputError(f"{args.out}: holds no alignment of the lidars; run without --only floor first")
    outcome: dict = {}
    with contextlib.ExitStack() as stack:
        recordings = [stack.enter_context(Recording(path)) for path in args.recording]
        source = open_source(args, recordings[0])
        print(f"lidar poses from {source.frames.source} of {recordings[0].path}", file=sys.stderr)
        print("\n".join(sensor_lines(source.signatures)), file=sys.stderr)
        if args.drive:
            return _calibrate_drive(source, args, robot_id, view)
        if source.profile.further:
            return _calibrate_array(source, args, file, robot_id, view, recordings[1:])
        accepted, changes, observations = True, [], None
        if args.only != "floor":
            result, another_place = _align(source, file, recordings[1:])
            accepted = _conclude(result, "alignment", args, outcome, source, another_place)
            changes.append(lambda file: file.with_alignment(result, robot_id))
            observations = result.observations
        if args.only != "alignment" and accepted:
            if len(recordings) > 1:
                print(f"the floor is found from the first recording, {recordings[0].path}, alone", file=sys.stderr)
            if args.only == "floor":
                known, aligned = known_alignment(file), file
                observations = load_beside(file)
            else:
                known, aligned = result.known, changes[0](file)
            floor = _find_floor(source, aligned, known)
            accepted = _conclude(floor, "floor", args, outcome, source)
            changes.append(lambda file: with_floor(file, floor, robot_id, source.frames.base_from_left))
            observations = None if observations is None else replace(observations, floor=floor.by_units)
        if accepted:
            _write(args, " and ".join(outcome), changes, observations)
        elif len(changes) > 1:
            print("nothing written: --only alignment writes the alignment alone", file=sys.stderr)
        if (args.report or view) and (accepted or file.right_to_left is not None):
            _report(source, CalibrationFile.load(args.out), args.report, view)
    if args.json:
        print(json.dumps(outcome | {"file": str(args.out)}))
    return 0 if accepted else Refused.exit_code


def _align(source: _Source, file: CalibrationFile, further: list):
    """Return the alignment from a recording and from `further` ones, each of another standing place, and what one more
    would gain."""
    from stretch_sim_cal.calibration.mounts.robot import LeftMountCheck

    if source.profile.one_lidar:
        return AlignmentResult.of_one_lidar(), None
    limit = source.args.num_samples or DEFAULT_SAMPLES["alignment"]
    settings = AlignmentSettings(
        base_from_left=source.frames.base_from_left, sensor=source.sensor, **source.body, **accepting(source.accept)
    )
    check = LeftMountCheck(source.sensor, source.profile)
    method = alignment_method(source.args.method or DEFAULT_ALIGNMENT_METHOD)(source.frames.right_to_left, settings)
    for left, right in source.pairs(limit, "aligning"):
        method.add(*given_clouds(method, left, right))
        check.add({"left": left, "right": right})
    for recording in further:
        method.new_place()
        for left, right in replace(source, recording=recording).pairs(limit, f"aligning ({recording.path.name})"):
            method.add(*given_clouds(method, left, right))
    joints = recorded_joints(source.recording)
    result, unchecked = check.with_warning(method.solve(), source.description, joints, file)
    if unchecked:
        print(unchecked, file=sys.stderr)
    return result, gain_of_another_place(method, result)


def _calibrate_array(
    source: _Source, args: argparse.Namespace, file: CalibrationFile, robot_id: str, view, further: list
) -> int:  # fmt: skip
    """Calibrate more than two lidars, in one estimate unless other methods are named, by a recording and by `further`
    ones, each of another standing place, write what is accepted, and return the exit code. With `--only floor` the
    lidars begin where the file has them, and nothing but the floor is written."""
    from stretch_sim_cal.calibration.array import ArrayLidar, LidarArray, with_lidars
    from stretch_sim_cal.calibration.array_methods import ArrayFloor, array_alignment
    from stretch_sim_cal.ros.watchdog import Progress

    lidars, frames = source.profile.every_lidar, source.frames
    method, floor_by = args.method or DEFAULT_ALIGNMENT_METHOD, args.floor_method or DEFAULT_FLOOR_METHOD
    base_from_lidar = {"left": frames.base_from_left, "right": frames.base_from_left @ frames.right_to_left}
    base_from_lidar |= frames.base_from_further
    only_floor, with_floor_too = args.only == "floor", args.only != "alignment"
    to_left = {name: inverse(frames.base_from_left) @ pose for name, pose in base_from_lidar.items()}
    if only_floor:
        check_lidars(file, source.profile.further)
        to_left |= file.to_left
    left = left_pose(file, frames.base_from_left)
    base_from_lidar = {name: left @ to_left[name] for name in base_from_lidar}
    limits = {stage: args.num_samples or DEFAULT_SAMPLES[stage] for stage in ("alignment", "floor")}
    clouds = source.every_cloud(limits["floor" if only_floor else "alignment"])
    sensors = dict(zip(lidars, for_each(source.sensors, len(lidars)), strict=True))
    given = {name: ArrayLidar(base_from_lidar[name], sensor) for name, sensor in sensors.items()}
    if further and with_floor_too:
        print(f"the floor is found from the first recording, {source.recording.path}, alone", file=sys.stderr)

    def seen(of_each: Mapping[str, list[np.ndarray]], limit: int, what: str) -> Iterator[dict[str, np.ndarray]]:
        together = [dict(zip(of_each, each, strict=True)) for each in zip(*of_each.values(), strict=True)][:limit]
        with Progress(f"{what} with {len(lidars)} lidars", len(together)) as progress:
            for each in together:
                yield each
                progress.advance()

    stages, changes, floor, observations = [], [], None, load_beside(file)
    if not only_floor:
        jointly = with_floor_too and (method, floor_by) == (DEFAULT_ALIGNMENT_METHOD, DEFAULT_FLOOR_METHOD)
        array = array_alignment(method, given, source.body, source.accept)
        if jointly:
            array = LidarArray(given, source.footprint_from_base, True, source.body, source.accept)
        for number, each in enumerate(seen(clouds, limits["alignment"], "looking")):
            array.add(each, floor=number < limits["floor"])
        for recording in further:
            array.new_place()
            there = replace(source, recording=recording).every_cloud(limits["alignment"])
            for each in seen(there, limits["alignment"], f"looking from {recording.path.name}"):
                array.add(each, floor=False)
        result = array.solve()
        floor, observations = result.floor, result.observations
        numbers = summaries.array_numbers(result, base_from_lidar)
        stages.append(("lidars", result, numbers, summaries.array_lines(result, numbers)))
        changes.append(lambda file: with_lidars(file, result, robot_id))
        given = {name: replace(lidar, base_from_lidar=result.base_from_lidar[name]) for name, lidar in given.items()}
    if with_floor_too and (only_floor or result.accepted):
        if floor is None:
            by_all = ArrayFloor(floor_by, given, source.footprint_from_base, source.body)
            for each in seen(clouds, limits["floor"], "looking at the floor"):
                by_all.add(each)
            floor = by_all.solve()
        numbers = summaries.floor_numbers(floor, source.footprint_from_base)
        stages.append(("floor", floor, numbers, summaries.floor_lines(floor, numbers)))
        changes.append(lambda file: with_floor(file, floor, robot_id, frames.base_from_left))
        observations = observations and replace(observations, floor=floor.by_units)
    return _ended(source, args, view, stages, changes, clouds, base_from_lidar, observations)


def _ended(
    source: _Source, args: argparse.Namespace, view, stages: Sequence[tuple], changes: Sequence[Callable],
    clouds: Mapping[str, list[np.ndarray]], base_from_lidar: Mapping[str, np.ndarray],
    observations: Observations | None = None, written: Sequence[str] = (),
) -> int:  # fmt: skip
    """Tell the `stages` (name, result, numbers, lines), write them (those `written`; by default all) with the
    `observations` if they are all accepted, draw what the lidars saw, and return the exit code."""
    outcome, accepted = {}, True
    for stage, found, numbers, lines in stages:
        tell(found, [] if args.json else lines)
        outcome[stage] = _as_json(found, numbers)
        accepted &= found.accepted
    if accepted:
        _write(args, " and ".join(written or outcome), changes, observations)
    if (args.report or view) and accepted:
        few = {name: np.concatenate(own[:3]) for name, own in clouds.items()}
        _array_report(source, few, base_from_lidar, CalibrationFile.load(args.out), args.report, view)
    if args.json:
        print(json.dumps(outcome | {"file": str(args.out)}))
    return 0 if accepted else Refused.exit_code


def _calibrate_drive(source: _Source, args: argparse.Namespace, robot_id: str, view) -> int:
    """Calibrate the lidars of a robot that drove against each other, the floor and the wheels, write what is accepted,
    and return the exit code."""
    from stretch_sim_cal.calibration.array import ArrayLidar
    from stretch_sim_cal.calibration.drive_results import agreements, drive_stages, with_drive
    from stretch_sim_cal.calibration.driving import DrivenArray, DrivingSettings
    from stretch_sim_cal.calibration.mounts.file import stored_mounts
    from stretch_sim_cal.recording.stations import recorded_stations
    from stretch_sim_cal.ros.watchdog import Progress

    lidars, frames, profile = source.profile.every_lidar, source.frames, source.profile
    settings = DrivingSettings() if profile.base is None else DrivingSettings(track_width=profile.base.track_width)
    topics = {name: getattr(args, f"{name}_topic", lidar.topic) for name, lidar in lidars.items()}
    named = {name: getattr(args, f"{name}_frame", lidar.frame) for name, lidar in lidars.items()}
    stations = recorded_stations(
        source.recording, args.odometry_topic or profile.driven_base.odometry, topics, named,
        args.num_samples or DEFAULT_SAMPLES["drive"], warn,
    )  # fmt: skip
    described = {"left": frames.base_from_left, "right": frames.base_from_left @ frames.right_to_left}
    described = {name: pose for name, pose in (described | frames.base_from_further).items() if name in lidars}
    sensors = for_each(source.sensors if len(lidars) > 1 else by_lidar(source.sensors)[0], len(lidars))
    driven = DrivenArray(
        {name: ArrayLidar(pose, sensor) for (name, pose), sensor in zip(described.items(), sensors, strict=True)},
        source.footprint_from_base, settings, source.body, source.accept,
    )  # fmt: skip
    with Progress("looking from every stop", len(stations)) as progress:
        for station in stations:
            driven.new_station(station.odometry)
            for together in zip(*station.clouds.values(), strict=True):
                driven.add(dict(zip(station.clouds, together, strict=True)))
            progress.advance()
    result = driven.solve()
    stages = drive_stages(result, described, source.footprint_from_base)
    changes = [lambda file: with_drive(file, result, robot_id, described)]
    kept = stored_mounts(CalibrationFile.load_or_empty(args.out)) is not None  # lidars and floor stay with these
    code = _ended(
        source, args, view, stages, changes, stations[0].clouds, described, written=["wheels"] if kept else ()
    )  # fmt: skip
    for each in agreements(CalibrationFile.load(args.out)) if kept and code == 0 else ():
        if not args.json:
            print(each.sentence())
        for finding in each.findings():
            warn(str(finding))
    return code


def _array_report(source: _Source, clouds, base_from_lidar, file: CalibrationFile, folder: Path | None, view) -> None:
    """Draw every lidar's cloud with the left one's before and after, and the floor."""
    from stretch_sim_cal.harness.clouds_3d import CapturedClouds
    from stretch_sim_cal.harness.report import clouds as both_clouds
    from stretch_sim_cal.harness.report import drawn, floor_picture, write_page
    from stretch_sim_cal.harness.run_view import show_calibrated, show_described

    parts = []
    for name in list(clouds)[1:]:
        seen = CapturedClouds(
            {"left": clouds["left"], "right": clouds[name]},
            {"left": base_from_lidar["left"], "right": base_from_lidar[name]}, name,
        )  # fmt: skip
        if view is not None:
            view.stage(f"described: left and {name}")
            show_described(view, seen)
            view.stage(f"calibrated: left and {name}")
            show_calibrated(view, seen, file)
        if folder is not None:
            title = f"Lidars left and {name} before and after alignment"
            parts.append(drawn(title, lambda seen=seen: both_clouds(seen, file)))
            if file.footprint_from_base is not None:
                parts.append(drawn(f"Floor residuals, left and {name}", lambda seen=seen: floor_picture(seen, file)))
    if view is not None:
        view.close()
    if folder is not None:
        page = write_page(folder / "report.html", f"Calibration from {source.recording.path.name}", parts)
        print(f"report: {page}", file=sys.stderr)


def _find_floor(source: _Source, file: CalibrationFile, known: Observations):
    settings = FloorSettings(sensor=source.sensor, observations=known, **source.body)
    base_from_left = left_pose(file, source.frames.base_from_left)
    method_class = floor_method(source.args.floor_method or DEFAULT_FLOOR_METHOD)
    method = method_class(base_from_left, file.right_to_left, source.footprint_from_base, settings)
    for left, right in source.pairs(source.args.num_samples or DEFAULT_SAMPLES["floor"], "looking at the floor"):
        method.add(*given_clouds(method, left, right))
    return method.solve()


def _conclude(result, stage: str, args: argparse.Namespace, outcome: dict, source: _Source, another_place=None) -> bool:
    """Print a stage's result, and what another standing place would gain; return whether it is accepted."""
    if result.method == ONE_LIDAR:
        numbers, lines = {}, ["one lidar: there is nothing to align"]
    elif stage == "alignment":
        numbers = summaries.alignment_numbers(
            result, source.frames.right_to_left, source.frames.base_from_left, another_place
        )
        lines = summaries.alignment_lines(result, numbers)
    else:
        numbers = summaries.floor_numbers(result, source.footprint_from_base)
        lines = summaries.floor_lines(result, numbers)
    tell(result, [] if args.json else lines)
    outcome[stage] = _as_json(result, numbers)
    return result.accepted


def _write(
    args: argparse.Namespace, what: str, changes: Sequence[Callable[[CalibrationFile], CalibrationFile]],
    observations: Observations | None = None,
) -> None:  # fmt: skip
    """Write all accepted results together with their observations, if they have any, and then say so."""

    def changed(file: CalibrationFile) -> CalibrationFile:
        for change in changes:
            file = change(file)
        return file

    CalibrationFile.update(args.out, changed, None if observations is None else observations.beside(args.out))
    if not args.json:
        print(f"accepted: {what} written to {args.out}")


def _report(source: _Source, file: CalibrationFile, folder: Path | None, view) -> None:
    """Draw clouds and floor before and after, as a page in `folder` and in 3D in `view`, as
    far as these are asked for."""
    from stretch_sim_cal.harness.clouds_3d import CapturedClouds
    from stretch_sim_cal.harness.report import clouds, drawn, floor_picture, write_page
    from stretch_sim_cal.harness.run_view import show_calibrated, show_described

    left, right = (np.concatenate(parts) for parts in zip(*source.pairs(3, "drawing"), strict=True))
    base_from_left = source.frames.base_from_left
    described = {"left": base_from_left, "right": base_from_left @ source.frames.right_to_left}
    seen = CapturedClouds({"left": left, "right": right}, described)
    if view is not None:
        view.stage("described")
        show_described(view, seen)
        view.stage("alignment")
        show_calibrated(view, seen, file)
        view.close()
    if folder is None:
        return
    parts = [drawn("Both clouds before and after alignment", lambda: clouds(seen, file))]
    if file.footprint_from_base is not None:
        parts.append(drawn("Floor residuals", lambda: floor_picture(seen, file)))
    page = write_page(folder / "report.html", f"Calibration from {source.recording.path.name}", parts)
    print(f"report: {page}", file=sys.stderr)


MOUNTS_DEFAULTS = {"with_joint_offsets": False, "link_mm": 1.0, "link_deg": 0.1}
OTHER_OPTIONS = ("only", "method", "floor_method")
POSE_SAMPLES = 5  # pairs of clouds in each arm pose
BEYOND_REACH = 0.1  # m beyond a robot's reach from its lidars within which returns are kept
SCAN_PERIOD = 0.1  # s, of lidars that no sensor file describes


def add_mounts_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--mounts` and its options."""
    group = parser.add_argument_group("absolute poses of the lidars")
    group.add_argument(
        "--mounts", action="store_true",
        help="find each lidar's extrinsics in base_link, from the arm poses in which the joints of the recording "
        "stand still; it may also be a folder of arm poses, as ros_calibrate_lidar_mounts and "
        "ros_collect_body_shape_data write it",
    )  # fmt: skip
    group.add_argument(
        "--with-joint-offsets", action="store_true", help="find the zeros of lift, arm and wrist yaw as well"
    )
    group.add_argument(
        "--link-mm", type=float, default=MOUNTS_DEFAULTS["link_mm"],
        help="how far links may be off, one sigma (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--link-deg", type=float, default=MOUNTS_DEFAULTS["link_deg"],
        help="how far they may be turned (default: %(default)s)",
    )  # fmt: skip


def calibrate_mounts(args: argparse.Namespace) -> int:
    """Find the mounts, write them if the data supports them, and return 0, or 1 if they were refused."""
    from stretch_sim_cal.calibration.mounts.robot import mount_settings, proposed, solve_dataset
    from stretch_sim_cal.calibration.summaries import mount_lines, mount_numbers
    from stretch_sim_cal.recording.dataset import read_dataset

    only_with(args, dict.fromkeys(OTHER_OPTIONS), "a recording, not with --mounts,")
    path = args.recording[0]
    in_recording = is_recording(path)
    if in_recording:
        only_with(args, dict.fromkeys(("base_frame", "footprint_frame")), "a recording, not with --mounts,")
    else:
        of_recordings = (*recorded_names(stretch_profile()), "max_time_difference", "num_samples")
        only_with(args, dict.fromkeys(of_recordings), "a recording")
    profile = with_defaults(args)
    settings = mount_settings(
        link_mm=args.link_mm, link_deg=args.link_deg, with_joint_offsets=args.with_joint_offsets,
        sensor=_mounts_sensor(path, args, profile) if in_recording else sensors_called(args.sensor or profile.sensor),
        profile=profile,
    )  # fmt: skip
    model = nominal_description() if args.model and is_own(args.model) else args.model
    file = CalibrationFile.load_or_empty(args.out)
    if in_recording:
        result, robot = _from_recording(path, args, file, settings, model, profile)
    else:
        result, robot = solve_dataset(read_dataset(path), file, settings, model, profile)
    numbers = mount_numbers(result, robot.nominal, each_mount(file, result))
    tell(result, [] if args.json else mount_lines(result, numbers, proposed(result, robot, settings), profile))
    if result.accepted:
        robot_id, file = args.robot_id or default_robot_id(), CalibrationFile.load_or_empty(args.out)
        observations = load_beside(file)
        _write(
            args, "mounts",
            [lambda file: with_mounts(file, result, robot_id, robot.nominal["left"], observations=observations)],
            observations and observations.better(result.units),
        )  # fmt: skip
    if args.report:
        from stretch_sim_cal.harness.report import mounts_page

        print(f"report: {mounts_page(args.report, result)}", file=sys.stderr)
    if args.json:
        print(json.dumps({"mounts": _as_json(result, numbers), "file": str(args.out)}))
    return 0 if result.accepted else Refused.exit_code


def _described(recording: Recording, path: Path, model):
    """Return the robot's description: `model`, or that of an open recording. Raises `InputError` without any."""
    source = model or recorded_description(recording)
    if source is None:
        raise InputError(f"{path}: has no /robot_description; name the robot's description with --model")
    return source


def _mounts_sensor(path: Path, args: argparse.Namespace, profile: RobotProfile) -> Sensors:
    """Return the kinds of the lidars in a recording."""
    with Recording(path) as recording:
        _described(recording, path, args.model)
        return taken_sensors(recorded_kinds(recording, args, profile.further), args, profile)


def _from_recording(
    path: Path, args: argparse.Namespace, file: CalibrationFile, settings, model, profile: RobotProfile
):
    """Return the mounts from the poses in a recording, and the robot."""
    from stretch_sim_cal.calibration.mounts.rays import REACH
    from stretch_sim_cal.calibration.mounts.robot import MountedRobot, solve_samples

    with Recording(path) as recording:
        source = _described(recording, path, model)
        robot = MountedRobot(load_model(source, mesh_folders=profile.description.packages), profile)
        period = max(
            (each.period for each in by_lidar(settings.sensor, len(robot.nominal)) if each is not None),
            default=SCAN_PERIOD,
        )
        poses = still_poses(recording, robot.model, profile)
        topics, frames = (named(args, profile.further) for named in (_topics, _frames))
        sets = RecordedSets(recording, topics, frames, args.max_time_difference, sys.maxsize, warn)
        seen = seen_poses(sets, poses, args.num_samples or POSE_SAMPLES, period, REACH + BEYOND_REACH)
    counts = [pose.num_frames for pose in seen]
    print(f"arm poses: {len(seen)}, with {min(counts)} to {max(counts)} scans of each lidar", file=sys.stderr)
    samples = [
        robot.sample(f"{path.name}: pose {number}", each.pose.joints, each.clouds, settings.joint_offsets)
        for number, each in enumerate(seen, start=1)
    ]
    return solve_samples(robot, samples, file, settings), robot


def _as_json(result, numbers: dict) -> dict:
    outcome = {"accepted": result.accepted, "warnings": result.warnings, "refusals": result.refusals}
    return summaries.plain(numbers) | outcome
