"""The Python API: clouds in, a calibration out, with causes and remedies if it is refused."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded_robot import write_cloud, write_description

import stretch_sim_cal as cal
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.observations import load_beside, path_beside
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import error
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.embedded import xyz

EXAMPLES = Path(__file__).parent.parent / "examples"
SENSOR = "jt128_sparse_real"
FEW_RAYS = str(Path(__file__).parent / "ros" / "few_rays.yaml")
PAIRS = 5


@pytest.fixture(scope="module")
def scene():
    errors = {"height": 0.003, "roll_deg": 0.4, "pitch_deg": -0.3}
    return cal.simulate(sensor=SENSOR, seed=3, frames=PAIRS, simulation={"base_error": errors})


@pytest.fixture(scope="module")
def result(scene):
    return cal.calibrate(scene.rig, scene.clouds)


@pytest.fixture(scope="module")
def sparse():
    """Clouds of a sensor whose ranges need no correction, and what they come to."""
    sim = cal.simulate(sensor=FEW_RAYS, seed=7, frames=4)
    return sim, cal.calibrate(sim.rig, sim.clouds)


@pytest.fixture(scope="module")
def refused():
    corridor = cal.simulate("stretch4", "long_corridor", FEW_RAYS, seed=3, frames=3)
    points = [[xyz(cloud) for cloud in clouds] for clouds in corridor.clouds.values()]
    points[0] = np.stack([cloud[: min(map(len, points[0]))] for cloud in points[0]])
    return cal.calibrate(replace(corridor.rig, sensor=None), *points)


def test_importing_the_package_imports_no_numpy():
    code = "import sys, stretch_sim_cal; assert stretch_sim_cal.__version__ and 'numpy' not in sys.modules; "
    code += "assert 'calibrate' in dir(stretch_sim_cal); stretch_sim_cal.Rig; assert 'rclpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute calibrat$"):
        _ = cal.calibrat


def test_the_user_sets_how_exact_is_enough(sparse):
    scene, result = sparse
    deviations = np.sqrt(np.diag(result.covariance))
    nearly = 0.5 * float(deviations[:3].max()), 2.0 * float(deviations[3:].max())
    strict = cal.calibrate(replace(scene.rig, accept=nearly), scene.clouds["left"], scene.clouds["right"], floor=False)
    assert not strict.accepted and {found.code for found in strict.findings if found.severity == "error"} <= {
        "unobserved", "little_support"
    }  # fmt: skip
    unobserved = [found.sentence for found in strict.findings if found.code == "unobserved"]
    assert unobserved and not any("turning" in sentence for sentence in unobserved)  # which has a bound of its own
    np.testing.assert_allclose(strict.left_from_right, result.left_from_right)


def test_a_mount_that_is_not_as_described_moves_all_and_no_floor_against_another(sparse):
    """The other lidar began as described, and its floor was 0.4 deg off."""
    scene, result = sparse
    mounts = {"right": (scene.truth.base_from_lidar["right"], 1e-6 * np.eye(6))}
    found = cal.calibrate(scene.rig, scene.clouds, mounts=mounts)
    assert found.accepted and np.linalg.norm(found.left_from_right - result.left_from_right) < 1e-5


def test_clouds_give_alignment_floor_and_intrinsics_within_their_covariances(scene, result):
    assert result.accepted, result.findings
    errors, deviations = result.errors(scene.truth), np.sqrt(np.diag(result.covariance))
    assert errors.pairs["left", "right"].nees < 3.7 and errors.floor.nees < 5.4  # one in a thousand is larger
    assert np.linalg.norm(deviations[:3]) < 0.0025 and np.linalg.norm(deviations[3:]) < np.radians(0.025)
    assert np.sqrt(result.floor.covariance[0, 0]) < 0.005
    for side in ("left", "right"):
        unit = scene.simulator.lidar(side).unit.values
        offset = result.sensor_errors[side]["range_offset"]
        assert abs(offset.value - unit[0]) < 4.0 * offset.standard_deviation < 0.04
        assert result.sensor_errors[side]["optical_centre_share"].value == 1.0
    # This sensor's driver corrects nothing, which is to be known before its clouds are used.
    (uncorrected,) = [found.sentence for found in result.findings if found.code == "driver_uncorrected"]
    assert uncorrected.startswith("the drivers of both lidars do not correct the optical centre and the firing times")


def test_what_is_saved_is_read_by_every_other_command(scene, result, tmp_path):
    path = tmp_path / "of_this_robot" / "calibration.yaml"
    result.save(path, robot_id="se4-0000")
    file = CalibrationFile.load(path)
    assert np.allclose(file.right_to_left, result.left_from_right, atol=1e-12)
    assert np.allclose(file.footprint_from_base, result.floor.footprint_from_base, atol=1e-12)
    assert file.entries["right_to_left_transform"].robot_id == "se4-0000"
    observations = load_beside(file)
    assert observations is not None and path_beside(path).stat().st_size < 10e6
    for robot, named in (("two_lidar_amr", "two_lidar_amr"), (None, "two_lidar_amr"), ("stretch4", None)):
        replace(result, rig=replace(result.rig, robot=robot)).save(path)
        assert CalibrationFile.load(path).robot_profile == named


def test_a_refusal_has_its_cause_and_remedy_and_is_not_saved(refused, tmp_path):
    assert not refused.accepted and refused.floor is None
    finding = refused.findings[0]
    assert (finding.severity, finding.code) == ("error", "unobserved")
    assert "sliding along base x" in finding.sentence and "where more surfaces face that way" in finding.remedy
    with pytest.raises(Refused, match="not written: the scene does not determine sliding along base x"):
        refused.save(tmp_path / "calibration.yaml")
    assert not list(tmp_path.iterdir())


def test_a_notebook_shows_numbers_findings_and_escapes_them(result, refused):
    page = result._repr_html_()
    assert "accepted" in page and "height of base_link above the floor" in page and "&plusmn;" in page
    page = refused._repr_html_()
    assert "<b>refused</b>" in page and "error: unobserved" in page and "unbounded" in page
    assert repr(refused) == str(refused)
    assert str(refused).endswith("refused") and "error unobserved: the scene" in str(refused)


def test_a_recording_gives_clouds_with_rings_and_the_description(sparse, tmp_path):
    scene, _ = sparse
    with RecordingWriter(tmp_path / "room") as writer:
        write_description(writer, scene.simulator.nominal_description)
        for tick in range(3):
            for side in ("left", "right"):
                cloud = scene.clouds[side][tick]
                write_cloud(writer, f"/lidar_points_{side}", f"lidar_{side}_link", 100_000_000 * (tick + 1), cloud)
    recorded = cal.open_recording(tmp_path / "room", max_pairs=2)
    assert len(recorded.left_clouds) == len(recorded.right_clouds) == 2
    returns = scene.clouds["left"][0][:0].dtype.names
    assert {"x", "y", "z", "ring", "intensity"} <= set(recorded.left_clouds[0].dtype.names) <= set(returns)
    assert recorded.left_clouds[0]["ring"].max() == 31
    rig = cal.Rig.from_urdf(recorded.description, sensor=scene.rig.sensor)
    assert cal.calibrate(rig, recorded, floor=False).alignment.num_frames == 2
    with pytest.raises(InputError, match="swapped"):
        cal.open_recording(tmp_path / "room", left_topic="/lidar_points_right", right_topic="/lidar_points_left")


def test_a_rig_takes_a_sensor_by_name_path_or_object_and_links_by_their_older_names(scene, tmp_path):
    text = scene.simulator.nominal_description
    path = tmp_path / "robot.urdf"
    path.write_text(text.replace("lidar_left_link", "link_lidar_left"))
    rig = cal.Rig.from_urdf(path, sensor=load_sensor(SENSOR))
    assert rig.sensor.name == scene.rig.sensor.name == SENSOR
    assert np.allclose(rig.left_from_right, scene.rig.left_from_right)
    assert np.allclose(rig.footprint_from_base, scene.rig.footprint_from_base)
    assert cal.Rig.from_urdf(text, footprint="none").footprint_from_base is None
    elsewhere = cal.Rig.from_urdf(text, base="lidar_left_link")
    assert np.allclose(elsewhere.base_from_left, np.eye(4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rig, left, right, urdf: cal.calibrate(rig, left, right[:3]), "5 left and 3 right clouds"),
        (lambda rig, left, right, urdf: cal.calibrate(rig, cal.RecordedClouds(left, right, None), right),
         "right_clouds: a recording has the clouds of both lidars"),
        (lambda rig, left, right, urdf: cal.calibrate(rig, left[0], right[0]),
         "left_clouds: is one cloud.*give .cloud."),
        (lambda rig, left, right, urdf: cal.calibrate(rig, left), "right_clouds: is NoneType"),
        (lambda rig, left, right, urdf: cal.calibrate(rig, [], []), "no usable return of the left lidar"),
        (lambda rig, left, right, urdf: cal.calibrate(rig, left, left), "100 % of the right lidar's returns are in"),
        (lambda rig, left, right, urdf: cal.calibrate(rig, [[[1, 1, 1, np.nan, 9]] * np.ones(5)], right[:1]),
         "left lidar's clouds: rings go from -1 to -1, but sensor"),
        (lambda rig, left, right, urdf: cal.Rig.from_urdf(urdf, left="lidar_lft_link"),
         "URDF text: has no link 'lidar_lft_link'; did you mean lidar_left_link"),
        (lambda rig, left, right, urdf: cal.Rig.from_urdf("no_such.urdf"), "no_such.urdf"),
        (lambda rig, left, right, urdf: cal.Rig.from_urdf(urdf, sensor="jt12"), "jt12.*jt128_sparse"),
        (lambda rig, left, right, urdf: cal.Rig.from_urdf(urdf, left="lidar_right_link"), "a link of its own"),
        (lambda *_: cal.Rig(np.eye(4), np.eye(4), sensor=5), "sensor: is of type int"),
        (lambda rig, left, right, urdf: cal.calibrate(rig, {"left": left, "right": right}, mounts={"left": np.eye(4)}),
         "mounts: left: expected a pose"),
        (lambda *_: cal.Rig(np.zeros((4, 4)), np.eye(4)), "base_from_left: is not a rigid transform"),
        (lambda *_: cal.Rig(np.eye(4), np.eye(4), accept=0.005), "accept: is 0.005; expected two standard deviations"),
        (lambda rig, left, right, urdf: cal.calibrate(rig, left, right, accept=(5, 0.1)), "accept: is 5 m and 0.1 rad"),
        (lambda rig, left, right, urdf: cal.Rig.from_urdf(urdf, lidars=["lidar_left_link"] * 2), "a link of its own"),
        (lambda rig, left, right, urdf: cal.sensor_of(left[0]), "is one cloud, not a list"),
        (lambda *_: cal.simulate(frames=1.5), "frames: is 1.5"),
        (lambda *_: cal.simulate(frames=1, mount_errors=0.005), "mount_errors: is 0.005; expected a list of 2"),
        (lambda *_: cal.open_recording("no_such_recording"), "no such recording"),
        (lambda *_: cal.open_recording("no_such_recording", max_pairs=0), "max_pairs: is 0"),
        (lambda *_: cal.open_drive("no_such_recording", max_clouds=0), "max_clouds: is 0"),
        (lambda *_: cal.simulate(world="atlantis", frames=1), "'atlantis' is not known in worlds/.*furnished_room"),
        (lambda *_: cal.simulate(simulation={"wrld": "tables"}, frames=1), "wrld"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_in_one_line(scene, call, message):
    with pytest.raises(InputError, match=message) as caught:
        call(scene.rig, *scene.clouds.values(), scene.simulator.nominal_description)
    assert "\n" not in str(caught.value)


def test_a_rig_takes_names_of_sensors_and_by_default_those_of_the_robots_profile():
    sim = cal.simulate("two_lidar_amr", seed=np.int64(1), frames=1, mount_errors=None)
    text = sim.simulator.nominal_description
    profiled, own = (
        cal.Rig.from_urdf(text, robot="two_lidar_amr"),
        cal.Rig.from_urdf(text, "jt128", robot="two_lidar_amr"),
    )
    assert {kind.name for kind in profiled.sensors.values()} == {kind.name for kind in sim.rig.sensors.values()}
    each = cal.Rig.from_urdf(text, ["xt32", "vlp16"], robot="two_lidar_amr")
    assert [kind.name for kind in each.sensors.values()] == ["xt32", "vlp16"]
    one, other = (each.sensors[name] for name in each.names)
    assert cal.Rig(np.eye(4), np.eye(4), sensor=[one, other]).sensors["right"] is other
    assert own.sensor.name == "jt128" and cal.Rig(np.eye(4), np.eye(4), sensor="jt128").sensor.name == "jt128"


def test_intensities_that_are_no_numbers_count_as_none(sparse):
    scene, clean = sparse
    clouds = {name: [cloud.copy() for cloud in own] for name, own in scene.clouds.items()}
    for own in clouds.values():
        for cloud in own:
            cloud["intensity"][:10] = np.nan, np.inf, -1.0, *[np.nan] * 7
    found = cal.calibrate(scene.rig, clouds, floor=False)
    assert found.accepted and error(found.left_from_right, clean.left_from_right)[0] < 1e-4


def test_the_example_runs_without_ros(tmp_path):
    # A stand-in for a machine without ROS: importing it fails.
    (tmp_path / "rclpy.py").write_text("raise ImportError('no ROS here')")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "calibrate_arrays.py", "--sensor", FEW_RAYS, "--pairs", "2"],
        cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": f"{tmp_path}:{EXAMPLES.parent}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "accepted" in done.stdout and "mm" in done.stdout.splitlines()[-1]
    assert CalibrationFile.load(tmp_path / "calibration.yaml").floor_plane is not None


def test_simulated_clouds_come_with_their_truth_and_a_result_with_its_errors(sparse):
    sim, result = sparse
    again = cal.simulate(sensor=FEW_RAYS, seed=7, frames=1)
    assert all(np.array_equal(again.clouds[name][0], clouds[0]) for name, clouds in sim.clouds.items())
    # The mounts are off by 5 mm and 0.5 deg, which the rig does not know.
    for name in sim.rig.names:
        off, angle = error(sim.truth.base_from_lidar[name], sim.rig.base_from_lidar[name])
        assert off == pytest.approx(0.005) and np.degrees(angle) == pytest.approx(0.5)
    errors = result.errors(sim.truth)
    off, angle = error(sim.truth.transform("left", "right"), result.left_from_right)
    assert result.accepted and errors.mm == pytest.approx(1e3 * off) and errors.deg == pytest.approx(np.degrees(angle))
    assert errors.mm < 1.0 and errors.deg < 0.02 and errors.nees < 4.7 and errors.floor.height_mm < 1.0
    assert "left from right: " in str(errors) and "floor: " in str(errors)


def test_simulated_lidars_are_as_many_as_the_robot_has_and_off_by_the_given_errors():
    asked = {"lidar_right_error": {"xyz": [0.01, 0.0, 0.0], "rpy_deg": [0.0, 0.0, 1.0]}}
    sim = cal.simulate("three_lidar_amr", frames=1, mount_errors=None, simulation=asked)
    assert list(sim.clouds) == ["left", "right", "mast"] == list(sim.rig.names)
    off = {name: error(sim.truth.base_from_lidar[name], sim.rig.base_from_lidar[name])[0] for name in sim.rig.names}
    assert off == pytest.approx({"left": 0.0, "right": 0.01, "mast": 0.0}, abs=1e-9)


def test_a_truth_of_other_lidars_is_named(scene, result):
    poses = dict(zip(("front", "rear"), scene.truth.base_from_lidar.values(), strict=True))
    with pytest.raises(InputError, match="the truth is of front, rear, not of left, right"):
        result.errors(cal.Truth(poses, scene.truth.floor))


def test_a_notebooks_table_shows_names_as_they_are(scene, result):
    names = ("<script>alert(1)</script>", "right")
    poses = dict(zip(names, result.array.base_from_lidar.values(), strict=True))
    named = replace(result, rig=replace(result.rig, names=names), array=replace(result.array, base_from_lidar=poses))
    page = named._repr_html_()
    assert "<script" not in page and "&lt;script&gt;alert(1)&lt;/script&gt; from right, x" in page
