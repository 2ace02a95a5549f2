"""The calibration as running nodes use it: the file, read again if it changes, the lidars' clouds in its frame, and
`ros_broadcast_calibration`, which publishes it as frames in TF."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_robot_id, named_or_default
from stretch_sim_cal.calibration.mounts.file import left_pose, stored_mounts
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import version_of
from stretch_sim_cal.geometry.transforms import apply, inverse
from stretch_sim_cal.recording.clouds import scan_from_message
from stretch_sim_cal.recording.pairing import CloudSet
from stretch_sim_cal.ros.listening import FrameListener, calibrated_frame_of, lidars_of
from stretch_sim_cal.ros.node_main import NodeContext
from stretch_sim_cal.sensor.points import returns_of

LOOK_EVERY = 1.0  # s
CALIBRATE = "run ros_align_dual_lidar, then ros_find_floor_calibration"
DISPLAY_DTYPE = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("lidar", "<f4")])


def usable_calibration(path: str | Path) -> CalibrationFile:
    """Read a calibration file. Raises `InputError` if it is missing, broken, contradicts itself or has no
    calibration."""
    if not Path(path).exists():
        raise InputError(f"{path}: there is no calibration yet; {CALIBRATE}")
    file = CalibrationFile.load(path)
    if file.contradictions:
        raise InputError(f"{path}: contradicts itself: {'; '.join(file.contradictions)}; calibrate again or roll back")
    if not file.aligned and file.footprint_from_base is None:
        raise InputError(f"{path}: has no calibration; {CALIBRATE}")
    stored_mounts(file)  # incomplete ones show now
    return file


class CalibrationWatch:
    """Keeps `file` up to date; `changed` is called after each change, and may raise `InputError`. An unusable file is a
    warning, once."""

    def __init__(self, context, changed: Callable[[], None]):
        self.path = named_or_default(context.options.calibration_file)
        self._log, self._changed = context.log, changed
        self._read()
        context.every(LOOK_EVERY, self._refresh)

    def _refresh(self) -> None:
        if version_of(self.path) == self._version:
            return
        try:
            self._read()
            self._changed()
        except InputError as error:
            self._log.warning(f"{error}; the previous version stays in use")
            return
        self._log.info(f"{self.path} has changed; it is read again")

    def _read(self) -> None:
        self._version = version_of(self.path)
        self.file = usable_calibration(self.path)
        if not self.file.aligned:
            self._log.warning(f"{self.path} has no alignment of the lidars; run ros_align_dual_lidar")
        if self.file.footprint_from_base is None:
            self._log.warning(f"{self.path} has no floor; run ros_find_floor_calibration")
        ours = default_robot_id()
        others = {entry.robot_id for entry in self.file.entries.values()} - {ours, None}
        if others and ours != "unknown":
            self._log.warning(f"{self.path} was made for {', '.join(sorted(others))}, this robot is {ours}")


@dataclass(frozen=True)
class Placement:
    """The frame of the clouds, by its name in TF, and `footprint_from_lidar` (4, 4) by lidar."""

    frame: str
    footprint_from_lidar: Mapping[str, np.ndarray]

    def combined(self, seen: CloudSet) -> np.ndarray:
        """Return the returns of clouds of one time as records of `DISPLAY_DTYPE` (N,); `lidar` is 0 left, 1 right, and
        so on."""
        parts = []
        for number, (name, footprint_from_lidar) in enumerate(self.footprint_from_lidar.items()):
            points = seen.clouds[name]
            records = np.zeros(len(points), DISPLAY_DTYPE)
            records["x"], records["y"], records["z"] = apply(footprint_from_lidar, points[:, :3]).T
            records["intensity"] = points[:, 4] if points.shape[1] > 4 else _intensity(seen.messages[name])
            records["lidar"] = number
            parts.append(records)
        return np.concatenate(parts)


def _intensity(message) -> np.ndarray | float:
    if any(field.name == "intensity" for field in message.fields):
        return returns_of(scan_from_message(message))["intensity"]
    return 0.0


def placement(options, calibration: CalibrationWatch, frames: FrameListener) -> Placement:
    """Return the lidars' poses by the calibration file, else by TF. Without a floor in the file the frame is the
    described footprint, else `floor_frame`. Raises `InputError` if a frame is unknown, or the file's mounts cannot be
    this robot's."""
    file, base, left = calibration.file, options.base_link_frame, options.left_lidar_frame
    base_from_left = left_pose(file, frames.lookup(base, left))
    frame, footprint_from_base = options.floor_frame, file.footprint_from_base
    if footprint_from_base is None:
        frame = options.footprint_frame
        footprint_from_base = frames.lookup(frame, base)
    footprint_from_left = footprint_from_base @ base_from_left
    placed = {"left": footprint_from_left}
    for name, (_, described) in lidars_of(options).items():
        if name != "left":
            to_left = file.to_left[name] if name in file.to_left else frames.lookup(left, described)
            placed[name] = footprint_from_left @ to_left
    return Placement(frame, placed)


