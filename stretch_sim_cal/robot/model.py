"""A robot as a tree of links and joints, in the words of the URDF specification. Lengths in m, angles in rad."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np

from stretch_sim_cal.errors import InputError

VARIABLES = {"fixed": 0, "planar": 3, "spherical": 3, "floating": 6}
VARIABLES |= dict.fromkeys(("revolute", "continuous", "prismatic", "helical"), 1)
"""Joint types, and their degrees of freedom."""


@dataclass(frozen=True)
class Geometry:
    """One shape of a link: `kind` is box, cylinder, sphere or mesh; fields of other kinds are None. Cylinders are along
    z, centred. A mesh has `filename` as written, its `path` (None if its package is not known) and `scale` (3,)."""

    kind: str
    link_from_geometry: np.ndarray
    size: np.ndarray | None = None
    radius: float | None = None
    length: float | None = None
    filename: str | None = None
    path: Path | None = None
    scale: np.ndarray | None = None
    name: str | None = None

    @property
    def form(self) -> tuple:
        """What is equal for shapes of the same form and size, wherever they are."""
        arrays = (None if each is None else each.tolist() for each in (self.size, self.scale))
        return (self.kind, self.radius, self.length, *arrays, self.path or self.filename)


@dataclass(frozen=True)
class Inertial:
    """Mass (kg), `link_from_inertial` (4, 4) of the centre of mass, and `inertia` (3, 3) there (kg m2)."""

    mass: float
    link_from_inertial: np.ndarray
    inertia: np.ndarray


@dataclass(frozen=True)
class Link:
    """A rigid body and the frame of the same name."""

    name: str
    visuals: tuple[Geometry, ...] = ()
    collisions: tuple[Geometry, ...] = ()
    inertial: Inertial | None = None

    def shapes(self, kind: str) -> tuple[Geometry, ...]:
        return self.collisions if kind == "collision" else self.visuals

    @property
    def has_shape(self) -> bool:
        return bool(self.visuals or self.collisions)


@dataclass(frozen=True)
class Limit:
    """The range of a joint's position, and the largest velocity and effort (SI units)."""

    lower: float
    upper: float
    velocity: float
    effort: float


@dataclass(frozen=True)
class Mimic:
    """The joint's position is `multiplier` times that of `joint` plus `offset`."""

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Joint:
    """Connects `child` to `parent`. `parent_from_joint` (4, 4) is the child's frame at position zero. `axis` (3,) is in
    the child's frame, as written, of a planar joint the plane's normal; `pitch` (m/rad) is of helical joints."""

    name: str
    type: str
    parent: str
    child: str
    parent_from_joint: np.ndarray
    axis: np.ndarray
    limit: Limit | None = None
    mimic: Mimic | None = None
    pitch: float = 0.0

    @property
    def variables(self) -> int:
        return VARIABLES[self.type]

    @property
    def unit_axis(self) -> np.ndarray:
        return self.axis / np.linalg.norm(self.axis)


@dataclass(frozen=True)
class RobotModel:
    """A tree of links, made by `robot_model`. `links` and `joints` are by name, in the order of their source."""

    name: str
    root: str
    links: dict[str, Link]
    joints: dict[str, Joint]
    order: tuple[str, ...] = field(repr=False)
    """All links, every parent before its children."""
    parent_joints: dict[str, Joint] = field(repr=False)
    """The joint above each link but the root."""

    def parent_joint(self, link: str) -> Joint | None:
        """Return the joint whose child `link` is; None for the root."""
        return self.parent_joints.get(self.checked_link(link))

    def child_joints(self, link: str) -> list[Joint]:
        self.checked_link(link)
        return [joint for joint in self.joints.values() if joint.parent == link]

    def chain(self, link: str) -> list[Joint]:
        """Return the joints from the root down to `link`."""
        joints = []
        joint = self.parent_joint(link)
        while joint is not None:
            joints.append(joint)
            joint = self.parent_joints.get(joint.parent)
        return joints[::-1]

    def moved_by(self, joints: Collection[str]) -> set[str]:
        """Return the links that any of these joints moves."""
        return {link for link in self.order if any(joint.name in joints for joint in self.chain(link))}

    def between(self, first: str, second: str) -> list[Joint]:
        """Return the joints on the way from link to link, without those above both."""
        above = self.chain(first), self.chain(second)
        shared = {joint.name for joint in above[0]} & {joint.name for joint in above[1]}
        return [joint for chain in above for joint in chain if joint.name not in shared]

    def rigidly_joined(self, first: str, second: str) -> bool:
        return not any(joint.variables for joint in self.between(first, second))

    def rigid_root(self, link: str) -> str:
        """Return the topmost link that `link` hangs on by fixed joints only."""
        return next((joint.child for joint in reversed(self.chain(link)) if joint.variables), self.root)

    def renamed(self, links: Mapping[str, str], joints: Mapping[str, str]) -> "RobotModel":
        """Return this robot with other names (old to new). Raises `InputError` for duplicates."""

        def moved(joint: Joint) -> Joint:
            mimic = joint.mimic and replace(joint.mimic, joint=joints.get(joint.mimic.joint, joint.mimic.joint))
            parent, child = (links.get(link, link) for link in (joint.parent, joint.child))
            return replace(joint, name=joints.get(joint.name, joint.name), parent=parent, child=child, mimic=mimic)

        new_links = [replace(link, name=links.get(link.name, link.name)) for link in self.links.values()]
        return robot_model(self.name, new_links, map(moved, self.joints.values()), self.name)

    def moving_joints(self) -> list[Joint]:
        """Return the joints that are neither fixed nor mimicking another."""
        return [joint for joint in self.joints.values() if joint.variables and joint.mimic is None]

    def checked_link(self, name: str) -> str:
        """Return `name`. Raises `InputError` with near names if there is no such link."""
        if name not in self.links:
            raise InputError(f"robot '{self.name}' has no link '{name}'{near(name, self.links)}")
        return name

    def checked_joint(self, name: str) -> Joint:
        """Return that joint. Raises `InputError` with near names if there is none."""
        if name not in self.joints:
            raise InputError(f"robot '{self.name}' has no joint '{name}'{near(name, self.joints)}")
        return self.joints[name]


