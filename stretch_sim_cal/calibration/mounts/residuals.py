"""The residual block of the robot's surfaces: the distances of the returns from the model along their rays, and their
derivatives by the unknowns of the robot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from stretch_sim_cal.calibration.body.returns import RobotView, robot_views
from stretch_sim_cal.calibration.clouds import DirectionGrid, model_of_rows
from stretch_sim_cal.calibration.mounts.result import MountSample, MountSettings
from stretch_sim_cal.calibration.problem import NormalEquations, State, Unknowns, columns_of
from stretch_sim_cal.geometry.points import lengths
from stretch_sim_cal.geometry.transforms import Poses, adjoint, apply, by_twist, exp, from_xyz_rpy
from stretch_sim_cal.robot.surfaces import Surfaces
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit import CHANNEL_KINDS, ErrorModel, Returns, scan_begin, weak_echo

COLLAR = 0.10  # m: nearer, a lidar sees only the collar around its dome, which moves with it
REACH = 2.2  # m: no part of a robot is farther from its lidars
AROUND = 0.15  # m around the model's box, in which returns are used
EDGE = 0.006  # m, the bound of a neighbouring ray's hit from the plane of the ray's hit
BEYOND, CLOSE = 1e-4, 0.006  # m behind a surface: the start of the further ray, and a surface that is too close


@dataclass(frozen=True)
class LidarRays:
    """Returns of a lidar in its frame: `points` (N, 3), and the `origins` (N, 3) of their rays, by default the
    frame's."""

    points: np.ndarray
    origins: np.ndarray | float = 0.0

    def __len__(self) -> int:
        return len(self.points)

    def without(self, errors: np.ndarray) -> "LidarRays":
        """Return the rays without the `errors` (k,) at `NEAR_RANGES`, m."""
        rays = self.points - self.origins
        ranges = lengths(rays)
        true = ranges - near_shapes(ranges - near_shapes(ranges) @ errors) @ errors
        return replace(self, points=self.origins + rays * (true / ranges)[:, None])


