"""Robot profiles (`config/robots/*.yaml`): all that is particular to one robot, so that nothing else knows it by name.

    profile = load_profile("stretch4")              # a name in config/robots/, or a path
    profile.check(model)                            # raises `InputError` if it does not fit the description

Names of links and joints in a profile are those of the description as it is spawned: after it was normalized, if the
profile names a convention. A commanded joint may stand for several joints of the description that are tied together.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal import files, validate
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.robot.description import package_folder
from stretch_sim_cal.robot.model import Limit, RobotModel, near
from stretch_sim_cal.robot.wheeled_base import WheeledBase, wheeled_base
from stretch_sim_cal.validate import Section

FOLDER = "config/robots"
STRETCH = "stretch4"
VENDOR = STRETCH
"""The one description that comes from a Python package, by its vendor."""
NO_CONVENTION = "none"
CONVENTIONS = ("stretch", "rep199", "icub", NO_CONVENTION)
TIES = ("sum", "equal")
STEP_LINEAR, STEP_ANGULAR = 0.05, 0.2  # m, rad: what moves a part 5 to 10 cm at most
MOST_SHAPE_JOINTS = 2
"""A body-shape model is a grid over so many joints at most."""

KEYS = {
    "name", "description", "convention", "rename", "zero", "base_frame", "footprint_frame", "sensor", "lidars",
    "joints", "shape_joints", "reach", "stow", "home", "plans", "mount_candidates", "offset_joints", "check_joints",
    "topics", "values_file", "lidar_geometry", "body", "accept", "base",
}  # fmt: skip
GEOMETRIES = ("collision", "visual")
"""Which of a description's shapes lidars may see; or those of another one."""
DESCRIPTION_KEYS = {"file", "vendor", "arguments", "packages", "tool"}
LIDAR_KEYS = {"frame", "older_frame", "topic", "unseen", "housing", "sensor"}
NOT_OF_FURTHER = ("housing",)
"""Keys of the left and the right lidar alone."""
LIDAR_NAME = re.compile("[a-z][a-z0-9_]*")
HOUSING_KEYS = {"link", "radius", "heights", "collar_radius", "collar_heights"}
JOINT_KEYS = {"command", "parts", "tie", "linear", "planned", "limits", "speed", "step"}
TOPIC_KEYS = {"trajectory", "stop"}
BODY_KEYS = {"radius", "height"}


@dataclass(frozen=True)
class DescriptionSource:
    """Source of the description: a `file` (URDF or xacro) with its xacro `arguments` and the folders of its
    `packages`, or the `vendor`'s own. `tool` is one of the vendor's tools by name, or the URDF of a tool to attach."""

    file: Path | None = None
    vendor: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    tool: str | None = None


@dataclass(frozen=True)
class Housing:
    """A lidar's housing inside the visual mesh of `link`, whose collision shape encloses the lidar: what lies in a
    cylinder of `radius` between two `heights` (m) about the axis of the lidar's frame is the lidar itself, and what
    lies within `collar_radius` and `collar_heights` is its mount, which goes where the lidar goes."""

    link: str
    radius: float
    heights: tuple[float, float]
    collar_radius: float
    collar_heights: tuple[float, float]

    def holds(self, points: np.ndarray, collar: bool = False) -> np.ndarray:
        """Return which points (N, 3) in the lidar's frame lie in the housing, or in its collar (N,)."""
        radius, (low, high) = (self.collar_radius, self.collar_heights) if collar else (self.radius, self.heights)
        return (np.hypot(points[:, 0], points[:, 1]) < radius) & (points[:, 2] > low) & (points[:, 2] < high)


@dataclass(frozen=True)
class ProfiledLidar:
    """One lidar: its `frame` (`older_frame` under older firmware), the `topic` of its clouds, and what it does not see
    because it is the lidar itself: the links `unseen` (its own link among them), or a `housing` in another link's mesh.
    """

    frame: str
    topic: str
    older_frame: str | None = None
    unseen: tuple[str, ...] = ()
    housing: Housing | None = None

    def link_in(self, model: RobotModel) -> str | None:
        """Return the lidar's link in a model, under whichever of its names; None if the model has neither."""
        return next((name for name in (self.frame, self.older_frame) if name in model.links), None)


