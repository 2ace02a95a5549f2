"""Rule 0, proved: the rewritten model is the same mechanism, its shapes and masses where they were.

Both models are read from their texts and moved through random configurations; nothing here knows how one became the
other but the names and the joints' signs and offsets.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.errors import Refused
from stretch_sim_cal.robot.kinematics import link_transforms, position_ranges
from stretch_sim_cal.robot.model import Geometry, Inertial, Joint, RobotModel

TOLERANCE = 1e-9
CONFIGURATIONS = 16


@dataclass(frozen=True)
class JointMapping:
    """The joint that an old joint became: new position = sign * old position + offset."""

    name: str
    sign: int = 1
    offset: float = 0.0


def prove_same_mechanism(
    old: RobotModel,
    new: RobotModel,
    links: Mapping[str, str],
    joints: Mapping[str, JointMapping],
    old_from_new_root: np.ndarray,
    old_from_new: Mapping[str, np.ndarray],
    seed: int = 0,
) -> float:
    """Return the largest departure (m, kg, kg m2, or of a rotation's entries) found between two models.

    `links` and `joints` map every old name; `old_from_new_root` (4, 4) relates the roots, `old_from_new` (3, 3) what
    turned links' frames are to be (others are not turned). Raises `Refused` naming the first link or joint for which
    more than `TOLERANCE` is found, or whose shapes, limits or type are not the same.
    """
    worst = 0.0
    for joint in old.joints.values():
        worst = max(worst, _compare_joint(old, new, joint, joints))
    positions = random_positions(old, np.random.default_rng(seed))
    mapped = {joints[name].name: joints[name].sign * value + joints[name].offset for name, value in positions.items()}
    before, after = link_transforms(old, positions), link_transforms(new, mapped)
    for name, link in old.links.items():
        if links[name] not in new.links:
            raise Refused(f"link '{name}' is lost, nothing is written")
        other = new.links[links[name]]
        there = old_from_new_root @ after[links[name]]
        frame = there.copy()
        frame[..., :3, :3] = frame[..., :3, :3] @ old_from_new.get(name, np.eye(3)).T
        worst = max(worst, _checked(f"the frame of link '{name}'", _far(before[name], frame)))
        for kind in ("visuals", "collisions"):
            shapes, others = getattr(link, kind), getattr(other, kind)
            if len(shapes) != len(others):
                raise Refused(f"link '{name}' had {len(shapes)} {kind}, now {len(others)}; nothing is written")
            for shape, moved in zip(shapes, others, strict=True):
                worst = max(worst, _compare_shape(name, shape, moved, before[name], there))
        if (link.inertial is None) != (other.inertial is None):
            raise Refused(f"link '{name}' had a mass or has got one; nothing is written")
        if link.inertial is not None and other.inertial is not None:
            worst = max(worst, _compare_mass(name, link.inertial, other.inertial, before[name], there))
    return worst


def random_positions(model: RobotModel, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Return `CONFIGURATIONS` random positions within limits of every joint with one degree of freedom of its own.

    The first one is zero. Joints with several degrees of freedom stay at zero.
    """
    positions = {name: generator.uniform(*ends, CONFIGURATIONS) for name, ends in position_ranges(model).items()}
    for values in positions.values():
        values[0] = 0.0
    return positions


def _compare_joint(old: RobotModel, new: RobotModel, joint: Joint, joints: Mapping[str, JointMapping]) -> float:
    mapping = joints[joint.name]
    other = new.joints.get(mapping.name)
    if other is None or other.type != joint.type:
        raise Refused(f"joint '{joint.name}' ({joint.type}) is lost or of another type; nothing is written")
    if (joint.limit is None) != (other.limit is None):
        raise Refused(f"joint '{joint.name}' lost its limits or has got some; nothing is written")
    if joint.limit is None or other.limit is None:
        return 0.0
    ends = sorted(mapping.sign * end + mapping.offset for end in (joint.limit.lower, joint.limit.upper))
    if joint.type == "continuous" or not joint.variables:
        ends = [other.limit.lower, other.limit.upper]
    expected = np.array([*ends, joint.limit.velocity, joint.limit.effort])
    found = np.array([other.limit.lower, other.limit.upper, other.limit.velocity, other.limit.effort])
    return _checked(f"the limits of joint '{joint.name}'", float(np.abs(found - expected).max()))


def _compare_shape(name: str, shape: Geometry, moved: Geometry, before: np.ndarray, after: np.ndarray) -> float:
    same = shape.kind == moved.kind and shape.radius == moved.radius and shape.length == moved.length
    same = same and np.array_equal(shape.size, moved.size) and np.array_equal(shape.scale, moved.scale)
    if not same or (shape.path or shape.filename) != (moved.path or moved.filename):
        raise Refused(f"link '{name}': a {shape.kind} has become another shape; nothing is written")
    return _checked(
        f"a shape of link '{name}'", _far(before @ shape.link_from_geometry, after @ moved.link_from_geometry)
    )


def _compare_mass(name: str, body: Inertial, moved: Inertial, before: np.ndarray, after: np.ndarray) -> float:
    first, second = before @ body.link_from_inertial, after @ moved.link_from_inertial
    tensors = [
        frame[..., :3, :3] @ inertial.inertia @ np.swapaxes(frame[..., :3, :3], -1, -2)
        for frame, inertial in ((first, body), (second, moved))
    ]
    _checked(f"the mass of link '{name}'", abs(body.mass - moved.mass))
    _checked(f"the inertia of link '{name}'", float(np.abs(tensors[0] - tensors[1]).max()))
    return _checked(f"the centre of mass of link '{name}'", float(np.abs(first[..., :3, 3] - second[..., :3, 3]).max()))


def _far(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first - second).max())


def _checked(what: str, departure: float) -> float:
    if not departure <= TOLERANCE:
        raise Refused(f"{what} would change by {departure:.3g}, and Rule 0 allows nothing; nothing is written")
    return departure


def root_turned(old_from_new: Mapping[str, np.ndarray], root: str) -> np.ndarray:
    """Return old_from_new (4, 4) of the root's frame."""
    result = np.eye(4)
    result[:3, :3] = old_from_new.get(root, np.eye(3))
    return result
