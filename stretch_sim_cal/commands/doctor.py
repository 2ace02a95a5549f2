"""`stretch-sim-cal doctor [RECORDING]`: what of ROS, Gazebo and the robot is there, what that enables, and what the
lidars' driver publishes, in a recording or (`--live`) now."""

import argparse
import importlib.util
import os
import platform
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from stretch_sim_cal.command import only_with, show
from stretch_sim_cal.errors import InputError

EXAMPLE = "stretch-sim-cal doctor this_morning.mcap"

# What each command needs beyond the package's own libraries.
NEEDS = {
    "demo, run, sim (embedded)": ("rclpy", "embreex", "control_msgs", "tf2_msgs"),
    "ros_* nodes": ("rclpy", "sensor_msgs", "tf2_msgs", "control_msgs", "small_gicp"),
    "calibrate, verify from a recording": ("rosbags", "small_gicp"),
    "fit_body_shape_model": ("scipy", "embreex", "stretch4_urdf"),
    "launch files and launch tests": ("launch", "launch_testing"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("recording", type=Path, nargs="?", help="a rosbag2 folder or file whose lidars are checked, too")
    add("--left-topic", metavar="TOPIC",
        help="left lidar's topic in the recording (default: the profile's, /lidar_points_left)")  # fmt: skip
    add("--right-topic", metavar="TOPIC",
        help="right lidar's topic in the recording (default: the profile's, /lidar_points_right)")  # fmt: skip
    add("--live", action="store_true", help="check whether the running robot is ready to be calibrated")
    add("--sensor", metavar="NAME", help="with --live: kind of its lidars (default: the profile's)")
    add("--robot", metavar="NAME", help="robot's profile: a name in config/robots/ or a path (default: the Stretch's)")
    add("--use-sim-time", action="store_true", help="with --live: use a simulated robot's clock")


def run(args: argparse.Namespace) -> int:
    """Print what is installed; return 1 if simulator or nodes cannot run (unless only a recording was asked about), or
    with `--live` the robot is not ready."""
    if args.recording is None:
        only_with(args, ["left_topic", "right_topic"], "a recording")
    if not args.live:
        only_with(args, ["sensor", "use_sim_time"], "--live")
        if args.recording is None:
            only_with(args, ["robot"], "--live or a recording")
    versions = [found.version for found in metadata.distributions(name="hello-robot-stretch4-urdf")]
    findings = {
        "python": platform.python_version(),
        "ros": os.environ.get("ROS_DISTRO") or ("rclpy from the package index" if _has("rclpy") else "none"),
        "rmw": os.environ.get("RMW_IMPLEMENTATION") or ("default (rmw_fastrtps_cpp)" if _has("rclpy") else "none"),
        "gazebo": _gazebo(),
        "stretch4_urdf": versions[0] if versions else "none",
        "fleet": _fleet(),
    }
    lidars, checks = [] if args.recording is None else _lidars(args), []
    if args.live:
        from stretch_sim_cal.robot.profile import profile_called
        from stretch_sim_cal.ros.live import live_look

        sensor = args.sensor or profile_called(args.robot).sensor
        checks = live_look(sensor, args.robot, args.use_sim_time, moving=True).checks
    commands = {name: [need for need in needs if not _has(need)] for name, needs in NEEDS.items()}
    lines = [f"{name:<14} {value}" for name, value in findings.items()]
    lines += [
        f"{'missing':<14} {name}: needs {', '.join(missing)}" if missing else f"{'ok':<14} {name}"
        for name, missing in commands.items()
    ]
    answer = findings | {"missing": commands, "lidars": lidars, "live": [asdict(check) for check in checks]}
    show(args, answer, [*lines, *lidars, *(check.line() for check in checks)])
    essential = [commands["demo, run, sim (embedded)"], commands["ros_* nodes"]]
    asked = args.live or args.recording is None
    return 1 if asked and (any(essential) or any(check.missed for check in checks)) else 0


def _lidars(args: argparse.Namespace) -> list[str]:
    from stretch_sim_cal.commands.recorded import recorded_kinds
    from stretch_sim_cal.recording.rosbag import Recording
    from stretch_sim_cal.recording.topics import sensor_lines
    from stretch_sim_cal.robot.profile import profile_called

    profile = profile_called(args.robot)
    if profile.one_lidar:
        only_with(args, ["right_topic"], "a robot with a right lidar")
    topics = {name: getattr(args, f"{name}_topic", None) or each.topic for name, each in profile.lidars.items()}
    with Recording(args.recording) as recording:
        return sensor_lines(recorded_kinds(recording, topics, profile))


def _has(module: str) -> bool:
    # The package index has an unrelated package named `launch`: ROS's own has LaunchDescription.
    names = ("launch", "launch.launch_description") if module == "launch" else (module,)
    return all(importlib.util.find_spec(name) is not None for name in names)


def _gazebo() -> str:
    from stretch_sim_cal.simulation.gazebo.installation import find_gazebo

    try:
        found = find_gazebo()
    except InputError as error:
        return f"none: {error}"
    cpu = "cpu (collision shapes), " if found.has_cpu_lidar else ""
    return f"{found.generation} ({found.bindings}); lidars: {cpu}gpu (visuals, needs a renderer)"


def _fleet() -> str:
    path, robot = os.environ.get("HELLO_FLEET_PATH"), os.environ.get("HELLO_FLEET_ID")
    if not path or not robot:
        return "HELLO_FLEET_PATH and HELLO_FLEET_ID are not set: files go to ~/.stretch/calibration"
    return f"{path}/{robot}" + ("" if os.path.isdir(os.path.join(path, robot)) else " (no such folder yet)")
