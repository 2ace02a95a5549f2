"""Brings a robot description into the form that a profile asks for, without changing its mechanism; `normalized_files`
proves Rule 0 on what it writes."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import quote
from xml.etree.ElementTree import Element

import numpy as np

from stretch_sim_cal.conventions import icub, profile_named, rep199, stretch_normal
from stretch_sim_cal.conventions.profile import Finding, Profile, common_prefix, lint, prefixed_names
from stretch_sim_cal.conventions.rewrite import AddedFrame, JointMapping, Turning, rename, turn
from stretch_sim_cal.conventions.stretch_names import BASE, FOOTPRINT, TOOL_SITE
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot import description as urdf
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.urdf_elements import add_frame, add_joint

PASSES = 6  # how often frames are turned and added; two passes are usual
TOOL_MESHES = "$(arg tool_mesh_dir)"  # in the vendor's tool files, the folder `meshes` beside them


@dataclass(frozen=True)
class Description:
    """A URDF's elements, with meshes and textures as absolute `file://` names if they are known; `packages` are those
    of their names and of a xacro's `$(find ...)`."""

    root: Element
    source: str
    packages: frozenset[str] = frozenset()

    def model(self) -> RobotModel:
        return urdf.parse_urdf(self.root, source=self.source)


@dataclass(frozen=True)
class Options:
    """The profile, new names of links and joints, new zeros of joints (old name: old position), a tool to attach; for
    REP 199 the poses (4, 4) of `base`, `flange` and `tool0` in their parents, and whether an arm's links become link_1,
    link_2, ... with upright frames. `guess_sensors` also turns sensors without an axis in the expected direction."""

    profile: str = "stretch"
    renames: Mapping[str, str] = field(default_factory=dict)
    zeros: Mapping[str, float] = field(default_factory=dict)
    tool: Description | None = None
    poses: Mapping[str, np.ndarray] = field(default_factory=dict)
    number_links: bool = False
    guess_sensors: bool = False


@dataclass(frozen=True)
class Normal:
    """A description in its normal form: `old` and `root` before and after. `links` maps every old link's name, `joints`
    every old joint; `old_from_new` has the rotations (3, 3) of turned frames by old names; `reasons` go by new names.
    `prefix` is the common prefix of all names, which is kept."""

    profile: str
    old: RobotModel
    root: Element
    links: dict[str, str]
    joints: dict[str, JointMapping]
    old_from_new: dict[str, np.ndarray]
    reasons: dict[str, str]
    added: list[AddedFrame]
    remaining: list[Finding]
    prefix: str = ""

    @property
    def renamed(self) -> list[tuple[str, str]]:
        """Old and new names of renamed links and then joints."""
        names = [*self.links.items(), *((old, mapping.name) for old, mapping in self.joints.items())]
        return [(old, new) for old, new in names if old != new]

    @property
    def negated(self) -> list[JointMapping]:
        return [mapping for mapping in self.joints.values() if mapping.sign < 0]

    @property
    def shifted(self) -> list[JointMapping]:
        return [mapping for mapping in self.joints.values() if mapping.offset]

    @property
    def broken(self) -> list[Finding]:
        return [each for each in self.remaining if each.is_error]

    @property
    def unchanged(self) -> bool:
        return not (self.renamed or self.negated or self.shifted or self.old_from_new or self.added)


def read_description(
    path: urdf.PathLike, arguments: urdf.Arguments | None = None, mesh_folders: urdf.MeshFolders | None = None
) -> Description:
    """Return the elements of a URDF or xacro file. Raises `InputError` for what is not a valid URDF."""
    path = Path(path).expanduser()
    folder = path.resolve().parent
    text = urdf.load_urdf_text(path, arguments, mesh_folders)
    text = text.replace(TOOL_MESHES, f"file://{quote(str(folder / 'meshes'))}")
    given = description(text, folder, str(path), mesh_folders)
    return replace(given, packages=given.packages | urdf.found_packages(path))


def description(
    text: str, base_directory: Path | None = None, source: str = "<text>", mesh_folders: urdf.MeshFolders | None = None
) -> Description:
    """Return the elements of a URDF's text; see `read_description`."""
    root = urdf.parse_xml(text, source)
    urdf.parse_urdf(root, base_directory, source, mesh_folders)
    files = [*root.iter("mesh"), *root.iter("texture")]
    packages = urdf.mesh_packages(file.get("filename", "") for file in files)
    for file in files:
        found = urdf.mesh_path(file.get("filename", ""), base_directory, mesh_folders or {})
        if found is not None:
            file.set("filename", f"file://{quote(str(found))}")
    return Description(root, source, frozenset(packages))


def normalized(given: Description, options: Options) -> Normal:
    """Return a description in its profile's normal form; a common prefix of all names stays. Raises `InputError` for
    options that name nothing, names that would clash, and a tool that cannot be attached."""
    profile = profile_named(options.profile)
    work = Description(deepcopy(given.root), given.source)
    whole = work.model()
    prefix = common_prefix(whole, profile.anchor)
    links, joints = prefixed_names(whole, prefix)
    if prefix:
        rename(work.root, *({name: name.removeprefix(prefix) for name in names} for names in (links, joints)))
        options = replace(
            options,
            renames={old.removeprefix(prefix): new.removeprefix(prefix) for old, new in options.renames.items()},
            zeros={name.removeprefix(prefix): value for name, value in options.zeros.items()},
        )
    if options.tool is not None:
        work = attached(work, options.tool)
    normal = _normalized(work, profile, options)
    return _prefixed(normal, work, profile, prefix, prefix if joints else "") if prefix else normal


