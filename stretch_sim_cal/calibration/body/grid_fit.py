"""Shapes of a whole grid, so that they enclose the robot at the grid points and, interpolated, between them.

Capsules are fitted together by sequential linear programming (Griffith and Stewart, "A nonlinear programming technique
for the optimization of continuous processing systems", 1961) over the numbers of all capsules at once. Area and
distances of hull corners are linearised about the present capsules, the program moves them by at most `trust`, and a
step that makes things worse is taken back and tried shorter. Interpolation is linear in the capsules' numbers, and so
is how far these change from one grid point to the next, so that both enter as they are:

    least    area of all capsules, each against that of the smallest one at its place
    so that  no corner is outside, neither at the grid points nor between them
             no number changes by more than `MOST_CHANGE` times as far as the outline moves from one point to the next
             no capsule that was asked for has more than `MOST_AREA`

Violated constraints have a price (`PRICES`), so that a program always has a solution. Capsules far from all violations
stay as they are. Shapes of other kinds are inflated by the least that removes the protrusion.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

from stretch_sim_cal.calibration.body.grid import Axes, Hulls, divided, grid_points, neighbours
from stretch_sim_cal.calibration.body.model import interpolation
from stretch_sim_cal.geometry.shapes import Shape, TaperedCapsule, capsule_area, capsule_distance

MOST_CHANGE = 1.25  # of a capsule's number from grid point to grid point, against how far the outline moves
STILL = 0.004  # m, by which they may always change
MOST_AREA = 1.015  # of a capsule that was asked for, against the smallest one
ADDED = 0.3  # the weight of a grid point's area that was added, against one that was asked for
OUTSIDE, CHANGE, AREA = range(3)
PRICES = (1000.0, 10.0, 50.0)  # of a metre outside, a metre of change and the smallest area
LEAST_TRUST = 5e-4  # m
STEPS = 16
LITTLE = 2e-3  # of the cost of a capsule: a step that gains less is the last
KEPT = 3e-4  # m: corners that are outside by less are not worth moving capsules for
CLOSE = 0.002  # m: a corner this near to a capsule's boundary may constrain it
REACH = 3.0  # trusts: corners further inside than this stay inside
SECTORS, PROGRAM_ROUNDS = 16, 2
DIRECTIONS = 64
DECIMALS = 7  # of a program's numbers, which differ in their last bits from processor to processor


@dataclass(frozen=True)
class GridProblem:
    """The hulls that capsules (G of them) have to enclose: `weights` (P, G) interpolate them at P places with `hulls`
    (K, 2), the grid points themselves first; `neighbours` (E, 2) are the pairs that are next to each other; `least`
    (G,) the areas of the smallest capsules there, and `asked_for` (G,) which points were."""

    weights: csr_array
    hulls: Sequence[np.ndarray]
    neighbours: np.ndarray
    least: np.ndarray
    asked_for: np.ndarray

    @cached_property
    def most_change(self) -> np.ndarray:
        """How far (E,) the numbers of capsules may differ from one grid point to the next, in m."""
        return MOST_CHANGE * moved_distances(self.hulls[: len(self.least)], self.neighbours) + STILL

    @cached_property
    def share(self) -> np.ndarray:
        """The cost of a m^2 of each capsule (G,)."""
        return np.where(self.asked_for, 1.0, ADDED) / self.least

    @cached_property
    def corners(self) -> tuple[np.ndarray, np.ndarray]:
        """The corners (C, 2) of all hulls, and the place (C,) that each is of."""
        counts = [len(hull) for hull in self.hulls]
        return np.concatenate(self.hulls), np.repeat(np.arange(len(counts)), counts)

    def changes_too_fast(self, capsules: Sequence[TaperedCapsule]) -> bool:
        """Return whether any number changes by more than it may."""
        return bool((_changes(capsule_numbers(capsules), self.neighbours) > self.most_change + KEPT).any())

    def too_large(self, capsules: Sequence[TaperedCapsule]) -> bool:
        """Return whether any capsule that was asked for has more area than it may."""
        ratios = np.array([capsule.area for capsule in capsules]) / self.least
        return bool((ratios[self.asked_for] > MOST_AREA + LITTLE).any())

    def distances(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances (C,) of all corners from the capsules (G, 6) at their places, and their gradients."""
        corners, place = self.corners
        return capsule_distance((self.weights @ numbers)[place], corners)

    def outside(self, numbers: np.ndarray) -> np.ndarray:
        """Return how far corners are outside (P,) at each place at most."""
        return TaperedCapsule.protrusions(self.weights @ numbers, self.hulls)

    def cost(self, numbers: np.ndarray) -> float:
        """Return the cost of capsules (G, 6): their areas, and the prices of violated constraints."""
        areas = np.array([capsule_area(vector)[0] for vector in numbers])
        change = _changes(numbers, self.neighbours) - self.most_change
        area = (areas / self.least - MOST_AREA)[self.asked_for]
        missed = sum(
            price * float(np.maximum(values, 0.0).sum())
            for price, values in zip(PRICES, (self.outside(numbers), change, area), strict=True)
        )
        return float(self.share @ areas) + missed


