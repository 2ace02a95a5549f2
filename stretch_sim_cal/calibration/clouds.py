"""Clouds of the two lidars, reduced as they come: each cloud checked and taken once, then summed per direction.

A still scene gives the same range in a direction in every frame, up to noise along the ray. So the returns of all
frames are summed per cell of directions: bounded memory, however many frames there are. Cutting by direction has an
advantage over cutting space into voxels: noise moves a return along its ray, never out of its cell, so no cell contains
only the near or only the far half of a noisy surface. The cells lie in rows, one per channel: by the clouds' ring if
the sensor's table is known, otherwise by elevation above the plane across the spin axis, in rows so narrow that one
holds one channel of a spinning lidar.

Frames are summed in a few blocks of time, all equally long, so that moving surfaces can be distinguished from still
ones. A return far from the earlier ones of its cell (dust, rain, a passing person) is counted, but not summed.
"""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from stretch_sim_cal.calibration.finding import Finding, when
from stretch_sim_cal.calibration.robust import weighted_quantile
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import lengths
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.sensor.points import are_returns, coordinates, elevations
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit import UNKNOWN_SENSOR, ErrorModel, scan_begin, weak_echo

MIN_RANGE, MAX_RANGE = 0.1, 60.0  # m, of returns that are used
# Channels of the lidars are at least twice as far apart as a row is high.
ROW_HEIGHT = np.deg2rad(0.3)
CELL_WIDTH = np.deg2rad(1.0)
# View k has so many cells more in a turn than view k - 1, but every so manyth view as many as the first one; its row r
# begins k r times the golden ratio of a cell further on.
MORE_CELLS, DIFFERENT_VIEWS, GOLDEN_RATIO = 10, 5, (5.0**0.5 - 1.0) / 2.0
MAX_BLOCKS = 8
# Sums per cell: count, x y z, xx xy xz yy yz zz, share of the weak-echo error, and the number of rejected returns.
_NUM_SUMS = 12
_ECHO, _REJECTED = 10, 11
# Returns whose range differs by more than this are of another surface: so many standard deviations of a range, but at
# least LEAST_JUMP (m), and what a slanting surface may differ within a cell, by the next cells; at most so many m and
# such a share of the range. At least so many neighbours are on one surface.
JUMP, LEAST_JUMP = 8.0, 0.06
MOST_JUMP, MOST_RELATIVE_JUMP = 0.1, 0.05
ON_ONE = 0.25
# A block of time in which more than this share of a cell's returns (and more than one) was rejected is not used: it has
# an edge or a moving object.
MAX_REJECTED = 0.2
# Channels of the same sensor are this near (rad) to its table, beyond a distance (m) at which an optical centre that
# the driver corrects, or does not, moves them by less.
SAME_TABLE, WITHOUT_PARALLAX = np.deg2rad(0.5), 2.0
# Coordinates are whole multiples of a step (m) up to the rounding of 32 bits: the shortest that matters, and how many
# points, and different values, show it.
LEAST_STEP, STEP_ROUNDING, STEP_POINTS, STEP_VALUES = 5e-4, 1e-5, 5000, 100
# So many runs of so many distances from return to return are compared, which rounding changes by less than this (m). If
# more than a share of one lidar's runs are in another's cloud, that contains its returns: of the same time, or of scans
# before or after, less than so many apart.
RUNS, RUN, SAME_STEP, SAME_SHARE, SCANS_APART = 200, 8, 2e-5, 0.2, 3
# So far (rad) in elevation may three quarters of the returns be from the next ones around in their channel: those of
# real lidars are by 0.01 deg, those in clouds of two lidars 1 to 6 cm apart by 0.2 to 1.
ONE_CONE = np.deg2rad(0.2)


def model_of_rows(sensor: Sensor | None, elevations: np.ndarray) -> ErrorModel:
    """Return the error model of a lidar, perhaps of a known kind, whose channels are rows at `elevations` (R,), with
    unknown azimuth offsets and firing times."""
    spread, centre = (UNKNOWN_SENSOR, np.zeros(3)) if sensor is None else (sensor.expected, sensor.optical_centre)
    return ErrorModel(spread, elevations, np.zeros(len(elevations)), centre)


