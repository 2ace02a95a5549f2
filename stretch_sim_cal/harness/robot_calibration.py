"""The calibration of a robot in one command, a stage after the other in a session: what may be kept, how a stage runs,
and what came of it against what was there before, as a table and as a page."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.body.model import description_hash, load_body_shape_model, robot_identity
from stretch_sim_cal.calibration.body.settings import own_model_path
from stretch_sim_cal.calibration.calibration_file import TO_LEFT, CalibrationFile, alignment_called
from stretch_sim_cal.calibration.checks import Change, changes, check_lidars, problems, sigmas_of
from stretch_sim_cal.calibration.drive_results import DIFFERS, Agreement, agreements, stored_wheels, transform_to_left
from stretch_sim_cal.calibration.finding import OF_ALL_PLACES
from stretch_sim_cal.calibration.mounts.file import left_pose, stored_mounts
from stretch_sim_cal.calibration.observations import num_places, places_beside
from stretch_sim_cal.calibration.summaries import wheels_lines, wheels_numbers
from stretch_sim_cal.calibration.verification import HOLDS, Verification, verify
from stretch_sim_cal.command import agreed, table_lines, warn
from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import inverse, log
from stretch_sim_cal.harness.clouds_3d import RunView
from stretch_sim_cal.harness.pages import write_page
from stretch_sim_cal.harness.processes import Echo, Ended, ProcessSequence, Progress, Runner, calibration_nodes
from stretch_sim_cal.harness.robot_session import DONE, KEPT, Session, unused
from stretch_sim_cal.harness.scenario import STAGES
from stretch_sim_cal.recording.dataset import CLOUD_POSE, cloud_name
from stretch_sim_cal.robot.profile import RobotProfile, profile_called
from stretch_sim_cal.robot.surfaces import body_settings
from stretch_sim_cal.ros.live import LiveLook, live_look
from stretch_sim_cal.ros.node_commands import DRIVE
from stretch_sim_cal.sensor.sensor import Sensors, sensors_called
from stretch_sim_cal.view import opened

OF_LIDARS = ("alignment", "floor", "mounts")  # the stages that the page has pictures of
OF_ARM = ("mounts", "body_shape")  # the stages in which the arm of a robot moves that has one
TITLES = {
    "alignment": "lidar to lidar", "floor": "floor", "mounts": "lidars on the robot", "body_shape": "body shape",
    "drive": "lidars to the wheels",
}  # fmt: skip
TRY_AGAIN = "completed stages are kept: run ros_calibrate_robot again to continue"
NONE, NOT_COMPARED = "there is none yet", "it could not be compared with fresh scans"
ONE_LIDAR = "there is one lidar, and nothing to align"


def stages_of(profile: RobotProfile, drive: bool) -> tuple[str, ...]:
    """Return the stages in their order; a `drive` comes last or, without an arm, in place of the mounts."""
    if drive and not profile.planned:
        return ("alignment", "floor", "drive", "body_shape")
    return tuple(stage for stage in STAGES if drive or stage != "drive")


def presents(
    session: Session, look: LiveLook, sensor: Sensors, profile: RobotProfile, stages: Sequence[str]
) -> Iterator[tuple[str, bool, str]]:
    """Yield stage by stage whether the robot's result still holds, compared with fresh clouds, and why or why not; up
    to the first that does not, on which later ones depend."""
    file = session.old
    verification = Verification()
    wrong = problems(file) if file.data else []
    if file.aligned:
        try:
            check_lidars(file, profile.lidars)
        except InputError as error:
            wrong.append(str(error))
        if not wrong and look.clouds and look.base_from_lidar:
            left, body = look.base_from_lidar["left"], body_settings(profile, look.description, warn)
            verification = verify(file, look.clouds, left, look.footprint_from_base, sensor=sensor, body=body)
    holds = {
        "alignment": lambda: (
            ONE_LIDAR if file.aligned and not file.to_left else _verified(verification, "lidars", file.right_to_left)
        ),
        "floor": lambda: _verified(verification, "floor", file.floor_plane),
        "mounts": lambda: _mounts_hold(file, look),
        "body_shape": lambda: _shape_holds(look, profile),
        "drive": lambda: _drive_holds(file),
    }
    for stage in stages:
        try:
            if wrong:
                raise InputError(wrong[0])
            why = holds[stage]()
        except InputError as reason:
            yield stage, False, str(reason)
            return
        yield stage, True, why


# Each returns why a result of the robot may be kept. Raises `InputError`, with the reason, if it may not.


def _verified(verification: Verification, what: str, known: Any) -> str:
    if known is None:
        raise InputError(NONE)
    drifts = [each for each in verification.drifts if each.name.startswith(what)]
    asked = [each for each in verification.open_questions if each.startswith(what)]
    said = "; ".join([*(drift.sentence() for drift in drifts), *asked]) or NOT_COMPARED
    if not drifts or any(drift.verdict != HOLDS for drift in drifts):
        raise InputError(said)
    return said


def _mounts_hold(file: CalibrationFile, look: LiveLook) -> str:
    if stored_mounts(file) is None:
        raise InputError("there are none yet")
    left_pose(file, look.base_from_lidar["left"])
    return "fits the robot's description"


def _shape_holds(look: LiveLook, profile: RobotProfile) -> str:
    if not (path := own_model_path()).is_file():
        raise InputError(NONE)
    here = description_hash(profile.model_of(look.description or ""), profile=profile)
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
    did not. If this process ends, so do the nodes, and the arm stops."""
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
    rows_of = [*map(alignment_called, new.to_left), "floor"]
    rows_of += [f"{name} lidar {what}" for what in ("on the robot", "to the wheels") for name in ("left", *new.to_left)]
    rows = [_row(what, found.get(what), alone[what].after) for what in rows_of if what in found or what in alone]
    return [["", "change", "standard deviation before", "after", "change in sigma"], *rows, *_body_row(session)]


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
    after, place = area(session.files.body_shape_model), own_model_path()
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

    def differences(each: Agreement) -> list[str]:
        scales = np.repeat([1e3, np.degrees(1.0)], 3)
        off, deviations = scales * each.difference, scales * np.sqrt(np.diag(each.covariance))
        return [f"{value:+.3g} +- {deviation:.2g}" for value, deviation in zip(off, deviations, strict=True)]

    wheels, both = stored_wheels(session.new), agreements(session.new)
    of_wheels = wheels_numbers(wheels) if wheels is not None else {"lidars": {}}
    return write_page(
        session.folder / "report.html", f"Calibration of {session.robot_id}",
        report.sections(session.files, OF_LIDARS, profile, session.old), "robot", session=session,
        titles=TITLES, rows=table(session), advice=advice(session), wheels=of_wheels["lidars"],
        odometry="" if wheels is None else wheels_lines(wheels, of_wheels)[-1].strip(),
        by_arm=[(each, differences(each)) for each in both],
        findings=[str(finding) for each in both for finding in each.findings()],
        recording=recording and Path(recording).resolve(),
    )  # fmt: skip


