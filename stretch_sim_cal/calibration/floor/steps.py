"""A step of a few millimetres through the floor: two levels with the fitted plane between them.

Neither level is an outlier, and the patches' heights scatter about the plane as on an uneven floor. So the straight
line is sought whose sides differ most significantly in height. It is a step if it explains the residuals of the plane
better than curvature. The robot stands on one side.
"""

from dataclasses import dataclass

import numpy as np

ANGLES = 24  # over half a turn
REACH, SPACING = 2.5, 0.1  # m: how far from the robot lines are sought, and how far apart
GATE = 0.006  # m beyond noise; patches farther off the plane are another level to every method
LEAST_NOISE = 0.0003  # m; patches need not agree better
LEAST_STEP = 0.0008  # m; lower ones do little harm
SIGNIFICANCE = 25.0  # chi square of one height, at the best of a thousand lines; on even floors it is 6 to 10
SUSPICION = 12.0  # from here on there may be a step that is not seen
EXPLAINS = 0.5  # of the squared residuals beyond chance at most this part may remain
LEAST_SHARE = 0.1  # of the patches on either side

DIRECTIONS = ("ahead", "ahead to the left", "to the left", "behind to the left",
              "behind", "behind to the right", "to the right", "ahead to the right")  # fmt: skip


def direction_in_words(bearing: float) -> str:
    """Return a bearing (rad, 0 ahead, positive to the left) as one of eight directions."""
    return DIRECTIONS[int(np.round(bearing / (np.pi / 4))) % 8]


@dataclass(frozen=True)
class Step:
    """A line at `distance` (m) from the robot in the direction `bearing` (rad), beyond which the floor is `height` (m)
    higher."""

    distance: float
    bearing: float
    height: float

    def beyond(self, places: np.ndarray) -> np.ndarray:
        """Return how far (N,), in m, places (N, 2) lie beyond the line; negative on the robot's side."""
        return places @ np.array([np.cos(self.bearing), np.sin(self.bearing)]) - self.distance


def find_step(
    places: np.ndarray, heights: np.ndarray, noise: np.ndarray, slopes: np.ndarray, others: np.ndarray
) -> tuple[Step | None, float]:
    """Return the step in the patches, or None, and the height (m) of a step that is not significant.

    `places` (P, 2) are the patches', `heights` (P,) over a plane near the floor with standard deviations `noise` (P,),
    `slopes` (P, 3) the derivatives by the plane's increment, `others` (P, K) those by other possible causes.
    """
    near = np.abs(heights) < GATE + 3.0 * noise
    places, heights, slopes, others = places[near], heights[near], slopes[near], others[near]
    scale = 1.0 / np.hypot(noise[near], LEAST_NOISE)
    normals, distances = _lines()
    sides = (places @ normals.T)[:, :, None] > distances  # (P, lines' normals, distances)
    sides = sides.reshape(len(places), -1)
    share = sides.mean(axis=0)
    sides = (sides & (share > LEAST_SHARE) & (share < 1.0 - LEAST_SHARE)).astype(float)

    plane = np.linalg.qr(slopes * scale[:, None])[0]
    left_over = _without(plane, (heights * scale)[:, None])[:, 0]
    columns = _without(plane, sides * scale[:, None])
    lengths = np.einsum("pl,pl->l", columns, columns)
    steps = columns.T @ left_over / np.maximum(lengths, 1e-12)
    explained = np.where(lengths > 1e-6, steps**2 * lengths, 0.0)
    best = int(np.argmax(explained))
    excess = float(left_over @ left_over) - len(heights)
    if explained[best] < SUSPICION or excess - explained[best] > EXPLAINS * excess:
        return None, 0.0
    otherwise = np.linalg.qr(_without(plane, others * scale[:, None]))[0]
    if np.sum((otherwise.T @ left_over) ** 2) > explained[best]:
        return None, 0.0
    if explained[best] < SIGNIFICANCE or abs(steps[best]) < LEAST_STEP:
        return None, float(abs(steps[best]))
    normal, distance = normals[best // len(distances)], float(distances[best % len(distances)])
    sign = 1.0 if distance >= 0 else -1.0
    return Step(sign * distance, float(np.arctan2(*(sign * normal)[::-1])), sign * float(steps[best])), 0.0


def _lines() -> tuple[np.ndarray, np.ndarray]:
    """Return unit normals (ANGLES, 2) of lines, and their distances (D,) from the robot along them."""
    angles = np.arange(ANGLES) * np.pi / ANGLES
    return np.column_stack([np.cos(angles), np.sin(angles)]), np.arange(-REACH, REACH + SPACING / 2, SPACING)


def _without(basis: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return columns (P, L) less their parts in an orthonormal basis (P, K)."""
    return columns - basis @ (basis.T @ columns)
