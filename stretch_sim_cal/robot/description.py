"""Loads a robot description: a URDF or xacro file, URDF text, or the kinematics of an SDF file.

model = load_model("robot.urdf.xacro", {"tool": "gripper"})
model = parse_urdf(text_of_robot_description)
"""

import os
from collections.abc import Mapping
from pathlib import Path

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_text
from stretch_sim_cal.robot.model import Geometry, Inertial, Joint, Limit, Link, Mimic, RobotModel, robot_model
from stretch_sim_cal.robot.sdf_model import is_sdf, parse_sdf_model
from stretch_sim_cal.robot.urdf import MeshFolders, parse_urdf
from stretch_sim_cal.robot.xacro_source import expand_xacro

__all__ = [
    "Geometry",
    "Inertial",
    "Joint",
    "Limit",
    "Link",
    "Mimic",
    "RobotModel",
    "load_model",
    "load_urdf_text",
    "parse_urdf",
    "robot_model",
]


def load_model(
    source: str | os.PathLike,
    arguments: Mapping[str, object] | None = None,
    mesh_folders: MeshFolders | None = None,
) -> RobotModel:
    """Return the model of a URDF file, a xacro file, an SDF file, or a URDF text (anything that begins with `<`).

    `arguments` are those of the xacro; `mesh_folders` maps package names of `package://` meshes to folders. Relative
    meshes start at the file's folder. Xacro files are programs (see `xacro_source`): load only your own. Of an SDF the
    links and joints of its one model are read, not its shapes.
    Raises `InputError` naming the file and the element.
    """
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("<"):
        if arguments:
            raise InputError("xacro arguments need a xacro file, this is the text of a URDF")
        return parse_urdf(source.lstrip("\ufeff \t\r\n"), mesh_folders=mesh_folders)
    path = Path(source).expanduser()
    text = load_urdf_text(path, arguments)
    if is_sdf(path, text):
        return parse_sdf_model(text, str(path)).robot_model()
    return parse_urdf(text, path.resolve().parent, str(path), mesh_folders)


def load_urdf_text(path: str | os.PathLike, arguments: Mapping[str, object] | None = None) -> str:
    """Return the URDF text of a URDF or xacro file; a xacro is expanded with `arguments`. Raises `InputError`."""
    path = Path(path).expanduser()
    text = read_text(path)
    if is_xacro(path, text):
        return expand_xacro(path, arguments)
    if arguments:
        raise InputError(f"{path}: is no xacro and takes no arguments ({', '.join(arguments)})")
    return text


def is_xacro(path: Path, text: str) -> bool:
    """Return whether a file is a xacro: by its name, or by the namespace it declares."""
    return path.suffix == ".xacro" or "xmlns:xacro" in text
