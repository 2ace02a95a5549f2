"""The entries of a calibration file: their names and conventions, and their values, checked.

Functions raise `InputError` that names file and entry if a transform is not rigid or of a wrong shape, if numbers are
none, or if a floor plane's sign cannot be known.
"""

import datetime
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import Plane, floor_error, floor_of_footprint, footprint_from_base
from stretch_sim_cal.geometry.transforms import check_rigid, error

RIGHT_TO_LEFT = "right_to_left_transform"
TO_LEFT = "_to_left_transform"  # behind the name of a lidar beyond two: where it is, as right_to_left_transform has it
COVARIANCE_WITH_RIGHT = "covariance_with_right"  # of such an entry: between its twist and the right lidar's
FOOTPRINT = "floor_to_base_link_transform"  # despite its name it maps base_link into base_footprint
FOOTPRINT_ALIAS = "base_link_to_base_footprint_transform"  # the same under the name some versions write
FLOOR = "floor_model_params"
ARRAY = "array"  # the method of lidars that were aligned in one estimate
ONE_LIDAR = "one_lidar"  # the method of an alignment of a robot that has one

WHEELS = "base_footprint_from_lidars"  # by driving: the lidars against the wheels

LEFT_POSE = "base_link_from_lidar_left"  # where the left lidar was taken to be when the floor was found
SEEN_COVARIANCE = "covariance_seen_from_lidars"  # of a floor: without the uncertainty of that pose

