"""The nodes that calibrate the lidars. Each collects, solves, and writes the calibration file, and calibrated joints to
the robot's own stretch_calibration_values.yaml, from which its description is made, or says every reason why not."""

import argparse
import datetime
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration import methods, values_file
from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_robot_id, named_or_default
from stretch_sim_cal.calibration.checks import check_lidars
from stretch_sim_cal.calibration.finding import ANOTHER_PLACE_MAY, OF_ALL_PLACES, coded
from stretch_sim_cal.calibration.lidars import DescribedLidar, LidarAlignment
from stretch_sim_cal.calibration.mounts.file import left_pose, stored_mounts
from stretch_sim_cal.calibration.mounts.robot import calibrated_joints, mount_settings, solve_dataset
from stretch_sim_cal.calibration.observations import num_places, places_beside
from stretch_sim_cal.calibration.pipeline import alignment_of
from stretch_sim_cal.calibration.results import LidarPoses
from stretch_sim_cal.calibration.summaries import plain
from stretch_sim_cal.collection import stages as shared
from stretch_sim_cal.collection.stages import Outcome
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import backups_of, rollback
from stretch_sim_cal.geometry.transforms import SIDES, error
from stretch_sim_cal.recording.dataset import read_dataset
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.ros.collect_node import collect
from stretch_sim_cal.ros.listening import LiveRobot, lidars_of
from stretch_sim_cal.ros.node_commands import ALIGN, MODES, PUBLISHED_FIT
from stretch_sim_cal.ros.options import either
from stretch_sim_cal.ros.permission import check_can_ask
from stretch_sim_cal.ros.robot_context import RobotContext
from stretch_sim_cal.sensor.sensor import sensors_called

BROADCAST_TAKES = 10.0  # s of wall time for the broadcaster to see that its file has changed, on a busy machine too


class _Files:
    """The files that a calibration node updates: the calibration file at `path`, and the robot's `values`, None if
    there are none. Raises `InputError` if the latter cannot be updated."""

    def __init__(self, context: RobotContext):
        self._context, self._options = context, context.options
        self.path = named_or_default(self._options.calibration_file)
        self.values = self._values_path()

    @property
    def file(self) -> CalibrationFile:
        return CalibrationFile.load_or_empty(self.path)

    def _values_path(self) -> Path | None:
        options, profile = self._options, profile_called(self._options.robot)
        if options.values_file:
            if not profile.values_file:
                named = f"{profile.name} has no values file ({profile.source}: values_file)"
                raise InputError(f"parameter values_file: {named}")
            path = Path(options.values_file).expanduser()
        elif options.calibration_file or not profile.values_file:
            return None  # a calibration that is kept elsewhere is not to change the robot's description
        elif default_robot_id() == "unknown":
            sentence = "HELLO_FLEET_ID is not set: the calibrated joints are not recorded in the robot's values file"
            self._context.log.warning(sentence)
            return None
        else:
            path = values_file.default_values_path()
        if not options.rollback:
            values_file.values_text(path, [], "", "")
        return path

    def roll_back(self) -> int:
        """Bring back both files as they were before their last write; of the values only if there is a backup. Raises
        `InputError` if the calibration has none."""
        with_values = self.values is not None and bool(backups_of(self.values))
        restored = [self.path, *[self.values] * with_values]
        for file in restored:
            backup = rollback(file)
            kept = f"the replaced version is {file.name}.rolled_back"
            self._context.log.info(f"{file}: restored from {backup.name}; {kept}")
        if self.values is not None and not with_values and self.values.exists():
            self._context.log.warning(f"{self.values}: there is no backup, so it stays as it is")
        if self._context.arguments.json:
            print(json.dumps({"restored": list(map(str, restored))}), flush=True)
        return 0

    def finish(self, found: Outcome) -> int:
        """Print what was found, write it if it is accepted, and return the exit code."""
        as_json, accepted = self._context.arguments.json, found.accepted
        shared.tell(found, self._context.log.warning, as_json)
        if accepted:
            shared.write(self.path, found, profile_called(self._options.robot), as_json)
        self._context.outcome.update(
            accepted=accepted, warnings=[coded(each).as_json() for each in found.warnings],
            refusals=[coded(each).as_json() for each in found.refusals],
            proposal=" ".join(filter(None, (stage.proposal for stage in found.stages))),
        )  # fmt: skip
        if as_json:
            outcome = {stage.name: stage.numbers for stage in found.stages}
            outcome |= {"accepted": accepted, "warnings": found.warnings, "refusals": found.refusals}
            print(json.dumps(plain(outcome | {"file": str(self.path) if accepted else None})), flush=True)
        return 0 if accepted else Refused.exit_code

    def lidar_joints(self, robot: LiveRobot) -> list[values_file.JointOrigin]:
        """Return both lidars' joints on the head: the left one by the file's mounts, else as described, and the right
        one by the file's alignment; none of a robot with more or less than two, or without a head around them, or, with
        a warning, if TF does not have the head."""
        base, file, head = self._options.base_link_frame, self.file, robot.profile.housing_link
        if len(robot.profile.lidars) != len(SIDES) or head is None:
            return []
        try:
            base_from_left = left_pose(file, robot.frames.lookup(base, self._options.left_lidar_frame))
            head_from_base = robot.frames.lookup(head, base)
        except InputError as error:
            self._context.log.warning(f"{error}; the lidars' joints are not recorded")
            return []
        return values_file.lidar_joints(head_from_base @ base_from_left, file.right_to_left, head)

    def record(self, joints: Sequence[values_file.JointOrigin], result) -> None:
        extra = {"fit_method": result.method, "rmse": float(result.rmse), "num_frames": result.num_frames}
        values_file.record_joints(self.values, joints, default_robot_id(), extra=extra)
        self._context.log.info(f"joints {', '.join(joint.name for joint in joints)} recorded in {self.values}")


