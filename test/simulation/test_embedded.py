"""What is simulated, from a scenario's `simulation:` mapping; what the embedded lidars see, and the truth."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_yaml
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy, inverse
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.sensor.sensor import DEFAULT_SENSOR
from stretch_sim_cal.sensor.unit import UnitSpread
from stretch_sim_cal.simulation.driving import OdometrySpread
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.setup import BaseError, Faults, PayloadBox, PoseError, SimulationSetup

OFF = PoseError((0.0, 0.001, 0.003), (0.0, 0.005, 0.0))


def test_degrees_become_radians_and_absent_keys_defaults():
    setup = SimulationSetup.from_mapping({
        "world": "tables", "lidar_left_error": {"xyz": [0.001, 0, 0], "rpy_deg": [90, 0, 0]},
        "base_error": {"height": 0.003, "roll_deg": 18},
        "payload": [{"link": "base_link", "size": [0.1, 0.2, 0.3], "rpy_deg": [0, 0, 45]}],
    })  # fmt: skip
    assert setup == SimulationSetup(
        "tables", lidar_errors={"left": PoseError((0.001, 0, 0), (np.pi / 2, 0, 0))},
        base_error=BaseError(0.003, np.pi / 10),
        payload=(PayloadBox("base_link", (0.1, 0.2, 0.3), (0, 0, 0), (0, 0, np.pi / 4)),),
    )  # fmt: skip
    assert setup.sensor == DEFAULT_SENSOR and setup.real_time_factor == 0
    assert SimulationSetup.from_mapping({}) == SimulationSetup.from_mapping(None) == SimulationSetup()


def test_a_setup_survives_being_written_down():
    setup = SimulationSetup(
        world="tables", seed=9, lidar_errors={"right": PoseError((0.1, 0.2, 0.3), (0.01, 0.02, 0.03))},
        payload=(PayloadBox("head_link", (0.1, 0.1, 0.1)),), joint_errors={"lift_joint": OFF},
        odometry=OdometrySpread(scale=0.02, slip=0.008), floor=(0.002, 2.0), unit_seed=4, units={"left": "unit.yaml"},
        driver={"distance_correction": False}, lidar_geometry="visual",
    )  # fmt: skip
    again = SimulationSetup.from_mapping(setup.to_mapping())
    for once, twice in (
        (setup.lidar_errors["right"], again.lidar_errors["right"]),
        (OFF, again.joint_errors["lift_joint"]),
    ):
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
        ({"world": ["tables"]}, "world"),
        ({"seed": True}, "seed"),
        ({"lidar_left_error": {"xyz": [1, 2, "x"]}}, "lidar_left_error: xyz[2]"),
        ({"lidar_right_error": {"rpy": [0, 0, 0]}}, "'rpy'"),
        ({"lidar_errors": {"mast": {}}}, "lidar_errors: unknown key 'mast'"),
        ({"lidar_errors": {"left": {}}, "lidar_left_error": {}}, "lidar_left_error: is given twice"),
        ({"base_error": {"roll_deg": 90}}, "base_error: roll_deg"),
        ({"payload": [{"size": [1, 1, 1]}]}, "payload[0]: link"),
        ({"payload": [{"link": "base_link", "size": [1, 0, 1]}]}, "payload[0]: size[1]"),
        ({"real_time_factor": float("inf")}, "real_time_factor"),
        ({"units": {"middle": "unit.yaml"}}, "units: unknown key 'middle'"),
        ({"driver": {"distance_correction": 1}}, "driver: distance_correction"),
        ({"odometry": {"scale": 2}}, "odometry"),
        ({"floor": {"rms_mm": 0}}, "floor"),
        ({"lidar_geometry": ""}, "lidar_geometry"),
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
    lacking = [(text, "a number") for text in ("push:soon", "push:inf", "push:2.5", "crash:", "stamp_offset:nan")]
    unknown = [(text, "unknown") for text in ("silent", "silent_left:5", "stuck", "not_homed:no")]
    for text, says in lacking + unknown:
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


LEFT_ERROR = PoseError((0.002, -0.001, 0.003), tuple(np.radians([0.4, -0.3, 0.5])))
RIGHT_ERROR = PoseError((-0.003, 0.002, 0.001), tuple(np.radians([-0.5, 0.6, -0.2])))
BASE_ERROR = BaseError(0.003, *np.radians([0.4, -0.3]))
SETUP = SimulationSetup(
    sensor="jt128_sparse", lidar_errors={"left": LEFT_ERROR, "right": RIGHT_ERROR}, base_error=BASE_ERROR
)


@pytest.fixture(scope="module")
def shared():
    """Return a simulator that tests do not change."""
    return EmbeddedSimulator(SETUP)


def test_the_truth_is_what_the_setup_asked_for_and_the_description_has_none_of_it(shared):
    truth = json.loads(json.dumps(shared.ground_truth()))
    described = parse_urdf(shared.nominal_description)
    true = {}
    for lidar, asked in (("left", LEFT_ERROR), ("right", RIGHT_ERROR)):
        nominal = np.array(truth[f"nominal_base_link_from_lidar_{lidar}"])
        true[lidar] = np.array(truth[f"base_link_from_lidar_{lidar}"])
        np.testing.assert_allclose(inverse(nominal) @ true[lidar], asked.matrix, atol=1e-12)
        for model in (described, parse_urdf(shared.true_description)):  # the latter has true lidars beside these
            believed = link_transform(model, {}, f"lidar_{lidar}_link", "base_link")
            np.testing.assert_allclose(nominal, believed, atol=1e-9)
    np.testing.assert_allclose(truth["lidar_left_from_lidar_right"], inverse(true["left"]) @ true["right"], atol=1e-12)
    # base_link stands 0.028 m above the floor and 3 mm more, turned by the base's error.
    base_from_world = inverse(from_xyz_rpy((0, 0, 0.028 + BASE_ERROR.height), (BASE_ERROR.roll, BASE_ERROR.pitch, 0)))
    np.testing.assert_allclose(truth["floor_in_base_link"]["normal"], base_from_world[:3, 2], atol=1e-9)
    assert truth["floor_in_base_link"]["offset"] == pytest.approx(0.031, abs=1e-7)
    assert truth["world"] == "furnished_room" and truth["seed"] == 1
    assert "true" not in shared.nominal_description
    assert shared.nominal_description == SimulationSetup(sensor="jt128_sparse").nominal_description
    corners = np.concatenate([surface.vertices for surface in shared.true_surfaces().values()])
    assert -0.01 < shared.floor_in_base.distance(corners).min() < 0.01


def test_scans_repeat_whatever_was_scanned_and_moved_before():
    first, second, other = EmbeddedSimulator(SETUP), EmbeddedSimulator(SETUP), EmbeddedSimulator(replace(SETUP, seed=2))
    second.joints.place({"arm_joint": 0.4})
    for tick in (5, 0, 3):
        second.scan("right", tick)
    second.joints.place(stretch_profile().stowed)
    for lidar in SIDES:
        assert np.array_equal(first.scan(lidar, 2), second.scan(lidar, 2))
    for scan in (first.scan("left", 3), other.scan("left", 2)):
        assert not np.array_equal(first.scan("left", 2)[:100], scan[:100])


def test_a_lidar_sees_out_of_its_mount_wherever_that_is_and_never_its_own_housing(shared):
    shifted = PoseError.drawn(np.random.default_rng(0), 0.02, np.radians(2.0))
    setup = SimulationSetup(sensor="jt128_sparse", lidar_errors={"left": shifted, "right": shifted})
    for simulator, lidar in itertools.product((shared, EmbeddedSimulator(setup)), SIDES):
        scan, labels, names = simulator.labelled_scan(lidar, 0)
        assert len(scan) > 0.85 * simulator.sensor.num_rays
        assert not [names[label] for label in np.unique(labels) if "lidar" in names[label]]
        assert np.linalg.norm(xyz(scan), axis=1).min() > 0.1


def test_the_truth_holds_the_units_with_which_the_lidars_err_again(shared, tmp_path):
    spread = UnitSpread(range_offset=0.01, channel_elevation=3e-4, optical_centre=(5e-4, 5e-4, 5e-4))
    first = EmbeddedSimulator(SETUP, replace(shared.sensor, spread=spread))
    units = json.loads(json.dumps(first.ground_truth()["units"]))
    assert units["left"]["values"]["range_offset"] != units["right"]["values"]["range_offset"] != 0.0
    for lidar in SIDES:
        write_yaml(tmp_path / f"{lidar}.yaml", units[lidar])
    setup = replace(SETUP, units={lidar: tmp_path / f"{lidar}.yaml" for lidar in SIDES}, unit_seed=9)
    twin = EmbeddedSimulator(setup)
    for lidar in SIDES:
        assert np.abs(xyz(first.scan(lidar, 0)) - xyz(twin.scan(lidar, 0))).max() < 1e-6
        erring, ideal = xyz(first.scan(lidar, 0)), xyz(shared.scan(lidar, 0))
        assert len(erring) != len(ideal) or np.abs(erring - ideal).max() > 1e-3


def test_a_setup_s_driver_takes_the_place_of_the_sensor_s(shared):
    sensor = replace(shared.sensor, optical_centre=np.array([0.02, 0.0, 0.0]))
    one, other = (
        xyz(EmbeddedSimulator(replace(SETUP, driver=driver), sensor).scan("left", 0))
        for driver in ({}, {"distance_correction": False})
    )
    assert np.median(np.linalg.norm(one - other, axis=1)) == pytest.approx(0.02, rel=0.02)
