"""Watchdogs that name silent topics, and give up after a while; and progress while data is collected."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from stretch_sim_cal.errors import RunFailure

WARN_AFTER = 5.0  # s
LONGEST_TICK = 0.5  # s; what a node is busy for longer between two ticks is not the topic's silence
LINE_EVERY = 5.0  # s between lines of progress
STANDSTILL = 10.0  # s of wall time: a simulated clock that has not moved for so long stands still


@dataclass
class _Watched:
    diagnose: Callable[[], str]
    silent: float = 0.0
    warned: bool = False
    heard: bool = False

    def resume(self) -> None:
        self.silent, self.warned = 0.0, False


class Watchdog:
    """Counts the seconds that each watched thing has been silent, while the node was listening. A silence is named by
    what is missing: "no messages on /lidar_points_left". `warn` is called once per silence after `WARN_AFTER` s.
    `timeout` s of silence (which may be infinite), and at least `first` s of what was never heard, raise `RunFailure`.
    Both sentences carry what the silence's own `diagnose` finds. `now` is the steady clock, which goes on also if
    /clock stands still; `simulated` the simulated time in s, if the node runs in it: a silence counts no longer than it
    has passed, as a slow simulator is not silent, unless it stands still for long."""

    def __init__(
        self, timeout: float, warn: Callable[[str], object], now: Callable[[], float] = time.monotonic,
        simulated: Callable[[], float] | None = None, first: float = 0.0,
    ):  # fmt: skip
        self.timeout, self._first = timeout, first
        self._warn, self._now, self._simulated = warn, now, simulated
        self._last_tick, self._last_simulated = now(), 0.0 if simulated is None else simulated()
        self._stood = 0.0
        self._wall = self._moved = 0.0  # s of both times that do not count yet
        self._watched: dict[str, _Watched] = {}

    def watch(self, name: str, diagnose: Callable[[], str]) -> None:
        """Begin to watch for the silence `name`; `diagnose` returns, when asked, why it may be (part of a sentence)."""
        self._watched.setdefault(name, _Watched(diagnose))

    def forget(self, name: str) -> None:
        self._watched.pop(name, None)

    def seen(self, name: str) -> None:
        if watched := self._watched.get(name):
            watched.resume()
            watched.heard = True

    def _resume(self) -> None:
        self._passed(0.0)
        self._last_tick = self._now()
        for watched in self._watched.values():
            watched.resume()

    @contextlib.contextmanager
    def within(self, timeout: float) -> Iterator[None]:
        """A context in which a silence may last `timeout` s at most; it is counted anew at both ends."""
        former, self.timeout = self.timeout, timeout
        self._resume()
        try:
            yield
        finally:
            self.timeout = former
            self._resume()

    def tick(self) -> None:
        """Count the time since the last tick, up to `LONGEST_TICK`. Raises `RunFailure` if a silence is too long."""
        now = self._now()
        elapsed = self._passed(min(now - self._last_tick, LONGEST_TICK))
        self._last_tick = now
        for name, watched in self._watched.items():
            watched.silent += elapsed
            timeout = self.timeout if watched.heard else max(self.timeout, self._first)
            if watched.silent >= timeout:
                raise RunFailure(f"{name} for {watched.silent:.0f} s, giving up: {watched.diagnose()}")
            if watched.silent >= min(WARN_AFTER, timeout / 2) and not watched.warned:
                watched.warned = True
                end = "" if math.isinf(timeout) else f" (giving up after {timeout:.0f} s)"
                self._warn(f"{name} for {watched.silent:.1g} s: {watched.diagnose()}{end}")

    def _passed(self, elapsed: float) -> float:
        """Return how much of `elapsed` s of wall time counts."""
        if self._simulated is None:
            return elapsed
        simulated = self._simulated()
        moved, self._last_simulated = simulated - self._last_simulated, simulated
        self._stood = 0.0 if moved else self._stood + elapsed
        if not simulated or self._stood > STANDSTILL:  # no /clock yet, or the simulator has ended
            return elapsed
        # /clock moves more seldom than this is called.
        self._wall = min(self._wall + elapsed, LONGEST_TICK)
        self._moved = min(self._moved + max(moved, 0.0), LONGEST_TICK)
        passed = min(self._wall, self._moved)
        self._wall, self._moved = self._wall - passed, self._moved - passed
        return passed


class Patience:
    """Some s of ROS time and some of wall time: simulated time may run faster than messages travel, or slower."""

    def __init__(self, context: Any, ros: float, wall: float):
        self._clock, self._limits = context.node.get_clock(), (ros, wall)
        self.begin()

    def begin(self) -> None:
        self._began = self._clock.now().nanoseconds, time.monotonic()

    @property
    def over(self) -> bool:
        ros, wall = 1e-9 * (self._clock.now().nanoseconds - self._began[0]), time.monotonic() - self._began[1]
        return ros > self._limits[0] and wall > self._limits[1]


def progressing(items: Iterable[Any], label: str, total: int | None = None) -> Iterator:
    """Yield items, showing progress: a bar on a terminal, elsewhere a line every `LINE_EVERY` s; `total` is their
    number if they have no length."""
    total = len(items) if total is None else total
    if sys.stderr.isatty():
        yield from tqdm(items, total=total, desc=label, leave=False)
        return
    last_line = time.monotonic()
    for count, each in enumerate(items, start=1):
        yield each
        if time.monotonic() - last_line >= LINE_EVERY:
            last_line = time.monotonic()
            print(f"{label}: {count} of {total}", file=sys.stderr, flush=True)
