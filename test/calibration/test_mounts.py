"""Where the lidars are on the robot, found from simulated returns of its own body, whose truth is known."""

import dataclasses
import json

import numpy as np
import pytest

from stretch_sim_cal import cli
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.findings import mount_refusals
from stretch_sim_cal.calibration.mounts import robot as mounted_robot
from stretch_sim_cal.calibration.mounts.file import each_mount, stored_mounts, with_mounts
from stretch_sim_cal.calibration.mounts.method import calibrate_mounts
from stretch_sim_cal.calibration.mounts.rays import PosedSample
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, mount_joints
from stretch_sim_cal.calibration.mounts.system import CloudReader
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import SIDES, error, from_xyz_rpy, inverse, log
from stretch_sim_cal.recording.dataset import DatasetWriter
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.sensor.points import are_returns, coordinates
from stretch_sim_cal.sensor.sensor import Driver, NoiseGrowth, load_sensor
from stretch_sim_cal.sensor.unit import INCIDENCE
from stretch_sim_cal.sensor.unit_file import values_from_mapping
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup
from stretch_sim_cal.simulation.true_robot import PayloadBox

POSES = [
    {"lift_joint": 1.0, "arm_joint": 0.45, "wrist_yaw_joint": 1.7},
    {"lift_joint": 0.2, "arm_joint": 0.0, "wrist_yaw_joint": -1.1},
    {"lift_joint": 1.0, "arm_joint": 0.0, "wrist_yaw_joint": -1.1},
    {"lift_joint": 0.2, "arm_joint": 0.45, "wrist_yaw_joint": 1.7},
]
FURTHER = [
    {"lift_joint": 1.0, "arm_joint": 0.0, "wrist_yaw_joint": 1.7},
    {"lift_joint": 1.0, "arm_joint": 0.45, "wrist_yaw_joint": -1.1},
    {"lift_joint": 0.2, "arm_joint": 0.45, "wrist_yaw_joint": -1.1},
    {"lift_joint": 0.2, "arm_joint": 0.0, "wrist_yaw_joint": 1.7},
]
REST = {"wrist_pitch_joint": 0.0, "wrist_roll_joint": 0.0, "gripper_joint": 0.0}
SETUP = SimulationSetup(
    sensor="jt128_sparse", seed=5,
    lidar_left_error=PoseError((0.012, -0.010, 0.012), tuple(np.radians([1.2, -1.0, 1.2]))),
    lidar_right_error=PoseError((-0.012, 0.010, 0.010), tuple(np.radians([-1.2, 1.0, 1.0]))),
)  # fmt: skip


def mount_settings(**settings):
    """Return the settings for the ideal sensor that these tests simulate."""
    return mounted_robot.mount_settings(sensor=load_sensor("jt128_sparse"), **settings)


@pytest.fixture(scope="module")
def robot():
    return MountedRobot(parse_urdf(EmbeddedSimulator(SETUP).nominal_description))


def recorded(robot, setup=SETUP, lift_offset=0.0, frames=3, poses=POSES, lift_scale=1.0, play=0.0):
    """Return the simulator after a sweep, and its samples; the lift is `lift_offset` higher than it says and moves
    `lift_scale` times as far, and in every pose all joints are off by `play` (m, rad) or minus that."""
    random = np.random.default_rng(5)
    simulator = EmbeddedSimulator(setup)
    samples = []
    for index, pose in enumerate(poses):
        true = REST | {joint: max(0.0, value + play * random.choice([-1, 1])) if joint == "arm_joint" else
                       value + play * random.choice([-1, 1]) for joint, value in pose.items()}  # fmt: skip
        simulator.joints.place(true | {"lift_joint": lift_scale * true["lift_joint"] + lift_offset})
        pairs = list(simulator.point_pairs(frames, first_tick=frames * index))
        left, right = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
        joints = stretch_profile().joint_positions(robot.model, REST | pose)
        samples.append(
            robot.sample(
                f"pose {index}", joints, {"left": left, "right": right}, tuple(stretch_profile().offset_joints)
            )
        )
    return simulator, samples


@pytest.fixture(scope="module")
def sweep(robot):
    return recorded(robot)


@pytest.fixture(scope="module")
def result(robot, sweep):
    return calibrate_mounts(robot.surfaces, sweep[1], robot.nominal, settings=mount_settings())


def test_mounts_that_are_two_degrees_off_are_found(sweep, result):
    for side in SIDES:
        distance, angle = error(sweep[0].base_from_lidar(side), result.base_from_lidar[side])
        assert distance < 1.5e-3 and np.degrees(angle) < 0.15
    assert result.accepted and not result.warnings


