"""The processes of a run: the list from which runner, launch files and launch tests are built, and the runner, which
starts them in order of readiness, keeps their output, and stops every one of them on any end."""

import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from stretch_sim_cal.command import sigterm_interrupts
from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.files import PACKAGE, folders_in, read_text
from stretch_sim_cal.harness.scenario import Scenario
from stretch_sim_cal.ros.node_commands import STAGE_NODES
from stretch_sim_cal.ros.node_main import DISCOVERY_VARIABLE
from stretch_sim_cal.simulation.gazebo.processes import end_group, prepare_child

DOMAIN_VARIABLE = "ROS_DOMAIN_ID"
DOMAINS = range(101, 0, -1)  # those above reach into the ports that Linux hands out to others
SHARED_MEMORY = Path("/dev/shm")
OF_FAST_DDS = re.compile(r"(fastrtps_[0-9a-f]{16})_el")
SETTLED = 60.0  # s, after which the process that made a lock holds it, or has ended
SIMULATOR_READY = "simulator ready"
BROADCAST_READY = "broadcasting"


def _remove_abandoned_shared_memory() -> None:
    """Remove the segments of Fast DDS that killed nodes left, half a megabyte each, whose lock, `SETTLED` s old, nobody
    holds. Ports stay: nodes that are alive may write to one without a lock, and would go on to where nobody reads."""
    for lock in SHARED_MEMORY.glob("fastrtps_*"):
        if found := OF_FAST_DDS.fullmatch(lock.name):
            with contextlib.suppress(OSError), lock.open("rb") as stream:  # in use, another user's, or gone
                if time.time() - os.fstat(stream.fileno()).st_mtime < SETTLED:
                    continue
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for name in (found[1], f"sem.{found[1]}_mutex", lock.name):
                    lock.with_name(name).unlink(missing_ok=True)


@contextlib.contextmanager
def own_domain() -> Iterator[int]:
    """Hold a ROS domain that no other run on this machine holds. Raises `RunFailure` without a free one."""
    _remove_abandoned_shared_memory()
    for domain in DOMAINS:
        # A name in Linux's abstract namespace: all users see it, no file is left, and it ends with the process.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
            try:
                held.bind(f"\0stretch_sim_cal_domain_{domain}")
            except OSError as taken:
                if taken.errno != errno.EADDRINUSE:
                    raise
                continue
            yield domain
            return
    raise RunFailure(f"all ROS domains ({DOMAINS[-1]} to {DOMAINS[0]}) are in use by other runs on this machine")


def isolated_environment(domain: int) -> dict[str, str]:
    """Return the environment variables that keep a run's ROS graph to itself on this machine."""
    return {
        DOMAIN_VARIABLE: str(domain),
        DISCOVERY_VARIABLE: "LOCALHOST",
        "FASTDDS_BUILTIN_TRANSPORTS": "LARGE_DATA",
        "PYTHONUNBUFFERED": "1",
        "RCUTILS_CONSOLE_OUTPUT_FORMAT": "[{severity}] {message}",
    }


@dataclass(frozen=True)
class Process:
    """One process of a run: a console script of this package.

    With a `ready_line` it runs beside those that follow it, which start when that text appears in its output; without,
    it is a step that has to end before the next starts. Until then it may not be silent for `timeout` s of wall time.
    `stage` is its part of the verdict; to `outcome` it writes how it ended (see `command.outcome_in`)."""

    name: str
    executable: str
    arguments: tuple[str, ...] = ()
    ready_line: str | None = None
    stage: str | None = None
    outcome: Path | None = None
    timeout: float = 900.0  # s of wall time, against hanging processes: a busy machine or Gazebo may take its time

    @property
    def command(self) -> list[str]:
        """The argument vector: pip puts console scripts beside Python, colcon into `lib/` of an ament prefix."""
        ament = (prefix / "lib" / PACKAGE for prefix in folders_in("AMENT_PREFIX_PATH"))
        places = (folder / self.executable for folder in (Path(sys.executable).parent, *ament))
        own = (str(place) for place in places if place.is_file())
        return [next(own, shutil.which(self.executable) or self.executable), *self.arguments]


class RunFiles:
    """Where the files of a run lie, below its folder `out/<name>/`."""

    def __init__(self, folder: Path, fleet_id: str = "simulated-robot"):
        self.folder = folder
        fleet = folder / "fleet"
        self.scenario = folder / "scenario.yaml"
        self.truth = folder / "truth.json"
        self.clouds = folder / "clouds.npz"
        self.calibration = fleet / fleet_id / "calibration_dual_lidar" / "dual_lidar_calibration.yaml"
        self.dataset = folder / "body_shape_data"
        self.mounts_dataset = folder / "lidar_mounts_data"
        self.drive = folder / "drive"
        self.body_shape_model = folder / "body_shape_model.yaml"
        self.result = folder / "result.json"
        self.report = folder / "report.html"
        self.logs = folder / "logs"
        self.outcomes = folder / "outcomes"
        self.environment = {"HELLO_FLEET_PATH": str(fleet), "HELLO_FLEET_ID": fleet_id}
        """Environment variables that make the nodes keep their files inside the run's folder."""


