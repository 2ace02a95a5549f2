"""`ros_visualize_calibration`: both clouds as one by the calibration, and what of them is floor, for RViz."""

import math
import sys
from collections.abc import Sequence

import numpy as np

from stretch_sim_cal.ros.calibration_in_use import CalibrationWatch, placement, warn_without_broadcast
from stretch_sim_cal.ros.cloud_pairs import CloudPair, CloudPairs
from stretch_sim_cal.ros.frame_listener import FrameListener
from stretch_sim_cal.ros.node_commands import VISUALIZE
from stretch_sim_cal.ros.node_main import NodeContext, follow_changes, run_node
from stretch_sim_cal.ros.watchdog import Watchdog


class Visualizer:
    """Publishes three clouds for every pair that arrives."""

    def __init__(self, context: NodeContext):
        from sensor_msgs.msg import PointCloud2

        self._options = context.options
        follow_changes(context.node, VISUALIZE.options, context.options)
        self._calibration = CalibrationWatch(context, self._place)
        watchdog = Watchdog(math.inf, context.log.warning)
        self._frames = FrameListener(context)
        self._frames.wait_for((context.options.base_link_frame, context.options.left_lidar_frame), watchdog=watchdog)
        self._place()
        self._combined, self._floor, self._off_floor = (
            context.node.create_publisher(PointCloud2, topic, 2)
            for topic in ("lidar_combined", "lidar_floor_inliers", "lidar_off_floor")
        )
        CloudPairs(context, context.options, watchdog, depth=2, on_pair=self._show)
        context.every(0.5, watchdog.tick)
        warn_without_broadcast(context, self._frames, self._placement.frame)

    def _place(self) -> None:
        self._placement = placement(self._options, self._calibration, self._frames)

    def _show(self, pair: CloudPair) -> None:
        from stretch_sim_cal.ros.messages import cloud_message

        publishers = (self._combined, self._floor, self._off_floor)
        if not any(publisher.get_subscription_count() for publisher in publishers):
            return
        records = self._placement.combined(pair)
        is_floor = np.abs(records["z"]) <= self._options.floor_vertical_distance_threshold
        for publisher, part in zip(publishers, (records, records[is_floor], records[~is_floor]), strict=True):
            if publisher.get_subscription_count():
                publisher.publish(cloud_message(part, self._placement.frame, pair.stamp))


def visualize(context: NodeContext) -> None:
    """Show the calibrated clouds until a signal ends the node."""
    Visualizer(context)
    print("visualizing on /lidar_combined, /lidar_floor_inliers, /lidar_off_floor", flush=True)
    context.spin()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_node(VISUALIZE, visualize, arguments)


if __name__ == "__main__":
    sys.exit(main())
