"""Whether two lidars' views can both be true under a transform: do they see the same surfaces, or through them?"""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.alignment_cells import NUM_CELLS, cell_of
from stretch_sim_cal.calibration.alignment_surfaces import Surface
from stretch_sim_cal.geometry.transforms import apply, inverse

# Two views agree on a point when their ranges differ by less than this (m, and share of the range).
TOLERANCE = 0.05
RELATIVE_TOLERANCE = 0.02


@dataclass(frozen=True)
class Consistency:
    """Shares (0 to 1) of the points whose direction the other lidar looked in: `agree` lie on what it saw, `contradict`
    lie where it looked through; the rest is hidden from it. `overlap` is the share of all points that are confirmed."""

    agree: float
    contradict: float
    overlap: float

    @property
    def score(self) -> float:
        """A number to compare transforms by: better is larger."""
        return self.overlap - 2.0 * self.contradict


def consistency(left: Surface, right: Surface, right_to_left: np.ndarray) -> Consistency:
    """Return how well both lidars' cells, each in its own frame, agree under `right_to_left` (4, 4)."""
    counts = np.sum(
        [_compare(left, right, right_to_left), _compare(right, left, inverse(right_to_left))], axis=0
    )
    agree, contradict, looked, total = counts
    return Consistency(agree / max(looked, 1), contradict / max(looked, 1), agree / max(total, 1))


def _compare(viewer: Surface, other: Surface, viewer_from_other: np.ndarray) -> np.ndarray:
    """Return how many of `other`'s points the viewer confirms, contradicts, looked towards, and how many there are.

    Every direction is compared with the nearest and the farthest thing that the viewer saw in and around it.
    """
    near, far = np.full(NUM_CELLS, np.inf), np.full(NUM_CELLS, -np.inf)
    cell = cell_of(viewer.points)
    around = viewer.ranges[viewer.neighbours]
    near[cell] = np.minimum(viewer.ranges, around.min(axis=1))
    far[cell] = np.maximum(viewer.ranges, around.max(axis=1))
    points = apply(viewer_from_other, other.points)
    ranges = np.linalg.norm(points, axis=1)
    seen = cell_of(points)
    looked = np.isfinite(near[seen])
    tolerance = TOLERANCE + RELATIVE_TOLERANCE * ranges
    contradicts = looked & (ranges < near[seen] - tolerance)
    hidden = looked & (ranges > far[seen] + tolerance)
    return np.array([np.sum(looked & ~contradicts & ~hidden), contradicts.sum(), looked.sum(), len(points)], dtype=float)
