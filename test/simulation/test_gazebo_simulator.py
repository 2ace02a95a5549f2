"""The Gazebo simulator, and what it makes of processes that misbehave or die, against a stand-in: it speaks Gazebo's
protocol with our own ray caster behind it, so these tests show nothing of Gazebo itself."""

import dataclasses
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from stand_in import NOISE, SETUP, installed, processes_of, started, steps, wait_until

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError, RunFailure
from stretch_sim_cal.geometry.transforms import apply, from_xyz_rpy
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.gazebo import processes, running
from stretch_sim_cal.simulation.gazebo.simulator import GazeboSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

pytestmark = pytest.mark.slow


@pytest.fixture
def gazebo(monkeypatch, request, tmp_path):
    """An installed Gazebo, with the fault that a test asks for. However it ends, no temporary file is left."""
    temporary = tmp_path / "t"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield installed(monkeypatch, getattr(request, "param", ""))
    assert not list(temporary.iterdir())


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


@pytest.mark.parametrize("gazebo", ["loses_step", "lidars_go_deaf"], indirect=True)
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
        ("crashes", r"Gazebo ended \(SIGABRT\) while .*: free\(\): invalid pointer$"),
    ],
    indirect=["gazebo"],
)
def test_what_goes_wrong_is_named_in_gazebo_s_own_words(gazebo, told):
    with pytest.raises(RunFailure, match=told):
        started(gazebo)
    assert not processes_of(os.environ["GZ_PARTITION"])


@pytest.mark.parametrize("begin", ["server.start()", "server.start(); server.need(False); time.sleep(1.0)"])
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
    assert wait_until(lambda: len(processes_of(partition)) >= 2) and folder.is_dir()
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


@pytest.fixture(scope="module")
def shared():
    """A simulator that renders, for the tests that only look and move, and its partition: later ones have others."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("DISPLAY", raising=False)
        gazebo = dataclasses.replace(installed(monkeypatch, "casts_rays"), has_cpu_lidar=False)
        with started(gazebo) as simulator:
            yield simulator, os.environ["GZ_PARTITION"]


@pytest.fixture(scope="module")
def simulator(shared):
    return shared[0]


def height_of_floor(embedded, lidar, scan, within):
    """Return how far (m, mean) a scan's returns from the floor are from the true one."""
    heights = embedded.floor_in_base.distance(apply(embedded.base_from_lidar(lidar), xyz(scan)))
    on_floor = np.abs(heights) < within
    assert on_floor.sum() > 100
    return abs(heights[on_floor].mean())


def test_scans_lie_on_the_world_from_where_the_lidars_really_are(simulator):
    steps(simulator, 8)
    embedded = EmbeddedSimulator(SETUP)
    assert simulator.ground_truth() == embedded.ground_truth()
    assert simulator.lidar == "gpu" and "sees visuals" in simulator.warnings[0]
    assert not [line for line in simulator.warnings if "as published" in line]
    for side in ("left", "right"):
        assert height_of_floor(embedded, side, simulator.scan(side, 0), 0.02) < 1e-3
        assert simulator.start_time(side, 1) - simulator.start_time(side, 0) == pytest.approx(0.1)


def test_a_scan_s_noise_is_that_of_its_seed_side_and_number(simulator):
    steps(simulator, 12)
    first, second = simulator.scan("left", 1), simulator.scan("left", 2)
    assert (simulator.scan("left", 1) == first).all()
    differences = np.linalg.norm(xyz(first), axis=1) - np.linalg.norm(xyz(second), axis=1)
    assert differences.std() == pytest.approx(np.sqrt(2.0) * simulator.sensor.range_noise, rel=0.05)


def test_joints_come_back_from_their_limits(gazebo):
    with started(gazebo) as simulator:
        joints = simulator.joints
        for share in (0.0, 1.0, 0.5):
            targets = {name: limit.lower + share * (limit.upper - limit.lower) for name, limit in joints.ranges.items()}
            joints.command(targets)
            while joints.moving:
                joints.step(0.025)
            joints.step(0.025)
            assert joints.missing(targets) == {}


