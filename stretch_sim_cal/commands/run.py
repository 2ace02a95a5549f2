"""`stretch-sim-cal run`, `demo` and `sim`: scenarios to verdicts, one of them as the demo, and the simulator alone."""

import argparse
import contextlib
import json
import math
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from stretch_sim_cal.command import add_ci_arguments, show
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.ros.node_commands import IN_3D, SIMULATOR, VIEW_OPTIONS
from stretch_sim_cal.ros.node_main import run_node
from stretch_sim_cal.ros.options import add_group, add_to_parser
from stretch_sim_cal.simulation.gazebo.installation import LIDARS

DEMO = "furnished_room"


def _add_scenarios(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="a name in scenarios/, or a YAML file")
    parser.add_argument(
        "--repeat", type=int, default=1, metavar="N",
        help="run each scenario N times, in DIR/NAME_1 to DIR/NAME_N, and print the spread of every quantity",
    )  # fmt: skip
    _add_run_arguments(parser)


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--out", type=Path, default=Path("out"), metavar="DIR", help="parent of the runs' folders (default: out)")
    add("--simulator", choices=("embedded", "gazebo"), default="embedded",
        help="what simulates the scans (default: %(default)s)")  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--in-process", action="store_true",
        help="run the nodes' own functions on arrays, in this process and without ROS (the default without ROS)",
    )  # fmt: skip
    where.add_argument("--nodes", action="store_true", help="run real nodes as processes, over ROS")
    add("--lidar", choices=LIDARS,
        help="Gazebo's lidar: cpu sees collision shapes, gpu sees visuals (default: cpu if available)")  # fmt: skip
    add("--seed", type=int, metavar="N", help="replaces the scenario's seed")
    add("--mount-errors", nargs=2, type=float, metavar=("MM", "DEG"),
        help="give both lidars random mount errors of this length and angle, drawn from the seed")  # fmt: skip
    add("--sensor", metavar="NAME", help="replaces the scenario's sensor: a name in config/, or a YAML file")
    add("--robot", metavar="FILE", help="replaces the scenario's robot: a profile in config/robots/, or a path")
    add("--verbose", action="store_true", help="show all output of every process")
    add_ci_arguments(parser)
    add_group(parser, IN_3D, VIEW_OPTIONS)


def _run(args: argparse.Namespace) -> int:
    """Run every scenario; the exit code is 0 if all met their expectation, else the worst one's."""
    from stretch_sim_cal.harness.ci import Outputs, run_case
    from stretch_sim_cal.harness.scenario import load_scenario, with_changes

    if args.lidar and args.simulator != "gazebo":
        raise InputError("--lidar: only Gazebo has several lidar types; add --simulator gazebo")
    if args.mount_errors and not all(0 <= value < math.inf for value in args.mount_errors):
        raise InputError(f"--mount-errors {args.mount_errors}: expected a length and an angle of 0 or more")
    # All scenarios are read before the first one runs: a typing error in the last must not cost the time of the others.
    scenarios = [
        with_changes(load_scenario(name), args.seed, args.mount_errors, args.sensor, args.robot)
        for name in getattr(args, "scenarios", [DEMO])
    ]
    repeat = getattr(args, "repeat", 1)
    if repeat < 1:
        raise InputError(f"--repeat {repeat}: expected a number of 1 or more")
    if len(scenarios) * repeat > 1 and (args.view_file or args.view_port):
        raise InputError(f"--view-file and --view-port: support only one run, not {len(scenarios) * repeat}")
    outputs, stream = Outputs(args.junit, args.summary), sys.stderr if args.json else sys.stdout
    verdicts, spreads, cases = [], [], []
    for scenario in scenarios:
        for number in range(1, repeat + 1):
            name = scenario.name if repeat == 1 else f"{scenario.name}_{number}"
            verdicts.append(run_one(scenario, args.out / name, args))
            cases.append(run_case(verdicts[-1], name))
            outputs.write(cases)
        spreads += spread_lines(verdicts[-repeat:]) if repeat > 1 else []
    if spreads:
        print("\n".join(spreads), file=stream)
    outputs.publish(cases, stream)
    if args.json or len(verdicts) > 1:
        show(args, [verdict.as_json() for verdict in verdicts], map(summary, verdicts))
    return max(verdict.exit_code for verdict in verdicts)


