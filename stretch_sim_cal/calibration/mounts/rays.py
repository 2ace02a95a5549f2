"""Returns against the model along their rays.

Nearer than `COLLAR` m a lidar sees only the collar around its dome, which moves with it: rays begin beyond it. Rays at
the edge of a part are excluded, since whether they hit it depends on the pose: their neighbours meet another surface.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stretch_sim_cal.calibration.body.returns import PosedTriangles, RobotView
from stretch_sim_cal.calibration.mounts.result import MountSample
from stretch_sim_cal.geometry.transforms import apply, exp
from stretch_sim_cal.robot.surfaces import Surface

COLLAR = 0.10  # m
REACH = 2.2  # m: no part of a robot is farther from its lidars
AROUND = 0.15  # m around the model's box, in which returns are used
EDGE = 0.006  # m, the bound of a neighbouring ray's hit from the plane of the ray's hit
BEYOND, CLOSE = 1e-4, 0.006  # m behind a surface: where it is left, and where a surface of another link is too close


@dataclass(frozen=True)
class LidarRays:
    """Returns of a lidar in its frame: `points` (N, 3), and the `origins` (N, 3) of their rays, by default the
    frame's."""

    points: np.ndarray
    origins: np.ndarray | float = 0.0

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True)
class Matches:
    """The M returns of one lidar in one sample whose rays meet the model.

    `points` (M, 3) are in base_link, `hits` (M, 3) where their rays, from `origins` (M, 3), meet the model; `distances`
    (M,) of the points from the plane there, positive in front of it; `normals` (M, 3), against the ray; `incidence`
    (M,) the cosine between both; `links` (M,) indices of the model's links; `indices` (M,) of the returns.
    """

    points: np.ndarray
    origins: np.ndarray
    hits: np.ndarray
    distances: np.ndarray
    normals: np.ndarray
    incidence: np.ndarray
    links: np.ndarray
    indices: np.ndarray

    def chosen(self, keep: np.ndarray) -> "Matches":
        """Return those of a mask (M,)."""
        return Matches(*(array[keep] for array in vars(self).values()))

    def without_incidence(self, error: float) -> "Matches":
        """Return the matches with a lidar's error by incidence (m) subtracted from the distances."""
        return replace(self, distances=self.distances + error * (1.0 - self.incidence))

    def by_twist(self, about: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Return how the distances change (M, 6) with a twist of the lidar about a point (3,), and the distances."""
        return np.hstack([self.normals, np.cross(self.hits - about, self.normals)]), self.distances

    @property
    def along(self) -> np.ndarray:
        """Distances (M,), in m, of the returns beyond the model along the rays, negative in front of it."""
        return -self.distances / self.incidence


class PosedSample:
    """One sample with the model's surfaces in its pose, with joint offsets."""

    def __init__(
        self, sample: MountSample, surfaces: Mapping[str, Surface], offsets: Mapping[str, float],
        number: int | None = None,
    ):  # fmt: skip
        """`number` is the index among several samples, whose readings have errors of their own."""
        self.sample, self.number = sample, number
        self.base_from_link = {link: _offset(sample, link, offsets) for link in surfaces}
        self._view = RobotView([PosedTriangles(surfaces, self.base_from_link, list(surfaces))])
        corners = np.concatenate([apply(self.base_from_link[link], s.corners) for link, s in surfaces.items()])
        self._low, self._high = corners.min(axis=0) - AROUND, corners.max(axis=0) + AROUND

    def around(self, name: str, base_from_lidar: np.ndarray) -> np.ndarray:
        """Return the returns of a lidar, (N, 3 or 5) in its frame, that may be of the robot."""
        cloud = self.sample.clouds[name]
        ranges = np.linalg.norm(cloud[:, :3], axis=1)
        cloud = cloud[(ranges > COLLAR) & (ranges < REACH)]
        seen = apply(base_from_lidar, cloud[:, :3])
        return cloud[((seen > self._low) & (seen < self._high)).all(axis=1)]

    def match(self, rays: LidarRays, base_from_lidar: np.ndarray, gate: float, grazing: float) -> Matches:
        """Return the returns within `gate` (m) of the model along their rays, with a cosine of incidence above
        `grazing`."""
        points = apply(base_from_lidar, rays.points)
        origins = np.broadcast_to(apply(base_from_lidar, np.zeros(3) + rays.origins), points.shape)
        directions = _unit(points - origins)
        ahead, normals, links, _ = self._view.ahead(points, origins + COLLAR * directions)
        incidence = -(normals * directions).sum(axis=1)
        kept = np.flatnonzero((np.abs(ahead) < gate) & (incidence > grazing))
        arrays = (points, origins, directions, ahead, normals, incidence, links)
        points, origins, directions, ahead, normals, incidence, links = (array[kept] for array in arrays)
        hits = points + ahead[:, None] * directions
        return Matches(points, origins, hits, ahead * incidence, normals, incidence, links, kept)

    def inside(self, matches: Matches, angle: float, margin: float) -> np.ndarray:
        """Return a mask (M,) of the matches whose neighbours, beside the ray by the larger of `angle` (rad) and
        `margin` (m), meet the same plane."""
        directions = _unit(matches.hits - matches.origins)
        across = np.cross(directions, np.where(np.abs(directions[:, 2:]) < 0.9, [[0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0]]))
        across /= np.linalg.norm(across, axis=1)[:, None]
        ranges = np.linalg.norm(matches.hits - matches.origins, axis=1)
        slopes = np.maximum(angle, margin / ranges)[:, None]
        keep = np.ones(len(directions), dtype=bool)
        for side_step in (across, -across, (up := np.cross(directions, across)), -up):
            where = np.flatnonzero(keep)
            beside = directions[where] + slopes[where] * side_step[where]
            beside /= np.linalg.norm(beside, axis=1)[:, None]
            origins = matches.origins[where] + COLLAR * beside
            ahead, _, links, _ = self._view.ahead(origins + beside, origins)
            hits = origins + (1.0 + np.where(np.isfinite(ahead), ahead, 0.0))[:, None] * beside
            off = np.abs(((hits - matches.hits[where]) * matches.normals[where]).sum(axis=1))
            keep[where] = np.isfinite(ahead) & (links == matches.links[where]) & (off < EDGE)
        return keep

    def unambiguous(self, matches: Matches) -> np.ndarray:
        """Return a mask (M,) of the matches whose rays meet no other link just behind: of two surfaces as close as the
        links' errors, as of a tube in a tube, either may be the one that was seen."""
        directions = _unit(matches.hits - matches.origins)
        behind = matches.hits + BEYOND * directions
        ahead, _, links, _ = self._view.ahead(behind + directions, behind)
        return (1.0 + ahead > CLOSE) | (links == matches.links)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1)[:, None]


def _offset(sample: MountSample, link: str, offsets: Mapping[str, float]) -> np.ndarray:
    """Return base_from_link with the joints' offsets; their small motions are added."""
    pose, twist = sample.base_from_link[link], np.zeros(6)
    for joint, offset in offsets.items():
        if link in sample.joint_motions.get(joint, {}):
            twist = twist + offset * sample.joint_motions[joint][link]
    return exp(twist) @ pose if np.any(twist) else pose


def posed(
    samples: Sequence[MountSample], surfaces: Mapping[str, Surface],
    offsets: Sequence[Mapping[str, float]] | None = None,
) -> list[PosedSample]:  # fmt: skip
    """Return every sample with the model in its pose, the joints' `offsets` by sample."""
    by_sample = zip(samples, offsets or [{}] * len(samples), strict=True)
    return [PosedSample(sample, surfaces, of_joints, number) for number, (sample, of_joints) in enumerate(by_sample)]
