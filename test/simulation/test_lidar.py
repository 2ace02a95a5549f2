"""The lidar model, by the signature of each effect, hanging in the middle of a sphere if nothing else is said."""

import dataclasses

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.sensor.sensor import Driver, NoiseGrowth, load_sensor
from stretch_sim_cal.sensor.unit import CENTRE, HARMONICS, SCALARS, UnitSpread
from stretch_sim_cal.sensor.unit_file import Unit
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.lidar import Echoes, Lidar
from stretch_sim_cal.simulation.optics import Hits, Optics, Scene

TABLE = load_sensor("jt128_sparse")
EXACT = dataclasses.replace(TABLE, range_noise=0.0, drop_out_rate=0.0)
BY_CHANNEL = np.random.default_rng(3).normal(0.0, 0.002, EXACT.num_channels)


def lidar_with(sensor=EXACT, device="left", seed=1, **values):
    """Return a lidar that is a unit with those values of `SCALARS` (and by channel kind), else exact."""
    parameters = np.zeros(sensor.error_model().size)
    for name, value in values.items():
        where = SCALARS.index(name) if name in SCALARS else sensor.error_model().of_kind(name)
        parameters[where] = value
    return Lidar(dataclasses.replace(sensor, unit=Unit(parameters, range_drift=sensor.range_drift)), device, seed)


def measured(lidar, distance=4.0, cosine=1.0, reflectivity=0.5, tick=0):
    """Return points (M, 3), their records and ray numbers of a scan of a sphere around the optical centre."""
    rays = lidar.rays(tick)
    echoes = Echoes(*(np.full(len(rays.directions), each, np.float32) for each in (distance, cosine, reflectivity)))
    points, numbers = lidar.measure(rays, echoes)
    return coordinates(points).astype(float), points, numbers


def range_error(lidar, distance=4.0, **surface):
    return np.linalg.norm(measured(lidar, distance, **surface)[0], axis=1) - distance


def in_box(lidar, half=3.0):
    """Return the points and rays of a scan in the middle of a cube."""
    rays = lidar.rays(0)
    room = Scene({"room": Surface(*solids.box(np.full(3, 2 * half)))})
    origins = np.zeros(3) if rays.origins is None else rays.origins
    hits = Hits(origins, rays.directions, [room])
    points, numbers = lidar.measure(rays, Echoes(hits.distances, hits.incidence_cosines(), 0.5))
    return coordinates(points).astype(float), rays, numbers


def test_the_spin_is_not_locked_to_the_mount():
    phases = np.array([[Lidar(TABLE, device, 1).spin_phase(tick) for tick in range(20)] for device in SIDES])
    within_step = np.round(phases % (2 * np.pi / TABLE.azimuth_steps), 6)
    assert len(np.unique(within_step)) == phases.size
    assert 0 < np.abs(np.diff(np.unwrap(phases[0]))).max() < np.radians(0.5)


def test_noise_is_along_the_ray_only_and_as_large_as_the_file_says():
    lidar = Lidar(TABLE, "left", 1)
    points, _, numbers = measured(lidar)
    directions = lidar.rays(0).nominal[numbers].astype(float)
    along = np.einsum("ij,ij->i", points, directions)
    assert np.linalg.norm(points - along[:, None] * directions, axis=1).max() < 1e-5
    assert (along - 4.0).std() == pytest.approx(0.01, rel=0.03) and (along - 4.0).mean() == pytest.approx(0.0, abs=3e-4)


