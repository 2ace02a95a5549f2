"""The page "Your own robot in fifteen minutes": its commands work as printed.

The first block fetches a description from the package index; here a small robot of the same kind, as a CAD export would
have it (frames anyhow, no footprint, a telescope of several joints), takes its place under its name.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stretch_sim_cal import files
from stretch_sim_cal.harness.processes import own_domain

PAGE = (files.share_directory() / "docs" / "your_own_robot.md").read_text()
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.S)
FETCHED = "my_robot/stretch_description_SE3_eoa_wrist_dw3_tool_nil.urdf"


def part(name: str, size: str, xyz: str = "0 0 0") -> str:
    shape = f'<collision><origin xyz="{xyz}"/><geometry><box size="{size}"/></geometry></collision>'
    return f'<link name="{name}">{shape}</link>'


def bolt(
    name: str, parent: str, child: str, kind: str, xyz: str, rpy: str = "0 0 0", axis: str = "0 0 1", limit: str = ""
) -> str:
    bounds = f'<limit {limit} velocity="1" effort="100"/>' if limit else ""
    return (
        f'<joint name="{name}" type="{kind}"><origin xyz="{xyz}" rpy="{rpy}"/><parent link="{parent}"/>'
        f'<child link="{child}"/><axis xyz="{axis}"/>{bounds}</joint>'
    )


def cad_export() -> str:
    """A base with a mast, a lift, a telescope to its right, and a hand; x of the lift's
    frame is along the telescope."""
    parts = [part("base_link", "0.34 0.33 0.15", "-0.1 0 0.085"), part("link_mast", "0.06 0.06 1.2", "0 0 0.6")]
    parts += [bolt("joint_mast", "base_link", "link_mast", "fixed", "-0.07 0.13 0.1")]
    parts += [part("link_lift", "0.10 0.12 0.12"), bolt(
        "joint_lift", "link_mast", "link_lift", "prismatic", "0 -0.10 0.1", "0 0 -1.5707963", "0 0 1",
        'lower="0" upper="1.0"'
    )]  # fmt: skip
    above, place = "link_lift", "0.11 0 0"
    for number in (3, 2, 1, 0):
        parts.append(part(f"link_arm_l{number}", "0.10 0.05 0.05"))
        parts.append(bolt(
            f"joint_arm_l{number}", above, f"link_arm_l{number}", "prismatic", place, axis="1 0 0",
            limit='lower="0" upper="0.13"'
        ))  # fmt: skip
        above, place = f"link_arm_l{number}", "0.015 0 0"
    parts += [part("link_hand", "0.24 0.06 0.06", "0.14 0 0"), bolt(
        "joint_wrist_yaw", above, "link_hand", "revolute", "0.08 0 0", "3.1415927 0 0", limit='lower="-1.4" upper="1.4"'
    )]  # fmt: skip
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
    assert (
        result["passed"]
        and result["alignment"]["passed"]
        and result["floor"]["passed"]
        and result["body_shape"]["passed"]
    )
    assert any("convention: none" in note for note in result["notes"])


@pytest.mark.long
def test_a_recording_is_calibrated_without_ros(followed):
    folder, done = followed
    calibration = yaml.safe_load((folder / "calibration.yaml").read_text())
    assert {"right_to_left_transform", "floor_to_base_link_transform"} <= set(calibration)
    assert "accepted: alignment and floor" in done[-1].stdout
