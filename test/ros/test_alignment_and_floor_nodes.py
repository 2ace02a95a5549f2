"""Alignment and floor on clouds of a small room that come over DDS, and the broadcaster of what they write."""

import json
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from fake_drivers import NOMINAL, RIGHT_TO_LEFT, description, publish_frames, write_calibration
from made_results import joints_in
from node_process import SILENCE, Graph, stop, wait_for_line

from stretch_sim_cal.calibration.calibration_file import FLOOR, CalibrationFile
from stretch_sim_cal.calibration.finding import ANOTHER_PLACE_MAY
from stretch_sim_cal.calibration.observations import places_beside
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import keep_backup
from stretch_sim_cal.geometry.planes import floor_of_footprint
from stretch_sim_cal.geometry.transforms import error, from_xyz_rpy, inverse
from stretch_sim_cal.harness.processes import own_domain
from stretch_sim_cal.recording.frame_tree import FrameTree
from stretch_sim_cal.robot.profile import load_profile
from stretch_sim_cal.ros import calibration_nodes
from stretch_sim_cal.ros.calibration_in_use import CalibrationWatch
from stretch_sim_cal.ros.listening import FrameListener

pytestmark = pytest.mark.graph

SAMPLES = ("--num-samples", "3")


@pytest.fixture(scope="module")
def aligned(tmp_path_factory):
    """A graph whose robot, of older firmware, was aligned with a volatile TF and some empty clouds, and the end."""
    old = ["link_lidar_left", "link_lidar_right"]
    with own_domain() as domain:
        graph = Graph(domain, tmp_path_factory.mktemp("aligned"))
        with graph.drivers(
            frame_ids={"left": old[0], "right": old[1]}, tf=[("base_link", name) for name in old], tf_latched=False,
            empty=["left"], invalid_share=0.2,
        ):  # fmt: skip
            return graph, graph.call("ros_align_dual_lidar", *SAMPLES)


def test_aligns_a_robot_of_older_firmware_with_a_volatile_tf_and_some_empty_clouds(aligned):
    graph, ended = aligned
    assert ended.code == 0, ended.err
    assert "accepted" in ended.out and "standard deviation" in ended.out
    assert "empty: " in ended.err
    file = CalibrationFile.load(graph.calibration_file)
    distance, angle = error(RIGHT_TO_LEFT, file.right_to_left)
    assert distance < 0.004 and np.degrees(angle) < 0.08
    assert yaml.safe_load(graph.calibration_file.read_text())["right_to_left_transform"]["robot_id"] == "stretch-test"
    assert "the lidars' joints are not recorded" in ended.err  # this TF knows no head


def test_takes_the_published_parameters_from_ros_arguments_and_prints_json(graph):
    (graph.folder / "parameters.yaml").write_text("/**: {ros__parameters: {num_sample: 3}}")  # perhaps of another node
    with graph.drivers(topics={"left": "/front/left", "right": "/front/right"}, reliable=False, organised=True):
        ended = graph.call(
            "ros_align_dual_lidar", "--json", "--ros-args", "-p", "num_samples:=8", "-p", "method:=published",
            "-p", "left_lidar_topic:=/front/left", "-p", "right_lidar_topic:=/front/right",
            "-p", "max_correspondence_distance:=1", "--params-file", "parameters.yaml", code=0,
        )  # fmt: skip
    assert json.loads(ended.out)["alignment"]["num_frames"] == 8
    assert "did you mean num_samples?" in ended.err


def test_captures_a_few_clouds_and_prints_what_they_are(graph):
    with graph.drivers():
        ended = graph.call("ros_capture_clouds", "clouds.npz", "--num-samples", "2", "--json", code=0)
    said = json.loads(ended.out)
    assert (said["file"], said["clouds"]) == ("clouds.npz", 2)
    with np.load(graph.folder / "clouds.npz") as arrays:
        assert {name: len(cloud) for name, cloud in arrays.items()} == said["returns"]
    assert set(said["returns"]) == {"left", "right"}