def fitted_together(capsules: Sequence[TaperedCapsule], problem: GridProblem, trust: float) -> list[TaperedCapsule]:
    """Return capsules for all grid points, found from those given (the same objects if nothing is to be changed).

    The first steps move no number by more than `trust` (m). There are many local minima; with another it may lead to
    another.
    """
    numbers = capsule_numbers(capsules)
    program = _Program(problem, numbers)
    cost = problem.cost(numbers)
    for _ in range(STEPS):
        candidate = program.step(numbers, trust)
        gain = cost - problem.cost(candidate)
        if gain > 0:
            numbers, cost = candidate, cost - gain
            if gain < LITTLE * len(program.free):
                break
        else:
            trust /= 4
            if trust < LEAST_TRUST:
                break
    result = list(capsules)
    for index in program.free:
        result[index] = TaperedCapsule.from_vector(numbers[index])
    return result


class _Program:
    """The linear programs of one problem. Their unknowns are the steps of the numbers of F free capsules (6 F), and by
    how much each place (P), pair (E) and area (G) violates its constraint."""

    def __init__(self, problem: GridProblem, numbers: np.ndarray):
        self._problem = problem
        self._place = problem.corners[1]
        self._watched = np.zeros(len(self._place), dtype=bool)
        self._slacks = (len(problem.hulls), len(problem.neighbours), len(problem.least))
        self.free = self._worth_moving(numbers)
        moving = np.zeros(len(problem.least), dtype=bool)
        moving[self.free] = True
        self._pairs = np.flatnonzero(moving[problem.neighbours].any(axis=1))
        self._by_free = problem.weights[:, self.free].tocsr()
        first, second = problem.neighbours[self._pairs].T
        steps = _picked(first, len(numbers)) - _picked(second, len(numbers))
        self._changes_by_free = kron(steps.tocsr()[:, self.free], eye_array(6), format="csr")

    def step(self, numbers: np.ndarray, trust: float) -> np.ndarray:
        """Return the capsules (G, 6) that are best by the linear program about the present ones.

        Few corners are ever touched: the program is solved for those, and again with the ones that it brings outside.
        """
        areas, by_numbers = (np.array(v) for v in zip(*(capsule_area(z) for z in numbers[self.free]), strict=True))
        distances, gradients = self._problem.distances(numbers)
        reachable = distances > -REACH * trust
        self._watched |= self._outermost(distances, gradients, distances > -CLOSE)
        goal = np.concatenate(
            [(self._problem.share[self.free, None] * by_numbers).ravel(), np.repeat(PRICES, self._slacks)]
        )
        fixed = [self._change_rows(numbers), self._area_rows(areas, by_numbers)]
        found = np.zeros(len(goal))
        for _ in range(PROGRAM_ROUNDS):
            watched = np.flatnonzero(self._watched & reachable)
            rows, limits = zip(self._corner_rows(watched, distances, gradients), *fixed, strict=True)
            solution = _least(
                goal, vstack(rows, format="csr"), np.concatenate(limits), self._bounds(numbers[self.free], trust)
            )
            if solution is None:
                break
            found = solution
            ahead = distances + self._foreseen(found, gradients)
            missed = ~self._watched & reachable & (ahead > KEPT)
            if not missed.any():
                break
            self._watched |= self._outermost(ahead, gradients, missed)
        result = numbers.copy()
        result[self.free] += found[: 6 * len(self.free)].reshape(-1, 6)
        return result

    def _worth_moving(self, numbers: np.ndarray) -> np.ndarray:
        """Return the capsules (indices) that something at or beside is not kept, and the ones next to them."""
        outside = self._problem.outside(numbers) > KEPT
        wrong = (self._problem.weights[outside] > 0).sum(axis=0) > 0
        first, second = self._problem.neighbours.T
        hasty = _changes(numbers, self._problem.neighbours) > self._problem.most_change
        wrong[first[hasty]] = wrong[second[hasty]] = True
        beside = wrong.copy()
        beside[first[wrong[second]]] = beside[second[wrong[first]]] = True
        return np.flatnonzero(beside)

    def _foreseen(self, found: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """Return by how much a solution changes the distances of all corners, less the violations that it pays for."""
        size = 6 * len(self.free)
        steps = self._by_free @ found[:size].reshape(-1, 6)
        return (gradients * steps[self._place]).sum(axis=1) - found[size : size + self._slacks[OUTSIDE]][self._place]

    def _outermost(self, distances: np.ndarray, gradients: np.ndarray, of: np.ndarray) -> np.ndarray:
        """Return which corners are, among those in the mask `of`, the outermost of their place in some direction."""
        near = np.flatnonzero(of)
        away = -(gradients[near, :2] + gradients[near, 3:5])
        sector = ((np.arctan2(away[:, 1], away[:, 0]) + np.pi) * (SECTORS / (2 * np.pi))).astype(int)
        key = self._place[near] * (SECTORS + 1) + sector
        order = np.lexsort((-distances[near], key))
        found = np.zeros(len(distances), dtype=bool)
        found[near[order[np.unique(key[order], return_index=True)[1]]]] = True
        return found

    def _corner_rows(self, corners: np.ndarray, distances: np.ndarray, gradients: np.ndarray):
        """A row for each of corners (indices): its distance after the step is not positive."""
        weights = self._by_free[self._place[corners]].tocoo()
        values = weights.data[:, None] * gradients[corners][weights.row]
        return self._rows(weights.row, weights.col, values, self._place[corners], OUTSIDE), -distances[corners]

    def _change_rows(self, numbers: np.ndarray):
        """Two rows for each number of each pair: it grows, or falls, by no more than allowed."""
        first, second = self._problem.neighbours[self._pairs].T
        now = (numbers[first] - numbers[second]).ravel()
        allowed = np.repeat(self._problem.most_change[self._pairs], 6)
        slack = np.repeat(self._pairs, 6)
        sides = [self._with_slack(sign * self._changes_by_free, slack, CHANGE) for sign in (1, -1)]
        return vstack(sides), np.concatenate([allowed - now, allowed + now])

    def _area_rows(self, areas: np.ndarray, by_numbers: np.ndarray):
        """A row for each capsule that was asked for: its area after the step is no more than allowed."""
        chosen = np.flatnonzero(self._problem.asked_for[self.free])
        least = self._problem.least[self.free][chosen]
        values = by_numbers[chosen] / least[:, None]
        rows = self._rows(np.arange(len(chosen)), chosen, values, self.free[chosen], AREA)
        return rows, MOST_AREA - areas[chosen] / least

    def _rows(self, row, capsule, values, slack, kind) -> csr_array:
        """Rows whose entries for the six numbers of a capsule are `values` (M, 6), and for their slack -1."""
        entries = (values.ravel(), (np.repeat(row, 6), (capsule[:, None] * 6 + np.arange(6)).ravel()))
        return self._with_slack(csr_array(entries, shape=(len(slack), 6 * len(self.free))), slack, kind)

    def _with_slack(self, matrix: csr_array, slack: np.ndarray, kind: int) -> csr_array:
        columns = slack + sum(self._slacks[:kind])
        return hstack([matrix, -_picked(columns, sum(self._slacks))])

    def _bounds(self, numbers: np.ndarray, trust: float) -> np.ndarray:
        low, high = np.full(numbers.shape, -trust), np.full(numbers.shape, trust)
        low[:, [2, 5]] = np.maximum(-trust, np.minimum(1e-6 - numbers[:, [2, 5]], 0.0))  # radii stay positive
        steps = np.column_stack([low.ravel(), high.ravel()])
        return np.concatenate([steps, np.tile([0.0, np.inf], (sum(self._slacks), 1))])


def moved_distances(hulls: Sequence[np.ndarray], pairs: np.ndarray) -> np.ndarray:
    """Return how far each of pairs (E, 2) of hulls (K, 2) are apart (E,), the Hausdorff distance of convex sets."""
    angles = np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS)
    directions = np.stack([np.cos(angles), np.sin(angles)])
    reach = np.array([(hull @ directions).max(axis=0) for hull in hulls])
    return np.abs(reach[pairs[:, 0]] - reach[pairs[:, 1]]).max(axis=1, initial=0.0)


