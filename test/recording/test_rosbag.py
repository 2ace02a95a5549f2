"""Recordings appear whole and are read back by an independent reader; of damaged ones, messages or one error."""

import sqlite3

import numpy as np
import pytest
from recorded_robot import write_cloud
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.recording.clouds import POINT_DTYPE, records_from_message, returns_from_message
from stretch_sim_cal.recording.rosbag import Recording, RecordingWriter

STAMP = 12 * 10**9 + 345


def scan():
    points = np.zeros(1000, POINT_DTYPE)
    points["x"] = np.arange(1000) + 1.0
    points["ring"] = np.arange(1000) % 128
    points["timestamp"] = 12.5
    return points


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_recorded_cloud_is_read_back(tmp_path, storage):
    with RecordingWriter(tmp_path / "bag", storage) as writer:
        write_cloud(writer, "/lidar_points_left", "lidar_left_link", STAMP, scan())
        assert not (tmp_path / "bag").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["bag"]
    with AnyReader([tmp_path / "bag"]) as reader:
        ((connection, stamp, raw),) = reader.messages()
        message = reader.deserialize(raw, connection.msgtype)
    assert (connection.topic, stamp, message.header.frame_id) == ("/lidar_points_left", STAMP, "lidar_left_link")
    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (12, 345)
    np.testing.assert_array_equal(returns_from_message(message)[:, 0], scan()["x"])
    np.testing.assert_array_equal(records_from_message(message)["ring"], scan()["ring"])


def test_what_was_recorded_before_an_exception_is_kept(tmp_path):
    with pytest.raises(ZeroDivisionError), RecordingWriter(tmp_path / "bag") as writer:
        write_cloud(writer, "/a", "f", STAMP, scan())
        raise ZeroDivisionError
    with AnyReader([tmp_path / "bag"]) as reader:
        assert reader.message_count == 1


def test_what_a_killed_program_left_of_a_recording_is_named(tmp_path):
    left = RecordingWriter(tmp_path / "drive [1]")
    with pytest.raises(InputError, match=r"no such recording.*/\.drive \[1\]\.\w+/drive \[1\]/drive \[1\]\.mcap"):
        Recording(left.directory)
    left.close()


@pytest.mark.parametrize("error", [sqlite3.OperationalError("database or disk is full"), OSError(28, "No space left")])
def test_a_disk_that_does_not_take_a_message_is_an_input_error(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    with RecordingWriter(tmp_path / "bag", "sqlite3") as writer:
        monkeypatch.setattr(writer._writer, "write", fail)
        with pytest.raises(InputError, match="bag: cannot be written: (database or disk is full|No space left);"):
            write_cloud(writer, "/a", "f", STAMP, scan())


def test_an_existing_folder_is_never_written_into_and_unknown_storage_and_type_are_named(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="exists already"):
        RecordingWriter(tmp_path / "there")
    with pytest.raises(InputError, match="available: mcap, sqlite3"):
        RecordingWriter(tmp_path / "bag", "zip")
    with RecordingWriter(tmp_path / "bag") as writer:
        with pytest.raises(InputError, match="nowhere_msgs/msg/Nothing cannot be recorded"):
            writer.add_topic("/x", "nowhere_msgs/msg/Nothing")


STRING = "std_msgs/msg/String"
TOPIC = "/robot_description"
STORE = get_typestore(Stores.ROS2_JAZZY)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recording") / "bag"
    with RecordingWriter(folder) as writer:
        writer.add_topic(TOPIC, STRING)
        for tick in range(20):
            message = STORE.types[STRING](data=f"<robot name='r{tick}'/>")
            writer.write(TOPIC, tick * 1_000_000, bytes(STORE.serialize_cdr(message, STRING)))
    return next(folder.glob("*.mcap")).read_bytes()


def read_all(path):
    with Recording(path) as recording:
        return [message.data for _, message in recording.messages([TOPIC])]


def test_an_intact_recording_gives_every_message_in_order_and_a_length_that_no_memory_holds_an_error(intact, tmp_path):
    (tmp_path / "a.mcap").write_bytes(intact)
    assert read_all(tmp_path / "a.mcap") == [f"<robot name='r{tick}'/>" for tick in range(20)]
    (tmp_path / "a.mcap").write_bytes(b"\x89MCAP0\r\n" + b"\x01" * 50)
    with pytest.raises(InputError, match="a.mcap"):
        read_all(tmp_path / "a.mcap")


@pytest.mark.parametrize("seed", [*range(18), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(18, 90))])
def test_a_damaged_recording_gives_messages_or_an_input_error(intact, tmp_path, seed):
    random = np.random.default_rng(seed)
    data = bytearray(intact)
    if seed % 3 == 0:
        del data[random.integers(len(data)) :]
    else:
        start = random.integers(len(data))
        data[start : start + 8] = random.bytes(8) if seed % 3 == 1 else b"\xff" * 8
    (tmp_path / "a.mcap").write_bytes(data)
    try:
        messages = read_all(tmp_path / "a.mcap")
    except InputError as error:
        assert "a.mcap" in str(error) and "\n" not in str(error)
    else:
        assert len(messages) <= 20


@pytest.mark.parametrize(("velocities", "efforts"), [(0, 0), (0, 2), (2, 2)])
def test_unused_bytes_behind_a_message_are_read_over(tmp_path, velocities, efforts):
    """Programs that record what rmw serialized, as `rosbag2_py` users do, leave up to 8 bytes behind joint states."""
    state = "sensor_msgs/msg/JointState"
    types = STORE.types
    header = types["std_msgs/msg/Header"](stamp=types["builtin_interfaces/msg/Time"](sec=1, nanosec=2), frame_id="")
    message = types[state](
        header=header, name=["lift", "arm"], position=np.array([0.5, 0.1]), velocity=np.zeros(velocities),
        effort=np.zeros(efforts),
    )  # fmt: skip
    exact = bytes(STORE.serialize_cdr(message, state))
    for padding in range(9):
        with RecordingWriter(tmp_path / str(padding)) as writer:
            writer.add_topic("/joint_states", state)
            writer.write("/joint_states", 0, exact + b"\x5a" * padding)
        with Recording(tmp_path / str(padding)) as recording:
            ((_, read),) = recording.messages(["/joint_states"])
        assert read.name == ["lift", "arm"] and read.position.tolist() == [0.5, 0.1]


def test_a_message_of_another_type_than_announced_and_a_topic_of_two_types_are_input_errors(tmp_path):
    text = bytes(STORE.serialize_cdr(STORE.types[STRING](data="a" * 40), STRING))
    with RecordingWriter(tmp_path / "bag") as writer:
        writer.add_topic(TOPIC, "std_msgs/msg/Bool")
        writer.write(TOPIC, 0, text)
    with pytest.raises(InputError, match="size mismatch"), Recording(tmp_path / "bag") as recording:
        list(recording.messages([TOPIC]))
    with Writer(tmp_path / "two", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for kind in (STRING, "std_msgs/msg/Header"):
            writer.add_connection(TOPIC, kind, typestore=STORE)
    with Recording(tmp_path / "two") as recording:
        with pytest.raises(InputError, match="/robot_description is of several types: std_msgs/msg/Header, std_msgs"):
            list(recording.messages([TOPIC]))
