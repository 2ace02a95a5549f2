"""Robots besides the vendor's with its default tool are normalized, simulated and calibrated."""

import os
from pathlib import Path

import numpy as np
import pytest
import yaml
from described_robots import scrambled
from scipy.stats import chi2

import stretch_sim_cal as cal
from stretch_sim_cal import files
from stretch_sim_cal.calibration.body.model import load_body_shape_model
from stretch_sim_cal.calibration.body.shape import enclosing_shape
from stretch_sim_cal.calibration.mounts.method import calibrate_mounts
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, mount_settings
from stretch_sim_cal.cli import main
from stretch_sim_cal.commands.fit_body_shape import main as fit
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import floor_between
from stretch_sim_cal.geometry.transforms import inverse, log
from stretch_sim_cal.harness.scenario import load_scenario
from stretch_sim_cal.harness.simulated_dataset import BodyDatasetRecorder
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.stretch import DEFAULT_TOOL, available_tools, nominal_description
from stretch_sim_cal.sensor.points import coordinates, return_columns, returns_of
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cache")]

SHARE = files.share_directory()
STRETCH = {
    "robot": "stretch4", "world": "furnished_room", "sensor": "jt128_sparse", "seed": 1,
    "lidar_errors": {
        "left": {"xyz": [0.002, -0.001, 0.003], "rpy_deg": [0.4, -0.3, 0.5]},
        "right": {"xyz": [-0.003, 0.002, 0.001], "rpy_deg": [-0.5, 0.6, -0.2]},
    },
    "base_error": {"height": 0.003, "roll_deg": 0.4, "pitch_deg": -0.3},
}  # fmt: skip


def profile_file(folder: Path, robot: str, change) -> Path:
    """Write the profile of one of our robots as `change` makes it and return the file."""
    profile = yaml.safe_load((SHARE / "config" / "robots" / f"{robot}.yaml").read_text())
    profile["description"] = {"file": str(SHARE / "models" / f"{robot}.urdf.xacro")}
    change(profile)
    (folder / "robot.yaml").write_text(yaml.safe_dump(profile))
    return folder / "robot.yaml"


def calibrated(simulation: dict, frames: int = 2):
    """Return a simulated robot and its calibration, which is accepted."""
    sim = cal.simulate(frames=frames, mount_errors=None, simulation=simulation)
    result = cal.calibrate(sim.rig, sim.clouds)
    assert result.accepted, result.findings
    return sim, result


def assert_exact(sim, result, translation_mm: float, rotation_deg: float, height_mm: float, tilt_deg: float) -> None:
    errors = result.errors(sim.truth)
    assert errors.mm < translation_mm and errors.deg < rotation_deg
    assert abs(errors.floor.height_mm) < height_mm and errors.floor.tilt_deg < tilt_deg


def within(off: np.ndarray, covariance: np.ndarray) -> bool:
    return off @ np.linalg.solve(covariance, off) < chi2.ppf(0.999, len(off))


def test_one_lidar_gives_the_floor_and_its_extrinsics_within_their_covariances(tmp_path):
    path = profile_file(tmp_path, "two_lidar_manipulator", lambda profile: profile["lidars"].pop("right"))
    given = load_scenario("two_lidar_manipulator").simulation.to_mapping()
    del given["lidar_errors"]["right"]
    sim, result = calibrated(given | {"robot": str(path), "sensor": "os0_32_sparse"}, 4)
    simulator, profile = sim.simulator, sim.simulator.profile
    assert list(sim.clouds) == list(simulator.sensors) == list(result.sensor_errors) == ["left"]
    assert (result.alignment.method, result.alignment.overlap) == ("one_lidar", 1.0) and "one lidar" in str(result)
    assert not any("one lidar" in str(finding) or "right" in str(finding) for finding in result.findings)
    off = floor_between(result.floor.plane, sim.truth.floor)
    assert within(off, result.floor.covariance) and abs(off[0]) < 1e-3

    robot = MountedRobot(parse_urdf(simulator.nominal_description), profile)
    settings = mount_settings(sensor=load_sensor("os0_32_sparse"), profile=profile)
    samples = []
    for pan, lift in ((-1.5, -1.2), (0.0, -0.6), (1.5, -1.2)):
        pose = profile.stowed | {"shoulder_pan_joint": pan, "shoulder_lift_joint": lift, "elbow_joint": 1.6}
        simulator.joints.place(pose)
        scans = [returns_of(simulator.scan("left", tick)) for tick in range(3)]
        clouds = {"left": return_columns(np.concatenate(scans))}
        positions = profile.joint_positions(robot.model, pose)
        samples.append(robot.sample(f"pan {pan}", positions, clouds, tuple(profile.offset_joints)))
    mounts = calibrate_mounts(robot.surfaces, samples, robot.nominal, None, settings)
    assert mounts.accepted and list(mounts.directions) == list(mounts.base_from_lidar) == ["left"]
    true = simulator.base_from_lidar("left")
    assert within(log(true @ inverse(mounts.base_from_lidar["left"])), mounts.covariance_of("left"))
    assert max(mounts.total_deviations_of("left")) < 3e-3
    silent = MountedRobot(robot.model, named_robot("two_lidar_manipulator"))  # its right lidar publishes nothing
    with pytest.raises(InputError, match="has no right cloud"):
        calibrate_mounts(silent.surfaces, samples, silent.nominal, None, settings)


