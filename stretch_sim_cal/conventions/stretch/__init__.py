"""The Stretch's URDF conventions."""
