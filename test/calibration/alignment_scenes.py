"""Scenes for the alignment's tests: the sparse lidar (a sixth of the returns, quick) on the embedded simulator."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from comparing import chi_square, drawn_twist, right_to_left
from stage import LIMIT

from stretch_sim_cal.calibration.methods import alignment_method
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.geometry.transforms import SIDES, error, exp, from_xyz_rpy
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit import CENTRE_SHARE, FIRING_SHARE
from stretch_sim_cal.sensor.unit_file import Unit
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.lidar import Lidar
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup

REAL = load_sensor("jt128_sparse_real")
FRAMES, SEED = 8, 4  # of a real scene
FEW_RAYS = "os0_32_sparse"  # with a fifth of the returns, for what does not depend on how exact a result is
REAL_ERRORS = (
    PoseError((0.002, -0.001, 0.003), tuple(np.radians([0.4, -0.3, 0.5]))),
    PoseError((-0.003, 0.002, 0.001), tuple(np.radians([-0.5, 0.6, -0.2]))),
)
FOUR_SIGMA = LIMIT


def further_long(first, *others):
    """Return the values of a test: the first one for `make test`, the others for `make test-long`."""
    return [first, *(pytest.param(value, marks=pytest.mark.long) for value in others)]


class SimulatedScene:
    """A world with the robot in it, its mounts off by up to 5 mm and 1 deg, and what is true of it."""

    def __init__(self, world: str, seed: int = 1, sensor: str = "jt128_sparse", errors=None):
        rng = np.random.default_rng(seed)
        drawn = [PoseError(tuple(rng.uniform(-0.003, 0.003, 3)), tuple(rng.uniform(-0.01, 0.01, 3))) for _ in range(2)]
        left_error, right_error = errors or drawn
        self.simulator = EmbeddedSimulator(
            SimulationSetup(world, sensor, seed, lidar_errors={"left": left_error, "right": right_error})
        )
        self.truth, self.initial = (right_to_left(self.simulator, nominal) for nominal in (False, True))
        self.base_from_left = self.simulator.base_from_lidar("left", nominal=True)
        self.settings = AlignmentSettings(base_from_left=self.base_from_left, sensor=self.simulator.sensor)

    def frame(self, tick: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the points (N, 3) of the left and of the right scan of a tick."""
        return tuple(xyz(self.simulator.scan(side, tick)) for side in SIDES)

    def place(self, x: float, y: float, yaw: float = 0.0) -> None:
        """Put the robot elsewhere in the world (m, rad)."""
        self.simulator.move_base(from_xyz_rpy((x, y, 0.0), (0.0, 0.0, yaw)))


class RealScene(SimulatedScene):
    """Clouds of a furnished room, `left` and `right`, by real lidars, whose intrinsics are drawn, or given: `units` are
    the parameters (n,) of both, behind the sensor's driver."""

    def __init__(self, units: Sequence[np.ndarray] = ()):
        super().__init__("furnished_room", SEED, REAL.name, REAL_ERRORS)
        for side, values in zip(SIDES, units, strict=False):
            values = values.copy()
            values[[CENTRE_SHARE, FIRING_SHARE]] = REAL.uncorrected_shares
            self.simulator._lidars[side] = Lidar(replace(REAL, unit=Unit(values)), side, SEED)
        self.left, self.right = ([self.simulator.scan(side, tick) for tick in range(FRAMES)] for side in SIDES)

    def align(self, **changes) -> AlignmentResult:
        """Return the alignment of these clouds, or with other `left`, `right`, `initial`, `base_from_left` or
        `sensor`."""
        given = vars(self) | {"sensor": REAL} | changes
        settings = AlignmentSettings(base_from_left=given["base_from_left"], sensor=given["sensor"])
        return align(zip(given["left"], given["right"], strict=True), given["initial"], settings)


@cache
def drawn_scene() -> RealScene:
    """Return the scene of lidars that are drawn from the sensor file; tests must not change it."""
    return RealScene()


@cache
def room_of(sensor: str = "jt128_sparse") -> tuple[SimulatedScene, list[tuple[np.ndarray, np.ndarray]]]:
    """Return a furnished room and twelve frames; made once for all tests, which must not change them."""
    scene = SimulatedScene("furnished_room", sensor=sensor)
    return scene, [scene.frame(tick) for tick in range(12)]


def align(frames, initial, settings, method: str = "planes") -> AlignmentResult:
    alignment = alignment_method(method)(initial, settings)
    for left, right in frames:
        alignment.add(left, right)
    return alignment.solve()


def errors(truth: np.ndarray, result: AlignmentResult) -> tuple[float, float]:
    """Return the errors of a result in mm and deg."""
    distance, angle = error(truth, result.right_to_left)
    return 1000.0 * distance, float(np.rad2deg(angle))


def assert_aligned(scene: SimulatedScene, result: AlignmentResult, millimetres: float, degrees: float = np.inf) -> None:
    assert result.accepted, result.refusals
    distance, angle = errors(scene.truth, result)
    assert distance < millimetres and angle < degrees


def normalised_error(truth: np.ndarray, result: AlignmentResult) -> float:
    """Return the squared error over the covariance: 6 on average if that is right."""
    return chi_square(truth, result.right_to_left, result.covariance)


def off_by(degrees: float, metres: float, seed: int = 0) -> np.ndarray:
    """Return a transform (4, 4) by so much in a random direction."""
    return exp(drawn_twist(np.random.default_rng(seed), metres, np.deg2rad(degrees)))
