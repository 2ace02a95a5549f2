"""The iCub model naming conventions: their tables as data, the rules, and the normal form, which takes names from the
tables, negates opposite axes, and adds the standard frames. The document's contradictions: docs/conventions.md."""

import re
from collections.abc import Iterator

import numpy as np

from stretch_sim_cal.conventions.measures import angle_deg, frames_in, shown
from stretch_sim_cal.conventions.profile import Exemption, Finding, Profile, error, info, lint, not_fixed, warning
from stretch_sim_cal.conventions.rewrite import AddedFrame, Turning
from stretch_sim_cal.robot.model import RobotModel, near

_LEG = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
_ARM = ("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow", "wrist_prosup", "wrist_pitch", "wrist_yaw")
BOARDS: dict[str, tuple[str, ...]] = {
    "left_leg": tuple(f"l_{joint}" for joint in _LEG), "right_leg": tuple(f"r_{joint}" for joint in _LEG),
    "torso": ("torso_pitch", "torso_roll", "torso_yaw"), "head": ("neck_pitch", "neck_roll", "neck_yaw"),
    "left_arm": tuple(f"l_{joint}" for joint in _ARM), "right_arm": tuple(f"r_{joint}" for joint in _ARM),
}  # fmt: skip
"""YARP control boards, and the joints of each."""
FT_SENSORS = {
    "l_arm_ft_sensor": "left_arm", "r_arm_ft_sensor": "right_arm", "l_leg_ft_sensor": "left_leg",
    "l_foot_ft_sensor": "left_foot", "r_leg_ft_sensor": "right_leg", "r_foot_ft_sensor": "right_foot",
}  # fmt: skip
"""Fixed joints that represent six-axis force-torque sensors, and YARP's names of those."""
ROOT_LINK, ROOT_FRAME = "root_link", "root_frame"
_SIDED = (
    ("hip_1", "hip_pitch", ROOT_LINK), ("hip_2", "hip_roll", "hip_1"), ("hip_3", "leg_ft_sensor", "hip_2"),
    ("upper_leg", "hip_yaw", "hip_3"), ("lower_leg", "knee", "upper_leg"), ("ankle_1", "ankle_pitch", "lower_leg"),
    ("ankle_2", "ankle_roll", "ankle_1"), ("foot", "foot_ft_sensor", "ankle_2"),
    ("shoulder_1", "shoulder_pitch", "chest"), ("shoulder_2", "shoulder_roll", "shoulder_1"),
    ("shoulder_3", "shoulder_yaw", "shoulder_2"), ("upper_arm", "arm_ft_sensor", "shoulder_3"),
    ("elbow_1", "elbow", "upper_arm"), ("forearm", "wrist_prosup", "elbow_1"),
    ("wrist_1", "wrist_pitch", "forearm"), ("hand", "wrist_yaw", "wrist_1"),
)  # fmt: skip
AXIS_DEG = 1.0  # axes of legs and torso are meant to be exact
WRONG_AXIS_DEG = 45.0  # beyond this another axis is nearer, or the sign is wrong
_DISREGARDED = re.compile(r"eye|hand_|finger|thumb|index|middle|ring|little|pinky", re.IGNORECASE)
_ALL_JOINTS = [joint for joints in BOARDS.values() for joint in joints]
_JOINTS = {*_ALL_JOINTS, *FT_SENSORS}


