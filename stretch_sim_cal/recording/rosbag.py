"""rosbag2 recordings without ROS: read (folders, or single .mcap and .db3 files, compressed too) and written (MCAP,
sqlite3)."""

import contextlib
import glob
import sqlite3
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rosbags.highlevel import AnyReader, AnyReaderError
from rosbags.interfaces import Connection, Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import ReaderError, StoragePlugin, Writer, WriterError
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, TypesysError, get_typestore

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml

# Exceptions of the storage readers on truncated or foreign files, besides their own.
BROKEN = (
    AnyReaderError, ReaderError, SerdeError, TypesysError, OSError, EOFError, sqlite3.Error, struct.error,
    AssertionError, KeyError, IndexError, ValueError, UnicodeDecodeError, OverflowError,
    MemoryError,  # a corrupt length exceeds the memory
)  # fmt: skip

CDR_HEADER = 4  # bytes: the encapsulation before a message
# Bytes of no meaning behind a message, beyond the 3 that rosbags allows. Writers that store what rmw serialized leave
# up to 4 for each empty sequence of 8-byte elements; of the types that are read here JointState has the most: three.
PADDINGS = (4, 8, 12)


def is_recording(path: str | Path) -> bool:
    """Return whether a path is a single file, or a folder whose metadata.yaml is a rosbag2 recording's."""
    path = Path(path)
    metadata = path / "metadata.yaml"
    return path.is_file() or metadata.is_file() and "rosbag2_bagfile_information" in read_yaml(metadata)


class Recording(contextlib.AbstractContextManager):
    """An open recording (context manager). Raises `InputError` if it is missing, truncated or not a rosbag2."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.exists():
            hint = "give a rosbag2 folder or an .mcap file"
            for unfinished in self.path.absolute().parent.glob(f".{glob.escape(self.path.name)}.*/*/*"):
                hint = f"its program was killed, which left {unfinished}, unfinished (mcap recover repairs such a file)"
            raise InputError(f"{self.path}: no such recording; {hint}")
        if self.path.is_dir() and not (self.path / "metadata.yaml").is_file():
            raise InputError(f"{self.path}: is not a rosbag2 recording (it has no metadata.yaml)")
        if self.path.suffix == ".bag":
            raise InputError(f"{self.path}: is a ROS 1 bag; convert it first with rosbags-convert")
        try:
            self._reader = AnyReader([self.path], default_typestore=get_typestore(Stores.ROS2_JAZZY))
            self._reader.open()
        except BROKEN as error:
            raise InputError(f"{self.path}: cannot be read as a rosbag2 recording: {_cause(error)}") from error

    def __exit__(self, *_exception: object) -> None:
        self._reader.close()

    @property
    def topics(self) -> dict[str, str]:
        """The type, like "sensor_msgs/msg/PointCloud2", of every topic."""
        return {connection.topic: connection.msgtype for connection in self._reader.connections}

    def count(self, topic: str) -> int:
        return sum(connection.msgcount for connection in self._reader.connections if connection.topic == topic)

    def messages(self, topics: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield (topic, message) of these topics in the order in which they were received. Raises `InputError` if the
        recording breaks off, holds a message that its own definition does not fit, or one of these topics has several
        types."""
        connections = [connection for connection in self._reader.connections if connection.topic in topics]
        if not connections:
            return  # rosbags would give every topic
        for topic in topics:
            if len(types := {each.msgtype for each in connections if each.topic == topic}) > 1:
                raise InputError(f"{self.path}: {topic} is of several types: {', '.join(sorted(types))}")
        try:
            for connection, _, data in self._reader.messages(connections=connections):
                yield connection.topic, self._message(data, connection.msgtype)
        except BROKEN as error:
            raise InputError(f"{self.path}: is truncated or damaged: {_cause(error)}") from error

    def _message(self, data: bytes, message_type: str) -> Any:
        try:
            return self._reader.deserialize(data, message_type)
        except AnyReaderError:
            for padding in PADDINGS:
                with contextlib.suppress(AnyReaderError):
                    return self._reader.deserialize(data[:-padding], message_type)
            raise

    def require(self, topic: str, message_type: str) -> None:
        """Raise `InputError` that lists what there is if the recording has no such topic of this type."""
        topics = self.topics
        if topic not in topics:
            alike = sorted(name for name, kind in topics.items() if kind == message_type)
            there = ", ".join(alike) or f"none; its topics are {', '.join(sorted(topics)) or 'none at all'}"
            raise InputError(f"{self.path}: has no topic {topic}; of type {message_type} it has: {there}")
        if topics[topic] != message_type:
            raise InputError(f"{self.path}: {topic} is of type {topics[topic]}; expected {message_type}")
        if not self.count(topic):
            raise InputError(f"{self.path}: has no message on {topic}")


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


