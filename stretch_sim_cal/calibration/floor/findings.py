"""Every check of a floor: its limit, and the finding that it gives (findings.py)."""

from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.floor.cells import FloorMotion
from stretch_sim_cal.calibration.floor.fit import FloorFit
from stretch_sim_cal.calibration.floor.steps import direction_in_words
from stretch_sim_cal.calibration.floor.support import FLATNESS, FLATNESS_RADIUS
from stretch_sim_cal.calibration.results import Support
from stretch_sim_cal.calibration.settings import FloorSettings

# Floor that supports the result: at least so much of it (m2), and nowhere around the robot a wider gap without any.
MIN_AREA = 1.0
MAX_GAP = float(np.deg2rad(150.0))
# The share of the floor around the robot that must lie on the plane.
MIN_LEVEL_SHARE = 0.6
# The two lidars' floors may differ by this much before the alignment is doubted.
MAX_DISAGREEMENT_HEIGHT, MAX_DISAGREEMENT_TILT = 0.003, float(np.deg2rad(0.1))
# The robot has moved against the floor if its frames differ by more than this.
MAX_MOTION_HEIGHT, MAX_MOTION_TILT = 0.001, float(np.deg2rad(0.05))
WORTH_TELLING = 0.0005  # m, of a floor's shape
FOOTPRINT_RADIUS = 0.3  # m; a step nearer than this may run between the wheels
UNLIKELY = 16.3  # chi square of three values, 0.1 %
FLAT_PART = "move the robot to a flat part of the floor"
MORE_PAIRS = "record more pairs, or identify the lidars' own errors first"


@dataclass(frozen=True)
class Disagreement:
    """The right lidar's floor against the left one's: `increment` (height in m, tilt about x, tilt about y in rad) and
    its `covariance` (3, 3) by noise and by the alignment."""

    increment: np.ndarray
    covariance: np.ndarray


@dataclass
class Findings:
    """The findings of a floor: `refusals` forbid the use of the result."""

    warnings: list[Finding] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)

    def warn(self, *finding: str) -> None:
        """Add a finding (code, sentence, perhaps remedy) that does not forbid the use of the result."""
        self.warnings.append(Finding(*finding))

    def refuse(self, *finding: str) -> None:
        """Add a finding (code, sentence, perhaps remedy) that forbids it."""
        self.refusals.append(Finding(*finding))


def check_support(
    findings: Findings, support: Support, worst_place: str, covariance: np.ndarray, settings: FloorSettings
) -> None:
    """Is there enough floor, on all sides, on one plane, and is the covariance (3, 3) of the result small enough?"""
    if support.area < MIN_AREA:
        sentence = f"only {support.area:.2f} m2 of floor support the plane, {MIN_AREA:g} m2 are needed"
        findings.refuse("little_floor", sentence, "make room around the robot")
    if support.gap > MAX_GAP:
        findings.refuse(
            "floor_on_one_side",
            f"the floor is seen on one side only: none over {np.degrees(support.gap):.0f} deg "
            f"{direction_in_words(support.gap_bearing)} (at most {np.degrees(MAX_GAP):.0f} deg)",
            "move the robot to where floor is free around it",
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
        sentence = f"no floor is seen within {support.nearest:.1f} m of the robot: the plane is that of floor beyond"
        findings.warn("floor_far", sentence, "stow the arm, or make room around the robot")
    check_certainty(findings, covariance, settings)


def check_certainty(
    findings: Findings, covariance: np.ndarray, settings: FloorSettings, remedy: str = MORE_PAIRS
) -> None:
    """Is the covariance (3, 3) of the floor small enough?"""
    height, tilt = np.sqrt(covariance[0, 0]), np.sqrt(np.linalg.eigvalsh(covariance[1:, 1:])[-1])
    for quantity, value, limit, said in (
        ("height", height, settings.max_std_height, lambda value: f"{1e3 * value:.2f} mm"),
        ("tilt", tilt, settings.max_std_tilt, lambda value: f"{np.degrees(value):.3f} deg"),
    ):
        if value > limit:
            sentence = f"the {quantity} is too uncertain: standard deviation {said(value)}, at most {said(limit)}"
            findings.refuse("uncertain_floor", sentence, remedy)


def check_shape(findings: Findings, fit: FloorFit) -> None:
    """How does the floor differ from a plane: by a step, by curvature, by unevenness?"""
    if fit.step is not None:
        distance, height = fit.step.distance, fit.step.height
        where = f"{distance:.1f} m {direction_in_words(fit.step.bearing)}"
        side = "higher" if height > 0 else "lower"
        sentence = f"a step runs through the floor {where}: beyond it lies {abs(height) * 1e3:.1f} mm {side}"
        if distance < FOOTPRINT_RADIUS:
            findings.refuse(
                "floor_step", f"{sentence}, and the robot seems to stand on both sides of it", "move it to one side"
            )
        else:
            findings.warn("floor_step", f"{sentence}; the plane is the one that the robot stands on")
    xx, xy, yy = fit.curvature
    rise = float(np.abs(np.linalg.eigvalsh([[xx, xy], [xy, yy]])).max()) * FLATNESS_RADIUS**2 / 2
    sentence = f"bends by {rise * 1e3:.1f} mm within {FLATNESS_RADIUS:g} m of the robot"
    if rise > FLATNESS:
        findings.refuse("floor_not_plane", f"the floor is not a plane: it {sentence}", FLAT_PART)
    elif rise > WORTH_TELLING:
        findings.warn("floor_curved", f"the floor {sentence}; the plane touches it there")
    if fit.unevenness > WORTH_TELLING:
        uneven = f"{fit.unevenness * 1e3:.1f} mm (standard deviation)"
        findings.warn("floor_uneven", f"the floor is uneven: its parts lie {uneven} off the plane")


def check_disagreement(findings: Findings, both: Disagreement | None, name: str = "right", first: str = "left") -> None:
    """Do two lidars see one floor, within the uncertainty of the alignment?"""
    if both is None:
        findings.warn(
            "floor_of_one_lidar",
            f"the {name} and the {first} lidar see too little of the same floor to be compared by it",
        )
        return
    height, tilt = float(abs(both.increment[0])), float(np.linalg.norm(both.increment[1:]))
    off = f"the {name} lidar sees the floor {height * 1e3:.2f} mm and {np.degrees(tilt):.3f} deg off the {first} one's"
    if height > MAX_DISAGREEMENT_HEIGHT or tilt > MAX_DISAGREEMENT_TILT:
        findings.refuse("lidars_disagree", off, "align the lidars first")
    elif both.increment @ np.linalg.solve(both.covariance, both.increment) > UNLIKELY:
        sentence = f"{off}, more than the alignment's own uncertainty explains"
        findings.warn("lidars_disagree", sentence, "align the lidars again")


def check_motion(findings: Findings, motion: FloorMotion | None, num_frames: int) -> None:
    """Is the floor another one from some frame on? Then the robot moved, or something moved it."""
    if motion is None:
        return
    sentence = (
        f"the robot moved against the floor: after frame {motion.after} of {num_frames} it lies "
        f"{motion.height * 1e3:.2f} mm and {np.degrees(motion.tilt):.3f} deg off"
    )
    if motion.height > MAX_MOTION_HEIGHT or motion.tilt > MAX_MOTION_TILT:
        findings.refuse("moved", sentence, "record again with the robot at rest")
    else:
        findings.warn("moved", sentence)