def simulator_process(simulator: str, *arguments: str) -> Process:
    """Return the simulator's process: it looks like the robot's drivers and keeps the truth to itself."""
    chosen = () if simulator == "embedded" else ("--simulator", simulator)
    return Process("simulator", "stretch_simulator", (*chosen, *arguments), ready_line=SIMULATOR_READY)


def scenario_processes(
    scenario: Scenario, files: RunFiles, simulator: str = "embedded", options: tuple[str, ...] = ()
) -> list[Process]:
    """Return the processes of a run: the simulator with its `options`, clouds for the report, the calibration nodes."""
    base, robot = scenario.simulation.profile.base, scenario.simulation.robot_keys.get("robot")
    if "drive" in scenario.stages and base is not None and base.modes:
        options = ("--mode", base.modes[0], *options)
    return [
        simulator_process(simulator, "--scenario", str(files.scenario), "--truth", str(files.truth), *options),
        node_process("capture", "ros_capture_clouds", str(files.clouds), use_sim_time=True, robot=robot, num_samples=3),
        *calibration_nodes(scenario.stages, files, sensor=str(scenario.simulation.sensor), robot=robot),
    ]


def calibration_nodes(
    stages: Mapping[str, Mapping[str, Any]], files: RunFiles, use_sim_time: bool = True, sensor: str | None = None,
    robot: str | None = None,
) -> list[Process]:  # fmt: skip
    """Return the nodes of `stages` (options by stage, as in a scenario), the same in simulation and on the robot, for
    lidars of a kind (`sensor`; None: the nodes' default) on a `robot` (its profile; None: the Stretch)."""
    common = {"use_sim_time": use_sim_time, "robot": robot}
    processes, arms = [], [stage for stage in ("mounts", "body_shape") if stage in stages]
    names = {"alignment": "align", "body_shape": "collect"}
    folders = {"mounts": files.mounts_dataset, "body_shape": files.dataset, "drive": files.drive}
    for stage, node in STAGE_NODES.items():
        if stage not in stages:
            continue
        name, arguments = names.get(stage, stage), [str(folders[stage]), "--yes"] if stage in folders else []
        if arms and stage == arms[0]:
            processes.append(broadcast_process(**common))
        options, fits = common | {"sensor": sensor} | dict(stages[stage]), []
        if stage == "body_shape":
            del options["sensor"]
            arguments += ["--plan", str(options.pop("plan"))]
            fit, method = files.outcomes / "fit.json", options.pop("fit_method")
            given = (str(files.dataset), "--fit-method", method, "--out", str(files.body_shape_model))
            given += (*([] if robot is None else ["--robot", robot]), "--outcome-file", str(fit))
            fits.append(Process("fit", "fit_body_shape_model", given, stage=stage, outcome=fit))
        outcome = files.outcomes / f"{name}.json"
        processes += [node_process(name, node.executable, *arguments, stage=stage, outcome=outcome, **options), *fits]
    return processes


def broadcast_process(use_sim_time: bool = True, robot: str | None = None) -> Process:
    """Return the node that publishes the calibrated frames, as long as it is wanted."""
    return node_process(
        "broadcast", "ros_broadcast_calibration",
        ready_line=BROADCAST_READY, stage="body_shape", use_sim_time=use_sim_time, robot=robot,
    )  # fmt: skip


def node_process(
    name: str, executable: str, *arguments: str, ready_line: str | None = None, stage: str | None = None,
    outcome: Path | None = None, **parameters: object,
) -> Process:  # fmt: skip
    """Return a node's process; ROS parameters that are None are left to the node."""
    given = {key: str(value).lower() if isinstance(value, bool) else value for key, value in parameters.items()}
    pairs = [f"{key}:={value}" for key, value in (given | {"outcome_file": outcome}).items() if value is not None]
    ros = ("--ros-args", *(part for pair in pairs for part in ("-p", pair)))
    return Process(name, executable, (*arguments, *ros), ready_line, stage, outcome)


