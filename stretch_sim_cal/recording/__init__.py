"""rosbag2 recordings and what their topics hold, body-shape datasets, the byte layout of point clouds; free of ROS."""

JOINTS = ("lift", "arm", "wrist_yaw", "wrist_pitch", "wrist_roll")
"""The joints whose commanded and measured values every sample of a body-shape dataset has."""
