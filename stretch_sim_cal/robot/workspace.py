"""The set of points that a frame of a robot can reach, sampled until hardly anything new turns up.

Configurations come from a scrambled Sobol sequence, which covers the joints' ranges evenly; the corners of the ranges,
where the reach is often greatest, are added. Of the points that they reach, one is kept in every cell of a grid, so the
result covers the workspace evenly although the mapping does not.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.spatial import ConvexHull, QhullError
from scipy.stats import qmc

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.jacobian import Variable, configuration_space
from stretch_sim_cal.robot.kinematics import Positions, link_transform
from stretch_sim_cal.robot.model import RobotModel

BATCH = 2**14
CELLS_ACROSS = 40
"""Cells of the grid along the longest side of the workspace, unless a resolution is asked for."""
SETTLED = 0.002
"""Sampling stops when a batch adds fewer new cells than this part of those known."""
MAX_CORNERS = 12
ATTEMPTS = 5
"""Configurations that are tried for a cell before it counts as out of reach without a collision."""
FLAT = 1e-6
MAX_ACROSS = 10_000
STRIDES = np.array([1, 2**20, 2**40])
"""What makes one number of a cell's indices, each of them below 2**19."""


@dataclass(frozen=True)
class Workspace:
    """What a frame can reach, in the frame `relative_to` (m).

    `points` (N, 3), at most one per cell of size `resolution`, and the configurations (N, V) of `variables` that reach
    them. `dimension` is 3 for a body, 2 for a surface in a plane, 1 for a line, 0 for a point; `hull_measure` is the
    volume (m3), area (m2) or length (m) of the convex hull, `measure` that of the cells that were reached. `hull` holds
    the corners (H, 3) of the hull. `samples` configurations were tried, `colliding` of those checked were dropped;
    `settled` says whether sampling ended because nothing new turned up.
    """

    link: str
    relative_to: str
    points: np.ndarray
    configurations: np.ndarray
    variables: list[Variable]
    dimension: int
    resolution: float
    measure: float
    hull_measure: float
    hull: np.ndarray
    samples: int
    colliding: int
    settled: bool

    @property
    def bounds(self) -> np.ndarray:
        """The smallest and the largest coordinates (2, 3)."""
        return np.array([self.points.min(axis=0), self.points.max(axis=0)])


def workspace(
    model: RobotModel,
    link: str,
    relative_to: str | None = None,
    fixed: Positions | None = None,
    resolution: float | None = None,
    max_samples: int = 2**20,
    collision: SelfCollision | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda samples, cells: None,
) -> Workspace:
    """Return the set that the origin of `link` can reach in the frame `relative_to` (by default the root).

    All joints between the two move within their limits, unlimited turns through a whole turn; `fixed` holds the
    positions of joints that stay where they are (others are at 0). With `collision`, only configurations that it finds
    free count. `progress` is called with the samples and cells so far.
    Raises `InputError` for unknown links and joints, joints without limits to their travel, and where no
    configuration is free.
    """
    relative_to = model.checked_link(relative_to or model.root)
    fixed = dict(fixed or {})
    variables = _moving_variables(model, link, relative_to, fixed)
    grid: _Grid | None = None
    points, configurations = np.zeros((0, 3)), np.zeros((0, len(variables)))
    samples = colliding = 0
    settled = not variables
    for batch in _configurations(variables, max_samples, seed):
        frames = link_transform(model, fixed | _positions(variables, batch), link, relative_to)
        reached = np.broadcast_to(frames[..., :3, 3], (len(batch), 3))
        if grid is None:
            grid = _Grid.around(reached, resolution)
        known = len(grid.taken)
        keep, dropped = grid.fill(reached, lambda rows: _free(collision, fixed, variables, batch[rows]))
        points = np.concatenate([points, reached[keep]])
        configurations = np.concatenate([configurations, batch[keep]])
        samples, colliding = samples + len(batch), colliding + dropped
        progress(samples, len(grid.taken))
        if samples > BATCH and len(grid.taken) - known <= SETTLED * len(grid.taken):
            settled = True
            break
    if not len(points):
        raise InputError(f"no configuration of '{link}' is free of collisions: {colliding} were tried")
    hull_measure, hull = _hull(grid, points)
    return Workspace(
        link=link,
        relative_to=relative_to,
        points=points,
        configurations=configurations,
        variables=variables,
        dimension=grid.dimension,
        resolution=grid.resolution,
        measure=grid.measure(),
        hull_measure=hull_measure,
        hull=hull,
        samples=samples,
        colliding=colliding,
        settled=settled,
    )


def _moving_variables(model: RobotModel, link: str, relative_to: str, fixed: Positions) -> list[Variable]:
    """Return the axes of the configuration space that move one frame in the other, but for the fixed joints."""
    above = [{joint.name for joint in model.chain(frame)} for frame in (model.checked_link(link), relative_to)]
    between = above[0] ^ above[1]
    leading = set()
    for name in between:
        joint = model.joints[name]
        while joint.mimic is not None and joint.name not in fixed:
            joint = model.joints[joint.mimic.joint]
        leading.add(joint.name)
    for name in fixed:
        model.checked_joint(name)
    variables = [v for v in configuration_space(model) if v.joint in leading and v.joint not in fixed]
    for variable in variables:
        if not np.isfinite([variable.lower, variable.upper]).all():
            raise InputError(
                f"joint '{variable.joint}' has no limits, so what it reaches has none; hold it at a position"
            )
    return variables


