"""Robots for the tests of conventions: the vendor's Stretch, an industrial arm, an iCub; and ways to break them."""

import functools
from xml.etree import ElementTree

from stretch_sim_cal.conventions import PROFILES
from stretch_sim_cal.conventions.icub import AXES, BOARDS, FRAMES, FT_SENSORS, LINKS
from stretch_sim_cal.conventions.normal_form import Normal
from stretch_sim_cal.conventions.profile import INFO, lint
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.stretch import DEFAULT_TOOL, nominal_description

LIMIT = '<limit lower="-1" upper="2" effort="1" velocity="1"/>'


@functools.cache
def stretch_text(tool: str = DEFAULT_TOOL) -> str:
    return nominal_description(tool)


def link(name: str, inside: str = "") -> str:
    return f'<link name="{name}">{inside}</link>'


def joint(name, parent, child, kind="fixed", xyz="0 0 0", rpy="0 0 0", axis="0 0 1") -> str:
    limit = LIMIT if kind in ("revolute", "prismatic") else ""
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="{xyz}" rpy="{rpy}"/><axis xyz="{axis}"/>{limit}</joint>'
    )


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


def joint_set(name: str, tag: str, **attributes):
    """Change attributes of an element (origin, axis, parent, ...) of a joint; `tag` joint is the joint itself."""

    def change(root):
        element = root.find(f"joint[@name='{name}']")
        part = element if tag == "joint" else element.find(tag)
        if part is None:
            part = ElementTree.SubElement(element, tag)
        part.attrib.update(attributes)

    return change


def renamed(kind: str, old: str, new: str):
    """Rename a link or a joint wherever it is mentioned."""

    def change(root):
        for element in root.iter():
            for key, value in element.attrib.items():
                mentions = element.tag == kind and key == "name" or element.tag in ("parent", "child") and key == kind
                if mentions and value == old:
                    element.set(key, new)

    return change


def added(parts: str):
    """Add links and joints."""
    return lambda root: root.extend(list(ElementTree.fromstring(robot(parts))))


def link_given(name: str, inside: str):
    """Put an element into a link."""
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
            if (
                element.tag == "link"
                and element.get("name") == link_name
                or element.tag == "joint"
                and element.find("child").get("link") == link_name
            ):
                root.remove(element)

    return change


def text_of(normal: Normal) -> str:
    """Return a normal form as URDF text."""
    return ElementTree.tostring(normal.root, encoding="unicode")


def findings(text: str, profile: str, infos: bool = False) -> set[tuple[str, str, str]]:
    """Return (level, rule, name) of what a profile finds; without infos unless asked for."""
    found = lint(load_model(text), PROFILES[profile])
    return {(each.level, each.rule, each.name) for each in found if infos or each.level != INFO}
