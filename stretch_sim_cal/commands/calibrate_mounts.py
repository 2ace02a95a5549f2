"""`stretch-sim-cal calibrate DIR --mounts`: where each lidar is on the robot, from a folder of recorded arm poses."""

import argparse
import json
import sys

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_robot_id
from stretch_sim_cal.calibration.summaries import plain
from stretch_sim_cal.command import only_with, tell
from stretch_sim_cal.commands.fk import is_own
from stretch_sim_cal.errors import Refused

MOUNTS_DEFAULTS = {"with_joint_offsets": False, "link_mm": 1.0, "link_deg": 0.1}
OTHER_OPTIONS = ("only", "num_samples", "method", "floor_method")


def add_mounts_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what belongs to `--mounts`."""
    group = parser.add_argument_group("absolute poses of the lidars")
    group.add_argument(
        "--mounts", action="store_true",
        help="find where each lidar is in base_link; the recording is then a folder of arm poses, as "
        "ros_calibrate_lidar_mounts and ros_collect_body_shape_data write it",
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


def calibrate_from_poses(args: argparse.Namespace) -> int:
    """Find the mounts, write them if the data supports them, and return 0, or 1 where they were refused."""
    from stretch_sim_cal.calibration.mounts.file import with_mounts
    from stretch_sim_cal.calibration.observations import load_beside, path_beside
    from stretch_sim_cal.robot.stretch import nominal_description
    from stretch_sim_cal.ros.mounts_solve import mount_lines, mount_numbers, mount_settings, proposed, solve_mounts
    from stretch_sim_cal.sensor.sensor import sensor_called

    only_with(args, dict.fromkeys(OTHER_OPTIONS), "a recording, not with --mounts,")
    settings = mount_settings(
        link_mm=args.link_mm, link_deg=args.link_deg, with_joint_offsets=args.with_joint_offsets,
        sensor=sensor_called(args.sensor),
    )  # fmt: skip
    model = nominal_description() if args.model and is_own(args.model) else args.model
    result, robot = solve_mounts(args.recording, CalibrationFile.load_or_empty(args.out), settings, model)
    numbers = mount_numbers(result, robot.nominal)
    tell(result, [] if args.json else mount_lines(result, numbers, proposed(result, robot, settings)))
    if result.accepted:
        robot_id, file = args.robot_id or default_robot_id(), CalibrationFile.load_or_empty(args.out)
        observations = load_beside(args.out, file.right_to_left)
        with_mounts(file, result, robot_id, robot.nominal["left"], observations=observations).save(args.out)
        if observations is not None and observations.same_parameters(result.units):
            observations.knowing(result.units).save(path_beside(args.out))
    if args.report:
        from stretch_sim_cal.harness.mounts_plot import mounts_page

        print(f"report: {mounts_page(args.report, result)}", file=sys.stderr)
    if args.json:
        outcome = {"accepted": result.accepted, "warnings": result.warnings, "refusals": result.refusals}
        print(json.dumps({"mounts": plain(numbers) | outcome, "file": str(args.out)}))
    elif result.accepted:
        print(f"accepted: mounts written to {args.out}")
    return 0 if result.accepted else Refused.exit_code
