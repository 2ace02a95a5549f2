"""A simulated spinning lidar: the rays of a scan, and what its driver publishes of their hits; all entries of a sensor
file. Not simulated: joints' motion within a scan, crosstalk between the lidars, sunlight."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.sensor import unit
from stretch_sim_cal.sensor.points import POINT_DTYPE
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit_file import Unit, unit_to_mapping

PURPOSES = ("device", "spin", "scan", "beam", "mix", "unit", "second", "bloom", "wander")  # of random numbers
# x, y and z are the first 12 bytes of a point; written together that is four times as fast as one by one.
PLACES = np.dtype({"names": ["xyz"], "formats": ["V12"], "offsets": [0], "itemsize": POINT_DTYPE.itemsize})


@dataclass(frozen=True)
class Rays:
    """The rays of scan `tick`, in firing order, in the lidar's frame, float32. They begin at `origins` (N, 3), or at
    the lidar's origin for None, and go along the unit `directions` (N, 3). The driver takes them to go along `nominal`
    (N, 3), and adds `centres` (N, 3) if it corrects the optical centre."""

    tick: int
    origins: np.ndarray | None
    directions: np.ndarray
    nominal: np.ndarray
    centres: np.ndarray | None


@dataclass
class Echoes:
    """Echoes along N rays: true `distances` (N,) in m from where the rays begin (inf for nothing), absolute `cosines`
    (N,) between ray and surface normal, and the surfaces' `reflectivities` (N,); 1 is white, more a reflector."""

    distances: np.ndarray
    cosines: np.ndarray
    reflectivities: np.ndarray | float

    def only(self, rows: np.ndarray) -> "Echoes":
        given = self.reflectivities
        return Echoes(self.distances[rows], self.cosines[rows], given[rows] if np.ndim(given) else given)


