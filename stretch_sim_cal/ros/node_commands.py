"""The command lines of all nodes: what each says of itself, and its parameters.

Declared apart from the nodes, so that `--help` and typing errors answer before numpy and ROS are imported.
"""

from pathlib import Path

from stretch_sim_cal.calibration.body import SETTINGS_NAME, ZONES
from stretch_sim_cal.calibration.methods import ALIGNMENT_METHODS_HELP, FLOOR_METHODS_HELP
from stretch_sim_cal.recording import JOINTS
from stretch_sim_cal.ros.options import Argument, NodeCommand, Option
from stretch_sim_cal.simulation.gazebo.installation import LIDARS

ROBOT_OPTION = Option(
    "robot", "",
    "the robot's profile, a name in config/robots/ or a path: it gives the defaults of topics, frames and sensor (the "
    "Stretch's if there is none)",
)  # fmt: skip
BASE_FRAME_OPTION = Option("base_link_frame", "base_link", "the robot's base frame")
LEFT_FRAME_OPTION = Option("left_lidar_frame", "lidar_left_link", "frame of the left lidar")
LIDAR_OPTIONS = (
    ROBOT_OPTION,
    Option("left_lidar_topic", "/lidar_points_left", "topic of the left lidar's clouds"),
    Option("right_lidar_topic", "/lidar_points_right", "topic of the right lidar's clouds"),
    BASE_FRAME_OPTION,
    LEFT_FRAME_OPTION,
    Option("right_lidar_frame", "lidar_right_link", "frame of the right lidar"),
)
CLOUD_OPTIONS = (
    *LIDAR_OPTIONS,
    Option("max_time_difference", 0.05, "how far apart in s the stamps of a pair may be", minimum=0.0, maximum=10.0),
)
SENSOR_OPTION = Option(
    "sensor",
    "jt128",
    "kind of the lidars, or LEFT,RIGHT: names in config/ (jt128, jt128_ideal, ...) or sensor files; unknown for others",
)
TIMEOUT_OPTION = Option("timeout", 60.0, "give up (exit code 3) after so many s without data", minimum=0.1)
FILE_OPTION = Option("calibration_file", "", "the calibration file; default: the robot's own")
VALUES_OPTION = Option(
    "values_file", "", "where to record the calibrated joints; default: the robot's own, if calibration_file is too"
)
ROLLBACK_OPTION = Option("rollback", False, "bring back calibration and values as before the last write, and end")
OUTCOME_OPTION = Option("outcome_file", "", "write the outcome with its findings' codes as JSON to this file, too")
RESULT_OPTIONS = (FILE_OPTION, VALUES_OPTION, ROLLBACK_OPTION, OUTCOME_OPTION, TIMEOUT_OPTION)
"""Of the nodes that calibrate."""
FOOTPRINT_OPTION = Option(
    "footprint_frame", "base_footprint", "frame on the floor below the base, as the description has it"
)
FLOOR_FRAME_OPTION = Option("floor_frame", "floor_plane", "the calibrated footprint frame, as it is broadcast")
CALIBRATED_FRAMES = (
    FLOOR_FRAME_OPTION,
    Option("right_calibrated_frame", "lidar_right_calibrated", "the right lidar's calibrated frame"),
    Option("left_calibrated_frame", "lidar_left_calibrated", "where the left lidar is by the mounts that were found"),
)
GRID = "grid of {} in place of the plan's: '0, 0.2, 0.4' or 'count:4,from:0,to:0.4'"
ARM_OPTIONS = (
    *(Option(joint, None, GRID.format(joint), kind=str) for joint in JOINTS),
    Option("grid", "", "grids in place of the plan's, by joints of any robot: 'pan=0,0.5; elbow=count:3'"),
    Option("frames", None, "pairs of clouds per pose in place of the settings'", kind=int, minimum=1, maximum=1000),
    Option("speed_factor", 1.0, "of the reduced speeds in the settings", minimum=0.05, maximum=10.0),
    Option(
        "watch_room", False, "stop the arm as soon as something comes near that was not there when it began to move"
    ),
    *CALIBRATED_FRAMES,
    *CLOUD_OPTIONS,
)
"""Of the nodes that move the arm through poses."""
MOUNT_OPTIONS = (
    Option("link_mm", 1.0, "how far links may be from where the description has them, one sigma per axis", minimum=0.0),
    Option("link_deg", 0.1, "how far links may be turned, one sigma per axis", minimum=0.0),
    Option("with_joint_offsets", False, "find the zeros of lift, arm and wrist yaw as well"),
)
VIEW_OPTIONS = (
    Option("view", False, "open Rerun's viewer, and show the results as they come: no RViz is needed"),
    Option("view_file", None, "record it for Rerun in this .rrd file (rerun FILE shows it)", kind=str),
    Option("view_port", None, "serve it to browsers of this machine on this port", kind=int, minimum=0, maximum=65535),
    Option("view_host", None, "address to serve it on, 0.0.0.0 for all", kind=str),
)
IN_3D = "in 3D (needs rerun-sdk: pip install 'stretch_sim_cal[view]')"
DISPLAY_OPTIONS = (
    FILE_OPTION,
    *CLOUD_OPTIONS,
    *VIEW_OPTIONS,
    Option("footprint_frame", "base_footprint", "frame to show in while the file holds no floor"),
    FLOOR_FRAME_OPTION,
)
SETTINGS_OPTION = Option(
    "settings", SETTINGS_NAME, f"settings file, a name in config/ or a path; {SETTINGS_NAME}: the robot's own, if any"
)
SWITCH = ("true", "false")
ZONE_OPTIONS = tuple(
    Option(name, None, f"{text}, in place of the settings'", kind=float, minimum=low, maximum=high, live=True)
    for name, (low, high, text) in ZONES.items()
)
# Values of the published node; in place of those that are not offered here, this node's own
# way is taken, with a warning.
MODES = ("accumulate_points", "average_transforms")
PUBLISHED_FIT = "svd"
STORAGES = ("mcap", "sqlite3")
POSE_ERROR = "x,y,z in m, roll,pitch,yaw in deg"


