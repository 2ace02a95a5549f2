"""The model's surfaces: projected onto the floor, and against the returns of one pose: returns on it, extra ones, and
links that are seen through; and the motion of the model that the returns of all poses show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.robust import TUKEY_SEARCH, robust_equations
from stretch_sim_cal.geometry.points import convex_hull, downsampled, group_medians, voxel_keys
from stretch_sim_cal.geometry.rays import RayTarget
from stretch_sim_cal.geometry.transforms import Poses, apply, by_twist, exp, from_xyz_rpy, inverse
from stretch_sim_cal.robot.surfaces import Surface, Surfaces
from stretch_sim_cal.sensor.unit import UNKNOWN_SENSOR, longer_by_incidence

LOWEST, HIGHEST = 0.06, 1.6  # the heights between which the body counts: below, floor and wheels; above, nothing is met


class RobotOutline:
    """Projects the links' surfaces between the heights `lowest` and `highest`."""

    def __init__(self, surfaces: Surfaces, lowest: float = LOWEST, highest: float = HIGHEST):
        self.surfaces = {link: surface for link, surface in surfaces.items() if len(surface.faces)}
        self.lowest, self.highest = lowest, highest

    def hull(self, footprint_from_link: Poses) -> np.ndarray:
        """Return the corners (K, 2) of the hull around the links in one pose (4, 4) or N poses (N, 4, 4) of each."""
        return self.hulls(footprint_from_link)[0]

    def hulls(self, footprint_from_link: Poses, sizes: Sequence[int] | None = None) -> list[np.ndarray]:
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


SPACING = 0.006  # m, between the points that represent a surface: at 2 cm from it, distances are 0.4 mm too large


BLOCKED = 0.05  # m: a lidar that has the model this far in front of a point did not see it


def nearest_range(points: np.ndarray, origins: np.ndarray) -> np.ndarray:
    """Return the distance (N,) of points (N, 3) from the nearest of lidars at `origins` (L, 3)."""
    squared = np.full(len(points), np.inf)
    for origin in origins:
        x, y, z = (points[:, axis] - origin[axis] for axis in range(3))
        np.minimum(squared, x * x + y * y + z * z, out=squared)
    return np.sqrt(squared)


