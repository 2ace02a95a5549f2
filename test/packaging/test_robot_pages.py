"""The pages for a robot: the commands of "Calibrating the robot" take what is printed behind them, those of "Your own
robot in fifteen minutes" work as printed. The first block there fetches a description from the package index; here a
small robot of the same kind, as a CAD export would have it (frames anyhow, no footprint, a telescope of several
joints), takes its place under its name."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from described_robots import joint, link

from stretch_sim_cal import files
from stretch_sim_cal.cli import build_parser
from stretch_sim_cal.commands import calibrate_robot
from stretch_sim_cal.harness.processes import own_domain
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


@pytest.mark.parametrize("page", ["on_the_robot.md", "watch.md", "your_own_robot.md"])
def test_its_commands_take_what_is_printed_behind_them(page):
    assert len((DOCS / "on_the_robot.md").read_text().split()) <= LONGEST
    commands = printed(page)
    assert len(commands) >= 2
    for command in commands:
        parse(command)


PAGE = (files.share_directory() / "docs" / "your_own_robot.md").read_text()
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.S)
FETCHED = "my_robot/stretch_description_SE3_eoa_wrist_dw3_tool_nil.urdf"


def part(name: str, size: str, xyz: str = "0 0 0") -> str:
    return link(name, f'<collision><origin xyz="{xyz}"/><geometry><box size="{size}"/></geometry></collision>')


def limit(lower: float, upper: float) -> str:
    return f'<limit lower="{lower}" upper="{upper}" velocity="1" effort="100"/>'


def cad_export() -> str:
    """A base with a mast, a lift, a telescope to its right, and a hand; x of the lift's
    frame is along the telescope."""
    parts = [
        part("base_link", "0.34 0.33 0.15", "-0.1 0 0.085"), part("link_mast", "0.06 0.06 1.2", "0 0 0.6"),
        joint("joint_mast", "base_link", "link_mast", xyz="-0.07 0.13 0.1"), part("link_lift", "0.10 0.12 0.12"),
        joint("joint_lift", "link_mast", "link_lift", "prismatic", "0 -0.10 0.1", "0 0 -1.5707963", limit=limit(0, 1)),
    ]  # fmt: skip
    above, place = "link_lift", "0.11 0 0"
    for number in (3, 2, 1, 0):
        name = f"link_arm_l{number}"
        parts.append(part(name, "0.10 0.05 0.05"))
        slide = {"axis": "1 0 0", "limit": limit(0, 0.13)}
        parts.append(joint(f"joint_arm_l{number}", above, name, "prismatic", place, **slide))
        above, place = name, "0.015 0 0"
    turn = {"rpy": "3.1415927 0 0", "limit": limit(-1.4, 1.4)}
    parts.append(part("link_hand", "0.24 0.06 0.06", "0.14 0 0"))
    parts.append(joint("joint_wrist_yaw", above, "link_hand", "revolute", "0.08 0 0", **turn))
    return f'<robot name="stretch">{"".join(parts)}</robot>'


def run(block: str, folder: Path) -> subprocess.CompletedProcess:
    with own_domain() as domain:
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "ROS_DOMAIN_ID": str(domain), "XDG_CACHE_HOME": str(folder / "cache"),
        }  # fmt: skip
        return subprocess.run(["bash", "-euc", block], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def followed(tmp_path_factory) -> tuple[Path, list[subprocess.CompletedProcess]]:
    folder = tmp_path_factory.mktemp("page")
    (folder / FETCHED).parent.mkdir()
    (folder / FETCHED).write_text(cad_export())
    done = []
    for block in BLOCKS[1:]:
        done.append(run(block, folder))
        assert done[-1].returncode == 0, f"{block}\n{done[-1].stdout}\n{done[-1].stderr}"
    return folder, done


def test_the_first_block_brings_what_the_others_start_from():
    assert "hello-robot-stretch-urdf" in BLOCKS[0] and "SE3 my_robot" in BLOCKS[0]
    assert Path(FETCHED).name in BLOCKS[1]


@pytest.mark.long
def test_the_profile_is_guessed_and_says_what_is_open(followed):
    folder, done = followed
    profile = yaml.safe_load((folder / "my_robot.yaml").read_text())
    assert profile["joints"]["arm"]["parts"] == [f"joint_arm_l{number}" for number in (3, 2, 1, 0)]
    assert profile["shape_joints"] == ["arm", "wrist_yaw"]
    for told in ("footprint_frame", "topic", "telescope", "stow"):
        assert any(told in line for line in done[1].stdout.splitlines() if line.startswith("open: "))
    assert "plan quick: 4 of 4 poses can be reached from the stowed one" in done[1].stdout


@pytest.mark.long
def test_it_is_simulated_and_calibrated(followed):
    folder, _ = followed
    result = json.loads((folder / "out" / "my_scenario" / "result.json").read_text())
    assert all(part["passed"] for part in (result, *(result[stage] for stage in ("alignment", "floor", "body_shape"))))
    assert any("convention: none" in note for note in result["notes"])


@pytest.mark.long
def test_a_recording_is_calibrated_without_ros(followed):
    folder, done = followed
    calibration = yaml.safe_load((folder / "calibration.yaml").read_text())
    assert {"right_to_left_transform", "floor_to_base_link_transform"} <= set(calibration)
    assert "accepted: alignment and floor" in done[-1].stdout
