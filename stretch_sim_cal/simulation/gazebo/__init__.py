"""Gazebo as the simulator: the same robot, worlds and truth, another ray caster and real physics of the joints.
Messages are read and written as bytes: their fields have had the same numbers in all generations, so only the
transport's bindings are needed, and everything but `processes` is tested without Gazebo."""
