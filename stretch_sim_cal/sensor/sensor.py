"""Sensor files (`config/*.yaml`): a kind of lidar, by its tables, its noise law, what its driver
corrects and publishes, and how far one unit may differ from the tables. A unit file (see `unit_file`)
is read as a sensor file of one unit.

The lidar's frame has its x-y plane across the spin axis and z along the axis, out of the dome. A channel with elevation
e and azimuth offset o looks along (cos e cos b, cos e sin b, sin e), b = a + o, when the rotor is at azimuth a.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal import files, validate
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.sensor.unit import CENTRE_SHARE, FIRING_SHARE, UNKNOWN_SENSOR, ErrorModel, UnitSpread
from stretch_sim_cal.sensor.unit_file import UNIT_FILE_KEYS, Unit, near_range, read_angle_table, unit_from_mapping

IDEAL = "ideal"
"""In place of a sensor file's `unit`: lidars that have no errors, as only simulated ones have none."""
CLASS_SPREAD = replace(UNKNOWN_SENSOR, optical_centre=(5e-4, 5e-4, 5e-4), driver_uncertain=True)
"""How far units differ from a sensor file that does not say it: as data sheets of the class allow."""
DEFAULT_SENSOR = "jt128_ideal"
"""The sensor of a simulation that does not say which."""
MAX_RAYS = 2_000_000
UNKNOWN = "unknown"
WINDOW = "azimuth_window_deg"
RETURNS = ("single", "dual")
MISSES = ("none", "zeros")
KEYS = {
    "rate", "azimuth_steps", "clockwise", "elevations_deg", "azimuth_offsets_deg", "firing_times_us", "optical_centre",
    "range_min", "range_max", "range_noise", "range_noise_growth", "range_biases", "range_drift", "quantisation",
    "drop_out_rate", "drop_out_echo", "beam_divergence_deg", "pulse_length", "edge_drop_out", "blooming_deg",
    "reflectivity", "returns", "misses", "packets", "fleet_angle_tables", "spin_drift_deg_per_scan", "spin_jitter_deg",
    "clock_spread", "driver", "unit",
}  # fmt: skip
SPREAD_KEYS = {
    "range_offset", "range_scale", "near_range", "incidence", "echo", "channel_range", "channel_elevation_deg",
    "channel_azimuth_deg", "azimuth_harmonics_deg", "optical_centre",
}  # fmt: skip


@dataclass(frozen=True)
class Driver:
    """What the driver corrects before it publishes: that distances count from the optical centre, and that the rotor
    turns until a channel fires. With an `azimuth_window_deg` it publishes only what lies between these two azimuths
    (deg, counter-clockwise about the lidar's z from its x)."""

    distance_correction: bool = True
    firing_time_correction: bool = True
    azimuth_window_deg: tuple[float, float] | None = None

    def publishes(self, directions: np.ndarray) -> np.ndarray | bool:
        """Return which rays along `directions` (N, 3) in the lidar's frame are within the window, (N,); True for all
        without one."""
        if self.azimuth_window_deg is None:
            return True
        begin, end = np.radians(self.azimuth_window_deg)
        inside: np.ndarray = np.mod(np.arctan2(directions[:, 1], directions[:, 0]) - begin, 2.0 * np.pi) <= end - begin
        return inside


CORRECTIONS = tuple(name for name in Driver.__dataclass_fields__ if name != WINDOW)
"""What a driver corrects, or not."""


@dataclass(frozen=True)
class NoiseGrowth:
    """What adds to the constant range noise, as standard deviations in m, in quadrature: `range` per m of distance,
    `incidence` times 1 / cos - 1, `echo` times exp(-intensity / 255 / WEAK_ECHO), as of the unit's errors."""

    range: float = 0.0
    incidence: float = 0.0
    echo: float = 0.0


