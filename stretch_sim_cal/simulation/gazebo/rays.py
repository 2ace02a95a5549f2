"""The rays of Gazebo's lidars (docs/gazebo.md): which of an even grid stand for a sensor's, and along which directions
their ranges are exact: those published of the CPU lidar, those to texels' centres of `gpu_lidar`."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit import directions

FEWEST_TEXELS, MOST_TEXELS = 128, 1024
# A full turn of so many columns is rendered with 512 texels, 0.1 to 0.2 deg each. More do not bring the rays nearer to
# the sensor's than the rows do, and cost a renderer without a GPU as much again.
DENSE_COLUMNS = 4 * (MOST_TEXELS // 4 + 1)
# Rays per scan: one more costs a renderer 32 bytes of a message, the CPU lidar another ray
# cast, which takes far longer.
MOST_RENDERED = 400_000
CAST_PER_RAY = 2
ROW_TOLERANCE = np.deg2rad(0.05)  # rad: rows are dense enough if every channel has one within this
# Texels. A ray nearer to a texel's border than this may fall to either side: GPUs round texture coordinates to 1/256,
# and before gz-rendering#1319 the border of a face may give the range of the opposite one.
BORDER = 0.01
# rad. A ray on a border is taken only if no other is this near.
DETOUR = np.deg2rad(0.5)
ASIDE = np.deg2rad(0.3)  # rad: farther than a texel is wide
# rad. By so much the rendered rows begin lower and end higher: a row at 0 or 45 deg would lie on borders all along.
ROWS_BEYOND = np.deg2rad((0.011, 0.017))


@dataclass(frozen=True)
class Grid:
    """The rays of a full turn in Gazebo: `columns` from -pi on, `rows` evenly from `lowest` to `highest` (rad)."""

    columns: int
    rows: int
    lowest: float
    highest: float

    @property
    def row_step(self) -> float:
        return (self.highest - self.lowest) / max(self.rows - 1, 1)

    def directions(self) -> np.ndarray:
        elevations = self.lowest + self.row_step * np.arange(self.rows)
        azimuths = -np.pi + 2 * np.pi / self.columns * np.arange(self.columns)
        return directions(*np.broadcast_arrays(elevations[:, None], azimuths))

    def published(self, lidar: str) -> np.ndarray:
        """Return the directions (rows, columns, 3) that a "cpu" or "gpu" lidar publishes: a gpu_lidar sums many steps
        in single precision, up to a hundredth of a degree off."""
        if lidar == "cpu":
            return self.directions()

        def summed(first: float, step: float, count: int) -> np.ndarray:
            return np.cumsum(np.array([first, *[step] * (count - 1)], dtype=np.float32)).astype(float)

        elevations = summed(self.lowest, self.row_step, self.rows)
        azimuths = summed(-np.pi, 2 * np.pi / self.columns, self.columns)
        return directions(*np.broadcast_arrays(elevations[:, None], azimuths))

    def face_texels(self) -> int:
        """Return the texels on a side of a cube's face: the least power of two not below the rays per 90 deg."""
        spans = ((2 * np.pi * (1 - 1 / self.columns), self.columns), (self.highest - self.lowest, self.rows))
        across = [int(np.pi / 2 / angle * count) if angle >= np.pi / 2 else count for angle, count in spans]
        return min(max(1 << (max(across) - 1).bit_length(), FEWEST_TEXELS), MOST_TEXELS)


