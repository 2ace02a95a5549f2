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


def norm(points):
    return np.linalg.norm(points, axis=1)


def cylinder(radius, length):
    return lambda p: np.maximum(np.hypot(p[:, 0], p[:, 1]) - radius, np.abs(p[:, 2]) - length / 2)


SHAPES = {
    **{f"sphere {r}": (solids.sphere(r), lambda p, r=r: norm(p) - r) for r in (0.02, 0.3, 2.0)},
    **{f"cylinder {r}": (solids.cylinder(r, h), cylinder(r, h)) for r, h in ((0.03, 0.7), (0.5, 2.0), (6.0, 3.0))},
    "capsule": (solids.capsule(0.2, 0.6), lambda p: norm(p - np.clip(p, -0.3, 0.3) * [0, 0, 1]) - 0.2),
    "cone": (
        solids.cone(0.5, 1.0),
        lambda p: np.maximum((np.hypot(p[:, 0], p[:, 1]) - 0.5 * (0.5 - p[:, 2])) / np.sqrt(1.25), -0.5 - p[:, 2]),
    ),
    "ellipsoid": (solids.ellipsoid(np.array([0.3, 0.5, 0.2])), lambda p: 0.2 * (norm(p / [0.3, 0.5, 0.2]) - 1.0)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_round_shape_is_true_to_a_tenth_of_a_millimetre(shape):
    mesh, off_surface = SHAPES[shape]
    off = off_surface(cast(mesh).distances[:, None] * DIRECTIONS.astype(float))
    assert np.abs(off).max() < FACETED and abs(off.mean()) < FACETED / 2


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
