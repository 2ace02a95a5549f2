"""`ros_calibrate_robot`: the whole calibration of a robot in one command that leads, stops, continues, and asks before
anything changes permanently."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stretch_sim_cal import command
from stretch_sim_cal.calibration.body import FIT_METHODS
from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.ros import node_commands as nodes
from stretch_sim_cal.ros.options import add_group

EXAMPLE = "ros_calibrate_robot"
STAGES = ("alignment", "floor", "mounts", "body_shape", "drive")
PASSED_ON = {
    "alignment_samples": (nodes.ALIGN.option("num_samples"), ", for lidar to lidar"),
    "floor_samples": (nodes.FLOOR.option("num_samples"), ", for the floor"),
    "mounts_plan": (nodes.MOUNTS.option("plan"), ""),
    "plan": (nodes.COLLECT.option("plan"), ", for the body shape"),
    "frames": (nodes.COLLECT.option("frames"), ""),
    "speed_factor": (nodes.COLLECT.option("speed_factor"), ""),
    "drive_distance": (nodes.DRIVE.option("distance"), "; with --drive"),
    "turn_step": (nodes.DRIVE.option("turn_step"), "; with --drive"),
}
"""The options of the stages' nodes that this command has, by their names here, and which stage they are for."""
AT_THE_END = {
    "rollback": {"work", "json"}, "discard": {"work", "json"}, "accept": {"work", "json", "robot", "view_file"}
}  # fmt: skip
"""What each option that ends a calibration is given with; nothing else applies."""
TRY_AGAIN = "completed stages are kept: run ros_calibrate_robot again to continue"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.Parser(
        prog="ros_calibrate_robot",
        description=(
            "Calibrate this robot from beginning to end: lidar to lidar, floor, lidars on the robot, body shape.\n"
            "THE ROBOT MOVES ITS ARM in the last two, after asking. With --drive IT DRIVES as well, and each\n"
            "lidar's x, y and yaw relative to the wheels are estimated. The robot's own files do not change before\n"
            "the result is accepted. After Ctrl-C or any other interruption the same command continues."
        ),
        epilog=f"example: {EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parsed = parser.parse_args(arguments)
    return command.run(lambda: run(parsed))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--from", choices=STAGES, help="run this stage and all later ones, even if results are valid")
    which.add_argument("--only", nargs="+", choices=STAGES, metavar="STAGE",
        help=f"run only these of {', '.join(STAGES)}")  # fmt: skip
    add(
        "--drive", action="store_true",
        help="also calibrate by DRIVING (ros_calibrate_by_driving), after the stages of the arm, if there is one",
    )  # fmt: skip
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--accept", action="store_true", help="accept the stages completed so far, and exit")
    end.add_argument("--discard", action="store_true", help="discard the calibration in progress, and exit")
    end.add_argument(
        "--rollback", action="store_true", help="restore the files from before the last accepted calibration"
    )
    add("--yes", action="store_true",
        help="ask nothing: keep valid results, MOVE THE ARM, and accept the result")  # fmt: skip
    work = "folder of the calibration in progress (default: beside the robot's own)"
    add("--work", type=Path, metavar="DIR", help=work)
    add("--robot", metavar="NAME", help=nodes.ROBOT_OPTION.help)
    add("--sensor", metavar="NAME", help=f"{nodes.SENSOR_OPTION.help} (default: the profile's)")
    add("--places", type=int, default=1, metavar="N",
        help="standing places of the alignment; you are asked to turn the robot in between (default: 1, and "
        "one more if a direction is unobservable)")  # fmt: skip
    for name, (option, stage) in PASSED_ON.items():
        replace(option, name=name, help=f"{option.help}{stage}").add_to(parser)
    add("--fit-method", choices=FIT_METHODS, default=FIT_METHODS[0], help="kind of body shape")
    add("--use-sim-time", action="store_true", help="use the time of /clock (simulation)")
    add("--verbose", action="store_true", help="show all output of every node")
    add("--json", action="store_true", help="print the outcome as JSON on standard output")
    add_group(parser, nodes.IN_3D, nodes.VIEW_OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Lead through the calibration; the exit code is 0 when it was accepted, or left for later on request."""
    from stretch_sim_cal.harness.robot_session import Session, default_folder, last_accepted, locked

    say = partial(print, file=sys.stderr if args.json else sys.stdout, flush=True)
    folder = (args.work or default_folder()).expanduser().resolve()
    for end in filter(args.given.__contains__, AT_THE_END):
        others = sorted(args.given & vars(args).keys() - AT_THE_END[end] - {end, "command", "action"})
        command.only_with(args, others, f"a calibration to run, not with --{end},")
    with locked(folder):
        if args.rollback:
            for path in last_accepted(folder).roll_back():
                say(f"restored: {path}")
            return 0
        if args.accept or args.discard:
            if not folder.is_dir():
                raise InputError(f"{folder}: no calibration is in progress")
            session = Session.load(folder)
            if args.accept:
                return _accept(session, args, say)
            say(f"discarded; its files are in {session.close()}")
            return 0
        if args.drive and args.only and "drive" not in args.only:
            raise InputError(f"--drive: --only {' '.join(args.only)} leaves it out; add drive to these")
        args.drive |= "drive" in (vars(args)["from"], *(args.only or ()))
        if not args.drive:
            command.only_with(args, ["drive_distance", "turn_step"], "--drive")
        if not (args.yes or sys.stdin.isatty()):
            raise InputError("there is no terminal for questions: give --yes, and the robot moves without asking")
        if args.yes and args.places > 1:
            raise InputError("--places: the robot has to be turned by hand, which --yes cannot ask for")
        for name in ("alignment_samples", "floor_samples", "places"):
            if getattr(args, name) < 1:
                raise InputError(f"--{name.replace('_', '-')}: is {getattr(args, name)}, at least 1 is needed")
        return _conduct(Session.open(folder), args, say)


def _conduct(session, args: argparse.Namespace, say: Callable) -> int:
    from stretch_sim_cal.commands.run import Progress
    from stretch_sim_cal.harness.robot_calibration import OF_ARM, TITLES, keep_clouds, run_stage, stages_of
    from stretch_sim_cal.robot.profile import profile_called
    from stretch_sim_cal.ros.live_checks import live_look
    from stretch_sim_cal.view import opened

    profile = profile_called(args.robot)
    sensor = args.sensor or profile.sensor
    view = opened(args)
    if args.drive:
        _ = profile.driven_base  # a profile without a base fails before anything is done
    order = stages_of(profile, args.drive)
    wanted = args.only or order
    if session.continued:
        done = ", ".join(TITLES[stage] for stage in session.stages) or "nothing yet"
        say(f"continuing the calibration begun {session.begun}; done: {done} (--discard starts over)")
    moving = bool(profile.planned) and any(stage in OF_ARM for stage in wanted if stage not in session.stages)
    look = live_look(sensor, args.robot, args.use_sim_time, moving)
    for check in look.checks:
        say(check.line())
    if look.missed:
        names = ", ".join(check.name for check in look.missed)
        error = RunFailure if any(check.verdict == "silent" for check in look.missed) else Refused
        raise error(f"the robot is not ready ({names}): see the remedies above; {TRY_AGAIN}")
    if not session.files.clouds.is_file():
        keep_clouds(session, look)
    echo = Progress(session.files, args.verbose, sys.stderr if args.json else sys.stdout)
    if view is not None:
        from stretch_sim_cal.harness.clouds_3d import RunView

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
            raise error(
                f"{TITLES[stage]}: {failure.reason}; {TRY_AGAIN}, or --accept the completed stages, or --discard "
                f"(all output: {session.files.logs / stage})"
            )
    code = _accept(session, args, say, ask=not args.yes)
    if view is not None:
        view.close()
    return code


def _stages(session, look, args: argparse.Namespace, order: Sequence[str], profile: Any, say: Callable) -> list[str]:
    """Return the stages, of those in their `order`, to run now; those that are kept are noted in the session."""
    from stretch_sim_cal.harness.robot_calibration import TITLES, presents
    from stretch_sim_cal.harness.robot_session import KEPT
    from stretch_sim_cal.sensor.sensor import sensors_called

    if args.only:
        return [stage for stage in STAGES if stage in args.only and stage not in session.stages]
    begin = vars(args)["from"]
    if begin and begin not in order:
        raise InputError(f"--from {begin}: {profile.name} has no such stage; it has {', '.join(order)}")
    before = order[: order.index(begin)] if begin else order
    if before and not session.stages:
        found = presents(session, look, sensors_called(args.sensor or profile.sensor), profile, order)
        for stage in before:
            if not found[stage].valid:
                say(f"{TITLES[stage]}: to be calibrated: {found[stage].sentence}")
                break
            say(f"{TITLES[stage]}: still valid: {found[stage].sentence}")
            if not (args.yes or _yes(f"Keep {TITLES[stage]}?")):
                break
            session.ended(stage, KEPT)
    return [stage for stage in order if stage not in session.stages]


def _from_places(session, args: argparse.Namespace, run: Callable):
    """Align the lidars from as many standing places as are asked for, and more while a direction is unobservable; `run`
    does one. Return how the last one failed, None if it did not. The places are kept, so that it can be continued."""
    from stretch_sim_cal.calibration.finding import OF_ALL_PLACES
    from stretch_sim_cal.calibration.observations import num_places, places_beside
    from stretch_sim_cal.harness.robot_session import DONE

    failure, first = None, True
    while True:
        seen = num_places(session.files.calibration)
        further = seen > 0 and not args.yes and _is_turned(seen, first)
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


def _is_turned(seen: int, first: bool) -> bool:
    """Ask for the robot to be turned; `first`: before anything was run, so the places seen are of an earlier run."""
    return _yes(
        f"Lidar to lidar was recorded from {seen} standing place{'s' * (seen > 1)}. Turn the robot by 40 to 90 deg "
        "where it stands, arm stowed, and step back: yes adds this place, no "
        f"{'starts over' if first else 'continues without'}. Has it been turned?"
    )


def _options(stage: str, args: argparse.Namespace) -> dict:
    arm = {"speed_factor": args.speed_factor, "frames": args.frames, "watch_room": True}
    drive = {"turn_step": args.turn_step, "distance": args.drive_distance, "scans": args.frames}
    for option in (nodes.DRIVE.option("speed"), nodes.DRIVE.option("turn_speed")):
        drive[option.name] = min(option.default * args.speed_factor, option.maximum)
    return {
        "alignment": {"num_samples": args.alignment_samples, "method": None},
        "floor": {"num_samples": args.floor_samples, "method": None},
        "mounts": {"plan": args.mounts_plan, **arm},
        "body_shape": {"plan": args.plan, "fit_method": args.fit_method, **arm},
        "drive": drive,
    }[stage]


def _ask_for_motion(stage: str, yes: bool, profile: Any) -> None:
    from stretch_sim_cal.harness.robot_calibration import TITLES

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
    if not yes and not _yes(f"{TITLES[stage]}: {question} Go on?"):
        raise Refused(f"nothing was moved; {TRY_AGAIN}, or --accept the completed stages")


def _yes(question: str) -> bool:
    while True:
        answer = input(f"{question} [yes/no] ").strip().lower()
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")


def _accept(session, args: argparse.Namespace, say: Callable, ask: bool = False) -> int:
    """Show old against new, and put the new into place if the user, asked for it, agrees."""
    from stretch_sim_cal.harness.robot_calibration import advice, of_drive, table, write_page_of
    from stretch_sim_cal.robot.profile import profile_called

    rows = table(session)
    page = write_page_of(session, profile_called(args.robot), args.view_file)
    of_wheels = of_drive(session)
    for line in command.table_lines(rows) + of_wheels + advice(session):
        say(line)
    outcome = {"stages": session.stages, "table": rows, "accepted": False, "files": []}
    if of_wheels:
        outcome["drive"] = of_wheels
    if ask and not _yes("Accept the new calibration?"):
        where = f"{session.folder} (report: {page})"
        say(f"the robot's files are unchanged; the result is in {where}: --accept or --discard")
    else:
        files = session.accept()
        page = session.folder / page.name
        outcome |= {"accepted": True, "files": [str(path) for path in files]}
        say("\n".join(f"in use: {path}" for path in files) or "nothing has changed")
        say(f"report: {page}; --rollback restores the previous calibration")
        say(
            "next: restart the robot's driver, so that its description takes the new lidar joints; then run "
            "ros_broadcast_calibration, and ros_watch_calibration during the robot's work"
        )
    if args.json:
        print(json.dumps(outcome | {"page": str(page)}))
    return 0
