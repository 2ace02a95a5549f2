"""Changes a URDF's XML without changing its mechanism: other names, frames turned about their origins, axes negated.
All of a link's or joint's XML is kept consistent, also what `robot/` does not read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_rotation_translation, inverse
from stretch_sim_cal.robot.kinematics import joint_motion
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.urdf_elements import numbers, origin_of, set_origin

OTHER = "other_"  # prefix of a name that belongs to another link or joint
NAMING = {
    ("link", "name"): "link", ("parent", "link"): "link", ("child", "link"): "link", ("joint", "name"): "joint",
    ("mimic", "joint"): "joint", ("gazebo", "reference"): "either",
}  # fmt: skip
"""The attributes that name a link or a joint, by tag and key."""


@dataclass(frozen=True)
class JointMapping:
    """The joint that an old joint became: new position = sign * old position + offset."""

    name: str
    sign: int = 1
    offset: float = 0.0


@dataclass(frozen=True)
class AddedFrame:
    """A frame to be added: `parent_from_link` (4, 4), on a fixed joint."""

    link: str
    joint: str
    parent: str
    parent_from_link: np.ndarray
    reason: str


@dataclass
class Turning:
    """Changes of frames: `old_from_new` rotations (3, 3) of links, `signs` of joints (-1: the axis is negated), and
    `zeros`, the old positions that become joints' new zeros."""

    old_from_new: dict[str, np.ndarray] = field(default_factory=dict)
    signs: dict[str, int] = field(default_factory=dict)
    zeros: dict[str, float] = field(default_factory=dict)

    def mapping(self, joint: str) -> JointMapping:
        """Return the mapping of a joint's positions, by its new name."""
        sign = self.signs.get(joint, 1)
        return JointMapping(joint, sign, -sign * self.zeros.get(joint, 0.0) + 0.0)

    def follow(self, later: "Turning") -> None:
        """Let this be itself followed by `later`, which moves no zeros."""
        for link, rotation in later.old_from_new.items():
            self.old_from_new[link] = self.old_from_new.get(link, np.eye(3)) @ rotation
        for joint, sign in later.signs.items():
            self.signs[joint] = self.signs.get(joint, 1) * sign


def rename(root: Element, links: Mapping[str, str], joints: Mapping[str, str]) -> None:
    """Give links and joints (old to new) their new names throughout the URDF. Raises `InputError` for duplicates."""
    for kind, new_names in (("link", links), ("joint", joints)):
        named = [new_names.get(element.get("name"), element.get("name")) for element in root.findall(kind)]
        for twice in (name for name in named if named.count(name) > 1):
            raise InputError(f"two {kind}s would be called '{twice}'; rename one of them with --rename OLD=NEW")
    either = {**links, **joints}
    known = {"link": links, "joint": joints, "either": either}
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, known.get(NAMING.get((element.tag, key)), {}).get(value, value))
        if re.search(r"joint|link|frame", element.tag) and (element.text or "").strip() in either:
            element.text = either[element.text.strip()]  # As plugins name them: <joint_name>...</joint_name>.


def turn(root: Element, model: RobotModel, turning: Turning) -> None:
    """Turn frames about their origins, negate axes and move zeros; shapes, masses and children stay in place. `model`
    is that of `root`. With G the link's old_from_new and z the joint's new zero, a shape's origin O becomes inverse(G)
    O, and a joint's origin P becomes inverse(G_parent) P motion(z) G_child."""
    turned = {link: from_rotation_translation(each, np.zeros(3)) for link, each in turning.old_from_new.items()}
    for link, old_from_new in turned.items():
        for part in root.find(f"link[@name='{link}']"):
            if part.tag in ("inertial", "visual", "collision"):
                set_origin(part, inverse(old_from_new) @ origin_of(part))
    for element in root.findall("joint"):
        joint = model.joints[element.get("name")]
        sign, zero = turning.signs.get(joint.name, 1), turning.zeros.get(joint.name, 0.0)
        above, below = (turned.get(link, np.eye(4)) for link in (joint.parent, joint.child))
        if joint.parent in turned or joint.child in turned or zero:
            start = joint_motion(joint, np.asarray(zero)) if zero else np.eye(4)
            set_origin(element, inverse(above) @ origin_of(element) @ start @ below)
        if joint.variables and (joint.child in turned or sign < 0 or abs(np.linalg.norm(joint.axis) - 1) > 1e-6):
            axis = sign * below[:3, :3].T @ joint.unit_axis
            entry = element.find("axis")
            (SubElement(element, "axis") if entry is None else entry).set("xyz", numbers(axis))
        if sign < 0 or zero:
            _map_positions(element, sign, zero)
        mimic = element.find("mimic")
        if mimic is not None:
            _map_mimic(mimic, sign, zero, turning)


def _map_positions(element: Element, sign: int, zero: float) -> None:
    """Rewrite the positions in a joint's element: new = sign * (old - zero)."""
    for tag, low, high in (("limit", "lower", "upper"), ("safety_controller", "soft_lower_limit", "soft_upper_limit")):
        part = element.find(tag)
        if part is not None and (part.get(low) is not None or part.get(high) is not None):
            ends = sorted(sign * (float(part.get(key, "0")) - zero) for key in (low, high))
            part.set(low, numbers(ends[:1]))
            part.set(high, numbers(ends[1:]))
    for calibration in element.findall("calibration"):
        for key in {"rising", "falling", "reference_position"}.intersection(calibration.keys()):
            calibration.set(key, numbers([sign * (float(calibration.get(key)) - zero)]))


def _map_mimic(mimic: Element, sign: int, zero: float, turning: Turning) -> None:
    leader = mimic.get("joint")
    leader_sign, leader_zero = turning.signs.get(leader, 1), turning.zeros.get(leader, 0.0)
    if (sign, zero, leader_sign, leader_zero) == (1, 0.0, 1, 0.0):
        return
    multiplier, offset = float(mimic.get("multiplier", "1")), float(mimic.get("offset", "0"))
    mimic.set("multiplier", numbers([sign * multiplier * leader_sign]))
    mimic.set("offset", numbers([sign * (multiplier * leader_zero + offset - zero)]))
