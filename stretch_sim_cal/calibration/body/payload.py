"""Objects that the returns show beyond the model: payloads fixed to a link, the room, and passing ones.

An object that belongs to a link is at the same place in that link's frame in most poses and touches the link. An object
that stays at its place beside the robot is room (the robot stands while only its arm moves); one that is there in some
poses only is a person, or a joint whose value is wrong. The surface of a payload is the convex hull of its returns with
their noise taken out along the rays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import ConvexHull, cKDTree

from stretch_sim_cal.calibration.body.returns import Sighting
from stretch_sim_cal.geometry.points import convex_hull, group_means, rank_in_cell, thinned, voxel_keys
from stretch_sim_cal.geometry.rays import RangeImage
from stretch_sim_cal.geometry.shapes import ConvexPolygon
from stretch_sim_cal.geometry.transforms import apply, inverse
from stretch_sim_cal.robot.surfaces import Surface

CELL = 0.015  # m, to which extra returns are thinned where they are only counted and connected
SAME_PLACE = 0.03  # m, within which something in another pose is at the same place
LINKED = 0.045  # m, between points of one object
TOUCHING = 0.05  # m, from the model's surface: an object fixed to it is nearer
ADJOINING = 0.03  # m, in plan
PART = 0.10  # m, between parts of one payload whose connection is hidden
HIDING = 0.06  # m, by which a return has to be nearer than a place to hide it
HIDDEN_HEIGHT = 0.25  # m, by which the support of an object may end below its lowest visible point
IN_MOST = 0.6  # of the poses
MIN_POINTS = 12  # thinned, of an object that is reported


@dataclass(frozen=True)
class UnmodelledObject:
    """Connected returns beyond the model: `points` (N, 3) in the frame of `link`, seen in `samples` (indices).

    `kind` is `payload` (belongs to `link`), `room` (stands by, `link` is the base) or `passing`.
    """

    kind: str
    link: str
    points: np.ndarray
    samples: tuple[int, ...]
    gap: float

    @property
    def centre(self) -> np.ndarray:
        return (self.points.min(axis=0) + self.points.max(axis=0)) / 2

    @property
    def size(self) -> np.ndarray:
        return np.ptp(self.points, axis=0)

    def holds(self, points: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Return which of points (N, 3) are its own if its link is at `frame` (4, 4) in the points' frame."""
        return _near(apply(inverse(frame), points), self.points)


