"""`stretch-sim-cal calibrate RECORDING --out FILE`: alignment and floor from a rosbag2 recording, no ROS needed."""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.calibration_file import RIGHT_TO_LEFT, CalibrationFile, default_robot_id
from stretch_sim_cal.command import tell, warn
from stretch_sim_cal.commands.calibrate_mounts import add_mounts_arguments, calibrate_from_poses
from stretch_sim_cal.errors import InputError, Refused

NAME = "calibrate"
HELP = "Find alignment and floor in a rosbag2 recording (a folder, or an .mcap file); no ROS needed."
EXAMPLE = "stretch-sim-cal calibrate my_recording --out dual_lidar_calibration.yaml --report report"
DEFAULT_SAMPLES = {"alignment": 100, "floor": 30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("recording", type=Path, help="a rosbag2 folder, or a single .mcap or .db3 file")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="calibration file to write or to update"
    )
    parser.add_argument(
        "--only", choices=("alignment", "floor"), help="one of the two; floor needs an alignment in FILE"
    )
    parser.add_argument("--report", type=Path, metavar="DIR", help="write a page with pictures into this folder")
    parser.add_argument(
        "--num-samples", type=int, help="pairs of clouds to use (default: 100 for alignment, 30 for floor)"
    )
    add_recording_arguments(parser)
    parser.add_argument("--method", help="alignment method, by name")
    parser.add_argument("--floor-method", help="floor method, by name")
    parser.add_argument("--robot-id", help="robot's name in the file (default: HELLO_FLEET_ID)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON on standard output")
    add_mounts_arguments(parser)


def add_recording_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that say what is what in a recording; the defaults are the robot's own names."""
    parser.add_argument("--left-topic", default="/lidar_points_left", help="default: %(default)s")
    parser.add_argument("--right-topic", default="/lidar_points_right", help="default: %(default)s")
    parser.add_argument("--left-frame", default="lidar_left_link", help="default: %(default)s, or link_lidar_left")
    parser.add_argument("--right-frame", default="lidar_right_link", help="default: %(default)s, or link_lidar_right")
    parser.add_argument("--base-frame", default="base_link", help="default: %(default)s")
    parser.add_argument("--footprint-frame", default="base_footprint", help="default: %(default)s")
    parser.add_argument("--model", metavar="FILE", help="URDF with the lidars' poses, where the recording has none")
    parser.add_argument(
        "--max-time-difference", type=float, default=0.05, metavar="S", help="of a pair (default: 0.05 s)"
    )


@dataclass
class _Source:
    """An open recording with its first guesses, and pairs of clouds as often as they are asked for."""

    recording: object
    frames: object
    args: argparse.Namespace
    description: str | None  # the robot's URDF

    def pairs(self, limit: int, label: str):
        """Yield up to `limit` (left, right) with a progress bar, then say what became of the clouds."""
        from stretch_sim_cal.ros.listening.recorded import RecordedPairs
        from stretch_sim_cal.ros.listening.watchdog import Progress

        topics = {"left": self.args.left_topic, "right": self.args.right_topic}
        frames = {"left": self.args.left_frame, "right": self.args.right_frame}
        pairs = RecordedPairs(self.recording, topics, frames, self.args.max_time_difference, limit, warn)
        with Progress(label, pairs.total) as progress:
            for pair in pairs:
                yield pair
                progress.advance()
        print(f"{label}: {pairs.counts.sentence()}", file=sys.stderr)


def open_source(args: argparse.Namespace, recording) -> _Source:
    """Return what an open recording holds for a calibration. Raises `InputError` where something is missing."""
    from stretch_sim_cal.files import read_text
    from stretch_sim_cal.ros.listening.recorded import recorded_description, recorded_frames

    if not 0 <= args.max_time_difference < 10:
        raise InputError(f"--max-time-difference: {args.max_time_difference} s; give a number from 0 to 10")
    description = read_text(args.model) if args.model else None
    frames = recorded_frames(
        recording, args.base_frame, args.left_frame, args.right_frame, args.footprint_frame, description
    )
    return _Source(recording, frames, args, recorded_description(recording) or description)


