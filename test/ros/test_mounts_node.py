"""ros_calibrate_lidar_mounts against the simulated robot, whose left lidar is not where it should be."""

import itertools
import json

from fake_drivers import calibrated_frames, publish_frames
from node_process import FEW_RAYS, SIMULATED_TIME, alone, simulated_robot

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.geometry.planes import footprint_from_base
from stretch_sim_cal.geometry.transforms import error, inverse
from stretch_sim_cal.harness.simulated_dataset import BodyDatasetRecorder
from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.ros import calibration_nodes
from stretch_sim_cal.ros.listening import FrameListener
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

ROBOT = (
    "--world", "empty_hall", "--sensor", FEW_RAYS,
    "--lidar-left-error", "0.01,-0.008,0.006,1,-1,0.5", "--lidar-right-error", "0.005,0,0.01,1,-1,0.5",
)  # fmt: skip
QUICK = ("--sensor", FEW_RAYS, "--plan", "quick", "--frames", "1", "--speed-factor", "10", "--yes")
POSES = itertools.product((0.5, 1.0), (0.05, 0.4), (1.7,), (0.0,), (0.0,))  # those of the plan


def test_both_lidars_are_found_where_they_are_with_a_further_pose_under_a_new_floor(tmp_path, monkeypatch):
    monkeypatch.setattr(FrameListener, "GRACE", 2.0)
    monkeypatch.setattr(calibration_nodes, "BROADCAST_TAKES", 0.5)  # nobody broadcasts the file
    with simulated_robot(tmp_path, *ROBOT) as (graph, client), alone():
        early = graph.call("ros_calibrate_lidar_mounts", str(tmp_path / "early"), *QUICK, *SIMULATED_TIME)
        early.assert_failed(1, "ros_broadcast_calibration")
        assert not (tmp_path / "early").exists()  # nothing moves before the calibration is in TF

        BodyDatasetRecorder(EmbeddedSimulator(graph.simulation.setup)).record(tmp_path / "poses", POSES, frames=1)
        truth, file = load_truth(tmp_path / "truth.json"), tmp_path / "cal.yaml"
        new_floor = inverse(footprint_from_base(truth.floor_in_base_link))
        publish_frames(client.node, calibrated_frames(truth) | {("base_link", "floor_plane"): new_floor})
        further = ("--lift", "1.0", "--arm", "0.0", "--wrist-yaw", "-1.1", "--calibration-file", str(file), "--json")
        mounts = ("ros_calibrate_lidar_mounts", str(tmp_path / "poses"), *QUICK, *further)
        planned = graph.call(*mounts, "--dry-run", *SIMULATED_TIME, code=0)
        assert len(json.loads(planned.out)["planned"]) == 1
        ended = graph.call(*mounts, *SIMULATED_TIME, code=0)
    said = json.loads(ended.out)
    assert said["accepted"] and said["mounts"]["num_samples"] == 5
    assert "TF does not have the mount" in ended.err
    for side, true in truth.base_from_lidar.items():
        distance, angle = error(true, stored_mounts(CalibrationFile.load(file)).base_from_lidar[side])
        assert distance < 3e-3 and angle < 0.005, side
