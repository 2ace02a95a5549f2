"""Whether the robot stood still: how far the lidars are displaced in each block of time, against the first one.

A push moves all surfaces together, along their normals by what the six numbers of a twist say; a person walking by
moves few cells and is outvoted.
"""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.alignment_adjustment import tukey_fit
from stretch_sim_cal.calibration.alignment_noise import Noise
from stretch_sim_cal.calibration.alignment_patches import MIN_INCIDENCE_COSINE
from stretch_sim_cal.calibration.alignment_surfaces import NORMAL_NEIGHBOURS, Surface

MAX_PLANARITY = 0.3
MIN_CELLS = 200
# A component of the motion counts when it exceeds this many standard deviations.
SIGNIFICANT = 4.0
_CHANCE_MARGIN = 5.0


@dataclass(frozen=True)
class Motion:
    """The largest displacement of the lidars between blocks of time that is beyond doubt: m and rad."""

    translation: float
    rotation: float


def motion_of(surface: Surface, noise: Noise) -> Motion:
    """Return how far the two lidars moved while the frames were taken, from the cells of both in one frame."""
    cosines = -np.einsum("mi,mi->m", surface.normals, surface.rays)
    usable = np.flatnonzero(surface.usable & (surface.planarity < MAX_PLANARITY) & (cosines > MIN_INCIDENCE_COSINE))
    normals, points, counts = surface.normals[usable], surface.points[usable], surface.block_counts[usable]
    heights = np.einsum("mbi,mi->mb", surface.block_points[usable], normals)
    single = (noise.sigma[surface.side[usable]] * cosines[usable]) ** 2
    jacobian = np.hstack([normals, np.cross(points, normals)])
    by_chance = _by_chance(normals, points, surface.planarity[usable])
    translation = rotation = 0.0
    for block in range(1, counts.shape[1]):
        both = (counts[:, 0] > 0) & (counts[:, block] > 0)
        if np.count_nonzero(both) < MIN_CELLS:
            continue
        variances = single[both] * (1.0 / counts[both, 0] + 1.0 / counts[both, block]) + noise.roughness**2
        changes = heights[both, block] - heights[both, 0]
        twist = _beyond_doubt(jacobian[both], by_chance[both], changes, variances)
        translation = max(translation, float(np.linalg.norm(twist[:3])))
        rotation = max(rotation, float(np.linalg.norm(twist[3:])))
    return Motion(translation, rotation)


def _beyond_doubt(jacobian: np.ndarray, by_chance: np.ndarray, changes: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Return the twist (6,) that explains changes of height (M,), less the components that may be noise."""
    fit = tukey_fit(jacobian, -changes, variances)
    weights = fit.weights / variances
    chance = by_chance * np.sqrt(weights)[:, None, None]
    chance = chance.reshape(-1, 6)
    information = (jacobian * weights[:, None]).T @ jacobian - _CHANCE_MARGIN * chance.T @ chance
    values, axes = np.linalg.eigh(information)
    components = axes.T @ fit.twist
    certain = np.abs(components) * np.sqrt(np.maximum(values, 0.0)) > SIGNIFICANT * fit.scale
    return axes @ np.where(certain, components, 0.0)


def _by_chance(normals: np.ndarray, points: np.ndarray, planarity: np.ndarray) -> np.ndarray:
    """Return what errors of the normals add to each cell's jacobian, one sigma, as (M, 3, 6).

    Normals are least-squares planes through the neighbours: their slope errs by the planarity over the freedom left.
    """
    movement = np.concatenate([np.broadcast_to(np.eye(3), (len(points), 3, 3)), -_skews(points)], axis=2)
    across = np.eye(3) - normals[:, :, None] * normals[:, None, :]
    return np.sqrt(planarity / (NORMAL_NEIGHBOURS - 3.0))[:, None, None] * (across @ movement)


def _skews(points: np.ndarray) -> np.ndarray:
    """Return the matrices S (M, 3, 3) with `S @ q == cross(p, q)`."""
    x, y, z = points.T
    zero = np.zeros_like(x)
    return np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)
