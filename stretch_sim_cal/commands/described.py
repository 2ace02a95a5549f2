"""The robot that a command's arguments name: its description, and the frames of a calibration in it."""

import argparse
import math
from collections.abc import Collection, Iterable
from pathlib import Path

from stretch_sim_cal.calibration.checks import Described
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.description import found_packages, load_model, mesh_packages
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import RobotModel, near
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description

OWN_MODEL = "stretch4"
MODEL_HELP = "robot description to compare it with: a URDF or xacro file (default: the vendor's Stretch 4)"
ROBOT_HELP = (
    "the robot's profile, a name in config/robots/ or a path: its frames, and its description (default: the Stretch's)"
)


def add_model_arguments(parser: argparse.ArgumentParser, kinds: str = "a URDF, SDF or xacro file") -> None:
    """Declare the arguments that name the robot's description; `kinds` are the files that the command reads."""
    parser.add_argument(
        "model", metavar="MODEL",
        help=f"{kinds} (a xacro is a program: your own only), or '{OWN_MODEL}': the vendor's robot",
    )  # fmt: skip
    parser.add_argument(
        "--arg", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="arguments of the xacro"
    )
    parser.add_argument(
        "--package",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=DIR",
        help="folder of a package of package:// meshes, and of $(find NAME) in a xacro",
    )


def load(args: argparse.Namespace):
    """Return the robot model that the arguments name. Raises `InputError`."""
    arguments, packages = assignments(args.arg, "--arg"), mesh_folders(args)
    if is_own(args.model):
        if set(arguments) - {"tool"}:
            raise InputError(f"{OWN_MODEL} takes one argument: --arg tool=NAME")
        return load_model(nominal_description(**arguments))
    model = load_model(args.model, arguments, packages)
    shapes = (shape for link in model.links.values() for shape in (*link.visuals, *link.collisions))
    used = mesh_packages(shape.filename for shape in shapes if shape.filename) | found_packages(args.model)
    check_packages(packages, used)
    return model


def is_own(model: str | Path | None) -> bool:
    """Return whether a model is the vendor's robot: by its name, or because none is given."""
    return model is None or (str(model) == OWN_MODEL and not Path(OWN_MODEL).exists())


def mesh_folders(args: argparse.Namespace) -> dict[str, str]:
    """Return the folders of packages of meshes. Raises `InputError` for a folder that is not
    there, or that nothing reads."""
    folders = assignments(args.package, "--package")
    for name, folder in folders.items():
        if not Path(folder).expanduser().is_dir():
            raise InputError(f"--package {name}={folder}: no such folder")
    if folders and is_own(args.model):
        raise InputError(f"--package: {OWN_MODEL} brings its own meshes")
    return folders


def check_packages(named: Iterable[str], used: Collection[str]) -> None:
    """Raise `InputError` if `--package` names a package that is not `used`: no mesh lies in it, no xacro finds it."""
    for name in named:
        if name not in used:
            raise InputError(
                f"--package {name}: no mesh is in package://{name}, and no xacro finds it{near(name, used)}"
            )


def numbers(option: str, text: str, meaning: dict[int, str]) -> list[float]:
    """Return the finite numbers in an option's text; `meaning` is their meaning by their count.

    Raises `InputError` for another count and for other text; angles in deg are written with 'deg'.
    """
    words = text.split()
    try:
        values = [number(word) for word in words]
    except ValueError:
        values = []
    if len(values) not in meaning or not all(map(math.isfinite, values)):
        raise InputError(
            f"{option} '{text}': {' or '.join(meaning.values())} was expected, finite numbers in m and rad"
        )
    return values


def assignments(words: list[str], option: str) -> dict[str, str]:
    """Return NAME=VALUE words as a mapping. Raises `InputError` for others, and for a name given twice."""
    result: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {word}: NAME=VALUE was expected")
        if name in result:
            raise InputError(f"{option} {word}: {name} is given twice")
        result[name] = value
    return result


def number(word: str) -> float:
    """Return a number; an angle in deg with 'deg' after it. Raises `ValueError`."""
    return math.radians(float(word.removesuffix("deg"))) if word.endswith("deg") else float(word)


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
    return Described(
        right_to_left,
        link_transform(model, {}, base, footprint) if has_footprint else None,
        {name: link_transform(model, {}, lidar.frame, lidars[0]) for name, lidar in profile.further.items()},
    )
