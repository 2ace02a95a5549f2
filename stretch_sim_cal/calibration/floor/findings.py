"""The checks of a floor: its support, shape, motion, agreement between lidars, and whether the floor that is seen
nearest to the wheels lies on the plane; their limits and findings."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.finding import Finding, when
from stretch_sim_cal.calibration.floor import fit as floor_fit
from stretch_sim_cal.calibration.floor.cells import PATCH_CENTRES, PATCH_OF_CELLS, PATCH_SIZE, FloorRays
from stretch_sim_cal.calibration.floor.fit import FloorFit, FoundFloor, Tiles
from stretch_sim_cal.calibration.problem import State, curvature_shapes
from stretch_sim_cal.calibration.results import Support
from stretch_sim_cal.calibration.robust import TUKEY, tukey_weights
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.geometry.planes import Plane

# Floor that supports the result: at least this area (m2), and no wider gap around the robot.
MIN_AREA = 1.0
MAX_GAP = float(np.deg2rad(150.0))
TRUSTED = 0.3  # patches with this weight or more support the plane
MIN_RAYS = 20  # in a patch that supports it
# Of the floor around the robot, at least this share must lie on the plane.
MIN_LEVEL_SHARE = 0.6
LEAST_TOLERANCE = 0.001  # m; steps lower than this do not count against a floor
# Floor farther (m) off the plane is another level, however uneven it is; floor within the radius (m) counts.
FLATNESS, FLATNESS_RADIUS = 0.003, 1.5
PIECE = 0.5  # m; the worst place is named by pieces of this size
# The two lidars' floors may differ by this much before the alignment is doubted.
MAX_DISAGREEMENT_HEIGHT, MAX_DISAGREEMENT_TILT = 0.003, float(np.deg2rad(0.1))
# The robot has moved against the floor if its frames differ by more than this.
MAX_MOTION_HEIGHT, MAX_MOTION_TILT = 0.001, float(np.deg2rad(0.05))
WORTH_TELLING = 0.0005  # m, of a floor's shape
# The floor near the robot may differ by this much from all of it: on sound floors by 0.2 mm and 0.03 deg.
MAX_OFF_HEIGHT, MAX_OFF_TILT = 0.0003, float(np.deg2rad(0.05))
UNLIKELY, VERY_UNLIKELY = 16.3, 30.0  # chi square of three values: 0.1 %, one in a million
FLAT_PART = "move the robot to a flat part of the floor"
EVEN_PART = (
    "move the robot to even floor, or calibrate by driving: on this one its wheels may stand higher or lower than most"
)
MORE_PAIRS = "record more pairs, or identify the lidars' own errors first"

# Of the floor at the wheels.
FOOTPRINT_RADIUS = 0.3  # m; what lies nearer may be between or under the wheels
# The nearest floor is that within the first of these (m) beyond that radius. Sectors where none is seen there count to
# the second beyond the nearest that is seen, if that is not beyond `FARTHEST`.
MARGIN, DEPTH, FARTHEST, SECTORS = 0.08, 0.05, 0.8, 24
DISCS, SPACING = (0.06, 0.12), 0.03  # radii and distances of the discs, m
LEAST_RAYS = 6
# m: farther off the plane are objects, to whose feet the heights of a disc spread more than this beyond noise.
HIGHEST, MIXED = 0.05, 0.004
# The radius (m) of the floor whose plane is compared; how near (m) its patches agree at best.
AROUND, LEAST_DEVIATION, ITERATIONS = 0.7, 0.0004, 15
# Of 1000 discs on sound floors the largest ratio is 2 to 3.5.
SIGNIFICANCE, LEAST_HEIGHT = 4.5, 0.002  # standard deviations, m


Disagreement = tuple[np.ndarray, np.ndarray]
"""One lidar's floor against the first one's: the increment (height in m, tilt about x, tilt about y in rad) and its
covariance (3, 3) by noise and by the alignment."""


@dataclass
class Findings:
    """The findings (code, sentence, perhaps remedy) of a floor: `refusals` forbid the use of the result."""

    warnings: list[Finding] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)

    def warn(self, *finding: str) -> None:
        self.warnings.append(Finding(*finding))

    def refuse(self, *finding: str) -> None:
        self.refusals.append(Finding(*finding))


DIRECTIONS = ("ahead", "ahead to the left", "to the left", "behind to the left",
              "behind", "behind to the right", "to the right", "ahead to the right")  # fmt: skip


def direction_in_words(bearing: float) -> str:
    """Return a bearing (rad, 0 ahead, positive to the left) as one of eight directions."""
    return DIRECTIONS[int(np.round(bearing / (np.pi / 4))) % 8]


def support_of(floor: FoundFloor, level_share: float) -> Support:
    """Return the support of a fit; `level_share` is that of `flatness`."""
    lidars, fit = floor.sums, floor.fit
    used = np.any(fit.used, axis=0)
    seen = sum(sums.hits + sums.blocked for sums in lidars) > 0
    hits = sum(sums.hits * cells for sums, cells in zip(lidars, fit.used, strict=True))
    of_rays, of_used, of_seen = (np.bincount(PATCH_OF_CELLS, of_cells) for of_cells in (hits, used, seen))
    supporting = (fit.trust >= TRUSTED) & (of_rays >= MIN_RAYS)
    area = float((np.where(supporting, of_used / np.maximum(of_seen, 1), 0.0) * PATCH_SIZE**2).sum())
    bearings = np.arctan2(PATCH_CENTRES[:, 1], PATCH_CENTRES[:, 0])
    distances = np.linalg.norm(PATCH_CENTRES, axis=1)
    nearest = float(distances[supporting].min(initial=np.inf))
    return Support(area, *_widest_gap(bearings[supporting]), level_share, fit.unevenness, nearest)


def _widest_gap(bearings: np.ndarray) -> tuple[float, float]:
    """Return the widest angle (rad) between neighbouring bearings and the bearing of its middle."""
    if not len(bearings):
        return 2 * np.pi, 0.0
    ordered = np.sort(bearings)
    gaps = np.diff(np.r_[ordered, ordered[0] + 2 * np.pi])
    widest = int(np.argmax(gaps))
    return float(gaps[widest]), float(np.angle(np.exp(1j * (ordered[widest] + gaps[widest] / 2))))


def flatness(tiles: Tiles, floor: Plane, unevenness: float, settings: FloorSettings) -> tuple[float, str]:
    """Return the share of the level tiles within the search height and `FLATNESS_RADIUS` (of all, if there is none)
    that lie on the plane up to noise and the floor's unevenness (m), and in words the place farthest off it."""
    distances = np.linalg.norm(tiles.centres[:, :2], axis=1)
    heights = floor.distance(tiles.centres)
    around = (distances < FLATNESS_RADIUS) & (np.abs(heights) < settings.search_height)
    if not around.any():  # the robot's own body may hide it
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
            side, where = "higher" if height > 0 else "lower", direction_in_words(np.arctan2(y, x))
            worst = height
            place = f"{abs(height) * 1e3:.0f} mm {side} than the plane {np.hypot(x, y):.1f} m {where}"
    return place


