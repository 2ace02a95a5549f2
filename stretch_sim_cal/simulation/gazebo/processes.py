"""Gazebo's processes, and its transport: a process that calls services and one that takes messages, since the bindings
dead-lock if one does both, and a watchdog, so that the server does not outlive us. Only this imports the bindings."""

import contextlib
import ctypes
import fcntl
import functools
import importlib
import importlib.util
import itertools
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, BinaryIO

from stretch_sim_cal.errors import InputError, RunFailure

Hear = Callable[[bytes], None]  # takes a serialised message


def load_bindings(module: str, python_path: str = "") -> ModuleType:
    """Return the bindings' module, also from `python_path`. Raises `InputError` if it cannot be loaded."""
    if python_path and python_path not in sys.path:
        sys.path.append(python_path)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"Gazebo's Python bindings {module} cannot be loaded: {error}; are they for another Python?"
        ) from error


class Subscriptions:
    """Subscriptions to topics, in a process of their own; callbacks get serialised messages, one at a time in a thread
    of this one. That process may be replaced at any time (`renewals` counts it), also if the transport has crashed
    there."""

    def __init__(self, bindings: str, environment: Mapping[str, str], python_path: str = ""):
        self._start = lambda: _own_process("listen", bindings, python_path, environment)
        self._wanted: dict[str, dict[str, Any]] = {}
        self._callbacks: dict[int, Hear] = {}
        self._numbers, self._orders = itertools.count(), itertools.count(1)
        self.renewals = 0
        self._begin()

    @property
    def silence(self) -> float:
        """For how long, in s of wall time, no message has come."""
        return time.monotonic() - self._heard

    def subscribe(self, topic: str, message_type: str, callback: Hear, per_second: int | None = None) -> None:
        """Call `callback` with every message on a topic, at most `per_second` of wall time, once this has returned."""
        number = next(self._numbers)
        self._callbacks[number] = callback
        self._wanted[topic] = {"subscribe": topic, "type": message_type, "per_second": per_second, "number": number}
        self._order(self._wanted[topic])

    def unsubscribe(self, topic: str) -> None:
        del self._callbacks[self._wanted.pop(topic)["number"]]
        self._order({"unsubscribe": topic})

    def renew(self) -> None:
        """Subscribe to everything again in a new process, without waiting, unless the last one is still starting."""
        starting = self._process.poll() is None and not self._carried_out and bool(self._wanted)
        if starting and time.monotonic() - self._begun < ACKNOWLEDGED_WITHIN:
            return
        self.renewals += 1
        _end(self._process, 2 * NEXT_MESSAGE)
        self._begin()
        for order in self._wanted.values():
            self._order(order, wait=False)

    def close(self) -> None:
        self._callbacks.clear()
        _end(self._process, 2 * NEXT_MESSAGE)

    def _begin(self) -> None:
        self._heard = self._begun = time.monotonic()
        self._process = self._start()
        self._carried_out, self._acknowledged = 0, threading.Condition()
        threading.Thread(target=self._deliver, args=(self._process,), daemon=True).start()

    def _order(self, order: dict[str, Any], wait: bool = True) -> None:
        """Give an order, and wait until it was carried out, perhaps by a process that replaces this one meanwhile."""
        sequence = next(self._orders)
        with contextlib.suppress(BrokenPipeError):  # of one that has crashed: all orders are given to the next one
            _send(self._process.stdin, order | {"sequence": sequence})
            deadline = time.monotonic() + ACKNOWLEDGED_WITHIN * wait
            with self._acknowledged:
                while self._carried_out < sequence and self._process.poll() is None and time.monotonic() < deadline:
                    self._acknowledged.wait(0.05)

    def _deliver(self, process: subprocess.Popen) -> None:
        with process.stdout as messages:
            while (received := _received(messages)) is not None and process is self._process:
                number, message = received
                if number == ACKNOWLEDGED:
                    with self._acknowledged:
                        self._carried_out = message
                        self._acknowledged.notify_all()
                    continue
                self._heard = time.monotonic()
                if callback := self._callbacks.get(number):
                    callback(message)


PIPE_SIZE = 1 << 20
ACKNOWLEDGED = -1  # in place of a subscription's number: the message is the sequence number of an order carried out
ACKNOWLEDGED_WITHIN = 20.0  # s: the process may only be starting
NEXT_MESSAGE = 2.0  # s. Gazebo repeats its clock a thousand times a second unless it is at work.


