"""An independent estimate of the transform between two lidars, by all cells at once, as a check of the joint estimate.

Point-to-plane registration (Y. Chen, G. Medioni, "Object modelling by registration of multiple range images", 1992)
with Tukey's weights, over eight unknowns: the twist, and a relative range offset and scale. A cell's distance along its
own normal is the instrument of that along the other lidar's, and the other way round (instrumental variables): their
noise is independent, so that it adds no information about unobservable directions, as those of three walls with a free
range scale. It uses neither patches nor sensor files, so its errors are independent of the joint estimate's: if the two
differ by more than their covariances allow, one of them is wrong.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.robust import TUKEY, robust_deviation, tukey_weights
from stretch_sim_cal.calibration.surfaces import Surface
from stretch_sim_cal.geometry.transforms import apply, by_twist, exp, log

STEPS = 10  # at most
CONVERGED = 0.1  # standard deviations
# The largest distance (m) of returns from the other lidar's planes, first and then; cells with a larger curvature, or
# other normals, are of no common plane.
WIDE, NARROW = 0.15, 0.05
FAR = 0.5
MAX_PLANARITY = 0.05
SAME_NORMAL = 0.9
LEAST_NOISE = 0.002  # m
# Errors of neighbouring cells are correlated: one of so many counts.
ALIKE = 20.0
# Prior standard deviations: of the twist in m and rad, of the range offset in m and the scale as a share.
PRIOR = np.array([0.1] * 6 + [0.02, 0.02])
SECTORS = 12
MUCH_LONGER = 0.003
SIGNIFICANT = 3.0  # standard deviations


@dataclass(frozen=True)
class SecondOpinion:
    """The remaining `twist` (6,) of the second lidar's cells in m and rad with its `covariance` (6, 6), and the
    `offset` (m) and `scale` (a ratio), with its standard deviation, by which the first lidar's ranges are longer."""

    twist: np.ndarray
    covariance: np.ndarray
    offset: float
    scale: float
    scale_std: float

    @property
    def much_longer(self) -> bool:
        """Whether ranges differ significantly, and by a larger share than those of two sound lidars."""
        return abs(self.scale) > max(MUCH_LONGER, SIGNIFICANT * self.scale_std)

    def chi_square(self, covariance: np.ndarray) -> float:
        """Return the chi-square of the twist if the cells are posed by an estimate with a covariance (6, 6)."""
        return float(self.twist @ np.linalg.solve(covariance + self.covariance, self.twist))


def second_opinion(surface: Surface, pair: tuple[int, int] = (0, 1)) -> SecondOpinion:
    """Return the estimate from the cells of a pair of lidars in one frame, aligned to centimetres.

    Its covariance is that of the cells' noise, plus the delete-a-group jackknife's over sectors of azimuth, inflated
    since it is estimated from few sectors (Hotelling).
    """
    matching, values = _Matching(surface, pair), np.zeros(8)
    for width in (WIDE, NARROW):
        for _ in range(STEPS):
            informations, gradients = matching.by_sector(values, width)
            information, gradient = informations.sum(axis=0), gradients.sum(axis=0) - values / PRIOR**2
            change, covariance = _solved(information, gradient)
            if (np.abs(change) < CONVERGED * np.sqrt(np.diag(covariance))).all():
                break
            values = np.r_[log(exp(change[:6]) @ exp(values[:6])), values[6:] + change[6:]]
    changes = np.array([
        _solved(information - of_sector, gradient - part)[0]
        for of_sector, part in zip(informations, gradients, strict=True)
    ])  # fmt: skip
    scatter = changes - changes.mean(axis=0)
    covariance += (SECTORS - 1) / SECTORS * scatter.T @ scatter * (SECTORS - 1) / (SECTORS - 8)
    deviation = float(np.sqrt(covariance[7, 7]))
    return SecondOpinion(values[:6], covariance[:6, :6], float(values[6]), float(values[7]), deviation)


def _solved(information: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the step (8,) and its covariance (8, 8) with the priors; noise may make the information indefinite."""
    values, vectors = np.linalg.eigh(information * np.outer(PRIOR, PRIOR))
    vectors = PRIOR[:, None] * vectors
    covariance = vectors / (1.0 + np.fmax(values, 0.0)) @ vectors.T
    return covariance @ gradient, covariance


class _Matching:
    """The cells of both lidars on flat, static surfaces, prepared for several steps."""

    def __init__(self, surface: Surface, pair: tuple[int, int]):
        flat = (surface.planarity < MAX_PLANARITY) & surface.usable & (surface.disturbed == 0)
        (left,), (right,) = (np.nonzero(flat & (surface.side == side)) for side in pair)
        self._targets, self._target_normals = surface.points[left], surface.normals[left]
        self._points, self._normals = surface.points[right], surface.normals[right]
        self._rays, self._ranges = surface.rays[right], surface.ranges[right]
        self._tree = cKDTree(self._targets)

    def by_sector(self, values: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the normal equations (S, 8, 8) and (S, 8) of the sectors' cells within `width` m of the other lidar's
        planes, with the right lidar's moved by the twist, and its ranges by offset and scale, of `values` (8,)."""
        transform = exp(values[:6])
        points = apply(transform, self._points + self._rays * (values[6] + values[7] * self._ranges)[:, None])
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
            rows = sector == number
            first, second = (jacobian[rows] * weights[rows, None] / 2.0 for jacobian in jacobians)
            product = first.T @ jacobians[1][rows]
            information.append(product + product.T)
            gradient.append(-(first.T @ across[1, rows] + second.T @ across[0, rows]))
        return np.array(information), np.array(gradient)