def test_noise_is_new_in_every_scan_device_and_seed_and_else_the_same():
    def range_errors(device, seed, tick):
        return range_error(Lidar(dataclasses.replace(TABLE, drop_out_rate=0.0), device, seed), tick=tick)

    first = range_errors("left", 1, 0)
    np.testing.assert_array_equal(first, range_errors("left", 1, 0))
    for other in (range_errors("left", 1, 1), range_errors("right", 1, 0), range_errors("left", 2, 0)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.05


def test_channel_biases_lengthen_their_channel_s_ranges():
    biases = 0.05 * (np.arange(EXACT.num_channels) == 10)
    xyz, points, _ = measured(Lidar(dataclasses.replace(EXACT, range_biases=biases), "left", 1))
    np.testing.assert_allclose(np.linalg.norm(xyz, axis=1), 4.0 + biases[points["ring"]], atol=1e-5)


@pytest.mark.parametrize("distance", [0.03, 61.0, np.inf])
def test_nothing_is_reported_beyond_the_range_limits(distance):
    assert len(measured(Lidar(TABLE, "left", 1), distance)[0]) == 0


@pytest.mark.parametrize(
    ("parameter", "value", "surface", "expected", "tolerance"),
    [
        ("range_offset", 0.01, {"distance": 1.0}, 0.01, 1e-3),
        ("range_offset", -0.02, {"distance": 20.0}, -0.02, 1e-3),
        ("range_scale", 1e-3, {"distance": 20.0}, 0.02, 1e-3),
        ("near_range", 0.015, {"distance": 0.5}, 0.015 * np.exp(-1.0), 0.01),  # fades over `near_length`
        ("near_range", 0.015, {"distance": 1.0}, 0.015 * np.exp(-2.0), 0.01),
        ("incidence", 0.003, {"cosine": 1.0}, 0.0, 0.0),
        ("incidence", 0.003, {"cosine": 0.25}, 0.009, 0.01),
        ("echo", 0.006, {"reflectivity": 0.9}, 0.0, 0.0),
        ("echo", 0.006, {"reflectivity": 0.08}, 0.006 * np.exp(-1.0), 0.05),
        ("channel_range", BY_CHANNEL, {}, np.tile(BY_CHANNEL, EXACT.azimuth_steps), 1e-3),
    ],
)
def test_range_errors_have_the_size_asked_for(parameter, value, surface, expected, tolerance):
    sensor = dataclasses.replace(EXACT, spread=UnitSpread(near_length=0.5))
    errors = range_error(lidar_with(sensor, **{parameter: value}), **surface)
    np.testing.assert_allclose(errors, expected, rtol=tolerance, atol=5e-6)


def test_distances_count_from_the_optical_centre_that_turns_with_the_rotor():
    table = dataclasses.replace(EXACT, optical_centre=np.array([-0.0076, 0.0137, 0.0127]))
    uncorrected = Lidar(table.with_driver(Driver(distance_correction=False)), "left", 1)
    xyz, rays, numbers = in_box(uncorrected)
    off = np.abs(np.abs(xyz).max(axis=1) - 3.0)
    assert 0.005 < np.percentile(off, 95) < 0.02
    # The model's correction puts every point back onto the walls.
    model, values = uncorrected.model, uncorrected.unit.values
    corrected = model.corrected(model.returns(xyz, numbers % EXACT.num_channels), 1.0, values)
    assert np.abs(np.abs(corrected).max(axis=1) - 3.0).max() < 1e-5
    # And so does the driver that corrects it.
    xyz, _, _ = in_box(Lidar(table, "left", 1))
    assert np.abs(np.abs(xyz).max(axis=1) - 3.0).max() < 1e-5


@pytest.mark.parametrize("correcting", [True, False])
def test_the_rays_are_those_of_the_error_model(correcting):
    rng = np.random.default_rng(2)
    spread = UnitSpread(
        0.01, 5e-4, 0.005, 1.0, 0.003, 0.003, 0.002, 1e-3, 1e-3, (3e-4, 2e-4), (0.001, 0.001, 0.001)
    )  # fmt: skip
    sensor = dataclasses.replace(
        EXACT, spread=spread, optical_centre=np.array([-0.0076, 0.0137, 0.0127]), clockwise=True,
        firing_times=rng.uniform(0.0, 1e-4, EXACT.num_channels),
        driver=Driver(False, correcting),
    )  # fmt: skip
    lidar = Lidar(sensor, "right", 4)
    rays = lidar.rays(5)
    channel = np.tile(np.arange(sensor.num_channels), sensor.azimuth_steps)
    columns = np.repeat(np.arange(sensor.azimuth_steps), sensor.num_channels)
    rotor = lidar.spin_phase(5) - 2 * np.pi * columns / sensor.azimuth_steps
    rotor = rotor + (sensor.firing_azimuths[channel] if correcting else 0.0)
    origins, directions = lidar.model.true_rays(rotor, channel, lidar.unit.values)
    # The simulator has one encoder error for all channels of an azimuth, though they fire up to 0.4 deg apart.
    np.testing.assert_allclose(rays.directions, directions, atol=1e-5)
    np.testing.assert_allclose(rays.origins, origins, atol=1e-6)


def test_noise_grows_with_range_slant_and_weakness():
    lidar = lidar_with(dataclasses.replace(EXACT, range_noise=0.01, noise_growth=NoiseGrowth(0.001, 0.005, 0.02)))
    for distance, cosine, reflectivity, growth, rel in (
        (1.0, 1.0, 1.0, 0.001, 0.03), (20.0, 1.0, 1.0, 0.02, 0.03), (1.0, 0.25, 1.0, 0.015, 0.05),
        (1.0, 1.0, 0.0, 0.02, 0.03),
    ):  # fmt: skip
        errors = range_error(lidar, distance, cosine=cosine, reflectivity=reflectivity)
        assert errors.std() == pytest.approx(np.hypot(0.01, growth), rel=rel)


def test_ranges_drift_while_the_unit_warms_up():
    lidar = lidar_with(dataclasses.replace(EXACT, range_drift=0.004, drift_time=10.0))
    cold, warm = (range_error(lidar, tick=tick).mean() for tick in (0, 1000))
    assert cold == pytest.approx(0.0, abs=2e-5) and warm == pytest.approx(0.004, rel=0.01)


def test_the_ranges_of_all_channels_wander_together_and_differently_in_each_scan():
    lidar = lidar_with(dataclasses.replace(EXACT, range_wander=0.001))
    errors = np.array([range_error(lidar, tick=tick) for tick in range(20)]).reshape(20, -1, EXACT.num_channels)
    assert np.ptp(errors, axis=2).max() < 3e-5  # at one azimuth of the rotor
    wander = errors.mean(axis=2)
    # Harmonics 1 to 5, of which the variance of the n-th is 1 / n of the first one's.
    assert np.std(wander) == pytest.approx(0.001 * np.sqrt(sum(1.0 / n for n in range(1, 6))), rel=0.2)
    assert np.abs(np.corrcoef(wander)[0, 1:]).mean() < 0.4


def test_rays_at_an_edge_return_from_between_what_is_before_and_behind_it():
    # A wall at 3.2 m whose left half is covered by a board at 3 m, seen by a beam of 2 deg.
    width = np.radians(2.0)
    lidar = lidar_with(dataclasses.replace(EXACT, beam_divergence=width))
    scene = Scene({
        "wall": Surface(*solids.box(np.array([0.1, 8.0, 8.0]))).moved(from_xyz_rpy((3.25, 0.0, 0.0))),
        "board": Surface(*solids.box(np.array([0.1, 4.0, 8.0]))).moved(from_xyz_rpy((3.05, -2.0, 0.0))),
    })  # fmt: skip
    optics = Optics({}, 0.5)
    mixed = []
    for tick in range(40):
        rays = lidar.rays(tick)
        found, _, _ = optics.scan(lidar, rays, np.eye(4), lambda origins, ways, _rows: Hits(origins, ways, [scene]))
        ahead = found.distances * rays.directions[:, 0]
        near = np.abs(np.arctan2(rays.directions[:, 1], rays.directions[:, 0])) < width / 4
        mixed.append(ahead[near & np.isfinite(found.distances) & (np.abs(rays.directions[:, 2]) < 0.3)])
    mixed = np.concatenate(mixed)
    between = (mixed > 3.02) & (mixed < 3.18)
    # The share of a beam's edges that fall beyond an edge up to one standard deviation away,
    # with 10 to 90 % of the light.
    expected = 0.8 * quad(norm.sf, 0.0, 1.0)[0]
    assert len(mixed) > 400 and between.mean() == pytest.approx(expected, abs=0.05)


def test_a_driver_may_publish_misses_as_zeros_and_one_time_a_packet():
    sensor = dataclasses.replace(TABLE, zero_misses=True, packets=100, drop_out_rate=0.2)
    lidar = Lidar(sensor, "left", 1)
    _, points, numbers = measured(lidar)
    assert len(points) == sensor.num_rays and np.array_equal(numbers, np.arange(sensor.num_rays))
    misses = (coordinates(points) == 0).all(axis=1)
    assert misses.mean() == pytest.approx(0.2, abs=0.01) and (points["intensity"][misses] == 0).all()
    assert len(np.unique(points["timestamp"])) == 100
    assert points["timestamp"][0] == lidar.start_time(0) and points["timestamp"][-1] < lidar.start_time(1)


def test_dual_returns_repeat_the_first_unless_something_else_comes_back():
    sensor = dataclasses.replace(TABLE, dual_return=True)
    lidar = Lidar(sensor, "left", 1)
    rays = lidar.rays(0)
    count = sensor.num_rays
    ones = np.ones(count, np.float32)
    behind = np.full(count, np.inf, np.float32)
    behind[:1000] = 6.0
    points, numbers = lidar.measure(rays, Echoes(4 * ones, ones, 0.5), Echoes(behind, ones, 0.5))
    first, second = (points[numbers // count == turn] for turn in (0, 1))
    by_number = dict(zip(numbers.tolist(), points, strict=True))
    same = [by_number[number] == by_number[number + count] for number in range(1000, count) if number in by_number]
    assert all(same) and len(first) > 0.99 * count
    other = np.linalg.norm(coordinates(second)[:900], axis=1)
    assert np.abs(other - 6.0).max() < 0.06
    assert (np.diff(points["timestamp"]) < 0).sum() > 0  # an azimuth's second returns follow its first ones


def test_units_are_drawn_from_their_own_seed():
    spread = UnitSpread(range_offset=0.01, optical_centre=(0.001, 0.001, 0.001))

    def values(*arguments, **given):
        return Lidar(dataclasses.replace(EXACT, spread=spread), *arguments, **given).unit.values

    left = values("left", 1)
    assert not np.array_equal(left, values("right", 1))
    np.testing.assert_array_equal(left, values("left", 7, unit_seed=1))
    assert not np.array_equal(left, values("left", 1, unit_seed=2))
    assert left[HARMONICS].any() == 0 and left[CENTRE].all()
