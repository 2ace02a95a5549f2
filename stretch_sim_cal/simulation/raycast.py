"""Casting rays against named triangle surfaces with Embree: how far, on which surface, at which incidence.

Embree computes in single precision: at ranges of some metres distances are exact to a few micrometres, far below what a
lidar resolves. Its fast mode is used, which in principle lets a ray slip between two triangles: none of 16 million
rays did in closed boxes, spheres and cylinders.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene

from stretch_sim_cal.robot.surfaces import Surface


class Scene:
    """Surfaces that do not move against each other, ready for rays in their common frame."""

    def __init__(self, surfaces: Mapping[str, Surface]):
        self.names = list(surfaces)
        self.ends = np.cumsum([len(surface.faces) for surface in surfaces.values()], dtype=np.int64)
        self.num_triangles = int(self.ends[-1]) if len(self.ends) else 0
        self._embree = EmbreeScene()
        if self.num_triangles:
            triangles = np.concatenate([surface.triangles for surface in surfaces.values()]).astype(np.float32)
            # One mesh for all: Embree keeps the order of triangles, so their number tells the surface.
            TriangleMesh(self._embree, triangles)
            corners = triangles.reshape(-1, 3)
            self._centre = (corners.min(axis=0) + corners.max(axis=0)) / 2
            self._radius = float(np.linalg.norm(corners - self._centre, axis=1).max())

    def intersect(self, origin: np.ndarray, directions: np.ndarray, limits: np.ndarray | None = None) -> dict:
        """Return Embree's `tfar`, `Ng` and `primID` (-1: no hit nearer than the limit) of rays from `origin`, (3,) or
        (N, 3)."""
        origins = np.broadcast_to(np.asarray(origin, dtype=np.float32), directions.shape)
        # Embree writes the distances that it finds into the limits.
        return self._embree.run(origins, directions, dists=None if limits is None else limits.copy(), output=1)

    def within_reach(self, origin: np.ndarray, directions: np.ndarray) -> np.ndarray | None:
        """Return the indices of the rays from `origin`, (3,) or (N, 3), that pass the sphere around the surfaces; None for
        all, from inside it."""
        radius = self._radius
        if origin.ndim == 2:  # one origin for all, and a sphere as much larger as they are apart
            low, high = (np.array([bound(column) for column in origin.T]) for bound in (np.min, np.max))
            origin, radius = (low + high) / 2, radius + float(np.linalg.norm(high - low)) / 2
        to_centre = (self._centre - origin).astype(np.float32)
        beside = float(to_centre @ to_centre) - radius**2
        if beside <= 0:
            return None
        ahead = directions @ to_centre
        return np.flatnonzero((ahead > 0) & (ahead * ahead >= beside))


class Hits:
    """The first hit of each of N rays: `distances` (N,) float32 in m, inf where there is none."""

    def __init__(self, origin: np.ndarray, directions: np.ndarray, scenes: Sequence[Scene]):
        """Cast rays from `origin`, (3,) or (N, 3), along unit `directions` (N, 3) at scenes that are in one frame."""
        origin = np.asarray(origin)
        directions = np.ascontiguousarray(directions, dtype=np.float32)
        count = len(directions)
        self.names = [name for scene in scenes for name in scene.names]
        self.distances = np.full(count, np.inf, dtype=np.float32)
        self._directions = directions
        self._normals = np.zeros((count, 3), dtype=np.float32)
        self._triangles = np.full(count, -1, dtype=np.int64)
        self._ends = np.zeros(0, dtype=np.int64)
        for scene in scenes:
            if scene.num_triangles:
                self._add(origin, scene)
            before = self._ends[-1] if len(self._ends) else 0
            self._ends = np.concatenate([self._ends, scene.ends + before])

    def incidence_cosines(self) -> np.ndarray:
        """Return the absolute cosines (N,) between ray and surface normal; 0 without a hit."""
        lengths = np.sqrt(np.einsum("ij,ij->i", self._normals, self._normals))
        along = np.abs(np.einsum("ij,ij->i", self._normals, self._directions))
        return along / np.maximum(lengths, np.float32(1e-30))

    def surfaces(self) -> np.ndarray:
        """Return the index (N,) into `names` of the surface that each ray hits, -1 without a hit."""
        counts = np.diff(self._ends, prepend=0)
        of_triangle = np.append(np.repeat(np.arange(len(counts)), counts), -1)  # the last is of misses
        return of_triangle.take(self._triangles, mode="wrap")

    def normals(self, rays: np.ndarray) -> np.ndarray:
        """Return the unit normals (M, 3) of what some rays, an index, hit; either side's."""
        normals = self._normals[rays]
        return normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.float32(1e-30))

    def _add(self, origin: np.ndarray, scene: Scene) -> None:
        """Take the hits of one more scene where they are nearer."""
        rays = scene.within_reach(origin, self._directions)
        if rays is None:
            found = scene.intersect(origin, self._directions, self.distances)
        else:
            begin = origin.take(rays, axis=0) if origin.ndim == 2 else origin
            found = scene.intersect(begin, self._directions.take(rays, axis=0), self.distances.take(rays))
        hit = np.flatnonzero(found["primID"] >= 0)
        nearer = hit if rays is None else rays.take(hit)
        self.distances[nearer] = found["tfar"].take(hit)
        self._normals[nearer] = found["Ng"].take(hit, axis=0)
        self._triangles[nearer] = found["primID"].take(hit) + (self._ends[-1] if len(self._ends) else 0)
