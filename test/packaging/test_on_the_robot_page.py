"""The page "Calibrating the robot": a page, whose commands are commands that take what is printed behind them."""

import argparse
import re
import shlex

import pytest

from stretch_sim_cal import files
from stretch_sim_cal.cli import build_parser
from stretch_sim_cal.commands import calibrate_robot
from stretch_sim_cal.ros.node_commands import NODE_COMMANDS
from stretch_sim_cal.ros.options import split_arguments

DOCS = files.share_directory() / "docs"
LONGEST = 780  # words that somebody reads who stands beside the robot
OURS = re.compile(r"(ros_\w+|stretch_simulator|stretch-sim-cal|fit_body_shape_model)\b")


def printed(page: str) -> list[str]:
    """Return the commands of ours in a page: the lines of its blocks, and what it quotes with options."""
    text = (DOCS / page).read_text()
    lines = [line for block in re.findall(r"```bash\n(.*?)```", text, flags=re.S) for line in block.splitlines()]
    lines += [quoted for quoted in re.findall(r"`([^`\n]+ --[^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))]
    return [line.split("#")[0].strip() for line in lines if OURS.match(line)]


def parse(command: str) -> argparse.Namespace:
    """Parse a command as the program does. Raises `SystemExit` if it does not take it."""
    program, *arguments = shlex.split(command)
    if program == "stretch-sim-cal":
        return build_parser().parse_args(arguments)
    if program == "ros_calibrate_robot":
        parser = argparse.ArgumentParser()
        calibrate_robot.add_arguments(parser)
        return parser.parse_args(arguments)
    own, for_ros = split_arguments(arguments)
    command = NODE_COMMANDS[program]
    for given in re.findall(r"-p (\w+):=", " ".join(for_ros)):
        assert given in {"use_sim_time", *(option.name for option in command.options)}, given
    return command.parser().parse_args(own)


def test_it_is_one_page():
    assert len((DOCS / "on_the_robot.md").read_text().split()) <= LONGEST


@pytest.mark.parametrize("page", ["on_the_robot.md", "watch.md", "your_own_robot.md"])
def test_its_commands_take_what_is_printed_behind_them(page):
    commands = printed(page)
    assert len(commands) >= 2
    for command in commands:
        parse(command)


def test_an_option_that_is_not_there_is_noticed():
    with pytest.raises(SystemExit):
        parse("ros_calibrate_robot --form floor")
    with pytest.raises(AssertionError):
        parse("ros_watch_calibration --ros-args -p sensors:=jt128")
