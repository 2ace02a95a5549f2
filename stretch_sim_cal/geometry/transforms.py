"""Rigid transforms (4, 4) and twists (tx, ty, tz, rx, ry, rz), in m and rad: `p_target = target_from_source @
p_source`. Roll, pitch, yaw are about fixed axes; covariances are of twists with `true = exp(twist) @ estimate`."""

import math
from collections.abc import Mapping

import numpy as np
from scipy.spatial.transform import RigidTransform, Rotation

from stretch_sim_cal.errors import InputError

SIDES = ("left", "right")  # the two lidars, in the order of every pair of clouds and poses
ROUNDING = 1e-12  # of products of rotations
Poses = Mapping[str, np.ndarray]  # rigid transforms (4, 4) by name of link, frame or lidar


def wrapped(angles: np.ndarray) -> np.ndarray:
    """Return angles (...) in rad, -pi to pi."""
    return np.remainder(angles + np.pi, 2.0 * np.pi) - np.pi


def from_rotation_translation(rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:
    transform = np.eye(4)
    transform[:3, :3] = rotation
    transform[:3, 3] = translation
    return transform


def from_xyz_rpy(xyz=(0.0, 0.0, 0.0), rpy=(0.0, 0.0, 0.0)) -> np.ndarray:
    """Return the transform of a URDF origin: translation (3,), fixed-axis roll, pitch, yaw (3,)."""
    # Written out, as below: scipy takes ten times as long for one, and descriptions have hundreds, /tf thousands.
    roll, pitch, yaw = map(float, rpy)
    if not (roll or pitch or yaw):
        return from_rotation_translation(np.eye(3), xyz)
    sr, sp, sy = map(math.sin, (roll, pitch, yaw))
    cr, cp, cy = map(math.cos, (roll, pitch, yaw))
    rotation = (
        (cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr),
        (sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr),
        (0.0 - sp, cp * sr, cp * cr),
    )
    return from_rotation_translation(rotation, xyz)


def to_xyz_rpy(transform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return translation (3,) and fixed-axis roll, pitch, yaw (3,); at 90 deg pitch without yaw."""
    return transform[:3, 3].copy(), roll_pitch_yaw(transform[:3, :3])


def roll_pitch_yaw(rotation: np.ndarray) -> np.ndarray:
    """Return fixed-axis roll, pitch, yaw (3,) of a rotation (3, 3), exact at and near pitch +-90 deg as well, where
    roll and yaw turn about one line: yaw is chosen first, and roll is the rest."""
    horizontal = np.hypot(rotation[0, 0], rotation[1, 0])
    yaw = np.arctan2(rotation[1, 0], rotation[0, 0]) if horizontal > ROUNDING else 0.0
    cosine, sine = np.cos(yaw), np.sin(yaw)
    pitch = np.arctan2(-rotation[2, 0], cosine * rotation[0, 0] + sine * rotation[1, 0])
    roll = np.arctan2(sine * rotation[0, 2] - cosine * rotation[1, 2], cosine * rotation[1, 1] - sine * rotation[0, 1])
    angles = np.array([roll, pitch, yaw])
    quarters = np.round(angles / (np.pi / 2)) * (np.pi / 2)
    return np.where(np.abs(angles - quarters) < ROUNDING, quarters, angles)


def from_xyz_quaternion(xyz, quaternion) -> np.ndarray:
    """Return the transform of a translation (3,) and a quaternion (x, y, z, w) of any length but zero."""
    x, y, z, w = map(float, quaternion)
    length = math.hypot(x, y, z, w)
    x, y, z, w = x / length, y / length, z / length, w / length
    rotation = (
        (1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)),
        (2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)),
        (2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)),
    )
    return from_rotation_translation(rotation, xyz)


def to_xyz_quaternion(transform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return translation (3,) and unit quaternion (x, y, z, w)."""
    return transform[:3, 3].copy(), Rotation.from_matrix(transform[:3, :3]).as_quat(canonical=True)


def inverse(transform: np.ndarray) -> np.ndarray:
    """Return the inverse of rigid transforms (..., 4, 4)."""
    rotation_t = np.swapaxes(transform[..., :3, :3], -1, -2)
    result = np.zeros_like(transform, dtype=float)
    result[..., :3, :3] = rotation_t
    result[..., :3, 3] = -np.einsum("...ij,...j->...i", rotation_t, transform[..., :3, 3])
    result[..., 3, 3] = 1.0
    return result


def apply(transform: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return points (N, 3) moved by a transform, in the points' own precision."""
    dtype = points.dtype if np.issubdtype(points.dtype, np.floating) else float
    return points @ transform[:3, :3].T.astype(dtype) + transform[:3, 3].astype(dtype)


def exp(twist: np.ndarray) -> np.ndarray:
    """Return the transform of a twist (6,), the exponential map of SE(3)."""
    twist = np.asarray(twist, dtype=float)
    return RigidTransform.from_exp_coords(np.concatenate([twist[3:], twist[:3]])).as_matrix()


def log(transform: np.ndarray) -> np.ndarray:
    """Return the twist (6,) of a transform, the inverse of `exp`."""
    coordinates = RigidTransform.from_matrix(transform).as_exp_coords()
    return np.concatenate([coordinates[3:], coordinates[:3]])


def adjoint(transform: np.ndarray) -> np.ndarray:
    """Return the adjoint A (6, 6) of a transform T: `T @ exp(xi) @ inverse(T) == exp(A @ xi)`."""
    rotation, translation = transform[:3, :3], transform[:3, 3]
    result = np.zeros((6, 6))
    result[:3, :3] = result[3:, 3:] = rotation
    result[:3, 3:] = skew(translation) @ rotation
    return result


def about_origin(pose: np.ndarray) -> np.ndarray:
    """Return the derivative (6, 6) of a twist about the origin of a `pose` (4, 4) by that about the frame's origin,
    both along the frame's axes."""
    return adjoint(from_xyz_rpy(-pose[:3, 3]))


def by_twist(points: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """Return the derivatives (..., 6) by a twist of how far points (..., 3) are moved along `normals` (..., 3)."""
    return np.concatenate([normals, np.cross(points, normals)], axis=-1)


def skew(vector: np.ndarray) -> np.ndarray:
    """Return the 3x3 matrix S with `S @ p == cross(vector, p)`."""
    x, y, z = vector
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def rotation_angle(transform: np.ndarray) -> float:
    """Return the angle in rad, 0 to pi, of a transform or 3x3 rotation."""
    return float(Rotation.from_matrix(transform[:3, :3]).magnitude())


def angle_between(first: np.ndarray, second: np.ndarray) -> float:
    """Return the angle in rad, 0 to pi, between vectors (3,), exact also if it is small."""
    return float(np.arctan2(np.linalg.norm(np.cross(first, second)), np.dot(first, second)))


def error(truth: np.ndarray, estimate: np.ndarray) -> tuple[float, float]:
    """Return length (m) and angle (rad) of `inverse(truth) @ estimate`."""
    difference = inverse(truth) @ estimate
    return float(np.linalg.norm(difference[:3, 3])), rotation_angle(difference)


def check_rigid(transform, name: str = "transform", tolerance: float = 1e-4) -> np.ndarray:
    """Return `transform` as a float array with an exactly orthonormal rotation. Raises `InputError` naming `name` if it
    is not 4x4, not finite, or further than `tolerance` from rigid."""
    try:
        matrix = np.array(transform, dtype=float)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{name}: is not a 4x4 matrix of numbers") from problem
    if matrix.shape != (4, 4) or not np.isfinite(matrix).all():
        raise InputError(f"{name}: is not a 4x4 matrix of finite numbers")
    rotation = matrix[:3, :3]
    if (
        np.abs(rotation @ rotation.T - np.eye(3)).max() > tolerance
        or np.linalg.det(rotation) < 0
        or np.abs(matrix[3] - [0, 0, 0, 1]).max() > tolerance
    ):
        raise InputError(f"{name}: is not a rigid transform (rotation not orthonormal, or last row not 0 0 0 1)")
    return from_rotation_translation(Rotation.from_matrix(rotation).as_matrix(), matrix[:3, 3])
