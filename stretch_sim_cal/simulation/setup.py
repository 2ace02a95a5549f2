"""The simulation of a scenario: world, sensor, seed, and the errors that only the simulator knows, as a scenario writes them."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal import validate
from stretch_sim_cal.conventions.spawned import ROBOT_KEYS, SpawnedRobot, robot_from_mapping
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy
from stretch_sim_cal.robot.profile import RobotProfile, lidar_geometry, stretch_profile
from stretch_sim_cal.sensor.sensor import DEFAULT_SENSOR, Sensor, driver_corrections, fleet_angle_table, load_sensor
from stretch_sim_cal.simulation.true_robot import PayloadBox, simulated_description

KEYS = {
    "world",
    "sensor",
    "seed",
    "lidar_left_error",
    "lidar_right_error",
    "base_error",
    "payload",
    "joint_errors",
    "real_time_factor",
    "unit_seed",
    "units",
    "driver",
    "lidar_geometry",
    *ROBOT_KEYS,
}
MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class PoseError:
    """How far something is from its nominal pose, in its own frame: true = nominal * error. m, rad (fixed axes)."""

    xyz: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rpy: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def matrix(self) -> np.ndarray:
        """nominal_from_true (4, 4)."""
        return from_xyz_rpy(self.xyz, self.rpy)


@dataclass(frozen=True)
class BaseError:
    """How base_link really stands above the floor: raised by `height` (m), turned by `roll` and `pitch` (rad)."""

    height: float = 0.0
    roll: float = 0.0
    pitch: float = 0.0


@dataclass(frozen=True)
class SimulationSetup:
    """One simulation. `world` and `sensor` are names in `worlds/` and `config/`, or paths.

    `joint_errors` say by joint how far its origin is from the description's; along or about a joint's axis, a zero
    that is off.
    Lidars are units of the sensor, drawn from `unit_seed` (by default `seed`), or those of unit files, `units` by side;
    `driver` says what their driver corrects, by the names of `Driver`, the others are as the sensor file says.
    `robot` is what is spawned, by default the vendor's Stretch 4 as it is. `lidar_geometry` is what the simulated lidars see, as
    of a profile, by default the profile's own; only the simulator knows of another one.
    `real_time_factor` is for whoever steps the simulation: 1 is real time, 0 as fast as the machine can.
    """

    world: str | Path = "furnished_room"
    sensor: str | Path = DEFAULT_SENSOR
    seed: int = 1
    lidar_left_error: PoseError = PoseError()
    lidar_right_error: PoseError = PoseError()
    base_error: BaseError = BaseError()
    payload: tuple[PayloadBox, ...] = ()
    joint_errors: Mapping[str, PoseError] = field(default_factory=dict)
    real_time_factor: float = 0.0
    unit_seed: int | None = None
    units: Mapping[str, str | Path] = field(default_factory=dict)
    driver: Mapping[str, bool] = field(default_factory=dict)
    robot: SpawnedRobot | None = None
    robot_keys: Mapping[str, str] = field(default_factory=dict)
    """The keys of the robot that `from_mapping` read."""
    lidar_geometry: str | None = None

    @property
    def profile(self) -> RobotProfile:
        """The robot's profile, its lidars seeing what the simulated ones see."""
        profile = stretch_profile() if self.robot is None else self.robot.profile
        return dataclasses.replace(profile, lidar_geometry=self.lidar_geometry) if self.lidar_geometry else profile

    def true_description(self, simulator: str = "embedded", **arguments: object) -> str:
        """Return the URDF text of the robot with all errors of this setup; see `simulated_description`."""
        return simulated_description(
            self.lidar_left_error.matrix,
            self.lidar_right_error.matrix,
            (self.base_error.height, self.base_error.roll, self.base_error.pitch),
            self.payload,
            simulator,
            gazebo=arguments,
            joint_errors={joint: error.matrix for joint, error in self.joint_errors.items()},
            robot=self.robot,
        )

    def sensor_of(self, device: str, sensor: Sensor) -> Sensor:
        """Return the sensor of lidar "left" or "right": `sensor`, with the unit's own angle table if the robot's fleet folder
        has it, or that of its unit file; behind the driver asked for.

        Raises `InputError` for a unit file or table that cannot be used.
        """
        if device in self.units:
            unit = load_sensor(self.units[device])
            if unit.unit is None:
                raise InputError(f"{self.units[device]}: is no unit file, it has no key 'sensor'")
            if unit.period != sensor.period:
                raise InputError(
                    f"{self.units[device]}: rate: is {unit.rate:g}, that of {sensor.name} is {sensor.rate:g}"
                )
            sensor = unit
        elif table := self.angle_table_of(device, sensor):
            sensor = sensor.with_angle_table(table)
        return sensor.with_driver(dataclasses.replace(sensor.driver, **self.driver))

    def angle_table_of(self, device: str, sensor: Sensor) -> Path | None:
        """Return the angle table in the robot's fleet folder that lidar "left" or "right" has, None for the sensor's own."""
        return fleet_angle_table(device) if sensor.fleet_angle_tables and device not in self.units else None

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], source: str = "setup") -> "SimulationSetup":
        """Return the setup that the `simulation:` mapping of a scenario writes down; absent keys are defaults.

        Relative paths of world and sensor start at the folder of the file `source` if they exist there.
        Raises `InputError` naming `source` and the key.
        """
        where = f"{source}: simulation"
        data = validate.mapping(data, KEYS, where)
        robot, robot_keys = robot_from_mapping(data, source, where)
        default_sensor = cls.sensor if robot is None or "robot" not in data else robot.profile.sensor
        return cls(
            world=_file(data.get("world", cls.world), source, f"{where}: world"),
            sensor=_file(data.get("sensor", default_sensor), source, f"{where}: sensor"),
            seed=validate.integer(data.get("seed", cls.seed), f"{where}: seed", 0, MAX_SEED),
            lidar_left_error=_pose_error(data.get("lidar_left_error"), f"{where}: lidar_left_error"),
            lidar_right_error=_pose_error(data.get("lidar_right_error"), f"{where}: lidar_right_error"),
            base_error=_base_error(data.get("base_error"), f"{where}: base_error"),
            payload=_payload(data.get("payload"), f"{where}: payload"),
            joint_errors=_joint_errors(data.get("joint_errors"), f"{where}: joint_errors"),
            real_time_factor=validate.number(
                data.get("real_time_factor", cls.real_time_factor), f"{where}: real_time_factor", 0.0, 1000.0
            ),
            unit_seed=(
                validate.integer(data["unit_seed"], f"{where}: unit_seed", 0, MAX_SEED)
                if data.get("unit_seed") is not None
                else None
            ),
            units={
                device: _file(file, source, f"{where}: units: {device}")
                for device, file in validate.mapping(data.get("units"), set(SIDES), f"{where}: units").items()
            },
            driver=driver_corrections(data.get("driver"), f"{where}: driver"),
            robot=robot,
            robot_keys=robot_keys,
            lidar_geometry=(
                lidar_geometry(data["lidar_geometry"], Path(source), f"{where}: lidar_geometry")
                if data.get("lidar_geometry") is not None
                else None
            ),
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return the mapping that `from_mapping` reads back, angles in degrees."""
        return {
            "world": str(self.world),
            "sensor": str(self.sensor),
            "seed": self.seed,
            "lidar_left_error": _pose_mapping(self.lidar_left_error),
            "lidar_right_error": _pose_mapping(self.lidar_right_error),
            "base_error": {
                "height": self.base_error.height,
                "roll_deg": math.degrees(self.base_error.roll),
                "pitch_deg": math.degrees(self.base_error.pitch),
            },
            "payload": [{"link": box.link, "size": list(box.size)} | _pose_mapping(box) for box in self.payload],
            "joint_errors": {joint: _pose_mapping(error) for joint, error in self.joint_errors.items()},
            "real_time_factor": self.real_time_factor,
            "unit_seed": self.unit_seed,
            "units": {device: str(file) for device, file in self.units.items()},
            "driver": dict(self.driver),
            **({"lidar_geometry": self.lidar_geometry} if self.lidar_geometry else {}),
            **self.robot_keys,
        }

    def with_seed(self, seed: int) -> "SimulationSetup":
        """Return the same simulation with other noise."""
        return dataclasses.replace(self, seed=seed)


def _file(value: Any, source: str, where: str) -> str | Path:
    name = validate.text(str(value) if isinstance(value, Path) else value, where)
    beside = Path(source).parent / name
    return beside.resolve() if len(Path(name).parts) > 1 and beside.is_file() else name


def _xyz(data: Mapping, where: str) -> tuple[float, ...]:
    return validate.numbers(data.get("xyz", [0.0, 0.0, 0.0]), 3, f"{where}: xyz", -100.0, 100.0)


def _rpy(data: Mapping, where: str) -> tuple[float, ...]:
    degrees = validate.numbers(data.get("rpy_deg", [0.0, 0.0, 0.0]), 3, f"{where}: rpy_deg", -360.0, 360.0)
    return tuple(math.radians(angle) for angle in degrees)


def _pose_error(value: Any, where: str) -> PoseError:
    data = validate.mapping(value, {"xyz", "rpy_deg"}, where)
    return PoseError(_xyz(data, where), _rpy(data, where))


def _joint_errors(value: Any, where: str) -> dict[str, PoseError]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: a mapping of joints to errors was expected")
    return {str(joint): _pose_error(error, f"{where}: {joint}") for joint, error in value.items()}


def _pose_mapping(pose: PoseError | PayloadBox) -> dict[str, Any]:
    return {"xyz": list(pose.xyz), "rpy_deg": [math.degrees(angle) for angle in pose.rpy]}


def _base_error(value: Any, where: str) -> BaseError:
    data = validate.mapping(value, {"height", "roll_deg", "pitch_deg"}, where)
    return BaseError(
        height=validate.number(data.get("height", 0.0), f"{where}: height", -0.2, 0.2),
        roll=math.radians(validate.number(data.get("roll_deg", 0.0), f"{where}: roll_deg", -20.0, 20.0)),
        pitch=math.radians(validate.number(data.get("pitch_deg", 0.0), f"{where}: pitch_deg", -20.0, 20.0)),
    )


def _payload(value: Any, where: str) -> tuple[PayloadBox, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InputError(f"{where}: a list of boxes was expected, each with link, size, xyz, rpy_deg")
    boxes = []
    for index, entry in enumerate(value):
        here = f"{where}[{index}]"
        data = validate.mapping(entry, {"link", "size", "xyz", "rpy_deg"}, here)
        link = validate.text(data.get("link"), f"{here}: link")
        size = validate.numbers(data.get("size"), 3, f"{here}: size", 1e-4, 10.0)
        boxes.append(PayloadBox(link, size, _xyz(data, here), _rpy(data, here)))
    return tuple(boxes)
