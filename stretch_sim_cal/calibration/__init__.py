"""Alignment, floor, body shape and obstacle zones, how sure they are, and the calibration file. Arrays in, results
out."""
