"""Fitting the floor to cells of rays: the robust plane through the patches that lie on one surface.

The fit begins with the plane that the better part of the floor near the robot agrees on, and weighs patches by how near
they lie to it (carpets, thresholds and cables lose their weight), at no larger scale than that plane's own scatter (V.
Yohai, "High breakdown-point and high efficiency robust estimates for regression", 1987). The floor's curvature is fitted
along (the plane is then the one that touches it at the robot) if it explains most of what a plane leaves. The lidars' own
errors are already taken out, and both lidars are where the joint estimate has them.

A start for the fit that no carpet, step or second level can pull: least trimmed squares over patches of floor.

Of all planes, the one that the better part of the floor lies on most exactly; floor near the robot counts more than far
floor (P. Rousseeuw and K. Van Driessen, "Computing LTS regression for large data sets", 2006, with weights).

A step of a few millimetres that runs through the floor: two levels that a plane would lie between.

Each of them is a floor, so no patch of them is an outlier, and their heights scatter about the plane between them as those
of an uneven floor do. So the step is asked for: of all straight lines the one whose two sides differ most surely in
height, where that explains what the plane leaves, and better than a bend or ranges that are too long do. The robot stands
on one side.
"""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.floor.rays import CellSums, PatchSums, clean_cells, mean_heights

AGREEING_SHARE = 0.45  # of the floor's weight that has to agree; what a second level may not hide behind
HYPOTHESES = 300
REFINED = 12
CONCENTRATIONS = 12
QUANTILE_OF_NORMAL = 0.5978  # of |z|, at that share
# Patches count by how near they are: those within NEARNESS (m) as much as twice all the others together, if all are
# seen.
NEARNESS = 0.6
FAR_WEIGHT = 0.03
LEAST_SCALE = 0.0003  # m; agreement closer than this is not looked for


def consensus_step(
    heights: np.ndarray, noise: np.ndarray, slopes: np.ndarray, distances: np.ndarray
) -> tuple[np.ndarray, float] | None:
    """Return the step (3,) to the plane most patches agree on, and their scatter about it beyond noise (m).

    `heights` (P,), `noise` (P,) and `slopes` (P, 3) are those of the patches over the assumed floor, `distances` (P,)
    how far each lies from the robot. None where no three patches span a plane.
    """
    weights = np.maximum(np.exp(-(distances**2) / (2 * NEARNESS**2)), FAR_WEIGHT)
    scale = np.hypot(noise, LEAST_SCALE)
    candidates = _steps_through_triples(heights, slopes, weights)
    if not len(candidates):
        return None
    scores, _ = _scores(np.abs(heights + candidates @ slopes.T) / scale, weights)
    steps = candidates[np.argsort(scores, kind="stable")[:REFINED]]
    for _ in range(CONCENTRATIONS):
        ratios = np.abs(heights + steps @ slopes.T) / scale
        agreeing = ratios <= _scores(ratios, weights)[1][:, None]
        steps = _least_squares(heights, slopes, agreeing * weights / scale**2, steps)
    best = steps[np.argmin(_scores(np.abs(heights + steps @ slopes.T) / scale, weights)[0])]
    residuals = np.abs(heights + slopes @ best)
    spread = _quantiles(residuals[None], weights, AGREEING_SHARE)[0] / QUANTILE_OF_NORMAL
    usual_noise = _quantiles(noise[None], weights, 0.5)[0]
    return best, float(np.sqrt(max(spread**2 - usual_noise**2, 0.0)))


