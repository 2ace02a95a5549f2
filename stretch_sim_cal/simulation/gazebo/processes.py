"""What of Gazebo is installed, its processes, and its transport through its own Python bindings.

The bindings hold Python's interpreter lock while they wait for a service's answer, and need it to deliver messages: a
process that does both dead-locks. So services are called and commands published by one process, and
messages are taken by another one, which can be replaced. Gazebo's server must not outlive us, however we
end, so a third one watches over it:

    python -m stretch_sim_cal.simulation.gazebo.processes command BINDINGS [PATH]
    python -m stretch_sim_cal.simulation.gazebo.processes listen BINDINGS [PATH]
    python -m stretch_sim_cal.simulation.gazebo.processes watch FOLDER LOG COMMAND...

This is the only module that imports the bindings.
"""

import base64
import contextlib
import ctypes
import fcntl
import functools
import importlib
import importlib.util
import itertools
import json
import os
import pkgutil
import select
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, BinaryIO

from stretch_sim_cal.errors import InputError, RunFailure

# Generations by the number in the names of their transport's Python module; from 16 on there is no number.
GENERATIONS = {13: "Harmonic", 14: "Ionic", 15: "Jetty"}
UNVERSIONED = "newer than Jetty"
LIDARS = ("auto", "gpu", "cpu")
CPU_LIDAR = "gz-sim-cpu-lidar-system"
INSTALL = (
    "beside ROS 2 Jazzy: apt install ros-jazzy-ros-gz and source ROS; else Gazebo's own gz-harmonic and "
    "python3-gz-transport13; or use the embedded simulator"
)


@dataclass(frozen=True)
class Installation:
    """An installed Gazebo: its program, the module of its bindings, and what its generation is called.

    `python_path` is where the bindings lie if Python does not look there by itself.
    """

    program: str
    bindings: str
    generation: str
    has_cpu_lidar: bool
    python_path: str = ""

    def lidar(self, wanted: str) -> str:
        """Return "cpu" or "gpu" for a choice of `LIDARS`. Raises `InputError` if Gazebo does not have that one.

        `auto` takes the CPU lidar where there is one: it is exact and needs no renderer.
        """
        if wanted not in LIDARS:
            raise InputError(f"lidar '{wanted}' is not known; there is {', '.join(LIDARS)}")
        if wanted == "cpu" and not self.has_cpu_lidar:
            raise InputError(
                f"Gazebo {self.generation} has no CPU lidar ({CPU_LIDAR} is not among its plugins); use --lidar gpu"
            )
        return "cpu" if wanted == "cpu" or wanted == "auto" and self.has_cpu_lidar else "gpu"


def find_gazebo() -> Installation:
    """Return the installed Gazebo. Raises `InputError` saying what is missing: Gazebo, its bindings, or a generation
    that is known here."""
    program = shutil.which("gz")
    if program is None:
        raise InputError(f"Gazebo is not installed (there is no 'gz' on the path): {INSTALL}")
    has_cpu_lidar = _has_plugin(CPU_LIDAR, program)
    for folder in _vendor_folders():
        if modules := _bindings_in([str(folder / "gz")]):
            return Installation(program, *choose_bindings(modules), has_cpu_lidar, str(folder))
    package = importlib.util.find_spec("gz")
    modules = _bindings_in(list(package.submodule_search_locations or [])) if package is not None else []
    return Installation(program, *choose_bindings(modules), has_cpu_lidar)


def missing_of_gazebo() -> str:
    """Return why Gazebo cannot be used here and what to install, or an empty text if it can."""
    try:
        find_gazebo()
    except InputError as error:
        return str(error)
    return ""


def choose_bindings(modules: list[str]) -> tuple[str, str]:
    """Return (module, generation) of the newest known bindings among the modules `transport...` of package `gz`.

    Raises `InputError` if there are none, or only such of generations that are not known.
    """
    if "transport" in modules:
        return "gz.transport", UNVERSIONED
    numbers = sorted(int(name.removeprefix("transport")) for name in modules)
    known = [number for number in numbers if number in GENERATIONS]
    if known:
        return f"gz.transport{known[-1]}", GENERATIONS[known[-1]]
    if numbers:
        raise InputError(
            f"Gazebo's Python bindings gz.transport{numbers[-1]} are of a generation that is not known here; known are "
            + ", ".join(f"{name} ({number})" for number, name in GENERATIONS.items()) + f" and {UNVERSIONED}"
        )  # fmt: skip
    raise InputError(f"Gazebo is there, the Python bindings of its transport are not: {INSTALL}")


