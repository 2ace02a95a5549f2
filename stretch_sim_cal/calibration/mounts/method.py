"""The lidar extrinsics, base_link_from_lidar, by the returns from the robot, against its model at the joint values
(method and assumptions: docs/mounts.md)."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stretch_sim_cal.calibration.findings import unit_warnings
from stretch_sim_cal.calibration.mounts import findings as checks
from stretch_sim_cal.calibration.mounts import residuals as block
from stretch_sim_cal.calibration.mounts import result as results
from stretch_sim_cal.calibration.mounts.model_errors import MOST_RELEASED, ModelErrors, with_model_errors
from stretch_sim_cal.calibration.mounts.residuals import CloudReader, LidarRays, Matches, PosedSample, RobotUnknowns
from stretch_sim_cal.calibration.mounts.result import MountSample, MountSettings, MountsResult, Residuals
from stretch_sim_cal.calibration.observability import directions
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.problem import NormalEquations, Priors, State, columns_of
from stretch_sim_cal.calibration.reduction import Marginalised
from stretch_sim_cal.calibration.robust import TUKEY, TUKEY_SEARCH, robust_deviation, robust_equations, tukey_weights
from stretch_sim_cal.calibration.solver import Solver, scalar_numbers
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import downsampled, group_medians, voxel_keys
from stretch_sim_cal.geometry.transforms import Poses, about_origin, adjoint, apply, exp, from_xyz_rpy, inverse
from stretch_sim_cal.robot.surfaces import Surfaces
from stretch_sim_cal.sensor.sensor import Sensors, for_each
from stretch_sim_cal.sensor.unit import INCIDENCE, Returns

GATES = (0.14, 0.14, 0.11, 0.09, 0.07, 0.055, 0.045, 0.04, 0.035, 0.035)  # m, of the distance along the ray, by step
SEARCH_GRAZING = 0.25
START_ANGLE = np.deg2rad(1.8)
WEAK_POSITION, WEAK_ANGLE = 0.03, np.deg2rad(3.0)  # prior of one step, for directions that are not determined

PATCH_SIZE = 0.03  # m, edge of the cells of a link's surface whose returns have a common median
PATCH_RETURNS = 8
MEDIAN_SIGMAS = 4.0
MODEL_SIGMAS = 4.0
SLACK = 1.5e-3  # m
DRAWN = 80_000
FINE_STEPS, MOST_STEPS = 4, 20
# The estimate is tried without each link that has more than this share of the returns. The change without one is
# significant above this chi square per value: of robots as described and with joint-origin errors it is 0.5 at most,
# of one with a sheet on its base 13.
MANY, LEANS = 0.05, 2.5
CONVERGED = 0.2  # standard deviations of the lidars' errors: a smaller step is the last
SEPARABLE = 0.25  # posterior over prior standard deviation of a joint's zero
GATE = 6.0  # sigma of range noise and link errors, beyond which a return is not of the model
SEEN = 3.5  # sigma of the range noise, for pictures
NEAR = 0.12  # m of the model along the ray: returns that may be of it, or of an object that is fixed to it
GRAZING = 0.15  # cosine of incidence, below which a range depends little on the surface's place
EDGE_ANGLES = (np.deg2rad(0.4), np.deg2rad(0.15))  # beside a ray the model has to be the same, at first and later
MARGIN = 0.004  # m, likewise, by the errors of links
FINE_POINTS = 400_000  # over all lidars and all samples
SAME_OFFSET = 2e-5  # m and rad, of a joint: the model is not moved for smaller steps, since that takes time
TURNS = 1e-3  # rad per unit of a joint that turns links
FIRST_POSITION, FIRST_ANGLE = 0.015, np.deg2rad(0.5)  # m, rad: an optical centre that no driver corrects
SEEN_RAYS, SEEN_LEAST = 4000, 50  # rays of a lidar in a sample, and those of them that have to meet the model

Corrected = Callable[[str, np.ndarray], LidarRays]  # of a lidar by name, and its cloud (N, 3 or 5)
Seen = list[tuple[str, PosedSample, LidarRays]]  # some returns of each lidar, by name, in each sample


def search(
    samples: Sequence[PosedSample], nominal: Poses, alignment: Observations | None, settings: MountSettings,
    readers: Mapping[str, CloudReader], units: Sequence[np.ndarray],
) -> tuple[Poses, list[float]]:  # fmt: skip
    """Return the best of the minima from all starts, and the cost of each: the share of unexplained returns. The errors
    of the lidars with parameters `units` (n,) are subtracted."""
    seen: Seen = []
    for (name, pose), values in zip(nominal.items(), units, strict=True):
        for sample in samples:
            near = downsampled(sample.around(name, pose), 8000 // len(samples))  # rays of a lidar in all samples
            seen.append((name, sample, readers[name].rays(readers[name].returns(near), values)))
    ends = [_descend(seen, start, alignment, settings) for start in _starts(nominal, alignment)]
    costs = [_cost(seen, end, settings) for end in ends]
    return ends[int(np.argmin(costs))], costs


def _starts(nominal: Poses, alignment: Observations | None) -> list[Poses]:
    """Return the nominal poses (with an alignment, rigid bodies at the nominal pose of each lidar), and turned ones."""
    bodies = [nominal]
    if alignment is not None:
        to_first = dict(zip(nominal, (np.eye(4), *alignment.poses), strict=True))
        firsts = [pose @ inverse(to_first[name]) for name, pose in nominal.items()]
        bodies = [{name: first @ pose for name, pose in to_first.items()} for first in firsts]
    starts, first = list(bodies), next(iter(nominal))
    for axis, sign in itertools.product(range(3), (-1.0, 1.0)):
        turn, start = sign * START_ANGLE * np.eye(6)[3 + axis], {}
        for name, pose in bodies[0].items():
            # Aligned lidars turn as one body, about the first one.
            about = bodies[0][name if alignment is None else first]
            start[name] = exp(adjoint(from_xyz_rpy(about[:3, 3])) @ turn) @ pose
        starts.append(start)
    return starts


def _descend(seen: Seen, poses: Poses, alignment: Observations | None, settings: MountSettings) -> Poses:
    for gate in GATES:
        information, gradient = np.zeros((6 * len(poses), 6 * len(poses))), np.zeros(6 * len(poses))
        for index, (name, pose) in enumerate(poses.items()):
            part = slice(6 * index, 6 * index + 6)
            matches = [sample.match(rays, pose, gate, SEARCH_GRAZING) for of, sample, rays in seen if of == name]
            jacobian, distances = (np.concatenate(parts) for parts in zip(*map(Matches.rows, matches), strict=True))
            if len(distances):
                equations = robust_equations(jacobian, distances, settings.range_noise / 2, TUKEY_SEARCH)
                information[part, part], gradient[part] = equations[:2]
            weak = np.diag([WEAK_POSITION**-2] * 3 + [WEAK_ANGLE**-2] * 3)
            about = about_origin(pose)
            information[part, part] += about.T @ weak @ about
        if alignment is not None:
            of_alignment = alignment.of_poses(tuple(poses.values()))
            information, gradient = information + of_alignment[0], gradient + of_alignment[1]
        step = np.linalg.solve(information, gradient)
        poses = {name: exp(step[6 * i : 6 * i + 6]) @ pose for i, (name, pose) in enumerate(poses.items())}
    return poses


def _cost(seen: Seen, poses: Poses, settings: MountSettings) -> float:
    """Return the mean over all returns of the squared residual in units of 3 sigma, 1 for what is not explained."""
    limit = 3.0 * settings.range_noise
    residuals = [sample.match(rays, poses[name], limit, 0.05).along for name, sample, rays in seen]
    explained = sum(float((1.0 - (along / limit) ** 2).sum()) for along in residuals)
    return 1.0 - explained / max(sum(len(rays) for *_, rays in seen), 1)


def consistent(matches: Matches, residuals: np.ndarray, sample: PosedSample, unknowns: RobotUnknowns) -> np.ndarray:
    """Return a mask (M,) of the matches in patches whose median residual, with the estimated links, is explained by
    model and noise. An object that is fixed to a surface and no thicker than the noise shifts the median of its patch,
    and no single return by much."""
    count, settings = len(matches.indices), unknowns.settings
    if not count:
        return np.zeros(0, dtype=bool)
    frames = [sample.base_from_link[link] for link in unknowns.links]
    keys = np.zeros(count, dtype=np.int64)
    for index in np.unique(matches.links):
        chosen, pose = matches.links == index, frames[index]
        in_link = (matches.hits[chosen] - pose[:3, 3]) @ pose[:3, :3]
        keys[chosen] = voxel_keys(in_link, PATCH_SIZE)
    keys = np.unique(keys, return_inverse=True)[1] * len(frames) + matches.links
    _, patch, counts = np.unique(keys, return_inverse=True, return_counts=True)
    medians = group_medians(patch, counts, residuals)
    noise = np.bincount(patch, settings.range_noise * matches.incidence) / counts
    centres = np.array([apply(frame, centre) for frame, centre in zip(frames, unknowns.centres.values(), strict=True)])
    arm = np.bincount(patch, np.linalg.norm(matches.hits - centres[matches.links], axis=1)) / counts
    model = np.hypot(settings.link_position, settings.link_angle * arm)
    off = np.abs(medians) > SLACK + MODEL_SIGMAS * model + MEDIAN_SIGMAS * 1.2533 * noise / np.sqrt(counts)
    return ~((counts >= PATCH_RETURNS) & off)[patch]


def link_residuals(unknowns: RobotUnknowns, seen: np.ndarray, errors: ModelErrors) -> list[results.LinkResidual]:
    """Return the estimated error of every link with returns, `seen` (l,), largest first; in sigma of its prior, or of
    the errors of this robot's links if these are larger."""
    priors = np.sqrt(unknowns.variances())
    residuals = []
    for index in np.flatnonzero(seen):
        parts = [(unknowns.of_link(index), errors.origin_scale), (unknowns.of_mesh(index), errors.mesh_scale)]
        shares = [np.abs(errors.solution[part] / priors[part]).max() / max(scale, 1.0) for part, scale in parts]
        motion, sigmas = sum(errors.solution[part] for part, _ in parts), float(max(shares))
        released = index in errors.released
        residuals.append(results.LinkResidual(unknowns.links[index], motion, sigmas, int(seen[index]), released))
    return sorted(residuals, key=lambda residual: -residual.sigmas)


