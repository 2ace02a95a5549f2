"""`stretch-sim-cal calibrate RECORDING --out FILE`: alignment and floor from a rosbag2 recording, no ROS needed; with
`--mounts` the lidar extrinsics from arm poses, with `--drive` all, and the lidars to the wheels, from a drive."""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration import methods
from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_robot_id
from stretch_sim_cal.calibration.checks import check_lidars
from stretch_sim_cal.calibration.mounts.file import left_pose
from stretch_sim_cal.calibration.mounts.residuals import REACH
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, mount_settings, solve_dataset, solve_samples
from stretch_sim_cal.calibration.pipeline import Clouds, alignment_of, placed, together
from stretch_sim_cal.calibration.summaries import plain
from stretch_sim_cal.collection import stages as shared
from stretch_sim_cal.collection.stages import Outcome
from stretch_sim_cal.command import only_with, warn
from stretch_sim_cal.commands import recorded
from stretch_sim_cal.commands.described import source_of
from stretch_sim_cal.commands.recorded import Source
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.harness.pages import Section, rendered
from stretch_sim_cal.recording.dataset import read_dataset
from stretch_sim_cal.recording.rosbag import Recording, is_recording
from stretch_sim_cal.recording.stations import NONE_MOVING, recorded_stations, seen_poses, still_poses
from stretch_sim_cal.recording.topics import RecordedSets, recorded_description, recorded_joints, sensor_lines
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.ros.node_commands import IN_3D, MOUNT_OPTIONS, STAGE_NODES, VIEW_OPTIONS
from stretch_sim_cal.ros.options import add_group
from stretch_sim_cal.ros.watchdog import progressing
from stretch_sim_cal.sensor.sensor import for_each, sensors_called
from stretch_sim_cal.validate import ACCEPT
from stretch_sim_cal.view import opened

EXAMPLE = "stretch-sim-cal calibrate my_recording --out dual_lidar_calibration.yaml --report report"
DEFAULT_SAMPLES = {each: STAGE_NODES[each].option("num_samples").default for each in ("alignment", "floor")}
DEFAULT_SAMPLES["drive"] = 10
OF_STANDING, OF_DRIVING = ("only", "method", "floor_method"), ("odometry_topic", "continuous")
POSE_SAMPLES = 5  # pairs of clouds in each arm pose
BEYOND_REACH = 0.1  # m beyond a robot's reach from its lidars within which returns are kept
SCAN_PERIOD = 0.1  # s, of lidars that no sensor file describes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("recording", type=Path, nargs="+",
        help="a rosbag2 folder, or a single .mcap or .db3 file; several, if the robot was moved or turned in between: "
        "the alignment uses all, the floor only the first")  # fmt: skip
    add("--out", type=Path, required=True, metavar="FILE", help="calibration file to write or to update")
    add("--only", choices=("alignment", "floor"), help="only one of the two; the floor needs an alignment in FILE")
    add("--report", type=Path, metavar="DIR", help="write an HTML report into this folder")
    add("--num-samples", type=int, metavar="N",
        help="pairs of clouds to use (default: 100 for alignment, 30 for floor, 5 in each arm pose with --mounts, 10 "
        "at each stop with --drive)")  # fmt: skip
    recorded.add_recording_arguments(parser)
    accept = "largest accepted standard deviations of the alignment (default: the profile's, or 5 mm and 0.1 deg)"
    add("--accept", nargs=2, type=float, metavar=("MM", "DEG"), help=accept)
    add("--method", metavar="NAME", help=f"alignment method; {methods.ALIGNMENT_METHODS_HELP}")
    add("--floor-method", metavar="NAME", help=f"floor method; {methods.FLOOR_METHODS_HELP}")
    add("--robot-id", metavar="ID", help="the robot's ID in the file (default: $HELLO_FLEET_ID)")
    add_group(parser, IN_3D, VIEW_OPTIONS)
    add("--drive", action="store_true",
        help="the robot drove, with stops of 2 s or more: estimate lidar to lidar, floor, and the lidars relative "
        "to the centre of rotation and the direction of driving")  # fmt: skip
    add("--odometry-topic", metavar="TOPIC", help="with --drive: topic of wheel odometry (default: the profile's)")
    moving = "with --drive: also use scans taken while moving, which need a time for each point"
    add("--continuous", action="store_true", help=moving)
    group = parser.add_argument_group("absolute poses of the lidars")
    group.add_argument("--mounts", action="store_true",
        help="find each lidar's extrinsics in base_link, from the arm poses in which the joints of the recording "
        "stand still; it may also be a folder of arm poses, as ros_calibrate_lidar_mounts and "
        "ros_collect_body_shape_data write it")  # fmt: skip
    for option in MOUNT_OPTIONS:
        option.add_to(group)


