"""Whether the mounts that were found may be used: what is not determined, what does not fit, in one-line sentences."""

from collections.abc import Mapping, Sequence

import numpy as np

from stretch_sim_cal.calibration.mounts.misfit import unexplained
from stretch_sim_cal.calibration.mounts.result import (
    FARTHEST,
    FARTHEST_ANGLE,
    JointOffset,
    LinkMisfit,
    MountSettings,
    Residuals,
    as_right_to_left,
    at_lidar,
)
from stretch_sim_cal.calibration.mounts.system import Unknowns
from stretch_sim_cal.calibration.observability import directions
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.results import Direction
from stretch_sim_cal.geometry.transforms import SIDES, error, inverse, log

MISPLACED = 3.5  # sigma of the model's uncertainty
SEPARABLE = 0.25  # standard deviation of a joint's offset, the mounts being unknown, over that of what was known before
ALIGNMENT_SIGMAS = 5.0


def directions_of(
    poses: Mapping[str, np.ndarray], covariance: np.ndarray, settings: MountSettings
) -> dict[str, list[Direction]]:
    """Return by side how well each direction of a lidar's pose, about its own origin in base axes, is determined."""
    found = {}
    for index, side in enumerate(SIDES):
        own = at_lidar(covariance[6 * index : 6 * index + 6, 6 * index : 6 * index + 6], poses[side])
        found[side] = directions(own, np.eye(4), settings.max_std_translation, settings.max_std_rotation)
    return found


def joint_offsets(
    unknowns: Unknowns, offsets: Mapping[str, float], covariance: np.ndarray, settings: MountSettings
) -> list[JointOffset]:
    """Return the joints' offsets, and whether these poses tell them from an error of the mounts.

    Where they were not asked for, only those that are further off than joints are thought to be.
    """
    found = []
    for index, (joint, value) in enumerate(offsets.items()):
        column = unknowns.first_joint + index
        deviation = float(np.sqrt(covariance[column, column]))
        prior = settings.joint_prior.get(joint, settings.default_joint_prior)
        if not settings.offsets_asked_for and abs(value) < MISPLACED * prior / 2:
            continue
        found.append(JointOffset(joint, float(value), deviation, deviation < SEPARABLE * prior))
    return found


def warnings_of(
    found: Mapping[str, list[Direction]], joints: Sequence[JointOffset], misfits: Sequence[LinkMisfit],
    residuals: Residuals, links: Sequence[str], poses: Mapping[str, np.ndarray], alignment: Observations | None, asked: bool,
) -> list[str]:  # fmt: skip
    """Return what the user should know before believing the result."""
    told = [
        f"{side} lidar: these poses do not determine {direction.name} well: standard deviation {_said(direction)}"
        for side in SIDES for direction in found[side] if not direction.observed
    ]  # fmt: skip
    told += [
        f"the zero of {joint.joint} is not separable from the mounts with these poses; leave it out, or add poses in "
        "which it differs"
        for joint in joints if not joint.separable and asked
    ]  # fmt: skip
    told += [
        f"the zero of {joint.joint} seems to be off by {_offset_said(joint)}: home the robot, or say --with-joint-offsets"
        for joint in joints if not asked
    ]  # fmt: skip
    told += [
        f"{misfit.link}, with what it holds, seems to be {1e3 * np.linalg.norm(misfit.motion[:3]):.1f} mm and "
        f"{np.degrees(np.linalg.norm(misfit.motion[3:])):.2f} deg from where the model has it"
        for misfit in misfits if misfit.stands_out or misfit.sigmas > MISPLACED
    ]  # fmt: skip
    told += [
        f"{100 * share:.0f} % of the returns on {link} lie in front of it: a payload, or something in the way; left out"
        for link, share in unexplained(residuals, links)
    ]
    if alignment is not None:
        difference = log(as_right_to_left(poses) @ inverse(alignment.result))
        sigmas = float(np.sqrt(difference @ alignment.of_the_transform().information @ difference))
        if sigmas > ALIGNMENT_SIGMAS:
            told.append(f"the robot's own returns and the alignment of the lidars disagree by {sigmas:.1f} sigma")
    return told


def refusals(
    counts: Mapping[str, int], found: Mapping[str, list[Direction]], poses: Mapping[str, np.ndarray],
    nominal: Mapping[str, np.ndarray], min_points: int, settings: MountSettings,
) -> list[str]:  # fmt: skip
    """Return why the result must not be used."""
    told = []
    for side in SIDES:
        if counts[side] < min_points:
            told.append(f"{side} lidar: only {counts[side]} returns from the robot, at least {min_points} are needed")
            continue
        told += [
            f"{side} lidar: these poses do not determine {direction.name}: standard deviation {_said(direction)}"
            for direction in found[side] if direction.standard_deviation > settings.refuse_factor * direction.bound
        ]  # fmt: skip
        distance, angle = error(nominal[side], poses[side])
        if distance > FARTHEST or angle > FARTHEST_ANGLE:
            told.append(
                f"{side} lidar: found {1e3 * distance:.0f} mm and {np.degrees(angle):.1f} deg from where the description has "
                "it, which is more than this method finds; are the lidars swapped, or the description another robot's?"
            )
    return told


def _said(direction: Direction) -> str:
    if direction.name.startswith("turning"):
        return f"{np.degrees(direction.standard_deviation):.2f} deg"
    return f"{1e3 * direction.standard_deviation:.1f} mm"


def _offset_said(offset: JointOffset) -> str:
    return f"{np.degrees(offset.value):+.2f} deg" if "yaw" in offset.joint else f"{1e3 * offset.value:+.1f} mm"
