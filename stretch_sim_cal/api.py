"""The package from Python: arrays in, a calibration out. Needs no ROS.

    import stretch_sim_cal as cal

    rig = cal.Rig.from_urdf("robot.urdf", sensor="jt128")
    result = cal.calibrate(rig, left_clouds, right_clouds)      # or cal.calibrate(rig, cal.open_recording(path))
    result.left_from_right, result.covariance, result.findings
    result.save("calibration.yaml")

Transforms are named target_from_source, lengths are in m, angles in rad (see `geometry/transforms.py`).
"""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stretch_sim_cal.calibration.alignment.planes import PlaneAlignment
from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_robot_id
from stretch_sim_cal.calibration.finding import Finding as CodedFinding
from stretch_sim_cal.calibration.findings import error_in_units
from stretch_sim_cal.calibration.floor.support_method import SupportFloor
from stretch_sim_cal.calibration.mounts.file import with_floor
from stretch_sim_cal.calibration.observations import path_beside
from stretch_sim_cal.calibration.results import AlignmentResult, FloorResult
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings
from stretch_sim_cal.calibration.summaries import alignment_lines, alignment_numbers, floor_lines, floor_numbers
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import SIDES, check_rigid, inverse
from stretch_sim_cal.recording.rosbag import Recording
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import near
from stretch_sim_cal.robot.profile import RobotProfile, profile_called, stretch_profile
from stretch_sim_cal.sensor.points import POINT_DTYPE, RETURN_COLUMNS
from stretch_sim_cal.sensor.sensor import Sensors, sensor_called
from stretch_sim_cal.sensor.unit import SCALARS

__all__ = ["Finding", "RecordedClouds", "Result", "Rig", "SensorError", "calibrate", "open_recording"]


@dataclass(frozen=True, eq=False)
class Rig:
    """Two lidars on a robot, as they are described: the start of a calibration.

    `base_from_left` and `base_from_right` (4, 4) are the lidars' nominal poses in base_link, `footprint_from_base` (4,
    4) maps base_link into base_footprint, which lies on the floor; if it is None, the floor is searched at base_link's
    own origin. `sensor` is the kind of both lidars, or a tuple of the left one's and the right one's; if it is None, a
    spinning lidar of unknown make. Raises `InputError` if one of them is not a rigid transform.
    """

    base_from_left: np.ndarray
    base_from_right: np.ndarray
    footprint_from_base: np.ndarray | None = None
    sensor: Sensors = None

    def __post_init__(self) -> None:
        for name in ("base_from_left", "base_from_right", "footprint_from_base"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_rigid(getattr(self, name), name))

    @classmethod
    def from_urdf(
        cls, source: str | Path | None, sensor: str | Path | Sensors = None,
        left: str | None = None, right: str | None = None, base: str | None = None, footprint: str | None = None,
        robot: str | Path | None = None,
    ) -> "Rig":  # fmt: skip
        """Return the rig that a URDF or xacro file, or the text of a URDF, describes; None is refused.

        `sensor` is the name of a sensor file in `config/` ("jt128"), a path to one or to a unit file, "LEFT,RIGHT" for
        lidars of different kinds, or as of a `Rig`. `left`, `right`, `base` and `footprint` are links; by default they
        are called as in the profile `robot` (a name in `config/robots/` or a path), of the Stretch if none is named:
        older names of its lidars are found as well.
        `footprint` may be absent. Raises `InputError` naming file and link.
        """
        if source is None:
            raise InputError("no URDF: the recording has no /robot_description; give the robot's URDF file")
        model = load_model(source)
        where = (
            source if isinstance(source, Path) or not source.lstrip("\ufeff \t\r\n").startswith("<") else "URDF text"
        )
        profile: RobotProfile = profile_called(robot)
        older = {lidar.frame: lidar.older_frame for lidar in profile.lidars.values()}
        links = []
        frames = profile.lidar_frames
        for name in (left or frames[0], right or frames[1], base or profile.base_frame):
            known = [link for link in (name, older.get(name)) if link is not None and link in model.links]
            if not known:
                raise InputError(f"{where}: has no link '{name}'{near(name, model.links)}; give the name that it has")
            links.append(known[0])
        root_from_link = link_transforms(model, {})
        base_from_root = inverse(root_from_link[links[2]])
        footprint_from_base = None
        if (floor := footprint or profile.footprint_frame) in model.links:
            footprint_from_base = inverse(base_from_root @ root_from_link[floor])
        return cls(
            base_from_root @ root_from_link[links[0]], base_from_root @ root_from_link[links[1]], footprint_from_base,
            sensor_called(sensor) if isinstance(sensor, str | Path) else sensor,
        )  # fmt: skip

    @property
    def left_from_right(self) -> np.ndarray:
        """The nominal transform (4, 4) from the right lidar's frame into the left's."""
        left_from_right: np.ndarray = inverse(self.base_from_left) @ self.base_from_right
        return left_from_right


