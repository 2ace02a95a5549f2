"""The description of a simulated Stretch: the vendor's, plus the truth that only the simulator knows (see models/)."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import find_shared
from stretch_sim_cal.geometry.transforms import check_rigid, to_xyz_rpy
from stretch_sim_cal.robot.model import near
from stretch_sim_cal.robot.stretch import (
    BATCH,
    DEFAULT_TOOL,
    HEAD_LINK,
    LIDAR_LINKS,
    MODEL,
    available_tools,
    vendor_package,
)
from stretch_sim_cal.robot.urdf import parse_urdf, parse_xml
from stretch_sim_cal.robot.xacro_source import expand_xacro

SIMULATORS = ("embedded", "gazebo")
TRUE_LIDAR_LINKS = ("lidar_left_true_link", "lidar_right_true_link")
"""Where the lidars really are, left first; the frames of `LIDAR_LINKS` are where the robot believes they are."""
FLOOR_LINK = "floor_link"
GAZEBO_EFFORT = 1000.0
"""N or Nm for joints that the vendor gives none: enough for the heaviest, and the controllers' gains set the pace."""


@dataclass(frozen=True)
class PayloadBox:
    """A box bolted to `link` that the robot's own description does not know.

    `size` (m) along its axes; its centre at `xyz` (m), turned by `rpy` (rad, fixed axes), in the link's frame.
    """

    link: str
    size: tuple[float, float, float]
    xyz: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rpy: tuple[float, float, float] = (0.0, 0.0, 0.0)


def simulated_description(
    lidar_left_error: np.ndarray | None = None,
    lidar_right_error: np.ndarray | None = None,
    base_error: tuple[float, float, float] = (0.0, 0.0, 0.0),
    payload: Iterable[PayloadBox] = (),
    simulator: str = "embedded",
    tool: str = DEFAULT_TOOL,
    gazebo: Mapping[str, object] | None = None,
    joint_errors: Mapping[str, np.ndarray] | None = None,
) -> str:
    """Return the URDF text of a Stretch 4 whose lidars and base are not where its description says.

    The lidars' errors are 4x4, `true = nominal * error`; `base_error` is (height, roll, pitch) of base_link over the
    floor in m and rad, in base_link's own frame. The links that hold the truth are told in models/README.md.
    With `simulator="gazebo"` there are sensors, controllers and joint efforts, and no collision box around the lidars;
    `gazebo` are further arguments of models/stretch4.gazebo.xacro. `joint_errors` (4x4 by joint) move the origins of
    joints that carry no lidar, `true = nominal * error`.
    Raises `InputError` for errors that are not rigid, unknown tools, simulators and links of the payload.
    """
    if simulator not in SIMULATORS:
        raise InputError(f"simulator '{simulator}' is not known; there is {', '.join(SIMULATORS)}")
    height, roll, pitch = base_error
    arguments: dict[str, object] = {
        "pkg_path": _vendor_folder(),
        "batch": BATCH,
        **_tool_arguments(tool),
        "base_height": float(height),
        "base_roll": float(roll),
        "base_pitch": float(pitch),
        "payload": repr([[box.link, *map(_text, (box.size, box.xyz, box.rpy))] for box in payload]),
        "simulator": simulator,
    }
    arguments |= gazebo or {}
    for side, error in (("left", lidar_left_error), ("right", lidar_right_error)):
        xyz, rpy = to_xyz_rpy(np.eye(4) if error is None else check_rigid(error, f"error of lidar {side}"))
        arguments |= {f"lidar_{side}_xyz": _text(xyz), f"lidar_{side}_rpy": _text(rpy)}
    text = expand_xacro(find_shared("models", "stretch4", ".urdf.xacro"), arguments)
    if joint_errors:
        text = _with_joint_errors(text, joint_errors)
    if simulator == "gazebo":
        text = _for_gazebo(text)
    parse_urdf(text, source="simulated description")  # Names what is wrong with a payload in its own words.
    return text


def _with_joint_errors(text: str, errors: Mapping[str, np.ndarray]) -> str:
    """Return the description with the origins of joints moved. Raises `InputError` for ones that carry a lidar."""
    robot, model = parse_xml(text, "simulated description"), parse_urdf(text, source="simulated description")
    carrying = set()
    for link in LIDAR_LINKS:
        while (joint := model.parent_joint(link)) is not None:
            carrying.add(joint.name)
            link = joint.parent
    for name, error in errors.items():
        if name not in model.joints or name in carrying:
            movable = sorted(set(model.joints) - carrying)
            raise InputError(f"joint error: '{name}' is no joint, or carries a lidar{near(name, movable)}")
        xyz, rpy = to_xyz_rpy(model.joints[name].parent_from_joint @ check_rigid(error, f"error of joint {name}"))
        joint = next(element for element in robot.iterfind("joint") if element.get("name") == name)
        origin = joint.find("origin")
        origin = ElementTree.SubElement(joint, "origin") if origin is None else origin
        origin.set("xyz", _text(xyz))
        origin.set("rpy", _text(rpy))
    return ElementTree.tostring(robot, encoding="unicode")


def _for_gazebo(text: str) -> str:
    """Return the description with what Gazebo cannot live with put right.

    Joints whose effort limit is 0 never move in its physics, the head's collision box encloses both lidars, and a
    controller of a joint that this tool does not have is an error.
    """
    robot = parse_xml(text, "simulated description")
    joints = {joint.get("name") for joint in robot.iterfind("joint")}
    for extension in robot.findall("gazebo"):
        if extension.findtext("plugin/joint_name", default=next(iter(joints))) not in joints:
            robot.remove(extension)
    for limit in robot.iterfind("joint/limit"):
        if float(limit.get("effort", "0")) == 0.0:
            limit.set("effort", repr(GAZEBO_EFFORT))
    for link in robot.iterfind("link"):
        if link.get("name") == HEAD_LINK:
            for collision in link.findall("collision"):
                link.remove(collision)
    return ElementTree.tostring(robot, encoding="unicode")


def _vendor_folder() -> Path:
    return Path(vendor_package().__file__).parent


def _tool_arguments(tool: str) -> dict[str, object]:
    """Return the vendor's xacro arguments for a tool: its own, or one of the user's own of that name."""
    tools = available_tools()
    if tool not in tools:
        raise InputError(f"'{tool}' is no tool of the Stretch{near(tool, tools)}")
    if tool.endswith("_nil"):
        return {"tool": tool}
    folder = next(
        (folder / tool for folder in _user_tool_folders() if (folder / tool).is_dir()),
        _vendor_folder() / f"{MODEL}_tools" / tool,
    )
    urdfs = sorted(folder.glob("*.urdf"))
    if len(urdfs) != 1:
        raise InputError(f"{folder}: a tool has exactly one .urdf file, this one has {len(urdfs)}")
    return {"tool": tool, "tool_dir": folder, "tool_urdf": urdfs[0].stem}


def _user_tool_folders() -> list[Path]:
    """Return where the user's own tools may lie, in the vendor's order."""
    fleet, robot = os.environ.get("HELLO_FLEET_PATH"), os.environ.get("HELLO_FLEET_ID")
    if not fleet:
        return [Path("~/stretch_user/user_tools").expanduser()]
    return ([Path(fleet) / robot / "user_tools"] if robot else []) + [Path(fleet) / "user_tools"]


def _text(values: Iterable[float]) -> str:
    return " ".join(repr(float(value)) for value in values)
