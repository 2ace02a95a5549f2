"""The verdict: the results of a run beside the truth that only the simulator knows, with errors and tolerances."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.calibration.body.model import load_body_shape_model
from stretch_sim_cal.calibration.body.returns import HIGHEST, LOWEST, between_heights
from stretch_sim_cal.calibration.body.shape import enclosing_shape
from stretch_sim_cal.calibration.calibration_file import FOOTPRINT, TO_LEFT, CalibrationFile
from stretch_sim_cal.calibration.drive_results import stored_wheels
from stretch_sim_cal.calibration.mounts.file import each_mount, stored_mounts
from stretch_sim_cal.calibration.mounts.result import at_lidar
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import UP, Plane, floor_between, floor_error, footprint_from_base
from stretch_sim_cal.geometry.points import convex_hull
from stretch_sim_cal.geometry.transforms import SIDES, check_rigid, inverse, log, to_xyz_rpy
from stretch_sim_cal.geometry.transforms import error as transform_error
from stretch_sim_cal.harness.fitted_body import RobotBody
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.scenario import WRONG, Scenario, quantities_of
from stretch_sim_cal.recording.dataset import METADATA, read_dataset, read_metadata
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.profile import GEOMETRIES, profile_called
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.truth import nees

SKIPPED_SHOWN = 4


@dataclass(frozen=True)
class RunTruth:
    """True poses (4, 4) of the lidars by name in the physical base_link, where the description has them, and the true
    floor.

    With `mounts_known` the calibration that is judged is in the physical base_link, else in the one in which the left
    lidar has its described pose. `robot` is the name or path of the robot's profile, None for the Stretch;
    `lidar_geometry` what the simulated lidars see, as in a profile."""

    base_from_lidar: Mapping[str, np.ndarray]
    nominal_base_from_lidar: Mapping[str, np.ndarray]
    floor_in_base_link: Plane
    description_file: Path
    mounts_known: bool = False
    robot: str | None = None
    lidar_geometry: str = GEOMETRIES[0]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.base_from_lidar)

    @property
    def to_left(self) -> dict[str, np.ndarray]:
        """The true transforms (4, 4) of the other lidars to the left one."""
        return _to_left(self.base_from_lidar)

    @property
    def nominal_to_left(self) -> dict[str, np.ndarray]:
        return _to_left(self.nominal_base_from_lidar)

    @property
    def lidar_base_from_base(self) -> np.ndarray:
        """From the physical base_link into the one in which the calibration is expressed."""
        if self.mounts_known:
            return np.eye(4)
        return self.nominal_base_from_lidar["left"] @ inverse(self.base_from_lidar["left"])

    @property
    def floor(self) -> Plane:
        """The true floor in the base_link in which the calibration is expressed."""
        return self.floor_in_base_link.moved(self.lidar_base_from_base)

    @property
    def footprint_from_base_link(self) -> np.ndarray:
        """From the physical base_link into the true base_footprint of the calibration's base_link."""
        return footprint_from_base(self.floor) @ self.lidar_base_from_base

    def for_calibration(self, file: CalibrationFile) -> "RunTruth":
        return replace(self, mounts_known=stored_mounts(file) is not None)


