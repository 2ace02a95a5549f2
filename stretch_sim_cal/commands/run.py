"""`stretch-sim-cal run SCENARIO...`: scenarios to verdicts."""

import argparse
import json
import math
import sys
from pathlib import Path

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.simulation.gazebo.installation import LIDARS

EXAMPLE = "stretch-sim-cal run furnished_room long_corridor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="a name in scenarios/, or a YAML file")
    add_run_arguments(parser)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that every command which runs scenarios has."""
    parser.add_argument(
        "--out", type=Path, default=Path("out"), metavar="DIR", help="parent of the runs' folders (default: out)"
    )
    parser.add_argument("--simulator", choices=("embedded", "gazebo"), default="embedded")
    parser.add_argument(
        "--lidar",
        choices=LIDARS,
        help="Gazebo's: cpu sees collision shapes, gpu visuals (default: cpu where it is there)",
    )
    parser.add_argument("--seed", type=int, help="another seed than the scenario's")
    parser.add_argument(
        "--mount-errors", nargs=2, type=float, metavar=("MM", "DEG"),
        help="draw both lidars' mount errors from the seed, of this length and angle",
    )  # fmt: skip
    parser.add_argument("--sensor", help="another sensor than the scenario's: a name in config/, or a YAML file")
    parser.add_argument("--json", action="store_true", help="print the results as JSON on standard output")
    parser.add_argument("--verbose", action="store_true", help="show the output of every process")


def run(args: argparse.Namespace) -> int:
    """Run every scenario; the exit code is 0 if all met their expectation, else the worst one's."""
    from stretch_sim_cal.harness.scenario import load_scenario, with_changes

    if args.lidar and args.simulator != "gazebo":
        raise InputError("--lidar: only Gazebo has several lidars; add --simulator gazebo")
    if args.mount_errors and not all(0 <= value < math.inf for value in args.mount_errors):
        raise InputError(f"--mount-errors {args.mount_errors}: a length and an angle of 0 or more were expected")
    # All scenarios are read before the first one runs: a typing error in the last must not cost the time of the others.
    scenarios = [
        with_changes(load_scenario(name), args.seed, args.mount_errors, args.sensor) for name in args.scenarios
    ]
    verdicts = [run_one(scenario, args.out / scenario.name, args) for scenario in scenarios]
    if args.json:
        print(json.dumps([verdict.as_json() for verdict in verdicts], indent=1))
    elif len(verdicts) > 1:
        for verdict in verdicts:
            print(summary(verdict))
    return max(verdict.exit_code for verdict in verdicts)


def run_one(scenario, folder: Path, args: argparse.Namespace):
    """Run one scenario, write `result.json` and `report.html`, print the verdict, and return it."""
    from stretch_sim_cal.files import write_text
    from stretch_sim_cal.harness.report import write_report
    from stretch_sim_cal.harness.run import run_scenario

    stream = sys.stderr if args.json else sys.stdout
    print(f"{scenario.name}: {scenario.description}", file=stream, flush=True)
    verdict = run_scenario(
        scenario, folder, args.simulator, ("--lidar", args.lidar) if args.lidar else (),
        echo=lambda name, line: _show(name, line, args.verbose, stream),
    )  # fmt: skip
    write_text(folder / "result.json", json.dumps(verdict.as_json(), indent=1) + "\n")
    report = write_report(verdict, folder)
    for stage in verdict.stages.values():
        for quantity in stage.quantities:
            print(quantity.line(), file=stream)
    for reason in verdict.reasons:
        print(f"  because: {reason}", file=stream)
    for note in verdict.notes:
        print(f"  note: {note}", file=stream)
    print(f"report: {report}", file=stream)
    print(summary(verdict), file=stream, flush=True)
    return verdict


def summary(verdict) -> str:
    """Return the one line that says how a run ended."""
    outcome = "PASS" if verdict.passed else "FAIL"
    how = f"refused as expected: {verdict.refused}" if verdict.passed and verdict.refused else ""
    return f"{outcome}: {verdict.scenario.name} in {verdict.seconds['total']:.0f} s {how}".rstrip()


def _show(name: str, line: str, verbose: bool, stream) -> None:
    telling = line.lower().startswith(("error:", "refused:", "warning:"))
    if verbose or telling or name != "simulator":
        print(f"  [{name}] {line}", file=stream, flush=True)
