"""The arm: its joints, moving them one at a time through the driver's action with a stop that is confirmed, and
captures of its poses, placed by the calibration."""

import bisect
import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, named_or_default
from stretch_sim_cal.calibration.observations import Observations, are_of, load_beside
from stretch_sim_cal.collection.clearance import cropped
from stretch_sim_cal.collection.plan import Pose, describe
from stretch_sim_cal.collection.settings import CollectionSettings
from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.geometry.transforms import SIDES, apply
from stretch_sim_cal.recording.pairing import CloudSet, stamp_of
from stretch_sim_cal.recording.stations import STILL_WITHIN, still_within
from stretch_sim_cal.recording.topics import JOINT_STATES
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.ros.listening import SYNCHRONISE, FrameListener, JointListener, calibrated_frame_of, depth_for
from stretch_sim_cal.ros.node_main import spin_to_stop
from stretch_sim_cal.ros.permission import SoleUse
from stretch_sim_cal.ros.watchdog import Patience

ARRIVED_WITHIN = (0.005, 0.03)  # of its target: a joint that moves in m, and any other (rad)
PATIENCE = 5.0  # s beyond what a move needs at its speed, before the joint counts as stuck
# s of wall time: for an answer of the driver, and for its confirmation of a stop.
ANSWER, STOPPING = 30.0, 3.0
REMEMBERED = 500  # messages, for clouds that were scanned a little earlier: 10 s at the robot's 50 Hz
STALE = 30  # sets of clouds in succession, scanned before the arm stood still, that are no mere latency any more


class ArmState(JointListener):
    """The arm's joints, since when they stand still, and all joints' positions before."""

    def __init__(self, context: Any, model: RobotModel, watchdog: Any, profile: RobotProfile):
        self._context, self._model, self._watchdog, self.profile = context, model, watchdog, profile
        self._still_within = still_within(profile)
        self.stamp = 0
        self._still_at: dict[str, float] = {}
        self._still_since: dict[str, int] = {}
        self._history: deque[tuple[int, dict[str, float]]] = deque(maxlen=REMEMBERED)
        super().__init__(context, watchdog, profile)

    @property
    def arm(self) -> dict[str, float]:
        """The values (m, rad) of the joints of a dataset that have been heard of."""
        known = self.by_command
        return {joint: known[name] for joint, name in self.profile.commands.items() if name in known}

    @property
    def by_command(self) -> dict[str, float]:
        """The values (m, rad) of all joints, by the driver's names for those that it takes commands for."""
        return self.profile.commanded_positions(self._model, self.positions)

    @property
    def still_since(self) -> int:
        """The stamp (ns) from which on no joint of the arm has moved."""
        return max(self._still_since.values(), default=self.stamp if self.profile.planned else 0)

    @property
    def moved_last(self) -> str:
        """The joint of a dataset that has moved last."""
        return max(self._still_since, key=self._still_since.__getitem__)

    def between(self, begin: int, end: int) -> list[dict[str, float]]:
        """Return `by_command` of the messages stamped from `begin` to `end` (ns), with the last one before and the
        first one after; none if all that is remembered is later."""
        stamps = [stamp for stamp, _ in self._history]
        if not stamps or stamps[0] > begin:
            return []
        first, last = bisect.bisect_right(stamps, begin) - 1, bisect.bisect_left(stamps, end)
        return [positions for _, positions in list(self._history)[first : last + 1]]

    def wait_until_known(self) -> None:
        """Wait for all planned joints. Raises `RunFailure` (watchdog) if one of them does not come."""

        def missing() -> list[str]:
            return [name for joint, name in self.profile.commands.items() if joint not in self.arm]

        self._context.spin_until(lambda: self.positions or not missing(), watchdog=self._watchdog)
        silence = f"no positions of all joints of the arm on {JOINT_STATES}"
        self._watchdog.watch(silence, lambda: f"{', '.join(missing())} missing; does the profile fit the robot?")
        self._context.spin_until(lambda: not missing(), watchdog=self._watchdog)
        self._watchdog.forget(silence)

    def _take(self, message: Any) -> None:
        super()._take(message)
        self.stamp = stamp_of(message) or self._context.node.get_clock().now().nanoseconds  # some drivers do not stamp
        self._history.append((self.stamp, self.by_command))
        for joint, value in self.arm.items():
            if abs(value - self._still_at.get(joint, float("inf"))) > self._still_within[joint]:
                self._still_at[joint] = value
                self._still_since[joint] = self.stamp


