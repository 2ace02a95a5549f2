"""The names that an iCub's joints and links get from the conventions' tables."""

import re

from stretch_sim_cal.conventions.icub import tables
from stretch_sim_cal.robot.model import RobotModel

_JOINTS = {name for joints in tables.BOARDS.values() for name in joints} | set(tables.FT_SENSORS)


def renames(model: RobotModel) -> tuple[dict[str, str], dict[str, str]]:
    """Return the new names of links and of joints, those only that change.

    A joint is recognised by its name however its words are joined and its side is written (`LeftHipPitch`,
    `left_hip_pitch_joint`); a link by the joint above it, or as the root.
    """
    joints = {}
    for name in model.joints:
        meant = canonical(name)
        if meant in _JOINTS and meant not in model.joints and meant not in joints.values():
            joints[name] = meant
    links = {}
    for link, (joint_name, _) in tables.LINKS.items():
        joint = next((each for each in model.joints.values() if joints.get(each.name, each.name) == joint_name), None)
        if joint is not None and joint.child != link:
            links[joint.child] = link
    known = any(joints.get(name, name) in _JOINTS for name in model.joints)
    if known and tables.ROOT_LINK not in model.links and model.root not in links:
        links[model.root] = tables.ROOT_LINK
    return links, joints


def canonical(name: str) -> str:
    """Return a joint's name as the tables would write it: small words joined by _, the side as l_ or r_ in front."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").split("_")
    words = [word for word in words if word not in ("joint", "")]
    sides = {"left": "l", "right": "r", "l": "l", "r": "r"}
    side = next((sides[word] for word in words if word in sides), None)
    rest = [word for word in words if word not in sides]
    return "_".join(([side] if side else []) + rest)
