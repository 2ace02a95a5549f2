"""Convex shapes in the plane that enclose a robot's body: circle, ellipse, tapered capsule, convex polygon. Lengths in
m, angles in rad unless degrees are named."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import shapely

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import convex_hull, polygon_area


class Shape(ABC):
    """A convex region of the plane, immutable. `vector` has the numbers of `parameters`, which are interpolated."""

    @property
    @abstractmethod
    def area(self) -> float:
        """Area in m^2."""

    @abstractmethod
    def signed_distance(self, points: np.ndarray) -> np.ndarray:
        """Return the distance (N,) of points (N, 2) from the boundary, negative inside."""

    @abstractmethod
    def support(self, directions: np.ndarray) -> np.ndarray:
        """Return how far the shape reaches (N,) from the origin along unit vectors (N, 2)."""

    @abstractmethod
    def outline(self, count: int = 72) -> np.ndarray:
        """Return points (count, 2) on the boundary, counterclockwise, without repeating the first."""

    @abstractmethod
    def covers(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return which (N,) points at `x` (N,) and `y` (N,) are inside, in their precision."""

    @abstractmethod
    def inflated(self, margin: float) -> "Shape":
        """Return the shape grown by a margin, which may be negative."""

    @property
    def parameters(self) -> dict:
        """The numbers that define the shape by the names of the model file."""
        return {field.name: float(getattr(self, field.name)) for field in fields(self)}

    @property
    def vector(self) -> np.ndarray:
        return np.array(list(self.parameters.values()))

    @classmethod
    def from_vector(cls, vector: np.ndarray) -> Self:
        return cls(*(float(value) for value in vector))

    @classmethod
    def from_parameters(cls, parameters: dict) -> "Shape":
        """Raises `InputError` if a parameter is missing or no finite number."""
        names = [field.name for field in fields(cls)]
        try:
            vector = np.array([float(parameters[name]) for name in names])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"a {cls.__name__} needs the numbers {', '.join(names)}: {error}") from error
        if not np.isfinite(vector).all():
            raise InputError(f"a {cls.__name__} needs finite numbers {', '.join(names)}")
        return cls.from_vector(vector)

    def protrusion(self, points: np.ndarray) -> float:
        """Return how far points (N, 2) reach outside at most, 0 or more."""
        return float(max(0.0, self.signed_distance(points).max(initial=0.0)))

    @classmethod
    def protrusions(cls, vectors: np.ndarray, hulls: Sequence[np.ndarray]) -> np.ndarray:
        """Return how far (P,) each of P hulls (K, 2), not empty, reaches outside the shape of its row of `vectors`."""
        return np.array([cls.from_vector(v).protrusion(hull) for v, hull in zip(vectors, hulls, strict=True)])

    def grown_to_enclose(self, points: np.ndarray) -> Self:
        """Return this shape, grown evenly if points (N, 2) reach outside."""
        reach = self.protrusion(points)
        return self if reach == 0.0 else self.inflated(reach * (1 + 1e-12) + 1e-12)


