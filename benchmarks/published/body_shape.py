"""The published body-shape fit, written anew from its public description, as the peer to compare with.

Returns in a box around the robot are counted in 3 cm cells of the floor; the lower corners of cells with 20 hits or
more are taken as points, and a tapered capsule around them is sought by SLSQP from one start (two discs along the
longer side of the bounding box), which is also the answer where the solver fails.
"""

import numpy as np
from scipy.optimize import minimize

from stretch_sim_cal.geometry.hulls import convex_hull
from stretch_sim_cal.geometry.shapes import TaperedCapsule, capsule_area

CELL, HITS = 0.03, 20
LOW, HIGH = np.array([-0.5, -0.5, 0.06]), np.array([1.5, 0.5, 1.6])  # m, the box that is taken for the robot


def published_capsule(points: np.ndarray) -> TaperedCapsule | None:
    """Return the capsule for returns (N, 3) in base_footprint; None where fewer than 5 cells have hits enough."""
    inside = points[((points > LOW) & (points < HIGH)).all(axis=1), :2]
    cells, hits = np.unique(np.floor((inside - LOW[:2]) / CELL).astype(int), axis=0, return_counts=True)
    cells = cells[hits >= HITS]
    if len(cells) < 5:
        return None
    return _fitted(convex_hull(cells * CELL + LOW[:2]))


def _fitted(corners: np.ndarray) -> TaperedCapsule:
    low, high = corners.min(axis=0), corners.max(axis=0)
    middle, size = (low + high) / 2, high - low
    along = int(size[1] >= size[0])
    first, second = middle.copy(), middle.copy()
    first[along], second[along] = low[along] + size[along] / 4, high[along] - size[along] / 4
    radius = max(1e-3, 0.6 * size[1 - along])
    start = np.array([*first, radius, *second, radius])
    found = minimize(
        lambda z: capsule_area(z)[0],
        start,
        bounds=[(None, None), (None, None), (1e-4, None)] * 2,
        constraints={"type": "ineq", "fun": lambda z: _squared_slack(z, corners)},
        method="SLSQP",
        options={"ftol": 1e-6, "maxiter": 500},
    )
    return TaperedCapsule.from_vector(found.x if found.success else start)


def _squared_slack(z: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return r(t)^2 - |p - c(t)|^2 at the t in [0, 1] where that is largest; 0 for t where one disc holds the other."""
    x1, y1, r1, x2, y2, r2 = z
    axis, growth = np.array([x2 - x1, y2 - y1]), r2 - r1
    curvature = axis @ axis - growth**2
    offset = points - [x1, y1]
    slope = offset @ axis + r1 * growth
    t = np.clip(slope / curvature, 0.0, 1.0) if curvature > 1e-8 else np.zeros(len(points))
    return r1**2 - (offset**2).sum(axis=1) + 2 * t * slope - curvature * t**2
