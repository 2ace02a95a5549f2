"""Checks of calibration files: limits of their values, and the change from one file to the next in sigmas."""

import datetime
from dataclasses import replace

import numpy as np
import pytest
from made_results import by_arm_and_wheels

from stretch_sim_cal.calibration import calibration_file as keys
from stretch_sim_cal.calibration.checks import Change, Described, changes, concerns, deviations, problems
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base
from stretch_sim_cal.geometry.transforms import from_xyz_rpy

NOW = datetime.datetime(2026, 6, 1, 12, 0)
DEGREE = np.pi / 180
POSE = from_xyz_rpy((0.1, -0.3, 0.2), (0.5, -1.0, 2.0))
SURE = np.diag([1e-4**2] * 3 + [1e-4**2] * 3)


def file(
    floor=(0.0, 0.0, 1.0), height=0.03, covariance=SURE, floor_covariance=SURE[2:5, 2:5], age=0, floor_age=0, **more
):
    entries = {
        keys.RIGHT_TO_LEFT: keys.Entry(timestamp=NOW - datetime.timedelta(days=age), covariance=covariance),
        keys.FOOTPRINT: keys.Entry(timestamp=NOW - datetime.timedelta(days=floor_age), covariance=floor_covariance),
    }
    plane = Plane.from_coefficients(floor, height)
    right = more.pop("right_to_left", POSE)
    to_left = {} if right is None else {"right": right}
    return keys.CalibrationFile(to_left, **{"floor_plane": plane, "entries": entries, **more})


@pytest.mark.parametrize(
    "given, words",
    [
        ({}, None),
        ({"height": -0.03}, "base_link lies 30.0 mm below the floor"),
        ({"floor": (1.0, 0.0, 0.5)}, "base_link's z axis does not point up"),
        ({"floor": (1.0, 0.0, 0.6)}, "59.0 deg from the description"),
        ({"height": 0.079}, None),
        ({"height": 0.081}, "the floor is 51 mm and 0.0 deg from the description"),
        ({"floor": (0.0, np.tan(5.1 * DEGREE), 1.0)}, "5.1 deg from the description"),
        ({"entries": {}, "right_to_left": None, "floor_plane": None}, "neither an alignment of the lidars nor a floor"),
        ({"contradictions": ("two floors",)}, "two floors"),
        ({"right_to_left": POSE @ from_xyz_rpy((0.299, 0, 0), (0, 0, 14.9 * DEGREE))}, None),
        ({"right_to_left": POSE @ from_xyz_rpy((0.301, 0, 0))}, "301 mm and 0.0 deg"),
        ({"right_to_left": POSE @ from_xyz_rpy((0, 0, 0), (0, 0, 15.1 * DEGREE))}, "15.1 deg"),
    ],
)
def test_what_forbids_the_use_of_a_file(given, words):
    described = Described({"right": POSE}, footprint_from_base(Plane.from_coefficients([0, 0, 1], 0.03)))
    assert [words in problem for problem in problems(file(**given), described)] == [True] * (words is not None)


@pytest.mark.parametrize("height", [None, 0.0, -0.03])
def test_base_link_may_lie_on_the_floor_or_where_it_is_described_below_it(height):
    at = None if height is None else footprint_from_base(Plane.from_coefficients([0, 0, 1], height))
    for above, below in ((0.0, False), (-0.002, False), (-0.012, True)):
        found = problems(file(height=above + (height or 0.0)), Described({"right": POSE}, at))
        assert [below and "below the floor" in problem for problem in found] == [True] * below


def test_entries_of_two_robots_are_a_problem():
    calibration = file()
    entries = [replace(entry, robot_id=name) for name, entry in zip("ba", calibration.entries.values(), strict=True)]
    mixed = replace(calibration, entries=dict(zip(calibration.entries, entries, strict=True)))
    assert problems(mixed) == ["its entries belong to different robots: a, b"]
    (concern,) = concerns(mixed, NOW, "b")
    assert concern.endswith(": belongs to robot a, this one is b")
    whole = by_arm_and_wheels(np.random.default_rng(1))
    for key in (keys.RIGHT_TO_LEFT, keys.MOUNTS, keys.WHEELS):
        for name, found in (("q", ["its entries belong to different robots: q, r"]), ("unknown", [])):
            assert problems(whole.updated({key: {"robot_id": name}})) == found, key


