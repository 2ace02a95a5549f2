"""Which robot this is: its name, its tool, and a hash of its description, so that files of another one are noticed."""

import os
from collections.abc import Mapping
from pathlib import Path

from stretch_sim_cal.calibration.body.model import robot_hash
from stretch_sim_cal.calibration.body.outline import LinkSurface
from stretch_sim_cal.calibration.calibration_file import default_robot_id
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.robot.surfaces import Surface, outline_surfaces

CONFIGURATIONS = ("stretch_user_params.yaml", "stretch_configuration_params.yaml")
"""Files of the robot's fleet folder that name its tool, the user's own before the factory's."""


def robot_identity(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return `robot_id` and `tool_id` as a dataset keeps them, each "unknown" where nothing names it."""
    environment = os.environ if environment is None else environment
    return {"robot_id": default_robot_id(environment), "tool_id": _tool(environment)}


def description_hash(
    model: RobotModel, surfaces: Mapping[str, LinkSurface | Surface] | None = None, profile: RobotProfile | None = None
) -> str:
    """Return the hash by which a body-shape model file knows this description.

    `surfaces` are those of its links that have any; without them they are read. Raises `InputError` for a description
    without the links or meshes that it takes.
    """
    profile = profile or stretch_profile()
    if surfaces is None:
        surfaces = {link: surface for link, surface in outline_surfaces(model, profile).items() if len(surface.faces)}
    if profile.base_frame not in model.links:
        raise InputError(f"robot '{model.name}' has no {profile.base_frame}")
    at_zero = link_transforms(model, {})
    base = inverse(at_zero[profile.base_frame])
    return robot_hash(
        {link: surface.vertices for link, surface in surfaces.items()},
        {link: base @ at_zero[link] for link in surfaces},
    )


def _tool(environment: Mapping[str, str]) -> str:
    fleet_path, fleet_id = environment.get("HELLO_FLEET_PATH"), environment.get("HELLO_FLEET_ID")
    for name in CONFIGURATIONS if fleet_path and fleet_id else ():
        path = Path(fleet_path).expanduser() / fleet_id / name
        try:
            tool = (read_yaml(path).get("robot") or {}).get("tool")
        except (InputError, OSError, AttributeError):  # not there, or not the file that is meant: nothing is said
            continue
        if isinstance(tool, str) and tool:
            return tool
    return "unknown"
