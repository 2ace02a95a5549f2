"""The lidar extrinsics in base_link, by the lidars' returns from the robot."""
