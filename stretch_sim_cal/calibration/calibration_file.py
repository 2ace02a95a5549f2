"""The robot's `dual_lidar_calibration.yaml`: where it lies, what its entries mean, reading and writing it safely.

Keys and shapes are those of the published calibration; each entry of ours adds how it was found, how sure it is and
which convention its numbers follow. Keys and entries that are not ours survive an update.
"""

import copy
import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.calibration import backups
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.planes import Plane, floor_of_footprint, footprint_from_base
from stretch_sim_cal.geometry.transforms import check_rigid, error

FILE_NAME = "dual_lidar_calibration.yaml"
RIGHT_TO_LEFT = "right_to_left_transform"
FOOTPRINT = "floor_to_base_link_transform"  # despite its name it maps base_link into base_footprint
FOOTPRINT_ALIAS = "base_link_to_base_footprint_transform"  # the same under the name some versions write
FLOOR = "floor_model_params"

LEFT_POSE = "base_link_from_lidar_left"  # where the left lidar was taken to be when the floor was found
SEEN_COVARIANCE = "covariance_seen_from_lidars"  # of a floor: without the uncertainty of that pose

PLANE_CONVENTION = "normal . p + distance = 0"
OLD_PLANE_CONVENTION = "normal . p = distance"
RIGHT_TO_LEFT_CONVENTION = (
    "p_left = data * p_right; covariance over (tx, ty, tz, rx, ry, rz) in m and rad, true = exp(xi) * data, left frame"
)
FOOTPRINT_CONVENTION = (
    "p_base_footprint = data * p_base_link; covariance over (height at base_link's origin along the normal,"
    " tilt about base_link x, tilt about base_link y) in m and rad"
)
# Two entries of one file that were written together agree to rounding; beyond this they contradict each other.
AGREEMENT_M = 1e-4
AGREEMENT_RAD = 1e-4


def default_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return where this robot keeps its calibration file.

    `$HELLO_FLEET_PATH/$HELLO_FLEET_ID/calibration_dual_lidar/dual_lidar_calibration.yaml`; where either variable is
    unset or empty, `~/.stretch/calibration/dual_lidar_calibration.yaml`. The file need not exist.
    """
    environment = os.environ if environment is None else environment
    fleet_path, fleet_id = environment.get("HELLO_FLEET_PATH"), environment.get("HELLO_FLEET_ID")
    if fleet_path and fleet_id:
        return Path(fleet_path).expanduser() / fleet_id / "calibration_dual_lidar" / FILE_NAME
    return Path("~/.stretch/calibration").expanduser() / FILE_NAME


def default_robot_id(environment: Mapping[str, str] | None = None) -> str:
    """Return the robot's name for the entries: `$HELLO_FLEET_ID`, else "unknown"."""
    environment = os.environ if environment is None else environment
    return environment.get("HELLO_FLEET_ID") or "unknown"


@dataclass(frozen=True)
class Entry:
    """What an entry says about itself besides its data; None where it does not say."""

    robot_id: str | None = None
    timestamp: datetime.datetime | None = None
    fit_method: str | None = None
    rmse: float | None = None
    num_frames: int | None = None
    covariance: np.ndarray | None = None
    convention: str | None = None


