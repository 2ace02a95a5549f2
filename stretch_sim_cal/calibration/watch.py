"""Drift monitor: a sequential test of a stored calibration by measurements that are taken while the robot stands.

A measurement repeats lidar to lidar, the floor, and each lidar against the robot's own surfaces. Each of these *blocks*
has a residual against the stored calibration with its covariance, and is tested along a set of directions for a shift
of a given size by Page's cumulative sum of log-likelihood ratios (CUSUM, Biometrika 41, 1954).

Measurements at one station share its effect (surfaces that are not flat, glass, a floor that slopes). It is normal,
with a standard deviation that is estimated from the scatter between stations and is at least a prior one. Until enough
stations are known, the prior counts as one station with `FIRST` times its standard deviation, and the largest effect,
which may be a change, is excluded. The evidence of a station is that of the mean of its last measurements, and bounded
however long the robot stands there. The evidence of several stations is summed:

    S = max(0, S of the stations before) + max_k  d / (V_k + R_k) * (m_k - e_k - d / 2)

with the shift `d`, the mean `m_k` of the station's measurements since the k-th along a direction, its variance `R_k`,
and the station's effect by the measurements before the k-th, `e_k` with variance `V_k`; without any, 0 with the
variance `G` of stations. So a change while the robot stands is detected within a few measurements. As the effect may
change a little (somebody moves a chair), V_k is at least WANDER^2 G. Without a change the exponential of each summand
has an expectation of at most 1: the threshold ln(directions * measurements a month * WINDOW) gives less than about one
false alarm a month.

The error of the stored calibration is estimated by the median of the first stations, within bounds, and subtracted. A
single arm pose determines a lidar's pose on the robot only up to the errors of the robot's model, so the first
measurements of an arm pose are the baseline of the later ones. The error of the baseline is common to all of them: it
is added to the station's effect, and stations are not summed. `History` keeps all measurements, and all changes that
were noticed, in a small SQLite file.
"""

import contextlib
import json
import math
import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.calibration_file import alignment_called, default_path
from stretch_sim_cal.calibration.consistency import NUM_DIRECTIONS, direction_of
from stretch_sim_cal.calibration.mounts.residuals import LidarRays, PosedSample, posed
from stretch_sim_cal.calibration.mounts.robot import MountedRobot
from stretch_sim_cal.calibration.robust import robust_equations
from stretch_sim_cal.calibration.verification import Reestimate
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import UP, floor_between
from stretch_sim_cal.geometry.points import group_medians
from stretch_sim_cal.geometry.transforms import SIDES, inverse, log

WINDOW = 10  # measurements within which a change is to be detected, and any of which may be its first
WANDER = 0.5  # of a station's standard deviation: how much its effect changes while the robot stands there
MONTH = 30 * 86400.0  # s
LENGTH, ANGLE = 5e-3, math.radians(0.2)  # m, rad: the shifts that are tested for
# m, rad: prior standard deviations of a station's effect, twice those of generated rooms with realistic lidars
# (benchmarks/watch.py), since real rooms have larger ones.
STATION_LENGTH, STATION_ANGLE = 7e-4, math.radians(0.02)
STATIONS_NEEDED = 6  # differences between stations, for a quantile of them
DIFFERENCES_NEEDED = 20  # between measurements, likewise
FIRST = 1.5  # times the prior standard deviation: the effect of a station before any is known
REMEMBERED = 200  # stations
MEDIAN, QUARTILES = 0.4549, {1: 1.3233, 2: math.log(4.0), 3: 1.3695}  # of chi-squared over its degrees of freedom
OFFSET_STATIONS = 20  # whose median is the error of the stored calibration
OVER = 0.5  # of the threshold, below which a change is over
CAP = 2.0  # thresholds, the bound of a sum: a temporary change is over after about as many stations as it lasted
BASELINE_LOOKS = 20  # measurements with one arm pose

HOLDS, CHANGED = "holds", "changed"
RECALIBRATE = "check whether a lidar or its bracket is loose, then calibrate again (ros_calibrate_robot)"
FLOOR_AGAIN = (
    "check whether all wheels are on the floor; if they are, calibrate again (ros_calibrate_robot --from floor)"
)
PARTS = (("translation", slice(0, 3)), ("rotation", slice(3, 6)))


