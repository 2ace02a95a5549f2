"""From both lidars' rays to the floor that they show: searched, refined, and summed up about."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stretch_sim_cal.calibration.floor.cells import CellSums, Grid, Noise, stepped
from stretch_sim_cal.calibration.floor.fit import FloorFit, fit_floor
from stretch_sim_cal.calibration.floor.rays import FloorRays, FloorView
from stretch_sim_cal.calibration.floor.search import Tiles, level_tiles, range_noise, search_floor, tiles_of
from stretch_sim_cal.calibration.floor.settings import FloorSettings
from stretch_sim_cal.geometry.planes import Plane

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
