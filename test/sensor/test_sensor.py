"""Sensor files, unit files and angle tables, with errors by key; and the error model of a unit."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import yaml

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml, share_directory
from stretch_sim_cal.geometry.transforms import apply, exp, inverse
from stretch_sim_cal.sensor.sensor import CLASS_SPREAD, Driver, load_sensor
from stretch_sim_cal.sensor.unit import (
    CENTRE_SHARE,
    CHANNEL_KINDS,
    FIRING_SHARE,
    OF_SCANS,
    SCALARS,
    UNKNOWN_SENSOR,
    ErrorModel,
    UnitSpread,
    directions,
    scan_begin,
    weak_echo,
)
from stretch_sim_cal.sensor.unit_file import read_angle_table, write_unit
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

UNIT = {
    "range_offset": 0.01, "range_scale": 0.0005, "near_range": {"amplitude": 0.005, "length": 0.8}, "incidence": 0.003,
    "echo": 0.003, "channel_range": 0.002, "channel_elevation_deg": 0.02, "channel_azimuth_deg": 0.02,
    "azimuth_harmonics_deg": [0.02, 0.01], "optical_centre": [0.0005, 0.0005, 0.0005],
}  # fmt: skip


@pytest.fixture
def sensor_file(tmp_path):
    """Return a function that writes the sparse sensor with changes (`...`: without the key), and returns the file."""

    def write(name="kind.yaml", **changes):
        data = read_yaml(share_directory() / "config" / "jt128_sparse.yaml") | {"unit": UNIT} | changes
        path = tmp_path / name
        path.write_text(yaml.safe_dump({key: value for key, value in data.items() if value is not ...}))
        return path

    return write


def test_an_empty_unit_is_that_of_the_class_and_a_unit_of_nothing_is_exact(sensor_file):
    sensor = load_sensor(sensor_file(unit=None))
    assert sensor.spread == UnitSpread()
    # Without a table's optical centre beams may begin before or behind the spin axis.
    ahead = (UNKNOWN_SENSOR.optical_centre[0], 0.0, 0.0)
    assert sensor.expected == replace(CLASS_SPREAD, optical_centre=ahead)
    assert load_sensor(sensor_file(unit=None, optical_centre=[0.02, 0.0, 0.01])).expected == CLASS_SPREAD
    assert load_sensor(sensor_file(unit={"echo": 0.001})).expected.optical_centre == ahead
    assert not load_sensor(sensor_file(unit={})).draw_unit(np.random.default_rng(0)).values.any()


def test_a_drawn_unit_comes_back_from_its_file(sensor_file, tmp_path):
    kind = sensor_file(
        optical_centre=[-0.0076, 0.0137, 0.0127], firing_times_us=[1.0] * 64, range_drift={"amplitude": 0.002}
    )
    sensor = load_sensor(kind).with_driver(Driver(distance_correction=False))
    unit = sensor.draw_unit(np.random.default_rng(1))
    assert unit.values[CENTRE_SHARE] == 1.0 and unit.values[FIRING_SHARE] == 0.0 and unit.range_drift != 0.0
    deviations = np.full(sensor.error_model().size, 0.001)
    deviations[sensor.error_model().of_scan_motion.start :] = 0.0  # are none of the unit's
    path = tmp_path / "unit.yaml"
    write_unit(
        path, "kind.yaml", sensor.error_model(), dataclasses.replace(unit, standard_deviations=deviations,
        not_determined=("echo", "channel_range[3]")), driver={"distance_correction": False}, range_noise=0.007,
    )  # fmt: skip
    again = load_sensor(path)
    np.testing.assert_allclose(again.unit.values, unit.values, atol=1e-15)
    np.testing.assert_allclose(again.unit.standard_deviations, deviations)
    assert again.unit.not_determined == ("echo", "channel_range[3]") and again.unit.range_drift == unit.range_drift
    assert again.range_noise == 0.007 and again.kind == str(kind) and not again.driver.distance_correction
    assert again.draw_unit(np.random.default_rng(9)) is again.unit


def test_a_unit_file_s_near_range_fades_over_its_own_length(sensor_file, tmp_path):
    path = tmp_path / "unit.yaml"
    path.write_text(f"sensor: {sensor_file()}\nvalues: {{near_range: {{amplitude: 0.01, length: 2.0}}}}\n")
    assert load_sensor(path).spread.near_length == 2.0 and load_sensor(path).spread.near_range == 0.005


@pytest.mark.parametrize("unit", [None, "ideal", UNIT])
def test_of_a_unit_a_calibration_expects_what_it_expects_of_its_kind(sensor_file, tmp_path, unit):
    kind, path = sensor_file(unit=unit), tmp_path / "unit.yaml"
    path.write_text(f"sensor: {kind}\nvalues: {{range_offset: 0.01}}\n")
    assert load_sensor(path).expected == load_sensor(kind).expected
    assert load_sensor(path).spread == load_sensor(kind).spread


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"rate": ...}, "rate"), ({"rate": "fast"}, "rate"), ({"azimuth_steps": 2.5}, "azimuth_steps"),
        ({"azimuth_steps": 10_000_000}, "azimuth_steps"), ({"elevations_deg": []}, "elevations_deg"),
        ({"elevations_deg": [0, 120]}, "elevations_deg[1]"), ({"range_noise": float("nan")}, "range_noise"),
        ({"range_biases": [0.1, 0.2]}, "range_biases"), ({"range_max": 0.2, "range_min": 0.3}, "range_max"),
        ({"drop_out_rate": 1.5}, "drop_out_rate"), ({"range_nois": 0.01}, "unknown key 'range_nois'"),
        ({"unit": {"range_ofset": 0.01}}, "unit: unknown key 'range_ofset'"), ({"unit": [1, 2]}, "unit"),
        ({"unit": {"range_offset": -0.01}}, "unit: range_offset"), ({"unit": {"near_range": 0.01}}, "unit: near_range"),
        ({"unit": {"near_range": {"amplitude": -0.01}}}, "unit: near_range: amplitude"),
        ({"unit": {"azimuth_harmonics_deg": [0.01]}}, "unit: azimuth_harmonics_deg"),
        ({"unit": {"optical_centre": [0.0, -0.1, 0.0]}}, "unit: optical_centre[1]"),
        ({"firing_times_us": [1.0, 2.0]}, "firing_times_us"), ({"optical_centre": [0.01, 0.01]}, "optical_centre"),
        ({"range_noise_growth": {"range": -1}}, "range_noise_growth: range"), ({"range_drift": 0.01}, "range_drift"),
        ({"returns": "triple"}, "returns"), ({"misses": False}, "misses"), ({"packets": 1.5}, "packets"),
        ({"driver": {"distance_correction": "no"}}, "driver: distance_correction"), ({"clockwise": 1}, "clockwise"),
    ],
)  # fmt: skip
def test_a_wrong_sensor_file_is_refused_by_its_key(sensor_file, changes, named):
    path = sensor_file(**changes)
    with pytest.raises(InputError) as error:
        load_sensor(path)
    assert str(error.value).startswith(f"{path}: {named}")


@pytest.mark.parametrize("text, named", [
    ("sensor: jt129\n", "sensor"), ("sensor: KIND\nvalues: {range_ofset: 1}\n", "values: unknown key 'range_ofset'"),
    ("sensor: KIND\nvalues: {channel_range: [0.001]}\n", "values: channel_range"),
    ("sensor: KIND\nvalues: {azimuth_harmonics_deg: [0, 0]}\n", "values: azimuth_harmonics_deg[0]"),
    ("sensor: KIND\nstandard_deviations: {range_offset: -1}\n", "standard_deviations"),
    ("sensor: KIND\nnot_determined: [colour]\n", "not_determined: unknown key 'colour'"),
    ("sensor: KIND\nnot_determined: echo\n", "not_determined"), ("sensor: KIND\nvalue: {}\n", "unknown key 'value'"),
    ("sensor: KIND\nvalues: 3\n", "values"), ("sensor: KIND\nunit: 5\n", "unit: is 5"),
    ("sensor: KIND\nunit: {near_range: 5}\n", "unit: near_range: is 5"),
])  # fmt: skip
def test_a_wrong_unit_file_is_refused_by_its_key(sensor_file, tmp_path, text, named):
    path = tmp_path / "unit.yaml"
    path.write_text(text.replace("KIND", str(sensor_file())), encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_sensor(path)
    assert f"{path}: {named}" in str(error.value)


def test_simulated_units_have_the_tables_of_the_robot_s_fleet_folder(sensor_file, tmp_path, monkeypatch):
    table = tmp_path / "stretch-9" / "calibration_hesais" / "left_lidar_calibration.dat"
    table.parent.mkdir(parents=True)
    rows = [f"{i + 1},{i * 1.25},{170 + i % 3}" for i in range(64)]
    table.write_text("\n".join(["Channel,Elevation,Azimuth", *rows, "ab" * 32 + ",,\n"]), encoding="utf-8")
    monkeypatch.setenv("HELLO_FLEET_PATH", str(tmp_path))
    monkeypatch.setenv("HELLO_FLEET_ID", "stretch-9")
    kind = sensor_file(fleet_angle_tables=True)
    simulator = EmbeddedSimulator(SimulationSetup("empty_hall", kind))
    left, right = (simulator.lidar(device).sensor for device in ("left", "right"))
    assert np.degrees(left.elevations[4]) == pytest.approx(5.0)
    # Of the table 171 deg, clockwise from y; here counter-clockwise from x.
    assert np.degrees(left.azimuth_offsets[4]) == pytest.approx(90.0 - 171.0)
    assert np.array_equal(right.elevations, load_sensor(kind).elevations)
    assert simulator.warnings[-1] == f"left lidar: with the unit's own angle table, {table}"
    # Its unit file has the table, wherever that is read.
    unit = tmp_path / "unit.yaml"
    unit.write_text(yaml.safe_dump(simulator.ground_truth()["units"]["left"]), encoding="utf-8")
    np.testing.assert_allclose(load_sensor(unit).elevations, left.elevations, atol=1e-8)
    np.testing.assert_allclose(load_sensor(unit).azimuth_offsets, left.azimuth_offsets, atol=1e-8)
    plain = EmbeddedSimulator(SimulationSetup("empty_hall", sensor_file("plain.yaml")))
    assert np.array_equal(plain.lidar("left").sensor.elevations, right.elevations)


HEADING = "Channel,Elevation,Azimuth\n"


@pytest.mark.parametrize(
    "text, named",
    [
        ("", ":1:"), ("Channel,Elevation\n1,2\n", ":1:"), (f"{HEADING}1,2\n", ":2:"), (f"{HEADING}1,95,3\n", ":2:"),
        (f"{HEADING}1,2,3\n1,2,3\n", ":3:"), (f"{HEADING}1,2,3\n3,2,3\n", "channels 1 to 2"),
    ],
)  # fmt: skip
def test_a_wrong_angle_table_is_refused_by_its_line(sensor_file, tmp_path, text, named):
    path = tmp_path / "table.dat"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_angle_table(path)
    assert str(path) in str(error.value) and named in str(error.value)
    path.write_text("Channel,Elevation,Azimuth\n1,2,3\n", encoding="utf-8")
    with pytest.raises(InputError, match="has 1 channels, the sensor kind has 64"):
        load_sensor(sensor_file()).with_angle_table(path)


SPREAD = UnitSpread(
    range_offset=0.01, range_scale=5e-4, near_range=0.01, near_length=1.0, incidence=0.005, echo=0.003,
    channel_range=0.002, channel_elevation=1e-3, channel_azimuth=1e-3, azimuth_harmonics=(3e-4, 3e-4),
    optical_centre=(1e-3, 1e-3, 1e-3), driver_uncertain=True,
)  # fmt: skip
CHANNELS = 32


@pytest.fixture
def scene():
    """A unit with all errors, its driver correcting nothing, and 500 returns: model, values, true points, returns."""
    rng = np.random.default_rng(5)
    model = ErrorModel(
        SPREAD, np.linspace(-0.08, 1.5, CHANNELS), rng.normal(0.0, 0.1, CHANNELS),
        np.array([-0.0076, 0.0137, 0.0127]), rng.uniform(0.0, 0.004, CHANNELS),
    )  # fmt: skip
    values = model.draw(rng)
    values[[CENTRE_SHARE, FIRING_SHARE]] = 1.0
    rotor, channel = rng.uniform(-3.0, 3.0, 500), rng.integers(0, CHANNELS, 500)
    distances, cosines = rng.uniform(0.3, 8.0, 500), rng.uniform(0.2, 1.0, 500)
    intensity = rng.uniform(0.0, 255.0, 500)
    origins, rays = model.true_rays(rotor, channel, values)
    ranges = model.measured_ranges(distances, cosines, weak_echo(intensity), channel, values)
    published = ranges[:, None] * directions(model.elevations[channel], rotor + model.azimuth_offsets[channel])
    returns = model.returns(published, channel, weak_echo(intensity))
    return model, values, origins + distances[:, None] * rays, returns, cosines


def test_what_the_simulator_distorts_by_centimetres_the_calibration_corrects(scene):
    model, values, true_points, returns, cosines = scene
    assert np.linalg.norm(model.corrected(returns, cosines, np.zeros(model.size)) - true_points, axis=1).mean() > 0.01
    assert np.abs(model.corrected(returns, cosines, values) - true_points).max() < 1e-6


@pytest.mark.parametrize("name", [*SCALARS, *OF_SCANS, *CHANNEL_KINDS])
def test_the_derivative_by_a_parameter_is_that_of_the_corrected_points(scene, name):
    model, values, _, returns, cosines = scene
    normals = np.random.default_rng(0).normal(size=(len(returns), 3))
    step = np.zeros(model.size)
    if name in OF_SCANS:
        step[model.of_scan_motion.start :][OF_SCANS.index(name)] = 1e-6
    else:
        step[SCALARS.index(name) if name in SCALARS else model.of_kind(name)] = 1e-6
    forward, backward = (model.corrected(returns, cosines, values + change) for change in (step, -step))
    expected = np.einsum("ni,ni->n", normals, forward - backward) / 2e-6
    derivatives = np.hstack(model.sensitivity(returns, cosines, normals, values))
    found = derivatives[:, [*SCALARS, *OF_SCANS, *CHANNEL_KINDS].index(name)]
    assert np.allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_a_motion_of_the_frame_in_every_scan_is_taken_out(scene):
    model, values, true_points, returns, cosines = scene
    twist, begin = np.array([0.003, -0.002, 0.001, 5e-4, -3e-4, 8e-4]), 3.09
    shares = (returns.rotor - begin) / (2.0 * np.pi) % 1.0 - 0.5
    at_rest = model.corrected(returns, cosines, values)
    published = np.array([
        apply(inverse(exp(share * twist)), point) for share, point in zip(shares, at_rest, strict=True)
    ])  # fmt: skip
    moving = replace(model, scan_begin=begin)
    motion = np.zeros(model.size)
    motion[moving.of_scan_motion] = twist
    seen = replace(returns, ranges=np.linalg.norm(published, axis=1), azimuths=np.arctan2(*published.T[1::-1]),
                   elevations=np.arcsin(published[:, 2] / np.linalg.norm(published, axis=1)))  # fmt: skip
    assert np.abs(published - at_rest).max() > 1e-3
    # Elsewhere the motion takes a return into the next scan, or to another share of this one.
    inside = (np.abs(shares) < 0.49) & (np.linalg.norm(at_rest[:, :2], axis=1) > 0.5)
    assert np.abs(moving.corrected(seen, 1.0, motion) - at_rest)[inside].max() < 2e-5


@pytest.mark.parametrize("by_channel", [False, True])
def test_where_scans_begin_is_told_by_the_order_of_their_returns(by_channel):
    azimuths, channels = np.meshgrid(2.0 + np.arange(0.0, 2.0 * np.pi, 0.01), np.arange(8))
    order = slice(None) if by_channel else np.argsort(azimuths.ravel(), kind="stable")
    azimuths, channels = ((each.ravel()[order]) for each in (np.angle(np.exp(1j * azimuths)), channels))
    assert scan_begin(azimuths, channels) == pytest.approx(2.0)
    shuffled = np.random.default_rng(0).permutation(len(azimuths))
    assert scan_begin(azimuths[shuffled], channels[shuffled]) == -np.pi


def test_channels_that_see_little_do_not_tell_where_scans_begin():
    """Those of a dome that look upwards: most of them see nothing at the scan's begin."""
    azimuths, channels = np.meshgrid(2.0 + np.arange(0.0, 2.0 * np.pi, 0.01), np.arange(8), indexing="ij")
    seen = (channels < 3) | (np.abs(azimuths - 3.0 - 0.5 * channels) < 0.1)
    assert scan_begin(np.angle(np.exp(1j * azimuths[seen])), channels[seen]) == pytest.approx(2.0)


