"""The consistency of two lidars' views under a transform: whether they see the same surfaces, or through them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.surfaces import Lidar, Surface, without_body
from stretch_sim_cal.geometry.transforms import apply, inverse

# Two views agree on a point when their ranges differ by less than this (m, and share of the range).
TOLERANCE = 0.05
RELATIVE_TOLERANCE = 0.02
# Views with less in common than this agree easily.
LITTLE_OVERLAP = 0.2
# Directions are compared in a cube map of this many squared cells per face, 1.5 deg wide: wider than channels are
# apart.
FACE_CELLS = 60
NUM_DIRECTIONS = 6 * FACE_CELLS**2


def direction_of(points: np.ndarray) -> np.ndarray:
    """Return the cube map's cell (N,) that points (N, 3), none at the origin, lie in."""
    x, y, z = np.ascontiguousarray(points.T)
    ax, ay, az = np.abs(x), np.abs(y), np.abs(z)
    along_x = (ax >= ay) & (ax >= az)
    along_y = ~along_x & (ay >= az)
    major = np.where(along_x, x, np.where(along_y, y, z))
    face = np.where(along_x, 0, np.where(along_y, 2, 4)) + (major < 0)
    row = _step(np.where(along_x, y, np.where(along_y, z, x)) / np.abs(major))
    column = _step(np.where(along_x, z, np.where(along_y, x, y)) / np.abs(major))
    return (face * FACE_CELLS + row) * FACE_CELLS + column


def _step(tangent: np.ndarray) -> np.ndarray:
    """Return the numbers (N,) of the `FACE_CELLS` equally wide angles of a face that contain tangents (N,), -1 to 1."""
    angle = np.arctan(tangent)
    return np.minimum((angle * (2.0 * FACE_CELLS / np.pi) + 0.5 * FACE_CELLS).astype(np.int64), FACE_CELLS - 1)


@dataclass(frozen=True)
class Consistency:
    """Shares (0 to 1) of the points in whose direction the other lidar has returns, not hidden by the robot's body:
    `agree` lie on a surface that it saw, `contradict` in front of it; the rest is hidden. `overlap` is the share of all
    points that are confirmed."""

    agree: float
    contradict: float
    overlap: float

    @property
    def score(self) -> float:
        """For comparisons of transforms; larger is better."""
        return self.agree - 3.0 * self.contradict - 10.0 * max(0.0, LITTLE_OVERLAP - self.overlap)


class Views:
    """The views of both lidars, each in its frame, for comparisons under many transforms."""

    def __init__(self, left: "Surface | View", right: "Surface | View"):
        self._left, self._right = (View(each) if isinstance(each, Surface) else each for each in (left, right))

    def under(self, right_to_left: np.ndarray, every: int = 1, leniency: float = 1.0) -> Consistency:
        """Return the consistency under `right_to_left` (4, 4), by each n-th cell if `every` is n, and with `leniency`
        times the tolerance."""
        counts = self._left.compare(apply(right_to_left, self._right.points[::every]), leniency)
        counts = counts + self._right.compare(apply(inverse(right_to_left), self._left.points[::every]), leniency)
        agree, contradict, looked, total = counts.tolist()
        return Consistency(agree / max(looked, 1), contradict / max(looked, 1), agree / max(total, 1))

    def shared(self, right_to_left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return masks of the left (M,) and right cells (N,) that the other lidar confirms under `right_to_left`."""
        return (
            self._right.classify(apply(inverse(right_to_left), self._left.surface.points), 1.0)[0],
            self._left.classify(apply(right_to_left, self._right.surface.points), 1.0)[0],
        )


def seen_by_another(
    lidars: Sequence[Lidar], poses: Sequence[np.ndarray], pairs: Sequence[tuple[int, int]], settings: AlignmentSettings
) -> tuple[tuple["View", ...], tuple[Lidar, ...]]:
    """Return the views of all lidars, with the robot's body not usable if `settings.base_from_left` is known, and the
    lidars with only the cells that another one of their `pairs` confirms under their `poses` (4, 4) in the first one's
    frame."""
    surfaces = tuple(lidar.surface for lidar in lidars)
    if settings.base_from_left is not None:
        surfaces = tuple(
            without_body(surface, settings.base_from_left @ pose, settings)
            for surface, pose in zip(surfaces, poses, strict=True)
        )
    views = tuple(map(View, surfaces))
    return views, tuple(
        Lidar(view.surface, lidar.model).only(confirmed)
        for view, lidar, confirmed in zip(views, lidars, confirmed_by_another(views, poses, pairs), strict=True)
    )


def confirmed_by_another(
    views: Sequence["View"], poses: Sequence[np.ndarray], pairs: Iterable[tuple[int, int]]
) -> list[np.ndarray]:
    """Return by view a mask (M,) of its cells that another one of its `pairs` confirms under the `poses` (4, 4)."""
    seen = [np.zeros(len(view.surface.points), bool) for view in views]
    for pair in pairs:
        both = Views(*(views[lidar] for lidar in pair))
        for lidar, confirmed in zip(pair, both.shared(between(poses, pair)), strict=True):
            seen[lidar] |= confirmed
    return seen


def between(poses: Sequence[np.ndarray], pair: tuple[int, int]) -> np.ndarray:
    """Return the transform (4, 4) that maps the second lidar's points of a pair into the first one's frame."""
    first, second = (poses[lidar] for lidar in pair)
    return second if np.array_equal(first, np.eye(4)) else inverse(first) @ second


class View:
    """The nearest and the farthest range of a lidar in and around every direction, the robot's body before it, and the
    usable points (M, 3)."""

    def __init__(self, surface: Surface):
        ranges = surface.ranges
        around = ranges[surface.neighbours]
        direction = direction_of(surface.points)
        self.surface = surface
        # Directions that changed for a while confirm and contradict nothing.
        still = surface.disturbed == 0
        self.points = surface.points[surface.usable & still]
        self._near, self._far = np.full(NUM_DIRECTIONS, np.inf), np.full(NUM_DIRECTIONS, -np.inf)
        self._body = np.full(NUM_DIRECTIONS, np.inf)
        of_body = np.flatnonzero(~surface.usable)
        for of_cell in (of_body, *surface.neighbours[of_body].T):
            np.minimum.at(self._body, direction[of_cell], ranges[of_body])
        self._body[direction[~still]] = 0.0
        np.minimum.at(self._near, direction, np.minimum(ranges, around.min(axis=1)))
        np.maximum.at(self._far, direction, np.maximum(ranges, around.max(axis=1)))

    def classify(self, points: np.ndarray, leniency: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return masks (N,) of the points (N, 3) that this view confirms, contradicts, and has returns towards."""
        ranges = np.linalg.norm(points, axis=1)
        direction = direction_of(points)
        looked = np.isfinite(self._near[direction]) & (ranges < self._body[direction])
        tolerance = leniency * (TOLERANCE + RELATIVE_TOLERANCE * ranges)
        contradicts = looked & (ranges < self._near[direction] - tolerance)
        hidden = looked & (ranges > self._far[direction] + tolerance)
        return looked & ~contradicts & ~hidden, contradicts, looked

    def compare(self, points: np.ndarray, leniency: float) -> np.ndarray:
        """Return the numbers of points (N, 3) that this view confirms, contradicts, has returns towards, and of all."""
        return np.array([np.count_nonzero(mask) for mask in self.classify(points, leniency)] + [len(points)])
