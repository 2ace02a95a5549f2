"""The simulator's ROS face: topics, services, the trajectory action and time, as the robot's own drivers offer them."""
