"""Floors that are refused, and input that is no data."""

import re

import numpy as np
import pytest
from alignment_scenes import further_long
from floor_scenes import Scene, box, height_field, scene_of, solve, solved
from floor_shapes import judged

from stretch_sim_cal.calibration import summaries
from stretch_sim_cal.calibration.floor.support_method import SupportFloor
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, apply, from_xyz_rpy


def the_refusal(result) -> str:
    assert not result.accepted
    return " | ".join(f"{refusal.code}: {refusal}" for refusal in result.refusals)


WALLS = [box([6, 10, 0.5], [-2.9, 0, 0.25]), box([6, 6, 0.5], [2, 3.5, 0.25]), box([6, 6, 0.5], [2, -3.5, 0.25])]
BOWL = height_field(lambda x, y: 0.003 * (x**2 + y**2))


@pytest.mark.parametrize(
    "scene, refusal",
    [
        ({"world": "uneven"}, "floor_not_plane: .* mm (higher|lower) than the plane"),
        ({"things": [box([5, 5, 0.08], [2.6 * x, 2.6 * x, 0]) for x in (1, -1)]}, "floor_not_plane: "),
        ({"things": [box([6, 12, 0.008], [3.1, 0, 0])]}, "floor_step: "),
        ({"things": [BOWL], "without": ("floor", "ground")}, "floor_not_plane: .* it curves by"),
        ({"things": [box([0.8, 0.8, 0.3], [0, 0, 0.15])], "stands_on": 0.3}, "little_floor: .*clear the floor"),
        ({"things": WALLS}, "floor_on_one_side: .* behind"),
    ],
    ids=["uneven", "two levels", "astride a step", "deep bowl", "small pedestal", "floor on one side"],
)
def test_a_floor_that_is_no_plane_around_the_robot_is_refused(scene, refusal):
    assert re.search(refusal, the_refusal(Scene(**scene).solve()))


WHEELS = 0.26  # m from the wheel at y = -0.174 to the axis of the other two
DOOR_MAT = pytest.param(0.008, (0.6, 0.4), marks=pytest.mark.long)


@pytest.mark.parametrize("world", further_long("empty_hall", "furnished_room"))
@pytest.mark.parametrize(
    "height, size",
    [(0.008, (0.6, 0.9)), DOOR_MAT, (0.004, (1.0, 0.1)), (-0.004, (0.6, 0.9))],
    ids=["mat", "door mat", "cable cover", "others on a mat"],
)
def test_a_wheel_on_a_mat_is_refused(world, height, size):
    thing = box([*size, 2 * abs(height)], [0, -0.174, 0])
    if height < 0:  # the other two wheels on a mat
        thing = box([0.8, 0.4, 2 * abs(height)], [0, 0.2, 0])
    scene = Scene(world, things=[thing])
    tilt = np.arctan2(height, WHEELS)
    scene.simulator.move_base(from_xyz_rpy([0, 0, max(-height, 0.0) + (WHEELS - 0.174) * np.sin(tilt)], [-tilt, 0, 0]))
    assert "floor_at_wheels: the floor nearest to the robot is not on the plane: 0." in the_refusal(
        scene.solve(frames=8)
    )


LARGER = [pytest.param(*each, marks=pytest.mark.long) for each in ((0.015, 1.0), (0.02, 0.6))]


@pytest.mark.parametrize("height, width", [(0.01, 0.5), *LARGER])
def test_a_robot_on_a_plate_that_is_too_small_to_be_its_floor_is_refused(height, width):
    scene = Scene(things=[box([width, width, 2 * height], [0, 0, 0])], stands_on=height)
    assert "floor_at_wheels: " in the_refusal(scene.solve())


def test_a_robot_beside_a_drain_is_refused():
    cone = height_field(lambda x, y: 0.01 * np.hypot(x - 1.0, y))
    scene = Scene(things=[cone], without=("floor", "ground"), stands_on=0.01)
    scene.simulator.move_base(from_xyz_rpy([0, 0, 0.01], [0, 0.01, 0]))  # as the floor slopes there
    assert re.search(
        "floor_at_wheels: the floor within 0.7 m of the robot is .* deg off", the_refusal(scene.solve(frames=8))
    )


@pytest.mark.parametrize(
    ("seed", "verdict"),
    [(147017, "right"), (147015, "refused"), pytest.param(147003, "right", marks=pytest.mark.long)],
)
def test_on_tiles_wheels_may_stand_higher_than_most_of_the_floor(seed, verdict):
    """Or lower, by what both lidars see alike: up to 0.3 deg, while the floor on average is right to 0.01."""
    assert judged("tiles", seed)[0] == verdict


@pytest.fixture(scope="module")
def lowered():
    """A base 8 cm lower than described, and what is made of it."""
    scene = Scene(base_height=0.08, mount=0.0)
    return scene, scene.solve(frames=2)


@pytest.mark.parametrize(("height", "found"), [(-0.08, False), (0.045, True)])
def test_the_floor_is_searched_near_the_description_only(height, found):
    assert Scene(base_height=height, mount=0.0).solve(frames=2).accepted is found