class ArmMotion:
    """Moves the arm; `speeds` are by joint of a dataset, in m/s or rad/s. `watchdog` is ticked while waiting."""

    def __init__(self, context: Any, state: ArmState, watchdog: Any, speeds: Mapping[str, float]):
        from control_msgs.action import FollowJointTrajectory
        from rclpy.action import ActionClient
        from std_srvs.srv import Trigger

        self._context, self._state, self._watchdog, self._speeds = context, state, watchdog, speeds
        self._profile = profile = state.profile
        self._arrived = {joint.name: ARRIVED_WITHIN[0 if joint.linear else 1] for joint in profile.planned}
        self._action = FollowJointTrajectory
        self._client = ActionClient(context.node, FollowJointTrajectory, profile.trajectory)
        self._stop = context.node.create_client(Trigger, profile.stop)
        self._use = SoleUse(context, "arm", profile.trajectory)
        self._sent: Any = None  # the answer, to come, to the goal that is under way

    def wait_for_driver(self) -> None:
        """Wait for the action's server. Raises `RunFailure` if there is none, `InputError` if another program of this
        package moves the arm, on this machine or another: two plans for one arm."""
        node, action = self._context.node, self._profile.trajectory
        if not self._context.spin_until(self._client.server_is_ready, timeout=ANSWER):
            services, topics = ("send_goal", "cancel_goal", "get_result"), ("feedback", "status")
            parts = {name: node.count_services(f"{action}/_action/{name}") for name in services}
            parts |= {name: node.count_publishers(f"{action}/_action/{name}") for name in topics}
            if not any(parts.values()):
                raise RunFailure(f"no node offers the action {action}; is the robot's driver running?")
            # Discovery, on a busy network, can miss some of what a driver offers.
            seen = ", ".join(f"{name} {count}" for name, count in parts.items())
            found = f"the action {action} was discovered only in part ({seen})"
            raise RunFailure(f"{found}; start this program again, or the driver")
        self._use.refuse_second()

    @contextlib.contextmanager
    def stopping(self) -> Iterator[None]:
        """A context out of which no exception, nor signal, leads while the arm still moves. Moves belong in it. Signals
        are held, from before a goal is sent until the driver has confirmed that the arm stopped: none can fall between
        a goal and the note that it was sent, nor, a second one, end the stopping. Raises `InputError` as
        `wait_for_driver` does, since another may have been started meanwhile."""
        with self._context.signals_held(), self._use.held():
            try:
                yield
            except BaseException:
                self.stop()
                raise

    def move(self, target: Pose) -> None:
        """Move to `target` and return when /joint_states says that the arm is there. Raises `Refused` if the driver
        rejects the move, and `RunFailure` if it gives up, a joint does not arrive, or nothing is heard."""
        # Joints that are where they should be are not moved; the tolerance is far below what counts as arrived.
        moving = self._missing(target, 0.1)
        if not moving:
            return
        there = describe(target, self._profile)
        needed = max(abs(gap) / self._speeds[joint] for joint, gap in moving.items())
        self._sent = self._client.send_goal_async(self._goal(target, list(moving), needed))
        self._wait(self._sent.done, f"the driver did not answer a goal for {self._profile.trajectory}", wall=ANSWER)
        handle = self._sent.result()
        if not handle.accepted:
            self._sent = None
            raise Refused(f"the driver rejected the move to {there}; see its output (mode, runstop?)")
        result = handle.get_result_async()
        self._wait(result.done, f"the driver did not finish the move to {there}", ros=2.0 * needed + PATIENCE)
        self._sent = None
        outcome = result.result().result
        if outcome.error_code != self._action.Result.SUCCESSFUL:
            raise RunFailure(f"the driver aborted the move to {there}: {outcome.error_string or outcome.error_code}")

        def not_there() -> str:
            if self._state.stale:
                return f"{JOINT_STATES} fell silent during the move to {there}"
            missing = ", ".join(f"{joint} by {gap:+.3g}" for joint, gap in self._missing(target).items())
            return f"the driver reports that the arm arrived at {there}, but by /joint_states it is off by {missing}"

        self._wait(lambda: not self._missing(target), not_there, ros=PATIENCE)

    def stop(self) -> None:
        """Cancel what is under way and wait for the driver's word that it is; else call its stop service."""
        if self._sent is None:
            return
        stopped = self._cancel(time.monotonic() + STOPPING)
        if not stopped and self._stop.service_is_ready():
            called, deadline = self._stop.call_async(self._stop.srv_type.Request()), time.monotonic() + STOPPING
            stopped = self._spin_until(called.done, deadline)
            if not self._sent.done():  # a goal that has not been answered may reach the driver after that call
                stopped = self._cancel(deadline)
        self._sent = None
        said = "the arm was stopped" if stopped else "the driver did not confirm that the arm stopped"
        self._context.log.warning(said)

    def _cancel(self, deadline: float) -> bool:
        """Cancel the goal under way, as soon as it is answered; return whether the driver says that it is over."""
        if not self._spin_until(self._sent.done, deadline):
            return False
        handle = self._sent.result()
        if not handle.accepted:
            return True
        canceled, ended = handle.cancel_goal_async(), handle.get_result_async()
        return self._spin_until(lambda: canceled.done() and ended.done(), deadline)

    def _goal(self, target: Pose, moving: Sequence[str], needed: float) -> Any:
        from builtin_interfaces.msg import Duration
        from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

        wanted = dict(zip(self._profile.planned_names, target, strict=False))
        point = JointTrajectoryPoint(
            positions=[float(wanted[joint]) for joint in moving],
            velocities=[float(self._speeds[joint]) for joint in moving],
            time_from_start=Duration(sec=int(needed), nanosec=int(needed % 1.0 * 1e9)),
        )
        names = [self._profile.commands[joint] for joint in moving]
        return self._action.Goal(trajectory=JointTrajectory(joint_names=names, points=[point]))

    def _missing(self, target: Pose, share: float = 1.0) -> dict[str, float]:
        """Return how far (m, rad) joints are from `target`, of those beyond a share of what counts as arrived."""
        here = self._state.arm
        gaps = {joint: value - here[joint] for joint, value in zip(self._profile.planned_names, target, strict=False)}
        return {joint: gap for joint, gap in gaps.items() if abs(gap) > share * self._arrived[joint]}

    def _wait(self, condition, complaint, ros: float = 0.0, wall: float = PATIENCE) -> None:
        """Spin until `condition`. Raises `RunFailure` after at least so many s of ROS time and of wall time."""
        patience = Patience(self._context, ros, wall)
        self._context.spin_until(lambda: condition() or patience.over, watchdog=self._watchdog)
        if not condition():
            raise RunFailure(complaint() if callable(complaint) else complaint)

    def _spin_until(self, condition, deadline: float) -> bool:
        while not condition() and time.monotonic() < deadline:
            spin_to_stop(self._context.executor, 0.05)
        return condition()


