"""The Stretch's own names and poses, the vendor's description, and the description of a simulated one.

To its driver the arm is one joint, in its description four. A simulated Stretch holds the truth that only the simulator
knows (see models/).
"""

import functools
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import find_shared
from stretch_sim_cal.geometry.transforms import check_rigid, to_xyz_rpy
from stretch_sim_cal.robot.model import Limit, RobotModel, near
from stretch_sim_cal.robot.urdf import expand_xacro, parse_urdf, parse_xml

BASE_LINK = "base_link"
FOOTPRINT_LINK = "base_footprint"
HEAD_LINK = "head_link"
LIDAR_LINKS = ("lidar_left_link", "lidar_right_link")
"""The lidars' frames, left first."""
OLDER_LIDAR_LINKS = ("link_lidar_left", "link_lidar_right")
"""What older firmware calls them."""
ARM_JOINT = "arm_joint"
"""The whole extension of the arm to the driver; the description has four telescoping joints instead."""
ARM_SEGMENTS = ("arm_l1_joint", "arm_l2_joint", "arm_l3_joint", "arm_l4_joint")
GRIPPER_JOINT = "gripper_joint"
"""Both fingers of a gripper, which open and close together."""
COMMANDED_JOINTS = (
    "lift_joint",
    ARM_JOINT,
    "wrist_yaw_joint",
    "wrist_pitch_joint",
    "wrist_roll_joint",
    GRIPPER_JOINT,
)
"""The joint names that the trajectory action takes."""
COMMANDED_NAMES = {name.removesuffix("_joint"): name for name in COMMANDED_JOINTS if name != GRIPPER_JOINT}
"""The same for the joints of a dataset, by the short names that it has for them."""
FINGER_JOINTS = (
    ("gripper_finger_left_joint", "gripper_finger_right_joint"),
    ("finger_left_joint", "finger_right_joint"),
)
"""The fingers' joints in the description, of the curved gripper and of the parallel one."""
STOW = {
    "lift_joint": 0.2,
    ARM_JOINT: 0.0,
    "wrist_yaw_joint": 3.14,
    "wrist_pitch_joint": 0.0,
    "wrist_roll_joint": 0.0,
    GRIPPER_JOINT: 0.0,
}
"""Commanded positions with the tool folded back over the base: the outline is hardly more than the base's, and nothing
is closer than 12 mm to anything else."""
HOME = STOW | {"lift_joint": 0.6, ARM_JOINT: 0.1, "wrist_yaw_joint": 0.0}
"""Commanded positions with the tool straight ahead at working height."""
DEFAULT_TOOL = "eoa_wrist_dw4_tool_sg4"
MODEL, BATCH = "SE4", "francis"
SIMULATORS = ("embedded", "gazebo")
TRUE_LIDAR_LINKS = ("lidar_left_true_link", "lidar_right_true_link")
"""Where the lidars really are, left first; the frames of `LIDAR_LINKS` are where the robot believes they are."""
FLOOR_LINK = "floor_link"
GAZEBO_EFFORT = 1000.0
"""N or Nm for joints that the vendor gives none: enough for the heaviest, and the controllers' gains set the pace."""


def lidar_links(model: RobotModel) -> list[str]:
    """Return the model's lidar links, left before right, whichever generation of names it uses."""
    return [link for names in zip(LIDAR_LINKS, OLDER_LIDAR_LINKS, strict=True) for link in names if link in model.links]


def nominal_description(tool: str = DEFAULT_TOOL) -> str:
    """Return the URDF text of the vendor's Stretch 4 with a tool; its meshes are absolute `file://` names.

    Raises `InputError` for an unknown tool, or if the vendor's package `stretch4_urdf` is not installed.
    """
    tools = available_tools()
    if tool not in tools:
        raise InputError(f"'{tool}' is no tool of the Stretch{near(tool, tools)}")
    return _vendor_description(tool)