GRACE = 8.0  # s for a process to end when it is asked to
POLL = 0.02  # s
Echo = Callable[[Process, str | None], None]
RESULTS = ("accepted", "wrote", "refused:", "error:")
"""The first words of the line in which a process prints its result."""


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (negative: killed by that signal), the `outcome` that it wrote, none if it
    could not, and its last line of output."""

    process: Process
    exit_code: int
    outcome: Mapping[str, Any]
    last_line: str

    @property
    def refusals(self) -> list[Mapping[str, str]]:
        """The findings for which it refused a result, as of `Finding.as_json`."""
        return self.outcome.get("refusals", [])

    @property
    def reason(self) -> str:
        refused = "; ".join("; ".join(filter(None, (each["sentence"], each["remedy"]))) for each in self.refusals)
        return f"refused: {refused}" if refused else self.outcome.get("error") or self.last_line or "it printed nothing"

    @property
    def sentence(self) -> str:
        how = "ended with" if self.process.ready_line is None else "exited early with"
        return f"{self.process.name} ({self.process.executable}) {how} exit code {self.exit_code}: {self.reason}"


class ProcessSequence:
    """The order in which the processes of a run start, by the rules of `Process`; who starts them reports the events.

    A process has to end with code 0, or to become ready and live until the last step has ended. `failure` is the end of
    the first one that does not; nothing starts after it, and the sequence is `over`. `output`, `exit_codes` and `ends`
    are by name."""

    def __init__(self, processes: Sequence[Process]):
        self.processes = list(processes)
        self.output = {process.name: "" for process in self.processes}
        self.exit_codes: dict[str, int] = {}
        self.ends: dict[str, Ended] = {}
        self.failure: Ended | None = None
        self.over = False
        self._left = iter(self.processes)
        self._last: Process | None = None

    def next(self) -> Process | None:
        """Return the process to start now; None if there is no further one: then the sequence is over."""
        self._last = None if self.over else next(self._left, None)
        self.over = self._last is None
        if self._last is not None and self._last.outcome is not None:
            self._last.outcome.unlink(missing_ok=True)  # of an earlier run
        return self._last

    def printed(self, process: Process, text: str) -> bool:
        """Add output of a process, and return whether the next one can start now."""
        self.output[process.name] += text
        ready = process.ready_line is not None and process.ready_line in self.output[process.name]
        return ready and process is self._last and not self.over

    def ended(self, process: Process, exit_code: int) -> bool:
        """Note the end of a process, and return whether the next one can start now."""
        self.exit_codes[process.name] = exit_code
        if self.over:
            return False
        written = process.outcome is not None and process.outcome.is_file()
        outcome = json.loads(read_text(process.outcome)) if written else {}
        lines = [line.strip() for line in self.output[process.name].splitlines() if line.strip()]
        self.ends[process.name] = end = Ended(process, exit_code, outcome, lines[-1] if lines else "")
        if process.ready_line is None and exit_code == 0:
            return process is self._last
        self.failure, self.over = end, True
        return False


class Runner:
    """Runs a sequence of processes, each with its output in a file of `logs`; a context that stops all at its end,
    which SIGTERM brings about as Ctrl-C does.

    `echo(process, line)` receives all output, and None when a process is ready or has ended. `seconds` is the wall time
    until then by name; `unclean` names those that had to be killed. If this process is killed, its processes are killed
    too or, with `stop_orphans`, asked to end: a node that moves an arm has to stop it."""

    def __init__(
        self, environment: Mapping[str, str], logs: Path, echo: Echo = lambda process, line: None,
        stop_orphans: bool = False,
    ):  # fmt: skip
        self._stop_orphans = stop_orphans
        self._environment = dict(os.environ) | dict(environment)
        self._logs = logs
        self._echo = echo
        self._running: list[tuple[Process, subprocess.Popen, threading.Thread]] = []  # and who reads its output
        self._heard: dict[str, float] = {}  # when something was, by name
        self._unheard: OSError | None = None  # why output could not be taken: a full disk, a closed pipe
        self._begun = time.monotonic()
        self.seconds: dict[str, float] = {}
        self.unclean: list[str] = []

    def __enter__(self) -> "Runner":
        self._ending = sigterm_interrupts()
        self._ending.__enter__()
        return self

    def __exit__(self, *_exception) -> None:
        for process, popen, reader in reversed(self._running):
            alive = popen.poll() is None
            ended_when_asked = end_group(popen, GRACE)
            reader.join(timeout=GRACE)
            if alive and not ended_when_asked and process.ready_line is not None:
                self.unclean.append(f"{process.name} did not stop when asked and was killed")
        self._ending.__exit__(None, None, None)

    def run(self, sequence: ProcessSequence) -> None:
        """Run a sequence until it is over; processes with a ready line live on until the context ends. Raises
        `RunFailure` for one that cannot be started or is silent for too long, `OSError` if output cannot be taken."""

        def hear(process: Process, ready: threading.Event, line: str) -> None:
            self._heard[process.name] = time.monotonic()
            if sequence.printed(process, line):
                ready.set()
            self._echo(process, line.rstrip("\n"))

        while (process := sequence.next()) is not None:
            ready = threading.Event()  # of this process alone: the reader of the last one may still set that one's
            self._heard[process.name] = started = time.monotonic()
            self._start(process, functools.partial(hear, process, ready))
            try:
                while not (ready.wait(POLL) or self._next_is_due(sequence) or sequence.over):
                    if time.monotonic() - self._heard[process.name] > process.timeout:
                        missed = f"did not print '{process.ready_line}'" if process.ready_line else "did not finish"
                        missed += f" and was silent for {process.timeout:.0f} s"
                        log = f"its output is in {self._logs / process.name}.log"
                        raise RunFailure(f"{process.name} ({process.executable}) {missed}; {log}")
            finally:
                self.seconds[process.name] = round(time.monotonic() - started, 2)
                self._echo(process, None)

    def _start(self, process: Process, hear: Callable[[str], None]) -> None:
        """Start a process; a thread writes its output into a log file and hands on the lines."""
        self._logs.mkdir(parents=True, exist_ok=True)
        at_death = signal.SIGTERM if self._stop_orphans else signal.SIGKILL
        try:
            popen = subprocess.Popen(
                process.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=self._environment, start_new_session=True, text=True, errors="replace",
                preexec_fn=functools.partial(prepare_child, at_death),
            )  # fmt: skip
        except OSError as error:
            raise RunFailure(f"{process.name}: {process.command[0]} cannot be started: {error.strerror}") from error

        def read() -> None:
            try:
                with open(self._logs / f"{process.name}.log", "w", encoding="utf-8") as file:
                    for line in popen.stdout:
                        file.write(f"{time.monotonic() - self._begun:8.2f} s  {line}")
                        file.flush()
                        hear(line)
            except OSError as error:
                self._unheard = error

        reader = threading.Thread(target=read, daemon=True)
        self._running.append((process, popen, reader))
        reader.start()

    def _next_is_due(self, sequence: ProcessSequence) -> bool:
        """Note all processes that have ended since, and return whether the next one can start."""
        due = False
        for process, popen, reader in list(self._running):
            if process.name not in sequence.exit_codes and (code := popen.poll()) is not None:
                reader.join(timeout=GRACE)  # all of its output is read
                due |= sequence.ended(process, code)
                if process.ready_line is None:
                    self._running.remove((process, popen, reader))
        if self._unheard is not None:
            raise self._unheard
        return due


class Progress:
    """Shows the progress of a run: a line for every process with its time and result, its warnings and errors below it.

    A repeated warning is left out. On a terminal the present process shows its last output; with `verbose` all output
    is shown. Of the calibration file only the name is shown, other paths are relative to the run's folder."""

    def __init__(self, files: RunFiles, verbose: bool, stream: TextIO):
        self._folders = f"{files.calibration.parent}/", f"{files.folder}/"
        self._verbose, self._stream, self._begun = verbose, stream, time.monotonic()
        self._output: dict[str, list[str]] = {}
        self._warned: set[str] = set()

    def __call__(self, process: Process, line: str | None) -> None:
        """Take a line of output of a process; None when it is ready or has ended."""
        lines = self._output.setdefault(process.name, [])
        if line is not None:
            line = _plain(line)
            for folder in self._folders:
                line = line.replace(folder, "")
            lines.append(line)
        if self._verbose:
            if line is not None:
                print(f"  [{process.name}] {line}", file=self._stream, flush=True)
        elif line is None:
            self._show_result(process, lines)
        elif self._stream.isatty() and lines[-1]:
            width = shutil.get_terminal_size().columns - 1
            shown = f"  {process.name:<10} ... {lines[-1].strip()}"[:width]
            print(f"\r{shown}\x1b[K", end="", file=self._stream, flush=True)

    def _show_result(self, process: Process, lines: list[str]) -> None:
        results = [line for line in lines if line.startswith(RESULTS)] or [line for line in lines if line]
        if process.ready_line is not None:
            results = [line for line in lines if process.ready_line in line]
        seconds, self._begun = time.monotonic() - self._begun, time.monotonic()
        clear, result = "\r\x1b[K" if self._stream.isatty() else "", "".join(results[-1:])
        print(f"{clear}  {process.name:<10} {seconds:5.1f} s  {result}".rstrip(), file=self._stream)
        for line in lines:
            if line.startswith(("warning:", "error:", "refused:")) and line not in (result, *self._warned):
                self._warned.add(line)
                print(f"             {line}", file=self._stream)
        self._stream.flush()


def _plain(line: str) -> str:
    """Return a line without the marks of ROS's log: warnings and errors begin as those of commands do."""
    mark, _, text = line.partition(" ")
    words = {"[INFO]": "", "[WARN]": "warning: ", "[ERROR]": "error: ", "[FATAL]": "error: "}
    return words[mark] + text if mark in words else line