@dataclass(frozen=True)
class CalibratedPoses:
    """Poses (4, 4) of base_link and of the lidars, by name, in the calibrated footprint; and the observations of the
    alignment, with the lidars' intrinsics."""

    footprint_from_base: np.ndarray
    footprint_from_lidar: Mapping[str, np.ndarray]
    observations: Observations | None = None

    def points(self, name: str, cloud: np.ndarray) -> np.ndarray:
        """Return a lidar's returns (N, 3 or 5) as points (N, 3) in the calibrated footprint, corrected by its
        intrinsics as far as these are known."""
        own = cloud[:, :3] if self.observations is None else self.observations.corrected(name, cloud)
        return apply(self.footprint_from_lidar[name], own)


@dataclass(frozen=True)
class Capture:
    """The same returns, float32, as `points` (N, 3) in the calibrated footprint, the left lidar's first, and as
    `clouds` (N, 3 or 5) by lidar, with ring and intensity, in its own frame. `actual` are the arm's joints at that
    time, `joints` all of the description's."""

    points: np.ndarray
    clouds: dict[str, np.ndarray]
    actual: dict[str, float]
    joints: dict[str, float]


def captured(
    seen: Mapping[str, Sequence[np.ndarray]], poses: CalibratedPoses, settings: CollectionSettings,
    arm: dict[str, float], joints: dict[str, float],
) -> Capture:  # fmt: skip
    """Return the capture of what lidars saw by name (returns (N, 3 or 5) of each scan in the lidar's frame)."""
    placed = poses.footprint_from_lidar
    kept = {name: cropped(np.concatenate(own), placed[name], settings) for name, own in seen.items()}
    points = np.concatenate([poses.points(name, cloud) for name, cloud in kept.items()])
    return Capture(points, kept, arm, joints)


