"""Makes shapes on a grid enclose the robot between the grid points, too, where parameters are interpolated linearly."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from stretch_sim_cal.calibration.body_shape_model import interpolation
from stretch_sim_cal.geometry.shapes import Shape, TaperedCapsule
from stretch_sim_cal.geometry.shapes_capsule import refined_capsule

Axes = tuple[list[float], list[float]]
Hulls = Callable[[Sequence[tuple[float, float]]], list[np.ndarray]]
COVERED = 1e-4  # m, what may stick out between grid points where it was verified
ROUNDS = 6
AS_GOOD = 1.003  # a capsule of at most this much more area is taken where it is more like its neighbours


def refined_axes(
    axes: Axes, fit: Callable[[np.ndarray], Shape], hulls: Hulls, above: float, max_grid_points: int
) -> Axes:
    """Return the axes with values added where a shape halfway would have to be inflated by more than `above` (m).

    What is missing halfway falls with the square of the step, so each step is divided at once as often as that asks
    for, the worst first, as long as the grid keeps to `max_grid_points`.
    """
    fitted = {(e, y): fit(hull) for (e, y), hull in zip(_product(axes), hulls(_product(axes)), strict=True)}
    wanted = []  # (protrusion halfway, axis, index of the step)
    for axis in (0, 1):
        places, ends = [], []
        for index in range(len(axes[axis]) - 1):
            for other in axes[1 - axis]:
                pair = [_place(axis, axes[axis][index + step], other) for step in (0, 1)]
                places.append(tuple(np.mean(pair, axis=0)))
                ends.append((index, pair))
        for (index, pair), hull in zip(ends, hulls(places), strict=True):
            wanted.append((_halfway(fitted[pair[0]], fitted[pair[1]]).protrusion(hull), axis, index))
    parts = [np.ones(len(values) - 1, dtype=int) for values in axes]
    for protrusion, axis, index in sorted(wanted, reverse=True):
        more = int(np.ceil(np.sqrt(protrusion / above)))
        counts = [int(part.sum()) + 1 for part in parts]
        room = max_grid_points // counts[1 - axis] - counts[axis]
        parts[axis][index] = max(parts[axis][index], min(more, parts[axis][index] + max(0, room)))
    return tuple(_divided(values, part) for values, part in zip(axes, parts, strict=True))


def settled(axes: Axes, shapes: list[Shape], hulls: list[np.ndarray]) -> list[Shape]:
    """Return the shapes of a grid (row by row) with parameters that continue those of their neighbours.

    Ends and angles are named alike; and where a capsule has another minimum of (almost) as little area that is more
    like those around it, that one is taken, so that interpolating between them does not cross from one to the other.
    """
    count = len(axes[1])
    neighbours = [_neighbours(index, len(shapes), count) for index in range(len(shapes))]
    result = list(shapes)
    for index in range(1, len(result)):
        result[index] = _like(result[index], result[index - 1 if index % count else index - count])
    if not isinstance(result[0], TaperedCapsule):
        return result
    for _ in range(2):
        for index, hull in enumerate(hulls):
            around = [result[other] for other in neighbours[index]]
            options = [result[index]]
            options += [other for other in (_continued(hull, shape) for shape in around) if other.area > 0]
            least = min(option.area for option in options)
            good = [_like(option, around[0]) if around else option for option in options if option.area <= AS_GOOD * least]
            result[index] = min(good, key=lambda shape: sum(_unlike(shape, other) for other in around))
    return result


def covering(axes: Axes, shapes: list[Shape], hulls: Hulls) -> tuple[list[Shape], float, float]:
    """Return the shapes inflated so that those interpolated between them enclose the hulls there.

    Tested in the middle of every edge and cell, then on a finer grid. Also returns how far the robot stuck out of the
    interpolated shapes at most (m) before and after.
    """
    places = _between(axes, 2)
    if not places:
        return shapes, 0.0, 0.0
    before = None
    result = list(shapes)
    for _ in range(ROUNDS):
        weights = _weights(axes, places)
        needed = np.array([s.protrusion(h) for s, h in zip(_interpolated(result, weights), hulls(places), strict=True)])
        before = needed.max() if before is None else before
        if needed.max() <= COVERED:
            finer = [place for place in _between(axes, 4) if place not in set(places)]
            if not finer or len(finer) + len(places) > 1500:
                break
            places = places + finer
            continue
        # The least inflations (their sum) that, interpolated, make up for what is missing.
        least = linprog(np.ones(len(result)), A_ub=-weights, b_ub=-1.02 * needed, bounds=(0, None), method="highs")
        result = [shape.inflated(float(by)) if by > 0 else shape for shape, by in zip(result, least.x, strict=True)]
    weights = _weights(axes, places)
    left = max(s.protrusion(h) for s, h in zip(_interpolated(result, weights), hulls(places), strict=True))
    return result, float(before), float(left)


def _product(axes: Axes) -> list[tuple[float, float]]:
    return [(e, y) for e in axes[0] for y in axes[1]]


def _place(axis: int, value: float, other: float) -> tuple[float, float]:
    return (value, other) if axis == 0 else (other, value)


def _divided(values: list[float], parts: np.ndarray) -> list[float]:
    pieces = [np.linspace(a, b, n + 1)[:-1] for a, b, n in zip(values[:-1], values[1:], parts, strict=True)]
    return np.concatenate([*pieces, values[-1:]]).tolist()


def _between(axes: Axes, parts: int) -> list[tuple[float, float]]:
    """Return the places that divide every step of the grid into `parts`, without the grid points."""
    finer = tuple(_divided(values, np.full(len(values) - 1, parts)) for values in axes)
    grid = set(_product(axes))
    return [place for place in _product(finer) if place not in grid]


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


def _halfway(a: Shape, b: Shape) -> Shape:
    return type(a).from_vector((a.vector + _like(b, a).vector) / 2)


def _like(shape: Shape, other: Shape) -> Shape:
    """Return the same shape with its parameters named as is nearest to `other`'s."""
    return shape.like(other) if hasattr(shape, "like") else shape


def _continued(hull: np.ndarray, neighbour: TaperedCapsule) -> TaperedCapsule:
    return refined_capsule(hull, neighbour.vector)


def _unlike(a: Shape, b: Shape) -> float:
    return float(((a.vector - b.vector) ** 2).sum())


def _neighbours(index: int, total: int, count: int) -> list[int]:
    """Return the grid points next to one, in a grid of `total` row by row, `count` to a row."""
    column = index % count
    found = [index - count, index + count] + ([index - 1] if column else []) + ([index + 1] if column < count - 1 else [])
    return [other for other in found if 0 <= other < total]
