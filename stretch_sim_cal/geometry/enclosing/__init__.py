"""The smallest shapes of each kind around points in the plane.

Every function named `enclosing_*` gives a shape that holds all points: what the solver leaves outside is checked and
the shape grown by it, whatever the solver reports.
"""

from stretch_sim_cal.geometry.enclosing.capsule import capsule_minima, enclosing_capsule
from stretch_sim_cal.geometry.enclosing.circle import enclosing_circle
from stretch_sim_cal.geometry.enclosing.ellipse import (
    algebraic_ellipse,
    enclosing_algebraic_ellipse,
    enclosing_axis_aligned_ellipse,
    enclosing_ellipse,
)
from stretch_sim_cal.geometry.enclosing.polygon import common_normals, enclosing_polygon, polygon_with_normals

__all__ = [
    "algebraic_ellipse",
    "capsule_minima",
    "common_normals",
    "enclosing_algebraic_ellipse",
    "enclosing_axis_aligned_ellipse",
    "enclosing_capsule",
    "enclosing_circle",
    "enclosing_ellipse",
    "enclosing_polygon",
    "polygon_with_normals",
]
