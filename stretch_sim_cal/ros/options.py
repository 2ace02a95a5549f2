"""A node's command line and ROS parameters, written once as `Option`s of a `NodeCommand`. Needs neither numpy nor
rclpy, so that `--help` and typing errors answer at once."""

import argparse
import itertools
import math
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from stretch_sim_cal import command
from stretch_sim_cal.errors import InputError, did_you_mean

PROFILE = "robot"  # the option that names a robot's profile
ROS_OWN = ("use_sim_time", "start_type_description_service", "qos_overrides.")  # what rclpy itself understands
WIDTH = 110  # of a description
KINDS = {bool: "true or false", int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class Option:
    """One parameter: `--num-samples 20` on the command line, `--ros-args -p num_samples:=20` in ROS. `kind` (bool, int,
    float or str) follows from `default` unless that is None, which stands for "not set". Numbers have to lie in
    `minimum` .. `maximum`, both included, strings in `choices` if there are any. A `live` parameter can be changed
    while the node runs."""

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

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def described(self) -> str:
        notes = [f"one of {', '.join(self.choices)}"] if self.choices else []
        if self.default not in (None, ""):
            notes.append(f"default {str(self.default).lower() if self.type is bool else self.default}")
        return self.help + (f" ({'; '.join(notes)})" if notes else "")

    def value(self, given: Any) -> Any:
        """Return `given` (text, or what ROS made of it) as a value of this parameter. Raises `InputError`."""
        try:
            result = self._converted(given)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"parameter {self.name}: '{given}' is not {KINDS[self.type]}") from error
        if self.type in (int, float) and not self.minimum <= result <= self.maximum:
            limits = f"{self.minimum:g} " + ("and above" if math.isinf(self.maximum) else f".. {self.maximum:g}")
            raise InputError(f"parameter {self.name}: {given} is outside {limits}")
        if self.choices and result not in self.choices:
            raise InputError(f"parameter {self.name}: '{given}' is not one of {', '.join(self.choices)}")
        return result

    def _converted(self, given: Any) -> Any:
        if self.type is bool:
            return {"true": True, "false": False}[str(given).lower()]
        if self.type is str:
            return str(given).lstrip("/") if self.name.endswith("_frame") else str(given)  # as tf2 has them
        number = float(given)
        if isinstance(given, bool) or not math.isfinite(number) or self.type(number) != number:
            raise ValueError
        return self.type(number)

    def add_to(self, parser: Any) -> None:
        """Declare the option, or a switch, for a command that is not a node: with its default, and without ROS."""
        if self.type is bool:
            parser.add_argument(self.flag, action="store_true", help=self.help)
        else:
            shown = {"metavar": self.type.__name__.upper(), "help": self.described.replace("%", "%%")}
            parser.add_argument(self.flag, type=self.type, default=self.default, **shown)


def add_group(parser: argparse.ArgumentParser, title: str, options: Sequence[Option]) -> None:
    group = parser.add_argument_group(title)
    for option in options:
        option.add_to(group)


