"""The tapered capsule, and its area and distance with their gradients."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.geometry.shapes.base import Shape, turned


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
        """All in one, many times as fast as one by one."""
        counts = np.array([len(hull) for hull in hulls])
        distances = capsule_distance(np.repeat(vectors, counts, axis=0), np.concatenate(hulls))[0]
        return np.maximum(np.maximum.reduceat(distances, np.cumsum(counts) - counts), 0.0)

    def support(self, directions):
        first = directions @ [self.x1, self.y1] + self.r1
        return np.maximum(first, directions @ [self.x2, self.y2] + self.r2)

    def outline(self, count=72):
        """Points where evenly turned normals touch, without the straight sides' inner points."""
        directions = np.stack(turned(count), axis=1)
        first = directions @ [self.x1, self.y1] + self.r1 >= directions @ [self.x2, self.y2] + self.r2
        centres = np.where(first[:, None], [self.x1, self.y1], [self.x2, self.y2])
        return centres + directions * np.where(first, self.r1, self.r2)[:, None]

    def covers(self, x, y):
        """A point is inside where |p - c(t)|^2 - r(t)^2, quadratic in t, is not positive at its minimum over [0, 1]."""
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
        grown = [max(0.0, self.r1 + smaller), max(0.0, self.r2 + smaller)]
        return TaperedCapsule(self.x1, self.y1, grown[0], self.x2, self.y2, grown[1])

    @property
    def is_circle(self) -> bool:
        """Whether one disc holds the other."""
        return np.hypot(self.x2 - self.x1, self.y2 - self.y1) <= abs(self.r1 - self.r2)

    def swapped(self) -> "TaperedCapsule":
        """Return this same capsule with its ends exchanged."""
        return TaperedCapsule(self.x2, self.y2, self.r2, self.x1, self.y1, self.r1)

    def like(self, other: "TaperedCapsule") -> "TaperedCapsule":
        """Return this same capsule with its ends in the order that is nearest to `other`.

        Where it is a circle, the disc within may be any: it becomes what of `other`'s second one fits inside.
        """
        if self.is_circle:
            return self.with_disc_inside(other.x2, other.y2, other.r2)
        unlike = np.linalg.norm(self.vector - other.vector)
        return self.swapped() if np.linalg.norm(self.swapped().vector - other.vector) < unlike else self

    def with_disc_inside(self, x: float, y: float, radius: float) -> "TaperedCapsule":
        """Return this circle (the larger disc of a capsule that is one) with a second disc in it, as near as fits to
        one of a given centre and radius."""
        x1, y1, r1 = (self.x1, self.y1, self.r1) if self.r1 >= self.r2 else (self.x2, self.y2, self.r2)
        radius = min(max(radius, 0.0), r1)
        length = float(np.hypot(x - x1, y - y1))
        share = 1.0 if length <= r1 - radius else (r1 - radius) / length * (1 - 1e-9)
        return TaperedCapsule(x1, y1, r1, x1 + share * (x - x1), y1 + share * (y - y1), radius)

    def canonical(self) -> "TaperedCapsule":
        """Return this same capsule with the end nearer to the origin first.

        Where one disc holds the other both ends become the larger: published readers look only at the first then.
        """
        if self.is_circle:
            larger = (self.x1, self.y1, self.r1) if self.r1 >= self.r2 else (self.x2, self.y2, self.r2)
            return TaperedCapsule(*larger, *larger)
        first, second = np.hypot(self.x1, self.y1), np.hypot(self.x2, self.y2)
        return self if (first, self.x1) <= (second, self.x2) else self.swapped()


def capsule_area(vector: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the area of the tapered capsule (x1, y1, r1, x2, y2, r2) and its gradient (6,).

    The gradient is the boundary's speed integrated along it, so it stays finite where one disc swallows the other.
    """
    x1, y1, r1, x2, y2, r2 = vector
    dx, dy, dr = x2 - x1, y2 - y1, r1 - r2
    length = np.hypot(dx, dy)
    if length <= abs(dr):
        larger = max(r1, r2)
        gradient = np.zeros(6)
        gradient[2 if r1 >= r2 else 5] = 2 * np.pi * larger
        return float(np.pi * larger**2), gradient
    beta = np.arccos(dr / length)  # between the axis and the normals of the straight sides
    side = length * np.sin(beta)
    area = (np.pi - beta) * r1**2 + beta * r2**2 + (r1 + r2) * side
    pull = (r1 + r2) * side / length**2
    gradient = [-pull * dx, -pull * dy, 2 * (np.pi - beta) * r1 + side, pull * dx, pull * dy, 2 * beta * r2 + side]
    return float(area), np.array(gradient)


def capsule_distance(vector: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the signed distance (N,) of points (N, 2) from a tapered capsule (6,), or each from its own of capsules
    (N, 6), and its gradient (N, 6) by the capsule's numbers.

    The capsule is the union of the discs between its ends, so the distance is the least over t in [0, 1] of
    |p - c(t)| - r(t), which is convex in t and has its minimum in closed form.
    """
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
    gradient = np.empty((len(points), 6))
    ux, uy = ox * scale, oy * scale
    gradient[:, 0], gradient[:, 1], gradient[:, 2] = (t - 1) * ux, (t - 1) * uy, t - 1
    gradient[:, 3], gradient[:, 4], gradient[:, 5] = -t * ux, -t * uy, -t
    return reach - (r1 + t * dr), gradient
