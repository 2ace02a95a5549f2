"""What public robots have and the robots here have not: `$(find)`, meshes of packages that nothing installs, a
footprint below base_link in the tree."""

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
from made_results import alignment_result, floor_result

import stretch_sim_cal as cal
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.cli import main
from stretch_sim_cal.collection.plan import plan_of_robot
from stretch_sim_cal.collection.settings import load_settings
from stretch_sim_cal.commands.robot_guess import rounded
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.files import find_shared
from stretch_sim_cal.geometry.transforms import from_xyz_rpy, inverse
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import load_profile
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

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
def robot(tmp_path, monkeypatch, cache):
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


def test_a_calibration_is_exported_where_the_footprint_is_a_child_of_base_link(robot, tmp_path, capsys):
    _, _, profile = robot
    model = spawned_robot(named_robot(profile)).model
    alignment = alignment_result(link_transform(model, {}, "lidar_right_link", "lidar_left_link") @ from_xyz_rpy(
        (0.002, 0.001, 0.0), (0.0, 0.003, 0.0)
    ))  # fmt: skip
    file = tmp_path / "calibration.yaml"
    floor = floor_result(0.103, (0.005, -0.01))
    CalibrationFile().with_alignment(alignment, "other").with_floor(floor, "other").save(file)
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
    assert {name: lidar.frame for name, lidar in profile.every_lidar.items()} == lidars
    assert "stowed, the lidar_3 lidar sees" in capsys.readouterr().out or "mast" in profile.further


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


def test_a_proposed_value_is_within_its_joints_limits_when_it_is_rounded():
    assert rounded(1.5176, (-1.221, 1.518)) == 1.518 and rounded(0.126, (-1.221, 1.518)) == 0.13


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


def test_what_of_a_stowed_robot_stands_in_a_lidars_way_is_named_with_its_share(guessed):
    _, profile = guessed
    setup = {"robot": str(profile.source), "world": "empty_hall", "sensor": "jt128_sparse"}  # sees what is near, too
    simulator = EmbeddedSimulator(SimulationSetup.from_mapping(setup))
    simulator.joints.place({"shoulder_pan": 1.2, "shoulder_lift": -0.2, "elbow_flex": 0.0})
    view = simulator.view("left")
    returns, surfaces, names = simulator.labelled_scan("left", 0)
    counts = np.bincount(surfaces, minlength=len(names)) / simulator.sensor.num_rays
    assert view["upper_arm_link"] > 0.01
    assert view["upper_arm_link"] == pytest.approx(counts[names.index("upper_arm_link")], abs=0.01)
    assert list(view.values()) == sorted(view.values(), reverse=True) and sum(view.values()) < 1


@pytest.mark.slow
def test_a_robot_that_init_described_is_calibrated_in_simulation(guessed, tmp_path, capsys):
    _, profile = guessed
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(f"""
name: awkward
simulation: {{robot: {profile.source}, world: furnished_room, lidar_right_error: {{xyz: [-0.003, 0.002, 0.001]}}}}
stages:
  alignment: {{num_samples: 4}}
  floor: {{num_samples: 3}}
  mounts: {{plan: mounts}}
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