@dataclass(frozen=True)
class Block:
    """Some `columns` of one vector of a measurement, lengths (m) or angles (rad), that are tested for a `shift`.
    `station` is the prior standard deviation of a station's effect; `remedy` is what to do after a change. `on_robot`:
    whether it is a lidar against its returns from the robot."""

    name: str
    vector: str
    columns: slice
    angular: bool
    remedy: str
    on_robot: bool = False

    @property
    def directions(self) -> np.ndarray:
        """Unit vectors (M, columns) both ways along axes and diagonals; none is more than 28 deg from the next."""
        size = self.columns.stop - self.columns.start
        vectors = np.array([v for v in product((-1, 0, 1), repeat=size) if any(v)], dtype=float)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    @property
    def shift(self) -> float:
        return ANGLE if self.angular else LENGTH

    @property
    def station(self) -> float:
        return STATION_ANGLE if self.angular else STATION_LENGTH

    def say(self, value: float) -> str:
        """Return a length or an angle with its unit."""
        return f"{math.degrees(value):.2f} deg" if self.angular else f"{1e3 * value:.1f} mm"


def blocks(lidars: Sequence[str] = SIDES) -> list[Block]:
    """Return all blocks of a robot with these lidars, by name, the left one first."""
    poses = [(alignment_called(name), between(name), False) for name in lidars[1:]]
    poses += [(f"{name} lidar on the robot", name, True) for name in lidars]
    of_poses = [
        Block(f"{name}, {part}", vector, columns, part == "rotation", RECALIBRATE, on_robot)
        for name, vector, on_robot in poses for part, columns in PARTS
    ]  # fmt: skip
    height = Block("floor, height", "floor", slice(0, 1), False, FLOOR_AGAIN)
    return [*of_poses[:2], height, Block("floor, tilt", "floor", slice(1, 3), True, FLOOR_AGAIN), *of_poses[2:]]


def between(name: str) -> str:
    """Return the name of the vector of a lidar against the left one."""
    return "lidars" if name == "right" else f"lidars {name}"


Vectors = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By name residuals (n,) and their covariances (n, n)."""


@dataclass(frozen=True)
class Measurement:
    """The `vectors` measured at `stamp` (s), at the station of that number. `lidars` is the twist in the left lidar's
    frame; `floor` height, tilt about x, about y; `left` and `right` the twist about the lidar's origin, in base_link's
    axes, from its stored pose to the one by its returns from the robot. Each lidar beyond two has `lidars NAME` and
    `NAME`. `arm` names the arm pose, `refused` are the reasons why vectors are missing."""

    stamp: float
    station: int
    vectors: Vectors
    arm: str = ""
    refused: tuple[str, ...] = ()


def vectors_of(verified: Reestimate) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the residuals of a verification against the stored calibration."""
    vectors = {}
    for name, aligned in verified.aligned.items():
        twist = log(aligned.right_to_left @ inverse(verified.file.to_left[name]))
        vectors[between(name)] = (twist, aligned.covariance)
    if verified.floor is not None:
        before, now = verified.file.floor_plane.facing(UP), verified.floor.plane.facing(UP)
        vectors["floor"] = (floor_between(before, now), verified.floor.covariance)
    return vectors


GATE = 0.03  # m along the ray: farther returns are not of the model
GRAZING = 0.3  # cosine of incidence, below which a range depends little on the surface's place
POSE_PRIOR = np.repeat([0.02, math.radians(2.0)], 3)  # m, rad: of the pose by the returns about the stored one
LEAST_NOISE = 1e-3  # m, of returns about a model
STEPS, ENOUGH = 5, 100  # Gauss-Newton steps, returns


