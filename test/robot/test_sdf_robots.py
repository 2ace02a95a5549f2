"""Robots described as SDF: read as the same mechanism with the same shapes, guessed, spawned, and refused by name."""

import numpy as np
import pytest

from stretch_sim_cal.cli import main
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.harness.scenario import load_scenario, with_changes
from stretch_sim_cal.robot.description import load_model, load_urdf_text, parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import load_profile
from stretch_sim_cal.robot.surfaces import robot_surfaces
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

pytestmark = pytest.mark.usefixtures("cache")

# Lidars at their sensors' poses, a frame on the floor, a joint that is not at its child's frame, a finger that follows.
ROBOT = """<sdf version="1.11"><model name="cart">
  <link name="chassis"><pose>0 0 0.2 0 0 0</pose>
    <inertial><mass>30</mass><inertia><ixx>1</ixx><iyy>2</iyy><izz>3</izz></inertia></inertial>
    <collision name="box"><geometry><box><size>0.6 0.4 0.3</size></box></geometry></collision>
    <collision name="rail"><pose>0 0 0.2 0 1.5707963267948966 0</pose>
      <geometry><capsule><radius>0.02</radius><length>0.4</length></capsule></geometry></collision>
    <sensor name="front" type="gpu_lidar"><pose>0.28 0.18 0.35 0 0.3 0.7</pose>
      <gz_frame_id>front_lidar</gz_frame_id></sensor>
    <sensor name="rear_lidar" type="gpu_lidar"><pose>-0.28 -0.18 0.35 0 0.3 -2.4</pose></sensor>
    <sensor name="imu" type="imu"/></link>
  <frame name="base_footprint" attached_to="chassis"><pose relative_to="chassis">0 0 -0.2 0 0 0</pose></frame>
  <link name="mast"><pose>-0.1 0 0.5 0 0 0</pose>
    <collision name="pole"><geometry><cylinder><radius>0.03</radius><length>0.3</length></cylinder></geometry>
    </collision></link>
  <joint name="lift" type="prismatic"><pose>0 0 -0.1 0 0 0</pose><parent>chassis</parent><child>mast</child>
    <axis><xyz>0 0 1</xyz>
      <limit><lower>0</lower><upper>0.4</upper><velocity>0.2</velocity><effort>-1</effort></limit></axis></joint>
  <link name="hand"><pose relative_to="mast">0.1 0 0.1 0 0 0</pose>
    <collision name="palm"><geometry><sphere><radius>0.04</radius></sphere></geometry></collision></link>
  <joint name="grip" type="prismatic"><parent>mast</parent><child>hand</child>
    <axis><xyz>1 0 0</xyz><limit><lower>0</lower><upper>0.1</upper></limit>
      <mimic joint="lift" axis="axis"><multiplier>0.25</multiplier><offset>0.01</offset><reference>0.04</reference>
      </mimic></axis></joint>
</model></sdf>"""


@pytest.fixture
def cart(tmp_path):
    path = tmp_path / "cart.sdf"
    path.write_text(ROBOT)
    return path


def test_frames_joints_shapes_and_lidars_of_an_sdf_are_those_of_its_urdf(cart):
    model, from_sdf = parse_urdf(load_urdf_text(cart)), load_model(cart)
    for lift in (0.0, 0.3):
        positions = {"lift": lift}
        for link in ("chassis", "mast", "hand"):
            one, other = (link_transform(each, positions, link, "chassis") for each in (model, from_sdf))
            assert np.abs(one - other).max() < 1e-9
    assert link_transform(model, {"lift": 0.3}, "hand", "mast")[0, 3] == pytest.approx(0.1 + 0.25 * (0.3 - 0.04) + 0.01)
    np.testing.assert_allclose(
        link_transform(model, {}, "front_lidar", "chassis")[:3, 3], [0.28, 0.18, 0.35], atol=1e-9
    )
    assert link_transform(model, {}, "base_footprint", "chassis")[2, 3] == pytest.approx(-0.2)
    assert model.joints["lift"].limit.velocity == 0.2 and model.links["chassis"].inertial.mass == 30
    rail = robot_surfaces(model, named_robot("two_lidar_amr"))["chassis"].vertices
    assert rail[:, 0].max() == pytest.approx(0.3) and rail[:, 2].max() == pytest.approx(0.22, abs=1e-3)


def test_an_sdf_robots_profile_is_guessed_and_it_is_spawned(cart, tmp_path, capsys):
    out = tmp_path / "cart.yaml"
    assert main(["robot", "init", str(cart), "--sensor", "os0_32_sparse", "--out", str(out)]) == 0
    assert "lidars: left front_lidar, right rear_lidar" in capsys.readouterr().out
    profile = load_profile(out)
    assert profile.footprint_frame == "base_footprint" and profile.base_frame == "chassis"
    simulator = EmbeddedSimulator(with_changes(load_scenario("two_lidar_amr"), None, None, None, str(out)).simulation)
    assert "gpu_lidar" not in simulator.nominal_description  # it brings lidars of the profile's kind itself
    np.testing.assert_allclose(simulator.base_from_lidar("right", nominal=True)[:3, 3], [-0.28, -0.18, 0.35], atol=1e-9)
    assert len(simulator.scan("left", 0)) > 1000


def test_a_model_by_its_own_name_has_its_meshes_beside_it(tmp_path):
    folder = tmp_path / "cart"
    folder.mkdir()
    mesh = "<mesh><uri>model://cart/meshes/gone.stl</uri></mesh>"
    (folder / "model.sdf").write_text(ROBOT.replace("<box><size>0.6 0.4 0.3</size></box>", mesh))
    model = load_urdf_text(folder / "model.sdf")
    assert parse_urdf(model).links["chassis"].collisions[0].path == folder / "meshes" / "gone.stl"
    lidars = "{left: {frame: front_lidar}, right: {frame: rear_lidar}}"
    (folder / "cart.yaml").write_text(f"description: model.sdf\nbase_frame: chassis\nlidars: {lidars}\n")
    with pytest.raises(InputError, match=r"gone\.stl"):
        spawned_robot(named_robot(folder / "cart.yaml"))


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("<sphere><radius>0.04</radius></sphere>", "<plane/>", "<plane>: is not a shape that URDF has"),
        ('name="lift" type="prismatic"', 'name="lift" type="screw"', "'lift': a screw joint does not exist in URDF"),
        ("<parent>mast</parent>", "<parent>hand</parent>", "hand"),
        ('attached_to="chassis"', 'attached_to="chasis"', "base_footprint"),
        ('name="rear_lidar" type', 'name="mast" type', "a link is also called 'mast'"),
        ('joint="lift"', "", "does not name a joint"),
        ("</model>", '<include><uri>model://arm</uri></include></model>', "a nested <include> is not supported"),
    ],
)  # fmt: skip
def test_what_urdf_cannot_say_is_refused_by_file_and_element(tmp_path, capsys, old, new, told):
    assert old in ROBOT
    (tmp_path / "cart.sdf").write_text(ROBOT.replace(old, new))
    assert main(["robot", "init", str(tmp_path / "cart.sdf"), "--out", str(tmp_path / "cart.yaml")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and told in lines[0] and "cart.sdf" in lines[0]
