"""The true robot of a simulation: the description with its errors, and added links (models/README.md) that only the
simulator knows. The description's frames stay nominal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated
from xml.etree import ElementTree

import numpy as np

from stretch_sim_cal.conventions.rewrite import add_frame, set_origin
from stretch_sim_cal.conventions.spawned import SpawnedRobot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import find_shared
from stretch_sim_cal.geometry.transforms import SIDES, check_rigid, from_xyz_rpy, inverse, to_xyz_rpy
from stretch_sim_cal.robot.description import expand_xacro, parse_urdf, parse_xml
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import RobotModel, near
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.robot.stretch import DEFAULT_TOOL, vendor_arguments
from stretch_sim_cal.validate import DEGREES, Bounds

SIMULATORS = ("embedded", "gazebo")
TRUE_LIDAR_LINKS = ("lidar_left_true_link", "lidar_right_true_link")
"""Links at the true poses of the lidars, left first; the profile's frames are at the nominal ones."""

Translation = Annotated[tuple[float, float, float], Bounds(-100.0, 100.0)]
Angles = Annotated[tuple[float, float, float], Bounds(-360.0, 360.0, DEGREES)]


@dataclass(frozen=True)
class PayloadBox:
    """A box fixed to `link` that the robot's description does not have: `size` (m) along its axes, its centre at `xyz`
    (m), turned by `rpy` (rad, fixed axes), in the link's frame."""

    link: str
    size: Annotated[tuple[float, float, float], Bounds(1e-4, 10.0)]
    xyz: Translation = (0.0, 0.0, 0.0)
    rpy: Angles = (0.0, 0.0, 0.0)


def simulated_description(
    lidar_left_error: np.ndarray | None = None,
    lidar_right_error: np.ndarray | None = None,
    base_error: tuple[float, float, float] = (0.0, 0.0, 0.0),
    payload: Iterable[PayloadBox] = (),
    simulator: str = "embedded",
    tool: str = DEFAULT_TOOL,
    gazebo: Mapping[str, object] | None = None,
    joint_errors: Mapping[str, np.ndarray] | None = None,
    robot: SpawnedRobot | None = None,
    further_errors: Mapping[str, np.ndarray] | None = None,
) -> str:
    """Return the URDF text of a robot (by default the vendor's Stretch 4 with `tool`) whose lidars, base and joints
    have errors.

    Errors of lidars and of joint origins (of joints that carry no lidar) are 4x4, `true = nominal * error`,
    `further_errors` by name those of lidars beyond two; `base_error` is (height, roll, pitch) of the base frame over
    the floor in m and rad, in its own frame. With `simulator="gazebo"` there are sensors and controllers, and no
    collision box around the lidars; `gazebo` are further arguments of models/gazebo.xacro. Raises `InputError` for
    errors that are not rigid, unknown tools, simulators and links of the payload.
    """
    if simulator not in SIMULATORS:
        raise InputError(f"simulator '{simulator}' is unknown; available: {', '.join(SIMULATORS)}")
    profile = stretch_profile() if robot is None else robot.profile
    arguments: dict[str, object] = {
        "payload": repr([[box.link, *map(_text, (box.size, box.xyz, box.rpy))] for box in payload]),
        "simulator": simulator,
    }
    if robot is None:
        arguments |= vendor_arguments(tool)
        arguments |= dict(zip(("base_height", "base_roll", "base_pitch"), map(float, base_error), strict=True))
    else:
        arguments |= {"description": robot.file, **_frame_arguments(robot.model, profile, base_error, simulator)}
    arguments |= gazebo or {}
    for side, error in (("left", lidar_left_error), ("right", lidar_right_error)):
        xyz, rpy = to_xyz_rpy(np.eye(4) if error is None else check_rigid(error, f"error of lidar {side}"))
        arguments |= {f"lidar_{side}_xyz": _text(xyz), f"lidar_{side}_rpy": _text(rpy)}
    name = "stretch4" if robot is None else "robot"
    text = expand_xacro(find_shared("models", name, ".urdf.xacro"), arguments)
    if robot is not None:
        root = parse_xml(text, "simulated description")
        root.set("name", robot.model.name)
        text = ElementTree.tostring(root, encoding="unicode")
    if profile.further:
        text = _with_true_lidars(text, profile, further_errors or {})
    if joint_errors:
        text = _with_joint_errors(text, joint_errors, profile)
    if simulator == "gazebo":
        text = _for_gazebo(text, profile)
    _check(text)
    return text


