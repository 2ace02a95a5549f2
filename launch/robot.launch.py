"""The calibration nodes on the robot: `ros2 launch stretch_sim_cal robot.launch.py`. Its own drivers have to run."""

from launch import LaunchDescription
from stretch_sim_cal.harness.launched import calibration_description


def generate_launch_description() -> LaunchDescription:
    return calibration_description(use_sim_time=False, motion_warning="; THE ARM MOVES, without asking again")
