"""Factors of what is no flat patch: what they say of two views whose truth is known."""

import numpy as np
import pytest

from stretch_sim_cal.calibration.clouds import DirectionCells, cloud_of
from stretch_sim_cal.calibration.elements import elements
from stretch_sim_cal.calibration.problem import State
from stretch_sim_cal.calibration.surfaces import Lidar, in_base
from stretch_sim_cal.geometry.transforms import from_xyz_rpy


def scan_of_curtains(heading: float) -> np.ndarray:
    """Return what a lidar with 16 channels at a heading (rad) sees of folds all around it: points in its frame."""
    elevation, azimuth = np.meshgrid(np.radians(np.arange(-15.0, 16.0, 2.0)), np.radians(np.arange(0.0, 360.0, 0.2)))
    elevation, azimuth = elevation.ravel(), azimuth.ravel()
    distance = 4.0 + 0.05 * np.sin(24.0 * (azimuth + heading))
    return distance[:, None] * np.column_stack([np.cos(azimuth), np.sin(azimuth), np.tan(elevation)])


@pytest.mark.parametrize("between_grids", [0.1, 0.4])  # deg, by which the cells of both views are apart
def test_a_curved_surface_does_not_turn_the_cells_of_one_view_onto_those_of_the_other(between_grids):
    heading = np.radians(40.0 + between_grids)
    lidars = []
    for yaw in (0.0, heading):
        cells = DirectionCells()
        cells.add(cloud_of(scan_of_curtains(yaw), "cloud"))
        lidars.append(Lidar.of_cells(cells))
    state = State((np.eye(4), from_xyz_rpy([0.0] * 3, [0.0, 0.0, heading])), (np.zeros(lidars[0].model.size),) * 2)
    surface = in_base(lidars, state)
    found = elements(surface, state, np.zeros(len(surface.points), bool))
    by_yaw = found.jacobian[:, 5]
    yaw = -np.sum(found.weights * by_yaw * found.residuals) / np.sum(found.weights * by_yaw**2)
    assert len(found.seen) > 0.9 * len(surface.points)
    assert abs(np.degrees(yaw)) < 0.02 * abs(between_grids)
