"""How exactly this robot is built, as its returns have it: which links to trust more than one has to beforehand.

Beforehand any link may be off by so much. If the returns say that hardly any is, the mounts are many times more exact
when all links are held as closely as that; and one link that stands out is let go alone. Shares of what is believed are
chosen by the evidence of the returns, with the links integrated out (D. MacKay, Bayesian interpolation, 1992).
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from stretch_sim_cal.calibration.mounts.result import MountSettings
from stretch_sim_cal.calibration.mounts.system import MOUNTS, Unknowns, model_variances

SHARES = (1.0, 0.4, 0.15, 0.06)  # of what is believed, one sigma, of all bolts and of all surfaces
STANDS_OUT = 3.0  # the share of a link that is let go
GAIN = 5.0  # by which twice the logarithm of the evidence has to grow for that; where it is not needed, it shrinks
MOST_OUT = 3


@dataclass(frozen=True)
class Build:
    """The `solution` (n,) with links held as the returns have it, and the links (indices) that stand out."""

    solution: np.ndarray
    standing_out: list[int]


def as_built(
    information: np.ndarray, gradient: np.ndarray, unknowns: Unknowns, settings: MountSettings, most_out: int = MOST_OUT
) -> Build:
    """Return the solution of a system `information @ step = gradient` (n) in which links are held as they are believed
    to be, with links held as the returns have it and at most `most_out` of them let go."""
    system = _System(information, gradient, unknowns, settings)
    out: list[int] = []
    best = system.likeliest(out)
    while len(out) < most_out:
        tried = [*out, system.strangest(out)]
        other = system.likeliest(tried)
        if other.evidence < best.evidence + GAIN:
            break
        out, best = tried, other
    return Build(best.solution, sorted({group % len(unknowns.links) for group in out}))


@dataclass(frozen=True)
class _Held:
    """A system with links held by their shares: twice the log of its evidence, its solution (n,), its factor."""

    evidence: float
    solution: np.ndarray
    factor: tuple[np.ndarray, bool]


class _System:
    """Groups of six unknowns, the links as bolted and then their surfaces, each with a share of what is believed."""

    def __init__(self, information, gradient, unknowns: Unknowns, settings: MountSettings):
        self._information, self._gradient = information, gradient
        self._links = slice(MOUNTS, unknowns.first_joint)
        self._count = len(unknowns.links)
        self._believed = model_variances(unknowns.size, settings)[self._links]

    def likeliest(self, out: list[int]) -> _Held:
        """Return the system with the shares that explain the returns best; the groups `out` are let go."""
        return max((self._held(shares) for shares in self._choices(out)), key=lambda held: held.evidence)

    def strangest(self, out: list[int]) -> int:
        """Return the group that explains most when it is let go beside `out`, all others being held tight."""
        shares = np.full(2 * self._count, SHARES[-1])
        shares[out] = STANDS_OUT
        tight = self._held(shares)
        covariance = cho_solve(tight.factor, np.eye(len(self._gradient)))
        gains = [
            -np.inf if group in out else self._gain(group, tight.solution, covariance) for group in range(len(shares))
        ]
        return int(np.argmax(gains))

    def _gain(self, group: int, solution: np.ndarray, covariance: np.ndarray) -> float:
        """Return by how much the evidence grows when one group that is held tight is let go (Woodbury's formula)."""
        own = slice(MOUNTS + 6 * group, MOUNTS + 6 * group + 6)
        believed = self._believed[6 * group : 6 * group + 6]
        tight, loose = SHARES[-1] ** 2 * believed, STANDS_OUT**2 * believed
        change = 1.0 / loose - 1.0 / tight
        loosened = np.eye(6) + change[:, None] * covariance[own, own]
        explained = -solution[own] @ np.linalg.solve(loosened, change * solution[own])
        return float(explained - np.linalg.slogdet(loosened)[1] - np.log(loose / tight).sum())

    def _choices(self, out: list[int]) -> Iterator[np.ndarray]:
        for bolted, surface in itertools.product(SHARES, SHARES):
            shares = np.repeat([bolted, surface], self._count)
            shares[out] = STANDS_OUT
            yield shares

    def _held(self, shares: np.ndarray) -> _Held:
        variances = self._believed * np.repeat(shares**2, 6)
        information = self._information.copy()
        links = np.arange(len(information))[self._links]
        information[links, links] += 1.0 / variances - 1.0 / self._believed
        try:
            factor = cho_factor(information, lower=True)
        except LinAlgError:  # by rounding, where a share is let go that nothing determines
            return _Held(-np.inf, np.zeros(len(information)), (np.eye(len(information)), True))
        solution = cho_solve(factor, self._gradient)
        size = 2.0 * np.log(np.diag(factor[0])).sum() + np.log(variances).sum()
        return _Held(float(self._gradient @ solution - size), solution, factor)