class RobotView:
    """The model's surfaces in one pose, for rays."""

    def __init__(self, parts: "Sequence[PosedTriangles]"):
        self._parts = parts

    def ahead(self, points: np.ndarray, origins: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the distances (N,) of the model beyond points (N, 3) along the rays from `origins` (N, 3) or (3,),
        negative if it is in front of the point and inf if the ray misses it, its unit normals (N, 3) there against the
        ray, the links' numbers (N,), -1 for none, and the rays' directions (N, 3)."""
        rays = points - origins
        ranges = np.linalg.norm(rays, axis=1)
        directions = rays / np.maximum(ranges, 1e-9)[:, None]
        hits, normals, links = np.full(len(points), np.inf), np.zeros((len(points), 3)), np.full(len(points), -1)
        for part in self._parts:
            ranges_of_part, index = part.target.cast(origins, directions)
            nearer = ranges_of_part < hits
            hits[nearer], index = ranges_of_part[nearer], index[nearer]
            normals[nearer], links[nearer] = part.normals[index], part.link_of[index]
        normals = np.where((normals * directions).sum(axis=1)[:, None] > 0, -normals, normals)
        return hits - ranges, normals, links, directions


class PosedTriangles:
    """The triangles of `links` in one pose, for rays, with their unit normals and the numbers of their links among all
    `surfaces`."""

    def __init__(self, surfaces: Surfaces, pose: Poses, links: Sequence[str]):
        posed = [apply(pose[link], surfaces[link].vertices)[surfaces[link].faces] for link in links]
        triangles = np.concatenate([np.empty((0, 3, 3)), *posed])
        normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
        self.normals = normals / np.maximum(np.linalg.norm(normals, axis=1), 1e-30)[:, None]
        numbers = np.array([list(surfaces).index(link) for link in links], dtype=np.int64)
        self.link_of = np.repeat(numbers, [len(each) for each in posed])
        self.target = RayTarget(triangles)


def robot_views(surfaces: Surfaces, poses: Sequence[Poses]) -> list[RobotView]:
    """Return the model's views in several poses (links at `poses[i][link]`, 4x4). Links that do not move between them,
    most triangles of a robot, are prepared once."""
    still = [link for link in surfaces if all(np.array_equal(pose[link], poses[0][link]) for pose in poses)]
    base, moving = PosedTriangles(surfaces, poses[0], still), [link for link in surfaces if link not in still]
    return [RobotView([base, PosedTriangles(surfaces, pose, moving)]) for pose in poses]


def seen_ahead(view: RobotView, points: np.ndarray, lidars: np.ndarray, origins: np.ndarray) -> tuple[np.ndarray, ...]:
    """As `RobotView.ahead`, for points (N, 3) of `lidars` (N,) at `origins` (L, 3); if these are unknown, -1, of the
    lidar whose ray meets the model nearest to the point, preferably behind it."""
    if lidars.min(initial=0) >= 0:
        return view.ahead(points, origins[lidars])
    best, *others = (view.ahead(points, origin) for origin in origins)
    for other in others:
        cost, of_other = (np.where(ahead < -BLOCKED, 1e6, np.abs(ahead)) for ahead in (best[0], other[0]))
        better = of_other < cost
        for values, others_values in zip(best, other, strict=True):
            values[better] = others_values[better]
    return best


GATES = (0.15, 0.15, 0.12, 0.09, 0.07, 0.06, *[0.04] * 10)
"""m: the bound of a return from the surface on its ray, by step; fewer steps if the motion has converged."""
CONVERGED = 2e-4  # m and rad, of a step
FINE_STEPS = 3
COARSE, FINE = 500, 4000  # points of each pose until it converges, and in the last steps
CANDIDATES = 5 * FINE  # points of each pose from which these are taken
MIN_POINTS = 200
OWN_HEAD = 0.2  # m: nearer returns are of the collar around a lidar, which moves with it
GRAZING = 0.25  # cosine of incidence, below which a return has little information and noise moves it to other surfaces
WEAKEST = 1e-3  # of the strongest direction's information; there is no step along weaker ones


class BodyRegistration(NamedTuple):
    """`seen_from_model` (4, 4) moves the model, in base_footprint, to the pose in which it is seen; `reach` is the
    largest distance (m) by which it moves a return, `standard_error` its standard deviation."""

    seen_from_model: np.ndarray
    reach: float
    standard_error: float


def register_returns(
    clouds: Sequence[np.ndarray], lidars: Sequence[np.ndarray], views: Sequence[RobotView], origins: np.ndarray,
    range_noise: float,
) -> BodyRegistration | None:  # fmt: skip
    """Return the motion between model and returns, or None if too few returns are near the model. `clouds` (N, 3) are
    in base_footprint, one per pose; `lidars` (N,) at `origins` (L, 3) are theirs, -1 if unknown; `views` are the model
    in these poses."""
    # Errors of each lidar that no cloud can be corrected for: ranges are longer near it, and at grazing incidence.
    errors = np.zeros((len(origins), 2))
    precisions = np.tile([UNKNOWN_SENSOR.near_range**-2, UNKNOWN_SENSOR.incidence**-2], len(origins))
    near = []
    for cloud, seen_by, view in zip(clouds, lidars, views, strict=True):
        some = downsampled(np.flatnonzero(nearest_range(cloud, origins) > OWN_HEAD), CANDIDATES)
        ahead = seen_ahead(view, cloud[some], seen_by[some], origins)[0]
        chosen = some[downsampled(np.flatnonzero(np.abs(ahead) < GATES[0]), FINE)]
        near.append((cloud[chosen], seen_by[chosen], view))
    points = np.concatenate([cloud for cloud, _, _ in near])
    if len(points) < MIN_POINTS:
        return None
    centre = points.mean(axis=0)
    motion = np.eye(4)
    steps = [(gate, COARSE) for gate in GATES] + [(GATES[-1], FINE)] * FINE_STEPS
    converged = False
    for gate, count in steps:
        if converged and count == COARSE:
            continue
        how = origins, motion, errors, gate, centre, range_noise
        parts = [_residuals(*(downsampled(each, count) for each in seen), view, *how) for *seen, view in near]
        residuals, jacobian = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        if len(residuals) < MIN_POINTS:
            return None
        full, right, _ = robust_equations(jacobian, residuals, 0.5, TUKEY_SEARCH)
        coupled, of_errors = full[:6, 6:], full[6:, 6:] + np.diag(precisions)
        right[6:] -= precisions * errors.ravel()
        information = full[:6, :6] - coupled @ np.linalg.solve(of_errors, coupled.T)
        gradient = right[:6] - coupled @ np.linalg.solve(of_errors, right[6:])
        strengths, axes = np.linalg.eigh(information)  # no step along directions that the surfaces do not constrain
        shares = np.where(strengths > WEAKEST * strengths[-1], 1 / np.maximum(strengths, 1e-300), 0.0)
        step = axes @ (shares * (axes.T @ gradient))
        errors += np.linalg.solve(of_errors, right[6:] - coupled.T @ step).reshape(errors.shape)
        about = from_xyz_rpy(centre)
        motion = about @ exp(step) @ inverse(about) @ motion
        converged = gate == GATES[-1] and np.abs(step).max() < CONVERGED
    deviations = np.sqrt(np.diag(np.linalg.pinv(information)))
    radius = np.linalg.norm(points - centre, axis=1).max()
    error = float(np.hypot(np.linalg.norm(deviations[:3]), np.linalg.norm(deviations[3:]) * radius))
    return BodyRegistration(motion, float(np.linalg.norm(apply(motion, points) - points, axis=1).max()), error)


def _residuals(cloud, seen_by, view, origins, motion, errors, gate, centre, noise) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances (M,) of the planes that the rays meet on the moved model from returns, freed of the lidars'
    `errors` (L, 2), over their standard deviations, and their derivatives (M, 6 + 2 L) by a twist of the model about
    `centre` and by the errors. By rays, and not by nearest points, noise moves no return to another face."""
    back = inverse(motion)
    ahead, normals, _, directions = seen_ahead(view, apply(back, cloud), seen_by, apply(back, origins))
    incidence = -(normals * directions).sum(axis=1)
    ranges = np.linalg.norm(cloud - origins[seen_by], axis=1)
    longer = np.column_stack([np.exp(-ranges / UNKNOWN_SENSOR.near_length), longer_by_incidence(incidence)])
    ahead = ahead + (longer * errors[seen_by]).sum(axis=1)
    used = (np.abs(ahead) < gate) & (incidence > GRAZING)
    incidence, ahead = incidence[used], ahead[used]
    normals, rays = normals[used] @ motion[:3, :3].T, directions[used] @ motion[:3, :3].T
    # The lever arms are those of the model's points: those of the returns have the noise of the residuals.
    arms = cloud[used] + ahead[:, None] * rays - centre
    # Noise is along the ray: a grazing return determines a plane more exactly.
    sigma = np.hypot(noise * incidence, 0.002)  # m, 1 sigma, of the model's surfaces
    by_lidar = np.zeros((len(ahead), *errors.shape))
    by_lidar[np.arange(len(ahead)), seen_by[used]] = longer[used] * incidence[:, None]  # if unknown, of the last
    jacobian = np.hstack([-by_twist(arms, normals), by_lidar.reshape(len(ahead), errors.size)])
    return ahead * incidence / sigma, jacobian / sigma[:, None]


PATCH = 0.03  # m, edge of the cells in which returns on the model are compared with it together
PATCH_RETURNS = 5
NEAR_RAY = 0.10  # m: within this of the model along the ray a return is compared by patches
FAR_SIGMAS = 3.5
DISAGREEMENT = 0.02  # m, from which returns and model differ
AROUND = 0.5  # m around the model within which returns are used


@dataclass(frozen=True)
class EvidenceSettings:
    """`range_noise` (m, 1 sigma) of the lidars; heights (m) of the body."""

    range_noise: float = 0.01
    lowest: float = LOWEST
    highest: float = HIGHEST


@dataclass(frozen=True)
class Sighting:
    """The N returns of one pose, compared with the model. `on_model`: returns that the model explains; `extra`: returns
    in front of the model, or beside it, by more than `DISAGREEMENT`; `through`: returns from behind the model's
    surface. The rest is room. `links` are the numbers of the links on the rays (of `extra` ones that miss the model,
    the nearest), -1 for none; `gaps` the distances (m) from the model along the rays or, if these miss it, in space;
    inf if far. `directions` (N, 3) are those of the rays, `lidars` (N,) are -1 if unknown."""

    points: np.ndarray
    on_model: np.ndarray
    extra: np.ndarray
    through: np.ndarray
    links: np.ndarray
    gaps: np.ndarray
    directions: np.ndarray
    lidars: np.ndarray


def compare(
    points: np.ndarray, lidars: np.ndarray, origins: np.ndarray, above_floor: np.ndarray, view: RobotView,
    on_links: Mapping[str, np.ndarray], footprint_from_link: Poses, range_noise: float,
) -> Sighting:  # fmt: skip
    """Compare the returns (N, 3) of one pose with the model, in its base_footprint. `lidars` (N,) at `origins` (L, 3)
    are -1 if unknown; only returns `above_floor` (N,) may be extra: the others show links that are seen through."""
    ahead, normals, links, directions = seen_ahead(view, points, lidars, origins)
    across = np.where(np.isfinite(ahead), ahead, 0.0) * np.abs((normals * directions).sum(axis=1))
    close = np.abs(ahead) < NEAR_RAY
    patch_medians = _patch_medians(points + np.where(close, ahead, 0.0)[:, None] * directions, across, links, close)
    far = np.maximum(DISAGREEMENT, FAR_SIGMAS * range_noise)
    in_front = close & ((patch_medians > DISAGREEMENT) | ((across > far) & (ahead > far)))
    behind = (ahead < -far) | (close & (patch_medians < -DISAGREEMENT))
    # The ray of a lidar with an extrinsics error may start on the wrong side of its collar.
    behind &= nearest_range(points, origins) + ahead > OWN_HEAD

    # Returns whose rays miss the model, or that are well in front of it: their distances in space.
    placed = np.concatenate([apply(footprint_from_link[link], points) for link, points in on_links.items()])
    around = ((points > placed.min(axis=0) - AROUND) & (points < placed.max(axis=0) + AROUND)).all(axis=1)
    candidates = np.flatnonzero((above_floor & (ahead >= NEAR_RAY) & around) | in_front)
    limit = 2 * DISAGREEMENT + FAR_SIGMAS * range_noise
    distances, touched = cKDTree(placed).query(points[candidates], distance_upper_bound=limit)
    touched = np.append(np.repeat(np.arange(len(on_links)), list(map(len, on_links.values()))), -1)[touched]
    gaps, nearest = np.full(len(points), np.inf), links.copy()
    gaps[candidates] = distances
    nearest[candidates[touched >= 0]] = touched[touched >= 0]
    extra = np.zeros(len(points), dtype=bool)
    extra[candidates] = distances > DISAGREEMENT
    extra |= in_front & (patch_medians > DISAGREEMENT)
    extra &= above_floor
    on_model = ~extra & ((close & ~behind) | (gaps <= DISAGREEMENT))
    gaps[on_model] = np.abs(across[on_model])
    return Sighting(points, on_model, extra, behind & ~on_model, nearest, gaps, directions, lidars)


def _patch_medians(places: np.ndarray, values: np.ndarray, links: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return for each point the median value (N,) of those on the same link and patch; 0 if they are too few."""
    result = np.zeros(len(values))
    where = np.flatnonzero(chosen)
    if not len(where):
        return result
    # The key's lowest bits are the cell along z, far below 2^20: the link's number is above them.
    keys = voxel_keys(places[where], PATCH) + (links[where].astype(np.int64) << 13)
    _, patch, counts = np.unique(keys, return_inverse=True, return_counts=True)
    medians = group_medians(patch, counts, values[where])
    result[where] = np.where(counts >= PATCH_RETURNS, medians, 0.0)[patch]
    return result
