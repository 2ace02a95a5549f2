"""The surfaces that both lidars see, as cells with a normal each, brought into one frame."""

from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.alignment.cells import Cells, row_of
from stretch_sim_cal.calibration.alignment.settings import AlignmentSettings
from stretch_sim_cal.geometry.transforms import apply

NORMAL_NEIGHBOURS = 16
ANGULAR_NEIGHBOURS = 8
_FLOOR_HEIGHT = 0.05


@dataclass(frozen=True)
class Surface:
    """Cells of one or of both lidars in one frame.

    `side` (M,) is 0 for left, 1 for right, `row` (M,) the row of cells, that is the channel; `origins` (M, 3) the lidar that looked, `rays` (M, 3) the unit direction it
    looked in, `points` (M, 3) the mean of the `counts` (M,) returns, `scatter` (M, 3, 3) their covariance;
    `noise_scatter` (M, 3, 3) and `noise_freedom` (M,) as in `Cells`. `normals` (M, 3) face the lidar; `planarity` (M,) is the ratio of the two smallest variances around a cell, 0 for a plane.
    `neighbours` (M, K) are the nearest cells in direction, of the same lidar. `block_points` (M, B, 3) and
    `block_counts` (M, B) split `points` and `counts` by time; `disturbed` (M,) is the share of returns in blocks left out. `usable`
    (M,) is false for cells that are not to be aligned by: the robot's own body.
    """

    side: np.ndarray
    row: np.ndarray
    origins: np.ndarray
    rays: np.ndarray
    points: np.ndarray
    counts: np.ndarray
    scatter: np.ndarray
    noise_scatter: np.ndarray
    noise_freedom: np.ndarray
    normals: np.ndarray
    planarity: np.ndarray
    neighbours: np.ndarray
    block_points: np.ndarray
    block_counts: np.ndarray
    disturbed: np.ndarray
    usable: np.ndarray

    @property
    def ranges(self) -> np.ndarray:
        """Distances (M,) between lidar and point."""
        return np.linalg.norm(self.points - self.origins, axis=1)


def surface_of(cells: Cells, side: int) -> Surface:
    """Return the surface (in the lidar's own frame) of one lidar's cells, at least one."""
    points, rays = cells.points, cells.directions
    normals, planarity = _normals(points, rays)
    return Surface(
        side=np.full(len(points), side), row=row_of(cells.cell), origins=np.zeros_like(points), rays=rays, points=points, counts=cells.counts,
        scatter=cells.scatter, noise_scatter=cells.noise_scatter, noise_freedom=cells.noise_freedom, normals=normals, planarity=planarity, neighbours=_neighbours(rays, ANGULAR_NEIGHBOURS),
        block_points=cells.block_points, block_counts=cells.block_counts, disturbed=cells.disturbed,
        usable=np.ones(len(points), dtype=bool),
    )  # fmt: skip


def without_body(surface: Surface, base_from_lidar: np.ndarray, settings: AlignmentSettings) -> Surface:
    """Return a lidar's surface with the robot's own body marked as not usable: a cylinder about base_link's z axis."""
    in_base = apply(base_from_lidar, surface.points)
    near_axis = in_base[:, 0] ** 2 + in_base[:, 1] ** 2 < settings.body_radius**2
    # What lies lower is floor seen past the robot, and that is wanted.
    body = near_axis & (in_base[:, 2] > _FLOOR_HEIGHT) & (in_base[:, 2] < settings.body_height)
    return replace(surface, usable=surface.usable & ~body)


def only_cells(surface: Surface, wanted: np.ndarray) -> Surface:
    """Return the wanted cells (M,) of one lidar, and their neighbours, marked as not usable."""
    kept = wanted.copy()
    kept[surface.neighbours[wanted]] = True
    number = np.cumsum(kept) - 1
    around = surface.neighbours[kept]
    own = np.arange(np.count_nonzero(kept))[:, None]
    values = {field.name: getattr(surface, field.name)[kept] for field in fields(surface)}
    values["neighbours"] = np.where(kept[around], number[around], own)
    values["usable"] = (surface.usable & wanted)[kept]
    return Surface(**values)


def without_biases(surface: Surface, biases: np.ndarray) -> Surface:
    """Return a surface with its points moved back along their rays by what their channels read too long.

    `biases` (2, NUM_ROWS) are in m for the left and the right lidar, by row of cells.
    """
    shifts = biases[surface.side, surface.row][:, None] * surface.rays
    return replace(surface, points=surface.points - shifts, block_points=surface.block_points - shifts[:, None])


def in_one_frame(left: Surface, right: Surface, right_to_left: np.ndarray) -> Surface:
    """Return the cells of both lidars in the left frame, left ones first."""
    rotation = right_to_left[:3, :3]
    blocks = max(left.block_counts.shape[1], right.block_counts.shape[1])
    pairs = {
        "side": (left.side, right.side),
        "row": (left.row, right.row),
        "origins": (left.origins, apply(right_to_left, right.origins)),
        "rays": (left.rays, right.rays @ rotation.T),
        "points": (left.points, apply(right_to_left, right.points)),
        "counts": (left.counts, right.counts),
        "scatter": (left.scatter, rotation @ right.scatter @ rotation.T),
        "noise_scatter": (left.noise_scatter, rotation @ right.noise_scatter @ rotation.T),
        "noise_freedom": (left.noise_freedom, right.noise_freedom),
        "normals": (left.normals, right.normals @ rotation.T),
        "planarity": (left.planarity, right.planarity),
        "neighbours": (left.neighbours, right.neighbours + len(left.points)),
        "block_points": (
            _padded(left.block_points, blocks),
            _padded(right.block_points @ rotation.T + right_to_left[:3, 3], blocks),
        ),
        "block_counts": (_padded(left.block_counts, blocks), _padded(right.block_counts, blocks)),
        "disturbed": (left.disturbed, right.disturbed),
        "usable": (left.usable, right.usable),
    }
    return Surface(**{name: np.concatenate(pair) for name, pair in pairs.items()})


def _padded(values: np.ndarray, blocks: int) -> np.ndarray:
    """Return `values` (M, B, ...) with zeros up to `blocks` blocks: a lidar that was silent for a while has fewer."""
    return np.pad(values, [(0, 0), (0, blocks - values.shape[1])] + [(0, 0)] * (values.ndim - 2))


def _neighbours(positions: np.ndarray, number: int) -> np.ndarray:
    """Return the indices (M, number) of the nearest other rows; where there are too few, a row repeats itself."""
    _, index = cKDTree(positions).query(positions, k=number + 1)
    index = index[:, 1:]
    return np.where(index < len(positions), index, np.arange(len(positions))[:, None])


def _normals(points: np.ndarray, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return normals (M, 3) that face the lidar, and planarity (M,), from the nearest points around each."""
    around = points[_neighbours(points, NORMAL_NEIGHBOURS)]
    centred = around - around.mean(axis=1, keepdims=True)
    variances, axes = np.linalg.eigh(centred.transpose(0, 2, 1) @ centred / NORMAL_NEIGHBOURS)
    normals = axes[:, :, 0]
    normals = normals * np.where(np.einsum("mi,mi->m", normals, rays) > 0, -1.0, 1.0)[:, None]
    return normals, variances[:, 0] / np.maximum(variances[:, 1], 1e-12)
