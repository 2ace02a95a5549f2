"""The set of points that a frame of a robot can reach, sampled until hardly anything new turns up.

Configurations come from a scrambled Sobol sequence, which covers the joints' ranges evenly; the corners of the ranges,
where the reach is often greatest, are added, and then configurations near those that reach the rim. Of the points that
they reach, one is kept in every cell of a grid, so the result covers the workspace evenly although the mapping does
not. What is reached is a body, a surface or a curve as the rank of the Jacobian says.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.stats import qmc

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.jacobian import Variable, configuration_space, relative_jacobian
from stretch_sim_cal.robot.kinematics import Positions, link_transform
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.workspace_grid import Grid, Hull, directions

BATCH = 2**14
SETTLED = 0.002
"""Sampling stops when a batch adds fewer new cells than this part of those known."""
MAX_CORNERS = 12
RANK_TOLERANCE = 1e-6
"""Ways to move that are shorter than this part of the longest one count as none."""
NEARBY = (0.003, 0.3)
"""How far from a known configuration others are tried, as parts of the joints' ranges."""
SWEEPS, TRIALS, NARROWER = 20, 9, 0.6
"""A point is pushed outwards by sweeps over the joints, each tried at some places in an ever narrower range."""


@dataclass(frozen=True)
class Workspace:
    """What a frame can reach, in the frame `relative_to` (m).

    `points` (N, 3), one per cell of size `resolution` and the outermost ones, and the configurations (N, V) of
    `variables` that reach them. `dimension` is 3 for a body, 2 for a surface, 1 for a curve, 0 for a point: the rank of
    the Jacobian. `hull_dimension` is that of the space that the points span (2 for a circle); in it, `hull` holds the
    corners (H, 3) of the convex hull of the points that were found, `hull_measure` its volume (m3), area (m2) or length
    (m), and `hull_bound` that of a shape around it that holds the hull of all points. `measure` is the content of what
    is reached in the same unit, 0 for a curve in a plane and a surface in space; it is wrong by at most
    `measure_error`, as far as sampling has found every cell, and never above `hull_measure`. `samples` configurations
    were tried, `colliding` of those checked were dropped; `settled` says whether sampling ended because nothing new
    turned up.
    """

    link: str
    relative_to: str
    points: np.ndarray
    configurations: np.ndarray
    variables: list[Variable]
    dimension: int
    hull_dimension: int
    resolution: float
    measure: float
    measure_error: float
    hull_measure: float
    hull_bound: float
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
    variables = moving_variables(model, link, relative_to, fixed)

    def reach(batch: np.ndarray) -> np.ndarray:
        frames = link_transform(model, fixed | joint_positions(variables, batch), link, relative_to)
        return np.broadcast_to(frames[..., :3, 3], (len(batch), 3))

    search = _Search(variables, reach, lambda batch: _free(collision, fixed, variables, batch), resolution, progress)
    settled = not variables
    for batch in _configurations(variables, max_samples, seed):
        new = search.take(batch)
        if search.samples > BATCH and new <= SETTLED * len(search.grid.taken):
            break
    generator = np.random.default_rng(seed)
    while variables and search.samples < max_samples and len(search.points) and not settled:
        settled = search.take(search.near_the_rim(generator)) <= SETTLED * len(search.grid.taken)
    if not len(search.points):
        raise InputError(f"no configuration of '{link}' is free of collisions: {search.colliding} were tried")
    hull = search.hull(push=collision is None)
    dimension = min(_rank(model, fixed, variables, search.configurations, link, relative_to), search.grid.dimension)
    measure = error = 0.0
    if dimension == search.grid.dimension > 0:
        least, most = search.grid.content(hull)
        measure = min((least + most) / 2, hull.measure)
        error = max(most - measure, measure - least)
    points, configurations = search.with_outermost()
    return Workspace(
        link=link,
        relative_to=relative_to,
        points=points,
        configurations=configurations,
        variables=variables,
        dimension=dimension,
        hull_dimension=search.grid.dimension,
        resolution=search.grid.resolution,
        measure=measure,
        measure_error=error,
        hull_measure=hull.measure,
        hull_bound=max(hull.most, hull.measure),
        hull=search.outer_points[hull.vertices],
        samples=search.samples,
        colliding=search.colliding,
        settled=settled,
    )


