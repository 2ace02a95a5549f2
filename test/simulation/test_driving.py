"""The simulated base: where commands take it, what its odometry says of that, and what lidars see on the way."""

import dataclasses
import math

import numpy as np
import pytest

import stretch_sim_cal as cal
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply, from_xyz_rpy
from stretch_sim_cal.robot.profile import load_profile
from stretch_sim_cal.robot.wheeled_base import wheeled_base
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.driving import DrivingBase, OdometryErrors, OdometrySpread
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.setup import SimulationSetup
from stretch_sim_cal.simulation.solids import Undulation

OMNIDIRECTIONAL, DIFFERENTIAL = (load_profile(name).base for name in ("stretch4", "two_lidar_amr"))
EXACT = OdometrySpread(0.0, 0.0, 0.0, 0.0, 0.0)


def place(base, time=None):
    pose = base.poses(np.array([base.now if time is None else time]))[0]
    return np.array([*pose[:2, 3], math.atan2(pose[1, 0], pose[0, 0])])


@pytest.mark.parametrize(
    ("base", "command", "expected"),
    [
        (OMNIDIRECTIONAL, (0.0, 0.2, 0.0, 3.0), (0.0, 0.6, 0.0)),
        (DIFFERENTIAL, (0.0, 0.2, 0.0, 3.0), (0.0, 0.0, 0.0)),
        # Both speed up and slow down within half a second, so it stays on a circle of 0.5 m.
        (DIFFERENTIAL, (0.25, 0.0, 0.5, 1.0), (0.5 * math.sin(0.5), 0.5 * (1 - math.cos(0.5)), 0.5)),
    ],
    ids=["strafes", "does not strafe", "arc"],
)
def test_a_command_ends_where_the_kind_of_base_can_go(base, command, expected):
    driving = DrivingBase(base)
    driving.follow([command])
    np.testing.assert_allclose(place(driving), expected, atol=1e-9)


def test_velocity_and_acceleration_stay_within_limits():
    driving, velocities = DrivingBase(OMNIDIRECTIONAL), []
    for _ in range(800):
        driving.command(3.0, 3.0, 30.0)
        driving.step(0.005)
        velocities.append(driving.odometry(driving.now)[1])
    x, y, turns = np.transpose(velocities)
    for speeds, fastest, acceleration in ((np.hypot(x, y), 0.6, 0.25), (turns, 4.0, 2.0)):
        assert speeds.max() == pytest.approx(fastest)
        assert np.diff(speeds).max() == pytest.approx(acceleration * 0.005)


def test_it_stops_when_commands_cease_and_at_once_when_it_is_halted():
    driving = DrivingBase(OMNIDIRECTIONAL)
    driving.command(0.1, 0.0, 0.0)
    driving.step(0.45)
    assert driving.odometry(0.45)[1][0] == pytest.approx(0.1)
    driving.step(1.0)
    assert not driving.moving and place(driving)[0] == pytest.approx(0.1 * 0.505)
    driving.command(0.1, 0.0, 0.0)
    driving.step(0.45)
    halted = place(driving)
    driving.stop(at_once=True)
    driving.step(1.0)
    np.testing.assert_array_equal(place(driving), halted)
    assert not driving.odometry(driving.now)[1].any()


def test_a_motion_depends_only_on_the_stamps_of_its_commands():
    def after(steps, early):
        driving = DrivingBase(OMNIDIRECTIONAL, OdometryErrors.drawn(OdometrySpread(), 4), seed=4)
        commands = [(0.2 * k, 0.1 * k) for k in range(10)]
        for duration in steps:
            while commands and commands[0][0] <= driving.now + early:
                stamp, turn = commands.pop(0)
                driving.command(0.2, 0.05, turn, stamp)
            driving.step(duration)
        return np.append(driving.poses(np.linspace(0.0, 2.4, 50)), driving.odometry(2.4)[0])

    np.testing.assert_array_equal(after([0.025] * 120, early=0.2), after([0.2] * 15, early=1.0))


def test_commands_of_another_time_are_not_obeyed():
    driving = DrivingBase(OMNIDIRECTIONAL)
    driving.step(2.0)
    for stamp in (1.0, 1_700_000_000.0):
        with pytest.raises(InputError, match="stamp it with simulated time"):
            driving.command(0.2, 0.0, 0.0, stamp)
    driving.step(1.0)
    np.testing.assert_array_equal(place(driving), 0.0)
    with pytest.raises(InputError, match="finite"):
        driving.command(math.nan, 0.0, 0.0)


