"""Planning a collection, and what is in the arm's way, before and while it moves."""

import itertools

import numpy as np
import pytest

from stretch_sim_cal.collection.clearance import LOOKS, RoomWatch, Sweep, cropped
from stretch_sim_cal.collection.plan import plan_collection, plan_of_robot
from stretch_sim_cal.collection.settings import load_settings
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import find_shared
from stretch_sim_cal.geometry.transforms import SIDES, apply, from_xyz_rpy, inverse
from stretch_sim_cal.recording.dataset import JOINTS
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.setup import SimulationSetup

SPEEDS = (0.1, 0.15, 0.8, 0.8, 0.8)
MARGIN = 0.01
START = (0.2, 0.0, 0.0, 0.0, 0.0)
GRIDS = ((0.4, 0.8), (0.0, 0.25, 0.5), (-1.0, 0.0, 1.0), (0.0,), (0.0,))


def plan_of(is_free=lambda pose: True, is_touching=lambda pose: False, **options):
    def free(poses):
        return [is_free(pose) for pose in poses]

    def outright(poses):
        return [not is_touching(pose) for pose in poses]

    profile = stretch_profile()
    return plan_collection(START, GRIDS, SPEEDS, free, lambda pose: "a wall", MARGIN, outright, profile, **options)


def finely(tour):
    """Yield poses along a tour, far denser than the planner looks."""
    for a, b in itertools.pairwise(tour):
        for share in np.linspace(0.0, 1.0, 400):
            yield tuple(np.add(a, share * np.subtract(b, a)))


def test_every_pose_is_visited_once_one_joint_moves_at_a_time_and_less_is_left_after_each():
    plan = plan_of()
    assert sorted(visit.pose for visit in plan.visits) == sorted(itertools.product(*GRIDS))
    assert plan.skipped == []
    assert all(np.count_nonzero(np.subtract(a, b)) == 1 for a, b in itertools.pairwise(plan.tour))
    assert plan.tour[0] == plan.tour[-1] == START
    assert all(visit.path[-1] == visit.pose for visit in plan.visits)
    times = [plan.after(number).moving_time(SPEEDS) for number in range(1, len(plan.visits) + 1)]
    assert all(later < earlier for earlier, later in itertools.pairwise([plan.moving_time(SPEEDS), *times]))


def test_the_tour_goes_around_what_is_not_free():
    def is_free(pose):  # a post that the extended arm may pass only when it is high
        lift, arm, yaw, *_ = pose
        return not (abs(yaw - 0.5) < 0.2 and arm > 0.1 and lift < 0.7)

    plan = plan_of(is_free)
    assert len(plan.visits) == 18
    assert all(is_free(pose) for pose in finely(plan.tour))


def test_poses_that_collide_or_cannot_be_reached_are_listed():
    def is_free(pose):
        _, arm, yaw, *_ = pose
        return not 0.3 < yaw < 0.9 and not (arm > 0.4 and yaw < -0.5)

    plan = plan_of(is_free)
    assert {visit.pose[2] for visit in plan.visits} == {-1.0, 0.0}
    reasons = {skipped.pose[1:3]: skipped.reason for skipped in plan.skipped}
    assert reasons[(0.5, -1.0)] == "a wall"
    assert "no collision-free path" in reasons[(0.0, 1.0)]
    assert len(plan.visits) + len(plan.skipped) == 18


def test_a_robot_that_stands_within_the_margin_may_leave_and_one_that_touches_or_is_shut_in_is_not_moved():
    def is_free(pose):
        return pose[0] > 0.25

    assert len(plan_of(is_free, is_touching=lambda pose: pose[0] < 0.1).visits) == 18
    with pytest.raises(Refused, match="parts touch at the arm's present pose"):
        plan_of(is_free, is_touching=lambda pose: True)
    with pytest.raises(Refused, match="no collision-free path"):
        plan_of(lambda pose: not 0.25 < pose[0] < 0.35)


def settings_of(stretch, plan="demo", grids=(), **options):
    return load_settings("body_shape", plan, dict(grids), 1.0, stretch_profile().commanded_limits(stretch), **options)


