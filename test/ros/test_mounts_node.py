"""ros_calibrate_lidar_mounts against the simulated robot, whose left lidar is not where it should be."""

import json

import numpy as np
import pytest
from fake_drivers import calibrated_frames, publish_frames
from node_process import FEW_RAYS, SIMULATED_TIME, alone, simulated_robot

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.calibration.mounts.result import total_deviations
from stretch_sim_cal.geometry.planes import footprint_from_base
from stretch_sim_cal.geometry.transforms import error, inverse
from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.ros import calibration_nodes
from stretch_sim_cal.ros.listening import FrameListener

ROBOT = (
    "--world", "empty_hall", "--sensor", FEW_RAYS,
    "--lidar-left-error", "0.01,-0.008,0.006,1,-1,0.5", "--lidar-right-error", "0.005,0,0.01,1,-1,0.5",
)  # fmt: skip
QUICK = ("--sensor", FEW_RAYS, "--plan", "quick", "--frames", "1", "--speed-factor", "10", "--yes")


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    """A graph with a simulated robot in it, and a client beside it."""
    with simulated_robot(tmp_path_factory.mktemp("mounts"), *ROBOT) as robot:
        yield robot


def test_nothing_moves_before_the_calibration_is_in_tf(robot, monkeypatch):
    monkeypatch.setattr(FrameListener, "GRACE", 2.0)
    graph, _ = robot
    ended = graph.call("ros_calibrate_lidar_mounts", str(graph.folder / "early"), *QUICK, *SIMULATED_TIME)
    ended.assert_failed(1, "ros_broadcast_calibration")
    assert not (graph.folder / "early").exists()


def calibrate(robot, frames, *arguments):
    """Run the node into the folder `poses`, with frames in TF as the broadcaster would have them."""
    graph, client = robot
    publisher, out = publish_frames(client.node, frames), str(graph.folder / "cal.yaml")
    arguments = (*QUICK, *arguments, "--calibration-file", out, "--json", *SIMULATED_TIME)
    with alone():
        ended = graph.call("ros_calibrate_lidar_mounts", str(graph.folder / "poses"), *arguments, code=0)
    client.node.destroy_publisher(publisher)
    return ended, CalibrationFile.load(out)


def test_the_left_lidar_is_found_where_it_is_and_a_further_pose_is_added_under_the_new_floor(robot, monkeypatch):
    monkeypatch.setattr(calibration_nodes, "BROADCAST_TAKES", 0.5)  # nobody broadcasts the file
    truth = load_truth(robot[0].folder / "truth.json")
    frames = calibrated_frames(truth)
    ended, file = calibrate(robot, frames)
    assert json.loads(ended.out)["accepted"] and "TF does not have the mount" in ended.err
    mounts = stored_mounts(file)
    for side, true in truth.base_from_lidar.items():
        distance, angle = error(true, mounts.base_from_lidar[side])
        assert distance < 3e-3 and angle < 0.005, side
    frames |= {
        ("base_link", "floor_plane"): inverse(footprint_from_base(truth.floor_in_base_link)),
        ("base_link", "lidar_left_calibrated"): mounts.base_from_lidar["left"],
    }
    ended, _ = calibrate(robot, frames, "--lift", "1.0", "--arm", "0.0", "--wrist-yaw", "-1.1")
    numbers = json.loads(ended.out)["mounts"]
    assert numbers["num_samples"] == 5
    before = total_deviations(mounts.covariance[:6, :6], mounts.base_from_lidar["left"])
    assert numbers["left"]["standard_deviation_deg"] < np.degrees(before[1])
