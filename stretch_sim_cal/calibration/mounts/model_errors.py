"""Estimates the variances of the robot model's errors with the errors themselves (empirical Bayes).

The priors say how far links may be from the model. Two scales say how far those of this robot are: one of all joint origins,
one of all meshes; they are components of the model's variance. The returns determine them, since the origin of a joint moves
all that it carries and a mesh only itself, and since many links are seen, all of them by either lidar. No single pair of scales
is used: the result is the mean over a grid of pairs, weighted by the evidence of each (the links integrated out; D. MacKay,
Bayesian interpolation, 1992) and by a prior of the scales, and the covariance is that within the pairs and between them. Base
and mast are seen in all poses alike, so their own errors are not observable: they are taken to have the same scales as the
rest. Zeros of joints that were not asked for have the scale of the joint origins. A single link, or zero, that is an outlier
among the others is released alone.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from stretch_sim_cal.calibration.mounts.result import MountSettings
from stretch_sim_cal.calibration.mounts.system import MOUNTS, RobotUnknowns, model_variances

SCALES = np.geomspace(3.0, 0.02, 12)  # of the priors' standard deviations, for all joint origins and for all meshes
SCALE_DEVIATION = 2.0  # one sigma of a scale's logarithm beforehand: links may be better, or worse, by a factor of 7
RELEASED_SCALE = 4.0  # the scale of a link that is released
LEAST_GAIN = 12.0  # by which twice the logarithm of the evidence has to grow for that, many links being tried
MOST_RELEASED = 3
NEGLIGIBLE = 1e-4  # weight of a pair of scales, as a share of the largest one


@dataclass(frozen=True)
class ModelErrors:
    """The `solution` (n,) of a system with its `covariance` (n, n), the scales of the errors of joint origins and of meshes,
    and the links (indices) that were `released` as outliers."""

    solution: np.ndarray
    covariance: np.ndarray
    origin_scale: float
    mesh_scale: float
    released: list[int]


def with_model_errors(
    information: np.ndarray, gradient: np.ndarray, unknowns: RobotUnknowns, settings: MountSettings,
    most_released: int = MOST_RELEASED,
) -> ModelErrors:  # fmt: skip
    """Return the solution of a system `information @ step = gradient` (n), which holds the priors of the links, with variances
    of the links' errors as the returns have them, and at most `most_released` links released."""
    system = _System(information, gradient, unknowns, settings)
    released: list[int] = []
    found = system.at_all_scales(released)
    while len(released) < most_released:
        tried = [*released, system.likeliest_outlier(released, max(found, key=lambda one: one.evidence))]
        other = system.at_all_scales(tried)
        if _best(other) < _best(found) + LEAST_GAIN:
            break
        released, found = tried, other
    return system.mean(found, sorted({group % system.count for group in released if group < 2 * system.count}))


@dataclass(frozen=True)
class _AtScales:
    """A system at one pair of scales: twice the logarithm of its evidence, its solution and Cholesky factor."""

    origin_scale: float
    mesh_scale: float
    evidence: float
    solution: np.ndarray
    factor: tuple[np.ndarray, bool]


def _best(found: list[_AtScales]) -> float:
    return max(one.evidence for one in found)


