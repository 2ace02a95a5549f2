"""The smallest tapered capsule around points in the plane: a search over wedges, then sequential quadratic programming.

The problem has several local minima. Two tangents that touch the points fix a wedge, and within a wedge the two end
discs follow in closed form, so whole families of capsules are compared at once; the best few of them, and the
smallest circle, start the refinement over all six numbers with analytic gradients.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from stretch_sim_cal.geometry.enclosing.circle import enclosing_circle
from stretch_sim_cal.geometry.hulls import spanning_hull
from stretch_sim_cal.geometry.shapes import TaperedCapsule, capsule_area, capsule_distance

DIRECTIONS = 24  # axis directions over the whole turn; the wider end is behind
TAPERS = np.deg2rad([0.0, 4.0, 8.0, 13.0, 19.0, 26.0, 35.0, 47.0])  # half angles of the wedge
WIDENINGS = [0.0, 0.03, 0.1]  # of the hull's size: tangents that keep clear of the points
STARTS = 5
DECIMALS = 6  # of the numbers (m) of a minimum: what a solver leaves beyond depends on the processor
SAME = 0.003  # m: capsules whose numbers differ by less are one minimum


def enclosing_capsule(points: np.ndarray) -> TaperedCapsule:
    """Return the tapered capsule of least area around points (N, 2), in canonical form.

    Raises `InputError` where the points span no area.
    """
    return capsule_minima(points)[0]


def capsule_minima(
    points: np.ndarray, starts: Sequence[TaperedCapsule] = (), count: int = STARTS
) -> list[TaperedCapsule]:
    """Return the local minima of area among tapered capsules around points (N, 2), canonical, the smallest first.

    They are found from the smallest circle, the `count` best of the search over wedges, and from `starts`, for instance
    the capsules of neighbouring poses. Raises `InputError` where the points span no area.
    """
    hull = spanning_hull(points)
    circle = enclosing_circle(hull)
    guesses = [start.vector for start in starts] + wedge_capsules(hull, count)
    found = [TaperedCapsule(*circle.vector, *circle.vector)] + [refined_capsule(hull, guess) for guess in guesses]
    settled = (
        TaperedCapsule.from_vector(np.round(capsule.vector, DECIMALS)).grown_to_enclose(hull).canonical()
        for capsule in found
    )
    minima: list[TaperedCapsule] = []
    for capsule in sorted(settled, key=lambda capsule: round(capsule.area, DECIMALS)):
        if all(np.abs(capsule.vector - other.vector).max() > SAME for other in minima):
            minima.append(capsule)
    return minima


def refined_capsule(hull: np.ndarray, start: np.ndarray) -> TaperedCapsule:
    """Return the local minimum of area around hull corners (K, 2) that is reached from `start` (6,).

    Holds every corner, however the solver ends: it is grown evenly by what is left outside.
    """
    middle, scale = hull.mean(axis=0), np.abs(hull - hull.mean(axis=0)).max()
    shift = np.array([*middle, 0.0, *middle, 0.0])
    corners = (hull - middle) / scale
    last: list = [None, None]

    def slack(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far inside the corners are, with the gradient; the solver asks for both at the same place."""
        if last[0] is None or not np.array_equal(last[0], z):
            distance, gradient = capsule_distance(z, corners)
            last[:] = z.copy(), (-distance, -gradient)
        return last[1]

    found = minimize(
        capsule_area,
        (start - shift) / scale,
        jac=True,
        bounds=[(None, None), (None, None), (1e-6, None)] * 2,
        constraints={
            "type": "ineq",
            "fun": lambda z: slack(z)[0],
            "jac": lambda z: slack(z)[1],
        },
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 100},
    ).x
    if not np.isfinite(found).all():
        found = (start - shift) / scale
    return TaperedCapsule.from_vector(found * scale + shift).grown_to_enclose(hull)


def wedge_capsules(hull: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the parameters (6,) of the `count` smallest capsules, unlike each other, over a grid of wedges.

    A wedge has an axis direction and a half angle; its sides touch the hull, or keep clear of it by some widening.
    """
    middle, scale = hull.mean(axis=0), np.abs(hull - hull.mean(axis=0)).max()
    corners = (hull - middle) / scale
    angle, taper, left, right = (
        grid.ravel()
        for grid in np.meshgrid(
            np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS), TAPERS, WIDENINGS, WIDENINGS, indexing="ij"
        )
    )
    capsules = _capsules_in_wedges(corners, angle, taper, left, right)
    length = np.hypot(*(capsules[:, 3:5] - capsules[:, :2]).T)
    radii = capsules[:, [2, 5]]
    areas = (np.pi / 2 - taper) * radii[:, 1] ** 2 + (np.pi / 2 + taper) * radii[:, 0] ** 2
    areas += radii.sum(axis=1) * length * np.cos(taper)
    areas[~(radii > 0).all(axis=1)] = np.inf
    chosen: list[np.ndarray] = []
    for index in np.argsort(areas.round(DECIMALS), kind="stable"):
        if len(chosen) == count or not np.isfinite(areas[index]):
            break
        if all(np.abs(capsules[index] - other).max() > 0.1 for other in chosen):
            chosen.append(capsules[index])
    return [capsule * scale + [*middle, 0.0, *middle, 0.0] for capsule in chosen]


def _capsules_in_wedges(corners, angle, taper, left, right) -> np.ndarray:
    """Return for every wedge (W of them) the smallest capsule (W, 6) that fills it and holds all corners (K, 2).

    In the wedge's frame x runs along the axis towards the narrow end. The discs that touch both sides have the
    radius r(s) = wide - s sin(taper) at s along the axis; a corner (x, y) lies on the circles of centre s with
    (x - s)^2 + y^2 = r(s)^2, which is quadratic in s: the smaller root is the last centre whose front arc it touches,
    the larger root the first one for the rear arc.
    """
    sine, cosine = np.sin(taper), np.cos(taper)
    axis = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    normal = np.stack([-axis[:, 1], axis[:, 0]], axis=1)
    x, y = corners @ axis.T, corners @ normal.T  # (K, W)
    upper = (x * sine + y * cosine).max(axis=0) + left  # sides: x sine +- y cosine <= upper, lower
    lower = (x * sine - y * cosine).max(axis=0) + right
    centre = (upper - lower) / (2 * cosine)  # the axis' y
    wide = (upper + lower) / 2  # the radius at s = 0
    y = y - centre
    # (1 - sine^2) s^2 - 2 (x - wide sine) s + x^2 + y^2 - wide^2 = 0
    half = x - wide * sine
    root = np.sqrt(np.maximum(0.0, half**2 - cosine**2 * (x**2 + y**2 - wide**2)))
    rear = ((half + root) / cosine**2).min(axis=0)
    front = ((half - root) / cosine**2).max(axis=0)
    first, last = rear, np.maximum(rear, front)  # where the ends overlap one disc is enough
    radius = np.stack([wide - first * sine, wide - last * sine], axis=1)
    ends = [axis * s[:, None] + normal * centre[:, None] for s in (first, last)]
    return np.concatenate([ends[0], radius[:, :1], ends[1], radius[:, 1:]], axis=1)
