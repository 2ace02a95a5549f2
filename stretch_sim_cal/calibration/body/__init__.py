"""The robot's outline over arm extension and wrist yaw."""
