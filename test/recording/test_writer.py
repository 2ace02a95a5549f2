"""Recordings appear whole under their name, and are read back by an independent reader."""

import numpy as np
import pytest
from rosbags.highlevel import AnyReader

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.recording.clouds import POINT_DTYPE, records_from_message, returns_from_message
from stretch_sim_cal.recording.rosbag import RecordingWriter

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
        writer.write_cloud("/lidar_points_left", "lidar_left_link", STAMP, scan())
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
        writer.write_cloud("/a", "f", STAMP, scan())
        raise ZeroDivisionError
    with AnyReader([tmp_path / "bag"]) as reader:
        assert reader.message_count == 1


def test_an_existing_folder_is_never_written_into(tmp_path):
    (tmp_path / "bag").mkdir()
    with pytest.raises(InputError, match="exists already"):
        RecordingWriter(tmp_path / "bag")


def test_unknown_storage_and_type_are_named(tmp_path):
    with pytest.raises(InputError, match="available: mcap, sqlite3"):
        RecordingWriter(tmp_path / "bag", "zip")
    with RecordingWriter(tmp_path / "bag") as writer:
        with pytest.raises(InputError, match="nowhere_msgs/msg/Nothing cannot be recorded"):
            writer.add_topic("/x", "nowhere_msgs/msg/Nothing")