@dataclass(frozen=True)
class CalibrationFile:
    """The content of a calibration file; immutable, the `with_...` methods return an updated copy.

    `right_to_left` (4, 4) maps the right lidar's frame into the left's, `footprint_from_base` (4, 4) maps base_link
    into base_footprint, `floor_plane` is the floor in base_link with `normal . p + offset = 0` and its normal up. Each
    is None where the file has no such entry. `contradictions` are one-line sentences; a file with any is not to be
    used. `data` is the whole mapping as it stands in the file.
    """

    right_to_left: np.ndarray | None = None
    footprint_from_base: np.ndarray | None = None
    floor_plane: Plane | None = None
    contradictions: tuple[str, ...] = ()
    entries: dict[str, Entry] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @classmethod
    def load(cls, path: str | Path) -> "CalibrationFile":
        """Read a calibration file.

        Raises `InputError` naming file and entry where it is missing, torn, not a mapping, where a transform is not
        rigid or of a wrong shape, or where a floor plane's sign cannot be known.
        """
        return cls.from_mapping(files.read_yaml(path), path)

    @classmethod
    def load_or_empty(cls, path: str | Path) -> "CalibrationFile":
        """Read a calibration file, or begin an empty one where there is none. Raises as `load` does otherwise."""
        return cls.load(path) if Path(path).exists() else cls(path=Path(path))

    @classmethod
    def from_mapping(cls, data: dict[str, Any], path: str | Path = "calibration") -> "CalibrationFile":
        """Interpret the mapping of a calibration file; `path` is for messages. Raises as `load` does."""
        contradictions: list[str] = []
        right_to_left = _transform(data, RIGHT_TO_LEFT, path)
        footprint = _footprint(data, path, contradictions)
        plane, footprint = _floor(data, footprint, path, contradictions)
        entries = {
            key: _entry(data[key], key, path)
            for key in (RIGHT_TO_LEFT, FOOTPRINT, FOOTPRINT_ALIAS, FLOOR)
            if key in data
        }
        return cls(right_to_left, footprint, plane, tuple(contradictions), entries, data, Path(path))

    def with_alignment(self, result, robot_id: str, timestamp: datetime.datetime | None = None) -> "CalibrationFile":
        """Return a copy that holds an `AlignmentResult`. Raises `Refused` where the result carries refusals."""
        _check_accepted(result, "alignment")
        described = _description(result, robot_id, timestamp)
        entry = {"data": _rows(result.right_to_left), **described, "convention": RIGHT_TO_LEFT_CONVENTION}
        return self.updated({RIGHT_TO_LEFT: entry})

    def with_floor(
        self, result, robot_id: str, timestamp: datetime.datetime | None = None,
        base_from_left: np.ndarray | None = None,
    ) -> "CalibrationFile":  # fmt: skip
        """Return a copy that holds a `FloorResult`, found with the left lidar at `base_from_left` (4, 4).

        Raises `Refused` where the result carries refusals.
        """
        _check_accepted(result, "floor")
        plane = result.plane.facing(np.array([0.0, 0.0, 1.0]))
        params = {
            "normal": [float(x) for x in plane.normal],
            "distance": float(plane.offset),
            "description": "Floor plane: normal [x,y,z] dot point + distance = 0",
        }

        def entry(data, convention):
            left = None if base_from_left is None else _rows(base_from_left)
            described = _description(result, robot_id, timestamp)
            return {"data": data, **described, "convention": convention, LEFT_POSE: left, SEEN_COVARIANCE: None}

        update = {FOOTPRINT: entry(_rows(result.footprint_from_base), FOOTPRINT_CONVENTION)}
        if FOOTPRINT_ALIAS in self.data:  # a reader that knows only this name must not keep the old floor
            update[FOOTPRINT_ALIAS] = entry(_rows(result.footprint_from_base), FOOTPRINT_CONVENTION)
        update[FLOOR] = entry(params, PLANE_CONVENTION)
        return self.updated(update)

    def save(self, path: str | Path | None = None) -> Path | None:
        """Write the file atomically, keeping what it replaces as a backup; return that backup, None where none was.

        `path` defaults to where it was loaded from. Raises `InputError` where it cannot be written.
        """
        target = Path(path or self.path or default_path())
        backup = backups.keep_backup(target)
        files.write_yaml(target, self.data)
        return backup

    def updated(self, entries: dict[str, Any]) -> "CalibrationFile":
        """Replace our part of the given entries, without the fields that are None; what else stood in them stays."""
        data = copy.deepcopy(self.data)
        for key, entry in entries.items():
            old = data.get(key)
            merged = {**old, **entry} if isinstance(old, dict) else entry
            data[key] = {name: value for name, value in merged.items() if value is not None or name not in entry}
        return CalibrationFile.from_mapping(data, self.path or FILE_NAME)


def rollback(path: str | Path) -> Path:
    """Bring back what the file held before its last save; see `backups.rollback`."""
    return backups.rollback(path)


def _check_accepted(result, what: str) -> None:
    if result.refusals:
        raise Refused(f"the {what} was refused and is not written: {'; '.join(result.refusals)}")


def _description(result, robot_id: str, timestamp: datetime.datetime | None) -> dict[str, Any]:
    when = timestamp or datetime.datetime.now()
    return {
        "robot_id": str(robot_id),
        "timestamp": when.isoformat(),
        "fit_method": str(result.method),
        "rmse": float(result.rmse),
        "num_frames": int(result.num_frames),
        "covariance": _rows(result.covariance),
    }


def _rows(matrix: np.ndarray) -> list[list[float]]:
    return [[float(x) for x in row] for row in matrix]


def _data(data: dict[str, Any], key: str, path) -> Any:
    entry = data[key]
    if not isinstance(entry, dict) or "data" not in entry:
        raise InputError(f"{path}: {key}: has no 'data'; the file is torn, calibrate again or roll back")
    return entry["data"]


def _transform(data: dict[str, Any], key: str, path) -> np.ndarray | None:
    if key not in data:
        return None
    value = _data(data, key, path)
    if not _is_table(value, 4):
        raise InputError(f"{path}: {key}: is not a 4x4 matrix of numbers")
    return check_rigid(value, f"{path}: {key}")


def _is_table(value: Any, size: int) -> bool:
    """Return whether `value` is `size` lists of `size` scalars; YAML can also hold lists that contain themselves."""
    return (
        isinstance(value, list)
        and len(value) == size
        and all(isinstance(row, list) and len(row) == size for row in value)
        and not any(isinstance(cell, list | dict) for row in value for cell in row)
    )


