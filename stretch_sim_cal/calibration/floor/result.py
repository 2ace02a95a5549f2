"""What a floor method answers: the plane, how sure it is, which floor supports it, and whether it may be used.

Everything about the floor that a user may set, with the reason for each default.
"""

from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.observations import FloorByUnits, Observations
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import Plane
from stretch_sim_cal.sensor.sensor import Sensor


@dataclass(frozen=True)
class FloorSettings:
    """Settings of the floor methods. Lengths in m, angles in rad.

    Raises `InputError` where a value cannot be meant.
    """

    # The floor is searched this near to where the description has base_footprint.
    search_height: float = 0.05
    search_tilt: float = float(np.deg2rad(5.0))
    # Floor farther than this from the robot is not used: the wheels feel none of it, and it is the least likely level.
    radius: float = 3.5

    # What a result must reach; beyond these bounds it is refused.
    max_std_height: float = 0.005
    max_std_tilt: float = float(np.deg2rad(0.1))
    # Floor that supports the result: so much of it, and nowhere around the robot a wider gap without any.
    min_area: float = 1.0
    max_gap: float = float(np.deg2rad(150.0))
    # Floor farther off the plane than this is another level, however uneven it is; how much of the floor around the
    # robot must lie on the plane, and within which radius.
    flatness: float = 0.003
    min_level_share: float = 0.6
    flatness_radius: float = 1.5
    # The two lidars' floors may differ by this much before the alignment is doubted.
    max_disagreement_height: float = 0.003
    max_disagreement_tilt: float = float(np.deg2rad(0.1))

    # The robot has moved against the floor when its own frames differ by more than this.
    max_motion_height: float = 0.001
    max_motion_tilt: float = float(np.deg2rad(0.05))

    # What is known of the alignment. If it says something of the lidars' own errors, too, it takes the place of the room that
    # both see here; if there is none, the alignment is as uncertain as it usually is: by these deviations.
    observations: Observations | None = None
    typical_std_translation: float = 0.0002
    typical_std_rotation: float = float(np.deg2rad(0.004))

    # The kind of lidar; without, a spinning lidar of unknown make. Noise along the ray is estimated from the data; noise
    # across the surface covers roughness and aim.
    sensor: Sensor | None = None
    # The parameters (n,) of both lidars' errors, if they are known: they are taken out and not estimated again.
    units: tuple[np.ndarray, np.ndarray] | None = None
    min_range: float = 0.1
    max_range: float = 60.0
    # The robot's own body, a cylinder about base z, is no part of the room.
    body_radius: float = 0.4
    body_height: float = 1.8
    surface_noise: float = 0.001

    # Cells in which rays are counted, and patches of cells whose means are compared.
    cell_size: float = 0.05
    cells_per_patch: int = 5

    def __post_init__(self):
        positive = ["search_height", "search_tilt", "radius", "max_std_height", "max_std_tilt", "min_area", "max_gap"]
        positive += ["flatness", "flatness_radius", "max_disagreement_height", "max_disagreement_tilt", "cell_size"]
        positive += ["max_motion_height", "max_motion_tilt"]
        positive += ["typical_std_translation", "typical_std_rotation", "surface_noise", "cells_per_patch"]
        for name in positive:
            self._check(name, getattr(self, name) > 0, "must be greater than zero")
        self._check("min_range", self.min_range >= 0, "must not be negative")
        self._check("min_level_share", 0 <= self.min_level_share <= 1, "must lie between 0 and 1")
        self._check("search_tilt", self.search_tilt < np.pi / 4, "must be below 45 deg")

    def _check(self, name: str, holds: bool, demand: str) -> None:
        if not holds:
            raise InputError(f"floor setting {name}: {getattr(self, name)} {demand}")


@dataclass(frozen=True)
class ResidualMap:
    """Mean height over the fitted floor, on square cells of the floor around the robot.

    `edges` (n + 1,) are the cells' borders in m, the same along x and y of the description's base_footprint; `heights`
    (n, n) in m and `counts` (n, n) are indexed [x, y], NaN where no ray went; `used` (n, n) tells whose floor was
    fitted.
    """

    edges: np.ndarray
    heights: np.ndarray
    counts: np.ndarray
    used: np.ndarray


@dataclass(frozen=True)
class Support:
    """How much of the floor around the robot supports the plane.

    `area` (m2); `sectors` (12,) the area in sectors of 30 deg, the first centred ahead (base_footprint x), turning to
    the left; `reach` (12,) how far out (m) each is supported; `gap` (rad) the widest angle around the robot without
    support and `gap_bearing` (rad) its middle; `level_share` (0 to 1) the part of the floor around the robot that lies
    on the plane; `unevenness` (m) the standard deviation of the supporting floor's own shape, noise removed.
    """

    area: float
    sectors: np.ndarray
    reach: np.ndarray
    gap: float
    gap_bearing: float
    level_share: float
    unevenness: float


@dataclass(frozen=True)
class FloorResult:
    """The floor in base_link, and base_footprint on it.

    `footprint_from_base` (4, 4) maps base_link into base_footprint; `plane` is the floor in base_link with
    `normal . p + offset = 0`, its normal up, so `offset` is the height of base_link's origin over the floor.
    `covariance` (3, 3) is over (height at base_link's origin along the normal in m, tilt about base x, tilt about base
    y in rad), true minus estimate; a tilt a turns the normal n to n + a x n. `rmse` (m) is the root mean square
    distance of the fitted returns to the plane; `by_units` says how it depends on the lidars' own errors. A result with `refusals` must not be written.
    """

    footprint_from_base: np.ndarray
    plane: Plane
    covariance: np.ndarray
    rmse: float
    num_frames: int
    num_inliers: int
    method: str
    residual_map: ResidualMap | None = None
    support: Support | None = None
    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    diagnostics: dict[str, float] = field(default_factory=dict)
    by_units: FloorByUnits | None = field(default=None, repr=False)

    @property
    def accepted(self) -> bool:
        """Whether the data supports the result."""
        return not self.refusals
