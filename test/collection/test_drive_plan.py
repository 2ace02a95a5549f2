"""A drive is planned within the space that is seen to be free, and ends when the target is reached."""

import numpy as np
import pytest

from stretch_sim_cal.calibration.wheel_odometry import DrivingSettings
from stretch_sim_cal.collection.drive_plan import Course, DrivingBody, Known, plan_drive
from stretch_sim_cal.errors import Refused
from stretch_sim_cal.geometry.transforms import from_xyz_rpy

CYLINDER = DrivingBody.of({"body_radius": 0.3, "body_height": 1.0}, np.eye(4))


def box(low, high, spacing=0.04):
    """Return points on the walls of a box from `low` to `high`, (3,) each in m, and on what is below it."""
    x, y, z = (np.arange(a, b + spacing / 2, spacing) for a, b in zip(low, high, strict=True))
    sides = [np.stack(np.meshgrid([edge], y, z), -1).reshape(-1, 3) for edge in (low[0], high[0])]
    sides += [np.stack(np.meshgrid(x, [edge], z), -1).reshape(-1, 3) for edge in (low[1], high[1])]
    return np.concatenate([*sides, np.stack(np.meshgrid(x, y, [low[2]]), -1).reshape(-1, 3)])


ROOM = box((-3.0, -3.0, 0.0), (3.0, 3.0, 1.5))
SMALL = box((-0.7, -0.7, 0.0), (0.7, 0.7, 1.5))


def plan_in(points, strafes=True, **settings):
    return plan_drive(CYLINDER, points, strafes, **settings)


def headings(plan):
    """Return the headings (deg) of the straight ways, over the floor."""
    ends = [stop.target for stop in plan.stops if stop.target[:2].any()]
    return [round(float(np.degrees(np.arctan2(y, x)))) % 360 for x, y, _ in ends]


def test_a_full_turn_and_back_and_ways_in_all_directions():
    plan = plan_in(ROOM)
    yaws = np.degrees([stop.target[2] for stop in plan.stops if not stop.target[:2].any()])
    np.testing.assert_allclose(yaws[:12], [60, 120, 180, 240, 300, 360, 300, 240, 180, 120, 60, 0], atol=1e-9)
    assert headings(plan) == [0, 180, 90, 270] and plan.note == ""
    assert plan.reach == pytest.approx(1.1) and not plan.only_turns
    assert plan.moving_time(0.1, np.radians(30.0)) == pytest.approx(8 * 0.8 / 0.1 + 720.0 / 30.0)
    assert headings(plan_in(ROOM, strafes=False)) == [0, 180]


def test_ways_are_as_long_and_where_there_is_room():
    # Walls at 0.7 m to both sides: room for ways along y alone, which the stop at 90 deg has ahead and behind.
    lane = box((-0.7, -3.0, 0.0), (0.7, 1.2, 1.5))
    plan = plan_in(lane, strafes=False, turn_step=np.radians(90.0))
    assert headings(plan) == [90, 270]
    ahead, behind = (np.hypot(*stop.target[:2]) for stop in plan.stops if stop.target[:2].any())
    assert ahead == pytest.approx(0.55, abs=0.051) and ahead < 0.6 and behind == pytest.approx(0.8)
    one_way = plan_in(lane - [0, 0.4, 0], strafes=False, turn_step=np.radians(90.0))
    assert headings(one_way) == [270] and "no room for a straight path of 0.3 m ahead" in one_way.note


def test_a_small_place_is_for_turns_only_and_a_smaller_one_for_none():
    plan = plan_in(SMALL)
    assert plan.only_turns and len(plan.stops) == 12 and "the robot turns only" in plan.note
    assert "no room" in plan.note
    short = plan_in(ROOM, distance=0.2)
    assert short.only_turns and "straight paths of 0.2 m are too short" in short.note and "no room" not in short.note
    with pytest.raises(Refused, match="no room to turn: .* nearer than 0.60 m .* nearest at x"):
        plan_in(box((-0.7, -0.55, 0.0), (0.7, 0.7, 1.5)))


def test_what_no_lidar_sees_is_not_driven_to():
    ahead = ROOM[np.abs(np.arctan2(ROOM[:, 1], ROOM[:, 0])) < np.radians(120.0)]
    assert 180 not in headings(plan_in(ahead))


