"""Goals: which ones are refused, following the others, and the faults that a simulator may have."""

from types import SimpleNamespace

import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.simulation.joints import (
    INVALID_GOAL,
    INVALID_JOINTS,
    Arrival,
    Following,
    GoalRefused,
    Joints,
    read_waypoints,
)
from stretch_sim_cal.simulation.setup import Faults


@pytest.fixture(scope="module")
def model():
    return parse_urdf(nominal_description())


@pytest.fixture
def joints(model):
    return Joints(model)


def trajectory(names, *points):
    return SimpleNamespace(joint_names=list(names), points=[point_of(*point) for point in points])


def point_of(positions, velocities=(), seconds=0.0):
    duration = SimpleNamespace(sec=int(seconds // 1), nanosec=round(seconds % 1 * 1e9))
    return SimpleNamespace(positions=positions, velocities=velocities, time_from_start=duration)


def follow(joints, *points, names=("lift_joint", "arm_joint"), until=60.0):
    """Follow a trajectory in steps of 10 ms; return how it ended, when, and all positions on the way."""
    following = Following(joints, read_waypoints(trajectory(names, *points), joints.ranges), 0.0)
    track = []
    for step in range(1, int(until / 0.01)):
        joints.step(0.01)
        track.append(dict(joints.positions))
        progress = following.update(0.01 * step)
        if progress is not Arrival.MOVING:
            return progress, 0.01 * step, track
    return progress, until, track


@pytest.mark.parametrize(
    ("names", "points", "code", "says"),
    [
        ([], [([],)], INVALID_JOINTS, "names no joints"),
        (["elbow_joint"], [([0.1],)], INVALID_JOINTS, "unknown joint elbow_joint; there is lift_joint"),
        (["lift_joint", "lift_joint"], [([0.1, 0.2],)], INVALID_JOINTS, "lift_joint is named twice"),
        (["lift_joint"], [], INVALID_GOAL, "no points"),
        (["lift_joint"], [([0.1, 0.2],)], INVALID_GOAL, "2 positions for 1 joints"),
        (["lift_joint"], [([0.1], [1.0, 2.0])], INVALID_GOAL, "2 velocities for 1 joints"),
        (["lift_joint"], [([1.3],)], INVALID_GOAL, "lift_joint at 1.3 is outside its limits 0 .. 1.2"),
        (["arm_joint"], [([0.1],), ([-0.1],)], INVALID_GOAL, "point 1: arm_joint at -0.1"),
        (["lift_joint"], [([float("nan")],)], INVALID_GOAL, "outside its limits"),
        (["lift_joint"], [([0.1], [float("inf")])], INVALID_GOAL, "velocity of lift_joint is inf"),
        (["lift_joint"], [([0.1], (), 2.0), ([0.2], (), 1.0)], INVALID_GOAL, "time_from_start is before"),
    ],
)
def test_goals_that_cannot_be_followed_are_refused(joints, names, points, code, says):
    with pytest.raises(GoalRefused, match=says) as refused:
        read_waypoints(trajectory(names, *points), joints.ranges)
    assert refused.value.code == code


def test_joints_move_at_their_own_limits_unless_told_otherwise(joints):
    progress, seconds, _ = follow(joints, ([1.0, 0.52],))
    assert progress is Arrival.ARRIVED
    assert seconds == pytest.approx(1.0 / joints.ranges["lift_joint"].velocity, abs=0.011)
    progress, seconds, _ = follow(joints, ([0.0, 0.52], [0.1, 0.1]))
    assert seconds == pytest.approx(10.0, abs=0.011)


def test_a_velocity_beyond_the_limit_is_not_reached(joints):
    _, seconds, _ = follow(joints, ([1.0, 0.0], [50.0, 50.0]))
    assert seconds == pytest.approx(1.0 / joints.ranges["lift_joint"].velocity, abs=0.011)


def test_with_time_to_spare_joints_arrive_together(joints):
    progress, seconds, track = follow(joints, ([1.0, 0.4], (), 8.0))
    assert progress is Arrival.ARRIVED
    assert seconds == pytest.approx(8.0, abs=0.011)
    half = track[399]
    assert half["lift_joint"] == pytest.approx(0.5, abs=0.01)
    assert half["arm_joint"] == pytest.approx(0.2, abs=0.01)


def test_waypoints_are_visited_one_after_the_other(joints):
    progress, _, track = follow(joints, ([0.6, 0.0],), ([0.1, 0.3],))
    assert progress is Arrival.ARRIVED
    assert max(positions["lift_joint"] for positions in track) == pytest.approx(0.6)
    assert track[-1]["lift_joint"] == pytest.approx(0.1)
    assert track[-1]["arm_joint"] == pytest.approx(0.3)


def test_a_joint_that_does_not_arrive_is_late(joints):
    joints.stick(["arm_joint"])
    progress, _, track = follow(joints, ([0.5, 0.3],))
    assert progress is Arrival.LATE
    assert track[-1]["lift_joint"] == pytest.approx(0.5)
    assert track[-1]["arm_joint"] == 0.0


def test_faults_are_read_from_their_texts():
    faults = Faults.from_texts(["silent_left", "drop_half_right", "stamp_offset:0.2", "push:20", "stuck:arm_joint"])
    assert not faults.publishes("left", 3)
    assert [faults.publishes("right", tick) for tick in range(4)] == [True, False, True, False]
    assert (faults.clock_offset("left"), faults.clock_offset("right")) == (0.0, 0.2)
    assert faults.push == 20
    assert faults.stuck == {"arm_joint"}
    assert Faults().publishes("left", 1)


@pytest.mark.parametrize(("text", "says"), [("silent", "not known"), ("push:soon", "a number"), ("stuck", "not known")])
def test_a_fault_that_is_not_known_is_refused(text, says):
    with pytest.raises(InputError, match=says):
        Faults.from_texts([text])
