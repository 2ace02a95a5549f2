"""The watchdog counts a topic's silence only while the node listens; progress does not flood a log."""

import io

import pytest

from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.ros.watchdog import Progress, Watchdog


class Time:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def listen(watchdog: Watchdog, time: Time, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        time.now += 0.1
        watchdog.tick()


def test_a_silence_is_said_once_and_ends_in_failure_with_its_cause():
    time, said = Time(), []
    watchdog = Watchdog(60.0, said.append, time)
    watchdog.watch("no messages on /a", lambda: "no node publishes it")
    listen(watchdog, time, 4.8)
    assert not said
    listen(watchdog, time, 40.0)
    assert said == ["no messages on /a for 5 s: no node publishes it (giving up after 60 s)"]
    with pytest.raises(RunFailure, match="no messages on /a for 60 s, giving up: no node publishes it"):
        listen(watchdog, time, 20.0)


def test_what_is_heard_or_forgotten_is_not_silent():
    time, said = Time(), []
    watchdog = Watchdog(6.0, said.append, time)
    watchdog.watch("no messages on /a", str)
    watchdog.watch("no messages on /b", str)
    watchdog.forget("no messages on /b")
    for _ in range(10):
        listen(watchdog, time, 2.5)
        watchdog.seen("no messages on /a")
    assert not said


def test_time_spent_computing_is_not_silence():
    time = Time()
    watchdog = Watchdog(10.0, lambda sentence: None, time)
    watchdog.watch("no messages on /a", str)
    for _ in range(15):
        time.now += 30.0
        watchdog.tick()
    with pytest.raises(RunFailure):
        listen(watchdog, time, 10.0)


def test_a_slow_simulator_is_not_silent_and_one_that_stands_still_is():
    time, simulated, said = Time(), Time(), []
    watchdog = Watchdog(60.0, said.append, time, simulated)
    watchdog.watch("no messages on /a", str)
    for _ in range(600):  # a tenth of real time
        simulated.now += 0.01
        listen(watchdog, time, 0.1)
        if simulated.now < 4.9:
            assert not said
    assert len(said) == 1  # 6 s of simulated time
    watchdog.seen("no messages on /a")
    listen(watchdog, time, 14.0)
    assert len(said) == 1
    listen(watchdog, time, 3.0)
    assert len(said) == 2


def test_before_a_simulator_has_said_the_time_its_silence_counts():
    time, said = Time(), []
    watchdog = Watchdog(60.0, said.append, time, lambda: 0.0)
    watchdog.watch("no messages on /a", str)
    listen(watchdog, time, 6.0)
    assert len(said) == 1


def test_progress_in_a_log_is_a_line_every_few_seconds():
    stream = io.StringIO()
    with Progress("aligning", 1000, stream) as progress:
        for _ in range(1000):
            progress.advance()
        progress._last_line -= 6.0
        progress.advance()
    assert stream.getvalue() == "aligning: 1001 of 1000\n"
