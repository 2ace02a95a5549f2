"""`ros_collect_body_shape_data [DIR]`: sweep the arm over a grid of poses and keep what both lidars see of it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from stretch_sim_cal.recording.dataset import JOINTS
from stretch_sim_cal.ros.listening.cloud_pairs import CLOUD_OPTIONS, TIMEOUT_OPTION
from stretch_sim_cal.ros.listening.frames import LEFT_CALIBRATED_OPTION
from stretch_sim_cal.ros.node_main import NodeCommand, NodeContext, run_node
from stretch_sim_cal.ros.parameters import Option

SETTINGS_OPTION = Option(
    "settings", "body_shape", "settings file, a name in config/ or a path; body_shape: the robot's own, if any"
)


class CollectCommand(NodeCommand):
    """The command line: beside the parameters a folder that may be left out, and two switches."""

    def parser(self) -> argparse.ArgumentParser:
        """Return the parser of the command's own arguments."""
        parser = super().parser()
        parser.add_argument(
            "directory", nargs="?", type=Path, metavar="DIR",
            help="folder of the dataset; one that was begun is continued (default: collected_body_shape_data_TIME)",
        )  # fmt: skip
        parser.add_argument(
            "--dry-run", action="store_true", help="print the plan and the time it takes, and move nothing"
        )
        parser.add_argument("--yes", action="store_true", help="move without asking first")
        parser.add_argument(
            "--ignore-obstacles", action="store_true", help="move although something is in the arm's way"
        )
        return parser


COMMAND = CollectCommand(
    executable="ros_collect_body_shape_data",
    node_name="collect_body_shape_data",
    description=(
        "Move the arm through a grid of poses, free of collisions, and record what both lidars see of the robot in\n"
        "each. Needs the driver, and ros_broadcast_calibration running beside it. THE ROBOT MOVES ITS ARM: keep the\n"
        "room around it clear and a hand at the runstop. Ctrl-C stops it; the same DIR continues later."
    ),
    example="ros_collect_body_shape_data my_data --plan default --arm count:6 --wrist-yaw 0,1.57,3.14",
    options=(
        Option("plan", "default", "plan of the settings file (demo, default, full, ...)"),
        SETTINGS_OPTION,
        *(
            Option(joint, None, f"grid of {joint} in place of the plan's: '0, 0.2, 0.4' or 'count:4,from:0,to:0.4'", kind=str)
            for joint in JOINTS
        ),
        Option("frames", None, "pairs of clouds per pose in place of the settings'", kind=int, minimum=1, maximum=1000),
        Option("speed_factor", 1.0, "of the reduced speeds in the settings", minimum=0.05, maximum=10.0),
        Option("floor_frame", "floor_plane", "the calibrated footprint frame"),
        Option("right_calibrated_frame", "lidar_right_calibrated", "the right lidar's calibrated frame"),
        LEFT_CALIBRATED_OPTION,
        *CLOUD_OPTIONS,
        TIMEOUT_OPTION,
    ),
)  # fmt: skip


def collect(context: NodeContext) -> int:
    """Collect, with what that needs imported only now: `--help` and typing errors answer at once."""
    from stretch_sim_cal.ros.collection.flow import collect as collect_samples

    return collect_samples(context)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_node(COMMAND, collect, arguments)


if __name__ == "__main__":
    sys.exit(main())