@dataclass(frozen=True)
class CommandedJoint:
    """A joint as datasets and command lines name it, and `command`, its name to the driver.

    It stands for the description's joint of that name or, if there is none, for `parts`: the first of these sets whose
    joints the description has. With the tie "sum" they share the value evenly (telescoping segments), with "equal" each
    has it (fingers). `linear` joints move in m. `planned` ones are those of arm poses. `limits` are narrower than the
    description's; `speed` (m/s or rad/s) is the reduced one for collections. `step` (m, rad): how closely the union
    over its values is taken if a body shape does not follow it.
    """

    name: str
    command: str
    parts: tuple[tuple[str, ...], ...] = ()
    tie: str = "sum"
    linear: bool = False
    planned: bool = True
    limits: tuple[float, float] | None = None
    speed: float | None = None
    step: float = 0.05

    def of_parts(self, values: Sequence[float | np.ndarray]) -> float | np.ndarray:
        """Return the joint's value from those of its parts: their sum, or their mean if each has the whole."""
        return sum(values) if self.tie == "sum" else sum(values) / len(values)


Pose = dict[str, float]
"""Values (m, rad) of commanded joints by their names to the driver."""


@dataclass(frozen=True)
class RobotProfile:
    """One robot. `lidars` by side, the same one twice if there is one (`one_lidar`), those beyond two in `further` by
    their names; `joints` in the order of
    datasets; `shape_joints` (at most two of the planned ones)
    are those that the body shape follows; `stow` and `home` are poses as steps that are gone through in their order.
    `sensor` is the name of the lidars' sensor, or those of all lidars in this order with commas between.

    `plans` are grids of arm poses by name, in place of the settings files'. `mount_candidates` are values by joint of
    which poses for the lidars' extrinsics are proposed, `offset_joints` the joints whose zeros are estimated with them,
    each with one standard deviation of what may be wrong with it (m, rad), `check_joints` those whose values the check
    of the left extrinsics needs. `reach` (m): how far a part may be from an axis that turns it. `values_file`: whether
    calibrated joints go to the vendor's stretch_calibration_values.yaml. `lidar_geometry`: what lidars see, in
    simulators and in the calibration's model: one of `GEOMETRIES`, or the file of a URDF whose collision shapes, by the
    links' names, they see. `accept` are the standard deviations (m, rad) of lidar to lidar up to which a result is
    accepted. `body` is the radius and height (m) of a cylinder about the base's z axis that the robot is taken for
    where room and floor are looked at; if it is None, its shapes in the stowed pose count. `base` is how it drives,
    None if that is not said.
    """

    name: str
    source: str
    description: DescriptionSource
    convention: str
    rename: Mapping[str, str]
    zero: Mapping[str, float]
    base_frame: str
    footprint_frame: str
    sensor: str
    lidars: Mapping[str, ProfiledLidar]
    joints: tuple[CommandedJoint, ...]
    shape_joints: tuple[str, ...]
    reach: float
    stow: tuple[Pose, ...]
    home: tuple[Pose, ...]
    plans: Mapping[str, Mapping[str, Any]]
    mount_candidates: Mapping[str, tuple[float, ...]]
    offset_joints: Mapping[str, float]
    check_joints: tuple[str, ...]
    trajectory: str
    stop: str
    values_file: bool
    lidar_geometry: str = GEOMETRIES[0]
    further: Mapping[str, ProfiledLidar] = field(default_factory=dict)
    body: tuple[float, float] | None = None
    accept: tuple[float, float] | None = None
    base: WheeledBase | None = None

    @property
    def every_lidar(self) -> dict[str, ProfiledLidar]:
        """All lidars by name: "left", "right" if there is one, and those beyond."""
        return {side: self.lidars[side] for side in self.sides} | dict(self.further)

    @property
    def driven_base(self) -> WheeledBase:
        """How the base drives. Raises `InputError` if the profile does not say it."""
        if self.base is None:
            raise InputError(f"{self.source}: has no 'base:' that says how the robot drives; add it to calibrate so")
        return self.base

    @property
    def one_lidar(self) -> bool:
        """Whether there is one lidar, the left one: the right one is then at the same place, and sees nothing."""
        return self.lidars["left"] is self.lidars["right"]

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that a lidar is on."""
        return SIDES[:1] if self.one_lidar else SIDES

    @property
    def lidar_frames(self) -> tuple[str, ...]:
        """The lidars' frames, left first."""
        return tuple(self.lidars[side].frame for side in SIDES)

    @property
    def planned(self) -> tuple[CommandedJoint, ...]:
        """The joints of arm poses, in the order of a dataset."""
        return tuple(joint for joint in self.joints if joint.planned)

    @property
    def planned_names(self) -> tuple[str, ...]:
        """The names of the joints of arm poses."""
        return tuple(joint.name for joint in self.planned)

    @property
    def commands(self) -> dict[str, str]:
        """The driver's names of the planned joints, by their names in a dataset."""
        return {joint.name: joint.command for joint in self.planned}

    @property
    def stowed(self) -> Pose:
        """The commanded positions of the stowed pose."""
        return {name: value for step in self.stow for name, value in step.items()}

    @property
    def node_defaults(self) -> dict[str, str]:
        """Default frames, topics and sensor of nodes and commands."""
        return {
            "base_link_frame": self.base_frame, "footprint_frame": self.footprint_frame, "sensor": self.sensor,
            **{f"{side}_lidar_frame": lidar.frame for side, lidar in self.lidars.items()},
            **{f"{side}_lidar_topic": lidar.topic for side, lidar in self.lidars.items()},
        }  # fmt: skip

    @property
    def housing_link(self) -> str | None:
        """The link whose visual mesh, without the lidars' housings, takes the place of its collision shape."""
        return next((lidar.housing.link for lidar in self.lidars.values() if lidar.housing is not None), None)

    def lidar_links(self, model: RobotModel) -> list[str]:
        """Return the model's lidar links, left before right, whichever generation of names it uses."""
        return [link for lidar in self.lidars.values() if (link := lidar.link_in(model)) is not None]

    def joint_positions(
        self, model: RobotModel, commanded: Mapping[str, float | np.ndarray]
    ) -> dict[str, float | np.ndarray]:
        """Return the description's joint positions of commanded ones, which may be numbers or arrays.

        A commanded joint that the model does not have itself is given to its parts. Other names stay as they are.
        The inverse is `commanded_positions`.
        """
        tied = {joint.command: joint for joint in self.joints if joint.command not in model.joints}
        result: dict[str, float | np.ndarray] = {}
        for name, value in commanded.items():
            parts = self.parts(model, tied[name]) if name in tied else ()
            if not parts:
                result[name] = value
            elif tied[name].tie == "sum":
                result |= dict.fromkeys(parts, np.asarray(value) / len(parts))
            else:
                result |= dict.fromkeys(parts, value)
        return result

    def commanded_positions(
        self, model: RobotModel, positions: Mapping[str, float | np.ndarray]
    ) -> dict[str, float | np.ndarray]:
        """Return commanded positions of the description's: the sum or the mean of parts that are tied.

        If a part is not among `positions` (messages may lack some), what it belongs to is not either.
        """
        ties = {
            joint: parts for joint in self.joints
            if (parts := joint.parts[0] if joint.tie == "sum" and joint.parts else self.parts(model, joint))
        }  # fmt: skip
        tied = {part for parts in ties.values() for part in parts}
        result = {name: value for name, value in positions.items() if name not in tied}
        for joint, parts in ties.items():
            if all(part in positions for part in parts):
                result[joint.command] = joint.of_parts([positions[part] for part in parts])
        return result

    def commanded_limits(self, model: RobotModel) -> dict[str, Limit]:
        """Return the limits, as commanded, of the joints that have any: the model's own, and those of tied joints.

        Parts that share a value extend together, so they have together as many times the range and velocity of the
        shortest and slowest as they are; parts that each have it share one position. A profile's own limits are within
        the model's; they stand alone if the model has none.
        """
        limits = {joint.name: joint.limit for joint in model.moving_joints() if joint.limit is not None}
        for joint in self.joints:
            parts = self.parts(model, joint)
            if joint.command in model.joints or not parts or any(part not in limits for part in parts):
                continue
            count = len(parts) if joint.tie == "sum" else 1
            together = [limits.pop(part) for part in parts]
            limits[joint.command] = Limit(
                lower=count * max(limit.lower for limit in together),
                upper=count * min(limit.upper for limit in together),
                velocity=count * min(limit.velocity for limit in together),
                effort=min(limit.effort for limit in together),
            )
        for joint in self.joints:
            if joint.limits is not None and (joint.command in limits or joint.command in model.joints):
                low, high = joint.limits
                own = limits.get(joint.command, Limit(low, high, joint.speed or 1.0, 0.0))
                if joint.command in model.joints and model.joints[joint.command].type == "continuous":
                    own = replace(own, lower=low, upper=high)  # a URDF's limits of it are of speed and effort alone
                limits[joint.command] = replace(own, lower=max(low, own.lower), upper=min(high, own.upper))
        return limits

    def still_joints(self, model: RobotModel) -> set[str]:
        """Return the description's joints that no planned pose moves."""
        moved = set(self.joint_positions(model, dict.fromkeys(self.commands.values(), 0.0)))
        return {joint.name for joint in model.moving_joints()} - moved

    def named_positions(self, positions: Mapping[str, float]) -> dict[str, float]:
        """Return the values (m, rad) of the planned joints, by their names in a dataset, that positions by the
        description's names determine.

        A tied joint is the sum, or mean, of its parts unless a driver publishes it. Older drivers put the word joint in
        front.
        """
        result = {}
        for joint in self.planned:
            for name in (joint.command, f"joint_{joint.name}"):
                if name in positions:
                    result[joint.name] = positions[name]
            for parts in joint.parts:
                if joint.command not in positions and all(part in positions for part in parts):
                    result[joint.name] = joint.of_parts([positions[part] for part in parts])
                    break
        return result

    @staticmethod
    def parts(model: RobotModel, joint: CommandedJoint) -> tuple[str, ...]:
        """Return the description's joints that a commanded joint stands for, none if it has no ties in this
        description."""
        return next((parts for parts in joint.parts if all(part in model.joints for part in parts)), ())

    def check(self, model: RobotModel) -> None:
        """Raise `InputError` naming the key if the profile does not fit the description `model`.

        Frames and joints that the model lacks, joints without limits, poses beyond limits, a lidar inside the body, and
        meshes that are not there.
        """
        from stretch_sim_cal.robot.surfaces import enclosing_link

        where = self.source
        for key, frame in (("base_frame", self.base_frame), ("footprint_frame", self.footprint_frame)):
            _check_link(model, frame, f"{where}: {key}")
        for side, lidar in self.every_lidar.items():
            if lidar.older_frame not in model.links:
                _check_link(model, lidar.frame, f"{where}: lidars: {side}: frame")
            for link in lidar.unseen:
                _check_link(model, link, f"{where}: lidars: {side}: unseen")
            if lidar.housing is not None:
                _check_link(model, lidar.housing.link, f"{where}: lidars: {side}: housing: link")
            for above in model.chain(lidar.link_in(model)):
                if above.variables:
                    raise InputError(
                        f"{where}: lidars: {side}: frame: '{lidar.frame}' moves with the joint '{above.name}'; a lidar "
                        "has to be fixed to the base"
                    )
        limits = self.commanded_limits(model)
        for joint in self.planned:
            if joint.command not in model.joints and not self.parts(model, joint):
                raise InputError(
                    f"{where}: joints: {joint.name}: the description has no joint '{joint.command}'"
                    f"{near(joint.command, model.joints)}"
                )
            if joint.command not in limits:
                raise InputError(f"{where}: joints: {joint.name}: has no limits; write limits: [lowest, highest]")
            kinds = {model.joints[name].type for name in self.parts(model, joint) or (joint.command,)}
            if (kinds == {"prismatic"}) != joint.linear:
                raise InputError(
                    f"{where}: joints: {joint.name}: linear: is {str(joint.linear).lower()}, the description's joint "
                    f"is {', '.join(sorted(kinds))}"
                )
        for key, steps in (("stow", self.stow), ("home", self.home)):
            for name, value in ((name, value) for step in steps for name, value in step.items()):
                if name in limits and not limits[name].lower - 1e-6 <= value <= limits[name].upper + 1e-6:
                    raise InputError(
                        f"{where}: {key}: {name}: {value:g} is not within its limits {limits[name].lower:g} to "
                        f"{limits[name].upper:g}"
                    )
        for side, (frame, link) in enclosing_link(model, self).items():
            raise InputError(
                f"{where}: lidars: {side}: frame: '{frame}' lies inside the body ('{link}'): it would see nothing "
                "else; correct its pose, or name its own housing under unseen"
            )


