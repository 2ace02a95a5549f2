"""`stretch-sim-cal verify [RECORDING]`: does the present calibration still hold on fresh data?"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_path
from stretch_sim_cal.calibration.verification import HOLDS, Tolerances, verify
from stretch_sim_cal.command import only_with
from stretch_sim_cal.commands.calibrate import add_recording_arguments, open_source, with_defaults
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.recording.rosbag import Recording
from stretch_sim_cal.sensor.sensor import sensor_called

EXAMPLE = "stretch-sim-cal verify this_morning.mcap --calibration dual_lidar_calibration.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("recording", type=Path, nargs="?", help="a rosbag2 folder or file; without one: live from ROS")
    parser.add_argument("--calibration", type=Path, metavar="FILE", help="calibration file (default: the robot's own)")
    parser.add_argument("--num-samples", type=int, default=10, help="pairs of clouds to use (default: 10)")
    parser.add_argument("--tolerance-mm", type=float, default=2.0, help="default: 2")
    parser.add_argument("--tolerance-deg", type=float, default=0.1, help="default: 0.1")
    add_recording_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the verdict. The exit code is 0 if the calibration holds, 1 if it drifted or that cannot be determined."""
    for name in ("num_samples", "tolerance_mm", "tolerance_deg"):
        if not getattr(args, name) > 0:
            raise InputError(f"--{name.replace('_', '-')}: is {getattr(args, name)}, a number above 0 is needed")
    if not args.recording:
        only_with(args, {"model": None}, "a recording")
    sensor = sensor_called(args.sensor or with_defaults(args).sensor)
    file = CalibrationFile.load(args.calibration or default_path())
    pairs, base_from_left, footprint = _recorded(args) if args.recording else _live(args)
    tolerances = Tolerances(1e-3 * args.tolerance_mm, float(np.radians(args.tolerance_deg)))
    verification = verify(file, pairs, base_from_left, footprint, tolerances, sensor)
    if args.json:
        drifts = [asdict(drift) | {"verdict": drift.verdict} for drift in verification.drifts]
        print(json.dumps({"verdict": verification.verdict, "drifts": drifts, "open": verification.open_questions}))
    else:
        for drift in verification.drifts:
            print(drift.sentence())
        for question in verification.open_questions:
            print(f"cannot tell: {question}")
        print(f"{file.path}: {verification.verdict}")
    return 0 if verification.verdict == HOLDS else 1


def _recorded(args: argparse.Namespace):
    with Recording(args.recording) as recording:
        source = open_source(args, recording)
        pairs = list(source.pairs(args.num_samples, "verifying"))
        return pairs, source.frames.base_from_left, source.footprint_from_base


def _live(args: argparse.Namespace):
    from stretch_sim_cal.ros.cloud_pairs import live_clouds

    return live_clouds(
        args.num_samples, args.left_topic, args.right_topic, args.left_frame, args.right_frame, args.base_frame,
        args.footprint_frame, args.max_time_difference,
    )  # fmt: skip
