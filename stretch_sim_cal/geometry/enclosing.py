"""The smallest shapes around points in the plane. Every shape holds all points, whatever the solver reports; points
that span no area raise `InputError` (a circle needs none)."""

import functools
from collections.abc import Sequence

import numpy as np
import shapely
from scipy.linalg import eig
from scipy.optimize import minimize

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry import shapes
from stretch_sim_cal.geometry.points import convex_hull, spanning_hull
from stretch_sim_cal.geometry.shapes import Circle, ConvexPolygon, Ellipse, TaperedCapsule

DIRECTIONS = 24  # axis directions over the whole turn; the wider end is behind
TAPERS = np.deg2rad([0.0, 4.0, 8.0, 13.0, 19.0, 26.0, 35.0, 47.0])  # half angles of the wedge
WIDENINGS = [0.0, 0.03, 0.1]  # of the hull's size: tangents that keep clear of the points
STARTS = 5
DECIMALS = 6  # of the numbers (m) of a minimum: what a solver leaves beyond depends on the processor
SAME = 0.003  # m: capsules whose numbers differ by less are one minimum
EVEN_NORMALS = 48  # evenly turned side directions that are tried besides those of the hull's own longest sides
HULL_NORMALS = 64


def enclosing_circle(points: np.ndarray) -> Circle:
    """Return the smallest circle around points (N, 2)."""
    hull = convex_hull(points)
    if not len(hull):
        raise InputError("no points: a circle needs one or more")
    corners = shapely.MultiPoint(hull)
    centre, radius = shapely.minimum_bounding_circle(corners).centroid, shapely.minimum_bounding_radius(corners)
    return Circle(centre.x, centre.y, float(radius)).grown_to_enclose(hull)


def enclosing_ellipse(points: np.ndarray) -> Ellipse:
    """Return the smallest ellipse around points (N, 2)."""
    hull = spanning_hull(points)
    _, spread, axes = np.linalg.svd(hull - hull.mean(axis=0), full_matrices=False)
    return _least_ellipse(hull, axes.T * spread / np.sqrt(len(hull)))


def enclosing_axis_aligned_ellipse(points: np.ndarray) -> Ellipse:
    """Return the smallest ellipse around points (N, 2) with axes along x and y."""
    hull = spanning_hull(points)
    return _least_ellipse(hull, np.diag(np.ptp(hull, axis=0) / 2), axis_aligned=True)


def _least_ellipse(hull: np.ndarray, scale: np.ndarray, axis_aligned: bool = False) -> Ellipse:
    """Return the ellipse of least area around hull corners (K, 2); `scale` (2, 2) makes them about as wide as high. For
    scaled corners |A q - b| <= 1 with A = [[u, w], [w, v]]; -log det A is convex in (u, v, w, b)."""
    middle = (hull.min(axis=0) + hull.max(axis=0)) / 2
    x, y = np.linalg.solve(scale, (hull - middle).T)

    def residuals(z):
        return z[0] * x + z[2] * y - z[3], z[2] * x + z[1] * y - z[4]

    def slack(z):
        first, second = residuals(z)
        return 1 - first**2 - second**2

    def slack_gradient(z):
        first, second = residuals(z)
        return -2 * np.stack([first * x, second * y, first * y + second * x, -first, -second], axis=1)

    def negative_log(z):
        determinant = max(z[0] * z[1] - z[2] ** 2, 1e-300)
        return -np.log(determinant), np.array([-z[1], -z[0], 2 * z[2], 0, 0]) / determinant

    circle, free = 1 / np.hypot(x, y).max(), (None, None)
    u, v, w, *b = minimize(
        negative_log, [circle, circle, 0.0, 0.0, 0.0], jac=True,
        bounds=[(1e-3, None), (1e-3, None), (0.0, 0.0) if axis_aligned else free, free, free],
        constraints={"type": "ineq", "fun": slack, "jac": slack_gradient},
        method="SLSQP", options={"ftol": 1e-12, "maxiter": 200},
    ).x  # fmt: skip
    to_disc = np.array([[u, w], [w, v]]) @ np.linalg.inv(scale)
    centre, shape = middle + np.linalg.solve(to_disc, b), np.linalg.inv(to_disc.T @ to_disc)
    return _ellipse(centre, shape).grown_to_enclose(hull)


def _ellipse(centre: np.ndarray, shape: np.ndarray) -> Ellipse:
    squares, axes = np.linalg.eigh(shape)
    angle = float(np.rad2deg(np.arctan2(axes[1, 0], axes[0, 0])))
    return Ellipse(float(centre[0]), float(centre[1]), *(2 * np.sqrt(squares)).tolist(), angle).canonical()


