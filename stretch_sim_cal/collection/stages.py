"""The stages of a calibration as nodes and commands run them, from clouds to the calibration file. They differ in their
options, in where warnings go, and in the `Source` of clouds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from stretch_sim_cal.calibration import pipeline
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.drive_results import Agreement, agreements, drive_stages, with_drive
from stretch_sim_cal.calibration.driving import DrivenArray, DrivenResult, DrivingSettings
from stretch_sim_cal.calibration.lidars import DescribedLidar, with_lidars
from stretch_sim_cal.calibration.mounts.file import stored_mounts, with_floor, with_mounts
from stretch_sim_cal.calibration.mounts.robot import SCANS, MountedRobot, with_left_checked
from stretch_sim_cal.calibration.observations import Observations, known_alignment, load_beside
from stretch_sim_cal.calibration.pipeline import Clouds
from stretch_sim_cal.calibration.results import LidarPoses
from stretch_sim_cal.calibration.summaries import Stage, alignment_stage, floor_stage, mounts_stage
from stretch_sim_cal.command import one_line, refuse
from stretch_sim_cal.robot.profile import RobotProfile

Change = Callable[[CalibrationFile], CalibrationFile]
Lidars = Mapping[str, DescribedLidar]


@dataclass(frozen=True)
class Outcome:
    """What a calibration came to: its `stages`, how these `change` the calibration file, and the `observations` that go
    beside it. `written` names the parts that are written, if not all stages are; `agreements` are with what the file
    has by the arm; `note` is what could not be checked, and why."""

    stages: list[Stage]
    change: Change
    observations: Observations | None = None
    written: Sequence[str] = ()
    agreements: Sequence[Agreement] = ()
    note: str = ""

    @property
    def accepted(self) -> bool:
        return all(stage.result.accepted for stage in self.stages)

    @property
    def warnings(self) -> list[Any]:
        found = [each for stage in self.stages for each in stage.result.warnings]
        return found + [each for agreement in self.agreements for each in agreement.findings()]

    @property
    def refusals(self) -> list[Any]:
        return [each for stage in self.stages for each in stage.result.refusals]

    def then(self, later: "Outcome") -> "Outcome":
        """Return this and a `later` outcome as one, with the later one's observations."""
        stages = [*self.stages, *later.stages]
        return replace(later, stages=stages, change=lambda file: later.change(self.change(file)))


class Source(Protocol):
    """A robot, live or recorded: its `description` (URDF, None while it is unknown), the `described` poses (4, 4) of
    the lidars in base_link, and the settings of its `body`."""

    profile: RobotProfile
    description: str | None
    described: Mapping[str, np.ndarray]
    footprint_from_base: np.ndarray
    body: Mapping[str, Any]


def align(
    source: Source, method: Any, lidars: Lidars, clouds: Iterable[Clouds], joints: Mapping[str, float],
    file: CalibrationFile, robot_id: str, further: Iterable[Iterable[Clouds]] = (),
) -> Outcome:  # fmt: skip
    """Return the alignment of `lidars` by a method (`alignment_of`) from `clouds`, and those of `further` standing
    places. Its note is why the left lidar's extrinsics were not checked, "" if they were. `joints` (m, rad) may fill up
    while clouds are taken."""
    if len(lidars) == 1:
        stage = alignment_stage(method.solve(), {})
        return Outcome([stage], lambda file: with_lidars(file, stage.result, robot_id))
    seen: list[Clouds] = []
    for each in clouds:
        method.add(each)
        seen += [each] if len(seen) < SCANS else []
    for place in further:
        method.new_place()
        for each in place:
            method.add(each)
    sensors = tuple(lidar.sensor for lidar in lidars.values())
    of_robot = source.description, joints, file, sensors, source.profile
    result, unchecked = with_left_checked(method.solve(), seen, *of_robot)
    gain = method.another_place() if result.accepted else None
    stage = alignment_stage(result, source.described, gain)
    return Outcome([stage], lambda file: with_lidars(file, result, robot_id), result.observations, note=unchecked)