def _check_link(model: RobotModel, link: str, where: str) -> None:
    if link not in model.links:
        raise InputError(f"{where}: the description has no link '{link}'{near(link, model.links)}")


@lru_cache(maxsize=8)
def load_profile(name: str | Path) -> RobotProfile:
    """Return the profile of that name (in `config/robots/`) or path. Raises `InputError` naming file and key."""
    path = files.find_shared(FOLDER, name, ".yaml")
    return profile_from_mapping(files.read_yaml(path), path)


def stretch_profile() -> RobotProfile:
    """Return the default profile, the Stretch 4's."""
    return load_profile(STRETCH)


def profile_called(name: str | Path | None) -> RobotProfile:
    """Return the profile of that name or path; the Stretch's for none, and for an empty one."""
    return load_profile(name or STRETCH)


def profile_from_mapping(data: Any, path: Path) -> RobotProfile:
    """Return the profile that a mapping writes down; `path` names it in errors, and relative
    paths start at its folder."""
    profile = Section(data, KEYS, str(path))
    for key in ("description", "lidars", "base_frame"):
        if key not in profile.data:
            raise InputError(f"{profile.at(key)}: is missing")
    joints = _joints(profile.get("joints"), profile.at("joints"))
    by_name = {joint.name: joint for joint in joints}
    planned = [joint.name for joint in joints if joint.planned]
    convention = profile.get("convention", NO_CONVENTION)
    if convention not in CONVENTIONS:
        raise InputError(f"{profile.at('convention')}: is '{convention}', use one of {', '.join(CONVENTIONS)}")
    shape_joints = _names(profile, "shape_joints", planned)
    if len(shape_joints) > MOST_SHAPE_JOINTS:
        raise InputError(
            f"{profile.at('shape_joints')}: are {len(shape_joints)}, at most {MOST_SHAPE_JOINTS} can be followed"
        )
    offsets = _by_joint(profile.get("offset_joints"), planned, profile.at("offset_joints"))
    topics = Section(profile.get("topics"), TOPIC_KEYS, profile.at("topics"))
    base, lidars = profile.text("base_frame"), _lidars(profile.get("lidars"), profile.at("lidars"))
    return RobotProfile(
        name=profile.text("name", path.stem),
        source=profile.where,
        description=_description(profile.get("description"), path),
        convention=convention,
        rename=_texts(profile, "rename"),
        zero={
            joint: validate.number(value, f"{profile.at('zero')}: {joint}")
            for joint, value in _mapping(profile.get("zero"), profile.at("zero")).items()
        },
        base_frame=base,
        footprint_frame=profile.text("footprint_frame", base),
        sensor=_sensors(profile, path),
        lidars={side: lidars.get(side, lidars["left"]) for side in SIDES},
        joints=joints,
        shape_joints=shape_joints,
        reach=profile.number("reach", 0.01, 10.0, default=0.5),
        stow=_steps(profile, "stow", by_name),
        home=_steps(profile, "home", by_name),
        plans={
            plan: _by_joint(grids, planned, f"{profile.at('plans')}: {plan}")
            for plan, grids in _mapping(profile.get("plans"), profile.at("plans")).items()
        },
        mount_candidates={
            by_name[name].command: tuple(values) for name, values in _candidates(profile, planned).items()
        },
        offset_joints={
            by_name[name].command: validate.number(value, f"{profile.at('offset_joints')}: {name}", 1e-6, 1.0)
            for name, value in offsets.items()
        },
        check_joints=_names(profile, "check_joints", planned),
        trajectory=topics.text("trajectory", "/follow_joint_trajectory"),
        stop=topics.text("stop", "/stop_the_robot"),
        values_file=profile.flag("values_file", False),
        lidar_geometry=lidar_geometry(profile.get("lidar_geometry", GEOMETRIES[0]), path, profile.at("lidar_geometry")),
        further={name: lidar for name, lidar in lidars.items() if name not in SIDES},
        body=_body(profile) if "body" in profile else None,
        accept=_accept(profile) if "accept" in profile else None,
        base=wheeled_base(profile.get("base"), profile.at("base")) if "base" in profile else None,
    )


