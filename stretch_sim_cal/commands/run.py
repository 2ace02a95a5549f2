"""`stretch-sim-cal run`, `demo`, `compare` and `sim`: scenarios to verdicts, one of them as the demo, the results of
two revisions side by side, and the simulator alone."""

import argparse
import contextlib
import json
import math
import os
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stretch_sim_cal.command import add_ci_arguments, one_line, show, table_lines
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_text, write_text
from stretch_sim_cal.harness.ci import Outputs, markdown_table, run_case
from stretch_sim_cal.ros.node_commands import IN_3D, SIMULATOR, VIEW_OPTIONS
from stretch_sim_cal.ros.node_main import run_node
from stretch_sim_cal.ros.options import add_group, add_to_parser
from stretch_sim_cal.simulation.gazebo.installation import LIDARS

DEMO = "furnished_room"
COMPARED = ("scenario", "quantity", "old", "new", "change", "allowed", "")


def _add_scenarios(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="a name in scenarios/, or a YAML file")
    repeat = "run each scenario N times, in DIR/NAME_1 to DIR/NAME_N, and print the spread of every quantity"
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help=repeat)
    _add_run_arguments(parser)


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--out", type=Path, default=Path("out"), metavar="DIR", help="parent of the runs' folders (default: out)")
    add("--simulator", choices=("embedded", "gazebo"), default="embedded",
        help="what simulates the scans (default: %(default)s)")  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    here = "run the nodes' own functions on arrays, in this process and without ROS (the default without ROS)"
    where.add_argument("--in-process", action="store_true", help=here)
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
    for name, count in Counter(scenario.name for scenario in scenarios).items():
        if count > 1:
            raise InputError(f"{name}: {count} scenarios of this name would write into one folder; see --repeat")
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
            every = (each for verdict in verdicts for each in verdict.stages[stage].quantities)
            errors = [each.error for each in every if each.key == quantity.key and each.error is not None]
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


def _add_compare(parser: argparse.ArgumentParser) -> None:
    source = "a result.json, a run's folder, a folder of several runs (out/), or the --json output of run"
    for name in ("old", "new"):
        parser.add_argument(name, type=Path, metavar=name.upper(), help=source)
    parser.add_argument("--worse", type=float, metavar="SHARE",
        help="also fail if an error grew by more than this share of its tolerance (0.2: a fifth)")  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the comparison as JSON")
    form.add_argument("--markdown", action="store_true", help="print the table in Markdown")


def _compare(args: argparse.Namespace) -> int:
    """Print what changed; return 1 if something that passed fails now, is gone, or is worse than `--worse` allows."""
    if args.worse is not None and not 0 <= args.worse < math.inf:
        raise InputError(f"--worse {args.worse}: expected a share of 0 or more")
    old, new = _results(args.old), _results(args.new)
    common = [name for name in old if name in new]
    if not common:
        raise InputError(f"{args.old} and {args.new} have no scenario in common: {', '.join(old)}; {', '.join(new)}")
    rows = [row for name in common for row in _rows(name, old[name], new[name], args.worse)]
    only = {"old": [name for name in old if name not in new], "new": [name for name in new if name not in old]}
    failed, cells = [row for row in rows if row["verdict"] in ("FAIL", "worse", "gone")], [_cells(row) for row in rows]
    gone = [name for name in only["old"] if old[name]["passed"]]
    lines = [markdown_table(COMPARED, cells)] if args.markdown else table_lines([COMPARED, *cells])
    lines += [f"only in {which}: {', '.join(names)}" for which, names in only.items() if names]
    passed, lost = not failed and not gone, f"; {', '.join(gone)} passed and is gone" if gone else ""
    lines.append(f"{'PASS' if passed else 'FAIL'}: {len(failed)} of {len(rows)} are worse than allowed{lost}")
    show(args, {"rows": rows, "only_in": only, "passed": passed}, lines)
    return 0 if passed else 1