def test_the_covariance_covers_the_error_and_is_not_idle(sweep, result):
    for side in SIDES:
        assert nees(sweep[0], result, side) < 17.0  # one in a hundred is larger
        position, angle = result.spread_of(side)
        assert position < 3e-3 and np.degrees(angle) < 0.25  # what may be wrong with the model, 1 mm and 0.1 deg a link


def test_the_lidars_agree_with_an_alignment_that_is_known(robot, sweep):
    truth = inverse(sweep[0].base_from_lidar("left")) @ sweep[0].base_from_lidar("right")
    covariance = np.diag([1e-4**2] * 3 + [np.radians(0.005) ** 2] * 3)
    model = CloudReader(None, [sample.clouds[side] for sample in sweep[1] for side in SIDES]).model
    # It knows the lidars' errors, too: that they have none, to 1 mm of offset.
    unbiased = (np.zeros(model.size), np.zeros(model.size))
    information = np.zeros((6 + 2 * model.size,) * 2)
    information[:6, :6] = np.linalg.inv(covariance)
    information[[6, 6 + model.size], [6, 6 + model.size]] = 1e-3**-2
    alignment = Observations(
        (truth,), unbiased, information, np.zeros(len(information)), (model, model), (truth,), covariance, unbiased
    )
    tied = calibrate_mounts(robot.surfaces, sweep[1], robot.nominal, alignment, mount_settings())
    distance, angle = error(truth, inverse(tied.base_from_lidar["left"]) @ tied.base_from_lidar["right"])
    assert distance < 3e-4 and np.degrees(angle) < 0.02


def test_a_third_lidar_that_sees_nothing_of_the_robot_is_where_the_others_and_the_alignment_have_it(robot, sweep):
    simulator, samples = sweep
    true = {side: simulator.base_from_lidar(side) for side in SIDES}
    true["mast"] = true["left"] @ from_xyz_rpy((-0.1, 0.2, 0.3), (0.0, 0.1, 2.0))
    nominal = robot.nominal | {"mast": true["mast"] @ from_xyz_rpy((0.01, 0.0, -0.01), (0.01, 0.0, 0.02))}
    far = np.array([[5.0, 0.0, 0.0], [0.0, 5.0, 0.1]])
    seen = [dataclasses.replace(sample, clouds=sample.clouds | {"mast": far}) for sample in samples[:2]]
    to_left = tuple(inverse(true["left"]) @ true[name] for name in ("right", "mast"))
    covariance = np.diag(([1e-4**2] * 3 + [np.radians(0.005) ** 2] * 3) * 2)
    alignment = Observations.of_known_poses(to_left, covariance, tuple(nominal))
    found = calibrate_mounts(robot.surfaces, seen, nominal, alignment, mount_settings())
    assert found.accepted and list(found.base_from_lidar) == list(nominal) and found.covariance.shape == (18, 18)
    off = np.concatenate([log(true[name] @ inverse(pose)) for name, pose in found.base_from_lidar.items()])
    assert off @ np.linalg.solve(found.covariance, off) < 42.3  # one in a thousand is larger
    distance, angle = error(to_left[1], inverse(found.base_from_lidar["left"]) @ found.base_from_lidar["mast"])
    assert distance < 3e-4 and np.degrees(angle) < 0.02
    counts = {"left": 9000, "right": 9000, "mast": 0}
    settings = mount_settings()
    alone = mount_refusals(counts, found.directions, found.base_from_lidar, nominal, 500, settings, tied=False)
    assert [str(said) for said in alone] and "mast lidar: only 0 returns" in str(alone[0])
    file = with_mounts(CalibrationFile(), found, "robot", nominal["left"])
    stored = stored_mounts(CalibrationFile.from_mapping(file.data))
    assert list(stored.base_from_lidar) == list(nominal) and np.allclose(stored.covariance, found.covariance)
    pose, own = each_mount(file, stored)["mast"]
    assert np.allclose(pose, found.base_from_lidar["mast"]) and np.allclose(own, found.covariance_of("mast"))
    with pytest.raises(InputError, match="the alignment is of left, right, not of left, right, mast"):
        calibrate_mounts(robot.surfaces, seen, nominal, alignment.of_first(2), mount_settings())


@pytest.fixture(scope="module")
def lifted(robot):
    return recorded(robot, lift_offset=0.004)


def nees(simulator, found, side):
    """Return the squared error in units of the covariance: 6 on average."""
    twist = log(simulator.base_from_lidar(side) @ inverse(found.base_from_lidar[side]))
    return twist @ np.linalg.solve(found.covariance_of(side), twist)


def test_a_lift_zero_that_is_off_is_found_and_does_not_move_the_mounts(robot, lifted):
    simulator, samples = lifted
    found = calibrate_mounts(robot.surfaces, samples, robot.nominal, settings=mount_settings(with_joint_offsets=True))
    lift = next(offset for offset in found.joint_offsets if offset.joint == "lift_joint")
    assert lift.value == pytest.approx(0.004, abs=1.5e-3) and lift.separable
    assert error(simulator.base_from_lidar("left"), found.base_from_lidar["left"])[0] < 2e-3


