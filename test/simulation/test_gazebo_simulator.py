"""The Gazebo simulator's processes, against a stand-in for Gazebo: what runs without it, and what is made of faults.

The stand-in speaks Gazebo's protocol with our own ray caster behind it, so these tests say nothing of Gazebo itself.
"""

import dataclasses
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError, RunFailure
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.gazebo import installation, processes, running
from stretch_sim_cal.simulation.gazebo.installation import Installation
from stretch_sim_cal.simulation.gazebo.simulator import GazeboSimulator
from stretch_sim_cal.simulation.setup import BaseError, PoseError, SimulationSetup

STAND_IN = Path(__file__).parent / "gazebo_stand_in"
SETUP = SimulationSetup(
    world="furnished_room",
    sensor=STAND_IN / "few_rays.yaml",
    lidar_left_error=PoseError((0.002, -0.001, 0.003), (0.007, -0.005, 0.009)),
    base_error=BaseError(0.003, 0.007, -0.005),
)


SETUP_NOISE = 0.001  # m; of few_rays.yaml


@pytest.fixture
def gazebo(monkeypatch, request):
    """An installed Gazebo, with the fault that a test asks for."""
    return installed(monkeypatch, getattr(request, "param", ""))


@pytest.fixture(scope="module")
def simulator():
    """A simulator for the tests that only look and move."""
    with pytest.MonkeyPatch.context() as monkeypatch, started(installed(monkeypatch, "casts_rays")) as simulator:
        yield simulator


def installed(monkeypatch, fault: str = "") -> Installation:
    monkeypatch.setenv("GZ_STAND_IN", fault)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), str(Path(__file__).parents[2])]))
    return Installation(str(STAND_IN / "gz"), "gz_stand_in_transport", "stand-in", has_cpu_lidar=True)


def started(gazebo: Installation, lidar: str = "auto") -> GazeboSimulator:
    return GazeboSimulator(SETUP, lidar, installation=gazebo)