def capture(context, state: ArmState, watchdog, settings: CollectionSettings, poses: CalibratedPoses) -> Capture:
    """Wait until the arm stands still, and capture; the lidars are listened to only meanwhile, since clouds are
    expensive to send and to simulate. Raises `RunFailure` if a joint does not come to rest, or (watchdog) no clouds
    come."""

    def settled_at() -> int:
        return state.still_since + round(settings.settle_time * 1e9)

    if state.profile.planned:
        patience = Patience(context, settings.settle_time + PATIENCE, PATIENCE)
        context.spin_until(lambda: state.stamp >= settled_at() or patience.over, watchdog=watchdog)
        if state.stamp < settled_at():
            still = f"{1e3 * STILL_WITHIN[0]:g} mm or {STILL_WITHIN[1]:g} rad while it stands"
            raise RunFailure(f"{state.moved_last} does not come to rest by {JOINT_STATES}; it may change by {still}")
    sets: list[CloudSet] = []
    listening = context.clouds(context.options, watchdog, depth_for(settings.frames), sets.append)
    # The first sets that were scanned after the arm had settled, with the joints' positions at each.
    used: list[tuple[CloudSet, dict[str, float]]] = []
    settled, stale = settled_at(), 0
    with contextlib.closing(listening) as clouds:
        while len(used) < settings.frames:
            context.spin_once(timeout=0.05)
            watchdog.tick()
            if settled_at() != settled:  # it moved after all: what was scanned meanwhile is not of one pose
                settled = settled_at()
                used.clear()
            fresh = [each for each in sets if each.stamp >= settled]
            stale = 0 if fresh else stale + len(sets)
            if stale > STALE:
                behind = f"{1e-9 * (state.stamp - sets[-1].stamp):.1f} s behind those of {JOINT_STATES}"
                matched = "scans cannot be matched with arm poses"
                raise RunFailure(f"the clouds' stamps are {behind}: {matched}; {SYNCHRONISE}")
            sets.clear()
            used += [(each, dict(state.positions)) for each in fresh]
    seen = {name: [each.clouds[name] for each, _ in used] for name in clouds.topics}
    joints = {name: float(np.mean([positions[name] for _, positions in used])) for name in used[0][1]}
    return captured(seen, poses, settings, state.arm, joints)


def calibrated_poses(options, frames: FrameListener, watchdog, lidars: Iterable[str] = SIDES) -> CalibratedPoses:
    """Return the calibration of the `lidars` that is in TF, with the left lidar's extrinsics if it has any, and the
    observations beside the calibration file if that has the same alignment. Raises `Refused` if nobody broadcasts a
    calibration."""
    base, left = options.base_link_frame, options.left_lidar_frame
    frames.wait_for((base, left), watchdog=watchdog)
    calibrated = {name: calibrated_frame_of(name, options) for name in lidars if name != "left"}
    try:
        footprint_from_base, base_from_left, *others = frames.wait_for(
            (options.floor_frame, base), (base, left), *((left, frame) for frame in calibrated.values()),
            watchdog=watchdog,
        )  # fmt: skip
    except InputError as error:
        raise Refused(f"the calibration is not in TF ({error}); run ros_broadcast_calibration in parallel") from error
    if frames.tree.known(options.left_calibrated_frame):  # broadcast together with the frames above
        base_from_left = frames.lookup(base, options.left_calibrated_frame)
    to_left = dict(zip(calibrated, others, strict=True))
    all_to_left = {"left": np.eye(4)} | to_left
    placed = {name: footprint_from_base @ base_from_left @ pose for name, pose in all_to_left.items()}
    file = CalibrationFile.load_or_empty(named_or_default(getattr(options, "calibration_file", "")))
    return CalibratedPoses(footprint_from_base, placed, load_beside(file) if are_of(file.to_left, to_left) else None)
