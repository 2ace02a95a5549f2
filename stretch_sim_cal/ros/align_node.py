"""`ros_align_dual_lidar`: the transform between the two lidars, from their clouds, into the calibration file."""

import sys
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from stretch_sim_cal.calibration import calibration_file
from stretch_sim_cal.calibration.alignment_settings import AlignmentSettings
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.methods import DEFAULT_ALIGNMENT_METHOD, alignment_method
from stretch_sim_cal.calibration.results import AlignmentResult, Direction
from stretch_sim_cal.geometry.transforms import error, to_xyz_rpy
from stretch_sim_cal.ros.cloud_pairs import CLOUD_OPTIONS, TIMEOUT_OPTION, CloudPairs
from stretch_sim_cal.ros.frames import FrameListener
from stretch_sim_cal.ros.node_main import NodeCommand, NodeContext, run_node
from stretch_sim_cal.ros.outcome import finish, listed
from stretch_sim_cal.ros.parameters import Option
from stretch_sim_cal.ros.watchdog import Watchdog

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
        TIMEOUT_OPTION,
    ),
)


def align(context: NodeContext) -> int:
    """Collect pairs of clouds, align them, and write the result if the data supports it."""
    options = context.options
    path = options.calibration_file or calibration_file.default_path()
    CalibrationFile.load_or_empty(path)  # a file that cannot be updated shows now, not after the last sample
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
    for pair in clouds.take(options.num_samples, "aligning"):
        method.add(pair.left, pair.right)
    context.log.info(clouds.summary())
    result = method.solve()
    numbers = _numbers(result, first_guess, base_from_left)
    robot_id = calibration_file.default_robot_id()
    return finish(
        context, result, "alignment", _lines(result, numbers), numbers,
        lambda: CalibrationFile.load_or_empty(path).with_alignment(result, robot_id), path,
    )  # fmt: skip


def _settings(options, base_from_left: np.ndarray) -> AlignmentSettings:
    given = {
        "downsampling_resolution": options.downsampling_resolution_m,
        "max_iterations": options.max_iterations,
        "max_correspondence_distance": options.max_correspondence_distance,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return AlignmentSettings(base_from_left=base_from_left, **given)


def _numbers(result: AlignmentResult, first_guess: np.ndarray, base_from_left: np.ndarray) -> dict:
    xyz, rpy = to_xyz_rpy(result.right_to_left)
    base_xyz, base_rpy = to_xyz_rpy(base_from_left @ result.right_to_left)
    moved, turned = error(first_guess, result.right_to_left)
    deviations = np.sqrt(np.diag(result.covariance))
    return {
        "method": result.method,
        "num_frames": result.num_frames,
        "right_to_left": result.right_to_left,
        "xyz": xyz,
        "rpy_deg": np.degrees(rpy),
        "standard_deviation_mm": deviations[:3] * 1e3,
        "standard_deviation_deg": np.degrees(deviations[3:]),
        "right_in_base_link": {"xyz": base_xyz, "rpy_deg": np.degrees(base_rpy)},
        "moved_from_first_guess_mm": moved * 1e3,
        "turned_from_first_guess_deg": np.degrees(turned),
        "rmse_mm": result.rmse * 1e3,
        "overlap": result.overlap,
        "directions": [asdict(direction) | {"observed": direction.observed} for direction in result.directions],
        "diagnostics": result.diagnostics,
    }


def _lines(result: AlignmentResult, numbers: dict) -> list[str]:
    base = numbers["right_in_base_link"]
    return [
        f"right lidar in the left lidar's frame ({result.method}, {result.num_frames} pairs of clouds):",
        f"  xyz  {listed(numbers['xyz'], 5)} m    standard deviation {listed(numbers['standard_deviation_mm'], 3)} mm",
        f"  rpy  {listed(numbers['rpy_deg'], 4)} deg  standard deviation"
        f" {listed(numbers['standard_deviation_deg'], 4)} deg (about the left lidar's x, y, z)",
        f"  in base_link: xyz {listed(base['xyz'], 5)} m, rpy {listed(base['rpy_deg'], 4)} deg",
        f"  {numbers['moved_from_first_guess_mm']:.2f} mm and {numbers['turned_from_first_guess_deg']:.3f} deg from the"
        " first guess",
        f"  surfaces agree to {numbers['rmse_mm']:.2f} mm (rms), overlap {100 * result.overlap:.0f} %",
        *(f"  {_direction(direction)}" for direction in result.directions),
    ]


def _direction(direction: Direction) -> str:
    turning = direction.name.startswith("turning")
    scale, unit = (np.degrees(1.0), "deg") if turning else (1e3, "mm")
    bound = f"{direction.standard_deviation * scale:.4f} {unit} (bound {direction.bound * scale:.3g} {unit})"
    return f"{direction.name}: {bound}{'' if direction.observed else '  <- not determined by this scene'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_node(COMMAND, align, arguments)


if __name__ == "__main__":
    sys.exit(main())