@dataclass(frozen=True)
class Finding:
    """Something that a user should know of a result.

    `severity` is "error" (the result is refused) or "warning"; `code` names the kind of finding and stays the same from
    release to release; `sentence` is the finding, `remedy` the action to take ("" if none is needed).
    """

    severity: str
    code: str
    sentence: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.severity} {self.code}: {self.sentence}" + (f"; {self.remedy}" if self.remedy else "")


class SensorError(NamedTuple):
    """An estimated error of one lidar, by the name it has in `sensor/unit.py`: in m, rad, or as a ratio."""

    value: float
    standard_deviation: float


class RecordedClouds(NamedTuple):
    """Pairs of clouds from a recording, each in its own lidar's frame, and the robot's URDF if it was recorded.

    The clouds are structured arrays (N,) with x, y, z and, if the recording has them, intensity and ring.
    """

    left_clouds: list[np.ndarray]
    right_clouds: list[np.ndarray]
    description: str | None


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The calibration of a rig, and whether the data supports it.

    `alignment` and `floor` are the two stages' own results; `floor` is None if the alignment was refused, or the floor
    was not asked for. `floor.plane` is the floor in base_link, `floor.covariance` (3, 3) is over (height, tilt about x,
    tilt about y), `floor.footprint_from_base` (4, 4) puts base_footprint on it.
    """

    rig: Rig
    alignment: AlignmentResult
    floor: FloorResult | None = None

    @property
    def left_from_right(self) -> np.ndarray:
        """The transform (4, 4) that maps the right lidar's points into the left lidar's frame."""
        return self.alignment.right_to_left

    @property
    def covariance(self) -> np.ndarray:
        """The covariance (6, 6) of `left_from_right` over (tx, ty, tz, rx, ry, rz), `true =
        exp(xi) @ left_from_right`."""
        return self.alignment.covariance

    @property
    def accepted(self) -> bool:
        """Whether the data supports all that was asked for."""
        return self.alignment.accepted and (self.floor is None or self.floor.accepted)

    @property
    def findings(self) -> list[Finding]:
        """The reasons of refusals, and warnings; errors come first."""
        found = []
        for severity, name in (("error", "refusals"), ("warning", "warnings")):
            for stage in filter(None, (self.alignment, self.floor)):
                found += [finding_of(severity, sentence) for sentence in getattr(stage, name)]
        return list(dict.fromkeys(found))

    @property
    def sensor_errors(self) -> dict[str, dict[str, SensorError]]:
        """The lidars' own errors as the last stage estimates them, by side ("left", "right") and name."""
        numbers = (self.floor if self.floor is not None and self.floor.diagnostics else self.alignment).diagnostics
        return {
            side: {
                name: SensorError(numbers[f"{name}_{side}"], numbers[f"{name}_{side}_std"])
                for name in SCALARS
                if f"{name}_{side}" in numbers
            }
            for side in SIDES
        }

    def save(self, path: str | Path, robot_id: str | None = None) -> None:
        """Write the accepted stages to a calibration file (docs/calibration_file.md), and their observations beside it.

        Other entries of an existing file are kept, and the old file as a backup; `robot_id` is $HELLO_FLEET_ID by
        default. Raises `Refused` if no stage was accepted, `InputError` if the file cannot be written.
        """
        path, robot_id = Path(path).expanduser(), robot_id or default_robot_id()
        if not self.alignment.accepted:
            raise Refused(f"{path}: not written: {'; '.join(self.alignment.refusals)}")
        file = CalibrationFile.load_or_empty(path).with_alignment(self.alignment, robot_id)
        if self.floor is not None and self.floor.accepted:
            file = with_floor(file, self.floor, robot_id, self.rig.base_from_left)
        if self.alignment.observations is not None:
            # They say of which alignment they are, so they are harmless if the calibration file
            # is not replaced after all.
            self.alignment.observations.save(path_beside(path))
        file.save(path)

    def __str__(self) -> str:
        lines = alignment_lines(
            self.alignment, alignment_numbers(self.alignment, self.rig.left_from_right, self.rig.base_from_left)
        )
        if self.floor is not None:
            lines += floor_lines(self.floor, floor_numbers(self.floor, _footprint(self.rig)))
        for side, errors in self.sensor_errors.items():
            clear = {name: one for name, one in errors.items() if abs(one.value) > 2.0 * one.standard_deviation}
            lines += [f"{side} lidar: {name} {error_in_units(name, *one)}" for name, one in clear.items()]
        return "\n".join([*lines, *map(str, self.findings), "accepted" if self.accepted else "refused"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the result as a table, for notebooks."""
        rows = [("verdict", "accepted" if self.accepted else "<b>refused</b>")]
        deviations = np.sqrt(np.diag(self.covariance))
        numbers = alignment_numbers(self.alignment, self.rig.left_from_right, self.rig.base_from_left)
        for axis, value, deviation in zip("xyz", numbers["xyz"], deviations[:3], strict=True):
            rows.append((f"left from right, {axis}", f"{1e3 * value:.2f} &plusmn; {1e3 * deviation:.2f} mm"))
        for axis, value, deviation in zip("xyz", numbers["rpy_deg"], np.degrees(deviations[3:]), strict=True):
            rows.append((f"left from right, about {axis}", f"{value:.4f} &plusmn; {deviation:.4f} deg"))
        if self.floor is not None:
            found = floor_numbers(self.floor, _footprint(self.rig))
            height, deviation = found["height_mm"], found["height_standard_deviation_mm"]
            rows.append(("base_link over the floor", f"{height:.2f} &plusmn; {deviation:.2f} mm"))
            for axis, tilt, deviation in zip(
                "xy", found["tilt_deg"], found["tilt_standard_deviation_deg"], strict=True
            ):
                rows.append((f"floor's tilt about {axis}", f"{tilt:.4f} &plusmn; {deviation:.4f} deg"))
        for side, errors in self.sensor_errors.items():
            for name, one in errors.items():
                if abs(one.value) > 2.0 * one.standard_deviation:
                    rows.append(
                        (f"{side} lidar, {name}", html.escape(error_in_units(name, *one)).replace("+-", "&plusmn;"))
                    )
        rows += [(f"{found.severity}: {found.code}", html.escape(_sentence(found))) for found in self.findings]
        body = "".join(f"<tr><th style='text-align:left'>{name}</th><td>{value}</td></tr>" for name, value in rows)
        return f"<table>{body}</table>"


def calibrate(
    rig: Rig, left_clouds: Iterable[np.ndarray] | RecordedClouds, right_clouds: Iterable[np.ndarray] | None = None,
    *, floor: bool = True,
) -> Result:  # fmt: skip
    """Return the calibration of two lidars from pairs of clouds, taken while robot and scene stood still.

    `left_clouds` and `right_clouds` hold one cloud per pair, each in its own lidar's frame: points (N, 3), or
    structured arrays (N,) with x, y, z and perhaps ring and intensity, as drivers publish them. With rings and the
    rig's sensor the lidars' own errors are estimated by channel. `left_clouds` may be the result of `open_recording`.
    The floor is found with the alignment's observations, if `floor` asks for it. Raises `InputError` for anything that
    is no cloud; data that does not support a result ends in `findings`.
    """
    if isinstance(left_clouds, RecordedClouds):
        if right_clouds is not None:
            raise InputError("right_clouds: a recording has the clouds of both lidars; give it alone")
        recorded = left_clouds
        left_clouds, right_clouds = recorded.left_clouds, recorded.right_clouds
    left, right = _clouds(left_clouds, "left"), _clouds(right_clouds, "right")
    if len(left) != len(right):
        raise InputError(
            f"{len(left)} left and {len(right)} right clouds: give as many of one as of the other, in pairs"
        )
    alignment = PlaneAlignment(
        rig.left_from_right, AlignmentSettings(base_from_left=rig.base_from_left, sensor=rig.sensor)
    )
    result = Result(rig, _solved(alignment, left, right))
    if not (floor and result.accepted):
        return result
    settings = FloorSettings(observations=result.alignment.known, sensor=rig.sensor)
    method = SupportFloor(rig.base_from_left, result.left_from_right, _footprint(rig), settings)
    return replace(result, floor=_solved(method, left, right))


def open_recording(
    path: str | Path, left_topic: str = "/lidar_points_left", right_topic: str = "/lidar_points_right",
    max_time_difference: float = 0.05, max_pairs: int = 50,
) -> RecordedClouds:  # fmt: skip
    """Return the first `max_pairs` pairs of clouds of a rosbag2 recording (a folder, or an .mcap or .db3 file).

    `max_time_difference` (s) is how far apart the stamps of a pair may be. Raises `InputError` if the recording is
    torn, lacks a topic, or has no pair.
    """
    from stretch_sim_cal.recording.topics import RecordedPairs, recorded_description

    with Recording(path) as recording:
        frames = dict(zip(SIDES, stretch_profile().lidar_frames, strict=True))
        topics = {"left": left_topic, "right": right_topic}
        # The frames' names are only checked for swapped topics: the rig says where the lidars are.
        pairs = RecordedPairs(recording, topics, frames, max_time_difference, max_pairs, warn=lambda _: None)
        left, right = map(list, zip(*(map(_structured, pair) for pair in pairs), strict=True))
        return RecordedClouds(left, right, recorded_description(recording))


def finding_of(severity: str, said: str) -> Finding:
    """Return a method's warning or refusal as a finding; one without a code has the code "other"."""
    if isinstance(said, CodedFinding):
        return Finding(severity, said.code, said.sentence, said.remedy)
    return Finding(severity, "other", said)


def _sentence(finding: Finding) -> str:
    return finding.sentence + (f"; {finding.remedy}" if finding.remedy else "")


def _footprint(rig: Rig) -> np.ndarray:
    return np.eye(4) if rig.footprint_from_base is None else rig.footprint_from_base


def _clouds(clouds: Iterable[np.ndarray] | None, side: str) -> list[np.ndarray]:
    """Return the clouds of one lidar as a list. Raises `InputError` for one cloud in place of a list of them."""
    names = getattr(getattr(clouds, "dtype", None), "names", None)
    if isinstance(clouds, np.ndarray) and clouds.ndim < (2 if names else 3):
        raise InputError(f"{side}_clouds: is one cloud, not a list of them; give [cloud]")
    if not isinstance(clouds, Iterable) or isinstance(clouds, str | bytes):
        raise InputError(f"{side}_clouds: is {type(clouds).__name__}; a list of clouds was expected")
    return list(clouds)


def _structured(columns: np.ndarray) -> np.ndarray:
    """Return the columns x, y, z (, ring, intensity) of a cloud as a structured array (N,)."""
    cloud = np.empty(len(columns), [(name, POINT_DTYPE[name]) for name in RETURN_COLUMNS[: columns.shape[1]]])
    for name, column in zip(RETURN_COLUMNS, columns.T, strict=False):
        cloud[name] = column
    return cloud


def _solved(method: Any, left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> Any:
    for pair in zip(left, right, strict=True):
        method.add(*pair)
    return method.solve()
