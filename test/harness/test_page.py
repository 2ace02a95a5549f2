"""A run's page: what it enlarges, how sure it says a result is, and its clouds in 3D."""

import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from made_results import alignment_result, box_returns
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, apply, exp, from_xyz_rpy, inverse
from stretch_sim_cal.harness import report
from stretch_sim_cal.harness.clouds_3d import MOST_POINTS, CapturedClouds, placed, turnable
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.verdict import _compared_poses
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit import SCALARS

pytestmark = pytest.mark.usefixtures("quick_pictures")


def wall(count: int, heights: tuple[float, float]) -> np.ndarray:
    """Returns (N, 3) from a wall 2 m ahead, over half a metre of it."""
    random = np.random.default_rng(0)
    return np.column_stack([
        2.2 + random.normal(0, 1e-3, count), random.uniform(0.0, 0.5, count), random.uniform(*heights, count)
    ])  # fmt: skip


@pytest.mark.parametrize("heights", [(1.07, 1.13), (0.7, 1.5)])
def test_a_wall_is_enlarged_also_if_the_lidars_have_few_channels(heights):
    points = wall(120, heights)
    other, moved = points + [0.0, 0.001, 0.0], points + [0.01, 0, 0]
    spot, half = report._telling_window(
        {"left": points, "right": other, "mast": moved}, {"left": points, "right": other, "mast": points}
    )
    np.testing.assert_allclose(spot[:2], [2.2, 0.25], atol=0.1)
    assert (np.abs(points[:, 2] - spot[2]) < half).sum() > 50


def test_the_standard_deviation_beside_an_error_is_that_of_such_errors():
    estimate = from_xyz_rpy((-0.5, 0.3, -0.2), (0.3, 0.6, 3.0))
    random = np.random.default_rng(0)
    root = random.normal(size=(6, 6)) * [[3e-4]] * 3 + np.diag([1e-3] * 3 + [2e-3] * 3)
    errors = []
    for twist in random.normal(size=(1000, 6)) @ root.T:
        compared = _compared_poses(exp(twist) @ estimate, estimate, "", root @ root.T)
        errors.append([each[0] for each in compared.values() if len(each) == 4])
    said = [each[3] for each in compared.values() if len(each) == 4]
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(errors), axis=0)), said, rtol=0.05)


SPOT = np.array([3.0, 1.2, 0.6])
POSES = {
    "left": from_xyz_rpy((0.1, 0.2, 1.5), (0.3, 0.2, 0.1)),
    "right": from_xyz_rpy((0.1, -0.2, 1.5), (0.1, 0.0, 2.0)),
}
MOVED = {side: pose @ from_xyz_rpy((0.01, 0.0, 0.02), (0.0, 0.01, 0.0)) for side, pose in POSES.items()}


def shown(part: str, when: str) -> dict[str, np.ndarray]:
    """Return the points (N, 3) that a page shows, in base_link, read as its script reads them."""
    data = json.loads(re.search(r"<script type='application/json'>(.*?)</script>", part, re.DOTALL)[1])
    clouds = {}
    for cloud in data["clouds"]:
        steps = np.frombuffer(base64.b64decode(cloud["points"]), "<i2").reshape(-1, 3)
        clouds[cloud["name"]] = apply(np.reshape(cloud[when], (4, 4)).T, steps)
    return clouds


@pytest.fixture(scope="module")
def clouds():
    return {
        "left": apply(inverse(POSES["left"]), box_returns(1, 60_000, 3)),
        "right": apply(inverse(POSES["right"]), box_returns(2, 9_000, 3)),
    }


@pytest.fixture(scope="module")
def part(clouds):
    return turnable(clouds, POSES, MOVED, SPOT)


@pytest.mark.parametrize(("when", "poses"), [("before", POSES), ("after", MOVED)])
def test_shows_the_clouds_where_the_lidars_are(part, clouds, when, poses):
    for side, points in shown(part, when).items():
        step = np.abs(clouds[side]).max() / 32767
        apart, _ = cKDTree(apply(poses[side], clouds[side])).query(points)
        assert apart.max() <= np.sqrt(3) / 2 * step * 1.001
        assert len(np.unique(points, axis=0)) > 0.99 * len(points)


