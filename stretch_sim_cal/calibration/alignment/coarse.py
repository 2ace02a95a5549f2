"""A transform good to a few millimetres, from a first guess that may be far off, or from none at all.

Near the guess GICP (small_gicp) finds it, from wide to narrow. Whether it did is not believed but checked: the two
views must not contradict each other. Otherwise large planes of both views are matched for every rotation that they
allow, as many hypotheses as there are, and the most consistent ones are registered.
"""

import numpy as np
import small_gicp

from stretch_sim_cal.calibration.alignment.consistency import Consistency, Views
from stretch_sim_cal.calibration.alignment.search import plane_hypotheses
from stretch_sim_cal.calibration.alignment.settings import AlignmentSettings
from stretch_sim_cal.calibration.alignment.surfaces import Surface
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import check_rigid, inverse

# A transform under which the views agree this well is not searched further.
CREDIBLE_AGREE = 0.88
CREDIBLE_CONTRADICT = 0.03
MAX_STARTS = 8


def credible(found: Consistency) -> bool:
    """Whether two views agree as well as they do when the transform is right."""
    return found.agree >= CREDIBLE_AGREE and found.contradict <= CREDIBLE_CONTRADICT


def coarse_alignment(
    left: Surface, right: Surface, initial: np.ndarray | None, settings: AlignmentSettings
) -> np.ndarray:
    """Return `right_to_left` (4, 4) from the cells of both lidars; `initial` (4, 4) may be far off, or None."""
    registration, views = Registration(left, right, settings), Views(left, right)
    found = []
    # Swapped topics give the inverse of what the model says.
    for start in [] if initial is None else [initial, inverse(initial)]:
        found.append(registration.from_guess(start))
        if credible(views.under(found[-1])):
            return found[-1]
    hypotheses = plane_hypotheses(left, right)
    hypotheses.sort(key=lambda start: -views.under(start, every=20, leniency=4.0).score)
    found += [registration.from_guess(start) for start in hypotheses[:MAX_STARTS]]
    if not found:
        raise InputError("no first guess of right_to_left was given, and the clouds show no planes to find one by")
    return max(found, key=lambda estimate: views.under(estimate).score)


class Registration:
    """GICP between the cells of both lidars, prepared once for several starts."""

    def __init__(self, left: Surface, right: Surface, settings: AlignmentSettings):
        self._settings = settings
        resolution = settings.downsampling_resolution
        self._target, self._tree = small_gicp.preprocess_points(left.points, resolution, num_threads=1)
        self._source, _ = small_gicp.preprocess_points(right.points, resolution, num_threads=1)

    def from_guess(self, guess: np.ndarray) -> np.ndarray:
        """Return the transform (4, 4) found from a guess, with ever shorter correspondences."""
        estimate = guess
        widest = self._settings.max_correspondence_distance
        for distance in (2.5 * widest, widest, 0.5 * widest):
            found = small_gicp.align(
                self._target, self._source, self._tree, estimate, max_correspondence_distance=distance,
                num_threads=1, max_iterations=self._settings.max_iterations,
            )  # fmt: skip
            if not np.isfinite(found.T_target_source).all():
                return estimate
            estimate = check_rigid(found.T_target_source, "registration", tolerance=1e-2)
        return estimate