def test_a_lift_zero_that_nobody_asked_for_is_reported_and_covered(robot, lifted):
    simulator, samples = lifted
    found = calibrate_mounts(robot.surfaces, samples, robot.nominal, settings=mount_settings())
    assert any("lift_joint zero offset: " in warning for warning in found.warnings)
    assert max(nees(simulator, found, side) for side in SIDES) < 17.0  # one in a hundred is larger


def test_a_lift_that_moves_further_than_it_says_is_named_and_does_not_move_the_mounts(robot):
    simulator, samples = recorded(robot, lift_scale=1.006)
    found = calibrate_mounts(robot.surfaces, samples, robot.nominal, settings=mount_settings())
    assert [warning.code for warning in found.warnings] == ["joint_scale_off"]
    assert found.warnings[0].startswith("lift_joint moves 0.") and "further than it reports" in found.warnings[0]
    for side in SIDES:
        assert nees(simulator, found, side) < 17.0
        assert error(simulator.base_from_lidar(side), found.base_from_lidar[side])[0] < 3e-3


def test_play_in_the_joints_is_told_from_errors_of_the_links(robot):
    simulator, samples = recorded(robot, play=0.005)
    found = calibrate_mounts(robot.surfaces, samples, robot.nominal, settings=mount_settings())
    for side in SIDES:
        assert nees(simulator, found, side) < 17.0
        assert found.spread_of(side)[0] < 1.3e-3  # 2.5 mm if the joints were where they say
        assert error(simulator.base_from_lidar(side), found.base_from_lidar[side])[0] < 1.5e-3


def test_an_arm_with_a_turned_joint_origin_is_named_and_hardly_moves_the_mounts(robot):
    askew = PoseError((0.0012, -0.0012, 0.0011), tuple(np.radians([0.17, 0.17, -0.18])))  # 2 mm, 0.3 deg
    built = dataclasses.replace(SETUP, joint_errors={"arm_l0_joint": askew})
    simulator, samples = recorded(robot, built, frames=5, poses=POSES + FURTHER)
    found = calibrate_mounts(robot.surfaces, samples, robot.nominal, settings=mount_settings())
    assert [warning.split(",")[0] for warning in found.warnings] == ["arm_l0_link"]
    for side in SIDES:
        distance, angle = error(simulator.base_from_lidar(side), found.base_from_lidar[side])
        assert distance < 1.5e-3 and np.degrees(angle) < 0.15
        assert nees(simulator, found, side) < 17.0


def test_a_payload_is_named_and_left_out(robot):
    box = PayloadBox("base_link", (0.16, 0.20, 0.12), (0.0, 0.05, 0.28))
    simulator, samples = recorded(robot, dataclasses.replace(SETUP, payload=(box,)))
    found = calibrate_mounts(robot.surfaces, samples, robot.nominal, settings=mount_settings())
    assert any("base_link" in warning and "payload" in warning for warning in found.warnings)
    assert error(simulator.base_from_lidar("left"), found.base_from_lidar["left"])[0] < 3e-3


def test_too_few_returns_are_refused_and_not_written(robot, sweep, tmp_path):
    poor = [
        dataclasses.replace(sample, clouds=sample.clouds | {"left": sample.clouds["left"][::80]}) for sample in sweep[1]
    ]
    found = calibrate_mounts(robot.surfaces, poor, robot.nominal, settings=mount_settings())
    assert any("left lidar: only" in reason for reason in found.refusals)
    with pytest.raises(Refused, match="left lidar"):
        with_mounts(CalibrationFile.load_or_empty(tmp_path / "cal.yaml"), found, "robot", robot.nominal["left"])


def test_samples_that_are_no_data_are_named(robot, sweep):
    with pytest.raises(InputError, match="no samples"):
        calibrate_mounts(robot.surfaces, [], robot.nominal)
    torn = dataclasses.replace(sweep[1][0], clouds=sweep[1][0].clouds | {"right": np.empty((0, 3))})
    with pytest.raises(InputError, match="pose 0: holds no right cloud"):
        calibrate_mounts(robot.surfaces, [torn], robot.nominal)


