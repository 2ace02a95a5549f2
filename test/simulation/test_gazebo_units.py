"""A unit's errors upon exact points from Gazebo are those that the embedded simulator's rays would have had."""

import dataclasses

import numpy as np
import pytest

from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.sensor.points import are_returns, coordinates
from stretch_sim_cal.sensor.sensor import Driver, load_sensor
from stretch_sim_cal.sensor.unit import weak_echo
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.gazebo.simulator import published
from stretch_sim_cal.simulation.lidar import Lidar
from stretch_sim_cal.simulation.optics import Hits, Scene

REAL = load_sensor("jt128")
ROOM = Scene({"room": Surface(*solids.box(np.array([6.0, 7.0, 5.0])))})


@pytest.fixture(scope="module")
def room():
    """Return the exact points (N, 3), float32, of the sensor's rays in a room, and the walls' normals there."""
    ways = Lidar(REAL, "left", 3).rays(0).directions
    hits = Hits(np.zeros(3), ways, [ROOM])
    return ways * hits.distances[:, None], hits.normals(np.arange(len(ways)))


@pytest.mark.parametrize("driver", [Driver(False, False), Driver(True, True)])
def test_the_error_model_brings_the_points_back_to_the_walls(room, driver):
    exact = dataclasses.replace(
        REAL, range_noise=0.0, noise_growth=type(REAL.noise_growth)(), quantisation=0.0, drop_out_rate=0.0,
        drop_out_echo=0.0, range_drift=0.0,
    ).with_driver(driver)  # fmt: skip
    lidar = Lidar(exact, "left", 3)
    points, normals = room
    scan = published(lidar, 0, 5.0, points, normals, exact.reflectivity)
    xyz = coordinates(scan)
    kept = are_returns(xyz)
    assert len(scan) == 230_400 and kept.sum() == 115_200
    assert scan["timestamp"].min() == 5.0 and scan["timestamp"].max() < 5.1
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
