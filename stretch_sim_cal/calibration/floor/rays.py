"""Rays of a lidar told by where they aim at the floor, not by where they ended.

A range is noisy along its ray only, so what a ray says of the floor is its range minus the range to a floor assumed
there, and where it aims is known exactly. Sorting, gating and fitting by the aim keeps the noise out of all choices;
points chosen by where they ended up would pull the plane (towards gates, and downhill at grazing incidence).

All here is in the frame of the description's base_footprint, whose x-y plane is the nominal floor.
"""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.geometry.planes import Plane

# Rays flatter than this against the nominal floor say more about its roughness than about its height.
MIN_INCIDENCE_COSINE = 0.2


@dataclass(frozen=True)
class FloorRays:
    """Rays of one lidar: `aims` (N, 2), where each would meet the nominal floor, and `excess` (N,), measured range minus the
    range to there (below zero: something is in the way), in m, each the mean of `counts` (N,) returns."""

    aims: np.ndarray
    excess: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.excess)


@dataclass(frozen=True)
class RayResiduals:
    """Rays against an assumed floor: `points` (N, 3), where each would meet it, `cosines` (N,) of incidence there
    (above zero), `residuals` (N,), measured range minus the range to there, in m, unit `directions` (N, 3), and of how many returns each is, `counts` (N,)."""

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


class FloorView:
    """One lidar over the nominal floor. `footprint_from_lidar` (4, 4) is its pose in the description's
    base_footprint."""

    def __init__(self, footprint_from_lidar: np.ndarray, radius: float):
        self.rotation = footprint_from_lidar[:3, :3]
        self.origin = footprint_from_lidar[:3, 3]
        self.radius = radius

    def rays(self, points: np.ndarray, counts: np.ndarray) -> FloorRays:
        """Return the rays of points (N, 3), lidar frame, that aim at the floor within the radius; each point is the mean of
        `counts` (N,) returns, none of them without any."""
        points, counts = points[counts > 0], counts[counts > 0]
        ranges = np.linalg.norm(points, axis=1)
        directions = points @ self.rotation.T / np.maximum(ranges, 1e-9)[:, None]
        descending = np.flatnonzero(directions[:, 2] < -MIN_INCIDENCE_COSINE)
        directions, ranges, counts = directions[descending], ranges[descending], counts[descending]
        nominal = -self.origin[2] / directions[:, 2]
        aims = self.origin[:2] + nominal[:, None] * directions[:, :2]
        near = np.einsum("ij,ij->i", aims, aims) < self.radius**2
        return FloorRays(aims[near], (ranges - nominal)[near], counts[near])

    def against(self, rays: FloorRays, floor: Plane) -> RayResiduals:
        """Return the rays against an assumed floor (in base_footprint of the description, normal up)."""
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
