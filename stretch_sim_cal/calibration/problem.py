"""The calibration as one least-squares problem: its unknowns, the state that they update, and its priors.

    minimise over x   sum_blocks |J x + r|^2_W + |x - prior|^2

The unknowns x are small changes of a `State`: a twist of each lidar in base_link, the floor's plane and curvature, the
parameters of each lidar's error model (`sensor/unit.py`), and further ones of a residual block.
Residual blocks add their normal equations: patches of the room and of the floor (`room.py`, whose planes are eliminated
patch by patch, by the Schur complement) and the robot's surfaces (`mounts/residuals.py`). `solver.py` adds the priors
and solves.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.normal_equations import columns_of
from stretch_sim_cal.geometry.planes import Plane, floor_between, height_slopes, incremented
from stretch_sim_cal.geometry.transforms import exp, inverse, log
from stretch_sim_cal.sensor.unit import CHANNEL_KINDS, OF_SCANS, SCALARS, ErrorModel

LEFT, RIGHT, FLOOR, CURVATURE = slice(0, 6), slice(6, 12), slice(12, 15), slice(15, 18)
POSES = (LEFT, RIGHT)
FIRST_UNIT = 18
# The covariance of a pose that does not vary.
FIXED = np.zeros((6, 6))
# Standard deviations of the poses' and the floor's changes if nothing else constrains them: 1 m, 1 rad.
UNKNOWN = 1.0


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
    """The columns of the problem, in this order: twists of two lidars, floor, curvature, the units' parameters, twists
    of further lidars, and `others`, so many further unknowns of a residual block."""

    def __init__(self, models: tuple[ErrorModel, ...], others: int = 0):
        self.models = models
        ends = FIRST_UNIT + np.cumsum([0, *(model.size for model in models)])
        self.units = tuple(slice(int(first), int(end)) for first, end in itertools.pairwise(ends))
        further = [slice(first, first + 6) for first in range(int(ends[-1]), int(ends[-1]) + 6 * (len(models) - 2), 6)]
        self.poses = (*POSES, *further)[: len(models)]
        self.others = slice(int(ends[-1]) + 6 * len(further), int(ends[-1]) + 6 * len(further) + others)
        self.size = self.others.stop

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
        """Return the columns (N, 33) of the parameters that all channels share, and of the three of each of the
        channels (N,)."""
        common = self.common_columns(side)
        start, count = self.units[side].start + len(SCALARS), self.models[side].num_channels
        channels = (start + channel)[:, None] + count * np.arange(len(CHANNEL_KINDS))
        return np.hstack([np.broadcast_to(common, (len(channel), len(common))), channels])

    def common_columns(self, side: int) -> np.ndarray:
        """Return the columns (30,) of a lidar's scalars and of `OF_SCANS`."""
        unit = self.units[side]
        return np.r_[unit.start : unit.start + len(SCALARS), unit.stop - len(OF_SCANS) : unit.stop]

    def scan_motion_columns(self, side: int) -> np.ndarray:
        """Return the columns (6,) of a lidar's motion in a scan."""
        return self.units[side].start + np.r_[self.models[side].of_scan_motion]

    def moved(self, state: State, change: np.ndarray) -> State:
        """Return a state after a change (n,) of the unknowns."""
        floor = state.floor
        if floor is not None:
            floor = incremented(floor, change[FLOOR])
        return State(
            tuple(exp(change[part]) @ pose for part, pose in zip(self.poses, state.base_from_lidar, strict=True)),
            tuple(values + change[part] for part, values in zip(self.units, state.units, strict=True)),
            floor, state.curvature + change[CURVATURE],
        )  # fmt: skip

    def difference(self, state: State, before: State) -> np.ndarray:
        """Return the change (n,) that leads from one state to another."""
        change = np.zeros(self.size)
        for part, after, pose in zip(self.poses, state.base_from_lidar, before.base_from_lidar, strict=True):
            change[part] = log(after @ inverse(pose))
        for part, after, values in zip(self.units, state.units, before.units, strict=True):
            change[part] = after - values
        if state.floor is not None and before.floor is not None:
            change[FLOOR] = floor_between(before.floor, state.floor)
            change[CURVATURE] = state.curvature - before.curvature
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
