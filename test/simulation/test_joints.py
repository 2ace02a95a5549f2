"""How the simulated joints move, and which goals they follow."""

from types import SimpleNamespace

import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.simulation.joints import Arrival, Following, Joints, read_waypoints


@pytest.fixture
def joints(stretch):
    return Joints(stretch)


def test_a_joint_moves_at_the_velocity_limit_of_the_description(joints, stretch):
    assert set(joints.joint_positions) == set(joints.joint_velocities) == {j.name for j in stretch.moving_joints()}
    limit = stretch.joints["lift_joint"].limit.velocity
    joints.command({"lift_joint": 1.0, "arm_joint": 0.4})
    joints.step(0.5)
    assert joints.positions["lift_joint"] == pytest.approx(0.5 * limit, abs=1e-12)
    assert joints.joint_velocities["lift_joint"] == limit
    joints.step(10.0)
    assert joints.positions["lift_joint"] == 1.0
    assert [joints.joint_positions[f"arm_l{n}_joint"] for n in (1, 2, 3, 4)] == pytest.approx([0.1] * 4)
    assert not joints.moving and joints.joint_velocities["lift_joint"] == 0.0


def test_a_joint_s_position_does_not_depend_on_the_steps(stretch):
    few, many = Joints(stretch), Joints(stretch)
    for joints in (few, many):
        joints.command({"lift_joint": 0.777, "arm_joint": 0.333}, {"arm_joint": 0.1})
    few.step(1.3)
    for _ in range(1300):
        many.step(0.001)
    assert few.joint_positions == many.joint_positions


@pytest.mark.parametrize(
    "targets, mention",
    [
        ({"lift_joint": 1.3}, "limits 0 to 1.2"),
        ({"lift_joint": float("nan")}, "lift_joint"),
        ({"wheel_0_joint": 1.0}, "wheel_0_joint"),
    ],
)
def test_unknown_joints_and_targets_beyond_limits_are_refused_and_nothing_moves(joints, targets, mention):
    with pytest.raises(InputError, match=mention):
        joints.command({"wrist_yaw_joint": 1.0} | targets)
    assert not joints.moving


def trajectory(names, *points):
    return SimpleNamespace(joint_names=list(names), points=[point_of(*point) for point in points])


def point_of(positions, velocities=(), seconds=0.0):
    duration = SimpleNamespace(sec=int(seconds // 1), nanosec=round(seconds % 1 * 1e9))
    return SimpleNamespace(positions=positions, velocities=velocities, time_from_start=duration)


def follow(joints, *points, names=("lift_joint", "arm_joint"), until=60.0):
    """Follow a trajectory in steps of 10 ms; return how it ended, when, and all positions on the way."""
    following = Following(joints, read_waypoints(trajectory(names, *points), joints.ranges), 0.0)
    track, progress = [], Arrival.MOVING
    while progress is Arrival.MOVING and len(track) < until / 0.01:
        joints.step(0.01)
        track.append(dict(joints.positions))
        progress = following.update(0.01 * len(track))
    return progress, 0.01 * len(track), track


@pytest.mark.parametrize(
    ("names", "points", "says"),
    [
        ([], [([],)], "names no joints"),
        (["elbow_joint"], [([0.1],)], "unknown joint elbow_joint; available: lift_joint"),
        (["lift_joint"], [], "no points"),
        (["lift_joint"], [([0.1, 0.2],)], "2 positions for 1 joints"),
        (["lift_joint"], [([1.3],)], "lift_joint at 1.3 is outside its limits 0 .. 1.2"),
        (["arm_joint"], [([0.1],), ([-0.1],)], "point 1: arm_joint at -0.1"),
        (["lift_joint"], [([0.1], [float("inf")])], "velocity of lift_joint is inf"),
        (["lift_joint"], [([0.1], (), 2.0), ([0.2], (), 1.0)], "time_from_start is before"),
    ],
)
def test_goals_that_cannot_be_followed_are_refused(joints, names, points, says):
    with pytest.raises(InputError, match=says):
        read_waypoints(trajectory(names, *points), joints.ranges)


def test_with_time_to_spare_joints_arrive_together(joints):
    progress, seconds, track = follow(joints, ([1.0, 0.4], (), 8.0))
    assert progress is Arrival.ARRIVED and seconds == pytest.approx(8.0, abs=0.011)
    assert [track[399][joint] for joint in ("lift_joint", "arm_joint")] == pytest.approx([0.5, 0.2], abs=0.01)


def test_waypoints_are_visited_one_after_the_other(joints):
    progress, _, track = follow(joints, ([0.6, 0.0],), ([0.1, 0.3],))
    assert progress is Arrival.ARRIVED
    assert max(positions["lift_joint"] for positions in track) == pytest.approx(0.6)
    assert [track[-1][joint] for joint in ("lift_joint", "arm_joint")] == pytest.approx([0.1, 0.3])


def test_a_joint_that_does_not_arrive_is_late(joints):
    joints.stick(["arm_joint"])
    progress, _, track = follow(joints, ([0.5, 0.3],))
    assert progress is Arrival.LATE
    assert [track[-1][joint] for joint in ("lift_joint", "arm_joint")] == [pytest.approx(0.5), 0.0]