@dataclass(frozen=True)
class Sensor:
    """What a sensor file says of a lidar. Lengths in m, angles in rad, times in s.

    `kind` is the name in `config/`, or the path, of the sensor file itself or of that which a unit file names.
    `elevations`, `azimuth_offsets`, `firing_times` (after the rotor passed the azimuth of the block) and `range_biases`
    are (C,), one entry per channel; channel i reports ring i. `optical_centre` (3,) is in the frame that turns with the
    rotor. `range_drift` is one standard deviation of the growth of ranges while the unit warms up, over
    `drift_time`. A return of intensity i is lost with probability exp(-i / 255 / drop_out_echo). What
    a beam meets within `pulse_length` returns as one; of two surfaces farther apart neither does in a share
    `edge_drop_out` of the cases. `packets` of a scan
    have a time each; 0 for a time of each point. `fleet_angle_tables`: a robot's fleet folder may hold the angle table
    of each of its units, which then takes this one's place. `spread` says how far units differ from all that in
    simulation, and `expected` how far real ones are taken to: as the class does (`CLASS_SPREAD`, then `unsaid`) if the
    file does not say. `unit` is the one that a unit file describes.
    """

    name: str
    kind: str
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
    noise_growth: NoiseGrowth
    range_biases: np.ndarray
    range_drift: float
    drift_time: float
    quantisation: float
    drop_out_rate: float
    drop_out_echo: float
    beam_divergence: float
    pulse_length: float
    edge_drop_out: float
    blooming: float
    reflectivity: float
    dual_return: bool
    zero_misses: bool
    packets: int
    fleet_angle_tables: bool
    spin_drift: float
    spin_jitter: float
    clock_spread: float
    driver: Driver
    spread: UnitSpread
    unit: Unit | None = None
    unsaid: UnitSpread | None = None

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

    def relative_noise(self, ranges: np.ndarray, cosines: np.ndarray, echo: np.ndarray) -> np.ndarray:
        """Return the noise (N,) of `ranges` (N,) in m at `cosines` (N,) of incidence, over that of a bright surface at
        hand that is hit at right angles; `echo` (N,) is `weak_echo` of the intensities."""
        growth = self.noise_growth
        squares = (
            (growth.range * ranges) ** 2 + (growth.incidence * (1.0 / cosines - 1.0)) ** 2 + (growth.echo * echo) ** 2
        )
        return np.sqrt(1.0 + squares / max(self.range_noise, 1e-6) ** 2)

    @property
    def expected(self) -> UnitSpread:
        """How far units are taken to differ where they are calibrated."""
        return self.unsaid or self.spread

    def error_model(self, simulated: bool = False) -> ErrorModel:
        """Return the error model of units of this sensor as they are expected, or as they are `simulated`."""
        return ErrorModel(
            self.spread if simulated else self.expected, self.elevations, self.azimuth_offsets, self.optical_centre,
            self.firing_azimuths if np.any(self.firing_times) else None,
        )  # fmt: skip

    def draw_unit(self, rng: np.random.Generator) -> Unit:
        """Return the unit that the file describes, or one drawn from `spread`, as its driver leaves it."""
        if self.unit is not None:
            return self.unit
        values = self.error_model(simulated=True).draw(rng)
        values[[CENTRE_SHARE, FIRING_SHARE]] = self.uncorrected_shares
        return Unit(values, range_drift=float(self.range_drift * rng.standard_normal()))

    @property
    def uncorrected_shares(self) -> tuple[float, float]:
        """The shares of optical centre and firing times that the driver leaves uncorrected, each 0 or 1."""
        centre = not self.driver.distance_correction and np.any(self.optical_centre)
        return float(centre), float(not self.driver.firing_time_correction and np.any(self.firing_times))

    def with_driver(self, driver: Driver) -> "Sensor":
        """Return this sensor behind a driver with those corrections."""
        sensor = replace(self, driver=driver)
        if self.unit is None or driver == self.driver:
            return sensor
        values = self.unit.values.copy()
        values[[CENTRE_SHARE, FIRING_SHARE]] = sensor.uncorrected_shares
        return replace(sensor, unit=replace(self.unit, values=values))

    def with_angle_table(self, path: str | Path) -> "Sensor":
        """Return this sensor with a unit's own angle table (the maker's CSV) in place of the sensor's. Raises
        `InputError` naming file and line."""
        elevations, offsets = read_angle_table(path)
        if len(elevations) != self.num_channels:
            raise InputError(f"{path}: has {len(elevations)} channels, the sensor {self.name} has {self.num_channels}")
        return replace(self, elevations=elevations, azimuth_offsets=offsets)

    def own_tables(self) -> dict[str, list[float]]:
        """Return, as the keys of a sensor file, the angle tables in which a unit differs from its kind."""
        kind = load_sensor(self.kind)
        tables = {
            "elevations_deg": (self.elevations, kind.elevations),
            "azimuth_offsets_deg": (self.azimuth_offsets, kind.azimuth_offsets),
        }  # fmt: skip
        return {
            key: np.round(np.degrees(own), 6).tolist()
            for key, (own, known) in tables.items() if not np.array_equal(own, known)
        }  # fmt: skip


