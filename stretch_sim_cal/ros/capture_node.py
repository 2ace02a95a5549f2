"""`ros_capture_clouds FILE`: a few pairs of raw clouds into an .npz file, for pictures and for trying things by hand."""

import sys
from collections.abc import Sequence

import numpy as np

from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.ros.listening.cloud_pairs import CloudPairs
from stretch_sim_cal.ros.listening.watchdog import Watchdog
from stretch_sim_cal.ros.node_commands import CAPTURE
from stretch_sim_cal.ros.node_main import NodeContext, run_node


def capture(context: NodeContext) -> int:
    """Collect pairs of clouds and write them, complete or not at all."""
    options = context.options
    clouds = CloudPairs(context, options, Watchdog(options.timeout, context.log.warning))
    pairs = list(clouds.take(options.num_samples, "capturing"))
    left, right = (np.concatenate([getattr(pair, side)[:, :3] for pair in pairs]) for side in SIDES)
    write_atomic(context.arguments.file, lambda stream: np.savez_compressed(stream, left=left, right=right))
    context.log.info(
        f"{len(pairs)} pairs, {len(left)} left and {len(right)} right returns, in {context.arguments.file}"
    )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_node(CAPTURE, capture, arguments)


if __name__ == "__main__":
    sys.exit(main())
