#!/bin/bash
# Runs a command with ROS 2 and this workspace sourced, and a display that Gazebo's gpu_lidar can render to.
set -e
source /opt/ros/jazzy/setup.bash
source /workspace/install/setup.bash
exec xvfb-run --auto-servernum "$@"
