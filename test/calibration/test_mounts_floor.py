"""With known extrinsics the floor is that of the true base_link, and as uncertain as they are."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from made_results import alignment_result, save

from stretch_sim_cal.calibration.calibration_file import FLOOR, FOOTPRINT, SEEN_COVARIANCE, CalibrationFile
from stretch_sim_cal.calibration.mounts.file import MOUNTS, each_mount, left_pose, seen_from, with_floor, with_mounts
from stretch_sim_cal.calibration.mounts.result import MountsResult
from stretch_sim_cal.calibration.mounts.robot import calibrated_joints
from stretch_sim_cal.calibration.observations import by_poses
from stretch_sim_cal.calibration.results import FloorResult
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base
from stretch_sim_cal.geometry.transforms import exp, from_xyz_rpy, inverse, log
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.verdict import RunTruth, judge_stage
from stretch_sim_cal.recording.frame_tree import FrameTree
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.ros.arm import calibrated_poses
from stretch_sim_cal.ros.calibration_in_use import placement

DESCRIBED = from_xyz_rpy((0.04, 0.12, 1.5), np.radians([-174.0, -44.0, 42.0]))
TRUE_LEFT = DESCRIBED @ from_xyz_rpy((0.004, -0.003, 0.005), np.radians([0.8, -0.4, 0.4]))  # 1 deg off
LEFT_FROM_RIGHT = from_xyz_rpy((-0.119, 0.175, -0.138), np.radians([60.0, -31.0, -128.0]))
TRUE_FLOOR = Plane.from_coefficients([0.005, -0.007, 1.0], 0.031)
SEEN_FLOOR = TRUE_FLOOR.moved(DESCRIBED @ inverse(TRUE_LEFT))  # through a lidar that is taken to be as described
FLOOR_COVARIANCE = np.diag([1e-5**2, 1e-5**2, 1e-5**2])
MOUNT_COVARIANCE = np.diag([3e-4**2] * 3 + [2e-4**2] * 3)
TRUTH = RunTruth(
    *({"left": left, "right": left @ LEFT_FROM_RIGHT} for left in (TRUE_LEFT, DESCRIBED)), TRUE_FLOOR, None
)  # fmt: skip
TOLERANCES = {"height_mm": 1.0, "tilt_deg": 0.05}


def floor_result(plane: Plane) -> FloorResult:
    return FloorResult(footprint_from_base(plane), plane, FLOOR_COVARIANCE, 0.01, 10, 1000, "support")


def mounts_result(left: np.ndarray = TRUE_LEFT) -> MountsResult:
    covariance = np.kron(np.eye(2), MOUNT_COVARIANCE)
    poses = {"left": left, "right": left @ LEFT_FROM_RIGHT}
    return MountsResult(poses, covariance, 0.01, 1000, 8, {}, [], [], None, np.eye(12))


def with_floor_as_described() -> CalibrationFile:
    aligned = CalibrationFile().updated({"right_to_left_transform": {"data": LEFT_FROM_RIGHT.tolist()}})
    return with_floor(aligned, floor_result(SEEN_FLOOR), "robot", DESCRIBED)


def with_found(file: CalibrationFile, mounts: MountsResult | None = None) -> CalibrationFile:
    return with_mounts(file, mounts or mounts_result(), "robot", DESCRIBED)


@pytest.fixture
def mounted() -> CalibrationFile:
    return with_found(with_floor_as_described())


def judged(file: CalibrationFile, tmp_path) -> bool:
    files = RunFiles(tmp_path)
    save(file, files.calibration)
    return judge_stage("floor", files, TRUTH, TOLERANCES).passed


def assert_is_the_true_floor(file: CalibrationFile) -> None:
    assert not file.contradictions
    np.testing.assert_allclose(file.floor_plane.normal, TRUE_FLOOR.normal, atol=1e-9)
    assert file.floor_plane.offset == pytest.approx(TRUE_FLOOR.offset, abs=1e-9)
    np.testing.assert_allclose(file.footprint_from_base, footprint_from_base(TRUE_FLOOR), atol=1e-9)


def test_mounts_put_the_floor_that_was_found_before_them_under_the_real_base(mounted):
    assert_is_the_true_floor(mounted)
    assert "distance is positive if the floor is below" in mounted.data[FLOOR]["data"]["description"]
    # One that is found after them is looked at from them.
    left = left_pose(mounted, DESCRIBED)
    seen = SEEN_FLOOR.moved(left @ inverse(DESCRIBED))
    assert_is_the_true_floor(with_floor(mounted, floor_result(seen), "robot", DESCRIBED))


def test_a_floor_that_ignores_the_mounts_and_mounts_that_are_surer_than_they_are_right_fail(mounted, tmp_path):
    assert judged(mounted, tmp_path)
    assert judged(with_floor_as_described(), tmp_path)  # in the frame of its own lidar
    ignorant = mounted.with_floor(floor_result(SEEN_FLOOR), "robot", base_from_left=DESCRIBED)
    assert not judged(ignorant, tmp_path)
    # Both lidars 0.9 mm off along x, three of the standard deviations that are said.
    files, tolerances = RunFiles(tmp_path), {"translation_mm": 1.0, "rotation_deg": 0.1}
    off = mounts_result(from_xyz_rpy((9e-4, 0.0, 0.0)) @ TRUE_LEFT)
    save(with_found(with_floor_as_described(), off), files.calibration)
    assert judge_stage("mounts", files, TRUTH, tolerances).passed
    quantities = judge_stage("mounts", files, TRUTH, tolerances | {"nees": 1.2}).quantities
    (nees,) = (quantity for quantity in quantities if quantity.key == "nees")
    assert nees.error == pytest.approx(2 * 3.0**2 / 12) and not nees.passed


def test_mounts_found_once_more_move_the_floor_by_the_difference_only(mounted):
    elsewhere = mounts_result(DESCRIBED @ from_xyz_rpy((0.01, 0.0, 0.0), (0.02, 0.0, 0.0)))
    other = with_found(mounted, elsewhere)
    assert abs(other.floor_plane.normal - TRUE_FLOOR.normal).max() > 5e-3
    assert_is_the_true_floor(with_found(other))


def test_a_published_floor_is_taken_as_seen_from_the_described_lidar():
    transform = {"data": footprint_from_base(SEEN_FLOOR).tolist()}
    old_sign = {"data": {"normal": SEEN_FLOOR.normal.tolist(), "distance": -SEEN_FLOOR.offset}, "kept": 1}
    published = CalibrationFile.from_mapping({FOOTPRINT: transform, FLOOR: old_sign})
    file = with_found(published)
    assert_is_the_true_floor(file)
    assert file.data[FLOOR]["kept"] == 1 and file.data[FLOOR]["data"]["distance"] == pytest.approx(TRUE_FLOOR.offset)


def test_a_floor_with_the_pose_from_which_it_was_seen_is_read_with_it(mounted):
    np.testing.assert_allclose(seen_from(mounted, DESCRIBED), TRUE_LEFT, atol=1e-12)
    by_another_program = mounted.with_floor(floor_result(SEEN_FLOOR), "robot")
    np.testing.assert_array_equal(seen_from(by_another_program, DESCRIBED), DESCRIBED)


def test_the_floor_is_as_uncertain_as_the_mount_makes_it(mounted):
    for key in (FLOOR, FOOTPRINT):
        expected = FLOOR_COVARIANCE + np.diag([3e-4**2, 2e-4**2, 2e-4**2])
        np.testing.assert_allclose(mounted.entries[key].covariance, expected, rtol=1e-3)
        np.testing.assert_allclose(mounted.data[key][SEEN_COVARIANCE], FLOOR_COVARIANCE, rtol=1e-9)
    again = with_found(mounted)  # counted once, not twice
    np.testing.assert_allclose(again.entries[FLOOR].covariance, mounted.entries[FLOOR].covariance, rtol=1e-6)
    # Mounts far from the description are not used.
    with pytest.raises(InputError, match="calibrated on another robot"):
        left_pose(mounted, DESCRIBED @ from_xyz_rpy((0.1, 0.0, 0.0), (0.0, 0.0, 0.0)))
    without = dataclasses.replace(mounted, data={key: entry for key, entry in mounted.data.items() if key != MOUNTS})
    np.testing.assert_array_equal(left_pose(without, DESCRIBED), DESCRIBED)


@pytest.mark.parametrize("name", ["base_ref", "footprint_joint"])
def test_the_exported_joints_hold_both_mounts_and_the_floor_under_them(mounted, name):
    model = parse_urdf(nominal_description().replace('"base_ref"', f'"{name}"'))
    left, right, floor = calibrated_joints(mounted, model)
    head = link_transform(model, {}, "head_link", "base_link")
    np.testing.assert_allclose(head @ left.parent_from_child, TRUE_LEFT, atol=1e-9)
    np.testing.assert_allclose(head @ right.parent_from_child, TRUE_LEFT @ LEFT_FROM_RIGHT, atol=1e-9)
    assert (floor.name, floor.parent) == (name, model.joints[name].parent)
    found = floor.parent_from_child if floor.parent == "base_footprint" else inverse(floor.parent_from_child)
    np.testing.assert_allclose(found, footprint_from_base(TRUE_FLOOR), atol=1e-9)


OPTIONS = SimpleNamespace(
    base_link_frame="base_link", left_lidar_frame="lidar_left_link", right_lidar_frame="lidar_right_link",
    floor_frame="floor_plane", footprint_frame="base_footprint", right_calibrated_frame="lidar_right_calibrated",
    left_calibrated_frame="lidar_left_calibrated", left_lidar_topic="/left", right_lidar_topic="/right", robot="",
)  # fmt: skip


class Heard:
    def __init__(self, *edges):
        self.tree = FrameTree()
        for parent, child, transform in edges:
            self.tree.connect(parent, child, transform)
        self.lookup = self.tree.lookup

    def wait_for(self, *pairs, watchdog):
        return [self.lookup(*pair) for pair in pairs]


def test_visualizers_and_collection_see_from_the_mounts_that_are_broadcast(mounted):
    shown = placement(OPTIONS, SimpleNamespace(file=mounted), Heard(("base_link", "lidar_left_link", DESCRIBED)))
    expected = footprint_from_base(TRUE_FLOOR) @ TRUE_LEFT
    np.testing.assert_allclose(shown.footprint_from_lidar["left"], expected, atol=1e-9)
    frames = [
        ("base_link", "lidar_left_link", DESCRIBED), ("lidar_left_link", "lidar_right_calibrated", LEFT_FROM_RIGHT),
        ("base_link", "floor_plane", inverse(mounted.footprint_from_base)),
    ]  # fmt: skip
    for left, further in ((TRUE_LEFT, [("base_link", "lidar_left_calibrated", TRUE_LEFT)]), (DESCRIBED, [])):
        placed = calibrated_poses(OPTIONS, Heard(*frames, *further), watchdog=None)
        expected = mounted.footprint_from_base @ left
        np.testing.assert_allclose(placed.footprint_from_lidar["left"], expected, atol=1e-9)
        np.testing.assert_allclose(placed.footprint_from_lidar["right"], expected @ LEFT_FROM_RIGHT, atol=1e-9)


LEFT_FROM_MAST = from_xyz_rpy((-0.6, 0.4, 0.5), np.radians([10.0, 20.0, -70.0]))
DRAWS = 300


def drawn_with_mast(rng: np.random.Generator) -> tuple[CalibrationFile, MountsResult]:
    """Return a calibration of three lidars and the mounts of two that were found with it, both with errors as they say:
    those of the two transforms and those of the returns from the robot are drawn, and put together as Gaussians."""
    scale = np.tile([3e-4] * 3 + [5e-4] * 3, 2)
    mixed = [rng.normal(size=(12, 12)) / 4 + np.eye(12) for _ in range(2)]
    transforms, own = (scale[:, None] * (mix @ mix.T) * scale * size for mix, size in zip(mixed, (1, 4), strict=True))
    errors, off = (rng.multivariate_normal(np.zeros(12), covariance) for covariance in (transforms, own))
    right, mast = exp(-errors[:6]) @ LEFT_FROM_RIGHT, exp(-errors[6:]) @ LEFT_FROM_MAST
    file = CalibrationFile().with_alignment(alignment_result(right, covariance=transforms[:6, :6]), "robot")
    file = file.with_further("mast", alignment_result(mast, covariance=transforms[6:, 6:]), transforms[6:, :6], "robot")
    left_seen, right_seen = exp(-off[:6]) @ TRUE_LEFT, exp(-off[6:]) @ TRUE_LEFT @ LEFT_FROM_RIGHT
    change, weight = by_poses(left_seen), np.linalg.inv(transforms[:6, :6])
    posterior = np.linalg.inv(np.linalg.inv(own) + change.T @ weight @ change)
    step = -posterior @ change.T @ weight @ log(inverse(left_seen) @ right_seen @ inverse(right))
    poses = {"left": exp(step[:6]) @ left_seen, "right": exp(step[6:]) @ right_seen}
    return file, dataclasses.replace(mounts_result(), base_from_lidar=poses, covariance=posterior)


def test_a_third_lidar_is_as_far_off_on_the_robot_as_the_mounts_of_two_and_the_transforms_say():
    rng, nees, alone = np.random.default_rng(3), [], []
    for _ in range(DRAWS):
        file, mounts = drawn_with_mast(rng)
        pose, covariance = each_mount(file, mounts)["mast"]
        off = log(TRUE_LEFT @ LEFT_FROM_MAST @ inverse(pose))
        nees.append(off @ np.linalg.solve(covariance, off) / 6)
        stays = mounts.base_from_lidar["left"] @ file.to_left["mast"]  # by the left lidar and its transform
        alone.append(np.linalg.norm(log(TRUE_LEFT @ LEFT_FROM_MAST @ inverse(stays))) / np.linalg.norm(off))
    assert abs(np.mean(nees) - 1.0) < 4.0 * np.sqrt(2.0 / 6 / DRAWS)
    assert np.median(alone) > 1.0


def test_a_third_lidar_without_a_covariance_has_no_mount_and_a_wrong_one_is_named():
    file, mounts = drawn_with_mast(np.random.default_rng(1))
    key = "mast_to_left_transform"
    without = {name: value for name, value in file.data[key].items() if name != "covariance"}
    assert set(each_mount(CalibrationFile.from_mapping(file.data | {key: without}), mounts)) == {"left", "right"}
    torn = file.data[key] | {"covariance_with_right": [[1.0]]}
    with pytest.raises(InputError, match="mast_to_left_transform: covariance_with_right"):
        each_mount(CalibrationFile.from_mapping(file.data | {key: torn}), mounts)
    assert each_mount(file, None) == {} and set(each_mount(CalibrationFile(), mounts)) == {"left", "right"}
