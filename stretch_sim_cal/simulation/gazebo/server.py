"""The process `gz sim -s` of one simulation, in a partition of its own, and what it said when it died."""

import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from stretch_sim_cal.errors import RunFailure

PATIENCE = 30.0  # s: longer than the keeper takes for all its signals
KEEPER = "stretch_sim_cal.simulation.gazebo.keeper"
LINES_SHOWN = 3


def own_partition() -> dict[str, str]:
    """Return environment variables that keep a simulation's topics and services to itself on this machine."""
    return {"GZ_PARTITION": f"stretch_sim_cal_{uuid.uuid4().hex[:12]}", "GZ_IP": "127.0.0.1"}


class Server:
    """A running Gazebo. `program` is `gz`, `world` an SDF file, `options` are of `gz sim`; `folder` receives its output, and is removed with all
    that it holds when this process tells Gazebo to end, or dies."""

    def __init__(
        self, program: str, world: Path, folder: Path, environment: dict[str, str], options: Sequence[str] = ("-s",)
    ):
        self._world = world
        self._log = folder / "gz.log"
        command = [program, "sim", *options, "-v", "2", str(world)]
        with open(self._log, "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", KEEPER, str(folder), *command], stdin=subprocess.PIPE, stdout=output, stderr=output,
                env=dict(os.environ) | environment, start_new_session=True,  # lives on when our group is killed
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def check(self, doing: str) -> None:
        """Raise `RunFailure` with Gazebo's own last words if it has died while it was needed for `doing`."""
        if not self.alive:
            raise RunFailure(
                f"Gazebo ended with exit code {self._process.returncode} while {doing} "
                f"(world {self._world}): {self.last_words()}"
            )

    def last_words(self) -> str:
        """Return the last errors that Gazebo printed, else its last lines."""
        return " | ".join((self.complaints() or self._lines())[-LINES_SHOWN:]) or "it printed nothing"

    def complaints(self) -> list[str]:
        """Return the errors that Gazebo has printed so far, each one once."""
        return list(dict.fromkeys(line for line in self._lines() if "[Err]" in line or "error" in line.lower()))

    def _lines(self) -> list[str]:
        return [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]

    def stop(self) -> str:
        """End Gazebo and wait for it; return a note where it crashed on its own exit, else an empty text.

        All results have been taken by then, so such a crash (a known one of Gazebo's) is no failure.
        """
        died_before = not self.alive
        self._process.stdin.close()
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return "Gazebo did not end when it was told to"
        clean = died_before or code in (0, *_signalled(2), *_signalled(15))
        return (
            "" if clean else f"Gazebo crashed at its own end (exit code {code}), when nothing was asked of it any more"
        )


def _signalled(number: int) -> tuple[int, int]:
    """Return how an end by a signal may look, by itself and through a shell."""
    return (-number & 0xFF, 128 + number)