def _least(goal: np.ndarray, rows: csr_array, limits: np.ndarray, bounds: np.ndarray) -> np.ndarray | None:
    """Return the x (N,) of least `goal @ x` with `rows @ x <= limits` in bounds (N, 2), None if none was found.

    By the dual program, whose multipliers are x: it has as few rows as x has numbers, and takes half the time. Several
    x are often equally good, and which one is found depends on every bit: numbers are rounded, limits to 1 nm.
    """
    rows = csr_array((rows.data.round(DECIMALS), rows.indices, rows.indptr), rows.shape)
    goal, limits = goal.round(DECIMALS), limits.round(9)
    each = eye_array(len(goal), format="csr")
    from_above = np.isfinite(bounds[:, 1])
    matrix = vstack([rows, each[from_above], -each]).T.tocsc()
    cost = np.concatenate([limits, bounds[from_above, 1], -bounds[:, 0]])
    dual = linprog(cost, A_eq=matrix, b_eq=-goal, bounds=(0, None), method="highs-ds", options={"presolve": False})
    return None if dual.x is None else dual.eqlin.marginals


def capsule_numbers(capsules: Sequence[TaperedCapsule]) -> np.ndarray:
    """Return the numbers (G, 6) of capsules."""
    return np.array([capsule.vector for capsule in capsules])