def check_support(
    findings: Findings, support: Support, worst_place: str, covariance: np.ndarray, by_unevenness: np.ndarray,
    settings: FloorSettings,
) -> None:  # fmt: skip
    """Is there enough floor, on all sides, on one plane, and is the covariance (3, 3) of the result small enough? That
    under the wheels `by_unevenness` (3, 3) is part of it."""
    if support.area < MIN_AREA:
        sentence = f"only {support.area:.2f} m2 of floor support the plane, {MIN_AREA:g} m2 are needed"
        findings.refuse("little_floor", sentence, "clear the floor around the robot")
    if support.gap > MAX_GAP:
        findings.refuse(
            "floor_on_one_side",
            f"the floor is seen on one side only: none within {np.degrees(support.gap):.0f} deg "
            f"{direction_in_words(support.gap_bearing)} (at most {np.degrees(MAX_GAP):.0f} deg)",
            "move the robot to where the floor is free all around; if no lidar looks there, tilt one down, or "
            "calibrate by driving",
        )
    if support.level_share < MIN_LEVEL_SHARE:
        share, where = 100 * support.level_share, f"; it is {worst_place}" if worst_place else ""
        sentence = f"only {share:.0f} % of it within {FLATNESS_RADIUS:g} m lie on one{where}"
        findings.refuse("floor_not_plane", f"the floor is not a plane: {sentence}", FLAT_PART)
    elif worst_place:
        share = 100 * (1 - support.level_share)
        sentence = f"{share:.0f} % of the floor around the robot is off the plane: {worst_place}"
        findings.warn("floor_partly_level", sentence)
    if FLATNESS_RADIUS < support.nearest < np.inf:
        nearest = f"no floor is seen within {support.nearest:.1f} m of the robot"
        remedy = "stow the arm, or clear the floor around the robot"
        findings.warn("floor_far", f"{nearest}: the plane is extrapolated from beyond", remedy)
    enough = not uncertain_floor(covariance - by_unevenness, settings)
    findings.refusals += uncertain_floor(covariance, settings, EVEN_PART if enough else MORE_PAIRS)


