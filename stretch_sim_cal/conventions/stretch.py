"""The Stretch's URDF conventions: Rules 1 to 7 and, as listed exceptions, the differences between document and released
model. Each function yields one finding for each departure. Frames are compared at position zero, in base_link."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from stretch_sim_cal.conventions import stretch_names as names
from stretch_sim_cal.conventions.measures import UP, across, angle_deg, frames_in, nearest_primary, shown, turn_deg
from stretch_sim_cal.conventions.profile import Exemption, Finding, Profile, Rule, error, info, not_fixed, warning
from stretch_sim_cal.conventions.stretch_names import BASE, EXACT_DEG, MOUNT_DEG, Frames
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import Joint, RobotModel


def base_link(model: RobotModel) -> Iterator[Finding]:
    """Everything is measured in base_link."""
    if BASE not in model.links:
        message = f"there is no {BASE} (the root is {model.root}), and all frames are given in it"
        yield error("base-link", model.root, message, f"name the link of the base {BASE}")


def identity_alignment(model: RobotModel, frames: Frames) -> Iterator[Finding]:
    """Rule 1: primary links, and the wrist's and the wheels' zero positions, are aligned with base_link."""
    wheels = names.wheels(model)
    for link in (names.FOOTPRINT, *names.PRIMARY_LINKS, *names.ROTATING_LINKS, *wheels):
        if link not in model.links:
            continue
        now, joint = frames[link][:3, :3], model.parent_joints.get(link)
        axis = None if link == names.FOOTPRINT else axis_of_motion(frames, joint)
        right = np.eye(3) if link in wheels else names.aligned(now, axis)
        turned = turn_deg(now)
        if turn_deg(right) > 0.0 and turn_deg(right.T @ now) <= EXACT_DEG:
            message = f"at zero of {joint.name} it is turned {turned:.4g} deg against {BASE}: its axis of motion, "
            message += f"{shown(axis)}, is along no primary axis, so Rule 3 turns the frame"
            yield info("rule-1-oblique", link, message)
        elif turned > EXACT_DEG:
            where = f"at zero of {joint.name} it" if joint is not None and joint.variables else "it"
            x, z = map(shown, now[:, [0, 2]].T)
            message = f"{where} is turned {turned:.4g} deg against {BASE}; its x axis is {x}, its z axis {z}"
            fix = "give it base_link's orientation (rpy 0 0 0 from an aligned parent) and move its children with it"
            yield error("rule-1", link, message, fix, turned)


def axis_of_motion(frames: Frames, joint: Joint | None) -> np.ndarray | None:
    """Return the axis (3,) of a joint with one degree of freedom in the reference of `frames`; None for others."""
    if joint is None or joint.variables != 1:
        return None
    return frames[joint.child][:3, :3] @ joint.unit_axis


def arm_order(model: RobotModel) -> Iterator[Finding]:
    """Rule 2: arm_l0 to arm_l4 in order from the lift to the wrist, links and joints alike."""
    present = [link for link in model.order if link.startswith("arm_l")]
    for link, joint_name, expected in zip(names.ARM, names.ARM_JOINTS, (names.LIFT, *names.ARM), strict=False):
        if link not in model.links:
            message = f"there is no {link}; the arm has {', '.join(present) or 'none'}"
            yield error("rule-2", link, message, "name the five links in order from the lift")
            continue
        joint = model.parent_joints.get(link)
        if joint is None or joint.parent != expected:
            message = f"{link} is attached to {joint.parent if joint else 'nothing'}, its number implies {expected}"
            yield error("rule-2", link, message, f"number the links from {names.LIFT} on")
        if joint is not None and joint.name != joint_name:
            yield error("rule-2", joint.name, f"the joint above {link} is called {joint.name}", f"call it {joint_name}")
    for link in present:
        if link not in names.ARM and link.split("_")[1].removeprefix("l").isdigit():
            message = f"{link} is not one of {names.ARM[0]} to {names.ARM[-1]}"
            yield error("rule-2", link, message, "number the five links 0 to 4")
    wrist = model.parent_joints.get(names.WRIST)
    if names.WRIST in model.links and (wrist is None or wrist.parent != names.ARM[-1]):
        message = f"the wrist is anchored on {wrist.parent if wrist else 'nothing'}, not on {names.ARM[-1]}"
        fix = f"number the links so that the last, {names.ARM[-1]}, holds {names.WRIST}"
        yield error("rule-2", names.WRIST, message, fix)


def positive_axes(model: RobotModel) -> Iterator[Finding]:
    """Rule 3: every axis of motion is a unit vector along a positive primary axis."""
    for joint in model.joints.values():
        if not joint.variables or joint.type in ("floating", "spherical"):
            continue
        axis, length = joint.unit_axis, float(np.linalg.norm(joint.axis))
        if abs(length - 1.0) > 1e-6:
            message = f"axis {shown(joint.axis)} has length {length:.6g}, not 1"
            yield error("rule-3-unit", joint.name, message, f"write {shown(axis)}")
        nearest, direction = nearest_primary(axis)
        away = angle_deg(axis, direction)
        if away > EXACT_DEG:
            message = f"axis {shown(axis)} is {away:.4g} deg from the nearest primary axis, {nearest}"
            fix = f"turn {joint.child}'s frame so that the axis is +{nearest[1]}"
            yield error("rule-3-primary", joint.name, message, fix, away)
        if nearest.startswith("-"):
            fix = f"make it +{nearest[1]}, swap and negate the limits, and check the motor's polarity"
            yield error("rule-3-positive", joint.name, f"axis {shown(axis)} is negative ({nearest})", fix)


def wheels(model: RobotModel, frames: Frames) -> Iterator[Finding]:
    """Rule 6: wheels turn about z, which points to the base's centre; x is the way they roll; numbers go round."""
    found = names.wheels(model)
    if not found:
        yield error("rule-6-numbers", BASE, "there is no wheel_0_link", "name the wheels wheel_0_link and so on")
        return
    positions = {link: frames[link][:3, 3] for link in found}
    placed = {link: place for link, place in positions.items() if np.linalg.norm(across(place, UP)) > 1e-3}
    for link, position in positions.items():
        joint, now = model.parent_joints.get(link), frames[link][:3, :3]
        axis = axis_of_motion(frames, joint)
        if joint is not None:
            yield from _wheel_axis(link, joint, axis)
        if axis is None or not names.rolls(joint, axis):
            continue
        if link not in placed:
            yield error("rule-6-place", link, "the wheel is in the base's centre", "put its origin where the wheel is")
            continue
        right = names.wheel_rotation(now, axis, position)
        aside = angle_deg(right[:, 2], -across(position, UP))
        if aside > 1.0:
            message = f"its axis of rotation is {aside:.4g} deg from towards the base's centre"
            yield warning("rule-6-line", link, message, "none by turning frames: this is the mechanism", aside)
        for column, name, what in (
            (2, "z", "its axis of rotation towards the base's centre"), (0, "x", "its direction of motion"),
        ):  # fmt: skip
            away, wanted = angle_deg(now[:, column], right[:, column]), shown(right[:, column])
            if away > 1.0:
                message = f"its {name} axis {shown(now[:, column])} is {away:.4g} deg from {what}, {wanted}"
                yield error(f"rule-6-{name}", link, message, f"turn the frame so that {name} is {wanted}", away)
    if len(placed) == len(found):
        yield from _wheel_numbers(placed)


