"""What public robots have and the robots here have not; and robots described as SDF."""

import contextlib
import io
import itertools
import json
import re
import shutil
import warnings

import numpy as np
import pytest
from awkward_robot import PACKAGE, write_awkward_robot
from made_results import alignment_result, floor_result, save

import stretch_sim_cal as cal
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.cli import main
from stretch_sim_cal.collection.plan import plan_of_robot
from stretch_sim_cal.collection.settings import load_settings
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import find_shared
from stretch_sim_cal.geometry.transforms import from_xyz_rpy, inverse
from stretch_sim_cal.harness.scenario import load_scenario, with_changes
from stretch_sim_cal.robot.description import load_model, load_urdf_text, parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import load_profile
from stretch_sim_cal.robot.surfaces import robot_surfaces
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

pytestmark = pytest.mark.usefixtures("cache", "quick_pictures")

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
    for variable in ("AMENT_PREFIX_PATH", "ROS_PACKAGE_PATH"):
        monkeypatch.delenv(variable, raising=False)
    package, description = write_awkward_robot(tmp_path)
    profile = tmp_path / "awkward.yaml"
    profile.write_text(PROFILE)
    return package, description, profile


def test_packages_are_named_or_found_below_a_folder(robot, tmp_path, capsys):
    package, description, _ = robot
    sources, other, none = (tmp_path / name for name in ("sources", "other", "none"))
    shutil.copytree(package, other / "copy")
    for packages, code, told in (
        ([], 2, (f"--package {PACKAGE}=DIR", str(description))),
        ([f"{PACKAGE}={package}"], 0, ()),
        ([sources], 0, ()),
        ([f"{PACKAGE}={package}", f"awkward_desc={package}"], 2, ("awkward_desc",)),
        ([sources, other], 2, (f"{PACKAGE} exists twice",)),
        ([none], 2, (str(none),)),
        ([sources / "awkward" / "meshes"], 2, (str(sources / "awkward" / "meshes"),)),
    ):
        named = ["--package", *map(str, packages)] if packages else []
        assert main(["lint", str(description), *named]) == code
        printed = capsys.readouterr()
        assert all(word in printed.err for word in told) and printed.err.count("\n") == (code == 2)
        assert "not found" not in printed.out and "base.stl" not in printed.out


def test_a_profiles_packages_serve_the_robot_and_the_rig(robot):
    _, description, profile = robot
    assert spawned_robot(named_robot(profile)).model.links["base_link"].collisions[0].path.is_file()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that the body is taken for a cylinder
        rig = cal.Rig.from_urdf(description, robot=profile)
    corners = [[x, y, 0.3] for x in (-0.3, 0.3) for y in (-0.25, 0.25)]
    assert all(np.linalg.norm(rig.body["body"] - corner, axis=1).min() < 0.02 for corner in corners)


def test_a_profiles_packages_serve_the_description_on_its_topic(robot):
    _, description, file = robot
    profile = load_profile(file)
    text = load_urdf_text(description, folders=profile.description.packages)
    assert "package://" in text and profile.model_of(text).links["base_link"].collisions[0].path.is_file()
    with pytest.raises(InputError, match="^/robot_description: "):
        profile.model_of("<robot/>")


def test_a_calibration_is_exported_where_the_footprint_is_a_child_of_base_link(robot, tmp_path, capsys):
    _, _, profile = robot
    model = spawned_robot(named_robot(profile)).model
    alignment = alignment_result(link_transform(model, {}, "lidar_right_link", "lidar_left_link") @ from_xyz_rpy(
        (0.002, 0.001, 0.0), (0.0, 0.003, 0.0)
    ))  # fmt: skip
    file = tmp_path / "calibration.yaml"
    floor = floor_result(0.103, (0.005, -0.01))
    save(CalibrationFile().with_alignment(alignment, "other").with_floor(floor, "other"), file)
    assert main(["export", str(file), "--as", "urdf", "--robot", str(profile), "--json"]) == 0
    joint = json.loads(capsys.readouterr().out)["base_footprint_joint"]
    assert (joint["parent"], joint["child"]) == ("base_link", "base_footprint")
    out = ["--out", str(tmp_path / "out.urdf")]
    assert main(["export", str(file), "--as", "urdf", "--robot", str(profile), *out]) == 0
    base_from_footprint = link_transform(load_model(tmp_path / "out.urdf"), {}, "base_footprint", "base_link")
    expected = CalibrationFile.load(file).footprint_from_base
    np.testing.assert_allclose(inverse(base_from_footprint), expected, atol=1e-9)


@pytest.fixture(scope="module")
def guessed(tmp_path_factory):
    """What `robot init` says, as JSON, and the profile that it wrote."""
    folder = tmp_path_factory.mktemp("guessed")
    _, description = write_awkward_robot(folder)
    (folder / "sources" / "unrelated").mkdir()
    (folder / "sources" / "unrelated" / "package.xml").write_text("<package><name>unrelated</name></package>")
    out, said = folder / "guessed.yaml", io.StringIO()
    arguments = ["--sensor", "os0_32_sparse", "--package", str(folder / "sources"), "--out", str(out), "--json"]
    with contextlib.redirect_stdout(said):
        assert main(["robot", "init", str(description), *arguments]) == 0
    return json.loads(said.getvalue()), load_profile(out)