def run(args: argparse.Namespace) -> int:
    """Calibrate, write what the data supports, and return 0, or 1 where a result was refused."""
    if args.mounts:
        return calibrate_from_poses(args)
    from stretch_sim_cal.calibration.mounts.file import with_floor
    from stretch_sim_cal.recording.reader import Recording

    if args.num_samples is not None and args.num_samples < 1:
        raise InputError(f"--num-samples: is {args.num_samples}, at least 1 is needed")
    file = CalibrationFile.load_or_empty(args.out)
    robot_id = args.robot_id or default_robot_id()
    if args.only == "floor" and file.right_to_left is None:
        raise InputError(f"{args.out}: holds no alignment of the lidars; run without --only floor first")
    outcome: dict = {}
    with Recording(args.recording) as recording:
        source = open_source(args, recording)
        print(f"lidar poses from {source.frames.source} of {args.recording}", file=sys.stderr)
        right_to_left, accepted = file.right_to_left, True
        if args.only != "floor":
            result = _align(source, file)
            accepted = _conclude(result, "alignment", args, outcome, source)
            if accepted:
                CalibrationFile.load_or_empty(args.out).with_alignment(result, robot_id).save(args.out)
                right_to_left = result.right_to_left
        if args.only != "alignment" and accepted:
            floor = _find_floor(source, CalibrationFile.load(args.out))
            accepted = _conclude(floor, "floor", args, outcome, source)
            if accepted:
                file = CalibrationFile.load_or_empty(args.out)
                with_floor(file, floor, robot_id, source.frames.base_from_left).save(args.out)
        if args.report and right_to_left is not None:
            _report(source, right_to_left, CalibrationFile.load(args.out), args.report)
    if args.json:
        print(json.dumps(outcome | {"file": str(args.out)}))
    return 0 if accepted else Refused.exit_code


def _align(source: _Source, file: CalibrationFile):
    from stretch_sim_cal.calibration.alignment.settings import AlignmentSettings
    from stretch_sim_cal.calibration.methods import DEFAULT_ALIGNMENT_METHOD, alignment_method
    from stretch_sim_cal.ros.left_mount import LeftMountCheck
    from stretch_sim_cal.ros.listening.recorded import recorded_joints

    settings, check = AlignmentSettings(base_from_left=source.frames.base_from_left), LeftMountCheck()
    method = alignment_method(source.args.method or DEFAULT_ALIGNMENT_METHOD)(source.frames.right_to_left, settings)
    for left, right in source.pairs(source.args.num_samples or DEFAULT_SAMPLES["alignment"], "aligning"):
        method.add(left, right)
        check.add(left, right)
    joints = recorded_joints(source.recording)
    result, unchecked = check.with_warning(method.solve(), source.description, joints, file)
    if unchecked:
        print(unchecked, file=sys.stderr)
    return result


def _find_floor(source: _Source, file: CalibrationFile):
    from stretch_sim_cal.calibration.floor.settings import FloorSettings
    from stretch_sim_cal.calibration.methods import DEFAULT_FLOOR_METHOD, floor_method
    from stretch_sim_cal.calibration.mounts.file import left_pose

    frames, settings = source.frames, FloorSettings(right_to_left_covariance=file.entries[RIGHT_TO_LEFT].covariance)
    footprint = np.eye(4) if frames.footprint_from_base is None else frames.footprint_from_base
    method_class = floor_method(source.args.floor_method or DEFAULT_FLOOR_METHOD)
    method = method_class(left_pose(file, frames.base_from_left), file.right_to_left, footprint, settings)
    for left, right in source.pairs(source.args.num_samples or DEFAULT_SAMPLES["floor"], "looking at the floor"):
        method.add(left, right)
    return method.solve()


def _conclude(result, what: str, args: argparse.Namespace, outcome: dict, source: _Source) -> bool:
    """Say what was found; return whether it is accepted."""
    from stretch_sim_cal.calibration import summaries

    if what == "alignment":
        numbers = summaries.alignment_numbers(result, source.frames.right_to_left, source.frames.base_from_left)
        lines = summaries.alignment_lines(result, numbers)
    else:
        footprint = source.frames.footprint_from_base
        numbers = summaries.floor_numbers(result, np.eye(4) if footprint is None else footprint)
        lines = summaries.floor_lines(result, numbers)
    tell(result, [] if args.json else lines)
    if result.accepted and not args.json:
        print(f"accepted: {what} written to {args.out}")
    outcome[what] = summaries.plain(numbers) | {
        "accepted": result.accepted, "warnings": result.warnings, "refusals": result.refusals,
    }  # fmt: skip
    return result.accepted


def _report(source: _Source, right_to_left: np.ndarray, file: CalibrationFile, folder: Path) -> None:
    from stretch_sim_cal.calibration.mounts.file import left_pose
    from stretch_sim_cal.geometry.transforms import apply
    from stretch_sim_cal.harness import plots
    from stretch_sim_cal.harness.page import image, write_page

    frames = source.frames
    clouds = list(source.pairs(3, "drawing"))
    left, right = (np.concatenate([pair[side][:, :3] for pair in clouds]) for side in (0, 1))
    base_from_left = left_pose(file, frames.base_from_left)
    left_in_base = apply(base_from_left, left)
    after = apply(base_from_left @ right_to_left, right)
    before = apply(frames.base_from_left @ frames.right_to_left, right)
    parts = [
        image("Both clouds before and after alignment", plots.clouds_before_and_after(left_in_base, before, after))
    ]
    if file.footprint_from_base is not None:
        points = apply(file.footprint_from_base, np.vstack([left_in_base, after]))
        parts.append(image("Floor residuals", plots.floor_residuals(points)))
    page = write_page(folder / "report.html", f"Calibration from {source.args.recording.name}", parts)
    print(f"report: {page}", file=sys.stderr)
