"""Forward kinematics and the geometric Jacobian, for one configuration or N at once. A position is a number (m, rad),
of planar joints x, y, angle; of spherical ones roll, pitch, yaw; of floating ones x, y, z, roll, pitch, yaw."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import inverse, skew
from stretch_sim_cal.robot.model import Joint, Limit, RobotModel

Positions = Mapping[str, ArrayLike]
TRANSLATION, TURN, ANGLE = "translation", "unlimited turn", "angle"
PARTS = {"planar": ("x", "y", "angle"), "spherical": ("roll", "pitch", "yaw")}
PARTS["floating"] = ("x", "y", "z", *PARTS["spherical"])


def link_transforms(
    model: RobotModel, positions: Positions | None = None, links: Iterable[str] | None = None,
    relative_to: str | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return `relative_to_from_link` (..., 4, 4), by default `root_from_link`, of `links`, or all, at joint positions.

    `positions` are numbers or arrays that broadcast to one shape (...,). Other joints are at 0, or follow the joint
    they mimic; a position given for a mimic joint counts. Limits are not applied. Links that do not move among the
    configurations come as read-only views. Raises `InputError` for unknown joints or links, fixed joints, wrong shapes,
    and numbers that are not finite."""
    wanted = list(model.order) if links is None else [model.checked_link(link) for link in links]
    values, shape = checked_positions(model, positions or {})
    ends = wanted if relative_to is None else [*wanted, model.checked_link(relative_to)]
    needed = model.links if links is None else {joint.child for link in ends for joint in model.chain(link)}
    frames = {model.root: np.eye(4)}
    for link in model.order[1:]:
        if link in needed:
            joint = model.parent_joints[link]
            frames[link] = frames[joint.parent] @ joint_transform(joint, position_of(model, joint, values))
    if relative_to is not None:
        back = inverse(frames[relative_to])
        frames = {link: back @ frames[link] for link in wanted}
    return {link: np.broadcast_to(frames[link], (*shape, 4, 4)) for link in wanted}


def link_transform(model: RobotModel, positions: Positions, link: str, relative_to: str | None = None) -> np.ndarray:
    """Return `relative_to_from_link` (..., 4, 4), by default relative to the root, as `link_transforms`."""
    return link_transforms(model, positions, [link], relative_to)[link]


def joint_transform(joint: Joint, position: np.ndarray | None) -> np.ndarray:
    """Return `parent_from_child` (..., 4, 4) at a position (None: zero)."""
    if position is None or joint.variables == 0:
        return joint.parent_from_joint
    return joint.parent_from_joint @ joint_motion(joint, position)


def joint_motion(joint: Joint, position: np.ndarray) -> np.ndarray:
    """Return the motion (..., 4, 4) of the child's frame from position zero, in that frame."""
    numbers = position[..., None] if joint.variables == 1 else position
    motion = np.zeros((*numbers.shape[:-1], 4, 4))
    turn = None
    for number, turns, axis in _elements(joint):
        value = numbers[..., number]
        if turns:
            turn = _about(axis, value) if turn is None else turn @ _about(axis, value)
        if not turns or joint.type == "helical":
            motion[..., :3, 3] += (joint.pitch * value if turns else value)[..., None] * axis
    motion[..., :3, :3] = np.eye(3) if turn is None else turn
    motion[..., 3, 3] = 1.0
    return motion


def _elements(joint: Joint) -> list[tuple[int, bool, np.ndarray]]:
    """Return the motions that a joint is made of, in their order: the number in its position, whether it turns, and the
    axis (3,). A helical joint slides along its axis as well."""
    (x, y, z), axis = np.eye(3), joint.unit_axis if np.any(joint.axis) else None
    match joint.type:
        case "fixed":
            return []
        case "planar":
            across, up = plane_directions(axis)
            return [(0, False, across), (1, False, up), (2, True, axis)]
        case "spherical":
            return [(2, True, z), (1, True, y), (0, True, x)]
        case "floating":
            return [(0, False, x), (1, False, y), (2, False, z), (5, True, z), (4, True, y), (3, True, x)]
    return [(0, joint.type != "prismatic", axis)]


