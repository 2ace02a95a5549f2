"""Where each lidar really is on the robot: its returns from the robot itself, against the model at the joint values.

Coarse to fine: a search from several starts by rays against the model's surfaces, then Gauss-Newton with all returns
that are not near an edge. With the twelve numbers of both lidars every link's own small misplacement is estimated,
held as closely as the returns say that this robot is built.
Assumes joint values that are right (but for `joint_offsets`), a robot that stood still in every sample, and that most
returns near the model come from it. Poses are base_link_from_lidar.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from stretch_sim_cal.calibration.body.outline import LinkSurface
from stretch_sim_cal.calibration.findings import MISPLACED, mount_refusals, mount_warnings, unit_warnings
from stretch_sim_cal.calibration.mounts.build import MOST_OUT, as_built
from stretch_sim_cal.calibration.mounts.misfit import consistent, link_misfits, noise_of, residuals_of
from stretch_sim_cal.calibration.mounts.rays import Matches, PosedSample, posed, thinned
from stretch_sim_cal.calibration.mounts.result import (
    JointOffset,
    MountSample,
    MountSettings,
    MountsResult,
    at_lidar,
    moved,
)
from stretch_sim_cal.calibration.mounts.search import Poses, search
from stretch_sim_cal.calibration.mounts.system import (
    MOUNTS,
    Unknowns,
    add_matches,
    add_priors,
    noise_weights,
    remainders,
    tukey,
)
from stretch_sim_cal.calibration.mounts.units import Coupled, Units
from stretch_sim_cal.calibration.observability import directions
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.results import Direction
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES

FINE_STEPS = 4
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
    unknowns = Unknowns(surfaces, settings)
    offsets = dict.fromkeys(settings.joint_offsets, 0.0)
    models = posed(list(samples), surfaces, offsets)
    units = Units(settings.sensor, [getattr(sample, side) for sample in samples for side in SIDES])
    if alignment is not None and not alignment.fits((units.model,) * 2):
        alignment = alignment.of_the_transform()
    found = search(models, dict(nominal), _for_search(alignment, units), settings, units)
    poses, links = found.poses, np.zeros(unknowns.size)
    clouds: dict[str, list[np.ndarray]] = {}
    for step in range(FINE_STEPS):
        clouds = clouds if clouds and step > 1 else _clouds(models, poses, step, units)
        matches = _matches(models, clouds, poses, settings, EDGE_ANGLES[min(step, 1)], units)
        matches, left = _without_patches(unknowns, models, matches, links, settings, patches=step > 0)
        noise = noise_of([left[key] / matches[key].incidence for key in matches], settings)
        information, gradient, coupled = _system(
            unknowns, models, clouds, matches, left, noise, poses, nominal, alignment, offsets, settings, units
        )
        build = as_built(information, gradient, unknowns, settings, MOST_OUT if step > 1 else 0)
        coupled.take(build.solution)
        poses = {side: moved(poses[side], build.solution[unknowns.of_side(side)]) for side in SIDES}
        links = np.concatenate(
            [np.zeros(MOUNTS), build.solution[MOUNTS : unknowns.first_joint], np.zeros(len(offsets))]
        )
        steps = build.solution[unknowns.first_joint :]
        if np.abs(steps).max(initial=0.0) > SAME_OFFSET:
            offsets = {joint: offsets[joint] + float(by) for joint, by in zip(offsets, steps, strict=True)}
            models = posed(list(samples), surfaces, offsets)
    misfits = link_misfits(unknowns, matches, build, settings)
    counts = {side: sum(len(m.indices) for (of, _), m in matches.items() if of == side) for side in SIDES}
    along = np.concatenate([left[key] / matches[key].incidence for key in matches])
    observed = directions_of(poses, build.covariance, settings)
    joints = joint_offsets(unknowns, offsets, build.covariance, settings)
    numbers = coupled.numbers()
    drawn = residuals_of(models, poses, SEEN * settings.range_noise, units)
    return MountsResult(
        poses, build.covariance[:MOUNTS, :MOUNTS], float(np.sqrt(np.mean(along**2))) if len(along) else float("nan"),
        sum(counts.values()), len(samples), observed, joints, misfits, drawn, information,
        mount_warnings(observed, joints, misfits, drawn, unknowns.links, poses, alignment, settings.offsets_asked_for)
        + unit_warnings(numbers, settings.sensor),
        mount_refusals(counts, observed, poses, nominal, MIN_POINTS, settings),
        {
            "noise_mm": 1e3 * noise, "bolts_share": build.bolts, "surfaces_share": build.surfaces,
            "search_cost": found.cost, "starts": float(len(found.costs)),
        }
        | numbers
        | {f"points_{side}": float(count) for side, count in counts.items()},
        tuple(units.values[units.of_side(side)] for side in SIDES), coupled.scalar_covariance(build.covariance),
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
            near = model.match(units.corrected(side, cloud), poses[side], NEAR, 0.05).indices
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
            cloud = units.corrected(side, clouds[side][index])
            matches = units.without_incidence(side, model.match(cloud, poses[side], gate, GRAZING))
            matches = matches.chosen(model.inside(matches, cloud, poses[side], edge_angle, MARGIN))
            found[side, index] = matches.chosen(model.alone(matches, poses[side]))
    return found


def _without_patches(
    unknowns: Unknowns, models: Sequence[PosedSample], matches: Mapping[tuple[str, int], Matches], links: np.ndarray,
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
    unknowns: Unknowns, models: Sequence[PosedSample], clouds: Mapping[str, list[np.ndarray]],
    matches: Mapping[tuple[str, int], Matches], left: Mapping[tuple[str, int], np.ndarray], noise: float, poses: Poses,
    nominal: Poses, alignment: Observations | None, offsets: Mapping[str, float], settings: MountSettings, units: Units,
) -> tuple[np.ndarray, np.ndarray, Coupled]:  # fmt: skip
    """Return information (n, n) and gradient (n,) of all that is known, at the present poses, and the units' part."""
    coupled = Coupled.empty(units, unknowns.size)
    information, gradient = np.zeros((unknowns.size, unknowns.size)), np.zeros(unknowns.size)
    for (side, index), found in matches.items():
        weights = noise_weights(found, noise) * tukey(left[side, index] / found.incidence / noise, TUKEY)
        add_matches(
            information, gradient, unknowns, side, models[index], found, weights,
            partial(coupled.add, side, clouds[side][index], found, weights, poses[side][:3, :3]),
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
    unknowns: Unknowns, offsets: Mapping[str, float], covariance: np.ndarray, settings: MountSettings
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