def processes_of(partition: str) -> list[int]:
    """Return the processes that run in a partition."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"GZ_PARTITION={partition}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:  # ended meanwhile, or another user's
            continue
    return [number for number in found if number != os.getpid()]


def test_scans_lie_on_the_world_from_where_the_lidars_really_are(simulator):
    for _ in range(8):
        simulator.joints.step(0.025)
    embedded = EmbeddedSimulator(SETUP)
    assert simulator.ground_truth() == embedded.ground_truth()
    for side in ("left", "right"):
        points = simulator.scan(side, 0)
        base_from_lidar = embedded.base_from_lidar(side)
        in_base = xyz(points) @ base_from_lidar[:3, :3].T + base_from_lidar[:3, 3]
        floor = embedded.floor_in_base
        heights = in_base @ floor.normal + floor.offset
        on_floor = np.abs(heights) < 0.02
        assert on_floor.sum() > 100
        assert abs(np.mean(heights[on_floor])) < 1e-3
        assert simulator.start_time(side, 1) - simulator.start_time(side, 0) == pytest.approx(0.1)


def test_a_scan_s_noise_is_that_of_its_seed_side_and_number(simulator):
    for _ in range(12):
        simulator.joints.step(0.025)
    first, second = simulator.scan("left", 1), simulator.scan("left", 2)
    assert (simulator.scan("left", 1) == first).all()
    differences = np.linalg.norm(xyz(first), axis=1) - np.linalg.norm(xyz(second), axis=1)
    assert differences.std() == pytest.approx(np.sqrt(2.0) * simulator.sensor.range_noise, rel=0.05)


def test_joints_go_where_they_are_told(simulator):
    joints = simulator.joints
    assert joints.positions["wrist_yaw_joint"] == pytest.approx(3.14, abs=1e-3)
    joints.command({"lift_joint": 0.5, "arm_joint": 0.2})
    while joints.moving or joints.missing({"lift_joint": 0.5, "arm_joint": 0.2}):
        joints.step(0.025)
    assert joints.positions["lift_joint"] == pytest.approx(0.5, abs=1e-3)
    assert joints.joint_positions["arm_l3_joint"] == pytest.approx(0.05, abs=1e-3)
    with pytest.raises(InputError, match="limits"):
        joints.command({"lift_joint": 3.0})


def test_joints_come_back_from_their_limits(simulator):
    joints = simulator.joints
    for name, limit in joints.ranges.items():
        for target in (limit.lower, limit.upper, 0.5 * (limit.lower + limit.upper)):
            joints.command({name: target})
            while joints.moving:
                joints.step(0.025)
            joints.step(0.025)
            assert joints.missing({name: target}) == {}


def test_scans_are_cast_only_while_somebody_listens(simulator):
    scans_follow_who_listens(simulator)


def scans_follow_who_listens(simulator):
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
            joints.step(0.025)
            embedded.joints.step(0.025)
            assert joints.joint_positions == pytest.approx(embedded.joints.joint_positions, abs=1e-6)
            assert joints.joint_velocities == pytest.approx(embedded.joints.joint_velocities) or not joints.moving
    for _ in range(401):
        joints.step(0.025)
    simulator.listen(True)
    passed, steps = simulator.time - start, (simulator._world.time - stood) / 25e6
    for _ in range(16):
        joints.step(0.025)
    tick = math.floor((simulator.time - beat) / simulator.period) - 1
    begun = simulator.start_time("left", tick)
    assert begun <= simulator.scan("left", tick)["timestamp"].min() < begun + 0.5 * simulator.period
    assert passed > 10.0 and steps < 0.2 * passed / 0.025


def test_a_gazebo_that_is_not_needed_leaves_the_processor_alone(simulator):
    [gazebo] = [
        number for number in processes_of(os.environ["GZ_PARTITION"])
        if Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")[1].endswith(b"/gz")
    ]  # fmt: skip

    def stopped():
        return Path(f"/proc/{gazebo}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    simulator.listen(False)
    simulator.joints.step(2.5)
    assert wait_until(stopped)
    simulator.listen(True)
    simulator.joints.step(0.1)
    assert wait_until(lambda: not stopped())


def test_scans_come_from_when_somebody_listens_on_however_long_it_takes_to_subscribe(monkeypatch):
    monkeypatch.setenv("GZ_STAND_IN_SUBSCRIBES_AFTER", "0.15")
    with started(installed(monkeypatch, "casts_rays")) as simulator:
        scans_follow_who_listens(simulator)


@pytest.mark.parametrize("lidars, kinds", [
    ("left, right, mast", ["os0_32_sparse", "os0_32_sparse", "xt32_sparse"]),
    ("left", ["os0_32_sparse"]),
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
        for _ in range(8):
            simulator.joints.step(0.025)
        for name, kind in zip(lidars.split(", "), kinds, strict=True):
            sensor, points = load_sensor(kind), simulator.scan(name, 0)
            assert 0.1 < len(points) / (sensor.azimuth_steps * sensor.num_channels) <= 1.0
            assert points["ring"].max() < sensor.num_channels
            base_from_lidar = embedded.base_from_lidar(name)
            in_base = xyz(points) @ base_from_lidar[:3, :3].T + base_from_lidar[:3, 3]
            heights = in_base @ embedded.floor_in_base.normal + embedded.floor_in_base.offset
            on_floor = np.abs(heights) < 0.05
            assert on_floor.sum() > 100 and abs(np.mean(heights[on_floor])) < 0.002
        with pytest.raises(InputError, match="lidar 'top': use one of left"):
            simulator.scan("top", 0)


def off_the_surfaces(simulator: GazeboSimulator) -> float:
    """Return how far (median, in m along its ray) a scan's returns are from what the embedded ray caster sees."""
    for _ in range(8):
        simulator.joints.step(0.025)
    points = xyz(simulator.scan("left", 0))
    ranges = np.linalg.norm(points, axis=1)
    found = EmbeddedSimulator(SETUP).along("left", points / ranges[:, None])[0]
    off = np.abs(found - ranges)
    return float(np.median(off[off < 0.1]))  # the stand-in's lidars look through their collars


