"""Enclosing shapes hold every point to 1e-6 m and are within 1 % of the smallest that a global search finds."""

import numpy as np
import pytest
from scipy.optimize import differential_evolution

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.enclosing import (
    algebraic_ellipse,
    capsule_minima,
    enclosing_algebraic_ellipse,
    enclosing_axis_aligned_ellipse,
    enclosing_capsule,
    enclosing_circle,
    enclosing_ellipse,
    enclosing_polygon,
)
from stretch_sim_cal.geometry.points import convex_hull, polygon_area
from stretch_sim_cal.geometry.shapes import Circle, Ellipse, TaperedCapsule, capsule_area, meeting_points

FITS = {
    "circle": enclosing_circle,
    "ellipse": enclosing_ellipse,
    "axis-aligned ellipse": enclosing_axis_aligned_ellipse,
    "algebraic ellipse": enclosing_algebraic_ellipse,
    "capsule": enclosing_capsule,
    "polygon": lambda points: enclosing_polygon(points, 8),
}
fits = pytest.mark.parametrize("fit", FITS.values(), ids=FITS)


def robot_like(seed):
    """Points of a base with an arm that points somewhere."""
    rng = np.random.default_rng(seed)
    base = rng.uniform(-0.25, 0.25, size=(300, 2))
    arm = rng.uniform(0, 1, size=(100, 2)) * [rng.uniform(0.3, 0.9), 0.12] + [0.15, rng.uniform(-0.3, 0.2)]
    turn = rng.uniform(-np.pi, np.pi)
    hand = rng.uniform(0, 0.25, size=(60, 1)) * [np.cos(turn), np.sin(turn)] + arm.max(axis=0)
    return np.vstack([base, arm, hand])


CLOUDS = {
    "robot 1": robot_like(1),
    "robot 2": robot_like(2),
    "robot 3": robot_like(3),
    "square": np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]),
    "triangle": np.array([[0.0, 0.0], [1.0, 0.1], [0.3, 0.6]]),
    "thin": np.random.default_rng(4).uniform(-1, 1, size=(50, 2)) * [1.0, 0.02],
    "disc": np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0, 2 * np.pi, 90)]),
}
clouds = pytest.mark.parametrize("points", CLOUDS.values(), ids=CLOUDS)


@fits
@clouds
def test_nothing_sticks_out(fit, points):
    assert fit(points).protrusion(points) <= 1e-6


@fits
def test_moving_turning_and_scaling_the_points_does_not_change_the_quality(fit):
    points = robot_like(5)
    moved = 1000 * points[:, ::-1] * [1.0, -1.0] + [7e3, -2e3]  # a quarter turn, which keeps axes axes
    assert fit(moved).area == pytest.approx(1e6 * fit(points).area, rel=1e-3)


def global_minimum(areas, bounds):
    """The least over `bounds` of what `areas` gives for vectors (V, S) (differential evolution)."""
    search = {"rng": 1, "tol": 1e-8, "maxiter": 120, "popsize": 8, "updating": "deferred"}
    return differential_evolution(areas, bounds, vectorized=True, **search).fun


@pytest.mark.parametrize("points", [CLOUDS[name] for name in ("robot 1", "robot 2", "square", "triangle")])
def test_the_capsule_is_within_one_percent_of_what_a_global_search_finds(points):
    hull = convex_hull(points)
    low, high = hull.min(axis=0), hull.max(axis=0)
    size = np.ptp(hull, axis=0).max()

    def grown_areas(vectors):
        reach = TaperedCapsule.protrusions(vectors.T, [hull] * vectors.shape[1])
        return [TaperedCapsule(*vector).inflated(r).area for vector, r in zip(vectors.T, reach, strict=True)]

    ends = [(low[0], high[0]), (low[1], high[1]), (0.0, 0.7 * size)]
    found, ours = global_minimum(grown_areas, ends * 2), enclosing_capsule(points).area
    assert found / 1.03 <= ours <= 1.01 * found  # the search, too, has found the minimum, or nearly


