"""Alignment of the two lidars: the transform that maps the right lidar's points into the left lidar's frame.

`PlaneAlignment` is the method "planes", the default.
"""

from stretch_sim_cal.calibration.alignment_gicp import GicpAlignment
from stretch_sim_cal.calibration.alignment_settings import AlignmentSettings

__all__ = ["AlignmentSettings", "PlaneAlignment"]


class PlaneAlignment(GicpAlignment):
    """First version: the pooled registration."""