def _rank(
    model: RobotModel, fixed: Positions, variables: list[Variable], configurations: np.ndarray, link: str,
    relative_to: str,
) -> int:  # fmt: skip
    """Return in how many independent directions the frame's origin can move, where it can in most."""
    if not variables:
        return 0
    some = configurations[:: max(1, len(configurations) // 200)]
    columns, names = relative_jacobian(model, fixed | joint_positions(variables, some), link, relative_to)
    ranges = {variable.name: variable.upper - variable.lower for variable in variables}
    scale = np.array([ranges.get(variable.name, 0.0) for variable in names])
    lengths = np.linalg.svd(np.broadcast_to(columns[..., :3, :] * scale, (len(some), 3, len(names))), compute_uv=False)
    return int((lengths > RANK_TOLERANCE * max(lengths.max(), RANK_TOLERANCE)).sum(axis=-1).max())


class _Search:
    """What sampling has found so far: a point and its configuration for each cell, and the outermost ones."""

    def __init__(self, variables, reach, free, resolution, progress):
        self.lower = np.array([variable.lower for variable in variables])
        self.range = np.array([variable.upper for variable in variables]) - self.lower
        self._reach, self._free, self._resolution, self._progress = reach, free, resolution, progress
        self.grid: Grid | None = None
        self.points, self.configurations = np.zeros((0, 3)), np.zeros((0, len(variables)))
        self.outer_points, self.outer_configurations = self.points, self.configurations
        self.samples = self.colliding = 0

    def take(self, batch: np.ndarray) -> int:
        """Try configurations (B, V), and return how many new cells they reach."""
        reached = self._reach(batch)
        if self.grid is None:
            self.grid = Grid.around(reached, self._resolution)
            self.directions = directions(self.grid.dimension)
        rows, dropped = self.grid.fill(reached, lambda chosen: self._free(batch[chosen]))
        self.points = np.concatenate([self.points, reached[rows]])
        self.configurations = np.concatenate([self.configurations, batch[rows]])
        self.samples, self.colliding = self.samples + len(batch), self.colliding + dropped
        # Only those that took a cell are known to be free.
        self._add_outer(*((reached[rows], batch[rows]) if self.colliding else (reached, batch)))
        self._progress(self.samples, len(self.grid.taken))
        return len(rows)

    def _add_outer(self, points: np.ndarray, configurations: np.ndarray) -> None:
        points = np.concatenate([self.outer_points, points])
        configurations = np.concatenate([self.outer_configurations, configurations])
        if len(points):
            farthest = (self.directions @ self.grid.along(points).T).argmax(axis=1)
            rows = np.unique(np.concatenate([farthest, points.argmin(axis=0), points.argmax(axis=0)]))
            self.outer_points, self.outer_configurations = points[rows], configurations[rows]

    def near_the_rim(self, generator: np.random.Generator) -> np.ndarray:
        """Return a batch of configurations (B, V) near some that reach cells with untaken neighbours."""
        rows = generator.choice(np.flatnonzero(self.grid.at_the_rim()), BATCH)
        far = np.exp(generator.uniform(*np.log(NEARBY), (BATCH, 1)))
        moved = self.configurations[rows] + far * self.range * generator.normal(size=(BATCH, len(self.range)))
        return np.clip(moved, self.lower, self.lower + self.range)

    def hull(self, push: bool) -> Hull:
        """Return the convex hull of the points found, and bound it from outside.

        With `push`, points are pushed outwards along the hull's normals as far as the joints let them, first. Without,
        what is reached is only known to be in the cells that were taken.
        """
        if self.grid.dimension == 0 or not push:
            hull = Hull(self.grid.along(self.outer_points))
            hull.most = Hull(self.grid.corners_of_cells()).measure if self.grid.dimension else 0.0
            return hull
        for _ in range(2):
            normals = Hull(self.grid.along(self.outer_points)).normals
            best = (self.grid.along(self.outer_points) @ normals.T).argmax(axis=0)
            pushed = self._pushed(self.outer_configurations[best], normals @ self.grid.axes)
            self.directions = np.concatenate([self.directions, normals])
            self._add_outer(self._reach(pushed), pushed)
        along = self.grid.along(self.outer_points)
        hull = Hull(along)
        hull.enclose(normals, (along @ normals.T).max(axis=0))
        return hull

    def _pushed(self, configurations: np.ndarray, outwards: np.ndarray) -> np.ndarray:
        """Return configurations (K, V) that reach as far as possible along directions (K, 3), starting from others."""
        result, everyone = configurations.copy(), np.arange(len(configurations))
        for sweep in range(SWEEPS):
            steps = np.linspace(-1.0, 1.0, TRIALS) * NARROWER**sweep
            for column, (low, wide) in enumerate(zip(self.lower, self.range, strict=True)):
                trials = np.repeat(result[:, None], TRIALS, axis=1)
                trials[..., column] = np.clip(trials[..., column] + steps * wide, low, low + wide)
                reached = self._reach(trials.reshape(-1, trials.shape[-1])).reshape(*trials.shape[:2], 3)
                result = trials[everyone, np.einsum("ktj,kj->kt", reached, outwards).argmax(axis=1)]
        return result

    def with_outermost(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells' points (N, 3) and configurations, and those that reach farthest along x, y and z."""
        rows = np.unique([self.outer_points.argmin(axis=0), self.outer_points.argmax(axis=0)])
        beyond = (self.outer_points[rows] < self.points.min(axis=0)) | (
            self.outer_points[rows] > self.points.max(axis=0)
        )
        rows = rows[beyond.any(axis=1)]
        return (
            np.concatenate([self.points, self.outer_points[rows]]),
            np.concatenate([self.configurations, self.outer_configurations[rows]]),
        )


def moving_variables(model: RobotModel, link: str, relative_to: str, fixed: Positions) -> list[Variable]:
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


def joint_positions(variables: list[Variable], batch: np.ndarray) -> dict[str, np.ndarray]:
    """Return joint positions of configurations (B, V); joints of several numbers get them as (B, k)."""
    columns: dict[str, list[np.ndarray]] = {}
    for variable, column in zip(variables, batch.T, strict=True):
        columns.setdefault(variable.joint, []).append(column)
    return {joint: parts[0] if len(parts) == 1 else np.stack(parts, axis=-1) for joint, parts in columns.items()}


def _free(
    collision: SelfCollision | None, fixed: Positions, variables: list[Variable], batch: np.ndarray
) -> np.ndarray:
    """Return which configurations (B, V) are free of collisions (B,)."""
    if collision is None:
        return np.ones(len(batch), dtype=bool)
    return np.broadcast_to(collision.free(fixed | joint_positions(variables, batch)), len(batch))
