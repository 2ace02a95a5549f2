"""One way to start and end any node: arguments, parameters, signals and exit codes. Imports of rclpy wait until the
arguments are known to be good."""

import argparse
import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from stretch_sim_cal import command
from stretch_sim_cal.command import one_line
from stretch_sim_cal.errors import InputError, StretchSimCalError
from stretch_sim_cal.ros.options import NodeCommand, read_parameters
from stretch_sim_cal.ros.watchdog import Watchdog

SIGNALLED = 128  # beyond this an exit code names the signal that ended the process
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DISCOVERY_VARIABLE = "ROS_AUTOMATIC_DISCOVERY_RANGE"
# Of a node's log lines, if the user sets no other: ROS's own has seconds since 1970.
LOG_FORMAT = "[{severity}] [{date_time_with_ms}] [{name}]: {message}"
STEP = 0.1  # s
# s of wall time until a new node, subscription or publisher knows its counterparts: what is lost on a busy network is
# sent again after 3 s, and after another 3.
DISCOVERED = 7.0


class _Ended(KeyboardInterrupt):
    def __init__(self, number: int):
        super().__init__()
        self.number = number


@dataclass
class _Signals:
    """The signals that end the node: each is raised where it comes or, while they are `held`, by `check` only."""

    received: list[int] = field(default_factory=list)
    held: bool = False

    def take(self, number: int, _frame: Any = None) -> None:
        self.received.append(number)
        if not self.held:
            self.check()

    def check(self) -> None:
        if self.received:
            raise _Ended(self.received[0])


@contextlib.contextmanager
def ending_signals(handler: Callable) -> Iterator[None]:
    """A context in which `handler` takes the signals that end a node."""
    # Also of an ignored SIGINT: a shell leaves a program that it starts in the background with it. An ignored SIGHUP
    # stays so: somebody (nohup) wants the node to outlive its terminal.
    numbers = [number for number in ENDING if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN)]
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)


@dataclass
class NodeContext:
    """A running node with its options (`options.num_samples`), the loop that lets its callbacks run, and its `outcome`,
    to be filled in (see `command.outcome_in`)."""

    node: Any
    executor: Any
    options: SimpleNamespace
    arguments: argparse.Namespace
    outcome: dict[str, Any] = field(default_factory=dict)
    _signals: _Signals = field(default_factory=_Signals)
    began: float = field(default_factory=time.monotonic)  # s: since then this node discovers others

    @property
    def log(self):
        return self.node.get_logger()

    def watchdog(self, timeout: float) -> Watchdog:
        """Return a watchdog that warns in this node's log, in simulated time if the node runs in it, and waits for what
        was never heard until it is discovered."""
        node = self.node
        simulated = node.has_parameter("use_sim_time") and node.get_parameter("use_sim_time").value
        clock = (lambda: 1e-9 * node.get_clock().now().nanoseconds) if simulated else None
        return Watchdog(timeout, self.log.warning, simulated=clock, first=DISCOVERED)

    def spin_once(self, timeout: float = STEP) -> None:
        """Run at most one callback, waiting up to `timeout` s of wall time for it. An error in it is raised here."""
        self._signals.check()  # once more: Python drops an exception that a signal raises inside a destructor
        try:
            self.executor.spin_once(timeout_sec=timeout)
        except RuntimeError:
            self._signals.check()  # raised while rclpy's bindings converted an argument, which makes this of it
            raise

    def spin(self) -> None:
        while True:
            self.spin_once()

    def spin_until(
        self, condition: Callable[[], Any], timeout: float = math.inf, watchdog: Watchdog | None = None
    ) -> bool:
        """Run callbacks until `condition` holds (True), or for `timeout` s of wall time (False). Raises `RunFailure` if
        `watchdog`, which is ticked meanwhile, does."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() >= deadline:
                return False
            self.spin_once()
            if watchdog is not None:
                watchdog.tick()
        return True

    def discovers(self, condition: Callable[[], Any]) -> bool:
        """Run callbacks until `condition`, of other nodes on the network, holds (True), or until these are known and
        for at least a second (False)."""
        return self.spin_until(condition, max(self.began + DISCOVERED - time.monotonic(), 1.0))

    @contextlib.contextmanager
    def signals_held(self) -> Iterator[None]:
        """A context in which a signal is raised by `spin_once`, or at its end, and nowhere else. A signal that is
        raised anywhere may fall between a request and the note that it was sent, and inside `spin_once` it may lose an
        answer, or leave the executor deaf for good."""
        self._signals.held = True
        try:
            yield
        finally:
            self._signals.held = False
        self._signals.check()

    def every(self, seconds: float, action: Callable[[], object]) -> Any:
        """Call `action` every so many seconds of wall time, also if /clock stands still; return the timer."""
        from rclpy.clock import Clock, ClockType

        return self.node.create_timer(seconds, action, clock=Clock(clock_type=ClockType.STEADY_TIME))


def run_node(
    description: NodeCommand, action: Callable[[NodeContext], int | None], arguments: Sequence[str] | None = None
) -> int:
    """Parse the command line, make the node, call `action` with it and return the exit code: 130 on Ctrl-C (SIGINT),
    143 on SIGTERM, 129 on SIGHUP (its terminal is closed); 0 on all of them of an `endless` one."""
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
    with ending_signals(signals.take):
        try:
            return _run_in_ros(description, action, parsed, for_ros, signals) or 0
        except _Ended as ended:
            if description.endless:
                return 0
            if ended.number == signal.SIGINT:
                raise
            with contextlib.suppress(OSError):  # a terminal that is closed
                print("terminated", file=sys.stderr, flush=True)
            return SIGNALLED + ended.number


def _run_in_ros(description: NodeCommand, action, parsed, for_ros: list[str], signals: _Signals) -> int | None:
    try:
        import rclpy
        from rclpy.exceptions import InvalidNodeNameException, InvalidParameterException
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.node import Node
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
    node, executor = None, SingleThreadedExecutor()
    try:
        try:
            node = Node(description.node_name, automatically_declare_parameters_from_overrides=True)
        except (InvalidNodeNameException, InvalidParameterException) as error:
            raise InputError(f"ROS arguments: {one_line(error)}") from error
        executor.add_node(node)
        options = read_parameters(node, description.options, parsed, for_ros)
        with command.outcome_in(getattr(options, "outcome_file", "")) as outcome:
            return action(NodeContext(node, executor, options, parsed, outcome, signals))
    finally:
        # What is left takes no time: a second signal must not interrupt it.
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        if node is not None:
            leave(executor, node)
        rclpy.try_shutdown()


def spin_to_stop(executor: Any, timeout: float) -> None:
    """Run at most one callback while a motion is being stopped: also after a signal, and whatever it complains of, as
    of a cloud that cannot be used."""
    with contextlib.suppress(StretchSimCalError):
        executor.spin_once(timeout_sec=timeout)


def leave(executor: Any, *nodes: Any) -> None:
    """End an executor, and take its nodes off the network. `destroy_node` alone leaves action servers and clients, and
    with them the node, discoverable until they are collected as garbage, if this process goes on."""
    from rclpy.action import ActionClient, ActionServer

    executor.shutdown()
    for node in nodes:
        for action in [each for each in node.waitables if isinstance(each, ActionClient | ActionServer)]:
            action.destroy()
        node.destroy_node()
