"""A transform good to a few millimetres, from a first guess that may be far off, or from none at all.

Near the guess GICP (small_gicp) finds it, from wide to narrow. Whether it did is not believed but checked: the two
views must not contradict each other, nor agree worse than at the guess itself, which is a candidate, too. Otherwise
large planes of both views are matched for every rotation that they allow, as many hypotheses as there are, and the
most consistent ones are registered. Where several explain the views alike (a corridor looks the same from both ends),
the one near the guess is meant; without a guess it is a refusal.

Directions that the scene does not hold stay as they were guessed: J. Zhang, M. Kaess, S. Singh, "On degeneracy of
optimization-based state estimation problems", ICRA 2016.
"""

from collections.abc import Sequence

import numpy as np
import small_gicp

from stretch_sim_cal.calibration.alignment.settings import AlignmentSettings
from stretch_sim_cal.calibration.consistency import Consistency, Views
from stretch_sim_cal.calibration.search import plane_hypotheses
from stretch_sim_cal.calibration.surfaces import Surface
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import check_rigid, error, exp, inverse, log

# A transform under which the views agree this well is not searched further.
CREDIBLE_AGREE = 0.88
CREDIBLE_CONTRADICT = 0.03
MAX_STARTS = 8
# Longest correspondences of GICP's passes, over the setting.
WIDTHS = (2.5, 1.0, 0.5)
# Scores (-1 .. 1) that differ by less do not tell two transforms apart; transforms that differ by less are the same.
ALIKE = 0.05
SAME_DISTANCE = 0.2  # m
SAME_ANGLE = np.deg2rad(5.0)
# Curvature of GICP's cost, against that of its best direction. Where nothing but the regularisation of its planes'
# covariances holds a direction it is 0.001 to 0.005, in rooms 0.02 and more.
HELD = 0.01


def credible(found: Consistency) -> bool:
    """Whether two views agree as well as they do when the transform is right."""
    return found.agree >= CREDIBLE_AGREE and found.contradict <= CREDIBLE_CONTRADICT


def coarse_alignment(
    left: Surface, right: Surface, initial: np.ndarray | None, settings: AlignmentSettings
) -> np.ndarray:
    """Return `right_to_left` (4, 4) from the cells of both lidars; `initial` (4, 4) may be far off, or None."""
    registration, views = Registration(left, right, settings), Views(left, right)
    found = []
    if initial is not None:
        # GICP may run away from a good guess; with narrow correspondences it stays nearer.
        guess_score = views.under(initial).score
        for candidate in (registration.from_guess(initial), registration.from_guess(initial, WIDTHS[-1:]), initial):
            under = views.under(candidate)
            if credible(under) and under.score > guess_score - ALIKE:
                return candidate
            found.append(candidate)
        found.sort(key=lambda candidate: -views.under(candidate).score)
        # Swapped topics give the inverse of what the model says.
        swapped = registration.from_guess(inverse(initial))
        if credible(views.under(swapped)):
            return swapped
        found.append(swapped)
    hypotheses = plane_hypotheses(left, right)
    hypotheses.sort(key=lambda start: -views.under(start, every=20, leniency=4.0).score)
    found += [registration.from_guess(start) for start in hypotheses[:MAX_STARTS]]
    if not found:
        raise InputError("no first guess of right_to_left was given, and the clouds show no planes to find one by")
    return _meant(found, [views.under(estimate).score for estimate in found], guessed=initial is not None)


def _meant(found: list[np.ndarray], scores: list[float], guessed: bool) -> np.ndarray:
    """Return the transform that explains the views best; of several that do so alike, the one from the guess, `found[0]`."""
    best = found[int(np.argmax(scores))]
    if guessed:
        return found[0] if scores[0] > max(scores) - ALIKE else best
    for other, score in zip(found, scores, strict=True):
        distance, angle = error(best, other)
        if score > max(scores) - ALIKE and (distance > SAME_DISTANCE or angle > SAME_ANGLE):
            raise Refused(
                f"two transforms, {distance:.2f} m and {np.rad2deg(angle):.0f} deg apart, explain what both lidars see "
                "alike; give a first guess (the robot's description), or move the robot to where the room is less regular"
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
        """Return the transform (4, 4) found from a guess, with ever shorter correspondences (see `WIDTHS`)."""
        estimate = guess
        for width in widths:
            found = small_gicp.align(
                self._target, self._source, self._tree, estimate, num_threads=1,
                max_correspondence_distance=width * self._settings.max_correspondence_distance,
                max_iterations=self._settings.max_iterations,
            )  # fmt: skip
            if not (np.isfinite(found.T_target_source).all() and found.num_inliers):
                return estimate
            estimate = _where_held(estimate, found)
        return estimate


def _where_held(before: np.ndarray, found: small_gicp.RegistrationResult) -> np.ndarray:
    """Return what was found, without the part of the way from `before` (4, 4) along directions that nothing holds."""
    after = check_rigid(found.T_target_source, "registration", tolerance=1e-2)
    lever = np.sqrt(np.trace(found.H[:3, :3]) / np.trace(found.H[3:, 3:]))  # m: so that 1 rad compares with so many m
    scale = np.repeat([1.0 / lever, 1.0], 3)  # small_gicp's order: rotation, translation, in the source's frame
    curvature, directions = np.linalg.eigh(found.H * np.outer(scale, scale))
    held = directions[:, curvature > HELD * curvature[-1]]
    step = np.roll(log(inverse(before) @ after), 3) / scale
    return before @ exp(np.roll(scale * (held @ (held.T @ step)), 3))
