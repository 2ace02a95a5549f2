"""What has to be enclosed at each arm extension and wrist yaw: evidence of the samples there, and the known outline.

Joints that the shape does not depend on are covered by the union over the samples, and where the outline is known at
any joint values, also over what lies between their values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import convex_hull

JOINTS = ("lift", "arm", "wrist_yaw", "wrist_pitch", "wrist_roll")
"""The joints of a pose, in the order of arrays of poses (N, 5); `arm` is the whole extension. m or rad."""
ARM, YAW = 1, 2
STEPS = np.array([0.25, 0.05, 0.2, 0.2, 0.2])  # m or rad: how closely the union over a joint is taken
MAX_POSES = 200  # of one union; steps are widened where there would be more
SAME_VALUE = 1e-6
ROUNDING = 1e-8  # m: hulls are rounded to this, so that results do not depend on a processor's last bits
STRAIGHT = 1e-7  # m, by which a corner may be beside a straight edge

OutlinesAt = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""Gives for sets of commanded poses (N, 5) the corners (K, 2) of the hull around the robot in all poses of each set."""


@dataclass(frozen=True)
class PoseEvidence:
    """What the robot covers in one pose: points (K, 2) in base_footprint at the commanded values of `JOINTS`."""

    name: str
    commanded: Mapping[str, float]
    points: np.ndarray

    @property
    def pose(self) -> np.ndarray:
        """The commanded values (5,) in the order of `JOINTS`."""
        return np.array([self.commanded[joint] for joint in JOINTS])


class EvidenceGrid:
    """Hulls to enclose over extension and yaw; `axes` are the values that the samples were taken at.

    An axis that the shape is not to depend on, or that has one value only, has the first of its values.
    """

    def __init__(
        self,
        samples: Sequence[PoseEvidence],
        arm_dependent: bool = True,
        yaw_dependent: bool = True,
        outlines_at: OutlinesAt | None = None,
    ):
        self._samples = list(samples)
        self._outlines_at = outlines_at
        self._poses = np.array([sample.pose for sample in samples])
        self._dependent = np.array([arm_dependent, yaw_dependent])
        values = [_distinct(self._poses[:, joint]) for joint in (ARM, YAW)]
        self._dependent &= [len(v) > 1 for v in values]
        self.axes = tuple(v if depends else v[:1] for v, depends in zip(values, self._dependent, strict=True))
        self._hulls: dict[tuple[float, float], np.ndarray] = {}
        self._unions: dict[tuple[tuple[float, float], ...], np.ndarray] = {}
        self.warnings = self._missing()

    def covered_ranges(self) -> dict[str, tuple[float, float]]:
        """Return the lowest and highest commanded value of every joint."""
        lowest, highest = self._poses.min(axis=0).tolist(), self._poses.max(axis=0).tolist()
        return {joint: (lowest[i], highest[i]) for i, joint in enumerate(JOINTS)}

    def hull(self, extension: float, yaw: float) -> np.ndarray:
        """Return the corners (K, 2) of what has to be enclosed at an extension (m) and yaw (rad)."""
        return self.hulls([(extension, yaw)])[0]

    def hulls(self, places: Sequence[tuple[float, float]]) -> list[np.ndarray]:
        """Return the hull at each of several (extension, yaw); the outlines of all are asked for at once."""
        new = [place for place in dict.fromkeys(_key(place) for place in places) if place not in self._hulls]
        known = self._outlines_at([self._union_of_poses(place) for place in new]) if new and self._outlines_at else None
        for index, place in enumerate(new):
            outline = known[index] if known is not None else np.empty((0, 2))
            seen = [self._samples[i].points for i in self._members(place)]
            self._hulls[place] = _settled_hull(np.concatenate([outline, *seen]))
        return [self._hulls[_key(place)] for place in places]

    def _members(self, place: tuple[float, float]) -> np.ndarray:
        """Return the indices of the samples that were taken at this place (at any, on axes without dependence)."""
        off = np.abs(self._poses[:, [ARM, YAW]] - place) > SAME_VALUE
        return np.flatnonzero(~(off & self._dependent).any(axis=1))

    def _union_of_poses(self, place: tuple[float, float]) -> np.ndarray:
        """Return the poses (N, 5) whose outlines have to be enclosed together at this place.

        The other joints take the values of the samples at the grid points around it, and values between these.
        """
        corners = tuple((e, y) for e in _around(self.axes[0], place[0]) for y in _around(self.axes[1], place[1]))
        if corners not in self._unions:
            members = np.unique(np.concatenate([self._members(corner) for corner in corners]))
            poses = self._poses[members] if len(members) else self._poses.copy()
            poses[:, np.array([ARM, YAW])[self._dependent]] = 0.0
            self._unions[corners] = with_values_between(np.unique(poses, axis=0))
        poses = self._unions[corners].copy()
        for joint, depends, at in zip((ARM, YAW), self._dependent, place, strict=True):
            if depends:
                poses[:, joint] = at
        return poses

    def _missing(self) -> list[str]:
        """Return a warning for each grid point without a sample. Raises `InputError` where nothing stands in for it."""
        places = [(e, y) for e in self.axes[0] for y in self.axes[1] if not len(self._members((e, y)))]
        names = [f"arm {e:.3f} m, wrist_yaw {y:.3f} rad" for e, y in places]
        if names and self._outlines_at is None:
            raise InputError(
                f"no sample at {'; '.join(names)}; collect it, or fit with the model's own surfaces as evidence"
            )
        return [f"no sample at {name}: the model's own surfaces alone stand for it" for name in names]


