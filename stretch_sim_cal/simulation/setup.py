"""The simulation of a scenario: world, sensor, seed, the errors that only the simulator knows and the true robot with
them (its description's frames stay nominal), and the faults of a run."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import SubElement

import numpy as np
from scipy.spatial.transform import Rotation

from stretch_sim_cal import validate
from stretch_sim_cal.conventions.spawned import ROBOT_KEYS, SpawnedRobot, robot_from_mapping
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import named_in
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy, inverse
from stretch_sim_cal.robot.description import parse_urdf, parse_xml
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import near
from stretch_sim_cal.robot.profile import RobotProfile, lidar_geometry, stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.robot.urdf_elements import add_frame, add_joint, numbers, set_origin
from stretch_sim_cal.sensor import sensor as kinds
from stretch_sim_cal.sensor.sensor import DEFAULT_SENSOR, Sensor
from stretch_sim_cal.simulation.driving import OdometrySpread
from stretch_sim_cal.validate import DEGREES, Bounds

MAX_SEED = 2**63 - 1
PUSH_DISTANCE = 0.020
PUSH_ANGLE = math.radians(1.0)
CRASH_EXIT_CODE = 70
FLOOR_LINK = "floor_link"  # the root of the true robot: the real floor, z = 0
ERROR_KEYS = {side: f"lidar_{side}_error" for side in SIDES}  # older keys, in place of `lidar_errors`
FLOOR = {"rms_mm": (0.01, 50.0), "wavelength": (0.5, 100.0, 2.0)}
"""The keys of an uneven floor: the least value of each, the greatest one and, if there is one, the default."""

Translation = Annotated[tuple[float, float, float], Bounds(-100.0, 100.0)]
Angles = Annotated[tuple[float, float, float], Bounds(-360.0, 360.0, DEGREES)]


@dataclass(frozen=True)
class PoseError:
    """How far something is from its nominal pose, in its own frame: true = nominal * error. m, rad (fixed axes)."""

    xyz: Translation = (0.0, 0.0, 0.0)
    rpy: Angles = (0.0, 0.0, 0.0)

    @classmethod
    def drawn(cls, random: np.random.Generator, distance: float, angle: float) -> "PoseError":
        """Return an error of this length (m) and angle (rad) in random directions."""
        directions = random.normal(size=(2, 3))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        rpy = Rotation.from_rotvec(angle * directions[1]).as_euler("xyz")
        return cls(tuple((distance * directions[0]).tolist()), tuple(rpy.tolist()))

    @property
    def matrix(self) -> np.ndarray:
        return from_xyz_rpy(self.xyz, self.rpy)


@dataclass(frozen=True)
class BaseError:
    """How base_link really stands above the floor: raised by `height` (m), turned by `roll` and `pitch` (rad)."""

    height: Annotated[float, Bounds(-0.2, 0.2)] = 0.0
    roll: Annotated[float, Bounds(-20.0, 20.0, DEGREES)] = 0.0
    pitch: Annotated[float, Bounds(-20.0, 20.0, DEGREES)] = 0.0


@dataclass(frozen=True)
class PayloadBox:
    """A box fixed to `link` that the robot's description does not have: `size` (m) along its axes, its centre at `xyz`
    (m), turned by `rpy` (rad, fixed axes), in the link's frame."""

    link: str
    size: Annotated[tuple[float, float, float], Bounds(1e-4, 10.0)]
    xyz: Translation = (0.0, 0.0, 0.0)
    rpy: Angles = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class SimulationSetup:
    """One simulation. `world` and `sensor` are names in `worlds/` and `config/`, or paths; lidars of different kinds
    are "LEFT,RIGHT" and so on.

    `lidar_errors` are errors of the lidars' mounts by lidar, `joint_errors` those of joint origins by joint; along or
    about a joint's axis, of its zero. Lidars are units of the sensor, drawn from `unit_seed` (by default `seed`), or
    those of unit files, `units` by lidar; `driver` replaces fields of the sensor's `Driver`. `robot` is what is
    spawned, by default the vendor's Stretch 4; `from_mapping` takes its name. `lidar_geometry` is what the simulated
    lidars see, by default the profile's; only the simulator knows it. `real_time_factor` is for the caller that steps
    the simulation: 1 is real time, 0 as fast as possible.
    """

    world: str | Path = "furnished_room"
    sensor: str | Path = DEFAULT_SENSOR
    seed: Annotated[int, Bounds(0, MAX_SEED)] = 1
    lidar_errors: Mapping[str, PoseError] = field(default_factory=dict)
    base_error: BaseError = BaseError()
    payload: tuple[PayloadBox, ...] = ()
    joint_errors: Mapping[str, PoseError] = field(default_factory=dict)
    real_time_factor: Annotated[float, Bounds(0.0, 1000.0)] = 0.0
    unit_seed: Annotated[int, Bounds(0, MAX_SEED)] | None = None
    units: Mapping[str, str | Path] = field(default_factory=dict)
    driver: Mapping[str, Any] = field(default_factory=dict)
    robot: SpawnedRobot | None = None
    robot_keys: Mapping[str, str] = field(default_factory=dict)
    """The keys of the robot that `from_mapping` read."""
    lidar_geometry: str | None = None
    odometry: OdometrySpread = OdometrySpread()
    """How wrong wheel odometry may be; drawn from the seed."""
    floor: tuple[float, float] | None = None
    """How uneven the floor is: root mean square height and wavelength in m. None: the world's."""

    def __post_init__(self) -> None:
        if not isinstance(self.robot, SpawnedRobot | None):
            made_by = "SimulationSetup.from_mapping({'robot': ...}) makes it, of a loaded profile spawned_robot(...)"
            wanted = f"expected a SpawnedRobot; of a name or path {made_by}"
            raise InputError(f"robot: is of type {type(self.robot).__name__}, {wanted}")

    @property
    def profile(self) -> RobotProfile:
        """The robot's profile, its lidars seeing what the simulated ones see."""
        profile = stretch_profile() if self.robot is None else self.robot.profile
        return replace(profile, lidar_geometry=self.lidar_geometry) if self.lidar_geometry else profile

    @property
    def nominal_description(self) -> str:
        return nominal_description() if self.robot is None else self.robot.text

    def sensors(self) -> dict[str, Sensor]:
        """Return the lidars' sensors by name. Raises `InputError` for unknown names and for rates that differ."""
        lidars = self.profile.lidars
        try:
            found = kinds.for_each(kinds.sensors_called(str(self.sensor)), len(lidars))
        except InputError as error:
            if self.robot is None or str(self.sensor) != self.profile.sensor:
                raise
            raise InputError(f"{self.profile.source}: sensor: {error}") from error
        for sensor in found:
            if sensor is None:
                raise InputError(f"sensor: '{self.sensor}': a simulated sensor has to be known")
            if found[0].period != sensor.period:
                rates = f"{found[0].name} has {found[0].rate:g} scans per second, {sensor.name} {sensor.rate:g}"
                raise InputError(f"sensor: {rates}; all lidars need the same rate")
        return dict(zip(lidars, found, strict=True))

    def sensor_of(self, device: str, sensor: Sensor) -> Sensor:
        """Return the sensor of a lidar, by its unit file or angle table if there is one, behind the setup's driver.
        Raises `InputError` for a file that cannot be used."""
        if device in self.units:
            unit = kinds.load_sensor(self.units[device])
            if unit.unit is None:
                raise InputError(f"{self.units[device]}: is not a unit file, it has no key 'sensor'")
            if unit.period != sensor.period:
                rates = f"is {unit.rate:g}, that of {sensor.name} is {sensor.rate:g}"
                raise InputError(f"{self.units[device]}: rate: {rates}")
            sensor = unit
        elif table := self.angle_table_of(device, sensor):
            sensor = sensor.with_angle_table(table)
        return sensor.with_driver(replace(sensor.driver, **self.driver))

    def angle_table_of(self, device: str, sensor: Sensor) -> Path | None:
        """Return the angle table of a lidar in the robot's fleet folder, None for the sensor's."""
        return kinds.fleet_angle_table(device) if sensor.fleet_angle_tables and device not in self.units else None

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], source: str = "setup") -> "SimulationSetup":
        """Return the setup of a scenario's `simulation:` mapping. Files are searched beside the file `source` first
        (see `named_in`). Raises `InputError` naming `source` and the key."""
        where = f"{source}: simulation"
        data = validate.mapping(data, KEYS, where)
        robot, robot_keys = robot_from_mapping(data, source, where)
        default_sensor = cls.sensor if robot is None or "robot" not in data else robot.profile.sensor
        lidars = set((stretch_profile() if robot is None else robot.profile).lidars)
        units = validate.mapping(data.get("units"), lidars, f"{where}: units")
        geometry, floor = data.get("lidar_geometry"), data.get("floor")

        def file(value: Any, key: str) -> str:
            value = str(value) if isinstance(value, Path) else value
            return named_in(source, validate.text(value, f"{where}: {key}"))

        sensor = data.get("sensor", default_sensor)
        if validate.BETWEEN in str(sensor):
            sensor = validate.each_between(str(sensor), lambda each: file(each, "sensor"))
        else:
            sensor = file(sensor, "sensor")
        if geometry is not None:
            geometry = lidar_geometry(geometry, Path(source), f"{where}: lidar_geometry")
        given = {
            "world": file(data.get("world", cls.world), "world"), "sensor": sensor,
            "units": {device: file(each, f"units: {device}") for device, each in units.items()},
            "driver": kinds.driver_corrections(data.get("driver"), f"{where}: driver"),
            "lidar_errors": _lidar_errors(data, lidars, where), "robot": robot, "robot_keys": robot_keys,
            "lidar_geometry": geometry, "floor": floor,
        }  # fmt: skip
        if floor is not None:
            millimetres, wavelength = validate.numbers_by_key(floor, f"{where}: floor", **FLOOR).values()
            given["floor"] = 1e-3 * millimetres, wavelength
        read = {key: each for key, each in data.items() if key not in (*given, *ROBOT_KEYS, *ERROR_KEYS.values())}
        return validate.record(cls, read, where, **given)

    def to_mapping(self) -> dict[str, Any]:
        """Return the mapping that `from_mapping` reads back."""
        apart = {"world": str(self.world), "sensor": str(self.sensor), "robot": None, "floor": None}
        apart["units"] = {device: str(file) for device, file in self.units.items()}
        if self.floor is not None:
            apart["floor"] = {"rms_mm": 1e3 * self.floor[0], "wavelength": self.floor[1]}
        data = validate.written(replace(self, robot=None, robot_keys={})) | apart
        optional = ("lidar_geometry", "lidar_errors", "floor", "robot", "robot_keys")
        return {key: each for key, each in data.items() if each or key not in optional} | dict(self.robot_keys)


