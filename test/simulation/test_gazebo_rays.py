"""Which of the rays that Gazebo casts stand for a sensor's, and where they really go."""

import sys
from pathlib import Path

import numpy as np
import pytest

from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.gazebo.messages import PackedCloud
from stretch_sim_cal.simulation.gazebo.rays import BORDER, Grid, cast_rays, grid_for, texel_directions
from stretch_sim_cal.simulation.lidar import Lidar
from stretch_sim_cal.simulation.optics import Hits, Scene

sys.path.insert(0, str(Path(__file__).parent / "gazebo_stand_in"))
import gpu_rays

SENSORS = ["jt128", "jt128_sparse", "os0_32", "xt32"]
FULL_TURN = Grid(900, 128, np.radians(-3.5), np.radians(90.0))


def wanted(name):
    return Lidar(load_sensor(name), "left", 1).rays(0).directions.astype(float)


def cloud(points):
    """Return a cloud of points (rows, columns, 3)."""
    records = np.zeros(points.shape[:2], dtype=[(name, "<f4") for name in "xyz"])
    for index, name in enumerate("xyz"):
        records[name] = points[..., index]
    return PackedCloud(0, records)


def angles(ones, others):
    return np.degrees(np.linalg.norm(ones - others, axis=-1))


@pytest.mark.parametrize(
    "columns, rows, texels", [(900, 128, 256), (300, 64, 128), (2700, 128, 1024), (40, 4, 128), (9000, 16, 1024)]
)
def test_a_face_of_the_cube_has_the_texels_of_ogre2_gpu_rays(columns, rows, texels):
    grid = Grid(columns, rows, FULL_TURN.lowest, FULL_TURN.highest)
    assert grid.face_texels() == gpu_rays.texels(columns, rows, grid.lowest, grid.highest) == texels


def test_texels_are_those_of_ogre2_gpu_rays(rng=np.random.default_rng(5)):
    rays = rng.standard_normal((3000, 3))
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    for texels in (128, 1024):
        ours, border = texel_directions(rays, texels)
        theirs = np.array([gpu_rays.sampled(ray, texels) for ray in rays])
        inner = border > BORDER
        assert inner.mean() > 0.9
        np.testing.assert_allclose(ours[inner], theirs[inner], atol=1e-12)


def test_rays_on_a_border_are_known(rng=np.random.default_rng(6)):
    on_borders = np.array([[1, 0, 0.3], [1, 1, 0.2], [1, 2 / 1024 * 7, 0.31], [0.2, 1, 0]])
    assert (texel_directions(on_borders, 1024)[1] < BORDER).all()


@pytest.mark.parametrize("lidar", ["gpu", "cpu"])
@pytest.mark.parametrize("name", SENSORS)
def test_every_ray_of_the_sensor_has_one_that_goes_nearly_there(name, lidar):
    sensor, rays = load_sensor(name), wanted(name)
    grid = grid_for(sensor, lidar)
    cast = cast_rays(grid, lidar, rays)
    off = angles(cast.sampled, rays)
    spacing = 360.0 / sensor.azimuth_steps
    assert np.median(off) < 0.15 * spacing + 0.1 if lidar == "gpu" else np.median(off) < 0.5 * spacing
    # Uneven channels keep their elevations.
    elevations = np.degrees(np.arcsin(cast.sampled[:, 2])).reshape(-1, sensor.num_channels).mean(axis=0)
    assert np.abs(elevations - np.degrees(sensor.elevations)).max() < (0.2 if lidar == "gpu" else 0.4)
    if lidar == "gpu":
        borders = texel_directions(grid.directions(), grid.face_texels())[1].ravel()[cast.index]
        assert (borders < BORDER).mean() < 0.01
        assert off.max() < 0.5
        assert angles(cast.sampled, cast.published).max() < 0.2
    else:
        np.testing.assert_array_equal(cast.sampled, cast.published)


@pytest.mark.parametrize("name", ["jt128", "jt128_sparse"])
def test_a_renderer_s_ranges_are_exact_along_the_sampled_directions(name):
    sensor = load_sensor(name)
    grid = grid_for(sensor, "gpu")
    room = Scene({"room": Surface(*solids.box(np.array([6.0, 7.0, 5.0])))})
    published = grid.published("gpu")
    texels, _ = texel_directions(grid.directions(), grid.face_texels())
    hits = Hits(np.array([0.3, -0.2, 0.1]), texels.reshape(-1, 3), [room])
    ranges = hits.distances.reshape(grid.rows, -1, 1)
    rendered = cloud(published * ranges)
    cast = cast_rays(grid, "gpu", wanted(name))
    exact, given = cast.points(rendered), cast.as_published().points(rendered)
    exact[:, 2] -= cast.height
    given[:, 2] -= cast.height
    walls = np.array([3.0, 3.5, 2.5]), np.array([0.3, -0.2, 0.1])
    off, before = (np.abs(np.abs(points + walls[1]) - walls[0]).min(axis=1) for points in (exact, given))
    assert np.percentile(off, 99) < 5e-6
    assert np.percentile(before, 95) > 5e-4
    assert cast.misdirected(rendered) < 1e-6
    assert cast.misdirected(cloud(np.roll(published, 1, axis=1) * ranges)) > np.radians(0.1)


def shared(cast):
    """Return the share of rays that go where an earlier one goes."""
    return 1.0 - len(np.unique(cast.sampled.round(8), axis=0)) / len(cast.sampled)


def test_misses_are_not_finite():
    grid = Grid(900, 128, FULL_TURN.lowest, FULL_TURN.highest)
    cast = cast_rays(grid, "gpu", wanted("jt128"))
    points = grid.directions()
    points[:64] = np.inf
    points[64:, :450, 0] = np.nan
    missing = ~np.isfinite(cast.points(cloud(points))).all(axis=1)
    np.testing.assert_array_equal(missing, (cast.index < 64 * 900) | (cast.index % 900 < 450))


def test_fewer_rays_share_a_direction_on_the_denser_grid():
    cast = cast_rays(Grid(900, 128, FULL_TURN.lowest, FULL_TURN.highest), "gpu", wanted("jt128"))
    dense = cast_rays(grid_for(load_sensor("jt128"), "gpu"), "gpu", wanted("jt128"))
    assert shared(cast) > 0.25 > 0.15 > shared(dense)
