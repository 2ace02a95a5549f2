"""The rules of the Stretch's URDF conventions about structure, arm, axes, wheels and names (Rules 1, 2, 3, 6, 7).

Each function yields one finding for each departure. Frames are compared at position zero, in base_link.
"""

from collections.abc import Iterator

import numpy as np

from stretch_sim_cal.conventions.frames import (
    PRIMARY,
    UP,
    across,
    angle_deg,
    frames_in,
    nearest_primary,
    shown,
    turn_deg,
)
from stretch_sim_cal.conventions.profile import ERROR, INFO, WARNING, Finding
from stretch_sim_cal.conventions.stretch import names
from stretch_sim_cal.conventions.stretch.names import EXACT_DEG
from stretch_sim_cal.robot.model import Joint, RobotModel


def base_link(model: RobotModel) -> Iterator[Finding]:
    """Everything is measured in base_link."""
    if names.BASE not in model.links:
        yield Finding(
            "base-link", ERROR, model.root, f"there is no {names.BASE} (the root is {model.root}), and all frames are "
            "said in it", f"name the link of the base {names.BASE}",
        )  # fmt: skip


def identity_alignment(model: RobotModel) -> Iterator[Finding]:
    """Rule 1: primary links, and the wrist's and the wheels' zero positions, are aligned with base_link."""
    if names.BASE not in model.links:
        return
    frames = frames_in(model, names.BASE)
    upwards = [names.FOOTPRINT] if names.FOOTPRINT in model.links else []
    for link in (*upwards, *names.PRIMARY_LINKS, *names.ROTATING_LINKS, *names.wheels(model)):
        if link not in model.links:
            continue
        now, joint = frames[link][:3, :3], model.parent_joints.get(link)
        axis = None if link == names.FOOTPRINT else axis_of_motion(frames, joint)
        right = np.eye(3) if link in names.wheels(model) else names.aligned(now, axis)
        turned = turn_deg(now)
        if turn_deg(right) > 0.0 and turn_deg(right.T @ now) <= EXACT_DEG:
            yield Finding(
                "rule-1-oblique", INFO, link, f"at zero of {joint.name} it is turned {turned:.4g} deg against "
                f"{names.BASE}: its axis of motion, {shown(axis)}, is along no primary axis, and Rule 3 turns the frame",
                "none needed",
            )  # fmt: skip
        elif turned > EXACT_DEG:
            where = f"at zero of {joint.name} it" if joint is not None and joint.variables else "it"
            yield Finding(
                "rule-1", ERROR, link, f"{where} is turned {turned:.4g} deg against {names.BASE}; its x axis is "
                f"{shown(frames[link][:3, 0])}, its z axis {shown(frames[link][:3, 2])}",
                "give it base_link's orientation (rpy 0 0 0 from an aligned parent) and carry what hangs on it along",
                turned,
            )  # fmt: skip


def axis_of_motion(frames: dict[str, np.ndarray], joint: Joint | None) -> np.ndarray | None:
    """Return the axis (3,) that a joint with one degree of freedom moves along or about, in the frame that `frames`
    are in; None for other joints."""
    if joint is None or joint.variables != 1:
        return None
    return frames[joint.child][:3, :3] @ joint.unit_axis


def arm_order(model: RobotModel) -> Iterator[Finding]:
    """Rule 2: arm_l0 to arm_l4 in order from the lift to the wrist, links and joints alike."""
    present = [link for link in model.order if link.startswith("arm_l")]
    for link, joint_name in zip(names.ARM, names.ARM_JOINTS, strict=True):
        if link not in model.links:
            yield _arm(
                link,
                f"there is no {link}; the arm has {_listed(present)}",
                "name the five links in order from the lift",
            )
            continue
        joint = model.parent_joints.get(link)
        expected = names.LIFT if link == names.ARM[0] else names.ARM[names.ARM.index(link) - 1]
        if joint is None or joint.parent != expected:
            parent = joint.parent if joint else "nothing"
            yield _arm(
                link, f"{link} hangs on {parent}, its number says {expected}", f"number the links from {names.LIFT} on"
            )
        if joint is not None and joint.name != joint_name:
            yield _arm(joint.name, f"the joint above {link} is called {joint.name}", f"call it {joint_name}")
    for link in present:
        if link not in names.ARM and link.split("_")[1].removeprefix("l").isdigit():
            yield _arm(link, f"{link} is not one of {names.ARM[0]} to {names.ARM[-1]}", "number the five links 0 to 4")
    wrist = model.parent_joints.get(names.WRIST)
    if names.WRIST in model.links and (wrist is None or wrist.parent != names.ARM[-1]):
        yield _arm(
            names.WRIST, f"the wrist is anchored on {wrist.parent if wrist else 'nothing'}, not on {names.ARM[-1]}",
            f"number the links so that the last, {names.ARM[-1]}, holds {names.WRIST}",
        )  # fmt: skip


def _arm(name: str, message: str, fix: str) -> Finding:
    return Finding("rule-2", ERROR, name, message, fix)


def _listed(words: list[str]) -> str:
    return ", ".join(words) or "none"


