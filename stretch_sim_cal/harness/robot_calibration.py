"""The stages of a robot's calibration, one after the other in a session: what may be kept, how a stage runs, and what
came of it against what was there before, as a table and as a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stretch_sim_cal.calibration.body.model import description_hash, load_body_shape_model, robot_identity
from stretch_sim_cal.calibration.calibration_file import TO_LEFT, CalibrationFile
from stretch_sim_cal.calibration.checks import Change, changes, check_lidars, largest_deviation, problems, sigmas_of
from stretch_sim_cal.calibration.drive_results import DIFFERS, agreements, stored_wheels, transform_to_left
from stretch_sim_cal.calibration.mounts.file import left_pose, stored_mounts
from stretch_sim_cal.calibration.summaries import wheels_lines, wheels_numbers
from stretch_sim_cal.calibration.surfaces import body_settings
from stretch_sim_cal.calibration.verification import HOLDS, Verification, verify
from stretch_sim_cal.command import warn
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import inverse, log
from stretch_sim_cal.harness.processes import Echo, Ended, ProcessSequence, Runner, calibration_nodes
from stretch_sim_cal.harness.robot_session import DONE, Session, unused
from stretch_sim_cal.harness.scenario import STAGES
from stretch_sim_cal.recording.dataset import CLOUD_POSE, cloud_name
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.ros.live_checks import LiveLook
from stretch_sim_cal.sensor.sensor import Sensors

OF_LIDARS = ("alignment", "floor", "mounts")  # the stages that the page has pictures of
OF_ARM = ("mounts", "body_shape")  # the stages in which the arm of a robot moves that has one
TITLES = {
    "alignment": "lidar to lidar", "floor": "floor", "mounts": "lidars on the robot", "body_shape": "body shape",
    "drive": "lidars to the wheels",
}  # fmt: skip
NONE, NOT_COMPARED = "there is none yet", "it could not be compared with fresh scans"


class Present(NamedTuple):
    """Whether the robot's result of a stage may be kept, and why or why not."""

    valid: bool
    sentence: str


def stages_of(profile: RobotProfile, drive: bool) -> tuple[str, ...]:
    """Return the stages of a robot's calibration in their order; a `drive` comes last or, without an arm, in place of
    the mounts."""
    if drive and not profile.planned:
        return ("alignment", "floor", "drive", "body_shape")
    return tuple(stage for stage in STAGES if drive or stage != "drive")


def presents(
    session: Session, look: LiveLook, sensor: Sensors, profile: RobotProfile, stages: Sequence[str]
) -> dict[str, Present]:
    """Return, by stage, whether the robot's results still hold, compared with fresh clouds; up to the first that does
    not, on which later ones depend."""
    file, found = session.old, {}
    verification: Verification | None = None
    wrong = problems(file) if file.data else []
    if file.right_to_left is not None:
        try:
            check_lidars(file, profile.further)
        except InputError as error:
            wrong.append(str(error))
        if not wrong and look.clouds and look.base_from_lidar:
            left, body = look.base_from_lidar["left"], body_settings(profile, look.description, warn)
            verification = verify(file, look.clouds, left, look.footprint_from_base, sensor=sensor, body=body)
    holds = {
        "alignment": lambda: _verified(verification, "lidars", file.right_to_left),
        "floor": lambda: _verified(verification, "floor", file.floor_plane),
        "mounts": lambda: _mounts_hold(file, look),
        "body_shape": lambda: _shape_holds(session, look, profile),
        "drive": lambda: _drive_holds(file),
    }
    for stage in stages:
        try:
            if wrong:
                raise InputError(wrong[0])
            found[stage] = Present(True, holds[stage]())
        except InputError as reason:
            return found | {stage: Present(False, str(reason))}
    return found


# Each returns why a result of the robot may be kept. Raises `InputError`, with the reason, if it may not.


