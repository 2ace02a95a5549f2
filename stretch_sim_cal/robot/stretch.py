"""The Stretch's own names: its lidars, the arm that is one joint to its driver and four in its description; poses."""

import logging
from collections.abc import Mapping

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.description import Limit, RobotModel
from stretch_sim_cal.robot.model import near

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


def lidar_links(model: RobotModel) -> list[str]:
    """Return the model's lidar links, left before right, whichever generation of names it uses."""
    return [link for names in zip(LIDAR_LINKS, OLDER_LIDAR_LINKS, strict=True) for link in names if link in model.links]


def nominal_description(tool: str = DEFAULT_TOOL) -> str:
    """Return the URDF text of the vendor's Stretch 4 with a tool; its meshes are absolute `file://` names.

    Raises `InputError` for an unknown tool, or where the vendor's package `stretch4_urdf` is not installed.
    """
    stretch4_urdf = vendor_package()
    tools = available_tools()
    if tool not in tools:
        raise InputError(f"'{tool}' is no tool of the Stretch{near(tool, tools)}")
    return stretch4_urdf.get_urdf(model_name=MODEL, batch_name=BATCH, tool_name=tool)


def available_tools() -> list[str]:
    """Return the names of the tools that the vendor's description knows, and of the user's own beside it."""
    vendor_package()
    from stretch4_urdf.utils.urdf_utils_generate_from_base_xacro import get_available_tools

    return sorted(get_available_tools(MODEL))


def vendor_package():
    """Return the module `stretch4_urdf`. Raises `InputError` where it is not installed."""
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
    where the model has them and has no joint of that name itself. Other names stay as they are.
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

    Where a segment or finger is not among `positions` (messages may lack some), what it belongs to is not either.
    """
    fingers = finger_joints(model)
    result = {name: value for name, value in positions.items() if name not in (*ARM_SEGMENTS, *fingers)}
    if all(name in positions for name in ARM_SEGMENTS):
        result[ARM_JOINT] = sum(positions[name] for name in ARM_SEGMENTS)
    if fingers and all(name in positions for name in fingers):
        result[GRIPPER_JOINT] = sum(positions[name] for name in fingers) / len(fingers)
    return result


def finger_joints(model: RobotModel) -> tuple[str, ...]:
    """Return the joints of the tool's two fingers; none where the tool does not grip."""
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
