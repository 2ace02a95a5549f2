"""Cells of the floor, by where rays aim: how many rays met it, how many something else, and what they say of its plane.

A cell keeps sums, not points, so memory does not grow with the number of frames; any choice of cells can be fitted
exactly from their sums.
"""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.floor.rays import RayResiduals
from stretch_sim_cal.geometry.planes import Plane

VALUES = 3  # of a lidar's normal equations: height, tilt about x, tilt about y
GATE = 4.0  # standard deviations; so wide that the gate itself does not pull the means


@dataclass(frozen=True)
class Noise:
    """Standard deviations in m: `along_ray` of a range, `across_surface` of the surface's own roughness and the aim."""

    along_ray: float
    across_surface: float

    def of_heights(self, cosines: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the standard deviation (N,) of mean heights over the floor of `counts` (N,) returns at incidence `cosines`
        (N,)."""
        return np.hypot(self.along_ray * cosines, self.across_surface) / np.sqrt(counts)


@dataclass(frozen=True)
class Grid:
    """Square cells over the floor around base_footprint, and patches of cells; flat indices, x-major."""

    radius: float
    cell_size: float
    cells_per_patch: int

    @property
    def patches_per_side(self) -> int:
        return 2 * int(np.ceil(self.radius / (self.cell_size * self.cells_per_patch)))

    @property
    def cells_per_side(self) -> int:
        return self.patches_per_side * self.cells_per_patch

    @property
    def half_width(self) -> float:
        return 0.5 * self.cells_per_side * self.cell_size

    def cells_of(self, aims: np.ndarray) -> np.ndarray:
        """Return the cell (N,) of each aim (N, 2); aims lie within the radius."""
        columns = np.floor((aims + self.half_width) / self.cell_size).astype(np.int64)
        columns = np.clip(columns, 0, self.cells_per_side - 1)
        return columns[:, 0] * self.cells_per_side + columns[:, 1]

    def patch_of_cells(self) -> np.ndarray:
        """Return the patch of every cell (cells,)."""
        patch = np.arange(self.cells_per_side) // self.cells_per_patch
        return (patch[:, None] * self.patches_per_side + patch[None, :]).ravel()

    def patch_centres(self) -> np.ndarray:
        """Return the centres (patches, 2) of all patches."""
        size = self.cell_size * self.cells_per_patch
        axis = (np.arange(self.patches_per_side) + 0.5) * size - self.half_width
        return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


class CellSums:
    """Sums over the rays of one lidar, cell by cell, against an assumed floor.

    `hits`, `blocked` and `beyond` (cells,) count rays that met the floor within the gate, something before it, or
    nothing until behind it; the hits came as so many `means`. `information` (cells, 3, 3) and `pull` (cells, 3) are the normal equations of the step
    (height, tilt about x, tilt about y) from the assumed to the fitted floor; `range_squares` and `height_squares` (cells,) are sums of squared residuals of the hits, along the ray
    and across the floor.
    """

    def __init__(self, grid: Grid, floor: Plane, noise: Noise):
        self.grid, self.floor, self.noise = grid, floor, noise
        cells = grid.cells_per_side**2
        self.hits, self.blocked, self.beyond, self.means = (np.zeros(cells) for _ in range(4))
        self.range_squares, self.height_squares = np.zeros(cells), np.zeros(cells)
        self.information = np.zeros((cells, VALUES, VALUES))
        self.pull = np.zeros((cells, VALUES))

    def add(
        self, aims: np.ndarray, rays: RayResiduals, watched: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add rays, given by their aims (N, 2) at the nominal floor and their residuals against the assumed one.

        Return the normal equations of the step, (3, 3) and (3,), of these rays alone in the cells of the mask `watched`
        (cells,).
        """
        cells, count = self.grid.cells_of(aims), len(self.hits)
        sigma = self.noise.of_heights(rays.cosines, rays.counts)
        heights = rays.heights
        # However many returns a mean is of, the surface's own roughness stays.
        gate = GATE * np.hypot(sigma, self.noise.across_surface)
        near = np.abs(heights) < gate
        self.blocked += np.bincount(cells, rays.counts * (heights >= gate), minlength=count)
        self.beyond += np.bincount(cells, rays.counts * (heights <= -gate), minlength=count)

        cells, heights, weights, counts = cells[near], heights[near], sigma[near] ** -2, rays.counts[near]
        self.hits += np.bincount(cells, counts, minlength=count)
        self.means += np.bincount(cells, minlength=count)
        self.range_squares += np.bincount(cells, counts * rays.residuals[near] ** 2, minlength=count)
        self.height_squares += np.bincount(cells, counts * heights**2, minlength=count)
        slopes = step_slopes(rays.points[near], self.floor)
        kept = np.zeros(len(cells), bool) if watched is None else watched[cells]
        steps = slopes[kept]
        own = (steps * weights[kept, None]).T @ steps, steps.T @ (weights * heights)[kept]
        for i in range(VALUES):
            weighted = weights * slopes[:, i]
            self.pull[:, i] += np.bincount(cells, weighted * heights, minlength=count)
            for j in range(i, VALUES):
                self.information[:, i, j] += np.bincount(cells, weighted * slopes[:, j], minlength=count)
                self.information[:, j, i] = self.information[:, i, j]
        return own


def step_slopes(points: np.ndarray, floor: Plane) -> np.ndarray:
    """Return d(height over the assumed floor) / d(height, tilt about x, tilt about y) (N, 3) at points on it (N, 3).

    The floor moves to (normal + tilt x normal) . p + offset + height; a point that lies on the moved floor has the
    height -(height + tilt . (normal x p)) over the assumed one.
    """
    levers = np.cross(floor.normal, points)
    return -np.column_stack([np.ones(len(points)), levers[:, 0], levers[:, 1]])


def stepped(floor: Plane, step: np.ndarray) -> Plane:
    """Return the floor moved by a step (height, tilt about x, tilt about y)."""
    tilt = np.array([step[1], step[2], 0.0])
    return Plane.from_coefficients(floor.normal + np.cross(tilt, floor.normal), floor.offset + step[0])