def grid_for(sensor: Sensor, lidar: str) -> Grid:
    """Return the grid of a "cpu" or "gpu" lidar for a sensor: the fewest rows of which one is within `ROW_TOLERANCE` of
    every channel, or the best within `MOST_RENDERED` or `CAST_PER_RAY`."""
    turns = -(-DENSE_COLUMNS // sensor.azimuth_steps) if lidar == "gpu" else 1
    columns = turns * sensor.azimuth_steps
    below, above = ROWS_BEYOND if lidar == "gpu" else (0.0, 0.0)
    lowest, highest = float(np.min(sensor.elevations) - below), float(np.max(sensor.elevations) + above)
    least = len(np.unique(sensor.elevations))
    most = MOST_RENDERED // columns if lidar == "gpu" else CAST_PER_RAY * least
    grids = [Grid(columns, rows, lowest, highest) for rows in range(least, max(least, most) + 1)]

    def gap(grid: Grid) -> float:
        rows = (sensor.elevations - grid.lowest) / (grid.row_step or 1.0)
        return float(np.abs(rows - np.rint(rows)).max() * grid.row_step)

    return next((grid for grid in grids if gap(grid) <= ROW_TOLERANCE), None) or min(grids, key=gap)


def texel_directions(rays: np.ndarray, texels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the unit directions (..., 3) of the centres of the texels that rays (..., 3) fall into, with `texels` on a
    side of a cube's face, and the distance (...) of each ray from its texel's border, in texels. The face is that of
    the largest component; on it the other two, divided by that one, are cut into even steps. Texels are those of
    gz-rendering 8 (Harmonic) and, by their sources, of 9 (Ionic), 10 (Jetty) and the main branch of June 2026; another
    generation's would be a table here or in `face_texels`."""
    on_cube = rays / np.abs(rays).max(axis=-1, keepdims=True)
    across = np.abs(on_cube) < 1.0
    places = 0.5 * texels * (on_cube + 1.0)
    whole = np.clip(np.floor(places), 0, texels - 1)
    centres = np.where(across, 2.0 / texels * (whole + 0.5) - 1.0, on_cube)
    border = np.where(across, 0.5 - np.abs(places - whole - 0.5), 0.5).min(axis=-1)
    border = np.where(across.sum(axis=-1) < 2, 0.0, border)  # on an edge of the cube
    return centres / np.linalg.norm(centres, axis=-1, keepdims=True), border


@dataclass(frozen=True)
class CastRays:
    """The rays of a grid that stand for those of a sensor, N in firing order: `index` (N,) counts the grid's row by
    row.

    Gazebo publishes them along the unit directions `published` (N, 3), their ranges are exact along `sampled` (N, 3).
    If that does not hold, `exact` is false and points are taken as published. All begin `height` m up the axis of the
    lidar's frame."""

    index: np.ndarray
    published: np.ndarray
    sampled: np.ndarray
    height: float = 0.0
    exact: bool = True

    def points(self, cloud: np.ndarray) -> np.ndarray:
        """Return the points (N, 3) float32 of these rays in the lidar's frame, not finite for misses, by a cloud
        (rows, columns, 3)."""
        points = self._given(cloud)
        if self.exact:
            ranges = self.ranges(cloud)
            with np.errstate(invalid="ignore"):
                points = (self.sampled * ranges[:, None]).astype(np.float32)
            points[np.isinf(ranges)] = np.inf
        return points + np.array([0.0, 0.0, self.height], dtype=np.float32)

    def misdirected(self, cloud: np.ndarray) -> float:
        """Return the largest angle (rad) between the returns of a cloud and their expected directions."""
        given = self._given(cloud).astype(float)
        hit = np.isfinite(given).all(axis=1) & given.any(axis=1)
        ways = given[hit] / np.linalg.norm(given[hit], axis=1, keepdims=True)
        return float(np.linalg.norm(ways - self.published[hit], axis=1).max(initial=0.0))

    def ranges(self, cloud: np.ndarray) -> np.ndarray:
        """Return the ranges (N,) in m of these rays, inf for misses."""
        given = self._given(cloud).astype(float)
        return np.sqrt(np.einsum("ij,ij->i", given, given))

    @property
    def directions(self) -> np.ndarray:
        """The unit directions (N, 3) along which the points lie."""
        return self.sampled if self.exact else self.published

    def _given(self, cloud: np.ndarray) -> np.ndarray:
        given = cloud.reshape(-1, 3)[self.index].astype(np.float32)
        given[~np.isfinite(given).all(axis=1)] = np.inf
        return given


def cast_rays(grid: Grid, lidar: str, wanted: np.ndarray, height: float = 0.0) -> CastRays:
    """Return the rays of the grid of a "cpu" or "gpu" lidar, `height` m up its axis, nearest to the directions `wanted`
    (N, 3). Rays on the border of two texels may see either: they are taken only if no other is near."""
    published = grid.published(lidar)
    sampled, border = published, np.full(published.shape[:2], 0.5)
    if lidar == "gpu":
        sampled, border = texel_directions(grid.directions(), grid.face_texels())
    elevations = np.arcsin(np.clip(wanted[:, 2], -1.0, 1.0))
    across = 2 * np.pi / grid.columns
    column = np.rint((np.arctan2(wanted[:, 1], wanted[:, 0]) + np.pi) / across).astype(int)
    row = np.rint((elevations - grid.lowest) / (grid.row_step or 1.0)).astype(int)
    # Near the axis a texel is many columns wide: there the next one is further aside.
    reach = np.clip(np.ceil(ASIDE / np.maximum(across * np.cos(elevations), 1e-9)), 1, grid.columns // 8).astype(int)
    nearest, index = np.full(len(wanted), np.inf), np.zeros(len(wanted), dtype=np.int64)
    for down in (0, -1, 1):
        for aside in (0, -1, 1, -reach, reach):
            rows, columns = np.clip(row + down, 0, grid.rows - 1), (column + aside) % grid.columns
            distance = ((sampled[rows, columns] - wanted) ** 2).sum(axis=1)
            distance[border[rows, columns] < BORDER] += DETOUR**2
            better = distance < nearest
            nearest[better] = distance[better]
            index[better] = (rows * grid.columns + columns)[better]
    return CastRays(index, published.reshape(-1, 3)[index], sampled.reshape(-1, 3)[index], height)
