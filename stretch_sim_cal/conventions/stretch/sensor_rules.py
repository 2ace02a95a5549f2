"""The rules of the Stretch's URDF conventions about sensors and about grasping (Rules 4 and 5)."""

from collections.abc import Iterator

import numpy as np

from stretch_sim_cal.conventions.frames import UP, across, angle_deg, frames_in, shown, turn_deg
from stretch_sim_cal.conventions.profile import ERROR, Finding
from stretch_sim_cal.conventions.stretch import names
from stretch_sim_cal.conventions.stretch.names import EXACT_DEG, MOUNT_DEG
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel

LIDAR_DEG = 10.0
"""The same for the turn of a lidar about its z axis, which the released model chooses to 5 deg."""


def sensor_bases(model: RobotModel) -> Iterator[Finding]:
    """Rule 4: x of a sensor's base frame points forward, z to its top; the head's cameras lie on their sides."""
    if names.BASE not in model.links:
        return
    frames = frames_in(model, names.BASE)
    for link in names.sensors(model):
        rotation, position = frames[link][:3, :3], frames[link][:3, 3]
        if link.startswith("line_sensor") and np.linalg.norm(position[:2]) < 1e-3:
            continue
        forward = names.looks(link, position)
        away = angle_deg(rotation[:, 0], forward)
        if away >= names.LOOKS_DEG:
            yield Finding(
                "rule-4-base-x", ERROR, link, f"its x axis {shown(rotation[:, 0])} is {away:.4g} deg from where the "
                "sensor is "
                f"mounted to look, {shown(forward)}", "turn the frame so that x points out of the sensor", away,
            )  # fmt: skip
            continue
        right = names.sensor_upright(link, rotation[:, 0])
        off = angle_deg(rotation[:, 2], right[:, 2])
        if off > MOUNT_DEG:
            where = "sideways, as this camera is mounted," if link in names.SIDEWAYS_CAMERAS else "to the sensor's top"
            yield Finding(
                "rule-4-base-z", ERROR, link, f"its z axis {shown(rotation[:, 2])} is {off:.4g} deg from where it "
                "points "
                f"{where} {shown(right[:, 2])}", f"turn the frame about x so that z is {shown(right[:, 2])}", off,
            )  # fmt: skip


def optical_frames(model: RobotModel) -> Iterator[Finding]:
    """Rule 4: an optical frame's z points out of the sensor, x to its right, y down; every sensor has one."""
    for sensor in names.sensors(model):
        frames = names.optical_frames(model, sensor)
        if not frames:
            name = sensor.removesuffix("_link") + "_optical_link"
            yield Finding("rule-4-optical-missing", ERROR, sensor, "it has no optical frame", f"add {name} below it")
        for link in frames:
            joint = model.parent_joints[link]
            if joint.variables:
                yield Finding("rule-4-optical", ERROR, link, f"its joint {joint.name} is {joint.type}", "make it fixed")
                continue
            off = turn_deg(names.OPTICAL_FROM_SENSOR @ joint.parent_from_joint[:3, :3])
            if off > EXACT_DEG:
                rotation = joint.parent_from_joint[:3, :3]
                yield Finding(
                    "rule-4-optical", ERROR, link, f"it is {off:.4g} deg from z forward, x right, y down of {sensor}; "
                    f"in it, z is {shown(rotation[:, 2])} and x is {shown(rotation[:, 0])}",
                    "give its joint rpy -pi/2 0 -pi/2", off,
                )  # fmt: skip
    for link in model.order:
        joint = model.parent_joints.get(link)
        if names.is_optical(link) and joint is not None and joint.parent not in names.sensors(model):
            yield Finding(
                "rule-4-optical-parent", ERROR, link, f"it hangs on {joint.parent}, which is no sensor's base frame",
                "hang it on the base frame of its sensor",
            )  # fmt: skip


def lidars(model: RobotModel) -> Iterator[Finding]:
    """Rule 4: a lidar's z points out of it, y to the head's centre, x up."""
    if names.BASE not in model.links:
        return
    frames, found = frames_in(model, names.BASE), names.lidars(model)
    for link in found:
        x, y, z = frames[link][:3, :3].T
        inwards = names.head_centre(frames, found, link) - frames[link][:3, 3]
        if np.linalg.norm(inwards) < 1e-3:
            yield Finding(
                "rule-4-place", ERROR, link, "it is in the head's middle plane", "put it where the lidar is"
            )
            continue
        outwards = names.looks(link, frames[link][:3, 3], inwards)
        away = angle_deg(z, outwards)
        if away >= names.LOOKS_DEG:
            yield Finding(
                "rule-4-lidar-z", ERROR, link, f"its z axis {shown(z)} is {away:.4g} deg from the way out, "
                f"{shown(outwards)}",
                "turn the frame so that z points out of the lidar", away,
            )  # fmt: skip
            continue
        off = angle_deg(y, inwards)
        if off > MOUNT_DEG:
            yield Finding(
                "rule-4-lidar-y", ERROR, link, f"its y axis {shown(y)} is {off:.4g} deg from the head's centre, which "
                f"is towards {shown(inwards / np.linalg.norm(inwards))}",
                "turn the frame about z so that y points there", off,
            )  # fmt: skip
        up = across(UP, z)
        low = angle_deg(x, up)
        if low > LIDAR_DEG:
            yield Finding(
                "rule-4-lidar-x", ERROR, link, f"its x axis {shown(x)} is {low:.4g} deg from up, as far as z lets it "
                "point up",
                "turn the frame about z so that x points up", low,
            )  # fmt: skip


