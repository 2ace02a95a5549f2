"""How far points are from a robot's surfaces in a pose, and from which link's: a k-d tree per link, in its frame."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.body.outline import LinkSurface

SPACING = (
    0.012  # m, between the points that stand for a surface in the search; distances are to the triangles themselves
)


@dataclass(frozen=True)
class Closest:
    """For each of N points the nearest of the robot's surfaces: `distances` (N,) in m, inf beyond the limit;
    `links` (N,) indices into the index's `links`, -1 beyond the limit; `points` and outward unit `normals` (N, 3)."""

    distances: np.ndarray
    links: np.ndarray
    points: np.ndarray
    normals: np.ndarray


class SurfaceIndex:
    """Surfaces by link (vertices and faces in link frames), ready for nearest-point queries in any pose."""

    def __init__(self, surfaces: Mapping[str, LinkSurface]):
        self.links = list(surfaces)
        self._parts = [_Part(surface) for surface in surfaces.values()]

    def bounds(self, frame_from_link: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and highest corner (3,) of a box around all surfaces."""
        corners = []
        for link, part in zip(self.links, self._parts, strict=True):
            rotation, translation = frame_from_link[link][:3, :3], frame_from_link[link][:3, 3]
            centre, half = rotation @ part.centre + translation, np.abs(rotation) @ part.half
            corners += [centre - half, centre + half]
        return np.min(corners, axis=0), np.max(corners, axis=0)

    def closest(self, points: np.ndarray, frame_from_link: Mapping[str, np.ndarray], limit: float) -> Closest:
        """Return the nearest surface within `limit` (m) of points (N, 3), links being at `frame_from_link` (4, 4)."""
        distances = np.full(len(points), np.inf)
        links = np.full(len(points), -1)
        nearest, normals = np.zeros((len(points), 3)), np.zeros((len(points), 3))
        for index, (link, part) in enumerate(zip(self.links, self._parts, strict=True)):
            transform = frame_from_link[link]
            rotation, translation = transform[:3, :3], transform[:3, 3]
            reach = np.abs(rotation) @ part.half + limit
            around = np.flatnonzero((np.abs(points - (rotation @ part.centre + translation)) < reach).all(axis=1))
            local = (points[around] - translation) @ rotation
            near = part.in_box(local, limit)
            around, local = around[near], local[near]
            if not len(around):
                continue
            found, triangles, feet = part.closest(local, limit)
            better = found < distances[around]
            chosen = around[better]
            distances[chosen], links[chosen] = found[better], index
            nearest[chosen] = feet[better] @ rotation.T + translation
            normals[chosen] = part.normals[triangles[better]] @ rotation.T
        return Closest(distances, links, nearest, normals)


class _Part:
    """One link's triangles and the tree over points that are spread over them."""

    def __init__(self, surface: LinkSurface):
        self.triangles = surface.vertices[surface.faces]
        cross = np.cross(self.triangles[:, 1] - self.triangles[:, 0], self.triangles[:, 2] - self.triangles[:, 0])
        lengths = np.linalg.norm(cross, axis=1)
        self.triangles = self.triangles[lengths > 1e-12]  # slivers without an area have no normal and cover nothing
        self.normals = cross[lengths > 1e-12] / lengths[lengths > 1e-12, None]
        self.low, self.high = self.triangles.min(axis=(0, 1)), self.triangles.max(axis=(0, 1))
        self.centre = (self.low + self.high) / 2
        self.half = (self.high - self.low) / 2
        spread, self._triangle_of = spread_points(self.triangles, SPACING)
        self._tree = cKDTree(spread)

    def in_box(self, points: np.ndarray, margin: float) -> np.ndarray:
        return ((points > self.low - margin) & (points < self.high + margin)).all(axis=1)

    def closest(self, points: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return distance (N,), triangle (N,) and nearest point on it (N, 3); distance inf beyond the limit."""
        found, index = self._tree.query(points, k=2, distance_upper_bound=limit + SPACING)
        best = np.full(len(points), np.inf)
        triangles, feet = np.zeros(len(points), dtype=int), np.zeros((len(points), 3))
        for column in (0, 1):
            hit = np.flatnonzero(np.isfinite(found[:, column]))
            candidates = self._triangle_of[index[hit, column]]
            foot = nearest_on_triangles(points[hit], self.triangles[candidates])
            distance = np.linalg.norm(points[hit] - foot, axis=1)
            better = distance < best[hit]
            best[hit[better]] = distance[better]
            triangles[hit[better]], feet[hit[better]] = candidates[better], foot[better]
        best[best > limit] = np.inf
        return best, triangles, feet


def spread_points(triangles: np.ndarray, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points (M, 3) on triangles (F, 3, 3), neighbours about `spacing` apart, and each one's triangle (M,).

    Rows run along the longest side, so that long thin triangles get one row and not a square of points.
    """
    sides = np.roll(triangles, -1, axis=1) - triangles
    lengths = np.linalg.norm(sides, axis=2)
    longest = lengths.argmax(axis=1)
    each = np.arange(len(triangles))
    start, side, length = triangles[each, longest], sides[each, longest], lengths[each, longest]
    to_apex = triangles[each, (longest + 2) % 3] - start
    height = np.linalg.norm(np.cross(side, to_apex), axis=1) / length
    rows = np.maximum(1, np.ceil(height / spacing)).astype(int)
    row_owner = np.repeat(each, rows)
    row = np.arange(len(row_owner)) - np.repeat(np.cumsum(rows) - rows, rows)
    up = (row + 0.5) / rows[row_owner]
    columns = np.maximum(1, np.ceil((1 - up) * length[row_owner] / spacing)).astype(int)
    point_row = np.repeat(np.arange(len(row_owner)), columns)
    column = np.arange(len(point_row)) - np.repeat(np.cumsum(columns) - columns, columns)
    owner, up = row_owner[point_row], up[point_row]
    along = (1 - up) * (column + 0.5) / columns[point_row]
    return start[owner] + along[:, None] * side[owner] + up[:, None] * to_apex[owner], owner


def nearest_on_triangles(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Return for each of points (N, 3) the nearest point (N, 3) of its triangle (N, 3, 3).

    Inside the prism over the triangle that is the foot on its plane, elsewhere the nearest point of its sides.
    """
    a, b, c = triangles[:, 0], triangles[:, 1], triangles[:, 2]
    normal = np.cross(b - a, c - a)
    normal /= np.linalg.norm(normal, axis=1)[:, None]
    best = points - ((points - a) * normal).sum(axis=1)[:, None] * normal
    outside = np.zeros(len(points), dtype=bool)
    for start, end in ((a, b), (b, c), (c, a)):
        outside |= (np.cross(end - start, best - start) * normal).sum(axis=1) < 0
    squared = np.where(outside, np.inf, 0.0)
    for start, end in ((a, b), (b, c), (c, a)):
        side = end - start
        share = np.clip(((points - start) * side).sum(axis=1) / (side * side).sum(axis=1), 0.0, 1.0)
        foot = start + share[:, None] * side
        distance = ((points - foot) ** 2).sum(axis=1)
        nearer = outside & (distance < squared)
        best[nearer], squared[nearer] = foot[nearer], distance[nearer]
    return best
