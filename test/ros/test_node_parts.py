"""Parts of nodes: parameters, signals, questions, the watchdog, and the pace of simulated time."""

import contextlib
import io
import os
from types import SimpleNamespace

import numpy as np
import pytest
import rclpy
from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionServer
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Bool, String

from stretch_sim_cal.cli import main
from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.ros import live
from stretch_sim_cal.ros.node_commands import SIMULATOR
from stretch_sim_cal.ros.node_main import NodeContext, in_node, leave
from stretch_sim_cal.ros.options import NodeCommand, Option, declare, follow_changes, split_arguments
from stretch_sim_cal.ros.permission import SoleUse, ask, check_driver
from stretch_sim_cal.ros.simulator_node import Pace, simulation_setup
from stretch_sim_cal.ros.watchdog import Watchdog

COUNT = Option("count", 10, "how many", minimum=1, maximum=100)
MARGIN = Option("margin", 0.05, "in m", minimum=0.0)
FLAG = Option("flag", False, "whether")
MODE = Option("mode", "slow", "how", choices=("slow", "fast"))
SIZE = Option("size", None, "voxels", kind=float)
FRAME = Option("base_link_frame", "base_link", "frame")


def test_values_are_understood_and_others_named_with_the_parameter():
    for option, given, value in (
        (COUNT, "7", 7), (COUNT, 7.0, 7), (COUNT, "1e2", 100), (MARGIN, 1, 1.0), (FLAG, "True", True),
        (FLAG, False, False), (MODE, "fast", "fast"), (SIZE, "2", 2.0), (FRAME, "/base", "base"),
    ):  # fmt: skip
        result = option.value(given)
        assert result == value and isinstance(result, option.type), given
    for option, given, named in (
        (COUNT, 7.5, "whole number"), (COUNT, 0, "1 .. 100"), (COUNT, True, "whole"), (COUNT, "inf", "whole number"),
        (MARGIN, "nan", "a number"), (MARGIN, -1.0, "0 and above"), (MARGIN, [1.0], "a number"),
        (FLAG, "maybe", "true or false"), (MODE, "medium", "slow, fast"),
    ):  # fmt: skip
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

    ros.until(lambda: offered(1))
    leave(executor, node)
    ros.until(lambda: offered(0))
    assert server is not None  # not collected as garbage until here


@pytest.mark.parametrize(
    ("topic", "value", "why"),
    [
        ("/is_runstopped", True, "the runstop is on"), ("/is_homed", False, "has not been homed"),
        ("/mode", "velocity", "mode is 'velocity', it has to be position .*ros2 param set /drivers mode"),
    ],
)  # fmt: skip
def test_what_a_driver_published_once_before_is_known(ros, topic, value, why):
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    for name, state in ({"/is_runstopped": False, "/is_homed": True, "/mode": "position"} | {topic: value}).items():
        kind = String if name == "/mode" else Bool
        ros.drivers.create_publisher(kind, name, latched).publish(kind(data=state))
    with pytest.raises(Refused, match=why):
        check_driver(ros.context)