@dataclass(frozen=True)
class Matches:
    """The M returns of one lidar in one sample whose rays meet the model. `points` (M, 3) are in base_link, `hits` (M,
    3) where their rays, from `origins` (M, 3), meet the model; `distances` (M,) of the points from the plane there,
    positive in front of it; `normals` (M, 3), against the ray; `incidence` (M,) the cosine between both; `links` (M,)
    indices of the model's links; `indices` (M,) of the returns."""

    points: np.ndarray
    origins: np.ndarray
    hits: np.ndarray
    distances: np.ndarray
    normals: np.ndarray
    incidence: np.ndarray
    links: np.ndarray
    indices: np.ndarray

    def chosen(self, keep: np.ndarray) -> "Matches":
        """Return the matches in a mask (M,)."""
        return Matches(*(array[keep] for array in vars(self).values()))

    def incidence_corrected(self, error: float) -> "Matches":
        """Return the matches with a lidar's error by incidence (m) subtracted from the distances."""
        return replace(self, distances=self.distances + error * (1.0 - self.incidence))

    def rows(self, about: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives (M, 6) of the distances by a twist of the lidar about a point (3,), and the
        distances."""
        return by_twist(self.hits - about, self.normals), self.distances

    @property
    def ranges(self) -> np.ndarray:
        """Distances (M,), in m, of the hits from where their rays begin."""
        return np.linalg.norm(self.hits - self.origins, axis=1)

    @property
    def along(self) -> np.ndarray:
        """Distances (M,), in m, of the returns beyond the model along the rays, negative in front of it."""
        return -self.distances / self.incidence


class PosedSample:
    def __init__(
        self, sample: MountSample, surfaces: Surfaces, base_from_link: Poses,
        view: RobotView | None = None, number: int | None = None,
    ):  # fmt: skip
        """`view` is that of the surfaces in this pose, if there is one; `number` the index among several samples, whose
        readings have independent errors."""
        self.sample, self.number, self.base_from_link = sample, number, base_from_link
        self._view = view or robot_views(surfaces, [base_from_link])[0]
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
        aside = np.where(np.abs(directions[:, 2:]) < 0.9, [[0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0]])
        across = _unit(np.cross(directions, aside))
        slopes = np.maximum(angle, margin / matches.ranges)[:, None]
        keep = np.ones(len(directions), dtype=bool)
        for side_step in (across, -across, (up := np.cross(directions, across)), -up):
            where = np.flatnonzero(keep)
            beside = _unit(directions[where] + slopes[where] * side_step[where])
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
    samples: Sequence[MountSample], surfaces: Surfaces,
    offsets: Sequence[Mapping[str, float]] | None = None,
) -> list[PosedSample]:  # fmt: skip
    """Return every sample with the model in its pose, the joints' `offsets` by sample."""
    by_sample = zip(samples, offsets or [{}] * len(samples), strict=True)
    poses = [{link: _offset(sample, link, of_joints) for link in surfaces} for sample, of_joints in by_sample]
    seen = zip(samples, poses, robot_views(surfaces, poses), strict=True)
    return [PosedSample(sample, surfaces, pose, view, number) for number, (sample, pose, view) in enumerate(seen)]


MOST_TRANSLATION, MOST_ROTATION = 2e-3, np.deg2rad(0.2)  # m, rad: standard deviations along a well determined direction
MOUNT_POSITION, MOUNT_ANGLE = 0.05, np.deg2rad(5.0)  # m, rad: prior of the lidars' described poses
JOINT_ZERO = 0.02  # m, rad: prior of the zeros of joints that have no other
HALF = float(np.sqrt(0.5))  # of a link's error, one sigma: half of its variance is the joint origin's, half the mesh's
RIGID = 1e-5  # m and rad, of links that are set to be exact
# The prior of a joint's scale, 1 / m or 1 / rad, over that of its reading: 0.2 % of a lift's way for 1 mm.
SCALE_PER_READING = 2.0
LEAST_SIZE = 0.02  # times the prior of errors of joints
# Beyond the lidars' error model, ranges have errors at these (m), which fade until the next one. A common factor of
# their standard deviations (m) is estimated; its prior counts as so many errors.
NEAR_RANGES, NO_LONGER_NEAR = np.array([0.1, 0.15, 0.22, 0.33, 0.5, 0.75, 1.1, 1.65]), 2.4
NEAR_DEVIATIONS, NEAR_PRIOR = 0.005 * np.exp(-NEAR_RANGES / 1.5), 4.0
SURFACE = 3e-4  # m: facets and edges of a model's surfaces, beside the noise along the ray
RING, INTENSITY = 3, 4  # columns of clouds (N, 5)


class RobotUnknowns:
    """The unknowns of the robot: the twists of the `lidars`, by name, of the links' joint origins, of the links'
    meshes, the joints' zeros, their scales, the lidars' errors at `NEAR_RANGES`, and the errors of the joints' readings
    by sample (play, sag, noise). Twists (6,) of links are the same in all samples: that of its joint's origin moves the
    link and all that it carries, in the frame of the joint as it is fixed to its parent; that of its mesh moves nothing
    else, in the link's frame about the mesh's centre. base_link is the reference frame and has no joint origin."""

    def __init__(self, surfaces: Surfaces, settings: MountSettings, lidars: Iterable[str], num_samples: int = 0):
        self.settings, self.lidars, self.links = settings, list(lidars), list(surfaces)
        self.joints = list(settings.joint_offsets)
        self.centres = {link: surface.corners.mean(axis=0) for link, surface in surfaces.items()}
        self.first_link = 6 * len(self.lidars)
        self.first_mesh = self.first_link + 6 * len(self.links)
        self.first_joint = self.first_mesh + 6 * len(self.links)
        self.first_near = self.first_joint + 2 * len(self.joints)
        self.first_reading = self.first_near + len(self.lidars) * len(NEAR_RANGES)
        self.num_samples = num_samples
        self.size = self.first_reading + num_samples * len(self.joints)
        # The prior standard deviations of the joints' errors of reading, and, over their priors, the sizes of these by
        # joint, of the errors of scale of all joints, and of those of near ranges (`learn`).
        self._readings = np.array([settings.joint_reading.get(joint, RIGID) for joint in self.joints])
        self.reading_sizes, self.scale_size, self.near_size = np.ones(len(self.joints)), 1.0, 1.0

    def of_lidar(self, name: str) -> slice:
        return slice(6 * self.lidars.index(name), 6 * self.lidars.index(name) + 6)

    def of_link(self, index: int) -> slice:
        return slice(self.first_link + 6 * index, self.first_link + 6 * index + 6)

    def of_mesh(self, index: int) -> slice:
        return slice(self.first_mesh + 6 * index, self.first_mesh + 6 * index + 6)

    def of_joint(self, index: int, sample: int | None) -> np.ndarray:
        """Return the columns of a joint's zero, its scale and, for a sample with a number, its reading."""
        zero, count = self.first_joint + index, len(self.joints)
        reading = [] if sample is None else [self.first_reading + sample * count + index]
        return np.array([zero, zero + count, *reading])

    def of_near_ranges(self, name: str) -> slice:
        first = self.first_near + self.lidars.index(name) * len(NEAR_RANGES)
        return slice(first, first + len(NEAR_RANGES))

    def offsets(self, errors: np.ndarray, number: int, sample: MountSample) -> dict[str, float]:
        """Return the joints' values minus their readings in a sample, by `errors` (n,) of the robot."""
        return {
            joint: float(errors[self.of_joint(index, number)] @ (1.0, sample.joint_values.get(joint, 0.0), 1.0))
            for index, joint in enumerate(self.joints)
        }

    def variances(self) -> np.ndarray:
        """Return the prior variances (n,) of links, joints and near ranges, 0 for the extrinsics."""
        settings = self.settings
        one = np.repeat([HALF * settings.link_position, HALF * settings.link_angle], 3)
        zeros = [settings.joint_prior.get(joint, JOINT_ZERO) for joint in self.joints]
        return np.concatenate([
            np.zeros(self.first_link), np.tile(np.maximum(one, RIGID) ** 2, 2 * len(self.links)), np.square(zeros),
            np.square(SCALE_PER_READING * self._readings * self.scale_size),
            np.tile((NEAR_DEVIATIONS * self.near_size) ** 2, len(self.lidars)),
            np.tile((self._readings * self.reading_sizes) ** 2, self.num_samples),
        ])  # fmt: skip

    def learn(self, errors: np.ndarray, variances: np.ndarray) -> None:
        """Update the sizes of the joints' errors of reading and of scale, and of the errors of near ranges, by an
        estimate (n,) with its variances (n,): a step of expectation maximisation."""
        squares = errors**2 + variances
        near = squares[self.first_near : self.first_reading].reshape(-1, len(NEAR_RANGES)) / NEAR_DEVIATIONS**2
        self.near_size = float(np.sqrt((near.sum() + NEAR_PRIOR) / (near.size + NEAR_PRIOR)))
        if not self.joints:
            return
        scales = squares[self.first_joint + len(self.joints) : self.first_near]
        by_sample = squares[self.first_reading :].reshape(-1, len(self.joints))
        self.scale_size = max(float(np.sqrt((scales / (SCALE_PER_READING * self._readings) ** 2).mean())), LEAST_SIZE)
        if len(by_sample):
            self.reading_sizes = np.maximum(np.sqrt(np.mean(by_sample, axis=0)) / self._readings, LEAST_SIZE)

    def readings_marginalised(self, information: np.ndarray) -> np.ndarray:
        """Return the information (n, n) with the errors of readings, of single samples, marginalised."""
        kept, readings = slice(0, self.first_reading), slice(self.first_reading, None)
        coupling = information[kept, readings]
        return information[kept, kept] - coupling @ np.linalg.solve(information[readings, readings], coupling.T)

    def beside(self, models: tuple[ErrorModel, ...]) -> Unknowns:
        """Return all unknowns of the problem with lidars of these error models."""
        return Unknowns(models, self.size - self.first_link)

    def columns(self, unknowns: Unknowns) -> np.ndarray:
        """Return the columns (n,) of these unknowns among all of the problem."""
        return np.concatenate(list(map(columns_of, (*unknowns.poses, unknowns.others))))

    def rows(self, lidar: str, sample: PosedSample, matches: Matches) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield for each link in sight the mask of its matches, the columns (C,) of the unknowns, and the jacobian (N,
        C) of the distances from the planes, which are linear in all twists. The arms of the rotations are those of the
        hits: the noise of the returns would correlate with the distances and bias the rotations."""
        pose = sample.sample
        for index in np.unique(matches.links):
            link, chosen = self.links[index], matches.links == index
            # Of the returns, in base_link; the surface's has the opposite sign.
            of_lidar = by_twist(matches.hits[chosen], matches.normals[chosen])
            surface = sample.base_from_link[link] @ from_xyz_rpy(self.centres[link])
            of_ranges = matches.incidence[chosen, None] * near_shapes(matches.ranges[chosen])
            own = self.of_lidar(lidar), self.of_mesh(index), self.of_near_ranges(lidar)
            columns, parts = list(map(columns_of, own)), [of_lidar, -of_lidar @ adjoint(surface), of_ranges]
            for carrier in (link, *pose.ancestors.get(link, ())):
                if carrier in pose.joint_origins:
                    columns.append(columns_of(self.of_link(self.links.index(carrier))))
                    parts.append(-of_lidar @ adjoint(pose.joint_origins[carrier]))
            for number, joint in enumerate(self.joints):
                motion = pose.joint_motions.get(joint, {}).get(link)
                if motion is not None:
                    columns.append(self.of_joint(number, sample.number))
                    factors = np.array([1.0, pose.joint_values.get(joint, 0.0), 1.0])[: len(columns[-1])]
                    parts.append(-(of_lidar @ motion)[:, None] * factors)
            yield chosen, np.concatenate(columns), np.hstack(parts)

    def residuals(self, lidar: str, sample: PosedSample, matches: Matches, expected: np.ndarray) -> np.ndarray:
        """Return the residuals (M,) of the distances with the twists `expected` (n,) of links."""
        residuals = np.array(matches.distances)
        if np.any(expected):
            for chosen, columns, jacobian in self.rows(lidar, sample, matches):
                residuals[chosen] += jacobian @ expected[columns]
        return residuals

    def add_to(
        self, equations: NormalEquations, unknowns: Unknowns, lidar: str, sample: PosedSample, matches: Matches,
        weights: np.ndarray, returns: Returns, state: State,
    ) -> None:  # fmt: skip
        """Add matches (M,) with their weights (M,), 1 / m^2, to the equations; `returns` (M,) are uncorrected."""
        number, columns = self.lidars.index(lidar), self.columns(unknowns)
        common = unknowns.common_columns(number)
        model, unit, values = unknowns.models[number], unknowns.units[number], state.units[number]
        normals = matches.normals @ state.base_from_lidar[number][:3, :3]
        common_rows, channels = model.sensitivity(returns, matches.incidence, normals, values, beyond=matches.along)
        of_kinds = np.array([unit.start + np.arange(model.size)[model.of_kind(kind)] for kind in CHANNEL_KINDS])
        information, gradient = equations.information, equations.gradient
        # Link by link, since a return depends on few of them; a channel's errors depend on its returns only.
        for chosen, of_robot, jacobian in self.rows(lidar, sample, matches):
            used, rows = np.concatenate([columns[of_robot], common]), np.hstack([jacobian, common_rows[chosen]])
            weighted, distances = weights[chosen, None] * rows, matches.distances[chosen]
            information[np.ix_(used, used)] += rows.T @ weighted
            gradient[used] -= weighted.T @ distances
            present, channel = np.unique(returns.channel[chosen], return_inverse=True)
            of_channel = sparse.csr_array((np.ones(len(rows)), (channel, np.arange(len(rows)))))
            by_kind, weighted_kinds = channels[chosen], weights[chosen, None] * channels[chosen]
            parts = of_kinds[:, present]
            crossed = np.vstack([of_channel @ (kind[:, None] * weighted) for kind in by_kind.T])
            information[np.ix_(parts.ravel(), used)] += crossed
            information[np.ix_(used, parts.ravel())] += crossed.T
            gradient[parts.T] -= of_channel @ (weighted_kinds * distances[:, None])
            products = of_channel @ (by_kind[:, :, None] * weighted_kinds[:, None]).reshape(len(rows), -1)
            information[parts.T[:, :, None], parts.T[:, None]] += products.reshape(len(present), *[len(parts)] * 2)


def near_shapes(ranges: np.ndarray) -> np.ndarray:
    """Return the shares (M, k) that ranges (M,) have of the errors at `NEAR_RANGES`."""
    number = np.arange(len(NEAR_RANGES))
    at = np.interp(ranges, [*NEAR_RANGES, NO_LONGER_NEAR], np.append(number, len(number)))
    return np.maximum(1.0 - np.abs(at[:, None] - number), 0.0)


def mount_covariances(nominal: Poses) -> list[np.ndarray]:
    """Return the prior covariances (6, 6) of the lidars' twists about their `nominal` poses (4, 4) by name."""
    prior = np.diag([MOUNT_POSITION**2] * 3 + [MOUNT_ANGLE**2] * 3)
    about = [adjoint(from_xyz_rpy(pose[:3, 3])) for pose in nominal.values()]
    return [by @ prior @ by.T for by in about]


def noise_weights(matches: Matches, range_noise: float | np.ndarray) -> np.ndarray:
    """Return 1 / variance (M,) of distances from the surface, by noise along the ray and the surface's errors."""
    return 1.0 / ((range_noise * matches.incidence) ** 2 + SURFACE**2)


class CloudReader:
    """Converts clouds of lidars of one kind to returns of the channels of one error `model`: the sensor's, if clouds
    have rings, (N, 5): x, y, z, ring, intensity; otherwise (N, 3) rows of about equal elevation."""

    def __init__(self, sensor: Sensor | None, clouds: Sequence[np.ndarray], noise: float | None = None):
        """`clouds` are all to be converted; `noise` (m) is the unit of `relative_noise`, by default the sensor's."""
        self._grid, self._relative_noise = None, None if sensor is None else sensor.relative_noise
        self._times = 1.0 if sensor is None or not noise else sensor.range_noise / noise
        if sensor is not None and all(cloud.shape[1] > RING for cloud in clouds):
            self.model = sensor.error_model()
        else:
            self._grid = DirectionGrid.by_elevation()
            rows = np.unique(np.concatenate([self._row(cloud[:, :3]) for cloud in clouds]))
            self._channel = np.zeros(len(self._grid.elevations), dtype=np.int64)
            self._channel[rows] = np.arange(len(rows))
            self.model = model_of_rows(sensor, self._grid.elevations[rows])
        for first in map(self.returns, clouds[:1]):
            self.model = replace(self.model, scan_begin=scan_begin(first.rotor, first.channel))

    def _row(self, points: np.ndarray) -> np.ndarray:
        ranges = np.maximum(np.linalg.norm(points, axis=1), 1e-6)
        return self._grid.row_of(self._grid.cell_of(points, ranges))

    def returns(self, cloud: np.ndarray) -> Returns:
        """Return the returns of a cloud (N, 3 or 5) in its lidar's frame."""
        points = cloud[:, :3]
        channel = cloud[:, RING].astype(np.int64) if self._grid is None else self._channel[self._row(points)]
        echo = weak_echo(cloud[:, INTENSITY]) if cloud.shape[1] > INTENSITY else None
        return self.model.returns(points, channel, echo)

    def rays(self, returns: Returns, values: np.ndarray) -> LidarRays:
        """Return the rays of returns without the errors of parameters (n,), except that by incidence."""
        return LidarRays(*self.model.corrected_with_origins(returns, 1.0, values))

    def relative_noise(self, returns: Returns, cosines: np.ndarray) -> np.ndarray:
        """Return the range noise of returns at `cosines` (N,) of incidence, by the sensor file, over that of a near,
        bright surface at normal incidence, or over `noise`."""
        if self._relative_noise is None:
            return np.ones(len(returns))
        return self._times * self._relative_noise(returns.ranges, cosines, returns.echo)
