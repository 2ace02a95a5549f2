"""`python -m stretch_sim_cal.simulation.gazebo.keeper COMMAND...`: runs a command until it ends or its owner is gone.

Gazebo's server must not outlive us, however we end: the owner holds the writing end of this process's standard input,
and when that closes, by a call or by the owner's death, the command's whole process group is asked to end (SIGINT),
then told to (SIGTERM), then killed. `gz` is a script that starts other processes, so ending it alone would not do.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys

PATIENCE = 8.0  # s between the signals
POLL = 0.1


def keep(command: list[str]) -> int:
    """Run `command` until it ends or standard input closes, and return its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C is the owner's to answer
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, restore_signals=True, preexec_fn=_default
    )
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], POLL)
        if readable and not os.read(sys.stdin.fileno(), 1):
            end_group(child)
    end_group(child)  # children of it that it has left behind
    return child.returncode


def end_group(child: subprocess.Popen) -> None:
    """End a process that leads a group, and the group."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=PATIENCE)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _default() -> None:
    # What is ignored is ignored by the children, too, and a server that ignores SIGINT does not end cleanly.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]) & 0xFF)
