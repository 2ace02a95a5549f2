"""`stretch-sim-cal lint` and `normalize`: their exit codes, text, JSON and files, also of tools and any robot."""

import json
from pathlib import Path

import numpy as np
import pytest
import trimesh
import yaml
from awkward_robot import PACKAGE, write_awkward_robot
from described_robots import added, edited, hung, joint, joint_set, link, renamed, robot, stretch_text

from stretch_sim_cal.cli import main
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.stretch import vendor_package

TOOLS = sorted(Path(vendor_package().__file__).parent.glob("SE4_tools/*/*.urdf"), key=lambda path: path.parent.name)
GRIPPER = next(path for path in TOOLS if path.parent.name == "eoa_wrist_dw4_tool_sg4")


def lint(*arguments) -> int:
    return main(["lint", *map(str, arguments)])


def normalize(*arguments) -> int:
    return main(["normalize", *map(str, arguments)])


def test_a_model_that_keeps_a_profile_ends_with_0_and_is_checked_against_it_without_its_name(capsys):
    assert lint("stretch4", "--profile", "stretch", "--quiet") == 0
    assert "keeps the Stretch URDF conventions (0 errors, 0 warnings, 22 infos)\n" in capsys.readouterr().out
    assert lint("stretch4", "--quiet") == 0
    out = capsys.readouterr().out
    assert "keeps the Stretch URDF conventions" in out and "lift_joint: its effort limit is 0" in out


def test_a_broken_rule_ends_with_1_and_says_what_would_be_right_and_json_holds_every_finding(tmp_path, capsys):
    crooked = tmp_path / "crooked.urdf"
    crooked.write_text(edited(stretch_text(), renamed("lift_joint", "lift")))
    assert lint(crooked, "--profile", "stretch") == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("error") and "joint 'lift' does not end in _joint; call it lift_joint" in first
    assert lint(crooked, "--profile", "stretch", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["profile"], answer["model"]) == ("stretch", str(crooked))
    assert all(set(finding) == {"rule", "level", "name", "message", "fix"} for finding in answer["findings"])
    assert [finding["name"] for finding in answer["findings"] if finding["level"] == "error"] == ["lift"]
    assert "info" in {finding["level"] for finding in answer["findings"]}
    assert lint(crooked, "--profile", "stretch", "--json", "--quiet") == 1
    assert "info" not in {finding["level"] for finding in json.loads(capsys.readouterr().out)["findings"]}