def _accept(profile: Section) -> tuple[float, float]:
    accept = Section(profile.get("accept"), {"translation_mm", "rotation_deg"}, profile.at("accept"))
    millimetres, degrees = accept.number("translation_mm", 1e-3, 1e3), accept.number("rotation_deg", 1e-4, 90.0)
    return 1e-3 * millimetres, float(np.deg2rad(degrees))


def _body(profile: Section) -> tuple[float, float]:
    body = Section(profile.get("body"), BODY_KEYS, profile.at("body"))
    return body.number("radius", 0.01, 10.0), body.number("height", 0.06, 10.0)


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: a mapping was expected")
    return {str(key): each for key, each in value.items()}


def _texts(section: Section, key: str) -> dict[str, str]:
    found = _mapping(section.get(key), section.at(key))
    return {name: validate.text(str(each), f"{section.at(key)}: {name}") for name, each in found.items()}


def lidar_geometry(value: Any, path: Path, where: str) -> str:
    """Return what lidars see as a profile writes it down: a name of `GEOMETRIES`, or a file, from the folder of `path`,
    as an absolute path."""
    name = validate.text(value, where)
    if name in GEOMETRIES:
        return name
    file = path.parent / Path(name).expanduser()
    if not file.is_file():
        raise InputError(f"{where}: '{name}' is no file, and none of {', '.join(GEOMETRIES)}")
    return str(file.resolve())


