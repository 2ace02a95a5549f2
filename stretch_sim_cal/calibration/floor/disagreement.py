"""By how much the two lidars see different floors: an alignment that is off, or a mount that moved."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.floor.cells import CellSums
from stretch_sim_cal.calibration.floor.fit import FloorFit
from stretch_sim_cal.calibration.floor.patches import PatchSums

MIN_PATCHES = 12


@dataclass(frozen=True)
class Disagreement:
    """The right lidar's floor against the left one's: `step` (height in m, tilt about x, tilt about y in rad) and its
    `covariance` (3, 3) by noise."""

    step: np.ndarray
    covariance: np.ndarray

    @property
    def height(self) -> float:
        """How far apart (m) the two floors are below the robot."""
        return float(abs(self.step[0]))

    @property
    def tilt(self) -> float:
        """The angle (rad) between the two floors."""
        return float(np.linalg.norm(self.step[1:]))


def disagreement(fit: FloorFit, left: CellSums, right: CellSums) -> Disagreement | None:
    """Compare the two lidars patch by patch where both see the floor; its shape drops out so.

    None where they do not see enough of the same floor.
    """
    parts = [PatchSums(sums, used) for sums, used in zip((left, right), fit.used, strict=True)]
    both = (parts[0].weight > 0) & (parts[1].weight > 0) & (fit.patch_weights > 0)
    if np.count_nonzero(both) < MIN_PATCHES:
        return None
    heights, variances = [], []
    for part in parts:
        variances.append(1.0 / part.weight[both])
        heights.append(part.deviation(fit.step)[both] * variances[-1])
    difference, variance = heights[1] - heights[0], variances[0] + variances[1]
    slopes = parts[1].information[both, 0] / parts[1].weight[both, None]
    information = (slopes / variance[:, None]).T @ slopes
    if np.linalg.cond(information) > 1e8:
        return None
    covariance = np.linalg.inv(information)
    step = -covariance @ (slopes / variance[:, None]).T @ difference
    residuals = difference + slopes @ step
    scatter = float(np.sum(residuals**2 / variance) / (np.count_nonzero(both) - 3))
    return Disagreement(step, max(scatter, 1.0) * covariance)