def _wheel_axis(link: str, joint: Joint, axis: np.ndarray | None) -> Iterator[Finding]:
    if not joint.variables:
        yield error("rule-6-axis", joint.name, f"{link} is on a fixed joint", "make it continuous about z")
    elif joint.type in ("revolute", "continuous") and not names.rolls(joint, axis):
        message = f"{link} turns about {shown(axis)} in {BASE}, which is vertical: it does not roll"
        yield error("rule-6-axis", joint.name, message, "rename it, it is not a wheel")
    elif joint.type == "prismatic" or angle_deg(joint.axis, UP) > EXACT_DEG:
        message = f"{link} moves {joint.type} along or about {shown(joint.axis)}, not about z"
        yield error("rule-6-axis", joint.name, message, "turn the wheel's frame so that its axis is 0 0 1")


def _wheel_numbers(positions: dict[str, np.ndarray]) -> Iterator[Finding]:
    for number, (link, right) in enumerate(zip(positions, names.wheel_order(positions), strict=True)):
        name = f"wheel_{number}_link"
        if link != right:
            azimuth = np.degrees(np.arctan2(*positions[right][1::-1]))
            message = f"it stands at {azimuth:.1f} deg and is number {number} counter-clockwise from the wheel nearest"
            yield error("rule-6-numbers", right, f"{message} to forward", f"call it {name}")
        elif link.removesuffix("_link") != name.removesuffix("_link"):
            yield error("rule-6-numbers", link, f"it is wheel number {number}", f"call it {name}")