class Listener:
    """Subscribes by orders on one node of the transport, and writes messages to `output`. The transport polls its
    socket in a thread of its own, without a lock; a subscription that another thread makes or ends meanwhile has
    crashed or silenced it (ZeroMQ's sockets are for one thread). So both happen in a callback."""

    def __init__(self, bindings: ModuleType, output: BinaryIO):
        self._bindings, self._node, self._output = bindings, bindings.Node(), output
        self._writing, self._changing = threading.Lock(), threading.Lock()
        self._orders: deque[dict[str, Any]] = deque()
        self._heard = False

    def take(self, *orders: dict[str, Any]) -> None:
        """Have orders carried out before the next message, or now if none comes."""
        self._orders.extend(orders)
        deadline = time.monotonic() + NEXT_MESSAGE * self._heard
        while self._orders and time.monotonic() < deadline:
            time.sleep(0.001)
        self._carry_out()

    def _carry_out(self) -> None:
        with self._changing:
            while self._orders:
                order = self._orders.popleft()
                if "unsubscribe" in order:
                    self._node.unsubscribe(order["unsubscribe"])
                    continue
                topic, kind, options = order["subscribe"], order["type"], self._bindings.SubscribeOptions()
                if order["per_second"] is not None:
                    options.msgs_per_sec = order["per_second"]
                if not self._node.subscribe_raw(topic, functools.partial(self._hear, order["number"]), kind, options):
                    print(f"Gazebo's transport refuses a subscription to {topic} ({kind})", file=sys.stderr)

    def _hear(self, number: int, message: bytes, _info: Any) -> None:
        self._heard = True
        self._carry_out()
        self.write(number, message)

    def write(self, number: int, message: Any) -> None:
        try:
            with self._writing:
                _send(self._output, (number, message))
        except BrokenPipeError:  # the owner has been killed
            os._exit(0)


def listen(bindings: str, python_path: str = "") -> int:
    """Carry out a `Listener`'s orders; (number, message) go to standard output."""
    output, orders = _orders()
    with contextlib.suppress(OSError):
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    listener = Listener(load_bindings(bindings, python_path), output)
    topics = set()
    for order in orders:
        topics.discard(order.get("unsubscribe"))
        if "subscribe" in order:
            topics.add(order["subscribe"])
        listener.take(order)
        listener.write(ACKNOWLEDGED, order["sequence"])
    # A publisher never forgets a subscriber that has gone without a word: a lidar would render on for it.
    listener.take(*({"unsubscribe": topic} for topic in topics))
    os._exit(0)  # the transport outlives the interpreter, and crashes in callbacks that it still holds


def _own_process(role: str, bindings: str, python_path: str, environment: Mapping[str, str]) -> subprocess.Popen:
    command = [sys.executable, "-m", __name__, role, bindings, python_path]
    variables, pipe = dict(os.environ) | dict(environment), subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=variables, start_new_session=True)


