"""A disc."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.geometry.shapes.base import Shape, turned


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
