"""A few clouds of all lidars: into an .npz file (`ros_capture_clouds FILE`), for pictures and for trying things by
hand, or as arrays (`stretch-sim-cal verify`)."""

from collections.abc import Mapping

import numpy as np

from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.recording.dataset import cloud_name
from stretch_sim_cal.ros.lidar_clouds import LiveRobot, depth_for, with_right
from stretch_sim_cal.ros.node_commands import VERIFY
from stretch_sim_cal.ros.node_main import NodeContext, in_node
from stretch_sim_cal.ros.robot_context import RobotContext


def capture(context: RobotContext) -> int:
    """Collect clouds of all lidars and write them, complete or not at all."""
    options = context.options
    sets = context.clouds(options, context.watchdog(options.timeout), depth=depth_for(options.num_samples))
    taken = [with_right(each.clouds) for each in sets.take(options.num_samples, "capturing")]
    clouds = {name: np.concatenate([each[name] for each in taken]) for name in taken[0]}
    arrays = {cloud_name(name): cloud for name, cloud in clouds.items()}
    write_atomic(context.arguments.file, lambda stream: np.savez_compressed(stream, **arrays))
    counts = " and ".join(f"{len(cloud)} {name}" for name, cloud in clouds.items())
    context.log.info(f"{len(taken)} sets of clouds, {counts} returns, in {context.arguments.file}")
    return 0


def live_clouds(
    count: int, given: Mapping[str, object]
) -> tuple[list[dict[str, np.ndarray]], np.ndarray, np.ndarray, str | None]:
    """Return `count` sets of clouds of all lidars by name, base_from_left and the nominal footprint_from_base (4, 4),
    and /robot_description if it is heard; `given` are values of `VERIFY`'s options, by name. Raises `RunFailure` if a
    topic stays silent, `InputError` if frames are missing or ROS 2 is not there."""

    def listen(node: NodeContext):
        context = RobotContext.of(node)
        robot, options = LiveRobot(context), context.options
        base_and_left = (options.base_link_frame, options.left_lidar_frame)
        (base_from_left,) = robot.frames.wait_for(base_and_left, watchdog=robot.watchdog)
        return list(robot.clouds("verifying")), base_from_left, robot.footprint_from_base, robot.description

    given = {"num_samples": count, **given}
    return in_node(VERIFY, listen, [f"--{name}={value}" for name, value in given.items() if value is not None])
