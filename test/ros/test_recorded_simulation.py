"""What the simulator records can be calibrated, verified, and holds what travelled over DDS."""

import numpy as np
import pytest
from node_process import FEW_RAYS, Graph
from rclpy.serialization import deserialize_message, serialize_message
from rosbags.highlevel import AnyReader
from sensor_msgs.msg import JointState

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.cli import main
from stretch_sim_cal.geometry.transforms import error
from stretch_sim_cal.harness.processes import own_domain
from stretch_sim_cal.harness.verdict import load_truth

ROBOT = (
    "--world", "furnished_room", "--sensor", FEW_RAYS, "--seed", "3",
    "--lidar-right-error", "0.003,-0.002,0.001,-0.5,0.6,-0.2",
)  # fmt: skip


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    """A recording of two simulated seconds, with the truth beside it."""
    folder = tmp_path_factory.mktemp("recorded")
    with own_domain() as domain:
        recorded = ("--record", str(folder / "bag"), "--duration", "2")
        Graph(domain, folder).call("stretch_simulator", *ROBOT, *recorded, code=0)
    return folder / "bag"


def test_it_is_calibrated(bag, tmp_path):
    out, truth, sensor = tmp_path / "cal.yaml", load_truth(f"{bag}.truth.json"), ("--sensor", FEW_RAYS)
    assert main(["calibrate", str(bag), "--out", str(out), *sensor, "--num-samples", "10", "--only", "alignment"]) == 0
    translation, rotation = error(truth.to_left["right"], CalibrationFile.load(out).right_to_left)
    assert translation < 2e-3 and np.degrees(rotation) < 0.04


def test_joint_states_are_stored_without_the_unused_bytes_that_rmw_leaves(bag):
    with AnyReader([bag]) as reader:
        wanted = [connection for connection in reader.connections if connection.topic == "/joint_states"]
        stored = [data for _, _, data in reader.messages(wanted)]
        states = [reader.deserialize(data, "sensor_msgs/msg/JointState") for data in stored]
    assert len(stored) >= 2 * 40
    message = deserialize_message(bytes(stored[0]), JointState)
    assert list(states[0].position) == list(message.position)
    assert len(stored[0]) < len(serialize_message(message))


def test_an_mcap_recording_is_one_of_ros_2_whose_messages_are_read_by_their_own_schemas(bag):
    (path,) = bag.glob("*.mcap")
    reader, of_ros = (
        pytest.importorskip(name, reason="the extra 'test' is not installed")
        for name in ("mcap.reader", "mcap_ros2.decoder")
    )
    with open(path, "rb") as file:
        strict = reader.make_reader(file, decoder_factories=[of_ros.DecoderFactory()], validate_crcs=True)
        assert strict.get_header().profile == "ros2"
        summary, latest = strict.get_summary(), {}
        messages = list(strict.iter_decoded_messages(log_time_order=False))
        for _, channel, message, _ in messages:
            assert message.log_time >= latest.get(channel.topic, 0)
            latest[channel.topic] = message.log_time
    assert len(messages) == summary.statistics.message_count and all(summary.statistics.channel_message_counts.values())
    assert {schema.encoding for schema in summary.schemas.values()} == {"ros2msg"}
    assert {channel.message_encoding for channel in summary.channels.values()} == {"cdr"}
    topics = {channel.topic: summary.schemas[channel.schema_id].name for channel in summary.channels.values()}
    assert topics == {
        "/lidar_points_left": "sensor_msgs/msg/PointCloud2", "/lidar_points_right": "sensor_msgs/msg/PointCloud2",
        "/joint_states": "sensor_msgs/msg/JointState", "/robot_description": "std_msgs/msg/String",
        "/tf": "tf2_msgs/msg/TFMessage", "/tf_static": "tf2_msgs/msg/TFMessage",
        "/is_homed": "std_msgs/msg/Bool", "/is_runstopped": "std_msgs/msg/Bool", "/mode": "std_msgs/msg/String",
        "/wheel_odom": "nav_msgs/msg/Odometry",
    }  # fmt: skip