def _settled_hull(points: np.ndarray) -> np.ndarray:
    """Return the corners (K, 2) of the hull, the same ones whatever the last bits of the points (N, 2) are.

    Points are rounded to `ROUNDING`, and corners that are not a few times that beside a straight edge left out: on
    swept straight parts there are many, and whether one is a corner is a matter of the last bits.
    """
    corners = convex_hull(np.round(points / ROUNDING) * ROUNDING)
    while len(corners) > 3:
        before, after = np.roll(corners, 1, axis=0), np.roll(corners, -1, axis=0)
        edge, along = after - before, corners - before
        beside = np.abs(edge[:, 0] * along[:, 1] - edge[:, 1] * along[:, 0]) / np.hypot(*edge.T)
        flattest = int(np.round(beside / ROUNDING).argmin())
        if beside[flattest] > STRAIGHT:
            break
        corners = np.delete(corners, flattest, axis=0)
    return corners


def with_values_between(poses: np.ndarray) -> np.ndarray:
    """Return poses (N, 5) with others between neighbours, those that differ in one joint only, at `STEPS` or closer."""
    steps = STEPS
    while True:
        filled = poses
        for joint in range(poses.shape[1]):
            filled = _filled_along(filled, joint, steps[joint])
        if len(filled) <= max(MAX_POSES, len(poses)):
            return np.unique(filled, axis=0)  # in an order in which what carries others moves seldom
        steps = steps * 1.5


def _filled_along(poses: np.ndarray, joint: int, step: float) -> np.ndarray:
    others = np.delete(np.arange(poses.shape[1]), joint)
    order = np.lexsort((poses[:, joint], *poses[:, others].T))
    before, after = poses[order[:-1]], poses[order[1:]]
    gaps = after[:, joint] - before[:, joint]
    neighbours = (np.abs(after - before)[:, others] <= SAME_VALUE).all(axis=1) & (gaps > step * (1 + 1e-9))
    new = [poses]
    for start, end in zip(before[neighbours], after[neighbours], strict=True):
        count = int(np.ceil((end[joint] - start[joint]) / step - 1e-9))
        between = np.repeat(start[None], count - 1, axis=0)
        between[:, joint] = np.linspace(start[joint], end[joint], count + 1)[1:-1]
        new.append(between)
    return np.concatenate(new)


def _distinct(values: np.ndarray) -> list[float]:
    ordered = np.unique(values)
    return ordered[np.concatenate([[True], np.diff(ordered) > SAME_VALUE])].tolist()


def _around(axis: Sequence[float], at: float) -> list[float]:
    """Return the values of an increasing axis that a value lies between, or the one that it is at."""
    same = [value for value in axis if abs(value - at) <= SAME_VALUE]
    if same:
        return same
    after = int(np.clip(np.searchsorted(axis, at), 1, max(1, len(axis) - 1)))
    return [axis[after - 1], axis[min(after, len(axis) - 1)]]


def _key(place: tuple[float, float]) -> tuple[float, float]:
    return round(float(place[0]), 7), round(float(place[1]), 7)
