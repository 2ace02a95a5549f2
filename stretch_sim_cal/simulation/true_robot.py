"""The true robot of a simulation: the description with its errors, and added links (models/README.md) that only the
simulator knows. The description's frames stay nominal."""

from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from stretch_sim_cal.conventions.rewrite import add_fixed_joint, add_frame, set_origin
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy, inverse
from stretch_sim_cal.robot.description import parse_urdf, parse_xml
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import RobotModel, near
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.robot.sdf_as_urdf import numbers_text
from stretch_sim_cal.simulation.setup import BaseError, PayloadBox, PoseError, SimulationSetup

FLOOR_LINK = "floor_link"  # the root: the real floor, z = 0


def true_link(lidar: str) -> str:
    """Return the link at the true pose of a lidar; the profile's frame is at the nominal one."""
    return f"lidar_{lidar}_true_link"


def simulated_description(setup: SimulationSetup) -> str:
    """Return the URDF text of a setup's robot (by default the vendor's Stretch 4) with the errors of its lidars, base
    and joints, and its payload. Raises `InputError` for errors of joints that do not exist or carry a lidar."""
    source = "simulated description"
    robot, profile, errors = parse_xml(setup.nominal_description, source), setup.profile, setup.errors_by_lidar
    model = parse_urdf(robot, source=source)
    lidars = dict(zip(SIDES, profile.lidar_links(model), strict=True))
    lidars |= {name: lidar.frame for name, lidar in profile.further.items()}
    for name, frame in lidars.items():
        add_frame(robot, true_link(name), f"lidar_{name}_true_joint", frame, errors[name].matrix)
    _add_floor(robot, model, profile, setup.base_error)
    for number, box in enumerate(setup.payload):
        _add_box(robot, f"payload_{number}", box)
    carrying = {joint.name for link in lidars.values() for joint in model.chain(link)}
    for name, error in setup.joint_errors.items():
        _move_joint(robot, model, name, error, carrying)
    return ElementTree.tostring(robot, encoding="unicode")


def _add_floor(robot: Element, model: RobotModel, profile: RobotProfile, base: BaseError) -> None:
    """Add the floor below the root, so that the base frame is raised, rolled and pitched over it as `base` says."""
    footprint_from_base = link_transform(model, {}, profile.base_frame, profile.footprint_frame)
    floor_from_base = footprint_from_base @ from_xyz_rpy((0.0, 0.0, base.height), (base.roll, base.pitch, 0.0))
    floor_from_root = floor_from_base @ inverse(link_transform(model, {}, profile.base_frame))
    SubElement(robot, "link", name=FLOOR_LINK)
    add_fixed_joint(robot, "floor_joint", FLOOR_LINK, model.root, floor_from_root)


def _add_box(robot: Element, name: str, box: PayloadBox) -> None:
    link = SubElement(robot, "link", name=f"{name}_link")
    for kind in ("visual", "collision"):
        SubElement(SubElement(SubElement(link, kind), "geometry"), "box", size=numbers_text(box.size))
    add_fixed_joint(robot, f"{name}_joint", box.link, f"{name}_link", from_xyz_rpy(box.xyz, box.rpy))


def _move_joint(robot: Element, model: RobotModel, name: str, error: PoseError, carrying: set[str]) -> None:
    """Move a joint's origin by an error; not one of those that are `carrying` a lidar."""
    if name not in model.joints or name in carrying:
        movable = sorted(set(model.joints) - carrying)
        raise InputError(f"joint error: '{name}' is not a joint, or carries a lidar{near(name, movable)}")
    joint = next(element for element in robot.iterfind("joint") if element.get("name") == name)
    set_origin(joint, model.joints[name].parent_from_joint @ error.matrix)
