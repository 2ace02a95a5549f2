"""Settings of alignment and floor, with the reason for each default. Lengths in m, angles in rad."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.observability import Direction, directions
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, check_rigid
from stretch_sim_cal.sensor.sensor import Sensors
from stretch_sim_cal.validate import ACCEPT


@dataclass(frozen=True)
class LidarSettings:
    """Settings of all methods that use a room and both lidars. Raises `InputError` for values out of range."""

    # The kind of both lidars, or of each: its table, and the standard deviations of its units. None: a spinning lidar
    # of unknown make.
    sensor: Sensors = None
    # The parameters (n,) of both lidars' errors, if they are known: the errors are subtracted, not estimated.
    units: tuple[np.ndarray, np.ndarray] | None = None

    # The robot's body is not part of the room, nor of the floor: points (N, 3) on it in base_link, by the description
    # of the stowed robot, or without any a cylinder about base z (the Stretch's).
    body: np.ndarray | None = None
    body_radius: float = 0.4
    body_height: float = 1.8

    def __post_init__(self):
        for setting in fields(self):
            if setting.type in (float, int) and setting.name != "body_radius":
                self._check(setting.name, getattr(self, setting.name) > 0, "must be greater than zero")
        self._check("body_radius", self.body_radius >= 0, "must not be negative")

    def _check(self, name: str, valid: bool, demand: str) -> None:
        value = getattr(self, name)
        if not (valid and np.isfinite(value)):
            kind = type(self).__name__.removesuffix("Settings").lower()
            raise InputError(f"{kind} setting {name}: {value} {demand}")


@dataclass(frozen=True)
class AlignmentSettings(LidarSettings):
    """Settings of the alignment methods. Raises `InputError` for values out of range."""

    # Bounds of the standard deviations; a result beyond them is refused.
    max_std_translation: float = 0.005
    max_std_rotation: float = float(np.deg2rad(0.1))

    # The published node's parameters, used by the "gicp" method and by the coarse stage.
    downsampling_resolution: float = 0.1
    max_iterations: int = 20
    max_correspondence_distance: float = 0.4

    # Nominal pose of the left lidar in base_link (4, 4), for directions in base axes, and for the robot's body.
    base_from_left: np.ndarray | None = None
    # The names of the left and the right lidar, in findings and errors.
    names: tuple[str, str] = SIDES

    def __post_init__(self):
        super().__post_init__()
        if self.base_from_left is not None:
            object.__setattr__(self, "base_from_left", check_rigid(self.base_from_left, "base_from_left"))

    def directions(self, covariance: np.ndarray, base_from_target: np.ndarray | None) -> list[Direction]:
        """Return the directions of a transform with their standard deviations and bounds, as of `directions`."""
        return directions(covariance, base_from_target, self.max_std_translation, self.max_std_rotation)


def accepting(deviations: tuple[float, float] | None) -> dict[str, Any]:
    """Return the settings that accept standard deviations up to these (m, rad); none for the defaults. Raises
    `InputError` for anything else, such as mm."""
    if deviations is None:
        return {}
    try:
        translation, rotation = map(float, deviations)
    except (TypeError, ValueError) as problem:
        raise InputError(f"accept: is {deviations!r}; expected two standard deviations, in m and rad") from problem
    (_, most_mm), (_, most_deg) = ACCEPT.values()
    if not (0 < 1e3 * translation <= most_mm and 0 < np.degrees(rotation) <= most_deg):
        most = f"{1e-3 * most_mm:g} m and {np.radians(most_deg):.2f} rad"
        raise InputError(f"accept: is {translation:g} m and {rotation:g} rad; expected more than 0, at most {most}")
    return {"max_std_translation": translation, "max_std_rotation": rotation}


@dataclass(frozen=True)
class FloorSettings(LidarSettings):
    """Settings of the floor methods. Raises `InputError` for values out of range."""

    # The limits of the search about the description's base_footprint.
    search_height: float = 0.05
    search_tilt: float = float(np.deg2rad(5.0))

    # Bounds of the standard deviations; a result beyond them is refused.
    max_std_height: float = 0.005
    max_std_tilt: float = float(np.deg2rad(0.1))

    # The observations of the alignment. If they include the lidars' errors, they replace the room that both see here;
    # without any the alignment has these typical standard deviations.
    observations: Observations | None = None
    typical_std_translation: float = 0.0002
    typical_std_rotation: float = float(np.deg2rad(0.004))

    def __post_init__(self):
        super().__post_init__()
        self._check("search_tilt", self.search_tilt < np.pi / 4, "must be below 45 deg")