def test_time_passes_in_pieces_while_nobody_listens(simulator):
    """Joints are where they are led to in every step, scans are on their beat afterwards, and
    Gazebo has taken few steps."""
    joints, embedded = simulator.joints, EmbeddedSimulator(SETUP)
    beat = simulator.start_time("left", 0)
    simulator.listen(False)
    start, stood = simulator.time, simulator._world.time
    embedded.joints.place(joints.positions)
    for target in ({"arm_joint": 0.31}, {"wrist_yaw_joint": 1.0, "lift_joint": 0.7}):
        joints.command(target)
        embedded.joints.command(target)
        while embedded.joints.moving or joints.missing(target):
            steps(simulator, 1)
            embedded.joints.step(0.025)
            assert joints.joint_positions == pytest.approx(embedded.joints.joint_positions, abs=1e-6)
            assert joints.joint_velocities == pytest.approx(embedded.joints.joint_velocities) or not joints.moving
    steps(simulator, 401)
    simulator.listen(True)
    passed, taken = simulator.time - start, (simulator._world.time - stood) / 25e6
    steps(simulator, 16)
    tick = math.floor((simulator.time - beat) / simulator.period) - 1
    begun = simulator.start_time("left", tick)
    assert begun <= simulator.scan("left", tick)["timestamp"].min() < begun + 0.5 * simulator.period
    assert passed > 10.0 and taken < 0.2 * passed / 0.025


def drive(simulator, twist, seconds):
    """Command a twist for so long, let the base come to rest, and half a second more pass."""
    for _ in range(round(seconds / 0.1)):
        simulator.driving.command(*twist)
        steps(simulator, 4)
    simulator.driving.stop()
    while simulator.driving.moving:
        steps(simulator, 1)
    steps(simulator, 20)


def scans(simulator, count):
    """Let time pass, and return so many scans of both lidars that begin from now on, as they come."""
    taken = []
    tick = math.ceil((simulator.time - simulator.start_time("left", 0)) / simulator.period - 1e-6)
    while len(taken) < count:
        steps(simulator, 1)
        if last_tick(simulator) >= tick + len(taken):
            taken.append([simulator.scan(side, tick + len(taken)) for side in ("left", "right")])
    return taken


def test_scans_that_gazebo_leaves_out_are_cast_again_and_the_same_also_of_a_base_that_it_leads_late(monkeypatch):
    seen = {}
    for fault in ("", "takes_late leaves_out"):
        with started(installed(monkeypatch, f"casts_rays {fault}")) as simulator:
            still = scans(simulator, 3)
            simulator.listen(False)
            steps(simulator, 7)
            simulator.listen(True)
            still += scans(simulator, 3)
            stood = simulator.time
            simulator.driving.command(0.25, 0.1, 0.5)
            seen[fault] = still, stood, scans(simulator, 6)
            assert np.linalg.norm(simulator.driving.poses(np.array([simulator.driving.now]))[0][:2, 3]) > 0.03
    (expected, then, led), (found, time_again, led_late) = seen.values()
    assert time_again == then
    for once, again in zip(expected, found, strict=True):
        assert all((one == other).all() for one, other in zip(once, again, strict=True))
    for once, again in zip(led, led_late, strict=True):
        for one, other in zip(once, again, strict=True):
            np.testing.assert_allclose(xyz(other), xyz(one), atol=1e-5)


def last_tick(simulator):
    return math.floor((simulator.time - simulator.start_time("left", 0)) / simulator.period + 1e-6) - 1


