"""The robot's surfaces between two heights above the floor, projected onto it: exact corners, not samples.

Surfaces are in their link's frame, and `footprint_from_link` (N, 4, 4) puts them into base_footprint (z up, floor at 0)
for N poses. Lengths in m.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from stretch_sim_cal.geometry.points import convex_hull
from stretch_sim_cal.robot.surfaces import Surface

LOWEST, HIGHEST = 0.06, 1.6
"""The heights between which the body counts: below, floor and wheels; above, nothing is met."""


class RobotOutline:
    """Projects the links' surfaces between the heights `lowest` and `highest`."""

    def __init__(self, surfaces: Mapping[str, Surface], lowest: float = LOWEST, highest: float = HIGHEST):
        self.surfaces = {link: surface for link, surface in surfaces.items() if len(surface.faces)}
        self.lowest, self.highest = lowest, highest

    def hull(self, footprint_from_link: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the corners (K, 2) of the convex hull around the robot in one pose (4, 4) or N poses (N, 4, 4) of
        every link with a surface."""
        return self.hulls(footprint_from_link)[0]

    def hulls(
        self, footprint_from_link: Mapping[str, np.ndarray], sizes: Sequence[int] | None = None
    ) -> list[np.ndarray]:
        """Return the corners (K, 2) of the hull around the robot in each of several sets of poses:
        `footprint_from_link` (N, 4, 4) of every link with a surface, in sets of successive `sizes`."""
        transforms = {link: np.reshape(footprint_from_link[link], (-1, 4, 4)) for link in self.surfaces}
        count = max((len(poses) for poses in transforms.values()), default=0)
        ends = np.cumsum([count] if sizes is None else sizes)
        starts = np.concatenate([[0], ends[:-1]])
        still, moving = [np.empty((0, 2))], [[] for _ in range(count)]
        for link, poses in transforms.items():
            if len(poses) == 1 or np.ptp(poses, axis=0).max() == 0.0:
                still += self._link_corners(self.surfaces[link], poses[:1])
            else:
                # A pose equal to the one before in the set adds nothing.
                new = np.union1d(starts, 1 + np.flatnonzero((poses[1:] != poses[:-1]).any(axis=(1, 2))))
                for index, corners in zip(new, self._link_corners(self.surfaces[link], poses[new]), strict=True):
                    moving[index].append(corners)
        base = convex_hull(np.concatenate(still))
        sets = [moving[start:end] for start, end in zip(starts, ends, strict=True)]
        return [convex_hull(np.concatenate([base, *(part for pose in poses for part in pose)])) for poses in sets]

    def _link_corners(self, surface: Surface, transforms: np.ndarray) -> list[np.ndarray]:
        """Return for each pose points (M, 2) whose hull is that of the link's projection."""
        posed = transforms[:, :3, :3] @ surface.corners.T + transforms[:, :3, 3:]  # (N, 3, M)
        low, high = posed[:, 2].min(axis=1), posed[:, 2].max(axis=1)
        whole = (low >= self.lowest) & (high <= self.highest)
        cut = ~whole & (high >= self.lowest) & (low <= self.highest)
        parts = [corners.T if inside else np.empty((0, 2)) for corners, inside in zip(posed[:, :2], whole, strict=True)]
        for index in np.flatnonzero(cut):
            moved = surface.vertices @ transforms[index, :3, :3].T + transforms[index, :3, 3]
            parts[index] = convex_hull(between_heights(moved[surface.faces], self.lowest, self.highest))
        return parts


def between_heights(triangles: np.ndarray, lowest: float, highest: float) -> np.ndarray:
    """Return (x, y) of all corners (M, 2) of triangles (F, 3, 3) cut to lowest <= z <= highest."""
    start, end = triangles.reshape(-1, 3), triangles[:, [1, 2, 0]].reshape(-1, 3)
    parts = [start[(start[:, 2] >= lowest) & (start[:, 2] <= highest), :2]]
    for height in (lowest, highest):
        crossing = (start[:, 2] < height) != (end[:, 2] < height)
        a, b = start[crossing], end[crossing]
        share = (height - a[:, 2]) / (b[:, 2] - a[:, 2])
        parts.append((a + share[:, None] * (b - a))[:, :2])
    return np.concatenate(parts)
