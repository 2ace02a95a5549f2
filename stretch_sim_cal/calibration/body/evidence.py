"""The evidence of returns for a body shape: the robot's pose, payloads, and links that are misplaced or missing
(method and assumptions: docs/body_shape.md)."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import ConvexHull, cKDTree

from stretch_sim_cal.calibration.body import returns as seen
from stretch_sim_cal.calibration.body.returns import RobotOutline, Sighting
from stretch_sim_cal.geometry.points import convex_hull, downsampled, group_means, rank_in_cell, voxel_keys
from stretch_sim_cal.geometry.rays import RangeImage
from stretch_sim_cal.geometry.shapes import ConvexPolygon
from stretch_sim_cal.geometry.transforms import Poses, apply, inverse, rotation_angle
from stretch_sim_cal.robot.surfaces import Surface, Surfaces, spread_points

CELL = 0.015  # m, to which extra returns are downsampled for counts and connections
SAME_PLACE = 0.03  # m, within which returns of different poses are at the same place
TOUCHING = 0.05  # m, from the model's surface: an object fixed to it is nearer
PART = 0.10  # m, between parts of one payload whose connection is hidden
HIDING = 0.06  # m, by which a return has to be nearer than a place to hide it
HIDDEN_HEIGHT = 0.25  # m, by which the support of an object may end below its lowest visible point
IN_MOST = 0.6  # of the poses
MIN_POINTS = 12  # downsampled, of an object that is reported


@dataclass(frozen=True)
class UnmodelledObject:
    """Connected returns beyond the model: `points` (N, 3) in the frame of `link`, in `samples` (indices), `gap` (m)
    from the model. `kind` is `payload` (of `link`), `room` (`link` is the base) or `passing`."""

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
        """Return which of points (N, 3) are of it with its link at `frame` (4, 4) in the points' frame."""
        return _near(apply(inverse(frame), points), self.points)