def uncertain_floor(covariance: np.ndarray, settings: FloorSettings, remedy: str = MORE_PAIRS) -> list[Finding]:
    """Is the covariance (3, 3) of the floor small enough?"""
    height, tilt = np.sqrt(covariance[0, 0]), np.sqrt(np.linalg.eigvalsh(covariance[1:, 1:])[-1])
    too = "is too uncertain: standard deviation"
    bounds = f"{1e3 * settings.max_std_height:.2f} mm", f"{np.degrees(settings.max_std_tilt):.3f} deg"
    by_height = f"the height {too} {1e3 * height:.2f} mm, at most {bounds[0]}"
    by_tilt = f"the tilt {too} {np.degrees(tilt):.3f} deg, at most {bounds[1]}"
    return [
        *when(height > settings.max_std_height, "uncertain_floor", by_height, remedy),
        *when(tilt > settings.max_std_tilt, "uncertain_floor", by_tilt, remedy),
    ]


def check_shape(findings: Findings, fit: FloorFit) -> None:
    """How does the floor differ from a plane: by a step, by curvature, by unevenness?"""
    if fit.step is not None:
        distance, height, slope = fit.step.distance, fit.step.height, fit.step.slope
        where = f"{distance:.1f} m {direction_in_words(fit.step.bearing)}"
        side = "higher" if height > 0 else "lower"
        sentence = f"a step runs through the floor {where}: beyond it the floor is {abs(height) * 1e3:.1f} mm {side}"
        if slope:
            rising = "rises" if slope > 0 else "falls"
            sentence = f"the floor bends {where}: beyond the line it {rising} by {np.degrees(abs(slope)):.2f} deg more"
        if distance < FOOTPRINT_RADIUS:
            sentence = f"{sentence}, and the robot seems to stand on both sides of it"
            findings.refuse("floor_step", sentence, "move it to one side")
        else:
            findings.warn("floor_step", f"{sentence}; the plane is that on which the robot stands")
    xx, xy, yy = fit.curvature
    rise = float(np.abs(np.linalg.eigvalsh([[xx, xy], [xy, yy]])).max()) * FLATNESS_RADIUS**2 / 2
    sentence = f"curves by {rise * 1e3:.1f} mm within {FLATNESS_RADIUS:g} m of the robot"
    if rise > FLATNESS:
        findings.refuse("floor_not_plane", f"the floor is not a plane: it {sentence}", FLAT_PART)
    elif rise > WORTH_TELLING:
        findings.warn("floor_curved", f"the floor {sentence}; the plane touches it there")
    if max(fit.unevenness, fit.seen_alike) > WORTH_TELLING:
        uneven = f"{max(fit.unevenness, fit.seen_alike) * 1e3:.1f} mm (standard deviation)"
        findings.warn("floor_uneven", f"the floor is uneven: it deviates from the plane by {uneven}")


def check_at_wheels(findings: Findings, rays: Sequence[FloorRays], state: State, found: FoundFloor) -> None:
    """Does the floor that is seen nearest to the wheels lie on the plane, and that around the robot, as well? Arguments
    as of `highest_spot`."""
    if (spot := highest_spot(rays, state, found)) is not None:
        (x, y), height = spot
        side = "higher" if height > 0 else "lower"
        where = f"{np.hypot(x, y):.1f} m {direction_in_words(np.arctan2(y, x))}"
        there = f"{where} it is {abs(height) * 1e3:.1f} mm {side}, and a wheel may stand there"
        sentence = f"the floor nearest to the robot is not on the plane: {there}"
        findings.refuse("floor_at_wheels", sentence, "move the robot off mats, cables and edges")
    off, by_noise = nearest_plane_off(found.fit)
    height, tilt = float(abs(off[0])), float(np.linalg.norm(off[1:]))
    if height < MAX_OFF_HEIGHT and tilt < MAX_OFF_TILT:
        return
    if off @ np.linalg.solve(by_noise + found.fit.systematic, off) > VERY_UNLIKELY:
        sentence = f"is {height * 1e3:.1f} mm and {np.degrees(tilt):.2f} deg off the plane of all the floor"
        findings.refuse("floor_near_robot", f"the floor within {AROUND:g} m of the robot {sentence}", FLAT_PART)


def highest_spot(rays: Sequence[FloorRays], state: State, found: FoundFloor) -> tuple[np.ndarray, float] | None:
    """Return the place (2,) on the nearest floor that is most significantly off the plane of the estimate `state`, in
    base_footprint, and its height over that (m), or None. `rays` are each lidar's, corrected as those of `found`."""
    places, heights, noise = _against(rays, state, found)
    near = _nearest(places)
    places, heights, noise = places[near], heights[near], noise[near]
    if len(places) < LEAST_RAYS:
        return None
    corners = np.floor(places / SPACING).astype(int)
    centres = (np.unique(corners, axis=0) + 0.5) * SPACING
    tree, most, spot = cKDTree(places), SIGNIFICANCE, None
    for radius in DISCS:
        for centre, inside in zip(centres, tree.query_ball_point(centres, radius), strict=True):
            if len(inside) < LEAST_RAYS:
                continue
            (lower, median, upper), usual = np.percentile(heights[inside], (25, 50, 75)), np.median(noise[inside])
            spread = max((upper - lower) / 2 / floor_fit.HALF_INTERQUARTILE, usual)
            if spread > max(3.0 * usual, MIXED):
                continue
            height = np.clip(heights[inside], median - 2.0 * spread, median + 2.0 * spread).mean()
            ratio = abs(height) / np.hypot(spread / np.sqrt(len(inside)), found.fit.unevenness)
            if ratio > most and abs(height) > LEAST_HEIGHT:
                most, spot = ratio, (centre, float(height))
    return spot