def conduct(session: Session, args: argparse.Namespace, say: Callable) -> int:
    """Lead through the calibration of `ros_calibrate_robot` to its end, and return the exit code."""
    profile = profile_called(args.robot)
    sensor = args.sensor or profile.sensor
    view = opened(args)
    if args.drive:
        _ = profile.driven_base  # a profile without a base fails before anything is done
    order = stages_of(profile, args.drive)
    if session.continued:
        done = ", ".join(TITLES[stage] for stage in session.stages) or "nothing yet"
        say(f"continuing the calibration begun {session.begun}; done: {done} (--discard starts over)")
    to_do = [stage for stage in args.only or order if stage not in session.stages]
    moving = bool(profile.planned) and not set(OF_ARM).isdisjoint(to_do)
    look = live_look(sensor, args.robot, args.use_sim_time, moving)
    for check in look.checks:
        say(check.line())
    if look.missed:
        names = ", ".join(dict.fromkeys(check.name for check in look.missed))
        error = RunFailure if any(check.verdict == "silent" for check in look.missed) else Refused
        raise error(f"the robot is not ready ({names}): see the remedies above; {TRY_AGAIN}")
    if not session.files.clouds.is_file():
        keep_clouds(session, look)
    echo = Progress(session.files, args.verbose, sys.stderr if args.json else sys.stdout)
    if view is not None:
        shown = RunView(view, session.files, args.robot)
        shown.update()
        echo = shown.after(echo)
    for stage in _stages(session, look, args, order, profile, say):
        if stage == "drive" or (stage in OF_ARM and profile.planned):
            _ask_for_motion(stage, args.yes, profile)
        say(f"{TITLES[stage]}:")

        def run(stage=stage, final=True, **options):
            options = _options(stage, args) | options
            return run_stage(session, stage, options, sensor, args.robot, args.use_sim_time, echo, final)

        failure = _from_places(session, args, run) if stage == "alignment" else run()
        if failure is not None:
            error = {1: Refused, 2: InputError}.get(failure.exit_code, RunFailure)
            remedy = f"{TRY_AGAIN}, or --accept the completed stages, or --discard"
            raise error(f"{TITLES[stage]}: {failure.reason}; {remedy} (all output: {session.files.logs / stage})")
    code = accept(session, args, say, ask=not args.yes)
    if view is not None:
        view.close()
    return code


