"""The lidars' extrinsics in base_link, from what they see of the robot: returns against the model at the joint values.

Coarse to fine: a search from several starts by rays against the model's surfaces, then Gauss-Newton with all returns that are
not near an edge. With the twelve numbers of both lidars the errors of every link are estimated, with variances that the returns
determine (`model_errors.py`).
Assumes joint values that are right (but for `joint_offsets`), a robot that stood still in every sample, and that most
returns near the model come from it. Poses are base_link_from_lidar.

The search goes from a few starts to the nearest minimum of each. Narrow parts make minima of their own: a ray that misses the
arm by the error of the extrinsics has no residual. So the search starts at several places around the nominal poses, and keeps
the end with the most explained returns.

Link residuals: patches that lie off a surface, links that are misplaced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.body.outline import LinkSurface
from stretch_sim_cal.calibration.findings import MISPLACED, mount_refusals, mount_warnings, unit_warnings
from stretch_sim_cal.calibration.mounts.model_errors import MOST_RELEASED, ModelErrors, with_model_errors
from stretch_sim_cal.calibration.mounts.rays import REACH, LidarRays, Matches, PosedSample, posed, thinned
from stretch_sim_cal.calibration.mounts.result import (
    JointOffset,
    LinkResidual,
    MountSample,
    MountSettings,
    MountsResult,
    Residuals,
    at_lidar,
    moved,
)
from stretch_sim_cal.calibration.mounts.system import (
    MOUNTS,
    Coupled,
    RobotUnknowns,
    Units,
    add_matches,
    add_priors,
    model_variances,
    noise_weights,
    remainders,
    tukey,
)
from stretch_sim_cal.calibration.observability import Direction, directions
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import group_medians, voxel_keys
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, from_rotation_translation, inverse

GATES = (0.14, 0.14, 0.11, 0.09, 0.07, 0.055, 0.045, 0.04, 0.035, 0.035)  # m, of the distance along the ray, by step
SEARCH_GRAZING = 0.25
SEARCH_POINTS = 8000  # of each lidar, over all samples
SEARCH_TUKEY = 3.0
START_ANGLE = np.deg2rad(1.8)
WEAK_POSITION, WEAK_ANGLE = 0.03, np.deg2rad(3.0)  # what one step may do in directions that are not determined

Poses = dict[str, np.ndarray]


@dataclass(frozen=True)
class Found:
    """The end of the search: the poses, the cost there (share of returns that are unexplained), and of all starts."""

    poses: Poses
    cost: float
    costs: list[float]


def search(
    samples: Sequence[PosedSample],
    nominal: Poses,
    alignment: Observations | None,
    settings: MountSettings,
    units: Units,
) -> Found:
    """Return the best of the minima from all starts."""
    clouds = {
        side: [
            units.rays(side, thinned(sample.around(side, nominal[side]), SEARCH_POINTS // len(samples)))
            for sample in samples
        ]
        for side in SIDES
    }
    ends = [_descend(samples, clouds, start, alignment, settings) for start in _starts(nominal, alignment)]
    costs = [_cost(samples, clouds, end, settings) for end in ends]
    best = int(np.argmin(costs))
    return Found(ends[best], costs[best], costs)


def _starts(nominal: Poses, alignment: Observations | None) -> list[Poses]:
    """Return poses to start from: the nominal ones, aligned lidars as one body seen from either, and turned a little."""
    bodies = [nominal]
    if alignment is not None:
        from_right = nominal["right"] @ inverse(alignment.result)
        bodies = [{"left": left, "right": left @ alignment.result} for left in (nominal["left"], from_right)]
    starts = list(bodies)
    for axis in range(3):
        for sign in (-1.0, 1.0):
            turn = np.zeros(6)
            turn[3 + axis] = sign * START_ANGLE
            about = {
                side: adjoint(from_rotation_translation(np.eye(3), bodies[0][side][:3, 3])) @ turn for side in SIDES
            }
            # Aligned lidars turn as one body, about the left one.
            pivot = {side: side if alignment is None else "left" for side in SIDES}
            starts.append({side: moved(bodies[0][side], about[pivot[side]]) for side in SIDES})
    return starts


def _descend(
    samples: Sequence[PosedSample], clouds: Mapping[str, list[LidarRays]], start: Poses, alignment: Observations | None,
    settings: MountSettings,
) -> Poses:  # fmt: skip
    poses = start
    for gate in GATES:
        information, gradient = np.zeros((MOUNTS, MOUNTS)), np.zeros(MOUNTS)
        for index, side in enumerate(SIDES):
            own = slice(6 * index, 6 * index + 6)
            found = [
                s.match(cloud, poses[side], gate, SEARCH_GRAZING)
                for s, cloud in zip(samples, clouds[side], strict=True)
            ]
            hits, normals = (np.concatenate([getattr(m, name) for m in found]) for name in ("hits", "normals"))
            distances = np.concatenate([m.distances for m in found])
            if len(distances):
                scale = max(settings.range_noise / 2, 1.4826 * float(np.median(np.abs(distances))))
                weights = tukey(distances / scale, SEARCH_TUKEY) / scale**2
                jacobian = np.hstack([normals, np.cross(hits, normals)])
                information[own, own] += jacobian.T @ (weights[:, None] * jacobian)
                gradient[own] -= jacobian.T @ (weights * distances)
            weak = np.diag([WEAK_POSITION**-2] * 3 + [WEAK_ANGLE**-2] * 3)
            about = adjoint(from_rotation_translation(np.eye(3), -poses[side][:3, 3]))
            information[own, own] += about.T @ weak @ about
        if alignment is not None:
            own_information, own_gradient = alignment.of_poses(poses["left"], poses["right"])
            information, gradient = information + own_information, gradient + own_gradient
        step = np.linalg.solve(information, gradient)
        poses = {side: moved(poses[side], step[6 * i : 6 * i + 6]) for i, side in enumerate(SIDES)}
    return poses


def _cost(
    samples: Sequence[PosedSample], clouds: Mapping[str, list[LidarRays]], poses: Poses, settings: MountSettings
) -> float:
    """Return the mean over all returns of the squared residual in units of 3 sigma, 1 for what is not explained."""
    limit = 3.0 * settings.range_noise
    explained, count = 0.0, 0
    for side in SIDES:
        for sample, cloud in zip(samples, clouds[side], strict=True):
            along = sample.match(cloud, poses[side], limit, 0.05).along
            explained += float((1.0 - (along / limit) ** 2).sum())
            count += len(cloud)
    return 1.0 - explained / max(count, 1)


PATCH_SIZE = 0.03  # m, edge of the cells of a link's surface whose returns are judged together
PATCH_RETURNS = 8
MEDIAN_SIGMAS = 4.0
MODEL_SIGMAS = 4.0
SLACK = 1.5e-3  # m
DRAWN = 80_000


def noise_of(along: Sequence[np.ndarray], settings: MountSettings) -> float:
    """Return the noise along the ray (m) that the returns show, by the median of what is left of them, arrays (M,); the
    settings' bounds it."""
    left = np.concatenate([np.empty(0), *along])
    if not len(left):
        return settings.range_noise
    noise = 1.4826 * float(np.median(np.abs(left)))
    return float(np.clip(noise, settings.range_noise / 4, 2 * settings.range_noise))


