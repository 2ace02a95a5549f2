"""Whether the floor that is seen nearest to the wheels lies on the fitted plane.

What the wheels stand on is hidden by the robot. A mat or a cable cover under one wheel tilts the robot, a rug or a
plate under all raises it, and neither is a straight step, nor large enough to outweigh the floor around. Their edges
show beside the robot: in discs of two sizes, all over the nearest floor, the mean height is compared with its noise
(`highest_spot`). Around a drain, or between two carpets, the floor near the robot is tilted against that farther away
(`nearest_plane_off`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.floor.cells import FloorRays
from stretch_sim_cal.calibration.floor.fit import HALF_INTERQUARTILE, STEP_SPACING, SURFACE_NOISE, FloorFit, FoundFloor
from stretch_sim_cal.calibration.problem import State, curvature_shapes
from stretch_sim_cal.calibration.robust import TUKEY, tukey_weights

FOOTPRINT_RADIUS = 0.3  # m; what lies nearer may be between or under the wheels
# The nearest floor is that within the first of these (m) beyond that radius. Sectors where none is seen there count to
# the second beyond the nearest that is seen, if that is not beyond `FARTHEST`.
MARGIN, DEPTH, FARTHEST, SECTORS = 0.08, 0.05, 0.8, 24
DISCS, SPACING = (0.06, 0.12), 0.03  # radii and distances of the discs, m
LEAST_RAYS = 6
# m: farther off the plane are objects, to whose feet the heights of a disc spread more than this beyond noise.
HIGHEST, MIXED = 0.05, 0.004
# The radius (m) of the floor whose plane is compared; how near (m) its patches agree at best.
AROUND, LEAST_DEVIATION, ITERATIONS = 0.7, 0.0004, 15
# Of 1000 discs on sound floors the largest ratio is 2 to 3.5.
SIGNIFICANCE, LEAST_HEIGHT = 4.5, 0.002  # standard deviations, m


@dataclass(frozen=True)
class Spot:
    """A `place` (2,) near the wheels whose floor is `height` (m) higher than the plane, in base_footprint."""

    place: np.ndarray
    height: float


def highest_spot(rays: Sequence[FloorRays], state: State, found: FoundFloor) -> Spot | None:
    """Return the spot of the nearest floor that is most significantly off the plane of the estimate `state`, or None.
    `rays` are each lidar's, corrected as those of `found`."""
    places, heights, noise = _against(rays, state, found)
    near = _nearest(places)
    places, heights, noise = places[near], heights[near], noise[near]
    if len(places) < LEAST_RAYS:
        return None
    corners = np.floor(places / SPACING).astype(int)
    centres = (np.unique(corners, axis=0) + 0.5) * SPACING
    tree, most, spot = cKDTree(places), SIGNIFICANCE, None
    for radius in DISCS:
        for centre, inside in zip(centres, tree.query_ball_point(centres, radius), strict=True):
            if len(inside) < LEAST_RAYS:
                continue
            lower, median, upper = np.percentile(heights[inside], (25, 50, 75))
            spread = max((upper - lower) / 2 / HALF_INTERQUARTILE, np.median(noise[inside]))
            if spread > max(3.0 * np.median(noise[inside]), MIXED):
                continue
            height = np.clip(heights[inside], median - 2.0 * spread, median + 2.0 * spread).mean()
            ratio = abs(height) / np.hypot(spread / np.sqrt(len(inside)), found.fit.unevenness)
            if ratio > most and abs(height) > LEAST_HEIGHT:
                most, spot = ratio, Spot(centre, float(height))
    return spot


def nearest_plane_off(fit: FloorFit) -> tuple[np.ndarray, np.ndarray]:
    """Return the increment (3,) that leads from a fitted floor to that by the patches within `AROUND` of the robot, and
    its covariance (3, 3) by noise; 0 if too little floor is seen there."""
    near = fit.well_known & fit.allowed & (np.linalg.norm(fit.centres, axis=1) < AROUND)
    heights, slopes, noise = fit.residuals()[near], fit.slopes[near], fit.noise[near]
    off = np.zeros(3)
    for _ in range(ITERATIONS):
        weights = tukey_weights((heights + slopes @ off) / (TUKEY * np.hypot(noise, LEAST_DEVIATION))) / noise**2
        information = (slopes * weights[:, None]).T @ slopes
        if np.linalg.cond(information) > 1e8:
            return np.zeros(3), np.eye(3)
        off = -np.linalg.solve(information, slopes.T @ (weights * heights))
    return off, np.linalg.inv(information)


def _against(rays: Sequence[FloorRays], state: State, found: FoundFloor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where rays aim (N, 2), their heights (N,) over the floor, and the standard deviations of these (N,);
    without the robot, high objects, and what lies beyond a step."""
    places = np.concatenate([part.aims for part in rays])
    against = [part.against(state.floor) for part in rays]
    heights = np.concatenate([part.heights for part in against]) - curvature_shapes(places) @ state.curvature
    along_ray = found.range_noise * np.concatenate([part.cosines for part in against])
    noise = np.hypot(along_ray, SURFACE_NOISE) / np.sqrt(np.concatenate([part.counts for part in rays]))
    kept = ~np.concatenate([part.on_robot for part in rays]) & (np.abs(heights) < HIGHEST)
    if found.fit.step is not None:
        kept &= found.fit.step.beyond(places) < -STEP_SPACING
    return places[kept], heights[kept], noise[kept]


def _nearest(places: np.ndarray) -> np.ndarray:
    """Return which places (N, 2) are the nearest seen to the wheels, as a mask (N,)."""
    distances = np.linalg.norm(places, axis=1)
    sectors = np.floor((np.arctan2(places[:, 1], places[:, 0]) / (2 * np.pi) + 0.5) * SECTORS).astype(int) % SECTORS
    nearest = np.full(SECTORS, np.inf)
    np.minimum.at(nearest, sectors, distances)
    return (distances < np.maximum(nearest + DEPTH, FOOTPRINT_RADIUS + MARGIN)[sectors]) & (distances < FARTHEST)
