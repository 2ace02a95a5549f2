"""`stretch-sim-cal fk`, `mobility` and `workspace`: what they print and write."""

import json

import numpy as np
import pytest
from called import called
from scipy.spatial.transform import Rotation

from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.stretch import nominal_description


def answer(*arguments, code: int = 0) -> dict:
    return json.loads(called(*arguments, "--json", code=code)[1])


def test_fk_prints_the_transform_as_json():
    joints = ("--joint", "lift_joint=0.5", "arm_joint=0.2", "wrist_yaw_joint=90deg")
    found = answer("fk", "stretch4", *joints, "--frame", "grasp_center_link", "--relative-to", "base_link")
    model = load_model(nominal_description())
    positions = {f"arm_l{i}_joint": 0.05 for i in range(1, 5)} | {"lift_joint": 0.5, "wrist_yaw_joint": np.pi / 2}
    frames = link_transforms(model, positions)
    expected = np.linalg.inv(frames["base_link"]) @ frames["grasp_center_link"]
    assert np.allclose(found["transform"], expected)


def test_fk_takes_the_roots_pose_in_the_world_and_notes_positions_beyond_limits():
    base = ("fk", "stretch4", "--joint", "lift_joint=0.5", "--frame", "lift_link")
    inside, anywhere = answer(*base), answer(*base, "--root", "1 -2 0.5 0.1 0.2 0.3")
    assert anywhere["relative_to"] == "the world"
    expected = from_xyz_rpy((1, -2, 0.5), (0.1, 0.2, 0.3)) @ inside["transform"]
    assert np.allclose(anywhere["transform"], expected)
    on_a_floor = answer(*base, "--root", "-1 2 90deg")
    assert np.allclose(on_a_floor["transform"], from_xyz_rpy((-1, 2, 0), (0, 0, np.pi / 2)) @ inside["transform"])
    _, out, err = called("fk", "stretch4", "--joint", "lift_joint=3", "--frame", "lift_link", code=0)
    assert "beyond its limits 0 to 1.2" in err


def test_mobility_tells_the_configuration_space():
    found = answer("mobility", "stretch4", "--base", "mobile")
    assert found["mobility"] == len(found["configuration_space"]) == 16
    _, out, _ = called("mobility", "stretch4", code=0)
    assert "mobility 13" in out and "lift_joint" in out


@pytest.mark.parametrize(("parent", "mobility"), [("a", 7), ("world", 1)])
def test_the_configuration_space_of_an_sdf_has_its_base_if_that_floats(tmp_path, parent, mobility):
    limit = "<axis><limit><lower>0</lower><upper>1</upper></limit></axis>"
    link = "" if parent == "world" else '<link name="a"/>'
    joint = f'<joint name="j" type="prismatic"><parent>{parent}</parent><child>b</child>{limit}</joint>'
    (tmp_path / "m.world").write_text(f'<sdf version="1.9"><model name="m">{link}<link name="b"/>{joint}</model></sdf>')
    found = answer("mobility", tmp_path / "m.world")
    assert found["mobility"] == len(found["configuration_space"]) == mobility


def test_workspace_writes_points_and_a_picture(tmp_path):
    csv, npz, plot = tmp_path / "points.csv", tmp_path / "points.npz", tmp_path / "plot.png"
    held = ("--joint", "wrist_pitch_joint=0", "wrist_roll_joint=0", "lift_joint=0.5")
    few = ("--resolution", "0.1", "--samples", "8192")
    common = ("workspace", "stretch4", "--frame", "grasp_center_link", *held, *few)
    summary = answer(*common, "--points", csv, "--plot", plot)
    assert summary["dimension"] == 2
    table = np.loadtxt(csv, delimiter=",", skiprows=1)
    assert table.shape == (summary["points"], 3 + len(summary["variables"]))
    assert np.allclose(table[:, :3].min(axis=0), summary["bounds"][0], atol=1e-6)
    assert plot.read_bytes().startswith(b"\x89PNG")
    _, out, _ = called(*common, "--points", npz, code=0)
    assert "a part of a plane" in out and " +- " in out and "(at most " in out
    with np.load(npz) as stored:
        assert np.allclose(stored["points"], table[:, :3], atol=1e-8)


def test_the_orientations_at_a_point_are_printed_and_written(tmp_path):
    path = tmp_path / "orientations.npz"
    command = ("workspace", "stretch4", "--frame", "grasp_center_link", "--joint", "wrist_roll_joint=0")
    at_point = ("--orientations", "0.6 0.1 0.8", "--samples", "512")
    _, out, _ = called(*command, *at_point, "--points", path, code=0)
    assert "grasp_center_link in base_footprint at 0.6 0.1 0.8: the orientation can change in one way" in out
    with np.load(path) as stored:
        positions = dict(zip(stored["variables"], stored["configurations"].T, strict=True))
        frames = link_transforms(load_model(nominal_description()), positions)["grasp_center_link"]
        turned = Rotation.from_quat(stored["quaternions"]).as_matrix()
    assert len(turned) > 5
    assert np.allclose(frames[:, :3, 3], (0.6, 0.1, 0.8), atol=1e-4)
    assert np.allclose(frames[:, :3, :3], turned, atol=1e-9)
    beyond = (*command, "--orientations", "3 0 0", "--samples", "512")
    assert "cannot be at 3 0 0; the nearest point found is" in called(*beyond, code=1)[1]
    assert answer(*beyond, code=1)["reached"] is False
