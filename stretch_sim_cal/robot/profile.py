"""Robot profiles (`config/robots/*.yaml`): all that is particular to one robot. Names of links and joints are those of
the description as it is spawned: after it was normalized, if the profile names a convention."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from stretch_sim_cal import files, validate
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.robot.description import package_folder, parse_urdf
from stretch_sim_cal.robot.model import Limit, RobotModel, near
from stretch_sim_cal.robot.wheeled_base import WheeledBase, wheeled_base
from stretch_sim_cal.validate import ACCEPT, Bounds, numbers_by_key, record, typed

FOLDER = "config/robots"
STRETCH = "stretch4"
VENDOR = STRETCH  # the only description that comes from a Python package, by its vendor
NO_CONVENTION = "none"
STEP_LINEAR, STEP_ANGULAR = 0.05, 0.2  # m, rad: what moves a part 5 to 10 cm at most
MOST_SHAPE_JOINTS = 2  # a body-shape model is a grid over so many joints at most
GEOMETRIES = ("collision", "visual")  # which of a description's shapes lidars may see; or those of another one
DESCRIPTIONS = (".urdf", ".xacro", ".sdf")
LIDAR_NAME = re.compile("[a-z][a-z0-9_]*")
COMPUTED = ("source", "trajectory", "stop")  # fields that are no keys of a file
TOPICS = {"trajectory": "/follow_joint_trajectory", "stop": "/stop_the_robot"}
# The least and the greatest values of the keys of `body`.
BODY = {"radius": (0.01, 10.0), "height": (0.06, 10.0)}


@dataclass(frozen=True)
class DescriptionSource:
    """A description: a `file` (URDF or xacro) with its xacro `arguments` and the folders of its `packages`, or the
    `vendor`'s. `tool` is one of the vendor's tools by name, or the URDF of a tool to attach."""

    file: Path | None = None
    vendor: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    tool: str | None = None


Height = Annotated[float, Bounds(-1.0, 1.0)]


@dataclass(frozen=True)
class Housing:
    """A lidar's housing in the visual mesh of `link`, whose collision shape encloses the lidar: the cylinder of
    `radius` between two `heights` (m) about the axis of the lidar's frame. The cylinder `collar_radius`,
    `collar_heights` (by default the same) is its mount, which moves with the lidar."""

    link: str
    radius: Annotated[float, Bounds(1e-3, 1.0)]
    heights: tuple[Height, Height]
    collar_radius: Annotated[float, Bounds(1e-3, 1.0)] | None = None
    collar_heights: tuple[Height, Height] | None = None

    def holds(self, points: np.ndarray, collar: bool = False) -> np.ndarray:
        """Return which points (N, 3) in the lidar's frame lie in the housing, or in its collar (N,)."""
        radius = (collar and self.collar_radius) or self.radius
        low, high = (collar and self.collar_heights) or self.heights
        return (np.hypot(points[:, 0], points[:, 1]) < radius) & (points[:, 2] > low) & (points[:, 2] < high)


@dataclass(frozen=True)
class ProfiledLidar:
    """One lidar: its `frame` (`older_frame` under older firmware), the `topic` of its clouds, and what it does not see
    because it is the lidar itself: the links `unseen`, or a `housing` in another link's mesh. `sensor` is its kind, if
    that is not the profile's."""

    frame: str
    topic: str
    older_frame: str | None = None
    unseen: tuple[str, ...] = ()
    housing: Housing | None = None
    sensor: str | None = None

    def link_in(self, model: RobotModel) -> str | None:
        """Return the lidar's link in a model, under either of its names; None if it has neither."""
        return next((name for name in (self.frame, self.older_frame) if name in model.links), None)


