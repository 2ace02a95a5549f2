"""A ROS domain of its own for every run, so that runs side by side on a machine never hear each other."""

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stretch_sim_cal.errors import RunFailure

# Domains above 101 reach into the ports that Linux hands out to others.
DOMAINS = range(101, 0, -1)


@contextlib.contextmanager
def own_domain() -> Iterator[int]:
    """Hold a ROS domain that no other run of this package on this machine holds. Raises `RunFailure` without a free one."""
    for domain in DOMAINS:
        try:
            lock = open(Path(tempfile.gettempdir()) / f"stretch_sim_cal_domain_{domain}.lock", "a")
        except PermissionError:  # another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        with lock:
            yield domain
        return
    raise RunFailure(f"all ROS domains ({DOMAINS[-1]} to {DOMAINS[0]}) are taken by other runs on this machine")


def isolated_environment(domain: int) -> dict[str, str]:
    """Return the environment variables that keep a run's ROS graph to itself on this machine."""
    return {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "FASTDDS_BUILTIN_TRANSPORTS": "LARGE_DATA",
        "PYTHONUNBUFFERED": "1",
    }
