"""The set of points that a frame of a robot can reach, sampled until hardly anything new turns up, one for each cell of
a grid, so that they cover it evenly. It is a body, a surface or a curve by the rank of the Jacobian."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import binary_dilation
from scipy.spatial import ConvexHull, HalfspaceIntersection, QhullError
from scipy.stats import qmc

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.points import convex_hull
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.kinematics import Positions, Variable, configuration_space, jacobian, link_transform
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.surfaces import joined, link_surfaces

ATTEMPTS = 5  # configurations that are tried for a cell before it counts as out of reach without a collision
FLAT = 1e-6
ROUNDING = 1e-12  # tolerance (m) of a point on a hull's facet
MAX_CELLS = 10**7
STRIDES = np.array([1, 2**20, 2**40])  # factors that make one number of a cell's indices, each of them below 2**19
DIRECTIONS = 1000  # directions in which the farthest points are kept
FACETS = 128  # directions at most in which a hull is bounded from outside
BATCH = 2**14
SETTLED = 0.002  # sampling stops when a batch adds fewer new cells than this part of those known
RANK_TOLERANCE = 1e-6  # ways to move that are shorter than this part of the longest one count as none
NEARBY = (0.003, 0.3)  # how far from a known configuration others are tried, as parts of the joints' ranges
SWEEPS, TRIALS, NARROWER = 20, 9, 0.6
"""A point is pushed outwards by sweeps over the joints, each tried at some places in an ever narrower range."""
VIEWS = {"from above": (0, 1), "from the side": (0, 2), "from the front": (1, 2)}
FORMATS = (".png", ".svg", ".pdf")


class Grid:
    """Cells of one size in the space that a point set spans: a line, a plane or all of space. `axes` (dimension, 3) are
    the point set's principal directions, or x, y, z if it spans space. A cell is one number, made of its indices."""

    def __init__(self, origin: np.ndarray, axes: np.ndarray, resolution: float):
        self.origin, self.axes, self.resolution = origin, axes, resolution
        self.taken = np.zeros(0, dtype=np.int64)
        self._indices = np.zeros((0, len(axes)), dtype=np.int64)
        self._attempts: dict[int, int] = {}

    @classmethod
    def around(cls, points: np.ndarray, resolution: float | None) -> "Grid":
        """Return the grid over points (N, 3), with 40 cells along its longest side if no resolution is given."""
        centre = points.mean(axis=0)
        spread, axes = np.zeros(3), np.eye(3)
        if len(points) > 2:
            _, spread, axes = np.linalg.svd(points - centre, full_matrices=False)
        dimension = int((spread > FLAT * np.sqrt(len(points))).sum())
        if resolution is None:
            resolution = max(float(np.ptp(points, axis=0).max()) / 40, FLAT)
        grid = cls(centre, np.eye(3) if dimension == 3 else axes[:dimension], resolution)
        across = np.ptp(grid.along(points), axis=0) / resolution + 3 if resolution > 0 else np.full(3, np.inf)
        if not np.prod(across) <= MAX_CELLS:
            too_many = f"would have {np.prod(across):.3g} cells, more than {MAX_CELLS:.0e}"
            raise InputError(f"a workspace with cells of {resolution:g} m {too_many}; use a coarser resolution above 0")
        return grid

    @property
    def dimension(self) -> int:
        return len(self.axes)

    def along(self, points: np.ndarray) -> np.ndarray:
        """Return the coordinates (N, dimension) of points (N, 3) along the grid's axes."""
        return (points - self.origin) @ self.axes.T

    def fill(self, points: np.ndarray, free: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, int]:
        """Take the cells of free points (N, 3); return the rows that took one, and how many were not free. In every
        cell one point after another is tried, up to `ATTEMPTS` over all calls."""
        indices = np.floor(self.along(points) / self.resolution).astype(np.int64)
        cells = indices @ STRIDES[: self.dimension]
        hopeless = [cell for cell, attempts in self._attempts.items() if attempts >= ATTEMPTS]
        waiting = np.flatnonzero(~_among(cells, self.taken) & ~_among(cells, np.array(hopeless, dtype=np.int64)))
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
            waiting = np.setdiff1d(waiting[~_among(cells[waiting], self.taken)], rows)
        rows = np.concatenate(took)
        self._indices = np.concatenate([self._indices, indices[rows]])
        return rows, dropped

    def at_the_rim(self) -> np.ndarray:
        """Return which of the taken cells (in the order in which they were taken) have an untaken neighbour."""
        inner = np.ones(len(self.taken), dtype=bool)
        for stride in STRIDES[: self.dimension]:
            inner &= _among(self.taken + stride, self.taken) & _among(self.taken - stride, self.taken)
        return ~inner

    def corners_of_cells(self) -> np.ndarray:
        """Return the corners (N, dimension), along the grid's axes, of the cells that are taken."""
        offsets = np.stack(np.meshgrid(*[[0, 1]] * self.dimension, indexing="ij"), axis=-1).reshape(-1, self.dimension)
        return np.unique((self._indices[:, None] + offsets).reshape(-1, self.dimension), axis=0) * self.resolution

    def content(self, hull: "Hull") -> tuple[float, float]:
        """Return the least and the greatest length, area or volume of the reached set, which lies within the hull and
        in the taken cells. A taken cell is reached wholly unless it touches an untaken one whose centre is in the hull.
        Holes narrower than a cell are not seen."""
        size = self.resolution**self.dimension
        # Around everything one cell more, so that every cell has its neighbours.
        cells = np.concatenate([self._indices, np.floor(hull.corners / self.resolution).astype(int)])
        start = cells.min(axis=0)
        shape = cells.max(axis=0) - start + 3
        taken = np.zeros(shape, dtype=bool)
        taken[tuple((self._indices - start + 1).T)] = True
        places = np.indices(shape).reshape(self.dimension, -1).T
        inside = hull.contains((places + start - 0.5) * self.resolution).reshape(shape)
        missing = inside & ~taken
        edge = taken & binary_dilation(missing, np.ones((3,) * self.dimension))
        least = hull.measure - float(missing.sum() + edge.sum()) * size
        return max(0.0, least), max(0.0, hull.most - float(missing.sum()) * size)


