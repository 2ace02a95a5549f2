"""ros_calibrate_robot, killed and continued; and how what is staged gets into the robot's place and back."""

import argparse
import functools
import io
import json
import shutil
import signal
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ros"))
from made_results import by_arm_and_wheels, save
from node_process import FEW_RAYS, FEW_RAYS_AMR, PATIENCE, Graph, end_of, simulated_robot

from stretch_sim_cal.calibration import verification
from stretch_sim_cal.calibration.body.model import load_body_shape_model
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.command import agreed
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import SIDES, error, from_xyz_rpy
from stretch_sim_cal.harness import robot_calibration, robot_session
from stretch_sim_cal.harness.processes import Process, own_domain
from stretch_sim_cal.harness.robot_calibration import stages_of
from stretch_sim_cal.harness.robot_session import Session, default_folder, last_accepted, locked
from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.ros import live

ROBOT = (
    "--world", "furnished_room", "--sensor", FEW_RAYS, "--seed", "6", "--real-time-factor", "1",
    "--lidar-left-error=0.012,-0.010,0.0125,1.3,-1.0,1.15",  # 20 mm, 2 deg
    "--lidar-right-error=-0.0115,0.0125,-0.0105,-1.1,1.35,-0.95", "--base-error", "0.002,0.3,-0.2",
)  # fmt: skip
QUICK = (
    "--yes", "--use-sim-time", "--sensor", FEW_RAYS, "--alignment-samples", "6", "--floor-samples", "3",
    "--mounts-plan", "quick", "--plan", "quick", "--fit-method", "circle", "--frames", "1", "--speed-factor", "10",
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("quick_pictures")

WHOLE = 30 * PATIENCE  # how long (s) all stages may take, however busy the machine is


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A graph with a simulated robot whose lidars are far from where the description has them."""
    with simulated_robot(tmp_path_factory.mktemp("robot"), *ROBOT) as (graph, _):
        yield graph


def calibrate(graph, *arguments, **how):
    return graph.call("ros_calibrate_robot", *arguments, **how)


def killed_after(graph, stage: str) -> None:
    """Run the command, killed as soon as its state says that a stage has ended, before anything else happens."""
    killed = f"""
import os, signal, sys
from stretch_sim_cal import programs
from stretch_sim_cal.harness.robot_session import Session

def end(session, stage, *how, ended=Session.ended):
    ended(session, stage, *how)
    if stage == {stage!r}:
        os.kill(os.getpid(), signal.SIGKILL)

Session.ended = end
sys.exit(programs.ros_calibrate_robot())
"""
    ended = end_of(graph.start_script(killed, *QUICK), timeout=WHOLE)
    assert ended.code == -signal.SIGKILL, ended.err


def test_a_stage_that_fails_leaves_the_robots_files_alone(graph):
    ended = calibrate(graph, *QUICK, "--only", "floor")
    ended.assert_failed(2, "run ros_align_dual_lidar first", "--discard")
    assert not graph.calibration_file.exists()
    assert list(json.loads(calibrate(graph, "--discard", "--json", code=0).out)) == ["discarded"]


def test_the_doctor_finds_the_robot_ready_by_its_own_clock(graph):
    ended = graph.call("stretch_sim_cal", "doctor", "--live", "--use-sim-time", "--sensor", FEW_RAYS, code=0)
    assert "ready    lidars" in ended.out and "missing  lidars" not in ended.out


def test_killed_after_a_stage_and_continued_it_ends_with_the_robot_calibrated(graph):
    killed_after(graph, "mounts")
    assert not graph.calibration_file.exists()
    ended = calibrate(graph, *QUICK, "--json", code=0)
    assert "done: lidar to lidar, floor, lidars on the robot (" in ended.err
    assert "lidar to lidar: a further standing place that would help most: the robot turned by 90 deg" in ended.err
    outcome = json.loads(ended.out)
    assert outcome["accepted"] and str(graph.calibration_file) in outcome["files"] and Path(outcome["page"]).is_file()
    assert {row[0] for row in outcome["table"]} >= {"lidar to lidar", "floor", "left lidar on the robot", "body shape"}

    truth, file = load_truth(graph.folder / "truth.json"), CalibrationFile.load(graph.calibration_file)
    for side in SIDES:
        distance, angle = error(truth.base_from_lidar[side], stored_mounts(file).base_from_lidar[side])
        assert distance < 0.004 and np.degrees(angle) < 0.3, side
    distance, angle = error(truth.to_left["right"], file.right_to_left)
    assert distance < 0.003 and np.degrees(angle) < 0.05
    assert load_body_shape_model(graph.calibration_file.with_name("body_shape_model.yaml")).shapes
    assert not (graph.calibration_file.parent / "calibrate_robot").exists()


def test_what_still_holds_is_kept(graph, monkeypatch):
    # What the sparse lidars cannot tell, by chance of their noise: whether it holds to 2 mm.
    sparse = functools.partial(verification.verify, tolerances=verification.Tolerances(5e-3, np.radians(0.3)))
    monkeypatch.setattr(robot_calibration, "verify", sparse)
    before = graph.calibration_file.read_bytes()
    ended = calibrate(graph, *QUICK, code=0)
    assert ended.out.count("still valid") == 4 and "nothing has changed" in ended.out
    assert graph.calibration_file.read_bytes() == before


def test_a_robot_that_says_nothing_is_named_with_what_to_do(tmp_path, monkeypatch):
    # Nobody is there to say anything, however long it listens.
    options = [replace(option, default=2.0) if option.name == "timeout" else option for option in live.LIVE.options]
    monkeypatch.setattr(live, "LIVE", replace(live.LIVE, options=options))
    with own_domain() as domain:
        ended = Graph(domain, tmp_path).call("stretch_sim_cal", "doctor", "--live")
    assert ended.code == 1
    assert "silent   lidars" in ended.out and "dual_hesai.launch.py" in ended.out
    assert "silent   frames" in ended.out and "stretch_driver.launch.py" in ended.out


@pytest.fixture
def robot(tmp_path, monkeypatch):
    """A robot's folder with a calibration, and the folder of a session with a new one staged."""
    monkeypatch.setenv("HELLO_FLEET_PATH", str(tmp_path))
    monkeypatch.setenv("HELLO_FLEET_ID", "stretch-1")
    folder = default_folder()
    folder.parent.mkdir(parents=True)
    (folder.parent / "dual_lidar_calibration.yaml").write_text("old: 1\n")
    session = Session.open(folder)
    for target in session.targets:
        target.staged.parent.mkdir(parents=True, exist_ok=True)
        target.staged.write_text(f"new: {target.name}\n")
    session.ended("alignment", "done")
    return folder


def contents(session) -> dict[str, str | None]:
    return {target.name: target.place.read_text() if target.place.is_file() else None for target in session.targets}


def test_accepted_files_are_in_place_and_rolled_back_as_they_were(robot):
    robot = robot.rename(robot.with_name("robot[1]"))
    session = Session.open(robot)
    session.accept()
    assert contents(session) == {target.name: f"new: {target.name}\n" for target in session.targets}
    assert not robot.exists()
    last = last_accepted(robot)
    last.roll_back()
    assert contents(last) == {"calibration": "old: 1\n", "observations": None, "body shape": None, "values": None}
    with pytest.raises(InputError, match="no accepted calibration"):
        last_accepted(robot)


def test_an_acceptance_that_was_cut_off_is_finished_and_still_rolled_back(robot, monkeypatch):
    session = Session.open(robot)
    calls = []

    def dies(path):
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return kept(path)

    kept = robot_session.keep_backup
    with monkeypatch.context() as context:
        context.setattr(robot_session, "keep_backup", dies)
        with pytest.raises(KeyboardInterrupt):
            session.accept()
    Session.open(robot).accept()
    last = last_accepted(robot)
    assert contents(last) == {target.name: f"new: {target.name}\n" for target in last.targets}
    last.roll_back()
    assert contents(last)["calibration"] == "old: 1\n"


def test_what_another_program_wrote_meanwhile_is_not_lost(robot):
    session = Session.open(robot)
    session.targets[0].place.write_text("another: 2\n")
    with pytest.raises(Refused, match="changed by another program"):
        session.accept()
    assert session.targets[0].place.read_text() == "another: 2\n"


def test_a_session_of_another_robot_is_not_continued_nor_two_at_a_time(robot, monkeypatch):
    monkeypatch.setenv("HELLO_FLEET_ID", "stretch-2")
    with pytest.raises(InputError, match="robot stretch-1, this one is stretch-2"):
        Session.open(robot)
    with locked(robot), pytest.raises(InputError, match="in progress"), locked(robot):
        pass


CORRIDOR = (
    "--world", "long_corridor", "--sensor", FEW_RAYS, "--seed", "3",
    "--lidar-right-error=-0.003,0.002,0.001,-0.5,0.6,-0.2",
)  # fmt: skip
TOGETHER = ("--use-sim-time", "--sensor", FEW_RAYS, "--alignment-samples", "4", "--only", "alignment")


def test_a_corridor_is_enough_if_the_robot_is_turned_in_it_even_after_a_kill(tmp_path, monkeypatch):
    """One place leaves sliding along the corridor open; turned, the robot sees it along another axis of its own."""
    asked = []

    def answers(question):
        asked.append(question)
        if "Has it been turned?" in question:
            if len(asked) == 1:
                raise KeyboardInterrupt  # the battery is empty, or the user has enough
            assert client.set("heading", 40.0).successful
        return "yes"

    monkeypatch.setattr("builtins.input", answers)
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(isatty=lambda: True))
    with simulated_robot(tmp_path, *CORRIDOR) as (graph, client):
        assert calibrate(graph, *TOGETHER).code == 130
        assert "recorded from 1 standing place." in asked[0] and "no continues without" in asked[0]
        calibrate(graph, *TOGETHER, code=0)
    assert "no starts over" in asked[1] and "Accept the new calibration?" in asked[2]
    file = CalibrationFile.load(graph.calibration_file)
    distance, angle = error(load_truth(graph.folder / "truth.json").to_left["right"], file.right_to_left)
    deviations = np.sqrt(np.diag(file.entries["right_to_left_transform"].covariance))
    assert distance < 5 * np.linalg.norm(deviations[:3]) < 0.005
    assert angle < 5 * np.linalg.norm(deviations[3:]) < np.radians(0.1)
    assert not list(graph.folder.rglob("*.places.npz"))