@pytest.mark.parametrize("name", ["robot 1", "robot 3"])
def test_the_polygon_is_within_one_percent_of_what_a_global_search_finds(name):
    hull = convex_hull(CLOUDS[name])

    def area(angles):
        angles = np.sort(angles)
        gaps = np.diff(np.concatenate([angles, angles[:1] + 2 * np.pi]))
        if gaps.max() > 3.0 or gaps.min() < 1e-3:
            return 1e3
        normals = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return polygon_area(meeting_points(normals, (hull @ normals.T).max(axis=0)))

    found = global_minimum(lambda all_angles: [area(angles) for angles in all_angles.T], [(0, 2 * np.pi)] * 5)
    assert enclosing_polygon(hull, 5).area == pytest.approx(found, rel=0.01)


@clouds
def test_the_circle_is_the_smallest_through_any_two_or_three_points(points):
    hull = convex_hull(points)[::3] if len(convex_hull(points)) > 30 else convex_hull(points)
    candidates = []
    for i, p in enumerate(hull):
        for j, q in enumerate(hull[:i]):
            candidates.append(Circle(*(p + q) / 2, float(np.hypot(*(p - q))) / 2))
            for r in hull[:j]:
                legs = np.array([q - p, r - p])
                if abs(np.linalg.det(legs)) > 1e-9:
                    centre = np.linalg.solve(2 * legs, (legs**2).sum(axis=1))
                    candidates.append(Circle(*(p + centre), float(np.hypot(*centre))))
    smallest = min(c.radius for c in candidates if c.protrusion(hull) < 1e-7)
    assert enclosing_circle(hull).radius == pytest.approx(smallest, rel=1e-6)


@clouds
def test_no_ellipse_that_holds_the_points_is_smaller(points):
    hull = convex_hull(points)
    ellipse, aligned = enclosing_ellipse(hull), enclosing_axis_aligned_ellipse(hull)
    rng = np.random.default_rng(0)
    for scale in (0.1, 0.01, 0.001):
        for _ in range(300):
            other = Ellipse.from_vector(ellipse.vector + rng.normal(size=5) * scale * [1, 1, 1, 1, 60])
            other = Ellipse(other.center_x, other.center_y, abs(other.axes_x), abs(other.axes_y), other.angle)
            assert other.scaled(other.level(hull).max()).area >= ellipse.area * (1 - 1e-6)
            other = Ellipse.from_vector(aligned.vector + rng.normal(size=5) * scale * [1, 1, 1, 1, 0])
            other = Ellipse(other.center_x, other.center_y, abs(other.axes_x), abs(other.axes_y), 0.0)
            assert other.scaled(other.level(hull).max()).area >= aligned.area * (1 - 1e-6)
    assert ellipse.area <= aligned.area * (1 + 1e-6)


def test_points_of_known_shapes_give_these_shapes_back():
    ellipse = Ellipse(0.2, -0.1, 1.3, 0.6, 25.0)
    for fit in (enclosing_ellipse, algebraic_ellipse, enclosing_algebraic_ellipse):
        np.testing.assert_allclose(fit(ellipse.outline(240)).vector, ellipse.vector, rtol=2e-3)
    capsule = TaperedCapsule(0.1, 0.0, 0.3, 0.9, 0.2, 0.12)
    np.testing.assert_allclose(enclosing_capsule(capsule.outline(240)).vector, capsule.vector, atol=2e-3)


def test_neighbouring_capsules_can_be_given_as_starts():
    points = robot_like(7)
    alone = enclosing_capsule(points)
    assert capsule_minima(points, [alone], count=1)[0].area <= capsule_area(alone.vector)[0] * (1 + 1e-6)


@fits
def test_points_without_an_area_are_refused_or_have_a_circle(fit):
    line = np.linspace(0, 1, 7)[:, None] * [1.0, 2.0]
    if fit is enclosing_circle:
        assert fit(line).radius == pytest.approx(np.sqrt(5) / 2)
    else:
        with pytest.raises(InputError, match="no area"):
            fit(line)
    with pytest.raises(InputError):
        fit(np.empty((0, 2)))


def test_an_ellipse_does_not_fit_a_line_or_four_points():
    with pytest.raises(InputError):
        algebraic_ellipse(np.linspace(0, 1, 7)[:, None] * [1.0, 2.0])
    with pytest.raises(InputError, match="five"):
        algebraic_ellipse(np.eye(4)[:, :2])
