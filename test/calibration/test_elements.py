"""The normals of cells, and factors of what is no flat patch: what they say of two views whose truth is known."""

import numpy as np
import pytest

from stretch_sim_cal.calibration.clouds import DirectionCells, cloud_of
from stretch_sim_cal.calibration.elements import CORRELATED, Elements, elements
from stretch_sim_cal.calibration.problem import State
from stretch_sim_cal.calibration.surfaces import Lidar, in_base
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.sensor.unit import directions


def scan_of_curtains(heading: float, folds: float = 0.05, farther: np.ndarray | float = 0.0) -> np.ndarray:
    """Return what a lidar with 16 channels at a heading (rad) sees of `folds` (m) all around it, `farther` (N,) by so
    many m: points in its frame."""
    elevation, azimuth = np.meshgrid(np.radians(np.arange(-15.0, 16.0, 2.0)), np.radians(np.arange(0.0, 360.0, 0.2)))
    elevation, azimuth = elevation.ravel(), azimuth.ravel()
    distance = 4.0 + folds * np.sin(24.0 * (azimuth + heading)) + farther
    return distance[:, None] * np.column_stack([np.cos(azimuth), np.sin(azimuth), np.tan(elevation)])


def scan_of_leaves(heading: float) -> np.ndarray:
    """Return what the same lidar, with a noise of 1.5 cm, at a heading (rad) sees of leaves of 2 deg all around it, at
    3.3 to 4.7 m."""
    leaves = np.random.default_rng(1).uniform(-0.7, 0.7, (16, 180))
    azimuth = np.radians(np.arange(0.0, 360.0, 0.2))
    leaf = (np.degrees(azimuth + heading) / 2.0 + 0.001).astype(int) % 180
    noise = np.random.default_rng(int(1000.0 * heading)).normal(0.0, 0.015, (16, len(azimuth)))
    return scan_of_curtains(0.0, 0.0, (leaves[:, leaf] + noise).T.ravel())


def elements_between(scans: list[np.ndarray], heading: float) -> Elements:
    """Return the factors between two scans, the second at a heading (rad)."""
    lidars = []
    for number, scan in enumerate(scans):
        cells = DirectionCells(number=number)
        cells.add(cloud_of(scan, "cloud"))
        lidars.append(Lidar.of_cells(cells))
    state = State((np.eye(4), from_xyz_rpy([0.0] * 3, [0.0, 0.0, heading])), (np.zeros(lidars[0].model.size),) * 2)
    surface = in_base(lidars, state)
    return elements(surface, state, np.zeros(len(surface.points), bool))


def yaw_of(found: Elements) -> float:
    by_yaw = found.jacobian[:, 5]
    return float(-np.sum(found.weights * by_yaw * found.residuals) / np.sum(found.weights * by_yaw**2))


@pytest.mark.parametrize("between_grids", [0.1, 0.4])  # deg, by which the cells of both views are apart
def test_a_curved_surface_does_not_turn_the_cells_of_one_view_onto_those_of_the_other(between_grids):
    heading = np.radians(40.0 + between_grids)
    found = elements_between([scan_of_curtains(0.0), scan_of_curtains(heading)], heading)
    assert len(found.seen) > 0.9 * len(found.surface.points)
    assert abs(np.degrees(yaw_of(found))) < 0.02 * abs(between_grids)


def test_what_differs_alike_within_a_piece_tells_little_of_the_directions_in_which_it_does():
    """Of sectors on both sides of the lidar, all differ by as much; those along y by the same over 20 deg, as a tree in
    the wind, those along x from cell to cell."""
    random = np.random.default_rng(1)
    azimuth = np.repeat(np.radians(np.arange(0.0, 360.0, 0.2)), 16)
    wide, narrow = ((azimuth / np.radians(width)).astype(int) for width in (20.0, 1.0))
    moved = 0.01 * np.where(
        np.abs(np.sin(azimuth)) > 0.7, random.choice([-1.0, 1.0], 18)[wide], random.choice([-1.0, 1.0], 360)[narrow]
    )
    found = elements_between([scan_of_curtains(0.0, 0.0), scan_of_curtains(0.0, 0.0, moved)], 0.0)
    assert len(found.seen) > 0.9 * len(found.surface.points)
    as_if_independent = np.sum(found.weights[:, None] * found.jacobian[:, :2] ** 2, axis=0)
    along_x, along_y = np.diag(found.information)[:2] / as_if_independent
    assert along_y < 0.5 * along_x  # x counts as the mean of all directions, of which y is one


def test_what_other_neighbours_hide_is_no_information():
    """Among leaves each cell has a similar neighbour, whatever the yaw: they tell much less of it than it seems."""
    heading, off = np.radians(40.2), np.radians(0.2)
    shown, told = {}, {}
    for scan in (scan_of_leaves, scan_of_curtains):
        scans = [scan(0.0), scan(heading)]
        found = elements_between(scans, heading)
        shown[scan] = (yaw_of(found) - yaw_of(elements_between(scans, heading + off))) / off
        by_derivative = np.sum(found.weights * found.jacobian[:, 5] ** 2) / found.variance
        told[scan] = found.information[5, 5] / by_derivative
    assert shown[scan_of_leaves] < 0.15 and shown[scan_of_curtains] > 0.9
    assert told[scan_of_leaves] < CORRELATED * shown[scan_of_leaves] ** 2 and told[scan_of_curtains] > 0.9


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
