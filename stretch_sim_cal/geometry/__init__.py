"""Rigid transforms, planes, voxels and 2-D shapes: pure arrays, no robot and no ROS."""
