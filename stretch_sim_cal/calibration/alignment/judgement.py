"""Whether an alignment may be believed: what the data says about it, in sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.alignment.settings import AlignmentSettings
from stretch_sim_cal.calibration.clouds import FrameIntake
from stretch_sim_cal.calibration.coarse import CREDIBLE_AGREE, CREDIBLE_CONTRADICT, credible
from stretch_sim_cal.calibration.consistency import Consistency, Views
from stretch_sim_cal.calibration.motion import Motion
from stretch_sim_cal.calibration.observability import directions, unobserved
from stretch_sim_cal.calibration.problem import RIGHT, Solution, Unknowns, sensor_numbers
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.calibration.room import RoomBlock, scale_of
from stretch_sim_cal.calibration.surfaces import Surface
from stretch_sim_cal.geometry.transforms import error, inverse

MIN_PATCHES = 12
MIN_OVERLAP = 0.1
# The effective number of patches that each direction has to rest on.
MIN_SUPPORT = 4.0
# How far the robot may move while the frames are taken. Both lidars move together, so a little does no harm.
MAX_MOTION = 0.003
MAX_MOTION_ROTATION = float(np.deg2rad(0.1))
# The share of the view that may see something else for a while.
MAX_DISTURBED = 0.3
WARN_DISTURBED = 0.02
# How many times larger than expected the gaps may be when they also exceed MAX_GAP (m).
MAX_SCALE = 3.0
MAX_GAP = 0.002

COARSE_ONLY = (
    "the few small flat surfaces that both lidars see contradict the views as a whole, so the coarse registration is "
    "the result; turn the robot or move it to where more walls are near, and take more frames"
)


@dataclass(frozen=True)
class PlaceEvidence:
    """What was seen from one standing place: both views, the patches at the estimate, and the motion."""

    left: Surface
    right: Surface
    last: RoomBlock
    motion: Motion

    @property
    def disturbed(self) -> float:
        """The share of the view that saw something else for a while."""
        return float(np.mean(np.concatenate([self.left.disturbed, self.right.disturbed]) > 0))


@dataclass(frozen=True)
class Evidence:
    """What there is to check: that of every standing place, the description's transform, the solution that led to the
    estimate, and the `coarse_covariance` (6, 6) if the estimate is the coarse one, since the patches contradict the views."""

    places: list[PlaceEvidence]
    initial: np.ndarray | None
    solution: Solution
    unknowns: Unknowns
    coarse_covariance: np.ndarray | None = None

    @property
    def blocks(self) -> list[RoomBlock]:
        """The patches at the estimate, by place."""
        return [place.last for place in self.places]

    @property
    def estimate(self) -> np.ndarray:
        """The transform (4, 4) that maps the right lidar's points into the left lidar's frame."""
        return self.blocks[0].state.left_from_right

    @property
    def scale(self) -> float:
        """How many times larger than expected the gaps are; at least 1."""
        return scale_of(self.blocks)

    @property
    def rmse(self) -> float:
        """The root mean square gap (m) between the two lidars' surfaces."""
        squares = np.concatenate([block.gaps.values[block.weights > 0] ** 2 for block in self.blocks])
        return float(np.sqrt(squares.mean())) if len(squares) else float("inf")

    @property
    def covariance(self) -> np.ndarray:
        """The covariance (6, 6) of the estimate; larger than the solution's by as much as the gaps are."""
        if self.coarse_covariance is not None:
            return self.coarse_covariance
        return self.solution.covariance[RIGHT, RIGHT] * self.scale**2

    def in_each(self, check: Callable[[PlaceEvidence], list[str]]) -> list[str]:
        """Return the sentences of a check of every place; of several places each says which it is of."""
        if len(self.places) == 1:
            return check(self.places[0])
        return [f"{said} (standing place {n})" for n, place in enumerate(self.places, start=1) for said in check(place)]


def judged(method: str, evidence: Evidence, intake: FrameIntake, settings: AlignmentSettings) -> AlignmentResult:
    """Return the result with its covariance, and with the reasons there are to refuse it.

    Where robot or scene moved, and under a wrong transform, nothing else is what it seems: what they seem to lack besides
    is not told.
    """
    views = [Views(place.left, place.right).under(evidence.estimate) for place in evidence.places]
    view_of = {id(place): view for place, view in zip(evidence.places, views, strict=True)}
    first, blocks, scale, covariance = evidence.blocks[0], evidence.blocks, evidence.scale, evidence.covariance
    found = directions(covariance, settings.base_from_left, settings.max_std_translation, settings.max_std_rotation)
    disturbed = max(place.disturbed for place in evidence.places)
    coarse = evidence.coarse_covariance is not None
    refusals = (
        evidence.in_each(lambda place: movement(place.motion, place.disturbed, place.last.num_used))
        + evidence.in_each(lambda place: wrong_minimum(view_of[id(place)]))
        or evidence.in_each(lambda place: overlap_refusals(view_of[id(place)], place.last.num_used))
    )
    if not refusals and coarse:
        refusals = unobserved(found)
    elif not refusals:
        refusals = (unobserved(found) or little_support(blocks, covariance, settings)) + misfit(scale, evidence.rmse)
    # An estimate that is refused tells nothing about the model.
    against_model = [] if refusals else model_warnings(evidence.initial, evidence.estimate, settings)
    return AlignmentResult(
        right_to_left=evidence.estimate, covariance=covariance, rmse=evidence.rmse, num_frames=intake.num_frames, method=method,
        overlap=min(float(view.overlap) for view in views), directions=found,
        warnings=intake.warnings() + against_model + _moving(disturbed) + [COARSE_ONLY] * coarse,
        refusals=refusals,
        diagnostics={
            "patches": sum(len(block.flat[0].centres) / block.grids for block in blocks),
            "patches_used": sum(block.num_used for block in blocks), "places": len(blocks),
            "range_noise_left": float(first.noise.sigma[0]), "range_noise_right": float(first.noise.sigma[1]),
            "roughness": float(first.noise.roughness),
            "gap_scale": scale,
            "agree": min(float(view.agree) for view in views),
            "contradict": max(float(view.contradict) for view in views),
            "motion": max(place.motion.translation for place in evidence.places),
            "motion_rotation": max(place.motion.rotation for place in evidence.places), "disturbed": disturbed,
        } | ({} if coarse else sensor_numbers(evidence.unknowns, first.state, evidence.solution)),
    )  # fmt: skip