def _beside(name: str, path: Path) -> str:
    """Return a file's name as a path from the profile's folder if it is there, else as it is."""
    beside = path.parent / name
    return str(beside.resolve()) if len(Path(name).parts) > 1 and beside.is_file() else name


def _sensors(profile: Section, path: Path) -> str:
    """Return the name of all lidars' sensor, or of each, "LEFT,RIGHT" and so on, if one has its own."""
    names = []
    lidars = profile.get("lidars")
    for side in (*SIDES, *(name for name in _mapping(lidars, profile.at("lidars")) if name not in SIDES)):
        lidar = lidars.get(side, lidars.get("left")) if isinstance(lidars, Mapping) else None
        own = lidar.get("sensor") if isinstance(lidar, Mapping) else None
        where = profile.at("sensor") if own is None else f"{profile.at('lidars')}: {side}: sensor"
        name = validate.text(own, where) if own is not None else profile.text("sensor", "jt128")
        if validate.BETWEEN in name:
            raise InputError(f"{where}: is '{name}'; name the sensor of each under lidars: {side}: sensor:")
        names.append(_beside(name, path))
    return names[0] if len(set(names)) == 1 else validate.BETWEEN.join(names)


def _description(value: Any, path: Path) -> DescriptionSource:
    if isinstance(value, str):
        value = {"vendor": value} if value == VENDOR else {"file": value}
    source = Section(value, DESCRIPTION_KEYS, f"{path}: description")
    if ("file" in source.data) == ("vendor" in source.data):
        raise InputError(f"{source.where}: name a file, or vendor: {VENDOR}")
    packages = {
        name: (path.parent / Path(folder).expanduser()).resolve() for name, folder in _texts(source, "packages").items()
    }
    for name, folder in packages.items():
        if not folder.is_dir():
            raise InputError(f"{source.at('packages')}: {name}: {folder}: no such folder")
    if "vendor" in source.data:
        if source.get("vendor") != VENDOR:
            raise InputError(f"{source.at('vendor')}: is '{source.get('vendor')}', there is {VENDOR}")
        if source.get("arguments") or packages:
            raise InputError(f"{source.where}: the vendor's description takes a tool and nothing else")
        return DescriptionSource(vendor=VENDOR, tool=source.text("tool") if "tool" in source else None)
    return DescriptionSource(
        file=_found(source, "file", packages, path),
        arguments=_texts(source, "arguments"),
        packages={name: str(folder) for name, folder in packages.items()},
        tool=str(_found(source, "tool", packages, path)) if "tool" in source else None,
    )


