"""How many degrees of freedom a mechanism has: counted after Gruebler and Kutzbach, and measured on its geometry in the
configuration that its description shows (docs/kinematics.md)."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.linalg import null_space
from scipy.sparse.csgraph import connected_components

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_text, read_yaml
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.kinematics import joint_columns, link_transforms
from stretch_sim_cal.robot.model import VARIABLES, Joint, RobotModel, near
from stretch_sim_cal.robot.sdf import WORLD, is_sdf, read_sdf_model
from stretch_sim_cal.validate import record

BASES = ("fixed", "mobile", "floating")  # how the root may move in the world: not, on a floor, anywhere
PLANAR_TYPES = ("fixed", "revolute", "continuous", "prismatic", "planar")
RANK_TOLERANCE = 1e-7
"""Singular values below this part of the largest one count as zero (lengths are scaled to the mechanism's size)."""


@dataclass(frozen=True)
class Mechanism:
    """Bodies (ground included, as `ground`) and the joints between them, in either order. The bodies have the root's
    frame in this configuration, so a joint's `parent_from_joint` is root_from_joint, NaN if it is not known."""

    name: str
    bodies: tuple[str, ...]
    ground: str
    joints: tuple[Joint, ...]

    @property
    def loops(self) -> int:
        return len(self.joints) - (len(self.bodies) - 1)

    @property
    def joint_freedom(self) -> int:
        return sum(joint.variables for joint in self.joints)


def _twists(joint: Joint) -> np.ndarray | None:
    """Return a joint's motions (6, freedom) as twists about the root's origin; None if its geometry is not known."""
    known = not np.isnan(joint.parent_from_joint).any()
    return joint_columns(joint, joint.parent_from_joint, np.zeros(3)) if known else None


def mechanism(name: str, bodies: Iterable[str], ground: str, joints: Iterable[Joint], source: str) -> Mechanism:
    """Return a connected mechanism. Raises `InputError` beginning with `source` for duplicate names, unknown bodies and
    joint types, and bodies that no joint connects to the ground."""
    found = Mechanism(name, tuple(bodies), ground, tuple(joints))
    for problem in _problems(found):
        raise InputError(f"{source}: {problem}")
    return found


def _problems(found: Mechanism) -> Iterator[str]:
    bodies, ground = found.bodies, found.ground
    for kind, names in (("link", bodies), ("joint", tuple(each.name for each in found.joints))):
        for twice in (name for index, name in enumerate(names) if name in names[:index]):
            yield f"two {kind}s are called '{twice}'; names must differ"
    if ground not in bodies:
        yield f"its ground '{ground}' is not a link{near(ground, bodies)}"
    for each in found.joints:
        if each.type not in VARIABLES:
            yield f"joint '{each.name}': type '{each.type}' is unknown; available: {', '.join(VARIABLES)}"
        for body in (each.parent, each.child):
            if body not in bodies:
                yield f"joint '{each.name}': link '{body}' does not exist{near(body, bodies)}"
        if each.parent == each.child:
            yield f"joint '{each.name}' connects link '{each.child}' to itself"
    ways = _incidence(found)
    part = connected_components(ways @ ways.T)[1]
    if lost := [body for body, own in zip(bodies, part, strict=True) if own != part[bodies.index(ground)]]:
        more = f" ({len(lost)} such links)" if len(lost) > 1 else ""
        yield f"no joint connects link '{lost[0]}' to the ground '{ground}'{more}; add one, or use a floating base"


def mechanism_of(model: RobotModel, base: str = "fixed") -> Mechanism:
    """Return a robot model at position zero as a mechanism, its root fixed to the ground, on a floor (`mobile`) or
    `floating`. Mimic joints have no freedom and count as fixed. Raises `InputError` for an unknown base."""
    frames = link_transforms(model)
    joints = [
        replace(joint, type="fixed" if joint.mimic else joint.type, parent_from_joint=frames[joint.child])
        for joint in model.joints.values()
    ]
    return with_base(mechanism(model.name, model.links, model.root, joints, f"robot '{model.name}'"), base)


def with_base(fixed: Mechanism, base: str) -> Mechanism:
    """Return a mechanism whose ground is fixed as one that drives on a floor (`mobile`) or flies (`floating`). Raises
    `InputError` for an unknown base, and for a mechanism that is joined to the world."""
    if base not in BASES:
        raise InputError(f"base '{base}' is unknown; available: {', '.join(BASES)}")
    if base == "fixed":
        return fixed
    if WORLD in fixed.bodies:
        raise InputError(f"'{fixed.name}' is joined to the {WORLD} already; it cannot have a {base} base as well")
    return Mechanism(fixed.name, (WORLD, *fixed.bodies), WORLD, (_moving_base(base, fixed.ground), *fixed.joints))


def _moving_base(base: str, ground: str) -> Joint:
    kind = "planar" if base == "mobile" else base
    return Joint(f"{base}_base", kind, WORLD, ground, np.eye(4), np.array([0.0, 0.0, 1.0]))


def load_mechanism(path: str | os.PathLike, base: str | None = None) -> tuple[Mechanism, str]:
    """Return the mechanism in an SDF or YAML file, and its dimension (spatial or planar). `base` (fixed, mobile,
    floating) overrides a YAML's; an SDF without a joint to the world floats. Raises `InputError` naming the file."""
    path = Path(path).expanduser()
    if path.suffix in (".yaml", ".yml"):
        return _from_yaml(path, base)
    model = read_sdf_model(path)
    joints = [replace(joint, parent_from_joint=model.model_from_joint(joint)) for joint in model.joints]
    if not any(WORLD in (joint.parent, joint.child) for joint in model.joints):
        joints.insert(0, _moving_base("floating", next(iter(model.links))))
    found = mechanism(model.name, (WORLD, *model.links), WORLD, joints, model.source)
    if base is not None:
        raise InputError(f"{path}: an SDF defines how its base moves (a joint to the world, or none)")
    return found, "spatial"


def is_tree_file(path: Path) -> bool:
    """Return whether a file is a URDF or xacro: neither a YAML nor an SDF."""
    return path.suffix not in (".yaml", ".yml") and not is_sdf(path, read_text(path))


Vector = tuple[float, float, float]


@dataclass(frozen=True)
class _WrittenJoint:
    name: str
    type: str
    parent: str
    child: str
    xyz: Vector | None = None
    rpy: Vector | None = None
    axis: Vector | None = None
    pitch: float = 0.0

    def joint(self, where: str) -> Joint:
        ends = self.name, self.type, self.parent, self.child
        if self.axis is not None and np.linalg.norm(self.axis) < 1e-9:
            raise InputError(f"{where}: axis: must not be zero")
        if self.xyz is None or self.axis is None and self.type not in ("fixed", "spherical", "floating"):
            return Joint(*ends, np.full((4, 4), np.nan), np.full(3, np.nan), pitch=self.pitch)
        frame = from_xyz_rpy(self.xyz, self.rpy or (0.0, 0.0, 0.0))
        # The file gives the axis in the ground's frame.
        axis = np.array([0.0, 0.0, 1.0]) if self.axis is None else frame[:3, :3].T @ self.axis
        return Joint(*ends, frame, axis, pitch=self.pitch)


@dataclass(frozen=True)
class _WrittenMechanism:
    links: tuple[str, ...]
    joints: tuple[_WrittenJoint, ...] = ()
    name: str | None = None
    ground: str | None = None
    dimension: Literal["spatial", "planar"] = "spatial"
    base: Literal["fixed", "mobile", "floating"] = "fixed"


def _from_yaml(path: Path, base: str | None) -> tuple[Mechanism, str]:
    written = record(_WrittenMechanism, read_yaml(path), str(path))
    if not written.links:
        raise InputError(f"{path}: links: expected a list of names")
    joints = [joint.joint(f"{path}: joints[{index}]") for index, joint in enumerate(written.joints)]
    ground = written.ground or written.links[0]
    found = mechanism(written.name or path.stem, written.links, ground, joints, str(path))
    return with_base(found, base or written.base), written.dimension


@dataclass(frozen=True)
class Mobility:
    """The result of `mobility`. `joint_freedom` is the sum of the joints' freedom. `spatial` and `planar` are the
    counts (None if some joint cannot move in a plane with the others), `count` that of the requested `dimension`.
    `measured` is the freedom by geometry, `redundant` how many constraints repeat others, both None if that is not
    known; `mobility` are the degrees of freedom, measured or else counted. `over_constrained`: constraints repeat
    others or, without geometry, are more than the freedom."""

    name: str
    links: int
    joints: int
    loops: int
    joint_freedom: int
    dimension: str
    spatial: int
    planar: int | None
    measured: int | None
    count: int
    mobility: int
    redundant: int | None
    over_constrained: bool

    @property
    def notes(self) -> list[str]:
        if self.loops == 0:
            return ["no closed loop: every joint moves freely"]
        notes = []
        if self.over_constrained:
            counted = f"over-constrained: the {self.dimension} count gives {self.count}, "
            repeat = "constraint repeats others" if self.redundant == 1 else "constraints repeat others"
            notes.append(counted + (
                f"but it moves with {self.measured}, because {self.redundant} {repeat}" if self.measured is not None
                else "more constraints than freedom; it can move only with special dimensions; give the joints xyz and "
                "axis to check"
            ))  # fmt: skip
        if self.dimension == "spatial" and self.planar is not None:
            notes.append(f"counted in a plane: {self.planar}")
        best = self.count if self.planar is None else max(self.planar, self.count)
        if self.measured is not None and self.measured > best:
            notes.append("measured in the configuration shown, which may be singular: elsewhere it may be less")
        if self.mobility == 0:
            notes.append("a structure: it does not move")
        return notes


def mobility(mechanism: Mechanism, dimension: str = "spatial") -> Mobility:
    """Return the mobility of a mechanism, counted in space or in a plane, in which a floating base has three degrees of
    freedom. Raises `InputError` for an unknown dimension, and for a mechanism that is not planar."""
    if dimension not in ("spatial", "planar"):
        raise InputError(f"dimension '{dimension}' is unknown; available: spatial, planar")
    flat = _base_in_plane(mechanism)
    unfit = _what_leaves_the_plane(flat.joints)
    if dimension == "planar" and unfit:
        raise InputError(f"'{mechanism.name}' is not planar: {unfit}")
    spatial = mechanism.joint_freedom - 6 * mechanism.loops
    planar = None if unfit else flat.joint_freedom - 3 * mechanism.loops
    counted, count = (flat, planar) if dimension == "planar" else (mechanism, spatial)
    rank = _closure_rank(counted)
    measured = None if rank is None else counted.joint_freedom - rank
    redundant = None if measured is None else measured - count
    return Mobility(
        mechanism.name, len(mechanism.bodies), len(mechanism.joints), mechanism.loops, counted.joint_freedom,
        dimension, spatial, planar, measured, count, mobility=count if measured is None else measured,
        redundant=redundant, over_constrained=count < 0 if redundant is None else redundant > 0,
    )  # fmt: skip


def _base_in_plane(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism with its floating base, if any, moving in the plane of the other joints only."""
    base = next((j for j in mechanism.joints if j.type == "floating" and WORLD in (j.parent, j.child)), None)
    if base is None:
        return mechanism
    normal = _normal(*_motions(joint for joint in mechanism.joints if joint is not base))
    # The base's frame may be turned, and the normal is known in the root's.
    frame = base.parent_from_joint if _twists(base) is not None else np.eye(4)
    axis = frame[:3, :3].T @ (np.array([0.0, 0.0, 1.0]) if normal is None else normal)
    moved = replace(base, type="planar", parent_from_joint=frame, axis=axis)
    return replace(mechanism, joints=tuple(moved if joint is base else joint for joint in mechanism.joints))


Motions = list[tuple[str, np.ndarray]]  # directions (3,) of joints, with their names


def _motions(joints: Iterable[Joint]) -> tuple[Motions, Motions]:
    """Return the known directions about which joints turn, and along which they slide."""
    turns: Motions = []
    slides: Motions = []
    for joint in joints:
        twists = _twists(joint)
        for twist in twists.T if twists is not None else ():
            kind, way = (turns, twist[3:]) if twist[3:].any() else (slides, twist[:3])
            kind.append((joint.name, way))
    return turns, slides


def _normal(turns: Motions, slides: Motions) -> np.ndarray | None:
    """Return the normal (3,) of the only plane in which joints can move; None if it is not determined."""
    if turns:
        return turns[0][1]
    if len(slides) > 1:
        return np.linalg.svd(np.array([slide for _, slide in slides]))[2][-1]
    return None


def _what_leaves_the_plane(joints: tuple[Joint, ...]) -> str:
    """Return why a mechanism is not planar; empty if it is, or may be."""
    for joint in joints:
        if joint.type not in PLANAR_TYPES:
            return f"joint '{joint.name}' is {joint.type}"
    turns, slides = _motions(joints)
    normal = _normal(turns, slides)
    if normal is None:
        return ""
    for name, turn in turns:
        if np.linalg.norm(np.cross(normal, turn)) > 1e-6:
            return f"joint '{name}' does not turn about the same direction as '{turns[0][0]}'"
    for name, slide in slides:
        if abs(normal @ slide) > 1e-6:
            return f"joint '{name}' slides out of the plane"
    return ""


def _closure_rank(mechanism: Mechanism) -> int | None:
    """Return the rank of the closure equations (twists around a loop sum to zero); None without geometry."""
    twists = [_twists(joint) for joint in mechanism.joints]
    if any(twist is None for twist in twists):
        return None
    # Each column is a loop: the factor by which it passes through each joint, exactly 0 for joints beside all loops.
    loops = null_space(_incidence(mechanism)).round(12)
    equations = np.hstack([np.kron(ways[:, None], twist) for ways, twist in zip(loops, twists, strict=True)] or [loops])
    if not equations.size:
        return 0
    size = max(np.abs(each.parent_from_joint[:3, 3]).max() for each in mechanism.joints) or 1.0
    equations.reshape(loops.shape[1], 6, -1)[:, :3] /= size
    values = np.linalg.svd(equations, compute_uv=False)
    return int((values > RANK_TOLERANCE * max(values[0], 1e-300)).sum())


def _incidence(mechanism: Mechanism) -> np.ndarray:
    """Return a matrix (bodies, joints): of each joint -1 at its parent, 1 at its child."""
    incidence = np.zeros((len(mechanism.bodies), len(mechanism.joints)))
    for column, joint in enumerate(mechanism.joints):
        for body, sign in ((joint.parent, -1.0), (joint.child, 1.0)):
            incidence[mechanism.bodies.index(body), column] = sign
    return incidence
