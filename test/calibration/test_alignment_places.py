"""Alignment from several stations: common poses and intrinsics, separate scenes; the worst one decides the checks."""

import dataclasses

import numpy as np
import pytest
from alignment_scenes import FEW_RAYS, SimulatedScene, align, errors, further_long, normalised_error

from stretch_sim_cal.calibration.alignment.planes import PlaneAlignment
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.sensor.sensor import load_sensor

FRAMES = 3
PLACES = ((0.0, 0.0, 0.0), (0.3, -0.2, np.pi / 2))  # x, y (m), yaw


@pytest.fixture(scope="module")
def scene():
    return SimulatedScene("furnished_room", sensor=FEW_RAYS)


@pytest.fixture(scope="module")
def seen(scene):
    return seen_from_both(scene)


def seen_from_both(scene):
    found = []
    for number, place in enumerate(PLACES):
        scene.place(*place)
        found.append([scene.frame(FRAMES * number + tick) for tick in range(FRAMES)])
    return found


def together(places, initial, settings):
    method = PlaneAlignment(initial, settings)
    for number, frames in enumerate(places):
        if number:
            method.new_place()
        for left, right in frames:
            method.add(left, right)
    return method.solve()


@pytest.mark.parametrize("known", further_long(True, False))
def test_two_places_are_never_worse_than_one_and_agree_with_the_truth(known):
    scene = SimulatedScene("furnished_room")
    seen = seen_from_both(scene)
    settings = scene.settings if known else dataclasses.replace(scene.settings, sensor=None)
    one, both = align(seen[0], scene.initial, settings), together(seen, scene.initial, settings)
    assert both.accepted, both.refusals
    assert both.num_frames == 2 * FRAMES and both.diagnostics["places"] == 2
    assert np.all(np.sqrt(np.diag(both.covariance)) < np.sqrt(np.diag(one.covariance)))
    deviations = np.sqrt(np.linalg.eigvalsh(both.covariance[:3, :3]).sum()), np.sqrt(np.trace(both.covariance[3:, 3:]))
    millimetres, degrees = errors(scene.truth, both)
    assert millimetres < 4e3 * deviations[0] and degrees < 4.0 * np.degrees(deviations[1])
    assert normalised_error(scene.truth, both) < 22.5  # one in a thousand is larger


def test_a_place_that_cannot_be_used_is_named(scene, seen):
    left, right = np.full((2, 6), 0.0)[:, :3], seen[1][0][1]
    moved = [(left_cloud, right_cloud + (0.5, 0.0, 0.0)) for left_cloud, right_cloud in seen[1]]
    result = together([seen[0], moved], scene.initial, scene.settings)
    assert result.refusals and all("(standing place 2)" in refusal for refusal in result.refusals)
    with pytest.raises(InputError, match="of the left lidar in any frame of standing place 2"):
        together([seen[0], [(left, right)]], scene.initial, scene.settings)
    with pytest.raises(InputError, match="all of standing place 2 have been given before"):
        together([seen[0], seen[0]], scene.initial, scene.settings)


def test_a_place_that_was_kept_counts_as_one_that_was_just_seen(scene, seen, tmp_path):
    both = together(seen, scene.initial, scene.settings)
    kept, path = PlaneAlignment(scene.initial, scene.settings), tmp_path / "kept.npz"
    for left, right in seen[0]:
        kept.add(left, right)
    kept.save_places(path)
    later = PlaneAlignment(scene.initial, scene.settings)
    later.load_places(path)
    for left, right in seen[1]:
        later.add(left, right)
    result = later.solve()
    assert np.allclose(result.right_to_left, both.right_to_left, atol=1e-9)
    assert np.allclose(result.covariance, both.covariance, rtol=1e-6)
    assert result.num_frames == 2 * FRAMES and result.diagnostics["places"] == 2


def test_places_of_another_calibration_are_not_added_to(scene, seen, tmp_path):
    kept, path, now = PlaneAlignment(scene.initial, scene.settings), tmp_path / "kept.npz", {"right": scene.initial}
    kept.add(*seen[0][0])
    kept.save_places(path, now)
    PlaneAlignment(scene.initial, scene.settings).load_places(path, now)
    rolled_back = {"right": scene.initial @ from_xyz_rpy((0.001, 0.0, 0.0), (0.0, 0.0, 0.0))}
    for other in (rolled_back, None):
        with pytest.raises(InputError, match="of another calibration than the present one; begin with a first one"):
            PlaneAlignment(scene.initial, scene.settings).load_places(path, other)


def test_places_of_other_lidars_and_torn_files_are_refused(scene, seen, tmp_path):
    kept, path = PlaneAlignment(scene.initial, scene.settings), tmp_path / "kept.npz"
    near = np.array([[0.5, 0.2, 0.1, 0.0, 9.0]], dtype=np.float32)  # x, y, z, ring, intensity
    kept.add(near, 1.1 * near * (1, 1, 1, 0, 1))
    kept.save_places(path)
    other = dataclasses.replace(scene.settings, sensor=load_sensor("xt32"))
    with pytest.raises(InputError, match=r"kept.npz: contains no standing places .* by other lidars than 'xt32'"):
        PlaneAlignment(scene.initial, other).load_places(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="no standing places"):
        PlaneAlignment(scene.initial, scene.settings).load_places(path)
