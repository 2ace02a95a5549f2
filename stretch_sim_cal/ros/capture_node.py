"""A few pairs of clouds of a running robot or simulator: into an .npz file (`ros_capture_clouds FILE`), for pictures and
for trying things by hand, or as arrays, with the frames of the description."""

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.ros.cloud_pairs import CloudPairs
from stretch_sim_cal.ros.frame_listener import FrameListener
from stretch_sim_cal.ros.node_commands import CLOUD_OPTIONS, TIMEOUT_OPTION
from stretch_sim_cal.ros.node_main import NodeCommand, NodeContext, in_node

VERIFY = NodeCommand(
    executable="stretch-sim-cal verify",
    node_name="verify_calibration",
    description="Listen to both lidars.",
    example="stretch-sim-cal verify",
    options=(*CLOUD_OPTIONS, TIMEOUT_OPTION),
)


def capture(context: NodeContext) -> int:
    """Collect pairs of clouds and write them, complete or not at all."""
    options = context.options
    clouds = CloudPairs(context, options, context.watchdog(options.timeout))
    pairs = list(clouds.take(options.num_samples, "capturing"))
    left, right = (np.concatenate([getattr(pair, side) for pair in pairs]) for side in SIDES)
    write_atomic(context.arguments.file, lambda stream: np.savez_compressed(stream, left=left, right=right))
    context.log.info(
        f"{len(pairs)} pairs, {len(left)} left and {len(right)} right returns, in {context.arguments.file}"
    )
    return 0


def live_clouds(
    count: int, left_topic: str, right_topic: str, left_frame: str, right_frame: str, base: str, footprint: str,
    max_time_difference: float,
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray, np.ndarray]:  # fmt: skip
    """Return `count` pairs (left, right) of points (N, 3), base_from_left and the nominal footprint_from_base (4, 4).

    Raises `RunFailure` if a topic stays silent, `InputError` if frames are missing or ROS 2 is not there.
    """

    def listen(context: NodeContext):
        watchdog = context.watchdog(context.options.timeout)
        frames = FrameListener(context)
        clouds = CloudPairs(context, context.options, watchdog)
        (base_from_left,) = frames.wait_for((base, context.options.left_lidar_frame), watchdog=watchdog)
        pairs = [(pair.left, pair.right) for pair in clouds.take(count, "verifying")]
        try:
            return pairs, base_from_left, frames.lookup(footprint, base)
        except InputError as error:
            context.log.warning(f"{error}; the floor is looked for around {base}'s own origin")
            return pairs, base_from_left, np.eye(4)

    arguments = [
        f"--left-lidar-topic={left_topic}", f"--right-lidar-topic={right_topic}", f"--left-lidar-frame={left_frame}",
        f"--right-lidar-frame={right_frame}", f"--max-time-difference={max_time_difference}",
    ]  # fmt: skip
    return in_node(VERIFY, listen, arguments)
