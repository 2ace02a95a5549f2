"""The true robot of a simulation: the description with its errors, and added links (models/README.md) that only the
simulator knows. The description's frames stay nominal."""

from xml.etree import ElementTree

from stretch_sim_cal.conventions.rewrite import add_frame, set_origin
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import find_shared
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy, inverse, to_xyz_rpy
from stretch_sim_cal.robot.description import expand_xacro, parse_urdf, parse_xml
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import near
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.robot.sdf_as_urdf import numbers_text
from stretch_sim_cal.robot.stretch import DEFAULT_TOOL, vendor_arguments
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup

SIMULATORS = ("embedded", "gazebo")


def true_link(lidar: str) -> str:
    """Return the link at the true pose of a lidar; the profile's frame is at the nominal one."""
    return f"lidar_{lidar}_true_link"


def simulated_description(
    setup: SimulationSetup, simulator: str = "embedded", tool: str = DEFAULT_TOOL, **gazebo: object
) -> str:
    """Return the URDF text of a setup's robot (by default the vendor's Stretch 4 with `tool`) with the errors of its
    lidars, base and joints, and its payload. For the simulator "gazebo" there are sensors and controllers, and no
    collision box around the lidars; `gazebo` are further arguments of models/gazebo.xacro. Raises `InputError` for
    unknown tools and simulators, and for errors of joints that do not exist or carry a lidar."""
    if simulator not in SIMULATORS:
        raise InputError(f"simulator '{simulator}' is unknown; available: {', '.join(SIMULATORS)}")
    profile, errors = setup.profile, setup.errors_by_lidar
    arguments: dict[str, object] = {
        "payload": repr([[box.link, *map(numbers_text, (box.size, box.xyz, box.rpy))] for box in setup.payload]),
        "simulator": simulator,
    }
    if setup.robot is None:
        base = setup.base_error
        arguments |= vendor_arguments(tool)
        arguments |= {"base_height": base.height, "base_roll": base.roll, "base_pitch": base.pitch}
    else:
        arguments |= _robot_arguments(setup, simulator)
    arguments |= gazebo
    for side in SIDES:
        xyz, rpy = to_xyz_rpy(errors[side].matrix)
        arguments |= {f"lidar_{side}_xyz": xyz, f"lidar_{side}_rpy": rpy}
    text = expand_xacro(find_shared("models", "stretch4" if setup.robot is None else "robot", ".urdf.xacro"), arguments)
    robot = parse_xml(text, "simulated description")
    if setup.robot is not None:
        robot.set("name", setup.robot.model.name)
    for name, lidar in profile.further.items():
        add_frame(robot, true_link(name), f"lidar_{name}_true_joint", lidar.frame, errors[name].matrix)
    for name, error in setup.joint_errors.items():
        _move_joint(robot, name, error, profile)
    if simulator == "gazebo":
        _correct_for_gazebo(robot, profile)
    return ElementTree.tostring(robot, encoding="unicode")


def _robot_arguments(setup: SimulationSetup, simulator: str) -> dict[str, object]:
    """Return the arguments of models/robot.urdf.xacro: the frames' names and the floor's pose below the root."""
    robot, profile, base = setup.robot, setup.profile, setup.base_error
    model = robot.model
    footprint_from_base = link_transform(model, {}, profile.base_frame, profile.footprint_frame)
    floor_from_base = footprint_from_base @ from_xyz_rpy((0.0, 0.0, base.height), (base.roll, base.pitch, 0.0))
    xyz, rpy = to_xyz_rpy(floor_from_base @ inverse(link_transform(model, {}, profile.base_frame)))
    arguments = {
        "description": robot.file, "root": model.root, "floor_xyz": xyz, "floor_rpy": rpy,
        **{f"lidar_{side}_frame": link for side, link in zip(SIDES, profile.lidar_links(model), strict=True)},
    }  # fmt: skip
    if simulator == "gazebo":
        driven = profile.joint_positions(model, dict.fromkeys(profile.commanded_limits(model), 0.0))
        arguments["joints"] = repr(sorted(driven))
    return arguments


def _move_joint(robot: ElementTree.Element, name: str, error: PoseError, profile: RobotProfile) -> None:
    model = parse_urdf(robot, source="simulated description")
    lidars = (*profile.lidar_links(model), *(lidar.frame for lidar in profile.further.values()))
    carrying = {joint.name for link in lidars for joint in model.chain(link)}
    if name not in model.joints or name in carrying:
        movable = sorted(set(model.joints) - carrying)
        raise InputError(f"joint error: '{name}' is not a joint, or carries a lidar{near(name, movable)}")
    joint = next(element for element in robot.iterfind("joint") if element.get("name") == name)
    set_origin(joint, model.joints[name].parent_from_joint @ error.matrix)


def _correct_for_gazebo(robot: ElementTree.Element, profile: RobotProfile) -> None:
    """Links that are the lidars themselves, and the collision box of the link that holds them, hide their view, and a
    controller of a missing joint is an error."""
    joints = {joint.get("name") for joint in robot.iterfind("joint")}
    for extension in robot.findall("gazebo"):
        if extension.findtext("plugin/joint_name", default=next(iter(joints))) not in joints:
            robot.remove(extension)
    unseen = {link for lidar in profile.every_lidar.values() for link in lidar.unseen}
    for link in robot.iterfind("link"):
        own = link.get("name") in unseen
        if own or link.get("name") == profile.housing_link:
            for shape in link.findall("collision") + (link.findall("visual") if own else []):
                link.remove(shape)