def are_rows(elevations: np.ndarray) -> bool:
    """Return whether elevations (R,) in rad are those of narrow rows of equal height, not of a sensor's channels."""
    number = (elevations + np.pi / 2) / ROW_HEIGHT - 0.5
    return bool(np.all(np.abs(number - np.round(number)) < 1e-6))


class DirectionGrid:
    """Cells of directions in rows of about equal elevation; `elevations` (R,) in rad are the rows'.

    Views with another `number` are divided differently. If the cells of two views were at a constant angle from each
    other, shapes between the cells would look like a rotation about the spin axis (up to 0.015 deg on real trees).
    """

    def __init__(self, elevations: np.ndarray, by_ring: bool, number: int = 0):
        self.elevations, self.by_ring = elevations, by_ring
        of_turn = 2.0 * np.pi / CELL_WIDTH + MORE_CELLS * (number % DIFFERENT_VIEWS)
        cells = np.round(of_turn * np.cos(elevations))
        self._row_cells = np.maximum(cells, 3.0).astype(np.int64)
        self._row_starts = np.concatenate([[0], np.cumsum(self._row_cells)[:-1]])
        self._row_shifts = number * GOLDEN_RATIO * np.arange(len(elevations)) % 1.0
        self.num_cells = int(self._row_cells.sum())

    @classmethod
    def by_elevation(cls, number: int = 0) -> "DirectionGrid":
        """Return the grid for clouds whose channels are not known: narrow rows of equal height."""
        rows = round(np.pi / ROW_HEIGHT)
        return cls((np.arange(rows) + 0.5) * ROW_HEIGHT - np.pi / 2, False, number)

    def cell_of(self, points: np.ndarray, ranges: np.ndarray, ring: np.ndarray | None = None) -> np.ndarray:
        """Return the cell (N,) of points (N, 3) at ranges (N,), none of them zero, and of channels `ring` (N,)."""
        if self.by_ring:
            row = ring
        else:
            elevation = np.arcsin(np.clip(points[:, 2] / ranges, -1.0, 1.0))
            row = np.minimum(((elevation + np.pi / 2) * (1.0 / ROW_HEIGHT)).astype(np.int64), len(self.elevations) - 1)
        turn = np.arctan2(points[:, 1], points[:, 0]) * (0.5 / np.pi) + 0.5
        cells = self._row_cells[row]
        return self._row_starts[row] + (turn * cells + self._row_shifts[row]).astype(np.int64) % cells

    def row_of(self, cell: np.ndarray) -> np.ndarray:
        """Return the row (N,) that cells (N,) lie in."""
        return np.searchsorted(self._row_starts, cell, side="right") - 1


@dataclass(frozen=True)
class Cells:
    """The occupied cells of one lidar, in its own frame.

    `counts` (M,) returns per cell, `points` (M, 3) their mean, `rays` (M, 3) the unit vector to it, `scatter` (M, 3, 3)
    their covariance within the cell, `noise_scatter` (M, 3, 3) that about the means of the blocks of time, which leaves
    `noise_freedom` (M,) degrees of freedom. `block_counts` (M, B) and `block_points` (M, B, 3) hold the same per block
    of time, without the blocks in which the usual surface was covered or absent. `row` (M,) is the cell's row,
    `disturbed` (M,) the share of returns in rejected blocks, `moving` (M,) whether its neighbours in the row are
    disturbed, too: by a moving object, while the jitter of the rays at an edge disturbs single cells. `echo` (M,) is
    the mean share of the weak-echo error (`sensor/unit.py`).
    """

    row: np.ndarray
    counts: np.ndarray
    points: np.ndarray
    rays: np.ndarray
    scatter: np.ndarray
    noise_scatter: np.ndarray
    noise_freedom: np.ndarray
    block_counts: np.ndarray
    block_points: np.ndarray
    disturbed: np.ndarray
    moving: np.ndarray
    echo: np.ndarray


