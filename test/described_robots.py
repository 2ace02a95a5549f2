"""Robots' descriptions from parts: the vendor's Stretch, an industrial arm, an iCub, and ways to break them; robots
made at random for each convention: mechanisms askew, frames and names anyhow, frames missing."""

import functools
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
from scipy.spatial.transform import Rotation

from stretch_sim_cal.conventions import PROFILES
from stretch_sim_cal.conventions import stretch_names as names
from stretch_sim_cal.conventions.icub import ARM_JOINTS, AXES, BOARDS, FRAMES, FT_SENSORS, LINKS
from stretch_sim_cal.conventions.normal_form import Normal
from stretch_sim_cal.conventions.profile import INFO, lint
from stretch_sim_cal.conventions.rewrite import Turning, rename, turn
from stretch_sim_cal.conventions.stretch_normal import QUARTERS
from stretch_sim_cal.robot.description import load_model, parse_urdf
from stretch_sim_cal.robot.stretch import DEFAULT_TOOL, nominal_description
from stretch_sim_cal.robot.urdf_elements import numbers, roll_pitch_yaw

LIMIT = '<limit lower="-1" upper="2" effort="1" velocity="1"/>'


@functools.cache
def stretch_text(tool: str = DEFAULT_TOOL) -> str:
    return nominal_description(tool)


def link(name: str, inside: str = "") -> str:
    return f'<link name="{name}">{inside}</link>'


def joint(name, parent, child, kind="fixed", xyz="0 0 0", rpy="0 0 0", axis="0 0 1", limit=LIMIT) -> str:
    limit = limit if kind in ("revolute", "prismatic") else ""
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="{xyz}" rpy="{rpy}"/><axis xyz="{axis}"/>{limit}</joint>'
    )


def hung(child: str, parent: str, kind: str = "fixed", inside: str = "", **of_joint) -> str:
    """A link with the joint that it hangs on."""
    return link(child, inside) + joint(f"{child.removesuffix('_link')}_joint", parent, child, kind, **of_joint)


BOX = '<visual><geometry><box size="0.1 0.1 0.1"/></geometry></visual>'
MASS = '<inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'


def arm_parts(prefix: str = "") -> str:
    """An arm with six axes that keeps REP 199."""
    p = prefix
    axes = ("0 0 1", "0 1 0", "0 1 0", "1 0 0", "0 1 0", "1 0 0")
    places = ("0 0 0.4", "0 0 0.1", "0 0 0.6", "0.3 0 0.1", "0.3 0 0", "0.1 0 0")
    parts = [link(f"{p}base_link"), link(f"{p}base"), joint(f"{p}base_link-base", f"{p}base_link", f"{p}base")]
    above = f"{p}base_link"
    for number, (axis, place) in enumerate(zip(axes, places, strict=True), 1):
        parts.append(link(f"{p}link_{number}", BOX))
        parts.append(joint(f"{p}joint_{number}", above, f"{p}link_{number}", "revolute", place, axis=axis))
        above = f"{p}link_{number}"
    parts += [link(f"{p}flange"), joint(f"{p}link_6-flange", above, f"{p}flange", xyz="0.08 0 0")]
    parts += [link(f"{p}tool0"), joint(f"{p}flange-tool0", f"{p}flange", f"{p}tool0", rpy="0 1.5707963267948966 0")]
    return "".join(parts)


def robot(parts: str) -> str:
    return f'<robot name="robot">{parts}</robot>'


def icub_text() -> str:
    """An iCub as the tables describe it, with every frame, its axes exact, every link with its mass and shape."""
    parts = [link("root_link", MASS + BOX)]
    moving = [name for board in BOARDS.values() for name in board]
    for name, (above, parent) in LINKS.items():
        kind = "revolute" if above in moving else "fixed"
        axis = " ".join(map(str, AXES.get(above, (0, 0, 1))))
        parts += [link(name, MASS + BOX), joint(above, parent, name, kind, "0 0.01 -0.1", axis=axis)]
    for name, holders in FRAMES.items():
        parts += [link(name), joint(f"{name}_joint", holders[-1], name)]
    assert set(FT_SENSORS) <= {above for above, _ in LINKS.values()}
    return robot("".join(parts))


