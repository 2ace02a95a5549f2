"""The information of arm poses about the lidar extrinsics, by what the lidars would see of the model in them.

The gain of a pose is the reduction of the extrinsics' uncertainty together with the existing poses. The model's errors
are included, so that another view of the same surface from the same side has little gain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.mounts.rays import REACH, LidarRays, PosedSample
from stretch_sim_cal.calibration.mounts.result import MountSample, MountSettings, at_lidar
from stretch_sim_cal.calibration.mounts.system import (
    RobotUnknowns,
    model_variances,
    noise_weights,
    without_readings,
)
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.sensor.unit import directions

LOWEST, HIGHEST = np.deg2rad(-3.5), np.deg2rad(90.0)  # of a lidar's rays over its x-y plane
ELEVATIONS, AZIMUTHS = 64, 240
RAYS, FRAMES = 115_200, 5  # of one frame
GRAZING = 0.15


@dataclass(frozen=True)
class Chosen:
    """A pose by its name, and the standard deviation of the worst lidar, in units of its bound, with it (`spread`) and
    without it (`before`)."""

    name: str
    spread: float
    before: float


def pose_information(
    surfaces: Mapping[str, Surface], pose: MountSample, nominal: Mapping[str, np.ndarray],
    settings: MountSettings,
) -> np.ndarray:  # fmt: skip
    """Return the information (n, n) of `FRAMES` frames of the lidars in a pose."""
    unknowns = RobotUnknowns(surfaces, settings, nominal, 1)
    model = PosedSample(pose, surfaces, {}, 0)
    elevations = np.linspace(LOWEST, HIGHEST, ELEVATIONS)
    grid = np.meshgrid(elevations, np.arange(AZIMUTHS) * 2 * np.pi / AZIMUTHS)
    rays = LidarRays(directions(*(angles.ravel() for angles in grid)))  # fewer than a lidar's
    information = np.zeros((unknowns.size, unknowns.size))
    readings = np.arange(unknowns.first_reading, unknowns.size)
    information[readings, readings] = 1.0 / model_variances(unknowns, settings)[readings]
    for name, pose in nominal.items():
        hits = model.match(rays, pose, REACH, GRAZING)
        weights = noise_weights(hits, settings.range_noise) * (FRAMES * RAYS / len(rays))
        for chosen, columns, jacobian in unknowns.rows(name, model, hits):
            information[np.ix_(columns, columns)] += jacobian.T @ (weights[chosen, None] * jacobian)
    return without_readings(unknowns, information)


def worst_spread(information: np.ndarray, nominal: Mapping[str, np.ndarray], settings: MountSettings) -> float:
    """Return the largest standard deviation of any lidar along any axis, in units of the settings' bounds."""
    covariance = np.linalg.inv(information)
    bounds = np.array([settings.max_std_translation] * 3 + [settings.max_std_rotation] * 3)
    worst = []
    for index, pose in enumerate(nominal.values()):
        part = slice(6 * index, 6 * index + 6)
        about_lidar = at_lidar(covariance[part, part], pose)
        worst.append(float(np.sqrt(np.linalg.eigvalsh(about_lidar / np.outer(bounds, bounds))[-1])))
    return max(worst)


def best_next(
    information: np.ndarray, surfaces: Mapping[str, Surface], candidates: Sequence[MountSample],
    poses: Mapping[str, np.ndarray], settings: MountSettings,
) -> Chosen | None:  # fmt: skip
    """Return the candidate with the largest gain for a calibration with `information` (n, n)."""
    spreads = {
        pose.name: worst_spread(information + pose_information(surfaces, pose, poses, settings), poses, settings)
        for pose in candidates
    }
    if not spreads:
        return None
    best = min(spreads, key=spreads.__getitem__)
    return Chosen(best, spreads[best], worst_spread(information, poses, settings))
