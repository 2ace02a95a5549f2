"""Campaigns: many simulated robots, rooms and lidars, calibrated one by one, and the statement that follows."""