class _System:
    """The observable unknowns. Those of `count` links come in groups of six, all joint origins, then all meshes, each group with
    a scale of its prior; then zeros, each a group."""

    def __init__(self, information, gradient, unknowns: RobotUnknowns, settings: MountSettings):
        priors = model_variances(unknowns.size, settings)
        index = np.arange(unknowns.size)
        is_zero = index >= unknowns.first_joint
        scaled = (index >= MOUNTS) & ~(is_zero & settings.offsets_asked_for)
        unseen = scaled & (information.diagonal() * np.where(scaled, priors, 1.0) < 1.0 + 1e-9)
        self._observable = np.flatnonzero(~unseen)
        self._scaled, self._priors = scaled[self._observable], priors[self._observable]
        self.count = len(unknowns.links)
        group = np.where(is_zero, 2 * self.count + index - unknowns.first_joint, (index - MOUNTS) // 6)
        self._group = group[self._observable]
        self._information = information[np.ix_(self._observable, self._observable)]
        self._gradient = gradient[self._observable]
        self._all_priors = priors

    def at_all_scales(self, released: list[int]) -> list[_AtScales]:
        """Return the system at every pair of scales, with groups `released`."""
        return [self._at(origin, mesh, released) for origin, mesh in itertools.product(SCALES, SCALES)]

    def likeliest_outlier(self, released: list[int], at: _AtScales) -> int:
        """Return the group whose release, beside those `released`, gains most evidence, all others as in `at`."""
        variances = self._variances(at.origin_scale, at.mesh_scale, released)
        covariance = cho_solve(at.factor, np.eye(len(self._gradient)))
        gains = np.full(self._group.max() + 1, -np.inf)
        for group in set(self._group[self._scaled]) - set(released):
            gains[group] = self._gain(self._group == group, variances, at.solution, covariance)
        return int(np.argmax(gains))

    def mean(self, found: list[_AtScales], released: list[int]) -> ModelErrors:
        """Return the mean over pairs of scales, and the covariance within and between them."""
        weights = np.exp(0.5 * (np.array([one.evidence for one in found]) - _best(found)))
        weights = np.where(weights > NEGLIGIBLE, weights, 0.0) / weights[weights > NEGLIGIBLE].sum()
        heavy = [(weight, one) for weight, one in zip(weights, found, strict=True) if weight]
        solution, covariance = np.zeros(len(self._all_priors)), np.diag(self._all_priors)
        solution[self._observable] = sum(weight * one.solution for weight, one in heavy)
        observed = np.zeros_like(self._information)
        for weight, one in heavy:
            off = one.solution - solution[self._observable]
            observed += weight * (cho_solve(one.factor, np.eye(len(off))) + np.outer(off, off))
        covariance[np.ix_(self._observable, self._observable)] = observed
        origin_scale = float(np.exp(sum(weight * np.log(one.origin_scale) for weight, one in heavy)))
        mesh_scale = float(np.exp(sum(weight * np.log(one.mesh_scale) for weight, one in heavy)))
        return ModelErrors(solution, covariance, origin_scale, mesh_scale, released)

    def _gain(self, own: np.ndarray, variances: np.ndarray, solution: np.ndarray, covariance: np.ndarray) -> float:
        """Return by how much the evidence grows if one group (mask) is released (Woodbury's formula)."""
        loose = RELEASED_SCALE**2 * self._priors[own]
        change = 1.0 / loose - 1.0 / variances[own]
        loosened = np.eye(len(change)) + change[:, None] * covariance[np.ix_(own, own)]
        explained = -solution[own] @ np.linalg.solve(loosened, change * solution[own])
        return float(explained - np.linalg.slogdet(loosened)[1] - np.log(loose / variances[own]).sum())

    def _variances(self, origin_scale: float, mesh_scale: float, released: list[int]) -> np.ndarray:
        """Return the variances of the links' errors at these scales, and the priors' of the other unknowns."""
        is_mesh = (self._group >= self.count) & (self._group < 2 * self.count)
        scales = np.where(is_mesh, mesh_scale, origin_scale)
        scales[np.isin(self._group, released)] = RELEASED_SCALE
        return self._priors * np.where(self._scaled, scales**2, 1.0)

    def _at(self, origin_scale: float, mesh_scale: float, released: list[int]) -> _AtScales:
        variances = self._variances(origin_scale, mesh_scale, released)[self._scaled]
        information = self._information.copy()
        links = np.flatnonzero(self._scaled)
        information[links, links] += 1.0 / variances - 1.0 / self._priors[links]
        try:
            factor = cho_factor(information, lower=True)
        except LinAlgError:  # by rounding, if a group is released that nothing determines
            nothing = np.zeros(len(information)), (np.eye(len(information)), True)
            return _AtScales(origin_scale, mesh_scale, -np.inf, *nothing)
        solution = cho_solve(factor, self._gradient)
        size = 2.0 * np.log(np.diag(factor[0])).sum() + np.log(variances).sum()
        prior = -(np.log([origin_scale, mesh_scale]) ** 2).sum() / SCALE_DEVIATION**2
        evidence = float(self._gradient @ solution - size + prior)
        return _AtScales(origin_scale, mesh_scale, evidence, solution, factor)