def test_a_drive_comes_after_the_arm_or_in_place_of_its_mounts():
    stages = [stages_of(profile_called(robot), drive=True) for robot in (None, "two_lidar_amr")]
    assert stages[0] == ("alignment", "floor", "mounts", "body_shape", "drive")
    assert stages[1] == ("alignment", "floor", "drive", "body_shape")
    for robot in (None, "two_lidar_amr"):
        assert stages_of(profile_called(robot), drive=False) == ("alignment", "floor", "mounts", "body_shape")


@pytest.mark.parametrize(
    ("only", "run"), [(["body_shape", "drive", "floor"], ["floor", "drive", "body_shape"]), (["drive", "mounts"], None)]
)
def test_the_only_stages_run_in_the_robots_own_order(robot, only, run):
    session, profile = Session.open(robot), profile_called("two_lidar_amr")
    asked = argparse.Namespace(**{"only": only, "from": None})

    def stages():
        return robot_calibration._stages(session, None, asked, stages_of(profile, drive=True), profile, print)

    if run is None:
        with pytest.raises(InputError, match="--only mounts: two-lidar AMR has no such stage"):
            stages()
        return
    assert stages() == run
    for stage in run:
        session.ended(stage, "done")
    for again in (only, None):
        vars(asked).update({"only": again, "from": None if again else "drive"})
        with pytest.raises(InputError, match="done in the calibration in progress"):
            stages()