def _changes(numbers: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the largest change (E,) of any number over each pair."""
    return np.abs(numbers[pairs[:, 0]] - numbers[pairs[:, 1]]).max(axis=1, initial=0.0)


def _picked(columns: np.ndarray, size: int) -> csr_array:
    """Return the matrix (N, size) with a 1 in each row's column."""
    return csr_array((np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), size))


COVERED = 1e-4  # m that may stick out between grid points, on the verified grid
DOUBTFUL = 1e-3  # m: if more sticks out, capsules are fitted together and not only inflated
ROUNDS = 8
NOTICED = 1e-4  # m: places where no more sticks out do not constrain capsules that are fitted together
ROUNDS_TOGETHER = 3
TRUSTS = (0.1, 0.2, 0.05)  # m
OWN_WEIGHT = 20.0  # of the inflation of a grid point that was asked for, against one that was added


def covering(
    axes: Axes, shapes: list[Shape], hulls: Hulls, asked_for: Axes, spacing: tuple[float, float]
) -> tuple[list[Shape], float, float]:
    """Return the shapes (row by row) changed so that those interpolated between them enclose the hulls there.

    Verified halfway along all steps, and at least as closely as `spacing` (m, rad, by axis). `asked_for` are the axes
    before they were refined: area is added elsewhere if possible. Also returns the largest protrusion of the robot from
    the interpolated shapes (m), before and after.
    """
    grid = grid_points(axes)
    between = _between(axes, spacing)
    if not between:
        return shapes, 0.0, 0.0
    asked = np.array([e in asked_for[0] and y in asked_for[1] for e, y in grid])
    everywhere = _Places(axes, [*grid, *between], hulls)
    before = everywhere.missing(shapes)[len(grid) :].max()
    if isinstance(shapes[0], TaperedCapsule):
        shapes = _together(axes, shapes, everywhere, asked)
    shapes = _inflated(shapes, everywhere, np.where(asked, OWN_WEIGHT, 1.0))
    at_grid = everywhere.hulls[: len(grid)]
    shapes = [shape.grown_to_enclose(hull) for shape, hull in zip(shapes, at_grid, strict=True)]  # exactly, there
    return shapes, float(before), float(everywhere.missing(shapes).max())