def overlap_refusals(views: Consistency, used: float) -> list[str]:
    """Return why the two views have too little in common."""
    if used >= MIN_PATCHES and views.overlap >= MIN_OVERLAP:
        return []
    return [
        f"the two lidars see too little in common: {used:.0f} flat patches (at least {MIN_PATCHES} are needed), "
        f"{100.0 * views.overlap:.0f} % overlap; stow the arm and move the robot to where both see the same surfaces"
    ]


def little_support(blocks: Sequence[RoomBlock], covariance: np.ndarray, settings: AlignmentSettings) -> list[str]:
    """Return the base axes along or about which so few patches hold the lidar that none could give another the lie."""
    to_base = np.eye(3) if settings.base_from_left is None else settings.base_from_left[:3, :3]
    frame = "lidar" if settings.base_from_left is None else "base"
    sentences = []
    for verb, block in (("sliding along", slice(0, 3)), ("turning about", slice(3, 6))):
        for axis in range(3):
            direction = np.zeros(6)
            direction[block] = to_base[axis]
            influences = [
                block.gaps.jacobian @ (covariance @ direction) * block.weights / block.gaps.variances for block in blocks
            ]
            variances = np.concatenate(
                [own**2 * block.gaps.variances for own, block in zip(influences, blocks, strict=True)]
            )
            number = variances.sum() ** 2 / np.sum(variances**2) / blocks[0].grids
            if number < MIN_SUPPORT:
                sentences.append(
                    f"only {number:.0f} small surfaces determine {verb} {frame} {'xyz'[axis]}; turn the robot or move it to "
                    "where more surfaces face that way"
                )
    return sentences


def wrong_minimum(views: Consistency) -> list[str]:
    """Return what speaks against the transform being the right one at all; views that hardly meet do not."""
    hardly_meet = views.overlap < MIN_OVERLAP and views.contradict <= CREDIBLE_CONTRADICT
    if credible(views) or hardly_meet:
        return []
    return [
        f"the two views do not fit together: {100.0 * views.agree:.0f} % of the points that both could see agree (at least "
        f"{100.0 * CREDIBLE_AGREE:.0f} %), {100.0 * views.contradict:.1f} % lie where the other lidar looked through (at most "
        f"{100.0 * CREDIBLE_CONTRADICT:.0f} %); a wrong first guess, or something moved between the lidars' scans"
    ]


def movement(motion: Motion, disturbed: float, used: float) -> list[str]:
    """Return what tells that robot or scene did not stand still.

    Too few patches, as under a wrong transform, say nothing of motion.
    """
    found = []
    moved = motion.translation > MAX_MOTION or motion.rotation > MAX_MOTION_ROTATION
    if moved and used >= MIN_PATCHES:
        found.append(
            f"the robot moved by {1000.0 * motion.translation:.0f} mm and {np.rad2deg(motion.rotation):.2f} deg while the "
            "frames were taken; keep it still and repeat"
        )
    if disturbed > MAX_DISTURBED:
        found.append(
            f"{100.0 * disturbed:.0f} % of the directions saw something else for a while; repeat when nothing moves"
        )
    return found


def misfit(scale: float, rmse: float) -> list[str]:
    """Return whether the gaps that remain are larger than the noise of the data allows."""
    if scale <= MAX_SCALE or rmse <= MAX_GAP:
        return []
    return [
        f"the lidars' surfaces stay {1000.0 * rmse:.1f} mm apart, {scale:.1f} times as much as their noise "
        "explains; a range bias between the lidars, or something moved"
    ]


def _moving(disturbed: float) -> list[str]:
    if not WARN_DISTURBED < disturbed <= MAX_DISTURBED:
        return []
    return [f"something moved through {100.0 * disturbed:.0f} % of the view; it was left out"]


def model_warnings(initial: np.ndarray | None, estimate: np.ndarray, settings: AlignmentSettings) -> list[str]:
    """Return what is odd about `estimate` when held against the description's `initial` transform (4, 4)."""
    if initial is None:
        return []
    distance, angle = error(initial, estimate)
    if distance <= settings.max_model_translation and angle <= settings.max_model_rotation:
        return []
    said = f"far from the description's transform: {1000.0 * distance:.0f} mm and {np.rad2deg(angle):.1f} deg"
    swapped_distance, swapped_angle = error(inverse(initial), estimate)
    if swapped_angle < angle and swapped_distance < settings.max_model_translation:
        return [f"{said}; near its inverse, so the left and the right cloud seem to be swapped"]
    return [f"{said}; check the model, the mounts and whether left and right are swapped"]
