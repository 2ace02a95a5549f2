"""The robot that a simulator spawns: a profile's description in the normal form of its convention, written once, with
its proof, and cached in `$XDG_CACHE_HOME/stretch_sim_cal/robots/` by a hash of everything that determines it."""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from xml.etree import ElementTree

from stretch_sim_cal import files, validate
from stretch_sim_cal.conventions import normal_form as forms
from stretch_sim_cal.conventions.normal_form import Description, Normal
from stretch_sim_cal.conventions.normalized_files import REPORT_FILE, write
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.robot.description import load_urdf_text, parse_urdf
from stretch_sim_cal.robot.model import RobotModel, near
from stretch_sim_cal.robot.profile import NO_CONVENTION, DescriptionSource, RobotProfile, load_profile, stretch_profile
from stretch_sim_cal.robot.sdf_as_urdf import LIDAR_SENSORS
from stretch_sim_cal.robot.stretch import DEFAULT_TOOL, WITHOUT_TOOL, nominal_description
from stretch_sim_cal.robot.surfaces import enclosing_link

NAME, NOTES = "robot.urdf", "notes.yaml"
UNUSED = 90 * 86400.0  # s; far longer than any simulation that reads the files
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
    """Return the profile `robot` (default: the Stretch's), perhaps with another description or tool."""
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
    absolute paths, searched beside the file `source` first. Raises `InputError` naming the key."""
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
    asked = profile.convention, sorted(profile.rename.items()), sorted(profile.zero.items())
    meshes = [_stamp(mesh.get("filename", "")) for mesh in given.root.iter("mesh")]
    roots = [ElementTree.tostring(each.root) for each in (given, tool) if each is not None]
    digest = hashlib.sha256(repr((roots, asked, meshes, _code_hash())).encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    folder = cache / files.PACKAGE / "robots" / digest.hexdigest()[:24]
    if (folder / NOTES).is_file():
        with contextlib.suppress(OSError):  # another user's
            os.utime(folder)
    else:
        _remove_unused(folder.parent)
        _make(profile, given, tool, folder)
    robot = SpawnedRobot(profile, folder / NAME, tuple(files.read_yaml(folder / NOTES)["notes"]))
    for key, problem in _misfits(profile, robot.model):
        raise InputError(f"{profile.source}: {key}: {problem}")
    return robot


def _misfits(profile: RobotProfile, model: RobotModel) -> Iterator[tuple[str, str]]:
    """Yield the keys of a profile that do not fit the description, and why: missing frames or joints, joints without
    limits, poses beyond limits, a lidar on a moving part or inside the body."""
    links = [("base_frame", profile.base_frame), ("footprint_frame", profile.footprint_frame)]
    for side, lidar in profile.lidars.items():
        if lidar.older_frame not in model.links:
            links.append((f"lidars: {side}: frame", lidar.frame))
        links += [(f"lidars: {side}: unseen", link) for link in lidar.unseen]
        if lidar.housing is not None:
            links.append((f"lidars: {side}: housing: link", lidar.housing.link))
    for key, link in links:
        if link not in model.links:
            yield key, f"the description has no link '{link}'{near(link, model.links)}"
    for side, lidar in profile.lidars.items():
        for above in model.chain(lidar.link_in(model)):
            if above.variables:
                moved = f"'{lidar.frame}' moves with the joint '{above.name}'"
                yield f"lidars: {side}: frame", f"{moved}; a lidar has to be fixed to the base"
    limits = profile.commanded_limits(model)
    for joint in profile.planned:
        key, parts = f"joints: {joint.name}", profile.parts(model, joint)
        if joint.command not in model.joints and not parts:
            yield key, f"the description has no joint '{joint.command}'{near(joint.command, model.joints)}"
        if joint.command not in limits:
            yield key, "has no limits; write limits: [lowest, highest]"
        kinds = {model.joints[name].type for name in parts or (joint.command,)}
        if (kinds == {"prismatic"}) != joint.linear:
            kind = f"the description's joint is {', '.join(sorted(kinds))}"
            yield f"{key}: linear", f"is {str(joint.linear).lower()}, {kind}"
    for key, steps in (("stow", profile.stow), ("home", profile.home)):
        for name, value in ((name, value) for step in steps for name, value in step.items()):
            limit = limits.get(name)
            if limit is not None and not limit.lower - 1e-6 <= value <= limit.upper + 1e-6:
                yield f"{key}: {name}", f"{value:g} is not within its limits {limit.lower:g} to {limit.upper:g}"
    for side, (frame, link) in enclosing_link(model, profile).items():
        place = f"'{frame}' lies inside the body ('{link}'): it would see only the body"
        yield f"lidars: {side}: frame", f"{place}; correct its pose, or name its own housing under unseen"


def _given(profile: RobotProfile) -> tuple[Description, Description | None]:
    source = profile.description
    if source.vendor is not None:
        own_tool = source.tool is not None and Path(source.tool).is_file()
        text = nominal_description(WITHOUT_TOOL if own_tool else source.tool or DEFAULT_TOOL)
        return forms.description(text, source=source.vendor), forms.read_description(source.tool) if own_tool else None
    given = forms.read_description(source.file, source.arguments, source.packages)
    # A simulator brings lidars of the profile's kind in place of the description's own.
    for extension in given.root.findall("gazebo"):
        for sensor in extension.findall("sensor"):
            if sensor.get("type") in LIDAR_SENSORS:
                extension.remove(sensor)
        if not len(extension) and extension.get("reference"):
            given.root.remove(extension)
    tool = None if source.tool is None else forms.read_description(source.tool, mesh_folders=source.packages)
    return given, tool


def _remove_unused(cache: Path) -> None:
    for folder in cache.glob("*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            if folder.stat().st_mtime < time.time() - UNUSED:
                shutil.rmtree(folder, ignore_errors=True)


def _make(profile: RobotProfile, given: Description, tool: Description | None, folder: Path) -> None:
    if profile.convention == NO_CONVENTION:
        if tool is not None or profile.rename or profile.zero:
            raise InputError(f"{profile.source}: convention: is none: a tool, rename and zero need one")
        files.write_text(folder / NAME, ElementTree.tostring(given.root, encoding="unicode"))
        files.write_yaml(folder / NOTES, {"notes": ["convention: none; the description is used as it is"]})
        return
    normal = forms.normalized(given, forms.Options(profile.convention, dict(profile.rename), dict(profile.zero), tool))
    if broken := [f"{each.rule} {each.sentence}" for each in normal.broken]:
        rules = " | ".join(broken[:SHOWN]) + (f", and {len(broken) - SHOWN} more" if len(broken) > SHOWN else "")
        fault = f"breaks the convention {profile.convention} also in its normal form: {rules}"
        by_hand = "resolve these by hand (stretch-sim-cal normalize writes the report)"
        raise Refused(f"{given.source}: {fault}; {by_hand}, or name another convention in the profile")
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
    try:
        stat = Path(mesh.removeprefix("file://")).stat()
    except OSError:
        return mesh
    return f"{mesh} {stat.st_mtime_ns} {stat.st_size}"


@lru_cache(maxsize=1)
def _code_hash() -> str:
    package = Path(__file__).parent.parent
    code = sorted([*(package / "conventions").glob("*.py"), *(package / "robot").glob("*.py")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()
