"""The normal form of an iCub: names from the conventions' tables, axes with the tables' signs, standard frames added."""

import re

import numpy as np

from stretch_sim_cal.conventions.icub import tables
from stretch_sim_cal.conventions.icub.profile import ICUB
from stretch_sim_cal.conventions.icub.rules import WRONG_AXIS_DEG, holders_of
from stretch_sim_cal.conventions.profile import ERROR, lint
from stretch_sim_cal.conventions.rewrite import AddedFrame, Turning
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


def turning(model: RobotModel) -> tuple[Turning, dict[str, str]]:
    """Return which joints count the other way round than the table says, and why."""
    reversed_ = [
        each.name for each in lint(model, ICUB)
        if each.rule == "axis" and each.level == ERROR and each.measured > 180.0 - WRONG_AXIS_DEG
    ]  # fmt: skip
    signs = dict.fromkeys(reversed_, -1)
    return Turning(signs=signs), dict.fromkeys(reversed_, "the table's axis; check the motor's polarity")


def missing_frames(model: RobotModel) -> list[AddedFrame]:
    """Return the standard frames whose links are there, at those links' origins: no description tells their poses.

    The frame of a force-torque sensor is added on the link below the sensor's joint, whose origin is the sensor's, and
    only where there is the sensor.
    """
    added = []
    for name in tables.FRAMES:
        holders = holders_of(model, name)
        sensor = model.joints.get(name.replace("_ft_frame", "_ft_sensor")) if name.endswith("_ft_frame") else None
        if name in model.links or name.endswith("_ft_frame") and (sensor is None or sensor.child not in holders):
            continue
        holder = sensor.child if sensor is not None else next((each for each in holders if each in model.links), None)
        if holder is not None:
            exact = sensor is not None or name == tables.ROOT_FRAME
            reason = f"at {holder}'s origin" + ("" if exact else "; its pose is not known: measure it")
            added.append(AddedFrame(name, f"{name}_fixed_joint", holder, np.eye(4), reason))
    return added
