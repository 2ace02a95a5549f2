"""`calibrate --mounts` on a rosbag2 recording: the still stretches are its arm poses; what is lacking is one line."""

import functools
from pathlib import Path

import numpy as np
import pytest
from called import called
from made_results import alignment_result, floor_result, save
from recorded_robot import SECOND, write_description, write_joints, write_scans

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.geometry.transforms import SIDES, error, inverse
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup

REST = {"wrist_pitch_joint": 0.0, "wrist_roll_joint": 0.0, "gripper_joint": 0.0}
POSES = [
    {"lift_joint": 0.2, "arm_joint": 0.0, "wrist_yaw_joint": -1.1},
    {"lift_joint": 1.0, "arm_joint": 0.45, "wrist_yaw_joint": 1.7},
    {"lift_joint": 1.0, "arm_joint": 0.0, "wrist_yaw_joint": -1.1},
    {"lift_joint": 0.2, "arm_joint": 0.45, "wrist_yaw_joint": 1.7},
]
STILL, MOVING = 10, 3  # scans in a pose, and on the way to the next
RATE = 5  # joint states in the time of a scan
FEW_RAYS = str(Path(__file__).parents[1] / "ros" / "few_rays.yaml")
SETUP = SimulationSetup(
    world="furnished_room", sensor=FEW_RAYS, seed=5,
    lidar_errors={
        "left": PoseError((0.006, -0.005, 0.006), tuple(np.radians([0.6, -0.5, 0.6]))),
        "right": PoseError((-0.006, 0.005, 0.005), tuple(np.radians([-0.6, 0.5, 0.5]))),
    },
)  # fmt: skip


def calibrate(*arguments) -> tuple[int, str]:
    """Calibrate with points of the simulated sensor; return the exit code and what is said on stderr."""
    code, _, said = called("calibrate", *arguments, "--sensor", FEW_RAYS)
    return code, said.strip()


def way():
    """Yield the pose of every scan: still in each of `POSES`, a few on the way between them."""
    for pose, following in zip(POSES, [*POSES[1:], None], strict=True):
        yield from [pose] * STILL
        for step in range(MOVING if following else 0):
            share = (step + 1) / (MOVING + 1)
            yield {name: (1 - share) * value + share * following[name] for name, value in pose.items()}


@functools.cache
def simulated() -> EmbeddedSimulator:
    return EmbeddedSimulator(SETUP)


def record(folder, scans=None, described=True, without=(), stamped=True):
    """Record a robot whose arm goes through `way()`, its encoders noisy, as `ros2 bag record` would."""
    simulator, noise = simulated(), np.random.default_rng(1)
    with RecordingWriter(folder) as writer:
        if described:
            write_description(writer, simulator.nominal_description)
        for tick, pose in enumerate(way() if scans is None else scans):
            simulator.joints.place(REST | pose)
            for part in range(RATE):
                stamp = SECOND + round((tick + part / RATE) * simulator.period * SECOND)
                joints = {name: v for name, v in simulator.joints.joint_positions.items() if name not in without}
                values = np.array(list(joints.values())) + 5e-5 * noise.normal(size=len(joints))
                read = dict(zip(joints, values, strict=True)) | {"joint_without_encoder": np.nan}
                write_joints(writer, read, stamp, stamped)
            write_scans(writer, simulator, tick)
    return folder


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return record(tmp_path_factory.mktemp("recordings") / "poses")


def test_the_arm_poses_of_a_recording_give_the_mounts_and_the_floor_under_them(recording, tmp_path):
    simulator, out = simulated(), tmp_path / "cal.yaml"
    true = {side: simulator.base_from_lidar(side) for side in SIDES}
    nominal = {side: simulator.base_from_lidar(side, nominal=True) for side in SIDES}
    seen = simulator.floor_in_base.moved(nominal["left"] @ inverse(true["left"]))
    alignment = alignment_result(inverse(true["left"]) @ true["right"])
    save(CalibrationFile().with_alignment(alignment, "se4-1").with_floor(floor_result(plane=seen), "se4-1"), out)
    code, said = calibrate(recording, "--mounts", "--out", out)
    assert code == 0 and "arm poses: 4, with 5 to 5 scans of each lidar" in said
    file = CalibrationFile.load(out)
    mounts = stored_mounts(file).base_from_lidar
    for side in SIDES:
        distance, angle = error(true[side], mounts[side])
        assert distance < 2.5e-3 and np.degrees(angle) < 0.2
        before = error(true[side], nominal[side])
        assert distance < 0.3 * before[0] and angle < 0.3 * before[1]
    assert abs(file.floor_plane.offset - simulator.floor_in_base.offset) < 3e-3


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ({"scans": [POSES[0]] * 2}, "the joints never stand still for more than 0.3 s"),
        ({"scans": [POSES[0]] * 4}, "no scans of all lidars while the joints stood still"),
        ({"scans": [POSES[0]] * 8, "without": ["lift_joint"]}, "/joint_states has no lift_joint"),
        ({"scans": [POSES[0]] * 8, "stamped": False}, "stamps on /joint_states are zero"),
        (
            {"scans": [POSES[0]] * 2, "described": False},
            "has no /robot_description; name the robot's description with --model",
        ),
    ],
)
def test_a_recording_without_poses_ends_with_one_line(tmp_path, kind, says):
    record(tmp_path / "bag", **kind)
    code, said = calibrate(tmp_path / "bag", "--mounts", "--out", tmp_path / "cal.yaml")
    assert code == 2 and said.count("\n") == 0 and says in said and "bag" in said
    assert not (tmp_path / "cal.yaml").exists()


def test_a_recording_without_joint_states_says_so(tmp_path):
    with RecordingWriter(tmp_path / "bag") as writer:
        write_scans(writer, simulated(), 0)
    out = ("--out", tmp_path / "cal.yaml")
    code, said = calibrate(tmp_path / "bag", "--mounts", *out, "--model", "stretch4")
    assert code == 2 and said.count("\n") == 0 and "has no topic /joint_states" in said
