"""From the rays that Gazebo casts to a sensor's: which stand for which, where they really go, and a unit's errors."""

import dataclasses

import numpy as np
import pytest

from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.sensor.points import are_returns, coordinates
from stretch_sim_cal.sensor.sensor import Driver, NoiseGrowth, load_sensor
from stretch_sim_cal.sensor.unit import weak_echo
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.gazebo.rays import BORDER, Grid, cast_rays, grid_for, texel_directions
from stretch_sim_cal.simulation.gazebo.simulator import published
from stretch_sim_cal.simulation.lidar import Lidar
from stretch_sim_cal.simulation.optics import Hits, Scene

SENSORS = ["jt128", "jt128_sparse", "os0_32", "xt32"]
ROOM = Scene({"room": Surface(*solids.box(np.array([6.0, 7.0, 5.0])))})
FULL_TURN = Grid(900, 128, np.radians(-3.5), np.radians(90.0))


def wanted(name):
    return Lidar(load_sensor(name), "left", 1).rays(0).directions.astype(float)


def angles(ones, others):
    return np.degrees(np.linalg.norm(ones - others, axis=-1))


@pytest.mark.parametrize(
    "columns, rows, texels", [(900, 128, 256), (300, 64, 128), (2700, 128, 1024), (40, 4, 128), (9000, 16, 1024)]
)
def test_a_face_of_the_cube_has_the_texels_of_ogre2_gpu_rays(columns, rows, texels):
    assert Grid(columns, rows, FULL_TURN.lowest, FULL_TURN.highest).face_texels() == texels


def test_rays_on_a_border_are_known():
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


def test_misses_are_not_finite():
    cast = cast_rays(FULL_TURN, "gpu", wanted("jt128"))
    points = FULL_TURN.directions()
    points[:64] = np.inf
    points[64:, :450, 0] = np.nan
    missing = ~np.isfinite(cast.points(points.astype(np.float32))).all(axis=1)
    np.testing.assert_array_equal(missing, (cast.index < 64 * 900) | (cast.index % 900 < 450))


def test_fewer_rays_share_a_direction_on_the_denser_grid():
    casts = (cast_rays(grid, "gpu", wanted("jt128")) for grid in (FULL_TURN, grid_for(load_sensor("jt128"), "gpu")))
    # The share of rays that go where an earlier one goes.
    shared = [1.0 - len(np.unique(cast.sampled.round(8), axis=0)) / len(cast.sampled) for cast in casts]
    assert shared[0] > 0.25 > 0.15 > shared[1]


REAL = load_sensor("jt128")


@pytest.fixture(scope="module")
def room():
    """Return the exact points (N, 3), float32, of the sensor's rays in a room, and the walls' normals there."""
    ways = Lidar(REAL, "left", 3).rays(0).directions
    hits = Hits(np.zeros(3), ways, [ROOM])
    return ways * hits.distances[:, None], hits.normals(np.arange(len(ways)))


@pytest.mark.parametrize("driver", [Driver(False, False), Driver(True, True)])
def test_the_error_model_brings_the_points_back_to_the_walls(room, driver):
    without = dict.fromkeys(("range_noise", "quantisation", "drop_out_rate", "drop_out_echo", "range_drift"), 0.0)
    exact = dataclasses.replace(REAL, noise_growth=NoiseGrowth(), **without).with_driver(driver)
    lidar = Lidar(exact, "left", 3)
    points, normals = room
    scan = published(lidar, 0, 5.0, points, normals, exact.reflectivity)
    xyz = coordinates(scan)
    kept = are_returns(xyz)
    assert len(scan) == 230_400 and kept.sum() == 115_200
    assert (scan["timestamp"] == 5.0).all()
    model = lidar.model
    returns = model.returns(xyz[kept].astype(float), scan["ring"][kept].astype(int), weak_echo(scan["intensity"][kept]))
    off = np.linalg.norm(xyz[kept] - points, axis=1)
    # As the calibration has it: of the ray from the turning optical centre.
    _, origins = model.corrected_with_origins(returns, 1.0, lidar.unit.values)
    rays = points - origins
    cosines = np.abs(np.einsum("ni,ni->n", rays, normals)) / np.linalg.norm(rays, axis=1)
    left = np.linalg.norm(model.corrected(returns, cosines, lidar.unit.values) - points, axis=1)
    assert np.median(off) > (0.002 if driver.distance_correction else 0.01)
    # Behind a driver that corrects the optical centre, the point's direction is not quite that of the ray any more.
    assert np.percentile(left, 95) < (1e-3 if driver.distance_correction else 2e-5)


def test_misses_stay_misses(room):
    points, normals = room
    some = points.copy()
    some[:1000] = np.inf
    some[1000:1100] *= 0.001  # nearer than anything that returns
    scan = published(Lidar(REAL, "left", 3), 0, 0.0, some, normals, REAL.reflectivity)
    first = coordinates(scan).reshape(900, 2, 128, 3)[:, 0].reshape(-1, 3)
    assert (first[:1100] == 0).all() and (first[1100:] != 0).any(axis=1).mean() > 0.99
