"""Gazebo as the simulator: the same robot, worlds and truth, another ray caster and real physics of the joints. Only
`processes` needs its transport's bindings: messages are read and written as bytes."""
