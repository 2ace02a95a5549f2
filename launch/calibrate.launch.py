"""All calibration nodes in simulated time: `ros2 launch stretch_sim_cal calibrate.launch.py`, beside a simulation."""

from launch import LaunchDescription
from stretch_sim_cal.harness.launched import calibration_description


def generate_launch_description() -> LaunchDescription:
    return calibration_description(use_sim_time=True)
