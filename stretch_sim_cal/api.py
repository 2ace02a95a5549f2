"""The package from Python: arrays in, a calibration out. Needs no ROS.

    import stretch_sim_cal as cal

    rig = cal.Rig.from_urdf("robot.urdf", sensor="jt128")
    result = cal.calibrate(rig, left_clouds, right_clouds)      # or cal.calibrate(rig, cal.open_recording(path))
    result.left_from_right, result.covariance, result.findings
    result.save("calibration.yaml")

Any number of lidars, one included, by their names:

    rig = cal.Rig.from_urdf("robot.urdf", sensor="jt128", lidars=["front_link", "rear_link", "mast_link"])
    result = cal.calibrate(rig, {"front_link": clouds, "rear_link": clouds, "mast_link": clouds})
    result.transform("front_link", "mast_link"), result.covariance_of("front_link", "mast_link")

A robot that drives tells where its lidars are against its wheels, with stops on the way:

    cal.calibrate_by_driving(rig, cal.open_drive(path)).wheels.planar("left")

Simulated clouds, and how far a result is from their truth, for tests:

    sim = cal.simulate(world="furnished_room", sensor="jt128_sparse", seed=7)
    cal.calibrate(sim.rig, sim.clouds).errors(sim.truth)

Transforms are named target_from_source, lengths are in m, angles in rad (see `geometry/transforms.py`).
"""

import html
import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_robot_id
from stretch_sim_cal.calibration.driving import DrivenArray, DrivenResult
from stretch_sim_cal.calibration.finding import coded
from stretch_sim_cal.calibration.findings import error_in_units
from stretch_sim_cal.calibration.lidars import DescribedLidar, known_mount, lidars_at, with_lidars
from stretch_sim_cal.calibration.mounts.file import with_floor
from stretch_sim_cal.calibration.pipeline import calibrated, driven, together
from stretch_sim_cal.calibration.results import AlignmentResult, FloorResult, LidarPoses
from stretch_sim_cal.calibration.settings import accepting
from stretch_sim_cal.calibration.summaries import alignment_stage, floor_stage, wheels_numbers, wheels_stage
from stretch_sim_cal.calibration.wheel_odometry import DrivingSettings, Wheels
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import SIDES, check_rigid, inverse, to_xyz_rpy
from stretch_sim_cal.recording.rosbag import Recording
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import near
from stretch_sim_cal.robot.profile import RobotProfile, profile_called
from stretch_sim_cal.robot.surfaces import body_settings
from stretch_sim_cal.sensor.points import POINT_DTYPE, RETURN_COLUMNS
from stretch_sim_cal.sensor.recognition import sensor_of
from stretch_sim_cal.sensor.sensor import Sensor, Sensors, for_each, sensors_called
from stretch_sim_cal.sensor.unit import SCALARS
from stretch_sim_cal.truth import Errors, Truth
from stretch_sim_cal.validate import BETWEEN, integer

__all__ = [
    "DrivingSettings", "Finding", "RecordedClouds", "Result", "Rig", "SensorError", "calibrate", "calibrate_by_driving",
    "open_drive", "open_recording", "sensor_of",
]  # fmt: skip
MOST = 10**9  # clouds of a recording


