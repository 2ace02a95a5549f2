"""The zones around the body shape at one pose, and which of them returns lie in."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.geometry.shapes import Shape


@dataclass(frozen=True)
class Zones:
    """Regions of the floor around the robot, and the heights (m) at which returns in them count.

    `minimum` is the fitted shape. Up to `inner` is the dead zone, for errors of model and sensor; between `inner` and
    `outer` the stop zone. Returns from `lowest` to `highest` above the floor are bodies, those deeper than `drop` (a
    negative height) are drops.
    """

    minimum: Shape
    inner: Shape
    outer: Shape
    lowest: float
    highest: float
    drop: float

    def classes(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """Return masks (N,) over points (N, 3) in base_footprint: `body`, `obstacle` and `drop`."""
        plane, height = points[:, :2], points[:, 2]
        inside = self.inner.contains(plane)
        in_stop_zone = self.outer.contains(plane) & ~inside
        is_body = (height >= self.lowest) & (height <= self.highest)
        is_drop = height <= self.drop
        return {"body": inside & is_body, "obstacle": in_stop_zone & is_body, "drop": in_stop_zone & is_drop}


def zones_around(shape: Shape, margin: float, stop_zone: float, lowest: float, highest: float, drop: float) -> Zones:
    """Return the zones around a shape: a dead zone of width `margin`, a stop zone of width `stop_zone` around that."""
    return Zones(shape, shape.inflated(margin), shape.inflated(margin + stop_zone), lowest, highest, drop)
