"""Simulated clouds with their truth, and how far a calibration is from it: for tests of one's own, without ROS.

import stretch_sim_cal as cal

sim = cal.simulate(world="furnished_room", sensor="jt128_sparse", seed=7)
result = cal.calibrate(sim.rig, sim.clouds)
print(result.errors(sim.truth))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.api import Rig
from stretch_sim_cal.calibration.wheel_odometry import Sweep
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import UP
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.recording.stations import Scan, sweeps_between
from stretch_sim_cal.sensor.points import returns_of
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup
from stretch_sim_cal.truth import Truth
from stretch_sim_cal.validate import numbers

FRAMES = 20
ODOMETRY_PERIOD = 0.05  # s
MOUNT_ERRORS = (0.005, float(np.radians(0.5)))  # m, rad


@dataclass(frozen=True, eq=False)
class Station:
    """A station of a robot that drives: `clouds` as of `Simulated`, the `odometry` (K, 3) reported on the way
    there and last at its end, x, y (m) and yaw (rad) since the start, and the truth, `world_from_footprint` (4, 4).
    With a `sweep` it is on the move, and the base moves along it by odometry."""

    clouds: dict[str, list[np.ndarray]]
    odometry: np.ndarray
    world_from_footprint: np.ndarray
    sweep: Sweep | None = None


@dataclass(frozen=True, eq=False)
class Simulated:
    """What a robot's lidars saw: `clouds` by lidar, one structured array (N,) with x, y, z, intensity and ring per
    scan, the `rig` as the description has it, and the `truth`. `simulator` has all else; its joints move the robot.
    If it drove, `stations` are where it stood, and `clouds` those of the first."""

    rig: Rig
    clouds: dict[str, list[np.ndarray]]
    truth: Truth
    simulator: EmbeddedSimulator
    stations: list[Station] = field(default_factory=list)


def simulate(
    robot: str | Path | None = None, world: str | Path = "furnished_room", sensor: str | Path | None = None,
    seed: int = 1, *, frames: int = FRAMES, mount_errors: tuple[float, float] | None = MOUNT_ERRORS,
    simulation: Mapping[str, Any] | None = None, drive: Sequence[Sequence[float]] = (), continuous: bool = False,
) -> Simulated:  # fmt: skip
    """Return what the lidars of a simulated robot see.

    `robot` is a profile in `config/robots/` or a path, the Stretch if there is none; `world` and `sensor` are names in
    `worlds/` and `config/`, or paths ("LEFT,RIGHT" for lidars of different kinds). All that is random, noise, the
    lidars' own errors and the directions of `mount_errors` (m, rad; None for none), is that of the `seed`. `simulation`
    are further keys of a scenario's `simulation:` (docs/scenarios.md); errors of lidars that it names are as it says.
    With `drive` the robot stands, drives, stands and so on, and takes `frames` scans wherever it stands: an element of
    three numbers is where it drives to, x, y (m) and yaw (rad) by its odometry, one of four a leg, velocities along x
    and y (m/s) and about z (rad/s) and for how many s. If it is `continuous`, scans on the move are stations as well.
    Raises `InputError` for anything that cannot be simulated.
    """
    if not isinstance(frames, int) or frames < 1:
        raise InputError(f"simulate: frames: is {frames}; expected a whole number, at least 1")
    if mount_errors is not None:
        mount_errors = numbers(mount_errors, 2, "simulate: mount_errors", 0.0)
    named = {"robot": robot, "world": world, "sensor": sensor}
    data = {key: str(name) for key, name in named.items() if name is not None} | {"seed": seed} | dict(simulation or {})
    setup = SimulationSetup.from_mapping(data, source="simulate")
    if mount_errors is not None:
        setup = _with_mount_errors(setup, mount_errors)
    simulator = EmbeddedSimulator(setup)
    names, kinds = list(simulator.profile.lidars), tuple(simulator.sensors.values())
    own = kinds if len(set(map(id, kinds))) > 1 else kinds[0]
    rig = Rig.from_urdf(simulator.nominal_description, own, robot=data.get("robot"))
    stations = stations_of(simulator, names, frames, drive, continuous) if len(drive) else []
    clouds = stations[0].clouds if stations else _clouds(simulator, names, range(frames))
    true = {name: simulator.base_from_lidar(name) for name in names}
    first = names[0]
    floor = simulator.floor_in_base.moved(simulator.base_from_lidar(first, nominal=True) @ inverse(true[first]))
    over_floor = {name: simulator.floor_from_lidar(name) for name in names}
    return Simulated(rig, clouds, Truth(true, floor.facing(UP), over_floor), simulator, stations)


def _clouds(simulator: EmbeddedSimulator, names: Sequence[str], ticks: range) -> dict[str, list[np.ndarray]]:
    return {name: [returns_of(simulator.scan(name, tick)) for tick in ticks] for name in names}


def stations_of(
    simulator: EmbeddedSimulator, names: Sequence[str], frames: int, drive: Sequence[Sequence[float]],
    continuous: bool = False,
) -> list[Station]:  # fmt: skip
    """Return where a robot stands before, between and after what it drives, as of `simulate`, with the scans of the
    lidars `names`, so many `frames` at each, and if it is `continuous` those of `sweeps_between`. Raises `InputError`
    for a robot that does not drive, or no such drive."""
    driving = simulator.driving
    if driving is None:
        raise InputError(f"simulate: drive: {simulator.profile.source} has no 'base:', so it does not drive")
    given = [list(each) if np.iterable(each) else [each] for each in drive]
    wanted = [numbers(each, 4 if len(each) == 4 else 3, f"simulate: drive[{n}]") for n, each in enumerate(given)]
    stations = next_stations(simulator, names, frames, [])
    for leg in wanted:
        legs = [leg] if len(leg) == 4 else driving.legs_to(*leg)
        stations += next_stations(simulator, names, frames, legs, continuous)
    return stations


def next_stations(
    simulator: EmbeddedSimulator, names: Sequence[str], frames: int, legs: Sequence[Sequence[float]],
    continuous: bool = False,
) -> list[Station]:  # fmt: skip
    """Drive legs as of `simulate`, and return where the robot then stands, and before that its stations on the move."""
    driving, left, first = simulator.driving, simulator.driving.now, 0
    driving.follow(legs)
    while any(simulator.start_time(name, first) < driving.now for name in names):
        first += 1
    end = max(simulator.start_time(name, first + frames) for name in names)
    driving.step(end - driving.now)
    clouds = _clouds(simulator, names, range(first, first + frames))
    times = np.linspace(left, end, 2 + int((end - left) / ODOMETRY_PERIOD))
    said = np.array([driving.odometry(time)[0] for time in times])
    moving = _on_the_move(simulator, names, times, said) if continuous else []
    way = said[times > moving[-1].sweep.time] if moving else said
    return [*moving, Station(clouds, way, driving.poses(np.array([end]))[0])]


def _on_the_move(
    simulator: EmbeddedSimulator, names: Sequence[str], times: np.ndarray, said: np.ndarray
) -> list[Station]:
    """Return the stations on a way whose odometry was `said` (K, 3) at `times` (K,) in s."""
    scans = {
        name: [
            Scan(begin, begin + simulator.period, tick)
            for tick in range(round(times[-1] / simulator.period) + 1)
            if times[0] < (begin := simulator.start_time(name, tick)) < times[-1] - simulator.period
        ] for name in names
    }  # fmt: skip
    stations, left = [], times[0]
    poses = np.column_stack([said[:, :2], np.unwrap(said[:, 2])])
    for sweep, together in sweeps_between(times, poses, scans):
        clouds = {name: [returns_of(simulator.scan(name, scan.held))] for name, scan in together.items()}
        here = [np.interp(sweep.time, times, column) for column in poses.T]
        way = np.vstack([poses[(times >= left) & (times < sweep.time)], here])
        stations.append(Station(clouds, way, simulator.driving.poses(np.array([sweep.time]))[0], sweep))
        left = sweep.time
    return stations


def _with_mount_errors(setup: SimulationSetup, size: tuple[float, float]) -> SimulationSetup:
    """Return a setup whose mounts, but those with given errors, are off by so much (m, rad) in random directions."""
    random = np.random.default_rng([setup.seed, 1])
    drawn = {name: PoseError.drawn(random, *size) for name in setup.profile.lidars}
    return replace(setup, lidar_errors=drawn | dict(setup.lidar_errors))
