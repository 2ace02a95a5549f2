"""Refusals and warnings of the lidar extrinsics by returns from the robot, with their limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.finding import Finding, when
from stretch_sim_cal.calibration.findings import BEYOND_CHANCE
from stretch_sim_cal.calibration.mounts import result as mounts
from stretch_sim_cal.calibration.mounts.residuals import NEAR_RANGES
from stretch_sim_cal.calibration.observability import Direction
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.geometry.transforms import Poses, error, exp, inverse, log

MISPLACED = 3.5  # sigma of the model's uncertainty
ALIGNMENT_SIGMAS = 5.0
MIN_POINTS = 500  # of each lidar
REFUSED = 5.0  # times the bound of a standard deviation, above which there is a refusal; above the bound a warning
FRONT = 0.04  # m in front of the model or behind it, which no noise explains
# The share of a pose's returns behind the model: 0.03 if the grippers have other shapes than described, 0.2 if the mast
# leans by 1 deg more, 0.5 to 0.7 in the worst pose if the joint states are those of another one.
MOST_BEHIND = 0.3
WORTH_RANGE = 0.015  # m of a near return, which the range accuracy of data sheets does not cover
# An offset that moves the floor by less than this (m, rad) is not worth a warning.
WORTH_DISTANCE, WORTH_ANGLE = 0.005, float(np.deg2rad(0.25))

UNCONVERGED = Finding(
    "unsettled_errors",
    "the lidars' own errors have not converged; do not rely on them or on their standard deviations",
    "collect more arm poses, or identify the lidars first",
)


@dataclass(frozen=True)
class LeaningLink:
    """A link without whose returns the lidars' poses differ by the twists `change` (6 n,) in base_link, and the chi
    square per value of that, of the lidar of which it is largest."""

    link: str
    change: np.ndarray
    chi_square: float


def leaning_on(leaning: Sequence[LeaningLink], poses: Poses) -> list[Finding]:
    """Return a finding of the link on which the lidars' `poses` (4, 4) lean most."""
    if not leaning:
        return []
    most = max(leaning, key=lambda each: each.chi_square)
    twists = zip(most.change.reshape(-1, 6), poses.values(), strict=True)
    distance, angle = np.max([error(exp(twist) @ pose, pose) for twist, pose in twists], axis=0)
    return [Finding(
        "one_link",
        f"{most.link} contradicts the rest of the robot: without its returns the lidars are {1e3 * distance:.0f} mm "
        f"and {np.degrees(angle):.2f} deg elsewhere, which the uncertainty includes",
        "check for what its description lacks (a sheet, a pad, a tray), and home the joints",
    )]  # fmt: skip


def mount_warnings(
    observed: Mapping[str, list[Direction]], joints: Sequence[mounts.JointOffset],
    link_residuals: Sequence[mounts.LinkResidual], residuals: mounts.Residuals, links: Sequence[str],
    poses: Poses, alignment: Observations | None, asked: bool,
) -> list[Finding]:  # fmt: skip
    """Return the warnings of the extrinsics; `observed` are directions by lidar, `asked`: for joint zeros."""
    weak = "{} lidar: these poses do not determine {} well: standard deviation {}"
    warnings = [
        Finding("uncertain_mounts", weak.format(lidar, direction.name, _deviation(direction)))
        for lidar, directions in observed.items() for direction in directions if not direction.observed
    ]  # fmt: skip
    for joint in joints:
        inseparable = f"the zero of {joint.joint} cannot be separated from the lidar poses with these arm poses"
        remedy = "omit it, or add arm poses in which it differs"
        warnings += when(asked and not joint.separable, "joint_zero_unobserved", inseparable, remedy)
        off = f"{np.degrees(joint.value):+.2f} deg" if joint.turns else f"{1e3 * joint.value:+.1f} mm"
        warnings += when(
            not asked and abs(joint.value) > MISPLACED * joint.standard_deviation, "joint_zero_off",
            f"{joint.joint} zero offset: {off}", "home the robot, or use --with-joint-offsets",
        )  # fmt: skip
        further = f"{abs(100.0 * joint.scale):.2f} % {'further' if joint.scale > 0 else 'less'}"
        warnings += when(
            abs(joint.scale) > MISPLACED * joint.scale_deviation, "joint_scale_off",
            f"{joint.joint} moves {further} than it reports",
            "correct the scale in its driver; the extrinsics account for it",
        )  # fmt: skip
    for link in link_residuals:
        distance, angle = np.linalg.norm(link.motion[:3]), np.linalg.norm(link.motion[3:])
        sentence = f"{1e3 * distance:.1f} mm and {np.degrees(angle):.2f} deg off the model"
        misplaced = link.released or link.sigmas > MISPLACED
        warnings += when(misplaced, "link_misplaced", f"{link.link}, with the links on it, is {sentence}")
    for name, share in unexplained(residuals, links):
        sentence = f"{100 * share:.0f} % of the returns on {name} lie in front of it: a payload or an obstruction"
        warnings.append(Finding("payload", sentence, "they are ignored"))
    if alignment is not None:
        sigmas = float(alignment.off(tuple(poses.values())).max())
        sentence = f"the robot's own returns and the alignment of the lidars disagree by {sigmas:.1f} sigma"
        warnings += when(sigmas > ALIGNMENT_SIGMAS, "alignment_contradicted", sentence)
    return warnings


