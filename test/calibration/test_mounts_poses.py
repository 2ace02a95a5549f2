"""Which poses tell most of the mounts."""

import numpy as np
import pytest
from scipy.linalg import block_diag

from stretch_sim_cal.calibration.mounts.poses import best_next, pose_information, worst_spread
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, mount_settings
from stretch_sim_cal.calibration.mounts.system import RobotUnknowns, model_variances, mount_covariances
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.stretch import nominal_description

NAMES = {"near": (1.0, 0.45, 1.7), "low": (0.2, 0.0, -1.1), "low again": (0.2, 0.0, -1.1)}
SETTINGS = mount_settings()


@pytest.fixture(scope="module")
def robot():
    return MountedRobot(load_model(nominal_description()))


@pytest.fixture(scope="module")
def poses(robot):
    names = ("lift_joint", "arm_joint", "wrist_yaw_joint")
    return {name: robot.pose(name, dict(zip(names, values, strict=True))) for name, values in NAMES.items()}


@pytest.fixture(scope="module")
def information(robot, poses):
    return {name: pose_information(robot.surfaces, pose, robot.nominal, SETTINGS) for name, pose in poses.items()}


@pytest.fixture(scope="module")
def start(robot):
    """The information that there is before any pose."""
    unknowns = RobotUnknowns(robot.surfaces, SETTINGS, robot.nominal)
    lidars = map(np.linalg.inv, mount_covariances(robot.nominal, SETTINGS))
    return block_diag(*lidars, np.diag(1.0 / model_variances(unknowns, SETTINGS)[unknowns.first_link :]))


def test_another_view_is_preferred_to_the_same_once_more(robot, poses, information, start):
    first = best_next(start, robot.surfaces, list(poses.values()), robot.nominal, SETTINGS)
    left = [pose for name, pose in poses.items() if name != first.name]
    second = best_next(start + information[first.name], robot.surfaces, left, robot.nominal, SETTINGS)
    assert "near" in (first.name, second.name) and second.spread < first.spread < first.before


def test_poses_shrink_what_is_not_known(robot, information, start):
    before = worst_spread(start, robot.nominal, SETTINGS)
    assert worst_spread(start + information["low"], robot.nominal, SETTINGS) < before / 3


def test_the_pose_proposed_is_the_one_that_is_missing(robot, poses, information, start):
    best = best_next(
        start + information["low"], robot.surfaces, [poses["low again"], poses["near"]], robot.nominal, SETTINGS
    )
    assert best.name == "near"


def test_what_a_joint_moves_is_told_as_the_kinematics_have_it(robot):
    joints = {"lift_joint": 0.5, "wrist_yaw_joint": 0.4}
    sample = robot.sample("pose", joints, {}, ("lift_joint", "wrist_yaw_joint"))
    axis = (
        link_transform(robot.model, joints, "lift_link", "base_link")[:3, :3]
        @ robot.model.joints["lift_joint"].unit_axis
    )
    np.testing.assert_allclose(sample.joint_motions["lift_joint"]["wrist_link"][:3], axis, atol=1e-6)
    assert "lift_link" not in sample.joint_motions["wrist_yaw_joint"]
    assert np.linalg.norm(sample.joint_motions["wrist_yaw_joint"]["wrist_roll_link"][3:]) == pytest.approx(
        1.0, abs=1e-4
    )
