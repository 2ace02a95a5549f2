"""Reading rosbag2 recordings (folders, or single .mcap and .db3 files, compressed too) without ROS."""

import contextlib
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rosbags.highlevel import AnyReader, AnyReaderError
from rosbags.rosbag2 import ReaderError
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, TypesysError, get_typestore

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml

# What a torn or foreign file makes the storage readers raise, besides their own errors.
BROKEN = (
    AnyReaderError, ReaderError, SerdeError, TypesysError, OSError, EOFError, sqlite3.Error, struct.error,
    AssertionError, KeyError, IndexError, ValueError, UnicodeDecodeError, OverflowError,
    MemoryError,  # a torn length asks for more bytes than any machine has
)  # fmt: skip

CDR_HEADER = 4  # bytes: the encapsulation before a message
# Bytes of no meaning behind a message, beyond the 3 that rosbags allows. Writers that store what rmw serialized leave up
# to 4 for each empty sequence of 8-byte elements; of the types that are read here JointState has the most: three.
PADDINGS = (4, 8, 12)


def is_recording(path: str | Path) -> bool:
    """Return whether a path is a single file, or a folder whose metadata.yaml is a rosbag2 recording's."""
    path = Path(path)
    metadata = path / "metadata.yaml"
    return path.is_file() or metadata.is_file() and "rosbag2_bagfile_information" in read_yaml(metadata)


class Recording:
    """An open recording, a context. Raises `InputError` that names the file where it is missing, torn or not a rosbag2."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.exists():
            raise InputError(f"{self.path}: no such recording; give a rosbag2 folder or an .mcap file")
        if self.path.is_dir() and not (self.path / "metadata.yaml").is_file():
            raise InputError(f"{self.path}: is no rosbag2 recording (it has no metadata.yaml)")
        if self.path.suffix == ".bag":
            raise InputError(f"{self.path}: is a ROS 1 bag; convert it first with rosbags-convert")
        try:
            self._reader = AnyReader([self.path], default_typestore=get_typestore(Stores.ROS2_JAZZY))
            self._reader.open()
        except BROKEN as error:
            raise InputError(f"{self.path}: cannot be read as a rosbag2 recording: {_cause(error)}") from error

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_exception) -> None:
        self._reader.close()

    @property
    def topics(self) -> dict[str, str]:
        """The type, like "sensor_msgs/msg/PointCloud2", of every topic."""
        return {connection.topic: connection.msgtype for connection in self._reader.connections}

    def count(self, topic: str) -> int:
        """Return how many messages of a topic there are."""
        return sum(connection.msgcount for connection in self._reader.connections if connection.topic == topic)

    def messages(self, topics: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield (topic, message) of these topics in the order in which they were received.

        Raises `InputError` if the recording breaks off or holds a message that its own definition does not fit.
        """
        connections = [connection for connection in self._reader.connections if connection.topic in topics]
        if not connections:
            return  # rosbags would give every topic
        try:
            for connection, _, data in self._reader.messages(connections=connections):
                yield connection.topic, self._message(data, connection.msgtype)
        except BROKEN as error:
            raise InputError(f"{self.path}: is torn or damaged: {_cause(error)}") from error

    def _message(self, data: bytes, message_type: str) -> Any:
        try:
            return self._reader.deserialize(data, message_type)
        except AnyReaderError:
            for padding in PADDINGS:
                with contextlib.suppress(AnyReaderError):
                    return self._reader.deserialize(data[:-padding], message_type)
            raise

    def require(self, topic: str, message_type: str) -> None:
        """Raise `InputError` that says what there is where the recording has no such topic of this type."""
        topics = self.topics
        if topic not in topics:
            alike = sorted(name for name, kind in topics.items() if kind == message_type)
            there = ", ".join(alike) or f"none; topics are {', '.join(sorted(topics)) or 'none at all'}"
            raise InputError(f"{self.path}: has no topic {topic}; of type {message_type} there is {there}")
        if topics[topic] != message_type:
            raise InputError(f"{self.path}: {topic} is of type {topics[topic]}, {message_type} was expected")
        if not self.count(topic):
            raise InputError(f"{self.path}: has no message on {topic}")


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
