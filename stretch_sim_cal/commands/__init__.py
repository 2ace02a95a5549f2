"""The sub-commands of stretch-sim-cal, one file each: arguments, one call, what is printed."""
