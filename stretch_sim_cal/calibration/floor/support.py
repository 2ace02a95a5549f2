"""The floor that supports a fit: its area and sides, and the share of the floor around the robot that lies on the
plane."""

import numpy as np

from stretch_sim_cal.calibration.floor.cells import PATCH_SIZE, patch_centres, patch_of_cells
from stretch_sim_cal.calibration.floor.fit import FoundFloor
from stretch_sim_cal.calibration.floor.search import Tiles
from stretch_sim_cal.calibration.floor.steps import direction_in_words
from stretch_sim_cal.calibration.results import Support
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.geometry.planes import Plane

TRUSTED = 0.3  # patches with this weight or more support the plane
MIN_RAYS = 20  # in a patch that supports it
LEAST_TOLERANCE = 0.001  # m; steps lower than this do not count against a floor
# Floor farther (m) off the plane is another level, however uneven it is; what counts is floor within the radius (m).
FLATNESS, FLATNESS_RADIUS = 0.003, 1.5
PIECE = 0.5  # m; the worst place is named by pieces of this size


def support_of(found: FoundFloor, level_share: float) -> Support:
    """Return how much floor supports the fit; `level_share` is that of `flatness`."""
    lidars, fit = found.sums, found.fit
    patch, centres = patch_of_cells(), patch_centres()
    count = len(centres)
    used = np.any(fit.used, axis=0)
    seen = sum(sums.hits + sums.blocked for sums in lidars) > 0
    hits = sum(sums.hits * own for sums, own in zip(lidars, fit.used, strict=True))
    rays = np.bincount(patch, hits, minlength=count)
    share = np.bincount(patch, used, minlength=count) / np.maximum(np.bincount(patch, seen, minlength=count), 1)
    supporting = (fit.patch_weights >= TRUSTED) & (rays >= MIN_RAYS)
    areas = np.where(supporting, share, 0.0) * PATCH_SIZE**2

    bearings, distances = np.arctan2(centres[:, 1], centres[:, 0]), np.linalg.norm(centres, axis=1)
    gap, middle = widest_gap(bearings[supporting])
    return Support(
        area=float(areas.sum()),
        gap=gap,
        gap_bearing=middle,
        level_share=level_share,
        unevenness=fit.unevenness,
        nearest=float(distances[supporting].min(initial=np.inf)),
    )


def widest_gap(bearings: np.ndarray) -> tuple[float, float]:
    """Return the widest angle (rad) between neighbouring bearings and the bearing of its middle."""
    if not len(bearings):
        return 2 * np.pi, 0.0
    ordered = np.sort(bearings)
    gaps = np.diff(np.r_[ordered, ordered[0] + 2 * np.pi])
    widest = int(np.argmax(gaps))
    return float(gaps[widest]), float(np.angle(np.exp(1j * (ordered[widest] + gaps[widest] / 2))))


def flatness(tiles: Tiles, floor: Plane, unevenness: float, settings: FloorSettings) -> tuple[float, str]:
    """Return the share of the floor around the robot that lies on the plane, and in words the place farthest off it; of
    all floor that is seen if there is none within `FLATNESS_RADIUS`.

    A tile lies on the plane if noise and the floor's own unevenness (m) explain its height. Only level tiles within the
    search height count: higher or lower ones are furniture or stairs, not floor.
    """
    distances = np.linalg.norm(tiles.centres[:, :2], axis=1)
    heights = floor.distance(tiles.centres)
    around = (distances < FLATNESS_RADIUS) & (np.abs(heights) < settings.search_height)
    if not around.any():  # the robot's own body may hide it: then all that is seen farther away
        around = np.abs(heights) < settings.search_height
    explained = np.maximum(3.5 * np.hypot(tiles.noise, unevenness), LEAST_TOLERANCE)
    off = around & (np.abs(heights) > np.minimum(explained, FLATNESS + 3 * tiles.noise))
    share = 1.0 - np.count_nonzero(off) / max(np.count_nonzero(around), 1)
    return share, _worst_place(tiles.centres[off], heights[off])


def _worst_place(centres: np.ndarray, heights: np.ndarray) -> str:
    """Return in words the piece of floor with three tiles or more whose median height is farthest off the plane."""
    pieces = np.floor(centres[:, :2] / PIECE).astype(int)
    worst, place = 0.0, ""
    for piece in np.unique(pieces, axis=0):
        inside = np.all(pieces == piece, axis=1)
        height = float(np.median(heights[inside]))
        if np.count_nonzero(inside) >= 3 and abs(height) > abs(worst):
            x, y = centres[inside, :2].mean(axis=0)
            worst = height
            side = "higher" if height > 0 else "lower"
            where = direction_in_words(np.arctan2(y, x))
            place = f"{abs(height) * 1e3:.0f} mm {side} than the plane {np.hypot(x, y):.1f} m {where}"
    return place