@dataclass(frozen=True)
class CommandedJoint:
    """A joint as datasets and command lines name it, and `command`, its name to the driver.

    It stands for the description's joint of that name or else for `parts`: the first of these sets whose joints the
    description has. With the tie "sum" they share the value evenly (telescoping segments), with "equal" each has it
    (fingers). `linear` joints move in m, `planned` ones in arm poses. `limits` narrow the description's; `speed` (m/s
    or rad/s) is that of collections. `step` (m, rad) is the resolution of a body shape that does not follow it.
    """

    name: str
    command: str
    parts: tuple[tuple[str, ...], ...] = ()
    tie: Literal["sum", "equal"] = "sum"
    linear: bool = False
    planned: bool = True
    limits: tuple[float, float] | None = None
    speed: Annotated[float, Bounds(1e-3, 100.0)] | None = None
    step: Annotated[float, Bounds(1e-3, 10.0)] = STEP_LINEAR

    def of_parts(self, values: Sequence[float | np.ndarray]) -> float | np.ndarray:
        """Return the joint's value from those of its parts: their sum, or their mean if each has the whole."""
        return sum(values) if self.tie == "sum" else sum(values) / len(values)


Values = Mapping[str, float | np.ndarray]  # of joints (m, rad), by name
Pose = dict[str, float]  # values (m, rad) of commanded joints by their names to the driver


