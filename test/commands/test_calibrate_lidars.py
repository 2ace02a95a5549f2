"""`calibrate` on a recording of a robot with three lidars, and other commands on such a robot."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from called import called, edited
from made_results import alignment_result, save
from recorded_robot import write_cloud, write_description
from scipy.stats import chi2
from three_lidar_manipulator import three_lidar_manipulator

import stretch_sim_cal as cal
from stretch_sim_cal import files
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.calibration.mounts.result import total_deviations
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, samples_of
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml, write_yaml
from stretch_sim_cal.geometry.transforms import error, from_xyz_rpy, inverse, log
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.scenario import load_scenario, with_changes
from stretch_sim_cal.harness.simulated_dataset import BodyDatasetRecorder
from stretch_sim_cal.harness.verdict import judge_stage, load_truth
from stretch_sim_cal.recording.dataset import read_dataset
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import load_profile, stretch_profile
from stretch_sim_cal.ros.simulator_node import write_truth
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

pytestmark = pytest.mark.usefixtures("quick_pictures")

ROBOT, SCANS = "three_lidar_amr", 5
FEW_RAYS = str(Path(__file__).parents[1] / "ros" / "few_rays_amr.yaml")
OPTIONS = ["--robot", ROBOT, "--sensor", FEW_RAYS]


def record(folder, simulator, first=0, described=True):
    """Record scans of every lidar from one of the simulator's on; return the folder."""
    with RecordingWriter(folder) as writer:
        if described:
            write_description(writer, simulator.nominal_description)
        for tick in range(SCANS):
            for name, lidar in load_profile(ROBOT).lidars.items():
                scan = simulator.scan(name, first + tick)
                write_cloud(writer, lidar.topic, lidar.frame, 100_000_000 * (tick + 1), scan)
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    simulator = EmbeddedSimulator(with_changes(load_scenario(ROBOT), None, None, FEW_RAYS, None).simulation)
    return simulator, record(tmp_path_factory.mktemp("three") / "room", simulator)


def told(*arguments, **how) -> tuple[int, str]:
    code, *said = called(*arguments, **how)
    return code, "".join(said)


@pytest.fixture(scope="module")
def calibrated(recorded, tmp_path_factory):
    """The calibration of the recording; beside it, what was printed and said of it, and its page."""
    folder = tmp_path_factory.mktemp("calibrated")
    file = folder / "calibration.yaml"
    out = ("--out", file, "--report", folder / "page", "--json")
    _, printed, said = called("calibrate", recorded[1], *out, *OPTIONS, code=0)
    (folder / "printed").write_text(printed)
    (folder / "said").write_text(said)
    return file


def test_a_recording_of_three_lidars_gives_all_of_them_and_a_page_with_each(recorded, calibrated, tmp_path):
    simulator, said = recorded[0], calibrated.with_name("said").read_text()
    clouds = cal.open_recording(recorded[1], robot=ROBOT).clouds
    assert {name: len(own) for name, own in clouds.items()} == dict.fromkeys(("left", "right", "mast"), SCANS)
    assert "mast lidar: ring: there" in said
    found = json.loads(calibrated.with_name("printed").read_text())
    assert set(found) == {"lidars", "floor", "file"} and set(found["lidars"]["lidars"]) == {"left", "right", "mast"}
    assert len(found["lidars"]["pairs"]) == 3 and all(pair["used"] for pair in found["lidars"]["pairs"])
    file, tolerances = CalibrationFile.load(calibrated), load_scenario(ROBOT).tolerances
    left = simulator.base_from_lidar("left")
    for name, found in (("right", file.right_to_left), ("mast", file.to_left["mast"])):
        distance, angle = error(inverse(left) @ simulator.base_from_lidar(name), found)
        assert 1e3 * distance < 2 * tolerances["alignment"]["translation_mm"]
        assert np.degrees(angle) < 2 * tolerances["alignment"]["rotation_deg"]
    page = (calibrated.with_name("page") / "report.html").read_text()
    assert all(f"> {name} lidar</label>" in page for name in ("left", "right", "mast"))
    assert "Floor residuals" in page
    # A run is judged by every lidar.
    files = RunFiles(tmp_path)
    write_truth(files.truth, simulator.ground_truth(), simulator.true_description)
    save(file, files.calibration)
    verdict = judge_stage("alignment", files, load_truth(files.truth), tolerances["alignment"])
    assert not verdict.reason
    assert [each.key for each in verdict.quantities][2:] == ["mast.translation_error_mm", "mast.rotation_error_deg"]
    assert all(each.error is not None for each in verdict.quantities)


