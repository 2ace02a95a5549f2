"""Properties of a sensor and its driver from published points, whatever the scene. Without correction of the optical
centre all points of a ring have one elevation, with it once the rotor-fixed centre is subtracted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import wrapped
from stretch_sim_cal.sensor.points import are_returns, coordinates, elevations
from stretch_sim_cal.sensor.sensor import MISSES, RETURNS, Sensor, load_sensor

KEPT_SCANS = 10  # scans of which all points are kept; of the others only when they begin and where the rotor is then
HEAD = 20_000  # the first return of a scan is looked for among so many points
# Points of a ring lie on one elevation if they scatter by less (rad): single precision is 1e-7, angles in steps of 0.01
# deg are the same in every scan.
ON_TABLE = 1e-4
# Tables fit if their channels differ by less (rad, median); one unit's own table differs from
# its kind's by up to 0.5 deg.
SAME_TABLE = np.deg2rad(0.005)
LIKE_TABLE = np.deg2rad(0.5)
# The last channels may see nothing at all, of a lidar upside down or beside a wall; this share is before them at least.
LEAST_SEEN = 0.7
REGULAR = 0.9  # columns are regular if their phases agree (1 for all the same)
# Second returns repeat the first bit by bit; of a single-return lidar hardly any do.
DUAL_SHARE = 0.3
MIN_RETURNS = 1000
MOST_CHANNELS = 512  # of a lidar: more than any has
LONGEST_SCAN = 10.0  # s
STEPS = (2e-4, 0.02)  # the finest and the coarsest step of range that is looked for (m)
COMMON_STEP = 5e-4  # most makers' steps are multiples of this (m)
# Both lidars run in sync if their scans begin less than this apart (s; the robot pairs within it), and keep that
# distance to so much a minute (s); a drift has to exceed so many times the scatter.
PAIRED_WITHIN = 0.06
DRIFT_A_MINUTE = 5e-3
BEYOND_SCATTER = 5.0
SAME_RATE = 0.01  # rates (share) that differ by less are the clock's
# Neighbours of a lost return agree in range and intensity by these shares, and by so many m and of 255.
ALIKE_SHARES, ALIKE_WITHIN = np.array([[0.02, 0.1], [0.05, 3.0]])[:, :, None, None]
MIN_TRIALS = 1000
# Weak echoes count as lost if that is likelier than losses at random by so much (logarithm of the likelihood).
TELLING = 8.0


@dataclass(frozen=True)
class DropOuts:
    """A return of intensity i is lost with probability `rate` + exp(-i / 255 / `echo`); with standard deviations.
    `echo` is 0, and its deviation infinite, if it is not observable. `trials` returns were tested."""

    rate: float
    rate_deviation: float
    echo: float
    echo_deviation: float
    trials: int


@dataclass(frozen=True)
class Signature:
    """Properties of one lidar from its points. Lengths in m, angles in rad, times in s; None for unknown.

    `sensor` is the known one with the nearest table, with the driver's table in its place. `table_difference` is the
    median difference of a channel's elevation and azimuth from the table of `sensor.name`; `elevation_scatter` that of
    the points of a ring. `first_azimuths` (S,) are those of the rotor when scans began, at `starts` (S,).
    """

    num_channels: int
    sensor: Sensor | None
    elevation_scatter: float
    table_difference: tuple[float, float]
    distance_correction: bool | None
    firing_time_correction: bool | None
    azimuth_steps: int | None
    clockwise: bool | None
    dual_return: bool
    zero_misses: bool
    packets: int | None
    firing_order: np.ndarray
    quantisation: float
    drop_outs: DropOuts | None
    starts: np.ndarray
    first_azimuths: np.ndarray

    @property
    def period(self) -> float | None:
        """The time from scan to scan, None for fewer than three scans."""
        if len(self.starts) < 3 or not (gaps := np.diff(self.starts)).all():
            return None
        turns = np.maximum(np.round(gaps / np.median(gaps)), 1.0)  # some scans may be lost
        return float(gaps.sum() / turns.sum())

    @property
    def spin(self) -> tuple[float, float] | None:
        """The change of the rotor's initial azimuth per scan, and its standard deviation (rad)."""
        if self.period is None or len(self.first_azimuths) != len(self.starts):
            return None
        number = np.round((self.starts - self.starts[0]) / self.period)
        steps = wrapped(np.diff(self.first_azimuths))[np.diff(number) == 1]
        if len(steps) < 3:
            return None
        drift = float(np.median(steps))
        return drift, float(1.4826 * np.median(np.abs(steps - drift)) / np.sqrt(2.0))

    @property
    def lines(self) -> list[str]:
        """Sentences about the table and the driver's correction of distances."""
        rings = f"ring: there, 0 to {self.num_channels - 1}; table:"
        if self.sensor is None:
            lines = [f"{rings} no known one fits; write a sensor file (as config/jt128.yaml)"]
        elif max(self.table_difference) > SAME_TABLE:
            elevation, azimuth = np.degrees(self.table_difference)
            lines = [
                f"{rings} {self.sensor.name} in a unit-specific version (elevations {elevation:.3f} deg, azimuths "
                f"{azimuth:.3f} deg from it, in the median), as a driver reads it from a unit's angle file"
            ]
        else:
            lines = [f"{rings} {self.sensor.name}"]
        correction = None
        if self.distance_correction:
            correction = "on in the driver"
        elif self.distance_correction is False:
            remedy = "the optical centre is estimated, or switch it on in the driver (distance_correction_flag)"
            correction = f"off in the driver, all points of a ring lie on one elevation; {remedy}"
        elif self.elevation_scatter >= ON_TABLE:
            scatter = f"points of a ring scatter by {np.degrees(self.elevation_scatter):.3f} deg about one elevation"
            remedy = "record the driver's own topic, not a filtered or moved one"
            correction = f"cannot be determined, {scatter}; {remedy}"
        elif self.sensor is not None:
            correction = "not applicable, the table has no optical centre"
        return lines if correction is None else [*lines, f"distance correction: {correction}"]

    def keys(self) -> dict[str, Any]:
        """Return the known properties under the keys of a sensor file."""
        corrections = {
            "distance_correction": self.distance_correction, "firing_time_correction": self.firing_time_correction,
        }  # fmt: skip
        keys: dict[str, Any] = {
            "returns": RETURNS[self.dual_return], "misses": MISSES[self.zero_misses], "quantisation": self.quantisation,
            "azimuth_steps": self.azimuth_steps, "clockwise": self.clockwise, "packets": self.packets,
            "driver": {key: value for key, value in corrections.items() if value is not None},
        }  # fmt: skip
        if self.period and self.sensor is not None and abs(self.period * self.sensor.rate - 1.0) > SAME_RATE:
            keys["rate"] = round(1.0 / self.period, 4)
        if self.spin is not None:
            drift, jitter = np.degrees(self.spin).tolist()
            keys |= {"spin_drift_deg_per_scan": abs(drift), "spin_jitter_deg": jitter}
        if self.drop_outs is not None:
            keys |= {"drop_out_rate": self.drop_outs.rate, "drop_out_echo": self.drop_outs.echo or None}
        return {key: value for key, value in keys.items() if value is not None}