@dataclass(frozen=True, kw_only=True)
class RobotProfile:
    """One robot. `lidars` by name, "left" first, then "right" and others if there are any; `sensor` is the name of
    their sensor, or those of all in this order with commas between. `joints` in the order of datasets; the body shape
    follows `shape_joints` (at most two); `stow` and `home` are poses as a sequence of steps.

    `plans` are grids of arm poses by name, in place of the settings files'. Poses for the lidars' extrinsics are
    proposed from `mount_candidates`, values by joint; with them the zeros of `offset_joints` are estimated, each with a
    prior standard deviation (m, rad); the left-extrinsics check needs the values of `check_joints`. `reach` (m): how
    far a part may be from an axis that turns it. `values_file`: whether calibrated joints go to the vendor's
    stretch_calibration_values.yaml. `lidar_geometry`: what lidars see, in simulators and in the calibration's model:
    one of `GEOMETRIES`, or a URDF file with collision shapes by link name. `accept` are the largest standard deviations
    (m, rad) of an accepted lidar to lidar. `body` is the radius and height (m) of a cylinder about the base's z axis
    that stands for the robot where room and floor are looked at; None: its shapes in the stowed pose. `base` is how it
    drives, None if unknown.
    """

    name: str
    source: str
    description: DescriptionSource
    convention: Literal["stretch", "rep199", "icub", "none"] = "none"
    rename: Mapping[str, str] = field(default_factory=dict)
    zero: Mapping[str, float] = field(default_factory=dict)
    base_frame: str
    footprint_frame: str
    sensor: str
    lidars: Mapping[str, ProfiledLidar]
    joints: tuple[CommandedJoint, ...]
    shape_joints: tuple[str, ...] = ()
    reach: Annotated[float, Bounds(0.01, 10.0)] = 0.5
    stow: tuple[Pose, ...]
    home: tuple[Pose, ...]
    plans: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mount_candidates: Mapping[str, tuple[float, ...]]
    offset_joints: Mapping[str, float]
    check_joints: tuple[str, ...] = ()
    trajectory: str
    stop: str
    values_file: bool = False
    lidar_geometry: str
    body: tuple[float, float] | None
    accept: tuple[float, float] | None
    base: WheeledBase | None

    @property
    def named(self) -> str | None:
        """What `profile_called` makes this of: a name, or a path; None for the Stretch's."""
        path = Path(self.source)
        name = path.stem if path.parent == files.share_directory() / FOLDER else self.source
        return None if name == STRETCH else name

    @property
    def driven_base(self) -> WheeledBase:
        """Raises `InputError` without `base:`."""
        if self.base is None:
            raise InputError(f"{self.source}: has no 'base:'; add it to calibrate by driving")
        return self.base

    @property
    def one_lidar(self) -> bool:
        """Whether there is one lidar, the left one."""
        return len(self.lidars) == 1

    @property
    def planned(self) -> tuple[CommandedJoint, ...]:
        """The joints of arm poses, in the order of a dataset."""
        return tuple(joint for joint in self.joints if joint.planned)

    @property
    def planned_names(self) -> tuple[str, ...]:
        return tuple(joint.name for joint in self.planned)

    @property
    def commands(self) -> dict[str, str]:
        """The driver's names of the planned joints, by their names in a dataset."""
        return {joint.name: joint.command for joint in self.planned}

    @property
    def stowed(self) -> Pose:
        return {name: value for step in self.stow for name, value in step.items()}

    @property
    def node_defaults(self) -> dict[str, str]:
        """Default frames, topics and sensor of nodes and commands, which have options of a left and a right lidar."""
        pair = {side: self.lidars.get(side, self.lidars["left"]) for side in SIDES}
        return {
            "base_link_frame": self.base_frame, "footprint_frame": self.footprint_frame, "sensor": self.sensor,
            **{f"{side}_lidar_frame": lidar.frame for side, lidar in pair.items()},
            **{f"{side}_lidar_topic": lidar.topic for side, lidar in pair.items()},
        }  # fmt: skip

    def topics_and_frames(self, left: tuple[str, str], right: tuple[str, str]) -> dict[str, tuple[str, str]]:
        """Return topic and frame of each lidar by name, those of the left and the right one as given; if these are the
        same, of the left one alone."""
        given = {"left": left} if left == right else {"left": left, "right": right}
        known = {name: (lidar.topic, lidar.frame) for name, lidar in self.lidars.items()}
        return {name: given.get(name, own) for name, own in known.items() if name in given or name not in SIDES}

    def model_of(self, description: str) -> RobotModel:
        """Return the model of the robot's /robot_description (URDF text), with the meshes of the profile's packages.
        Raises `InputError` for a broken one."""
        return parse_urdf(description, source="/robot_description", mesh_folders=self.description.packages)

    @property
    def housing_link(self) -> str | None:
        """The link whose visual mesh, without the lidars' housings, takes the place of its collision shape."""
        return next((lidar.housing.link for lidar in self.lidars.values() if lidar.housing is not None), None)

    def housed_links(self, model: RobotModel) -> dict[str, str]:
        """Return the links of the lidars in the mesh of `housing_link`, by name, of those that the model has."""
        return {name: link for name, link in self.lidar_links(model).items() if self.lidars[name].housing is not None}

    def lidar_links(self, model: RobotModel) -> dict[str, str]:
        """Return the links of the lidars that the model has, by name, whichever generation of names it uses."""
        links = {name: lidar.link_in(model) for name, lidar in self.lidars.items()}
        return {name: link for name, link in links.items() if link is not None}

    def joint_positions(self, model: RobotModel, commanded: Values) -> dict[str, float | np.ndarray]:
        """Return the description's joint positions of commanded ones (numbers or arrays), the inverse of
        `commanded_positions`. Commanded joints that the model lacks go to their parts; other names stay."""
        tied = {joint.command: joint for joint in self.joints if joint.command not in model.joints}
        result: dict[str, float | np.ndarray] = {}
        for name, value in commanded.items():
            if name in tied and (parts := self.parts(model, tied[name])):
                value = np.asarray(value) / len(parts) if tied[name].tie == "sum" else value
                result |= dict.fromkeys(parts, value)
            else:
                result[name] = value
        return result

    def commanded_positions(self, model: RobotModel, positions: Values) -> dict[str, float | np.ndarray]:
        """Return commanded positions of the description's: the sum or mean of tied parts, absent if one of them is."""
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
        """Return the limits, as commanded, of the joints that have any. Parts that share a value extend together: range
        and velocity are those of the shortest and slowest, times their number; parts that each have it share one
        position. A profile's limits are within the model's, and replace missing ones."""
        limits = {joint.name: joint.limit for joint in model.moving_joints() if joint.limit is not None}
        for joint in self.joints:
            parts = self.parts(model, joint)
            if joint.command not in model.joints and parts and all(part in limits for part in parts):
                count = len(parts) if joint.tie == "sum" else 1
                together = [limits.pop(part) for part in parts]
                low, high = max(limit.lower for limit in together), min(limit.upper for limit in together)
                slowest, weakest = min(limit.velocity for limit in together), min(limit.effort for limit in together)
                limits[joint.command] = Limit(count * low, count * high, count * slowest, weakest)
        for joint in self.joints:
            name = joint.command
            if joint.limits is not None and (name in limits or name in model.joints):
                low, high = joint.limits
                own = limits.get(name, Limit(low, high, joint.speed or 1.0, 0.0))
                if name in model.joints and model.joints[name].type == "continuous":
                    own = replace(own, lower=low, upper=high)  # a URDF's limits of it are of speed and effort alone
                limits[name] = replace(own, lower=max(low, own.lower), upper=min(high, own.upper))
        return limits

    def still_joints(self, model: RobotModel) -> set[str]:
        """Return the description's joints that no planned pose moves."""
        moved = set(self.joint_positions(model, dict.fromkeys(self.commands.values(), 0.0)))
        return {joint.name for joint in model.moving_joints()} - moved

    def named_positions(self, positions: Mapping[str, float]) -> dict[str, float]:
        """Return the values (m, rad) of the planned joints, by their names in a dataset, from positions by the
        description's names, tied ones from their parts unless a driver publishes them. Older drivers put "joint_" in
        front."""
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
        """Return the description's joints that a commanded joint stands for, none if it has no ties in it."""
        return next((parts for parts in joint.parts if all(part in model.joints for part in parts)), ())


