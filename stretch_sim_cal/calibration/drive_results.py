"""The result of a drive: as stages of a report, in the calibration file, and against the calibration by the arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag

from stretch_sim_cal import validate
from stretch_sim_cal.calibration.calibration_file import WHEELS, CalibrationFile, poses_of
from stretch_sim_cal.calibration.drive_problem import OFF_PLANE
from stretch_sim_cal.calibration.driving import DrivenResult
from stretch_sim_cal.calibration.finding import Finding, when
from stretch_sim_cal.calibration.lidars import with_lidars
from stretch_sim_cal.calibration.mounts.file import every_mount, stored_mounts, with_floor
from stretch_sim_cal.calibration.observations import by_poses
from stretch_sim_cal.calibration.results import FloorResult
from stretch_sim_cal.calibration.summaries import Stage, alignment_stage, floor_stage, wheels_stage
from stretch_sim_cal.calibration.wheel_odometry import PLANAR, STEP, Wheels
from stretch_sim_cal.errors import Refused
from stretch_sim_cal.geometry.planes import UP, Plane, footprint_from_base, incremented
from stretch_sim_cal.geometry.transforms import about_origin, exp, inverse, log

DIFFERS = 3.0  # sigmas beyond which arm and drive disagree


def drive_stages(
    result: DrivenResult, described: Mapping[str, np.ndarray], footprint_from_base: np.ndarray
) -> list[Stage]:
    """Return alignment (of two or more), floor and wheels, unless these are None; `described` are the lidars' poses
    (4, 4) in base_link."""
    stages = [alignment_stage(result, described)] if len(described) > 1 else []
    stages.append(floor_stage(_floor(result), footprint_from_base))
    return stages if result.wheels is None else [*stages, wheels_stage(result.wheels)]


def with_drive(
    file: CalibrationFile, result: DrivenResult, robot_id: str, described: Mapping[str, np.ndarray]
) -> CalibrationFile:
    """Return the file with all of `drive_stages`; one with lidar extrinsics gets the wheels only. Raises `Refused` if
    there are refusals."""
    if stored_mounts(file) is None:
        if len(described) > 1:
            file = with_lidars(file, result, robot_id)
        file = with_floor(file, _floor(result), robot_id, described[next(iter(described))])
    elif refusals := [*result.refusals, *result.floor.refusals]:
        raise Refused(f"{'; '.join(refusals)}; the file keeps its calibration from the arm")
    return file if result.wheels is None else file.with_wheels(result.wheels, result.num_frames, robot_id)


def stored_wheels(file: CalibrationFile) -> Wheels | None:
    """Return a file's lidars against the wheels, without stations, or None. Raises `InputError` for a bad entry."""
    if not file.footprint_from_lidar:
        return None
    path, where = file.path or "calibration", f"{file.path or 'calibration'}: {WHEELS}: odometry"
    entries = validate.entries(file.data[WHEELS].get("odometry"), where)
    odometry = {str(name): validate.number(value, f"{where}: {name}") for name, value in entries.items()}
    return Wheels(*poses_of(file.data, WHEELS, path), odometry, odometry.pop("slip", 1.0), [])


