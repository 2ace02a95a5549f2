"""Ray casting: exact ranges on shapes whose ranges can be computed by hand."""

import numpy as np
import pytest

from stretch_sim_cal.robot.surfaces import EMPTY, Surface
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.optics import Hits, Scene

RNG = np.random.default_rng(5)
DIRECTIONS = RNG.standard_normal((20_000, 3))
DIRECTIONS = (DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)).astype(np.float32)
EXACT = 2e-6
FACETED = 1e-4


def cast(mesh, origin=(0.0, 0.0, 0.0), directions=DIRECTIONS):
    return Hits(np.array(origin), directions, [Scene({"shape": Surface(*mesh)})])


def test_a_box_is_exact_from_inside_and_outside():
    size = np.array([6.0, 5.0, 2.6])
    hits = cast(solids.box(size), origin=(0.4, -0.3, 0.2))
    points = np.array([0.4, -0.3, 0.2]) + hits.distances[:, None] * DIRECTIONS.astype(float)
    np.testing.assert_allclose(np.max(np.abs(points) / (size / 2), axis=1), 1.0, atol=EXACT)
    outside = cast(solids.box(size), origin=(10.0, 0.0, 0.0), directions=np.array([[-1, 0, 0], [0, 1, 0]], np.float32))
    np.testing.assert_allclose(outside.distances, [7.0, np.inf], atol=EXACT)


@pytest.mark.parametrize("size", [10.0, 200.0])
def test_a_floor_is_exact_however_large_it_is(size):
    hits = cast(solids.plane(np.array([0.0, 0.0, 1.0]), np.array([size, size])), origin=(0.1, 0.2, 1.5))
    on_floor = np.isfinite(hits.distances) & (hits.distances < 60)
    heights = 1.5 + hits.distances[on_floor] * DIRECTIONS[on_floor, 2].astype(float)
    assert on_floor.sum() > 5000
    assert np.abs(heights).max() < EXACT


@pytest.mark.parametrize("radius", [0.02, 0.3, 2.0])
def test_a_sphere_is_true_to_a_tenth_of_a_millimetre(radius):
    inside = cast(solids.sphere(radius))
    np.testing.assert_allclose(inside.distances, radius, atol=FACETED)
    assert abs(inside.distances.mean() - radius) < FACETED / 2


@pytest.mark.parametrize("radius, length", [(0.03, 0.7), (0.5, 2.0), (6.0, 3.0)])
def test_a_cylinder_is_true_to_a_tenth_of_a_millimetre(radius, length):
    points = cast(solids.cylinder(radius, length)).distances[:, None] * DIRECTIONS.astype(float)
    side = np.hypot(points[:, 0], points[:, 1]) - radius
    caps = np.abs(points[:, 2]) - length / 2
    np.testing.assert_allclose(np.maximum(side, caps), 0.0, atol=FACETED)


def test_capsule_cone_and_ellipsoid_are_true_to_a_tenth_of_a_millimetre():
    points = cast(solids.capsule(0.2, 0.6)).distances[:, None] * DIRECTIONS.astype(float)
    axis = np.stack([0 * points[:, 0], 0 * points[:, 0], np.clip(points[:, 2], -0.3, 0.3)], axis=1)
    np.testing.assert_allclose(np.linalg.norm(points - axis, axis=1), 0.2, atol=FACETED)

    points = cast(solids.cone(0.5, 1.0)).distances[:, None] * DIRECTIONS.astype(float)
    mantle = (np.hypot(points[:, 0], points[:, 1]) - 0.5 * (0.5 - points[:, 2])) / np.sqrt(1.25)
    np.testing.assert_allclose(np.maximum(mantle, -0.5 - points[:, 2]), 0.0, atol=FACETED)

    radii = np.array([0.3, 0.5, 0.2])
    points = cast(solids.ellipsoid(radii)).distances[:, None] * DIRECTIONS.astype(float)
    np.testing.assert_allclose(np.linalg.norm(points / radii, axis=1), 1.0, atol=FACETED / 0.2)


def test_incidence_is_that_of_the_surface():
    cosines = cast(solids.box(np.full(3, 2.0))).incidence_cosines()
    np.testing.assert_allclose(cosines, np.abs(DIRECTIONS).max(axis=1), atol=1e-5)
    assert cast(solids.box(np.full(3, 2.0)), (9, 9, 9), DIRECTIONS[:5] * 0 + [0, 0, 1]).incidence_cosines().max() == 0.0


def test_of_several_scenes_the_nearest_surface_is_hit_and_named():
    room = Scene({"room": Surface(*solids.box(np.full(3, 8.0))), "nothing": EMPTY})
    ball = Surface(*solids.sphere(0.5))
    moving = Scene({"ball": Surface(ball.vertices + [2.0, 0.0, 0.0], ball.faces)})
    rays = np.array([[1, 0, 0], [-1, 0, 0], [0, 0, 1]], dtype=np.float32)
    hits = Hits(np.zeros(3), rays, [room, moving, Scene({})])
    np.testing.assert_allclose(hits.distances, [1.5, 4.0, 4.0], atol=FACETED)
    assert [hits.names[index] for index in hits.surfaces()] == ["ball", "room", "room"]


def test_rays_into_nothing_hit_nothing():
    hits = Hits(np.zeros(3), DIRECTIONS[:10], [Scene({})])
    assert np.isinf(hits.distances).all() and (hits.surfaces() == -1).all()


def test_no_ray_slips_between_triangles():
    hits = cast(solids.sphere(1.0), directions=np.concatenate([DIRECTIONS] * 5))
    assert np.isfinite(hits.distances).all()