def xyz(records: np.ndarray) -> np.ndarray:
    return np.stack([records["x"], records["y"], records["z"]], axis=1)


OTHERS_SPEAK_FIRST = 3.0  # s of wall time, after base_link was first heard, for others to publish the footprint frame


class Broadcaster:
    """Publishes the frames, latched, and anew when the file or the frames around it change."""

    def __init__(self, context: NodeContext):
        from rclpy.qos import DurabilityPolicy, QoSProfile
        from tf2_msgs.msg import TFMessage

        self._context, self._options = context, context.options
        self._published: dict[tuple[str, str], np.ndarray] = {}
        self._ever_published: list[tuple[str, str, np.ndarray]] = []
        self._base_heard: float | None = None
        self._alone = True
        self._calibration = CalibrationWatch(context, self.publish)
        self._frames = FrameListener(context, ignore=self._is_own)
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._publisher = context.node.create_publisher(TFMessage, "/tf_static", latched)
        context.every(0.5, self.publish)
        context.every(LOOK_EVERY, self._look_for_another)

    def _look_for_another(self) -> None:
        """Warn once when another broadcaster comes to run beside this one."""
        node = self._context.node
        own = node.get_name(), node.get_namespace()
        infos = node.get_publishers_info_by_topic("/tf_static")
        alone = [(info.node_name, info.node_namespace) for info in infos].count(own) <= 1
        if self._alone and not alone:
            sentence = "another ros_broadcast_calibration runs, and TF has the frames of either; stop one of them"
            self._context.log.warning(sentence)
        self._alone = alone

    def publish(self) -> None:
        from stretch_sim_cal.ros.messages import transforms_message

        frames = self._wanted()
        same = [np.array_equal(transform, self._published.get(names)) for names, transform in frames.items()]
        if len(frames) == len(self._published) and all(same):
            return
        new = frames.keys() - self._published.keys()
        for parent, child in self._published.keys() - frames.keys():
            why = "another node publishes it" if self._frames.tree.known(child) else "the file no longer has it"
            self._context.log.warning(f"{parent} -> {child} is no longer published by this node: {why}")
        self._published = frames
        self._ever_published += [(*names, transform) for names, transform in frames.items()]
        self._publisher.publish(transforms_message(frames, self._context.node.get_clock().now().nanoseconds))
        if new:
            names = ", ".join(f"{parent} -> {child}" for parent, child in frames)
            print(f"broadcasting {names} from {self._calibration.path}", flush=True)

    def _wanted(self) -> dict[tuple[str, str], np.ndarray]:
        options, file = self._options, self._calibration.file
        left = options.left_lidar_frame
        # An older robot has another name for the frame.
        frames = calibrated_frames(file, options, self._frames.tree.known(left) or left)
        if file.footprint_from_base is not None and self._footprint_is_free():
            frames[options.base_link_frame, options.footprint_frame] = inverse(file.footprint_from_base)
        return frames

    def _footprint_is_free(self) -> bool:
        tree = self._frames.tree
        if tree.known(self._options.footprint_frame) or not tree.known(self._options.base_link_frame):
            return False
        if self._base_heard is None:
            self._base_heard = time.monotonic()
        return time.monotonic() - self._base_heard >= OTHERS_SPEAK_FIRST

    def _is_own(self, parent: str, child: str, parent_from_child: np.ndarray) -> bool:
        return any(
            (parent, child) == (own_parent, own_child) and np.allclose(own, parent_from_child, atol=1e-9)
            for own_parent, own_child, own in self._ever_published
        )


def calibrated_frames(file: CalibrationFile, options: Any, left_frame: str) -> dict[tuple[str, str], np.ndarray]:
    """Return parent_from_child (4, 4) of the frames of a calibration by (parent, child)."""
    frames = {}
    if file.footprint_from_base is not None:
        frames[options.base_link_frame, options.floor_frame] = inverse(file.footprint_from_base)
    for name, pose in file.to_left.items():
        frames[left_frame, calibrated_frame_of(name, options)] = pose
    mounts = stored_mounts(file)
    if mounts is not None:
        frames[options.base_link_frame, options.left_calibrated_frame] = mounts.base_from_lidar["left"]
    return frames


def broadcast(context: NodeContext) -> None:
    Broadcaster(context).publish()
    context.spin()
