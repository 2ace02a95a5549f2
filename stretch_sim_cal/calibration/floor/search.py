"""Finding the floor among all that is level: a first plane from the surface nearest to where the robot stands.

The search never asks what returns most points (a table may), but what continues the ground under the wheels: near the
description's base_footprint, within the height and tilt by which the mounting may differ from it, near the robot before
far away.

From both lidars' rays to the floor that they show: searched, refined, and summed up about.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stretch_sim_cal.calibration.floor.fit import FloorFit, fit_floor
from stretch_sim_cal.calibration.floor.rays import CellSums, FloorRays, FloorView, Grid, Noise, stepped
from stretch_sim_cal.calibration.floor.result import FloorSettings
from stretch_sim_cal.geometry.planes import Plane, fit_plane

TILE = 0.15  # m; large enough for a robust height, small enough to lie on one surface
MIN_POINTS_PER_TILE = 5
HYPOTHESES = 800
SUPPORT_DISTANCE = 0.012  # m; a tile this near to a hypothesis speaks for it
NEARNESS = 0.9  # m; tiles count by exp(-r^2 / 2 NEARNESS^2): what is near the wheels decides
MIN_TILES = 12


@dataclass(frozen=True)
class Tiles:
    """Level pieces of surface: `centres` (T, 3), the median height over each tile; `noise` (T,) its standard deviation;
    `thickness` (T,) half the interquartile range of heights. In m, frame of the description's base_footprint."""

    centres: np.ndarray
    noise: np.ndarray
    thickness: np.ndarray

    def __len__(self) -> int:
        return len(self.noise)

    def chosen(self, keep: np.ndarray) -> "Tiles":
        """Return the tiles for which `keep` (T,) is true."""
        return Tiles(self.centres[keep], self.noise[keep], self.thickness[keep])


def tiles_of(points: np.ndarray, settings: FloorSettings) -> Tiles:
    """Return the tiles of measured points (N, 3) that lie where the floor may be."""
    points = points[np.isfinite(points).all(axis=1)]
    distances = np.linalg.norm(points[:, :2], axis=1)
    allowed = settings.search_height + distances * np.tan(settings.search_tilt) + 0.03
    points = points[(np.abs(points[:, 2]) < allowed) & (distances < settings.radius)]
    columns = np.floor(points[:, :2] / TILE).astype(np.int64)
    keys = columns[:, 0] * 100_003 + columns[:, 1]
    order = np.lexsort((points[:, 2], keys))
    keys, points = keys[order], points[order]
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]]) if len(keys) else np.zeros(0, int)
    counts = np.diff(np.r_[starts, len(keys)])
    enough = counts >= MIN_POINTS_PER_TILE
    if not enough.any():
        return Tiles(np.zeros((0, 3)), np.zeros(0), np.zeros(0))
    heights = points[:, 2]
    lower, median, upper = (heights[(starts + (counts * share).astype(int))[enough]] for share in (0.25, 0.5, 0.75))
    centres = np.add.reduceat(points[:, :2], starts, axis=0)[enough] / counts[enough, None]
    thickness = (upper - lower) / 2
    # The median of n values scatters by 1.253 sigma / sqrt(n), and half the interquartile range is 0.674 sigma.
    noise = 1.253 * np.maximum(thickness, 1e-3) / 0.674 / np.sqrt(counts[enough])
    return Tiles(np.column_stack([centres, median]), noise, thickness)


def level_tiles(tiles: Tiles) -> Tiles:
    """Return the tiles that lie on one surface: no walls, feet of furniture or steps within them."""
    if not len(tiles):
        return tiles
    usual = np.median(tiles.thickness)
    return tiles.chosen(tiles.thickness < max(2.0 * usual, 0.003))


def range_noise(tiles: Tiles, lidar_height: float) -> float:
    """Return the standard deviation of ranges that the tiles' thickness shows, for lidars so high over the robot
    (m)."""
    reach = np.hypot(np.linalg.norm(tiles.centres[:, :2], axis=1), lidar_height)
    return float(np.median(tiles.thickness / 0.674 * reach / lidar_height))


def search_floor(tiles: Tiles, settings: FloorSettings) -> Plane | None:
    """Return the plane that most of the level surface near the robot lies on, or None where there is none to be found.

    Planes through random triples of tiles (the same ones in every run) are compared by the tiles that lie on them, then
    fitted again to those.
    """
    if len(tiles) < MIN_TILES:
        return None
    weights = np.exp(-np.sum(tiles.centres[:, :2] ** 2, axis=1) / (2 * NEARNESS**2))
    normals, offsets = _hypotheses(tiles, weights, settings)
    if not len(offsets):
        return None
    distances = np.abs(tiles.centres @ normals.T + offsets)
    best = np.argmax(weights @ (distances < SUPPORT_DISTANCE))
    plane = Plane(normals[best], float(offsets[best]))
    for _ in range(3):
        on_plane = np.abs(plane.distance(tiles.centres)) < SUPPORT_DISTANCE
        if on_plane.sum() < MIN_TILES:
            return None
        plane = fit_plane(tiles.centres[on_plane], weights[on_plane] / (tiles.noise[on_plane] ** 2 + 0.002**2))[0]
        plane = plane.facing(np.array([0.0, 0.0, 1.0]))
    return plane if within_search(plane, settings) else None


