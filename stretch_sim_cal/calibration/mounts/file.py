"""The lidars' mounts in a calibration file, an entry that readers that do not know it leave alone, and its floor, given
in the base_link in which the mounts have the lidars.

Clouds say where the floor is from the left lidar. In base_link it is as right as the left lidar's pose there: the
description's at first, the calibrated one as soon as there is one. The floor's entries say which it was.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag

from stretch_sim_cal.calibration.calibration_file import (
    FLOOR,
    FOOTPRINT,
    FOOTPRINT_ALIAS,
    LEFT_POSE,
    PLANE_CONVENTION,
    PLANE_DESCRIPTION,
    RIGHT_TO_LEFT,
    SEEN_COVARIANCE,
    TO_LEFT,
    CalibrationFile,
    check_convention,
    check_covariance,
)
from stretch_sim_cal.calibration.mounts.result import FARTHEST, FARTHEST_ANGLE, MountsResult
from stretch_sim_cal.calibration.observations import FloorByUnits, Observations, scalars_of
from stretch_sim_cal.calibration.results import FloorResult
from stretch_sim_cal.calibration.values_file import BASE_JOINT, JointOrigin
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base, incremented
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, check_rigid, error, exp, inverse, log

ENTRIES = (FOOTPRINT, FOOTPRINT_ALIAS, FLOOR)
UP = np.array([0.0, 0.0, 1.0])


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
    """Return the file's floor, its normal up, in the base_link in which the left lidar is at `base_from_left`."""
    return file.floor_plane.moved(base_from_left @ inverse(seen_from(file, described_left))).facing(UP)


def with_units(
    file: CalibrationFile, by_units: FloorByUnits, units: tuple[np.ndarray, ...], covariance: np.ndarray
) -> CalibrationFile:
    """Return the file with its floor as it is with what is known by now of the lidars' own errors: their parameters
    `units` (n,), the `covariance` (14 n, 14 n) of the scalars among them. `by_units` is of that floor, which may depend
    on the first of these lidars alone."""
    if file.floor_plane is None:
        return file
    count = len(by_units.scalars)
    change, covariance = by_units.gain @ (scalars_of(units)[:count] - by_units.scalars), covariance[:count, :count]
    total = by_units.conditional + by_units.gain @ covariance @ by_units.gain.T
    return _with_plane(
        file, incremented(file.floor_plane.facing(UP), change), {"covariance": total.tolist(), SEEN_COVARIANCE: None}
    )


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
    if file.floor_plane is None:
        return file
    # A twist (v, w) moves the floor that the lidar sees: its normal n to n + w x n, its offset by -n . v.
    change, entries = np.zeros((3, 6)), {}
    change[0, :3] = -file.floor_plane.facing(UP).normal
    change[1, 3] = change[2, 4] = 1.0
    for key in ENTRIES:
        known = file.entries.get(key)
        if known is None or known.covariance is None:
            continue
        seen = np.array(file.data[key].get(SEEN_COVARIANCE, known.covariance), dtype=float)
        total = seen + change @ covariance @ change.T
        entries[key] = {"covariance": total.tolist(), SEEN_COVARIANCE: seen.tolist()}
    return file.updated(entries)


MOUNTS = "lidar_mounts"
OF_TWO = (  # of files with a left and a right lidar alone
    "p_base_link = data.SIDE * p_lidar; covariance over (tx, ty, tz, rx, ry, rz) of the left, then of the right lidar,"
    " in m and rad, true = exp(xi) * data.SIDE, in base_link"
)
CONVENTION = (
    "p_base_link = data.LIDAR * p_lidar; covariance over (tx, ty, tz, rx, ry, rz) of each lidar in the order of data,"
    " in m and rad, true = exp(xi) * data.LIDAR, in base_link"
)


@dataclass(frozen=True)
class StoredMounts:
    """`base_from_lidar` (4, 4) by name and the `covariance` (6 n, 6 n), in the same order, as a file holds them."""

    base_from_lidar: dict[str, np.ndarray]
    covariance: np.ndarray

    def covariance_of(self, name: str) -> np.ndarray:
        """Return the covariance (6, 6) of one lidar's pose."""
        first = 6 * list(self.base_from_lidar).index(name)
        return self.covariance[first : first + 6, first : first + 6]