def suffixes(model: RobotModel) -> Iterator[Finding]:
    """Rule 7: links end in _link, joints in _joint, and what distinguishes them stands before that."""
    for kind, entries in (("link", model.links), ("joint", model.joints)):
        for name in entries:
            stem = name.removesuffix(f"_{kind}")
            if stem == name or kind in stem.split("_"):
                right = names.suffixed(name, kind)
                wrong = f"does not end in _{kind}" if stem == name else f"contains '{kind}' twice"
                fix = f"call it {right}" if right != name else f"use a descriptive name that ends in _{kind}"
                yield error("rule-7", name, f"{kind} '{name}' {wrong}", fix)
    for joint in model.joints.values():
        stem, child = joint.name.removesuffix("_joint"), joint.child.removesuffix("_link")
        if stem != child and joint.name != stem and joint.child != child:
            message = f"the joint is named '{stem}', the link below it '{child}'"
            yield info("rule-7-consistent", joint.name, message, f"'{child}_joint' would name the link that it moves")


def sensor_bases(model: RobotModel, frames: Frames) -> Iterator[Finding]:
    """Rule 4: x of a sensor's base frame points forward, z to its top; the head's cameras lie on their sides."""
    for link in names.sensors(model):
        (x, _, z), position = frames[link][:3, :3].T, frames[link][:3, 3]
        if link.startswith("line_sensor") and np.linalg.norm(position[:2]) < 1e-3:
            continue
        forward = names.looks(link, position)
        away = angle_deg(x, forward)
        if away >= names.LOOKS_DEG:
            message = f"its x axis {shown(x)} is {away:.4g} deg from the viewing direction of its mount, "
            fix = "turn the frame so that x points out of the sensor"
            yield error("rule-4-base-x", link, message + shown(forward), fix, away)
            continue
        top = names.sensor_upright(link, x)[:, 2]
        off = angle_deg(z, top)
        if off > MOUNT_DEG:
            where = "sideways, as this camera is mounted," if link in names.SIDEWAYS_CAMERAS else "to the sensor's top"
            message = f"its z axis {shown(z)} is {off:.4g} deg from where it points {where} {shown(top)}"
            yield error("rule-4-base-z", link, message, f"turn the frame about x so that z is {shown(top)}", off)


def optical_frames(model: RobotModel) -> Iterator[Finding]:
    """Rule 4: an optical frame's z points out of the sensor, x to its right, y down; every sensor has one."""
    for sensor in names.sensors(model):
        frames = names.optical_frames(model, sensor)
        if not frames:
            fix = f"add {sensor.removesuffix('_link')}_optical_link below it"
            yield error("rule-4-optical-missing", sensor, "it has no optical frame", fix)
        for link in frames:
            joint = model.parent_joints[link]
            if joint.variables:
                yield from not_fixed(model, link, "rule-4-optical")
                continue
            rotation = joint.parent_from_joint[:3, :3]
            off = turn_deg(names.OPTICAL_FROM_SENSOR @ rotation)
            if off > EXACT_DEG:
                message = f"it is {off:.4g} deg from z forward, x right, y down of {sensor}; in it, z is "
                message += f"{shown(rotation[:, 2])} and x is {shown(rotation[:, 0])}"
                yield error("rule-4-optical", link, message, "give its joint rpy -pi/2 0 -pi/2", off)
    for link in model.order:
        joint = model.parent_joints.get(link)
        if names.is_optical(link) and joint is not None and joint.parent not in names.sensors(model):
            message = f"it is attached to {joint.parent}, which is not a sensor's base frame"
            yield error("rule-4-optical-parent", link, message, "attach it to the base frame of its sensor")


