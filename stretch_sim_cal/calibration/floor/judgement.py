"""Every reason to refuse a fitted floor, and what a user should know of one that is used."""

from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.floor.fit import FloorFit
from stretch_sim_cal.calibration.floor.motion import Motion
from stretch_sim_cal.calibration.floor.result import Support
from stretch_sim_cal.calibration.floor.settings import FloorSettings
from stretch_sim_cal.calibration.floor.steps import Step

WORTH_TELLING = 0.0005  # m; of a floor's shape, or of ranges
FOOTPRINT_RADIUS = 0.3  # m; a step nearer than this may run between the wheels
UNLIKELY = 16.3  # chi square of three values, 0.1 %
DIRECTIONS = ("ahead", "ahead to the left", "to the left", "behind to the left",
              "behind", "behind to the right", "to the right", "ahead to the right")  # fmt: skip


def direction_in_words(bearing: float) -> str:
    """Return a bearing (rad, 0 ahead, turning to the left) as one of eight directions seen from the robot."""
    return DIRECTIONS[int(np.round(bearing / (np.pi / 4))) % 8]


@dataclass(frozen=True)
class Disagreement:
    """The right lidar's floor against the left one's: `step` (height in m, tilt about x, tilt about y in rad) and its
    `covariance` (3, 3) by noise and by the alignment."""

    step: np.ndarray
    covariance: np.ndarray

    @property
    def height(self) -> float:
        """How far apart (m) the two floors are below the robot."""
        return float(abs(self.step[0]))

    @property
    def tilt(self) -> float:
        """The angle (rad) between the two floors."""
        return float(np.linalg.norm(self.step[1:]))


@dataclass
class Findings:
    """One-line sentences: `warnings`, and `refusals`, which forbid the use of the result."""

    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def judge_support(
    findings: Findings, support: Support, worst_place: str, covariance: np.ndarray, settings: FloorSettings
) -> None:
    """Is there enough floor, on all sides, on one plane, and is the result (covariance (3, 3)) sure enough?"""
    if support.area < settings.min_area:
        findings.refusals.append(
            f"only {support.area:.2f} m2 of floor support the plane, {settings.min_area:g} m2 are needed; "
            "make room around the robot"
        )
    if support.gap > settings.max_gap:
        findings.refusals.append(
            f"the floor is seen on one side only: none over {np.degrees(support.gap):.0f} deg "
            f"{direction_in_words(support.gap_bearing)} (at most {np.degrees(settings.max_gap):.0f} deg)"
        )
    if support.level_share < settings.min_level_share:
        findings.refusals.append(
            f"the floor is not a plane: only {100 * support.level_share:.0f} % of it within "
            f"{settings.flatness_radius:g} m lie on one" + (f"; it is {worst_place}" if worst_place else "")
        )
    elif worst_place:
        off = 100 * (1 - support.level_share)
        findings.warnings.append(f"{off:.0f} % of the floor around the robot is off the plane: {worst_place}")
    height, tilt = np.sqrt(covariance[0, 0]), np.sqrt(np.linalg.eigvalsh(covariance[1:, 1:])[-1])
    if height > settings.max_std_height:
        findings.refusals.append(
            f"the height is not sure enough: standard deviation {height * 1e3:.2f} mm, "
            f"at most {settings.max_std_height * 1e3:.2f} mm"
        )
    if tilt > settings.max_std_tilt:
        findings.refusals.append(
            f"the tilt is not sure enough: standard deviation {np.degrees(tilt):.3f} deg, "
            f"at most {np.degrees(settings.max_std_tilt):.3f} deg"
        )


def judge_shape(findings: Findings, fit: FloorFit, settings: FloorSettings) -> None:
    """How does the floor differ from a plane, and what of that do the lidars' ranges explain?"""
    if fit.step_in_floor is not None:
        judge_step(findings, fit.step_in_floor)
    xx, xy, yy = fit.bend
    radius = settings.flatness_radius
    bent = float(np.abs(np.linalg.eigvalsh([[xx, xy], [xy, yy]])).max()) * radius**2 / 2
    sentence = f"bends by {bent * 1e3:.1f} mm within {radius:g} m of the robot"
    if bent > settings.flatness:
        findings.refusals.append(f"the floor is not a plane: it {sentence}")
    elif bent > WORTH_TELLING:
        findings.warnings.append(f"the floor {sentence}; the plane touches it there")
    if fit.unevenness > WORTH_TELLING:
        findings.warnings.append(
            f"the floor is uneven: its parts lie {fit.unevenness * 1e3:.1f} mm (standard deviation) off the plane"
        )


def judge_step(findings: Findings, step: Step) -> None:
    """Does the robot stand on one side of the step?"""
    where = f"{step.distance:.1f} m {direction_in_words(step.bearing)}"
    side = "higher" if step.height > 0 else "lower"
    sentence = f"a step runs through the floor {where}: beyond it lies {abs(step.height) * 1e3:.1f} mm {side}"
    if step.distance < FOOTPRINT_RADIUS:
        findings.refusals.append(f"{sentence}, and the robot seems to stand astride; move it to one side")
    else:
        findings.warnings.append(f"{sentence}; the plane is the one that the robot stands on")


def judge_disagreement(findings: Findings, both: Disagreement | None, settings: FloorSettings) -> None:
    """Do the two lidars see one floor, as far as the alignment lets them?"""
    if both is None:
        findings.warnings.append("only one lidar sees enough floor for a comparison of the two")
        return
    sentence = (
        f"the right lidar sees the floor {both.height * 1e3:.2f} mm and {np.degrees(both.tilt):.3f} deg "
        "off the left one's"
    )
    if both.height > settings.max_disagreement_height or both.tilt > settings.max_disagreement_tilt:
        findings.refusals.append(sentence + "; align the lidars first")
    elif both.step @ np.linalg.solve(both.covariance, both.step) > UNLIKELY:
        findings.warnings.append(sentence + ", more than the alignment's own uncertainty explains")


def judge_motion(findings: Findings, motion: Motion | None, num_frames: int, settings: FloorSettings) -> None:
    """Is the floor another one from some frame on? Then the robot moved, or something moved it."""
    if motion is None:
        return
    sentence = (
        f"the robot moved against the floor: after frame {motion.after} of {num_frames} it lies "
        f"{motion.height * 1e3:.2f} mm and {np.degrees(motion.tilt):.3f} deg off"
    )
    if motion.height > settings.max_motion_height or motion.tilt > settings.max_motion_tilt:
        findings.refusals.append(sentence + "; record again with the robot at rest")
    else:
        findings.warnings.append(sentence)
