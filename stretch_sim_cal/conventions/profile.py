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
    """A convention: its rules, and the exceptions to them with their reasons."""

    name: str
    title: str
    rules: tuple[Rule, ...]
    exemptions: tuple[Exemption, ...] = ()


def lint(model: RobotModel, profile: Profile) -> list[Finding]:
    """Return what `profile` finds in `model`, errors first, then in the order of the rules.

    A finding that a listed exception covers becomes an info that says the exception's reason.
    """
    findings = [_excused(finding, profile) for rule in profile.rules for finding in rule.check(model)]
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


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
