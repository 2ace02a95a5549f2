"""What published points show of sensor and driver: its kind, the table, corrections, range steps, lost returns."""

from dataclasses import replace

import numpy as np
import pytest

import stretch_sim_cal as cal
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.sensor.recognition import fitting, recognised, sensor_of, taken_for
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.signature import Observer, known_sensors, sync_line
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

SENSOR = "jt128_sparse_real"
SCANS = 8


def observed(sensor=SENSOR, device="left", scans=SCANS, change=None, own=None, seed=3, **setup):
    """Return an observer of a simulated lidar's scans, `change` applied to each."""
    simulator = EmbeddedSimulator(SimulationSetup("furnished_room", sensor, seed, **setup), own)
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
    found = signature(driver=driver, scans=2)
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


@pytest.mark.parametrize(("step", "blur"), [(0.005, 1e-4), (0.0, 0.0)])
def test_the_step_of_ranges_is_found_even_if_some_are_blurred(step, blur):
    random = np.random.default_rng(1)

    def blurred(scan):
        some = random.random(len(scan)) < 0.02
        longer = np.float32(1.0) + np.where(some, blur * random.normal(size=len(scan)), 0).astype("f4")
        for axis in "xyz":
            scan[axis] *= longer

    found = signature(own=replace(load_sensor(SENSOR), quantisation=step), scans=2, change=blurred)
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

    assert signature(scans=2, change=false_intensity).sensor.name == SENSOR


def test_timestamps_that_are_no_times_of_a_scan_give_way_to_the_clouds_stamps():
    def false_times(scan):
        scan["timestamp"] = np.geomspace(1e-300, 1e300, len(scan))

    left, right = (signature(device=side, scans=3, change=false_times) for side in ("left", "right"))
    assert left.period == pytest.approx(0.1, rel=1e-6) and sync_line(left, right)[0] is True


def scan(sensor):
    return EmbeddedSimulator(SimulationSetup("furnished_room", sensor, 5)).scan("left", 0)


@pytest.mark.parametrize(
    "name",
    ["vlp16", "bpearl", *(pytest.param(name, marks=pytest.mark.long) for name in (
        "xt32_sparse", "qt64", "os0_32", "vlp32c", "helios32", "jt128", "jt128_sparse", "os0_128", "jt128_ideal"))],
)  # fmt: skip
def test_each_kind_is_recognised_by_its_points_and_told_from_the_others(name):
    kind, clouds = load_sensor(name), []
    found = signature(sensor=name, seed=5, scans=2, change=clouds.append)
    assert sensor_of(clouds[:1]).name == name
    assert found.sensor.name == name.replace("xt32_sparse", "xt32")  # whose channels are the same
    assert max(found.table_difference) < 1e-6
    assert (found.dual_return, found.zero_misses) == (kind.dual_return, kind.zero_misses)


def test_another_turning_of_the_rings_or_another_table_is_no_known_kind():
    changed = scan("vlp16")
    changed["ring"] = 15 - changed["ring"]
    assert cal.sensor_of([changed]) is None
    observer = Observer()
    observer.add(changed, 0.0)
    found = observer.signature(known_sensors())
    assert not any("distance correction" in line for line in found.lines)  # nothing is known of one
    assert taken_for(found, load_sensor("jt128"), known_sensors()) == (
        None, "treated as a lidar of unknown make, not for jt128, whose elevations are others: no file in config/ fits"
    )  # fmt: skip


def test_kinds_that_the_points_do_not_distinguish_are_asked_for():
    def blur(cloud):  # points no longer lie on the elevations of channels, as after a filter
        for axis in "xyz":
            cloud[axis] += np.random.default_rng(1).normal(0.0, 0.002, len(cloud)).astype(np.float32)

    seen = signature(sensor="xt32_sparse", seed=5, scans=2, change=blur)
    assert [one.name for one in fitting(seen, known_sensors())] == ["xt32", "xt32_sparse"]
    with pytest.raises(InputError, match=r"right lidar: the points fit xt32, xt32_sparse equally well.*\(--sensor\)"):
        recognised({"right": seen}, [None], known_sensors())
    sensor, lines = recognised({"right": seen}, [load_sensor("xt32")], known_sensors())
    assert sensor.name == "xt32" and lines == ["right lidar: recognised as xt32"]


def test_lidars_of_two_kinds_are_recognised_one_by_one_and_an_unreadable_one_is_taken_for_the_expected():
    seen = {side: signature(sensor=kind, seed=5, scans=2) for side, kind in (("left", "xt32"), ("right", "vlp16"))}
    found = seen | {"mast": InputError("no field ring")}
    sensors, lines = recognised(found, [load_sensor("jt128")] * 3, known_sensors())
    assert [one.name for one in sensors] == ["xt32", "vlp16", "jt128"]
    assert "right lidar: recognised as vlp16, the only matching file in config/, not for jt128" in lines[1]


def test_clouds_without_rings_are_named():
    for cloud, message in (
        (scan("vlp16")[["x", "y", "z", "intensity"]], "no field ring, only x, y, z, intensity"),
        (np.zeros((5, 3)), "a structured array"),
    ):
        with pytest.raises(InputError, match=message):
            sensor_of([cloud])