def _configurations(variables: list[Variable], max_samples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield configurations (B, V): the corners of the ranges first, then batches of a Sobol sequence."""
    lower = np.array([variable.lower for variable in variables])
    upper = np.array([variable.upper for variable in variables])
    if not variables:
        yield np.zeros((1, 0))
        return
    # All corners of a few ranges; of many, those of the first ones, the others in the middle.
    corners = np.array(list(product((0.0, 1.0), repeat=min(len(variables), MAX_CORNERS))))
    rest = np.full((len(corners), len(variables) - corners.shape[1]), 0.5)
    sequence = qmc.Sobol(len(variables), rng=seed)
    first = np.concatenate([np.concatenate([corners, rest], axis=1), sequence.random(BATCH)])
    yield lower + first * (upper - lower)
    for _ in range(BATCH, max_samples, BATCH):
        yield lower + sequence.random(BATCH) * (upper - lower)


def _positions(variables: list[Variable], batch: np.ndarray) -> dict[str, np.ndarray]:
    """Return joint positions of configurations (B, V); joints of several numbers get them as (B, k)."""
    columns: dict[str, list[np.ndarray]] = {}
    for variable, column in zip(variables, batch.T, strict=True):
        columns.setdefault(variable.joint, []).append(column)
    return {joint: parts[0] if len(parts) == 1 else np.stack(parts, axis=-1) for joint, parts in columns.items()}


def _single(variables: list[Variable], configuration: np.ndarray) -> dict[str, np.ndarray]:
    return {joint: values[0] for joint, values in _positions(variables, configuration[None]).items()}


def _free(
    collision: SelfCollision | None, fixed: Positions, variables: list[Variable], batch: np.ndarray
) -> np.ndarray:
    """Return which configurations (B, V) are free of collisions (B,)."""
    if collision is None:
        return np.ones(len(batch), dtype=bool)
    return np.broadcast_to(collision.free(fixed | _positions(variables, batch)), len(batch))


class _Grid:
    """Cells of one size in the space that a point set spans: a line, a plane or all of space.

    `axes` (dimension, 3) are the point set's principal directions, or x, y, z where it spans space. A cell is known by
    one number, made of its indices.
    """

    def __init__(self, origin: np.ndarray, axes: np.ndarray, resolution: float):
        self.origin, self.axes, self.resolution = origin, axes, resolution
        self.taken = np.zeros(0, dtype=np.int64)
        self._attempts: dict[int, int] = {}

    @classmethod
    def around(cls, points: np.ndarray, resolution: float | None) -> "_Grid":
        centre = points.mean(axis=0)
        spread, axes = np.zeros(3), np.eye(3)
        if len(points) > 2:
            _, spread, axes = np.linalg.svd(points - centre, full_matrices=False)
        dimension = int((spread > FLAT * np.sqrt(len(points))).sum())
        if resolution is None:
            resolution = max(float(np.ptp(points, axis=0).max()) / CELLS_ACROSS, FLAT)
        if not float(np.ptp(points, axis=0).max()) < MAX_ACROSS * resolution:
            raise InputError(f"the workspace's resolution {resolution:g} m is not above 0, or too fine for its size")
        return cls(centre, np.eye(3) if dimension == 3 else axes[:dimension], resolution)

    @property
    def dimension(self) -> int:
        return len(self.axes)

    def along(self, points: np.ndarray) -> np.ndarray:
        """Return the coordinates (N, dimension) of points (N, 3) along the grid's axes."""
        return (points - self.origin) @ self.axes.T

    def fill(self, points: np.ndarray, free: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, int]:
        """Take the cells that free points (N, 3) are in; return the row that took each, and how many were not free.

        In every cell one point after another is tried, up to `ATTEMPTS` over all calls.
        """
        cells = np.floor(self.along(points) / self.resolution).astype(np.int64) @ STRIDES[: self.dimension]
        hopeless = [cell for cell, attempts in self._attempts.items() if attempts >= ATTEMPTS]
        waiting = np.flatnonzero(~np.isin(cells, self.taken) & ~np.isin(cells, hopeless))
        took, dropped = [np.zeros(0, dtype=int)], 0
        for _ in range(ATTEMPTS):
            rows = waiting[np.unique(cells[waiting], return_index=True)[1]]
            if not len(rows):
                break
            is_free = free(rows)
            took.append(rows[is_free])
            dropped += int((~is_free).sum())
            for cell in cells[rows[~is_free]].tolist():
                self._attempts[cell] = self._attempts.get(cell, 0) + 1
            self.taken = np.concatenate([self.taken, cells[rows[is_free]]])
            waiting = np.setdiff1d(waiting[~np.isin(cells[waiting], self.taken)], rows)
        return np.concatenate(took), dropped

    def measure(self) -> float:
        """Return the length, area or volume of the cells that are taken; those at the border count half."""
        if self.dimension == 0:
            return 0.0
        inner = np.ones(len(self.taken), dtype=bool)
        for stride in STRIDES[: self.dimension]:
            inner &= np.isin(self.taken + stride, self.taken) & np.isin(self.taken - stride, self.taken)
        return float(inner.sum() + (~inner).sum() / 2) * self.resolution**self.dimension


def _hull(grid: _Grid, points: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the convex hull's volume (area, length), and its corners (H, 3)."""
    along = grid.along(points)
    if grid.dimension == 0:
        return 0.0, points[:1]
    if grid.dimension == 1:
        return float(np.ptp(along)), points[[along[:, 0].argmin(), along[:, 0].argmax()]]
    try:
        hull = ConvexHull(along)
    except QhullError:
        return 0.0, points  # Too few free points to span what the robot could reach without collisions.
    return float(hull.volume), points[hull.vertices]