def edited(text: str, *changes) -> str:
    """Return a URDF after `changes`, functions of its root element."""
    root = ElementTree.fromstring(text)
    for change in changes:
        change(root)
    return ElementTree.tostring(root, encoding="unicode")


def all_of(*changes):
    return lambda root: [change(root) for change in changes]


JOINT_PARTS = {
    "axis": ("axis", "xyz"), "rpy": ("origin", "rpy"), "xyz": ("origin", "xyz"), "parent": ("parent", "link"),
    "lower": ("limit", "lower"), "upper": ("limit", "upper"),
}  # fmt: skip


def joint_set(name: str, **values: str):
    """Change a joint's `JOINT_PARTS`, or its `type`."""

    def change(root):
        element = root.find(f"joint[@name='{name}']")
        for key, value in values.items():
            tag, attribute = JOINT_PARTS.get(key, (None, key))
            part = element if tag is None else element.find(tag)
            if part is None:
                part = ElementTree.SubElement(element, tag)
            part.set(attribute, value)

    return change


def renamed(old: str, new: str):
    return lambda root: rename(root, {old: new}, {old: new})


def added(parts: str):
    return lambda root: root.extend(list(ElementTree.fromstring(robot(parts))))


def link_given(name: str, inside: str):
    return lambda root: root.find(f"link[@name='{name}']").append(ElementTree.fromstring(inside))


def element_taken(name: str, tag: str):
    """Take an element (visual, inertial, ...) out of a link."""

    def change(root):
        element = root.find(f"link[@name='{name}']")
        element.remove(element.find(tag))

    return change


def without(link_name: str):
    """Take a leaf away, with its joint."""

    def change(root):
        for element in list(root):
            if element.tag == "joint" and element.find("child").get("link") == link_name:
                root.remove(element)
        root.remove(root.find(f"link[@name='{link_name}']"))

    return change


def text_of(normal: Normal) -> str:
    return ElementTree.tostring(normal.root, encoding="unicode")


def findings(text: str, profile: str, infos: bool = False) -> set[tuple[str, str, str]]:
    """Return (level, rule, name) of what a profile finds; without infos unless asked for."""
    found = lint(load_model(text), PROFILES[profile])
    return {(each.level, each.rule, each.name) for each in found if infos or each.level != INFO}


# Robots made at random, and parts turned and renamed as a careless CAD export does, the mechanism unchanged.

ASKEW = ("lift_joint", "wrist_yaw_joint", "wrist_pitch_joint", "wrist_roll_joint", "wheel_0_joint", "wheel_1_joint",
         "wheel_2_joint", "gripper_finger_left_joint", "finger_left_joint")  # fmt: skip
SPARE = ("camera_center_optical_link", "line_sensor_0_optical_link", "gripper_fingertip_left_link",
         "aruco_fingertip_left_link", "grasp_center_link", "laser")  # fmt: skip
OTHER_NAMES = {
    "grasp_center_link": "link_grasp_center", "lidar_left_link": "link_lidar_left",
    "gripper_fingertip_right_link": "link_fingertip_right", "head_link": "head", "mast_link": "link_mast_link",
}  # fmt: skip
WORDS = ("link_grasp_center", "arm_l2_link", "wheel_0_link", "wheel_7", "camera_left_link", "lidar_left_link", "shell",
         "gripper_finger_left_link", "gripper_camera_link", "line_sensor_3_link", "head_link", "wrist_roll_link",
         "gripper_camera_optical_frame", "link_fingertip_left", "wrist_pitch_link", "base_footprint", "laser",
         "wrist_yaw_link", "lift_link", "plate_frame")  # fmt: skip
ANYHOW = (names.BASE, *names.PRIMARY_LINKS, *names.ROTATING_LINKS, "wheel_0_link", "wheel_1_link", "wheel_2_link",
          "gripper_finger_left_link", "gripper_finger_right_link", "finger_left_link", "finger_right_link",
          "wrist_aruco_link", "grasp_center_link")  # fmt: skip
