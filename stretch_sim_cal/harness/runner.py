"""Starts the processes of a run in order of readiness, keeps their output, and stops every one of them on any end."""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.harness.processes import Process

PR_SET_PDEATHSIG = 1
GRACE = 8.0
POLL = 0.02


@dataclass
class Finished:
    """How a process ended: its exit code (negative: killed by that signal) and the seconds of wall time it took."""

    process: Process
    exit_code: int
    seconds: float
    output: str

    @property
    def refused(self) -> bool:
        """Whether it said why it refuses."""
        return any(line.strip().lower().startswith("refused:") for line in self.output.splitlines())

    @property
    def last_line(self) -> str:
        """The last line it printed that starts with `error:` or `refused:`, else its last line."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        telling = [line for line in lines if line.lower().startswith(("error:", "refused:"))]
        return (telling or lines or ["it printed nothing"])[-1]


class Running:
    """A started process in a session of its own, its output read by a thread into a log file and memory."""

    def __init__(self, process: Process, environment: dict[str, str], log: Path, echo: Callable[[str, str], None]):
        self.process = process
        self.started = time.monotonic()
        self._lines: list[str] = []
        self._ready = threading.Event()
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.popen = subprocess.Popen(
                process.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=environment | process.environment, start_new_session=True, preexec_fn=_die_with_parent,
                text=True, errors="replace",
            )  # fmt: skip
        except OSError as error:
            raise RunFailure(f"{process.name}: {process.command[0]} cannot be started: {error.strerror}") from error
        self._reader = threading.Thread(target=self._read, args=(log, echo), daemon=True)
        self._reader.start()

    def _read(self, log: Path, echo: Callable[[str, str], None]) -> None:
        with open(log, "w", encoding="utf-8") as file:
            for line in self.popen.stdout:
                self._lines.append(line)
                file.write(line)
                file.flush()
                echo(self.process.name, line.rstrip("\n"))
                if self.process.ready_line and self.process.ready_line in line:
                    self._ready.set()

    @property
    def ready(self) -> bool:
        return self._ready.is_set()

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def finished(self) -> Finished:
        """Wait for the process's end and its last output, and say how it ended."""
        code = self.popen.wait()
        self._reader.join(timeout=GRACE)
        return Finished(self.process, code, time.monotonic() - self.started, "".join(self._lines))

    def stop(self) -> bool:
        """End the process with its children; True where it ended by itself once asked (SIGINT)."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(timeout=GRACE)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.popen.pid, signal.SIGKILL)  # children that outlived it
                self._reader.join(timeout=GRACE)
                return number == signal.SIGINT
        return False


def _die_with_parent() -> None:
    # Also a harness that is killed outright must leave no simulator behind; the setting survives exec.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM end a run as Ctrl-C does, so that its processes are stopped."""

    def interrupt(_number, _frame):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


class Runner:
    """Runs processes one after the other beside the background ones; a context that stops all of them at its end."""

    def __init__(self, environment: dict[str, str], log_of: Callable[[Process], Path], echo=lambda name, line: None):
        self._environment = dict(os.environ) | environment
        self._log_of = log_of
        self._echo = echo
        self._background: list[Running] = []
        self._step: Running | None = None
        self.unclean: list[str] = []

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_exception) -> None:
        for running in [self._step, *reversed(self._background)]:
            if running is None:
                continue
            died = not running.alive
            stopped = running.stop()
            if running is not self._step and not died and not stopped:
                self.unclean.append(f"{running.process.name} did not stop when asked and was killed")

    def run(self, process: Process) -> Finished | None:
        """Start `process`; return when it is ready (None) or, for a step, how it ended.

        Raises `RunFailure` naming the process that died while it was needed, or that took longer than its time.
        """
        running = Running(process, self._environment, self._log_of(process), self._echo)
        if process.ready_line is None:
            self._step = running
            self._wait(running, lambda: not running.alive, "did not finish")
            self._step = None
            return running.finished()
        self._background.append(running)
        self._wait(running, lambda: running.ready, f"did not say '{process.ready_line}'")
        return None

    def _wait(self, running: Running, done: Callable[[], bool], complaint: str) -> None:
        while not done():
            for other in self._background:
                if not other.alive and not (other is running and other.ready):
                    ended = other.finished()
                    raise RunFailure(
                        f"{other.process.name} ({other.process.executable}) died with exit code {ended.exit_code} "
                        f"while it was needed: {ended.last_line}"
                    )
            if time.monotonic() - running.started > running.process.timeout:
                raise RunFailure(
                    f"{running.process.name} ({running.process.executable}) {complaint} within "
                    f"{running.process.timeout:.0f} s; its output is in {self._log_of(running.process)}"
                )
            time.sleep(POLL)
