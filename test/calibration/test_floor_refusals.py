"""When the floor must not be trusted, and input that is none."""

import numpy as np
import pytest
from floor_scenes import Scene, box, height_field, scene_of, solved

from stretch_sim_cal.calibration.floor.support_method import SupportFloor
from stretch_sim_cal.calibration.methods import floor_method
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, apply, from_xyz_rpy


def the_refusal(result) -> str:
    assert not result.accepted
    return " | ".join(result.refusals)


def test_an_uneven_floor_is_refused_and_says_how_uneven_and_where():
    refusal = the_refusal(Scene("uneven").solve())
    assert "the floor is not a plane" in refusal
    assert "mm higher than the plane" in refusal or "mm lower than the plane" in refusal


def test_two_levels_of_equal_right_are_refused():
    scene = Scene(things=[box([5, 5, 0.08], [2.6 * x, 2.6 * y, 0]) for x, y in ((1, 1), (-1, -1))])
    assert "the floor is not a plane" in the_refusal(scene.solve())


def test_a_robot_astride_a_step_is_refused():
    scene = Scene(things=[box([6, 12, 0.008], [3.1, 0, 0])])
    assert "on both sides of it" in the_refusal(scene.solve())


def test_a_deep_bowl_is_refused():
    bowl = height_field(lambda x, y: 0.003 * (x**2 + y**2))
    assert "the floor is not a plane: it bends by" in the_refusal(
        Scene(things=[bowl], without=("floor", "ground")).solve()
    )


def test_a_robot_on_a_small_pedestal_is_refused():
    scene = Scene(things=[box([0.8, 0.8, 0.3], [0, 0, 0.15])], stands_on=0.3)
    assert "make room" in the_refusal(scene.solve())


def test_floor_on_one_side_only_is_refused():
    walls = [box([6, 10, 0.5], [-2.9, 0, 0.25]), box([6, 6, 0.5], [2, 3.5, 0.25]), box([6, 6, 0.5], [2, -3.5, 0.25])]
    refusal = the_refusal(Scene(things=walls).solve())
    assert "on one side only" in refusal and "behind" in refusal


@pytest.fixture(scope="module")
def lowered():
    """A base 8 cm lower than described, and what is made of it."""
    scene = Scene(base_height=0.08, mount=0.0)
    return scene, scene.solve(frames=2)


@pytest.mark.parametrize(("height", "found"), [(-0.08, False), (0.045, True)])
def test_the_floor_is_searched_near_the_description_only(height, found):
    assert Scene(base_height=height, mount=0.0).solve(frames=2).accepted is found


def test_the_search_can_be_widened(lowered):
    settings = FloorSettings(search_height=0.12)
    scene, result = lowered
    refusal = the_refusal(result)
    assert "no floor within 50 mm" in refusal
    assert "the nearest level surface is 8" in refusal and "mm lower" in refusal
    scene.assert_found(scene.solve(frames=2, settings=settings), millimetres=0.3, degrees=0.02)


def test_lidars_that_do_not_look_at_the_floor_are_told_so():
    scene = scene_of("furnished_room")
    method, poses = scene.method(), [scene.simulator.base_from_lidar(side) for side in SIDES]
    for pair in scene.pairs(2):
        method.add(*(points[apply(pose, points)[:, 2] > pose[2, 3]] for points, pose in zip(pair, poses, strict=True)))
    result = method.solve()
    assert "no lidar looks at the floor" in the_refusal(result) and result.refusals[0].code == "no_floor"


def test_lidars_that_see_different_floors_are_refused():
    scene = scene_of("furnished_room")
    assert "align the lidars first" in the_refusal(scene.solve(alignment_error=[0, 0, 0, 0.003, 0.002, 0.0]))


def test_left_and_right_swapped_is_refused():
    scene = scene_of("furnished_room")
    method = scene.method()
    for left, right in scene.pairs(2):
        method.add(right, left)
    assert not method.solve().accepted


def test_a_robot_that_tilts_while_it_looks_is_refused():
    scene = Scene()
    method = scene.method()
    for frame in range(6):
        scene.simulator.move_base(from_xyz_rpy([0, 0, 0], [0, np.radians(0.1) if frame >= 4 else 0.0, 0]))
        method.add(*next(scene.simulator.point_pairs(1, frame)))
    assert "after frame 4 of 6" in the_refusal(method.solve())


def test_a_robot_that_rolls_over_a_flat_floor_is_not():
    scene = Scene()
    method = scene.method()
    for frame in range(6):
        scene.simulator.move_base(from_xyz_rpy([0.05 * (frame >= 4), 0, 0], [0, 0, 0.1 * (frame >= 4)]))
        method.add(*next(scene.simulator.point_pairs(1, frame)))
    scene.assert_found(method.solve(), millimetres=0.25, degrees=0.015)


def test_bounds_on_sureness_are_kept():
    refusal = the_refusal(
        scene_of("furnished_room").solve(frames=1, settings=FloorSettings(max_std_height=1e-6, max_std_tilt=1e-6))
    )
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
    assert "3 left clouds hold no usable return and were skipped" in result.warnings


def test_one_lidar_alone_is_enough_where_it_sees_the_floor():
    scene = scene_of("furnished_room")
    method = scene.method()
    for left, right in scene.pairs(5):
        method.add(left, np.full_like(right, np.nan))
    result = method.solve()
    scene.assert_found(result, millimetres=0.4, degrees=0.02)
    assert "floor_of_one_lidar" in {said.code for said in result.warnings}


def test_no_returns_at_all_are_refused():
    method = scene_of().method()
    method.add(np.full((5, 3), np.nan), np.full((5, 3), np.nan))
    assert "no floor" in the_refusal(method.solve())


def test_frames_that_repeat_count_once():
    scene = scene_of("furnished_room")
    method = scene.method()
    for pair in list(scene.pairs(2)) * 3:
        method.add(*pair)
    thrice = method.solve()
    np.testing.assert_array_equal(solved("furnished_room", frames=2).covariance, thrice.covariance)
    assert thrice.num_frames == 2
    repeated = [warning for warning in thrice.warnings if "repeat an earlier one" in warning]
    assert [warning[:12] for warning in repeated] == ["4 left cloud", "4 right clou"]


@pytest.mark.parametrize("scan", [np.zeros((5, 4)), np.zeros(3), [[1, 2, 3], [4, 5]]], ids=str)
def test_what_is_no_scan_is_told(scan):
    method = scene_of().method()
    with pytest.raises(InputError, match="left cloud"):
        method.add(scan, np.ones((5, 3)))


def test_poses_and_settings_that_cannot_be_meant_are_told():
    with pytest.raises(InputError, match="base_from_left"):
        SupportFloor(np.ones((4, 4)), np.eye(4), np.eye(4))
    with pytest.raises(InputError, match="right_to_left"):
        SupportFloor(np.eye(4), np.eye(3), np.eye(4))
    with pytest.raises(InputError, match="search_height"):
        FloorSettings(search_height=-1)
    with pytest.raises(InputError, match="covariance"):
        Observations.of_known_poses((np.eye(4),), np.eye(3))
    with pytest.raises(InputError, match="no scans"):
        scene_of().method().solve()


def test_the_method_is_known_by_name():
    assert floor_method("support") is SupportFloor
    assert floor_method() is SupportFloor
