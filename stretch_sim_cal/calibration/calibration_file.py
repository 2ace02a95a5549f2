"""The robot's `dual_lidar_calibration.yaml`: its path, and reading and writing it safely.

Keys and shapes are those of the published calibration. Our entries also have the method, the covariance and the
convention of their numbers. Unknown keys and entries survive an update. Functions that read entries raise `InputError`
with file and entry if a transform is not rigid or of a wrong shape, if values are not numbers, or if a floor plane's
sign is ambiguous.
"""

import copy
import datetime
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.planes import UP, Plane, floor_error, floor_of_footprint, footprint_from_base
from stretch_sim_cal.geometry.transforms import check_rigid, error

RIGHT_TO_LEFT = "right_to_left_transform"
TO_LEFT = "_to_left_transform"  # after the name of a lidar beyond two: its transform, as right_to_left_transform
COVARIANCE_WITH_RIGHT = "covariance_with_right"  # of such an entry: between its twist and the right lidar's
FOOTPRINT = "floor_to_base_link_transform"  # despite its name it maps base_link into base_footprint
FOOTPRINT_ALIAS = "base_link_to_base_footprint_transform"  # the same under the name some versions write
FLOOR = "floor_model_params"
FLOORS = (FOOTPRINT, FOOTPRINT_ALIAS, FLOOR)  # the entries of one floor
ARRAY = "array"  # the method of lidars that were aligned in one estimate
ONE_LIDAR = "one_lidar"  # the method of an alignment of a robot that has one

MOUNTS = "lidar_mounts"  # by the arm: the lidars in base_link
WHEELS = "base_footprint_from_lidars"  # by driving: the lidars against the wheels

LEFT_POSE = "base_link_from_lidar_left"  # the left lidar's pose by which the floor was estimated
SEEN_COVARIANCE = "covariance_seen_from_lidars"  # of a floor: without the uncertainty of that pose
DIGEST = "digest"  # of an entry: those of its lists and mappings when they were written, to notice edits

PLANE_CONVENTION = "normal . p + distance = 0"
OLD_PLANE_CONVENTION = "normal . p = distance"
PLANE_DESCRIPTION = (
    "Floor plane in base_link: normal [x,y,z] dot point + distance = 0; distance is positive if the floor is below the"
    " origin of base_link. Files of the published tool have the opposite sign and no convention entry."
)
RIGHT_TO_LEFT_CONVENTION = (
    "p_left = data * p_right; covariance over (tx, ty, tz, rx, ry, rz) in m and rad, true = exp(xi) * data, left frame"
)
FOOTPRINT_CONVENTION = (
    "p_base_footprint = data * p_base_link; covariance over (height at base_link's origin along the normal,"
    " tilt about base_link x, tilt about base_link y) in m and rad"
)
WHEELS_CONVENTION = (
    "p_base_footprint = data * p_lidar, base_footprint on the floor at the centre of rotation, x along the direction of"
    " driving; covariance over (tx, ty, tz, rx, ry, rz) of every lidar in m and rad, true = exp(xi) * data"
)
# Two entries of one file that were written together agree to rounding; beyond this they contradict each other.
AGREEMENT_M = 1e-4
AGREEMENT_RAD = 1e-4
FILE_NAME = "dual_lidar_calibration.yaml"
VERSION_KEY, VERSION = "version", 1  # of the file's format; files without are of the published tool, or older
ROBOT_PROFILE = "robot_profile"  # name or path of the profile by which another robot than the Stretch was calibrated


def default_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return `$HELLO_FLEET_PATH/$HELLO_FLEET_ID/calibration_dual_lidar/dual_lidar_calibration.yaml`; if either variable
    is unset or empty, `~/.stretch/calibration/dual_lidar_calibration.yaml`. The file need not exist."""
    environment = os.environ if environment is None else environment
    fleet_path, fleet_id = environment.get("HELLO_FLEET_PATH"), environment.get("HELLO_FLEET_ID")
    if fleet_path and fleet_id:
        return Path(fleet_path).expanduser() / fleet_id / "calibration_dual_lidar" / FILE_NAME
    return Path("~/.stretch/calibration").expanduser() / FILE_NAME


def named_or_default(name: str) -> Path:
    """Return the path of the calibration file that a parameter names, which no shell has expanded, or the default."""
    return Path(name).expanduser() if name else default_path()


def default_robot_id(environment: Mapping[str, str] | None = None) -> str:
    """Return the robot's name for the entries: `$HELLO_FLEET_ID`, else "unknown"."""
    return (os.environ if environment is None else environment).get("HELLO_FLEET_ID") or "unknown"


