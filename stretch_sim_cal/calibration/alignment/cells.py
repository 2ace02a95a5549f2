"""What one lidar sees, reduced to moments per direction: bounded memory, however many frames there are.

A still scene gives the same range in a direction in every frame, up to noise along the ray. So the returns of all
frames are summed per cell of directions. Cutting by direction has an advantage over cutting space into voxels: noise
moves a return along its ray, never out of its cell, so no cell holds only the near or only the far half of a noisy
surface. The cells lie in rows of equal elevation above the plane across the spin axis, so narrow that a row holds one
channel of a spinning lidar, and its range bias can be told from the others'.

Frames are summed in a few blocks of time, all equally long, so that what moved can be told from what stood still. A
return far from what its cell held before (dust, rain, someone who walks through) is counted, but not summed.
"""

from dataclasses import dataclass

import numpy as np

# Channels of the lidars are at least twice as far apart as a row is high.
ROW_HEIGHT = np.deg2rad(0.3)
CELL_WIDTH = np.deg2rad(1.0)
NUM_ROWS = round(np.pi / ROW_HEIGHT)
_ROW_ELEVATIONS = (np.arange(NUM_ROWS) + 0.5) * ROW_HEIGHT - np.pi / 2
_ROW_CELLS = np.maximum(np.round(2.0 * np.pi * np.cos(_ROW_ELEVATIONS) / CELL_WIDTH), 3.0).astype(np.int64)
_ROW_STARTS = np.concatenate([[0], np.cumsum(_ROW_CELLS)[:-1]])
NUM_CELLS = int(_ROW_CELLS.sum())
MAX_BLOCKS = 8
# Sums per cell: count, x y z, xx xy xz yy yz zz, and how many returns were left out.
_NUM_SUMS = 11
_LEFT_OUT = 10
# Returns whose range differs by more than this (m, and share of the range) are of something else. It has to exceed what
# noise and a slanting surface do within a cell; slanting surfaces far away spread more than near ones.
JUMP = 0.1
RELATIVE_JUMP = 0.05
# A block of time in which more than this share of a cell's returns (and more than one) was left out is not believed: the
# edge of something, or something that moves.
MAX_LEFT_OUT = 0.2