def unsure(length, angle):
    return np.diag([1e-8, length**2, 1e-8, 1e-10, 1e-10, angle**2])


@pytest.mark.parametrize("given, words", [
    ({}, []), ({"age": 365, "floor_age": 365}, []), ({"age": 366, "floor_age": 300}, ["is 366 days old"]),
    ({"age": -0.9, "floor_age": -0.95}, []),
    ({"age": -0.5, "floor_age": -1.1}, ["has a timestamp in the future (2026-06-02)"]),
    ({"age": 1, "floor_age": 2}, ["the floor is older than the alignment"]),
    ({"covariance": None}, ["the alignment has no covariance"]), ({"covariance": unsure(0.00099, 0.019 * DEGREE)}, []),
    ({"covariance": unsure(0.00101, 0.0)}, ["the alignment is uncertain: standard deviation 1.01 mm, 0.001 deg"]),
    ({"covariance": unsure(0.0, 0.021 * DEGREE)}, ["the alignment is uncertain: standard deviation 0.10 mm"]),
    ({"floor_covariance": np.diag([0.0005, 0.09 * DEGREE, 0]) ** 2}, []),
    ({"floor_covariance": np.diag([0.0005, 0, 0.11 * DEGREE]) ** 2}, ["the floor is uncertain"]),
    ({"floor_covariance": np.diag([0.002, 0, 0]) ** 2}, ["the floor is uncertain: standard deviation 2.00 mm"]),
])  # fmt: skip
def test_what_a_user_should_know_of_a_file(given, words):
    found = concerns(file(**given), NOW)
    assert len(found) == len(words) and all(word in concern for word, concern in zip(words, found, strict=True))


def test_deviations_are_the_largest_along_any_direction():
    turned = from_xyz_rpy((0, 0, 0), (0.3, 0.8, -0.4))[:3, :3]
    covariance = np.zeros((6, 6))
    covariance[:3, :3] = turned @ np.diag([1.0, 4.0, 9.0]) @ turned.T
    covariance[3:, 3:] = turned @ np.diag([0.25, 0.01, 0.04]) @ turned.T
    assert deviations(covariance) == pytest.approx((3.0, 0.5))
    assert deviations(np.diag([4.0, 0.01, 0.09])) == pytest.approx((2.0, 0.3))


def test_two_files_differ_by_what_they_have_in_common():
    other = file(height=0.034, right_to_left=POSE @ from_xyz_rpy((0.003, 0, 0), (0, 0, 0.01)))
    alignment, floor = changes(file(), other)
    assert (alignment.what, floor.what) == ("lidar to lidar", "floor")
    assert (alignment.distance, alignment.angle) == pytest.approx((0.003, 0.01))
    assert (floor.distance, floor.angle) == pytest.approx((0.004, 0.0), abs=1e-9)
    assert [difference.what for difference in changes(file(right_to_left=None), other)] == ["floor"]
    assert Change("", 1.0, 2.0).within(1.0, 2.0)
    assert not Change("", 1.0, 2.0).within(0.9, 2.0) and not Change("", 1.0, 2.0).within(1.0, 1.9)


def mounts(left, deviation=1e-3):
    poses = {"left": left.tolist(), "right": (left @ POSE).tolist()}
    return {keys.MOUNTS: {"data": poses, "covariance": (np.eye(12) * deviation**2).tolist()}}