def algebraic_ellipse(points: np.ndarray) -> Ellipse:
    """Return the ellipse of least algebraic distance to points (N, 2), which need not enclose them (Halir and Flusser,
    "Numerically Stable Direct Least Squares Fitting of Ellipses"). Raises `InputError` if none fits."""
    points = np.asarray(points, dtype=float)
    if len(points) < 5:
        raise InputError(f"{len(points)} points: an ellipse has five parameters and needs five or more")
    origin, scale = points.mean(axis=0), max(np.abs(points - points.mean(axis=0)).max(), 1e-12)
    x, y = ((points - origin) / scale).T
    quadratic, linear = np.stack([x * x, x * y, y * y], axis=1), np.stack([x, y, np.ones(len(x))], axis=1)
    cross, lower = quadratic.T @ linear, linear.T @ linear
    if np.linalg.cond(lower) > 1e12:
        raise InputError("the points lie on one line; no ellipse fits them")
    to_linear = -np.linalg.solve(lower, cross.T)
    reduced = quadratic.T @ quadratic + cross @ to_linear
    constraint = np.array([[0.0, 0.0, 2.0], [0.0, -1.0, 0.0], [2.0, 0.0, 0.0]])
    vectors = eig(np.linalg.solve(constraint, reduced))[1].real
    a, b, c = vectors[:, np.argmax(4 * vectors[0] * vectors[2] - vectors[1] ** 2)]
    d, e, f = to_linear @ [a, b, c]
    matrix = np.array([[a, b / 2], [b / 2, c]])
    if 4 * a * c - b * b <= 1e-12:
        raise InputError("no ellipse fits the points")
    centre = np.linalg.solve(-2 * matrix, [d, e])
    return _ellipse(origin + scale * centre, scale**2 * np.linalg.inv(matrix / (centre @ matrix @ centre - f)))


def enclosing_algebraic_ellipse(points: np.ndarray) -> Ellipse:
    """Return the algebraic fit to points at even steps along the hull of points (N, 2), scaled to hold them all."""
    hull = spanning_hull(points)
    return algebraic_ellipse(ConvexPolygon(hull).outline(360)).grown_to_enclose(hull)


def enclosing_capsule(points: np.ndarray) -> TaperedCapsule:
    return capsule_minima(points)[0]


def capsule_minima(points: np.ndarray, starts: Sequence[TaperedCapsule] = (), count=STARTS) -> list[TaperedCapsule]:
    """Return the local minima of area among tapered capsules around points (N, 2), canonical, the smallest first:
    refined from the smallest circle, the `count` best of `wedge_capsules`, and `starts` (e.g. of neighbouring
    poses)."""
    hull = spanning_hull(points)
    circle = enclosing_circle(hull)
    guesses = [start.vector for start in starts] + wedge_capsules(hull, count)
    found = [TaperedCapsule(*circle.vector, *circle.vector)] + [refined_capsule(hull, guess) for guess in guesses]
    rounded = (TaperedCapsule.from_vector(np.round(capsule.vector, DECIMALS)) for capsule in found)
    settled = [capsule.grown_to_enclose(hull).canonical() for capsule in rounded]
    minima: list[TaperedCapsule] = []
    for capsule in sorted(settled, key=lambda capsule: round(capsule.area, DECIMALS)):
        if all(np.abs(capsule.vector - other.vector).max() > SAME for other in minima):
            minima.append(capsule)
    return minima


def refined_capsule(hull: np.ndarray, start: np.ndarray) -> TaperedCapsule:
    """Return the local minimum of area around hull corners (K, 2) from `start` (6,), grown to hold every corner."""
    middle, scale = hull.mean(axis=0), np.abs(hull - hull.mean(axis=0)).max()
    shift = np.array([*middle, 0.0, *middle, 0.0])
    corners = (hull - middle) / scale

    @functools.lru_cache(maxsize=1)  # the solver asks for distances and gradient at the same place
    def outside(*z: float) -> tuple[np.ndarray, np.ndarray]:
        return shapes.capsule_distance(np.array(z), corners)

    begin = (start - shift) / scale
    found = minimize(
        shapes.capsule_area, begin, jac=True, bounds=[(None, None), (None, None), (1e-6, None)] * 2,
        constraints={"type": "ineq", "fun": lambda z: -outside(*z)[0], "jac": lambda z: -outside(*z)[1]},
        method="SLSQP", options={"ftol": 1e-13, "maxiter": 100},
    ).x  # fmt: skip
    found = found if np.isfinite(found).all() else begin
    return TaperedCapsule.from_vector(found * scale + shift).grown_to_enclose(hull)


