"""Obstacle zones around the body shape, above the floor and below it.

    minimum model    the fitted shape, all of the robot
    dead zone        up to the inner boundary, `margin` farther out: errors of model and sensor; hits are ignored
    stop zone        up to the outer boundary, `stop_zone` farther out: hits are obstacles

Hits from `lowest` to `highest` above the floor are positive obstacles, those lower than `drop` negative ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.shapes import Shape


@dataclass(frozen=True)
class ZoneSettings:
    """Widths and heights in m; `lowest`, `highest` and `drop` are heights above the floor, `drop` below it."""

    margin: float = 0.05
    stop_zone: float = 0.1
    lowest: float = 0.06
    highest: float = 1.6
    drop: float = -0.06

    def __post_init__(self) -> None:
        if not (self.margin >= 0 and self.stop_zone >= 0):
            raise InputError(f"zones: margin {self.margin} and stop_zone {self.stop_zone} must be 0 or more")
        if not self.drop < self.lowest < self.highest:
            heights = f"drop {self.drop} over lowest {self.lowest} to highest {self.highest}"
            raise InputError(f"zones: heights must rise from {heights}")


@dataclass(frozen=True)
class Zones:
    """The regions around one shape. `minimum` is the fitted shape, `inner` and `outer` bound the stop zone."""

    minimum: Shape
    inner: Shape
    outer: Shape
    settings: ZoneSettings

    @classmethod
    def around(cls, shape: Shape, settings: ZoneSettings | None = None) -> "Zones":
        """Return the zones around a shape in base_footprint."""
        settings = settings or ZoneSettings()
        widths = settings.margin, settings.margin + settings.stop_zone
        return cls(shape, *map(shape.inflated, widths), settings)

    def classes(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """Return masks (N,) over points (N, 3+) in base_footprint: those on the robot's own `body`, which are ignored,
        each positive `obstacle` and each `drop`, a negative one; no others, nor any that is not finite."""
        s = self.settings
        x, y, z = points[:, 0], points[:, 1], points[:, 2]
        axes = np.eye(2)
        low, high = -self.outer.support(-axes), self.outer.support(axes)
        # Most points are far away or floor: comparisons exclude them.
        near = (x >= low[0]) & (x <= high[0]) & (y >= low[1]) & (y <= high[1])
        near &= ((z >= s.lowest) & (z <= s.highest)) | (z <= s.drop)
        chosen = np.flatnonzero(near)
        x, y, above = x[chosen], y[chosen], z[chosen] > s.drop
        inner, outer = self.inner.covers(x, y), self.outer.covers(x, y)
        ring = outer & ~inner
        masks = {name: np.zeros(len(points), dtype=bool) for name in ("body", "obstacle", "drop")}
        for mask, of_chosen in zip(masks.values(), (inner & above, ring & above, ring & ~above), strict=True):
            mask[chosen] = of_chosen
        return masks

    def nearest_hit(self, points: np.ndarray, classes: Mapping[str, np.ndarray]) -> float:
        """Return the distance (m) from the minimum model to the nearest obstacle or drop; inf without one."""
        hits = points[classes["obstacle"] | classes["drop"]]
        return float(self.minimum.signed_distance(hits[:, :2].astype(float)).min(initial=np.inf))