@pytest.mark.long
@pytest.mark.parametrize("tool", sorted(set(available_tools()) - {DEFAULT_TOOL}))
def test_the_stretch_is_calibrated_with_each_of_its_other_tools(tool):
    assert_exact(*calibrated(STRETCH | {"tool": tool}), 2.0, 0.05, 1.0, 0.05)


def test_a_crooked_export_is_the_same_robot_to_its_lidars(tmp_path):
    (tmp_path / "export.urdf").write_text(scrambled(nominal_description(), 1))
    original, other = (
        cal.simulate(frames=1, mount_errors=None, simulation=STRETCH | given)
        for given in ({}, {"description": str(tmp_path / "export.urdf")})
    )
    notes = " ".join(other.simulator.setup.robot.notes)
    assert "renamed" in notes and "link_lift -> lift_link" in notes and "reversed direction" in notes
    joints = other.simulator.joints.joint_positions
    assert joints == pytest.approx(original.simulator.joints.joint_positions)
    np.testing.assert_allclose(other.rig.footprint_from_base, original.rig.footprint_from_base, atol=1e-9)
    for name, pose in original.rig.base_from_lidar.items():
        np.testing.assert_allclose(other.rig.base_from_lidar[name], pose, atol=1e-9)
        seen, again = original.clouds[name][0], other.clouds[name][0]
        off = np.linalg.norm(coordinates(seen) - coordinates(again), axis=1)
        assert (off < 1e-5).mean() > 0.999  # but rays at edges


def test_a_normal_form_is_made_once_and_again_for_another_description(tmp_path):
    text = (SHARE / "models" / "two_lidar_manipulator.urdf.xacro").read_text()
    robot = tmp_path / "robot.urdf.xacro"
    robot.write_text(text.replace('name="ur_flange"', 'name="flange_of_ur"').replace('"ur_flange"', '"flange_of_ur"'))
    profile = named_robot("two_lidar_manipulator", robot)
    first = spawned_robot(profile)
    unused = first.file.parent.with_name("unused")
    unused.mkdir()
    for folder in (unused, first.file.parent):
        os.utime(folder, (0.0, 0.0))
    assert spawned_robot(profile).file == first.file and "frames added: ur_flange" in " ".join(first.notes)
    robot.write_text(robot.read_text().replace('value="0.150"', 'value="0.151"'))
    assert spawned_robot(profile).file != first.file
    assert first.file.exists() and not unused.exists()


def test_a_description_whose_normal_form_breaks_rules_is_refused(tmp_path, capsys):
    path = profile_file(tmp_path, "two_lidar_amr", lambda profile: profile.update(convention="stretch"))
    assert main(["run", "empty_hall", "--robot", str(path), "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert "breaks the convention stretch" in told and "there is no arm_l0_link" in told and told.count("\n") == 1


def test_a_body_shape_without_joints_encloses_the_robot(tmp_path):
    robot = "three_lidar_amr"
    recorder = BodyDatasetRecorder(EmbeddedSimulator(load_scenario(robot).simulation))
    recorder.record(tmp_path / "data", [()])
    model = tmp_path / "model.yaml"
    assert fit([str(tmp_path / "data"), "--robot", robot, "--out", str(model)]) == 0
    fitted = load_body_shape_model(model)
    assert fitted.axes == () and fitted.shape_for({}).protrusion(recorder.outline({})) < 0.01
    assert fitted.shape_for({}).area < 1.1 * enclosing_shape(recorder.outline({})).area
    for other in ([], ["--robot", "two_lidar_amr"]):  # the Stretch's joints, the lidars of a robot with two
        assert fit([str(tmp_path / "data"), *other, "--out", str(model)]) == 2