def test_holes_count_and_floor_ceiling_and_the_robot_itself_do_not():
    way = np.array([0.8, 0.0])
    there = np.tile([1.0, 0.1, 0.5], (6, 1))
    assert CYLINDER.in_way(there, way, 0.2).count == 6
    assert CYLINDER.in_way(there - [0, 0, 0.7], way, 0.2) is not None
    for moved in ([0, 0, -0.45], [0, 0, 1.0], [-0.9, 0, 0], [0.4, 0, 0], [0, 0.6, 0]):
        assert CYLINDER.in_way(there + moved, way, 0.2) is None, moved
    assert CYLINDER.in_way(there, np.zeros(2), 0.2) is None
    assert CYLINDER.in_way(there[:4], way, 0.2) is None  # a few points are noise
    shaped = DrivingBody.of({"body": box((-0.3, -0.2, 0.1), (0.3, 0.2, 0.6))}, np.eye(4))
    assert shaped.radius == pytest.approx(0.36, abs=0.01) and shaped.height == pytest.approx(0.6, abs=0.05)
    beside = np.tile([0.0, 0.25, 0.3], (6, 1))
    assert shaped.in_way(beside, np.zeros(2), 0.2) is None
    assert shaped.in_way(beside + [0, 0.15, 0], np.zeros(2), 0.2) is not None


POSES = [from_xyz_rpy((0.0, 0.2, 1.3)), from_xyz_rpy((0.0, -0.2, 1.3))]


def course(plan, mm=2.0, deg=0.2, longest=300.0):
    """Return the course of a drive at 0.15 m/s and 20 deg/s with 2 s a stop, for standard deviations of mm and deg."""

    def seconds(before, after):
        way = np.abs(after - before)
        return np.hypot(*way[:2]) / 0.15 + way[2] / np.radians(20.0) + 2.0

    return Course(plan, POSES, DrivingSettings(max_std_translation=1e-3 * mm, max_std_yaw=np.radians(deg)), seconds,
                  longest)  # fmt: skip


class Robot:
    """Goes where a course sends it; an estimate knows what was expected, with `slip` times as much."""

    def __init__(self, slip=1.0, accepted=True):
        self.slip, self.accepted, self.stops, self.added, self.estimates = slip, accepted, [], 0, 0

    def go(self, stop, added):
        self.stops.append(stop)
        self.added += added

    def estimate(self):
        self.estimates += 1
        covariance = (self.slip * np.array([0.8e-3, 0.6e-3, np.radians(0.15), 0.01, 0.01, 0.002])) ** 2
        deviations = self.slip * np.tile([0.8e-3, 0.6e-3, np.radians(0.15)], (2, 1))
        return Known(np.diag(covariance), np.zeros(3), self.slip, deviations, self.accepted)


PLAN = plan_in(ROOM)


def test_a_drive_ends_at_its_place_when_enough_is_known():
    robot = Robot()
    ending = course(PLAN).follow(robot.go, robot.estimate)
    assert "target reached" in ending.why and ending.stops == robot.stops and robot.estimates == 1
    assert 12 < len(ending.stops) < len(PLAN.stops) and not ending.stops[-1].target[:2].any()
    assert len(course(PLAN, 5.0, 0.5).expected().stops) < len(ending.stops)
    expected = course(PLAN).expected()
    assert len(expected.stops) == len(ending.stops) and expected.why.startswith("target reached: x, y and yaw of every")


def test_too_little_is_known_and_the_motion_that_gains_most_is_added():
    tight = course(PLAN, 2.0, 0.1).expected()
    assert len(tight.stops) > len(PLAN.stops) and np.degrees(tight.known.deviations[:, 2].max()) < 0.1
    assert tight.stops[20].words.startswith("1.60 m")  # a longer straight way than planned, for yaw
    slippery = Robot(slip=2.0)
    ending = course(PLAN).follow(slippery.go, slippery.estimate)
    assert slippery.added > 0 and slippery.stops[20].words.startswith("1.60 m") and slippery.estimates > 1
    assert "no further motion within the time limit helps much" in ending.why
    assert "above the targets of 2 mm and 0.2 deg" in ending.why
    lever = Robot()
    course(PLAN, 0.7, 0.2).follow(lever.go, lever.estimate)
    assert lever.stops[20].words == "turned to 60 deg"  # another turn, for x and y


def test_a_drive_ends_in_time():
    for longest in (40.0, 80.0, 120.0):
        ending = course(PLAN, longest=longest).expected()
        times = np.diff([np.zeros(3), *(stop.target for stop in ending.stops)], axis=0)
        spent = np.sum(np.hypot(*times[:, :2].T) / 0.15 + np.abs(times[:, 2]) / np.radians(20.0) + 2.0)
        enough = "target reached" in ending.why
        assert spent <= longest and (enough or f"time limit of {longest:g} s reached" in ending.why)
    assert enough
    robot = Robot()
    ending = course(PLAN, longest=40.0).follow(robot.go, robot.estimate)
    assert robot.estimates == 1 and len(robot.stops) == len(ending.stops) < 12


def test_a_drive_does_not_go_on_for_what_no_motion_changes():
    small = plan_in(SMALL)
    ending = course(small).expected()
    assert "no further motion" in ending.why and len(ending.stops) == len(small.stops)
    robot = Robot(accepted=False)
    ending = course(PLAN).follow(robot.go, robot.estimate)
    assert "refused" in ending.why and len(ending.stops) == len(PLAN.stops) and robot.estimates == 2