def _about(axis: np.ndarray, angle: np.ndarray) -> np.ndarray:
    across = skew(axis)  # Rodrigues' formula: many times as fast for a few angles as a Rotation
    sine, cosine = np.sin(angle)[..., None, None], np.cos(angle)[..., None, None]
    return np.eye(3) + sine * across + (1.0 - cosine) * (across @ across)


def plane_directions(normal: np.ndarray) -> np.ndarray:
    """Return rows (2, 3) that span the plane of a unit normal, the convention of planar joints: x and y turned with z
    the shortest way to it; x and -y for -z."""
    x, y, z = normal
    across = x * x + y * y
    if z < 0 and across < 1e-300:
        return np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    # Both are 1 / (1 + z); near -z that sum would lose every digit.
    scale = 1.0 / (1.0 + z) if z >= 0 else (1.0 - z) / across
    return np.array([[1.0 - x * x * scale, -x * y * scale, -x], [-x * y * scale, 1.0 - y * y * scale, -y]])


def checked_positions(model: RobotModel, positions: Positions) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
    """Return positions as float arrays, and the common shape (...,). Raises `InputError` as `link_transforms`."""
    values: dict[str, np.ndarray] = {}
    shapes = []
    for name, position in positions.items():
        joint = model.checked_joint(name)
        if joint.variables == 0:
            raise InputError(f"joint '{name}' of robot '{model.name}' is fixed and has no position")
        try:
            values[name] = value = np.asarray(position, dtype=float)
        except (TypeError, ValueError) as error:
            raise InputError(f"joint '{name}': its position is not a number or an array of numbers") from error
        own = value.shape[-1:] if joint.variables > 1 else ()
        if joint.variables > 1 and own != (joint.variables,):
            takes = f"takes {joint.variables} numbers per configuration, got an array of shape {value.shape}"
            raise InputError(f"joint '{name}' ({joint.type}) {takes}")
        if not np.isfinite(value).all():
            raise InputError(f"joint '{name}': its position is not finite")
        shapes.append(value.shape[: value.ndim - len(own)])
    try:
        return values, np.broadcast_shapes(*shapes)
    except ValueError as error:
        listed = ", ".join(map(str, shapes))
        raise InputError(f"the joints' positions cannot be broadcast together: {listed}") from error


def _leader(model: RobotModel, joint: Joint, values: Mapping[str, np.ndarray]) -> tuple[str, float, float]:
    """Return the joint that a joint finally mimics (itself without), multiplier and offset."""
    multiplier, offset = 1.0, 0.0
    while joint.name not in values and joint.mimic is not None:
        offset += multiplier * joint.mimic.offset
        multiplier *= joint.mimic.multiplier
        joint = model.joints[joint.mimic.joint]
    return joint.name, multiplier, offset


