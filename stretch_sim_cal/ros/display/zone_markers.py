"""The zones as RViz shows them: minimum model blue and shaded, inner boundary red, stop zone shaded red."""

from visualization_msgs.msg import Marker

from stretch_sim_cal.calibration.zones import Zones
from stretch_sim_cal.ros.display.markers import Colour, band, filled, line

BLUE, RED = Colour(0.24, 0.55, 1.0), Colour(0.9, 0.15, 0.15)
BLUE_SHADE, RED_SHADE = Colour(0.24, 0.55, 1.0, 0.3), Colour(0.9, 0.15, 0.15, 0.3)
# A little above the floor and each other, so that none of them flickers in another.
SHADE_HEIGHT, LINE_HEIGHT = 0.004, 0.008
CORNERS = 180


def zone_markers(zones: Zones) -> list[Marker]:
    """Return the markers of the zones, each in a namespace of its own so that RViz can switch it."""
    minimum, inner, outer = (shape.outline(CORNERS) for shape in (zones.minimum, zones.inner, zones.outer))
    return [
        filled("minimum_model_shade", minimum, SHADE_HEIGHT, BLUE_SHADE),
        line("minimum_model", minimum, LINE_HEIGHT, BLUE, width=0.005),
        line("inner_boundary", inner, LINE_HEIGHT, RED, width=0.01),
        line("outer_boundary", outer, LINE_HEIGHT, RED, width=0.01),
        band("stop_zone", inner, outer, SHADE_HEIGHT, RED_SHADE),
    ]
