"""Planes and the footprint they define; sets of points: cubes, sums, means and medians of groups, hulls of few."""

import numpy as np
import pytest

from stretch_sim_cal.geometry.planes import Plane, fit_plane, floor_error, floor_of_footprint, footprint_from_base
from stretch_sim_cal.geometry.points import convex_hull, group_means, group_medians, group_sums, voxel_keys
from stretch_sim_cal.geometry.transforms import apply, from_xyz_rpy, inverse

TILTED = Plane.from_coefficients([0.02, -0.03, 1.0], 0.03)


def test_coefficients_of_any_length_give_the_same_plane():
    plane = Plane.from_coefficients([0.0, 0.0, -4.0], 2.0)
    np.testing.assert_allclose(plane.normal, [0, 0, -1])
    assert plane.offset == pytest.approx(0.5)
    assert plane.facing(np.array([0, 0, 1.0])).offset == pytest.approx(-0.5)


def test_distances_are_positive_on_the_normals_side():
    np.testing.assert_allclose(
        Plane(np.array([0, 0, 1.0]), 0.5).distance(np.array([[3, 2, 1.0], [0, 0, -0.5]])), [1.5, 0.0]
    )


def test_a_plane_moves_with_its_points():
    rng = np.random.default_rng(1)
    target_from_source = from_xyz_rpy([1.0, -2.0, 0.5], [0.3, -0.2, 1.0])
    points = rng.normal(size=(20, 3))
    after = TILTED.moved(target_from_source).distance(apply(target_from_source, points))
    np.testing.assert_allclose(after, TILTED.distance(points), atol=1e-12)


def test_a_fit_finds_the_plane_through_points():
    rng = np.random.default_rng(2)
    points = np.column_stack([rng.uniform(-2, 2, (500, 2)), np.zeros(500)])
    points[:, 2] = -(points[:, :2] @ TILTED.normal[:2] + TILTED.offset) / TILTED.normal[2]
    plane, variances = fit_plane(points)
    plane = plane.facing(TILTED.normal)
    np.testing.assert_allclose(plane.normal, TILTED.normal, atol=1e-12)
    assert plane.offset == pytest.approx(TILTED.offset)
    # Eigenvalues are exact to rounding of the largest one.
    assert abs(variances[0]) < 1e-14 * variances[2] < variances[1] <= variances[2]


def test_weights_of_zero_leave_points_out():
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0.5, 0.5, 7.0]])
    plane, _ = fit_plane(points, np.array([1, 1, 1, 1, 0.0]))
    assert abs(plane.normal[2]) == pytest.approx(1.0)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 0.3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_error_of_a_floor_is_its_height_at_the_origin_and_the_angle_between_normals(angle, sign):
    tilted = Plane(sign * np.array([np.sin(angle), 0.0, np.cos(angle)]), sign * 0.03)
    assert floor_error(Plane(np.array([0.0, 0.0, 1.0]), 0.028), tilted) == pytest.approx(
        (0.002, angle), rel=1e-9, abs=1e-15
    )


def test_the_footprint_lies_on_the_floor_below_base_link():
    footprint_from_base_link = footprint_from_base(TILTED)
    base_from_footprint = inverse(footprint_from_base_link)
    origin, x_axis, z_axis = base_from_footprint[:3, 3], base_from_footprint[:3, 0], base_from_footprint[:3, 2]
    assert TILTED.distance(origin[None])[0] == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_allclose(np.cross(origin, TILTED.normal), 0.0, atol=1e-15)
    np.testing.assert_allclose(z_axis, TILTED.normal)
    assert x_axis[0] > 0.99 and x_axis[1] == pytest.approx(-TILTED.normal[1] * TILTED.normal[0], abs=1e-6)
    assert np.linalg.det(footprint_from_base_link[:3, :3]) == pytest.approx(1.0)
    assert footprint_from_base_link[2, 3] == pytest.approx(TILTED.offset)


def test_floor_and_footprint_give_each_other_wherever_the_normal_points():
    np.testing.assert_allclose(footprint_from_base(Plane(-TILTED.normal, -TILTED.offset)), footprint_from_base(TILTED))
    plane = floor_of_footprint(footprint_from_base(TILTED))
    np.testing.assert_allclose(plane.normal, TILTED.normal)
    assert plane.offset == pytest.approx(TILTED.offset)


def test_points_share_a_key_exactly_when_they_share_a_cube():
    points = np.random.default_rng(0).uniform(-3.0, 3.0, (400, 3))
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
