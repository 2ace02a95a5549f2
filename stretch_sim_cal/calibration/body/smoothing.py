"""Surfaces from noisy returns: noise is taken out along the rays, and a payload becomes the hull of what is left."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.spatial import ConvexHull, cKDTree

from stretch_sim_cal.calibration.body.outline import LinkSurface
from stretch_sim_cal.calibration.body.payload import MIN_POINTS, Thing
from stretch_sim_cal.calibration.body.returns import Sighting
from stretch_sim_cal.geometry.points import group_means, voxel_keys

SMOOTHING = 0.025  # m, radius of the neighbourhood whose plane stands for a return
EVEN = 0.007  # m: denser returns become one per cell, so that near surfaces do not outvote far ones
DEEP = 0.1  # m, of a cell along the ray, much deeper than noise
NEIGHBOURS, MOST_NEIGHBOURS = 8, 80  # of a return: at least, and at most as many as are used
MOST_SMOOTHED = 6000
GRAZING = 0.5  # cosine of incidence below which a return is moved straight to the plane
MARGIN = 0.8  # of the range noise, by which a thing's hull is grown: returns rarely are of its very corners


def payload_surface(
    thing: Thing, sightings: Sequence[Sighting], poses: Sequence[Mapping[str, np.ndarray]], range_noise: float
) -> LinkSurface:
    """Return the convex hull, in its link's frame, around a thing's returns of all poses with their noise taken out."""
    clouds, rays = [], []
    for sighting, pose in zip(sightings, poses, strict=True):
        rotation, translation = pose[thing.link][:3, :3], pose[thing.link][:3, 3]
        own = sighting.extra & thing.holds(sighting.points, pose[thing.link])
        clouds.append((sighting.points[own] - translation) @ rotation)
        rays.append(sighting.directions[own] @ rotation)
    cloud = smoothed(np.concatenate(clouds), np.concatenate(rays), range_noise, MOST_SMOOTHED)
    if len(cloud) < MIN_POINTS:
        cloud = thing.points
    cloud = _grown(cloud, MARGIN * range_noise)
    return LinkSurface.of(cloud, ConvexHull(cloud).simplices)


def smoothed(points: np.ndarray, directions: np.ndarray, range_noise: float, most: int) -> np.ndarray:
    """Return up to `most` of points (M, 3) moved onto the planes of their neighbours, loners left out.

    They move along the rays that saw them (N, 3), as noise did; at grazing incidence, where that would move them far
    for little, straight to the plane.
    """
    if not len(points):
        return points
    cell, counts = _cells(points, directions)
    means = group_means(cell, len(counts), points)
    some = _spread(cell, counts, most)
    points, directions = points[some], directions[some]
    count, mean, normals = _neighbour_planes(points, means, counts, SMOOTHING)
    slope = (normals * directions).sum(axis=1)
    off = ((mean - points) * normals).sum(axis=1)
    steep = np.abs(slope) > GRAZING
    shift = np.where(steep[:, None], directions * (off / np.where(steep, slope, 1.0))[:, None], normals * off[:, None])
    return (points + shift)[(count >= NEIGHBOURS) & (np.linalg.norm(shift, axis=1) < 4 * range_noise)]


def _cells(points: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each of points (N, 3), which rays (N, 3) have seen, the number (N,) of the cell that its ray meets, and how
    many returns each cell has.

    Cells are `EVEN` wide across the rays and `DEEP` along them: thinned as widely along the rays as across, dense returns
    would fill the whole of their noise evenly, and its middle would be lost.
    """
    along = (points * directions).sum(axis=1)
    in_layer = points + (np.round(along / DEEP) * DEEP - along)[:, None] * directions
    _, cell, counts = np.unique(voxel_keys(in_layer, EVEN), return_inverse=True, return_counts=True)
    return cell, counts


def _spread(cell: np.ndarray, counts: np.ndarray, most: int) -> np.ndarray:
    """Return up to `most` indices of returns by the cells (N,) they are in: one of every cell, then more of each."""
    order = np.argsort(cell, kind="stable")
    rank = np.empty(len(cell), dtype=int)
    rank[order] = np.arange(len(cell)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = np.lexsort((cell, rank))
    return order[np.linspace(0, len(counts) - 1, most).astype(int)] if len(counts) > most else order[:most]


def _neighbour_planes(
    points: np.ndarray, cloud: np.ndarray, counts: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each of points (N, 3) how many returns are around it, their mean and the normal of their plane; `cloud`
    (K, 3) are means of `counts` (K,) returns each."""
    most = min(MOST_NEIGHBOURS, len(cloud))
    distances, index = cKDTree(cloud).query(points, k=np.arange(1, most + 1), distance_upper_bound=radius)
    there = np.isfinite(distances)
    index = np.where(there, index, 0)
    neighbours, returns = cloud[index], (there * counts[index]).sum(axis=1)
    mean = np.einsum("nk,nkx->nx", there, neighbours) / np.maximum(there.sum(axis=1), 1)[:, None]
    centred = neighbours - mean[:, None]
    spread = (centred * there[:, :, None]).transpose(0, 2, 1) @ centred
    return returns, mean, np.linalg.eigh(spread)[1][:, :, 0]


def _grown(points: np.ndarray, margin: float) -> np.ndarray:
    """Return points (7 N, 3) whose hull is larger than that of points (N, 3) by a margin along each axis."""
    return np.concatenate([points, *(points + sign * margin * axis for axis in np.eye(3) for sign in (-1, 1))])
