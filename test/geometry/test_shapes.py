"""Shapes agree with sampling: area, distance, support, growth; the same shape keeps its numbers continuous."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import polygon_area
from stretch_sim_cal.geometry.shapes import (
    Circle,
    ConvexPolygon,
    Ellipse,
    TaperedCapsule,
    capsule_area,
    capsule_distance,
    circumscribed_polygon,
)

SHAPES = [
    Circle(0.3, -0.2, 0.4),
    Ellipse(0.1, 0.2, 1.4, 0.5, 30.0),
    Ellipse(0.0, 0.0, 0.6, 0.6, 10.0),
    TaperedCapsule(0.0, 0.1, 0.35, 0.8, -0.2, 0.12),
    TaperedCapsule(0.0, 0.0, 0.2, 0.5, 0.0, 0.2),
    TaperedCapsule(0.0, 0.0, 0.5, 0.1, 0.0, 0.2),
    ConvexPolygon(np.array([[0.0, 0.0], [0.8, -0.1], [0.9, 0.5], [0.1, 0.6]])),
]
NAMES = ["circle", "ellipse", "round ellipse", "capsule", "straight capsule", "swallowed capsule", "polygon"]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=NAMES)


def grid(step=0.008):
    x, y = np.meshgrid(np.arange(-1.2, 1.8, step), np.arange(-1.2, 1.2, step))
    return np.stack([x.ravel(), y.ravel()], axis=1), step**2


@shapes
def test_area_is_that_of_the_points_inside(shape):
    points, cell = grid()
    assert np.count_nonzero(shape.signed_distance(points) <= 0.0) * cell == pytest.approx(shape.area, rel=5e-3)


@shapes
def test_signed_distance_is_the_distance_to_the_outline(shape):
    points, _ = grid(0.17)
    corners = shape.outline(0) if isinstance(shape, ConvexPolygon) else shape.outline(20_000)
    if isinstance(shape, (TaperedCapsule, ConvexPolygon)):  # straight sides are sampled too
        steps = np.linspace(0, 1, 2000)[:, None, None]
        corners = corners[:: max(1, len(corners) // 400)]
        corners = (corners * (1 - steps) + np.roll(corners, -1, axis=0) * steps).reshape(-1, 2)[::7]
    distance, _ = cKDTree(corners).query(points)
    np.testing.assert_allclose(np.abs(shape.signed_distance(points)), distance, atol=3e-3)


@shapes
def test_outline_lies_on_the_boundary_and_runs_counterclockwise(shape):
    outline = shape.outline(90)
    assert outline.shape == (90, 2) and polygon_area(outline) > 0
    np.testing.assert_allclose(shape.signed_distance(outline), 0, atol=1e-9)


@shapes
def test_support_and_tangent_polygon_bound_the_shape(shape):
    angles = np.linspace(0, 2 * np.pi, 40)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    outline = shape.outline(4000)
    np.testing.assert_allclose((outline @ directions.T).max(axis=0), shape.support(directions), atol=2e-3)
    around = circumscribed_polygon(shape, 16)
    assert around.protrusion(outline) < 1e-9 and around.area < 1.2 * shape.area


@shapes
def test_inflating_moves_the_outline_by_the_margin(shape):
    distance = shape.inflated(0.05).signed_distance(shape.outline(200))
    assert distance.max() < -0.04 and distance.min() > -0.06


@shapes
def test_parameters_and_vector_come_back_as_the_same_shape(shape):
    points, _ = grid(0.2)
    for again in (type(shape).from_parameters(shape.parameters), type(shape).from_vector(shape.vector)):
        np.testing.assert_array_equal(again.signed_distance(points), shape.signed_distance(points))


@shapes
def test_a_shape_grows_to_enclose_what_sticks_out_and_no_further(shape):
    points, _ = grid(0.3)
    grown = shape.grown_to_enclose(points)
    assert grown.protrusion(points) <= 1e-9
    assert np.abs(grown.signed_distance(points)).min() < 1e-6
    assert shape.grown_to_enclose(shape.outline(50) * 0 + [0.1, 0.05]) is shape


def test_distance_from_an_ellipse_is_right_at_its_centre_and_on_its_axes():
    ellipse = Ellipse(0.0, 0.0, 2.0, 1.0, 0.0)
    points = np.array([[0.0, 0.0], [0.9, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 0.3]])
    np.testing.assert_allclose(ellipse.signed_distance(points)[[0, 2, 3, 4]], [-0.5, 1.0, 1.5, -0.2], atol=1e-9)
    assert -0.1 <= ellipse.signed_distance(points)[1] < -0.09


def test_the_gradients_of_capsule_area_and_distance_are_those_of_finite_differences():
    rng = np.random.default_rng(2)
    points = rng.uniform(-1, 1, size=(30, 2))
    for _ in range(20):
        vector = rng.uniform([-1, -1, 0.1, -1, -1, 0.1], [1, 1, 0.5, 1, 1, 0.5])
        steps = 1e-6 * np.eye(6)
        area = [(capsule_area(vector + s)[0] - capsule_area(vector - s)[0]) / 2e-6 for s in steps]
        np.testing.assert_allclose(capsule_area(vector)[1], area, atol=1e-6)
        distance = [
            (capsule_distance(vector + s, points)[0] - capsule_distance(vector - s, points)[0]) / 2e-6 for s in steps
        ]
        np.testing.assert_allclose(capsule_distance(vector, points)[1], np.transpose(distance), atol=1e-5)


def test_an_ellipse_turned_further_keeps_its_numbers_continuous():
    previous = Ellipse(0.0, 0.0, 1.0, 0.4, 0.0)
    for turned in np.arange(0.0, 720.0, 7.0):
        form = Ellipse(0.0, 0.0, 1.0, 0.4, turned).canonical()
        assert -45 < form.angle <= 45
        form = form.like(previous)
        assert form.angle == pytest.approx(turned) and form.axes_x == pytest.approx(1.0)
        previous = form


def test_a_capsule_keeps_its_ends_in_order():
    capsule = TaperedCapsule(0.0, 0.0, 0.3, 0.6, 0.1, 0.1)
    assert capsule.swapped().canonical() == capsule
    assert capsule.swapped().like(TaperedCapsule(0.1, 0.0, 0.25, 0.7, 0.1, 0.1)) == capsule
    swallowed = TaperedCapsule(0.0, 0.0, 0.1, 0.1, 0.0, 0.5).canonical()
    assert (swallowed.x1, swallowed.r1) == (0.1, 0.5)


@pytest.mark.parametrize("kind", [Circle, Ellipse, TaperedCapsule, ConvexPolygon])
def test_parameters_that_are_missing_or_no_numbers_are_refused(kind):
    with pytest.raises(InputError, match=kind.__name__):
        kind.from_parameters({})
    with pytest.raises(InputError, match=kind.__name__):
        names = ("center_x", "center_y", "radius", "axes_x", "axes_y", "angle", "x1", "y1", "r1", "x2", "y2", "r2")
        kind.from_parameters({name: float("nan") for name in names} | {"vertices": [[0, 0], [1, "x"], [0, 1]]})
