"""One pose's lidar returns compared with the model's surfaces: returns on it, extra ones, and links seen through.

Noise is along the ray, so a return is compared with the model's surface on its ray. Single returns differ by several
standard deviations; the median over a small patch of the model separates a difference of two of them from noise.

Clouds are expressed in the frame in which the left lidar has its described pose. If its extrinsics are off, the
robot's own body is seen moved by as much, and so is everything that is later compared with the body shape. That motion
is found by point-to-plane registration of the returns in all poses together, with a robust weight. It assumes that most
returns near the model come from it, and joint values that are right.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.body.outline import HIGHEST, LOWEST, LinkSurface
from stretch_sim_cal.geometry.points import group_medians, voxel_keys
from stretch_sim_cal.geometry.rays import RayTarget
from stretch_sim_cal.geometry.transforms import apply, exp, inverse, rotation_angle
from stretch_sim_cal.robot.surfaces import Surface

# m, between the points that represent a surface in the search; distances are to the triangles themselves.
SPACING = 0.012


@dataclass(frozen=True)
class Closest:
    """For each of N points the nearest of the robot's surfaces: `distances` (N,) in m, inf beyond the limit;
    `links` (N,) indices into the index's `links`, -1 beyond the limit; `points` and outward unit `normals` (N, 3)."""

    distances: np.ndarray
    links: np.ndarray
    points: np.ndarray
    normals: np.ndarray


