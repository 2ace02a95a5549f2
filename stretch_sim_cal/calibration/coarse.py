"""A coarse transform, right to a few millimetres, from a first guess that may be far off, or without one.

Near the guess it is by GICP (small_gicp), from wide to narrow. The result is checked: the two views must not contradict
each other, nor agree worse than at the guess itself, which is another candidate. Otherwise large planes of both views
are matched for every rotation that they allow, and the most consistent hypotheses are registered. If several explain
the views equally well (a corridor looks the same from both ends), the one near the guess is chosen; without a guess the
views are refused.

Directions that the scene does not constrain stay as in the guess: J. Zhang, M. Kaess, S. Singh, "On degeneracy of
optimization-based state estimation problems", ICRA 2016.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import small_gicp
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from stretch_sim_cal.calibration.consistency import Consistency, Views
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.surfaces import Surface
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import (
    apply,
    check_rigid,
    error,
    exp,
    from_rotation_translation,
    inverse,
    log,
)

# A transform under which the views agree this well is not searched further.
CREDIBLE_AGREE = 0.88
CREDIBLE_CONTRADICT = 0.03
# Near the description a larger share may contradict: a person in front of one lidar, or in one scan of several.
SOMEBODY = 0.08
# Point-to-plane distances (m) beyond which surfaces are not the same, and points that are of no common surface.
WIDE, FAR = 0.05, 0.5
MOST_POINTS = 10_000
MAX_STARTS = 8
# Longest correspondences of GICP's passes, over the setting.
WIDTHS = (2.5, 1.0, 0.5)
# Scores (-1 .. 1) that differ by less do not distinguish two transforms; transforms that differ by less are the same.
ALIKE = 0.05
SAME_DISTANCE = 0.2  # m
SAME_ANGLE = np.deg2rad(5.0)
# Curvature of GICP's cost, against that of its best direction. For a direction that nothing but the
# regularisation of its planes' covariances determines it is 0.001 to 0.005, in rooms 0.02 and more.
CONSTRAINED = 0.01
# Hypotheses without a guess: large planes of both views are matched.
NUM_PLANES = 10
MAX_PLANARITY = 0.05
NORMAL_TOLERANCE = np.deg2rad(8.0)
ANGLE_TOLERANCE = np.deg2rad(4.0)
PARALLEL = np.deg2rad(20.0)
MAX_DISTANCE = 1.5
# Rotations closer than this are one hypothesis, since the registration converges over such a difference.
SAME_ROTATION = np.deg2rad(10.0)


def credible(consistency: Consistency, near: bool = False) -> bool:
    """Return whether two views agree as under the right transform; `near` the description, a person in one of the views
    is not a contradiction."""
    contradicting = SOMEBODY if near else CREDIBLE_CONTRADICT
    return consistency.agree >= CREDIBLE_AGREE and consistency.contradict <= contradicting


class SurfaceDistances:
    """The distances of the surfaces of two lidars under many transforms."""

    def __init__(self, left: Surface, right: Surface):
        self._left, self._points = left, right.points[:: max(1, len(right.points) // MOST_POINTS)]
        self._tree = cKDTree(left.points)

    def under(self, right_to_left: np.ndarray) -> float:
        """Return the mean squared point-to-plane distance over `WIDE`, each at most 1."""
        points = apply(right_to_left, self._points)
        distances, nearest = self._tree.query(points)
        across = np.einsum("ki,ki->k", self._left.normals[nearest], points - self._left.points[nearest])
        return float(np.mean(np.where(distances < FAR, np.minimum((across / WIDE) ** 2, 1.0), 1.0)))


def coarse_alignment(
    left: Surface, right: Surface, initial: np.ndarray | None, settings: AlignmentSettings
) -> np.ndarray:
    """Return `right_to_left` (4, 4) from the cells of both lidars; `initial` (4, 4) may be far off, or None."""
    registration, views = Registration(left, right, settings), Views(left, right)
    candidates = []
    if initial is not None:
        # GICP may diverge from a good guess; with narrow correspondences it stays nearer.
        candidates = [registration.from_guess(initial), registration.from_guess(initial, WIDTHS[-1:]), initial]
        # Views check a transform to centimetres; the distances of surfaces are more exact.
        distances, guess_score = SurfaceDistances(left, right), views.under(initial).score
        candidates.sort(key=distances.under)
        for candidate in candidates:
            under = views.under(candidate)
            if credible(under, near=True) and under.score > guess_score - ALIKE:
                return candidate
        candidates.sort(key=lambda candidate: -views.under(candidate).score)
        # Swapped topics give the inverse of the model's transform.
        swapped = registration.from_guess(inverse(initial))
        if credible(views.under(swapped)):
            return swapped
        candidates.append(swapped)
    hypotheses = plane_hypotheses(left, right)
    hypotheses.sort(key=lambda start: -views.under(start, every=20, leniency=4.0).score)
    candidates += [registration.from_guess(start) for start in hypotheses[:MAX_STARTS]]
    if not candidates:
        raise InputError("no initial guess of right_to_left was given, and the clouds have no planes to find one")
    return _best(candidates, [views.under(estimate).score for estimate in candidates], guessed=initial is not None)


def _best(candidates: list[np.ndarray], scores: list[float], guessed: bool) -> np.ndarray:
    """Return the transform that explains the views best; of several equally good ones, the one from the guess,
    `candidates[0]`."""
    best = candidates[int(np.argmax(scores))]
    if guessed:
        return candidates[0] if scores[0] > max(scores) - ALIKE else best
    for other, score in zip(candidates, scores, strict=True):
        distance, angle = error(best, other)
        if score > max(scores) - ALIKE and (distance > SAME_DISTANCE or angle > SAME_ANGLE):
            raise Refused(
                f"two transforms, {distance:.2f} m and {np.rad2deg(angle):.0f} deg apart, explain what both lidars see "
                "alike; give an initial guess (the robot's description), or move the robot to "
                "where the room is less regular"
            )
    return best


class Registration:
    """GICP between the cells of both lidars, prepared once for several starts."""

    def __init__(self, left: Surface, right: Surface, settings: AlignmentSettings):
        self._settings = settings
        resolution = settings.downsampling_resolution
        self._target, self._tree = small_gicp.preprocess_points(left.points, resolution, num_threads=1)
        self._source, _ = small_gicp.preprocess_points(right.points, resolution, num_threads=1)

    def from_guess(self, guess: np.ndarray, widths: Sequence[float] = WIDTHS) -> np.ndarray:
        """Return the transform (4, 4) from a guess, with ever shorter correspondences (see `WIDTHS`)."""
        estimate = guess
        for width in widths:
            result = small_gicp.align(
                self._target, self._source, self._tree, estimate, num_threads=1,
                max_correspondence_distance=width * self._settings.max_correspondence_distance,
                max_iterations=self._settings.max_iterations,
            )  # fmt: skip
            if not (np.isfinite(result.T_target_source).all() and result.num_inliers):
                return estimate
            estimate = _where_constrained(estimate, result)
        return estimate


def _where_constrained(before: np.ndarray, result: small_gicp.RegistrationResult) -> np.ndarray:
    """Return the registration's transform without the part of the step from `before` (4, 4) along unconstrained
    directions."""
    after = check_rigid(result.T_target_source, "registration", tolerance=1e-2)
    # The length (m) that scales rotations among small_gicp's components (rotation, translation, in the source's frame).
    lever = np.sqrt(np.trace(result.H[:3, :3]) / np.trace(result.H[3:, 3:]))
    scale = np.repeat([1.0 / lever, 1.0], 3)
    curvature, directions = np.linalg.eigh(result.H * np.outer(scale, scale))
    kept = directions[:, curvature > CONSTRAINED * curvature[-1]]
    step = np.roll(log(inverse(before) @ after), 3) / scale
    return before @ exp(np.roll(scale * (kept @ (kept.T @ step)), 3))


@dataclass(frozen=True)
class LargePlanes:
    """`normals` (P, 3) that face the lidar and `distances` (P,) of the largest planes of a view, by area."""

    normals: np.ndarray
    distances: np.ndarray


def plane_hypotheses(left: Surface, right: Surface) -> list[np.ndarray]:
    """Return transforms right_to_left (4, 4) that match large planes of both views. Two planes that are not parallel
    determine a rotation; the translation is the shortest, since two lidars of one robot are near each other."""
    targets, sources = large_planes(left), large_planes(right)
    rotations: list[np.ndarray] = []
    for source_pair, source_angle in _pairs(sources):
        for target_pair, target_angle in _pairs(targets):
            if abs(source_angle - target_angle) > ANGLE_TOLERANCE:
                continue
            pairs = targets.normals[target_pair], sources.normals[source_pair]
            rotation = Rotation.align_vectors(*pairs)[0].as_matrix()
            # The trace of the difference gives the angle: trace = 1 + 2 cos.
            if all(np.sum(rotation * other) < 1.0 + 2.0 * np.cos(SAME_ROTATION) for other in rotations):
                rotations.append(rotation)
    rotations = [_refined(rotation, targets, sources) for rotation in rotations]
    return [from_rotation_translation(rotation, _translation(rotation, targets, sources)) for rotation in rotations]


def large_planes(surface: Surface) -> LargePlanes:
    """Return the largest planes of one lidar's cells, one after the other among cells with similar normals."""
    cosines = -np.einsum("mi,mi->m", surface.normals, surface.rays)
    remaining = np.flatnonzero((surface.planarity < MAX_PLANARITY) & (cosines > 0.15))
    areas = surface.ranges**2 / np.maximum(cosines, 0.15)
    normals, distances = [], []
    while len(normals) < NUM_PLANES and len(remaining) > 50:
        of_cells, weights = surface.normals[remaining], areas[remaining]
        offsets = -np.einsum("mi,mi->m", of_cells, surface.points[remaining])
        seeds = np.linspace(0, len(remaining) - 1, 60).astype(int)
        alike = of_cells[seeds] @ of_cells.T > np.cos(NORMAL_TOLERANCE)
        alike &= np.abs(offsets[seeds, None] - offsets) < 0.15
        members = alike[np.argmax(alike @ weights)]
        normal = (of_cells[members] * weights[members, None]).sum(axis=0)
        normal /= np.linalg.norm(normal)
        normals.append(normal)
        distances.append(float(np.median(-surface.points[remaining[members]] @ normal)))
        remaining = remaining[~members]
    return LargePlanes(np.array(normals).reshape(-1, 3), np.array(distances))