@pytest.mark.parametrize(("answer", "agreed"), [("yes\n", True), ("no\n", False)])
def test_a_question_leaves_standard_output_to_results(answer, agreed, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    with contextlib.nullcontext() if agreed else pytest.raises(Refused):
        ask(SimpleNamespace(yes=False), "Go?")
    asked = capsys.readouterr()
    assert (asked.out, asked.err) == ("", "Go? [yes/no] ")


@pytest.mark.parametrize(("apart", "verdict"), [(0.01, live.READY), (0.09, live.MISSING)])
def test_the_doctor_has_one_verdict_on_the_clocks_of_both_lidars(apart, verdict):
    said, starts = [], 0.2 * np.arange(6)
    seen = {
        name: SimpleNamespace(period=0.2, starts=starts + late, lines=["of a kind"])
        for name, late in (("left", 0.0), ("right", apart))
    }
    looking = SimpleNamespace(_sensor=lambda name, _: seen[name], _say=lambda *words: said.append(words))
    live._Looking._signatures(looking, [SimpleNamespace(messages=seen)])
    assert [(name, found) for name, found, line in said if "sync" in line] == [("clocks", verdict)]
    assert sum(name == "sensor" for name, *_ in said) == 2


def test_a_parameter_of_somebody_else_changes_nothing(ros):
    """To set a simulated driver's mode turned a robot that had driven back to where it began."""
    heading, values, seen = SIMULATOR.option("heading"), SimpleNamespace(), []
    declare(ros.drivers, heading, 0.0)
    ros.drivers.declare_parameter("other", 1)
    follow_changes(ros.drivers, [heading], values, lambda: seen.append(values.heading))
    ros.drivers.set_parameters([Parameter("other", value=2)])
    assert not seen
    ros.drivers.set_parameters([Parameter("heading", value=10.0)])
    assert seen == [10.0]


def test_a_part_that_another_calibration_moved_is_free_once_that_has_ended(ros):
    use = SoleUse(ros.context, "arm", "/act")
    with SoleUse(SimpleNamespace(node=ros.drivers, discovers=lambda _: False), "arm", "/act").held():
        for _ in range(2):
            with pytest.raises(InputError, match="another calibration is moving the arm"):
                use.refuse_second()
    ros.until(lambda: ros.context.node.count_publishers("/act/in_use_by_calibration") == 0)
    with use.held():
        pass


def test_simulated_time_waits_for_the_wall_and_lost_time_is_not_caught_up_in_a_burst():
    wall = SimpleNamespace(time=100.0)
    pace = Pace(lambda: wall.time)
    assert pace.wait(0.0, 2.0) == 0.0
    assert pace.wait(1.0, 2.0) == pytest.approx(0.5)
    wall.time += 0.5
    assert pace.wait(1.0, 2.0) == 0.0
    assert pace.wait(2.0, 10.0) == pytest.approx(0.1)  # a change of factor counts from then on
    wall.time += 30.0
    assert pace.wait(2.1, 10.0) == 0.0
    assert pace.wait(3.1, 10.0) == pytest.approx(0.1)


def setup_of(*arguments):
    parsed = vars(SIMULATOR.parser().parse_args(arguments))
    values = {
        option.name: option.default if parsed[option.name] is None else option.value(parsed[option.name])
        for option in SIMULATOR.options
    }
    return simulation_setup(SimpleNamespace(**values))


def test_files_on_the_command_line_are_those_of_the_working_directory(tmp_path, monkeypatch):
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("simulation: {world: lab.sdf}")
    (tmp_path / "lab.sdf").touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert setup_of("--scenario", str(scenario)).world == str(tmp_path / "lab.sdf")
    given = "--world", "lab, 2nd floor.sdf", "--sensor", "own.yaml,jt128", "--real-time-factor", "0.5"
    setup = setup_of("--scenario", str(scenario), *given)
    assert setup.world == str(tmp_path / "here" / "lab, 2nd floor.sdf") and setup.real_time_factor == 0.5
    assert setup.sensor == f"{tmp_path / 'here' / 'own.yaml'},jt128"


def test_options_take_the_place_of_what_the_scenario_says_units_and_driver_one_by_one(tmp_path):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "simulation: {world: tables, seed: 4, base_error: {height: 0.01}, lidar_left_error: {xyz: [0.5, 0, 0]}, "
        "lidar_errors: {right: {xyz: [0, 0, 0.02]}}, units: {left: left.yaml, right: right.yaml}, "
        "driver: {firing_time_correction: true}}"
    )
    setup = setup_of(
        "--scenario", str(scenario), "--seed", "9", "--lidar-left-error", "0.01,0,0,1,2,3", "--left-unit", "mine.yaml",
        "--unit-seed", "3", "--distance-correction", "true",
    )  # fmt: skip
    assert (setup.world, setup.seed, setup.base_error.height) == ("tables", 9, 0.01)
    assert {name: error.xyz for name, error in setup.lidar_errors.items()} == {
        "left": (0.01, 0, 0),
        "right": (0, 0, 0.02),
    }
    assert setup.units == {"left": os.path.abspath("mine.yaml"), "right": "right.yaml"} and setup.unit_seed == 3
    assert setup.driver == {"firing_time_correction": True, "distance_correction": True}