def load_profile(name: str | Path) -> RobotProfile:
    """Return the profile of that name or path. Raises `InputError` naming file and key."""
    if Path(name).suffix in DESCRIPTIONS:
        raise InputError(f"{name}: is a description; 'stretch-sim-cal robot init' makes a profile of it")
    path = files.find_shared(FOLDER, name, ".yaml")
    return _read_profile(path, files.version_of(path))


@lru_cache(maxsize=8)
def _read_profile(path: Path, _version: object) -> RobotProfile:
    return profile_from_mapping(files.read_yaml(path), path)


def stretch_profile() -> RobotProfile:
    return load_profile(STRETCH)


def profile_called(name: str | Path | None) -> RobotProfile:
    """Return the profile of that name or path, by default the Stretch's."""
    return load_profile(name or STRETCH)


def profile_from_mapping(data: Any, path: Path) -> RobotProfile:
    """Return the profile of a mapping; `path` names it in errors, and relative paths start at its folder."""
    where = str(path)
    data = validate.mapping(data, {each.name for each in fields(RobotProfile)} - {*COMPUTED} | {"topics"}, where)
    for key in ("description", "lidars", "base_frame"):
        if key not in data:
            raise InputError(f"{where}: {key}: is missing")
    lidars, joints = _lidars(data["lidars"], f"{where}: lidars"), _joints(data.get("joints"), f"{where}: joints")
    planned = [joint for joint in joints if joint.planned]

    def by_command(key: str, kind: type) -> dict[str, Any]:
        return _by_command(data.get(key), kind, planned, f"{where}: {key}")

    def steps(key: str) -> tuple[Pose, ...]:
        value = data.get(key)
        written = value if isinstance(value, list) else [] if value is None else [value]
        return tuple(_by_command(step, float, joints, f"{where}: {key}") for step in written)

    def pair(key: str, **known: tuple[float, float]) -> tuple[float, ...] | None:
        found = None if data.get(key) is None else numbers_by_key(data[key], f"{where}: {key}", **known)
        return found and tuple(found.values())

    accept = pair("accept", **ACCEPT)
    given = {
        "source": where,
        "description": _description(data["description"], path),
        "sensor": _sensors(data, lidars, path),
        "lidars": lidars,
        "joints": joints,
        "stow": steps("stow"),
        "home": steps("home"),
        "mount_candidates": by_command("mount_candidates", tuple[float, ...]),
        "offset_joints": by_command("offset_joints", Annotated[float, Bounds(1e-6, 1.0)]),
        "lidar_geometry": lidar_geometry(data.get("lidar_geometry", GEOMETRIES[0]), path, f"{where}: lidar_geometry"),
        "body": pair("body", **BODY),
        "accept": accept and (1e-3 * accept[0], float(np.deg2rad(accept[1]))),
        "base": None if data.get("base") is None else wheeled_base(data["base"], f"{where}: base"),
    } | validate.texts_by_key(data.get("topics"), f"{where}: topics", **TOPICS)
    written = {key: value for key, value in data.items() if key not in given and key != "topics"}
    usual = {"name": path.stem, "footprint_frame": data["base_frame"]}
    found = record(RobotProfile, usual | written, where, **given)
    for key, names in (("shape_joints", found.shape_joints), ("check_joints", found.check_joints)):
        _check_names(names, planned, f"{where}: {key}")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"{where}: {key}: '{twice}' occurs twice")
    for plan, grids in found.plans.items():
        _check_names(grids, planned, f"{where}: plans: {plan}")
    if empty := [joint for joint, values in found.mount_candidates.items() if not values]:
        raise InputError(f"{where}: mount_candidates: {empty[0]}: expected a list of numbers")
    if (followed := len(found.shape_joints)) > MOST_SHAPE_JOINTS:
        raise InputError(f"{where}: shape_joints: are {followed}, at most {MOST_SHAPE_JOINTS} are supported")
    return found


