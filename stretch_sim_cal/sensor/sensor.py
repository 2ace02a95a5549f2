"""Sensor files (`config/*.yaml`): kinds of lidars; a unit file is read as one of one unit. A channel with elevation e
and azimuth offset o looks along (cos e cos b, cos e sin b, sin e), b = a + o, with the rotor at azimuth a about z."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from stretch_sim_cal import files, validate
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import wrapped
from stretch_sim_cal.sensor.unit import CENTRE_SHARE, FIRING_SHARE, UNKNOWN_SENSOR, ErrorModel, UnitSpread, turned
from stretch_sim_cal.sensor.unit_file import UNIT_FILE_KEYS, Unit, near_range, read_angle_table, unit_from_mapping
from stretch_sim_cal.validate import DEGREES, MICROSECONDS, Bounds

IDEAL = "ideal"  # in place of a sensor file's `unit`: simulated lidars without errors
CLASS_SPREAD = replace(UNKNOWN_SENSOR, optical_centre=(5e-4, 5e-4, 5e-4), driver_uncertain=True)
"""Spread of units if a sensor file has none: that of data sheets of the class."""
DEFAULT_SENSOR = "jt128_ideal"  # the default sensor of a simulation
MAX_RAYS = 2_000_000
UNKNOWN = "unknown"
OTHER_SETTINGS = ("body_shape", "mounts")  # the files in config/ that are not of a sensor
WINDOW = "azimuth_window_deg"
RETURNS = ("single", "dual")
MISSES = ("none", "zeros")
RANGE_DRIFT = {"amplitude": (0.0, 1.0, 0.0), "time": (1e-3, 1e6, 600.0)}
"""The keys of `range_drift`: the least value of each, the greatest one and the default."""


@dataclass(frozen=True)
class Driver:
    """What the driver corrects before it publishes: the distance of the optical centre, and the rotor's turn until a
    channel fires. It publishes only azimuths within an `azimuth_window_deg` (counter-clockwise from the lidar's x)."""

    distance_correction: bool = True
    firing_time_correction: bool = True
    azimuth_window_deg: Annotated[tuple[float, float], Bounds(-360.0, 360.0)] | None = None

    def publishes(self, directions: np.ndarray) -> np.ndarray | bool:
        """Return which rays along `directions` (N, 3) in the lidar's frame are in the window, (N,); True without
        one."""
        if self.azimuth_window_deg is None:
            return True
        begin, end = np.radians(self.azimuth_window_deg)
        return np.mod(np.arctan2(directions[:, 1], directions[:, 0]) - begin, 2.0 * np.pi) <= end - begin


CORRECTIONS = tuple(name for name in Driver.__dataclass_fields__ if name != WINDOW)  # what a driver corrects, or not


Share = Annotated[float, Bounds(0.0, 1.0)]


@dataclass(frozen=True)
class NoiseGrowth:
    """Terms added in quadrature to the constant range noise, as standard deviations in m: `range` per m of distance,
    `incidence` times 1 / cos - 1, `echo` times exp(-intensity / 255 / WEAK_ECHO), as of the unit's errors."""

    range: Share = 0.0
    incidence: Share = 0.0
    echo: Share = 0.0


@dataclass(frozen=True, kw_only=True)
class Sensor:
    """The content of a sensor file. Lengths in m, angles in rad, times in s.

    `kind` is the name in `config/`, or the path, of the kind's sensor file. `elevations`, `azimuth_offsets`,
    `firing_times` (after the rotor passed the azimuth of the block) and `range_biases` are (C,); channel i reports ring
    i. `optical_centre` (3,) is in the frame that turns with the rotor. `range_drift` is one standard deviation of the
    growth of ranges over `drift_time` while the unit warms up, `range_wander` one of the first harmonics of a scan's
    wander. A return of intensity i is lost with probability exp(-i / 255 / drop_out_echo). Echoes of a beam within
    `pulse_length` return as one; of two surfaces farther apart neither does in a share `edge_drop_out` of the cases.
    `packets` of a scan have a time each; 0 for a time of each point. `fleet_angle_tables`: a robot's fleet folder may
    hold the angle tables of its units. `spread` is that of units in simulation, `expected` that of real ones,
    partly or wholly of their class (then in `unsaid`) if the file has none. `unit` is the one of a unit file.
    """

    name: str
    kind: str
    rate: Annotated[float, Bounds(0.1, 100.0)]
    azimuth_steps: Annotated[int, Bounds(4, 100_000)]
    clockwise: bool = False
    elevations: Annotated[np.ndarray, Bounds(-90.0, 90.0, DEGREES)]
    azimuth_offsets: Annotated[np.ndarray, Bounds(-360.0, 360.0, DEGREES)]
    firing_times: Annotated[np.ndarray, Bounds(0.0, 1e5, MICROSECONDS)]
    optical_centre: np.ndarray
    range_min: Annotated[float, Bounds(0.0, 10.0)]
    range_max: Annotated[float, Bounds(0.1, 1000.0)]
    range_noise: Share
    noise_growth: Annotated[NoiseGrowth, Bounds(key="range_noise_growth")] = NoiseGrowth()
    range_biases: Annotated[np.ndarray, Bounds(-1.0, 1.0)]
    range_drift: float
    range_wander: Annotated[float, Bounds(0.0, 0.1)] = 0.0
    drift_time: float
    quantisation: Share = 0.0
    drop_out_rate: Share = 0.0
    drop_out_echo: Annotated[float, Bounds(0.0, 10.0)] = 0.0
    beam_divergence: Annotated[float, Bounds(0.0, 10.0, DEGREES)] = 0.0
    pulse_length: Annotated[float, Bounds(0.0, 10.0)] = 0.5
    edge_drop_out: Share = 0.0
    blooming: Annotated[float, Bounds(0.0, 20.0, DEGREES)] = 0.0
    reflectivity: Share = 0.5
    dual_return: bool
    zero_misses: bool
    packets: Annotated[int, Bounds(0, 100_000)] = 0
    fleet_angle_tables: bool = False
    spin_drift: Annotated[float, Bounds(0.0, 360.0, DEGREES, "spin_drift_deg_per_scan")] = 0.0
    spin_jitter: Annotated[float, Bounds(0.0, 10.0, DEGREES)] = 0.0
    clock_spread: Annotated[float, Bounds(0.0, 10.0)] = 0.0
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
        """The time from scan to scan, in s."""
        return 1.0 / self.rate

    @property
    def firing_azimuths(self) -> np.ndarray:
        """The angles (C,) by which the rotor turns until a channel fires, in rad; negative for a clockwise rotor."""
        return (-1.0 if self.clockwise else 1.0) * 2.0 * np.pi * self.rate * self.firing_times

    def relative_noise(self, ranges: np.ndarray, cosines: np.ndarray, echo: np.ndarray) -> np.ndarray:
        """Return the noise (N,) of `ranges` (N,) at `cosines` (N,) of incidence, relative to that of a near bright
        surface at normal incidence; `echo` (N,) is `weak_echo` of the intensities."""
        growth, slant = self.noise_growth, 1.0 / cosines - 1.0
        squares = (growth.range * ranges) ** 2 + (growth.incidence * slant) ** 2 + (growth.echo * echo) ** 2
        return np.sqrt(1.0 + squares / max(self.range_noise, 1e-6) ** 2)

    @property
    def expected(self) -> UnitSpread:
        """The spread of units where they are calibrated."""
        return self.unsaid or self.spread

    def error_model(self, simulated: bool = False) -> ErrorModel:
        """Return the error model of units as expected, or as `simulated`."""
        return ErrorModel(
            self.spread if simulated else self.expected, self.elevations, self.azimuth_offsets, self.optical_centre,
            self.firing_azimuths if np.any(self.firing_times) else None,
        )  # fmt: skip

    def draw_unit(self, rng: np.random.Generator) -> Unit:
        """Return the file's unit, or one drawn from `spread`, as its driver leaves it."""
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

    def rotors(self, points: np.ndarray, ring: np.ndarray) -> np.ndarray:
        """Return the rotor's azimuths (N,), -pi to pi, at points (N, 3) of rings (N,), as measured."""
        return wrapped(np.arctan2(points[:, 1], points[:, 0]) - self.azimuth_offsets[ring])

    def without_optical_centre(self, points: np.ndarray, ring: np.ndarray) -> np.ndarray:
        """Return points (N, 3) of rings (N,) without the optical centre that the driver adds."""
        rays = points
        for _ in range(6):
            rays = points - turned(self.rotors(rays, ring), self.optical_centre)
        return rays

    def with_driver(self, driver: Driver) -> "Sensor":
        """Return this sensor behind another driver."""
        sensor = replace(self, driver=driver)
        if self.unit is None or driver == self.driver:
            return sensor
        values = self.unit.values.copy()
        values[[CENTRE_SHARE, FIRING_SHARE]] = sensor.uncorrected_shares
        return replace(sensor, unit=replace(self.unit, values=values))

    def with_angle_table(self, path: str | Path) -> "Sensor":
        """Return this sensor with a unit's angle table. Raises `InputError` naming file and line."""
        elevations, offsets = read_angle_table(path)
        if len(elevations) != self.num_channels:
            raise InputError(f"{path}: has {len(elevations)} channels, the sensor {self.name} has {self.num_channels}")
        return replace(self, elevations=elevations, azimuth_offsets=offsets)

    def own_tables(self) -> dict[str, list[float]]:
        """Return, as the keys of a sensor file, the angle tables in which a unit differs from its kind."""
        kind = load_sensor(self.kind)
        return {
            f"{name}_deg": np.round(np.degrees(own), 6).tolist()
            for name in ("elevations", "azimuth_offsets")
            if not np.array_equal(own := getattr(self, name), getattr(kind, name))
        }


PER_CHANNEL = ("elevations", "azimuth_offsets", "firing_times", "range_biases")
# Keys that are no fields, or are read otherwise.
APART = {"optical_centre", "range_drift", "returns", "misses", "driver", "unit"}
COMPUTED = {"name", "kind", "drift_time", "dual_return", "zero_misses", "spread", "unsaid"}
KEYS = {key for name, (key, _) in validate.keys_of(Sensor).items() if name not in COMPUTED} | APART
SPREAD_KEYS = {key for key, _ in validate.keys_of(UnitSpread).values()} - {"near_length", "driver_uncertain"}

Sensors = Sensor | tuple[Sensor | None, ...] | None
"""The kind of all lidars, or of the left, the right, and further ones; None: a spinning lidar of unknown make."""


def of_two(sensors: Sensors) -> Sensors:
    """Return the sensors of the first two lidars, one if they are the same."""
    if not isinstance(sensors, tuple):
        return sensors
    return sensors[0] if len(sensors) == 1 or sensors[0] is sensors[1] else sensors[:2]


def sensors_called(name: str | Path) -> Sensors:
    """Return the sensors of a command's option: a name, or "LEFT,RIGHT" and so on; None for "unknown". Raises
    `InputError` for an unknown name or path."""
    names = [each.strip() for each in str(name).strip(validate.BETWEEN).split(validate.BETWEEN)]
    kinds = {each: None if each == UNKNOWN else load_sensor(each) for each in dict.fromkeys(names)}
    return kinds[names[0]] if len(kinds) == 1 else tuple(kinds[each] for each in names)


def for_each(sensors: Sensors, count: int) -> tuple[Sensor | None, ...]:
    """Return the sensors of so many lidars. Raises `InputError` unless there is one, or one for each."""
    given = sensors if isinstance(sensors, tuple) else (sensors,) * count
    if len(given) != count:
        raise InputError(f"sensor: {len(given)} kinds for {count} lidars; give one, or one for each")
    return given


def load_sensor(name: str | Path) -> Sensor:
    """Return the sensor of that name (in `config/`) or path, of a unit file with its unit. Raises `InputError` by
    key."""
    path = files.find_shared("config", name, ".yaml", but=OTHER_SETTINGS)
    own = files.read_yaml(path)
    if "sensor" not in own:
        return _sensor(path, path, own)
    kind, data = _kind(path, own)
    data |= {key: value for key, value in own.items() if key not in (*UNIT_FILE_KEYS, "sensor")}
    values = own.get("values") if isinstance(own.get("values"), dict) else {}
    sensor = _sensor(path, kind, data)
    _, length = near_range(values.get("near_range"), sensor.spread.near_length, f"{path}: values: near_range")
    sensor = replace(sensor, spread=replace(sensor.spread, near_length=length))
    if sensor.unsaid is not None:
        sensor = replace(sensor, unsaid=replace(sensor.unsaid, near_length=length))
    unit = unit_from_mapping(sensor.error_model(), own, str(path))
    shares = {"optical_centre_share": CENTRE_SHARE, "firing_time_share": FIRING_SHARE}
    for (key, index), share in zip(shares.items(), sensor.uncorrected_shares, strict=True):
        if key not in values:
            unit.values[index] = share
    return replace(sensor, unit=unit)


def fleet_angle_table(device: str) -> Path | None:
    """Return the angle table of lidar "left" or "right" in the robot's fleet folder, or None."""
    fleet, robot = os.environ.get("HELLO_FLEET_PATH"), os.environ.get("HELLO_FLEET_ID")
    if not fleet or not robot:
        return None
    path = Path(fleet) / robot / "calibration_hesais" / f"{device}_lidar_calibration.dat"
    return path if path.is_file() else None


def _kind(path: Path, data: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Return path and content of a unit file's sensor file: a name in `config/`, or a path beside it."""
    where = f"{path}: sensor"
    name = validate.text(data["sensor"], where)
    beside = path.parent / name
    try:
        kind = files.find_shared("config", beside if len(Path(name).parts) > 1 or beside.is_file() else name, ".yaml")
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    known = validate.mapping(files.read_yaml(kind), KEYS, str(kind))  # which 'sensor' of a unit file is not
    validate.mapping(dict(data), KEYS | {"sensor", *UNIT_FILE_KEYS}, str(path))
    return kind, known


def _sensor(path: Path, kind: Path, data: dict[str, Any]) -> Sensor:
    where = str(path)
    validate.mapping(data, KEYS, where)
    elevations = data.get("elevations_deg")
    if not isinstance(elevations, list) or not elevations:
        raise InputError(f"{where}: elevations_deg: expected a list with the elevation of every channel")
    drift = validate.numbers_by_key(data.get("range_drift"), f"{where}: range_drift", **RANGE_DRIFT)
    usual = {"azimuth_offsets_deg": 0.0, "firing_times_us": 0.0, "range_biases": 0.0}
    sensor = validate.record(
        Sensor, usual | {key: each for key, each in data.items() if key not in APART}, where,
        name=path.stem,
        kind=kind.stem if kind.parent == files.share_directory() / "config" else str(kind),
        optical_centre=np.array(
            validate.numbers(data.get("optical_centre", (0.0, 0.0, 0.0)), 3, f"{where}: optical_centre", -0.5, 0.5)
        ),
        range_drift=drift["amplitude"], drift_time=drift["time"],
        dual_return=validate.choice(data.get("returns", RETURNS[0]), RETURNS, f"{where}: returns") == RETURNS[1],
        zero_misses=validate.choice(data.get("misses", MISSES[0]), MISSES, f"{where}: misses") == MISSES[1],
        driver=Driver(**driver_corrections(data.get("driver"), f"{where}: driver")),
        spread=(spread := UnitSpread() if data.get("unit") is None else _spread(data["unit"], f"{where}: unit")),
        unsaid=_unsaid(data, spread),
        unit=None,
    )  # fmt: skip
    for name in PER_CHANNEL:
        if (given := getattr(sensor, name)).shape not in ((), (len(elevations),)):
            key, _ = validate.keys_of(Sensor)[name]
            raise InputError(f"{where}: {key}: has {len(given)} numbers for {len(elevations)} channels")
    if sensor.range_max <= sensor.range_min:
        raise InputError(f"{where}: range_max: has to be above range_min")
    if sensor.num_rays > MAX_RAYS:
        raise InputError(f"{where}: azimuth_steps: {sensor.num_rays} rays per scan, at most {MAX_RAYS} are cast")
    return replace(sensor, **{name: np.full(len(elevations), getattr(sensor, name)) for name in PER_CHANNEL})


def driver_corrections(value: Any, where: str) -> dict[str, Any]:
    """Return the fields of `Driver` that a `driver:` mapping gives. Raises `InputError` naming the key."""
    driver = validate.record(Driver, value, where)
    if driver.azimuth_window_deg is not None:
        begin, end = driver.azimuth_window_deg
        if not 0.0 < end - begin < 360.0:
            raise InputError(f"{where}: {WINDOW}: from {begin:g} to {end:g} deg is not part of a turn")
    return {name: getattr(driver, name) for name, given in (value or {}).items() if given is not None}


def _unsaid(data: Mapping[str, Any], spread: UnitSpread) -> UnitSpread | None:
    """Return the spread that is expected of units in place of `spread`, that of the file's `unit:` mapping, if the file
    has none, or none of the optical centre: without the table's, beams may begin as far before or behind the spin axis
    as those of an unknown sensor. How far they pass it is an alternative of its own (`ErrorModel.scan_roots`)."""
    unit = data.get("unit")
    if unit == IDEAL or (unit is not None and "optical_centre" in unit):
        return None
    ahead = (UNKNOWN_SENSOR.optical_centre[0], 0.0, 0.0)
    centre = CLASS_SPREAD.optical_centre if "optical_centre" in data else ahead
    return replace(CLASS_SPREAD if unit is None else spread, optical_centre=centre)


def _spread(value: Any, where: str) -> UnitSpread:
    """Return the standard deviations of a `unit:` mapping; none for `IDEAL`."""
    if value == IDEAL:
        return UnitSpread()
    data = validate.mapping(value, SPREAD_KEYS, where)
    amplitude, length = near_range(data.get("near_range"), 1.0, f"{where}: near_range")
    return validate.record(
        UnitSpread, {key: each for key, each in data.items() if key != "near_range"}, where,
        near_range=validate.number(amplitude, f"{where}: near_range: amplitude", 0.0), near_length=length,
        driver_uncertain=True,  # a cloud does not show what its driver corrected
    )  # fmt: skip