@pytest.mark.parametrize("gazebo", ["casts_rays", "other_texels", "turned_rays"], indirect=True)
def test_a_renderer_s_points_lie_on_the_surfaces_or_it_is_told(gazebo, request):
    fault = request.node.callspec.params["gazebo"]
    with started(gazebo, "gpu") as simulator:
        complaints = [line for line in simulator.warnings if "as it publishes them" in line]
        off = off_the_surfaces(simulator)
    noise = 0.6745 * SETUP_NOISE
    if fault == "casts_rays":
        assert complaints == [] and off < 1.1 * noise
        return
    assert len(complaints) == 2 and off > 1.5 * noise
    assert ("deg off the rays" if fault == "turned_rays" else "do not fit the texels' directions") in complaints[0]


@pytest.mark.parametrize("gazebo", ["unruly_joints"], indirect=True)
def test_joints_that_do_not_follow_and_controllers_that_do_not_listen_are_told(gazebo, capsys):
    with pytest.raises(RunFailure, match="/stretch/wrist_yaw_joint has no subscriber"), started(gazebo) as simulator:
        simulator.joints.command({"arm_joint": 0.2})
        while True:
            simulator.joints.step(0.1)
    told = [line for line in capsys.readouterr().err.splitlines() if "Gazebo's arm_joint is at 0.15" in line]
    assert len(told) == 1
    assert "+0.05" in told[0]


def test_a_lidar_whose_scans_fall_between_gazebo_s_steps_is_refused(gazebo, tmp_path):
    text = SETUP.sensor.read_text().replace("rate: 10.0", "rate: 15.0")
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(InputError, match="15 Hz.*multiple of 0.025 s"):
        GazeboSimulator(dataclasses.replace(SETUP, sensor=tmp_path / "odd.yaml"), installation=gazebo)


