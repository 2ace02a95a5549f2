"""The nodes that calibrate the lidars: `ros_align_dual_lidar`, `ros_find_floor_calibration`,
`ros_calibrate_lidar_mounts [DIR]` and `ros_calibrate_by_driving [DIR]`. Each collects, solves, and ends with the result
in words or JSON and the files written, or with every reason why not.

Beside the calibration file, calibrated joints are recorded in the robot's own stretch_calibration_values.yaml, from
which its description is made.
"""

import argparse
import contextlib
import datetime
import functools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration import backups, values_file
from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_path, default_robot_id
from stretch_sim_cal.calibration.checks import check_lidars
from stretch_sim_cal.calibration.drive_results import Agreement, agreements, drive_stages, with_drive
from stretch_sim_cal.calibration.driving import DrivenArray, DrivenResult, DrivingSettings
from stretch_sim_cal.calibration.finding import ANOTHER_PLACE_MAY, OF_ALL_PLACES, coded
from stretch_sim_cal.calibration.lidars import DescribedLidar, LidarAlignment, LidarPoses, with_lidars
from stretch_sim_cal.calibration.methods import (
    DEFAULT_ALIGNMENT_METHOD,
    DEFAULT_FLOOR_METHOD,
    alignment_method,
    floor_method,
    floor_method_names,
)
from stretch_sim_cal.calibration.mounts.file import left_pose, stored_mounts, with_floor, with_mounts
from stretch_sim_cal.calibration.mounts.robot import LeftMountCheck, mount_joints, mount_settings, solve_dataset
from stretch_sim_cal.calibration.observations import (
    Observations,
    known_alignment,
    load_beside,
    num_places,
    places_beside,
)
from stretch_sim_cal.calibration.pipeline import (
    LidarFloor,
    Stage,
    alignment_of,
    alignment_stage,
    driven,
    floor_stage,
    mounts_stage,
    solved,
)
from stretch_sim_cal.calibration.summaries import plain
from stretch_sim_cal.calibration.surfaces import body_settings
from stretch_sim_cal.command import one_line, refuse
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import write_text
from stretch_sim_cal.geometry.transforms import error
from stretch_sim_cal.recording.dataset import read_dataset
from stretch_sim_cal.recording.stations import RecordedStation
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.ros.collect_node import collect
from stretch_sim_cal.ros.drive_node import DrivenRobot, check_asked
from stretch_sim_cal.ros.frame_listener import FrameListener
from stretch_sim_cal.ros.lidar_clouds import described_poses, lidars_of
from stretch_sim_cal.ros.node_commands import ALIGN, MODES, PUBLISHED_FIT
from stretch_sim_cal.ros.options import either
from stretch_sim_cal.ros.robot_context import RobotContext
from stretch_sim_cal.sensor.sensor import for_each, sensors_called

BROADCAST_TAKES = 10.0  # s of wall time for the broadcaster to see that its file has changed, on a busy machine too