def _stages(
    session: Session, look: LiveLook, args: argparse.Namespace, order: Sequence[str], profile: RobotProfile,
    say: Callable,
) -> list[str]:  # fmt: skip
    """Return the stages, of those in their `order`, to run now; those that are kept are noted in the session."""
    begin = vars(args)["from"]
    for option, stage in [("from", begin), *(("only", each) for each in args.only or ())]:
        if stage and stage not in order:
            raise InputError(f"--{option} {stage}: {profile.name} has no such stage; it has {', '.join(order)}")
    before = order[: order.index(begin)] if begin else order
    asked = args.only or (order[len(before) :] if begin else ())
    if asked and session.stages.keys() >= set(asked):
        raise InputError(f"{', '.join(asked)}: done in the calibration in progress; first --accept or --discard it")
    if args.only:
        return [stage for stage in order if stage in args.only and stage not in session.stages]
    if before and not session.stages:
        sensors = sensors_called(args.sensor or profile.sensor)
        for stage, valid, sentence in presents(session, look, sensors, profile, before):
            say(f"{TITLES[stage]}: {'still valid' if valid else 'to be calibrated'}: {sentence}")
            if not (valid and (args.yes or agreed(f"Keep {TITLES[stage]}?"))):
                break
            session.ended(stage, KEPT)
    return [stage for stage in order if stage not in session.stages]


def _from_places(session: Session, args: argparse.Namespace, run: Callable):
    """Align the lidars from as many standing places as are asked for, and more while a direction is unobservable; `run`
    does one. Return how the last one failed, None if it did not. The places are kept, so that it can be continued."""
    failure, first = None, True
    while True:
        seen = num_places(session.files.calibration)
        question = (
            f"Lidar to lidar was recorded from {seen} standing place{'s' * (seen > 1)}. Turn the robot by 40 to 90 deg "
            "where it stands, arm stowed, and step back: yes adds this place, no "
            f"{'starts over' if first else 'continues without'}. Has it been turned?"
        )  # before anything was run, the places seen are of an earlier run
        further = seen > 0 and not args.yes and agreed(question)
        if not (further or first):
            break
        first, final = False, (seen if further else 0) + 1 >= args.places
        failure = run(another_place=further, final=final)
        codes = set() if failure is None else {refusal["code"] for refusal in failure.refusals}
        if failure is not None and not (codes and codes <= set(OF_ALL_PLACES)):
            return failure  # more than another standing place is missing
        if failure is None and final:
            break
    if failure is None:
        if "alignment" not in session.stages:
            session.ended("alignment", DONE)
        places_beside(session.files.calibration).unlink(missing_ok=True)
    return failure


def _options(stage: str, args: argparse.Namespace) -> dict:
    arm = {"speed_factor": args.speed_factor, "frames": args.frames, "watch_room": True}
    drive = {"turn_step": args.turn_step, "distance": args.drive_distance, "scans": args.frames}
    for option in (DRIVE.option("speed"), DRIVE.option("turn_speed")):
        drive[option.name] = min(option.default * args.speed_factor, option.maximum)
    return {
        "alignment": {"num_samples": args.alignment_samples, "method": None},
        "floor": {"num_samples": args.floor_samples, "method": None},
        "mounts": {"plan": args.mounts_plan, **arm},
        "body_shape": {"plan": args.plan, "fit_method": args.fit_method, **arm},
        "drive": drive,
    }[stage]


def _ask_for_motion(stage: str, yes: bool, profile: RobotProfile) -> None:
    question = (
        "THE ARM IS GOING TO MOVE, slowly, through several poses. Keep 1.5 m free in front of it, stay out of its "
        "reach, and keep a hand at the run-stop (the button on the head). Ctrl-C stops it as well."
    )
    if stage == "drive":
        mode = f", the driver in mode {' or '.join(modes)}" if (modes := profile.driven_base.modes) else ""
        stowed = "Stow the arm, clear" if profile.planned else "Clear"
        question = (
            "THE ROBOT IS GOING TO DRIVE, slowly: turns on the spot and straight paths where its lidars see free "
            f"space. {stowed} the floor for 2 m around it{mode}, and keep a hand at the run-stop. Ctrl-C stops it as "
            "well."
        )
    if not yes and not agreed(f"{TITLES[stage]}: {question} Go on?"):
        raise Refused(f"nothing was moved; {TRY_AGAIN}, or --accept the completed stages")


def accept(session: Session, args: argparse.Namespace, say: Callable, ask: bool = False) -> int:
    """Show old against new, and put the new into place if the user, asked for it, agrees."""
    rows = table(session)
    page = write_page_of(session, profile_called(args.robot), args.view_file)
    of_wheels = of_drive(session)
    for line in table_lines(rows) + of_wheels + advice(session):
        say(line)
    outcome = {"stages": session.stages, "table": rows, "accepted": False, "files": []}
    if of_wheels:
        outcome["drive"] = of_wheels
    if ask and not agreed("Accept the new calibration?"):
        where = f"{session.folder} (report: {page})"
        say(f"the robot's files are unchanged; the result is in {where}: --accept or --discard")
    else:
        files = session.accept()
        page = session.folder / page.name
        outcome |= {"accepted": True, "files": [str(path) for path in files]}
        say("\n".join(f"in use: {path}" for path in files) or "nothing has changed")
        say(f"report: {page}; --rollback restores the previous calibration")
        next_steps = "restart the robot's driver, so that its description takes the new lidar joints; then run"
        say(f"next: {next_steps} ros_broadcast_calibration, and ros_watch_calibration during the robot's work")
    if args.json:
        print(json.dumps(outcome | {"page": str(page)}))
    return 0
