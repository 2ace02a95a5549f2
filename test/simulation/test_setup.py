"""Reading what is simulated from a scenario's `simulation:` mapping, and the errors of joints in it."""

import numpy as np
import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.sensor.sensor import DEFAULT_SENSOR
from stretch_sim_cal.simulation.driving import OdometrySpread
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import BaseError, Faults, PayloadBox, PoseError, SimulationSetup

OFF = PoseError((0.0, 0.001, 0.003), (0.0, 0.005, 0.0))


def test_degrees_become_radians_and_absent_keys_defaults():
    setup = SimulationSetup.from_mapping({
        "world": "tables", "lidar_left_error": {"xyz": [0.001, 0, 0], "rpy_deg": [90, 0, 0]},
        "base_error": {"height": 0.003, "roll_deg": 18},
        "payload": [{"link": "base_link", "size": [0.1, 0.2, 0.3], "rpy_deg": [0, 0, 45]}],
    })  # fmt: skip
    assert setup == SimulationSetup(
        "tables", lidar_left_error=PoseError((0.001, 0, 0), (np.pi / 2, 0, 0)), base_error=BaseError(0.003, np.pi / 10),
        payload=(PayloadBox("base_link", (0.1, 0.2, 0.3), (0, 0, 0), (0, 0, np.pi / 4)),),
    )  # fmt: skip
    assert setup.sensor == DEFAULT_SENSOR and setup.real_time_factor == 0
    assert SimulationSetup.from_mapping({}) == SimulationSetup.from_mapping(None) == SimulationSetup()


def test_a_setup_survives_being_written_down():
    setup = SimulationSetup(
        world="tables", seed=9, lidar_right_error=PoseError((0.1, 0.2, 0.3), (0.01, 0.02, 0.03)),
        payload=(PayloadBox("head_link", (0.1, 0.1, 0.1)),), joint_errors={"lift_joint": OFF},
        odometry=OdometrySpread(scale=0.02, slip=0.008), floor=(0.002, 2.0), unit_seed=4, units={"left": "unit.yaml"},
        driver={"distance_correction": False}, lidar_geometry="visual",
    )  # fmt: skip
    again = SimulationSetup.from_mapping(setup.to_mapping())
    for once, twice in ((setup.lidar_right_error, again.lidar_right_error), (OFF, again.joint_errors["lift_joint"])):
        np.testing.assert_allclose(once.matrix, twice.matrix, atol=1e-15)
    for key in ("world", "seed", "payload", "odometry", "floor", "unit_seed", "units", "driver", "lidar_geometry"):
        assert getattr(again, key) == getattr(setup, key)


def test_a_scenario_s_files_are_searched_beside_it_then_by_name_then_in_the_working_directory(tmp_path, monkeypatch):
    scenario, here = tmp_path / "scenario.yaml", tmp_path / "here"
    in_here = [f"here/{name}" for name in ("lab.sdf", "own.yaml", "unit.yaml", "tables")]
    for file in ("lab.sdf", "mine/room.sdf", "own.yaml", *in_here):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("")
    monkeypatch.chdir(here)

    def world(name: str) -> str:
        return SimulationSetup.from_mapping({"world": name}, source=str(scenario)).world

    for name in ("lab.sdf", "./lab.sdf", "mine/room.sdf", "here/../lab.sdf"):
        assert world(name) == str((tmp_path / name).resolve())
    assert world("tables") == "tables"  # the package's
    assert world("../here/lab.sdf") == str(here / "lab.sdf")  # from the working directory, as nothing is beside it
    assert world("missing.sdf") == "missing.sdf"
    both = {"sensor": "own.yaml, jt128", "units": {"left": "unit.yaml"}}
    setup = SimulationSetup.from_mapping(both, source=str(scenario))
    assert (setup.sensor, setup.units) == (f"{tmp_path / 'own.yaml'},jt128", {"left": str(here / "unit.yaml")})


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
        ({"joint_errors": {"lift_joint": {"xyz": [1]}}}, "joint_errors: lift_joint"),
        ({"odometry": {"scale": 2}}, "odometry"),
        ({"odometry": {"slip": 1}}, "odometry"),
        ({"floor": {"rms_mm": 0}}, "floor"),
        ({"lidar_geometry": ""}, "lidar_geometry"),
        ({"lidar_geometry": []}, "lidar_geometry"),
        ("furnished_room", "mapping"),
    ],
)
def test_a_wrong_setup_is_refused_naming_file_and_key(mapping, named):
    with pytest.raises(InputError) as error:
        SimulationSetup.from_mapping(mapping, source="my.yaml")
    assert str(error.value).startswith("my.yaml: simulation") and named in str(error.value)


def test_a_robot_by_its_name_is_refused_at_once_naming_what_reads_names():
    with pytest.raises(InputError, match=r"robot: is of type str, expected a SpawnedRobot; .*from_mapping"):
        SimulationSetup(robot="two_lidar_amr")
    assert SimulationSetup.from_mapping({"robot": "two_lidar_amr"}).profile.name == "two-lidar AMR"


def test_faults_are_read_from_their_texts():
    faults = Faults.from_texts(["silent_left", "drop_half_right", "stamp_offset:0.2", "push:20", "stuck:arm_joint"])
    assert not faults.publishes("left", 3)
    assert [faults.publishes("right", tick) for tick in range(4)] == [True, False, True, False]
    assert (faults.clock_offset("left"), faults.clock_offset("right")) == (0.0, 0.2)
    assert faults.push == 20 and faults.stuck == {"arm_joint"}
    assert Faults().publishes("left", 1)
    for text, says in (("silent", "unknown"), ("push:soon", "a number"), ("stuck", "unknown")):
        with pytest.raises(InputError, match=says):
            Faults.from_texts([text])


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