def meeting_points(normals: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return where (K, 2) each line `normal . p = offset` (K of them, cyclic) meets the one before it."""
    before, offsets_before = np.roll(normals, 1, axis=0), np.roll(offsets, 1)
    determinant = before[:, 0] * normals[:, 1] - before[:, 1] * normals[:, 0]
    x = (offsets_before * normals[:, 1] - offsets * before[:, 1]) / determinant
    y = (offsets * before[:, 0] - offsets_before * normals[:, 0]) / determinant
    return np.stack([x, y], axis=1)


def turned(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines (count,) of angles evenly over the whole turn."""
    angles = np.arange(count) * (2 * np.pi / count)
    return np.cos(angles), np.sin(angles)


@dataclass(frozen=True)
class Circle(Shape):
    """A disc of `radius` about a centre."""

    center_x: float
    center_y: float
    radius: float

    @property
    def area(self) -> float:
        return float(np.pi * self.radius**2)

    def signed_distance(self, points):
        return np.hypot(points[:, 0] - self.center_x, points[:, 1] - self.center_y) - self.radius

    def support(self, directions):
        return directions @ [self.center_x, self.center_y] + self.radius

    def outline(self, count=72):
        cosine, sine = turned(count)
        return np.stack([self.center_x + self.radius * cosine, self.center_y + self.radius * sine], axis=1)

    def covers(self, x, y):
        dx, dy = x - x.dtype.type(self.center_x), y - y.dtype.type(self.center_y)
        return dx * dx + dy * dy <= self.radius**2

    def inflated(self, margin):
        return Circle(self.center_x, self.center_y, max(0.0, self.radius + margin))


@dataclass(frozen=True)
class Ellipse(Shape):
    """An ellipse with the full axes `axes_x` and `axes_y`, turned counterclockwise by `angle` degrees. `inflated`
    lengthens each half axis by the margin, as readers of the model file do: a little less between the axes."""

    center_x: float
    center_y: float
    axes_x: float
    axes_y: float
    angle: float

    @property
    def area(self) -> float:
        return float(np.pi / 4 * self.axes_x * self.axes_y)

    @property
    def half(self) -> np.ndarray:
        return np.array([self.axes_x, self.axes_y]) / 2

    @property
    def rotation(self) -> np.ndarray:
        """The matrix (2, 2) whose columns are the axes' directions."""
        cosine, sine = np.cos(np.deg2rad(self.angle)), np.sin(np.deg2rad(self.angle))
        return np.array([[cosine, -sine], [sine, cosine]])

    def in_axes(self, points: np.ndarray) -> np.ndarray:
        return (points - [self.center_x, self.center_y]) @ self.rotation

    def level(self, points: np.ndarray) -> np.ndarray:
        """Return the factors (N,) by which the ellipse about its centre passes through points (N, 2)."""
        return np.linalg.norm(self.in_axes(points) / self.half, axis=1)

    def signed_distance(self, points):
        local = np.abs(self.in_axes(np.asarray(points, dtype=float)))
        inside = ((local / self.half) ** 2).sum(axis=1) <= 1
        return np.where(inside, -1, 1) * np.linalg.norm(local - _nearest_on_ellipse(local, self.half), axis=1)

    def support(self, directions):
        reach = np.linalg.norm((directions @ self.rotation) * self.half, axis=1)
        return directions @ [self.center_x, self.center_y] + reach

    def outline(self, count=72):
        return (self.half * np.stack(turned(count), axis=1)) @ self.rotation.T + [self.center_x, self.center_y]

    def covers(self, x, y):
        to_axes = (self.rotation / self.half).astype(x.dtype)  # in half axes from the centre it is the unit disc
        dx, dy = x - x.dtype.type(self.center_x), y - y.dtype.type(self.center_y)
        along, across = dx * to_axes[0, 0] + dy * to_axes[1, 0], dx * to_axes[0, 1] + dy * to_axes[1, 1]
        return along * along + across * across <= 1

    def inflated(self, margin):
        longer = [max(0.0, float(axis + 2 * margin)) for axis in (self.axes_x, self.axes_y)]
        return Ellipse(self.center_x, self.center_y, *longer, self.angle)

    def scaled(self, factor: float) -> "Ellipse":
        return Ellipse(self.center_x, self.center_y, self.axes_x * factor, self.axes_y * factor, self.angle)

    def grown_to_enclose(self, points):
        factor = float(self.level(points).max(initial=0.0))
        return self if factor <= 1 else self.scaled(factor * (1 + 1e-12))

    def like(self, other: "Ellipse") -> "Ellipse":
        """Return this ellipse with the axes and angle nearest to those of `other`, among its equivalent forms."""

        def unlikeness(form: "Ellipse") -> float:  # the angle by how far it moves the ends of the axes
            turn = np.deg2rad(form.angle - other.angle) * (abs(form.axes_x - form.axes_y) / 2 + 1e-3)
            return (form.axes_x - other.axes_x) ** 2 + (form.axes_y - other.axes_y) ** 2 + float(turn) ** 2

        turns = round((other.angle - self.angle) / 90)
        return min(map(self._counted, range(turns - 4, turns + 5)), key=unlikeness)

    def canonical(self) -> "Ellipse":
        """Return this ellipse with its angle in (-45, 45] degrees."""
        return self._counted(-int(np.ceil((self.angle - 45.0) / 90.0)))

    def _counted(self, turns: int) -> "Ellipse":
        """Return this ellipse with its angle larger by quarter turns, and its axes exchanged accordingly."""
        axes = (self.axes_y, self.axes_x) if turns % 2 else (self.axes_x, self.axes_y)
        return Ellipse(self.center_x, self.center_y, *axes, self.angle + 90.0 * turns)


def _nearest_on_ellipse(points: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Return the nearest points (N, 2) of the ellipse with half axes (2,) to points (N, 2) of the first quadrant:
    Newton on the secular equation sum (half p / (t + half^2))^2 = 1 from left of the root (Eberly, "Distance from a
    Point to an Ellipse"). t is counted from the largest pole, so that points on the longer axis lose no digits."""
    scale = half.max()
    half, points = half / scale, np.maximum(points / scale, 1e-14)
    from_pole = half**2 - half.min() ** 2
    t = (half * points - from_pole).max(axis=1)
    for _ in range(60):
        weight = half * points / (t[:, None] + from_pole)
        excess = (weight**2).sum(axis=1) - 1
        step = excess / (2 * (weight**2 / (t[:, None] + from_pole)).sum(axis=1))
        t = t + step
        if np.all(np.abs(step) <= 1e-14 * t):
            break
    return scale * half**2 * points / (t[:, None] + from_pole)


@dataclass(frozen=True)
class TaperedCapsule(Shape):
    """The convex hull of two discs. `inflated` is the exact parallel shape."""

    x1: float
    y1: float
    r1: float
    x2: float
    y2: float
    r2: float

    @property
    def area(self) -> float:
        return capsule_area(self.vector)[0]

    def signed_distance(self, points):
        return capsule_distance(self.vector, np.asarray(points, dtype=float))[0]

    @classmethod
    def protrusions(cls, vectors, hulls):
        """All at once, many times as fast."""
        counts = np.array([len(hull) for hull in hulls])
        distances = capsule_distance(np.repeat(vectors, counts, axis=0), np.concatenate(hulls))[0]
        return np.maximum(np.maximum.reduceat(distances, np.cumsum(counts) - counts), 0.0)

    def support(self, directions):
        first = directions @ [self.x1, self.y1] + self.r1
        return np.maximum(first, directions @ [self.x2, self.y2] + self.r2)

    def outline(self, count=72):
        """Points at which evenly turned normals touch, none inside the straight sides."""
        directions = np.stack(turned(count), axis=1)
        first = directions @ [self.x1, self.y1] + self.r1 >= directions @ [self.x2, self.y2] + self.r2
        centres = np.where(first[:, None], [self.x1, self.y1], [self.x2, self.y2])
        return centres + directions * np.where(first, self.r1, self.r2)[:, None]

    def covers(self, x, y):
        """Inside is where |p - c(t)|^2 - r(t)^2, quadratic in t, is not positive at its minimum over [0, 1]."""
        number = x.dtype.type
        ex, ey, dr = number(self.x2 - self.x1), number(self.y2 - self.y1), number(self.r2 - self.r1)
        first = number(self.r1)
        px, py = x - number(self.x1), y - number(self.y1)
        curvature = ex * ex + ey * ey - dr * dr
        at_first = px * px + py * py - first * first
        if curvature <= 1e-8:  # one disc holds the other
            return at_first <= 0 if dr <= 0 else (px - ex) ** 2 + (py - ey) ** 2 <= number(self.r2) ** 2
        slope = px * ex + py * ey + first * dr
        t = np.clip(slope / curvature, number(0), number(1))
        return at_first + t * (curvature * t - 2 * slope) <= 0

    def inflated(self, margin):
        smaller = max(margin, -max(self.r1, self.r2))
        return replace(self, r1=max(0.0, self.r1 + smaller), r2=max(0.0, self.r2 + smaller))

    @property
    def is_circle(self) -> bool:
        return np.hypot(self.x2 - self.x1, self.y2 - self.y1) <= abs(self.r1 - self.r2)

    @property
    def larger(self) -> tuple[float, float, float]:
        return (self.x1, self.y1, self.r1) if self.r1 >= self.r2 else (self.x2, self.y2, self.r2)

    def swapped(self) -> "TaperedCapsule":
        return TaperedCapsule(self.x2, self.y2, self.r2, self.x1, self.y1, self.r1)

    def like(self, other: "TaperedCapsule") -> "TaperedCapsule":
        """Return this capsule with its ends ordered as in `other`. A circle's inner disc becomes as much of `other`'s
        second one as fits inside."""
        if not self.is_circle:
            unlike = np.linalg.norm(self.vector - other.vector)
            return self.swapped() if np.linalg.norm(self.swapped().vector - other.vector) < unlike else self
        x, y, larger = self.larger
        radius = min(max(other.r2, 0.0), larger)
        length = float(np.hypot(other.x2 - x, other.y2 - y))
        share = 1.0 if length <= larger - radius else (larger - radius) / length * (1 - 1e-9)
        return TaperedCapsule(x, y, larger, x + share * (other.x2 - x), y + share * (other.y2 - y), radius)

    def canonical(self) -> "TaperedCapsule":
        """Return this capsule with the end nearer to the origin first. If one disc holds the other, both become the
        larger: published readers look only at the first then."""
        if self.is_circle:
            return TaperedCapsule(*self.larger, *self.larger)
        first, second = np.hypot(self.x1, self.y1), np.hypot(self.x2, self.y2)
        return self if (first, self.x1) <= (second, self.x2) else self.swapped()


def capsule_area(vector: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the area of the tapered capsule (x1, y1, r1, x2, y2, r2) and its gradient (6,), finite also if one disc
    holds the other."""
    x1, y1, r1, x2, y2, r2 = vector
    dx, dy, dr = x2 - x1, y2 - y1, r1 - r2
    length = np.hypot(dx, dy)
    if length <= abs(dr):
        larger = max(r1, r2)
        return float(np.pi * larger**2), 2 * np.pi * larger * np.eye(6)[2 if r1 >= r2 else 5]
    beta = np.arccos(dr / length)  # between the axis and the normals of the straight sides
    side = length * np.sin(beta)
    area = (np.pi - beta) * r1**2 + beta * r2**2 + (r1 + r2) * side
    pull = (r1 + r2) * side / length**2
    gradient = [-pull * dx, -pull * dy, 2 * (np.pi - beta) * r1 + side, pull * dx, pull * dy, 2 * beta * r2 + side]
    return float(area), np.array(gradient)


def capsule_distance(vector: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the signed distance (N,) of points (N, 2) from a tapered capsule (6,), or from capsules (N, 6), and its
    gradient (N, 6): the least over t in [0, 1] of |p - c(t)| - r(t), in closed form."""
    x1, y1, r1, x2, y2, r2 = np.moveaxis(vector, -1, 0)
    dx, dy, dr = x2 - x1, y2 - y1, r2 - r1
    length = np.maximum(np.sqrt(dx * dx + dy * dy), 1e-300)
    px, py = points[:, 0] - x1, points[:, 1] - y1
    slope = dr / length
    along, across = (px * dx + py * dy) / length, np.abs(px * dy - py * dx) / length
    swallowed = np.abs(slope) >= 1  # one disc holds the other: all of it is the larger one
    with np.errstate(invalid="ignore", over="ignore"):
        t = (along + across * slope / np.sqrt(np.maximum(1 - slope * slope, 1e-30))) / length
    t = np.where(swallowed, np.where(dr <= 0, 0.0, 1.0), np.minimum(np.maximum(t, 0.0), 1.0))
    ox, oy = px - t * dx, py - t * dy
    reach = np.sqrt(ox * ox + oy * oy)
    scale = 1 / np.maximum(reach, 1e-300)
    ux, uy = ox * scale, oy * scale
    return reach - (r1 + t * dr), np.stack([(t - 1) * ux, (t - 1) * uy, t - 1, -t * ux, -t * uy, -t], axis=1)


@dataclass(frozen=True, eq=False)
class ConvexPolygon(Shape):
    """The convex hull of `vertices` (K, 2), kept in order. `inflated` moves every side outward. `normals` (K, 2),
    optional, are the outward ones of the sides from each vertex, of which some may have no length and still grow."""

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
        hull = shapely.convex_hull(shapely.MultiPoint(self.vertices))
        edge = hull.exterior if hull.geom_type == "Polygon" else hull
        points = shapely.points(np.asarray(points, dtype=float))
        shapely.prepare([hull, edge])
        return np.where(shapely.contains(hull, points), -1, 1) * shapely.distance(edge, points)

    def support(self, directions):
        return (directions @ np.asarray(self.vertices).T).max(axis=1)

    def outline(self, count=72):
        """As of `Shape`; with `count` 0 the corners themselves."""
        corners = self.corners
        if not count:
            return corners
        ring = shapely.LinearRing(corners)
        return shapely.get_coordinates(shapely.line_interpolate_point(ring, np.arange(count) * (ring.length / count)))

    def covers(self, x, y):
        inside = np.ones(len(x), dtype=bool)
        normals, offsets = self._sides()
        for (nx, ny), offset in zip(normals.astype(x.dtype), offsets.astype(x.dtype), strict=True):
            inside &= nx * x + ny * y <= offset
        return inside

    def inflated(self, margin):
        normals, offsets = self._sides()
        return ConvexPolygon(meeting_points(normals, offsets + margin), normals)

    def grown_to_enclose(self, points):
        normals, offsets = self._sides()
        reach = float((points @ normals.T - offsets).max(initial=0.0))
        return self if reach <= 0.0 else self.inflated(reach * (1 + 1e-12) + 1e-12)

    def _sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sides' outward normals (K, 2) and offsets (K,)."""
        if self.normals is not None:
            return self.normals, (self.normals * self.vertices).sum(axis=1)
        corners = self.corners
        edges = np.roll(corners, -1, axis=0) - corners
        normals = np.stack([edges[:, 1], -edges[:, 0]], axis=1) / np.linalg.norm(edges, axis=1)[:, None]
        return normals, (normals * corners).sum(axis=1)


def circumscribed_polygon(shape: Shape, count: int) -> ConvexPolygon:
    """Return the polygon of `count` evenly turned tangents around a shape."""
    normals = np.stack(turned(count), axis=1)
    return ConvexPolygon(meeting_points(normals, shape.support(normals)))
