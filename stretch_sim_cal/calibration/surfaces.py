"""The surfaces that lidars see, as cells with a normal each: of one lidar, corrected for its errors, in
base_link."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import small_gicp
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.clouds import CELL_WIDTH, Cells, DirectionCells
from stretch_sim_cal.calibration.problem import State
from stretch_sim_cal.calibration.robust import chi_square_quantile, weighted_quantile
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import lengths
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.sensor.unit import LEAST_COSINE, ErrorModel, Returns

NORMAL_NEIGHBOURS = 16
# Planarity up to which cells are flat. A cell is on the plane of one beside it if it is no further off than so many
# standard deviations of that plane's cells; planes are the same if the cosine between them is larger.
FLAT, OF_PLANE, ALIKE = 0.01, 2.0, 0.9
ANGULAR_NEIGHBOURS = 8
# As if so many degrees of freedom had shown the usual noise.
FEW = 30.0
_FLOOR_HEIGHT = 0.05
# m: nearer returns are off by centimetres, as data sheets say and recordings of Pandar40P, 64 and QT64 show; what is so
# near is the robot, or what it stands on.
ACCURATE_FROM = 0.3
# m: how near a return of the robot's body lies to one of the points on it (robot/surfaces.py): mounts are off by
# centimetres.
BODY_WITHIN = 0.05


@dataclass(frozen=True)
class Surface(Cells):
    """Cells of one lidar or of several in one frame.

    `side` (M,) is the lidar's number, `channel` (M,) that of the lidar's error model; `origins` (M, 3) are the lidar's
    position, from which the `rays` begin. `normals` (M, 3) face the lidar; `planarity` (M,) is the ratio of the two
    smallest variances around a cell, 0 for a plane. `neighbours` (M, K) are the nearest cells in direction, of the same
    lidar. `usable` (M,) is false for cells that the alignment excludes: of the robot's body, or nearer than
    `ACCURATE_FROM`. `gaps` (M,) are the angles from channel to channel (rad), `relative_noise` (M,) the standard
    deviation of a range over the lidar's usual one: far, grazing and weak returns are noisier.
    """

    side: np.ndarray
    channel: np.ndarray
    origins: np.ndarray
    normals: np.ndarray
    planarity: np.ndarray
    neighbours: np.ndarray
    usable: np.ndarray
    gaps: np.ndarray
    relative_noise: np.ndarray

    @property
    def num_lidars(self) -> int:
        """The number of lidars, by the highest one."""
        return int(self.side.max(initial=0)) + 1

    @cached_property
    def ranges(self) -> np.ndarray:
        """Distances (M,) between lidar and point."""
        return lengths(self.points - self.origins)


def surface_of(cells: Cells, channel_of_row: np.ndarray | None = None) -> Surface:
    """Return the surface (in the lidar's frame) of one lidar's cells, at least one."""
    rows, gaps = _rows(cells)
    normals, planarity = _normals(cells.points, cells.rays, rows)
    neighbours = _neighbours(cells.rays, ANGULAR_NEIGHBOURS)
    return Surface(
        **vars(cells), side=np.zeros(len(rows), dtype=int),
        channel=cells.row if channel_of_row is None else channel_of_row[cells.row],
        origins=np.zeros_like(cells.points), normals=normals, planarity=planarity,
        neighbours=neighbours, usable=lengths(cells.points) >= ACCURATE_FROM, gaps=gaps,
        relative_noise=_relative_noise(cells, normals, neighbours),
    )  # fmt: skip


def _relative_noise(cells: Cells, normals: np.ndarray, neighbours: np.ndarray) -> np.ndarray:
    """Return the standard deviations (M,) of a range over their median, by the scatter along the ray in each cell and
    its neighbours; nearer to 1 where there are few returns."""
    across = np.einsum("mi,mij,mj->m", normals, cells.noise_scatter, normals)
    variances = np.maximum(across, 0.0) / np.maximum(np.einsum("mi,mi->m", normals, cells.rays) ** 2, LEAST_COSINE**2)
    around = np.column_stack([np.arange(len(neighbours)), neighbours])
    freedom = np.maximum(cells.noise_freedom, 0.0)[around]
    known = freedom.any(axis=1)
    if not known.any():
        return np.ones(len(around))
    scaled = variances[around] / chi_square_quantile(np.maximum(freedom, 1.0))
    local = weighted_quantile(scaled, freedom, 0.5)
    usual, freedom = float(np.median(local[known])), freedom.sum(axis=1)
    if usual == 0.0:  # ranges without noise
        return np.ones(len(around))
    return np.sqrt((freedom * local / usual + FEW) / (freedom + FEW))


def _rows(cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions (M, 3) of the cells on a grid of directions in which neighbouring channels are at most one
    cell apart, and the angle (M,) in rad from channel to channel around each."""
    elevations = np.arcsin(np.clip(cells.rays[:, 2], -1.0, 1.0))
    occupied, row = np.unique(cells.row, return_inverse=True)
    of_row = np.bincount(row, elevations) / np.bincount(row)
    order = np.argsort(of_row)
    apart = np.diff(of_row[order])
    place, gap = np.empty(len(occupied)), np.empty(len(occupied))
    place[order] = np.cumsum(np.r_[0.0, np.minimum(apart / CELL_WIDTH, 1.0)])
    below, above = (np.r_[apart[:1], apart], np.r_[apart, apart[-1:]]) if len(apart) else (np.zeros(1), np.zeros(1))
    gap[order] = np.maximum((below + above) / 2, CELL_WIDTH)
    around = np.cos(of_row) / CELL_WIDTH
    azimuth = np.arctan2(cells.rays[:, 1], cells.rays[:, 0])
    radius = around[row]
    return np.column_stack([radius * np.cos(azimuth), radius * np.sin(azimuth), place[row]]), gap[row]


def on_body(points: np.ndarray, body: np.ndarray) -> np.ndarray:
    """Return a mask (N,) of the points (N, 3) on the robot's body, by points (M, 3) on it in the same frame."""
    near: np.ndarray = cKDTree(body).query(points, distance_upper_bound=BODY_WITHIN)[0] < np.inf
    return near


def without_body(surface: Surface, base_from_lidar: np.ndarray, settings) -> Surface:
    """Return a lidar's surface with the cells of the robot's body marked as not usable: those on `settings.body`, or in
    a cylinder about base_link's z axis, of `settings.body_radius` and `body_height` (m)."""
    in_base = apply(base_from_lidar, surface.points)
    if settings.body is not None:
        return replace(surface, usable=surface.usable & ~on_body(in_base, settings.body))
    near_axis = in_base[:, 0] ** 2 + in_base[:, 1] ** 2 < settings.body_radius**2
    # Lower points are floor seen past the robot, which is used.
    body = near_axis & (in_base[:, 2] > _FLOOR_HEIGHT) & (in_base[:, 2] < settings.body_height)
    return replace(surface, usable=surface.usable & ~body)


class Lidar:
    """One lidar in the problem: the `surface` that it sees, uncorrected and in its frame, and its error `model`.

    `cosines` (M,) are the present estimates of those of incidence on the surfaces, on which the errors depend.
    """

    def __init__(self, surface: Surface, model: ErrorModel):
        self.surface, self.model = surface, model
        self.returns: Returns = model.returns(surface.points, surface.channel, surface.echo)
        cosines = -np.einsum("mi,mi->m", surface.normals, surface.rays)
        self.cosines = np.clip(cosines, LEAST_COSINE, 1.0)

    @classmethod
    def of_cells(cls, cells: DirectionCells, rows: np.ndarray | None = None) -> "Lidar":
        """Return the lidar of the frames summed in `cells`; its channels are those of `rows`, as of
        `DirectionCells.model`."""
        model, channel_of_row = cells.model(rows)
        return cls(surface_of(cells.cells(), channel_of_row), model)

    @classmethod
    def of_places(
        cls, places: Sequence[Sequence[DirectionCells]], names: Sequence[str], what: str = "standing place"
    ) -> list[tuple["Lidar", ...]]:
        """Return by place the lidars with these `names` and cells; the channels of each are those of all its places.

        Raises `InputError` if a lidar gave no return at one, or if the clouds of some places have rings and those of
        others do not.
        """
        for number, place in enumerate(places, start=1):
            where = "" if len(places) == 1 else f" of {what} {number}"
            for cells, name in zip(place, names, strict=True):
                if not cells.num_frames:
                    raise InputError(
                        f"no usable return of the {name} lidar in any frame{where}; is it running, in view of "
                        "anything, and are its points in m?"
                    )
        by_lidar = []
        for seen in zip(*places, strict=True):
            if len({cells.grid.by_ring for cells in seen}) > 1:
                raise InputError(
                    f"clouds of some {what}s have rings, those of others do not; record all with the same driver"
                )
            rows = None if seen[0].grid.by_ring else np.unique(np.concatenate([cells.rows for cells in seen]))
            by_lidar.append([cls.of_cells(cells, rows) for cells in seen])
        return list(zip(*by_lidar, strict=True))

    def only(self, wanted: np.ndarray) -> "Lidar":
        """Return the lidar with the wanted cells (M,), and their neighbours, marked as not usable."""
        surface, kept = self.surface, wanted.copy()
        kept[surface.neighbours[wanted]] = True
        number = np.cumsum(kept) - 1
        around = surface.neighbours[kept]
        itself = np.arange(np.count_nonzero(kept))[:, None]
        values = {field.name: getattr(surface, field.name).compress(kept, axis=0) for field in fields(surface)}
        values["neighbours"] = np.where(kept[around], number[around], itself)
        values["usable"] = (surface.usable & wanted)[kept]
        return Lidar(Surface(**values), self.model)

    def corrected(self, values: np.ndarray) -> Surface:
        """Return its surface in its frame, corrected for its errors by a unit's parameters (n,)."""
        surface = self.surface
        if not np.any(values):
            return surface
        points, origins = self.model.corrected_with_origins(self.returns, self.cosines, values)
        rays = points - origins
        rays /= lengths(rays)[:, None]
        shift = (points - surface.points)[:, None]
        return replace(surface, points=points, origins=origins, rays=rays, block_points=surface.block_points + shift)

    def meets(self, cell: np.ndarray, cosines: np.ndarray) -> None:
        """Store the cosines (K,) of incidence of the rays of cells (K,) on their surfaces."""
        self.cosines[cell] = np.clip(cosines, LEAST_COSINE, 1.0)


def in_base(lidars: Sequence[Lidar], state: State) -> Surface:
    """Return the surfaces of all lidars, corrected, in base_link, the cells of one lidar after those of the other."""
    parts, first = [], 0
    for number, (lidar, values, pose) in enumerate(zip(lidars, state.units, state.base_from_lidar, strict=True)):
        part = moved(lidar.corrected(values), pose)
        side = np.full(len(part.points), number)
        parts.append(replace(part, side=side, neighbours=part.neighbours + first))
        first += len(part.points)
    blocks = max(part.block_counts.shape[1] for part in parts)
    columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(Surface)}
    for name in ("block_points", "block_counts"):
        columns[name] = [_padded(values, blocks) for values in columns[name]]
    return Surface(**{name: np.concatenate(values) for name, values in columns.items()})