# A robot's own keys are read apart.
KEYS = {key for key, _ in validate.keys_of(SimulationSetup).values()} - {"robot_keys"} | set(ROBOT_KEYS)
KEYS |= set(ERROR_KEYS.values())


def _lidar_errors(data: Mapping[str, Any], lidars: Set[str], where: str) -> dict[str, PoseError]:
    """Return the errors of `lidar_errors:` and of the older `ERROR_KEYS`. Raises `InputError` for both of one lidar."""
    given = validate.mapping(data.get("lidar_errors"), lidars, f"{where}: lidar_errors")
    errors = {f"lidar_errors: {name}": (name, error) for name, error in given.items()}
    for name, key in ERROR_KEYS.items():
        if key in data:
            if name in given:
                raise InputError(f"{where}: {key}: is given twice, here and in lidar_errors: {name}")
            if name not in lidars:
                raise InputError(f"{where}: {key}: the robot has no {name} lidar, only {', '.join(sorted(lidars))}")
            errors[key] = name, data[key]
    return {name: validate.typed(error, PoseError, f"{where}: {key}") for key, (name, error) in errors.items()}


def true_link(lidar: str) -> str:
    """Return the link at the true pose of a lidar; the profile's frame is at the nominal one."""
    return f"lidar_{lidar}_true_link"


