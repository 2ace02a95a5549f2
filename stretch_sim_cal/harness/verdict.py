"""The verdict: every recovered quantity beside the truth, its error and its tolerance."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.geometry.planes import floor_error
from stretch_sim_cal.geometry.transforms import SIDES, to_xyz_rpy
from stretch_sim_cal.geometry.transforms import error as transform_error
from stretch_sim_cal.harness.scenario import Scenario
from stretch_sim_cal.harness.truth import Truth


@dataclass(frozen=True)
class Quantity:
    """One judged number: `key` is its name in `result.json`, `tolerance` the bound on `error` (None: was not reached)."""

    key: str
    label: str
    unit: str
    tolerance: float
    error: float | None = None
    estimate: str = "-"
    truth: str = "-"

    @property
    def passed(self) -> bool:
        return self.error is not None and math.isfinite(self.error) and self.error <= self.tolerance

    def line(self) -> str:
        """One line for the terminal: estimate, truth, error, tolerance, verdict."""
        if self.error is None:
            return f"{self.label:<20} no result"
        return (
            f"{self.label:<20} {'PASS' if self.passed else 'FAIL'}  estimate {self.estimate}  truth {self.truth}  "
            f"error {self.error:.4g} {self.unit}".rstrip()
            + f"  tolerance {self.tolerance:g} {self.unit}".rstrip()
        )


@dataclass
class StageVerdict:
    """The judged quantities of one stage, and why it has none where it did not get there."""

    stage: str
    quantities: list[Quantity]
    reason: str = ""

    @property
    def passed(self) -> bool:
        return not self.reason and all(quantity.passed for quantity in self.quantities)


@dataclass
class Verdict:
    """The outcome of one run. `passed` tells whether the scenario's expectation was met; `reasons` why it was not."""

    scenario: Scenario
    simulator: str
    stages: dict[str, StageVerdict] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    refused: str = ""
    broken: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.reasons

    @property
    def exit_code(self) -> int:
        """0 as expected, 1 an honest no, 3 when the run itself broke (a crash, silence, time out)."""
        return 0 if self.passed else 3 if self.broken else 1

    def as_json(self) -> dict[str, Any]:
        """Return the content of `result.json`; quantities that were not reached are None."""
        result: dict[str, Any] = {
            "scenario": self.scenario.name,
            "simulator": self.simulator,
            "expected": self.scenario.expected,
            "passed": self.passed,
            "reasons": self.reasons,
            "refused": self.refused or None,
            "notes": self.notes,
        }
        for stage, verdict in self.stages.items():
            result[stage] = _stage_json(verdict)
        return result | {"seconds": self.seconds, "versions": self.versions}


def _stage_json(verdict: StageVerdict) -> dict[str, Any]:
    """Return a stage's errors by key; those of one part ("left.translation_error_mm") in a mapping of their own."""
    found: dict[str, Any] = {}
    for quantity in verdict.quantities:
        part, dot, key = quantity.key.rpartition(".")
        if dot:
            own = found.setdefault(part, {"passed": not verdict.reason})
            own[key] = quantity.error
            own["passed"] &= quantity.passed
        else:
            found[key] = quantity.error
    return found | {"passed": verdict.passed}


def unreached(stage: str, tolerances: dict[str, float], reason: str) -> StageVerdict:
    """Return the verdict of a stage that gave no result: every quantity is None."""
    return StageVerdict(stage, stage_quantities(stage, tolerances), reason)


def judge_alignment(calibration: Path, truth: Truth, tolerances: dict[str, float]) -> StageVerdict:
    """Hold the lidar-to-lidar transform in a calibration file against the truth."""
    estimate = CalibrationFile.load(calibration).right_to_left
    if estimate is None:
        return unreached("alignment", tolerances, f"{calibration} holds no right_to_left_transform")
    translation, rotation = transform_error(truth.right_to_left, estimate)
    return StageVerdict(
        "alignment",
        stage_quantities(
            "alignment",
            tolerances,
            translation_error_mm=(1e3 * translation, _xyz(estimate), _xyz(truth.right_to_left)),
            rotation_error_deg=(math.degrees(rotation), _rpy(estimate), _rpy(truth.right_to_left)),
        ),
    )