@dataclass(frozen=True)
class Entry:
    """The fields of an entry besides its data; None if it has none. Of mounts and wheels only the robot."""

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

    `to_left` (4, 4) maps the frame of each other lidar, by name, the right one first, into the left one's;
    `footprint_from_base` (4, 4) maps base_link into base_footprint; `floor_plane` is the floor in base_link with
    `normal . p + offset = 0` and its normal up. Both are None if the file has no such entry. `footprint_from_lidar` are
    the lidars' poses (4, 4) against the wheels, by name. `contradictions` are one-line sentences; a file with any must
    not be used. `data` is the whole mapping of the file.
    """

    to_left: dict[str, np.ndarray] = field(default_factory=dict)
    footprint_from_base: np.ndarray | None = None
    floor_plane: Plane | None = None
    contradictions: tuple[str, ...] = ()
    entries: dict[str, Entry] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None
    footprint_from_lidar: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def right_to_left(self) -> np.ndarray | None:
        """The transform of the right lidar; None if the file has none."""
        return self.to_left.get("right")

    @property
    def aligned(self) -> bool:
        """Whether the file has an alignment; that of a robot with one lidar has no transforms."""
        return RIGHT_TO_LEFT in self.entries

    @property
    def robot_profile(self) -> str | None:
        """Name or path of the robot's profile, None for the Stretch's."""
        named = self.data.get(ROBOT_PROFILE)
        return None if named is None else str(named)

    def of_robot(self, profile: str | None) -> "CalibrationFile":
        """Return a copy with another `robot_profile`."""
        others = {key: value for key, value in self.data.items() if key != ROBOT_PROFILE}
        return replace(self, data=others if profile is None else {ROBOT_PROFILE: profile} | others)

    @property
    def floor_key(self) -> str:
        """The key of the entry with the floor's covariance and origin: the first of `FLOORS` that the file has."""
        return next((key for key in FLOORS if key in self.entries), FLOOR)

    def lidars_at(self, left: np.ndarray) -> dict[str, np.ndarray]:
        """Return the poses (4, 4) of all lidars by name, with the left one at `left` (4, 4)."""
        return {"left": left} | {name: left @ pose for name, pose in self.to_left.items()}

    @classmethod
    def load(cls, path: str | Path) -> "CalibrationFile":
        """Read a calibration file. Raises `InputError` with file and entry if it is missing, truncated, not a mapping,
        of a newer version, of an unknown convention, or an entry is invalid."""
        return cls.from_mapping(files.read_yaml(path), path)

    @classmethod
    def load_or_empty(cls, path: str | Path) -> "CalibrationFile":
        """As `load`, with an empty file if there is none."""
        return cls.load(path) if Path(path).exists() else cls(path=Path(path))

    @classmethod
    def update(
        cls, path: str | Path, change: Callable[["CalibrationFile"], "CalibrationFile"],
        beside: tuple[Path, Callable[[BinaryIO], object]] | None = None,
    ) -> Path | None:  # fmt: skip
        """Apply `change` to the file under its lock, and return the backup. A file `beside` it, with its writer, is
        replaced together with it or not at all. Raises as `load` does, and `InputError` for what cannot be written."""
        with files.locked(path), ExitStack() as stack:
            file = change(cls.load_or_empty(path))
            if beside is not None:
                stack.enter_context(files.staged(*beside))
            backup = files.keep_backup(path)
            files.write_yaml(path, {VERSION_KEY: VERSION} | file.data)
            return backup

    @classmethod
    def from_mapping(cls, data: dict[str, Any], path: str | Path = "calibration") -> "CalibrationFile":
        """Interpret the mapping of a calibration file; `path` is for messages. Raises as `load` does."""
        version = data.get(VERSION_KEY, VERSION)
        if not isinstance(version, int) or isinstance(version, bool) or not 0 < version <= VERSION:
            remedy = f"supported is {VERSION}: update this package or roll back"
            raise InputError(f"{path}: {VERSION_KEY}: is {str(version)[:40]!r}, {remedy}")
        contradictions: list[str] = []
        lidars = sorted((key for key in data if str(key).endswith(TO_LEFT)), key=RIGHT_TO_LEFT.__ne__)
        to_left = {key.removesuffix(TO_LEFT): transform_of(data, key, path) for key in lidars}
        footprint = footprint_of(data, path, contradictions)
        plane, footprint = floor_of(data, footprint, path, contradictions)
        entries = {key: entry_of(data[key], key, path) for key in (*lidars, *FLOORS) if key in data}
        if RIGHT_TO_LEFT in entries and entries[RIGHT_TO_LEFT].fit_method == ONE_LIDAR:
            del to_left["right"]
        for key in entries if VERSION_KEY in data else ():
            # Entries of the published tool have no covariance, and those written by hand may end with their data.
            if "covariance" in data[key] and "convention" not in data[key]:
                raise InputError(f"{path}: {key}: the file is cut off in it; restore the file, or calibrate again")
        wheels = poses_of(data, WHEELS, path)[0] if WHEELS in data else {}
        if wheels:
            check_convention(data[WHEELS].get("convention"), [WHEELS_CONVENTION], f"{path}: {WHEELS}")
        for key in (MOUNTS, WHEELS):
            if isinstance(data.get(key), dict):  # of these, the rest is read where it is needed
                entries[key] = entry_of({"robot_id": data[key].get("robot_id")}, key, path)
        return cls(to_left, footprint, plane, tuple(contradictions), entries, data, Path(path), wheels)

    def with_alignment(self, result, robot_id: str, timestamp: datetime.datetime | None = None) -> "CalibrationFile":
        """Return a copy that holds an `AlignmentResult`. Raises `Refused` if the result carries refusals."""
        _check_accepted(result, "alignment")
        data = result.right_to_left.tolist()
        return self.updated({RIGHT_TO_LEFT: entry_for(result, data, RIGHT_TO_LEFT_CONVENTION, robot_id, timestamp)})

    def with_further(self, name: str, result, covariance_with_right: np.ndarray, robot_id: str) -> "CalibrationFile":
        """Return a copy that holds a lidar beyond two by its `name`: an `AlignmentResult` in which it is the right one,
        and the covariance (6, 6) between its twist and that of the right lidar."""
        entry = entry_for(result, result.right_to_left.tolist(), convention_of(name), robot_id)
        return self.updated({f"{name}{TO_LEFT}": entry | {COVARIANCE_WITH_RIGHT: covariance_with_right.tolist()}})

    def covariance_with_right(self, name: str) -> np.ndarray | None:
        """Return the covariance (6, 6) between the twists of a lidar beyond two and of the right one, None without."""
        key = f"{name}{TO_LEFT}"
        if (value := self.data[key].get(COVARIANCE_WITH_RIGHT)) is None:
            return None
        return numbers_of(value, (6, 6), f"{self.path}: {key}: {COVARIANCE_WITH_RIGHT}")

    def seen_covariance(self, key: str) -> np.ndarray | None:
        """Return the covariance of an entry, of a floor (3, 3) that seen from the left lidar, without the uncertainty
        of its pose; None if there is none."""
        if key not in self.entries or (value := self.data[key].get(SEEN_COVARIANCE)) is None:
            return self.entries.get(key, Entry()).covariance
        return numbers_of(value, (3, 3), f"{self.path}: {key}: {SEEN_COVARIANCE}")

    def covariance_to_left(self, names: Sequence[str]) -> np.ndarray | None:
        """Return the covariance (6 n, 6 n) over the twists of the transforms of these lidars to the left one, None if
        an entry lacks a part of it. The errors of lidars beyond two, given the right one's, are independent."""
        diagonal = [self.entries[f"{name}{TO_LEFT}"].covariance for name in names]
        of_right = self.entries[RIGHT_TO_LEFT].covariance if RIGHT_TO_LEFT in self.entries else None
        with_right = [of_right if name == "right" else self.covariance_with_right(name) for name in names]
        if any(each is None for each in (*diagonal, *with_right, of_right)):
            return None
        gains = np.vstack([np.zeros((0, 6)), *with_right]) @ np.linalg.pinv(of_right, hermitian=True)
        covariance = gains @ of_right @ gains.T
        for number, block in enumerate(diagonal):
            covariance[6 * number :, 6 * number :][:6, :6] = block
        return covariance

    def with_floor(
        self, result, robot_id: str, timestamp: datetime.datetime | None = None,
        base_from_left: np.ndarray | None = None,
    ) -> "CalibrationFile":  # fmt: skip
        """Return a copy that holds a `FloorResult` with the left lidar at `base_from_left` (4, 4). Raises `Refused` if
        the result carries refusals."""
        _check_accepted(result, "floor")
        by_left = {LEFT_POSE: None if base_from_left is None else base_from_left.tolist(), SEEN_COVARIANCE: None}
        # A reader that knows only the alias must not keep the old floor.
        footprints = [FOOTPRINT, *([FOOTPRINT_ALIAS] if FOOTPRINT_ALIAS in self.data else [])]
        forms = {key: (result.footprint_from_base.tolist(), FOOTPRINT_CONVENTION) for key in footprints}
        forms[FLOOR] = plane_entry(result.plane.facing(UP)), PLANE_CONVENTION
        entries = {key: entry_for(result, *form, robot_id, timestamp) | by_left for key, form in forms.items()}
        return self.updated(entries)

    def with_wheels(self, result, num_frames: int, robot_id: str) -> "CalibrationFile":
        """Return a copy that holds the `Wheels` of a robot that drove. Raises `Refused` if they carry refusals."""
        _check_accepted(result, "lidar poses relative to the wheels")
        entry = {
            "data": {name: pose.tolist() for name, pose in result.footprint_from_lidar.items()},
            "robot_id": str(robot_id), "timestamp": datetime.datetime.now().isoformat(), "fit_method": "driving",
            "num_stations": len(result.stations), "num_frames": int(num_frames),
            "odometry": {name: float(value) for name, value in result.odometry.items()} | {"slip": float(result.slip)},
            "covariance": result.covariance.tolist(), "convention": WHEELS_CONVENTION,
        }  # fmt: skip
        return self.updated({WHEELS: entry})

    @property
    def edited(self) -> list[str]:
        """The fields that no longer have their digests, as "entry: field" or "entry: data.lidar"."""
        entries = {key: entry for key, entry in self.data.items() if isinstance(entry, dict)}
        return [
            f"{key}: {name}" for key, entry in entries.items()
            for name, digest in _known_digests(entry).items() if _digests(entry).get(name) != digest
        ]  # fmt: skip

    def updated(self, entries: dict[str, Any]) -> "CalibrationFile":
        """Replace our fields of the given entries, and remove those that are None; other fields stay, also their
        digests."""
        data = copy.deepcopy(self.data)
        for key, entry in entries.items():
            old = data.get(key)
            kept = _known_digests(old) if isinstance(old, dict) else {}
            kept = {name: digest for name, digest in kept.items() if str(name).partition(".")[0] not in entry}
            entry = entry | {DIGEST: kept | _digests(entry) or None}
            merged = {**old, **entry} if isinstance(old, dict) else entry
            data[key] = {name: value for name, value in merged.items() if value is not None or name not in entry}
        return CalibrationFile.from_mapping(data, self.path or FILE_NAME)


