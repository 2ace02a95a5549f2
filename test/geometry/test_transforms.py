"""Rigid transforms and twists, planes and the footprint they define, and sets of points: groups, hulls of few."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry import transforms as tf
from stretch_sim_cal.geometry.planes import Plane, fit_plane, floor_error, floor_of_footprint, footprint_from_base
from stretch_sim_cal.geometry.points import convex_hull, group_means, group_medians, group_sums, voxel_keys
from stretch_sim_cal.geometry.transforms import apply, from_xyz_rpy, inverse

numbers = st.floats(-2.0, 2.0, allow_nan=False)
twists = arrays(float, 6, elements=numbers)
# Rotations beyond half a turn have a shorter twist that means the same.
short_twists = arrays(float, 6, elements=st.floats(-1.7, 1.7, allow_nan=False))


def test_points_are_mapped_from_source_to_target_and_roll_pitch_and_yaw_turn_about_fixed_axes_in_this_order():
    # The source's x axis lies along the target's y axis, its origin 1 m along the target's x.
    target_from_source = tf.from_xyz_rpy((1.0, 0.0, 0.0), (0.0, 0.0, np.pi / 2))
    np.testing.assert_allclose(tf.apply(target_from_source, np.array([[2.0, 0.0, 0.0]])), [[1.0, 2.0, 0.0]], atol=1e-12)
    points = np.ones((3, 3), dtype=np.float32)
    assert tf.apply(np.eye(4), points).dtype == np.float32 and tf.apply(np.eye(4), points.astype(int)).dtype == float
    roll, pitch, yaw = (tf.from_xyz_rpy(rpy=rpy) for rpy in np.diag([0.3, -0.4, 0.5]))
    np.testing.assert_allclose(tf.from_xyz_rpy(rpy=(0.3, -0.4, 0.5)), yaw @ pitch @ roll, atol=1e-12)


@given(twists)
def test_origin_and_quaternion_come_back_and_a_transform_has_an_inverse(twist):
    stack = np.stack([tf.exp(share * twist) for share in (1.0, 0.3)])
    np.testing.assert_allclose(tf.inverse(stack[0]) @ stack[0], np.eye(4), atol=1e-12)
    np.testing.assert_allclose(tf.inverse(stack) @ stack, np.broadcast_to(np.eye(4), (2, 4, 4)), atol=1e-12)
    transform = tf.exp(twist)
    np.testing.assert_allclose(tf.from_xyz_rpy(*tf.to_xyz_rpy(transform)), transform, atol=1e-9)
    np.testing.assert_allclose(tf.from_xyz_quaternion(*tf.to_xyz_quaternion(transform)), transform, atol=1e-9)


@given(short_twists)
def test_log_is_the_inverse_of_exp(twist):
    np.testing.assert_allclose(tf.log(tf.exp(twist)), twist, atol=1e-7)


@given(twists, twists)
def test_adjoint_carries_a_twist_to_the_other_side(pose, twist):
    transform = tf.exp(pose)
    moved = transform @ tf.exp(0.1 * twist) @ tf.inverse(transform)
    np.testing.assert_allclose(tf.exp(tf.adjoint(transform) @ (0.1 * twist)), moved, atol=1e-9)


def test_error_is_that_of_the_estimate_seen_from_the_truth():
    truth = tf.from_xyz_rpy((1.0, 2.0, 3.0), (0.1, 0.2, 0.3))
    distance, angle = tf.error(truth, truth @ tf.from_xyz_rpy((0.0, 0.003, 0.004), (0.0, 0.01, 0.0)))
    assert distance == pytest.approx(0.005)
    assert angle == pytest.approx(0.01)


def test_a_rounded_transform_is_made_orthonormal():
    transform = tf.exp([0.1, 0.2, 0.3, 1.0, -0.5, 0.2])
    checked = tf.check_rigid(np.round(transform, 5).tolist())
    np.testing.assert_allclose(checked[:3, :3] @ checked[:3, :3].T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(checked, transform, atol=2e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        np.eye(3), "nonsense", None, [[1, 2], [3]], np.full((4, 4), np.nan), np.diag([1.0, 1.0, -1.0, 1.0]),
        np.diag([2.0, 1.0, 1.0, 1.0]), np.ones((4, 4)), np.eye(4).T[::-1],
    ],
)  # fmt: skip
def test_what_is_not_rigid_is_refused_by_name(wrong):
    with pytest.raises(InputError, match="right_to_left"):
        tf.check_rigid(wrong, "right_to_left")


TILTED = Plane.from_coefficients([0.02, -0.03, 1.0], 0.03)


def test_coefficients_of_any_length_give_a_plane_with_positive_distances_on_its_normals_side_that_moves_with_points():
    plane = Plane.from_coefficients([0.0, 0.0, -4.0], 2.0)
    np.testing.assert_allclose(plane.normal, [0, 0, -1])
    assert plane.offset == pytest.approx(0.5)
    assert plane.facing(np.array([0, 0, 1.0])).offset == pytest.approx(-0.5)
    np.testing.assert_allclose(plane.distance(np.array([[3, 2, -1.0], [0, 0, 0.5]])), [1.5, 0.0])
    target_from_source = from_xyz_rpy([1.0, -2.0, 0.5], [0.3, -0.2, 1.0])
    points = np.random.default_rng(1).normal(size=(20, 3))
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
    # Weights of zero leave points out.
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0.5, 0.5, 7.0]])
    plane, _ = fit_plane(points, np.array([1, 1, 1, 1, 0.0]))
    assert abs(plane.normal[2]) == pytest.approx(1.0)


@pytest.mark.parametrize(("angle", "sign"), [(0.0, 1.0), (1e-9, -1.0), (1e-4, 1.0), (0.3, -1.0)])
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
    # Points beyond the grid share the outermost voxels.
    keys = voxel_keys(np.array([[1e12, 0.0, 0.0], [2e12, 0.0, 0.0], [-1e12, 0.0, 0.0]]), 0.1)
    assert keys[0] == keys[1] != keys[2]


def test_sums_means_and_upper_medians_of_groups():
    group = np.array([0, 2, 2, 0])
    values = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [3.0, 30.0]])
    np.testing.assert_allclose(group_sums(group, 3, values), [[4.0, 40.0], [0.0, 0.0], [6.0, 60.0]])
    np.testing.assert_allclose(group_means(group, 3, values), [[2.0, 20.0], [0.0, 0.0], [3.0, 30.0]])
    np.testing.assert_allclose(group_sums(np.zeros(0, dtype=int), 2, np.zeros((0, 3))), np.zeros((2, 3)))
    rng = np.random.default_rng(1)
    group, values = rng.permutation(np.repeat(np.arange(7), [1, 2, 3, 4, 5, 30, 31])), rng.normal(size=76)
    expected = [np.sort(values[group == g])[np.count_nonzero(group == g) // 2] for g in range(7)]
    np.testing.assert_array_equal(group_medians(group, np.bincount(group), values), expected)


def test_hulls_of_few_equal_and_collinear_points():
    assert convex_hull(np.empty((0, 2))).shape == (0, 2)
    assert convex_hull(np.ones((5, 2))).shape == (1, 2)
    line = np.linspace(0, 1, 9)[:, None] * [1.0, 2.0]
    np.testing.assert_allclose(convex_hull(line), [[0, 0], [1, 2]])