def _check_names(names: Iterable[str], joints: Sequence[CommandedJoint], where: str) -> None:
    known = [joint.name for joint in joints]
    for name in names:
        if name not in known:
            raise InputError(f"{where}: {name}: is not one of the joints{near(name, known)}")


def _by_command(value: Any, kind: type, joints: Sequence[CommandedJoint], where: str) -> dict[str, Any]:
    """Return a mapping by joint names as one by the joints' names to the driver."""
    found = typed(value, Mapping[str, kind], where)
    _check_names(found, joints, where)
    commands = {joint.name: joint.command for joint in joints}
    return {commands[name]: each for name, each in found.items()}


def lidar_geometry(value: Any, path: Path, where: str) -> str:
    """Return a name of `GEOMETRIES`, or the absolute path of a file, which may be relative to the folder of `path`."""
    name = validate.text(value, where)
    if name in GEOMETRIES:
        return name
    file = path.parent / Path(name).expanduser()
    if not file.is_file():
        raise InputError(f"{where}: '{name}' is neither a file nor one of {', '.join(GEOMETRIES)}")
    return str(file.resolve())


def _sensors(data: Mapping[str, Any], lidars: Mapping[str, ProfiledLidar], path: Path) -> str:
    names, usual = [], validate.text(data.get("sensor", "jt128"), f"{path}: sensor")
    for side, lidar in lidars.items():
        own = lidar.sensor
        name = usual if own is None else own
        if validate.BETWEEN in name:
            where = f"{path}: sensor" if own is None else f"{path}: lidars: {side}: sensor"
            raise InputError(f"{where}: is '{name}'; name the sensor of each under lidars: {side}: sensor:")
        names.append(files.named_in(path, name))
    return names[0] if len(set(names)) == 1 else validate.BETWEEN.join(names)


def _description(value: Any, path: Path) -> DescriptionSource:
    where = f"{path}: description"
    if isinstance(value, str):
        value = {"vendor": value} if value == VENDOR else {"file": value}
    source = validate.mapping(value, {each.name for each in fields(DescriptionSource)}, where)
    if ("file" in source) == ("vendor" in source):
        raise InputError(f"{where}: name a file, or vendor: {VENDOR}")

    def texts(key: str) -> dict[str, str]:
        written = typed(source.get(key), Mapping[str, Any], f"{where}: {key}")
        return {name: validate.text(str(each), f"{where}: {key}: {name}") for name, each in written.items()}

    arguments = texts("arguments")
    tool = None if source.get("tool") is None else validate.text(source["tool"], f"{where}: tool")
    packages = {name: (path.parent / Path(folder).expanduser()).resolve() for name, folder in texts("packages").items()}
    for name, folder in packages.items():
        if not folder.is_dir():
            raise InputError(f"{where}: packages: {name}: {folder}: no such folder")
    if "vendor" in source:
        validate.choice(source["vendor"], (VENDOR,), f"{where}: vendor")
        if arguments or packages:
            raise InputError(f"{where}: the vendor's description takes a tool and nothing else")
        return DescriptionSource(vendor=VENDOR, tool=tool)
    file = _found(validate.text(source["file"], f"{where}: file"), f"{where}: file", packages, path)
    tool = tool and str(_found(tool, f"{where}: tool", packages, path))
    return DescriptionSource(file, None, arguments, {name: str(folder) for name, folder in packages.items()}, tool)


