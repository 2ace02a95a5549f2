"""The tree of frames: chains through it, and messages for what is missing."""

import numpy as np
import pytest
from geometry_msgs.msg import Transform
from recorded_robot import write_description

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy, inverse
from stretch_sim_cal.recording.frame_tree import FrameTree, transform_of_message
from stretch_sim_cal.recording.rosbag import Recording, RecordingWriter
from stretch_sim_cal.recording.topics import TF_TYPE, recorded_tree

HEAD = from_xyz_rpy((0.1, 0.0, 1.4), (0.0, 0.1, 0.3))
LEFT = from_xyz_rpy((0.0, 0.12, 0.1), (2.0, 0.5, -0.3))
RIGHT = from_xyz_rpy((0.0, -0.12, 0.1), (-2.0, 0.5, 0.3))


def stretch(left: str = "lidar_left_link", right: str = "lidar_right_link") -> FrameTree:
    tree = FrameTree()
    tree.connect("base_link", "head_link", HEAD)
    tree.connect("head_link", left, LEFT)
    tree.connect("/head_link", "/" + right, RIGHT)
    return tree


@pytest.mark.parametrize(("target", "source", "expected"), [
    ("base_link", "lidar_left_link", HEAD @ LEFT), ("lidar_left_link", "base_link", inverse(HEAD @ LEFT)),
    ("lidar_left_link", "lidar_right_link", inverse(LEFT) @ RIGHT), ("/head_link", "head_link", np.eye(4)),
])  # fmt: skip
def test_transforms_chain_up_and_down(target, source, expected):
    assert np.allclose(stretch().lookup(target, source), expected)


def test_older_and_newer_names_of_the_lidars_mean_the_same():
    for tree in (stretch(), stretch("link_lidar_left", "link_lidar_right")):
        for left, right in (("lidar_left_link", "lidar_right_link"), ("link_lidar_left", "link_lidar_right")):
            assert np.allclose(tree.lookup(left, right), inverse(LEFT) @ RIGHT)


@pytest.mark.parametrize(("change", "named"), [
    (lambda tree: tree.connect("base", "imu", LEFT), ["'imu' with 'base_link'", "below 'base'", "missing"]),
    (lambda tree: tree.connect("lidar_left_link", "base_link", LEFT), ["loop", "base_link -> "]),
    (lambda tree: None, ["'imu' is unknown", "head_link"]),
])  # fmt: skip
def test_what_is_missing_is_named(change, named):
    tree = stretch()
    change(tree)
    with pytest.raises(InputError) as raised:
        tree.lookup("base_link", "imu" if "loop" not in named else "head_link")
    assert all(words in str(raised.value) for words in named), raised.value
    with pytest.raises(InputError, match="no frames"):
        FrameTree().lookup("a", "b")


def test_a_second_parent_is_noticed_and_the_latest_counts_and_a_transform_without_a_rotation_is_refused():
    tree = stretch()
    assert tree.connect("base_link", "lidar_left_link", LEFT) == "head_link"
    assert np.allclose(tree.lookup("base_link", "lidar_left_link"), LEFT)
    for name, value in (("w", 0.0), ("x", float("nan"))):
        message = Transform()
        setattr(message.rotation, name, value)
        with pytest.raises(InputError):
            transform_of_message(message)


def write_frames(writer: RecordingWriter, topic: str, parent: str, *children: str, turned: float = 1.0) -> None:
    types, zero = writer._typestore.types, {"x": 0.0, "y": 0.0, "z": 0.0}
    moved = types["geometry_msgs/msg/Transform"](
        translation=types["geometry_msgs/msg/Vector3"](**zero),
        rotation=types["geometry_msgs/msg/Quaternion"](**zero, w=turned),
    )
    stamp = types["builtin_interfaces/msg/Time"](sec=0, nanosec=0)
    header = types["std_msgs/msg/Header"](stamp=stamp, frame_id=parent)
    stamped = types["geometry_msgs/msg/TransformStamped"]
    frames = [stamped(header=header, child_frame_id=child, transform=moved) for child in children]
    writer.add_topic(topic, TF_TYPE)
    message = types[TF_TYPE](transforms=frames)
    writer.write(topic, 0, bytes(writer._typestore.serialize_cdr(message, TF_TYPE)))


def test_frames_of_a_recording_are_of_several_publishers_and_one_that_is_broken_is_left_out_and_named(tmp_path):
    with RecordingWriter(tmp_path / "bag") as writer:
        write_description(writer, "not a robot")
        write_frames(writer, "/tf", "odom", "base_link")
        write_frames(writer, "/tf", "base_link", "left", "right")
        write_frames(writer, "/tf_static", "base_link", "imu", turned=0.0)
    with Recording(tmp_path / "bag") as recording:
        tree = recorded_tree(recording, "base_link", ("left", "right"))
        assert "without 'imu' below 'base_link', which is not a transform" in tree.source
        with pytest.raises(InputError, match="/robot_description: .*'imu' is unknown; /tf_static .without 'imu'"):
            recorded_tree(recording, "base_link", ("left", "imu"))