class _Files:
    """The files that a calibration node updates: the calibration file at `path`, and the robot's `values`, None if
    there are none. Raises `InputError` if the latter cannot be updated."""

    def __init__(self, context: RobotContext):
        self._context, self._options = context, context.options
        self.path = Path(self._options.calibration_file or default_path())
        self.values = self._values_path()

    @property
    def file(self) -> CalibrationFile:
        """What the calibration file holds now."""
        return CalibrationFile.load_or_empty(self.path)

    def _values_path(self) -> Path | None:
        options, profile = self._options, profile_called(self._options.robot)
        if options.values_file and not profile.values_file:
            raise InputError(f"parameter values_file: {profile.name} has no such file ({profile.source}: values_file)")
        if options.values_file:
            path = Path(options.values_file).expanduser()
        elif options.calibration_file or not profile.values_file:
            return None  # a calibration that is kept elsewhere is not to change the robot's description
        elif default_robot_id() == "unknown":
            self._context.log.warning(
                "HELLO_FLEET_ID is not set: the calibrated joints are not recorded in the robot's values file"
            )
            return None
        else:
            path = values_file.default_values_path()
        values_file.values_text(path, [], "", "")
        return path

    def roll_back(self) -> int:
        """Bring back both files as they were before their last write. Raises `InputError` if there is no backup."""
        for file in (self.path, self.values):
            if file == self.path or file and file.exists():
                backup = backups.rollback(file)
                self._context.log.info(
                    f"{file}: as it was before the last write (from {backup.name}); undone: {file.name}.rolled_back"
                )
        return 0

    def finish(
        self, stages: Sequence[Stage], updated: Callable[[CalibrationFile], CalibrationFile],
        observations: Observations | None = None, written: Sequence[str] = (), more: Sequence[Agreement] = (),
    ) -> int:  # fmt: skip
        """Print the `stages` and `more` agreements, write the stages with their `observations` if all are accepted, and
        return the exit code.

        `updated` makes the calibration file's new content of its present one, so that nothing is lost which another
        calibration wrote in the meantime; `written` names its parts if they are not all. A refusal prints each reason
        in a line of its own and writes nothing.
        """
        warnings = [warning for stage in stages for warning in stage.found.warnings]
        warnings += [warning for each in more for warning in each.findings()]
        refusals = [refusal for stage in stages for refusal in stage.found.refusals]
        numbers = {stage.name: stage.numbers for stage in stages}
        accepted, as_json = not refusals, self._context.arguments.json
        for warning in warnings:
            self._context.log.warning(one_line(warning))
        if not as_json:
            lines = [line for stage in stages for line in stage.lines] + [each.sentence() for each in more]
            print("\n".join(lines), flush=True)
        if accepted:
            backup = CalibrationFile.update(self.path, updated, observations and observations.beside(self.path))
            if not as_json:
                kept = f" (what it held before is in {backup.name})" if backup else ""
                print(f"accepted: {' and '.join(written or numbers)} written to {self.path}{kept}", flush=True)
        else:
            for reason in refusals:
                refuse(reason)
        if self._options.outcome_file:
            outcome = {
                "warnings": [coded(each).as_json() for each in warnings],
                "refusals": [coded(each).as_json() for each in refusals],
                "accepted": accepted,
                "proposal": " ".join(filter(None, (stage.proposal for stage in stages))),
            }
            write_text(self._options.outcome_file, json.dumps(outcome, indent=1) + "\n")
        if as_json:
            outcome = {"accepted": accepted, "warnings": warnings, "refusals": refusals}
            outcome["file"] = str(self.path) if accepted else None
            print(json.dumps(plain(numbers | outcome)), flush=True)
        return 0 if accepted else Refused.exit_code

    def lidar_joints(self, frames: FrameListener) -> list[values_file.JointOrigin]:
        """Return both lidars' joints on the head: the left one by the file's mounts, else as described, and the right
        one by the file's alignment; none, with a warning, if TF does not have the head."""
        options, file = self._options, CalibrationFile.load(self.path)
        try:
            base_from_left = left_pose(file, frames.lookup(options.base_link_frame, options.left_lidar_frame))
            head = profile_called(options.robot).housing_link
            head_from_base = frames.lookup(head, options.base_link_frame)
        except InputError as error:
            self._context.log.warning(f"{error}; the lidars' joints are not recorded")
            return []
        return values_file.lidar_joints(head_from_base @ base_from_left, file.right_to_left, head)

    def record(self, joints: Sequence[values_file.JointOrigin], result) -> None:
        extra = {"fit_method": result.method, "rmse": float(result.rmse), "num_frames": result.num_frames}
        values_file.record_joints(self.values, joints, default_robot_id(), extra=extra)
        self._context.log.info(f"joints {', '.join(joint.name for joint in joints)} recorded in {self.values}")


