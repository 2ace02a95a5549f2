"""Recordings of a simulated robot, written as `ros2 bag record` writes those of a real one."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.lib.recfunctions import drop_fields

from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.recording.clouds import CLOUD_TYPE, cloud_attributes, layout
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

SECOND = 1_000_000_000
FRAMES = ("lidar_left_link", "lidar_right_link")


def write_description(writer: RecordingWriter, text: str) -> None:
    _write(writer, "/robot_description", "std_msgs/msg/String", 0, latched=True, data=text)


def write_joints(writer: RecordingWriter, positions: Mapping[str, float], stamp: int, stamped: bool = True) -> None:
    """Write joint positions (m, rad) received at `stamp` (ns), which is also in the header if they are `stamped`."""
    types, empty = writer._typestore.types, np.zeros(0)
    time = types["builtin_interfaces/msg/Time"](*(divmod(stamp, SECOND) if stamped else (0, 0)))
    _write(
        writer, "/joint_states", "sensor_msgs/msg/JointState", stamp,
        header=types["std_msgs/msg/Header"](stamp=time, frame_id=""), name=list(positions),
        position=np.array(list(positions.values()), dtype=float), velocity=empty, effort=empty,
    )  # fmt: skip


def write_scans(
    writer: RecordingWriter, simulator: EmbeddedSimulator, tick: int, sides: Sequence[str] = SIDES,
    frames: Sequence[str] = FRAMES, late: float = 0.0, without: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write a scan of each lidar, the right one's stamp `late` by so many s, `without` some fields of the points."""
    for side in sides:
        scan = simulator.scan(side, tick)
        if without:
            scan = np.ascontiguousarray(drop_fields(scan, list(without), usemask=False))
        stamp = round(simulator.start_time(side, tick) * SECOND) + SECOND
        stamp += round(late * SECOND) if side == "right" else 0
        write_cloud(writer, f"/lidar_points_{side}", frames[SIDES.index(side)], stamp, scan)


def write_cloud(writer: RecordingWriter, topic: str, frame: str, stamp: int, scan: np.ndarray) -> None:
    """Write a structured scan (N,) in `frame`, of `stamp` (ns)."""
    types = writer._typestore.types
    time = types["builtin_interfaces/msg/Time"](*divmod(stamp, SECOND))
    _write(
        writer, topic, CLOUD_TYPE, stamp, header=types["std_msgs/msg/Header"](stamp=time, frame_id=frame),
        fields=[types["sensor_msgs/msg/PointField"](*entry) for entry in layout(scan.dtype)],
        data=np.frombuffer(scan.tobytes(), np.uint8), **cloud_attributes(scan),
    )  # fmt: skip


def _write(writer: RecordingWriter, topic: str, kind: str, stamp: int, latched: bool = False, **fields) -> None:
    writer.add_topic(topic, kind, latched=latched)
    message = writer._typestore.types[kind](**fields)
    writer.write(topic, stamp, bytes(writer._typestore.serialize_cdr(message, kind)))


def write_odometry(writer: RecordingWriter, topic: str, pose: Sequence[float], stamp: int) -> None:
    """Write wheel odometry, x, y (m), yaw (rad), of `stamp` (ns)."""
    types, covariance = writer._typestore.types, np.zeros(36)
    vector, zero = types["geometry_msgs/msg/Vector3"], {"x": 0.0, "y": 0.0, "z": 0.0}
    x, y, yaw = map(float, pose)
    turned = types["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=float(np.sin(yaw / 2)), w=float(np.cos(yaw / 2)))
    placed = types["geometry_msgs/msg/Pose"](
        position=types["geometry_msgs/msg/Point"](x=x, y=y, z=0.0), orientation=turned
    )
    twist = types["geometry_msgs/msg/Twist"](linear=vector(**zero), angular=vector(**zero))
    time = types["builtin_interfaces/msg/Time"](*divmod(stamp, SECOND))
    _write(
        writer, topic, "nav_msgs/msg/Odometry", stamp, header=types["std_msgs/msg/Header"](stamp=time, frame_id="odom"),
        child_frame_id="base_footprint",
        pose=types["geometry_msgs/msg/PoseWithCovariance"](pose=placed, covariance=covariance),
        twist=types["geometry_msgs/msg/TwistWithCovariance"](twist=twist, covariance=covariance),
    )  # fmt: skip
