"""The command lines of all nodes, declared apart from these, so that `--help` and typing errors answer before numpy and
ROS are imported."""

from pathlib import Path

from stretch_sim_cal.calibration.body import SETTINGS_NAME, ZONES
from stretch_sim_cal.calibration.methods import ALIGNMENT_METHODS_HELP, FLOOR_METHODS_HELP
from stretch_sim_cal.recording import JOINTS
from stretch_sim_cal.ros.options import Argument, NodeCommand, Option
from stretch_sim_cal.simulation.gazebo.installation import LIDARS

ROBOT_OPTION = Option(
    "robot", "",
    "the robot's profile, a name in config/robots/ or a path, with the defaults of topics, frames and sensor (default: "
    "the Stretch's)",
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
    Option("max_time_difference", 0.05, "largest time between the clouds of a pair, in s", minimum=0.0, maximum=10.0),
)
SENSOR_OPTION = Option(
    "sensor", "jt128",
    "kind of the lidars, or LEFT,RIGHT: names in config/ (jt128, jt128_ideal, ...), sensor files, or 'unknown'",
)  # fmt: skip
TIMEOUT_OPTION = Option(
    "timeout", 60.0, "exit with code 3 after this many s without data, at least 7 s for the first", minimum=0.1
)
FILE_OPTION = Option("calibration_file", "", "the calibration file; default: the robot's own")
VALUES_OPTION = Option(
    "values_file", "", "file for the calibrated joints; default: the robot's own, if calibration_file is not given"
)
ROLLBACK_OPTION = Option("rollback", False, "restore calibration and values from before the last write, and exit")
OUTCOME_OPTION = Option("outcome_file", "", "also write the outcome with its findings' codes as JSON to this file")
RESULT_OPTIONS = (FILE_OPTION, VALUES_OPTION, ROLLBACK_OPTION, OUTCOME_OPTION, TIMEOUT_OPTION)
"""Of the nodes that calibrate."""
FOOTPRINT_OPTION = Option(
    "footprint_frame", "base_footprint", "frame on the floor below the base, from the description"
)
FLOOR_FRAME_OPTION = Option("floor_frame", "floor_plane", "the calibrated footprint frame")
CALIBRATED_FRAMES = (
    FLOOR_FRAME_OPTION,
    Option("right_calibrated_frame", "lidar_right_calibrated", "the right lidar's calibrated frame"),
    Option("left_calibrated_frame", "lidar_left_calibrated", "left lidar frame of the calibrated extrinsics"),
)
GRID = "grid of {}, replaces the plan's: '0, 0.2, 0.4' or 'count:4,from:0,to:0.4'"
ARM_OPTIONS = (
    *(Option(joint, None, GRID.format(joint), kind=str) for joint in JOINTS),
    Option("grid", "", "grids by joint, replace the plan's: 'pan=0,0.5; elbow=count:3'"),
    Option("frames", None, "pairs of clouds per pose, replaces the settings'", kind=int, minimum=1, maximum=1000),
    Option("speed_factor", 1.0, "factor on the reduced speeds of the settings", minimum=0.05, maximum=10.0),
    Option("watch_room", False, "stop the arm if something approaches during the motion"),
    *CALIBRATED_FRAMES,
    *CLOUD_OPTIONS,
)
"""Of the nodes that move the arm through poses."""
MOUNT_OPTIONS = (
    Option("link_mm", 1.0, "prior of the links' position errors in mm, one sigma per axis", minimum=0.0),
    Option("link_deg", 0.1, "prior of the links' rotation errors in deg, one sigma per axis", minimum=0.0),
    Option("with_joint_offsets", False, "also estimate the zeros of lift, arm and wrist yaw"),
)
VIEW_OPTIONS = (
    Option("view", False, "show the results live in Rerun's viewer; RViz is not needed"),
    Option("view_file", None, "record it for Rerun in this .rrd file (rerun FILE shows it)", kind=str),
    Option("view_port", None, "serve it to browsers on this machine, at this port", kind=int, minimum=1, maximum=65535),
    Option("view_host", None, "with --view-port: address to serve it at, 0.0.0.0 for all", kind=str),
)
IN_3D = "in 3D (needs rerun-sdk: pip install 'stretch_sim_cal[view]')"
DISPLAY_OPTIONS = (
    FILE_OPTION,
    *CLOUD_OPTIONS,
    *VIEW_OPTIONS,
    Option("footprint_frame", "base_footprint", "frame for display if the file has no floor"),
    FLOOR_FRAME_OPTION,
)
SETTINGS_OPTION = Option(
    "settings", SETTINGS_NAME, f"settings file, a name in config/ or a path; {SETTINGS_NAME}: the robot's own, if any"
)
SWITCH = ("true", "false")
ZONE_OPTIONS = tuple(
    Option(name, None, f"{text}; replaces the settings'", kind=float, minimum=low, maximum=high, live=True)
    for name, (low, high, text) in ZONES.items()
)
# Values of the published node; in place of those that are not offered, this node's own way is taken, with a warning.
MODES = ("accumulate_points", "average_transforms")
PUBLISHED_FIT = "svd"
STORAGES = ("mcap", "sqlite3")
POSE_ERROR = "x,y,z in m, roll,pitch,yaw in deg"


