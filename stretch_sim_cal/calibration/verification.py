"""Does a stored calibration still hold on fresh data? Yes, no, or cannot tell, with the drift and its uncertainty.

The calibration is found anew from a few frames and compared. If it is known which errors the lidars had then
(`observations.py`), they are taken out, not estimated again: what they leave open is the same then and now, and no drift. A drift is judged with `SIGMAS` standard deviations of both
results together: beyond the tolerance by all of them it has drifted, within by all of them it holds, between it is open.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.calibration_file import FLOOR, RIGHT_TO_LEFT, SEEN_COVARIANCE, CalibrationFile
from stretch_sim_cal.calibration.methods import alignment_method, floor_method
from stretch_sim_cal.calibration.mounts.file import seen_from, with_units
from stretch_sim_cal.calibration.observations import load_beside
from stretch_sim_cal.calibration.results import AlignmentResult, FloorResult
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import floor_error
from stretch_sim_cal.geometry.transforms import error
from stretch_sim_cal.sensor.sensor import Sensor

SIGMAS = 3.0
HOLDS, DRIFTED, CANNOT_TELL = "holds", "drifted", "cannot tell"


@dataclass(frozen=True)
class Tolerances:
    """How far the calibration may have moved and still be said to hold: m and rad."""

    length: float = 2e-3
    angle: float = math.radians(0.1)


@dataclass(frozen=True)
class Drift:
    """How far one number of the calibration has moved: `value`, `standard_deviation` and `tolerance` in m or rad."""

    name: str
    value: float
    standard_deviation: float
    tolerance: float
    angular: bool

    @property
    def verdict(self) -> str:
        """One of `HOLDS`, `DRIFTED`, `CANNOT_TELL`."""
        if self.value + SIGMAS * self.standard_deviation <= self.tolerance:
            return HOLDS
        return DRIFTED if self.value - SIGMAS * self.standard_deviation > self.tolerance else CANNOT_TELL

    def sentence(self) -> str:
        """Return the drift as one line, in mm or deg."""
        scale, unit = (math.degrees(1.0), "deg") if self.angular else (1e3, "mm")
        return (
            f"{self.name}: {scale * self.value:.3f} {unit}, standard deviation {scale * self.standard_deviation:.3f} {unit}, "
            f"tolerance {scale * self.tolerance:g} {unit}: {self.verdict}"
        )


@dataclass
class Verification:
    """The drifts that could be measured, and `open_questions`: why others could not."""

    drifts: list[Drift] = field(default_factory=list)
    open_questions: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """`DRIFTED` where anything has, else `CANNOT_TELL` where anything is open, else `HOLDS`."""
        verdicts = {drift.verdict for drift in self.drifts}
        if DRIFTED in verdicts:
            return DRIFTED
        return CANNOT_TELL if self.open_questions or CANNOT_TELL in verdicts or not verdicts else HOLDS


@dataclass
class FoundAnew:
    """Alignment and floor found anew from fresh pairs: results or, as `open_questions`, why there is none. `file` is the stored
    calibration, its floor as it is with what is known of the lidars' errors; `same_lidars` says that these are known, and
    taken out then and now."""

    file: CalibrationFile
    same_lidars: bool
    aligned: AlignmentResult | None = None
    floor: FloorResult | None = None
    open_questions: list[str] = field(default_factory=list)


def found_anew(
    file: CalibrationFile,
    pairs: Iterable[tuple[np.ndarray, np.ndarray]],
    base_from_left: np.ndarray,
    nominal_footprint_from_base: np.ndarray,
    sensor: Sensor | None = None,
) -> FoundAnew:
    """Find alignment and floor anew; arguments and errors are those of `verify`."""
    if file.right_to_left is None:
        raise InputError(f"{file.path}: holds no alignment of the lidars to verify; run ros_align_dual_lidar first")
    pairs = list(pairs)
    known = load_beside(file.path, file.right_to_left)
    units = None if known is None else known.units
    found = FoundAnew(file, known is not None)
    settings = AlignmentSettings(base_from_left=base_from_left, sensor=sensor, units=units)
    alignment = alignment_method()(file.right_to_left, settings)
    for left, right in pairs:
        alignment.add(left, right)
    aligned = alignment.solve()
    if not aligned.accepted:
        found.open_questions += [f"lidars: {reason}" for reason in aligned.refusals]
        return found
    found.aligned = aligned
    if file.floor_plane is None:
        return found
    # Through today's alignment, so that a drift of the lidars does not read as one of the floor.
    settings = FloorSettings(sensor=sensor, units=units, observations=aligned.known)
    base_from_left = seen_from(file, base_from_left)
    method = floor_method()(base_from_left, aligned.right_to_left, nominal_footprint_from_base, settings)
    for left, right in pairs:
        method.add(left, right)
    floor = method.solve()
    if not floor.accepted:
        found.open_questions += [f"floor: {reason}" for reason in floor.refusals]
        return found
    found.floor = floor
    if known is not None and known.floor is not None:
        found.file = with_units(file, known.floor, known.units, np.zeros((len(known.floor.scalars),) * 2))
    return found


def verify(
    file: CalibrationFile,
    pairs: Iterable[tuple[np.ndarray, np.ndarray]],
    base_from_left: np.ndarray,
    nominal_footprint_from_base: np.ndarray,
    tolerances: Tolerances = Tolerances(),
    sensor: Sensor | None = None,
) -> Verification:
    """Hold the calibration in `file` against fresh pairs of clouds (N, 3 or 5) of lidars of a kind (`sensor`), each in its own lidar's frame.

    The floor is only looked at where the lidars' alignment could be; `base_from_left` and
    `nominal_footprint_from_base` (4, 4) are the description's. Raises `InputError` where the file holds no alignment.
    """
    found = found_anew(file, pairs, base_from_left, nominal_footprint_from_base, sensor)
    verification = Verification(open_questions=found.open_questions)
    if found.aligned is not None:
        verification.drifts += _alignment_drifts(file, found.aligned, tolerances, found.same_lidars)
    if found.floor is not None:
        verification.drifts += _floor_drifts(found.file, found.floor, tolerances, found.same_lidars)
    return verification


def _alignment_drifts(file: CalibrationFile, result, tolerances: Tolerances, same_lidars: bool) -> list[Drift]:
    translation, rotation = error(file.right_to_left, result.right_to_left)
    covariance = result.covariance + (result.covariance if same_lidars else _stored_covariance(file, RIGHT_TO_LEFT, 6))
    return [
        Drift("lidars, translation", translation, _largest(covariance[:3, :3]), tolerances.length, False),
        Drift("lidars, rotation", rotation, _largest(covariance[3:, 3:]), tolerances.angle, True),
    ]


def _floor_drifts(file: CalibrationFile, result, tolerances: Tolerances, same_lidars: bool) -> list[Drift]:
    height, tilt = floor_error(file.floor_plane, result.plane)
    covariance = result.covariance + (result.covariance if same_lidars else _stored_covariance(file, FLOOR, 3))
    return [
        Drift("floor, height", height, math.sqrt(covariance[0, 0]), tolerances.length, False),
        Drift("floor, tilt", tilt, _largest(covariance[1:, 1:]), tolerances.angle, True),
    ]


def _stored_covariance(file: CalibrationFile, entry: str, size: int) -> np.ndarray:
    """Return the stored result's own covariance; a published file has none, which adds nothing.

    A floor is compared with one that is seen from the same pose of the left lidar, whose uncertainty is left out.
    """
    covariance = file.entries[entry].covariance if entry in file.entries else None
    if covariance is None:
        return np.zeros((size, size))
    return np.array(file.data[entry].get(SEEN_COVARIANCE, covariance), dtype=float)


def _largest(covariance: np.ndarray) -> float:
    return float(np.sqrt(np.linalg.eigvalsh(covariance)[-1]))