def align(context: RobotContext) -> int:
    options, files = context.options, _Files(context)
    name = either(options, "method", "fit_method") or methods.DEFAULT_ALIGNMENT_METHOD
    methods.alignment_method(name)  # an unknown one shows now
    if options.rollback:
        return files.roll_back()
    CalibrationFile.load_or_empty(files.path)  # one that cannot be updated shows now, not after the last sample
    places = places_beside(files.path)
    if options.another_place and name != methods.DEFAULT_ALIGNMENT_METHOD:
        raise InputError(f"another_place: method {name} supports only one standing place")
    if options.another_place and not num_places(files.path):
        raise InputError(f"{places}: has no standing place yet; run without another_place first")
    if len(lidars_of(options)) == 1:
        one = {"left": DescribedLidar(np.eye(4))}
        return files.finish(shared.align(None, LidarAlignment(one), one, (), {}, files.file, default_robot_id()))
    robot = LiveRobot(context)
    given = {
        "downsampling_resolution": options.downsampling_resolution_m,
        "max_iterations": options.max_iterations,
        "max_correspondence_distance": options.max_correspondence_distance,
    }
    given = {name: value for name, value in given.items() if value is not None}
    lidars = robot.at(robot.described)
    method = alignment_of(name, lidars, robot.body, robot.profile.accept, **given)
    if isinstance(method, LidarAlignment) and options.another_place:
        method.load_places(places, files.file.to_left)
    clouds, joints = robot.clouds("aligning"), context.joint_positions()
    found = shared.align(robot, method, lidars, clouds, joints, files.file, default_robot_id())
    if found.note:
        context.log.info(found.note)
    code, result = files.finish(found), found.stages[0].result
    if isinstance(method, LidarAlignment):
        _keep_places(context, method, result, places, files.file)
    if result.accepted and files.values and (joints := files.lidar_joints(robot)):
        files.record(joints, result)
    return code


def _keep_places(context, alignment: LidarAlignment, result: LidarPoses, path: Path, file: CalibrationFile) -> None:
    """Keep what was seen for another standing place to be added to, unless the last one is refused by itself."""
    if all(coded(refusal).code in OF_ALL_PLACES for refusal in result.refusals):
        alignment.save_places(path, file.to_left)
        if not result.accepted:
            context.log.info(
                f"{ANOTHER_PLACE_MAY}: turn the robot by 40 to 90 deg where it stands, and run {ALIGN.executable} "
                "--another-place: it adds this place"
            )