def run_one(scenario, folder: Path, args: argparse.Namespace):
    """Run one scenario, write `result.json` and `report.html`, print the verdict, and return it."""
    from stretch_sim_cal.files import write_text
    from stretch_sim_cal.harness.clouds_3d import RunView
    from stretch_sim_cal.harness.processes import Progress, RunFiles
    from stretch_sim_cal.harness.report import write_report
    from stretch_sim_cal.harness.run import run_scenario
    from stretch_sim_cal.view import opened

    stream = sys.stderr if args.json else sys.stdout
    print(f"{scenario.name}: {scenario.description}", file=stream, flush=True)
    options = ("--lidar", args.lidar) if args.lidar else ()
    files = RunFiles(folder.resolve())
    echo = Progress(files, args.verbose, stream)
    view = opened(args)
    echo = echo if view is None else RunView(view, files).after(echo)
    verdict = run_scenario(scenario, folder, args.simulator, options, echo=echo, in_process=in_process(args))
    write_text(files.result, json.dumps(verdict.as_json(), indent=1) + "\n")
    report = write_report(verdict, folder, args.view_file)
    lines = [quantity.line() for stage in verdict.stages.values() for quantity in stage.quantities]
    lines += [f"  because: {reason}" for reason in verdict.reasons] + [f"  note: {note}" for note in verdict.notes]
    if files.calibration.is_file():
        lines.append(f"calibration: {files.calibration}")
    lines += [f"report: {report} (all output of the processes: {files.logs})", summary(verdict)]
    print("\n".join(lines), file=stream, flush=True)
    if view is not None:
        view.close()
    return verdict


def in_process(args: argparse.Namespace) -> bool:
    """Return whether a run takes place in this process: if asked for, or if there is no ROS."""
    without_ros = find_spec("rclpy") is None
    return args.in_process or (without_ros and not args.nodes and args.simulator == "embedded")


def spread_lines(verdicts) -> list[str]:
    """Return the spread of every quantity over several runs of one scenario, a line each."""
    passed = sum(verdict.passed for verdict in verdicts)
    lines = [f"{verdicts[0].scenario.name}: {passed} of {len(verdicts)} runs pass; smallest and largest errors:"]
    for stage, judged in verdicts[0].stages.items():
        for quantity in judged.quantities:
            alike = [
                each for verdict in verdicts for each in verdict.stages[stage].quantities if each.key == quantity.key
            ]
            errors = [each.error for each in alike if each.error is not None]
            lacking = f", {missing} without a result" if (missing := len(verdicts) - len(errors)) else ""
            found = f"{min(errors):.6g} to {max(errors):.6g}, spread {max(errors) - min(errors):.3g}" if errors else "-"
            lines.append(f"  {quantity.label:<24} {found} {quantity.unit}".rstrip() + lacking)
    return lines


def summary(verdict) -> str:
    outcome = "PASS" if verdict.passed else "FAIL"
    how = f"refused as expected: {verdict.refused}" if verdict.passed and verdict.refused else ""
    return f"{outcome}: {verdict.scenario.name} in {verdict.seconds['total']:.0f} s {how}".rstrip()


def _simulate(args: argparse.Namespace) -> int:
    from stretch_sim_cal.harness.processes import DOMAIN_VARIABLE, own_domain
    from stretch_sim_cal.ros.simulator_node import simulate

    given = {option.name: getattr(args, option.name) for option in SIMULATOR.options}
    with contextlib.ExitStack() as held:
        if DOMAIN_VARIABLE not in os.environ:
            # A robot may be in the domain that everybody is in by default.
            os.environ[DOMAIN_VARIABLE] = domain = str(held.enter_context(own_domain()))
            held.callback(os.environ.pop, DOMAIN_VARIABLE)
            print(f"in a separate ROS domain; for other terminals: export {DOMAIN_VARIABLE}={domain}", flush=True)
        arguments = [f"--{name}={value}" for name, value in given.items() if value is not None]
        return run_node(SIMULATOR, simulate, arguments)


COMMANDS = {
    "run": ("stretch-sim-cal run furnished_room long_corridor", _add_scenarios, _run),
    "demo": ("stretch-sim-cal demo --seed 7 --mount-errors 20 2", _add_run_arguments, _run),
    "sim": (
        "stretch-sim-cal sim --world furnished_room --real-time-factor 1 --record my_bag --duration 20",
        lambda parser: add_to_parser(parser, SIMULATOR.options), _simulate,
    ),
}  # fmt: skip
