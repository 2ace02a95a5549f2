"""`stretch-sim-cal sim`: only the simulator, to try nodes against by hand, or to record."""

import argparse

from stretch_sim_cal.ros.node_commands import SIMULATOR
from stretch_sim_cal.ros.node_main import add_to_parser, run_node

EXAMPLE = "stretch-sim-cal sim --world furnished_room --real-time-factor 1 --record my_bag --duration 20"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: those of `stretch_simulator`."""
    add_to_parser(parser, SIMULATOR.options)


def run(args: argparse.Namespace) -> int:
    """Run the simulator in this process."""
    from stretch_sim_cal.ros.simulator_node import simulate

    given = {option.name: getattr(args, option.name) for option in SIMULATOR.options}
    return run_node(SIMULATOR, simulate, [f"--{name}={value}" for name, value in given.items() if value is not None])
