"""`lint` without a convention: a robot of no convention is clean, each thing that is wrong with any robot is found and
named, and findings come as annotations and as SARIF."""

import json

import pytest
import trimesh
from awkward_robot import PACKAGE, write_awkward_robot

from stretch_sim_cal.cli import main

BOX = '<geometry><box size="0.1 0.1 0.1"/></geometry>'


def extra(content: str) -> tuple[str, str]:
    """Return an edit that hangs a link of this content on the base."""
    before = '<link name="cliff_front"/>'
    return before, f'{before}<link name="extra">{content}</link><xacro:fixed child="extra" xyz="0 0 0.5"/>'


def inertial(xx: float, yy: float, zz: float, mass: float = 1.0) -> str:
    moments = f'ixx="{xx}" ixy="0" ixz="0" iyy="{yy}" iyz="0" izz="{zz}"'
    return f'<inertial><mass value="{mass}"/><inertia {moments}/></inertial>'


def found(capsys, package, description, *arguments: str) -> tuple[int, str]:
    code = main(["lint", str(description), "--package", f"{PACKAGE}={package}", *arguments])
    return code, capsys.readouterr().out


def test_a_robot_of_no_convention_is_clean(tmp_path, capsys):
    code, out = found(capsys, *write_awkward_robot(tmp_path))
    assert code == 0 and "(0 errors, 0 warnings, 0 infos)" in out and "arm_l0" not in out and "tool0" not in out


def test_a_convention_that_is_kept_is_checked_without_being_named(capsys):
    assert main(["lint", "stretch4", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "keeps the Stretch URDF conventions" in out and "lift_joint: its effort limit is 0" in out


LIMIT = 'lower="-2.0" upper="2.0" velocity="1.0" effort="50"'
FOOTPRINT = 'child="base_footprint" xyz="0 0 -0.1"'
ARM = {"shoulder_lift", "elbow_flex"}


@pytest.mark.parametrize(
    ("edit", "code", "level", "rule", "names"),
    [
        (("meshes/base.stl", "meshes/bas.stl"), 1, "error", "mesh", {"base_link"}),
        (extra(inertial(1, 1, 3)), 1, "error", "inertia", {"extra"}),
        (extra(inertial(0, 1, 1)), 1, "error", "inertia", {"extra"}),
        (extra(inertial(0.1, 0.1, 0.1, mass=0)), 1, "error", "inertia", {"extra"}),
        (extra(inertial(5, 5, 5) + f"<collision>{BOX}</collision>"), 0, "warning", "inertia-size", {"extra"}),
        (extra(inertial(0.02, 0.02, 0.02) + f"<collision>{BOX}</collision>"), 0, "info", "inertia-shape", {"extra"}),
        (extra(f"<visual>{BOX}</visual>"), 0, "warning", "collision-missing", {"extra"}),
        (extra(2 * f"<collision>{BOX}</collision>"), 0, "warning", "duplicate", {"extra"}),
        (extra(f"<visual>{BOX}</visual><collision>{BOX.replace('0.1', '0.01')}</collision>"), 0, "", "", set()),
        (extra(f"<visual>{BOX.replace('0.1', '0.4')}</visual><collision>{BOX}</collision>"), 0, "warning",
         "collision-visual", {"extra"}),
        (('meshes/base.stl"', 'meshes/base.stl" scale="1000 1000 1000"'), 1, "error", "units", {"base_link"}),
        ((FOOTPRINT, FOOTPRINT.replace("0.1", "0.13")), 1, "error", "wheels-floor", {"left_wheel"}),
        ((FOOTPRINT, FOOTPRINT.replace("0.1", "0.11")), 0, "warning", "wheels-floor", {"left_wheel"}),
        (("base_link", "chassis"), 0, "warning", "base-link", {"chassis"}),
        (('xyz="0 ${y} 0" axis="0 1 0"', 'xyz="0 ${y} 0" axis="0 0 1"'), 1, "error", "rep103-up",
         {"left_wheel_joint", "right_wheel_joint"}),
        (('xyz="${x} ${y} 0.4"', 'xyz="${x} ${y} 0.15"'), 0, "warning", "lidar-view",
         {"lidar_left_link", "lidar_right_link"}),
        ((LIMIT, LIMIT.replace('effort="50"', 'effort="0"')), 0, "warning", "limits", ARM),
        ((LIMIT, LIMIT.replace('velocity="1.0"', 'velocity="0"')), 0, "warning", "limits", ARM),
        ((LIMIT, LIMIT.replace("-2.0", "0").replace("2.0", "0")), 0, "warning", "limits", ARM),
        ((LIMIT, LIMIT.replace("2.0", "120")), 0, "warning", "units", ARM),
    ],
)  # fmt: skip
def test_what_is_wrong_with_any_robot_is_found_and_named(tmp_path, capsys, edit, code, level, rule, names):
    package, description = write_awkward_robot(tmp_path)
    files = [description, package / "urdf" / "parts.xacro"]
    assert any(edit[0] in file.read_text() for file in files)
    for file in files:
        file.write_text(file.read_text().replace(*edit))
    exit_code, out = found(capsys, package, description, "--format", "json")
    findings = json.loads(out)["findings"]
    assert {(each["level"], each["name"]) for each in findings if each["rule"] == rule} == {(level, n) for n in names}
    assert exit_code == code
    assert all(each["rule"] == rule for each in findings if each["level"] == "error"), findings


def test_findings_are_annotations_of_a_workflow_and_sarif(tmp_path, capsys):
    package, description = write_awkward_robot(tmp_path)
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
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": line}
    assert {each["ruleId"] for each in run["results"]} <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert main(["lint", str(description), "--json", "--format", "sarif"]) == 2