def nearest_plane_off(fit: FloorFit) -> tuple[np.ndarray, np.ndarray]:
    """Return the increment (3,) that leads from a fitted floor to that by the patches within `AROUND` of the robot, and
    its covariance (3, 3) by noise; 0 if too little floor is seen there."""
    near = fit.well_known & fit.allowed & (np.linalg.norm(fit.centres, axis=1) < AROUND)
    heights, slopes, noise = fit.residuals()[near], fit.slopes[near], fit.noise[near]
    off = np.zeros(3)
    for _ in range(ITERATIONS):
        weights = tukey_weights((heights + slopes @ off) / (TUKEY * np.hypot(noise, LEAST_DEVIATION))) / noise**2
        information = (slopes * weights[:, None]).T @ slopes
        if np.linalg.cond(information) > 1e8:
            return np.zeros(3), np.eye(3)
        off = -np.linalg.solve(information, slopes.T @ (weights * heights))
    return off, np.linalg.inv(information)


def _against(rays: Sequence[FloorRays], state: State, found: FoundFloor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where rays aim (N, 2), their heights (N,) over the floor, and the standard deviations of these (N,);
    without the robot, high objects, and what lies beyond a step."""
    places = np.concatenate([part.aims for part in rays])
    against = [part.against(state.floor) for part in rays]
    heights = np.concatenate([part.heights for part in against]) - curvature_shapes(places) @ state.curvature
    along_ray = found.range_noise * np.concatenate([part.cosines for part in against])
    noise = np.hypot(along_ray, floor_fit.SURFACE_NOISE) / np.sqrt(np.concatenate([part.counts for part in rays]))
    kept = ~np.concatenate([part.on_robot for part in rays]) & (np.abs(heights) < HIGHEST)
    if found.fit.step is not None:
        kept &= found.fit.step.beyond(places) < -floor_fit.STEP_SPACING
    return places[kept], heights[kept], noise[kept]


def _nearest(places: np.ndarray) -> np.ndarray:
    """Return which places (N, 2) are the nearest seen to the wheels, as a mask (N,)."""
    distances = np.linalg.norm(places, axis=1)
    sectors = np.floor((np.arctan2(places[:, 1], places[:, 0]) / (2 * np.pi) + 0.5) * SECTORS).astype(int) % SECTORS
    nearest = np.full(SECTORS, np.inf)
    np.minimum.at(nearest, sectors, distances)
    return (distances < np.maximum(nearest + DEPTH, FOOTPRINT_RADIUS + MARGIN)[sectors]) & (distances < FARTHEST)


def check_disagreement(findings: Findings, both: Disagreement | None, name: str = "right", first: str = "left") -> None:
    """Do two lidars see one floor, within the uncertainty of the alignment?"""
    if both is None:
        return findings.warn(
            "floor_of_one_lidar", f"the {name} and the {first} lidar see too little common floor to be compared"
        )
    increment, covariance = both
    height, tilt = float(abs(increment[0])), float(np.linalg.norm(increment[1:]))
    off = f"the {name} lidar sees the floor {height * 1e3:.2f} mm and {np.degrees(tilt):.3f} deg off the {first} one's"
    if height > MAX_DISAGREEMENT_HEIGHT or tilt > MAX_DISAGREEMENT_TILT:
        findings.refuse("lidars_disagree", off, "align the lidars first")
    elif increment @ np.linalg.solve(covariance, increment) > UNLIKELY:
        more = "more than the alignment's own uncertainty explains"
        findings.warn("lidars_disagree", f"{off}, {more}", "align the lidars again")


def check_motion(findings: Findings, motion: tuple[int, float, float] | None, num_frames: int) -> None:
    """Did the robot move against the floor between the frames, by `motion` as of `floor_motion`?"""
    if motion is None:
        return
    after, height, tilt = motion
    off = f"{height * 1e3:.2f} mm and {np.degrees(tilt):.3f} deg off"
    sentence = f"the robot moved against the floor: after frame {after} of {num_frames} it is {off}"
    if height > MAX_MOTION_HEIGHT or tilt > MAX_MOTION_TILT:
        findings.refuse("moved", sentence, "record again with the robot at rest")
    else:
        findings.warn("moved", sentence)
