"""Files of another robot or tool are noticed: what a robot calls itself, and the hash of its description."""

from stretch_sim_cal.calibration.body.model import BodyShapeModel, description_hash, robot_identity
from stretch_sim_cal.geometry.shapes import Circle
from stretch_sim_cal.harness.fitted_body import RobotBody
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.stretch import DEFAULT_TOOL, available_tools, nominal_description


def test_the_fleet_folder_names_robot_and_tool_the_users_file_first(tmp_path):
    environment = {"HELLO_FLEET_PATH": str(tmp_path), "HELLO_FLEET_ID": "stretch-se4-4001"}
    assert robot_identity({}) == {"robot_id": "unknown", "tool_id": "unknown"}
    assert robot_identity(environment) == {"robot_id": "stretch-se4-4001", "tool_id": "unknown"}
    folder = tmp_path / "stretch-se4-4001"
    folder.mkdir()
    (folder / "stretch_configuration_params.yaml").write_text("robot: {tool: eoa_factory}")
    assert robot_identity(environment)["tool_id"] == "eoa_factory"
    (folder / "stretch_user_params.yaml").write_text("robot: {tool: eoa_mine}")
    assert robot_identity(environment)["tool_id"] == "eoa_mine"
    (folder / "stretch_user_params.yaml").write_text("robot: [")
    assert robot_identity(environment)["tool_id"] == "eoa_factory"


def test_a_model_of_another_tool_is_told():
    nominal = load_model(nominal_description())
    ours = description_hash(nominal)
    assert ours == RobotBody(nominal).hash
    model = BodyShapeModel(
        "circle", (0.0,), (0.0,), [[Circle(0.0, 0.0, 0.3)]], about={"description_hash": ours, "tool": "a"}
    )
    assert model.mismatches("a", ours) == [] and model.mismatches("unknown", ours) == []
    assert "another tool (a, here it is b)" in model.mismatches("b", ours)[0]
    others = [tool for tool in available_tools() if tool != DEFAULT_TOOL]
    other = description_hash(load_model(nominal_description(others[0])))
    assert "another robot description" in model.mismatches(None, other)[0]
