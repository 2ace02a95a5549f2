"""`stretch-sim-cal lint MODEL`: does a robot description keep a convention? `normalize MODEL --out DIR`: the same
mechanism in the convention's form. Both also for a tool by itself."""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

from stretch_sim_cal import __version__
from stretch_sim_cal.command import only_with, show
from stretch_sim_cal.commands import described
from stretch_sim_cal.conventions import PROFILES, kept, normal_form, profile_named
from stretch_sim_cal.conventions.neutral import lint_neutral
from stretch_sim_cal.conventions.normal_form import Normal, Options
from stretch_sim_cal.conventions.normalized_files import NO_TOOL, normal_tool, tool_findings, tool_in, write, write_tool
from stretch_sim_cal.conventions.profile import ERROR, INFO, LEVELS, SILENT, WARNING, Finding, by_level, has_errors
from stretch_sim_cal.conventions.profile import lint as findings_in
from stretch_sim_cal.conventions.rewrite import OTHER
from stretch_sim_cal.conventions.stretch import STRETCH
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.harness.ci import workflow_command
from stretch_sim_cal.harness.pages import text_lines

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def _as_github(findings: Sequence[Finding], source: str) -> str:
    """Return a line for each finding that a GitHub workflow shows beside the file, at the link's or joint's line."""
    levels = {ERROR: "error", WARNING: "warning", INFO: "notice"}
    return "\n".join(
        workflow_command(levels[each.level], each.sentence, file=source, line=line, title=each.rule)
        for each, line in zip(findings, _lines_of(findings, source), strict=True)
    )


def _as_sarif(findings: Sequence[Finding], source: str) -> str:
    """Return the findings as a SARIF 2.1.0 log, for code scanning."""
    levels, file = {ERROR: "error", WARNING: "warning", INFO: "note"}, {"uri": quote(Path(source).as_posix())}
    results = [
        {
            "ruleId": each.rule, "level": levels[each.level], "message": {"text": each.sentence},
            "locations": [{
                "physicalLocation": {"artifactLocation": file, "region": {"startLine": line}},
                "logicalLocations": [{"name": each.name}],
            }],
        }
        for each, line in zip(findings, _lines_of(findings, source), strict=True)
    ]  # fmt: skip
    rules = [{"id": rule} for rule in sorted({each.rule for each in findings})]
    driver = {"name": "stretch-sim-cal lint", "version": __version__, "rules": rules}
    log = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(log, indent=1)


def _lines_of(findings: Sequence[Finding], source: str) -> list[int]:
    """Return the lines of the file on which the findings' links or joints are named; 1 for names that a xacro makes."""
    path = Path(source)
    text = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return [
        next((number for number, line in enumerate(text, start=1) if f'name="{each.name}"' in line), 1)
        for each in findings
    ]


FORMS: dict[str, Callable[[Sequence[Finding], str], str]] = {"github": _as_github, "sarif": _as_sarif}
FORMATS = ("text", "json", *FORMS)
POSES = ("base", "flange", "tool0")


