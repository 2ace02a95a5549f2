"""`stretch-sim-cal lint` and `normalize`: their exit codes, text, JSON and files, never half of them; tools by
themselves, of which the vendor's keep the convention and a crooked one comes back."""

import json
import os

import numpy as np
import pytest
import yaml

from stretch_sim_cal import cli
from stretch_sim_cal.conventions import PROFILES
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.stretch import nominal_description, vendor_folder

TOOLS = sorted((vendor_folder() / "SE4_tools").glob("*/*.urdf"), key=lambda path: path.parent.name)
GRIPPER = next(path for path in TOOLS if path.parent.name == "eoa_wrist_dw4_tool_sg4")


def lint(*arguments) -> int:
    return cli.main(["lint", *map(str, arguments)])


def normalize(*arguments) -> int:
    return cli.main(["normalize", *map(str, arguments)])


@pytest.fixture
def crooked(tmp_path):
    path = tmp_path / "crooked.urdf"
    text = nominal_description().replace('<joint name="lift_joint"', '<joint name="lift"', 1)
    path.write_text(text)
    return path


def test_a_model_that_keeps_the_profile_ends_with_0(capsys):
    assert lint("stretch4", "--profile", "stretch", "--quiet") == 0
    assert capsys.readouterr().out.strip() == (
        "stretch4: keeps the Stretch URDF conventions (0 errors, 0 warnings, 22 infos)"
    )  # fmt: skip


def test_a_broken_rule_ends_with_1_and_says_what_would_be_right(crooked, capsys):
    assert lint(crooked, "--profile", "stretch") == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("error") and "joint 'lift' does not end in _joint; call it lift_joint" in first


def test_json_holds_the_profile_the_model_and_every_finding(crooked, capsys):
    assert lint(crooked, "--profile", "stretch", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["profile"], answer["model"]) == ("stretch", str(crooked))
    assert all(set(finding) == {"rule", "level", "name", "message", "fix"} for finding in answer["findings"])
    assert [finding["name"] for finding in answer["findings"] if finding["level"] == "error"] == ["lift"]


def test_the_other_profiles_find_the_stretch_to_be_another_kind_of_robot(capsys):
    assert lint("stretch4", "--profile", "rep199") == 1
    assert lint("stretch4", "--profile", "icub") == 1
    assert "iCub" in capsys.readouterr().out


def test_what_cannot_be_read_ends_with_2(tmp_path, capsys):
    torn = tmp_path / "torn.urdf"
    torn.write_text("<robot name='a'><link>")
    for arguments, said in (
        ((torn,), "torn.urdf"),
        (("missing.urdf",), "missing.urdf"),
        (("stretch4", "--profile", "nao"), "nao"),
    ):
        assert lint(*arguments) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(("name", "read"), [("lint", ""), ("normalize", "a URDF or xacro file")])
def test_the_help_names_every_profile_and_the_files_that_are_read(name, read, capsys):
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ", ".join(PROFILES) in shown and read in shown


@pytest.fixture
def export(tmp_path):
    """The vendor's model with a lift that counts downwards and a mast without suffix."""
    text = nominal_description()
    lift = text.index('<joint name="lift_joint"')
    turned = (
        text[lift:]
        .replace('xyz="0 0 1"', 'xyz="0 0 -1"', 1)
        .replace('lower="0" upper="1.2"', 'lower="-1.2" upper="0"', 1)
    )
    assert turned != text[lift:]
    path = tmp_path / "export.urdf"
    path.write_text((text[:lift] + turned).replace('"mast_link"', '"mast"'))
    return path


