"""A first plane for the floor among the level surfaces, and a step that runs through it.

`search_floor` does not take the surface with most returns, which may be a table, but the one under the wheels: within
the search height and tilt about the description's base_footprint, and near the robot.

`robust_initialisation` then fits a plane that no carpet, step or second level pulls: weighted least trimmed squares
over patches (P. Rousseeuw and K. Van Driessen, "Computing LTS regression for large data sets", 2006). Floor near the
robot has more weight.

A step of a few millimetres leaves two levels with the fitted plane between them. Neither is an outlier, and the
patches' heights scatter about the plane as on an uneven floor. So `find_step` seeks the straight line whose sides
differ most significantly in height. It is a step if it explains the residuals of the plane better than curvature.
"""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.floor.cells import RADIUS
from stretch_sim_cal.calibration.robust import weighted_quantile
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.geometry.planes import Plane, fit_plane

TILE = 0.15  # m; large enough for a robust height, small enough to lie on one surface
MIN_POINTS_PER_TILE = 5
MIN_TILES = 12
HYPOTHESES = 800
SUPPORT_DISTANCE = 0.012  # m; a tile this near to a hypothesis supports it
NEARNESS = 0.9  # m; tiles count by exp(-r^2 / 2 NEARNESS^2): those near the wheels decide
HALF_INTERQUARTILE = 0.674  # of normal noise, over its standard deviation

# Least trimmed squares.
AGREEING_SHARE = 0.45  # of the floor's weight that has to agree: a second level cannot outvote it
LTS_HYPOTHESES = 300
REFINED = 12
CONCENTRATIONS = 12
QUANTILE_OF_NORMAL = 0.5978  # of |z|, at that share
LTS_NEARNESS = 0.6  # m; patches within it count as much as twice all the others together, if all are seen
FAR_WEIGHT = 0.03
LEAST_SCALE = 0.0003  # m; closer agreement is not sought


@dataclass(frozen=True)
class Tiles:
    """Level pieces of surface: `centres` (T, 3), the median height over each tile; `noise` (T,) its standard deviation;
    `thickness` (T,) half the interquartile range of heights. In m, frame of the description's base_footprint."""

    centres: np.ndarray
    noise: np.ndarray
    thickness: np.ndarray

    def __len__(self) -> int:
        return len(self.noise)


def level_tiles(points: np.ndarray, settings: FloorSettings) -> Tiles:
    """Return the tiles of measured points (N, 3) near the nominal floor that lie on one surface each: without walls,
    feet of furniture or steps."""
    distances = np.linalg.norm(points[:, :2], axis=1)
    allowed = settings.search_height + distances * np.tan(settings.search_tilt) + 0.03
    points = points[(np.abs(points[:, 2]) < allowed) & (distances < RADIUS)]
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
    # The median of n values scatters by 1.253 sigma / sqrt(n).
    noise = 1.253 * np.maximum(thickness, 1e-3) / HALF_INTERQUARTILE / np.sqrt(counts[enough])
    level = thickness < max(2.0 * np.median(thickness), 0.003)
    return Tiles(np.column_stack([centres, median])[level], noise[level], thickness[level])


def range_noise(tiles: Tiles, lidar_height: float) -> float:
    """Return the standard deviation (m) of ranges by the tiles' thickness; `lidar_height` (m) is over the floor."""
    reach = np.hypot(np.linalg.norm(tiles.centres[:, :2], axis=1), lidar_height)
    return float(np.median(tiles.thickness / HALF_INTERQUARTILE * reach / lidar_height))


