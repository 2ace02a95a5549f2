"""Frames of a model with all joints at zero, directions, and the angles between them."""

import numpy as np

from stretch_sim_cal.geometry.transforms import angle_between, rotation_angle
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel

FORWARD, LEFT, UP = np.eye(3)  # REP 103: x forward, y left, z up
PRIMARY = {"+x": FORWARD, "-x": -FORWARD, "+y": LEFT, "-y": -LEFT, "+z": UP, "-z": -UP}


def frames_in(model: RobotModel, reference: str) -> dict[str, np.ndarray]:
    """Return reference_from_link (4, 4) of every link with all joints at zero."""
    return link_transforms(model, relative_to=reference)


def angle_deg(first: np.ndarray, second: np.ndarray) -> float:
    """Return the angle between two vectors (3,) in deg, 0 to 180; 90 if one of them is zero."""
    if not (np.any(first) and np.any(second)):
        return 90.0
    return float(np.degrees(angle_between(first, second)))


def turn_deg(rotation: np.ndarray) -> float:
    """Return the angle in deg that a rotation (3, 3) turns by."""
    return float(np.degrees(rotation_angle(rotation)))


def across(vector: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Return the part of `vector` (3,) that is perpendicular to the unit `normal` (3,)."""
    return vector - np.dot(vector, normal) * normal


def upright(x: np.ndarray, up: np.ndarray = UP) -> np.ndarray:
    """Return the rotation (3, 3) whose x axis is the unit vector `x` (3,), with z as near to `up` as that allows."""
    towards = across(up, x)
    if np.linalg.norm(towards) < 1e-6:
        towards = across(-FORWARD, x)  # An arm stretched upwards bends forward with z back.
    z = towards / np.linalg.norm(towards)
    return np.column_stack([x, np.cross(z, x), z])


def shown(vector: np.ndarray) -> str:
    """Return a vector as text with three digits."""
    return "(" + " ".join(f"{value + 0.0:.3g}" for value in np.round(vector, 3)) + ")"


def nearest_primary(vector: np.ndarray) -> tuple[str, np.ndarray]:
    """Return the primary direction (3,) that is nearest to a vector (3,), after its name, such as +x."""
    return max(PRIMARY.items(), key=lambda item: float(np.dot(item[1], vector)))