class Observer:
    """Takes the scans of one lidar as published, misses and repetitions included."""

    def __init__(self):
        self._scans: list[np.ndarray] = []
        self._starts: list[float] = []
        self._firsts: list[np.ndarray] = []
        self.num_scans = 0

    def add(self, scan: np.ndarray, stamp: float) -> None:
        """Take a scan, stamped at `stamp` s: structured (N,) with x, y, z and perhaps ring, intensity, timestamp.
        Raises `InputError` if it has other fields than the first."""
        if self._scans and scan.dtype != self._scans[0].dtype:
            first, then = (", ".join(names) for names in (self._scans[0].dtype.names, scan.dtype.names))
            raise InputError(f"its clouds have different fields: first {first}, then {then}")
        self.num_scans += 1
        if len(self._scans) < KEPT_SCANS:
            self._scans.append(scan)
        if "ring" not in scan.dtype.names:
            return
        times = scan["timestamp"][scan["timestamp"] > 0] if "timestamp" in scan.dtype.names else np.zeros(0)
        of_one_scan = len(times) > 0 and np.ptp(times) < LONGEST_SCAN  # in s, that is, and times at all
        self._starts.append(float(times.min()) if of_one_scan else stamp)
        head = scan[:HEAD]
        self._firsts.append(head[np.flatnonzero(are_returns(coordinates(head)))[:1]])

    def signature(self, candidates: Sequence[Sensor]) -> Signature:
        """Return the lidar's properties, its table compared with those of `candidates`. Raises `InputError` without
        rings, with rings that are no channels, or with too few returns."""
        if not self._scans:
            raise InputError("no scans")
        if "ring" not in self._scans[0].dtype.names:
            names = ", ".join(self._scans[0].dtype.names)
            why = "without it channels cannot be distinguished; let the driver publish PointXYZIRT"
            raise InputError(f"the points have no field ring, only {names}: {why}")
        clouds = [_Cloud(scan) for scan in self._scans]
        if (count := sum(len(cloud.points) for cloud in clouds)) < MIN_RETURNS:
            raise InputError(f"only {count} returns in {len(clouds)} scans; is the lidar covered?")
        low, high = (function([function(cloud.ring, initial=0) for cloud in clouds]) for function in (np.min, np.max))
        if low < 0 or high >= MOST_CHANNELS:
            raise InputError(f"field ring goes from {low} to {high}, so it is not a channel number")
        firsts = _Cloud(np.concatenate(self._firsts))
        return _signature(clouds, candidates, np.array(self._starts), firsts)


