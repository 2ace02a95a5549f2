"""Writes a normal form: a xacro with arguments, its tool beside it, the mapping of joints, a report of changes; none
of them before Rule 0 (the same mechanism, shapes and masses in place) is proved on the files."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, astuple, replace
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from stretch_sim_cal.conventions import profile_named
from stretch_sim_cal.conventions.normal_form import Description, Normal, Options, attached, description, normalized
from stretch_sim_cal.conventions.profile import WARNING, Finding, lint
from stretch_sim_cal.conventions.rewrite import NAMING, JointMapping
from stretch_sim_cal.conventions.stretch_names import TOOL_SITE
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import read_text, write_text, writing, yaml_text
from stretch_sim_cal.geometry.transforms import from_rotation_translation
from stretch_sim_cal.robot.description import load_model, parse_urdf
from stretch_sim_cal.robot.kinematics import link_transforms, random_positions
from stretch_sim_cal.robot.model import Inertial, Joint, RobotModel
from stretch_sim_cal.robot.stretch import WITHOUT_TOOL, nominal_description
from stretch_sim_cal.robot.urdf_elements import roll_pitch_yaw

XACRO = "http://www.ros.org/wiki/xacro"
NO_TOOL = "none"
MAPPING_FILE, REPORT_FILE = "joint_mapping.yaml", "changes.md"
TOLERANCE = 1e-9
CONFIGURATIONS = 16
CONNECTION = "tool_connection_joint"


def write(normal: Normal, folder: str | os.PathLike, tool: str = "tool") -> tuple[list[Path], float]:
    """Write a normal form into `folder`, and return the files and the largest departure of the proof. `tool` names the
    tool's file and the argument's value. Raises `Refused`, with nothing written, if the mechanism would not be the
    same, and `InputError` if the folder cannot be written."""
    folder = Path(folder)
    if not re.fullmatch(r"\w[\w.-]*", tool) or tool == NO_TOOL:
        raise InputError(f"'{tool}' cannot be a tool's name; use letters, digits and _")
    texts = xacro_texts(normal, tool)
    main = next(iter(texts))
    texts |= {MAPPING_FILE: mapping_text(normal), REPORT_FILE: report_text(normal)}
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name, text in texts.items():
            write_text(staging / name, text)
        departure = prove_same_mechanism(normal, load_model(staging / main))
        with contextlib.suppress(OSError):  # another process has made it meanwhile
            if not folder.exists():
                staging.chmod(0o755)
                staging.rename(folder)
        if staging.exists():
            for name, text in texts.items():
                write_text(folder / name, text)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [folder / name for name in texts], departure


def xacro_texts(normal: Normal, tool: str) -> dict[str, str]:
    """Return the xacro files by name, the robot's first, then the tool's."""
    ElementTree.register_namespace("xacro", XACRO)
    tool_links = _tool_links(normal.root, normal.prefix + TOOL_SITE)
    own: list[Element] = []
    of_tool: list[Element] = []
    for element in normal.root:
        (of_tool if _belongs_to(element, tool_links) else own).append(_with_prefixed_names(element))
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
        part = Element("robot")
        _mesh_arguments(part, of_tool, "tool_mesh_dir")
        part.extend(of_tool)
        files[f"{tool}.tool.xacro"] = part
    return {file: text_of(element) for file, element in files.items()}


def _tool_links(root: Element, site: str) -> set[str]:
    model = parse_urdf(root)
    return {link for link in model.links if any(joint.parent == site for joint in model.chain(link))}


def _belongs_to(element: Element, links: set[str]) -> bool:
    if element.tag == "joint" and element.find("child") is not None:
        return element.find("child").get("link") in links
    return element.get("name") in links if element.tag == "link" else element.get("reference") in links


def _with_prefixed_names(element: Element) -> Element:
    """Return a copy in which names of links and joints begin with the argument, and all else is taken literally."""
    copy = deepcopy(element)
    for part in copy.iter():
        part.text = _literal(part.text) if part.text else part.text
        for key, value in part.attrib.items():
            part.set(key, ("${prefix}" if (part.tag, key) in NAMING else "") + _literal(value))
    return copy


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


def text_of(element: Element) -> str:
    """Return an element as indented text, the same for the same model."""
    for part in element.iter():
        # Sorted, since xacro changes the order of attributes: equal models give equal text.
        ordered = sorted(part.attrib.items(), key=lambda item: (item[0] != "name", item[0]))
        part.attrib.clear()
        part.attrib.update(ordered)
        part.tail = None
        if len(part):
            part.text = None
    ElementTree.indent(element)
    return f'<?xml version="1.0"?>\n{ElementTree.tostring(element, encoding="unicode")}\n'


def mapping_text(normal: Normal) -> str:
    """Return the YAML that maps old joints to new ones, and old frames to new ones if they were turned."""
    links = {old: {"name": new} for old, new in sorted(normal.links.items())}
    for old, rotation in normal.old_from_new.items():
        links[old]["old_from_new_rpy"] = roll_pitch_yaw(rotation).tolist()
    data = {
        "convention": "new position = sign * old position + offset (m, rad)",
        "joints": {old: asdict(mapping) for old, mapping in sorted(normal.joints.items())},
        "links": links,
        "added_links": [frame.link for frame in normal.added],
    }
    return yaml_text(data)


def report_text(normal: Normal) -> str:
    turned = []
    for old, rotation in normal.old_from_new.items():
        degrees = " ".join(f"{value + 0.0:.6g}" for value in np.degrees(roll_pitch_yaw(rotation)))
        name = normal.links[old]
        turned.append(f"{name}: by rpy {degrees} deg in its old frame. {normal.reasons.get(name, '')}")
    sections = {
        "Renamed": [f"{old} -> {new}" for old, new in normal.renamed],
        "Frames turned (shapes, masses and children stay where they were)": turned,
        "Check the motor's polarity": [
            f"{each.name}: its positive direction is reversed, limits are swapped and negated"
            for each in normal.negated
        ],
        "Zeros moved": [f"{each.name}: new = {each.sign} * old + {each.offset!r}" for each in normal.shifted],
        "Frames added": [f"{frame.link} on {frame.parent}. {frame.reason}" for frame in normal.added],
        "To be decided by you": [f"{each.rule} {each.sentence}" for each in normal.broken],
        "Warnings left": [f"{each.rule} {each.sentence}" for each in normal.remaining if each.level == WARNING],
    }
    lines = [f"# {normal.old.name}: changes for the profile {normal.profile}", ""]
    lines += ["Nothing was changed.", ""] if normal.unchanged else []
    for title, entries in sections.items():
        lines += [f"## {title}", "", *(f"- {entry}" for entry in entries), ""] if entries else []
    return "\n".join(lines)


def tool_in(path: Path) -> str | None:
    """Return the tool's name in a xacro that `write` made; None for other files."""
    found = re.search(r'<xacro:arg name="tool" default="([\w.-]+)"', read_text(path))
    return found.group(1) if found else None


