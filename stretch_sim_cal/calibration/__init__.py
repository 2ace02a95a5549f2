"""Alignment, floor, body shape and obstacle zones, their uncertainty, and the calibration file. Arrays in, results
out."""