def _check(args: argparse.Namespace) -> None:
    """Raise `InputError` for an option that cannot be used, or that nothing would read; `accept` becomes m and rad."""

    def takes_one_recording(option: str) -> None:
        if len(args.recording) > 1:
            raise InputError(f"{option}: takes one recording, {len(args.recording)} were given")

    if args.num_samples is not None and args.num_samples < 1:
        raise InputError(f"--num-samples: is {args.num_samples}, at least 1 is needed")
    if args.report and args.report.is_file():
        raise InputError(f"--report {args.report}: is a file; give a folder")
    if args.accept is not None:
        millimetres, degrees = args.accept
        for value, (_, most), unit in zip(args.accept, ACCEPT.values(), ("mm", "deg"), strict=True):
            if not 0 < value <= most:
                bound = f"at most {most:g} {unit}" if value > most else "greater than zero"
                raise InputError(f"--accept {millimetres:g} {degrees:g}: {value:g} {unit} must be {bound}")
        args.accept = 1e-3 * millimetres, float(np.deg2rad(degrees))
    if args.mounts:
        takes_one_recording("--mounts")
        only_with(args, [*(option.name for option in VIEW_OPTIONS), "accept"], "alignment and floor")
        only_with(args, ["drive", *OF_DRIVING], "a robot that drove, not with --mounts")
        only_with(args, OF_STANDING, "a recording, not with --mounts")
        return
    only_with(args, [option.name for option in MOUNT_OPTIONS], "--mounts")
    if args.drive:
        takes_one_recording("--drive")
        only_with(args, [*OF_STANDING, "max_time_difference"], "a standing robot, not with --drive")
    else:
        only_with(args, OF_DRIVING, "--drive")
    if args.only == "floor":
        takes_one_recording("--only floor")
        only_with(args, ["method", "accept"], "--only alignment, or both")
    elif args.only == "alignment":
        only_with(args, ["floor_method"], "--only floor, or both")
    if args.floor_method is not None:
        methods.floor_method(args.floor_method)  # an unknown one shows now, not after the alignment
    if not hasattr(methods.alignment_method(args.method or methods.DEFAULT_ALIGNMENT_METHOD), "new_place"):
        takes_one_recording(f"--method {args.method}")


def run(args: argparse.Namespace) -> int:
    """Calibrate, write the accepted results, and return 0, or 1 if a result was refused."""
    _check(args)
    if args.mounts:
        return calibrate_mounts(args)
    view = opened(args)
    file = CalibrationFile.load_or_empty(args.out)
    if args.only == "floor" and not file.aligned:
        raise InputError(f"{args.out}: has no alignment of the lidars; run without --only floor first")
    with contextlib.ExitStack() as stack:
        first, *further = [stack.enter_context(Recording(path)) for path in args.recording]
        source = recorded.open_source(args, first)
        print(f"{first.path}: lidar poses from {source.tree.source}", file=sys.stderr)
        print("\n".join(sensor_lines(source.signatures)), file=sys.stderr)
        if args.drive:
            return _calibrate_drive(source, file, view)
        return _calibrate_standing(source, file, further, view)


