"""Cells over the space that a point set spans, its convex hull, and its content with the error of the cells."""

from collections.abc import Callable

import numpy as np
from scipy.ndimage import binary_dilation
from scipy.spatial import ConvexHull, Delaunay, HalfspaceIntersection, QhullError

from stretch_sim_cal.errors import InputError

CELLS_ACROSS = 40
"""Cells of the grid along the longest side of the workspace, unless a resolution is asked for."""
ATTEMPTS = 5
"""Configurations that are tried for a cell before it counts as out of reach without a collision."""
FLAT = 1e-6
MAX_CELLS = 10**7
STRIDES = np.array([1, 2**20, 2**40])
"""What makes one number of a cell's indices, each of them below 2**19."""
DIRECTIONS = 1000
"""Directions in which the farthest points are kept."""
FACETS = 128
"""Directions at most in which a hull is bounded from outside."""


class Grid:
    """Cells of one size in the space that a point set spans: a line, a plane or all of space.

    `axes` (dimension, 3) are the point set's principal directions, or x, y, z where it spans space. A cell is known by
    one number, made of its indices.
    """

    def __init__(self, origin: np.ndarray, axes: np.ndarray, resolution: float):
        self.origin, self.axes, self.resolution = origin, axes, resolution
        self.taken = np.zeros(0, dtype=np.int64)
        self._indices = np.zeros((0, len(axes)), dtype=np.int64)
        self._attempts: dict[int, int] = {}

    @classmethod
    def around(cls, points: np.ndarray, resolution: float | None) -> "Grid":
        """Return the grid over points (N, 3). Raises `InputError` for a resolution that makes too many cells."""
        centre = points.mean(axis=0)
        spread, axes = np.zeros(3), np.eye(3)
        if len(points) > 2:
            _, spread, axes = np.linalg.svd(points - centre, full_matrices=False)
        dimension = int((spread > FLAT * np.sqrt(len(points))).sum())
        if resolution is None:
            resolution = max(float(np.ptp(points, axis=0).max()) / CELLS_ACROSS, FLAT)
        grid = cls(centre, np.eye(3) if dimension == 3 else axes[:dimension], resolution)
        across = np.ptp(grid.along(points), axis=0) / resolution + 3 if resolution > 0 else np.full(3, np.inf)
        if not np.prod(across) <= MAX_CELLS:
            raise InputError(
                f"a workspace with cells of {resolution:g} m would have {np.prod(across):.3g} cells, {MAX_CELLS:.0e} "
                "are the most; ask for a coarser resolution above 0"
            )
        return grid

    @property
    def dimension(self) -> int:
        """The dimension of the space that is spanned."""
        return len(self.axes)

    def along(self, points: np.ndarray) -> np.ndarray:
        """Return the coordinates (N, dimension) of points (N, 3) along the grid's axes."""
        return (points - self.origin) @ self.axes.T

    def fill(self, points: np.ndarray, free: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, int]:
        """Take the cells that free points (N, 3) are in; return the row that took each, and how many were not free.

        In every cell one point after another is tried, up to `ATTEMPTS` over all calls.
        """
        indices = np.floor(self.along(points) / self.resolution).astype(np.int64)
        cells = indices @ STRIDES[: self.dimension]
        hopeless = [cell for cell, attempts in self._attempts.items() if attempts >= ATTEMPTS]
        waiting = np.flatnonzero(~np.isin(cells, self.taken) & ~np.isin(cells, hopeless))
        took, dropped = [np.zeros(0, dtype=int)], 0
        for _ in range(ATTEMPTS):
            rows = waiting[np.unique(cells[waiting], return_index=True)[1]]
            if not len(rows):
                break
            is_free = free(rows)
            took.append(rows[is_free])
            dropped += int((~is_free).sum())
            for cell in cells[rows[~is_free]].tolist():
                self._attempts[cell] = self._attempts.get(cell, 0) + 1
            self.taken = np.concatenate([self.taken, cells[rows[is_free]]])
            waiting = np.setdiff1d(waiting[~np.isin(cells[waiting], self.taken)], rows)
        rows = np.concatenate(took)
        self._indices = np.concatenate([self._indices, indices[rows]])
        return rows, dropped

    def at_the_rim(self) -> np.ndarray:
        """Return which of the taken cells (in the order in which they were taken) have an untaken neighbour."""
        inner = np.ones(len(self.taken), dtype=bool)
        for stride in STRIDES[: self.dimension]:
            inner &= np.isin(self.taken + stride, self.taken) & np.isin(self.taken - stride, self.taken)
        return ~inner

    def corners_of_cells(self) -> np.ndarray:
        """Return the corners (N, dimension), along the grid's axes, of the cells that are taken."""
        offsets = np.stack(np.meshgrid(*[[0, 1]] * self.dimension, indexing="ij"), axis=-1).reshape(-1, self.dimension)
        return np.unique((self._indices[:, None] + offsets).reshape(-1, self.dimension), axis=0) * self.resolution

    def content(self, hull: "Hull") -> tuple[float, float]:
        """Return the least and the greatest length, area or volume that the taken cells and the hull allow.

        What is reached lies within the hull and in the taken cells. A taken cell is reached wholly unless it touches
        one whose centre is in the hull and that is not taken: there the edge of what is reached may pass through it.
        So holes and gaps that are narrower than a cell are not seen.
        """
        size = self.resolution**self.dimension
        # Around everything one cell more, so that every cell has its neighbours.
        start = np.minimum(self._indices.min(axis=0), np.floor(hull.corners.min(axis=0) / self.resolution).astype(int))
        end = np.maximum(self._indices.max(axis=0), np.floor(hull.corners.max(axis=0) / self.resolution).astype(int))
        shape = end - start + 3
        taken = np.zeros(shape, dtype=bool)
        taken[tuple((self._indices - start + 1).T)] = True
        places = np.indices(shape).reshape(self.dimension, -1).T
        inside = hull.contains((places + start - 0.5) * self.resolution).reshape(shape)
        missing = inside & ~taken
        edge = taken & binary_dilation(missing, np.ones((3,) * self.dimension))
        return (
            max(0.0, hull.measure - float(missing.sum() + edge.sum()) * size),
            max(0.0, hull.most - float(missing.sum()) * size),
        )


