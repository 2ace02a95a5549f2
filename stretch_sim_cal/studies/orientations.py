"""The orientations that a frame of a robot can have while its origin is at one point: from many starts the joints are
moved until the origin is there, and orientations are counted by cells of equal size."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation
from scipy.stats import qmc

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.kinematics import Positions, Variable
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.studies.workspace import NEARBY, Reach, directions, rank_of

BATCH = 2**10
CLOSE = 1e-5  # how near (m) the origin has to come to the point
ITERATIONS = 40
DAMPING = 1e-4  # of the damped least squares, relative to the largest singular value squared
SETTLED = 0.005  # sampling stops when a batch adds fewer new cells than this part of those known
CELLS = 2000  # cells of all orientations, about 18 deg wide
SAME_DEG = 1.0  # orientations nearer than this are one
REGULAR = 1e-3  # A configuration is singular if its least mobility is below this part of its greatest


@dataclass(frozen=True)
class Orientations:
    """The possible orientations of `link` in `relative_to` with its origin at `point` (3,). `quaternions` (N, 4) as x,
    y, z, w, no two nearer than 1 deg, and configurations (N, V) of `variables`; none if the point is out of reach by at
    least `distance` (m). `dimension` is in how many ways the orientation can change at the point (0: isolated
    orientations, 3: freely within limits), None if all configurations are singular. `share` is that of all
    orientations, `axis_shares` (3,) those of all directions of x, y and z. `settled`: sampling of `samples` starts
    ended because nothing new turned up."""

    link: str
    relative_to: str
    point: np.ndarray
    quaternions: np.ndarray
    configurations: np.ndarray
    variables: list[Variable]
    distance: float
    dimension: int | None
    share: float
    axis_shares: np.ndarray
    samples: int
    settled: bool


def orientations(
    model: RobotModel, link: str, point: np.ndarray, relative_to: str | None = None, fixed: Positions | None = None,
    max_samples: int = 2**14, collision: SelfCollision | None = None, seed: int = 0,
    progress: Callable[[int], None] = lambda samples: None,
) -> Orientations:  # fmt: skip
    """Return the orientations of `link` in `relative_to` (by default the root) with its origin at `point` (3,). All
    joints between the two move within limits; `fixed`, `collision` and errors are as of `workspace`."""
    reach = Reach(model, link, relative_to, fixed, collision)
    if not reach.variables:
        raise InputError(f"nothing moves '{link}' in '{reach.relative_to}'; its only orientation is printed by fk")
    lower, wide, count = reach.lower, reach.range, len(reach.variables)
    to_point = _Approach(reach, np.asarray(point, dtype=float))
    generator, sequence = np.random.default_rng(seed), qmc.Sobol(count, rng=seed)
    cells = cKDTree(np.concatenate([_rotation_cells(), -_rotation_cells()]))
    known: set[int] = set()
    found = np.zeros((0, count))
    distance, samples, settled = np.inf, 0, False
    while samples < max_samples and not settled:
        starts = lower + sequence.random(BATCH) * wide
        if len(found):
            near = np.exp(generator.uniform(*np.log(NEARBY), (BATCH // 2, 1))) * wide
            chosen = found[generator.integers(len(found), size=BATCH // 2)]
            starts[: BATCH // 2] = chosen + near * generator.normal(size=(BATCH // 2, count))
            starts = np.clip(starts, lower, lower + wide)
        ends, away = to_point(starts)
        ends = ends[away < CLOSE]
        ends = ends[reach.free(ends)] if len(ends) else ends
        before, samples, distance = len(known), samples + BATCH, min(distance, float(away.min()))
        known |= set((cells.query(to_point.rotations(ends).as_quat())[1] % CELLS).tolist() if len(ends) else [])
        found = np.concatenate([found, ends])
        settled = samples > BATCH and len(known) - before <= SETTLED * len(known)
        progress(samples)
    found = _distinct(found, to_point)
    rotations, shares = to_point.rotations(found) if len(found) else None, np.zeros(3)
    if rotations is not None:
        sphere, axes = cKDTree(directions(3)), np.moveaxis(rotations.as_matrix(), -1, 0)
        shares = np.array([len(set(sphere.query(axis)[1].tolist())) / sphere.n for axis in axes])
    return Orientations(
        link, reach.relative_to, to_point.point,
        np.zeros((0, 4)) if rotations is None else rotations.as_quat(), found, reach.variables, distance,
        to_point.freedom(found) if len(found) else None, len(known) / CELLS, shares, samples, settled,
    )  # fmt: skip


class _Approach:
    """Moves configurations (N, V) until the frame's origin is at the point."""

    def __init__(self, reach: Reach, point: np.ndarray):
        self._reach, self.point = reach, point

    def __call__(self, configurations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where configurations (N, V) end, and how far (N,) from the point (m)."""
        result = configurations.copy()
        for _ in range(ITERATIONS):
            missing = self.point - self._reach.points(result)
            going = np.flatnonzero(np.linalg.norm(missing, axis=-1) > CLOSE / 10)
            if not len(going):
                break
            result[going] = self._step(result[going], missing[going])
        return result, np.linalg.norm(self.point - self._reach.points(result), axis=-1)

    def _step(self, configurations: np.ndarray, missing: np.ndarray) -> np.ndarray:
        lower, upper = self._reach.lower, self._reach.lower + self._reach.range
        columns = self._reach.columns(configurations)[:, :3]
        blocked = np.zeros(configurations.shape, dtype=bool)
        # A joint that is pressed against its limit does not move, and the others do its part.
        for _ in range(2):
            open_columns = np.where(blocked[:, None], 0.0, columns)
            squares = open_columns @ np.swapaxes(open_columns, 1, 2)
            damping = DAMPING * np.trace(squares, axis1=1, axis2=2)[:, None, None] + 1e-12
            force = np.linalg.solve(squares + damping * np.eye(3), missing[..., None])
            step = (np.swapaxes(open_columns, 1, 2) @ force)[..., 0]
            step *= np.minimum(1.0, 0.25 / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-12))
            moved = configurations + step * self._reach.range
            blocked |= (moved < lower) | (moved > upper)
        return np.clip(moved, lower, upper)

    def rotations(self, configurations: np.ndarray) -> Rotation:
        """Return the frame's orientations at configurations (N, V)."""
        return Rotation.from_matrix(self._reach.frames(configurations)[:, :3, :3])

    def freedom(self, configurations: np.ndarray) -> int | None:
        """Return in how many ways the orientation can change while the origin stays, the most over configurations;
        None if all are singular, where first derivatives promise too much."""
        lower, wide = self._reach.lower, self._reach.range
        usual = lower + np.random.default_rng(0).random((200, len(wide))) * wide
        rank = rank_of(self._reach.columns(usual)[:, :3])
        columns = self._reach.columns(configurations[:: max(1, len(configurations) // 500)])
        _, lengths, ways = np.linalg.svd(columns[:, :3])
        regular = np.ones(len(columns), dtype=bool)
        if rank:
            regular = lengths[:, rank - 1] > REGULAR * lengths[:, 0]
        if not regular.any():
            return None
        turns = columns[regular, 3:] @ np.swapaxes(ways[regular, rank:], 1, 2)
        if not turns.shape[-1]:
            return 0
        speeds = np.linalg.svd(turns, compute_uv=False)
        return int((speeds > 1e-6 * max(speeds.max(), 1.0)).sum(axis=1).max())


def _distinct(configurations: np.ndarray, to_point: _Approach) -> np.ndarray:
    """Return configurations whose orientations are at least `SAME_DEG` apart."""
    if not len(configurations):
        return configurations
    quaternions = to_point.rotations(configurations).as_quat()
    # A quaternion and its opposite are one rotation; a chord of quaternions is half as long as the angle.
    tree = cKDTree(np.concatenate([quaternions, -quaternions]))
    kept = np.ones(len(quaternions), dtype=bool)
    for index, quaternion in enumerate(quaternions):
        if kept[index]:
            same = np.array(tree.query_ball_point(quaternion, np.radians(SAME_DEG) / 2)) % len(quaternions)
            kept[same[same > index]] = False
    return configurations[kept]


def _rotation_cells() -> np.ndarray:
    """Return `CELLS` unit quaternions (CELLS, 4) spread evenly (a spiral on the sphere in four dimensions)."""
    place = np.arange(CELLS) + 0.5
    inner, outer = np.sqrt(place / CELLS), np.sqrt(1.0 - place / CELLS)
    one, two = 2 * np.pi * place / np.sqrt(2.0), 2 * np.pi * place / 1.533751168755204288
    return np.column_stack([inner * np.sin(one), inner * np.cos(one), outer * np.sin(two), outer * np.cos(two)])
