"""Alignment of two lidars: accuracy, covariance, robustness, and what it observed, kept for later stages."""

import io
from dataclasses import replace

import numpy as np
import pytest
from alignment_scenes import FEW_RAYS, align, assert_aligned, errors, normalised_error, off_by, room_of
from floor_scenes import Scene, solve

from stretch_sim_cal.calibration.alignment.planes import PlaneAlignment
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.clouds import DirectionGrid, model_of_rows
from stretch_sim_cal.calibration.observations import Observations, load_beside, path_beside
from stretch_sim_cal.calibration.room import COUNTS, FEW, VERDICTS
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.points import lengths
from stretch_sim_cal.geometry.transforms import SIDES, error, exp
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit import OFFSET, UnitSpread
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator


@pytest.fixture(scope="module", params=["jt128_sparse"])
def room(request):
    scene, frames = room_of(request.param)
    return scene, frames, align(frames, scene.initial, scene.settings)


few_rays = pytest.mark.parametrize("room", [FEW_RAYS], indirect=True)


def test_the_sparse_lidar_is_enough(room):
    scene, frames, aligned = room
    assert_aligned(scene, aligned, 1.0, 0.02)
    assert aligned.num_frames == len(frames) and aligned.method == "planes" and aligned.warnings == []
    assert 0.3 < aligned.overlap < 1.0 and aligned.rmse < 0.003
    assert sorted(direction.name.split()[0] for direction in aligned.directions) == ["sliding"] * 3 + ["turning"] * 3
    assert all(direction.observed and direction.standard_deviation > 0 for direction in aligned.directions)


def test_a_first_guess_ten_degrees_and_ten_centimetres_off_does_not_matter(room):
    scene, frames, aligned = room
    result = align(frames, scene.truth @ off_by(10.0, 0.1), scene.settings)
    distance, angle = error(aligned.right_to_left, result.right_to_left)
    assert distance < 1e-4 and angle < 2e-5
    assert any("far from the description" in warning for warning in result.warnings)


@pytest.mark.long
def test_a_furnished_room_needs_no_first_guess(room):
    scene, frames, _ = room
    assert_aligned(scene, align(frames[:5], None, scene.settings), 1.0)


@few_rays
def test_swapped_lidars_are_refused_as_such(room):
    scene, frames, _ = room
    result = align([(right, left) for left, right in frames], scene.initial, scene.settings)
    assert [finding.code for finding in result.refusals] == ["swapped"]


@few_rays
def test_points_that_are_no_numbers_and_wide_types_do_not_matter(room):
    scene, frames, aligned = room
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


@few_rays
def test_repeated_frames_are_counted_once_and_the_same_give_the_same_to_the_last_bit(room):
    scene, frames, aligned = room
    result = align([*frames, *frames[:4]], scene.initial, scene.settings)
    assert result.right_to_left.tobytes() == aligned.right_to_left.tobytes()
    assert result.covariance.tobytes() == aligned.covariance.tobytes() and result.num_frames == len(frames)
    assert any("4 left clouds repeat" in warning for warning in result.warnings)


def test_without_noise_the_result_is_exact():
    scene, _ = room_of()
    quiet = replace(scene.simulator.sensor, range_noise=0.0)
    simulator = EmbeddedSimulator(scene.simulator.setup, quiet)
    result = align(simulator.point_pairs(5), scene.initial, scene.settings)
    assert_aligned(scene, result, 0.05)


def test_dust_and_rain_before_the_lidars_and_one_that_is_silent_half_the_time_do_not_matter(room):
    scene, frames, _ = room
    rng = np.random.default_rng(7)

    def dusty(cloud):
        """Let a share of the returns come from somewhere on their way."""
        nearer = np.where(rng.random(len(cloud)) < 0.03, rng.uniform(0.05, 1.0, len(cloud)), 1.0)
        return cloud * nearer[:, None]

    seen = [(dusty(left), dusty(right) if number % 2 else right[:0]) for number, (left, right) in enumerate(frames)]
    result = align(seen, scene.initial, scene.settings)
    assert_aligned(scene, result, 1.0, 0.02)
    assert normalised_error(scene.truth, result) < 25.0
    assert any("6 right clouds" in warning for warning in result.warnings)


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


