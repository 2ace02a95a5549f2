"""Whether a place was empty, hidden or out of sight when a lidar looked that way: its returns as an image of ranges."""

import numpy as np

BIN = np.deg2rad(1.5)
MARGIN = 0.06  # m, by which a return has to be nearer than a place to hide it


class RangeImage:
    """The nearest return in every direction from a lidar at `origin` (3,), of points (N, 3)."""

    def __init__(self, points: np.ndarray, origin: np.ndarray):
        self._origin = origin
        self._columns = int(2 * np.pi / BIN) + 2
        keys, ranges = self._keys(points)
        order = np.lexsort((ranges, keys))
        self._bins, first = np.unique(keys[order], return_index=True)
        self._nearest = ranges[order][first]

    def hides(self, points: np.ndarray) -> np.ndarray:
        """Return which of points (N, 3) are behind a return. Those that are not and show no return there are empty."""
        keys, ranges = self._keys(points)
        if not len(self._bins):
            return np.zeros(len(points), dtype=bool)
        place = np.minimum(np.searchsorted(self._bins, keys), len(self._bins) - 1)
        nearest = np.where(self._bins[place] == keys, self._nearest[place], np.inf)
        return nearest < ranges - MARGIN

    def _keys(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rays = points - self._origin
        ranges = np.linalg.norm(rays, axis=1)
        elevation = np.arcsin(np.clip(rays[:, 2] / np.maximum(ranges, 1e-9), -1, 1))
        azimuth = np.arctan2(rays[:, 1], rays[:, 0])
        return np.floor(elevation / BIN).astype(int) * self._columns + np.floor(azimuth / BIN).astype(int), ranges
