"""Rays against triangles, with Embree in single precision (some micrometres), and range images. In m."""

import numpy as np
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene


class RayTarget:
    """Triangles (F, 3, 3) that do not move against each other, ready for rays in their frame."""

    def __init__(self, triangles: np.ndarray):
        self._scene = EmbreeScene(robust=True)  # no ray slips between two triangles
        self._empty = not len(triangles)
        if not self._empty:
            TriangleMesh(self._scene, np.asarray(triangles, dtype=np.float32))

    def cast(self, origins: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances (N,) along unit `directions` (N, 3) from `origins` (N, 3) or (3,), inf for no hit, and
        the triangles' indices (N,), -1 for none."""
        if self._empty or not len(directions):
            return np.full(len(directions), np.inf), np.full(len(directions), -1)
        directions = np.ascontiguousarray(directions, dtype=np.float32)
        origins = np.ascontiguousarray(np.broadcast_to(np.asarray(origins, dtype=np.float32), directions.shape))
        found = self._scene.run(origins, directions, output=1)
        triangles = np.asarray(found["primID"], dtype=np.int64)
        return np.where(triangles >= 0, found["tfar"], np.inf).astype(float), triangles


class RangeImage:
    """The `nearest` range (A, E) seen from the origin by azimuth and elevation in cells (rad), inf for none."""

    def __init__(self, cell: float):
        self._cell = cell
        self.nearest = np.full((round(2 * np.pi / cell), round(np.pi / cell)), np.inf)

    def cells(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells (N,) of points (N, 3 or more), as indices into the flat image, and their ranges (N,)."""
        azimuths, elevations = self.nearest.shape
        ranges = np.linalg.norm(points[:, :3], axis=1)
        azimuth = np.floor((np.arctan2(points[:, 1], points[:, 0]) + np.pi) / self._cell).astype(np.int64) % azimuths
        sine = np.clip(points[:, 2] / np.maximum(ranges, 1e-9), -1.0, 1.0)
        elevation = np.floor((np.arcsin(sine) + np.pi / 2) / self._cell).astype(np.int64)
        return azimuth * elevations + np.clip(elevation, 0, elevations - 1), ranges

    def add(self, points: np.ndarray) -> None:
        cells, ranges = self.cells(points)
        np.minimum.at(self.nearest.reshape(-1), cells, ranges)
