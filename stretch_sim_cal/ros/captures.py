"""What a collection needs beside motion: the checks before anything moves, and captures of what the lidars see.

A capture is a few clouds of each lidar of one arm pose, cropped around the robot and thinned.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, calibrated_frame, default_path
from stretch_sim_cal.calibration.observations import Observations, load_beside
from stretch_sim_cal.collection.clearance import cropped
from stretch_sim_cal.collection.settings import CollectionSettings
from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.recording.topics import DESCRIPTION_TOPIC, JOINT_STATES
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.ros.arm_motion import ArmState
from stretch_sim_cal.ros.frame_listener import FrameListener
from stretch_sim_cal.ros.lidar_clouds import CloudSet
from stretch_sim_cal.ros.subscription import node_name

# Sets of clouds scanned before the arm stood still, one after the other, that are no mere latency any more.
STALE = 30
MOVING_MODES = ("position", "navigation")
# s of wall time that a status topic, which some driver publishes, and a parameter get, and until a publisher is found.
ANSWER, DISCOVERED = 10.0, 1.0


@dataclass(frozen=True)
class CalibratedPoses:
    """Where base_link and the lidars, by name, are by the calibration, in the calibrated footprint: 4x4 each; and what
    the alignment observed, which knows their own errors."""

    footprint_from_base: np.ndarray
    footprint_from_lidar: Mapping[str, np.ndarray]
    observations: Observations | None = None

    def points(self, name: str, cloud: np.ndarray) -> np.ndarray:
        """Return the points (N, 3) of a lidar's returns (N, 3 or 5) in the calibrated footprint, with the lidar's own
        errors taken out as far as the calibration knows them."""
        own = cloud[:, :3] if self.observations is None else self.observations.corrected(name, cloud)
        return apply(self.footprint_from_lidar[name], own)


@dataclass(frozen=True)
class Capture:
    """What was seen: `points` (N, 3) in the calibrated footprint, and as `clouds` (N, 3 or 5) by lidar, with ring and
    intensity, in its own frame.

    All are float32 and hold the same returns, `points` in the order of `clouds`, the left ones first. `actual` are the
    arm's joints at that time, `joints` all of the description's.
    """

    points: np.ndarray
    clouds: dict[str, np.ndarray]
    actual: dict[str, float]
    joints: dict[str, float]


def captured(
    seen: Mapping[str, Sequence[np.ndarray]], poses: CalibratedPoses, settings: CollectionSettings,
    arm: dict[str, float], joints: dict[str, float],
) -> Capture:  # fmt: skip
    """Return the capture of what lidars saw by name (returns (N, 3 or 5) of each scan in the lidar's frame)."""
    kept = {
        name: cropped(np.concatenate(own), poses.footprint_from_lidar[name], settings) for name, own in seen.items()
    }
    points = np.concatenate([poses.points(name, cloud) for name, cloud in kept.items()])
    return Capture(points, kept, arm, joints)


class Captures:
    """Takes captures; listens to the lidars only while it does, since clouds are expensive to send and to simulate."""

    def __init__(self, context: Any, options: Any, state: ArmState, watchdog: Any, settings: CollectionSettings):
        self._context = context
        self._options = options
        self._state = state
        self._watchdog = watchdog
        self._settings = settings

    def take(self, poses: CalibratedPoses) -> Capture:
        """Wait until the arm stands still, and capture. Raises `RunFailure` (watchdog) if no clouds come."""
        self._wait_until_settled()
        sets: list[CloudSet] = []
        depth = max(5, self._settings.frames)
        clouds = self._context.clouds(self._options, self._watchdog, depth, sets.append)
        try:
            used, positions = self._settled_sets(sets)
        finally:
            clouds.close()
        seen = {name: [each.clouds[name] for each in used] for name in clouds.topics}
        joints = {name: float(np.mean([values[name] for values in positions])) for name in positions[0]}
        return captured(seen, poses, self._settings, self._state.arm, joints)

    def _settled_sets(self, sets: list[CloudSet]) -> tuple[list[CloudSet], list[dict[str, float]]]:
        """Return the first sets that were scanned after the arm had settled, and the joints' positions at each."""
        settled = self._settled_at
        positions: list[dict[str, float]] = []
        used: list[CloudSet] = []
        stale = 0
        while len(used) < self._settings.frames:
            self._context.spin_once(timeout=0.05)
            self._watchdog.tick()
            if self._settled_at != settled:  # it moved after all: what was scanned meanwhile is not of one pose
                settled = self._settled_at
                used.clear()
                positions.clear()
            fresh = [each for each in sets if each.stamp >= settled]
            stale = 0 if fresh else stale + len(sets)
            if stale > STALE:
                behind = 1e-9 * (self._state.stamp - sets[-1].stamp)
                raise RunFailure(
                    f"the clouds' stamps are {behind:.1f} s behind those of {JOINT_STATES}: it cannot be determined "
                    "which were scanned after the arm stood still; synchronise the lidars' clocks with the robot's"
                )
            sets.clear()
            used += fresh
            positions += [dict(self._state.positions) for _ in fresh]
        return used, positions

    @property
    def _settled_at(self) -> int:
        return self._state.still_since + round(self._settings.settle_time * 1e9)

    def _wait_until_settled(self) -> None:
        while self._state.profile.planned and self._state.stamp < self._settled_at:
            self._context.spin_once(timeout=0.05)
            self._watchdog.tick()


def calibrated_poses(
    options: Any, frames: FrameListener, watchdog: Any, further: Iterable[str] = ()
) -> CalibratedPoses:
    """Return where the calibration in TF has the lidars, `further` ones by name, the left one by its mount if that was
    found.

    Raises `Refused` if nobody broadcasts a calibration.
    """
    frames.wait_for((options.base_link_frame, options.left_lidar_frame), watchdog=watchdog)
    try:
        footprint_from_base, base_from_left, left_from_right, *beyond = frames.wait_for(
            (options.floor_frame, options.base_link_frame),
            (options.base_link_frame, options.left_lidar_frame),
            (options.left_lidar_frame, options.right_calibrated_frame),
            *((options.left_lidar_frame, calibrated_frame(name)) for name in further),
            watchdog=watchdog,
        )
    except InputError as error:
        raise Refused(f"the calibration is not in TF ({error}); run ros_broadcast_calibration beside this") from error
    if frames.tree.known(options.left_calibrated_frame):  # broadcast together with the frames above
        base_from_left = frames.lookup(options.base_link_frame, options.left_calibrated_frame)
    footprint_from_left = footprint_from_base @ base_from_left
    path = getattr(options, "calibration_file", "") or default_path()
    file = CalibrationFile.load_or_empty(path)
    to_left = {"left": np.eye(4), "right": left_from_right} | dict(zip(further, beyond, strict=True))
    placed = {name: footprint_from_left @ pose for name, pose in to_left.items()}
    return CalibratedPoses(footprint_from_base, placed, load_beside(file))


def robot_description(context: Any, frames: FrameListener, watchdog: Any) -> str:
    """Return the URDF text on /robot_description. Raises `RunFailure` (watchdog) if there is none."""
    silence = f"no message on {DESCRIPTION_TOPIC}"
    watchdog.watch(silence, lambda: "the poses are planned on it; does the robot's driver run?")
    while frames.description is None:
        context.spin_once()
        watchdog.tick()
    watchdog.forget(silence)
    return frames.description


def check_driver(
    context: Any, profile: RobotProfile, modes: Sequence[str] = MOVING_MODES, homed: bool = True
) -> None:  # fmt: skip
    """Raise `Refused` if the driver would not, or should not, move: in another of its `modes` (none: it has none), with
    the runstop on, or not `homed` if that is asked for. What it does not tell is a warning."""
    mode = _driver_mode(context, profile.trajectory) if modes else None
    if modes and mode is None:
        context.log.warning(f"the driver does not tell its mode; {' or '.join(modes)} is needed")
    elif modes and mode not in modes:
        raise Refused(
            f"the driver's mode is '{mode}', it has to be {' or '.join(modes)}; "
            f"for example: ros2 param set {_driver_name(context, profile.trajectory)} mode {modes[0]}"
        )
    flags = _flags(context, ("/is_runstopped", *["/is_homed"] * homed))
    if flags["/is_runstopped"]:
        raise Refused("the runstop is on; release it (ros2 service call /runstop std_srvs/srv/SetBool '{data: false}')")
    if flags.get("/is_homed") is False:
        raise Refused("the robot has not been homed; call /home_the_robot (std_srvs/srv/Trigger) first")
    for topic, value in flags.items():
        if value is None:
            context.log.warning(f"the driver does not say {topic}; look yourself")


def _driver_name(context: Any, action: str) -> str | None:
    infos = context.node.get_publishers_info_by_topic(f"{action}/_action/feedback")
    return next(map(node_name, infos), None)


def _driver_mode(context: Any, action: str) -> str | None:
    from rcl_interfaces.srv import GetParameters

    # A driver that runs may not have been found by this node yet: that it says nothing would be no answer.
    if not context.spin_until(lambda: _driver_name(context, action) is not None, timeout=ANSWER):
        return None
    name = _driver_name(context, action)
    client = context.node.create_client(GetParameters, f"{name}/get_parameters")
    try:
        if not context.spin_until(client.service_is_ready, timeout=ANSWER):
            return None
        asked: list[Any] = []

        def answered() -> bool:  # asked every second: a driver that has not found this node yet answers nobody
            if time.monotonic() >= began + len(asked):
                asked.append(client.call_async(GetParameters.Request(names=["mode"])))
            return any(answer.done() for answer in asked)

        began = time.monotonic()
        if not context.spin_until(answered, timeout=ANSWER):
            return None
        values = next(answer for answer in asked if answer.done()).result().values
        return values[0].string_value or None if values else None
    finally:
        context.node.destroy_client(client)


def _flags(context: Any, topics: Sequence[str]) -> dict[str, bool | None]:
    """Return what the driver says on each status topic; None where nobody publishes it, or says nothing."""
    from std_msgs.msg import Bool

    heard: dict[str, bool | None] = dict.fromkeys(topics)
    node = context.node
    subscriptions = [
        node.create_subscription(Bool, topic, lambda message, topic=topic: heard.update({topic: message.data}), 1)
        for topic in topics
    ]
    began = time.monotonic()

    def told() -> bool:  # or there is nobody, after a second in which a publisher is found
        missing = [topic for topic, value in heard.items() if value is None]
        late = time.monotonic() > began + DISCOVERED
        return not missing or late and not any(map(node.get_publishers_info_by_topic, missing))

    try:
        context.spin_until(told, timeout=ANSWER)
    finally:
        for subscription in subscriptions:
            node.destroy_subscription(subscription)
    return heard
