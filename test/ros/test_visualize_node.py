"""The calibration's picture as a process: what it publishes, and that the RViz files show it."""

import numpy as np
import pytest
from fake_drivers import Drivers, write_calibration
from made_results import true_calibration
from node_process import stop, unseen_in_rviz
from robot_client import robot_client
from scipy.spatial import cKDTree

from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.recording.clouds import records_from_message, returns_from_message

pytestmark = pytest.mark.graph


def listen(context, *topics: str) -> dict:
    """Return a dict that holds the latest cloud of each topic, as it comes."""
    from sensor_msgs.msg import PointCloud2

    heard: dict = {}
    for topic in topics:
        context.node.create_subscription(PointCloud2, topic, lambda m, topic=topic: heard.__setitem__(topic, m), 2)
    return heard


def test_shows_both_lidars_as_one_on_the_calibrated_floor(ros, shared, set_parameter):
    drivers = Drivers()
    write_calibration(shared.calibration_file, drivers.height, normal=np.array([0.0, 0.0, 1.0]))
    topics = ("/lidar_combined", "/lidar_floor_inliers", "/lidar_off_floor")
    heard = listen(ros.context, *topics)
    with shared.drivers(), shared.running("ros_visualize_calibration", ready="visualizing") as process:
        ros.until(lambda: len(heard) == 3)
        combined, floor, off_floor = (returns_from_message(heard[topic])[:, :3] for topic in topics)
        assert all(message.header.frame_id == "floor_plane" for message in heard.values())
        ros.until(lambda: not unseen_in_rviz("dual_lidar_calibration", ros.context.node))
        assert set(records_from_message(heard["/lidar_combined"])["lidar"]) == {0.0, 1.0}
        # Right-lidar points lie where they are only by the calibrated alignment: walls of the room are not doubled.
        ceiling = combined[np.abs(combined[:, 2] - 2.6) < 0.1]
        assert len(ceiling) > 100 and ceiling[:, 2].std() < 0.02
        assert np.abs(floor[:, 2]).max() <= 0.05 < np.abs(off_floor[:, 2]).min() + 1e-6
        assert len(floor) + len(off_floor) == pytest.approx(len(combined), abs=3000)

        threshold = ("visualize_calibration", "floor_vertical_distance_threshold")
        assert not set_parameter(*threshold, -1.0) and set_parameter(*threshold, 1)
        ros.until(lambda: returns_from_message(heard["/lidar_floor_inliers"])[:, 2].max() > 0.9)
        assert stop(process) == 0
        assert "run ros_broadcast_calibration" in process.stderr.read()


def test_shows_a_third_lidar_where_the_file_has_it(graph):
    robot = ("--robot", "three_lidar_amr", "--world", "furnished_room", "--sensor", "os0_32_sparse", "--seed", "4")
    with (
        graph.simulator(*robot, "--real-time-factor", "1") as truth,
        robot_client(graph.domain) as client,
    ):
        true = load_truth(truth)
        true_calibration(true, true.to_left("mast")).save(graph.calibration_file)
        heard = listen(client, "/lidar_combined")
        options = ("--robot", "three_lidar_amr", "--ros-args", "-p", "use_sim_time:=true")
        with graph.running("ros_visualize_calibration", *options, ready="visualizing"):

            def of_each():
                message = heard.get("/lidar_combined")
                return set() if message is None else set(records_from_message(message)["lidar"])

            client.spin_until(lambda: of_each() == {0.0, 1.0, 2.0})
        message = heard["/lidar_combined"]
        lidar, points = records_from_message(message)["lidar"], returns_from_message(message)[:, :3]
    # The walls that the mast's lidar sees are those of the left one.
    high = points[:, 2] > 0.5
    distances = cKDTree(points[(lidar == 0) & high]).query(points[(lidar == 2) & high])[0]
    assert np.median(distances) < 0.1
