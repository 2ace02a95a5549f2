"""Estimates the variances of the robot model's errors with the errors themselves: empirical Bayes, by the evidence (D.
MacKay, Bayesian interpolation, 1992). Method: docs/mounts.md."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular

from stretch_sim_cal.calibration.mounts.residuals import RobotUnknowns

SCALES = np.geomspace(3.0, 0.02, 12)  # of the priors' standard deviations, for all joint origins and for all meshes
SCALE_DEVIATION = 0.7  # prior standard deviation of a scale's logarithm: a factor of 2
RELEASED_SCALE = 4.0  # of a released link
LEAST_GAIN = 12.0  # in twice the logarithm of the evidence, for a release; many links are tried
MOST_RELEASED = 3


@dataclass(frozen=True)
class ModelErrors:
    """The `solution` (n,) of a system with its `covariance` (n, n), the scales of joint origins and of meshes, and the
    links (indices) that were `released` as outliers."""

    solution: np.ndarray
    covariance: np.ndarray
    origin_scale: float
    mesh_scale: float
    released: list[int]


def with_model_errors(
    information: np.ndarray, gradient: np.ndarray, unknowns: RobotUnknowns, most_released: int = MOST_RELEASED,
    reached: np.ndarray | None = None,
) -> ModelErrors:  # fmt: skip
    """Solve `information @ step = gradient` (n), including the links' priors, with the variances of the links' errors
    by the returns and at most `most_released` links released. `reached` (n,) are the errors at which the system is
    linearised (joints' zeros): priors are of the whole errors, not of the step."""
    reached = np.zeros(len(gradient)) if reached is None else reached
    system = _System(information, gradient + information @ reached, unknowns)
    released: list[int] = []
    evidence = system.evidence(released)
    while len(released) < min(most_released, len(system.groups)):
        tried = [*released, system.likeliest_outlier(released, evidence)]
        of_tried = system.evidence(tried)
        if of_tried.max() < evidence.max() + LEAST_GAIN:
            break
        released, evidence = tried, of_tried
    errors = system.mean(evidence, released)
    return replace(errors, solution=errors.solution - reached)


class _System:
    """The observable unknowns in `groups` with a scale of their prior: six of each of `count` joint origins, then of
    each mesh, then each zero of a joint."""

    def __init__(self, information: np.ndarray, gradient: np.ndarray, unknowns: RobotUnknowns):
        self._all_priors = priors = unknowns.variances()
        index, num_joints = np.arange(unknowns.size), len(unknowns.joints)
        is_joint = index >= unknowns.first_joint
        is_zero = is_joint & (index < unknowns.first_joint + num_joints)
        asked_for = unknowns.settings.offsets_asked_for
        scaled = (index >= unknowns.first_link) & ~(is_joint & ~is_zero) & ~(is_zero & asked_for)
        unseen = scaled & (information.diagonal() * np.where(scaled, priors, 1.0) < 1.0 + 1e-9)
        self._observable = np.flatnonzero(~unseen)
        self._information = information[np.ix_(self._observable, self._observable)]
        self._gradient = gradient[self._observable]
        self.count = len(unknowns.links)
        group = np.where(is_joint, 2 * self.count + index - unknowns.first_joint, (index - unknowns.first_link) // 6)
        self._scaled = np.flatnonzero(scaled[self._observable])
        self._group, self._priors = (of_all[self._observable][self._scaled] for of_all in (group, priors))
        self._is_mesh = (self._group >= self.count) & (self._group < 2 * self.count)
        self.groups = sorted(set(self._group.tolist()))

    def evidence(self, released: list[int]) -> np.ndarray:
        """Return twice the logarithm of the evidence of every pair of scales, with groups `released`: a row for each
        scale of the meshes, a column for each of the joint origins."""
        evidence, priors = np.full((len(SCALES), len(SCALES)), -np.inf), (np.log(SCALES) / SCALE_DEVIATION) ** 2
        for row, mesh in enumerate(SCALES):
            try:
                evidence[row] = self._reduced(mesh, released).evidence
            except LinAlgError:  # by rounding, if a group is released that nothing determines
                continue
        return evidence - priors[:, None] - priors

    def likeliest_outlier(self, released: list[int], evidence: np.ndarray) -> int:
        """Return the group whose release gains most evidence at the best scales, by Woodbury's formula."""
        mesh, origin = SCALES[np.array(np.unravel_index(evidence.argmax(), evidence.shape))]
        variances, information = self._variances(origin, mesh, released), self._information.copy()
        information[self._scaled, self._scaled] += 1.0 / variances - 1.0 / self._priors
        factor = cho_factor(information, lower=True, overwrite_a=True, check_finite=False)
        solution, covariance = (cho_solve(factor, right) for right in (self._gradient, np.eye(len(information))))
        gains = {}
        for group in self.groups:
            if group in released:
                continue
            members = self._group == group
            columns, inflated = self._scaled[members], RELEASED_SCALE**2 * self._priors[members]
            change = 1.0 / inflated - 1.0 / variances[members]
            updated = np.eye(len(columns)) + change[:, None] * covariance[np.ix_(columns, columns)]
            explained = -solution[columns] @ np.linalg.solve(updated, change * solution[columns])
            gains[group] = explained - np.linalg.slogdet(updated)[1] - np.log(inflated / variances[members]).sum()
        return max(gains, key=gains.__getitem__)

    def mean(self, evidence: np.ndarray, released: list[int]) -> ModelErrors:
        """Return the mean over pairs of scales, with groups `released`, and the covariance within and between them."""
        weights = np.exp(0.5 * (evidence - evidence.max()))
        weights[weights <= 1e-4] = 0.0  # weight of a pair of scales, as a share of the largest one
        weights /= weights.sum()
        rows = np.flatnonzero(weights.any(axis=1))
        by_row = [self._reduced(SCALES[row], released).posterior(weights[row]) for row in rows]
        by_pair, shares = np.concatenate([solutions for solutions, _ in by_row]), weights[rows].ravel()
        within, mean = sum(covariance for _, covariance in by_row), shares @ by_pair
        deviations = np.sqrt(shares)[:, None] * (by_pair - mean)
        solution, covariance = np.zeros(len(self._all_priors)), np.diag(self._all_priors)
        solution[self._observable] = mean
        covariance[np.ix_(self._observable, self._observable)] = within + deviations.T @ deviations
        origin_scale, mesh_scale = (float(np.exp(weights.sum(axis=axis) @ np.log(SCALES))) for axis in (0, 1))
        links = sorted({group % self.count for group in released if group < 2 * self.count})
        return ModelErrors(solution, covariance, origin_scale, mesh_scale, links)

    def _variances(self, origin_scale: float, mesh_scale: float, released: list[int]) -> np.ndarray:
        scales = np.where(self._is_mesh, mesh_scale, origin_scale)
        scales[np.isin(self._group, released)] = RELEASED_SCALE
        return self._priors * scales**2

    def _reduced(self, mesh_scale: float, released: list[int]) -> "_OriginScales":
        """Return the system at one scale of the meshes. Raises `LinAlgError`."""
        of_origins = ~self._is_mesh & ~np.isin(self._group, released)
        variances = np.where(of_origins, np.inf, self._variances(1.0, mesh_scale, released))
        information = self._information.copy()
        information[self._scaled, self._scaled] += 1.0 / variances - 1.0 / self._priors
        origins = self._scaled[of_origins]
        constant = np.log(variances[~of_origins]).sum()
        return _OriginScales(information, self._gradient, origins, np.sqrt(self._priors[of_origins]), constant)


class _OriginScales:
    """A system at all scales of the joint origins at once: the unknowns in columns `origins` (m,), whose `information`
    (n, n) is without their priors of standard deviations (m,), are diagonalised in units of these, with the others
    eliminated. `evidence` (s,) is twice its logarithm at every scale but for a `constant`."""

    def __init__(
        self, information: np.ndarray, gradient: np.ndarray, origins: np.ndarray, deviations: np.ndarray,
        constant: float,
    ):  # fmt: skip
        self._origins, self._others = origins, np.setdiff1d(np.arange(len(gradient)), origins)
        self._root = cholesky(information[np.ix_(self._others, self._others)], lower=True, check_finite=False)
        coupled = np.column_stack([information[np.ix_(self._others, origins)] * deviations, gradient[self._others]])
        self._half = half = solve_triangular(self._root, coupled, lower=True, check_finite=False)
        of_origins = information[np.ix_(origins, origins)] * np.outer(deviations, deviations)
        strengths, axes = np.linalg.eigh(of_origins - half[:, :-1].T @ half[:, :-1])
        along = axes.T @ (deviations * gradient[origins] - half[:, :-1].T @ half[:, -1])
        strengths, precisions = np.maximum(strengths, 0.0), SCALES[:, None] ** -2.0  # a row for each scale
        self._variances, self._along = 1.0 / (strengths + precisions), along / (strengths + precisions)
        self._axes = np.vstack([deviations[:, None] * axes, axes])  # of the unknowns, and in units of their priors
        size = 2.0 * np.log(self._root.diagonal()).sum() + np.log1p(strengths / precisions).sum(axis=1)
        self.evidence = half[:, -1] @ half[:, -1] + self._along @ along - size - constant

    def posterior(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the solutions (s, n) at every scale, and the sum (n, n) of their covariances with these weights
        (s,)."""
        inverse = solve_triangular(self._root, np.eye(len(self._root)), lower=True, check_finite=False)
        of_others, number = inverse.T @ self._half, len(self._origins)
        axes = np.empty((number + len(self._others), number))
        axes[self._origins], axes[self._others] = self._axes[:number], -of_others[:, :-1] @ self._axes[number:]
        solutions = self._along @ axes.T
        solutions[:, self._others] += of_others[:, -1]
        covariance = (axes * (weights @ self._variances)) @ axes.T
        covariance[np.ix_(self._others, self._others)] += weights.sum() * inverse.T @ inverse
        return solutions, covariance
