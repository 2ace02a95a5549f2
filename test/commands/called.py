"""Commands run in this process, for tests and for fixtures that a module shares, and files that are edited for them."""

import contextlib
import io

from stretch_sim_cal import cli
from stretch_sim_cal.files import read_yaml, write_yaml


def called(*arguments, code: int | None = None) -> tuple[int, str, str]:
    """Run a command and return its exit code, which is `code` if that is given, and what it writes to stdout and
    stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = cli.main([str(argument) for argument in arguments])
    assert code in (None, found), err.getvalue()
    return found, out.getvalue(), err.getvalue()


def edited(path, change, name="edited.yaml"):
    """Write a YAML file, changed, beside it, and return that."""
    data = read_yaml(path)
    change(data)
    write_yaml(path.with_name(name), data)
    return path.with_name(name)
