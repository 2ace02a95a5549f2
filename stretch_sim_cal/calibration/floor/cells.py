"""Cells of the floor, by where rays aim, and patches of cells: normal equations of the floor's plane over each.

Any choice of cells can be fitted exactly from their sums. Patches of cells that show nothing but floor are so large
that their mean heights can be compared.

The unknowns are the plane's increment: height (m), tilt about x, tilt about y (rad), from an assumed to the fitted
floor.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from stretch_sim_cal.calibration.floor.rays import RADIUS, FloorRays, LidarView, RayResiduals
from stretch_sim_cal.geometry.planes import Plane, height_slopes

# Square cells over the floor around base_footprint in which rays are counted, and patches of cells whose mean heights
# are compared; flat indices, x-major. Lengths in m.
CELL_SIZE, CELLS_PER_PATCH = 0.05, 5
PATCH_SIZE = CELL_SIZE * CELLS_PER_PATCH
PATCHES_PER_SIDE = 2 * int(np.ceil(RADIUS / PATCH_SIZE))
CELLS_PER_SIDE = PATCHES_PER_SIDE * CELLS_PER_PATCH
HALF_WIDTH = 0.5 * CELLS_PER_SIDE * CELL_SIZE
SIZE = 3  # of the plane's increment
GATE = 4.0  # standard deviations; so wide that the gate itself does not pull the means
BLOCKED_SHARE = 0.2  # of a cell's rays; beyond it something stands there
BEYOND_SHARE = 0.5  # of a cell's rays; beyond it there is a hole. Mirror images below a shiny floor are fewer
OCCUPIED_MARGIN = 0.05  # m around such cells: the foot of a wall or a chair looks like slightly raised floor
MOTION_SIGNIFICANCE = 30.0  # chi square of three values: one in a million, since every split of the frames is tried


@dataclass(frozen=True)
class HeightNoise:
    """Standard deviations in m: `along_ray` of a range, `across_surface` of the surface's own roughness and the aim."""

    along_ray: float
    across_surface: float

    def of_heights(self, cosines: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the standard deviation (N,) of mean heights over the floor of `counts` (N,) returns at incidence
        `cosines` (N,)."""
        return np.hypot(self.along_ray * cosines, self.across_surface) / np.sqrt(counts)


def cells_of(aims: np.ndarray) -> np.ndarray:
    """Return the cell (N,) of each aim (N, 2); aims lie within the radius."""
    columns = np.floor((aims + HALF_WIDTH) / CELL_SIZE).astype(np.int64)
    columns = np.clip(columns, 0, CELLS_PER_SIDE - 1)
    return columns[:, 0] * CELLS_PER_SIDE + columns[:, 1]


def patch_of_cells() -> np.ndarray:
    """Return the patch of every cell (cells,)."""
    patch = np.arange(CELLS_PER_SIDE) // CELLS_PER_PATCH
    return (patch[:, None] * PATCHES_PER_SIDE + patch[None, :]).ravel()


def patch_centres() -> np.ndarray:
    """Return the centres (patches, 2) of all patches."""
    axis = (np.arange(PATCHES_PER_SIDE) + 0.5) * PATCH_SIZE - HALF_WIDTH
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


class CellSums:
    """Sums over the rays of one lidar, cell by cell, against an assumed floor.

    `hits`, `blocked` and `beyond` (cells,) count returns that met the floor within the gate, something before it, or
    nothing until behind it; the hits came as so many `means`. `information` (cells, 3, 3) and `gradient` (cells, 3) are
    the normal equations of the plane's increment; `range_squares` and `height_squares` (cells,) are sums of squared
    residuals of the hits, along the ray and across the floor.
    """

    def __init__(self, view: LidarView, rays: FloorRays, floor: Plane, noise: HeightNoise):
        self.view, self.floor, self.noise = view, floor, noise
        cells, residuals, heights, gate, sigma = self._measured(rays)
        near = (np.abs(heights) < gate) & ~rays.own
        self.blocked = self._sum(cells, rays.counts * ((heights >= gate) | rays.own))
        self.beyond = self._sum(cells, rays.counts * ((heights <= -gate) & ~rays.own))
        cells, heights, weights, counts = cells[near], heights[near], sigma[near] ** -2, rays.counts[near]
        self.hits = self._sum(cells, counts)
        self.means = self._sum(cells, None)
        self.range_squares = self._sum(cells, counts * residuals.residuals[near] ** 2)
        self.height_squares = self._sum(cells, counts * heights**2)
        slopes = height_slopes(residuals.points[near], floor)
        self.information = np.zeros((len(self.hits), SIZE, SIZE))
        self.gradient = np.zeros((len(self.hits), SIZE))
        for i in range(SIZE):
            weighted = weights * slopes[:, i]
            self.gradient[:, i] = self._sum(cells, weighted * heights)
            for j in range(i, SIZE):
                self.information[:, i, j] = self.information[:, j, i] = self._sum(cells, weighted * slopes[:, j])

    def _sum(self, cells: np.ndarray, values: np.ndarray | None) -> np.ndarray:
        return np.bincount(cells, values, minlength=CELLS_PER_SIDE**2)

    def _measured(self, rays: FloorRays) -> tuple[np.ndarray, RayResiduals, np.ndarray, np.ndarray, np.ndarray]:
        """Return of rays their cells, their residuals, heights over the floor, the gate that these must pass to be of
        the floor, and their standard deviations."""
        residuals = self.view.against(rays, self.floor)
        sigma = self.noise.of_heights(residuals.cosines, rays.counts)
        # The surface's own roughness stays, however many returns a mean is of.
        gate = GATE * np.hypot(sigma, self.noise.across_surface)
        return cells_of(rays.aims), residuals, residuals.heights, gate, sigma

    def equations_of(self, rays: FloorRays, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the normal equations, (3, 3) and (3,), of other rays alone, in the cells of the mask `used`
        (cells,)."""
        cells, residuals, heights, gate, sigma = self._measured(rays)
        near = (np.abs(heights) < gate) & used[cells] & ~rays.own
        slopes, weights = height_slopes(residuals.points[near], self.floor), sigma[near] ** -2
        return (slopes * weights[:, None]).T @ slopes, slopes.T @ (weights * heights[near])

    def unobstructed(self) -> np.ndarray:
        """Return the cells (cells,) with hits that have nothing standing in them or within the margin around."""
        total = self.hits + self.blocked + self.beyond
        occupied = (self.blocked > BLOCKED_SHARE * total) | (self.beyond > BEYOND_SHARE * total)
        reach = int(np.ceil(OCCUPIED_MARGIN / CELL_SIZE))
        square = np.ones((2 * reach + 1, 2 * reach + 1), bool)
        near_occupied = ndimage.binary_dilation(occupied.reshape(CELLS_PER_SIDE, CELLS_PER_SIDE), square).ravel()
        return (self.hits > 0) & ~near_occupied


class PatchSums:
    """Normal equations of one lidar's chosen cells, patch by patch: `information` (P, 3, 3), `gradient` (P, 3)."""

    def __init__(self, sums: CellSums, used: np.ndarray):
        patch, count = patch_of_cells()[used], PATCHES_PER_SIDE**2
        self.information, self.gradient = np.zeros((count, SIZE, SIZE)), np.zeros((count, SIZE))
        for i in range(SIZE):
            self.gradient[:, i] = np.bincount(patch, sums.gradient[used, i], minlength=count)
            for j in range(SIZE):
                self.information[:, i, j] = np.bincount(patch, sums.information[used, i, j], minlength=count)

    @property
    def weight(self) -> np.ndarray:
        """The inverse variance (P,) of each patch's mean height by noise alone, in 1/m2."""
        return self.information[:, 0, 0]

    def weighted_heights(self, increment: np.ndarray) -> np.ndarray:
        """Return the patches' mean heights over the floor after an increment (3,), times their weights (P,)."""
        return self.information[:, 0] @ increment - self.gradient[:, 0]


def mean_heights(patches: Sequence[PatchSums]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return of each patch, by all lidars together, the mean height (P,) over the assumed floor, its standard deviation
    (P,) by noise (NaN if unseen), and its derivatives by the increment (P, 3)."""
    weight = sum(part.weight for part in patches)
    weight = np.where(weight > 0, weight, np.nan)
    heights = sum(part.weighted_heights(np.zeros(SIZE)) for part in patches) / weight
    slopes = sum(part.information[:, 0] for part in patches) / weight[:, None]
    return heights, weight**-0.5, slopes


@dataclass(frozen=True)
class FloorMotion:
    """The largest change of the floor between frames: after frame `after` (counted from 1) it lies `height` (m) and
    `tilt` (rad) off."""

    after: int
    height: float
    tilt: float


def floor_motion(information: np.ndarray, gradient: np.ndarray) -> FloorMotion | None:
    """Return the clearest split of frames into two floors, given the normal equations (F, 3, 3) and (F, 3) of every
    frame's own floor against one assumed floor; None if chance explains it."""
    information, gradient = np.cumsum(information, axis=0), np.cumsum(gradient, axis=0)
    best, clearest = None, MOTION_SIGNIFICANCE
    for split in range(len(gradient) - 1):
        parts = (information[split], information[-1] - information[split])
        if any(np.linalg.cond(part) > 1e8 for part in parts):
            continue
        before, after = (np.linalg.inv(part) for part in parts)
        change = after @ (gradient[-1] - gradient[split]) - before @ gradient[split]
        clarity = float(change @ np.linalg.solve(before + after, change))
        if clarity > clearest:
            clearest = clarity
            best = FloorMotion(split + 1, float(abs(change[0])), float(np.linalg.norm(change[1:])))
    return best