def test_an_export_is_normalized_with_its_mapping_and_report(export, tmp_path, capsys):
    out = tmp_path / "out"
    assert normalize(export, "--out", out) == 0
    said = capsys.readouterr().out
    assert "warning: lift_joint now has its positive direction reversed: check its motor's polarity" in said
    assert sorted(path.name for path in out.iterdir()) == [
        "changes.md",
        "joint_mapping.yaml",
        "stretch.urdf.xacro",
        "tool.tool.xacro",
    ]
    mapping = yaml.safe_load((out / "joint_mapping.yaml").read_text())
    assert mapping["joints"]["lift_joint"] == {"name": "lift_joint", "sign": -1, "offset": 0.0}
    assert mapping["links"]["mast"]["name"] == "mast_link"
    assert "lift_joint" in (out / "changes.md").read_text()
    assert load_model(out / "stretch.urdf.xacro").joints["lift_joint"].axis.tolist() == [0, 0, 1]
    assert normalize(export, "--out", tmp_path / "again", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["renamed"] == {"mast": "mast_link"} and answer["joints"]["lift_joint"]["sign"] == -1
    assert answer["largest_departure"] <= 1e-9 and not answer["unchanged"]


def test_its_own_output_stays_as_it_is(export, tmp_path, capsys):
    assert normalize(export, "--out", tmp_path / "first") == 0
    assert normalize(tmp_path / "first" / "stretch.urdf.xacro", "--out", tmp_path / "second") == 0
    assert "nothing had to be changed" in capsys.readouterr().out
    for name in ("stretch.urdf.xacro", "tool.tool.xacro"):
        assert (tmp_path / "second" / name).read_text() == (tmp_path / "first" / name).read_text()


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A robot in /robot whose meshes lie in packages, and a tool whose mesh does; the test works in their folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my meshes"
    folder.mkdir()
    for name in ("a b.stl", "claw.stl", "wood.png"):
        (folder / name).write_text(name)

    def mesh(package: str, file: str) -> str:
        return f'<visual><geometry><mesh filename="package://{package}/{file}"/></geometry></visual>'

    bare = nominal_description("eoa_wrist_dw4_tool_nil")
    wood = '<material name="wood"><texture filename="package://shapes/wood.png"/></material>'
    part = f'<link name="thing">{mesh("shapes", "a b.stl")}</link><joint name="thing" type="fixed">'
    part += f'<parent link="base_link"/><child link="thing"/></joint>{wood}</robot>'
    (tmp_path / "robot.urdf").write_text(bare.replace("</robot>", part))
    (tmp_path / "claw.urdf").write_text(
        f'<robot name="claw"><link name="claw_link">{mesh("claws", "claw.stl")}</link></robot>'
    )
    return tmp_path


@pytest.mark.parametrize("folder", ["my meshes", "./my meshes", "~/my meshes"])
def test_meshes_of_packages_are_found_from_anywhere(packaged, folder, monkeypatch):
    monkeypatch.setenv("HOME", str(packaged))
    packages = ("--package", f"shapes={folder}", f"claws={folder}")
    assert normalize("robot.urdf", "--tool", "claw.urdf", "--out", "out", *packages) == 0
    elsewhere = packaged / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    main = packaged / "out" / "stretch.urdf.xacro"
    model = load_model(main)
    assert model.links["thing_link"].visuals[0].path.read_text() == "a b.stl"
    assert model.links["claw_link"].visuals[0].path.read_text() == "claw.stl"
    assert "/my%20meshes/wood.png" in main.read_text() and "package://" not in main.read_text()
    assert normalize(main, "--out", "again") == 0
    assert (elsewhere / "again" / main.name).read_text() == main.read_text()


def test_a_package_that_is_not_known_stays_and_one_that_is_not_used_is_an_error(packaged, capsys):
    assert normalize("robot.urdf", "--out", "out") == 0
    assert 'filename="package://shapes/a b.stl"' in (packaged / "out" / "stretch.urdf.xacro").read_text()
    assert normalize("robot.urdf", "--out", "other", "--package", "shape=my meshes") == 2
    assert "--package shape: neither a mesh nor a xacro uses it; did you mean shapes?" in capsys.readouterr().err
    assert not (packaged / "other").exists()


def test_what_no_rule_settles_is_left_and_told(tmp_path, capsys):
    path = tmp_path / "bare.urdf"
    path.write_text('<robot name="bare"><link name="thing"/></robot>')
    assert normalize(path, "--out", tmp_path / "out") == 1
    assert "left for you to decide" in capsys.readouterr().out
    assert "base-link" in (tmp_path / "out" / "changes.md").read_text()


def test_rep199_frames_come_from_options(tmp_path, capsys):
    path = tmp_path / "arm.urdf"
    limit = '<limit lower="-1" upper="1" effort="1" velocity="1"/>'
    path.write_text(
        '<robot name="arm"><link name="base_link"/><link name="link_1"/><joint name="joint_1" type="revolute">'
        '<parent link="base_link"/><child link="link_1"/><origin xyz="0.2 0 0.4"/><axis xyz="1 0 '
        f'0"/>{limit}</joint></robot>'
    )
    out = tmp_path / "out"
    assert (
        normalize(path, "--out", out, "--profile", "rep199", "--base", "0 0 0.33 0 0 0", "--flange", "0.1 0 0 0 0 0")
        == 0
    )
    model = load_model(out / "arm.urdf.xacro")
    assert model.parent_joints["flange"].parent_from_joint[0, 3] == 0.1
    assert model.parent_joints["tool0"].parent == "flange"


@pytest.fixture
def arm(tmp_path):
    """An arm of two joints whose links are not called link_n."""
    limit = '<limit lower="-1" upper="1" effort="1" velocity="1"/>'
    joints = "".join(
        f'<joint name="{child}_joint" type="revolute"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="0.2 0 0.4"/><axis xyz="1 0 0"/>{limit}</joint>'
        for parent, child in (("base_link", "shoulder"), ("shoulder", "elbow"))
    )
    path = tmp_path / "arm.urdf"
    path.write_text(
        f'<robot name="arm"><link name="base_link"/><link name="shoulder"/><link name="elbow"/>{joints}</robot>'
    )
    return path


def test_links_that_are_not_called_link_n_are_told_and_named_on_request(arm, tmp_path, capsys):
    assert normalize(arm, "--out", tmp_path / "kept", "--profile", "rep199") == 0
    said = capsys.readouterr().out
    assert "warning: shoulder: the 1st moving link from base_link is not called link_n; call it link_1" in said
    assert "--number-links names the links of an arm so" in said
    assert "call it link_2" in (tmp_path / "kept" / "changes.md").read_text()
    assert normalize(arm, "--out", tmp_path / "named", "--profile", "rep199", "--number-links") == 0
    assert "warning" not in capsys.readouterr().out
    assert {"link_1", "link_2"} <= set(load_model(tmp_path / "named" / "arm.urdf.xacro").links)


def test_a_link_whose_name_belongs_to_another_is_told(tmp_path, capsys):
    path = tmp_path / "swivel.urdf"
    wheel = nominal_description().index('<joint name="wheel_0_joint"')
    text = nominal_description()
    path.write_text(text[:wheel] + text[wheel:].replace('xyz="0 0 1"', 'xyz="0 1 0"', 1))
    assert normalize(path, "--out", tmp_path / "out") == 0
    assert "warning: wheel_0_link is now called other_wheel_0_link" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing.urdf",), "missing.urdf"),
        (("stretch4", "--profile", "nao"), "nao"),
        (("stretch4", "--base", "0 0 0 0 0 0"), "rep199"),
        (("stretch4", "--profile", "rep199", "--base", "0 0"), "six"),
        (("stretch4", "--number-links"), "rep199"),
        (("stretch4", "--zero", "lift_joint=high"), "high"),
        (("stretch4", "--zero", "lift_jiont=1"), "lift_joint"),
        (("stretch4", "--rename", "nose=ear"), "nose"),
        (("stretch4", "--tool", "missing.urdf"), "missing.urdf"),
    ],
)
def test_what_normalize_cannot_use_ends_with_2_and_leaves_no_file(arguments, said, tmp_path, capsys):
    assert normalize(*arguments, "--out", tmp_path / "out") == 2
    assert said in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.parent.name)