"""Links whose orientation the rules settle, however they are turned."""


def _turned_slightly(axis: np.ndarray, generator: np.random.Generator, most_deg: float) -> np.ndarray:
    return Rotation.from_rotvec(np.radians(generator.uniform(-most_deg, most_deg, 3))).apply(axis)


def random_stretch(generator: np.random.Generator, tool: str) -> str:
    """A Stretch that is another mechanism than the vendor's: axes askew, frames missing; then exported carelessly."""
    text = stretch_text(tool)
    model = parse_urdf(text)
    changes: list[Callable] = []
    for name in ASKEW:
        if name in model.joints and generator.random() < 0.5:
            axis = _turned_slightly(model.joints[name].unit_axis, generator, 12.0)
            changes.append(joint_set(name, axis=numbers(axis)))
    for name in SPARE:
        if name in model.links and not model.child_joints(name) and generator.random() < 0.3:
            changes.append(without(name))
    for name in ("camera_left_joint", "camera_center_joint", "camera_right_joint"):
        if generator.random() < 0.3:
            rpy = f"0 {generator.uniform(0.5, 1.1)} {generator.uniform(-0.2, 0.2)}"
            changes.append(joint_set(name, rpy=rpy))
    for old, new in OTHER_NAMES.items():
        if generator.random() < 0.3:
            changes.append(renamed(old, new))
    text = edited(text, *changes)
    if generator.random() < 0.5:
        text = scrambled(text, int(generator.integers(2**31)), sensors_too=bool(generator.random() < 0.5))
    return text


def random_tree(generator: np.random.Generator) -> str:
    """A handful of links below base_link with names that the Stretch's conventions care about, joints anyhow."""
    links = ["base_link", *generator.permutation(WORDS)[: generator.integers(2, 8)]]
    parts = [link(links[0], BOX)]
    for index, name in enumerate(links[1:], 1):
        # What sees or grasps is fixed to something that moves.
        still = any(word in name for word in ("camera", "lidar", "sensor", "grasp", "tip", "foot", "laser", "optical"))
        kind = "fixed" if still else generator.choice(["fixed", "revolute", "continuous", "prismatic"])
        parts += [link(name), _random_joint(f"joint_{index}", links[generator.integers(index)], name, kind, generator)]
    return robot("".join(parts))


def _random_joint(name: str, parent: str, child: str, kind: str, generator: np.random.Generator) -> str:
    axis = generator.normal(size=3) if generator.random() < 0.6 else generator.permutation([0.0, 0.0, -1.0])
    xyz, rpy = generator.uniform(-0.5, 0.5, 3), roll_pitch_yaw(Rotation.random(rng=generator).as_matrix())
    rpy = rpy if generator.random() < 0.6 else np.zeros(3)
    xyz = xyz if generator.random() < 0.9 else np.zeros(3)
    return joint(name, parent, child, str(kind), numbers(xyz), numbers(rpy), numbers(axis))


def random_arm(generator: np.random.Generator) -> str:
    """A serial arm of one to seven joints; some of REP 199's frames are there, turned anyhow, some are not."""
    parts, above, count = [link("base_link", BOX)], "base_link", int(generator.integers(1, 8))
    named = generator.choice(["link_{}", "segment_{}", "shoulder_{}"])
    offset = int(generator.integers(0, 3))
    for number in range(count):
        kinds = ["revolute", "continuous"] + ["prismatic"] * (number < count - 1)
        child = named.format(offset + number)
        parts += [link(child, BOX), _random_joint(f"j{number}", above, child, generator.choice(kinds), generator)]
        above = child
    if generator.random() < 0.5:
        parts += [link("base"), joint("b", "base_link", "base", rpy="0.3 0 1")]
    if generator.random() < 0.5:
        parts += [link("flange"), _random_joint("f", above, "flange", "fixed", generator)]
        above = "flange"
        if generator.random() < 0.5:
            parts += [link("tool0"), joint("t", above, "tool0", rpy="0.3 0 1")]
    return robot("".join(parts))


