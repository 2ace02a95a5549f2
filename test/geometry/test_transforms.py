"""Rigid transforms: the convention target_from_source, twists, adjoints, and what is refused as a transform."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry import transforms as tf

numbers = st.floats(-2.0, 2.0, allow_nan=False)
twists = arrays(float, 6, elements=numbers)
# Rotations beyond half a turn have a shorter twist that means the same.
short_twists = arrays(float, 6, elements=st.floats(-1.7, 1.7, allow_nan=False))


def test_points_are_mapped_from_source_to_target():
    # The source's x axis lies along the target's y axis, its origin 1 m along the target's x.
    target_from_source = tf.from_xyz_rpy((1.0, 0.0, 0.0), (0.0, 0.0, np.pi / 2))
    np.testing.assert_allclose(tf.apply(target_from_source, np.array([[2.0, 0.0, 0.0]])), [[1.0, 2.0, 0.0]], atol=1e-12)


def test_roll_pitch_yaw_turn_about_fixed_axes_in_this_order():
    roll, pitch, yaw = (tf.from_xyz_rpy(rpy=rpy) for rpy in np.diag([0.3, -0.4, 0.5]))
    np.testing.assert_allclose(tf.from_xyz_rpy(rpy=(0.3, -0.4, 0.5)), yaw @ pitch @ roll, atol=1e-12)


@given(twists)
def test_origin_and_quaternion_come_back(twist):
    transform = tf.exp(twist)
    np.testing.assert_allclose(tf.from_xyz_rpy(*tf.to_xyz_rpy(transform)), transform, atol=1e-9)
    np.testing.assert_allclose(tf.from_xyz_quaternion(*tf.to_xyz_quaternion(transform)), transform, atol=1e-9)


@given(short_twists)
def test_log_is_the_inverse_of_exp(twist):
    np.testing.assert_allclose(tf.log(tf.exp(twist)), twist, atol=1e-7)


@given(twists)
def test_inverse(twist):
    stack = np.stack([tf.exp(share * twist) for share in (1.0, 0.3)])
    np.testing.assert_allclose(tf.inverse(stack[0]) @ stack[0], np.eye(4), atol=1e-12)
    np.testing.assert_allclose(tf.inverse(stack) @ stack, np.broadcast_to(np.eye(4), (2, 4, 4)), atol=1e-12)


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


def test_apply_keeps_the_precision_of_the_points():
    points = np.ones((3, 3), dtype=np.float32)
    assert tf.apply(np.eye(4), points).dtype == np.float32
    assert tf.apply(np.eye(4), points.astype(int)).dtype == float


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
