"""`stretch-sim-cal export`: what it prints and writes puts the calibration where it belongs."""

import json
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from called import called, edited
from made_results import alignment_result, joints_in, save

from stretch_sim_cal import files
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.commands.described import described, load_description
from stretch_sim_cal.files import read_yaml, write_yaml
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base
from stretch_sim_cal.geometry.transforms import from_xyz_quaternion, from_xyz_rpy, inverse
from stretch_sim_cal.robot.description import load_model, load_urdf_text
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import load_profile
from stretch_sim_cal.robot.stretch import nominal_description

PLANE = Plane.from_coefficients([0.005, -0.01, 1.0], 0.0295)


def export(*arguments, code=0) -> str:
    _, out, err = called("export", *arguments, code=code)
    return err if code else out


def check_description(path, right_to_left):
    found = described(load_description(str(path)))
    np.testing.assert_allclose(found.to_left["right"], right_to_left, atol=1e-9)
    np.testing.assert_allclose(found.footprint_from_base, footprint_from_base(PLANE), atol=1e-9)


def test_a_whole_description_is_written_with_calibrated_joints_in_lines(calibration, right_to_left, tmp_path):
    export(calibration, "--as", "urdf", "--out", tmp_path / "robot.urdf")
    check_description(tmp_path / "robot.urdf", right_to_left)
    joined = "".join(line.strip() for line in (tmp_path / "robot.urdf").read_text().splitlines())  # as xacro writes it
    (tmp_path / "joined.urdf").write_text(joined)
    # Exported once more from the calibrated description, nothing changes: the left joint stays, the right one follows
    # it.
    for model in ("robot.urdf", "joined.urdf"):
        out = ("--out", tmp_path / "again.urdf")
        export(calibration, "--as", "urdf", "--model", tmp_path / model, *out)
        check_description(tmp_path / "again.urdf", right_to_left)
    lines = (tmp_path / "again.urdf").read_text().splitlines()
    assert max(line.count("<joint ") + line.count("<link ") for line in lines) == 1


def test_what_is_read_is_not_written_over(calibration, tmp_path):
    model = tmp_path / "robot.urdf"
    export(calibration, "--as", "urdf", "--out", model)
    for given, out in ((("xacro",), calibration), (("urdf", "--model", model), model)):
        before = out.read_bytes()
        assert "is read by this command" in export(calibration, "--as", *given, "--out", out, code=2)
        assert out.read_bytes() == before
    write_yaml(
        profile := tmp_path / "robot.yaml", read_yaml(load_profile("stretch4").source) | {"description": "robot.urdf"}
    )
    for form, out in (("urdf", model), ("xacro", profile)):
        assert "is read by this command" in export(calibration, "--as", form, "--robot", profile, "--out", out, code=2)


def test_a_model_is_expanded_with_the_packages_of_the_profile(calibration, right_to_left, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "part.urdf").write_text(nominal_description())
    include = '<xacro:include filename="$(find own)/part.urdf"/>'
    model, profile, out = (tmp_path / name for name in ("robot.urdf.xacro", "robot.yaml", "new.urdf"))
    model.write_text(f'<robot name="r" xmlns:xacro="http://www.ros.org/wiki/xacro">{include}</robot>')
    source = {"description": {"file": model.name, "packages": {"own": "own"}}}
    write_yaml(profile, read_yaml(load_profile("stretch4").source) | source)
    export(calibration, "--as", "urdf", "--model", model, "--robot", profile, "--out", out)
    check_description(out, right_to_left)


def test_meshes_beside_a_description_are_named_from_where_it_is_exported_to(calibration, tmp_path):
    (tmp_path / "robot" / "meshes").mkdir(parents=True)
    text, own = nominal_description(), tmp_path / "robot" / "meshes" / "part.stl"
    (tmp_path / "robot" / "robot.urdf").write_text(
        re.sub('<mesh filename="[^"]*"', '<mesh filename="meshes/part.stl"', text)
    )
    out = tmp_path / "new" / "robot.urdf"
    export(calibration, "--as", "urdf", "--model", tmp_path / "robot" / "robot.urdf", "--out", out)
    shapes = (shape for each in load_model(out).links.values() for shape in (*each.visuals, *each.collisions))
    assert {Path(shape.path).resolve() for shape in shapes if shape.kind == "mesh"} == {own.resolve()}


def test_a_xacro_that_includes_the_properties_has_the_calibrated_joints(calibration, right_to_left, tmp_path):
    export(calibration, "--as", "urdf", "--out", tmp_path / "robot.urdf")
    export(calibration, "--as", "xacro", "--out", tmp_path / "calibrated.xacro")
    root = ElementTree.parse(tmp_path / "robot.urdf").getroot()
    for joint in root.findall("joint"):
        if (name := joint.get("name")) in ("lidar_left_joint", "lidar_right_joint", "base_ref"):
            origin = joint.find("origin")
            for key in ("xyz", "rpy"):
                origin.set(key, f"${{{name}_{key}}}")
    text = ElementTree.tostring(root, encoding="unicode")
    include = '<xacro:include filename="calibrated.xacro"/>'
    start, rest = text.split(">", maxsplit=1)
    (tmp_path / "robot.xacro").write_text(f'{start} xmlns:xacro="http://www.ros.org/wiki/xacro">{include}{rest}')
    check_description(tmp_path / "robot.xacro", right_to_left)


