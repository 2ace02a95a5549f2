"""From the first frames to a floor about which all frames can be summed up."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stretch_sim_cal.calibration.floor.cells import CellSums, Grid, Noise, stepped
from stretch_sim_cal.calibration.floor.fit import FloorFit, fit_floor
from stretch_sim_cal.calibration.floor.motion import FrameFloors
from stretch_sim_cal.calibration.floor.rays import FloorRays, FloorView
from stretch_sim_cal.calibration.floor.search import Tiles, level_tiles, range_noise, search_floor, tiles_of
from stretch_sim_cal.calibration.floor.settings import FloorSettings
from stretch_sim_cal.geometry.planes import Plane

SEARCH_RAYS = 150_000  # of each lidar; enough to find the floor to a millimetre
# Errors of the first plane (m) that must pass the gate.
FIRST_ERROR = 0.006
LEAST_NOISE = 0.0005
WIDE_HEIGHT, WIDE_TILT = 0.5, float(np.deg2rad(10.0))

Frame = tuple[FloorRays, FloorRays]  # left, right


class FoundFloor:
    """A floor (in the description's base_footprint) and the sums of both lidars' rays about it.

    `sums` are the left and the right lidar's, `tiles` the level pieces of surface seen in the search, `frames` every
    frame's own floor.
    """

    def __init__(self, floor: Plane, tiles: Tiles, noise: Noise, views: Sequence[FloorView], settings: FloorSettings):
        grid = Grid(settings.radius, settings.cell_size, settings.cells_per_patch)
        self.floor, self.tiles, self.noise, self._views = floor, tiles, noise, views
        self.sums = CellSums(grid, floor, noise), CellSums(grid, floor, noise)
        self.frames = FrameFloors()
        self.watched: tuple[np.ndarray | None, np.ndarray | None] = (None, None)

    def add(self, frame: Frame) -> None:
        """Add one frame's rays to the sums."""
        own = [
            sums.add(rays.aims, view.against(rays, self.floor), watched)
            for sums, view, rays, watched in zip(self.sums, self._views, frame, self.watched, strict=True)
        ]
        self.frames.add(sum(information for information, _ in own), sum(pull for _, pull in own))

    def fit(self, right_prior: np.ndarray, refine: bool = True) -> FloorFit | None:
        """Fit the floor to the sums."""
        return fit_floor(*self.sums, right_prior, refine)

    def shown_noise(self, fit: FloorFit) -> float:
        """Return the standard deviation of ranges (m) that the rays of the fitted cells show."""
        squares = sum(float(sums.range_squares[used].sum()) for sums, used in zip(self.sums, fit.used, strict=True))
        hits = sum(float(sums.hits[used].sum()) for sums, used in zip(self.sums, fit.used, strict=True))
        return max(float(np.sqrt(squares / hits)), LEAST_NOISE)


def find_floor(
    frames: Sequence[Frame], views: Sequence[FloorView], right_prior: np.ndarray, settings: FloorSettings
) -> FoundFloor | None:
    """Search the floor in some of the rays, refine it twice, and sum up all frames about it.

    None where there is no floor within the search limits.
    """
    some = _some_rays(frames)
    tiles = level_tiles(tiles_of(_measured(some, views), settings))
    floor = search_floor(tiles, settings)
    if floor is None:
        return None
    along_ray = max(range_noise(tiles, views[0].origin[2]), LEAST_NOISE)
    for across_surface in (FIRST_ERROR, settings.surface_noise):
        found = FoundFloor(floor, tiles, Noise(along_ray, across_surface), views, settings)
        found.add(some)
        fit = found.fit(right_prior, refine=False)
        if fit is None:
            return None
        floor = stepped(floor, fit.step)
    # The first sums were about a plane that was millimetres off: only the second ones show the noise.
    found = FoundFloor(floor, tiles, Noise(found.shown_noise(fit), settings.surface_noise), views, settings)
    found.watched = fit.used
    for frame in frames:
        found.add(frame)
    return found


def nearest_level_surface(frames: Sequence[Frame], views: Sequence[FloorView], settings: FloorSettings) -> Plane | None:
    """Return the level surface around the robot within much wider limits, to say what there is instead of a floor."""
    wider = replace(settings, search_height=WIDE_HEIGHT, search_tilt=WIDE_TILT)
    return search_floor(level_tiles(tiles_of(_measured(_some_rays(frames), views), wider)), wider)


def _some_rays(frames: Sequence[Frame]) -> Frame:
    return tuple(FloorRays.joined([frame[lidar] for frame in frames]).thinned(SEARCH_RAYS) for lidar in (0, 1))


def _measured(rays: Frame, views: Sequence[FloorView]) -> np.ndarray:
    """Return the measured points (N, 3) of both lidars' rays in the description's base_footprint."""
    nominal = Plane(np.array([0.0, 0.0, 1.0]), 0.0)
    return np.concatenate([view.against(part, nominal).measured for view, part in zip(views, rays, strict=True)])