class Hull:
    """The convex hull of points (N, dimension): its `measure` (length, area, volume), the rows (H,) of its `vertices`
    and their `corners` (H, dimension).

    `most` is the measure of what is known to enclose the hull of the whole set; it starts as infinite.
    """

    def __init__(self, points: np.ndarray):
        self.dimension, self.most = points.shape[1], np.inf
        self._triangles: Delaunay | None = None
        self.normals = np.zeros((0, self.dimension))
        if self.dimension == 0:
            self.measure, self.vertices = 0.0, np.zeros(1, dtype=int)
        elif self.dimension == 1:
            self.measure = float(np.ptp(points))
            self.vertices = np.array([points[:, 0].argmin(), points[:, 0].argmax()])
            self.normals = np.array([[-1.0], [1.0]])
        else:
            try:
                found = ConvexHull(points)
            except QhullError:
                # Too few points to span what the robot could reach without collisions.
                self.measure, self.vertices = 0.0, np.arange(len(points))
            else:
                self.measure, self.vertices = float(found.volume), found.vertices
                self.normals = _widest(found)
        self.corners = points[self.vertices]

    def contains(self, points: np.ndarray) -> np.ndarray:
        """Return which of the points (N, dimension) are in the hull (N,)."""
        if self.dimension == 1:
            return (points[:, 0] >= self.corners.min()) & (points[:, 0] <= self.corners.max())
        if not len(self.normals):
            return np.zeros(len(points), dtype=bool)
        if self._triangles is None:
            self._triangles = Delaunay(self.corners)
        return self._triangles.find_simplex(points) >= 0

    def enclose(self, normals: np.ndarray, reach: np.ndarray) -> None:
        """Learn that nothing of the set reaches beyond `reach` (K,) along unit `normals` (K, dimension)."""
        if self.dimension == 1:
            self.most = min(self.most, float(reach.sum()))
        elif len(self.normals):
            inside = self.corners.mean(axis=0)
            around = HalfspaceIntersection(np.column_stack([normals, -reach]), inside).intersections
            self.most = min(self.most, float(ConvexHull(around).volume))


def directions(dimension: int) -> np.ndarray:
    """Return unit vectors (K, dimension) that cover all directions evenly."""
    if dimension < 2:
        return np.array([[-1.0], [1.0]])[:, :dimension]
    if dimension == 2:
        angles = np.linspace(0.0, 2 * np.pi, DIRECTIONS, endpoint=False)
        return np.column_stack([np.cos(angles), np.sin(angles)])
    # A spiral from pole to pole, each turn by the golden angle.
    heights = 1.0 - (2.0 * np.arange(DIRECTIONS) + 1.0) / DIRECTIONS
    angles = np.pi * (3.0 - np.sqrt(5.0)) * np.arange(DIRECTIONS)
    across = np.sqrt(1.0 - heights**2)
    return np.column_stack([across * np.cos(angles), across * np.sin(angles), heights])


def _widest(hull: ConvexHull) -> np.ndarray:
    """Return the outward normals (K, dimension) of the largest facets, K at most `FACETS`, and of a box around."""
    corners = hull.points[hull.simplices]
    edges = corners[:, 1:] - corners[:, :1]
    areas = np.sqrt(np.maximum(np.linalg.det(edges @ np.swapaxes(edges, 1, 2)), 0.0))
    normals = np.round(hull.equations[np.argsort(-areas), :-1], 9)
    _, first = np.unique(np.round(normals, 3), axis=0, return_index=True)
    box = np.concatenate([np.eye(hull.points.shape[1]), -np.eye(hull.points.shape[1])])
    chosen = np.concatenate([box, normals[np.sort(first)[:FACETS]]])
    return chosen / np.linalg.norm(chosen, axis=1, keepdims=True)
