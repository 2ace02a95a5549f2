"""The normal form of a Stretch: new names of links and joints, turned and missing frames. Only frames that the linter
finds wrong by Rules 1 and 3 to 6 are turned, so a model that keeps the rules stays as it is."""

from fnmatch import fnmatchcase

import numpy as np
from scipy.spatial.transform import Rotation

from stretch_sim_cal.conventions import stretch_names as names
from stretch_sim_cal.conventions.measures import LEFT, UP, angle_deg, frames_in, nearest_primary, turn_deg, upright
from stretch_sim_cal.conventions.profile import lint
from stretch_sim_cal.conventions.rewrite import OTHER, AddedFrame, Turning
from stretch_sim_cal.conventions.stretch import EXEMPTIONS, STRETCH, axis_of_motion, inwards
from stretch_sim_cal.conventions.stretch_names import EXACT_DEG, MOUNT_DEG, Frames
from stretch_sim_cal.geometry.transforms import from_rotation_translation, inverse
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import Joint, RobotModel

PARALLEL_DEG = 2.0  # joints of one telescope are parallel to this
WRIST_DEG = 20.0  # how far a wrist's axes may be from base_link's
WRIST_AXES = {"wrist_yaw": 2, "wrist_pitch": 1, "wrist_roll": 0}
QUARTERS = Rotation.create_group("O").as_matrix().round()
"""The 24 rotations (24, 3, 3) by quarters: other labels for the same three lines."""


def renames(model: RobotModel) -> tuple[dict[str, str], dict[str, str]]:
    """Return new names of links and joints that change. One with the name of another's role becomes `other_`."""
    roles = _roles(model)
    links = {joint.child: f"{stem}_link" for stem, joint in roles.items()}
    joints = {joint.name: f"{stem}_joint" for stem, joint in roles.items()}
    for kind, entries, new_names in (("link", model.links, links), ("joint", model.joints, joints)):
        taken = set(new_names.values())
        for name in entries:
            right = suffixed(name, kind)
            new_names.setdefault(name, OTHER + right if right in taken else right)
    return tuple({old: new for old, new in names.items() if old != new} for names in (links, joints))


def suffixed(name: str, kind: str) -> str:
    """Return `name` as Rule 7 has it; names that a listed exception covers stay."""
    if any(each.rule == "rule-7" and fnmatchcase(name, each.names) for each in EXEMPTIONS):
        return name
    return names.suffixed(name, kind)


def _roles(model: RobotModel) -> dict[str, Joint]:
    """Return the joints above the links of the arm, the wrist and the wheels, by the links' stems, by structure."""
    base = next((name for name in model.order if suffixed(name, "link") == names.BASE), None)
    if base is None:
        return {}
    frames, found = frames_in(model, base), {}
    if telescope := _telescope(model, frames):
        above = model.parent_joints.get(telescope[0].parent)
        if above is not None and not above.variables:
            found["arm_l0"] = above
            lift = model.parent_joints.get(above.parent)
            if lift is not None and lift.type == "prismatic":
                found["lift"] = lift
        found |= {f"arm_l{number}": joint for number, joint in enumerate(telescope, 1)}
        found |= _wrist(model, frames, telescope[-1].child)
    # Wheels are endless joints on the base that let them roll.
    wheels = {
        joint.child: frames[joint.child][:3, 3] for joint in model.joints.values()
        if joint.type == "continuous" and model.rigid_root(joint.parent) == model.rigid_root(base)
        and names.rolls(joint, axis_of_motion(frames, joint)) and np.linalg.norm(frames[joint.child][:2, 3]) > 1e-3
    }  # fmt: skip
    order = names.wheel_order(wheels) if wheels else []
    return found | {f"wheel_{number}": model.parent_joints[link] for number, link in enumerate(order)}