def test_odometry_is_off_by_the_errors_asked_for():
    errors = OdometryErrors(scale=(0.02, -0.01), track_width=0.03)
    for twist, part, factor in (((0.2, 0, 0), 0, 1.02), ((0, 0.2, 0), 1, 0.99), ((0, 0, 0.5), 2, 1.03)):
        driving = DrivingBase(OMNIDIRECTIONAL, errors)
        driving.follow([(*twist, 2.0)])
        assert driving.odometry(driving.now)[0][part] == pytest.approx(factor * place(driving)[part], rel=1e-9)
    # Its clock is off as well.
    driving = DrivingBase(OMNIDIRECTIONAL, OdometryErrors(clock_offset=0.02))
    driving.follow([(0.2, 0.0, 0.0, 2.0)])
    assert driving.odometry(1.52)[0][0] == pytest.approx(place(driving, 1.5)[0])
    assert driving.odometry(1.52)[0][0] < place(driving, 1.52)[0] - 0.003


def test_drawn_errors_and_slip_have_the_size_asked_for():
    spread = OdometrySpread(scale=0.02, track_width=0.01, slip=0.005, slip_angle=0.004, clock_offset=0.03)
    drawn = [OdometryErrors.drawn(spread, seed) for seed in range(400)]
    for name, rel in (("scale", 0.1), ("track_width", 0.15), ("clock_offset", 0.15)):
        assert np.std([getattr(errors, name) for errors in drawn]) == pytest.approx(getattr(spread, name), rel=rel)
    slips = {0.25: [], 1.0: []}
    for seed in range(50):
        driving = DrivingBase(OMNIDIRECTIONAL, OdometryErrors(slip=0.005, slip_angle=0.004), seed)
        for leg, found in zip((0.25, 0.75), slips.values(), strict=True):
            driving.follow([(0.2, 0.0, 0.0, leg / 0.2)])
            found.append(place(driving) - driving.odometry(driving.now)[0])
    for way, found in slips.items():
        # Across, turning on the way adds a third of the way times its size.
        across = math.sqrt(0.005**2 * way + 0.004**2 * way**3 / 3)
        np.testing.assert_allclose(np.std(found, axis=0), [0.005 * way**0.5, across, 0.004 * way**0.5], rtol=0.2)
        assert np.abs(np.mean(found, axis=0)).max() < 0.25 * across + 1e-3


def test_a_base_stands_on_the_floor_by_its_wheels():
    floor = Undulation.drawn(0.003, (2.0, 4.0), np.random.default_rng(2))
    driving = DrivingBase(OMNIDIRECTIONAL, floor=floor)
    driving.follow([(0.3, 0.1, 0.4, 3.0)])
    pose = driving.poses(np.array([driving.now]))[0]
    wheels = apply(pose, np.column_stack([OMNIDIRECTIONAL.wheels, np.zeros(3)]))
    np.testing.assert_allclose(wheels[:, 2], floor.heights(wheels[:, :2]), atol=1e-7)
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-20, 20, 200)]), axis=-1)
    assert np.std(floor.heights(grid)) == pytest.approx(0.003, rel=0.1)


def simulator(world="furnished_room", sensor=None, **given):
    setup = SimulationSetup(world=world, sensor="jt128_sparse", seed=3, **{"odometry": EXACT} | given)
    return EmbeddedSimulator(setup, sensor)


def seen_in_world(simulated, tick, frozen=False):
    """Return the left lidar's points (N, 3) in the world (`frozen`: as if the base stood), and what each lies on."""
    scan, labels, names = simulated.labelled_scan("left", tick)
    times = np.full(len(scan), simulated.start_time("left", tick)) if frozen else scan["timestamp"]
    return deskewed(simulated, scan, times), np.array(names)[labels]


def floor_seen(simulated, tick):
    points, names = seen_in_world(simulated, tick)
    return points[np.char.startswith(names, "floor/")]


def deskewed(simulated, scan, times):
    """Return a scan's points (N, 3) in the world, each from where the base was at a time (N,)."""
    footprint_from_lidar = from_xyz_rpy((0.0, 0.0, simulated.floor_in_base.offset)) @ simulated.base_from_lidar("left")
    poses = simulated.driving.poses(times) @ footprint_from_lidar
    return np.einsum("nij,nj->ni", poses[:, :3, :3], xyz(scan)) + poses[:, :3, 3]


EXACT_RANGES = dataclasses.replace(load_sensor("jt128_sparse"), range_noise=0.0)
CURVE = [(0.3, 0.1, 0.5, 2.0)]


def driven(beyond, *arguments, **given):
    """Return a simulator whose base has driven the curve and then stood for some s."""
    simulated = simulator(*arguments, **given)
    simulated.driving.follow(CURVE)
    simulated.driving.step(beyond)
    return simulated


def last_scan(simulated):
    return round(simulated.driving.now / simulated.period) - 2


def distances(simulated, points, names):
    """Return how far points (N,) on the world's boxes are from the planes of their faces (M,), mirrors apart."""
    found = []
    for name, surface in simulated.world.surfaces.items():
        if len(surface.faces) == 12 and not name.startswith("mirror/"):
            a, b, c = np.moveaxis(surface.triangles, 1, 0)
            normals = np.cross(b - a, c - a)
            normals /= np.linalg.norm(normals, axis=1, keepdims=True)
            found.append(np.abs(points[names == name] @ normals.T - np.sum(a * normals, axis=1)).min(axis=1))
    return np.concatenate(found)