def _to_left(base_from_lidar: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    left_from_base = inverse(base_from_lidar["left"])
    return {name: left_from_base @ pose for name, pose in base_from_lidar.items() if name != "left"}


def load_truth(path: str | Path) -> RunTruth:
    """Return the truth in a simulator's JSON file. Raises `InputError` for a file that is not one."""
    try:
        data = json.loads(files.read_text(path))
        floor, file = data["floor_in_base_link"], Path(path).parent / data["description_file"]
        plane, poses = Plane.from_coefficients(floor["normal"], floor["offset"]), []
        for of in ("", "nominal_"):
            keys = {side: f"{of}base_link_from_lidar_{side}" for side in SIDES}
            given = {side: data[key] for side, key in keys.items() if key in data} | data.get(f"{of}lidars", {})
            name = f"{path}: {of.replace('_', ' ')}pose of lidar"
            poses.append({lidar: check_rigid(pose, f"{name} {lidar}") for lidar, pose in given.items()})
        geometry = data.get("lidar_geometry", GEOMETRIES[0])
        return RunTruth(*poses, plane, file, robot=data.get("robot"), lidar_geometry=geometry)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {error.lineno} is not valid JSON: {error.msg}") from error
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: is not a simulator's truth: {error} is missing or of a wrong kind") from error


@dataclass(frozen=True)
class Quantity:
    """One compared quantity: its `key` in `result.json`, the bound on its `error` (None: not reached), the error's
    standard deviation by the result's covariance, if it has one, and what to say if it is exceeded. `passed` is the
    judgement of scenarios, CI, launch tests and `assert_calibrated`."""

    key: str
    label: str
    unit: str
    tolerance: float
    error: float | None = None
    estimate: str = "-"
    truth: str = "-"
    standard_deviation: float | None = None
    exceeded: str = WRONG

    @property
    def passed(self) -> bool:
        return self.error is not None and math.isfinite(self.error) and self.error <= self.tolerance

    def complaint(self, producer: str) -> str:
        """Return why a run with this error, by the programs that are the `producer`, fails."""
        given = vars(self) | {"error": f"{self.error:.4g} {self.unit}".rstrip(), "producer": producer}
        return self.exceeded.format(**given)

    def line(self) -> str:
        """One line for the terminal, in columns: verdict, error, tolerance, estimate, truth."""
        if self.error is None:
            return f"{self.label:<24} no result"
        error, tolerance = f"{self.error:.3g} {self.unit}", f"{self.tolerance:g} {self.unit}"
        return (
            f"{self.label:<24} {'PASS' if self.passed else 'FAIL'}  error {error:<11}  tolerance {tolerance:<8}  "
            f"estimate {self.estimate}  truth {self.truth}"
        )


@dataclass
class StageVerdict:
    """The compared quantities of one stage; `reason` is why there is no result, if there is none."""

    stage: str
    quantities: list[Quantity]
    reason: str = ""

    @property
    def passed(self) -> bool:
        return not self.reason and all(quantity.passed for quantity in self.quantities)

    def as_json(self) -> dict[str, Any]:
        """Return the errors by key; those of one part ("left.translation_error_mm") in a mapping of their own."""
        found: dict[str, Any] = {}
        for quantity in self.quantities:
            part, dot, key = quantity.key.rpartition(".")
            own = found.setdefault(part, {"passed": not self.reason}) if dot else found
            own[key] = quantity.error
            if dot:
                own["passed"] &= quantity.passed
        return found | {"passed": self.passed}


@dataclass
class Verdict:
    """The outcome of one run. `passed` is whether the scenario's expectation was met; `reasons` why it was not."""

    scenario: Scenario
    simulator: str
    stages: dict[str, StageVerdict] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    refused: str = ""
    broken: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    refusals: list[Mapping[str, str]] = field(default_factory=list)
    """Each a `Finding` as JSON."""
    warnings: list[dict[str, str]] = field(default_factory=list)
    """Of the programs, each a `Finding` as JSON with its `stage`."""
    backend: str = "nodes"

    @property
    def passed(self) -> bool:
        return not self.reasons

    @property
    def exit_code(self) -> int:
        """0 as expected, 1 rejected, 3 when the run itself broke (a crash, silence, time out)."""
        return 0 if self.passed else 3 if self.broken else 1

    def as_json(self) -> dict[str, Any]:
        """Return the content of `result.json`; quantities that were not reached are None."""
        same = ("label", "unit", "error", "standard_deviation", "tolerance", "passed")
        quantities = [
            {"key": f"{stage}.{each.key}"} | {name: getattr(each, name) for name in same}
            for stage, verdict in self.stages.items() for each in verdict.quantities
        ]  # fmt: skip
        return {
            "scenario": self.scenario.name, "simulator": self.simulator, "backend": self.backend,
            "expected": self.scenario.expected, "passed": self.passed, "reasons": self.reasons,
            "refused": self.refused or None, "notes": self.notes, "warnings": self.warnings,
            **{stage: verdict.as_json() for stage, verdict in self.stages.items()},
            "quantities": quantities, "seconds": self.seconds, "versions": self.versions,
        }  # fmt: skip


Compared = dict[str, tuple[float, str, str] | tuple[float, str, str, float]]
"""By a quantity's key: error, estimate, truth, and the error's standard deviation if the result has a covariance."""


def judge_stage(stage: str, files: RunFiles, truth: RunTruth | None, tolerances: dict[str, float]) -> StageVerdict:
    """Compare the result of a stage with the truth; without one that can be read no quantity has an error."""
    product = files.body_shape_model if stage == "body_shape" else files.calibration
    compared: Compared = {}
    reason = ""
    if truth is None or not product.is_file():
        reason = f"the run ended before {product.name} was written"
    else:
        try:
            compared = COMPARISONS[stage](files, truth)
            if "skipped_share" in tolerances:
                metadata = read_metadata(files.mounts_dataset if stage == "mounts" else files.dataset)
                skipped, taken = len(metadata.get("skipped") or []), len(metadata["samples"])
                shown = f"{skipped} of {_counted(skipped + taken, 'pose')}"
                compared["skipped_share"] = skipped / max(1, skipped + taken), shown, "none"
        except InputError as error:
            reason = f"the written result cannot be checked: {error}"
    quantities = [
        Quantity(key, label, of.unit, tolerances[of.name], *compared.get(key, ()), exceeded=of.exceeded)
        for key, label, of in quantities_of(stage, SIDES if truth is None else truth.names)
        if of.name in tolerances
    ]
    return StageVerdict(stage, quantities, reason)


def _compared_alignment(files: RunFiles, truth: RunTruth) -> Compared:
    file = CalibrationFile.load(files.calibration)
    found: Compared = {}
    for name, true in truth.to_left.items():
        if name not in file.to_left:
            raise InputError(f"{files.calibration} has no {name}{TO_LEFT}")
        part = "" if name == "right" else f"{name}."
        covariance = _covariance(file, f"{name}{TO_LEFT}")  # None of a published method
        found |= _compared_poses(true, file.to_left[name], part, covariance)
    return found


def _covariance(file: CalibrationFile, key: str) -> np.ndarray | None:
    return file.entries[key].covariance if key in file.entries else None


def _compared_nees(off: np.ndarray, covariance: np.ndarray, of: str = "") -> tuple[float, str, str]:
    """Compare an error (n,) with its covariance (n, n)."""
    return nees(off, covariance), f"covariance {of or f'over {len(off)} values'}", "1 on average"


def _compared_poses(
    true: np.ndarray, estimate: np.ndarray, part: str, covariance: np.ndarray | None, of: str = ""
) -> Compared:
    """Compare poses (4, 4); `covariance` (6, 6) is of the twist xi of true = exp(xi) * estimate."""
    translation, rotation = transform_error(true, estimate)
    deviations, found = [], {}
    if covariance is not None:
        of_xyz, of_turn = np.sqrt(np.diag(at_lidar(covariance, estimate)).reshape(2, 3).sum(axis=1)).tolist()
        deviations = [1e3 * of_xyz, math.degrees(of_turn)]
        found = {f"{part}nees": _compared_nees(log(true @ inverse(estimate)), covariance, of)}
    places = [_shown(1e3 * pose[:3, 3], 2) for pose in (estimate, true)]
    turns = [_shown(np.degrees(to_xyz_rpy(pose)[1]), 3) for pose in (estimate, true)]
    return {
        f"{part}translation_error_mm": (1e3 * translation, *places, *deviations[:1]),
        f"{part}rotation_error_deg": (math.degrees(rotation), *turns, *deviations[1:]),
        **found,
    }


def _compared_floor(files: RunFiles, truth: RunTruth) -> Compared:
    """Compare height along the normal at base_link's origin, and tilt."""
    file = CalibrationFile.load(files.calibration)
    if file.floor_plane is None:
        raise InputError(f"{files.calibration} has no floor")
    estimate, true = (plane.facing(UP) for plane in (file.floor_plane, truth.for_calibration(file).floor))
    height, tilt = floor_error(true, estimate)
    offsets, tilts = [], []
    for plane in (estimate, true):
        x, y, z = plane.normal
        offsets.append(f"{1e3 * plane.offset:.3f}")
        tilts.append(_shown(np.degrees([-math.atan2(y, z), math.atan2(x, z)]), 3))
    deviations, found = [], {}
    if (covariance := _covariance(file, FOOTPRINT)) is not None:
        off, *turned = np.sqrt(np.diag(covariance)).tolist()
        deviations = [1e3 * off, math.degrees(math.hypot(*turned))]
        found = {"nees": _compared_nees(floor_between(estimate, true), covariance)}
    return {
        "height_error_mm": (1e3 * height, *offsets, *deviations[:1]),
        "tilt_error_deg": (math.degrees(tilt), *tilts, *deviations[1:]),
        **found,
    }


def _compared_mounts(files: RunFiles, truth: RunTruth) -> Compared:
    file = CalibrationFile.load(files.calibration)
    mounts = stored_mounts(file)
    if mounts is None:
        raise InputError(f"{files.calibration} has no mounts of the lidars")
    true = {name: truth.base_from_lidar[name] for name in truth.names}
    poses = {name: pose for name, pose in mounts.base_from_lidar.items() if name in true}
    off = np.concatenate([log(true[name] @ inverse(pose)) for name, pose in poses.items()])
    columns = np.concatenate([6 * list(mounts.base_from_lidar).index(name) + np.arange(6) for name in poses])
    covariance = mounts.covariance[np.ix_(columns, columns)]
    found: Compared = {"nees": _compared_nees(off, covariance, f"over the lidars: {' and '.join(poses)}")}
    for name, (pose, covariance) in each_mount(file, mounts).items():
        if name in true:
            found |= _compared_poses(true[name], pose, f"{name}.", covariance, f"of lidar {name}")
    return found


def _compared_drive(files: RunFiles, truth: RunTruth) -> Compared:
    """Compare the lidars with each other, the floor, and each lidar's x, y and yaw against the wheels."""
    wheels = stored_wheels(CalibrationFile.load(files.calibration))
    if wheels is None:
        raise InputError(f"{files.calibration} has no poses of the lidars relative to the wheels")
    found = _compared_alignment(files, truth) if "right" in truth.names else {}
    found |= {"floor_nees" if key == "nees" else key: said for key, said in _compared_floor(files, truth).items()}
    over_floor = footprint_from_base(truth.floor_in_base_link.facing(UP))
    for name in truth.names:
        if name not in wheels.footprint_from_lidar:
            raise InputError(f"{files.calibration} has no pose of the {name} lidar relative to the wheels")
        estimate, covariance = wheels.planar(name)
        pose = over_floor @ truth.base_from_lidar[name]
        values = np.array([pose[0, 3], pose[1, 3], math.atan2(pose[1, 0], pose[0, 0])])
        off = values - estimate
        off[2] = math.remainder(off[2], 2.0 * math.pi)
        deviations = np.sqrt(np.diag(covariance))
        levers = [_shown(1e3 * planar[:2], 2) for planar in (estimate, values)]
        yaws = [f"{math.degrees(yaw):.3f}" for _, _, yaw in (estimate, values)]
        found |= {
            f"{name}.lever_error_mm": (1e3 * math.hypot(*off[:2]), *levers, 1e3 * math.hypot(*deviations[:2])),
            f"{name}.yaw_error_deg": (math.degrees(abs(off[2])), *yaws, math.degrees(deviations[2])),
            f"{name}.wheels_nees": _compared_nees(off, covariance),
        }
    return found


def _compared_body_shape(files: RunFiles, truth: RunTruth) -> Compared:
    """Compare a fitted body shape with the true outline at the joint values of every sample.

    Protrusion is how far the true outline reaches outside the shape. The excess area ratio is the largest of the fitted
    areas over that of the smallest shape of the same kind around the true outlines of the same grid point."""
    method = load_body_shape_model(files.body_shape_model).shape_fitting_method
    poses = posed_outlines(files, truth)
    if not poses:
        raise InputError(f"{files.dataset}: has no sample")
    groups: dict[tuple[float, ...], list[dict]] = {}
    for pose in poses:
        groups.setdefault(tuple(np.round(pose["fitted"].vector, 9)), []).append(pose)
    ratios = []
    for group in groups.values():
        smallest = enclosing_shape(np.vstack([pose["truth"] for pose in group]), method)
        ratios.append(group[0]["fitted"].area / smallest.area)
    worst = max(pose["protrusion"] for pose in poses)
    return {
        "max_protrusion_mm": (1e3 * worst, _counted(len(poses), "pose"), "nothing outside"),
        "excess_area_ratio": (max(ratios), _counted(len(groups), "shape"), f"smallest {method}"),
    }


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"


def skipped_poses(files: RunFiles) -> list[str]:
    """Return a sentence for each stage some of whose planned poses were left out, with the first of them and why."""
    found = []
    robot = load_truth(files.truth).robot if files.truth.is_file() else None
    for stage, directory in (("mounts", files.mounts_dataset), ("body_shape", files.dataset)):
        if (directory / METADATA).is_file() and (skipped := read_metadata(directory).get("skipped")):
            shown = [f"{', '.join(_joint_values(each['commanded'], robot))} ({each['reason']})" for each in skipped]
            shown[SKIPPED_SHOWN:] = ["..."] if len(skipped) > SKIPPED_SHOWN else []
            found.append(f"{stage}: {len(skipped)} planned poses were skipped: {'; '.join(shown)}")
    return found


COMPARISONS = {
    "alignment": _compared_alignment, "floor": _compared_floor, "mounts": _compared_mounts,
    "body_shape": _compared_body_shape, "drive": _compared_drive,
}  # fmt: skip


def _shown(values: Sequence[float], digits: int) -> str:
    return f"({', '.join(f'{value:.{digits}f}' for value in values)})"


def outline_of(surfaces: Iterable[Surface]) -> np.ndarray:
    """Return the corners (K, 2) of the convex outline of surfaces in base_footprint."""
    return convex_hull(np.concatenate([between_heights(each.triangles, LOWEST, HIGHEST) for each in surfaces]))


def posed_outlines(files: RunFiles, truth: RunTruth) -> list[dict]:
    """Return for every sample of a run `parts`, a text for each joint's value, its true outline `truth` (K, 2), returns
    `points` (N, 2), fitted shape `fitted`, its boundary `shape` (M, 2) and `protrusion` in m, in the base_footprint of
    the run's calibration."""
    model = load_body_shape_model(files.body_shape_model)
    footprint_from_base = truth.for_calibration(CalibrationFile.load(files.calibration)).footprint_from_base_link
    profile = replace(profile_called(truth.robot), lidar_geometry=truth.lidar_geometry)
    robot = RobotBody(load_model(truth.description_file), footprint_from_base, profile)
    poses = []
    for sample in read_dataset(files.dataset).samples:
        fitted, frames = model.shape_for(sample.commanded), robot.transforms(sample.joints)
        outline = outline_of(surface.moved(frames[link]) for link, surface in robot.outline.items())
        x, y, z = sample.points.T
        near = (z > LOWEST) & (z < HIGHEST) & (np.hypot(x, y) < 1.5)
        poses.append({
            "parts": _joint_values(sample.commanded, truth.robot), "truth": outline, "points": sample.points[near, :2],
            "fitted": fitted, "shape": fitted.outline(200), "protrusion": fitted.protrusion(outline),
        })  # fmt: skip
    return poses


def _joint_values(commanded: Mapping[str, float], robot: str | None) -> list[str]:
    """Return a text for each joint's value: m of linear joints, deg of others."""
    linear = {joint.name for joint in profile_called(robot).joints if joint.linear}
    return [
        f"{joint} {value:.2f} m" if joint in linear else f"{joint} {math.degrees(value):.0f} deg"
        for joint, value in commanded.items()
    ]
