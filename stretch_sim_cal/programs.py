"""The console scripts, `stretch_sim_cal.programs:NAME` for every program NAME: each imports its own module, and Ctrl-C
is not a traceback while that takes its second."""

import importlib
import os
from collections.abc import Callable, Sequence
from functools import partial

from stretch_sim_cal import command

# By name: the module whose `main` is called, or, of a node, the function that runs in its context.
PROGRAMS = {
    "stretch_sim_cal": "cli",
    "stretch_simulator": "ros.simulator_node:simulate",
    "ros_align_dual_lidar": "ros.calibration_nodes:align",
    "ros_find_floor_calibration": "ros.calibration_nodes:find_floor",
    "ros_broadcast_calibration": "ros.calibration_in_use:broadcast",
    "ros_visualize_calibration": "ros.display_nodes:visualize",
    "ros_capture_clouds": "ros.live:capture",
    "ros_collect_body_shape_data": "ros.collect_node:collect",
    "ros_calibrate_lidar_mounts": "ros.calibration_nodes:calibrate_mounts",
    "ros_calibrate_by_driving": "ros.calibration_nodes:calibrate_by_driving",
    "ros_visualize_body_shape_calibration": "ros.display_nodes:visualize_body_shape",
    "ros_publish_footprint": "ros.display_nodes:publish_footprint",
    "ros_watch_calibration": "ros.watch_node:watch",
    "fit_body_shape_model": "commands.fit_body_shape",
    "ros_calibrate_robot": "commands.calibrate_robot",
}


# How many threads numpy's and scipy's libraries take; they read it once, when numpy is imported. Matrices are small
# here, and more threads cost up to four times the processor time, which drivers and nodes beside share.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def __getattr__(name: str) -> Callable[[], int]:
    if name not in PROGRAMS:
        raise AttributeError(f"module {__name__} has no program {name}")
    return partial(_run, name)


def _run(name: str) -> int:
    for variable in THREADS:
        os.environ.setdefault(variable, "1")
    return command.run(lambda: main(name))


def main(name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a program's command line (this process's by default) and return its exit code."""
    module, _, action = PROGRAMS[name].partition(":")
    if not action:
        return importlib.import_module(f"stretch_sim_cal.{module}").main(arguments)
    from stretch_sim_cal.ros.node_commands import NODE_COMMANDS
    from stretch_sim_cal.ros.node_main import run_node

    def act(context) -> int | None:
        from stretch_sim_cal.ros.robot_context import RobotContext

        return getattr(importlib.import_module(f"stretch_sim_cal.{module}"), action)(RobotContext.of(context))

    return run_node(NODE_COMMANDS[name], act, arguments)
