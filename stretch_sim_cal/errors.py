"""The errors a user can meet, each with the exit code that its command ends with.

Every message is one line that says what is wrong, where, and what to do about it.
"""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: object, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the end of a message about the unknown `name`: the known one that is most like it, or nothing if none has
    a similarity (0 to 1, of `difflib`) of at least `cutoff`."""
    return "".join(f"; did you mean {near}?" for near in get_close_matches(str(name), list(known), 1, cutoff))


class StretchSimCalError(Exception):
    """Base of every error that is meant for the user."""

    exit_code = 2


class InputError(StretchSimCalError):
    """Input that cannot be used: a missing or truncated file, an unknown name, a wrong shape."""

    exit_code = 2


class Refused(StretchSimCalError):
    """Rejected: the data does not support a result, or a rule is broken."""

    exit_code = 1


class RunFailure(StretchSimCalError):
    """A process crashed, a topic stayed silent, or time ran out."""

    exit_code = 3
