"""`ros_collect_body_shape_data [DIR]`: sweep the arm over a grid of poses and keep what all lidars see of it. Checks,
plan, question, then pose by pose move, capture and write."""

import datetime
import functools
import json
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.body.model import robot_identity
from stretch_sim_cal.collection.clearance import RoomWatch, Sweep
from stretch_sim_cal.collection.plan import Plan, Pose, describe, duration, plan_of_robot
from stretch_sim_cal.collection.settings import CollectionSettings, load_settings
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.recording import JOINTS
from stretch_sim_cal.recording.dataset import METADATA, DatasetWriter
from stretch_sim_cal.recording.pairing import CloudSet
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, profile_called
from stretch_sim_cal.ros.arm import ArmMotion, ArmState, CalibratedPoses, Capture, calibrated_poses
from stretch_sim_cal.ros.permission import ask, check_can_ask
from stretch_sim_cal.ros.robot_context import RobotContext

FRAME_PERIOD, PER_SAMPLE = 0.1, 0.5  # s per set of clouds, and per sample beside moving and settling
SKIPPED_SHOWN = 10
SCAN_TAKES = 100_000_000  # ns
STATES = 3  # of the arm during a scan
LOOK_EVERY, BLIND_AFTER = 0.05, 5.0  # s between looks at the clouds that came, and s of silence of the lidars
LEARNED_FROM = 5  # scans of each lidar of the room before the arm moves: an echo that comes and goes is in one of them


