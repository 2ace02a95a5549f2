"""Scenes for the floor's tests: the simulated robot in a world, with things put around it, seen by a sparse lidar."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from alignment_scenes import FEW_RAYS
from comparing import right_to_left
from floor import known_and_true
from floor_shapes import height_field

from stretch_sim_cal.calibration.floor.support_method import SupportFloor
from stretch_sim_cal.calibration.results import FloorResult
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.geometry.planes import floor_between
from stretch_sim_cal.geometry.transforms import exp, from_xyz_rpy
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import BaseError, PoseError, SimulationSetup

Pair = tuple[np.ndarray, np.ndarray]


def box(size, centre, yaw: float = 0.0) -> Surface:
    return Surface(*solids.box(np.asarray(size, dtype=float))).moved(from_xyz_rpy(centre, [0, 0, yaw]))


def shaped(height: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Surface:
    """A floor whose height is a function of x and y."""
    return height_field(height, np.linspace(-5.0, 5.0, 101))


def solve(method: SupportFloor, pairs: Iterable[Pair]) -> FloorResult:
    for left, right in pairs:
        method.add(left, right)
    return method.solve()


@dataclass
class Scene:
    """The robot in a world. `stands_on` is the height of the floor under it, `mount` scales the lidars' mount
    errors."""

    world: str = "empty_hall"
    seed: int = 1
    sensor: str = FEW_RAYS
    stands_on: float = 0.0
    base_height: float | None = None
    mount: float = 1.0
    things: list[Surface] = field(default_factory=list)
    without: tuple[str, ...] = ()
    sensor_changes: dict = field(default_factory=dict)

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        left, right = (
            PoseError(*(tuple(self.mount * rng.uniform(-most, most, 3)) for most in (0.005, np.radians(1.0))))
            for _ in range(2)
        )
        height, tilt = rng.uniform(-0.005, 0.005), np.radians(rng.uniform(-1.5, 1.5, 2))
        setup = SimulationSetup(
            world=self.world, sensor=self.sensor, seed=self.seed, lidar_errors={"left": left, "right": right},
            base_error=BaseError(height if self.base_height is None else self.base_height, *tilt),
        )  # fmt: skip
        self.simulator = EmbeddedSimulator(setup, replace(load_sensor(self.sensor), **self.sensor_changes))
        for name in list(self.simulator.world.surfaces):
            if any(part in name for part in self.without):
                del self.simulator.world.surfaces[name]
        for index, thing in enumerate(self.things):
            self.simulator.add_surface(f"thing_{index}", thing)
        self.simulator.move_base(from_xyz_rpy([0, 0, self.stands_on]))
        self.base_from_left = self.simulator.base_from_lidar("left", nominal=True)
        self.right_to_left = right_to_left(self.simulator)
        self.footprint_from_base, self.truth = known_and_true(self.simulator)

    def pairs(self, count: int) -> Iterator[Pair]:
        return self.simulator.point_pairs(count)

    def while_moving(self, pose: np.ndarray, count: int = 6) -> Iterator[Pair]:
        """Yield pairs; the robot moves to a pose before the last third."""
        for frame in range(count):
            self.simulator.move_base(pose if frame >= 2 * count // 3 else np.eye(4))
            yield next(self.simulator.point_pairs(1, frame))

    def method(self, settings: FloorSettings | None = None, alignment_error=None) -> SupportFloor:
        right_to_left = self.right_to_left if alignment_error is None else exp(alignment_error) @ self.right_to_left
        settings = settings or FloorSettings()
        settings = replace(settings, sensor=settings.sensor or self.simulator.sensor)
        return SupportFloor(self.base_from_left, right_to_left, self.footprint_from_base, settings)

    def solve(self, frames: int = 5, settings: FloorSettings | None = None, alignment_error=None) -> FloorResult:
        return solve(self.method(settings, alignment_error), self.pairs(frames))

    def error(self, result: FloorResult) -> np.ndarray:
        """True minus estimated (height, tilt about x, tilt about y), m and rad."""
        return floor_between(result.plane, self.truth)

    def chi_square(self, result: FloorResult) -> float:
        """The squared error over the covariance: 3 on average if that is right."""
        error = self.error(result)
        return float(error @ np.linalg.solve(result.covariance, error))

    def assert_found(self, result: FloorResult, millimetres: float, degrees: float) -> None:
        error = self.error(result)
        assert result.accepted, result.refusals
        assert abs(error[0]) * 1e3 < millimetres
        assert np.degrees(np.linalg.norm(error[1:])) < degrees


@cache
def scene_of(world: str = "empty_hall", seed: int = 1, sensor: str = FEW_RAYS) -> Scene:
    """Return a scene that is made once; tests must not change it."""
    return Scene(world, seed, sensor)


@cache
def solved(world: str = "empty_hall", seed: int = 1, sensor: str = FEW_RAYS, frames: int = 5) -> FloorResult:
    """Return what the first frames of `scene_of` give, solved once."""
    return scene_of(world, seed, sensor).solve(frames)
