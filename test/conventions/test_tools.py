"""Tools by themselves: the vendor's keep the convention, a crooked one comes back, and what is no tool is refused."""

import json

import pytest

from stretch_sim_cal.cli import main
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.robot.stretch import vendor_folder

TOOLS = sorted((vendor_folder() / "SE4_tools").glob("*/*.urdf"), key=lambda path: path.parent.name)
GRIPPER = next(path for path in TOOLS if path.parent.name == "eoa_wrist_dw4_tool_sg4")


@pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.parent.name)
def test_the_vendors_tools_keep_the_convention_by_themselves(tool, capsys):
    assert main(["lint", "--as", "tool", str(tool)]) == 0
    assert "keeps the Stretch URDF conventions (0 errors, 0 warnings" in capsys.readouterr().out


def own(tmp_path, name="own.urdf", **changes):
    text = GRIPPER.read_text().replace("$(arg tool_mesh_dir)", f"file://{GRIPPER.parent / 'meshes'}")
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / name
    path.write_text(text)
    return path


GRASP = ("grasp_center_link", "where_it_grasps")


def test_a_tool_whose_grasp_centre_has_another_name_is_told_and_put_right_with_a_rename(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tool = own(tmp_path, grasp=GRASP)
    assert main(["lint", "--as", "tool", str(tool)]) == 1
    assert "grasp" in capsys.readouterr().out
    arguments = ["normalize", "--as", "tool", str(tool), "--out", str(tmp_path / "normal"), "--json"]
    assert main([*arguments, "--rename", "where_it_grasps=grasp_center_link"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["renamed"]["where_it_grasps"] == "grasp_center_link" and answer["largest_departure"] < 1e-9
    assert main(["lint", "--as", "tool", str(tmp_path / "normal" / "own.urdf")]) == 0
    capsys.readouterr()
    robot = ["stretch4", "--arg", "tool=eoa_wrist_dw4_tool_nil", "--tool", str(tmp_path / "normal" / "own.urdf")]
    assert main(["normalize", *robot, "--out", str(tmp_path / "robot")]) == 0
    spawned = spawned_robot(named_robot("stretch4", tool=str(tmp_path / "normal" / "own.urdf")))
    assert "grasp_center_link" in spawned.model.links


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["stretch4"], "--as tool: is for the URDF of a tool"),
        ([str(GRIPPER), "--profile", "rep199"], "--as tool: is for the URDF of a tool"),
    ],
)
def test_what_is_no_tool_is_refused_with_one_line(arguments, told, capsys):
    assert main(["lint", "--as", "tool", *arguments]) == 2
    assert told in capsys.readouterr().err