def random_icub(generator: np.random.Generator) -> str:
    """An iCub with axes the other way round, the arms' askew, frames missing and joints spelt otherwise."""
    changes: list[Callable] = []
    for name, axis in AXES.items():
        direction = np.array(axis, dtype=float) * generator.choice([1.0, -1.0])
        if name in ARM_JOINTS:
            direction = _turned_slightly(direction, generator, 15.0)
        changes.append(joint_set(name, axis=numbers(direction)))
    changes += [without(name) for name in FRAMES if generator.random() < 0.5]
    changes += [renamed(name, f"{name}_joint") for name in AXES if generator.random() < 0.2]
    return edited(icub_text(), *changes)


def prefixed(text: str, prefix: str) -> str:
    """The same robot with `prefix` before every name, as a xacro's argument puts it there."""
    root = ElementTree.fromstring(text)
    for element in root.iter():
        for key, value in element.attrib.items():
            if element.tag in ("link", "joint") and key == "name" or key in ("link", "joint"):
                element.set(key, prefix + value)
    return ElementTree.tostring(root, encoding="unicode")


def scrambled(text: str, seed: int, sensors_too: bool = False) -> str:
    """Return another description of the same mechanism: structure turned anyhow; sensors' frames with other labels, or
    turned anyhow, too; a third of the joints negated; arm and wheels numbered anyhow; many suffixes as prefixes."""
    generator = np.random.default_rng(seed)
    root = ElementTree.fromstring(text)
    model = parse_urdf(text)
    turning = Turning()
    for name in model.order:
        sensor = name in names.sensors(model) + names.lidars(model) or names.is_optical(name)
        if name in ANYHOW or sensors_too and sensor:
            turning.old_from_new[name] = Rotation.random(rng=generator).as_matrix()
        elif sensor or name in names.fingertips(model):
            turning.old_from_new[name] = QUARTERS[generator.integers(len(QUARTERS))]
    moving = [joint.name for joint in model.moving_joints()]
    turning.signs = {name: -1 for name in moving if generator.random() < 1 / 3}
    turn(root, model, turning)

    links, joints = {}, {}
    for family, places in (("arm_l", 5), ("wheel_", 3)):
        for number, other in enumerate(generator.permutation(places)):
            links[f"{family}{number}_link"] = f"link_{family}{other}"
            joints[f"{family}{number}_joint"] = f"joint_{family}{other}"
    for stem in ("lift", "wrist", "wrist_yaw", "wrist_pitch", "wrist_roll", "mast", "head"):
        links[f"{stem}_link"], joints[f"{stem}_joint"] = f"link_{stem}", f"joint_{stem}"
    links["wrist_aruco_link"], joints["head_joint"] = "wrist_aruco", "head_bolts"
    rename(root, links, joints)
    return ElementTree.tostring(root, encoding="unicode")


def with_leader_and_follower() -> str:
    """A small robot whose second joint mimics the first, with every element that holds a joint's position."""
    return robot(
        '<link name="base_link"/><link name="slider_link"/><link name="follower_link"/>'
        '<joint name="slider_joint" type="prismatic"><origin xyz="0 0 0.1"/><parent link="base_link"/>'
        '<child link="slider_link"/><axis xyz="0 0 -1"/><limit lower="-0.3" upper="0.1" effort="1" velocity="1"/>'
        '<safety_controller soft_lower_limit="-0.2" soft_upper_limit="0.05" k_velocity="1"/><calibration '
        'rising="0.02"/></joint>'
        '<joint name="follower_joint" type="revolute"><parent link="slider_link"/><child link="follower_link"/>'
        '<axis xyz="0 1 0"/><limit lower="-2" upper="1" effort="1" velocity="1"/>'
        '<mimic joint="slider_joint" multiplier="3" offset="0.2"/></joint>'
        '<gazebo reference="slider"><x/></gazebo>'
    )
