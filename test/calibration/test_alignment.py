"""Alignment of two lidars: accuracy, covariance, and robustness to what real data contains."""

import dataclasses

import numpy as np
import pytest
from alignment_scenes import align, assert_aligned, frames_of, normalised_error, off_by

from stretch_sim_cal.calibration.alignment.planes import PlaneAlignment
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import error
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator


@pytest.fixture(scope="module")
def room():
    """A furnished room and twelve frames of the sparse lidar."""
    return frames_of("furnished_room", 12)


@pytest.fixture(scope="module")
def aligned(room):
    scene, frames = room
    return align(frames, scene.initial, scene.settings)


def test_the_sparse_lidar_is_enough(room, aligned):
    scene, frames = room
    assert_aligned(scene, aligned, 1.0, 0.02)
    assert aligned.num_frames == len(frames)
    assert aligned.method == "planes"
    assert 0.3 < aligned.overlap < 1.0
    assert aligned.rmse < 0.003
    assert aligned.warnings == []
    assert sorted(direction.name.split()[0] for direction in aligned.directions) == ["sliding"] * 3 + ["turning"] * 3
    assert all(direction.observed and direction.standard_deviation > 0 for direction in aligned.directions)


def test_a_first_guess_ten_degrees_and_ten_centimetres_off_does_not_matter(room, aligned):
    scene, frames = room
    result = align(frames, scene.truth @ off_by(10.0, 0.1), scene.settings)
    distance, angle = error(aligned.right_to_left, result.right_to_left)
    assert distance < 1e-4 and angle < 2e-5
    assert any("far from the description" in warning for warning in result.warnings)


def test_a_furnished_room_needs_no_first_guess(room):
    scene, frames = room
    result = align(frames[:5], None, scene.settings)
    assert_aligned(scene, result, 1.0)


def test_swapped_lidars_are_refused_as_such(room):
    scene, frames = room
    result = align([(right, left) for left, right in frames], scene.initial, scene.settings)
    assert [finding.code for finding in result.refusals] == ["swapped"]


def test_points_that_are_no_numbers_and_wide_types_do_not_matter(room, aligned):
    scene, frames = room
    rng = np.random.default_rng(0)

    def spoilt(cloud):
        junk = np.full((50, 3), np.nan)
        junk[:10] = np.inf
        junk[10:20, 0] = -np.inf
        junk[20:30] = 0.0
        return np.insert(cloud.astype(">f8"), rng.integers(0, len(cloud), len(junk)), junk, axis=0)

    result = align([(spoilt(left), spoilt(right)) for left, right in frames], scene.initial, scene.settings)
    distance, angle = error(aligned.right_to_left, result.right_to_left)
    assert distance < 1e-5 and angle < 1e-6
    assert result.warnings == []


def test_repeated_frames_are_counted_once_and_the_same_give_the_same_to_the_last_bit(room, aligned):
    scene, frames = room
    result = align([*frames, *frames[:4]], scene.initial, scene.settings)
    assert result.right_to_left.tobytes() == aligned.right_to_left.tobytes()
    assert result.covariance.tobytes() == aligned.covariance.tobytes() and result.num_frames == len(frames)
    assert any("4 left clouds repeat" in warning for warning in result.warnings)


def test_a_lidar_that_is_silent_half_the_time_is_aligned_all_the_same(room):
    scene, frames = room
    silent = [(left, right if number % 2 else right[:0]) for number, (left, right) in enumerate(frames)]
    result = align(silent, scene.initial, scene.settings)
    assert_aligned(scene, result, 1.0)
    assert any("6 right clouds" in warning for warning in result.warnings)


def test_without_noise_the_result_is_exact():
    scene, _ = frames_of("furnished_room", 12)
    quiet = dataclasses.replace(scene.simulator.sensor, range_noise=0.0)
    simulator = EmbeddedSimulator(scene.simulator.setup, quiet)
    result = align(simulator.point_pairs(5), scene.initial, scene.settings)
    assert_aligned(scene, result, 0.05)


def test_dust_and_rain_before_the_lidars_do_not_matter(room):
    scene, frames = room
    rng = np.random.default_rng(7)

    def dusty(cloud):
        """Let a share of the returns come from somewhere on their way."""
        nearer = np.where(rng.random(len(cloud)) < 0.03, rng.uniform(0.05, 1.0, len(cloud)), 1.0)
        return cloud * nearer[:, None]

    result = align([(dusty(left), dusty(right)) for left, right in frames], scene.initial, scene.settings)
    assert_aligned(scene, result, 1.0, 0.02)
    assert normalised_error(scene.truth, result) < 25.0


@pytest.mark.parametrize("wrong", [np.zeros((5, 2)), np.zeros(3), np.zeros((4, 3), dtype=complex), [["a", "b", "c"]]])
def test_what_is_no_cloud_is_an_input_error(wrong):
    alignment = PlaneAlignment(np.eye(4))
    with pytest.raises(InputError, match="right cloud"):
        alignment.add(np.ones((5, 3)), wrong)


@pytest.mark.parametrize(
    "wrong", [{"max_iterations": 0}, {"max_std_translation": -1.0}, {"base_from_left": np.ones((4, 4))}]
)
def test_settings_that_cannot_be_meant_are_an_input_error(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        AlignmentSettings(**wrong)
