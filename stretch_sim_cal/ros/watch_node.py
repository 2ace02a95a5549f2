"""`ros_watch_calibration`: checks now and then, while the robot stands, whether the stored calibration still holds, and
publishes on /diagnostics and in its output what has changed, by how much, since when, and the remedy."""

import contextlib
import datetime
import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration import watch as monitor
from stretch_sim_cal.calibration.calibration_file import named_or_default
from stretch_sim_cal.calibration.checks import check_lidars
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.calibration.mounts.robot import MountedRobot
from stretch_sim_cal.calibration.verification import reestimate
from stretch_sim_cal.calibration.watch import CHANGED, BlockState, DriftMonitor, Measurement, NoticedChange, Panorama
from stretch_sim_cal.command import one_line
from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.recording.pairing import CloudSet
from stretch_sim_cal.ros.calibration_in_use import usable_calibration
from stretch_sim_cal.ros.listening import JointListener, LiveRobot, described_poses
from stretch_sim_cal.ros.robot_context import RobotContext
from stretch_sim_cal.sensor.sensor import sensors_called

STILL_FOR = 1.0  # s between the first scans and the last: what moved meanwhile is seen
REPEAT = 5.0  # s; diagnostic_aggregator takes what is silent for longer for dead
ARM_GRID = 0.05  # m, rad: poses of the arm that are one
REPLAYED = 2000  # looks of the history that the test goes on from: the first half are its baselines


