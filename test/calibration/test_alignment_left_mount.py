"""The left-extrinsics check of every alignment: from the robot's returns, and without them."""

import numpy as np
import pytest
from recorded_robot import SECOND, write_description, write_joints, write_scans

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.robot import with_left_checked
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.cli import main
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup

EMPTY = CalibrationFile()


def simulated(degrees: float, seed: int = 1) -> EmbeddedSimulator:
    """Return a robot whose left lidar is turned about a slanting axis, and whose right one is off in its own way."""
    left, right = np.radians(degrees) * np.array([0.6, -0.5, 0.6]) / np.sqrt(0.97), np.radians((-0.3, 0.4, 0.2))
    errors = {"left": PoseError((0.001, -0.001, 0.001), tuple(left)),
              "right": PoseError((-0.002, 0.001, 0.001), tuple(right))}  # fmt: skip
    return EmbeddedSimulator(SimulationSetup(sensor="jt128_sparse", seed=seed, lidar_errors=errors))


def aligned(simulator: EmbeddedSimulator, **changes) -> AlignmentResult:
    left, right = (simulator.base_from_lidar(side) for side in ("left", "right"))
    covariance = np.diag([2e-4] * 3 + [5e-5] * 3) ** 2
    return AlignmentResult(inverse(left) @ right, covariance, 0.001, 20, "planes", 0.8, [], **changes)


def checked(simulator: EmbeddedSimulator, result=None, joints=None, description="", file=EMPTY, known=True):
    seen = [{"left": left, "right": right} for left, right in simulator.point_pairs(3)]
    joints = simulator.joints.joint_positions if joints is None else joints
    description = simulator.nominal_description if description == "" else description
    result, sensor = aligned(simulator) if result is None else result, simulator.sensor if known else None
    return with_left_checked(result, seen, description, joints, file, sensor)


def angle_told(warning: str) -> float:
    return float(warning.split(" deg from")[0].split()[-1])


@pytest.mark.parametrize(("degrees", "seed", "known"), [(1.0, 1, False), (0.0, 2, True)])
def test_a_left_lidar_that_is_turned_is_reported_with_its_angle(degrees, seed, known):
    result, unchecked = checked(simulated(degrees, seed), known=known)
    assert not unchecked and ["left lidar" in each for each in result.warnings] == [True] * (degrees > 0.0)
    for warning in result.warnings:
        assert abs(angle_told(warning) - degrees) < 0.55  # the deviation that it says of itself is 0.4 deg


def test_what_is_missing_is_named_and_a_refused_alignment_and_known_mounts_are_not_checked():
    simulator = simulated(1.0)
    good = aligned(simulator)
    for missing, told in (
        ({"joints": {}}, "no lift on /joint_states"), ({"description": None}, "no /robot_description"),
        ({"description": "<robot/>"}, "not checked against returns from the robot: /robot_description: <robot>"),
    ):  # fmt: skip
        result, unchecked = checked(simulator, good, **missing)
        assert result is good and told in unchecked
    assert checked(simulator, aligned(simulator, refusals=["no"]))[0].warnings == []
    assert checked(simulator, file=CalibrationFile(data={"lidar_mounts": {}}))[0].warnings == []


def test_the_joints_of_a_recording_are_used(tmp_path, capsys):
    simulator, folder = simulated(0.5), tmp_path / "recording"
    with RecordingWriter(folder) as writer:
        write_description(writer, simulator.nominal_description)
        write_joints(writer, simulator.joints.joint_positions, SECOND)
        for tick in range(4):
            write_scans(writer, simulator, tick)
    options = ("--only", "alignment", "--method", "published", "--out", f"{folder}.yaml", "--sensor", "jt128_sparse")
    assert main(["calibrate", str(folder), *options]) == 0
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "the left lidar is" in line]
    assert abs(angle_told(warning) - 0.5) < 0.55
