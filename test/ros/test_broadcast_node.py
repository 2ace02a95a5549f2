"""The broadcaster as a process, heard by a node in the test."""

import signal

import numpy as np
import pytest
from fake_drivers import publish_frames, true_right_to_left, write_calibration
from node_process import PATIENCE, stop, wait_for_line

from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.ros.frame_listener import FrameListener

pytestmark = pytest.mark.graph


def publish_robot(node, footprint: bool):
    edges = [("base_link", "link_lidar_left")] + [("base_footprint", "base_link")] * footprint
    publish_frames(node, {edge: np.eye(4) for edge in edges})


def test_publishes_the_calibration_beside_the_robots_own_frames_and_follows_the_file(ros, shared):
    base_from_floor = write_calibration(shared.calibration_file, 0.03)
    publish_robot(ros.drivers, footprint=True)
    frames = FrameListener(ros.context)
    with shared.running("ros_broadcast_calibration", ready="broadcasting") as process:
        tree = frames.tree
        assert ros.context.spin_until(
            lambda: tree.known("floor_plane") and tree.known("base_footprint"), timeout=PATIENCE
        )
        assert np.allclose(tree.lookup("base_link", "floor_plane"), base_from_floor, atol=1e-9)
        # An older robot's name of the left lidar's frame is the parent, once it has been heard.
        connected = lambda: tree.parent("lidar_right_calibrated") == "link_lidar_left"  # noqa: E731
        assert ros.context.spin_until(connected, timeout=PATIENCE)
        assert np.allclose(tree.lookup("link_lidar_left", "lidar_right_calibrated"), true_right_to_left(), atol=1e-9)

        shared.calibration_file.write_text("right_to_left_transform: {data: [[1")
        wait_for_line(process, "the previous version stays in use", "stderr")
        assert not tree.known("lidar_left_calibrated")
        base_from_left = from_xyz_rpy((0.04, 0.12, 1.5), (0.1, 0.2, 0.3))
        moved = write_calibration(shared.calibration_file, 0.05, base_from_left=base_from_left)
        follows = lambda: np.allclose(tree.lookup("base_link", "floor_plane"), moved, atol=1e-9)  # noqa: E731
        assert ros.context.spin_until(follows, timeout=PATIENCE)
        assert np.allclose(tree.lookup("base_link", "lidar_left_calibrated"), base_from_left, atol=1e-9)
        assert np.allclose(tree.lookup("link_lidar_left", "lidar_right_calibrated"), true_right_to_left(), atol=1e-9)
        assert tree.parent("base_footprint") is None and tree.parent("base_link") == "base_footprint"
        assert stop(process) == 0


def test_publishes_base_footprint_only_where_nobody_else_does(ros, shared):
    base_from_floor = write_calibration(shared.calibration_file, 0.03)
    publish_robot(ros.drivers, footprint=False)
    frames = FrameListener(ros.context)
    with shared.running("ros_broadcast_calibration", ready="base_link -> base_footprint") as process:
        assert ros.context.spin_until(lambda: frames.tree.known("base_footprint"), timeout=PATIENCE)
        assert np.allclose(frames.tree.lookup("base_link", "base_footprint"), base_from_floor, atol=1e-9)
        publish_robot(ros.drivers, footprint=True)
        assert ros.context.spin_until(lambda: frames.tree.parent("base_link") == "base_footprint", timeout=PATIENCE)
        wait_for_line(process, "base_link -> base_footprint is now published by another node", "stderr")
        assert stop(process, signal.SIGTERM) == 0
