"""Convex hulls of points in the plane that do not fail on few, equal or collinear points."""

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from stretch_sim_cal.errors import InputError


def convex_hull(points: np.ndarray) -> np.ndarray:
    """Return the corners (K, 2) of the convex hull of points (N, 2), counterclockwise.

    Two corners remain of collinear points and one of equal points; none of no points. Points must be finite.
    """
    points = np.asarray(points, dtype=float).reshape(-1, 2)
    if len(points) < 3:
        return np.unique(points, axis=0)
    try:
        return points[ConvexHull(points).vertices]
    except QhullError:  # flat to rounding: the two extremes along the longest direction are all there is
        centred = points - points.mean(axis=0)
        along = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
        return np.unique(points[[along.argmin(), along.argmax()]], axis=0)


def spanning_hull(points: np.ndarray) -> np.ndarray:
    """Return the convex hull (K, 2), K >= 3, of points (N, 2). Raises `InputError` where there is none with an area."""
    points = np.asarray(points, dtype=float)
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise InputError(f"points of shape {points.shape}: (N, 2) finite numbers were expected")
    hull = convex_hull(points)
    if len(hull) < 3:
        raise InputError(f"{len(points)} points span no area; a shape needs three or more that are not on one line")
    return hull


def polygon_area(corners: np.ndarray) -> float:
    """Return the area of a simple polygon (K, 2), positive where its corners run counterclockwise."""
    x, y = np.asarray(corners, dtype=float).T
    return float(0.5 * (x @ np.roll(y, -1) - y @ np.roll(x, -1))) if len(x) > 2 else 0.0
