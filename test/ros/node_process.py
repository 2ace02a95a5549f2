"""Nodes and drivers as real processes, in a ROS graph of their own, for tests."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stretch_sim_cal.harness.domain import isolated_environment

HERE = Path(__file__).resolve().parent
PACKAGE_ROOT = HERE.parent.parent
PATIENCE = 60.0
"""How long (s) to wait for what comes by itself, however busy the machine is."""


@dataclass
class Ended:
    """How a node ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that says why it failed."""
        lines = [line for line in self.err.splitlines() if line.startswith("error:")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err, self.err
        return lines[0]


class Graph:
    """A ROS graph (domain) with a folder for the robot's files."""

    def __init__(self, domain: int, folder: Path):
        self.folder = folder
        self.environment = dict(os.environ) | isolated_environment(domain) | {
            "HELLO_FLEET_PATH": str(folder / "fleet"), "HELLO_FLEET_ID": "stretch-test", "HOME": str(folder),
            "ROS_LOG_DIR": str(folder / "log"),
            "PYTHONPATH": os.pathsep.join([str(PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip

    @property
    def calibration_file(self) -> Path:
        return self.folder / "fleet" / "stretch-test" / "calibration_dual_lidar" / "dual_lidar_calibration.yaml"

    def start(self, module: str, *arguments: str) -> subprocess.Popen:
        """Start a node by the name of its module in `stretch_sim_cal.ros`."""
        command = [sys.executable, "-m", f"stretch_sim_cal.ros.{module}", *arguments]
        return self._popen(command)

    def run(self, module: str, *arguments: str, timeout: float = 5 * PATIENCE) -> Ended:
        """Run a node to its end."""
        process = self.start(module, *arguments)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            stop(process)
        return Ended(process.returncode, out, err)

    @contextlib.contextmanager
    def running(self, module: str, *arguments: str, ready: str) -> Iterator[subprocess.Popen]:
        """Run a node beside the test, from the line `ready` in its output on, until the end of the context."""
        process = self.start(module, *arguments)
        try:
            wait_for_line(process, ready)
            yield process
        finally:
            stop(process)

    @contextlib.contextmanager
    def drivers(self, **faults) -> Iterator[subprocess.Popen]:
        """Run the fake drivers."""
        process = self._popen([sys.executable, str(HERE / "fake_drivers.py"), json.dumps(faults)])
        try:
            wait_for_line(process, "drivers ready")
            yield process
        finally:
            stop(process)

    def _popen(self, command: list[str]) -> subprocess.Popen:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment, cwd=self.folder
        )


def wait_for_line(process: subprocess.Popen, text: str, stream: str = "stdout") -> str:
    """Return the first line of the process's output that holds `text`; fails where it ends before."""
    for line in getattr(process, stream):
        if text in line:
            return line
    raise AssertionError(f"ended without '{text}': {process.stderr.read()}")


def stop(process: subprocess.Popen, number: int = signal.SIGINT) -> int:
    """End a process and return its exit code."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()
