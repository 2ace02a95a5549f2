"""Lidar extrinsics in base_link, from simulated returns of the robot whose truth is known."""

import dataclasses

import numpy as np
import pytest
from alignment_scenes import further_long
from comparing import chi_square
from edited_clouds import too_long_near

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts import robot as mounted_robot
from stretch_sim_cal.calibration.mounts.file import each_mount, stored_mounts, with_mounts
from stretch_sim_cal.calibration.mounts.findings import mount_refusals
from stretch_sim_cal.calibration.mounts.method import calibrate_mounts
from stretch_sim_cal.calibration.mounts.residuals import CloudReader, PosedSample
from stretch_sim_cal.calibration.mounts.robot import MountedRobot
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import SIDES, error, from_xyz_rpy, inverse, log
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.sensor.points import return_columns, returns_of
from stretch_sim_cal.sensor.sensor import Driver, NoiseGrowth, load_sensor
from stretch_sim_cal.sensor.unit import INCIDENCE
from stretch_sim_cal.sensor.unit_file import values_from_mapping
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import PayloadBox, PoseError, SimulationSetup

POSES = [
    dict(zip(("lift_joint", "arm_joint", "wrist_yaw_joint"), values, strict=True))
    for values in (
        (1.0, 0.45, 1.7), (0.2, 0.0, -1.1), (1.0, 0.0, -1.1), (0.2, 0.45, 1.7), (1.0, 0.0, 1.7), (1.0, 0.45, -1.1),
        (0.2, 0.45, -1.1), (0.2, 0.0, 1.7),
    )
]  # fmt: skip

REST = {"wrist_pitch_joint": 0.0, "wrist_roll_joint": 0.0, "gripper_joint": 0.0}
SETUP = SimulationSetup(
    sensor="jt128_sparse", seed=5,
    lidar_errors={
        "left": PoseError((0.012, -0.010, 0.012), tuple(np.radians([1.2, -1.0, 1.2]))),
        "right": PoseError((-0.012, 0.010, 0.010), tuple(np.radians([-1.2, 1.0, 1.0]))),
    },
)  # fmt: skip


def mounts_of(robot, samples, alignment=None, nominal=None, **settings):
    """Return the extrinsics with the settings for the ideal sensor that these tests simulate."""
    settings = mounted_robot.mount_settings(sensor=load_sensor("jt128_sparse"), **settings)
    return calibrate_mounts(robot.surfaces, samples, nominal or robot.nominal, alignment, settings)


def assert_covered(simulator, found, metres, degrees=np.inf):
    for side in SIDES:
        true, pose = simulator.base_from_lidar(side), found.base_from_lidar[side]
        assert chi_square(true, pose, found.covariance_of(side)) < 17.0  # one in a hundred is larger
        distance, angle = error(true, pose)
        assert distance < metres and np.degrees(angle) < degrees


@pytest.fixture(scope="module")
def robot():
    return MountedRobot(parse_urdf(EmbeddedSimulator(SETUP).nominal_description))


def recorded(robot, setup=SETUP, lift_offset=0.0, frames=1, poses=POSES[:2], lift_scale=1.0, play=0.0):
    """Return the simulator after a sweep, and its samples; the lift is `lift_offset` higher than it says and moves
    `lift_scale` times as far, and in every pose all joints are off by `play` (m, rad) or minus that."""
    random = np.random.default_rng(5)
    simulator = EmbeddedSimulator(setup)
    samples = []
    for index, pose in enumerate(poses):
        true = REST | {joint: value + play * random.choice([-1, 1]) for joint, value in pose.items()}
        true["arm_joint"] = max(0.0, true["arm_joint"])
        simulator.joints.place(true | {"lift_joint": lift_scale * true["lift_joint"] + lift_offset})
        pairs = list(simulator.point_pairs(frames, first_tick=frames * index))
        left, right = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
        joints = stretch_profile().joint_positions(robot.model, REST | pose)
        clouds, offsets = {"left": left, "right": right}, tuple(stretch_profile().offset_joints)
        samples.append(robot.sample(f"pose {index}", joints, clouds, offsets))
    return simulator, samples


