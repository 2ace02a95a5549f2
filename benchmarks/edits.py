"""What may be wrong with a recording of two lidars, and nobody announced: `EDITS` of a case, by name, in the order in
which `faults.py` draws them: in another one, a seed draws others."""

import driver_edits  # noqa: F401 - registers its edits
import lidar_edits  # noqa: F401
from edited_clouds import REGISTERED

ORDER = (
    "nothing", "a lidar jumps, 0.1 to 5 deg", "a lidar drifts, 0.1 to 5 deg", "a lidar vibrates, 0.1 to 2 deg",
    "a lidar slides, 1 to 30 mm", "a lidar turned about its axis for good", "mirrored", "exchanged",
    "ranges 0.1 to 1 % wrong", "ranges 1 to 3 % wrong", "ranges up to 30 mm wrong", "frames dropped",
    "one frame repeated", "frames and returns reordered", "a sector blinded", "a sector 2 to 20 cm too far",
    "rings shuffled", "rings all the same", "intensities all the same", "returns that are none",
    "noise of 5 to 40 mm more", "half to nine tenths of the returns lost", "ranges in steps of 5 to 50 mm",
    "the robot sways", "rotor angles wrong", "elevations wrong", "three channels up to 8 cm wrong",
    "another room in one lidar", "another room in one lidar for a while", "somebody in front of one lidar",
    "millimetres", "only what is near, or far", "sensor unknown", "both lidars' returns in one's",
    "means of voxels of 2 to 15 cm", "smoothed along channels", "deskewed by up to millimetres for nothing",
    "elevations of other channels", "half of the channels 0.05 to 0.5 deg late", "bright surfaces up to 4 cm wrong",
    "dust", "half floats", "earlier scans published again", "cropped by a plane", "one lidar's returns on both topics",
    "ranges drift by up to 3 cm", "far returns look near", "things moved between the lidars' scans",
    "azimuths in steps of 0.2 to 2 deg", "returns interpolated", "half a turn at a time", "returns at random ranges",
    "dual returns", "packets and a channel lost", "two channels exchanged", "firing times of another model",
    "rings reversed", "beam origin 5 to 40 mm wrong", "beams 3 to 30 mm aside of the axis",
    "distance unit of another model", "a mirror", "retro-reflectors", "a mount shaken within scans", "optical frame",
    "sensor file of another model", "azimuths that jump at 180 deg", "a wall elsewhere for one lidar",
    "coordinates cut to steps of 1 to 10 mm", "a cover, 1 to 6 mm longer ranges in its middle",
    "ranges that err in waves of 0.2 to 3 m", "a rotor that cogs", "a spin axis that wobbles",
    "a window that bends rays by 0.03 to 0.3 deg", "images in the lidar's own window", "near ranges up to 5 cm wrong",
)  # fmt: skip
EDITS = dict(sorted(REGISTERED.items(), key=lambda edit: ORDER.index(edit[0])))
