"""The robot that really stands in the world: the description with the errors that only the simulator knows."""

import xml.etree.ElementTree as ET

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy, to_xyz_rpy
from stretch_sim_cal.simulation.setup import SimulationSetup


def true_description(nominal: str, setup: SimulationSetup) -> str:
    """Return the URDF text of the true robot: lidars and base where they really are, and with its payload."""
    robot = ET.fromstring(nominal)
    _move(robot, "lidar_left_joint", setup.lidar_left_error.matrix)
    _move(robot, "lidar_right_joint", setup.lidar_right_error.matrix)
    base = setup.base_error
    _move(robot, "base_ref", from_xyz_rpy((0.0, 0.0, base.height), (base.roll, base.pitch, 0.0)))
    links = {link.get("name") for link in robot.findall("link")}
    for index, box in enumerate(setup.payload):
        if box.link not in links:
            raise InputError(f"payload[{index}]: link: '{box.link}' is no link of the robot")
        link = ET.SubElement(robot, "link", name=f"payload_{index}")
        for tag in ("visual", "collision"):
            geometry = ET.SubElement(ET.SubElement(link, tag), "geometry")
            ET.SubElement(geometry, "box", size=_text(box.size))
        joint = ET.SubElement(robot, "joint", name=f"payload_{index}_joint", type="fixed")
        ET.SubElement(joint, "origin", xyz=_text(box.xyz), rpy=_text(box.rpy))
        ET.SubElement(joint, "parent", link=box.link)
        ET.SubElement(joint, "child", link=f"payload_{index}")
    return ET.tostring(robot, encoding="unicode")


def _move(robot: ET.Element, joint_name: str, error: np.ndarray) -> None:
    joint = next((joint for joint in robot.findall("joint") if joint.get("name") == joint_name), None)
    if joint is None:
        raise InputError(f"the robot's description has no joint '{joint_name}'")
    origin = joint.find("origin")
    if origin is None:
        origin = ET.SubElement(joint, "origin")
    nominal = from_xyz_rpy(*([float(v) for v in origin.get(key, "0 0 0").split()] for key in ("xyz", "rpy")))
    xyz, rpy = to_xyz_rpy(nominal @ error)
    origin.set("xyz", _text(xyz))
    origin.set("rpy", _text(rpy))


def _text(values) -> str:
    return " ".join(repr(float(value)) for value in values)