def lidars(model: RobotModel, frames: Frames) -> Iterator[Finding]:
    """Rule 4: a lidar's z points out of it, y to the head's centre, x up."""
    found = names.lidars(model)
    for link in found:
        (x, y, z), position = frames[link][:3, :3].T, frames[link][:3, 3]
        inwards = names.head_centre(frames, found, link) - position
        distance = np.linalg.norm(inwards)
        if distance < 1e-3:
            yield error("rule-4-place", link, "it is in the head's middle plane", "put it where the lidar is")
            continue
        outwards = names.looks(link, position, inwards)
        away = angle_deg(z, outwards)
        if away >= names.LOOKS_DEG:
            message = f"its z axis {shown(z)} is {away:.4g} deg from the outward direction, {shown(outwards)}"
            yield error("rule-4-lidar-z", link, message, "turn the frame so that z points out of the lidar", away)
            continue
        off = angle_deg(y, inwards)
        if off > MOUNT_DEG:
            message = f"its y axis {shown(y)} is {off:.4g} deg from the head's centre, which is towards "
            fix = "turn the frame about z so that y points there"
            yield error("rule-4-lidar-y", link, message + shown(inwards / distance), fix, off)
        low = angle_deg(x, across(UP, z))
        if low > names.LIDAR_DEG:
            message = f"its x axis {shown(x)} is {low:.4g} deg from the highest direction that z allows"
            yield error("rule-4-lidar-x", link, message, "turn the frame about z so that x points up", low)


def grasp_center(model: RobotModel) -> Iterator[Finding]:
    """Rule 5: a tool that grips has a virtual grasp centre, parallel to the wrist's links."""
    link, (usual, written) = names.grasp_center(model), names.GRASP_CENTERS
    if link is None:
        for joint in names.fingers(model)[:1]:
            message = f"its tool has fingers ({joint.child}) but no grasp centre"
            yield error("rule-5-center-missing", joint.parent, message, f"add {usual} between the fingertips")
        return
    if link != written:
        message = f"the grasp centre is called {link}, Rule 5 requires {written}"
        yield error("rule-5-names", link, message, f"call it {written}")
    if model.links[link].has_shape or model.links[link].inertial is not None:
        yield error("rule-5-virtual", link, "it has a shape or a mass", "remove both")
    yield from not_fixed(model, link, "rule-5-virtual")
    if names.ROLL in model.links:
        turned = turn_deg(frames_in(model, names.ROLL)[link][:3, :3])
        if turned > EXACT_DEG:
            message = f"it is turned {turned:.4g} deg against {names.ROLL}"
            yield error("rule-5-center", link, message, "make it parallel to the wrist's links", turned)


def fingertips(model: RobotModel) -> Iterator[Finding]:
    """Rule 5: x of a fingertip is normal to its surface and points inwards to the grasp centre."""
    center = names.grasp_center(model)
    if center is None:
        return
    tips = names.fingertips(model)
    for link in tips:
        if not link.startswith("link_fingertip_"):
            message = f"a fingertip is called {link}, Rule 5 requires link_fingertip_*"
            yield error("rule-5-names", link, message, "call it link_fingertip_ and its side")
    tipped = {joint.name for link in tips for joint in model.chain(link)}
    bare = [joint.child for joint in names.fingers(model) if joint.name not in tipped]
    for link in (*tips, *bare):
        frames = link_transforms(model, {}, [link, center])
        to_center = frames[center][:3, :3]
        way = inwards(model, link, center, to_center)
        off = 0.0 if way is None else angle_deg(frames[link][:3, 0], to_center @ way)
        if link in bare:
            message = f"the finger has no fingertip frame; its own x axis is {off:.4g} deg from inwards"
            fix = f"add {link.removesuffix('_link').replace('finger', 'fingertip')}_link, x normal to the surface"
            yield error("rule-5-tip-missing", link, message, fix, off)
        elif off > MOUNT_DEG:
            message = f"its x axis is {off:.4g} deg from inwards, {shown(way)} in {center}"
            fix = "turn the frame so that x is normal to the fingertip and points inwards"
            yield error("rule-5-tip-x", link, message, fix, off)