def search_floor(tiles: Tiles, settings: FloorSettings) -> Plane | None:
    """Return the plane that most of the level surface near the robot lies on, or None: planes through random triples of
    tiles (the same in every run) are compared by the tiles on them, then fitted to these."""
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
    wide = lengths > 0.05  # m2, twice the triangle's area: thin triangles do not determine a tilt
    normals, a = normals[wide] / lengths[wide, None], a[wide]
    normals *= np.where(normals[:, 2] < 0, -1.0, 1.0)[:, None]
    offsets = -np.einsum("ij,ij->i", normals, a)
    tilts = np.arctan2(np.linalg.norm(normals[:, :2], axis=1), normals[:, 2])
    possible = (np.abs(offsets) <= settings.search_height) & (tilts <= settings.search_tilt)
    return normals[possible], offsets[possible]


def robust_initialisation(
    heights: np.ndarray, noise: np.ndarray, slopes: np.ndarray, distances: np.ndarray
) -> tuple[np.ndarray, float] | None:
    """Return the increment (3,) to the plane that most patches lie on, and their scatter about it beyond noise (m).

    `heights` (P,), `noise` (P,) and `slopes` (P, 3) are as of `cells.mean_heights`, `distances` (P,) from the robot.
    None if no three patches span a plane.
    """
    weights = np.maximum(np.exp(-(distances**2) / (2 * LTS_NEARNESS**2)), FAR_WEIGHT)
    scale = np.hypot(noise, LEAST_SCALE)
    candidates = _through_triples(heights, slopes, weights)
    if not len(candidates):
        return None
    scores, _ = _trimmed_squares(np.abs(heights + candidates @ slopes.T) / scale, weights)
    increments = candidates[np.argsort(scores, kind="stable")[:REFINED]]
    for _ in range(CONCENTRATIONS):
        ratios = np.abs(heights + increments @ slopes.T) / scale
        agreeing = ratios <= _trimmed_squares(ratios, weights)[1][:, None]
        increments = _least_squares(heights, slopes, agreeing * weights / scale**2, increments)
    best = increments[np.argmin(_trimmed_squares(np.abs(heights + increments @ slopes.T) / scale, weights)[0])]
    residuals = np.abs(heights + slopes @ best)
    spread = weighted_quantile(residuals[None], weights, AGREEING_SHARE)[0] / QUANTILE_OF_NORMAL
    usual_noise = weighted_quantile(noise[None], weights, 0.5)[0]
    return best, float(np.sqrt(max(spread**2 - usual_noise**2, 0.0)))


