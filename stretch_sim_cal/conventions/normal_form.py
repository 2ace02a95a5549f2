"""Brings a robot description into the form that a profile asks for, without changing its mechanism.

normal = normalized(read_description("cad_export.urdf"), Options("stretch"))
normalized_files.write(normal, "out")       # proves Rule 0 on what it is about to write, or refuses
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from stretch_sim_cal.conventions.icub import normal as icub_normal
from stretch_sim_cal.conventions.profile import Finding, lint
from stretch_sim_cal.conventions.profiles import profile_named
from stretch_sim_cal.conventions.proof import JointMapping
from stretch_sim_cal.conventions.rep199 import normal as rep199_normal
from stretch_sim_cal.conventions.rewrite import AddedFrame, Turning, add_frame, rename, turn
from stretch_sim_cal.conventions.stretch import renames as stretch_renames
from stretch_sim_cal.conventions.stretch import turning as stretch_turning
from stretch_sim_cal.conventions.stretch.names import BASE, FOOTPRINT
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.description import RobotModel, load_urdf_text, parse_urdf
from stretch_sim_cal.robot.model import Link, robot_model
from stretch_sim_cal.robot.urdf import MeshFolders, mesh_path, parse_xml

TOOL_SITE = "tool_attachment_site_link"
"""The link that tools hang on."""
TOOL_MESHES = "$(arg tool_mesh_dir)"
"""How the vendor's tool files name their folder of meshes; it is `meshes` beside the file."""


@dataclass(frozen=True)
class Description:
    """A URDF's elements, with meshes as absolute `file://` names where they are known."""

    root: Element
    source: str

    def model(self) -> RobotModel:
        """Return the model of the elements as they are now."""
        return parse_urdf(ElementTree.tostring(self.root, encoding="unicode"), source=self.source)


@dataclass(frozen=True)
class Options:
    """What a user may say: the profile, new names of links and joints, new zeros of joints (old name: old position),
    a tool to attach, and for REP 199 the poses (4, 4) of `base`, `flange` and `tool0` in their parents."""

    profile: str = "stretch"
    renames: Mapping[str, str] = field(default_factory=dict)
    zeros: Mapping[str, float] = field(default_factory=dict)
    tool: Description | None = None
    poses: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Normal:
    """A description in its normal form: `old` and `root` before and after, and what happened in between.

    `links` maps every old link's name, `joints` every old joint; `old_from_new` has the rotations (3, 3) of turned
    frames by their old names; `reasons` and `turned` go by new names.
    """

    profile: str
    old: RobotModel
    root: Element
    links: dict[str, str]
    joints: dict[str, JointMapping]
    old_from_new: dict[str, np.ndarray]
    reasons: dict[str, str]
    added: list[AddedFrame]
    remaining: list[Finding]

    @property
    def unchanged(self) -> bool:
        """Whether the model was in its normal form already."""
        renamed = any(old != new for old, new in self.links.items())
        moved = any(JointMapping(old) != mapping for old, mapping in self.joints.items())
        return not (renamed or moved or self.old_from_new or self.added)


def read_description(
    path: str | os.PathLike, arguments: Mapping[str, object] | None = None, mesh_folders: MeshFolders | None = None
) -> Description:
    """Return the elements of a URDF or xacro file. Raises `InputError` for what is no valid URDF."""
    path = Path(path).expanduser()
    text = load_urdf_text(path, arguments).replace(
        TOOL_MESHES, f"file://{quote(str(path.resolve().parent / 'meshes'))}"
    )
    return description(text, path.resolve().parent, str(path), mesh_folders)


def description(
    text: str, base_directory: Path | None = None, source: str = "<text>", mesh_folders: MeshFolders | None = None
) -> Description:
    """Return the elements of a URDF's text; see `read_description`."""
    parse_urdf(text, base_directory, source, mesh_folders)
    root = parse_xml(text, source)
    for mesh in root.iter("mesh"):
        found = mesh_path(mesh.get("filename", ""), base_directory, mesh_folders or {})
        if found is not None:
            mesh.set("filename", f"file://{quote(str(found))}")
    return Description(root, source)