def _telescope(model: RobotModel, frames: Frames) -> list[Joint]:
    """Return four prismatic joints in a row whose axes are parallel and horizontal; none if there are not four."""
    sliding = [joint for joint in model.joints.values() if joint.type == "prismatic"]
    axes = {joint.name: axis_of_motion(frames, joint) for joint in sliding}
    for joint in sliding:
        if abs(angle_deg(axes[joint.name], UP) - 90.0) > PARALLEL_DEG:
            continue
        row = [joint]
        while following := [
            other for other in sliding if other.parent == row[-1].child
            and np.linalg.norm(np.cross(axes[other.name], axes[joint.name])) < np.radians(PARALLEL_DEG)
        ]:  # fmt: skip
            row.append(following[0])
        if len(row) == len(names.ARM_JOINTS) - 1:
            return row
    return []


def _wrist(model: RobotModel, frames: Frames, last: str) -> dict[str, Joint]:
    """Return the joints of the wrist: one fixed to the arm's last link, then yaw, pitch, roll about base_link's z, y
    and x, each below the one before with fixed joints between."""
    found: dict[str, Joint] = {}
    link = last
    for stem, column in WRIST_AXES.items():
        joint = next(
            (joint for joint in model.joints.values()
             if joint.type == "revolute" and model.rigid_root(joint.parent) == model.rigid_root(link)
             and abs(axis_of_motion(frames, joint)[column]) > np.cos(np.radians(WRIST_DEG))),
            None,
        )  # fmt: skip
        if joint is None:
            break
        above = model.parent_joints[joint.parent]
        if stem == "wrist_yaw" and joint.parent != last and not above.variables:
            found["wrist"] = above
        found[stem] = joint
        link = joint.child
    return found


def base_turning(model: RobotModel, base: str | None, footprint: str | None) -> dict[str, np.ndarray]:
    """Return the base's rotation to the footprint's orientation, old_from_new (3, 3) by link, or nothing within the
    tilt of a floor calibration. It comes first, as all else is seen in base_link."""
    if base is None or footprint is None:
        return {}
    base_from_footprint = frames_in(model, base)[footprint][:3, :3]
    return {base: base_from_footprint} if turn_deg(base_from_footprint) > names.CALIBRATED_DEG else {}


def turning(model: RobotModel, guess_sensors: bool = False) -> tuple[Turning, dict[str, str]]:
    """Return what to turn, and why, by link or joint. `model` has its new names; `guess_sensors` as of `Options`."""
    result, reasons = Turning(), {}
    if names.BASE not in model.links:
        return result, reasons
    frames = frames_in(model, names.BASE)
    blamed = {each.name: each.rule for each in lint(model, STRETCH)
              if each.is_error and each.rule.startswith(("rule-4", "rule-5"))}  # fmt: skip
    sensors, structure = _sensors(model, frames, blamed, guess_sensors), _structure(model, frames)
    wanted = structure | sensors | _optical(model, frames, sensors) | _grasp(model, frames, structure, blamed)
    for link in model.order:
        old = frames[link][:3, :3]
        new, why = wanted.get(link, (old, ""))
        joint = model.parent_joints.get(link)
        if joint is not None and joint.variables == 1:
            axis = new.T @ old @ joint.unit_axis
            nearest, direction = nearest_primary(axis)
            if angle_deg(axis, direction) > EXACT_DEG:
                new = new @ names.shortest(direction, axis)
                why = "; ".join([*filter(None, [why]), f"Rule 3: the axis of motion is its {nearest[1]}"])
            if nearest.startswith("-"):
                result.signs[joint.name] = -1
                reasons[joint.name] = "Rule 3: its axis was negative; check the motor's polarity"
        if turn_deg(old.T @ new) > 1e-9 and (joint is None or joint.variables <= 1):
            result.old_from_new[link] = old.T @ new
            reasons[link] = why
    return result, reasons


Wanted = dict[str, tuple[np.ndarray, str]]
"""By link the rotations base_link_from_link (3, 3) that rules ask for, with their reasons."""