class SurfaceIndex:
    """Surfaces by link (vertices and faces in link frames), ready for nearest-point queries in any pose."""

    def __init__(self, surfaces: Mapping[str, LinkSurface]):
        self.links = list(surfaces)
        self._parts = [_Part(surface) for surface in surfaces.values()]

    def bounds(self, frame_from_link: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and highest corner (3,) of a box around all surfaces."""
        corners = []
        for link, part in zip(self.links, self._parts, strict=True):
            rotation, translation = frame_from_link[link][:3, :3], frame_from_link[link][:3, 3]
            centre, half = rotation @ part.centre + translation, np.abs(rotation) @ part.half
            corners += [centre - half, centre + half]
        return np.min(corners, axis=0), np.max(corners, axis=0)

    def closest(self, points: np.ndarray, frame_from_link: Mapping[str, np.ndarray], limit: float) -> Closest:
        """Return the nearest surface within `limit` (m) of points (N, 3), links being at `frame_from_link` (4, 4)."""
        distances = np.full(len(points), np.inf)
        links = np.full(len(points), -1)
        nearest, normals = np.zeros((len(points), 3)), np.zeros((len(points), 3))
        for index, (link, part) in enumerate(zip(self.links, self._parts, strict=True)):
            transform = frame_from_link[link]
            rotation, translation = transform[:3, :3], transform[:3, 3]
            reach = np.abs(rotation) @ part.half + limit
            around = np.flatnonzero((np.abs(points - (rotation @ part.centre + translation)) < reach).all(axis=1))
            local = (points[around] - translation) @ rotation
            near = part.in_box(local, limit)
            around, local = around[near], local[near]
            if not len(around):
                continue
            found, triangles, feet = part.closest(local, limit)
            better = found < distances[around]
            chosen = around[better]
            distances[chosen], links[chosen] = found[better], index
            nearest[chosen] = feet[better] @ rotation.T + translation
            normals[chosen] = part.normals[triangles[better]] @ rotation.T
        return Closest(distances, links, nearest, normals)


class _Part:
    """One link's triangles and the tree over points that are spread over them."""

    def __init__(self, surface: LinkSurface):
        self.triangles = surface.vertices[surface.faces]
        cross = np.cross(self.triangles[:, 1] - self.triangles[:, 0], self.triangles[:, 2] - self.triangles[:, 0])
        lengths = np.linalg.norm(cross, axis=1)
        self.triangles = self.triangles[lengths > 1e-12]  # slivers without an area have no normal and cover nothing
        self.normals = cross[lengths > 1e-12] / lengths[lengths > 1e-12, None]
        self.low, self.high = self.triangles.min(axis=(0, 1)), self.triangles.max(axis=(0, 1))
        self.centre = (self.low + self.high) / 2
        self.half = (self.high - self.low) / 2
        spread, self._triangle_of = spread_points(self.triangles, SPACING)
        self._tree = cKDTree(spread)

    def in_box(self, points: np.ndarray, margin: float) -> np.ndarray:
        return ((points > self.low - margin) & (points < self.high + margin)).all(axis=1)

    def closest(self, points: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return distance (N,), triangle (N,) and nearest point on it (N, 3); distance inf beyond the limit."""
        from trimesh.triangles import closest_point  # takes a quarter of a second to import

        found, index = self._tree.query(points, k=2, distance_upper_bound=limit + SPACING)
        best = np.full(len(points), np.inf)
        triangles, feet = np.zeros(len(points), dtype=int), np.zeros((len(points), 3))
        for column in (0, 1):
            hit = np.flatnonzero(np.isfinite(found[:, column]))
            candidates = self._triangle_of[index[hit, column]]
            foot = closest_point(self.triangles[candidates], points[hit])
            distance = np.linalg.norm(points[hit] - foot, axis=1)
            better = distance < best[hit]
            best[hit[better]] = distance[better]
            triangles[hit[better]], feet[hit[better]] = candidates[better], foot[better]
        best[best > limit] = np.inf
        return best, triangles, feet


def spread_points(triangles: np.ndarray, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points (M, 3) on triangles (F, 3, 3), neighbours about `spacing` apart, and each one's triangle (M,).

    Rows run along the longest side, so that long thin triangles get one row and not a square of points.
    """
    sides = np.roll(triangles, -1, axis=1) - triangles
    lengths = np.linalg.norm(sides, axis=2)
    longest = lengths.argmax(axis=1)
    each = np.arange(len(triangles))
    start, side, length = triangles[each, longest], sides[each, longest], lengths[each, longest]
    to_apex = triangles[each, (longest + 2) % 3] - start
    height = np.linalg.norm(np.cross(side, to_apex), axis=1) / np.maximum(length, 1e-12)
    rows = np.maximum(1, np.ceil(height / spacing)).astype(int)
    row_owner = np.repeat(each, rows)
    row = np.arange(len(row_owner)) - np.repeat(np.cumsum(rows) - rows, rows)
    up = (row + 0.5) / rows[row_owner]
    columns = np.maximum(1, np.ceil((1 - up) * length[row_owner] / spacing)).astype(int)
    point_row = np.repeat(np.arange(len(row_owner)), columns)
    column = np.arange(len(point_row)) - np.repeat(np.cumsum(columns) - columns, columns)
    owner, up = row_owner[point_row], up[point_row]
    along = (1 - up) * (column + 0.5) / columns[point_row]
    return start[owner] + along[:, None] * side[owner] + up[:, None] * to_apex[owner], owner


def surface_points(surface: Surface, spacing: float) -> np.ndarray:
    """Return points (N, 3) on a surface, none of whose places is much further than `spacing` from one of them."""
    points = np.concatenate([surface.vertices, spread_points(surface.triangles, spacing)[0]])
    return points[np.unique(voxel_keys(points, 0.5 * spacing), return_index=True)[1]]


BLOCKED = 0.05  # m: a lidar that has the model this far in front of a point did not see it


def nearest_range(points: np.ndarray, origins: np.ndarray) -> np.ndarray:
    """Return the distance (N,) of points (N, 3) from the nearest of lidars at `origins` (L, 3)."""
    squared = np.full(len(points), np.inf)
    for origin in origins:
        x, y, z = (points[:, axis] - origin[axis] for axis in range(3))
        np.minimum(squared, x * x + y * y + z * z, out=squared)
    return np.sqrt(squared)


def robot_views(
    surfaces: Mapping[str, LinkSurface], poses: Sequence[Mapping[str, np.ndarray]], origins: np.ndarray
) -> "list[RobotView]":
    """Return the model's views in several poses (links at `poses[i][link]`, 4x4) from lidars at `origins` (L, 3).

    Links that are at the same place in all poses, most triangles of a robot, are prepared once.
    """
    still = [link for link in surfaces if all(np.array_equal(pose[link], poses[0][link]) for pose in poses)]
    base = Triangles.of({link: surfaces[link] for link in still}, poses[0])
    moving = {link: surface for link, surface in surfaces.items() if link not in still}
    return [RobotView([*still, *moving], [base, Triangles.of(moving, pose)], origins) for pose in poses]


class Triangles:
    """Links' triangles in one pose, ready for rays: their unit normals, and which link (by number) each is of."""

    def __init__(self, triangles: np.ndarray, link_of: np.ndarray):
        normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
        self.normals = normals / np.maximum(np.linalg.norm(normals, axis=1), 1e-30)[:, None]
        self.link_of = link_of
        self.target = RayTarget(triangles)

    @classmethod
    def of(cls, surfaces: Mapping[str, LinkSurface], pose: Mapping[str, np.ndarray]) -> "Triangles":
        posed = [apply(pose[link], surface.vertices)[surface.faces] for link, surface in surfaces.items()]
        counts = [len(triangles) for triangles in posed]
        return cls(np.concatenate([np.empty((0, 3, 3)), *posed]), np.repeat(np.arange(len(posed)), counts))


class RobotView:
    """The model's surfaces in one pose, lidars at `origins` (L, 3); `links` are the names by link number."""

    def __init__(self, links: Sequence[str], parts: Sequence[Triangles], origins: np.ndarray):
        self.links = list(links)
        self._targets = [part.target for part in parts]
        self._normals = np.concatenate([part.normals for part in parts] + [np.zeros((1, 3))])
        offsets = np.cumsum([0] + [1 + part.link_of.max(initial=-1) for part in parts[:-1]])
        self._link_of = np.concatenate(
            [part.link_of + offset for part, offset in zip(parts, offsets, strict=True)] + [[-1]]
        )
        self._starts = np.cumsum([0] + [len(part.normals) for part in parts[:-1]])
        self.origins = np.asarray(origins, dtype=float)

    def seen_from(self, origins: np.ndarray) -> "RobotView":
        """Return the same surfaces seen from lidars at other places (L, 3)."""
        other = copy(self)
        other.origins = np.asarray(origins, dtype=float)
        return other

    def ahead(
        self, points: np.ndarray, lidars: np.ndarray | None, model_from_seen: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return how far beyond points (N, 3) the model is along the ray that saw each, and its surface there.

        `lidars` (N,) is the lidar that saw each point; if it is None, the one whose ray meets the model nearest to the
        point, preferably behind it. `model_from_seen` (4, 4) moves points and lidars before.
        Returns distances (N,), negative if the model is in front of the point and inf if the ray misses it, unit
        normals (N, 3) against the ray, links (N,) as indices into `links`, and the rays' directions (N, 3).
        """
        origins = self.origins
        if model_from_seen is not None:
            points, origins = apply(model_from_seen, points), apply(model_from_seen, origins)
        distances, triangles, directions = self._from(points, origins[0 if lidars is None else lidars])
        if lidars is None:
            for origin in origins[1:]:
                other = self._from(points, origin)
                better = _strangeness(other[0]) < _strangeness(distances)
                for mine, theirs in zip((distances, triangles, directions), other, strict=True):
                    mine[better] = theirs[better]
        normals = self._normals[triangles]
        normals = np.where((normals * directions).sum(axis=1)[:, None] > 0, -normals, normals)
        return distances, normals, self._link_of[triangles], directions

    def _from(self, points: np.ndarray, origins: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rays = points - origins
        ranges = np.linalg.norm(rays, axis=1)
        directions = rays / np.maximum(ranges, 1e-9)[:, None]
        hits, triangles = np.full(len(points), np.inf), np.full(len(points), -1)  # the last normal and link: none
        for target, start in zip(self._targets, self._starts, strict=True):
            found, index = target.cast(origins, directions)
            nearer = found < hits
            hits[nearer], triangles[nearer] = found[nearer], index[nearer] + start
        return hits - ranges, triangles, directions


def _strangeness(ahead: np.ndarray) -> np.ndarray:
    return np.where(ahead < -BLOCKED, 1e6, np.abs(ahead))


BIN = np.deg2rad(1.5)
MARGIN = 0.06  # m, by which a return has to be nearer than a place to hide it


class RangeImage:
    """The nearest return in every direction from a lidar at `origin` (3,), of points (N, 3)."""

    def __init__(self, points: np.ndarray, origin: np.ndarray):
        self._origin = origin
        self._columns = int(2 * np.pi / BIN) + 2
        keys, ranges = self._keys(points)
        order = np.lexsort((ranges, keys))
        self._bins, first = np.unique(keys[order], return_index=True)
        self._nearest = ranges[order][first]

    def hides(self, points: np.ndarray) -> np.ndarray:
        """Return which of points (N, 3) are behind a return. Those that are not and show no return there are empty."""
        keys, ranges = self._keys(points)
        if not len(self._bins):
            return np.zeros(len(points), dtype=bool)
        place = np.minimum(np.searchsorted(self._bins, keys), len(self._bins) - 1)
        nearest = np.where(self._bins[place] == keys, self._nearest[place], np.inf)
        return nearest < ranges - MARGIN

    def _keys(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rays = points - self._origin
        ranges = np.linalg.norm(rays, axis=1)
        elevation = np.arcsin(np.clip(rays[:, 2] / np.maximum(ranges, 1e-9), -1, 1))
        azimuth = np.arctan2(rays[:, 1], rays[:, 0])
        return np.floor(elevation / BIN).astype(int) * self._columns + np.floor(azimuth / BIN).astype(int), ranges


GATES = (0.15, 0.15, 0.12, 0.09, 0.07, 0.06, *[0.04] * 10)
"""m: how far a return may be from the surface on its ray, step by step; fewer steps if it has come to rest."""
RESTING = 2e-4  # m and rad, of a step
FINE_STEPS = 3
COARSE, FINE = 500, 4000  # points of each pose that are used while it converges, and in the last steps
LOOKED_AT = 5 * FINE  # of each pose, from which these are taken
MIN_POINTS = 200
SURFACE_ERROR = 0.002  # m, 1 sigma, of the model's surfaces
OWN_HEAD = 0.2  # m: nearer returns are of the collar around a lidar, which moves with nothing that is looked for
TUKEY = 3.0  # residuals beyond this many sigma have no weight
GRAZING = (
    0.25  # cosine of incidence below which a return carries little information, and noise moves it to another surface
)
WEAKEST = 1e-3  # of the strongest direction's information; weaker ones are left as they are


@dataclass(frozen=True)
class BodyRegistration:
    """`seen_from_model` (4, 4) moves the model, in base_footprint, to the pose in which it is seen.

    `reach` is the largest distance (m) that it moves a point of the returns by,
    `standard_error` its standard deviation.
    """

    seen_from_model: np.ndarray
    reach: float
    standard_error: float
    num_points: int

    @property
    def angle(self) -> float:
        """How far it turns, in rad."""
        return rotation_angle(self.seen_from_model)


def register_returns(
    clouds: Sequence[np.ndarray], lidars: Sequence[np.ndarray | None], views: Sequence[RobotView], range_noise: float
) -> BodyRegistration | None:
    """Return the motion between model and returns, or None if too few returns are near the model.

    `clouds` (N, 3) are in base_footprint, one per pose; `lidars` (N,) are the lidars that saw the points, or None;
    `views` are the model in these poses.
    """
    thinned = []
    for cloud, seen_by, view in zip(clouds, lidars, views, strict=True):
        some = _thinned(np.flatnonzero(nearest_range(cloud, view.origins) > OWN_HEAD), LOOKED_AT)
        cloud, seen_by = cloud[some], None if seen_by is None else seen_by[some]
        chosen = _thinned(np.flatnonzero(np.abs(view.ahead(cloud, seen_by)[0]) < GATES[0]), FINE)
        thinned.append((cloud[chosen], None if seen_by is None else seen_by[chosen], view))
    points = np.concatenate([cloud for cloud, _, _ in thinned])
    if len(points) < MIN_POINTS:
        return None
    centre = points.mean(axis=0)
    motion = np.eye(4)
    steps = [(gate, COARSE) for gate in GATES] + [(GATES[-1], FINE)] * FINE_STEPS
    resting = False
    for gate, count in steps:
        if resting and count == COARSE:
            continue
        parts = [_residuals(*_subset(part, count), motion, gate, centre, range_noise) for part in thinned]
        residuals, jacobian = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        if len(residuals) < MIN_POINTS:
            return None
        scale = max(0.5, 1.4826 * float(np.median(np.abs(residuals))))
        weights = np.maximum(0.0, 1 - (residuals / (TUKEY * scale)) ** 2) ** 2
        information = jacobian.T @ (weights[:, None] * jacobian)
        step = _solve(information, jacobian.T @ (weights * residuals))
        motion = _about(centre, exp(step)) @ motion
        resting = gate == GATES[-1] and np.abs(step).max() < RESTING
    used = weights > 0
    moved = points @ (motion[:3, :3] - np.eye(3)).T + motion[:3, 3]
    spread = np.sqrt(np.diag(np.linalg.pinv(information))) * scale
    radius = np.linalg.norm(points - centre, axis=1).max()
    error = float(np.hypot(np.linalg.norm(spread[:3]), np.linalg.norm(spread[3:]) * radius))
    return BodyRegistration(motion, float(np.linalg.norm(moved, axis=1).max()), error, int(used.sum()))


def _residuals(cloud, seen_by, view, motion, gate, centre, range_noise) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances (M,) of returns from the planes that their rays meet on the moved model, in units of their
    standard deviations, and their derivatives (M, 6) by a twist of the model about `centre`.

    The surface of a return is the one on its ray, not the nearest one: noise then moves none to another face.
    """
    ahead, normals, _, directions = view.ahead(cloud, seen_by, inverse(motion))
    incidence = -(normals * directions).sum(axis=1)
    used = (np.abs(ahead) < gate) & (incidence > GRAZING)
    normals, rays = normals[used] @ motion[:3, :3].T, directions[used] @ motion[:3, :3].T
    # The lever arms are those of the model's points: the returns' own would carry the noise of the residuals.
    arms = cloud[used] + ahead[used, None] * rays - centre
    # A return's noise is along its ray: the more it grazes a plane, the more exactly it determines it.
    sigma = np.hypot(range_noise * incidence[used], SURFACE_ERROR)
    jacobian = np.column_stack([normals, np.cross(arms, normals)])
    return ahead[used] * incidence[used] / sigma, jacobian / sigma[:, None]


def _solve(information: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return the step (6,) that removes the gradient, none along directions that the surfaces do not constrain."""
    strengths, directions = np.linalg.eigh(information)
    inverse = np.where(strengths > WEAKEST * strengths[-1], 1 / np.maximum(strengths, 1e-300), 0.0)
    return directions @ (inverse * (directions.T @ gradient))


def _about(centre: np.ndarray, motion: np.ndarray) -> np.ndarray:
    """Return the motion done about a centre instead of the origin."""
    result = motion.copy()
    result[:3, 3] += centre - motion[:3, :3] @ centre
    return result


def _subset(part: tuple, count: int) -> tuple:
    cloud, seen_by, view = part
    chosen = _thinned(np.arange(len(cloud)), count)
    return cloud[chosen], None if seen_by is None else seen_by[chosen], view


def _thinned(points: np.ndarray, count: int) -> np.ndarray:
    """Return at most `count` of the points, evenly taken from their order."""
    return points if len(points) <= count else points[np.linspace(0, len(points) - 1, count).astype(int)]


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
    """The returns of one pose, compared with the model. All arrays are over its N points.

    `on_model`: returns that the model explains; `extra`: returns in front of the model, or beside it, by more than the
    disagreement asked for; `through`: returns from behind the model's surface. The rest is room. `links` are indices
    (into the index's) of the link on the ray (or, for `extra` ones that miss the model, the nearest), -1 for none;
    `gaps` the distance (m) from the model along the ray or, where the ray misses it, in space; inf where it is far.
    `directions` (N, 3) are those of the rays, `lidars` (N,) which lidar saw them, if that is known.
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
    """Return the comparison of the returns (N, 3) of one pose, in the model's base_footprint, with the model.

    `lidars` (N,) is the lidar that saw each (or None), `above_floor` (N,) which may be extra; the others, the floor's,
    only show which links are seen through.
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
    # The ray of a lidar with an extrinsics error may start on the wrong side of its own collar.
    behind &= nearest_range(points, view.origins) + ahead > OWN_HEAD

    # Rays that miss the model, or pass well in front of it: how near are they in space?
    low, high = index.bounds(footprint_from_link)
    around = ((points > low - reach) & (points < high + reach)).all(axis=1)
    beside = above_floor & (ahead >= NEAR_RAY) & around
    candidates = np.flatnonzero(beside | in_front)
    # Beyond this distance a return is just apart: distances in space are measured exactly up to it.
    found = index.closest(points[candidates], footprint_from_link, 2 * disagreement + FAR_SIGMAS * range_noise)
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


def _patch_medians(places: np.ndarray, values: np.ndarray, links: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return for each point the median value (N,) of those on the same link and patch; 0 if they are too few."""
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
