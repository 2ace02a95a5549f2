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
from dataclasses import replace

import numpy as np
import small_gicp

from stretch_sim_cal.calibration.consistency import Consistency, Views
from stretch_sim_cal.calibration.search import plane_hypotheses
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.surfaces import Surface
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import adjoint, apply, check_rigid, error, exp, inverse, log

# A transform under which the views agree this well is not searched further.
CREDIBLE_AGREE = 0.88
CREDIBLE_CONTRADICT = 0.03
MAX_STARTS = 8
# Longest correspondences of GICP's passes, over the setting.
WIDTHS = (2.5, 1.0, 0.5)
# Scores (-1 .. 1) that differ by less do not tell two transforms apart; transforms that differ by less are the same.
ALIKE = 0.05
SAME_DISTANCE = 0.2  # m
# How well the coarse transform is known is seen by leaving out one of so many sectors of the view.
SECTORS = 12
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


def coarse_covariance(left: Surface, right: Surface, estimate: np.ndarray, settings: AlignmentSettings) -> np.ndarray:
    """Return the covariance (6, 6) of a coarse `estimate` (4, 4) of right_to_left, over its twist in the left frame.

    It is the delete-a-group jackknife's over sectors of what the right lidar sees, by azimuth, which takes surfaces that do
    not fit as they come; enlarged by (K - 1) / (K - 8), since a covariance (6, 6) of K sectors scatters by itself
    (Hotelling). Directions that the scene does not hold get 1 m and 1 rad.
    """
    x, y = (apply(estimate, right.points) - estimate[:3, 3])[:, :2].T
    sector = np.floor((np.arctan2(y, x) / (2.0 * np.pi) + 0.5) * SECTORS).astype(int) % SECTORS
    twists = []
    for left_out in range(SECTORS):
        registration = Registration(left, replace(right, points=right.points[sector != left_out]), settings)
        twists.append(log(registration.from_guess(estimate) @ inverse(estimate)))
    scatter = np.array(twists) - np.mean(twists, axis=0)
    jackknife = (SECTORS - 1) / SECTORS * scatter.T @ scatter * (SECTORS - 1) / (SECTORS - 8)
    return jackknife + Registration(left, right, settings).unheld(estimate)


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
            found = self._registered(estimate, width * self._settings.max_correspondence_distance)
            if not (np.isfinite(found.T_target_source).all() and found.num_inliers):
                return estimate
            estimate = _where_held(estimate, found)
        return estimate

    def unheld(self, estimate: np.ndarray) -> np.ndarray:
        """Return a covariance (6, 6), in the target's frame, with 1 m or 1 rad along the directions that nothing holds."""
        scale, directions, are_held = _held(
            self._registered(estimate, 0.5 * self._settings.max_correspondence_distance)
        )
        free = np.roll(scale[:, None] * directions[:, ~are_held], 3, axis=0)
        free = adjoint(estimate) @ free / np.maximum(np.abs(free).max(axis=0), 1e-12)
        return free @ free.T

    def _registered(self, start: np.ndarray, distance: float) -> small_gicp.RegistrationResult:
        return small_gicp.align(
            self._target, self._source, self._tree, start, max_correspondence_distance=distance,
            num_threads=1, max_iterations=self._settings.max_iterations,
        )  # fmt: skip


def _where_held(before: np.ndarray, found: small_gicp.RegistrationResult) -> np.ndarray:
    """Return what was found, without the part of the way from `before` (4, 4) along directions that nothing holds."""
    after = check_rigid(found.T_target_source, "registration", tolerance=1e-2)
    scale, directions, are_held = _held(found)
    held = directions[:, are_held]
    step = np.roll(log(inverse(before) @ after), 3) / scale
    return before @ exp(np.roll(scale * (held @ (held.T @ step)), 3))


def _held(found: small_gicp.RegistrationResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the unit (6,) of each of small_gicp's components (rotation, translation, in the source's frame), directions
    (6, 6) in these units, as columns, and which of them (6,) the scene holds."""
    lever = np.sqrt(np.trace(found.H[:3, :3]) / np.trace(found.H[3:, 3:]))  # m: so that 1 rad compares with so many m
    scale = np.repeat([1.0 / lever, 1.0], 3)
    curvature, directions = np.linalg.eigh(found.H * np.outer(scale, scale))
    return scale, directions, curvature > HELD * curvature[-1]