def _folder(text: str) -> Argument:
    return Argument("directory", text, {"nargs": "?", "type": Path, "metavar": "DIR"})


MOTION_SWITCHES = (
    Argument("--dry-run", "print the plan and the time it takes, and move nothing", {"action": "store_true"}),
    Argument("--yes", "move without asking first", {"action": "store_true"}),
)
ARM_ARGUMENTS = (
    _folder("folder of the dataset; one that was begun is continued (default: collected_body_shape_data_TIME)"),
    *MOTION_SWITCHES,
    Argument("--ignore-obstacles", "move although something is in the arm's way", {"action": "store_true"}),
)
ALIGN = NodeCommand(
    executable="ros_align_dual_lidar",
    description=(
        "Find the transform between the two lidars from what both see, and write it to "
        "dual_lidar_calibration.yaml. The robot stands still in a room with structure (walls in two directions, "
        "furniture, floor); nothing moves. Nothing is written if the data does not support a result."
    ),
    example="ros_align_dual_lidar --num-samples 50",
    options=(
        *CLOUD_OPTIONS,
        SENSOR_OPTION,
        Option("num_samples", 100, "pairs of clouds to use", minimum=1, maximum=100_000),
        Option("another_place", False,
               "the robot was turned or moved since the last run: solve with what was seen then as well"),
        Option("method", "", f"alignment method; {ALIGNMENT_METHODS_HELP}"),
        Option("fit_method", "", "the same under its published name"),
        Option("downsampling_resolution_m", None, "voxel size in m (else the method's own)", kind=float, minimum=1e-3),
        Option("max_iterations", None, "iterations of the registration (else the method's own)", kind=int, minimum=1),
        Option("max_correspondence_distance", None, "in m (else the method's own)", kind=float, minimum=1e-3),
        *RESULT_OPTIONS,
    ),
)  # fmt: skip
FLOOR = NodeCommand(
    executable="ros_find_floor_calibration",
    description=(
        "Find the floor that the robot stands on, and write it to dual_lidar_calibration.yaml and, as joint "
        "base_ref, to stretch_calibration_values.yaml. Needs the alignment of the lidars (ros_align_dual_lidar) in "
        "the file, and looks from where its mounts (ros_calibrate_lidar_mounts) have the left lidar, if there are "
        "any. The robot stands still in the middle of a large flat floor; the arm is stowed."
    ),
    example="ros_find_floor_calibration --num-samples 20",
    options=(
        *CLOUD_OPTIONS,
        FOOTPRINT_OPTION,
        SENSOR_OPTION,
        Option("num_samples", 30, "pairs of clouds to use", minimum=1, maximum=100_000),
        Option("method", "", f"floor method; {FLOOR_METHODS_HELP}"),
        Option("fit_method", "", f"the same under its published name; its {PUBLISHED_FIT} is not offered"),
        Option("mode", MODES[0], "as of the published node: frames are fitted together", choices=MODES),
        *RESULT_OPTIONS,
    ),
)
BROADCAST = NodeCommand(
    executable="ros_broadcast_calibration",
    description=(
        "Publish the calibration as frames: base_link -> floor_plane, lidar_left_link -> lidar_right_calibrated "
        "and, if the mounts were found, base_link -> lidar_left_calibrated. Runs until it is stopped; when the "
        "file changes it is read again."
    ),
    example="ros_broadcast_calibration",
    options=(
        FILE_OPTION,
        ROBOT_OPTION,
        BASE_FRAME_OPTION,
        LEFT_FRAME_OPTION,
        *CALIBRATED_FRAMES,
        Option("footprint_frame", "base_footprint", "frame that is published only if nobody else does"),
    ),
    endless=True,
)
MOUNTS = NodeCommand(
    executable="ros_calibrate_lidar_mounts",
    description=(
        "Move the arm through a few poses, and find from the returns of the robot's own body where each lidar "
        "really is in base_link. Needs the driver, and ros_broadcast_calibration running beside it; reads the "
        "alignment from the calibration file, and writes the mounts to it and, as lidar joints, to "
        "stretch_calibration_values.yaml. THE ROBOT MOVES ITS ARM: keep the room around it clear and a hand at the "
        "runstop. Ctrl-C stops it; the same DIR continues later."
    ),
    example="ros_calibrate_lidar_mounts my_poses --yes",
    arguments=ARM_ARGUMENTS,
    options=(
        Option("plan", "mounts", "plan of the settings file (mounts, quick)"),
        SENSOR_OPTION,
        Option("settings", "mounts", "settings file, a name in config/ or a path"),
        *ARM_OPTIONS,
        *MOUNT_OPTIONS,
        *RESULT_OPTIONS,
    ),
)  # fmt: skip
DRIVE = NodeCommand(
    executable="ros_calibrate_by_driving",
    description=(
        "Drive slowly, turns in place and short straight ways with stops, within what the lidars see free, and "
        "find from it lidar to lidar, the floor, and the lidars against the centre of rotation and the direction "
        "driven. The lidars need not see anything in common. THE ROBOT DRIVES: keep the floor around it clear and "
        "a hand at the runstop; stow the arm. Ctrl-C stops it. What is lower than 10 cm is not seen, nor what lies "
        "where no lidar looks. DIR is a recording, which 'stretch-sim-cal calibrate DIR --drive' reads again."
    ),
    example="ros_calibrate_by_driving my_drive --robot two_lidar_amr --dry-run",
    arguments=(_folder("new folder of the recording of the drive (default: drive_TIME)"), *MOTION_SWITCHES),
    options=(
        *LIDAR_OPTIONS,
        FOOTPRINT_OPTION,
        SENSOR_OPTION,
        Option("odometry_topic", "", "of the wheels' odometry (nav_msgs/Odometry); default: the profile's"),
        Option("command_topic", "", "of the twists that the base obeys, stamped or not; default: the profile's"),
        Option("speed", 0.15, "m/s on straight ways, at most", minimum=0.02, maximum=0.5),
        Option("turn_speed", 20.0, "deg/s, at most", minimum=2.0, maximum=90.0),
        Option("turn_step", 60.0, "deg between the stops of a turn", minimum=30.0, maximum=180.0),
        Option("distance", 0.8, "m of a straight way, at most; 0.3 at least, or there is none", minimum=0.0,
               maximum=5.0),
        Option("clearance", 0.3, "m that have to be free around the robot's body on its way", minimum=0.15,
               maximum=2.0),
        Option("scans", 5, "clouds of each lidar at each stop", minimum=1, maximum=100),
        Option("target_mm", 2.0, "mm: standard deviation of each lidar's x and y at which it stops driving",
               minimum=0.1, maximum=5.0),
        Option("target_deg", 0.2, "deg: that of each lidar's yaw", minimum=0.01, maximum=0.5),
        Option("max_duration", 300.0, "s of driving and scanning, at most; it begins no motion that takes longer",
               minimum=20.0, maximum=3600.0),
        Option("continuous", False, "use scans on the move as well, by the time of each point and odometry"),
        *RESULT_OPTIONS,
    ),
)  # fmt: skip
COLLECT = NodeCommand(
    executable="ros_collect_body_shape_data",
    description=(
        "Move the arm through a grid of poses, free of collisions, and record what the lidars see of the robot in "
        "each. Needs the driver, and ros_broadcast_calibration running beside it. THE ROBOT MOVES ITS ARM: keep "
        "the room around it clear and a hand at the runstop. Ctrl-C stops it; the same DIR continues later."
    ),
    example="ros_collect_body_shape_data my_data --plan default --arm count:6 --wrist-yaw 0,1.57,3.14",
    arguments=ARM_ARGUMENTS,
    options=(
        Option("plan", "default", "plan of the settings file (demo, default, full, ...)"),
        SETTINGS_OPTION,
        *ARM_OPTIONS,
        OUTCOME_OPTION,
        TIMEOUT_OPTION,
    ),
)  # fmt: skip
CAPTURE = NodeCommand(
    executable="ros_capture_clouds",
    description=(
        "Write a few pairs of clouds as they come, each in its own lidar's frame, to FILE (.npz with the arrays "
        "left, right and lidar_NAME of further lidars, (N, 3) or with ring and time (N, 5), in m)."
    ),
    example="ros_capture_clouds clouds.npz --num-samples 3",
    options=(
        *CLOUD_OPTIONS,
        Option("num_samples", 2, "pairs of clouds to write", minimum=1, maximum=1000),
        TIMEOUT_OPTION,
    ),
    arguments=(Argument("file", "where to write"),),
)
VISUALIZE = NodeCommand(
    executable="ros_visualize_calibration",
    description=(
        "Publish all lidars' clouds as one by the calibration (lidar_combined), its returns from the floor "
        "(lidar_floor_inliers) and the others (lidar_off_floor), in the calibrated floor's frame. Look at them "
        "with rviz2 -d rviz/dual_lidar_calibration.rviz; ros_broadcast_calibration has to run."
    ),
    example="ros_visualize_calibration",
    options=(
        *DISPLAY_OPTIONS,
        Option(
            "floor_vertical_distance_threshold", 0.05, "a return this near to z = 0, in m, counts as floor",
            minimum=0.0, maximum=1.0, live=True,
        ),
    ),
    endless=True,
)  # fmt: skip
VISUALIZE_BODY_SHAPE = NodeCommand(
    executable="ros_visualize_body_shape_calibration",
    description=(
        "Show a body-shape model at the robot's present pose (obstacle_markers, body_outline): the minimum model "
        "blue, the inner boundary red, the stop zone shaded red; and the returns in them (body_points, "
        "obstacles_positive, obstacles_negative, lidar_combined). stop_zone_occupied says whether any return is in "
        "the stop zone, stop_zone_distance how far (m) the nearest one is from the minimum model (inf: none). "
        "Margins can be set while it runs, and written to the settings file:\n"
        "  ros2 param set /visualize_body_shape_calibration margin 0.08\n"
        "  ros2 service call /visualize_body_shape_calibration/save_margins std_srvs/srv/Trigger\n"
        "Look at it with rviz2 -d rviz/body_shape_calibration.rviz; ros_broadcast_calibration has to run."
    ),
    example="ros_visualize_body_shape_calibration tapered_capsule_body_model.yaml",
    options=(*DISPLAY_OPTIONS, SETTINGS_OPTION, *ZONE_OPTIONS),
    arguments=(Argument("file", "the body-shape model, as fit_body_shape_model writes it"),),
    endless=True,
)