def test_a_rendering_lidar_needs_no_display(gazebo, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    harmonic = dataclasses.replace(gazebo, has_cpu_lidar=False)
    with started(harmonic) as simulator:
        assert simulator.lidar == "gpu"
        assert "sees visuals" in simulator.warnings[0]


@pytest.mark.parametrize("gazebo", ["loses_step", "goes_deaf", "lidars_go_deaf"], indirect=True)
def test_a_step_that_was_lost_and_messages_that_do_not_come_any_more_are_asked_for_again(gazebo, monkeypatch):
    monkeypatch.setattr(running, "STEP_LOST", 0.1)
    monkeypatch.setattr(running, "DEAF", 3.0)  # longer than a process takes to start on a busy machine
    with started(gazebo) as simulator:
        before = simulator.time
        for _ in range(24):
            simulator.joints.step(0.025)
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
        for _ in range(4):
            simulator.joints.step(0.025)
    raise AssertionError("no scans come any more")


def test_messages_come_again_after_the_process_that_takes_them_has_died(gazebo, monkeypatch):
    monkeypatch.setattr(running, "DEAF", 3.0)  # longer than a process takes to start on a busy machine
    with started(gazebo) as simulator:
        [listener] = [
            number for number in processes_of(os.environ["GZ_PARTITION"])
            if b"\0listen\0" in Path(f"/proc/{number}/cmdline").read_bytes()
        ]  # fmt: skip
        os.kill(listener, signal.SIGKILL)
        for _ in range(12):
            simulator.joints.step(0.025)
        steps_until_a_scan(simulator, tick=1)
    assert "subscribed anew, as nothing was heard" in simulator.notes[0]


def test_nothing_survives_the_end(gazebo):
    simulator = started(gazebo)
    partition = os.environ["GZ_PARTITION"]
    assert processes_of(partition)
    simulator.close()
    assert processes_of(partition) == []
    [note] = simulator.notes
    assert note.startswith("wall time in Gazebo: spawning, warming up and stowing") or "calls to step" in note


@pytest.mark.parametrize("gazebo", ["crash_at_end"], indirect=True)
def test_a_crash_at_gazebo_s_own_end_is_a_note_and_no_failure(gazebo):
    simulator = started(gazebo)
    simulator.close()
    assert "crashed at its own end (exit code 11)" in simulator.notes[-1]


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
    assert processes_of(os.environ["GZ_PARTITION"]) == []


@pytest.mark.parametrize("gazebo", ["mesh_missing"], indirect=True)
def test_what_gazebo_complains_of_and_goes_on_is_a_warning(gazebo):
    with started(gazebo) as simulator:
        assert any("cannot find the mesh" in warning for warning in simulator.warnings)


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
    assert wait_until(lambda: processes_of(partition) == [])
    assert not folder.exists()
    owner.stdout.close()


def test_gazebo_ends_with_the_process_that_watches_over_it(gazebo, tmp_path):
    with started(gazebo) as simulator:
        partition = os.environ["GZ_PARTITION"]
        [keeper] = [
            number for number in processes_of(partition) if b"\0watch\0" in Path(f"/proc/{number}/cmdline").read_bytes()
        ]
        os.kill(keeper, signal.SIGKILL)
        with pytest.raises(RunFailure, match=r"watches over Gazebo was ended \(SIGKILL\) while simulating"):
            while True:
                simulator.joints.step(0.025)
    assert wait_until(lambda: processes_of(partition) == [])


def test_a_gazebo_that_dies_is_noticed_while_a_service_is_waited_for(tmp_path):
    """The real transport waits for a dead Gazebo's answer as long as it may."""
    (tmp_path / "patient_transport.py").write_text(
        "import time\nclass Node:\n    def request_raw(self, *arguments):\n        time.sleep(600)\n"
    )

    def died():
        raise RunFailure("Gazebo has died")

    commander = processes.Commander("patient_transport", {}, str(tmp_path), died)
    with pytest.raises(RunFailure, match="Gazebo has died"):
        commander.call("/service", b"", "gz.msgs.Empty", "gz.msgs.Boolean", timeout=600.0)
    commander.close()


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
         f"--truth={tmp_path / 'truth.json'}", f"--record={tmp_path / 'recording'}", "--duration=1.0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "simulator ready" in output
    assert "10 left and 10 right clouds published" in output
    assert (tmp_path / "truth.json").is_file()
    assert "process group" in (tmp_path / "gz.log").read_text()


@pytest.mark.parametrize(
    "modules, module",
    [
        (["transport13"], "gz.transport13"),
        (["transport13", "transport15", "transport14"], "gz.transport15"),
        (["transport"], "gz.transport"),
        (["transport99", "transport14"], "gz.transport14"),
    ],
)
def test_bindings_of_every_known_generation_are_found(modules, module):
    assert installation.choose_bindings(modules)[0] == module


@pytest.mark.parametrize(
    "modules, told", [([], "bindings of its transport are not"), (["transport12"], "generation that is not known")]
)
def test_missing_and_unknown_bindings_are_named(modules, told):
    with pytest.raises(InputError, match=told):
        installation.choose_bindings(modules)


def test_what_ros_has_installed_is_found_although_python_does_not_look_there(monkeypatch, tmp_path):
    vendor = tmp_path / "opt" / "gz_transport_vendor" / "lib" / "python"
    (vendor / "gz" / "transport13").mkdir(parents=True)
    (vendor / "gz" / "transport13" / "__init__.py").write_text("")
    program = tmp_path / "opt" / "gz_tools_vendor" / "bin" / "gz"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    found = installation.find_gazebo()
    assert (found.generation, found.bindings, found.python_path) == ("Harmonic", "gz.transport13", str(vendor))
    assert not found.has_cpu_lidar
    plugins = tmp_path / "opt" / "gz_sim_vendor" / "lib" / "gz-sim-8" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "libgz-sim-cpu-lidar-system.so").write_text("")
    assert installation.find_gazebo().has_cpu_lidar


def test_without_gazebo_the_reason_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InputError, match="apt install"):
        installation.find_gazebo()


def test_the_lidar_is_chosen_by_what_gazebo_has():
    harmonic = Installation("gz", "gz.transport13", "Harmonic", has_cpu_lidar=False)
    assert harmonic.lidar("auto") == "gpu"
    with pytest.raises(InputError, match="no CPU lidar"):
        harmonic.lidar("cpu")
    assert Installation("gz", "gz.transport", "newer than Jetty", has_cpu_lidar=True).lidar("auto") == "cpu"


def wait_until(condition, seconds=60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
