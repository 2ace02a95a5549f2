"""Shapes of a whole grid that enclose the robot at the grid points and, interpolated, between them.

Capsules are fitted together by sequential linear programming (Griffith and Stewart, "A nonlinear programming technique
for the optimization of continuous processing systems", 1961) over the numbers of all capsules. Area and distances of
hull corners are linearised about the present capsules, the program moves them by at most `trust`, and a step that
increases the cost is tried again shorter. Interpolation and changes between grid points are linear in the numbers:

    least    area of all capsules, each against that of the smallest one at its place
    so that  no corner is outside, neither at the grid points nor between them
             no number changes by more than `MOST_CHANGE` times the outline's change from one point to the next
             no requested capsule has more than `MOST_AREA`

Violated constraints have a price (`PRICES`), so that a program always has a solution. Shapes of other kinds are
inflated by the least amount that removes the protrusion.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import block_array, csr_array, eye_array, kron, vstack

from stretch_sim_cal.calibration.body.grid import Axes, Hulls, grid_points, neighbours
from stretch_sim_cal.calibration.body.model import interpolation
from stretch_sim_cal.geometry.shapes import Shape, TaperedCapsule, capsule_area, capsule_distance

COVERED = 1e-4  # m that may stick out between grid points, on the verified grid
DOUBTFUL = 1e-3  # m: if more sticks out, capsules are fitted together and not only inflated
ROUNDS = 8
REQUESTED_WEIGHT = 20.0  # of the inflation of a requested grid point, over that of an added one

MOST_CHANGE = 1.25  # of a capsule's number from grid point to grid point, over that of the outline
STILL = 0.004  # m, by which they may always change
MOST_AREA = 1.015  # of a requested capsule, over the smallest one
ADDED = 0.3  # the weight of an added grid point's area, over that of a requested one
PRICES = (1000.0, 10.0, 50.0)  # of a metre outside, a metre of change and the smallest area
TRUST, LEAST_TRUST = 0.1, 5e-4  # m: the first step, and the shortest
STEPS = 16
LITTLE = 2e-3  # of the cost of a capsule: a step with a smaller gain is the last
CLOSE = 0.002  # m: a corner this near to a capsule's boundary may constrain it
REACH = 3.0  # trusts: corners farther inside than this stay inside
SECTORS, DIRECTIONS = 16, 64
DECIMALS = 7  # of a program's numbers, whose last bits depend on the processor


def covering(
    axes: Axes, shapes: list[Shape], hulls: Hulls, asked_for: Axes, spacing: Sequence[float]
) -> tuple[list[Shape], float, float]:
    """Return the shapes (row by row), changed so that interpolated ones enclose the hulls between them, and the largest
    protrusion of the robot from interpolated shapes (m), before and after.

    Verified halfway along all steps, and at least as closely as `spacing` (m, rad, by axis). `asked_for` are the axes
    before their refinement: area is added at other grid points if possible.
    """
    grid = grid_points(axes)
    finer = tuple(_divided(values, most) for values, most in zip(axes, spacing, strict=True))
    between = [place for place in grid_points(finer) if place not in set(grid)]
    if not between:
        return shapes, 0.0, 0.0
    places = [*grid, *between]
    weights, outlines = _weights(axes, places), hulls(places)

    def missing(shapes: Sequence[Shape]) -> np.ndarray:
        return type(shapes[0]).protrusions(weights @ np.array([shape.vector for shape in shapes]), outlines)

    before = missing(shapes)[len(grid) :].max()
    asked = np.array([e in asked_for[0] and y in asked_for[1] for e, y in grid])
    if isinstance(shapes[0], TaperedCapsule):
        together = _Together(shapes, weights, outlines, neighbours(len(grid), len(axes[1])), asked)
        if before > DOUBTFUL or together.changes_too_fast:
            shapes = together.fitted()
    for _ in range(ROUNDS):
        outside = missing(shapes)
        if outside.max() <= COVERED:
            break
        needed = 1.02 * outside.round(7)  # the same on every processor, and so is the solution
        cost = np.where(asked, REQUESTED_WEIGHT, 1.0)
        least = linprog(cost, A_ub=-weights, b_ub=-needed, bounds=(0, None), method="highs").x
        shapes = [shape.inflated(float(by)) if by > 0 else shape for shape, by in zip(shapes, least, strict=True)]
    shapes = [shape.grown_to_enclose(hull) for shape, hull in zip(shapes, outlines, strict=False)]  # exactly, there
    return shapes, float(before), float(missing(shapes).max())


def _divided(values: list[float], spacing: float) -> list[float]:
    """Return values with every step divided in two, or in more to keep to `spacing`."""
    pieces = [
        np.linspace(a, b, 2 * max(1, int(np.ceil((b - a) / (2 * spacing) - 1e-6))) + 1)[:-1]
        for a, b in zip(values[:-1], values[1:], strict=True)
    ]
    return np.concatenate([*pieces, values[-1:]]).tolist()


def _weights(axes: Axes, places: Sequence[tuple[float, float]]) -> csr_array:
    """Return the weights (P, G) of the grid points at each place."""
    entries, rows, columns = [], [], []
    for row, (extension, yaw) in enumerate(places):
        for i, wi in zip(*interpolation(axes[0], extension), strict=True):
            for j, wj in zip(*interpolation(axes[1], yaw), strict=True):
                entries.append(wi * wj)
                rows.append(row)
                columns.append(i * len(axes[1]) + j)
    return csr_array((entries, (rows, columns)), shape=(len(places), len(axes[0]) * len(axes[1])))


class _Together:
    """The smallest capsules of G grid points, and their constraints.

    `weights` (P, G) interpolate them at P places with `hulls` (K, 2), the grid points first; `pairs` (E, 2) are
    adjacent; `asked` (G,) are the requested points. A program's unknowns are the steps of the capsules' numbers (6 G),
    and the violations of the constraints of each place, pair and requested capsule.
    """

    def __init__(self, capsules, weights: csr_array, hulls: Sequence[np.ndarray], pairs: np.ndarray, asked: np.ndarray):
        self._numbers = np.array([capsule.vector for capsule in capsules])
        self._least = np.array([capsule.area for capsule in capsules])
        self._weights, self._asked = weights, np.flatnonzero(asked)
        self._share = np.where(asked, 1.0, ADDED) / self._least
        self._corners = np.concatenate(hulls)
        self._place = np.repeat(np.arange(len(hulls)), [len(hull) for hull in hulls])
        self._steps = _picked(pairs[:, 0], len(capsules)) - _picked(pairs[:, 1], len(capsules))
        angles = np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS)
        directions = np.stack([np.cos(angles), np.sin(angles)])
        reach = np.array([(hull @ directions).max(axis=0) for hull in hulls[: len(capsules)]])
        # The outline's change from one grid point to the next is the Hausdorff distance, of convex sets.
        self._most_change = MOST_CHANGE * np.abs(self._steps @ reach).max(axis=1, initial=0.0) + STILL

    @property
    def changes_too_fast(self) -> bool:
        return bool((np.abs(self._steps @ self._numbers).max(axis=1, initial=0.0) > self._most_change).any())

    def fitted(self) -> list[TaperedCapsule]:
        """Return capsules for all grid points, starting at the smallest ones."""
        numbers, trust = self._numbers, TRUST
        distances, gradients = self._distances(numbers)
        watched = self._outermost(distances, gradients)
        cost = self._cost(numbers, distances)
        for _ in range(STEPS):
            # Few corners are active: those that a step brings outside are constraints of the next program.
            candidate = self._step(numbers, distances, gradients, watched & (distances > -REACH * trust), trust)
            ahead, by_numbers = self._distances(candidate)
            watched |= self._outermost(ahead, by_numbers)
            gain = cost - self._cost(candidate, ahead)
            if gain > 0:
                numbers, distances, gradients, cost = candidate, ahead, by_numbers, cost - gain
                if gain < LITTLE * len(numbers):
                    break
            elif (trust := trust / 2) < LEAST_TRUST:
                break
        return [TaperedCapsule.from_vector(vector) for vector in numbers]

    def _distances(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances (C,) of all corners from the capsules (G, 6) at their places, and their gradients."""
        return capsule_distance((self._weights @ numbers)[self._place], self._corners)

    def _cost(self, numbers: np.ndarray, distances: np.ndarray) -> float:
        """Return the weighted areas of capsules (G, 6), plus the prices of violated constraints."""
        areas = np.array([capsule_area(vector)[0] for vector in numbers])
        outside = np.zeros(self._weights.shape[0])
        np.maximum.at(outside, self._place, distances)
        change = np.abs(self._steps @ numbers).max(axis=1, initial=0.0) - self._most_change
        area = (areas / self._least)[self._asked] - MOST_AREA
        missed = [float(np.maximum(values, 0.0).sum()) for values in (outside, change, area)]
        return float(self._share @ areas + np.dot(PRICES, missed))

    def _outermost(self, distances: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """Return the mask of corners close to a boundary or outside that are the outermost of their place in some
        direction."""
        near = np.flatnonzero(distances > -CLOSE)
        away = -(gradients[near, :2] + gradients[near, 3:5])
        sector = ((np.arctan2(away[:, 1], away[:, 0]) + np.pi) * (SECTORS / (2 * np.pi))).astype(int)
        key = self._place[near] * (SECTORS + 1) + sector
        order = np.lexsort((-distances[near], key))
        outermost = np.zeros(len(distances), dtype=bool)
        outermost[near[order[np.unique(key[order], return_index=True)[1]]]] = True
        return outermost

    def _step(self, numbers, distances, gradients, watched: np.ndarray, trust: float) -> np.ndarray:
        """Return the capsules (G, 6) of the linear program about the present ones (G, 6)."""
        areas, by_numbers = (np.array(values) for values in zip(*map(capsule_area, numbers), strict=True))
        place, each, asked = self._place[watched], eye_array(6), self._asked
        first = _rows(gradients[watched]) @ kron(self._weights[place], each)
        change = kron(self._steps, each)
        of_pair = kron(eye_array(self._steps.shape[0]), np.ones((6, 1)))
        area = _rows(by_numbers / self._least[:, None])[asked]
        rows = block_array([
            [first, -_picked(place, self._weights.shape[0]), None, None],
            [change, None, -of_pair, None],
            [-change, None, -of_pair, None],
            [area, None, None, -eye_array(len(asked))],
        ], format="csr")  # fmt: skip
        now, allowed = (self._steps @ numbers).ravel(), np.repeat(self._most_change, 6)
        limits = np.concatenate(
            [-distances[watched], allowed - now, allowed + now, MOST_AREA - (areas / self._least)[asked]]
        )
        slacks = (self._weights.shape[0], self._steps.shape[0], len(asked))
        goal = np.concatenate([(self._share[:, None] * by_numbers).ravel(), np.repeat(PRICES, slacks)])
        low = np.full(numbers.shape, -trust)
        low[:, [2, 5]] = np.maximum(-trust, np.minimum(1e-6 - numbers[:, [2, 5]], 0.0))  # radii stay positive
        # The dual program has only as many rows as there are unknowns, its multipliers, and takes half of the time. Of
        # several equally good solutions, the result depends on every bit: all is rounded.
        rows.data, each = rows.data.round(DECIMALS), eye_array(len(goal), format="csr")
        dual = linprog(
            np.concatenate([limits.round(9), np.full(low.size, trust), -low.ravel(), np.zeros(sum(slacks))]),
            A_eq=vstack([rows, each[: low.size], -each]).T.tocsc(), b_eq=-goal.round(DECIMALS),
            method="highs-ds", options={"presolve": False},
        )  # fmt: skip
        return numbers if dual.x is None else numbers + dual.eqlin.marginals[: low.size].reshape(-1, 6)


def _rows(values: np.ndarray) -> csr_array:
    """Return the block-diagonal matrix (M, 6 M) of rows (M, 6)."""
    return csr_array((values.ravel(), np.arange(values.size), np.arange(0, values.size + 1, 6)))


def _picked(columns: np.ndarray, size: int) -> csr_array:
    """Return the matrix (N, size) with a 1 in each row's column."""
    return csr_array((np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), size))