def positive_axes(model: RobotModel) -> Iterator[Finding]:
    """Rule 3: every axis of motion is a unit vector along a positive primary axis."""
    for joint in model.joints.values():
        if not joint.variables or joint.type in ("floating", "spherical"):
            continue
        length = float(np.linalg.norm(joint.axis))
        if abs(length - 1.0) > 1e-6:
            yield Finding(
                "rule-3-unit", ERROR, joint.name, f"axis {shown(joint.axis)} has length {length:.6g}, not 1",
                f"write {shown(joint.unit_axis)}",
            )  # fmt: skip
        nearest = nearest_primary(joint.unit_axis)
        away = angle_deg(joint.unit_axis, PRIMARY[nearest])
        if away > EXACT_DEG:
            yield Finding(
                "rule-3-primary", ERROR, joint.name,
                f"axis {shown(joint.unit_axis)} is {away:.4g} deg from the nearest primary axis, {nearest}",
                f"turn {joint.child}'s frame so that the axis is +{nearest[1]}", away,
            )  # fmt: skip
        if nearest.startswith("-"):
            yield Finding(
                "rule-3-positive", ERROR, joint.name, f"axis {shown(joint.unit_axis)} is negative ({nearest})",
                f"make it +{nearest[1]}, swap and negate the limits, and check the motor's polarity",
            )  # fmt: skip


def wheels(model: RobotModel) -> Iterator[Finding]:
    """Rule 6: wheels turn about z, which points to the base's centre; x is the way they roll; numbers go round."""
    found = names.wheels(model)
    if names.BASE not in model.links:
        return
    if not found:
        yield Finding(
            "rule-6-numbers", ERROR, names.BASE, "there is no wheel_0_link", "name the wheels wheel_0_link and so on"
        )
        return
    frames = frames_in(model, names.BASE)
    placed = [link for link in found if np.linalg.norm(across(frames[link][:3, 3], UP)) > 1e-3]
    for link in found:
        joint, is_ = model.parent_joints.get(link), frames[link][:3, :3]
        axis = axis_of_motion(frames, joint)
        if joint is not None:
            yield from _wheel_axis(link, joint, axis)
        if axis is None or not names.rolls(joint, axis):
            continue
        if link not in placed:
            yield Finding(
                "rule-6-place", ERROR, link, "the wheel is in the base's centre", "put its origin where the wheel is"
            )
            continue
        inwards = -across(frames[link][:3, 3], UP)
        right = names.wheel_rotation(is_, axis, frames[link][:3, 3])
        aside = angle_deg(right[:, 2], inwards)
        if aside > 1.0:
            yield Finding(
                "rule-6-line", WARNING, link, f"its axis of rotation is {aside:.4g} deg from towards the base's centre",
                "none by turning frames: the mechanism has it so", aside,
            )  # fmt: skip
        for column, rule, what in (
            (2, "rule-6-z", "its axis of rotation towards the base's centre"),
            (0, "rule-6-x", "its direction of motion"),
        ):
            away = angle_deg(is_[:, column], right[:, column])
            if away > 1.0:
                yield Finding(
                    rule, ERROR, link, f"its {'xyz'[column]} axis {shown(is_[:, column])} is {away:.4g} deg from "
                    f"{what}, {shown(right[:, column])}", f"turn the frame so that {'xyz'[column]} is "
                    f"{shown(right[:, column])}", away,
                )  # fmt: skip
    yield from _wheel_numbers(found, {link: frames[link][:3, 3] for link in placed})


def _wheel_axis(link: str, joint: Joint, axis: np.ndarray | None) -> Iterator[Finding]:
    if not joint.variables:
        yield Finding("rule-6-axis", ERROR, joint.name, f"{link} is on a fixed joint", "make it continuous about z")
    elif joint.type in ("revolute", "continuous") and not names.rolls(joint, axis):
        yield Finding(
            "rule-6-axis", ERROR, joint.name, f"{link} turns about {shown(axis)} in {names.BASE}, which is upright: it "
            "does not roll", "call it otherwise, it is no wheel",
        )  # fmt: skip
    elif joint.type == "prismatic" or angle_deg(joint.axis, UP) > EXACT_DEG:
        yield Finding(
            "rule-6-axis", ERROR, joint.name, f"{link} moves {joint.type} along or about {shown(joint.axis)}, not "
            "about z",
            "turn the wheel's frame so that its axis is 0 0 1",
        )  # fmt: skip


def _wheel_numbers(found: list[str], positions: dict[str, np.ndarray]) -> Iterator[Finding]:
    if len(positions) < len(found):
        return
    for number, (link, right) in enumerate(zip(found, names.wheel_order(positions), strict=True)):
        azimuth = np.degrees(np.arctan2(*positions[right][1::-1]))
        name = f"wheel_{number}_link"
        if link != right:
            yield Finding(
                "rule-6-numbers", ERROR, right, f"it stands at {azimuth:.1f} deg and is number {number} "
                "counter-clockwise from the wheel nearest to forward", f"call it {name}",
            )  # fmt: skip
        elif link.removesuffix("_link") != name.removesuffix("_link"):
            yield Finding("rule-6-numbers", ERROR, link, f"it is wheel number {number}", f"call it {name}")


def suffixes(model: RobotModel) -> Iterator[Finding]:
    """Rule 7: links end in _link, joints in _joint, and what distinguishes them stands before that."""
    for kind, entries in (("link", model.links), ("joint", model.joints)):
        for name in entries:
            stem = name.removesuffix(f"_{kind}")
            inside = stem.split("_")
            if stem == name or kind in inside:
                right = names.suffixed(name, kind)
                wrong = f"does not end in _{kind}" if stem == name else f"says '{kind}' twice"
                fix = f"call it {right}" if right != name else f"call it after what it is, with _{kind} at the end"
                yield Finding("rule-7", ERROR, name, f"{kind} '{name}' {wrong}", fix)
    for joint in model.joints.values():
        stem, child = joint.name.removesuffix("_joint"), joint.child.removesuffix("_link")
        if stem != child and joint.name != stem and joint.child != child:
            yield Finding(
                "rule-7-consistent", INFO, joint.name, f"the joint is named '{stem}', the link below it '{child}'",
                f"'{child}_joint' would say which link it moves",
            )  # fmt: skip