def test_a_change_is_given_in_sigmas_of_both_calibrations():
    step = from_xyz_rpy((6e-4, 0, 0), (0, 0, 0))
    after = file(right_to_left=step @ POSE, covariance=4 * SURE, floor=(1e-3, 0, 1), height=0.031)
    change, floor = changes(file(), after)
    assert (change.what, change.distance) == ("lidar to lidar", pytest.approx(6e-4))
    assert change.before == pytest.approx((1e-4, 1e-4)) and change.after == pytest.approx((2e-4, 2e-4))
    assert change.sigmas == pytest.approx(6e-4 / (np.sqrt(5.0) * 1e-4) / np.sqrt(6.0))
    assert floor.distance == pytest.approx(1e-3, rel=1e-3) and floor.angle == pytest.approx(1e-3, rel=1e-3)
    assert floor.before == floor.after == pytest.approx((1e-4, 1e-4))
    assert floor.sigmas == pytest.approx(10.0 / np.sqrt(3.0), rel=1e-3)  # 10 and 10, over the square root of 2 times 3
    by_alias = [file(entries={key: keys.Entry(covariance=SURE[2:5, 2:5])}, right_to_left=None) for key in keys.FLOORS]
    assert [changes(each, after)[0].sigmas for each in by_alias] == pytest.approx([floor.sigmas] * 3)
    unlike = np.diag([1e-4, 2e-4, 3e-4, 6e-4, 5e-4, 4e-4]) ** 2
    assert changes(file(covariance=unlike), file())[0].before == pytest.approx((3e-4, 6e-4))
    without = changes(file(covariance=None), file())[0]
    assert (without.before, without.sigmas) == (None, None) and without.after is not None
    assert [change.what for change in changes(file(floor_plane=None), file())] == ["lidar to lidar"]


def test_floors_seen_from_a_described_and_a_calibrated_lidar_have_no_sigmas():
    before, after = file(), file(data=mounts(np.eye(4)))
    assert changes(before, after)[1].sigmas is None and changes(after, after)[1].sigmas == 0.0
    assert [change.what for change in changes(before, after)] == ["lidar to lidar", "floor"]


def test_a_turned_mount_is_no_shift():
    left = from_xyz_rpy((0.04, 0.12, 1.5), (0.0, 0.5, 1.0))
    turned = left @ from_xyz_rpy((0, 0, 0), (0.004, 0, 0))
    *_, change, right = changes(file(data=mounts(left)), file(data=mounts(turned)))
    assert (change.what, right.what) == ("left lidar on the robot", "right lidar on the robot")
    assert change.distance == pytest.approx(0.0, abs=1e-12) and change.angle == pytest.approx(0.004)
    assert right.distance > 1e-4 and right.angle == pytest.approx(0.004)
    # About the lidar the position is known to 1 mm and what turns of base_link add over 1.5 m, in both.
    lever, unit = np.array([[0, -1.5, 0.12], [1.5, 0, -0.04], [-0.12, 0.04, 0]]), np.eye(3)
    about = np.block([[unit, -lever], [np.zeros((3, 3)), unit]])
    both = 2e-6 * about @ about.T
    step = np.concatenate([np.zeros(3), left[:3, :3] @ [0.004, 0, 0]])
    assert change.sigmas == pytest.approx(np.sqrt(step @ np.linalg.solve(both, step) / 6.0), rel=1e-6)


def test_a_change_to_the_wheels_is_planar_and_the_short_way_round():
    before = by_arm_and_wheels(np.random.default_rng(1))
    turn, poses = from_xyz_rpy((0.0, 0.0, 1.0), (0, 0, 3.5)), before.footprint_from_lidar
    turned = {name: (turn @ pose).tolist() for name, pose in poses.items()}
    left, right = changes(before, before.updated({keys.WHEELS: {"data": turned}}))[-2:]
    assert (left.what, right.what) == ("left lidar to the wheels", "right lidar to the wheels")
    assert left.angle == right.angle == pytest.approx(2 * np.pi - 3.5) and left.sigmas > 10


def test_an_entry_whose_name_is_nearly_one_that_is_read_is_reported():
    ours = {"right_to_left_transfrom": {}, "my_notes": {}, "mast_to_left_transform": {"data": np.eye(4).tolist()}}
    found = concerns(keys.CalibrationFile.from_mapping(ours), NOW)
    assert [each for each in found if "is not read" in each] == [
        "right_to_left_transfrom: is not read; did you mean right_to_left_transform?"
    ]