def _found(source: Section, key: str, packages: Mapping[str, Path], path: Path) -> Path:
    """Return a file by its path from the profile's folder, or by `package://`. Raises
    `InputError` if it is not there."""
    name, where = source.text(key), source.at(key)
    if name.startswith("package://"):
        package, _, rest = name.removeprefix("package://").partition("/")
        folder = package_folder(package, packages)
        if folder is None:
            raise InputError(f"{where}: package '{package}' is not found; name its folder under packages")
        file = folder / rest
    else:
        file = path.parent / Path(name).expanduser()
    if not file.is_file():
        raise InputError(f"{where}: {file}: no such file")
    return file.resolve()


def _lidars(value: Any, where: str) -> dict[str, ProfiledLidar]:
    lidars = Section(value, {*SIDES, *_mapping(value, where)}, where)
    if "left" not in lidars.data:
        raise InputError(f"{where}: left: is missing; a profile has a left and a right lidar, or one, as left")
    further = [name for name in lidars.data if name not in SIDES]
    if further and "right" not in lidars.data:
        raise InputError(f"{where}: right: is missing; the first two lidars are left and right, '{further[0]}' a third")
    found = {}
    for side in (*SIDES, *further):
        if side not in lidars.data:
            continue
        if not LIDAR_NAME.fullmatch(side):
            raise InputError(f"{lidars.at(side)}: name a lidar with small letters, digits and _")
        lidar = Section(
            lidars.get(side), LIDAR_KEYS - (set(NOT_OF_FURTHER) if side in further else set()), lidars.at(side)
        )
        frame = lidar.text("frame")
        housing = None
        if "housing" in lidar:
            shell = Section(lidar.get("housing"), HOUSING_KEYS, lidar.at("housing"))
            radius, heights = shell.number("radius", 1e-3, 1.0), shell.numbers("heights", 2, -1.0, 1.0)
            housing = Housing(
                shell.text("link"),
                radius,
                heights,
                shell.number("collar_radius", 1e-3, 1.0, default=radius),
                shell.numbers("collar_heights", 2, -1.0, 1.0, default=heights),
            )
        unseen = lidar.get("unseen", [frame])
        if not isinstance(unseen, list):
            raise InputError(f"{lidar.at('unseen')}: a list of links was expected")
        found[side] = ProfiledLidar(
            frame,
            lidar.text("topic", f"/lidar_points_{side}"),
            lidar.text("older_frame") if "older_frame" in lidar else None,
            tuple(validate.text(link, lidar.at("unseen")) for link in unseen),
            housing,
        )
    for key in ("frame", "topic"):
        given: dict[str, str] = {}
        for side, lidar in found.items():
            other = given.setdefault(getattr(lidar, key), side)
            if other != side:
                both = "both lidars" if len(found) == len(SIDES) else f"the lidars {other} and {side}"
                raise InputError(f"{where}: {key}: is '{getattr(lidar, key)}' for {both}")
    links = {lidar.housing.link for lidar in found.values() if lidar.housing is not None}
    if len(links) > 1:
        raise InputError(
            f"{where}: housing: link: both lidars have to be in one link's mesh, not {' and '.join(links)}"
        )
    return found


