"""A furnished room seen by the sparse lidar with realistic errors; units with chosen errors are put in its place."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.stats import chi2, norm

from stretch_sim_cal.calibration.alignment.planes import PlaneAlignment
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.geometry.transforms import SIDES, inverse, log
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit import CENTRE_SHARE, FIRING_SHARE
from stretch_sim_cal.sensor.unit_file import Unit
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.lidar import Lidar
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup

SENSOR = load_sensor("jt128_sparse_real")
MODEL = SENSOR.error_model()
SEED = 4
FRAMES = 8
# As improbable for the squared, normalised error of a pose as 4 sigma are for a number.
FOUR_SIGMA = float(chi2.isf(2.0 * norm.sf(4.0), 6))


class Scene:
    """The clouds of both lidars, `left` and `right`, and what is true of them."""

    def __init__(self, simulator: EmbeddedSimulator):
        left, right = (simulator.base_from_lidar(side) for side in SIDES)
        nominal_left, nominal_right = (simulator.base_from_lidar(side, nominal=True) for side in SIDES)
        self.truth, self.initial = inverse(left) @ right, inverse(nominal_left) @ nominal_right
        self.base_from_left = nominal_left
        self.units = tuple(simulator.lidar(side).unit.values for side in SIDES)
        self.left, self.right = ([simulator.scan(side, tick) for tick in range(FRAMES)] for side in SIDES)

    def align(self, **changes) -> AlignmentResult:
        """Return the alignment of these clouds, or with other `left`, `right`, `initial`, `base_from_left` or
        `sensor`."""
        given = {
            name: changes.get(name, getattr(self, name)) for name in ("left", "right", "initial", "base_from_left")
        }
        settings = AlignmentSettings(base_from_left=given["base_from_left"], sensor=changes.get("sensor", SENSOR))
        alignment = PlaneAlignment(given["initial"], settings)
        for pair in zip(given["left"], given["right"], strict=True):
            alignment.add(*pair)
        return alignment.solve()


@lru_cache(maxsize=1)
def _simulator() -> EmbeddedSimulator:
    errors = (
        PoseError((0.002, -0.001, 0.003), tuple(np.radians([0.4, -0.3, 0.5]))),
        PoseError((-0.003, 0.002, 0.001), tuple(np.radians([-0.5, 0.6, -0.2]))),
    )
    return EmbeddedSimulator(
        SimulationSetup("furnished_room", SENSOR.name, SEED, lidar_left_error=errors[0], lidar_right_error=errors[1])
    )


@lru_cache(maxsize=1)
def drawn_scene() -> Scene:
    """Return the scene as units see it that are drawn from the sensor file; tests must not change it."""
    return Scene(_simulator())


def scene_of(left: np.ndarray, right: np.ndarray) -> Scene:
    """Return the scene as units with these parameters (n,) see it, behind the sensor's driver."""
    simulator = _simulator()
    drawn = dict(simulator._lidars)
    for side, values in zip(SIDES, (left, right), strict=True):
        values = values.copy()
        values[[CENTRE_SHARE, FIRING_SHARE]] = SENSOR.uncorrected_shares
        simulator._lidars[side] = Lidar(replace(SENSOR, unit=Unit(values)), side, SEED)
    try:
        return Scene(simulator)
    finally:
        simulator._lidars.update(drawn)


def normalised(truth: np.ndarray, estimate: np.ndarray, covariance: np.ndarray) -> float:
    """Return the squared error of a transform (4, 4) over its covariance (6, 6): 6 on average if that is right."""
    twist = log(truth @ inverse(estimate))
    return float(twist @ np.linalg.solve(covariance, twist))
