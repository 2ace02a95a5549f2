"""Range biases of the lidars' channels, estimated together with the alignment.

Real lidars read each channel a few millimetres too long or too short, and always alike, so that no number of frames
averages it out. It shows in every flat patch as channels that lie above or below the others. Here the biases are
unknowns beside the twist: normally distributed, with a spread that the data itself tells, so that the covariance of the
twist covers what they leave open.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from stretch_sim_cal.calibration.alignment.adjustment import Gaps, solve_semidefinite
from stretch_sim_cal.calibration.alignment.cells import NUM_ROWS
from stretch_sim_cal.calibration.alignment.patches import Fits, Members
from stretch_sim_cal.calibration.alignment.surfaces import Surface

# The spread of the channels' biases before the data has spoken (m), and the least it may come down to.
FIRST_SPREAD = 0.001
LEAST_SPREAD = 5e-5
_SPREAD_ITERATIONS = 6


@dataclass(frozen=True)
class Biases:
    """What the channels read too long: `values` (2, NUM_ROWS) in m for the left and the right lidar, by row of cells.
    `spread` (m) is their standard deviation from channel to channel, `offset` (m) that of a whole lidar."""

    values: np.ndarray
    spread: float
    offset: float

    @classmethod
    def unknown(cls, offset: float) -> "Biases":
        """Return biases of which nothing is known yet; a whole lidar may be off by `offset` (m)."""
        return cls(np.zeros((2, NUM_ROWS)), FIRST_SPREAD, offset)

    def precision(self, side: np.ndarray) -> np.ndarray:
        """Return the inverse (K, K) of the prior covariance of the biases of channels that belong to lidars `side` (K,).

        That covariance is `spread**2` on the diagonal, and `offset**2` between all channels of a lidar.
        """
        alike = side[:, None] == side
        shared = self.offset**2 / (self.spread**2 + alike.sum(axis=1) * self.offset**2)
        return (np.eye(len(side)) - shared[:, None] * alike) / self.spread**2


@dataclass(frozen=True)
class Channels:
    """What patches say about the biases of the K channels that look at them.

    `side` (K,) and `row` (K,) name the channels. `on_gaps` (G, K) is how much a bias opens each gap. `information`
    (K, K) and `score` (K,) are the normal equations from how far channels of one lidar disagree within a patch.
    """

    side: np.ndarray
    row: np.ndarray
    on_gaps: np.ndarray
    information: np.ndarray
    score: np.ndarray

    def weighing(self, share: float) -> "Channels":
        """Return the same with only a share of its weight, for cells that count in several patches."""
        return replace(self, information=share * self.information, score=share * self.score)


def channels_of(
    surface: Surface, members: Members, variances: np.ndarray, fits: tuple[Fits, Fits], gaps: Gaps
) -> Channels:
    """Return what the members (with `variances` (K,)) of the gaps' patches say about the channels' biases."""
    gap_of_patch = np.full(len(fits[0].counts), -1)
    gap_of_patch[gaps.patches] = np.arange(len(gaps.patches))
    chosen = gap_of_patch[members.patch] >= 0
    members, weights = members.only(chosen), 1.0 / variances[chosen]
    gap = gap_of_patch[members.patch]
    side, row = surface.side[members.cell], surface.row[members.cell]
    names, channel = np.unique(side * NUM_ROWS + row, return_inverse=True)
    shape = (len(weights), len(names))

    # A reading that is too long lowers the point by the cosine of incidence.
    effect = sparse.csr_array((-members.cosines, (np.arange(shape[0]), channel)), shape=shape)
    design = members.design
    covariances = np.where(
        (side == 0)[:, None, None], fits[0].covariances[members.patch], fits[1].covariances[members.patch]
    )
    residuals = np.where(side == 0, _residuals(members, fits[0]), _residuals(members, fits[1]))
    towards_gap = (
        np.einsum("ki,kij,kj->k", gaps.designs[gap], covariances, design) * weights * np.where(side == 0, -1.0, 1.0)
    )
    on_gaps = sparse.csr_array((towards_gap, (gap, np.arange(shape[0]))), shape=(len(gaps.values), shape[0])) @ effect

    # What the planes of the patches can follow is no evidence of a bias.
    plane = 2 * gap + side
    rows = (3 * plane[:, None] + np.arange(3)).ravel()
    columns = np.repeat(channel, 3)
    followed = sparse.csr_array(
        (((-members.cosines * weights)[:, None] * design).ravel(), (rows, columns)),
        shape=(6 * len(gaps.values), shape[1]),
    )
    blocks = np.stack([fits[0].covariances[gaps.patches], fits[1].covariances[gaps.patches]], axis=1).reshape(-1, 3, 3)
    plane_covariances = sparse.bsr_array((blocks, np.arange(len(blocks)), np.arange(len(blocks) + 1)))
    information = (effect.T @ (effect * weights[:, None])) - followed.T @ (plane_covariances @ followed)
    return Channels(
        names // NUM_ROWS, names % NUM_ROWS, on_gaps.toarray(), information.toarray(), effect.T @ (weights * residuals)
    )


def _residuals(members: Members, fits: Fits) -> np.ndarray:
    return members.heights - np.einsum("ki,ki->k", members.design, fits.coefficients[members.patch])


@dataclass(frozen=True)
class Joint:
    """Twist and biases together: `twist` (6,), its `information` (6, 6) with the biases open, the `biases`, and the gaps
    `remaining` (G,) when both are applied."""

    twist: np.ndarray
    information: np.ndarray
    biases: Biases
    remaining: np.ndarray

    @classmethod
    def of_nothing(cls, biases: Biases) -> "Joint":
        """Return what no gap at all tells."""
        return cls(np.zeros(6), np.zeros((6, 6)), biases, np.zeros(0))


def solve_jointly(gaps: Gaps, weights: np.ndarray, channels: Channels, before: Biases) -> Joint:
    """Return the twist that closes the gaps and the biases that flatten the patches, given robust `weights` (G,).

    The biases in `before` are already taken out of the surfaces; what comes back replaces them. Their spread is the
    most likely one (expectation maximisation).
    """
    known = before.values[channels.side, channels.row]
    precision = weights / gaps.variances
    design = np.hstack([gaps.jacobian, -channels.on_gaps])
    normal = design.T @ (design * precision[:, None])
    normal[6:, 6:] += channels.information
    right_side = -design.T @ (precision * gaps.values)
    right_side[6:] += channels.score
    biases = before
    for _ in range(_SPREAD_ITERATIONS):
        prior = biases.precision(channels.side)
        posterior, twist, change = _solved(normal, right_side, prior, known)
        values = before.values.copy()
        values[channels.side, channels.row] = known + change
        spread = _spread(known + change, posterior, channels.side)
        biases = Biases(values, max(spread, LEAST_SPREAD), before.offset)
    with_prior = normal[6:, 6:] + biases.precision(channels.side)
    information = normal[:6, :6] - normal[:6, 6:] @ np.linalg.solve(with_prior, normal[6:, :6])
    return Joint(twist, information, biases, gaps.values + design @ np.concatenate([twist, change]))


def _spread(values: np.ndarray, covariance: np.ndarray, side: np.ndarray) -> float:
    """Return the standard deviation (m) of biases about their lidar's mean, from their estimates and covariance (K, K)."""
    squares = 0.0
    for lidar in np.unique(side):
        own = side == lidar
        squares += np.sum((values[own] - values[own].mean()) ** 2)
        squares += np.trace(covariance[np.ix_(own, own)]) - covariance[np.ix_(own, own)].mean() * np.count_nonzero(own)
    return float(np.sqrt(squares / len(side)))


def _solved(normal: np.ndarray, right_side: np.ndarray, prior: np.ndarray, known: np.ndarray) -> tuple:
    """Return the biases' covariance with the twist known, and the most likely twist and change of the biases."""
    posterior = np.linalg.inv(normal[6:, 6:] + prior)
    towards = right_side[6:] - prior @ known
    reduced = normal[:6, :6] - normal[:6, 6:] @ posterior @ normal[6:, :6]
    twist = solve_semidefinite(reduced, right_side[:6] - normal[:6, 6:] @ (posterior @ towards))
    return posterior, twist, posterior @ (towards - normal[6:, :6] @ twist)
