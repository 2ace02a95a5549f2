"""What a drive found, as stages that a command tells one by one, and as it goes into the calibration file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag

from stretch_sim_cal import validate
from stretch_sim_cal.calibration import summaries
from stretch_sim_cal.calibration.array import with_lidars
from stretch_sim_cal.calibration.calibration_file import SEEN_COVARIANCE, WHEELS, CalibrationFile, numbers_of
from stretch_sim_cal.calibration.driving import OFF_PLANE, PLANAR, STEP, DrivenResult, Wheels
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.mounts.file import ENTRIES, every_mount, stored_mounts, with_floor
from stretch_sim_cal.calibration.observations import by_poses
from stretch_sim_cal.calibration.pipeline import Stage, alignment_stage, floor_stage
from stretch_sim_cal.calibration.results import FloorResult
from stretch_sim_cal.errors import Refused
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base, incremented
from stretch_sim_cal.geometry.transforms import adjoint, exp, from_xyz_rpy, inverse, log

DIFFERS = 3.0  # sigmas from which arm and drive do not agree


def drive_stages(
    result: DrivenResult, described: Mapping[str, np.ndarray], footprint_from_base: np.ndarray
) -> list[Stage]:
    """Return lidar to lidar (of two or more), the floor and the wheels, as far as the result has them; the lidars'
    poses (4, 4) in base_link and base_footprint are as `described`."""
    stages = [alignment_stage(result, described)] if len(described) > 1 else []
    stages.append(floor_stage(_floor(result), footprint_from_base))
    if result.wheels is not None:
        numbers = summaries.wheels_numbers(result.wheels)
        stages.append(Stage("wheels", result.wheels, numbers, summaries.wheels_lines(result.wheels, numbers)))
    return stages


def with_drive(
    file: CalibrationFile, result: DrivenResult, robot_id: str, described: Mapping[str, np.ndarray]
) -> CalibrationFile:
    """Return the file with all that `drive_stages` tells; one that holds the lidars' mounts, which rest on its own
    alignment and floor, keeps these and gets the wheels alone. Raises `Refused` if any of it carries refusals, or if
    nothing is left to be written."""
    if stored_mounts(file) is not None:
        said = [*result.refusals, *result.floor.refusals]
        if said or result.wheels is None:
            reason = "; ".join(said) or "there was no straight way, so the drive says nothing of the wheels"
            raise Refused(f"{reason}; the file keeps what it has by the arm")
        return file.with_wheels(result.wheels, result.num_frames, robot_id)
    if len(described) > 1:
        file = with_lidars(file, result, robot_id)
    file = with_floor(file, _floor(result), robot_id, described[next(iter(described))])
    if result.wheels is not None:
        file = file.with_wheels(result.wheels, result.num_frames, robot_id)
    return file


def stored_wheels(file: CalibrationFile) -> Wheels | None:
    """Return the lidars against the wheels as a file holds them, without stations; None if it does not. Raises
    `InputError` for odometry's errors that are no numbers."""
    if not file.footprint_from_lidar:
        return None
    entry, size = file.data[WHEELS], 6 * len(file.footprint_from_lidar)
    where = f"{file.path or 'calibration'}: {WHEELS}"
    covariance = numbers_of(entry.get("covariance"), (size, size), f"{where}: covariance")
    said = validate.entries(entry.get("odometry"), f"{where}: odometry")
    odometry = {str(name): validate.number(value, f"{where}: odometry: {name}") for name, value in said.items()}
    return Wheels(dict(file.footprint_from_lidar), covariance, odometry, odometry.pop("slip", 1.0), [])


