"""Fitting the floor to cells of rays: the robust plane through the patches that lie on one surface.

The fit begins with the plane that the better part of the floor near the robot agrees on, and weighs patches by how near
they lie to it (carpets, thresholds and cables lose their weight). Two more things are fitted along, each only as large as
there is reason to believe: by how much the right lidar sees the floor off (as unsure as the alignment is), and how the
floor bends (only where the data shows that it does; the plane is then the one that touches it at the robot).
"""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.floor_cells import CellSums
from stretch_sim_cal.calibration.floor_consensus import consensus_step
from stretch_sim_cal.calibration.floor_patches import PatchSums, clean_cells, mean_heights

TUKEY = 4.685  # 95 % efficiency on Gaussian data
REFINEMENTS = 15  # at most, until the trust in all patches together changes by no more than:
SETTLED = 1e-3
# Bounds of how far patches of one floor may lie off its plane beyond noise (m): 1.5 mm is a poor floor already.
LEAST_UNEVENNESS, MOST_UNEVENNESS = 0.00005, 0.0015
UNEVENNESS_MARGIN = 0.0002
MIN_PATCHES = 6
WELL_KNOWN = 0.005  # m; patches whose height is known worse than this do not help to begin
BLOCKS = (0.75, 1.5)  # m; residuals are taken for independent only between blocks of these sizes
FREE_BEND = 0.01  # 1/m; as good as unknown
NO_BEND = 1e-8
EVEN = 0.00015  # m; below it unevenness is what its estimate scatters by
SYSTEMATIC_SHARE, LEVER = 0.3, 1.5  # of unevenness beyond that, and over what distance (m) it tilts the plane
BEND_EXPLAINS = 0.5  # so much of the squared residuals at most may remain
TOUCHING_POINT = 0.05  # m
BEND_SIGNIFICANCE = 16.3  # chi square of three values, 0.1 %


@dataclass(frozen=True)
class FloorFit:
    """The fitted step and what it rests on.

    `step` (3,) leads from the assumed to the fitted floor (height, tilt about x, tilt about y), `covariance` (3, 3) is its
    own. `bend` (3,) are the floor's curvatures (xx, xy, yy) in 1/m at the robot, 0 where it shows none. `used` is one mask
    (cells,) per lidar. `patch_heights` (P,) are mean heights over the fitted floor, `patch_noise` (P,) their deviations by
    noise alone (both NaN where no ray met it), `patch_weights` (P,) from 0 (left out) to 1. `unevenness` (m) is the deviation
    of patch means beyond noise and bend, `inflation` how many times the scatter between blocks exceeds what noise alone
    explains (a variance ratio).
    """

    step: np.ndarray
    covariance: np.ndarray
    bend: np.ndarray
    used: tuple[np.ndarray, np.ndarray]
    patch_heights: np.ndarray
    patch_noise: np.ndarray
    patch_weights: np.ndarray
    unevenness: float
    inflation: float


def fit_floor(left: CellSums, right: CellSums, right_prior: np.ndarray, may_bend: bool = True) -> FloorFit | None:
    """Fit the floor; `right_prior` (3, 3) is the covariance of how far off the alignment lets the right lidar see it.

    None where too little floor is left to fit.
    """
    fit = _RobustFit(left, right, right_prior)
    if not fit.begin():
        return None
    if not fit.refine(NO_BEND):
        return None
    if may_bend and fit.bends() and not (fit.refine(FREE_BEND) and fit.refine(fit.believable_bend())):
        return None
    return fit.result()


