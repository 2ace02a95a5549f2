"""The calibration's picture as a process: what it publishes, and that the RViz files show it."""

import numpy as np
import pytest
from fake_drivers import BASE_HEIGHT, write_calibration
from made_results import true_calibration
from node_process import stop, unseen_in_rviz
from scipy.spatial import cKDTree
from sensor_msgs.msg import PointCloud2

from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.recording.clouds import records_from_message, returns_from_message

pytestmark = pytest.mark.graph


def test_shows_both_lidars_as_one_on_the_calibrated_floor(graph, client):
    write_calibration(graph.calibration_file, BASE_HEIGHT, normal=np.array([0.0, 0.0, 1.0]))
    heard = client.latest(**dict.fromkeys(("lidar_combined", "lidar_floor_inliers", "lidar_off_floor"), PointCloud2))
    with graph.drivers(), graph.running("ros_visualize_calibration", ready="visualizing") as process:
        client.spin_until(lambda: len(heard) == 3)
        parts = {topic: returns_from_message(message)[:, :3] for topic, message in heard.items()}
        combined, floor, off_floor = (parts[f"lidar_{name}"] for name in ("combined", "floor_inliers", "off_floor"))
        assert all(message.header.frame_id == "floor_plane" for message in heard.values())
        client.spin_until(lambda: not unseen_in_rviz("dual_lidar_calibration", client.node))
        assert set(records_from_message(heard["lidar_combined"])["lidar"]) == {0.0, 1.0}
        # Right-lidar points lie where they are only by the calibrated alignment: walls of the room are not doubled.
        ceiling = combined[np.abs(combined[:, 2] - 2.6) < 0.1]
        assert len(ceiling) > 100 and ceiling[:, 2].std() < 0.02
        assert np.abs(floor[:, 2]).max() <= 0.05 < np.abs(off_floor[:, 2]).min() + 1e-6
        assert len(floor) + len(off_floor) == pytest.approx(len(combined), abs=3000)

        name, node = "floor_vertical_distance_threshold", "visualize_calibration"
        assert not client.set(name, -1.0, node).successful and client.set(name, 1, node).successful
        client.spin_until(lambda: returns_from_message(heard["lidar_floor_inliers"])[:, 2].max() > 0.9)
        assert stop(process) == 0
        assert "run ros_broadcast_calibration" in process.stderr.read()


def test_shows_a_third_lidar_where_the_file_has_it(graph, client):
    robot = ("--robot", "three_lidar_amr", "--world", "furnished_room", "--sensor", "os0_32_sparse", "--seed", "4")
    with graph.simulator(*robot, "--real-time-factor", "1") as truth:
        true = load_truth(truth)
        true_calibration(true, true.to_left("mast")).save(graph.calibration_file)
        heard = client.latest(lidar_combined=PointCloud2)
        options = ("--robot", "three_lidar_amr", "--ros-args", "-p", "use_sim_time:=true")
        with graph.running("ros_visualize_calibration", *options, ready="visualizing"):
            client.spin_until(
                lambda: heard and set(records_from_message(heard["lidar_combined"])["lidar"]) == {0.0, 1.0, 2.0}
            )
        message = heard["lidar_combined"]
    lidar, points = records_from_message(message)["lidar"], returns_from_message(message)[:, :3]
    # The walls that the mast's lidar sees are those of the left one.
    high = points[:, 2] > 0.5
    distances = cKDTree(points[(lidar == 0) & high]).query(points[(lidar == 2) & high])[0]
    assert np.median(distances) < 0.1
