"""`ros_capture_clouds FILE`: a few pairs of raw clouds into an .npz file, for pictures and for trying things by hand."""

import sys
from collections.abc import Sequence

import numpy as np

from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.ros.listening.cloud_pairs import CLOUD_OPTIONS, TIMEOUT_OPTION, CloudPairs
from stretch_sim_cal.ros.listening.watchdog import Watchdog
from stretch_sim_cal.ros.node_main import NodeCommand, NodeContext, run_node
from stretch_sim_cal.ros.parameters import Option

COMMAND = NodeCommand(
    executable="ros_capture_clouds",
    node_name="capture_clouds",
    description=(
        "Write a few pairs of clouds as they come, each in its own lidar's frame, to FILE (.npz with the arrays\n"
        "left and right, (N, 3) in m)."
    ),
    example="ros_capture_clouds clouds.npz --num-samples 3",
    options=(
        *CLOUD_OPTIONS,
        Option("num_samples", 2, "pairs of clouds to write", minimum=1, maximum=1000),
        TIMEOUT_OPTION,
    ),
    arguments=(("file", "where to write"),),
)


def capture(context: NodeContext) -> int:
    """Collect pairs of clouds and write them, complete or not at all."""
    options = context.options
    clouds = CloudPairs(context, options, Watchdog(options.timeout, context.log.warning))
    pairs = list(clouds.take(options.num_samples, "capturing"))
    left, right = (np.concatenate([getattr(pair, side) for pair in pairs]) for side in ("left", "right"))
    write_atomic(context.arguments.file, lambda stream: np.savez_compressed(stream, left=left, right=right))
    context.log.info(
        f"{len(pairs)} pairs, {len(left)} left and {len(right)} right returns, in {context.arguments.file}"
    )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_node(COMMAND, capture, arguments)


if __name__ == "__main__":
    sys.exit(main())
