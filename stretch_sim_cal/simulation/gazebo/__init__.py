"""Gazebo as the simulator: the same robot, worlds and truth, another ray caster and real physics of the joints.

    installation   what of Gazebo is installed, and which of its generations
    world, model   a world file and a robot as Gazebo wants them
    keeper         the process that runs `gz sim -s`, and ends it when we are gone
    commander      the process that calls services and publishes commands; subscriptions are ours alone
    transport      the only module that imports Gazebo's Python bindings
    wire, messages protobuf's wire format, and the few gz.msgs that are needed
    joints         commanded joints over Gazebo's controllers
    running        a world in a running Gazebo: these processes, its time and its joints
    clouds         what a lidar publishes, while somebody wants it
    simulator      all of that with the face of the embedded simulator

Messages are read and written as bytes: their fields have had the same numbers in all generations, so only the
transport's bindings are needed, and everything but `transport` is tested without Gazebo.
"""
