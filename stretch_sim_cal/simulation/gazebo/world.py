"""A world of `worlds/` as Gazebo runs it: the same shapes, with the systems that physics and lidars need."""

from pathlib import Path
from xml.etree import ElementTree

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.urdf import parse_xml

# s of physics, as long as the drivers' own steps: nothing collides and joints are led by velocity, so that finer ones
# change nothing but the cost.
STEP = 0.025
SYSTEMS = {
    "gz-sim-physics-system": "gz::sim::systems::Physics",
    "gz-sim-user-commands-system": "gz::sim::systems::UserCommands",
    "gz-sim-scene-broadcaster-system": "gz::sim::systems::SceneBroadcaster",
}
LIDAR_SYSTEMS = {
    "cpu": ("gz-sim-cpu-lidar-system", "gz::sim::systems::CpuLidar"),
    "gpu": ("gz-sim-sensors-system", "gz::sim::systems::Sensors"),
}


def gazebo_world(world: str | Path, lidar: str) -> tuple[str, str]:
    """Return (name, SDF text) of a world for Gazebo with a "cpu" or "gpu" lidar. Raises `InputError` naming the file.

    Beside the file's own shapes there are: physics by DART with ODE's collision detector, the only one whose rays the
    CPU lidar casts exactly; no gravity, under which a position-controlled lift droops by millimetres (the robot is the
    only thing that could fall, and stands fixed); the systems; and absolute paths of meshes.
    """
    path = files.find_shared("worlds", world, ".sdf")
    root = parse_xml(files.read_text(path), str(path))
    element = root.find("world")
    if root.tag != "sdf" or element is None:
        raise InputError(f"{path}: holds no <world>")
    # Actors have no shapes that a lidar would see, only a skin for the eye.
    for tag in ("physics", "gravity", "actor"):
        for found in element.findall(tag):
            element.remove(found)
    element.insert(0, ElementTree.fromstring(
        f'<physics name="exact_rays" type="dart"><max_step_size>{STEP}</max_step_size>'
        "<real_time_factor>0</real_time_factor>"
        "<dart><collision_detector>ode</collision_detector></dart></physics>"
    ))  # fmt: skip
    element.insert(1, ElementTree.fromstring("<gravity>0 0 0</gravity>"))
    present = {plugin.get("filename", "") for plugin in element.findall("plugin")}
    for filename, name in [*SYSTEMS.items(), LIDAR_SYSTEMS[lidar]]:
        if filename not in present:
            plugin = ElementTree.SubElement(element, "plugin", filename=filename, name=name)
            if filename == LIDAR_SYSTEMS["gpu"][0]:
                ElementTree.SubElement(plugin, "render_engine").text = "ogre2"
    for uri in element.iter("uri"):
        beside = path.parent / (uri.text or "").strip().removeprefix("file://")
        if beside.is_file():
            uri.text = beside.resolve().as_uri()
    return element.get("name", path.stem), ElementTree.tostring(root, encoding="unicode")
