"""Where a model's frames point at position zero, in words and angles: what rules about orientation compare."""

import numpy as np

from stretch_sim_cal.geometry.transforms import angle_between, inverse
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import Joint, RobotModel

FORWARD, LEFT, UP = np.eye(3)
"""REP 103: x forward, y left, z up."""
PRIMARY = {"+x": FORWARD, "-x": -FORWARD, "+y": LEFT, "-y": -LEFT, "+z": UP, "-z": -UP}


def frames_in(model: RobotModel, reference: str) -> dict[str, np.ndarray]:
    """Return reference_from_link (4, 4) of every link with all joints at zero."""
    frames = link_transforms(model)
    reference_from_root = inverse(frames[model.checked_link(reference)])
    return {link: reference_from_root @ transform for link, transform in frames.items()}


def angle_deg(first: np.ndarray, second: np.ndarray) -> float:
    """Return the angle between two vectors (3,) in deg, 0 to 180; 90 where one of them is zero."""
    if not (np.any(first) and np.any(second)):
        return 90.0
    return float(np.degrees(angle_between(first, second)))


def turn_deg(rotation: np.ndarray) -> float:
    """Return the angle in deg that a rotation (3, 3) turns by, also where it is so small that its trace hides it."""
    sine = np.linalg.norm(rotation - rotation.T) / (2.0 * np.sqrt(2.0))
    return float(np.degrees(np.arctan2(sine, (np.trace(rotation) - 1.0) / 2.0)))


def across(vector: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Return the part of `vector` (3,) that is perpendicular to the unit `normal` (3,)."""
    return vector - np.dot(vector, normal) * normal


def shown(vector: np.ndarray) -> str:
    """Return a vector as text with three digits."""
    return "(" + " ".join(f"{value + 0.0:.3g}" for value in np.round(vector, 3)) + ")"


def nearest_primary(vector: np.ndarray) -> str:
    """Return the name, such as +x, of the primary direction that is nearest to a vector (3,)."""
    return max(PRIMARY, key=lambda name: float(np.dot(PRIMARY[name], vector)))


def moves(joint: Joint) -> bool:
    """Return whether a joint lets its links move against each other."""
    return joint.variables > 0


def rigidly_joined(model: RobotModel, first: str, second: str) -> bool:
    """Return whether only fixed joints lie between two links."""
    return rigid_root(model, first) == rigid_root(model, second)


def rigid_root(model: RobotModel, link: str) -> str:
    """Return the topmost link that `link` hangs on by fixed joints only."""
    joint = model.parent_joint(link)
    while joint is not None and not moves(joint):
        link = joint.parent
        joint = model.parent_joint(link)
    return link


def has_geometry(model: RobotModel, link: str) -> bool:
    """Return whether a link has a visual or a collision shape."""
    return bool(model.links[link].visuals or model.links[link].collisions)
