"""Parameters take what people and launch files write, and name what cannot be meant; a signal ends a node."""

from types import SimpleNamespace

import pytest
import rclpy
from control_msgs.action import FollowJointTrajectory
from node_process import PATIENCE
from rclpy.action import ActionServer
from rclpy.executors import SingleThreadedExecutor

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.ros.node_main import NodeContext, in_node, leave
from stretch_sim_cal.ros.options import NodeCommand, Option, split_arguments

COUNT = Option("count", 10, "how many", minimum=1, maximum=100)
MARGIN = Option("margin", 0.05, "in m", minimum=0.0)
FLAG = Option("flag", False, "whether")
MODE = Option("mode", "slow", "how", choices=("slow", "fast"))
SIZE = Option("size", None, "voxels", kind=float)


@pytest.mark.parametrize(
    ("option", "given", "value"),
    [
        (COUNT, "7", 7), (COUNT, 7.0, 7), (COUNT, "1e2", 100), (MARGIN, 1, 1.0), (MARGIN, "0.1", 0.1),
        (FLAG, "True", True), (FLAG, False, False), (MODE, "fast", "fast"), (SIZE, "2", 2.0),
    ],
)  # fmt: skip
def test_values_are_understood(option, given, value):
    result = option.value(given)
    assert result == value and isinstance(result, option.type)


@pytest.mark.parametrize(
    ("option", "given", "named"),
    [
        (COUNT, "seven", "whole number"), (COUNT, 7.5, "whole number"), (COUNT, 0, "1 .. 100"), (COUNT, True, "whole"),
        (COUNT, "inf", "whole number"), (MARGIN, "nan", "a number"), (MARGIN, -1.0, "0 and above"),
        (MARGIN, [1.0], "a number"), (FLAG, "maybe", "true or false"), (MODE, "medium", "slow, fast"),
    ],
)  # fmt: skip
def test_other_values_are_named_with_the_parameter(option, given, named):
    with pytest.raises(InputError, match=f"parameter {option.name}: .*{named}"):
        option.value(given)


def test_arguments_for_ros_are_told_from_our_own():
    own, for_ros = split_arguments(
        ["FILE", "--num_samples=3", "--ros-args", "-p", "a_b:=1", "--", "--json", "--ros-args", "-r", "__node:=x"]
    )
    assert own == ["FILE", "--num-samples=3", "--json"]
    assert for_ros == ["--ros-args", "-p", "a_b:=1", "--", "--ros-args", "-r", "__node:=x"]


@pytest.mark.parametrize(("signals", "raised"), [([2], KeyboardInterrupt), ([], RuntimeError)])
def test_a_signal_while_the_bindings_convert_an_argument_ends_the_node(signals, raised):
    pending = list(signals)

    def spin_once(timeout_sec):
        context._signals.received.extend(pending)
        raise RuntimeError("Unable to convert call argument '0' to Python object")

    context = NodeContext(None, SimpleNamespace(spin_once=spin_once), SimpleNamespace(), None)
    with pytest.raises(raised):
        context.spin_once()


def test_a_node_that_cannot_start_leaves_the_ros_of_its_process_running(ros):
    with pytest.raises(InputError, match="ROS arguments"):
        in_node(NodeCommand("second", "second", "", ""), lambda context: None)
    assert ros.context.node.context.ok()


def test_a_node_that_ends_takes_its_actions_off_the_network(ros):
    node, executor = rclpy.create_node("arm_driver"), SingleThreadedExecutor()
    executor.add_node(node)
    server = ActionServer(node, FollowJointTrajectory, "/follow_joint_trajectory", lambda _: None)
    executor.spin_once(timeout_sec=0.1)

    def offered(expected: int) -> bool:
        return ros.drivers.count_services("/follow_joint_trajectory/_action/send_goal") == expected

    assert ros.context.spin_until(lambda: offered(1), timeout=PATIENCE)
    leave(executor, node)
    assert ros.context.spin_until(lambda: offered(0), timeout=PATIENCE)
    assert server is not None  # not collected as garbage until here