def mirrored_surface(surface: Surface, mirror: np.ndarray) -> Surface:
    """Return a lidar's surface in its frame with points and rays mirrored by a matrix (3, 3)."""
    points, rays = surface.points @ mirror.T, surface.rays @ mirror.T
    return replace(surface, points=points, rays=rays, origins=surface.origins @ mirror.T)


def moved(surface: Surface, target_from_source: np.ndarray) -> Surface:
    """Return a surface in another frame, by its transform (4, 4)."""
    if np.array_equal(target_from_source, np.eye(4)):
        return surface
    rotation = target_from_source[:3, :3]
    both = np.kron(rotation, rotation).T  # R S R', for all matrices S in one product
    return replace(
        surface, origins=apply(target_from_source, surface.origins), rays=surface.rays @ rotation.T,
        points=apply(target_from_source, surface.points),
        scatter=(surface.scatter.reshape(-1, 9) @ both).reshape(-1, 3, 3),
        noise_scatter=(surface.noise_scatter.reshape(-1, 9) @ both).reshape(-1, 3, 3),
        normals=surface.normals @ rotation.T,
        block_points=surface.block_points @ rotation.T + target_from_source[:3, 3],
    )  # fmt: skip


def _padded(values: np.ndarray, blocks: int) -> np.ndarray:
    """Return `values` (M, B, ...) with zeros up to `blocks` blocks: a lidar that was silent for a while has fewer."""
    return np.pad(values, [(0, 0), (0, blocks - values.shape[1])] + [(0, 0)] * (values.ndim - 2))


