"""What published points show of sensor and driver: the table, corrections, range steps, lost returns."""

from dataclasses import replace

import numpy as np
import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.signature import Observer, known_sensors, sync_line
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

SENSOR = "jt128_sparse_real"
SCANS = 8


def observed(sensor=SENSOR, device="left", scans=SCANS, change=None, own=None, **setup):
    """Return an observer of a simulated lidar's scans, `change` applied to a copy of each."""
    simulator = EmbeddedSimulator(SimulationSetup("furnished_room", sensor, 3, **setup), own)
    observer = Observer()
    for tick in range(scans):
        scan = simulator.scan(device, tick)
        if change is not None:
            change(scan)
        observer.add(scan, simulator.start_time(device, tick))
    return observer


def signature(**given):
    return observed(**given).signature(known_sensors())


@pytest.mark.parametrize(("distances", "firing_times"), [(True, False), (False, True)])
def test_what_the_driver_corrects_is_seen_in_its_points(distances, firing_times):
    driver = {"distance_correction": distances, "firing_time_correction": firing_times}
    found = signature(driver=driver, scans=4)
    assert (found.distance_correction, found.firing_time_correction) == (distances, firing_times)
    assert found.sensor.name == SENSOR
    assert f"distance correction: {'on' if distances else 'off'}" in " ".join(found.lines)


@pytest.fixture(scope="module")
def real():
    return signature()


def test_how_the_real_sensor_publishes_is_found(real):
    assert (real.azimuth_steps, real.clockwise, real.packets) == (300, True, 300)
    assert real.dual_return and real.zero_misses
    assert real.quantisation == pytest.approx(0.004, rel=1e-3)
    assert 1 / real.period == pytest.approx(10.0, rel=1e-6)
    lost = real.drop_outs
    assert abs(lost.rate - 0.002) < 3 * lost.rate_deviation < 0.001


def test_returns_lost_by_weak_echoes_are_reported_where_there_are_such():
    found = signature(own=replace(load_sensor(SENSOR), drop_out_echo=0.05))
    assert found.drop_outs.echo == pytest.approx(0.05, abs=3 * found.drop_outs.echo_deviation)
    assert found.drop_outs.echo_deviation < 0.01


def test_a_unit_s_own_table_is_read_from_its_points():
    sensor, random = load_sensor(SENSOR), np.random.default_rng(2)
    elevations = sensor.elevations + np.radians(random.normal(0.0, 0.1, sensor.num_channels))
    azimuths = sensor.azimuth_offsets + np.radians(random.normal(0.0, 0.1, sensor.num_channels))
    own = replace(sensor, elevations=elevations, azimuth_offsets=azimuths)
    found = signature(own=own, scans=2)
    assert "in a unit-specific version" in found.lines[0]
    assert np.abs(found.sensor.elevations - elevations).max() < 1e-6
    apart = found.sensor.azimuth_offsets - azimuths
    assert np.ptp(apart) < 1e-5  # what all channels have in common is part of the lidar's pose


def test_a_table_that_does_not_fit_is_no_table():
    found = observed(scans=2).signature([load_sensor("jt128"), load_sensor("jt128_sparse")])
    assert found.sensor is None and "no known one fits" in found.lines[0]


def test_points_that_were_moved_after_the_driver_leave_its_correction_open():
    def move(scan):
        there = (scan["x"] != 0) | (scan["y"] != 0)
        scan["x"][there] += np.float32(0.1)
        scan["z"][there] += np.float32(0.3)

    found = signature(scans=2, change=move)
    assert found.distance_correction is None and "cannot be determined" in found.lines[1]


@pytest.mark.parametrize(
    ("offset", "rate", "in_sync", "said"),
    [(0.012, 1.0, True, "+12.0 ms"), (0.012, 1.0005, False, "drifting"), (0.049, 1.0, True, "+49.0 ms")],
)
def test_lidars_are_in_sync_if_their_scans_keep_their_distance_in_time(real, offset, rate, in_sync, said):
    times = 0.1 * np.arange(20)
    left, right = (replace(real, starts=starts) for starts in (times, offset + rate * times))
    assert sync_line(left, right)[0] is in_sync and said in sync_line(left, right)[1]


@pytest.mark.parametrize(("step", "blur"), [(0.005, 1e-4), (0.00317, 0.0), (0.0, 0.0)])
def test_the_step_of_ranges_is_found_even_if_some_are_blurred(step, blur):
    random = np.random.default_rng(1)

    def blurred(scan):
        some = random.random(len(scan)) < 0.02
        longer = np.float32(1.0) + np.where(some, blur * random.normal(size=len(scan)), 0).astype("f4")
        for axis in "xyz":
            scan[axis] *= longer

    found = signature(own=replace(load_sensor(SENSOR), quantisation=step), scans=4, change=blurred)
    assert found.quantisation == pytest.approx(step, rel=1e-4)


def test_rings_that_are_no_channels_are_reported():
    with pytest.raises(InputError, match="field ring goes from 0 to 60000, so it is not a channel number"):
        signature(scans=2, change=lambda scan: scan["ring"].fill(60_000))


def test_clouds_with_different_fields_are_reported():
    observer = observed(scans=1)
    with pytest.raises(InputError, match="different fields: first x, y, z, intensity, ring, timestamp, then x, y, z$"):
        observer.add(np.zeros(3, [(name, "f4") for name in "xyz"]), 0.1)


def test_intensities_that_are_none_leave_the_rest_of_the_signature():
    def false_intensity(scan):
        scan["intensity"] = np.where(np.arange(len(scan)) % 100, -1e20, np.nan)

    assert signature(scans=4, change=false_intensity).sensor.name == SENSOR


def test_timestamps_that_are_no_times_of_a_scan_give_way_to_the_clouds_stamps():
    def false_times(scan):
        scan["timestamp"] = np.geomspace(1e-300, 1e300, len(scan))

    left, right = (signature(device=side, scans=4, change=false_times) for side in ("left", "right"))
    assert left.period == pytest.approx(0.1, rel=1e-6) and sync_line(left, right)[0] is True