def align(context: RobotContext) -> int:
    """Collect sets of clouds, align them, and write the result if the data supports it."""
    options, files, profile = context.options, _Files(context), profile_called(context.options.robot)
    CalibrationFile.load_or_empty(files.path)  # one that cannot be updated shows now, not after the last sample
    method, places = either(options, "method", "fit_method") or DEFAULT_ALIGNMENT_METHOD, places_beside(files.path)
    alignment_method(method)  # an unknown one shows now
    if options.rollback:
        return files.roll_back()
    if options.another_place and method != DEFAULT_ALIGNMENT_METHOD:
        raise InputError(f"another_place: method {method} takes one standing place")
    if options.another_place and not num_places(files.path):
        raise InputError(f"{places}: keeps no standing place yet; run without another_place first")

    def finish(stage: Stage) -> int:
        updated = functools.partial(with_lidars, result=stage.found, robot_id=default_robot_id())
        return files.finish([stage], updated, stage.found.observations)

    if len(lidars_of(options)) == 1:
        return finish(alignment_stage(LidarPoses.of_one_lidar("left", np.eye(4)), {}))
    watchdog, frames = context.watchdog(options.timeout), context.frames()
    clouds = context.clouds(options, watchdog, depth=options.num_samples)
    described = described_poses(options, frames, watchdog)
    given = {
        "downsampling_resolution": options.downsampling_resolution_m,
        "max_iterations": options.max_iterations,
        "max_correspondence_distance": options.max_correspondence_distance,
    }
    given = {name: value for name, value in given.items() if value is not None}
    lidars, body = _lidars_at(context, described), _body_settings(context, frames)
    alignment = alignment_of(method, lidars, body, profile.accept, **given)
    if isinstance(alignment, LidarAlignment) and options.another_place:
        alignment.load_places(places)
    joints, sensors = context.joint_positions(), tuple(lidar.sensor for lidar in lidars.values())
    check = LeftMountCheck(sensors, profile)
    for seen in clouds.take(options.num_samples, "aligning"):
        alignment.add(seen.clouds)
        check.add(seen.clouds)
    context.log.info(clouds.summary())
    result, unchecked = check.with_warning(alignment.solve(), frames.description, joints, files.file)
    if unchecked:
        context.log.info(unchecked)
    gain = alignment.another_place() if result.accepted else None
    code = finish(alignment_stage(result, described, gain))
    if isinstance(alignment, LidarAlignment):
        _keep_places(context, alignment, result, places)
    if result.accepted and files.values and not profile.further and (joints := files.lidar_joints(frames)):
        files.record(joints, result)
    return code


def _body_settings(context: RobotContext, frames: FrameListener) -> dict[str, Any]:
    profile = profile_called(context.options.robot)
    if profile.body is None:  # TF may have been heard first
        context.spin_until(lambda: frames.description is not None, timeout=frames.GRACE)
    return body_settings(profile, frames.description, context.log.info)


def _lidars_at(context: RobotContext, poses: dict[str, np.ndarray]) -> dict[str, DescribedLidar]:
    sensors = for_each(sensors_called(context.options.sensor), len(poses))
    return {name: DescribedLidar(poses[name], sensor) for name, sensor in zip(poses, sensors, strict=True)}


def _left_by_file(context: RobotContext, files: _Files, described_left: np.ndarray) -> np.ndarray:
    """Return the left lidar's pose (4, 4) in base_link: by the file's mounts, with a note, else as described."""
    base_from_left = left_pose(files.file, described_left)
    if stored_mounts(files.file) is not None:
        distance, angle = error(described_left, base_from_left)
        context.log.info(
            f"the left lidar has the extrinsics of {files.path}, {1e3 * distance:.1f} mm and {np.degrees(angle):.2f} "
            "deg from where TF has it"
        )
    return base_from_left