def pose_twist(
    model: PosedSample, base_from_lidar: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the twist (6,) about the lidar's origin that explains its returns (N, 3) from the robot best, with the
    model's errors, which are the same for one arm pose, and its covariance (6, 6); None for too few returns."""
    matches = model.match(LidarRays(points), base_from_lidar, GATE, GRAZING)
    if len(matches.distances) < ENOUGH:
        return None
    (jacobian, distances), prior, twist = matches.rows(base_from_lidar[:3, 3]), np.diag(POSE_PRIOR**-2), np.zeros(6)
    for _ in range(STEPS):
        information, gradient, _ = robust_equations(jacobian, distances + jacobian @ twist, LEAST_NOISE)
        twist = twist + np.linalg.solve(information + prior, gradient - prior @ twist)
    return twist, np.linalg.inv(information + prior)


def pose_vectors(
    robot: MountedRobot, positions: Mapping[str, float], poses: Mapping[str, np.ndarray],
    clouds: Mapping[str, np.ndarray],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:  # fmt: skip
    """Return by lidar the `pose_twist` of its returns (N, 3), with the robot's joints at `positions` (m, rad, by the
    description's names) and the lidars' stored `poses` (4, 4) in base_link."""
    (model,) = posed([robot.sample("measurement", positions, clouds)], robot.surfaces)
    twists = {name: pose_twist(model, poses[name], model.around(name, poses[name])) for name in clouds}
    return {name: twist for name, twist in twists.items() if twist is not None}


SAME_WITHIN, SAME_SHARE, FEWEST = 0.05, 0.8, 200  # m, of the directions, and how many of them are needed


class Panorama:
    """The median range of a lidar by direction, to recognise a station."""

    def __init__(self, points: np.ndarray):
        ranges = np.linalg.norm(points, axis=1)
        points, ranges = points[ranges > 0], ranges[ranges > 0]
        cells, group, counts = np.unique(direction_of(points), return_inverse=True, return_counts=True)
        self._ranges = np.full(NUM_DIRECTIONS, np.nan)
        self._ranges[cells] = group_medians(group, counts, ranges)

    @property
    def wide(self) -> bool:
        return np.isfinite(self._ranges).sum() >= FEWEST

    def same(self, other: "Panorama") -> bool:
        """Return whether most directions have the same range; a person who walks by changes few."""
        both = np.isfinite(self._ranges) & np.isfinite(other._ranges)
        if both.sum() < FEWEST:
            return False
        apart = np.abs(self._ranges[both] - other._ranges[both])
        return bool(np.mean(apart < SAME_WITHIN * np.maximum(1.0, self._ranges[both])) > SAME_SHARE)


COUNT, NEXT, VARIANCE, RESIDUAL = 0, 1, 2, slice(3, None)  # columns of the sums


class _StationSums:
    """The measurements (n,) of one block at one station, along directions (M, n): their sums (M, 3 + n) up to each of
    the last ones, and up to the likeliest change by direction, `kept`. Columns are count, stamp of the next
    measurement, variance along the direction, residuals."""

    def __init__(self, number: int, directions: np.ndarray):
        self.number, self._directions = number, directions
        self._sums = deque([np.zeros((len(directions), 3 + directions.shape[1]))], maxlen=WINDOW + 1)
        self.kept: np.ndarray | None = None
        self._traces: deque[float] = deque(maxlen=WINDOW)

    def add(self, stamp: float, residual: np.ndarray, covariance: np.ndarray) -> None:
        """Add a residual (n,) with its covariance (n, n)."""
        sums = self._sums[-1].copy()
        self._sums[-1][:, NEXT] = stamp
        sums[:, COUNT] += 1
        sums[:, VARIANCE] += np.einsum("di,ij,dj->d", self._directions, covariance, self._directions)
        sums[:, RESIDUAL] += residual
        self._sums.append(sums)
        self._traces.append(float(np.trace(covariance)) / len(residual))
        self.last = residual, covariance

    def candidates(self) -> np.ndarray:
        """Return the sums (C, M, 3 + n) before each possible change."""
        return np.stack([*list(self._sums)[:-1], *([] if self.kept is None else [self.kept])])

    def since(self, before: np.ndarray) -> np.ndarray:
        """Return the sums without those of `before`."""
        return self._sums[-1] - before

    def along(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the means along the directions (..., M) and their variances, infinite for a count of 0."""
        counts = sums[..., COUNT]
        some = np.maximum(counts, 1.0)
        means = (sums[..., RESIDUAL] * self._directions).sum(axis=-1) / some
        return means, np.where(counts > 0, sums[..., VARIANCE] / some**2, np.inf)

    @property
    def mean(self) -> np.ndarray:
        """Of the last measurements, (n,)."""
        sums = self.since(self._sums[0])[0]
        return sums[RESIDUAL] / sums[COUNT]

    @property
    def variance(self) -> float:
        """Of `mean`, averaged over its components."""
        return sum(self._traces) / len(self._traces) ** 2


@dataclass(frozen=True)
class BlockState:
    """The state of a block: its `verdict`, the residual's `value` (m or rad) with its standard deviation, the time of
    the change (s), and the shift that would be detected within `WINDOW` measurements."""

    block: Block
    verdict: str
    value: float
    deviation: float
    since: float | None
    noticeable: float

    def sentence(self) -> str:
        """Return the state as one line."""
        value, deviation, noticeable = map(self.block.say, (self.value, self.deviation, self.noticeable))
        off = f"{value} from the stored calibration, standard deviation {deviation}"
        if self.verdict == CHANGED:
            return f"{self.block.name} has changed: {off}; {self.block.remedy}"
        return f"{self.block.name}: {off}; a change of {noticeable} would be detected within {WINDOW} checks"


class BlockTest:
    """The sequential test of one block."""

    def __init__(self, block: Block, threshold: float):
        self.block, self.threshold = block, threshold
        self.directions = block.directions
        count = len(self.directions)
        self._before = np.zeros(count)  # sums of the stations before, by direction
        self._began: list[float | None] = [None] * count  # when each of them left zero
        self.station: _StationSums | None = None
        self._last: _StationSums | None = None
        self._steps: deque[float] = deque(maxlen=REMEMBERED)  # squared, between stations, minus what noise explains
        self._within: deque[float] = deque(maxlen=REMEMBERED)  # squared, between measurements, over the expected
        self._first: list[np.ndarray] = []  # means of the first stations
        self._few: list[float] = []  # their mean squares, until `STATIONS_NEEDED` steps are known
        self._offset = np.zeros(self.directions.shape[1])
        self._sums = self._before.copy()
        self.changed = False
        self._common = np.zeros(count)
        self._scale, self.station_variance = 1.0, self._scatter_between_stations()

    def add(
        self, stamp: float, station: int, residual: np.ndarray, covariance: np.ndarray, common: np.ndarray | None = None
    ) -> None:
        """Add a measurement's residual (n,) and covariance (n, n) of this block's columns; `common` (n, n) is the
        covariance of an error that all measurements share."""
        if common is not None:
            self._common = np.einsum("di,ij,dj->d", self.directions, common, self.directions) + self.station_variance
        if self.station is not None and self.station.number != station:
            self._leave(self.station)
        if self.station is None:
            self.station = _StationSums(station, self.directions)
        else:
            last, of_last = self.station.last
            self._within.extend((residual - last) ** 2 / np.diag(covariance + of_last))
            if len(self._within) >= DIFFERENCES_NEEDED:
                self._scale = max(1.0, float(np.median(self._within)) / MEDIAN)
        self.station.add(stamp, residual, covariance)
        ratios, self.station.kept, _ = self._evidence(self.station)
        self._sums = np.minimum(self._before + ratios, CAP * self.threshold)
        # A change is not revoked by a few measurements of weaker evidence.
        self.changed = self._sums.max() >= (OVER * self.threshold if self.changed else self.threshold)

    def _leave(self, station: _StationSums) -> None:
        """Add up the evidence of a station, and update the stations' scatter and the stored calibration's error."""
        sums, mean = self._sums, station.mean
        for index, (value, began) in enumerate(zip(sums, self._evidence(station)[1][:, NEXT], strict=True)):
            if value <= 0.0:
                self._began[index] = None
            elif self._began[index] is None:
                self._began[index] = float(began)
        if len(self._few) <= STATIONS_NEEDED:
            self._few.append(float(mean @ mean) / len(mean))
        if self._last is not None:
            step = mean - self._last.mean
            explained = self._scale * (station.variance + self._last.variance)
            self._steps.append(float(step @ step) / len(step) / 2.0 / QUARTILES[len(step)] - explained / 2.0)
        self.station_variance = self._scatter_between_stations()
        if not self.block.on_robot:
            self._before = np.maximum(sums, 0.0)
            if len(self._first) < OFFSET_STATIONS and sums.max() < OVER * self.threshold:
                self._first.append(mean)
                if len(self._first) >= STATIONS_NEEDED:
                    bound = 2.0 * self.block.station  # prior standard deviations of a station's effect: its bound
                    self._offset = np.clip(np.median(self._first, axis=0), -bound, bound)
        self._last, self.station = station, None

    def _evidence(self, station: _StationSums) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return by direction the station's log-likelihood ratio (M,), the sums before its likeliest change, and the
        variance (M,) of the mean since then."""
        before, alike = station.candidates(), self.station_variance + self._common
        offset, shift = self.directions @ self._offset, self.block.shift
        means, variances = station.along(station.since(before))
        earlier, of_earlier = station.along(before)
        known = alike / (alike + self._scale * of_earlier)  # 0 without earlier measurements, 1 with many
        effect = known * (earlier - offset)
        total = np.maximum(1.0 - known, WANDER**2) * alike + self._scale * variances
        ratios = shift / total * (means - offset - effect - shift / 2.0)
        best = ratios.argmax(axis=0), np.arange(len(alike))
        return ratios[best], before[best], total[best]

    def _scatter_between_stations(self) -> float:
        """Return the variance of a station's effect, at least the prior one."""
        prior = self.block.station**2
        if len(self._steps) < STATIONS_NEEDED:
            known = [FIRST**2 * prior, *(sorted(self._few)[:-1] if len(self._few) > 1 else self._few)]
            return max(prior, sum(known) / len(known))
        # The upper quartile contains the long tail of stations, but not a shift, which is one large step among many.
        return max(prior, float(np.quantile(self._steps, 0.75)))

    def state(self) -> BlockState:
        """Return the state after at least one measurement."""
        worst, station = int(np.argmax(self._sums)), self.station
        _, before, variances = self._evidence(station)
        later = station.since(before)[worst]
        value = float(np.linalg.norm(later[RESIDUAL] / later[COUNT] if self.changed else station.mean))
        since = self._began[worst] or float(before[worst, NEXT]) if self.changed else None
        covariance, shift = station.last[1], self.block.shift
        total = self.station_variance + self._common[worst]
        total += self._scale * float(np.trace(covariance)) / len(covariance) / WINDOW
        # The shift s for which WINDOW measurements give the threshold h: d / V (s - d / 2) = h, in the direction that
        # is farthest from a tested one.
        noticeable = (self.threshold * total / shift + shift / 2.0) / math.cos(math.radians(28.0))
        verdict = CHANGED if self.changed else HOLDS
        return BlockState(self.block, verdict, value, math.sqrt(variances[worst]), since, noticeable)


class DriftMonitor:
    """The tests of all blocks of one stored calibration. `period` (s) is the time between measurements, for the rate of
    false alarms of one a month; `lidars` are their names, the left one's first."""

    def __init__(self, period: float, lidars: Sequence[str] = SIDES):
        tested = blocks(lidars)
        count = sum(len(block.directions) for block in tested)
        threshold = math.log(count * WINDOW * max(MONTH / period, 1.0))
        self.tests = {block.name: BlockTest(block, threshold) for block in tested}
        self._on_robot = {block.vector for block in tested if block.on_robot}
        self._baselines: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}

    def add(self, measurement: Measurement) -> None:
        """Add a measurement. Blocks without data in it stay as they are."""
        for name, (residual, covariance) in measurement.vectors.items():
            common = None
            if name in self._on_robot:
                baseline = self._baselines.setdefault((name, measurement.arm), [])
                if len(baseline) < BASELINE_LOOKS:
                    baseline.append((residual, covariance))
                    continue
                residual = residual - np.mean([mean for mean, _ in baseline], axis=0)
                common = np.sum([known for _, known in baseline], axis=0) / len(baseline) ** 2
            for test in self.tests.values():
                if test.block.vector == name:
                    part = test.block.columns
                    shared = None if common is None else common[part, part]
                    test.add(measurement.stamp, measurement.station, residual[part], covariance[part, part], shared)

    def states(self) -> list[BlockState]:
        """Return the states of all blocks with data so far."""
        return [test.state() for test in self.tests.values() if test.station is not None]

    @property
    def changed(self) -> list[BlockState]:
        return [test.state() for test in self.tests.values() if test.changed]


def moved_lidar(states: Sequence[BlockState]) -> str:
    """Return which lidar has moved, by its returns from the robot or by which others still agree; "" if unknown."""
    changed = [state.block for state in states if state.verdict == CHANGED]
    pairs = {state.block.vector for state in states if not state.block.on_robot and state.block.vector != "floor"}
    apart = pairs & {block.vector for block in changed}
    moved = list(dict.fromkeys(block.vector for block in changed if block.on_robot)) if apart else []
    if len(pairs) > 1 and not moved:
        if len(apart) == 1:
            moved = [apart.pop().removeprefix("lidars").strip() or "right"]
        elif apart == pairs:
            moved = ["left"]  # all others agree with each other, or as many have moved
    if len(moved) > 1:
        return "both lidars have moved" if len(pairs) == 1 else f"lidars {' and '.join(moved)} have moved"
    return f"the {moved[0]} lidar has moved" if moved else ""


FILE_NAME = "calibration_watch.sqlite"
KEPT = 400 * 86400.0  # s: a year, with a margin. A measurement takes 2 kB
TABLES = """
CREATE TABLE IF NOT EXISTS looks (
    stamp REAL NOT NULL, calibration TEXT NOT NULL, place INTEGER NOT NULL, arm TEXT NOT NULL, refused TEXT NOT NULL,
    vectors TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS changes (
    stamp REAL NOT NULL, calibration TEXT NOT NULL, block TEXT NOT NULL, since REAL, value REAL NOT NULL,
    deviation REAL NOT NULL, sentence TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS looks_by_stamp ON looks (stamp);
"""


@dataclass(frozen=True)
class NoticedChange:
    """A change that was noticed at `stamp` (s), its time, size (m or rad) and standard deviation."""

    stamp: float
    calibration: str
    block: str
    since: float | None
    value: float
    deviation: float
    sentence: str


def default_history() -> Path:
    """Return the path of a robot's history, beside its calibration file."""
    return default_path().with_name(FILE_NAME)


class History:
    """The file; `calibration` in its rows is the digest of the measurement's calibration file."""

    def __init__(self, path: Path, must_exist: bool = False):
        if must_exist and not path.is_file():
            raise InputError(f"{path}: there is no history yet; run ros_watch_calibration")
        self.path = path
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=10.0)
            # A reader never stops the monitor, and no row is truncated.
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.executescript(TABLES)

    def close(self) -> None:
        self._database.close()

    def add(self, measured: Measurement, calibration: str) -> None:
        """Write a measurement, and delete those older than `KEPT`."""
        vectors = json.dumps({name: [part.tolist() for part in parts] for name, parts in measured.vectors.items()})
        refused = json.dumps(measured.refused)
        row = (measured.stamp, calibration, measured.station, measured.arm, refused, vectors)
        with self._errors(), self._database:
            self._database.execute("INSERT INTO looks VALUES (?, ?, ?, ?, ?, ?)", row)
            self._database.execute("DELETE FROM looks WHERE stamp < ?", (measured.stamp - KEPT,))

    def note(self, change: NoticedChange) -> None:
        with self._errors(), self._database:
            self._database.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?)", tuple(vars(change).values()))

    def measurements(self, since: float = 0.0, calibration: str | None = None) -> list[tuple[str, Measurement]]:
        """Return the measurements from a time (s) on, oldest first, with their calibrations; of one `calibration` if
        given."""
        query = "SELECT * FROM looks WHERE stamp >= ? AND (? IS NULL OR calibration = ?) ORDER BY stamp"
        with self._errors():
            rows = self._database.execute(query, (since, calibration, calibration)).fetchall()
        measurements = []
        for stamp, of_calibration, station, arm, refused, texts in rows:
            vectors = {name: tuple(map(np.array, parts)) for name, parts in json.loads(texts).items()}
            measured = Measurement(stamp, station, vectors, arm, tuple(json.loads(refused)))
            measurements.append((of_calibration, measured))
        return measurements

    def changes(self, since: float = 0.0) -> list[NoticedChange]:
        """Return the changes from a time (s) on, oldest first."""
        with self._errors():
            rows = self._database.execute("SELECT * FROM changes WHERE stamp >= ? ORDER BY stamp", (since,)).fetchall()
        return [NoticedChange(*row) for row in rows]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise InputError(f"{self.path}: {error}; move the file away to start a new history") from error
