"""Casting rays against named triangle surfaces with Embree: how far, which surface, at which incidence.

Embree computes in single precision: at ranges of some metres distances are exact to a few micrometres, far below what a
lidar resolves.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene

from stretch_sim_cal.robot.surfaces import Surface


@dataclass(frozen=True)
class Hits:
    """The first hit of each ray: `distances` (N,) float32 in m (inf: none), `incidence_cosines` (N,) float32 (absolute),
    `surfaces` (N,) int32, indices into `names` (-1: none)."""

    distances: np.ndarray
    incidence_cosines: np.ndarray
    surfaces: np.ndarray
    names: list[str]

    def named(self, index: int) -> str | None:
        """Return the name of the surface that ray `index` hits, or None."""
        surface = self.surfaces[index]
        return self.names[surface] if surface >= 0 else None


class Scene:
    """Surfaces that do not move against each other, ready for rays in their common frame."""

    def __init__(self, surfaces: Mapping[str, Surface]):
        self.names = list(surfaces)
        counts = [len(surface.faces) for surface in surfaces.values()]
        self._ends = np.cumsum(counts)
        self._embree = EmbreeScene(robust=True)  # no ray slips between two triangles
        if sum(counts):
            triangles = [surface.vertices[surface.faces] for surface in surfaces.values() if len(surface.faces)]
            # One mesh for all: Embree keeps the order of triangles, so their number tells the surface.
            TriangleMesh(self._embree, np.concatenate(triangles).astype(np.float32))

    def cast(self, origin: np.ndarray, directions: np.ndarray, limits: np.ndarray | None = None) -> Hits:
        """Return the first hits of rays from `origin` (3,) along unit `directions` (N, 3) float32.

        With `limits` (N,), hits that are not nearer than a ray's limit do not count.
        """
        count = len(directions)
        if not len(self._ends) or not self._ends[-1]:
            return Hits(np.full(count, np.inf, np.float32), np.zeros(count, np.float32), np.full(count, -1, np.int32), [])
        origins = np.broadcast_to(np.asarray(origin, dtype=np.float32), (count, 3))
        # Embree writes the distances that it finds into the limits.
        found = self._embree.run(origins, directions, dists=None if limits is None else limits.copy(), output=1)
        hit = found["primID"] >= 0
        distances = np.where(hit, found["tfar"], np.float32(np.inf))
        normals = found["Ng"]
        lengths = np.sqrt(np.einsum("ij,ij->i", normals, normals))
        cosines = np.abs(np.einsum("ij,ij->i", normals, directions)) / np.where(hit, lengths, 1.0)
        surfaces = np.where(hit, np.searchsorted(self._ends, found["primID"], side="right"), -1).astype(np.int32)
        return Hits(distances, np.where(hit, cosines, np.float32(0.0)), surfaces, self.names)


def nearest(first: Hits, second: Hits) -> Hits:
    """Return, ray by ray, the nearer of two scenes' hits; the names of `second` follow those of `first`."""
    nearer = second.distances < first.distances
    return Hits(
        np.where(nearer, second.distances, first.distances),
        np.where(nearer, second.incidence_cosines, first.incidence_cosines),
        np.where(nearer, second.surfaces + np.int32(len(first.names)), first.surfaces),
        [*first.names, *second.names],
    )
