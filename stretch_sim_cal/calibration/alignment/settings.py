"""Everything about the alignment that a user may set, with the reason for each default."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import check_rigid
from stretch_sim_cal.sensor.sensor import Sensor

# Beyond this from the description a transform is hardly of the robot described: a swapped pair, a wrong model. A real
# robot's published calibration is 43 mm and 0.6 deg off and fine, so 5 cm would leave no room; swapped, the Stretch's
# lidars are 24 cm and 116 deg off.
FAR_FROM_MODEL = 0.1  # m
FAR_FROM_MODEL_ROTATION = float(np.deg2rad(5.0))


@dataclass(frozen=True)
class AlignmentSettings:
    """Settings of the alignment methods. Lengths in m, angles in rad.

    Raises `InputError` where a value cannot be meant.
    """

    # What a result must reach; beyond these bounds it is refused.
    max_std_translation: float = 0.005
    max_std_rotation: float = float(np.deg2rad(0.1))

    # The published node's parameters, used by the "gicp" method and by the coarse stage.
    downsampling_resolution: float = 0.1
    max_iterations: int = 20
    max_correspondence_distance: float = 0.4

    # The kind of lidar: its table, and how far one unit may differ from it. Without, a spinning lidar of unknown make.
    sensor: Sensor | None = None
    # The parameters (n,) of both lidars' errors, if they are known: they are taken out and not estimated again.
    units: tuple[np.ndarray, np.ndarray] | None = None

    # Which returns are looked at. The robot's own body is a cylinder about base z; it needs `base_from_left`.
    min_range: float = 0.1
    max_range: float = 60.0
    body_radius: float = 0.4
    body_height: float = 1.8

    # Nominal pose of the left lidar in base_link (4, 4): names directions in base axes, and tells the robot's own body.
    base_from_left: np.ndarray | None = None

    # A result further than this from the description's transform is reported.
    max_model_translation: float = FAR_FROM_MODEL
    max_model_rotation: float = FAR_FROM_MODEL_ROTATION

    def __post_init__(self):
        for name in ("max_std_translation", "max_std_rotation", "downsampling_resolution", "max_iterations",
                     "max_correspondence_distance", "max_range"):  # fmt: skip
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise InputError(f"alignment setting {name}: {getattr(self, name)} must be greater than zero")
        for name in ("min_range", "body_radius"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"alignment setting {name}: {getattr(self, name)} must not be negative")
        if self.base_from_left is not None:
            object.__setattr__(self, "base_from_left", check_rigid(self.base_from_left, "base_from_left"))