@dataclass(frozen=True)
class Agreement:
    """A lidar's pose over the floor by the drive minus that by the arm and the file's floor: `difference` (6,) x, y, z
    (m), roll, pitch, yaw (rad) about the lidar's origin, with its `covariance` (6, 6)."""

    lidar: str
    difference: np.ndarray
    covariance: np.ndarray

    def sigmas(self, part: Sequence[int]) -> float:
        """Return a part of the difference over its uncertainty, root mean square over its directions."""
        rows, off = list(part), self.difference[list(part)]
        return float(np.sqrt(off @ np.linalg.solve(self.covariance[np.ix_(rows, rows)], off) / len(rows)))

    @property
    def by_wheels(self) -> float:
        """The sigmas of x, y, yaw: the arm's kinematics against the wheels'."""
        return self.sigmas(PLANAR)

    @property
    def by_floor(self) -> float:
        """The sigmas of z, roll, pitch: the floor of the file against that of the drive."""
        return self.sigmas(OFF_PLANE)

    def sentence(self) -> str:
        """Return the difference in one line, with standard deviations."""
        names, deviations = ("x", "y", "z", "roll", "pitch", "yaw"), np.sqrt(np.diag(self.covariance))
        values = zip(names, self.difference, deviations, strict=True)
        units = 3 * [(1e3, 2, "mm")] + 3 * [(np.degrees(1.0), 3, "deg")]
        parts = ", ".join(
            f"{name} {scale * value:+.{digits}f} {unit} (+- {scale * deviation:.{digits}f})"
            for (name, value, deviation), (scale, digits, unit) in zip(values, units, strict=True)
        )
        sigmas = f"x, y, yaw {self.by_wheels:.1f} sigma, z, roll, pitch {self.by_floor:.1f} sigma"
        return f"{self.lidar} lidar, by wheels against arm: {parts}; {sigmas}"

    def findings(self) -> list[Finding]:
        """Return the disagreements that the covariances do not explain."""
        return [
            *when(
                self.by_wheels > DIFFERS, "arm_and_wheels_differ", f"arm and wheels disagree: {self.sentence()}",
                "check the arm's position on the base in the description, and the frame of the odometry; drive again "
                "on clean floor, and repeat the arm's poses",
            ),
            *when(
                self.by_floor > DIFFERS, "floors_differ", f"the floors of file and drive disagree: {self.sentence()}",
                "calibrate the floor again where the robot drove (ros_find_floor_calibration)",
            ),
        ]  # fmt: skip


def agreements(file: CalibrationFile) -> list[Agreement]:
    """Compare the lidars by the drive with those by the arm, for each lidar that a file has by both; none if the file
    lacks mounts, floor or wheels, or their covariances. base_link's origin is over the centre of rotation, its x along
    the direction of driving, by REP 105. The mounts' errors shift and turn the lidar in the plane. The file's floor is
    relative to the left lidar and moves with it, so z, roll and pitch have the uncertainty of the clouds."""
    mounts, wheels = stored_mounts(file), stored_wheels(file)
    seen = file.seen_covariance(file.floor_key)
    if mounts is None or wheels is None or file.floor_plane is None or seen is None:
        return []
    poses, covariance = every_mount(file, mounts)
    plane = file.floor_plane.facing(UP)
    change = np.column_stack([_over_floor_change(plane, step) for step in STEP * np.eye(15)])
    compared = []
    for number, (name, pose) in enumerate(poses.items()):
        if name not in wheels.footprint_from_lidar:
            continue
        both = np.r_[0:6, 6 * number : 6 * number + 6]
        by_arm = change @ block_diag(covariance[np.ix_(both, both)], seen) @ change.T
        over_floor = footprint_from_base(plane) @ pose
        at_lidar = about_origin(over_floor)
        difference = log(wheels.footprint_from_lidar[name] @ inverse(over_floor))
        total = by_arm + wheels.covariance_of(name)
        compared.append(Agreement(name, at_lidar @ difference, at_lidar @ total @ at_lidar.T))
    return compared


def _over_floor_change(plane: Plane, step: np.ndarray) -> np.ndarray:
    """Return the twist (6,) per `STEP` of a lidar over the floor by `step` (15,): twists in base_link of the left lidar
    and of this one, and an increment of the floor relative to the left one."""
    moved = incremented(plane.moved(exp(step[:6])), step[12:])
    return log(footprint_from_base(moved) @ exp(step[6:12]) @ inverse(footprint_from_base(plane))) / STEP


def transform_to_left(
    poses: Mapping[str, np.ndarray], covariance: np.ndarray, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the transform (4, 4) of a lidar to the left one, and its covariance (6, 6), by the `poses` (4, 4) of the
    lidars in one frame, with their `covariance` (6 n, 6 n) in the same order."""
    both = np.concatenate([6 * list(poses).index(each) + np.arange(6) for each in ("left", name)])
    change = by_poses(poses["left"])
    return inverse(poses["left"]) @ poses[name], change @ covariance[np.ix_(both, both)] @ change.T


def _floor(result: DrivenResult) -> FloorResult:
    """Return the floor; for one lidar, whose alignment is not a stage, with the findings of the drive."""
    floor = result.floor
    if len(result.names) > 1:
        return floor
    return replace(floor, refusals=result.refusals + floor.refusals, warnings=result.warnings + floor.warnings)