def test_units_are_drawn_from_the_prior(scene):
    model, rng = scene[0], np.random.default_rng(1)
    drawn = np.array([model.draw(rng) for _ in range(400)])
    assert np.abs(drawn[:, 0].std() / SPREAD.range_offset - 1.0) < 0.15
    elevations, azimuths = (drawn[:, model.of_kind(f"channel_{kind}")] for kind in ("elevation", "azimuth"))
    assert np.abs(elevations.std() / SPREAD.channel_elevation - 1.0) < 0.1
    assert np.abs(azimuths.mean(axis=1)).max() < 1e-9, "the channels' mean azimuth is part of the lidar's pose"
    assert not drawn[:, [CENTRE_SHARE, FIRING_SHARE]].any()


def test_errors_larger_than_a_range_leave_points_finite():
    """As when wrong surfaces are fitted by such errors."""
    model = ErrorModel(SPREAD, np.zeros(1), np.zeros(1))
    values = np.zeros(model.size)
    values[SCALARS.index("range_offset")], values[SCALARS.index("near_range")] = 3.0, 5.0
    returns = model.returns(np.array([[0.2, 0.0, 0.0], [5.0, 0.0, 0.0]]), np.zeros(2, dtype=int))
    assert np.isfinite(model.corrected(returns, 1.0, values)).all()
