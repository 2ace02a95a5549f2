"""Ray casting, exact where ranges can be computed by hand, and what surfaces do to light."""

import dataclasses

import numpy as np
import pytest
from scipy.interpolate import LinearNDInterpolator

from stretch_sim_cal.geometry.planes import footprint_from_base
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.robot.surfaces import EMPTY, Surface
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.optics import Hits, Scene, Seen, _spread
from stretch_sim_cal.simulation.setup import SimulationSetup

EXACT = dataclasses.replace(load_sensor("jt128_sparse"), range_noise=0.0, drop_out_rate=0.0)
DENSE = dataclasses.replace(load_sensor("jt128_ideal"), range_noise=0.0, drop_out_rate=0.0)
MIRROR = -2.48  # the mirror's face, y in the world


@pytest.fixture(scope="module")
def lobby():
    return EmbeddedSimulator(SimulationSetup(world="surfaces"), EXACT)


def world_from(simulator, lidar):
    return footprint_from_base(simulator.floor_in_base) @ simulator.base_from_lidar(lidar)


def in_world(simulator, lidar="right", tick=0):
    """Return a scan's points (M, 3) in the world, the name of what each lies on, and its intensity."""
    scan, labels, names = simulator.labelled_scan(lidar, tick)
    return apply(world_from(simulator, lidar), xyz(scan)), np.array(names)[labels], scan["intensity"]


def test_a_mirror_shows_the_room_behind_it(lobby):
    points, names, intensity = in_world(lobby)
    mirror = names == "mirror/link/glass"
    seen = points[mirror]
    assert len(seen) > 100 and (seen[:, 1] < MIRROR + 0.01).all()
    back = seen * [1, -1, 1] + [0, 2 * MIRROR, 0]  # mirrored back they lie on what is in the room
    planes = {0: (-3.0, 5.0, 7.5), 1: (3.5,), 2: (0.0, 0.75, 2.8)}  # the corridor's end at 7.5 through the glass
    on_plane = [
        np.abs(back[:, axis] - at) < (0.01 if at == 3.5 else 1e-3) for axis, all in planes.items() for at in all
    ]
    person = np.linalg.norm(back[:, :2] - [2.2, -1.6], axis=1) < 0.35
    assert (np.any(on_plane, axis=0) | person).mean() > 0.9
    # What is seen of the floor is as bright as the mirror leaves it, there and back.
    floor = mirror & (np.abs(points[:, 2]) < 1e-3) & (points[:, 0] < 5.0)
    rays = points[floor] - world_from(lobby, "right")[:3, 3]
    bright = lobby.world.materials["floor/link/slab"].reflectivity * 0.85**2
    assert floor.sum() > 100
    expected = 255 * bright * np.abs(rays[:, 2]) / np.linalg.norm(rays, axis=1)
    np.testing.assert_allclose(intensity[floor], expected, atol=1.0)


def test_glass_shows_what_is_behind_it_and_itself_only_straight_on(lobby):
    points, names, intensity = in_world(lobby)
    rays = points - world_from(lobby, "right")[:3, 3]
    straight = rays[:, 0] / np.linalg.norm(rays, axis=1)
    end, panes = names == "walls/link/corridor_end", np.char.startswith(names, "glass_front/link/pane")
    assert end.sum() > 50 and 0 < panes.sum() < end.sum()
    np.testing.assert_allclose(points[end][:, 0], 7.5, atol=1e-3)
    bright = lobby.world.materials["walls/link/corridor_end"].reflectivity * 0.92**2  # there and back
    np.testing.assert_allclose(intensity[end], 255 * bright * straight[end], atol=1.0)
    assert (straight[panes] > 0.989).all()
    np.testing.assert_allclose(points[panes][:, 0], 5.045, atol=1e-3)


def test_a_reflector_blooms_over_what_is_beside_it():
    plates = []
    for blooming in (0.0, np.radians(1.5)):
        sensor = dataclasses.replace(DENSE, blooming=blooming)
        points, names, light = in_world(EmbeddedSimulator(SimulationSetup(world="surfaces"), sensor), "left")
        plates.append((points[names == "sign/link/plate"], light[names == "sign/link/plate"]))
    (plate, light), (halo, halo_light) = plates
    assert (light > 254).all() and len(plate) > 30
    assert len(halo) > 1.2 * len(plate) and (halo_light < 200).sum() > 0.1 * len(plate)
    aside = np.abs(halo[:, [0, 2]] - [0.6, 1.5]).max(axis=1)
    near, far = (((aside > low) & (aside < low + 0.03)).sum() for low in (0.205, 0.255))
    assert near > 2 * far  # rays bloom the less the farther they are from the reflector
    assert 0.21 < aside.max() < 0.2 + 3.4 * np.tan(np.radians(1.6)) + 0.02
    assert np.abs(np.abs(plate[:, [0, 2]] - [0.6, 1.5]).max() - 0.2) < 0.02


def test_materials_say_how_bright_a_surface_is(lobby):
    _, names, intensity = in_world(lobby)
    sofa, wall = intensity[np.char.startswith(names, "sofa")], intensity[names == "walls/link/back"]
    assert sofa.max() <= np.rint(255 * 0.042) and wall.max() > 150
    dark = EmbeddedSimulator(SimulationSetup(world="surfaces"), dataclasses.replace(EXACT, drop_out_echo=0.05))
    _, kept, _ = in_world(dark)
    assert np.char.startswith(kept, "sofa").sum() < 0.7 * len(sofa)
    assert (kept == "walls/link/back").sum() > 0.9 * len(wall)


