"""What the model does not explain of the returns near it: patches that lie off a surface, links that are misplaced."""

from collections.abc import Mapping, Sequence

import numpy as np

from stretch_sim_cal.calibration.mounts.build import Build
from stretch_sim_cal.calibration.mounts.rays import REACH, Matches, PosedSample, thinned
from stretch_sim_cal.calibration.mounts.result import LinkMisfit, MountSettings, Residuals
from stretch_sim_cal.calibration.mounts.system import Unknowns, model_variances
from stretch_sim_cal.calibration.mounts.units import Units
from stretch_sim_cal.geometry.points import group_medians, voxel_keys
from stretch_sim_cal.geometry.transforms import SIDES

PATCH = 0.03  # m, edge of the cells of a link's surface whose returns are judged together
PATCH_RETURNS = 8
MEDIAN_SIGMAS = 4.0
MODEL_SIGMAS = 4.0
SLACK = 1.5e-3  # m
FRONT = 0.04  # m in front of the model, which no noise explains
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
    matches: Matches, left: np.ndarray, sample: PosedSample, unknowns: Unknowns, settings: MountSettings
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
        keys[own] = (voxel_keys(sample.in_link(unknowns.links, index, matches.hits[own], True), PATCH) << 6) + index
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


def link_misfits(
    unknowns: Unknowns, matches: Mapping[tuple[str, int], Matches], build: Build, settings: MountSettings
) -> list[LinkMisfit]:
    """Return for every link that was seen how it seems misplaced, worst first; in sigma of what is believed, or of how
    this robot is built where that is more."""
    seen = np.zeros(len(unknowns.links))
    for found in matches.values():
        seen += np.bincount(found.links, minlength=len(seen))
    believed = np.sqrt(model_variances(unknowns.size, settings))
    misfits = []
    for index in np.flatnonzero(seen):
        parts = [(unknowns.of_link(index), build.bolts), (unknowns.of_surface(index), build.surfaces)]
        sigmas = max(
            float(np.abs(build.solution[part] / believed[part]).max()) / max(share, 1.0) for part, share in parts
        )
        motion = sum(build.solution[part] for part, _ in parts)
        misfits.append(LinkMisfit(unknowns.links[index], motion, sigmas, int(seen[index]), index in build.standing_out))
    return sorted(misfits, key=lambda misfit: -misfit.sigmas)


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
            points = cloud[:, :3] if units is None else units.corrected(side, cloud)
            found = model.match(points, poses[side], REACH, 0.05)
            found = found.chosen(found.along < gate)
            near = np.abs(found.along) < gate
            parts.append((found.points, found.hits, found.distances, near, found.links, np.full(len(near), index)))
    return Residuals(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def unexplained(residuals: Residuals, links: Sequence[str]) -> list[tuple[str, float]]:
    """Return the links, with the share of their returns, in front of which many returns lie that are not of them."""
    front = residuals.distances > FRONT
    counts = np.bincount(residuals.links, minlength=len(links))
    fronts = np.bincount(residuals.links[front], minlength=len(links))
    shares = fronts / np.maximum(counts, 1)
    return [(links[i], float(shares[i])) for i in np.argsort(-shares) if shares[i] > 0.15 and fronts[i] >= 50]
