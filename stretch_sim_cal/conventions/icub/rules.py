"""The rules of the iCub model naming conventions: joints, links, axes, frames, control boards."""

import re
from collections.abc import Iterator

import numpy as np

from stretch_sim_cal.conventions.frames import angle_deg, frames_in, has_geometry, moves, rigidly_joined, shown
from stretch_sim_cal.conventions.icub import tables
from stretch_sim_cal.conventions.profile import ERROR, INFO, WARNING, Finding
from stretch_sim_cal.robot.model import RobotModel, near

AXIS_DEG = 1.0
"""Axes of legs and torso are meant to be exact."""
WRONG_AXIS_DEG = 45.0
"""Beyond this another axis is nearer, or the sign is wrong."""

_DISREGARDED = re.compile(r"eye|hand_|finger|thumb|index|middle|ring|little|pinky", re.IGNORECASE)
_ALL_JOINTS = [joint for joints in tables.BOARDS.values() for joint in joints]


def control_boards(model: RobotModel) -> Iterator[Finding]:
    """Joints have the names of YARP's control boards, and each board finds all of its joints."""
    for board, joints in tables.BOARDS.items():
        missing = [name for name in joints if name not in model.joints]
        if len(missing) == len(joints):
            yield Finding(
                "control-board",
                INFO,
                board,
                f"none of its joints is in the model ({', '.join(joints)})",
                "none, if it has none",
            )
            continue
        for name in missing:
            yield Finding(
                "control-board", ERROR, name, f"control board {board} has {len(joints)} joints, this one is missing",
                f"name the joint {name}{near(name, _unknown_joints(model)) if _unknown_joints(model) else ''}",
            )  # fmt: skip
        for name in joints:
            if name in model.joints and model.joints[name].type != "revolute":
                yield Finding(
                    "joint-type",
                    ERROR,
                    name,
                    f"it is {model.joints[name].type}, the table says revolute",
                    "make it revolute",
                )


def _unknown_joints(model: RobotModel) -> list[str]:
    return [joint.name for joint in model.joints.values() if moves(joint) and joint.name not in _ALL_JOINTS]


def unknown_joints(model: RobotModel) -> Iterator[Finding]:
    """Moving joints are those of the table; eyes and hands are not covered by it."""
    for name in _unknown_joints(model):
        if _DISREGARDED.search(name):
            yield Finding("joint-name", INFO, name, "eyes and hands are not covered by the conventions", "none needed")
        else:
            yield Finding(
                "joint-name", WARNING, name, f"the table has no such joint{near(name, _ALL_JOINTS)}", "rename it"
            )


def ft_sensors(model: RobotModel) -> Iterator[Finding]:
    """Force-torque sensors are fixed joints with the names of the table; a robot has up to six."""
    for name, sensor in tables.FT_SENSORS.items():
        if name not in model.joints:
            yield Finding(
                "ft-sensor", INFO, name, f"there is no such joint for YARP's sensor {sensor}", "none, if it has none"
            )
        elif moves(model.joints[name]):
            yield Finding("ft-sensor", ERROR, name, f"it is {model.joints[name].type}", "make it fixed")


def links(model: RobotModel) -> Iterator[Finding]:
    """Links have the names of the table, below the joints and links that it says."""
    if tables.ROOT_LINK not in model.links:
        yield Finding(
            "link", ERROR, model.root, f"there is no {tables.ROOT_LINK}", f"call the pelvis {tables.ROOT_LINK}"
        )
    elif not rigidly_joined(model, tables.ROOT_LINK, model.root):
        yield Finding("link", ERROR, tables.ROOT_LINK, f"it moves against the root {model.root}", "make it the root")
    for link, (joint_name, _) in tables.LINKS.items():
        joint = model.joints.get(joint_name)
        if joint is None:
            if (
                link in model.links
                and link not in tables.NECK_LINKS
                and joint_name not in tables.FT_SENSORS
                and _board_is_there(model, joint_name)
            ):
                above = model.parent_joints.get(link)
                yield Finding(
                    "parent-joint", ERROR, link, f"it hangs on joint {above.name if above else 'none'}, the table says "
                    f"{joint_name}", f"call the joint above it {joint_name}",
                )  # fmt: skip
            continue
        level = INFO if link in tables.NECK_LINKS else ERROR
        if joint.child != link:
            yield Finding(
                "link",
                level,
                joint.child,
                f"the link below joint {joint_name} is called {joint.child}",
                f"call it {link}",
            )
        expected = _parent(model, link)
        if joint.parent != expected:
            yield Finding(
                "parent-link", level, link, f"joint {joint_name} hangs on {joint.parent}, the table says {expected}",
                f"hang it on {expected}",
            )  # fmt: skip


