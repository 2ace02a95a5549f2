"""How a Stretch's frames are to be turned to keep Rules 1 and 3 to 6, and which frames are missing.

Only frames that the linter would find are turned, so a model that keeps the rules stays as it is.
"""

import itertools

import numpy as np

from stretch_sim_cal.conventions.frames import (
    LEFT,
    PRIMARY,
    UP,
    across,
    angle_deg,
    frames_in,
    nearest_primary,
    turn_deg,
)
from stretch_sim_cal.conventions.profile import ERROR, Finding, lint
from stretch_sim_cal.conventions.rewrite import AddedFrame, Turning
from stretch_sim_cal.conventions.stretch import names
from stretch_sim_cal.conventions.stretch.profile import STRETCH
from stretch_sim_cal.conventions.stretch.rules import EXACT_DEG
from stretch_sim_cal.conventions.stretch.sensor_rules import LIDAR_DEG, MOUNT_DEG
from stretch_sim_cal.geometry.transforms import from_rotation_translation, inverse
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel

LEVELLED_DEG = 3.01
"""A gripper camera's optical frame may be this far from its camera's axes: the vendor levels it."""
INWARDS_DEG = 55.0
"""How far a lidar's y axis may be from the head's centre: as the profile's exception has it."""
CALIBRATED_DEG = 3.0
"""A base tilted against its footprint by no more than this has been calibrated."""
QUARTERS = tuple(
    np.column_stack([sign * np.eye(3)[first], other * np.eye(3)[second], np.cross(sign * np.eye(3)[first],
    other * np.eye(3)[second])])
    for first, second in itertools.permutations(range(3), 2)
    for sign, other in itertools.product((1, -1), repeat=2)
)  # fmt: skip
"""The 24 rotations by quarters: other labels for the same three lines."""


def base_turning(model: RobotModel, base: str | None, footprint: str | None) -> dict[str, np.ndarray]:
    """Return how to turn the base's frame into the footprint's orientation: old_from_new (3, 3) by link, or nothing.

    All else is seen in base_link, so it comes first. A tilt as a floor calibration leaves it is none to be turned.
    """
    if base is None or footprint is None:
        return {}
    base_from_footprint = frames_in(model, base)[footprint][:3, :3]
    return {base: base_from_footprint} if turn_deg(base_from_footprint) > CALIBRATED_DEG else {}


def turning(model: RobotModel, zeros: dict[str, float]) -> tuple[Turning, dict[str, str]]:
    """Return what to turn, and why, by link or joint. `model` has its new names; `zeros` as in `Turning`.

    Raises nothing: what no rule can settle is left for the linter to say.
    """
    result, reasons = Turning(zeros=dict(zeros)), {}
    if names.BASE not in model.links:
        return result, reasons
    frames = _frames(model, zeros)
    # Upright base frames of the head's cameras are a listed exception; here they become what the document says.
    found = [each for each in lint(model, STRETCH) if each.level == ERROR or each.rule == "rule-4-base-z-up"]
    blamed = {each.name: each for each in found if each.rule.startswith(("rule-4", "rule-5"))}
    wanted = _wanted(model, frames, blamed)
    for link in model.order:
        old = frames[link][:3, :3]
        new, why = wanted.get(link, (old, ""))
        joint = model.parent_joints.get(link)
        if joint is not None and joint.variables == 1:
            new, sign, said = _with_primary_axis(model, link, old, new)
            if sign < 0:
                result.signs[joint.name] = -1
                reasons[joint.name] = "Rule 3: its axis was negative; check the motor's polarity"
            why = "; ".join(word for word in (why, said) if word)
        if turn_deg(old.T @ new) > 1e-9 and (joint is None or joint.variables <= 1):
            result.old_from_new[link] = old.T @ new
            reasons[link] = why
    return result, reasons


def _frames(model: RobotModel, zeros: dict[str, float]) -> dict[str, np.ndarray]:
    """Return base_link_from_link (4, 4) with the joints at their new zeros."""
    frames = link_transforms(model, zeros)
    base_from_root = inverse(frames[names.BASE])
    return {link: base_from_root @ frame for link, frame in frames.items()}


def _wanted(
    model: RobotModel, frames: dict[str, np.ndarray], blamed: dict[str, Finding]
) -> dict[str, tuple[np.ndarray, str]]:
    """Return base_link_from_link rotations (3, 3) that rules ask for, with their reasons."""
    sensors = _sensors(model, frames, blamed)
    return _structure(model, frames) | sensors | _optical(model, frames, sensors) | _grasp(model, frames, blamed)