class Argument(NamedTuple):
    """An argument of a command line that is not a parameter, with the keywords that argparse takes of it."""

    name: str
    help: str
    how: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class NodeCommand:
    """The command line of a node, whose `name` is by default that of its executable. An `endless` node runs until a
    signal ends it; a `simulated` robot is visible on this machine only unless ROS's environment variable differs."""

    executable: str
    description: str
    example: str
    options: Sequence[Option] = ()
    arguments: Sequence[Argument] = ()
    endless: bool = False
    simulated: bool = False
    name: str = ""

    @property
    def node_name(self) -> str:
        return self.name or self.executable.removeprefix("ros_")

    def option(self, name: str) -> Option:
        return next(option for option in self.options if option.name == name)

    def parser(self) -> argparse.ArgumentParser:
        lines = self.description.splitlines()  # commands to be copied are indented
        wrapped = [line if line.startswith(" ") else textwrap.fill(line, WIDTH) for line in lines]
        parser = command.Parser(
            prog=self.executable, description="\n".join(wrapped),
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
        """Return the parsed arguments of a command line (by default this process's), and those for ROS."""
        own, for_ros = split_arguments(sys.argv[1:] if arguments is None else arguments)
        return self.parser().parse_args(own), for_ros


def add_to_parser(parser: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    """Declare the options as a node's parameters, `--some-name`: None unless given."""
    group = parser.add_argument_group("parameters", "also settable as --ros-args -p NAME:=VALUE, with _ for -")
    for option in options:
        alone = {"nargs": "?", "const": "true"} if option.type is bool else {}
        group.add_argument(
            option.flag, dest=option.name, default=None, metavar=option.type.__name__.upper(),
            help=option.described.replace("%", "%%"), **alone,
        )  # fmt: skip


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a command line's own arguments and those for ROS (`--ros-args ... [--]`, any number of times). An own
    option may be written as the parameter that it sets: `--num_samples` becomes `--num-samples`."""
    own, for_ros, in_ros = [], [], False
    for argument in arguments:
        in_ros |= argument == "--ros-args"
        if in_ros:
            for_ros.append(argument)
            in_ros = argument != "--"
        else:
            name, equals, value = argument.partition("=")
            own.append((name.replace("_", "-") if name.startswith("--") else name) + equals + value)
    return command.joined(own), for_ros


def either(options: Any, name: str, other: str) -> str:
    """Return the text of a parameter with two names, "" if neither is set. Raises `InputError` if they contradict."""
    first, second = getattr(options, name), getattr(options, other)
    if first and second and first != second:
        raise InputError(f"parameters {name} '{first}' and {other} '{second}' are the same one: give one of them")
    return first or second


def option_values(options: Sequence[Option], given: Mapping[str, Any]) -> SimpleNamespace:
    """Return the value of every option: as `given`, else as the robot's profile has it, if one is given, else its
    default. Raises `InputError` for a value that does not fit."""
    values, defaults = SimpleNamespace(), {}
    for option in sorted(options, key=lambda option: option.name != PROFILE):
        own = given.get(option.name)
        default = None if option.default is None else defaults.get(option.name, option.default)
        setattr(values, option.name, default if own is None else option.value(own))
        if option.name == PROFILE and values.robot:
            from stretch_sim_cal.robot.profile import load_profile

            defaults = load_profile(values.robot).node_defaults
    return values


def read_parameters(
    node, options: Sequence[Option], parsed: argparse.Namespace, for_ros: Sequence[str] = ()
) -> SimpleNamespace:
    """Return the value of every option: from the command line, else from ROS, else as `option_values`. All that have a
    value are declared on `node`, which has to be made with `automatically_declare_parameters_from_overrides`; those
    that are not `live` are read-only. Raises `InputError` for a value that does not fit, and for an unknown parameter
    among the arguments `for_ros`; in a file, which may be for several nodes, an unknown one is a warning."""
    given = {option.name: getattr(parsed, option.name) for option in options}
    for name, value in given.items():
        if node.has_parameter(name):
            given[name] = node.get_parameter(name).value if value is None else value
            node.undeclare_parameter(name)
    values = option_values(options, given)
    for option in options:
        if (value := getattr(values, option.name)) is not None:
            declare(node, option, value)
        if option.name.endswith("_topic") and value:
            checked_topic(node, value)
    _check_names(node, [option.name for option in options], for_ros)
    return values


def checked_topic(node, topic: str) -> str:
    """Return the name of a topic. Raises `InputError` if ROS does not take it."""
    from rclpy.exceptions import InvalidTopicNameException
    from rclpy.expand_topic_name import expand_topic_name
    from rclpy.validate_full_topic_name import validate_full_topic_name

    try:
        validate_full_topic_name(expand_topic_name(topic, node.get_name(), node.get_namespace()))
    except (ValueError, InvalidTopicNameException) as error:
        allowed = "use letters, digits, '_' and '/', and no digit behind a '/'"
        raise InputError(f"topic '{topic}': is not a name in ROS; {allowed}") from error
    return topic


def declare(node, option: Option, value: Any) -> None:
    from rcl_interfaces.msg import ParameterDescriptor

    # Live ones with dynamic typing: `ros2 param set ... 1` must not be refused for want of a decimal point.
    typing = {"read_only": not option.live, "dynamic_typing": option.live}
    descriptor = ParameterDescriptor(description=option.described, **typing)
    node.declare_parameter(option.name, value, descriptor, ignore_override=True)


def follow_changes(
    node, options: Sequence[Option], values: SimpleNamespace, changed: Callable[[], object] = lambda: None
) -> None:
    """Keep `values` up to date with the live parameters while the node runs, and call `changed` after each change of
    one of them."""
    from rcl_interfaces.msg import SetParametersResult

    live = {option.name: option for option in options if option.live}

    def on_change(parameters):
        try:
            new = {p.name: live[p.name].value(p.value) for p in parameters if p.name in live}
        except InputError as error:
            return SetParametersResult(successful=False, reason=str(error))
        for name, value in new.items():
            setattr(values, name, value)
        if new:
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
        sentence, hint = f"parameter '{name}' is not one of this node's", did_you_mean(name, known)
        if name in given:
            raise InputError(sentence + hint)
        node.get_logger().warning(f"{sentence} and is ignored{hint}")