PLANE_CONVENTION = "normal . p + distance = 0"
OLD_PLANE_CONVENTION = "normal . p = distance"
PLANE_DESCRIPTION = (
    "Floor plane in base_link: normal [x,y,z] dot point + distance = 0; distance is positive if the floor is below the"
    " origin of base_link. Files of the published tool hold it with the opposite sign and have no convention entry."
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


@dataclass(frozen=True)
class Entry:
    """The fields of an entry besides its data; None if it has none."""

    robot_id: str | None = None
    timestamp: datetime.datetime | None = None
    fit_method: str | None = None
    rmse: float | None = None
    num_frames: int | None = None
    covariance: np.ndarray | None = None
    convention: str | None = None


def _data(data: dict[str, Any], key: str, path) -> Any:
    entry = data[key]
    if not isinstance(entry, dict) or "data" not in entry:
        raise InputError(f"{path}: {key}: has no 'data'; the file is torn, calibrate again or roll back")
    return entry["data"]


def transform_of(data: dict[str, Any], key: str, path) -> np.ndarray | None:
    """Return the transform (4, 4) of an entry, None if there is none."""
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


def footprint_of(data: dict[str, Any], path, contradictions: list[str]) -> np.ndarray | None:
    """Return base_footprint_from_base_link under either of its names."""
    primary, alias = transform_of(data, FOOTPRINT, path), transform_of(data, FOOTPRINT_ALIAS, path)
    if primary is not None and alias is not None:
        distance, angle = error(primary, alias)
        if distance > AGREEMENT_M or angle > AGREEMENT_RAD:
            contradictions.append(
                f"{FOOTPRINT} and {FOOTPRINT_ALIAS} differ by {distance * 1e3:.2f} mm and {np.degrees(angle):.3f} deg"
            )
    return alias if primary is None else primary


def floor_of(
    data: dict[str, Any], footprint: np.ndarray | None, path, contradictions: list[str]
) -> tuple[Plane | None, np.ndarray | None]:
    """Return the floor plane in base_link and base_footprint_from_base_link, each found from the other if it is
    missing.

    Published files write d of `normal . p = d` beside a text that says `normal . p + distance = 0`, so only an entry
    with a `convention` speaks for itself; the sign of any other is settled by the transform.
    """
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
            raise InputError(
                f"{path}: {FLOOR}: the sign of distance cannot be known without a convention entry or {FOOTPRINT};"
                " run the floor calibration again"
            )
        plane = readings[convention].facing(np.array([0.0, 0.0, 1.0]))
        return plane, footprint_from_base(plane)
    possible = list(readings.values()) if convention is None else [readings[convention]]
    height, tilt = min(floor_error(of_transform, plane) for plane in possible)
    if height > AGREEMENT_M or tilt > AGREEMENT_RAD:
        contradictions.append(
            f"{FLOOR} and the footprint transform name floors {height * 1e3:.2f} mm and "
            f"{np.degrees(tilt):.3f} deg apart"
        )
    return of_transform, footprint


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


def entry_of(raw: dict[str, Any], key: str, path) -> Entry:
    """Return the fields of an entry."""
    covariance = raw.get("covariance")
    if covariance is not None:
        size = 6 if key.endswith(TO_LEFT) else 3
        if not _is_table(covariance, size):
            raise InputError(f"{path}: {key}: covariance: is not a {size}x{size} matrix of numbers")
        covariance = numbers_of(covariance, (size, size), f"{path}: {key}: covariance")
        if raw.get("fit_method") != ONE_LIDAR:  # which aligns nothing, exactly
            check_covariance(covariance, f"{path}: {key}: covariance")
    if raw.get("convention") is not None and key != FLOOR:
        own = FOOTPRINT_CONVENTION if key in (FOOTPRINT, FOOTPRINT_ALIAS) else convention_of(key.removesuffix(TO_LEFT))
        check_convention(raw["convention"], [own, own.partition(";")[0]], f"{path}: {key}")
    rmse, num_frames = (
        None if raw.get(name) is None else float(numbers_of(raw[name], (), f"{path}: {key}: {name}"))
        for name in ("rmse", "num_frames")
    )
    if (rmse or 0.0) < 0.0 or (num_frames or 0.0) < 0.0 or (num_frames or 0.0) % 1.0:
        raise InputError(f"{path}: {key}: cannot have an rmse of {raw.get('rmse')} and {raw.get('num_frames')} frames")
    return Entry(
        robot_id=None if raw.get("robot_id") is None else str(raw["robot_id"]),
        timestamp=_timestamp(raw.get("timestamp"), f"{path}: {key}: timestamp"),
        fit_method=None if raw.get("fit_method") is None else str(raw["fit_method"]),
        rmse=rmse,
        num_frames=None if num_frames is None else int(num_frames),
        covariance=covariance,
        convention=None if raw.get("convention") is None else str(raw["convention"]),
    )


def convention_of(name: str) -> str:
    """Return the convention of the entry that has the transform of the lidar `name` to the left one."""
    return RIGHT_TO_LEFT_CONVENTION.replace("p_right", f"p_{name}")


def wheels_of(data: dict[str, Any], path) -> dict[str, np.ndarray]:
    """Return the lidars' poses (4, 4) in base_footprint by name, as found by driving; empty if there are none."""
    if WHEELS not in data:
        return {}
    poses, where = _data(data, WHEELS, path), f"{path}: {WHEELS}"
    if not isinstance(poses, dict) or not poses:
        raise InputError(f"{where}: data: a pose of each lidar by its name was expected; calibrate again or roll back")
    found = {str(name): transform_of({str(name): {"data": pose}}, str(name), where) for name, pose in poses.items()}
    check_convention(data[WHEELS].get("convention"), [WHEELS_CONVENTION], where)
    size = 6 * len(found)
    check_covariance(numbers_of(data[WHEELS].get("covariance"), (size, size), f"{where}: covariance"), where)
    return found


def check_convention(convention: Any, known: list[str], where: str) -> None:
    """Raise `InputError`, beginning with `where`, for a convention that is none of those known."""
    if convention not in known:
        raise InputError(f"{where}: unknown convention '{convention}'; '{known[0]}' is known")


def check_covariance(covariance: np.ndarray, name: str) -> None:
    """Raise `InputError` if a matrix (n, n) is no covariance of numbers that are uncertain."""
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    if not deviations.all():
        raise InputError(f"{name}: its diagonal is not positive: the result would be exact; calibrate again")
    correlations = covariance / np.outer(deviations, deviations)
    if np.abs(correlations - correlations.T).max() > 1e-6 or np.linalg.eigvalsh(correlations).min() < -1e-6:
        raise InputError(f"{name}: is not symmetric and positive; calibrate again")


def numbers_of(value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return finite numbers of a shape. Raises `InputError`, beginning with `name`, for anything else."""
    try:
        numbers = np.array(float(value) if shape == () else value, dtype=float)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{name}: is not made of numbers") from problem
    if numbers.shape != shape or not np.isfinite(numbers).all():
        raise InputError(f"{name}: holds a value that is not a finite number")
    return numbers


def _timestamp(value: Any, name: str) -> datetime.datetime | None:
    if value is None or isinstance(value, datetime.datetime):
        return value
    try:
        return datetime.datetime.fromisoformat(str(value))
    except ValueError as problem:
        raise InputError(f"{name}: '{value}' is not an ISO date and time") from problem