def test_the_demo_plan_of_the_real_robot_has_16_free_poses(stretch):
    profile, touching = stretch_profile(), SelfCollision(stretch, 0.0, 0.0)
    start = tuple(profile.stowed[profile.commands[joint]] for joint in JOINTS)
    plan = plan_of_robot(stretch, settings_of(stretch), profile, start)
    assert (len(plan.visits), plan.skipped) == (16, [])
    for pose in list(finely(plan.tour))[::37]:
        commanded = {profile.commands[joint]: value for joint, value in zip(JOINTS, pose, strict=True)}
        assert touching.is_free(profile.joint_positions(stretch, commanded))


def test_grids_come_from_the_models_limits_and_from_the_command_line(stretch):
    limits = stretch_profile().commanded_limits(stretch)
    full = settings_of(stretch, "full")
    for joint in JOINTS:
        limit = limits[stretch_profile().commands[joint]]
        assert (full.grids[joint][0], full.grids[joint][-1]) == pytest.approx((limit.lower, limit.upper), abs=1e-8)
    mine = settings_of(stretch, grids={"arm": "count:3,from:0.1,to:0.3", "lift": "0.9, 0.3"}, frames=7)
    assert mine.grids["arm"] == pytest.approx((0.1, 0.2, 0.3))
    assert mine.grids["lift"] == (0.3, 0.9)
    assert mine.frames == 7


@pytest.mark.parametrize(
    ("plan", "grids", "says"),
    [
        ("dance", {}, "has no plan 'dance'; available: demo,"),
        ("demo", {"lift": "2.0"}, "--lift: 2 is outside the joint's limits 0 .. 1.2"),
        ("demo", {"arm": "step:3"}, "--arm: unknown key 'step'"),
        ("demo", {"arm": "count:3.5"}, "--arm: count: is 3.5; expected a whole number"),
    ],
)
def test_plans_that_cannot_be_used_are_named(stretch, plan, grids, says):
    with pytest.raises(InputError, match=says):
        settings_of(stretch, plan, grids)


