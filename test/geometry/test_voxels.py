"""Voxels: points in the same cube share a key, sums and means over groups are right."""

import numpy as np

from stretch_sim_cal.geometry.voxels import group_means, group_sums, voxel_keys, voxel_means


def test_points_share_a_key_exactly_when_they_share_a_cube():
    rng = np.random.default_rng(0)
    points = rng.uniform(-3.0, 3.0, (400, 3))
    keys = voxel_keys(points, 0.5)
    cubes = np.floor(points / 0.5)
    same_cube = (cubes[:, None] == cubes).all(axis=2)
    np.testing.assert_array_equal(keys[:, None] == keys, same_cube)


def test_points_beyond_the_grid_share_the_outermost_voxels():
    keys = voxel_keys(np.array([[1e12, 0.0, 0.0], [2e12, 0.0, 0.0], [-1e12, 0.0, 0.0]]), 0.1)
    assert keys[0] == keys[1] != keys[2]


def test_group_sums_and_means():
    group = np.array([0, 2, 2, 0])
    values = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [3.0, 30.0]])
    np.testing.assert_allclose(group_sums(group, 3, values), [[4.0, 40.0], [0.0, 0.0], [6.0, 60.0]])
    np.testing.assert_allclose(group_means(group, 3, values), [[2.0, 20.0], [0.0, 0.0], [3.0, 30.0]])
    weighted = group_means(group, 3, values, weights=np.array([3.0, 1.0, 0.0, 1.0]))
    np.testing.assert_allclose(weighted, [[1.5, 15.0], [0.0, 0.0], [2.0, 20.0]])


def test_sums_over_nothing_are_zero():
    np.testing.assert_allclose(group_sums(np.zeros(0, dtype=int), 2, np.zeros((0, 3))), np.zeros((2, 3)))


def test_voxel_means_keep_the_centre_of_mass_and_do_not_depend_on_order():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(500, 3))
    means, counts = voxel_means(points, 0.7)
    np.testing.assert_allclose((means * counts[:, None]).sum(axis=0) / 500, points.mean(axis=0))
    shuffled, _ = voxel_means(points[rng.permutation(500)], 0.7)
    np.testing.assert_allclose(shuffled, means, atol=1e-12)
