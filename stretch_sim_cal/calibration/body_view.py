"""What the lidars should see of the robot in a pose: rays from the lidars against the model's surfaces."""

from collections.abc import Mapping
from copy import copy

import numpy as np

from stretch_sim_cal.calibration.body_outline import LinkSurface
from stretch_sim_cal.geometry.rays import RayTarget

BLOCKED = 0.05  # m: a lidar that has the model this far in front of a point did not see it


class RobotView:
    """The model's surfaces in one pose, links being at `footprint_from_link` (4, 4), and the lidars at `origins` (L, 3)."""

    def __init__(
        self, surfaces: Mapping[str, LinkSurface], footprint_from_link: Mapping[str, np.ndarray], origins: np.ndarray
    ):
        self.links = list(surfaces)
        posed = [
            (surface.vertices @ footprint_from_link[link][:3, :3].T + footprint_from_link[link][:3, 3])[surface.faces]
            for link, surface in surfaces.items()
        ]
        self._link_of = np.repeat(np.arange(len(posed)), [len(triangles) for triangles in posed])
        triangles = np.concatenate(posed)
        self._normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
        self._normals /= np.maximum(np.linalg.norm(self._normals, axis=1), 1e-30)[:, None]
        self._target = RayTarget(triangles)
        self.origins = np.asarray(origins, dtype=float)

    def seen_from(self, origins: np.ndarray) -> "RobotView":
        """Return the same surfaces seen from lidars at other places (L, 3)."""
        other = copy(self)
        other.origins = np.asarray(origins, dtype=float)
        return other

    def ahead(
        self, points: np.ndarray, lidars: np.ndarray | None, model_from_seen: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return how far beyond points (N, 3) the model is along the ray that saw each, and what is there.

        `lidars` (N,) says which lidar saw a point; where it is None the one is taken whose ray meets the model nearest
        to the point, and rather behind it than in front. `model_from_seen` (4, 4) moves points and lidars before. Gives distances (N,), negative where
        the model is in front of the point and inf where the ray misses it, unit normals (N, 3) against the ray,
        links (N,) as indices into `links`, and the rays' directions (N, 3).
        """
        motion = np.eye(4) if model_from_seen is None else model_from_seen
        points = points @ motion[:3, :3].T + motion[:3, 3]
        origins = self.origins @ motion[:3, :3].T + motion[:3, 3]
        distances, triangles, directions = self._from(points, origins[0 if lidars is None else lidars])
        if lidars is None:
            for origin in origins[1:]:
                other = self._from(points, origin)
                better = _strangeness(other[0]) < _strangeness(distances)
                for mine, theirs in zip((distances, triangles, directions), other, strict=True):
                    mine[better] = theirs[better]
        normals = self._normals[triangles]
        normals = np.where((normals * directions).sum(axis=1)[:, None] > 0, -normals, normals)
        return distances, normals, np.where(triangles >= 0, self._link_of[triangles], -1), directions

    def _from(self, points: np.ndarray, origins: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rays = points - origins
        ranges = np.linalg.norm(rays, axis=1)
        directions = rays / np.maximum(ranges, 1e-9)[:, None]
        hits, triangles = self._target.cast(origins, directions)
        return hits - ranges, triangles, directions


def _strangeness(ahead: np.ndarray) -> np.ndarray:
    return np.where(ahead < -BLOCKED, 1e6, np.abs(ahead))