class DirectionCells:
    """Sums the frames of one lidar, by the channels of `sensor` if it is given and the clouds have rings. Returns of
    `deskewed` clouds do not have the elevations of their channels. Views that are compared have different numbers."""

    def __init__(self, sensor: Sensor | None = None, deskewed: bool = False, number: int = 0):
        self._sensor, self._deskewed, self._number = sensor, deskewed, number
        self.grid: DirectionGrid | None = None
        self._blocks: list[np.ndarray] = []
        self._frames_in_last = 0
        self.block_length = 1
        # The usual range (m) of each cell, with which returns are compared, NaN if the cell had none, and how far they
        # may differ.
        self._usual = self._jump = np.zeros(0)
        self._noise = 0.0
        self.num_frames = 0
        # The rotor's azimuth (rad) at which scans begin.
        self._scan_begin = -np.pi
        self._step = 0.0

    @classmethod
    def of_views(
        cls, sensors: Sequence[Sensor | None], first: int = 0, deskewed: bool = False
    ) -> tuple["DirectionCells", ...]:  # fmt: skip
        """Return the empty cells of views by these sensors, numbered from `first` on."""
        return tuple(cls(sensor, deskewed, first + number) for number, sensor in enumerate(sensors))

    def add(self, cloud: "Cloud") -> None:
        """Add the returns of one frame, if there are any; none of them at the origin."""
        if not len(cloud):
            return
        points, ring = cloud.points, cloud.ring
        if self.grid is None:
            by_ring = self._sensor is not None and ring is not None
            self.grid = self._empty_grid(by_ring)
            if by_ring and not self._deskewed:
                _check_table(self._sensor, cloud)
            self._usual = np.full(self.grid.num_cells, np.nan)
        self.num_frames += 1
        if not self._blocks or self._frames_in_last == self.block_length:
            self._open_block()
        self._frames_in_last += 1
        ranges = np.sqrt(np.einsum("ij,ij->i", points, points, dtype=float))
        most = len(self.grid.elevations) - 1
        if self.grid.by_ring and (ring is None or not 0 <= ring.min() <= ring.max() <= most):
            raise InputError(
                f"clouds: {'one has no ring' if ring is None else f'rings go from {ring.min()} to {ring.max()}'}, but "
                f"sensor '{self._sensor.name}' has channels 0 to {most}; give the sensor that recorded them"
            )
        cell = self.grid.cell_of(points, ranges, ring)
        if self.num_frames == 1:
            azimuths = np.arctan2(points[:, 1], points[:, 0])
            self._noise = _noise(self.grid.row_of(cell), azimuths, ranges)
            count = np.bincount(cell, minlength=self.grid.num_cells)
            with np.errstate(invalid="ignore"):
                self._jump = _jumps(np.bincount(cell, ranges, minlength=self.grid.num_cells) / count, self._noise)
            offsets = self._sensor.azimuth_offsets[ring] if self.grid.by_ring else 0.0
            self._scan_begin = scan_begin(azimuths - offsets, self.grid.row_of(cell))
            self._step = coordinate_step(points)
        echo = np.zeros(len(points)) if cloud.intensity is None else weak_echo(cloud.intensity)
        repeats = self._repeats(cell, ranges)
        block = self._blocks[-1]
        if not repeats.all():
            block[_REJECTED] += np.bincount(cell[~repeats], minlength=self.grid.num_cells)
            cell, points, echo = cell[repeats], points[repeats], echo[repeats]
        x, y, z = np.ascontiguousarray(points.T, dtype=float)
        for sums, weights in zip(block, (None, x, y, z, x * x, x * y, x * z, y * y, y * z, z * z, echo), strict=False):
            sums += np.bincount(cell, weights, minlength=self.grid.num_cells)

    def _empty_grid(self, by_ring: bool) -> DirectionGrid:
        if by_ring:
            return DirectionGrid(self._sensor.elevations, True, self._number)
        return DirectionGrid.by_elevation(self._number)

    def _repeats(self, cell: np.ndarray, ranges: np.ndarray) -> np.ndarray:
        """Return a mask (N,) of the returns that repeat the range of their cell; in an empty cell they are compared
        with one of them."""
        usual = self._usual[cell]
        new = np.isnan(usual)
        if new.any():
            self._usual[cell[new]] = ranges[new]
            usual = self._usual[cell]
        return np.abs(ranges - usual) <= np.minimum(self._jump[cell], _most(usual))

    def _open_block(self) -> None:
        if len(self._blocks) == MAX_BLOCKS:
            for first, second in zip(self._blocks[::2], self._blocks[1::2], strict=True):
                first += second
            del self._blocks[1::2]
            self.block_length *= 2
        if self._blocks:
            self._learn(self._blocks[-1])
        self._blocks.append(np.zeros((_NUM_SUMS, self.grid.num_cells)))
        self._frames_in_last = 0

    def _learn(self, block: np.ndarray) -> None:
        """Set the usual ranges to the mean ranges of a finished block; to none if most returns were rejected."""
        seen = np.flatnonzero(block[0] > 0)
        self._usual[seen] = np.linalg.norm(block[1:4, seen], axis=0) / block[0, seen]
        self._usual[block[_REJECTED] > block[0]] = np.nan
        self._jump = _jumps(self._usual, self._noise)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the sums as arrays by name, for a file."""
        occupied = np.flatnonzero(np.any([block.any(axis=0) for block in self._blocks], axis=0))
        return {
            "elevations": self.grid.elevations, "by_ring": np.array(self.grid.by_ring), "occupied": occupied,
            "sums": np.stack([block[:, occupied] for block in self._blocks]), "num_frames": np.array(self.num_frames),
            "scan_begin": np.array(self._scan_begin), "number": np.array(self._number),
            "step": np.array(self._step),
        }  # fmt: skip

    @classmethod
    def of_arrays(cls, data: Mapping[str, np.ndarray], prefix: str, sensor: Sensor | None) -> "DirectionCells":
        """Return the sums of the arrays whose names begin with `prefix`; no frames are to be added to them. Raises
        `InputError` if they are another sensor's."""
        arrays = {name.removeprefix(prefix): data[name] for name in data if name.startswith(prefix)}
        cells, by_ring = cls(sensor, number=int(arrays.get("number", 0))), bool(arrays["by_ring"])
        if by_ring and (sensor is None or not np.array_equal(sensor.elevations, arrays["elevations"])):
            raise InputError(f"recorded by other lidars than '{sensor.name if sensor else 'unknown'}'")
        cells.grid = cells._empty_grid(by_ring)
        cells._blocks = [np.zeros((_NUM_SUMS, cells.grid.num_cells)) for _ in arrays["sums"]]
        for block, sums in zip(cells._blocks, arrays["sums"], strict=True):
            block[:, arrays["occupied"]] = sums
        cells.num_frames, cells._scan_begin = int(arrays["num_frames"]), float(arrays.get("scan_begin", -np.pi))
        cells._step = float(arrays.get("step", 0.0))
        return cells

    @property
    def rows(self) -> np.ndarray:
        """The rows of cells that hold anything, ascending."""
        return np.unique(self.grid.row_of(np.flatnonzero(sum(block[0] for block in self._blocks))))

    def model(self, rows: np.ndarray | None = None) -> tuple[ErrorModel, np.ndarray]:
        """Return the error model of the lidar and the channel (R,) of each row of cells; without rings a channel is one
        of `rows`, by default those that hold anything."""
        if self.grid is None:  # a silent lidar
            return model_of_rows(None, np.zeros(1)), np.zeros(1, dtype=int)
        of_scans = {"scan_begin": self._scan_begin, "step": self._step}
        if self.grid.by_ring:
            model = replace(self._sensor.error_model(), **of_scans)
            return model, np.arange(len(self.grid.elevations))
        rows, channel = self.rows if rows is None else rows, np.full(len(self.grid.elevations), -1)
        channel[rows] = np.arange(len(rows))
        model = model_of_rows(self._sensor, self.grid.elevations[rows])
        return replace(model, **of_scans), channel

    def cells(self) -> Cells:
        """Return the occupied cells.

        A block whose mean range is not the cell's usual one is of another surface, and one with many rejected returns
        is of several: they are rejected as a whole.
        """
        if self.grid is None:
            self.grid = DirectionGrid(np.zeros(1), by_ring=False)
            self._usual = np.full(self.grid.num_cells, np.nan)
        blocks = self._blocks or [np.zeros((_NUM_SUMS, self.grid.num_cells))]
        occupied = np.flatnonzero(np.any([_trusted(block) for block in blocks], axis=0))
        moments = np.stack([block[:, occupied] for block in blocks], axis=-1)
        trusted = _trusted(moments)
        counts = np.where(trusted, moments[0], 0.0)
        block_points = np.moveaxis(moments[1:4] / np.maximum(moments[0], 1.0), 0, -1)
        ranges = np.where(counts > 0, lengths(block_points), np.nan)
        usual = weighted_quantile(np.nan_to_num(ranges), counts, 0.5)
        foreign = np.abs(np.nan_to_num(ranges) - usual[:, None]) > _most(usual)[:, None]
        kept = np.where(foreign | ~trusted, 0.0, moments[:_REJECTED])
        total = kept.sum(axis=-1)
        mean = (total[1:4] / total[0]).T
        scatter = _matrices(total[4:_ECHO]) / total[0][:, None, None] - mean[:, :, None] * mean[:, None, :]
        safe_counts = np.maximum(kept[0], 1.0)
        between = np.moveaxis(kept[1:4] / safe_counts, 1, 0) @ np.moveaxis(kept[1:4], 0, -1)
        freedom = total[0] - (kept[0] > 0).sum(axis=1)
        within = (_matrices(total[4:_ECHO]) - between) / np.maximum(freedom, 1.0)[:, None, None]
        disturbed = 1.0 - total[0] / (moments[0] + np.where(trusted, 0.0, moments[_REJECTED])).sum(axis=1)
        row = self.grid.row_of(occupied)
        return Cells(
            row=row, counts=total[0], points=mean,
            rays=mean / np.linalg.norm(mean, axis=1, keepdims=True), scatter=scatter,
            noise_scatter=within, noise_freedom=freedom, block_counts=kept[0], block_points=block_points,
            disturbed=disturbed, moving=_three_wide(disturbed > 0, occupied, row), echo=total[_ECHO] / total[0],
        )  # fmt: skip


