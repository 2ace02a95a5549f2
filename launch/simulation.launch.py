"""The simulated robot: `ros2 launch stretch_sim_cal simulation.launch.py world:=tables simulator:=gazebo`."""

from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration

from launch import Action, LaunchContext, LaunchDescription
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.harness.launched import LaunchedSequence, rviz
from stretch_sim_cal.harness.processes import simulator_process

# Arguments that are handed on to stretch_simulator where they are given.
OPTIONS = {
    "scenario": "a name in scenarios/, or a YAML file: the simulation, with true errors of lidars and base",
    "robot": "a robot's profile: a name in config/robots/, or a path; replaces the scenario's",
    "world": "a name in worlds/, or an SDF file; replaces the scenario's",
    "sensor": "a name in config/ (jt128, jt128_ideal, ...), or a YAML file; replaces the scenario's",
    "seed": "seed of all random numbers; replaces the scenario's",
    "truth": "a JSON file to write the ground truth to",
}
DEFAULTS = {"scenario": "furnished_room"}


def simulator(context: LaunchContext) -> list[Action]:
    def given(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    arguments = ["--real-time-factor", given("real_time_factor")]
    for name in OPTIONS:
        if given(name):
            arguments += [f"--{name}", given(name)]
    if given("simulator") == "gazebo":
        arguments += ["--lidar", given("lidar"), *(["--gui"] if given("gui") == "true" else [])]
    elif given("gui") == "true":
        raise InputError("gui:=true needs simulator:=gazebo; the embedded simulator has no window, use rviz:=true")
    return LaunchedSequence([simulator_process(given("simulator"), *arguments)]).start()


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([
        DeclareLaunchArgument(
            "simulator", default_value="embedded", choices=["embedded", "gazebo"], description="what computes the scans"
        ),
        *(
            DeclareLaunchArgument(name, default_value=DEFAULTS.get(name, ""), description=text)
            for name, text in OPTIONS.items()
        ),
        DeclareLaunchArgument(
            "real_time_factor", default_value="1", description="simulated seconds per second; 0: as fast as possible"
        ),
        DeclareLaunchArgument(
            "lidar", default_value="auto", choices=["auto", "gpu", "cpu"],
            description="Gazebo's lidar: gpu needs a renderer and sees visuals, cpu sees collision shapes",
        ),
        DeclareLaunchArgument(
            "gui", default_value="false", choices=["true", "false"], description="open Gazebo's window as well"
        ),
        DeclareLaunchArgument("rviz", default_value="false", choices=["true", "false"],
                              description="open RViz as well"),
        OpaqueFunction(function=simulator),
        # The view's own fixed frame, the calibrated floor, is not there yet.
        rviz(True, "-f", "base_link"),
    ])  # fmt: skip
