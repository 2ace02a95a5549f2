"""The lidar model: which rays it sends out, and what it reports of their hits."""

import numpy as np
import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml, share_directory, write_yaml
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.sensor.points import POINT_DTYPE, coordinates
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.lidar import Echoes, Lidar


@pytest.fixture(scope="module")
def sparse():
    return load_sensor("jt128_sparse")


@pytest.fixture
def sensor_file(tmp_path):
    """Return a function that writes the sparse sensor with changes and returns the file."""

    def write(**changes):
        data = read_yaml(share_directory() / "config" / "jt128_sparse.yaml") | changes
        write_yaml(tmp_path / "sensor.yaml", {key: value for key, value in data.items() if value != "missing"})
        return tmp_path / "sensor.yaml"

    return write


def measured(lidar, tick=0, distance=4.0, cosine=1.0):
    """Return the points, and their rays' unit directions, of a lidar inside a sphere of that radius."""
    rays = lidar.rays(tick)
    points, numbers = lidar.measure(rays, sphere(rays, distance, cosine))
    return coordinates(points).astype(float), rays.nominal[numbers].astype(float), points


def sphere(rays, distance=4.0, cosine=1.0):
    """Return the echoes of a sphere of that radius around the lidar."""
    full = np.ones(len(rays.directions), dtype=np.float32)
    return Echoes(np.float32(distance) * full, np.float32(cosine) * full, 0.5)


def test_the_jt128_has_115200_rays_of_unevenly_spaced_channels():
    sensor = load_sensor("jt128_ideal")
    degrees = np.degrees(sensor.elevations)
    spacing = np.diff(degrees)
    assert (sensor.num_channels, sensor.azimuth_steps, sensor.num_rays) == (128, 900, 115_200)
    assert degrees[0] == pytest.approx(-3.5) and degrees[-1] == pytest.approx(90.0)
    assert spacing.min() > 0 and spacing.max() > 1.5 * spacing.min()


def test_points_have_the_layout_of_the_drivers():
    assert POINT_DTYPE.itemsize == 26


def test_every_channel_fires_at_its_elevation_all_around(sparse):
    directions = Lidar(sparse, "left", 1).rays(3).directions.astype(float).reshape(sparse.azimuth_steps, -1, 3)
    elevations = np.arcsin(directions[..., 2])
    np.testing.assert_allclose(elevations, np.broadcast_to(sparse.elevations, elevations.shape), atol=1e-3)
    azimuths = np.unwrap(np.arctan2(directions[:, 5, 1], directions[:, 5, 0]))
    np.testing.assert_allclose(np.diff(azimuths), 2 * np.pi / sparse.azimuth_steps, atol=1e-5)


def test_the_spin_is_not_locked_to_the_mount(sparse):
    step = 2 * np.pi / sparse.azimuth_steps
    phases = {(device, tick): Lidar(sparse, device, 1).spin_phase(tick) for device in SIDES for tick in range(20)}
    within_step = np.array([phase % step for phase in phases.values()])
    assert len(np.unique(np.round(within_step, 6))) == len(phases)
    drift = np.diff(np.unwrap([phases["left", tick] for tick in range(20)]))
    assert 0 < np.abs(drift).max() < np.radians(0.5)


def test_noise_is_along_the_ray_only_and_as_large_as_the_file_says(sparse):
    points, directions, _ = measured(Lidar(sparse, "left", 1))
    along = np.einsum("ij,ij->i", points, directions)
    assert np.linalg.norm(points - along[:, None] * directions, axis=1).max() < 1e-5
    assert (along - 4.0).std() == pytest.approx(0.01, rel=0.03)
    assert (along - 4.0).mean() == pytest.approx(0.0, abs=3e-4)


def test_noise_is_new_in_every_scan_device_and_seed_and_else_the_same(sparse):
    def range_errors(device, seed, tick):
        lidar = Lidar(sparse, device, seed)
        rays = lidar.rays(tick)
        points, numbers = lidar.measure(rays, sphere(rays))
        errors = np.full(len(rays.directions), np.nan)
        errors[numbers] = np.sqrt(points["x"] ** 2.0 + points["y"] ** 2.0 + points["z"] ** 2.0) - 4.0
        return errors

    first = range_errors("left", 1, 0)
    np.testing.assert_array_equal(first, range_errors("left", 1, 0))
    for other in (range_errors("left", 1, 1), range_errors("right", 1, 0), range_errors("left", 2, 0)):
        both = np.isfinite(first) & np.isfinite(other)
        assert abs(np.corrcoef(first[both], other[both])[0, 1]) < 0.05


