"""An ellipse, its exact distance and its names for the same numbers."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.geometry.shapes.base import Shape, turned


@dataclass(frozen=True)
class Ellipse(Shape):
    """An ellipse with the full axes `axes_x` and `axes_y`, turned counterclockwise by `angle` degrees.

    `inflated` lengthens each half axis by the margin, as readers of the model file do; between the axes that is a
    little less than the margin everywhere around.
    """

    center_x: float
    center_y: float
    axes_x: float
    axes_y: float
    angle: float

    @property
    def area(self) -> float:
        return float(np.pi / 4 * self.axes_x * self.axes_y)

    @property
    def rotation(self) -> np.ndarray:
        """The matrix (2, 2) whose columns are the directions of the two axes."""
        cosine, sine = np.cos(np.deg2rad(self.angle)), np.sin(np.deg2rad(self.angle))
        return np.array([[cosine, -sine], [sine, cosine]])

    def in_axes(self, points: np.ndarray) -> np.ndarray:
        """Return points (N, 2) along the two axes from the centre."""
        return (points - [self.center_x, self.center_y]) @ self.rotation

    def level(self, points: np.ndarray) -> np.ndarray:
        """Return by which factor (N,) the ellipse about its centre passes through points (N, 2)."""
        return np.linalg.norm(self.in_axes(points) / [self.axes_x / 2, self.axes_y / 2], axis=1)

    def signed_distance(self, points):
        local = np.abs(self.in_axes(np.asarray(points, dtype=float)))
        half = np.array([self.axes_x, self.axes_y]) / 2
        nearest = _nearest_on_ellipse(local, half)
        inside = ((local / half) ** 2).sum(axis=1) <= 1
        return np.where(inside, -1, 1) * np.linalg.norm(local - nearest, axis=1)

    def support(self, directions):
        reach = np.linalg.norm((directions @ self.rotation) * [self.axes_x / 2, self.axes_y / 2], axis=1)
        return directions @ [self.center_x, self.center_y] + reach

    def outline(self, count=72):
        cosine, sine = turned(count)
        local = np.stack([self.axes_x / 2 * cosine, self.axes_y / 2 * sine], axis=1)
        return local @ self.rotation.T + [self.center_x, self.center_y]

    def covers(self, x, y):
        # In half axes from the centre the ellipse is the unit disc.
        to_axes = (self.rotation / [self.axes_x / 2, self.axes_y / 2]).astype(x.dtype)
        dx, dy = x - x.dtype.type(self.center_x), y - y.dtype.type(self.center_y)
        along, across = dx * to_axes[0, 0] + dy * to_axes[1, 0], dx * to_axes[0, 1] + dy * to_axes[1, 1]
        return along * along + across * across <= 1

    def inflated(self, margin):
        longer = np.maximum(0.0, np.array([self.axes_x, self.axes_y]) + 2 * margin)
        return Ellipse(self.center_x, self.center_y, float(longer[0]), float(longer[1]), self.angle)

    def scaled(self, factor: float) -> "Ellipse":
        """Return the ellipse enlarged about its centre."""
        return Ellipse(self.center_x, self.center_y, self.axes_x * factor, self.axes_y * factor, self.angle)

    def grown_to_enclose(self, points):
        factor = float(self.level(points).max(initial=0.0))
        return self if factor <= 1 else self.scaled(factor * (1 + 1e-12))

    def like(self, other: "Ellipse") -> "Ellipse":
        """Return this same ellipse with its axes named and its angle counted so that it is nearest to `other`.

        Turning by 180 degrees, or by 90 with the axes exchanged, changes the numbers and not the ellipse.
        """
        turns = np.arange(-4, 5) + round((other.angle - self.angle) / 90)
        swapped = [(self.axes_y, self.axes_x) if turn % 2 else (self.axes_x, self.axes_y) for turn in turns]
        forms = [
            Ellipse(self.center_x, self.center_y, *axes, self.angle + 90.0 * turn)
            for axes, turn in zip(swapped, turns, strict=True)
        ]
        return min(forms, key=lambda form: form._unlikeness(other))

    def canonical(self) -> "Ellipse":
        """Return this same ellipse with its angle in (-45, 45] degrees, so that `axes_x` lies nearest to x."""
        turns = int(np.ceil((self.angle - 45.0) / 90.0))
        axes = (self.axes_y, self.axes_x) if turns % 2 else (self.axes_x, self.axes_y)
        return Ellipse(self.center_x, self.center_y, *axes, self.angle - 90.0 * turns)

    def _unlikeness(self, other: "Ellipse") -> float:
        """Squared difference of axes and angle, the angle by the length that it moves the ends of the axes."""
        arm = abs(self.axes_x - self.axes_y) / 2 + 1e-3
        turn = np.deg2rad(self.angle - other.angle) * arm
        return (self.axes_x - other.axes_x) ** 2 + (self.axes_y - other.axes_y) ** 2 + float(turn) ** 2


def _nearest_on_ellipse(points: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Return the nearest points (N, 2) of the ellipse with half axes (2,) to points (N, 2) of the first quadrant.

    Newton on the secular equation sum (half p / (t + half^2))^2 = 1, convex and falling right of its largest pole
    (Eberly, "Distance from a Point to an Ellipse"): from left of the root it converges without overshooting. The
    unknown is counted from that pole, so that points on the longer axis lose no digits.
    """
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