@dataclass(frozen=True, eq=False)
class Rig:
    """The lidars of a robot, as they are described: the start of a calibration.

    `base_from_left` and `base_from_right` (4, 4) are the lidars' nominal poses in base_link, `footprint_from_base` (4,
    4) maps base_link into base_footprint, which lies on the floor; if it is None, the floor is searched at base_link's
    own origin. `sensor` is the kind of all lidars, or a sequence of each one's kind, or their names as of `from_urdf`;
    if it is None, a spinning lidar of unknown make; `sensor_of` tells the kind from clouds.
    `further` are the poses of lidars beyond two by name; `names` are those of all, the left and the right one first; a
    robot with one lidar has one name, and its right lidar where the left one is. `body` are the settings that say what
    of a scan is the robot itself (`robot.surfaces.body_settings`), by default a cylinder that holds the Stretch.
    `accept` are the standard deviations (m, rad) up to which lidar to lidar is accepted, by default 5 mm and 0.1 deg.
    `robot` is the profile's name or path, for the calibration file, in which without it the robot stays as named.
    Raises `InputError` if one of them is not a rigid transform, or the names are not as many as the lidars.
    """

    base_from_left: np.ndarray
    base_from_right: np.ndarray
    footprint_from_base: np.ndarray | None = None
    sensor: Sensors | str | Path | Sequence[str | Path] = None
    further: Mapping[str, np.ndarray] = field(default_factory=dict)
    names: tuple[str, ...] = SIDES
    body: Mapping[str, Any] = field(default_factory=dict)
    accept: tuple[float, float] | None = None
    robot: str | None = None

    def __post_init__(self) -> None:
        given = {name: check_rigid(pose, f"further lidar {name}") for name, pose in self.further.items()}
        object.__setattr__(self, "further", given)
        if given and self.names == SIDES:
            object.__setattr__(self, "names", (*SIDES, *given))
        count = len(SIDES) + len(given) if given else len(self.names)
        if len(set(self.names)) != count or not 1 <= len(self.names) <= len(SIDES) + len(given):
            raise InputError(f"rig: names: {', '.join(self.names)}: give every lidar a different name")
        object.__setattr__(self, "sensor", self._kinds)
        for_each(self._kinds, count)
        accepting(self.accept)
        for name in ("base_from_left", "base_from_right", "footprint_from_base"):
            if name != "footprint_from_base" or self.footprint_from_base is not None:
                object.__setattr__(self, name, check_rigid(getattr(self, name), name))

    @classmethod
    def from_urdf(
        cls, source: str | Path | None, sensor: Sensors | str | Path | Sequence[str | Path] = None,
        left: str | None = None, right: str | None = None, base: str | None = None, footprint: str | None = None,
        robot: str | Path | None = None, lidars: Sequence[str] | Mapping[str, str] | None = None,
    ) -> "Rig":  # fmt: skip
        """Return the rig that a URDF or xacro file, or the text of a URDF, describes; None is refused.

        `sensor` is the name of a sensor file in `config/` ("jt128"), a path to one or to a unit file, "LEFT,RIGHT" for
        lidars of different kinds, or as of a `Rig`; None is that of the profile `robot` if one is named. `left`,
        `right`, `base` and `footprint` are links; by default they are called as in the profile (a name in
        `config/robots/` or a path), of the Stretch if none is named: older names of its lidars are found as well.
        `footprint` may be absent. The shapes of the profile's robot, stowed, are no part of room and floor; its
        packages are where meshes and `$(find ...)` are looked for, its arguments those of its own xacro. `lidars`
        are the links of any number of lidars, or a mapping of names to links, in place of `left` and `right`; the first
        one is the one that the others are given to. Raises `InputError` naming file and link.
        """
        if source is None:
            raise InputError("no URDF: the recording has no /robot_description; give the robot's URDF file")
        profile: RobotProfile = profile_called(robot)
        own = profile.description
        is_file = isinstance(source, Path) or not source.lstrip("\ufeff \t\r\n").startswith("<")
        is_own = is_file and own.file is not None and Path(source).expanduser().resolve() == Path(own.file).resolve()
        model = load_model(source, own.arguments if is_own else None, own.packages)
        where = source if is_file else "URDF text"
        older = {lidar.frame: lidar.older_frame for lidar in profile.lidars.values()}
        links = []
        if lidars is not None and (left or right or not lidars or isinstance(lidars, str)):
            raise InputError("lidars: give the links of all lidars, one or more, in a list, and not left or right")
        wanted = {name: lidar.frame for name, lidar in profile.lidars.items()}
        wanted |= {side: link for side, link in (("left", left), ("right", right)) if link}
        if lidars is not None:
            wanted = dict(lidars) if isinstance(lidars, Mapping) else {link: link for link in lidars}
        for name in (base or profile.base_frame, *wanted.values()):
            known = [link for link in (name, older.get(name)) if link is not None and link in model.links]
            if not known:
                raise InputError(f"{where}: has no link '{name}'{near(name, model.links)}; check the name")
            links.append(known[0])
        if len(set(links[1:])) < len(lidars or wanted):
            raise InputError(f"{where}: lidars: {', '.join(links[1:])}: give every lidar a link of its own")
        if sensor is None and robot is not None and tuple(wanted) == tuple(profile.lidars):
            sensor = profile.sensor
        root_from_link = link_transforms(model, {})
        base_from_root = inverse(root_from_link[links[0]])
        footprint_from_base = None
        if (floor := footprint or profile.footprint_frame) in model.links:
            footprint_from_base = inverse(base_from_root @ root_from_link[floor])
        poses = [base_from_root @ root_from_link[link] for link in links[1:]]
        return cls(
            poses[0], poses[min(1, len(poses) - 1)], footprint_from_base,
            sensor, dict(zip(list(wanted)[2:], poses[2:], strict=True)), tuple(wanted),
            body_settings(profile, model, warnings.warn), profile.accept, None if robot is None else profile.source,
        )  # fmt: skip

    @property
    def base_from_lidar(self) -> dict[str, np.ndarray]:
        """The nominal poses (4, 4) of all lidars in base_link, by name."""
        poses = (self.base_from_left, self.base_from_right, *self.further.values())
        return dict(zip(self.names, poses, strict=False))

    @property
    def _kinds(self) -> Sensors:
        given: Any = tuple(self.sensor) if isinstance(self.sensor, list) else self.sensor
        if isinstance(given, tuple) and given and all(isinstance(each, str | Path) for each in given):
            given = BETWEEN.join(map(str, given))
        kinds: Sensors = sensors_called(given) if isinstance(given, str | Path) else given
        for each in kinds if isinstance(kinds, tuple) else (kinds,):
            if not isinstance(each, Sensor | None):
                raise InputError(f"rig: sensor: is of type {type(each).__name__}; expected a sensor, or names of all")
        return kinds

    @property
    def sensors(self) -> dict[str, Sensor | None]:
        """The kinds of all lidars, by name."""
        return dict(zip(self.names, for_each(self._kinds, len(self.names)), strict=True))

    @property
    def left_from_right(self) -> np.ndarray:
        """The nominal transform (4, 4) from the right lidar's frame into the left's."""
        left_from_right: np.ndarray = inverse(self.base_from_left) @ self.base_from_right
        return left_from_right


