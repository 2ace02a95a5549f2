"""One way to start and end any node: arguments, parameters, signals and exit codes.

What a node takes is written once, as `Option`s: command line, ROS parameters and help come from the same list.

A node that ends by itself exits 130 on Ctrl-C (SIGINT), 143 on SIGTERM and 129 on SIGHUP (its terminal is gone); one
that runs until it is told to stop (`endless`) exits 0 on all of them, since that is its normal end. Imports of rclpy
wait until the arguments are known to be good, so `--help` and typing errors answer at once.
"""

import argparse
import contextlib
import difflib
import itertools
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from stretch_sim_cal import command
from stretch_sim_cal.command import one_line
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.ros.watchdog import Watchdog

SIGNALLED = 128
"""Beyond this an exit code names the signal that ended the process."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DISCOVERY_VARIABLE = "ROS_AUTOMATIC_DISCOVERY_RANGE"
LOG_FORMAT = "[{severity}] [{date_time_with_ms}] [{name}]: {message}"
"""Of a node's log lines, if the user sets no other: ROS's own has seconds since 1970."""
STEP = 0.1
PROFILE = "robot"
"""The option that names a robot's profile."""
# Parameters that rclpy itself understands on every node.
ROS_OWN = ("use_sim_time", "start_type_description_service", "qos_overrides.")


@dataclass(frozen=True)
class Option:
    """One parameter: `--num-samples 20` on the command line, `--ros-args -p num_samples:=20` in ROS.

    `kind` (bool, int, float or str) follows from `default` unless that is None, which stands for "not set".
    Numbers have to lie in `minimum` .. `maximum`, both included, strings in `choices` if there are any. A `live`
    parameter can be changed while the node runs.
    """

    name: str
    default: Any
    help: str
    kind: type | None = None
    minimum: float = -math.inf
    maximum: float = math.inf
    choices: tuple[str, ...] = ()
    live: bool = False

    @property
    def type(self) -> type:
        return self.kind or type(self.default)

    def value(self, given: Any) -> Any:
        """Return `given` (text, or what ROS made of it) as a value of this parameter. Raises `InputError`."""
        result = self._converted(given)
        if self.type in (int, float) and not self.minimum <= result <= self.maximum:
            raise InputError(f"parameter {self.name}: {given} is outside {self._range()}")
        if self.choices and result not in self.choices:
            raise InputError(f"parameter {self.name}: '{given}' is not one of {', '.join(self.choices)}")
        return result

    def _converted(self, given: Any) -> Any:
        try:
            if self.type is bool:
                return {"true": True, "false": False}[str(given).lower()]
            if self.type is int:
                if isinstance(given, bool) or float(given) != int(float(given)):
                    raise ValueError
                return int(float(given))
            if self.type is float:
                number = float(given)
                if isinstance(given, bool) or not math.isfinite(number):
                    raise ValueError
                return number
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            wanted = {bool: "true or false", int: "a whole number", float: "a number"}[self.type]
            raise InputError(f"parameter {self.name}: '{given}' is not {wanted}") from error
        return str(given)

    def _range(self) -> str:
        if math.isinf(self.maximum):
            return f"{self.minimum:g} and above"
        return f"{self.minimum:g} .. {self.maximum:g}"

    def add_to(self, parser: Any) -> None:
        """Declare the option, or a switch, for a command that is no node: with its default, and without ROS."""
        flag = "--" + self.name.replace("_", "-")
        if self.type is bool:
            parser.add_argument(flag, action="store_true", help=self.help)
        else:
            shown = {"metavar": self.type.__name__.upper(), "help": self.described.replace("%", "%%")}
            parser.add_argument(flag, type=self.type, default=self.default, **shown)

    @property
    def described(self) -> str:
        """The help text with choices and default."""
        notes = [f"one of {', '.join(self.choices)}"] if self.choices else []
        if self.default not in (None, ""):
            notes.append(f"default {str(self.default).lower() if self.type is bool else self.default}")
        return self.help + (f" ({'; '.join(notes)})" if notes else "")


