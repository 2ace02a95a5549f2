"""Writes a normal form: a xacro with arguments, its tool beside it, the mapping of joints, and a report of changes.

Rule 0 is proved on the files themselves, before they get their place: nothing is written, or all of it.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from stretch_sim_cal.conventions.normal_form import TOOL_SITE, Normal
from stretch_sim_cal.conventions.profile import ERROR, WARNING
from stretch_sim_cal.conventions.proof import prove_same_mechanism, root_turned
from stretch_sim_cal.conventions.rewrite import roll_pitch_yaw
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_text, write_text, yaml_text
from stretch_sim_cal.robot.description import load_model

XACRO = "http://www.ros.org/wiki/xacro"
NO_TOOL = "none"
MAPPING_FILE, REPORT_FILE = "joint_mapping.yaml", "changes.md"


def write(normal: Normal, folder: str | os.PathLike, tool: str = "tool") -> tuple[list[Path], float]:
    """Write a normal form into `folder`, and return the files and the largest departure that the proof found.

    `tool` is what the tool's file and the argument's value are called, where there is a tool.
    Raises `Refused`, with nothing written, where the mechanism would not be the same, and `InputError` where the
    folder cannot be written.
    """
    folder = Path(folder)
    if not re.fullmatch(r"\w[\w.-]*", tool) or tool == NO_TOOL:
        raise InputError(f"'{tool}' cannot be a tool's name; use letters, digits and _")
    texts = xacro_texts(normal, tool)
    main = next(iter(texts))
    texts |= {MAPPING_FILE: mapping_text(normal), REPORT_FILE: report_text(normal)}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    try:
        for name, text in texts.items():
            write_text(staging / name, text)
        departure = prove(normal, staging / main)
        _publish(staging, folder, texts)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [folder / name for name in texts], departure


def prove(normal: Normal, xacro_file: Path) -> float:
    """Return the largest departure between the old model and what a xacro file expands to. Raises `Refused`."""
    return prove_same_mechanism(
        normal.old, load_model(xacro_file), normal.links, normal.joints, root_turned(normal.old_from_new,
        normal.old.root),
        normal.old_from_new,
    )  # fmt: skip


def _publish(staging: Path, folder: Path, texts: dict[str, str]) -> None:
    if not folder.exists():
        try:
            staging.chmod(0o755)
            os.rename(staging, folder)
            return
        except OSError as error:
            raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    for name, text in texts.items():
        write_text(folder / name, text)


def xacro_texts(normal: Normal, tool: str) -> dict[str, str]:
    """Return the xacro files by name, the robot's first; the tool is one of its own."""
    ElementTree.register_namespace("xacro", XACRO)
    tool_links = _tool_links(normal.root, normal.prefix + TOOL_SITE)
    own: list[Element] = []
    of_tool: list[Element] = []
    for element in normal.root:
        copy = ElementTree.fromstring(ElementTree.tostring(element))
        _prefix_names(copy)
        (of_tool if _belongs_to(element, tool_links) else own).append(copy)
    name = normal.root.get("name", "robot")
    robot = Element("robot", name=_literal(name))
    _argument(robot, "prefix", "")
    if of_tool:
        _argument(robot, "tool", tool)
    _mesh_arguments(robot, own, "mesh_dir")
    SubElement(robot, f"{{{XACRO}}}property", name="prefix", value="$(arg prefix)")
    robot.extend(own)
    files = {f"{re.sub(r'[^A-Za-z0-9_]+', '_', name) or 'robot'}.urdf.xacro": robot}
    if of_tool:
        unless = SubElement(robot, f"{{{XACRO}}}unless", value=f"${{'$(arg tool)' == '{NO_TOOL}'}}")
        SubElement(unless, f"{{{XACRO}}}include", filename="$(arg tool).tool.xacro")
        attached = Element("robot")
        _mesh_arguments(attached, of_tool, "tool_mesh_dir")
        attached.extend(of_tool)
        files[f"{tool}.tool.xacro"] = attached
    return {file: _text(element) for file, element in files.items()}


def _tool_links(root: Element, site: str) -> set[str]:
    """Return the links below the place for tools."""
    children: dict[str, list[str]] = {}
    for joint in root.findall("joint"):
        children.setdefault(joint.find("parent").get("link"), []).append(joint.find("child").get("link"))
    found, waiting = set(), [site]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


def _belongs_to(element: Element, links: set[str]) -> bool:
    if element.tag == "joint" and element.find("child") is not None:
        return element.find("child").get("link") in links
    return element.get("name") in links if element.tag == "link" else element.get("reference") in links


