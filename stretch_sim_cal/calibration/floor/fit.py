"""The search for the floor, and the robust plane through the patches of floor that lie on one surface (method:
docs/floor.md)."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stretch_sim_cal.calibration.floor import cells
from stretch_sim_cal.calibration.problem import curvature_shapes
from stretch_sim_cal.calibration.robust import TUKEY, robust_deviation, tukey_weights, weighted_quantile
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.geometry.planes import LEVEL, UP, Plane, fit_plane, incremented
from stretch_sim_cal.geometry.points import group_sums

# The search.
TILE = 0.15  # m; large enough for a robust height, small enough to lie on one surface
MIN_TILES = 12
HYPOTHESES = 800
SUPPORT_DISTANCE = 0.012  # m; a tile this near to a hypothesis supports it
NEARNESS = 0.9  # m; tiles count by exp(-r^2 / 2 NEARNESS^2): those near the wheels decide
HALF_INTERQUARTILE = 0.674  # of normal noise, over its standard deviation


@dataclass(frozen=True)
class Tiles:
    """Level pieces of surface: `centres` (T, 3), the median height over each tile; `noise` (T,) its standard deviation;
    `thickness` (T,) half the interquartile range of heights. In m, frame of the description's base_footprint."""

    centres: np.ndarray
    noise: np.ndarray
    thickness: np.ndarray


def level_tiles(rays: Sequence[cells.FloorRays], settings: FloorSettings) -> Tiles:
    """Return the tiles near the nominal floor that lie on one surface each (without walls, feet of furniture or steps)
    by the measured points of all rays, without those on the robot."""
    points = np.concatenate([part.against(LEVEL).measured[~part.on_robot] for part in rays])
    distances = np.linalg.norm(points[:, :2], axis=1)
    allowed = settings.search_height + distances * np.tan(settings.search_tilt) + 0.03
    points = points[(np.abs(points[:, 2]) < allowed) & (distances < cells.RADIUS)]
    columns = np.floor(points[:, :2] / TILE).astype(np.int64)
    keys = columns[:, 0] * 100_003 + columns[:, 1]
    order = np.lexsort((points[:, 2], keys))
    keys, points = keys[order], points[order]
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    counts = np.diff(np.r_[starts, len(keys)])
    enough = counts >= 5
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


