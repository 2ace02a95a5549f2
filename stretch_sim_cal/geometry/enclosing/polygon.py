"""The smallest convex polygon with a bounded number of sides around points in the plane."""

from collections.abc import Sequence

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.hulls import spanning_hull
from stretch_sim_cal.geometry.shapes import ConvexPolygon, meeting_points

EVEN_NORMALS = 48  # evenly turned side directions that are tried besides those of the hull's own longest sides
HULL_NORMALS = 64
COMMON_NORMALS = 96


def enclosing_polygon(points: np.ndarray, sides: int) -> ConvexPolygon:
    """Return the convex polygon of at most `sides` (3 or more) sides and least area around points (N, 2).

    All its sides touch the hull. What one side adds to its successor's is independent of all others, so the best
    cycle of `sides` out of a set of directions is found exactly, by dynamic programming; at the optimum all sides but
    one lie on sides of the hull (DePano; Klee), which are among the directions, so the set costs little.
    Raises `InputError` where the points span no area.
    """
    if sides < 3:
        raise InputError(f"a polygon of {sides} sides encloses nothing; 3 or more are needed")
    hull = spanning_hull(points)
    if len(hull) <= sides:
        return ConvexPolygon(hull).padded(sides)
    normals = _candidate_normals(hull)
    reach = hull @ normals.T
    touching = reach.argmax(axis=0)
    excess = _corner_areas(hull, normals, touching)
    chosen = _cheapest_cycle(excess, sides)
    polygon = ConvexPolygon(meeting_points(normals[chosen], reach.max(axis=0)[chosen])).padded(sides)
    return polygon.grown_to_enclose(hull)


def common_normals(hulls: Sequence[np.ndarray], sides: int) -> np.ndarray:
    """Return the outward normals (`sides`, 2) of the polygons with parallel sides that are around each of several hulls
    (their corners (K, 2), counterclockwise) and have the least area together.

    Polygons with parallel sides can be interpolated: the vertices between are those of a polygon with these sides.
    """
    if sides < 3:
        raise InputError(f"a polygon of {sides} sides encloses nothing; 3 or more are needed")
    angles = np.arange(COMMON_NORMALS) * (2 * np.pi / COMMON_NORMALS)
    normals = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    excess = sum(_corner_areas(hull, normals, (hull @ normals.T).argmax(axis=0)) for hull in hulls)
    return normals[_cheapest_cycle(excess, sides)]


def polygon_with_normals(points: np.ndarray, normals: np.ndarray) -> ConvexPolygon:
    """Return the polygon around points (N, 2) whose sides, with normals (K, 2) by increasing angle, all touch."""
    hull = spanning_hull(points)
    return ConvexPolygon(meeting_points(normals, (hull @ normals.T).max(axis=0)), normals)


def _candidate_normals(hull: np.ndarray) -> np.ndarray:
    """Return the outward normals (M, 2) that sides may have, by increasing angle, no two alike."""
    edges = np.roll(hull, -1, axis=0) - hull
    longest = edges[np.argsort(-np.linalg.norm(edges, axis=1))[:HULL_NORMALS]]
    angles = np.arctan2(-longest[:, 0], longest[:, 1])
    even = np.arange(EVEN_NORMALS) * (2 * np.pi / EVEN_NORMALS) - np.pi
    apart = np.abs(np.angle(np.exp(1j * (even[:, None] - angles)))).min(axis=1) > 1e-3
    angles = np.unique(np.concatenate([angles, even[apart]]).round(9))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _corner_areas(hull: np.ndarray, normals: np.ndarray, touching: np.ndarray) -> np.ndarray:
    """Return the area (M, M) between the hull and the corner where side i is followed by side j; inf where none is."""
    p = hull[touching]
    cross = normals[:, None, 0] * normals[None, :, 1] - normals[:, None, 1] * normals[None, :, 0]
    offsets = (normals * p).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (offsets[:, None] * normals[None, :, 1] - offsets[None, :] * normals[:, None, 1]) / cross
        y = (offsets[None, :] * normals[:, None, 0] - offsets[:, None] * normals[None, :, 0]) / cross
    # twice the area of the fan (p_i, corner, p_j), less the hull's own corners from p_i round to p_j
    after = np.roll(hull, -1, axis=0)
    steps = np.concatenate([[0.0], np.cumsum(hull[:, 0] * after[:, 1] - hull[:, 1] * after[:, 0])])
    chain = steps[touching][None, :] - steps[touching][:, None]
    chain = np.where(touching[None, :] < touching[:, None], chain + steps[-1], chain)
    first = p[:, None, 0] * y - p[:, None, 1] * x
    second = x * p[None, :, 1] - y * p[None, :, 0]
    return np.where(cross > 1e-9, (first + second - chain) / 2, np.inf)


def _cheapest_cycle(cost: np.ndarray, count: int) -> np.ndarray:
    """Return the indices (count,) of the cycle of `count` steps with the least sum of `cost[i, j]` for steps i to j.

    A cycle goes round once: its indices increase except for the one step that returns to the start. One of its sides
    lies in every half turn, so starts in the first half suffice.
    """
    total = len(cost)
    forward = np.where(np.triu(np.ones_like(cost, dtype=bool), 1), cost, np.inf)
    starts = np.arange(total // 2 + 1)
    best, came_from = [forward[starts]], []
    for _ in range(count - 2):
        through = best[-1][:, :, None] + forward[None]
        came_from.append(through.argmin(axis=1))
        best.append(through.min(axis=1))
    closed = best[-1] + cost[:, starts].T
    start, index = np.unravel_index(closed.argmin(), closed.shape)
    cycle = [int(index)]
    for previous in reversed(came_from):
        cycle.append(int(previous[start, cycle[-1]]))
    return np.array([starts[start], *reversed(cycle)])