def _folder(text: str) -> Argument:
    return Argument("directory", text, {"nargs": "?", "type": Path, "metavar": "DIR"})


MOTION_SWITCHES = (
    Argument("--dry-run", "print the plan and its duration; nothing moves", {"action": "store_true"}),
    Argument("--yes", "move without asking", {"action": "store_true"}),
)
ARM_ARGUMENTS = (
    _folder("folder of the dataset; an incomplete one is continued (default: collected_body_shape_data_TIME)"),
    *MOTION_SWITCHES,
    Argument("--ignore-obstacles", "move despite obstacles in the arm's way", {"action": "store_true"}),
)
ALIGN = NodeCommand(
    "ros_align_dual_lidar",
    "Estimate the transform between the two lidars from their clouds, and write it to dual_lidar_calibration.yaml. The "
    "robot stands still in a room with structure (walls in two directions, furniture, floor); nothing moves. Nothing "
    "is written if the data does not support a result.",
    "ros_align_dual_lidar --num-samples 50",
    options=(
        *CLOUD_OPTIONS, SENSOR_OPTION,
        Option("num_samples", 100, "pairs of clouds to use", minimum=1, maximum=100_000),
        Option("another_place", False,
               "the robot was turned or moved since the last run: also use the clouds of that run"),
        Option("method", "", f"alignment method; {ALIGNMENT_METHODS_HELP}"),
        Option("fit_method", "", "the same under its published name"),
        Option("downsampling_resolution_m", None, "voxel size in m (default: the method's)", kind=float, minimum=1e-3),
        Option("max_iterations", None, "iterations of the registration (default: the method's)", kind=int, minimum=1),
        Option("max_correspondence_distance", None, "in m (default: the method's)", kind=float, minimum=1e-3),
        *RESULT_OPTIONS,
    ),
)  # fmt: skip
FLOOR = NodeCommand(
    "ros_find_floor_calibration",
    "Estimate the floor under the robot, and write it to dual_lidar_calibration.yaml and, as joint base_ref, to "
    "stretch_calibration_values.yaml. Needs the alignment of the lidars (ros_align_dual_lidar) in the file, and uses "
    "its lidar extrinsics (ros_calibrate_lidar_mounts), if any. The robot stands still in the middle of a large flat "
    "floor; the arm is stowed.",
    "ros_find_floor_calibration --num-samples 20",
    options=(
        *CLOUD_OPTIONS, FOOTPRINT_OPTION, SENSOR_OPTION,
        Option("num_samples", 30, "pairs of clouds to use", minimum=1, maximum=100_000),
        Option("method", "", f"floor method; {FLOOR_METHODS_HELP}"),
        Option("fit_method", "", f"the same under its published name; {PUBLISHED_FIT} is not supported"),
        Option("mode", MODES[0], "of the published node; frames are always fitted together", choices=MODES),
        *RESULT_OPTIONS,
    ),
)  # fmt: skip
BROADCAST = NodeCommand(
    "ros_broadcast_calibration",
    "Publish the calibration as frames: base_link -> floor_plane, lidar_left_link -> lidar_right_calibrated and, if "
    "the file has lidar extrinsics, base_link -> lidar_left_calibrated. Runs until it is stopped; when the file "
    "changes it is read again.",
    "ros_broadcast_calibration",
    options=(
        FILE_OPTION, ROBOT_OPTION, BASE_FRAME_OPTION, LEFT_FRAME_OPTION, *CALIBRATED_FRAMES,
        Option("footprint_frame", "base_footprint", "frame that is published only if no other node publishes it"),
    ),
    endless=True,
)  # fmt: skip
MOUNTS = NodeCommand(
    "ros_calibrate_lidar_mounts",
    "Move the arm through a few poses, and estimate each lidar's pose in base_link from its returns from the robot. "
    "Needs the driver, and ros_broadcast_calibration running beside it; reads the alignment from the calibration file, "
    "and writes the extrinsics to it and, as lidar joints, to stretch_calibration_values.yaml. THE ROBOT MOVES ITS "
    "ARM: keep the room around it clear and a hand at the runstop. Ctrl-C stops it; the same DIR continues later.",
    "ros_calibrate_lidar_mounts my_poses --yes",
    arguments=ARM_ARGUMENTS,
    options=(
        Option("plan", "mounts", "plan of the settings file (mounts, quick)"),
        SENSOR_OPTION,
        Option("settings", "mounts", "settings file, a name in config/ or a path"),
        *ARM_OPTIONS, *MOUNT_OPTIONS, *RESULT_OPTIONS,
    ),
)  # fmt: skip
DRIVE = NodeCommand(
    "ros_calibrate_by_driving",
    "Drive slowly, with turns in place, short straight paths and stops, where the lidars see free space, and estimate "
    "lidar to lidar, the floor, and the lidars relative to the centre of rotation and the direction of driving. The "
    "lidars need no common view. THE ROBOT DRIVES: keep the floor around it clear and a hand at the runstop; stow the "
    "arm. Ctrl-C stops it. Obstacles below 10 cm or outside the lidars' view are not detected. DIR is a recording for "
    "'stretch-sim-cal calibrate DIR --drive'.",
    "ros_calibrate_by_driving my_drive --robot two_lidar_amr --dry-run",
    arguments=(_folder("new folder of the recording of the drive (default: drive_TIME)"), *MOTION_SWITCHES),
    options=(
        *LIDAR_OPTIONS, FOOTPRINT_OPTION, SENSOR_OPTION,
        Option("odometry_topic", "", "topic of the wheel odometry (nav_msgs/Odometry); default: the profile's"),
        Option("command_topic", "", "topic of the base's twists, stamped or not; default: the profile's"),
        Option("speed", 0.15, "largest speed on straight paths, in m/s", minimum=0.02, maximum=0.5),
        Option("turn_speed", 20.0, "largest turning rate, in deg/s", minimum=2.0, maximum=90.0),
        Option("turn_step", 60.0, "angle between the stops of a turn, in deg", minimum=30.0, maximum=180.0),
        Option("distance", 0.8, "largest length of a straight path, in m; none below 0.3", minimum=0.0, maximum=5.0),
        Option("clearance", 0.3, "free space required around the robot's path, in m", minimum=0.15, maximum=2.0),
        Option("scans", 5, "clouds of each lidar at each stop", minimum=1, maximum=100),
        Option("target_mm", 2.0, "standard deviation of each lidar's x and y at which the drive ends, in mm",
               minimum=0.1, maximum=5.0),
        Option("target_deg", 0.2, "the same for each lidar's yaw, in deg", minimum=0.01, maximum=0.5),
        Option("max_duration", 300.0, "time limit of driving and scanning, in s; no motion that exceeds it is started",
               minimum=20.0, maximum=3600.0),
        Option("continuous", False, "also use scans taken on the move, by the time of each point and odometry"),
        *RESULT_OPTIONS,
    ),
)  # fmt: skip
COLLECT = NodeCommand(
    "ros_collect_body_shape_data",
    "Move the arm through a grid of collision-free poses, and record the lidars' returns from the robot in each. Needs "
    "the driver, and ros_broadcast_calibration running beside it. THE ROBOT MOVES ITS ARM: keep the room around it "
    "clear and a hand at the runstop. Ctrl-C stops it; the same DIR continues later.",
    "ros_collect_body_shape_data my_data --plan default --arm count:6 --wrist-yaw 0,1.57,3.14",
    arguments=ARM_ARGUMENTS,
    options=(
        Option("plan", "default", "plan of the settings file (demo, default, full, ...)"),
        SETTINGS_OPTION, *ARM_OPTIONS, OUTCOME_OPTION, TIMEOUT_OPTION,
    ),
)  # fmt: skip
CAPTURE = NodeCommand(
    "ros_capture_clouds",
    "Write a few pairs of clouds, each in its lidar's own frame, to FILE (.npz with the arrays left, right and "
    "lidar_NAME of further lidars, (N, 3) in m, or with ring and intensity (N, 5)).",
    "ros_capture_clouds clouds.npz --num-samples 3",
    options=(
        *CLOUD_OPTIONS,
        Option("num_samples", 2, "pairs of clouds to write", minimum=1, maximum=1000),
        TIMEOUT_OPTION,
    ),
    arguments=(Argument("file", "output file"),),
)  # fmt: skip
VISUALIZE = NodeCommand(
    "ros_visualize_calibration",
    "Publish all lidars' clouds as one (lidar_combined), its returns from the floor (lidar_floor_inliers) and the "
    "others (lidar_off_floor), in the calibrated floor's frame. View them with rviz2 -d "
    "rviz/dual_lidar_calibration.rviz; ros_broadcast_calibration has to run.",
    "ros_visualize_calibration",
    options=(
        *DISPLAY_OPTIONS,
        Option("floor_vertical_distance_threshold", 0.05, "returns within this distance of z = 0, in m, are floor",
               minimum=0.0, maximum=1.0, live=True),
    ),
    endless=True,
)  # fmt: skip
VISUALIZE_BODY_SHAPE = NodeCommand(
    "ros_visualize_body_shape_calibration",
    "Show a body-shape model at the robot's present pose (obstacle_markers, body_outline): the minimum model blue, the "
    "inner boundary red, the stop zone shaded red; and the returns in them (body_points, obstacles_positive, "
    "obstacles_negative, lidar_combined). stop_zone_occupied tells whether any return is in the stop zone, "
    "stop_zone_distance the distance (m) of the nearest one from the minimum model (inf: none). Margins can be set "
    "while it runs, and written to the settings file:\n"
    "  ros2 param set /visualize_body_shape_calibration margin 0.08\n"
    "  ros2 service call /visualize_body_shape_calibration/save_margins std_srvs/srv/Trigger\n"
    "View it with rviz2 -d rviz/body_shape_calibration.rviz; ros_broadcast_calibration has to run.",
    "ros_visualize_body_shape_calibration tapered_capsule_body_model.yaml",
    options=(*DISPLAY_OPTIONS, SETTINGS_OPTION, *ZONE_OPTIONS),
    arguments=(Argument("file", "body-shape model from fit_body_shape_model"),),
    endless=True,
)  # fmt: skip
FOOTPRINT = NodeCommand(
    "ros_publish_footprint",
    "Publish the fitted body shape as a footprint that follows the arm, for Nav2's costmaps, and its stop zone "
    "(stop_zone, geometry_msgs/PolygonStamped) for Nav2's collision monitor. If the arm's pose is unknown or outside "
    "the fitted range, both cover all fitted arm poses. config/nav2/body_shape.yaml has Nav2's parameters.",
    "ros_publish_footprint body_shape_model.yaml",
    arguments=(Argument("file", "the body-shape model (default: beside the calibration file)",
                        {"nargs": "?", "type": Path, "metavar": "FILE"}),),
    options=(
        ROBOT_OPTION,
        Option("topics", "/local_costmap/footprint,/global_costmap/footprint",
               "topics of geometry_msgs/Polygon, separated by commas"),
        Option("padding", 0.0,
               "padding around the shape in m, in addition to Nav2's footprint_padding", minimum=0.0, maximum=1.0),
        Option("footprint_frame", "base_footprint",
               "frame of the stop zone; Nav2's robot_base_frame has to be the same"),
        SETTINGS_OPTION,
    ),
    endless=True,
)  # fmt: skip
WATCH = NodeCommand(
    "ros_watch_calibration",
    "Check periodically, while the robot stands, whether the stored calibration is still valid: lidar to lidar, floor, "
    "and each lidar relative to the robot's own surfaces. Publishes /diagnostics, prints changes, and keeps a history "
    "('stretch-sim-cal history'). Nothing moves, and the calibration files are not written.",
    "ros_watch_calibration --period 300",
    options=(
        FILE_OPTION,
        Option("history", "", "the history's SQLite file; default: beside the calibration"),
        *CLOUD_OPTIONS, FOOTPRINT_OPTION, SENSOR_OPTION,
        Option("period", 300.0, "s between checks; at this rate there is one false alarm a month", minimum=0.1),
        Option("share", 0.01,
               "largest share of a processor core; checks become less frequent if they would exceed it",
               minimum=1e-4, maximum=1.0),
        Option("pairs", 2, "pairs of clouds in a check", minimum=2, maximum=100),
        Option("looks", 0, "exit after this many checks, with code 1 on a change; 0: never", minimum=0),
        TIMEOUT_OPTION,
    ),
    endless=True,
)  # fmt: skip
SIMULATOR = NodeCommand(
    "stretch_simulator",
    "Simulate a robot's drivers (the Stretch's by default): both lidars, joints, frames, motion and time.",
    "stretch_simulator --world furnished_room --sensor jt128_sparse --real-time-factor 1",
    simulated=True,
    options=(
        Option("simulator", "embedded", "what simulates the scans", choices=("embedded", "gazebo")),
        Option("lidar", "auto",
               "Gazebo's lidar: cpu sees collision shapes, gpu sees visuals and needs a renderer", choices=LIDARS),
        Option("gui", False, "open Gazebo's window"),
        Option("scenario", None, "a name in scenarios/, or a path, whose 'simulation:' is used", kind=str),
        Option("robot", None, "the robot's profile: a name in config/robots/, or a path (default: the Stretch's)",
               kind=str),
        Option("description", None, "a URDF or xacro file that replaces the profile's description", kind=str),
        Option("tool", None, "one of the Stretch's tools, or the URDF of a tool to attach", kind=str),
        Option("world", None, "a name in worlds/, or a path to an SDF file", kind=str),
        Option("sensor", None, "a name in config/ (jt128, jt128_ideal, jt128_sparse, ...), or a path", kind=str),
        Option("seed", None, "seed of all random numbers", kind=int, minimum=0),
        Option("unit_seed", None, "seed of the lidars' own errors; default: seed", kind=int, minimum=0),
        Option("left_unit", None, "unit file of the left lidar", kind=str),
        Option("right_unit", None, "unit file of the right lidar", kind=str),
        Option("distance_correction", None, "whether the driver corrects the optical centre", kind=str, choices=SWITCH),
        Option("firing_time_correction", None, "whether the driver corrects firing times", kind=str, choices=SWITCH),
        Option("lidar_left_error", None, f"error of the left mount, in the lidar's frame: {POSE_ERROR}", kind=str),
        Option("lidar_right_error", None, f"error of the right mount, in the lidar's frame: {POSE_ERROR}", kind=str),
        Option("base_error", None, "error of the base on the floor: height in m, roll,pitch in deg", kind=str),
        Option("real_time_factor", None, "simulated seconds per second; 0: as fast as possible", kind=float,
               minimum=0.0),
        Option("heading", 0.0, "heading of the robot, in deg", minimum=-360.0, maximum=360.0, live=True),
        Option("duration", None, "exit after this many simulated seconds", kind=float, minimum=0.0),
        Option("truth", None, "write the ground truth to this JSON file, and the true robot beside it", kind=str),
        Option("record", None,
               "record the robot's topics as a rosbag2 in this new folder, the truth beside it", kind=str),
        Option("storage", STORAGES[0], "storage format of the recording", choices=STORAGES),
        Option("mode", "position", "mode of the driver; motion needs position or navigation", live=True,
               choices=("position", "navigation", "trajectory", "velocity")),
        Option("fault", "", "faults, separated by commas: silent_left, silent_right, drop_half_left, "
               "drop_half_right, stamp_offset:SECONDS, push:TICK, stuck:JOINT, not_homed, crash:SECONDS"),
    ),
    endless=True,
)  # fmt: skip
STAGE_NODES = {"alignment": ALIGN, "floor": FLOOR, "mounts": MOUNTS, "body_shape": COLLECT, "drive": DRIVE}
"""The stages of a calibration, in their order."""
NODES = (ALIGN, FLOOR, BROADCAST, MOUNTS, DRIVE, COLLECT, CAPTURE, VISUALIZE, VISUALIZE_BODY_SHAPE, WATCH, FOOTPRINT)
NODE_COMMANDS = {each.executable: each for each in (*NODES, SIMULATOR)}
VERIFY = NodeCommand(
    "stretch-sim-cal verify", "Listen to all lidars.", "stretch-sim-cal verify",
    options=(*CLOUD_OPTIONS, FOOTPRINT_OPTION, Option("num_samples", 10, "pairs of clouds to use"), TIMEOUT_OPTION),
    name="verify_calibration",
)  # fmt: skip
LIVE = NodeCommand(
    "stretch-sim-cal doctor", "Listen to the robot's drivers.", "stretch-sim-cal doctor --live",
    options=(
        *CLOUD_OPTIONS, SENSOR_OPTION, FOOTPRINT_OPTION,
        Option("timeout", 10.0, "time for each driver to publish, in s", minimum=0.1),
    ), name="doctor",
)  # fmt: skip