def _calibrate_standing(source: Source, file: CalibrationFile, further: Sequence[Recording], view: Any) -> int:
    """Calibrate by a recording of a robot that stands, and `further` ones, each of another standing place; return the
    exit code. With `--only floor` the lidars are where the file has them."""
    args, described = source.args, source.described["left"]
    with_floor_too, robot_id = args.only != "alignment", args.robot_id or default_robot_id()
    left = left_pose(file, described) if with_floor_too else described
    found: Outcome | None = None
    if args.only == "floor":
        check_lidars(file, source.profile.lidars)
        lidars, aligned = placed(source.lidars, file.lidars_at(left)), None
    else:
        begin, limit = left @ inverse(described), _samples(args, "alignment")
        lidars = placed(source.lidars, {name: begin @ pose for name, pose in source.described.items()})
        name, accept = args.method or methods.DEFAULT_ALIGNMENT_METHOD, args.accept or source.profile.accept
        found = shared.align(
            source, alignment_of(name, lidars, source.body, accept), lidars, source.clouds(limit, "aligning"),
            recorded_joints(source.recording), file, robot_id,
            (replace(source, recording=each).clouds(limit, f"aligning ({each.path.name})") for each in further),
        )  # fmt: skip
        if found.note:
            print(found.note, file=sys.stderr)
        shared.tell(found, warn, args.json)
        aligned = found.stages[0].result
        lidars = placed(lidars, aligned.base_from_lidar)
    if with_floor_too and (found is None or found.accepted):
        if further:
            print(f"the floor is estimated from the first recording only, {source.recording.path}", file=sys.stderr)
        clouds = source.clouds(_samples(args, "floor"), "recording the floor")
        method = args.floor_method or methods.DEFAULT_FLOOR_METHOD
        floor = shared.find_floor(source, method, lidars, clouds, file, described, robot_id, aligned)
        shared.tell(floor, warn, args.json)
        if found is not None and len(lidars) > 1 and not floor.accepted:
            print("nothing written: --only alignment writes only the alignment", file=sys.stderr)
        found = floor if found is None else found.then(floor)
    return _ended(source, found, source.clouds(3, "drawing"), view)


def _samples(args: argparse.Namespace, stage: str) -> int:
    return args.num_samples or DEFAULT_SAMPLES[stage]


def _calibrate_drive(source: Source, file: CalibrationFile, view: Any) -> int:
    """Calibrate the lidars of a robot that drove against each other, the floor and the wheels; return the exit code."""
    args, profile = source.args, source.profile
    stations = recorded_stations(
        source.recording, args.odometry_topic or profile.driven_base.odometry, source.topics, source.frames,
        _samples(args, "drive"), warn, args.continuous,
    )  # fmt: skip
    if args.continuous and all(station.sweep is None for station in stations):
        warn(NONE_MOVING)
    robot_id, seen = args.robot_id or default_robot_id(), progressing(stations, "reading every stop")
    result = shared.solve_drive(source, source.lidars, seen, args.accept or profile.accept)
    found = shared.drive(source, result, file, robot_id)
    shared.tell(found, warn, args.json)
    drawn = together({name: own[:3] for name, own in stations[0].clouds.items()})
    return _ended(source, found, drawn, view)


def _ended(source: Source, found: Outcome, clouds: Iterable[Clouds], view: Any) -> int:
    """Write what was `found` if it is accepted, draw the `clouds`; return the exit code."""
    args = source.args
    if found.accepted:
        shared.write(args.out, found, source.profile, args.json)
    if args.report or view:
        file = CalibrationFile.load_or_empty(args.out)
        if found.accepted or file.aligned or args.report:
            _report(source, file, clouds, view, found)
    return _answer(args, found)


def _answer(args: argparse.Namespace, found: Outcome) -> int:
    """Print the stages as JSON if that is asked for, and return the exit code."""
    if args.json:
        answer: dict[str, Any] = {}
        for stage in found.stages:
            outcome = {name: getattr(stage.result, name) for name in ("accepted", "warnings", "refusals")}
            answer[stage.name] = plain(stage.numbers) | outcome
        print(json.dumps(answer | {"file": str(args.out)}))
    return 0 if found.accepted else Refused.exit_code


