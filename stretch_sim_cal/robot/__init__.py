"""Robot descriptions and profiles, forward kinematics, surfaces and self-collision."""
