"""Results of alignment and floor: the estimate, its covariance, its support, and whether it may be used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import block_diag

from stretch_sim_cal.calibration.calibration_file import ARRAY, ONE_LIDAR
from stretch_sim_cal.calibration.finding import Checked, Finding, coded
from stretch_sim_cal.calibration.observability import Direction
from stretch_sim_cal.calibration.observations import FloorByUnits, Observations, by_poses
from stretch_sim_cal.geometry.planes import Plane
from stretch_sim_cal.geometry.transforms import adjoint, inverse


@dataclass(frozen=True)
class AlignmentResult(Checked):
    """The transform between the two lidars, with its covariance. `right_to_left` (4, 4) maps points of the right
    lidar's frame into the left's. `covariance` (6, 6) is over the twist (tx, ty, tz, rx, ry, rz) in m and rad with
    `true = exp(twist) @ right_to_left`, in the left frame. `rmse` (m) is the root mean square distance between the two
    lidars' surfaces; `overlap` (0 to 1) the part of the right lidar's view that the left one sees too. `observations`,
    if a method has them, are for later stages."""

    right_to_left: np.ndarray
    covariance: np.ndarray
    rmse: float
    num_frames: int
    method: str
    overlap: float
    directions: list[Direction]
    observations: Observations | None = field(default=None, repr=False)

    @property
    def known(self) -> Observations:
        """The observations for later stages: the method's, or the transform by its covariance."""
        return self.observations or Observations.of_known_poses((self.right_to_left,), self.covariance)


@dataclass(frozen=True)
class Support:
    """The floor around the robot that supports the plane. `area` (m2); `gap` (rad) the widest angle around the robot
    without support and `gap_bearing` (rad) its middle; `level_share` (0 to 1) the part of the floor around the robot
    that lies on the plane; `unevenness` (m) the standard deviation of the supporting floor's shape, noise removed;
    `nearest` (m) its smallest distance from the robot."""

    area: float
    gap: float
    gap_bearing: float
    level_share: float
    unevenness: float
    nearest: float = 0.0


@dataclass(frozen=True)
class FloorResult(Checked):
    """The floor in base_link, and base_footprint on it.

    `footprint_from_base` (4, 4) maps base_link into base_footprint; `plane` is the floor in base_link with
    `normal . p + offset = 0`, its normal up, so `offset` is the height of base_link's origin over the floor.
    `covariance` (3, 3) is over (height at base_link's origin along the normal in m, tilt about base x, tilt about base
    y in rad), true minus estimate; a tilt a turns the normal n to n + a x n. `rmse` (m) is the root mean square
    distance of the fitted returns to the plane; `by_units` is its dependence on the lidars' errors, `systematic` (3, 3)
    the part of the covariance by the floor's shape.
    """

    footprint_from_base: np.ndarray
    plane: Plane
    covariance: np.ndarray
    rmse: float
    num_frames: int
    num_inliers: int
    method: str
    support: Support | None = None
    by_units: FloorByUnits | None = field(default=None, repr=False)
    systematic: np.ndarray | None = field(default=None, repr=False)


@dataclass(frozen=True)
class SeenPair:
    """The common view of two lidars: their `names`, the `overlap`, the share (0 to 1) of both views that the other
    confirms, and, if they do not tie each other, the `refusals` with the reasons."""

    names: tuple[str, str]
    overlap: float
    refusals: list[Finding] = field(default_factory=list)

    @property
    def used(self) -> bool:
        """Whether the two tie each other."""
        return not self.refusals