def _report(source: Source, file: CalibrationFile, clouds: Iterable[Clouds], view: Any, found: Outcome) -> None:
    """Draw the lidars' clouds before and after, and the floor, as a page and in `view`. Of a refused result the page
    has the reasons, and the clouds where it has them."""
    from stretch_sim_cal.harness.clouds_3d import CapturedClouds, show_calibrated, show_described
    from stretch_sim_cal.harness.report import clouds as all_clouds
    from stretch_sim_cal.harness.report import drawn, floor_picture, refused_clouds, write_page

    every, described = list(clouds), source.described
    returns = {name: np.concatenate([each[name] for each in every]) for name in described}
    seen = CapturedClouds(returns, described)
    if view is not None:
        view.stage("described")
        show_described(view, seen)
        if file.to_left:
            view.stage("alignment")
            show_calibrated(view, seen, file)
        view.close()
    if source.args.report is not None:
        refused = not found.accepted
        parts = [Section("Refused" if refused else "Result", html=rendered("said", stages=found.stages))]
        results = [stage.result for stage in found.stages]
        poses = next((each.base_from_lidar for each in results if hasattr(each, "base_from_lidar")), None)
        if len(returns) > 1 and refused and poses is not None:
            parts.append(drawn("Clouds as described and as found", lambda: refused_clouds(seen, poses)))
        elif len(returns) > 1:
            parts.append(drawn("Clouds before and after alignment", lambda: all_clouds(seen, file)))
        if not refused and file.footprint_from_base is not None:
            parts.append(drawn("Floor residuals", lambda: floor_picture(seen, file)))
        page = write_page(source.args.report / "report.html", f"Calibration from {source.recording.path.name}", parts)
        print(f"report: {page}", file=sys.stderr)


def calibrate_mounts(args: argparse.Namespace) -> int:
    """Find the mounts, write them if the data supports them, and return 0, or 1 if they were refused."""
    path = args.recording[0]
    in_recording = is_recording(path)
    if in_recording:
        only_with(args, ["base_frame", "footprint_frame"], "a recording, not with --mounts")
    else:
        only_with(args, [*recorded.NAMES, "max_time_difference", "num_samples"], "a recording")
    profile, file = recorded.with_defaults(args), CalibrationFile.load_or_empty(args.out)
    model = args.model and source_of(args.model)
    settings_for = partial(
        mount_settings, link_mm=args.link_mm, link_deg=args.link_deg, with_joint_offsets=args.with_joint_offsets,
        profile=profile,
    )  # fmt: skip
    if in_recording:
        with Recording(path) as recording:
            if (source := model or recorded_description(recording)) is None:
                raise InputError(f"{path}: has no /robot_description; name the robot's description with --model")
            found = recorded.recorded_kinds(recording, recorded.topics_and_frames(args, profile)[0], profile)
            settings = settings_for(sensor=recorded.taken_sensors(found, args, profile))
            robot = MountedRobot(load_model(source, mesh_folders=profile.description.packages), profile)
            samples = _recorded_samples(recording, args, settings, robot)
        result = solve_samples(robot, samples, file, settings)
    else:
        settings = settings_for(sensor=sensors_called(args.sensor or profile.sensor))
        result, robot = solve_dataset(read_dataset(path), file, settings, model, profile)
    outcome = shared.by_mounts(result, robot, settings, file, args.robot_id or default_robot_id())
    shared.tell(outcome, warn, args.json)
    if outcome.accepted:
        shared.write(args.out, outcome, profile, args.json)
    if args.report:
        from stretch_sim_cal.harness.report import mounts_page

        print(f"report: {mounts_page(args.report, result)}", file=sys.stderr)
    return _answer(args, outcome)


def _recorded_samples(recording: Recording, args: argparse.Namespace, settings: Any, robot: Any) -> list[Any]:
    periods = [each.period for each in for_each(settings.sensor, len(robot.nominal)) if each is not None]
    poses = still_poses(recording, robot.model, robot.profile)
    named = recorded.topics_and_frames(args, robot.profile)
    sets = RecordedSets(recording, *named, args.max_time_difference, sys.maxsize, warn)
    period = max(periods, default=SCAN_PERIOD)
    seen = seen_poses(sets, poses, args.num_samples or POSE_SAMPLES, period, REACH + BEYOND_REACH)
    counts = [len(pose.scans) for pose in seen]
    print(f"arm poses: {len(seen)}, with {min(counts)} to {max(counts)} scans of each lidar", file=sys.stderr)
    return [
        robot.sample(f"{recording.path.name}: pose {number}", each.joints, each.clouds, settings.joint_offsets)
        for number, each in enumerate(seen, start=1)
    ]