STORAGES = {"mcap": StoragePlugin.MCAP, "sqlite3": StoragePlugin.SQLITE3}
FORMAT_VERSION = 9  # of metadata.yaml: what Jazzy writes
_UNLIMITED = QosTime(sec=2147483647, nsec=4294967295)


class RecordingWriter(contextlib.AbstractContextManager):
    """Writes one rosbag2 folder; a context whose `directory` appears when it ends, complete, also after an exception.
    Until then the recording grows in a hidden folder beside it, which stays behind only if the process is killed.
    Raises `InputError` if `directory` exists already, its parent cannot be written, or `storage` is not known."""

    def __init__(self, directory: str | Path, storage: str = "mcap") -> None:
        self.directory = Path(directory)
        if storage not in STORAGES:
            raise InputError(f"storage '{storage}' is unknown; available: {', '.join(STORAGES)}")
        if self.directory.exists():
            raise InputError(f"{self.directory}: exists already; choose another folder for the recording")
        self._typestore = get_typestore(Stores.ROS2_JAZZY)
        self._connections: dict[str, Connection] = {}
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self._hidden = Path(tempfile.mkdtemp(prefix=f".{self.directory.name}.", dir=self.directory.parent))
            # The storage file is named after its folder, so that has to have its final name from the start.
            folder = self._hidden / self.directory.name
            self._writer = Writer(folder, version=FORMAT_VERSION, storage_plugin=STORAGES[storage])
            self._writer.open()
        except (OSError, WriterError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(f"{self.directory}: cannot be written: {why}") from error

    def add_topic(self, topic: str, message_type: str, latched: bool = False) -> None:
        """Declare a topic before its first message; `message_type` is like "sensor_msgs/msg/JointState". Raises
        `InputError` for a type that is neither in Jazzy's common interfaces nor among `tf2_msgs`."""
        if topic in self._connections:
            return
        if message_type not in self._typestore.types:
            raise InputError(f"{topic}: messages of type {message_type} cannot be recorded")
        durability = QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE
        quality = Qos(
            QosHistory.KEEP_LAST, 10, QosReliability.RELIABLE, durability, deadline=_UNLIMITED, lifespan=_UNLIMITED,
            liveliness=QosLiveliness.AUTOMATIC, liveliness_lease_duration=_UNLIMITED,
            avoid_ros_namespace_conventions=False,
        )  # fmt: skip
        self._connections[topic] = self._writer.add_connection(
            topic, message_type, typestore=self._typestore, offered_qos_profiles=[quality]
        )

    def write_message(self, topic: str, stamp_ns: int, message: Any, serialized: bytes) -> None:
        """Write one message as it travels, `serialized` as CDR, without the unused bytes at its end: rmw reserves room
        for the alignment of elements that an empty sequence does not have, and does not clear it."""
        definition = self._typestore.get_msgdef(self._connections[topic].msgtype)
        self.write(topic, stamp_ns, serialized[: CDR_HEADER + definition.getsize_cdr(0, message, self._typestore)])

    def write(self, topic: str, stamp_ns: int, serialized: bytes) -> None:
        """Write one message, serialized as CDR, of a topic that was added, as received at `stamp_ns`. Raises
        `InputError` if the disk does not take it."""
        try:
            self._writer.write(self._connections[topic], stamp_ns, serialized)
        except (OSError, sqlite3.Error) as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Finish the recording and let it appear under its name. Raises `InputError` if the disk does not take it."""
        try:
            self._writer.close()
            (self._hidden / self.directory.name).rename(self.directory)
            self._hidden.rmdir()
        except (OSError, sqlite3.Error) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> InputError:
        why = f"{getattr(error, 'strerror', None) or error}; the incomplete recording is in {self._hidden}"
        return InputError(f"{self.directory}: cannot be written: {why}")

    def __exit__(self, *_exception: object) -> None:
        self.close()