def test_the_topic_of_a_third_lidar_with_the_clouds_of_another_is_an_error(recorded, tmp_path):
    simulator, _ = recorded
    lidars = load_profile(ROBOT).lidars
    with RecordingWriter(tmp_path / "bag") as writer:
        write_description(writer, simulator.nominal_description)
        for name, lidar in lidars.items():
            frame = lidars["left"].frame if name == "mast" else lidar.frame
            write_cloud(writer, lidar.topic, frame, 100_000_000, simulator.scan(name, 0))
    out = tmp_path / "calibration.yaml"
    code, said = told("calibrate", tmp_path / "bag", "--out", out, "--num-samples", 1, *OPTIONS)
    assert code == 2 and f"{lidars['mast'].topic} carries clouds of the left lidar" in said and not out.exists()


def test_a_third_lidar_of_another_kind_is_simulated_recorded_and_calibrated_as_that_kind(tmp_path):
    share = files.share_directory()
    text = (share / "config/robots/three_lidar_amr.yaml").read_text().replace("../../models", str(share / "models"))
    text = text.replace("sensor: os0_32\n", "sensor: os0_32_sparse\n")
    robot, wrong = tmp_path / "kinds.yaml", tmp_path / "wrong.yaml"
    robot.write_text(text.replace("/mast_lidar/points}", "/mast_lidar/points, sensor: xt32_sparse}"))
    bag, out = tmp_path / "bag", tmp_path / "calibration.yaml"
    kinds = ["os0_32_sparse", "os0_32_sparse", "xt32_sparse"]
    assert load_profile(robot).sensor == ",".join(kinds)
    assert told("sim", "--robot", robot, "--record", bag, "--duration", 0.3, "--seed", 1)[0] == 0
    simulator = EmbeddedSimulator(SimulationSetup.from_mapping({"robot": str(robot)}))
    assert [simulator.lidar(name).sensor.name for name in ("left", "right", "mast")] == kinds
    pose = inverse(simulator.base_from_lidar("left")) @ simulator.base_from_lidar("mast")
    # A profile that names another kind, or none that is theirs: the points decide.
    wrong.write_text(text.replace("sensor: os0_32_sparse\n", "sensor: jt128\n"))
    lines = told("doctor", bag, "--robot", robot)[1]
    for name, table in (("left", "os0_32"), ("mast", "xt32")):
        assert f"{name} lidar: ring: there, 0 to 31; table: {table}" in lines
    alignment = ("calibrate", bag, "--robot", wrong, "--out", out, "--only", "alignment")
    _, said = told(*alignment, "--method", "gicp", code=0)
    assert "left lidar: recognised as os0_32_sparse, the only matching file in config/, not for jt128" in said
    assert "mast lidar: recognised as xt32_sparse" in said and "3 lidars by gicp, each with left" in said
    file = CalibrationFile.load(out)
    assert file.entries["mast_to_left_transform"].fit_method == "gicp"
    distance, angle = error(pose, file.to_left["mast"])
    assert distance < 0.004 and np.degrees(angle) < 0.15, (distance, np.degrees(angle))
    code, said = told(*alignment, "--sensor", "jt128")
    assert code == 2 and "from the elevations of sensor 'jt128'; give the sensor that recorded them" in said
    code, said = told("calibrate", bag, "--robot", robot, "--out", out, "--sensor", "os0_32,xt32,os0_32,os0_32")
    assert code == 2 and "4 kinds for 3 lidars" in said