def coordinate_step(points: np.ndarray) -> float:
    """Return the length (m) of which all coordinates of `points` (N, 3) are whole multiples; 0 if there is none of
    `LEAST_STEP` or more."""
    values = np.unique(np.abs(points[:: max(1, len(points) // STEP_POINTS)]).ravel().astype(float))
    apart = np.diff(values)
    apart = apart[apart > STEP_ROUNDING]
    if len(apart) < STEP_VALUES or apart.min() < LEAST_STEP:
        return 0.0
    # The longest of them, in so many steps, is the best measure.
    step = apart.min()
    for length in (apart.max(), values[-1]):
        step = length / max(np.round(length / step), 1.0)
    return float(step) if np.abs(values - step * np.round(values / step)).max() < STEP_ROUNDING else 0.0


def _noise(row: np.ndarray, azimuths: np.ndarray, ranges: np.ndarray) -> float:
    """Return about the standard deviation (m) of a range, by the small differences along rows: the first ones, since
    even among laths so many neighbours are on one surface, or the second ones, which do not depend on its slope."""
    order = np.lexsort((azimuths, row))
    row, ranges, least = row[order], ranges[order], np.inf
    for number, variance in ((1, 2.0), (2, 6.0)):  # of differences, over that of a range
        steps = np.abs(np.diff(ranges, number))[row[number:] == row[:-number]]
        if len(steps):
            least = min(least, float(np.quantile(steps, ON_ONE)) / variance**0.5)
    return least / float(ndtri(0.5 + ON_ONE / 2.0)) if np.isfinite(least) else 0.0


def _most(usual: np.ndarray) -> np.ndarray:
    """Return by how much (m) ranges differ at most of usual ones (C,), however noisy they are and surfaces slant."""
    return MOST_JUMP + MOST_RELATIVE_JUMP * usual


def _jumps(usual: np.ndarray, noise: float) -> np.ndarray:
    """Return by how much (m) ranges in cells (C,) of usual ranges (C,), NaN if unknown, differ at most: on a surface
    that slants the ranges of four cells in a row rise, or fall, by as much each."""
    steps = np.diff(np.pad(usual, 3, constant_values=np.nan))
    least = np.minimum(np.minimum(steps[:-2], steps[1:-1]), steps[2:])
    most = np.maximum(np.maximum(steps[:-2], steps[1:-1]), steps[2:])
    slopes = np.nan_to_num(np.maximum(least, -most)).clip(0.0)
    slopes = np.maximum(slopes[:-1], slopes[1:])  # of one surface on either side
    return max(LEAST_JUMP, JUMP * noise) + np.maximum(slopes[:-2], slopes[2:])


def _three_wide(chosen: np.ndarray, cell: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return a mask (M,) of the `chosen` cells, ascending in `cell` (M,), in three chosen neighbours of one `row`."""
    middle = np.zeros(len(chosen), dtype=bool)
    next_to = (np.diff(cell) == 1) & (np.diff(row) == 0)
    middle[1:-1] = chosen[1:-1] & chosen[:-2] & chosen[2:] & next_to[:-1] & next_to[1:]
    wide = middle.copy()
    wide[:-1] |= middle[1:]
    wide[1:] |= middle[:-1]
    return wide


def _trusted(moments: np.ndarray) -> np.ndarray:
    """Return a mask of the cells of blocks (`_NUM_SUMS`, ...) that have returns, and few rejected ones."""
    return (moments[0] > 0) & (moments[_REJECTED] <= np.maximum(MAX_REJECTED * moments[0], 1.0))


def _check_table(sensor: Sensor, cloud: "Cloud") -> None:
    """Raise `InputError` unless the channels of a cloud have the elevations of a sensor."""
    ranges = np.linalg.norm(cloud.points, axis=1)
    known = (ranges > WITHOUT_PARALLAX) & (cloud.ring < sensor.num_channels)
    if not known.any():
        return
    points, ring = cloud.points[known].astype(float), cloud.ring[known]

    def apart(points: np.ndarray) -> float:
        return float(np.median(np.abs(elevations(points) - sensor.elevations[ring])))

    off = apart(points)
    if off > SAME_TABLE and np.any(sensor.optical_centre):  # a driver that corrects it moves near points by degrees
        off = min(off, apart(sensor.without_optical_centre(points, ring)))
    if off > SAME_TABLE:
        raise InputError(
            f"clouds: their channels are {np.degrees(off):.1f} deg (median) from the elevations of sensor "
            f"'{sensor.name}'; give the sensor that recorded them, or unknown"
        )


def _matrices(sums: np.ndarray) -> np.ndarray:
    """Return symmetric matrices (M, 3, 3) from their entries (6, M): xx xy xz yy yz zz."""
    return np.moveaxis(sums[[0, 1, 2, 1, 3, 4, 2, 4, 5]], 0, -1).reshape(-1, 3, 3)


def _common_runs(steps: np.ndarray, others: np.ndarray) -> float:
    """Return the share of the runs in the distances `others` (M,) from each return to the next that are in `steps` (N,)
    as well: a rigid motion does not change them, and by noise no two are equal."""
    last = len(steps) - RUN
    if last < 0 or len(others) < RUN:
        return 0.0
    begins = np.unique(np.linspace(0, len(others) - RUN, RUNS).astype(int))
    runs = others[begins[:, None] + np.arange(RUN)]
    # Runs on surfaces without noise are equal everywhere.
    runs = runs[np.ptp(runs, axis=1) > 0.001]
    runs = runs[np.argsort(runs[:, 0])]
    low, high = (np.searchsorted(runs[:, 0], steps[: last + 1] + sign * SAME_STEP) for sign in (-1.0, 1.0))
    begin = np.repeat(np.arange(last + 1), high - low)
    number = np.arange(len(begin)) - np.repeat(np.cumsum(high - low) - high, high - low)
    for step in range(1, RUN):
        same = np.abs(steps[begin + step] - runs[number, step]) < SAME_STEP
        begin, number = begin[same], number[same]
    return len(np.unique(number)) / max(len(runs), 1)


def _off_cone(cloud: "Cloud") -> float:
    """Return how far (rad) in elevation three quarters of the returns are at most from the next ones around in their
    channel; 0 without channels."""
    if cloud.ring is None or len(np.unique(cloud.ring)) < 2:
        return 0.0
    far = np.flatnonzero(lengths(cloud.points) > WITHOUT_PARALLAX)
    points, ring = cloud.points[far].astype(float), cloud.ring[far]
    around = np.lexsort((np.arctan2(points[:, 1], points[:, 0]), ring))
    apart = np.abs(np.diff(elevations(points)[around]))[np.diff(ring[around]) == 0]
    return float(np.quantile(apart, 0.75)) if len(apart) else 0.0


class FrameIntake:
    """Checks and cleans the clouds of lidars one by one and counts the rejected ones, by reason."""

    def __init__(self, names: Sequence[str] = SIDES):
        self._names = names
        self._seen: set[tuple[int, bytes]] = set()
        self.num_given = 0
        self.num_frames = 0
        self.empty = [0] * len(names)
        self.repeated = [0] * len(names)
        self._steps: list[list[np.ndarray]] = []

    def admit(self, *clouds: np.ndarray) -> tuple["Cloud", ...]:
        """Return the usable returns of one cloud of each lidar, in its own frame; any may be empty.

        Raises `InputError` if an argument is not an (N, 3) array of numbers, or holds another one's returns.
        """
        self.num_given += 1
        usable = tuple(self._usable(cloud, number) for number, cloud in enumerate(clouds))
        self.num_frames += any(len(cloud) for cloud in usable)
        if len(self._steps) < SCANS_APART and all(len(cloud) for cloud in usable):
            self._check_apart(usable)
            if len(self._steps) == 1:
                self._check_channels(usable)
        return usable

    def add_to(self, cells: Sequence["DirectionCells"], clouds: Sequence[np.ndarray]) -> None:
        """Add the usable returns of one cloud of each lidar to its cells. Raises `InputError` as `admit`, and naming
        the lidar if the cells are of another sensor's channels."""
        for name, own, cloud in zip(self._names, cells, self.admit(*clouds), strict=True):
            try:
                own.add(cloud)
            except InputError as problem:
                raise InputError(f"{name} lidar's {problem}") from problem

    def _check_apart(self, clouds: Sequence["Cloud"]) -> None:
        """Raise `InputError` if a cloud contains another lidar's returns: posed by the description, they would confirm
        it. A copy may have been paired with the next scan of the lidar that it is of."""
        steps = [lengths(np.diff(cloud.points.astype(float), axis=0)) for cloud in clouds]
        self._steps.append(steps)
        first = self._steps[0]
        for one, other in itertools.permutations(range(len(clouds)), 2):
            share = _common_runs(first[one], steps[other])
            if steps is not first:
                share = max(share, _common_runs(steps[one], first[other]))
            if share > SAME_SHARE:
                raise InputError(
                    f"clouds: {100.0 * share:.0f} % of the {self._names[other]} lidar's returns are in the "
                    f"{self._names[one]} lidar's clouds, too: one topic is a copy of the other, or has the returns "
                    "of several lidars; give each lidar the topic of its own driver"
                )

    def _check_channels(self, clouds: Sequence["Cloud"]) -> None:
        """Raise `InputError` if the returns of a cloud's channels are at no one elevation."""
        for name, cloud in zip(self._names, clouds, strict=True):
            if (off := _off_cone(cloud)) > ONE_CONE:
                raise InputError(
                    f"clouds: neighbouring returns of one channel of the {name} lidar are {np.degrees(off):.1f} deg "
                    "apart in elevation: its topic has the returns of several lidars, or is not in the frame in which "
                    "the lidar turns about z; give each lidar the topic of its own driver"
                )

    def shares(self, other: "FrameIntake") -> bool:
        """Return whether a cloud was given to both."""
        return not self._seen.isdisjoint(other._seen)

    def warnings(self) -> list[Finding]:
        """Return findings for all rejected clouds."""
        warnings = []
        for name, repeated, empty in zip(self._names, self.repeated, self.empty, strict=True):
            sentence = f"{repeated} {name} clouds repeat an earlier one and were counted once"
            warnings += when(bool(repeated), "repeated_clouds", sentence)
            sentence = f"{empty} {name} clouds have no usable return and were skipped"
            warnings += when(bool(empty), "empty_clouds", sentence)
        return warnings

    def _usable(self, array: np.ndarray, side: int) -> "Cloud":
        cloud = cloud_of(array, self._names[side])
        points = cloud.points
        digest = side, hashlib.sha1(np.ascontiguousarray(points), usedforsecurity=False).digest()
        with np.errstate(invalid="ignore", over="ignore"):
            squared_ranges = np.einsum("ij,ij->i", points, points)
            # The square of a component that is NaN or infinite passes neither comparison.
            usable = (squared_ranges >= MIN_RANGE**2) & (squared_ranges <= MAX_RANGE**2)
        cloud = cloud if usable.all() else cloud.only(usable)
        if not len(cloud):
            self.empty[side] += 1
        elif digest in self._seen:
            self.repeated[side] += 1
            cloud = cloud.only(slice(0))
        else:
            self._seen.add(digest)
        return cloud


@dataclass(frozen=True)
class Cloud:
    """Returns of one scan: `points` (N, 3) in the lidar's frame, and the channel `ring` (N,) and `intensity` (N,), 0 to
    255, of each, if they are known."""

    points: np.ndarray
    ring: np.ndarray | None = None
    intensity: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.points)

    def only(self, chosen) -> "Cloud":
        """Return the returns of a mask or slice."""
        return Cloud(*(None if values is None else values[chosen] for values in vars(self).values()))


def cloud_of(array: np.ndarray, name: str) -> Cloud:
    """Return points (N, 3), returns (N, 5) of x, y, z, ring, intensity, or a structured array (N,) with fields x, y, z
    and perhaps ring and intensity, as a cloud. Of points and structured arrays misses, and second returns that repeat
    the first bit by bit, are left out: they are no measurements of their own.

    Raises `InputError` naming it for anything else.
    """
    names = getattr(getattr(array, "dtype", None), "names", None)
    if names is None and isinstance(array, np.ndarray) and array.ndim == 2 and array.shape[1] == 5:
        points, (ring, intensity) = checked_points(array[:, :3], name), array[:, 3:].T
    elif names is None:
        points = checked_points(array, name)
        with np.errstate(over="ignore"):
            return Cloud(points).only(are_returns(points.astype(np.float32, copy=False)))
    else:
        missing = [field for field in "xyz" if field not in names]
        if missing or array.ndim != 1:
            raise InputError(f"{name} cloud: expected a structured array (N,) with fields x, y, z, not {array.dtype}")
        points = coordinates(array)
        kept = np.flatnonzero(are_returns(points))
        points = points.take(kept, axis=0)
        ring, intensity = (array[field].take(kept) if field in names else None for field in ("ring", "intensity"))
    if ring is not None:
        ring = np.nan_to_num(ring, nan=-1.0).astype(np.int64)
    if intensity is not None:  # as of messages, where only the odd one may be none
        intensity = np.where(np.isfinite(intensity), np.maximum(intensity, 0), 0)
    return Cloud(points.astype(float), ring, intensity)


def given_clouds(method: object, *clouds: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return clouds (N, 3 or more columns, or structured) as a method's `add` takes them: with ring and intensity if it
    has `takes_fields`, else points (N, 3)."""
    if getattr(method, "takes_fields", False):
        return clouds
    return tuple(cloud[:, :3] if cloud.dtype.names is None else coordinates(cloud) for cloud in clouds)


def checked_points(cloud: np.ndarray, name: str) -> np.ndarray:
    """Return `cloud` unchanged if it is an (N, 3) array of real numbers; raises `InputError` naming it otherwise."""
    try:
        cloud = np.asarray(cloud)
    except ValueError as problem:
        raise InputError(f"{name} cloud: is not an array: {problem}") from problem
    real = np.issubdtype(cloud.dtype, np.floating) or np.issubdtype(cloud.dtype, np.integer)
    if cloud.ndim != 2 or cloud.shape[1] != 3 or not real:
        raise InputError(f"{name} cloud: expected an (N, 3) array of numbers, not {cloud.dtype} {cloud.shape}")
    # Integers (millimetres, say) would overflow when squared; other byte orders are slow.
    return cloud.astype(cloud.dtype.newbyteorder("=") if cloud.dtype.kind == "f" else float, copy=False)
