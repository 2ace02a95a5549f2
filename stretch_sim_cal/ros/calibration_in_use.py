"""The calibration as running nodes use it: the file, read again if it changes, and the lidars' clouds in its frame."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_path, default_robot_id
from stretch_sim_cal.calibration.mounts.file import left_pose
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.recording.clouds import scan_from_message
from stretch_sim_cal.recording.pairing import CloudSet
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.ros.frame_listener import FrameListener
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
    if file.right_to_left is None and file.footprint_from_base is None:
        raise InputError(f"{path}: has no calibration; {CALIBRATE}")
    return file


class CalibrationWatch:
    """Keeps `file` up to date; `changed` is called after each change. An unusable file is a warning, once."""

    def __init__(self, context, changed: Callable[[], None] = lambda: None):
        self.path = Path(context.options.calibration_file or default_path()).expanduser()
        self._log, self._changed = context.log, changed
        self._read()
        context.every(LOOK_EVERY, self._refresh)

    def _status(self) -> tuple | None:
        with contextlib.suppress(OSError):
            status = self.path.stat()
            return status.st_mtime_ns, status.st_size, status.st_ino
        return None

    def _refresh(self) -> None:
        if self._status() == self._version:
            return
        try:
            self._read()
        except InputError as error:
            self._log.warning(f"{error}; the previous version stays in use")
            return
        self._log.info(f"{self.path} has changed; it is read again")
        self._changed()

    def _read(self) -> None:
        self._version = self._status()
        self.file = usable_calibration(self.path)
        if self.file.right_to_left is None:
            self._log.warning(f"{self.path} has no alignment of the lidars; run ros_align_dual_lidar")
        if self.file.footprint_from_base is None:
            self._log.warning(f"{self.path} has no floor; run ros_find_floor_calibration")
        ours = default_robot_id()
        others = {entry.robot_id for entry in self.file.entries.values()} - {ours, None, "unknown"}
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
            if (points := seen.clouds.get(name)) is None:  # the robot has one lidar
                continue
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
    further = {name: lidar.frame for name, lidar in profile_called(options.robot).further.items()}
    placed = {"left": footprint_from_left}
    for name, described in {"right": options.right_lidar_frame, **further}.items():
        to_left = file.to_left[name] if name in file.to_left else frames.lookup(left, described)
        placed[name] = footprint_from_left @ to_left
    return Placement(frame, placed)


def xyz(records: np.ndarray) -> np.ndarray:
    return np.stack([records["x"], records["y"], records["z"]], axis=1)