@functools.cache
def _vendor_description(tool: str) -> str:
    return vendor_package().get_urdf(model_name=MODEL, batch_name=BATCH, tool_name=tool)


def available_tools() -> list[str]:
    """Return the names of the tools that the vendor's description knows, and of the user's own beside it."""
    vendor_package()
    from stretch4_urdf.utils.urdf_utils_generate_from_base_xacro import get_available_tools

    return sorted(get_available_tools(MODEL))


def vendor_package():
    """Return the module `stretch4_urdf`. Raises `InputError` if it is not installed."""
    try:
        import stretch4_urdf
    except ImportError as error:
        raise InputError(
            "the Stretch's description is not installed; 'pip install hello-robot-stretch4-urdf' (or 'make env')"
        ) from error
    # It logs one line per call at INFO, and a missing robot as a warning.
    logging.getLogger("urdf_utils").setLevel(logging.ERROR)
    return stretch4_urdf


def joint_positions(model: RobotModel, commanded: Mapping[str, float | np.ndarray]) -> dict[str, float | np.ndarray]:
    """Return the description's joint positions of commanded ones, which may be numbers or arrays.

    `arm_joint` is split evenly over its four segments, and both fingers take the angle (or travel) of `gripper_joint`,
    if the model has them and has no joint of that name itself. Other names stay as they are.
    The inverse is `commanded_positions`.
    """
    result: dict[str, float | np.ndarray] = {}
    for name, value in commanded.items():
        if name == ARM_JOINT and name not in model.joints and _has(model, ARM_SEGMENTS):
            result |= dict.fromkeys(ARM_SEGMENTS, np.asarray(value) / len(ARM_SEGMENTS))
        elif name == GRIPPER_JOINT and name not in model.joints and finger_joints(model):
            result |= dict.fromkeys(finger_joints(model), value)
        else:
            result[name] = value
    return result


def commanded_positions(
    model: RobotModel, positions: Mapping[str, float | np.ndarray]
) -> dict[str, float | np.ndarray]:
    """Return commanded positions of the description's: `arm_joint` is the sum of its segments, `gripper_joint` the
    mean of the fingers.

    If a segment or finger is not among `positions` (messages may lack some), what it belongs to is not either.
    """
    fingers = finger_joints(model)
    result = {name: value for name, value in positions.items() if name not in (*ARM_SEGMENTS, *fingers)}
    if all(name in positions for name in ARM_SEGMENTS):
        result[ARM_JOINT] = sum(positions[name] for name in ARM_SEGMENTS)
    if fingers and all(name in positions for name in fingers):
        result[GRIPPER_JOINT] = sum(positions[name] for name in fingers) / len(fingers)
    return result


def finger_joints(model: RobotModel) -> tuple[str, ...]:
    """Return the joints of the tool's two fingers; none if the tool does not grip."""
    return next((names for names in FINGER_JOINTS if _has(model, names)), ())


def _has(model: RobotModel, joints: tuple[str, ...]) -> bool:
    return all(name in model.joints for name in joints)


def commanded_limits(model: RobotModel) -> dict[str, Limit]:
    """Return the limits, as commanded, of the joints that have any: the model's own, `arm_joint` and `gripper_joint`.

    The segments extend together, so the extension has four times the range and velocity of the shortest and slowest
    segment; the fingers share one position.
    """
    limits = {joint.name: joint.limit for joint in model.moving_joints() if joint.limit is not None}
    for name, parts, count in ((ARM_JOINT, ARM_SEGMENTS, 4), (GRIPPER_JOINT, finger_joints(model), 1)):
        if name in model.joints or not parts or any(part not in limits for part in parts):
            continue
        together = [limits.pop(part) for part in parts]
        limits[name] = Limit(
            lower=count * max(limit.lower for limit in together),
            upper=count * min(limit.upper for limit in together),
            velocity=count * min(limit.velocity for limit in together),
            effort=min(limit.effort for limit in together),
        )
    return limits


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
