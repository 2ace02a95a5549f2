"""Estimates the variances of the robot model's errors with the errors themselves: empirical Bayes, by the evidence (D.
MacKay, Bayesian interpolation, 1992). Method: docs/mounts.md."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

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
        self.groups = sorted(set(self._group.tolist()))

    def evidence(self, released: list[int]) -> np.ndarray:
        """Return twice the logarithm of the evidence of every pair of scales, with groups `released`: a row for each
        scale of the meshes, a column for each of the joint origins."""
        evidence, priors = np.full((len(SCALES), len(SCALES)), -np.inf), (np.log(SCALES) / SCALE_DEVIATION) ** 2
        for row, mesh in enumerate(SCALES):
            for column, origin in enumerate(SCALES):
                try:
                    factor, solution = self._solved(origin, mesh, released)
                except LinAlgError:  # by rounding, if a group is released that nothing determines
                    continue
                size = 2.0 * np.log(factor[0].diagonal()).sum()
                size += np.log(self._variances(origin, mesh, released)).sum()
                evidence[row, column] = self._gradient @ solution - size
        return evidence - priors[:, None] - priors

    def likeliest_outlier(self, released: list[int], evidence: np.ndarray) -> int:
        """Return the group whose release gains most evidence at the best scales, by Woodbury's formula."""
        mesh, origin = SCALES[np.array(np.unravel_index(evidence.argmax(), evidence.shape))]
        factor, solution = self._solved(origin, mesh, released)
        covariance, variances = cho_solve(factor, np.eye(len(solution))), self._variances(origin, mesh, released)
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
        pairs, solutions, within = np.argwhere(weights), [], np.zeros_like(self._information)
        for row, column in pairs:
            factor, solution = self._solved(SCALES[column], SCALES[row], released)
            solutions.append(solution)
            within += weights[row, column] * cho_solve(factor, np.eye(len(solution)))
        shares, by_pair = weights[tuple(pairs.T)], np.array(solutions)
        mean = shares @ by_pair
        deviations = np.sqrt(shares)[:, None] * (by_pair - mean)
        solution, covariance = np.zeros(len(self._all_priors)), np.diag(self._all_priors)
        solution[self._observable] = mean
        covariance[np.ix_(self._observable, self._observable)] = within + deviations.T @ deviations
        origin_scale, mesh_scale = (float(np.exp(weights.sum(axis=axis) @ np.log(SCALES))) for axis in (0, 1))
        links = sorted({group % self.count for group in released if group < 2 * self.count})
        return ModelErrors(solution, covariance, origin_scale, mesh_scale, links)

    def _variances(self, origin_scale: float, mesh_scale: float, released: list[int]) -> np.ndarray:
        is_mesh = (self._group >= self.count) & (self._group < 2 * self.count)
        scales = np.where(is_mesh, mesh_scale, origin_scale)
        scales[np.isin(self._group, released)] = RELEASED_SCALE
        return self._priors * scales**2

    def _solved(self, origin_scale: float, mesh_scale: float, released: list[int]) -> tuple[tuple, np.ndarray]:
        """Return the Cholesky factor of the system at these scales, and its solution. Raises `LinAlgError`."""
        information = self._information.copy()
        variances = self._variances(origin_scale, mesh_scale, released)
        information[self._scaled, self._scaled] += 1.0 / variances - 1.0 / self._priors
        factor = cho_factor(information, lower=True, overwrite_a=True, check_finite=False)
        return factor, cho_solve(factor, self._gradient, check_finite=False)