@pytest.fixture(scope="module")
def sweep(robot):
    return recorded(robot, frames=3)


@pytest.fixture(scope="module")
def result(robot, sweep):
    return mounts_of(robot, sweep[1])


def test_mounts_that_are_two_degrees_off_are_found_with_their_covariance(sweep, result):
    assert result.accepted and not result.warnings
    assert_covered(sweep[0], result, 1.5e-3, 0.15)
    for side in SIDES:
        position, angle = result.total_deviations_of(side)
        assert position < 3e-3 and np.degrees(angle) < 0.25  # what may be wrong with the model, 1 mm and 0.1 deg a link


def test_a_third_lidar_that_sees_nothing_of_the_robot_is_where_the_others_and_the_alignment_have_it(robot, sweep):
    simulator, samples = sweep
    true = {side: simulator.base_from_lidar(side) for side in SIDES}
    true["mast"] = true["left"] @ from_xyz_rpy((-0.1, 0.2, 0.3), (0.0, 0.1, 2.0))
    nominal = robot.nominal | {"mast": true["mast"] @ from_xyz_rpy((0.01, 0.0, -0.01), (0.01, 0.0, 0.02))}
    far = np.array([[5.0, 0.0, 0.0], [0.0, 5.0, 0.1]])
    seen = [dataclasses.replace(sample, clouds=sample.clouds | {"mast": far}) for sample in samples[:2]]
    to_left = tuple(inverse(true["left"]) @ true[name] for name in ("right", "mast"))
    covariance = np.diag(([1e-4**2] * 3 + [np.radians(0.005) ** 2] * 3) * 2)
    # It knows the lidars' errors, too: that they have none, to 1 mm of offset.
    model = CloudReader(None, [sample.clouds[side] for sample in seen for side in SIDES]).model
    unbiased, information = (np.zeros(model.size),) * 3, np.zeros((12 + 3 * model.size,) * 2)
    information[:12, :12] = np.linalg.inv(covariance)
    offsets = 12 + model.size * np.arange(3)
    information[offsets, offsets] = 1e-3**-2
    alignment = Observations(
        to_left, unbiased, information, np.zeros(len(information)), (model,) * 3, to_left, covariance, unbiased,
        names=tuple(nominal),
    )  # fmt: skip
    found = mounts_of(robot, seen, alignment, nominal)
    assert found.accepted and list(found.base_from_lidar) == list(nominal) and found.covariance.shape == (18, 18)
    off = np.concatenate([log(true[name] @ inverse(pose)) for name, pose in found.base_from_lidar.items()])
    assert off @ np.linalg.solve(found.covariance, off) < 42.3  # one in a thousand is larger
    for name, known in zip(("right", "mast"), to_left, strict=True):
        distance, angle = error(known, inverse(found.base_from_lidar["left"]) @ found.base_from_lidar[name])
        assert distance < 3e-4 and np.degrees(angle) < 0.02
    counts = {"left": 9000, "right": 9000, "mast": 0}
    alone = mount_refusals(counts, found.directions, found.base_from_lidar, nominal, tied=False)
    assert [str(said) for said in alone] and "mast lidar: only 0 returns" in str(alone[0])
    file = with_mounts(CalibrationFile(), found, "robot", nominal["left"])
    stored = stored_mounts(CalibrationFile.from_mapping(file.data))
    assert list(stored.base_from_lidar) == list(nominal) and np.allclose(stored.covariance, found.covariance)
    pose, own = each_mount(file, stored)["mast"]
    assert np.allclose(pose, found.base_from_lidar["mast"]) and np.allclose(own, found.covariance_of("mast"))
    with pytest.raises(InputError, match="the alignment is of left, right, not of left, right, mast"):
        mounts_of(robot, seen, alignment.of_first(2), nominal)


