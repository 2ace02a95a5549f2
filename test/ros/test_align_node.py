"""The alignment node, on clouds of a small room that come over DDS."""

import json
import signal

import fake_drivers
import numpy as np
import pytest
import yaml
from node_process import SILENCE, Graph, stop, wait_for_line

from stretch_sim_cal import programs
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.finding import ANOTHER_PLACE_MAY
from stretch_sim_cal.calibration.observations import places_beside
from stretch_sim_cal.geometry.transforms import error
from stretch_sim_cal.harness.processes import own_domain

pytestmark = pytest.mark.graph

SAMPLES = ("--num-samples", "4")


@pytest.fixture(scope="module")
def aligned(tmp_path_factory):
    """A graph whose robot, of older firmware, was aligned with a volatile TF and some empty clouds, and the end."""
    old = ["link_lidar_left", "link_lidar_right"]
    with own_domain() as domain:
        graph = Graph(domain, tmp_path_factory.mktemp("aligned"))
        with graph.drivers(
            frame_ids={"left": old[0], "right": old[1]}, tf=[["base_link", name] for name in old], tf_latched=False,
            empty=["left"], invalid_share=0.2,
        ):  # fmt: skip
            return graph, graph.call("ros_align_dual_lidar", *SAMPLES)


def test_aligns_a_robot_of_older_firmware_with_a_volatile_tf_and_some_empty_clouds(aligned):
    graph, ended = aligned
    assert ended.code == 0, ended.err
    assert "accepted" in ended.out and "standard deviation" in ended.out
    assert "empty: " in ended.err
    file = CalibrationFile.load(graph.calibration_file)
    distance, angle = error(fake_drivers.true_right_to_left(), file.right_to_left)
    assert distance < 0.004 and np.degrees(angle) < 0.08
    assert yaml.safe_load(graph.calibration_file.read_text())["right_to_left_transform"]["robot_id"] == "stretch-test"
    assert "the lidars' joints are not recorded" in ended.err  # this TF knows no head


def test_takes_the_published_parameters_from_ros_arguments_and_prints_json(graph):
    (graph.folder / "parameters.yaml").write_text("/**: {ros__parameters: {num_sample: 3}}")  # perhaps of another node
    with graph.drivers(topics={"left": "/front/left", "right": "/front/right"}, reliable=False, organised=True):
        ended = graph.call(
            "ros_align_dual_lidar", "--json", "--ros-args", "-p", "num_samples:=8", "-p", "method:=published",
            "-p", "left_lidar_topic:=/front/left", "-p", "right_lidar_topic:=/front/right",
            "-p", "max_correspondence_distance:=1", "--params-file", "parameters.yaml",
        )  # fmt: skip
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["alignment"]["num_frames"] == 8
    assert "did you mean 'num_samples'" in ended.err


def test_a_refusal_names_its_reasons_and_leaves_the_old_file_alone(graph):
    graph.calibration_file.parent.mkdir(parents=True)
    graph.calibration_file.write_text("note: mine\n")
    with graph.drivers(one_plane=True):
        ended = graph.call("ros_align_dual_lidar", "--outcome-file", "outcome.json", *SAMPLES)
    assert ended.code == 1, ended.err
    outcome = json.loads((graph.folder / "outcome.json").read_text())
    told = [line.removeprefix("refused: ") for line in ended.err.splitlines() if line.startswith("refused: ")]
    assert told and not outcome["accepted"] and all(found["code"] for found in outcome["refusals"])
    assert ["; ".join(filter(None, (found["sentence"], found["remedy"]))) for found in outcome["refusals"]] == told
    assert graph.calibration_file.read_text() == "note: mine\n"


def test_a_refusal_that_no_further_place_cures_leaves_what_was_seen_before(aligned, graph):
    file = aligned[0].calibration_file
    places = places_beside(file)
    seen, written = places.read_bytes(), file.read_bytes()
    with graph.drivers(elsewhere=True):
        ended = graph.call("ros_align_dual_lidar", "--calibration-file", str(file), *SAMPLES)
    assert ended.code == 1, ended.err
    assert ANOTHER_PLACE_MAY not in ended.err
    assert places.read_bytes() == seen and file.read_bytes() == written


def test_frames_come_from_the_description_where_tf_is_silent_and_a_silent_lidar_is_named(graph):
    poses = [fake_drivers.nominal_pose(side) for side in ("left", "right")]
    with graph.drivers(sides=["left"], tf=[], description=fake_drivers.description(poses)):
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


def test_help_shows_an_example(capsys):
    with pytest.raises(SystemExit) as ended:
        programs.main("ros_align_dual_lidar", ["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "example: ros_align_dual_lidar" in shown and "--num-samples" in shown
