"""Grouping points into cubic voxels, and sums over groups. Lengths in m."""

import numpy as np

# 21 bits per axis: at 1 cm voxels that reaches 10 km from the origin.
_HALF = 1 << 20


def voxel_keys(points: np.ndarray, size: float) -> np.ndarray:
    """Return one int64 key (N,) per point (N, 3): equal for points in the same cube of edge `size`.

    Points further than 2**20 voxels from the origin share the keys of the outermost voxels.
    """
    index = np.clip(np.floor(points / size), -_HALF, _HALF - 1).astype(np.int64) + _HALF
    return (index[:, 0] << 42) | (index[:, 1] << 21) | index[:, 2]


def group_sums(group: np.ndarray, num_groups: int, values: np.ndarray) -> np.ndarray:
    """Return the sums (num_groups, K) of `values` (N, K) over the rows of each group; `group` (N,) holds 0..num_groups-1."""
    # Without any row, bincount forgets that its weights were not integers.
    return np.stack([np.bincount(group, weights=column, minlength=num_groups) for column in values.T], axis=1) * 1.0


def group_means(
    group: np.ndarray, num_groups: int, values: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the (weighted) means (num_groups, K) of `values` (N, K) over each group; zero for an empty group."""
    weights = np.ones(len(group)) if weights is None else weights
    totals = np.bincount(group, weights=weights, minlength=num_groups)
    return group_sums(group, num_groups, values * weights[:, None]) / np.where(totals > 0, totals, 1.0)[:, None]


def group_medians(group: np.ndarray, counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the median (M,) of `values` (N,) over each group, the upper of both in the middle; none of the M groups, which
    have `counts` (M,) rows, is empty."""
    order = np.lexsort((values, group))
    return values[order][np.cumsum(counts) - counts + counts // 2]


def voxel_means(points: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean point (M, 3) of every occupied voxel, in the order of the keys, and its number of points (M,)."""
    _, group, counts = np.unique(voxel_keys(points, size), return_inverse=True, return_counts=True)
    return group_means(group, len(counts), points), counts
