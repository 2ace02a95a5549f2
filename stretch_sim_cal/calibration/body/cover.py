"""Makes shapes on a grid enclose the robot between the grid points, too, where parameters are interpolated linearly.

Capsules are fitted together where the robot sticks out by more than a little; then all shapes are inflated by what is
left, the least that a linear program finds.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from stretch_sim_cal.calibration.body.joint import GridProblem, capsule_numbers, fitted_together
from stretch_sim_cal.calibration.body.model import interpolation
from stretch_sim_cal.calibration.body.refine import Axes, Hulls, divided, grid_points, neighbours
from stretch_sim_cal.geometry.shapes import Shape, TaperedCapsule

COVERED = 1e-4  # m, what may stick out between grid points where it was verified
DOUBTFUL = 1e-3  # m: where more than this is missing, capsules are fitted together and not only inflated
ROUNDS = 8
NOTICED = 1e-4  # m: where no more than this is missing, capsules that are fitted together are not held
SPACING = (0.03, np.deg2rad(5.0))  # m of extension, rad of yaw: the robot is held against the shapes this closely
ROUNDS_TOGETHER = 3
TRUSTS = (0.1, 0.2, 0.05)  # m
OWN_WEIGHT = 20.0  # of the inflation of a grid point that was asked for, against one that was added


def covering(axes: Axes, shapes: list[Shape], hulls: Hulls, asked_for: Axes) -> tuple[list[Shape], float, float]:
    """Return the shapes (row by row) changed so that those interpolated between them enclose the hulls there.

    Verified halfway along all steps, and at least as closely as `SPACING`. `asked_for` are the axes before they were
    refined: area is added elsewhere where it can. Also returns how far the robot stuck out of the interpolated shapes
    at most (m), before and after.
    """
    grid = grid_points(axes)
    between = _between(axes, SPACING)
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
    """Return capsules fitted together where more than a little is missing: with the first of `TRUSTS` that encloses
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
    """Return the shapes inflated by the least (weighted by `cost`) that, interpolated, makes up for what is missing."""
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
    """Return the places, besides the grid points, that divide every step in two, and in more where that is longer than
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
