"""Nodes as real processes or in the test's own, and drivers, in a ROS graph of their own, for tests."""

import concurrent.futures
import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import fake_drivers
import numpy as np
import trimesh
import yaml

from stretch_sim_cal import programs
from stretch_sim_cal.harness.processes import isolated_environment
from stretch_sim_cal.robot.surfaces import Surface

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
"""How long (s) to wait for what comes by itself, however busy the machine is."""
SILENCE = 8
"""The time-out (s) of a node that shall hear some topics and miss another: on a busy machine it takes seconds until it
has found those that are there."""
SIMULATED_TIME = ("--ros-args", "-p", "use_sim_time:=true")


def slowly():
    """A context in which the joints of a simulator in this process move as slowly as they are told to: simulated time
    that passes 20 times faster leaves no time to do something on their way."""
    from stretch_sim_cal.ros import simulated_robot

    return mock.patch.object(simulated_robot, "BOUND_MOVING", 1.0)


def alone():
    """A context in which nobody asks whether another calibration moves the robot: until it would have been discovered
    takes seconds."""
    from stretch_sim_cal.ros.permission import SoleUse

    return mock.patch.object(SoleUse, "refuse_second", lambda use: None)


@dataclass
class Ended:
    """How a node ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that says why it failed."""
        lines = [line for line in self.err.splitlines() if line.startswith("error:")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err, self.err
        return lines[0]

    def assert_failed(self, code: int, *words: str) -> None:
        """Assert that it ended with this exit code, and that the one line that says why has all these words."""
        assert self.code == code, self.err
        assert all(each in self.error for each in words), self.error


@contextlib.contextmanager
def node_in(domain: int, name: str, **options):
    """Yield a node in a ROS domain, with a context of its own, and the executor that spins it."""
    import rclpy
    from rclpy.context import Context
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.node import Node

    from stretch_sim_cal.ros.node_main import leave

    context = Context()
    rclpy.init(context=context, domain_id=domain)
    node, executor = Node(name, context=context, **options), SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        yield node, executor
    finally:
        leave(executor, node)
        context.try_shutdown()


def of_tests(program: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments of a node, with the kind of lidars whose clouds the drivers of these tests send: a sensor
    without errors of its own."""
    calibrates = program in ("ros_align_dual_lidar", "ros_find_floor_calibration", "ros_calibrate_lidar_mounts")
    return ("--sensor", "jt128_sparse", *arguments) if calibrates else arguments


class Graph:
    """A ROS graph (domain) with a folder for the robot's files."""

    def __init__(self, domain: int, folder: Path):
        self.domain, self.folder = domain, folder
        self.environment = dict(os.environ) | isolated_environment(domain) | {
            "HELLO_FLEET_PATH": str(folder / "fleet"), "HELLO_FLEET_ID": "stretch-test", "HOME": str(folder),
            "ROS_LOG_DIR": str(folder / "log"),
            "PYTHONPATH": os.pathsep.join([str(PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip

    @property
    def calibration_file(self) -> Path:
        return self.folder / "fleet" / "stretch-test" / "calibration_dual_lidar" / "dual_lidar_calibration.yaml"

    def start(self, program: str, *arguments: str) -> subprocess.Popen:
        """Start a program as a process."""
        script = f"import sys; from stretch_sim_cal import programs; sys.exit(programs.{program}())"
        return self.start_script(script, *of_tests(program, arguments))

    def start_script(self, script: str, *arguments: str) -> subprocess.Popen:
        """Start a Python script as a process."""
        return subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment, cwd=self.folder,
        )  # fmt: skip

    def call(self, program: str, *arguments: str, code: int | None = None) -> Ended:
        """Run a node to its end in this process, which needs no seconds to start as one of its own does; assert with
        which exit code it ends, if one is given."""
        with mock.patch.dict(os.environ, self.environment), contextlib.chdir(self.folder), captured() as read:
            try:
                found = programs.main(program, of_tests(program, arguments))
            except SystemExit as left:  # argparse
                found = left.code
            ended = Ended(found, *read())
        assert code in (None, ended.code), ended.err
        return ended

    @contextlib.contextmanager
    def running(self, program: str, *arguments: str, ready: str) -> Iterator[subprocess.Popen]:
        """Run a node beside the test, from the line `ready` in its output on, until the end of the context."""
        process = self.start(program, *arguments)
        try:
            wait_for_line(process, ready)
            yield process
        finally:
            stop(process)

    @contextlib.contextmanager
    def simulator(self, *arguments: str) -> Iterator[Path]:
        """Run the simulator in a thread of this process, which needs no seconds to start as one of its own does; yield
        the file with its truth. `simulation` is then what it simulates."""
        from stretch_sim_cal.ros import simulator_node
        from stretch_sim_cal.ros.node_commands import SIMULATOR
        from stretch_sim_cal.ros.node_main import NodeContext
        from stretch_sim_cal.ros.options import read_parameters
        from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

        stopped, truth, simulation = [], self.folder / "truth.json", simulator_node._simulation
        parsed, _ = SIMULATOR.parse([*arguments, "--truth", str(truth)])
        declared = {"automatically_declare_parameters_from_overrides": True}

        def kept(*given):
            self.simulation = simulation(*given)
            return self.simulation

        # Its progress would stand in what a node of this process prints meanwhile, and time that nobody waits for would
        # take the processor from that node.
        quiet = mock.patch.multiple(simulator_node, REPORT_EVERY=math.inf, _simulation=kept)
        paced = mock.patch.object(EmbeddedSimulator, "idle_factor", 1.0)
        spun = node_in(self.domain, SIMULATOR.node_name, **declared)
        with quiet, paced, spun as (node, executor), concurrent.futures.ThreadPoolExecutor(1) as pool:
            options = read_parameters(node, SIMULATOR.options, parsed)
            running = pool.submit(
                simulator_node.run_simulation, NodeContext(node, executor, options, parsed),
                simulator_node.simulation_setup(options), lambda: contextlib.nullcontext(stopped),
            )  # fmt: skip
            try:
                while not (truth.exists() or running.done()):
                    time.sleep(0.02)
                yield truth
            finally:
                stopped.append(signal.SIGINT)
                running.result(timeout=PATIENCE)

    @contextlib.contextmanager
    def drivers(self, **faults) -> Iterator[None]:
        """Run the fake drivers in a thread of this process; `faults` are fields of `Drivers`."""
        stopped, pool = threading.Event(), concurrent.futures.ThreadPoolExecutor(1)
        with node_in(self.domain, "fake_drivers") as (node, _), pool:
            running = pool.submit(fake_drivers.publisher(fake_drivers.Drivers(**faults), node), stopped)
            try:
                yield
            finally:
                stopped.set()
                running.result(timeout=PATIENCE)


@contextlib.contextmanager
def obstacle(simulation, size: Sequence[float], place: Sequence[float]) -> Iterator[None]:
    """A box of this size (m) stands in the simulated world, its middle at a place (m)."""
    body = trimesh.creation.box(size, trimesh.transformations.translation_matrix(place))
    simulation.add_surface("obstacle", Surface(np.asarray(body.vertices), np.asarray(body.faces)))
    try:
        yield
    finally:
        simulation.add_surface("obstacle", None)


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], tuple[str, str]]]:
    """Yield what returns all that this process has written to stdout and stderr since, ROS included."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)]

        def read() -> tuple[str, str]:
            for file in files:
                file.flush()
                file.seek(0)
            return files[0].read(), files[1].read()

        for number, file in enumerate(files, start=1):
            before = os.dup(number)
            stack.callback(os.close, before)
            stack.callback(os.dup2, before, number)
            os.dup2(file.fileno(), number)
        stack.enter_context(contextlib.redirect_stdout(files[0]))
        stack.enter_context(contextlib.redirect_stderr(files[1]))
        yield read


def wait_for_line(process: subprocess.Popen, text: str, stream: str = "stdout") -> str:
    """Return the first line of the process's output that holds `text`; fails where it ends before."""
    for line in getattr(process, stream):
        if text in line:
            return line
    raise AssertionError(f"ended without '{text}': {process.stderr.read()}")


def end_of(process: subprocess.Popen, timeout: float = 3 * PATIENCE) -> Ended:
    """Wait until a process ends by itself."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        stop(process)
    return Ended(process.returncode, out, err)


DISPLAYED = {
    "PointCloud2": "sensor_msgs/msg/PointCloud2", "MarkerArray": "visualization_msgs/msg/MarkerArray",
    "Polygon": "geometry_msgs/msg/PolygonStamped",
}  # fmt: skip
"""What RViz's displays take, by class."""


def unseen_in_rviz(name: str, node) -> list[str]:
    """Return which displays of a file in rviz/ take nothing that is published now: another topic or type, or less than
    the quality of service that they ask for."""
    from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

    def takes(display: dict, offer) -> bool:
        asked, given = display["Topic"], offer.qos_profile
        return (
            offer.topic_type == DISPLAYED[display["Class"].rpartition("/")[2]]
            and (asked["Reliability Policy"] != "Reliable" or given.reliability == ReliabilityPolicy.RELIABLE)
            and (asked["Durability Policy"] == "Volatile" or given.durability == DurabilityPolicy.TRANSIENT_LOCAL)
        )

    manager = yaml.safe_load((PACKAGE_ROOT / "rviz" / f"{name}.rviz").read_text())["Visualization Manager"]
    displays = [display for display in manager["Displays"] if "Topic" in display]
    assert displays and manager["Global Options"]["Fixed Frame"] == "floor_plane"
    offers = {display["Name"]: node.get_publishers_info_by_topic(display["Topic"]["Value"]) for display in displays}
    return [each["Name"] for each in displays if not any(takes(each, offer) for offer in offers[each["Name"]])]


def stop(process: subprocess.Popen, number: int = signal.SIGINT) -> int:
    """End a process and return its exit code."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()
