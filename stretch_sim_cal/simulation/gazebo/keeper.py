"""`python -m stretch_sim_cal.simulation.gazebo.keeper FOLDER COMMAND...`: runs a command until it ends or its owner is gone.

Gazebo's server must not outlive us, however we end: the owner holds the writing end of this process's standard input,
and when that closes, by a call or by the owner's death, the command's whole process group is asked to end (SIGINT),
then told to (SIGTERM), then killed. `gz` is a script that starts other processes, so ending it alone would not do. FOLDER, which holds what was written for
the command, goes then too: after a `kill -9` of the owner nobody else would remove it.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys

PATIENCE = 8.0  # s between the signals
POLL = 0.1


def keep(folder: str, command: list[str]) -> int:
    """Run `command` until it ends or standard input closes, and return its exit code.

    When standard input closes, `folder` is removed; after a command that ends by itself its owner still reads there.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C is the owner's to answer
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, restore_signals=True, preexec_fn=_default
    )
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], POLL)
        if readable and not os.read(sys.stdin.fileno(), 1):
            end_group(child)
            shutil.rmtree(folder, ignore_errors=True)
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
    sys.exit(keep(sys.argv[1], sys.argv[2:]) & 0xFF)
