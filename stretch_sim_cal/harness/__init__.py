"""Scenarios, starting the processes, the verdict against the truth and the report."""
