"""What a convention is made of: rules that look at a model and give findings, and the exceptions listed for it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from stretch_sim_cal.robot.model import RobotModel

ERROR, WARNING, INFO = "error", "warning", "info"
LEVELS = (ERROR, WARNING, INFO)


@dataclass(frozen=True)
class Finding:
    """One departure from a rule: which, how bad, of which link or joint, what is wrong with its numbers, what is right.

    `measured` is the number that an exception's `up_to` is held against (an angle in deg); None where there is none.
    """

    rule: str
    level: str
    name: str
    message: str
    fix: str
    measured: float | None = field(default=None, compare=False)

    def as_dict(self) -> dict[str, str]:
        """Return what `--json` prints of it."""
        return {"rule": self.rule, "level": self.level, "name": self.name, "message": self.message, "fix": self.fix}


@dataclass(frozen=True)
class Rule:
    """One rule: a short name, its sentence, and a function that yields a finding for each departure from it."""

    name: str
    sentence: str
    check: Callable[[RobotModel], Iterable[Finding]] = field(repr=False)


@dataclass(frozen=True)
class Exemption:
    """Departures that are known and accepted: by rule, by name (a shell pattern), each with its reason.

    `up_to` limits it to findings that measured at most that much, `at_least` to such that measured at least that much.
    """

    rule: str
    names: str
    reason: str
    up_to: float | None = None
    at_least: float | None = None

    def covers(self, finding: Finding) -> bool:
        """Return whether `finding` is such a departure."""
        if finding.rule != self.rule or not fnmatchcase(finding.name, self.names):
            return False
        if self.up_to is None and self.at_least is None:
            return True
        if finding.measured is None:
            return False
        return (self.at_least is None or finding.measured >= self.at_least) and (
            self.up_to is None or finding.measured <= self.up_to
        )


@dataclass(frozen=True)
class Profile:
    """A convention: its rules, the exceptions to them with their reasons, and the link (`anchor`) that tells a prefix.

    A robot whose links are all named with one prefix before the convention's names is held against the convention
    without it: `left_base_link` is the anchor `base_link` with the prefix `left_`.
    """

    name: str
    title: str
    rules: tuple[Rule, ...]
    exemptions: tuple[Exemption, ...] = ()
    anchor: str = ""


def lint(model: RobotModel, profile: Profile) -> list[Finding]:
    """Return what `profile` finds in `model`, errors first, then in the order of the rules.

    A finding that a listed exception covers becomes an info that says the exception's reason. A prefix that all names
    have (see `Profile`) is an info; the findings' names have it, their messages do not.
    """
    prefix = common_prefix(model, profile.anchor)
    plain = without_prefix(model, prefix)
    findings = [_excused(finding, profile) for rule in profile.rules for finding in rule.check(plain)]
    if prefix:
        findings = [each if each.name in model.joints else replace(each, name=prefix + each.name) for each in findings]
        message = f"all names begin with '{prefix}', which messages leave out"
        findings.append(Finding("prefix", INFO, prefix + profile.anchor, message, "none needed"))
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def common_prefix(model: RobotModel, anchor: str) -> str:
    """Return what stands before every link's name and before `anchor` in one of them; nothing if there is no such."""
    if not anchor or anchor in model.links:
        return ""
    found = [link.removesuffix(anchor) for link in model.links if link.endswith(anchor)]
    return next((each for each in sorted(found, key=len) if all(link.startswith(each) for link in model.links)), "")


def without_prefix(model: RobotModel, prefix: str) -> RobotModel:
    """Return the model with `prefix` taken off its links, and off its joints if all of them have it."""
    if not prefix:
        return model
    return model.renamed(*({old: old.removeprefix(prefix) for old in names} for names in prefixed_names(model, prefix)))


def prefixed_names(model: RobotModel, prefix: str) -> tuple[list[str], list[str]]:
    """Return the links and the joints that carry `prefix`: all links, and all joints or none."""
    joints = list(model.joints)
    return list(model.links), joints if all(name.startswith(prefix) for name in joints) else []


def _excused(finding: Finding, profile: Profile) -> Finding:
    if finding.level == INFO:
        return finding
    reason = next((each.reason for each in profile.exemptions if each.covers(finding)), None)
    if reason is None:
        return finding
    return replace(finding, level=INFO, message=f"{finding.message}; listed exception: {reason}", fix="none needed")


def has_errors(findings: Iterable[Finding]) -> bool:
    """Return whether any finding is an error."""
    return any(finding.level == ERROR for finding in findings)
