"""The lidar model: which rays a spinning multi-channel lidar sends out in a scan, and what it reports of their hits.

The lidar's frame has its x-y plane across the spin axis and z along the axis, out of the dome. A channel with
elevation e fires at azimuth a along (cos e cos a, cos e sin a, sin e).

What is modelled: uneven channel elevations, channels that lead or lag in azimuth, range limits, Gaussian range noise
along the ray, a range bias per channel, random drop-outs, an intensity from incidence and range, a spin that is not
locked to the mount and drifts, a clock phase per device, a time for every point, and, where a sensor file asks for it,
a beam of some width with the mixed pixels that it leaves at edges. What is not: multiple returns, motion within a scan,
materials.
"""

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.sensor.sensor import DEVICES, POINT_DTYPE, Sensor

PURPOSES = ("device", "spin", "scan", "beam", "mix")  # of random numbers
# Echoes of one pulse that are nearer to each other than this merge into one, somewhere between them.
PULSE_LENGTH = 0.5


class Lidar:
    """One device: a sensor with a clock and a spin of its own.

    Everything random is drawn anew from (seed, device, tick), so that a scan is the same whatever was scanned before.
    """

    def __init__(self, sensor: Sensor, device: str, seed: int):
        if device not in DEVICES:
            raise InputError(f"lidar '{device}': use one of {', '.join(DEVICES)}")
        self.sensor = sensor
        self.device = device
        self.seed = seed
        rng = self._generator("device")
        # Clocks of the two devices are synchronised only to within tens of ms, their spins not at all.
        self.clock_phase = float(rng.uniform(0.0, sensor.clock_spread)) if sensor.clock_spread else 0.0
        self._spin_phase = float(rng.uniform(0.0, 2.0 * np.pi))
        self._spin_drift = float(rng.uniform(-sensor.spin_drift, sensor.spin_drift)) if sensor.spin_drift else 0.0
        # Rays are ordered as they are fired: azimuth by azimuth, and within one azimuth channel by channel.
        columns = 2.0 * np.pi * np.arange(sensor.azimuth_steps) / sensor.azimuth_steps
        self._azimuths = columns[:, None] + sensor.azimuth_offsets
        self._rings = np.tile(np.arange(sensor.num_channels, dtype=np.uint16), sensor.azimuth_steps)
        self._biases = np.tile(sensor.range_biases.astype(np.float32), sensor.azimuth_steps)
        self._ray_times = np.arange(sensor.num_rays) * (sensor.period / sensor.num_rays)
        self._base_directions = np.stack(
            [
                np.cos(sensor.elevations) * np.cos(self._azimuths),
                np.cos(sensor.elevations) * np.sin(self._azimuths),
                np.broadcast_to(np.sin(sensor.elevations), self._azimuths.shape),
            ],
            axis=-1,
        ).reshape(-1, 3)

    def start_time(self, tick: int) -> float:
        """Return when scan `tick` begins, in s of simulated time; it ends one period later."""
        return tick * self.sensor.period + self.clock_phase

    def spin_phase(self, tick: int) -> float:
        """Return the azimuth of the first ray of scan `tick`, before channel offsets, in rad."""
        jitter = self._generator("spin", tick).normal(0.0, self.sensor.spin_jitter) if self.sensor.spin_jitter else 0.0
        return float(np.mod(self._spin_phase + self._spin_drift * tick + jitter, 2.0 * np.pi))

    def directions(self, tick: int) -> np.ndarray:
        """Return the unit directions (N, 3) float32 of scan `tick`'s rays in the lidar's frame, in firing order."""
        phase = self.spin_phase(tick)
        turn = np.array([[np.cos(phase), np.sin(phase), 0], [-np.sin(phase), np.cos(phase), 0], [0, 0, 1]])
        return (self._base_directions @ turn).astype(np.float32)

    def beam_edge(self, tick: int, directions: np.ndarray) -> np.ndarray:
        """Return, for each of `directions(tick)`, one random unit direction (N, 3) float32 within the beam's width."""
        rng = self._generator("beam", tick)
        offsets = rng.standard_normal(directions.shape, dtype=np.float32)
        offsets *= np.float32(self.sensor.beam_divergence / 4)  # the full width is four standard deviations
        within = directions + offsets
        return within / np.linalg.norm(within, axis=1, keepdims=True)

    def mixed(self, tick: int, centre: np.ndarray, edge: np.ndarray) -> np.ndarray:
        """Return ranges (N,) of pulses that hit at `centre` and, with part of the beam, at `edge` (both (N,), or inf).

        Echoes closer than `PULSE_LENGTH` merge at a random share, others do not, and that of the centre is reported.
        """
        shares = self._generator("mix", tick).random(len(centre), dtype=np.float32)
        both = np.isfinite(centre) & np.isfinite(edge)
        apart = np.where(both, edge, 0.0) - np.where(both, centre, 0.0)
        return np.where(np.abs(apart) < PULSE_LENGTH, centre + shares * apart, centre).astype(np.float32)

    def measure(
        self, tick: int, directions: np.ndarray, distances: np.ndarray, incidence_cosines: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what the device reports of a scan: points (M,) of `POINT_DTYPE`, and which rays (M,) they are of.

        `directions` (N, 3) are those of `directions(tick)`, `distances` (N,) the true ranges (inf for no hit) and
        `incidence_cosines` (N,) the absolute cosines between ray and surface normal. Rays without a return, too near,
        too far or dropped are left out, as the vendor's driver does. Surfaces nearer than `range_min` block the ray.
        """
        sensor = self.sensor
        rng = self._generator("scan", tick)
        # Drawn for every ray, so that the noise of one does not depend on what another hits.
        noise = rng.standard_normal(len(distances), dtype=np.float32)
        returned = (distances >= sensor.range_min) & (distances <= sensor.range_max)
        if sensor.drop_out_rate:
            returned &= rng.random(len(distances), dtype=np.float32) >= sensor.drop_out_rate
        rays = np.flatnonzero(returned)

        ranges = distances[rays] + np.float32(sensor.range_noise) * noise[rays] + self._biases[rays]
        xyz = directions.take(rays, axis=0) * ranges[:, None]
        points = np.empty(len(rays), dtype=POINT_DTYPE)
        # x, y and z are the first 12 bytes of a point; written together that is twice as fast as one by one.
        points.view(np.uint8).reshape(-1, POINT_DTYPE.itemsize)[:, :12] = xyz.view(np.uint8).reshape(-1, 12)
        points["intensity"] = self._intensities(distances[rays], incidence_cosines[rays])
        points["ring"] = self._rings[rays]
        points["timestamp"] = self.start_time(tick) + self._ray_times[rays]
        return points, rays

    def _intensities(self, distances: np.ndarray, incidence_cosines: np.ndarray) -> np.ndarray:
        """Return intensities (M,) on the driver's scale of 0 to 255: Lambertian, fading over the far half of the range.

        Devices compensate for the distance as long as the signal suffices, so near returns do not depend on it.
        """
        fading = np.minimum(1.0, 0.5 * self.sensor.range_max / np.maximum(distances, 1e-3)) ** 2
        return np.rint(255.0 * self.sensor.reflectivity * incidence_cosines * fading)

    def _generator(self, purpose: str, tick: int = 0) -> np.random.Generator:
        """Return the generator for one purpose and tick; independent of every other one."""
        key = (PURPOSES.index(purpose), DEVICES.index(self.device), tick)
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence(self.seed, spawn_key=key)))
