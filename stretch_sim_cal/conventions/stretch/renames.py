"""Which names a Stretch's links and joints get: the arm and the wrist from their structure, wheels from where they
stand, the rest by their suffixes (Rules 2, 6 and 7)."""

from fnmatch import fnmatchcase

import numpy as np

from stretch_sim_cal.conventions.frames import UP, angle_deg, frames_in, rigid_root
from stretch_sim_cal.conventions.rewrite import OTHER
from stretch_sim_cal.conventions.stretch import names
from stretch_sim_cal.conventions.stretch.profile import EXEMPTIONS
from stretch_sim_cal.robot.model import Joint, RobotModel

PARALLEL_DEG = 2.0
"""Joints of one telescope are parallel to this."""
WRIST_DEG = 20.0
"""How far a wrist's axes may be from base_link's."""
WRIST_AXES = {"wrist_yaw": 2, "wrist_pitch": 1, "wrist_roll": 0}


def renames(model: RobotModel) -> tuple[dict[str, str], dict[str, str]]:
    """Return the new names of links and of joints, those only that change.

    What a role names, no other keeps: a link or joint that was called so without playing the role is called `other_`.
    """
    links: dict[str, str] = {}
    joints: dict[str, str] = {}
    if base_of(model) is not None:
        for stem, link, joint in _roles(model):
            links[link] = f"{stem}_link"
            if joint is not None:
                joints[joint] = f"{stem}_joint"
    for kind, entries, new_names in (("link", model.links, links), ("joint", model.joints, joints)):
        roles = set(new_names.values())
        for name in entries:
            new_names.setdefault(name, f"{OTHER}{suffixed(name, kind)}" if suffixed(name, kind) in roles else
            suffixed(name, kind))  # fmt: skip
    return _changed(links), _changed(joints)


def base_of(model: RobotModel) -> str | None:
    """Return the base's link, also where its name lacks the suffix."""
    return next((name for name in model.order if suffixed(name, "link") == names.BASE), None)


def suffixed(name: str, kind: str) -> str:
    """Return `name` as Rule 7 has it; names that a listed exception covers stay."""
    if any(each.rule == "rule-7" and fnmatchcase(name, each.names) for each in EXEMPTIONS):
        return name
    return names.suffixed(name, kind)


def _changed(new_names: dict[str, str]) -> dict[str, str]:
    return {old: new for old, new in new_names.items() if old != new}


def _roles(model: RobotModel) -> list[tuple[str, str, str | None]]:
    """Return (stem, link, joint above it) of the arm, the wrist and the wheels, as far as the structure tells."""
    found: list[tuple[str, str, str | None]] = []
    telescope = _telescope(model)
    if telescope:
        first = telescope[0].parent
        above = model.parent_joints.get(first)
        if above is not None and not above.variables:
            found.append(("arm_l0", first, above.name))
            lift = model.parent_joints.get(above.parent)
            if lift is not None and lift.type == "prismatic":
                found.append(("lift", lift.child, lift.name))
        found += [(f"arm_l{number}", joint.child, joint.name) for number, joint in enumerate(telescope, 1)]
        found += _wrist(model, telescope[-1].child)
    placed = _wheels(model)
    order = names.wheel_order({link: position for link, (_, position) in placed.items()}) if placed else []
    found += [(f"wheel_{number}", link, placed[link][0]) for number, link in enumerate(order)]
    return found


def _telescope(model: RobotModel) -> list[Joint]:
    """Return four prismatic joints in a row whose axes are parallel and horizontal; none where there are not four."""
    frames = frames_in(model, base_of(model))
    axes = {
        joint.name: frames[joint.child][:3, :3] @ joint.unit_axis
        for joint in model.joints.values()
        if joint.type == "prismatic"
    }
    for joint in model.joints.values():
        if joint.name not in axes or abs(angle_deg(axes[joint.name], UP) - 90.0) > PARALLEL_DEG:
            continue
        row = [joint]
        while following := [
            other for other in model.child_joints(row[-1].child)
            if other.name in axes and np.linalg.norm(np.cross(axes[other.name],
            axes[joint.name])) < np.radians(PARALLEL_DEG)
        ]:  # fmt: skip
            row.append(following[0])
        if len(row) == len(names.ARM_JOINTS) - 1:
            return row
    return []


def _wrist(model: RobotModel, last: str) -> list[tuple[str, str, str | None]]:
    """Return the wrist's links: one fixed to the arm's last, then yaw, pitch, roll about base_link's z, y and x."""
    frames = frames_in(model, base_of(model))
    found: list[tuple[str, str, str | None]] = []
    link = last
    for stem, column in WRIST_AXES.items():
        joint = _next_about(model, frames, link, column)
        if joint is None:
            break
        above = model.parent_joints[joint.parent]
        if stem == "wrist_yaw" and joint.parent != last and not above.variables:
            found.append(("wrist", joint.parent, above.name))
        found.append((stem, joint.child, joint.name))
        link = joint.child
    return found


def _next_about(model: RobotModel, frames: dict[str, np.ndarray], link: str, column: int) -> Joint | None:
    """Return the revolute joint next below `link`, fixed joints between, that turns about one of base_link's axes."""
    for joint in model.joints.values():
        if joint.type == "revolute" and rigid_root(model, joint.parent) == rigid_root(model, link):
            axis = frames[joint.child][:3, :3] @ joint.unit_axis
            if abs(axis[column]) > np.cos(np.radians(WRIST_DEG)):
                return joint
    return None


def _wheels(model: RobotModel) -> dict[str, tuple[str, np.ndarray]]:
    """Return the wheels' links with their joints and places in base_link: endless joints on the base that let them roll."""
    base = base_of(model)
    frames = frames_in(model, base)
    return {
        joint.child: (joint.name, frames[joint.child][:3, 3])
        for joint in model.joints.values()
        if joint.type == "continuous"
        and rigid_root(model, joint.parent) == rigid_root(model, base)
        and names.rolls(joint, frames[joint.child][:3, :3] @ joint.unit_axis)
        and np.linalg.norm(frames[joint.child][:2, 3]) > 1e-3
    }  # fmt: skip
