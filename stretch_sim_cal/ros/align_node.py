"""`ros_align_dual_lidar`: the transform between the two lidars, from their clouds, into the calibration file."""

from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration import calibration_file
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.clouds import given_clouds
from stretch_sim_cal.calibration.methods import DEFAULT_ALIGNMENT_METHOD, alignment_method
from stretch_sim_cal.calibration.observations import path_beside
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.summaries import alignment_lines, alignment_numbers
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.ros.cloud_pairs import CloudPairs
from stretch_sim_cal.ros.frame_listener import FrameListener
from stretch_sim_cal.ros.left_mount import LeftMountCheck
from stretch_sim_cal.ros.node_main import NodeContext, either
from stretch_sim_cal.ros.outcome import finish, lidar_joints, record, roll_back, values_path_of
from stretch_sim_cal.ros.subscription import JointListener
from stretch_sim_cal.sensor.sensor import Sensor, sensor_called


def align(context: NodeContext) -> int:
    """Collect pairs of clouds, align them, and write the result if the data supports it."""
    options = context.options
    path = options.calibration_file or calibration_file.default_path()
    CalibrationFile.load_or_empty(path)  # a file that cannot be updated shows now, not after the last sample
    values_path = values_path_of(context)
    method_class = alignment_method(either(options, "method", "fit_method") or DEFAULT_ALIGNMENT_METHOD)
    if options.rollback:
        return roll_back(context, path, values_path)
    sensor = sensor_called(options.sensor)

    watchdog = context.watchdog(options.timeout)
    frames = FrameListener(context)
    clouds = CloudPairs(context, options, watchdog)
    first_guess, base_from_left = frames.wait_for(
        (options.left_lidar_frame, options.right_lidar_frame),
        (options.base_link_frame, options.left_lidar_frame),
        watchdog=watchdog,
    )
    method = method_class(first_guess, _settings(options, sensor, base_from_left))
    joints, check = JointListener(context).positions, LeftMountCheck(sensor, profile_called(options.robot))
    for pair in clouds.take(options.num_samples, "aligning"):
        method.add(*given_clouds(method, pair.left, pair.right))
        check.add(pair.left, pair.right)
    context.log.info(clouds.summary())
    result, unchecked = check.with_warning(
        method.solve(), frames.description, joints, CalibrationFile.load_or_empty(path)
    )
    if unchecked:
        context.log.info(unchecked)
    numbers = alignment_numbers(result, first_guess, base_from_left)
    robot_id = calibration_file.default_robot_id()
    code = finish(
        context, result, "alignment", alignment_lines(result, numbers), numbers,
        lambda: CalibrationFile.load_or_empty(path).with_alignment(result, robot_id), path,
    )  # fmt: skip
    if result.accepted and result.observations is not None:
        result.observations.save(path_beside(Path(path)))
    if result.accepted and values_path and (joints := lidar_joints(context, frames, CalibrationFile.load(path))):
        record(context, values_path, joints, result)
    return code


def _settings(options, sensor: Sensor | None, base_from_left: np.ndarray) -> AlignmentSettings:
    given = {
        "downsampling_resolution": options.downsampling_resolution_m,
        "max_iterations": options.max_iterations,
        "max_correspondence_distance": options.max_correspondence_distance,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return AlignmentSettings(base_from_left=base_from_left, sensor=sensor, **given)