LINKS: dict[str, tuple[str, str]] = {
    f"{side}_{link}": (f"{side}_{joint}", parent if parent in (ROOT_LINK, "chest") else f"{side}_{parent}")
    for side in "lr" for link, joint, parent in _SIDED
} | {
    "torso_1": ("torso_pitch", ROOT_LINK), "torso_2": ("torso_roll", "torso_1"), "chest": ("torso_yaw", "torso_2"),
    "neck_1": ("neck_pitch", "chest"), "neck_2": ("neck_roll", "neck_1"), "head": ("neck_yaw", "neck_2"),
}  # fmt: skip
"""Each link's parent joint and parent link, with the table's slips put right (docs/conventions.md)."""
NECK_LINKS = ("neck_1", "neck_2", "head")
"""Not in the table of links, so a model that calls them otherwise is not at fault."""
SMALL_WITHOUT_MASS = ("[lr]_hip_3", "[lr]_wrist_1", "torso_[12]", "neck_[12]")
SMALL_WITHOUT_SHAPE = ("[lr]_hip_3", "[lr]_ankle_2", "[lr]_shoulder_3", "[lr]_elbow_1", "[lr]_wrist_1", "torso_2")
"""Links of more complex linkages that released models give no mass, or no mesh, of their own (shell patterns)."""
AXES: dict[str, tuple[int, int, int]] = {
    "l_hip_pitch": (0, 1, 0), "l_hip_roll": (-1, 0, 0), "l_hip_yaw": (0, 0, 1), "l_knee": (0, 1, 0),
    "l_ankle_pitch": (0, -1, 0), "l_ankle_roll": (-1, 0, 0),
    "r_hip_pitch": (0, 1, 0), "r_hip_roll": (1, 0, 0), "r_hip_yaw": (0, 0, -1), "r_knee": (0, 1, 0),
    "r_ankle_pitch": (0, -1, 0), "r_ankle_roll": (1, 0, 0),
    "torso_pitch": (0, -1, 0), "torso_roll": (-1, 0, 0), "torso_yaw": (0, 0, -1),
    "l_shoulder_pitch": (0, -1, 0), "l_shoulder_roll": (-1, 0, 0), "l_shoulder_yaw": (0, 0, -1), "l_elbow": (0, 1, 0),
    "l_wrist_prosup": (0, 0, -1), "l_wrist_pitch": (1, 0, 0), "l_wrist_yaw": (0, -1, 0),
    "r_shoulder_pitch": (0, -1, 0), "r_shoulder_roll": (1, 0, 0), "r_shoulder_yaw": (0, 0, 1), "r_elbow": (0, 1, 0),
    "r_wrist_prosup": (0, 0, 1), "r_wrist_pitch": (-1, 0, 0), "r_wrist_yaw": (0, -1, 0),
}  # fmt: skip
"""Axes of revolute joints at the zero configuration, in the root frame, as the table has them. None of the neck's."""
ARM_JOINTS = frozenset(BOARDS["left_arm"] + BOARDS["right_arm"])  # by the text their axes are only rough directions
FRAMES: dict[str, tuple[str, ...]] = {
    "root_frame": (ROOT_LINK,), "imu_frame": ("head",),
    "l_hand_dh_frame": ("l_hand",), "r_hand_dh_frame": ("r_hand",),
    "l_foot_dh_frame": ("l_foot",), "r_foot_dh_frame": ("r_foot",),
    "l_arm_ft_frame": ("l_shoulder_3", "l_upper_arm"), "r_arm_ft_frame": ("r_shoulder_3", "r_upper_arm"),
    "l_leg_ft_frame": ("l_hip_2", "l_hip_3"), "r_leg_ft_frame": ("r_hip_2", "r_hip_3"),
    "l_foot_ft_frame": ("l_ankle_2", "l_foot"), "r_foot_ft_frame": ("r_ankle_2", "r_foot"),
    "l_upper_arm_dh_frame": ("l_upper_arm",), "r_upper_arm_dh_frame": ("r_upper_arm",),
    "l_forearm_dh_frame": ("l_forearm",), "r_forearm_dh_frame": ("r_forearm",),
}  # fmt: skip
"""Frames, and the links that each may be fixed to; those of the eyes are left out as the text leaves the eyes out."""
SKIN_PARTS = {
    "l_foot_dh_frame": "LEFT_FOOT", "r_foot_dh_frame": "RIGHT_FOOT",
    "l_upper_arm_dh_frame": "SKIN_LEFT_UPPER_ARM", "r_upper_arm_dh_frame": "SKIN_RIGHT_UPPER_ARM",
    "l_forearm_dh_frame": "SKIN_LEFT_FOREARM", "r_forearm_dh_frame": "SKIN_RIGHT_FOREARM",
    "l_hand_dh_frame": "SKIN_LEFT_HAND", "r_hand_dh_frame": "SKIN_RIGHT_HAND",
}  # fmt: skip
"""Frames of the skin system, and its parts."""


def control_boards(model: RobotModel) -> Iterator[Finding]:
    """Joints have the names of YARP's control boards, and each board finds all of its joints."""
    unknown = _unknown_joints(model)
    for board, joints in BOARDS.items():
        missing = [name for name in joints if name not in model.joints]
        if len(missing) == len(joints):
            message = f"none of its joints is in the model ({', '.join(joints)})"
            yield info("control-board", board, message, "none, if the robot lacks it")
            continue
        for name in missing:
            message = f"control board {board} has {len(joints)} joints, this one is missing"
            hint = near(name, unknown) if unknown else ""
            yield error("control-board", name, message, f"name the joint {name}{hint}")
        for name in joints:
            if name in model.joints and model.joints[name].type != "revolute":
                message = f"it is {model.joints[name].type}, not revolute as in the table"
                yield error("joint-type", name, message, "make it revolute")


def _unknown_joints(model: RobotModel) -> list[str]:
    return [joint.name for joint in model.joints.values() if joint.variables and joint.name not in _ALL_JOINTS]