def _neighbours(positions: np.ndarray, number: int) -> np.ndarray:
    """Return the indices (M, number) of the nearest other rows; if there are too few, a row repeats itself."""
    if not len(positions):
        return np.zeros((0, number), dtype=int)
    index = small_gicp.KdTree(positions).batch_knn_search(positions, number + 1)[0][:, 1:].astype(np.int64)
    return np.where(index >= 0, index, np.arange(len(positions))[:, None])


def _normals(points: np.ndarray, rays: np.ndarray, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return normals (M, 3) that face the lidar, and planarity (M,), from the cells nearest to each on a grid of
    directions `where` (M, 3): on a floor the nearest points would all be of one channel, on a line.

    Near an edge these are cells of two surfaces, and the normal between both would face the lidar more than either. A
    cell that is not flat has the flattest plane around it that passes through it, unless another one does as well.
    """
    around = _neighbours(where, NORMAL_NEIGHBOURS)
    # The floor around the outermost channel that sees it: an arc, but no other channel beside it.
    fits, of_arcs = _planes(points, around), _planes(points, _neighbours(points, NORMAL_NEIGHBOURS))
    better = of_arcs[3] < fits[3]
    normals, middles, deviations, planarity = (
        np.where(better[:, None] if of.ndim == 2 else better, arc, of) for of, arc in zip(fits, of_arcs, strict=True)
    )
    edges = np.flatnonzero(planarity > FLAT)
    beside = around[edges]
    off = np.abs(np.einsum("mki,mki->mk", normals[beside], points[edges, None] - middles[beside]))
    through = (off < OF_PLANE * deviations[beside]) & (planarity[beside] < FLAT)
    flattest = np.take_along_axis(beside, np.where(through, planarity[beside], np.inf).argmin(axis=1)[:, None], axis=1)
    alike = np.abs(np.einsum("mki,mji->mk", normals[beside], normals[flattest])) > ALIKE
    of_one = through.any(axis=1) & (alike | ~through).all(axis=1)
    normals[edges[of_one]], planarity[edges[of_one]] = (of[flattest[of_one, 0]] for of in (normals, planarity))
    facing = np.where(np.einsum("mi,mi->m", normals, rays) > 0, -1.0, 1.0)
    return normals * facing[:, None], planarity


def _planes(points: np.ndarray, around: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the normals (M, 3), the middles (M, 3), the standard deviations (M,) in m, and the planarity (M,) of
    planes through the points of the cells `around` (M, K) each."""
    beside = points.take(around, axis=0)
    middles = np.einsum("mki->mi", beside) / NORMAL_NEIGHBOURS  # a fifth of the time of mean()
    centred = beside - middles[:, None]
    variances, axes = np.linalg.eigh(centred.transpose(0, 2, 1) @ centred / NORMAL_NEIGHBOURS)
    deviations = np.sqrt(np.maximum(variances[:, 0], 0.0) * NORMAL_NEIGHBOURS / (NORMAL_NEIGHBOURS - 3.0))
    return axes[:, :, 0].copy(), middles, deviations, variances[:, 0] / np.maximum(variances[:, 1], 1e-12)
