"""The simulator's parts that need no ROS: goals, following them, faults, and the pace of time."""

from types import SimpleNamespace

import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.ros.node_commands import SIMULATOR
from stretch_sim_cal.ros.simulator_node import FactorMeter, Pace, simulation_setup
from stretch_sim_cal.simulation.faults import Faults
from stretch_sim_cal.simulation.joints import Joints
from stretch_sim_cal.simulation.trajectory import (
    INVALID_GOAL,
    INVALID_JOINTS,
    Arrival,
    Following,
    GoalRefused,
    read_waypoints,
)


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


class Wall:
    def __init__(self):
        self.time = 100.0

    def __call__(self):
        return self.time


def test_simulated_time_waits_for_the_wall():
    wall = Wall()
    pace = Pace(wall)
    assert pace.wait(0.0, 2.0) == 0.0
    assert pace.wait(1.0, 2.0) == pytest.approx(0.5)
    wall.time += 0.5
    assert pace.wait(1.0, 2.0) == 0.0


def test_a_change_of_factor_counts_from_then_on():
    wall = Wall()
    pace = Pace(wall)
    pace.wait(0.0, 1.0)
    wall.time += 1.0
    pace.wait(1.0, 1.0)
    assert pace.wait(2.0, 10.0) == pytest.approx(0.1)


def test_lost_time_is_not_caught_up_in_a_burst():
    wall = Wall()
    pace = Pace(wall)
    pace.wait(0.0, 1.0)
    wall.time += 30.0
    assert pace.wait(0.1, 1.0) == 0.0
    assert pace.wait(0.2, 1.0) == pytest.approx(0.1)


def test_the_factor_is_measured_over_all_and_since_the_last_look():
    wall = Wall()
    meter = FactorMeter(now=wall)
    wall.time += 10.0
    assert meter.since_last_look(20.0) == pytest.approx(2.0)
    wall.time += 10.0
    assert meter.since_last_look(30.0) == pytest.approx(1.0)
    assert meter.overall(30.0) == pytest.approx(1.5)


def setup_of(*arguments):
    parsed = SIMULATOR.parser().parse_args(arguments)
    given = {option.name: getattr(parsed, option.name) for option in SIMULATOR.options}
    values = {
        option.name: option.default if given[option.name] is None else option.value(given[option.name])
        for option in SIMULATOR.options
    }
    return simulation_setup(SimpleNamespace(**values))


def test_options_replace_what_the_scenario_says(tmp_path):
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("simulation: {world: tables, seed: 4, base_error: {height: 0.01}}")
    setup = setup_of("--scenario", str(scenario), "--seed", "9", "--lidar-left-error", "0.01,0,0,1,2,3")
    assert (setup.world, setup.seed, setup.base_error.height) == ("tables", 9, 0.01)
    assert setup.lidar_left_error.xyz == (0.01, 0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--lidar-left-error", "1,2,3"], "--lidar-left-error '1,2,3': 6 numbers"),
        (["--base-error", "a,b,c"], "3 numbers"),
        (["--scenario", "nowhere"], "'nowhere' is not known in scenarios/"),
    ],
)
def test_options_that_cannot_be_used_are_named(arguments, says):
    with pytest.raises(InputError, match=says):
        setup_of(*arguments)


def test_units_and_driver_of_the_command_line_take_the_place_of_the_scenario_s_one_by_one(tmp_path):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "simulation: {sensor: jt128, units: {left: left.yaml, right: right.yaml}, driver: {firing_time_correction: true}}"
    )
    setup = setup_of(
        *("--scenario", str(scenario), "--left-unit", "mine.yaml", "--unit-seed", "3", "--distance-correction", "true")
    )
    assert setup.units == {"left": "mine.yaml", "right": "right.yaml"} and setup.unit_seed == 3
    assert setup.driver == {"firing_time_correction": True, "distance_correction": True}
    with pytest.raises(InputError, match="distance_correction: 'yes' is not one of true, false"):
        setup_of("--distance-correction", "yes")