def with_mounts(
    file: CalibrationFile, result: MountsResult, robot_id: str, described_left: np.ndarray,
    timestamp: datetime.datetime | None = None, observations: Observations | None = None,
) -> CalibrationFile:  # fmt: skip
    """Return a copy of the file's content that holds the mounts, and its floor as these see it: from where they have
    the left lidar and, if the `observations` know how the floor depends on the lidars' own errors, with what these are.

    `described_left` (4, 4) is where the description has the left lidar, from where a floor was seen that does not say
    so itself. Raises `Refused` for a result with refusals.
    """
    if not result.accepted:
        raise Refused(f"the mounts were refused and are not written: {'; '.join(result.refusals)}")
    entry = {
        "data": {name: pose.tolist() for name, pose in result.base_from_lidar.items()},
        "robot_id": str(robot_id),
        "timestamp": (timestamp or datetime.datetime.now()).isoformat(),
        "fit_method": result.method,
        "rmse": float(result.rmse),
        "num_frames": int(result.num_frames),
        "covariance": result.covariance.tolist(),
        "joint_offsets": {
            offset.joint: {
                "value": offset.value,
                "standard_deviation": offset.standard_deviation,
                "scale": offset.scale,
                "scale_standard_deviation": offset.scale_deviation,
            }
            for offset in result.joint_offsets
        },
        "convention": OF_TWO if set(result.base_from_lidar) == set(SIDES) else CONVENTION,
    }
    if observations is not None and observations.floor is not None and result.units is not None:
        file = with_units(file, observations.floor, result.units, result.scalar_covariance)
    if file.floor_plane is not None:
        left = result.base_from_lidar["left"]
        floor = floor_with_left_at(file, left, described_left)
        file = _with_plane(file, floor, {LEFT_POSE: left.tolist()})
    return with_uncertain_left(file.updated({MOUNTS: entry}), result.covariance_of("left"))


def with_floor(
    file: CalibrationFile, result: FloorResult, robot_id: str, described_left: np.ndarray
) -> CalibrationFile:
    """Return a copy of the file's content that holds a floor found with the left lidar at `left_pose`.

    Its covariance covers the uncertainty of that pose, where the file has mounts. Raises `Refused` for a result with
    refusals.
    """
    found = file.with_floor(result, robot_id, base_from_left=left_pose(file, described_left))
    mounts = stored_mounts(file)
    return found if mounts is None else with_uncertain_left(found, mounts.covariance_of("left"))


def left_pose(file: CalibrationFile, described_left: np.ndarray) -> np.ndarray:
    """Return where the left lidar is in base_link (4, 4): by the file's mounts, else as the description has it.

    Raises `InputError` where both are so far apart that the mounts are not of this robot, or of this description.
    """
    mounts = stored_mounts(file)
    if mounts is None:
        return described_left
    left = mounts.base_from_lidar["left"]
    distance, angle = error(described_left, left)
    if distance > FARTHEST or angle > FARTHEST_ANGLE:
        raise InputError(
            f"{file.path or 'calibration'}: {MOUNTS}: has the left lidar {1e3 * distance:.0f} mm and "
            f"{np.degrees(angle):.1f} deg from where the description has it: found on another robot, or with another "
            "description? run ros_calibrate_lidar_mounts again, or take the entry out"
        )
    return left


def stored_mounts(file: CalibrationFile) -> StoredMounts | None:
    """Return the mounts in a calibration file, None where it has none. Raises `InputError` where they are not whole."""
    entry = file.data.get(MOUNTS)
    if entry is None:
        return None
    where = f"{file.path or 'calibration'}: {MOUNTS}"
    try:
        poses = {str(name): check_rigid(pose, f"{where}: {name}") for name, pose in entry["data"].items()}
        poses = {"left": poses["left"]} | poses
        covariance = np.array(entry["covariance"], dtype=float)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise InputError(f"{where}: needs data with left and each other lidar (4x4 each) and a covariance") from problem
    size = 6 * len(poses)
    if covariance.shape != (size, size) or not np.isfinite(covariance).all():
        raise InputError(f"{where}: covariance: is not a {size}x{size} matrix of finite numbers")
    check_covariance(covariance, f"{where}: covariance")
    if entry.get("convention") is not None:
        check_convention(entry["convention"], [CONVENTION, *([OF_TWO] if set(poses) == set(SIDES) else [])], where)
    return StoredMounts(poses, covariance)


