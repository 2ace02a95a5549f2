"""The floor that the robot stands on."""