def _footprint(data: dict[str, Any], path, contradictions: list[str]) -> np.ndarray | None:
    """Return base_footprint_from_base_link under either of its names."""
    primary, alias = _transform(data, FOOTPRINT, path), _transform(data, FOOTPRINT_ALIAS, path)
    if primary is not None and alias is not None:
        distance, angle = error(primary, alias)
        if distance > AGREEMENT_M or angle > AGREEMENT_RAD:
            contradictions.append(
                f"{FOOTPRINT} and {FOOTPRINT_ALIAS} differ by {distance * 1e3:.2f} mm and {np.degrees(angle):.3f} deg"
            )
    return alias if primary is None else primary


def _floor(
    data: dict[str, Any], footprint: np.ndarray | None, path, contradictions: list[str]
) -> tuple[Plane | None, np.ndarray | None]:
    """Return the floor plane in base_link and base_footprint_from_base_link, each found from the other where missing.

    Published files write d of `normal . p = d` beside a text that says `normal . p + distance = 0`, so only an entry
    with a `convention` speaks for itself; the sign of any other is settled by the transform.
    """
    of_transform = None if footprint is None else floor_of_footprint(footprint)
    if FLOOR not in data:
        return of_transform, footprint
    normal, distance = _plane_numbers(_data(data, FLOOR, path), path)
    convention = data[FLOOR].get("convention")
    readings = {PLANE_CONVENTION: Plane(normal, distance), OLD_PLANE_CONVENTION: Plane(normal, -distance)}
    if convention is not None and convention not in readings:
        raise InputError(f"{path}: {FLOOR}: unknown convention '{convention}'; '{PLANE_CONVENTION}' is known")
    if of_transform is None:
        if convention is None:
            raise InputError(
                f"{path}: {FLOOR}: the sign of distance cannot be known without a convention entry or {FOOTPRINT};"
                " run the floor calibration again"
            )
        plane = readings[convention].facing(np.array([0.0, 0.0, 1.0]))
        return plane, footprint_from_base(plane)
    possible = list(readings.values()) if convention is None else [readings[convention]]
    height, tilt = min(_difference(of_transform, plane) for plane in possible)
    if height > AGREEMENT_M or tilt > AGREEMENT_RAD:
        contradictions.append(
            f"{FLOOR} and the footprint transform name floors {height * 1e3:.2f} mm and "
            f"{np.degrees(tilt):.3f} deg apart"
        )
    return of_transform, footprint


def _difference(first: Plane, second: Plane) -> tuple[float, float]:
    """Return how far two planes are apart: at the origin along the normal (m), and the angle between normals (rad)."""
    second = second.facing(first.normal)
    angle = np.arctan2(np.linalg.norm(np.cross(first.normal, second.normal)), first.normal @ second.normal)
    return abs(first.offset - second.offset), float(angle)


def _plane_numbers(params: Any, path) -> tuple[np.ndarray, float]:
    try:
        normal = np.array([float(x) for x in params["normal"]])
        distance = float(params["distance"])
    except (KeyError, TypeError, ValueError) as problem:
        raise InputError(f"{path}: {FLOOR}: needs 'normal' (three numbers) and 'distance' (a number)") from problem
    if normal.shape != (3,) or not np.isfinite([*normal, distance]).all():
        raise InputError(f"{path}: {FLOOR}: needs 'normal' (three finite numbers) and 'distance' (a finite number)")
    length = float(np.linalg.norm(normal))
    if abs(length - 1.0) > 1e-4:
        raise InputError(f"{path}: {FLOOR}: 'normal' has length {length:.4g}, not 1")
    return normal / length, distance


def _entry(raw: dict[str, Any], key: str, path) -> Entry:
    covariance = raw.get("covariance")
    if covariance is not None:
        size = 6 if key == RIGHT_TO_LEFT else 3
        if not _is_table(covariance, size):
            raise InputError(f"{path}: {key}: covariance: is not a {size}x{size} matrix of numbers")
        covariance = _numbers(covariance, (size, size), f"{path}: {key}: covariance")
    rmse, num_frames = (None if raw.get(name) is None else raw[name] for name in ("rmse", "num_frames"))
    return Entry(
        robot_id=None if raw.get("robot_id") is None else str(raw["robot_id"]),
        timestamp=_timestamp(raw.get("timestamp"), f"{path}: {key}: timestamp"),
        fit_method=None if raw.get("fit_method") is None else str(raw["fit_method"]),
        rmse=None if rmse is None else float(_numbers(rmse, (), f"{path}: {key}: rmse")),
        num_frames=None if num_frames is None else int(_numbers(num_frames, (), f"{path}: {key}: num_frames")),
        covariance=covariance,
        convention=None if raw.get("convention") is None else str(raw["convention"]),
    )


def _numbers(value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    try:
        numbers = np.array(float(value) if shape == () else value, dtype=float)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{name}: is not made of numbers") from problem
    if numbers.shape != shape or not np.isfinite(numbers).all():
        raise InputError(f"{name}: holds what is not a finite number")
    return numbers


def _timestamp(value: Any, name: str) -> datetime.datetime | None:
    if value is None or isinstance(value, datetime.datetime):
        return value
    try:
        return datetime.datetime.fromisoformat(str(value))
    except ValueError as problem:
        raise InputError(f"{name}: '{value}' is not an ISO date and time") from problem