def test_an_export_is_normalized_with_its_mapping_and_report_and_stays_as_it_is_then(tmp_path, capsys):
    export, out, again = (tmp_path / name for name in ("export.urdf", "out", "again"))
    downwards = joint_set("lift_joint", axis="0 0 -1", lower="-1.2", upper="0")
    export.write_text(edited(stretch_text(), downwards, renamed("mast_link", "mast")))
    assert normalize(export, "--out", out, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["renamed"] == {"mast": "mast_link"} and answer["joints"]["lift_joint"]["sign"] == -1
    assert answer["largest_departure"] <= 1e-9 and not answer["unchanged"]
    assert normalize(export, "--out", out) == 0
    said = capsys.readouterr().out
    assert "warning: lift_joint now has its positive direction reversed: check its motor's polarity" in said
    robot = {"stretch.urdf.xacro", "tool.tool.xacro"}
    assert {path.name for path in out.iterdir()} == {"changes.md", "joint_mapping.yaml", *robot}
    mapping = yaml.safe_load((out / "joint_mapping.yaml").read_text())
    assert mapping["joints"]["lift_joint"] == {"name": "lift_joint", "sign": -1, "offset": 0.0}
    assert mapping["links"]["mast"]["name"] == "mast_link"
    assert "lift_joint" in (out / "changes.md").read_text()
    assert load_model(out / "stretch.urdf.xacro").joints["lift_joint"].axis.tolist() == [0, 0, 1]
    assert normalize(out / "stretch.urdf.xacro", "--out", again) == 0
    assert "nothing had to be changed" in capsys.readouterr().out
    assert all((again / name).read_text() == (out / name).read_text() for name in robot)


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A robot in /robot whose meshes lie in packages, and a tool whose mesh does; the test works in their folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my meshes"
    folder.mkdir()
    for name in ("a b.stl", "claw.stl", "wood.png"):
        (folder / name).write_text(name)

    def shown(name: str, file: str) -> str:
        return link(name, f'<visual><geometry><mesh filename="package://{file}"/></geometry></visual>')

    wood = '<material name="wood"><texture filename="package://shapes/wood.png"/></material>'
    thing = added(shown("thing", "shapes/a b.stl") + joint("thing", "base_link", "thing") + wood)
    (tmp_path / "robot.urdf").write_text(edited(stretch_text("eoa_wrist_dw4_tool_nil"), thing))
    (tmp_path / "claw.urdf").write_text(robot(shown("claw_link", "claws/claw.stl")))
    return tmp_path


@pytest.mark.parametrize("folder", ["my meshes", "~/my meshes"])
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
    path.write_text(robot(link("thing")))
    assert normalize(path, "--out", tmp_path / "out") == 1
    assert "left for you to decide" in capsys.readouterr().out
    assert "base-link" in (tmp_path / "out" / "changes.md").read_text()


@pytest.fixture
def arm(tmp_path):
    """An arm of two joints without a base frame, a flange or a tool0, whose links are not called link_n."""
    moving = {"kind": "revolute", "xyz": "0.2 0 0.4", "axis": "1 0 0"}
    parts = link("base_link") + hung("shoulder", "base_link", **moving) + hung("elbow", "shoulder", **moving)
    (tmp_path / "arm.urdf").write_text(robot(parts))
    return tmp_path / "arm.urdf"


def test_the_frames_and_numbers_of_rep199_come_from_options(arm, tmp_path, capsys):
    kept, named = tmp_path / "kept", tmp_path / "named"
    assert normalize(arm, "--out", kept, "--profile", "rep199") == 0
    said = capsys.readouterr().out
    assert "warning: shoulder: the 1st moving link from base_link is not called link_n; call it link_1" in said
    assert "--number-links names the links of an arm so" in said
    assert "call it link_2" in (kept / "changes.md").read_text()
    frames = ("--base", "0 0 0.33 0 0 0", "--flange", "0.1 0 0 0 0 0")
    assert normalize(arm, "--out", named, "--profile", "rep199", "--number-links", *frames) == 0
    assert "warning" not in capsys.readouterr().out
    model = load_model(named / "robot.urdf.xacro")
    assert {"link_1", "link_2"} <= set(model.links)
    assert model.parent_joints["base"].parent_from_joint[2, 3] == 0.33
    assert model.parent_joints["flange"].parent_from_joint[0, 3] == 0.1
    assert model.parent_joints["tool0"].parent == "flange"


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
    whole = ("stretch4", "--arg", "tool=eoa_wrist_dw4_tool_nil", "--tool", tmp_path / "normal" / "own.urdf")
    assert normalize(*whole, "--out", tmp_path / "robot") == 0
    spawned = spawned_robot(named_robot("stretch4", tool=str(tmp_path / "normal" / "own.urdf")))
    assert "grasp_center_link" in spawned.model.links


def test_the_options_of_a_tool_are_read_or_refused(tmp_path, capsys):
    tool = tmp_path / "own.urdf"
    tool.write_text(robot(link("a_link") + hung("camera_own_link", "a_link", rpy="0.7 0.8 0.2")))
    for number, (guess, code) in enumerate((([], 1), (["--guess-sensors"], 0))):
        assert normalize("--as", "tool", tool, "--out", tmp_path / str(number), *guess) == code
    assert normalize("--as", "tool", tool, "--out", tmp_path / "2", "--flange", "0 0 0 0 0 0") == 2
    assert "--flange applies only to --profile rep199" in capsys.readouterr().err
    assert lint("--as", "tool", tool, "--package", f"unused={tmp_path}") == 2


def test_two_processes_may_write_the_same_normal_form(arm, tmp_path, monkeypatch):
    once = Path.rename

    def later(path, target):
        target.mkdir()
        (target / "changes.md").write_text("by the other one")
        return once(path, target)

    monkeypatch.setattr(Path, "rename", later)
    assert normalize(arm, "--profile", "rep199", "--out", tmp_path / "out") == 0
    assert (tmp_path / "out" / "changes.md").read_text().startswith("# ")
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_the_lidars_of_a_robot_that_is_no_stretch_stay_as_they_are_unless_asked(tmp_path, capsys):
    parts = link("base_footprint") + hung("base_link", "base_footprint")
    # Level, z is the spin axis.
    for name, place, yaw in (("lidar_left_link", "0.3 0.2 0.5", 0.7), ("lidar_right_link", "-0.3 -0.2 0.5", -2.4)):
        parts += hung(name, "base_link", xyz=place, rpy=f"0 0 {yaw}")
    cart = tmp_path / "cart.urdf"
    cart.write_text(robot(parts))
    frames = link_transforms(load_model(cart), {})
    for words, stays in (([], True), (["--guess-sensors"], False)):
        out = tmp_path / f"out{len(words)}"
        normalize(cart, "--out", out, *words)
        assert ("--guess-sensors" in capsys.readouterr().out) is stays
        now = link_transforms(load_model(next(out.glob("*.xacro"))), {})
        for name in ("lidar_left_link", "lidar_right_link"):
            assert np.allclose(now[name], frames[name]) is stays


BOX = '<geometry><box size="0.1 0.1 0.1"/></geometry>'


def extra(content: str) -> tuple[str, str]:
    """Return an edit that hangs a link of this content on the base."""
    before = '<link name="cliff_front"/>'
    return before, f'{before}<link name="extra">{content}</link><xacro:fixed child="extra" xyz="0 0 0.5"/>'


def inertial(xx: float, yy: float, zz: float, mass: float = 1.0) -> str:
    moments = f'ixx="{xx}" ixy="0" ixz="0" iyy="{yy}" iyz="0" izz="{zz}"'
    return f'<inertial><mass value="{mass}"/><inertia {moments}/></inertial>'


def found(capsys, package, description, *arguments: str) -> tuple[int, str]:
    return lint(description, "--package", f"{PACKAGE}={package}", *arguments), capsys.readouterr().out


def test_a_robot_of_no_convention_is_clean(tmp_path, capsys):
    code, out = found(capsys, *write_awkward_robot(tmp_path))
    assert code == 0 and "(0 errors, 0 warnings, 0 infos)" in out and "arm_l0" not in out and "tool0" not in out


LIMIT = 'lower="-2.0" upper="2.0" velocity="1.0" effort="50"'
FOOTPRINT = 'child="base_footprint" xyz="0 0 -0.1"'
ARM = {"shoulder_lift", "elbow_flex"}


@pytest.mark.parametrize(
    ("edit", "level", "rule", "names"),
    [
        (("meshes/base.stl", "meshes/bas.stl"), "error", "mesh", {"base_link"}),
        (extra(inertial(1, 1, 3)), "error", "inertia", {"extra"}),
        (extra(inertial(0.1, 0.1, 0.1, mass=0)), "error", "inertia", {"extra"}),
        (extra(inertial(5, 5, 5) + f"<collision>{BOX}</collision>"), "warning", "inertia-size", {"extra"}),
        (extra(inertial(0.02, 0.02, 0.02) + f"<collision>{BOX}</collision>"), "info", "inertia-shape", {"extra"}),
        (extra(f"<visual>{BOX}</visual>"), "warning", "collision-missing", {"extra"}),
        (extra(2 * f"<collision>{BOX}</collision>"), "warning", "duplicate", {"extra"}),
        (extra(f"<visual>{BOX}</visual><collision>{BOX.replace('0.1', '0.01')}</collision>"), "", "", set()),
        (extra(f"<visual>{BOX.replace('0.1', '0.4')}</visual><collision>{BOX}</collision>"), "warning",
         "collision-visual", {"extra"}),
        (('meshes/base.stl"', 'meshes/base.stl" scale="1000 1000 1000"'), "error", "units", {"base_link"}),
        ((FOOTPRINT, FOOTPRINT.replace("0.1", "0.13")), "error", "wheels-floor", {"left_wheel"}),
        (("base_link", "chassis"), "warning", "base-link", {"chassis"}),
        (('xyz="0 ${y} 0" axis="0 1 0"', 'xyz="0 ${y} 0" axis="0 0 1"'), "error", "rep103-up",
         {"left_wheel_joint", "right_wheel_joint"}),
        (('xyz="${x} ${y} 0.4"', 'xyz="${x} ${y} 0.15"'), "warning", "lidar-view",
         {"lidar_left_link", "lidar_right_link"}),
        ((LIMIT, LIMIT.replace('effort="50"', 'effort="0"')), "warning", "limits", ARM),
        ((LIMIT, LIMIT.replace("2.0", "120")), "warning", "units", ARM),
    ],
)  # fmt: skip
def test_what_is_wrong_with_any_robot_is_found_and_named(tmp_path, capsys, edit, level, rule, names):
    package, description = write_awkward_robot(tmp_path)
    files = [description, package / "urdf" / "parts.xacro"]
    assert any(edit[0] in file.read_text() for file in files)
    for file in files:
        file.write_text(file.read_text().replace(*edit))
    exit_code, out = found(capsys, package, description, "--format", "json")
    findings = json.loads(out)["findings"]
    assert {(each["level"], each["name"]) for each in findings if each["rule"] == rule} == {(level, n) for n in names}
    assert exit_code == (1 if level == "error" else 0)
    assert all(each["rule"] == rule for each in findings if each["level"] == "error"), findings


def test_findings_are_annotations_of_a_workflow_and_sarif(tmp_path, capsys):
    (tmp_path / "my robot").mkdir()
    package, description = write_awkward_robot(tmp_path / "my robot")
    trimesh.creation.box((600, 500, 300)).export(package / "meshes" / "base.stl")
    code, out = found(capsys, package, description, "--format", "github")
    line = next(n for n, text in enumerate(description.read_text().splitlines(), 1) if 'name="base_link"' in text)
    first = out.splitlines()[0]
    assert code == 1 and first.startswith(f"::error file={description},line={line},title=units::base_link: its visual")
    assert first.count("::") == 2
    code, out = found(capsys, package, description, "--format", "sarif")
    log = json.loads(out)
    (run,) = log["runs"]
    assert code == 1 and log["version"] == "2.1.0"
    result = run["results"][0]
    assert (result["ruleId"], result["level"]) == ("units", "error")
    place = result["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": line} and "/my%20robot/" in place["artifactLocation"]["uri"]
    assert {each["ruleId"] for each in run["results"]} <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert lint(description, "--json", "--format", "sarif") == 2
