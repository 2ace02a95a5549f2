"""Robots besides the vendor's with its default tool are normalized, simulated and calibrated, without ROS
and with few sparse frames."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from described_robots import scrambled
from scipy.stats import chi2

from stretch_sim_cal import files
from stretch_sim_cal.calibration.body.model import load_body_shape_model
from stretch_sim_cal.calibration.body.shape import enclosing_shape
from stretch_sim_cal.calibration.methods import alignment_method, floor_method
from stretch_sim_cal.calibration.mounts.method import calibrate_mounts
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, mount_settings
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings
from stretch_sim_cal.cli import main
from stretch_sim_cal.commands.fit_body_shape import main as fit
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import floor_between, floor_error
from stretch_sim_cal.geometry.transforms import error, inverse, log
from stretch_sim_cal.harness.scenario import load_scenario, scenario_from_mapping, with_changes
from stretch_sim_cal.harness.simulated_dataset import BodyDatasetRecorder
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.stretch import DEFAULT_TOOL, available_tools, nominal_description
from stretch_sim_cal.sensor.points import return_columns
from stretch_sim_cal.sensor.sensor import sensor_called
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.gazebo.description import gazebo_description

ERRORS = {
    "lidar_left_error": {"xyz": [0.002, -0.001, 0.003], "rpy_deg": [0.4, -0.3, 0.5]},
    "lidar_right_error": {"xyz": [-0.003, 0.002, 0.001], "rpy_deg": [-0.5, 0.6, -0.2]},
    "base_error": {"height": 0.003, "roll_deg": 0.4, "pitch_deg": -0.3},
}
FRAMES = 2


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def calibrated(simulator: EmbeddedSimulator, sensor: str, frames: int = FRAMES, rings: bool = False):
    """Return alignment and floor as the nodes find them, from `frames` pairs of scans, with their rings or not."""
    pairs = list(simulator.point_pairs(frames))
    if rings:
        pairs = [tuple(simulator.scan(side, tick) for side in ("left", "right")) for tick in range(frames)]
    profile, model = simulator.profile, parse_urdf(simulator.nominal_description)
    left, right = (simulator.base_from_lidar(side, nominal=True) for side in ("left", "right"))
    kind = sensor_called(sensor)
    alignment = alignment_method("planes")(inverse(left) @ right, AlignmentSettings(base_from_left=left, sensor=kind))
    for pair in pairs:
        alignment.add(*pair)
    aligned = alignment.solve()
    assert aligned.accepted, aligned.refusals
    footprint = link_transform(model, {}, profile.base_frame, profile.footprint_frame)
    floor = floor_method("support")(
        left, aligned.right_to_left, footprint, FloorSettings(sensor=kind, observations=aligned.known)
    )
    for pair in pairs:
        floor.add(*pair)
    found = floor.solve()
    assert found.accepted, found.refusals
    return aligned, found


def errors(simulator: EmbeddedSimulator, aligned, floor) -> dict[str, float]:
    left, right = (simulator.base_from_lidar(side) for side in ("left", "right"))
    translation, rotation = error(inverse(left) @ right, aligned.right_to_left)
    true = simulator.floor_in_base.moved(simulator.base_from_lidar("left", nominal=True) @ inverse(left))
    height, tilt = floor_error(true.facing(np.array([0.0, 0.0, 1.0])), floor.plane.facing(np.array([0.0, 0.0, 1.0])))
    return {
        "translation_mm": 1e3 * translation, "rotation_deg": np.degrees(rotation),
        "height_mm": 1e3 * height, "tilt_deg": np.degrees(tilt),
    }  # fmt: skip


def check(found: dict[str, float], tolerances: dict[str, dict[str, float]]) -> None:
    bounds = tolerances["alignment"] | tolerances["floor"]
    assert all(abs(found[key]) < bounds[key] for key in found), (found, bounds)


def test_another_robots_scenario_is_calibrated_within_its_tolerances():
    scenario = load_scenario("two_lidar_amr")
    simulator = EmbeddedSimulator(scenario.simulation)
    check(errors(simulator, *calibrated(simulator, scenario.simulation.sensor, 4)), scenario.tolerances)


def test_lidars_of_different_kinds_are_calibrated_each_by_its_own_table(tmp_path):
    profile = yaml.safe_load((files.share_directory() / "config" / "robots" / "two_lidar_manipulator.yaml").read_text())
    profile["description"] = {"file": str(files.share_directory() / "models" / "two_lidar_manipulator.urdf.xacro")}
    profile["sensor"], profile["lidars"]["right"]["sensor"] = "xt32_sparse", "os0_32_sparse"
    (tmp_path / "mixed.yaml").write_text(yaml.safe_dump(profile))
    scenario = with_changes(load_scenario("two_lidar_manipulator"), None, None, None, str(tmp_path / "mixed.yaml"))
    assert scenario.simulation.sensor == "xt32_sparse,os0_32_sparse"
    simulator = EmbeddedSimulator(scenario.simulation)
    check(errors(simulator, *calibrated(simulator, scenario.simulation.sensor, 4, rings=True)), scenario.tolerances)
    with pytest.raises(InputError, match="channels are .* from the elevations of sensor"):  # the other way round
        calibrated(simulator, "os0_32_sparse,xt32_sparse", 1, rings=True)


@pytest.fixture(scope="module")
def one_lidar(tmp_path_factory):
    """The simulator of the manipulator with its left lidar alone."""
    profile = yaml.safe_load((files.share_directory() / "config" / "robots" / "two_lidar_manipulator.yaml").read_text())
    profile["description"] = {"file": str(files.share_directory() / "models" / "two_lidar_manipulator.urdf.xacro")}
    del profile["lidars"]["right"]
    path = tmp_path_factory.mktemp("one") / "one.yaml"
    path.write_text(yaml.safe_dump(profile))
    scenario = with_changes(load_scenario("two_lidar_manipulator"), None, None, "os0_32_sparse", str(path))
    return EmbeddedSimulator(scenario.simulation)


def returns(simulator: EmbeddedSimulator, count: int) -> np.ndarray:
    """Return the left lidar's returns (N, 5) of so many scans."""
    return return_columns(np.concatenate([left for left, _ in simulator.recorded_pairs(count)]))


