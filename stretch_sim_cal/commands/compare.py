"""`stretch-sim-cal compare OLD NEW`: the results of two revisions side by side, for pull requests."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from stretch_sim_cal.command import one_line, show, table_lines
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_text
from stretch_sim_cal.harness.ci import markdown_table

EXAMPLE = "stretch-sim-cal compare out.main out --markdown"
HEAD = ("scenario", "quantity", "old", "new", "change", "allowed", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name in ("old", "new"):
        parser.add_argument(
            name, type=Path, metavar=name.upper(),
            help="a result.json, a run's folder, a folder of several runs (out/), or the --json output of run",
        )  # fmt: skip
    parser.add_argument("--worse", type=float, metavar="SHARE",
        help="also fail if an error grew by more than this share of its tolerance (0.2: a fifth)")  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the comparison as JSON")
    form.add_argument("--markdown", action="store_true", help="print the table in Markdown")


def run(args: argparse.Namespace) -> int:
    """Print what changed; return 1 if something that passed fails now, or is worse than `--worse` allows."""
    if args.worse is not None and not 0 <= args.worse < math.inf:
        raise InputError(f"--worse {args.worse}: expected a share of 0 or more")
    old, new = _results(args.old), _results(args.new)
    common = [name for name in old if name in new]
    if not common:
        raise InputError(f"{args.old} and {args.new} have no scenario in common: {', '.join(old)}; {', '.join(new)}")
    rows = [row for name in common for row in _rows(name, old[name], new[name], args.worse)]
    only = {"old": [name for name in old if name not in new], "new": [name for name in new if name not in old]}
    failed, cells = [row for row in rows if row["verdict"] in ("FAIL", "worse")], [_cells(row) for row in rows]
    lines = [markdown_table(HEAD, cells)] if args.markdown else table_lines([HEAD, *cells])
    lines += [f"only in {which}: {', '.join(names)}" for which, names in only.items() if names]
    lines.append(f"{'FAIL' if failed else 'PASS'}: {len(failed)} of {len(rows)} are worse than allowed")
    show(args, {"rows": rows, "only_in": only, "passed": not failed}, lines)
    return 1 if failed else 0


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
        verdict = _verdict(*passed) if None not in both else "only in new" if first is None else "only in old"
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