def _known_digests(entry: dict[str, Any]) -> dict[str, Any]:
    known = entry.get(DIGEST)
    return known if isinstance(known, dict) else {}


def _digests(entry: dict[str, Any]) -> dict[str, str]:
    """Return the digests of an entry's lists and mappings by name; of lists by lidar, one for each, "data.left"."""
    digests = {}
    for name, value in entry.items():
        if name == DIGEST or not isinstance(value, list | dict):
            continue
        by_lidar = isinstance(value, dict) and all(isinstance(each, list) for each in value.values())
        parts = {f"{name}.{lidar}": each for lidar, each in value.items()} if by_lidar else {name: value}
        for part, each in parts.items():
            text = json.dumps(each, sort_keys=True, default=str)
            digests[part] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return digests


def calibrated_frame(name: str) -> str:
    """Return the frame in which a lidar beyond two, by its name, is calibrated."""
    return f"lidar_{name}_calibrated"


def _data(data: dict[str, Any], key: str, path) -> Any:
    entry = data[key]
    if not isinstance(entry, dict) or "data" not in entry:
        raise InputError(f"{path}: {key}: has no 'data'; the file is incomplete, calibrate again or roll back")
    return entry["data"]


def transform_of(data: dict[str, Any], key: str, path) -> np.ndarray | None:
    """Return the transform (4, 4) of an entry, None if there is none."""
    if key not in data:
        return None
    return check_rigid(_data(data, key, path), f"{path}: {key}")