def test_the_floor_alone_is_found_by_all_lidars_from_where_the_file_has_them(recorded, calibrated, tmp_path):
    data, out = read_yaml(calibrated), tmp_path / "aligned.yaml"
    write_yaml(out, {name: entry for name, entry in data.items() if "floor" not in name and "footprint" not in name})
    lidars, height = CalibrationFile.load(out), CalibrationFile.load(calibrated).floor_plane.offset
    assert lidars.floor_plane is None
    floor = ("calibrate", recorded[1], "--only", "floor", *OPTIONS, "--out", out)
    code, said = told(*floor[:-1], tmp_path / "new.yaml")
    assert code == 2 and "has no alignment" in said and not (tmp_path / "new.yaml").exists()
    code, said = told(*floor, "--report", tmp_path / "page")
    assert code == 0 and "floor written to" in said and "lidars and floor" not in said, said
    page = (tmp_path / "page" / "report.html").read_text()
    assert page.count("data:image/png") == 2 and "<div class='turnable'>" in page and "Not drawn" not in page
    found = CalibrationFile.load(out)
    assert found.floor_plane.offset == pytest.approx(height, abs=1e-3)
    for name, pose in lidars.to_left.items():
        np.testing.assert_array_equal(found.to_left[name], pose)
    out.write_bytes(calibrated.read_bytes())
    code, said = told(*floor, "--floor-method", "published")
    assert code == 0 and "floor in base_link (published" in said and "lidars by" not in said, said
    assert 0.0 < abs(CalibrationFile.load(out).floor_plane.offset - height) < 1e-3
    del data["mast_to_left_transform"]
    write_yaml(out, data)
    for command in (floor, ("verify", recorded[1], "--calibration", out, *OPTIONS)):
        code, said = told(*command)
        assert code == 2 and "has no mast_to_left_transform" in said


def verified(recorded, file) -> dict:
    """Return what `verify` says on the recording, with bounds that five scans of so few rays can tell from noise."""
    bounds = ("--tolerance-mm", 6, "--tolerance-deg", 0.2)
    code, said, _ = called("verify", recorded[1], "--calibration", file, *OPTIONS[2:], *bounds, "--json")
    found = json.loads(said)
    assert (code == 0) == (found["verdict"] == "holds")
    return found | {"verdicts": {drift["name"]: drift["verdict"] for drift in found["drifts"]}}


def mast_moved(calibrated, file, y: float):
    """Write the calibration with the mast's lidar moved along y (m) into a file and return that."""
    data = read_yaml(calibrated)
    moved = CalibrationFile.load(calibrated).to_left["mast"] @ from_xyz_rpy((0.0, y, 0.0), (0.0, 0.0, 0.0))
    data["mast_to_left_transform"]["data"] = moved.tolist()
    write_yaml(file, data)
    return file


def test_check_and_export_know_the_robot_that_was_calibrated(calibrated, tmp_path):
    _, printed, _ = called("check", calibrated, "--json", code=0)
    found = json.loads(printed)
    assert found["robot_profile"] == ROBOT and found["problems"] == []
    assert found["further_lidars"]["mast"]["from_description"]["mm"] < 20
    assert "lidar_mast_joint" in called("export", calibrated, "--as", "xacro", code=0)[1]
    moved = edited(calibrated, lambda data: data.update(robot_profile=str(tmp_path / "gone.yaml")))
    _, printed, _ = called("check", moved, "--json", code=0)
    assert "gone.yaml: no such file; name it with --robot" in json.loads(printed)["concerns"][0]
    assert "name it with --robot" in called("export", moved, "--as", "urdf", code=2)[2]
    # Calibrated as another robot, it is that.
    file = CalibrationFile.load(moved)
    assert file.of_robot(stretch_profile().named).robot_profile is None and file.of_robot("x").robot_profile == "x"


@pytest.mark.long
def test_the_recording_is_calibrated_in_python_as_by_the_command(recorded, calibrated):
    opened = cal.open_recording(recorded[1], robot=ROBOT)
    rig = cal.Rig.from_urdf(opened.description, sensor=FEW_RAYS, robot=ROBOT)
    found, file = cal.calibrate(rig, opened, floor=False), CalibrationFile.load(calibrated)
    np.testing.assert_allclose(found.transform("left", "mast"), file.to_left["mast"], atol=1e-9)
    np.testing.assert_allclose(found.left_from_right, file.right_to_left, atol=1e-9)


@pytest.mark.long
def test_two_standing_places_give_one_calibration(recorded, calibrated, tmp_path):
    out = tmp_path / "both.yaml"
    simulator = EmbeddedSimulator(with_changes(load_scenario(ROBOT), None, None, FEW_RAYS, None).simulation)
    simulator.move_base(from_xyz_rpy([0.0, 0.0, 0.0], [0.0, 0.0, 1.2]))
    turned = record(tmp_path / "turned", simulator, 9)
    _, said = told("calibrate", recorded[1], turned, "--out", out, *OPTIONS, code=0)
    assert "3 lidars in one estimate" in said
    one, both = (CalibrationFile.load(path).entries["mast_to_left_transform"].covariance for path in (calibrated, out))
    assert np.trace(both[3:, 3:]) < 0.8 * np.trace(one[3:, 3:])


