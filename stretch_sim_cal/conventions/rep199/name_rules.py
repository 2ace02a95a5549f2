"""The rules of REP 199 about names: tools, prefixes, left-handed controllers, and the vendors' own words."""

import re
from collections.abc import Iterator

import numpy as np

from stretch_sim_cal.conventions.frames import shown
from stretch_sim_cal.conventions.profile import INFO, WARNING, Finding
from stretch_sim_cal.conventions.rep199.arms import VIRTUAL, arms
from stretch_sim_cal.robot.model import RobotModel

VENDOR_NAMES = (
    ("ABB", "base", "Base"), ("ABB", "tool0", "TCP"),
    ("Comau", "base", "$BASE"), ("Comau", "tool0", "$TOOL"),
    ("Denso", "base", "Base"), ("Denso", "tool0", "Tool"),
    ("Epson", "base", "Robot"), ("Epson", "tool0", "TOOL 0"),
    ("Fanuc", "base", "WORLD"), ("Fanuc", "tool0", "TOOL"),
    ("Kawasaki", "base", "Base"), ("Kawasaki", "tool0", "Tool"),
    ("KUKA", "base", "$ROBROOT"), ("KUKA", "tool0", "$TOOL"),
    ("Mitsubishi", "base", "Base"), ("Mitsubishi", "tool0", "Tool"),
    ("Staubli", "base", "World"), ("Staubli", "tool0", "tool"),
    ("Universal Robots", "base", "Base"), ("Universal Robots", "tool0", "Tool"),
    ("Yaskawa Motoman", "base", "Robot"), ("Yaskawa Motoman", "tool0", "Tool"),
)  # fmt: skip
"""The REP's table: vendor, this REP's name, the vendor's name."""

_LEFT_HANDED = re.compile(r"left_?handed|(^|_)lhs?(_|$)", re.IGNORECASE)
_ROS_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_/]*$")


def tool_names(model: RobotModel) -> Iterator[Finding]:
    """toolN is strongly discouraged for an application's frames; names should follow the guidelines for ROS names."""
    for link in model.links:
        if re.search(r"(^|_)tool[1-9]\d*$", link):
            yield Finding(
                "toolN", WARNING, link, "a number says nothing of what the frame is for, and a wrong tool frame is "
                "dangerous",
                "name it after the tool, such as gripper_tcp",
            )  # fmt: skip
        if not _ROS_NAME.match(link):
            yield Finding(
                "ros-names",
                WARNING,
                link,
                f"'{link}' is no ROS name (letters, digits and _ after a letter)",
                "rename it",
            )


def prefixes(model: RobotModel) -> Iterator[Finding]:
    """The arms of a model with several should each have a prefix."""
    found = arms(model)
    if len(found) > 1 and any(not arm.prefix for arm in found):
        own = next(arm for arm in found if not arm.prefix)
        others = ", ".join(arm.prefix for arm in found if arm.prefix)
        name = own.tip(model) or model.root
        yield Finding(
            "prefix",
            WARNING,
            name,
            f"this arm has no prefix while others have ({others})",
            "give each arm's links a prefix",
        )


def left_handed(model: RobotModel) -> Iterator[Finding]:
    """Frames of left-handed controllers should be overlaid by right-handed ones, and converted at the boundaries."""
    for link in model.links.values():
        if _LEFT_HANDED.search(link.name):
            yield Finding(
                "left-handed", INFO, link.name, "it is named as a left-handed controller's frame, and every frame "
                "here is "
                "right-handed", "let it be the right-handed overlay, and convert where data enters and leaves ROS",
            )  # fmt: skip
        for shape in (*link.visuals, *link.collisions):
            if shape.scale is not None and np.prod(shape.scale) < 0:
                yield Finding(
                    "left-handed", WARNING, link.name, f"mesh {shape.filename} is scaled by {shown(shape.scale)}, "
                    "which mirrors it: it comes from a left-handed frame", "export the mesh in a right-handed frame",
                )  # fmt: skip


def vendor_names(model: RobotModel) -> Iterator[Finding]:
    """The vendors' names for base and tool0, recognised."""
    for link in model.links:
        meant = [(vendor, role, name) for vendor, role, name in VENDOR_NAMES if _plain(name) == _plain(link)]
        if not meant or link in VIRTUAL or link == model.root and _plain(link) == "world":
            continue
        role = meant[0][1]
        who = ", ".join(f"{vendor} ({name})" for vendor, _, name in meant)
        yield Finding(
            "vendor-names", INFO, link, f"this is what {who} call the frame that REP 199 calls {role}",
            f"call it {role}" if role not in model.links else f"{role} is there already; drop it or say what it is for",
        )  # fmt: skip


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
