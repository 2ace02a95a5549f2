"""`stretch-sim-cal demo`: one scenario from start to verdict on the embedded simulator, with a report."""

import argparse

from stretch_sim_cal.commands import run as run_command

EXAMPLE = "stretch-sim-cal demo --seed 7 --mount-errors 20 2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    run_command.add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the demo's scenario."""
    args.scenarios = ["furnished_room"]
    return run_command.run(args)
