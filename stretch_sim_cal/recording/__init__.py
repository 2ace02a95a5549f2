"""rosbag2 recordings, body-shape datasets and the byte layout of point clouds, free of ROS."""
