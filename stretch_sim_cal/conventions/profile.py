"""A convention: rules that yield findings about a model, and the listed exceptions."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np

from stretch_sim_cal.robot.model import RobotModel

ERROR, WARNING, INFO = "error", "warning", "info"
SILENT = "silent"  # the rule of the one finding of a convention that does not apply to a model
LEVELS = (ERROR, WARNING, INFO)


@dataclass(frozen=True)
class Finding:
    """One departure from a rule by a link or joint `name`, with its numbers, and the fix. `measured` is the number that
    an exception's limits apply to (an angle in deg)."""

    rule: str
    level: str
    name: str
    message: str
    fix: str
    measured: float | None = field(default=None, compare=False)

    @property
    def is_error(self) -> bool:
        return self.level == ERROR

    @property
    def sentence(self) -> str:
        return f"{self.name}: {self.message}; {self.fix}"

    def as_dict(self) -> dict[str, str]:
        """Return what `--json` prints of it."""
        return {"rule": self.rule, "level": self.level, "name": self.name, "message": self.message, "fix": self.fix}


def error(rule: str, name: str, message: str, fix: str, measured: float | None = None) -> Finding:
    return Finding(rule, ERROR, name, message, fix, measured)


def warning(rule: str, name: str, message: str, fix: str, measured: float | None = None) -> Finding:
    return Finding(rule, WARNING, name, message, fix, measured)


def info(rule: str, name: str, message: str, fix: str = "none needed") -> Finding:
    return Finding(rule, INFO, name, message, fix)


Rule = Callable[[RobotModel], Iterable[Finding]]
"""A function, its docstring the rule in one sentence, that yields a finding for each departure from it."""


@dataclass(frozen=True)
class Exemption:
    """Accepted departures by rule and name (a shell pattern), of what measured from `at_least` to `up_to`."""

    rule: str
    names: str
    reason: str
    up_to: float = np.inf
    at_least: float = -np.inf

    def covers(self, finding: Finding) -> bool:
        if finding.rule != self.rule or not fnmatchcase(finding.name, self.names):
            return False
        unlimited = (self.at_least, self.up_to) == (-np.inf, np.inf)
        return unlimited or finding.measured is not None and self.at_least <= finding.measured <= self.up_to


@dataclass(frozen=True)
class Profile:
    """A convention: its rules, the exceptions to them, and the link (`anchor`) that shows a prefix: with
    `left_base_link` for the anchor `base_link`, and all links `left_*`, a robot is checked without the prefix `left_`.
    `silent` returns why the convention does not apply to a model; "" if it does."""

    name: str
    title: str
    rules: tuple[Rule, ...]
    exemptions: tuple[Exemption, ...] = ()
    anchor: str = ""
    silent: Callable[[RobotModel], str] = lambda model: ""


def lint(model: RobotModel, profile: Profile) -> list[Finding]:
    """Return the findings of `profile` about `model`, errors first, then in the order of the rules. A listed exception
    makes a finding an info with its reason. A common prefix is an info, in the findings' names, not in messages."""
    prefix = common_prefix(model, profile.anchor)
    names = prefixed_names(model, prefix)
    plain = model.renamed(*({old: old.removeprefix(prefix) for old in each} for each in names)) if prefix else model
    if why := profile.silent(plain):
        return [info(SILENT, model.root, f"the {profile.title} do not mention it: {why}")]
    findings = []
    for finding in (each for rule in profile.rules for each in rule(plain)):
        reason = next((each.reason for each in profile.exemptions if each.covers(finding)), None)
        if reason is not None and finding.level != INFO:
            excused = f"{finding.message}; listed exception: {reason}"
            finding = replace(finding, level=INFO, message=excused, fix="none needed")
        findings.append(finding)
    if prefix:
        findings = [each if each.name in model.joints else replace(each, name=prefix + each.name) for each in findings]
        findings += [info("prefix", prefix + profile.anchor, f"all names begin with '{prefix}', which messages omit")]
    return by_level(findings)


def by_level(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def common_prefix(model: RobotModel, anchor: str) -> str:
    """Return the text before every link's name and before `anchor` in one of them; empty if there is none."""
    if not anchor or anchor in model.links:
        return ""
    found = [link.removesuffix(anchor) for link in model.links if link.endswith(anchor)]
    return next((each for each in sorted(found, key=len) if all(link.startswith(each) for link in model.links)), "")


def prefixed_names(model: RobotModel, prefix: str) -> tuple[list[str], list[str]]:
    """Return the links and the joints that carry `prefix`: all links, and all joints or none."""
    joints = list(model.joints)
    return list(model.links), joints if all(name.startswith(prefix) for name in joints) else []


def has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.is_error for finding in findings)


def not_fixed(model: RobotModel, link: str, rule: str) -> Iterator[Finding]:
    """Yield a finding if the joint above a frame moves it."""
    joint = model.parent_joints.get(link)
    if joint is not None and joint.variables:
        yield error(rule, link, f"its joint {joint.name} is {joint.type}", "make it fixed")
