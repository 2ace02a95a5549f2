"""The published floor method, written anew from its public description, as the peer to compare with.

Clouds of both lidars are brought into base_link and pooled. The tallest bin of a histogram of heights over the whole
cloud is taken for the floor; then a plane is fitted by singular value decomposition to the points within a threshold of
the last plane, the threshold falling from 10 cm to 3 cm.
"""

import numpy as np

from stretch_sim_cal.geometry.planes import Plane
from stretch_sim_cal.geometry.transforms import apply

BIN = 0.02  # m
THRESHOLDS = (0.10, 0.08, 0.06, 0.05, 0.04, 0.03)  # m
CONVERGED = 1e-6
MAX_ITERATIONS = 20


class PublishedFloor:
    """The method behind the same three calls as ours; `plane` is in base_link."""

    def __init__(self, base_from_left: np.ndarray, right_to_left: np.ndarray):
        self._poses = base_from_left, base_from_left @ right_to_left
        self._clouds: list[np.ndarray] = []

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        for pose, points in zip(self._poses, (left, right), strict=True):
            self._clouds.append(apply(pose, points[np.isfinite(points).all(axis=1)]))

    def solve(self) -> Plane:
        cloud = np.concatenate(self._clouds)
        heights = cloud[:, 2]
        counts, edges = np.histogram(heights, bins=np.arange(heights.min(), heights.max() + BIN, BIN))
        tallest = int(np.argmax(counts))
        plane = Plane(np.array([0.0, 0.0, 1.0]), -0.5 * float(edges[tallest] + edges[tallest + 1]))
        for threshold in THRESHOLDS:
            plane = _fit(cloud, plane, threshold)
        for _ in range(MAX_ITERATIONS):
            last, plane = plane, _fit(cloud, plane, THRESHOLDS[-1])
            if abs(plane.offset - last.offset) < CONVERGED and np.abs(plane.normal - last.normal).max() < CONVERGED:
                break
        return plane


def _fit(cloud: np.ndarray, plane: Plane, threshold: float) -> Plane:
    inliers = cloud[np.abs(plane.distance(cloud)) < threshold]
    centre = inliers.mean(axis=0)
    # The right singular vector of the smallest singular value, by way of the 3x3 scatter matrix.
    _, _, axes = np.linalg.svd((inliers - centre).T @ (inliers - centre))
    normal = axes[2]
    return Plane(normal, float(-normal @ centre)).facing(np.array([0.0, 0.0, 1.0]))
