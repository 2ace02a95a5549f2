"""Makes shapes on a grid enclose the robot between the grid points, too, where parameters are interpolated linearly.

Capsules are fitted together where the robot sticks out by more than a little; then all shapes are inflated by what is
left, the least that a linear program finds.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from stretch_sim_cal.calibration.body.joint import GridProblem, fitted_together
from stretch_sim_cal.calibration.body.model import interpolation
from stretch_sim_cal.calibration.body.refine import Axes, Hulls, divided, grid_points, neighbours
from stretch_sim_cal.geometry.shapes import Shape, TaperedCapsule

COVERED = 1e-4  # m, what may stick out between grid points where it was verified
DOUBTFUL = 1e-3  # m: where more than this is missing, capsules are fitted together and not only inflated
ROUNDS = 8
NOTICED = 1e-4  # m: where no more than this is missing, capsules that are fitted together are not held
SPACING = (0.03, np.deg2rad(5.0))  # m of extension, rad of yaw: the robot is held against the shapes this closely
ROUNDS_TOGETHER = 3
OWN_WEIGHT = 20.0  # of the inflation of a grid point that was asked for, against one that was added


def covering(axes: Axes, shapes: list[Shape], hulls: Hulls, asked_for: Axes) -> tuple[list[Shape], float, float]:
    """Return the shapes (row by row) changed so that those interpolated between them enclose the hulls there.

    Verified halfway along all steps, and at least as closely as `SPACING`. `asked_for` are the axes before they were
    refined: area is added elsewhere where it can. Also returns how far the robot stuck out of the interpolated shapes
    at most (m), before and after.
    """
    grid, places = grid_points(axes), _between(axes)
    if not places:
        return shapes, 0.0, 0.0
    asked = np.array([e in asked_for[0] and y in asked_for[1] for e, y in grid])
    before, result = _missing(axes, shapes, places, hulls), list(shapes)
    if isinstance(shapes[0], TaperedCapsule):
        result = _together(axes, shapes, places, hulls, asked)
    everywhere = [*grid, *places]
    result = _inflated(result, _weights(axes, everywhere), hulls(everywhere), np.where(asked, OWN_WEIGHT, 1.0))
    result = [shape.grown_to_enclose(hull) for shape, hull in zip(result, hulls(grid), strict=True)]  # exactly, there
    return result, float(before.max()), float(_missing(axes, result, everywhere, hulls).max())


def _together(
    axes: Axes, shapes: list[TaperedCapsule], places: list, hulls: Hulls, asked: np.ndarray
) -> list[TaperedCapsule]:
    """Return capsules fitted together where more than a little is missing.

    They are held at the grid points and where they miss anything, and where that leaves something elsewhere, again.
    """
    least, result = np.array([shape.area for shape in shapes]), list(shapes)
    held = grid_points(axes)
    for _ in range(ROUNDS_TOGETHER):
        missing = _missing(axes, result, places, hulls)
        held = list(dict.fromkeys([*held, *(places[i] for i in np.flatnonzero(missing > NOTICED))]))
        problem = GridProblem(_weights(axes, held), hulls(held), neighbours(axes), least, asked)
        if missing.max() <= DOUBTFUL and not problem.changes_too_fast(result):
            break
        result = fitted_together(result, problem)
    return result


def _missing(axes: Axes, shapes: list[Shape], places: list, hulls: Hulls) -> np.ndarray:
    """Return how far the robot sticks out (m) of the interpolated shape at each place."""
    interpolated = _interpolated(shapes, _weights(axes, places))
    return np.array([shape.protrusion(hull) for shape, hull in zip(interpolated, hulls(places), strict=True)])


def _inflated(shapes: list[Shape], weights: csr_array, hulls: list[np.ndarray], cost: np.ndarray) -> list[Shape]:
    """Return the shapes inflated by the least (weighted by `cost`) that, interpolated, makes up for what is missing."""
    result = list(shapes)
    for _ in range(ROUNDS):
        missing = np.array([s.protrusion(hull) for s, hull in zip(_interpolated(result, weights), hulls, strict=True)])
        if missing.max() <= COVERED:
            break
        least = linprog(cost, A_ub=-weights, b_ub=-1.02 * missing, bounds=(0, None), method="highs")
        result = [shape.inflated(float(by)) if by > 0 else shape for shape, by in zip(result, least.x, strict=True)]
    return result


def _between(axes: Axes) -> list[tuple[float, float]]:
    """Return the places, besides the grid points, that divide every step in two, and in more where it is long."""
    parts = [
        2 * np.ceil(np.diff(values) / (2 * spacing) - 1e-6).astype(int)
        for values, spacing in zip(axes, SPACING, strict=True)
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


def _interpolated(shapes: list[Shape], weights: csr_array) -> list[Shape]:
    vectors = weights @ np.array([shape.vector for shape in shapes])
    return [type(shapes[0]).from_vector(vector) for vector in vectors]
