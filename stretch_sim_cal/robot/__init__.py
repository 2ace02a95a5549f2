"""The robot description and its kinematics: tree, forward kinematics, mobility, workspace."""