def test_one_ray_s_noise_does_not_depend_on_what_others_hit(sparse):
    lidar = Lidar(sparse, "left", 1)
    rays = lidar.rays(0)
    gaps = sphere(rays)
    gaps.distances[::2] = np.inf
    all_points, all_rays = lidar.measure(rays, sphere(rays))
    some_points, some_rays = lidar.measure(rays, gaps)
    assert np.array_equal(all_points[np.isin(all_rays, some_rays)], some_points)


def test_channel_biases_lengthen_their_channel_s_ranges(sensor_file):
    biases = [0.0] * 64
    biases[10] = 0.05
    sensor = load_sensor(sensor_file(range_biases=biases, range_noise=0.0))
    points, _, raw = measured(Lidar(sensor, "left", 1))
    ranges = np.linalg.norm(points, axis=1)
    np.testing.assert_allclose(ranges[raw["ring"] == 10], 4.05, atol=1e-5)
    np.testing.assert_allclose(ranges[raw["ring"] != 10], 4.0, atol=1e-5)


def test_returns_are_lost_at_the_drop_out_rate(sensor_file):
    sensor = load_sensor(sensor_file(drop_out_rate=0.2))
    points, _, _ = measured(Lidar(sensor, "left", 1))
    assert len(points) / sensor.num_rays == pytest.approx(0.8, abs=0.01)


def test_a_beam_has_some_width(sensor_file):
    lidar = Lidar(load_sensor(sensor_file(beam_divergence_deg=0.4)), "left", 1)
    rays = lidar.rays(0)
    angles = np.arccos(np.clip((rays.directions.astype(float) * lidar.beam_edge(rays)).sum(axis=1), -1, 1))
    assert 0 < np.degrees(np.percentile(angles, 95)) < 0.3


@pytest.mark.parametrize("distance", [0.03, 61.0, np.inf])
def test_nothing_is_reported_beyond_the_range_limits(sparse, distance):
    assert len(measured(Lidar(sparse, "left", 1), distance=distance)[0]) == 0


def test_intensity_falls_with_incidence_and_stays_on_the_driver_s_scale(sparse):
    lidar = Lidar(sparse, "left", 1)
    straight, slanted, far = (
        measured(lidar, distance=distance, cosine=cosine)[2]["intensity"]
        for distance, cosine in [(4.0, 1.0), (4.0, 0.3), (58.0, 1.0)]
    )
    assert 255 >= straight.min() > slanted.max() >= 0
    assert far.max() < straight.min()


def test_every_point_knows_when_it_was_measured(sparse):
    for device in SIDES:
        lidar = Lidar(sparse, device, 1)
        times = measured(lidar, tick=7)[2]["timestamp"]
        assert 0.7 <= lidar.start_time(7) <= 0.7 + sparse.clock_spread
        assert (np.diff(times) > 0).all()
        assert times[0] == pytest.approx(lidar.start_time(7), abs=1e-3) and times[-1] < lidar.start_time(8)


def test_the_devices_clocks_are_tens_of_ms_apart(sparse):
    phases = {device: [Lidar(sparse, device, seed).clock_phase for seed in range(20)] for device in SIDES}
    gaps = np.abs(np.subtract(phases["left"], phases["right"]))
    assert 0.001 < np.median(gaps) < 0.05


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"rate": "missing"}, "rate"),
        ({"rate": "fast"}, "rate"),
        ({"azimuth_steps": 2.5}, "azimuth_steps"),
        ({"azimuth_steps": 10_000_000}, "azimuth_steps"),
        ({"elevations_deg": []}, "elevations_deg"),
        ({"elevations_deg": [0, 120]}, "elevations_deg[1]"),
        ({"elevations_deg": "1, 2"}, "elevations_deg"),
        ({"range_noise": -0.01}, "range_noise"),
        ({"range_noise": float("nan")}, "range_noise"),
        ({"range_biases": [0.1, 0.2]}, "range_biases"),
        ({"range_max": 0.2, "range_min": 0.3}, "range_max"),
        ({"drop_out_rate": 1.5}, "drop_out_rate"),
        ({"range_nois": 0.01}, "range_nois"),
    ],
)
def test_a_wrong_sensor_file_is_refused_naming_file_and_key(sensor_file, changes, named):
    path = sensor_file(**changes)
    with pytest.raises(InputError) as error:
        load_sensor(path)
    assert str(path) in str(error.value) and f"{named}" in str(error.value)


def test_an_unknown_sensor_lists_the_known_ones():
    with pytest.raises(InputError, match="jt128_sparse"):
        load_sensor("jt129")