def off_the_world(simulator, tick):
    """Return how far (median, in m along its ray) the left scan's returns are from what the embedded ray caster sees
    from where the base truly was when the scan began, which is the time of all of them."""
    embedded, scan, start = EmbeddedSimulator(SETUP), simulator.scan("left", tick), simulator.start_time("left", tick)
    embedded.joints.place(simulator.joints.positions)
    assert (scan["timestamp"] == start).all()
    embedded.move_base(simulator.driving.poses(np.array([start]))[0])
    points = xyz(scan)
    ranges = np.linalg.norm(points, axis=1)
    off = np.abs(embedded.along("left", points / ranges[:, None])[0] - ranges)
    return float(np.median(off[off < 0.1]))  # the stand-in's lidars look through their collars


def test_a_base_drives_and_scans_are_from_where_it_truly_is_also_on_the_move_and_after_a_push(simulator):
    def assert_right(tick):
        assert off_the_world(simulator, tick) < 1.2 * 0.6745 * NOISE

    simulator.listen(True)
    drive(simulator, (0.25, 0.1, 0.5), 1.0)
    pose = simulator.driving.poses(np.array([simulator.driving.now]))[0]
    assert np.linalg.norm(pose[:2, 3]) > 0.1 and math.atan2(pose[1, 0], pose[0, 0]) > 0.2
    assert_right(last_tick(simulator))
    simulator.driving.command(0.25, 0.0, 0.5)
    steps(simulator, 12)
    start = simulator.start_time("left", last_tick(simulator))
    assert not simulator.driving.is_still(start, start + simulator.period)
    assert_right(last_tick(simulator))
    drive(simulator, (0.0, 0.0, 0.0), 0.1)
    last = last_tick(simulator)
    simulator.move_base(from_xyz_rpy((-0.5, 0.3, 0.0), (0.0, 0.0, 2.5)))
    assert_right(last)
    steps(simulator, 8)
    assert_right(last_tick(simulator))


@pytest.mark.parametrize("gazebo", ["wedged_base"], indirect=True)
def test_a_base_that_gazebo_does_not_move_is_no_base_that_stands_where_it_was_led(gazebo):
    with started(gazebo) as simulator:
        steps(simulator, 8)
        assert simulator.scan("left", 0) is not None
        drive(simulator, (0.2, 0.0, 0.0), 1.0)
        steps(simulator, 40)
        with pytest.raises(RunFailure, match=r"base is \+0\.\d+ m, .*short of its commanded pose"):
            simulator.scan("left", last_tick(simulator))


def test_a_robot_without_wheels_can_not_be_pushed(gazebo):
    setup = SimulationSetup.from_mapping({"robot": "two_lidar_manipulator", "sensor": str(SETUP.sensor)})
    with GazeboSimulator(setup, installation=gazebo) as simulator:
        assert simulator.driving is None
        with pytest.raises(InputError, match="fixed to Gazebo's world"):
            simulator.move_base(np.eye(4))