def footprint_of(data: dict[str, Any], path, contradictions: list[str]) -> np.ndarray | None:
    """Return base_footprint_from_base_link under either of its names."""
    primary, alias = transform_of(data, FOOTPRINT, path), transform_of(data, FOOTPRINT_ALIAS, path)
    if primary is not None and alias is not None:
        distance, angle = error(primary, alias)
        if distance > AGREEMENT_M or angle > AGREEMENT_RAD:
            apart = f"{distance * 1e3:.2f} mm and {np.degrees(angle):.3f} deg"
            contradictions.append(f"{FOOTPRINT} and {FOOTPRINT_ALIAS} differ by {apart}")
    return alias if primary is None else primary


def floor_of(
    data: dict[str, Any], footprint: np.ndarray | None, path, contradictions: list[str]
) -> tuple[Plane | None, np.ndarray | None]:
    """Return the floor plane in base_link and base_footprint_from_base_link, each by the other if it is missing.
    Published files write d of `normal . p = d` beside the text `normal . p + distance = 0`, so the sign of an entry
    without a `convention` is that of the transform."""
    of_transform = None if footprint is None else floor_of_footprint(footprint)
    if FLOOR not in data:
        return of_transform, footprint
    normal, distance = _plane_numbers(_data(data, FLOOR, path), path)
    convention = data[FLOOR].get("convention")
    readings = {PLANE_CONVENTION: Plane(normal, distance), OLD_PLANE_CONVENTION: Plane(normal, -distance)}
    if convention is not None:
        check_convention(convention, list(readings), f"{path}: {FLOOR}")
    if of_transform is None:
        if convention is None:
            ambiguous = f"the sign of distance is ambiguous without a convention entry or {FOOTPRINT}"
            raise InputError(f"{path}: {FLOOR}: {ambiguous}; run the floor calibration again")
        plane = readings[convention].facing(UP)
        return plane, footprint_from_base(plane)
    possible = list(readings.values()) if convention is None else [readings[convention]]
    height, tilt = min(floor_error(of_transform, plane) for plane in possible)
    if height > AGREEMENT_M or tilt > AGREEMENT_RAD:
        apart = f"{height * 1e3:.2f} mm and {np.degrees(tilt):.3f} deg apart"
        contradictions.append(f"{FLOOR} and the footprint transform describe floors {apart}")
    return of_transform, footprint


