"""What a sensor file says of a kind of lidar, and how one unit of it may differ: read by simulation and calibration."""