def find_floor(
    source: Source, method: str, lidars: Lidars, clouds: Iterable[Clouds], file: CalibrationFile,
    described_left: np.ndarray, robot_id: str, aligned: LidarPoses | None = None,
) -> Outcome:  # fmt: skip
    """Return the floor by lidars at the poses of their alignment, `aligned` or as the `file` has it."""
    known = aligned.known if aligned else known_alignment(file, tuple(lidars))
    observations = aligned.observations if aligned else load_beside(file)
    footprint = source.footprint_from_base
    floor = pipeline.solved(pipeline.LidarFloor(method, lidars, footprint, source.body, known), clouds)
    return Outcome(
        [floor_stage(floor, footprint)], lambda file: with_floor(file, floor, robot_id, described_left),
        observations and replace(observations, floor=floor.by_units),
    )  # fmt: skip


def by_mounts(result: Any, robot: MountedRobot, settings: Any, file: CalibrationFile, robot_id: str) -> Outcome:
    """Return what the lidars' extrinsics of a robot come to beside what the `file` has."""
    known, left = load_beside(file), robot.nominal["left"]
    return Outcome(
        [mounts_stage(result, robot, settings, file)],
        lambda file: with_mounts(file, result, robot_id, left, observations=known),
        known and known.better(result.units),
    )


def solve_drive(
    source: Source, lidars: Lidars, stations: Iterable[Any], accept: tuple[float, float] | None
) -> DrivenResult:  # fmt: skip
    base = source.profile.base
    settings = DrivingSettings() if base is None else DrivingSettings(track_width=base.track_width)
    return pipeline.driven(DrivenArray(lidars, source.footprint_from_base, settings, source.body, accept), stations)


def drive(source: Source, found: DrivenResult, file: CalibrationFile, robot_id: str, wheels: bool = True) -> Outcome:
    """Return what the result `found` of a drive comes to; if the `file` has extrinsics by the arm, the wheels alone are
    written. Without `wheels`, of which a robot that only turned knows too little, lidars and floor are."""
    footprint, described, by_arm = source.footprint_from_base, source.described, stored_mounts(file) is not None
    result = found if wheels or by_arm else replace(found, wheels=None)
    stages = drive_stages(result, described, footprint)

    def change(file: CalibrationFile) -> CalibrationFile:
        return with_drive(file, result, robot_id, described)

    outcome = Outcome(stages, change)
    if not by_arm:
        return outcome
    return replace(outcome, written=["wheels"], agreements=agreements(change(file)) if outcome.accepted else [])


def tell(outcome: Outcome, warn: Callable[[str], object], as_json: bool) -> None:
    """Print an outcome: warnings by `warn`, lines unless the result is printed `as_json`, and each refusal."""
    for warning in outcome.warnings:
        warn(one_line(warning))
    lines = [line for stage in outcome.stages for line in stage.lines]
    lines += [each.sentence() for each in outcome.agreements]
    if lines and not as_json:
        print("\n".join(lines), flush=True)
    for refusal in outcome.refusals:
        refuse(refusal)


def write(path: Path, outcome: Outcome, profile: RobotProfile, as_json: bool) -> None:
    """Write an accepted outcome of a profile's robot and its observations, if it has any, together, and then say so.
    The file is changed as it is now: what another calibration wrote in the meantime is not lost."""
    observations = outcome.observations

    def change(file: CalibrationFile) -> CalibrationFile:
        return outcome.change(file).of_robot(profile.named)

    backup = CalibrationFile.update(path, change, observations and observations.beside(path))
    if not as_json:
        what = outcome.written or [stage.name for stage in outcome.stages]
        kept = f" (the previous version is in {backup.name})" if backup else ""
        print(f"accepted: {' and '.join(what)} written to {path}{kept}", flush=True)