def near(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about the unknown `name`: similar known names, or a few."""
    known = list(known)
    if close := get_close_matches(name, known, n=3, cutoff=0.5):
        return f"; did you mean {', '.join(close)}?"
    shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    return f"; available: {shown or 'none'}"


def robot_model(name: str, links: Iterable[Link], joints: Iterable[Joint], source: str) -> RobotModel:
    """Return the model of links and joints that form one tree. Raises `InputError` beginning with `source` for anything
    else, and for mimic joints that follow nothing or each other."""
    by_link: dict[str, Link] = {}
    by_joint: dict[str, Joint] = {}
    for kind, items, by_name in (("link", links, by_link), ("joint", joints, by_joint)):
        for item in items:
            if by_name.setdefault(item.name, item) is not item:
                raise InputError(f"{source}: two {kind}s are called '{item.name}'; names must differ")
    if not by_link:
        raise InputError(f"{source}: robot '{name}' has no links")
    parent_joints: dict[str, Joint] = {}
    for joint in by_joint.values():
        for role, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in by_link:
                missing = f"its {role} link '{link}' does not exist{near(link, by_link)}"
                raise InputError(f"{source}: joint '{joint.name}': {missing}")
        if (other := parent_joints.setdefault(joint.child, joint)) is not joint:
            fault = f"link '{joint.child}' is the child of two joints, '{other.name}' and '{joint.name}'"
            raise InputError(f"{source}: {fault}; a URDF describes a tree, each link may have one parent")
    roots = [link for link in by_link if link not in parent_joints]
    if len(roots) > 1:
        more = ", ..." if len(roots) > 5 else ""
        named = f"{', '.join(roots[:5])}{more}"
        raise InputError(f"{source}: the links form {len(roots)} trees, with the roots {named}; connect them by joints")
    above = {link: [parent_joints[link].parent] if link in parent_joints else [] for link in by_link}
    try:
        order = tuple(TopologicalSorter(above).static_order())
    except CycleError as error:
        loop = error.args[1]  # its first link is its last one, too
        shown = " -> ".join([*loop[: min(6, len(loop) - 1)], loop[0]])
        raise InputError(f"{source}: the joints form a loop: {shown}; a URDF describes a tree") from error
    _check_mimics(by_joint, source)
    return RobotModel(name, order[0], by_link, by_joint, order, parent_joints)


def _check_mimics(joints: dict[str, Joint], source: str) -> None:
    for joint in joints.values():
        followed, leader = [joint.name], joint
        while leader.mimic is not None:
            name = leader.mimic.joint
            if name not in joints:
                missing = f"mimics '{name}', which does not exist{near(name, joints)}"
                raise InputError(f"{source}: joint '{leader.name}' {missing}")
            if name in followed:
                raise InputError(f"{source}: joint '{joint.name}' mimics itself through {' -> '.join(followed)}")
            followed.append(name)
            leader = joints[name]
        if joint.mimic is not None and (joint.variables != 1 or leader.variables != 1):
            fault = f"joint '{joint.name}' ({joint.type}) cannot mimic '{leader.name}' ({leader.type})"
            raise InputError(f"{source}: {fault}; both need exactly one degree of freedom")
