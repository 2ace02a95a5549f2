"""Findings as other programs take them: annotations of a GitHub workflow, and SARIF 2.1.0 for code scanning."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from stretch_sim_cal import __version__
from stretch_sim_cal.conventions.profile import ERROR, INFO, WARNING, Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
GITHUB = {ERROR: "error", WARNING: "warning", INFO: "notice"}
SARIF = {ERROR: "error", WARNING: "warning", INFO: "note"}


def as_github(findings: Sequence[Finding], source: str) -> str:
    """Return a line for each finding that a GitHub workflow shows beside the file, at the link's or joint's line."""
    lines = _lines_of(source)
    return "\n".join(
        f"::{GITHUB[each.level]} file={_property(source)},line={lines(each.name)},title={_property(each.rule)}"
        f"::{_data(f'{each.name}: {each.message}; {each.fix}')}"
        for each in findings
    )


def as_sarif(findings: Sequence[Finding], source: str) -> str:
    """Return the findings as a SARIF 2.1.0 log."""
    lines = _lines_of(source)
    results = [
        {
            "ruleId": each.rule,
            "level": SARIF[each.level],
            "message": {"text": f"{each.name}: {each.message}; {each.fix}"},
            "locations": [{
                "physicalLocation": {
                    "artifactLocation": {"uri": Path(source).as_posix()}, "region": {"startLine": lines(each.name)}
                },
                "logicalLocations": [{"name": each.name}],
            }],
        }
        for each in findings
    ]  # fmt: skip
    rules = [{"id": rule} for rule in sorted({each.rule for each in findings})]
    driver = {"name": "stretch-sim-cal lint", "version": __version__, "rules": rules}
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(log, indent=1)


FORMS: dict[str, Callable[[Sequence[Finding], str], str]] = {"github": as_github, "sarif": as_sarif}
"""By the name of the format."""


def _lines_of(source: str) -> Callable[[str], int]:
    """Return a function that gives the line of the file on which a link or joint is named, 1 if none is: a xacro makes
    names that stand nowhere."""
    path = Path(source)
    text = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []

    def line(name: str) -> int:
        return next((number for number, each in enumerate(text, start=1) if f'name="{name}"' in each), 1)

    return line


def _data(text: str) -> str:
    """Return a text as the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Return a text as a property of a workflow command."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
