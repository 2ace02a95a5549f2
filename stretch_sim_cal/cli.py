"""`stretch-sim-cal`: one command with sub-commands. Parses, calls, and turns errors into exit codes."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from stretch_sim_cal import __version__, command

COMMANDS = {
    "demo": "Simulate a Stretch 4 in a furnished room, calibrate it with the real nodes, and compare with the truth.",
    "run": "Run scenarios: simulate, calibrate with the real nodes, and compare the results with the truth.",
    "campaign": "Calibrate many simulated robots, rooms and lidars, and state the share of successes.",
    "compare": "Compare the results of two revisions' runs, quantity by quantity, for pull requests.",
    "sim": "Simulate the Stretch's drivers (lidars, joints, frames, motion, time) until Ctrl-C.",
    "calibrate": "Calibrate alignment and floor from a rosbag2 recording (a folder, or an .mcap file); no ROS needed.",
    "sensor": "Identify the lidars (noise, driver, intrinsics) from recordings of the robot standing in a room.",
    "verify": "Check whether the stored calibration is still valid, on a recording or, without one, on the live robot.",
    "history": "Print and plot the history of the drift monitor (ros_watch_calibration) over weeks and months.",
    "check": "Print the content, age and uncertainty of a calibration file and check its consistency; or compare two.",
    "export": "Export a calibration: joints for a URDF or xacro, static transforms, or the robot's own values file.",
    "fk": "Print the pose of a frame of a robot at given joint positions (forward kinematics).",
    "mobility": "Count the degrees of freedom of a robot or mechanism (Gruebler/Kutzbach), closed loops included.",
    "workspace": "Compute the points that a frame of a robot can reach: extent, volume, hull, and a picture.",
    "doctor": "Print which parts of ROS, Gazebo and the robot are installed, and the lidars of a recording.",
    "lint": "List the departures of a robot description from a convention: the Stretch's, REP 199's or the iCub's.",
    "robot": "Write a robot's profile from its description (init), or calibrate the robot in one command (calibrate).",
    "schema": "Print the JSON schema of profiles, sensor files, scenarios or campaigns, for editors.",
    "normalize": "Convert a robot description to a convention, and prove that its mechanism stays the same.",
}
"""Every sub-command with its help."""
MODULES = {
    "demo": "run", "compare": "run", "sim": "run", "export": "check", "fk": "kinematics", "mobility": "kinematics",
    "lint": "conventions", "normalize": "conventions", "history": "verify",
}  # fmt: skip
"""The modules of `commands/`, imported when called, of sub-commands that have none of their own name."""
WITHOUT_JSON = ("sim", "robot", "schema")


class _SubParser(command.Parser):
    """The parser of a sub-command, which asks its module for example and arguments only when it has to parse."""

    module: str | None = None

    def parse_known_args(self, args=None, namespace=None):
        if self.module is not None:
            module, self.module = importlib.import_module(self.module), None
            if hasattr(module, "COMMANDS"):
                example, add_arguments, run = module.COMMANDS[self.prog.split()[-1]]
            else:
                example, add_arguments, run = module.EXAMPLE, module.add_arguments, module.run
            self.epilog = f"example: {example}"
            add_arguments(self)
            if self.prog.split()[-1] not in WITHOUT_JSON and "--json" not in self._option_string_actions:
                self.add_argument("--json", action="store_true", help="print the result as JSON")
            self.set_defaults(run=run)
        return super().parse_known_args(args, namespace)


def build_parser() -> argparse.ArgumentParser:
    parser = command.Parser(
        prog="stretch-sim-cal",
        description="Calibrate a mobile manipulator's lidars, and prove it in simulation first.",
        epilog="example: stretch-sim-cal demo",
    )
    parser.add_argument("--version", action="version", version=f"stretch-sim-cal {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_SubParser)
    for name, text in COMMANDS.items():
        layout = argparse.RawDescriptionHelpFormatter
        subparser = subparsers.add_parser(name, help=text, description=text, formatter_class=layout)
        subparser.module = f"stretch_sim_cal.commands.{MODULES.get(name, name)}"
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int | None:
    parsed = build_parser().parse_args(command.joined(sys.argv[1:] if arguments is None else arguments))
    return parsed.run(parsed)


if __name__ == "__main__":
    sys.exit(main())
