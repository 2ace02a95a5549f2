"""The watchdog counts a topic's silence only while the node listens; progress does not flood a log."""

import io

import pytest

from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.ros.watchdog import Progress, Watchdog


class Watched:
    """A watchdog of the topic /a, with the time (s) that it goes by, and what it says."""

    def __init__(self, timeout: float, simulated=None):
        self.now, self.said = 0.0, []
        self.watchdog = Watchdog(timeout, self.said.append, lambda: self.now, simulated)
        self.watchdog.watch("no messages on /a", lambda: "no node publishes it")

    def listen(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.watchdog.tick()


def test_a_silence_is_said_once_and_ends_in_failure_with_its_cause():
    watched = Watched(60.0)
    watched.listen(4.8)
    assert not watched.said
    watched.listen(40.0)
    assert watched.said == ["no messages on /a for 5 s: no node publishes it (giving up after 60 s)"]
    with pytest.raises(RunFailure, match="no messages on /a for 60 s, giving up: no node publishes it"):
        watched.listen(20.0)


def test_what_is_heard_or_forgotten_is_not_silent():
    watched = Watched(6.0)
    watched.watchdog.watch("no messages on /b", str)
    watched.watchdog.forget("no messages on /b")
    for _ in range(10):
        watched.listen(2.5)
        watched.watchdog.seen("no messages on /a")
    assert not watched.said


def test_time_spent_computing_is_not_silence():
    watched = Watched(10.0)
    for _ in range(15):
        watched.now += 30.0
        watched.watchdog.tick()
    with pytest.raises(RunFailure):
        watched.listen(10.0)


def test_a_slow_simulator_is_not_silent_and_one_that_stands_still_is():
    simulated = 0.0
    watched = Watched(60.0, lambda: simulated)
    for _ in range(600):  # a tenth of real time
        simulated += 0.01
        watched.listen(0.1)
        if simulated < 4.9:
            assert not watched.said
    assert len(watched.said) == 1  # 6 s of simulated time
    watched.watchdog.seen("no messages on /a")
    watched.listen(14.0)
    assert len(watched.said) == 1
    watched.listen(3.0)
    assert len(watched.said) == 2


def test_before_a_simulator_has_said_the_time_its_silence_counts():
    watched = Watched(60.0, lambda: 0.0)
    watched.listen(6.0)
    assert len(watched.said) == 1


def test_progress_in_a_log_is_a_line_every_few_seconds():
    stream = io.StringIO()
    with Progress("aligning", 1000, stream) as progress:
        for _ in range(1000):
            progress.advance()
        progress._last_line -= 6.0
        progress.advance()
    assert stream.getvalue() == "aligning: 1001 of 1000\n"
