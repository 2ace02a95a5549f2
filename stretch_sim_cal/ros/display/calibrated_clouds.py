"""Both lidars' clouds as one, in the calibrated footprint frame: what the visualizers show."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.calibration.mounts.file import left_pose
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.recording.clouds import fields_from_message
from stretch_sim_cal.ros.calibration_watch import CalibrationWatch
from stretch_sim_cal.ros.listening.cloud_pairs import CloudPair
from stretch_sim_cal.ros.listening.frames import FrameListener

# Wall time in s in which the broadcaster's frame should have been heard.
BROADCAST_GRACE = 3.0
DISPLAY_DTYPE = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("lidar", "<f4")])


@dataclass(frozen=True)
class Placement:
    """Where each lidar's points go: `footprint_from_left`, `footprint_from_right` (4, 4); `frame` is its name in TF."""

    frame: str
    footprint_from_left: np.ndarray
    footprint_from_right: np.ndarray

    def combined(self, pair: CloudPair) -> np.ndarray:
        """Return the returns of both lidars as records of `DISPLAY_DTYPE` (N,); `lidar` is 0 left, 1 right."""
        parts = []
        for number, (points, message, footprint_from_lidar) in enumerate(
            (
                (pair.left, pair.left_message, self.footprint_from_left),
                (pair.right, pair.right_message, self.footprint_from_right),
            )
        ):
            records = np.zeros(len(points), DISPLAY_DTYPE)
            records["x"], records["y"], records["z"] = apply(footprint_from_lidar, points[:, :3]).T
            records["intensity"] = points[:, 4] if points.shape[1] > 4 else _intensity(message)
            records["lidar"] = number
            parts.append(records)
        return np.concatenate(parts)


def _intensity(message) -> np.ndarray | float:
    if any(field.name == "intensity" for field in message.fields):
        return fields_from_message(message, ["intensity"], returns_only=True)["intensity"]
    return 0.0


def placement(options, calibration: CalibrationWatch, frames: FrameListener) -> Placement:
    """Return where the clouds belong by the calibration file, with TF in place of what the file does not hold.

    Without a floor in the file the frame is the described footprint, else `floor_frame`. Raises `InputError` where a
    frame is unknown, or the file's mounts cannot be this robot's.
    """
    file = calibration.file
    base_from_left = left_pose(file, frames.lookup(options.base_link_frame, options.left_lidar_frame))
    right_to_left = file.right_to_left
    if right_to_left is None:
        right_to_left = frames.lookup(options.left_lidar_frame, options.right_lidar_frame)
    frame, footprint_from_base = options.floor_frame, file.footprint_from_base
    if footprint_from_base is None:
        frame = options.footprint_frame
        footprint_from_base = frames.lookup(frame, options.base_link_frame)
    footprint_from_left = footprint_from_base @ base_from_left
    return Placement(frame, footprint_from_left, footprint_from_left @ right_to_left)


def xyz(records: np.ndarray) -> np.ndarray:
    """Return the points (N, 3) of records."""
    return np.stack([records["x"], records["y"], records["z"]], axis=1)


def warn_without_broadcast(context, frames: FrameListener, frame: str) -> None:
    """Say so where TF does not have `frame` a while after the start: RViz would show nothing."""
    if not context.spin_until(lambda: frames.tree.known(frame), timeout=BROADCAST_GRACE):
        context.log.warning(f"frame '{frame}' is not in TF, so RViz shows nothing; run ros_broadcast_calibration")