def bodies(model: RobotModel) -> Iterator[Finding]:
    """Links, other than frames, are characterised by a mass and a physical shape."""
    for link in (tables.ROOT_LINK, *tables.LINKS):
        if link not in model.links:
            continue
        inertial = model.links[link].inertial
        if inertial is None or inertial.mass <= 0.0:
            yield Finding("link-mass", WARNING, link, "the link has no mass", "give it its inertial parameters")
        if not has_geometry(model, link):
            yield Finding("link-shape", WARNING, link, "the link has no shape", "give it its mesh")


def _board_is_there(model: RobotModel, joint_name: str) -> bool:
    return any(
        joint_name in joints and any(name in model.joints for name in joints) for joints in tables.BOARDS.values()
    )


def _parent(model: RobotModel, link: str) -> str:
    """Return a link's parent in the table; the link beyond a sensor that the robot does not have is skipped."""
    parent = tables.LINKS[link][1]
    while parent in tables.LINKS and tables.LINKS[parent][0] in tables.FT_SENSORS:
        if tables.LINKS[parent][0] in model.joints or parent in model.links:
            break
        parent = tables.LINKS[parent][1]
    return parent


def axes(model: RobotModel) -> Iterator[Finding]:
    """Axes at the zero configuration, in the root frame, point where the table says; those of the arms roughly."""
    reference = next((link for link in (tables.ROOT_FRAME, tables.ROOT_LINK) if link in model.links), None)
    if reference is None:
        return
    frames = frames_in(model, reference)
    for name, direction in tables.AXES.items():
        joint = model.joints.get(name)
        if joint is None or not moves(joint) or not joint.axis.any():
            continue
        axis = frames[joint.child][:3, :3] @ joint.unit_axis
        away = angle_deg(axis, np.array(direction, dtype=float))
        arm = name in tables.ARM_JOINTS
        if away <= AXIS_DEG:
            continue
        level = ERROR if away > WRONG_AXIS_DEG else INFO if arm else WARNING
        roughly = "; the table gives the arms' axes only roughly" if arm else ""
        opposite = "negate the axis and swap the limits" if away > 180.0 - WRONG_AXIS_DEG else "turn the axis"
        yield Finding(
            "axis", level, name, f"at zero its axis {shown(axis)} in {reference} is {away:.1f} deg from the table's "
            f"{shown(np.array(direction))}{roughly}", "none needed" if level == INFO else opposite, away,
        )  # fmt: skip


def holders_of(model: RobotModel, frame: str) -> tuple[str, ...]:
    """Return the links that a frame may be fixed to: the table's, and the link before a sensor that is not there."""
    table = tables.FRAMES[frame]
    before = [
        tables.LINKS[link][1] for link in table
        if link in tables.LINKS and link not in model.links and tables.LINKS[link][0] in tables.FT_SENSORS
        and tables.LINKS[link][0] not in model.joints
    ]  # fmt: skip
    return (*before, *table)


def frames(model: RobotModel) -> Iterator[Finding]:
    """Frames are fixed to the links that the table says, without shapes; DH frames also serve the skin."""
    for name in tables.FRAMES:
        holders = holders_of(model, name)
        rule = "skin-frame" if name in tables.SKIN_PARTS else "frame"
        if name not in model.links:
            what = f" (skin part {tables.SKIN_PARTS[name]})" if name in tables.SKIN_PARTS else ""
            yield Finding(
                rule,
                INFO,
                name,
                f"there is no such frame{what}; the table has it on {' or '.join(holders)}",
                "add it if it is used",
            )
            continue
        joint = model.parent_joints.get(name)
        if joint is not None and moves(joint):
            yield Finding(rule, ERROR, name, f"its joint {joint.name} is {joint.type}", "make it fixed")
        elif not any(holder in model.links and rigidly_joined(model, name, holder) for holder in holders):
            on = joint.parent if joint is not None else "nothing"
            yield Finding(
                rule,
                ERROR,
                name,
                f"it is fixed to {on}, the table says {' or '.join(holders)}",
                f"hang it on {holders[-1]}",
            )
        if has_geometry(model, name):
            yield Finding(rule, WARNING, name, "it is a frame and has a shape", "move the shape to its link")