def simulated_description(setup: SimulationSetup) -> str:
    """Return the URDF text of a setup's robot with the errors of its lidars, base and joints, its payload and the floor
    below it. Raises `InputError` for errors of joints that do not exist or carry a lidar."""
    source = "simulated description"
    robot, profile, base = parse_xml(setup.nominal_description, source), setup.profile, setup.base_error
    model = parse_urdf(robot, source=source)
    lidars = profile.lidar_links(model)
    for name, frame in lidars.items():
        error = setup.lidar_errors.get(name, PoseError())
        add_frame(robot, true_link(name), f"lidar_{name}_true_joint", frame, error.matrix)
    footprint_from_base = link_transform(model, {}, profile.base_frame, profile.footprint_frame)
    floor_from_base = footprint_from_base @ from_xyz_rpy((0.0, 0.0, base.height), (base.roll, base.pitch, 0.0))
    SubElement(robot, "link", name=FLOOR_LINK)
    floor_from_root = floor_from_base @ inverse(link_transform(model, {}, profile.base_frame))
    add_joint(robot, "floor_joint", FLOOR_LINK, model.root, floor_from_root)
    for number, box in enumerate(setup.payload):
        name = f"payload_{number}_link"
        link = SubElement(robot, "link", name=name)
        for kind in ("visual", "collision"):
            SubElement(SubElement(SubElement(link, kind), "geometry"), "box", size=numbers(box.size))
        add_joint(robot, f"payload_{number}_joint", box.link, name, from_xyz_rpy(box.xyz, box.rpy))
    carrying = {joint.name for link in lidars.values() for joint in model.chain(link)}
    for name, error in setup.joint_errors.items():
        if name not in model.joints or name in carrying:
            movable = sorted(set(model.joints) - carrying)
            raise InputError(f"joint error: '{name}' is not a joint, or carries a lidar{near(name, movable)}")
        joint = next(element for element in robot.iterfind("joint") if element.get("name") == name)
        set_origin(joint, model.joints[name].parent_from_joint @ error.matrix)
    return ElementTree.tostring(robot, encoding="unicode")


