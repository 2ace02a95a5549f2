"""The check that the robot stood still: the displacement of the lidars in each block of time from the first one.

A push moves all surfaces together, along their normals by amounts that one twist explains; a person walking by moves
few cells, which are rejected as outliers.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.patches import Fits, Members, Noise, Patches, fit_planes, refined
from stretch_sim_cal.calibration.robust import tukey_fit
from stretch_sim_cal.calibration.surfaces import Surface
from stretch_sim_cal.geometry.transforms import by_twist

MIN_CELLS = 200
# A component of the motion counts when it exceeds this many standard deviations.
SIGNIFICANT = 5.0
_NOISE_MARGIN = 5.0
_LEAST_INFORMATION = 1.0  # 1/m2, 1/rad2: nothing


@dataclass(frozen=True)
class Motion:
    """The largest significant displacement of the lidars between blocks of time: m and rad; of one against the other,
    `apart` and `apart_rotation`; and the largest of all as a `twist` (6,)."""

    translation: float
    rotation: float
    apart: float = 0.0
    apart_rotation: float = 0.0
    twist: np.ndarray = field(default_factory=lambda: np.zeros(6))

    @property
    def covariance(self) -> np.ndarray:
        """The covariance (6, 6) of a pose that is estimated while a lidar moves by the twist: that of half of it."""
        return np.outer(self.twist, self.twist) / 4.0


def motion_of(surface: Surface, flat: tuple[Patches, Members], noise: Noise) -> Motion:
    """Return the motion of the lidars while the frames were taken, by the heights of cells above their patches `flat`:
    each lidar separately, since one that moves alone would be an outlier among the cells of all, and above separate
    planes, since lidars without a common view have no common planes."""
    parts = [_Part.of(surface, flat, noise, lidar) for lidar in range(len(noise.sigma))]
    largest, worst = np.zeros(4), np.zeros(6)
    for block in range(1, surface.block_counts.shape[1]):
        twists = [twist for part in parts if (twist := part.twist(block, noise.roughness)) is not None]
        moved = [(_significant(*twist), slice(0, 2)) for twist in twists]
        for (left, by_left), (right, by_right) in itertools.combinations(twists, 2):
            apart = np.linalg.inv(np.linalg.inv(by_left) + np.linalg.inv(by_right))
            moved.append((_significant(right - left, apart), slice(2, 4)))
        for twist, place in moved:
            sizes = np.linalg.norm(twist.reshape(2, 3), axis=1)
            largest[place] = np.maximum(largest[place], sizes)
            worst = max(worst, twist, key=np.linalg.norm)
    return Motion(*largest.tolist(), worst)


@dataclass(frozen=True)
class _Part:
    """The cells (K,) of one lidar on its flat patches: `heights` and `counts` (K, blocks), `variances` (K,) of a single
    return, the `jacobian` (K, 6) of the heights by a twist and its standard deviations `jacobian_noise` (K, 2, 6)."""

    heights: np.ndarray
    counts: np.ndarray
    variances: np.ndarray
    jacobian: np.ndarray
    jacobian_noise: np.ndarray

    @classmethod
    def of(cls, surface: Surface, flat: tuple[Patches, Members], noise: Noise, lidar: int) -> "_Part":
        patches, members = flat
        members = members.only(surface.side[members.cell] == lidar)
        fits = fit_planes(members, noise.variances(surface, members), len(patches.centres))
        patches = refined(patches, fits)
        members = members.only(fits.flat[members.patch]).each_cell_once()
        normals, points = patches.normals[members.patch], surface.points[members.cell]
        sigma = noise.sigma[lidar] * surface.relative_noise[members.cell]
        return cls(
            np.einsum("kbi,ki->kb", surface.block_points[members.cell], normals), surface.block_counts[members.cell],
            (sigma * members.cosines) ** 2, by_twist(points, normals),
            _jacobian_noise(patches, members, fits, points),
        )  # fmt: skip

    def twist(self, block: int, roughness: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the twist (6,) from the first block of time to another, and the information (6, 6) about it, minus the
        noise information of the normals; None for too few cells."""
        both = np.flatnonzero((self.counts[:, 0] > 0) & (self.counts[:, block] > 0))
        if len(both) < MIN_CELLS:
            return None
        returns = 1.0 / self.counts[both, 0] + 1.0 / self.counts[both, block]
        changes = self.heights[both, block] - self.heights[both, 0]
        variances = self.variances[both] * returns + roughness**2
        jacobian = self.jacobian[both]
        fit = tukey_fit(jacobian, -changes, variances)
        weights = fit.weights / variances
        noise = (self.jacobian_noise[both] * np.sqrt(weights)[:, None, None]).reshape(-1, 6)
        # Axes of the whole, less the noise along each: the difference's own axes would mix a direction that noise alone
        # constrains into the others.
        values, axes = np.linalg.eigh((jacobian * weights[:, None]).T @ jacobian)
        values = (values - _NOISE_MARGIN * np.sum((noise @ axes) ** 2, axis=0)) / fit.scale**2
        return fit.twist, (axes * np.maximum(values, _LEAST_INFORMATION)) @ axes.T


def _significant(twist: np.ndarray, information: np.ndarray) -> np.ndarray:
    """Return a twist (6,) without the components that may be noise."""
    values, axes = np.linalg.eigh(information)
    components = axes.T @ twist
    certain = np.abs(components) * np.sqrt(np.maximum(values, 0.0)) > SIGNIFICANT
    return axes @ np.where(certain, components, 0.0)


def _jacobian_noise(patches: Patches, members: Members, fits: Fits, points: np.ndarray) -> np.ndarray:
    """Return the errors (K, 2, 6), one sigma, of each member's jacobian by those of the patches' slopes."""
    values, vectors = np.linalg.eigh(fits.covariances[:, 1:, 1:])
    tilts = np.einsum("gab,gai->gbi", vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :], patches.axes)[
        members.patch
    ]
    return by_twist(points[:, None], tilts)
