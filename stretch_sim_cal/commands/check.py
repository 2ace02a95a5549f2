"""`stretch-sim-cal check [FILE [OTHER]]`: the content of a calibration file, and whether its parts agree."""

import argparse
import datetime
import os
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration import calibration_file as keys
from stretch_sim_cal.calibration import checks
from stretch_sim_cal.calibration.calibration_file import CalibrationFile, Entry, default_path
from stretch_sim_cal.calibration.drive_results import agreements, stored_wheels
from stretch_sim_cal.calibration.mounts.file import each_mount, stored_mounts
from stretch_sim_cal.calibration.mounts.result import total_deviations
from stretch_sim_cal.calibration.summaries import plain, wheels_numbers
from stretch_sim_cal.command import only_with, show
from stretch_sim_cal.commands.described import MODEL_HELP, ROBOT_HELP, described, load_description
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import floor_error, floor_of_footprint
from stretch_sim_cal.geometry.transforms import error, to_xyz_rpy
from stretch_sim_cal.harness.pages import text_lines
from stretch_sim_cal.robot.profile import profile_called

EXAMPLE = "stretch-sim-cal check dual_lidar_calibration.yaml yesterday.yaml"

TOLERANCES = ("tolerance_mm", "tolerance_deg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", nargs="?", type=Path, help="calibration file (default: the robot's own)")
    add("other", nargs="?", type=Path, help="a second calibration file to compare with")
    add("--model", metavar="FILE", help=MODEL_HELP)
    add("--robot", metavar="FILE", help=ROBOT_HELP)
    add("--tolerance-mm", type=float, default=1.0, metavar="MM",
        help="largest distance between two files that agree (default: %(default)s)")  # fmt: skip
    add("--tolerance-deg", type=float, default=0.02, metavar="DEG",
        help="largest angle between two files that agree (default: %(default)s)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print the findings. The exit code is 0 for a file to be used (two that agree), 1 for one with a problem."""
    for name in TOLERANCES:
        if not getattr(args, name) > 0:
            raise InputError(f"--{name.replace('_', '-')}: {getattr(args, name)} must be greater than zero")
    if not args.other:
        only_with(args, TOLERANCES, "two files")
    path = args.file or default_path()
    calibration, now, note = CalibrationFile.load(path), datetime.datetime.now(), []
    try:
        model = described(load_description(args.model, args.robot), profile_called(args.robot))
    except InputError as problem:
        if args.model or args.robot:
            raise
        model, note = checks.Described(), [f"not compared with a description: {problem}"]
    concerns = checks.concerns(calibration, now, os.environ.get("HELLO_FLEET_ID"), model) + note
    findings = {
        "file": str(path),
        **_contents(calibration, model, now),
        "problems": checks.problems(calibration, model) + checks.inconsistencies(calibration, model),
        "concerns": concerns + [str(said) for each in agreements(calibration) for said in each.findings()],
    }
    if not args.robot and not args.model and any("description" in problem for problem in findings["problems"]):
        findings["concerns"].append("compared with the Stretch 4; give another robot's --robot or --model")
    if args.other:
        findings["comparison"] = _comparison(calibration, CalibrationFile.load(args.other), args)
    agreed = all(part["agrees"] for part in findings.get("comparison", {}).get("parts", []))
    findings["usable"] = not findings["problems"]
    show(args, findings, text_lines("check", found=findings))
    return 0 if findings["usable"] and agreed else 1


def _contents(calibration: CalibrationFile, model: checks.Described, now: datetime.datetime) -> dict[str, Any]:
    contents: dict[str, Any] = {"alignment": None, "floor": None, "mounts": _mounts(calibration)}
    if (wheels := stored_wheels(calibration)) is not None:
        numbers = wheels_numbers(wheels)
        contents["wheels"] = plain({name: numbers[name] for name in ("lidars", "odometry", "slip")})
        contents["arm_and_wheels"] = [
            {
                "lidar": each.lidar, "difference": each.difference.tolist(), "covariance": each.covariance.tolist(),
                "sigmas_x_y_yaw": each.by_wheels, "sigmas_z_roll_pitch": each.by_floor, "sentence": each.sentence(),
            }
            for each in agreements(calibration)
        ]  # fmt: skip
    transforms = {}
    for name, pose in calibration.to_left.items():
        transforms[name] = _pose(pose) | _source(calibration.entries.get(f"{name}{keys.TO_LEFT}"), now)
        if (as_described := model.to_left.get(name)) is not None:
            transforms[name]["from_description"] = _in_units(*error(as_described, pose))
    contents["alignment"] = transforms.pop("right", None)
    if transforms:
        contents["further_lidars"] = transforms
    if calibration.floor_plane is not None:
        normal, offset = calibration.floor_plane.normal, calibration.floor_plane.offset
        contents["floor"] = {
            "base_link_height_m": float(offset),
            "tilt_deg": {"about_x": float(np.degrees(-normal[1])), "about_y": float(np.degrees(normal[0]))},
            **_source(calibration.entries.get(calibration.floor_key), now),
        }
        if model.footprint_from_base is not None:
            far = floor_error(floor_of_footprint(model.footprint_from_base), calibration.floor_plane)
            contents["floor"]["from_description"] = _in_units(*far)
    return contents


def _mounts(calibration: CalibrationFile) -> dict[str, Any] | None:
    found = {}
    for side, (pose, covariance) in each_mount(calibration, stored_mounts(calibration)).items():
        found[side] = {**_pose(pose), "standard_deviation": _in_units(*total_deviations(covariance, pose))}
    return found or None


def _pose(pose: np.ndarray) -> dict[str, Any]:
    xyz, rpy = to_xyz_rpy(pose)
    return {"xyz_m": xyz.tolist(), "rpy_deg": np.degrees(rpy).tolist()}


def _source(entry: Entry | None, now: datetime.datetime) -> dict[str, Any]:
    if entry is None:
        return {}
    stamp = entry.timestamp
    return {
        "robot_id": entry.robot_id, "timestamp": stamp.isoformat() if stamp else None,
        "age_days": round((now.astimezone() - stamp.astimezone()).total_seconds() / 86400, 2) if stamp else None,
        "fit_method": entry.fit_method, "num_frames": entry.num_frames,
        "rmse_mm": None if entry.rmse is None else entry.rmse * 1e3,
        "standard_deviation": None if entry.covariance is None else _in_units(*checks.deviations(entry.covariance)),
    }  # fmt: skip


def _in_units(length: float, angle: float) -> dict[str, float]:
    return {"mm": length * 1e3, "deg": float(np.degrees(angle))}


def _comparison(first: CalibrationFile, second: CalibrationFile, args: argparse.Namespace) -> dict[str, Any]:
    differences = checks.compare(first, second)
    if not differences:
        raise InputError(f"{args.other}: has no entry in common with {args.file}; there is nothing to compare")
    bounds = args.tolerance_mm * 1e-3, float(np.radians(args.tolerance_deg))
    parts = [
        {"what": part.what, **_in_units(part.distance, part.angle), "agrees": part.within(*bounds)}
        for part in differences
    ]
    tolerance = {"mm": args.tolerance_mm, "deg": args.tolerance_deg}
    return {"other": str(args.other), "tolerance": tolerance, "parts": parts}