def test_thins_large_clouds_evenly_and_keeps_small_ones(part, clouds):
    seen = shown(part, "after")
    assert len(seen["left"]) == MOST_POINTS // 2 and len(seen["right"]) == len(clouds["right"])
    assert len(part) < 600_000 and not re.search(r"https?://|src=|@import|url\(", part)  # without a network
    assert "no WebGL" in part
    everything = apply(MOVED["left"], clouds["left"])
    middle, corner = (np.array(place) for place in ([0.0, 2.0, 0.0], [2.0, 2.0, 0.8]))

    def share(points: np.ndarray, place: np.ndarray) -> float:
        return np.mean(np.abs(points - place).max(axis=1) < 0.4)

    uneven = share(everything, middle) / share(everything, corner)
    assert share(seen["left"], middle) / share(seen["left"], corner) < 0.5 * uneven


def test_all_that_is_at_the_spot_is_shown(part, clouds):
    def near(points: np.ndarray) -> int:
        return int((np.abs(points - SPOT) < [0.49, 0.49, 0.09]).all(axis=1).sum())

    assert 0 < near(apply(MOVED["left"], clouds["left"])) <= MOST_POINTS // 20
    assert near(shown(part, "after")["left"]) == near(apply(MOVED["left"], clouds["left"]))


def test_a_run_keeps_where_the_lidars_are_with_its_clouds(tmp_path, clouds):
    files = RunFiles(tmp_path)
    with pytest.raises(InputError, match="no clouds"):
        CapturedClouds.load(files)
    np.savez(files.clouds, **clouds, **{f"base_from_{side}": pose for side, pose in POSES.items()})
    seen = CapturedClouds.load(files)
    with pytest.raises(InputError, match="not aligned"):
        seen.poses(CalibrationFile())
    new = CalibrationFile().with_alignment(alignment_result(inverse(MOVED["left"]) @ MOVED["right"]), "robot")
    assert seen.poses(new)["right"] == pytest.approx(POSES["left"] @ new.right_to_left)
    assert seen.poses_before()["right"] == pytest.approx(POSES["right"])
    assert seen.poses_before(new)["right"] == pytest.approx(seen.poses(new)["right"])
    assert placed(seen.points(), seen.described)["left"] == pytest.approx(apply(POSES["left"], clouds["left"]))


def test_all_lidars_of_a_run_are_shown_together_under_their_names(tmp_path, clouds):
    files = RunFiles(tmp_path)
    described = {"left": POSES["left"], "right": POSES["right"], "mast": MOVED["right"]}
    truth = {f"{of}base_link_from_lidar_{side}": POSES[side].tolist() for of in ("", "nominal_") for side in SIDES} | {
        "floor_in_base_link": {"normal": [0, 0, 1], "offset": 0.1}, "description_file": "true_robot.urdf",
        "lidars": {"mast": POSES["right"].tolist()}, "nominal_lidars": {"mast": described["mast"].tolist()},
    }  # fmt: skip
    files.truth.write_text(json.dumps(truth))
    np.savez(files.clouds, **clouds, lidar_mast=clouds["right"][:50])
    seen = CapturedClouds.load(files)
    assert {name: len(points) for name, points in seen.points().items()} == {
        "left": len(clouds["left"]), "right": len(clouds["right"]), "mast": 50
    }  # fmt: skip
    for name, pose in seen.poses_before().items():
        assert pose == pytest.approx(described[name])
    assert list(shown(turnable(seen.points(), seen.described, seen.described, None), "after")) == list(described)
    aligned = CalibrationFile().with_alignment(alignment_result(inverse(MOVED["left"]) @ MOVED["right"]), "robot")
    assert list(seen.poses(aligned)) == ["left", "right"]
    page = report.clouds(seen, aligned)
    assert "Not aligned, and not shown: mast." in page and list(shown(page, "after")) == ["left", "right"]


def test_the_lidars_own_errors_are_taken_out_if_they_are_known_by_ring(clouds):
    model = load_sensor("jt128").error_model()
    long = np.zeros(model.size)
    long[SCALARS.index("range_offset")] = 0.01
    transform = Observations.of_known_poses((np.eye(4),), 1e-6 * np.eye(6))
    known = replace(transform, models=(model, model), units=(long, np.zeros_like(long)))
    rings = {
        side: np.column_stack([cloud, np.arange(len(cloud)) % 128, np.full(len(cloud), 50.0)])
        for side, cloud in clouds.items()
    }
    seen = CapturedClouds(rings, POSES)
    assert seen.usable(known) is known and seen.usable(None) is None is seen.usable(transform)
    assert CapturedClouds(clouds, POSES).usable(known) is None
    corrected = seen.points(known)
    shorter = np.linalg.norm(clouds["left"], axis=1) - np.linalg.norm(corrected["left"], axis=1)
    assert np.median(shorter) == pytest.approx(0.01, abs=1e-4)
    assert np.array_equal(seen.points()["left"], clouds["left"])