def _structure(model: RobotModel, frames: dict[str, np.ndarray]) -> dict[str, tuple[np.ndarray, str]]:
    wanted = {}
    for link in (*names.PRIMARY_LINKS, *names.ROTATING_LINKS):
        if link in model.links and turn_deg(frames[link][:3, :3]) > EXACT_DEG:
            wanted[link] = (np.eye(3), "Rule 1: base_link's orientation")
    for link in names.wheels(model):
        position, joint = frames[link][:3, 3], model.parent_joints.get(link)
        if np.linalg.norm(across(position, UP)) < 1e-3 or joint is None or joint.type not in ("continuous", "revolute"):
            continue
        right = names.wheel_rotation(position)
        axis = frames[link][:3, :3] @ joint.unit_axis
        axis = axis * (1.0 if axis @ right[:, 2] > 0 else -1.0)
        if angle_deg(axis, right[:, 2]) < 1.0:
            # The joint's own line is the truth, the wheel's place only tells its sign.
            x = np.cross(axis, UP) / np.linalg.norm(np.cross(axis, UP))
            right = np.column_stack([x, np.cross(axis, x), axis])
        if angle_deg(frames[link][:3, 0], right[:, 0]) > 1.0 or angle_deg(frames[link][:3, 2], right[:, 2]) > 1.0:
            wanted[link] = (right, "Rule 6: z to the base's centre, x in the direction of motion")
    return wanted


def _with_primary_axis(model: RobotModel, link: str, old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, int, str]:
    """Return a link's rotation with its joint's axis made primary (Rule 3), the joint's sign, and the reason."""
    axis = new.T @ old @ model.parent_joints[link].unit_axis
    nearest = nearest_primary(axis)
    said = ""
    if angle_deg(axis, PRIMARY[nearest]) > EXACT_DEG:
        new = new @ _shortest(PRIMARY[nearest], axis)
        said = f"Rule 3: the axis of motion is its {nearest[1]}"
    return new, -1 if nearest.startswith("-") else 1, said