def _bindings_in(folders: list[str]) -> list[str]:
    names = [module.name for module in pkgutil.iter_modules(folders)]
    return [name for name in names if name == "transport" or name[:9] == "transport" and name[9:].isdigit()]


def _ament_prefixes() -> list[Path]:
    return [Path(prefix) for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if prefix]


def _vendor_folders() -> list[Path]:
    """Return where ROS's package of Gazebo's transport keeps its Python modules: sourcing ROS is not enough."""
    found = [gz for prefix in _ament_prefixes() for gz in (prefix / "opt" / "gz_transport_vendor").glob("lib*/**/gz")]
    return sorted({gz.parent for gz in found if any(gz.glob("transport*"))})


def _has_plugin(name: str, program: str) -> bool:
    vendors = [prefix / "opt" / "gz_sim_vendor" for prefix in _ament_prefixes()]
    folders = [Path(folder) for folder in os.environ.get("GZ_SIM_SYSTEM_PLUGIN_PATH", "").split(os.pathsep) if folder]
    for prefix in (Path(program).resolve().parent.parent, Path("/usr"), *vendors):
        for library in (prefix / "lib", *(prefix / "lib").glob("*-linux-gnu")):
            folders += library.glob("gz-sim*/plugins")
    return any(any(folder.glob(f"lib{name}*")) for folder in folders)


THIS_MODULE = "stretch_sim_cal.simulation.gazebo.processes"


def load_bindings(module: str, python_path: str = "") -> ModuleType:
    """Return the bindings' module, looked for in `python_path` as well.

    Raises `InputError` if it is there but cannot be loaded.
    """
    if python_path and python_path not in sys.path:
        sys.path.append(python_path)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"Gazebo's Python bindings {module} cannot be loaded: {error}; another Python's, perhaps?"
        ) from error


