"""The smallest circle around points in the plane."""

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.hulls import convex_hull
from stretch_sim_cal.geometry.shapes import Circle

ROUNDING = 1e-13  # m, by which a circle through points may miss them


def enclosing_circle(points: np.ndarray) -> Circle:
    """Return the smallest circle around points (N, 2), exact (Welzl's incremental construction, shuffled)."""
    hull = convex_hull(points)
    if not len(hull):
        raise InputError("no points: a circle needs one or more")
    shuffled = hull[np.random.default_rng(0).permutation(len(hull))]
    corners = [complex(x, y) for x, y in shuffled]
    centre, radius = corners[0], 0.0
    for i, p in enumerate(corners):
        if abs(p - centre) > radius + ROUNDING:
            centre, radius = _circle_through(corners[:i], p)
    return Circle(centre.real, centre.imag, radius).grown_to_enclose(hull)


def _circle_through(points: list[complex], p: complex) -> tuple[complex, float]:
    """Return centre and radius of the smallest circle around points with `p` on it; a point is x + iy."""
    centre, radius = p, 0.0
    for j, q in enumerate(points):
        if abs(q - centre) <= radius + ROUNDING:
            continue
        centre, radius = (p + q) / 2, abs(p - q) / 2
        for r in points[:j]:
            if abs(r - centre) > radius + ROUNDING:
                centre, radius = _circle_on(p, q, r)
    return centre, radius


def _circle_on(p: complex, q: complex, r: complex) -> tuple[complex, float]:
    """Return the circle through three points; of points on one line, that over the two furthest apart."""
    q, r = q - p, r - p
    cross = (q.conjugate() * r).imag
    if abs(cross) < 1e-15 * max(abs(q), abs(r)) ** 2:
        a, b = max(((0j, q), (0j, r), (q, r)), key=lambda pair: abs(pair[1] - pair[0]))
        return p + (a + b) / 2, abs(b - a) / 2
    offset = 1j * (q * abs(r) ** 2 - r * abs(q) ** 2) / (2 * cross)
    return p + offset, abs(offset)
