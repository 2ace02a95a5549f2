"""A simulated robot with three lidars, for the tests of arrays of lidars."""

import dataclasses
import itertools
from functools import lru_cache

import numpy as np

import stretch_sim_cal as cal
from stretch_sim_cal.geometry.transforms import inverse, log
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

ROBOT, NAMES = "three_lidar_amr", ("left", "right", "mast")
FRAMES = 4
# Bearings (rad, in each lidar's own frame) and half widths of views: of two that look opposite ways, each past what the
# other sees; and of two that see too little in common with anything.
APART = {"left": (np.pi / 4, 1.55), "mast": (-np.pi / 2, 1.55)}
NARROW = {"left": (np.pi / 4, 0.5), "mast": (-np.pi / 2, 0.5)}


def with_unit_errors():
    """Return the sparse 32-channel lidar with units that differ as those of the JT128 do."""
    return dataclasses.replace(load_sensor("os0_32_sparse"), spread=load_sensor("jt128").spread, unsaid=None)


class ArrayScene:
    """Clouds of a robot with three lidars, its mounts off by up to 3 mm and 0.5 deg, and what is true of it."""

    def __init__(self, seed: int = 1, units: bool = False, sensor: str = "os0_32_sparse", frames: int = FRAMES):
        rng = np.random.default_rng(seed)

        def error():
            return {"xyz": rng.uniform(-0.003, 0.003, 3).tolist(), "rpy_deg": rng.uniform(-0.5, 0.5, 3).tolist()}

        setup = {"robot": ROBOT, "world": "furnished_room", "sensor": "os0_32_sparse", "seed": seed}
        setup |= {"lidar_left_error": error(), "lidar_right_error": error(), "lidar_errors": {"mast": error()}}
        self.sensor = with_unit_errors() if units else load_sensor(sensor)
        self.simulator = EmbeddedSimulator(SimulationSetup.from_mapping(setup), self.sensor)
        self.clouds = {name: [self.simulator.scan(name, tick) for tick in range(frames)] for name in NAMES}
        self.rig = cal.Rig.from_urdf(self.simulator.nominal_description, sensor=self.sensor, robot=ROBOT)

    def seen(self, views: dict[str, tuple[float, float]]) -> dict[str, list[np.ndarray]]:
        """Return the clouds, those of some lidars cut down to a bearing and a half width (rad)."""
        found = dict(self.clouds)
        for name, (bearing, width) in views.items():
            found[name] = [cloud[np.abs(_turn(np.arctan2(cloud["y"], cloud["x"]) - bearing)) < width]
                           for cloud in self.clouds[name]]  # fmt: skip
        return found

    def truth(self, target: str, source: str) -> np.ndarray:
        """Return the true transform (4, 4) from one lidar's frame into another's."""
        target_pose, source_pose = (self.simulator.base_from_lidar(name) for name in (target, source))
        return inverse(target_pose) @ source_pose

    def normalised_errors(self, result: cal.Result) -> dict[tuple[str, str], float]:
        """Return by pair the error squared over the covariance, over its six values: 1 on average if that is right."""
        return {pair: normalised(self.truth(*pair), result.transform(*pair), result.covariance_of(*pair))
                for pair in itertools.combinations(NAMES, 2)}  # fmt: skip

    def true_floor(self):
        """Return the floor, seen through a left lidar that is taken to be where the description has it."""
        left, nominal = (self.simulator.base_from_lidar("left", nominal=nominal) for nominal in (False, True))
        return self.simulator.floor_in_base.moved(nominal @ inverse(left)).facing(np.array([0.0, 0.0, 1.0]))


def normalised(truth: np.ndarray, found: np.ndarray, covariance: np.ndarray) -> float:
    twist = log(truth @ inverse(found))
    return float(twist @ np.linalg.solve(covariance, twist)) / 6


def _turn(angle: np.ndarray) -> np.ndarray:
    return np.angle(np.exp(1j * angle))


@lru_cache(maxsize=2)
def array_scene(seed: int = 1, units: bool = False) -> ArrayScene:
    """Return a scene; made once for all tests, which must not change it."""
    return ArrayScene(seed, units)
