"""The Stretch's own names: its lidars, the arm that is one joint to its driver and four in its description, its poses."""

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
COMMANDED_JOINTS = ("lift_joint", ARM_JOINT, "wrist_yaw_joint", "wrist_pitch_joint", "wrist_roll_joint", "gripper_joint")
"""The joint names that the trajectory action takes."""
GRIPPER_JOINT = "gripper_joint"

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


def joint_positions(commanded: Mapping[str, float | np.ndarray]) -> dict[str, float | np.ndarray]:
    """Return the description's joint positions of commanded ones: `arm_joint` is split evenly over its four segments.

    Other names stay as they are; values may be numbers or arrays. The inverse is `commanded_positions`.
    """
    result: dict[str, float | np.ndarray] = {}
    for name, value in commanded.items():
        if name == ARM_JOINT:
            result |= dict.fromkeys(ARM_SEGMENTS, np.asarray(value) / len(ARM_SEGMENTS))
        else:
            result[name] = value
    return result


def commanded_positions(joints: Mapping[str, float | np.ndarray]) -> dict[str, float | np.ndarray]:
    """Return commanded positions of the description's joints: `arm_joint` is the sum of its four segments.

    Without all four segments (a message may lack some), there is no `arm_joint` either.
    """
    result = {name: value for name, value in joints.items() if name not in ARM_SEGMENTS}
    if all(name in joints for name in ARM_SEGMENTS):
        result[ARM_JOINT] = sum(joints[name] for name in ARM_SEGMENTS)
    return result


def commanded_limits(model: RobotModel) -> dict[str, Limit]:
    """Return the limits of the joints that can be commanded and have any: the model's, and `arm_joint`'s from its segments.

    The segments extend together, so the extension's range and velocity are four times those of the slowest and
    shortest segment.
    """
    limits = {joint.name: joint.limit for joint in model.moving_joints() if joint.limit is not None}
    segments = [limits.pop(name) for name in ARM_SEGMENTS if name in limits]
    if len(segments) == len(ARM_SEGMENTS):
        count = len(segments)
        limits[ARM_JOINT] = Limit(
            lower=count * max(limit.lower for limit in segments),
            upper=count * min(limit.upper for limit in segments),
            velocity=count * min(limit.velocity for limit in segments),
            effort=min(limit.effort for limit in segments),
        )
    return limits