def _keep_places(context: RobotContext, alignment: LidarAlignment, result: LidarPoses, path: Path) -> None:
    """Keep what was seen for another standing place to be added to, unless the last one is refused by itself."""
    if all(coded(refusal).code in OF_ALL_PLACES for refusal in result.refusals):
        alignment.save_places(path)
        if not result.accepted:
            context.log.info(
                f"{ANOTHER_PLACE_MAY}: turn the robot by 40 to 90 deg where it stands, and run {ALIGN.executable} "
                "--another-place: it adds what it sees then"
            )


def find_floor(context: RobotContext) -> int:
    """Collect sets of clouds, find the floor in them from where the file has the lidars, and write the result if the
    data supports it; of the file nothing but the floor is replaced."""
    options, files, profile = context.options, _Files(context), profile_called(context.options.robot)
    method = _floor_method(context)
    floor_method(method)  # an unknown one shows now
    if options.rollback:
        return files.roll_back()
    file = files.file
    if file.right_to_left is None:
        raise InputError(f"{files.path}: holds no alignment of the lidars yet; run ros_align_dual_lidar first")
    watchdog, frames = context.watchdog(options.timeout), context.frames()
    clouds = context.clouds(options, watchdog, depth=options.num_samples)
    (described_left,) = frames.wait_for((options.base_link_frame, options.left_lidar_frame), watchdog=watchdog)
    names, to_left = lidars_of(options), {"left": np.eye(4)} | file.to_left
    if lacking := ", ".join(name for name in names if name not in to_left):
        raise InputError(f"{files.path}: holds no alignment of {lacking}; run ros_align_dual_lidar first")
    base_from_left = _left_by_file(context, files, described_left)
    lidars = _lidars_at(context, {name: base_from_left @ to_left[name] for name in names})
    nominal_footprint_from_base = frames.footprint_from(options.base_link_frame, options.footprint_frame)
    known, body = known_alignment(file, tuple(lidars)), _body_settings(context, frames)
    floor = LidarFloor(method, lidars, nominal_footprint_from_base, body, known)
    result = solved(floor, (seen.clouds for seen in clouds.take(options.num_samples, "looking at the floor")))
    context.log.info(clouds.summary())
    observations = load_beside(file)
    code = files.finish(
        [floor_stage(result, nominal_footprint_from_base)],
        lambda file: with_floor(file, result, default_robot_id(), described_left),
        observations and replace(observations, floor=result.by_units),
    )  # fmt: skip
    if result.accepted and files.values:
        # A floor seen from the mounts is right only beside lidars that are where the mounts have them.
        record_lidars = stored_mounts(file) is not None and not profile.further
        lidar_joints = files.lidar_joints(frames) if record_lidars else []
        files.record([*lidar_joints, values_file.base_joint(result.footprint_from_base)], result)
    return code


def _floor_method(context: RobotContext) -> str:
    options = context.options
    if options.mode != MODES[0]:
        context.log.warning(f"mode '{options.mode}' is not offered: all frames are fitted together")
    if options.fit_method == PUBLISHED_FIT and PUBLISHED_FIT not in floor_method_names():
        context.log.warning(
            f"fit_method '{PUBLISHED_FIT}' is not offered; {options.method or DEFAULT_FLOOR_METHOD} is used"
        )
        return options.method or DEFAULT_FLOOR_METHOD
    return either(options, "method", "fit_method") or DEFAULT_FLOOR_METHOD


