"""Makes shapes on a grid enclose the robot between the grid points, too, where parameters are interpolated linearly.

First all shapes are inflated just so far; then capsules, where that made them larger, are fitted once more, one after
the other, under the condition that what is interpolated between them and their neighbours still encloses the robot.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_array

from stretch_sim_cal.calibration.body.model import interpolation
from stretch_sim_cal.calibration.body.refine import Axes, Hulls, divided, grid_points
from stretch_sim_cal.geometry.shapes import Shape, TaperedCapsule, capsule_area, capsule_distance

COVERED = 1e-4  # m, what may stick out between grid points where it was verified
DOUBTFUL = 1e-3  # m: where more than this was missing halfway, it is looked at more closely
ROUNDS = 8
SWEEPS = 2
TIGHT = 1.008  # a capsule with at most this much more area than without neighbours is left as it is
STEP = 0.04  # m, by which a capsule's numbers may change in one sweep
OWN_WEIGHT = 20.0  # of the inflation of a grid point that was asked for, against one that was added


def covering(axes: Axes, shapes: list[Shape], hulls: Hulls, asked_for: Axes) -> tuple[list[Shape], float, float]:
    """Return the shapes (row by row) changed so that those interpolated between them enclose the hulls there.

    `asked_for` are the axes before they were refined: inflation is put elsewhere where it can. Also returns how far the
    robot stuck out of the interpolated shapes at most (m), before and after.
    """
    places = _between(axes, 2)
    if not places:
        return shapes, 0.0, 0.0
    first = _missing(axes, shapes, places, hulls)
    places += _closer(axes, [place for place, missing in zip(places, first, strict=True) if missing > DOUBTFUL])
    weights, around = _weights(axes, places), hulls(places)
    own = hulls(grid_points(axes))
    cost = np.array([OWN_WEIGHT if e in asked_for[0] and y in asked_for[1] else 1.0 for e, y in grid_points(axes)])
    result = _inflated(shapes, weights, around, cost)
    if isinstance(shapes[0], TaperedCapsule):
        result = _tightened(result, shapes, own, weights, around)
    left = max(s.protrusion(hull) for s, hull in zip(_interpolated(result, weights), around, strict=True))
    return result, float(first.max()), float(left)


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


def _tightened(
    capsules: list[TaperedCapsule], alone: list[TaperedCapsule], own: list[np.ndarray], weights: csr_array, around: list
) -> list[TaperedCapsule]:
    """Return capsules of less area that still enclose all hulls, their `own` and, interpolated, those `around`."""
    vectors = np.array([capsule.vector for capsule in capsules])
    by_point = weights.tocsc()
    for _ in range(SWEEPS):
        for k, least in enumerate(alone):
            if capsule_area(vectors[k])[0] <= TIGHT * least.area:
                continue
            places = by_point.indices[by_point.indptr[k] : by_point.indptr[k + 1]]
            shares = by_point.data[by_point.indptr[k] : by_point.indptr[k + 1]]
            others = weights[places] @ vectors - shares[:, None] * vectors[k]
            parts = [(1.0, np.zeros(6), own[k])]
            parts += [(w, other, around[place]) for w, other, place in zip(shares, others, places, strict=True)]
            vectors[k] = _smaller(vectors[k], parts)
    return [TaperedCapsule.from_vector(vector) for vector in vectors]


def _smaller(vector: np.ndarray, parts: list[tuple[float, np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return a capsule (6,) of less area; for each of `parts` (w, other, hull) the capsule `other + w * vector`
    encloses the hull, as it does at first."""
    counts = [len(hull) for _, _, hull in parts]
    shares = np.repeat([w for w, _, _ in parts], counts)[:, None]
    others = np.repeat([other for _, other, _ in parts], counts, axis=0)
    points = np.concatenate([hull for _, _, hull in parts])

    def distance(z: np.ndarray, of=slice(None)) -> tuple[np.ndarray, np.ndarray]:
        return capsule_distance(others[of] + shares[of] * z, points[of])

    allowed = max(distance(vector)[0].max(), 1e-9)
    near = np.flatnonzero(distance(vector)[0] > -STEP)
    low, high = vector - STEP, vector + STEP
    low[[2, 5]] = np.maximum(low[[2, 5]], 1e-6)
    found = minimize(
        capsule_area, vector, jac=True, bounds=list(zip(low, np.maximum(low, high), strict=True)),
        constraints={
            "type": "ineq",
            "fun": lambda z: -distance(z, near)[0],
            "jac": lambda z: -shares[near] * distance(z, near)[1],
        },
        method="SLSQP", options={"ftol": 1e-7, "maxiter": 25},
    ).x  # fmt: skip
    before = capsule_area(vector)[0]
    for share in (1.0, 0.9, 0.5, 0.2):
        candidate = vector + share * (found - vector)
        if distance(candidate)[0].max() <= allowed and capsule_area(candidate)[0] < before:
            return candidate
    return vector


def _between(axes: Axes, parts: int) -> list[tuple[float, float]]:
    """Return the places that divide every step of the grid into `parts`, without the grid points."""
    finer = tuple(divided(values, np.full(len(values) - 1, parts)) for values in axes)
    grid = set(grid_points(axes))
    return [place for place in grid_points(finer) if place not in grid]


def _closer(axes: Axes, places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return places a quarter of a step to all sides of places that are halfway."""
    result = []
    for extension, yaw in places:
        steps = [_step(axis, value) for axis, value in zip(axes, (extension, yaw), strict=True)]
        result += [
            (extension + i * steps[0] / 4, yaw + j * steps[1] / 4) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j
        ]
    return list(dict.fromkeys(result))


def _step(axis: Sequence[float], value: float) -> float:
    """Return the length of the axis' step that a value is inside of; 0 on a grid point, where there is no halfway."""
    indices, _ = interpolation(axis, value)
    return axis[indices[1]] - axis[indices[0]] if len(indices) == 2 else 0.0


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
