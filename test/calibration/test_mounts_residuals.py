"""The robot's own surfaces as a residual block: derivatives by finite differences, sums written out, priors."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from stretch_sim_cal.calibration.mounts import method
from stretch_sim_cal.calibration.mounts.residuals import (
    NEAR_RANGES,
    CloudReader,
    LidarRays,
    Matches,
    RobotUnknowns,
    mount_covariances,
    noise_weights,
)
from stretch_sim_cal.calibration.mounts.result import MountSettings
from stretch_sim_cal.calibration.problem import NormalEquations, State
from stretch_sim_cal.geometry.transforms import adjoint, apply, exp, from_rotation_translation, from_xyz_rpy
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit import INCIDENCE, UNKNOWN_SENSOR, ErrorModel, UnitSpread, directions, weak_echo

SETTINGS = MountSettings(
    joint_offsets=("lift_joint", "yaw_joint"), joint_prior={"lift_joint": 0.003, "yaw_joint": 0.004},
    joint_reading={"lift_joint": 0.001, "yaw_joint": 0.002},
)  # fmt: skip
MODEL = ErrorModel(UnitSpread(range_offset=0.01, channel_range=0.002), np.linspace(-0.3, 0.3, 4), np.zeros(4))
CENTRES = {"mast": np.array([0.0, 0.1, 0.5]), "arm": np.array([0.2, 0.0, 0.1])}
SURFACES = {link: SimpleNamespace(corners=centre + [[0.1], [-0.1]]) for link, centre in CENTRES.items()}
ROBOT = RobotUnknowns(SURFACES, SETTINGS, ("left", "right"), num_samples=2)
JOINTS = {"lift_joint": 0.7, "yaw_joint": -1.1}
POSES = {"mast": from_xyz_rpy((0.0, 0.1, 0.2), (0.1, 0.0, 0.3)), "arm": from_xyz_rpy((0.3, 0.1, 0.8), (0.0, 0.5, -1.0))}
ORIGINS = {"mast": from_xyz_rpy((0, 0.1, 0.1), (0, 0.4, 0)), "arm": from_xyz_rpy((0.1, 0.1, 0.8), (1, 0, 0.2))}
LIFT, YAW = np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), np.array([0.2, -0.3, 0.0, 0.0, 0.0, 1.0])
SAMPLE = SimpleNamespace(
    ancestors={"arm": ("mast",)}, joint_origins=ORIGINS, joint_values=JOINTS,
    joint_motions={"lift_joint": {"arm": LIFT}, "yaw_joint": {"arm": YAW}},
)  # fmt: skip
POSED = SimpleNamespace(number=1, base_from_link=POSES, sample=SAMPLE)


def seen(count=30, distances=0.0):
    random = np.random.default_rng(6)
    normals = random.normal(size=(count, 3))
    normals /= np.linalg.norm(normals, axis=1)[:, None]
    hits, links = random.uniform(-1.0, 1.0, size=(count, 3)), np.arange(count) % 2
    distances = distances * random.normal(size=count)
    incidence = random.uniform(0.3, 1.0, size=count)
    points = hits + distances[:, None] * normals
    return Matches(points, 0 * hits, hits, distances, normals, incidence, links, np.arange(count))


def rows(side, matches):
    """Return the jacobian (M, n) of all matches, by all unknowns of the robot."""
    whole = np.zeros((len(matches.distances), ROBOT.size))
    for chosen, columns, jacobian in ROBOT.rows(side, POSED, matches):
        whole[np.ix_(chosen, columns)] = jacobian
    return whole


def moved(side, matches, change):
    """Return the distances of what is seen, the lidar, joint origins, meshes, lift, yaw and near ranges changed by
    `change` (n,)."""
    lidar, found = change[:6] if side == "left" else change[6:12], []
    rays = matches.hits - matches.origins
    ranges = np.linalg.norm(rays, axis=1)
    shorter = LidarRays(rays).without(change[ROBOT.of_near_ranges(side)]).points
    nearer = matches.incidence * (ranges - np.linalg.norm(shorter, axis=1))
    for point, hit, normal, number in zip(matches.points, matches.hits, matches.normals, matches.links, strict=True):
        link = ROBOT.links[number]
        offsets = ROBOT.offsets(change, POSED.number, POSED.sample)
        motion = exp(offsets["lift_joint"] * LIFT + offsets["yaw_joint"] * YAW) if link == "arm" else np.eye(4)
        for carrier in ("arm", "mast") if link == "arm" else ("mast",):
            origin, own = ORIGINS[carrier], change[ROBOT.of_link(ROBOT.links.index(carrier))]
            motion = origin @ exp(own) @ np.linalg.inv(origin) @ motion
        surface = POSES[link] @ from_rotation_translation(np.eye(3), CENTRES[link])
        motion = motion @ surface @ exp(change[ROBOT.of_mesh(number)]) @ np.linalg.inv(surface)
        found.append(motion[:3, :3] @ normal @ (apply(exp(lidar), point[None]) - apply(motion, hit[None]))[0])
    return np.array(found) + nearer


@pytest.mark.parametrize("side", ["left", pytest.param("right", marks=pytest.mark.long)])
def test_distances_change_with_every_unknown_as_in_the_jacobian(side):
    matches = seen()
    assert (ROBOT.first_link, ROBOT.size) == (12, 12 + 2 * 12 + 2 * (2 + len(NEAR_RANGES) + 2))
    jacobian = rows(side, matches)
    for unknown in range(ROBOT.size):
        step = 1e-6 * np.eye(ROBOT.size)[unknown]
        by_difference = (moved(side, matches, step) - moved(side, matches, -step)) / 2e-6
        np.testing.assert_allclose(jacobian[:, unknown], by_difference, atol=1e-7)


def test_a_joint_is_off_by_its_zero_its_scale_and_what_it_reads_in_each_sample():
    errors = np.zeros(ROBOT.size)
    errors[ROBOT.first_joint : ROBOT.first_near] = [0.001, 0.002, 0.005, 0.01]
    errors[ROBOT.first_reading :] = [7.0, 8.0, 0.0003, 0.0004]
    assert ROBOT.offsets(errors, 1, POSED.sample) == pytest.approx(
        {"lift_joint": 0.001 + 0.005 * 0.7 + 0.0003, "yaw_joint": 0.002 - 0.01 * 1.1 + 0.0004}
    )


def test_the_size_of_the_joints_errors_is_learned_of_readings_by_joint_and_of_scales_together():
    robot = RobotUnknowns({}, SETTINGS, ("left", "right"), num_samples=2)
    first, near, last = robot.first_joint + 2, robot.first_near, robot.first_reading
    before = robot.variances()
    errors, variances = np.zeros(robot.size), np.zeros(robot.size)
    errors[robot.first_reading :], variances[robot.first_reading :] = [0.003, 0.0, -0.003, 0.0], [1e-6, 0.0, 1e-6, 0.0]
    errors[first:near] = [0.006, 0.0]
    errors[near:last], variances[near:last] = 0.0, 4.0 * before[near:last]
    robot.learn(errors, variances)
    deviations = np.sqrt(robot.variances())
    assert deviations[last:] == pytest.approx([np.sqrt(10.0) * 0.001, 0.02 * 0.002] * 2)
    assert deviations[first:near] == pytest.approx([np.sqrt(4.5) * 0.002, np.sqrt(4.5) * 0.004])
    # All near ranges of both lidars have one size, of which the prior counts as much as four of them.
    known = 4.0 / (4.0 + last - near)
    assert deviations[near:last] == pytest.approx(np.sqrt(before[near:last] * (known + 4.0 * (1.0 - known))))


def test_without_the_readings_the_rest_is_as_uncertain_as_with_them():
    random = np.random.default_rng(3)
    root = random.normal(size=(2 * ROBOT.size, ROBOT.size))
    information = root.T @ root
    rest = np.linalg.inv(information)[: ROBOT.first_reading, : ROBOT.first_reading]
    np.testing.assert_allclose(np.linalg.inv(ROBOT.readings_marginalised(information)), rest, rtol=1e-8, atol=1e-12)


def test_rays_without_the_errors_of_near_ranges_end_where_the_surface_is():
    errors = 0.03 * np.exp(-NEAR_RANGES)
    true = np.linspace(0.12, 3.0, 50)
    measured = true + np.interp(true, [*NEAR_RANGES, 2.4], [*errors, 0.0])
    ways, origin = directions(np.linspace(-0.5, 0.5, 50), np.linspace(0.0, 6.0, 50)), np.array([0.01, 0.02, 0.0])
    rays = LidarRays(origin + measured[:, None] * ways, origin).without(errors)
    np.testing.assert_allclose(rays.points, origin + true[:, None] * ways, atol=2e-4)
    assert np.array_equal(rays.points[true > 2.5], (origin + measured[:, None] * ways)[true > 2.5])


def test_what_the_expected_errors_explain_is_no_remainder():
    matches, expected = seen(distances=0.003), np.zeros(ROBOT.size)
    np.testing.assert_array_equal(ROBOT.residuals("left", POSED, matches, expected), matches.distances)
    expected[:] = 1e-3 * np.sin(np.arange(ROBOT.size))
    explained = matches.distances + rows("left", matches) @ expected
    np.testing.assert_allclose(ROBOT.residuals("left", POSED, matches, expected), explained, atol=1e-15)


@pytest.mark.parametrize("side", ["left", "right"])
def test_returns_add_their_rows_written_out(side):
    matches, number = seen(distances=0.003), int(side == "right")
    state = State((from_xyz_rpy((0, 0, 1), (0.2, 0.1, 0)), from_xyz_rpy((0, 1, 1), (0, 0.3, 0.4))),
                  (np.zeros(MODEL.size), np.zeros(MODEL.size)))  # fmt: skip
    channel = np.arange(30) % 4
    returns = MODEL.returns(np.random.default_rng(1).normal(size=(30, 3)), channel, None)
    unknowns, weights = ROBOT.beside((MODEL, MODEL)), np.linspace(1e4, 4e4, 30)
    equations = NormalEquations.empty(unknowns.size)
    ROBOT.add_to(equations, unknowns, side, POSED, matches, weights, returns, state)
    normals = matches.normals @ state.base_from_lidar[number][:3, :3]
    errors = MODEL.sensitivity(returns, matches.incidence, normals, state.units[number], beyond=matches.along)
    whole = np.zeros((30, unknowns.size))
    whole[:, ROBOT.columns(unknowns)] = rows(side, matches)
    whole[np.arange(30)[:, None], unknowns.unit_columns(number, channel)] = np.hstack(errors)
    information = (whole.T * weights) @ whole
    np.testing.assert_allclose(equations.information, information, rtol=1e-9, atol=1e-9 * np.abs(information).max())
    gradient = -(whole.T * weights) @ matches.distances
    np.testing.assert_allclose(equations.gradient, gradient, rtol=1e-9, atol=1e-9 * np.abs(gradient).max())


def test_priors_of_the_lidars_are_about_their_own_origins():
    nominal = {"left": from_xyz_rpy((0.1, 0.2, 1.3), (1, 0, 0.5)), "right": from_xyz_rpy((0.1, -0.2, 1.3), (0, 1, 0))}
    for side, covariance in zip(("left", "right"), mount_covariances(nominal), strict=True):
        about = adjoint(from_rotation_translation(np.eye(3), -nominal[side][:3, 3]))
        own = np.diag([0.05**2] * 3 + [np.radians(5.0) ** 2] * 3)
        np.testing.assert_allclose(about @ covariance @ about.T, own, atol=1e-15)


def test_noise_is_along_the_ray_and_the_surfaces_own_across_it():
    np.testing.assert_allclose(noise_weights(seen(), 0.01), 1.0 / ((0.01 * seen().incidence) ** 2 + 3e-4**2))


@pytest.fixture
def sensor():
    return load_sensor("jt128_sparse_real")


ELEVATIONS = np.radians([20.0, -30.0, 0.0, -30.0, 20.0, -30.0])
RANGES = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 3.0])
PLAIN = RANGES[:, None] * directions(ELEVATIONS, np.linspace(-3.0, 3.0, 6))  # a cloud without rings


@pytest.mark.parametrize("known", [True, False])
def test_without_rings_returns_of_one_elevation_are_of_one_channel(known, sensor):
    """Two clouds, since a channel is the same in all of them; how far units differ is the sensor file's if there is
    one."""
    reader = CloudReader(sensor if known else None, [PLAIN[:3], PLAIN[3:]])
    returns = reader.returns(PLAIN)
    assert reader.model.num_channels == 3 and len(set(returns.channel)) == 3
    np.testing.assert_array_equal(returns.channel[[3, 5, 4]], returns.channel[[1, 1, 0]])
    np.testing.assert_allclose(reader.model.elevations[returns.channel], ELEVATIONS, atol=np.radians(0.2))
    np.testing.assert_allclose(returns.ranges, RANGES)
    assert reader.model.spread == (sensor.spread if known else UNKNOWN_SENSOR)
    np.testing.assert_array_equal(reader.model.optical_centre, sensor.optical_centre if known else np.zeros(3))
    assert not returns.echo.any()
    for by_incidence in (0.0, 0.003):  # which is taken out only once the surface is known
        values = by_incidence * np.eye(reader.model.size)[INCIDENCE]
        np.testing.assert_allclose(reader.rays(returns, values).points, PLAIN, atol=1e-4)


def test_rings_are_channels_of_the_sensors_table_if_all_clouds_have_them(sensor):
    ring, intensity = np.array([3, 0, 5, 0, 3, 0]), np.array([0.0, 10.0, 60.0, 255.0, 10.0, 0.0])
    full = np.column_stack([PLAIN, ring, intensity])
    reader = CloudReader(sensor, [full])
    returns = reader.returns(full)
    assert reader.model.num_channels == len(sensor.elevations)
    np.testing.assert_array_equal(returns.channel, ring)
    np.testing.assert_allclose(returns.echo, weak_echo(intensity))
    assert CloudReader(sensor, [full, PLAIN]).model.num_channels == 3
    assert CloudReader(None, [full]).model.num_channels == 3


def test_noise_grows_as_in_the_sensor_file_in_the_given_unit(sensor):
    sensor = replace(sensor, range_noise=0.008)
    full = np.column_stack([PLAIN, np.zeros(6), np.linspace(0.0, 255.0, 6)])
    returns, cosines = CloudReader(sensor, [full]).returns(full), np.linspace(0.2, 1.0, 6)
    expected = sensor.relative_noise(RANGES, cosines, returns.echo)
    assert expected.max() > 1.5 * expected.min()
    np.testing.assert_allclose(CloudReader(sensor, [full]).relative_noise(returns, cosines), expected)
    np.testing.assert_allclose(CloudReader(sensor, [full], 0.004).relative_noise(returns, cosines), 2.0 * expected)
    np.testing.assert_array_equal(CloudReader(None, [full], 0.004).relative_noise(returns, cosines), np.ones(6))


def test_patches_of_two_links_are_judged_apart_however_many_links_there_are():
    names, count = [f"link_{number}" for number in range(65)], 40
    # On the last link, and where the first one has its next voxel along z.
    hits = np.repeat([[0.01, 0.01, 0.01 + method.PATCH_SIZE], [0.01, 0.01, 0.01]], (count, 3 * count), axis=0)
    links = np.repeat([0, 64], (count, 3 * count))
    matches = SimpleNamespace(indices=links, links=links, hits=hits, incidence=np.ones(len(links)))
    sample = SimpleNamespace(base_from_link=dict.fromkeys(names, np.eye(4)))
    settings = SimpleNamespace(range_noise=1e-3, link_position=1e-3, link_angle=1e-3)
    unknowns = SimpleNamespace(links=names, centres=dict.fromkeys(names, np.zeros(3)), settings=settings)
    fits = method.consistent(matches, np.where(links == 0, 0.1, 0.0), sample, unknowns)
    assert not fits[:count].any() and fits[count:].all()
