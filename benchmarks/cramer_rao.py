"""The Cramer-Rao bound of alignment and floor: how exact an unbiased estimate can be that
knows what lies on which plane.

The unknowns are those of the calibration (poses, the lidars' own errors, the floor, the planes of the room), and so are
the priors. But all is taken at the truth: every ray with its true hit and the sensor's true noise, no ray an outlier,
what the driver corrects known. Slopes of their own for each lidar, cells at edges that are left out, surfaces that one
lidar alone sees, and noise that has to be estimated cost what the ratio to it shows.

There are two: in the first the faces of the world are cut into patches with planes of their own, as large as those of
the calibration, which trusts no wall to be flat over more; in the second every flat face is one plane from end to end.
"""

import numpy as np
from comparing import Recording
from scipy import sparse

from stretch_sim_cal.calibration.patches import FINE_RANGE, MAX_LEVEL, PATCH_SIZE
from stretch_sim_cal.calibration.problem import (
    UNKNOWN,
    NormalEquations,
    Unknowns,
    floor_rows,
    sparse_rows,
)
from stretch_sim_cal.calibration.room import WEAK
from stretch_sim_cal.geometry.planes import Plane
from stretch_sim_cal.geometry.transforms import SIDES, apply, inverse
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit import CENTRE_SHARE, FIRING_SHARE, LEAST_COSINE, ErrorModel, weak_echo
from stretch_sim_cal.simulation.optics import Hits, Scene
from stretch_sim_cal.simulation.setup import true_link

# Floor farther than this (m) from base_footprint counts as a plane of its own, as for the floor method.
FLOOR_RADIUS = 3.5
# Every so manieth azimuth is cast, and counts as often.
EVERY = 4


def alignment_bound(recording: Recording, frames: int, whole: bool) -> np.ndarray:
    """Return the covariance (6, 6) of the right lidar's twist in the left lidar's frame; `whole` faces or patches."""
    information = _information(recording, (np.eye(4), recording.right_to_left), frames, None, whole)
    unknowns = Unknowns(_models(recording))
    return unknowns.of_free_poses(_covariance(unknowns, information, fixed=[unknowns.poses[0], unknowns.floor]))


def floor_bound(recording: Recording, base_from_left: np.ndarray, frames: int, whole: bool) -> np.ndarray:
    """Return the covariance (3, 3) of the floor's height and tilts at base_link's origin, if the left lidar is known to
    be at `base_from_left` (4, 4), from all frames, those of the alignment as well."""
    base_from_right = base_from_left @ recording.right_to_left
    true_base = recording.simulator.base_from_lidar("left")
    floor = recording.simulator.floor_in_base.moved(base_from_left @ inverse(true_base))
    information = _information(recording, (base_from_left, base_from_right), frames, floor, whole)
    unknowns = Unknowns(_models(recording))
    return _covariance(unknowns, information, fixed=[unknowns.poses[0]])[unknowns.floor, unknowns.floor]


def _covariance(unknowns: Unknowns, information: np.ndarray, fixed: list[slice]) -> np.ndarray:
    """Return the covariance (n, n) of all unknowns under the priors."""
    size = len(information)
    free = np.setdiff1d(np.arange(unknowns.curvature.start), np.concatenate([np.arange(size)[own] for own in fixed]))
    parts, prior = [np.eye(size)[:, free]], [np.full(len(free), UNKNOWN**-2)]
    for unit, model in zip(unknowns.units, unknowns.models, strict=True):
        for root in model.prior_roots().values():
            root = root[:, ~root[[CENTRE_SHARE, FIRING_SHARE]].any(axis=0)]
            block = np.zeros((size, root.shape[1]))
            block[unit] = root
            parts.append(block)
            prior.append(np.ones(root.shape[1]))
    basis = np.hstack(parts)
    hessian = basis.T @ information @ basis + np.diag(np.concatenate(prior))
    return basis @ np.linalg.solve(hessian, basis.T)


