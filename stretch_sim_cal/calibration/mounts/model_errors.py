"""Estimates the variances of the robot model's errors with the errors themselves (empirical Bayes).

Two scales multiply the priors' standard deviations: one of all joint origins, one of all meshes. The returns determine
them, since a joint origin moves all that it carries and a mesh only itself, and since every lidar sees many links. The
result is the mean over a grid of pairs of scales, weighted by the evidence of each (links marginalised; D. MacKay,
Bayesian interpolation, 1992) and by a prior of the scales; the covariance is that within the pairs and between them.
The errors of base and mast are not observable, since these are seen alike in all poses: they have the same scales as
the other links. Zeros of joints that were not asked for have the scale of the joint origins. A link, or zero, that is
an outlier among the others is released. The sizes of the joints' other errors are updated from step to step
(`RobotUnknowns.learn`).
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from stretch_sim_cal.calibration.mounts.result import MountSettings
from stretch_sim_cal.calibration.mounts.system import RobotUnknowns, model_variances

SCALES = np.geomspace(3.0, 0.02, 12)  # of the priors' standard deviations, for all joint origins and for all meshes
SCALE_DEVIATION = 0.7  # prior standard deviation of a scale's logarithm: a factor of 2
RELEASED_SCALE = 4.0  # of a released link
LEAST_GAIN = 12.0  # in twice the logarithm of the evidence, for a release; many links are tried
MOST_RELEASED = 3
NEGLIGIBLE = 1e-4  # weight of a pair of scales, as a share of the largest one


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
    information: np.ndarray, gradient: np.ndarray, unknowns: RobotUnknowns, settings: MountSettings,
    most_released: int = MOST_RELEASED, reached: np.ndarray | None = None,
) -> ModelErrors:  # fmt: skip
    """Solve `information @ step = gradient` (n), including the links' priors, with the variances of the links' errors
    by the returns and at most `most_released` links released. `reached` (n,) are the errors at which the system is
    linearised (joints' zeros): priors are of the whole errors, not of the step."""
    reached = np.zeros(len(gradient)) if reached is None else reached
    system = _System(information, gradient + information @ reached, unknowns, settings)
    released: list[int] = []
    evidence = system.evidence(released)
    while len(released) < min(most_released, system.num_groups):
        tried = [*released, system.likeliest_outlier(released, evidence)]
        of_tried = system.evidence(tried)
        if of_tried.max() < evidence.max() + LEAST_GAIN:
            break
        released, evidence = tried, of_tried
    whole = system.mean(evidence, released)
    return replace(whole, solution=whole.solution - reached)


class _AtMeshScale:
    """A system at one scale of the meshes, with the other unknowns (b) eliminated from those of joint origins (a). The
    latter are in units of their priors and along the eigenvectors of the reduced system, so that any scale of the joint
    origins costs a sum."""

    def __init__(self, information: np.ndarray, gradient: np.ndarray, origins: np.ndarray, priors: np.ndarray):
        """`information` (n, n) is without the priors of the joint origins, in the mask `origins` (n,), whose variances
        are `priors` (n,). Raises `LinAlgError` if nothing determines the others."""
        a, b = np.flatnonzero(origins), np.flatnonzero(~origins)
        roots = np.sqrt(priors[a])
        self._order, self._others = np.concatenate([b, a]), len(b)
        factor = cho_factor(information[np.ix_(b, b)], lower=True)
        coupling = information[np.ix_(b, a)] * roots
        known = cho_solve(factor, np.column_stack([gradient[b], coupling]))
        by_origins = roots[:, None] * information[np.ix_(a, a)] * roots - coupling.T @ known[:, 1:]
        self._values, vectors = np.linalg.eigh((by_origins + by_origins.T) / 2)
        self._right = vectors.T @ (roots * gradient[a] - coupling.T @ known[:, 0])
        self._fixed = np.concatenate([known[:, 0], np.zeros(len(a))])
        self._along = np.vstack([-known[:, 1:] @ vectors, roots[:, None] * vectors])
        self._factor = factor
        self._explained = float(gradient[b] @ known[:, 0])
        self._size = 2.0 * float(np.log(np.diag(factor[0])).sum())

    def evidence(self, scale: float) -> float:
        """Return twice the logarithm of the evidence at a scale of the joint origins, without the meshes' variances."""
        precisions = self._values + scale**-2
        explained = self._explained + (self._right**2 / precisions).sum()
        return float(explained - self._size - np.log(precisions * scale**2).sum())

    def solution(self, scale: float) -> np.ndarray:
        """Return the solution (n,) at a scale of the joint origins."""
        solution = np.empty(len(self._order))
        solution[self._order] = self._fixed + self._along @ (self._right / (self._values + scale**-2))
        return solution

    def covariance(self, scales: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the weighted sum (n, n) of the covariances at scales (k,) of the joint origins, weights (k,)."""
        variances = (weights / (self._values[:, None] + scales**-2.0)).sum(axis=1)
        ordered = (self._along * variances) @ self._along.T
        b = slice(0, self._others)
        ordered[b, b] += weights.sum() * cho_solve(self._factor, np.eye(self._others))
        covariance = np.empty_like(ordered)
        covariance[np.ix_(self._order, self._order)] = ordered
        return covariance


class _System:
    """The observable unknowns in groups with a scale of their prior: six of each of `count` joint origins, then of each
    mesh, then each zero of a joint."""

    def __init__(self, information, gradient, unknowns: RobotUnknowns, settings: MountSettings):
        priors = model_variances(unknowns, settings)
        index, num_joints = np.arange(unknowns.size), len(unknowns.joints)
        is_joint = index >= unknowns.first_joint
        is_zero = is_joint & (index < unknowns.first_joint + num_joints)
        scaled = (index >= unknowns.first_link) & ~(is_joint & ~is_zero) & ~(is_zero & settings.offsets_asked_for)
        unseen = scaled & (information.diagonal() * np.where(scaled, priors, 1.0) < 1.0 + 1e-9)
        self._observable = np.flatnonzero(~unseen)
        self._scaled, self._priors = scaled[self._observable], priors[self._observable]
        self.count = len(unknowns.links)
        group = np.where(is_joint, 2 * self.count + index - unknowns.first_joint, (index - unknowns.first_link) // 6)
        self._group = group[self._observable]
        self.num_groups = len(set(self._group[self._scaled]))
        self._is_mesh = (self._group >= self.count) & (self._group < 2 * self.count)
        self._information = information[np.ix_(self._observable, self._observable)]
        self._gradient = gradient[self._observable]
        self._all_priors = priors

    def evidence(self, released: list[int]) -> np.ndarray:
        """Return twice the logarithm of the evidence of every pair of scales, with groups `released`: a row for each
        scale of the meshes, a column for each of the joint origins."""
        others = self._scaled & ~self._of_origins(released)
        evidence, priors = np.full((len(SCALES), len(SCALES)), -np.inf), (np.log(SCALES) / SCALE_DEVIATION) ** 2
        for row, mesh in enumerate(SCALES):
            at = self._at(mesh, released)
            if at is not None:
                size = np.log(self._variances(1.0, mesh, released)[others]).sum()
                evidence[row] = [at.evidence(origin) - size for origin in SCALES]
        return evidence - priors[:, None] - priors

    def likeliest_outlier(self, released: list[int], evidence: np.ndarray) -> int:
        """Return the group whose release, after those `released`, gains most evidence at the present best scales."""
        mesh, origin = SCALES[np.array(np.unravel_index(evidence.argmax(), evidence.shape))]
        variances = self._variances(origin, mesh, released)
        system = self._at(mesh, released)
        solution, covariance = system.solution(origin), system.covariance(np.array([origin]), np.ones(1))
        gains = {
            group: self._gain(self._group == group, variances, solution, covariance)
            for group in sorted(set(self._group[self._scaled]) - set(released))
        }
        return int(max(gains, key=gains.__getitem__))

    def mean(self, evidence: np.ndarray, released: list[int]) -> ModelErrors:
        """Return the mean over pairs of scales, with groups `released`, and the covariance within and between them."""
        weights = np.exp(0.5 * (evidence - evidence.max()))
        weights[weights <= NEGLIGIBLE] = 0.0
        weights /= weights.sum()
        solutions, observed = [], np.zeros_like(self._information)
        for row in np.flatnonzero(weights.any(axis=1)):
            system, heavy = self._at(SCALES[row], released), np.flatnonzero(weights[row])
            observed += system.covariance(SCALES[heavy], weights[row, heavy])
            solutions += [(weights[row, column], system.solution(SCALES[column])) for column in heavy]
        mean = sum(weight * solution for weight, solution in solutions)
        off = np.array([np.sqrt(weight) * (solution - mean) for weight, solution in solutions])
        solution, covariance = np.zeros(len(self._all_priors)), np.diag(self._all_priors)
        solution[self._observable] = mean
        covariance[np.ix_(self._observable, self._observable)] = observed + off.T @ off
        origin_scale, mesh_scale = (float(np.exp(weights.sum(axis=axis) @ np.log(SCALES))) for axis in (0, 1))
        links = sorted({group % self.count for group in released if group < 2 * self.count})
        return ModelErrors(solution, covariance, origin_scale, mesh_scale, links)

    def _gain(self, group: np.ndarray, variances: np.ndarray, solution: np.ndarray, covariance: np.ndarray) -> float:
        """Return the gain of evidence by the release of one group (mask), by Woodbury's formula."""
        inflated = RELEASED_SCALE**2 * self._priors[group]
        change = 1.0 / inflated - 1.0 / variances[group]
        updated = np.eye(len(change)) + change[:, None] * covariance[np.ix_(group, group)]
        explained = -solution[group] @ np.linalg.solve(updated, change * solution[group])
        return float(explained - np.linalg.slogdet(updated)[1] - np.log(inflated / variances[group]).sum())

    def _of_origins(self, released: list[int]) -> np.ndarray:
        return self._scaled & ~self._is_mesh & ~np.isin(self._group, released)

    def _variances(self, origin_scale: float, mesh_scale: float, released: list[int]) -> np.ndarray:
        """Return the variances of the links' errors at these scales, and the priors' of the other unknowns."""
        scales = np.where(self._is_mesh, mesh_scale, origin_scale)
        scales[np.isin(self._group, released)] = RELEASED_SCALE
        return self._priors * np.where(self._scaled, scales**2, 1.0)

    def _at(self, mesh_scale: float, released: list[int]) -> _AtMeshScale | None:
        """Return the system at a scale of the meshes, None if a group is released that nothing determines."""
        variances = self._variances(np.inf, mesh_scale, released)
        information = self._information.copy()
        links = np.flatnonzero(self._scaled)
        information[links, links] += 1.0 / variances[links] - 1.0 / self._priors[links]
        try:
            return _AtMeshScale(information, self._gradient, self._of_origins(released), self._priors)
        except LinAlgError:  # by rounding
            return None