def _pairs(planes: LargePlanes) -> list[tuple[list[int], float]]:
    """Return the ordered pairs of planes that are not parallel, each with the angle between their normals."""
    pairs = []
    for pair in itertools.product(range(len(planes.normals)), repeat=2):
        first, second = planes.normals[list(pair)]
        angle = float(np.arccos(np.clip(first @ second, -1.0, 1.0)))
        if PARALLEL < angle < np.pi - PARALLEL:
            pairs.append((list(pair), angle))
    return pairs


def _refined(rotation: np.ndarray, targets: LargePlanes, sources: LargePlanes) -> np.ndarray:
    """Return the rotation that fits all planes that nearly coincide under `rotation` (Kabsch)."""
    for _ in range(2):
        alike = (sources.normals @ rotation.T) @ targets.normals.T
        source, target = np.nonzero(alike > np.cos(1.5 * NORMAL_TOLERANCE))
        rotation = Rotation.align_vectors(targets.normals[target], sources.normals[source])[0].as_matrix()
    return rotation


def _translation(rotation: np.ndarray, targets: LargePlanes, sources: LargePlanes) -> np.ndarray:
    """Return the short translation (3,) of rotated source planes onto target planes facing the same way."""
    normals = sources.normals @ rotation.T
    alike = normals @ targets.normals.T > np.cos(NORMAL_TOLERANCE)
    # A plane n . p = -d moved by t satisfies n . t = d_source - d_target.
    needed = sources.distances[:, None] - targets.distances
    needed = np.where(alike & (np.abs(needed) < MAX_DISTANCE), needed, np.inf)
    nearest = np.argmin(np.abs(needed), axis=1)
    matched = np.isfinite(needed[np.arange(len(nearest)), nearest])
    if not matched.any():
        return np.zeros(3)
    rows, steps = normals[matched], needed[np.arange(len(nearest)), nearest][matched]
    return np.linalg.solve(rows.T @ rows + 0.05 * np.eye(3), rows.T @ steps)
