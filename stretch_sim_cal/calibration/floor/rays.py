"""Rays of a lidar, sorted by where they aim at the floor, not by where they ended.

A range is noisy along its ray only. So a ray is described by the point of the nominal floor that it aims at, which is
known exactly, and by its range minus the range to there. Selecting, gating and weighing by the aim keeps the noise out
of all choices; points selected by where they ended would pull the plane towards the gates, and downhill at grazing
incidence.

All coordinates are in the description's base_footprint, whose x-y plane is the nominal floor.
"""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.geometry.planes import Plane

# Rays at flatter incidence on the nominal floor depend more on its roughness than on its height.
MIN_INCIDENCE_COSINE = 0.2
# Floor farther (m) than this from the robot is not used: the wheels are not on it, and it is the least likely level.
RADIUS = 3.5


@dataclass(frozen=True)
class FloorRays:
    """Rays of one lidar: `aims` (N, 2), where each meets the nominal floor, and `excess` (N,), measured range minus the
    range to there (below zero: something is in the way), in m, each the mean of `counts` (N,) returns. `own` (N,) are
    those that end on the robot itself, which is never floor."""

    aims: np.ndarray
    excess: np.ndarray
    counts: np.ndarray
    own: np.ndarray

    def __len__(self) -> int:
        return len(self.excess)


Rays = tuple[FloorRays, ...]  # by lidar


@dataclass(frozen=True)
class RayResiduals:
    """Rays against an assumed floor: `points` (N, 3), where each meets it, `cosines` (N,) of incidence there (above
    zero), `residuals` (N,), measured range minus the range to there, in m, unit `directions` (N, 3), and the number of
    returns of each, `counts` (N,)."""

    points: np.ndarray
    cosines: np.ndarray
    residuals: np.ndarray
    directions: np.ndarray
    counts: np.ndarray

    @property
    def heights(self) -> np.ndarray:
        """Height (N,) in m of the measured points over the assumed floor."""
        return -self.cosines * self.residuals

    @property
    def measured(self) -> np.ndarray:
        """The measured points (N, 3)."""
        return self.points + self.residuals[:, None] * self.directions


class LidarView:
    """One lidar over the nominal floor, at `footprint_from_lidar` (4, 4), its pose in the description's
    base_footprint."""

    def __init__(self, footprint_from_lidar: np.ndarray):
        self.rotation = footprint_from_lidar[:3, :3]
        self.origin = footprint_from_lidar[:3, 3]

    def rays(self, points: np.ndarray, counts: np.ndarray, own: np.ndarray) -> FloorRays:
        """Return the rays of points (N, 3), lidar frame, that aim at the floor within the radius (m); each point is the
        mean of `counts` (N,) returns, and left out if that is 0; `own` (N,) lie on the robot itself."""
        points, own, counts = points[counts > 0], own[counts > 0], counts[counts > 0]
        ranges = np.linalg.norm(points, axis=1)
        directions = points @ self.rotation.T / np.maximum(ranges, 1e-9)[:, None]
        descending = np.flatnonzero(directions[:, 2] < -MIN_INCIDENCE_COSINE)
        directions, ranges, counts, own = (
            directions[descending],
            ranges[descending],
            counts[descending],
            own[descending],
        )
        nominal = -self.origin[2] / directions[:, 2]
        aims = self.origin[:2] + nominal[:, None] * directions[:, :2]
        near = np.einsum("ij,ij->i", aims, aims) < RADIUS**2
        return FloorRays(aims[near], (ranges - nominal)[near], counts[near], own[near])

    def against(self, rays: FloorRays, floor: Plane) -> RayResiduals:
        """Return the rays against an assumed floor (normal up)."""
        offsets = np.column_stack([rays.aims - self.origin[:2], np.full(len(rays), -self.origin[2])])
        nominal = np.sqrt(np.einsum("ij,ij->i", offsets, offsets))
        directions = offsets / nominal[:, None]
        cosines = np.maximum(-(directions @ floor.normal), 0.5 * MIN_INCIDENCE_COSINE)
        assumed = float(floor.distance(self.origin)) / cosines
        return RayResiduals(
            points=self.origin + assumed[:, None] * directions,
            cosines=cosines,
            residuals=nominal + rays.excess - assumed,
            directions=directions,
            counts=rays.counts,
        )
