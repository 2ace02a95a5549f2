"""Where the lidars see the robot: the rigid motion that brings the model's surfaces onto the returns from them.

Clouds are expressed in the frame in which the left lidar sits where its description says. If its mount is off, the
robot's own body is seen moved by as much, and so is everything that is later held against the body shape. The motion
is found by point-to-plane registration of the returns in all poses together, with a robust weight.
Assumes that most returns near the model come from it, and joint values that are right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.body.view import RobotView, nearest_range
from stretch_sim_cal.geometry.transforms import exp, inverse, rotation_angle

GATES = (0.15, 0.15, 0.12, 0.09, 0.07, 0.06, *[0.04] * 10)
"""m: how far a return may be from the surface on its ray, step by step; fewer steps where it has come to rest."""
RESTING = 2e-4  # m and rad, of a step
FINE_STEPS = 3
COARSE, FINE = 500, 4000  # points of each pose that are used while it converges, and in the last steps
LOOKED_AT = 5 * FINE  # of each pose, from which these are taken
MIN_POINTS = 200
SURFACE_ERROR = 0.002  # m, 1 sigma, of the model's surfaces
OWN_HEAD = 0.2  # m: nearer returns are of the collar around a lidar, which moves with nothing that is looked for
TUKEY = 3.0  # residuals beyond this many sigma have no weight
GRAZING = 0.25  # cosine of incidence below which a return says little, and noise moves it to another surface
WEAKEST = 1e-3  # of the strongest direction's information; weaker ones are left as they are


@dataclass(frozen=True)
class BodyRegistration:
    """`seen_from_model` (4, 4) moves the model, in base_footprint, to where it is seen.

    `reach` is the largest distance (m) that it moves a point of the returns by, `standard_error` how sure that is.
    """

    seen_from_model: np.ndarray
    reach: float
    standard_error: float
    num_points: int

    @property
    def angle(self) -> float:
        """How far it turns, in rad."""
        return rotation_angle(self.seen_from_model)


def register_returns(
    clouds: Sequence[np.ndarray], lidars: Sequence[np.ndarray | None], views: Sequence[RobotView], range_noise: float
) -> BodyRegistration | None:
    """Return the motion between model and returns, or None where too few returns are near the model to tell.

    `clouds` (N, 3) are in base_footprint, one per pose; `lidars` (N,) say which lidar saw each point, or are None;
    `views` are the model in these poses.
    """
    thinned = []
    for cloud, seen_by, view in zip(clouds, lidars, views, strict=True):
        some = _thinned(np.flatnonzero(nearest_range(cloud, view.origins) > OWN_HEAD), LOOKED_AT)
        cloud, seen_by = cloud[some], None if seen_by is None else seen_by[some]
        chosen = _thinned(np.flatnonzero(np.abs(view.ahead(cloud, seen_by)[0]) < GATES[0]), FINE)
        thinned.append((cloud[chosen], None if seen_by is None else seen_by[chosen], view))
    points = np.concatenate([cloud for cloud, _, _ in thinned])
    if len(points) < MIN_POINTS:
        return None
    centre = points.mean(axis=0)
    motion = np.eye(4)
    steps = [(gate, COARSE) for gate in GATES] + [(GATES[-1], FINE)] * FINE_STEPS
    resting = False
    for gate, count in steps:
        if resting and count == COARSE:
            continue
        parts = [_residuals(*_subset(part, count), motion, gate, centre, range_noise) for part in thinned]
        residuals, jacobian = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        if len(residuals) < MIN_POINTS:
            return None
        scale = max(0.5, 1.4826 * float(np.median(np.abs(residuals))))
        weights = np.maximum(0.0, 1 - (residuals / (TUKEY * scale)) ** 2) ** 2
        information = jacobian.T @ (weights[:, None] * jacobian)
        step = _solve(information, jacobian.T @ (weights * residuals))
        motion = _about(centre, exp(step)) @ motion
        resting = gate == GATES[-1] and np.abs(step).max() < RESTING
    used = weights > 0
    moved = points @ (motion[:3, :3] - np.eye(3)).T + motion[:3, 3]
    spread = np.sqrt(np.diag(np.linalg.pinv(information))) * scale
    error = float(np.hypot(np.linalg.norm(spread[:3]), np.linalg.norm(spread[3:]) * _radius(points, centre)))
    return BodyRegistration(motion, float(np.linalg.norm(moved, axis=1).max()), error, int(used.sum()))


def _residuals(cloud, seen_by, view, motion, gate, centre, range_noise) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances (M,) of returns from the planes that their rays meet on the moved model, in units of what is
    expected of them, and their derivatives (M, 6) by a twist of the model about `centre`.

    Which surface a return is of is told by its ray, not by what is nearest: noise then pushes none to another face.
    """
    ahead, normals, _, directions = view.ahead(cloud, seen_by, inverse(motion))
    incidence = -(normals * directions).sum(axis=1)
    used = (np.abs(ahead) < gate) & (incidence > GRAZING)
    normals, rays = normals[used] @ motion[:3, :3].T, directions[used] @ motion[:3, :3].T
    # The lever arms are those of the model's points: the returns' own would carry the noise of the residuals.
    arms = cloud[used] + ahead[used, None] * rays - centre
    # A return's noise is along its ray, so it says the more of a plane the more it grazes it.
    sigma = np.hypot(range_noise * incidence[used], SURFACE_ERROR)
    jacobian = np.column_stack([normals, np.cross(arms, normals)])
    return ahead[used] * incidence[used] / sigma, jacobian / sigma[:, None]


def _solve(information: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return the step (6,) that removes the gradient, none along directions that the surfaces do not constrain."""
    strengths, directions = np.linalg.eigh(information)
    inverse = np.where(strengths > WEAKEST * strengths[-1], 1 / np.maximum(strengths, 1e-300), 0.0)
    return directions @ (inverse * (directions.T @ gradient))


def _about(centre: np.ndarray, motion: np.ndarray) -> np.ndarray:
    """Return the motion done about a centre instead of the origin."""
    result = motion.copy()
    result[:3, 3] += centre - motion[:3, :3] @ centre
    return result


def _radius(points: np.ndarray, centre: np.ndarray) -> float:
    return float(np.linalg.norm(points - centre, axis=1).max())


def _subset(part: tuple, count: int) -> tuple:
    cloud, seen_by, view = part
    chosen = _thinned(np.arange(len(cloud)), count)
    return cloud[chosen], None if seen_by is None else seen_by[chosen], view


def _thinned(points: np.ndarray, count: int) -> np.ndarray:
    """Return at most `count` of the points, evenly taken from their order."""
    return points if len(points) <= count else points[np.linspace(0, len(points) - 1, count).astype(int)]
