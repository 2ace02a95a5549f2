"""Turns and renames a robot's parts at random, as a careless CAD export does; the mechanism stays the same."""

from xml.etree import ElementTree

import numpy as np
from described_robots import robot
from scipy.spatial.transform import Rotation

from stretch_sim_cal.conventions import stretch_names as names
from stretch_sim_cal.conventions.rewrite import Turning, rename, turn
from stretch_sim_cal.conventions.stretch_normal import QUARTERS
from stretch_sim_cal.robot.description import parse_urdf

ANYHOW = (names.BASE, *names.PRIMARY_LINKS, *names.ROTATING_LINKS, "wheel_0_link", "wheel_1_link", "wheel_2_link",
          "gripper_finger_left_link", "gripper_finger_right_link", "finger_left_link", "finger_right_link",
          "wrist_aruco_link", "grasp_center_link")  # fmt: skip
"""Links whose orientation the rules settle, however they are turned."""


def scrambled(
    text: str, seed: int, sensors_too: bool = False
) -> tuple[str, dict[str, str], dict[str, tuple[str, int]]]:
    """Return another description of the same mechanism, the old names' new ones, and joints' new names and signs.

    Structure is turned anyhow; sensors' frames keep their lines and get other labels, or are
    turned anyhow, too; every third joint is negated;
    arm and wheels are numbered anyhow; many suffixes become prefixes.
    """
    generator = np.random.default_rng(seed)
    root = ElementTree.fromstring(text)
    model = parse_urdf(text)
    turning = Turning()
    for link in model.order:
        sensor = link in names.sensors(model) + names.lidars(model) or names.is_optical(link)
        if link in ANYHOW or sensors_too and sensor:
            turning.old_from_new[link] = Rotation.random(rng=generator).as_matrix()
        elif sensor or link in names.fingertips(model):
            turning.old_from_new[link] = QUARTERS[generator.integers(len(QUARTERS))]
    moving = [joint.name for joint in model.moving_joints()]
    turning.signs = {name: -1 for name in moving if generator.random() < 1 / 3}
    turn(root, model, turning)

    links, joints = _new_names(model, generator)
    rename(root, links, joints)
    signs = {name: (joints.get(name, name), turning.signs.get(name, 1)) for name in model.joints}
    return ElementTree.tostring(root, encoding="unicode"), {name: links.get(name, name) for name in model.links}, signs


def _new_names(model, generator) -> tuple[dict[str, str], dict[str, str]]:
    links, joints = {}, {}
    for family, places in (("arm_l", 5), ("wheel_", 3)):
        for number, other in enumerate(generator.permutation(places)):
            links[f"{family}{number}_link"] = f"link_{family}{other}"
            joints[f"{family}{number}_joint"] = f"joint_{family}{other}"
    for stem in ("lift", "wrist", "wrist_yaw", "wrist_pitch", "wrist_roll", "mast", "head"):
        links[f"{stem}_link"], joints[f"{stem}_joint"] = f"link_{stem}", f"joint_{stem}"
    links["wrist_aruco_link"], joints["head_joint"] = "wrist_aruco", "head_bolts"
    return links, joints


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
