"""Outcomes for continuous integration: JUnit XML, GitHub's annotations, and a summary in Markdown."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from stretch_sim_cal.command import one_line, table_lines, warn
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_text
from stretch_sim_cal.harness.pages import TEMPLATES

NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\x1b\\[[0-9;]*[A-Za-z]")
"""Characters that XML 1.0 cannot hold, and the colours of a terminal."""
TEMPLATES.filters |= {"one_line": one_line, "clean": lambda text: NO_XML.sub("", str(text))}


class Row(NamedTuple):
    """One number beside its bound; `value` is None if there is no result, `bound` in words."""

    key: str
    label: str
    value: float | None
    unit: str
    bound: str
    passed: bool

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Label, value, bound and verdict as text."""
        value = "no result" if self.value is None else f"{self.value:.4g} {self.unit}".rstrip()
        return self.label, value, self.bound, "PASS" if self.passed else "FAIL"


@dataclass
class Case:
    """One test case: a run, or a condition of a campaign. It fails with `reasons`, `broken` by an error of the run."""

    suite: str
    name: str
    rows: list[Row] = field(default_factory=list)
    reasons: Sequence[str] = ()
    broken: bool = False
    seconds: float = 0.0
    note: str = ""

    def table(self) -> str:
        """Return the rows in columns, a line each, and the reasons below."""
        lines = table_lines([row.cells for row in self.rows])
        return "\n".join([*lines, *(f"because: {reason}" for reason in self.reasons)])


def run_case(verdict: Any, name: str) -> Case:
    rows, note = [], f"refused as expected: {verdict.refused}" if verdict.passed and verdict.refused else ""
    for stage, judged in verdict.stages.items() if not note else ():
        for each in judged.quantities:
            bound = f"at most {each.tolerance:g} {each.unit}".rstrip()
            rows.append(Row(f"{stage}.{each.key}", each.label, each.error, each.unit, bound, each.passed))
    return Case("scenarios", name, rows, verdict.reasons, verdict.broken, verdict.seconds.get("total", 0.0), note)


def campaign_cases(found: Mapping[str, Any]) -> list[Case]:
    """Return a case for every condition of a campaign's statement (`campaign.statement.statement`)."""
    suite, asked, cases = found["campaign"], found["share"], found["cases"]
    confidence = f"with {100 * found['confidence']:g} % confidence"
    shown = found["share_shown"]
    rows = [
        Row("share_shown", f"accepted and right, {confidence}", shown, "", f"at least {asked:g}", shown >= asked),
        Row("share", "accepted and right", found["good"] / cases, "", "", True),
        *(
            Row(f"{name}.{key}", f"{one['label']}, {key}", value, "", "", True)
            for name, one in found["quantities"].items()
            for key, value in (("median", one["median"][0]), ("p95", one["p95"][0]), ("worst", one["worst"]))
        ),
    ]
    seconds = (found["seconds"] or {"total": 0.0})["total"]
    few = [f"of {cases} cases {found['good']} were accepted and right; {confidence} at least {shown:.4f} of such cases "
           f"are, {asked:g} was requested"]  # fmt: skip
    conditions = [Case(suite, "accepted and right", rows, () if shown >= asked else few, seconds=seconds)]
    none = [("wrong", "accepted but wrong", found["wrong"], cases)]
    if found["nodes"]["cases"]:
        none.append(("nodes", "different through the real nodes", found["nodes"]["disagree"], found["nodes"]["cases"]))
    for key, label, count, number in none:
        reasons = [f"{count} of {number} cases were {label}"] if count else ()
        conditions.append(Case(suite, label, [Row(key, label, count, "", "0", not count)], reasons))
    return conditions


def junit(cases: Sequence[Case]) -> str:
    """Return JUnit XML as GitLab, Jenkins and GitHub's readers take it; every row with a value is a property."""
    return TEMPLATES.get_template("junit.xml").render(cases=cases) + "\n"


def markdown_cell(text: object) -> str:
    """Return text that neither Markdown nor HTML takes for anything else, in one line."""
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", one_line(text).replace("&", "&amp;").replace("<", "&lt;"))


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown; numbers in it are text already."""
    lines = [head, ["---"] * len(head), *([markdown_cell(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def summary(cases: Sequence[Case]) -> str:
    """Return a page in Markdown: a heading, a table and the reasons of every case."""
    parts = []
    for case in cases:
        verdict = "FAIL" if case.reasons else "PASS"
        parts.append(f"### {verdict}: {markdown_cell(f'{case.suite}: {case.name}')}\n")
        if case.rows:
            parts.append(markdown_table(("quantity", "found", "allowed", "verdict"), [row.cells for row in case.rows]))
        parts.append("".join(f"- {markdown_cell(line)}\n" for line in (*case.reasons, case.note) if line))
    return "\n".join(filter(None, parts)) + "\n"


def annotations(cases: Sequence[Case]) -> list[str]:
    """Return a GitHub workflow command for every case that is not passed."""
    failed = [case for case in cases if case.reasons]
    return [workflow_command("error", case.table(), title=f"{case.suite}: {case.name}") for case in failed]


def workflow_command(level: str, text: str, **properties: object) -> str:
    """Return a line that a GitHub workflow shows as an annotation; what would end it is percent-encoded."""

    def escaped(text: object, more: str = "") -> str:
        return re.sub(f"[%\r\n{more}]", lambda found: f"%{ord(found.group()):02X}", NO_XML.sub("", str(text)))

    where = ",".join(f"{name}={escaped(value, ':,')}" for name, value in properties.items())
    return f"::{level} {where}::{escaped(text)}"


class Outputs:
    """Where a command's cases go: `--junit`, `--summary`, and GitHub if this is one of its jobs."""

    def __init__(self, junit: Path | None, summary: Path | None):
        self._files = {"--junit": junit, "--summary": summary}
        for option, path in self._files.items():
            if path is not None and path.is_dir():  # reported before anything runs
                raise InputError(f"{option} {path}: is a folder; expected a file")

    def write(self, cases: Sequence[Case]) -> None:
        """Write the files that were asked for, each whole or not at all."""
        for path, render in zip(self._files.values(), (junit, summary), strict=True):
            if path is not None:
                write_text(path, render(cases))

    def publish(self, cases: Sequence[Case], stream: TextIO) -> None:
        """Print annotations on `stream` and append to the job's page, in a job of GitHub."""
        if os.environ.get("GITHUB_ACTIONS") == "true":
            print(*annotations(cases), sep="\n", end="\n" if any(c.reasons for c in cases) else "", file=stream)
        if page := os.environ.get("GITHUB_STEP_SUMMARY"):
            try:
                with open(page, "a", encoding="utf-8") as job:
                    job.write(summary(cases))
            except OSError as error:
                warn(f"GITHUB_STEP_SUMMARY={page}: {error.strerror}")