def test_the_entry_in_the_calibration_file_is_read_back_and_leaves_the_others(result, robot, tmp_path):
    path = tmp_path / "cal.yaml"
    path.write_text("vendor_entry: {data: 3}\n", encoding="utf-8")
    with_mounts(CalibrationFile.load(path), result, "robot", robot.nominal["left"]).save(path)
    again = CalibrationFile.load(path)
    assert again.data["vendor_entry"] == {"data": 3} and again.right_to_left is None
    stored = stored_mounts(again)
    np.testing.assert_allclose(stored.base_from_lidar["left"], result.base_from_lidar["left"], atol=1e-12)
    np.testing.assert_allclose(stored.covariance, result.covariance)
    joints = {joint.name: joint for joint in mount_joints(again, robot.model)}
    assert joints["lidar_left_joint"].parent == "head_link"
    base_from_head = robot.nominal["left"] @ inverse(robot.model.joints["lidar_left_joint"].parent_from_joint)
    placed = base_from_head @ joints["lidar_left_joint"].parent_from_child
    np.testing.assert_allclose(placed, result.base_from_lidar["left"], atol=1e-9)


def test_a_torn_entry_is_named():
    with pytest.raises(InputError, match="lidar_mounts: needs data"):
        stored_mounts(CalibrationFile.from_mapping({"lidar_mounts": {"data": {}}}))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"convention": "p_lidar = data.SIDE * p_base_link"}, "lidar_mounts: unknown convention"),
        ({"covariance": np.zeros((12, 12)).tolist()}, "lidar_mounts: covariance: its diagonal is not positive"),
        ({"covariance": np.diag([1e-6] * 11 + [-1e-6]).tolist()}, "lidar_mounts: covariance: its diagonal"),
    ],
)
def test_mounts_that_mean_something_else_or_would_be_exact_are_refused(change, says):
    entry = {"data": {side: np.eye(4).tolist() for side in SIDES}, "covariance": (1e-6 * np.eye(12)).tolist()}
    assert stored_mounts(CalibrationFile.from_mapping({"lidar_mounts": entry})) is not None
    with pytest.raises(InputError, match=says):
        stored_mounts(CalibrationFile.from_mapping({"lidar_mounts": entry | change}))


def test_the_command_finds_them_in_a_folder_of_poses(robot, sweep, tmp_path, capsys):
    simulator, samples = sweep
    writer = DatasetWriter(tmp_path / "poses", simulator.nominal_description)
    for pose, sample in zip(POSES, samples, strict=True):
        values = {
            name.removesuffix("_joint"): value for name, value in (REST | pose).items() if name != "gripper_joint"
        }
        joints = stretch_profile().joint_positions(robot.model, REST | pose)
        writer.write_sample(values, values, sample.clouds["left"][:100], sample.clouds, joints)
    out = tmp_path / "cal.yaml"
    code = cli.main(["calibrate", str(tmp_path / "poses"), "--mounts", "--out", str(out), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert code == 0 and printed["mounts"]["accepted"]
    assert (
        error(simulator.base_from_lidar("right"), stored_mounts(CalibrationFile.load(out)).base_from_lidar["right"])[0]
        < 1.5e-3
    )


@pytest.mark.parametrize("corrects", [False, True])
def test_rays_begin_at_the_optical_centre(robot, corrects):
    """Without noise, and with its own errors known, a real lidar's returns lie on the model, also at
    grazing incidence and whether the driver corrects the optical centre or not: rays from the frame's
    origin would be millimetres off there."""
    plain = load_sensor("jt128_sparse_real").with_driver(Driver(corrects, corrects))
    sensor = dataclasses.replace(
        plain, range_noise=1e-6, noise_growth=NoiseGrowth(0.0, 0.0, 0.0), quantisation=0.0, beam_divergence=0.0,
        range_drift=0.0, dual_return=False,
    )  # fmt: skip
    simulator = EmbeddedSimulator(dataclasses.replace(SETUP, sensor="jt128_sparse_real", seed=12), sensor)
    simulator.joints.place(REST | POSES[0])
    scans = [simulator.scan(side, 0) for side in SIDES]
    columns = ("x", "y", "z", "ring", "intensity")
    clouds = [np.column_stack([scan[are_returns(coordinates(scan))][name] for name in columns]) for scan in scans]
    sample = robot.sample(
        "pose", stretch_profile().joint_positions(robot.model, REST | POSES[0]), dict(zip(SIDES, clouds, strict=True))
    )
    reader = CloudReader(sensor, clouds)
    truth = simulator.ground_truth()["units"]
    model = PosedSample(sample, robot.surfaces, {})
    for side in SIDES:
        pose = simulator.base_from_lidar(side)
        values = values_from_mapping(reader.model, truth[side]["values"], side)
        rays = reader.rays(reader.returns(model.around(side, pose)), values)
        matches = model.match(rays, pose, 0.06, 0.15).without_incidence(values[INCIDENCE])
        matches = matches.chosen(model.inside(matches, np.radians(0.4), 0.004))
        assert np.count_nonzero(matches.incidence < 0.35) > 50
        assert np.quantile(np.abs(matches.along), 0.99) < 1.5e-4