def test_verify_looks_at_every_lidar_and_names_the_one_that_has_moved(recorded, calibrated, tmp_path, found_once):
    found = verified(recorded, calibrated)
    assert found["verdict"] == "holds" and not found["open"]
    names = [f"lidars left and {name}, {what}" for name in ("right", "mast") for what in ("translation", "rotation")]
    assert list(found["verdicts"]) == [*names, "floor, height", "floor, tilt"]
    verdicts = verified(recorded, mast_moved(calibrated, tmp_path / "moved.yaml", 0.015))["verdicts"]
    assert [name for name, verdict in verdicts.items() if verdict != "holds"] == ["lidars left and mast, translation"]
    assert verdicts["lidars left and mast, translation"] == "drifted"


def test_a_lidar_far_from_where_the_file_has_it_is_said_to_be_left_out(recorded, calibrated, tmp_path):
    found = verified(recorded, mast_moved(calibrated, tmp_path / "moved.yaml", 0.2))
    assert found["verdict"] == "cannot tell"
    assert any("mast" in question and "far from the description's transform" in question for question in found["open"])


def test_the_description_with_all_lidars_puts_each_on_its_own_post(calibrated, tmp_path):
    out = tmp_path / "robot.urdf"
    assert told("export", calibrated, "--as", "urdf", "--robot", ROBOT, "--out", out)[0] == 0
    assert told("export", calibrated, "--as", "urdf", "--model", out, "--out", tmp_path / "again.urdf")[0] == 0
    model, file = load_model(str(out)), CalibrationFile.load(calibrated)
    assert len({model.parent_joint(f"lidar_{name}_link").parent for name in ("left", *file.to_left)}) == 3
    for name, pose in file.to_left.items():
        np.testing.assert_allclose(link_transform(model, {}, f"lidar_{name}_link", "lidar_left_link"), pose, atol=1e-9)


@pytest.mark.long
def test_every_lidar_gets_a_unit_file_and_a_page(recorded, tmp_path):
    _, said = told("sensor", recorded[1], "--out", tmp_path, "--num-samples", 5, *OPTIONS, code=0)
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"unit_{name}.yaml" for name in ("left", "right", "mast")), "report.html", "report_mast.html"
    }  # fmt: skip
    assert "mast lidar, few_rays_amr" in said and "mast scans begin" in said
    assert "Mast lidar: the unit" in (tmp_path / "report_mast.html").read_text()
    for name in ("left", "right", "mast"):
        assert abs(load_sensor(tmp_path / f"unit_{name}.yaml").range_noise - 0.005) < 0.002


def test_arm_poses_give_the_mounts_of_three_lidars_by_what_each_sees_of_the_robot(tmp_path):
    profile, folder, out = three_lidar_manipulator(tmp_path), tmp_path / "poses", tmp_path / "calibration.yaml"
    scenario = with_changes(load_scenario("two_lidar_manipulator"), None, None, FEW_RAYS, str(profile))
    simulator = EmbeddedSimulator(scenario.simulation)
    poses = {name: simulator.base_from_lidar(name) for name in ("left", "right", "mast")}
    right, mast = (alignment_result(inverse(poses["left"]) @ poses[name]) for name in ("right", "mast"))
    file = CalibrationFile().with_alignment(right, "robot").with_further("mast", mast, np.zeros((6, 6)), "robot")
    save(file, out)
    arm_poses = [(pan, lift, 1.6, -0.4, 1.57, 0.0) for pan, lift in ((-1.5, -1.2), (0.0, -0.6), (1.5, -1.2))]
    BodyDatasetRecorder(simulator).record(folder, arm_poses)
    options = ("--robot", profile, "--sensor", FEW_RAYS)
    _, said = told("calibrate", folder, "--mounts", "--out", out, *options, code=0)
    assert "mast  xyz" in said and "by its transform to the left one" not in said
    mounts = stored_mounts(CalibrationFile.load(out))
    assert list(mounts.base_from_lidar) == list(poses)
    off = np.concatenate([log(poses[name] @ inverse(pose)) for name, pose in mounts.base_from_lidar.items()])
    assert off @ np.linalg.solve(mounts.covariance, off) < chi2.ppf(0.999, 18)
    assert max(total_deviations(mounts.covariance_of("mast"), poses["mast"])) < 3e-3
    code, said = told("check", out, "--robot", profile, "--json")
    assert code == 0 and json.loads(said)["mounts"]["mast"]["standard_deviation"]["mm"] < 5.0, said
    dataset, robot = read_dataset(folder), MountedRobot(load_model(folder / "description.urdf"), load_profile(profile))
    older = replace(dataset, lidars=("left", "right"))  # collected before the third lidar's clouds were
    (sample, *_), (first, *_) = samples_of(older, robot, ()), samples_of(dataset, robot, ())
    assert list(sample.clouds) == ["left", "right"] and list(first.clouds) == ["left", "right", "mast"]