@lru_cache(maxsize=32)
def _check(text: str) -> None:
    parse_urdf(text, source="simulated description")


def _frame_arguments(
    model: RobotModel, profile: RobotProfile, base_error: Sequence[float], simulator: str
) -> dict[str, object]:
    """Return the xacro's arguments of the frames' names and of the floor's pose below the root."""
    height, roll, pitch = map(float, base_error)
    footprint_from_base = link_transform(model, {}, profile.base_frame, profile.footprint_frame)
    floor_from_base = footprint_from_base @ from_xyz_rpy((0.0, 0.0, height), (roll, pitch, 0.0))
    xyz, rpy = to_xyz_rpy(floor_from_base @ inverse(link_transform(model, {}, profile.base_frame)))
    arguments: dict[str, object] = {"root": model.root, "floor_xyz": _text(xyz), "floor_rpy": _text(rpy)}
    arguments |= {f"lidar_{side}_frame": link for side, link in zip(SIDES, profile.lidar_links(model), strict=True)}
    if simulator == "gazebo":
        driven = profile.joint_positions(model, dict.fromkeys(profile.commanded_limits(model), 0.0))
        arguments["joints"] = repr(sorted(driven))
    return arguments


def _with_true_lidars(text: str, profile: RobotProfile, errors: Mapping[str, np.ndarray]) -> str:
    """Return the description with links at the true poses of the lidars beyond two, as in models/truth.xacro."""
    robot = parse_xml(text, "simulated description")
    for name, lidar in profile.further.items():
        error = check_rigid(errors.get(name, np.eye(4)), f"error of lidar {name}")
        add_frame(robot, f"lidar_{name}_true_link", f"lidar_{name}_true_joint", lidar.frame, error)
    return ElementTree.tostring(robot, encoding="unicode")


def _with_joint_errors(text: str, errors: Mapping[str, np.ndarray], profile: RobotProfile) -> str:
    """Return the description with joint origins moved. Raises `InputError` for joints that carry a lidar."""
    robot, model = parse_xml(text, "simulated description"), parse_urdf(text, source="simulated description")
    lidars = (*profile.lidar_links(model), *(lidar.frame for lidar in profile.further.values()))
    carrying = {joint.name for link in lidars for joint in model.chain(link)}
    for name, error in errors.items():
        if name not in model.joints or name in carrying:
            movable = sorted(set(model.joints) - carrying)
            raise InputError(f"joint error: '{name}' is not a joint, or carries a lidar{near(name, movable)}")
        joint = next(element for element in robot.iterfind("joint") if element.get("name") == name)
        set_origin(joint, model.joints[name].parent_from_joint @ check_rigid(error, f"error of joint {name}"))
    return ElementTree.tostring(robot, encoding="unicode")


def _for_gazebo(text: str, profile: RobotProfile) -> str:
    """Return the description with corrections for Gazebo: links that are the lidars themselves, and the collision box
    of the link that holds them, hide their view, and a controller of a missing joint is an error."""
    robot = parse_xml(text, "simulated description")
    joints = {joint.get("name") for joint in robot.iterfind("joint")}
    for extension in robot.findall("gazebo"):
        if extension.findtext("plugin/joint_name", default=next(iter(joints))) not in joints:
            robot.remove(extension)
    for link in robot.iterfind("link"):
        own = any(link.get("name") in lidar.unseen for lidar in profile.every_lidar.values())
        if own or link.get("name") == profile.housing_link:
            for shape in link.findall("collision") + (link.findall("visual") if own else []):
                link.remove(shape)
    return ElementTree.tostring(robot, encoding="unicode")


def true_lidar_links(further: Iterable[str] = ()) -> dict[str, str]:
    """Return the links at the true poses of the lidars, by side, and by name those of `further` ones."""
    return dict(zip(SIDES, TRUE_LIDAR_LINKS, strict=True)) | {name: f"lidar_{name}_true_link" for name in further}


def _text(values: Iterable[float]) -> str:
    return " ".join(repr(float(value)) for value in values)
