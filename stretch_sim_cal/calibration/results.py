"""Results of alignment and floor: the estimate, its covariance, its support, and whether it may be used."""

from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.observability import Direction
from stretch_sim_cal.calibration.observations import FloorByUnits, Observations
from stretch_sim_cal.geometry.planes import Plane


@dataclass(frozen=True)
class AlignmentResult:
    """The transform between the two lidars, with its covariance.

    `right_to_left` (4, 4) maps points of the right lidar's frame into the left's. `covariance` (6, 6) is over the twist
    (tx, ty, tz, rx, ry, rz) in m and rad with `true = exp(twist) @ right_to_left`, in the left frame. `rmse` (m) is the
    root mean square distance between the two lidars' surfaces; `overlap` (0 to 1) the part of the right lidar's view
    that the left one sees too. `observations`, if a method has them, are for later stages. A result with `refusals`
    must not be written.
    """

    right_to_left: np.ndarray
    covariance: np.ndarray
    rmse: float
    num_frames: int
    method: str
    overlap: float
    directions: list[Direction]
    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    diagnostics: dict[str, float] = field(default_factory=dict)
    observations: Observations | None = field(default=None, repr=False)

    @property
    def accepted(self) -> bool:
        """Whether the data supports the result."""
        return not self.refusals

    @property
    def known(self) -> Observations:
        """The observations for later stages: the method's own, or the transform by its covariance."""
        return self.observations or Observations.of_known_poses((self.right_to_left,), self.covariance)


@dataclass(frozen=True)
class Support:
    """How much of the floor around the robot supports the plane.

    `area` (m2); `gap` (rad) the widest angle around the robot without support and `gap_bearing` (rad) its middle;
    `level_share` (0 to 1) the part of the floor around the robot that lies on the plane; `unevenness` (m) the standard
    deviation of the supporting floor's own shape, noise removed; `nearest` (m) how far from the robot it begins.
    """

    area: float
    gap: float
    gap_bearing: float
    level_share: float
    unevenness: float
    nearest: float = 0.0


@dataclass(frozen=True)
class FloorResult:
    """The floor in base_link, and base_footprint on it.

    `footprint_from_base` (4, 4) maps base_link into base_footprint; `plane` is the floor in base_link with
    `normal . p + offset = 0`, its normal up, so `offset` is the height of base_link's origin over the floor.
    `covariance` (3, 3) is over (height at base_link's origin along the normal in m, tilt about base x, tilt about base
    y in rad), true minus estimate; a tilt a turns the normal n to n + a x n. `rmse` (m) is the root mean square
    distance of the fitted returns to the plane; `by_units` is its dependence on the lidars' own errors, `systematic`
    (3, 3) the part of the covariance by the floor's own shape. A result with `refusals` must not be written.
    """

    footprint_from_base: np.ndarray
    plane: Plane
    covariance: np.ndarray
    rmse: float
    num_frames: int
    num_inliers: int
    method: str
    support: Support | None = None
    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    diagnostics: dict[str, float] = field(default_factory=dict)
    by_units: FloorByUnits | None = field(default=None, repr=False)
    systematic: np.ndarray | None = field(default=None, repr=False)

    @property
    def accepted(self) -> bool:
        """Whether the data supports the result."""
        return not self.refusals