def test_a_profiles_own_sensor_files_and_description_serve_a_recording_that_has_neither(tmp_path):
    kind = read_yaml(Path(FEW_RAYS))
    kind["elevations_deg"] = [0.8 * elevation + 1.0 for elevation in kind["elevations_deg"]]
    write_yaml(tmp_path / "ours.yaml", kind)
    shared = files.share_directory() / "config/robots" / f"{ROBOT}.yaml"
    profile = read_yaml(shared) | {"sensor": "ours.yaml"}
    profile["description"] = {"file": str((shared.parent / profile["description"]["file"]).resolve())}
    write_yaml(tmp_path / "robot.yaml", profile)
    simulator = EmbeddedSimulator(load_scenario(ROBOT).simulation, load_sensor(tmp_path / "ours.yaml"))
    record(tmp_path / "room", simulator, described=False)
    robot, quickly = ["--robot", tmp_path / "robot.yaml"], ["--only", "alignment", "--method", "published"]
    _, said = told("calibrate", tmp_path / "room", "--out", tmp_path / "c.yaml", *quickly, *robot, code=0)
    assert "lidar poses from --robot" in said and "mast lidar: recognised as ours" in said
    code, said = told("doctor", tmp_path / "room", *robot)
    assert code == 0 and "mast lidar: ring: there, 0 to 31; table: ours" in said
    code, said = told("doctor", *robot)
    assert code == 2 and "--robot applies only to --live or a recording" in said


def test_the_clouds_of_a_robot_with_one_lidar_may_be_on_another_topic_than_the_profiles(tmp_path):
    data = read_yaml(files.share_directory() / "config/robots/two_lidar_manipulator.yaml")
    del data["lidars"]["right"]
    description = files.share_directory() / "config/robots" / data["description"]["file"]
    data |= {"description": {"file": str(description.resolve())}, "sensor": "os0_32_sparse"}
    robot = tmp_path / "one.yaml"
    write_yaml(robot, data)
    simulator = EmbeddedSimulator(SimulationSetup.from_mapping({"robot": str(robot), "world": "furnished_room"}))
    with RecordingWriter(tmp_path / "bag") as writer:
        write_description(writer, simulator.nominal_description)
        for tick in range(SCANS):
            frame, scan = data["lidars"]["left"]["frame"], simulator.scan("left", tick)
            write_cloud(writer, "/renamed", frame, 100_000_000 * (tick + 1), scan)
    own = ("--robot", robot, "--left-topic", "/renamed")
    _, said = told("calibrate", tmp_path / "bag", "--out", tmp_path / "calibration.yaml", *own, code=0)
    assert f"{SCANS} scans from {SCANS} left clouds" in said
    assert (
        abs(CalibrationFile.load(tmp_path / "calibration.yaml").floor_plane.offset - simulator.floor_in_base.offset)
        < 1e-3
    )
    assert "left lidar: ring: there" in told("doctor", tmp_path / "bag", *own)[1]
    code, said = told("sensor", tmp_path / "bag", "--out", tmp_path / "units", *own)
    assert code == 2 and "/renamed: is the only lidar; lidars are identified in pairs" in said
    verify = ("verify", tmp_path / "bag", "--calibration", tmp_path / "calibration.yaml")
    for command in (verify, ("doctor", tmp_path / "bag")):
        code, said = told(*command, *own, "--right-topic", "/nowhere")
        assert code == 2 and "--right-topic applies only to a robot with a right lidar" in said
    with pytest.raises(InputError, match="right_topic: /nowhere: the robot has one lidar"):
        cal.open_recording(tmp_path / "bag", "/renamed", "/nowhere", robot=robot)
