"""The robust plane through the patches of floor that lie on one surface.

The fit begins at a robust initialisation near the robot and weights patches by their distance from the plane (carpets,
thresholds and cables lose their weight), with a scale of at most the initial scatter (V. Yohai, "High breakdown-point
and high efficiency robust estimates for regression", 1987). If a step runs through the floor, only the robot's side is
fitted. Curvature is fitted as well if it explains most of the residuals of a plane; the plane is then the tangent at
the robot. The lidars' errors and poses are those of the joint estimate, which takes from this fit the weights of
patches, their unevenness, and whether the floor is curved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stretch_sim_cal.calibration.floor import cells
from stretch_sim_cal.calibration.floor.search import (
    Tiles,
    find_step,
    level_tiles,
    range_noise,
    robust_initialisation,
    search_floor,
)
from stretch_sim_cal.calibration.robust import TUKEY, robust_deviation, tukey_weights
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.geometry.planes import Plane, incremented

ITERATIONS = 15  # at most, until the weights' sum changes by no more than:
CONVERGED = 1e-3
# Bounds of how far patches of one floor may lie off its plane beyond noise (m): 1.5 mm is a poor floor already.
LEAST_UNEVENNESS, MOST_UNEVENNESS = 0.00005, 0.0015
MIN_PATCHES = 6
LEAST_WEIGHT = 0.1  # of a patch that belongs to the floor
WELL_KNOWN = 0.005  # m; patches whose height has a larger standard deviation are not used for the initialisation
BLOCKS = (0.75, 1.5)  # m; residuals are taken for independent only between blocks of these sizes
EVEN = 0.00015  # m; below it unevenness is what its estimate scatters by
# m: heights of an uneven floor at a distance d correlate by exp(-d / WAVES), as profiles do whose spectral density goes
# with the square of the wavelength (roads: ISO 8608). Half of a long wave looks like a slope.
WAVES = 1.0
LEVER = 1.5  # m over which a hidden step tilts the plane
TOUCHING_POINT = 0.05  # m
MOVED_BY_STEP = 0.4  # of its height a step moves a plane that lies between its levels
STEP_MARGIN = 0.2  # m before a step: a patch's half diagonal

# The unknowns of the fit, and the prior standard deviations (1/m) of the curvature if there is one, and if there is
# none.
INCREMENT, CURVATURE = slice(0, 3), slice(3, 6)
LIKELY_CURVATURE, NONE = 0.002, 1e-8  # 2 mm at 1.5 m
SIGNIFICANCE = 25.0  # chi square of three values: one in a hundred thousand
EXPLAINS = 0.7  # of the squared residuals beyond chance at most this part may remain for the floor to be curved
CORE = 0.5  # weight of patches that a curvature is fitted to: an edge to another level looks like the rim of a dome

FIRST_ERROR = 0.006  # m, of the first plane: it must pass the gate
LEAST_NOISE = 0.0005  # m
SURFACE_NOISE = 0.001  # m, across the surface: roughness, and the aim
WIDE_HEIGHT, WIDE_TILT = 0.5, float(np.deg2rad(10.0))


def fit_floor(lidars: Sequence[cells.CellSums], refine: bool = True) -> "FloorFit | None":
    """Fit the floor to the cells of all lidars, without `refine` a plane without steps and curvature; None if there is
    too little floor."""
    fit = FloorFit(lidars)
    if not (fit.initialise() and fit.converge()):
        return None
    if refine and fit.exclude_beyond_step() and not (fit.initialise() and fit.converge()):
        return None
    if refine and fit.is_curved():
        fit.allow(LIKELY_CURVATURE)
        if not fit.converge():
            return None
    return fit.finished()


class FloorFit:
    """The fit, iteratively reweighted least squares over patches on (increment, curvature), and its support.

    `increment` (3,) leads from the assumed to the fitted floor (height, tilt about x, tilt about y); `systematic` (3,
    3) is the part of its covariance that noise does not explain. `curvature` (3,) is the floor's (xx, xy, yy) in 1/m at
    the robot, 0 if it has none. `used` is one mask (cells,) per lidar. `trust` (P,) are the patches' weights from 0
    (left out) to 1. `unevenness` (m) is the standard deviation of patch means beyond noise and curvature, `inflation`
    how many times the scatter between blocks exceeds what noise alone explains (a variance ratio). `step` is where
    another level begins, which was left out.
    """

    def __init__(self, lidars: Sequence[cells.CellSums]):
        self.clean = [sums.unobstructed() for sums in lidars]
        self.patch_of_cells = cells.patch_of_cells()
        self.patches = [cells.PatchSums(sums, clean) for sums, clean in zip(lidars, self.clean, strict=True)]
        # Of each patch, by all lidars together: the mean height over the assumed floor, its standard deviation by noise
        # (NaN if unseen), and its derivatives by the increment.
        weight = sum(patches.weight for patches in self.patches)
        weight = np.where(weight > 0, weight, np.nan)
        self.heights = sum(patches.weighted_heights(np.zeros(3)) for patches in self.patches) / weight
        self.noise = weight**-0.5
        self.slopes = sum(patches.information[:, 0] for patches in self.patches) / weight[:, None]
        self.well_known = np.isfinite(self.heights) & (self.noise < WELL_KNOWN)
        self.centres = cells.patch_centres()
        # The mean points at which the patches' rays meet the floor: the levers of their slopes.
        levers = np.column_stack([self.slopes[:, 2], -self.slopes[:, 1]])
        x, y = np.where(np.isfinite(self.slopes[:, 1:]), levers, 0.0).T
        self.shapes = np.column_stack([x**2 / 2, x * y, y**2 / 2])
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
        self.allowed = self.step.beyond(self.centres) < -STEP_MARGIN
        return True

    def converge(self) -> bool:
        """Weight and solve in turn until the weights converge; False if too little floor is left."""
        total = 0.0
        for _ in range(ITERATIONS):
            self.reweight()
            if np.count_nonzero(self.trust > LEAST_WEIGHT) < MIN_PATCHES:
                return False
            self.solve()
            # The standard deviation of the patches' means beyond noise and curvature.
            trusted = self.trust > LEAST_WEIGHT
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
        weighted = sum(patches.weighted_heights(self.solution[INCREMENT]) for patches in self.patches)
        return weighted * self.noise**2 - self.rises

    @property
    def rises(self) -> np.ndarray:
        """The heights (P,) of the patches over the plane by the curvature, in m."""
        return self.shapes @ self.solution[CURVATURE]

    def solve(self) -> None:
        """Solve the normal equations of the weighted patches."""
        information, gradient = self.prior.copy(), np.zeros(6)
        for patches in self.patches:
            plane = np.einsum("p,pij->ij", self.weights, patches.information)
            # A patch's mean over its plane is the curvature's rise there: a regressor like the increment's slopes.
            both = -(self.weights[:, None] * patches.information[:, 0]).T @ self.shapes
            curved = ((self.weights * patches.weight)[:, None] * self.shapes).T @ self.shapes
            information += np.block([[plane, both], [both.T, curved]])
            gradient[INCREMENT] += self.weights @ patches.gradient
            gradient[CURVATURE] -= (self.weights * patches.gradient[:, 0]) @ self.shapes
        self.information = information
        self.solution = np.linalg.solve(information, gradient)

    def is_curved(self) -> bool:
        """Return whether curvature explains most of the residuals of the plane. Patches with little weight are left
        out: the level of a carpet must not be reached by curvature."""
        self.weights = np.where(self.trust > CORE, self.weights, 0.0)
        by_chance = float(self.weights.sum())
        excess = []
        for curvature in (LIKELY_CURVATURE, NONE):
            self.allow(curvature)
            self.solve()
            squares = self.weights * self.residuals() ** 2 / self.noise**2
            excess.append(float(np.sum(squares[self.weights > 0])) - by_chance)
        self.reweight()
        self.solve()
        curved, flat = excess
        return flat - curved > SIGNIFICANCE and curved < EXPLAINS * flat

    def _inflation(self, formal: np.ndarray) -> float:
        """Return the variance ratio, at least 1, of the increment's scatter between blocks over its covariance by
        noise, `formal` (3, 3). That scatter (a clustered sandwich estimate) contains the shape of the floor and errors
        of single channels."""
        inverse = np.linalg.inv(self.information)
        scores = np.zeros((len(self.weights), 6))
        for patches in self.patches:
            curved = patches.information[:, 0] * self.rises[:, None]
            plane = np.einsum("pij,j->pi", patches.information, self.solution[INCREMENT])
            score = patches.gradient - plane + curved
            scores += self.weights[:, None] * np.hstack([score, -score[:, :1] * self.shapes])
        ratios = [1.0]
        for size in BLOCKS:
            blocks = np.unique(np.floor(self.centres / size).astype(int), axis=0, return_inverse=True)[1].ravel()
            sums = np.zeros((blocks.max() + 1, 6))
            np.add.at(sums, blocks, scores)
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
        weights = (self.weights * sum(patches.weight for patches in self.patches))[seen]
        by_heights = np.linalg.solve(self.information, (weights[:, None] * regressors).T)
        apart = np.linalg.norm(self.centres[seen, None] - self.centres[seen], axis=2)
        carried = by_heights @ np.exp(-apart / WAVES)
        of_solution = carried @ by_heights.T
        followed = np.einsum("pi,ip->p", regressors, carried)
        left = 1.0 - 2.0 * followed + np.einsum("pi,ij,pj->p", regressors, of_solution, regressors)
        variance = (self.unevenness**2 - EVEN**2) / float(np.median(left))
        return variance * of_solution[INCREMENT, INCREMENT]

    def finished(self) -> "FloorFit":
        """Return the fit with its uncertainty."""
        formal = np.linalg.inv(self.information)[INCREMENT, INCREMENT]
        self.inflation = self._inflation(formal)
        trusted = self.trust[self.patch_of_cells] > LEAST_WEIGHT
        self.used = tuple(clean & trusted for clean in self.clean)
        self.increment = self.solution[INCREMENT]
        self.curvature = np.where(np.abs(self.solution[CURVATURE]) > 1e-9, self.solution[CURVATURE], 0.0)
        systematic = (self.inflation - 1.0) * formal
        # The point at which the plane touches a curved floor is known no better than the robot's place on it.
        systematic[1:, 1:] += np.eye(2) * np.sum(self.curvature**2) * TOUCHING_POINT**2
        variance = (MOVED_BY_STEP * self.hidden_step) ** 2
        systematic += np.diag([variance, variance / LEVER**2, variance / LEVER**2])
        self.systematic = systematic + self._by_waves()
        return self


@dataclass(frozen=True)
class FoundFloor:
    """The `floor` (in the description's base_footprint) before the last fit, the level `tiles` of the search, the
    `noise` of heights, the `sums` of each lidar's rays over that floor, and their `fit`."""

    floor: Plane
    tiles: Tiles
    noise: cells.HeightNoise
    sums: list[cells.CellSums]
    fit: FloorFit


def find_floor(rays: Sequence[cells.FloorRays], settings: FloorSettings) -> FoundFloor | None:
    """Search the floor in the rays of all lidars, refine the plane twice, and fit it; None if there is no floor within
    the search limits."""
    tiles = level_tiles(_measured(rays), settings)
    floor = search_floor(tiles, settings)
    if floor is None:
        return None
    returns = float(np.median(np.concatenate([part.counts for part in rays])))
    along_ray = max(range_noise(tiles, rays[0].origin[2]) * np.sqrt(returns), LEAST_NOISE)
    for across_surface in (FIRST_ERROR, SURFACE_NOISE):
        # The first plane is millimetres off: only the second sums contain nothing but noise.
        sums = [cells.CellSums(part, floor, cells.HeightNoise(along_ray, across_surface)) for part in rays]
        fit = fit_floor(sums, refine=False)
        if fit is None:
            return None
        floor = incremented(floor, fit.increment)
    squares = sum(float(part.range_squares[used].sum()) for part, used in zip(sums, fit.used, strict=True))
    means = sum(float(part.means[used].sum()) for part, used in zip(sums, fit.used, strict=True))
    noise = cells.HeightNoise(max(float(np.sqrt(squares / means)), LEAST_NOISE), SURFACE_NOISE)
    sums = [cells.CellSums(part, floor, noise) for part in rays]
    fit = fit_floor(sums)
    return None if fit is None else FoundFloor(floor, tiles, noise, sums, fit)


def nearest_level_surface(rays: Sequence[cells.FloorRays], settings: FloorSettings) -> Plane | None:
    """Return the level surface around the robot within much wider limits, for messages."""
    wider = replace(settings, search_height=WIDE_HEIGHT, search_tilt=WIDE_TILT)
    return search_floor(level_tiles(_measured(rays), wider), wider)


def _measured(rays: Sequence[cells.FloorRays]) -> np.ndarray:
    """Return the measured points (N, 3) of all rays in the description's base_footprint, without those on the robot."""
    nominal = Plane(np.array([0.0, 0.0, 1.0]), 0.0)
    return np.concatenate([part.against(nominal).measured[~part.on_robot] for part in rays])