def _joints(value: Any, where: str) -> tuple[CommandedJoint, ...]:
    joints = []
    for name, entry in _mapping(value, where).items():
        joint = Section(entry, JOINT_KEYS, f"{where}: {name}")
        tie = joint.get("tie", "sum")
        if tie not in TIES:
            raise InputError(f"{joint.at('tie')}: is '{tie}', use one of {', '.join(TIES)}")
        limits = joint.numbers("limits", 2) if "limits" in joint else None
        if limits is not None and not limits[0] < limits[1]:
            raise InputError(f"{joint.at('limits')}: {limits[0]:g} is not below {limits[1]:g}")
        linear = joint.flag("linear", False)
        joints.append(
            CommandedJoint(
                name,
                joint.text("command", name),
                _parts(joint.get("parts"), joint.at("parts")),
                tie,
                linear,
                joint.flag("planned", True),
                limits,
                joint.number("speed", 1e-3, 100.0) if "speed" in joint else None,
                joint.number("step", 1e-3, 10.0, default=STEP_LINEAR if linear else STEP_ANGULAR),
            )
        )
    _check_ties(joints, where)
    return tuple(joints)


def _parts(value: Any, where: str) -> tuple[tuple[str, ...], ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not value:
        raise InputError(
            f"{where}: a list of joints was expected, or several such lists of which the first that fits counts"
        )
    sets = value if isinstance(value[0], list) else [value]
    return tuple(tuple(validate.text(part, where) for part in each) for each in sets)


def _check_ties(joints: Sequence[CommandedJoint], where: str) -> None:
    """Raise `InputError` for ties that lead back to themselves, and for joints that are commanded twice."""
    tied = {joint.command: [part for parts in joint.parts for part in parts] for joint in joints}
    for joint in joints:
        walked, ahead = [joint.command], list(tied[joint.command])
        while ahead:
            part = ahead.pop()
            if part == joint.command:
                raise InputError(f"{where}: {joint.name}: parts: the ties are cyclic: {' -> '.join([*walked, part])}")
            if part in tied and part not in walked:
                walked.append(part)
                ahead += tied[part]
    driven: dict[str, str] = {}
    for joint in joints:
        for name in {joint.command, *tied[joint.command]}:
            if name in driven:
                raise InputError(f"{where}: '{name}' is there twice, under {driven[name]} and under {joint.name}")
            driven[name] = joint.name


def _names(section: Section, key: str, known: Sequence[str]) -> tuple[str, ...]:
    value, where = section.get(key), section.at(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InputError(f"{where}: a list of joints was expected")
    for index, name in enumerate(value):
        if name not in known:
            raise InputError(f"{where}: '{name}' is none of the planned joints{near(str(name), known)}")
        if name in value[:index]:
            raise InputError(f"{where}: '{name}' is there twice")
    return tuple(value)


def _by_joint(value: Any, known: Sequence[str], where: str) -> dict[str, Any]:
    data = _mapping(value, where)
    for name in data:
        if name not in known:
            raise InputError(f"{where}: {name}: is none of the joints{near(name, known)}")
    return data


def _candidates(section: Section, known: Sequence[str]) -> dict[str, tuple[float, ...]]:
    found, where = {}, section.at("mount_candidates")
    for name, values in _by_joint(section.get("mount_candidates"), known, where).items():
        if not isinstance(values, list) or not values:
            raise InputError(f"{where}: {name}: a list of numbers was expected")
        found[name] = validate.numbers(values, len(values), f"{where}: {name}")
    return found


def _steps(section: Section, key: str, joints: Mapping[str, CommandedJoint]) -> tuple[Pose, ...]:
    value, where = section.get(key), section.at(key)
    steps = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(
        {
            joints[name].command: validate.number(number, f"{where}: {name}")
            for name, number in _by_joint(step, list(joints), where).items()
        }
        for step in steps
    )