def test_names_of_joints_become_names_of_properties(tmp_path, cache):
    source = files.share_directory() / "models" / "two_lidar_amr.urdf.xacro"
    text = load_urdf_text(str(source)).replace('"lidar_left_joint"', '"2d/lidar-left"')
    (tmp_path / "robot.urdf").write_text(text)
    file = tmp_path / "calibration.yaml"
    model = load_model(text)
    to_left = link_transform(model, {}, "lidar_right_link", "lidar_left_link")
    save(CalibrationFile().with_alignment(alignment_result(to_left), "x"), file)
    robot = ["--robot", "two_lidar_amr", "--model", tmp_path / "robot.urdf"]
    names = [each.get("name") for each in ElementTree.fromstring(export(file, "--as", "xacro", *robot))]
    assert names == [f"{name}_{key}" for name in ("_2d_lidar_left", "lidar_right_joint") for key in ("xyz", "rpy")]
    assert list(json.loads(export(file, "--as", "xacro", "--json", *robot))) == ["2d/lidar-left", "lidar_right_joint"]


@pytest.mark.parametrize("form", ["urdf", "xacro", "static-transform", "calibration-values"])
def test_a_calibration_of_another_robot_is_not_exported_as_the_stretchs(form, tmp_path, cache):
    file = tmp_path / "calibration.yaml"
    to_left = from_xyz_rpy((-0.86, 0.16, 0.0), (0.0, 0.0, 3.14))
    save(CalibrationFile().with_alignment(alignment_result(to_left), "x"), file)
    said = export(file, "--as", form, code=1)
    assert "far from the description's" in said and "give another robot's --robot" in said


def test_a_published_transform_is_the_calibrated_one(calibration, right_to_left):
    lines = export(calibration, "--as", "static-transform").splitlines()
    frames, transforms = [], []
    for line in lines:
        words = shlex.split(line)
        assert words[:4] == ["ros2", "run", "tf2_ros", "static_transform_publisher"]
        given = dict(zip(words[4::2], words[5::2], strict=True))
        frames.append((given["--frame-id"], given["--child-frame-id"]))
        numbers = [float(given[f"--{name}"]) for name in ("x", "y", "z", "qx", "qy", "qz", "qw")]
        transforms.append(from_xyz_quaternion(numbers[:3], numbers[3:]))
    # Frames that robot_state_publisher owns are not given a second parent.
    assert frames == [("lidar_left_link", "lidar_right_calibrated"), ("base_link", "floor_plane")]
    np.testing.assert_allclose(transforms[0], right_to_left, atol=1e-8)
    np.testing.assert_allclose(inverse(transforms[1]), footprint_from_base(PLANE), atol=1e-8)


def test_values_are_recorded_and_brought_back(calibration, tmp_path, monkeypatch):
    monkeypatch.setenv("HELLO_FLEET_PATH", str(tmp_path / "fleet"))
    monkeypatch.setenv("HELLO_FLEET_ID", "se4-1")
    path = tmp_path / "fleet" / "se4-1" / "stretch_calibration_values.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("version: '2.0'\njoint_calibration: {}\n")
    joints = yaml.safe_load(export(calibration, "--as", "calibration-values"))["joint_calibration"]
    assert set(joints) == {"lidar_left_joint", "lidar_right_joint", "base_ref"}
    assert joints_in(path) == {}
    export(calibration, "--as", "calibration-values", "--record")
    np.testing.assert_allclose(joints_in(path)["base_ref"].parent_from_child, footprint_from_base(PLANE), atol=1e-12)
    export("--as", "calibration-values", "--rollback")
    assert joints_in(path) == {}
    export("--as", "calibration-values", "--rollback", code=2)


def test_a_file_with_only_a_floor_exports_only_that_and_one_that_contradicts_itself_nothing(calibration, tmp_path):
    only_floor = edited(calibration, lambda data: data.pop("right_to_left_transform"))
    assert list(json.loads(export(only_floor, "--as", "urdf", "--json"))) == ["base_ref"]
    torn = edited(calibration, lambda data: data["floor_model_params"]["data"].update(distance=0.1))
    assert "describe floors" in export(torn, "--as", "urdf", "--out", tmp_path / "robot.urdf", code=1)
    assert not (tmp_path / "robot.urdf").exists()


def test_another_robots_frames_and_joints_are_those_of_its_profile(tmp_path, cache):
    file = tmp_path / "calibration.yaml"
    result = alignment_result(from_xyz_rpy((-1.05, 0.13, -0.38), (0.0, 0.7, 3.1)))
    save(CalibrationFile().with_alignment(result, "other"), file)
    robot = ["--robot", "two_lidar_manipulator", "--json"]
    (transform,) = json.loads(export(file, "--as", "static-transform", *robot))
    assert "front_laser_link" in transform.values()
    # Its lidars stand on posts of their own: each joint is written in its own parent.
    export(file, "--as", "urdf", "--robot", "two_lidar_manipulator", "--out", tmp_path / "robot.urdf")
    written = load_model(str(tmp_path / "robot.urdf"))
    frames = tuple(each.frame for each in load_profile("two_lidar_manipulator").lidars.values())
    joints = [written.parent_joint(frame) for frame in frames]
    assert joints[0].parent != joints[1].parent
    placed = link_transform(written, {}, frames[1], frames[0])
    np.testing.assert_allclose(placed, CalibrationFile.load(file).right_to_left, atol=1e-9)