def known_sensors() -> list[Sensor]:
    paths = sorted((files.share_directory() / "config").glob("*.yaml"))
    return [load_sensor(path.stem) for path in paths if "elevations_deg" in files.read_yaml(path)]


def sync_line(left: Signature, right: Signature) -> tuple[bool | None, str]:
    """Return whether both lidars run in sync, None if that cannot be determined, and a sentence about it."""
    if left.period is None or right.period is None:
        return None, "sync: too few scans"
    period, times = 0.5 * (left.period + right.period), right.starts - right.starts[0]
    apart = right.starts - left.starts[np.abs(left.starts[:, None] - right.starts).argmin(axis=0)]
    apart = np.mod(apart - np.median(apart) + period / 2, period) - period / 2 + np.median(apart)
    offset = float(np.median(apart))
    slope = float(np.polyfit(times, apart, 1)[0]) if len(apart) > 4 else 0.0
    scatter = float(np.std(apart - slope * times))
    line = f"sync: right scans begin {1e3 * offset:+.1f} ms after left ones, scattering by {1e3 * scatter:.1f} ms"
    if abs(offset) > PAIRED_WITHIN:
        return False, f"{line}: too far apart to be paired; synchronise the clocks of both lidars (PTP)"
    drifts = abs(slope) * 60.0 > DRIFT_A_MINUTE and abs(slope) * np.ptp(times) > BEYOND_SCATTER * scatter + 1e-4
    if drifts or scatter > 0.1 * period:
        drift = f"drifting {1e3 * 60 * slope:+.1f} ms a minute: their clocks are not synchronised; use PTP"
        return False, f"{line}, {drift}"
    return True, line


class _Cloud:
    """The returns of a scan: `points` (N, 3) float64, `ring`, `intensity` (N,) or None, and misses and repetitions."""

    def __init__(self, scan: np.ndarray):
        xyz = coordinates(scan)
        returns = are_returns(xyz)
        there = np.isfinite(xyz).all(axis=1) & (xyz != 0).any(axis=1)
        self.repeated = 1.0 - np.count_nonzero(returns) / max(np.count_nonzero(there), 1)
        self.missing = len(scan) - np.count_nonzero(there)
        self.points = xyz[returns].astype(float)
        self.ring = scan["ring"][returns].astype(np.int64)
        self.order = scan["ring"][there].astype(np.int64)
        self.intensity = scan["intensity"][returns].astype(float) if "intensity" in scan.dtype.names else None
        self.num_times = len(np.unique(scan["timestamp"])) if "timestamp" in scan.dtype.names else None


