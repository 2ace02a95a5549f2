"""What a drive found, as stages that a command tells one by one, and as it goes into the calibration file."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from stretch_sim_cal import validate
from stretch_sim_cal.calibration import summaries
from stretch_sim_cal.calibration.array import with_lidars
from stretch_sim_cal.calibration.calibration_entries import WHEELS, numbers_of
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.driving import DrivenResult, Wheels
from stretch_sim_cal.calibration.mounts.file import with_floor
from stretch_sim_cal.calibration.results import FloorResult


class Stage(NamedTuple):
    """A part of a result: its `name`, the `found` object with refusals and warnings, its `numbers` and `lines`."""

    name: str
    found: Any
    numbers: dict[str, Any]
    lines: list[str]


def drive_stages(
    result: DrivenResult, described: Mapping[str, np.ndarray], footprint_from_base: np.ndarray
) -> list[Stage]:
    """Return lidar to lidar (of two or more), the floor and the wheels, as far as the result has them; the lidars'
    poses (4, 4) in base_link and base_footprint are as `described`."""
    stages = []
    if len(described) > 1:
        numbers = summaries.array_numbers(result, described)
        stages.append(Stage("lidars", result, numbers, summaries.array_lines(result, numbers)))
    floor = _floor(result)
    numbers = summaries.floor_numbers(floor, footprint_from_base)
    stages.append(Stage("floor", floor, numbers, summaries.floor_lines(floor, numbers)))
    if result.wheels is not None:
        numbers = summaries.wheels_numbers(result.wheels)
        stages.append(Stage("wheels", result.wheels, numbers, summaries.wheels_lines(result.wheels, numbers)))
    return stages


def with_drive(
    file: CalibrationFile, result: DrivenResult, robot_id: str, described: Mapping[str, np.ndarray]
) -> CalibrationFile:
    """Return the file with all that `drive_stages` tells. Raises `Refused` if any of it carries refusals."""
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


def _floor(result: DrivenResult) -> FloorResult:
    """Return the floor; that of one lidar, which has no stage of its own, with what is said of the drive itself."""
    if len(result.names) > 1:
        return result.floor
    return replace(
        result.floor, refusals=result.refusals + result.floor.refusals,
        warnings=result.warnings + result.floor.warnings,
    )  # fmt: skip