def calibrate_mounts(context: RobotContext) -> int:
    """Collect the poses that are not in the folder yet, solve, and write what the data supports."""
    options, arguments, files = context.options, context.arguments, _Files(context)
    if options.rollback:
        return files.roll_back()
    profile = profile_called(options.robot)
    settings = mount_settings(
        link_mm=options.link_mm, link_deg=options.link_deg, with_joint_offsets=options.with_joint_offsets,
        sensor=sensors_called(options.sensor), profile=profile,
    )  # fmt: skip
    directory = arguments.directory or Path(f"lidar_mounts_data_{datetime.datetime.now():%Y%m%d_%H%M%S}")
    collecting = argparse.Namespace(**vars(arguments) | {"directory": directory, "json": False})
    with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
        code = collect(replace(context, arguments=collecting), only_raw=True)
    if code != 0 or arguments.dry_run:
        return code
    file = files.file
    observations = load_beside(file)
    result, robot = solve_dataset(read_dataset(directory), file, settings, profile=profile)
    if file.right_to_left is not None:
        check_lidars(file, profile.further)
    code = files.finish(
        [mounts_stage(result, robot, settings, file)],
        lambda file: with_mounts(file, result, default_robot_id(), robot.nominal["left"], observations=observations),
        observations and observations.better(result.units),
    )  # fmt: skip
    if result.accepted and files.values:
        files.record(mount_joints(CalibrationFile.load(files.path), robot.model, profile), result)
    if result.accepted:
        _wait_for_broadcast(context, result.base_from_lidar["left"])
    return code


def calibrate_by_driving(context: RobotContext) -> int:
    """Drive, record it, solve, and write what the data supports."""
    options, arguments, files = context.options, context.arguments, _Files(context)
    profile = profile_called(options.robot)
    if options.rollback:
        return files.roll_back()
    CalibrationFile.load_or_empty(files.path)  # one that cannot be updated shows now
    directory = arguments.directory or Path(f"drive_{datetime.datetime.now():%Y%m%d_%H%M%S}")
    check_asked(arguments, directory)
    watchdog, frames = context.watchdog(options.timeout), context.frames()
    described = described_poses(options, frames, watchdog)
    lidars = _lidars_at(context, described)
    description = frames.wait_for_description(watchdog)
    footprint_from_base = frames.footprint_from(options.base_link_frame, options.footprint_frame)
    body = _body_settings(context, frames)
    robot = DrivenRobot(profile, lidars_of(options), described, footprint_from_base, body, description)
    settings = DrivingSettings(track_width=profile.driven_base.track_width)

    def solve(stations: Sequence[RecordedStation]) -> DrivenResult:
        array = DrivenArray(lidars, robot.footprint_from_base, settings, robot.body, profile.accept)
        result: DrivenResult = driven(array, stations)
        return result

    taken = context.drive(robot, directory, solve)
    if taken is None:
        return 0
    plan, result = taken
    if plan.only_turns:
        context.log.warning(plan.note)
        result = replace(result, wheels=None)
    stages = drive_stages(result, described, robot.footprint_from_base)
    change, by_arm = functools.partial(with_drive, result=result, robot_id=default_robot_id(), described=described), []
    kept = stored_mounts(files.file) is not None
    if kept and all(stage.found.accepted for stage in stages):
        context.log.info(f"{files.path} has the lidars by the arm: its lidars and floor stay, the wheels are added")
        by_arm = agreements(change(files.file))
    code = files.finish(stages, change, written=["wheels"] if kept else (), more=by_arm)
    if code == 0 and files.values and not kept:
        joints = [] if profile.one_lidar or profile.further else files.lidar_joints(frames)
        files.record([*joints, values_file.base_joint(result.floor.footprint_from_base)], result.floor)
    return code


def _wait_for_broadcast(context: RobotContext, base_from_left: np.ndarray) -> None:
    """Wait until TF has the left lidar's extrinsics, which the next collection needs; warn if it does not."""
    options, frames = context.options, context.frames()
    base, left = options.base_link_frame, options.left_calibrated_frame

    def taken_over() -> bool:
        tree = frames.tree
        known = tree.known(left) and tree.known(base)
        return known and np.allclose(tree.lookup(base, left), base_from_left, atol=1e-6)

    if not context.spin_until(taken_over, timeout=BROADCAST_TAKES):
        context.log.warning(
            f"TF does not have the mount as '{left}'; start ros_broadcast_calibration (again) on the file that was "
            "written before anything else is collected"
        )
