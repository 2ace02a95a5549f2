"""`stretch-sim-cal check [FILE [OTHER]]`: the content of a calibration file, and whether its parts agree;
`export FILE --as ...`: a calibration in the forms that other programs read."""

import argparse
import datetime
import json
import os
import re
from itertools import starmap
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from xml.etree import ElementTree

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.calibration import calibration_file as keys
from stretch_sim_cal.calibration import checks, values_file
from stretch_sim_cal.calibration.calibration_file import RIGHT_TO_LEFT, CalibrationFile, Entry, default_path
from stretch_sim_cal.calibration.checks import check_lidars, problems
from stretch_sim_cal.calibration.drive_results import agreements, stored_wheels
from stretch_sim_cal.calibration.mounts.file import each_mount, stored_mounts
from stretch_sim_cal.calibration.mounts.result import total_deviations
from stretch_sim_cal.calibration.mounts.robot import calibrated_joints, checked_lidar_links
from stretch_sim_cal.calibration.summaries import plain, wheels_numbers
from stretch_sim_cal.calibration.values_file import JointOrigin, default_values_path
from stretch_sim_cal.command import only_with, show
from stretch_sim_cal.commands.described import described, description_file, is_own, load_description, urdf_text
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.planes import floor_error, floor_of_footprint
from stretch_sim_cal.geometry.transforms import error, inverse, to_xyz_quaternion, to_xyz_rpy
from stretch_sim_cal.harness.pages import text_lines
from stretch_sim_cal.robot.description import parse_xml
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, profile_called

TOLERANCES = ("tolerance_mm", "tolerance_deg")
XACRO = "http://www.ros.org/wiki/xacro"
NO_IDENTIFIER = re.compile(r"\W|^(?=\d)")  # what a property's name may not have
USE = 'include this in the description, and write in each joint NAME: <origin xyz="${NAME_xyz}" rpy="${NAME_rpy}"/>'
COMPARED = "compared with the Stretch 4; give another robot's --robot or --model"
LEFT_CALIBRATED, FLOOR_PLANE = "lidar_left_calibrated", "floor_plane"


