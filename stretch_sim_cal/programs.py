"""What the console scripts start: each imports its own module, and Ctrl-C is no traceback while that takes its second.

`stretch_sim_cal.programs:NAME` is a function for every program NAME.
"""

import importlib
import os
from collections.abc import Callable
from functools import partial

from stretch_sim_cal import command

PROGRAMS = {
    "stretch_sim_cal": "cli",
    "stretch_simulator": "ros.simulator_node",
    "ros_align_dual_lidar": "ros.align_node",
    "ros_find_floor_calibration": "ros.floor_node",
    "ros_broadcast_calibration": "ros.broadcast_node",
    "ros_visualize_calibration": "ros.visualize_node",
    "ros_capture_clouds": "ros.capture_node",
    "ros_collect_body_shape_data": "ros.collect_node",
    "ros_calibrate_lidar_mounts": "ros.mounts_node",
    "ros_visualize_body_shape_calibration": "ros.body_shape_visualize_node",
    "fit_body_shape_model": "commands.fit_body_shape",
}


# How many threads numpy's and scipy's libraries take; they read it once, when numpy is imported. Matrices are small here,
# and more threads cost up to four times the processor time, which drivers and nodes beside share.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def __getattr__(name: str) -> Callable[[], int]:
    if name not in PROGRAMS:
        raise AttributeError(f"module {__name__} has no program {name}")
    return partial(_run, name)


def _run(name: str) -> int:
    for variable in THREADS:
        os.environ.setdefault(variable, "1")
    return command.run(lambda: _main(name))


def _main(name: str) -> int:
    if PROGRAMS[name].startswith("ros."):
        from stretch_sim_cal.ros.node_commands import NODE_COMMANDS

        NODE_COMMANDS[name].parse()  # `--help` and typing errors answer before all that the node imports
    return importlib.import_module(f"stretch_sim_cal.{PROGRAMS[name]}").main()
