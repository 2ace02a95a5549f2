"""Patches of floor: cells that show nothing but floor, summed up so finely that their mean heights can be compared."""

from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from stretch_sim_cal.calibration.floor.cells import VALUES, CellSums

BLOCKED_SHARE = 0.2  # of a cell's rays; beyond it something stands there
BEYOND_SHARE = 0.5  # of a cell's rays; beyond it there is a hole. Mirror images below a shiny floor are fewer
MARGIN = 0.05  # m around such cells: the foot of a wall or a chair looks like slightly raised floor


def clean_cells(sums: CellSums) -> np.ndarray:
    """Return the cells (cells,) with hits that have nothing standing in them or within the margin around."""
    side = sums.grid.cells_per_side
    total = sums.hits + sums.blocked + sums.beyond
    occupied = (sums.blocked > BLOCKED_SHARE * total) | (sums.beyond > BEYOND_SHARE * total)
    reach = int(np.ceil(MARGIN / sums.grid.cell_size))
    square = np.ones((2 * reach + 1, 2 * reach + 1), bool)
    near_occupied = ndimage.binary_dilation(occupied.reshape(side, side), square).ravel()
    return (sums.hits > 0) & ~near_occupied


class PatchSums:
    """Normal equations of one lidar's chosen cells, patch by patch: `information` (P, 3, 3), `pull` (P, 3)."""

    def __init__(self, sums: CellSums, used: np.ndarray):
        patch, count = sums.grid.patch_of_cells()[used], sums.grid.patches_per_side**2
        self.information, self.pull = np.zeros((count, VALUES, VALUES)), np.zeros((count, VALUES))
        for i in range(VALUES):
            self.pull[:, i] = np.bincount(patch, sums.pull[used, i], minlength=count)
            for j in range(VALUES):
                self.information[:, i, j] = np.bincount(patch, sums.information[used, i, j], minlength=count)

    @property
    def weight(self) -> np.ndarray:
        """How well each patch's mean height is known (P,): one over its variance by noise alone, in 1/m2."""
        return self.information[:, 0, 0]

    def deviation(self, step: np.ndarray) -> np.ndarray:
        """Return the patches' mean heights over the floor moved by `step` (3,), times their weights (P,)."""
        return self.information[:, 0] @ step - self.pull[:, 0]


def mean_heights(patches: Sequence[PatchSums]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what all lidars together say of each patch: the mean height (P,) over the assumed floor, its standard
    deviation (P,) by noise (NaN where unseen), and how it falls with the step (P, 3)."""
    weight = sum(part.weight for part in patches)
    weight = np.where(weight > 0, weight, np.nan)
    heights = sum(part.deviation(np.zeros(VALUES)) for part in patches) / weight
    slopes = sum(part.information[:, 0] for part in patches) / weight[:, None]
    return heights, weight**-0.5, slopes
