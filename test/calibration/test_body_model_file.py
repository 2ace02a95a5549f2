"""Model files are read as written, with the published keys and the robot's identity; wrong ones are refused."""

import numpy as np
import pytest
import yaml

from stretch_sim_cal.calibration.body.model import (
    BodyShapeModel,
    default_file_name,
    description_hash,
    load_body_shape_model,
    robot_hash,
    robot_identity,
    save_body_shape_model,
)
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.shapes import Circle, Ellipse, TaperedCapsule, circumscribed_polygon
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.harness.fitted_body import RobotBody
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.stretch import DEFAULT_TOOL, available_tools, nominal_description


def grid(make):
    return [[make(arm, yaw) for yaw in (0.0, 1.0, 2.0)] for arm in (0.0, 0.5)]


def model(method="tapered_capsule", make=lambda a, y: TaperedCapsule(0.0, 0.0, 0.2, 0.3 + a, 0.1 * y, 0.1), **about):
    return BodyShapeModel(method, (0.0, 0.5), (0.0, 1.0, 2.0), grid(make), {"lift": (0.2, 0.9)}, about)


MODELS = {
    "tapered_capsule": model(tool="dw4", description_hash="abc"),
    "circle": model("circle", lambda a, y: Circle(a, y, 0.3)),
    "ellipse_min_enclosing": model("ellipse_min_enclosing", lambda a, y: Ellipse(a, 0.0, 1.0, 0.5, 10.0 * y)),
    "convex_polygon": model("convex_polygon", lambda a, y: circumscribed_polygon(Circle(a, y, 0.3), 8)),
}


@pytest.mark.parametrize("written", MODELS.values(), ids=MODELS)
def test_a_model_comes_back_as_it_was_written(written, tmp_path):
    save_body_shape_model(written, tmp_path / "model.yaml")
    read = load_body_shape_model(tmp_path / "model.yaml")
    np.testing.assert_array_equal(read.shape_at(0.2, 0.7).vector, written.shape_at(0.2, 0.7).vector)
    assert read.covers == written.covers and read.about == written.about and read.warnings == ()
    assert read.shape_fitting_method == written.shape_fitting_method


def test_the_published_keys_are_there_row_by_row(tmp_path):
    save_body_shape_model(MODELS["tapered_capsule"], tmp_path / "model.yaml")
    params = yaml.safe_load((tmp_path / "model.yaml").read_text())["custom_body_shape_model_params"]
    assert params["arm_dependent"] is True and params["yaw_dependent"] is True
    assert params["interpolation_method"] == "linear" and params["shape_fitting_method"] == "tapered_capsule"
    assert params["arm_extensions"] == [0.0, 0.5] and params["wrist_yaws"] == [0.0, 1.0, 2.0]
    assert [set(entry) for entry in params["parameters"]] == [{"x1", "y1", "r1", "x2", "y2", "r2"}] * 6
    assert [entry["x2"] for entry in params["parameters"]] == [0.3] * 3 + [0.8] * 3


@pytest.mark.parametrize("axes", [("pan", "lift"), ("pan",), ()])
def test_the_file_of_another_robot_names_its_joints_and_none_of_the_stretchs(axes, tmp_path):
    values = [(0.0, 0.5), (0.0, 1.0, 2.0)][: len(axes)] + [(0.0,)] * (2 - len(axes))
    shapes = [[Circle(a, b, 0.3) for b in values[1]] for a in values[0]]
    save_body_shape_model(BodyShapeModel("circle", *values, shapes, axes=axes), tmp_path / "model.yaml")
    text = (tmp_path / "model.yaml").read_text()
    assert not any(word in text for word in ("arm", "wrist", "yaw", "extension", "stretch"))
    params = yaml.safe_load(text)["robot_body_shape_model_params"]
    assert params["grid"] == {joint: list(each) for joint, each in zip(axes, values, strict=False)}
    read = load_body_shape_model(tmp_path / "model.yaml")
    assert (read.axes, read.arm_extensions, read.wrist_yaws) == (axes, *values)

    def loaded(params):
        (tmp_path / "other.yaml").write_text(yaml.safe_dump({"robot_body_shape_model_params": params}))
        return load_body_shape_model(tmp_path / "other.yaml")

    older = {"axes": list(axes), "arm_extensions": list(values[0]), "wrist_yaws": list(values[1])}
    assert loaded({name: value for name, value in params.items() if name != "grid"} | older) == read
    for wrong, message in (([1], "grid is not a mapping"), ({"pan": []}, "it is empty"), ({"pan": 3}, "no list|not a")):
        with pytest.raises(InputError, match=message):
            loaded(params | {"grid": wrong})
    # Polygons do not stand where published readers would take them for capsules.
    save_body_shape_model(MODELS["convex_polygon"], tmp_path / "model.yaml")
    assert "custom_body_shape_model_params" not in yaml.safe_load((tmp_path / "model.yaml").read_text())