def wedge_capsules(hull: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the parameters (6,) of the `count` smallest, different capsules over a grid of wedges (axis direction,
    half angle) whose sides touch the hull (K, 2), or are wider by some margin."""
    middle, scale = hull.mean(axis=0), np.abs(hull - hull.mean(axis=0)).max()
    corners = (hull - middle) / scale
    angles = np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS)
    grids = np.meshgrid(angles, TAPERS, WIDENINGS, WIDENINGS, indexing="ij")
    angle, taper, left, right = (grid.ravel() for grid in grids)
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
    """Return for each of W wedges the smallest capsule (W, 6) that fills it and holds all corners (K, 2). With x along
    the axis towards the narrow end, discs that touch both sides have the radius r(s) = wide - s sin(taper); a corner
    lies on those with (x - s)^2 + y^2 = r(s)^2: the smaller root is the last centre whose front arc it touches, the
    larger one the first for the rear arc."""
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
    first, last = rear, np.maximum(rear, front)  # if the ends overlap, one disc is enough
    radius = np.stack([wide - first * sine, wide - last * sine], axis=1)
    ends = [axis * s[:, None] + normal * centre[:, None] for s in (first, last)]
    return np.concatenate([ends[0], radius[:, :1], ends[1], radius[:, 1:]], axis=1)


def enclosing_polygon(points: np.ndarray, sides: int) -> ConvexPolygon:
    """Return the convex polygon of at most `sides` (3 or more) sides and least area around points (N, 2)."""
    hull = spanning_hull(points)
    return polygon_with_normals(hull, common_normals([hull], sides))


def common_normals(hulls: Sequence[np.ndarray], sides: int) -> np.ndarray:
    """Return the outward normals (`sides` or fewer, 2) of the parallel-sided polygons around several hulls (corners (K,
    2), counterclockwise) with the least total area, by dynamic programming over candidate directions. For one hull all
    sides but one of the optimum lie on hull sides (DePano; Klee)."""
    normals = _candidate_normals(hulls)
    excess = sum(_corner_areas(hull, normals, (hull @ normals.T).argmax(axis=0)) for hull in hulls)
    return normals[_cheapest_cycle(excess, min(sides, len(normals)))]


def polygon_with_normals(points: np.ndarray, normals: np.ndarray) -> ConvexPolygon:
    """Return the polygon around points (N, 2) whose sides, with normals (K, 2) by increasing angle, all touch."""
    return ConvexPolygon(shapes.meeting_points(normals, (spanning_hull(points) @ normals.T).max(axis=0)), normals)


def _candidate_normals(hulls: Sequence[np.ndarray]) -> np.ndarray:
    """Return outward normals (M, 2) by increasing angle: of the hulls' longest sides, and evenly turned ones."""
    edges = np.concatenate([np.roll(hull, -1, axis=0) - hull for hull in hulls])
    angles, same = np.unique(np.arctan2(-edges[:, 0], edges[:, 1]).round(6), return_inverse=True)
    angles = angles[np.argsort(-np.bincount(same, np.linalg.norm(edges, axis=1)), kind="stable")[:HULL_NORMALS]]
    even = np.arange(EVEN_NORMALS) * (2 * np.pi / EVEN_NORMALS) - np.pi
    apart = np.abs(np.angle(np.exp(1j * (even[:, None] - angles)))).min(axis=1) > 1e-3
    angles = np.sort(np.concatenate([angles, even[apart]]))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _corner_areas(hull: np.ndarray, normals: np.ndarray, touching: np.ndarray) -> np.ndarray:
    """Return the area (M, M) between the hull and the corner of side i followed by side j; inf if there is none."""
    p = hull[touching]
    cross = normals[:, None, 0] * normals[None, :, 1] - normals[:, None, 1] * normals[None, :, 0]
    offsets = (normals * p).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (offsets[:, None] * normals[None, :, 1] - offsets[None, :] * normals[:, None, 1]) / cross
        y = (offsets[None, :] * normals[:, None, 0] - offsets[:, None] * normals[None, :, 0]) / cross
    # twice the area of the fan (p_i, corner, p_j), less the hull's own corners from p_i round to p_j
    after = np.roll(hull, -1, axis=0)
    steps = np.concatenate([[0.0], np.cumsum(hull[:, 0] * after[:, 1] - hull[:, 1] * after[:, 0])])
    chain = steps[touching][None, :] - steps[touching][:, None]
    chain = np.where(touching[None, :] < touching[:, None], chain + steps[-1], chain)
    first = p[:, None, 0] * y - p[:, None, 1] * x
    second = x * p[None, :, 1] - y * p[None, :, 0]
    return np.where(cross > 1e-9, (first + second - chain) / 2, np.inf)


def _cheapest_cycle(cost: np.ndarray, count: int) -> np.ndarray:
    """Return the increasing indices (count,) of the cycle of least sum of `cost[i, j]` over its steps. One side lies in
    every half turn, so starts in the first half suffice."""
    total = len(cost)
    forward = np.where(np.triu(np.ones_like(cost, dtype=bool), 1), cost, np.inf)
    starts = np.arange(total // 2 + 1)
    best, came_from = [forward[starts]], []
    for _ in range(count - 2):
        through = best[-1][:, :, None] + forward[None]
        came_from.append(through.argmin(axis=1))
        best.append(through.min(axis=1))
    closed = best[-1] + cost[:, starts].T
    start, index = np.unravel_index(closed.argmin(), closed.shape)
    cycle = [int(index)]
    for previous in reversed(came_from):
        cycle.append(int(previous[start, cycle[-1]]))
    return np.array([starts[start], *reversed(cycle)])
