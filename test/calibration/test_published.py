"""The published methods by name: their measured accuracy, their known failures, and their warning."""

import numpy as np
import pytest
from alignment_scenes import align, errors, frames_of, normalised_error
from floor_scenes import Scene, solve

from stretch_sim_cal.calibration.methods import floor_method
from stretch_sim_cal.errors import InputError

UNCHECKED = "the published method checks neither the scene nor its result"


def published_floor(name: str, scene: Scene, pairs) -> object:
    return solve(floor_method(name)(scene.base_from_left, scene.right_to_left, np.eye(4), None), pairs)


@pytest.fixture(scope="module")
def room():
    scene = Scene("furnished_room")
    return scene, list(scene.pairs(4))


def test_the_alignment_is_the_mean_over_the_pairs_with_a_warning_that_it_checks_nothing():
    scene, frames = frames_of("furnished_room", 5)
    result = align(frames, scene.initial, scene.settings, method="published")
    single = [align([frame], scene.initial, scene.settings, method="published") for frame in frames]
    mean = np.mean([one.right_to_left[:3, 3] for one in single], axis=0)
    assert np.allclose(result.right_to_left[:3, 3], mean, atol=1e-9)
    assert errors(scene.truth, result)[0] < 3.0 and normalised_error(scene.truth, result) < 60
    assert result.accepted and result.num_frames == 5
    assert result.warnings[0].startswith(UNCHECKED)


def test_the_alignment_skips_pairs_without_returns_and_needs_one_with():
    scene, frames = frames_of("furnished_room", 2)
    nothing = np.full((100, 3), np.nan)
    result = align([(frames[0][0], nothing), frames[1]], scene.initial, scene.settings, method="published")
    assert result.num_frames == 1 and "1 pairs of clouds without returns of one lidar" in result.warnings[-1]
    with pytest.raises(InputError, match="no pair of clouds with returns of both lidars"):
        align([(nothing, nothing)], scene.initial, scene.settings, method="published")


@pytest.mark.parametrize("name, gate", [("published", 0.003), ("published_code", 0.03)])
def test_a_floor_is_fitted_to_the_returns_within_the_gate(room, name, gate):
    scene, pairs = room
    result = published_floor(name, scene, pairs)
    assert result.method == name and result.accepted and result.warnings[0].startswith(UNCHECKED)
    assert abs(result.plane.offset - scene.truth.offset) < 5e-4
    assert 0.4 * gate < result.rmse < 0.6 * gate if name == "published" else 0.003 < result.rmse < gate


def test_a_floor_below_table_tops_is_missed_without_a_refusal():
    scene = Scene("tables", seed=2)
    result = published_floor("published", scene, scene.pairs(1))
    assert result.accepted and abs(result.plane.offset - scene.truth.offset) > 0.5


def test_a_floor_without_returns_is_refused_or_no_input(room):
    scene, _ = room
    lonely = np.array([[1.0, 2.0, 3.0], [2.0, 1.0, -4.0]])
    assert "3 are needed" in published_floor("published", scene, [(lonely, lonely)]).refusals[0]
    with pytest.raises(InputError, match="no returns given"):
        published_floor("published", scene, [])
