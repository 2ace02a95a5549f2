"""Calibrate a mobile manipulator's two lidars, and prove it in simulation first."""

__version__ = "0.1.0"