def _end(process: subprocess.Popen, patience: float) -> bool:
    """Close a process's standard input, and kill it after `patience` s; return whether it ended by itself."""
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def _orders() -> tuple[BinaryIO, Iterator[dict[str, Any]]]:
    """Return the stream that this process's owner reads, and its orders from standard input until that is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not come between the answers
    return answers, iter(functools.partial(_received, sys.stdin.buffer), None)


def _send(stream: BinaryIO, value: Any) -> None:
    pickle.dump(value, stream)
    stream.flush()


def _received(stream: BinaryIO) -> Any:
    """Return the next value of a stream, None at its end, also if that is within a value."""
    try:
        return pickle.load(stream)
    except (EOFError, pickle.UnpicklingError):
        return None


LOOK_EVERY = 0.5  # s


class Commander:
    """The process that calls services and publishes by orders; it ends with `close`, or with this process. `meanwhile`
    is called every `LOOK_EVERY` s while a service is waited for, and may raise."""

    def __init__(self, bindings: str, environment: Mapping[str, str], python_path: str, meanwhile: Callable[[], None]):
        self._meanwhile = meanwhile
        self._process = _own_process("command", bindings, python_path, environment)

    def call(
        self, service: str, request: bytes, request_type: str, answer_type: str, timeout: float,
        publish: Mapping[str, bytes] | None = None, publish_type: str = "",
    ) -> bytes | None:  # fmt: skip
        """Return a service's serialised answer, or None if there was none within `timeout` s, after a message was
        published on each topic of `publish`. Raises `RunFailure` if one has no subscriber."""
        asked = service, request, request_type, answer_type, round(1e3 * timeout)
        answer = self._exchange({"publish": dict(publish or {}), "publish_type": publish_type, "request": asked})
        return answer["message"] if answer["answered"] else None

    def connected(self, topics: list[str], message_type: str) -> bool:
        """Advertise topics and return whether every one has a subscriber: a message published before that is lost."""
        return self._exchange({"connected": topics, "type": message_type})["connected"]

    def close(self) -> None:
        _end(self._process, 5.0)
        self._process.stdout.close()

    def _exchange(self, order: dict[str, Any]) -> dict[str, Any]:
        answer = None
        with contextlib.suppress(BrokenPipeError):
            _send(self._process.stdin, order)
            while not select.select([self._process.stdout], [], [], LOOK_EVERY)[0]:
                self._meanwhile()
            answer = _received(self._process.stdout)
        if answer is None:
            raise RunFailure("the process that calls Gazebo's services has died; its last output is above")
        if "error" in answer:
            raise RunFailure(f"Gazebo's transport: {answer['error']}")
        return answer


def carry_out_orders(bindings: str, python_path: str = "") -> int:
    """Carry out a `Commander`'s orders on one node of the transport, at which nothing is ever subscribed to: check for
    subscribers, or publish messages and then call a service; the answers go to standard output."""
    answers, orders = _orders()
    transport = load_bindings(bindings, python_path)
    node = transport.Node()
    publishers: dict[str, Any] = {}

    def publisher(topic: str, message_type: str) -> Any:
        if topic not in publishers:
            # The bindings want a message class, and of that only its name.
            named = SimpleNamespace(DESCRIPTOR=SimpleNamespace(full_name=message_type))
            publishers[topic] = node.advertise(topic, named, transport.AdvertiseMessageOptions())
        return publishers[topic]

    def carry_out(order: dict[str, Any]) -> dict[str, Any]:
        if "connected" in order:
            asked = [publisher(topic, order["type"]) for topic in order["connected"]]
            return {"connected": all([each.has_connections() for each in asked])}
        for topic, message in order["publish"].items():
            to = publisher(topic, order["publish_type"])
            if not to.has_connections():
                return {"error": f"{topic} has no subscriber"}
            if not to.publish_raw(message, order["publish_type"]):
                return {"error": f"a message on {topic} was refused"}
        answered, message = node.request_raw(*order["request"])
        return {"answered": bool(answered), "message": bytes(message)}

    for order in orders:
        _send(answers, carry_out(order))
    return 0


STOP_PATIENCE = 30.0  # s: longer than the watchdog takes for all its signals
LINES_SHOWN = 3


def own_partition() -> dict[str, str]:
    """Return environment variables that keep a simulation's topics and services to itself."""
    return {"GZ_PARTITION": f"stretch_sim_cal_{uuid.uuid4().hex[:12]}", "GZ_IP": "127.0.0.1"}


class Server:
    """A Gazebo, run by `start` with the SDF file `world`. `program` is `gz`, `options` are of `gz sim`; `folder`, which
    holds the world, is made here if it is missing, and removed when Gazebo is stopped or this process dies. Gazebo's
    output goes to the file `log`, by default in `folder`."""

    def __init__(
        self, program: str, folder: Path, environment: Mapping[str, str], options: Sequence[str] = ("-s",),
        log: Path | None = None,
    ):  # fmt: skip
        self.world = folder / "world.sdf"
        self._log = log or folder / "gz.log"
        self._needed = False
        watchdog = [sys.executable, "-m", __name__, "watch", str(folder), str(self._log)]
        self._process = subprocess.Popen(
            [*watchdog, program, "sim", *options, "-v", "2", str(self.world)], stdin=subprocess.PIPE, bufsize=0,
            env=dict(os.environ) | dict(environment), start_new_session=True,  # lives on when our group is killed
        )  # fmt: skip
        folder.mkdir(mode=0o700, exist_ok=True)

    def start(self) -> None:
        self._log.write_bytes(b"")
        self.need(True)

    def need(self, needed: bool) -> None:
        """Let Gazebo run, or only now and then: while it is paused it would take a third of a core."""
        if needed != self._needed:
            self._needed = needed
            with contextlib.suppress(BrokenPipeError):  # of a watchdog that has ended, which `check` reports
                self._process.stdin.write(NEEDED if needed else NOT_NEEDED)

    def check(self, doing: str, patience: float = 0.0) -> None:
        """Raise `RunFailure` with Gazebo's last output if it has died, or does within `patience` s, while `doing`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(patience)
            self._end_abandoned()
            ended = f"ended ({_ending(code)}) while {doing}"
            if code < 0:
                raise RunFailure(f"the watchdog of Gazebo was {ended}, and Gazebo with it")
            raise RunFailure(f"Gazebo {ended} (world {self.world}): {self.last_words()}")

    def last_words(self) -> str:
        """Return the cause of a crash and the last errors printed, else the last lines."""
        lines = self._lines()
        trace = next((number for number, line in enumerate(lines) if line.startswith(STACK_TRACE)), 0)
        cause = lines[trace - 1 : trace] if trace else []
        words = cause + [line for line in self.complaints()[-LINES_SHOWN:] if line not in cause] or lines[-LINES_SHOWN:]
        return " | ".join(words) or "it printed nothing"

    def complaints(self) -> list[str]:
        return list(dict.fromkeys(line for line in self._lines() if "[Err]" in line or "error" in line.lower()))

    def _lines(self) -> list[str]:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.is_file() else []
        return [line.strip() for line in lines if line.strip() and not line.startswith(WATCHDOG)]

    def stop(self) -> str:
        """End Gazebo and wait for it; return a note if it crashed on its exit, else an empty text: all results have
        been taken by then, so such a crash (a known one of Gazebo's) is not a failure."""
        died_before = self._process.poll() is not None
        ended = _end(self._process, STOP_PATIENCE)
        self._end_abandoned()
        if not ended:
            return "Gazebo did not end on request and was killed"
        code = self._process.returncode
        if died_before or code in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM):
            return ""
        return f"Gazebo crashed ({_ending(code)}), during shutdown"

    def _end_abandoned(self) -> None:
        if self._process.returncode >= 0 or not self._log.is_file():
            return
        first_line = self._log.read_text(errors="replace").partition("\n")[0]
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.killpg(int(first_line.removeprefix(WATCHDOG)), signal.SIGKILL)


