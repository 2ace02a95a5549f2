"""Where each lidar is on the robot, from its returns from the robot itself."""