def inwards(model: RobotModel, link: str, center: str, root_from_center: np.ndarray) -> np.ndarray | None:
    """Return the direction from a fingertip or finger `link` to the grasp centre, across its x axis: a unit vector (3,)
    in a frame turned by `root_from_center` (3, 3) in the root; None for a link that never leaves that axis. Closed
    fingertips may lie in the centre itself: the side is that of the open finger."""
    fingers, lateral = [joint for joint in model.chain(link) if joint in names.fingers(model) and joint.limit], []
    for position in ({}, *({joint.name: end} for joint in fingers for end in (joint.limit.lower, joint.limit.upper))):
        frames = link_transforms(model, position, [link, center])
        lateral.append((root_from_center.T @ (frames[link][:3, 3] - frames[center][:3, 3])) * [0.0, 1.0, 1.0])
    # Rounded, so that of two sides that are equally far the same one is chosen for either direction of the joint.
    widest = max(lateral, key=lambda side: (round(float(np.linalg.norm(side)), 6), *np.round(side, 6)))
    length = np.linalg.norm(widest)
    return -widest / length if length >= 1e-4 else None


def _in_base(rule: Callable[[RobotModel, Frames], Iterable[Finding]]) -> Rule:
    """Return a rule about frames in base_link, without findings for models without that link."""
    return lambda model: rule(model, frames_in(model, BASE)) if BASE in model.links else ()


RULES = (
    base_link, _in_base(identity_alignment), arm_order, positive_axes, _in_base(sensor_bases), optical_frames,
    _in_base(lidars), grasp_center, fingertips, _in_base(wheels), suffixes,
)  # fmt: skip

EXEMPTIONS = (
    Exemption("rule-1", "wheel_*", "Rules 1 and 6 cannot both hold for a wheel: aligned with base_link, its z axis "
              "would be up and not towards the base's centre; the released model follows Rule 6"),
    Exemption("rule-1", "base_footprint", "a floor calibration is written to base_ref, so it may tilt by a "
              "little", up_to=names.CALIBRATED_DEG),
    Exemption("rule-4-optical", names.LEVELLED, "the released model levels the gripper camera's colour "
              "frames against the 3 deg by which the camera is pitched", up_to=names.LEVELLED_DEG),
    Exemption("rule-4-lidar-y", "*lidar_*", "y points only roughly to the head's centre: the dome looks down by 45 deg "
              "and ahead, and the released model keeps the connector's true direction", up_to=names.INWARDS_DEG),
    Exemption("rule-4-lidar-x", "*lidar_*", "z out, y inwards and x up cannot all hold for a lidar on the right: it is "
              "the left one's mirror image, and mirrored frames are left-handed; the released model lets x point down",
              at_least=170.0),
    Exemption("rule-5-names", "grasp_center_link", "Rule 5's link_grasp_center has no _link suffix, which Rule 7 asks "
              "for; the released model follows Rule 7"),
    Exemption("rule-5-names", "*fingertip_*_link", "Rule 5's link_fingertip_* have no _link suffix, which Rule 7 asks "
              "for; the released model follows Rule 7"),
    Exemption("rule-5-tip-x", "*fingertip_*", "the curved gripper's fingertips are inclined by 16 deg against straight "
              "inwards while the fingers are closed, and turn with them", up_to=names.INCLINED_DEG),
    Exemption("rule-5-tip-missing", "finger_*_link", "the parallel gripper has no fingertip frames; those of its "
              "fingers follow the rule themselves", up_to=5.0),
    Exemption("rule-7", "link_grasp_center", "the name in Rule 5"),
    Exemption("rule-7", "link_fingertip_*", "the name in Rule 5"),
    Exemption("rule-7", "base_footprint", "the name that REP 120 gives this frame"),
    Exemption("rule-7", "base_ref", "the name in calibration files"),
    Exemption("rule-7", "laser", "the placeholder for a planar scan; consumers use this name"),
    Exemption("rule-7", "docking_contact_frame", "the name in the released model; its link follows the rule"),
    Exemption("rule-7", names.LEVELLED, "the name in camera drivers"),
    Exemption("rule-7", "link_lidar_*", "the name in older firmware"),
)  # fmt: skip

STRETCH = Profile("stretch", "Stretch URDF conventions", RULES, EXEMPTIONS, BASE)