def _add_convention(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--profile", metavar="NAME", help=f"the convention: {', '.join(PROFILES)} (default: {default})")
    parser.add_argument("--as", dest="kind", choices=("robot", "tool"), default="robot",
        help="a robot, or a tool for the Stretch's wrist (default: robot)")  # fmt: skip


def _add_lint(parser: argparse.ArgumentParser) -> None:
    described.add_model_arguments(parser)
    _add_convention(parser, "rules for any robot, and a convention that it keeps")
    parser.add_argument("--quiet", action="store_true", help="omit infos (listed exceptions, hints)")
    parser.add_argument("--format", choices=FORMATS, default="text",
        help="github: annotations of a workflow; sarif: SARIF 2.1.0, for code scanning (default: text)")  # fmt: skip


def _lint(args: argparse.Namespace) -> int:
    """Print the findings. The exit code is 0 without errors, 1 with."""
    form = "json" if args.json else args.format
    if args.json and args.format not in ("text", "json"):
        raise InputError(f"--json and --format {args.format}: give one of them")
    if args.kind == "tool" or args.profile:
        convention = profile_named(args.profile or STRETCH.name)
        findings = _of_tool(args) if args.kind == "tool" else findings_in(described.load(args), convention)
        name, said = convention.name, f"{'breaks' if has_errors(findings) else 'keeps'} the {convention.title}"
        if any(finding.rule == SILENT for finding in findings):
            said = f"is not a robot of the {convention.title}"
    else:
        model = described.load(args)
        findings, convention = lint_neutral(model), kept(model)
        name = "neutral" if convention is None else f"neutral, {convention.name}"
        said = "has errors" if has_errors(findings) else "has no errors"
        if convention is not None:
            findings = by_level([*findings, *findings_in(model, convention)])
            said = f"keeps the {convention.title}" + (" but has errors" if has_errors(findings) else "")
    shown = [each for each in findings if each.level != INFO] if args.quiet else findings
    if form == "json":
        found = [finding.as_dict() for finding in shown]
        print(json.dumps({"profile": name, "model": args.model, "findings": found}, indent=1))
    elif form != "text":
        print(FORMS[form](shown, args.model))
    else:
        for finding in shown:
            print(f"{finding.level:7s} {finding.rule:22s} {finding.sentence}")
        counts = {level: sum(finding.level == level for finding in findings) for level in LEVELS}
        counted = ", ".join(f"{count} {level}{'s' if count != 1 else ''}" for level, count in counts.items())
        print(f"{args.model}: {said} ({counted})")
    return 1 if has_errors(findings) else 0


def _given(args: argparse.Namespace) -> normal_form.Description:
    arguments, packages = described.assignments(args.arg, "--arg"), described.mesh_folders(args)
    if described.is_own(args.model):
        return normal_form.description(described.own_text(args), source=described.OWN_MODEL)
    return normal_form.read_description(args.model, arguments, packages)


def _of_tool(args: argparse.Namespace) -> list:
    if args.profile not in (None, STRETCH.name) or described.is_own(args.model):
        raise InputError("--as tool: is for the URDF of a tool, and --profile stretch")
    given = _given(args)
    described.check_packages(args.package, given.packages)
    return tool_findings(given)


def _add_normalize(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    described.add_model_arguments(parser, "a URDF or xacro file")
    _add_convention(parser, STRETCH.name)
    out = "folder for the xacro, the joint mapping and the report of changes"
    add("--out", type=Path, required=True, metavar="DIR", help=out)
    names = "new names of links or joints, where the model does not determine them"
    described.add_words(parser, "--rename", "OLD=NEW", names)
    described.add_words(parser, "--zero", "JOINT=POSITION", "position (m or rad) that becomes the joint's new zero")
    add("--tool", type=Path, metavar="FILE", help="URDF of a tool to attach (Stretch)")
    for role in POSES:
        add(f"--{role}", metavar="'X Y Z R P Y'",
            help=f"pose of {role} in the link it is added to, m and rad (REP 199)")  # fmt: skip
    add("--number-links", action="store_true",
        help="name an arm's moving links link_1, link_2, ... and turn their frames upright (REP 199)")  # fmt: skip
    add("--guess-sensors", action="store_true",
        help="also turn sensors whose viewing direction is unknown, to the nearest frame that keeps the rule, and "
        "lidars of a robot without a lift")  # fmt: skip


def _normalize(args: argparse.Namespace) -> int:
    """Write the files. The exit code is 1 if Rule 0 would break (nothing is written), or rules stay broken."""
    args.profile = args.profile or STRETCH.name
    if args.kind == "tool":
        return _normalize_tool(args)
    given = _given(args)
    if args.tool is not None:
        tool = args.tool.stem
    else:
        in_file = None if described.is_own(args.model) else tool_in(Path(args.model))
        tool = described.assignments(args.arg, "--arg").get("tool") or in_file or "tool"
        tool = "tool" if tool == NO_TOOL else tool
    poses = {role: _pose(role, text) for role in POSES if (text := getattr(args, role)) is not None}
    for option, profile, given_too in (
        *((f"--{role}", "rep199", True) for role in poses),
        ("--tool", "stretch", args.tool is not None),
        ("--number-links", "rep199", args.number_links),
    ):
        if given_too and args.profile != profile:
            raise InputError(f"{option} is for --profile {profile}")
    attached, used = None, given.packages
    if args.tool is not None:
        attached = normal_form.read_description(args.tool, mesh_folders=described.mesh_folders(args))
        used = used | attached.packages
    described.check_packages(args.package, used)
    renamed, zeros = described.assignments(args.rename, "--rename"), _zeros(args.zero)
    options = Options(args.profile, renamed, zeros, attached, poses, args.number_links, args.guess_sensors)
    normal = normal_form.normalized(given, options)
    files, departure = write(normal, args.out, tool)

    counted = "1 rule is" if len(normal.broken) == 1 else f"{len(normal.broken)} rules are"
    said = [f"{counted} left for you to decide, see {files[-1]}"] if normal.broken else []
    if not args.guess_sensors and any(each.rule.startswith(("rule-4-base", "rule-4-lidar")) for each in normal.broken):
        said.append("sensors whose viewing direction is unknown were not turned; use --guess-sensors")
    return _conclude(args, normal, files, departure, said)


def _normalize_tool(args: argparse.Namespace) -> int:
    if args.profile != "stretch" or args.tool is not None or args.number_links or described.is_own(args.model):
        wanted = "the URDF of a tool, --profile stretch, and without --tool or --number-links"
        raise InputError(f"--as tool: is for {wanted}")
    only_with(args, POSES, "--profile rep199")
    given = _given(args)
    described.check_packages(args.package, given.packages)
    renamed, zeros = described.assignments(args.rename, "--rename"), _zeros(args.zero)
    normal = normal_tool(given, Options("stretch", renamed, zeros, guess_sensors=args.guess_sensors))
    file = args.out / f"{Path(args.model).name.split('.')[0]}.urdf"
    departure = write_tool(normal, file)
    said = [f"left: {each.rule} {each.sentence}" for each in normal.broken]
    return _conclude(args, normal, [file], departure, said)


def _conclude(args: argparse.Namespace, normal: Normal, files: list[Path], departure: float, said: list[str]) -> int:
    """Print the changes, and return 1 if rules are still violated; `said` are lines about these."""
    turned = [normal.links[old] for old in normal.old_from_new]
    answer = {
        "profile": normal.profile, "model": args.model, "files": [str(file) for file in files],
        "unchanged": normal.unchanged, "largest_departure": departure, "renamed": dict(normal.renamed),
        "turned": {link: normal.reasons.get(link, "") for link in turned},
        "joints": {old: asdict(mapping) for old, mapping in normal.joints.items()},
        "added": {frame.link: frame.reason for frame in normal.added},
        "findings": [finding.as_dict() for finding in normal.remaining],
    }  # fmt: skip
    lines = text_lines("normalized", normal=normal, departure=departure, other=OTHER, warning=WARNING)
    show(args, answer, [*lines, *(f"wrote {file}" for file in files), *said])
    return 1 if normal.broken else 0


def _zeros(words: list[str]) -> dict[str, float]:
    result = {}
    for name, text in described.assignments(words, "--zero").items():
        try:
            result[name] = float(text)
        except ValueError as error:
            raise InputError(f"--zero {name}={text}: '{text}' is not a number") from error
    return result


def _pose(role: str, text: str):
    values = described.numbers(f"--{role}", text, {6: "six numbers x y z roll pitch yaw"})
    return from_xyz_rpy(values[:3], values[3:])


COMMANDS = {
    "lint": ("stretch-sim-cal lint robot.urdf.xacro --profile stretch", _add_lint, _lint),
    "normalize": ("stretch-sim-cal normalize cad_export.urdf --out normalized", _add_normalize, _normalize),
}