def _structure(model: RobotModel, frames: Frames) -> Wanted:
    wanted = {}
    for link in (*names.PRIMARY_LINKS, *names.ROTATING_LINKS):
        if link in model.links:
            now = frames[link][:3, :3]
            right = names.aligned(now, axis_of_motion(frames, model.parent_joints.get(link)))
            if turn_deg(right.T @ now) > EXACT_DEG:
                wanted[link] = (right, "Rule 1: base_link's orientation")
    for link in names.wheels(model):
        now, position, joint = frames[link][:3, :3], frames[link][:3, 3], model.parent_joints.get(link)
        axis = axis_of_motion(frames, joint)
        if np.linalg.norm(position[:2]) >= 1e-3 and axis is not None and names.rolls(joint, axis):
            right = names.wheel_rotation(now, axis, position)
            if turn_deg(right.T @ now) > EXACT_DEG:
                wanted[link] = (right, "Rule 6: z along the axis to the base's centre, x in the direction of motion")
    return wanted


def _sensors(model: RobotModel, frames: Frames, blamed: dict[str, str], guess: bool) -> Wanted:
    """Return the corrected frames of cameras, line sensors and lidars that break Rule 4. Only a sensor's frame shows
    its direction: so its axes stay on their lines, and only their names x, y and z are chosen, by the direction in
    which that sensor is mounted. A frame without an axis there stays or, as a `guess`, gets the nearest one that keeps
    the rule, which the report mentions. Lidars of a robot without a lift stay, too."""
    wanted, lidars = {}, names.lidars(model)
    for link in (*names.sensors(model), *lidars):
        if not blamed.get(link, "").startswith(("rule-4-base", "rule-4-lidar")) or (
            link in lidars and "lift_link" not in model.links and not guess
        ):
            continue
        now, position = frames[link][:3, :3], frames[link][:3, 3]
        inwards = names.head_centre(frames, lidars, link) - position if link in lidars else None
        looks, column = names.looks(link, position, inwards), 0 if inwards is None else 2
        best = min(now @ QUARTERS, key=lambda rotation: _cost(link, rotation, position, inwards))
        ahead = best[:, column] if angle_deg(best[:, column], looks) < names.LOOKS_DEG else looks
        if inwards is None:
            wanted |= _kept_or_nearest(link, best, names.sensor_upright(link, ahead), MOUNT_DEG, guess)
            continue
        nearest = names.lidar_upright(ahead, inwards)
        if angle_deg(nearest[:, 1], inwards) > names.INWARDS_DEG:
            nearest = names.lidar_upright(looks, inwards)
        wanted |= _kept_or_nearest(link, best, nearest, names.LIDAR_DEG, guess)
    return wanted


def _kept_or_nearest(link: str, relabelled: np.ndarray, nearest: np.ndarray, allowed: float, guess: bool) -> Wanted:
    if turn_deg(nearest.T @ relabelled) <= allowed:
        return {link: (relabelled, "Rule 4: other names for the same lines; check them")}
    if not guess:
        return {}
    return {link: (nearest, "Rule 4: no axis is along the viewing direction, so this is a guess: measure it")}


def _cost(link: str, rotation: np.ndarray, position: np.ndarray, inwards: np.ndarray | None) -> float:
    """Return the weighted angle (deg) of a sensor's rotation from its mounting; `inwards` is of lidars."""
    if inwards is not None:
        outwards = names.looks("", np.zeros(3), inwards)
        return 3.0 * angle_deg(rotation[:, 2], outwards) + angle_deg(rotation[:, 1], inwards)
    off = angle_deg(rotation[:, 0], names.looks(link, position))
    right = names.sensor_upright(link, rotation[:, 0]) if off < 89.0 else rotation @ np.diag([1.0, -1.0, -1.0])
    return off + 3.0 * angle_deg(rotation[:, 2], right[:, 2])


def _optical(model: RobotModel, frames: Frames, turned: Wanted) -> Wanted:
    wanted = {}
    for sensor in names.sensors(model):
        base, _ = turned.get(sensor, (frames[sensor][:3, :3], ""))
        right = base @ names.OPTICAL_FROM_SENSOR.T
        for link in names.optical_frames(model, sensor):
            if model.parent_joints[link].variables:
                continue
            now = frames[link][:3, :3]
            allowed = names.LEVELLED_DEG if fnmatchcase(link, names.LEVELLED) else EXACT_DEG
            if turn_deg(right.T @ now) <= allowed:
                continue
            best = min(now @ QUARTERS, key=lambda rotation: turn_deg(right.T @ rotation))
            kept = best if turn_deg(right.T @ best) <= names.LEVELLED_DEG and allowed == names.LEVELLED_DEG else right
            wanted[link] = (kept, "Rule 4: z out, x right, y down")
    return wanted