def cell_of(points: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Return the cell (N,) of points (N, 3) at ranges (N,), none of them zero."""
    elevation = np.arcsin(np.clip(points[:, 2] / ranges, -1.0, 1.0))
    row = np.minimum(((elevation + np.pi / 2) * (1.0 / ROW_HEIGHT)).astype(np.int64), NUM_ROWS - 1)
    turn = np.arctan2(points[:, 1], points[:, 0]) * (0.5 / np.pi) + 0.5
    cells = _ROW_CELLS[row]
    return _ROW_STARTS[row] + np.minimum((turn * cells).astype(np.int64), cells - 1)


def row_of(cell: np.ndarray) -> np.ndarray:
    """Return the row (N,) that cells (N,) lie in."""
    return np.searchsorted(_ROW_STARTS, cell, side="right") - 1


@dataclass(frozen=True)
class Cells:
    """The occupied cells of one lidar, in its own frame.

    `counts` (M,) returns per cell, `points` (M, 3) their mean, `directions` (M, 3) the unit vector to it, `scatter`
    (M, 3, 3) their covariance within the cell, `noise_scatter` (M, 3, 3) that about the means of the blocks of time, which
    leaves `noise_freedom` (M,) degrees of freedom. `block_counts` (M, B) and `block_points` (M, B, 3) hold the same per
    block of time, without the blocks in which something stood before (or moved away from) what is usually there.
    `cell` (M,) is the cell's number, `disturbed` (M,) the share of returns in blocks that were left out.
    """

    cell: np.ndarray
    counts: np.ndarray
    points: np.ndarray
    directions: np.ndarray
    scatter: np.ndarray
    noise_scatter: np.ndarray
    noise_freedom: np.ndarray
    block_counts: np.ndarray
    block_points: np.ndarray
    disturbed: np.ndarray


class DirectionCells:
    """Sums the frames of one lidar."""

    def __init__(self):
        self._blocks: list[np.ndarray] = []
        self._frames_in_last = 0
        self._block_length = 1
        # The range (m) that returns of each cell are held against, not a number where nothing was seen yet.
        self._usual = np.full(NUM_CELLS, np.nan)
        self.num_frames = 0

    def add(self, points: np.ndarray) -> None:
        """Add the returns (N, 3) of one frame; none of them at the origin."""
        self.num_frames += 1
        if not self._blocks or self._frames_in_last == self._block_length:
            self._open_block()
        self._frames_in_last += 1
        ranges = np.sqrt(np.einsum("ij,ij->i", points, points, dtype=float))
        cell = cell_of(points, ranges)
        repeats = self._repeats(cell, ranges)
        block = self._blocks[-1]
        if not repeats.all():
            block[_LEFT_OUT] += np.bincount(cell[~repeats], minlength=NUM_CELLS)
            cell, points = cell[repeats], points[repeats]
        x, y, z = np.ascontiguousarray(points.T, dtype=float)
        block[0] += np.bincount(cell, minlength=NUM_CELLS)
        for row, weights in enumerate((x, y, z, x * x, x * y, x * z, y * y, y * z, z * z), start=1):
            block[row] += np.bincount(cell, weights=weights, minlength=NUM_CELLS)

    def _repeats(self, cell: np.ndarray, ranges: np.ndarray) -> np.ndarray:
        """Return which returns (N,) are of what their cell held before; in a cell that was empty one of them tells."""
        usual = self._usual[cell]
        new = np.isnan(usual)
        if new.any():
            self._usual[cell[new]] = ranges[new]
            usual = self._usual[cell]
        return np.abs(ranges - usual) <= JUMP + RELATIVE_JUMP * usual

    def _open_block(self) -> None:
        if len(self._blocks) == MAX_BLOCKS:
            self._blocks = [first + second for first, second in zip(self._blocks[::2], self._blocks[1::2], strict=True)]
            self._block_length *= 2
        if self._blocks:
            self._learn(self._blocks[-1])
        self._blocks.append(np.zeros((_NUM_SUMS, NUM_CELLS)))
        self._frames_in_last = 0

    def _learn(self, block: np.ndarray) -> None:
        """Take the mean range of a finished block (11, NUM_CELLS) as the usual one; where most was left out, none."""
        seen = block[0] > 0
        self._usual[seen] = np.linalg.norm(block[1:4, seen], axis=0) / block[0, seen]
        self._usual[block[_LEFT_OUT] > block[0]] = np.nan

    def cells(self) -> Cells:
        """Return the occupied cells.

        A block whose mean range is not the cell's usual one saw something else, and one of which much was left out saw
        several things: they are left out as a whole.
        """
        moments = np.stack(self._blocks, axis=-1)
        trusted = (moments[0] > 0) & (moments[_LEFT_OUT] <= np.maximum(MAX_LEFT_OUT * moments[0], 1.0))
        occupied = np.flatnonzero(trusted.any(axis=1))
        moments, trusted = moments[:, occupied], trusted[occupied]
        counts = np.where(trusted, moments[0], 0.0)
        block_points = np.moveaxis(moments[1:4] / np.maximum(moments[0], 1.0), 0, -1)
        ranges = np.where(counts > 0, np.linalg.norm(block_points, axis=-1), np.nan)
        usual = weighted_median(np.nan_to_num(ranges), counts)
        foreign = np.abs(np.nan_to_num(ranges) - usual[:, None]) > JUMP + RELATIVE_JUMP * usual[:, None]
        kept = np.where(foreign | ~trusted, 0.0, moments[:_LEFT_OUT])
        total = kept.sum(axis=-1)
        mean = (total[1:4] / total[0]).T
        scatter = _matrices(total[4:]) / total[0][:, None, None] - mean[:, :, None] * mean[:, None, :]
        safe_counts = np.maximum(kept[0], 1.0)
        between = np.einsum("mbi,mbj->mij", np.moveaxis(kept[1:4] / safe_counts, 0, -1), np.moveaxis(kept[1:4], 0, -1))
        freedom = total[0] - (kept[0] > 0).sum(axis=1)
        within = (_matrices(total[4:]) - between) / np.maximum(freedom, 1.0)[:, None, None]
        return Cells(
            cell=occupied, counts=total[0], points=mean,
            directions=mean / np.linalg.norm(mean, axis=1, keepdims=True), scatter=scatter,
            noise_scatter=within, noise_freedom=freedom, block_counts=kept[0], block_points=block_points,
            disturbed=1.0 - total[0] / (moments[0] + np.where(trusted, 0.0, moments[_LEFT_OUT])).sum(axis=1),
        )  # fmt: skip


def _matrices(sums: np.ndarray) -> np.ndarray:
    """Return symmetric matrices (M, 3, 3) from their entries (6, M): xx xy xz yy yz zz."""
    return np.moveaxis(sums[[0, 1, 2, 1, 3, 4, 2, 4, 5]], 0, -1).reshape(-1, 3, 3)


def weighted_median(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the lower weighted median (M,) of each row of `values` (M, B) under `weights` (M, B), not all zero."""
    order = np.argsort(values, axis=1, kind="stable")
    cumulative = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    middle = np.argmax(cumulative >= 0.5 * cumulative[:, -1:], axis=1)
    return values[np.arange(len(values)), order[np.arange(len(values)), middle]]
