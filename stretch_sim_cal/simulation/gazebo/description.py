"""World and robot for Gazebo: a world file with the systems it needs, the robot with the scenario's lidars."""

import math
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import trimesh

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.description import parse_urdf, parse_xml
from stretch_sim_cal.robot.sdf import WORLD
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.robot.urdf_elements import add_joint
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.simulation.embedded import RobotGeometry
from stretch_sim_cal.simulation.gazebo.rays import grid_for
from stretch_sim_cal.simulation.setup import FLOOR_LINK, SimulationSetup, simulated_description, true_link
from stretch_sim_cal.simulation.worlds import find_uri

# s of physics, as long as the drivers' own steps: nothing collides and joints are led by velocity, so that finer ones
# change nothing but the cost.
STEP = 0.025
SYSTEMS = {
    "gz-sim-physics-system": "gz::sim::systems::Physics",
    "gz-sim-user-commands-system": "gz::sim::systems::UserCommands",
    "gz-sim-scene-broadcaster-system": "gz::sim::systems::SceneBroadcaster",
}
# They lead a base that drives over the floor, whose wheels do not turn: x, y (m) and yaw (rad) in the world.
FLOOR_JOINTS = {
    "floor_x_joint": ("prismatic", "1 0 0"), "floor_y_joint": ("prismatic", "0 1 0"),
    "floor_yaw_joint": ("continuous", "0 0 1"),
}  # fmt: skip
# m/s, rad/s at most: within a few steps of physics joints are where they are led, a base at once.
FASTEST, FASTEST_BASE = 100, 10_000
LIDAR_SYSTEMS = {
    "cpu": ("gz-sim-cpu-lidar-system", "gz::sim::systems::CpuLidar"),
    "gpu": ("gz-sim-sensors-system", "gz::sim::systems::Sensors"),
}


def gazebo_world(world: str | Path, lidar: str) -> tuple[str, str]:
    """Return (name, SDF text) of a world for Gazebo with a "cpu" or "gpu" lidar. Raises `InputError` naming the file.

    Beside the file's own shapes there are: physics by DART with ODE's collision detector, the only one whose rays the
    CPU lidar casts exactly; no gravity, under which a position-controlled lift droops by millimetres (the robot is the
    only thing that could fall, and stands fixed); the systems; and absolute paths of meshes and included models."""
    path = files.find_shared("worlds", world, ".sdf")
    root = parse_xml(files.read_text(path), str(path))
    element = root.find("world")
    if root.tag != "sdf" or element is None:
        raise InputError(f"{path}: has no <world>")
    # Actors have no shapes that a lidar would see, only a skin for the eye.
    for tag in ("physics", "gravity", "actor"):
        for found in element.findall(tag):
            element.remove(found)
    element[:0] = ElementTree.fromstring(
        f'<world><physics name="exact_rays" type="dart"><max_step_size>{STEP}</max_step_size>'
        "<real_time_factor>0</real_time_factor><dart><collision_detector>ode</collision_detector></dart></physics>"
        "<gravity>0 0 0</gravity></world>"
    )
    present = {plugin.get("filename", "") for plugin in element.findall("plugin")}
    for filename, name in [*SYSTEMS.items(), LIDAR_SYSTEMS[lidar]]:
        if filename not in present:
            plugin = ElementTree.SubElement(element, "plugin", filename=filename, name=name)
            if filename == LIDAR_SYSTEMS["gpu"][0]:
                ElementTree.SubElement(plugin, "render_engine").text = "ogre2"
    for uri in element.iter("uri"):
        if (found := find_uri((uri.text or "").strip(), path, path)) is not None:
            uri.text = found.as_uri()
    return element.get("name", path.stem), ElementTree.tostring(root, encoding="unicode")


# <sensor type>: what is called CPU lidar is the plain type to Gazebo.
SENSOR_TYPES = {"cpu": "lidar", "gpu": "gpu_lidar"}
# m. Gazebo starts its rays at <min> and so looks through what is nearer; the collars around the lidars begin at 0.03.
RAY_START = 0.01
NO_LIMIT = 1e16  # what SDFormat and Gazebo's physics take for no limit


def gazebo_description(
    setup: SimulationSetup, sensors: Mapping[str, Sensor], geometry: RobotGeometry, lidar: str, folder: Path,
) -> str:  # fmt: skip
    """Return the URDF text to spawn, with "cpu" or "gpu" lidars of `sensors` by name; its meshes are written to
    `folder`. Collision shape and visual of every link are what the embedded simulator casts rays against. Joints have
    no limits there: commands keep within them. A base that drives is moved by `FLOOR_JOINTS`, another is fixed to the
    world."""
    robot = parse_xml(simulated_description(setup), "description for Gazebo")
    profile, model = setup.profile, parse_urdf(robot, source="description for Gazebo")
    for joint in sorted(profile.joint_positions(model, dict.fromkeys(profile.commanded_limits(model), 0.0))):
        robot.append(_controller(joint, FASTEST))
    _stand_on_floor(robot, drives=profile.base is not None)
    robot.append(ElementTree.fromstring(
        '<gazebo><plugin filename="gz-sim-joint-state-publisher-system" name="gz::sim::systems::JointStatePublisher">'
        "<topic>stretch/joint_states</topic></plugin></gazebo>"
    ))  # fmt: skip
    # Gazebo's physics (DART before 6.16) does not release a velocity-led joint from a limit of its position, nor slow
    # one down from a limit of its velocity (dartsim/dart#1683, #2422). Without effort a joint never moves, and with
    # little it neither follows nor stops within a step.
    none = repr(NO_LIMIT)
    for limit in robot.iterfind("joint/limit"):
        limit.attrib.update(lower=repr(-NO_LIMIT), upper=none, velocity=none, effort=none)
    for name, described in profile.lidars.items():
        extension = ElementTree.SubElement(robot, "gazebo", reference=true_link(name))
        extension.append(_lidar_sensor(name, described.frame, sensors[name], lidar))
    for link in robot.iterfind("link"):
        name = link.get("name", "")
        surface = geometry.surfaces.get(name)
        for shape in [*link.findall("collision"), *link.findall("visual")]:
            link.remove(shape)
        if surface is not None and len(surface.faces):
            _put_shape(link, surface, folder / f"{name}.stl")
    return ElementTree.tostring(robot, encoding="unicode")