def grasp_center(model: RobotModel) -> Iterator[Finding]:
    """Rule 5: a tool that grips has a virtual grasp centre, parallel to the wrist's links."""
    link = names.grasp_center(model)
    if link is None:
        if names.fingers(model):
            joint = names.fingers(model)[0]
            yield Finding(
                "rule-5-center-missing", ERROR, joint.parent, f"its tool has fingers ({joint.child}) but no grasp "
                "centre",
                f"add {names.GRASP_CENTERS[0]} between the fingertips",
            )  # fmt: skip
        return
    if link != names.GRASP_CENTERS[1]:
        yield Finding(
            "rule-5-names", ERROR, link, f"the grasp centre is called {link}, Rule 5 writes {names.GRASP_CENTERS[1]}",
            f"call it {names.GRASP_CENTERS[1]}",
        )  # fmt: skip
    if not names.is_virtual(model, link):
        yield Finding("rule-5-virtual", ERROR, link, "it has a shape or a mass", "leave it a frame without either")
    joint = model.parent_joints.get(link)
    if joint is not None and joint.variables:
        yield Finding("rule-5-virtual", ERROR, link, f"its joint {joint.name} is {joint.type}", "make it fixed")
    if names.ROLL in model.links:
        turned = turn_deg(frames_in(model, names.ROLL)[link][:3, :3])
        if turned > EXACT_DEG:
            yield Finding(
                "rule-5-center", ERROR, link, f"it is turned {turned:.4g} deg against {names.ROLL}",
                "make it parallel to the wrist's links", turned,
            )  # fmt: skip


def fingertips(model: RobotModel) -> Iterator[Finding]:
    """Rule 5: x of a fingertip is normal to its surface and points inwards to the grasp centre."""
    center = names.grasp_center(model)
    if center is None:
        return
    tips = names.fingertips(model)
    for link in tips:
        if not link.startswith("link_fingertip_"):
            yield Finding(
                "rule-5-names", ERROR, link, f"a fingertip is called {link}, Rule 5 writes link_fingertip_*",
                "call it link_fingertip_ and its side",
            )  # fmt: skip
    tipped = {joint.name for link in tips for joint in model.chain(link)}
    bare = [joint.child for joint in names.fingers(model) if joint.name not in tipped]
    for link in (*tips, *bare):
        off, inwards = _inwards_deg(model, link, center)
        if link in bare:
            yield Finding(
                "rule-5-tip-missing", ERROR, link, f"the finger has no fingertip frame; its own x axis is {off:.4g} "
                "deg from "
                "inwards", f"add {link.removesuffix('_link').replace('finger', 'fingertip')}_link, x normal to the "
                "surface", off,
            )  # fmt: skip
        elif off > MOUNT_DEG:
            yield Finding(
                "rule-5-tip-x", ERROR, link, f"its x axis is {off:.4g} deg from inwards, {shown(inwards)} in {center}",
                "turn the frame so that x is normal to the fingertip and points inwards", off,
            )  # fmt: skip


def _inwards_deg(model: RobotModel, link: str, center: str) -> tuple[float, np.ndarray]:
    """Return how far x of a fingertip is at zero from straight inwards, and inwards (3,) in the grasp centre's frame."""
    frames = link_transforms(model, {}, [link, center])
    direction = inwards(model, link, center, frames[center][:3, :3])
    if direction is None:
        return 0.0, np.zeros(3)
    return angle_deg(frames[link][:3, 0], frames[center][:3, :3] @ direction), direction


def inwards(model: RobotModel, link: str, center: str, root_from_center: np.ndarray) -> np.ndarray | None:
    """Return which way a fingertip or finger `link` has to go to the grasp centre, across its x axis: a unit vector
    (3,) in a frame turned by `root_from_center` (3, 3) in the root. None for a link that never leaves that axis.

    Closed fingertips may lie in the centre itself: the side is told from where the finger is when it is open.
    """
    positions: list[dict[str, float]] = [{}]
    for joint in model.chain(link):
        if joint in names.fingers(model) and joint.limit is not None:
            positions += [{joint.name: joint.limit.lower}, {joint.name: joint.limit.upper}]
    lateral = []
    for each in positions:
        frames = link_transforms(model, each, [link, center])
        lateral.append((root_from_center.T @ (frames[link][:3, 3] - frames[center][:3, 3])) * [0.0, 1.0, 1.0])
    # Rounded, so that of two sides that are equally far the same one is taken whichever way the joint counts.
    widest = max(lateral, key=lambda side: (round(float(np.linalg.norm(side)), 6), *np.round(side, 6)))
    length = np.linalg.norm(widest)
    return -widest / length if length >= 1e-4 else None
