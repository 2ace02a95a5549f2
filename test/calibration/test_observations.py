"""The observations of an alignment are kept for later stages, and used with that alignment only."""

import dataclasses

import numpy as np
import pytest
from alignment_scenes import align, frames_of
from floor_scenes import Scene, solve

from stretch_sim_cal.calibration.alignment.planes import PlaneAlignment
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.observations import load_beside, path_beside
from stretch_sim_cal.calibration.room import COUNTS, FEW, VERDICTS
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import exp
from stretch_sim_cal.sensor.points import return_columns, returns_of
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit import OFFSET, UnitSpread


@pytest.fixture(scope="module")
def aligned():
    scene, frames = frames_of("furnished_room", 12)
    return align(frames[:10], scene.initial, scene.settings)


@pytest.fixture
def beside(aligned, tmp_path):
    """The file with the observations, beside that of `file_of`."""
    path = path_beside(tmp_path / "cal.yaml")
    write_atomic(path, aligned.observations.write)
    return path


def file_of(aligned, folder):
    """Return the content of the calibration file `cal.yaml` in a folder."""
    return CalibrationFile(path=folder / "cal.yaml").with_alignment(aligned, "robot")


def test_they_are_read_back_as_they_were(aligned, beside):
    again = load_beside(file_of(aligned, beside.parent))
    np.testing.assert_allclose(again.information, aligned.observations.information)
    np.testing.assert_allclose(again.gradient, aligned.observations.gradient)
    np.testing.assert_allclose(again.units[0], aligned.observations.units[0])


def test_every_patch_has_a_verdict_and_those_that_count_are_those_that_were_used(aligned, beside):
    seen = load_beside(file_of(aligned, beside.parent)).patches
    counting = seen.verdicts == COUNTS
    assert counting.sum() / 2 == aligned.diagnostics["patches_used"]  # of two grids
    assert len(seen.verdicts) / 2 == aligned.diagnostics["patches"] > counting.sum() / 2
    assert np.sqrt(np.mean(seen.gaps[counting] ** 2)) == pytest.approx(aligned.rmse)
    assert np.isnan(seen.gaps[seen.verdicts == FEW]).all() and set(seen.verdicts) <= set(range(len(VERDICTS)))


def test_those_of_another_alignment_are_not_used(aligned, beside):
    other = exp(np.array([0.001, 0.0, 0.0, 0.0, 0.0, 0.0])) @ aligned.right_to_left
    assert load_beside(file_of(dataclasses.replace(aligned, right_to_left=other), beside.parent)) is None
    assert load_beside(file_of(aligned, beside.parent / "none")) is None


def test_a_file_of_a_version_with_other_errors_of_the_lidars_is_reported(aligned, beside):
    with np.load(beside) as data:
        content = dict(data)
    np.savez_compressed(beside, **content | {"left_result": content["left_result"][:-1]})
    with pytest.raises(InputError, match="of a version with other errors of the lidars.* align the lidars again"):
        load_beside(file_of(aligned, beside.parent))


def test_a_torn_file_is_reported(aligned, beside):
    beside.write_bytes(beside.read_bytes()[:200])
    with pytest.raises(InputError, match="align the lidars again"):
        load_beside(file_of(aligned, beside.parent))


def test_the_floor_knows_the_range_offset_that_the_alignment_found():
    """A floor alone takes ranges that are 8 mm too long for a floor that is lower."""
    biases = np.full(64, 0.008)
    scene = Scene("furnished_room", sensor_changes={"range_biases": biases})
    sensor = dataclasses.replace(scene.simulator.sensor, spread=UnitSpread(range_offset=0.01))
    alignment = PlaneAlignment(
        scene.right_to_left, AlignmentSettings(base_from_left=scene.base_from_left, sensor=sensor)
    )
    found = solve(alignment, scene.pairs(10))
    assert found.observations.units[0][OFFSET] == pytest.approx(0.008, abs=0.002)
    result = scene.solve(2, FloorSettings(sensor=sensor, observations=found.observations))
    error = scene.error(result)
    assert abs(error[0]) < 0.0015  # 5 mm if the ranges were believed
    assert error @ np.linalg.solve(result.covariance, error) < 16.0


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


def test_rings_and_intensities_come_as_fields_or_as_columns():
    scene, _ = frames_of("furnished_room", 12)
    scans = [(scene.simulator.scan("left", tick), scene.simulator.scan("right", tick)) for tick in range(3)]
    columns = [tuple(return_columns(returns_of(scan)) for scan in pair) for pair in scans]
    as_fields, as_columns = (align(pairs, scene.initial, scene.settings) for pairs in (scans, columns))
    np.testing.assert_allclose(as_fields.right_to_left, as_columns.right_to_left, atol=2e-5)  # single precision