def test_a_wall_that_is_not_flat_and_plants_are_what_their_meshes_are(lobby):
    points, names, _ = in_world(lobby, "left")
    wall, mesh = points[names == "walls/link/left"], lobby.world.surfaces["walls/link/left"].vertices
    surface = LinearNDInterpolator(mesh[:, [0, 2]], mesh[:, 1])(wall[:, [0, 2]])
    uneven = np.ptp(mesh[:, 1])
    assert 0.01 < uneven < 0.02 and np.ptp(wall[:, 1]) > 0.8 * uneven
    np.testing.assert_allclose(wall[:, 1], surface, atol=0.1 * 0.009)
    assert sum((np.char.startswith(names, f"plant_{where}/link/leaves")).sum() for where in ("front", "back")) > 30


def test_people_walk_where_and_when_the_world_says(lobby):
    for tick, expected in ((0, (2.2, -1.6)), (20, (2.2, 0.19)), (90, (2.2, -1.6)), (110, (2.2, 0.19))):
        points, names, _ = in_world(lobby, tick=tick)
        person = points[names == "visitor"]
        assert len(person) > 30
        assert np.abs((person[:, :2].min(axis=0) + person[:, :2].max(axis=0)) / 2 - expected).max() < 0.25
        assert person[:, 2].max() < 1.76


def seen(distances, reflectivity=0.5):
    count = len(distances)
    ones = np.ones(count, np.float32)
    return Seen(np.array(distances, np.float32), ones.copy(), reflectivity * ones, np.zeros(count, np.int64))


def test_a_beam_of_some_width_mixes_what_is_near_and_splits_what_is_far_apart():
    shares, sensor = np.full(5, 0.25, np.float32), load_sensor("jt128")
    centre, edge = seen([3.0, 3.0, 3.0, 3.0, np.inf]), seen([3.3, 5.0, 1.0, np.inf, 4.0])
    other = _spread(centre, None, edge, shares, sensor)
    np.testing.assert_allclose(centre.distances, [3.075, 5.0, 3.0, 3.0, np.inf])  # the last echo
    np.testing.assert_allclose(other.distances, [np.inf, 3.0, np.inf, np.inf, np.inf])  # the strongest, if another
    centre = seen([3.0])
    other = _spread(centre, None, seen([1.0], reflectivity=5.0), shares[:1], sensor)
    assert centre.distances == [3.0] and other.distances == [1.0]


def test_a_beam_halved_by_an_edge_drops_out_at_the_sensor_s_rate():
    sensor = dataclasses.replace(load_sensor("jt128"), pulse_length=0.2, edge_drop_out=0.5)
    shares = np.array([0.5, 0.7, 0.8, 0.5, 0.5], np.float32)
    centre, edge = seen([3.0, 3.0, 3.0, 3.0, 3.0]), seen([4.0, 4.0, 4.0, 3.1, np.inf])
    other = _spread(centre, None, edge, shares, sensor)
    np.testing.assert_allclose(centre.distances, [np.inf, np.inf, 4.0, 3.05, 3.0])
    np.testing.assert_allclose(other.distances, [np.inf] * 5)


def test_echoes_of_no_length_return_apart_and_one_without_another_as_it_is():
    sensor = dataclasses.replace(load_sensor("jt128"), pulse_length=0.0, edge_drop_out=0.0)
    centre, edge = seen([3.0, 3.0, np.inf]), seen([3.1, np.inf, 4.0])
    other = _spread(centre, None, edge, np.full(3, 0.25, np.float32), sensor)
    np.testing.assert_allclose(centre.distances, [3.1, 3.0, np.inf])
    np.testing.assert_allclose(other.distances, [3.0, np.inf, np.inf])


DIRECTIONS = np.random.default_rng(5).standard_normal((20_000, 3))
DIRECTIONS = (DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)).astype(np.float32)
PRECISE = 2e-6
FACETED = 1e-4


def cast(mesh, origin=(0.0, 0.0, 0.0), directions=DIRECTIONS):
    return Hits(np.array(origin), directions, [Scene({"shape": Surface(*mesh)})])


def test_a_box_is_exact_from_inside_and_outside():
    size = np.array([6.0, 5.0, 2.6])
    hits = cast(solids.box(size), origin=(0.4, -0.3, 0.2))
    points = np.array([0.4, -0.3, 0.2]) + hits.distances[:, None] * DIRECTIONS.astype(float)
    np.testing.assert_allclose(np.max(np.abs(points) / (size / 2), axis=1), 1.0, atol=PRECISE)
    outside = cast(solids.box(size), origin=(10.0, 0.0, 0.0), directions=np.array([[-1, 0, 0], [0, 1, 0]], np.float32))
    np.testing.assert_allclose(outside.distances, [7.0, np.inf], atol=PRECISE)


@pytest.mark.parametrize("size", [10.0, 200.0])
def test_a_floor_is_exact_however_large_it_is(size):
    hits = cast(solids.plane(np.array([0.0, 0.0, 1.0]), np.array([size, size])), origin=(0.1, 0.2, 1.5))
    on_floor = np.isfinite(hits.distances) & (hits.distances < 60)
    heights = 1.5 + hits.distances[on_floor] * DIRECTIONS[on_floor, 2].astype(float)
    assert on_floor.sum() > 5000
    assert np.abs(heights).max() < PRECISE


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
    hits, none = (Hits(np.zeros(3), rays, scenes) for scenes in ([room, moving, Scene({})], [Scene({})]))
    np.testing.assert_allclose(hits.distances, [1.5, 4.0, 4.0], atol=FACETED)
    assert [hits.names[index] for index in hits.surfaces()] == ["ball", "room", "room"]
    assert np.isinf(none.distances).all() and (none.surfaces() == -1).all()
