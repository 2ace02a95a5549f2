"""What `calibrate.launch.py` and `robot.launch.py` share: the calibration nodes and their arguments."""

import os
from pathlib import Path

from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from launch import Action, LaunchContext, LaunchDescription
from stretch_sim_cal.files import share_directory
from stretch_sim_cal.harness.launched import LaunchedSequence
from stretch_sim_cal.harness.processes import RunFiles, broadcast_process, calibration_nodes, visualize_process
from stretch_sim_cal.harness.scenario import STAGE_OPTIONS, STAGES

BOOLEAN = ["true", "false"]


def calibration_description(use_sim_time: bool, motion_warning: str = "") -> LaunchDescription:
    """Return a launch of alignment, floor, the broadcaster and, on request, mounts and body shape, one after the other.

    `motion_warning` is added to the description of every argument that makes the arm move.
    """
    alignment, floor, mounts, body_shape = (STAGE_OPTIONS[stage] for stage in STAGES)
    rviz = Node(
        package="rviz2",
        executable="rviz2",
        arguments=["-d", str(share_directory() / "rviz" / "dual_lidar_calibration.rviz")],
        parameters=[{"use_sim_time": use_sim_time}],
        condition=IfCondition(LaunchConfiguration("rviz")),
    )
    return LaunchDescription([
        DeclareLaunchArgument(
            "alignment_samples", default_value=str(alignment["num_samples"]),
            description="pairs of clouds for the transform between the lidars",
        ),
        DeclareLaunchArgument(
            "floor_samples", default_value=str(floor["num_samples"]), description="pairs of clouds for the floor"
        ),
        DeclareLaunchArgument(
            "alignment_method", default_value="", description="of the alignment; by default the node's own"
        ),
        DeclareLaunchArgument("floor_method", default_value="", description="of the floor; by default the node's own"),
        DeclareLaunchArgument(
            "mounts", default_value="false", choices=BOOLEAN,
            description="calibrate where each lidar is on the robot as well" + motion_warning,
        ),
        DeclareLaunchArgument("mounts_plan", default_value=mounts["plan"], description="of the poses for the mounts"),
        DeclareLaunchArgument(
            "body_shape", default_value="false", choices=BOOLEAN,
            description="collect body-shape data and fit the model as well" + motion_warning,
        ),
        DeclareLaunchArgument("plan", default_value=body_shape["plan"], description="of the body-shape collection"),
        DeclareLaunchArgument(
            "fit_method", default_value=body_shape["fit_method"], description="kind of shape that is fitted to the body"
        ),
        DeclareLaunchArgument(
            "data", default_value=os.path.join("out", "launched"), description="folder for the data of mounts and body shape"
        ),
        DeclareLaunchArgument(
            "stay", default_value="true", choices=BOOLEAN,
            description="go on broadcasting the calibrated frames when all steps have ended",
        ),
        DeclareLaunchArgument("rviz", default_value="false", choices=BOOLEAN, description="open RViz as well"),
        OpaqueFunction(function=lambda context: _calibration(context, use_sim_time)),
        rviz,
    ])  # fmt: skip


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
    nodes = calibration_nodes(stages, RunFiles(Path(given("data")).expanduser().resolve()), use_sim_time)
    if not {"mounts", "body_shape"} & set(stages):
        nodes.append(broadcast_process(use_sim_time))
    after_ready = {}
    if given("rviz") == "true":
        after_ready["broadcast"] = LaunchedSequence([visualize_process(use_sim_time)]).start()
    return LaunchedSequence(nodes, after_ready=after_ready, shutdown_at_end=given("stay") == "false").start()