def _through_triples(heights: np.ndarray, slopes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return increments (H, 3) to planes through three random patches each, the same in every run."""
    rng = np.random.default_rng(0)
    chances = np.sqrt(weights)  # a compromise: heavy patches, and patches that span the floor
    triples = rng.choice(len(heights), size=(LTS_HYPOTHESES, 3), p=chances / chances.sum())
    systems = slopes[triples]
    spanning = np.abs(np.linalg.det(systems)) > 0.2  # m2, twice the triangle's area
    return np.linalg.solve(systems[spanning], -heights[triples][spanning][:, :, None])[:, :, 0]


def _trimmed_squares(ratios: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the trimmed sums of squares (H,) of residuals over their noise (H, P), and the limits (H,) of the
    trimming."""
    limits = weighted_quantile(ratios, weights, AGREEING_SHARE)
    return np.where(ratios <= limits[:, None], ratios**2, 0.0) @ weights, limits


def _least_squares(heights: np.ndarray, slopes: np.ndarray, weights: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Return the increment (H, 3) for each row of weights (H, P); the row of `otherwise` if the weights do not
    determine it."""
    normal = (weights @ (slopes[:, :, None] * slopes[:, None]).reshape(-1, 9)).reshape(-1, 3, 3)
    determined = np.linalg.cond(normal) < 1e8
    increments = otherwise.copy()
    right = -(weights[determined] * heights) @ slopes
    increments[determined] = np.linalg.solve(normal[determined], right[:, :, None])[:, :, 0]
    return increments


# Steps.
ANGLES = 24  # over half a turn
REACH, SPACING = 2.5, 0.1  # m: how far from the robot lines are sought, and how far apart
GATE = 0.006  # m beyond noise; patches farther off the plane are another level to every method
LEAST_NOISE = 0.0003  # m; patches need not agree better
LEAST_STEP = 0.0008  # m; lower ones do little harm
SIGNIFICANCE = 25.0  # chi square of one height, at the best of a thousand lines; on even floors it is 6 to 10
SUSPICION = 12.0  # from here on there may be a step that is not seen
EXPLAINS = 0.5  # of the squared residuals beyond chance at most this part may remain
LEAST_SHARE = 0.1  # of the patches on either side

DIRECTIONS = ("ahead", "ahead to the left", "to the left", "behind to the left",
              "behind", "behind to the right", "to the right", "ahead to the right")  # fmt: skip


def direction_in_words(bearing: float) -> str:
    """Return a bearing (rad, 0 ahead, positive to the left) as one of eight directions."""
    return DIRECTIONS[int(np.round(bearing / (np.pi / 4))) % 8]


@dataclass(frozen=True)
class Step:
    """A line at `distance` (m) from the robot in the direction `bearing` (rad), beyond which the floor is `height` (m)
    higher."""

    distance: float
    bearing: float
    height: float

    def beyond(self, places: np.ndarray) -> np.ndarray:
        """Return how far (N,), in m, places (N, 2) lie beyond the line; negative on the robot's side."""
        return places @ np.array([np.cos(self.bearing), np.sin(self.bearing)]) - self.distance


def find_step(
    places: np.ndarray, heights: np.ndarray, noise: np.ndarray, slopes: np.ndarray, others: np.ndarray
) -> tuple[Step | None, float]:
    """Return the step in the patches, or None, and the height (m) of a step that is not significant.

    `places` (P, 2) are the patches', `heights` (P,) over a plane near the floor with standard deviations `noise` (P,),
    `slopes` (P, 3) the derivatives by the plane's increment, `others` (P, K) those by other possible causes.
    """
    near = np.abs(heights) < GATE + 3.0 * noise
    places, heights, slopes, others = places[near], heights[near], slopes[near], others[near]
    scale = 1.0 / np.hypot(noise[near], LEAST_NOISE)
    angles = np.arange(ANGLES) * np.pi / ANGLES
    normals = np.column_stack([np.cos(angles), np.sin(angles)])
    distances = np.arange(-REACH, REACH + SPACING / 2, SPACING)  # of lines from the robot, along their normals
    sides = (places @ normals.T)[:, :, None] > distances  # (P, lines' normals, distances)
    sides = sides.reshape(len(places), -1)
    share = sides.mean(axis=0)
    sides = (sides & (share > LEAST_SHARE) & (share < 1.0 - LEAST_SHARE)).astype(float)

    plane = np.linalg.qr(slopes * scale[:, None])[0]
    left_over = _without(plane, (heights * scale)[:, None])[:, 0]
    columns = _without(plane, sides * scale[:, None])
    lengths = np.einsum("pl,pl->l", columns, columns)
    steps = columns.T @ left_over / np.maximum(lengths, 1e-12)
    explained = np.where(lengths > 1e-6, steps**2 * lengths, 0.0)
    best = int(np.argmax(explained))
    excess = float(left_over @ left_over) - len(heights)
    if explained[best] < SUSPICION or excess - explained[best] > EXPLAINS * excess:
        return None, 0.0
    otherwise = np.linalg.qr(_without(plane, others * scale[:, None]))[0]
    if np.sum((otherwise.T @ left_over) ** 2) > explained[best]:
        return None, 0.0
    if explained[best] < SIGNIFICANCE or abs(steps[best]) < LEAST_STEP:
        return None, float(abs(steps[best]))
    normal, distance = normals[best // len(distances)], float(distances[best % len(distances)])
    sign = 1.0 if distance >= 0 else -1.0
    return Step(sign * distance, float(np.arctan2(*(sign * normal)[::-1])), sign * float(steps[best])), 0.0


def _without(basis: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return columns (P, L) less their parts in an orthonormal basis (P, K)."""
    return columns - basis @ (basis.T @ columns)
