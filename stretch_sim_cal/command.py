"""Shared by all commands: how they end (an exit code, and one line on stderr instead of a
traceback), how their command line is parsed, and common options."""

import argparse
import contextlib
import errno
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from stretch_sim_cal.errors import InputError, Refused, StretchSimCalError, did_you_mean

CRASHED = 3
INTERRUPTED = 130
SIMILAR = 0.75
"""Of a misspelled option, whose dashes alone are like every other's."""
OPTION = re.compile(r"--[a-zA-Z][\w-]*|-[a-zA-Z]")
LISTED = re.compile(r"-[\d.][-+\d.e]*(,[-+\d.e]+)+")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def one_line(text: object) -> str:
    """Return `text` on a single line, white space folded."""
    return " ".join(str(text).split())


def warn(text: object) -> None:
    print(f"warning: {one_line(text)}", file=sys.stderr, flush=True)


def refuse(text: object) -> None:
    print(f"refused: {one_line(text)}", file=sys.stderr, flush=True)


def agreed(question: str) -> bool:
    """Return whether the user agrees, asked on standard error: standard output may go to a program. Ctrl-D ends as
    Ctrl-C does."""
    with contextlib.redirect_stdout(sys.stderr):
        while True:
            try:
                answer = input(f"{question} [yes/no] ").strip().lower()
            except EOFError:
                raise KeyboardInterrupt from None
            if answer in ("y", "yes", "n", "no"):
                return answer.startswith("y")


def show(args: Any, answer: Any, lines: Iterable[str], indent: int | None = 1) -> None:
    print(json.dumps(answer, indent=indent) if args.json else "\n".join(lines))


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def listed(values: Sequence[float], digits: int) -> str:
    """Return numbers as `1.00 2.00 3.00`."""
    return " ".join(f"{value:.{digits}f}" for value in values)


def enumerated(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def only_with(args: Any, names: Iterable[str], reader: str) -> None:
    """Raise `InputError` for a given option, of those `names`, that only a command with `reader` reads."""
    for name in names:
        if name in args.given:
            raise InputError(f"--{name.replace('_', '-')} applies only to {reader}")


def joined(arguments: Sequence[str]) -> list[str]:
    """Return a command line with lists of numbers such as -1,2 joined to their option, as argparse needs it."""
    found: list[str] = []
    for argument in arguments:
        if found and LISTED.fullmatch(argument) and found[-1].startswith("--") and "=" not in found[-1]:
            found[-1] += f"={argument}"
        else:
            found.append(argument)
    return found


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with the command, the argument and the cause, and the exit code of
    `InputError`; an unknown option comes first, since it is often why another one is missing."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args=None, namespace=None):
        """Parse as `parse_args` does: unknown arguments are this parser's errors, not those of the one above it. The
        result has the names of the arguments that were `given`, also of those that equal their defaults."""
        self._given, self._taken = sys.argv[1:] if args is None else list(args), set()
        parsed, unknown = super().parse_known_args(self._given, namespace)
        if unknown:
            self.error(f"unexpected argument{'s' * (len(unknown) > 1)}: {' '.join(unknown)}")
        parsed.given = self._taken | getattr(parsed, "given", set())  # those of a sub-command
        return parsed, unknown

    def _get_values(self, action, arg_strings):
        if action.option_strings or arg_strings:  # argparse asks for positionals without a value, too
            self._taken.add(action.dest)
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        if (option := self._unknown_option()) is not None:
            message = f"{option}: no such option{did_you_mean(option, self._option_string_actions, SIMILAR)}"
        said = one_line(message.removeprefix("argument "))
        self.exit(InputError.exit_code, f"error: {self.prog}: {said} (help: {self.prog} --help)\n")

    def _unknown_option(self) -> str | None:
        """Return the first of the given options that the parser does not have, up to a sub-command."""
        for argument in self._given:
            if argument == "--" or (self._subparsers is not None and not argument.startswith("-")):
                break
            option = argument.partition("=")[0]
            if OPTION.fullmatch(option) and not any(known.startswith(option) for known in self._option_string_actions):
                return option
        return None

    def _check_value(self, action, value):
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(value, map(str, action.choices))
            raise


def add_ci_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a command whose outcome a CI system reads."""
    variables = "with GITHUB_ACTIONS=true failures are annotated, and GITHUB_STEP_SUMMARY names a file to append to"
    group = parser.add_argument_group(f"for CI ({variables})")
    group.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML, with a test case for each result")
    group.add_argument("--summary", type=Path, metavar="FILE", help="write the tables of all results in Markdown")


@contextlib.contextmanager
def outcome_in(path: str | Path | None) -> Iterator[dict[str, Any]]:
    """A context that leaves the outcome of a program as JSON at `path`, if one is given, for the program that started
    it: what is filled in, and the error that ends the context."""
    from stretch_sim_cal.files import write_text  # YAML is not needed for --help

    if path:
        with contextlib.suppress(OSError):  # writing it says why
            Path(path).unlink()  # of an earlier run: a crash would leave it
    outcome: dict[str, Any] = {"accepted": True, "warnings": [], "refusals": [], "proposal": ""}
    try:
        yield outcome
    except StretchSimCalError as error:
        refusals = [{"code": "other", "sentence": one_line(error), "remedy": ""}]
        outcome |= {"refusals": refusals} if isinstance(error, Refused) else {"error": one_line(error)}
        outcome["accepted"] = False
        raise
    finally:
        error = sys.exception()
        if path and isinstance(error, StretchSimCalError | None):  # a crash is none
            with contextlib.suppress(InputError) if error else contextlib.nullcontext():
                write_text(path, json.dumps(outcome, indent=1) + "\n")


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """A context that SIGTERM ends as Ctrl-C does, so that nothing is left behind."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def run(action: Callable[[], int | None]) -> int:
    """Call `action` and return its exit code (None means 0), or that of its error. A `StretchSimCalError`, and a disk
    without room, becomes one line on stderr; Ctrl-C becomes 130. Any other exception is a defect (of ours, or of a
    plugged-in method): it shows its traceback and becomes 3, since Python's own 1 would read as a rejection."""
    try:
        code = action() or 0
        sys.stdout.flush()
        return code
    except StretchSimCalError as error:
        print(f"error: {one_line(error)}", file=sys.stderr, flush=True)
        return error.exit_code
    except BrokenPipeError:
        _no_more_output()  # whoever read it (`| head`) had enough
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            where = error.filename or "output"
            print(f"error: {where}: cannot be written: {error.strerror}", file=sys.stderr, flush=True)
            _no_more_output()
            return InputError.exit_code
        traceback.print_exc()
        return CRASHED


def _no_more_output() -> None:
    """Let Python have nothing to complain of when it flushes standard output at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
