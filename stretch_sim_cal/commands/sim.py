"""`stretch-sim-cal sim`: only the simulator, to try nodes against by hand, or to record."""

import argparse

from stretch_sim_cal.ros import simulator_node
from stretch_sim_cal.ros.parameters import add_to_parser

NAME = "sim"
HELP = "Simulate the Stretch's drivers (lidars, joints, frames, motion, time) until Ctrl-C."
EXAMPLE = "stretch-sim-cal sim --world furnished_room --real-time-factor 1 --record my_bag --duration 20"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: those of `stretch_simulator`."""
    add_to_parser(parser, simulator_node.OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Run the simulator in this process."""
    given = {option.name: getattr(args, option.name) for option in simulator_node.OPTIONS}
    return simulator_node.main([f"--{name}={value}" for name, value in given.items() if value is not None])
