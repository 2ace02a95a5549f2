"""Rays against triangles, with Embree. Lengths in m; Embree computes in single precision, to a few micrometres here."""

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
        """Return how far along unit `directions` (N, 3) from `origins` (N, 3) or (3,) the first triangle is hit, and
        which: distances (N,), inf for none, and indices (N,), -1 for none."""
        if self._empty or not len(directions):
            return np.full(len(directions), np.inf), np.full(len(directions), -1)
        directions = np.ascontiguousarray(directions, dtype=np.float32)
        origins = np.ascontiguousarray(np.broadcast_to(np.asarray(origins, dtype=np.float32), directions.shape))
        found = self._scene.run(origins, directions, output=1)
        triangles = np.asarray(found["primID"], dtype=np.int64)
        return np.where(triangles >= 0, found["tfar"], np.inf).astype(float), triangles