Sensors = Sensor | tuple[Sensor | None, ...] | None
"""The kind of all lidars, or those of the left one, the right one, and perhaps further ones; None: a spinning lidar of
unknown make."""


def sensor_called(name: str | Path) -> Sensors:
    """Return the sensors of the left and of the right lidar by a command's option, as of `sensors_called`."""
    return of_two(sensors_called(name))


def of_two(sensors: Sensors) -> Sensors:
    """Return the sensors of the left and of the right lidar alone, one if they are the same."""
    if not isinstance(sensors, tuple):
        return sensors
    return sensors[0] if len(sensors) == 1 or sensors[0] is sensors[1] else sensors[:2]


def sensors_called(name: str | Path) -> Sensors:
    """Return the sensors of a command's option: a name, or one for each lidar, "LEFT,RIGHT" and so on, if they are of
    different kinds; None for "unknown", a spinning lidar of which nothing is known. Raises `InputError` for a name or
    path that is none."""
    names = [each.strip() for each in str(name).strip(validate.BETWEEN).split(validate.BETWEEN)]
    kinds = {each: None if each == UNKNOWN else load_sensor(each) for each in dict.fromkeys(names)}
    return next(iter(kinds.values())) if len(kinds) == 1 else tuple(kinds[each] for each in names)


def for_each(sensors: Sensors, count: int) -> tuple[Sensor | None, ...]:
    """Return the sensors of so many lidars: of those beyond a left and a right one that none is given for, the left
    one's. Raises `InputError` if they are given for another number of lidars."""
    given = sensors if isinstance(sensors, tuple) else (sensors,) * count
    if len(given) not in (count, 2):
        raise InputError(f"sensor: {len(given)} kinds for {count} lidars; give one, or one each")
    return tuple(given[number] if number < len(given) else given[0] for number in range(count))


def by_lidar(sensors: Sensors, count: int = 2) -> tuple[Sensor | None, ...]:
    """Return the sensors of the first so many lidars."""
    return sensors[:count] if isinstance(sensors, tuple) else (sensors,) * count


def load_sensor(name: str | Path) -> Sensor:
    """Return the sensor of that name (in `config/`) or path, of one unit if the file is a unit file. Raises
    `InputError` naming file and key."""
    path = files.find_shared("config", name, ".yaml")
    own = files.read_yaml(path)
    if "sensor" not in own:
        return _sensor(path, path, own)
    kind, data = _kind(path, own)
    data |= {key: value for key, value in own.items() if key not in (*UNIT_FILE_KEYS, "sensor")}
    said = own.get("values") if isinstance(own.get("values"), dict) else {}
    unsaid = data.get("unit") is None
    spread = {} if data.get("unit") in (None, IDEAL) else data["unit"]
    near = spread.get("near_range") or {}
    _, length = near_range(said.get("near_range"), near.get("length", 1.0), f"{path}: values: near_range")
    sensor = _sensor(path, kind, data | {"unit": spread | {"near_range": near | {"length": length}}})
    if unsaid:
        sensor = replace(sensor, unsaid=replace(CLASS_SPREAD, near_length=length))
    unit = unit_from_mapping(sensor.error_model(), own, str(path))
    centre, firing = sensor.uncorrected_shares
    if "optical_centre_share" not in said:
        unit.values[CENTRE_SHARE] = centre
    if "firing_time_share" not in said:
        unit.values[FIRING_SHARE] = firing
    return replace(sensor, unit=unit)


