"""Scenes for the alignment's tests: the sparse lidar (a sixth of the returns, quick) on the embedded simulator."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.methods import alignment_method
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.geometry.transforms import error, exp, from_xyz_rpy, inverse, log
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup

RECORDED = Path(__file__).parent / "data" / "gazebo_furnished_room.npz"


class SimulatedScene:
    """A world with the robot in it, its mounts off by up to 5 mm and 1 deg, and what is true of it."""

    def __init__(self, world: str, seed: int = 1, sensor: str = "jt128_sparse"):
        rng = np.random.default_rng(seed)
        errors = [PoseError(tuple(rng.uniform(-0.003, 0.003, 3)), tuple(rng.uniform(-0.01, 0.01, 3))) for _ in range(2)]
        setup = SimulationSetup(
            world=world, sensor=sensor, seed=seed, lidar_left_error=errors[0], lidar_right_error=errors[1]
        )
        self.simulator = EmbeddedSimulator(setup)
        left, right = (self.simulator.base_from_lidar(side) for side in ("left", "right"))
        nominal_left, nominal_right = (self.simulator.base_from_lidar(side, nominal=True) for side in ("left", "right"))
        self.truth = inverse(left) @ right
        self.initial = inverse(nominal_left) @ nominal_right
        self.settings = AlignmentSettings(base_from_left=nominal_left, sensor=self.simulator.sensor)

    def frame(self, tick: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the points (N, 3) of the left and of the right scan of a tick."""
        return xyz(self.simulator.scan("left", tick)), xyz(self.simulator.scan("right", tick))

    def place(self, x: float, y: float, yaw: float = 0.0) -> None:
        """Put the robot elsewhere in the world (m, rad)."""
        self.simulator.move_base(from_xyz_rpy((x, y, 0.0), (0.0, 0.0, yaw)))


@lru_cache(maxsize=8)
def frames_of(world: str, count: int) -> tuple[SimulatedScene, list[tuple[np.ndarray, np.ndarray]]]:
    """Return a scene and its first frames; made once for all tests, which must not change them."""
    scene = SimulatedScene(world)
    return scene, [scene.frame(tick) for tick in range(count)]


def align(frames, initial, settings, method: str = "planes") -> AlignmentResult:
    """Return what a method makes of frames."""
    alignment = alignment_method(method)(initial, settings)
    for left, right in frames:
        alignment.add(left, right)
    return alignment.solve()


def errors(truth: np.ndarray, result: AlignmentResult) -> tuple[float, float]:
    """Return the errors of a result in mm and deg."""
    distance, angle = error(truth, result.right_to_left)
    return 1000.0 * distance, float(np.rad2deg(angle))


def normalised_error(truth: np.ndarray, result: AlignmentResult) -> float:
    """Return the error squared over the covariance: 6 on average if that is right."""
    twist = log(truth @ inverse(result.right_to_left))
    return float(twist @ np.linalg.solve(result.covariance, twist))


def off_by(degrees: float, metres: float, seed: int = 0) -> np.ndarray:
    """Return a transform (4, 4) by so much in a random direction."""
    rng = np.random.default_rng(seed)
    translation, rotation = rng.normal(size=(2, 3))
    return exp(
        np.concatenate(
            [
                metres * translation / np.linalg.norm(translation),
                np.deg2rad(degrees) * rotation / np.linalg.norm(rotation),
            ]
        )
    )


@lru_cache(maxsize=1)
def gazebo_recording() -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray, np.ndarray]:
    """Return four frames of Gazebo's CPU lidar (1 cm noise), the true right_to_left and base_from_left.

    The file holds ranges in units of 0.1 mm, by channel and azimuth.
    """
    with np.load(RECORDED) as recorded:
        ranges = [recorded["left_ranges"], recorded["right_ranges"]]
        base_from_left, base_from_right = recorded["base_link_from_lidar_left"], recorded["base_link_from_lidar_right"]
    elevations = np.deg2rad(np.linspace(-3.5, 90.0, ranges[0].shape[1]))[:, None]
    azimuths = np.linspace(-np.pi, np.pi, ranges[0].shape[2], endpoint=False)
    directions = np.stack(
        np.broadcast_arrays(
            np.cos(elevations) * np.cos(azimuths), np.cos(elevations) * np.sin(azimuths), np.sin(elevations)
        ), axis=-1,
    )  # fmt: skip
    frames = [
        tuple((1e-4 * side[number][..., None] * directions).reshape(-1, 3).astype(np.float32) for side in ranges)
        for number in range(len(ranges[0]))
    ]
    return frames, inverse(base_from_left) @ base_from_right, base_from_left