@dataclass(frozen=True)
class Faults:
    """The faults of one run that the simulator is given, so that tests can see calibration and harness notice them;
    without arguments there are none. Times in s, `push` in scans.

    silent_left, silent_right         that lidar never publishes
    drop_half_left, drop_half_right   every second cloud of that lidar is lost
    stamp_offset:SECONDS              the right lidar's clock is that far ahead (header and points)
    push:TICK                         at that scan the base is pushed: 20 mm along x and 1 deg about z
    stuck:JOINT                       that joint does not move
    not_homed                         the robot has not been homed: it refuses to move until it is
    crash:SECONDS                     the process dies silently at that simulated time
    """

    silent: frozenset[str] = frozenset()
    drop_half: frozenset[str] = frozenset()
    stamp_offset: float = 0.0
    push: int | None = None
    stuck: frozenset[str] = frozenset()
    not_homed: bool = False
    crash: float | None = None

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> "Faults":
        """Return the faults of texts like "push:20". Raises `InputError` for one that is not known."""
        found: dict[str, Any] = {"silent": frozenset(), "drop_half": frozenset(), "stuck": frozenset()}
        for text in texts:
            name, value = (part.strip() for part in text.partition(":")[::2])
            kind, _, side = name.rpartition("_")
            if kind in ("silent", "drop_half") and side in SIDES and not value:
                found[kind] |= {side}
            elif name in ("stamp_offset", "push", "crash"):
                try:
                    found[name] = int(value) if name == "push" else float(value)
                except ValueError:
                    found[name] = math.nan
                if not math.isfinite(found[name]):
                    raise InputError(f"fault '{text}': expected after the colon a number, for push a whole one")
            elif name == "stuck" and value:
                found[name] |= {value}
            elif name == "not_homed" and not value:
                found[name] = True
            else:
                raise InputError(
                    f"fault '{text}' is unknown; available: silent_left, silent_right, drop_half_left, "
                    "drop_half_right, stamp_offset:SECONDS, push:TICK, stuck:JOINT, not_homed, crash:SECONDS"
                )
        return cls(**found)

    def publishes(self, side: str, tick: int) -> bool:
        """Return whether the lidar of that side publishes scan `tick`."""
        return side not in self.silent and not (side in self.drop_half and tick % 2)

    def clock_offset(self, side: str) -> float:
        """Return how far ahead that lidar's clock is, in s."""
        return self.stamp_offset if side == "right" else 0.0