def test_a_refusal_names_its_reasons_and_leaves_the_old_file_and_what_was_seen_before_alone(aligned, graph):
    file = aligned[0].calibration_file
    before = {path: path.read_bytes() for path in (file, places_beside(file))}
    named = ("--calibration-file", str(file), "--outcome-file", "outcome.json")
    with graph.drivers(elsewhere=True):
        ended = graph.call("ros_align_dual_lidar", *named, "--num-samples", "1", code=1)
    outcome = json.loads((graph.folder / "outcome.json").read_text())
    told = [line.removeprefix("refused: ") for line in ended.err.splitlines() if line.startswith("refused: ")]
    assert told and not outcome["accepted"] and all(found["code"] for found in outcome["refusals"])
    assert ["; ".join(filter(None, (found["sentence"], found["remedy"]))) for found in outcome["refusals"]] == told
    assert ANOTHER_PLACE_MAY not in ended.err
    assert {path: path.read_bytes() for path in before} == before


def test_frames_come_from_the_description_where_tf_is_silent_and_a_silent_lidar_is_named(graph):
    with graph.drivers(sides=["left"], tf=[], description=description()):
        ended = graph.call("ros_align_dual_lidar", "--timeout", str(SILENCE), *SAMPLES)
    others = "topics with sensor_msgs/msg/PointCloud2 are /lidar_points_left"
    ended.assert_failed(3, "no messages on /lidar_points_right", others)
    assert "[WARN]" in ended.err
    assert not graph.calibration_file.exists()


def test_a_signal_ends_it_at_once_and_writes_nothing(graph):
    with graph.drivers(sides=["left"]):
        process = graph.start("ros_align_dual_lidar")
        wait_for_line(process, "listening to", "stderr")
        assert stop(process, signal.SIGTERM) == 143
    assert "Traceback" not in process.stderr.read()
    assert not graph.calibration_file.exists()


TILT_DEG, HEIGHT = [0.5, -0.3], 0.031
FLOOR_FROM_BASE = from_xyz_rpy((0.0, 0.0, HEIGHT), np.radians([*TILT_DEG, 0.0]))


def test_finds_the_floor_from_where_the_mounts_have_the_left_lidar_and_writes_both_files(graph):
    described = NOMINAL["left"]
    left = described @ from_xyz_rpy((0.004, 0.0, -0.003), np.radians([0.8, -0.5, 0.3]))
    write_calibration(graph.calibration_file, None, base_from_left=left)
    with graph.drivers(tilt_deg=TILT_DEG, height=HEIGHT):
        named = ("--fit-method", "svd", "--mode", "average_transforms")
        ended = graph.call("ros_find_floor_calibration", *SAMPLES, *named, code=0)
    assert "fit_method 'svd' is not offered" in ended.err and "mode 'average_transforms'" in ended.err
    assert "5.0 mm and 0.99 deg from where TF has it" in ended.err
    file, expected = CalibrationFile.load(graph.calibration_file), floor_of_footprint(FLOOR_FROM_BASE)
    expected = expected.moved(left @ inverse(described))
    assert abs(file.floor_plane.offset - expected.offset) < 0.0005
    assert np.degrees(np.arccos(min(1.0, file.floor_plane.normal @ expected.normal))) < 0.03
    assert np.sqrt(file.entries[FLOOR].covariance[0, 0]) > 1e-4  # that of the mount
    assert file.data["other"] == {"kept": True} and file.right_to_left is not None
    recorded = joints_in(graph.folder / "fleet" / "stretch-test" / "stretch_calibration_values.yaml")["base_ref"]
    assert error(file.footprint_from_base, recorded.parent_from_child)[0] < 1e-9
    assert (recorded.parent, recorded.child) == ("base_footprint", "base_link")


@pytest.mark.parametrize("program", ["ros_align_dual_lidar", "ros_find_floor_calibration"])
def test_rollback_brings_back_the_calibration_before_the_last_write_also_of_files_that_are_broken(graph, program):
    path, values = graph.calibration_file, graph.folder / "fleet" / "stretch-test" / "stretch_calibration_values.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("note: older\n")
    keep_backup(path)
    for broken in (path, values):
        broken.write_text("note: [newer\n")
    ended = graph.call(program, "--rollback", "--json", code=0)
    assert json.loads(ended.out) == {"restored": [str(path)]}
    assert path.read_text() == "note: older\n"
    assert path.with_name(path.name + ".rolled_back").read_text() == values.read_text() == "note: [newer\n"
    assert "stretch_calibration_values.yaml: there is no backup" in ended.err
    assert graph.call(program, "--rollback").code == 2


