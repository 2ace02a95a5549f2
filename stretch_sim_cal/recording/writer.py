"""Writing rosbag2 recordings (MCAP or sqlite3) without ROS, whole or not at all."""

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from rosbags.interfaces import Connection, Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import StoragePlugin, Writer, WriterError
from rosbags.typesys import Stores, get_typestore

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.recording.clouds import is_big_endian, layout
from stretch_sim_cal.recording.reader import CDR_HEADER
from stretch_sim_cal.sensor.points import is_dense

STORAGES = {"mcap": StoragePlugin.MCAP, "sqlite3": StoragePlugin.SQLITE3}
FORMAT_VERSION = 9  # of metadata.yaml: what Jazzy writes
CLOUD_TYPE = "sensor_msgs/msg/PointCloud2"
_UNLIMITED = QosTime(sec=2147483647, nsec=4294967295)


class RecordingWriter:
    """Writes one rosbag2 folder; a context whose `directory` appears when it ends, complete, also after an exception.

    Until then the recording grows in a hidden folder beside it, which stays behind only where the process is killed.
    Raises `InputError` if `directory` exists already, its parent cannot be written, or `storage` is not known.
    """

    def __init__(self, directory: str | Path, storage: str = "mcap") -> None:
        self.directory = Path(directory)
        if storage not in STORAGES:
            raise InputError(f"storage '{storage}' is not known; there is {', '.join(STORAGES)}")
        if self.directory.exists():
            raise InputError(f"{self.directory}: exists already; choose another folder for the recording")
        self._typestore = get_typestore(Stores.ROS2_JAZZY)
        self._connections: dict[str, Connection] = {}
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self._hidden = Path(tempfile.mkdtemp(prefix=f".{self.directory.name}.", dir=self.directory.parent))
            # The storage file is named after its folder, so that has to have its final name from the start.
            self._writer = Writer(
                self._hidden / self.directory.name, version=FORMAT_VERSION, storage_plugin=STORAGES[storage]
            )
            self._writer.open()
        except (OSError, WriterError) as error:
            raise InputError(f"{self.directory}: cannot be written: {error}") from error

    def add_topic(self, topic: str, message_type: str, latched: bool = False, best_effort: bool = False) -> None:
        """Declare a topic before its first message; `message_type` is like "sensor_msgs/msg/JointState".

        Raises `InputError` for a type that is neither in Jazzy's common interfaces nor among `tf2_msgs`.
        """
        if topic in self._connections:
            return
        if message_type not in self._typestore.types:
            raise InputError(f"{topic}: messages of type {message_type} cannot be recorded")
        self._connections[topic] = self._writer.add_connection(
            topic, message_type, typestore=self._typestore, offered_qos_profiles=[_qos(latched, best_effort)]
        )

    def write_message(self, topic: str, stamp_ns: int, message: Any, serialized: bytes) -> None:
        """Write one message as it travels: `serialized` (CDR) without the unused bytes that a serializer may leave.

        rmw reserves room for the alignment of elements that an empty sequence does not have, and does not clear it.
        """
        definition = self._typestore.get_msgdef(self._connections[topic].msgtype)
        size = CDR_HEADER + definition.getsize_cdr(0, message, self._typestore)
        self.write(topic, stamp_ns, serialized[:size])

    def write(self, topic: str, stamp_ns: int, serialized: bytes) -> None:
        """Write one message, serialized as CDR, of a topic that was added, as received at `stamp_ns`.

        Raises `InputError` if the disk does not take it.
        """
        try:
            self._writer.write(self._connections[topic], stamp_ns, serialized)
        except OSError as error:
            raise self._failure(error) from error

    def write_cloud(self, topic: str, frame: str, stamp_ns: int, scan: np.ndarray) -> None:
        """Write a structured scan (N,) (see `POINT_DTYPE`) as a `sensor_msgs/PointCloud2` in `frame`."""
        self.add_topic(topic, CLOUD_TYPE)
        types = self._typestore.types
        seconds, nanoseconds = divmod(stamp_ns, 1_000_000_000)
        field = types["sensor_msgs/msg/PointField"]
        scan = np.ascontiguousarray(scan)
        message = types[CLOUD_TYPE](
            header=types["std_msgs/msg/Header"](
                stamp=types["builtin_interfaces/msg/Time"](sec=seconds, nanosec=nanoseconds), frame_id=frame
            ),
            height=1,
            width=len(scan),
            fields=[field(*entry) for entry in layout(scan.dtype)],
            is_bigendian=is_big_endian(scan.dtype),
            point_step=scan.dtype.itemsize,
            row_step=scan.dtype.itemsize * len(scan),
            data=np.frombuffer(scan.tobytes(), np.uint8),
            is_dense=is_dense(scan),
        )
        self.write(topic, stamp_ns, self._typestore.serialize_cdr(message, CLOUD_TYPE))

    def close(self) -> None:
        """Finish the recording and let it appear under its name. Raises `InputError` if the disk does not take it."""
        try:
            self._writer.close()
            (self._hidden / self.directory.name).rename(self.directory)
            self._hidden.rmdir()
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> InputError:
        return InputError(
            f"{self.directory}: cannot be written: {error.strerror or error}; what there is so far is in {self._hidden}"
        )

    def __enter__(self) -> "RecordingWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _qos(latched: bool, best_effort: bool) -> Qos:
    return Qos(
        history=QosHistory.KEEP_LAST,
        depth=10,
        reliability=QosReliability.BEST_EFFORT if best_effort else QosReliability.RELIABLE,
        durability=QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE,
        deadline=_UNLIMITED,
        lifespan=_UNLIMITED,
        liveliness=QosLiveliness.AUTOMATIC,
        liveliness_lease_duration=_UNLIMITED,
        avoid_ros_namespace_conventions=False,
    )
