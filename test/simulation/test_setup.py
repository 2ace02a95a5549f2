"""Reading what is simulated from a scenario's `simulation:` mapping."""

import numpy as np
import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.sensor.sensor import DEFAULT_SENSOR
from stretch_sim_cal.simulation.setup import BaseError, PoseError, SimulationSetup
from stretch_sim_cal.simulation.true_robot import PayloadBox


def test_degrees_become_radians_and_absent_keys_defaults():
    setup = SimulationSetup.from_mapping(
        {
            "world": "tables",
            "lidar_left_error": {"xyz": [0.001, 0, 0], "rpy_deg": [90, 0, 0]},
            "base_error": {"height": 0.003, "roll_deg": 18},
            "payload": [{"link": "base_link", "size": [0.1, 0.2, 0.3], "rpy_deg": [0, 0, 45]}],
        }
    )
    assert setup.world == "tables" and setup.sensor == DEFAULT_SENSOR and setup.real_time_factor == 0
    assert setup.lidar_left_error == PoseError((0.001, 0, 0), (np.pi / 2, 0, 0))
    assert setup.lidar_right_error == PoseError()
    assert setup.base_error == BaseError(0.003, np.pi / 10, 0)
    assert setup.payload == (PayloadBox("base_link", (0.1, 0.2, 0.3), (0, 0, 0), (0, 0, np.pi / 4)),)
    assert SimulationSetup.from_mapping({}) == SimulationSetup.from_mapping(None) == SimulationSetup()


def test_a_setup_survives_being_written_down():
    setup = SimulationSetup(
        world="tables",
        seed=9,
        lidar_right_error=PoseError((0.1, 0.2, 0.3), (0.01, 0.02, 0.03)),
        payload=(PayloadBox("head_link", (0.1, 0.1, 0.1)),),
        unit_seed=4,
        units={"left": "unit.yaml"},
        driver={"distance_correction": False},
        lidar_geometry="visual",
    )
    again = SimulationSetup.from_mapping(setup.to_mapping())
    np.testing.assert_allclose(again.lidar_right_error.matrix, setup.lidar_right_error.matrix, atol=1e-15)
    assert (again.world, again.seed, again.payload) == (setup.world, setup.seed, setup.payload)
    assert (again.unit_seed, again.units, again.driver) == (setup.unit_seed, setup.units, setup.driver)


def test_relative_paths_start_at_the_scenario_s_folder(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "room.sdf").write_text("")
    setup = SimulationSetup.from_mapping({"world": "mine/room.sdf"}, source=str(tmp_path / "scenario.yaml"))
    assert setup.world == (tmp_path / "mine" / "room.sdf")


@pytest.mark.parametrize(
    "mapping, named",
    [
        ({"wrold": "tables"}, "wrold"),
        ({"world": ""}, "world"),
        ({"world": ["tables"]}, "world"),
        ({"sensor": 5}, "sensor"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": True}, "seed"),
        ({"lidar_left_error": {"xyz": [1, 2]}}, "lidar_left_error: xyz"),
        ({"lidar_left_error": {"xyz": [1, 2, "x"]}}, "lidar_left_error: xyz[2]"),
        ({"lidar_right_error": {"rpy": [0, 0, 0]}}, "'rpy'"),
        ({"lidar_right_error": [0, 0, 0]}, "lidar_right_error"),
        ({"base_error": {"height": "low"}}, "base_error: height"),
        ({"base_error": {"roll_deg": 90}}, "base_error: roll_deg"),
        ({"payload": {"link": "base_link"}}, "payload"),
        ({"payload": [{"size": [1, 1, 1]}]}, "payload[0]: link"),
        ({"payload": [{"link": "base_link", "size": [1, 0, 1]}]}, "payload[0]: size[1]"),
        ({"real_time_factor": float("inf")}, "real_time_factor"),
        ({"unit_seed": -1}, "unit_seed"),
        ({"units": {"middle": "unit.yaml"}}, "units: unknown key 'middle'"),
        ({"units": {"left": 3}}, "units: left"),
        ({"driver": {"distance_correction": 1}}, "driver: distance_correction"),
        ("furnished_room", "mapping"),
    ],
)
def test_a_wrong_setup_is_refused_naming_file_and_key(mapping, named):
    with pytest.raises(InputError) as error:
        SimulationSetup.from_mapping(mapping, source="my.yaml")
    assert str(error.value).startswith("my.yaml: simulation") and named in str(error.value)