def test_the_vendors_tools_keep_the_convention_by_themselves(tool, capsys):
    assert lint("--as", "tool", tool) == 0
    assert "keeps the Stretch URDF conventions (0 errors, 0 warnings" in capsys.readouterr().out


def test_a_tool_whose_grasp_centre_has_another_name_is_told_and_put_right_with_a_rename(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = GRIPPER.read_text().replace("$(arg tool_mesh_dir)", f"file://{GRIPPER.parent / 'meshes'}")
    tool = tmp_path / "own.urdf"
    tool.write_text(text.replace("grasp_center_link", "where_it_grasps"))
    assert lint("--as", "tool", tool) == 1
    assert "grasp" in capsys.readouterr().out
    arguments = ("--as", "tool", tool, "--out", tmp_path / "normal", "--json")
    assert normalize(*arguments, "--rename", "where_it_grasps=grasp_center_link") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["renamed"]["where_it_grasps"] == "grasp_center_link" and answer["largest_departure"] < 1e-9
    assert lint("--as", "tool", tmp_path / "normal" / "own.urdf") == 0
    capsys.readouterr()
    robot = ("stretch4", "--arg", "tool=eoa_wrist_dw4_tool_nil", "--tool", tmp_path / "normal" / "own.urdf")
    assert normalize(*robot, "--out", tmp_path / "robot") == 0
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
    assert lint("--as", "tool", *arguments) == 2
    assert told in capsys.readouterr().err


def test_the_lidars_of_a_robot_that_is_no_stretch_stay_as_they_are_unless_asked(tmp_path, capsys):
    robot = tmp_path / "cart.urdf"
    lidars = "".join(
        f'<link name="lidar_{side}_link"/><joint name="lidar_{side}_joint" type="fixed"><parent link="base_link"/>'
        f'<child link="lidar_{side}_link"/><origin xyz="{x} {y} 0.5" rpy="0 0 {yaw}"/></joint>'
        for side, x, y, yaw in (("left", 0.3, 0.2, 0.7), ("right", -0.3, -0.2, -2.4))
    )  # level, z is the spin axis
    robot.write_text(
        '<robot name="cart"><link name="base_footprint"/><link name="base_link"/><joint name="base_ref" type="fixed">'
        f'<parent link="base_footprint"/><child link="base_link"/></joint>{lidars}</robot>'
    )
    frames = link_transforms(load_model(robot), {})
    for words, stays in (([], True), (["--guess-sensors"], False)):
        out = tmp_path / f"out{len(words)}"
        normalize(robot, "--out", out, *words)
        assert ("--guess-sensors" in capsys.readouterr().out) is stays
        now = link_transforms(load_model(next(out.glob("*.xacro"))), {})
        for side in ("left", "right"):
            name = f"lidar_{side}_link"
            assert np.allclose(now[name], frames[name]) is stays