@pytest.mark.parametrize("asked", further_long(False, True))
def test_a_lift_zero_that_is_off_is_reported_and_estimated_if_asked_for(robot, asked):
    simulator, samples = recorded(robot, lift_offset=0.004, frames=3)
    found = mounts_of(robot, samples, with_joint_offsets=asked)
    if not asked:
        assert any(warning.code == "joint_zero_off" and "lift_joint" in warning for warning in found.warnings)
        return assert_covered(simulator, found, np.inf)
    lift = next(offset for offset in found.joint_offsets if offset.joint == "lift_joint")
    assert lift.value == pytest.approx(0.004, abs=1.5e-3) and lift.separable
    assert error(simulator.base_from_lidar("left"), found.base_from_lidar["left"])[0] < 2e-3


TURNED_ARM = PoseError((0.0012, -0.0012, 0.0011), tuple(np.radians([0.17, 0.17, -0.18])))  # 2 mm, 0.3 deg
BOX = PayloadBox("base_link", (0.16, 0.20, 0.12), (0.0, 0.05, 0.28))


@pytest.mark.parametrize(
    "robot_errors, named, bound",
    [
        ({"setup": dataclasses.replace(SETUP, payload=(BOX,))}, ("payload", "base_link"), (3e-3,)),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (
            ({"lift_scale": 1.006, "frames": 3}, ("joint_scale_off", "lift_joint moves"), (3e-3,)),
            ({"play": 0.005, "frames": 3, "poses": POSES[:4]}, None, (1.5e-3,)),
            ({"setup": dataclasses.replace(SETUP, joint_errors={"arm_l0_joint": TURNED_ARM}), "frames": 5,
              "poses": POSES}, ("link_misplaced", "arm_l0_link"), (1.5e-3, 0.15)),
        )),
    ],
    ids=["payload", "scale", "play", "joint origin"],
)  # fmt: skip
def test_an_error_of_the_robot_is_named_and_hardly_moves_the_mounts(robot, robot_errors, named, bound):
    simulator, samples = recorded(robot, **robot_errors)
    found = mounts_of(robot, samples)
    assert_covered(simulator, found, *bound)
    if named is None:  # 2.5 mm if the joints were where they report to be
        assert max(found.total_deviations_of(side)[0] for side in SIDES) < 1.3e-3
    else:
        (warning,) = found.warnings
        assert warning.code == named[0] and named[1] in warning


@pytest.mark.long
@pytest.mark.parametrize(("by", "length"), [(-0.04, 0.3), (0.02, 0.5)])
def test_near_ranges_that_err_as_no_unit_does_are_named_and_hardly_move_the_mounts(robot, by, length):
    """As data sheets allow it: several centimetres at a few decimetres."""
    simulator, samples = recorded(robot, poses=POSES[:4])
    for sample in samples:
        for cloud in sample.clouds.values():
            ranges = np.maximum(np.linalg.norm(cloud[:, :3], axis=1), 1e-6)[:, None]
            cloud[:, :3] *= too_long_near(ranges, by, length)
    found = mounts_of(robot, samples)
    assert_covered(simulator, found, 3e-3, 0.2)
    assert max(found.total_deviations_of(side)[0] for side in SIDES) < 3e-3
    told = [str(warning) for warning in found.warnings if warning.code == "near_ranges_off"]
    assert len(told) == len(found.warnings) and all(f"too {'long' if by > 0 else 'short'} at" in each for each in told)
    assert told or by > 0


def test_a_sheet_on_the_base_is_refused_as_what_contradicts_the_rest(robot):
    """Zeros and scales of the joints explain it: 40 mm off with 5 said, before the estimate was tried without it."""
    sheet = PayloadBox("base_link", (0.4, 0.38, 0.02), (0.0, 0.0, 0.2))
    _, samples = recorded(robot, dataclasses.replace(SETUP, payload=(sheet,)), poses=POSES[:4])
    found = mounts_of(robot, samples)
    named, *others = found.refusals
    assert named.code == "one_link" and "base_link contradicts the rest" in named
    assert {each.code for each in others} == {"unobserved"}


