"""Fitting the floor to cells of rays: which cells show nothing but floor, and the robust plane through them.

Cells near anything that blocks rays are left out, since the foot of a wall or a chair looks like slightly raised floor.
Patches of cells whose mean lies off the plane (carpets, thresholds, cables) lose their weight. The fit grows outwards
from the robot, so that the surface it stands on decides what the floor is. The right lidar may see the floor a little
off, as much as the alignment is unsure: that is fitted along, so an error of the alignment moves the floor as little as the
left lidar's own view allows.
"""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from stretch_sim_cal.calibration.floor_cells import CellSums

BLOCKED_SHARE = 0.1  # of a cell's rays; beyond it something stands there
MARGIN = 0.1  # m around such cells
CELL_GATE = 4.0
TUKEY = 4.685  # 95 % efficiency on Gaussian data
# Radius (m) and assumed unevenness (m) while the fit grows outwards; then the whole radius with what the data shows.
GROWTH = ((0.9, 0.006), (1.3, 0.004), (1.8, 0.003), (2.5, 0.002))
REFINEMENTS = 6
LEAST_UNEVENNESS, MOST_UNEVENNESS = 0.0001, 0.002
MIN_PATCHES = 6
BLOCK = 0.75  # m; residuals are taken for independent only between blocks of this size


@dataclass(frozen=True)
class FloorFit:
    """The fitted step and what it rests on.

    `step` (3,) leads from the assumed to the fitted floor (height, tilt about x, tilt about y), `covariance` (3, 3) is its
    own. `used` is one mask (cells,) per lidar. `patch_heights` (P,) are mean heights over the fitted floor, `patch_noise`
    (P,) their deviations by noise alone (both NaN where no ray met it), `patch_weights` (P,) from 0 (left out) to 1.
    `unevenness` (m) is the deviation of patch means beyond noise, `inflation` how many times the scatter between blocks
    exceeds what noise alone explains (a variance ratio).
    """

    step: np.ndarray
    covariance: np.ndarray
    used: tuple[np.ndarray, np.ndarray]
    patch_heights: np.ndarray
    patch_noise: np.ndarray
    patch_weights: np.ndarray
    unevenness: float
    inflation: float


def fit_floor(left: CellSums, right: CellSums, right_prior: np.ndarray) -> FloorFit | None:
    """Fit the floor; `right_prior` (3, 3) is the covariance of how far off the alignment lets the right lidar see it.

    None where too little floor is left to fit.
    """
    fit = _GrowingFit(left, right, right_prior)
    for radius, unevenness in GROWTH:
        fit.select(radius, unevenness)
        if fit.determined:
            fit.solve()
    for _ in range(REFINEMENTS):
        fit.select(left.grid.radius, fit.unevenness())
        if not fit.determined:
            return None
        fit.solve()
    return fit.result()


def disagreement(fit: FloorFit, left: CellSums, right: CellSums) -> tuple[np.ndarray, np.ndarray] | None:
    """Return by how much the right lidar sees the floor off (3,), and the covariance (3, 3) of that by noise.

    Each lidar's floor is fitted for itself; None where one of them does not see enough of it.
    """
    steps, covariances = [], []
    for sums, used in zip((left, right), fit.used, strict=True):
        weights = fit.patch_weights[sums.grid.patch_of_cells()] * used
        information = np.einsum("c,cij->ij", weights, sums.information)
        if np.count_nonzero(weights) < 20 or np.linalg.cond(information) > 1e6:
            return None
        covariances.append(np.linalg.inv(information))
        steps.append(covariances[-1] @ (weights @ sums.pull))
    return steps[1] - steps[0], fit.inflation * (covariances[0] + covariances[1])


def clean_cells(sums: CellSums) -> np.ndarray:
    """Return the cells (cells,) with hits that have nothing standing in them or within the margin around."""
    side = sums.grid.cells_per_side
    total = sums.hits + sums.blocked + sums.beyond
    occupied = (sums.blocked + sums.beyond > BLOCKED_SHARE * total) & (total > 0)
    reach = int(np.ceil(MARGIN / sums.grid.cell_size))
    square = np.ones((2 * reach + 1, 2 * reach + 1), bool)
    near_occupied = ndimage.binary_dilation(occupied.reshape(side, side), square).ravel()
    return (sums.hits > 0) & ~near_occupied


class _PatchSums:
    """Normal equations of one lidar's cells with a mask, patch by patch: `information` (P, 3, 3), `pull` (P, 3)."""

    def __init__(self, sums: CellSums, used: np.ndarray):
        patch, count = sums.grid.patch_of_cells()[used], sums.grid.patches_per_side**2
        self.information, self.pull = np.zeros((count, 3, 3)), np.zeros((count, 3))
        for i in range(3):
            self.pull[:, i] = np.bincount(patch, sums.pull[used, i], minlength=count)
            for j in range(3):
                self.information[:, i, j] = np.bincount(patch, sums.information[used, i, j], minlength=count)

    def deviation(self, step: np.ndarray) -> np.ndarray:
        """Return the weighted sums (P,) of heights over the floor moved by `step` (3,)."""
        return self.information[:, 0] @ step - self.pull[:, 0]


