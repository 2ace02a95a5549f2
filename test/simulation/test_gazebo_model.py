"""The robot and the worlds as Gazebo gets them; where SDFormat's own parser is installed, it reads them too."""

import dataclasses
import shutil
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest
import trimesh

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.surfaces import link_surfaces
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.gazebo.description import FLOOR_JOINTS, gazebo_description, gazebo_world
from stretch_sim_cal.simulation.optics import Hits, Scene
from stretch_sim_cal.simulation.setup import BaseError, PoseError, SimulationSetup
from stretch_sim_cal.simulation.worlds import load_world

WORLDS = sorted(path.stem for path in (files.share_directory() / "worlds").glob("*.sdf"))
SETUP = SimulationSetup(
    sensor="jt128_sparse",
    lidar_errors={"left": PoseError((0.002, -0.001, 0.003), (0.01, -0.02, 0.03))},
    base_error=BaseError(0.003, 0.01, -0.01),
)


@pytest.fixture(scope="module")
def embedded():
    return EmbeddedSimulator(SETUP)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("robot")


@pytest.fixture(scope="module")
def description(embedded, folder) -> str:
    return gazebo_description(SETUP, embedded.sensors, embedded.geometry, "cpu", folder)


def test_lidars_have_the_sensor_s_rays_and_sit_where_they_really_are(description, embedded):
    robot, model = ElementTree.fromstring(description), parse_urdf(description)
    # A link without inertia whose fixed joint is to be kept is dropped by SDFormat, sensors included.
    assert model.root == "world" and not list(robot.iter("preserveFixedJoint"))
    sensors = {e.get("reference"): e.find("sensor") for e in robot.iter("gazebo") if e.find("sensor") is not None}
    assert set(sensors) == {"lidar_left_true_link", "lidar_right_true_link"}
    for sensor in sensors.values():
        scan = {axis: sensor.find(f"lidar/scan/{axis}") for axis in ("horizontal", "vertical")}
        assert sensor.get("type") == "lidar" and scan["horizontal"].findtext("samples") == "300"
        assert float(sensor.findtext("lidar/range/max")) == embedded.sensor.range_max
        # More rows than channels: an uneven channel takes the nearest.
        assert 64 < int(scan["vertical"].findtext("samples")) <= 128
        assert float(scan["vertical"].findtext("min_angle")) == pytest.approx(np.radians(-3.5))
        assert float(sensor.findtext("lidar/noise/stddev")) == 0.0  # the simulator adds it, by the seed
        turn = float(scan["horizontal"].findtext("max_angle")) + np.pi
        assert turn == pytest.approx(2 * np.pi * 299 / 300)  # a full turn would cast its first column twice
    transforms = link_transforms(model, {}, ["base_link", *sensors])
    found = inverse(transforms["base_link"]) @ transforms["lidar_left_true_link"]
    assert found == pytest.approx(embedded.base_from_lidar("left"))


def test_rays_start_before_anything_that_blocks_them(description, embedded):
    # Gazebo looks through what is nearer than its lidars' minimum; the collars around them block a tenth of the rays.
    start = float(ElementTree.fromstring(description).findtext(".//lidar/range/min"))
    scene = Scene(embedded.true_surfaces())
    for side in ("left", "right"):
        base_from_lidar = embedded.base_from_lidar(side)
        directions = embedded.lidar(side).rays(0).directions @ base_from_lidar[:3, :3].T
        nearest = Hits(base_from_lidar[:3, 3], directions, [scene]).distances.min()
        assert start < nearest < embedded.sensor.range_min


def test_every_joint_that_can_be_commanded_has_a_controller_and_an_effort(description, embedded):
    robot = ElementTree.fromstring(description)
    controlled = {plugin.findtext("joint_name") for plugin in robot.iter("plugin")} - {None}
    assert controlled == embedded.joints.movable | set(FLOOR_JOINTS)
    limits = {joint.get("name"): joint.find("limit") for joint in robot.iterfind("joint")}
    # In real Gazebo a wrist of the vendor's effort ran on for turns when it was led through a
    # quarter of a second at once.
    assert all(float(limits[name].get("effort")) > 1e6 for name in controlled)


