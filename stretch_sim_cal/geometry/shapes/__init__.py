"""Convex shapes in the plane that stand for a robot's body: circle, ellipse, tapered capsule, convex polygon.

Lengths in m, angles in rad except where a parameter's name or text says degrees. All are immutable and share
`area`, `signed_distance`, `contains`, `covers`, `outline`, `support`, `inflated`, `grown_to_enclose`, and `vector` /
`from_vector` with the numbers of `parameters` in their order, which is what interpolation works on.
"""

from stretch_sim_cal.geometry.shapes.base import Shape, meeting_points
from stretch_sim_cal.geometry.shapes.capsule import TaperedCapsule, capsule_area, capsule_distance
from stretch_sim_cal.geometry.shapes.circle import Circle
from stretch_sim_cal.geometry.shapes.ellipse import Ellipse
from stretch_sim_cal.geometry.shapes.polygon import ConvexPolygon, circumscribed_polygon

__all__ = [
    "Circle",
    "ConvexPolygon",
    "Ellipse",
    "Shape",
    "TaperedCapsule",
    "capsule_area",
    "capsule_distance",
    "circumscribed_polygon",
    "meeting_points",
]
