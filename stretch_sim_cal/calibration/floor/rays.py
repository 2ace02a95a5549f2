"""Rays of a lidar told by where they aim at the floor, not by where they ended.

A range is noisy along its ray only, so what a ray says of the floor is its range minus the range to a floor assumed
there, and where it aims is known exactly. Sorting, gating and fitting by the aim keeps the noise out of all choices;
points chosen by where they ended up would pull the plane (towards gates, and downhill at grazing incidence).

All here is in the frame of the description's base_footprint, whose x-y plane is the nominal floor.

Cells of the floor, by where rays aim: how many rays met it, how many something else, and what they say of its plane.

A cell keeps sums, not points, so memory does not grow with the number of frames; any choice of cells can be fitted
exactly from their sums.

Patches of floor: cells that show nothing but floor, summed up so finely that their mean heights can be compared.

Did the robot move against the floor while it looked? Every frame's own floor, and where the frames fall in two.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from stretch_sim_cal.geometry.planes import Plane

# Rays flatter than this against the nominal floor say more about its roughness than about its height.
MIN_INCIDENCE_COSINE = 0.2


@dataclass(frozen=True)
class FloorRays:
    """Rays of one lidar: `aims` (N, 2), where each would meet the nominal floor, and `excess` (N,), measured range minus the
    range to there (below zero: something is in the way), in m, each the mean of `counts` (N,) returns."""

    aims: np.ndarray
    excess: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.excess)


@dataclass(frozen=True)
class RayResiduals:
    """Rays against an assumed floor: `points` (N, 3), where each would meet it, `cosines` (N,) of incidence there
    (above zero), `residuals` (N,), measured range minus the range to there, in m, unit `directions` (N, 3), and of how many returns each is, `counts` (N,)."""

    points: np.ndarray
    cosines: np.ndarray
    residuals: np.ndarray
    directions: np.ndarray
    counts: np.ndarray

    @property
    def heights(self) -> np.ndarray:
        """Height (N,) in m of the measured points over the assumed floor."""
        return -self.cosines * self.residuals

    @property
    def measured(self) -> np.ndarray:
        """The measured points (N, 3)."""
        return self.points + self.residuals[:, None] * self.directions


class FloorView:
    """One lidar over the nominal floor. `footprint_from_lidar` (4, 4) is its pose in the description's
    base_footprint."""

    def __init__(self, footprint_from_lidar: np.ndarray, radius: float):
        self.rotation = footprint_from_lidar[:3, :3]
        self.origin = footprint_from_lidar[:3, 3]
        self.radius = radius

    def rays(self, points: np.ndarray, counts: np.ndarray) -> FloorRays:
        """Return the rays of points (N, 3), lidar frame, that aim at the floor within the radius; each point is the mean of
        `counts` (N,) returns, none of them without any."""
        points, counts = points[counts > 0], counts[counts > 0]
        ranges = np.linalg.norm(points, axis=1)
        directions = points @ self.rotation.T / np.maximum(ranges, 1e-9)[:, None]
        descending = np.flatnonzero(directions[:, 2] < -MIN_INCIDENCE_COSINE)
        directions, ranges, counts = directions[descending], ranges[descending], counts[descending]
        nominal = -self.origin[2] / directions[:, 2]
        aims = self.origin[:2] + nominal[:, None] * directions[:, :2]
        near = np.einsum("ij,ij->i", aims, aims) < self.radius**2
        return FloorRays(aims[near], (ranges - nominal)[near], counts[near])

    def against(self, rays: FloorRays, floor: Plane) -> RayResiduals:
        """Return the rays against an assumed floor (in base_footprint of the description, normal up)."""
        offsets = np.column_stack([rays.aims - self.origin[:2], np.full(len(rays), -self.origin[2])])
        nominal = np.sqrt(np.einsum("ij,ij->i", offsets, offsets))
        directions = offsets / nominal[:, None]
        cosines = np.maximum(-(directions @ floor.normal), 0.5 * MIN_INCIDENCE_COSINE)
        assumed = float(floor.distance(self.origin)) / cosines
        return RayResiduals(
            points=self.origin + assumed[:, None] * directions,
            cosines=cosines,
            residuals=nominal + rays.excess - assumed,
            directions=directions,
            counts=rays.counts,
        )


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


BLOCKED_SHARE = 0.2  # of a cell's rays; beyond it something stands there
BEYOND_SHARE = 0.5  # of a cell's rays; beyond it there is a hole. Mirror images below a shiny floor are fewer
OCCUPIED_MARGIN = 0.05  # m around such cells: the foot of a wall or a chair looks like slightly raised floor


def clean_cells(sums: CellSums) -> np.ndarray:
    """Return the cells (cells,) with hits that have nothing standing in them or within the margin around."""
    side = sums.grid.cells_per_side
    total = sums.hits + sums.blocked + sums.beyond
    occupied = (sums.blocked > BLOCKED_SHARE * total) | (sums.beyond > BEYOND_SHARE * total)
    reach = int(np.ceil(OCCUPIED_MARGIN / sums.grid.cell_size))
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


SIGNIFICANCE = 30.0  # chi square of three values: one in a million, since every place between two frames is tried


@dataclass(frozen=True)
class Motion:
    """The largest change of the floor between frames: after frame `after` (counted from 1) it lies `height` (m) and
    `tilt` (rad) off."""

    after: int
    height: float
    tilt: float


class FrameFloors:
    """The normal equations (3, 3) and (3,) of every frame's own floor, against one assumed floor."""

    def __init__(self):
        self._information: list[np.ndarray] = []
        self._pull: list[np.ndarray] = []

    def add(self, information: np.ndarray, pull: np.ndarray) -> None:
        """Add one frame's normal equations, both lidars together."""
        self._information.append(information)
        self._pull.append(pull)

    def motion(self) -> Motion | None:
        """Return the clearest split of the frames into two floors, None where chance explains it or there is one
        frame."""
        if len(self._pull) < 2:
            return None
        information, pull = np.cumsum(self._information, axis=0), np.cumsum(self._pull, axis=0)
        best, clearest = None, SIGNIFICANCE
        for split in range(len(pull) - 1):
            before = information[split], pull[split]
            after = information[-1] - information[split], pull[-1] - pull[split]
            if any(np.linalg.cond(part[0]) > 1e8 for part in (before, after)):
                continue
            covariances = [np.linalg.inv(part[0]) for part in (before, after)]
            change = covariances[1] @ after[1] - covariances[0] @ before[1]
            clarity = float(change @ np.linalg.solve(covariances[0] + covariances[1], change))
            if clarity > clearest:
                clearest = clarity
                best = Motion(split + 1, float(abs(change[0])), float(np.linalg.norm(change[1:])))
        return best
