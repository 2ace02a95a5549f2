"""Messages of the robot's drivers, made from arrays and numbers."""

from collections.abc import Mapping

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import TransformStamped
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import JointState, PointCloud2, PointField
from tf2_msgs.msg import TFMessage

from stretch_sim_cal.recording.clouds import is_big_endian, layout, message_bytes
from stretch_sim_cal.sensor.points import is_dense

NANOSECONDS = 1_000_000_000


def time_message(stamp: int) -> Time:
    """Return a time in ns as a message."""
    seconds, nanoseconds = divmod(stamp, NANOSECONDS)
    return Time(sec=seconds, nanosec=nanoseconds)


def cloud_message(scan: np.ndarray, frame: str, stamp: int) -> PointCloud2:
    """Return a structured scan (N,) as a cloud in `frame`, stamped `stamp` ns; it is dense if no point marks a miss."""
    message = PointCloud2()
    message.header.frame_id = frame
    message.header.stamp = time_message(stamp)
    message.height, message.width = 1, len(scan)
    message.fields = [
        PointField(name=field.name, offset=field.offset, datatype=field.datatype, count=field.count)
        for field in layout(scan.dtype)
    ]
    message.is_bigendian = is_big_endian(scan.dtype)
    message.point_step = scan.dtype.itemsize
    message.row_step = scan.nbytes
    message.data = message_bytes(scan)
    message.is_dense = is_dense(scan)
    return message


def joint_state_message(positions: Mapping[str, float], velocities: Mapping[str, float], stamp: int) -> JointState:
    """Return joint positions (m, rad) and velocities by joint name, stamped `stamp` ns."""
    message = JointState()
    message.header.stamp = time_message(stamp)
    message.name = list(positions)
    message.position = [float(value) for value in positions.values()]
    message.velocity = [float(velocities.get(name, 0.0)) for name in positions]
    return message


def transforms_message(transforms: Mapping[tuple[str, str], np.ndarray], stamp: int) -> TFMessage:
    """Return {(parent, child): parent_from_child (4, 4)} as a message for /tf or /tf_static, stamped `stamp` ns."""
    time = time_message(stamp)
    matrices = np.array(list(transforms.values())).reshape(-1, 4, 4)
    translations = matrices[:, :3, 3].tolist()
    quaternions = Rotation.from_matrix(matrices[:, :3, :3]).as_quat(canonical=True).tolist()
    message = TFMessage()
    for (parent, child), (x, y, z), (qx, qy, qz, qw) in zip(transforms, translations, quaternions):
        stamped = TransformStamped(child_frame_id=child)
        stamped.header.stamp, stamped.header.frame_id = time, parent
        translation, rotation = stamped.transform.translation, stamped.transform.rotation
        translation.x, translation.y, translation.z = x, y, z
        rotation.x, rotation.y, rotation.z, rotation.w = qx, qy, qz, qw
        message.transforms.append(stamped)
    return message
