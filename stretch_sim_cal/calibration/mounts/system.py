"""The normal equations of the mounts: both lidars, every link's own small misplacement, and joint zeros.

A link may be off in two ways: bolted askew to what holds it, which moves all that it holds in turn, and with a surface
that is not where its frame has it, which moves nothing else. Both are twists (6,), the same in all samples: the bolts'
in the frame of the joint as it is fixed to what holds it, so that a lift that is askew moves along an axis that is
askew; the surface's about its centre in the link's own frame. base_link is bolted to nothing: it is what all is told in.
They are estimated with the mounts, held by the model's uncertainty, and not of interest themselves: so returns of one
link are not taken for more than the link's place is known.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from stretch_sim_cal.calibration.body.outline import LinkSurface
from stretch_sim_cal.calibration.mounts.rays import Matches, PosedSample
from stretch_sim_cal.calibration.mounts.result import MountSettings
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, from_rotation_translation, inverse, log

MOUNTS = 2 * 6
HALF = float(np.sqrt(0.5))  # of a link's misplacement, one sigma: half of its variance is bolting, half is surface
RIGID = 1e-5  # m and rad, of links that the user says are exactly where the model has them
SURFACE = 3e-4  # m: facets and edges of a model's surfaces, beside the noise along the ray


class Unknowns:
    """Which column of the system is what: the twists of left and right lidar, the links' as bolted, the links' surfaces',
    and the joints' offsets."""

    def __init__(self, surfaces: Mapping[str, LinkSurface], settings: MountSettings):
        self.links = list(surfaces)
        self.joints = list(settings.joint_offsets)
        self.centres = {link: surface.corners.mean(axis=0) for link, surface in surfaces.items()}
        self.first_surface = MOUNTS + 6 * len(self.links)
        self.first_joint = self.first_surface + 6 * len(self.links)
        self.size = self.first_joint + len(self.joints)

    def of_side(self, side: str) -> slice:
        start = 6 * SIDES.index(side)
        return slice(start, start + 6)

    def of_link(self, index: int) -> slice:
        return slice(MOUNTS + 6 * index, MOUNTS + 6 * index + 6)

    def of_surface(self, index: int) -> slice:
        return slice(self.first_surface + 6 * index, self.first_surface + 6 * index + 6)


def add_matches(
    information: np.ndarray, gradient: np.ndarray, unknowns: Unknowns, side: str, sample: PosedSample,
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
    unknowns: Unknowns, side: str, sample: PosedSample, matches: Matches, expected: np.ndarray
) -> np.ndarray:
    """Return what of the distances (M,) is left with the twists `expected` (size,): a return is not odd because its
    link is elsewhere, but because it is not where the others of its link are."""
    left = np.array(matches.distances)
    if np.any(expected):
        for chosen, columns, jacobian in _rows(unknowns, side, sample, matches):
            left[chosen] += jacobian @ expected[columns]
    return left


def _rows(
    unknowns: Unknowns, side: str, sample: PosedSample, matches: Matches
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
    unknowns: Unknowns, side: str, sample: PosedSample, link: str, feet: np.ndarray, normals: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how distances from a link's surface at `feet` (M, 3) change with which unknowns: columns, (M, columns)."""
    # Of what is seen, in base_link; of the surface it is the reverse.
    by_twist = np.hstack([normals, np.cross(feet, normals)])
    surface = sample.base_from_link[link] @ from_rotation_translation(np.eye(3), unknowns.centres[link])
    columns = [unknowns.of_side(side), unknowns.of_surface(unknowns.links.index(link))]
    parts = [by_twist, -by_twist @ adjoint(surface)]
    for holder in (link, *sample.sample.held_by.get(link, ())):
        if holder in sample.sample.held_at:
            columns.append(unknowns.of_link(unknowns.links.index(holder)))
            parts.append(-by_twist @ adjoint(sample.sample.held_at[holder]))
    for number, joint in enumerate(unknowns.joints):
        columns.append(slice(unknowns.first_joint + number, unknowns.first_joint + number + 1))
        parts.append(-(by_twist @ sample.sample.joint_motions.get(joint, {}).get(link, np.zeros(6)))[:, None])
    return np.concatenate([np.arange(part.start, part.stop) for part in columns]), np.hstack(parts)


def add_priors(
    information: np.ndarray, gradient: np.ndarray, unknowns: Unknowns, state: np.ndarray,
    poses: Mapping[str, np.ndarray], nominal: Mapping[str, np.ndarray], settings: MountSettings,
) -> None:  # fmt: skip
    """Add what is known beforehand: of the mounts, of where links are, of joints' zeros. `state` (size,) is where the
    links' twists and the joints' offsets stand."""
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
    """Return what is believed of links and joints' zeros beforehand, as variances (size,), 0 for the mounts."""
    links = (size - MOUNTS - len(settings.joint_offsets)) // 6
    one = np.repeat([HALF * settings.link_position, HALF * settings.link_angle], 3)
    joints = [settings.joint_prior.get(joint, settings.default_joint_prior) for joint in settings.joint_offsets]
    return np.concatenate([np.zeros(MOUNTS), np.tile(np.maximum(one, RIGID) ** 2, links), np.square(joints)])


def noise_weights(matches: Matches, range_noise: float) -> np.ndarray:
    """Return 1 / variance (M,) of distances from the surface: noise is along the ray, the surface's own across it."""
    return 1.0 / ((range_noise * matches.incidence) ** 2 + SURFACE**2)


def tukey(sigmas: np.ndarray, limit: float) -> np.ndarray:
    """Return Tukey's robust weights (M,) of residuals in sigma."""
    return np.maximum(0.0, 1.0 - (sigmas / limit) ** 2) ** 2
