"""Rays of the lidars by their aim on the floor, and the normal equations of the floor's plane over cells and patches of
cells, in the description's base_footprint, whose x-y plane is the nominal floor."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from stretch_sim_cal.geometry.planes import Plane, height_slopes

# Rays at flatter incidence on the nominal floor depend more on its roughness than on its height.
MIN_INCIDENCE_COSINE = 0.2
# Floor farther (m) than this from the robot is not used: the wheels are not on it, and it is the least likely level.
RADIUS = 3.5
# Square cells over the floor around base_footprint in which rays are counted, and patches of cells whose mean heights
# are compared; flat indices, x-major. Lengths in m.
CELL_SIZE, CELLS_PER_PATCH = 0.05, 5
PATCH_SIZE = CELL_SIZE * CELLS_PER_PATCH
PATCHES_PER_SIDE = 2 * int(np.ceil(RADIUS / PATCH_SIZE))
CELLS_PER_SIDE = PATCHES_PER_SIDE * CELLS_PER_PATCH
HALF_WIDTH = 0.5 * CELLS_PER_SIDE * CELL_SIZE
_PATCH = np.arange(CELLS_PER_SIDE) // CELLS_PER_PATCH
PATCH_OF_CELLS = (_PATCH[:, None] * PATCHES_PER_SIDE + _PATCH[None, :]).ravel()  # (cells,)
_AXIS = (np.arange(PATCHES_PER_SIDE) + 0.5) * PATCH_SIZE - HALF_WIDTH
PATCH_CENTRES = np.stack(np.meshgrid(_AXIS, _AXIS, indexing="ij"), axis=-1).reshape(-1, 2)  # (patches, 2)
SIZE = 3  # of the plane's increment
GATE = 4.0  # standard deviations; so wide that the gate does not bias the means
BLOCKED_SHARE = 0.2  # of a cell's rays; beyond it an object is there
BEYOND_SHARE = 0.5  # of a cell's rays; beyond it there is a hole. Mirror images below a shiny floor are fewer
OCCUPIED_MARGIN = 0.05  # m around such cells: the foot of a wall or a chair looks like slightly raised floor


@dataclass(frozen=True)
class RayResiduals:
    """Rays against an assumed floor: `points` (N, 3), where each meets it, `cosines` (N,) of incidence there
    (positive), `residuals` (N,), measured range minus the range to there, in m, and unit `directions` (N, 3)."""

    points: np.ndarray
    cosines: np.ndarray
    residuals: np.ndarray
    directions: np.ndarray

    @property
    def heights(self) -> np.ndarray:
        """Height (N,) in m of the measured points over the assumed floor."""
        return -self.cosines * self.residuals

    @property
    def measured(self) -> np.ndarray:
        """The measured points (N, 3)."""
        return self.points + self.residuals[:, None] * self.directions


@dataclass(frozen=True)
class FloorRays:
    """Rays of one lidar at `origin` (3,): `aims` (N, 2), where each meets the nominal floor, and `excess` (N,),
    measured range minus the range to there (negative: something is in the way), in m, each the mean of `counts` (N,)
    returns; `on_robot` (N,) are those that end on the robot itself."""

    origin: np.ndarray
    aims: np.ndarray
    excess: np.ndarray
    counts: np.ndarray
    on_robot: np.ndarray

    @classmethod
    def of(
        cls, footprint_from_lidar: np.ndarray, points: np.ndarray, counts: np.ndarray, on_robot: np.ndarray
    ) -> "FloorRays":
        """Return the rays of points (N, 3), in the frame of a lidar at a pose (4, 4), that aim at the floor within
        `RADIUS`; points are means of `counts` (N,) returns, excluded if that is 0; `on_robot` (N,) lie on the robot."""
        origin, kept = footprint_from_lidar[:3, 3], counts > 0
        points, on_robot, counts = points[kept], on_robot[kept], counts[kept]
        ranges = np.linalg.norm(points, axis=1)
        directions = points @ footprint_from_lidar[:3, :3].T / np.maximum(ranges, 1e-9)[:, None]
        kept = np.flatnonzero(directions[:, 2] < -MIN_INCIDENCE_COSINE)
        directions, ranges, counts, on_robot = (array[kept] for array in (directions, ranges, counts, on_robot))
        nominal = -origin[2] / directions[:, 2]
        aims = origin[:2] + nominal[:, None] * directions[:, :2]
        near = np.einsum("ij,ij->i", aims, aims) < RADIUS**2
        return cls(origin, aims[near], (ranges - nominal)[near], counts[near], on_robot[near])

    def __len__(self) -> int:
        return len(self.excess)

    def against(self, floor: Plane) -> RayResiduals:
        """Return the rays against an assumed floor (normal up)."""
        offsets = np.column_stack([self.aims - self.origin[:2], np.full(len(self), -self.origin[2])])
        nominal = np.sqrt(np.einsum("ij,ij->i", offsets, offsets))
        directions = offsets / nominal[:, None]
        cosines = np.maximum(-(directions @ floor.normal), 0.5 * MIN_INCIDENCE_COSINE)
        assumed = float(floor.distance(self.origin)) / cosines
        points = self.origin + assumed[:, None] * directions
        return RayResiduals(points, cosines, nominal + self.excess - assumed, directions)


def cells_of(aims: np.ndarray) -> np.ndarray:
    """Return the cell (N,) of each aim (N, 2) within the radius."""
    columns = np.clip(np.floor((aims + HALF_WIDTH) / CELL_SIZE).astype(np.int64), 0, CELLS_PER_SIDE - 1)
    return columns[:, 0] * CELLS_PER_SIDE + columns[:, 1]


class CellSums:
    """Sums over the rays of one lidar by cell, against an assumed floor. `hits`, `blocked` and `beyond` (cells,) count
    returns on the floor within the gate, in front of it, and behind it; the hits are of so many `means`. `information`
    (cells, 3, 3) and `gradient` (cells, 3) are the normal equations of the plane's increment; `range_squares` and
    `height_squares` (cells,) sum squared residuals of the hits along the ray and across the floor."""

    def __init__(self, rays: FloorRays, floor: Plane, along_ray: float, across_surface: float):
        """`along_ray` is the standard deviation (m) of a range, `across_surface` that of the surface's roughness and
        the aim."""
        self.floor, self._along_ray, self._across_surface = floor, along_ray, across_surface
        cells, residuals, heights, gate, sigma = self._against_floor(rays)
        near = (np.abs(heights) < gate) & ~rays.on_robot
        self.blocked = self._sum(cells, rays.counts * ((heights >= gate) | rays.on_robot))
        self.beyond = self._sum(cells, rays.counts * ((heights <= -gate) & ~rays.on_robot))
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

    def _against_floor(self, rays: FloorRays) -> tuple[np.ndarray, RayResiduals, np.ndarray, np.ndarray, np.ndarray]:
        """Return the rays' cells, residuals, heights over the floor, gates of these, and their standard deviations."""
        residuals = rays.against(self.floor)
        sigma = np.hypot(self._along_ray * residuals.cosines, self._across_surface) / np.sqrt(rays.counts)
        # A mean of many returns still has the surface's roughness.
        gate = GATE * np.hypot(sigma, self._across_surface)
        return cells_of(rays.aims), residuals, residuals.heights, gate, sigma

    def equations_of(self, rays: FloorRays, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the normal equations, (3, 3) and (3,), of other rays in the cells of the mask `used` (cells,)."""
        cells, residuals, heights, gate, sigma = self._against_floor(rays)
        near = (np.abs(heights) < gate) & used[cells] & ~rays.on_robot
        slopes, weights = height_slopes(residuals.points[near], self.floor), sigma[near] ** -2
        return (slopes * weights[:, None]).T @ slopes, slopes.T @ (weights * heights[near])

    def unobstructed(self) -> np.ndarray:
        """Return the cells (cells,) with hits that have no object in them or within the margin around."""
        total = self.hits + self.blocked + self.beyond
        occupied = (self.blocked > BLOCKED_SHARE * total) | (self.beyond > BEYOND_SHARE * total)
        width = 2 * int(np.ceil(OCCUPIED_MARGIN / CELL_SIZE)) + 1
        on_grid = occupied.reshape(CELLS_PER_SIDE, CELLS_PER_SIDE)
        near_occupied = ndimage.binary_dilation(on_grid, np.ones((width, width), bool)).ravel()
        return (self.hits > 0) & ~near_occupied


def floor_motion(information: np.ndarray, gradient: np.ndarray) -> tuple[int, float, float] | None:
    """Return the most significant split of blocks of time into two floors, by their normal equations (B, 3, 3) and
    (B, 3): after how many blocks it lies how far off in height (m) and tilt (rad); None if chance explains it."""
    information, gradient = np.cumsum(information, axis=0), np.cumsum(gradient, axis=0)
    best, largest = None, 30.0  # chi square of three values: one in a million, since every split is tried
    for split in range(len(gradient) - 1):
        parts = (information[split], information[-1] - information[split])
        if any(np.linalg.cond(part) > 1e8 for part in parts):
            continue
        before, after = (np.linalg.inv(part) for part in parts)
        change = after @ (gradient[-1] - gradient[split]) - before @ gradient[split]
        chi_square = float(change @ np.linalg.solve(before + after, change))
        if chi_square > largest:
            largest = chi_square
            best = split + 1, float(abs(change[0])), float(np.linalg.norm(change[1:]))
    return best
