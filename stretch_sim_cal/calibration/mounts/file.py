"""The lidar extrinsics in a calibration file, and its floor, which clouds determine from the left lidar, in the
base_link of these: its entries name the left lidar's pose, the described one at first, later the calibrated one."""

import numpy as np
from scipy.linalg import block_diag

from stretch_sim_cal.calibration import calibration_file as files
from stretch_sim_cal.calibration.calibration_file import (
    FLOOR,
    FLOORS,
    LEFT_POSE,
    MOUNTS,
    SEEN_COVARIANCE,
    CalibrationFile,
)
from stretch_sim_cal.calibration.mounts.result import FARTHEST, FARTHEST_ANGLE, MountsResult, StoredMounts
from stretch_sim_cal.calibration.observations import FloorByUnits, Observations, scalars_of
from stretch_sim_cal.calibration.results import FloorResult
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.planes import UP, Plane, footprint_from_base, incremented
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, check_rigid, error, exp, inverse, log


def seen_from(file: CalibrationFile, described_left: np.ndarray) -> np.ndarray:
    """Return the left lidar's pose, base_link_from_left (4, 4), by which the file's floor was estimated: the described
    one, unless an entry has another. Raises `InputError` if that is not a pose."""
    for key in FLOORS:
        if LEFT_POSE in file.data.get(key, {}):
            return check_rigid(file.data[key][LEFT_POSE], f"{file.path or 'calibration'}: {key}: {LEFT_POSE}")
    return described_left


def floor_with_left_at(file: CalibrationFile, base_from_left: np.ndarray, described_left: np.ndarray) -> Plane:
    """Return the file's floor, its normal up, with the left lidar at `base_from_left`."""
    return file.floor_plane.moved(base_from_left @ inverse(seen_from(file, described_left))).facing(UP)


def with_units(
    file: CalibrationFile, by_units: FloorByUnits, units: tuple[np.ndarray, ...], covariance: np.ndarray
) -> CalibrationFile:
    """Return the file with its floor updated by the lidars' errors: their parameters `units` (n,), with the
    `covariance` (14 n, 14 n) of the scalars among them. `by_units` is of that floor, perhaps of the first of these
    lidars only."""
    if file.floor_plane is None:
        return file
    count = len(by_units.scalars)
    change, covariance = by_units.gain @ (scalars_of(units)[:count] - by_units.scalars), covariance[:count, :count]
    total = by_units.conditional + by_units.gain @ covariance @ by_units.gain.T
    fields = {"covariance": total.tolist(), SEEN_COVARIANCE: None}
    return _with_plane(file, incremented(file.floor_plane.facing(UP), change), fields)


def _with_plane(file: CalibrationFile, plane: Plane, fields: dict) -> CalibrationFile:
    """Return the file with another floor, its normal up, and `fields` in each of its entries."""
    footprint = fields | {"data": footprint_from_base(plane).tolist()}
    floor = fields | {"data": files.plane_entry(plane), "convention": files.PLANE_CONVENTION}
    return file.updated({key: floor if key == FLOOR else footprint for key in FLOORS if key in file.data})


def with_uncertain_left(file: CalibrationFile, covariance: np.ndarray) -> CalibrationFile:
    """Return the file with the covariance (6, 6) of the left lidar's pose, over twists in base_link, added to the
    floor's; the latter without it stays as another field."""
    if file.floor_plane is None:
        return file
    # A twist (v, w) moves the floor: its normal n to n + w x n, its offset by -n . v.
    change, entries = np.zeros((3, 6)), {}
    change[0, :3] = -file.floor_plane.facing(UP).normal
    change[1, 3] = change[2, 4] = 1.0
    for key in FLOORS:
        if (seen := file.seen_covariance(key)) is not None:
            total = seen + change @ covariance @ change.T
            entries[key] = {"covariance": total.tolist(), SEEN_COVARIANCE: seen.tolist()}
    return file.updated(entries)


OF_TWO = (  # of files with a left and a right lidar only
    "p_base_link = data.SIDE * p_lidar; covariance over (tx, ty, tz, rx, ry, rz) of the left, then of the right lidar,"
    " in m and rad, true = exp(xi) * data.SIDE, in base_link"
)
CONVENTION = (
    "p_base_link = data.LIDAR * p_lidar; covariance over (tx, ty, tz, rx, ry, rz) of each lidar in the order of data,"
    " in m and rad, true = exp(xi) * data.LIDAR, in base_link"
)


def with_mounts(
    file: CalibrationFile, result: MountsResult, robot_id: str, described_left: np.ndarray,
    observations: Observations | None = None,
) -> CalibrationFile:  # fmt: skip
    """Return a copy of the file that holds the extrinsics, with its floor moved with the left lidar and, if the
    `observations` have the floor's dependence on the lidars' errors, updated by these. `described_left` (4, 4) is the
    described pose of the left lidar. Raises `Refused` for a result with refusals."""
    if not result.accepted:
        raise Refused(f"the mounts were refused and are not written: {'; '.join(result.refusals)}")
    poses = {name: pose.tolist() for name, pose in result.base_from_lidar.items()}
    entry = files.entry_for(result, poses, OF_TWO if set(poses) == set(SIDES) else CONVENTION, robot_id)
    entry["joint_offsets"] = {offset.joint: offset.numbers for offset in result.joint_offsets}
    if observations is not None and observations.floor is not None and result.units is not None:
        file = with_units(file, observations.floor, result.units, result.scalar_covariance)
    if file.floor_plane is not None:
        left = result.base_from_lidar["left"]
        floor = floor_with_left_at(file, left, described_left)
        file = _with_plane(file, floor, {LEFT_POSE: left.tolist()})
    return with_uncertain_left(file.updated({MOUNTS: entry}), result.covariance_of("left"))