def test_joint_states_of_another_pose_are_refused(robot):
    _, samples = recorded(robot, poses=POSES[:4])
    late = [dataclasses.replace(one, clouds=after.clouds) for one, after in zip(samples, samples[1:], strict=False)]
    refusal = mounts_of(robot, late).refusals[0]
    assert refusal.code == "robot_elsewhere"
    assert "pose 0" in refusal and "in another pose than its joint states" in refusal


def test_too_few_returns_are_refused_and_not_written_and_no_samples_named(robot, sweep, tmp_path):
    sample = sweep[1][0]
    clouds = {"left": sample.clouds["left"][::80], "right": sample.clouds["right"][::3]}
    found = mounts_of(robot, [dataclasses.replace(sample, clouds=clouds)])
    assert any("left lidar: only" in reason for reason in found.refusals)
    with pytest.raises(Refused, match="left lidar"):
        with_mounts(CalibrationFile.load_or_empty(tmp_path / "cal.yaml"), found, "robot", robot.nominal["left"])
    with pytest.raises(InputError, match="no samples"):
        calibrate_mounts(robot.surfaces, [], robot.nominal)
    torn = dataclasses.replace(sample, clouds=sample.clouds | {"right": np.empty((0, 3))})
    with pytest.raises(InputError, match="pose 0: has no right cloud"):
        calibrate_mounts(robot.surfaces, [torn], robot.nominal)


@pytest.mark.parametrize(("change", "says"), [
    ({"data": {}}, "lidar_mounts: needs data"),
    ({"convention": "p_lidar = data.SIDE * p_base_link"}, "lidar_mounts: unknown convention"),
    ({"covariance": np.zeros((12, 12)).tolist()}, "lidar_mounts: covariance: its diagonal is not positive"),
    ({"covariance": np.diag([1e-6] * 11 + [-1e-6]).tolist()}, "lidar_mounts: covariance: its diagonal"),
])  # fmt: skip
def test_mounts_that_are_torn_mean_something_else_or_would_be_exact_are_refused(change, says):
    entry = {"data": {side: np.eye(4).tolist() for side in SIDES}, "covariance": (1e-6 * np.eye(12)).tolist()}
    assert stored_mounts(CalibrationFile.from_mapping({"lidar_mounts": entry})) is not None
    with pytest.raises(InputError, match=says):
        stored_mounts(CalibrationFile.from_mapping({"lidar_mounts": entry | change}))


@pytest.mark.parametrize("corrects", [False, True])
def test_rays_begin_at_the_optical_centre(robot, corrects):
    """Without noise, and with its own errors known, a real lidar's returns lie on the model, also at grazing incidence:
    rays from the frame's origin would be millimetres off there."""
    plain = load_sensor("jt128_sparse_real").with_driver(Driver(corrects, corrects))
    sensor = dataclasses.replace(
        plain, range_noise=1e-6, noise_growth=NoiseGrowth(0.0, 0.0, 0.0), quantisation=0.0, beam_divergence=0.0,
        range_drift=0.0, dual_return=False,
    )  # fmt: skip
    simulator = EmbeddedSimulator(dataclasses.replace(SETUP, sensor="jt128_sparse_real", seed=12), sensor)
    simulator.joints.place(REST | POSES[0])
    clouds = {side: return_columns(returns_of(simulator.scan(side, 0))) for side in SIDES}
    sample = robot.sample("pose", stretch_profile().joint_positions(robot.model, REST | POSES[0]), clouds)
    reader = CloudReader(sensor, list(clouds.values()))
    truth = simulator.ground_truth()["units"]
    model = PosedSample(sample, robot.surfaces, sample.base_from_link)
    for side in SIDES:
        pose = simulator.base_from_lidar(side)
        values = values_from_mapping(reader.model, truth[side]["values"], side)
        rays = reader.rays(reader.returns(model.around(side, pose)), values)
        matches = model.match(rays, pose, 0.06, 0.15).incidence_corrected(values[INCIDENCE])
        matches = matches.chosen(model.inside(matches, np.radians(0.4), 0.004))
        assert np.count_nonzero(matches.incidence < 0.35) > 50
        assert np.quantile(np.abs(matches.along), 0.99) < 1.5e-4
