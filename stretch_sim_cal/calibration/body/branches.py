"""Chooses, of the shapes that are (almost) the best at each grid point, those that continue each other over the grid.

The smallest capsule around a hull is one of several local minima, and which of them is the smallest changes abruptly
with the pose. Interpolating from one to another leaves the robot outside, so of minima with hardly more area those are
taken whose numbers change least: exactly along a line of the grid, by dynamic programming, and line after line along
both axes until none of them changes any more.
"""

from collections.abc import Sequence

import numpy as np

from stretch_sim_cal.geometry.shapes import Shape, TaperedCapsule

AS_GOOD = 1.01  # an option of at most this much more area than the smallest is as good
CHANGE_COST = 0.5  # of a squared change (m^2), in shares of the area: 10 cm cost as much as half a percent
SWEEPS = 4
TIE = 9  # decimals of costs that are the same: of two the first is taken, whatever the last bits are


def most_alike(options: Sequence[Sequence[Shape]], count: int) -> list[Shape]:
    """Return one of the `options` of each grid point, which are row by row, `count` to a row, the smallest first.

    Ends, axes and vertices are named so that the numbers are most like those of the grid points beside.
    """
    if not isinstance(options[0][0], TaperedCapsule):
        shapes = [shapes[0] for shapes in options]
        for index in range(1, len(shapes)):
            if hasattr(shapes[index], "like"):
                shapes[index] = shapes[index].like(shapes[index - 1 if index % count else index - count])
        return shapes
    forms = [_forms(capsules) for capsules in options]
    chosen = _chosen_forms(forms, count)
    capsules = [TaperedCapsule.from_vector(vectors[k]) for (vectors, _), k in zip(forms, chosen, strict=True)]
    return _with_inner_discs(capsules, count)


def _forms(capsules: Sequence[TaperedCapsule]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers (F, 6) of the capsules that are as good as the first, ends in both orders, and what each costs
    (F,)."""
    good = [capsule for capsule in capsules if capsule.area <= AS_GOOD * capsules[0].area]
    forms = [form for capsule in good for form in (capsule, capsule.swapped())]
    return np.array([form.vector for form in forms]), np.array([form.area / capsules[0].area - 1 for form in forms])


def _chosen_forms(forms: list[tuple[np.ndarray, np.ndarray]], count: int) -> np.ndarray:
    """Return which form is taken at each grid point."""
    index = np.arange(len(forms)).reshape(-1, count)
    rows, columns = list(index), list(index.T)
    chosen = np.zeros(len(forms), dtype=int)
    settled = np.zeros(len(forms), dtype=bool)
    for _ in range(SWEEPS):
        before = chosen.copy()
        for line, across in [(row, count) for row in rows] + [(column, 1) for column in columns]:
            costs = [forms[i][1] + _change_from_beside(i, across, forms, chosen, settled, count) for i in line]
            chosen[line] = _cheapest_path(costs, [forms[i][0] for i in line])
            settled[line] = True
        if (chosen == before).all():
            break
    return chosen


def _change_from_beside(index, across, forms, chosen, settled, count) -> np.ndarray:
    """Return what each form of a grid point costs for its change from those beside its line, where these are settled."""
    cost = np.zeros(len(forms[index][1]))
    for other in (index - across, index + across):
        in_grid = 0 <= other < len(forms) and (across == count or other // count == index // count)
        if in_grid and settled[other]:
            cost += _change(forms[index][0], forms[other][0][[chosen[other]]])[:, 0]
    return cost


def _cheapest_path(costs: list[np.ndarray], vectors: list[np.ndarray]) -> list[int]:
    """Return the form of each point of a line so that its costs and changes are least together (Viterbi)."""
    total, came_from = costs[0], []
    for before, after, cost in zip(vectors[:-1], vectors[1:], costs[1:], strict=True):
        through = total[:, None] + _change(before, after)
        came_from.append(np.round(through, TIE).argmin(axis=0))
        total = through.min(axis=0) + cost
    path = [int(np.round(total, TIE).argmin())]
    for previous in reversed(came_from):
        path.append(int(previous[path[-1]]))
    return path[::-1]


def _change(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    return CHANGE_COST * ((some[:, None] - others) ** 2).sum(axis=2)


def _with_inner_discs(capsules: list[TaperedCapsule], count: int) -> list[TaperedCapsule]:
    """Return the capsules; of those that are circles the second disc, which is free, like that of one beside."""
    result = list(capsules)
    for order in (range(len(result)), reversed(range(len(result)))):
        for index in order:
            step = 1 if isinstance(order, range) else -1
            beside = [i for i in (index - step, index - step * count) if 0 <= i < len(result)]
            beside = [
                i
                for i in beside
                if not result[i].is_circle and (i // count == index // count or i % count == index % count)
            ]
            if result[index].is_circle and beside:
                result[index] = result[index].like(result[beside[0]])
    return result
