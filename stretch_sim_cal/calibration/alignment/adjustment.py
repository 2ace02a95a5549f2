"""The adjustment: the twist of the right lidar that closes the gaps between both lidars' planes, patch by patch.

Each patch gives one number, the gap along the normal between the plane through the left lidar's cells and the one
through the right lidar's, at the spot where the two together know it best. Both planes come from all frames and are
treated alike. The slopes are not compared: on a surface that is slightly curved they would pretend to hold the lidar
along it. This is plane adjustment (as in Liu and Zhang, BALM, RA-L 2021; Zhou et al., pi-LSAM, 2021) with the planes
eliminated patch by patch.
"""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.alignment.patches import MIN_CELLS, Fits, Patches

# Tukey's biweight: 95 % efficient under normal noise.
_TUKEY = 4.685
_MAX_MISFIT = 4.0
# Patches whose normal is not known this well (rad) are left out.
MAX_SLOPE_DEVIATION = 0.02
_CHANCE_MARGIN = 3.0


@dataclass(frozen=True)
class Gaps:
    """Right minus left height (m) at `points` (G, 3) along `normals` (G, 3), their `variances` (G,); `slope_axes`
    (G, 2, 3) and `slope_covariances` (G, 2, 2) tell how well the normals are known. `patches` (G,) says of which patches
    they are, `designs` (G, 3) where on their planes."""

    patches: np.ndarray
    designs: np.ndarray
    values: np.ndarray
    variances: np.ndarray
    points: np.ndarray
    normals: np.ndarray
    slope_axes: np.ndarray
    slope_covariances: np.ndarray

    @property
    def jacobian(self) -> np.ndarray:
        """How the gaps (G, 6) change with a twist of the right lidar in the left frame."""
        return np.hstack([self.normals, np.cross(self.points, self.normals)])


def measure_gaps(patches: Patches, left: Fits, right: Fits) -> Gaps:
    """Return the gaps of the patches that both lidars see as flat."""
    difference = left.covariances + right.covariances
    spot = -np.linalg.solve(difference[:, 1:, 1:], difference[:, 1:, :1])[:, :, 0]
    design = np.hstack([np.ones((len(spot), 1)), spot])
    slope_deviations = 0.5 * np.sqrt(np.linalg.eigvalsh(difference[:, 1:, 1:])[:, -1])
    usable = (
        _flat(left) & _flat(right) & (np.linalg.norm(spot, axis=1) < 0.75 * patches.sizes)
        & (slope_deviations < MAX_SLOPE_DEVIATION)
    )  # fmt: skip
    spot, design, difference = spot[usable], design[usable], difference[usable]
    slopes = 0.5 * (left.coefficients + right.coefficients)[usable, 1:]
    height = 0.5 * np.einsum("gi,gi->g", design, (left.coefficients + right.coefficients)[usable])
    axes = patches.axes[usable]
    normals = patches.normals[usable] - np.einsum("ga,gai->gi", slopes, axes)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return Gaps(
        patches=np.flatnonzero(usable), designs=design,
        values=np.einsum("gi,gi->g", design, (right.coefficients - left.coefficients)[usable]),
        variances=np.einsum("gi,gij,gj->g", design, difference, design),
        points=patches.centres[usable] + np.einsum("ga,gai->gi", spot, axes) + height[:, None] * patches.normals[usable],
        normals=normals, slope_axes=axes, slope_covariances=0.25 * difference[:, 1:, 1:],
    )  # fmt: skip


def _flat(fits: Fits) -> np.ndarray:
    """Return which patches (G,) have members enough and residuals no larger than their noise explains."""
    freedom = np.maximum(fits.counts - 3.0, 1.0)
    return (fits.counts >= MIN_CELLS) & (fits.misfits / freedom < 1.0 + _MAX_MISFIT * np.sqrt(2.0 / freedom))


@dataclass(frozen=True)
class TukeyFit:
    """A robust fit: `twist` (6,), the residuals in standard deviations `normalised` (G,), their `weights` (G,) from 0
    (outlier) to 1, and `scale`: how many times larger than expected the residuals are, at least 1."""

    twist: np.ndarray
    normalised: np.ndarray
    weights: np.ndarray
    scale: float


def tukey_fit(jacobian: np.ndarray, values: np.ndarray, variances: np.ndarray) -> TukeyFit:
    """Return the twist that brings `values + jacobian @ twist` to zero (Tukey's weights, their width from the median).

    Directions that the jacobian (G, 6) says nothing about are left alone.
    """
    deviations = np.sqrt(variances)
    twist = np.zeros(6)
    for _ in range(30):
        normalised = (values + jacobian @ twist) / deviations
        width = _TUKEY * max(1.0, 1.4826 * float(np.median(np.abs(normalised)))) if len(values) else _TUKEY
        weights = np.where(np.abs(normalised) < width, (1.0 - (normalised / width) ** 2) ** 2, 0.0)
        weighted = jacobian * (weights / variances)[:, None]
        update = solve_semidefinite(weighted.T @ jacobian, -weighted.T @ (values + jacobian @ twist))
        twist = twist + update
        if np.abs(update).max() < 1e-8:
            break
    normalised = (values + jacobian @ twist) / deviations
    kept = weights > 0
    misfit = float(np.sum(normalised[kept] ** 2)) / max(np.count_nonzero(kept) - 6.0, 1.0)
    return TukeyFit(twist, normalised, weights, max(1.0, float(np.sqrt(misfit))))


def information_by_chance(gaps: Gaps, weights: np.ndarray) -> np.ndarray:
    """Return how much information (6, 6) about the twist may come from nothing but the normals' noise.

    A normal that errs by chance has a little of every direction in it; over many patches of a bare corridor that adds
    up to what looks like information about sliding along it. With a margin, since it varies by chance, too.
    """
    per_gap = weights / gaps.variances
    tilts = np.concatenate([gaps.slope_axes, np.cross(gaps.points[:, None], gaps.slope_axes)], axis=2)
    return _CHANCE_MARGIN * np.einsum("g,gai,gab,gbj->ij", per_gap, tilts, gaps.slope_covariances, tilts)


def solve_semidefinite(matrix: np.ndarray, right_side: np.ndarray) -> np.ndarray:
    """Solve a symmetric positive semi-definite system; directions a millionfold weaker than the rest get zero."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    inverse = np.where(values > 1e-6 * values[-1], 1.0 / np.maximum(values, 1e-300), 0.0)
    return vectors @ (inverse * (vectors.T @ (right_side / scale))) / scale
