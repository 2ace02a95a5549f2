"""The robot that a simulator spawns: a profile's description in the normal form of its convention.

The normal form is written once, with its proof, and cached by a hash of everything that determines it in
`$XDG_CACHE_HOME/stretch_sim_cal/robots/`.
"""

import hashlib
import os
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from xml.etree import ElementTree

from stretch_sim_cal import files, validate
from stretch_sim_cal.conventions.normal_form import (
    Description,
    Normal,
    Options,
    description,
    normalized,
    read_description,
)
from stretch_sim_cal.conventions.normalized_files import REPORT_FILE, write
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.robot.description import load_urdf_text, parse_urdf
from stretch_sim_cal.robot.model import RobotModel, near
from stretch_sim_cal.robot.profile import NO_CONVENTION, DescriptionSource, RobotProfile, load_profile, stretch_profile
from stretch_sim_cal.robot.sdf_as_urdf import LIDAR_SENSORS
from stretch_sim_cal.robot.stretch import DEFAULT_TOOL, WITHOUT_TOOL, nominal_description
from stretch_sim_cal.robot.surfaces import enclosing_link

NAME, NOTES = "robot.urdf", "notes.yaml"
SHOWN = 5  # broken rules that a message names
ROBOT_KEYS = ("robot", "description", "tool")


@dataclass(frozen=True)
class SpawnedRobot:
    """A robot that is ready to be spawned: its `profile`, its description's `file` (URDF), and `notes`, one line each,
    on the convention and the changes made for it."""

    profile: RobotProfile
    file: Path
    notes: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """The description's URDF text; its meshes are absolute `file://` names."""
        return files.read_text(self.file)

    @cached_property
    def model(self) -> RobotModel:
        return parse_urdf(self.text, source=str(self.file))


def named_robot(robot: str | Path | None, source: str | Path | None = None, tool: str | None = None) -> RobotProfile:
    """Return the profile called `robot` (by default the Stretch's), perhaps with another description or tool. Raises
    `InputError` naming file and key."""
    profile = stretch_profile() if robot is None else load_profile(robot)
    if source is not None:
        path = Path(source).expanduser()
        if not path.is_file():
            raise InputError(f"description: {path}: no such file")
        profile = replace(profile, description=DescriptionSource(file=path.resolve()))
    if tool is not None:
        profile = replace(profile, description=replace(profile.description, tool=tool))
    return profile


def robot_from_mapping(data: dict, source: str, where: str) -> tuple[SpawnedRobot | None, dict[str, str]]:
    """Return the robot of the keys robot, description and tool of a mapping, None without them, and the keys with
    absolute paths. Files are searched beside the file `source` first (see `named_in`). Raises `InputError` naming the
    key."""
    given = {key: validate.text(str(data[key]), f"{where}: {key}") for key in ROBOT_KEYS if data.get(key) is not None}
    if not given:
        return None, given
    given = {key: files.named_in(source, name) for key, name in given.items()}
    try:
        return spawned_robot(named_robot(given.get("robot"), given.get("description"), given.get("tool"))), given
    except (InputError, Refused) as error:
        raise type(error)(f"{where}: {error}") from error


