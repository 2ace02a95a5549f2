"""`calibrate` on a recording of a robot with three lidars, and what the commands for two say of such a robot."""

import contextlib
import io
import json

import numpy as np
import pytest
from recorded_robot import write_description

from stretch_sim_cal import cli, files
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import error, inverse
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.scenario import load_scenario
from stretch_sim_cal.harness.verdict import judge_stage, load_truth
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.robot.profile import load_profile
from stretch_sim_cal.ros.simulator_node import write_truth
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

ROBOT, SCANS = "three_lidar_amr", 4
OPTIONS = ["--robot", ROBOT, "--sensor", "os0_32_sparse"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The simulator and a recording of it."""
    folder = tmp_path_factory.mktemp("three") / "room"
    simulator = EmbeddedSimulator(load_scenario(ROBOT).simulation)
    with RecordingWriter(folder) as writer:
        write_description(writer, simulator.nominal_description)
        for tick in range(SCANS):
            for name, lidar in load_profile(ROBOT).every_lidar.items():
                writer.write_cloud(lidar.topic, lidar.frame, 100_000_000 * (tick + 1), simulator.scan(name, tick))
    return simulator, folder


def told(arguments: list[str]) -> tuple[int, str]:
    """Return a command's exit code and what it says."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.main(arguments)
    return code, said.getvalue()


def test_a_recording_of_three_lidars_gives_all_of_them_and_a_page_with_each(recorded, tmp_path):
    simulator, folder = recorded
    out = tmp_path / "calibration.yaml"
    code, said = told(["calibrate", str(folder), "--out", str(out), "--report", str(tmp_path / "page"), *OPTIONS])
    assert code == 0, said
    assert "3 lidars in one estimate" in said and "mast lidar: ring: there" in said
    file, tolerances = CalibrationFile.load(out), load_scenario(ROBOT).tolerances
    left = simulator.base_from_lidar("left")
    for name, found in (("right", file.right_to_left), ("mast", file.further_to_left["mast"])):
        distance, angle = error(inverse(left) @ simulator.base_from_lidar(name), found)
        assert 1e3 * distance < 2 * tolerances["alignment"]["translation_mm"]
        assert np.degrees(angle) < 2 * tolerances["alignment"]["rotation_deg"]
    page = (tmp_path / "page" / "report.html").read_text()
    assert "Lidars left and right before" in page and "Lidars left and mast before" in page
    assert "Floor residuals, left and mast" in page
    # A run is judged by every lidar.
    files = RunFiles(tmp_path)
    write_truth(files.truth, simulator.ground_truth(), simulator.true_description)
    file.save(files.calibration)
    verdict = judge_stage("alignment", files, load_truth(files.truth), tolerances["alignment"])
    assert not verdict.reason
    assert [each.key for each in verdict.quantities][2:] == ["mast.translation_error_mm", "mast.rotation_error_deg"]
    assert all(each.error is not None for each in verdict.quantities)


def test_the_topics_of_two_of_three_lidars_swapped_are_an_error_and_another_frame_a_warning(recorded, tmp_path):
    simulator, folder = recorded
    lidars = load_profile(ROBOT).every_lidar
    arguments = ["calibrate", str(folder), "--out", str(tmp_path / "calibration.yaml"), "--num-samples", "1", *OPTIONS]
    code, said = told([*arguments, "--right-topic", lidars["left"].topic, "--left-topic", lidars["right"].topic])
    assert code == 2 and "holds clouds of the" in said and "are swapped" in said
    assert not (tmp_path / "calibration.yaml").exists()
    other = tmp_path / "other"
    with RecordingWriter(other) as writer:
        write_description(writer, simulator.nominal_description)
        for name, lidar in lidars.items():
            frame = lidars["left"].frame if name == "mast" else lidar.frame
            writer.write_cloud(lidar.topic, frame, 100_000_000, simulator.scan(name, 0))
    code, said = told(["calibrate", str(other), *arguments[2:]])
    assert code == 2 and f"{lidars['mast'].topic} holds clouds of the left lidar" in said
    code, said = told([*arguments, "--left-frame", "base_link"])
    assert f"comes in frame '{lidars['left'].frame}', 'base_link' was expected" in said and "set --left-frame" in said


def test_a_third_lidar_of_another_kind_is_simulated_recorded_and_calibrated_as_that_kind(tmp_path):
    share = files.share_directory()
    text = (share / "config/robots/three_lidar_amr.yaml").read_text().replace("../../models", str(share / "models"))
    text = text.replace("sensor: os0_32\n", "sensor: os0_32_sparse\n")
    (tmp_path / "kinds.yaml").write_text(
        text.replace("/mast_lidar/points}", "/mast_lidar/points, sensor: xt32_sparse}")
    )
    robot, bag, out = str(tmp_path / "kinds.yaml"), str(tmp_path / "bag"), str(tmp_path / "calibration.yaml")
    assert load_profile(robot).sensor == "os0_32_sparse,os0_32_sparse,xt32_sparse"
    assert told(["sim", "--robot", robot, "--record", bag, "--duration", "0.5", "--seed", "1"])[0] == 0
    code, said = told(["calibrate", bag, "--robot", robot, "--out", out, "--only", "alignment"])
    assert code == 0, said
    assert "left lidar: ring: there, 0 to 31; table: os0_32" in said
    assert "mast lidar: ring: there, 0 to 31; table: xt32" in said
    simulator = EmbeddedSimulator(SimulationSetup.from_mapping({"robot": robot}))
    assert [simulator.lidar(name).sensor.name for name in ("left", "right", "mast")] == [
        "os0_32_sparse", "os0_32_sparse", "xt32_sparse",
    ]  # fmt: skip
    pose = inverse(simulator.base_from_lidar("left")) @ simulator.base_from_lidar("mast")
    distance, angle = error(pose, CalibrationFile.load(out).further_to_left["mast"])
    assert distance < 0.004 and np.degrees(angle) < 0.15
    code, said = told(["calibrate", bag, "--robot", robot, "--out", out, "--sensor", "os0_32,xt32,os0_32,os0_32"])
    assert code == 2 and "4 kinds for 3 lidars" in said


def test_the_numbers_for_machines_have_every_lidar_and_pair(recorded, tmp_path):
    _, folder = recorded
    out = str(tmp_path / "calibration.yaml")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = cli.main(["calibrate", str(folder), "--out", out, "--json", "--only", "alignment", *OPTIONS])
    found = json.loads(said.getvalue())
    assert (
        code == 0 and set(found) == {"lidars", "file"} and set(found["lidars"]["lidars"]) == {"left", "right", "mast"}
    )
    assert len(found["lidars"]["pairs"]) == 3 and all(pair["used"] for pair in found["lidars"]["pairs"])
    assert CalibrationFile.load(out).floor_plane is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["calibrate", "{bag}", "--out", "{out}", "--mounts"],
        ["calibrate", "{bag}", "--out", "{out}", "--only", "floor"],
        ["calibrate", "{bag}", "--out", "{out}", "--method", "gicp"],
        ["calibrate", "{bag}", "{bag}", "--out", "{out}"],
        ["verify", "{bag}", "--calibration", "{out}"],
        ["sensor", "{bag}", "--out", "{out}"],
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[4:5]),
)
def test_a_command_for_two_lidars_says_so_in_one_line(recorded, tmp_path, arguments):
    names = {"bag": recorded[1], "out": tmp_path / "out"}
    options = OPTIONS if arguments[0] != "sensor" else OPTIONS[:2]
    code, said = told([argument.format(**names) for argument in arguments] + options)
    assert code == 2 and "takes two lidars at most" in said and len(said.strip().splitlines()) == 1, said


def test_a_recording_without_the_third_lidars_topic_names_it(recorded, tmp_path):
    simulator, _ = recorded
    with RecordingWriter(tmp_path / "two") as writer:
        write_description(writer, simulator.nominal_description)
        for name in ("left", "right"):
            lidar = load_profile(ROBOT).every_lidar[name]
            writer.write_cloud(lidar.topic, lidar.frame, 100_000_000, simulator.scan(name, 0))
    code, said = told(["calibrate", str(tmp_path / "two"), "--out", str(tmp_path / "c.yaml"), *OPTIONS])
    assert code == 2 and "/mast_lidar/points" in said


def test_gazebo_takes_two(recorded):
    with pytest.raises(InputError, match="takes two lidars at most, .*three_lidar_amr.yaml has 3"):
        load_profile(ROBOT).need_two("Gazebo")