def _verified(verification: Verification | None, what: str, known: Any) -> str:
    if known is None:
        raise InputError(NONE)
    drifts = [] if verification is None else [each for each in verification.drifts if each.name.startswith(what)]
    asked = [] if verification is None else [each for each in verification.open_questions if each.startswith(what)]
    said = "; ".join([*(drift.sentence() for drift in drifts), *asked]) or NOT_COMPARED
    if not drifts or any(drift.verdict != HOLDS for drift in drifts):
        raise InputError(said)
    return said


def _mounts_hold(file: CalibrationFile, look: LiveLook) -> str:
    if stored_mounts(file) is None:
        raise InputError("there are none yet")
    left_pose(file, look.base_from_lidar["left"])
    return "fits the robot's description"


def _shape_holds(session: Session, look: LiveLook, profile: RobotProfile) -> str:
    if not (path := session.target("body shape").place).is_file():
        raise InputError(NONE)
    here = description_hash(parse_urdf(look.description or "", "/robot_description"), profile=profile)
    if other := load_body_shape_model(path).mismatches(robot_identity()["tool_id"], here):
        raise InputError(other[0])
    return "was fitted for this robot and tool"


def _drive_holds(file: CalibrationFile) -> str:
    wheels = stored_wheels(file)
    if wheels is None:
        raise InputError("there is no drive yet")
    for name, now in file.to_left.items():
        if name not in wheels.footprint_from_lidar:
            raise InputError(f"lacks the {name} lidar")
        pose, covariance = transform_to_left(wheels.footprint_from_lidar, wheels.covariance, name)
        known = file.entries[f"{name}{TO_LEFT}"].covariance
        if known is not None and (sigmas := sigmas_of(log(now @ inverse(pose)), [known, covariance])) > DIFFERS:
            moved = f"the {name} lidar has moved relative to the left one since the drive ({sigmas:.1f} sigma)"
            raise InputError(moved)
    return "fits the present lidar poses"


def keep_clouds(session: Session, look: LiveLook) -> None:
    arrays = {}
    for name, pose in look.base_from_lidar.items():
        arrays[cloud_name(name)] = np.concatenate([clouds[name] for clouds in look.clouds])
        arrays[CLOUD_POSE + name] = pose
    write_atomic(session.files.clouds, lambda stream: np.savez_compressed(stream, **arrays))


def run_stage(
    session: Session, stage: str, options: dict[str, Any], sensor: str, robot: str | None, use_sim_time: bool,
    echo: Echo, final: bool = True,
) -> Ended | None:  # fmt: skip
    """Run a stage's nodes, and note its end in the session if this is the `final` run; return how it failed, None if it
    did not.

    Raises `RunFailure` for a node that cannot be started or takes too long. If this process ends, so do the nodes, and
    the arm stops."""
    files = session.files
    if stage == "drive" and files.drive.exists():  # an interrupted drive: it cannot be continued
        files.drive.rename(unused(files.drive))
    sequence = ProcessSequence(calibration_nodes({stage: options}, files, use_sim_time, sensor, robot))
    with Runner(files.environment, files.logs / stage, echo, stop_orphans=True) as runner:
        runner.run(sequence)
    if sequence.failure is None and final:
        proposals = (end.outcome.get("proposal", "") for end in sequence.ends.values())
        session.ended(stage, DONE, " ".join(filter(None, proposals)))
    return sequence.failure


def table(session: Session) -> list[list[str]]:
    """Return the rows of old against new, the head first."""
    old, new = session.old, session.new
    found, alone = ({change.what: change for change in changes(each, new)} for each in (old, new))
    further = [*new.further_to_left]
    rows_of = ["lidar to lidar", *(f"left to {name} lidar" for name in further), "floor"]
    rows_of += [f"{name} lidar on the robot" for name in ("left", "right", *further)]
    rows = [_row(what, found.get(what), alone[what].after) for what in rows_of if what in found or what in alone]
    return [["", "change", "standard deviation before", "after", "change in sigma"], *rows, *_wheels_rows(old, new),
            *_body_row(session)]  # fmt: skip