def _shortest(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the rotation (3, 3) that takes one unit vector to another, less than 180 deg away, the shortest way."""
    # Two half turns, about `start` and then about the middle, turn by twice the angle between those.
    middle = (start + end) / np.linalg.norm(start + end)
    return _half_turn(middle) @ _half_turn(start)


def _half_turn(axis: np.ndarray) -> np.ndarray:
    return 2.0 * np.outer(axis, axis) - np.eye(3)


def _sensors(
    model: RobotModel, frames: dict[str, np.ndarray], blamed: dict[str, Finding]
) -> dict[str, tuple[np.ndarray, str]]:
    """Return the frames of cameras, line sensors and lidars that break Rule 4, as they are to be.

    A sensor's frame says where it looks, and nothing else in a description does: so its axes stay on their lines, and
    only which is called x, y and z is chosen, by the direction in which that sensor is known to be mounted. A frame
    that has no axis there is past telling: it gets the nearest one that keeps the rule, and the report says so.
    """
    broken = {name for name, each in blamed.items() if each.rule.startswith(("rule-4-base", "rule-4-lidar"))}
    wanted = {}
    for link in names.sensors(model):
        if link in broken:
            now, position = frames[link][:3, :3], frames[link][:3, 3]
            best = now @ min(QUARTERS, key=lambda quarter: _camera_cost(link, now @ quarter, position))
            looks = names.looks(link, position)
            nearest = names.sensor_upright(
                link, best[:, 0] if angle_deg(best[:, 0], looks) < names.LOOKS_DEG else looks
            )
            wanted[link] = _kept_or_nearest(best, nearest)
    lidars = names.lidars(model)
    for link in lidars:
        if link in broken:
            now, position = frames[link][:3, :3], frames[link][:3, 3]
            inwards = names.head_centre(frames, lidars, link) - position
            best = now @ min(QUARTERS, key=lambda quarter: _lidar_cost(now @ quarter, inwards))
            looks = names.looks(link, position, inwards)
            nearest = names.lidar_upright(
                best[:, 2] if angle_deg(best[:, 2], looks) < names.LOOKS_DEG else looks, inwards
            )
            if angle_deg(nearest[:, 1], inwards) > INWARDS_DEG:
                nearest = names.lidar_upright(looks, inwards)
            wanted[link] = _kept_or_nearest(best, nearest, LIDAR_DEG)
    return wanted


def _kept_or_nearest(relabelled: np.ndarray, nearest: np.ndarray, allowed: float = MOUNT_DEG) -> tuple[np.ndarray, str]:
    if turn_deg(nearest.T @ relabelled) <= allowed:
        return relabelled, "Rule 4: other names for the same lines; check them"
    return nearest, "Rule 4: none of its axes was where the sensor looks, so this is a guess: measure it"


def _camera_cost(link: str, rotation: np.ndarray, position: np.ndarray) -> float:
    off = angle_deg(rotation[:, 0], names.looks(link, position))
    upright = names.sensor_upright(link, rotation[:, 0]) if off < 89.0 else rotation @ np.diag([1.0, -1.0, -1.0])
    return off + 3.0 * angle_deg(rotation[:, 2], upright[:, 2])


def _lidar_cost(rotation: np.ndarray, inwards: np.ndarray) -> float:
    outwards = names.looks("", np.zeros(3), inwards)
    return 3.0 * angle_deg(rotation[:, 2], outwards) + angle_deg(rotation[:, 1], inwards)


def _optical(
    model: RobotModel, frames: dict[str, np.ndarray], turned: dict[str, tuple[np.ndarray, str]]
) -> dict[str, tuple[np.ndarray, str]]:
    wanted = {}
    for sensor in names.sensors(model):
        base = turned[sensor][0] if sensor in turned else frames[sensor][:3, :3]
        right = base @ names.OPTICAL_FROM_SENSOR.T
        for link in names.optical_frames(model, sensor):
            now = frames[link][:3, :3]
            allowed = LEVELLED_DEG if sensor == "gripper_camera_link" else EXACT_DEG
            if turn_deg(right.T @ now) <= allowed:
                continue
            best = min((now @ quarter for quarter in QUARTERS), key=lambda rotation: turn_deg(right.T @ rotation))
            kept = best if turn_deg(right.T @ best) <= LEVELLED_DEG and allowed == LEVELLED_DEG else right
            wanted[link] = (kept, "Rule 4: z out, x right, y down")
    return wanted


def _grasp(
    model: RobotModel, frames: dict[str, np.ndarray], blamed: dict[str, Finding]
) -> dict[str, tuple[np.ndarray, str]]:
    wanted = {}
    center = names.grasp_center(model)
    if center is None:
        return wanted
    if turn_deg(frames[center][:3, :3]) > EXACT_DEG:
        wanted[center] = (np.eye(3), "Rule 5: parallel to the wrist")
    for link in names.fingertips(model):
        if link in blamed and blamed[link].rule == "rule-5-tip-x":
            side = frames[link][:3, 3] - frames[center][:3, 3]
            inwards = -np.sign(_side(model, frames, link, center) or side[1] or 1.0) * LEFT
            rotation = frames[link][:3, :3]
            best = min(QUARTERS, key=lambda quarter: angle_deg((rotation @ quarter)[:, 0], inwards)
                       + 0.1 * angle_deg((rotation @ quarter)[:, 2], UP))  # fmt: skip
            relabelled = rotation @ best
            if angle_deg(relabelled[:, 0], inwards) > 20.0:
                relabelled = np.column_stack([inwards, np.cross(UP, inwards), UP])
            wanted[link] = (relabelled, "Rule 5: x inwards; check that it is normal to the fingertip's surface")
    return wanted


def _side(model: RobotModel, frames: dict[str, np.ndarray], link: str, center: str) -> float:
    """Return on which side (its sign: left is positive) the finger of a fingertip is: where its joint is."""
    fingers = [joint for joint in model.chain(link) if joint in names.fingers(model)]
    return float(frames[fingers[-1].child][1, 3] - frames[center][1, 3]) if fingers else 0.0


def missing_frames(model: RobotModel) -> list[AddedFrame]:
    """Return the optical frames, the grasp centre and the fingertips that Rules 4 and 5 ask for and `model` lacks."""
    added = []
    for sensor in names.sensors(model):
        if not names.optical_frames(model, sensor):
            stem = sensor.removesuffix("_link") + "_optical"
            pose = from_rotation_translation(names.OPTICAL_FROM_SENSOR.T, np.zeros(3))
            added.append(
                AddedFrame(f"{stem}_link", f"{stem}_joint", sensor, pose, "Rule 4: every sensor has one; at its origin")
            )
    if names.fingers(model) and names.BASE in model.links:
        added += _missing_grasp(model)
    return added


def _missing_grasp(model: RobotModel) -> list[AddedFrame]:
    frames = frames_in(model, names.BASE)
    fingers = names.fingers(model)
    center = names.grasp_center(model)
    added = []
    tips = names.fingertips(model) or [joint.child for joint in fingers]
    if center is None:
        holder = fingers[0].parent
        between = from_rotation_translation(np.eye(3), np.mean([frames[link][:3, 3] for link in tips], axis=0))
        added.append(AddedFrame(
            "grasp_center_link", "grasp_center_joint", holder, inverse(frames[holder]) @ between,
            "Rule 5: in the middle of " + " and ".join(tips) + " at zero; move it to where the tool grips",
        ))  # fmt: skip
        middle = between
    else:
        middle = frames[center]
    tipped = {joint.name for link in names.fingertips(model) for joint in model.chain(link)}
    for joint in fingers:
        if joint.name in tipped or _points_inwards(frames[joint.child], middle, joint.child):
            continue
        stem = joint.child.removesuffix("_link").replace("finger", "fingertip")
        side = frames[joint.child][1, 3] - middle[1, 3]
        inwards = -np.sign(side) * LEFT if abs(side) > 1e-6 else (-LEFT if "left" in stem else LEFT)
        rotation = np.column_stack([inwards, np.cross(UP, inwards), UP])
        pose = inverse(frames[joint.child]) @ from_rotation_translation(rotation, middle[:3, 3])
        added.append(AddedFrame(
            f"{stem}_link", f"{stem}_joint", joint.child, pose,
            "Rule 5: at the grasp centre while the finger is at zero; move it to the fingertip's surface",
        ))  # fmt: skip
    return added


def _points_inwards(frame: np.ndarray, middle: np.ndarray, link: str) -> bool:
    side = frame[1, 3] - middle[1, 3]
    inwards = -np.sign(side) * LEFT if abs(side) > 1e-6 else (-LEFT if "left" in link else LEFT)
    return angle_deg(frame[:3, 0], inwards) <= 5.0