@dataclass(frozen=True)
class LidarPoses(Checked):
    """The relative poses of a robot's lidars.

    `base_from_lidar` are their poses (4, 4) by name and `pose_covariance` (6 n, 6 n) is over their twists in base_link
    in the same order, true = exp(twist) @ pose; without known mounts the first lidar has its described pose, and the
    others are relative to it. `pairs` are the common views of every two of them, `rmse` (m) the root mean square
    distance between their surfaces, `diagnostics` the lidars' errors and other figures, `method` the method's name.
    `directions` (of two lidars) have the standard deviation of each direction of their transform. `floor` is that of
    an estimate that includes it, with its refusals. `observations` are for later stages.
    """

    base_from_lidar: dict[str, np.ndarray]
    pose_covariance: np.ndarray
    pairs: list[SeenPair]
    num_frames: int
    rmse: float
    method: str = ARRAY
    directions: list[Direction] = field(default_factory=list)
    floor: FloorResult | None = None
    observations: Observations | None = field(default=None, repr=False)

    @classmethod
    def of_one_lidar(cls, name: str, base_from_lidar: np.ndarray) -> "LidarPoses":
        """Return the result for a robot with one lidar."""
        return cls({name: base_from_lidar}, np.zeros((6, 6)), [], 0, 0.0, method=ONE_LIDAR)

    @classmethod
    def of_pairs(cls, first: str, base_from_first: np.ndarray, aligned: Mapping[str, AlignmentResult]) -> "LidarPoses":
        """Return the result of a method for two that aligned each of the other lidars, by name, with the `first` one;
        their errors count as independent. Findings name the lidar if there are several."""

        def named(sentences: Sequence[str], name: str) -> list[Finding]:
            return [coded(each) if len(aligned) == 1 else coded(each).at(f"lidar {name}") for each in sentences]

        results, to_base = list(aligned.values()), adjoint(base_from_first)
        poses = {first: base_from_first} | {
            name: base_from_first @ each.right_to_left for name, each in aligned.items()
        }
        covariance = block_diag(np.zeros((6, 6)), *(to_base @ each.covariance @ to_base.T for each in results))
        pairs = [SeenPair((first, name), each.overlap, named(each.refusals, name)) for name, each in aligned.items()]
        of_two = ("directions", "observations", "diagnostics") if len(results) == 1 else ()
        return cls(
            poses, covariance, pairs, results[0].num_frames, max(each.rmse for each in results), results[0].method,
            refusals=[finding for pair in pairs for finding in pair.refusals],
            warnings=[finding for name, each in aligned.items() for finding in named(each.warnings, name)],
            **{name: getattr(results[0], name) for name in of_two},
        )  # fmt: skip

    def in_order(self, names: Sequence[str]) -> "LidarPoses":
        """Return the same poses with the lidars in another order."""
        columns = np.concatenate([6 * self.names.index(name) + np.arange(6) for name in names])
        poses = {name: self.base_from_lidar[name] for name in names}
        return replace(self, base_from_lidar=poses, pose_covariance=self.pose_covariance[np.ix_(columns, columns)])

    @property
    def names(self) -> tuple[str, ...]:
        """The lidars' names, in the order in which they were given."""
        return tuple(self.base_from_lidar)

    @property
    def first_two(self) -> tuple[str, str]:
        """The names of the first two lidars, which a file calls left and right; the same one twice of one lidar."""
        return self.names[0], self.names[min(1, len(self.names) - 1)]

    def transform(self, target: str, source: str) -> np.ndarray:
        """Return the transform (4, 4) from lidar `source` to lidar `target`; the identity, exactly, of one lidar."""
        if target == source:
            return np.eye(4)
        target_from_source: np.ndarray = inverse(self.base_from_lidar[target]) @ self.base_from_lidar[source]
        return target_from_source

    def covariance(self, target: str, source: str) -> np.ndarray:
        """Return the covariance (6, 6) of `transform`, in the target's frame, `true = exp(xi) @ transform`."""
        return self.covariance_between(target, source, source)

    def covariance_between(self, target: str, source: str, other: str) -> np.ndarray:
        """Return the covariance (6, 6) between the twists of `transform(target, source)` and `(target, other)`."""
        changes, by_both = np.zeros((2, 6, 6 * len(self.names))), by_poses(self.base_from_lidar[target])
        for change, name in zip(changes, (source, other), strict=True):
            for lidar, part in ((target, by_both[:, :6]), (name, by_both[:, 6:])):
                change[:, 6 * self.names.index(lidar) :][:, :6] += part
        covariance: np.ndarray = changes[0] @ self.pose_covariance @ changes[1].T
        return covariance

    @property
    def to_first(self) -> dict[str, np.ndarray]:
        """The transforms (4, 4) of all lidars but the first into its frame, by name."""
        first, *others = self.names
        return {name: self.transform(first, name) for name in others}

    @property
    def covariance_to_first(self) -> np.ndarray:
        """The covariance (6 (n - 1), 6 (n - 1)) of the twists of `to_first`, in its order, in the first one's frame."""
        change = by_poses(self.base_from_lidar[self.names[0]], len(self.names) - 1)
        covariance: np.ndarray = change @ self.pose_covariance @ change.T
        return covariance

    @property
    def known(self) -> Observations | None:
        """Observations for later stages: the estimate's, or the transforms by their covariance; None of one lidar."""
        if self.observations is not None or len(self.names) == 1:
            return self.observations
        return Observations.of_known_poses(tuple(self.to_first.values()), self.covariance_to_first, self.names)

    def aligned(self, target: str, source: str) -> AlignmentResult:
        """Return the transform between two lidars, with the findings on all of them; directions and observations are of
        all lidars in their order, and so only of two."""
        overlaps = (pair.overlap for pair in self.pairs if set(pair.names) == {target, source})
        of_all = (target, source) == self.names
        return AlignmentResult(
            self.transform(target, source), self.covariance(target, source), self.rmse, self.num_frames, self.method,
            next(overlaps, float(target == source)), self.directions if of_all else [],
            self.observations if of_all else None, warnings=list(self.warnings), refusals=list(self.refusals),
            diagnostics=self.diagnostics,
        )  # fmt: skip