def _found(name: str, where: str, packages: Mapping[str, Path], path: Path) -> Path:
    """Return a file by its path from the profile's folder, or by `package://`. Raises `InputError` if it is missing."""
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
    written = typed(value, Mapping[str, Mapping[str, Any]], where)
    if "left" not in written:
        raise InputError(f"{where}: left: is missing; a profile has a left and a right lidar, or one, as left")
    further = [name for name in written if name not in SIDES]
    if further and "right" not in written:
        raise InputError(f"{where}: right: is missing; the first two lidars are left and right, '{further[0]}' a third")
    found: dict[str, ProfiledLidar] = {}
    for name in (*(side for side in SIDES if side in written), *further):
        if not LIDAR_NAME.fullmatch(name):
            raise InputError(f"{where}: {name}: name a lidar with small letters, digits and _")
        usual = {"topic": f"/lidar_points_{name}"}
        usual |= {"unseen": [frame]} if (frame := written[name].get("frame")) is not None else {}
        without: dict[str, Any] = {"housing": None} if name in further else {}
        found[name] = record(ProfiledLidar, usual | written[name], f"{where}: {name}", **without)
        for key in ("frame", "topic"):
            for other in list(found)[:-1]:
                if getattr(found[other], key) == (own := getattr(found[name], key)):
                    both = "both lidars" if len(written) == len(SIDES) else f"the lidars {other} and {name}"
                    raise InputError(f"{where}: {key}: is '{own}' for {both}")
    links = {lidar.housing.link for lidar in found.values() if lidar.housing is not None}
    if len(links) > 1:
        both = " and ".join(links)
        raise InputError(f"{where}: housing: link: both lidars have to be in one link's mesh, not {both}")
    return found


def _joints(value: Any, where: str) -> tuple[CommandedJoint, ...]:
    joints = []
    for name, entry in typed(value, Mapping[str, Mapping[str, Any]], where).items():
        parts = entry.get("parts")
        if parts is not None and not (isinstance(parts, list) and parts):
            wanted = "a list of joints, or several such lists of which the first that fits counts"
            raise InputError(f"{where}: {name}: parts: expected {wanted}")
        usual = {"command": name, "step": STEP_LINEAR if entry.get("linear") is True else STEP_ANGULAR}
        entry = usual | entry | ({} if parts is None or isinstance(parts[0], list) else {"parts": [parts]})
        joint = record(CommandedJoint, entry, f"{where}: {name}", name=name)
        if joint.limits is not None and not joint.limits[0] < joint.limits[1]:
            raise InputError(f"{where}: {name}: limits: {joint.limits[0]:g} is not below {joint.limits[1]:g}")
        joints.append(joint)
    tied = {joint.command: [part for parts in joint.parts for part in parts] for joint in joints}
    try:
        TopologicalSorter(tied).prepare()
    except CycleError as error:
        loop = error.args[1][::-1]
        name = next(joint.name for joint in joints if joint.command == loop[0])
        cycle = f"the joints depend on each other in a cycle: {' -> '.join(loop)}"
        raise InputError(f"{where}: {name}: parts: {cycle}") from error
    driven: dict[str, str] = {}
    for joint in joints:
        for name in {joint.command, *tied[joint.command]}:
            if driven.setdefault(name, joint.name) != joint.name:
                raise InputError(f"{where}: '{name}' occurs twice, under {driven[name]} and {joint.name}")
    return tuple(joints)