@pytest.mark.parametrize("geometry", ["collision", "visual"])
def test_gazebo_s_robot_has_the_shapes_that_the_embedded_simulator_s_rays_meet(geometry, tmp_path):
    setup = dataclasses.replace(SETUP, lidar_geometry=geometry)
    embedded = EmbeddedSimulator(setup)
    text = gazebo_description(setup, embedded.sensors, embedded.geometry, "gpu", tmp_path)
    spawned = parse_urdf(text)
    ours = {link: surface for link, surface in embedded.geometry.surfaces.items() if len(surface.faces)}
    for which in ("visual", "collision"):
        theirs = link_surfaces(spawned, which)
        assert set(theirs) == set(ours)
        for link, surface in ours.items():
            np.testing.assert_allclose(theirs[link].vertices.min(axis=0), surface.vertices.min(axis=0), atol=1e-6)
            np.testing.assert_allclose(theirs[link].vertices.max(axis=0), surface.vertices.max(axis=0), atol=1e-6)
    assert embedded.ground_truth()["lidar_geometry"] == geometry


@pytest.mark.parametrize("link", ["head_link", "lidar_left_true_link"])
def test_a_renderer_sees_the_head_and_the_collars_from_both_sides(description, folder, link):
    """It does not draw the backs of triangles, and it is those of its collar that a lidar looks at."""
    seen, solid = (trimesh.load(folder / f"{link}{name}.stl", process=False) for name in ("_visual", ""))
    assert len(seen.faces) == 2 * len(solid.faces)
    count = len(solid.faces)
    assert seen.face_normals[:count] == pytest.approx(-seen.face_normals[count:], abs=1e-6)


@pytest.mark.parametrize("world", WORLDS)
def test_worlds_keep_their_shapes_and_get_the_systems_they_need(world, tmp_path):
    for lidar, system in (("cpu", "gz-sim-cpu-lidar-system"), ("gpu", "gz-sim-sensors-system")):
        name, text = gazebo_world(world, lidar)
        root = ElementTree.fromstring(text).find("world")
        plugins = {plugin.get("filename") for plugin in root.findall("plugin")}
        assert {"gz-sim-physics-system", "gz-sim-user-commands-system", system} <= plugins
    assert root.get("name") == name and root.findtext("gravity") == "0 0 0"
    assert root.findtext("physics/dart/collision_detector") == "ode"
    written = tmp_path / "world.sdf"
    written.write_text(text)
    ours, theirs = load_world(world), load_world(written)
    assert theirs.warnings == ours.warnings
    assert set(theirs.surfaces) == set(ours.surfaces)


def test_models_beside_a_world_are_found_from_where_gazebo_reads_it(tmp_path):
    for folder in ("chair", "models/table"):
        (tmp_path / folder).mkdir(parents=True)
        shape = "<collision name='c'><geometry><sphere><radius>1</radius></sphere></geometry></collision>"
        model = f"<sdf version='1.9'><model name='m'><static>1</static><link name='l'>{shape}</link></model></sdf>"
        (tmp_path / folder / "model.sdf").write_text(model)
    included = "".join(
        f"<include><name>{name}</name><uri>{uri}</uri></include>"
        for name, uri in (("a", "chair"), ("b", "model://table"), ("c", "chair/model.sdf"))
    )
    (tmp_path / "room.sdf").write_text(f"<sdf version='1.9'><world name='w'>{included}</world></sdf>")
    (tmp_path / "elsewhere").mkdir()
    written = tmp_path / "elsewhere" / "world.sdf"
    written.write_text(gazebo_world(tmp_path / "room.sdf", "cpu")[1])
    assert set(load_world(written).surfaces) == {"a/l/c", "b/l/c", "c/l/c"}


def test_a_file_that_is_no_world_is_named(tmp_path):
    file = tmp_path / "model.sdf"
    file.write_text("<sdf version='1.9'><model name='a'/></sdf>")
    with pytest.raises(InputError, match="model.sdf: has no <world>"):
        gazebo_world(file, "cpu")


@pytest.mark.skipif(shutil.which("check_urdf") is None, reason="apt install liburdfdom-tools")
def test_urdfdom_accepts_the_robot(description, tmp_path):
    file = tmp_path / "robot.urdf"
    file.write_text(description)
    done = subprocess.run(["check_urdf", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("gz") is None, reason="Gazebo's tools are not installed: apt install ros-jazzy-ros-gz")
def test_sdformat_keeps_both_sensors_of_the_robot_and_accepts_the_worlds(description, tmp_path):
    robot = tmp_path / "robot.urdf"
    robot.write_text(description)
    printed = subprocess.run(["gz", "sdf", "-p", str(robot)], capture_output=True, text=True)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.count("<sensor ") == 2
    for world in WORLDS:
        file = tmp_path / f"{world}.sdf"
        file.write_text(gazebo_world(world, "cpu")[1])
        checked = subprocess.run(["gz", "sdf", "-k", str(file)], capture_output=True, text=True)
        assert checked.returncode == 0, f"{world}: {checked.stderr}"
