"""Driving by odometry, against the simulated base without ROS's network: where it ends, and when it gives up."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from geometry_msgs.msg import Twist

from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.profile import load_profile
from stretch_sim_cal.ros import base_motion, drive_node, watchdog
from stretch_sim_cal.ros.base_motion import BaseMotion, Odometer, Speeds
from stretch_sim_cal.ros.messages import odometry_message
from stretch_sim_cal.simulation.driving import DrivingBase

BASES = {name: load_profile(name).base for name in ("stretch4", "two_lidar_amr")}
STEP = 0.02


class Road:
    """A base that is driven in a time of its own: what a node is to `BaseMotion`, `said` the odometry that it hears, so
    `late` (s) as an executor is that has more to do."""

    def __init__(self, monkeypatch, base, said=lambda pose: pose, late=0.0):
        self.driving, self.said, self.late, self.twists, self.queued = DrivingBase(base), said, late, [], []
        clock = SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=round(self.driving.now * 1e9)))
        self.node = SimpleNamespace(get_clock=lambda: clock)
        self.log = SimpleNamespace(warning=lambda text: None)
        self.executor = SimpleNamespace(spin_once=lambda timeout_sec: self.spin_once(timeout_sec))
        for module in (base_motion, watchdog):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.driving.now))
        monkeypatch.setattr(base_motion, "MatchedSubscription", lambda *_, **__: SimpleNamespace(close=None))
        self.watchdog = watchdog.Watchdog(1.0, lambda text: None, now=lambda: self.driving.now)
        self.watchdog.watch("odometry", str)
        self.odometer = Odometer(self, "/odom", self.watchdog)
        self.motion = BaseMotion(self, self.odometer, base, "/cmd_vel", Speeds.of(base, 0.2, 0.5), self.watchdog)
        self.motion._publisher = SimpleNamespace(msg_type=Twist, publish=self._publish)
        while self.odometer.pose is None:
            self.spin_once(STEP)

    def _publish(self, twist):
        self.twists.append((twist.linear.x, twist.linear.y, twist.angular.z))
        self.driving.command(*self.twists[-1])

    def spin_once(self, timeout):
        self.driving.step(float(np.clip(timeout, 1e-3, STEP)))
        pose, twist = self.driving.odometry(self.driving.now)
        x, y, yaw = self.said(pose)
        matrix = from_xyz_rpy((x, y, 0.0), (0.0, 0.0, yaw))
        message = odometry_message(matrix, twist, ("odom", "base"), round(self.driving.now * 1e9))
        self.queued.append((self.driving.now + self.late, message))
        if self.queued[0][0] <= self.driving.now:
            self.hear(self.queued.pop(0)[1])

    def hear(self, message):
        self.watchdog.seen("odometry")
        self.odometer._take(message)

    signals_held = staticmethod(contextlib.nullcontext)


def look(_left):
    pass


def test_it_turns_beyond_a_whole_turn_and_drives_there_and_back(monkeypatch):
    road = Road(monkeypatch, BASES["stretch4"])
    turns = np.array([[0.0, 0.0, yaw] for yaw in (2.0, 4.0, 6.3, 4.0, 2.0, 0.5)])
    ways = [[0.7 * np.cos(0.5), 0.7 * np.sin(0.5), 0.5], [0.0, 0.0, 0.5]]
    ways += [[-0.4 * np.sin(0.5), 0.4 * np.cos(0.5), 0.5], [0.0, 0.0, 0.5]]
    for target in np.vstack([turns, ways]):
        road.motion.drive(target, look)
        gap = np.abs(road.odometer.pose - target)
        assert np.all(gap < [0.02, 0.02, 0.035]) and road.odometer.stands and not road.driving.moving
    twists = np.array(road.twists)
    assert 0.15 < np.hypot(*twists[:, :2].T).max() < 0.201 and 0.45 < np.abs(twists[:, 2]).max() < 0.501
    # Speed comes and goes gradually, but for the last centimetre.
    assert np.abs(np.diff(twists[:, 0])).max() < 0.08


def test_what_is_looked_at_is_what_is_left_of_the_way(monkeypatch):
    road, seen = Road(monkeypatch, BASES["two_lidar_amr"]), []
    road.motion.drive(np.array([-0.5, 0.0, 0.0]), lambda left: seen.append(left.copy()))
    np.testing.assert_allclose(seen[0], [-0.5, 0.0], atol=0.01)
    assert np.all(np.diff([left[0] for left in seen[:-10]]) >= 0.0) and not seen[-1].any()


@pytest.mark.parametrize(
    ("said", "target"),
    [
        (lambda pose: -pose, (0.6, 0.0, 0.0)),
        (lambda pose: pose[[1, 0, 2]], (0.6, 0.0, 0.0)),
        (lambda pose: pose * [1, 1, -1], (0.0, 0.0, 2.0)),
    ],
)
def test_odometry_that_goes_another_way_stops_it(monkeypatch, said, target):
    road = Road(monkeypatch, BASES["stretch4"], said)
    with pytest.raises(Refused, match="does not follow the commands"), road.motion.stopping():
        road.motion.drive(np.array(target), look)
    assert not road.driving.moving and not any(road.twists[-1])
    assert np.hypot(*road.driving.odometry(road.driving.now)[0][:2]) < 0.3


def test_a_base_that_stands_still_or_never_does_is_given_up(monkeypatch):
    road = Road(monkeypatch, BASES["stretch4"], lambda pose: pose * 0)
    with pytest.raises(Refused, match="did not move for 3 s.*run-stop on, .*mode other than navigation or velocity"):
        road.motion.drive(np.array([0.6, 0.0, 0.0]), look)
    random = np.random.default_rng(3)
    road = Road(monkeypatch, BASES["stretch4"], lambda pose: pose + random.normal(size=3) * 0.005)
    with pytest.raises(RunFailure, match="does not come to rest"):
        road.motion.drive(np.array([0.6, 0.0, 0.0]), look)
    drive = object.__new__(drive_node._Drive)
    drive.odometer, drive._context, drive._options = road.odometer, road, SimpleNamespace(scans=1)
    drive._robot = SimpleNamespace(lidars={"left": ("/left", "left")}, watchdog=road.watchdog)
    drive._taken = lambda: [SimpleNamespace(messages={"left": None}, stamp=road.odometer.stamp)]
    with pytest.raises(RunFailure, match="does not come to rest"):
        drive._stand(SimpleNamespace(write_odometry=lambda: None))


def test_silent_odometry_ends_the_motion(monkeypatch):
    road = Road(monkeypatch, BASES["stretch4"])
    hear = road.hear
    road.hear = lambda message: hear(message) if road.driving.now < 1.0 else None
    with pytest.raises(RunFailure, match="odometry for 1 s"), road.motion.stopping():
        road.motion.drive(np.array([0.6, 0.0, 0.0]), look)
    assert not any(road.twists[-1]) and not road.driving.moving


def test_clouds_that_cannot_be_used_do_not_end_the_stopping(monkeypatch):
    road, spin_once = Road(monkeypatch, BASES["stretch4"]), Road.spin_once

    def complain(timeout):
        spin_once(road, timeout)
        if road.driving.now > 1.0:
            raise InputError("clouds of the other lidar")

    road.spin_once = complain
    with pytest.raises(InputError), road.motion.stopping():
        road.motion.drive(np.array([0.6, 0.0, 0.0]), look)
    assert not road.driving.moving and road.odometer.stands


@pytest.mark.parametrize(("part", "values", "told"), [
    ("position", {"x": float("nan")}, "not a number"), ("orientation", {"w": 0.0, "z": 0.0}, "quaternion of length 0"),
])  # fmt: skip
def test_odometry_that_is_no_pose_ends_the_motion_before_anything_is_made_of_it(monkeypatch, part, values, told):
    road = Road(monkeypatch, BASES["stretch4"])
    hear = road.hear

    def spoilt(message):
        if road.driving.now > 1.0:
            for name, value in values.items():
                setattr(getattr(message.pose.pose, part), name, value)
        hear(message)

    road.hear = spoilt
    with pytest.raises(InputError, match=f"/odom: .*{told}"), road.motion.stopping():
        road.motion.drive(np.array([0.6, 0.0, 0.0]), look)
    assert np.isfinite(road.twists).all() and not any(road.twists[-1]) and not road.driving.moving


def test_odometry_from_before_a_stop_does_not_confirm_it(monkeypatch):
    road, looks = Road(monkeypatch, BASES["stretch4"], late=1.0), []

    def interrupted(left):
        looks.append(left)
        if len(looks) == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), road.motion.stopping():
        road.motion.drive(np.array([0.6, 0.0, 0.0]), interrupted)
    assert not road.driving.moving
    np.testing.assert_allclose(road.odometer.pose, road.driving.odometry(road.driving.now)[0], atol=1e-9)