def _signature(clouds: list[_Cloud], candidates: Sequence[Sensor], starts: np.ndarray, firsts: _Cloud) -> Signature:
    num_channels = max(int(cloud.ring.max(initial=0)) for cloud in clouds) + 1
    ring = np.concatenate([cloud.ring for cloud in clouds])
    rays = [cloud.points for cloud in clouds]
    elevations, scatter = _elevations(np.concatenate(rays), ring, num_channels)
    correction, sensor = None, _nearest(candidates, elevations)
    if scatter < ON_TABLE:
        correction = False if sensor is not None and np.any(sensor.optical_centre) else None
    else:
        for candidate in candidates:
            if candidate.num_channels < num_channels or not np.any(candidate.optical_centre):
                continue
            undone = [candidate.without_optical_centre(cloud.points, cloud.ring) for cloud in clouds]
            found, left_over = _elevations(np.concatenate(undone), ring, num_channels)
            if left_over < ON_TABLE and _nearest([candidate], found) is not None:
                sensor, correction, rays, elevations, scatter = candidate, True, undone, found, left_over
                break
    columns, difference, own, azimuths = None, (float("nan"),) * 2, sensor, np.zeros(0)
    if sensor is not None:
        if scatter < ON_TABLE:
            columns = _columns(clouds, rays, sensor, num_channels)
            own = _with_table(sensor, elevations, columns)
        apart = np.abs(elevations - sensor.elevations[:num_channels])[np.isfinite(elevations)]
        beside = 0.0 if columns is None else float(np.nanmedian(np.abs(columns.beside)))
        difference = (float(np.median(apart)), beside)
        if firsts.ring.max(initial=0) < num_channels:
            begins = sensor.without_optical_centre(firsts.points, firsts.ring) if correction else firsts.points
            azimuths = sensor.rotors(begins, firsts.ring)
    order = clouds[0].order[: 4 * num_channels]
    _, first = np.unique(order, return_index=True)
    times, packets = [cloud.num_times for cloud in clouds if cloud.num_times is not None], None
    if times:  # how many packets of one time each a scan is divided into, 0 for a time of each column or point
        number = int(np.median(times))
        packets = number if columns is None or number <= columns.steps else 0
    return Signature(
        num_channels=num_channels, sensor=own, elevation_scatter=float(scatter),
        table_difference=difference, distance_correction=correction,
        firing_time_correction=columns and columns.firing_time_correction,
        azimuth_steps=columns and columns.steps, clockwise=columns and columns.clockwise,
        dual_return=bool(np.mean([cloud.repeated for cloud in clouds]) > DUAL_SHARE),
        zero_misses=any(cloud.missing for cloud in clouds),
        packets=packets, firing_order=order[np.sort(first)], quantisation=_quantisation(rays),
        drop_outs=columns and _drop_outs(clouds, rays, columns), starts=starts, first_azimuths=azimuths,
    )  # fmt: skip