def _results(path: Path) -> dict[str, dict[str, Any]]:
    if path.is_dir():
        files = [path / "result.json"] if (path / "result.json").is_file() else sorted(path.glob("*/result.json"))
        if not files:
            raise InputError(f"{path}: has no result.json, nor does a folder in it; 'stretch-sim-cal run' writes them")
        several = files[0].parent != path
        return {(file.parent.name if several else each["scenario"]): each for file in files for each in _read(file)}
    found = _read(path)
    names = [each["scenario"] for each in found]
    return {
        name if names.count(name) == 1 else f"{name}_{1 + names[:number].count(name)}": found[number]
        for number, name in enumerate(names)
    }


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from error
    found = found if isinstance(found, list) else [found]
    for each in found:
        if not (isinstance(each, dict) and isinstance(each.get("scenario"), str) and "passed" in each):
            raise InputError(f"{path}: is not a result of 'stretch-sim-cal run'")
        if not (isinstance(each.get("quantities"), list) and all(map(_is_quantity, each["quantities"]))):
            raise InputError(f"{path}: has no usable 'quantities' (written before version 1.0?); run it again")
    if not found:
        raise InputError(f"{path}: has no result")
    return found


def _is_quantity(each: Any) -> bool:
    kinds = {"key": str, "tolerance": int | float, "passed": bool, "error": int | float | None}
    return isinstance(each, dict) and all(
        isinstance(each.get(name), kind) and (kind is bool or not isinstance(each.get(name), bool))
        for name, kind in kinds.items()
    )


def _rows(name: str, old: dict[str, Any], new: dict[str, Any], worse: float | None) -> list[dict[str, Any]]:
    """Return a row for the verdict of a scenario, and one for each quantity that either of its results has."""
    reason = one_line("; ".join(map(str, new.get("reasons") or ()))) if not new["passed"] else ""
    rows = [{
        "scenario": name, "quantity": "verdict", "unit": "", "tolerance": None, "old": None, "new": None,
        "old_passed": bool(old["passed"]), "new_passed": bool(new["passed"]), "reason": reason,
        "verdict": _verdict(bool(old["passed"]), bool(new["passed"])),
    }]  # fmt: skip
    if any(result["passed"] and result.get("refused") for result in (old, new)):  # no numbers were to be found
        return rows
    before, after = ({each["key"]: each for each in result["quantities"]} for result in (old, new))
    for key in dict.fromkeys([*before, *after]):
        first, second = both = before.get(key), after.get(key)
        one = second or first or {}
        errors, passed, bounds = ([each and each[of] for each in both] for of in ("error", "passed", "tolerance"))
        if None in both:
            verdict = "only in new" if first is None else "gone" if passed[0] else "only in old"
        else:
            verdict = _verdict(*passed)
        if verdict == "" and worse is not None and errors[1] - errors[0] > worse * min(bounds):
            verdict = "worse"
        rows.append({
            "scenario": name, "quantity": key, "unit": str(one.get("unit", "")), "tolerance": bounds,
            "old": errors[0], "new": errors[1], "old_passed": passed[0], "new_passed": passed[1], "reason": "",
            "verdict": verdict,
        })  # fmt: skip
    return rows


def _verdict(old: bool | None, new: bool | None) -> str:
    return "FAIL" if old and not new else "passes now" if new and not old else "" if new else "fails as before"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    unit = f" {row['unit']}".rstrip()
    if row["quantity"] == "verdict":
        old, new = ("PASS" if row[which] else "FAIL" for which in ("old_passed", "new_passed"))
        return row["scenario"], row["quantity"], old, new, "", "", f"{row['verdict']} {row['reason']}".strip()
    old, new = ("-" if row[which] is None else f"{row[which]:.4g}{unit}" for which in ("old", "new"))
    allowed = " to ".join(dict.fromkeys(f"{bound:g}" for bound in row["tolerance"] if bound is not None)) + unit
    change = "" if "-" in (old, new) else f"{row['new'] - row['old']:+.3g}{unit}"
    return row["scenario"], row["quantity"], old, new, change, allowed, row["verdict"]


COMMANDS = {
    "run": ("stretch-sim-cal run furnished_room long_corridor", _add_scenarios, _run),
    "demo": ("stretch-sim-cal demo --seed 7 --mount-errors 20 2", _add_run_arguments, _run),
    "compare": ("stretch-sim-cal compare out.main out --markdown", _add_compare, _compare),
    "sim": (
        "stretch-sim-cal sim --world furnished_room --real-time-factor 1 --record my_bag --duration 20",
        lambda parser: add_to_parser(parser, SIMULATOR.options), _simulate,
    ),
}  # fmt: skip
