"""Gazebo as the simulator: the same robot, worlds and truth, another ray caster and real physics of the joints.

    installation   what of Gazebo is installed
    processes      its transport's bindings, the watchdog over `gz sim -s`, the command and the listening process
    messages       protobuf's wire format, and the few gz.msgs that are needed
    description    a world file and a robot as Gazebo wants them
    rays           which rays are cast for a sensor, and the directions along which their ranges are exact
    running        a world in a running Gazebo: its time, joints and lidars
    simulator      all of that with the face of the embedded simulator

Messages are read and written as bytes: their fields have had the same numbers in all generations, so only the
transport's bindings are needed, and everything but `processes` is tested without Gazebo.
"""