def _plane_numbers(params: Any, path) -> tuple[np.ndarray, float]:
    try:
        normal, distance = np.array([float(x) for x in params["normal"]]), float(params["distance"])
        if normal.shape != (3,) or not np.isfinite([*normal, distance]).all():
            raise ValueError
    except (KeyError, TypeError, ValueError) as problem:
        needed = "needs 'normal' (three finite numbers) and 'distance' (a finite number)"
        raise InputError(f"{path}: {FLOOR}: {needed}") from problem
    length = float(np.linalg.norm(normal))
    if abs(length - 1.0) > 1e-4:
        raise InputError(f"{path}: {FLOOR}: 'normal' has length {length:.4g}, not 1")
    return normal / length, distance


def entry_of(raw: dict[str, Any], key: str, path) -> Entry:
    where, given = f"{path}: {key}", {name: value for name, value in raw.items() if value is not None}
    covariance = given.get("covariance")
    if covariance is not None:
        size = 6 if key.endswith(TO_LEFT) else 3
        covariance = numbers_of(covariance, (size, size), f"{where}: covariance")
        if raw.get("fit_method") != ONE_LIDAR:  # which aligns nothing, exactly
            check_covariance(covariance, f"{where}: covariance")
    if "convention" in given and key != FLOOR:
        known = convention_of(key.removesuffix(TO_LEFT)) if key.endswith(TO_LEFT) else FOOTPRINT_CONVENTION
        check_convention(given["convention"], [known, known.partition(";")[0]], where)
    numbers = {
        name: float(numbers_of(given[name], (), f"{where}: {name}")) for name in ("rmse", "num_frames") if name in given
    }
    if min(numbers.values(), default=0.0) < 0.0 or numbers.get("num_frames", 0.0) % 1.0:
        raise InputError(f"{where}: cannot have an rmse of {raw.get('rmse')} and {raw.get('num_frames')} frames")
    if "num_frames" in numbers:
        numbers["num_frames"] = int(numbers["num_frames"])
    # A robot without a name in the environment is written as "unknown": that is not another robot.
    texts = {
        name: str(given[name]) for name in ("robot_id", "fit_method", "convention")
        if given.get(name, "unknown") != "unknown"
    }  # fmt: skip
    timestamp = _timestamp(given.get("timestamp"), f"{where}: timestamp")
    return Entry(timestamp=timestamp, covariance=covariance, **texts, **numbers)