def _models(recording: Recording) -> tuple[ErrorModel, ErrorModel]:
    model = recording.sensor.error_model()
    return model, model


def _information(
    recording: Recording, poses: tuple[np.ndarray, np.ndarray], frames: int, floor: Plane | None, whole: bool
) -> np.ndarray:
    """Return the information (n, n) about the `Unknowns`, in the frame of the lidars' `poses` (4,
    4), the planes eliminated."""
    unknowns = Unknowns(_models(recording))
    equations = NormalEquations.empty(unknowns.size)
    sides = [_TrueReturns(recording, device) for device in SIDES]
    rows, patterns, weights, faces, places, on_floor, points, normals = [], [], [], [], [], [], [], []
    for side, (seen, pose, model) in enumerate(zip(sides, poses, unknowns.models, strict=True)):
        point, normal = apply(pose, seen.points), seen.normals @ pose[:3, :3].T
        returns = model.returns(seen.published, seen.channels, seen.echo)
        scalars, channels = model.sensitivity(returns, seen.cosines, seen.normals, seen.values)
        jacobian = np.hstack([normal, np.cross(point, normal), scalars, channels])
        poses_columns = np.broadcast_to(np.r_[unknowns.poses[side]], (len(point), 6))
        columns = np.hstack([poses_columns, unknowns.unit_columns(side, seen.channels)])
        rows.append(sparse_rows(jacobian, columns, unknowns.size))
        patterns.append(columns[:, -1])
        weights.append(frames * EVERY / seen.variances)
        faces.append(seen.faces if whole else np.column_stack([seen.faces, seen.patches]))
        places.append(seen.world)
        on_floor.append(seen.on_floor)
        points.append(point)
        normals.append(normal)
    jacobian, pattern, weights = sparse.vstack(rows).tocsr(), np.concatenate(patterns), np.concatenate(weights)
    faces, places, points, normals = (np.concatenate(each) for each in (faces, places, points, normals))
    is_floor = np.concatenate(on_floor) if floor is not None else np.zeros(len(points), dtype=bool)
    if floor is not None:
        below = jacobian[is_floor] + sparse_rows(
            floor_rows(floor, points[is_floor])[:, :3], np.broadcast_to(np.r_[unknowns.floor], (is_floor.sum(), 3)),
            unknowns.size,
        )  # fmt: skip
        scaled = sparse.diags_array(weights[is_floor]) @ below
        equations.information += (below.T @ scaled).toarray()
    room = ~is_floor
    group, design = _planes(faces[room], places[room], normals[room])
    equations.add_eliminating(jacobian[room], pattern[room], np.zeros(room.sum()), weights[room], group, design, WEAK)
    return equations.information