def test_the_search_can_be_widened(lowered):
    scene, result = lowered
    refusal = the_refusal(result)
    assert "no floor within 50 mm" in refusal
    assert re.search(r"the nearest plane is 8\d mm lower and tilted by \d\.\d deg", refusal)
    settings = FloorSettings(search_height=0.12)
    scene.assert_found(scene.solve(frames=2, settings=settings), millimetres=0.3, degrees=0.02)


def test_lidars_that_do_not_look_at_the_floor_are_refused():
    scene = scene_of("furnished_room")
    poses = [scene.simulator.base_from_lidar(side) for side in SIDES]
    upwards = ([points[apply(pose, points)[:, 2] > pose[2, 3]] for points, pose in zip(pair, poses, strict=True)]
               for pair in scene.pairs(2))  # fmt: skip
    result = solve(scene.method(), upwards)
    assert "no_floor: no lidar sees the floor" in the_refusal(result)
    (line,) = summaries.floor_lines(result, summaries.floor_numbers(result, np.eye(4)))
    assert line == "floor in base_link (support, 2 pairs of clouds, 0 returns): unknown"


def test_lidars_that_see_different_floors_or_are_swapped_are_refused():
    scene = scene_of("furnished_room")
    different = scene.solve(alignment_error=[0, 0, 0, 0.003, 0.002, 0.0])
    assert "lidars_disagree: " in the_refusal(different) and "align the lidars first" in the_refusal(different)
    assert not solve(scene.method(), ((right, left) for left, right in scene.pairs(2))).accepted


def test_a_robot_that_tilts_meanwhile_is_refused_and_one_that_rolls_over_a_flat_floor_is_not():
    scene = Scene()
    tilted = solve(scene.method(), scene.while_moving(from_xyz_rpy([0, 0, 0], [0, np.radians(0.1), 0])))
    assert "after frame 4 of 6" in the_refusal(tilted)
    rolled = solve(scene.method(), scene.while_moving(from_xyz_rpy([0.05, 0, 0], [0, 0, 0.1])))
    scene.assert_found(rolled, millimetres=0.25, degrees=0.015)


def test_bounds_on_sureness_are_kept():
    settings = FloorSettings(max_std_height=1e-6, max_std_tilt=1e-6)
    refusal = the_refusal(scene_of("furnished_room").solve(frames=1, settings=settings))
    assert "the height is too uncertain" in refusal and "the tilt is too uncertain" in refusal


def test_a_refused_floor_has_an_answer_that_cannot_be_mistaken(lowered):
    _, result = lowered
    assert np.isinf(np.diag(result.covariance)).all() and result.num_inliers == 0
    assert result.support is None


def test_nan_and_inf_and_silent_lidars_are_survived():
    scene = scene_of("furnished_room")
    method = scene.method()
    rng = np.random.default_rng(1)
    for index, (left, right) in enumerate(scene.pairs(6)):
        left[rng.random(len(left)) < 0.2] = np.nan
        right[rng.random(len(right)) < 0.2] = np.inf
        method.add(left if index % 2 else np.full((7, 3), np.nan), right)
    result = method.solve()
    scene.assert_found(result, millimetres=0.3, degrees=0.02)
    assert "3 left clouds have no usable return and were skipped" in result.warnings


def test_one_lidar_alone_is_enough_where_it_sees_the_floor():
    scene = scene_of("furnished_room")
    result = solve(scene.method(), ((left, np.full_like(right, np.nan)) for left, right in scene.pairs(5)))
    scene.assert_found(result, millimetres=0.4, degrees=0.02)
    assert "floor_of_one_lidar" in {finding.code for finding in result.warnings}


def test_no_returns_at_all_are_refused():
    assert "no floor" in the_refusal(solve(scene_of().method(), [(np.full((5, 3), np.nan),) * 2]))


def test_frames_that_repeat_count_once():
    scene = scene_of("furnished_room")
    thrice = solve(scene.method(), list(scene.pairs(2)) * 3)
    np.testing.assert_array_equal(solved("furnished_room", frames=2).covariance, thrice.covariance)
    assert thrice.num_frames == 2
    repeated = [warning for warning in thrice.warnings if warning.code == "repeated_clouds"]
    assert [warning[:12] for warning in repeated] == ["4 left cloud", "4 right clou"]


def test_poses_and_settings_that_cannot_be_meant_are_input_errors():
    for named, meant in {
        "base_from_left": lambda: SupportFloor(np.ones((4, 4)), np.eye(4), np.eye(4)),
        "right_to_left": lambda: SupportFloor(np.eye(4), np.eye(3), np.eye(4)),
        "search_height": lambda: FloorSettings(search_height=-1),
        "covariance": lambda: Observations.of_known_poses((np.eye(4),), np.eye(3)),
        "no scans": lambda: scene_of().method().solve(),
    }.items():
        with pytest.raises(InputError, match=named):
            meant()