def _add_file_and_robot(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", nargs="?", type=Path, help="calibration file (default: the robot's own)")
    add("--model", metavar="FILE",
        help="robot description to compare with: a URDF or xacro file (default: the vendor's Stretch 4)")  # fmt: skip
    add("--robot", metavar="FILE", help="the robot's profile (frames and description), a name in config/robots/ or a "
        "path (default: the file's, else the Stretch's)")  # fmt: skip


def _add_check(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _add_file_and_robot(parser)
    add("other", nargs="?", type=Path, help="a second calibration file to compare with")
    add("--tolerance-mm", type=float, default=1.0, metavar="MM",
        help="largest distance between two files that agree (default: %(default)s)")  # fmt: skip
    add("--tolerance-deg", type=float, default=0.02, metavar="DEG",
        help="largest angle between two files that agree (default: %(default)s)")  # fmt: skip


def _check(args: argparse.Namespace) -> int:
    """Print the findings. The exit code is 0 for a file to be used (two that agree), 1 for one with a problem."""
    for name in TOLERANCES:
        if not getattr(args, name) > 0:
            raise InputError(f"--{name.replace('_', '-')}: {getattr(args, name)} must be greater than zero")
    if not args.other:
        only_with(args, TOLERANCES, "two files")
    path = args.file or default_path()
    calibration, now, note = CalibrationFile.load(path), datetime.datetime.now(), []
    robot = None
    try:
        robot = robot_of(args, calibration)
        model = described(load_description(args.model, robot), profile_called(robot))
    except InputError as problem:
        if args.model or args.robot:
            raise
        model, note = checks.Described(), [f"not compared with a description: {problem}"]
    concerns = checks.concerns(calibration, now, os.environ.get("HELLO_FLEET_ID"), model) + note
    findings = {
        "file": str(path),
        "robot_profile": calibration.robot_profile,
        **_contents(calibration, model, now),
        "problems": checks.problems(calibration, model) + checks.inconsistencies(calibration, model),
        "concerns": concerns + [str(said) for each in agreements(calibration) for said in each.findings()],
    }
    if not robot and not args.model and any("description" in problem for problem in findings["problems"]):
        findings["concerns"].insert(0, COMPARED)
    if args.other:
        findings["comparison"] = _comparison(calibration, CalibrationFile.load(args.other), args)
    agreed = all(part["agrees"] for part in findings.get("comparison", {}).get("parts", []))
    findings["usable"] = not findings["problems"]
    show(args, findings, text_lines("check", found=findings))
    return 0 if findings["usable"] and agreed else 1


def robot_of(args: argparse.Namespace, calibration: CalibrationFile) -> str | None:
    """Return the robot's profile: as given, else the file's, else None. Raises `InputError` if the file's is not
    there."""
    if args.robot or calibration.robot_profile is None:
        return args.robot
    try:
        profile_called(calibration.robot_profile)
    except InputError as problem:
        raise InputError(f"{calibration.path}: {keys.ROBOT_PROFILE}: {problem}; name it with --robot") from problem
    return calibration.robot_profile


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
    differences = checks.changes(first, second)
    if not differences:
        raise InputError(f"{args.other}: has no entry in common with {args.file}; there is nothing to compare")
    bounds = args.tolerance_mm * 1e-3, float(np.radians(args.tolerance_deg))
    parts = [
        {"what": part.what, **_in_units(part.distance, part.angle), "agrees": part.within(*bounds)}
        for part in differences
    ]
    tolerance = {"mm": args.tolerance_mm, "deg": args.tolerance_deg}
    return {"other": str(args.other), "tolerance": tolerance, "parts": parts}


def _add_export(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--as", dest="form", required=True, choices=("urdf", "xacro", "static-transform", "calibration-values"),
        help="format of the output")  # fmt: skip
    _add_file_and_robot(parser)
    out = "write to this file instead of printing; with --as urdf: the whole description with its joints replaced"
    add("--out", type=Path, metavar="FILE", help=out)
    add("--record", action="store_true", help="with --as calibration-values: write into the robot's own values file")
    add("--rollback", action="store_true",
        help="with --as calibration-values: restore the values from before the last write")  # fmt: skip


def _export(args: argparse.Namespace) -> int:
    if args.form != "calibration-values":
        only_with(args, ["record", "rollback"], "--as calibration-values")
    if args.out and args.form in ("urdf", "xacro"):
        only_with(args, ["json"], "what is printed, not with --out")
    if args.rollback:
        return _roll_back(args)
    path = args.file or default_path()
    calibration = CalibrationFile.load(path)
    robot = robot_of(args, calibration)
    profile = profile_called(robot)
    if args.out:
        files.check_not_read("--out", args.out, path, args.model, profile.source, profile.description.file)
    model = load_description(args.model, robot)
    if calibration.aligned:
        check_lidars(calibration, profile.lidars)
    found = problems(calibration, described(model, profile))
    if found:
        found = found if robot or args.model else [COMPARED, *found]
        raise Refused(f"{path}: {'; '.join(found)}")
    if args.out and args.record:
        raise InputError("--record writes the robot's own values file, --out another file: give one of them")
    if args.form == "static-transform":
        _put(args, _static_transforms(calibration, model, profile, args.json))
        return 0
    joints = calibrated_joints(calibration, model, profile)
    if args.json:
        keys_of_joint = ("parent", "child", "xyz", "rpy")
        print(json.dumps({each.name: {key: getattr(each, key) for key in keys_of_joint} for each in joints}, indent=1))
    if args.form == "calibration-values":
        said = _values(calibration, joints, args)
        print("" if args.json else said, end="")
    elif args.form == "urdf" and args.out:
        source = description_file(args.model, robot)
        text = urdf_text(source, profile.description.packages)
        files.write_text(args.out, _description_with(joints, text, None if is_own(source) else source, args.out))
        print(f"{args.out}: the description with calibrated {', '.join(joint.name for joint in joints)}")
    elif not args.json:
        _put(args, (_urdf if args.form == "urdf" else _xacro)(joints))
    return 0


def _urdf(joints: list[JointOrigin]) -> str:
    lines = [
        f'<joint name="{joint.name}" type="fixed">\n  <origin xyz="{joint.xyz}" rpy="{joint.rpy}"/>\n'
        f'  <parent link="{joint.parent}"/>\n  <child link="{joint.child}"/>\n</joint>\n'
        for joint in joints
    ]
    return "".join(["<!-- replace the joints of these names in the description -->\n", *lines])


def _description_with(joints: list[JointOrigin], text: str, source: str | None, out: Path) -> str:
    """Return a description's text with these joints, and meshes that lie relative to its file, `source`, relative to
    `out`."""
    root = parse_xml(text, source or "the vendor's description")
    for file in [] if source is None else [*root.iter("mesh"), *root.iter("texture")]:
        name = file.get("filename", "")
        if name and not urlparse(name).scheme and not os.path.isabs(name):
            own = os.path.join(os.path.dirname(os.path.realpath(source)), name)
            file.set("filename", os.path.relpath(own, os.path.dirname(os.path.realpath(out))))
    by_name = {joint.name: joint for joint in joints}
    for element in root.findall("joint"):
        if (joint := by_name.get(element.get("name"))) is not None:
            origin = element.find("origin")
            origin = ElementTree.SubElement(element, "origin") if origin is None else origin
            origin.set("xyz", joint.xyz)
            origin.set("rpy", joint.rpy)
    ElementTree.indent(root)  # a xacro's expansion is one line
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _xacro(joints: list[JointOrigin]) -> str:
    lines = [
        f'  <xacro:property name="{NO_IDENTIFIER.sub("_", joint.name)}_{key}" value="{getattr(joint, key)}"/>\n'
        for joint in joints for key in ("xyz", "rpy")
    ]  # fmt: skip
    return f'<robot xmlns:xacro="{XACRO}">\n  <!-- {USE} -->\n{"".join(lines)}</robot>\n'


def _put(args: argparse.Namespace, text: str) -> None:
    if args.out:
        files.write_text(args.out, text)
        print(f"{args.out}: written")
    else:
        print(text, end="")


def _static_transforms(calibration: CalibrationFile, model: RobotModel, profile: RobotProfile, as_json: bool) -> str:
    transforms = []
    if calibration.aligned:
        left = checked_lidar_links(model, profile)["left"]
        for name, pose in calibration.to_left.items():
            transforms.append((left, keys.calibrated_frame(name), pose))
    mounts = stored_mounts(calibration)
    if mounts is not None:
        transforms.append((profile.base_frame, LEFT_CALIBRATED, mounts.base_from_lidar["left"]))
    if calibration.footprint_from_base is not None:
        transforms.append((profile.base_frame, FLOOR_PLANE, inverse(calibration.footprint_from_base)))
    poses = [(parent, child, *to_xyz_quaternion(pose)) for parent, child, pose in transforms]
    if not as_json:
        return "".join(starmap(_as_command, poses))
    names = ("parent", "child", "xyz", "quaternion_xyzw")
    return json.dumps([dict(zip(names, pose, strict=True)) for pose in poses], indent=1, default=list) + "\n"


def _as_command(parent: str, child: str, xyz: np.ndarray, quaternion: np.ndarray) -> str:
    names = ("--x", "--y", "--z", "--qx", "--qy", "--qz", "--qw")
    numbers = " ".join(f"{name} {value:.9f}" for name, value in zip(names, [*xyz, *quaternion], strict=True))
    return f"ros2 run tf2_ros static_transform_publisher {numbers} --frame-id {parent} --child-frame-id {child}\n"


def _values(calibration: CalibrationFile, joints: list[JointOrigin], args: argparse.Namespace) -> str:
    """Record the joints in a values file, and return a line about that; without one, return what would be in it."""
    entry = calibration.entries.get(RIGHT_TO_LEFT) or next(iter(calibration.entries.values()), None)
    robot_id = entry.robot_id if entry and entry.robot_id else keys.default_robot_id()
    target = default_values_path() if args.record else args.out
    if target is None:
        now = datetime.datetime.now().isoformat()
        return values_file.values_text(Path("(new file)"), joints, robot_id, now)
    backup = values_file.record_joints(target, joints, robot_id)
    kept = f"; the previous values are in {backup}" if backup else ""
    return f"{target}: recorded {', '.join(joint.name for joint in joints)}{kept}\n"


def _roll_back(args: argparse.Namespace) -> int:
    if args.file:
        raise InputError(f"{args.file}: --rollback restores the values file and reads no calibration")
    only_with(args, ["record", "model", "robot", "json"], "a calibration, not with --rollback")
    target = args.out or default_values_path()
    backup = files.rollback(target)
    print(f"{target}: restored from {backup.name}; the replaced version is {target.name}.rolled_back")
    return 0


COMMANDS = {
    "check": ("stretch-sim-cal check dual_lidar_calibration.yaml yesterday.yaml", _add_check, _check),
    "export": ("stretch-sim-cal export dual_lidar_calibration.yaml --as static-transform", _add_export, _export),
}
