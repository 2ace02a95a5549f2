"""The harness's processes as actions of ROS's `launch` (the package index has another of that name), for the launch
files and the launch tests."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from launch.conditions import IfCondition
from launch.event_handlers import OnProcessExit, OnProcessIO
from launch.events import Shutdown
from launch.events.process import ProcessExited, ProcessIO
from launch.substitutions import LaunchConfiguration

from launch import Action, LaunchContext, LaunchDescription, actions
from stretch_sim_cal.files import share_directory
from stretch_sim_cal.harness import processes
from stretch_sim_cal.harness.processes import Process, ProcessSequence, RunFiles, node_process
from stretch_sim_cal.harness.scenario import STAGE_OPTIONS, STAGES

PATIENCE_AT_SHUTDOWN = "10"  # s until SIGTERM, and as many again until SIGKILL


class LaunchedSequence:
    """Processes that ROS's launch starts one after the other, in the order of `sequence`. If one fails, nothing more
    starts, and the launch is shut down unless `stay_after_failure`. `on_end` is called once, at the end."""

    def __init__(
        self, processes: Sequence[Process], environment: Mapping[str, str] = MappingProxyType({}),
        after_ready: Mapping[str, Sequence[Action]] = MappingProxyType({}), shutdown_at_end: bool = False,
        stay_after_failure: bool = False, on_end: Callable[[], None] = lambda: None,
    ):  # fmt: skip
        self.sequence = ProcessSequence(processes)
        self._after_ready, self._on_end = after_ready, on_end
        self._shutdown_at_end, self._stay_after_failure = shutdown_at_end, stay_after_failure
        environment = dict(environment) | {"PYTHONUNBUFFERED": "1"}
        self._actions = {
            each.name: actions.ExecuteProcess(
                cmd=each.command, name=each.name, additional_env=environment, output="screen",
                sigterm_timeout=PATIENCE_AT_SHUTDOWN, sigkill_timeout=PATIENCE_AT_SHUTDOWN,
            ) for each in processes
        }  # fmt: skip

    def start(self) -> list[Action]:
        handlers: list[Any] = []
        for process in self.sequence.processes:
            action, read = self._actions[process.name], partial(self._read, process)
            handlers.append(OnProcessIO(target_action=action, on_stdout=read, on_stderr=read))
            handlers.append(OnProcessExit(target_action=action, on_exit=partial(self._ended, process)))
        return [*map(actions.RegisterEventHandler, handlers), *self._next()]

    def _read(self, process: Process, event: ProcessIO) -> list[Action] | None:
        if self.sequence.printed(process, event.text.decode(errors="replace")):
            return [*self._after_ready.get(process.name, ()), *self._next()]
        return None

    def _ended(self, process: Process, event: ProcessExited, context: LaunchContext) -> list[Action] | None:
        if context.is_shutdown or self.sequence.over:
            self.sequence.exit_codes[process.name] = event.returncode
        elif self.sequence.ended(process, event.returncode):
            return self._next()
        elif self.sequence.failure is not None:
            self._on_end()
            return [] if self._stay_after_failure else [_shutdown(self.sequence.failure.sentence)]
        return None

    def _next(self) -> list[Action]:
        process = self.sequence.next()
        if process is not None:
            return [self._actions[process.name]]
        self._on_end()
        if self._shutdown_at_end:
            return [_shutdown("all steps have succeeded")]
        has_steps = any(process.ready_line is None for process in self.sequence.processes)
        return [actions.LogInfo(msg="all steps have succeeded")] if has_steps else []


def _shutdown(reason: str) -> Action:
    return actions.EmitEvent(event=Shutdown(reason=reason))


def rviz(use_sim_time: bool, *options: str) -> actions.ExecuteProcess:
    """Return RViz with the package's view, started if the launch's argument `rviz` is true."""
    view = str(share_directory() / "rviz" / "dual_lidar_calibration.rviz")
    command = ["rviz2", "-d", view, *options, "--ros-args", "-p", f"use_sim_time:={str(use_sim_time).lower()}"]
    condition = IfCondition(LaunchConfiguration("rviz"))
    return actions.ExecuteProcess(cmd=command, name="rviz2", output="screen", condition=condition)


def calibration_description(use_sim_time: bool, motion_warning: str = "") -> LaunchDescription:
    """Return a launch of the calibration nodes one after the other, then of those that run beside the robot's work.
    `motion_warning` is added to the description of every argument that makes the arm move."""
    alignment, floor, mounts, body_shape = (STAGE_OPTIONS[stage] for stage in STAGES[:4])
    arguments = (
        ("robot", "", "the robot's profile: a name in config/robots/, or a path; by default the Stretch's"),
        ("sensor", "", "kind of the lidars: a name in config/, a YAML file, or unknown; by default the nodes' own"),
        ("alignment_samples", alignment["num_samples"], "pairs of clouds for the transform between the lidars"),
        ("floor_samples", floor["num_samples"], "pairs of clouds for the floor"),
        ("alignment_method", "", "of the alignment; by default the node's own"),
        ("floor_method", "", "of the floor; by default the node's own"),
        ("mounts", False, f"also calibrate the lidar extrinsics{motion_warning}"),
        ("mounts_plan", mounts["plan"], "plan of the poses for the extrinsics"),
        ("body_shape", False, f"also collect body-shape data and fit the model{motion_warning}"),
        ("plan", body_shape["plan"], "of the body-shape collection"),
        ("fit_method", body_shape["fit_method"], "kind of body shape"),
        ("data", os.path.join("out", "launched"), "folder for the data of mounts and body shape"),
        ("stay", True, "keep broadcasting the calibrated frames after all steps"),
        ("watch", False, "keep monitoring the calibration"),
        ("footprint", False, "publish the body shape as Nav2's footprint: the one fitted here, else the robot's own"),
        ("rviz", False, "open RViz as well"),
    )
    return LaunchDescription([
        *(_argument(name, default, description) for name, default, description in arguments),
        actions.OpaqueFunction(function=lambda context: _calibration(context, use_sim_time)),
        rviz(use_sim_time),
    ])  # fmt: skip


def _argument(name: str, default: object, description: str) -> actions.DeclareLaunchArgument:
    text, choices = (str(default).lower(), ["true", "false"]) if isinstance(default, bool) else (str(default), None)
    return actions.DeclareLaunchArgument(name, default_value=text, choices=choices, description=description)


def _calibration(context: LaunchContext, use_sim_time: bool) -> list[Action]:
    def given(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    stages: dict[str, dict] = {
        stage: {"num_samples": given(f"{stage}_samples"), "method": given(f"{stage}_method") or None}
        for stage in ("alignment", "floor")
    }
    if given("mounts") == "true":
        stages["mounts"] = {"plan": given("mounts_plan")}
    if given("body_shape") == "true":
        stages["body_shape"] = {"plan": given("plan"), "fit_method": given("fit_method")}
    files, sensor = RunFiles(Path(given("data")).expanduser().resolve()), given("sensor") or None
    common = {"use_sim_time": use_sim_time, "robot": given("robot") or None}
    nodes = processes.calibration_nodes(stages, files, sensor=sensor, **common)
    if not {"mounts", "body_shape"} & set(stages):
        nodes.append(processes.broadcast_process(**common))
    if given("watch") == "true":
        nodes.append(node_process("watch", "ros_watch_calibration", ready_line="monitoring", sensor=sensor, **common))
    if given("footprint") == "true":
        model = [str(files.body_shape_model)] if "body_shape" in stages else []  # by default the robot's own
        ready = "publishing the footprint"
        nodes.append(node_process("footprint", "ros_publish_footprint", *model, ready_line=ready, **common))
    after_ready = {}
    if given("rviz") == "true":
        visualize = node_process("visualize", "ros_visualize_calibration", **common)
        after_ready["broadcast"] = LaunchedSequence([visualize]).start()
    return LaunchedSequence(nodes, after_ready=after_ready, shutdown_at_end=given("stay") == "false").start()