def _planes(faces: np.ndarray, places: np.ndarray, normals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number (N,) of each return's face, and its row (N, 3) for the face's height and slopes."""
    _, first, group = np.unique(faces, axis=0, return_index=True, return_inverse=True)
    normal = normals[first]
    helper = np.eye(3)[np.argmin(np.abs(normal), axis=1)]
    axis = np.cross(normal, helper)
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    axes = np.stack([axis, np.cross(normal, axis)], axis=1)
    centres = np.stack([np.bincount(group, places[:, k]) for k in range(3)], axis=1) / np.bincount(group)[:, None]
    beside = np.einsum("nai,ni->na", axes[group], places - centres[group])
    return group, np.hstack([np.ones((len(group), 1)), beside])


class _TrueReturns:
    """What one lidar sees of the world, but for its own robot: true `points` and `normals` (N, 3) in its frame,
    `published` ones without noise, `cosines`, `echo`, `channels` and `variances` (N,) of range and height, the plane of
    each (`faces`), its patch on that and its place in the `world` (N, 3), and which are `on_floor` near the robot;
    `values` (n,) are those of the unit."""

    def __init__(self, recording: Recording, device: str):
        simulator = recording.simulator
        lidar, sensor = simulator.lidar(device), recording.simulator.lidar(device).sensor
        links = link_transforms(parse_urdf(simulator.true_description), {}, ["base_link", true_link(device)])
        world_from_lidar = links[true_link(device)]
        rays = lidar.rays(0)
        chosen = np.flatnonzero(np.arange(sensor.num_rays) // sensor.num_channels % EVERY == 0)
        directions = rays.directions[chosen].astype(float)
        origins = np.zeros_like(directions) if rays.origins is None else rays.origins[chosen].astype(float)
        begins, ways = apply(world_from_lidar, origins), directions @ world_from_lidar[:3, :3].T
        robot = {link: surface.moved(links["base_link"]) for link, surface in simulator.true_surfaces().items()}
        hits = Hits(begins.astype(np.float32), ways, [Scene(simulator.world.surfaces), Scene(robot)])
        surfaces, cosines = hits.surfaces(), hits.incidence_cosines().astype(float)
        kept = (
            (hits.distances > sensor.range_min) & (hits.distances < sensor.range_max) & (cosines > LEAST_COSINE)
            & (surfaces >= 0) & (surfaces < len(simulator.world.surfaces))
        )  # fmt: skip
        rows = np.flatnonzero(kept)
        distances = hits.distances[rows].astype(float)
        normals = hits.normals(rows).astype(float)
        normals *= -np.sign(np.einsum("ni,ni->n", normals, ways[rows]))[:, None]
        self.world = begins[rows] + distances[:, None] * ways[rows]
        offsets = np.einsum("ni,ni->n", normals, self.world)
        self.faces = np.column_stack([
            surfaces[rows], np.floor(normals * 500.0 + 0.317).astype(int), np.floor(offsets / 0.005 + 0.317).astype(int)
        ])  # fmt: skip
        level = np.ceil(np.log2(np.maximum(np.linalg.norm(self.world, axis=1), 1e-3) / FINE_RANGE))
        size = PATCH_SIZE * 2.0 ** np.clip(level, 0, MAX_LEVEL)
        self.patches = np.column_stack([level, np.floor(self.world / size[:, None] + 0.317)]).astype(int)
        self.on_floor = (normals[:, 2] > 0.9999) & (np.abs(offsets) < 1e-3) & (
            np.linalg.norm(self.world[:, :2], axis=1) < FLOOR_RADIUS)  # fmt: skip
        self.points = origins[rows] + distances[:, None] * directions[rows]
        self.normals = normals @ world_from_lidar[:3, :3]
        self.cosines, self.channels = cosines[rows], chosen[rows] % sensor.num_channels
        materials = [simulator.world.materials.get(name) for name in hits.names[: len(simulator.world.surfaces)]]
        bright = np.array(
            [sensor.reflectivity if m is None or m.reflectivity is None else m.reflectivity for m in materials]
        )
        self.echo = weak_echo(np.minimum(255.0 * bright[surfaces[rows]] * self.cosines, 255.0))
        self.values = lidar.unit.values
        ranges = lidar.model.measured_ranges(distances, self.cosines, self.echo, self.channels, self.values)
        self.published = rays.nominal[chosen[rows]] * ranges[:, None]
        if rays.centres is not None:
            self.published = self.published + rays.centres[chosen[rows]]
        self.variances = (self.cosines**2) * _range_variances(sensor, distances, self.cosines, self.echo)


def _range_variances(sensor: Sensor, distances: np.ndarray, cosines: np.ndarray, echo: np.ndarray) -> np.ndarray:
    growth = sensor.noise_growth
    return (
        sensor.range_noise**2 + (growth.range * distances) ** 2 + (growth.incidence * (1.0 / cosines - 1.0)) ** 2
        + (growth.echo * echo) ** 2 + sensor.quantisation**2 / 12.0
    )  # fmt: skip