class Lidar:
    """One device: a unit of a sensor with its clock and spin. Everything random is drawn from (seed, device, tick), so
    that a scan is the same whatever was scanned before; the `unit` is drawn from (`unit_seed`, device). A device beyond
    "left" and "right" has a `number` from 2 on."""

    def __init__(self, sensor: Sensor, device: str, seed: int, unit_seed: int | None = None, number: int | None = None):
        if number is None and device not in SIDES:
            raise InputError(f"lidar '{device}': use one of {', '.join(SIDES)}")
        self._number = SIDES.index(device) if number is None else number
        self.sensor = sensor
        self.device = device
        self.seed = seed
        rng = self._generator("device")
        # Clocks of the two devices are synchronised only to within tens of ms, their spins not at all.
        self.clock_phase = float(rng.uniform(0.0, sensor.clock_spread)) if sensor.clock_spread else 0.0
        self._spin_phase = float(rng.uniform(0.0, 2.0 * np.pi))
        self._spin_drift = float(rng.uniform(-sensor.spin_drift, sensor.spin_drift)) if sensor.spin_drift else 0.0
        self.model = sensor.error_model(simulated=True)
        self.unit: Unit = sensor.draw_unit(self._generator("unit", seed=seed if unit_seed is None else unit_seed))
        self._values = self.unit.values.astype(np.float32)  # ranges are computed in single precision, as rays are cast
        turn = -1.0 if sensor.clockwise else 1.0
        # Rays are ordered as they are fired: azimuth by azimuth, and within one azimuth channel by channel.
        self._columns = turn * 2.0 * np.pi * np.arange(sensor.azimuth_steps) / sensor.azimuth_steps
        self._channels = np.tile(np.arange(sensor.num_channels, dtype=np.uint16), sensor.azimuth_steps)
        self._biases = np.tile(sensor.range_biases.astype(np.float32), sensor.azimuth_steps)
        self._ray_times = self._times()
        self._base = self._base_rays()

    def described(self) -> dict[str, Any]:
        """Return the unit as the content of a unit file."""
        driver = {name: value for name, value in vars(self.sensor.driver).items() if value is not None}
        own = {"sensor": self.sensor.kind, "driver": driver} | self.sensor.own_tables()
        return own | unit_to_mapping(self.model, self.unit)

    def start_time(self, tick: int) -> float:
        """Return when scan `tick` begins, in s of simulated time."""
        return tick * self.sensor.period + self.clock_phase

    def spin_phase(self, tick: int) -> float:
        """Return the rotor's azimuth at the beginning of scan `tick`, in rad."""
        jitter = self._generator("spin", tick).normal(0.0, self.sensor.spin_jitter) if self.sensor.spin_jitter else 0.0
        return float(np.mod(self._spin_phase + self._spin_drift * tick + jitter, 2.0 * np.pi))

    def rays(self, tick: int) -> Rays:
        """Return the rays of scan `tick`, `ErrorModel.true_rays` of this unit, and what its driver takes them for."""
        azimuths = self._columns + self.spin_phase(tick)
        nominal, true, origin, centre = self._base
        published = _turned(azimuths, nominal)
        if true is None:
            return Rays(tick, None, published, published, None)
        first, second = self.unit.values[unit.HARMONICS].reshape(2, 2)
        eccentric = first @ [np.cos(azimuths), np.sin(azimuths)] + second @ [np.cos(2 * azimuths), np.sin(2 * azimuths)]
        origins, centres = (None if place is None else _turned(azimuths, place) for place in (origin, centre))
        return Rays(tick, origins, _turned(azimuths + eccentric, true), published, centres)

    def beam_edge(self, rays: Rays) -> np.ndarray:
        """Return for each ray a random unit direction (N, 3) float32 within the beam's width."""
        rng = self._generator("beam", rays.tick)
        offsets = rng.standard_normal(rays.directions.shape, dtype=np.float32)
        offsets *= np.float32(self.sensor.beam_divergence / 4)  # the full width is four standard deviations
        offsets += rays.directions
        x, y, z = offsets.T
        offsets /= np.sqrt(x * x + y * y + z * z)[:, None]
        return offsets

    def shares(self, purpose: str, tick: int) -> np.ndarray:
        """Return a number (N,) from 0 to 1 per ray: its light's share along `beam_edge` ("mix"), or what it takes to
        "bloom"."""
        return self._generator(purpose, tick).random(self.sensor.num_rays, dtype=np.float32)

    def measure(self, rays: Rays, echoes: Echoes, second: Echoes | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return what the driver publishes of a scan: points (M,) of `POINT_DTYPE`, and the number (M,) of each one's
        ray.

        `second` holds further echoes, inf for none; a sensor of dual returns publishes every point twice, those of each
        azimuth's channels first from `echoes`, then from `second` (or again from `echoes`), with rays numbered from N
        on. Rays without a return, too near, too far or lost are left out or published as zeros, as the sensor file
        says. Surfaces nearer than `range_min` block the ray."""
        sensor, count = self.sensor, len(rays.directions)
        points = np.zeros(count, dtype=POINT_DTYPE)
        points["ring"] = self._channels
        points["timestamp"] = self.start_time(rays.tick) + self._ray_times
        returned = self._fill(points, rays, echoes, "scan")
        numbers = np.arange(count)
        if sensor.dual_return:
            again, again_returned = points.view(np.uint8).copy().view(POINT_DTYPE), returned.copy()
            if second is not None and len(rows := np.flatnonzero(np.isfinite(second.distances))):
                again_returned[rows] = self._fill(again, rays, second, "second", rows)
            points, returned, numbers = (
                _alternating(one, other, sensor.azimuth_steps)
                for one, other in ((points, again), (returned, again_returned), (numbers, numbers + count))
            )
        if sensor.zero_misses:
            return points, numbers
        rows = np.flatnonzero(returned)
        return points.take(rows), numbers.take(rows)

    def _fill(
        self, points: np.ndarray, rays: Rays, echoes: Echoes, purpose: str, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """Write the returns of rays (of `rows`, or all) into their points, else zeros; return which (K,) return."""
        sensor, count = self.sensor, len(points)
        rng = self._generator(purpose, rays.tick)
        # Drawn for every ray, so that the noise of one does not depend on what another hits.
        noise = rng.standard_normal(count, dtype=np.float32)
        every = np.arange(count) if rows is None else rows
        distances = echoes.distances.take(every)
        returned = (distances >= sensor.range_min) & (distances <= sensor.range_max)
        returned &= sensor.driver.publishes(rays.nominal if rows is None else rays.nominal[rows])
        if sensor.drop_out_rate:
            returned &= rng.random(count, dtype=np.float32)[every] >= sensor.drop_out_rate
        kept = np.flatnonzero(returned)
        numbers = every[kept]
        echoes = echoes.only(numbers)
        intensities = self._intensities(echoes)
        if sensor.drop_out_echo:
            lost = rng.random(count, dtype=np.float32)[numbers]
            seen = lost >= np.exp(-intensities / np.float32(255 * sensor.drop_out_echo))
            returned[kept[~seen]] = False
            numbers, intensities, echoes = numbers[seen], intensities[seen], echoes.only(np.flatnonzero(seen))
        places = points.view(PLACES)["xyz"]
        if rows is not None:
            points["intensity"][rows] = 0.0
            places[rows] = np.zeros((), PLACES["xyz"])
        ranges = self._ranges(rays, echoes, intensities, numbers, noise[numbers])
        xyz = rays.nominal.take(numbers, axis=0) * ranges[:, None]
        if rays.centres is not None:
            xyz += rays.centres.take(numbers, axis=0)
        places[numbers] = xyz.view(PLACES["xyz"]).ravel()
        points["intensity"][numbers] = intensities
        return returned

    def _ranges(
        self, rays: Rays, echoes: Echoes, intensities: np.ndarray, numbers: np.ndarray, noise: np.ndarray
    ) -> np.ndarray:
        sensor, growth = self.sensor, self.sensor.noise_growth
        ranges = distances = echoes.distances
        weak = np.float32(0.0)
        if self._values[unit.ECHO] or growth.echo:
            weak = np.exp(intensities / np.float32(-255 * unit.WEAK_ECHO))
        if self._values.any():
            ranges = self.model.measured_ranges(distances, echoes.cosines, weak, self._channels[numbers], self._values)
        if growth.range or growth.incidence or growth.echo:
            slanted = 1.0 / np.maximum(echoes.cosines, np.float32(unit.LEAST_COSINE)) - 1.0
            noise = noise * np.sqrt(
                sensor.range_noise**2 + (growth.range * distances) ** 2 + (growth.incidence * slanted) ** 2
                + (growth.echo * weak) ** 2
            )  # fmt: skip
        else:
            noise = noise * np.float32(sensor.range_noise)
        ranges = ranges + noise + self._biases[numbers]
        if self.unit.range_drift:
            warmth = 1.0 - np.exp(-self.start_time(rays.tick) / sensor.drift_time)
            ranges += np.float32(self.unit.range_drift * warmth)
        if sensor.range_wander:
            way, offsets = rays.nominal[numbers], sensor.azimuth_offsets[self._channels[numbers]]
            wander = self._generator("wander", rays.tick).normal(0.0, sensor.range_wander * unit.RANGE_WANDER_SHARES)
            ranges += np.float32(unit.wander_shapes(np.arctan2(way[:, 1], way[:, 0]) - offsets) @ wander)
        if sensor.quantisation:
            ranges = np.rint(ranges / np.float32(sensor.quantisation)) * np.float32(sensor.quantisation)
        return ranges.astype(np.float32, copy=False)

    def _intensities(self, echoes: Echoes) -> np.ndarray:
        """Return intensities (M,), 0 to 255: Lambertian, fading over the far half of the range, as devices compensate
        for the distance as long as the signal suffices."""
        fading = np.minimum(1.0, 0.5 * self.sensor.range_max / np.maximum(echoes.distances, 1e-3)) ** 2
        return np.minimum(np.rint(255.0 * echoes.reflectivities * echoes.cosines * fading), 255.0).astype(np.float32)

    def _times(self) -> np.ndarray:
        """Return the time (N,) of each ray's point after the scan's start in s: its packet's, if there are any."""
        sensor = self.sensor
        if not sensor.packets:
            return self.firing_times
        packet = np.arange(sensor.azimuth_steps) * sensor.packets // sensor.azimuth_steps
        return np.repeat(packet * (sensor.period / sensor.packets), sensor.num_channels)

    @property
    def firing_times(self) -> np.ndarray:
        """When each ray (N,) is really fired, in s after the scan's start."""
        sensor = self.sensor
        if not np.any(sensor.firing_times):
            return np.arange(sensor.num_rays) * (sensor.period / sensor.num_rays)
        columns = np.arange(sensor.azimuth_steps) * (sensor.period / sensor.azimuth_steps)
        return (columns[:, None] + sensor.firing_times).ravel()

    def _base_rays(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]:
        """Return, by channel (C, 3) and for the rotor at azimuth 0, the nominal and the true directions, the rays'
        origins, and what the driver adds; None for the same, or nothing."""
        sensor, values = self.sensor, self.unit.values
        # A driver that corrects firing times takes the rotor to be where it is when the channel fires.
        rotor = sensor.firing_azimuths if sensor.driver.firing_time_correction else np.zeros(sensor.num_channels)
        nominal = unit.directions(sensor.elevations, sensor.azimuth_offsets + rotor)
        azimuths = sensor.azimuth_offsets + rotor + values[self.model.of_kind("channel_azimuth")]
        azimuths = azimuths + values[unit.FIRING_SHARE] * sensor.firing_azimuths
        true = unit.directions(sensor.elevations + values[self.model.of_kind("channel_elevation")], azimuths)
        corrected = sensor.optical_centre * sensor.driver.distance_correction
        centre = values[unit.CENTRE] + values[unit.CENTRE_SHARE] * sensor.optical_centre + corrected
        if np.array_equal(true, nominal) and not values[unit.HARMONICS].any() and not centre.any():
            return nominal, None, None, None
        origins, added = (unit.turned(rotor, place) if place.any() else None for place in (centre, corrected))
        return nominal, true, origins, added

    def _generator(self, purpose: str, tick: int = 0, seed: int | None = None) -> np.random.Generator:
        key = (PURPOSES.index(purpose), self._number, tick)
        sequence = np.random.SeedSequence(self.seed if seed is None else seed, spawn_key=key)
        return np.random.Generator(np.random.SFC64(sequence))


def _alternating(one: np.ndarray, other: np.ndarray, steps: int) -> np.ndarray:
    """Return arrays (N,) of equal parts per step as one (2 N,), parts alternating, copied as bytes for speed."""
    both = np.empty(2 * len(one), one.dtype)
    parts = both.view(np.uint8).reshape(steps, 2, -1)
    parts[:, 0], parts[:, 1] = (each.view(np.uint8).reshape(steps, -1) for each in (one, other))
    return both


def _turned(azimuths: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return vectors (C, 3) turned about z by each of the azimuths (A,), as (A * C, 3) float32."""
    cosine, sine = (np.float32(f(azimuths))[:, None] for f in (np.cos, np.sin))
    x, y, z = np.float32(vectors).T
    result = np.empty((len(azimuths), len(vectors), 3), dtype=np.float32)
    result[..., 0] = cosine * x - sine * y
    result[..., 1] = sine * x + cosine * y
    result[..., 2] = z
    return result.reshape(-1, 3)
