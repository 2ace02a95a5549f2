"""Studies of a robot's kinematics: mobility, workspace, orientations. Nothing in calibration needs them."""
