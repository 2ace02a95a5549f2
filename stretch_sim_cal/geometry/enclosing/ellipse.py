"""The smallest ellipses around points in the plane, and the one that fits them algebraically.

Raises `InputError` for points that span no area to fit.
"""

import numpy as np
from scipy.linalg import eig
from scipy.optimize import minimize

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.hulls import spanning_hull
from stretch_sim_cal.geometry.shapes import Ellipse


def enclosing_ellipse(points: np.ndarray, tolerance: float = 1e-3, iterations: int = 2000) -> Ellipse:
    """Return the smallest ellipse around points (N, 2).

    Khachiyan's barycentric ascent on the dual (weights of the points) with the away steps of Todd and Yildirim ("On
    Khachiyan's algorithm for the computation of minimum-volume enclosing ellipsoids") to a factor 1 + `tolerance`,
    where it becomes slow; from there to the minimum, of a convex problem, and then scaled to enclose.
    """
    hull = spanning_hull(points)
    origin, scale = hull.mean(axis=0), np.abs(hull - hull.mean(axis=0)).max()
    corners = (hull - origin) / scale
    lifted = np.column_stack([corners, np.ones(len(hull))])
    weights = np.full(len(hull), 1 / len(hull))
    for _ in range(iterations):
        moments = lifted.T @ (weights[:, None] * lifted)
        variance = np.einsum("ij,ij->i", lifted @ np.linalg.inv(moments), lifted)
        far, near = int(variance.argmax()), int(np.where(weights > 0, variance, np.inf).argmin())
        excess, slack = variance[far] / 3 - 1, 1 - variance[near] / 3
        if max(excess, slack) < tolerance:
            break
        chosen = far if excess > slack else near
        step = (variance[chosen] - 3) / (3 * (variance[chosen] - 1)) if variance[chosen] > 1 else -np.inf
        if chosen == near:
            step = max(step, -weights[near] / (1 - weights[near]))  # at most until the point has no weight
        weights *= 1 - step
        weights[chosen] = max(0.0, weights[chosen] + step)
    centre = weights @ corners
    spread = (corners - centre).T @ (weights[:, None] * (corners - centre))
    shape = 2 * spread * (1 + tolerance)
    centre, shape = _least_ellipse(corners, centre, shape)
    return _ellipse(origin + scale * centre, scale**2 * shape).grown_to_enclose(hull)


def _least_ellipse(corners: np.ndarray, centre: np.ndarray, shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return centre (2,) and shape (2, 2) of the ellipse (p - centre)' shape^-1 (p - centre) <= 1 of least area.

    With A = shape^-1/2 and b = A centre, corners ask for |A p - b| <= 1 and the area is least where log det A is
    largest, which is convex in (A11, A22, A12, b1, b2).
    """
    x, y = corners.T
    squares, axes = np.linalg.eigh(shape)
    root = (axes / np.sqrt(squares)) @ axes.T
    start = np.array([root[0, 0], root[1, 1], root[0, 1], *(root @ centre)])

    def residuals(z):
        return z[0] * x + z[2] * y - z[3], z[2] * x + z[1] * y - z[4]

    def slack(z):
        first, second = residuals(z)
        return 1 - first**2 - second**2

    def slack_gradient(z):
        first, second = residuals(z)
        return -2 * np.stack([first * x, second * y, first * y + second * x, -first, -second], axis=1)

    def negative_log(z):
        determinant = z[0] * z[1] - z[2] ** 2
        return -np.log(max(determinant, 1e-300)), np.array([-z[1], -z[0], 2 * z[2], 0, 0]) / max(determinant, 1e-300)

    z = minimize(
        negative_log, start, jac=True, constraints={"type": "ineq", "fun": slack, "jac": slack_gradient},
        method="SLSQP", options={"ftol": 1e-12, "maxiter": 100},
    ).x  # fmt: skip
    root = np.array([[z[0], z[2]], [z[2], z[1]]])
    if not np.isfinite(z).all() or np.linalg.eigvalsh(root)[0] <= 0:
        return centre, shape
    return np.linalg.solve(root, z[3:]), np.linalg.inv(root @ root)


def _ellipse(centre: np.ndarray, shape: np.ndarray) -> Ellipse:
    """Return the ellipse (p - centre)' shape^-1 (p - centre) = 1, in canonical form."""
    squares, axes = np.linalg.eigh(shape)
    angle = float(np.rad2deg(np.arctan2(axes[1, 0], axes[0, 0])))
    return Ellipse(float(centre[0]), float(centre[1]), *(2 * np.sqrt(squares)).tolist(), angle).canonical()


def enclosing_axis_aligned_ellipse(points: np.ndarray) -> Ellipse:
    """Return the smallest ellipse around points (N, 2) whose axes are along x and y.

    In (u, v, p, q) = (1/a, 1/b, cx/a, cy/b) the points ask for (u x - p)^2 + (v y - q)^2 <= 1 and the area is least
    where log u + log v is largest: a convex problem, so one start finds the only minimum.
    """
    hull = spanning_hull(points)
    origin, half = (hull.min(axis=0) + hull.max(axis=0)) / 2, np.ptp(hull, axis=0) / 2
    x, y = ((hull - origin) / half).T

    def slack(z):
        return 1 - (z[0] * x - z[2]) ** 2 - (z[1] * y - z[3]) ** 2

    def slack_gradient(z):
        first, second = -2 * (z[0] * x - z[2]), -2 * (z[1] * y - z[3])
        return np.stack([first * x, second * y, -first, -second], axis=1)

    found = minimize(
        lambda z: -np.log(z[0]) - np.log(z[1]),
        [0.7, 0.7, 0.0, 0.0],
        jac=lambda z: np.array([-1 / z[0], -1 / z[1], 0.0, 0.0]),
        bounds=[(1e-3, None), (1e-3, None), (None, None), (None, None)],
        constraints={"type": "ineq", "fun": slack, "jac": slack_gradient},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 200},
    ).x
    axes = 2 * half / found[:2]
    centre = origin + half * found[2:] / found[:2]
    return Ellipse(*centre.tolist(), *axes.tolist(), 0.0).grown_to_enclose(hull)


def algebraic_ellipse(points: np.ndarray) -> Ellipse:
    """Return the ellipse of least algebraic distance to points (N, 2); it encloses nothing in particular.

    Halir and Flusser, "Numerically Stable Direct Least Squares Fitting of Ellipses" (after Fitzgibbon, Pilu and
    Fisher). Raises `InputError` where the points are fitted by no ellipse.
    """
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
    level = (centre @ matrix @ centre) - f
    return _ellipse(origin + scale * centre, scale**2 * np.linalg.inv(matrix / level))


def enclosing_algebraic_ellipse(points: np.ndarray) -> Ellipse:
    """Return the algebraic fit to the outline of points (N, 2), scaled about its centre until it holds them all.

    The outline, not the points, is fitted: the hull's boundary at even steps, so that no densely seen part pulls.
    """
    hull = spanning_hull(points)
    closed = np.vstack([hull, hull[:1]])
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(closed, axis=0), axis=1))])
    at = np.linspace(0.0, along[-1], 361)[:-1]
    boundary = np.stack([np.interp(at, along, closed[:, axis]) for axis in (0, 1)], axis=1)
    return algebraic_ellipse(boundary).grown_to_enclose(hull)