def within_search(plane: Plane, settings: FloorSettings) -> bool:
    """Return whether a plane lies within the height and tilt that the search allows."""
    tilt = np.arctan2(np.linalg.norm(plane.normal[:2]), plane.normal[2])
    return abs(plane.offset) <= settings.search_height and tilt <= settings.search_tilt


def _hypotheses(tiles: Tiles, weights: np.ndarray, settings: FloorSettings) -> tuple[np.ndarray, np.ndarray]:
    """Return normals (H, 3) and offsets (H,) of planes through triples of tiles that lie within the search."""
    rng = np.random.default_rng(0)
    triples = rng.choice(len(tiles), size=(HYPOTHESES, 3), p=weights / weights.sum())
    a, b, c = (tiles.centres[triples[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    lengths = np.linalg.norm(normals, axis=1)
    wide = lengths > 0.05  # m2, twice the triangle's area: thin triangles tell nothing of tilt
    normals, a = normals[wide] / lengths[wide, None], a[wide]
    normals *= np.where(normals[:, 2] < 0, -1.0, 1.0)[:, None]
    offsets = -np.einsum("ij,ij->i", normals, a)
    tilts = np.arctan2(np.linalg.norm(normals[:, :2], axis=1), normals[:, 2])
    possible = (np.abs(offsets) <= settings.search_height) & (tilts <= settings.search_tilt)
    return normals[possible], offsets[possible]


# Errors of the first plane (m) that must pass the gate.
FIRST_ERROR = 0.006
LEAST_NOISE = 0.0005
WIDE_HEIGHT, WIDE_TILT = 0.5, float(np.deg2rad(10.0))

Rays = tuple[FloorRays, FloorRays]  # left, right


class FoundFloor:
    """A floor (in the description's base_footprint) and the sums of both lidars' rays about it.

    `sums` are the left and the right lidar's, `tiles` the level pieces of surface seen in the search.
    """

    def __init__(self, floor: Plane, tiles: Tiles, noise: Noise, views: Sequence[FloorView], settings: FloorSettings):
        self._grid = Grid(settings.radius, settings.cell_size, settings.cells_per_patch)
        self.floor, self.tiles, self.noise, self._views = floor, tiles, noise, views
        self.sums = self._empty_sums()

    def _empty_sums(self) -> tuple[CellSums, CellSums]:
        return CellSums(self._grid, self.floor, self.noise), CellSums(self._grid, self.floor, self.noise)

    def add(self, rays: Rays) -> None:
        """Add rays to the sums."""
        for sums, view, own in zip(self.sums, self._views, rays, strict=True):
            sums.add(own.aims, view.against(own, self.floor))

    def own_floor(self, rays: Rays, watched: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the normal equations (3, 3) and (3,) of the step to the floor that some rays show by themselves, in the
        cells of the masks `watched` (cells,), one per lidar."""
        parts = [
            sums.add(own.aims, view.against(own, self.floor), mask)
            for sums, view, own, mask in zip(self._empty_sums(), self._views, rays, watched, strict=True)
        ]
        return sum(information for information, _ in parts), sum(pull for _, pull in parts)

    def fit(self, refine: bool = True) -> FloorFit | None:
        """Fit the floor to the sums."""
        return fit_floor(*self.sums, refine)

    def shown_noise(self, fit: FloorFit) -> float:
        """Return the standard deviation of ranges (m) that the rays of the fitted cells show."""
        squares = sum(float(sums.range_squares[used].sum()) for sums, used in zip(self.sums, fit.used, strict=True))
        means = sum(float(sums.means[used].sum()) for sums, used in zip(self.sums, fit.used, strict=True))
        return max(float(np.sqrt(squares / means)), LEAST_NOISE)


def find_floor(rays: Rays, views: Sequence[FloorView], settings: FloorSettings) -> FoundFloor | None:
    """Search the floor in the rays, refine it twice, and sum up the rays about it.

    None where there is no floor within the search limits.
    """
    tiles = level_tiles(tiles_of(_measured(rays, views), settings))
    floor = search_floor(tiles, settings)
    if floor is None:
        return None
    returns = float(np.median(np.concatenate([own.counts for own in rays])))
    along_ray = max(range_noise(tiles, views[0].origin[2]) * np.sqrt(returns), LEAST_NOISE)
    for across_surface in (FIRST_ERROR, settings.surface_noise):
        # The first sums are about a plane that is millimetres off: only the second ones show the noise.
        found = FoundFloor(floor, tiles, Noise(along_ray, across_surface), views, settings)
        found.add(rays)
        fit = found.fit(refine=False)
        if fit is None:
            return None
        floor = stepped(floor, fit.step)
    found = FoundFloor(floor, tiles, Noise(found.shown_noise(fit), settings.surface_noise), views, settings)
    found.add(rays)
    return found


def nearest_level_surface(rays: Rays, views: Sequence[FloorView], settings: FloorSettings) -> Plane | None:
    """Return the level surface around the robot within much wider limits, to say what there is instead of a floor."""
    wider = replace(settings, search_height=WIDE_HEIGHT, search_tilt=WIDE_TILT)
    return search_floor(level_tiles(tiles_of(_measured(rays, views), wider)), wider)


def _measured(rays: Rays, views: Sequence[FloorView]) -> np.ndarray:
    """Return the measured points (N, 3) of both lidars' rays in the description's base_footprint."""
    nominal = Plane(np.array([0.0, 0.0, 1.0]), 0.0)
    return np.concatenate([view.against(part, nominal).measured for view, part in zip(views, rays, strict=True)])