def with_floor(file: CalibrationFile, result: FloorResult, robot_id: str, described: np.ndarray) -> CalibrationFile:
    """Return a copy of the file that holds a floor with the left lidar at `left_pose`, whose uncertainty, if the file
    has extrinsics, is added to the floor's. Raises `Refused` for a result with refusals."""
    updated = file.with_floor(result, robot_id, base_from_left=left_pose(file, described))
    mounts = stored_mounts(file)
    return updated if mounts is None else with_uncertain_left(updated, mounts.covariance_of("left"))


def left_pose(file: CalibrationFile, described_left: np.ndarray) -> np.ndarray:
    """Return the left lidar's pose in base_link (4, 4): by the file's extrinsics, or the described one. Raises
    `InputError` if both are so far apart that the extrinsics are of another robot or description."""
    mounts = stored_mounts(file)
    if mounts is None:
        return described_left
    left = mounts.base_from_lidar["left"]
    distance, angle = error(described_left, left)
    if distance > FARTHEST or angle > FARTHEST_ANGLE:
        off = f"{1e3 * distance:.0f} mm and {np.degrees(angle):.1f} deg from its described pose"
        remedy = "run ros_calibrate_lidar_mounts again, or take the entry out and calibrate the floor again"
        cause = f"was it calibrated on another robot, or with another description? {remedy}"
        raise InputError(f"{file.path or 'calibration'}: {MOUNTS}: has the left lidar {off}: {cause}")
    return left


def stored_mounts(file: CalibrationFile) -> StoredMounts | None:
    """Return the extrinsics in a calibration file, None if it has none. Raises `InputError` for incomplete ones."""
    if file.data.get(MOUNTS) is None:
        return None
    path = file.path or "calibration"
    mounts = StoredMounts(*files.poses_of(file.data, MOUNTS, path, ["left"]))
    convention = file.data[MOUNTS].get("convention")
    if convention is not None:
        known = [CONVENTION, *([OF_TWO] if set(mounts.base_from_lidar) == set(SIDES) else [])]
        files.check_convention(convention, known, f"{path}: {MOUNTS}")
    return mounts


def every_mount(file: CalibrationFile, mounts: StoredMounts) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return by name the poses in base_link (4, 4) of all lidars, and the covariance (6 n, 6 n) over twists there.

    Lidars without `mounts` are on the left lidar by the file's transforms, updated by the left and the right one's
    mounts: with e_r the error of right_to_left and e_m that of another lidar, e_m = K e_r + e with K = cov(e_m, e_r)
    cov(e_r)^-1, and e independent of e_r, of the mounts, and from lidar to lidar. So the transform changes by K times
    the change of right_to_left by the mounts, and its error is K times theirs plus e. Lidars whose entries have no
    covariance are excluded.
    """
    poses, count = dict(mounts.base_from_lidar), 6 * len(mounts.base_from_lidar)
    others = {name: pose for name, pose in file.to_left.items() if name not in poses}
    if not {"right"} <= file.to_left.keys() & poses.keys() or not others:
        return poses, mounts.covariance
    left, first, second = poses["left"], *(6 * list(poses).index(side) + np.arange(6) for side in SIDES)
    moved, to_base = log(inverse(left) @ poses["right"] @ inverse(file.right_to_left)), adjoint(left)
    of_right = file.entries[files.RIGHT_TO_LEFT].covariance
    by_mounts, independent = [np.eye(count)], [np.zeros((count, count))]
    for name, transform in others.items():
        covariance = file.entries[f"{name}{files.TO_LEFT}"].covariance
        with_right = file.covariance_with_right(name)
        if covariance is None or of_right is None or with_right is None:
            continue
        gain = with_right @ np.linalg.pinv(of_right, hermitian=True)
        by_right, change = to_base @ gain @ adjoint(inverse(left)), np.zeros((6, count))
        change[:, first], change[:, second] = np.eye(6) - by_right, by_right
        by_mounts.append(change)
        independent.append(to_base @ (covariance - gain @ with_right.T) @ to_base.T)
        poses[name] = left @ exp(gain @ moved) @ transform
    change = np.vstack(by_mounts)
    return poses, change @ mounts.covariance @ change.T + block_diag(*independent)


def each_mount(file: CalibrationFile, mounts: StoredMounts | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return by name the poses (4, 4) and covariances (6, 6) of `every_mount`; none without `mounts`."""
    if mounts is None:
        return {}
    stored = StoredMounts(*every_mount(file, mounts))
    return {name: (pose, stored.covariance_of(name)) for name, pose in stored.base_from_lidar.items()}