def within(off: np.ndarray, covariance: np.ndarray) -> bool:
    return off @ np.linalg.solve(covariance, off) < chi2.ppf(0.999, len(off))


def test_one_lidar_gives_the_floor_and_its_own_place_as_exactly_as_is_said(one_lidar):
    simulator = one_lidar
    profile, model = simulator.profile, parse_urdf(simulator.nominal_description)
    nominal, true = simulator.base_from_lidar("left", nominal=True), simulator.base_from_lidar("left")
    assert len(simulator.scan("right", 0)) == 0 and simulator.ground_truth()[
        "lidar_left_from_lidar_right"
    ] == pytest.approx(np.eye(4))
    kind = sensor_called("os0_32_sparse")
    footprint = link_transform(model, {}, profile.base_frame, profile.footprint_frame)
    method = floor_method("support")(nominal, np.eye(4), footprint, FloorSettings(sensor=kind))
    for tick in range(4):
        scan = simulator.scan("left", tick)
        method.add(scan, scan[:0])
    floor = method.solve()
    assert floor.accepted and not any("one lidar" in str(said) or "right" in str(said) for said in floor.warnings)
    up, seen = np.array([0.0, 0.0, 1.0]), simulator.floor_in_base.moved(nominal @ inverse(true))
    there, found = seen.facing(up), floor.plane.facing(up)
    off = floor_between(found, there)
    assert within(off, floor.covariance) and abs(off[0]) < 1e-3

    robot, settings = MountedRobot(model, profile), mount_settings(sensor=kind, profile=profile)
    samples = []
    for pan, lift in ((-1.5, -1.2), (0.0, -0.6), (1.5, -1.2)):
        pose = profile.stowed | {"shoulder_pan_joint": pan, "shoulder_lift_joint": lift, "elbow_joint": 1.6}
        simulator.joints.place(pose)
        clouds, offsets = returns(simulator, 3), tuple(profile.offset_joints)
        samples.append(robot.sample(f"pan {pan}", profile.joint_positions(model, pose), {"left": clouds}, offsets))
    mounts = calibrate_mounts(robot.surfaces, samples, robot.nominal, None, settings)
    assert mounts.accepted and list(mounts.directions) == ["left"]
    assert within(log(true @ inverse(mounts.base_from_lidar["left"])), mounts.covariance_of("left"))
    assert max(mounts.spread_of("left")) < 3e-3
    assert list(mounts.base_from_lidar) == ["left"]
    silent = MountedRobot(model, named_robot("two_lidar_manipulator"))  # a right lidar that is there and says nothing
    with pytest.raises(InputError, match="holds no right cloud"):
        calibrate_mounts(silent.surfaces, samples, silent.nominal, None, settings)


def stretch_scenario(**robot) -> dict:
    return {
        "simulation": ERRORS
        | {"world": "furnished_room", "sensor": "jt128_sparse", "seed": 1, "robot": "stretch4"}
        | robot,
        "stages": {"alignment": {}, "floor": {}},
        "tolerances": {
            "alignment": {"translation_mm": 2.0, "rotation_deg": 0.05},
            "floor": {"height_mm": 1.0, "tilt_deg": 0.05},
        },
    }


def stretch(path: str, **robot):
    """Return the scenario of a Stretch, and alignment and floor found in it."""
    scenario = scenario_from_mapping(stretch_scenario(**robot), Path(path))
    simulator = EmbeddedSimulator(scenario.simulation)
    return scenario, simulator, calibrated(simulator, "jt128_sparse")