def _wheels_rows(old: CalibrationFile, new: CalibrationFile) -> list[list[str]]:
    def deviations(covariance: np.ndarray) -> tuple[float, float]:
        return largest_deviation(covariance[:2, :2]), float(np.sqrt(covariance[2, 2]))

    before, now, rows = stored_wheels(old), stored_wheels(new), []
    for name in now.footprint_from_lidar if now is not None else ():
        what, change = f"{name} lidar to the wheels", None
        values, covariance = now.planar(name)
        if before is not None and name in before.footprint_from_lidar:
            former, of_former = before.planar(name)
            x, y, turn = values - former
            turn = np.remainder(turn + np.pi, 2.0 * np.pi) - np.pi
            sigmas = sigmas_of(np.array([x, y, turn]), [of_former, covariance])
            known = deviations(of_former), deviations(covariance)
            change = Change(what, float(np.hypot(x, y)), float(abs(turn)), *known, sigmas)
        rows.append(_row(what, change, deviations(covariance)))
    return rows


def of_drive(session: Session) -> list[str]:
    """Return lines on the drive's lidar poses and odometry, and their agreement with the arm's calibration."""
    wheels = stored_wheels(session.new)
    if wheels is None:
        return []
    both = agreements(session.new)
    findings = [str(said) for each in both for said in each.findings()]
    return wheels_lines(wheels, wheels_numbers(wheels))[1:] + [each.sentence() for each in both] + findings


def _row(what: str, change: Change | None, after: tuple[float, float] | None) -> list[str]:
    if change is None:
        return [what, "new", "", _deviations(after), ""]
    sigmas = "" if change.sigmas is None else f"{change.sigmas:.1f}"
    return [what, *map(_deviations, ((change.distance, change.angle), change.before, change.after)), sigmas]


def _deviations(known: tuple[float, float] | None) -> str:
    return "unknown" if known is None else f"{1e3 * known[0]:.2f} mm, {np.degrees(known[1]):.3f} deg"


def _body_row(session: Session) -> list[list[str]]:
    def area(path: Path) -> float:
        return float(np.mean([shape.area for row in load_body_shape_model(path).shapes for shape in row]))

    if not session.files.body_shape_model.is_file():
        return []
    after, place = area(session.files.body_shape_model), session.target("body shape").place
    change = f"new: {after:.3f} m2"
    if place.is_file():
        change = f"{area(place):.3f} to {after:.3f} m2 ({100 * (after / area(place) - 1):+.1f} %)"
    return [["body shape", change, "", "", ""]]


def advice(session: Session) -> list[str]:
    """Return what would make the result surer, a line each, with what it would gain."""
    said = {stage: state["said"] for stage, state in session.stages.items() if state.get("said")}
    how = {"alignment": "; use --from alignment --places 2"}
    return [f"{TITLES[stage]}: {gain}{how.get(stage, '')}" for stage, gain in said.items()]


def write_page_of(session: Session, profile: RobotProfile, recording: Path | None = None) -> Path:
    """Write the session's page, with a link to its `recording` in 3D if there is one, and return its path."""
    from stretch_sim_cal.harness import report  # matplotlib takes half a second
    from stretch_sim_cal.harness.pages import write_page

    wheels, both = stored_wheels(session.new), agreements(session.new)
    of_wheels = wheels_numbers(wheels) if wheels is not None else {"lidars": {}}
    return write_page(
        session.folder / "report.html", f"Calibration of {session.robot_id}",
        report.sections(session.files, OF_LIDARS, profile, session.old), "robot", session=session,
        titles=TITLES, rows=table(session), advice=advice(session), wheels=of_wheels["lidars"],
        odometry="" if wheels is None else wheels_lines(wheels, of_wheels)[-1].strip(),
        by_arm=[(each, _differences(each)) for each in both],
        findings=[str(finding) for each in both for finding in each.findings()],
        recording=recording and Path(recording).resolve(),
    )  # fmt: skip


def _differences(each: Any) -> list[str]:
    scales = np.repeat([1e3, np.degrees(1.0)], 3)
    off, deviations = scales * each.difference, scales * np.sqrt(np.diag(each.covariance))
    return [f"{value:+.3g} +- {deviation:.2g}" for value, deviation in zip(off, deviations, strict=True)]
