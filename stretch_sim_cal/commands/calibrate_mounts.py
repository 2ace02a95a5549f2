"""`stretch-sim-cal calibrate RECORDING --mounts`: the lidars' extrinsics in base_link, from recorded arm poses."""

import argparse
import json
import sys
from pathlib import Path

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_robot_id
from stretch_sim_cal.calibration.summaries import plain
from stretch_sim_cal.command import only_with, tell, warn
from stretch_sim_cal.commands.fk import is_own
from stretch_sim_cal.errors import InputError, Refused

MOUNTS_DEFAULTS = {"with_joint_offsets": False, "link_mm": 1.0, "link_deg": 0.1}
OTHER_OPTIONS = ("only", "method", "floor_method")
POSE_SAMPLES = 5  # pairs of clouds in each arm pose
BEYOND_REACH = 0.1  # m that returns are kept beyond what a robot can be from its lidars
SCAN_PERIOD = 0.1  # s, of lidars that no sensor file describes


def add_mounts_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what belongs to `--mounts`."""
    group = parser.add_argument_group("absolute poses of the lidars")
    group.add_argument(
        "--mounts", action="store_true",
        help="find where each lidar is in base_link, from the arm poses in which the joints of the recording stand still; it "
        "may also be a folder of arm poses, as ros_calibrate_lidar_mounts and ros_collect_body_shape_data write it",
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


def calibrate_mounts(args: argparse.Namespace, recorded: dict) -> int:
    """Find the mounts, write them if the data supports them, and return 0, or 1 where they were refused.

    `recorded` are the defaults, by name, of the options that say what is what in a recording.
    """
    from stretch_sim_cal.calibration.mounts.file import with_mounts
    from stretch_sim_cal.calibration.observations import load_beside, path_beside
    from stretch_sim_cal.recording.rosbag import is_recording
    from stretch_sim_cal.robot.stretch import nominal_description
    from stretch_sim_cal.ros.mounts_solve import mount_lines, mount_numbers, mount_settings, proposed, solve_mounts
    from stretch_sim_cal.sensor.sensor import sensor_called

    only_with(args, dict.fromkeys(OTHER_OPTIONS), "a recording, not with --mounts,")
    path = args.recording[0]
    in_recording = is_recording(path)
    if in_recording:
        unread = {name: recorded[name] for name in ("base_frame", "footprint_frame")}
        only_with(args, unread, "a recording, not with --mounts,")
    else:
        only_with(args, recorded | {"num_samples": None}, "a recording")
    settings = mount_settings(
        link_mm=args.link_mm, link_deg=args.link_deg, with_joint_offsets=args.with_joint_offsets,
        sensor=sensor_called(args.sensor),
    )  # fmt: skip
    model = nominal_description() if args.model and is_own(args.model) else args.model
    file = CalibrationFile.load_or_empty(args.out)
    if in_recording:
        result, robot = _from_recording(path, args, file, settings, model)
    else:
        result, robot = solve_mounts(path, file, settings, model)
    numbers = mount_numbers(result, robot.nominal)
    tell(result, [] if args.json else mount_lines(result, numbers, proposed(result, robot, settings)))
    if result.accepted:
        robot_id, file = args.robot_id or default_robot_id(), CalibrationFile.load_or_empty(args.out)
        observations = load_beside(args.out, file.right_to_left)
        with_mounts(file, result, robot_id, robot.nominal["left"], observations=observations).save(args.out)
        if observations is not None and observations.same_parameters(result.units):
            observations.knowing(result.units).save(path_beside(args.out))
    if args.report:
        from stretch_sim_cal.harness.report import mounts_page

        print(f"report: {mounts_page(args.report, result)}", file=sys.stderr)
    if args.json:
        outcome = {"accepted": result.accepted, "warnings": result.warnings, "refusals": result.refusals}
        print(json.dumps({"mounts": plain(numbers) | outcome, "file": str(args.out)}))
    elif result.accepted:
        print(f"accepted: mounts written to {args.out}")
    return 0 if result.accepted else Refused.exit_code


def _from_recording(path: Path, args: argparse.Namespace, file: CalibrationFile, settings, model):
    """Return the mounts from the poses in a recording, and the robot."""
    from stretch_sim_cal.calibration.mounts.rays import REACH
    from stretch_sim_cal.recording.rosbag import Recording
    from stretch_sim_cal.robot.description import load_model
    from stretch_sim_cal.ros.listening.recorded import RecordedPairs, recorded_description
    from stretch_sim_cal.ros.listening.recorded_poses import seen_poses, still_poses
    from stretch_sim_cal.ros.mounts_solve import MountedRobot, solve_samples

    with Recording(path) as recording:
        source = model or recorded_description(recording)
        if source is None:
            raise InputError(f"{path}: has no /robot_description; name the robot's description with --model")
        robot = MountedRobot(load_model(source))
        topics = {"left": args.left_topic, "right": args.right_topic}
        frames = {"left": args.left_frame, "right": args.right_frame}
        pairs = RecordedPairs(recording, topics, frames, args.max_time_difference, sys.maxsize, warn)
        period = SCAN_PERIOD if settings.sensor is None else settings.sensor.period
        poses = still_poses(recording, robot.model)
        seen = seen_poses(pairs, poses, args.num_samples or POSE_SAMPLES, period, REACH + BEYOND_REACH)
    counts = [pose.num_frames for pose in seen]
    print(f"arm poses: {len(seen)}, with {min(counts)} to {max(counts)} pairs of clouds each", file=sys.stderr)
    samples = [
        robot.sample(f"{path.name}: pose {number}", each.pose.joints, each.left, each.right, settings.joint_offsets)
        for number, each in enumerate(seen, start=1)
    ]
    return solve_samples(robot, samples, file, settings), robot
