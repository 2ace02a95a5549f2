"""A mechanism as bodies and joints, loops allowed: what mobility is counted on.

A body called `WORLD` is the ground. Geometry is optional: the joints of a hand-written mechanism need no poses to be
counted, those of a description have them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import skew
from stretch_sim_cal.robot.kinematics import link_transforms, plane_directions
from stretch_sim_cal.robot.model import VARIABLES, Joint, RobotModel, near

WORLD = "world"
"""The ground, as SDF calls it."""
BASES = {"fixed": 0, "mobile": 3, "floating": 6}
"""How a robot's root may move in the world, and with how many degrees of freedom: bolted down, on a floor, anywhere."""


@dataclass(frozen=True)
class Connection:
    """A joint between two bodies, in either order. `root_from_joint` (4, 4) and `axis` (3,) in the joint's frame are
    None where the geometry is not known; `pitch` (m/rad) is of helical joints."""

    name: str
    type: str
    parent: str
    child: str
    root_from_joint: np.ndarray | None = None
    axis: np.ndarray | None = None
    pitch: float = 0.0

    @property
    def freedom(self) -> int:
        """The degrees of freedom that the joint leaves."""
        return VARIABLES[self.type]

    def twists(self) -> np.ndarray | None:
        """Return the motions (6, freedom) that the joint allows as twists (tx, ty, tz, rx, ry, rz) about the root's
        origin; None where its geometry is not known."""
        if self.root_from_joint is None or self.axis is None:
            return None
        return joint_twists(self.type, self.root_from_joint, self.axis, self.pitch)


@dataclass(frozen=True)
class Mechanism:
    """Bodies (ground included, as `ground`) and the joints between them."""

    name: str
    bodies: tuple[str, ...]
    ground: str
    connections: tuple[Connection, ...]

    @property
    def loops(self) -> int:
        """The number of independent closed loops."""
        return len(self.connections) - (len(self.bodies) - 1)


def mechanism(
    name: str, bodies: Iterable[str], ground: str, connections: Iterable[Connection], source: str
) -> Mechanism:
    """Return the mechanism after checking that it hangs together.

    Raises `InputError` beginning with `source` for names used twice, unknown bodies and joint types, and bodies that no
    joint connects to the ground.
    """
    bodies, connections = tuple(bodies), tuple(connections)
    for kind, names in (("link", bodies), ("joint", tuple(c.name for c in connections))):
        twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if twice is not None:
            raise InputError(f"{source}: two {kind}s are called '{twice}'; names must differ")
    if ground not in bodies:
        raise InputError(f"{source}: its ground '{ground}' is no link{near(ground, bodies)}")
    neighbours: dict[str, set[str]] = {body: set() for body in bodies}
    for connection in connections:
        if connection.type not in VARIABLES:
            raise InputError(
                f"{source}: joint '{connection.name}': type '{connection.type}' is not known; there is "
                f"{', '.join(VARIABLES)}"
            )
        for body in (connection.parent, connection.child):
            if body not in neighbours:
                raise InputError(
                    f"{source}: joint '{connection.name}': link '{body}' does not exist{near(body, bodies)}"
                )
        if connection.parent == connection.child:
            raise InputError(f"{source}: joint '{connection.name}' connects link '{connection.child}' to itself")
        neighbours[connection.parent].add(connection.child)
        neighbours[connection.child].add(connection.parent)
    reached, waiting = {ground}, [ground]
    while waiting:
        for body in neighbours[waiting.pop()] - reached:
            reached.add(body)
            waiting.append(body)
    lost = [body for body in bodies if body not in reached]
    if lost:
        raise InputError(
            f"{source}: no joint connects link '{lost[0]}' to the ground '{ground}'"
            f"{f' ({len(lost)} such links)' if len(lost) > 1 else ''}; give it one, or a floating base"
        )
    return Mechanism(name, bodies, ground, connections)


def mechanism_of(model: RobotModel, base: str = "fixed") -> Mechanism:
    """Return a robot model as a mechanism, its root bolted to the ground, on a floor (`mobile`) or `floating`.

    Joints that mimic others have no freedom of their own and count as fixed. Geometry is that of position zero.
    Raises `InputError` for an unknown base.
    """
    frames = link_transforms(model)
    connections = [
        Connection(
            joint.name,
            "fixed" if joint.mimic else joint.type,
            joint.parent,
            joint.child,
            frames[joint.child],
            _usable_axis(joint),
            joint.pitch,
        )
        for joint in model.joints.values()
    ]
    return with_base(mechanism(model.name, model.links, model.root, connections, f"robot '{model.name}'"), base)


def with_base(fixed: Mechanism, base: str) -> Mechanism:
    """Return a mechanism whose ground is bolted down as one that drives on a floor (`mobile`) or flies (`floating`).

    Raises `InputError` for an unknown base, and for a mechanism that is bolted to the world by its own joints.
    """
    if base not in BASES:
        raise InputError(f"base '{base}' is not known; there is {', '.join(BASES)}")
    if base == "fixed":
        return fixed
    if WORLD in fixed.bodies:
        raise InputError(f"'{fixed.name}' is joined to the {WORLD} already; it cannot have a {base} base as well")
    kind = {"mobile": "planar", "floating": "floating"}[base]
    moving = Connection(f"{base}_base", kind, WORLD, fixed.ground, np.eye(4), np.array([0.0, 0.0, 1.0]))
    return Mechanism(fixed.name, (WORLD, *fixed.bodies), WORLD, (moving, *fixed.connections))


def joint_twists(kind: str, root_from_joint: np.ndarray, axis: np.ndarray, pitch: float = 0.0) -> np.ndarray:
    """Return the motions (6, freedom) that a joint allows, as twists (tx, ty, tz, rx, ry, rz) in the root's frame.

    A twist's translation is the velocity of the point of the body that is at the root's origin.
    """
    rotation, origin = root_from_joint[:3, :3], root_from_joint[:3, 3]
    unit = axis / np.linalg.norm(axis) if np.any(axis) else np.array([1.0, 0.0, 0.0])
    direction = rotation @ unit

    def turn(about: np.ndarray) -> np.ndarray:
        return np.concatenate([skew(origin) @ about, about])

    def slide(along: np.ndarray) -> np.ndarray:
        return np.concatenate([along, np.zeros(3)])

    match kind:
        case "fixed":
            columns = []
        case "revolute" | "continuous":
            columns = [turn(direction)]
        case "prismatic":
            columns = [slide(direction)]
        case "helical":
            columns = [turn(direction) + slide(pitch * direction)]
        case "planar":
            columns = [*(slide(rotation @ row) for row in plane_directions(unit)), turn(direction)]
        case "spherical":
            columns = [turn(column) for column in rotation.T]
        case "floating":
            columns = [*(slide(column) for column in rotation.T), *(turn(column) for column in rotation.T)]
        case _:
            raise InputError(f"joint type '{kind}' is not known; there is {', '.join(VARIABLES)}")
    return np.array(columns).T.reshape(6, len(columns))


def _usable_axis(joint: Joint) -> np.ndarray:
    return joint.axis if np.any(joint.axis) else np.array([1.0, 0.0, 0.0])