@dataclass(frozen=True)
class Agreement:
    """Where the drive has a lidar over the floor against where the arm's calibration and the floor in the file have it:
    `difference` (6,) x, y, z (m), roll, pitch, yaw (rad) about the lidar's own origin, by the wheels minus by the arm,
    with its `covariance` (6, 6)."""

    lidar: str
    difference: np.ndarray
    covariance: np.ndarray

    def sigmas(self, part: Sequence[int]) -> float:
        """Return how large a part of the difference is over its uncertainty, root mean square over its directions."""
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
        said = [
            f"{name} {value:+.2f} mm (+- {deviation:.2f})" for name, value, deviation in self._parts(slice(0, 3), 1e3)
        ]
        said += [
            f"{name} {value:+.3f} deg (+- {deviation:.3f})"
            for name, value, deviation in self._parts(slice(3, 6), float(np.degrees(1.0)))
        ]
        return (
            f"{self.lidar} lidar, by the wheels against by the arm: {', '.join(said)}; x, y, yaw {self.by_wheels:.1f} "
            f"sigma, z, roll, pitch {self.by_floor:.1f} sigma"
        )

    def _parts(self, part: slice, scale: float) -> list[tuple[str, float, float]]:
        names, deviations = ("x", "y", "z", "roll", "pitch", "yaw"), np.sqrt(np.diag(self.covariance))
        return list(zip(names[part], scale * self.difference[part], scale * deviations[part], strict=True))

    def findings(self) -> list[Finding]:
        """Return what both do not agree on, beyond what their covariances explain."""
        found = []
        if self.by_wheels > DIFFERS:
            found.append(Finding(
                "arm_and_wheels_differ", f"arm and wheels do not agree: {self.sentence()}",
                "look at how the description has the arm on the base, and at the frame of the odometry; drive again on "
                "clean floor, and repeat the arm's poses",
            ))  # fmt: skip
        if self.by_floor > DIFFERS:
            found.append(Finding(
                "floors_differ", f"the file's floor and the drive's do not agree: {self.sentence()}",
                "find the floor again where the robot drove (ros_find_floor_calibration)",
            ))  # fmt: skip
        return found


def agreements(file: CalibrationFile) -> list[Agreement]:
    """Return how far the lidars by the drive are from those by the arm, for each lidar that a file has by both; none
    for a file that lacks mounts, floor or wheels, or their covariances. base_link's origin is taken to be over the
    centre of rotation, its x along the direction of driving, as REP 105 has it.

    The mounts' errors shift and turn the lidar in the plane. The floor in the file was seen from the left lidar and
    moves with it: what is uncertain of z, roll and pitch is what the clouds leave open.
    """
    mounts, wheels = stored_mounts(file), stored_wheels(file)
    known = next((file.entries[key] for key in ENTRIES if key in file.entries), None)
    if mounts is None or wheels is None or file.floor_plane is None or known is None or known.covariance is None:
        return []
    poses, covariance = every_mount(file, mounts)
    key = next(key for key in ENTRIES if key in file.entries)
    seen = numbers_of(file.data[key].get(SEEN_COVARIANCE, known.covariance), (3, 3), f"{file.path}: {key}")
    plane = file.floor_plane.facing(np.array([0.0, 0.0, 1.0]))
    found = []
    for number, (name, pose) in enumerate(poses.items()):
        if name not in wheels.footprint_from_lidar:
            continue
        both = np.r_[0:6, 6 * number : 6 * number + 6]
        uncertain = block_diag(covariance[np.ix_(both, both)], seen)
        change = np.column_stack([_over_floor_change(plane, step) for step in STEP * np.eye(15)])
        over_floor = footprint_from_base(plane) @ pose
        by_arm = change @ uncertain @ change.T
        driven, own = wheels.footprint_from_lidar[name], 6 * list(wheels.footprint_from_lidar).index(name)
        by_wheels = wheels.covariance[own : own + 6, own : own + 6]
        at_lidar = adjoint(from_xyz_rpy(-over_floor[:3, 3], (0.0, 0.0, 0.0)))
        difference = log(driven @ inverse(over_floor))
        found.append(Agreement(name, at_lidar @ difference, at_lidar @ (by_arm + by_wheels) @ at_lidar.T))
    return found


def _over_floor_change(plane: Plane, step: np.ndarray) -> np.ndarray:
    """Return the twist (6,) per `STEP` of a lidar over the floor if the left lidar and this one move by twists in
    base_link, `step` (15,), and the floor as seen from the left one by the rest."""
    moved = incremented(plane.moved(exp(step[:6])), step[12:])
    change: np.ndarray = log(footprint_from_base(moved) @ exp(step[6:12]) @ inverse(footprint_from_base(plane))) / STEP
    return change


def to_left_by_wheels(wheels: Wheels, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the transform (4, 4) of a lidar to the left one as the drive has it, and its covariance (6, 6) over twists
    in the left frame."""
    names = list(wheels.footprint_from_lidar)
    base_from_left = wheels.footprint_from_lidar["left"]
    both, change = (
        np.concatenate([6 * names.index(each) + np.arange(6) for each in ("left", name)]),
        by_poses(base_from_left),
    )
    covariance = change @ wheels.covariance[np.ix_(both, both)] @ change.T
    return inverse(base_from_left) @ wheels.footprint_from_lidar[name], covariance


def _floor(result: DrivenResult) -> FloorResult:
    """Return the floor; that of one lidar, which has no stage of its own, with what is said of the drive itself."""
    if len(result.names) > 1:
        return result.floor
    return replace(
        result.floor, refusals=result.refusals + result.floor.refusals,
        warnings=result.warnings + result.floor.warnings,
    )  # fmt: skip
