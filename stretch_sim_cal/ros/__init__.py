"""The ROS 2 nodes, each a thin shell over the packages below, and the simulated drivers."""