class _RobustFit:
    """Iteratively reweighted least squares over patches, on (step, right lidar's disagreement, bend), 3 values each."""

    def __init__(self, left: CellSums, right: CellSums, right_prior: np.ndarray):
        self.grid = left.grid
        self.clean = clean_cells(left), clean_cells(right)
        self.patches = PatchSums(left, self.clean[0]), PatchSums(right, self.clean[1])
        self.noise = mean_heights(self.patches)[1]
        self.right_precision = np.linalg.inv(right_prior)
        centres = left.grid.patch_centres()
        x, y = centres.T
        self.distances = np.linalg.norm(centres, axis=1)
        self.bend_shape = np.column_stack([x**2 / 2, x * y, y**2 / 2])
        self.blocks = [
            np.unique(np.floor(centres / size).astype(int), axis=0, return_inverse=True)[1].ravel() for size in BLOCKS
        ]
        self.solution = np.zeros(9)
        self.unevenness, self.most_uneven = LEAST_UNEVENNESS, MOST_UNEVENNESS
        self.bend = NO_BEND

    @property
    def steps(self) -> tuple[np.ndarray, np.ndarray]:
        """The step to the floor as the left and as the right lidar sees it."""
        return self.solution[:3], self.solution[:3] + self.solution[3:6]

    def begin(self) -> bool:
        """Start from what most of the floor agrees on; False where there is too little of it."""
        heights, noise, slopes = mean_heights(self.patches)
        seen = np.isfinite(heights) & (noise < WELL_KNOWN)
        if np.count_nonzero(seen) < MIN_PATCHES:
            return False
        consensus = consensus_step(heights[seen], noise[seen], slopes[seen], self.distances[seen])
        if consensus is None:
            return False
        self.solution[:3], unevenness = consensus
        self.unevenness = float(np.clip(unevenness, LEAST_UNEVENNESS, MOST_UNEVENNESS))
        self.most_uneven = float(np.clip(1.5 * unevenness + UNEVENNESS_MARGIN, LEAST_UNEVENNESS, MOST_UNEVENNESS))
        return True

    def refine(self, bend: float) -> bool:
        """Fit and select in turn, the bend with a prior deviation of `bend` (1/m); False where too little is left.

        The floor that was agreed on is not to grow more uneven by reaching for other levels, least of all by bending.
        """
        most_uneven = self.most_uneven if bend == NO_BEND else self.unevenness
        self.bend = bend
        trusted = 0.0
        for _ in range(REFINEMENTS):
            self.select()
            if np.count_nonzero(self.trust > 0.1) < MIN_PATCHES:
                return False
            self.solve()
            self.unevenness = min(self._scatter(), most_uneven)
            before, trusted = trusted, float(self.trust.sum())
            if abs(trusted - before) < SETTLED * trusted:
                break
        return True

    def bends(self) -> bool:
        """Return whether a bend explains most of what the plane leaves unexplained of the floor chosen for it.

        Other floor is not asked: a carpet's level must not be reached by bending.
        """
        flat = self._misfit()
        self.bend = FREE_BEND
        self.solve()
        bent = self._misfit()
        self.bend = NO_BEND
        self.solve()
        return bent < BEND_EXPLAINS * flat

    def _misfit(self) -> float:
        """Return the weighted sum of squares of the patches' residuals, in units of their noise and unevenness."""
        chosen = self.weights > 0
        return float(np.sum((self.weights * self.residuals() ** 2 / self.noise**2)[chosen]))

    def select(self) -> None:
        """Weigh patches by how near their means lie to the present floor."""
        scale = np.hypot(self.noise, self.unevenness)
        ratio = self.residuals() / (TUKEY * scale)
        self.trust = np.where(np.abs(ratio) < 1, (1 - ratio**2) ** 2, 0.0)  # 0 where unseen
        # A patch knows the floor's level no better than the floor is even.
        self.weights = np.where(self.trust > 0, self.trust * (self.noise / scale) ** 2, 0.0)

    def heights(self) -> np.ndarray:
        """Return the patches' mean heights (P,) over the present plane, each lidar by its own; NaN where unseen."""
        deviation = sum(patches.deviation(step) for patches, step in zip(self.patches, self.steps, strict=True))
        return deviation * self.noise**2

    def residuals(self) -> np.ndarray:
        """Return the patches' mean heights (P,) over the present plane and its bend; NaN where unseen."""
        return self.heights() - self.bend_heights

    @property
    def bend_heights(self) -> np.ndarray:
        """How high (P,) the bend lifts each patch over the plane, in m."""
        return self.bend_shape @ self.solution[6:]

    def solve(self) -> None:
        """Find step, disagreement and bend from the weighted patches."""
        hessian, pull = np.zeros((9, 9)), np.zeros(9)
        for patches, right in zip(self.patches, (False, True), strict=True):
            information = np.einsum("p,pij->ij", self.weights, patches.information)
            # A patch's mean over its plane is a bend's height there: a regressor like the steps' slopes.
            bent = np.einsum("p,pi,pj->ij", -self.weights, patches.information[:, 0], self.bend_shape)
            bends = np.einsum("p,pi,pj->ij", self.weights * patches.weight, self.bend_shape, self.bend_shape)
            part = np.block([[information, bent], [bent.T, bends]])
            part_pull = np.concatenate([self.weights @ patches.pull, -(self.weights * patches.pull[:, 0]) @ self.bend_shape])
            spread = _spread(right)
            hessian += spread.T @ part @ spread
            pull += spread.T @ part_pull
        hessian[3:6, 3:6] += self.right_precision
        hessian[6:, 6:] += np.eye(3) / self.bend**2
        self.hessian = hessian
        self.solution = np.linalg.solve(hessian, pull)

    def _scatter(self) -> float:
        """Return the deviation of the patches' means beyond noise and bend, robustly, within the bounds assumed."""
        trusted = self.trust > 0.1
        spread = 1.4826 * np.median(np.abs(self.residuals()[trusted]))
        excess = spread**2 - np.median(self.noise[trusted] ** 2)
        return float(np.clip(np.sqrt(max(excess, 0.0)), LEAST_UNEVENNESS, MOST_UNEVENNESS))

    def believable_bend(self) -> float:
        """Return how much bend there is reason to believe in (1/m): none, unless the free fit shows it clearly."""
        bend = self.solution[6:]
        covariance = np.linalg.inv(self.hessian)[6:, 6:] * self._inflation(np.arange(6, 9))
        significant = bend @ np.linalg.solve(covariance, bend) > BEND_SIGNIFICANCE
        return float(np.sqrt(np.mean(bend**2))) if significant else NO_BEND

    def _inflation(self, values: np.ndarray) -> float:
        """Return how many times more some values' blocks scatter than noise explains (a variance ratio).

        The scatter between blocks (a sandwich estimate, clustered) sees what noise does not explain: shape of the floor,
        biases of single channels. Where it is less than noise explains, that is chance.
        """
        inverse = np.linalg.inv(self.hessian)
        scores = np.zeros((len(self.weights), 9))
        for patches, step, right in zip(self.patches, self.steps, (False, True), strict=True):
            score = patches.pull - patches.information @ step + patches.information[:, 0] * self.bend_heights[:, None]
            bend_score = -score[:, :1] * self.bend_shape
            scores += self.weights[:, None] * np.hstack([score, bend_score]) @ _spread(right)
        formal = inverse[np.ix_(values, values)]
        ratios = [1.0]
        for blocks in self.blocks:
            sums = np.zeros((blocks.max() + 1, 9))
            np.add.at(sums, blocks, scores)
            count = np.count_nonzero(np.any(sums != 0, axis=1))
            meat = sums.T @ sums * (count / max(count - 3, 1))
            meat[3:6, 3:6] += self.right_precision
            clustered = (inverse @ meat @ inverse)[np.ix_(values, values)]
            ratios.append(float(np.trace(np.linalg.solve(formal, clustered)) / len(values)))
        return max(ratios)

    def result(self) -> FloorFit:
        inflation = self._inflation(np.arange(3))
        trusted = self.trust[self.grid.patch_of_cells()] > 0.1
        bend = self.solution[6:] if self.bend > NO_BEND else np.zeros(3)
        covariance = inflation * np.linalg.inv(self.hessian)[:3, :3]
        # Where on a bent floor the plane touches it is known no better than the robot's place on it.
        covariance[1:, 1:] += np.eye(2) * np.sum(bend**2) * TOUCHING_POINT**2
        # What makes a floor uneven need not be chance: a step of 2 mm across it looks like unevenness, and moves the plane.
        systematic = SYSTEMATIC_SHARE**2 * max(self.unevenness**2 - EVEN**2, 0.0)
        covariance += np.diag([systematic, systematic / LEVER**2, systematic / LEVER**2])
        return FloorFit(
            step=self.solution[:3],
            covariance=covariance,
            bend=bend,
            used=tuple(clean & trusted for clean in self.clean),
            patch_heights=self.heights(),
            patch_noise=self.noise,
            patch_weights=self.trust,
            unevenness=self.unevenness,
            inflation=inflation,
        )


def _spread(right: bool) -> np.ndarray:
    """Return which of the nine values (6, 9) a lidar's (step, bend) is made of: the right one's step adds its own."""
    spread = np.zeros((6, 9))
    spread[:3, :3] = spread[3:, 6:] = np.eye(3)
    if right:
        spread[:3, 3:6] = np.eye(3)
    return spread