@dataclass(frozen=True)
class Finding:
    """Something that a user should know of a result. `severity` is "error" (it is refused) or "warning"; `code` names
    the kind of finding and stays the same from release to release; `remedy` is the action to take, "" for none."""

    severity: str
    code: str
    sentence: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.severity} {self.code}: {self._text}"

    @property
    def _text(self) -> str:
        return self.sentence + (f"; {self.remedy}" if self.remedy else "")


class SensorError(NamedTuple):
    """An estimated error of one lidar, by the name it has in `sensor/unit.py`: in m, rad, or as a ratio."""

    value: float
    standard_deviation: float


class RecordedClouds(NamedTuple):
    """Pairs of clouds from a recording, each in its own lidar's frame, and the robot's URDF if it was recorded; of a
    robot with another number of lidars than two as many `clouds` of each, by its name. They are structured arrays (N,)
    with x, y, z and, if the recording has them, intensity and ring."""

    left_clouds: list[np.ndarray]
    right_clouds: list[np.ndarray]
    description: str | None
    clouds: Mapping[str, list[np.ndarray]] = MappingProxyType({})


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The calibration of a rig, and whether the data supports it.

    `array` are the poses of all lidars to each other. `floor` is None if the alignment was refused, or the floor was
    not asked for; `floor.plane` is the floor in base_link, `floor.covariance` (3, 3) is over (height, tilt about x,
    tilt about y), `floor.footprint_from_base` (4, 4) puts base_footprint on it.
    """

    rig: Rig
    array: LidarPoses
    floor: FloorResult | None = None

    @property
    def alignment(self) -> AlignmentResult:
        """The transform between the first two lidars, the identity for one, with the findings on all lidars."""
        return self.array.aligned(*self.array.first_two)

    def transform(self, target: str, source: str) -> np.ndarray:
        """Return the transform (4, 4) that maps points of lidar `source` into the frame of lidar `target`, by name."""
        return self._between(target, source)[0]

    def covariance_of(self, target: str, source: str) -> np.ndarray:
        """Return the covariance (6, 6) of `transform(target, source)`, in the target's frame, as of `covariance`."""
        return self._between(target, source)[1]

    def _between(self, target: str, source: str) -> tuple[np.ndarray, np.ndarray]:
        for name in (target, source):
            if name not in self.rig.names:
                raise InputError(f"lidar '{name}': available: {', '.join(self.rig.names)}")
        return self.array.transform(target, source), self.array.covariance(target, source)

    @property
    def left_from_right(self) -> np.ndarray:
        """The transform (4, 4) that maps the right lidar's points into the left lidar's frame."""
        return self.alignment.right_to_left

    @property
    def covariance(self) -> np.ndarray:
        """The covariance (6, 6) of `left_from_right` over (tx, ty, tz, rx, ry, rz): true = exp(xi) @ estimate."""
        return self.alignment.covariance

    @property
    def wheels(self) -> Wheels | None:
        """The lidars against the wheels, of a robot that drove."""
        return self.array.wheels if isinstance(self.array, DrivenResult) else None

    @property
    def accepted(self) -> bool:
        return all(stage.accepted for stage in (self.array, self.floor, self.wheels) if stage is not None)

    @property
    def findings(self) -> list[Finding]:
        """The reasons of refusals, and warnings; errors come first."""
        found = []
        for severity, name in (("error", "refusals"), ("warning", "warnings")):
            for stage in filter(None, (self.array, self.floor, self.wheels)):
                found += [finding_of(severity, sentence) for sentence in getattr(stage, name)]
        return list(dict.fromkeys(found))

    @property
    def sensor_errors(self) -> dict[str, dict[str, SensorError]]:
        """The lidars' own errors as the last stage estimates them, by lidar ("left", "right") and name."""
        numbers = self.array.diagnostics
        if self.floor is not None and self.wheels is None:
            numbers = numbers | self.floor.diagnostics
        found: dict[str, dict[str, SensorError]] = {lidar: {} for lidar in self.rig.names}
        for lidar, name in itertools.product(found, SCALARS):
            if (key := f"{name}_{lidar}") in numbers:
                found[lidar][name] = SensorError(numbers[key], numbers[f"{key}_std"])
        return found

    def _clear_errors(self) -> Iterator[tuple[str, str, str]]:
        """Yield lidar, name and value of the sensor errors that exceed two standard deviations."""
        for lidar, errors in self.sensor_errors.items():
            for name, one in errors.items():
                if abs(one.value) > 2.0 * one.standard_deviation:
                    yield lidar, name, error_in_units(name, *one)

    def errors(self, truth: Truth) -> Errors:
        """Return how far this is from the truth of a simulation (`cal.simulate(...).truth`): mm, deg and NEES of every
        pair of lidars, of the floor, and of each lidar against the wheels. Raises `InputError` for a truth of other
        lidars."""
        names = self.rig.names
        if missing := [name for name in names if name not in truth.base_from_lidar]:
            raise InputError(f"errors: the truth is of {', '.join(truth.base_from_lidar)}, not of {', '.join(missing)}")
        every = itertools.combinations(names, 2)
        pairs = {pair: truth.pair_error(*pair, *self._between(*pair)) for pair in every}
        floor = None if self.floor is None else truth.floor_error(self.floor.plane, self.floor.covariance)
        if self.wheels is None or not truth.footprint_from_lidar:
            return Errors(pairs, floor)
        wheels = {name: truth.wheels_error(name, *self.wheels.planar(name)) for name in names}
        return Errors(pairs, floor, wheels)

    def save(self, path: str | Path, robot_id: str | None = None) -> None:
        """Write all stages to a calibration file (docs/calibration_file.md), and their observations beside it.

        Other entries of an existing file are kept, and the old file as a backup; `robot_id` is $HELLO_FLEET_ID by
        default. Raises `Refused` unless all stages were accepted, `InputError` if the file cannot be written.
        """
        path, robot_id = Path(path).expanduser(), robot_id or default_robot_id()
        if not self.accepted:
            refusals = [found.sentence for found in self.findings if found.severity == "error"]
            raise Refused(f"{path}: not written: {'; '.join(refusals)}")

        def change(file: CalibrationFile) -> CalibrationFile:
            if self.rig.robot is not None:
                file = file.of_robot(profile_called(self.rig.robot).named)
            if self.wheels is not None:
                file = file.with_wheels(self.wheels, self.array.num_frames, robot_id)
            if len(self.array.names) > 1 or self.wheels is None:
                file = with_lidars(file, self.array, robot_id)
            if self.floor is None:
                return file
            return with_floor(file, self.floor, robot_id, self.array.base_from_lidar[self.rig.names[0]])

        observations = self.array.observations
        CalibrationFile.update(path, change, None if observations is None else observations.beside(path))

    def __str__(self) -> str:
        lines = alignment_stage(self.array, self.rig.base_from_lidar).lines
        if self.floor is not None:
            lines += floor_stage(self.floor, _footprint(self.rig)).lines
        if self.wheels is not None:
            lines += wheels_stage(self.wheels).lines
        lines += [f"{lidar} lidar: {name} {said}" for lidar, name, said in self._clear_errors()]
        return "\n".join([*lines, *map(str, self.findings), "accepted" if self.accepted else "refused"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [("verdict", "accepted" if self.accepted else "<b>refused</b>")]

        def add(name: str, value: float, deviation: float, digits: int, unit: str) -> None:
            rows.append((name, f"{value:.{digits}f} &plusmn; {deviation:.{digits}f} {unit}"))

        first, *others = self.rig.names
        for other in others:
            found, covariance = self._between(first, other)
            xyz, rpy = to_xyz_rpy(found)
            deviations, name = np.sqrt(np.diag(covariance)), f"{first} from {other}"
            for axis, value, deviation in zip("xyz", xyz, deviations[:3], strict=True):
                add(f"{name}, {axis}", 1e3 * value, 1e3 * deviation, 2, "mm")
            for axis, value, deviation in zip("xyz", np.degrees(rpy), np.degrees(deviations[3:]), strict=True):
                add(f"{name}, about {axis}", value, deviation, 4, "deg")
        if self.floor is not None:
            own = floor_stage(self.floor, _footprint(self.rig)).numbers
            height = own["height_mm"], own["height_standard_deviation_mm"]
            add("height of base_link above the floor", *height, 2, "mm")
            for axis, tilt, deviation in zip("xy", own["tilt_deg"], own["tilt_standard_deviation_deg"], strict=True):
                add(f"floor's tilt about {axis}", tilt, deviation, 4, "deg")
        for lidar, own in ({} if self.wheels is None else wheels_numbers(self.wheels)["lidars"]).items():
            for axis, deviation in zip("xy", own["standard_deviation_mm"], strict=True):
                add(f"{lidar} to the centre of rotation, {axis}", own[f"{axis}_mm"], deviation, 2, "mm")
            yaw = own["yaw_deg"], own["standard_deviation_yaw_deg"]
            add(f"{lidar} against the direction of driving", *yaw, 3, "deg")
        for lidar, name, said in self._clear_errors():
            rows.append((f"{lidar} lidar, {name}", html.escape(said).replace("+-", "&plusmn;")))
        rows += [(f"{found.severity}: {found.code}", html.escape(found._text)) for found in self.findings]
        head = "<th style='text-align:left'>"
        body = "".join(f"<tr>{head}{html.escape(name)}</th><td>{value}</td></tr>" for name, value in rows)
        return f"<table>{body}</table>"


@threadpool_limits.wrap(limits=1)  # type: ignore[untyped-decorator]
def calibrate(
    rig: Rig, left_clouds: Iterable[np.ndarray] | Mapping[str, Iterable[np.ndarray]] | RecordedClouds,
    right_clouds: Iterable[np.ndarray] | None = None,
    *, floor: bool = True, mounts: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
    accept: tuple[float, float] | None = None,
) -> Result:  # fmt: skip
    """Return the calibration of two lidars from pairs of clouds, taken while robot and scene stood still.

    Of one, two or more lidars from `left_clouds` by the rig's names, as many clouds of each. Lidars that see nothing in
    common are tied by those that see something in common with both, and by `mounts`: poses in base_link (4, 4) with
    their covariances (6, 6), a twist in base_link, of any of the lidars that the robot's own returns gave one
    (calibration of the extrinsics).

    `left_clouds` and `right_clouds` hold one cloud per pair, each in its own lidar's frame: points (N, 3), or
    structured arrays (N,) with x, y, z and perhaps ring and intensity, as drivers publish them. With rings and the
    rig's sensor the lidars' own errors are estimated by channel. `left_clouds` may be the result of `open_recording`.
    The floor is found with the alignment's observations, if `floor` asks for it. `accept` are the standard deviations
    (m, rad) up to which lidar to lidar is accepted, by default the rig's. Raises `InputError` for anything that
    is not a cloud; data that does not support a result ends in `findings`.
    """
    if isinstance(left_clouds, RecordedClouds):
        if right_clouds is not None:
            raise InputError("right_clouds: a recording has the clouds of both lidars; omit this argument")
        left_clouds, right_clouds = (left_clouds.clouds, None) if left_clouds.clouds else left_clouds[:2]
    if isinstance(left_clouds, Mapping):
        if right_clouds is not None:
            raise InputError("right_clouds: the clouds by name are those of all lidars; omit this argument")
        by_name = _clouds_by_name(rig, left_clouds)
    elif len(rig.names) != len(SIDES) or mounts:
        raise InputError(f"clouds: give those of {', '.join(rig.names)} in a mapping by these names")
    else:
        left, right = _clouds(left_clouds, "left"), _clouds(right_clouds, "right")
        if len(left) != len(right):
            raise InputError(f"{len(left)} left and {len(right)} right clouds: give equal numbers, in pairs")
        by_name = dict(zip(rig.names, (left, right), strict=True))
    for name in mounts or {}:
        if name not in rig.names:
            raise InputError(f"mounts: '{name}': the rig's lidars are {', '.join(rig.names)}")
    lidars = {
        name: DescribedLidar(pose, rig.sensors[name], known_mount(name, (mounts or {}).get(name)))
        for name, pose in rig.base_from_lidar.items()
    }
    sets = list(together(by_name))
    return Result(rig, *calibrated(lidars, sets, _footprint(rig), floor, rig.body, accept or rig.accept))


def _clouds_by_name(rig: Rig, clouds: Mapping[str, Iterable[np.ndarray]]) -> dict[str, list[np.ndarray]]:
    if set(clouds) != set(rig.names):
        raise InputError(f"clouds: are of {', '.join(map(str, clouds))}; the rig's lidars are {', '.join(rig.names)}")
    found = {name: _clouds(clouds[name], name) for name in rig.names}
    if len({len(own) for own in found.values()}) > 1:
        counts = ", ".join(f"{len(own)} of {name}" for name, own in found.items())
        raise InputError(f"clouds: {counts}: give equal numbers of each lidar")
    return found


@threadpool_limits.wrap(limits=1)  # type: ignore[untyped-decorator]
def calibrate_by_driving(
    rig: Rig, stations: Iterable[Any], settings: DrivingSettings | None = None,
    *, accept: tuple[float, float] | None = None,
) -> Result:  # fmt: skip
    """Return the calibration of one, two or more lidars of a robot that drove, from what they saw where it stood.

    `stations` are the result of `open_drive`, those of `cal.simulate(..., drive=...)`, or any objects with `clouds`, by
    lidar as of `calibrate`, and `odometry`: x, y (m), yaw (rad), (3,), or all that it said on the way there, (K, 3);
    on the move a `sweep`, and structured clouds with the `timestamp` (s) of each point.
    `result.wheels` is where the lidars are against the centre of rotation and the direction of driving; the lidars need
    not see anything in common, and the floor is that under all stations. `settings` say how good odometry is, `accept`
    as of `calibrate`. Raises `InputError` for anything that is not a station or a cloud; data that does not support a
    result ends in `findings`.
    """
    if not isinstance(settings, DrivingSettings | None):
        raise InputError(f"settings: is of type {type(settings).__name__}, expected DrivingSettings")
    lidars = lidars_at(rig.base_from_lidar, rig._kinds)
    array = DrivenArray(lidars, _footprint(rig), settings, rig.body, accept or rig.accept)
    found = driven(array, _stations(rig, stations))
    return Result(rig, found, found.floor)


def _stations(rig: Rig, stations: Iterable[Any]) -> Iterator[Any]:
    if isinstance(stations, str | Path) or not isinstance(stations, Iterable):
        expected = "expected objects with clouds and odometry, as of open_drive(PATH)"
        raise InputError(f"stations: is {stations!r}; {expected}")
    for number, each in enumerate(stations, start=1):
        if not (hasattr(each, "clouds") and hasattr(each, "odometry")):
            raise InputError(f"station {number}: is of type {type(each).__name__}, which has no clouds and odometry")
        clouds = _clouds_by_name(rig, each.clouds)
        yield SimpleNamespace(odometry=each.odometry, clouds=clouds, sweep=getattr(each, "sweep", None))


def open_drive(
    path: str | Path, robot: str | Path | None = None, max_clouds: int = 10, continuous: bool = False
) -> list[Any]:
    """Return where a robot stood on its way in a rosbag2 recording, each with `clouds` by lidar, up to `max_clouds` of
    each, and the `odometry` of the way there; if it is `continuous` scans on the move as well, with a `sweep`. Topics
    are those of the profile `robot`, of the Stretch if none is named; it needs a `base:`. Raises `InputError` if the
    recording is truncated, lacks a topic, or the robot stood at only one place."""
    from stretch_sim_cal.recording.stations import RecordedStation, recorded_stations

    integer(max_clouds, "open_drive: max_clouds", 1, MOST)
    profile: RobotProfile = profile_called(robot)
    topics, frames = _topics_and_frames(profile)
    with Recording(path) as recording:
        odometry = profile.driven_base.odometry
        found = recorded_stations(recording, odometry, topics, frames, max_clouds, warnings.warn, continuous)
    return [
        station if station.sweep is not None else RecordedStation(_all_structured(station.clouds), station.odometry)
        for station in found
    ]


def _topics_and_frames(profile: RobotProfile) -> tuple[dict[str, str], dict[str, str]]:
    lidars = profile.lidars.items()
    return {name: lidar.topic for name, lidar in lidars}, {name: lidar.frame for name, lidar in lidars}


def open_recording(
    path: str | Path, left_topic: str | None = None, right_topic: str | None = None,
    max_time_difference: float = 0.05, max_pairs: int = 50, robot: str | Path | None = None,
) -> RecordedClouds:  # fmt: skip
    """Return the first `max_pairs` pairs of clouds of a rosbag2 recording (a folder, or an .mcap or .db3 file), or as
    many clouds of each lidar of a robot with another number of lidars than two.

    Topics that are not given are those of the profile `robot` (a name in `config/robots/` or a path), of the Stretch if
    none is named. `max_time_difference` (s) is how far apart the stamps of a pair may be. Raises `InputError` if the
    recording is truncated, lacks a topic, or has no pair.
    """
    from stretch_sim_cal.recording.topics import RecordedSets, recorded_clouds, recorded_description

    integer(max_pairs, "open_recording: max_pairs", 1, MOST)
    topics, frames = _topics_and_frames(profile_called(robot))
    if right_topic and "right" not in frames:
        raise InputError(f"right_topic: {right_topic}: the robot has one lidar, left")
    topics |= {side: given for side, given in (("left", left_topic), ("right", right_topic)) if given}
    two = len(frames) == len(SIDES)
    with Recording(path) as recording:
        # The frames' names are only checked for swapped topics: the rig says where the lidars are.
        if two:
            sets = list(RecordedSets(recording, topics, frames, max_time_difference, max_pairs, warn=lambda _: None))
            found = {name: [clouds[name] for clouds in sets] for name in frames}
        else:
            found = recorded_clouds(recording, topics, frames, max_pairs, warn=lambda _: None)
        clouds = _all_structured(found)
        description = recorded_description(recording)
    return RecordedClouds(clouds["left"], clouds.get("right", []), description, {} if two else clouds)


def finding_of(severity: str, said: str) -> Finding:
    """Return a method's warning or refusal as a finding; one without a code has the code "other"."""
    found = coded(said)
    return Finding(severity, found.code, found.sentence, found.remedy)


def _footprint(rig: Rig) -> np.ndarray:
    return np.eye(4) if rig.footprint_from_base is None else rig.footprint_from_base


def _clouds(clouds: Iterable[np.ndarray] | None, side: str) -> list[np.ndarray]:
    """Return the clouds of one lidar as a list. Raises `InputError` for one cloud in place of a list of them."""
    names = getattr(getattr(clouds, "dtype", None), "names", None)
    if isinstance(clouds, np.ndarray) and clouds.ndim < (2 if names else 3):
        raise InputError(f"{side}_clouds: is one cloud, not a list of them; give [cloud]")
    if not isinstance(clouds, Iterable) or isinstance(clouds, str | bytes):
        raise InputError(f"{side}_clouds: is {type(clouds).__name__}; expected a list of clouds")
    return list(clouds)


def _all_structured(clouds: Mapping[str, Iterable[np.ndarray]]) -> dict[str, list[np.ndarray]]:
    return {name: list(map(_structured, own)) for name, own in clouds.items()}


def _structured(columns: np.ndarray) -> np.ndarray:
    """Return the columns x, y, z (, ring, intensity) of a cloud as a structured array (N,)."""
    cloud = np.empty(len(columns), [(name, POINT_DTYPE[name]) for name in RETURN_COLUMNS[: columns.shape[1]]])
    for name, column in zip(RETURN_COLUMNS, columns.T, strict=False):
        cloud[name] = column
    return cloud