def every_mount(file: CalibrationFile, mounts: StoredMounts | MountsResult) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return by name the poses in base_link (4, 4) of all lidars, and the covariance (6 n, 6 n) over twists there: as
    the `mounts` have them, and of lidars that they do not have on the left lidar by the file's transforms, given what
    the mounts of the left and the right one make of theirs.

    With e_r the error of right_to_left and e_m that of another one, e_m = K e_r + e with K = cov(e_m, e_r) cov(e_r)^-1,
    and e independent of e_r, of the mounts, and from lidar to lidar. So the transform moves by K times what the mounts
    move right_to_left by, and its error is K times theirs, and e. Lidars whose entries have no covariance are left out.
    """
    poses, count = dict(mounts.base_from_lidar), 6 * len(mounts.base_from_lidar)
    further = {name: pose for name, pose in file.further_to_left.items() if name not in poses}
    if file.right_to_left is None or "right" not in poses or not further:
        return poses, mounts.covariance
    left, first, second = poses["left"], *(6 * list(poses).index(side) + np.arange(6) for side in SIDES)
    moved, to_base = log(inverse(left) @ poses["right"] @ inverse(file.right_to_left)), adjoint(left)
    of_right = file.entries[RIGHT_TO_LEFT].covariance
    by_mounts, alone = [np.eye(count)], [np.zeros((count, count))]
    for name, transform in further.items():
        key, beside = f"{name}{TO_LEFT}", file.covariance_with_right(name)
        own = file.entries[key].covariance
        if own is None or of_right is None or beside is None:
            continue
        gain = beside @ np.linalg.pinv(of_right, hermitian=True)
        by_right, change = to_base @ gain @ adjoint(inverse(left)), np.zeros((6, count))
        change[:, first], change[:, second] = np.eye(6) - by_right, by_right
        by_mounts.append(change)
        alone.append(to_base @ (own - gain @ beside.T) @ to_base.T)
        poses[name] = left @ exp(gain @ moved) @ transform
    change = np.vstack(by_mounts)
    return poses, change @ mounts.covariance @ change.T + block_diag(*alone)


def each_mount(
    file: CalibrationFile, mounts: StoredMounts | MountsResult | None
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return by name the poses in base_link (4, 4) of all lidars, and their covariances (6, 6) over twists there, as of
    `every_mount`; none without `mounts`."""
    if mounts is None:
        return {}
    stored = StoredMounts(*every_mount(file, mounts))
    return {name: (pose, stored.covariance_of(name)) for name, pose in stored.base_from_lidar.items()}


def mounted_joints(
    file: CalibrationFile, described: Mapping[str, JointOrigin], base_from_parent: np.ndarray, base: JointOrigin | None
) -> list[JointOrigin]:
    """Return the joints of the lidars, and of the floor, with their calibrated origins; none where a file has no
    mounts.

    `described` are the lidars' joints by name as the description has them, `base_from_parent` (4, 4) where the left
    one's parent is, in which all origins are given. An alignment in the file places the other lidars on the left one.
    The floor is the one under the real base_link.
    """
    mounts = stored_mounts(file)
    if mounts is None:
        return []
    left = mounts.base_from_lidar["left"]
    poses = mounts.base_from_lidar | {name: left @ pose for name, pose in file.to_left.items()}
    joints = [
        replace(joint, parent_from_child=inverse(base_from_parent) @ poses[name]) for name, joint in described.items()
    ]
    if base is not None and file.floor_plane is not None:
        floor = floor_with_left_at(file, left, base_from_parent @ described["left"].parent_from_child)
        joints.append(JointOrigin(BASE_JOINT, base.parent, base.child, footprint_from_base(floor)))
    return joints