def judge_floor(calibration: Path, truth: Truth, tolerances: dict[str, float]) -> StageVerdict:
    """Hold the floor in a calibration file against the truth: height along the normal at base_link's origin, and tilt.

    A file with mounts is judged in the physical base_link, any other in that of the left lidar.
    """
    file = CalibrationFile.load(calibration)
    estimate, true = file.floor_plane, truth.for_calibration(file).floor
    if estimate is None:
        return unreached("floor", tolerances, f"{calibration} holds no floor")
    up = np.array([0.0, 0.0, 1.0])
    estimate, true = estimate.facing(up), true.facing(up)
    height, tilt = floor_error(true, estimate)
    return StageVerdict(
        "floor",
        stage_quantities(
            "floor",
            tolerances,
            height_error_mm=(
                1e3 * height,
                f"{1e3 * estimate.offset:.3f}",
                f"{1e3 * true.offset:.3f}",
            ),
            tilt_error_deg=(math.degrees(tilt), _tilts(estimate.normal), _tilts(true.normal)),
        ),
    )


def judge_mounts(calibration: Path, truth: Truth, tolerances: dict[str, float]) -> StageVerdict:
    """Hold where both lidars are said to be in base_link against where they really are."""
    mounts = stored_mounts(CalibrationFile.load(calibration))
    if mounts is None:
        return unreached("mounts", tolerances, f"{calibration} holds no mounts of the lidars")
    values = {}
    for side, true in (("left", truth.base_link_from_lidar_left), ("right", truth.base_link_from_lidar_right)):
        estimate = mounts.base_from_lidar[side]
        translation, rotation = transform_error(true, estimate)
        values[f"{side}.translation_error_mm"] = (1e3 * translation, _xyz(estimate), _xyz(true))
        values[f"{side}.rotation_error_deg"] = (math.degrees(rotation), _rpy(estimate), _rpy(true))
    return StageVerdict("mounts", stage_quantities("mounts", tolerances, **values))


# Per stage: key in result.json, label, unit, and the tolerance's key in the scenario.
QUANTITIES = {
    "alignment": (
        ("translation_error_mm", "lidars: translation", "mm", "translation_mm"),
        ("rotation_error_deg", "lidars: rotation", "deg", "rotation_deg"),
    ),
    "floor": (
        ("height_error_mm", "floor: height", "mm", "height_mm"),
        ("tilt_error_deg", "floor: tilt", "deg", "tilt_deg"),
    ),
    "mounts": tuple(
        (f"{side}.{key}", f"{side} mount: {what}", unit, bound)
        for side in SIDES
        for key, what, unit, bound in (
            ("translation_error_mm", "translation", "mm", "translation_mm"),
            ("rotation_error_deg", "rotation", "deg", "rotation_deg"),
        )
    ),
    "body_shape": (
        ("max_protrusion_mm", "body: protrusion", "mm", "protrusion_mm"),
        ("excess_area_ratio", "body: area ratio", "", "excess_area_ratio"),
    ),
}


def stage_quantities(stage: str, tolerances: dict[str, float], **values: tuple[float, str, str]) -> list[Quantity]:
    nothing = (None, "-", "-")
    return [
        Quantity(key, label, unit, tolerances[bound], *values.get(key, nothing))
        for key, label, unit, bound in QUANTITIES[stage]
    ]


def _xyz(transform: np.ndarray) -> str:
    return "(" + ", ".join(f"{1e3 * value:.2f}" for value in transform[:3, 3]) + ")"


def _rpy(transform: np.ndarray) -> str:
    return "(" + ", ".join(f"{math.degrees(value):.3f}" for value in to_xyz_rpy(transform)[1]) + ")"


def _tilts(normal: np.ndarray) -> str:
    return (
        f"({math.degrees(-math.atan2(normal[1], normal[2])):.3f}, {math.degrees(math.atan2(normal[0], normal[2])):.3f})"
    )
