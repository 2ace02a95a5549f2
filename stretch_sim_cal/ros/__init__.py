"""The ROS 2 face: frames, pairing, motion and the nodes, each a thin shell over the rooms below."""
