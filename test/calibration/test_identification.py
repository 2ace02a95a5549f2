"""Identification of both lidars: drawn units are recovered within their deviations; others are listed."""

from dataclasses import replace

import numpy as np
import pytest
from alignment_scenes import FEW_RAYS
from comparing import right_to_left
from sensor import station

from stretch_sim_cal.calibration.identification import NOT_DETERMINED, StationScans, identify
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit import CENTRE_SHARE, FIRING_SHARE, OFFSET
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

SENSOR = "jt128_sparse_real"


def standing(simulator, turn=0.0, frames=8, first=0, moved=0.0) -> StationScans:
    """Return what both lidars see of a room at a turn (deg) of the robot; it is pushed by `moved` (m) half way."""
    scans = {device: [] for device in SIDES}
    for number in range(frames):
        shift = moved if number >= frames // 2 else 0.0
        simulator.move_base(from_xyz_rpy((shift, 0.0, 0.0), (0.0, 0.0, np.radians(turn))))
        for device in SIDES:
            scans[device].append(simulator.scan(device, first + number))
    return station(simulator, scans, first)


@pytest.fixture(scope="module")
def identified():
    simulator = EmbeddedSimulator(SimulationSetup("furnished_room", SENSOR, 2101))
    stations = [standing(simulator, turn, first=10 * number) for number, turn in enumerate((0.0, 60.0))]
    return simulator, stations, identify(stations, right_to_left(simulator, nominal=True))


def test_what_the_scene_does_not_determine_is_listed_and_residuals_no_longer_depend_on_the_channel(identified):
    _, _, result = identified
    for side, unit in enumerate(result.units):
        prior = np.sqrt(np.diag(result.models[side].prior_covariance()))
        assert "range_scale" in unit.not_determined and "optical_centre[2]" in unit.not_determined
        assert "range_offset" not in unit.not_determined
        assert unit.standard_deviations[OFFSET] <= NOT_DETERMINED * prior[OFFSET]
    assert any(sentence.startswith("range_offset") and "left minus right" in sentence for sentence in result.trade_offs)
    for found in identified[2].residuals:
        counts = np.maximum(np.bincount(found.channel), 1)
        means = [np.bincount(found.channel, values) / counts for values in (found.before, found.after)]
        assert np.std(found.after) < 0.9 * np.std(found.before)
        assert np.std(means[1]) < 0.3 * np.std(means[0])


def test_the_range_noise_is_that_of_the_sensor_file_and_that_of_weak_echoes_is_not_determined(identified):
    _, _, result = identified
    sensor, growth = load_sensor(SENSOR), load_sensor(SENSOR).noise_growth
    for law, found in zip(result.noise, result.residuals, strict=True):
        true = replace(law, constant=sensor.range_noise, growth=growth)
        sizes = [np.sqrt(one.variances(found, sensor.quantisation, sensor.beam_divergence)) for one in (law, true)]
        assert np.abs(sizes[0] / sizes[1] - 1.0).max() < 0.2
        assert np.median(np.abs(sizes[0] / sizes[1] - 1.0)) < 0.03
        assert not np.isfinite(law.deviations[3])  # hardly any echo is weak here


@pytest.mark.long
def test_a_driver_that_corrects_is_distinguished_from_one_that_does_not():
    driver = {"distance_correction": True, "firing_time_correction": True}
    simulator = EmbeddedSimulator(SimulationSetup("furnished_room", SENSOR, 2101, driver=driver))
    result = identify([standing(simulator, frames=5)], right_to_left(simulator, nominal=True))
    for unit in result.units:
        assert unit.values[[CENTRE_SHARE, FIRING_SHARE]].tolist() == [0.0, 0.0]


def test_a_recording_that_is_given_twice_is_no_further_one(identified):
    simulator, (first, second), _ = identified
    with pytest.raises(InputError, match="recording 3: has clouds of recording 1; give each recording once"):
        identify([first, second, first], right_to_left(simulator, nominal=True))


def test_a_robot_that_moved_is_refused():
    simulator = EmbeddedSimulator(SimulationSetup("furnished_room", FEW_RAYS, 1))
    with pytest.raises(Refused, match="the robot moved"):
        identify([standing(simulator, frames=10, moved=0.02)], right_to_left(simulator, nominal=True))
