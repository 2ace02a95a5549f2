"""The normal equations of the lidar extrinsics: twists of both lidars, errors of every link, zeros of the joints, and the
lidars' own errors.

The model of a link can be wrong in two ways: the origin of the joint that holds it is off, which moves the link and all that
it carries, and its mesh is off, which moves nothing else. Both are twists (6,), the same in all samples: the joint origin's in
the frame of the joint as it is fixed to its parent, so that a lift with a turned origin moves along a turned axis; the mesh's
about its centre in the link's own frame. base_link is the reference frame and has no joint origin. These errors are estimated
with the extrinsics, constrained by the model's uncertainty (`model_errors.py`), so that many returns of one link do not count
as more than the link's place is known.

The lidars' own errors are unknowns beside these, eliminated before the model's errors are weighed. The robot's surfaces are the
only ones with a known place, so they determine range errors that no room does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from stretch_sim_cal.calibration.body.outline import LinkSurface
from stretch_sim_cal.calibration.clouds import DirectionGrid
from stretch_sim_cal.calibration.mounts.rays import LidarRays, Matches, PosedSample
from stretch_sim_cal.calibration.mounts.result import MountSettings
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.problem import BEYOND_PRIOR, LEFT, RIGHT, State, Unknowns
from stretch_sim_cal.geometry.points import group_sums
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, from_rotation_translation, inverse, log
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit import (
    CHANNEL_KINDS,
    INCIDENCE,
    SCALARS,
    UNKNOWN_SENSOR,
    ErrorModel,
    Returns,
    weak_echo,
)

MOUNTS = 2 * 6
HALF = float(np.sqrt(0.5))  # of a link's error, one sigma: half of its variance is the joint origin's, half the mesh's
RIGID = 1e-5  # m and rad, of links that the user says are exactly as the model has them
SURFACE = 3e-4  # m: facets and edges of a model's surfaces, beside the noise along the ray


class RobotUnknowns:
    """Which column of the system is what: the twists of the left and the right lidar, of the links' joint origins, of the
    links' meshes, and the joints' offsets."""

    def __init__(self, surfaces: Mapping[str, LinkSurface], settings: MountSettings):
        self.links = list(surfaces)
        self.joints = list(settings.joint_offsets)
        self.centres = {link: surface.corners.mean(axis=0) for link, surface in surfaces.items()}
        self.first_mesh = MOUNTS + 6 * len(self.links)
        self.first_joint = self.first_mesh + 6 * len(self.links)
        self.size = self.first_joint + len(self.joints)

    def of_side(self, side: str) -> slice:
        start = 6 * SIDES.index(side)
        return slice(start, start + 6)

    def of_link(self, index: int) -> slice:
        return slice(MOUNTS + 6 * index, MOUNTS + 6 * index + 6)

    def of_mesh(self, index: int) -> slice:
        return slice(self.first_mesh + 6 * index, self.first_mesh + 6 * index + 6)


def add_matches(
    information: np.ndarray, gradient: np.ndarray, unknowns: RobotUnknowns, side: str, sample: PosedSample,
    matches: Matches, weights: np.ndarray, coupled: Callable | None = None,
) -> None:  # fmt: skip
    """Add matches with their weights (M,), 1 / m^2, to the system `information @ step = gradient`, link by link; each
    link's part is also given to `coupled`, as (mask, columns, jacobian).

    Gauss-Newton: a return's distance from the plane of the surface on its ray is linear in all twists. The arms of
    the rotations are those of the rays' hits: with the returns' own, their noise would correlate with the distances'
    and bias the rotations.
    """
    for chosen, columns, jacobian in _rows(unknowns, side, sample, matches):
        weighted = weights[chosen][:, None] * jacobian
        information[np.ix_(columns, columns)] += jacobian.T @ weighted
        gradient[columns] -= weighted.T @ matches.distances[chosen]
        if coupled is not None:
            coupled(chosen, columns, jacobian)


def remainders(
    unknowns: RobotUnknowns, side: str, sample: PosedSample, matches: Matches, expected: np.ndarray
) -> np.ndarray:
    """Return what of the distances (M,) is left with the twists `expected` (size,): a return is not odd because its
    link is elsewhere, but because it is not where the others of its link are."""
    left = np.array(matches.distances)
    if np.any(expected):
        for chosen, columns, jacobian in _rows(unknowns, side, sample, matches):
            left[chosen] += jacobian @ expected[columns]
    return left


def _rows(
    unknowns: RobotUnknowns, side: str, sample: PosedSample, matches: Matches
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield for each link in sight which matches are of it (mask), and by which columns (C,) and jacobian (N, C) they
    tell of the unknowns."""
    for index in np.unique(matches.links):
        chosen = matches.links == index
        yield (
            chosen,
            *_jacobian(unknowns, side, sample, unknowns.links[index], matches.hits[chosen], matches.normals[chosen]),
        )