@pytest.fixture
def kept(room, tmp_path):
    """A calibration file with the alignment, the file with its observations beside it, and that one's content."""
    file, path = CalibrationFile(path=tmp_path / "cal.yaml").with_alignment(room[2], "robot"), tmp_path / "cal.yaml"
    path = path_beside(path)
    write_atomic(path, room[2].observations.write)
    with np.load(path) as data:
        return file, path, dict(data)


def test_observations_are_read_back_as_they_were_and_not_used_for_another_alignment(room, kept):
    aligned, (file, path, content) = room[2], kept
    again = load_beside(file)
    np.testing.assert_allclose(again.information, aligned.observations.information)
    np.testing.assert_allclose(again.gradient, aligned.observations.gradient)
    np.testing.assert_allclose(again.units[0], aligned.observations.units[0])
    other = exp(np.array([0.001, 0.0, 0.0, 0.0, 0.0, 0.0])) @ aligned.right_to_left
    assert load_beside(file.with_alignment(replace(aligned, right_to_left=other), "robot")) is None
    assert load_beside(replace(file, path=path.parent / "none" / "cal.yaml")) is None
    np.savez_compressed(path, **content | {"left_result": content["left_result"][:-1]})
    with pytest.raises(InputError, match="of a version with other errors of the lidars.* align the lidars again"):
        load_beside(file)
    whole = path.read_bytes()
    np.save(array := io.BytesIO(), np.zeros(3))
    for damaged in (whole[:200], whole.replace(b"\x08\x00", b"\x63\x00"), array.getvalue()):  # of no known compression
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="align the lidars again"):
            load_beside(file)


def test_every_patch_has_a_verdict_and_those_that_count_are_those_that_were_used(room, kept):
    aligned, seen = room[2], load_beside(kept[0]).patches
    counting = seen.verdicts == COUNTS
    assert counting.sum() / 2 == aligned.diagnostics["patches_used"]  # of two grids
    assert len(seen.verdicts) / 2 == aligned.diagnostics["patches"] > counting.sum() / 2
    assert np.sqrt(np.mean(seen.gaps[counting] ** 2)) == pytest.approx(aligned.rmse)
    assert np.isnan(seen.gaps[seen.verdicts == FEW]).all() and set(seen.verdicts) <= set(range(len(VERDICTS)))


@pytest.mark.parametrize("waves", [10, 6])
def test_a_file_from_before_some_waves_of_directions_says_nothing_of_them(kept, waves):
    file, path, content = kept
    ours = load_beside(file)
    columns = np.arange(len(ours.gradient))
    ends = 6 + np.cumsum([len(values) for values in ours.units])
    without = np.delete(columns, np.concatenate([np.arange(end - waves, end) for end in ends]))
    information = ours.information[np.ix_(without, without)]
    content |= {"gradient": ours.gradient[without], "information": information[np.tril_indices(len(without))]}
    content |= {f"{side}_{of}": content[f"{side}_{of}"][:-waves] for side in SIDES for of in ("unit", "result")}
    np.savez_compressed(path, **content)
    older = load_beside(file)
    np.testing.assert_array_equal(older.information[np.ix_(without, without)], information)
    assert not np.delete(older.gradient, without).any() and not np.delete(older.information, without, axis=0).any()
    for values, known in zip(older.units, ours.units, strict=True):
        np.testing.assert_array_equal(values, np.r_[known[:-waves], np.zeros(waves)])