def _near(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.isfinite(cKDTree(others).query(points, distance_upper_bound=SAME_PLACE)[0])


def rigid_groups(poses: Sequence[Poses], links: Sequence[str]) -> np.ndarray:
    """Return for each link the index of the first link that it does not move against."""
    frames = {link: np.array([pose[link] for pose in poses]) for link in links}
    group = np.full(len(links), -1)
    for i in range(len(links)):
        back = inverse(frames[links[i]])
        for j in np.flatnonzero(group < 0) if group[i] < 0 else ():
            relative = back @ frames[links[j]]
            if np.abs(relative - relative[0]).max() <= 1e-3:  # m, rad
                group[j] = i
    return group


def unmodelled_objects(
    sightings: Sequence[Sighting], poses: Sequence[Poses], surfaces: Surfaces,
    origins: np.ndarray, images: Callable[[], Sequence[Sequence[RangeImage]]],
) -> list[UnmodelledObject]:  # fmt: skip
    """Return the unmodelled objects in the returns of all poses. `poses` are footprint_from_link (4, 4) of the links
    that have `surfaces`, in the order of the sightings' link numbers; `images` returns the range images of the lidars
    at `origins` (L, 3) in each pose, room included."""
    links = list(surfaces)
    groups = rigid_groups(poses, links)
    names = {int(group): links[group] for group in np.unique(groups)}
    extra = _Extra.of(sightings, groups)
    if len(extra.points) < MIN_POINTS:
        return []
    order, seen = sorted(names), images()
    local = {g: extra.in_frame([pose[names[g]] for pose in poses]) for g in order}
    support = np.array([_support(extra, local[g], [pose[names[g]] for pose in poses], origins, seen) for g in order])
    # Of the frames in which a point is (almost) equally steady, that of the nearest link is taken.
    best = (support + 0.15 * (np.array(order)[:, None] == extra.groups)).argmax(axis=0)
    steady = np.take_along_axis(support, best[None], axis=0)[0] >= IN_MOST
    objects = []
    for row, g in enumerate(order):
        chosen = np.flatnonzero((best == row) & steady)
        for part in _connected(local[g][chosen]):
            item = extra.item(chosen[part], names[g], local[g], g)
            body = {link: surfaces[link] for link, group in zip(links, groups, strict=True) if group == g}
            # An object in only half of the poses may be passing, even if its place is hidden in the others.
            often = len(item.samples) > len(poses) / 2 or len(poses) < 3
            in_first = apply(poses[0][item.link], item.points)
            carried = often and (item.gap <= TOUCHING or _adjoins(in_first, body, poses[0]))
            objects.append(replace(item, kind="payload") if carried else item)
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
    for _ in objects:
        payloads = [(item.link, cKDTree(item.points)) for item in objects if item.kind == "payload"]
        near = [
            item.kind == "room"
            and any(link == item.link and tree.query(item.points)[0].min() <= PART for link, tree in payloads)
            for item in objects
        ]
        if not any(near):
            break
        objects = [replace(item, kind="payload") if joins else item for item, joins in zip(objects, near, strict=True)]
    return objects


def _adjoins(points: np.ndarray, body: Surfaces, pose: Poses) -> bool:
    """Return whether points (N, 3), of an object above or beside links, touch them in plan: the support of an object is
    often hidden under it. Links that end well below it do not support it."""
    corners = np.concatenate([apply(pose[link], surface.corners) for link, surface in body.items()])
    beside = corners[corners[:, 2] > points[:, 2].min() - HIDDEN_HEIGHT]
    hull = convex_hull(beside[:, :2])
    if len(hull) < 3:
        return False
    return np.count_nonzero(ConvexPolygon(hull).signed_distance(points[:, :2]) <= 0.03) >= 3  # m, in plan


@dataclass(frozen=True)
class _Extra:
    """The extra returns of all poses, downsampled: `points` (N, 3) in base_footprint, their `samples` (N,) and lidars
    (-1: unknown), `gaps` from the model and `groups` of the nearest links."""

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
    """Return for each extra return, at `local` (N, 3) in the frame at `frames` in each pose, the share of poses with
    returns at its place, of those in which no return of the same lidar in front of it hides it."""
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
    if len(points) < MIN_POINTS:
        return []
    pairs = cKDTree(points).query_pairs(0.045, output_type="ndarray")  # m, between points of one object
    links = coo_array((np.ones(len(pairs)), pairs.T), shape=(len(points), len(points)))
    labels = connected_components(links, directed=False)[1]
    parts = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    return [part for part in parts if len(np.unique(voxel_keys(points[part], CELL))) >= MIN_POINTS]


SMOOTHING = 0.025  # m, radius of the neighbourhood whose plane represents a return
EVEN = 0.007  # m: denser returns become one per cell, so that near surfaces do not outweigh far ones
DEEP = 0.1  # m, of a cell along the ray, much deeper than noise
NEIGHBOURS, MOST_NEIGHBOURS = 8, 80  # of a return: at least, and at most as many as are used
MOST_SMOOTHED = 6000
GRAZING = 0.5  # cosine of incidence below which a return is moved straight to the plane
MARGIN = 0.8  # of the range noise, by which an object's hull is inflated: returns are rarely of its corners


def payload_surface(
    item: UnmodelledObject, sightings: Sequence[Sighting], poses: Sequence[Poses], range_noise: float
) -> Surface:
    """Return the convex hull, in its link's frame, around an object's smoothed returns of all poses."""
    clouds, rays = [], []
    for sighting, pose in zip(sightings, poses, strict=True):
        frame = pose[item.link]
        of_item = sighting.extra & item.holds(sighting.points, frame)
        clouds.append(apply(inverse(frame), sighting.points[of_item]))
        rays.append(sighting.directions[of_item] @ frame[:3, :3])
    cloud = smoothed(np.concatenate(clouds), np.concatenate(rays), range_noise, MOST_SMOOTHED)
    if len(cloud) < MIN_POINTS:
        cloud = item.points
    steps = MARGIN * range_noise * np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
    cloud = (cloud + steps[:, None]).reshape(-1, 3)
    return Surface(cloud, ConvexHull(cloud).simplices)


def smoothed(points: np.ndarray, directions: np.ndarray, range_noise: float, most: int) -> np.ndarray:
    """Return up to `most` of points (M, 3), moved onto the planes of their neighbours; points without neighbours are
    left out. They move along their rays' `directions` (M, 3), as noise does; at grazing incidence along the normal."""
    if not len(points):
        return points
    # Cells are `EVEN` wide across the rays and `DEEP` along them: with narrow cells along the rays, dense returns would
    # fill the whole range of their noise evenly, without a middle.
    along = (points * directions).sum(axis=1)
    in_layer = points + (np.round(along / DEEP) * DEEP - along)[:, None] * directions
    _, cell, counts = np.unique(voxel_keys(in_layer, EVEN), return_inverse=True, return_counts=True)
    means = group_means(cell, len(counts), points)
    order = np.lexsort((cell, rank_in_cell(cell, counts)))  # one of every cell, then more of each
    some = downsampled(order[: len(counts)], most) if len(counts) > most else order[:most]
    points, directions = points[some], directions[some]
    count, mean, normals = _neighbour_planes(points, means, counts)
    slope = (normals * directions).sum(axis=1)
    off = ((mean - points) * normals).sum(axis=1)
    steep = np.abs(slope) > GRAZING
    shift = np.where(steep[:, None], directions * (off / np.where(steep, slope, 1.0))[:, None], normals * off[:, None])
    return (points + shift)[(count >= NEIGHBOURS) & (np.linalg.norm(shift, axis=1) < 4 * range_noise)]


def _neighbour_planes(points: np.ndarray, cloud: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return for each of points (N, 3) the number of returns around it, their mean and the normal of their plane;
    `cloud` (K, 3) are means of `counts` (K,) returns."""
    nearest = np.arange(1, min(MOST_NEIGHBOURS, len(cloud)) + 1)
    distances, index = cKDTree(cloud).query(points, k=nearest, distance_upper_bound=SMOOTHING)
    there = np.isfinite(distances)
    index = np.where(there, index, 0)
    neighbours, returns = cloud[index], (there * counts[index]).sum(axis=1)
    mean = np.einsum("nk,nkx->nx", there, neighbours) / np.maximum(there.sum(axis=1), 1)[:, None]
    centred = neighbours - mean[:, None]
    scatter = (centred * there[:, :, None]).transpose(0, 2, 1) @ centred
    return returns, mean, np.linalg.eigh(scatter)[1][:, :, 0]


SEEN_OFF = 0.003  # m, of a motion from which a warning is given: a right calibration is off by up to a third of it
MIN_RETURNS = 100  # from the robot in a pose, below which a warning is given
SEEN_THROUGH = 0.6  # share of a link's returns from behind it, above which the link is misplaced
SEEN_RETURNS = 60
BIN = np.deg2rad(1.5)  # of a direction in which one return may hide a place behind it


@dataclass(frozen=True)
class PoseReturns:
    """One pose: `points` (N, 3) in base_footprint, floor included, their `lidars` (N,), None if unknown, and the poses
    (4, 4) of the model's links at the measured joint values."""

    name: str
    points: np.ndarray
    lidars: np.ndarray | None
    footprint_from_link: Poses


@dataclass(frozen=True)
class BodyEvidence:
    """`seen_from_model` (4, 4) moves the model, in base_footprint, to the pose in which the lidars see it. `payloads`
    are by name the link that carries them and their surface in its frame. Per pose: `returns` (K, 2) from the robot,
    smoothed, and `outliers` (K, 2)."""

    seen_from_model: np.ndarray
    registration: seen.BodyRegistration | None
    payloads: dict[str, tuple[str, Surface]]
    returns: list[np.ndarray]
    outliers: list[np.ndarray]
    warnings: list[str] = field(default_factory=list)


class SeenRobot:
    """The model's surfaces, moved to the pose in which the lidars see them, and payloads."""

    def __init__(self, surfaces: Surfaces, evidence: BodyEvidence | None, settings: seen.EvidenceSettings):
        self._moved = np.eye(4) if evidence is None else evidence.seen_from_model
        self._carried = {} if evidence is None else evidence.payloads
        everything = dict(surfaces) | {name: surface for name, (_, surface) in self._carried.items()}
        self._outline = RobotOutline(everything, settings.lowest, settings.highest)

    def hulls(self, footprint_from_link: Poses, sizes: Sequence[int] | None = None) -> list[np.ndarray]:
        """As of `RobotOutline.hulls`."""
        frames = {link: self._moved @ transform for link, transform in footprint_from_link.items()}
        frames |= {name: frames[link] for name, (link, _) in self._carried.items()}
        return self._outline.hulls(frames, sizes)


def gather_evidence(
    poses: Sequence[PoseReturns], surfaces: Surfaces, lidars: np.ndarray,
    settings: seen.EvidenceSettings | None = None, smoothed_returns: int = 1500,
) -> BodyEvidence:  # fmt: skip
    """Return the evidence in the returns of all poses of a robot whose links have `surfaces`: up to `smoothed_returns`
    of a pose. `lidars` (L, 3) are the described positions in base_footprint, as numbered in `PoseReturns.lidars`."""
    settings = settings or seen.EvidenceSettings()
    noise = settings.range_noise
    clouds, seen_by, stand_for = zip(*(_compared(pose, lidars, settings) for pose in poses), strict=True)
    frames = [pose.footprint_from_link for pose in poses]
    views = seen.robot_views(surfaces, frames)
    registration = seen.register_returns(clouds, seen_by, views, lidars, noise)
    seen_from_model, warnings = _motion(registration)
    model_from_seen = inverse(seen_from_model)
    origins = apply(model_from_seen, lidars)
    on_links = {link: spread_points(surface.triangles, seen.SPACING) for link, surface in surfaces.items()}
    sightings = []
    for cloud, by, view, frame in zip(clouds, seen_by, views, frames, strict=True):
        points, above = apply(model_from_seen, cloud), cloud[:, 2] > settings.lowest
        sightings.append(seen.compare(points, by, origins, above, view, on_links, frame, noise))

    def images() -> list[list[RangeImage]]:
        by_pose = [[RangeImage(BIN) for _ in origins] for _ in poses]
        for pose, of_pose in zip(poses, by_pose, strict=True):
            cloud = apply(model_from_seen, np.asarray(pose.points[:, :3], dtype=float))
            for lidar, image in enumerate(of_pose if pose.lidars is not None else []):
                image.add(cloud[pose.lidars == lidar] - origins[lidar])
        return by_pose

    objects = unmodelled_objects(sightings, frames, surfaces, origins, images)
    carried = [item for item in objects if item.kind == "payload"]
    payloads = {
        f"payload {number}": (item.link, payload_surface(item, sightings, frames, noise))
        for number, item in enumerate(carried, start=1)
    }
    names = [pose.name for pose in poses]
    counts = [np.count_nonzero(sighting.on_model) for sighting in sightings]
    few = [(name, count) for name, count in zip(names, counts, strict=True) if count < MIN_RETURNS]
    warnings += [f"{name}: only {count} returns from the robot" for name, count in few]
    warnings += _disagreements(names, objects, _misplaced(sightings, stand_for, list(surfaces)))
    returns, outliers = [], []
    for sighting, frame in zip(sightings, frames, strict=True):
        of_payload = np.zeros(len(sighting.points), dtype=bool)
        for item in carried:
            of_payload |= sighting.extra & item.holds(sighting.points, frame[item.link])
        of_robot, others = sighting.on_model | of_payload, sighting.extra & ~of_payload
        points = smoothed(sighting.points[of_robot], sighting.directions[of_robot], noise, smoothed_returns)
        returns.append(convex_hull(apply(seen_from_model, points)[:, :2]))
        outliers.append(apply(seen_from_model, sighting.points[others])[:, :2])
    return BodyEvidence(seen_from_model, registration, payloads, returns, outliers, warnings)


def _compared(pose: PoseReturns, lidars: np.ndarray, settings: seen.EvidenceSettings) -> tuple[np.ndarray, ...]:
    """Return the points that are compared with the model, their lidars, -1 if unknown, and the number of returns that
    each represents: those of the body's heights and some of the floor's, for links that are seen through."""
    points = np.asarray(pose.points[:, :3], dtype=float)
    apart = seen.nearest_range(points, lidars) > seen.OWN_HEAD
    counts = (points[:, 2] > settings.lowest) & (points[:, 2] < settings.highest)
    floor = np.flatnonzero(apart & (points[:, 2] <= settings.lowest))
    every = max(1, len(floor) // 20_000)  # returns of the floor in a pose
    body = np.flatnonzero(apart & counts)
    chosen = np.concatenate([body, floor[::every]])
    stands_for = np.where(np.arange(len(chosen)) < len(body), 1, every)
    seen_by = np.full(len(chosen), -1) if pose.lidars is None else pose.lidars[chosen].astype(int)
    return points[chosen], seen_by, stands_for


def _motion(registration: seen.BodyRegistration | None) -> tuple[np.ndarray, list[str]]:
    """Return seen_from_model (4, 4), the identity if the returns show no significant motion, and warnings."""
    if registration is None:
        return np.eye(4), ["too few returns are near the model to determine where the lidars see the robot"]
    seen_from_model, reach, standard_error = registration
    if reach <= max(0.001, 3 * standard_error):  # m: a smaller motion of the model is not applied
        return np.eye(4), []
    if reach <= SEEN_OFF:
        return seen_from_model, []
    off = f"{1e3 * reach:.1f} mm and {np.degrees(rotation_angle(seen_from_model)):.2f} deg"
    fault = f"the returns show the robot up to {off} off its description"
    cause = "the left lidar's mount or the floor calibration is off; the shape is fitted where the returns are"
    return seen_from_model, [f"{fault}: {cause}"]


def _misplaced(sightings: Sequence[Sighting], stand_for: Sequence[np.ndarray], links: list[str]) -> list[list[str]]:
    """Return for each pose the links through which the lidars see surfaces behind them."""
    by_pose = []
    for sighting, weights in zip(sightings, stand_for, strict=True):
        behind = sighting.through
        through = np.bincount(sighting.links[behind], weights[behind], minlength=len(links))
        on = np.bincount(sighting.links[sighting.on_model & (sighting.links >= 0)], minlength=len(links))
        wrong = (through >= SEEN_RETURNS) & (through > SEEN_THROUGH * (through + on))
        by_pose.append([links[i] for i in np.flatnonzero(wrong)])
    return by_pose


def _disagreements(names: Sequence[str], objects: Sequence[UnmodelledObject], misplaced: list[list[str]]) -> list[str]:

    def named(chosen: Sequence[int]) -> str:
        return "all samples" if len(chosen) == len(names) > 1 else ", ".join(names[i] for i in chosen)

    messages, passing, misplaced_in = [], defaultdict(set), defaultdict(list)
    for item in objects:
        size = f"{' x '.join(f'{100 * length:.0f}' for length in item.size)} cm"
        object_there = f"an object of {size} at ({', '.join(f'{value:.2f}' for value in item.centre)}) m in {item.link}"
        if item.kind == "payload":
            remedy = "it is enclosed (if it is not part of the robot, remove it and collect again)"
            messages.append(f"{object_there} moves with the robot but is not in its description; {remedy}")
        elif item.kind == "room":
            messages.append(f"{object_there} stands beside the robot in {named(item.samples)}; ignored")
        else:
            passing[item.samples].add(item.link)
    for samples, near in passing.items():
        shown = f"{named(samples)}: returns near {', '.join(sorted(near))} that other poses do not show"
        messages.append(f"{shown}: a person or a wrong joint value; ignored, collect these poses again")
    for link in sorted({link for links in misplaced for link in links}):
        misplaced_in[tuple(i for i, links in enumerate(misplaced) if link in links)].append(link)
    for wrong, links in misplaced_in.items():
        reason = ": is a part of the description missing on the robot?"
        if len(wrong) <= len(names) / 2:
            reason = ", off their joint values; check the joints and collect again"
        messages.append(f"{named(wrong)}: the lidars see through {', '.join(links)}{reason}")
    return messages
