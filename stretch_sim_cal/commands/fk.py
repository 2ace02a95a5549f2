"""`stretch-sim-cal fk MODEL`: the pose of a frame of a robot at given joint positions."""

import argparse
import json
import math
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy, to_xyz_quaternion, to_xyz_rpy
from stretch_sim_cal.robot.description import load_model, mesh_packages
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import near
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description

EXAMPLE = "stretch-sim-cal fk stretch4 --joint lift_joint=0.6 arm_joint=0.2 --frame grasp_center_link"
OWN_MODEL = "stretch4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_arguments(parser)
    add_joint_argument(parser, "position of a joint in m or rad, or with 'deg' after it; others are at 0")
    parser.add_argument("--frame", required=True, help="the link whose frame is asked for")
    parser.add_argument("--relative-to", metavar="FRAME", help="the link it is given in (default: the root)")
    parser.add_argument("--root", metavar="'X Y Z R P Y'",
                        help="pose of the root in the world, m and rad (or 'X Y ANGLE' on a floor): the frame is given "
                        "in the world")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


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
        help="folder of a package of package:// meshes",
    )


def add_joint_argument(parser: argparse.ArgumentParser, text: str) -> None:
    """Declare `--joint NAME=VALUE ...`."""
    parser.add_argument("--joint", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=text)


def load(args: argparse.Namespace):
    """Return the robot model that the arguments name. Raises `InputError`."""
    arguments, packages = assignments(args.arg, "--arg"), mesh_folders(args)
    if is_own(args.model):
        if set(arguments) - {"tool"}:
            raise InputError(f"{OWN_MODEL} takes one argument: --arg tool=NAME")
        return load_model(nominal_description(**arguments))
    model = load_model(args.model, arguments, packages)
    shapes = (shape for link in model.links.values() for shape in (*link.visuals, *link.collisions))
    check_packages(packages, mesh_packages(shape.filename for shape in shapes if shape.filename))
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
    """Raise `InputError` if `--package` names a package that none of the meshes lies in; `used`
    are the meshes' packages."""
    for name in named:
        if name not in used:
            raise InputError(f"--package {name}: no mesh is in package://{name}{near(name, used)}")


def numbers(option: str, text: str, meaning: dict[int, str]) -> list[float]:
    """Return the finite numbers in an option's text; `meaning` is their meaning by their count.

    Raises `InputError` for another count and for other text; angles in deg are written with 'deg'.
    """
    words = text.split()
    try:
        values = [_value(word) for word in words]
    except ValueError:
        values = []
    if len(values) not in meaning or not all(map(math.isfinite, values)):
        raise InputError(
            f"{option} '{text}': {' or '.join(meaning.values())} was expected, finite numbers in m and rad"
        )
    return values


def joint_values(model, words: list[str]) -> dict[str, object]:
    """Return positions by the description's joint names; the Stretch's `arm_joint` and `gripper_joint` are known, too.

    A position beyond the joint's limits is used, with a note on stderr. Raises `InputError` for other text.
    """
    commanded = {name: _number(name, text) for name, text in assignments(words, "--joint").items()}
    positions = stretch_profile().joint_positions(model, commanded)
    for name, value in positions.items():
        limit = model.checked_joint(name).limit
        if limit is not None and not isinstance(value, list) and (value < limit.lower or value > limit.upper):
            print(f"note: {name} = {value:g} is beyond its limits {limit.lower:g} to {limit.upper:g}", file=sys.stderr)
    return positions


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


def _number(name: str, text: str) -> float | list[float]:
    """Return a number, or the numbers of a joint with several degrees of freedom, written with commas."""
    values = []
    for word in text.split(","):
        try:
            values.append(_value(word))
        except ValueError as error:
            raise InputError(f"--joint {name}={text}: '{word}' is not a number") from error
    return values[0] if len(values) == 1 else values


def _value(word: str) -> float:
    return math.radians(float(word.removesuffix("deg"))) if word.endswith("deg") else float(word)


def run(args: argparse.Namespace) -> int:
    """Print the frame's pose."""

    if args.root is not None and args.relative_to is not None:
        raise InputError(
            "--root is the pose of the root in the world; a pose relative to another link does not need it"
        )
    world_from_root = _root_pose(args.root) if args.root is not None else np.eye(4)
    model = load(args)
    transform = link_transform(model, joint_values(model, args.joint), args.frame, args.relative_to)
    transform = world_from_root @ transform
    xyz, rpy = to_xyz_rpy(transform)
    quaternion = to_xyz_quaternion(transform)[1]
    relative_to = "the world" if args.root is not None else args.relative_to or model.root
    if args.json:
        answer = {"frame": args.frame, "relative_to": relative_to, "transform": transform.tolist()}
        answer |= {"xyz": xyz.tolist(), "rpy": rpy.tolist(), "quaternion_xyzw": quaternion.tolist()}
        print(json.dumps(answer, indent=1))
        return 0
    print(f"{args.frame} in {relative_to}")
    print("  xyz        " + " ".join(f"{value:.6f}" for value in xyz) + "  m")
    print("  rpy        " + " ".join(f"{value:.6f}" for value in rpy) + "  rad")
    print("  rpy        " + " ".join(f"{value:.4f}" for value in np.degrees(rpy)) + "  deg")
    print("  quaternion " + " ".join(f"{value:.6f}" for value in quaternion) + "  x y z w")
    return 0


def _root_pose(text: str):
    """Return world_from_root (4, 4) of `--root`: six numbers, or on a floor three."""
    values = numbers("--root", text, {6: "x y z roll pitch yaw", 3: "x y angle"})
    if len(values) == 3:
        x, y, angle = values
        values = [x, y, 0.0, 0.0, 0.0, angle]
    return from_xyz_rpy(values[:3], values[3:])
