"""What has to be right before a robot may move: calibration in TF, driver mode, homed, runstop off."""

from typing import Any

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_path
from stretch_sim_cal.calibration.observations import load_beside
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.ros.collection.capture import Placement
from stretch_sim_cal.ros.collection.motion import ACTION
from stretch_sim_cal.ros.listening.frames import FrameListener

MOVING_MODES = ("position", "navigation")
# Wall time that a status topic, which some driver publishes, and a parameter get.
ANSWER = 3.0


def calibrated_placement(options: Any, frames: FrameListener, watchdog: Any) -> Placement:
    """Return where the calibration in TF has the lidars, the left one by its mount where that was found.

    Raises `Refused` where nobody broadcasts a calibration.
    """
    frames.wait_for((options.base_link_frame, options.left_lidar_frame), watchdog=watchdog)
    try:
        footprint_from_base, base_from_left, left_from_right = frames.wait_for(
            (options.floor_frame, options.base_link_frame),
            (options.base_link_frame, options.left_lidar_frame),
            (options.left_lidar_frame, options.right_calibrated_frame),
            watchdog=watchdog,
        )
    except InputError as error:
        raise Refused(f"the calibration is not in TF ({error}); run ros_broadcast_calibration beside this") from error
    if frames.tree.known(options.left_calibrated_frame):  # broadcast together with the frames above
        base_from_left = frames.lookup(options.base_link_frame, options.left_calibrated_frame)
    footprint_from_left = footprint_from_base @ base_from_left
    path = getattr(options, "calibration_file", "") or default_path()
    file = CalibrationFile.load_or_empty(path)
    return Placement(
        footprint_from_base, footprint_from_left, footprint_from_left @ left_from_right,
        load_beside(path, file.right_to_left),
    )  # fmt: skip


def robot_description(context: Any, frames: FrameListener, watchdog: Any) -> str:
    """Return the URDF text on /robot_description. Raises `RunFailure` (watchdog) where there is none."""
    silence = f"no message on {frames.DESCRIPTION_TOPIC}"
    watchdog.watch(silence, lambda: "the poses are planned on it; does the robot's driver run?")
    while frames.description is None:
        context.spin_once()
        watchdog.tick()
    watchdog.forget(silence)
    return frames.description


def check_driver(context: Any) -> None:
    """Raise `Refused` where the driver would not, or should not, move. What it does not tell is a warning."""
    mode = _driver_mode(context)
    if mode is None:
        context.log.warning("the driver does not tell its mode; position or navigation is needed")
    elif mode not in MOVING_MODES:
        raise Refused(
            f"the driver's mode is '{mode}', it has to be {' or '.join(MOVING_MODES)}; "
            f"for example: ros2 param set {_driver_name(context)} mode position"
        )
    runstopped = _flag(context, "/is_runstopped")
    if runstopped:
        raise Refused("the runstop is on; release it (ros2 service call /runstop std_srvs/srv/SetBool '{data: false}')")
    homed = _flag(context, "/is_homed")
    if homed is False:
        raise Refused("the robot has not been homed; call /home_the_robot (std_srvs/srv/Trigger) first")
    for topic, value in (("/is_runstopped", runstopped), ("/is_homed", homed)):
        if value is None:
            context.log.warning(f"the driver does not say {topic}; look yourself")


def _driver_name(context: Any) -> str | None:
    """Return the full name of the node that offers the action, None where there is none."""
    infos = context.node.get_publishers_info_by_topic(f"{ACTION}/_action/feedback")
    return next((f"{info.node_namespace.rstrip('/')}/{info.node_name}" for info in infos), None)


def _driver_mode(context: Any) -> str | None:
    from rcl_interfaces.srv import GetParameters

    name = _driver_name(context)
    if name is None:
        return None
    client = context.node.create_client(GetParameters, f"{name}/get_parameters")
    try:
        if not context.spin_until(client.service_is_ready, timeout=ANSWER):
            return None
        asked = client.call_async(GetParameters.Request(names=["mode"]))
        if not context.spin_until(asked.done, timeout=ANSWER):
            return None
        values = asked.result().values
        return values[0].string_value or None if values else None
    finally:
        context.node.destroy_client(client)


def _flag(context: Any, topic: str) -> bool | None:
    """Return what the driver says on a status topic; None where it has none, or says nothing."""
    from std_msgs.msg import Bool

    if not context.node.get_publishers_info_by_topic(topic):
        return None
    heard: list[bool] = []
    subscription = context.node.create_subscription(Bool, topic, lambda message: heard.append(message.data), 1)
    try:
        context.spin_until(lambda: bool(heard), timeout=ANSWER)
    finally:
        context.node.destroy_subscription(subscription)
    return heard[-1] if heard else None
