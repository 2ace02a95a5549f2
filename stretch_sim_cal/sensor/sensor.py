"""Sensor files (`config/*.yaml`): a kind of lidar, by its tables, its noise law, what its driver corrects, and how far one
unit may differ from the tables.

The lidar's frame has its x-y plane across the spin axis and z along the axis, out of the dome. A channel with elevation e
and azimuth offset o looks along (cos e cos b, cos e sin b, sin e), b = a + o, when the rotor is at azimuth a.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal import files, validate
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.sensor.unit import ErrorModel, UnitSpread

DEVICES = ("left", "right")
# The layout of the vendor's driver: 26 bytes per point, little-endian, without padding; `timestamp` in s.
POINT_DTYPE = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("ring", "<u2"), ("timestamp", "<f8")]
)
MAX_RAYS = 2_000_000
KEYS = {
    "rate", "azimuth_steps", "clockwise", "elevations_deg", "azimuth_offsets_deg", "firing_times_us", "optical_centre",
    "range_min", "range_max", "range_noise", "range_biases", "drop_out_rate", "beam_divergence_deg", "reflectivity",
    "spin_drift_deg_per_scan", "spin_jitter_deg", "clock_spread", "driver", "unit",
}  # fmt: skip
UNIT_KEYS = {
    "range_offset", "range_scale", "near_range", "incidence", "echo", "channel_range", "channel_elevation_deg",
    "channel_azimuth_deg", "azimuth_harmonics_deg", "optical_centre",
}  # fmt: skip


@dataclass(frozen=True)
class Driver:
    """What the driver corrects before it publishes: that distances count from the optical centre, and that the rotor
    turns until a channel fires."""

    distance_correction: bool = True
    firing_time_correction: bool = True


@dataclass(frozen=True)
class Sensor:
    """What a sensor file says of a lidar. Lengths in m, angles in rad, times in s.

    `elevations`, `azimuth_offsets`, `firing_times` (after the rotor passed the azimuth of the block) and `range_biases`
    are (C,), one entry per channel; channel i reports ring i. `optical_centre` (3,) is in the frame that turns with the
    rotor. `spread` says how far one unit may differ from all that.
    """

    name: str
    rate: float
    azimuth_steps: int
    clockwise: bool
    elevations: np.ndarray
    azimuth_offsets: np.ndarray
    firing_times: np.ndarray
    optical_centre: np.ndarray
    range_min: float
    range_max: float
    range_noise: float
    range_biases: np.ndarray
    drop_out_rate: float
    beam_divergence: float
    reflectivity: float
    spin_drift: float
    spin_jitter: float
    clock_spread: float
    driver: Driver
    spread: UnitSpread

    @property
    def num_channels(self) -> int:
        return len(self.elevations)

    @property
    def num_rays(self) -> int:
        return self.num_channels * self.azimuth_steps

    @property
    def period(self) -> float:
        """The time from one scan's start to the next one's, in s."""
        return 1.0 / self.rate

    @property
    def firing_azimuths(self) -> np.ndarray:
        """The angles (C,) by which the rotor turns until a channel fires, in rad; negative for a clockwise rotor."""
        return (-1.0 if self.clockwise else 1.0) * 2.0 * np.pi * self.rate * self.firing_times

    def error_model(self) -> ErrorModel:
        """Return the error model of units of this sensor."""
        return ErrorModel(
            self.spread, self.elevations, self.azimuth_offsets, self.optical_centre,
            self.firing_azimuths if np.any(self.firing_times) else None,
        )  # fmt: skip


def load_sensor(name: str | Path) -> Sensor:
    """Return the sensor of that name (in `config/`) or path. Raises `InputError` naming file and key."""
    path = files.find_shared("config", name, ".yaml")
    data = validate.mapping(files.read_yaml(path), KEYS, str(path))

    def value(key: str, default: float | None, low: float, high: float) -> float:
        if default is None and key not in data:
            raise InputError(f"{path}: {key}: is missing")
        return validate.number(data.get(key, default), f"{path}: {key}", low, high)

    elevations = data.get("elevations_deg")
    if not isinstance(elevations, list) or not elevations:
        raise InputError(f"{path}: elevations_deg: a list with the elevation of every channel was expected")

    def per_channel(key: str, low: float, high: float) -> np.ndarray:
        given = data.get(key, 0.0)
        if not isinstance(given, list):
            return np.full(len(elevations), validate.number(given, f"{path}: {key}", low, high))
        return np.array(validate.numbers(given, len(elevations), f"{path}: {key}", low, high))

    driver = driver_from_mapping(data.get("driver"), f"{path}: driver")
    optical_centre = validate.numbers(data.get("optical_centre", [0.0] * 3), 3, f"{path}: optical_centre", -0.5, 0.5)
    sensor = Sensor(
        name=path.stem,
        rate=value("rate", None, 0.1, 100.0),
        azimuth_steps=validate.integer(data.get("azimuth_steps"), f"{path}: azimuth_steps", 4, 100_000),
        clockwise=validate.flag(data.get("clockwise", False), f"{path}: clockwise"),
        elevations=np.radians(per_channel("elevations_deg", -90.0, 90.0)),
        azimuth_offsets=np.radians(per_channel("azimuth_offsets_deg", -360.0, 360.0)),
        firing_times=1e-6 * per_channel("firing_times_us", 0.0, 1e5),
        optical_centre=np.array(optical_centre),
        range_min=value("range_min", None, 0.0, 10.0),
        range_max=value("range_max", None, 0.1, 1000.0),
        range_noise=value("range_noise", None, 0.0, 1.0),
        range_biases=per_channel("range_biases", -1.0, 1.0),
        drop_out_rate=value("drop_out_rate", 0.0, 0.0, 1.0),
        beam_divergence=np.radians(value("beam_divergence_deg", 0.0, 0.0, 10.0)),
        reflectivity=value("reflectivity", 0.5, 0.0, 1.0),
        spin_drift=np.radians(value("spin_drift_deg_per_scan", 0.0, 0.0, 360.0)),
        spin_jitter=np.radians(value("spin_jitter_deg", 0.0, 0.0, 10.0)),
        clock_spread=value("clock_spread", 0.0, 0.0, 10.0),
        driver=driver,
        spread=_spread(data.get("unit"), f"{path}: unit"),
    )
    if sensor.range_max <= sensor.range_min:
        raise InputError(f"{path}: range_max: has to be above range_min")
    if sensor.num_rays > MAX_RAYS:
        raise InputError(f"{path}: azimuth_steps: {sensor.num_rays} rays per scan, at most {MAX_RAYS} are cast")
    return sensor


def driver_from_mapping(value: Any, where: str, default: Driver = Driver()) -> Driver:
    """Return what a `driver:` mapping says the driver corrects; absent keys as in `default`. Raises `InputError`."""
    keys = {"distance_correction", "firing_time_correction"}
    data = validate.mapping(value, keys, where)
    return Driver(**{key: validate.flag(data.get(key, getattr(default, key)), f"{where}: {key}") for key in keys})


def _spread(value: Any, where: str) -> UnitSpread:
    """Return the standard deviations of a `unit:` mapping, angles in rad."""
    data: Mapping[str, Any] = validate.mapping(value, UNIT_KEYS, where)

    def sigma(key: str, high: float) -> float:
        return validate.number(data.get(key, 0.0), f"{where}: {key}", 0.0, high)

    def sigmas(key: str, count: int, high: float) -> tuple[float, ...]:
        return validate.numbers(data.get(key, [0.0] * count), count, f"{where}: {key}", 0.0, high)

    near = validate.mapping(data.get("near_range"), {"amplitude", "length"}, f"{where}: near_range")
    first, second = sigmas("azimuth_harmonics_deg", 2, 5.0)
    return UnitSpread(
        range_offset=sigma("range_offset", 1.0),
        range_scale=sigma("range_scale", 0.1),
        near_range=validate.number(near.get("amplitude", 0.0), f"{where}: near_range: amplitude", 0.0, 1.0),
        near_length=validate.number(near.get("length", 1.0), f"{where}: near_range: length", 0.01, 100.0),
        incidence=sigma("incidence", 0.1),
        echo=sigma("echo", 1.0),
        channel_range=sigma("channel_range", 1.0),
        channel_elevation=math.radians(sigma("channel_elevation_deg", 5.0)),
        channel_azimuth=math.radians(sigma("channel_azimuth_deg", 5.0)),
        azimuth_harmonics=(math.radians(first), math.radians(second)),
        optical_centre=sigmas("optical_centre", 3, 0.1),
    )