def residuals_of(models: list[PosedSample], poses: Poses, gate: float, corrected: Corrected | None = None) -> Residuals:
    """Return the downsampled returns whose rays meet the model, within `gate` (m) of it or in front of it; `corrected`
    returns the rays of a cloud (N, 3 or 5) without the lidar's errors."""
    parts = []
    count = DRAWN // (len(poses) * len(models))
    for name, pose in poses.items():
        for index, model in enumerate(models):
            cloud = downsampled(model.around(name, pose), 4 * count)
            rays = LidarRays(cloud[:, :3]) if corrected is None else corrected(name, cloud)
            matches = model.match(rays, pose, block.REACH, 0.05)
            matches = matches.chosen(matches.along < gate)
            near, samples = np.abs(matches.along) < gate, np.full(len(matches.indices), index)
            parts.append((matches.points, matches.hits, matches.distances, near, matches.links, samples))
    return Residuals(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def seen_through(models: Sequence[PosedSample], poses: Poses, corrected: Corrected) -> dict[str, float]:
    """Return, by the name of each sample with enough rays that meet the model, not at an edge, the share of these whose
    returns lie clearly behind it; `corrected` as of `residuals_of`."""
    shares = {}
    for model in models:
        behind = []
        for name, pose in poses.items():
            cloud = model.sample.clouds[name]
            far = cloud[np.linalg.norm(cloud[:, :3], axis=1) > block.COLLAR]
            matches = model.match(corrected(name, downsampled(far, SEEN_RAYS)), pose, np.inf, GRAZING)
            behind.append(matches.along[model.inside(matches, EDGE_ANGLES[0], checks.FRONT / 4)] > checks.FRONT)
        every = np.concatenate(behind)
        if len(every) >= SEEN_LEAST:
            shares[model.sample.name] = float(every.mean())
    return shares


def calibrate_mounts(
    surfaces: Surfaces, samples: Sequence[MountSample], nominal: Poses,
    alignment: Observations | None = None, settings: MountSettings = MountSettings(),
) -> MountsResult:  # fmt: skip
    """Return the extrinsics of any number of lidars by their returns from the robot in several arm poses. `surfaces`
    are the model's by link, in link frames; `nominal` the lidars' described poses by name, right to about 3 deg and 30
    mm; `alignment` observations of the same lidars, in the same order, to each other, and of their errors (unused for
    one lidar). With it a lidar need not see the robot. Raises `InputError` for samples without data."""
    alignment = alignment if len(nominal) > 1 else None
    _check(samples, nominal, alignment)
    return _Mounts(surfaces, list(samples), dict(nominal), alignment, settings).solve()


def _check(samples: Sequence[MountSample], nominal: Poses, alignment: Observations | None) -> None:
    if not samples:
        raise InputError("mounts: no samples; at least one arm pose is needed")
    if alignment is not None and alignment.names != tuple(nominal):
        raise InputError(f"mounts: the alignment is of {', '.join(alignment.names)}, not of {', '.join(nominal)}")
    for sample, name in itertools.product(samples, nominal):
        cloud = sample.clouds.get(name)
        if cloud is None or np.ndim(cloud) != 2 or cloud.shape[1] not in (3, 5) or not len(cloud):
            raise InputError(f"mounts: {sample.name}: has no {name} cloud in its lidar's own frame; collect it again")


def cloud_readers(sensors: Sensors, samples: Sequence[MountSample], lidars: Sequence[str]) -> dict[str, CloudReader]:
    """Return the readers of clouds by lidar; all lidars share one if they are of one kind."""
    clouds = {name: [sample.clouds[name] for sample in samples] for name in lidars}
    if not isinstance(sensors, tuple):
        return dict.fromkeys(lidars, CloudReader(sensors, [cloud for each in clouds.values() for cloud in each]))
    kinds = for_each(sensors, len(lidars))
    finest = min((sensor.range_noise for sensor in kinds if sensor is not None), default=0.0)
    return {name: CloudReader(sensor, clouds[name], finest) for name, sensor in zip(lidars, kinds, strict=True)}


@dataclass(frozen=True)
class _Matched:
    """The matches of a lidar in a sample, their returns, residuals (M,), and noise (M,) over that of a near, bright
    surface."""

    lidar: str
    sample: int
    matches: Matches
    returns: Returns
    residuals: np.ndarray
    relative_noise: np.ndarray

    @property
    def along(self) -> np.ndarray:
        """The residuals (M,) along the rays."""
        return self.residuals / self.matches.incidence


class _Mounts:
    """The data and the estimate: `state` has the poses and the lidars' errors, `links` (n,) the twists of links,
    `joints` (n,) the errors of joints with which the `models` are posed, and those of near ranges."""

    def __init__(self, surfaces, samples: list[MountSample], nominal: Poses, alignment: Observations | None, settings):
        self.surfaces, self.samples, self.nominal, self.settings = surfaces, samples, nominal, settings
        self.robot = RobotUnknowns(surfaces, settings, nominal, len(samples))
        self.readers = cloud_readers(settings.sensor, samples, list(nominal))
        models = tuple(self.readers[name].model for name in nominal)
        self.unknowns = self.robot.beside(models)
        if alignment is not None and not alignment.fits(models):
            alignment = alignment.of_the_transform()
        self.alignment = alignment
        unbiased = State(tuple(nominal.values()), tuple(np.zeros(model.size) for model in models))
        self.solver = Solver(self.unknowns, Priors(unbiased, block.mount_covariances(nominal)))
        known = alignment is not None and alignment.knows_units
        self.state = replace(unbiased, units=alignment.units) if known else unbiased
        self.links, self.joints = np.zeros(self.robot.size), np.zeros(self.robot.size)
        self.models = block.posed(samples, surfaces)

    @property
    def poses(self) -> Poses:
        return dict(zip(self.nominal, self.state.base_from_lidar, strict=True))

    def solve(self) -> MountsResult:
        """Search, then solve until the lidars' errors converge."""
        alignment = self.alignment
        if alignment is not None:  # inflated by errors of the lidars that the search does not subtract
            off_centre = any(np.any(model.optical_centre) for model in self.unknowns.models)
            inflation = (FIRST_POSITION, FIRST_ANGLE) if off_centre and not alignment.knows_units else ()
            alignment = alignment.of_the_transform(*inflation)
        poses, costs = search(self.models, self.nominal, alignment, self.settings, self.readers, self.state.units)
        self.state = replace(self.state, base_from_lidar=tuple(poses.values()))
        clouds: dict[tuple[str, int], Returns] = {}
        inflated = converged = False
        for step in range(MOST_STEPS):
            clouds = clouds if step > 1 else self._clouds(step)
            matched = self._matched(clouds, step)
            noise = self._noise(matched)
            equations = self._marginalised(self._equations(matched, noise), inflated)
            errors = with_model_errors(
                equations.information, equations.gradient, self.robot, MOST_RELEASED if step > 1 else 0, self.joints
            )  # fmt: skip
            change = self._move(equations, errors)
            if step + 1 < FINE_STEPS:
                continue
            # Errors by incidence and of weak echoes are nearly the same on the robot and converge slowly. Before that
            # they may exceed their priors, so these are inflated only afterwards.
            of_scalars = equations.covariance_of_units(errors.covariance, self.unknowns.scalars)
            steps = np.abs(change[self.unknowns.scalars])
            converged = bool((steps <= CONVERGED * np.sqrt(of_scalars.diagonal())).all())
            if converged and (inflated or not self.solver.exceeded(self.state)):
                break
            inflated |= converged
        counts = sum(np.bincount(each.matches.links, minlength=len(self.robot.links)) for each in matched)
        leaning = self._leaning(matched, noise, counts, inflated)
        return self._result(costs, matched, noise, equations, errors, of_scalars, converged, leaning, counts)

    def _corrected(self, name: str, returns: Returns) -> LidarRays:
        rays = self.readers[name].rays(returns, self.state.units[self.robot.lidars.index(name)])
        return rays.without(self.joints[self.robot.of_near_ranges(name)])

    def _clouds(self, step: int) -> dict[tuple[str, int], Returns]:
        count = FINE_POINTS // (8 if step == 0 else 1) // (len(self.nominal) * len(self.models))
        clouds = {}
        for name, pose in self.poses.items():
            for index, model in enumerate(self.models):
                returns = self.readers[name].returns(model.around(name, pose))
                near = model.match(self._corrected(name, returns), pose, NEAR, 0.05).indices
                clouds[name, index] = returns.only(downsampled(near, count))
        return clouds

    def _matched(self, clouds: Mapping[tuple[str, int], Returns], step: int) -> list[_Matched]:
        """Return the returns that the model should explain: near it, not grazing, not at an edge, after the first step
        not in patches that are off the surface as a whole."""
        gate = GATE * float(np.hypot(self.settings.range_noise, self.settings.link_position))
        matched = []
        for (name, index), returns in clouds.items():
            number, model = self.robot.lidars.index(name), self.models[index]
            matches = model.match(self._corrected(name, returns), self.state.base_from_lidar[number], gate, GRAZING)
            matches = matches.incidence_corrected(self.state.units[number][INCIDENCE])
            matches = matches.chosen(model.inside(matches, EDGE_ANGLES[min(step, 1)], MARGIN))
            matches = matches.chosen(model.unambiguous(matches))
            residuals = self.robot.residuals(name, model, matches, self.links)
            if step > 0:
                fits = consistent(matches, residuals, model, self.robot)
                matches, residuals = matches.chosen(fits), residuals[fits]
            seen = returns.only(matches.indices)
            relative = self.readers[name].relative_noise(seen, matches.incidence)
            matched.append(_Matched(name, index, matches, seen, residuals, relative))
        return matched

    def _noise(self, matched: list[_Matched]) -> float:
        """Return the noise (m) along the ray of a near, bright surface by the median of the residuals, within
        bounds."""
        along, bound = np.concatenate([each.along / each.relative_noise for each in matched]), self.settings.range_noise
        return float(np.clip(robust_deviation(along), bound / 4, 2 * bound)) if len(along) else bound

    def _equations(self, matched: list[_Matched], noise: float, links: np.ndarray | None = None) -> NormalEquations:
        """Return the equations of the matches, or of those of some `links` (k,)."""
        equations = NormalEquations.empty(self.unknowns.size)
        for each in matched:
            matches, returns, noises = each.matches, each.returns, noise * each.relative_noise
            weights = block.noise_weights(matches, noises) * tukey_weights(each.along / (TUKEY * noises))
            if links is not None:
                chosen = np.isin(matches.links, links)
                matches, returns, weights = matches.chosen(chosen), returns.only(chosen), weights[chosen]
            model = self.models[each.sample]
            self.robot.add_to(equations, self.unknowns, each.lidar, model, matches, weights, returns, self.state)
        return equations

    def _marginalised(self, equations: NormalEquations, inflated: bool) -> Marginalised:
        if self.alignment is not None:
            equations = equations.plus(self.alignment.equations_at(self.state, self.unknowns))
        others, first = columns_of(self.unknowns.others), self.robot.first_link
        precisions = 1.0 / self.robot.variances()[first:]
        of_priors = NormalEquations.empty(self.unknowns.size)
        of_priors.information[others, others] = precisions
        of_priors.gradient[others] = -precisions * self.joints[first:]
        return self.solver.marginalised(equations.plus(of_priors), self.state, inflated)

    def _leaning(
        self, matched: list[_Matched], noise: float, counts: np.ndarray, inflated: bool
    ) -> list[checks.LeaningLink]:
        """Return the links, of those with many of the returns (`counts` (l,) by link), without each of which the lidars
        are significantly elsewhere: zeros and scales of joints explain a sheet that lies on the base."""
        poses, found, seen_most = slice(0, self.robot.first_link), [], counts > MANY * counts.sum()
        of_matches = self._equations(matched, noise, np.flatnonzero(~seen_most))
        of_links = {link: self._equations(matched, noise, link) for link in np.flatnonzero(seen_most)}
        for of_link in of_links.values():
            of_matches = of_matches.plus(of_link)

        def solved(equations: NormalEquations) -> ModelErrors:
            marginalised = self._marginalised(equations, inflated)
            return with_model_errors(marginalised.information, marginalised.gradient, self.robot, 0, self.joints)

        estimate = solved(of_matches).solution[poses]
        for link, of_link in of_links.items():
            without = solved(of_matches.plus(of_link.weighing(-1.0)))
            change, covariance = without.solution[poses] - estimate, without.covariance[poses, poses]
            found.append(checks.LeaningLink(self.robot.links[link], change, max(
                change[own] @ np.linalg.solve(covariance[own, own], change[own]) / 6
                for own in map(self.robot.of_lidar, self.nominal)
            )))  # fmt: skip
        return [each for each in found if each.chi_square > LEANS]

    def _move(self, equations: Marginalised, errors: ModelErrors) -> np.ndarray:
        """Apply a solution and return the change (n,) of all unknowns."""
        change = equations.change(errors.solution)
        self.state = self.unknowns.moved(self.state, change)
        self.links = errors.solution.copy()
        self.links[: self.robot.first_link] = self.links[self.robot.first_joint :] = 0.0
        self.robot.learn(self.joints + errors.solution, errors.covariance.diagonal())
        steps = self._offsets(errors.solution)
        if max((abs(step) for of_sample in steps for step in of_sample.values()), default=0.0) > SAME_OFFSET:
            self.joints[self.robot.first_joint :] += errors.solution[self.robot.first_joint :]
            self.models = block.posed(self.samples, self.surfaces, self._offsets(self.joints))
        else:
            near = slice(self.robot.first_near, self.robot.first_reading)
            self.joints[near] += errors.solution[near]
        return change

    def _offsets(self, errors: np.ndarray) -> list[dict[str, float]]:
        return [self.robot.offsets(errors, number, sample) for number, sample in enumerate(self.samples)]

    def _result(self, costs, matched, noise, equations, errors, scalars, converged, leaning, of_links) -> MountsResult:
        settings, robot, poses = self.settings, self.robot, self.poses
        covariance = errors.covariance[: robot.first_link, : robot.first_link]
        covariance = sum((np.outer(each.change, each.change) for each in leaning), covariance)
        by_link = link_residuals(robot, of_links, errors)
        counts = {name: sum(len(each.residuals) for each in matched if each.lidar == name) for name in poses}
        along = np.concatenate([each.along for each in matched])
        observed = {}
        for name, pose in poses.items():
            part = robot.of_lidar(name)
            about = results.at_lidar(covariance[part, part], pose)
            observed[name] = directions(about, np.eye(4), block.MOST_TRANSLATION, block.MOST_ROTATION)
        joints = joint_offsets(robot, self.joints, errors.covariance, self.samples)
        of_near = {name: robot.of_near_ranges(name) for name in poses}
        near = [checks.near_ranges(name, self.joints[at], errors.covariance[at, at]) for name, at in of_near.items()]
        numbers = scalar_numbers(self.state, scalars, robot.lidars)

        def corrected(name: str, cloud: np.ndarray) -> LidarRays:
            return self._corrected(name, self.readers[name].returns(cloud))

        one_link = checks.leaning_on(leaning, poses)
        tied = self.alignment is not None
        refusals = checks.mount_refusals(counts, observed, poses, self.nominal, tied)
        undetermined = any(each.code == "unobserved" for each in refusals)
        drawn = residuals_of(self.models, poses, SEEN * settings.range_noise, corrected)
        return MountsResult(
            poses, covariance,
            float(np.sqrt(np.mean(along**2))) if len(along) else float("nan"),
            sum(counts.values()), len(self.samples), observed, joints, by_link, drawn,
            robot.readings_marginalised(equations.information), self.state.units, scalars,
            warnings=checks.mount_warnings(
                observed, joints, by_link, drawn, robot.links, poses, self.alignment, settings.offsets_asked_for
            ) + sum(near, []) + unit_warnings(numbers, settings.sensor, robot.lidars)
            + ([] if converged else [checks.UNCONVERGED]) + ([] if undetermined else one_link),
            refusals=checks.not_in_pose(seen_through(self.models, poses, corrected))
            + (one_link if undetermined else []) + refusals,
            diagnostics={
                "noise_mm": 1e3 * noise, "joint_origin_scale": errors.origin_scale, "mesh_scale": errors.mesh_scale,
                "search_cost": min(costs), "starts": float(len(costs)),
            }
            | numbers
            | {f"points_{name}": float(count) for name, count in counts.items()},
        )  # fmt: skip


def joint_offsets(
    unknowns: RobotUnknowns, errors: np.ndarray, covariance: np.ndarray, samples: Sequence[MountSample]
) -> list[results.JointOffset]:
    """Return the joints' zero offsets by `errors` (n,) of the robot, including the common part of the errors of their
    readings, and whether they are separable; unless they were asked for, only those beyond their priors."""
    offsets, priors = [], np.sqrt(unknowns.variances())
    for index, joint in enumerate(unknowns.joints):
        columns = list(unknowns.of_joint(index, None))
        rows = np.zeros((2, unknowns.size))
        rows[[0, 1], columns] = 1.0
        values = [sample.joint_values.get(joint, 0.0) for sample in samples]
        readings = [unknowns.of_joint(index, number)[2] for number in range(len(samples))]
        rows[:, readings] = np.linalg.pinv(np.column_stack([np.ones(len(samples)), values]))
        (value, scale), (of_value, of_scale) = rows @ errors, np.sqrt(np.diag(rows @ covariance @ rows.T))
        expected = priors[columns] / [1.0, unknowns.scale_size]
        if unknowns.settings.offsets_asked_for or np.any(np.abs([value, scale]) >= checks.MISPLACED * expected / 2):
            turns = any(np.any(np.abs(twist[3:]) > TURNS) for twist in samples[0].joint_motions[joint].values())
            separable = bool(of_value < SEPARABLE * priors[columns[0]])
            numbers = float(value), float(of_value), separable, turns, float(scale), float(of_scale)
            offsets.append(results.JointOffset(joint, *numbers))
    return offsets
