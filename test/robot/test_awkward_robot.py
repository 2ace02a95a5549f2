"""What public robots have and the robots here have not: `$(find)`, meshes of packages that nothing installs, a
footprint below base_link in the tree."""

import json
import warnings

import numpy as np
import pytest
from awkward_robot import PACKAGE, write_awkward_robot
from made_results import alignment_result, floor_result

import stretch_sim_cal as cal
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.cli import main
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.geometry.transforms import from_xyz_rpy, inverse
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transform

PROFILE = """name: awkward
description: {file: sources/awkward/urdf/awkward.urdf.xacro, packages: {awkward_description: sources/awkward}}
convention: none
base_frame: base_link
footprint_frame: base_footprint
sensor: os0_32_sparse
lidars:
  left: {frame: lidar_left_link, topic: /left}
  right: {frame: lidar_right_link, topic: /right}
"""


@pytest.fixture
def robot(tmp_path, monkeypatch):
    """The folder of the package, its xacro and a profile; no package is installed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for variable in ("AMENT_PREFIX_PATH", "ROS_PACKAGE_PATH"):
        monkeypatch.delenv(variable, raising=False)
    package, description = write_awkward_robot(tmp_path)
    profile = tmp_path / "awkward.yaml"
    profile.write_text(PROFILE)
    return package, description, profile


def test_a_package_that_nobody_names_is_told_with_what_to_do(robot, capsys):
    assert main(["lint", str(robot[1])]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"--package {PACKAGE}=DIR" in told and str(robot[1]) in told


def test_packages_on_the_command_line_serve_find_and_meshes(robot, capsys):
    package, description, _ = robot
    main(["lint", str(description), "--package", f"{PACKAGE}={package}"])
    printed = capsys.readouterr()
    assert "not found" not in printed.out + printed.err and "base.stl" not in printed.out
    assert main(["lint", str(description), "--package", f"{PACKAGE}={package}", f"awkward_desc={package}"]) == 2
    assert "awkward_desc" in capsys.readouterr().err


def test_a_profiles_packages_serve_the_robot_and_the_rig(robot):
    _, description, profile = robot
    spawned = spawned_robot(named_robot(profile))
    assert spawned.model.links["base_link"].collisions[0].path.is_file()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that the body is taken for a cylinder
        rig = cal.Rig.from_urdf(description, robot=profile)
    corners = [[x, y, 0.3] for x in (-0.3, 0.3) for y in (-0.25, 0.25)]
    assert all(np.linalg.norm(rig.body["body"] - corner, axis=1).min() < 0.02 for corner in corners)


def test_a_calibration_is_exported_where_the_footprint_is_a_child_of_base_link(robot, tmp_path, capsys):
    _, _, profile = robot
    model = spawned_robot(named_robot(profile)).model
    alignment = alignment_result(link_transform(model, {}, "lidar_right_link", "lidar_left_link") @ from_xyz_rpy(
        (0.002, 0.001, 0.0), (0.0, 0.003, 0.0)
    ))  # fmt: skip
    file = tmp_path / "calibration.yaml"
    CalibrationFile().with_alignment(alignment, "other").with_floor(floor_result(0.103, (0.005, -0.01)), "other").save(
        file
    )
    assert main(["export", str(file), "--as", "urdf", "--robot", str(profile), "--json"]) == 0
    joint = json.loads(capsys.readouterr().out)["base_footprint_joint"]
    assert (joint["parent"], joint["child"]) == ("base_link", "base_footprint")
    assert (
        main(["export", str(file), "--as", "urdf", "--robot", str(profile), "--out", str(tmp_path / "out.urdf")]) == 0
    )
    base_from_footprint = link_transform(load_model(tmp_path / "out.urdf"), {}, "base_footprint", "base_link")
    expected = CalibrationFile.load(file).footprint_from_base
    np.testing.assert_allclose(inverse(base_from_footprint), expected, atol=1e-9)