def _near(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return which of points (N, 3) are at the same place as one of `others` (M, 3)."""
    return np.isfinite(cKDTree(others).query(points, distance_upper_bound=SAME_PLACE)[0])


def rigid_groups(
    poses: Sequence[Mapping[str, np.ndarray]], links: Sequence[str], tolerance: float = 1e-3
) -> np.ndarray:
    """Return for each link the index of the first link that it does not move against in any of the poses (m, rad)."""
    frames = {link: np.array([pose[link] for pose in poses]) for link in links}
    group = np.full(len(links), -1)
    for i, link in enumerate(links):
        if group[i] >= 0:
            continue
        back = inverse(frames[link])
        for j in range(i, len(links)):
            relative = back @ frames[links[j]]
            if group[j] < 0 and np.abs(relative - relative[0]).max() <= tolerance:
                group[j] = i
    return group


def unmodelled_objects(
    sightings: Sequence[Sighting],
    poses: Sequence[Mapping[str, np.ndarray]],
    surfaces: Mapping[str, Surface],
    origins: np.ndarray,
    images: Callable[[], Sequence[Sequence[RangeImage]]],
) -> list[UnmodelledObject]:
    """Return the objects that the returns of all poses show beyond the model.

    `poses` are footprint_from_link (4, 4) of the links that have `surfaces`, in the order that the sightings' link
    numbers count in; `images` gives the range images of the lidars at `origins` (L, 3) in each pose, room included.
    """
    links = list(surfaces)
    groups = rigid_groups(poses, links)
    names = {int(group): links[group] for group in np.unique(groups)}
    extra = _Extra.of(sightings, groups)
    if len(extra.points) < MIN_POINTS:
        return []
    order, seen = sorted(names), images()
    local = {g: extra.in_frame([pose[names[g]] for pose in poses]) for g in order}
    support = np.array([_support(extra, local[g], [pose[names[g]] for pose in poses], origins, seen) for g in order])
    # Among the frames in which a point is (almost) as steady, that of the nearest link is meant.
    best = (support + 0.15 * (np.array(order)[:, None] == extra.groups)).argmax(axis=0)
    steady = np.take_along_axis(support, best[None], axis=0)[0] >= IN_MOST
    objects = []
    for row, g in enumerate(order):
        chosen = np.flatnonzero((best == row) & steady)
        for part in _connected(local[g][chosen]):
            item = extra.item(chosen[part], names[g], local[g], g)
            body = {link: surfaces[link] for link, group in zip(links, groups, strict=True) if group == g}
            # An object seen in only half of the poses may be passing, even if its place is hidden in the others.
            often = len(item.samples) > len(poses) / 2 or len(poses) < 3
            held = often and (item.gap <= TOUCHING or _adjoins(apply(poses[0][item.link], item.points), body, poses[0]))
            objects.append(replace(item, kind="payload") if held else item)
    objects = _with_near_parts(objects)
    # Returns that are steady in no frame are passing, and reported in the frame of the first link, the base.
    chosen = np.flatnonzero(~steady)
    for part in _connected(local[order[0]][chosen]):
        members = chosen[part]
        near = int(extra.groups[members][extra.gaps[members].argmin()])
        item = extra.item(members, names.get(near, names[order[0]]), extra.points, near)
        objects.append(replace(item, kind="passing"))
    return objects


def _with_near_parts(objects: list[UnmodelledObject]) -> list[UnmodelledObject]:
    """Return the objects; those close to a payload of the same link have become payload, too."""
    for _ in objects:
        held = [(item.link, cKDTree(item.points)) for item in objects if item.kind == "payload"]
        near = [
            item.kind == "room"
            and any(link == item.link and tree.query(item.points)[0].min() <= PART for link, tree in held)
            for item in objects
        ]
        if not any(near):
            break
        objects = [replace(item, kind="payload") if joins else item for item, joins in zip(objects, near, strict=True)]
    return objects


def _adjoins(points: np.ndarray, body: Mapping[str, Surface], pose: Mapping[str, np.ndarray]) -> bool:
    """Return whether points (N, 3), of something above or beside links, come as near as touching to them in plan.

    The support of an object is often hidden under it: its visible parts may all be far from the links. Links that end
    well below it do not support it.
    """
    corners = np.concatenate([apply(pose[link], surface.corners) for link, surface in body.items()])
    beside = corners[corners[:, 2] > points[:, 2].min() - HIDDEN_HEIGHT]
    hull = convex_hull(beside[:, :2])
    if len(hull) < 3:
        return False
    return np.count_nonzero(ConvexPolygon(hull).signed_distance(points[:, :2]) <= ADJOINING) >= 3


@dataclass(frozen=True)
class _Extra:
    """The extra returns of all poses, thinned: `points` (N, 3) in base_footprint, the `samples` (N,) and lidars that
    they are of (-1: not known), their `gaps` from the model and the `groups` of links that they are near."""

    points: np.ndarray
    samples: np.ndarray
    lidars: np.ndarray
    gaps: np.ndarray
    groups: np.ndarray

    @classmethod
    def of(cls, sightings: Sequence[Sighting], groups: np.ndarray) -> "_Extra":
        parts = []
        for number, sighting in enumerate(sightings):
            extra = np.flatnonzero(sighting.extra)
            keys = voxel_keys(sighting.points[extra], CELL)
            _, first, counts = np.unique(keys, return_index=True, return_counts=True)
            extra = extra[first[counts > 1]]
            near = np.append(groups, -1)[sighting.links[extra]]
            samples = np.full(len(extra), number)
            parts.append((sighting.points[extra], samples, sighting.lidars[extra], sighting.gaps[extra], near))
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def in_frame(self, frames: Sequence[np.ndarray]) -> np.ndarray:
        """Return the points in the frame that is at footprint_from_frame (4, 4) in each pose."""
        back = inverse(np.array(frames))[self.samples]
        return np.einsum("nij,nj->ni", back[:, :3, :3], self.points) + back[:, :3, 3]

    def item(self, members: np.ndarray, link: str, points: np.ndarray, group: int) -> UnmodelledObject:
        of_group = self.groups[members] == group
        gaps = np.sort(self.gaps[members][of_group])
        gap = float(gaps[min(2, len(gaps) - 1)]) if len(gaps) else np.inf  # of the third nearest: one may be noise
        return UnmodelledObject("room", link, points[members], tuple(np.unique(self.samples[members]).tolist()), gap)


def _support(
    extra: _Extra, local: np.ndarray, frames: Sequence[np.ndarray], origins: np.ndarray,
    images: Sequence[Sequence[RangeImage]],
) -> np.ndarray:  # fmt: skip
    """Return for each extra return in which share of the poses that could see its place there is something.

    `local` (N, 3) are the returns in the frame that is at `frames` in each pose. A place could not be seen if the lidar
    that saw the return has another one in front of it.
    """
    present, possible = np.zeros(len(local)), np.zeros(len(local))
    for number, (frame, views) in enumerate(zip(frames, images, strict=True)):
        there = local[extra.samples == number]
        seen = _near(local, there) if len(there) else np.zeros(len(local), dtype=bool)
        places = apply(frame, local)
        hidden = np.zeros(len(local), dtype=bool)
        for lidar, image in enumerate(views):
            its = extra.lidars == lidar
            cells, ranges = image.cells(places[its] - origins[lidar])
            hidden[its] = image.nearest.reshape(-1)[cells] < ranges - HIDING
        present += seen
        possible += seen | ~hidden
    return present / np.maximum(possible, 1)


def _connected(points: np.ndarray) -> list[np.ndarray]:
    """Return the indices of each connected part of points (N, 3) that is large enough to be reported."""
    if len(points) < MIN_POINTS:
        return []
    pairs = cKDTree(points).query_pairs(LINKED, output_type="ndarray")
    links = coo_array((np.ones(len(pairs)), pairs.T), shape=(len(points), len(points)))
    labels = connected_components(links, directed=False)[1]
    parts = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    return [part for part in parts if len(np.unique(voxel_keys(points[part], CELL))) >= MIN_POINTS]


SMOOTHING = 0.025  # m, radius of the neighbourhood whose plane represents a return
EVEN = 0.007  # m: denser returns become one per cell, so that near surfaces do not outvote far ones
DEEP = 0.1  # m, of a cell along the ray, much deeper than noise
NEIGHBOURS, MOST_NEIGHBOURS = 8, 80  # of a return: at least, and at most as many as are used
MOST_SMOOTHED = 6000
GRAZING = 0.5  # cosine of incidence below which a return is moved straight to the plane
MARGIN = 0.8  # of the range noise, by which an object's hull is grown: returns rarely are of its very corners


def payload_surface(
    item: UnmodelledObject, sightings: Sequence[Sighting], poses: Sequence[Mapping[str, np.ndarray]], range_noise: float
) -> Surface:
    """Return the convex hull, in its link's frame, around an object's returns of all poses with their noise taken
    out."""
    clouds, rays = [], []
    for sighting, pose in zip(sightings, poses, strict=True):
        frame = pose[item.link]
        own = sighting.extra & item.holds(sighting.points, frame)
        clouds.append(apply(inverse(frame), sighting.points[own]))
        rays.append(sighting.directions[own] @ frame[:3, :3])
    cloud = smoothed(np.concatenate(clouds), np.concatenate(rays), range_noise, MOST_SMOOTHED)
    if len(cloud) < MIN_POINTS:
        cloud = item.points
    steps = MARGIN * range_noise * np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
    cloud = (cloud + steps[:, None]).reshape(-1, 3)
    return Surface(cloud, ConvexHull(cloud).simplices)


def smoothed(points: np.ndarray, directions: np.ndarray, range_noise: float, most: int) -> np.ndarray:
    """Return up to `most` of points (M, 3) moved onto the planes of their neighbours, loners left out.

    They move along the rays that saw them (N, 3), as noise did; at grazing incidence, where that would move them far
    for little, straight to the plane.
    """
    if not len(points):
        return points
    # Cells are `EVEN` wide across the rays and `DEEP` along them: thinned as widely along the rays as across, dense
    # returns would fill the whole of their noise evenly, and its middle would be lost.
    along = (points * directions).sum(axis=1)
    in_layer = points + (np.round(along / DEEP) * DEEP - along)[:, None] * directions
    _, cell, counts = np.unique(voxel_keys(in_layer, EVEN), return_inverse=True, return_counts=True)
    means = group_means(cell, len(counts), points)
    some = _spread(cell, counts, most)
    points, directions = points[some], directions[some]
    count, mean, normals = _neighbour_planes(points, means, counts, SMOOTHING)
    slope = (normals * directions).sum(axis=1)
    off = ((mean - points) * normals).sum(axis=1)
    steep = np.abs(slope) > GRAZING
    shift = np.where(steep[:, None], directions * (off / np.where(steep, slope, 1.0))[:, None], normals * off[:, None])
    return (points + shift)[(count >= NEIGHBOURS) & (np.linalg.norm(shift, axis=1) < 4 * range_noise)]


def _spread(cell: np.ndarray, counts: np.ndarray, most: int) -> np.ndarray:
    """Return up to `most` indices of returns by the cells (N,) they are in: one of every cell, then more of each."""
    order = np.lexsort((cell, rank_in_cell(cell, counts)))
    return thinned(order[: len(counts)], most) if len(counts) > most else order[:most]


def _neighbour_planes(
    points: np.ndarray, cloud: np.ndarray, counts: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each of points (N, 3) how many returns are around it, their mean and the normal of their plane;
    `cloud` (K, 3) are means of `counts` (K,) returns each."""
    most = min(MOST_NEIGHBOURS, len(cloud))
    distances, index = cKDTree(cloud).query(points, k=np.arange(1, most + 1), distance_upper_bound=radius)
    there = np.isfinite(distances)
    index = np.where(there, index, 0)
    neighbours, returns = cloud[index], (there * counts[index]).sum(axis=1)
    mean = np.einsum("nk,nkx->nx", there, neighbours) / np.maximum(there.sum(axis=1), 1)[:, None]
    centred = neighbours - mean[:, None]
    spread = (centred * there[:, :, None]).transpose(0, 2, 1) @ centred
    return returns, mean, np.linalg.eigh(spread)[1][:, :, 0]
