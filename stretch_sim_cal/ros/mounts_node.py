"""`ros_calibrate_lidar_mounts [DIR]`: where each lidar is on the robot, from what both see of its arm in a few poses."""

import argparse
import contextlib
import datetime
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration import calibration_file
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import with_mounts
from stretch_sim_cal.calibration.observations import load_beside, path_beside
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.ros.collect_node import collect
from stretch_sim_cal.ros.frame_listener import FrameListener
from stretch_sim_cal.ros.mounts_solve import (
    mount_joints,
    mount_lines,
    mount_numbers,
    mount_settings,
    proposed,
    solve_mounts,
)
from stretch_sim_cal.ros.node_main import NodeContext
from stretch_sim_cal.ros.outcome import finish, record, roll_back, values_path_of
from stretch_sim_cal.sensor.sensor import sensor_called

BROADCAST_TAKES = 4.0  # s of wall time for the broadcaster to see that its file has changed


def calibrate(context: NodeContext) -> int:
    """Collect the poses that are not in the folder yet, solve, and write what the data supports."""
    options, arguments = context.options, context.arguments
    path = options.calibration_file or calibration_file.default_path()
    values_path = values_path_of(context)
    if options.rollback:
        return roll_back(context, path, values_path)
    profile = profile_called(options.robot)
    settings = mount_settings(
        link_mm=options.link_mm, link_deg=options.link_deg, with_joint_offsets=options.with_joint_offsets,
        sensor=sensor_called(options.sensor), profile=profile,
    )  # fmt: skip
    directory = arguments.directory or Path(f"lidar_mounts_data_{datetime.datetime.now():%Y%m%d_%H%M%S}")
    collecting = argparse.Namespace(**vars(arguments) | {"directory": directory, "json": False})
    with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
        code = collect(replace(context, arguments=collecting), only_raw=True)
    if code != 0 or arguments.dry_run:
        return code
    file = CalibrationFile.load_or_empty(path)
    observations = load_beside(path, file.right_to_left)
    result, robot = solve_mounts(directory, file, settings, profile=profile)
    numbers, robot_id = mount_numbers(result, robot.nominal), calibration_file.default_robot_id()
    code = finish(
        context, result, "mounts", mount_lines(result, numbers, proposed(result, robot, settings), profile), numbers,
        lambda: with_mounts(
            CalibrationFile.load_or_empty(path), result, robot_id, robot.nominal["left"], observations=observations
        ), path,
    )  # fmt: skip
    if result.accepted and observations is not None and observations.same_parameters(result.units):
        observations.knowing(result.units).save(path_beside(Path(path)))
    if result.accepted and values_path:
        record(context, values_path, mount_joints(CalibrationFile.load(path), robot.model, profile), result)
    if result.accepted:
        _wait_for_broadcast(context, result.base_from_lidar["left"])
    return code


def _wait_for_broadcast(context: NodeContext, base_from_left: np.ndarray) -> None:
    """Wait until TF has the mount: what is collected next is to be seen from there. Warns if it does not come."""
    options, frames = context.options, FrameListener(context)

    def taken_over() -> bool:
        known = frames.tree.known(options.left_calibrated_frame) and frames.tree.known(options.base_link_frame)
        return known and np.allclose(
            frames.tree.lookup(options.base_link_frame, options.left_calibrated_frame), base_from_left, atol=1e-6
        )

    if not context.spin_until(taken_over, timeout=BROADCAST_TAKES):
        context.log.warning(
            f"TF does not have the mount as '{options.left_calibrated_frame}'; start ros_broadcast_calibration (again) on "
            "the file that was written before anything else is collected"
        )
