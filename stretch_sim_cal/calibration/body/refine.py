"""Refines the grid of a body shape, and names its shapes' parameters so that interpolating between them makes sense."""

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from stretch_sim_cal.geometry.shapes import Shape, TaperedCapsule
from stretch_sim_cal.geometry.shapes_capsule import refined_capsule

Axes = tuple[list[float], list[float]]
"""Increasing values of arm extension (m) and wrist yaw (rad)."""
Hulls = Callable[[Sequence[tuple[float, float]]], list[np.ndarray]]
"""Gives for places (extension, yaw) the corners (K, 2) of what has to be enclosed there."""
REFINEMENTS, MOST_PARTS = 4, 4
SHORTEST = (0.02, np.deg2rad(4.0))  # m, rad: steps of extension and yaw are not divided into shorter ones
SWEEPS = 2
SMOOTH = 0.02  # m: a capsule that differs by less from the mean of those around it continues them
AS_GOOD = 1.003  # a capsule of at most this much more area is taken where it is more like its neighbours


def refined_axes(
    axes: Axes, fit: Callable[..., Shape], hulls: Hulls, above: float, max_grid_points: int
) -> tuple[Axes, dict[tuple[float, float], Shape]]:
    """Return the axes with values added where a shape halfway would have to be inflated by more than `above` (m), and
    the shapes fitted at all grid points.

    What is missing halfway falls with the square of the step, so a step is divided as often as that asks for; where
    the best shape changes abruptly it falls more slowly, so this is done again. The worst steps come first, as long as
    the grid keeps to `max_grid_points`; steps shorter than `SHORTEST` are left.
    """
    fitted: dict[tuple[float, float], Shape] = {}
    for _ in range(REFINEMENTS):
        _fit_missing(axes, fit, hulls, fitted)
        wanted = _missing_halfway(axes, fitted, hulls)
        parts = _shares(axes, wanted, above, max_grid_points)
        if all((part == 1).all() for part in parts):
            break
        axes = tuple(divided(values, part) for values, part in zip(axes, parts, strict=True))
    _fit_missing(axes, fit, hulls, fitted)
    return axes, fitted


def _shares(axes: Axes, wanted: list[tuple[float, int, int]], above: float, max_grid_points: int) -> list[np.ndarray]:
    """Return into how many parts each step of each axis is divided: one more for the one that is still worst, over and
    over, until none is worse than `above` or the grid is full."""
    parts = [np.ones(len(values) - 1, dtype=int) for values in axes]
    queue = [(-protrusion, axis, index) for protrusion, axis, index in wanted]
    heapq.heapify(queue)
    while queue and -queue[0][0] > above:
        missing, axis, index = heapq.heappop(queue)
        count = parts[axis][index] + 1
        step = axes[axis][index + 1] - axes[axis][index]
        sizes = [int(part.sum()) + 1 + (number == axis) for number, part in enumerate(parts)]
        if count <= MOST_PARTS and step / count >= SHORTEST[axis] and sizes[0] * sizes[1] <= max_grid_points:
            parts[axis][index] = count
            heapq.heappush(queue, (missing * ((count - 1) / count) ** 2, axis, index))
    return parts


def _fit_missing(axes: Axes, fit: Callable[..., Shape], hulls: Hulls, fitted: dict) -> None:
    """Fit shapes at the grid points that have none yet, from those before and beside them where there are any."""
    places = grid_points(axes)
    for index, (place, hull) in enumerate(zip(places, hulls(places), strict=True)):
        if place not in fitted:
            around = [places[other] for other in _neighbours(index, len(places), len(axes[1]))]
            fitted[place] = fit(place, hull, [fitted[other] for other in around if other in fitted])


def _missing_halfway(axes: Axes, fitted: dict, hulls: Hulls) -> list[tuple[float, int, int]]:
    """Return for each step of each axis how far the robot sticks out halfway at most (m), the axis and the step."""
    steps, places = [], []
    for axis in (0, 1):
        for index in range(len(axes[axis]) - 1):
            for other in axes[1 - axis]:
                pair = [_place(axis, axes[axis][index + end], other) for end in (0, 1)]
                steps.append((axis, index, pair))
                places.append(tuple(np.mean(pair, axis=0)))
    worst: dict[tuple[int, int], float] = {}
    for (axis, index, pair), hull in zip(steps, hulls(places), strict=True):
        protrusion = _halfway(fitted[pair[0]], fitted[pair[1]]).protrusion(hull)
        worst[axis, index] = max(worst.get((axis, index), 0.0), protrusion)
    return [(protrusion, axis, index) for (axis, index), protrusion in worst.items()]


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
    for _ in range(SWEEPS):
        for index, hull in enumerate(hulls):
            around = [result[other] for other in neighbours[index]]
            result[index] = _continued(result[index], hull, around)
    return result


def grid_points(axes: Axes) -> list[tuple[float, float]]:
    return [(e, y) for e in axes[0] for y in axes[1]]


def _place(axis: int, value: float, other: float) -> tuple[float, float]:
    return (value, other) if axis == 0 else (other, value)


def divided(values: list[float], parts: np.ndarray) -> list[float]:
    pieces = [np.linspace(a, b, n + 1)[:-1] for a, b, n in zip(values[:-1], values[1:], parts, strict=True)]
    return np.concatenate([*pieces, values[-1:]]).tolist()


def _halfway(a: Shape, b: Shape) -> Shape:
    return type(a).from_vector((a.vector + _like(b, a).vector) / 2)


def _like(shape: Shape, other: Shape) -> Shape:
    """Return the same shape with its parameters named as is nearest to `other`'s."""
    return shape.like(other) if hasattr(shape, "like") else shape


def _continued(shape: TaperedCapsule, hull: np.ndarray, around: list[TaperedCapsule]) -> TaperedCapsule:
    """Return a capsule around the hull, as small (almost) as `shape` is, that is most like its neighbours."""
    if not around:
        return shape
    shape = shape.like(around[0])
    if (
        np.abs(shape.vector - np.mean([other.vector for other in around], axis=0)).max() < SMOOTH
        and not shape.is_circle
    ):
        return shape
    options = [shape] + [refined_capsule(hull, other.vector) for other in around]
    least = min(option.area for option in options)
    good = [option.like(other) for option in options if option.area <= AS_GOOD * least for other in around[:1]]
    best = min(good, key=lambda option: sum(_unlike(option, other) for other in around))
    if best.is_circle:  # the disc inside is free: halfway between those of the neighbours
        best = best.with_disc_inside(*np.mean([other.vector[3:] for other in around], axis=0).tolist())
    return best


def _unlike(a: Shape, b: Shape) -> float:
    return float(((a.vector - b.vector) ** 2).sum())


def _neighbours(index: int, total: int, count: int) -> list[int]:
    """Return the grid points next to one, in a grid of `total` row by row, `count` to a row."""
    column = index % count
    found = (
        [index - count, index + count] + ([index - 1] if column else []) + ([index + 1] if column < count - 1 else [])
    )
    return [other for other in found if 0 <= other < total]
