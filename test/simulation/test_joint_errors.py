"""A robot that is not built as its description says: joints whose origins are off."""

import numpy as np
import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup
from stretch_sim_cal.simulation.true_robot import simulated_description

OFF = PoseError((0.0, 0.001, 0.003), (0.0, 0.005, 0.0))


def test_the_true_robot_has_the_errors_and_the_described_one_has_not():
    simulator = EmbeddedSimulator(SimulationSetup(joint_errors={"lift_joint": OFF}))
    true, described = (parse_urdf(text) for text in (simulator.true_description, simulator.nominal_description))
    for joints in ({"lift_joint": 0.2}, {"lift_joint": 1.0}):
        moved = link_transform(true, joints, "lift_link", "base_link")
        expected = link_transform(described, {}, "mast_link", "base_link")
        expected = expected @ described.joints["lift_joint"].parent_from_joint @ OFF.matrix
        np.testing.assert_allclose(moved[:3, :3], expected[:3, :3], atol=1e-9)
        travelled = expected[:3, 3] + joints["lift_joint"] * expected[:3, 2]
        np.testing.assert_allclose(moved[:3, 3], travelled, atol=1e-9)
    np.testing.assert_array_equal(simulator.base_from_lidar("left"), simulator.base_from_lidar("left", nominal=True))


def test_the_setup_is_written_and_read_back():
    setup = SimulationSetup(joint_errors={"lift_joint": OFF})
    again = SimulationSetup.from_mapping(setup.to_mapping())
    np.testing.assert_allclose(again.joint_errors["lift_joint"].matrix, OFF.matrix, atol=1e-12)
    with pytest.raises(InputError, match="joint_errors: lift_joint"):
        SimulationSetup.from_mapping({"joint_errors": {"lift_joint": {"xyz": [1]}}})


@pytest.mark.parametrize("joint", ["lidar_left_joint", "head_joint", "elbow_joint"])
def test_joints_that_carry_a_lidar_or_do_not_exist_are_named(joint):
    with pytest.raises(InputError, match=f"'{joint}' is no joint, or carries a lidar"):
        simulated_description(joint_errors={joint: np.eye(4)})
