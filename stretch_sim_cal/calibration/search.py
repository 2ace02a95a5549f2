"""First guesses from nothing: every rotation under which large planes of both views fall onto each other.

Two planes that are not parallel fix a rotation. Of the translations it leaves, the shortest is meant: two lidars of one
robot are near each other.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from stretch_sim_cal.calibration.surfaces import Surface
from stretch_sim_cal.geometry.transforms import from_rotation_translation

NUM_PLANES = 10
MAX_PLANARITY = 0.05
NORMAL_TOLERANCE = np.deg2rad(8.0)
ANGLE_TOLERANCE = np.deg2rad(4.0)
PARALLEL = np.deg2rad(20.0)
MAX_DISTANCE = 1.5
# Rotations closer than this are one hypothesis; so small a difference the registration closes.
SAME_ROTATION = np.deg2rad(10.0)


@dataclass(frozen=True)
class LargePlanes:
    """`normals` (P, 3) that face the lidar and `distances` (P,) of the largest planes of a view, by area."""

    normals: np.ndarray
    distances: np.ndarray


def plane_hypotheses(left: Surface, right: Surface) -> list[np.ndarray]:
    """Return transforms right_to_left (4, 4) that lay large planes of the right view onto such of the left."""
    targets, sources = large_planes(left), large_planes(right)
    rotations: list[np.ndarray] = []
    for source_pair, source_angle in _pairs(sources):
        for target_pair, target_angle in _pairs(targets):
            if abs(source_angle - target_angle) > ANGLE_TOLERANCE:
                continue
            rotation = _triad(*targets.normals[target_pair]) @ _triad(*sources.normals[source_pair]).T
            # The trace of the difference tells the angle: trace = 1 + 2 cos.
            if all(np.sum(rotation * other) < 1.0 + 2.0 * np.cos(SAME_ROTATION) for other in rotations):
                rotations.append(rotation)
    rotations = [_settled(rotation, targets, sources) for rotation in rotations]
    return [from_rotation_translation(rotation, _translation(rotation, targets, sources)) for rotation in rotations]


def large_planes(surface: Surface) -> LargePlanes:
    """Return the largest planes of one lidar's cells, found one after the other among cells of like normal."""
    cosines = -np.einsum("mi,mi->m", surface.normals, surface.rays)
    left_over = np.flatnonzero((surface.planarity < MAX_PLANARITY) & (cosines > 0.15))
    areas = surface.ranges**2 / np.maximum(cosines, 0.15)
    normals, distances = [], []
    while len(normals) < NUM_PLANES and len(left_over) > 50:
        own_normals = surface.normals[left_over]
        own_distances = -np.einsum("mi,mi->m", own_normals, surface.points[left_over])
        weights = areas[left_over]
        seeds = np.linspace(0, len(left_over) - 1, 60).astype(int)
        alike = (own_normals[seeds] @ own_normals.T > np.cos(NORMAL_TOLERANCE)) & (
            np.abs(own_distances[seeds, None] - own_distances) < 0.15
        )
        members = alike[np.argmax(alike @ weights)]
        normal = (own_normals[members] * weights[members, None]).sum(axis=0)
        normal /= np.linalg.norm(normal)
        normals.append(normal)
        distances.append(float(np.median(-surface.points[left_over[members]] @ normal)))
        left_over = left_over[~members]
    return LargePlanes(np.array(normals).reshape(-1, 3), np.array(distances))


def _pairs(planes: LargePlanes) -> list[tuple[list[int], float]]:
    """Return the ordered pairs of planes that are not parallel, each with the angle between their normals."""
    pairs = []
    for first in range(len(planes.normals)):
        for second in range(len(planes.normals)):
            angle = float(np.arccos(np.clip(planes.normals[first] @ planes.normals[second], -1.0, 1.0)))
            if PARALLEL < angle < np.pi - PARALLEL:
                pairs.append(([first, second], angle))
    return pairs


def _triad(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the rotation (3, 3) whose columns are the axes that two directions span (Black's TRIAD)."""
    middle = first + second
    middle = middle / np.linalg.norm(middle)
    across = np.cross(first, second)
    across = across / np.linalg.norm(across)
    return np.stack([middle, across, np.cross(middle, across)], axis=1)


def _settled(rotation: np.ndarray, targets: LargePlanes, sources: LargePlanes) -> np.ndarray:
    """Return the rotation that fits all planes that `rotation` already brings near each other (Kabsch)."""
    for _ in range(2):
        alike = (sources.normals @ rotation.T) @ targets.normals.T
        source, target = np.nonzero(alike > np.cos(1.5 * NORMAL_TOLERANCE))
        rotation = Rotation.align_vectors(targets.normals[target], sources.normals[source])[0].as_matrix()
    return rotation


def _translation(rotation: np.ndarray, targets: LargePlanes, sources: LargePlanes) -> np.ndarray:
    """Return the short translation (3,) that brings rotated source planes onto target planes facing the same way."""
    normals = sources.normals @ rotation.T
    alike = normals @ targets.normals.T > np.cos(NORMAL_TOLERANCE)
    # A plane n . p = -d moved by t satisfies n . t = d_source - d_target.
    needed = sources.distances[:, None] - targets.distances
    needed = np.where(alike & (np.abs(needed) < MAX_DISTANCE), needed, np.inf)
    nearest = np.argmin(np.abs(needed), axis=1)
    matched = np.isfinite(needed[np.arange(len(nearest)), nearest])
    if not matched.any():
        return np.zeros(3)
    rows, steps = normals[matched], needed[np.arange(len(nearest)), nearest][matched]
    return np.linalg.solve(rows.T @ rows + 0.05 * np.eye(3), rows.T @ steps)