def unknown_joints(model: RobotModel) -> Iterator[Finding]:
    """Moving joints are those of the table; eyes and hands are not covered by it."""
    for name in _unknown_joints(model):
        if _DISREGARDED.search(name):
            yield info("joint-name", name, "eyes and hands are not covered by the conventions")
        else:
            yield warning("joint-name", name, f"the table has no such joint{near(name, _ALL_JOINTS)}", "rename it")


def ft_sensors(model: RobotModel) -> Iterator[Finding]:
    """Force-torque sensors are fixed joints with the names of the table; a robot has up to six."""
    for name, sensor in FT_SENSORS.items():
        if name not in model.joints:
            message = f"there is no such joint for YARP's sensor {sensor}"
            yield info("ft-sensor", name, message, "none, if the robot lacks it")
        elif model.joints[name].variables:
            yield error("ft-sensor", name, f"it is {model.joints[name].type}", "make it fixed")


def links(model: RobotModel) -> Iterator[Finding]:
    """Links have the names of the table, below its joints and links."""
    if ROOT_LINK not in model.links:
        yield error("link", model.root, f"there is no {ROOT_LINK}", f"call the pelvis {ROOT_LINK}")
    elif not model.rigidly_joined(ROOT_LINK, model.root):
        yield error("link", ROOT_LINK, f"it moves against the root {model.root}", "make it the root")
    present = {name for joints in BOARDS.values() if any(each in model.joints for each in joints) for name in joints}
    for link, (joint_name, _) in LINKS.items():
        joint = model.joints.get(joint_name)
        if joint is None:
            if link in model.links and link not in NECK_LINKS and joint_name in present:
                above = model.parent_joints.get(link)
                message = f"it is below joint {above.name if above else 'none'}, the table says {joint_name}"
                yield error("parent-joint", link, message, f"call the joint above it {joint_name}")
            continue
        found = info if link in NECK_LINKS else error
        if joint.child != link:
            message = f"the link below joint {joint_name} is called {joint.child}"
            yield found("link", joint.child, message, f"call it {link}")
        expected = _parent(model, link)
        if joint.parent != expected:
            message = f"joint {joint_name} is attached to {joint.parent}, the table says {expected}"
            yield found("parent-link", link, message, f"attach it to {expected}")


def bodies(model: RobotModel) -> Iterator[Finding]:
    """Links, other than frames, are characterised by a mass and a physical shape."""
    for link in (name for name in (ROOT_LINK, *LINKS) if name in model.links):
        inertial = model.links[link].inertial
        if inertial is None or inertial.mass <= 0.0:
            yield warning("link-mass", link, "the link has no mass", "give it its inertial parameters")
        if not model.links[link].has_shape:
            yield warning("link-shape", link, "the link has no shape", "give it its mesh")


def _parent(model: RobotModel, link: str) -> str:
    """Return a link's parent in the table, skipping links beyond a sensor that the robot does not have."""
    parent = LINKS[link][1]
    joint, _ = LINKS.get(parent, ("", ""))
    absent = joint in FT_SENSORS and joint not in model.joints and parent not in model.links
    return _parent(model, parent) if absent else parent


def axes(model: RobotModel) -> Iterator[Finding]:
    """Axes at the zero configuration, in the root frame, are those of the table; in the arms roughly."""
    reference = next((link for link in (ROOT_FRAME, ROOT_LINK) if link in model.links), None)
    frames = frames_in(model, reference) if reference else {}
    for name, direction in AXES.items():
        joint = model.joints.get(name)
        if not frames or joint is None or not joint.variables or not joint.axis.any():
            continue
        axis, arm = frames[joint.child][:3, :3] @ joint.unit_axis, name in ARM_JOINTS
        away = angle_deg(axis, np.array(direction, dtype=float))
        if away <= AXIS_DEG:
            continue
        message = f"at zero its axis {shown(axis)} in {reference} is {away:.1f} deg from the table's "
        message += shown(np.array(direction)) + ("; the table gives the arms' axes only roughly" if arm else "")
        if away > WRONG_AXIS_DEG or not arm:
            fix = "negate the axis and swap the limits" if away > 180.0 - WRONG_AXIS_DEG else "turn the axis"
            found = error if away > WRONG_AXIS_DEG else warning
            yield found("axis", name, message, fix, away)
        else:
            yield info("axis", name, message)


def holders_of(model: RobotModel, frame: str) -> tuple[str, ...]:
    """Return the links that a frame may be fixed to: the table's, and the link before an absent sensor."""
    unbuilt = {link for link, (joint, _) in LINKS.items() if joint in FT_SENSORS and joint not in model.joints}
    before = [LINKS[link][1] for link in FRAMES[frame] if link in unbuilt and link not in model.links]
    return tuple(dict.fromkeys((*before, *FRAMES[frame])))


