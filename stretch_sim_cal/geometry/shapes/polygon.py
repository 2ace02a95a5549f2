"""A convex polygon whose vertices keep their order and number."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.hulls import convex_hull, polygon_area
from stretch_sim_cal.geometry.shapes.base import Shape, meeting_points, turned


@dataclass(frozen=True, eq=False)
class ConvexPolygon(Shape):
    """The convex hull of `vertices` (K, 2), kept in the order given. `inflated` moves every side outward.

    `normals` (K, 2), where given, are the outward ones of the sides that begin at each vertex: sides may then have no
    length, as where several tangents touch a corner, and still grow when the polygon is inflated.
    """

    vertices: np.ndarray
    normals: np.ndarray | None = None

    @property
    def corners(self) -> np.ndarray:
        """The vertices that the hull needs, counterclockwise."""
        return convex_hull(self.vertices)

    @property
    def area(self) -> float:
        return polygon_area(self.corners)

    @property
    def parameters(self) -> dict:
        return {"vertices": np.asarray(self.vertices, dtype=float).tolist()}

    @property
    def vector(self) -> np.ndarray:
        return np.asarray(self.vertices, dtype=float).ravel()

    @classmethod
    def from_vector(cls, vector):
        return cls(np.asarray(vector, dtype=float).reshape(-1, 2))

    @classmethod
    def from_parameters(cls, parameters):
        try:
            vertices = np.array(parameters["vertices"], dtype=float)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"a ConvexPolygon needs 'vertices', a list of [x, y]: {error}") from error
        if vertices.ndim != 2 or vertices.shape[1] != 2 or len(vertices) < 3 or not np.isfinite(vertices).all():
            raise InputError("a ConvexPolygon needs 'vertices', three or more [x, y] of finite numbers")
        return cls(vertices)

    def signed_distance(self, points):
        points = np.asarray(points, dtype=float)
        corners = self.corners
        edges = np.roll(corners, -1, axis=0) - corners
        squared = np.full(len(points), np.inf)
        inside = np.full(len(points), len(corners) > 2)
        for corner, edge in zip(corners, edges, strict=True):
            offset = points - corner
            inside &= edge[0] * offset[:, 1] - edge[1] * offset[:, 0] >= 0
            t = np.clip(offset @ edge / max(edge @ edge, 1e-300), 0.0, 1.0)
            squared = np.minimum(squared, ((offset - t[:, None] * edge) ** 2).sum(axis=1))
        return np.where(inside, -1, 1) * np.sqrt(squared)

    def support(self, directions):
        return (directions @ np.asarray(self.vertices).T).max(axis=1)

    def outline(self, count=72):
        """`count` points evenly along the boundary; with `count` 0 the corners themselves."""
        corners = self.corners
        if not count:
            return corners
        closed = np.vstack([corners, corners[:1]])
        along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(closed, axis=0), axis=1))])
        at = np.arange(count) * (along[-1] / count)
        return np.stack([np.interp(at, along, closed[:, axis]) for axis in (0, 1)], axis=1)

    def covers(self, x, y):
        inside = np.ones(len(x), dtype=bool)
        normals, offsets = self._sides()
        for (nx, ny), offset in zip(normals.astype(x.dtype), offsets.astype(x.dtype), strict=True):
            inside &= nx * x + ny * y <= offset
        return inside

    def inflated(self, margin):
        normals, offsets = self._sides()
        moved = meeting_points(normals, offsets + margin)
        if self.normals is not None:
            return ConvexPolygon(moved, self.normals)
        return ConvexPolygon(moved).padded(len(self.vertices)).like(self)

    def grown_to_enclose(self, points):
        normals, offsets = self._sides()
        reach = float((points @ normals.T - offsets).max(initial=0.0))
        return self if reach <= 0.0 else self.inflated(reach * (1 + 1e-12) + 1e-12)

    def _sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the outward normals (K, 2) of the sides, each beginning at its corner, and their offsets (K,)."""
        if self.normals is not None:
            return self.normals, (self.normals * self.vertices).sum(axis=1)
        corners = self.corners
        edges = np.roll(corners, -1, axis=0) - corners
        normals = np.stack([edges[:, 1], -edges[:, 0]], axis=1) / np.linalg.norm(edges, axis=1)[:, None]
        return normals, (normals * corners).sum(axis=1)

    def padded(self, count: int) -> "ConvexPolygon":
        """Return this same polygon with its last vertex repeated until there are `count`."""
        missing = max(0, count - len(self.vertices))
        return ConvexPolygon(np.vstack([self.vertices, np.repeat(self.vertices[-1:], missing, axis=0)]))

    def like(self, other: "ConvexPolygon") -> "ConvexPolygon":
        """Return this same polygon, its vertices counted from where they are nearest to `other`'s, one by one."""
        if self.normals is not None or len(self.vertices) != len(other.vertices):
            return self
        shifts = [np.roll(self.vertices, shift, axis=0) for shift in range(len(self.vertices))]
        return ConvexPolygon(min(shifts, key=lambda vertices: ((vertices - other.vertices) ** 2).sum()))


def circumscribed_polygon(shape: Shape, count: int) -> ConvexPolygon:
    """Return the polygon of `count` evenly turned tangents around a shape."""
    normals = np.stack(turned(count), axis=1)
    return ConvexPolygon(meeting_points(normals, shape.support(normals)))
