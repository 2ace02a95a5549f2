"""Sets of points: groups by voxels, and convex hulls in the plane, also of few, equal or collinear points. In m."""

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from stretch_sim_cal.errors import InputError

_HALF = 1 << 20  # 21 bits per axis: at 1 cm voxels that reaches 10 km from the origin


def lengths(vectors: np.ndarray) -> np.ndarray:
    """Return the lengths (...) of vectors (..., 3), three times as fast as `np.linalg.norm`."""
    return np.sqrt(np.einsum("...i,...i->...", vectors, vectors))


def downsampled(points: np.ndarray, count: int) -> np.ndarray:
    """Return at most `count` of the points (N, ...), evenly taken from their order."""
    return points if len(points) <= count else points[np.linspace(0, len(points) - 1, count).astype(int)]


def voxel_keys(points: np.ndarray, size: float) -> np.ndarray:
    """Return one int64 key (N,) per point (N, 3), equal in the same cube of edge `size`. Points further than 2**20
    voxels from the origin share the outermost voxels' keys."""
    index = np.clip(np.floor(points / size), -_HALF, _HALF - 1).astype(np.int64) + _HALF
    return (index[:, 0] << 42) | (index[:, 1] << 21) | index[:, 2]


def rank_in_cell(cell: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return how many rows (N,) are before each in the same cell; cells `cell` (N,) from 0 have `counts` rows each."""
    rank = np.empty(len(cell), dtype=int)
    rank[np.argsort(cell, kind="stable")] = np.arange(len(cell)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank


def group_sums(group: np.ndarray, num_groups: int, values: np.ndarray) -> np.ndarray:
    """Return the sums (num_groups, K) of `values` (N, K) over each group; `group` (N,) holds 0..num_groups-1."""
    # Without any row, bincount forgets that its weights were not integers.
    return np.stack([np.bincount(group, weights=column, minlength=num_groups) for column in values.T], axis=1) * 1.0


def group_means(group: np.ndarray, num_groups: int, values: np.ndarray) -> np.ndarray:
    """Return the means (num_groups, K) of `values` (N, K) over each group; zero for an empty group."""
    counts = np.bincount(group, minlength=num_groups)
    return group_sums(group, num_groups, values) / np.maximum(counts, 1.0)[:, None]


def group_medians(group: np.ndarray, counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the upper median (M,) of `values` (N,) over each of M groups with `counts` (M,) rows, none empty."""
    order = np.lexsort((values, group))
    return values[order][np.cumsum(counts) - counts + counts // 2]


def convex_hull(points: np.ndarray) -> np.ndarray:
    """Return the corners (K, 2) of the convex hull of finite points (N, 2), counterclockwise: two of collinear points,
    one of equal points, none of no points."""
    points = np.asarray(points, dtype=float).reshape(-1, 2)
    if len(points) < 3:
        return np.unique(points, axis=0)
    try:
        return points[ConvexHull(points).vertices]
    except QhullError:  # flat to rounding: the two extremes along the longest direction are all there is
        centred = points - points.mean(axis=0)
        along = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
        return np.unique(points[[along.argmin(), along.argmax()]], axis=0)


def spanning_hull(points: np.ndarray) -> np.ndarray:
    """Return the convex hull (K >= 3, 2) of points (N, 2). Raises `InputError` if it has no area."""
    points = np.asarray(points, dtype=float)
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise InputError(f"points of shape {points.shape}: expected (N, 2) finite numbers")
    hull = convex_hull(points)
    if len(hull) < 3:
        raise InputError(f"{len(points)} points span no area; at least three that are not on one line are needed")
    return hull


def polygon_area(corners: np.ndarray) -> float:
    """Return the area of a simple polygon (K, 2), positive if its corners run counterclockwise."""
    x, y = np.asarray(corners, dtype=float).T
    return float(0.5 * (x @ np.roll(y, -1) - y @ np.roll(x, -1))) if len(x) > 2 else 0.0