def test_a_drive_is_asked_for_before_the_robot_moves(robot, monkeypatch):
    asked = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "no")
    with pytest.raises(Refused, match="nothing was moved"):
        robot_calibration._ask_for_motion("drive", False, profile_called(None))
    assert "THE ROBOT IS GOING TO DRIVE" in asked[0] and "mode navigation or velocity" in asked[0]


def test_a_question_is_asked_beside_the_output_until_it_is_answered_or_given_up(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("perhaps\nyes\n"))
    assert agreed("Go on?")
    asked = capsys.readouterr()
    assert asked.out == "" and asked.err.count("Go on? [yes/no]") == 2
    with pytest.raises(KeyboardInterrupt):  # the end of the input, Ctrl-D
        agreed("Go on?")


def test_a_drive_that_was_cut_off_is_put_aside_and_its_result_stands_on_the_page(robot, monkeypatch):
    session = Session.open(robot)
    file = by_arm_and_wheels(np.random.default_rng(1))
    for path in (session.folder / "before.yaml", session.files.body_shape_model):
        path.unlink()
    session.files.drive.mkdir()
    (session.files.drive / "half.mcap").write_text("torn")
    save(file, robot / "found.yaml")
    copy = f"import shutil; shutil.copy({str(robot / 'found.yaml')!r}, {str(session.files.calibration)!r})"

    def nodes(stages, files, *_):
        assert list(stages) == ["drive"] and not files.drive.exists()
        return [Process("drive", sys.executable, ("-c", copy), stage="drive")]

    monkeypatch.setattr(robot_calibration, "calibration_nodes", nodes)
    assert robot_calibration.run_stage(session, "drive", {}, "jt128", None, False, lambda *_: None) is None
    assert (session.folder / "drive_2" / "half.mcap").read_text() == "torn" and "drive" in Session.open(robot).stages
    rows = {row[0]: row[1] for row in robot_calibration.table(session) if row[0].endswith("to the wheels")}
    assert rows == {"left lidar to the wheels": "new", "right lidar to the wheels": "new"}
    said = robot_calibration.of_drive(session)
    assert any("left lidar, by wheels against arm: x" in line for line in said)
    page = robot_calibration.write_page_of(session, profile_called(None)).read_text()
    assert "Lidars relative to the wheels" in page and "Wheels compared with arm" in page and "agree" in page
    shutil.copy(robot / "found.yaml", session.folder / "before.yaml")
    assert robot_calibration._drive_holds(session.old)
    elsewhere = by_arm_and_wheels(np.random.default_rng(1), other=from_xyz_rpy((0.0, 0.05, 0.0), (0.0, 0.0, 0.0)))
    with pytest.raises(InputError, match="has moved relative to the left one"):
        robot_calibration._drive_holds(elsewhere)