def test_a_gazebo_that_is_not_needed_is_stopped(shared):
    simulator, partition = shared
    [gazebo] = [number for number, words in processes_of(partition).items() if words[1].endswith("/gz")]

    def stopped():
        return Path(f"/proc/{gazebo}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    simulator.listen(False)
    simulator.joints.step(2.5)
    assert wait_until(stopped)
    simulator.listen(True)
    simulator.joints.step(0.1)
    assert wait_until(lambda: not stopped())


def test_scans_are_cast_while_somebody_listens_however_long_it_takes_to_subscribe(monkeypatch):
    monkeypatch.setenv("GZ_STAND_IN_SUBSCRIBES_AFTER", "0.15")
    with started(installed(monkeypatch)) as simulator:

        def scan(begun):
            """Return the first scan that began at or after a time, when it has."""
            tick = math.ceil((begun - simulator.start_time("left", 0)) / simulator.period - 1e-6)
            while simulator.time < simulator.start_time("left", tick) + simulator.period - 1e-6:
                simulator.joints.step(0.025)
            return simulator.scan("left", tick)

        assert scan(simulator.time) is not None
        simulator.listen(False)
        assert scan(simulator.time + 0.2) is None
        simulator.listen(True)
        assert scan(simulator.time - 0.1) is None
        later = simulator.time + 0.2
        points = scan(later)
        assert later - 1e-6 <= points["timestamp"].min() < later + 0.11


@pytest.mark.parametrize("lidars, kinds", [
    ("left, right, mast", ["os0_32_sparse", "os0_32_sparse", "xt32_sparse"]),
    pytest.param("left", ["os0_32_sparse"], marks=pytest.mark.long),
])  # fmt: skip
def test_robots_may_have_any_number_of_lidars_and_each_its_own_kind(monkeypatch, tmp_path, lidars, kinds):
    share = files.share_directory()
    profile = files.read_yaml(share / "config/robots/three_lidar_amr.yaml")
    profile["description"]["file"] = str(share / "models/three_lidar_amr.urdf.xacro")
    profile["lidars"] = {
        name: profile["lidars"][name] | {"sensor": str(kind)}
        for name, kind in zip(lidars.split(", "), kinds, strict=True)
    }
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(profile))
    setup = SimulationSetup.from_mapping({"robot": str(tmp_path / "robot.yaml"), "world": "furnished_room"})
    embedded = EmbeddedSimulator(setup)
    with GazeboSimulator(setup, "cpu", installation=installed(monkeypatch, "casts_rays")) as simulator:
        steps(simulator, 8)
        for name, kind in zip(lidars.split(", "), kinds, strict=True):
            sensor, points = load_sensor(kind), simulator.scan(name, 0)
            assert 0.1 < len(points) / (sensor.azimuth_steps * sensor.num_channels) <= 1.0
            assert points["ring"].max() < sensor.num_channels
            assert height_of_floor(embedded, name, points, 0.05) < 0.002
        with pytest.raises(InputError, match="lidar 'top': use one of left"):
            simulator.scan("top", 0)


@pytest.mark.parametrize(
    ("gazebo", "told"),
    [
        ("other_texels", "do not fit the texels' directions"),
        pytest.param("turned_rays", "deg off the rays", marks=pytest.mark.long),
    ],
    indirect=["gazebo"],
)
def test_rendered_points_off_the_surfaces_are_a_warning(gazebo, told):
    with started(dataclasses.replace(gazebo, has_cpu_lidar=False)) as simulator:
        complaints = [line for line in simulator.warnings if "as published" in line]
        steps(simulator, 8)
        assert off_the_world(simulator, 0) > 1.5 * 0.6745 * NOISE
    assert len(complaints) == 2 and told in complaints[0]


def test_a_lidar_whose_scans_fall_between_gazebo_s_steps_is_refused(gazebo, tmp_path):
    text = SETUP.sensor.read_text().replace("rate: 10.0", "rate: 15.0")
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(InputError, match="15 Hz.*multiple of 0.025 s"):
        GazeboSimulator(dataclasses.replace(SETUP, sensor=tmp_path / "odd.yaml"), installation=gazebo)


def test_the_simulator_process_looks_the_same_with_gazebo(gazebo, tmp_path):
    """A launcher puts the stand-in where Gazebo would be; the process publishes, and ends with 0."""
    pytest.importorskip("rclpy")
    launcher = (
        "import sys\n"
        "from stretch_sim_cal.simulation.gazebo import installation, simulator\n"
        f"found = installation.Installation({gazebo.program!r}, {gazebo.bindings!r}, 'stand-in', True)\n"
        "simulator.find_gazebo = lambda: found\n"
        "from stretch_sim_cal import programs\n"
        "sys.exit(programs.stretch_simulator())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", launcher, "--simulator=gazebo", "--world=furnished_room", f"--sensor={SETUP.sensor}",
         f"--truth={tmp_path / 'truth.json'}", f"--record={tmp_path / 'recording'}", "--duration=0.5"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "simulator ready" in output
    assert "5 left and 5 right clouds published" in output
    assert (tmp_path / "truth.json").is_file()
    assert "process group" in (tmp_path / "gz.log").read_text()
