"""The robot's values file: what the vendor's own description makes of it, and what a write leaves alone."""

import numpy as np
import pytest
import stretch4_urdf
import yaml
from made_results import joints_in

from stretch_sim_cal import files
from stretch_sim_cal.calibration.values_file import base_joint, default_values_path, lidar_joints, record_joints
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import exp, from_xyz_rpy

HEAD_FROM_LEFT = from_xyz_rpy([0.13, 0.22, -0.06], [-3.05, -0.78, 0.75])
RIGHT_TO_LEFT = exp([0.01, -0.35, 0.02, 0.4, -1.2, 0.3])
FOOTPRINT = from_xyz_rpy([0, 0, 0.031], [0.004, -0.006, 0])
JOINTS = [*lidar_joints(HEAD_FROM_LEFT, RIGHT_TO_LEFT), base_joint(FOOTPRINT)]


def test_joints_are_read_back_as_they_were_written(tmp_path):
    path = tmp_path / "robot" / "stretch_calibration_values.yaml"
    assert record_joints(path, JOINTS, "se4-1", extra={"fit_method": "support"}) is None
    joints = joints_in(path)
    assert list(joints) == ["lidar_left_joint", "lidar_right_joint", "base_ref"]
    right = joints["lidar_right_joint"]
    assert (right.parent, right.child) == ("head_link", "lidar_right_link")
    np.testing.assert_allclose(right.parent_from_child, HEAD_FROM_LEFT @ RIGHT_TO_LEFT, atol=1e-14)
    np.testing.assert_allclose(joints["base_ref"].parent_from_child, FOOTPRINT, atol=1e-14)
    raw = yaml.safe_load(path.read_text())
    assert raw["version"] == "2.0"
    assert raw["joint_calibration"]["base_ref"]["fit_method"] == "support"


def test_the_vendors_description_takes_the_values_over(tmp_path, monkeypatch):
    from stretch_sim_cal.robot.description import parse_urdf
    from stretch_sim_cal.robot.kinematics import link_transform

    monkeypatch.setenv("HELLO_FLEET_PATH", str(tmp_path))
    monkeypatch.setenv("HELLO_FLEET_ID", "se4-1")
    record_joints(default_values_path(), JOINTS, "se4-1")
    model = parse_urdf(stretch4_urdf.get_urdf_calibrated("SE4", "francis", "eoa_wrist_dw4_tool_sg4"))
    np.testing.assert_allclose(
        link_transform(model, {}, "lidar_right_link", "lidar_left_link"), RIGHT_TO_LEFT, atol=1e-9
    )
    np.testing.assert_allclose(link_transform(model, {}, "base_link", "base_footprint"), FOOTPRINT, atol=1e-9)


def test_other_joints_and_unknown_keys_stay(tmp_path):
    path = tmp_path / "values.yaml"
    other = {"data": {"xyz": "1 2 3", "rpy": "0 0 0", "parent": "a", "child": "b"}, "operator": "ada"}
    path.write_text(yaml.safe_dump({"version": "2.0", "joint_calibration": {"camera": other}, "site": "lab"}))
    backup = record_joints(path, JOINTS, "se4-1")
    raw = yaml.safe_load(path.read_text())
    assert raw["joint_calibration"]["camera"] == other and raw["site"] == "lab"
    assert list(yaml.safe_load(backup.read_text())["joint_calibration"]) == ["camera"]
    files.rollback(path)
    assert list(joints_in(path)) == ["camera"]


def test_a_file_of_format_1_is_converted(tmp_path):
    path = tmp_path / "values.yaml"
    old = {"xyz": "1 2 3", "rpy": "0 0 0", "parent": "a", "child": "b"}
    path.write_text(yaml.safe_dump({"robot_calibration": {"metadata": {"version": "1.0"}, "joints": {"camera": old}}}))
    record_joints(path, JOINTS, "se4-1")
    np.testing.assert_allclose(joints_in(path)["camera"].parent_from_child[:3, 3], [1, 2, 3])
    assert len(joints_in(path)) == 4


@pytest.mark.parametrize("text", ["joint_calibration: [1, 2", "- 1", "joint_calibration: [1]"])
def test_a_file_that_cannot_be_read_is_left_alone(tmp_path, text):
    path = tmp_path / "values.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match="values.yaml"):
        record_joints(path, JOINTS, "se4-1")
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_lies_in_the_robots_folder():
    fleet = {"HELLO_FLEET_PATH": "/fleet", "HELLO_FLEET_ID": "r"}
    assert str(default_values_path(fleet)) == "/fleet/r/stretch_calibration_values.yaml"
    assert str(default_values_path({"HELLO_FLEET_ID": "r"})).endswith("/stretch_user/r/stretch_calibration_values.yaml")
    with pytest.raises(InputError, match="HELLO_FLEET_ID"):
        default_values_path({})
