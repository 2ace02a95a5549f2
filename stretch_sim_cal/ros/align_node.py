"""`ros_align_dual_lidar`: the transform between the two lidars, from their clouds, into the calibration file."""

import sys
from collections.abc import Sequence

import numpy as np

from stretch_sim_cal.calibration import calibration_file
from stretch_sim_cal.calibration.alignment.settings import AlignmentSettings
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.methods import DEFAULT_ALIGNMENT_METHOD, alignment_method, given_clouds
from stretch_sim_cal.calibration.summaries import alignment_lines, alignment_numbers
from stretch_sim_cal.ros.left_mount import LeftMountCheck
from stretch_sim_cal.ros.listening.cloud_pairs import CLOUD_OPTIONS, TIMEOUT_OPTION, CloudPairs
from stretch_sim_cal.ros.listening.frames import FrameListener
from stretch_sim_cal.ros.listening.joints import latest_joints
from stretch_sim_cal.ros.listening.watchdog import Watchdog
from stretch_sim_cal.ros.node_main import NodeCommand, NodeContext, run_node
from stretch_sim_cal.ros.outcome import finish
from stretch_sim_cal.ros.parameters import Option
from stretch_sim_cal.ros.values import ROLLBACK_OPTION, VALUES_OPTION, lidar_joints, record, roll_back, values_path_of

COMMAND = NodeCommand(
    executable="ros_align_dual_lidar",
    node_name="align_dual_lidar",
    description=(
        "Find the transform between the two lidars from what both see, and write it to dual_lidar_calibration.yaml.\n"
        "The robot stands still in a room with structure (walls in two directions, furniture, floor); nothing moves.\n"
        "Nothing is written where the data does not support a result."
    ),
    example="ros_align_dual_lidar --num-samples 50",
    options=(
        *CLOUD_OPTIONS,
        Option("num_samples", 100, "pairs of clouds to use", minimum=1, maximum=100_000),
        Option("method", "", f"alignment method, by name; default {DEFAULT_ALIGNMENT_METHOD}"),
        Option("fit_method", "", "the same under its published name"),
        Option("downsampling_resolution_m", None, "voxel size in m (else the method's own)", kind=float, minimum=1e-3),
        Option("max_iterations", None, "iterations of the registration (else the method's own)", kind=int, minimum=1),
        Option("max_correspondence_distance", None, "in m (else the method's own)", kind=float, minimum=1e-3),
        Option("calibration_file", "", "where to write; default: the robot's own calibration file"),
        VALUES_OPTION,
        ROLLBACK_OPTION,
        TIMEOUT_OPTION,
    ),
)


def align(context: NodeContext) -> int:
    """Collect pairs of clouds, align them, and write the result if the data supports it."""
    options = context.options
    path = options.calibration_file or calibration_file.default_path()
    CalibrationFile.load_or_empty(path)  # a file that cannot be updated shows now, not after the last sample
    values_path = values_path_of(context)
    if options.rollback:
        return roll_back(context, path, values_path)
    method_class = alignment_method(options.method or options.fit_method or DEFAULT_ALIGNMENT_METHOD)

    watchdog = Watchdog(options.timeout, context.log.warning)
    frames = FrameListener(context)
    clouds = CloudPairs(context, options, watchdog)
    first_guess, base_from_left = frames.wait_for(
        (options.left_lidar_frame, options.right_lidar_frame),
        (options.base_link_frame, options.left_lidar_frame),
        watchdog=watchdog,
    )
    method = method_class(first_guess, _settings(options, base_from_left))
    joints, check = latest_joints(context), LeftMountCheck()
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
    if result.accepted and values_path and (joints := lidar_joints(context, frames, CalibrationFile.load(path))):
        record(context, values_path, joints, result)
    return code


def _settings(options, base_from_left: np.ndarray) -> AlignmentSettings:
    given = {
        "downsampling_resolution": options.downsampling_resolution_m,
        "max_iterations": options.max_iterations,
        "max_correspondence_distance": options.max_correspondence_distance,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return AlignmentSettings(base_from_left=base_from_left, **given)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_node(COMMAND, align, arguments)


if __name__ == "__main__":
    sys.exit(main())