def _prefix_names(element: Element) -> None:
    """Let every name of a link or joint begin with the argument, and everything else be taken literally."""
    for part in element.iter():
        part.text = _literal(part.text) if part.text else part.text
        for key, value in part.attrib.items():
            named = part.tag in ("link", "joint") and key == "name" or part.tag in ("parent", "child") and key == "link"
            named = named or part.tag == "mimic" and key == "joint" or part.tag == "gazebo" and key == "reference"
            part.set(key, ("${prefix}" if named else "") + _literal(value))


def _literal(value: str) -> str:
    return re.sub(r"\$(?=[{(])", "$$", value)


def _argument(robot: Element, name: str, default: str) -> None:
    SubElement(robot, f"{{{XACRO}}}arg", name=name, default=default)


def _mesh_arguments(robot: Element, parts: list[Element], stem: str) -> None:
    """Make the meshes' folders arguments, `stem`, `stem`_2 and so on, and name the meshes within them."""
    folders: dict[str, str] = {}
    for mesh in (mesh for part in parts for mesh in part.iter("mesh")):
        filename = mesh.get("filename", "")
        folder, slash, file = filename.rpartition("/")
        if not slash or not filename.startswith("file://"):
            continue
        if folder not in folders:
            folders[folder] = stem if not folders else f"{stem}_{len(folders) + 1}"
            _argument(robot, folders[folder], folder)
        mesh.set("filename", f"$(arg {folders[folder]})/{file}")


def _text(element: Element) -> str:
    for part in element.iter():
        # In an order of its own, since xacro gives attributes back in another: so the same model is the same text.
        ordered = sorted(part.attrib.items(), key=lambda item: (item[0] != "name", item[0]))
        part.attrib.clear()
        part.attrib.update(ordered)
        part.tail = None
        if len(part):
            part.text = None
    ElementTree.indent(element)
    return f'<?xml version="1.0"?>\n{ElementTree.tostring(element, encoding="unicode")}\n'


def mapping_text(normal: Normal) -> str:
    """Return the YAML that maps old joints to new ones, and old frames to new ones where they were turned."""
    links = {}
    for old, new in sorted(normal.links.items()):
        links[old] = {"name": new}
        if old in normal.old_from_new:
            links[old]["old_from_new_rpy"] = [float(angle) for angle in roll_pitch_yaw(normal.old_from_new[old])]
    data = {
        "convention": "new position = sign * old position + offset (m, rad)",
        "joints": {
            old: {"name": mapping.name, "sign": mapping.sign, "offset": float(mapping.offset)}
            for old, mapping in sorted(normal.joints.items())
        },
        "links": links,
        "added_links": [frame.link for frame in normal.added],
    }
    return yaml_text(data)


def report_text(normal: Normal) -> str:
    """Return the report of changes as Markdown."""
    lines = [f"# {normal.old.name}: changes for the profile {normal.profile}", ""]
    if normal.unchanged:
        lines += ["Nothing was changed.", ""]
    renamed = [(old, new) for old, new in normal.links.items() if old != new]
    renamed += [(old, mapping.name) for old, mapping in normal.joints.items() if old != mapping.name]
    lines += _section("Renamed", [f"{old} -> {new}" for old, new in renamed])
    turned = []
    for old, rotation in normal.old_from_new.items():
        degrees = " ".join(f"{value + 0.0:.6g}" for value in np.degrees(roll_pitch_yaw(rotation)))
        turned.append(
            f"{normal.links[old]}: by rpy {degrees} deg in its old frame. {normal.reasons.get(normal.links[old], '')}"
        )
    lines += _section("Frames turned (shapes, masses and children stay where they were)", turned)
    lines += _section(
        "Check the motor's polarity",
        [
            f"{mapping.name}: positive is now the other way round, limits are swapped and negated"
            for mapping in normal.joints.values()
            if mapping.sign < 0
        ],
    )
    lines += _section(
        "Zeros moved",
        [
            f"{mapping.name}: new = {mapping.sign} * old + {mapping.offset!r}"
            for mapping in normal.joints.values()
            if mapping.offset
        ],
    )
    lines += _section("Frames added", [f"{frame.link} on {frame.parent}. {frame.reason}" for frame in normal.added])
    left = [finding for finding in normal.remaining if finding.level == ERROR]
    lines += _section(
        "Left to be settled by hand", [f"{each.rule} {each.name}: {each.message}; {each.fix}" for each in left]
    )
    kept = [finding for finding in normal.remaining if finding.level == WARNING]
    lines += _section("Warnings left", [f"{each.rule} {each.name}: {each.message}; {each.fix}" for each in kept])
    return "\n".join(lines)


def _section(title: str, entries: list[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {entry}" for entry in entries), ""] if entries else []


def tool_in(path: Path) -> str | None:
    """Return the tool's name in a xacro that `write` made; None for other files."""
    found = re.search(r'<xacro:arg name="tool" default="([\w.-]+)"', read_text(path))
    return found.group(1) if found else None
