"""Points in the same cube share a key, sums and means over groups are right, and hulls do not fail on few points."""

import numpy as np

from stretch_sim_cal.geometry.points import convex_hull, group_means, group_medians, group_sums, voxel_keys


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


def test_medians_of_groups_are_the_upper_of_both_in_the_middle():
    rng = np.random.default_rng(1)
    group, values = rng.permutation(np.repeat(np.arange(7), [1, 2, 3, 4, 5, 30, 31])), rng.normal(size=76)
    expected = [np.sort(values[group == g])[np.count_nonzero(group == g) // 2] for g in range(7)]
    np.testing.assert_array_equal(group_medians(group, np.bincount(group), values), expected)


def test_hulls_of_few_equal_and_collinear_points():
    assert convex_hull(np.empty((0, 2))).shape == (0, 2)
    assert convex_hull(np.ones((5, 2))).shape == (1, 2)
    line = np.linspace(0, 1, 9)[:, None] * [1.0, 2.0]
    np.testing.assert_allclose(convex_hull(line), [[0, 0], [1, 2]])
