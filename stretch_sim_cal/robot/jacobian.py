"""The geometric Jacobian, and the configuration space that it is over."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.kinematics import Positions, checked_positions, link_transforms, plane_directions
from stretch_sim_cal.robot.mechanism import BASES
from stretch_sim_cal.robot.model import Joint, RobotModel, near

TRANSLATION, TURN, ANGLE = "translation", "unlimited turn", "angle"
PARTS = {"planar": ("x", "y", "angle"), "spherical": ("roll", "pitch", "yaw")}
PARTS["floating"] = ("x", "y", "z", *PARTS["spherical"])


@dataclass(frozen=True)
class Variable:
    """One axis of the configuration space. `kind` is translation (m), angle or unlimited turn (rad); unlimited
    translations have infinite bounds, unlimited turns -pi to pi."""

    name: str
    joint: str
    kind: str
    lower: float
    upper: float


def configuration_space(model: RobotModel, base: str = "fixed") -> list[Variable]:
    """Return the axes of a robot's configuration space, a mobile base's x, y, angle or a floating base's six first.

    The dimension is their number; joints that mimic others add none. Raises `InputError` for an unknown base.
    """
    if base not in BASES:
        raise InputError(f"base '{base}' is not known{near(base, BASES)}")
    variables = []
    if base != "fixed":
        variables += _unbounded("base", "planar" if base == "mobile" else "floating")
    for joint in model.moving_joints():
        variables += _variables(joint)
    return variables


def jacobian(model: RobotModel, positions: Positions, link: str) -> tuple[np.ndarray, list[Variable]]:
    """Return the Jacobian (..., 6, n) of a link's frame, and the n variables that its columns belong to.

    A column is the velocity of the link's origin and its angular velocity, (tx, ty, tz, rx, ry, rz) in the root's
    frame, per unit velocity of one number of a joint's position (of planar, spherical and floating joints all of
    theirs). Only joints above the link have columns; a mimic joint adds to the column of the joint it follows, unless
    a position of its own is given. Raises `InputError` as `link_transforms` does.
    """
    chain = [joint for joint in model.chain(model.checked_link(link)) if joint.variables]
    values, shape = checked_positions(model, positions)
    frames = link_transforms(model, positions, [link, *(joint.child for joint in chain)])
    tip = frames[link][..., :3, 3]
    columns: dict[str, np.ndarray] = {}
    for joint in chain:
        leader, ratio = _leader(model, joint, values)
        own = _columns(joint, frames[joint.child], tip, values.get(joint.name), shape)
        columns[leader] = columns.get(leader, 0.0) + ratio * own
    variables = [variable for name in columns for variable in _variables(model.joints[name])]
    if not columns:
        return np.zeros((*shape, 6, 0)), []
    return np.concatenate(list(columns.values()), axis=-1), variables


def relative_jacobian(
    model: RobotModel, positions: Positions, link: str, relative_to: str
) -> tuple[np.ndarray, list[Variable]]:
    """Return the Jacobian (..., 6, n) of a link's frame as seen from another frame that may move itself, and the n
    variables that its columns belong to.

    A column is the velocity of the link's origin and its angular velocity in and against the frame `relative_to`, per
    unit velocity of one number of a joint's position. Raises `InputError` as `link_transforms` does.
    """
    frames = link_transforms(model, positions, [link, relative_to])
    apart = frames[link][..., :3, 3] - frames[relative_to][..., :3, 3]
    columns: dict[str, np.ndarray] = {}
    variables: dict[str, Variable] = {}
    for frame, sign in ((link, 1.0), (relative_to, -1.0)):
        own, own_variables = jacobian(model, positions, frame)
        for index, variable in enumerate(own_variables):
            column = own[..., index]
            if sign < 0:
                # What hangs on the turning frame moves with it.
                carried = column[..., :3] + np.cross(column[..., 3:], apart)
                column = np.concatenate([carried, column[..., 3:]], axis=-1)
            variables[variable.name] = variable
            columns[variable.name] = columns.get(variable.name, 0.0) + sign * column
    into = np.swapaxes(frames[relative_to][..., :3, :3], -1, -2)
    turned = [
        np.concatenate([np.einsum("...ij,...j->...i", into, part) for part in (column[..., :3], column[..., 3:])], -1)
        for column in columns.values()
    ]
    if not turned:
        return np.zeros((*apart.shape[:-1], 6, 0)), []
    return np.stack(turned, axis=-1), list(variables.values())


def _columns(
    joint: Joint, root_from_child: np.ndarray, tip: np.ndarray, position: np.ndarray | None, shape: tuple[int, ...]
) -> np.ndarray:
    """Return the columns (..., 6, variables) of one joint, from where its child is now."""
    rotation, origin = root_from_child[..., :3, :3], root_from_child[..., :3, 3]

    def turn(axis: np.ndarray) -> np.ndarray:
        about = np.einsum("...ij,...j->...i", rotation, axis)
        return np.concatenate([np.cross(about, tip - origin), about], axis=-1)

    def slide(axis: np.ndarray) -> np.ndarray:
        along = np.einsum("...ij,...j->...i", rotation, axis)
        return np.concatenate([along, np.zeros_like(along)], axis=-1)

    numbers = np.zeros((*shape, joint.variables))
    if position is not None and joint.variables > 1:
        numbers = np.broadcast_to(position, numbers.shape)
    axis = joint.unit_axis if np.any(joint.axis) else None
    match joint.type:
        case "revolute" | "continuous":
            columns = [turn(axis)]
        case "prismatic":
            columns = [slide(axis)]
        case "helical":
            columns = [turn(axis) + slide(joint.pitch * axis)]
        case "planar":
            # The plane's directions do not turn with the child, so they are turned back into its frame.
            columns = [*map(slide, _turned_back(axis, numbers[..., 2])), turn(axis)]
        case "spherical":
            columns = list(map(turn, _rates(numbers)[1]))
        case "floating":
            into_child, axes = _rates(numbers[..., 3:])
            columns = [*(slide(into_child[..., :, i]) for i in range(3)), *map(turn, axes)]
    return np.stack([np.broadcast_to(column, (*shape, 6)) for column in columns], axis=-1)


def _turned_back(normal: np.ndarray, angle: np.ndarray) -> list[np.ndarray]:
    first, second = plane_directions(normal)
    cosine, sine = np.cos(angle)[..., None], np.sin(angle)[..., None]
    return [cosine * first - sine * second, sine * first + cosine * second]


def _rates(angles: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return child_from_reference (..., 3, 3) of roll, pitch, yaw (..., 3), and the axes, in the child's frame, that
    their rates turn about."""
    roll, pitch = angles[..., 0], angles[..., 1]
    flat = Rotation.from_euler("xyz", angles.reshape(-1, 3)).as_matrix()
    into_child = np.swapaxes(flat, -1, -2).reshape(*angles.shape[:-1], 3, 3)
    zero, one = np.zeros_like(roll), np.ones_like(roll)
    about_x = np.stack([one, zero, zero], axis=-1)
    about_y = np.stack([zero, np.cos(roll), -np.sin(roll)], axis=-1)
    about_z = np.stack([-np.sin(pitch), np.cos(pitch) * np.sin(roll), np.cos(pitch) * np.cos(roll)], axis=-1)
    return into_child, [about_x, about_y, about_z]


def _leader(model: RobotModel, joint: Joint, values: dict[str, np.ndarray]) -> tuple[str, float]:
    """Return the joint whose position moves this one, and how fast."""
    ratio = 1.0
    while joint.mimic is not None and joint.name not in values:
        ratio *= joint.mimic.multiplier
        joint = model.joints[joint.mimic.joint]
    return joint.name, ratio


def _variables(joint: Joint) -> list[Variable]:
    if joint.variables > 1:
        return _unbounded(joint.name, joint.type)
    kind = TRANSLATION if joint.type == "prismatic" else ANGLE
    if joint.type != "continuous" and joint.limit is not None:
        return [Variable(joint.name, joint.name, kind, joint.limit.lower, joint.limit.upper)]
    return [_free(joint.name, joint.name, kind)]


def _unbounded(name: str, kind: str) -> list[Variable]:
    parts = PARTS[kind]
    return [_free(f"{name}.{part}", name, TRANSLATION if part in ("x", "y", "z") else ANGLE) for part in parts]


def _free(name: str, joint: str, kind: str) -> Variable:
    if kind == TRANSLATION:
        return Variable(name, joint, TRANSLATION, -np.inf, np.inf)
    return Variable(name, joint, TURN, -np.pi, np.pi)
