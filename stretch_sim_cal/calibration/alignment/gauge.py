"""Is the left lidar where the description says? The alignment cannot tell, the robot's own returns can.

Right-to-left plus a nominal left pose hides an error of the left mount: floor and body move with it. What both lidars see
of the robot itself, held against the model at the measured joint values and tied by the alignment, shows it. From the one
arm pose of an alignment that is a check, good to about 0.4 deg; `calibration/mounts` finds the mounts from several.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.body.outline import LinkSurface
from stretch_sim_cal.calibration.mounts.method import calibrate_mounts
from stretch_sim_cal.calibration.mounts.result import MountSample, MountSettings, Tie
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.geometry.transforms import error, inverse, log

# Chi square of six values that chance exceeds in one of a hundred thousand robots that are as described.
BEYOND_CHANCE = 33.1
# An offset that moves the floor by less than this (m, rad) is not worth a warning.
WORTH_DISTANCE, WORTH_ANGLE = 0.005, float(np.deg2rad(0.25))


@dataclass(frozen=True)
class LeftMount:
    """How far the left lidar seems to be from where the description has it: `distance` (m) and `angle` (rad), their
    standard deviations over all axes together, and the `chi_square` (six values) of the offset being none."""

    distance: float
    angle: float
    distance_deviation: float
    angle_deviation: float
    chi_square: float

    @property
    def off(self) -> bool:
        """Whether the offset is beyond doubt, and large enough to matter."""
        return self.chi_square > BEYOND_CHANCE and (self.distance > WORTH_DISTANCE or self.angle > WORTH_ANGLE)

    def sentence(self) -> str:
        """Return the offset in words, with what to do about it."""
        return (
            f"the robot's own returns show the left lidar {1e3 * self.distance:.0f} mm and "
            f"{np.rad2deg(self.angle):.1f} deg from where the description has it (standard deviation "
            f"{1e3 * self.distance_deviation:.0f} mm, {np.rad2deg(self.angle_deviation):.1f} deg); floor and body will be "
            "off by as much; find the mounts with ros_calibrate_lidar_mounts"
        )


def left_mount(
    surfaces: Mapping[str, LinkSurface], sample: MountSample, nominal: Mapping[str, np.ndarray],
    alignment: AlignmentResult, settings: MountSettings,
) -> LeftMount | None:  # fmt: skip
    """Return where the returns of one arm pose put the left lidar; None where they do not tell.

    `surfaces` are the model's by link, `nominal` the description's base_from_lidar by side, `alignment` an accepted one.
    Raises `InputError` for a sample that is no data.
    """
    tie = Tie(alignment.right_to_left, alignment.covariance)
    found = calibrate_mounts(surfaces, [sample], nominal, tie, settings)
    if found.refusals:
        return None
    pose = found.base_from_lidar["left"]
    twist = log(pose @ inverse(nominal["left"]))
    chi_square = float(twist @ np.linalg.solve(found.covariance_of("left"), twist))
    return LeftMount(*error(nominal["left"], pose), *found.spread_of("left"), chi_square)
