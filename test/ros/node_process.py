"""A ROS graph of a test's own: nodes as processes or in the test's own, drivers, and a client of these."""

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
from typing import Any
from unittest import mock

import fake_drivers
import numpy as np
import rclpy
import trimesh
import yaml
from control_msgs.action import FollowJointTrajectory
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.action import ActionClient
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectoryPoint

from stretch_sim_cal import programs
from stretch_sim_cal.harness.processes import isolated_environment, own_domain
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.ros import simulator_node
from stretch_sim_cal.ros.node_commands import SIMULATOR
from stretch_sim_cal.ros.node_main import NodeContext, leave
from stretch_sim_cal.ros.options import read_parameters
from stretch_sim_cal.ros.permission import SoleUse
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
FEW_RAYS, FEW_RAYS_AMR = (str(Path(__file__).with_name(f"few_rays{robot}.yaml")) for robot in ("", "_amr"))
"""The sensors of a Stretch and of a mobile robot that are quick to cast and to calibrate."""
PATIENCE = 120.0
"""How long (s) to wait for what comes by itself, however busy the machine is."""
SILENCE = 8
"""The time-out (s) of a node that shall hear some topics and miss another: on a busy machine it takes seconds until it
has found those that are there."""
SIMULATED_TIME = ("--ros-args", "-p", "use_sim_time:=true")


def slowly():
    """A context in which the joints of a simulator in this process move as slowly as they are told to: simulated time
    that passes 20 times faster leaves no time to do something on their way."""
    return mock.patch("stretch_sim_cal.ros.simulated_robot.BOUND_MOVING", 1.0)


def alone():
    """A context in which nobody asks whether another calibration moves the robot: until it would have been discovered
    takes seconds."""
    return mock.patch.object(SoleUse, "refuse_second", lambda use: None)


@dataclass
class Ended:
    """How a node ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
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
        script = f"import sys; from stretch_sim_cal import programs; sys.exit(programs.{program}())"
        return self.start_script(script, *of_tests(program, arguments))

    def start_script(self, script: str, *arguments: str) -> subprocess.Popen:
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
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


DRIVER = "stretch_simulator"


def seconds(stamp) -> float:
    return stamp.sec + 1e-9 * stamp.nanosec


class RobotClient:
    """One node; every call spins it until what it waits for is there, and fails where it does not come."""

    def __init__(self, node: Node, executor: SingleThreadedExecutor):
        self.node = node
        self._executor = executor
        self._action = ActionClient(node, FollowJointTrajectory, "/follow_joint_trajectory")
        self.feedback: list = []
        self.positions: dict[str, float] = {}
        node.create_subscription(JointState, "/joint_states", self._take, 10)

    def _take(self, message) -> None:
        self.positions |= zip(message.name, message.position, strict=False)

    def spin_until(self, condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what or condition} did not come"
            self._executor.spin_once(timeout_sec=0.1)

    def spin_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._executor.spin_once(timeout_sec=0.02)

    def take(self, kind: type, topic: str, count: int = 1, latched: bool = False) -> list:
        messages: list = []
        durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
        profile = QoSProfile(depth=max(10, count), durability=durability)
        subscription = self.node.create_subscription(kind, topic, messages.append, profile)
        self.spin_until(lambda: len(messages) >= count, topic)
        self.node.destroy_subscription(subscription)
        return messages[:count]

    def latest(self, **topics) -> dict:
        """Return a dictionary in which the latest message of each topic (by its type) is kept under its name."""
        heard: dict = {}
        for topic, kind in topics.items():
            self.node.create_subscription(kind, f"/{topic}", lambda m, topic=topic: heard.update({topic: m}), 5)
        return heard

    def time(self) -> float:
        return seconds(self.take(Clock, "/clock")[0].clock)

    def _meet(self, node: str = DRIVER) -> None:
        """Return when a node, by default the driver, knows all of this one: what is asked before that is lost. It comes
        to know a node's parts in the order in which they were made, so what answers the last one knows all."""
        client = self.node.create_client(GetParameters, f"/{node}/get_parameters")
        self.spin_until(client.service_is_ready, f"parameters of {node}")
        asked: list = []

        def answered() -> bool:
            if time.monotonic() > began + len(asked):
                asked.append(client.call_async(GetParameters.Request(names=["use_sim_time"])))
            return any(answer.done() for answer in asked)

        began = time.monotonic()
        self.spin_until(answered, f"an answer of {node}")
        self.node.destroy_client(client)

    def send(self, names: list[str], *points, velocities: list[float] | None = None):
        self.spin_until(self._action.server_is_ready, "the action")
        self._meet()
        goal = FollowJointTrajectory.Goal()
        goal.trajectory.joint_names = names
        goal.trajectory.points = [JointTrajectoryPoint(positions=p, velocities=velocities or []) for p in points]
        sent = self._action.send_goal_async(goal, feedback_callback=lambda m: self.feedback.append(m.feedback))
        self.spin_until(sent.done, "the answer to a goal")
        return sent.result()

    def result(self, handle):
        """Return (status, error_code, error_string) of an accepted goal."""
        asked = handle.get_result_async()
        self.spin_until(asked.done, "a goal's result")
        return asked.result().status, asked.result().result.error_code, asked.result().result.error_string

    def cancel(self, handle) -> None:
        canceled = handle.cancel_goal_async()
        self.spin_until(canceled.done, "a cancel's answer")

    def call(self, kind: type, service: str, **request):
        client = self.node.create_client(kind, service)
        self.spin_until(client.service_is_ready, service)
        _, first, *further = service.split("/")
        self._meet(first if further else DRIVER)
        asked = client.call_async(kind.Request(**request))
        self.spin_until(asked.done, service)
        self.node.destroy_client(client)
        return asked.result()

    def set_mode(self, mode: str):
        return self.set("mode", mode)

    def set(self, name: str, value: object, node: str = DRIVER):
        """Set a parameter of a node, by default the simulator, and return what came of it."""
        parameter = Parameter(name, value=value).to_parameter_msg()
        return self.call(SetParameters, f"/{node}/set_parameters", parameters=[parameter]).results[0]


@contextlib.contextmanager
def robot_client(domain: int) -> Iterator[RobotClient]:
    with node_in(domain, "test_client") as (node, executor):
        yield RobotClient(node, executor)


@contextlib.contextmanager
def simulated_robot(folder: Path, *arguments: str) -> Iterator[tuple[Graph, RobotClient]]:
    """Yield a graph of its own, with a simulator with these arguments in it, and a client in the same domain."""
    with own_domain() as domain, robot_client(domain) as client:
        graph = Graph(domain, folder)
        with graph.simulator(*arguments):
            yield graph, client
