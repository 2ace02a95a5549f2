"""The calibration as one least-squares problem: its unknowns, the state that they update, its priors, and the normal
equations that residual blocks add up.

    minimise over x   sum_blocks |J x + r|^2_W + |x - prior|^2

The unknowns x are small changes of a `State`: a twist of each lidar in base_link, the floor's plane and curvature, the
parameters of each lidar's error model (`sensor/unit.py`), and further ones of a residual block. The blocks are patches
of the room and of the floor (`room.py`, whose planes are eliminated patch by patch) and the robot's surfaces
(`mounts/residuals.py`); `solver.py` adds the priors and solves.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from stretch_sim_cal.geometry.planes import Plane, floor_between, height_slopes, incremented
from stretch_sim_cal.geometry.points import group_sums
from stretch_sim_cal.geometry.transforms import exp, inverse, log
from stretch_sim_cal.sensor.unit import CHANNEL_KINDS, OF_SCANS, SCALARS, ErrorModel

# The covariance of a pose that does not vary.
FIXED = np.zeros((6, 6))
# Standard deviations of the poses' and the floor's changes if nothing else constrains them: 1 m, 1 rad.
UNKNOWN = 1.0
# A column is common if more than this share of the rows has an entry in it.
COMMON_FROM = 0.1
# Ranges (m) between which a channel's errors change linearly with their logarithm.
RANGES = np.array([0.7, 1.4, 2.8, 5.6, 11.2, 22.4])


@dataclass(frozen=True)
class State:
    """An estimate: `base_from_lidar`, the poses (4, 4) of the lidars in base_link (of an alignment, in the first
    lidar's frame), the left and the right one first; `units`, the parameters (n,) of their error models; the `floor` in
    base_link and its `curvature` (xx, xy, yy) in 1/m at base_link's origin."""

    base_from_lidar: tuple[np.ndarray, ...]
    units: tuple[np.ndarray, ...]
    floor: Plane | None = None
    curvature: np.ndarray = field(default_factory=lambda: np.zeros(3))

    @property
    def left_from_right(self) -> np.ndarray:
        """The transform (4, 4) that maps the right lidar's points into the left lidar's frame."""
        return inverse(self.base_from_lidar[0]) @ self.base_from_lidar[1]

    def height_over_floor(self, points: np.ndarray) -> np.ndarray:
        """Return the height (N,) of points (N, 3) over the floor, curvature included."""
        return self.floor.distance(points) - curvature_shapes(points) @ self.curvature


def curvature_shapes(points: np.ndarray) -> np.ndarray:
    """Return the derivatives (N, 3) of a floor's height by its curvature xx, xy, yy, at points (N, 3) or (N, 2)."""
    x, y = points[:, 0], points[:, 1]
    return np.column_stack([x * x / 2.0, x * y, y * y / 2.0])


def floor_rows(floor: Plane, points: np.ndarray) -> np.ndarray:
    """Return d(height of points (N, 3) over the floor) / d(height, tilt about x, tilt about y, curvature) as (N, 6)."""
    return -np.hstack([height_slopes(points, floor), curvature_shapes(points)])


class Unknowns:
    """The columns of the problem, in this order: `poses`, the twist of each lidar; `floor` and its `curvature`;
    `units`, the parameters of each lidar's errors; and `others`, so many further unknowns of a residual block, or,
    `by_surface`, the errors of each lidar's channels at `RANGES`, of which a state has none."""

    by_surface = False

    def __init__(self, models: tuple[ErrorModel, ...], others: int = 0, by_surface: bool = False):
        self.models, self.by_surface = models, by_surface
        count = len(models)
        if by_surface:
            others = len(RANGES) * sum(model.num_channels for model in models)
        sizes = [*[6] * count, 3, 3, *(model.size for model in models), others]
        parts = tuple(itertools.starmap(slice, itertools.pairwise(itertools.accumulate(sizes, initial=0))))
        self.poses, (self.floor, self.curvature) = parts[:count], parts[count : count + 2]
        self.units, self.others = parts[count + 2 : -1], parts[-1]
        self.size = self.others.stop

    @property
    def num_without_surfaces(self) -> int:
        """The number of columns before those of the errors by surface; of all, if there are none."""
        return self.others.start if self.by_surface else self.size

    @property
    def pose_columns(self) -> np.ndarray:
        """The columns (6 per lidar,) of the lidars' twists."""
        return np.concatenate(list(map(columns_of, self.poses)))

    @property
    def free_poses(self) -> np.ndarray:
        """The same of all lidars but the first, which is fixed, or has the pose of the whole rig."""
        return self.pose_columns[6:]

    def of_free_poses(self, matrix: np.ndarray) -> np.ndarray:
        """Return the block of a matrix (n, n) of all unknowns that is of the free poses."""
        return matrix[np.ix_(self.free_poses, self.free_poses)]

    @property
    def scalars(self) -> np.ndarray:
        """The columns (14 per lidar,) of the scalars of the lidars' errors, the left one's first."""
        return np.concatenate([unit.start + np.arange(len(SCALARS)) for unit in self.units])

    def unit_columns(self, side: int, channel: np.ndarray) -> np.ndarray:
        """Return the columns (N, 43) of the parameters that all channels share, and of the three of each of the
        channels (N,)."""
        common = self.common_columns(side)
        start, count = self.units[side].start + len(SCALARS), self.models[side].num_channels
        channels = (start + channel)[:, None] + count * np.arange(len(CHANNEL_KINDS))
        return np.hstack([np.broadcast_to(common, (len(channel), len(common))), channels])

    def surface_columns(
        self, side: np.ndarray, channel: np.ndarray, ranges: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Return the shares (N, 2) that the errors of channels (N,) of lidars (N,) have, at `ranges` (N,) in m, of
        those at the two of `RANGES` beside these, and the columns (N, 2) of the latter."""
        before = np.cumsum([0, *(model.num_channels for model in self.models)])[side]
        place = np.interp(np.log(np.maximum(ranges, RANGES[0])), np.log(RANGES), np.arange(len(RANGES)))
        nearer = np.minimum(place.astype(int), len(RANGES) - 2)
        columns = self.others.start + len(RANGES) * (before + channel) + nearer
        return np.column_stack([nearer + 1 - place, place - nearer]), np.column_stack([columns, columns + 1])

    def common_columns(self, side: int) -> np.ndarray:
        """Return the columns (40,) of a lidar's scalars and of `OF_SCANS`."""
        unit = self.units[side]
        return np.r_[unit.start : unit.start + len(SCALARS), unit.stop - len(OF_SCANS) : unit.stop]

    def scan_motion_columns(self, side: int) -> np.ndarray:
        """Return the columns (6,) of a lidar's motion in a scan."""
        return self.units[side].start + np.r_[self.models[side].of_scan_motion]

    def moved(self, state: State, change: np.ndarray) -> State:
        """Return a state after a change (n,) of the unknowns."""
        floor = state.floor
        if floor is not None:
            floor = incremented(floor, change[self.floor])
        return State(
            tuple(exp(change[part]) @ pose for part, pose in zip(self.poses, state.base_from_lidar, strict=True)),
            tuple(values + change[part] for part, values in zip(self.units, state.units, strict=True)),
            floor, state.curvature + change[self.curvature],
        )  # fmt: skip

    def difference(self, state: State, before: State) -> np.ndarray:
        """Return the change (n,) that leads from one state to another."""
        change = np.zeros(self.size)
        for part, after, pose in zip(self.poses, state.base_from_lidar, before.base_from_lidar, strict=True):
            change[part] = log(after @ inverse(pose))
        for part, after, values in zip(self.units, state.units, before.units, strict=True):
            change[part] = after - values
        if state.floor is not None and before.floor is not None:
            change[self.floor] = floor_between(before.floor, state.floor)
            change[self.curvature] = state.curvature - before.curvature
        return change


@dataclass(frozen=True)
class Priors:
    """The priors of the changes from the `nominal` state.

    `poses` are covariances (6, 6) of the lidars' poses about the nominal ones (None or absent: no prior; `FIXED`: the
    pose does not change); `curvature` (1/m) is a standard deviation. If `units_known`, the lidars' parameters are
    fixed.
    """

    nominal: State
    poses: Sequence[np.ndarray | None] = ()
    curvature: float = 0.0
    units_known: bool = False


@dataclass
class NormalEquations:
    """`information` (n, n) and `gradient` (n,) of |J x + r|^2 W, to be added up over blocks; `noise`
    (6 (n - 1), 6 (n - 1)) is the part of the information about the poses of all lidars but the first that is by noise
    alone, 0 where it is not known."""

    information: np.ndarray
    gradient: np.ndarray
    noise: np.ndarray | float = 0.0

    @classmethod
    def empty(cls, size: int) -> "NormalEquations":
        """Return the equations of no data."""
        return cls(np.zeros((size, size)), np.zeros(size))

    def weighing(self, share: float) -> "NormalEquations":
        """Return the same with only a share of its weight."""
        return NormalEquations(share * self.information, share * self.gradient, share * self.noise)

    def plus(self, other: "NormalEquations") -> "NormalEquations":
        """Return the sum of both; the other may lack the last columns."""
        size = len(other.gradient)
        total = NormalEquations(self.information.copy(), self.gradient.copy(), self.noise + other.noise)
        total.information[:size, :size] += other.information
        total.gradient[:size] += other.gradient
        return total

    def add_eliminating(
        self, jacobian: sparse.csr_array, pattern: np.ndarray, residuals: np.ndarray, weights: np.ndarray,
        group: np.ndarray, design: np.ndarray, weak: float, part: np.ndarray | None = None,
        part_design: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """Add rows J x + r - D c - E d, the parameters c of each row's group and d of its part of the group eliminated
        (Schur complement).

        `jacobian` (K, n) is sparse; rows one after the other with the same `pattern` (K,) have their entries in the
        same columns. `group` (K,) is the number of each row's group and `design` (K, m) its derivatives by that group's
        m parameters, whose prior precision is `weak`; `part` (K,), -1 for none, and `part_design` (K, o) are the same
        of parts, each of one group. Parts with neighbouring numbers should have their entries in the same columns.
        """
        for rows in np.split(np.arange(len(pattern)), np.flatnonzero(np.diff(pattern)) + 1):
            begin, end = jacobian.indptr[rows[0]], jacobian.indptr[rows[-1] + 1]
            columns = jacobian.indices[begin : jacobian.indptr[rows[0] + 1]]
            values = np.sqrt(weights[rows])[:, None] * jacobian.data[begin:end].reshape(len(rows), -1)
            self.information[np.ix_(columns, columns)] += values.T @ values
        self.gradient -= jacobian.T @ (weights * residuals)
        count, size = int(group.max(initial=-1)) + 1, design.shape[1]
        weighted = weights[:, None] * design
        blocks = group_sums(group, count, _products(weighted, design)).reshape(count, size, size)
        on_groups, residuals_on_groups = (
            _by_number(weighted, group, count) @ each for each in (jacobian, residuals[:, None])
        )
        if part is not None:
            rows = np.flatnonzero(part >= 0)
            part, of_parts, jacobian = part[rows], part_design[rows], jacobian[rows]
            weighted, parts, width = weights[rows, None] * of_parts, int(part.max(initial=-1)) + 1, of_parts.shape[1]
            roots = _roots_of_inverses(
                group_sums(part, parts, _products(weighted, of_parts)).reshape(parts, width, width), weak
            )
            with_group = roots @ group_sums(part, parts, _products(weighted, design[rows])).reshape(parts, width, size)
            of_group = np.zeros(parts, int)
            of_group[part] = group[rows]
            by_part = sparse.bsr_array((roots, np.arange(parts), np.arange(parts + 1))).tocsr() @ _by_number(
                weighted, part, parts
            )
            on_parts, residuals_on_parts = by_part @ jacobian, by_part @ residuals[rows]
            blocks -= group_sums(
                of_group, count, (with_group.transpose(0, 2, 1) @ with_group).reshape(parts, size * size)
            ).reshape(count, size, size)
            to_groups = _by_number(with_group.reshape(parts * width, size), np.repeat(of_group, width), count)
            on_groups = on_groups - to_groups @ on_parts
            residuals_on_groups = residuals_on_groups - to_groups @ residuals_on_parts[:, None]
        roots = sparse.bsr_array((_roots_of_inverses(blocks, weak), np.arange(count), np.arange(count + 1))).tocsr()
        rows, residuals = roots @ on_groups, (roots @ residuals_on_groups)[:, 0]
        if part is not None:
            rows, residuals = sparse.vstack([rows, on_parts]).tocsr(), np.concatenate([residuals, residuals_on_parts])
        self._subtract(rows, residuals)

    def _subtract(self, rows: sparse.csr_array, residuals: np.ndarray) -> None:
        """Subtract the normal equations of rows (K, n) with `residuals` (K,), each of weight 1."""
        self.gradient += rows.T @ residuals
        # Entries in columns that many rows have are dense.
        common = np.bincount(rows.indices, minlength=rows.shape[1]) > COMMON_FROM * rows.shape[0]
        common, others = np.flatnonzero(common), np.flatnonzero(~common)
        dense, rest = rows[:, common].toarray(), rows[:, others]
        both, products = rest.T @ dense, (rest.T @ rest).tocoo()
        self.information[np.ix_(common, common)] -= dense.T @ dense
        self.information[np.ix_(others, common)] -= both
        self.information[np.ix_(common, others)] -= both.T
        self.information[others[products.row], others[products.col]] -= products.data


def _products(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the products (K, a b) of every column of (K, a) with every one of (K, b)."""
    return (first[:, :, None] * second[:, None]).reshape(len(first), -1)


def _by_number(values: np.ndarray, number: np.ndarray, count: int) -> sparse.csr_array:
    """Return the matrix (count m, K) that sums rows weighted by each column of `values` (K, m), by `number` (K,)."""
    size = values.shape[1]
    row = (size * number)[:, None] + np.arange(size)
    column = np.repeat(np.arange(len(values)), size)
    return sparse.csr_array((values.ravel(), (row.ravel(), column)), shape=(count * size, len(values)))


def _roots_of_inverses(blocks: np.ndarray, weak: float) -> np.ndarray:
    """Return roots (G, m, m), R' R being the inverse of blocks (G, m, m) plus the precision `weak`."""
    return np.linalg.cholesky(np.linalg.inv(blocks + weak * np.eye(blocks.shape[1]))).transpose(0, 2, 1)


def columns_of(part: slice) -> np.ndarray:
    """Return the columns (n,) of a slice."""
    return np.arange(part.start, part.stop)


def sparse_rows(values: np.ndarray, columns: np.ndarray, size: int) -> sparse.csr_array:
    """Return rows (N, size) with `values` (N, C) at `columns` (N, C)."""
    count, width = values.shape
    return sparse.csr_array((values.ravel(), columns.ravel(), np.arange(count + 1) * width), shape=(count, size))


def of_relative_poses(rows: np.ndarray, pairs: np.ndarray, num_lidars: int) -> np.ndarray | sparse.csr_array:
    """Return the derivatives (K, 6 (n - 1)) by the twists of all lidars but the first of values whose derivatives by
    the twist of the second lidar of `pairs` (K, 2) relative to the first are `rows` (K, 6); sparse for more than two
    lidars."""
    if num_lidars <= 2:
        return rows * (pairs[:, 1:] - pairs[:, :1]) if num_lidars == 2 else rows[:, :0]
    columns = (6 * pairs[:, :, None] + np.arange(6)).reshape(-1, 12)
    return sparse_rows(np.hstack([-rows, rows]), columns, 6 * num_lidars)[:, 6:]


def products_of_relative_poses(
    first: np.ndarray, weights: np.ndarray, second: np.ndarray, pairs: np.ndarray, num_lidars: int
) -> np.ndarray:
    """Return F' W S (6 (n - 1), 6 (n - 1)) with F and S from `of_relative_poses` of rows (K, 6) `first` and `second`,
    and `weights` (K,)."""
    number = pairs[:, 0] * num_lidars + pairs[:, 1]
    order = np.argsort(number, kind="stable")
    ends = np.flatnonzero(np.diff(number[order], prepend=-1, append=-1))
    first, weighted = first[order], (weights[:, None] * second)[order]
    total = np.zeros((num_lidars, 6, num_lidars, 6))
    for begin, end in itertools.pairwise(ends):
        one, other = pairs[order[begin]]
        if one != other:
            products = first[begin:end].T @ weighted[begin:end]
            total[one, :, one] += products
            total[other, :, other] += products
            total[one, :, other] -= products
            total[other, :, one] -= products
    return total.reshape(6 * num_lidars, 6 * num_lidars)[6:, 6:]
