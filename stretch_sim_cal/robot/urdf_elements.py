"""Elements of a URDF's XML as they are written: numbers, origins, joints and frames."""

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from stretch_sim_cal.geometry.transforms import ROUNDING, from_xyz_rpy, roll_pitch_yaw


def numbers(values: Iterable[float]) -> str:
    """Return numbers as a URDF writes them, exactly, those next to 0 and to +-1 as such."""
    words = []
    for value in map(float, values):
        near = round(value)
        value = float(near) if abs(value - near) < ROUNDING and abs(near) <= 1 else value
        words.append(repr(int(value)) if value.is_integer() and abs(value) < 1e6 else repr(value))
    return " ".join(words)


def origin_of(element: Element) -> np.ndarray:
    """Return the 4x4 transform in an element's <origin>."""
    origin = element.find("origin")
    texts = ("", "") if origin is None else (origin.get("xyz"), origin.get("rpy"))
    return from_xyz_rpy(*([float(word) for word in (text or "0 0 0").split()] for text in texts))


def set_origin(element: Element, transform: np.ndarray) -> None:
    """Write a 4x4 transform into an element's <origin>, which is made if it is missing."""
    origin = element.find("origin")
    if origin is None:
        origin = Element("origin")
        element.insert(0, origin)
    origin.attrib.clear()
    origin.set("xyz", numbers(transform[:3, 3]))
    origin.set("rpy", numbers(roll_pitch_yaw(transform[:3, :3])))


def add_frame(root: Element, link: str, joint: str, parent: str, parent_from_link: np.ndarray) -> None:
    """Add a link without shape or mass, on a fixed joint."""
    SubElement(root, "link", name=link)
    add_joint(root, joint, parent, link, parent_from_link)


def add_joint(
    root: Element, name: str, parent: str, child: str, parent_from_child: np.ndarray, kind: str = "fixed"
) -> Element:
    joint = SubElement(root, "joint", name=name, type=kind)
    SubElement(joint, "parent", link=parent)
    SubElement(joint, "child", link=child)
    set_origin(joint, parent_from_child)
    return joint
