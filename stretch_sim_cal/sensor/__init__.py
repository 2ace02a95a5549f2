"""Sensor files of kinds of lidars, and the errors of their units, for simulation and calibration."""