class _Places:
    """Places (P of them, extension and yaw), the `weights` (P, G) of the grid points and the `hulls` (K, 2) there."""

    def __init__(self, axes: Axes, places: Sequence[tuple[float, float]], hulls: Hulls):
        self.places, self.weights, self.hulls = places, _weights(axes, places), hulls(places)

    def missing(self, shapes: Sequence[Shape]) -> np.ndarray:
        """Return how far the robot sticks out (P,) of the interpolated shape at each place, in m."""
        return type(shapes[0]).protrusions(self.weights @ np.array([shape.vector for shape in shapes]), self.hulls)


def _together(axes: Axes, shapes: list[TaperedCapsule], everywhere: _Places, asked: np.ndarray) -> list[TaperedCapsule]:
    """Return capsules fitted together if more than a little sticks out: with the first of `TRUSTS` that encloses
    the robot and leaves none of those asked for too large, else the cheapest."""
    least = np.array([shape.area for shape in shapes])
    every = GridProblem(everywhere.weights, everywhere.hulls, neighbours(axes), least, asked)
    found = []
    for trust in TRUSTS:
        found.append(_together_from(axes, shapes, everywhere, every, trust))
        if everywhere.missing(found[-1]).max() <= DOUBTFUL and not every.too_large(found[-1]):
            return found[-1]
    return min(found, key=lambda capsules: every.cost(capsule_numbers(capsules)))


def _together_from(
    axes: Axes, shapes: list[TaperedCapsule], everywhere: _Places, every: GridProblem, trust: float
) -> list[TaperedCapsule]:
    """Return capsules fitted together, found from the smallest ones with steps that begin with `trust` (m).

    They are held at the grid points, halfway between them, and, where that leaves something elsewhere, there, too.
    """
    result = shapes
    coarse = {*grid_points(axes), *_between(axes)}
    held = np.array([place in coarse for place in everywhere.places])
    missing = everywhere.missing(result)
    for _ in range(ROUNDS_TOGETHER):
        if missing.max() <= DOUBTFUL and not every.changes_too_fast(result):
            break
        problem = replace(every, weights=everywhere.weights[held], hulls=list(compress(everywhere.hulls, held)))
        result = fitted_together(result, problem, trust)
        missing = everywhere.missing(result)
        held |= missing > NOTICED
    return result


def _inflated(shapes: list[Shape], everywhere: _Places, cost: np.ndarray) -> list[Shape]:
    """Return the shapes inflated by the least (weighted by `cost`) that, interpolated, removes the protrusion."""
    result = shapes
    for _ in range(ROUNDS):
        missing = everywhere.missing(result)
        if missing.max() <= COVERED:
            break
        needed = 1.02 * missing.round(7)  # the same on every processor, so that the same solution is found
        least = linprog(cost, A_ub=-everywhere.weights, b_ub=-needed, bounds=(0, None), method="highs")
        result = [shape.inflated(float(by)) if by > 0 else shape for shape, by in zip(result, least.x, strict=True)]
    return result


def _between(axes: Axes, spacing: tuple[float, float] = (np.inf, np.inf)) -> list[tuple[float, float]]:
    """Return the places, besides the grid points, that divide every step in two, and in more if that is longer than
    `spacing`."""
    parts = [
        2 * np.maximum(np.ceil(np.diff(values) / (2 * most) - 1e-6), 1).astype(int)
        for values, most in zip(axes, spacing, strict=True)
    ]
    finer = tuple(divided(values, part) for values, part in zip(axes, parts, strict=True))
    grid = set(grid_points(axes))
    return [place for place in grid_points(finer) if place not in grid]


def _weights(axes: Axes, places: Sequence[tuple[float, float]]) -> csr_array:
    """Return the weights (P, G) of the grid points at each place."""
    entries, rows, columns = [], [], []
    for row, (extension, yaw) in enumerate(places):
        first, first_weights = interpolation(axes[0], extension)
        second, second_weights = interpolation(axes[1], yaw)
        for i, wi in zip(first, first_weights, strict=True):
            for j, wj in zip(second, second_weights, strict=True):
                entries.append(wi * wj)
                rows.append(row)
                columns.append(i * len(axes[1]) + j)
    return csr_array((entries, (rows, columns)), shape=(len(places), len(axes[0]) * len(axes[1])))
