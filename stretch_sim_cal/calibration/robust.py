"""Robust statistics: Tukey's biweight, a robust standard deviation, quantiles, and the robust fit of a twist."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

TUKEY = 4.685  # standard deviations at which Tukey's weights reach 0: 95 % efficient under normal noise
TUKEY_SEARCH = 3.0  # the same while a pose is searched for, among many outliers
MAD = 1.4826  # standard deviation of normal noise over its median absolute deviation


def tukey_weights(ratios: np.ndarray) -> np.ndarray:
    """Return Tukey's weights (N,) of residuals over the width at which the weight is 0; 0 for NaN."""
    return np.fmax(0.0, 1.0 - ratios**2) ** 2


def robust_deviation(residuals: np.ndarray) -> float:
    """Return the standard deviation of residuals (N,) about 0 by their median absolute value."""
    return MAD * float(np.median(np.abs(residuals)))


def weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> np.ndarray:
    """Return the lower weighted quantile (M,) of rows (M, N) under `weights` (N,) or (M, N), not all 0."""
    order = np.argsort(values, axis=1)
    cumulated = np.cumsum(np.take_along_axis(np.broadcast_to(weights, values.shape), order, axis=1), axis=1)
    place = np.argmax(cumulated >= share * cumulated[:, -1:], axis=1)[:, None]
    return np.take_along_axis(values, np.take_along_axis(order, place, axis=1), axis=1)[:, 0]


@dataclass(frozen=True)
class TukeyFit:
    """A robust fit: `twist` (n,), of one lidar or of several, the residuals' `weights` (G,) from 0 (outlier) to 1, and
    `scale`: that of the residuals over their standard deviations, at least 1."""

    twist: np.ndarray
    weights: np.ndarray
    scale: float


Matrix = Any  # np.ndarray or sparse.sparray


def products(first: Matrix, weights: np.ndarray, second: Matrix) -> np.ndarray:
    """Return F' W S (m, n) of matrices (K, m) and (K, n), sparse or not, and `weights` (K,)."""
    weighted = first.multiply(weights[:, None]).tocsr() if sparse.issparse(first) else first * weights[:, None]
    product = weighted.T @ second
    return product.toarray() if sparse.issparse(product) else product


def robust_equations(
    jacobian: Matrix, residuals: np.ndarray, least: float, width: float = TUKEY
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one iteration of a robust fit: the normal equations (n, n) and (n,) of `residuals` (K,) and their
    `jacobian` (K, n), sparse or not, and Tukey's weights (K,), which are 0 from `width` standard deviations on. The
    standard deviation is that of the residuals, but not smaller than `least`."""
    deviation = max(least, robust_deviation(residuals)) if len(residuals) else least
    weights = tukey_weights(residuals / (width * deviation))
    precisions = weights / deviation**2
    return products(jacobian, precisions, jacobian), -(jacobian.T @ (precisions * residuals)), weights


def tukey_fit(jacobian: Matrix, values: np.ndarray, variances: np.ndarray) -> TukeyFit:
    """Return the twist that minimises `values + jacobian @ twist` (Tukey's weights, their width from the median).

    Directions that the jacobian (G, n), sparse or not, does not contain stay 0.
    """
    twist, deviations = np.zeros(jacobian.shape[1]), np.sqrt(variances)
    if not len(twist):
        return TukeyFit(twist, np.ones(len(values)), 1.0)
    values = values / deviations
    if sparse.issparse(jacobian):
        jacobian = jacobian.multiply(1.0 / deviations[:, None]).tocsr()
    else:
        jacobian = jacobian / deviations[:, None]
    for _ in range(30):
        information, gradient, weights = robust_equations(jacobian, values + jacobian @ twist, 1.0)
        update = _solve_semidefinite(information, gradient)
        twist = twist + update
        if np.abs(update).max() < 1e-8:
            break
    kept = weights > 0
    variance = float(np.sum((values + jacobian @ twist)[kept] ** 2))
    variance /= max(np.count_nonzero(kept) - float(len(twist)), 1.0)
    return TukeyFit(twist, weights, max(1.0, float(np.sqrt(variance))))


def _solve_semidefinite(matrix: np.ndarray, right_side: np.ndarray) -> np.ndarray:
    """Solve a symmetric positive semi-definite system; directions a millionfold weaker than the strongest get 0."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    inverse = np.where(values > 1e-6 * values[-1], 1.0 / np.maximum(values, 1e-300), 0.0)
    return vectors @ (inverse * (vectors.T @ (right_side / scale))) / scale


def chi_square_quantile(freedom: np.ndarray, deviations: float = 0.0) -> np.ndarray:
    """Return the median of chi-square divided by its degrees of freedom, or the quantile that is as many standard
    deviations of a normal distribution above it (Wilson-Hilferty)."""
    share = 2.0 / (9.0 * np.asarray(freedom))
    return (1.0 - share + deviations * np.sqrt(share)) ** 3
