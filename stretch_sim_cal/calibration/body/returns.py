"""One pose's lidar returns held against the model's surfaces: which it explains, what is extra, what is missing.

Noise is along the ray, so a return is compared with what the model has on its ray. Single returns differ by several
sigma; the median over a small patch of the model tells a difference of two sigma from noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.body.outline import HIGHEST, LOWEST
from stretch_sim_cal.calibration.body.registration import OWN_HEAD
from stretch_sim_cal.calibration.body.surface_index import SurfaceIndex
from stretch_sim_cal.calibration.body.view import RobotView, nearest_range
from stretch_sim_cal.geometry.points import group_medians, voxel_keys

PATCH = 0.03  # m, edge of the cells in which returns on the model are compared with it together
PATCH_RETURNS = 5
NEAR_RAY = 0.10  # m: within this of the model along the ray a return is compared by patches
FAR_SIGMAS = 3.5


@dataclass(frozen=True)
class EvidenceSettings:
    """`range_noise` (m, 1 sigma) of the lidars; `disagreement` (m) from which returns and model differ; `reach` (m)
    around the model within which returns are looked at; heights (m) between which the body counts."""

    range_noise: float = 0.01
    disagreement: float = 0.02
    reach: float = 0.5
    lowest: float = LOWEST
    highest: float = HIGHEST


@dataclass(frozen=True)
class Sighting:
    """What one pose's returns say. All arrays are over its N points.

    `on_model`: returns that the model explains; `extra`: returns in front of the model, or beside it, by more than the
    disagreement asked for; `through`: returns from behind the model's surface. The rest is room. `links` are indices
    (into the index's) of the link on the ray (or, for `extra` ones that miss the model, the nearest), -1 for none;
    `gaps` the distance (m) from the model along the ray or, where the ray misses it, in space; inf where it is far.
    `directions` (N, 3) are those of the rays, `lidars` (N,) which lidar saw them, where that is known.
    """

    points: np.ndarray
    on_model: np.ndarray
    extra: np.ndarray
    through: np.ndarray
    links: np.ndarray
    gaps: np.ndarray
    directions: np.ndarray
    lidars: np.ndarray | None


def compare(
    points: np.ndarray,
    lidars: np.ndarray | None,
    above_floor: np.ndarray,
    view: RobotView,
    index: SurfaceIndex,
    footprint_from_link: Mapping[str, np.ndarray],
    settings: EvidenceSettings,
) -> Sighting:
    """Return what the returns (N, 3) of one pose, in the model's base_footprint, say of the model.

    `lidars` (N,) tells which lidar saw each (or None), `above_floor` (N,) which may be extra; the others, the floor's,
    only show where the model is seen through.
    """
    range_noise, disagreement, reach = settings.range_noise, settings.disagreement, settings.reach
    ahead, normals, links, directions = view.ahead(points, lidars)
    number = {link: i for i, link in enumerate(index.links)}
    links = np.array([number[link] for link in view.links] + [-1])[links]
    across = np.where(np.isfinite(ahead), ahead, 0.0) * np.abs((normals * directions).sum(axis=1))
    close = np.abs(ahead) < NEAR_RAY
    patch_medians = _patch_medians(points + np.where(close, ahead, 0.0)[:, None] * directions, across, links, close)
    far = np.maximum(disagreement, FAR_SIGMAS * range_noise)
    in_front = close & ((patch_medians > disagreement) | ((across > far) & (ahead > far)))
    behind = (ahead < -far) | (close & (patch_medians < -disagreement))
    # A lidar that is not quite where the description has it may start on the wrong side of its own collar.
    behind &= nearest_range(points, view.origins) + ahead > OWN_HEAD

    # Rays that miss the model, or pass well in front of it: how near are they in space?
    beside = above_floor & (ahead >= NEAR_RAY) & _around(points, footprint_from_link, index, reach)
    candidates = np.flatnonzero(beside | in_front)
    found = index.closest(points[candidates], footprint_from_link, reach_of(disagreement, range_noise))
    gaps, nearest = np.full(len(points), np.inf), links.copy()
    gaps[candidates] = found.distances
    touching = found.links >= 0
    nearest[candidates[touching]] = found.links[touching]
    extra = np.zeros(len(points), dtype=bool)
    extra[candidates] = found.distances > disagreement
    extra |= in_front & (patch_medians > disagreement)
    extra &= above_floor
    on_model = (close & ~extra & ~behind) | ((gaps <= disagreement) & ~extra)
    gaps[on_model] = np.abs(across[on_model])
    return Sighting(points, on_model, extra, behind & ~on_model, nearest, gaps, directions, lidars)


def reach_of(disagreement: float, range_noise: float) -> float:
    """Return how far from the model (m) distances in space are measured exactly; beyond, a return is just apart."""
    return 2 * disagreement + FAR_SIGMAS * range_noise


def _patch_medians(places: np.ndarray, values: np.ndarray, links: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return for each point the median value (N,) of those on the same link and patch; 0 where they are too few."""
    result = np.zeros(len(values))
    where = np.flatnonzero(chosen)
    if not len(where):
        return result
    # The key's lowest bits are the cell along z, which stays far below 2^20: the link's number goes on top of them.
    keys = voxel_keys(places[where], PATCH) + (links[where].astype(np.int64) << 13)
    _, patch, counts = np.unique(keys, return_inverse=True, return_counts=True)
    medians = group_medians(patch, counts, values[where])
    result[where] = np.where(counts >= PATCH_RETURNS, medians, 0.0)[patch]
    return result


def _around(points, footprint_from_link, index: SurfaceIndex, reach: float) -> np.ndarray:
    """Return which points (N, 3) are within the box around the model, `reach` (m) larger on all sides."""
    low, high = index.bounds(footprint_from_link)
    return ((points > low - reach) & (points < high + reach)).all(axis=1)