class _GrowingFit:
    """Iteratively reweighted least squares over patches, on the step and the right lidar's disagreement."""

    def __init__(self, left: CellSums, right: CellSums, right_prior: np.ndarray):
        self.sums = left, right
        self.clean = clean_cells(left), clean_cells(right)
        self.right_precision = np.linalg.inv(right_prior)
        centres = left.grid.patch_centres()
        self.distances = np.linalg.norm(centres, axis=1)
        blocks = np.floor(centres / BLOCK).astype(int)
        self.blocks = np.unique(blocks[:, 0] * 1000 + blocks[:, 1], return_inverse=True)[1]
        self.solution = np.zeros(6)
        self.used = self.clean
        self.trust = np.zeros(len(centres))

    @property
    def steps(self) -> tuple[np.ndarray, np.ndarray]:
        """The step to the floor as the left and as the right lidar sees it."""
        return self.solution[:3], self.solution[:3] + self.solution[3:]

    def select(self, radius: float, unevenness: float) -> None:
        """Choose cells and weigh patches by how near their means lie to the present floor."""
        self.used = tuple(
            clean & _near_floor(sums, step, unevenness)
            for sums, clean, step in zip(self.sums, self.clean, self.steps, strict=True)
        )
        self.patches = tuple(_PatchSums(sums, used) for sums, used in zip(self.sums, self.used, strict=True))
        information = sum(patches.information[:, 0, 0] for patches in self.patches)
        self.seen = (information > 0) & (self.distances < radius)
        self.noise = np.where(self.seen, information, np.nan) ** -0.5
        scale = np.hypot(self.noise, unevenness)
        ratio = self.heights() / (TUKEY * scale)
        self.trust = np.where(np.abs(ratio) < 1, (1 - ratio**2) ** 2, 0.0)  # 0 where unseen
        # A patch knows the floor's level no better than the floor is even.
        self.weights = np.where(self.seen, self.trust * (self.noise / scale) ** 2, 0.0)

    def heights(self) -> np.ndarray:
        """Return the patches' mean heights (P,) over the present floor, each lidar by its own; NaN where unseen."""
        deviation = sum(patches.deviation(step) for patches, step in zip(self.patches, self.steps, strict=True))
        return deviation * self.noise**2

    @property
    def determined(self) -> bool:
        """Whether the chosen patches are enough for a plane."""
        return np.count_nonzero(self.trust > 0.1) >= MIN_PATCHES

    def solve(self) -> None:
        """Find the step and the disagreement from the weighted patches."""
        left, right = self.patches
        a_left = np.einsum("p,pij->ij", self.weights, left.information)
        a_right = np.einsum("p,pij->ij", self.weights, right.information)
        self.hessian = np.block([[a_left + a_right, a_right], [a_right, a_right + self.right_precision]])
        pull_right = self.weights @ right.pull
        self.solution = np.linalg.solve(self.hessian, np.concatenate([self.weights @ left.pull + pull_right, pull_right]))

    def unevenness(self) -> float:
        """Return the deviation of the patches' means beyond noise, robustly, within the bounds assumed."""
        trusted = self.trust > 0.1
        if np.count_nonzero(trusted) < MIN_PATCHES:
            return MOST_UNEVENNESS
        spread = 1.4826 * np.median(np.abs(self.heights()[trusted]))
        excess = spread**2 - np.median(self.noise[trusted] ** 2)
        return float(np.clip(np.sqrt(max(excess, 0.0)), LEAST_UNEVENNESS, MOST_UNEVENNESS))

    def result(self) -> FloorFit:
        covariance, inflation = self._covariance()
        return FloorFit(
            step=self.solution[:3],
            covariance=covariance,
            used=self.used,
            patch_heights=self.heights(),
            patch_noise=self.noise,
            patch_weights=self.trust,
            unevenness=self.unevenness(),
            inflation=inflation,
        )

    def _covariance(self) -> tuple[np.ndarray, float]:
        """Return the step's covariance and how many times more its blocks scatter than noise explains.

        The scatter between blocks (a sandwich estimate, clustered) sees what noise does not explain: shape of the floor,
        biases of single channels. Where it is less than noise explains, that is chance.
        """
        inverse = np.linalg.inv(self.hessian)
        scores = np.zeros((self.blocks.max() + 1, 6))
        for patches, step, right in zip(self.patches, self.steps, (False, True), strict=True):
            score = self.weights[:, None] * (patches.pull - patches.information @ step)
            np.add.at(scores, self.blocks, np.hstack([score, score * right]))
        count = np.count_nonzero(np.any(scores != 0, axis=1))
        meat = scores.T @ scores * (count / max(count - 3, 1))
        meat[3:, 3:] += self.right_precision
        clustered = inverse @ meat @ inverse
        formal = inverse[:3, :3]
        inflation = max(1.0, float(np.trace(np.linalg.solve(formal, clustered[:3, :3])) / 3))
        return inflation * formal, inflation


def _near_floor(sums: CellSums, step: np.ndarray, unevenness: float) -> np.ndarray:
    """Return the cells (cells,) whose mean height is within the gate of the floor moved by `step` (3,)."""
    information = sums.information[:, 0, 0]
    seen = information > 0
    mean = np.zeros(len(information))
    mean[seen] = (sums.information[seen, 0] @ step - sums.pull[seen, 0]) / information[seen]
    noise = np.where(seen, information, 1.0) ** -0.5
    return seen & (np.abs(mean) < CELL_GATE * np.hypot(noise, unevenness))