def test_a_settings_file_is_checked(stretch, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("plans: {demo: {lift: [0.5]}}\nspeeds: {lift: 0.1}\n")
    with pytest.raises(InputError, match=r"mine.yaml: plans: demo: arm: expected a list of values or a mapping"):
        load_settings(file, "demo", {}, 1.0, stretch_profile().commanded_limits(stretch))
    shipped = find_shared("config", "body_shape", ".yaml").read_text()
    file.write_text(shipped.replace("frames: 3 ", "frames: 2.5 "))
    with pytest.raises(InputError, match=r"mine.yaml: frames: is 2.5; expected a whole number"):
        load_settings(file, "demo", {}, 1.0, stretch_profile().commanded_limits(stretch))


def test_the_robots_own_settings_go_before_the_packages_and_hold_fit_and_zones_too(stretch, tmp_path, monkeypatch):
    monkeypatch.setenv("HELLO_FLEET_PATH", str(tmp_path))
    monkeypatch.setenv("HELLO_FLEET_ID", "se4-1")
    shipped = settings_of(stretch)
    own = tmp_path / "se4-1" / "calibration_dual_lidar" / "body_shape.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(shipped.source.read_text().replace("settle_time: 0.3", "settle_time: 1.5"))
    assert (settings_of(stretch).settle_time, settings_of(stretch).source) == (1.5, own)
    assert load_settings("mounts", "quick", {}, 1.0, stretch_profile().commanded_limits(stretch)).settle_time == 0.3
    own.write_text(own.read_text().replace("settle_time", "settling_time"))
    with pytest.raises(InputError, match="body_shape.yaml: unknown key 'settling_time'"):
        settings_of(stretch)


def test_thinning_keeps_real_points_and_more_of_the_robot_than_of_the_floor(stretch):
    settings = settings_of(stretch)
    rng = np.random.default_rng(2)
    footprint_from_lidar = from_xyz_rpy((0.04, 0.12, 1.5), (2.4, 0.3, 0.2))
    floor = np.column_stack([rng.uniform(-2, 2, (60_000, 2)), rng.normal(0, 0.01, 60_000)])
    arm = rng.uniform((0.2, -0.05, 0.5), (0.8, 0.05, 0.6), (5_000, 3))
    points = apply(inverse(footprint_from_lidar), np.concatenate([floor, arm])).astype(np.float32)
    kept = cropped(points, footprint_from_lidar, settings)
    assert {tuple(point) for point in kept} <= {tuple(point) for point in points}
    seen = apply(footprint_from_lidar, kept)
    assert np.hypot(seen[:, 0], seen[:, 1]).max() <= settings.crop_radius + 1e-4
    assert np.count_nonzero(seen[:, 2] > 0.3) > 4_000
    assert np.count_nonzero(seen[:, 2] < 0.3) < 30_000


TOUR = [(0.5, 0.0, 3.0, 0.0, 0.0), (0.5, 0.5, 3.0, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0, 0.0)]


def block(centre, size=0.1):
    return np.add(centre, np.random.default_rng(1).uniform(-size / 2, size / 2, (200, 3)))


@pytest.mark.parametrize(
    ("centre", "in_the_way"),
    [
        ((0.95, -0.09, 0.68), True),  # where the hand comes to
        ((0.95, -0.09, 1.2), False),  # well above it
        ((1.4, 0.0, 0.68), False),  # out of reach
        ((0.6, 0.0, 0.0), False),  # on the floor
        ((0.3, 0.05, 0.7), False),  # bolted to the robot as it stands
    ],
)
def test_what_the_arm_would_hit_is_found(stretch, centre, in_the_way):
    sweep = Sweep(stretch, stretch_profile())
    robot = sweep.at(dict(zip(stretch_profile().commands.values(), TOUR[0], strict=True)))
    found = sweep.obstacle(np.concatenate([robot, block(centre)]), TOUR, {}, 0.05)
    assert (found is not None) == in_the_way
    if found:
        assert np.linalg.norm(found.nearest - centre) < 0.1


POSES = [
    {"lift_joint": lift, "arm_joint": arm, "wrist_yaw_joint": yaw}
    for lift in (0.3, 0.9) for arm in (0.0, 0.5) for yaw in (0.2, 2.8)
]  # fmt: skip


class Room:
    def __init__(self):
        self.simulator = EmbeddedSimulator(SimulationSetup(world="furnished_room", sensor="jt128_sparse_real", seed=2))
        self.model = parse_urdf(self.simulator.nominal_description)
        footprint_from_base = link_transform(self.model, {}, "base_link")
        poses = {side: footprint_from_base @ self.simulator.base_from_lidar(side) for side in SIDES}
        self.watch, self.tick = RoomWatch(self.model, poses, stretch_profile()), 0
        for _ in range(5):
            self.watch.learn(self.scans())

    def scans(self):
        self.tick += 1
        return {side: xyz(self.simulator.scan(side, self.tick)) for side in SIDES}

    def look(self):
        positions = self.simulator.joints.joint_positions
        return self.watch.look(self.scans(), [stretch_profile().commanded_positions(self.model, positions)])

    def person(self, x, y):
        self.simulator.add_surface("person", solids.person().moved(from_xyz_rpy((x, y, 0.0))))


@pytest.fixture(scope="module")
def room():
    return Room()


def test_the_arm_that_moves_and_uncovers_the_room_is_nobody(room):
    for pose in POSES:
        room.simulator.joints.place(pose)
        assert [room.look() for _ in range(LOOKS)] == [None] * LOOKS, pose


@pytest.mark.parametrize("place", [(1.2, 0.3), (-0.3, -1.3), (-1.4, 0.2)])
def test_somebody_who_comes_near_is_noticed_at_the_second_look(room, place):
    room.simulator.joints.place(POSES[3])
    room.person(*place)
    found = [room.look() for _ in range(LOOKS)]
    room.simulator.add_surface("person", None)
    assert found[0] is None and np.hypot(*(found[1] - place)) < 0.4
    assert room.look() is None