def spawned_robot(profile: RobotProfile) -> SpawnedRobot:
    """Return the robot of a profile, normalized and checked. Raises `InputError` naming the profile's key that does not
    fit the description, and `Refused` if the normal form breaks rules of the convention."""
    given, tool = _given(profile)
    digest = hashlib.sha256(ElementTree.tostring(given.root))
    if tool is not None:
        digest.update(ElementTree.tostring(tool.root))
    digest.update(repr((profile.convention, sorted(profile.rename.items()), sorted(profile.zero.items()))).encode())
    for mesh in given.root.iter("mesh"):
        digest.update(_stamp(mesh.get("filename", "")).encode())
    digest.update(_code_hash().encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    folder = cache / files.PACKAGE / "robots" / digest.hexdigest()[:24]
    if not (folder / NOTES).is_file():
        _make(profile, given, tool, folder)
    notes = files.read_yaml(folder / NOTES)["notes"]
    robot = SpawnedRobot(profile, folder / NAME, tuple(notes))
    _check_fit(profile, robot.model)
    return robot


def _check_fit(profile: RobotProfile, model: RobotModel) -> None:
    """Raise `InputError` naming the key if a profile does not fit the description: missing frames, joints or meshes,
    joints without limits, poses beyond limits, a lidar on a moving part or inside the body."""
    where = profile.source
    links = [("base_frame", profile.base_frame), ("footprint_frame", profile.footprint_frame)]
    for side, lidar in profile.every_lidar.items():
        if lidar.older_frame not in model.links:
            links.append((f"lidars: {side}: frame", lidar.frame))
        links += [(f"lidars: {side}: unseen", link) for link in lidar.unseen]
        if lidar.housing is not None:
            links.append((f"lidars: {side}: housing: link", lidar.housing.link))
    for key, link in links:
        if link not in model.links:
            raise InputError(f"{where}: {key}: the description has no link '{link}'{near(link, model.links)}")
    for side, lidar in profile.every_lidar.items():
        for above in model.chain(lidar.link_in(model)):
            if above.variables:
                raise InputError(
                    f"{where}: lidars: {side}: frame: '{lidar.frame}' moves with the joint '{above.name}'; a lidar "
                    "has to be fixed to the base"
                )
    limits = profile.commanded_limits(model)
    for joint in profile.planned:
        if joint.command not in model.joints and not profile.parts(model, joint):
            raise InputError(
                f"{where}: joints: {joint.name}: the description has no joint '{joint.command}'"
                f"{near(joint.command, model.joints)}"
            )
        if joint.command not in limits:
            raise InputError(f"{where}: joints: {joint.name}: has no limits; write limits: [lowest, highest]")
        kinds = {model.joints[name].type for name in profile.parts(model, joint) or (joint.command,)}
        if (kinds == {"prismatic"}) != joint.linear:
            raise InputError(
                f"{where}: joints: {joint.name}: linear: is {str(joint.linear).lower()}, the description's joint "
                f"is {', '.join(sorted(kinds))}"
            )
    for key, steps in (("stow", profile.stow), ("home", profile.home)):
        for name, value in ((name, value) for step in steps for name, value in step.items()):
            if name in limits and not limits[name].lower - 1e-6 <= value <= limits[name].upper + 1e-6:
                raise InputError(
                    f"{where}: {key}: {name}: {value:g} is not within its limits {limits[name].lower:g} to "
                    f"{limits[name].upper:g}"
                )
    for side, (frame, link) in enclosing_link(model, profile).items():
        raise InputError(
            f"{where}: lidars: {side}: frame: '{frame}' lies inside the body ('{link}'): it would see only "
            "the body; correct its pose, or name its own housing under unseen"
        )


def _given(profile: RobotProfile) -> tuple[Description, Description | None]:
    """Return the description of the source, and the tool to attach to it."""
    source = profile.description
    if source.vendor is not None:
        if source.tool is not None and Path(source.tool).is_file():
            return description(nominal_description(WITHOUT_TOOL), source=source.vendor), read_description(source.tool)
        return description(nominal_description(source.tool or DEFAULT_TOOL), source=source.vendor), None
    given = read_description(source.file, source.arguments, source.packages)
    # A simulator brings lidars of the profile's kind in place of the description's own.
    for extension in given.root.findall("gazebo"):
        for sensor in [each for each in extension.findall("sensor") if each.get("type") in LIDAR_SENSORS]:
            extension.remove(sensor)
        if not len(extension) and extension.get("reference"):
            given.root.remove(extension)
    tool = None if source.tool is None else read_description(source.tool, mesh_folders=source.packages)
    return given, tool


def _make(profile: RobotProfile, given: Description, tool: Description | None, folder: Path) -> None:
    """Write the normal form, with its proof, into a folder of the cache; its notes last."""
    if profile.convention == NO_CONVENTION:
        if tool is not None or profile.rename or profile.zero:
            raise InputError(f"{profile.source}: convention: is none: a tool, rename and zero need one")
        files.write_text(folder / NAME, ElementTree.tostring(given.root, encoding="unicode"))
        files.write_yaml(folder / NOTES, {"notes": ["convention: none; the description is used as it is"]})
        return
    normal = normalized(given, Options(profile.convention, dict(profile.rename), dict(profile.zero), tool))
    broken = [f"{each.rule} {each.sentence}" for each in normal.broken]
    if broken:
        more = f", and {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
        raise Refused(
            f"{given.source}: breaks the convention {profile.convention} also in its normal form: "
            f"{' | '.join(broken[:SHOWN])}{more}; resolve these by hand (stretch-sim-cal normalize writes the report), "
            "or name another convention in the profile"
        )
    written, departure = write(normal, folder)
    files.write_text(folder / NAME, load_urdf_text(written[0]))
    files.write_yaml(folder / NOTES, {"notes": _notes(profile, normal, departure, folder)})


def _notes(profile: RobotProfile, normal: Normal, departure: float, folder: Path) -> list[str]:
    kept = f"convention: {profile.convention} is kept"
    if normal.unchanged:
        return [f"{kept}; nothing had to be changed"]
    notes = [
        f"{kept} by the normal form ({folder / REPORT_FILE}); no shape, mass or frame "
        f"moved by more than {departure:.1e}"
    ]
    for what, names in (
        ("renamed", [f"{old} -> {new}" for old, new in normal.renamed]),
        ("frames turned", [normal.links[old] for old in normal.old_from_new]),
        ("joints with reversed direction", [each.name for each in normal.negated]),
        ("joints with other zeros", [each.name for each in normal.shifted]),
        ("frames added", [each.link for each in normal.added]),
    ):  # fmt: skip
        if names:
            notes.append(f"{what}: {', '.join(names)}")
    return notes


def _stamp(mesh: str) -> str:
    path = Path(mesh.removeprefix("file://"))
    try:
        stat = path.stat()
    except OSError:
        return mesh
    return f"{mesh} {stat.st_mtime_ns} {stat.st_size}"


@lru_cache(maxsize=1)
def _code_hash() -> str:
    """Return a hash of the code that determines the normal form."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for path in sorted([*(package / "conventions").glob("*.py"), *(package / "robot").glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()