@pytest.mark.parametrize("joined", [True, False])
def test_numbers_that_begin_with_a_minus_sign_need_no_equals_sign(joined, monkeypatch):
    asked = []
    monkeypatch.setattr("stretch_sim_cal.commands.run.run_node", lambda node, act, given: asked.append(given) or 0)
    error = "-0.003,.002,-1e-3,0,-0.5,1"
    given = [f"--lidar-right-error={error}"] if joined else ["--lidar-right-error", error]
    assert main(["sim", *given, "--seed", "3"]) == 0
    for arguments in (asked[0], [*given, "--seed", "3"]):
        parsed, _ = SIMULATOR.parse(arguments)
        assert parsed.lidar_right_error == error and parsed.seed == "3"


SILENT = "no messages on /a"


class Watched:
    """A watchdog of the topic /a, with the time (s) that it goes by, and what it says."""

    def __init__(self, timeout: float, simulated=None, first: float = 0.0):
        self.now, self.said = 0.0, []
        self.watchdog = Watchdog(timeout, self.said.append, lambda: self.now, simulated, first)
        self.watchdog.watch(SILENT, lambda: "no node publishes it")

    def listen(self, seconds: float) -> int:
        """Let time pass, and return how often something was said so far."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.watchdog.tick()
        return len(self.said)


def test_a_silence_is_said_once_and_ends_in_failure_with_its_cause():
    watched = Watched(60.0)
    assert not watched.listen(4.8)
    watched.listen(40.0)
    assert watched.said == [f"{SILENT} for 5 s: no node publishes it (giving up after 60 s)"]
    with pytest.raises(RunFailure, match=f"{SILENT} for 60 s, giving up: no node publishes it"):
        watched.listen(20.0)


def test_what_was_never_heard_may_be_silent_until_it_is_discovered():
    watched = Watched(1.0, first=7.0)
    with watched.watchdog.within(2.0):
        watched.listen(1.0)
    assert watched.listen(6.8) == 1 and watched.said[0].endswith("(giving up after 7 s)")
    watched.watchdog.seen(SILENT)
    watched.listen(0.8)
    assert f"{SILENT} for 0.6 s" in watched.said[-1]
    with pytest.raises(RunFailure, match="for 1 s"):
        watched.listen(0.4)
    with pytest.raises(RunFailure, match="for 7 s"):
        Watched(1.0, first=7.0).listen(7.2)


def test_what_is_heard_or_forgotten_is_not_silent_nor_is_time_spent_computing():
    watched = Watched(6.0)
    watched.watchdog.watch("no messages on /b", str)
    watched.watchdog.forget("no messages on /b")
    for _ in range(10):
        assert not watched.listen(2.5)
        watched.watchdog.seen(SILENT)
    for _ in range(11):
        watched.now += 30.0
        watched.watchdog.tick()
    with pytest.raises(RunFailure):
        watched.listen(6.0)


def test_a_slow_simulator_is_not_silent_and_one_that_stands_still_or_has_not_begun_is():
    simulated = 0.0
    watched = Watched(60.0, lambda: simulated)
    assert watched.listen(6.0) == 1  # before the simulator has said the time
    watched.watchdog.seen(SILENT)
    for _ in range(600):  # a tenth of real time
        simulated += 0.01
        said = watched.listen(0.1)
        assert simulated > 4.9 or said == 1
    assert said == 2  # 6 s of simulated time
    watched.watchdog.seen(SILENT)
    assert watched.listen(14.0) == 2
    assert watched.listen(3.0) == 3
