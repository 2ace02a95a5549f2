"""The floor of a calibration file, told in the base_link in which its mounts have the lidars.

Clouds tell where the floor is from the left lidar. In base_link it is as right as the pose that the lidar is taken to
have there: the description's at first, the calibrated one as soon as there is one. The floor's entries say which it was.
"""

import numpy as np

from stretch_sim_cal.calibration.calibration_file import (
    FLOOR,
    FOOTPRINT,
    FOOTPRINT_ALIAS,
    LEFT_POSE,
    PLANE_CONVENTION,
    PLANE_DESCRIPTION,
    SEEN_COVARIANCE,
    CalibrationFile,
)
from stretch_sim_cal.calibration.observations import FloorByUnits, scalars_of
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base
from stretch_sim_cal.geometry.transforms import check_rigid, inverse

ENTRIES = (FOOTPRINT, FOOTPRINT_ALIAS, FLOOR)


def seen_from(file: CalibrationFile, described_left: np.ndarray) -> np.ndarray:
    """Return where the left lidar was taken to be, base_link_from_left (4, 4), when the file's floor was found.

    A floor that does not say so was found with the lidar where the description has it. Raises `InputError` where what
    it says is no pose.
    """
    for key in ENTRIES:
        if LEFT_POSE in file.data.get(key, {}):
            return check_rigid(file.data[key][LEFT_POSE], f"{file.path or 'calibration'}: {key}: {LEFT_POSE}")
    return described_left


def floor_with_left_at(file: CalibrationFile, base_from_left: np.ndarray, described_left: np.ndarray) -> Plane:
    """Return the file's floor in the base_link in which the left lidar is at `base_from_left` (4, 4)."""
    return file.floor_plane.moved(base_from_left @ inverse(seen_from(file, described_left)))


def with_units(
    file: CalibrationFile, by_units: FloorByUnits, units: tuple[np.ndarray, np.ndarray], covariance: np.ndarray
) -> CalibrationFile:
    """Return the file with its floor as it is with what is known by now of the lidars' own errors: their parameters `units`
    (n,), the `covariance` (28, 28) of the scalars among them. `by_units` is of that floor."""
    if file.floor_plane is None:
        return file
    change = by_units.gain @ (scalars_of(units) - by_units.scalars)
    plane = file.floor_plane.facing(np.array([0.0, 0.0, 1.0]))
    tilt = np.array([change[1], change[2], 0.0])
    plane = Plane.from_coefficients(plane.normal + np.cross(tilt, plane.normal), plane.offset + change[0])
    total = by_units.conditional + by_units.gain @ covariance @ by_units.gain.T
    return _with_plane(file, plane, {"covariance": total.tolist(), SEEN_COVARIANCE: None})


def with_left_at(file: CalibrationFile, base_from_left: np.ndarray, described_left: np.ndarray) -> CalibrationFile:
    """Return the file with the same floor, told in the base_link in which the left lidar is at `base_from_left`."""
    if file.floor_plane is None:
        return file
    plane = floor_with_left_at(file, base_from_left, described_left).facing(np.array([0.0, 0.0, 1.0]))
    return _with_plane(file, plane, {LEFT_POSE: base_from_left.tolist()})


def _with_plane(file: CalibrationFile, plane: Plane, said: dict) -> CalibrationFile:
    """Return the file with another floor, its normal up, and what is `said` beside it in every entry."""
    footprint = said | {"data": footprint_from_base(plane).tolist()}
    entries = {key: footprint for key in (FOOTPRINT, FOOTPRINT_ALIAS) if key in file.data}
    if FLOOR in file.data:
        params = {"normal": plane.normal.tolist(), "distance": float(plane.offset)}
        text = {"description": PLANE_DESCRIPTION}
        entries[FLOOR] = said | {"data": params | text, "convention": PLANE_CONVENTION}
    return file.updated(entries)


def with_uncertain_left(file: CalibrationFile, covariance: np.ndarray) -> CalibrationFile:
    """Return the file with a floor that is as uncertain as clouds and the left lidar's pose make it together.

    `covariance` (6, 6) is that of the pose, over twists in base_link. What the clouds alone leave open is kept beside.
    """
    entries = {}
    for key in ENTRIES:
        known = file.entries.get(key)
        if known is None or known.covariance is None:
            continue
        seen = np.array(file.data[key].get(SEEN_COVARIANCE, known.covariance), dtype=float)
        change = _floor_by_pose(file.floor_plane)
        total = seen + change @ covariance @ change.T
        entries[key] = {"covariance": total.tolist(), SEEN_COVARIANCE: seen.tolist()}
    return file.updated(entries)


def _floor_by_pose(plane: Plane) -> np.ndarray:
    """Return how (height at base_link's origin, tilt about x, tilt about y) change (3, 6) with the lidar's twist.

    A twist (v, w) moves the floor that the lidar sees: its normal n to n + w x n, its offset by -n . v.
    """
    change = np.zeros((3, 6))
    change[0, :3] = -plane.facing(np.array([0.0, 0.0, 1.0])).normal
    change[1, 3] = change[2, 4] = 1.0
    return change
