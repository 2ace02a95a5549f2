"""How fast simulated time may run against wall time, and how fast it did."""

import time
from collections.abc import Callable

# Time lost beyond this (a suspended machine, a slow scan) is not caught up in a burst.
CATCH_UP = 0.2


class Pace:
    """Tells how long to wait so that simulated time passes at most at a factor of wall time; the factor may change.

    Times are in s; `now` is the steady clock (replaced in tests).
    """

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._factor: float | None = None
        self._wall = self._simulated = 0.0

    def wait(self, simulated: float, factor: float) -> float:
        """Return the wall time to let pass before `simulated` is due, at `factor` simulated seconds per second."""
        now = self._now()
        if factor != self._factor:
            # From the last moment that was asked for on, time passes at the new factor.
            self._simulated = simulated if self._factor is None else self._last
            self._factor, self._wall = factor, now
        self._last = simulated
        wait = self._wall + (simulated - self._simulated) / factor - now
        if wait < -CATCH_UP:
            self._wall, self._simulated = now, simulated
        return max(0.0, wait)


class FactorMeter:
    """Measures the real-time factor reached: simulated time per wall time, since the start and since the last look."""

    def __init__(self, simulated: float = 0.0, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._start = self._last = (now(), simulated)

    def since_last_look(self, simulated: float) -> float:
        """Return the factor since the last call (or the start)."""
        then, self._last = self._last, (self._now(), simulated)
        return self._factor(then, simulated)

    def overall(self, simulated: float) -> float:
        """Return the factor since the start."""
        return self._factor(self._start, simulated)

    def wall_since_last_look(self) -> float:
        """Return the wall time in s since the last look."""
        return self._now() - self._last[0]

    def _factor(self, then: tuple[float, float], simulated: float) -> float:
        wall = self._now() - then[0]
        return (simulated - then[1]) / wall if wall > 0 else 0.0
