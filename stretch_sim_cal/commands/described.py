"""The frames of a calibration in a robot description: shared by commands that read both."""

from stretch_sim_cal.calibration.checks import Described
from stretch_sim_cal.calibration.values_file import JointOrigin
from stretch_sim_cal.commands.fk import is_own
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description

MODEL_HELP = "robot description to compare it with: a URDF or xacro file (default: the vendor's Stretch 4)"


ROBOT_HELP = (
    "the robot's profile, a name in config/robots/ or a path: its frames, and its description (default: the Stretch's)"
)


def description_file(path: str | None, robot: str | None) -> str | None:
    """Return `path`, or the description of the profile `robot` if that is named and no path is. Raises `InputError`."""
    return str(spawned_robot(named_robot(robot)).file) if path is None and robot is not None else path


def load_description(path: str | None, robot: str | None = None) -> RobotModel:
    """Return the model at `path`, of the profile `robot` for none, or the vendor's Stretch 4
    for neither and for `stretch4`.

    Raises `InputError` if it cannot be read.
    """
    path = description_file(path, robot)
    return load_model(nominal_description() if is_own(path) else path)


def described(model: RobotModel, profile: RobotProfile | None = None) -> Described:
    """Return the described transforms between the lidars, and of base_footprint; None for those it does not have."""
    profile = profile or stretch_profile()
    base, footprint = profile.base_frame, profile.footprint_frame
    lidars = profile.lidar_links(model)
    right_to_left = link_transform(model, {}, lidars[1], lidars[0]) if len(lidars) == 2 else None
    has_footprint = base in model.links and footprint in model.links
    return Described(right_to_left, link_transform(model, {}, base, footprint) if has_footprint else None)


def lidar_origins(model: RobotModel, profile: RobotProfile | None = None) -> tuple[JointOrigin, JointOrigin]:
    """Return the two lidars' joints as the description has them, the right one's origin in the left one's parent.

    Raises `InputError` if the description does not have two lidars on one link.
    """
    profile = profile or stretch_profile()
    lidars = profile.lidar_links(model)
    if len(lidars) != 2:
        raise InputError(
            f"robot '{model.name}' has {len(lidars)} lidar links; {' and '.join(profile.lidar_frames)} are needed"
        )
    left, right = (model.parent_joint(link) for link in lidars)
    if left is None or right is None or left.parent != right.parent or left.variables or right.variables:
        raise InputError(f"robot '{model.name}': the lidars are not fixed to one link; their joints cannot be written")
    return tuple(JointOrigin(j.name, j.parent, j.child, j.parent_from_joint) for j in (left, right))


def base_origin(model: RobotModel, profile: RobotProfile | None = None) -> JointOrigin | None:
    """Return the joint between base_footprint and base_link, None if the description has no such joint."""
    profile = profile or stretch_profile()
    joint = model.parent_joint(profile.base_frame) if profile.base_frame in model.links else None
    if joint is None or joint.parent != profile.footprint_frame or joint.variables:
        return None
    return JointOrigin(joint.name, joint.parent, joint.child, joint.parent_from_joint)