def consistent(
    matches: Matches, left: np.ndarray, sample: PosedSample, unknowns: RobotUnknowns, settings: MountSettings
) -> np.ndarray:
    """Return a mask (M,) of the matches in patches whose median lies on the surface, as far as model and noise go; `left`
    (M,) is how far they are from it where the link is thought to be.

    What is fixed to a surface and no thicker than the noise moves all returns of its patch, and none by much.
    """
    count = len(matches.indices)
    if not count:
        return np.zeros(0, dtype=bool)
    keys = np.zeros(count, dtype=np.int64)
    for index in np.unique(matches.links):
        own = matches.links == index
        keys[own] = (
            voxel_keys(sample.in_link(unknowns.links, index, matches.hits[own], True), PATCH_SIZE) << 6
        ) + index
    _, patch, counts = np.unique(keys, return_inverse=True, return_counts=True)
    medians = group_medians(patch, counts, left)
    noise = np.bincount(patch, settings.range_noise * matches.incidence) / counts
    centres = np.array(
        [sample.in_base(unknowns.links, i, unknowns.centres[link]) for i, link in enumerate(unknowns.links)]
    )
    arm = np.bincount(patch, np.linalg.norm(matches.hits - centres[matches.links], axis=1)) / counts
    model = np.hypot(settings.link_position, settings.link_angle * arm)
    off = np.abs(medians) > SLACK + MODEL_SIGMAS * model + MEDIAN_SIGMAS * 1.2533 * noise / np.sqrt(counts)
    return ~((counts >= PATCH_RETURNS) & off)[patch]