class Hull:
    """The convex hull of points (N, dimension): its `measure` (length, area, volume), the rows (H,) of its `vertices`
    and their `corners` (H, dimension). `most` is that of an enclosure of the whole set."""

    def __init__(self, points: np.ndarray):
        self.dimension, self.most = points.shape[1], np.inf
        self._facets = np.zeros((0, self.dimension + 1))
        self.normals = np.zeros((0, self.dimension))
        self.measure, self.vertices = 0.0, np.arange(len(points) if self.dimension else 1)
        if self.dimension == 1:
            self.measure = float(np.ptp(points))
            self.vertices = np.array([points[:, 0].argmin(), points[:, 0].argmax()])
            self.normals = np.array([[-1.0], [1.0]])
            self._facets = np.column_stack([self.normals, points[self.vertices, 0] * [1.0, -1.0]])
        elif self.dimension > 1:
            # Too few points may not span what the robot could reach without collisions.
            with contextlib.suppress(QhullError):
                found = ConvexHull(points)
                self.measure, self.vertices = float(found.volume), found.vertices
                self.normals, self._facets = _widest(found), np.unique(found.equations, axis=0)
        self.corners = points[self.vertices]

    def contains(self, points: np.ndarray) -> np.ndarray:
        """Return which of the points (N, dimension) are in the hull (N,)."""
        if not len(self.normals):
            return np.zeros(len(points), dtype=bool)
        # Only what lies between the balls within and around the hull has to be compared with its facets.
        centre = self.corners.mean(axis=0)
        far = np.linalg.norm(points - centre, axis=1)
        inner = -(centre @ self._facets[:, :-1].T + self._facets[:, -1]).max()
        inside = far <= inner
        between = np.flatnonzero(~inside & (far <= np.linalg.norm(self.corners - centre, axis=1).max()))
        for rows in np.array_split(between, 1 + len(between) // 1000):
            beyond = points[rows] @ self._facets[:, :-1].T + self._facets[:, -1]
            inside[rows] = beyond.max(axis=1) <= ROUNDING
        return inside

    def enclose(self, normals: np.ndarray, reach: np.ndarray) -> None:
        """Take `reach` (K,) as the bound of the set along unit `normals` (K, dimension)."""
        if self.dimension == 1:
            self.most = min(self.most, float(reach.sum()))
        elif len(self.normals):
            inside = self.corners.mean(axis=0)
            around = HalfspaceIntersection(np.column_stack([normals, -reach]), inside).intersections
            self.most = min(self.most, float(ConvexHull(around).volume))


def _among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return which of the integers `values` (N,) are in `known` (K,): `np.isin`, much faster for numbers this large."""
    if not len(known):
        return np.zeros(len(values), dtype=bool)
    known = np.sort(known)
    return known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values


def directions(dimension: int) -> np.ndarray:
    """Return unit vectors (K, dimension) that cover all directions evenly."""
    if dimension < 2:
        return np.array([[-1.0], [1.0]])[:, :dimension]
    if dimension == 2:
        angles = np.linspace(0.0, 2 * np.pi, DIRECTIONS, endpoint=False)
        return np.column_stack([np.cos(angles), np.sin(angles)])
    # A spiral from pole to pole, each turn by the golden angle.
    heights = 1.0 - (2.0 * np.arange(DIRECTIONS) + 1.0) / DIRECTIONS
    angles = np.pi * (3.0 - np.sqrt(5.0)) * np.arange(DIRECTIONS)
    across = np.sqrt(1.0 - heights**2)
    return np.column_stack([across * np.cos(angles), across * np.sin(angles), heights])


def _widest(hull: ConvexHull) -> np.ndarray:
    """Return the outward normals (K, dimension) of the at most `FACETS` largest facets, and of a box."""
    corners = hull.points[hull.simplices]
    edges = corners[:, 1:] - corners[:, :1]
    areas = np.sqrt(np.maximum(np.linalg.det(edges @ np.swapaxes(edges, 1, 2)), 0.0))
    normals = np.round(hull.equations[np.argsort(-areas), :-1], 9)
    _, first = np.unique(np.round(normals, 3), axis=0, return_index=True)
    box = np.concatenate([np.eye(hull.points.shape[1]), -np.eye(hull.points.shape[1])])
    chosen = np.concatenate([box, normals[np.sort(first)[:FACETS]]])
    return chosen / np.linalg.norm(chosen, axis=1, keepdims=True)


class Reach:
    """A frame of a robot in another one as a function of the joints between the two that are not `fixed`.
    Configurations are (B, V) of `variables`, from `lower` on over `range` (V,). Raises `InputError` as `workspace`."""

    def __init__(
        self, model: RobotModel, link: str, relative_to: str | None = None, fixed: Positions | None = None,
        collision: SelfCollision | None = None,
    ):  # fmt: skip
        self.model, self.link = model, model.checked_link(link)
        self.relative_to = model.checked_link(relative_to or model.root)
        self.fixed, self.collision = dict(fixed or {}), collision
        self.variables = self._moving_variables()
        self.lower = np.array([variable.lower for variable in self.variables])
        self.range = np.array([variable.upper for variable in self.variables]) - self.lower

    def positions(self, batch: np.ndarray) -> dict[str, ArrayLike]:
        """Return the joint positions of configurations; joints of several numbers get them as (B, k)."""
        columns: dict[str, list[np.ndarray]] = {}
        for variable, column in zip(self.variables, batch.T, strict=True):
            columns.setdefault(variable.joint, []).append(column)
        own = {joint: parts[0] if len(parts) == 1 else np.stack(parts, axis=-1) for joint, parts in columns.items()}
        return self.fixed | own

    def frames(self, batch: np.ndarray) -> np.ndarray:
        """Return relative_to_from_link (B, 4, 4)."""
        frames = link_transform(self.model, self.positions(batch), self.link, self.relative_to)
        return np.broadcast_to(frames, (len(batch), 4, 4))

    def points(self, batch: np.ndarray) -> np.ndarray:
        """Return the frame's origins (B, 3)."""
        return self.frames(batch)[:, :3, 3]

    def columns(self, batch: np.ndarray) -> np.ndarray:
        """Return the Jacobians (B, 6, V) per whole range of each variable."""
        columns, variables = jacobian(self.model, self.positions(batch), self.link, self.relative_to)
        places = {variable.name: index for index, variable in enumerate(variables)}
        chosen = columns[..., [places[variable.name] for variable in self.variables]]
        return np.broadcast_to(chosen, (len(batch), *chosen.shape[-2:])) * self.range

    def free(self, batch: np.ndarray) -> np.ndarray:
        """Return which configurations are free of collisions (B,); all without `collision`."""
        if self.collision is None:
            return np.ones(len(batch), dtype=bool)
        return np.broadcast_to(self.collision.free(self.positions(batch)), len(batch))

    def _moving_variables(self) -> list[Variable]:
        leading = set()
        for joint in self.model.between(self.link, self.relative_to):
            while joint.mimic is not None and joint.name not in self.fixed:
                joint = self.model.joints[joint.mimic.joint]
            leading.add(joint.name)
        leading -= {self.model.checked_joint(name).name for name in self.fixed}
        variables = [variable for variable in configuration_space(self.model) if variable.joint in leading]
        if free := [each.joint for each in variables if not np.isfinite([each.lower, each.upper]).all()]:
            raise InputError(f"joint '{free[0]}' has no limits, so its workspace is unlimited; fix it at a position")
        return variables


@dataclass(frozen=True)
class Workspace:
    """The set that a frame can reach, in the frame `relative_to` (m). `points` (N, 3), one per cell of size
    `resolution` and the outermost ones, and their configurations (N, V) of `variables`. `dimension` is 3 for a body, 2
    for a surface, 1 for a curve, 0 for a point: the rank of the Jacobian. `hull_dimension` is that of the points' span
    (2 for a circle); in it, `hull` (H, 3) are the corners of the convex hull of the points, `hull_measure` is its
    volume (m3), area (m2) or length (m), and `hull_bound` that of an enclosure of the whole set. `measure` is the
    reached content in the same unit, 0 for a curve in a plane and a surface in space, at most `measure_error` wrong as
    far as sampling has found every cell, and never above `hull_measure`. `samples` configurations were tried,
    `colliding` ones of them dropped; `settled`: sampling ended because nothing new turned up."""

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
    model: RobotModel, link: str, relative_to: str | None = None, fixed: Positions | None = None,
    resolution: float | None = None, max_samples: int = 2**20, collision: SelfCollision | None = None, seed: int = 0,
    progress: Callable[[int, int], None] = lambda samples, cells: None,
) -> Workspace:  # fmt: skip
    """Return the set that the origin of `link` can reach in the frame `relative_to` (by default the root). All joints
    between the two move within their limits, unlimited turns through a whole turn; `fixed` holds the positions of
    others (by default 0). With `collision`, only configurations free of collisions count. `progress` is called with the
    samples and cells so far. Raises `InputError` for unknown links and joints, unlimited joints, and if no
    configuration is free."""
    reach = Reach(model, link, relative_to, fixed, collision)
    search = _Search(reach, resolution, progress)
    settled = not reach.variables
    for batch in _configurations(reach, max_samples, seed):
        new = search.take(batch)
        if search.samples > BATCH and new <= SETTLED * len(search.grid.taken):
            break
    generator = np.random.default_rng(seed)
    while reach.variables and search.samples < max_samples and len(search.points) and not settled:
        settled = search.take(search.near_the_rim(generator)) <= SETTLED * len(search.grid.taken)
    if not len(search.points):
        raise InputError(f"no configuration of '{link}' is free of collisions: {search.colliding} were tried")
    hull, grid, dimension = search.hull(push=collision is None), search.grid, 0
    if reach.variables:
        some = search.configurations[:: max(1, len(search.configurations) // 200)]
        dimension = min(rank_of(reach.columns(some)[:, :3]), grid.dimension)
    measure = error = 0.0
    if dimension == grid.dimension > 0:
        least, most = grid.content(hull)
        measure = min((least + most) / 2, hull.measure)
        error = max(most - measure, measure - least)
    return Workspace(
        link, reach.relative_to, *search.with_outermost(), reach.variables, dimension, grid.dimension, grid.resolution,
        measure, error, hull.measure, max(hull.most, hull.measure), search.outer_points[hull.vertices], search.samples,
        search.colliding, settled,
    )  # fmt: skip


def rank_of(columns: np.ndarray) -> int:
    """Return the largest rank of matrices (N, 3, V); lengths far below the greatest of all count as zero."""
    lengths = np.linalg.svd(columns, compute_uv=False)
    return int((lengths > RANK_TOLERANCE * max(lengths.max(), RANK_TOLERANCE)).sum(axis=-1).max())


class _Search:
    def __init__(self, reach: Reach, resolution: float | None, progress: Callable[[int, int], None]):
        self._reach, self._resolution, self._progress = reach, resolution, progress
        self.grid: Grid | None = None
        self.points, self.configurations = np.zeros((0, 3)), np.zeros((0, len(reach.variables)))
        self.outer_points, self.outer_configurations = self.points, self.configurations
        self.samples = self.colliding = 0

    def take(self, batch: np.ndarray) -> int:
        """Try configurations (B, V), and return how many new cells they reach."""
        reached = self._reach.points(batch)
        if self.grid is None:
            self.grid = Grid.around(reached, self._resolution)
            self.directions = directions(self.grid.dimension)
        rows, dropped = self.grid.fill(reached, lambda chosen: self._reach.free(batch[chosen]))
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
            along = np.ascontiguousarray(self.grid.along(points).T)
            # A few directions at a time, so that their products stay in the processor's cache.
            parts = np.array_split(self.directions, -(-len(self.directions) // 32))
            farthest = [(part @ along).argmax(axis=1) for part in parts]
            rows = np.unique(np.concatenate([*farthest, points.argmin(axis=0), points.argmax(axis=0)]))
            self.outer_points, self.outer_configurations = points[rows], configurations[rows]

    def near_the_rim(self, generator: np.random.Generator) -> np.ndarray:
        """Return a batch of configurations (B, V) near some that reach cells with untaken neighbours."""
        rows = generator.choice(np.flatnonzero(self.grid.at_the_rim()), BATCH)
        far = np.exp(generator.uniform(*np.log(NEARBY), (BATCH, 1)))
        lower, wide = self._reach.lower, self._reach.range
        moved = self.configurations[rows] + far * wide * generator.normal(size=(BATCH, len(wide)))
        return np.clip(moved, lower, lower + wide)

    def hull(self, push: bool) -> Hull:
        """Return the convex hull of the points found, bounded from outside. With `push`, points are first pushed
        outwards along the hull's normals as far as the joints allow; otherwise the taken cells are the bound."""
        if self.grid.dimension == 0 or not push:
            hull = Hull(self.grid.along(self.outer_points))
            hull.most = Hull(self.grid.corners_of_cells()).measure if self.grid.dimension else 0.0
            return hull
        for _ in range(2):
            normals = Hull(self.grid.along(self.outer_points)).normals
            best = (self.grid.along(self.outer_points) @ normals.T).argmax(axis=0)
            pushed = self._pushed(self.outer_configurations[best], normals @ self.grid.axes)
            self.directions = np.concatenate([self.directions, normals])
            self._add_outer(self._reach.points(pushed), pushed)
        along = self.grid.along(self.outer_points)
        hull = Hull(along)
        hull.enclose(normals, (along @ normals.T).max(axis=0))
        return hull

    def _pushed(self, configurations: np.ndarray, outwards: np.ndarray) -> np.ndarray:
        """Return configurations (K, V), starting from others, that reach as far as possible along directions (K, 3)."""
        result, everyone = configurations.copy(), np.arange(len(configurations))
        for sweep in range(SWEEPS):
            steps = np.linspace(-1.0, 1.0, TRIALS) * NARROWER**sweep
            for column, (low, wide) in enumerate(zip(self._reach.lower, self._reach.range, strict=True)):
                trials = np.repeat(result[:, None], TRIALS, axis=1)
                trials[..., column] = np.clip(trials[..., column] + steps * wide, low, low + wide)
                reached = self._reach.points(trials.reshape(-1, trials.shape[-1])).reshape(*trials.shape[:2], 3)
                result = trials[everyone, np.einsum("ktj,kj->kt", reached, outwards).argmax(axis=1)]
        return result

    def with_outermost(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells' points (N, 3) and configurations, and those that reach farthest along x, y and z."""
        rows = np.unique([self.outer_points.argmin(axis=0), self.outer_points.argmax(axis=0)])
        outer = self.outer_points[rows]
        rows = rows[((outer < self.points.min(axis=0)) | (outer > self.points.max(axis=0))).any(axis=1)]
        points = np.concatenate([self.points, self.outer_points[rows]])
        return points, np.concatenate([self.configurations, self.outer_configurations[rows]])


def _configurations(reach: Reach, max_samples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield configurations (B, V): the corners of the ranges first, then batches of a Sobol sequence."""
    count = len(reach.variables)
    if not count:
        yield np.zeros((1, 0))
        return
    # All corners of up to twelve ranges; of more, those of the first ones, the others in the middle.
    corners = np.full((2 ** min(count, 12), count), 0.5)
    corners[:, :12] = list(product((0.0, 1.0), repeat=min(count, 12)))
    sequence = qmc.Sobol(count, rng=seed)
    yield reach.lower + np.concatenate([corners, sequence.random(BATCH)]) * reach.range
    for _ in range(BATCH, max_samples, BATCH):
        yield reach.lower + sequence.random(BATCH) * reach.range


def write_workspace_plot(reached: Workspace, path: Path, model: RobotModel, positions: Positions) -> None:
    """Draw a workspace's points, coloured by height, its hull, and in grey the robot's collision shapes at joint
    `positions`, from three sides; `path` is one of `FORMATS`. Raises `InputError` for missing meshes."""
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    robot = joined(
        surface.moved(link_transform(model, positions, link, reached.relative_to))
        for link, surface in link_surfaces(model).items()
    ).triangles
    figure = Figure(figsize=(15, 5.5), layout="constrained")
    for axes, (title, (across, up)) in zip(figure.subplots(1, 3), VIEWS.items(), strict=True):
        if len(robot):
            axes.add_collection(PolyCollection(robot[:, :, [across, up]], facecolor="0.8", edgecolor="none"))
        flat = reached.points[:, [across, up]]
        axes.scatter(*flat.T, s=3, c=reached.points[:, 2], cmap="viridis", linewidths=0, alpha=0.6)
        outline = convex_hull(flat)
        axes.plot(*np.vstack([outline, outline[:1]]).T, color="C3", linewidth=1)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set(title=title, xlabel=f"{'xyz'[across]} / m", ylabel=f"{'xyz'[up]} / m")
        axes.grid(alpha=0.3)
    figure.suptitle(f"{reached.link} in {reached.relative_to}")
    write_atomic(path, lambda stream: figure.savefig(stream, format=path.suffix[1:].lower(), dpi=110))