def test_a_published_file_with_a_spline_is_read_with_a_warning(tmp_path):
    params = {
        "arm_dependent": True, "yaw_dependent": False, "arm_extensions": [0.0, 0.245, 0.49],
        "wrist_yaws": [-1.0, 0.0, 1.0], "interpolation_method": "spline", "shape_fitting_method": "circle",
        "parameters": [{"center_x": 0.1 * i, "center_y": 0.0, "radius": 0.3} for i in range(3)],
        "dataset_metadata": {"robot_id": "stretch-se4-4010", "tool_id": "unknown", "timestamp": 0},
    }  # fmt: skip
    (tmp_path / "old.yaml").write_text(yaml.safe_dump({"custom_body_shape_model_params": params}))
    read = load_body_shape_model(tmp_path / "old.yaml")
    assert read.arm_dependent and not read.yaw_dependent and "spline" in read.warnings[0]
    assert read.shape_at(0.245, 2.0) == Circle(0.1, 0.0, 0.3)


def test_a_reader_with_another_tool_or_robot_is_warned():
    read = MODELS["tapered_capsule"]
    assert read.mismatches("dw4", "abc") == read.mismatches() == read.mismatches("unknown", "abc") == []
    assert "another tool (dw4, here it is sg3)" in read.mismatches(tool="sg3")[0]
    assert "another robot description" in read.mismatches(description_hash="def")[0]
    assert model(tool="unknown").mismatches(tool="sg3") == []


def test_the_hash_follows_the_robots_shape_and_tool_and_not_its_calibration():
    vertices = {"base": np.random.default_rng(0).normal(size=(20, 3))}
    frames = {"base": np.eye(4)}
    same = robot_hash(vertices, {"base": from_xyz_rpy((1e-4, 0.0, 0.0))})
    assert robot_hash(vertices, frames) == same
    assert robot_hash({"base": vertices["base"] * 1.01}, frames) != same
    assert robot_hash(vertices, {"base": from_xyz_rpy((0.01, 0.0, 0.0))}) != same
    nominal, other = (
        load_model(nominal_description(*tool)) for tool in ((), sorted({*available_tools()} - {DEFAULT_TOOL})[:1])
    )
    assert RobotBody(nominal, np.eye(4), stretch_profile()).hash == description_hash(nominal) != description_hash(other)


def test_the_fleet_folder_names_robot_and_tool_the_users_file_first(tmp_path):
    environment = {"HELLO_FLEET_PATH": str(tmp_path), "HELLO_FLEET_ID": "stretch-se4-4001"}
    assert robot_identity({}) == {"robot_id": "unknown", "tool_id": "unknown"}
    assert robot_identity(environment) == {"robot_id": "stretch-se4-4001", "tool_id": "unknown"}
    folder = tmp_path / "stretch-se4-4001"
    folder.mkdir()
    for name, text, tool in (
        ("configuration", "robot: {tool: eoa_factory}", "eoa_factory"), ("user", "robot: {tool: eoa_mine}", "eoa_mine"),
        ("user", "robot: [", "eoa_factory"),
    ):  # fmt: skip
        (folder / f"stretch_{name}_params.yaml").write_text(text)
        assert robot_identity(environment)["tool_id"] == tool


@pytest.mark.parametrize("change, message", [
    (lambda p: p.update(shape_fitting_method="blob"), "shape_fitting_method 'blob'"),
    (lambda p: p["parameters"].pop(), "5 parameters; the grid requires 6"),
    (lambda p: p["parameters"][2].pop("r1"), r"parameters\[2\].*r1"),
    (lambda p: p["parameters"][1].update(r1=0.0, r2=0.0, x2=0.0, y2=0.0), r"parameters\[1\].*without an area"),
    (lambda p: p.update(wrist_yaws=[0.0, 0.0, 1.0]), "wrist_yaws does not increase"),
    (lambda p: p.update(arm_extensions=["x", 1.0]), "arm_extensions is not a list of numbers"),
    (lambda p: p.update(covers=[1]), "covers"),
])  # fmt: skip
def test_a_wrong_model_is_refused_by_name(change, message, tmp_path):
    save_body_shape_model(MODELS["tapered_capsule"], tmp_path / "model.yaml")
    data = yaml.safe_load((tmp_path / "model.yaml").read_text())
    change(data["custom_body_shape_model_params"])
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(InputError, match=message):
        load_body_shape_model(tmp_path / "model.yaml")


@pytest.mark.parametrize(
    "text, message",
    [("floor: 1", "is it a body-shape model"), ("custom_body_shape_model_params: [1]", "is not a mapping")],
)
def test_other_files_are_refused(text, message, tmp_path):
    (tmp_path / "other.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        load_body_shape_model(tmp_path / "other.yaml")
    name = default_file_name("circle")
    assert name.startswith("circle_body_model_2") and name.endswith(".yaml")