class Subscriptions:
    """Subscriptions to topics, in a process of their own; callbacks get serialised messages, one at a
    time in a thread of this one.

    That process may be replaced at any time (`renew`), as if nothing came any more, or if the
    transport has crashed there.
    """

    def __init__(self, bindings: str, environment: Mapping[str, str], python_path: str = ""):
        self._start = lambda: _own_process("listen", bindings, python_path, environment, bufsize=-1)
        self._wanted: dict[str, dict[str, Any]] = {}
        self._callbacks: dict[int, Callable[[bytes], None]] = {}
        self._numbers, self._orders = itertools.count(), itertools.count(1)
        self.renewals = 0
        """How often that process was replaced."""
        self._begin()

    @property
    def silence(self) -> float:
        """For how long, in s of wall time, no message has come."""
        return time.monotonic() - self._heard

    def subscribe(
        self, topic: str, message_type: str, callback: Callable[[bytes], None], per_second: int | None = None
    ) -> None:
        """Call `callback` with every message on a topic, or with so many `per_second` of wall time at most; from when
        this returns on."""
        number = next(self._numbers)
        self._callbacks[number] = callback
        self._wanted[topic] = {"subscribe": topic, "type": message_type, "per_second": per_second, "number": number}
        self._order(self._wanted[topic])

    def unsubscribe(self, topic: str) -> None:
        """Let go of the callback of a topic."""
        del self._callbacks[self._wanted.pop(topic)["number"]]
        self._order({"unsubscribe": topic})

    def renew(self) -> None:
        """Subscribe to everything again, in a new process, unless the last one is still starting, which takes a while
        on a busy machine. It is not waited for: who calls may hold what callbacks need."""
        starting = self._process.poll() is None and not self._carried_out and bool(self._wanted)
        if starting and time.monotonic() - self._begun < ACKNOWLEDGED_WITHIN:
            return
        self.renewals += 1
        self._end()
        self._begin()
        for order in self._wanted.values():
            self._order(order, wait=False)

    def close(self) -> None:
        """Let go of all callbacks."""
        self._callbacks.clear()
        self._end()

    def _begin(self) -> None:
        self._heard = self._begun = time.monotonic()
        self._process = self._start()
        self._carried_out, self._acknowledged = 0, threading.Condition()
        threading.Thread(target=self._deliver, args=(self._process,), daemon=True).start()

    def _end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(2 * NEXT_MESSAGE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _order(self, order: dict[str, Any], wait: bool = True) -> None:
        """Give an order, and wait until it was carried out; the process may be replaced meanwhile, and does it then."""
        sequence = next(self._orders)
        with contextlib.suppress(BrokenPipeError):  # of one that has crashed: all orders are given to the next one
            self._process.stdin.write(json.dumps(order | {"sequence": sequence}).encode() + b"\n")
            self._process.stdin.flush()
            deadline = time.monotonic() + ACKNOWLEDGED_WITHIN * wait
            with self._acknowledged:
                while self._carried_out < sequence and self._process.poll() is None and time.monotonic() < deadline:
                    self._acknowledged.wait(0.05)

    def _deliver(self, process: subprocess.Popen) -> None:
        with process.stdout as messages:
            while len(head := messages.read(FRAME.size)) == FRAME.size:
                number, length = FRAME.unpack(head)
                message = messages.read(length)
                if process is not self._process or len(message) < length:
                    return
                if number == ACKNOWLEDGED:
                    with self._acknowledged:
                        (self._carried_out,) = SEQUENCE.unpack(message)
                        self._acknowledged.notify_all()
                    continue
                self._heard = time.monotonic()
                if callback := self._callbacks.get(number):
                    callback(message)


FRAME = struct.Struct("<IQ")  # before a message: the subscription's number, and the message's length
PIPE_SIZE = 1 << 20
ACKNOWLEDGED = 0xFFFFFFFF  # number of the frame that says which order was carried out
SEQUENCE = struct.Struct("<Q")
ACKNOWLEDGED_WITHIN = 20.0  # s: the process may only be starting
# s. Gazebo repeats its clock a thousand times a second unless it is at work.
NEXT_MESSAGE = 2.0


class Listener:
    """Subscribes by orders on one node of the transport, and writes what it hears to `output`.

    The transport polls its socket in a thread of its own, without a lock; a subscription that another thread
    makes or ends meanwhile has crashed it, or left it deaf (ZeroMQ's sockets are for one thread). So both happen
    in that thread, in a callback.
    """

    def __init__(self, bindings: ModuleType, output: BinaryIO):
        self._bindings = bindings
        self._node = bindings.Node()
        self._output = output
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

    def acknowledge(self, sequence: int) -> None:
        """Tell the owner that an order was carried out."""
        self._write(ACKNOWLEDGED, SEQUENCE.pack(sequence))

    def _carry_out(self) -> None:
        with self._changing:
            while self._orders:
                order = self._orders.popleft()
                if "unsubscribe" in order:
                    self._node.unsubscribe(order["unsubscribe"])
                    continue
                options = self._bindings.SubscribeOptions()
                if order["per_second"] is not None:
                    options.msgs_per_sec = order["per_second"]
                hear = functools.partial(self._hear, order["number"])
                if not self._node.subscribe_raw(order["subscribe"], hear, order["type"], options):
                    refused = f"{order['subscribe']} ({order['type']})"
                    print(f"Gazebo's transport refuses a subscription to {refused}", file=sys.stderr)

    def _hear(self, number: int, message: bytes, _info: Any) -> None:
        self._heard = True
        self._carry_out()
        self._write(number, message)

    def _write(self, number: int, message: bytes) -> None:
        try:
            with self._writing:
                self._output.write(FRAME.pack(number, len(message)))
                self._output.write(message)
                self._output.flush()
        except BrokenPipeError:  # the owner has been killed
            os._exit(0)


def listen(bindings: str, python_path: str = "") -> int:
    """Carry out a `Listener`'s orders on standard input, a line of JSON each, until it closes; what is heard goes to
    standard output as frames of `FRAME` and message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not come between the frames
    with contextlib.suppress(OSError):
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    listener = Listener(load_bindings(bindings, python_path), output)
    topics = set()
    for line in sys.stdin:
        order = json.loads(line)
        (topics.add if "subscribe" in order else topics.discard)(order.get("subscribe", order.get("unsubscribe")))
        listener.take(order)
        listener.acknowledge(order["sequence"])
    # A publisher never forgets a subscriber that has gone without a word: a lidar would render on for it.
    listener.take(*({"unsubscribe": topic} for topic in topics))
    os._exit(0)  # the transport outlives the interpreter, and crashes in callbacks that it still holds


def _own_process(
    role: str, bindings: str, python_path: str, environment: Mapping[str, str], **options: Any
) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", THIS_MODULE, role, bindings, python_path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ) | dict(environment), start_new_session=True,
        **options,
    )  # fmt: skip


LOOK_EVERY = 0.5  # s


class Commander:
    """The process that calls services and publishes by orders; ended with `close`, or when this process is gone.
    `meanwhile` is called every now and then while a service is waited for, and may raise."""

    def __init__(
        self, bindings: str, environment: Mapping[str, str], python_path: str = "",
        meanwhile: Callable[[], None] = lambda: None,
    ):  # fmt: skip
        self._meanwhile = meanwhile
        self._process = _own_process("command", bindings, python_path, environment, text=True)

    def call(
        self, service: str, request: bytes, request_type: str, answer_type: str, timeout: float,
        publish: Mapping[str, bytes] | None = None, publish_type: str = "",
    ) -> bytes | None:  # fmt: skip
        """Return a service's serialised answer, or None if there was none within `timeout` s.

        Before, a message is published on each topic of `publish`. Raises `RunFailure` if one has no subscriber.
        """
        answer = self._exchange({
            "publish": {topic: _text(message) for topic, message in (publish or {}).items()},
            "publish_type": publish_type, "service": service, "message": _text(request), "type": request_type,
            "answer_type": answer_type, "timeout_ms": round(1e3 * timeout),
        })  # fmt: skip
        return base64.b64decode(answer["message"]) if answer["answered"] else None

    def connected(self, topics: list[str], message_type: str) -> bool:
        """Advertise topics and return whether every one has a subscriber: a message published before that is lost."""
        return self._exchange({"connected": topics, "type": message_type})["connected"]

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _exchange(self, order: dict[str, Any]) -> dict[str, Any]:
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            while not select.select([self._process.stdout], [], [], LOOK_EVERY)[0]:
                self._meanwhile()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RunFailure("the process that calls Gazebo's services has died; its last words are above")
        answer = json.loads(line)
        if "error" in answer:
            raise RunFailure(f"Gazebo's transport: {answer['error']}")
        return answer


def _text(message: bytes) -> str:
    return base64.b64encode(message).decode()


class Orders:
    """Carries orders out on one node of the transport."""

    def __init__(self, bindings: ModuleType):
        self._bindings = bindings
        self._node = bindings.Node()
        self._publishers: dict[str, Any] = {}

    def carry_out(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one order: to look who listens, or to publish messages and then call a service."""
        if "connected" in order:
            publishers = [self._publisher(topic, order["type"]) for topic in order["connected"]]
            return {"connected": all([publisher.has_connections() for publisher in publishers])}
        for topic, message in order["publish"].items():
            publisher = self._publisher(topic, order["publish_type"])
            if not publisher.has_connections():
                return {"error": f"nobody listens to {topic}"}
            if not publisher.publish_raw(base64.b64decode(message), order["publish_type"]):
                return {"error": f"a message on {topic} was refused"}
        answered, message = self._node.request_raw(
            order["service"], base64.b64decode(order["message"]), order["type"], order["answer_type"],
            order["timeout_ms"],
        )  # fmt: skip
        return {"answered": bool(answered), "message": base64.b64encode(message).decode()}

    def _publisher(self, topic: str, message_type: str) -> Any:
        if topic not in self._publishers:
            # The bindings want a message class, and of that only its name.
            named = SimpleNamespace(DESCRIPTOR=SimpleNamespace(full_name=message_type))
            self._publishers[topic] = self._node.advertise(topic, named, self._bindings.AdvertiseMessageOptions())
        return self._publishers[topic]


def carry_out_orders(bindings: str, python_path: str = "") -> int:
    """Carry out the orders on standard input, a line of JSON each, until it closes; the answers go to standard output.

    Messages are serialised, in base64. Nothing is ever subscribed to here.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not come between the answers
    orders = Orders(load_bindings(bindings, python_path))
    for line in sys.stdin:
        print(json.dumps(orders.carry_out(json.loads(line))), file=answers, flush=True)
    return 0


STOP_PATIENCE = 30.0  # s: longer than the watchdog takes for all its signals
LINES_SHOWN = 3


def own_partition() -> dict[str, str]:
    """Return environment variables that keep a simulation's topics and services to itself on this machine."""
    return {"GZ_PARTITION": f"stretch_sim_cal_{uuid.uuid4().hex[:12]}", "GZ_IP": "127.0.0.1"}


class Server:
    """A Gazebo, run by `start`. `program` is `gz`, `options` are of `gz sim`; `folder` is made, and is removed with all
    that it holds when this process tells Gazebo to end, or dies: `world`, an SDF file, is to be put there. Gazebo's
    output goes to the file `log`, by default in `folder`."""

    def __init__(
        self, program: str, folder: Path, environment: Mapping[str, str], options: Sequence[str] = ("-s",),
        log: Path | None = None,
    ):  # fmt: skip
        self.folder = folder
        self.world = folder / "world.sdf"
        self._log = log or folder / "gz.log"
        self._needed = False
        command = [program, "sim", *options, "-v", "2", str(self.world)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", THIS_MODULE, "watch", str(folder), str(self._log), *command], stdin=subprocess.PIPE,
            bufsize=0,
            env=dict(os.environ) | dict(environment), start_new_session=True,  # lives on when our group is killed
        )  # fmt: skip
        folder.mkdir(mode=0o700)

    def start(self) -> None:
        """Run Gazebo with the world that has been put there."""
        self._log.write_bytes(b"")
        self.need(True)

    def need(self, needed: bool) -> None:
        """Let Gazebo have the processor, or only now and then: while it stands it would take a third of a core."""
        if needed != self._needed:
            self._needed = needed
            with contextlib.suppress(BrokenPipeError):  # of a watchdog that has ended, which `check` says
                self._process.stdin.write(NEEDED if needed else NOT_NEEDED)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def check(self, doing: str, patience: float = 0.0) -> None:
        """Raise `RunFailure` with the cause, in Gazebo's own words, if it has died, or does within `patience` s, while
        it was needed for `doing`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        if self.alive:
            return
        code = self._process.returncode
        self._end_abandoned()
        if code < 0:  # the watchdog itself
            raise RunFailure(
                f"the process that watches over Gazebo was ended ({_ending(code)}) while {doing}, and Gazebo with it"
            )
        raise RunFailure(f"Gazebo ended ({_ending(code)}) while {doing} (world {self.world}): {self.last_words()}")

    def last_words(self) -> str:
        """Return the cause of a crash (it stands before the stack trace), the last errors that Gazebo
        printed, else its last lines."""
        lines = self._lines()
        trace = next((number for number, line in enumerate(lines) if line.startswith(STACK_TRACE)), 0)
        cause = lines[trace - 1 : trace] if trace else []
        words = cause + [line for line in self.complaints()[-LINES_SHOWN:] if line not in cause] or lines[-LINES_SHOWN:]
        return " | ".join(words) or "it printed nothing"

    def complaints(self) -> list[str]:
        """Return the errors that Gazebo has printed so far, each one once."""
        return list(dict.fromkeys(line for line in self._lines() if "[Err]" in line or "error" in line.lower()))

    def _lines(self) -> list[str]:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.is_file() else []
        return [line.strip() for line in lines if line.strip() and not line.startswith(WATCHDOG)]

    def stop(self) -> str:
        """End Gazebo and wait for it; return a note where it crashed on its own exit, else an empty text.

        All results have been taken by then, so such a crash (a known one of Gazebo's) is no failure.
        """
        died_before = not self.alive
        self._process.stdin.close()
        try:
            code = self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._end_abandoned()
            return "Gazebo did not end when it was told to"
        self._end_abandoned()
        clean = died_before or code in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)
        return (
            "" if clean else f"Gazebo crashed at its own end ({_ending(code)}), when nothing was asked of it any more"
        )

    def _end_abandoned(self) -> None:
        """End a Gazebo whose watchdog was killed."""
        if self._process.returncode >= 0 or not self._log.is_file():
            return
        said = self._log.read_text(errors="replace").partition("\n")[0]
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.killpg(int(said.removeprefix(WATCHDOG)), signal.SIGKILL)


STACK_TRACE = "Stack trace (most recent call"
WATCHDOG = "watchdog: Gazebo's process group is "
"""Begins the first line of Gazebo's output."""


def _ending(code: int) -> str:
    """Return how a process ended whose code this is: negative, or above 128 as of a shell, for a signal."""
    number = -code if code < 0 else code - 128
    names = {known.value: known.name for known in signal.Signals}
    return names.get(number, f"exit code {code}")


PR_SET_PDEATHSIG = 1
SIGNAL_PATIENCE = 3.0  # s between the signals: all of them within the time that whoever ends a simulator gives it
POLL = 0.1
NEEDED, NOT_NEEDED = b"1", b"0"
# s. A Gazebo that is not needed runs and stands still in turns; it says once a second that it
# is there, or is forgotten.
AWAKE, ASLEEP = 0.02, 0.1


def watch(folder: str, log: str, *command: str) -> int:
    """Run `command` from its owner's first order on, until it ends or its owner is gone, and return its exit code.

    The owner holds the writing end of this process's standard input. When that closes, by a call or by the owner's
    death, the command's whole process group is asked to end (SIGINT), then told to (SIGTERM), then killed: `gz` is a
    script that starts other processes, so ending it alone would not do. `folder`, which holds what was written for the
    command, is removed then, too; after a command that ends by itself its owner still reads there.
    Output goes to the file `log`.

    Orders are `NEEDED` and `NOT_NEEDED`: the group is stopped (SIGSTOP) most of the time
    while its owner does not need it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C is the owner's to answer
    if not _order(None):
        shutil.rmtree(folder, ignore_errors=True)
        return 0
    with open(log, "ab") as output:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(output.fileno(), stream.fileno())
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, restore_signals=True, preexec_fn=_default
    )
    print(f"{WATCHDOG}{child.pid}", flush=True)
    told, needed = False, True
    while child.poll() is None:
        order = _order(POLL if needed else AWAKE)
        if order is None and not needed:
            _signal_group(child, signal.SIGSTOP)
            order = _order(ASLEEP)
            _signal_group(child, signal.SIGCONT)
        if order == b"":
            told = True
            end_group(child)
            shutil.rmtree(folder, ignore_errors=True)
        elif order is not None:
            needed = order.endswith(NEEDED)
    end_group(child)  # children of it that it has left behind
    code = child.returncode if child.returncode >= 0 else 128 - child.returncode
    if not told:
        print(f"Gazebo has ended by itself: {_ending(code)}", flush=True)
    return code


def _order(patience: float | None) -> bytes | None:
    """Return what has come on standard input, empty if that is closed, None if nothing has come for `patience` s."""
    readable, _, _ = select.select([sys.stdin], [], [], patience)
    return os.read(sys.stdin.fileno(), 1024) if readable else None


def _signal_group(child: subprocess.Popen, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def end_group(child: subprocess.Popen) -> None:
    """End a process that leads a group, and the group."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        _signal_group(child, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=SIGNAL_PATIENCE)
            break
    _signal_group(child, signal.SIGKILL)


def _default() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # when the watchdog is killed
    # What is ignored is ignored by the children, too, and a server that ignores SIGINT does not end cleanly.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    role = {"command": carry_out_orders, "listen": listen, "watch": watch}[sys.argv[1]]
    sys.exit(role(*sys.argv[2:]) & 0xFF)
