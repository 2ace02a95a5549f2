"""Rigid transforms, planes, sets of points and 2-D shapes: pure arrays, no robot and no ROS."""