def near_ranges(name: str, errors: np.ndarray, covariance: np.ndarray) -> list[Finding]:
    """Return a finding of the largest of a lidar's errors (k,) in m at `NEAR_RANGES`, with their covariance (k, k), if
    it is significant and matters."""
    worst = np.argmax(np.abs(errors))
    error, significant = errors[worst], np.abs(errors[worst]) > MISPLACED * np.sqrt(covariance[worst, worst])
    return when(
        bool(significant and np.abs(error) > WORTH_RANGE), "near_ranges_off",
        f"the {name} lidar's ranges are {1e3 * abs(error):.0f} mm too {'long' if error > 0 else 'short'} at "
        f"{NEAR_RANGES[worst]:g} m, which the extrinsics account for, but no other use of near returns",
        "keep larger distances from what is so near, or ask the lidar's maker",
    )  # fmt: skip


def mount_refusals(
    counts: Mapping[str, int], observed: Mapping[str, list[Direction]], poses: Poses,
    nominal: Poses, tied: bool,
) -> list[Finding]:  # fmt: skip
    """Return why the extrinsics are rejected; of lidars that are `tied` one with returns from the robot is enough."""
    refusals = []
    enough = {lidar for lidar in observed if counts[lidar] >= MIN_POINTS}
    for lidar, directions in observed.items():
        if lidar not in enough and not (tied and enough):
            sentence = f"{lidar} lidar: only {counts[lidar]} returns from the robot, at least {MIN_POINTS} are needed"
            refusals.append(Finding("few_returns", sentence))
            continue
        for direction in directions:
            sentence = f"these poses do not determine {direction.name}: standard deviation {_deviation(direction)}"
            weak = direction.standard_deviation > REFUSED * direction.bound
            refusals += when(weak, "unobserved", f"{lidar} lidar: {sentence}")
        distance, angle = error(nominal[lidar], poses[lidar])
        refusals += when(
            distance > mounts.FARTHEST or angle > mounts.FARTHEST_ANGLE, "far_from_description",
            f"{lidar} lidar: estimated {1e3 * distance:.0f} mm and {np.degrees(angle):.1f} deg from its described "
            "pose, beyond the range of this method", "check for swapped lidars or another robot's description",
        )  # fmt: skip
    return refusals


def not_in_pose(behind: Mapping[str, float]) -> list[Finding]:
    """Return why the extrinsics are rejected if the robot was elsewhere than its joint states: by the share of returns
    behind the model, by sample."""
    elsewhere = sorted((name for name, share in behind.items() if share > MOST_BEHIND), key=lambda name: -behind[name])
    return when(
        bool(elsewhere), "robot_elsewhere",
        f"{', '.join(elsewhere)}: up to {100 * max(behind.values(), default=0.0):.0f} % of the rays that meet the "
        "model end behind it: the robot was in another pose than its joint states, or is another one than described",
        "record clouds and joint states by one clock while the robot stands still; check the description",
    )  # fmt: skip


def _deviation(direction: Direction) -> str:
    return direction.formatted(direction.standard_deviation, ".2f" if direction.unit == "deg" else ".1f")


def left_off(result: mounts.MountsResult, described: np.ndarray) -> list[Finding]:
    """Return a finding if the left lidar is off its described pose (4, 4), significantly and by enough to matter."""
    pose = result.base_from_lidar["left"]
    twist, (distance, angle) = log(pose @ inverse(described)), error(described, pose)
    beyond_chance = twist @ np.linalg.solve(result.covariance_of("left"), twist) > BEYOND_CHANCE
    position, orientation = result.total_deviations_of("left")
    return when(
        beyond_chance and (distance >= WORTH_DISTANCE or angle >= WORTH_ANGLE), "left_lidar_off",
        f"the left lidar is {1e3 * distance:.0f} mm and {np.rad2deg(angle):.1f} deg from its described pose "
        f"(standard deviation {1e3 * position:.0f} mm, {np.rad2deg(orientation):.1f} deg); in base_link, floor "
        "and body shape are off by as much", "run ros_calibrate_lidar_mounts",
    )  # fmt: skip


def unexplained(residuals: mounts.Residuals, links: Sequence[str]) -> list[tuple[str, float]]:
    """Return the links, with the share of their returns, that have many returns in front of them."""
    front = residuals.distances > FRONT
    counts = np.bincount(residuals.links, minlength=len(links))
    fronts = np.bincount(residuals.links[front], minlength=len(links))
    shares = fronts / np.maximum(counts, 1)
    return [(links[i], float(shares[i])) for i in np.argsort(-shares) if shares[i] > 0.15 and fronts[i] >= 50]
