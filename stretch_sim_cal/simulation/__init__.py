"""The lidar model, worlds, the embedded ray-casting simulator and the Gazebo one."""