def prove_same_mechanism(normal: Normal, new: RobotModel) -> float:
    """Return the largest departure (m, kg, kg m2, or of a rotation's entries) of a model from the old one of a normal
    form, of which only names, joints' signs and offsets, and rotations of turned frames are used. Raises `Refused`
    naming the first link or joint that departs by more than `TOLERANCE`, or has other shapes, limits or type."""
    old, links, joints, worst = normal.old, normal.links, normal.joints, 0.0

    def hold(what: str, first: np.ndarray, second: np.ndarray) -> None:
        nonlocal worst
        departure = float(np.abs(np.asarray(first) - second).max())
        if not departure <= TOLERANCE:
            raise Refused(f"{what} would change by {departure:.3g}, and Rule 0 allows nothing; nothing is written")
        worst = max(worst, departure)

    for joint in old.joints.values():
        _hold_limits(hold, joint, joints[joint.name], new)
    positions = random_positions(old, CONFIGURATIONS, seed=0)
    for values in positions.values():
        values[0] = 0.0  # The first configuration is zero.
    mapped = {joints[name].name: joints[name].sign * value + joints[name].offset for name, value in positions.items()}
    before, after = link_transforms(old, positions), link_transforms(new, mapped)
    old_from_new_root = from_rotation_translation(normal.old_from_new.get(old.root, np.eye(3)), np.zeros(3))
    for name, link in old.links.items():
        if links[name] not in new.links:
            raise Refused(f"link '{name}' is lost; nothing is written")
        other = new.links[links[name]]
        was, now = before[name], old_from_new_root @ after[links[name]]
        new_from_old = from_rotation_translation(normal.old_from_new.get(name, np.eye(3)).T, np.zeros(3))
        hold(f"the frame of link '{name}'", was, now @ new_from_old)
        for kind in ("visual", "collision"):
            shapes, others = link.shapes(kind), other.shapes(kind)
            if len(shapes) != len(others):
                raise Refused(f"link '{name}' had {len(shapes)} {kind}s, now {len(others)}; nothing is written")
            for shape, moved in zip(shapes, others, strict=True):
                if shape.form != moved.form:
                    raise Refused(f"link '{name}': a {shape.kind} has changed its shape; nothing is written")
                hold(f"a shape of link '{name}'", was @ shape.link_from_geometry, now @ moved.link_from_geometry)
        if (link.inertial is None) != (other.inertial is None):
            raise Refused(f"link '{name}' lost or gained a mass; nothing is written")
        if link.inertial is not None and other.inertial is not None:
            centres, tensors = zip(_placed(was, link.inertial), _placed(now, other.inertial), strict=True)
            hold(f"the mass of link '{name}'", link.inertial.mass, other.inertial.mass)
            hold(f"the inertia of link '{name}'", *tensors)
            hold(f"the centre of mass of link '{name}'", *centres)
    return worst