def _controller(joint: str, fastest: float) -> ElementTree.Element:
    """Return a controller that leads a joint to positions by velocity, at most so fast (m/s, rad/s)."""
    return ElementTree.fromstring(f"""
      <gazebo>
        <plugin filename="gz-sim-joint-position-controller-system" name="gz::sim::systems::JointPositionController">
          <joint_name>{joint}</joint_name>
          <topic>stretch/{joint}</topic>
          <use_velocity_commands>true</use_velocity_commands>
          <cmd_max>{fastest}</cmd_max>
          <cmd_min>{-fastest}</cmd_min>
        </plugin>
      </gazebo>""")


def _stand_on_floor(robot: ElementTree.Element, drives: bool) -> None:
    """Join the floor's link to Gazebo's world, if it `drives` by `FLOOR_JOINTS`."""
    parent = WORLD
    ElementTree.SubElement(robot, "link", name=WORLD)
    for joint, (kind, axis) in FLOOR_JOINTS.items() if drives else ():
        link = joint.replace("_joint", "_link")
        robot.append(ElementTree.fromstring(
            f'<link name="{link}"><inertial><mass value="1.0"/>'
            '<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0.0" ixz="0.0" iyz="0.0"/></inertial></link>'
        ))  # fmt: skip
        robot.append(ElementTree.fromstring(
            f'<joint name="{joint}" type="{kind}"><parent link="{parent}"/><child link="{link}"/><axis xyz="{axis}"/>'
            '<limit lower="0.0" upper="0.0" effort="0.0" velocity="0.0"/></joint>'
        ))  # fmt: skip
        robot.append(_controller(joint, FASTEST_BASE))
        parent = link
    add_joint(robot, "world_joint", parent, FLOOR_LINK, np.eye(4))


def ray_height(sensor: Sensor) -> float:
    """Return how far (m) up the lidar's axis Gazebo's rays begin: at the height of the turning optical centre. From the
    frame's origin the collar hides a ninth of the directions, which the sensor sees."""
    return float(sensor.optical_centre[2])


def _lidar_sensor(name: str, frame: str, sensor: Sensor, lidar: str) -> ElementTree.Element:
    grid = grid_for(sensor, lidar)
    # One step short of a full turn, or the first column comes twice.
    last = math.pi - 2 * math.pi / grid.columns
    return ElementTree.fromstring(f"""
      <sensor name="lidar_{name}" type="{SENSOR_TYPES[lidar]}">
        <pose>0 0 {ray_height(sensor)!r} 0 0 0</pose>
        <topic>{cloud_topic(name)}</topic>
        <frame_id>{frame}</frame_id>
        <update_rate>{sensor.rate!r}</update_rate>
        <always_on>true</always_on>
        <lidar>
          <scan>
            <horizontal>
              <samples>{grid.columns}</samples><min_angle>{-math.pi!r}</min_angle><max_angle>{last!r}</max_angle>
            </horizontal>
            <vertical>
              <samples>{grid.rows}</samples>
              <min_angle>{grid.lowest!r}</min_angle><max_angle>{grid.highest!r}</max_angle>
            </vertical>
          </scan>
          <range><min>{min(RAY_START, sensor.range_min)!r}</min><max>{sensor.range_max!r}</max></range>
          <noise><type>gaussian</type><mean>0</mean><stddev>0.0</stddev></noise>
        </lidar>
      </sensor>""")


def cloud_topic(name: str) -> str:
    """Return the topic of a lidar's <sensor>; its clouds are on /points below it."""
    return f"lidar_points_{name}"


def _put_shape(link: ElementTree.Element, surface: Surface, file: Path) -> None:
    """Give a link one surface as collision shape and as visual, in `file` and beside it. Renderers cull back faces,
    which the lidars see of their collars: the visual has every triangle twice, once for each side."""
    both_sides = np.concatenate([surface.faces, surface.faces[:, ::-1]])
    shapes = {"visual": (both_sides, file.with_stem(f"{file.stem}_visual")), "collision": (surface.faces, file)}
    for tag, (faces, path) in shapes.items():
        # STL: OBJ without normals has been seen to crash Gazebo's server.
        trimesh.Trimesh(surface.vertices, faces, process=False).export(path, file_type="stl")
        geometry = ElementTree.SubElement(ElementTree.SubElement(link, tag), "geometry")
        ElementTree.SubElement(geometry, "mesh", filename=path.resolve().as_uri())
