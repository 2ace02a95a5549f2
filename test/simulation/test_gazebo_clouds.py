"""Which scans of a Gazebo lidar are there, and which are not waited for."""

import time

import pytest

from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.simulation.gazebo import running
from stretch_sim_cal.simulation.gazebo.messages import encode
from stretch_sim_cal.simulation.gazebo.running import LEFT_OUT, NOT_CAST, Clouds

BEAT = 100_000_000  # ns


class World:
    """A world whose lidar says what a test lets it say."""

    time = renewals = 0

    def subscribe(self, _topic, _message_type, hear):
        self.hear = hear

    def unsubscribe(self, _topic):
        self.hear = None

    def wait(self, ready, complaint):
        deadline = time.monotonic() + 1.0
        while (found := ready()) is None:
            if time.monotonic() > deadline:
                raise RunFailure(complaint)
            time.sleep(0.01)
        return found

    def publish(self, stamp):
        self.hear(cloud(stamp))


def cloud(stamp):
    return encode((1, encode((1, encode((1, stamp // 10**9), (2, stamp % 10**9))))))


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(running, "PATIENCE", 0.05)
    return World()


@pytest.fixture
def lidar(world):
    return Clouds(world, "/points")


def test_the_first_cloud_after_a_pause_is_off_the_beat(world, lidar):
    world.time = 3 * BEAT + 25_000_000
    lidar.listen(True)
    for stamp in (3 * BEAT + 50_000_000, 4 * BEAT, 5 * BEAT):
        world.publish(stamp)
    assert lidar.taken_at(3 * BEAT) == NOT_CAST
    assert lidar.taken_at(4 * BEAT) == cloud(4 * BEAT)
    assert lidar.taken_at(5 * BEAT) == cloud(5 * BEAT)


def test_the_first_cloud_after_a_new_subscription_is_off_the_beat(world, lidar):
    lidar.listen(True)
    for stamp in (0, BEAT, 2 * BEAT):
        world.publish(stamp)
    world.renewals += 1
    for stamp, newest in ((4 * BEAT + 25_000_000, 2 * BEAT), (5 * BEAT, 5 * BEAT)):
        world.publish(stamp)
        assert lidar.newest == newest


def test_a_scan_that_is_left_out_is_not_waited_for(world, lidar):
    lidar.listen(True)
    for stamp in (0, 1, 3):
        world.publish(stamp * BEAT)
    assert lidar.taken_at(2 * BEAT) == LEFT_OUT  # a later one is there
    assert lidar.taken_at(4 * BEAT) == LEFT_OUT  # nothing is, and time stands still as long as it is waited for
    world.publish(5 * BEAT)
    assert lidar.taken_at(5 * BEAT) == cloud(5 * BEAT)


def test_a_lidar_that_is_silent_for_long_is_a_failure(world, lidar, monkeypatch):
    monkeypatch.setattr(running, "SILENCE_TIMEOUT", 0.02)
    lidar.listen(True)
    world.publish(0)
    with pytest.raises(RunFailure, match="/points has not published its scan of 0.100 s"):
        lidar.taken_at(BEAT)


def test_what_was_heard_before_a_pause_stays_and_nothing_is_waited_for_in_it(world, lidar):
    lidar.listen(True)
    world.publish(0)
    world.publish(BEAT)
    lidar.listen(False)
    assert lidar.taken_at(BEAT) == cloud(BEAT)
    assert lidar.taken_at(2 * BEAT) == NOT_CAST