@pytest.mark.long
def test_the_lidars_of_a_robot_with_three_are_aligned_in_one_command_and_all_on_its_page(tmp_path):
    robot = ("--robot", "three_lidar_amr", "--sensor", FEW_RAYS_AMR)
    errors = (
        "--lidar-left-error=0.003,-0.002,0.003,0.4,-0.3,0.5", "--lidar-right-error=-0.003,0.002,0.001,-0.5,0.6,-0.2"
    )  # fmt: skip
    few = ("--yes", "--use-sim-time", "--alignment-samples", "5", "--only", "alignment")
    room = ("--world", "furnished_room", "--seed", "6", "--real-time-factor", "1")
    with simulated_robot(tmp_path, *room, *robot, *errors) as (graph, _):
        ended = calibrate(graph, *few, "--json", *robot, code=0)
    assert "all 3 lidars, base and footprint are in TF" in ended.err and "THE ARM" not in ended.err
    said = json.loads(ended.out.splitlines()[-1])
    assert {row[0] for row in said["table"]} >= {"lidar to lidar", "left to mast lidar"}
    assert "> mast lidar</label>" in Path(said["page"]).read_text()
    truth, file = load_truth(graph.folder / "truth.json"), CalibrationFile.load(graph.calibration_file)
    distance, angle = error(truth.to_left["mast"], file.to_left["mast"])
    assert distance < 0.002 and np.degrees(angle) < 0.05
