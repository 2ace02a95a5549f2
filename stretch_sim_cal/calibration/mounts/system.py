"""The residual block of the robot's own surfaces: how far the lidars' returns lie from the model's.

Its unknowns beside those of every calibration (`problem.Unknowns`) are the errors of every link and of the joints:
their zeros, their scales, and in every pose how far they are from what they read (play, sag, noise). The model of a
link can be wrong in two ways: the origin of the joint that holds it is off, which moves the link and all that it
carries, and its mesh is off, which moves nothing else. Both are twists (6,), the same in all samples: the joint
origin's in the frame of the joint as it is fixed to its parent, so that a lift with a turned origin moves along a
turned axis; the mesh's about its centre in the link's own frame. base_link is the reference frame and has no joint
origin. These errors are estimated with the extrinsics, constrained by the model's uncertainty (`model_errors.py`), so
that many returns of one link do not count as more than the link's place is known.

The robot's surfaces are the only ones with a known place, so they determine range errors that no room does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy import sparse

from stretch_sim_cal.calibration.clouds import DirectionGrid
from stretch_sim_cal.calibration.mounts.rays import LidarRays, Matches, PosedSample
from stretch_sim_cal.calibration.mounts.result import MountSample, MountSettings
from stretch_sim_cal.calibration.problem import NormalEquations, State, Unknowns, columns_of
from stretch_sim_cal.geometry.transforms import adjoint, from_rotation_translation
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit import CHANNEL_KINDS, SCALARS, UNKNOWN_SENSOR, ErrorModel, Returns, weak_echo

HALF = float(np.sqrt(0.5))  # of a link's error, one sigma: half of its variance is the joint origin's, half the mesh's
RIGID = 1e-5  # m and rad, of links that the user says are exactly as the model has them
# How far a joint is off by its scale, 1 / m or 1 / rad, per error of its reading: 0.2 % of a lift's way for 1 mm.
SCALE_PER_READING = 2.0
LEAST_SIZE = 0.02  # times the prior of errors of joints
SURFACE = 3e-4  # m: facets and edges of a model's surfaces, beside the noise along the ray
RING, INTENSITY = 3, 4  # columns of clouds (N, 5)


class RobotUnknowns:
    """The unknowns of the robot: the twists of the `lidars`, by name, of the links' joint origins, of the links'
    meshes, the joints' zeros, their scales, and by sample how far they are from what they read. Among all unknowns of
    the problem they stand in `columns` (n,) of `beside`."""

    def __init__(
        self, surfaces: Mapping[str, Surface], settings: MountSettings, lidars: Iterable[str], num_samples: int = 0
    ):  # fmt: skip
        self.lidars, self.links = list(lidars), list(surfaces)
        self.first_link = 6 * len(self.lidars)
        self.joints = list(settings.joint_offsets)
        self.centres = {link: surface.corners.mean(axis=0) for link, surface in surfaces.items()}
        self.first_mesh = self.first_link + 6 * len(self.links)
        self.first_joint = self.first_mesh + 6 * len(self.links)
        self.first_reading = self.first_joint + 2 * len(self.joints)
        self.num_samples = num_samples
        self.size = self.first_reading + num_samples * len(self.joints)
        # How many times as large as their priors the joints' errors of reading are, by joint, and their scales' errors,
        # of all together; `learn` finds it.
        self.reading_sizes, self.scale_size = np.ones(len(self.joints)), 1.0

    def of_lidar(self, name: str) -> slice:
        first = 6 * self.lidars.index(name)
        return slice(first, first + 6)

    def of_link(self, index: int) -> slice:
        return slice(self.first_link + 6 * index, self.first_link + 6 * index + 6)

    def of_mesh(self, index: int) -> slice:
        return slice(self.first_mesh + 6 * index, self.first_mesh + 6 * index + 6)

    def of_joint(self, index: int, sample: int | None) -> np.ndarray:
        """Return the columns of a joint's zero, its scale and, of a sample that has a number, its reading."""
        columns = self.first_joint + index + len(self.joints) * np.array([0, 1, 2 + (sample or 0)])
        return columns[: 2 if sample is None else 3]

    def offsets(self, errors: np.ndarray, number: int, sample: MountSample) -> dict[str, float]:
        """Return how far the joints are from what they read in a sample, with `errors` (n,) of the robot."""
        return {
            joint: float(errors[self.of_joint(index, number)] @ (1.0, sample.joint_values.get(joint, 0.0), 1.0))
            for index, joint in enumerate(self.joints)
        }

    def learn(self, errors: np.ndarray, variances: np.ndarray, settings: MountSettings) -> None:
        """Take the size of the joints' errors of reading, and of their scales' errors, from an estimate (n,) and its
        variances (n,): a step of expectation maximisation, of readings by joint over its samples."""
        readings, squares = _reading_deviations(self, settings), (errors**2 + variances)[self.first_joint :]
        if not squares.size:
            return
        _, scales, *by_sample = squares.reshape(2 + self.num_samples, len(self.joints))
        self.scale_size = max(float(np.sqrt((scales / (SCALE_PER_READING * readings) ** 2).mean())), LEAST_SIZE)
        if by_sample:
            self.reading_sizes = np.maximum(np.sqrt(np.mean(by_sample, axis=0)) / readings, LEAST_SIZE)

    def beside(self, models: tuple[ErrorModel, ...]) -> Unknowns:
        """Return all unknowns of the problem with lidars of these error models."""
        return Unknowns(models, self.size - self.first_link)

    def columns(self, unknowns: Unknowns) -> np.ndarray:
        """Return where these unknowns stand among all of the problem (n,)."""
        return np.concatenate(list(map(columns_of, (*unknowns.poses, unknowns.others))))

    def rows(
        self, lidar: str, sample: PosedSample, matches: Matches
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield for each link in sight which matches are of it (mask), and by which unknowns (C,) and jacobian (N, C)
        their distances change.

        A return's distance from the plane of the surface on its ray is linear in all twists. The arms of the rotations
        are those of the rays' hits: with the returns' own, their noise would correlate with the distances' and bias the
        rotations.
        """
        pose = sample.sample
        for index in np.unique(matches.links):
            link, chosen = self.links[index], matches.links == index
            normals = matches.normals[chosen]
            # Of what is seen, in base_link; of the surface it is the reverse.
            by_twist = np.hstack([normals, np.cross(matches.hits[chosen], normals)])
            surface = sample.base_from_link[link] @ from_rotation_translation(np.eye(3), self.centres[link])
            columns = [columns_of(self.of_lidar(lidar)), columns_of(self.of_mesh(index))]
            parts = [by_twist, -by_twist @ adjoint(surface)]
            for carrier in (link, *pose.held_by.get(link, ())):
                if carrier in pose.held_at:
                    columns.append(columns_of(self.of_link(self.links.index(carrier))))
                    parts.append(-by_twist @ adjoint(pose.held_at[carrier]))
            for number, joint in enumerate(self.joints):
                motion = pose.joint_motions.get(joint, {}).get(link)
                if motion is not None:
                    columns.append(self.of_joint(number, sample.number))
                    factors = np.array([1.0, pose.joint_values.get(joint, 0.0), 1.0])[: len(columns[-1])]
                    parts.append(-(by_twist @ motion)[:, None] * factors)
            yield chosen, np.concatenate(columns), np.hstack(parts)


def remainders(
    robot: RobotUnknowns, lidar: str, sample: PosedSample, matches: Matches, expected: np.ndarray
) -> np.ndarray:
    """Return what of the distances (M,) is left with the twists `expected` (n,): a return is not odd because its link
    is elsewhere, but because it is not where the others of its link are."""
    left = np.array(matches.distances)
    if np.any(expected):
        for chosen, columns, jacobian in robot.rows(lidar, sample, matches):
            left[chosen] += jacobian @ expected[columns]
    return left


def add_returns(
    equations: NormalEquations, unknowns: Unknowns, robot: RobotUnknowns, lidar: str, sample: PosedSample,
    matches: Matches, weights: np.ndarray, returns: Returns, state: State,
) -> None:  # fmt: skip
    """Add matches (M,) with their weights (M,), 1 / m^2, to the normal equations; `returns` (M,) are theirs as
    published."""
    number, columns = robot.lidars.index(lidar), robot.columns(unknowns)
    model, unit, values = unknowns.models[number], unknowns.units[number], state.units[number]
    scalars, channels = model.sensitivity(
        returns,
        matches.incidence,
        matches.normals @ state.base_from_lidar[number][:3, :3],
        values,
        beyond=matches.along,
    )
    first = unit.start + np.arange(len(SCALARS))
    of_kind = [unit.start + np.arange(model.size)[model.of_kind(kind)] for kind in CHANNEL_KINDS]
    information, gradient = equations.information, equations.gradient
    # Link by link, since a return tells of few of the others; a channel's errors are its own returns' alone.
    for chosen, own, jacobian in robot.rows(lidar, sample, matches):
        own, rows = np.concatenate([columns[own], first]), np.hstack([jacobian, scalars[chosen]])
        weighted, distances = weights[chosen, None] * rows, matches.distances[chosen]
        information[np.ix_(own, own)] += rows.T @ weighted
        gradient[own] -= weighted.T @ distances
        of_channel = sparse.csr_array(
            (np.ones(len(rows)), (returns.channel[chosen], np.arange(len(rows)))), shape=(model.num_channels, len(rows))
        )
        weighted_channels = weights[chosen, None] * channels[chosen]
        for part, kind, weighted_kind in zip(of_kind, channels[chosen].T, weighted_channels.T, strict=True):
            crossed = of_channel @ (kind[:, None] * weighted)
            information[np.ix_(part, own)] += crossed
            information[np.ix_(own, part)] += crossed.T
            gradient[part] -= of_channel @ (weighted_kind * distances)
            for other, products in zip(of_kind, (of_channel @ (kind[:, None] * weighted_channels)).T, strict=True):
                information[part, other] += products


def mount_covariances(nominal: Mapping[str, np.ndarray], settings: MountSettings) -> list[np.ndarray]:
    """Return the prior covariances (6, 6) of the lidars' twists about their `nominal` poses (4, 4) by name."""
    own = np.diag([settings.mount_position**2] * 3 + [settings.mount_angle**2] * 3)
    about = [adjoint(from_rotation_translation(np.eye(3), pose[:3, 3])) for pose in nominal.values()]
    return [by @ own @ by.T for by in about]


def model_variances(unknowns: RobotUnknowns, settings: MountSettings) -> np.ndarray:
    """Return the prior variances (n,) of links and joints, 0 for the extrinsics."""
    joints, links = unknowns.joints, len(unknowns.links)
    one = np.repeat([HALF * settings.link_position, HALF * settings.link_angle], 3)
    zeros = [settings.joint_prior.get(joint, settings.default_joint_prior) for joint in joints]
    readings = _reading_deviations(unknowns, settings)
    return np.concatenate([
        np.zeros(unknowns.first_link), np.tile(np.maximum(one, RIGID) ** 2, 2 * links), np.square(zeros),
        np.square(SCALE_PER_READING * readings * unknowns.scale_size),
        np.tile((readings * unknowns.reading_sizes) ** 2, unknowns.num_samples),
    ])  # fmt: skip


def _reading_deviations(unknowns: RobotUnknowns, settings: MountSettings) -> np.ndarray:
    """Return the prior standard deviations (J,) of how far joints are from what they read."""
    return np.array([settings.joint_reading.get(joint, RIGID) for joint in unknowns.joints])


def without_readings(unknowns: RobotUnknowns, information: np.ndarray) -> np.ndarray:
    """Return information (n, n) about the unknowns without those of single samples, which are eliminated."""
    kept, gone = slice(0, unknowns.first_reading), slice(unknowns.first_reading, None)
    coupling = information[kept, gone]
    return information[kept, kept] - coupling @ np.linalg.solve(information[gone, gone], coupling.T)


def noise_weights(matches: Matches, range_noise: float | np.ndarray) -> np.ndarray:
    """Return 1 / variance (M,) of distances from the surface: noise is along the ray, the surface's own across it."""
    return 1.0 / ((range_noise * matches.incidence) ** 2 + SURFACE**2)


class CloudReader:
    """Takes clouds of lidars of one kind apart into returns of the channels of one error `model`.

    A sensor's table is used if clouds have their rings, (N, 5): x, y, z, ring, intensity. Otherwise (N, 3) a channel is
    a row of about equal elevation.
    """

    def __init__(self, sensor: Sensor | None, clouds: Sequence[np.ndarray], noise: float | None = None):
        """`clouds` are all that returns will be asked of; `noise` (m) is the unit in which their noise is given, by
        default the sensor's own."""
        self._grid = None
        self._relative_noise = None if sensor is None else sensor.relative_noise
        self._times = 1.0 if sensor is None or not noise else sensor.range_noise / noise
        if sensor is not None and all(cloud.shape[1] > RING for cloud in clouds):
            self.model = sensor.error_model()
            return
        self._grid = DirectionGrid.by_elevation()
        rows = np.unique(np.concatenate([self._row(cloud[:, :3]) for cloud in clouds]))
        self._channel = np.zeros(len(self._grid.elevations), dtype=np.int64)
        self._channel[rows] = np.arange(len(rows))
        spread = UNKNOWN_SENSOR if sensor is None else sensor.expected
        centre = np.zeros(3) if sensor is None else sensor.optical_centre
        self.model = ErrorModel(spread, self._grid.elevations[rows], np.zeros(len(rows)), centre)

    def _row(self, points: np.ndarray) -> np.ndarray:
        ranges = np.maximum(np.linalg.norm(points, axis=1), 1e-6)
        return self._grid.row_of(self._grid.cell_of(points, ranges))

    def returns(self, cloud: np.ndarray) -> Returns:
        """Return a cloud (N, 3 or 5) in its lidar's frame taken apart."""
        points = cloud[:, :3]
        channel = cloud[:, RING].astype(np.int64) if self._grid is None else self._channel[self._row(points)]
        echo = weak_echo(cloud[:, INTENSITY]) if cloud.shape[1] > INTENSITY else None
        return self.model.returns(points, channel, echo)

    def rays(self, returns: Returns, values: np.ndarray) -> LidarRays:
        """Return the rays of returns with the errors of a unit with parameters (n,) taken out, but for that by
        incidence."""
        return LidarRays(*self.model.corrected_with_origins(returns, 1.0, values))

    def relative_noise(self, returns: Returns, cosines: np.ndarray) -> np.ndarray:
        """Return how many times larger the noise of the ranges of returns at `cosines` (N,) of incidence is, by the
        sensor file, than that of a bright surface at hand that is hit at right angles, or than the `noise` given."""
        if self._relative_noise is None:
            return np.ones(len(returns))
        return self._times * self._relative_noise(returns.ranges, cosines, returns.echo)