def _hold_limits(hold: Callable, joint: Joint, mapping: JointMapping, new: RobotModel) -> None:
    other = new.joints.get(mapping.name)
    if other is None or other.type != joint.type:
        raise Refused(f"joint '{joint.name}' ({joint.type}) is lost or has changed its type; nothing is written")
    if (joint.limit is None) != (other.limit is None):
        raise Refused(f"joint '{joint.name}' lost or gained limits; nothing is written")
    if joint.limit is None or other.limit is None:
        return
    (*ends, velocity, effort), found = astuple(joint.limit), astuple(other.limit)
    # What is not a range of a position has nothing to map.
    ranged = joint.variables and joint.type != "continuous"
    expected = sorted(mapping.sign * end + mapping.offset for end in ends) if ranged else found[:2]
    hold(f"the limits of joint '{joint.name}'", [*expected, velocity, effort], found)


def _placed(frames: np.ndarray, body: Inertial) -> tuple[np.ndarray, np.ndarray]:
    """Return centre of mass (..., 3) and inertia (..., 3, 3) of a body whose link is at `frames` (..., 4, 4)."""
    placed = frames @ body.link_from_inertial
    rotation = placed[..., :3, :3]
    return placed[..., :3, 3], rotation @ body.inertia @ np.swapaxes(rotation, -1, -2)


def carrier() -> Description:
    """Return the robot that carries tools: the vendor's Stretch without one."""
    return description(nominal_description(WITHOUT_TOOL), source="the Stretch without a tool")


def tool_findings(tool: Description) -> list[Finding]:
    """Return the findings that a tool adds to its robot. Raises `InputError` if it cannot be attached."""
    return _of_tool(lint(attached(carrier(), tool).model(), profile_named("stretch")))


def normal_tool(tool: Description, options: Options) -> Normal:
    """Return the normal form of a robot with a tool, with the findings that the tool adds. Raises `InputError` if it
    cannot be attached, or an option names nothing."""
    normal = normalized(attached(carrier(), tool), options)
    return replace(normal, remaining=_of_tool(normal.remaining))


def _of_tool(findings: list[Finding]) -> list[Finding]:
    own = {(each.rule, each.name) for each in lint(carrier().model(), profile_named("stretch"))}
    return [each for each in findings if (each.rule, each.name) not in own and each.name != CONNECTION]


def write_tool(normal: Normal, file: Path) -> float:
    """Write a tool's URDF, and return the largest departure (Rule 0) between the robots with the old and the new tool.
    Raises `Refused`, with nothing written, if it is not the same mechanism."""
    root = Element("robot", name=file.stem)
    links = _tool_links(normal.root, normal.prefix + TOOL_SITE)
    root.extend(each for each in deepcopy(normal.root) if _belongs_to(each, links) and each.get("name") != CONNECTION)
    text = text_of(root)
    again = attached(carrier(), Description(ElementTree.fromstring(text), str(file)))
    departure = prove_same_mechanism(normal, again.model())
    if file.exists():
        raise InputError(f"{file}: exists already; name another folder with --out")
    write_text(file, text)
    return departure
