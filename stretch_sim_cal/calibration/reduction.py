"""What is taken out of normal equations: the errors by which channels differ from surface to surface, all of the
lidars' errors, and the information about the lidars' poses that is by noise of the normals alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, lapack, solve_triangular

from stretch_sim_cal.calibration.problem import RANGES, NormalEquations

# The smallest share of a direction's information that is kept: nearly none, so that the pose's prior constrains it.
LEAST_KEPT = 1e-12
# Where noise of the normals has a larger share of the information, the poses are held where they are by so many times
# its information.
BY_NOISE, HELD = 0.6, 2.5
# Prior precision of a channel's mean error over all ranges beside that of each, in which alone it has none.
BY_SURFACE_ALONE = 10.0


class SurfaceErrors:
    """The errors by which channels differ from surface to surface, a row of them for each channel: their own
    `information` (s, s) and `gradient` (s,), and the `coupling` (k, s) with the `others`, equations without them."""

    def __init__(self, others: NormalEquations, coupling: np.ndarray, information: np.ndarray, gradient: np.ndarray):
        seen = np.flatnonzero(np.diag(information) > 0)
        channel = seen // len(RANGES)
        # What a channel's errors have in common is one that it has on all surfaces.
        self.prior = np.eye(len(seen)) + BY_SURFACE_ALONE * (channel[:, None] == channel)
        self.others, self.own = others, information[np.ix_(seen, seen)]
        self.about_all = np.column_stack([coupling.T[seen], gradient[seen]])

    def eliminated(self, deviation: float) -> tuple[NormalEquations, float]:
        """Return the others with these errors eliminated (Schur complement) under a prior of this standard deviation
        (m), and the log evidence for it as far as it is of these errors alone."""
        root = cholesky_root(self.own + self.prior / deviation**2)
        half = solve_triangular(root, self.about_all, lower=True, check_finite=False)
        products, others = half.T @ half, self.others
        information, gradient = others.information - products[:-1, :-1], others.gradient - products[:-1, -1]
        left = NormalEquations(information, gradient, others.noise)
        return left, float(0.5 * products[-1, -1] - np.sum(np.log(np.diag(root) * deviation)))

    def most_likely(
        self, deviations: Sequence[float], present: float, prior: np.ndarray
    ) -> tuple[float, NormalEquations]:  # fmt: skip
        """Return the most likely of these deviations, beginning with the `present` one, given the `prior` precision (k,
        k) of the others, about which the equations are as if all of them were zero, and what `eliminated` leaves under
        it."""
        tried = {}

        def evidence(number: int) -> float:
            if number not in tried:
                left, log_evidence = self.eliminated(deviations[number])
                root = cholesky_root(left.information + prior)
                half = solve_triangular(root, left.gradient, lower=True, check_finite=False)
                tried[number] = left, log_evidence + 0.5 * half @ half - np.sum(np.log(np.diag(root)))
            return tried[number][1]

        best, before = deviations.index(present), None
        while best != before:
            before = best
            best = max(range(max(best - 1, 0), min(best + 2, len(deviations))), key=evidence)
        return deviations[best], tried[best][0]


@dataclass(frozen=True)
class NoisyPoses:
    """The `columns` (p,) of poses of whose information (k, k) `noise` (p, p) is by noise alone, all but what comes from
    `elsewhere` (k, k) and the priors; `like_poses` (t,) are columns of errors whose derivatives are nearly those of
    poses, and as noisy: waves of directions, and shifts of optical centres."""

    columns: np.ndarray
    noise: np.ndarray
    elsewhere: np.ndarray
    like_poses: np.ndarray

    def held(self, information: np.ndarray, root: np.ndarray, axes: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Return the Cholesky factor (k, k) of an information, which is overwritten, with its `root`, with what holds
        poses that noise seems to determine by its `shares`."""
        axes, shares = axes[:, shares > BY_NOISE], shares[shares > BY_NOISE]
        if not len(shares):
            return root
        information[np.ix_(self.columns, self.columns)] += HELD * (axes * shares) @ axes.T
        return cholesky_root(information)

    def less_noise(self, information: np.ndarray, axes: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Return the Cholesky factor (k, k) of an information, which is overwritten, without that of noise by its
        `shares`."""
        information[np.ix_(self.columns, self.columns)] -= (axes * (1.0 - kept_shares(shares))) @ axes.T
        return cholesky_root(information)

    def shares(self, root: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the directions A (p, p) and the shares (p,) of noise, as of `noise_shares`, by the Cholesky factor of
        an information (k, k) and its `prior` (k, k). To eliminate the errors that are like poses takes away noise and
        information alike."""
        elsewhere = self.elsewhere + prior
        of_poses = slice(len(self.columns))
        columns = np.concatenate([self.columns, self.like_poses])
        fixed = information_about(root, columns)[of_poses, of_poses] - _alone(elsewhere, columns)[of_poses, of_poses]
        eliminated = information_about(root, self.columns) - _alone(elsewhere, self.columns)
        whole = square_root(fixed)
        left, axes = np.linalg.eigh(np.linalg.solve(whole, np.linalg.solve(whole, eliminated).T))
        remaining = whole @ (axes * np.sqrt(np.clip(left, 0.0, 1.0))) @ axes.T @ np.linalg.inv(whole)
        return noise_shares(eliminated, remaining @ self.noise @ remaining.T)


@dataclass(frozen=True)
class Marginalised:
    """Normal equations `information` (k, k) and `gradient` (k,) over the `columns` (k,) of all unknowns but the lidars'
    errors, which are eliminated under their priors (Schur complement)."""

    information: np.ndarray
    gradient: np.ndarray
    columns: np.ndarray
    _basis: np.ndarray
    _factor: tuple
    _coupling: np.ndarray
    _unit_gradient: np.ndarray

    def change(self, solution: np.ndarray) -> np.ndarray:
        """Return the change (n,) of all unknowns by a solution (k,) of these equations (back substitution)."""
        change = self._basis @ cho_solve(self._factor, self._unit_gradient - self._coupling.T @ solution)
        change[self.columns] = solution
        return change

    def covariance_of_units(self, covariance: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the covariance (r, r) of the lidars' errors in `rows` (r,), given that (k, k) of the solution."""
        by_units = cho_solve(self._factor, self._basis[rows].T)
        by_others = self._coupling @ by_units
        return self._basis[rows] @ by_units + by_others.T @ covariance @ by_others


def information_about(root: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the information (c, c) about the unknowns in `columns` (c,) with the others eliminated, by the Cholesky
    factor (k, k) of that about all."""
    chosen = np.zeros((len(root), len(columns)))
    chosen[columns, np.arange(len(columns))] = 1.0
    half = solve_triangular(root, chosen, lower=True, overwrite_b=True, check_finite=False)
    return np.linalg.inv(half.T @ half)


def _alone(information: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the same of an information (k, k) about all, which mostly has nothing about these and the others
    together."""
    chosen = information[np.ix_(columns, columns)]
    if np.count_nonzero(information[columns]) == np.count_nonzero(chosen):
        return chosen
    return information_about(cholesky_root(information.copy()), columns)


def square_root(information: np.ndarray) -> np.ndarray:
    """Return a regular R (p, p) with R R' = `information` (p, p), which may be singular."""
    values, axes = np.linalg.eigh(information)
    return axes * np.sqrt(np.maximum(values, LEAST_KEPT * max(values[-1], 1.0)))


def noise_shares(information: np.ndarray, noise_information: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return directions, the columns of A (p, p), and the `shares` (p,) of noise in the information about the poses
    along them: A A' is the `information` (p, p), all other unknowns eliminated, and A diag(shares) A' the
    `noise_information` (p, p) that it contains."""
    root = square_root(information)
    whitened = np.linalg.solve(root, np.linalg.solve(root, noise_information).T)
    shares, directions = np.linalg.eigh((whitened + whitened.T) / 2)
    return root @ directions, shares


def kept_shares(shares: np.ndarray) -> np.ndarray:
    """Return the shares (p,) of the information that remain, given those of noise.

    Noise in the normals does not depend on the other unknowns' derivatives: it adds to the information M about the
    poses that is left when these are eliminated, while the gradient changes by M - N only if the poses do, and keeps
    the covariance M: so that of the poses is (M - N)^-1 M (M - N)^-1 (W. Fuller, "Measurement Error Models", 1987).
    """
    return np.maximum(1.0 - shares, 0.0) ** 2 + LEAST_KEPT


def cholesky_root(matrix: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor (k, k) of a symmetric matrix, which is overwritten."""
    return cholesky(matrix.T, lower=True, overwrite_a=True, check_finite=False)


def inverse_of_root(root: np.ndarray) -> np.ndarray:
    """Return the inverse of a matrix (k, k) from its lower Cholesky factor."""
    if not len(root):  # LAPACK prints a complaint
        return root
    lower, _ = lapack.dpotri(root, lower=1)
    inverse = lower + lower.T
    inverse[np.diag_indices(len(inverse))] /= 2.0
    return inverse
