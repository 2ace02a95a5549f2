"""A second opinion on the transform between two lidars: by all cells at once, and one range error of one against the
other.

Point-to-plane registration (Y. Chen, G. Medioni, "Object modelling by registration of multiple range images", 1992)
with Tukey's weights, over eight unknowns: the twist, and by how much, and by what share, one lidar's ranges are longer.
It knows neither patches nor sensor files, so it is fooled by other things than the estimate is: where the two are
further apart than both say of themselves, one of them is wrong.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.robust import TUKEY, robust_deviation, tukey_weights
from stretch_sim_cal.calibration.surfaces import Surface
from stretch_sim_cal.geometry.transforms import apply, by_twist, exp, log

STEPS = 5  # at most
CONVERGED = 2e-5  # m, rad
# How far (m) from the other lidar's planes returns may lie, first and then; cells that curve
# more, or face another way, are of no common plane.
WIDE, NARROW = 0.15, 0.05
FAR = 0.5
MAX_PLANARITY = 0.05
SAME_NORMAL = 0.9
LEAST_NOISE = 0.002  # m
# Neighbouring cells err alike: one of so many counts.
ALIKE = 20.0
# Standard deviations without data: of the twist in m and rad, of ranges in m and as a share.
PRIOR = np.array([0.1] * 6 + [0.02, 0.02])
SECTORS = 12
MUCH_LONGER = 0.003


@dataclass(frozen=True)
class SecondOpinion:
    """The `twist` (6,) in m and rad that the second lidar's cells still have to be moved by, with its `covariance` (6,
    6), and by what `offset` in m and `scale` (a ratio) the first lidar's ranges are longer."""

    twist: np.ndarray
    covariance: np.ndarray
    offset: float
    scale: float

    def chi_square(self, covariance: np.ndarray) -> float:
        """Return the chi-square of the twist if the cells are where an estimate with a covariance (6, 6) has them."""
        return float(self.twist @ np.linalg.solve(covariance + self.covariance, self.twist))


def second_opinion(surface: Surface, pair: tuple[int, int] = (0, 1)) -> SecondOpinion:
    """Return the opinion from the cells of a pair of lidars in one frame, good to centimetres.

    Its covariance is the delete-a-group jackknife's over sectors of azimuth, enlarged since that of so few sectors
    scatters by itself (Hotelling), and what the cells' noise brings.
    """
    matching, prior, found = _Matching(surface, pair), PRIOR**-2.0, np.zeros(8)
    for width in (WIDE, NARROW):
        for _ in range(STEPS):
            information, gradient = matching.by_sector(found, width)
            whole = information.sum(axis=0) + np.diag(prior), gradient.sum(axis=0) - prior * found
            change = np.linalg.solve(*whole)
            if np.abs(change).max() < CONVERGED:
                break
            found = np.r_[log(exp(change[:6]) @ exp(found[:6])), found[6:] + change[6:]]
    changes = np.linalg.solve(whole[0] - information, (whole[1] - gradient)[:, :, None])[:, :, 0]
    scatter = changes - changes.mean(axis=0)
    jackknife = (SECTORS - 1) / SECTORS * scatter.T @ scatter * (SECTORS - 1) / (SECTORS - 8)
    covariance = np.linalg.inv(whole[0]) + jackknife
    return SecondOpinion(found[:6], covariance[:6, :6], float(found[6]), float(found[7]))


class _Matching:
    """The cells of both lidars that lie on something flat that stood still, prepared for several steps."""

    def __init__(self, surface: Surface, pair: tuple[int, int]):
        flat = (surface.planarity < MAX_PLANARITY) & surface.usable & (surface.disturbed == 0)
        (left,), (right,) = (np.nonzero(flat & (surface.side == side)) for side in pair)
        self._targets, self._target_normals = surface.points[left], surface.normals[left]
        self._points, self._normals = surface.points[right], surface.normals[right]
        self._rays, self._ranges = surface.rays[right], surface.ranges[right]
        self._tree = cKDTree(self._targets)

    def by_sector(self, found: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the normal equations (S, 8, 8) and (S, 8) of the sectors' cells that lie within `width` m of the
        other lidar's planes, the right lidar's moved by a twist and its ranges longer by offset and scale (8,)."""
        transform = exp(found[:6])
        points = apply(transform, self._points + self._rays * (found[6] + found[7] * self._ranges)[:, None])
        distances, nearest = self._tree.query(points, distance_upper_bound=FAR)
        near = np.flatnonzero(np.isfinite(distances))
        points, nearest = points[near], nearest[near]
        normals = self._target_normals[nearest]
        across = np.einsum("ki,ki->k", normals, points - self._targets[nearest])
        facing = np.einsum("ki,ki->k", normals, self._normals[near] @ transform[:3, :3].T)
        kept = (np.abs(across) < width) & (facing > SAME_NORMAL)
        near, points, normals, across = near[kept], points[kept], normals[kept], across[kept]
        noise = max(robust_deviation(across), LEAST_NOISE) if len(across) else LEAST_NOISE
        weights = tukey_weights(across / (TUKEY * noise)) / (ALIKE * noise**2)
        along = np.einsum("ki,ki->k", normals, self._rays[near] @ transform[:3, :3].T)
        jacobian = np.column_stack([by_twist(points, normals), along, along * self._ranges[near]])
        azimuths = np.arctan2(points[:, 1], points[:, 0])
        sector = np.floor((azimuths / (2.0 * np.pi) + 0.5) * SECTORS).astype(int) % SECTORS
        own = [sector == number for number in range(SECTORS)]
        weighted = jacobian * weights[:, None]
        return (
            np.array([weighted[each].T @ jacobian[each] for each in own]),
            np.array([-weighted[each].T @ across[each] for each in own]),
        )
