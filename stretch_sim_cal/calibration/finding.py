"""A finding: one line about a result for its user."""

from dataclasses import dataclass, field
from typing import Any

MORE_SURFACES = "turn the robot or move it to where more surfaces face that way"
OF_ALL_PLACES = ("unobserved", "little_support")
"""Codes of findings about all stations together, which another station may resolve."""
ANOTHER_PLACE_MAY = "another standing place may determine it"
"""Begins the alignment's line that another station may resolve all findings."""


class Finding(str):
    """`sentence`, then `remedy`, "" if nothing has to be done. The `code` stays the same from release to release."""

    code: str
    sentence: str
    remedy: str

    def __new__(cls, code: str, sentence: str, remedy: str = "") -> "Finding":
        finding = super().__new__(cls, f"{sentence}; {remedy}" if remedy else sentence)
        finding.code, finding.sentence, finding.remedy = code, sentence, remedy
        return finding

    def __getnewargs__(self) -> tuple[str, str, str]:
        return self.code, self.sentence, self.remedy

    def as_json(self) -> dict[str, str]:
        """Return the finding for machines."""
        return {"code": self.code, "sentence": self.sentence, "remedy": self.remedy}

    def at(self, place: str) -> "Finding":
        """Return the same finding of one place."""
        return Finding(self.code, f"{self.sentence} ({place})", self.remedy)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A result that must not be written if it has `refusals`; `diagnostics` are further figures by name."""

    warnings: list[Any] = field(default_factory=list)
    refusals: list[Any] = field(default_factory=list)
    diagnostics: dict[str, float] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether the data supports the result."""
        return not self.refusals


def when(condition: bool, code: str, sentence: str, remedy: str = "") -> list[Finding]:
    """Return the finding if the condition holds, else none."""
    return [Finding(code, sentence, remedy)] if condition else []


def coded(sentence: str) -> Finding:
    """Return a method's warning or refusal as a finding; one without a code gets the code "other"."""
    return sentence if isinstance(sentence, Finding) else Finding("other", sentence)
