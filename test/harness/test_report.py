"""A run's page: what it enlarges, how sure it says a result is, and whose names it uses."""

import dataclasses

import numpy as np
import pytest

from stretch_sim_cal.geometry.transforms import exp, from_xyz_rpy
from stretch_sim_cal.harness.clouds_3d import turnable
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.report import _telling_window, _two_states, clouds_before_and_after, drawn, sections
from stretch_sim_cal.harness.verdict import _compared_poses
from stretch_sim_cal.robot.profile import profile_called


def wall(count: int, heights: tuple[float, float]) -> np.ndarray:
    """Returns (N, 3) from a wall 2 m ahead, over half a metre of it."""
    random = np.random.default_rng(0)
    return np.column_stack([
        2.2 + random.normal(0, 1e-3, count), random.uniform(0.0, 0.5, count), random.uniform(*heights, count)
    ])  # fmt: skip


def test_a_robot_with_one_lidar_has_no_pictures_of_two(tmp_path):
    profile = profile_called("two_lidar_amr")
    one = dataclasses.replace(profile, lidars={"left": profile.lidars["left"], "right": profile.lidars["left"]})
    titles = [[section.title for section in sections(RunFiles(tmp_path), ["drive"], each)] for each in (profile, one)]
    assert one.one_lidar and titles == [["Clouds before and after", "Floor residuals"], ["Floor residuals"]]


@pytest.mark.parametrize("heights", [(1.07, 1.13), (0.7, 1.5)])
def test_a_wall_is_enlarged_also_if_the_lidars_have_few_channels(heights):
    points = wall(120, heights)
    other, moved = points + [0.0, 0.001, 0.0], points + [0.01, 0, 0]
    spot, half = _telling_window(
        {"left": points, "right": other, "mast": moved}, {"left": points, "right": other, "mast": points}
    )
    np.testing.assert_allclose(spot[:2], [2.2, 0.25], atol=0.1)
    assert (np.abs(points[:, 2] - spot[2]) < half).sum() > 50


def test_no_empty_slice_is_drawn_where_no_wall_is_seen():
    points = wall(400, (0.0, 0.15))
    both = {"left": points, "right": points}
    assert _telling_window(both, both) is None
    with_slice = clouds_before_and_after(both, both, (np.array([2.2, 0.25, 0.1]), 0.1))
    assert png_height(clouds_before_and_after(both, both)) < 0.8 * png_height(with_slice)
    poses = dict.fromkeys(("left", "right"), np.eye(4))
    clouds = {"left": points.astype(np.float32), "right": points.astype(np.float32)}
    assert "a wall, close" not in turnable(clouds, poses, poses, None)
    assert "a wall, close" in turnable(clouds, poses, poses, np.array([2.2, 0.25, 0.1]))


def test_clouds_without_a_return_are_said_to_be_empty():
    empty, poses = dict.fromkeys(("left", "right"), np.zeros((0, 3))), dict.fromkeys(("left", "right"), np.eye(4))
    section = drawn("Clouds", lambda: _two_states("", (), empty, poses, poses))
    assert section.missing == "the captured clouds have no returns"


def png_height(png: bytes) -> int:
    return int.from_bytes(png[20:24], "big")


def test_the_standard_deviation_beside_an_error_is_that_of_such_errors():
    estimate = from_xyz_rpy((-0.5, 0.3, -0.2), (0.3, 0.6, 3.0))
    random = np.random.default_rng(0)
    root = random.normal(size=(6, 6)) * [[3e-4]] * 3 + np.diag([1e-3] * 3 + [2e-3] * 3)
    errors = []
    for twist in random.normal(size=(2000, 6)) @ root.T:
        compared = _compared_poses(exp(twist) @ estimate, estimate, "", root @ root.T)
        errors.append([each[0] for each in compared.values() if len(each) == 4])
    said = [each[3] for each in compared.values() if len(each) == 4]
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(errors), axis=0)), said, rtol=0.05)
