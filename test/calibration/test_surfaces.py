"""The normals of a lidar's cells."""

import numpy as np

from stretch_sim_cal.calibration.clouds import DirectionCells, cloud_of
from stretch_sim_cal.calibration.surfaces import Lidar
from stretch_sim_cal.sensor.unit import directions

FAR = np.array([2.0, 3.0, 2.5])  # m, of the three walls of a corner from the lidar


def test_cells_beside_an_edge_have_the_normal_of_their_own_wall():
    """A normal between both walls faces the lidar more than either: errors that depend on incidence would seem to be
    smaller there than they are."""
    random = np.random.default_rng(3)
    elevation, azimuth = np.meshgrid(np.radians(np.arange(5.0, 60.0)), np.radians(np.arange(2.0, 88.0, 0.2)))
    rays = directions(elevation.ravel(), azimuth.ravel())
    distances = np.min(FAR / rays, axis=1) + random.normal(0.0, 0.005, len(rays))
    cells = DirectionCells()
    cells.add(cloud_of(distances[:, None] * rays, "cloud"))
    surface = Lidar.of_cells(cells).surface
    to_walls = np.sort(np.abs(FAR - surface.points), axis=1)
    wall = np.argmin(np.abs(FAR - surface.points), axis=1)
    beside = (to_walls[:, 1] > 0.05) & (to_walls[:, 1] < 0.2)  # of no other wall, but near one
    off = np.degrees(np.arccos(np.abs(surface.normals[np.arange(len(wall)), wall])))[beside]
    assert np.count_nonzero(beside) > 300
    assert np.mean(off > 5.0) < 0.02
    assert (surface.planarity[beside] < 0.02).mean() > 0.98
