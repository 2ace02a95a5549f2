"""The error model of one lidar, as parameters with a prior: the simulator distorts by it, the calibration estimates it.

A measured point p lies at range |p| along its nominal direction. With the azimuth a of the rotor, e and o the channel's
table values, and c the optical centre in the frame that turns with the rotor, the true point is

    x = Rz(a) c + d(e + elevation error, a + o + azimuth error) (|p| - error) / (1 + range_scale)
    elevation error = channel_elevation + waves(a), azimuth error = channel_azimuth + harmonics(a) + waves(a)
    error = range_offset + near_range exp(-|p| / length) + incidence (1 / cos - 1) + echo exp(-intensity / 255 / 0.08)
            + channel_range + wander(a)

where cos is that of incidence, and d(e, a) = (cos e cos a, cos e sin a, sin e). Errors of incidence and weak echoes:
J. Laconte et al., "Lidar measurement bias estimation via return waveform modelling in a context of 3D mapping" (ICRA
2019); channels and eccentricity: e.g. Glennie and Lichti, "Static calibration and analysis of the Velodyne HDL-64E S2"
(2010). `wander` is a Fourier series of the rotor's azimuth without mean, drawn for each scan, or alike in all;
`waves` are 0 unless the spin axis wobbles, the rotor cogs, or a window bends the rays.

A frame that moves by a twist m in a scan (wrong deskewing, a rotor whose angles grow too fast) shows x at exp(-s m) x,
with the share s of the scan, -0.5 to 0.5. `optical_centre_share` and `firing_time_share` are the shares that the driver
leaves uncorrected, 0 or 1; one that corrects the optical centre publishes p + Rz(a) c.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from stretch_sim_cal.validate import DEGREES, Bounds

SCALARS = (
    "range_offset", "range_scale", "near_range", "incidence", "echo",
    "azimuth_cos_1", "azimuth_sin_1", "azimuth_cos_2", "azimuth_sin_2",
    "optical_centre_x", "optical_centre_y", "optical_centre_z", "optical_centre_share", "firing_time_share",
)  # fmt: skip
SCAN_MOTION = tuple(f"scan_motion_{axis}" for axis in ("x", "y", "z", "roll", "pitch", "yaw"))
# Standard deviations of a frame's motion in a scan, if it moves (m, rad).
SCAN_MOTION_DEVIATIONS = np.r_[np.full(3, 0.002), np.full(3, np.deg2rad(0.04))]
_HARMONICS = np.arange(1, 3)  # of a unit's azimuths
# The harmonics of a scan's wander, and their standard deviations as shares of the first one's: the variances that real
# lidars show fall with the number.
_WANDER = np.arange(1, 6)
RANGE_WANDER = tuple(f"range_{wave}_{number}" for number in _WANDER for wave in ("cos", "sin"))
RANGE_WANDER_SHARES = np.repeat(_WANDER, 2) ** -0.5
TYPICAL_WANDER = 1e-4  # m, of the first harmonics of one scan (docs/real_data.md)
# Root mean square over the channels of errors in their order: of ranges (m) if boards of channels differ, of azimuths
# (rad) by another firing order than the table has.
RANGE_ORDER_DEVIATION, FIRING_ORDER_DEVIATION = 0.005, float(np.deg2rad(0.1))
# Distance (m) at which beams pass the spin axis, if the driver does not know it, or knows that of another model.
LATERAL_OFFSET_DEVIATION = 0.005
# Waves over a turn of the directions of all channels, upwards (a spin axis that wobbles, a window that bends rays) and
# aside (a rotor that cogs, a window), and their standard deviation (rad) then. Azimuths have a first and second one as
# harmonics. Upward ones begin with those of a spin axis: older observations have no others, or none.
_UPWARD, _ASIDE = np.array([2, 3, 1]), np.array([3, 4])
UPWARD_WAVES = tuple(f"elevation_{wave}_{number}" for number in _UPWARD for wave in ("cos", "sin"))
ASIDE_WAVES = tuple(f"azimuth_{wave}_{number}" for number in _ASIDE for wave in ("cos", "sin"))
WAVES = UPWARD_WAVES + ASIDE_WAVES
WAVE_DEVIATION = float(np.deg2rad(0.05))
# What is of the scans, and no property of the unit that its file has.
OF_SCANS = SCAN_MOTION + RANGE_WANDER + WAVES
CHANNEL_KINDS = ("channel_range", "channel_elevation", "channel_azimuth")
OFFSET, SCALE, NEAR, INCIDENCE, ECHO = range(5)
RANGE_OFFSET, RANGE_SCALE, HARMONICS, CENTRE, CENTRE_SHARE, FIRING_SHARE = 0, 1, slice(5, 9), slice(9, 12), 12, 13
WEAK_ECHO = 0.08  # echoes weaker than this (share of full scale) come late
# Incidence is not believed beyond this cosine, where 1 / cos grows without bound.
LEAST_COSINE = 0.1
LEAST_RANGE = 1e-6  # m
# Half of the variance of a channel's elevation varies smoothly over this angle (rad): optics, not assembly.
SMOOTH_ELEVATION = "channel_elevation_smooth"
SMOOTH_SHARE, SMOOTH_ANGLE = 0.5, np.deg2rad(25.0)
# A scan's channels, of which those count that have more than this share of the most returns, begin within this angle
# (rad); of clouds in the order of time this share does.
SEES_MUCH, NEAR_BEGIN, IN_ORDER = 0.5, np.deg2rad(10.0), 0.6
NEGLIGIBLE = 1e-5  # axes of a covariance with less than this share of the largest variance are left out


@dataclass(frozen=True)
class UnitSpread:
    """Standard deviations of a unit's deviations from its sensor's table in m, rad, or as ratios; `near_length` (m) is
    the length over which the near-range error fades. `driver_uncertain`: it is not known whether the driver corrects
    the table's optical centre and firing times."""

    range_offset: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    range_scale: Annotated[float, Bounds(0.0, 0.1)] = 0.0
    near_range: float = 0.0
    near_length: float = 1.0
    incidence: Annotated[float, Bounds(0.0, 0.1)] = 0.0
    echo: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    channel_range: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    channel_elevation: Annotated[float, Bounds(0.0, 5.0, DEGREES)] = 0.0
    channel_azimuth: Annotated[float, Bounds(0.0, 5.0, DEGREES)] = 0.0
    azimuth_harmonics: Annotated[tuple[float, float], Bounds(0.0, 5.0, DEGREES)] = (0.0, 0.0)
    optical_centre: Annotated[tuple[float, float, float], Bounds(0.0, 0.1)] = (0.0, 0.0, 0.0)
    driver_uncertain: bool = False


