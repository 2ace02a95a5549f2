"""The simulator's options, and the pace of its time."""

from types import SimpleNamespace

import pytest

from stretch_sim_cal.cli import main
from stretch_sim_cal.ros.node_commands import SIMULATOR
from stretch_sim_cal.ros.simulator_node import FactorMeter, Pace, simulation_setup


@pytest.fixture
def wall():
    """A clock that stands still unless it is set."""
    return SimpleNamespace(time=100.0)


@pytest.fixture
def pace(wall):
    return Pace(lambda: wall.time)


def test_simulated_time_waits_for_the_wall(pace, wall):
    assert pace.wait(0.0, 2.0) == 0.0
    assert pace.wait(1.0, 2.0) == pytest.approx(0.5)
    wall.time += 0.5
    assert pace.wait(1.0, 2.0) == 0.0
    assert pace.wait(2.0, 10.0) == pytest.approx(0.1)  # a change of factor counts from then on


def test_lost_time_is_not_caught_up_in_a_burst(pace, wall):
    pace.wait(0.0, 1.0)
    wall.time += 30.0
    assert pace.wait(0.1, 1.0) == 0.0
    assert pace.wait(0.2, 1.0) == pytest.approx(0.1)


def test_the_factor_is_measured_over_all_and_since_the_last_look(wall):
    meter = FactorMeter(now=lambda: wall.time)
    wall.time += 10.0
    assert meter.since_last_look(20.0) == pytest.approx(2.0)
    wall.time += 10.0
    assert meter.since_last_look(30.0) == pytest.approx(1.0)
    assert meter.overall(30.0) == pytest.approx(1.5)


def setup_of(*arguments):
    parsed = vars(SIMULATOR.parser().parse_args(arguments))
    values = {
        option.name: option.default if parsed[option.name] is None else option.value(parsed[option.name])
        for option in SIMULATOR.options
    }
    return simulation_setup(SimpleNamespace(**values))


def test_options_replace_what_the_scenario_says(tmp_path):
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("simulation: {world: tables, seed: 4, base_error: {height: 0.01}}")
    setup = setup_of("--scenario", str(scenario), "--seed", "9", "--lidar-left-error", "0.01,0,0,1,2,3")
    assert (setup.world, setup.seed, setup.base_error.height) == ("tables", 9, 0.01)
    assert setup.lidar_left_error.xyz == (0.01, 0.0, 0.0)


def test_units_and_driver_of_the_command_line_take_the_place_of_the_scenario_s_one_by_one(tmp_path):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "simulation: {sensor: jt128, units: {left: left.yaml, right: right.yaml}, driver: "
        "{firing_time_correction: true}}"
    )
    setup = setup_of(
        *("--scenario", str(scenario), "--left-unit", "mine.yaml", "--unit-seed", "3", "--distance-correction", "true")
    )
    assert setup.units == {"left": "mine.yaml", "right": "right.yaml"} and setup.unit_seed == 3
    assert setup.driver == {"firing_time_correction": True, "distance_correction": True}


@pytest.mark.parametrize("joined", [True, False])
def test_numbers_that_begin_with_a_minus_sign_need_no_equals_sign(joined, monkeypatch):
    asked = []
    monkeypatch.setattr("stretch_sim_cal.commands.run.run_node", lambda node, act, given: asked.append(given) or 0)
    error = "-0.003,.002,-1e-3,0,-0.5,1"
    given = [f"--lidar-right-error={error}"] if joined else ["--lidar-right-error", error]
    assert main(["sim", *given, "--seed", "3"]) == 0
    for arguments in (asked[0], [*given, "--seed", "3"]):
        parsed, _ = SIMULATOR.parse(arguments)
        assert parsed.lidar_right_error == error and parsed.seed == "3"
