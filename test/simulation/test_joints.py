"""How the simulated joints move."""

import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.simulation.joints import Joints


@pytest.fixture(scope="module")
def model():
    return parse_urdf(nominal_description())


@pytest.fixture
def joints(model):
    return Joints(model)


def test_a_joint_moves_at_the_velocity_limit_of_the_description(joints, model):
    limit = model.joints["lift_joint"].limit.velocity
    joints.command({"lift_joint": 1.0})
    joints.step(0.5)
    assert joints.positions["lift_joint"] == pytest.approx(0.5 * limit, abs=1e-12)
    assert joints.joint_velocities["lift_joint"] == limit
    joints.step(10.0)
    assert joints.positions["lift_joint"] == 1.0
    assert not joints.moving and joints.joint_velocities["lift_joint"] == 0.0


def test_a_slower_speed_is_kept_and_a_faster_one_limited(joints, model):
    limit = model.joints["lift_joint"].limit.velocity
    joints.command({"lift_joint": 1.0, "wrist_yaw_joint": -1.0}, {"lift_joint": 100.0, "wrist_yaw_joint": 0.2})
    joints.step(1.0)
    assert joints.positions["lift_joint"] == pytest.approx(limit)
    assert joints.positions["wrist_yaw_joint"] == pytest.approx(-0.2)
    assert joints.joint_velocities["wrist_yaw_joint"] == pytest.approx(-0.2)


def test_the_arm_is_four_joints_with_a_quarter_each(joints):
    joints.command({"arm_joint": 0.4})
    joints.step(10.0)
    assert [
        joints.joint_positions[name] for name in [f"arm_l{number}_joint" for number in (1, 2, 3, 4)]
    ] == pytest.approx([0.1] * 4)
    assert joints.positions["arm_joint"] == pytest.approx(0.4)


def test_where_a_joint_is_does_not_depend_on_the_steps(model):
    few, many = Joints(model), Joints(model)
    for joints in (few, many):
        joints.command({"lift_joint": 0.777, "arm_joint": 0.333}, {"arm_joint": 0.1})
    few.step(1.3)
    for _ in range(1300):
        many.step(0.001)
    assert few.joint_positions == many.joint_positions


def test_a_new_command_takes_the_place_of_the_old_one_only_for_the_joints_it_names(joints):
    joints.command({"lift_joint": 1.0, "arm_joint": 0.5}, {"arm_joint": 0.1})
    joints.step(1.0)
    joints.command({"lift_joint": 0.0})
    joints.step(0.2)
    assert joints.positions["lift_joint"] == pytest.approx(0.4)
    assert joints.positions["arm_joint"] == pytest.approx(0.12)


def test_hold_leaves_all_joints_where_they_are(joints):
    joints.command(stretch_profile().home[0])
    joints.step(0.3)
    joints.hold()
    before = dict(joints.positions)
    joints.step(5.0)
    assert joints.positions == before and not joints.moving


def test_a_stuck_joint_does_not_move_whatever_it_is_told(joints):
    joints.stick(["arm_joint"])
    joints.command({"arm_joint": 0.3, "lift_joint": 0.3})
    joints.step(10.0)
    assert joints.positions["arm_joint"] == 0.0 and joints.positions["lift_joint"] == 0.3


def test_stow_and_home_are_poses_that_the_joints_can_take(joints):
    for pose in (stretch_profile().stowed, stretch_profile().home[0]):
        joints.place(pose)
        assert {name: joints.positions[name] for name in pose} == pytest.approx(pose)


def test_joint_states_name_every_moving_joint_of_the_description(joints, model):
    moving = {joint.name for joint in model.moving_joints()}
    assert set(joints.joint_positions) == set(joints.joint_velocities) == moving


@pytest.mark.parametrize(
    "targets, mention",
    [
        ({"lift_join": 0.5}, "lift_joint"),
        ({"lift_joint": 1.3}, "limits 0 to 1.2"),
        ({"arm_joint": -0.1}, "arm_joint"),
        ({"lift_joint": float("nan")}, "lift_joint"),
        ({"wheel_0_joint": 1.0}, "wheel_0_joint"),
        ({"arm_l1_joint": 0.1}, "arm_l1_joint"),
    ],
)
def test_unknown_joints_and_targets_beyond_limits_are_refused_and_nothing_moves(joints, targets, mention):
    with pytest.raises(InputError, match=mention):
        joints.command({"wrist_yaw_joint": 1.0} | targets)
    assert not joints.moving


def test_a_target_that_rounding_pushed_over_a_limit_is_at_the_limit(joints):
    joints.command({"lift_joint": 1.2 + 1e-9})
    joints.step(10.0)
    assert joints.positions["lift_joint"] == 1.2


@pytest.mark.parametrize("speed", [0.0, -0.1, float("nan")])
def test_speeds_that_lead_nowhere_are_refused(joints, speed):
    with pytest.raises(InputError, match="speed"):
        joints.command({"lift_joint": 0.5}, {"lift_joint": speed})


def test_time_does_not_go_back(joints):
    with pytest.raises(InputError, match="forward"):
        joints.step(-0.1)
