"""A finding: something that a user should know of a result."""

MORE_SURFACES = "turn the robot or move it to where more surfaces face that way"
OF_ALL_PLACES = ("unobserved", "little_support")
"""Codes of findings that depend on all standing places together: another one may cure them."""
ANOTHER_PLACE_MAY = "another standing place may determine it"
"""Begins the line in which the alignment says that one may cure all findings."""


class Finding(str):
    """One line: `sentence`, then `remedy`, "" if nothing has to be done.

    `code` names the kind of finding and stays the same from release to release.
    """

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
        """Return the same, at one place."""
        return Finding(self.code, f"{self.sentence} ({place})", self.remedy)


def coded(sentence: str) -> Finding:
    """Return a method's warning or refusal as a finding; one without a code gets the code "other"."""
    return sentence if isinstance(sentence, Finding) else Finding("other", sentence)
