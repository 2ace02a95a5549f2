"""Commands run in this process, for tests and for fixtures that a module shares."""

import contextlib
import io

from stretch_sim_cal import cli


def called(*arguments) -> tuple[int, str, str]:
    """Run a command and return its exit code and what it writes to stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()
