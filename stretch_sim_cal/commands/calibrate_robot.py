"""`ros_calibrate_robot`: a robot's calibration in one command that asks before anything changes permanently."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from stretch_sim_cal import command
from stretch_sim_cal.calibration.body import FIT_METHODS
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.ros import node_commands as nodes
from stretch_sim_cal.ros.options import add_group

EXAMPLE = "ros_calibrate_robot"
STAGES = tuple(nodes.STAGE_NODES)
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
    drive = "also calibrate by DRIVING (ros_calibrate_by_driving), after the stages of the arm, if there is one"
    add("--drive", action="store_true", help=drive)
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--accept", action="store_true", help="accept the stages completed so far, and exit")
    end.add_argument("--discard", action="store_true", help="discard the calibration in progress, and exit")
    rollback = "restore the files from before the last accepted calibration"
    end.add_argument("--rollback", action="store_true", help=rollback)
    add("--yes", action="store_true", help="ask nothing: keep valid results, MOVE THE ARM, and accept the result")
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
    from stretch_sim_cal.harness import robot_calibration
    from stretch_sim_cal.harness.robot_session import Session, default_folder, last_accepted, locked

    say = partial(print, file=sys.stderr if args.json else sys.stdout, flush=True)
    folder = (args.work or default_folder()).expanduser().resolve()
    for end in filter(args.given.__contains__, AT_THE_END):
        others = sorted(args.given & vars(args).keys() - AT_THE_END[end] - {end, "command", "action"})
        command.only_with(args, others, f"a calibration to run, not with --{end}")
    with locked(folder):
        if args.rollback:
            restored = last_accepted(folder).roll_back()
            for path in restored:
                say(f"restored: {path}")
            if args.json:
                print(json.dumps({"restored": list(map(str, restored))}))
            return 0
        if args.accept or args.discard:
            if not folder.is_dir():
                raise InputError(f"{folder}: no calibration is in progress")
            session = Session.load(folder)
            if args.accept:
                return robot_calibration.accept(session, args, say)
            say(f"discarded; its files are in {session.close()}")
            if args.json:
                print(json.dumps({"discarded": str(session.folder)}))
            return 0
        if args.drive and args.only and "drive" not in args.only:
            raise InputError(f"--drive: --only {' '.join(args.only)} leaves it out; add drive to these")
        args.drive |= "drive" in (vars(args)["from"], *(args.only or ()))
        if not args.drive:
            command.only_with(args, ["drive_distance", "turn_step"], "--drive")
        if not (args.yes or sys.stdin.isatty()):
            moves = args.drive or not args.only or bool(set(args.only) - {"alignment", "floor"})
            happens = "the robot moves without asking" if moves else "nothing is asked"
            raise InputError(f"there is no terminal for questions: give --yes, and {happens}")
        if args.yes and args.places > 1:
            raise InputError("--places: the robot has to be turned by hand, which --yes cannot ask for")
        for name in ("alignment_samples", "floor_samples", "places"):
            if getattr(args, name) < 1:
                raise InputError(f"--{name.replace('_', '-')}: is {getattr(args, name)}, at least 1 is needed")
        return robot_calibration.conduct(Session.open(folder), args, say)