def _jacobian(
    unknowns: RobotUnknowns, side: str, sample: PosedSample, link: str, feet: np.ndarray, normals: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how distances from a link's surface at `feet` (M, 3) change with which unknowns: columns, (M, columns)."""
    # Of what is seen, in base_link; of the surface it is the reverse.
    by_twist = np.hstack([normals, np.cross(feet, normals)])
    surface = sample.base_from_link[link] @ from_rotation_translation(np.eye(3), unknowns.centres[link])
    columns = [unknowns.of_side(side), unknowns.of_mesh(unknowns.links.index(link))]
    parts = [by_twist, -by_twist @ adjoint(surface)]
    for carrier in (link, *sample.sample.held_by.get(link, ())):
        if carrier in sample.sample.held_at:
            columns.append(unknowns.of_link(unknowns.links.index(carrier)))
            parts.append(-by_twist @ adjoint(sample.sample.held_at[carrier]))
    for number, joint in enumerate(unknowns.joints):
        columns.append(slice(unknowns.first_joint + number, unknowns.first_joint + number + 1))
        parts.append(-(by_twist @ sample.sample.joint_motions.get(joint, {}).get(link, np.zeros(6)))[:, None])
    return np.concatenate([np.arange(part.start, part.stop) for part in columns]), np.hstack(parts)


def add_priors(
    information: np.ndarray, gradient: np.ndarray, unknowns: RobotUnknowns, state: np.ndarray,
    poses: Mapping[str, np.ndarray], nominal: Mapping[str, np.ndarray], settings: MountSettings,
) -> None:  # fmt: skip
    """Add the priors of extrinsics, links and joints' zeros. `state` (size,) holds the present twists of the links and offsets
    of the joints."""
    for side in SIDES:
        prior = np.diag([settings.mount_position**-2] * 3 + [settings.mount_angle**-2] * 3)
        about = adjoint(from_rotation_translation(np.eye(3), -nominal[side][:3, 3]))
        weight = about.T @ prior @ about
        columns = unknowns.of_side(side)
        information[columns, columns] += weight
        gradient[columns] -= weight @ log(poses[side] @ inverse(nominal[side]))
    weights = 1.0 / model_variances(unknowns.size, settings)[MOUNTS:]
    rest = np.arange(MOUNTS, unknowns.size)
    information[rest, rest] += weights
    gradient[rest] -= weights * state[rest]


def model_variances(size: int, settings: MountSettings) -> np.ndarray:
    """Return the prior variances (size,) of links and joints' zeros, 0 for the extrinsics."""
    links = (size - MOUNTS - len(settings.joint_offsets)) // 6
    one = np.repeat([HALF * settings.link_position, HALF * settings.link_angle], 3)
    joints = [settings.joint_prior.get(joint, settings.default_joint_prior) for joint in settings.joint_offsets]
    return np.concatenate([np.zeros(MOUNTS), np.tile(np.maximum(one, RIGID) ** 2, links), np.square(joints)])


def noise_weights(matches: Matches, range_noise: float | np.ndarray) -> np.ndarray:
    """Return 1 / variance (M,) of distances from the surface: noise is along the ray, the surface's own across it."""
    return 1.0 / ((range_noise * matches.incidence) ** 2 + SURFACE**2)


def tukey(sigmas: np.ndarray, limit: float) -> np.ndarray:
    """Return Tukey's robust weights (M,) of residuals in sigma."""
    return np.maximum(0.0, 1.0 - (sigmas / limit) ** 2) ** 2


RING, INTENSITY = 3, 4  # columns of clouds (N, 5)
NUM_SCALARS = len(SCALARS)


class Units:
    """Both lidars' error models with the parameters found so far, `values` (2 n,), the left one's first.

    A sensor's table is used if clouds have their rings, (N, 5): x, y, z, ring, intensity. Otherwise (N, 3) a channel is a
    row of about equal elevation.
    """

    def __init__(self, sensor: Sensor | None, clouds: Sequence[np.ndarray]):
        """`clouds` are all that returns will be asked of."""
        self._grid = None
        self._relative_noise = None if sensor is None else sensor.relative_noise
        if sensor is not None and all(cloud.shape[1] > RING for cloud in clouds):
            self.model = sensor.error_model()
        else:
            self._grid = DirectionGrid.by_elevation()
            rows = np.unique(np.concatenate([self._row(cloud[:, :3]) for cloud in clouds]))
            self._channel = np.zeros(len(self._grid.elevations), dtype=np.int64)
            self._channel[rows] = np.arange(len(rows))
            spread = UNKNOWN_SENSOR if sensor is None else sensor.spread
            centre = np.zeros(3) if sensor is None else sensor.optical_centre
            self.model = ErrorModel(spread, self._grid.elevations[rows], np.zeros(len(rows)), centre)
        roots = self.model.prior_roots()
        one = np.hstack(list(roots.values()))
        zero = np.zeros_like(one)
        self._prior_root = self._root = np.block([[one, zero], [zero, one]])
        self.values = np.zeros(2 * self.model.size)
        self._scalars = np.r_[0 : roots["scalars"].shape[1]]
        self._scalars = np.concatenate([self._scalars, one.shape[1] + self._scalars])
        self._z, self._widths = np.zeros(2 * one.shape[1]), np.ones(2 * one.shape[1])

    def start_at(self, values: Sequence[np.ndarray]) -> None:
        """Begin with parameters (n,) of the left and of the right lidar that are known from elsewhere."""
        self._move_to(np.linalg.lstsq(self._prior_root, np.concatenate(values), rcond=1e-9)[0])

    def _move_to(self, z: np.ndarray, widened: bool = False) -> None:
        """Take over the parameters in standard deviations of their prior."""
        self._widths = np.ones(len(z))
        own = np.abs(z[self._scalars])
        if widened:
            self._widths[self._scalars] = np.where(own > BEYOND_PRIOR, own, 1.0)
        self._root, self._z = self._prior_root * self._widths, z / self._widths
        self.values = self._root @ self._z

    def move(self, step: np.ndarray, widened: bool) -> None:
        """Change the parameters by a step in standard deviations of their present prior. One that they exceed by far is to be
        `widened` (as in `Solver`) where they have nearly settled: on the way there they exceed what they need not."""
        self._move_to((self._z + step) * self._widths, widened)

    def _row(self, points: np.ndarray) -> np.ndarray:
        ranges = np.maximum(np.linalg.norm(points, axis=1), 1e-6)
        return self._grid.row_of(self._grid.cell_of(points, ranges))

    def of_side(self, side: str) -> slice:
        start = self.model.size * SIDES.index(side)
        return slice(start, start + self.model.size)

    @property
    def scalars(self) -> np.ndarray:
        """The scalars (28,) of both lidars."""
        return self.values.reshape(2, -1)[:, :NUM_SCALARS].ravel()

    def returns(self, cloud: np.ndarray) -> Returns:
        """Return a cloud (N, 3 or 5) in its lidar's frame taken apart."""
        points = cloud[:, :3]
        if self._grid is not None:
            channel = self._channel[self._row(points)]
        else:
            channel = cloud[:, RING].astype(np.int64)
        echo = weak_echo(cloud[:, INTENSITY]) if cloud.shape[1] > INTENSITY else None
        return self.model.returns(points, channel, echo)

    def relative_noise(self, cloud: np.ndarray, matches: Matches) -> np.ndarray:
        """Return how many times larger the noise of the ranges of matches (M,) is, by the sensor file, than that of a bright
        surface at hand that is hit at right angles."""
        if self._relative_noise is None:
            return np.ones(len(matches.indices))
        returns = self.returns(cloud[matches.indices])
        return self._relative_noise(returns.ranges, matches.incidence, returns.echo)

    def rays(self, side: str, cloud: np.ndarray) -> LidarRays:
        """Return the rays of a cloud (N, 3 or 5) with its lidar's errors taken out, but for that by incidence."""
        return LidarRays(*self.model.corrected_with_origins(self.returns(cloud), 1.0, self.values[self.of_side(side)]))

    def without_incidence(self, side: str, matches: Matches) -> Matches:
        """Return matches with the error by incidence taken out of their distances."""
        late = self.values[self.of_side(side)][INCIDENCE]
        if not late:
            return matches
        return replace(matches, distances=matches.distances + late * (1.0 - matches.incidence))


@dataclass
class Coupled:
    """Normal equations of the mounts' own unknowns together with the units': `own` (n, n) and (n,) are kept apart by the
    caller; here is what couples them, (n, 2 m), and the units' own part (2 m, 2 m) and (2 m,)."""

    units: Units
    coupling: np.ndarray
    information: np.ndarray
    gradient: np.ndarray

    @classmethod
    def empty(cls, units: Units, size: int) -> "Coupled":
        count = 2 * units.model.size
        return cls(units, np.zeros((size, count)), np.zeros((count, count)), np.zeros(count))

    def add(
        self, side: str, cloud: np.ndarray, matches: Matches, weights: np.ndarray, rotation: np.ndarray
    ) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
        """Add what matches (M,), of a cloud's rows `matches.indices`, with weights (M,) say of the units alone; `rotation`
        (3, 3) is base_from_lidar's. Return what adds how they couple the units with the mounts' own unknowns: called with a
        mask (M,) of C matches, `columns` (K,), and the `jacobian` (C, K) of their distances by these."""
        model, own = self.units.model, self.units.of_side(side)
        returns = self.units.returns(cloud[matches.indices])
        scalars, channels = model.sensitivity(
            returns, matches.incidence, matches.normals @ rotation, self.units.values[own], beyond=matches.along
        )
        weighted, weighted_channels = scalars * weights[:, None], channels * weights[:, None]
        count, parts = model.num_channels, [model.of_kind(kind) for kind in CHANNEL_KINDS]
        block, gradient = self.information[own, own], self.gradient[own]
        block[:NUM_SCALARS, :NUM_SCALARS] += scalars.T @ weighted
        gradient[:NUM_SCALARS] -= weighted.T @ matches.distances
        for part, column in zip(parts, weighted_channels.T, strict=True):
            crossed = group_sums(returns.channel, count, column[:, None] * scalars)
            block[part, :NUM_SCALARS] += crossed
            block[:NUM_SCALARS, part] += crossed.T
            gradient[part] -= np.bincount(returns.channel, column * matches.distances, minlength=count)
            products = group_sums(returns.channel, count, column[:, None] * channels)
            for second, other in enumerate(parts):
                block[part, other] += np.diag(products[:, second])

        def couple(chosen: np.ndarray, columns: np.ndarray, jacobian: np.ndarray) -> None:
            coupling, number = np.zeros((len(columns), model.size)), np.count_nonzero(chosen)
            coupling[:, :NUM_SCALARS] = jacobian.T @ weighted[chosen]
            by_channel = sparse.csr_array(
                (np.ones(number), (returns.channel[chosen], np.arange(number))), shape=(count, number)
            )
            for part, column in zip(parts, weighted_channels[chosen].T, strict=True):
                coupling[:, part] = (by_channel @ (column[:, None] * jacobian)).T
            self.coupling[columns, own] += coupling

        return couple

    def add_observations(
        self, observations: Observations, poses: Mapping[str, np.ndarray], information: np.ndarray, gradient: np.ndarray
    ) -> None:
        """Add what the alignment observed of poses (4, 4) and units, to these and to the mounts' own equations (in place)."""
        unknowns = Unknowns((self.units.model, self.units.model))
        state = State(
            tuple(poses[side] for side in SIDES), tuple(self.units.values[self.units.of_side(side)] for side in SIDES)
        )
        seen = observations.equations_at(state, unknowns)
        own = np.r_[LEFT, RIGHT]
        units = np.arange(unknowns.units[0].start, unknowns.units[1].stop)
        information[np.ix_(own, own)] += seen.information[np.ix_(own, own)]
        gradient[own] += seen.gradient[own]
        self.coupling[own] += seen.information[np.ix_(own, units)]
        self.information += seen.information[np.ix_(units, units)]
        self.gradient += seen.gradient[units]

    def reduced(self, information: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mounts' own normal equations with the units eliminated under their prior."""
        self._root = root = self.units._root
        self._factor = cho_factor(root.T @ self.information @ root + np.eye(root.shape[1]), lower=True)
        self._right = root.T @ self.gradient - self.units._z
        self._coupling = self.coupling @ root
        solved = cho_solve(self._factor, np.column_stack([self._coupling.T, self._right]))
        return information - self._coupling @ solved[:, :-1], gradient - self._coupling @ solved[:, -1]

    def take(self, solution: np.ndarray, widened: bool) -> None:
        """Take over what the solution (n,) of the reduced equations means for the units, with priors `widened` or not."""
        self.units.move(cho_solve(self._factor, self._right - self._coupling.T @ solution), widened)

    def scalar_covariance(self, covariance: np.ndarray) -> np.ndarray:
        """Return the covariance (28, 28) of both lidars' scalars, that of the mounts' own unknowns being (n, n)."""
        size = self.units.model.size
        columns = np.r_[0:NUM_SCALARS, size : size + NUM_SCALARS]
        rows = cho_solve(self._factor, self._root[columns].T)
        by_mounts = self._coupling @ rows
        return self._root[columns] @ rows + by_mounts.T @ covariance @ by_mounts

    def numbers(self, covariance: np.ndarray) -> dict[str, float]:
        """Return the scalars found, in m, rad and ratios, with the standard deviations that their `scalar_covariance` says."""
        numbers, deviations = {}, np.sqrt(covariance.diagonal()).reshape(2, NUM_SCALARS)
        for side, own in zip(SIDES, deviations, strict=True):
            for name, value, deviation in zip(SCALARS, self.units.values[self.units.of_side(side)], own, strict=False):
                if deviation > 0:
                    numbers[f"{name}_{side}"], numbers[f"{name}_{side}_std"] = float(value), float(deviation)
        return numbers