def alignment_called(name: str) -> str:
    """Return what the transform of the lidar `name` to the left one is called in comparisons."""
    return "lidar to lidar" if name == "right" else f"left to {name} lidar"


def convention_of(name: str) -> str:
    """Return the convention of the entry that has the transform of the lidar `name` to the left one."""
    return RIGHT_TO_LEFT_CONVENTION.replace("p_right", f"p_{name}")


def poses_of(data: dict[str, Any], key: str, path, first: Sequence[str] = ()) -> tuple[dict[str, Any], np.ndarray]:
    """Return the lidars' poses (4, 4) by name in an entry, perhaps of one that has to be the `first`, and their
    covariance (6 n, 6 n). Raises `InputError` if the entry lacks any of it."""
    entry, where = data[key], f"{path}: {key}"
    try:
        poses = {str(name): check_rigid(pose, f"{where}: {name}") for name, pose in entry["data"].items()}
        poses, covariance = {name: poses[name] for name in first} | poses, entry["covariance"]
        if not poses:
            raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        needed = "".join(f" {name} and" for name in first)
        raise InputError(f"{where}: needs data with{needed} each lidar (4x4 each) and a covariance") from problem
    covariance = numbers_of(covariance, (6 * len(poses), 6 * len(poses)), f"{where}: covariance")
    check_covariance(covariance, f"{where}: covariance")
    return poses, covariance


def check_convention(convention: Any, known: list[str], where: str) -> None:
    """Raise `InputError`, beginning with `where`, for an unknown convention."""
    if convention not in known:
        raise InputError(f"{where}: unknown convention '{convention}'; '{known[0]}' is known")


def check_covariance(covariance: np.ndarray, name: str) -> None:
    """Raise `InputError` if a matrix (n, n) is not a covariance with positive variances."""
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    if not deviations.all():
        raise InputError(f"{name}: its diagonal is not positive; calibrate again")
    correlations = covariance / np.outer(deviations, deviations)
    if np.abs(correlations - correlations.T).max() > 1e-6 or np.linalg.eigvalsh(correlations).min() < -1e-6:
        raise InputError(f"{name}: is not symmetric and positive definite; calibrate again")


def numbers_of(value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return finite numbers of a shape. Raises `InputError`, beginning with `name`, for anything else."""
    try:
        numbers = np.array(value, dtype=float)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if numbers.shape != shape or not np.isfinite(numbers).all():
        expected = f"a {'x'.join(map(str, shape))} matrix of finite numbers" if shape else "a finite number"
        raise InputError(f"{name}: is not {expected}")
    return numbers


def _timestamp(value: Any, name: str) -> datetime.datetime | None:
    if value is None:
        return None
    try:
        stamp = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(str(value))
        stamp.astimezone()  # fails in the first and the last year
    except (ValueError, OverflowError) as problem:
        raise InputError(f"{name}: '{value}' is not a usable ISO date and time") from problem
    return stamp


def _check_accepted(result, what: str) -> None:
    if result.refusals:
        raise Refused(f"the {what} was refused and is not written: {'; '.join(result.refusals)}")


def entry_for(
    result, data: Any, convention: str, robot_id: str, timestamp: datetime.datetime | None = None
) -> dict[str, Any]:
    """Return the entry of a result with method, rmse, frames and covariance; `data` as by its `convention`."""
    return {
        "data": data, "robot_id": str(robot_id), "timestamp": (timestamp or datetime.datetime.now()).isoformat(),
        "fit_method": str(result.method), "rmse": float(result.rmse), "num_frames": int(result.num_frames),
        "covariance": result.covariance.tolist(), "convention": convention,
    }  # fmt: skip


def plane_entry(plane: Plane) -> dict[str, Any]:
    return {"normal": plane.normal.tolist(), "distance": float(plane.offset), "description": PLANE_DESCRIPTION}
