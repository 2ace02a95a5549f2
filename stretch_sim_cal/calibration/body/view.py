"""What the lidars should see of the robot in a pose: rays from the lidars against the model's surfaces."""

from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np

from stretch_sim_cal.calibration.body.outline import LinkSurface
from stretch_sim_cal.geometry.rays import RayTarget

BLOCKED = 0.05  # m: a lidar that has the model this far in front of a point did not see it


def nearest_range(points: np.ndarray, origins: np.ndarray) -> np.ndarray:
    """Return the distance (N,) of points (N, 3) from the nearest of lidars at `origins` (L, 3)."""
    squared = np.full(len(points), np.inf)
    for origin in origins:
        x, y, z = (points[:, axis] - origin[axis] for axis in range(3))
        np.minimum(squared, x * x + y * y + z * z, out=squared)
    return np.sqrt(squared)


def robot_views(
    surfaces: Mapping[str, LinkSurface], poses: Sequence[Mapping[str, np.ndarray]], origins: np.ndarray
) -> "list[RobotView]":
    """Return the model's views in several poses (links at `poses[i][link]`, 4x4) from lidars at `origins` (L, 3).

    Links that are at the same place in all poses, most triangles of a robot, are prepared once.
    """
    still = [link for link in surfaces if all(np.array_equal(pose[link], poses[0][link]) for pose in poses)]
    base = Triangles.of({link: surfaces[link] for link in still}, poses[0])
    moving = {link: surface for link, surface in surfaces.items() if link not in still}
    return [RobotView([*still, *moving], [base, Triangles.of(moving, pose)], origins) for pose in poses]


class Triangles:
    """Links' triangles in one pose, ready for rays: their unit normals, and which link (by number) each is of."""

    def __init__(self, triangles: np.ndarray, link_of: np.ndarray):
        normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
        self.normals = normals / np.maximum(np.linalg.norm(normals, axis=1), 1e-30)[:, None]
        self.link_of = link_of
        self.target = RayTarget(triangles)

    @classmethod
    def of(cls, surfaces: Mapping[str, LinkSurface], pose: Mapping[str, np.ndarray]) -> "Triangles":
        posed = [
            (surface.vertices @ pose[link][:3, :3].T + pose[link][:3, 3])[surface.faces]
            for link, surface in surfaces.items()
        ]
        counts = [len(triangles) for triangles in posed]
        return cls(np.concatenate([np.empty((0, 3, 3)), *posed]), np.repeat(np.arange(len(posed)), counts))


class RobotView:
    """The model's surfaces in one pose, lidars at `origins` (L, 3); `links` names what link numbers stand for."""

    def __init__(self, links: Sequence[str], parts: Sequence[Triangles], origins: np.ndarray):
        self.links = list(links)
        self._targets = [part.target for part in parts]
        self._normals = np.concatenate([part.normals for part in parts] + [np.zeros((1, 3))])
        offsets = np.cumsum([0] + [1 + part.link_of.max(initial=-1) for part in parts[:-1]])
        self._link_of = np.concatenate(
            [part.link_of + offset for part, offset in zip(parts, offsets, strict=True)] + [[-1]]
        )
        self._starts = np.cumsum([0] + [len(part.normals) for part in parts[:-1]])
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
        to the point, and rather behind it than in front. `model_from_seen` (4, 4) moves points and lidars before.
        Gives distances (N,), negative where the model is in front of the point and inf where the ray misses it, unit
        normals (N, 3) against the ray, links (N,) as indices into `links`, and the rays' directions (N, 3).
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
        return distances, normals, self._link_of[triangles], directions

    def _from(self, points: np.ndarray, origins: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rays = points - origins
        ranges = np.linalg.norm(rays, axis=1)
        directions = rays / np.maximum(ranges, 1e-9)[:, None]
        hits, triangles = np.full(len(points), np.inf), np.full(len(points), -1)  # the last normal and link: none
        for target, start in zip(self._targets, self._starts, strict=True):
            found, index = target.cast(origins, directions)
            nearer = found < hits
            hits[nearer], triangles[nearer] = found[nearer], index[nearer] + start
        return hits - ranges, triangles, directions


def _strangeness(ahead: np.ndarray) -> np.ndarray:
    return np.where(ahead < -BLOCKED, 1e6, np.abs(ahead))