# What spinning lidars of this class may differ by if nothing else is known: data sheets allow 1 to 3 cm. Distances
# count from 1 to 2 cm beside the spin axis (JT128: 16 mm), and not every driver corrects it; along the axis it is where
# the frame is.
UNKNOWN_SENSOR = UnitSpread(
    range_offset=0.01, range_scale=5e-4, near_range=0.005, incidence=0.003, echo=0.003, channel_range=0.002,
    channel_elevation=np.deg2rad(0.02), channel_azimuth=np.deg2rad(0.02),
    azimuth_harmonics=(np.deg2rad(0.02), np.deg2rad(0.01)), optical_centre=(0.01, 0.01, 0.0),
)  # fmt: skip


@dataclass(frozen=True)
class Returns:
    """Published points, decomposed: `ranges` (N,) in m, `azimuths` and `elevations` (N,) of the nominal directions in
    rad, the rotor's azimuth `rotor` (N,), the number `channel` (N,), and the weak-echo share `echo` (N,)."""

    ranges: np.ndarray
    azimuths: np.ndarray
    elevations: np.ndarray
    rotor: np.ndarray
    channel: np.ndarray
    echo: np.ndarray

    def __len__(self) -> int:
        return len(self.ranges)

    def only(self, chosen: np.ndarray) -> "Returns":
        """Return the rows of a mask or an index."""
        return Returns(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class ErrorModel:
    """Parameters of a unit with their prior: `SCALARS`, each of `CHANNEL_KINDS` for all C channels, and `OF_SCANS`.
    `elevations`, `azimuth_offsets` (C,) in rad are the sensor's table; its driver has to correct `optical_centre` (3,)
    in m and `firing_azimuths` (C,), the rotor's turn until a channel fires. Scans begin at the rotor's azimuth
    `scan_begin`. Unless it is 0, coordinates are whole multiples of `step` in m."""

    spread: UnitSpread
    elevations: np.ndarray
    azimuth_offsets: np.ndarray
    optical_centre: np.ndarray = field(default_factory=lambda: np.zeros(3))
    firing_azimuths: np.ndarray | None = None
    scan_begin: float = -np.pi
    step: float = 0.0

    @property
    def num_channels(self) -> int:
        return len(self.elevations)

    @property
    def size(self) -> int:
        return len(SCALARS) + len(CHANNEL_KINDS) * self.num_channels + len(OF_SCANS)

    @property
    def of_scan_motion(self) -> slice:
        """Where the parameters `SCAN_MOTION` lie."""
        return slice(self.size - len(OF_SCANS), self.of_wander.start)

    @property
    def of_wander(self) -> slice:
        return slice(self.of_waves.start - len(RANGE_WANDER), self.of_waves.start)

    @property
    def of_waves(self) -> slice:
        return slice(self.size - len(WAVES), self.size)

    def of_kind(self, kind: str) -> slice:
        """Return where the C parameters of one of `CHANNEL_KINDS` lie."""
        start = len(SCALARS) + CHANNEL_KINDS.index(kind) * self.num_channels
        return slice(start, start + self.num_channels)

    @property
    def scalar_deviations(self) -> np.ndarray:
        """The standard deviations (14,) of `SCALARS` in units as they are made."""
        spread, driver = self.spread, float(self.spread.driver_uncertain)
        first, second = spread.azimuth_harmonics
        return np.array([
            spread.range_offset, spread.range_scale, spread.near_range, spread.incidence, spread.echo,
            first, first, second, second, *spread.optical_centre,
            driver * bool(np.any(self.optical_centre)), driver * (self.firing_azimuths is not None),
        ])  # fmt: skip

    def prior_roots(self) -> dict[str, np.ndarray]:
        """Return, by independent part of a unit's errors, a root R (n, k) of its covariance R R^T, of full rank. The
        channels' mean azimuth is part of the unit's pose, so it does not vary."""
        spread, count, scalars = self.spread, self.num_channels, self.scalar_deviations
        apart = self.elevations[:, None] - self.elevations
        shapes = {
            "channel_range": np.eye(count),
            "channel_elevation": (1.0 - SMOOTH_SHARE) * np.eye(count),
            SMOOTH_ELEVATION: SMOOTH_SHARE * np.exp(-0.5 * (apart / SMOOTH_ANGLE) ** 2),
            "channel_azimuth": np.eye(count) - 1.0 / count,
        }
        roots = {"scalars": np.eye(self.size)[:, : len(SCALARS)][:, scalars > 0] * scalars[scalars > 0]}
        for name, shape in shapes.items():
            kind = "channel_elevation" if name == SMOOTH_ELEVATION else name
            variances, axes = np.linalg.eigh(getattr(spread, kind) ** 2 * shape)
            kept = variances > NEGLIGIBLE * variances[-1]
            roots[name] = np.zeros((self.size, np.count_nonzero(kept)))
            roots[name][self.of_kind(kind)] = axes[:, kept] * np.sqrt(variances[kept])
        return roots

    def scan_roots(self) -> dict[str, np.ndarray]:
        """Return, as `prior_roots`, roots (n, k) of what is no property of the unit: the frame's motion in a scan,
        typical wander of ranges, errors of channels' ranges and azimuths in their order, another lateral offset of all
        beams than the driver corrects, and waves of directions. A window that bends rays in a part of a turn does so on
        average, too: the lidar's pose is uncertain then."""
        one, wander = np.eye(self.size), TYPICAL_WANDER * RANGE_WANDER_SHARES
        aside = turned(np.median(self.azimuth_offsets, keepdims=True), np.array([0.0, 1.0, 0.0])).T
        number = np.arange(self.num_channels) - (self.num_channels - 1) / 2.0
        # In proportion to their number, half of them, every second one.
        orders = np.column_stack([number, np.sign(number), (-1.0) ** np.arange(self.num_channels)])
        orders -= orders.mean(axis=0)  # the mean of all channels is another error, or part of the unit's pose
        orders = orders[:, orders.any(axis=0)]
        orders /= np.sqrt((orders**2).mean(axis=0))
        uncertain = self.spread.channel_azimuth > 0
        waves_up, waves_aside = np.split(one[:, self.of_waves], [len(UPWARD_WAVES)], axis=1)
        if uncertain:
            elevations, azimuths = (one[:, self.of_kind(kind)].sum(axis=1) for kind in CHANNEL_KINDS[1:])
            waves_up = np.column_stack([waves_up, elevations])
            waves_aside = np.column_stack([waves_aside, azimuths])
        lateral = uncertain and self.spread.optical_centre[1] < LATERAL_OFFSET_DEVIATION  # else that allows for it
        orders = orders if uncertain else orders[:, :0]
        return {
            "range_order": RANGE_ORDER_DEVIATION * one[:, self.of_kind("channel_range")] @ orders,
            "firing_order": FIRING_ORDER_DEVIATION * one[:, self.of_kind("channel_azimuth")] @ orders,
            "lateral_offset": LATERAL_OFFSET_DEVIATION * one[:, CENTRE] @ aside[:, : int(lateral)],
            "scan_motion": one[:, self.of_scan_motion] * SCAN_MOTION_DEVIATIONS,
            "wander": one[:, self.of_wander] * wander,
            "upward_waves": WAVE_DEVIATION * waves_up,
            "aside_waves": WAVE_DEVIATION * waves_aside,
        }

    def prior_covariance(self) -> np.ndarray:
        """Return the covariance (n, n) of units as they are made; singular if some parameters do not vary."""
        return sum(root @ root.T for root in self.prior_roots().values())

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Return the parameters (n,) of a unit, drawn from the prior, whose driver corrects the table."""
        drawn = sum(root @ rng.standard_normal(root.shape[1]) for root in self.prior_roots().values())
        drawn[[CENTRE_SHARE, FIRING_SHARE]] = 0.0
        return drawn

    # What the calibration does: from published points to true ones.

    def returns(self, points: np.ndarray, channel: np.ndarray, echo: np.ndarray | None = None) -> Returns:
        """Return published points (N, 3), none at the origin, of channels (N,), decomposed; `echo` (N,) is `weak_echo`
        of their intensities, by default zero."""
        points = np.asarray(points, dtype=float)
        ranges = np.linalg.norm(points, axis=1)
        azimuths = np.arctan2(points[:, 1], points[:, 0])
        echo = np.zeros(len(points)) if echo is None else echo
        return Returns(
            ranges, azimuths, np.arcsin(np.clip(points[:, 2] / ranges, -1.0, 1.0)),
            azimuths - self.azimuth_offsets[channel], channel, echo,
        )  # fmt: skip

    def corrected(self, returns: Returns, cosines: np.ndarray | float, values: np.ndarray) -> np.ndarray:
        """Return the true points (N, 3) of returns at `cosines` (N,) of incidence by a unit with parameters (n,)."""
        return self.corrected_with_origins(returns, cosines, values)[0]

    def corrected_with_origins(
        self, returns: Returns, cosines: np.ndarray | float, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the true points (N, 3), and the optical centres where their rays began (N, 3)."""
        returns, added = self._measured(returns, values)
        distances, origins = self._distances(returns, cosines, values), self._centres(returns.rotor, values, added)
        rays = directions(*self._angles(returns.elevations, returns.azimuths, returns.rotor, returns.channel, values))
        motion, points = values[self.of_scan_motion], rays * distances[:, None] + origins
        if not motion.any():
            return points, origins
        shares = self._shares(returns.rotor)[:, None]
        return tuple(own + shares * (motion[:3] + np.cross(motion[3:], own)) for own in (points, origins))

    def sensitivity(
        self, returns: Returns, cosines: np.ndarray | float, normals: np.ndarray, values: np.ndarray,
        beyond: np.ndarray | float = 0.0, along: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Return the derivatives of `normals . corrected(...)` by the scalars and `OF_SCANS` (N, 40) and, in the order
        of `CHANNEL_KINDS`, by those of the return's channel (N, 3); normals (N, 3) are in the lidar's frame.

        The returns lie `beyond` (N,) m beyond the estimated surface, at which derivatives are taken: at the noisy
        returns they would correlate with the residuals, and bias scale and near range. `along` (N,) is the height that
        points gain by longer ranges, by default the rays' component along the normals."""
        returns, added = self._measured(returns, values)
        distances = self._distances(returns, cosines, values) - beyond
        elevation, azimuth = self._angles(returns.elevations, returns.azimuths, returns.rotor, returns.channel, values)
        rays = directions(elevation, azimuth)
        cos_e, sin_e, cos_a, sin_a = np.cos(elevation), np.sin(elevation), np.cos(azimuth), np.sin(azimuth)
        up = np.stack([-sin_e * cos_a, -sin_e * sin_a, cos_e], axis=1)
        sideward = np.stack([-cos_e * sin_a, cos_e * cos_a, np.zeros_like(cos_e)], axis=1)
        along = np.einsum("ni,ni->n", normals, rays) if along is None else along
        by_elevation, by_azimuth = (distances * np.einsum("ni,ni->n", normals, way) for way in (up, sideward))
        fading = np.exp(-distances / self.spread.near_length)
        by_range = -along / (1.0 + values[SCALE] - values[NEAR] / self.spread.near_length * fading)
        turned_back = turned(-returns.rotor, normals)
        scalars = np.empty((len(returns), len(SCALARS)))
        scalars[:, OFFSET] = by_range
        scalars[:, SCALE] = by_range * distances
        scalars[:, NEAR] = by_range * fading
        scalars[:, INCIDENCE] = by_range * longer_by_incidence(cosines)
        scalars[:, ECHO] = by_range * returns.echo
        wander = wander_shapes(returns.rotor)  # has all waves
        harmonics, upward, aside = (
            wander[:, np.column_stack([2 * numbers - 2, 2 * numbers - 1]).ravel()]
            for numbers in (_HARMONICS, _UPWARD, _ASIDE)
        )
        scalars[:, HARMONICS] = by_azimuth[:, None] * harmonics
        scalars[:, CENTRE] = turned_back
        scalars[:, CENTRE_SHARE] = turned_back @ self.optical_centre
        firing = np.zeros(len(returns)) if self.firing_azimuths is None else self.firing_azimuths[returns.channel]
        scalars[:, FIRING_SHARE] = by_azimuth * firing
        points = rays * distances[:, None] + self._centres(returns.rotor, values, added)
        levers = np.hstack([normals, np.cross(points, normals)])
        of_scans = (
            self._shares(returns.rotor)[:, None] * levers, by_range[:, None] * wander, by_elevation[:, None] * upward,
            by_azimuth[:, None] * aside,
        )  # fmt: skip
        return np.hstack([scalars, *of_scans]), np.stack([by_range, by_elevation, by_azimuth], axis=1)

    # What the simulator does: from true rays to published points.

    def true_rays(self, rotor: np.ndarray, channel: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the origins (N, 3) and unit directions (N, 3), in the lidar's frame, of the rays of channels (N,) at
        rotor azimuths (N,), for a unit with parameters (n,)."""
        elevation, azimuth = self.elevations[channel], rotor + self.azimuth_offsets[channel]
        return self._centres(rotor, values), directions(*self._angles(elevation, azimuth, rotor, channel, values))

    def measured_ranges(
        self, distances: np.ndarray, cosines: np.ndarray, echo: np.ndarray, channel: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """Return the noiseless ranges (N,) of true distances (N,) from the optical centre; `echo` is `weak_echo`."""
        near = values[NEAR] * np.exp(-distances / self.spread.near_length)
        return (
            (1.0 + values[SCALE]) * distances + values[OFFSET] + near + values[INCIDENCE] * longer_by_incidence(cosines)
            + values[ECHO] * echo + values[self.of_kind("channel_range")][channel]
        )  # fmt: skip

    def _distances(self, returns: Returns, cosines: np.ndarray | float, values: np.ndarray) -> np.ndarray:
        error = values[OFFSET] + values[INCIDENCE] * longer_by_incidence(cosines) + values[ECHO] * returns.echo
        error = error + values[self.of_kind("channel_range")][returns.channel]
        if values[self.of_wander].any():
            error = error + wander_shapes(returns.rotor) @ values[self.of_wander]
        distances = (returns.ranges - error) / (1.0 + values[SCALE])
        for _ in range(3):  # the near-range error is a function of the true distance
            # Bounded: an error larger than the range itself would grow without limit.
            near = values[NEAR] * np.exp(np.minimum(-distances / self.spread.near_length, 10.0))
            distances = (returns.ranges - error - near) / (1.0 + values[SCALE])
        return distances

    def _angles(self, elevation, azimuth, rotor, channel, values) -> tuple[np.ndarray, np.ndarray]:
        turn = values[self.of_kind("channel_azimuth")][channel] + waves(rotor, _HARMONICS) @ values[HARMONICS]
        if self.firing_azimuths is not None:
            turn = turn + values[FIRING_SHARE] * self.firing_azimuths[channel]
        elevation = elevation + values[self.of_kind("channel_elevation")][channel]
        if values[self.of_waves].any():
            upward, aside = np.split(values[self.of_waves], [len(UPWARD_WAVES)])
            elevation, turn = elevation + waves(rotor, _UPWARD) @ upward, turn + waves(rotor, _ASIDE) @ aside
        return elevation, azimuth + turn

    def _measured(self, returns: Returns, values: np.ndarray) -> tuple[Returns, float]:
        """Return the returns as measured from the optical centre, and 1 if the driver had added it, else 0."""
        if values[CENTRE_SHARE] >= 0.5 or not np.any(self.optical_centre):
            return returns, 0.0
        points = returns.ranges[:, None] * directions(returns.elevations, returns.azimuths)
        offsets, rotor = returns.azimuths - returns.rotor, returns.rotor
        for _ in range(2):  # the driver adds it where the rotor is, by the direction without it
            own = points - turned(rotor, self.optical_centre)
            azimuths = np.arctan2(own[:, 1], own[:, 0])
            rotor = azimuths - offsets
        ranges = np.maximum(np.linalg.norm(own, axis=1), LEAST_RANGE)
        elevations = np.arcsin(np.clip(own[:, 2] / ranges, -1.0, 1.0))
        return replace(returns, ranges=ranges, azimuths=azimuths, elevations=elevations, rotor=rotor), 1.0

    def _shares(self, rotor: np.ndarray) -> np.ndarray:
        return (rotor - self.scan_begin) / (2.0 * np.pi) % 1.0 - 0.5

    def _centres(self, rotor: np.ndarray, values: np.ndarray, added: float = 0.0) -> np.ndarray:
        return turned(rotor, values[CENTRE] + (added + values[CENTRE_SHARE]) * self.optical_centre)


def scan_begin(azimuths: np.ndarray, channel: np.ndarray) -> float:
    """Return the rotor's azimuth (rad) where a scan begins: that of the first of each channel's returns, whose
    `azimuths` (N,) and channels (N,) are given as published; -pi if they are not in the order of time. Channels that
    see little may see nothing there, and do not count."""
    _, first, counts = np.unique(channel, return_index=True, return_counts=True)
    first = first[counts > SEES_MUCH * counts.max(initial=0)]
    middle = np.angle(np.mean(np.exp(1j * azimuths[first]))) if len(first) else np.pi
    near = np.abs(np.angle(np.exp(1j * (azimuths[first] - middle)))) < NEAR_BEGIN
    return float(middle) if np.mean(near) > IN_ORDER else -np.pi


def weak_echo(intensity: np.ndarray) -> np.ndarray:
    """Return the share (N,) of the weak-echo error of returns of intensity (N,), 0 to 255."""
    return np.exp(-np.asarray(intensity, dtype=float) / 255.0 / WEAK_ECHO)


def directions(elevations: np.ndarray, azimuths: np.ndarray) -> np.ndarray:
    """Return the unit vectors (N, 3) of elevations and azimuths (N,) in rad."""
    cosine = np.cos(elevations)
    return np.stack([cosine * np.cos(azimuths), cosine * np.sin(azimuths), np.sin(elevations)], axis=-1)


def turned(rotor: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Return a vector (3,) that turns with the rotor, or vectors (N, 3), in the lidar's frame (N, 3) at azimuths
    (N,)."""
    x, y, z = vector.T
    cosine, sine = np.cos(rotor), np.sin(rotor)
    return np.stack([cosine * x - sine * y, sine * x + cosine * y, np.broadcast_to(z, rotor.shape)], axis=1)


def wander_shapes(rotor: np.ndarray) -> np.ndarray:
    """Return the values (N, 10) of the harmonics `RANGE_WANDER` at azimuths (N,) of the rotor."""
    return waves(rotor, _WANDER)


def waves(rotor: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return cosine and sine of so many (k,) waves a turn at azimuths (N,) of the rotor (N, 2 k)."""
    turns = rotor[:, None] * numbers
    return np.stack([np.cos(turns), np.sin(turns)], axis=2).reshape(len(rotor), 2 * len(numbers))


def longer_by_incidence(cosines: np.ndarray | float) -> np.ndarray | float:
    """Return how much longer ranges at these cosines are by an incidence error of 1."""
    return 1.0 / np.maximum(cosines, LEAST_COSINE) - 1.0
