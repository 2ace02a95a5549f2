"""Identification of a robot's two lidars: the error parameters of both units and their range noise, by recordings at
stations in a furnished room.

The estimate is that of the alignment (`problem.py`, `room.py`) over all recordings: the units and the lidars' pose to
each other are common, planes are of one recording. If the robot turns in place between recordings, other channels see
each wall, at other azimuths.

    parameters   posterior of the units under the sensor file's priors; a parameter whose standard deviation stays above
                 `NOT_DETERMINED` of its prior's is not determined
    noise        variance of a single range about the room's planes, by range, incidence and echo strength
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import nnls
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.alignment.joint_estimate import estimate_jointly
from stretch_sim_cal.calibration.clouds import CELL_WIDTH, Cloud, DirectionCells, FrameIntake
from stretch_sim_cal.calibration.coarse import coarse_alignment
from stretch_sim_cal.calibration.consistency import Views, seen_by_another
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.findings import movement, overlap_refusals, wrong_minimum
from stretch_sim_cal.calibration.motion import motion_of
from stretch_sim_cal.calibration.patches import fit_planes, joined, remeasured
from stretch_sim_cal.calibration.problem import State, Unknowns
from stretch_sim_cal.calibration.robust import tukey_fit
from stretch_sim_cal.calibration.room import RoomBlock, remeasured_block
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.solver import Solver
from stretch_sim_cal.calibration.surfaces import Lidar, in_base
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import SIDES, exp
from stretch_sim_cal.sensor.points import coordinates, returns_of
from stretch_sim_cal.sensor.sensor import NoiseGrowth, Sensor
from stretch_sim_cal.sensor.signature import Signature
from stretch_sim_cal.sensor.unit import CENTRE_SHARE, CHANNEL_KINDS, LEAST_COSINE, SCALARS, ErrorModel, weak_echo
from stretch_sim_cal.sensor.unit_file import CHANNEL_KEYS, KEY_OF_SCALAR, Unit, shown_unit, write_unit

# A parameter is not determined if its standard deviation stays above this share of its prior's.
NOT_DETERMINED = 0.7
# Two parameters are reported to trade off against each other from this correlation on.
TRADE_OFF = 0.9
# Single returns that are kept for the noise law, per scan of a lidar.
KEPT_RETURNS = 8000
MIN_FRAMES = 5
# Returns farther than so many standard deviations from their plane are of another surface.
TRIM = 4.0
FARTHEST = 0.15  # m
MIN_RETURNS = 1000
# The noise of weak echoes is estimated if so many returns have at least this share of it.
WEAK, MIN_WEAK = 0.5, 500
NOISE_STEPS = 15
BEFORE_STEPS = 4


class StationScans:
    """The returns of both lidars at one station, reduced scan by scan. `signatures` name the table that each driver
    uses, and whether it corrects the optical centre, which is undone."""

    def __init__(self, signatures: tuple[Signature, Signature], settings: AlignmentSettings | None = None):
        for name, signature in zip(SIDES, signatures, strict=True):
            if signature.sensor is None:
                raise InputError(f"{name} lidar: no known table fits its points; give its sensor file")
        self.signatures, self.settings = signatures, settings or AlignmentSettings()
        self.intake = FrameIntake()
        self.cells = tuple(DirectionCells(signature.sensor) for signature in signatures)
        self._kept: tuple[list[Cloud], list[Cloud]] = ([], [])

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Add one scan of each lidar as published, structured arrays (N,) with x, y, z, ring and perhaps intensity."""
        scans = [self._as_measured(scan, side) for side, scan in enumerate((left, right))]
        for side, cloud in enumerate(self.intake.admit(*scans)):
            if len(cloud):
                self.cells[side].add(cloud)
                self._kept[side].append(cloud.only(slice(None, None, len(cloud) // KEPT_RETURNS + 1)))

    def returns(self, side: int) -> Cloud:
        """Return the single returns of a lidar that were kept."""
        clouds = self._kept[side]
        parts = zip(*((cloud.points, cloud.ring, cloud.intensity) for cloud in clouds), strict=True)
        return Cloud(*(None if part[0] is None else np.concatenate(part) for part in parts))

    def _as_measured(self, scan: np.ndarray, side: int) -> np.ndarray:
        """Return a scan's returns without the driver's correction."""
        signature, scan = self.signatures[side], returns_of(scan)
        if signature.distance_correction:
            points = signature.sensor.without_optical_centre(coordinates(scan).astype(float), scan["ring"])
            scan = scan.copy()
            scan["x"], scan["y"], scan["z"] = points.T
        return scan


@dataclass(frozen=True)
class NoiseLaw:
    """Standard deviation of a single range: `constant` (m) and its `growth` in quadrature, with the standard
    `deviations` of constant, range, incidence and echo: infinite for a value of the sensor file."""

    constant: float
    growth: NoiseGrowth
    deviations: tuple[float, float, float, float]

    def variances(self, residuals: "RangeResiduals", quantisation: float, beam_divergence: float) -> np.ndarray:
        """Return the expected variances (N,) of residuals, including quantisation (m) and the beam's width (rad)."""
        sizes = [self.constant, self.growth.range, self.growth.incidence, self.growth.echo]
        return _noise_terms(residuals) @ np.square(sizes) + _other_variances(residuals, quantisation, beam_divergence)


@dataclass(frozen=True)
class RangeResiduals:
    """Single returns against the room's planes: range residuals (N,) in m `before` the unit's errors are subtracted
    (with the best alignment without them) and `after`; and the quantities they may depend on, (N,) each."""

    before: np.ndarray
    after: np.ndarray
    ranges: np.ndarray
    cosines: np.ndarray
    channel: np.ndarray
    azimuth: np.ndarray
    intensity: np.ndarray


@dataclass(frozen=True)
class Identification:
    """The result: `units`, `models`, `noise` and `residuals` by side; `left_from_right` (4, 4) with its `covariance`
    (6, 6); the `signatures` of the first recording's points; `trade_offs` as sentences; the `names` of the lidars."""

    units: tuple[Unit, Unit]
    models: tuple[ErrorModel, ErrorModel]
    noise: tuple[NoiseLaw, NoiseLaw]
    residuals: tuple[RangeResiduals, RangeResiduals]
    left_from_right: np.ndarray
    covariance: np.ndarray
    signatures: tuple[Signature, Signature]
    trade_offs: list[str]
    names: tuple[str, str] = SIDES

    def save(self, path: str | Path, side: int) -> None:
        """Write a lidar's unit file, for the simulator. Raises `InputError`."""
        signature, noise = self.signatures[side], self.noise[side]
        sensor = signature.sensor
        growth = {name: getattr(noise.growth, name) for name in ("range", "incidence", "echo")}
        keys = signature.keys() | sensor.own_tables()
        keys |= {"range_noise": noise.constant, "range_noise_growth": growth}
        write_unit(path, sensor.kind, self.models[side], self.units[side], **keys)

    def determined(self, side: int) -> np.ndarray:
        return _determined(self.models[side], self.units[side].standard_deviations)


def identify(stations: Sequence[StationScans], initial: np.ndarray | None) -> Identification:
    """Return the errors of both lidars by recordings, from an initial right_to_left (4, 4), or none. Raises
    `InputError` for too few frames or the same ones in two recordings, `Refused` if the robot moved or the overlap is
    too small."""
    rooms, seen = [], []
    for number, station in enumerate(stations, start=1):
        frames = [cells.num_frames for cells in station.cells]
        if min(frames) < MIN_FRAMES:
            short = f"{min(frames)} scans of the {SIDES[int(np.argmin(frames))]} lidar"
            raise InputError(f"recording {number}: {short}, at least {MIN_FRAMES} are needed")
        for earlier, other in enumerate(stations[: number - 1], start=1):
            if station.intake.shares(other.intake):
                raise InputError(f"recording {number}: has clouds of recording {earlier}; give each recording once")
        lidars = tuple(map(Lidar.of_cells, station.cells))
        seen.append(lidars)
        initial = coarse_alignment(*(lidar.surface for lidar in lidars), initial, station.settings)
        rooms.append(seen_by_another(lidars, (np.eye(4), initial), ((0, 1),), station.settings)[1])
    unknowns = Unknowns(tuple(lidar.model for lidar in rooms[0]))
    solver, first = Solver.starting(unknowns, (np.eye(4), initial))
    estimate = estimate_jointly(rooms, first, solver)
    state, solution = estimate.state, estimate.solution
    blocks = [
        remeasured_block(room, state, replace(block, elements=None))
        for room, block in zip(rooms, estimate.blocks, strict=True)
    ]
    for number, (lidars, block) in enumerate(zip(seen, blocks, strict=True), start=1):
        if why := _refusals(lidars, block):
            raise Refused(f"recording {number}: {'; '.join(why)}")
    scale = max(block.scale for block in blocks)
    covariance = solution.covariance * scale**2
    units = tuple(
        _unit(unknowns.models[side], state.units[side], covariance[unit, unit], stations[0].signatures[side])
        for side, unit in enumerate(unknowns.units)
    )
    uncorrected, signatures = map(_uncorrected_alignment, rooms, blocks), stations[0].signatures
    each_place = list(zip(stations, rooms, blocks, uncorrected, strict=True))
    residuals, noise = [], []
    for side, signature in enumerate(signatures):
        parts = [_residuals(station.returns(side), *of_place, side) for station, *of_place in each_place]
        residuals.append(joined(RangeResiduals, parts))
        noise.append(noise_law(residuals[-1], signature.quantisation, signature.sensor))
    return Identification(
        units, unknowns.models, tuple(noise), tuple(residuals), state.left_from_right,
        unknowns.of_free_poses(covariance), signatures, _trade_offs(unknowns, covariance),
    )  # fmt: skip


def _refusals(lidars: tuple[Lidar, Lidar], last: RoomBlock) -> list[Finding]:
    motion = motion_of(last.surface, last.flat, last.noise)
    corrected = (lidar.corrected(values) for lidar, values in zip(lidars, last.state.units, strict=True))
    views = Views(*corrected).under(last.state.left_from_right)
    moving = float(np.mean(np.concatenate([lidar.surface.moving for lidar in lidars])))
    return movement(motion, moving, last.num_used) + wrong_minimum(views) or overlap_refusals(views, last.num_used)


def _determined(model: ErrorModel, deviations: np.ndarray) -> np.ndarray:
    prior = np.sqrt(np.diag(model.prior_covariance()))
    return (prior > 0) & (deviations <= NOT_DETERMINED * prior)


def _unit(model: ErrorModel, values: np.ndarray, covariance: np.ndarray, signature: Signature) -> Unit:
    """Return a unit for its file, with the driver's correction."""
    values, deviations = values.copy(), np.sqrt(np.maximum(np.diag(covariance), 0.0))
    if signature.distance_correction:
        values[CENTRE_SHARE] -= 1.0  # the driver's correction was undone
    prior = np.diag(model.prior_covariance())
    loose = (prior > 0) & ~_determined(model, deviations)
    keys = [key for key, index in KEY_OF_SCALAR.items() if loose[index]]
    for kind, key in CHANNEL_KEYS.items():
        channels = np.flatnonzero(loose[model.of_kind(kind)])
        keys += [key] if len(channels) == model.num_channels else [f"{key}[{channel}]" for channel in channels]
    return Unit(values, deviations, tuple(keys))


def _trade_offs(unknowns: Unknowns, covariance: np.ndarray) -> list[str]:
    """Return a sentence for each pair of parameters of which a combination is determined much better than either."""
    rows, names = [], []
    for side, model, unit in zip(SIDES, unknowns.models, unknowns.units, strict=True):
        every = np.eye(model.size)
        parts = {scalar: every[index] for index, scalar in enumerate(SCALARS)}
        parts |= {f"mean {kind}": every[model.of_kind(kind)].sum(axis=0) / model.num_channels for kind in CHANNEL_KINDS}
        for name, part in parts.items():
            rows.append(np.zeros(unknowns.size))
            rows[-1][unit] = part
            names.append((name, side))
    rows = np.array(rows)
    joint = rows @ covariance @ rows.T
    deviations = np.sqrt(np.maximum(np.diag(joint), 0.0))
    sentences = []
    for first, second in itertools.combinations(range(len(names)), 2):
        (one, side), (other, other_side) = names[first], names[second]
        both = deviations[first] * deviations[second]
        if both < 1e-18 or abs(correlation := joint[first, second] / both) < TRADE_OFF:
            continue
        if one == other:
            unit, size = shown_unit(one.removeprefix("mean "))
            apart = rows[first] - rows[second]
            known = f"+-{size * np.sqrt(apart @ covariance @ apart):.2g} {unit}"
            each = f"+-{size * deviations[first]:.2g} {unit}"
            sentences.append(f"{one}: {each} for each lidar, but {known} for left minus right")
        elif side == other_side:
            sentences.append(f"{one} and {other} of the {side} lidar trade off (correlation {correlation:+.2f})")
    return sentences


def _residuals(
    cloud: Cloud, lidars: tuple[Lidar, Lidar], last: RoomBlock, uncorrected: State, side: int
) -> RangeResiduals:  # fmt: skip
    """Return the residuals of single returns of a lidar from the planes of their cells, before and after correction of
    the lidars' errors, without which the state is `uncorrected`."""
    lidar, state = lidars[side], last.state
    first = side * len(lidars[0].surface.points)
    members = last.members.each_cell_once()
    members = members.only(last.surface.side[members.cell] == side)
    points = np.asarray(cloud.points, dtype=float)
    ranges = np.linalg.norm(points, axis=1)
    tree = cKDTree(lidar.surface.rays[members.cell - first])
    apart, nearest = tree.query(points / ranges[:, None], distance_upper_bound=CELL_WIDTH)
    near = np.flatnonzero(np.isfinite(apart))
    patch, points, ranges = members.patch[nearest[near]], points[near], ranges[near]
    channel = cloud.ring[near].astype(np.int64)
    intensity = np.full(len(near), np.nan) if cloud.intensity is None else cloud.intensity[near].astype(float)
    echo = np.zeros(len(near)) if cloud.intensity is None else weak_echo(intensity)
    returns = lidar.model.returns(points, channel, echo)
    cosines = members.cosines[nearest[near]]
    residuals = []
    for estimate in (uncorrected, state):
        surface = in_base(lidars, estimate)
        again = remeasured(surface, last.flat[0], last.members)
        fits = fit_planes(again, last.variances, len(last.flat[0].centres))
        true, origins = lidar.model.corrected_with_origins(returns, cosines, estimate.units[side])
        pose = estimate.base_from_lidar[side]
        true, origins = true @ pose[:3, :3].T + pose[:3, 3], origins @ pose[:3, :3].T + pose[:3, 3]
        residual, cosines = _beyond(true, origins, last.flat[0], fits.coefficients, patch)
        residuals.append(residual)
    before, after = residuals
    kept = (np.abs(after) < FARTHEST) & (cosines > LEAST_COSINE)
    values = before, after, ranges, cosines, channel, np.mod(returns.rotor, 2 * np.pi), intensity
    return RangeResiduals(*(each[kept] for each in values))


def _beyond(points, origins, patches, coefficients, patch) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances (N,) of points beyond their patches' planes along the rays, and the cosines of incidence."""
    rays = points - origins
    rays /= np.linalg.norm(rays, axis=1)[:, None]
    normals, axes = patches.normals[patch], patches.axes[patch]
    level, slopes = coefficients[patch, 0], coefficients[patch, 1:]
    steep = normals - np.einsum("na,nai->ni", slopes, axes)  # normal . x - level - slopes . axes x = 0
    cosines = -np.einsum("ni,ni->n", steep, rays)
    heights = np.einsum("ni,ni->n", steep, points - patches.centres[patch]) - level
    cosines = np.where(np.abs(cosines) > 1e-3, cosines, 1e-3)
    return -heights / cosines, np.clip(cosines, 1e-3, 1.0)


def _uncorrected_alignment(lidars: tuple[Lidar, Lidar], last: RoomBlock) -> State:
    """Return the best alignment on the same patches with all errors of the units 0."""
    state = replace(last.state, units=tuple(np.zeros_like(values) for values in last.state.units))
    for _ in range(BEFORE_STEPS):
        block = remeasured_block(lidars, state, last)
        twist = tukey_fit(block.gaps.jacobian, block.gaps.values, block.gaps.variances + 0.01**2).twist
        left, right = state.base_from_lidar
        state = replace(state, base_from_lidar=(left, exp(twist) @ right))
    remeasured_block(lidars, last.state, last)  # the cosines of incidence as they were
    return state


def _noise_terms(residuals: RangeResiduals) -> np.ndarray:
    """Return the factors (N, 4) of the squares of constant, range, incidence and echo in the variances."""
    echo = np.zeros(len(residuals.after)) if np.isnan(residuals.intensity).any() else weak_echo(residuals.intensity)
    slanted = 1.0 / np.maximum(residuals.cosines, LEAST_COSINE) - 1.0
    return np.column_stack([np.ones(len(echo)), residuals.ranges**2, slanted**2, echo**2])


def _other_variances(residuals: RangeResiduals, quantisation: float, beam_divergence: float) -> np.ndarray:
    """Return the variances (N,) by quantisation and the beam's width: light from the beam's edge, a quarter of its
    width off in one standard deviation, has any share of the return."""
    slope = np.sqrt(np.maximum(1.0 / np.maximum(residuals.cosines, LEAST_COSINE) ** 2 - 1.0, 0.0))
    return quantisation**2 / 12.0 + (residuals.ranges * slope * beam_divergence / 4.0) ** 2 / 3.0


def noise_law(residuals: RangeResiduals, quantisation: float, sensor: Sensor) -> NoiseLaw:
    """Return the noise of a single range by residuals, without the parts of quantisation (m) and of the sensor's beam.
    Each squared residual is an estimate of the variance at its range, incidence and echo (iteratively reweighted, not
    negative). Without enough weak echoes, their part is the sensor file's. Raises `InputError` for few returns."""
    terms, values = _noise_terms(residuals), residuals.after
    if len(values) < MIN_RETURNS:
        raise InputError(
            f"{len(values)} returns from flat surfaces that both lidars see, at least {MIN_RETURNS} are needed; move "
            "the robot to where walls and furniture are within a few metres of both lidars"
        )
    known = _other_variances(residuals, quantisation, sensor.beam_divergence)
    free = np.array([True, True, True, np.count_nonzero(terms[:, 3] > WEAK**2) >= MIN_WEAK])
    if not free[3]:
        known = known + terms[:, 3] * sensor.noise_growth.echo**2
    variances = np.full(len(values), np.median(values**2) / 0.455)
    floor = 0.01 * variances[0]
    for _ in range(NOISE_STEPS):
        kept = np.abs(values) < TRIM * np.sqrt(variances)
        weighted = terms[kept][:, free] / variances[kept, None]
        solved, _ = nnls(weighted, (values[kept] ** 2 - known[kept]) / variances[kept])
        variances = np.maximum(terms[:, free] @ solved + known, floor)
    stds = np.sqrt(np.diag(np.linalg.pinv(weighted.T @ weighted)) * 2.0)
    sizes, deviations = np.array([0.0, 0.0, 0.0, sensor.noise_growth.echo]), np.full(4, np.inf)
    sizes[free] = np.sqrt(solved)
    # A term that is 0 may be as large as one standard deviation of its variance.
    deviations[free] = np.where(solved > stds, stds / np.maximum(2.0 * sizes[free], 1e-12), np.sqrt(stds))
    return NoiseLaw(float(sizes[0]), NoiseGrowth(*map(float, sizes[1:])), tuple(map(float, deviations)))