def _elevations(points: np.ndarray, ring: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    """Return the median elevation (C,) of each ring's points, NaN without any, and the scatter within rings."""
    elevation = elevations(points)
    order = np.argsort(ring, kind="stable")
    parts = np.split(elevation[order], np.searchsorted(ring[order], np.arange(1, count)))
    medians = np.array([np.median(part) if len(part) else np.nan for part in parts])
    apart = np.abs(elevation - medians[ring])
    return medians, float(np.percentile(apart, 90))


def _nearest(candidates: Sequence[Sensor], elevations: np.ndarray) -> Sensor | None:
    """Return the sensor with as many channels and the nearest elevations (C,), None if none is near."""
    seen = np.isfinite(elevations)
    apart = {
        index: float(np.median(np.abs(sensor.elevations[: len(elevations)] - elevations)[seen]))
        for index, sensor in enumerate(candidates)
        if LEAST_SEEN * sensor.num_channels <= len(elevations) <= sensor.num_channels
    }
    nearest = min(apart, key=apart.__getitem__, default=None)
    return None if nearest is None or apart[nearest] >= LIKE_TABLE else candidates[nearest]


@dataclass(frozen=True)
class _Columns:
    """The firings of a turn: number of `steps`, the rotor's sense, the difference (C,) of each channel's azimuth from
    the table's (NaN unseen), and whether the driver corrects firing times."""

    steps: int
    clockwise: bool | None
    beside: np.ndarray
    firing_time_correction: bool | None
    rotors: list[np.ndarray]


def _columns(clouds: list[_Cloud], rays: list[np.ndarray], sensor: Sensor, count: int) -> _Columns | None:
    rotors = [sensor.rotors(points, cloud.ring) for cloud, points in zip(clouds, rays, strict=True)]
    steps, senses = [], []
    for cloud, rotor in zip(clouds, rotors, strict=True):
        order = np.argsort(cloud.ring, kind="stable")
        ahead = wrapped(np.diff(rotor[order]))[np.diff(cloud.ring[order]) == 0]
        ahead = ahead[np.abs(ahead) > 1e-6]
        steps.append(2.0 * np.pi / np.median(np.abs(ahead)) if len(ahead) else 0.0)
        senses.append(float(np.mean(ahead < 0)) if len(ahead) else 0.5)
    number = int(round(np.median(steps)))
    if not 4 <= number <= 100_000:
        return None
    phases = np.full((len(clouds), count), np.nan, dtype=complex)
    for row, (cloud, rotor) in enumerate(zip(clouds, rotors, strict=True)):
        returns = np.bincount(cloud.ring, minlength=count)
        seen = returns > 0
        phases[row, seen] = _phase_sums(cloud.ring, number * rotor, count)[seen] / returns[seen]
    if not np.nanmean(np.abs(phases)) > REGULAR:
        return None
    # Against the scan's own phase, which is that of most channels.
    common = np.array([_mode_phase(np.angle(row[np.isfinite(row)])) for row in phases])
    beside = np.angle(np.nansum(phases * np.exp(-1j * common)[:, None], axis=0)) / number
    beside[~np.isfinite(phases).any(axis=0)] = np.nan
    correction, own = None, _about_zero(beside, number)
    if np.any(sensor.firing_times):
        with_times = _about_zero(beside - sensor.firing_azimuths[:count], number)
        correction = bool(np.nanmedian(np.abs(with_times)) < np.nanmedian(np.abs(own)))
        own = with_times if correction else own
    sense = float(np.median(senses))
    return _Columns(number, None if 0.1 < sense < 0.9 else sense > 0.5, own, correction, rotors)


def _phase_sums(ring: np.ndarray, angles: np.ndarray, count: int) -> np.ndarray:
    turns = np.exp(1j * angles)
    return np.bincount(ring, turns.real, count) + 1j * np.bincount(ring, turns.imag, count)


def _mode_phase(angles: np.ndarray) -> float:
    return float(np.angle(np.exp(1j * angles).sum()))


def _about_zero(azimuths: np.ndarray, steps: int) -> np.ndarray:
    """Return azimuths (C,), known modulo a step, about their median, which is part of the pose."""
    angles = steps * azimuths
    seen = np.isfinite(angles)
    turned = np.angle(np.exp(1j * (angles - _mode_phase(angles[seen]))))
    turned = np.angle(np.exp(1j * (turned - np.median(turned[seen]))))
    return np.where(seen, turned / steps, np.nan)


def _with_table(sensor: Sensor, elevations: np.ndarray, columns: _Columns | None) -> Sensor:
    beside = {"elevations": elevations - sensor.elevations[: len(elevations)]}
    if columns is not None:
        beside["azimuth_offsets"] = columns.beside
    for name, apart in beside.items():
        if np.nanmedian(np.abs(apart)) > SAME_TABLE:
            known = getattr(sensor, name).copy()
            known[: len(apart)] += np.nan_to_num(apart)
            sensor = replace(sensor, **{name: known})
    return sensor


def _quantisation(rays: Sequence[np.ndarray]) -> float:
    ranges = np.concatenate([np.linalg.norm(points, axis=1) for points in rays])
    ranges = np.sort(ranges[(ranges > 0.3) & (ranges < 6.0)])  # single precision blurs farther ones
    if len(ranges) < MIN_RETURNS:
        return 0.0
    # The coarsest step that fits: its parts fit as well.
    for step in [*np.arange(STEPS[1], 0.0, -COMMON_STEP), _smallest_gap(ranges)]:
        # Sharpened on ever farther ranges, which a small error of the step moves most.
        for reach in (0.6, 1.2, 2.5, 6.0):
            near = ranges[ranges < reach]
            if step > 0 and len(near) > 100:
                step = float(near @ near / (near @ np.maximum(np.round(near / step), 1.0)))
        if step > 0 and abs(np.exp(2j * np.pi * ranges / step).mean()) > REGULAR:
            return round(float(step), 6)
    return 0.0


def _smallest_gap(ranges: np.ndarray) -> float:
    """Return the usual gap (m) between neighbours among sorted ranges (N,), 0 if it is out of `STEPS`."""
    gaps = np.diff(ranges)
    gaps = gaps[gaps > STEPS[0] / 2]
    if len(gaps) < 20:
        return 0.0
    step = float(np.median(gaps[gaps < 1.5 * np.percentile(gaps, 10)]))
    return step if STEPS[0] <= step <= STEPS[1] else 0.0


def _drop_outs(clouds: list[_Cloud], rays: list[np.ndarray], columns: _Columns) -> DropOuts | None:
    """Return how returns are lost, None for too few of them. The intensity of a lost one is that of its neighbours in
    the ring, if they agree in range and intensity."""
    if clouds[0].intensity is None:
        return None
    count = max(int(cloud.ring.max()) for cloud in clouds) + 1
    intensities, lost = [], []
    for cloud, points, rotor in zip(clouds, rays, columns.rotors, strict=True):
        phases = np.angle(_phase_sums(cloud.ring, columns.steps * rotor, count))
        column = np.round((columns.steps * rotor - phases[cloud.ring]) / (2.0 * np.pi)).astype(int) % columns.steps
        image = np.full((2, count, columns.steps), np.nan)  # NaN for no return
        image[:, cloud.ring, column] = np.linalg.norm(points, axis=1), cloud.intensity
        before, after = np.roll(image, 1, axis=2), np.roll(image, -1, axis=2)
        alike = (np.abs(after - before) < ALIKE_SHARES * before + ALIKE_WITHIN).all(axis=0)
        intensities.append(0.5 * (before[1] + after[1])[alike])
        lost.append(np.isnan(image[0])[alike])
    return _lost_by_intensity(np.concatenate(intensities), np.concatenate(lost))


def _lost_by_intensity(intensity: np.ndarray, lost: np.ndarray) -> DropOuts | None:
    from scipy.optimize import minimize  # takes a tenth of a second to import, which every node would pay

    if len(intensity) < MIN_TRIALS:
        return None
    levels = np.clip(np.nan_to_num(np.round(intensity)), 0, 255).astype(int)
    trials, misses = np.bincount(levels, minlength=256), np.bincount(levels, lost, minlength=256)
    at = np.flatnonzero(trials)
    trials, misses = trials[at], misses[at]
    number, missed = int(trials.sum()), float(misses.sum())
    share = missed / number

    def improbability(chance: np.ndarray) -> float:
        return -float(misses @ np.log(chance) + (trials - misses) @ np.log1p(-chance))

    def cost(parameters):
        rate, echo = np.exp(parameters)
        return improbability(np.clip(rate + (1.0 - rate) * np.exp(-at / 255.0 / echo), 1e-9, 1.0 - 1e-9))

    starts = [np.log([max(share, 1e-5), echo]) for echo in (0.003, 0.01, 0.03)]
    best = min((minimize(cost, start, method="Nelder-Mead") for start in starts), key=lambda found: found.fun)
    # What weak echoes do shows only if some are lost beyond what the rate explains.
    if improbability(np.full(len(at), np.clip(share, 1e-12, 1.0 - 1e-9))) - best.fun < TELLING:
        return DropOuts(share, float(np.sqrt(max(missed, 1.0)) / number), 0.0, np.inf, number)
    rate, echo = map(float, np.exp(best.x))
    spread = np.sqrt(np.maximum(np.diag(np.linalg.pinv(_second_derivatives(cost, best.x))), 0.0))
    return DropOuts(rate, float(rate * spread[0]), echo, float(echo * spread[1]), number)


def _second_derivatives(function, at: np.ndarray) -> np.ndarray:
    step = 1e-3
    steps = step * np.eye(len(at))
    return np.array([
        [(function(at + a + b) - function(at + a - b) - function(at - a + b) + function(at - a - b)) / (4 * step**2)
         for b in steps] for a in steps
    ])  # fmt: skip