class Argument(NamedTuple):
    """An argument of a command line that is no parameter, with what else argparse is to know of it."""

    name: str
    help: str
    how: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class NodeCommand:
    """What a node's command says about itself. A `simulated` robot is seen on this machine only, unless ROS's own
    variable says otherwise."""

    executable: str
    node_name: str
    description: str
    example: str
    options: Sequence[Option] = ()
    arguments: Sequence[Argument] = ()
    endless: bool = False
    simulated: bool = False

    def option(self, name: str) -> Option:
        """Return an option by its name."""
        return next(option for option in self.options if option.name == name)

    def parser(self) -> argparse.ArgumentParser:
        """Return the parser of the command's own arguments."""
        parser = argparse.ArgumentParser(
            prog=self.executable, description=self.description,
            epilog=f"example: {self.example}\n\nArguments after --ros-args go to ROS.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        for argument in self.arguments:
            parser.add_argument(argument.name, help=argument.help, **argument.how)
        if not self.endless:
            parser.add_argument("--json", action="store_true", help="print the result as JSON, for machines")
        add_to_parser(parser, self.options)
        return parser

    def parse(self, arguments: Sequence[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
        """Return a command line (this process's by default) as the command's own arguments and those for ROS."""
        own, for_ros = split_arguments(sys.argv[1:] if arguments is None else arguments)
        return self.parser().parse_args(own), for_ros


class _Ended(KeyboardInterrupt):
    """A signal that ends the node; `number` says which."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


def handle_ending(handler: Callable) -> dict[int, Any]:
    """Set the handler of the signals that end a node, and return the former ones by signal."""
    # Also of an ignored SIGINT: a shell leaves a program that it starts in the background with it. An ignored SIGHUP
    # stays so: somebody (nohup) wants the node to outlive its terminal.
    numbers = [number for number in ENDING if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN)]
    return {number: signal.signal(number, handler) for number in numbers}


@dataclass
class _Signals:
    """The signals that end the node: each is raised where it comes or, while they are `held`, by `check` only."""

    received: list[int] = field(default_factory=list)
    held: bool = False

    def take(self, number: int, _frame: Any = None) -> None:
        """Take a signal (its handler)."""
        self.received.append(number)
        if not self.held:
            self.check()

    def check(self) -> None:
        """Raise the first signal that has come."""
        if self.received:
            raise _Ended(self.received[0])


@dataclass
class NodeContext:
    """A running node with its options (`options.num_samples`), and the loop that lets its callbacks run."""

    node: Any
    executor: Any
    options: SimpleNamespace
    arguments: argparse.Namespace
    _signals: _Signals = field(default_factory=_Signals)

    @property
    def log(self):
        return self.node.get_logger()

    # What a node hears of, and moves; of a run in one process it is the simulator itself (harness/in_process.py).

    def frames(self) -> Any:
        """Return the frames that the node hears of (`FrameListener`)."""
        from stretch_sim_cal.ros.frame_listener import FrameListener

        return FrameListener(self)

    def clouds(
        self, options: Any, watchdog: Watchdog | None = None, depth: int = 5, on_set: Callable | None = None
    ) -> Any:  # fmt: skip
        """Return the clouds of all lidars in sets of one time (`LidarClouds`)."""
        from stretch_sim_cal.ros.lidar_clouds import LidarClouds, lidars_of

        watchdogs = (watchdog,) if watchdog else ()
        return LidarClouds(self, lidars_of(options), options.max_time_difference, watchdogs, depth, on_set)

    def joint_positions(self) -> dict[str, float]:
        """Return the joints' latest positions by name (m, rad), which fill up as they are heard."""
        from stretch_sim_cal.ros.subscription import JointListener

        return JointListener(self).positions

    def arm(self, model: Any, watchdog: Watchdog, profile: Any) -> Any:
        """Return where the arm is (`ArmState`)."""
        from stretch_sim_cal.ros.arm_motion import ArmState

        return ArmState(self, model, watchdog, profile)

    def motion(self, state: Any, watchdog: Watchdog, speeds: Any) -> Any:
        """Return what moves the arm (`ArmMotion`), once its driver is there and may move it."""
        from stretch_sim_cal.ros.arm_motion import ArmMotion
        from stretch_sim_cal.ros.captures import check_driver

        motion = ArmMotion(self, state, watchdog, speeds)
        if state.profile.planned:
            motion.wait_for_driver()
            check_driver(self, state.profile)
        return motion

    def drive(self, robot: Any, directory: Path) -> Any:
        """Drive the robot, and return the plan and where it stood (`driven_stations`)."""
        from stretch_sim_cal.ros.drive_node import driven_stations

        return driven_stations(self, robot, directory)

    def captures(self, state: Any, watchdog: Watchdog, settings: Any) -> Any:
        """Return what captures a pose of the arm (`Captures`)."""
        from stretch_sim_cal.ros.captures import Captures

        return Captures(self, self.options, state, watchdog, settings)

    def watchdog(self, timeout: float) -> Watchdog:
        """Return a watchdog that warns in this node's log, in simulated time if the node runs in it."""
        node = self.node
        simulated = node.has_parameter("use_sim_time") and node.get_parameter("use_sim_time").value
        return Watchdog(
            timeout,
            self.log.warning,
            simulated=(lambda: 1e-9 * node.get_clock().now().nanoseconds) if simulated else None,
        )

    def spin_once(self, timeout: float = STEP) -> None:
        """Run at most one callback, waiting up to `timeout` s of wall time for it. An error in it is raised here."""
        self._signals.check()  # once more: Python drops an exception that a signal raises inside a destructor
        try:
            self.executor.spin_once(timeout_sec=timeout)
        except RuntimeError:
            self._signals.check()  # raised while rclpy's bindings converted an argument, which makes this of it
            raise

    @contextlib.contextmanager
    def signals_held(self) -> Iterator[None]:
        """A context in which a signal is raised by `spin_once`, or at its end, and nowhere else.

        A signal that is raised anywhere may fall between a request and the note that it was sent, and inside
        `spin_once` it may lose an answer, or leave the executor deaf for good.
        """
        self._signals.held = True
        try:
            yield
        finally:
            self._signals.held = False
        self._signals.check()

    def spin(self) -> None:
        """Run callbacks until a signal ends the node."""
        while True:
            self.spin_once()

    def spin_until(self, condition: Callable[[], bool], timeout: float = math.inf) -> bool:
        """Run callbacks until `condition` holds (True), or for `timeout` s of wall time (False)."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() >= deadline:
                return False
            self.spin_once()
        return True

    def every(self, seconds: float, action: Callable[[], object]) -> Any:
        """Call `action` every so many seconds of wall time, also if /clock stands still; return the timer."""
        from rclpy.clock import Clock, ClockType

        return self.node.create_timer(seconds, action, clock=Clock(clock_type=ClockType.STEADY_TIME))


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a command line's own arguments and those for ROS (`--ros-args ... [--]`, any number of times).

    An own option may be written as the parameter that it sets: `--num_samples` becomes `--num-samples`.
    """
    own: list[str] = []
    for_ros: list[str] = []
    in_ros = False
    for argument in arguments:
        if argument == "--ros-args":
            in_ros = True
        elif in_ros and argument == "--":
            in_ros = False
            for_ros.append(argument)
            continue
        if in_ros:
            for_ros.append(argument)
        elif argument.startswith("--"):
            name, equals, value = argument.partition("=")
            own.append(name.replace("_", "-") + equals + value)
        else:
            own.append(argument)
    return command.joined(own), for_ros


def run_node(
    description: NodeCommand, action: Callable[[NodeContext], int | None], arguments: Sequence[str] | None = None
) -> int:
    """Parse the command line, make the node, call `action` with it and return the exit code its end stands for."""
    parsed, for_ros = description.parse(arguments)
    return command.run(lambda: _check_then_run(description, action, parsed, for_ros))


def in_node(description: NodeCommand, action: Callable[[NodeContext], Any], arguments: Sequence[str] = ()) -> Any:
    """Call `action` with a node and return its result, for a command that is more than its node; errors are raised."""
    results: list[Any] = []
    parsed, for_ros = description.parse(arguments)
    code = _check_then_run(description, lambda context: results.append(action(context)), parsed, for_ros)
    if not results:  # a signal
        sys.exit(code)
    return results[0]


def _check_then_run(description: NodeCommand, action, parsed: argparse.Namespace, for_ros: list[str]) -> int:
    for option in description.options:
        if getattr(parsed, option.name) is not None:
            option.value(getattr(parsed, option.name))
    signals = _Signals()
    previous = handle_ending(signals.take)
    try:
        return _run_in_ros(description, action, parsed, for_ros, signals) or 0
    except _Ended as ended:
        if description.endless:
            return 0
        if ended.number == signal.SIGINT:
            raise
        with contextlib.suppress(OSError):  # a terminal that is gone
            print("terminated", file=sys.stderr, flush=True)
        return SIGNALLED + ended.number
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _run_in_ros(description: NodeCommand, action, parsed, for_ros: list[str], signals: _Signals) -> int | None:
    try:
        import rclpy
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.signals import SignalHandlerOptions
    except ImportError as error:
        raise InputError(f"{description.executable}: needs ROS 2 ({error}); run 'make env' or source ROS 2") from error

    os.environ.setdefault("RCUTILS_CONSOLE_OUTPUT_FORMAT", LOG_FORMAT)
    if description.simulated:
        os.environ.setdefault(DISCOVERY_VARIABLE, "LOCALHOST")
    try:
        rclpy.init(args=[description.executable, *for_ros], signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:  # the base of rcl's own classes, one for every way an argument can be malformed
        raise InputError(f"ROS arguments: {one_line(error)}") from error
    node = None
    try:
        node = _make_node(description)
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        options = read_parameters(node, description.options, parsed, for_ros)
        return action(NodeContext(node, executor, options, parsed, signals))
    finally:
        # What is left takes no time: a second signal must not tear it.
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        if node is not None:
            node.destroy_node()
        rclpy.try_shutdown()


def _make_node(description: NodeCommand):
    from rclpy.exceptions import InvalidNodeNameException, InvalidParameterException
    from rclpy.node import Node

    try:
        return Node(description.node_name, automatically_declare_parameters_from_overrides=True)
    except (InvalidNodeNameException, InvalidParameterException) as error:
        raise InputError(f"ROS arguments: {one_line(error)}") from error


def either(options: Any, name: str, other: str) -> str:
    """Return the text of a parameter with two names, "" if neither is set. Raises `InputError` if they contradict."""
    first, second = getattr(options, name), getattr(options, other)
    if first and second and first != second:
        raise InputError(f"parameters {name} '{first}' and {other} '{second}' are the same one: give one of them")
    return first or second


def add_to_parser(parser: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    """Give `parser` an argument `--some-name` for each option."""
    group = parser.add_argument_group("parameters", "also settable as --ros-args -p NAME:=VALUE, with _ for -")
    for option in options:
        alone = {"nargs": "?", "const": "true"} if option.type is bool else {}
        group.add_argument(
            "--" + option.name.replace("_", "-"), dest=option.name, default=None, metavar=option.type.__name__.upper(),
            help=option.described.replace("%", "%%"), **alone,
        )  # fmt: skip


def read_parameters(
    node, options: Sequence[Option], parsed: argparse.Namespace, for_ros: Sequence[str] = ()
) -> SimpleNamespace:
    """Return the value of every option: from the command line, else from ROS, else its default, for which the robot's
    profile, if one is given, goes before the option's own.

    All that have a value are declared on `node`, so that `ros2 param` shows them; those that are not `live` are
    read-only. The node has to be made with `automatically_declare_parameters_from_overrides`.
    Raises `InputError` for a value that does not fit, and for a parameter among the arguments `for_ros` that nobody
    knows; in a file, which may be for several nodes, such a one is a warning.
    """
    given = {}
    for option in options:
        given[option.name] = getattr(parsed, option.name)
        if node.has_parameter(option.name):
            if given[option.name] is None:
                given[option.name] = node.get_parameter(option.name).value
            node.undeclare_parameter(option.name)
    values = option_values(options, given)
    for option in options:
        if getattr(values, option.name) is not None:
            declare(node, option, getattr(values, option.name))
    _check_names(node, [option.name for option in options], for_ros)
    return values


def option_values(options: Sequence[Option], given: Mapping[str, Any]) -> SimpleNamespace:
    """Return the value of every option: as `given`, else its default, for which the robot's profile, if one is given,
    goes before the option's own. Raises `InputError` for a value that does not fit."""
    values, defaults = SimpleNamespace(), {}
    for option in sorted(options, key=lambda option: option.name != PROFILE):
        own = given.get(option.name)
        default = None if option.default is None else defaults.get(option.name, option.default)
        setattr(values, option.name, default if own is None else option.value(own))
        if option.name == PROFILE and values.robot:
            defaults = _profile_defaults(values.robot)
    return values


def _profile_defaults(name: str) -> dict[str, Any]:
    from stretch_sim_cal.robot.profile import load_profile

    return load_profile(name).node_defaults


def declare(node, option: Option, value: Any) -> None:
    """Declare an option's parameter with its value on `node`."""
    from rcl_interfaces.msg import ParameterDescriptor

    # Live ones with dynamic typing: `ros2 param set ... 1` must not be refused for want of a decimal point.
    descriptor = ParameterDescriptor(
        description=option.described, read_only=not option.live, dynamic_typing=option.live
    )
    node.declare_parameter(option.name, value, descriptor, ignore_override=True)


def follow_changes(node, options: Sequence[Option], values: SimpleNamespace, changed=lambda: None) -> None:
    """Keep `values` up to date with the live parameters while the node runs, and call `changed` after each change."""
    from rcl_interfaces.msg import SetParametersResult

    live = {option.name: option for option in options if option.live}

    def on_change(parameters):
        try:
            new = {p.name: live[p.name].value(p.value) for p in parameters if p.name in live}
        except InputError as error:
            return SetParametersResult(successful=False, reason=str(error))
        for name, value in new.items():
            setattr(values, name, value)
        changed()
        return SetParametersResult(successful=True)

    node.add_on_set_parameters_callback(on_change)


def _check_names(node, known: Sequence[str], for_ros: Sequence[str]) -> None:
    given = [
        argument.split(":=")[0].rpartition(":")[2]
        for flag, argument in itertools.pairwise(for_ros) if flag in ("-p", "--param")
    ]  # fmt: skip
    for name in sorted(node.list_parameters([], 0).names):
        if name in known or name.startswith(ROS_OWN):
            continue
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        if name in given:
            raise InputError(f"parameter '{name}' is not one of this node's{hint}")
        node.get_logger().warning(f"parameter '{name}' is not one of this node's and is ignored{hint}")
