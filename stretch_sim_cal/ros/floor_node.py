"""`ros_find_floor_calibration`: the floor and base_footprint on it, from both lidars, into the calibration file."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration import calibration_file, values_file
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.clouds import given_clouds
from stretch_sim_cal.calibration.methods import DEFAULT_FLOOR_METHOD, floor_method, floor_method_names
from stretch_sim_cal.calibration.mounts.file import left_pose, stored_mounts, with_floor
from stretch_sim_cal.calibration.observations import known_alignment, path_beside
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.calibration.summaries import floor_lines, floor_numbers
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import error
from stretch_sim_cal.ros.cloud_pairs import CloudPairs
from stretch_sim_cal.ros.frame_listener import FrameListener
from stretch_sim_cal.ros.node_commands import MODES, PUBLISHED_FIT
from stretch_sim_cal.ros.node_main import NodeContext, either
from stretch_sim_cal.ros.outcome import (
    finish,
    lidar_joints,
    record,
    roll_back,
    values_path_of,
)
from stretch_sim_cal.sensor.sensor import sensor_called


def find_floor(context: NodeContext) -> int:
    """Collect pairs of clouds, find the floor in them, and write the result if the data supports it."""
    options = context.options
    path = options.calibration_file or calibration_file.default_path()
    values_path = values_path_of(context)
    method_class = _method(context)
    if options.rollback:
        return roll_back(context, path, values_path)
    file = _aligned(path)
    sensor = sensor_called(options.sensor)

    watchdog = context.watchdog(options.timeout)
    frames = FrameListener(context)
    clouds = CloudPairs(context, options, watchdog)
    (described_left,) = frames.wait_for((options.base_link_frame, options.left_lidar_frame), watchdog=watchdog)
    base_from_left = left_pose(file, described_left)
    if stored_mounts(file) is not None:
        distance, angle = error(described_left, base_from_left)
        context.log.info(
            f"the left lidar is taken to be where {path} has its mount, {1e3 * distance:.1f} mm and "
            f"{np.degrees(angle):.2f} deg from where TF has it"
        )
    nominal_footprint_from_base = _nominal_footprint(context, frames)
    observations = known_alignment(file)
    settings = FloorSettings(sensor=sensor, observations=observations)
    method = method_class(base_from_left, file.right_to_left, nominal_footprint_from_base, settings)
    for pair in clouds.take(options.num_samples, "looking at the floor"):
        method.add(*given_clouds(method, pair.left, pair.right))
    context.log.info(clouds.summary())
    result = method.solve()
    numbers = floor_numbers(result, nominal_footprint_from_base)
    robot_id = calibration_file.default_robot_id()
    code = finish(
        context, result, "floor", floor_lines(result, numbers), numbers,
        lambda: with_floor(CalibrationFile.load_or_empty(path), result, robot_id, described_left), path,
    )  # fmt: skip
    if result.accepted and observations is not None and observations.knows_units:
        replace(observations, floor=result.by_units).save(path_beside(Path(path)))
    if result.accepted and values_path:
        # A floor seen from the mounts is right only beside lidars that are where the mounts have them.
        lidars = [] if stored_mounts(file) is None else lidar_joints(context, frames, CalibrationFile.load(path))
        record(context, values_path, [*lidars, values_file.base_joint(result.footprint_from_base)], result)
    return code


def _aligned(path) -> CalibrationFile:
    """Return the calibration file, with the alignment that the floor is built on."""
    file = CalibrationFile.load_or_empty(path)
    if file.right_to_left is None:
        raise InputError(f"{path}: holds no alignment of the lidars yet; run ros_align_dual_lidar first")
    return file


def _method(context: NodeContext):
    options = context.options
    if options.mode != MODES[0]:
        context.log.warning(f"mode '{options.mode}' is not offered: all frames are fitted together")
    if options.fit_method == PUBLISHED_FIT and PUBLISHED_FIT not in floor_method_names():
        context.log.warning(
            f"fit_method '{PUBLISHED_FIT}' is not offered; {options.method or DEFAULT_FLOOR_METHOD} is used"
        )
        return floor_method(options.method or DEFAULT_FLOOR_METHOD)
    return floor_method(either(options, "method", "fit_method") or DEFAULT_FLOOR_METHOD)


def _nominal_footprint(context: NodeContext, frames: FrameListener) -> np.ndarray:
    options = context.options
    try:
        return frames.lookup(options.footprint_frame, options.base_link_frame)
    except InputError as problem:
        context.log.warning(f"{problem}; the floor is looked for around {options.base_link_frame}'s own origin")
        return np.eye(4)
