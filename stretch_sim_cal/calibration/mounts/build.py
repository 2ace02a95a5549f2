"""How exactly this robot is built, as its returns have it: which links to trust more than one has to beforehand.

Beforehand any link may be off by so much, its bolts and its surface alike. Two shares say by how much of that the bolts
of this robot and its surfaces really are: the components of the model's variance. Its returns tell them, since what is
bolted askew moves all that it holds and a surface only itself, and better than one would think, since many links are
seen and all of them from either lidar. No single pair of shares is believed: the result is the mean over all, each
with its evidence (the links integrated out; D. MacKay, Bayesian interpolation, 1992) and with what one thinks of it
beforehand, and the covariance holds what is open within each of them and between them. What is seen in all poses alike,
base and mast, cannot show how far it is off itself: it is taken to be built as the rest is. Zeros of joints that nobody
asked for are as good as the bolts are.
A single link, or zero, that stands out among the others is let go alone.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from stretch_sim_cal.calibration.mounts.result import MountSettings
from stretch_sim_cal.calibration.mounts.system import MOUNTS, Unknowns, model_variances

SHARES = np.geomspace(3.0, 0.02, 12)  # of what is believed, one sigma, of all bolts and of all surfaces
DOUBT = 2.0  # one sigma of a share's logarithm beforehand: by a factor of 7 links may be better, or worse
STANDS_OUT = 4.0  # the share of a link that is let go
GAIN = 12.0  # by which twice the logarithm of the evidence has to grow for that, many links being tried
MOST_OUT = 3
NEGLIGIBLE = 1e-4  # weight of a pair of shares, of the heaviest one's


@dataclass(frozen=True)
class Build:
    """The `solution` (n,) of a system with its `covariance` (n, n), the shares of what is believed by which bolts and
    surfaces are off, and the links (indices) that stand out."""

    solution: np.ndarray
    covariance: np.ndarray
    bolts: float
    surfaces: float
    standing_out: list[int]


def as_built(
    information: np.ndarray, gradient: np.ndarray, unknowns: Unknowns, settings: MountSettings, most_out: int = MOST_OUT
) -> Build:
    """Return what a system `information @ step = gradient` (n), in which links are held as they are believed to be,
    says with links held as the returns have it and at most `most_out` of them let go."""
    system = _System(information, gradient, unknowns, settings)
    out: list[int] = []
    found = system.over_shares(out)
    while len(out) < most_out:
        tried = [*out, system.strangest(out, max(found, key=lambda held: held.evidence))]
        other = system.over_shares(tried)
        if _best(other) < _best(found) + GAIN:
            break
        out, found = tried, other
    return system.mean(found, sorted({group % system.count for group in out if group < 2 * system.count}))


@dataclass(frozen=True)
class _Held:
    """A system with links held by a pair of shares: twice the log of its evidence; of what is told of, solution and
    factor."""

    bolts: float
    surfaces: float
    evidence: float
    solution: np.ndarray
    factor: tuple[np.ndarray, bool]


def _best(found: list[_Held]) -> float:
    return max(held.evidence for held in found)


class _System:
    """The unknowns that returns tell of. Those of `count` links come in groups of six, all links as bolted, then all
    surfaces, each group with a share of what is believed; then zeros, each a group."""

    def __init__(self, information, gradient, unknowns: Unknowns, settings: MountSettings):
        believed = model_variances(unknowns.size, settings)
        index = np.arange(unknowns.size)
        is_zero = index >= unknowns.first_joint
        built = (index >= MOUNTS) & ~(is_zero & settings.offsets_asked_for)
        unseen = built & (information.diagonal() * np.where(built, believed, 1.0) < 1.0 + 1e-9)
        self._told = np.flatnonzero(~unseen)
        self._built, self._believed = built[self._told], believed[self._told]
        self.count = len(unknowns.links)
        group = np.where(is_zero, 2 * self.count + index - unknowns.first_joint, (index - MOUNTS) // 6)
        self._group = group[self._told]
        self._information, self._gradient = information[np.ix_(self._told, self._told)], gradient[self._told]
        self._all_believed = believed

    def over_shares(self, out: list[int]) -> list[_Held]:
        """Return the system with every pair of shares; the groups `out` are let go."""
        return [self._held(bolts, surfaces, out) for bolts, surfaces in itertools.product(SHARES, SHARES)]

    def strangest(self, out: list[int], held: _Held) -> int:
        """Return the group that explains most when it is let go beside `out`, all others being held as in `held`."""
        variances = self._variances(held.bolts, held.surfaces, out)
        covariance = cho_solve(held.factor, np.eye(len(self._gradient)))
        gains = np.full(self._group.max() + 1, -np.inf)
        for group in set(self._group[self._built]) - set(out):
            gains[group] = self._gain(self._group == group, variances, held.solution, covariance)
        return int(np.argmax(gains))

    def mean(self, found: list[_Held], standing_out: list[int]) -> Build:
        """Return the mean over pairs of shares, and the covariance within and between them."""
        weights = np.exp(0.5 * (np.array([held.evidence for held in found]) - _best(found)))
        weights = np.where(weights > NEGLIGIBLE, weights, 0.0) / weights[weights > NEGLIGIBLE].sum()
        heavy = [(weight, held) for weight, held in zip(weights, found, strict=True) if weight]
        solution, covariance = np.zeros(len(self._all_believed)), np.diag(self._all_believed)
        solution[self._told] = sum(weight * held.solution for weight, held in heavy)
        told = np.zeros_like(self._information)
        for weight, held in heavy:
            off = held.solution - solution[self._told]
            told += weight * (cho_solve(held.factor, np.eye(len(off))) + np.outer(off, off))
        covariance[np.ix_(self._told, self._told)] = told
        bolts = float(np.exp(sum(weight * np.log(held.bolts) for weight, held in heavy)))
        surfaces = float(np.exp(sum(weight * np.log(held.surfaces) for weight, held in heavy)))
        return Build(solution, covariance, bolts, surfaces, standing_out)

    def _gain(self, own: np.ndarray, variances: np.ndarray, solution: np.ndarray, covariance: np.ndarray) -> float:
        """Return by how much the evidence grows when one group (mask) is let go (Woodbury's formula)."""
        loose = STANDS_OUT**2 * self._believed[own]
        change = 1.0 / loose - 1.0 / variances[own]
        loosened = np.eye(len(change)) + change[:, None] * covariance[np.ix_(own, own)]
        explained = -solution[own] @ np.linalg.solve(loosened, change * solution[own])
        return float(explained - np.linalg.slogdet(loosened)[1] - np.log(loose / variances[own]).sum())

    def _variances(self, bolts: float, surfaces: float, out: list[int]) -> np.ndarray:
        """Return the variances of what is built with these shares; of the others as believed."""
        is_surface = (self._group >= self.count) & (self._group < 2 * self.count)
        shares = np.where(is_surface, surfaces, bolts)
        shares[np.isin(self._group, out)] = STANDS_OUT
        return self._believed * np.where(self._built, shares**2, 1.0)

    def _held(self, bolts: float, surfaces: float, out: list[int]) -> _Held:
        variances = self._variances(bolts, surfaces, out)[self._built]
        information = self._information.copy()
        links = np.flatnonzero(self._built)
        information[links, links] += 1.0 / variances - 1.0 / self._believed[links]
        try:
            factor = cho_factor(information, lower=True)
        except LinAlgError:  # by rounding, where a share is let go that nothing determines
            return _Held(bolts, surfaces, -np.inf, np.zeros(len(information)), (np.eye(len(information)), True))
        solution = cho_solve(factor, self._gradient)
        size = 2.0 * np.log(np.diag(factor[0])).sum() + np.log(variances).sum()
        beforehand = -(np.log([bolts, surfaces]) ** 2).sum() / DOUBT**2
        return _Held(bolts, surfaces, float(self._gradient @ solution - size + beforehand), solution, factor)