STACK_TRACE = "Stack trace (most recent call"
WATCHDOG = "watchdog: Gazebo's process group is "  # begins the first line of Gazebo's output


def _ending(code: int) -> str:
    """Return how a process ended whose code this is: negative, or above 128 as of a shell, for a signal."""
    names = {known.value: known.name for known in signal.Signals}
    return names.get(-code if code < 0 else code - 128, f"exit code {code}")


PR_SET_PDEATHSIG = 1
SIGNAL_PATIENCE = 3.0  # s between the signals, all of them within `STOP_PATIENCE`
POLL = 0.1
NEEDED, NOT_NEEDED = b"1", b"0"
# s. A Gazebo that is not needed runs and stops in turns: it has to send a sign of life once a second.
AWAKE, ASLEEP = 0.02, 0.1


def watch(folder: str, log: str, *command: str) -> int:
    """Run `command` from its owner's first order until it ends or its owner dies, and return its exit code.

    The owner holds the writing end of this process's standard input. When that closes, the command's whole process
    group (`gz` is a script that starts other processes) gets SIGINT, SIGTERM and SIGKILL, and `folder` is removed;
    after a command that ends by itself its owner still reads there. Output goes to the file `log`. By the orders
    `NEEDED` and `NOT_NEEDED` the group is stopped (SIGSTOP) most of the time while its owner does not need it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C is the owner's to answer
    if not _order(None):
        shutil.rmtree(folder, ignore_errors=True)
        return 0
    with open(log, "ab") as output:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(output.fileno(), stream.fileno())
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=prepare_child)
    print(f"{WATCHDOG}{child.pid}", flush=True)
    asked, needed = False, True
    while child.poll() is None:
        order = _order(POLL if needed else AWAKE)
        if order is None and not needed:
            _signal_group(child, signal.SIGSTOP)
            order = _order(ASLEEP)
            _signal_group(child, signal.SIGCONT)
        if order == b"":
            asked = True
            end_group(child, SIGNAL_PATIENCE)
            shutil.rmtree(folder, ignore_errors=True)
        elif order is not None:
            needed = order.endswith(NEEDED)
    end_group(child, SIGNAL_PATIENCE)  # children of it that it has left behind
    code = child.returncode if child.returncode >= 0 else 128 - child.returncode
    if not asked:
        print(f"Gazebo has exited: {_ending(code)}", flush=True)
    return code


def _order(patience: float | None) -> bytes | None:
    """Return what has come on standard input, empty if that is closed, None if nothing has come for `patience` s."""
    readable, _, _ = select.select([sys.stdin], [], [], patience)
    return os.read(sys.stdin.fileno(), 1024) if readable else None


def _signal_group(child: subprocess.Popen, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def end_group(child: subprocess.Popen, patience: float) -> bool:
    """End a process group by its leader, with `patience` s between the signals; return whether SIGINT sufficed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        _signal_group(child, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=patience)
            break
    _signal_group(child, signal.SIGKILL)  # children that outlived it
    return number == signal.SIGINT


def prepare_child(at_death: signal.Signals = signal.SIGKILL) -> None:
    """In a process that is being started: have its parent's death send it a signal, and let signals end it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, at_death)
    # A shell lets its background jobs ignore SIGINT, and what is ignored is ignored by the children, too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    role = {"command": carry_out_orders, "listen": listen, "watch": watch}[sys.argv[1]]
    sys.exit(role(*sys.argv[2:]) & 0xFF)