@pytest.mark.parametrize(("name", "by_ring"), [("vlp16", True), ("jt128", True), ("vlp16", False)])
def test_returns_are_corrected_by_what_is_known_of_their_channels(name, by_ring):
    sensor = load_sensor(name)
    model = sensor.error_model() if by_ring else model_of_rows(sensor, DirectionGrid.by_elevation().elevations[300:320])
    values = np.zeros(model.size)
    values[OFFSET] = 0.01
    known = replace(Observations.of_known_poses((np.eye(4),), np.eye(6)), models=(model, model), units=(values, values))
    cloud = np.array([[2.0, 0.0, 0.1, 3.0, 255.0], [0.0, 4.0, 0.2, 5.0, 255.0]])
    shorter = lengths(cloud[:, :3]) - lengths(known.corrected("right", cloud))
    np.testing.assert_allclose(shorter, 0.01 if by_ring else 0.0, atol=1e-4 if by_ring else 0.0)


@pytest.mark.long
def test_the_floor_knows_the_range_offset_that_the_alignment_found():
    """A floor alone takes ranges that are 8 mm too long for a floor that is lower."""
    biases = np.full(64, 0.008)
    scene = Scene("furnished_room", sensor="jt128_sparse", sensor_changes={"range_biases": biases})
    sensor = replace(scene.simulator.sensor, spread=UnitSpread(range_offset=0.01))
    alignment = PlaneAlignment(
        scene.right_to_left, AlignmentSettings(base_from_left=scene.base_from_left, sensor=sensor)
    )
    found = solve(alignment, scene.pairs(4))
    assert found.observations.units[0][OFFSET] == pytest.approx(0.008, abs=0.002)
    result = scene.solve(2, FloorSettings(sensor=sensor, observations=found.observations))
    assert abs(scene.error(result)[0]) < 0.0015  # 5 mm if the ranges were believed
    assert scene.chi_square(result) < 16.0


def test_clouds_of_a_driver_that_corrects_the_optical_centre_are_those_of_their_sensor_near_by():
    """On an OS0-128's points at 2.2 m its 38 mm above the frame's origin are a degree."""
    sensor = load_sensor("os0_128")
    rotor, channel = (grid.ravel() for grid in np.meshgrid(np.linspace(0.0, 6.2, 200), np.arange(sensor.num_channels)))
    around, up = rotor + sensor.azimuth_offsets[channel], sensor.elevations[channel]
    x, y, z = sensor.optical_centre
    cloud = np.zeros(len(rotor), [(name, "<f4") for name in "xyz"] + [("ring", "<u2")])
    cloud["x"] = np.cos(rotor) * x - np.sin(rotor) * y + 2.2 * np.cos(up) * np.cos(around)
    cloud["y"] = np.sin(rotor) * x + np.cos(rotor) * y + 2.2 * np.cos(up) * np.sin(around)
    cloud["z"], cloud["ring"] = z + 2.2 * np.sin(up), channel
    PlaneAlignment(np.eye(4), AlignmentSettings(sensor=sensor)).add(cloud, cloud)
    cloud["ring"] = np.maximum(channel.astype(int) - 4, 0)  # 2.8 deg
    with pytest.raises(InputError, match="from the elevations of sensor 'os0_128'"):
        PlaneAlignment(np.eye(4), AlignmentSettings(sensor=sensor)).add(cloud, cloud)


def test_the_published_alignment_is_the_mean_over_the_pairs_with_a_warning_that_it_checks_nothing(room):
    scene, frames, _ = room
    frames, nothing = frames[:5], np.full((100, 3), np.nan)
    result = align(frames, scene.initial, scene.settings, method="published")
    single = [align([frame], scene.initial, scene.settings, method="published") for frame in frames]
    mean = np.mean([one.right_to_left[:3, 3] for one in single], axis=0)
    assert np.allclose(result.right_to_left[:3, 3], mean, atol=1e-9)
    assert errors(scene.truth, result)[0] < 3.0 and normalised_error(scene.truth, result) < 60
    assert result.accepted and result.num_frames == 5
    assert result.warnings[0].startswith("the published method checks neither the scene nor its result")
    result = align([(frames[0][0], nothing), frames[1]], scene.initial, scene.settings, method="published")
    assert result.num_frames == 1 and "1 pairs of clouds without returns of one lidar" in result.warnings[-1]
    with pytest.raises(InputError, match="no pair of clouds with returns of both lidars"):
        align([(nothing, nothing)], scene.initial, scene.settings, method="published")