def search_floor(tiles: Tiles, settings: FloorSettings) -> Plane | None:
    """Return the plane that most of the level surface near the robot lies on, or None: planes through random triples of
    tiles (the same in every run) are compared by the tiles on them, then fitted to these."""
    if len(tiles.noise) < MIN_TILES:
        return None
    weights = np.exp(-np.sum(tiles.centres[:, :2] ** 2, axis=1) / (2 * NEARNESS**2))
    triples = np.random.default_rng(0).choice(len(weights), size=(HYPOTHESES, 3), p=weights / weights.sum())
    a, b, c = (tiles.centres[triples[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    lengths = np.linalg.norm(normals, axis=1)
    wide = lengths > 0.05  # m2, twice the triangle's area: thin triangles do not determine a tilt
    normals, a = normals[wide] / lengths[wide, None], a[wide]
    normals *= np.where(normals[:, 2] < 0, -1.0, 1.0)[:, None]
    offsets = -np.einsum("ij,ij->i", normals, a)
    possible = within_search(normals, offsets, settings)
    normals, offsets = normals[possible], offsets[possible]
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
        plane = plane.facing(UP)
    return plane if within_search(plane.normal, plane.offset, settings) else None


def within_search(normals: np.ndarray, offsets: np.ndarray, settings: FloorSettings) -> np.ndarray:
    """Return which planes (..., 3), (...) lie within the height and tilt that the search allows."""
    tilts = np.arctan2(np.linalg.norm(normals[..., :2], axis=-1), normals[..., 2])
    return (np.abs(offsets) <= settings.search_height) & (tilts <= settings.search_tilt)


# The robust initialisation.
AGREEING_SHARE = 0.45  # of the floor's weight that has to agree: a second level cannot outvote it
LTS_HYPOTHESES, REFINED, CONCENTRATIONS = 300, 12, 12
QUANTILE_OF_NORMAL = 0.5978  # of |z|, at that share
LTS_NEARNESS = 0.6  # m; patches within it count as much as twice all the others together, if all are seen
FAR_WEIGHT = 0.03


def robust_initialisation(
    heights: np.ndarray, noise: np.ndarray, slopes: np.ndarray, distances: np.ndarray
) -> tuple[np.ndarray, float] | None:
    """Return the increment (3,) to the plane that most patches lie on, and their scatter about it beyond noise (m), or
    None. `heights` (P,), `noise` (P,) and `slopes` (P, 3) are as of `FloorFit`, `distances` (P,) from the robot."""
    weights = np.maximum(np.exp(-(distances**2) / (2 * LTS_NEARNESS**2)), FAR_WEIGHT)
    scale = np.hypot(noise, 0.0003)  # m; closer agreement is not sought
    chances = np.sqrt(weights)  # a compromise: heavy patches, and patches that span the floor
    # The same triples in every run.
    triples = np.random.default_rng(0).choice(len(heights), size=(LTS_HYPOTHESES, 3), p=chances / chances.sum())
    systems = slopes[triples]
    spanning = np.abs(np.linalg.det(systems)) > 0.2  # m2, twice the triangle's area
    candidates = np.linalg.solve(systems[spanning], -heights[triples][spanning][:, :, None])[:, :, 0]
    if not len(candidates):
        return None
    scores, _ = _trimmed_squares(np.abs(heights + candidates @ slopes.T) / scale, weights)
    increments = candidates[np.argsort(scores, kind="stable")[:REFINED]]
    for _ in range(CONCENTRATIONS):
        ratios = np.abs(heights + increments @ slopes.T) / scale
        agreeing = (ratios <= _trimmed_squares(ratios, weights)[1][:, None]) * weights / scale**2
        normal = (agreeing @ (slopes[:, :, None] * slopes[:, None]).reshape(-1, 9)).reshape(-1, 3, 3)
        determined = np.linalg.cond(normal) < 1e8
        right = -(agreeing[determined] * heights) @ slopes
        increments[determined] = np.linalg.solve(normal[determined], right[:, :, None])[:, :, 0]
    best = increments[np.argmin(_trimmed_squares(np.abs(heights + increments @ slopes.T) / scale, weights)[0])]
    residuals = np.abs(heights + slopes @ best)
    scatter = weighted_quantile(residuals[None], weights, AGREEING_SHARE)[0] / QUANTILE_OF_NORMAL
    usual_noise = weighted_quantile(noise[None], weights, 0.5)[0]
    return best, float(np.sqrt(max(scatter**2 - usual_noise**2, 0.0)))


def _trimmed_squares(ratios: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the trimmed sums of squares (H,) of ratios (H, P), and the limits (H,) of the trimming."""
    limits = weighted_quantile(ratios, weights, AGREEING_SHARE)
    return np.where(ratios <= limits[:, None], ratios**2, 0.0) @ weights, limits


# Steps.
ANGLES = 24  # over half a turn
REACH, STEP_SPACING = 2.5, 0.1  # m: the largest distance of lines from the robot, and that between lines
GATE = 0.006  # m beyond noise; patches farther off the plane are another level to every method
STEP_SIGNIFICANCE = 25.0  # chi square of one height, at the best of a thousand lines; on even floors it is 6 to 10
SUSPICION = 12.0  # from here on there may be a step that is not seen
STEP_EXPLAINS = 0.5  # of the squared residuals beyond noise at most this part may remain
LEAST_SHARE = 0.1  # of the patches on either side
LEAST_STEP, LEAST_KINK = 0.0008, 0.0005  # m, and its slope; lower ones do little harm


@dataclass(frozen=True)
class Step:
    """A line at `distance` (m) from the robot in the direction `bearing` (rad), beyond which the floor is `height` (m)
    higher, and rises by `slope` more than on the robot's side. One of both is 0."""

    distance: float
    bearing: float
    height: float
    slope: float = 0.0

    def beyond(self, places: np.ndarray) -> np.ndarray:
        """Return how far (N,), in m, places (N, 2) lie beyond the line; negative on the robot's side."""
        return places @ np.array([np.cos(self.bearing), np.sin(self.bearing)]) - self.distance


def find_step(
    places: np.ndarray, heights: np.ndarray, noise: np.ndarray, slopes: np.ndarray, others: np.ndarray
) -> tuple[Step | None, float]:
    """Return the step or kink in the patches, or None, and the height (m) of a step that is not significant. `places`
    (P, 2) are the patches', `heights` (P,) over a plane near the floor with standard deviations `noise` (P,), `slopes`
    (P, 3) the derivatives by the plane's increment, `others` (P, K) those by other possible causes."""
    near = np.abs(heights) < GATE + 3.0 * noise
    places, heights, slopes, others = places[near], heights[near], slopes[near], others[near]
    scale = 1.0 / np.hypot(noise[near], 0.0003)  # m; patches need not agree better
    angles = np.arange(ANGLES) * np.pi / ANGLES
    normals = np.column_stack([np.cos(angles), np.sin(angles)])
    # Of lines from the robot, along their normals; rounded, so that ahead and behind are the same.
    distances = np.round(np.arange(-REACH, REACH + STEP_SPACING / 2, STEP_SPACING), 6)
    beyond = ((places @ normals.T)[:, :, None] - distances).reshape(len(places), -1)  # (P, lines)
    share = (beyond > 0).mean(axis=0)
    beyond = np.where((share > LEAST_SHARE) & (share < 1.0 - LEAST_SHARE), beyond, 0.0)

    plane = np.linalg.qr(slopes * scale[:, None])[0]
    residuals = _orthogonal_to(plane, (heights * scale)[:, None])[:, 0]
    # Those of steps, and of kinks: the mean rises of patches, some of which the line crosses.
    crossed = np.clip(beyond, -cells.PATCH_SIZE / 2, cells.PATCH_SIZE / 2)
    rises = (crossed + cells.PATCH_SIZE / 2) ** 2 / (2 * cells.PATCH_SIZE) + np.maximum(beyond - crossed, 0.0)
    columns = np.hstack([beyond > 0, np.where(beyond != 0.0, rises, 0.0)])
    columns = _orthogonal_to(plane, columns * scale[:, None])
    lengths = np.einsum("pl,pl->l", columns, columns)
    sizes = columns.T @ residuals / np.maximum(lengths, 1e-12)
    explained = np.where(lengths > 1e-6, sizes**2 * lengths, 0.0)
    best = int(np.argmax(explained))
    kinked, line = divmod(best, beyond.shape[1])
    excess = float(residuals @ residuals) - len(heights)
    if explained[best] < SUSPICION or excess - explained[best] > STEP_EXPLAINS * excess:
        return None, 0.0
    otherwise = np.linalg.qr(_orthogonal_to(plane, others * scale[:, None]))[0]
    # Beside another cause, too, the best line explains this much by chance.
    if np.sum((otherwise.T @ residuals) ** 2) > explained[best] - SUSPICION:
        return None, 0.0
    size = float(sizes[best])
    if explained[best] < STEP_SIGNIFICANCE or abs(size) < (LEAST_KINK if kinked else LEAST_STEP):
        return None, 0.0 if kinked else abs(size)
    normal, distance = normals[line // len(distances)], float(distances[line % len(distances)])
    sign = 1.0 if distance >= 0 else -1.0
    bearing = float(np.arctan2(*(sign * normal)[::-1]))
    # A kink is the same line, with the other side's slope, up to a plane.
    found = (0.0, size) if kinked else (sign * size, 0.0)
    return Step(sign * distance, bearing, *found), 0.0


def _orthogonal_to(basis: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return columns (P, L) minus their projections onto an orthonormal basis (P, K)."""
    return columns - basis @ (basis.T @ columns)


# The fit.
ITERATIONS = 15  # at most, until the weights' sum changes by no more than:
CONVERGED = 1e-3
# Bounds of the unevenness (m), the standard deviation of patches beyond noise: 1.5 mm is a poor floor already.
LEAST_UNEVENNESS, MOST_UNEVENNESS = 0.00005, 0.0015
MIN_PATCHES = 6
LEAST_WEIGHT = 0.1  # of a patch that belongs to the floor
WELL_KNOWN = 0.005  # m; patches whose height has a larger standard deviation are not used for the initialisation
BLOCKS = (0.75, 1.5)  # m; residuals are assumed independent only between blocks of these sizes
EVEN = 0.00015  # m; a smaller unevenness is not significant
# m: heights of an uneven floor at a distance d correlate by exp(-d / WAVES), as profiles do whose spectral density goes
# with the square of the wavelength (roads: ISO 8608). Half of a long wave looks like a slope.
WAVES = 1.0
# So much more than heights of patches from those of their neighbours do heights of points vary (variance), for tiles of
# 0.2 to 0.6 m.
OF_POINTS = 2.0
EVEN_POINTS = 0.00008  # m, of heights at points as far apart as wheels, on a floor as even as floors are
LEAST_SCATTER = 0.0003  # m, of patches by one lidar's channels
LEVER = 1.5  # m over which a hidden step tilts the plane
WHEELS, WHEEL_RADIUS = 3, 0.17  # so many wheels, evenly on a circle (m), as the Stretch's: on wider ones it tilts less
TOUCHING_POINT = 0.05  # m

# The unknowns of the fit, and the prior standard deviations (1/m) of the curvature if there is one, and if there is
# none.
INCREMENT, CURVATURE = slice(0, 3), slice(3, 6)
LIKELY_CURVATURE, NONE = 0.002, 1e-8  # 2 mm at 1.5 m
SIGNIFICANCE = 25.0  # chi square of three values: one in a hundred thousand
EXPLAINS = 0.7  # of the squared residuals beyond noise at most this part may remain for the floor to be curved
CORE = 0.5  # weight of patches that a curvature is fitted to: an edge to another level looks like the rim of a dome


def fit_floor(lidars: Sequence[cells.CellSums], refine: bool = True) -> "FloorFit | None":
    """Fit the floor to all cells, without `refine` a plane without steps and curvature; None for too little floor."""
    fit = FloorFit(lidars)
    enough = fit.initialise() and fit.converge()
    if enough and refine and fit.exclude_beyond_step():
        enough = fit.initialise() and fit.converge()
    if enough and refine and fit.is_curved():
        fit.allow(LIKELY_CURVATURE)
        enough = fit.converge()
    return fit.finished() if enough else None


class FloorFit:
    """The fit, iteratively reweighted least squares over patches on (increment, curvature), and its support.

    `increment` (3,) leads from the assumed to the fitted floor (height, tilt about x, tilt about y); `systematic` (3,
    3) is the part of its covariance that noise does not explain. `curvature` (3,) is the floor's (xx, xy, yy) in 1/m at
    the robot, 0 if it has none. `used` is one mask (cells,) per lidar. `trust` (P,) are the patches' weights from 0
    (rejected) to 1. `unevenness` (m) is the standard deviation of patch means beyond noise and curvature, `inflation`
    the ratio of the variance between blocks to that by noise alone. `step` is the edge of another level, which was
    excluded.
    """

    def __init__(self, lidars: Sequence[cells.CellSums]):
        self.clean = [sums.unobstructed() for sums in lidars]
        self.centres = cells.PATCH_CENTRES
        # Of each patch, by all lidars together: the normal equations of the increment, the mean height over the assumed
        # floor, its standard deviation by noise (NaN if unseen), and its derivatives by the increment.
        self.by_plane, self.gradient = np.zeros((len(self.centres), 3, 3)), np.zeros((len(self.centres), 3))
        self.by_lidar = []
        for sums, clean in zip(lidars, self.clean, strict=True):
            patch, count = cells.PATCH_OF_CELLS[clean], len(self.centres)
            by_plane = group_sums(patch, count, sums.information[clean].reshape(-1, 9)).reshape(-1, 3, 3)
            gradient = group_sums(patch, count, sums.gradient[clean])
            self.by_plane += by_plane
            self.gradient += gradient
            self.by_lidar.append((by_plane[:, 0], gradient[:, 0]))
        weight = self.by_plane[:, 0, 0]
        weight = np.where(weight > 0, weight, np.nan)
        self.heights, self.noise = -self.gradient[:, 0] / weight, weight**-0.5
        self.slopes = self.by_plane[:, 0] / weight[:, None]
        self.well_known = np.isfinite(self.heights) & (self.noise < WELL_KNOWN)
        # The mean points at which the patches' rays meet the floor: the levers of their slopes.
        levers = np.column_stack([self.slopes[:, 2], -self.slopes[:, 1]])
        self.shapes = curvature_shapes(np.where(np.isfinite(self.slopes[:, 1:]), levers, 0.0))
        self.allowed = np.ones(len(self.centres), bool)
        self.step, self.hidden_step = None, 0.0
        self.solution = np.zeros(6)
        self.unevenness, self.most_uneven = LEAST_UNEVENNESS, MOST_UNEVENNESS
        self.allow(NONE)

    def allow(self, curvature: float) -> None:
        """Set the prior standard deviation of the curvature (1/m)."""
        self.prior = np.zeros((6, 6))
        self.prior[CURVATURE, CURVATURE] = np.eye(3) / curvature**2

    def initialise(self) -> bool:
        """Start from the robust initialisation; False if there is too little floor."""
        seen = self.well_known & self.allowed
        if np.count_nonzero(seen) < MIN_PATCHES:
            return False
        distances = np.linalg.norm(self.centres[seen], axis=1)
        first = robust_initialisation(self.heights[seen], self.noise[seen], self.slopes[seen], distances)
        if first is None:
            return False
        self.solution[:] = 0.0
        self.solution[INCREMENT], unevenness = first
        # The floor must not become more uneven by including other levels.
        self.unevenness = self.most_uneven = float(np.clip(unevenness, LEAST_UNEVENNESS, MOST_UNEVENNESS))
        return True

    def exclude_beyond_step(self) -> bool:
        """Search for a step through the floor; if there is one, exclude all beyond it and return True."""
        seen = self.well_known
        self.step, self.hidden_step = find_step(
            self.centres[seen], self.residuals()[seen], self.noise[seen], self.slopes[seen], self.shapes[seen]
        )
        if self.step is None:
            return False
        margin = 0.0 if self.step.slope else 0.2  # m before a step: a patch's half diagonal
        self.allowed = self.step.beyond(self.centres) < -margin
        return True

    def converge(self) -> bool:
        """Weight and solve in turn until the weights converge; False if too little floor is left."""
        total = 0.0
        for _ in range(ITERATIONS):
            self.reweight()
            trusted = self.trust > LEAST_WEIGHT
            if np.count_nonzero(trusted) < MIN_PATCHES:
                return False
            self.solve()
            # The standard deviation of the patches' means beyond noise and curvature.
            excess = robust_deviation(self.residuals()[trusted]) ** 2 - np.median(self.noise[trusted] ** 2)
            scatter = float(np.clip(np.sqrt(max(excess, 0.0)), LEAST_UNEVENNESS, MOST_UNEVENNESS))
            self.unevenness = min(scatter, self.most_uneven)
            before, total = total, float(self.trust.sum())
            if abs(total - before) < CONVERGED * total:
                break
        self.most_uneven = self.unevenness
        return True

    def reweight(self) -> None:
        """Weight patches by the distances of their means from the present floor."""
        scale = np.hypot(self.noise, self.unevenness)
        self.trust = np.where(self.allowed, tukey_weights(self.residuals() / (TUKEY * scale)), 0.0)  # 0 if unseen
        # A patch does not determine the floor's level better than the floor is even.
        self.weights = np.where(self.trust > 0, self.trust * (self.noise / scale) ** 2, 0.0)

    def residuals(self) -> np.ndarray:
        """Return the patches' mean heights (P,) over the present floor; NaN if unseen."""
        return self._heights(self.by_plane[:, 0], self.gradient[:, 0])

    def _heights(self, by_plane: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return mean heights (P,) over the present floor by the first rows (P, 3) and entries (P,) of patches' normal
        equations."""
        weight = np.where(by_plane[:, 0] > 0, by_plane[:, 0], np.nan)
        heights = (by_plane @ self.solution[INCREMENT] - gradient) / weight
        return heights - self.shapes @ self.solution[CURVATURE]

    def solve(self) -> None:
        """Solve the normal equations of the weighted patches."""
        # A patch's mean over its plane is the curvature's rise there: a regressor like the increment's slopes.
        plane = np.einsum("p,pij->ij", self.weights, self.by_plane)
        both = -(self.weights[:, None] * self.by_plane[:, 0]).T @ self.shapes
        curved = ((self.weights * self.by_plane[:, 0, 0])[:, None] * self.shapes).T @ self.shapes
        self.information = self.prior + np.block([[plane, both], [both.T, curved]])
        by_curvature = -(self.weights * self.gradient[:, 0]) @ self.shapes
        self.solution = np.linalg.solve(self.information, np.r_[self.weights @ self.gradient, by_curvature])

    def is_curved(self) -> bool:
        """Return whether curvature explains most of the residuals of the plane. Patches with little weight are
        excluded: curvature must not fit the level of a carpet."""
        self.weights = np.where(self.trust > CORE, self.weights, 0.0)
        expected = float(self.weights.sum())
        excess = []
        for curvature in (LIKELY_CURVATURE, NONE):
            self.allow(curvature)
            self.solve()
            squares = self.weights * self.residuals() ** 2 / self.noise**2
            excess.append(float(np.sum(squares[self.weights > 0])) - expected)
        self.reweight()
        self.solve()
        curved, flat = excess
        return flat - curved > SIGNIFICANCE and curved < EXPLAINS * flat

    def _inflation(self, formal: np.ndarray) -> float:
        """Return the ratio, at least 1, of the increment's variance between blocks (a clustered sandwich estimate: with
        the shape of the floor and errors of single channels) to that by noise, `formal` (3, 3)."""
        inverse, rises = np.linalg.inv(self.information), self.shapes @ self.solution[CURVATURE]
        plane = np.einsum("pij,j->pi", self.by_plane, self.solution[INCREMENT])
        score = self.gradient - plane + self.by_plane[:, 0] * rises[:, None]
        scores = self.weights[:, None] * np.hstack([score, -score[:, :1] * self.shapes])
        ratios = [1.0]
        for size in BLOCKS:
            blocks = np.unique(np.floor(self.centres / size).astype(int), axis=0, return_inverse=True)[1].ravel()
            sums = group_sums(blocks, blocks.max() + 1, scores)
            count = np.count_nonzero(np.any(sums != 0, axis=1))
            meat = sums.T @ sums * (count / max(count - 3, 1))
            clustered = (inverse @ meat @ inverse)[INCREMENT, INCREMENT]
            ratios.append(float(np.trace(np.linalg.solve(formal, clustered)) / len(formal)))
        return max(ratios)

    def _by_waves(self) -> np.ndarray:
        """Return the covariance (3, 3) of the increment by the floor's waves. The fit follows part of them, so they are
        larger than its residuals, the unevenness."""
        if self.unevenness <= EVEN:
            return np.zeros((3, 3))
        seen = self.trust > LEAST_WEIGHT
        regressors = np.hstack([self.slopes, -self.shapes])[seen]
        weights = (self.weights * self.by_plane[:, 0, 0])[seen]
        by_heights = np.linalg.solve(self.information, (weights[:, None] * regressors).T)
        apart = np.linalg.norm(self.centres[seen, None] - self.centres[seen], axis=2)
        carried = by_heights @ np.exp(-apart / WAVES)
        of_solution = carried @ by_heights.T
        followed = np.einsum("pi,ip->p", regressors, carried)
        left = 1.0 - 2.0 * followed + np.einsum("pi,ij,pj->p", regressors, of_solution, regressors)
        # The robot stands on the floor's height at one place, which the fit follows in part.
        here = by_heights @ np.exp(-np.linalg.norm(self.centres[seen], axis=1) / WAVES)
        of_solution[0] -= here
        of_solution[:, 0] -= here
        of_solution[0, 0] += 1.0
        variance = (self.unevenness**2 - EVEN**2) / float(np.median(left))
        return variance * of_solution[INCREMENT, INCREMENT]

    @cached_property
    def seen_alike(self) -> float:
        """The standard deviation (m) of the floor's heights at points as far apart as wheels, by what lidars see
        alike of neighbouring patches, since errors of their channels differ. Its square is that of patches times
        `OF_POINTS`, less its own standard deviation, and that of `EVEN_POINTS`."""
        square = (cells.PATCHES_PER_SIDE,) * 2
        trust, block = self.trust.reshape(square), np.floor(self.centres / BLOCKS[0]).astype(int).reshape(*square, 2)
        heights = [self._heights(*of_lidar).reshape(square) for of_lidar in self.by_lidar]
        weights_of = [np.maximum(by_plane[:, 0], 1e-9).reshape(square) for by_plane, _ in self.by_lidar]
        variances = [1.0 / each + LEAST_SCATTER**2 for each in weights_of]
        products, weights, blocks = [], [], []
        for pair, axis in itertools.product(itertools.combinations(range(len(heights)), 2), (0, 1)):
            begin, end = ((slice(None),) * axis + (part,) for part in (slice(-1), slice(1, None)))
            product = np.prod([heights[lidar][end] - heights[lidar][begin] for lidar in pair], axis=0)
            variance = np.prod([variances[lidar][end] + variances[lidar][begin] for lidar in pair], axis=0)
            seen = np.isfinite(product) & (trust[begin] > LEAST_WEIGHT) & (trust[end] > LEAST_WEIGHT)
            products.append(product[seen] / 2.0)
            weights.append((trust[begin] * trust[end] / variance)[seen])
            blocks.append(block[begin][seen])
        if sum(map(len, products)) < MIN_PATCHES:
            return EVEN_POINTS
        product, weight = np.concatenate(products), np.concatenate(weights)
        mean = np.average(product, weights=weight)
        _, number = np.unique(np.concatenate(blocks), axis=0, return_inverse=True)
        deviation = np.linalg.norm(np.bincount(number.ravel(), weight * (product - mean))) / weight.sum()
        return float(np.sqrt(OF_POINTS * max(mean - deviation, 0.0) + EVEN_POINTS**2))

    @property
    def at_wheels(self) -> np.ndarray:
        """The covariance (3, 3) of the plane under the wheels about the finished floor's, by `seen_alike`."""
        tilts = 2.0 / WHEEL_RADIUS**2
        return self.seen_alike**2 / WHEELS * np.diag([1.0, tilts, tilts])

    def finished(self) -> "FloorFit":
        """Return the fit with its uncertainty."""
        formal = np.linalg.inv(self.information)[INCREMENT, INCREMENT]
        self.inflation = self._inflation(formal)
        trusted = self.trust[cells.PATCH_OF_CELLS] > LEAST_WEIGHT
        self.used = tuple(clean & trusted for clean in self.clean)
        self.increment = self.solution[INCREMENT]
        self.curvature = np.where(np.abs(self.solution[CURVATURE]) > 1e-9, self.solution[CURVATURE], 0.0)
        systematic = (self.inflation - 1.0) * formal
        # The point at which the plane touches a curved floor is known no better than the robot's place on it.
        systematic[1:, 1:] += np.eye(2) * np.sum(self.curvature**2) * TOUCHING_POINT**2
        variance = (0.4 * self.hidden_step) ** 2  # of its height a step moves a plane that lies between its levels
        systematic += np.diag([variance, variance / LEVER**2, variance / LEVER**2])
        self.systematic = systematic + self._by_waves()
        return self


@dataclass(frozen=True)
class FoundFloor:
    """The `floor` (in the description's base_footprint) before the last fit, the level `tiles` of the search, the
    `range_noise` (m), the `sums` of each lidar's rays over that floor, and their `fit`."""

    floor: Plane
    tiles: Tiles
    range_noise: float
    sums: list[cells.CellSums]
    fit: FloorFit

    @property
    def fitted(self) -> Plane:
        """The floor after the last fit, where the robot stands if it is curved."""
        return incremented(self.floor, self.fit.increment)


LEAST_NOISE = 0.0005  # m
SURFACE_NOISE = 0.001  # m, across the surface: roughness, and the aim
FIRST_ERROR = 0.006  # m, of the first plane: it must pass the gate


def find_floor(rays: Sequence[cells.FloorRays], settings: FloorSettings) -> FoundFloor | None:
    """Search the floor, refine the plane twice, and fit it; None if there is no floor within the search limits."""
    tiles = level_tiles(rays, settings)
    floor = search_floor(tiles, settings)
    if floor is None:
        return None
    # The noise of a range, by the tiles' thickness.
    lidar_height = rays[0].origin[2]
    reach = np.hypot(np.linalg.norm(tiles.centres[:, :2], axis=1), lidar_height)
    range_noise = float(np.median(tiles.thickness / HALF_INTERQUARTILE * reach / lidar_height))
    returns = float(np.median(np.concatenate([part.counts for part in rays])))
    range_noise = max(range_noise * np.sqrt(returns), LEAST_NOISE)
    for across_surface in (FIRST_ERROR, SURFACE_NOISE):
        # The first plane is millimetres off: only the second sums contain nothing but noise.
        sums = [cells.CellSums(part, floor, range_noise, across_surface) for part in rays]
        fit = fit_floor(sums, refine=False)
        if fit is None:
            return None
        floor = incremented(floor, fit.increment)
    of_lidars = list(zip(sums, fit.used, strict=True))
    squares = sum(float(part.range_squares[used].sum()) for part, used in of_lidars)
    means = sum(float(part.means[used].sum()) for part, used in of_lidars)
    range_noise = max(float(np.sqrt(squares / means)), LEAST_NOISE)
    sums = [cells.CellSums(part, floor, range_noise, SURFACE_NOISE) for part in rays]
    fit = fit_floor(sums)
    return None if fit is None else FoundFloor(floor, tiles, range_noise, sums, fit)


def nearest_plane(rays: Sequence[cells.FloorRays], settings: FloorSettings) -> Plane | None:
    """Return the floor as `search_floor`, within the much wider limits of 0.5 m and 10 deg, for messages."""
    wider = replace(settings, search_height=0.5, search_tilt=float(np.deg2rad(10.0)))
    return search_floor(level_tiles(rays, wider), wider)