@pytest.mark.parametrize(
    "tool",
    [
        pytest.param(tool, marks=[pytest.mark.long] * (not tool.endswith("_tablet")))
        for tool in available_tools() if tool != DEFAULT_TOOL
    ],
)  # fmt: skip
def test_the_stretch_is_calibrated_with_each_of_its_other_tools(tool):
    scenario, simulator, found = stretch("tool.yaml", tool=tool)
    assert scenario.simulation.robot.notes == ("convention: stretch is kept; nothing had to be changed",)
    check(errors(simulator, *found), scenario.tolerances)


def test_a_crooked_export_gives_the_calibration_of_the_original(tmp_path):
    crooked, _, _ = scrambled(nominal_description(), 1)
    (tmp_path / "export.urdf").write_text(crooked)
    scenario, simulator, original = stretch("original.yaml")
    check(errors(simulator, *original), scenario.tolerances)
    other, crooked_simulator, again = stretch(str(tmp_path / "crooked.yaml"), description="./export.urdf")
    notes = " ".join(other.simulation.robot.notes)
    assert "renamed" in notes and "link_lift -> lift_link" in notes and "count the other way round" in notes
    assert error(original[0].right_to_left, again[0].right_to_left) < (1e-5, 1e-5)
    height, tilt = floor_error(original[1].plane, again[1].plane)
    assert abs(height) < 1e-5 and abs(tilt) < 1e-5
    joints = crooked_simulator.joints.joint_positions
    assert joints == pytest.approx(simulator.joints.joint_positions)


def test_a_normal_form_is_made_once_and_again_for_another_description(tmp_path):
    text = (files.share_directory() / "models" / "two_lidar_manipulator.urdf.xacro").read_text()
    robot = tmp_path / "robot.urdf.xacro"
    robot.write_text(text.replace('name="ur_flange"', 'name="flange_of_ur"').replace('"ur_flange"', '"flange_of_ur"'))
    profile = named_robot("two_lidar_manipulator", robot)
    first, second = spawned_robot(profile), spawned_robot(profile)
    assert first.file == second.file and "frames added: ur_flange" in " ".join(first.notes)
    robot.write_text(robot.read_text().replace('value="0.150"', 'value="0.151"'))
    assert spawned_robot(profile).file != first.file


def test_a_description_whose_normal_form_breaks_rules_is_refused(tmp_path, capsys):
    profile = yaml.safe_load((files.share_directory() / "config" / "robots" / "two_lidar_amr.yaml").read_text())
    profile["description"] = {"file": str(files.share_directory() / "models" / "two_lidar_amr.urdf.xacro")}
    (tmp_path / "amr.yaml").write_text(yaml.safe_dump(profile | {"convention": "stretch"}))
    assert main(["run", "empty_hall", "--robot", str(tmp_path / "amr.yaml"), "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert "breaks the convention stretch" in told and "there is no arm_l0_link" in told and told.count("\n") == 1


@pytest.mark.parametrize("robot", ["two_lidar_amr", "three_lidar_amr"])
def test_a_body_shape_without_joints_encloses_the_robot(tmp_path, robot):
    scenario = load_scenario(robot)
    recorder = BodyDatasetRecorder(EmbeddedSimulator(scenario.simulation))
    recorder.record(tmp_path / "data", [()])
    model = tmp_path / "model.yaml"
    assert fit([str(tmp_path / "data"), "--robot", robot, "--out", str(model)]) == 0
    fitted = load_body_shape_model(model)
    assert fitted.axes == () and fitted.shape_for({}).protrusion(recorder.outline({})) < 0.01
    assert fitted.shape_for({}).area < 1.1 * enclosing_shape(recorder.outline({})).area
    assert fit([str(tmp_path / "data"), "--out", str(model)]) == 2  # not the Stretch's joints
    if robot == "three_lidar_amr":  # nor the lidars of a robot with two
        assert fit([str(tmp_path / "data"), "--robot", "two_lidar_amr", "--out", str(model)]) == 2


def test_another_robots_description_for_gazebo_has_its_sensors_and_none_of_its_lidars_shapes(tmp_path):
    setup = load_scenario("two_lidar_manipulator").simulation
    simulator = EmbeddedSimulator(setup)
    text = gazebo_description(setup, simulator.sensors, simulator.geometry, "cpu", tmp_path)
    root = ElementTree.fromstring(text)
    assert {each.findtext("frame_id") for each in root.iter("sensor")} == {"front_laser_link", "rear_laser_link"}
    driven = {each.findtext("joint_name") for each in root.iter("plugin")} - {None}
    assert driven == {joint.command for joint in setup.profile.joints}
    model = parse_urdf(text)
    assert not model.links["front_laser_link"].collisions and model.links["front_post_link"].collisions
    assert {"floor_link", "lidar_left_true_link"} <= set(model.links)
