"""How many degrees of freedom a mechanism has: counted after Gruebler and Kutzbach, and measured on its geometry.

The count M = d (n - 1) - sum(d - f_i), for n bodies with the ground and joints of freedom f_i, d = 6 in space and 3 in
a plane, is the sum of f_i minus d for every closed loop. It takes all loops' constraints for independent; where they
are not, the mechanism is over-constrained and moves although the count says otherwise. So where the joints' poses are
known the rank of the loops' closure equations is measured, in the configuration that the description shows.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.mechanism import WORLD, Connection, Mechanism

PLANAR_TYPES = ("fixed", "revolute", "continuous", "prismatic", "planar")
RANK_TOLERANCE = 1e-7
"""Singular values below this part of the largest one count as zero (lengths are scaled to the mechanism's size)."""


@dataclass(frozen=True)
class Mobility:
    """What `mobility` found.

    `joint_freedom` is the sum of the joints' freedom. `spatial` and `planar` are the counts; `planar` is None where
    some joint cannot move in one plane with the others. `dimension` is the count that was asked for. `measured` is the
    freedom that the geometry leaves, None where that is not known. `notes` are sentences for the user.
    """

    name: str
    links: int
    joints: int
    loops: int
    joint_freedom: int
    dimension: str
    spatial: int
    planar: int | None
    measured: int | None
    notes: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The count in the dimension that was asked for."""
        return self.planar if self.dimension == "planar" and self.planar is not None else self.spatial

    @property
    def mobility(self) -> int:
        """The degrees of freedom: measured where the geometry is known, counted otherwise."""
        return self.count if self.measured is None else self.measured

    @property
    def redundant(self) -> int | None:
        """How many constraints repeat others; None where the geometry is not known."""
        return None if self.measured is None else self.measured - self.count

    @property
    def over_constrained(self) -> bool:
        """Whether constraints repeat others; without geometry, whether there are more constraints than freedom."""
        return self.count < 0 if self.redundant is None else self.redundant > 0


def mobility(mechanism: Mechanism, dimension: str = "spatial") -> Mobility:
    """Return the mobility of a mechanism, counted in space or in a plane.

    In a plane a floating base has three degrees of freedom: it moves in the plane of the other joints. Raises `InputError` for an unknown dimension, and where a mechanism that is to be counted in a plane cannot be.
    """
    if dimension not in ("spatial", "planar"):
        raise InputError(f"dimension '{dimension}' is not known; there is spatial, planar")
    spatial = sum(connection.freedom for connection in mechanism.connections)
    flat = _base_in_plane(mechanism)
    planar = sum(connection.freedom for connection in flat.connections)
    unfit = _what_leaves_the_plane(flat.connections)
    if dimension == "planar" and unfit:
        raise InputError(f"'{mechanism.name}' is not planar: {unfit}")
    counted, freedom = (flat, planar) if dimension == "planar" else (mechanism, spatial)
    rank = _closure_rank(counted)
    found = Mobility(
        name=mechanism.name,
        links=len(mechanism.bodies),
        joints=len(mechanism.connections),
        loops=mechanism.loops,
        joint_freedom=freedom,
        dimension=dimension,
        spatial=spatial - 6 * mechanism.loops,
        planar=None if unfit else planar - 3 * mechanism.loops,
        measured=None if rank is None else freedom - rank,
    )
    found.notes.extend(_notes(found))
    return found


def _notes(found: Mobility) -> list[str]:
    if found.loops == 0:
        return ["no closed loop: every joint moves freely"]
    notes = []
    if found.over_constrained and found.measured is not None:
        notes.append(
            f"over-constrained: the {found.dimension} count gives {found.count}, yet it moves with {found.measured}, "
            f"because {found.redundant} constraint{'s repeat others' if found.redundant != 1 else ' repeats others'}"
        )
    elif found.over_constrained:
        notes.append(
            f"over-constrained: the {found.dimension} count gives {found.count}, more constraints than freedom; if it "
            "moves, then because of special dimensions, which joints with xyz and axis would show"
        )
    if found.dimension == "spatial" and found.planar is not None:
        notes.append(f"counted in a plane: {found.planar}")
    best = found.count if found.planar is None else max(found.planar, found.count)
    if found.measured is not None and found.measured > best:
        notes.append("measured in the configuration shown, which may be singular: elsewhere it may be less")
    if found.mobility == 0:
        notes.append("a structure: it does not move")
    return notes


def _base_in_plane(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism with its floating base, if it has one, moving in the plane of the other joints only."""
    base = next((c for c in mechanism.connections if c.type == "floating" and WORLD in (c.parent, c.child)), None)
    if base is None:
        return mechanism
    others = tuple(connection for connection in mechanism.connections if connection is not base)
    turns, slides = _motions(others)
    normal = _normal(turns, slides)
    # The base's frame may be turned, and the normal is known in the root's.
    frame = np.eye(4) if base.root_from_joint is None else base.root_from_joint
    axis = frame[:3, :3].T @ (np.array([0.0, 0.0, 1.0]) if normal is None else normal)
    moved = replace(base, type="planar", root_from_joint=frame, axis=axis)
    return replace(mechanism, connections=tuple(moved if c is base else c for c in mechanism.connections))


Motions = list[tuple[str, np.ndarray]]
"""Directions (3,) of joints, with their names."""


def _motions(connections: tuple[Connection, ...]) -> tuple[Motions, Motions]:
    """Return the directions about which joints turn, and along which they slide, as far as they are known."""
    turns: Motions = []
    slides: Motions = []
    for connection in connections:
        twists = connection.twists()
        for twist in twists.T if twists is not None else ():
            about = twist[3:]
            (turns if about.any() else slides).append((connection.name, about if about.any() else twist[:3]))
    return turns, slides


def _normal(turns: Motions, slides: Motions) -> np.ndarray | None:
    """Return the normal (3,) of the only plane in which joints can move; None where nothing tells it."""
    if turns:
        return turns[0][1]
    if len(slides) > 1:
        return np.linalg.svd(np.array([slide for _, slide in slides]))[2][-1]
    return None


def _what_leaves_the_plane(connections: tuple[Connection, ...]) -> str:
    """Return what keeps a mechanism from moving in parallel planes only; nothing where it does, or may."""
    for connection in connections:
        if connection.type not in PLANAR_TYPES:
            return f"joint '{connection.name}' is {connection.type}"
    turns, slides = _motions(connections)
    normal = _normal(turns, slides)
    if normal is None:
        return ""
    for name, turn in turns:
        if np.linalg.norm(np.cross(normal, turn)) > 1e-6:
            return f"joint '{name}' turns about another direction than '{turns[0][0]}'"
    for name, slide in slides:
        if abs(normal @ slide) > 1e-6:
            return f"joint '{name}' slides out of the plane"
    return ""


def _closure_rank(mechanism: Mechanism) -> int | None:
    """Return the rank of the loops' closure equations; None where a joint's geometry is not known.

    Around every loop the joints' twists add up to nothing. The loops are those that each joint outside a spanning tree
    closes.
    """
    twists = {connection.name: connection.twists() for connection in mechanism.connections}
    if any(twist is None for twist in twists.values()):
        return None
    up, chords = _spanning_tree(mechanism)
    columns, total = {}, 0
    for name, twist in twists.items():
        columns[name] = slice(total, total + twist.shape[1])
        total += twist.shape[1]
    equations = np.zeros((6 * len(chords), total))
    for index, chord in enumerate(chords):
        rows = slice(6 * index, 6 * index + 6)
        for connection, sign in _loop(chord, up):
            equations[rows, columns[connection.name]] += sign * twists[connection.name]
    if not chords or not total:
        return 0
    size = max((np.abs(c.root_from_joint[:3, 3]).max() for c in mechanism.connections), default=0.0) or 1.0
    equations.reshape(len(chords), 6, total)[:, :3] /= size
    values = np.linalg.svd(equations, compute_uv=False)
    return int((values > RANK_TOLERANCE * max(values[0], 1e-300)).sum()) if values[0] > 0 else 0


def _spanning_tree(mechanism: Mechanism) -> tuple[dict[str, Connection], list[Connection]]:
    """Return the joint that leads from each body but the ground towards it, and the joints that this leaves over."""
    up: dict[str, Connection] = {}
    reached, used = [mechanism.ground], set()
    for body in reached:
        for connection in mechanism.connections:
            if connection.name in used or body not in (connection.parent, connection.child):
                continue
            other = connection.child if connection.parent == body else connection.parent
            if other not in reached:
                up[other] = connection
                used.add(connection.name)
                reached.append(other)
    return up, [connection for connection in mechanism.connections if connection.name not in used]


def _loop(chord: Connection, up: dict[str, Connection]) -> list[tuple[Connection, int]]:
    """Return the joints around the loop that a chord closes, each with the sign of its direction."""
    loop = [(chord, 1)]
    # Up from the child to the ground, and down again to the parent; what both ways share cancels out.
    for body, way in ((chord.child, -1), (chord.parent, 1)):
        while body in up:
            connection = up[body]
            loop.append((connection, way if connection.child == body else -way))
            body = connection.parent if connection.child == body else connection.child
    return loop
