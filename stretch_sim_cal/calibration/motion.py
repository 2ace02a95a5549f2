"""Whether the robot stood still: how far the lidars are displaced in each block of time, against the first one.

A push moves all surfaces together, along their normals by amounts that one twist explains; a person walking by moves
few cells and is outvoted.
"""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.noise import Noise
from stretch_sim_cal.calibration.patches import Fits, Members, Patches
from stretch_sim_cal.calibration.robust import tukey_fit
from stretch_sim_cal.calibration.surfaces import Surface

MIN_CELLS = 200
# A component of the motion counts when it exceeds this many standard deviations.
SIGNIFICANT = 4.0
_CHANCE_MARGIN = 5.0


@dataclass(frozen=True)
class Motion:
    """The largest displacement of the lidars between blocks of time that is beyond doubt: m and rad."""

    translation: float
    rotation: float


def motion_of(surface: Surface, flat: tuple[Patches, Members, Fits], noise: Noise) -> Motion:
    """Return how far the two lidars moved while the frames were taken, by the heights of cells above their patches
    `flat`."""
    patches, members, fits = flat
    members = members.each_cell_once()
    counts = surface.block_counts[members.cell]
    normals, points = patches.normals[members.patch], surface.points[members.cell]
    heights = np.einsum("kbi,ki->kb", surface.block_points[members.cell], normals)
    single = (noise.sigma[surface.side[members.cell]] * members.cosines) ** 2
    jacobian = np.hstack([normals, np.cross(points, normals)])
    by_chance = _by_chance(patches, members, fits, points)
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


def _beyond_doubt(
    jacobian: np.ndarray, by_chance: np.ndarray, changes: np.ndarray, variances: np.ndarray
) -> np.ndarray:
    """Return the twist (6,) that explains changes of height (K,), less the components that may be noise."""
    fit = tukey_fit(jacobian, -changes, variances)
    weights = fit.weights / variances
    chance = (by_chance * np.sqrt(weights)[:, None, None]).reshape(-1, 6)
    # Axes of the whole, less the part of chance along each: the difference's own axes would mix a direction that is
    # held by chance alone into the others.
    values, axes = np.linalg.eigh((jacobian * weights[:, None]).T @ jacobian)
    values = values - _CHANCE_MARGIN * np.sum((chance @ axes) ** 2, axis=0)
    components = axes.T @ fit.twist
    certain = np.abs(components) * np.sqrt(np.maximum(values, 0.0)) > SIGNIFICANT * fit.scale
    return axes @ np.where(certain, components, 0.0)


def _by_chance(patches: Patches, members: Members, fits: Fits, points: np.ndarray) -> np.ndarray:
    """Return the errors (K, 2, 6), one sigma, of each member's jacobian by those of the patches' slopes."""
    values, vectors = np.linalg.eigh(fits.covariances[:, 1:, 1:])
    tilts = np.einsum("gab,gai->gbi", vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :], patches.axes)[
        members.patch
    ]
    return np.concatenate([tilts, np.cross(points[:, None], tilts)], axis=2)
