"""What is made of a Gazebo that misbehaves, of processes that die and of an owner that is killed; by the stand-in."""

import math
import os
import signal
import subprocess
import sys
import time

import pytest
from stand_in import processes_of, started, steps, wait_until

from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.simulation.gazebo import processes, running

pytestmark = pytest.mark.slow


def kill(partition: str, mode: str) -> None:
    """Kill the one of our processes in a partition that runs in this mode."""
    [number] = [number for number, words in processes_of(partition).items() if mode in words]
    os.kill(number, signal.SIGKILL)


@pytest.mark.parametrize("gazebo", ["unruly_joints"], indirect=True)
def test_joints_that_do_not_follow_and_controllers_that_do_not_listen_are_reported(gazebo, capsys):
    with pytest.raises(RunFailure, match="/stretch/wrist_yaw_joint has no subscriber"), started(gazebo) as simulator:
        simulator.joints.command({"arm_joint": 0.2})
        while True:
            simulator.joints.step(0.1)
    [line] = [line for line in capsys.readouterr().err.splitlines() if "Gazebo's arm_joint is at 0.15" in line]
    assert "+0.05" in line


@pytest.mark.parametrize("gazebo", ["loses_step", "goes_deaf", "lidars_go_deaf"], indirect=True)
def test_a_step_that_was_lost_and_messages_that_do_not_come_any_more_are_asked_for_again(gazebo, monkeypatch):
    monkeypatch.setattr(running, "STEP_LOST", 0.1)
    monkeypatch.setattr(running, "DEAF", 3.0)  # longer than a process takes to start on a busy machine
    with started(gazebo) as simulator:
        before = simulator.time
        steps(simulator, 24)
        assert simulator.time - before == pytest.approx(0.6)
        steps_until_a_scan(simulator, tick=4)


def steps_until_a_scan(simulator, tick: int) -> None:
    """Let time pass until a scan of this tick or a later one is there: a busy machine may lose some, and simulated time
    passes there many times faster than the process starts that asks for them anew."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        # The latest one that is over: to ask for one that was lost takes long.
        latest = math.floor((simulator.time - simulator.start_time("left", 0)) / simulator.period) - 1
        if latest >= tick and simulator.scan("left", latest) is not None:
            return
        steps(simulator, 4)
    raise AssertionError("no scans come any more")


def test_messages_come_again_after_the_process_that_takes_them_has_died(gazebo, monkeypatch):
    monkeypatch.setattr(running, "DEAF", 3.0)  # longer than a process takes to start on a busy machine
    with started(gazebo) as simulator:
        kill(os.environ["GZ_PARTITION"], "listen")
        steps(simulator, 12)
        steps_until_a_scan(simulator, tick=1)
    assert "subscribed again after silence" in simulator.notes[0]


@pytest.mark.parametrize("gazebo", ["mesh_missing crash_at_end"], indirect=True)
def test_a_complaint_is_a_warning_a_crash_at_the_end_a_note_and_nothing_survives(gazebo):
    simulator = started(gazebo)
    assert any("cannot find the mesh" in warning for warning in simulator.warnings)
    partition = os.environ["GZ_PARTITION"]
    assert processes_of(partition)
    simulator.close()
    assert not processes_of(partition)
    assert "crashed (exit code 11)" in simulator.notes[-1]


@pytest.mark.parametrize(
    "gazebo, told",
    [
        ("world_fails", r"\(exit code 255\) while loading its world .*the world cannot be loaded"),
        ("spawn_refused", "data=false.*cannot be parsed"),
        ("spawn_fails", "has not appeared in Gazebo.*cannot be read"),
        ("silent_lidars", "cpu lidar left and right has not published"),
        ("dies", "Gazebo.*out of luck"),
        ("crashes", r"Gazebo ended \(SIGABRT\) while .*: free\(\): invalid pointer$"),
    ],
    indirect=["gazebo"],
)
def test_what_goes_wrong_is_named_in_gazebo_s_own_words(gazebo, told):
    with pytest.raises(RunFailure, match=told):
        started(gazebo)
    assert not processes_of(os.environ["GZ_PARTITION"])


@pytest.mark.parametrize("begin", ["", "server.start()", "server.start(); server.need(False); time.sleep(1.0)"])
def test_neither_gazebo_nor_its_files_survive_a_killed_owner(gazebo, tmp_path, begin):
    folder = tmp_path / "run"
    owner = subprocess.Popen([
        sys.executable, "-c",
        "import os, shutil, sys, time\n"
        "from pathlib import Path\n"
        "from stretch_sim_cal.simulation.gazebo.processes import Server, own_partition\n"
        "environment = own_partition()\n"
        "from stretch_sim_cal.files import find_shared\n"
        f"server = Server({gazebo.program!r}, Path({str(folder)!r}), environment)\n"
        "shutil.copy(find_shared('worlds', 'single_wall', '.sdf'), server.world)\n"
        f"{begin}\n"
        "print(environment['GZ_PARTITION'], flush=True)\n"
        "time.sleep(60)\n",
    ], stdout=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip
    partition = owner.stdout.readline().strip()
    assert wait_until(lambda: len(processes_of(partition)) >= (2 if begin else 1)) and folder.is_dir()
    os.killpg(owner.pid, signal.SIGKILL)  # with all of its group, as a harness may
    owner.wait()
    assert wait_until(lambda: not processes_of(partition))
    assert not folder.exists()
    owner.stdout.close()


def test_gazebo_ends_with_the_process_that_watches_over_it(gazebo, tmp_path):
    with started(gazebo) as simulator:
        partition = os.environ["GZ_PARTITION"]
        kill(partition, "watch")
        with pytest.raises(RunFailure, match=r"watchdog of Gazebo was ended \(SIGKILL\) while simulating"):
            while True:
                simulator.joints.step(0.025)
    assert wait_until(lambda: not processes_of(partition))


def test_a_gazebo_that_dies_is_noticed_while_a_service_is_waited_for(tmp_path):
    """The real transport waits for a dead Gazebo's answer as long as it may."""
    (tmp_path / "patient_transport.py").write_text(
        "import time\nclass Node:\n    def request_raw(self, *arguments):\n        time.sleep(2)\n"
    )

    def died():
        raise RunFailure("Gazebo has died")

    commander = processes.Commander("patient_transport", {}, str(tmp_path), died)
    with pytest.raises(RunFailure, match="Gazebo has died"):
        commander.call("/service", b"", "gz.msgs.Empty", "gz.msgs.Boolean", timeout=2.0)
    commander.close()
