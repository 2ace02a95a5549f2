"""`stretch-sim-cal`: one command with sub-commands. Parses, calls, and turns errors into exit codes."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from stretch_sim_cal import __version__, command

COMMANDS = (
    "demo", "run", "sim", "calibrate", "sensor", "verify", "check", "export", "fk", "mobility", "workspace", "doctor", "lint", "normalize",
)  # fmt: skip


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with every sub-command; each module of `commands/` describes its own."""
    parser = argparse.ArgumentParser(
        prog="stretch-sim-cal",
        description="Calibrate a mobile manipulator's two lidars, and prove it in simulation first.",
        epilog="example: stretch-sim-cal demo",
    )
    parser.add_argument("--version", action="version", version=f"stretch-sim-cal {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f"stretch_sim_cal.commands.{name}")
        subparser = subparsers.add_parser(
            module.NAME, help=module.HELP, description=module.HELP, epilog=f"example: {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command and return its exit code."""
    return command.run(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int | None:
    parsed = build_parser().parse_args(arguments)
    return parsed.run(parsed)


if __name__ == "__main__":
    sys.exit(main())
