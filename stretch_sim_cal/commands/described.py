"""The robot that a command's arguments name: its description, and the frames of a calibration in it."""

import argparse
import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from stretch_sim_cal.calibration.checks import Described
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot import description
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import RobotModel, near
from stretch_sim_cal.robot.profile import RobotProfile, profile_called, stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description

OWN_MODEL = "stretch4"


def add_model_arguments(parser: argparse.ArgumentParser, kinds: str = "a URDF, SDF or xacro file") -> None:
    """Declare the arguments that name the robot's description; `kinds` are the files that the command reads."""
    trust = "a xacro runs code: use only files that you trust"
    parser.add_argument("model", metavar="MODEL", help=f"{kinds} ({trust}), or '{OWN_MODEL}': the vendor's robot")
    add_words(parser, "--arg", "NAME=VALUE", "arguments of the xacro")
    add_package_argument(parser)


def add_words(parser: argparse.ArgumentParser, option: str, metavar: str, text: str) -> None:
    """Declare an option that takes several words, any number of times."""
    parser.add_argument(option, nargs="+", action="extend", default=[], metavar=metavar, help=text)


def add_package_argument(parser: argparse.ArgumentParser) -> None:
    folder = "folder of the package NAME, for package:// meshes and $(find NAME) in a xacro; or a folder to search for"
    add_words(parser, "--package", "NAME=DIR", f"{folder} packages (package.xml)")


def own_text(args: argparse.Namespace) -> str:
    """Return the vendor's description. Raises `InputError` for arguments that it does not take."""
    arguments = assignments(args.arg, "--arg")
    if set(arguments) - {"tool"}:
        raise InputError(f"{OWN_MODEL} takes one argument: --arg tool=NAME")
    return nominal_description(**arguments)


def load(args: argparse.Namespace) -> RobotModel:
    arguments, packages = assignments(args.arg, "--arg"), mesh_folders(args)
    if is_own(args.model):
        return load_model(own_text(args))
    model = load_model(args.model, arguments, packages)
    shapes = (shape for link in model.links.values() for shape in (*link.visuals, *link.collisions))
    used = description.mesh_packages(shape.filename for shape in shapes if shape.filename)
    check_packages(args.package, used | description.found_packages(args.model))
    return model


def is_own(model: str | Path | None) -> bool:
    """Return whether a model is the vendor's robot: by its name, or because none is given."""
    return model is None or (str(model) == OWN_MODEL and not Path(OWN_MODEL).exists())


def source_of(model: str | Path | None) -> str | Path:
    """Return a file as it is, or the text of the vendor's description if that is meant (`is_own`)."""
    return nominal_description() if is_own(model) else model


def urdf_text(model: str | Path | None, folders: Mapping[str, str] | None = None) -> str:
    """Return the URDF text of a file, or of the vendor's robot (`is_own`); `folders` are those of packages."""
    return nominal_description() if is_own(model) else description.load_urdf_text(model, folders=folders)


def mesh_folders(args: argparse.Namespace) -> dict[str, str]:
    """Return the folders of packages by name. Raises `InputError` as `package_folders`, and for the vendor's robot."""
    folders = package_folders(args.package)
    if folders and is_own(args.model):
        raise InputError(f"--package: {OWN_MODEL} brings its own meshes")
    return folders


def package_folders(words: list[str]) -> dict[str, str]:
    """Return the folders of packages by name from the words of `--package`: NAME=DIR, or DIR for all packages below it.
    Raises `InputError` for a folder that is missing or has no package, and for a package that is there twice."""
    named = assignments([word for word in words if "=" in word], "--package")
    for name, folder in named.items():
        if not Path(folder).expanduser().is_dir():
            raise InputError(f"--package {name}={folder}: no such folder")
    found: dict[str, str] = {}
    for word in (word for word in words if "=" not in word):
        if not Path(word).expanduser().is_dir():
            raise InputError(f"--package {word}: no such folder; expected NAME=DIR or a folder of packages")
        below = _packages_below(Path(word).expanduser())
        if not below:
            raise InputError(f"--package {word}: has no package.xml in it or below it")
        for name, folder in below:
            if found.setdefault(name, folder) != folder and name not in named:
                twice = f"{name} exists twice, in {found[name]} and in {folder}"
                raise InputError(f"--package {word}: {twice}; give the right one: --package {name}=DIR")
    return found | named


def _packages_below(folder: Path) -> list[tuple[str, str]]:
    """Return name and folder of every package, by its package.xml, in a folder or below it; none is in another one."""
    packages = []
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "package.xml" in names:
            folders.clear()
            file = Path(where) / "package.xml"
            name = description.parse_xml(description.read_text(file), str(file)).findtext("name", "").strip()
            packages.append((name or Path(where).name, where))
    return packages


def check_packages(words: list[str], used: Collection[str]) -> None:
    """Raise `InputError` if a word NAME=DIR of `--package` names a package that is not `used`."""
    for name in assignments([word for word in words if "=" in word], "--package"):
        if name not in used:
            raise InputError(f"--package {name}: neither a mesh nor a xacro uses it{near(name, used)}")


def numbers(option: str, text: str, meaning: dict[int, str]) -> list[float]:
    """Return the finite numbers in an option's text, angles in deg with 'deg'; `meaning` is their meaning by their
    count. Raises `InputError` for other text."""
    try:
        values = [number(word) for word in text.split()]
    except ValueError:
        values = []
    if len(values) not in meaning or not all(map(math.isfinite, values)):
        raise InputError(f"{option} '{text}': expected {' or '.join(meaning.values())}, finite numbers in m and rad")
    return values


def assignments(words: list[str], option: str) -> dict[str, str]:
    """Return NAME=VALUE words as a mapping. Raises `InputError` for others, and for a name given twice."""
    result: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {word}: expected NAME=VALUE")
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
    """Return the model at `path`, with the packages of the profile `robot`, else that profile's, else the vendor's
    Stretch 4. Raises `InputError`."""
    packages = profile_called(robot).description.packages
    return load_model(source_of(description_file(path, robot)), mesh_folders=packages)


def described(model: RobotModel, profile: RobotProfile | None = None) -> Described:
    """Return the described transforms of the lidars and of base_footprint; None for those it does not have."""
    profile = profile or stretch_profile()
    base, footprint = profile.base_frame, profile.footprint_frame
    links = profile.lidar_links(model)
    has_footprint = base in model.links and footprint in model.links
    return Described(
        {
            name: link_transform(model, {}, link, links["left"])
            for name, link in links.items() if name != "left" and "left" in links
        },
        link_transform(model, {}, base, footprint) if has_footprint else None,
        {name: link_transform(model, {}, link, base) for name, link in links.items() if base in model.links},
    )  # fmt: skip