def find_floor(context: RobotContext) -> int:
    """Collect sets of clouds, find the floor in them from where the file has the lidars, and write the result if the
    data supports it; of the file nothing but the floor is replaced."""
    options, files = context.options, _Files(context)
    method = _floor_method(context)
    methods.floor_method(method)  # an unknown one shows now
    if options.rollback:
        return files.roll_back()
    file = files.file
    if not file.aligned:
        raise InputError(f"{files.path}: has no alignment of the lidars yet; run ros_align_dual_lidar first")
    robot = LiveRobot(context)
    base_and_left = options.base_link_frame, options.left_lidar_frame
    (described_left,) = robot.frames.wait_for(base_and_left, watchdog=robot.watchdog)
    names = lidars_of(options)
    if lacking := ", ".join(name for name in names if name not in ("left", *file.to_left)):
        raise InputError(f"{files.path}: has no alignment of {lacking}; run ros_align_dual_lidar first")
    base_from_left, by_mounts = left_pose(file, described_left), stored_mounts(file) is not None
    if by_mounts:
        distance, angle = error(described_left, base_from_left)
        context.log.info(
            f"the left lidar has the extrinsics of {files.path}, {1e3 * distance:.1f} mm and {np.degrees(angle):.2f} "
            "deg from where TF has it"
        )
    poses = file.lidars_at(base_from_left)
    lidars, clouds = robot.at({name: poses[name] for name in names}), robot.clouds("recording the floor")
    found = shared.find_floor(robot, method, lidars, clouds, file, described_left, default_robot_id())
    code, result = files.finish(found), found.stages[0].result
    if result.accepted and files.values:
        # A floor seen from the mounts is right only beside lidars that are where the mounts have them.
        lidar_joints = files.lidar_joints(robot) if by_mounts else []
        files.record([*lidar_joints, values_file.base_joint(result.footprint_from_base)], result)
    return code


def _floor_method(context: RobotContext) -> str:
    options = context.options
    if options.mode != MODES[0]:
        context.log.warning(f"mode '{options.mode}' is not offered: all frames are fitted together")
    if options.fit_method == PUBLISHED_FIT and PUBLISHED_FIT not in methods.floor_method_names():
        method = options.method or methods.DEFAULT_FLOOR_METHOD
        context.log.warning(f"fit_method '{PUBLISHED_FIT}' is not offered; {method} is used")
        return method
    return either(options, "method", "fit_method") or methods.DEFAULT_FLOOR_METHOD


def calibrate_mounts(context: RobotContext) -> int:
    options, arguments, files = context.options, context.arguments, _Files(context)
    if options.rollback:
        return files.roll_back()
    profile = profile_called(options.robot)
    settings = mount_settings(
        link_mm=options.link_mm, link_deg=options.link_deg, with_joint_offsets=options.with_joint_offsets,
        sensor=sensors_called(options.sensor), profile=profile,
    )  # fmt: skip
    directory = arguments.directory or Path(f"lidar_mounts_data_{datetime.datetime.now():%Y%m%d_%H%M%S}")
    collecting = argparse.Namespace(**vars(arguments) | {"directory": directory})
    code = collect(replace(context, arguments=collecting), for_mounts=True)
    if code != 0 or arguments.dry_run:
        return code
    file = files.file
    result, robot = solve_dataset(read_dataset(directory), file, settings, profile=profile)
    if file.aligned:
        check_lidars(file, profile.lidars)
    code = files.finish(shared.by_mounts(result, robot, settings, file, default_robot_id()))
    if result.accepted and files.values:
        files.record(calibrated_joints(CalibrationFile.load(files.path), robot.model, profile), result)
    if result.accepted:
        _wait_for_broadcast(context, result.base_from_lidar["left"])
    return code


def calibrate_by_driving(context: RobotContext) -> int:
    options, arguments, files = context.options, context.arguments, _Files(context)
    profile = profile_called(options.robot)
    if options.rollback:
        return files.roll_back()
    CalibrationFile.load_or_empty(files.path)  # one that cannot be updated shows now
    directory = arguments.directory or Path(f"drive_{datetime.datetime.now():%Y%m%d_%H%M%S}")
    check_can_ask(arguments, "the robot")
    if directory.exists():
        raise InputError(f"{directory}: exists already; a drive cannot be continued, name another folder")
    _ = profile.driven_base  # a robot that does not drive shows before anything is waited for
    robot = LiveRobot(context)
    lidars = robot.at(robot.described)
    robot.frames.wait_for_description(robot.watchdog)
    solve = partial(shared.solve_drive, robot, lidars, accept=profile.accept)
    taken = context.drive(robot, directory, solve)
    if taken is None:
        return 0
    plan, result = taken
    if plan.only_turns:
        context.log.warning(plan.note)
    found = shared.drive(robot, result, files.file, default_robot_id(), not plan.only_turns)
    if found.agreements:
        context.log.info(f"{files.path} has extrinsics from the arm: lidars and floor stay, the wheels are added")
    code = files.finish(found)
    if code == 0 and files.values and not found.written:
        floor = next(stage.result for stage in found.stages if stage.name == "floor")
        files.record([*files.lidar_joints(robot), values_file.base_joint(floor.footprint_from_base)], floor)
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
