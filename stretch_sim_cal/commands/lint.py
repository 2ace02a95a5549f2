"""`stretch-sim-cal lint MODEL --profile NAME`: does a robot description keep a convention?"""

import argparse
import json

from stretch_sim_cal.commands.fk import add_model_arguments, assignments, is_own, load, mesh_folders
from stretch_sim_cal.conventions import PROFILES, profile_named
from stretch_sim_cal.conventions.normal_form import read_description
from stretch_sim_cal.conventions.profile import INFO, LEVELS, has_errors, lint
from stretch_sim_cal.conventions.tools import tool_findings
from stretch_sim_cal.errors import InputError

EXAMPLE = "stretch-sim-cal lint robot.urdf.xacro --profile stretch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_arguments(parser)
    parser.add_argument("--profile", default="stretch", metavar="NAME",
                        help=f"the convention: {', '.join(PROFILES)} (default: stretch)")  # fmt: skip
    parser.add_argument("--as", dest="kind", choices=("robot", "tool"), default="robot",
                        help="a robot, or a tool by itself, as it hangs on the "
                        "Stretch's wrist (default: robot)")  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="leave infos (listed exceptions, hints) out of the text")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the findings. The exit code is 0 without errors, 1 with."""
    profile = profile_named(args.profile)
    findings = _of_tool(args) if args.kind == "tool" else lint(load(args), profile)
    if args.json:
        found = [finding.as_dict() for finding in findings]
        print(json.dumps({"profile": profile.name, "model": args.model, "findings": found}, indent=1))
        return 1 if has_errors(findings) else 0
    for finding in findings:
        if finding.level != INFO or not args.quiet:
            print(f"{finding.level:7s} {finding.rule:22s} {finding.name}: {finding.message}; {finding.fix}")
    counts = {level: sum(finding.level == level for finding in findings) for level in LEVELS}
    counted = ", ".join(f"{count} {level}{'s' if count != 1 else ''}" for level, count in counts.items())
    print(f"{args.model}: {'breaks' if counts['error'] else 'keeps'} the {profile.title} ({counted})")
    return 1 if has_errors(findings) else 0


def _of_tool(args: argparse.Namespace) -> list:
    if args.profile != "stretch" or is_own(args.model):
        raise InputError("--as tool: is for the URDF of a tool, and --profile stretch")
    return tool_findings(read_description(args.model, assignments(args.arg, "--arg"), mesh_folders(args)))
