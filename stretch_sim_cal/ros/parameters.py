"""What a node can be told, written once: its command line, its ROS parameters and its help come from the same list."""

import argparse
import difflib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from stretch_sim_cal.errors import InputError

# Parameters that rclpy itself understands on every node.
ROS_OWN = ("use_sim_time", "start_type_description_service", "qos_overrides.")


@dataclass(frozen=True)
class Option:
    """One parameter: `--num-samples 20` on the command line, `--ros-args -p num_samples:=20` in ROS.

    `kind` (bool, int, float or str) follows from `default` unless that is None, which stands for "not set".
    Numbers have to lie in `minimum` .. `maximum`, both included, strings in `choices` where there are any. A `live`
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

    @property
    def described(self) -> str:
        """The help text with choices and default."""
        notes = [f"one of {', '.join(self.choices)}"] if self.choices else []
        if self.default not in (None, ""):
            notes.append(f"default {str(self.default).lower() if self.type is bool else self.default}")
        return self.help + (f" ({'; '.join(notes)})" if notes else "")


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
    """Return the value of every option: from the command line, else from ROS, else its default.

    All that have a value are declared on `node`, so that `ros2 param` shows them; those that are not `live` are
    read-only. The node has to be made with `automatically_declare_parameters_from_overrides`.
    Raises `InputError` for a value that does not fit, and for a parameter among the arguments `for_ros` that nobody
    knows; in a file, which may be for several nodes, such a one is a warning.
    """
    values = SimpleNamespace()
    for option in options:
        given = getattr(parsed, option.name)
        if node.has_parameter(option.name):
            if given is None:
                given = node.get_parameter(option.name).value
            node.undeclare_parameter(option.name)
        value = option.default if given is None else option.value(given)
        setattr(values, option.name, value)
        if value is not None:
            declare(node, option, value)
    _check_names(node, [option.name for option in options], for_ros)
    return values


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