@pytest.mark.parametrize(
    ("words", "lidars"),
    [
        ([], {"left": "lidar_left_link", "right": "lidar_right_link", "mast": "lidar_mast_link"}),
        (["--lidar", "lidar_left_link", "--left", "lidar_mast_link"],
         {"left": "lidar_mast_link", "right": "lidar_right_link", "lidar_3": "lidar_left_link"}),
    ],
)  # fmt: skip
def test_init_finds_three_lidars(words, lidars, tmp_path, capsys):
    description = find_shared("models", "three_lidar_amr", ".urdf.xacro")
    out = tmp_path / "three.yaml"
    assert main(["robot", "init", str(description), "--sensor", "os0_32_sparse", "--out", str(out), *words]) == 0
    profile = load_profile(out)
    assert {name: lidar.frame for name, lidar in profile.lidars.items()} == lidars
    assert "stowed, the lidar_3 lidar sees" in capsys.readouterr().out or "mast" in profile.lidars


def test_init_reports_wheels_endless_joints_planar_lasers_and_the_floor(guessed):
    said, profile = guessed
    assert list(profile.description.packages) == [PACKAGE]
    assert [lidar.frame for lidar in profile.lidars.values()] == ["lidar_left_link", "lidar_right_link"]
    found = " ".join(said["found"])
    assert "scans one plane: laser_link" in found and "wheels, excluded from poses: left_wheel_joint, right_" in found
    assert "floor: base_footprint is at the lowest point of its wheels" in found
    assert {"shoulder_pan", "shoulder_lift", "elbow_flex"} == set(profile.commands)
    assert any("shoulder_pan: has no limits" in line for line in said["open"])
    assert "shoulder_pan" in profile.shape_joints  # it sweeps the arm sideways


def test_inits_plans_are_reachable_without_collisions_and_turn_the_arm_far(guessed):
    said, profile = guessed
    model = spawned_robot(profile).model
    limits = profile.commanded_limits(model)
    start = tuple(profile.stowed[profile.commands[name]] for name in profile.planned_names)
    assert set(profile.plans) == {"quick", "demo", "default", "mounts"}
    for name in profile.plans:
        settings = load_settings("body_shape", name, {}, 1.0, limits, None, profile)
        plan = plan_of_robot(model, settings, profile, start)
        assert len(plan.visits) >= 0.8 * (len(plan.visits) + len(plan.skipped)) > 1
        assert any(f"plan {name}: {len(plan.visits)} of" in line for line in said["found"])
        for joint in profile.shape_joints if name != "mounts" else ():
            assert np.ptp(settings.grids[joint]) > 1.0


def test_init_proposes_mount_poses_in_which_the_lidars_see_the_arm(guessed, tmp_path):
    _, profile = guessed
    simulator = EmbeddedSimulator(SimulationSetup.from_mapping({"robot": str(profile.source), "world": "empty_hall"}))

    def seen() -> float:
        return sum(
            view.get(link, 0.0) for view in map(simulator.view, profile.lidars) for link in simulator.geometry.moved
        )

    def posed(values) -> float:
        simulator.joints.place({profile.commands[name]: value for name, value in values.items()})
        return seen()

    stowed = seen()
    grid = profile.plans["mounts"]
    poses = [posed(dict(zip(grid, each, strict=True))) for each in itertools.product(*grid.values())]
    assert len(poses) > 1 and np.mean(poses) > stowed


@pytest.mark.slow
@pytest.mark.parametrize("poses", ["quick", pytest.param("mounts", marks=pytest.mark.long)])
def test_a_robot_that_init_described_is_calibrated_in_simulation(guessed, tmp_path, capsys, poses):
    _, profile = guessed
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(f"""
name: awkward
simulation: {{robot: {profile.source}, world: furnished_room, lidar_errors: {{right: {{xyz: [-0.003, 0.002, 0.001]}}}}}}
stages:
  alignment: {{num_samples: 4}}
  floor: {{num_samples: 3}}
  mounts: {{plan: {poses}}}
  body_shape: {{plan: quick, fit_method: circle}}
tolerances:
  alignment: {{translation_mm: 2.0, rotation_deg: 0.05}}
  floor: {{height_mm: 1.5, tilt_deg: 0.1}}
  mounts: {{translation_mm: 5.0, rotation_deg: 0.5}}
""")
    assert main(["run", str(scenario), "--in-process", "--out", str(tmp_path / "out")]) == 0, capsys.readouterr()
    folder = tmp_path / "out" / "awkward"
    page = (folder / "report.html").read_text()
    assert "standard deviation" in page
    for text in (page, (folder / "body_shape_model.yaml").read_text(), (folder / "result.json").read_text()):
        assert not re.search("stretch(?!_sim_cal)", text.replace(str(folder), ""), re.IGNORECASE)


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
        ('attached_to="chassis"', 'attached_to="chasis"', "base_footprint"),
        ('name="rear_lidar" type', 'name="mast" type', "a link is also called 'mast'"),
        ("</model>", '<include><uri>model://arm</uri></include></model>', "a nested <include> is not supported"),
    ],
)  # fmt: skip
def test_what_urdf_cannot_say_is_refused_by_file_and_element(tmp_path, capsys, old, new, told):
    assert old in ROBOT
    (tmp_path / "cart.sdf").write_text(ROBOT.replace(old, new))
    assert main(["robot", "init", str(tmp_path / "cart.sdf"), "--out", str(tmp_path / "cart.yaml")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and told in lines[0] and "cart.sdf" in lines[0]
