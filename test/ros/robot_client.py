"""A client of the robot's drivers, in a ROS graph of its own, for tests: hears topics, sends goals, calls services."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from control_msgs.action import FollowJointTrajectory
from node_process import PATIENCE, Graph, node_in
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectoryPoint

from stretch_sim_cal.harness.processes import own_domain

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
        """Return the next `count` messages on a topic."""
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
        """Return the simulated time (s)."""
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
        """Send a goal and return its handle."""
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
        """Call a service and return its response."""
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
    """Yield a client in a ROS domain."""
    with node_in(domain, "test_client") as (node, executor):
        yield RobotClient(node, executor)


@contextlib.contextmanager
def simulated_robot(folder: Path, *arguments: str) -> Iterator[tuple[Graph, RobotClient]]:
    """Yield a graph of its own, with a simulator with these arguments in it, and a client in the same domain."""
    with own_domain() as domain, robot_client(domain) as client:
        graph = Graph(domain, folder)
        with graph.simulator(*arguments):
            yield graph, client