def collect(context: RobotContext, for_mounts: bool = False) -> int:
    """Check, plan, ask, then move and capture, pose by pose. A folder is continued only under the floor calibration
    that it was begun with, unless it is `for_mounts`, which do not need the floor, and have a result of their own."""
    options, arguments = context.options, context.arguments
    if arguments.directory and arguments.directory.exists() and not arguments.directory.is_dir():
        raise InputError(f"{arguments.directory}: is a file; name the folder of the samples")
    check_can_ask(arguments, "the arm")
    say = functools.partial(print, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    profile, watchdog, frames = profile_called(options.robot), context.watchdog(options.timeout), context.frames()
    poses = calibrated_poses(options, frames, watchdog, profile.lidars)
    if poses.observations is None and not for_mounts:
        why = "there are no observations of this alignment beside the calibration file"
        why += " (align and collect with the same file)"
        if profile.one_lidar:
            why = "the intrinsics of a single lidar are not observable"
        consequence = "and the body shape may leave centimetres of the robot out"
        context.log.warning(f"{why}, so the lidars' own errors stay in the points, {consequence}")
    description = frames.wait_for_description(watchdog)
    frames.close()  # those that matter do not move, and those that do would keep this node busy
    model = profile.model_of(description)
    settings = load_settings(
        options.settings, options.plan, given_grids(options), options.speed_factor, profile.commanded_limits(model),
        options.frames, profile,
    )  # fmt: skip
    state = context.arm(model, watchdog, profile)
    state.wait_until_known()
    directory = arguments.directory or Path(f"collected_body_shape_data_{datetime.datetime.now():%Y%m%d_%H%M%S}")
    begun = (directory / METADATA).exists()
    open_writer = functools.partial(
        DatasetWriter, directory, description, joints=profile.planned_names, lidars=tuple(profile.lidars),
        footprint_from_base_link=None if begun and for_mounts else poses.footprint_from_base,
    )  # fmt: skip
    writer = open_writer() if begun else None
    collection = _Collection(model, settings, profile, _plan(model, settings, state, writer), say)
    collection.tell(writer)
    plan = collection.plan
    if not plan.visits and not (writer and writer.samples):
        raise Refused(f"none of the {len(plan.skipped)} poses of the plan can be reached without a collision")

    if plan.visits and not arguments.dry_run:
        motion = context.motion(state, watchdog, settings.speeds)
        capture = functools.partial(context.capture, state, watchdog, settings, poses)
        if profile.planned and not arguments.ignore_obstacles:
            collection.check_room(capture().points, state)
        ask(arguments, f"The arm is going to move through {len(plan.visits)} poses. Is the room around it clear?")
        watched = profile.planned and options.watch_room
        guarded = _room_watched(context, model, poses, state) if watched else nullcontext()
        with motion.stopping(), guarded:
            writer = open_writer(info=_info(settings))
            writer.write_skipped(collection.skipped)
            collection.sweep(motion, capture, writer)
    if not arguments.dry_run:
        to_do = "" if for_mounts else f"; next: fit_body_shape_model {shlex.quote(str(directory))}"
        say(f"{len(writer.samples)} samples in {directory}{to_do}")
    if arguments.json and (arguments.dry_run or not for_mounts):
        print(json.dumps(collection.outcome(writer, arguments.dry_run)), flush=True)
    return 0


def given_grids(options: Any) -> dict[str, str]:
    """Return the grids on the command line, as texts by joint: those of the Stretch's joints, and `--grid`. Raises
    `InputError` for a text that names no joint."""
    grids = {joint: getattr(options, joint) for joint in JOINTS if getattr(options, joint) is not None}
    for part in filter(None, (text.strip() for text in (options.grid or "").split(";"))):
        name, colon, values = part.partition("=")
        if not colon or not values.strip():
            raise InputError(f"--grid '{part}': expected JOINT=VALUES, several separated by semicolons")
        grids[name.strip()] = values.strip()
    return grids


def _info(settings: CollectionSettings) -> dict:
    names = ("plan", "frames", "margin", "cell", "floor_cell", "crop_radius")
    grids = {joint: list(values) for joint, values in settings.grids.items()}
    return robot_identity() | {name: getattr(settings, name) for name in names} | {"grids": grids}


def _plan(model: RobotModel, settings: CollectionSettings, state: ArmState, writer: DatasetWriter | None) -> Plan:
    """Return the tour from where the arm is; other joints stay as they are."""
    names = state.profile.planned_names
    return plan_of_robot(
        model, settings, state.profile, tuple(state.arm[joint] for joint in names), state.positions,
        done=lambda pose: writer is not None and writer.holds(dict(zip(names, pose, strict=False))),
    )  # fmt: skip


@dataclass(frozen=True)
class _Collection:
    model: RobotModel
    settings: CollectionSettings
    profile: RobotProfile
    plan: Plan
    say: Callable[[str], None]

    def tell(self, writer: DatasetWriter | None) -> None:
        plan, settings = self.plan, self.settings
        if writer is not None and writer.samples:
            self.say(f"{len(writer.samples)} samples are already in {writer.directory}; their poses are skipped")
        for number, visit in enumerate(plan.visits, start=1):
            by = f" (by {len(visit.path)} moves)" if len(visit.path) > 1 else ""
            self.say(f"{number:4d}. {describe(visit.pose, self.profile)}{by}")
        for skipped in plan.skipped[:SKIPPED_SHOWN]:
            self.say(f"skipped: {describe(skipped.pose, self.profile)}: {skipped.reason}")
        if len(plan.skipped) > SKIPPED_SHOWN:
            self.say(f"skipped: {len(plan.skipped) - SKIPPED_SHOWN} more, listed in the dataset's metadata")
        counts = f"{len(plan.visits)} poses to capture, {len(plan.skipped)} skipped"
        takes = f"about {duration(self._seconds(plan))} of the robot's time"
        self.say(f"plan '{settings.plan}' of {settings.source}: {counts}, {takes}")

    def _seconds(self, plan: Plan) -> float:
        per_sample = self.settings.settle_time + self.settings.frames * FRAME_PERIOD + PER_SAMPLE
        return plan.moving_time(list(self.settings.speeds.values())) + per_sample * len(plan.visits)

    def _by_joint(self, pose: Pose) -> dict[str, float]:
        return {joint: float(value) for joint, value in zip(self.profile.planned_names, pose, strict=False)}

    @property
    def skipped(self) -> list[dict]:
        return [{"commanded": self._by_joint(each.pose), "reason": each.reason} for each in self.plan.skipped]

    def outcome(self, writer: DatasetWriter | None, dry_run: bool) -> dict[str, Any]:
        return {
            "directory": None if writer is None else str(writer.directory),
            "samples": 0 if writer is None else len(writer.samples),
            "planned" if dry_run else "captured": [self._by_joint(visit.pose) for visit in self.plan.visits],
            "skipped": self.skipped,
            "seconds": round(self._seconds(self.plan), 1),
        }

    def check_room(self, points: np.ndarray, state: ArmState) -> None:
        """Raise `Refused` if anything but the robot is near to where its arm is going to be."""
        sweep = Sweep(self.model, self.profile)
        found = sweep.obstacle(points, self.plan.tour, state.by_command, self.settings.clearance)
        if found is not None:
            x, y, z = found.nearest
            what = f"{found.count} points, nearest at x {x:.2f} y {y:.2f} z {z:.2f} m in base_footprint"
            remedy = "clear the room around the robot, or give --ignore-obstacles"
            raise Refused(f"an obstacle is in the arm's way: {what}; {remedy}")

    def sweep(self, motion: ArmMotion, capture: Callable[[], Capture], writer: DatasetWriter) -> None:
        """Move to every pose of the plan, capture it and write it, whole, before the next; and move back."""
        plan, began = self.plan, time.monotonic()
        total = self._seconds(plan)
        for number, visit in enumerate(plan.visits, start=1):
            for pose in visit.path:
                motion.move(pose)
            seen, commanded = capture(), self._by_joint(visit.pose)
            writer.write_sample(commanded, seen.actual, seen.points, seen.clouds, seen.joints)
            left = self._seconds(plan.after(number))
            # What was foreseen, at the pace so far: a simulator's time is not the wall's.
            left *= (time.monotonic() - began) / max(total - left, 1e-9)
            self.say(
                f"sample {number} of {len(plan.visits)}: {describe(visit.pose, self.profile)}: {len(seen.points)} "
                f"points; about {duration(left)} left"
            )
        for pose in plan.way_back:
            motion.move(pose)


@contextmanager
def _room_watched(context: RobotContext, model: RobotModel, poses: CalibratedPoses, state: ArmState) -> Iterator[None]:
    """A context in which `Refused` is raised as soon as something comes near that was not there when it was entered,
    and `RunFailure` as soon as the lidars fall silent, so that nobody could be seen."""
    room = RoomWatch(model, poses.footprint_from_lidar, state.profile)
    # One of its own: captures forget their silences when they are done.
    watchdog = context.watchdog(BLIND_AFTER)
    learned: list[CloudSet] = []
    waiting: deque[CloudSet] = deque(maxlen=2)

    def take(seen: CloudSet) -> None:
        if len(learned) < LEARNED_FROM:
            learned.append(seen)
            room.learn(seen.clouds)
        else:
            waiting.append(seen)

    def look() -> None:
        watchdog.tick()
        # Only scans during which it is known where the arm was.
        while waiting and waiting[0].stamp + SCAN_TAKES <= state.stamp:
            seen = waiting.popleft()
            passed = state.between(seen.stamp, seen.stamp + SCAN_TAKES)
            if not passed:
                continue
            chosen = np.unique(np.linspace(0, len(passed) - 1, STATES).astype(int))
            found = room.look(seen.clouds, [passed[index] for index in chosen])
            if found is not None:
                what = f"something approached, at x {found[0]:.1f} y {found[1]:.1f} m in base_footprint"
                raise Refused(f"the arm was stopped: {what}; when the room is clear, continue with the same folder")

    # What is late is of no use here, and must not keep the arm's own messages waiting.
    clouds = context.clouds(context.options, watchdog, depth=2, on_set=take)
    timer = context.every(LOOK_EVERY, look)
    try:
        context.spin_until(lambda: len(learned) >= LEARNED_FROM)
        yield
    finally:  # before the arm is stopped: what is waited for then must not be cut off by another look
        context.node.destroy_timer(timer)
        clouds.close()
