"""`ros_collect_body_shape_data [DIR]`: sweep the arm over a grid of poses and keep what both lidars see of it."""

import sys
from collections.abc import Sequence

from stretch_sim_cal.ros.node_commands import COLLECT
from stretch_sim_cal.ros.node_main import NodeContext, run_node


def collect(context: NodeContext) -> int:
    """Collect, with what that needs imported only now: `--help` and typing errors answer at once."""
    from stretch_sim_cal.ros.collection.flow import collect as collect_samples

    return collect_samples(context)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_node(COLLECT, collect, arguments)


if __name__ == "__main__":
    sys.exit(main())
