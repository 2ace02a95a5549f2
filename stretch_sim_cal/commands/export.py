"""`stretch-sim-cal export FILE --as ...`: a calibration in the forms that other programs read."""

import argparse
import datetime
import json
import re
from itertools import starmap
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.calibration import calibration_file, values_file
from stretch_sim_cal.calibration.calibration_file import RIGHT_TO_LEFT, CalibrationFile
from stretch_sim_cal.calibration.checks import check_lidars, problems
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.calibration.mounts.robot import calibrated_joints
from stretch_sim_cal.calibration.values_file import JointOrigin, default_values_path
from stretch_sim_cal.command import only_with
from stretch_sim_cal.commands.described import MODEL_HELP, ROBOT_HELP, description_file, load_description, urdf_text
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import inverse, to_xyz_quaternion
from stretch_sim_cal.robot.description import parse_xml
from stretch_sim_cal.robot.profile import profile_called

EXAMPLE = "stretch-sim-cal export dual_lidar_calibration.yaml --as static-transform"

XACRO = "http://www.ros.org/wiki/xacro"
NO_IDENTIFIER = re.compile(r"\W|^(?=\d)")  # what a property's name may not have
USE = 'include this in the description, and write in each joint NAME: <origin xyz="${NAME_xyz}" rpy="${NAME_rpy}"/>'
LEFT_CALIBRATED, FLOOR_PLANE = "lidar_left_calibrated", "floor_plane"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", nargs="?", type=Path, help="calibration file (default: the robot's own)")
    add("--as", dest="form", required=True, choices=("urdf", "xacro", "static-transform", "calibration-values"),
        help="format of the output")  # fmt: skip
    add("--model", metavar="FILE", help=MODEL_HELP)
    add("--robot", metavar="FILE", help=ROBOT_HELP)
    add(
        "--out", type=Path, metavar="FILE",
        help="write to this file instead of printing; with --as urdf: the whole description with its joints replaced",
    )  # fmt: skip
    add("--record", action="store_true", help="with --as calibration-values: write into the robot's own values file")
    add("--rollback", action="store_true",
        help="with --as calibration-values: restore the values from before the last write")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    if args.form != "calibration-values":
        only_with(args, ["record", "rollback"], "--as calibration-values")
    if args.out and args.form in ("urdf", "xacro"):
        only_with(args, ["json"], "what is printed, not with --out,")
    if args.rollback:
        return _roll_back(args)
    path = args.file or calibration_file.default_path()
    if args.out:
        files.check_not_read("--out", args.out, path, args.model)
    calibration = CalibrationFile.load(path)
    found = problems(calibration)
    if found:
        raise Refused(f"{path}: {'; '.join(found)}")
    if args.out and args.record:
        raise InputError("--record writes the robot's own values file, --out another file: give one of them")
    if args.form == "static-transform":
        _put(args, _static_transforms(calibration, args))
        return 0
    joints = _joints(calibration, args)
    if args.json:
        print(json.dumps({each.name: _as_json(each) for each in joints}, indent=1))
    if args.form == "calibration-values":
        said = _values(calibration, joints, args)
        print("" if args.json else said, end="")
    elif args.form == "urdf" and args.out:
        files.write_text(args.out, _description_with(joints, description_file(args.model, args.robot)))
        print(f"{args.out}: the description with calibrated {', '.join(joint.name for joint in joints)}")
    elif not args.json:
        _put(args, (_urdf if args.form == "urdf" else _xacro)(joints))
    return 0


def _joints(calibration: CalibrationFile, args: argparse.Namespace) -> list[JointOrigin]:
    model, profile = load_description(args.model, args.robot), profile_called(args.robot)
    if calibration.right_to_left is not None:
        check_lidars(calibration, profile.further)
    return calibrated_joints(calibration, model, profile)


def _urdf(joints: list[JointOrigin]) -> str:
    lines = [
        f'<joint name="{joint.name}" type="fixed">\n  <origin xyz="{joint.xyz}" rpy="{joint.rpy}"/>\n'
        f'  <parent link="{joint.parent}"/>\n  <child link="{joint.child}"/>\n</joint>\n'
        for joint in joints
    ]
    return "".join(["<!-- replace the joints of these names in the description -->\n", *lines])


def _description_with(joints: list[JointOrigin], model: str | None) -> str:
    root = parse_xml(urdf_text(model), model or "the vendor's description")
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


def _static_transforms(calibration: CalibrationFile, args: argparse.Namespace) -> str:
    transforms, profile = [], profile_called(args.robot)
    if calibration.right_to_left is not None:
        left = profile.lidar_links(load_description(args.model, args.robot))[0]
        for name, pose in calibration.to_left.items():
            transforms.append((left, calibration_file.calibrated_frame(name), pose))
    mounts = stored_mounts(calibration)
    if mounts is not None:
        transforms.append((profile.base_frame, LEFT_CALIBRATED, mounts.base_from_lidar["left"]))
    if calibration.footprint_from_base is not None:
        transforms.append((profile.base_frame, FLOOR_PLANE, inverse(calibration.footprint_from_base)))
    poses = [(parent, child, *to_xyz_quaternion(pose)) for parent, child, pose in transforms]
    if not args.json:
        return "".join(starmap(_as_command, poses))
    keys = ("parent", "child", "xyz", "quaternion_xyzw")
    return json.dumps([dict(zip(keys, pose, strict=True)) for pose in poses], indent=1, default=list) + "\n"


def _as_command(parent: str, child: str, xyz: np.ndarray, quaternion: np.ndarray) -> str:
    names = ("--x", "--y", "--z", "--qx", "--qy", "--qz", "--qw")
    numbers = " ".join(f"{name} {value:.9f}" for name, value in zip(names, [*xyz, *quaternion], strict=True))
    return f"ros2 run tf2_ros static_transform_publisher {numbers} --frame-id {parent} --child-frame-id {child}\n"


def _values(calibration: CalibrationFile, joints: list[JointOrigin], args: argparse.Namespace) -> str:
    """Record the joints in a values file, and return a line about that; without one, return what would be in it."""
    entry = calibration.entries.get(RIGHT_TO_LEFT) or next(iter(calibration.entries.values()), None)
    robot_id = entry.robot_id if entry and entry.robot_id else calibration_file.default_robot_id()
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
    only_with(args, ["record", "model", "robot", "json"], "a calibration, not with --rollback,")
    target = args.out or default_values_path()
    backup = files.rollback(target)
    print(f"{target}: restored from {backup.name}; the replaced version is {target.name}.rolled_back")
    return 0


def _as_json(joint: JointOrigin) -> dict[str, str]:
    return {key: getattr(joint, key) for key in ("parent", "child", "xyz", "rpy")}