def frames(model: RobotModel) -> Iterator[Finding]:
    """Frames are fixed to the links of the table, without shapes; DH frames also serve the skin."""
    for name in FRAMES:
        holders = holders_of(model, name)
        rule = "skin-frame" if name in SKIN_PARTS else "frame"
        if name not in model.links:
            what = f" (skin part {SKIN_PARTS[name]})" if name in SKIN_PARTS else ""
            message = f"the frame is missing{what}; the table has it on {' or '.join(holders)}"
            yield info(rule, name, message, "add it if it is used")
            continue
        loose = list(not_fixed(model, name, rule))
        yield from loose
        if not loose and not any(holder in model.links and model.rigidly_joined(name, holder) for holder in holders):
            joint = model.parent_joints.get(name)
            message = f"it is fixed to {joint.parent if joint else 'nothing'}, the table says {' or '.join(holders)}"
            yield error(rule, name, message, f"attach it to {holders[-1]}")
        if model.links[name].has_shape:
            yield warning(rule, name, "it is a frame and has a shape", "move the shape to its link")


def renames(model: RobotModel) -> tuple[dict[str, str], dict[str, str]]:
    """Return new names of links and joints (only changed ones). A joint is recognised by its name in any spelling
    (`LeftHipPitch`, `left_hip_pitch_joint`); a link by the joint above it, or as the root."""
    joints = {}
    for name in model.joints:
        meant = canonical(name)
        if meant in _JOINTS and meant not in model.joints and meant not in joints.values():
            joints[name] = meant
    by_name = {joints.get(name, name): joint for name, joint in reversed(model.joints.items())}
    above = {link: by_name[joint] for link, (joint, _) in LINKS.items() if joint in by_name}
    links = {joint.child: link for link, joint in above.items() if joint.child != link}
    if by_name.keys() & _JOINTS and ROOT_LINK not in model.links and model.root not in links:
        links[model.root] = ROOT_LINK
    return links, joints


def canonical(name: str) -> str:
    """Return a joint's name in the tables' spelling: small words joined by _, the side as l_ or r_ in front."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").split("_")
    words = [word for word in words if word not in ("joint", "")]
    sides = {"left": "l", "right": "r", "l": "l", "r": "r"}
    side = next((sides[word] for word in words if word in sides), None)
    rest = [word for word in words if word not in sides]
    return "_".join(([side] if side else []) + rest)


def turning(model: RobotModel) -> tuple[Turning, dict[str, str]]:
    """Return the joints with an axis opposite to the table's, and the reasons."""
    wrong = [each for each in lint(model, ICUB) if each.rule == "axis" and each.is_error]
    opposite = [each.name for each in wrong if each.measured > 180.0 - WRONG_AXIS_DEG]
    why = "the table's axis; check the motor's polarity"
    return Turning(signs=dict.fromkeys(opposite, -1)), dict.fromkeys(opposite, why)


def missing_frames(model: RobotModel) -> list[AddedFrame]:
    """Return the standard frames of present links, at the links' origins: no description has their poses. That of a
    force-torque sensor is added only with the sensor, on the link below its joint, at the sensor's origin."""
    added = []
    for name in (name for name in FRAMES if name not in model.links):
        holders, of_sensor = holders_of(model, name), name.endswith("_ft_frame")
        if of_sensor:
            sensor = model.joints.get(name.replace("_ft_frame", "_ft_sensor"))
            holders = (sensor.child,) if sensor is not None and sensor.child in holders else ()
        for holder in [each for each in holders if each in model.links][:1]:
            exact = of_sensor or name == ROOT_FRAME
            reason = f"at {holder}'s origin" + ("" if exact else "; its pose is not known: measure it")
            added.append(AddedFrame(name, f"{name}_fixed_joint", holder, np.eye(4), reason))
    return added


RULES = (control_boards, unknown_joints, ft_sensors, links, bodies, axes, frames)

EXEMPTIONS = (
    Exemption("axis", "torso_roll", "the table says (-1 0 0), released models turn about (1 0 0)", at_least=179.0),
    *(Exemption(rule, names, "released models (iCubGenova03, iCubLisboa01) give it to the adjacent link")
      for rule, each in (("link-mass", SMALL_WITHOUT_MASS), ("link-shape", SMALL_WITHOUT_SHAPE)) for names in each),
)  # fmt: skip

ICUB = Profile("icub", "iCub model naming conventions", RULES, EXEMPTIONS, ROOT_LINK)
