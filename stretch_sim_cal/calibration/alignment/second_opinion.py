"""A second opinion on the transform between two lidars: by all cells at once, and one range error of one against the
other.

Point-to-plane registration (Y. Chen, G. Medioni, "Object modelling by registration of multiple range images", 1992)
with Tukey's weights, over eight unknowns: the twist, and by how much, and by what share, one lidar's ranges are longer.
A cell's distance along its own normal stands for that along the other lidar's, and the other way round (instrumental
variables): their noise is independent, so that it adds no information about directions that the surfaces leave open,
as three walls do with a free range scale. The opinion knows neither patches nor sensor files, so it is fooled by other
things than the estimate is: where the two are further apart than both say of themselves, one of them is wrong.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.robust import TUKEY, robust_deviation, tukey_weights
from stretch_sim_cal.calibration.surfaces import Surface
from stretch_sim_cal.geometry.transforms import apply, by_twist, exp, log

STEPS = 10  # at most
CONVERGED = 0.1  # standard deviations
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
SIGNIFICANT = 3.0  # standard deviations


@dataclass(frozen=True)
class SecondOpinion:
    """The `twist` (6,) in m and rad that the second lidar's cells still have to be moved by, with its `covariance` (6,
    6), and by what `offset` in m and `scale` (a ratio), with its standard deviation, the first lidar's ranges are
    longer."""

    twist: np.ndarray
    covariance: np.ndarray
    offset: float
    scale: float
    scale_std: float

    @property
    def much_longer(self) -> bool:
        """Whether ranges differ by a larger share than those of two sound lidars, and not by chance."""
        return abs(self.scale) > max(MUCH_LONGER, SIGNIFICANT * self.scale_std)

    def chi_square(self, covariance: np.ndarray) -> float:
        """Return the chi-square of the twist if the cells are where an estimate with a covariance (6, 6) has them."""
        return float(self.twist @ np.linalg.solve(covariance + self.covariance, self.twist))


def second_opinion(surface: Surface, pair: tuple[int, int] = (0, 1)) -> SecondOpinion:
    """Return the opinion from the cells of a pair of lidars in one frame, good to centimetres.

    Its covariance is the delete-a-group jackknife's over sectors of azimuth, enlarged since that of so few sectors
    scatters by itself (Hotelling), and what the cells' noise brings.
    """
    matching, found = _Matching(surface, pair), np.zeros(8)
    for width in (WIDE, NARROW):
        for _ in range(STEPS):
            information, gradient = matching.by_sector(found, width)
            whole, pull = information.sum(axis=0), gradient.sum(axis=0) - found / PRIOR**2
            change, covariance = _solved(whole, pull)
            if (np.abs(change) < CONVERGED * np.sqrt(np.diag(covariance))).all():
                break
            found = np.r_[log(exp(change[:6]) @ exp(found[:6])), found[6:] + change[6:]]
    changes = np.array([_solved(whole - own, pull - part)[0] for own, part in zip(information, gradient, strict=True)])
    scatter = changes - changes.mean(axis=0)
    covariance += (SECTORS - 1) / SECTORS * scatter.T @ scatter * (SECTORS - 1) / (SECTORS - 8)
    deviation = float(np.sqrt(covariance[7, 7]))
    return SecondOpinion(found[:6], covariance[:6, :6], float(found[6]), float(found[7]), deviation)


def _solved(information: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the step (8,) and its covariance (8, 8) with the priors; noise may make the information negative where
    there is none."""
    values, vectors = np.linalg.eigh(information * np.outer(PRIOR, PRIOR))
    vectors = PRIOR[:, None] * vectors
    covariance = vectors / (1.0 + np.fmax(values, 0.0)) @ vectors.T
    return covariance @ gradient, covariance


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
        both = self._target_normals[nearest], self._normals[near] @ transform[:3, :3].T
        across = np.array([np.einsum("ki,ki->k", normals, points - self._targets[nearest]) for normals in both])
        kept = (np.abs(across) < width).all(axis=0) & (np.einsum("ki,ki->k", *both) > SAME_NORMAL)
        near, points, across = near[kept], points[kept], across[:, kept]
        noise = max(robust_deviation(across), LEAST_NOISE) if len(points) else LEAST_NOISE
        weights = tukey_weights(across.mean(axis=0) / (TUKEY * noise)) / (ALIKE * noise**2)
        rays, jacobians = self._rays[near] @ transform[:3, :3].T, []
        for normals in both:
            along = np.einsum("ki,ki->k", normals[kept], rays)
            jacobians.append(np.column_stack([by_twist(points, normals[kept]), along, along * self._ranges[near]]))
        azimuths = np.arctan2(points[:, 1], points[:, 0])
        sector = np.floor((azimuths / (2.0 * np.pi) + 0.5) * SECTORS).astype(int) % SECTORS
        information, gradient = [], []
        for number in range(SECTORS):
            own = sector == number
            first, second = (jacobian[own] * weights[own, None] / 2.0 for jacobian in jacobians)
            product = first.T @ jacobians[1][own]
            information.append(product + product.T)
            gradient.append(-(first.T @ across[1, own] + second.T @ across[0, own]))
        return np.array(information), np.array(gradient)