def test_lidars_that_no_head_houses_have_no_joints_in_the_values_file():
    tree = FrameTree()
    tree.connect("base_link", "left", np.eye(4))
    files = SimpleNamespace(
        file=CalibrationFile(), _options=SimpleNamespace(base_link_frame="base_link", left_lidar_frame="left")
    )
    robot = SimpleNamespace(profile=load_profile("two_lidar_amr"), frames=tree)
    assert calibration_nodes._Files.lidar_joints(files, robot) == []


@pytest.mark.parametrize(("mounts", "fault"), [(None, "frame is unknown"), ({"left": [[1.0]]}, "lidar_mounts")])
def test_a_new_file_that_a_node_cannot_use_leaves_it_running_with_the_one_before(tmp_path, mounts, fault):
    path, said = tmp_path / "calibration.yaml", []

    def changed():
        raise InputError("frame is unknown")

    write_calibration(path, 0.03)
    options, log = SimpleNamespace(calibration_file=str(path)), SimpleNamespace(warning=said.append)
    watch = CalibrationWatch(SimpleNamespace(options=options, log=log, every=lambda *_: None), changed)
    write_calibration(path, 0.05)
    if mounts:
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"lidar_mounts": {"data": mounts}}))
    watch._refresh()
    assert fault in said[-1] and said[-1].endswith("the previous version stays in use")
    watch._refresh()
    assert sum("stays in use" in each for each in said) == 1


def publish_robot(node, footprint: bool):
    edges = [("base_link", "link_lidar_left")] + [("base_footprint", "base_link")] * footprint
    publish_frames(node, {edge: np.eye(4) for edge in edges})


def test_publishes_the_calibration_beside_the_robots_own_frames_and_follows_the_file(ros, graph):
    base_from_floor = write_calibration(graph.calibration_file, 0.03)
    publish_robot(ros.drivers, footprint=True)
    frames = FrameListener(ros.context)
    with graph.running("ros_broadcast_calibration", ready="broadcasting") as process:
        tree = frames.tree
        ros.until(lambda: tree.known("floor_plane") and tree.known("base_footprint"))
        assert np.allclose(tree.lookup("base_link", "floor_plane"), base_from_floor, atol=1e-9)
        # An older robot's name of the left lidar's frame is the parent, once it has been heard.
        ros.until(lambda: tree.parent("lidar_right_calibrated") == "link_lidar_left")
        assert np.allclose(tree.lookup("link_lidar_left", "lidar_right_calibrated"), RIGHT_TO_LEFT, atol=1e-9)

        graph.calibration_file.write_text("right_to_left_transform: {data: [[1")
        wait_for_line(process, "the previous version stays in use", "stderr")
        assert not tree.known("lidar_left_calibrated")
        base_from_left = from_xyz_rpy((0.04, 0.12, 1.5), (0.1, 0.2, 0.3))
        moved = write_calibration(graph.calibration_file, 0.05, base_from_left=base_from_left)
        ros.until(lambda: np.allclose(tree.lookup("base_link", "floor_plane"), moved, atol=1e-9))
        assert np.allclose(tree.lookup("base_link", "lidar_left_calibrated"), base_from_left, atol=1e-9)
        assert np.allclose(tree.lookup("link_lidar_left", "lidar_right_calibrated"), RIGHT_TO_LEFT, atol=1e-9)
        assert tree.parent("base_footprint") is None and tree.parent("base_link") == "base_footprint"
        write_calibration(graph.calibration_file, 0.05)
        wait_for_line(process, "lidar_left_calibrated is no longer published by this node: the file no", "stderr")
        assert stop(process) == 0


def test_publishes_base_footprint_only_where_nobody_else_does(ros, graph):
    base_from_floor = write_calibration(graph.calibration_file, 0.03)
    publish_robot(ros.drivers, footprint=False)
    frames = FrameListener(ros.context)
    with graph.running("ros_broadcast_calibration", ready="base_link -> base_footprint") as process:
        ros.until(lambda: frames.tree.known("base_footprint"))
        assert np.allclose(frames.tree.lookup("base_link", "base_footprint"), base_from_floor, atol=1e-9)
        publish_robot(ros.drivers, footprint=True)
        ros.until(lambda: frames.tree.parent("base_link") == "base_footprint")
        wait_for_line(
            process,
            "base_link -> base_footprint is no longer published by this node: another node publishes it",
            "stderr",
        )
        with graph.running("ros_broadcast_calibration", ready="broadcasting") as second:
            for each in (process, second):
                wait_for_line(each, "another ros_broadcast_calibration runs", "stderr")
        assert stop(process, signal.SIGTERM) == 0