def test_clouds_on_the_way_are_right_once_they_are_deskewed():
    simulated = driven(0.5, "surfaces", EXACT_RANGES)  # with glass, and people who walk
    for tick in (12, last_scan(simulated)):
        off = distances(simulated, *seen_in_world(simulated, tick))
        assert len(off) > 12000
        assert off.max() < 2e-5
    assert np.quantile(distances(simulated, *seen_in_world(simulated, 12, frozen=True)), 0.95) > 2e-3


def test_scans_depend_only_on_seed_and_motion():
    at_once, after = [], simulator(odometry=OdometrySpread())
    simulated = simulator(odometry=OdometrySpread())
    for each in (simulated, after):
        each.driving.step(0.2)
    at_once.append(simulated.scan("right", 0))
    simulated.driving.follow(CURVE)
    at_once.append(simulated.scan("right", 15))
    simulated.driving.step(1.0)
    at_once.append(simulated.scan("right", 33))
    after.driving.follow(CURVE)
    after.driving.step(1.0)
    for tick, scan in zip((33, 15, 0), at_once[::-1], strict=True):
        np.testing.assert_array_equal(scan, after.scan("right", tick))


def test_on_an_uneven_floor_the_floor_under_the_robot_is_where_the_truth_says():
    simulated = simulator("empty_hall", EXACT_RANGES, floor=(0.003, 2.0))
    simulated.driving.follow([(0.3, 0.0, 0.0, 4.0)])
    simulated.driving.step(0.5)
    for pushed in (False, True):
        if pushed:
            simulated.move_base(from_xyz_rpy((-0.5, 0.4, 0.0), (0.0, 0.0, 2.0)))
        floor = floor_seen(simulated, last_scan(simulated) + 4 * pushed)
        wanted = simulated.driving.floor.heights(floor[:, :2])
        assert wanted.std() > 0.001 and np.abs(floor[:, 2] - wanted).max() < 3e-4
    with pytest.raises(InputError, match="no flat floor"):
        simulator("uneven", floor=(0.003, 2.0))


def test_the_truth_has_the_errors_of_the_odometry():
    setup = SimulationSetup(seed=5, odometry=OdometrySpread(scale=0.02, slip=0.008), sensor="jt128_sparse")
    drawn = OdometryErrors.drawn(setup.odometry, 5)
    assert EmbeddedSimulator(setup).ground_truth()["odometry"] == dataclasses.asdict(drawn)
    assert drawn.slip == 0.008 and drawn.clock_offset != 0.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "walking"}, "kind: is 'walking', use one of"),
        ({"wheels": [[0, 0.2], [0, -0.2], [0, 0.0]]}, "wheels: lie on one line"),
        ({"track_width": None}, "track_width: is missing"),
        ({"topics": {"command": "/cmd_vel", "stamped_command": "/cmd_vel"}}, "a topic has one type"),
    ],
)
def test_a_base_that_cannot_be_is_refused(changed, message):
    given = {"kind": "differential", "track_width": 0.4, "wheels": [[0, 0.2], [0, -0.2], [-0.3, 0]]}
    with pytest.raises(InputError, match=message):
        wheeled_base(given | changed, "profile.yaml: base")


def test_simulate_drives_from_station_to_station():
    sim = cal.simulate(
        "two_lidar_amr", "empty_hall", "os0_32_sparse", seed=6, frames=2, drive=[(0.4, 0.3, 1.0), (0.3, 0.0, 0.0, 2.0)],
        simulation={"odometry": {"clock_offset": 0.0}},
    )  # fmt: skip
    assert [len(station.clouds["right"]) for station in sim.stations] == [2, 2, 2]
    assert sim.clouds is sim.stations[0].clouds
    np.testing.assert_array_equal(sim.stations[0].world_from_footprint, np.eye(4))
    np.testing.assert_allclose(sim.stations[1].odometry[-1], [0.4, 0.3, 1.0], atol=1e-6)
    leg = sim.stations[2].odometry[-1] - sim.stations[1].odometry[-1]
    np.testing.assert_allclose(leg, [0.6 * math.cos(1.0), 0.6 * math.sin(1.0), 0.0], atol=1e-9)
    off = np.linalg.norm(sim.stations[2].world_from_footprint[:2, 3] - sim.stations[2].odometry[-1, :2])
    assert 1e-4 < off < 0.1
    still = cal.simulate("two_lidar_amr", "empty_hall", "os0_32_sparse", seed=6, frames=1)
    np.testing.assert_array_equal(sim.clouds["left"][0], still.clouds["left"][0])
    with pytest.raises(InputError, match="has no 'base:'"):
        cal.simulate("two_lidar_manipulator", frames=1, drive=[(1.0, 0.0, 0.0)])
    for leg in ((1.0, 0.0), 1.0):
        with pytest.raises(InputError, match=r"drive\[0\]"):
            cal.simulate("two_lidar_amr", sensor="os0_32_sparse", frames=1, drive=[leg])