def position_of(model: RobotModel, joint: Joint, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Return a joint's position as given, or by the joint that it mimics; None if neither is given."""
    leader, multiplier, offset = _leader(model, joint, values)
    value = values.get(leader)
    if (multiplier, offset) == (1.0, 0.0):
        return value
    return np.asarray(offset if value is None else multiplier * value + offset)


@dataclass(frozen=True)
class Variable:
    """One axis of the configuration space. `kind`: translation (m), angle (rad) or unlimited turn (rad, -pi to pi)."""

    name: str
    joint: str
    kind: str
    lower: float
    upper: float


def configuration_space(model: RobotModel, base: str = "fixed") -> list[Variable]:
    """Return the axes of a robot's configuration space, those of its `base` ("fixed", "mobile" or "floating") first.
    Mimic joints add none."""
    joints = [(joint.name, joint.type, joint.limit) for joint in model.moving_joints()]
    if base != "fixed":
        joints.insert(0, ("base", "planar" if base == "mobile" else "floating", None))
    return [variable for joint in joints for variable in _variables(*joint)]


def random_positions(model: RobotModel, count: int, seed: int) -> dict[str, np.ndarray]:
    """Return `count` random positions (count,) of every joint with one degree of freedom of its own, within its limits
    or -pi to pi."""
    single = [variable for variable in configuration_space(model) if model.joints[variable.joint].variables == 1]
    low, high = np.array([(variable.lower, variable.upper) for variable in single]).reshape(-1, 2).T
    low, high = np.where(np.isfinite(low), low, -np.pi), np.where(np.isfinite(high), high, np.pi)
    drawn = np.random.default_rng(seed).uniform(low, high, (count, len(single)))
    return {variable.joint: column for variable, column in zip(single, drawn.T, strict=True)}


def jacobian(
    model: RobotModel, positions: Positions, link: str, relative_to: str | None = None
) -> tuple[np.ndarray, list[Variable]]:
    """Return the Jacobian (..., 6, n) of a link's frame in another one (by default the root), which may move, and its n
    variables.

    A column is the velocity of the link's origin and its angular velocity, relative to and in `relative_to`, per unit
    velocity of one number of a position. Only joints between the two have columns; a mimic joint adds to that of the
    joint it follows, unless it has a position. Raises as `link_transforms` does."""
    relative_to = model.root if relative_to is None else relative_to
    between = model.between(model.checked_link(link), model.checked_link(relative_to))
    values, shape = checked_positions(model, positions)
    frames = link_transforms(model, positions, [link, relative_to, *(joint.child for joint in between)])
    above, columns = {joint.name for joint in model.chain(link)}, {}
    for joint in between:
        if joint.variables:
            leader, ratio, _ = _leader(model, joint, values)
            own = joint_columns(joint, frames[joint.child], frames[link][..., :3, 3], values.get(joint.name), shape)
            # A joint that moves the other frame moves the link the other way as seen from there.
            columns[leader] = columns.get(leader, 0.0) + (ratio if joint.name in above else -ratio) * own
    if not columns:
        return np.zeros((*shape, 6, 0)), []
    into = np.swapaxes(frames[relative_to][..., :3, :3], -1, -2)
    moving = np.concatenate(list(columns.values()), axis=-1)
    turned = np.concatenate([into @ moving[..., :3, :], into @ moving[..., 3:, :]], axis=-2)
    leaders = [model.joints[name] for name in columns]
    return turned, [variable for each in leaders for variable in _variables(each.name, each.type, each.limit)]


def joint_columns(
    joint: Joint, root_from_child: np.ndarray, tip: np.ndarray, position: np.ndarray | None = None,
    shape: tuple[int, ...] = (),
) -> np.ndarray:  # fmt: skip
    """Return the columns (..., 6, variables) of one joint in the Jacobian of a point `tip` (..., 3), in the root's
    frame; `position` (None: zero) is needed of joints of several numbers."""
    rotation, origin = root_from_child[..., :3, :3], root_from_child[..., :3, 3]
    columns, back = np.zeros((*shape, 6, joint.variables)), np.eye(3)
    for number, turns, axis in reversed(_elements(joint)):
        # An axis does not turn with the motions after it, so it is turned back into the child's frame.
        along = np.einsum("...ij,...j->...i", rotation, back @ axis)
        columns[..., :3, number] = np.cross(along, tip - origin) if turns else along
        if joint.type == "helical":
            columns[..., :3, number] += joint.pitch * along
        if turns:
            columns[..., 3:, number] = along
            if position is not None and joint.variables > 1:
                back = back @ np.swapaxes(_about(axis, position[..., number]), -1, -2)
    return columns


def _variables(name: str, kind: str, limit: Limit | None = None) -> list[Variable]:
    found = []
    for part in PARTS.get(kind, ("",)):
        slides, own = kind == "prismatic" or part in ("x", "y", "z"), f"{name}.{part}" if part else name
        limited = limit is not None and not part and kind != "continuous"
        farthest = np.inf if slides else np.pi
        ends = (limit.lower, limit.upper) if limited else (-farthest, farthest)
        found.append(Variable(own, name, TRANSLATION if slides else ANGLE if limited else TURN, *ends))
    return found
