"""Refines the grid of a body shape where shapes interpolated between its points would leave much of the robot outside."""

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from stretch_sim_cal.calibration.body.branches import most_alike
from stretch_sim_cal.geometry.shapes import Shape

Axes = tuple[list[float], list[float]]
"""Increasing values of arm extension (m) and wrist yaw (rad)."""
Hulls = Callable[[Sequence[tuple[float, float]]], list[np.ndarray]]
"""Gives for places (extension, yaw) the corners (K, 2) of what has to be enclosed there."""
REFINEMENTS, MOST_PARTS = 4, 4
SHORTEST = (0.02, np.deg2rad(4.0))  # m, rad: steps of extension and yaw are not divided into shorter ones
Fit = Callable[..., list[Shape]]
"""Gives for a place, what has to be enclosed there and the shapes beside it the possible shapes, the smallest first."""


def fitted_on(axes: Axes, fit: Fit, hulls: Hulls) -> tuple[Axes, list[Shape]]:
    """Return the axes and the shapes at their grid points, row by row."""
    return _with_shapes(axes, fit, hulls, {})


def refined(axes: Axes, fit: Fit, hulls: Hulls, above: float, max_grid_points: int) -> tuple[Axes, list[Shape]]:
    """Return the axes with values added where a shape halfway would have to be inflated by more than `above` (m), and
    the shapes at all grid points, row by row.

    What is missing halfway falls with the square of the step, so a step is divided as often as that asks for; where
    the best shape changes abruptly it falls more slowly, so this is done again. The worst steps come first, as long as
    the grid keeps to `max_grid_points`; steps shorter than `SHORTEST` are left.
    """
    fitted: dict[tuple[float, float], list[Shape]] = {}
    axes, shapes = _with_shapes(axes, fit, hulls, fitted)
    for _ in range(REFINEMENTS):
        wanted = _missing_halfway(axes, shapes, hulls)
        parts = _shares(axes, wanted, above, max_grid_points)
        if all((part == 1).all() for part in parts):
            break
        axes = tuple(divided(values, part) for values, part in zip(axes, parts, strict=True))
        axes, shapes = _with_shapes(axes, fit, hulls, fitted)
    return axes, shapes


def _with_shapes(axes: Axes, fit: Fit, hulls: Hulls, fitted: dict) -> tuple[Axes, list[Shape]]:
    """Return the axes and their shapes, fitted where `fitted` holds none yet, those beside them as first guesses."""
    places = grid_points(axes)
    pairs = neighbours(axes)
    for index, (place, hull) in enumerate(zip(places, hulls(places), strict=True)):
        if place not in fitted:
            beside = [places[other] for other in pairs[pairs[:, ::-1] == index]]
            fitted[place] = fit(place, hull, [fitted[other][0] for other in beside if other in fitted])
    return axes, most_alike([fitted[place] for place in places], len(axes[1]))


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


def _missing_halfway(axes: Axes, shapes: list[Shape], hulls: Hulls) -> list[tuple[float, int, int]]:
    """Return for each step of each axis how far the robot sticks out halfway at most (m), the axis and the step."""
    places, count = grid_points(axes), len(axes[1])
    pairs = neighbours(axes)
    halfway = [tuple(np.mean([places[a], places[b]], axis=0)) for a, b in pairs]
    worst: dict[tuple[int, int], float] = {}
    for (a, b), hull in zip(pairs, hulls(halfway), strict=True):
        between = type(shapes[a]).from_vector((shapes[a].vector + shapes[b].vector) / 2)
        step = (0, a // count) if a // count != b // count else (1, a % count)
        worst[step] = max(worst.get(step, 0.0), between.protrusion(hull))
    return [(round(protrusion, 7), axis, index) for (axis, index), protrusion in worst.items()]


def neighbours(axes: Axes) -> np.ndarray:
    """Return the pairs (E, 2) of grid points that are next to each other, the first before the second."""
    index = np.arange(len(axes[0]) * len(axes[1])).reshape(len(axes[0]), len(axes[1]))
    pairs = ((index[:-1], index[1:]), (index[:, :-1], index[:, 1:]))
    return np.concatenate([np.column_stack([a.ravel(), b.ravel()]) for a, b in pairs])


def grid_points(axes: Axes) -> list[tuple[float, float]]:
    return [(e, y) for e in axes[0] for y in axes[1]]


def divided(values: list[float], parts: np.ndarray) -> list[float]:
    pieces = [np.linspace(a, b, n + 1)[:-1] for a, b, n in zip(values[:-1], values[1:], parts, strict=True)]
    return np.concatenate([*pieces, values[-1:]]).tolist()
