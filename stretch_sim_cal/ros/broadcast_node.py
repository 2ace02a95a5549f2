"""`ros_broadcast_calibration`: the calibration as frames in TF. It publishes `base_link` -> `floor_plane`,
`lidar_left_link` -> `lidar_right_calibrated`, likewise `lidar_NAME_calibrated` for each lidar beyond two, and, if the
file has mounts, `base_link` -> `lidar_left_calibrated`. The frames of the robot's own description stay its own:
`base_link` -> `base_footprint` is added only if nobody else publishes that frame."""

import time
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, calibrated_frame
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.ros.calibration_in_use import CalibrationWatch
from stretch_sim_cal.ros.frame_listener import FrameListener
from stretch_sim_cal.ros.node_main import NodeContext

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
        self._calibration = CalibrationWatch(context, self.publish)
        self._frames = FrameListener(context, ignore=self._is_own)
        self._publisher = context.node.create_publisher(
            TFMessage, "/tf_static", QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        )
        context.every(0.5, self.publish)

    def publish(self) -> None:
        from stretch_sim_cal.ros.messages import transforms_message

        frames = self._wanted()
        same = [np.array_equal(transform, self._published.get(names)) for names, transform in frames.items()]
        if len(frames) == len(self._published) and all(same):
            return
        new = frames.keys() - self._published.keys()
        for parent, child in self._published.keys() - frames.keys():
            self._context.log.warning(f"{parent} -> {child} is now published by another node, no longer by this one")
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
    if file.right_to_left is not None:
        frames[left_frame, options.right_calibrated_frame] = file.right_to_left
        frames |= {(left_frame, calibrated_frame(name)): pose for name, pose in file.further_to_left.items()}
    mounts = stored_mounts(file)
    if mounts is not None:
        frames[options.base_link_frame, options.left_calibrated_frame] = mounts.base_from_lidar["left"]
    return frames


def broadcast(context: NodeContext) -> None:
    Broadcaster(context).publish()
    context.spin()