def fleet_angle_table(device: str) -> Path | None:
    """Return the angle table of lidar "left" or "right" in the robot's fleet folder, None if there is none."""
    fleet, robot = os.environ.get("HELLO_FLEET_PATH"), os.environ.get("HELLO_FLEET_ID")
    if not fleet or not robot:
        return None
    path = Path(fleet) / robot / "calibration_hesais" / f"{device}_lidar_calibration.dat"
    return path if path.is_file() else None


def _kind(path: Path, data: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Return path and content of the sensor file that a unit file names: a name in `config/`, or a path beside it."""
    where = f"{path}: sensor"
    name = validate.text(data["sensor"], where)
    beside = path.parent / name
    try:
        kind = files.find_shared("config", beside if len(Path(name).parts) > 1 or beside.is_file() else name, ".yaml")
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    known = validate.mapping(
        files.read_yaml(kind), KEYS, str(kind)
    )  # a unit file of a unit file has the unknown 'sensor'
    validate.mapping(dict(data), KEYS | {"sensor", *UNIT_FILE_KEYS}, str(path))
    return kind, known


def _sensor(path: Path, kind: Path, data: dict[str, Any]) -> Sensor:
    given = validate.Section(data, KEYS, str(path))

    def needed(key: str, low: float, high: float) -> float:
        if key not in given.data:
            raise InputError(f"{given.at(key)}: is missing")
        return given.number(key, low, high)

    def choice(key: str, known: tuple[str, ...]) -> int:
        if (said := given.get(key, known[0])) not in known:
            raise InputError(f"{given.at(key)}: is {said!r}, one of {', '.join(known)} was expected")
        return known.index(said)

    elevations = given.get("elevations_deg")
    if not isinstance(elevations, list) or not elevations:
        raise InputError(f"{path}: elevations_deg: a list with the elevation of every channel was expected")

    def per_channel(key: str, low: float, high: float) -> np.ndarray:
        if not isinstance(given.get(key), list):
            return np.full(len(elevations), given.number(key, low, high, 0.0))
        return np.array(given.numbers(key, len(elevations), low, high))

    growth = validate.Section(
        given.get("range_noise_growth"), set(NoiseGrowth.__dataclass_fields__), given.at("range_noise_growth")
    )
    drift = validate.Section(given.get("range_drift"), {"amplitude", "time"}, given.at("range_drift"))
    sensor = Sensor(
        name=path.stem,
        kind=kind.stem if kind.parent == files.share_directory() / "config" else str(kind),
        rate=needed("rate", 0.1, 100.0),
        azimuth_steps=given.integer("azimuth_steps", 4, 100_000),
        clockwise=given.flag("clockwise", False),
        elevations=np.radians(per_channel("elevations_deg", -90.0, 90.0)),
        azimuth_offsets=np.radians(per_channel("azimuth_offsets_deg", -360.0, 360.0)),
        firing_times=1e-6 * per_channel("firing_times_us", 0.0, 1e5),
        optical_centre=np.array(given.numbers("optical_centre", 3, -0.5, 0.5, [0.0] * 3)),
        range_min=needed("range_min", 0.0, 10.0),
        range_max=needed("range_max", 0.1, 1000.0),
        range_noise=needed("range_noise", 0.0, 1.0),
        noise_growth=NoiseGrowth(**{key: growth.number(key, 0.0, 1.0) for key in growth.data}),
        range_biases=per_channel("range_biases", -1.0, 1.0),
        range_drift=drift.number("amplitude", 0.0, 1.0, 0.0),
        drift_time=drift.number("time", 1e-3, 1e6, 600.0),
        quantisation=given.number("quantisation", 0.0, 1.0, 0.0),
        drop_out_rate=given.number("drop_out_rate", 0.0, 1.0, 0.0),
        drop_out_echo=given.number("drop_out_echo", 0.0, 10.0, 0.0),
        beam_divergence=np.radians(given.number("beam_divergence_deg", 0.0, 10.0, 0.0)),
        pulse_length=given.number("pulse_length", 0.0, 10.0, 0.5),
        edge_drop_out=given.number("edge_drop_out", 0.0, 1.0, 0.0),
        blooming=np.radians(given.number("blooming_deg", 0.0, 20.0, 0.0)),
        reflectivity=given.number("reflectivity", 0.0, 1.0, 0.5),
        dual_return=choice("returns", RETURNS) == 1,
        zero_misses=choice("misses", MISSES) == 1,
        packets=given.integer("packets", 0, 100_000, 0),
        fleet_angle_tables=given.flag("fleet_angle_tables", False),
        spin_drift=np.radians(given.number("spin_drift_deg_per_scan", 0.0, 360.0, 0.0)),
        spin_jitter=np.radians(given.number("spin_jitter_deg", 0.0, 10.0, 0.0)),
        clock_spread=given.number("clock_spread", 0.0, 10.0, 0.0),
        driver=Driver(**driver_corrections(given.get("driver"), given.at("driver"))),
        spread=UnitSpread() if "unit" not in given else _spread(given.get("unit"), given.at("unit")),
        unsaid=None if "unit" in given else CLASS_SPREAD,
    )
    if sensor.range_max <= sensor.range_min:
        raise InputError(f"{path}: range_max: has to be above range_min")
    if sensor.num_rays > MAX_RAYS:
        raise InputError(f"{path}: azimuth_steps: {sensor.num_rays} rays per scan, at most {MAX_RAYS} are cast")
    return sensor


def driver_corrections(value: Any, where: str) -> dict[str, Any]:
    """Return what a `driver:` mapping says of the fields of `Driver`. Raises `InputError` naming the key."""
    data = dict(validate.mapping(value, set(Driver.__dataclass_fields__), where))
    window = data.pop(WINDOW, None)
    found: dict[str, Any] = {key: validate.flag(said, f"{where}: {key}") for key, said in data.items()}
    if window is not None:
        begin, end = validate.numbers(window, 2, f"{where}: {WINDOW}", -360.0, 360.0)
        if not 0.0 < end - begin < 360.0:
            raise InputError(f"{where}: {WINDOW}: from {begin:g} to {end:g} deg is no part of a turn")
        found[WINDOW] = (begin, end)
    return found


def _spread(value: Any, where: str) -> UnitSpread:
    """Return the standard deviations of a `unit:` mapping, angles in rad; none for `IDEAL`."""
    if value == IDEAL:
        return UnitSpread()
    data = validate.Section(value, SPREAD_KEYS, where)
    amplitude, length = near_range(data.get("near_range"), 1.0, data.at("near_range"))
    first, second = data.numbers("azimuth_harmonics_deg", 2, 0.0, 5.0, [0.0] * 2)

    def sigma(key: str, high: float) -> float:
        return data.number(key, 0.0, high, 0.0)

    return UnitSpread(
        range_offset=sigma("range_offset", 1.0),
        range_scale=sigma("range_scale", 0.1),
        near_range=validate.number(amplitude, f"{where}: near_range: amplitude", 0.0),
        near_length=length,
        incidence=sigma("incidence", 0.1),
        echo=sigma("echo", 1.0),
        channel_range=sigma("channel_range", 1.0),
        channel_elevation=math.radians(sigma("channel_elevation_deg", 5.0)),
        channel_azimuth=math.radians(sigma("channel_azimuth_deg", 5.0)),
        azimuth_harmonics=(math.radians(first), math.radians(second)),
        optical_centre=data.numbers("optical_centre", 3, 0.0, 0.1, [0.0] * 3),
        driver_uncertain=True,  # a cloud does not say what its driver corrected
    )
