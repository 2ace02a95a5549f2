"""The noise of the data, estimated from it, and the rejection of cells that are not of one static, flat surface."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from stretch_sim_cal.calibration.patches import Fits, Members
from stretch_sim_cal.calibration.robust import chi_square_quantile
from stretch_sim_cal.calibration.surfaces import Surface

# Lower bounds (m), so that the weights of noise-free data are finite.
_MIN_SIGMA = 2e-4
_MIN_ROUGHNESS = 2e-4
_ENOUGH_CELLS = 100
TRIM = 4.0
# Most cells see two surfaces if by their median the variance is so many times that by a low quantile.
LOW_QUANTILE, TWO_SURFACES = 0.2, 2.0
# A step (m) that even with one return in a cell is visible in the cell's scatter.
OBVIOUS_STEP = 0.15


@dataclass(frozen=True)
class Noise:
    """`sigma` (n,): standard deviation of a single range of each lidar (m); `roughness` (m): the additional standard
    deviation of the cells of a flat patch (uneven surfaces, biases of channels)."""

    sigma: np.ndarray
    roughness: float

    @classmethod
    def first(cls, num_lidars: int) -> "Noise":
        """Return the initial noise, before it is estimated."""
        return cls(np.full(num_lidars, 0.01), 0.001)

    def variances(self, surface: Surface, members: Members) -> np.ndarray:
        """Return the variances (K,) of the members' heights: noise acts along the ray, so its cosine counts."""
        sigma = self.sigma[surface.side[members.cell]]
        return (sigma * members.cosines) ** 2 / surface.counts[members.cell] + self.roughness**2


def _along_ray(scatter: np.ndarray, normals: np.ndarray, members: Members) -> np.ndarray:
    """Return the variances (K,) along the ray that explain scatter matrices (K, 3, 3) about the members' planes."""
    normals = normals.take(members.patch, axis=0)
    across = np.einsum("ki,ki->k", normals, np.einsum("kij,kj->ki", scatter, normals))
    return np.maximum(across, 0.0) / members.cosines**2


def _variance(variances: np.ndarray, freedom: np.ndarray) -> float:
    """Return the variance that cells with these `variances` (K,), of so many degrees of freedom (K,), have in common:
    by their median, or by a low quantile if it is much smaller, since most of the cells see two surfaces then."""
    variance = float(np.median(variances / chi_square_quantile(freedom)))
    certain = freedom >= 3.0
    if np.count_nonzero(certain) >= _ENOUGH_CELLS:
        scaled = variances[certain] / chi_square_quantile(freedom[certain], float(ndtri(LOW_QUANTILE)))
        low = float(np.quantile(scaled, LOW_QUANTILE))
        variance = low if variance > TWO_SURFACES * low else variance
    return variance


def estimate_noise(surface: Surface, normals: np.ndarray, members: Members, fits: Fits, before: Noise) -> Noise:
    """Estimate the noise by the scatter within cells and between the cells of a patch; edges, and cells that see two
    surfaces, do not count."""
    counts, side = surface.counts[members.cell], surface.side[members.cell]
    freedom = surface.noise_freedom[members.cell]
    single = _along_ray(surface.noise_scatter.take(members.cell, axis=0), normals, members)
    sigma = before.sigma.copy()
    for lidar in range(len(sigma)):
        of_lidar = side == lidar
        repeated = of_lidar & (freedom >= 1.0)
        if np.count_nonzero(repeated) >= _ENOUGH_CELLS:
            sigma[lidar] = np.sqrt(_variance(single[repeated], freedom[repeated]))
        elif np.count_nonzero(of_lidar) >= _ENOUGH_CELLS:
            scaled = fits.residuals[of_lidar] ** 2 * counts[of_lidar] / members.cosines[of_lidar] ** 2
            sigma[lidar] = np.sqrt(np.median(scaled) / chi_square_quantile(1.0))
    sigma = np.maximum(sigma, _MIN_SIGMA)
    variances = (sigma[side] * members.cosines) ** 2 / counts
    # Three parameters were fitted to every patch, which reduces the residuals.
    share = 1.0 - 3.0 / np.maximum(fits.counts[members.patch], 4.0)
    return Noise(sigma, _excess(fits.residuals**2 / share, variances))


def _excess(squares: np.ndarray, variances: np.ndarray) -> float:
    """Return the r that makes the median of `squares / (variances + r**2)` that of chi-square."""
    if not len(squares):
        return _MIN_ROUGHNESS
    low, high = _MIN_ROUGHNESS, 0.1
    squares = squares / chi_square_quantile(1.0)
    for _ in range(30):
        middle = np.sqrt(low * high)
        if 2 * np.count_nonzero(squares > variances + middle**2) > len(squares):  # the median is larger
            low = middle
        else:
            high = middle
    return float(low)


def clean_cells(surface: Surface, centres: np.ndarray, normals: np.ndarray, members: Members, fits: Fits, noise: Noise,
                slack: float) -> np.ndarray:  # fmt: skip
    """Return a mask (K,) of the members that are cells of one static surface: no outlier, not at an edge, not mixed.

    `slack` (m) is the distance that the two lidars' surfaces may still have.
    """
    inlier = np.abs(fits.residuals) <= TRIM * np.sqrt(noise.variances(surface, members)) + slack
    around = surface.neighbours.take(members.cell, axis=0)
    normal = normals.take(members.patch, axis=0)
    offsets = surface.points.take(around, axis=0) - centres.take(members.patch, axis=0)[:, None]
    heights = np.abs(np.einsum("kni,ki->kn", offsets, normal))
    cosines = np.einsum("kni,ki->kn", surface.rays.take(around, axis=0), normal)
    sigma = noise.sigma[surface.side[members.cell]][:, None]
    deviations = np.sqrt((sigma * cosines) ** 2 / surface.counts[around] + noise.roughness**2)
    # A neighbour on a much nearer or farther surface is harmless: a single return of it in a cell is rejected below.
    interior = ((heights <= 1.25 * TRIM * deviations + slack) | (heights > OBVIOUS_STEP)).all(axis=1)
    freedom = np.maximum(surface.counts[members.cell] - 1.0, 1.0)
    variances = _along_ray(surface.scatter.take(members.cell, axis=0), normals, members) * (freedom + 1.0) / freedom
    ratio = variances / noise.sigma[surface.side[members.cell]] ** 2
    unmixed = ratio <= 1.0 + TRIM * np.sqrt(2.0 / freedom) + 6.0 / freedom
    return inlier & interior & unmixed


def still_cells(surface: Surface, centres: np.ndarray, normals: np.ndarray, members: Members,
                noise: Noise) -> np.ndarray:  # fmt: skip
    """Return a mask (K,) of the members with constant height over the blocks of time; by noise one of 10 000 fails."""
    counts = surface.block_counts.take(members.cell, axis=0)
    offsets = surface.block_points.take(members.cell, axis=0) - centres.take(members.patch, axis=0)[:, None]
    heights = np.einsum("kbi,ki->kb", offsets, normals.take(members.patch, axis=0))
    variances = (noise.sigma[surface.side[members.cell]] * members.cosines)[:, None] ** 2 / np.maximum(counts, 1.0)
    weights = np.where(counts > 0, 1.0 / variances, 0.0)
    mean = (weights * heights).sum(axis=1) / weights.sum(axis=1)
    chi_square = (weights * (heights - mean[:, None]) ** 2).sum(axis=1)
    freedom = (counts > 0).sum(axis=1) - 1.0
    return chi_square <= freedom + 4.0 * np.sqrt(2.0 * freedom) + 8.0