def link_residuals(
    unknowns: RobotUnknowns, matches: Mapping[tuple[str, int], Matches], errors: ModelErrors, settings: MountSettings
) -> list[LinkResidual]:
    """Return the estimated error of every link that was seen, worst first; in sigma of its prior, or of the errors of this
    robot's links if these are larger."""
    seen = np.zeros(len(unknowns.links))
    for one in matches.values():
        seen += np.bincount(one.links, minlength=len(seen))
    priors = np.sqrt(model_variances(unknowns.size, settings))
    found = []
    for index in np.flatnonzero(seen):
        parts = [(unknowns.of_link(index), errors.origin_scale), (unknowns.of_mesh(index), errors.mesh_scale)]
        sigmas = max(
            float(np.abs(errors.solution[part] / priors[part]).max()) / max(scale, 1.0) for part, scale in parts
        )
        motion = sum(errors.solution[part] for part, _ in parts)
        released = index in errors.released
        found.append(LinkResidual(unknowns.links[index], motion, sigmas, int(seen[index]), released))
    return sorted(found, key=lambda residual: -residual.sigmas)


def residuals_of(
    models: Sequence[PosedSample], poses: Mapping[str, np.ndarray], gate: float, units: Units | None = None
) -> Residuals:
    """Return the returns whose rays meet the model, thinned: those within `gate` (m) of it, and all in front of it; with
    the errors of the lidars' `units` taken out, if they are known."""
    parts = []
    count = DRAWN // (2 * len(models))
    for side in SIDES:
        for index, model in enumerate(models):
            cloud = thinned(model.around(side, poses[side]), 4 * count)
            rays = LidarRays(cloud[:, :3]) if units is None else units.rays(side, cloud)
            found = model.match(rays, poses[side], REACH, 0.05)
            found = found.chosen(found.along < gate)
            near = np.abs(found.along) < gate
            parts.append((found.points, found.hits, found.distances, near, found.links, np.full(len(near), index)))
    return Residuals(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


FINE_STEPS, MOST_STEPS = 4, 12
SETTLED = 0.2  # standard deviations of the lidars' own errors: a smaller step is the last
SEPARABLE = 0.25  # standard deviation of a joint's offset, the mounts being unknown, over that of what was known before
GATE = 6.0  # sigma of the range noise, and of where links may be, beyond which a return is not of the model
SEEN = 3.5  # sigma of the range noise, for pictures
NEAR = 0.12  # m of the model along the ray: returns that may be of it, or of something that is fixed to it
GRAZING = 0.15  # cosine of incidence; below it a range says little of the surface
EDGE_ANGLES = (np.deg2rad(0.4), np.deg2rad(0.15))  # how far beside a ray the model has to be the same, first and then
MARGIN = 0.004  # m, likewise: by how much links may be elsewhere, and a ray with them on the next part
FINE_POINTS = 400_000  # over both lidars and all samples
SAME_OFFSET = 2e-5  # m and rad, of a joint: a smaller step leaves the model in its place, since moving it takes time
TUKEY = 4.7  # sigma; 95 % efficient where noise is normal
FIRST_POSITION, FIRST_ANGLE = 0.015, np.deg2rad(0.5)  # m, rad: an optical centre that no driver corrects
MIN_POINTS = 500  # of each lidar


def calibrate_mounts(
    surfaces: Mapping[str, LinkSurface],
    samples: Sequence[MountSample],
    nominal: Mapping[str, np.ndarray],
    alignment: Observations | None = None,
    settings: MountSettings = MountSettings(),
) -> MountsResult:
    """Return where both lidars are, from what they see of the robot in several arm poses.

    `surfaces` are the model's by link, in link frames; `nominal` the lidars' poses in the description by side, right
    to about 3 deg and 30 mm; `alignment` what is known of the lidars' relative pose and of their errors. Raises `InputError` for samples
    that are no data.
    """
    _check(surfaces, samples, nominal, settings)
    unknowns = RobotUnknowns(surfaces, settings)
    offsets = dict.fromkeys(settings.joint_offsets, 0.0)
    models = posed(list(samples), surfaces, offsets)
    units = Units(settings.sensor, [getattr(sample, side) for sample in samples for side in SIDES])
    if alignment is not None and not alignment.fits((units.model,) * 2):
        alignment = alignment.of_the_transform()
    found = search(models, dict(nominal), _for_search(alignment, units), settings, units)
    poses, links = found.poses, np.zeros(unknowns.size)
    clouds: dict[str, list[np.ndarray]] = {}
    for step in range(MOST_STEPS):
        clouds = clouds if clouds and step > 1 else _clouds(models, poses, step, units)
        matches = _matches(models, clouds, poses, settings, EDGE_ANGLES[min(step, 1)], units)
        matches, left = _without_patches(unknowns, models, matches, links, settings, patches=step > 0)
        relative = {(side, i): units.relative_noise(clouds[side][i], found) for (side, i), found in matches.items()}
        noise = noise_of([left[key] / matches[key].incidence / relative[key] for key in matches], settings)
        noises = {key: noise * ratio for key, ratio in relative.items()}
        information, gradient, coupled = _system(
            unknowns, models, clouds, matches, left, noises, poses, nominal, alignment, offsets, settings, units
        )
        errors = with_model_errors(information, gradient, unknowns, settings, MOST_RELEASED if step > 1 else 0)
        before = units.scalars
        coupled.take(errors.solution, widened=step + 1 >= FINE_STEPS)
        scalar_covariance = coupled.scalar_covariance(errors.covariance)
        poses = {side: moved(poses[side], errors.solution[unknowns.of_side(side)]) for side in SIDES}
        links = np.concatenate(
            [np.zeros(MOUNTS), errors.solution[MOUNTS : unknowns.first_joint], np.zeros(len(offsets))]
        )
        steps = errors.solution[unknowns.first_joint :]
        if np.abs(steps).max(initial=0.0) > SAME_OFFSET:
            offsets = {joint: offsets[joint] + float(by) for joint, by in zip(offsets, steps, strict=True)}
            models = posed(list(samples), surfaces, offsets)
        # Errors by incidence and of weak echoes are nearly the same on the robot, and settle slowly.
        moved_by = np.abs(units.scalars - before)
        if step + 1 >= FINE_STEPS and (moved_by <= SETTLED * np.sqrt(scalar_covariance.diagonal())).all():
            break
    by_link = link_residuals(unknowns, matches, errors, settings)
    counts = {side: sum(len(m.indices) for (of, _), m in matches.items() if of == side) for side in SIDES}
    along = np.concatenate([left[key] / matches[key].incidence for key in matches])
    observed = directions_of(poses, errors.covariance, settings)
    joints = joint_offsets(unknowns, offsets, errors.covariance, settings)
    numbers = coupled.numbers(scalar_covariance)
    drawn = residuals_of(models, poses, SEEN * settings.range_noise, units)
    return MountsResult(
        poses, errors.covariance[:MOUNTS, :MOUNTS], float(np.sqrt(np.mean(along**2))) if len(along) else float("nan"),
        sum(counts.values()), len(samples), observed, joints, by_link, drawn, information,
        mount_warnings(observed, joints, by_link, drawn, unknowns.links, poses, alignment, settings.offsets_asked_for)
        + unit_warnings(numbers, settings.sensor),
        mount_refusals(counts, observed, poses, nominal, MIN_POINTS, settings),
        {
            "noise_mm": 1e3 * noise, "joint_origin_scale": errors.origin_scale, "mesh_scale": errors.mesh_scale,
            "search_cost": found.cost, "starts": float(len(found.costs)),
        }
        | numbers
        | {f"points_{side}": float(count) for side, count in counts.items()},
        tuple(units.values[units.of_side(side)] for side in SIDES), scalar_covariance,
    )  # fmt: skip


def _for_search(alignment: Observations | None, units: Units) -> Observations | None:
    """Return the alignment as loose as errors of the lidars make it that the search does not take out; what it knows of them
    is taken out from the beginning."""
    if alignment is None:
        return None
    if alignment.knows_units:
        units.start_at(alignment.units)
    elif np.any(units.model.optical_centre):
        return alignment.loosened(FIRST_POSITION, FIRST_ANGLE)
    return alignment.of_the_transform()


def _check(surfaces, samples, nominal, settings) -> None:
    if not samples:
        raise InputError("mounts: there are no samples; at least one arm pose is needed")
    for sample in samples:
        for side in SIDES:
            cloud = getattr(sample, side)
            if cloud is None or np.ndim(cloud) != 2 or cloud.shape[1] not in (3, 5) or not len(cloud):
                raise InputError(
                    f"mounts: {sample.name}: holds no {side} cloud in its lidar's own frame; collect it again"
                )
        missing = [link for link in surfaces if link not in sample.base_from_link]
        if missing:
            raise InputError(f"mounts: {sample.name}: where {missing[0]} is is not known")
        unmoved = [joint for joint in settings.joint_offsets if joint not in sample.joint_motions]
        if unmoved:
            raise InputError(f"mounts: {sample.name}: what {unmoved[0]} moves is not known")
    if set(nominal) != set(SIDES):
        raise InputError(f"mounts: nominal poses of {' and '.join(SIDES)} are needed")


def _clouds(models: Sequence[PosedSample], poses: Poses, step: int, units: Units) -> dict[str, list[np.ndarray]]:
    """Return the returns that may be of the robot by side and sample; in the first step a part of them will do."""
    count = FINE_POINTS // (8 if step == 0 else 1) // (2 * len(models))
    clouds = {}
    for side in SIDES:
        clouds[side] = []
        for model in models:
            cloud = model.around(side, poses[side])
            near = model.match(units.rays(side, cloud), poses[side], NEAR, 0.05).indices
            clouds[side].append(thinned(cloud[near], count))
    return clouds


def _matches(
    models: Sequence[PosedSample], clouds: Mapping[str, list[np.ndarray]], poses: Poses, settings: MountSettings,
    edge_angle: float, units: Units,
) -> dict[tuple[str, int], Matches]:  # fmt: skip
    """Return by side and sample the returns that the model should explain: near it, not grazing, not at an edge."""
    gate = GATE * float(np.hypot(settings.range_noise, settings.link_position))
    found = {}
    for side in SIDES:
        for index, model in enumerate(models):
            rays = units.rays(side, clouds[side][index])
            matches = units.without_incidence(side, model.match(rays, poses[side], gate, GRAZING))
            matches = matches.chosen(model.inside(matches, edge_angle, MARGIN))
            found[side, index] = matches.chosen(model.alone(matches))
    return found


def _without_patches(
    unknowns: RobotUnknowns, models: Sequence[PosedSample], matches: Mapping[tuple[str, int], Matches], links: np.ndarray,
    settings: MountSettings, patches: bool,
) -> tuple[dict[tuple[str, int], Matches], dict[tuple[str, int], np.ndarray]]:  # fmt: skip
    """Return the matches, where `patches` is set without those of patches that lie off the surface as a whole, and
    what of their distances (M,) is left with the links where they are thought to be."""
    kept, left = {}, {}
    for (side, index), found in matches.items():
        distances = remainders(unknowns, side, models[index], found, links)
        fits = np.ones(len(distances), dtype=bool)
        if patches:
            fits = consistent(found, distances, models[index], unknowns, settings)
        kept[side, index], left[side, index] = found.chosen(fits), distances[fits]
    return kept, left


def _system(
    unknowns: RobotUnknowns, models: Sequence[PosedSample], clouds: Mapping[str, list[np.ndarray]],
    matches: Mapping[tuple[str, int], Matches], left: Mapping[tuple[str, int], np.ndarray],
    noise: Mapping[tuple[str, int], np.ndarray], poses: Poses, nominal: Poses, alignment: Observations | None, offsets: Mapping[str, float], settings: MountSettings, units: Units,
) -> tuple[np.ndarray, np.ndarray, Coupled]:  # fmt: skip
    """Return information (n, n) and gradient (n,) of all that is known, at the present poses, and the units' part; `noise` (M,)
    is that of the matches' ranges in m."""
    coupled = Coupled.empty(units, unknowns.size)
    information, gradient = np.zeros((unknowns.size, unknowns.size)), np.zeros(unknowns.size)
    for (side, index), found in matches.items():
        along = noise[side, index]
        weights = noise_weights(found, along) * tukey(left[side, index] / found.incidence / along, TUKEY)
        add_matches(
            information, gradient, unknowns, side, models[index], found, weights,
            coupled.add(side, clouds[side][index], found, weights, poses[side][:3, :3]),
        )  # fmt: skip
    state = np.zeros(unknowns.size)
    state[unknowns.first_joint :] = list(offsets.values())
    add_priors(information, gradient, unknowns, state, poses, nominal, settings)
    if alignment is not None:
        coupled.add_observations(alignment, poses, information, gradient)
    return *coupled.reduced(information, gradient), coupled


def directions_of(
    poses: Mapping[str, np.ndarray], covariance: np.ndarray, settings: MountSettings
) -> dict[str, list[Direction]]:
    """Return by side how well each direction of a lidar's pose, about its own origin in base axes, is determined."""
    found = {}
    for index, side in enumerate(SIDES):
        own = at_lidar(covariance[6 * index : 6 * index + 6, 6 * index : 6 * index + 6], poses[side])
        found[side] = directions(own, np.eye(4), settings.max_std_translation, settings.max_std_rotation)
    return found


def joint_offsets(
    unknowns: RobotUnknowns, offsets: Mapping[str, float], covariance: np.ndarray, settings: MountSettings
) -> list[JointOffset]:
    """Return the joints' offsets, and whether these poses tell them from an error of the mounts.

    Where they were not asked for, only those that are further off than joints are thought to be.
    """
    found = []
    for index, (joint, value) in enumerate(offsets.items()):
        column = unknowns.first_joint + index
        deviation = float(np.sqrt(covariance[column, column]))
        prior = settings.joint_prior.get(joint, settings.default_joint_prior)
        if not settings.offsets_asked_for and abs(value) < MISPLACED * prior / 2:
            continue
        found.append(JointOffset(joint, float(value), deviation, deviation < SEPARABLE * prior))
    return found