def _normalized(work: Description, profile: Profile, options: Options) -> Normal:
    old = work.model()
    base: dict[str, np.ndarray] = {}
    if options.profile == "stretch":
        roles = {stretch_normal.suffixed(options.renames.get(name, name), "link"): name for name in old.links}
        base = stretch_normal.base_turning(old, roles.get(BASE), roles.get(FOOTPRINT))
    turn(work.root, old, Turning(base))
    find_names, find_turning, find_missing = _rules(options)
    links, joints = _new_names(work.model(), options.renames, find_names)
    rename(work.root, links, joints)

    for name in options.zeros:
        if (joint := old.checked_joint(name)).variables != 1:
            raise InputError(f"--zero {name}: joint '{name}' is {joint.type} and has no zero to move")
    zeros = {joints.get(name, name): value for name, value in options.zeros.items()}
    turn(work.root, work.model(), Turning(zeros=zeros))
    total = Turning({links.get(name, name): rotation for name, rotation in base.items()}, zeros=zeros)
    reasons = {links.get(name, name): "Rule 1: base_footprint's orientation" for name in base}
    added: list[AddedFrame] = []
    # What one turn or one frame sets right may show that another has to follow.
    for _ in range(PASSES):
        model = work.model()
        turning, why = find_turning(model)
        turn(work.root, model, turning)
        total.follow(turning)
        for name, reason in why.items():
            reasons[name] = "; ".join(dict.fromkeys([*filter(None, reasons.get(name, "").split("; ")), reason]))
        missing = find_missing(work.model())
        for frame in missing:
            add_frame(work.root, frame.link, frame.joint, frame.parent, frame.parent_from_link)
        added += missing
        if not (turning.old_from_new or turning.signs or missing):
            break
    for role in options.poses:
        if not any(frame.link.endswith(role) for frame in added):
            raise InputError(f"--{role}: the model has a {role} already, which stays where it is")
    new_names = {name: links.get(name, name) for name in old.links}
    old_names = {new: old for old, new in new_names.items()}
    turned = {old_names[new]: rotation for new, rotation in total.old_from_new.items() if new in old_names}
    mappings = {name: total.mapping(joints.get(name, name)) for name in old.joints}
    remaining = lint(work.model(), profile)
    return Normal(profile.name, old, work.root, new_names, mappings, turned, reasons, added, remaining)


def _prefixed(normal: Normal, work: Description, profile: Profile, prefix: str, joint_prefix: str) -> Normal:
    now = work.model()
    joints = {name: joint_prefix + name for name in (*now.joints, *normal.old.joints)}
    links = {name: prefix + name for name in (*now.links, *normal.old.links)}
    rename(work.root, links, joints)
    added = [replace(e, link=links[e.link], joint=joints[e.joint], parent=links[e.parent]) for e in normal.added]
    return replace(
        normal, prefix=prefix, old=normal.old.renamed(links, joints), added=added,
        remaining=lint(work.model(), profile),
        links={links[old]: links[new] for old, new in normal.links.items()},
        joints={joints[old]: replace(each, name=joints[each.name]) for old, each in normal.joints.items()},
        old_from_new={links[old]: rotation for old, rotation in normal.old_from_new.items()},
        reasons={(joints | links)[name]: why for name, why in normal.reasons.items()},
    )  # fmt: skip


Names = tuple[dict[str, str], dict[str, str]]  # new names of links and of joints, by the old ones, of those that change


def _rules(options: Options) -> tuple[Callable[[RobotModel], Names], Callable, Callable]:
    if options.profile == "stretch":
        turning = partial(stretch_normal.turning, guess_sensors=options.guess_sensors)
        return stretch_normal.renames, turning, stretch_normal.missing_frames
    if options.profile == "icub":
        return icub.renames, icub.turning, icub.missing_frames
    renames = rep199.renames if options.number_links else lambda model: ({}, {})
    turning = partial(rep199.turning, number_links=options.number_links)
    return renames, turning, partial(rep199.missing_frames, poses=options.poses)


def _new_names(model: RobotModel, renames: Mapping[str, str], find_names: Callable[[RobotModel], Names]) -> Names:
    """Return the profile's new names, overridden by the user's `renames`."""
    given: Names = ({}, {})
    for old, new in renames.items():
        if old not in model.links and old not in model.joints:
            raise InputError(f"--rename {old}={new}: there is no link or joint '{old}'")
        given[old not in model.links][old] = new
    result = []
    names_of = list(model.links), list(model.joints)
    for names, asked, ruled in zip(names_of, given, find_names(model.renamed(*given)), strict=True):
        as_asked = {name: asked.get(name, name) for name in names}
        final = {name: ruled.get(new, new) for name, new in as_asked.items()}
        result.append({old: new for old, new in final.items() if old != new})
    return result[0], result[1]


def attached(robot: Description, tool: Description) -> Description:
    """Return a robot with a tool fixed to the place for tools. Raises `InputError` if it cannot be attached."""
    result = Description(deepcopy(robot.root), f"{robot.source} with {tool.source}")
    model, other = robot.model(), tool.model()
    site = next((link for link in model.order if stretch_normal.suffixed(link, "link") == TOOL_SITE), None)
    if site is None:
        raise InputError(f"{robot.source}: has no {TOOL_SITE} to attach a tool to")
    if hanging := [joint.child for joint in model.child_joints(site)]:
        raise InputError(f"{robot.source}: {site} carries {hanging[0]} already; attach a tool to a model without one")
    twice = [name for name in other.links if name in model.links]
    twice += [name for name in other.joints if name in model.joints]
    if twice:
        raise InputError(f"{tool.source}: '{twice[0]}' is also a name of the robot; rename it in the tool")
    result.root.extend(element for element in tool.root if element.tag in ("link", "joint", "material", "gazebo"))
    add_joint(result.root, "tool_connection_joint", site, other.root, np.eye(4))
    return result