class Watcher:
    def __init__(self, context: RobotContext):
        from diagnostic_msgs.msg import DiagnosticArray

        self._context, self._options = context, context.options
        self._path = named_or_default(self._options.calibration_file)
        self._robot = LiveRobot(context)
        self._frames, self._watchdog, self._profile = self._robot.frames, self._robot.watchdog, self._robot.profile
        self._sensor = sensors_called(self._options.sensor)
        self._joints = JointListener(context, profile=self._profile)
        self._history = monitor.History(Path(self._options.history or monitor.default_history()).expanduser())
        self._publisher = context.node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._read()
        self._mounted: MountedRobot | None = None
        self._last: Panorama | None = None
        self.looks = 0
        context.every(REPEAT, self._publish)

    def _digest_now(self) -> str:
        return hashlib.sha256(self._path.read_bytes()).hexdigest()[:16] if self._path.is_file() else ""

    def _read(self) -> None:
        """Read the calibration, and let the test go on from the looks that were compared with it before."""
        digest = self._digest_now()  # of this content or, if it is replaced meanwhile, of an older one
        file = usable_calibration(self._path)
        if not file.aligned:
            raise InputError(f"{self._path}: has no alignment of the lidars; run ros_align_dual_lidar first")
        check_lidars(file, self._profile.lidars)
        self._calibration, self._digest, self._place = file, digest, 1
        self._told: set[str] = set()
        self._open: tuple[str, ...] = ()
        self._unknown = 0  # looks in a row that could not tell how the lidars are to each other
        self.determined = False
        self._watch = DriftMonitor(self._options.period, tuple(self._profile.lidars))
        before = [look for _, look in self._history.measurements(calibration=self._digest)]
        del before[REPLAYED // 2 : -REPLAYED // 2]
        for look in before:
            self._watch.add(look)
        if before:
            self._place, last = before[-1].station + 1, _when(before[-1].stamp)
            self._context.log.info(f"continuing after {len(before)} checks of {self._path}, the last {last}")

    def look(self) -> str:
        """Take one look and return what came of it as a line. Raises `RunFailure` if the lidars are silent."""
        self._refresh()
        seen = self._sets()
        views = ([Panorama(each.clouds[name][:, :3]) for each in (seen[0], seen[-1])] for name in seen[0].clouds)
        wide = (pair for pair in views if all(view.wide for view in pair))  # of lidars that are not covered
        first, last = next(wide, (None, None))
        if first is None:
            raise RunFailure("the lidars have too few returns to tell whether the robot moves")
        self.looks += 1
        if not first.same(last):
            return "the robot is moving: check skipped"
        if self._last is None or not last.same(self._last):
            self._place += 1
        self._last = last
        look = self._held_against(seen)
        self._open = look.refused
        self._watch.add(look)  # first: a full disk does not end the test
        self._history.add(look, self._digest)
        self._tell(look.stamp)
        self._count(look)
        self._publish()
        if look.refused:
            return f"undetermined: {look.refused[0]}"
        return "; ".join(state.sentence() for state in self._watch.changed) or self._said()

    def _count(self, look: Measurement) -> None:
        """Report lidars whose poses to each other, or of one lidar to anything, cannot be measured any more: one that
        was knocked far is not a drift that the test could follow."""
        alone, pairs = self._profile.one_lidar, monitor.between("right")
        known = any(alone or name.startswith(pairs) for name in look.vectors)
        self.determined |= known
        self._unknown = 0 if known else self._unknown + 1
        if self._unknown == monitor.WINDOW:
            why = f": {look.refused[0]}" if look.refused else ""
            self._context.log.error(f"the last {self._unknown} checks could not tell{why}; {monitor.RECALIBRATE}")

    def missed(self, why: str) -> None:
        """Note a check that was not possible: /diagnostics is not to go on as if the last one had just been made."""
        self._open = (why,)
        self._unknown += 1
        self._publish()

    @property
    def changed(self) -> bool:
        return bool(self._watch.changed)

    def _said(self) -> str:
        largest = {state.block.name: state for state in self._watch.states()}
        parts = [f"{name} {state.block.say(state.value)}" for name, state in largest.items()]
        return f"valid; drift: {'; '.join(parts)}" if parts else "valid as far as can be determined"

    def _refresh(self) -> None:
        if self._digest_now() == self._digest:
            return
        try:
            self._read()
        except InputError as error:
            self._context.log.warning(f"{error}; the previous version stays in use")
            return
        self._context.log.info(f"{self._path} has changed: monitoring restarted")

    def _sets(self) -> list[CloudSet]:
        """Return sets of clouds, the last of them a while after the first, and stop listening to the lidars."""
        sets: list[CloudSet] = []

        def enough() -> bool:
            return len(sets) >= self._options.pairs and sets[-1].stamp - sets[0].stamp >= 1e9 * STILL_FOR

        with contextlib.closing(self._context.clouds(self._options, self._watchdog, on_set=sets.append)):
            self._context.spin_until(enough, watchdog=self._watchdog)
        return [*sets[: self._options.pairs - 1], sets[-1]]

    def _held_against(self, seen: list[CloudSet]) -> Measurement:
        options, stamp = self._options, time.time()
        described = described_poses(options, self._frames, self._watchdog)
        footprint = self._frames.footprint_from(options.base_link_frame, options.footprint_frame)
        clouds = [each.clouds for each in seen]
        now = reestimate(self._calibration, clouds, described["left"], footprint, self._sensor, self._robot.body)
        vectors, refused, arm = monitor.vectors_of(now), list(now.open_questions), ""
        try:
            own, arm = self._own(clouds, described)
            vectors |= own
        except InputError as error:
            refused.append(f"the robot's own returns: {error}")
        return Measurement(stamp, self._place, vectors, arm, tuple(map(one_line, refused)))

    def _own(self, seen: list[dict[str, np.ndarray]], described: dict[str, np.ndarray]) -> tuple[dict[str, Any], str]:
        """Return where each lidar is against its returns from the robot, and the arm's pose."""
        if self._frames.description is None:
            raise InputError("no /robot_description")
        if self._mounted is None:
            self._mounted = MountedRobot(self._profile.model_of(self._frames.description), self._profile)
        joints = self._joints.commanded
        for joint in self._profile.check_joints[:1]:
            if joint not in joints:
                raise InputError(f"no {joint} on /joint_states")
        mounts, poses = stored_mounts(self._calibration), described
        if mounts is not None:
            poses = self._calibration.lidars_at(mounts.base_from_lidar["left"]) | mounts.base_from_lidar
        clouds = {name: np.concatenate([each[name][:, :3] for each in seen]).astype(float) for name in described}
        positions = self._profile.joint_positions(self._mounted.model, self._joints.positions)
        arm = " ".join(f"{joint}:{round(value / ARM_GRID)}" for joint, value in sorted(joints.items()))
        return monitor.pose_vectors(self._mounted, positions, poses, clouds), arm

    def _tell(self, stamp: float) -> None:
        changed = self._watch.changed
        self._told &= {state.block.name for state in changed}
        for state in changed:
            if state.block.name in self._told:
                continue
            self._told.add(state.block.name)
            moved = monitor.moved_lidar(self._watch.states())
            sentence = f"{state.sentence()} (since {_when(state.since)}{f'; {moved}' if moved else ''})"
            self._context.log.error(sentence)
            change = (stamp, self._digest, state.block.name, state.since, state.value, state.deviation, sentence)
            self._history.note(NoticedChange(*change))

    def _publish(self) -> None:
        from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

        message = DiagnosticArray()
        message.header.stamp = self._context.node.get_clock().now().to_msg()
        message.status = [_status(state) for state in self._watch.states()]
        if not message.status or self._open:
            why = self._open[0] if self._open else "no check yet"
            level = DiagnosticStatus.STALE if not message.status else DiagnosticStatus.WARN
            level = DiagnosticStatus.ERROR if self._unknown >= monitor.WINDOW else level
            message.status.append(DiagnosticStatus(level=level, name="calibration: look", message=why))
        for status in message.status:
            status.hardware_id = str(self._calibration.path)
        self._publisher.publish(message)


def _status(state: BlockState):
    from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

    values = {
        "off by": state.block.say(state.value), "standard deviation": state.block.say(state.deviation),
        "detected within ten checks": state.block.say(state.noticeable),
        "since": _when(state.since) if state.since else "",
        "to do": state.block.remedy if state.verdict == CHANGED else "",
    }  # fmt: skip
    return DiagnosticStatus(
        level=DiagnosticStatus.ERROR if state.verdict == CHANGED else DiagnosticStatus.OK,
        name=f"calibration: {state.block.name}", message=state.sentence(),
        values=[KeyValue(key=key, value=value) for key, value in values.items() if value],
    )  # fmt: skip


def _when(stamp: float | None) -> str:
    return "-" if stamp is None else datetime.datetime.fromtimestamp(stamp).isoformat(" ", timespec="minutes")


def watch(context: RobotContext) -> int:
    """Look every period, or less often if the looks take more than their share of a core; with a number of looks, end
    after them. Raises `Refused` then if something has changed, or if none of the looks could tell."""
    options, watcher, looked = context.options, Watcher(context), False
    print(f"monitoring {named_or_default(options.calibration_file)}", flush=True)
    while True:
        began, used = time.monotonic(), time.process_time()
        try:
            print(watcher.look(), flush=True)
            looked = True
        except (RunFailure, InputError) as failure:  # a driver that is restarted comes back, a broken cloud passes
            if options.looks or not (looked or isinstance(failure, RunFailure)):
                raise
            watcher.missed(one_line(failure))
            context.log.warning(f"{failure}; the check will be repeated")
        if options.looks and watcher.looks >= options.looks:
            if watcher.changed:
                raise Refused("the calibration is no longer valid; see above")
            if not watcher.determined:
                raise Refused("none of the checks could tell whether the calibration is valid; see above")
            return 0
        used = time.process_time() - used
        until = began + max(options.period, used / options.share)
        context.spin_until(lambda until=until: time.monotonic() >= until)