def _steps_through_triples(heights: np.ndarray, slopes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return steps (H, 3) to planes through three patches each, the same random ones in every run."""
    rng = np.random.default_rng(0)
    chances = np.sqrt(weights)  # between what counts most and what spans the floor
    triples = rng.choice(len(heights), size=(HYPOTHESES, 3), p=chances / chances.sum())
    systems = slopes[triples]
    spanning = np.abs(np.linalg.det(systems)) > 0.2  # m2, twice the triangle's area
    return np.linalg.solve(systems[spanning], -heights[triples][spanning][:, :, None])[:, :, 0]


def _scores(ratios: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the trimmed sums of squares (H,) of residuals in units of their noise (H, P), and where each is
    trimmed."""
    limits = _quantiles(ratios, weights, AGREEING_SHARE)
    return np.where(ratios <= limits[:, None], ratios**2, 0.0) @ weights, limits


def _quantiles(values: np.ndarray, weights: np.ndarray, share: float) -> np.ndarray:
    """Return the weighted quantile (H,) of each row of values (H, P)."""
    order = np.argsort(values, axis=1)  # equal values in any order: they are one quantile
    cumulated = np.cumsum(weights[order], axis=1)
    place = np.argmax(cumulated >= share * cumulated[:, -1:], axis=1)
    return np.take_along_axis(values, np.take_along_axis(order, place[:, None], axis=1), axis=1)[:, 0]


def _least_squares(heights: np.ndarray, slopes: np.ndarray, weights: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Return the step (H, 3) for each row of weights (H, P); where one leaves it undetermined, the row of
    `otherwise`."""
    normal = np.einsum("hp,pi,pj->hij", weights, slopes, slopes, optimize=True)
    determined = np.linalg.cond(normal) < 1e8
    steps = otherwise.copy()
    right = -(weights[determined] * heights) @ slopes
    steps[determined] = np.linalg.solve(normal[determined], right[:, :, None])[:, :, 0]
    return steps


ANGLES = 24  # over half a turn
REACH, SPACING = 2.5, 0.1  # m: how far from the robot lines are looked for, and how far apart
GATE = 0.006  # m beyond noise; what lies farther off the plane is another level to everyone
LEAST_NOISE = 0.0003  # m; patches are not asked to agree better
LEAST_STEP = 0.0008  # m; lower ones do little harm
STEP_SIGNIFICANCE = 25.0  # chi square of one height, at the best of a thousand lines; on even floors it is 6 to 10
SUSPICION = 12.0  # from here on a step may be there that is not seen
STEP_EXPLAINS = 0.5  # of the squared residuals beyond chance at most this part may remain
LEAST_SHARE = 0.1  # of the patches on either side

DIRECTIONS = ("ahead", "ahead to the left", "to the left", "behind to the left",
              "behind", "behind to the right", "to the right", "ahead to the right")  # fmt: skip


def direction_in_words(bearing: float) -> str:
    """Return a bearing (rad, 0 ahead, turning to the left) as one of eight directions seen from the robot."""
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
    """Return the step that the patches show, or None; and how high (m) one may be that they do not show surely.

    `places` (P, 2) are the patches', `heights` (P,) theirs over a plane near the floor and `noise` (P,) its deviation,
    `slopes` (P, 3) how that falls with the plane's step, `others` (P, K) with what else may be the cause.
    """
    near = np.abs(heights) < GATE + 3.0 * noise
    places, heights, slopes, others = places[near], heights[near], slopes[near], others[near]
    scale = 1.0 / np.hypot(noise[near], LEAST_NOISE)
    normals, distances = _lines()
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
    if explained[best] < SUSPICION or excess - explained[best] > STEP_EXPLAINS * excess:
        return None, 0.0
    otherwise = np.linalg.qr(_without(plane, others * scale[:, None]))[0]
    if np.sum((otherwise.T @ left_over) ** 2) > explained[best]:
        return None, 0.0
    if explained[best] < STEP_SIGNIFICANCE or abs(steps[best]) < LEAST_STEP:
        return None, float(abs(steps[best]))
    normal, distance = normals[best // len(distances)], float(distances[best % len(distances)])
    sign = 1.0 if distance >= 0 else -1.0
    return Step(sign * distance, float(np.arctan2(*(sign * normal)[::-1])), sign * float(steps[best])), 0.0


def _lines() -> tuple[np.ndarray, np.ndarray]:
    """Return unit normals (ANGLES, 2) of lines, and their distances (D,) from the robot along them."""
    angles = np.arange(ANGLES) * np.pi / ANGLES
    return np.column_stack([np.cos(angles), np.sin(angles)]), np.arange(-REACH, REACH + SPACING / 2, SPACING)


def _without(basis: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return columns (P, L) less their parts in an orthonormal basis (P, K)."""
    return columns - basis @ (basis.T @ columns)


TUKEY = 4.685  # 95 % efficiency on Gaussian data
REFINEMENTS = 15  # at most, until the trust in all patches together changes by no more than:
SETTLED = 1e-3
# Bounds of how far patches of one floor may lie off its plane beyond noise (m): 1.5 mm is a poor floor already.
LEAST_UNEVENNESS, MOST_UNEVENNESS = 0.00005, 0.0015
MIN_PATCHES = 6
WELL_KNOWN = 0.005  # m; patches whose height is known worse than this do not help to begin
BLOCKS = (0.75, 1.5)  # m; residuals are taken for independent only between blocks of these sizes
EVEN = 0.00015  # m; below it unevenness is what its estimate scatters by
SYSTEMATIC_SHARE, LEVER = 0.3, 1.5  # of unevenness beyond that, and over what distance (m) it tilts the plane
TOUCHING_POINT = 0.05  # m
MOVED_BY_STEP = 0.4  # of its height a step moves a plane that lies between its levels
STEP_MARGIN = 0.2  # m before a step: a patch's half diagonal

# The values that are solved for, and the prior deviations of those that may be there or not: (1/m) and (m).
STEP, BEND = slice(0, 3), slice(3, 6)
NUM_VALUES = 6
LIKELY_BEND, NONE = 0.002, 1e-8  # 1/m, 2 mm at 1.5 m
SIGNIFICANCE = 25.0  # chi square of three values: one in a hundred thousand
EXPLAINS = 0.7  # of the squared residuals beyond chance at most this part may remain for them to be there
CORE = 0.5  # trust in the patches that are asked for a bend: an edge to another level looks like the rim of a dome


@dataclass(frozen=True)
class FloorFit:
    """The fitted step and what it rests on.

    `step` (3,) leads from the assumed to the fitted floor (height, tilt about x, tilt about y), `covariance` (3, 3) is
    its own, of which `systematic` (3, 3) is not chance. `bend` (3,) are the floor's curvatures (xx, xy, yy) in 1/m at the robot, 0 where it shows none. `used` is one mask (cells,) per
    lidar. `patch_weights` (P,) go from 0 (left out) to 1. `unevenness` (m) is the deviation of patch means beyond noise
    and bend, `inflation` how many times the scatter between blocks exceeds what noise alone explains (a variance
    ratio). `step_in_floor` is where the floor has another level, which was left out.
    """

    step: np.ndarray
    covariance: np.ndarray
    systematic: np.ndarray
    bend: np.ndarray
    used: tuple[np.ndarray, np.ndarray]
    patch_weights: np.ndarray
    unevenness: float
    inflation: float
    step_in_floor: Step | None = None


def fit_floor(left: CellSums, right: CellSums, refine: bool = True) -> FloorFit | None:
    """Fit the floor to what both lidars see.

    Without `refine` a plane is fitted and nothing else. None where too little floor is left to fit.
    """
    fit = _RobustFit(left, right)
    if not fit.begin() or not fit.settle():
        return None
    if refine and fit.stay_on_this_side_of_a_step() and not (fit.begin() and fit.settle()):
        return None
    if refine and fit.is_bent():
        fit.allow(LIKELY_BEND)
        if not fit.settle():
            return None
    return fit.result()


class _RobustFit:
    """Iteratively reweighted least squares over patches on (step, bend)."""

    def __init__(self, left: CellSums, right: CellSums):
        self.grid = left.grid
        self.clean = clean_cells(left), clean_cells(right)
        self.patches = PatchSums(left, self.clean[0]), PatchSums(right, self.clean[1])
        _, self.noise, slopes = mean_heights(self.patches)
        centres = left.grid.patch_centres()
        self.distances = np.linalg.norm(centres, axis=1)
        # Where a patch's rays meet the floor on average: the levers that its slopes are made of.
        x, y = np.where(np.isfinite(slopes[:, 1:]), np.column_stack([slopes[:, 2], -slopes[:, 1]]), 0.0).T
        self.bend_shape = np.column_stack([x**2 / 2, x * y, y**2 / 2])
        self.blocks = [
            np.unique(np.floor(centres / size).astype(int), axis=0, return_inverse=True)[1].ravel() for size in BLOCKS
        ]
        self.centres, self.allowed = centres, np.ones(len(centres), bool)
        self.step, self.hidden_step = None, 0.0
        self.solution = np.zeros(NUM_VALUES)
        self.unevenness, self.most_uneven = LEAST_UNEVENNESS, MOST_UNEVENNESS
        self.allow(NONE)

    def allow(self, bend: float) -> None:
        """Set the prior deviation of the bend (1/m)."""
        self.prior = np.zeros((NUM_VALUES, NUM_VALUES))
        self.prior[BEND, BEND] = np.eye(3) / bend**2

    def begin(self) -> bool:
        """Start from what most of the floor agrees on; False where there is too little of it."""
        heights, noise, slopes = mean_heights(self.patches)
        seen = np.isfinite(heights) & (noise < WELL_KNOWN) & self.allowed
        if np.count_nonzero(seen) < MIN_PATCHES:
            return False
        consensus = consensus_step(heights[seen], noise[seen], slopes[seen], self.distances[seen])
        if consensus is None:
            return False
        self.solution[:] = 0.0
        self.solution[STEP], unevenness = consensus
        # The floor that was agreed on is not to grow more uneven by reaching for other levels.
        self.unevenness = self.most_uneven = float(np.clip(unevenness, LEAST_UNEVENNESS, MOST_UNEVENNESS))
        return True

    def stay_on_this_side_of_a_step(self) -> bool:
        """Look for a step through the floor; where there is one, leave out what lies beyond it and return True."""
        heights, noise, slopes = mean_heights(self.patches)
        seen = np.isfinite(heights) & (noise < WELL_KNOWN)
        self.step, self.hidden_step = find_step(
            self.centres[seen], self.residuals()[seen], noise[seen], slopes[seen],
            self.bend_shape[seen],
        )  # fmt: skip
        if self.step is None:
            return False
        self.allowed = self.step.beyond(self.centres) < -STEP_MARGIN
        return True

    def settle(self) -> bool:
        """Select and fit in turn until the selection settles; False where too little is left."""
        trusted = 0.0
        for _ in range(REFINEMENTS):
            self.select()
            if np.count_nonzero(self.trust > 0.1) < MIN_PATCHES:
                return False
            self.solve()
            self.unevenness = min(self._scatter(), self.most_uneven)
            before, trusted = trusted, float(self.trust.sum())
            if abs(trusted - before) < SETTLED * trusted:
                break
        self.most_uneven = self.unevenness
        return True

    def select(self) -> None:
        """Weigh patches by how near their means lie to the present floor."""
        scale = np.hypot(self.noise, self.unevenness)
        ratio = self.residuals() / (TUKEY * scale)
        self.trust = np.where((np.abs(ratio) < 1) & self.allowed, (1 - ratio**2) ** 2, 0.0)  # 0 where unseen
        # A patch knows the floor's level no better than the floor is even.
        self.weights = np.where(self.trust > 0, self.trust * (self.noise / scale) ** 2, 0.0)

    def residuals(self) -> np.ndarray:
        """Return the patches' mean heights (P,) over the present floor; NaN where unseen."""
        deviation = sum(patches.deviation(self.solution[STEP]) for patches in self.patches)
        return deviation * self.noise**2 - self.bend_heights

    @property
    def bend_heights(self) -> np.ndarray:
        """How high (P,) the bend lifts each patch over the plane, in m."""
        return self.bend_shape @ self.solution[BEND]

    def solve(self) -> None:
        """Find all values from the weighted patches."""
        hessian, pull = self.prior.copy(), np.zeros(NUM_VALUES)
        for patches in self.patches:
            information = np.einsum("p,pij->ij", self.weights, patches.information)
            # A patch's mean over its plane is a bend's height there: a regressor like the steps' slopes.
            bent = np.einsum("p,pi,pj->ij", -self.weights, patches.information[:, 0], self.bend_shape)
            bends = np.einsum("p,pi,pj->ij", self.weights * patches.weight, self.bend_shape, self.bend_shape)
            hessian += np.block([[information, bent], [bent.T, bends]])
            pull[STEP] += self.weights @ patches.pull
            pull[BEND] -= (self.weights * patches.pull[:, 0]) @ self.bend_shape
        self.hessian = hessian
        self.solution = np.linalg.solve(hessian, pull)

    def is_bent(self) -> bool:
        """Return whether a bend explains most of what the plane leaves of its own floor.

        Other floor than the plane's own is not asked: a carpet's level must not be reached by bending.
        """
        self.weights = np.where(self.trust > CORE, self.weights, 0.0)
        by_chance = float(self.weights.sum())
        excess = []
        for bend in (LIKELY_BEND, NONE):
            self.allow(bend)
            self.solve()
            excess.append(self._misfit() - by_chance)
        self.select()
        self.solve()
        bent, flat = excess
        return flat - bent > SIGNIFICANCE and bent < EXPLAINS * flat

    def _misfit(self) -> float:
        """Return the weighted sum of squares of the patches' residuals, in units of their noise and unevenness."""
        chosen = self.weights > 0
        return float(np.sum((self.weights * self.residuals() ** 2 / self.noise**2)[chosen]))

    def _scatter(self) -> float:
        """Return the deviation of the patches' means beyond noise and bend, robustly, within the bounds assumed."""
        trusted = self.trust > 0.1
        spread = 1.4826 * np.median(np.abs(self.residuals()[trusted]))
        excess = spread**2 - np.median(self.noise[trusted] ** 2)
        return float(np.clip(np.sqrt(max(excess, 0.0)), LEAST_UNEVENNESS, MOST_UNEVENNESS))

    def _inflation(self, values: slice) -> float:
        """Return how many times more some values' blocks scatter than noise explains (a variance ratio).

        The scatter between blocks (a sandwich estimate, clustered) sees what noise does not explain: shape of the
        floor, biases of single channels. Where it is less than noise explains, that is chance.
        """
        inverse = np.linalg.inv(self.hessian)
        scores = np.zeros((len(self.weights), NUM_VALUES))
        for patches in self.patches:
            bent = patches.information[:, 0] * self.bend_heights[:, None]
            score = patches.pull - np.einsum("pij,j->pi", patches.information, self.solution[STEP]) + bent
            scores += self.weights[:, None] * np.hstack([score, -score[:, :1] * self.bend_shape])
        formal = inverse[values, values]
        ratios = [1.0]
        for blocks in self.blocks:
            sums = np.zeros((blocks.max() + 1, NUM_VALUES))
            np.add.at(sums, blocks, scores)
            count = np.count_nonzero(np.any(sums != 0, axis=1))
            meat = sums.T @ sums * (count / max(count - 3, 1))
            clustered = (inverse @ meat @ inverse)[values, values]
            ratios.append(float(np.trace(np.linalg.solve(formal, clustered)) / len(formal)))
        return max(ratios)

    def result(self) -> FloorFit:
        inflation = self._inflation(STEP)
        trusted = self.trust[self.grid.patch_of_cells()] > 0.1
        formal = np.linalg.inv(self.hessian)[STEP, STEP]
        covariance = inflation * formal
        bend = np.where(np.abs(self.solution[BEND]) > 1e-9, self.solution[BEND], 0.0)
        # Where on a bent floor the plane touches it is known no better than the robot's place on it.
        covariance[1:, 1:] += np.eye(2) * np.sum(bend**2) * TOUCHING_POINT**2
        # What makes a floor uneven need not be chance: a step of 2 mm across it looks like unevenness, and moves the
        # plane.
        systematic = SYSTEMATIC_SHARE**2 * max(self.unevenness**2 - EVEN**2, 0.0)
        systematic += (MOVED_BY_STEP * self.hidden_step) ** 2
        covariance += np.diag([systematic, systematic / LEVER**2, systematic / LEVER**2])
        return FloorFit(
            step=self.solution[STEP],
            covariance=covariance,
            systematic=covariance - formal,
            bend=bend,
            used=tuple(clean & trusted for clean in self.clean),
            patch_weights=self.trust,
            unevenness=self.unevenness,
            inflation=inflation,
            step_in_floor=self.step,
        )
