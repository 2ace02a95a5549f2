"""The robot's outline over arm extension and wrist yaw. The choices of its commands, importable without numpy."""

FIT_METHODS = (
    "tapered_capsule", "circle", "ellipse_opencv", "ellipse_min_enclosing", "ellipse_axis_aligned", "convex_polygon",
)  # fmt: skip
EVIDENCE = ("both", "lidar", "model")
"""The evidence that a fitted shape encloses: the lidars' returns, the description's surfaces, or both."""
SETTINGS_NAME = "body_shape"  # the name of the settings file in `config/`, and beside the robot's calibration file
ZONES = {
    "margin": (0.0, 2.0, "m around the body in which returns are ignored"),
    "stop_zone": (0.0, 5.0, "m beyond the margin in which returns are obstacles"),
    "lowest": (-1.0, 3.0, "m above the floor where obstacles begin"),
    "highest": (-1.0, 5.0, "m above the floor where obstacles end"),
    "drop": (-5.0, 0.0, "m, a return at this height or below is a drop"),
}
"""By key of the section `zones`: its bounds, and its meaning."""