FOOTPRINT = NodeCommand(
    executable="ros_publish_footprint",
    description=(
        "Publish the fitted body shape as a footprint that follows the arm, for Nav2's costmaps, and its stop zone "
        "(stop_zone, geometry_msgs/PolygonStamped) for Nav2's collision monitor. While nobody says where the arm "
        "is, or it is where the model was not fitted, both are those of the arm anywhere. "
        "config/nav2/body_shape.yaml has the parameters of Nav2's side."
    ),
    example="ros_publish_footprint body_shape_model.yaml",
    arguments=(
        Argument(
            "file", "the body-shape model (default: beside the calibration file)",
            {"nargs": "?", "type": Path, "metavar": "FILE"},
        ),
    ),
    options=(
        ROBOT_OPTION,
        Option("topics", "/local_costmap/footprint,/global_costmap/footprint",
               "of geometry_msgs/Polygon, with commas between"),
        Option("padding", 0.0,
               "m around the shape; Nav2's own footprint_padding comes on top", minimum=0.0, maximum=1.0),
        Option("footprint_frame", "base_footprint",
               "frame of the stop zone; Nav2's robot_base_frame has to be the same"),
        SETTINGS_OPTION,
    ),
    endless=True,
)  # fmt: skip
WATCH = NodeCommand(
    executable="ros_watch_calibration",
    description=(
        "Look now and then, while the robot stands, whether the stored calibration still holds: lidar to lidar, "
        "floor, and where each lidar is against the robot's own surfaces. Publishes /diagnostics, says in a line "
        "what has changed, and keeps a history ('stretch-sim-cal history'). Nothing moves, and no file of the "
        "calibration is written."
    ),
    example="ros_watch_calibration --period 300",
    options=(
        FILE_OPTION,
        Option("history", "", "the history's SQLite file; default: beside the calibration"),
        *CLOUD_OPTIONS,
        FOOTPRINT_OPTION,
        SENSOR_OPTION,
        Option("period", 300.0, "s from look to look; one false alarm a month is counted in these", minimum=0.1),
        Option("share", 0.01,
               "of a processor core that looks may take: they are seldomer than the period if need be", minimum=1e-4),
        Option("pairs", 2, "of clouds in a look", minimum=2, maximum=100),
        Option("looks", 0, "end after so many, with 1 if something has changed; 0: go on", minimum=0),
        TIMEOUT_OPTION,
    ),
    endless=True,
)  # fmt: skip
SIMULATOR = NodeCommand(
    executable="stretch_simulator",
    simulated=True,
    description="Simulate a robot's drivers (the Stretch's by default): both lidars, joints, frames, motion and time.",
    example="stretch_simulator --world furnished_room --sensor jt128_sparse --real-time-factor 1",
    options=(
        Option("simulator", "embedded", "what computes the scans", choices=("embedded", "gazebo")),
        Option("lidar", "auto",
               "Gazebo's: cpu sees collision shapes, gpu sees visuals and needs a renderer", choices=LIDARS),
        Option("gui", False, "open Gazebo's window"),
        Option("scenario", None, "a name in scenarios/, or a path: its 'simulation:' says what is simulated", kind=str),
        Option("robot", None,
               "a robot's profile: a name in config/robots/, or a path (the Stretch if there is none)", kind=str),
        Option("description", None, "a URDF or xacro file in place of the profile's description", kind=str),
        Option("tool", None, "one of the Stretch's tools, or the URDF of a tool to attach", kind=str),
        Option("world", None, "a name in worlds/, or a path to an SDF file", kind=str),
        Option("sensor", None, "a name in config/ (jt128, jt128_ideal, jt128_sparse, ...), or a path", kind=str),
        Option("seed", None, "of everything random", kind=int, minimum=0),
        Option("unit_seed", None,
               "of the lidars' own errors, if the sensor has any; by default the seed", kind=int, minimum=0),
        Option("left_unit", None, "the left lidar is this unit: a unit file, as the truth holds one", kind=str),
        Option("right_unit", None, "the right lidar is this unit", kind=str),
        Option("distance_correction", None, "whether the driver corrects the optical centre", kind=str, choices=SWITCH),
        Option("firing_time_correction", None, "whether the driver corrects firing times", kind=str, choices=SWITCH),
        Option("lidar_left_error", None, f"of the left lidar's mount, in its own frame: {POSE_ERROR}", kind=str),
        Option("lidar_right_error", None, f"of the right lidar's mount, in its own frame: {POSE_ERROR}", kind=str),
        Option("base_error", None, "of the base on the floor: height in m, roll,pitch in deg", kind=str),
        Option("real_time_factor", None, "simulated seconds per second; 0: as fast as possible", kind=float,
               minimum=0.0),
        Option("heading", 0.0, "turn of the robot on the spot, in deg", minimum=-360.0, maximum=360.0, live=True),
        Option("duration", None, "end after so many simulated seconds", kind=float, minimum=0.0),
        Option("truth", None, "write the ground truth to this JSON file, and the true robot beside it", kind=str),
        Option("record", None,
               "record the robot's topics as a rosbag2 in this new folder, the truth beside it", kind=str),
        Option("storage", STORAGES[0], "of the recording", choices=STORAGES),
        Option(
            "mode", "position", "of the driver; motion needs position or navigation", live=True,
            choices=("position", "navigation", "trajectory", "velocity"),
        ),
        Option(
            "fault", "", "what is to go wrong, several separated by commas: silent_left, silent_right, drop_half_left, "
            "drop_half_right, stamp_offset:SECONDS, push:TICK, stuck:JOINT, not_homed, crash:SECONDS",
        ),
    ),
    endless=True,
)  # fmt: skip
NODE_COMMANDS = {
    each.executable: each for each in (
        ALIGN, FLOOR, BROADCAST, MOUNTS, DRIVE, COLLECT, CAPTURE, VISUALIZE, VISUALIZE_BODY_SHAPE, WATCH, FOOTPRINT,
        SIMULATOR,
    )
}  # fmt: skip
VERIFY = NodeCommand(
    executable="stretch-sim-cal verify",
    name="verify_calibration",
    description="Listen to all lidars.",
    example="stretch-sim-cal verify",
    options=(*CLOUD_OPTIONS, FOOTPRINT_OPTION, TIMEOUT_OPTION),
)
LIVE = NodeCommand(
    executable="stretch-sim-cal doctor",
    name="doctor",
    description="Listen to the robot's drivers.",
    example="stretch-sim-cal doctor --live",
    options=(
        *CLOUD_OPTIONS,
        SENSOR_OPTION,
        FOOTPRINT_OPTION,
        Option("timeout", 10.0, "s that each of the drivers has to say something", minimum=0.1),
    ),
)
