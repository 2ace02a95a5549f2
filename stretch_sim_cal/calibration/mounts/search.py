"""The first, coarse part of finding the mounts: from a few starts, each to its nearest minimum, and the best of these.

Narrow parts make minima of their own: a ray that misses the arm by the error of the mount tells nothing of it. So the
search starts at several places around the nominal poses and asks of each end how many returns it explains.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.mounts.rays import PosedSample, thinned
from stretch_sim_cal.calibration.mounts.result import MountSettings, moved
from stretch_sim_cal.calibration.mounts.system import MOUNTS, tukey
from stretch_sim_cal.calibration.mounts.units import Units
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, from_rotation_translation, inverse

GATES = (0.14, 0.14, 0.11, 0.09, 0.07, 0.055, 0.045, 0.04, 0.035, 0.035)  # m, of the distance along the ray, by step
GRAZING = 0.25
POINTS = 8000  # of each lidar, over all samples
TUKEY = 3.0
START_ANGLE = np.deg2rad(1.8)
WEAK_POSITION, WEAK_ANGLE = 0.03, np.deg2rad(3.0)  # what one step may do in directions that are not determined

Poses = dict[str, np.ndarray]


@dataclass(frozen=True)
class Found:
    """The end of the search: the poses, the cost there (share of returns that are unexplained), and of all starts."""

    poses: Poses
    cost: float
    costs: list[float]


def search(
    samples: Sequence[PosedSample],
    nominal: Poses,
    alignment: Observations | None,
    settings: MountSettings,
    units: Units,
) -> Found:
    """Return the best of the minima from all starts."""
    clouds = {
        side: [
            units.corrected(side, thinned(sample.around(side, nominal[side]), POINTS // len(samples)))
            for sample in samples
        ]
        for side in SIDES
    }
    ends = [_descend(samples, clouds, start, alignment, settings) for start in _starts(nominal, alignment)]
    costs = [_cost(samples, clouds, end, settings) for end in ends]
    best = int(np.argmin(costs))
    return Found(ends[best], costs[best], costs)


def _starts(nominal: Poses, alignment: Observations | None) -> list[Poses]:
    """Return poses to start from: the nominal ones, aligned lidars as one body seen from either, and turned a little."""
    bodies = [nominal]
    if alignment is not None:
        from_right = nominal["right"] @ inverse(alignment.result)
        bodies = [{"left": left, "right": left @ alignment.result} for left in (nominal["left"], from_right)]
    starts = list(bodies)
    for axis in range(3):
        for sign in (-1.0, 1.0):
            turn = np.zeros(6)
            turn[3 + axis] = sign * START_ANGLE
            about = {
                side: adjoint(from_rotation_translation(np.eye(3), bodies[0][side][:3, 3])) @ turn for side in SIDES
            }
            # Aligned lidars turn as one body, about the left one.
            pivot = {side: side if alignment is None else "left" for side in SIDES}
            starts.append({side: moved(bodies[0][side], about[pivot[side]]) for side in SIDES})
    return starts


def _descend(
    samples: Sequence[PosedSample], clouds: Mapping[str, list[np.ndarray]], start: Poses, alignment: Observations | None,
    settings: MountSettings,
) -> Poses:  # fmt: skip
    poses = start
    for gate in GATES:
        information, gradient = np.zeros((MOUNTS, MOUNTS)), np.zeros(MOUNTS)
        for index, side in enumerate(SIDES):
            own = slice(6 * index, 6 * index + 6)
            found = [s.match(cloud, poses[side], gate, GRAZING) for s, cloud in zip(samples, clouds[side], strict=True)]
            hits, normals = (np.concatenate([getattr(m, name) for m in found]) for name in ("hits", "normals"))
            distances = np.concatenate([m.distances for m in found])
            if len(distances):
                scale = max(settings.range_noise / 2, 1.4826 * float(np.median(np.abs(distances))))
                weights = tukey(distances / scale, TUKEY) / scale**2
                jacobian = np.hstack([normals, np.cross(hits, normals)])
                information[own, own] += jacobian.T @ (weights[:, None] * jacobian)
                gradient[own] -= jacobian.T @ (weights * distances)
            weak = np.diag([WEAK_POSITION**-2] * 3 + [WEAK_ANGLE**-2] * 3)
            about = adjoint(from_rotation_translation(np.eye(3), -poses[side][:3, 3]))
            information[own, own] += about.T @ weak @ about
        if alignment is not None:
            own_information, own_gradient = alignment.of_poses(poses["left"], poses["right"])
            information, gradient = information + own_information, gradient + own_gradient
        step = np.linalg.solve(information, gradient)
        poses = {side: moved(poses[side], step[6 * i : 6 * i + 6]) for i, side in enumerate(SIDES)}
    return poses


def _cost(
    samples: Sequence[PosedSample], clouds: Mapping[str, list[np.ndarray]], poses: Poses, settings: MountSettings
) -> float:
    """Return the mean over all returns of the squared residual in units of 3 sigma, 1 for what is not explained."""
    limit = 3.0 * settings.range_noise
    explained, count = 0.0, 0
    for side in SIDES:
        for sample, cloud in zip(samples, clouds[side], strict=True):
            along = sample.match(cloud, poses[side], limit, 0.05).along
            explained += float((1.0 - (along / limit) ** 2).sum())
            count += len(cloud)
    return 1.0 - explained / max(count, 1)