def _grasp(model: RobotModel, frames: Frames, structure: Wanted, blamed: dict[str, str]) -> Wanted:
    wanted = {}
    center = names.grasp_center(model)
    if center is None:
        return wanted
    rotation = frames[center][:3, :3]
    if names.ROLL in model.links:
        right, _ = structure.get(names.ROLL, (frames[names.ROLL][:3, :3], ""))
        if turn_deg(right.T @ rotation) > EXACT_DEG:
            rotation = right
            wanted[center] = (right, "Rule 5: parallel to the wrist")
    base_from_root = inverse(link_transforms(model, {}, [names.BASE])[names.BASE])[:3, :3]
    for link in names.fingertips(model):
        direction = inwards(model, link, center, base_from_root.T @ rotation)
        if blamed.get(link) == "rule-5-tip-x" and direction is not None:
            way = rotation @ direction
            now = frames[link][:3, :3]
            best = min(now @ QUARTERS, key=lambda tip: angle_deg(tip[:, 0], way) + 0.1 * angle_deg(tip[:, 2], UP))
            right = best if angle_deg(best[:, 0], way) <= names.INCLINED_DEG else upright(way)
            wanted[link] = (right, "Rule 5: x inwards; check that it is normal to the fingertip's surface")
    return wanted


def missing_frames(model: RobotModel) -> list[AddedFrame]:
    """Return the missing optical frames, grasp centre and fingertips of Rules 4 and 5."""
    added = []
    for sensor in names.sensors(model):
        if not names.optical_frames(model, sensor):
            stem = sensor.removesuffix("_link") + "_optical"
            pose = from_rotation_translation(names.OPTICAL_FROM_SENSOR.T, np.zeros(3))
            added.append(_frame(stem, sensor, pose, "Rule 4: every sensor has one; at its origin"))
    if names.fingers(model) and names.BASE in model.links:
        added += _missing_grasp(model)
    return added


def _frame(stem: str, parent: str, parent_from_link: np.ndarray, reason: str) -> AddedFrame:
    return AddedFrame(f"{stem}_link", f"{stem}_joint", parent, parent_from_link, reason)


def _missing_grasp(model: RobotModel) -> list[AddedFrame]:
    """Return the grasp centre; if it exists, the missing fingertips of fingers whose frames do not serve as such."""
    frames = frames_in(model, names.BASE)
    fingers = names.fingers(model)
    center = names.grasp_center(model)
    tips = names.fingertips(model)
    if center is None:
        holder = fingers[0].parent
        wrist = frames[names.ROLL][:3, :3] if names.ROLL in model.links else np.eye(3)
        ends = tips or [joint.child for joint in fingers]
        between = from_rotation_translation(wrist, np.mean([frames[link][:3, 3] for link in ends], axis=0))
        reason = f"Rule 5: in the middle of {' and '.join(ends)} at zero; move it to where the tool grips"
        return [_frame("grasp_center", holder, inverse(frames[holder]) @ between, reason)]
    added = []
    bare = {each.name for each in lint(model, STRETCH) if each.rule == "rule-5-tip-missing" and each.is_error}
    root_from_base = link_transforms(model, {}, [names.BASE])[names.BASE][:3, :3]
    rotation = frames[center][:3, :3]
    for link in (joint.child for joint in fingers if joint.child in bare):
        stem = link.removesuffix("_link").replace("finger", "fingertip")
        direction = inwards(model, link, center, root_from_base @ rotation)
        way = (-LEFT if "left" in stem else LEFT) if direction is None else rotation @ direction
        pose = inverse(frames[link]) @ from_rotation_translation(upright(way), frames[center][:3, 3])
        reason = "Rule 5: at the grasp centre while the finger is at zero; move it to the fingertip's surface"
        added.append(_frame(stem, link, pose, reason))
    return added
