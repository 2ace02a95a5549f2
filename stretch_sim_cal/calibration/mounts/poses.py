"""Which arm poses tell most of the mounts: what the lidars would see of the model in them, before anything is moved.

A pose's worth is how much it shrinks the mounts' uncertainty together with the poses there are, the model's own
uncertainty included: a tenth look at the same surface from the same side says little about a link that may be off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stretch_sim_cal.calibration.mounts.rays import REACH, LidarRays, PosedSample
from stretch_sim_cal.calibration.mounts.result import MountSample, MountSettings, at_lidar
from stretch_sim_cal.calibration.mounts.system import (
    RobotUnknowns,
    model_variances,
    mount_covariances,
    noise_weights,
    without_readings,
)
from stretch_sim_cal.robot.surfaces import Surface

LOWEST, HIGHEST = np.deg2rad(-3.5), np.deg2rad(90.0)  # of a lidar's rays over its x-y plane
ELEVATIONS, AZIMUTHS = 64, 240
RAYS = 115_200  # of one frame
GRAZING = 0.15


@dataclass(frozen=True)
class Chosen:
    """A pose of a sweep: its name, and the `spread` of the worst lidar, in units of what is allowed, with it and all
    before it; `before`, without it, 0 if nothing was known then."""

    name: str
    spread: float
    before: float = 0.0


def pose_information(
    surfaces: Mapping[str, Surface], pose: MountSample, nominal: Mapping[str, np.ndarray],
    settings: MountSettings, frames: int = 5,
) -> np.ndarray:  # fmt: skip
    """Return the information (n, n) that `frames` frames of the lidars in a pose would
    give; its clouds are not used."""
    unknowns = RobotUnknowns(surfaces, settings, nominal, 1)
    model = PosedSample(pose, surfaces, {}, 0)
    directions = _directions()
    information = np.zeros((unknowns.size, unknowns.size))
    readings = np.arange(unknowns.first_reading, unknowns.size)
    information[readings, readings] = 1.0 / model_variances(unknowns, settings)[readings]
    for name, pose in nominal.items():
        hits = model.match(LidarRays(directions), pose, REACH, GRAZING)
        weights = noise_weights(hits, settings.range_noise) * (frames * RAYS / len(directions))
        for chosen, columns, jacobian in unknowns.rows(name, model, hits):
            information[np.ix_(columns, columns)] += jacobian.T @ (weights[chosen, None] * jacobian)
    return without_readings(unknowns, information)


def prior_information(
    surfaces: Mapping[str, Surface], nominal: Mapping[str, np.ndarray], settings: MountSettings
) -> np.ndarray:
    """Return the information (n, n) that there is before any pose."""
    unknowns = RobotUnknowns(surfaces, settings, nominal)
    precisions = 1.0 / model_variances(unknowns, settings)[unknowns.first_link :]
    information = np.diag(np.concatenate([np.zeros(unknowns.first_link), precisions]))
    for name, covariance in zip(nominal, mount_covariances(nominal, settings), strict=True):
        own = unknowns.of_lidar(name)
        information[own, own] = np.linalg.inv(covariance)
    return information


def choose_poses(
    start: np.ndarray, candidates: Mapping[str, np.ndarray], nominal: Mapping[str, np.ndarray], settings: MountSettings,
    count: int,
) -> list[Chosen]:  # fmt: skip
    """Return up to `count` of the candidates (information by name), each the best beside those before it.

    `start` (n, n) is what is known without them: `prior_information`, or that of a calibration that was done.
    """
    information, chosen, left = start.copy(), [], dict(candidates)
    while left and len(chosen) < count:
        spreads = {name: worst_spread(information + own, nominal, settings) for name, own in left.items()}
        best = min(spreads, key=spreads.__getitem__)
        information += left.pop(best)
        chosen.append(Chosen(best, spreads[best]))
    return chosen


def worst_spread(information: np.ndarray, nominal: Mapping[str, np.ndarray], settings: MountSettings) -> float:
    """Return the largest standard deviation of any lidar along any axis, in units of the settings' bounds."""
    covariance = np.linalg.inv(information)
    bounds = np.array([settings.max_std_translation] * 3 + [settings.max_std_rotation] * 3)
    worst = []
    for index, pose in enumerate(nominal.values()):
        own = at_lidar(covariance[6 * index : 6 * index + 6, 6 * index : 6 * index + 6], pose)
        worst.append(float(np.sqrt(np.linalg.eigvalsh(own / np.outer(bounds, bounds))[-1])))
    return max(worst)


def _directions() -> np.ndarray:
    """Return unit directions (N, 3) of a lidar's rays in its frame, fewer than it has."""
    elevations = np.linspace(LOWEST, HIGHEST, ELEVATIONS)
    azimuths = np.arange(AZIMUTHS) * 2 * np.pi / AZIMUTHS
    elevation, azimuth = (grid.ravel() for grid in np.meshgrid(elevations, azimuths))
    cosine = np.cos(elevation)
    return np.column_stack([cosine * np.cos(azimuth), cosine * np.sin(azimuth), np.sin(elevation)])


def best_next(
    information: np.ndarray, surfaces: Mapping[str, Surface], candidates: Sequence[MountSample],
    poses: Mapping[str, np.ndarray], settings: MountSettings,
) -> Chosen | None:  # fmt: skip
    """Return the candidate that would help a finished calibration, with `information` (n, n), most."""
    own = {pose.name: pose_information(surfaces, pose, poses, settings) for pose in candidates}
    found = choose_poses(information, own, poses, settings, 1)
    return replace(found[0], before=worst_spread(information, poses, settings)) if found else None