def normalized(given: Description, options: Options) -> Normal:
    """Return a description in its profile's normal form. What no rule can settle is left, and told in `remaining`.

    Raises `InputError` for options that name nothing, names that would clash, and a tool that cannot be attached.
    """
    profile = profile_named(options.profile)
    work = Description(parse_xml(ElementTree.tostring(given.root, encoding="unicode"), given.source), given.source)
    if options.tool is not None:
        _attach_tool(work, options.tool)
    old = work.model()
    base = _base_turning(old, options)
    turn(work.root, old, Turning(base))
    links, joints = _new_names(work.model(), options)
    rename(work.root, links, joints)

    zeros = {joints.get(name, name): _checked_zero(old, name, value) for name, value in options.zeros.items()}
    turning, reasons = _turning(work.model(), zeros, options)
    turn(work.root, work.model(), turning)

    added = _missing_frames(work.model(), options)
    for frame in added:
        add_frame(work.root, frame)
    old_names = {links.get(name, name): name for name in old.links}
    return Normal(
        profile.name,
        old,
        work.root,
        {name: links.get(name, name) for name in old.links},
        {name: _mapping(joints.get(name, name), turning) for name in old.joints},
        base | {old_names[name]: rotation for name, rotation in turning.old_from_new.items()},
        reasons | {links.get(name, name): "Rule 1: base_footprint's orientation" for name in base},
        added,
        lint(work.model(), profile),
    )


def _base_turning(model: RobotModel, options: Options) -> dict[str, np.ndarray]:
    if options.profile != "stretch":
        return {}
    roles = {stretch_renames.suffixed(options.renames.get(name, name), "link"): name for name in model.links}
    return stretch_turning.base_turning(model, roles.get(BASE), roles.get(FOOTPRINT))


def _new_names(model: RobotModel, options: Options) -> tuple[dict[str, str], dict[str, str]]:
    """Return the new names of links and joints that change: the profile's, over which the user's go."""
    given: list[dict[str, str]] = [{}, {}]
    for old, new in options.renames.items():
        if old not in model.links and old not in model.joints:
            raise InputError(f"--rename {old}={new}: there is no link or joint '{old}'")
        if old in model.links:
            given[0][old] = new
        else:
            given[1][old] = new
    work = _renamed(model, *given)
    found = {"stretch": stretch_renames.renames, "icub": icub_normal.renames}.get(options.profile)
    of_profile: tuple[dict[str, str], dict[str, str]] = found(work) if found else ({}, {})
    result = []
    for asked, ruled, names in zip(given, of_profile, (model.links, model.joints), strict=True):
        final = {name: ruled.get(asked.get(name, name), asked.get(name, name)) for name in names}
        result.append({old: new for old, new in final.items() if old != new})
    return result[0], result[1]


def _renamed(model: RobotModel, links: dict[str, str], joints: dict[str, str]) -> RobotModel:
    """Return a model with other names and without shapes: enough to look for structure."""
    return robot_model(
        model.name,
        [Link(links.get(link, link)) for link in model.links],
        [
            replace(
                joint, name=joints.get(joint.name, joint.name), parent=links.get(joint.parent, joint.parent),
                child=links.get(joint.child, joint.child), mimic=None,
            )
            for joint in model.joints.values()
        ],
        model.name,
    )  # fmt: skip


def _checked_zero(model: RobotModel, name: str, value: float) -> float:
    joint = model.checked_joint(name)
    if joint.variables != 1:
        raise InputError(f"--zero {name}: joint '{name}' is {joint.type} and has no zero to move")
    return value


def _turning(model: RobotModel, zeros: dict[str, float], options: Options) -> tuple[Turning, dict[str, str]]:
    if options.profile == "stretch":
        return stretch_turning.turning(model, zeros)
    return Turning(zeros=zeros), {}


def _missing_frames(model: RobotModel, options: Options) -> list[AddedFrame]:
    if options.profile == "stretch":
        return stretch_turning.missing_frames(model)
    if options.profile == "rep199":
        return rep199_normal.missing_frames(model, options.poses)
    return []


def _mapping(name: str, turning: Turning) -> JointMapping:
    sign = turning.signs.get(name, 1)
    offset = -sign * turning.zeros.get(name, 0.0)
    return JointMapping(name, sign, offset + 0.0)


def _attach_tool(robot: Description, tool: Description) -> None:
    """Add a tool's links and joints, its root fixed to the place for tools."""
    model, other = robot.model(), tool.model()
    site = next((link for link in model.order if stretch_renames.suffixed(link, "link") == TOOL_SITE), None)
    if site is None:
        raise InputError(f"{robot.source}: has no {TOOL_SITE} to attach a tool to")
    hanging = [joint.child for joint in model.child_joints(site)]
    if hanging:
        raise InputError(f"{robot.source}: {site} holds {hanging[0]} already; attach a tool to a model without one")
    twice = [name for name in other.links if name in model.links] + [
        name for name in other.joints if name in model.joints
    ]
    if twice:
        raise InputError(f"{tool.source}: '{twice[0]}' is a name of the robot's, too; rename it in the tool")
    robot.root.extend(element for element in tool.root if element.tag in ("link", "joint", "material", "gazebo"))
    joint = SubElement(robot.root, "joint", name="tool_connection_joint", type="fixed")
    SubElement(joint, "origin", xyz="0 0 0", rpy="0 0 0")
    SubElement(joint, "parent", link=site)
    SubElement(joint, "child", link=other.root)
