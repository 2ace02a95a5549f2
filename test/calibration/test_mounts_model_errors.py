"""The variances of the model's errors come from the returns: whichever errors a robot has, the covariance is as large
as the errors of the extrinsics, or somewhat larger if the robot is better than one could know. And which further pose
determines the extrinsics best. Linear systems at the description's poses, with errors drawn as the model has them."""

import numpy as np
import pytest
from scipy.linalg import block_diag

from stretch_sim_cal.calibration.mounts import robot as mounted
from stretch_sim_cal.calibration.mounts.model_errors import with_model_errors
from stretch_sim_cal.calibration.mounts.residuals import RobotUnknowns, mount_covariances
from stretch_sim_cal.calibration.mounts.result import MountSettings
from stretch_sim_cal.robot.kinematics import link_transform

SETTINGS = mounted.mount_settings()
POSES = [(1.0, 0.45, 1.7), (0.2, 0.0, -1.1), (1.0, 0.0, -1.1), (0.2, 0.45, 1.7)]
JOINTS = ("lift_joint", "arm_joint", "wrist_yaw_joint")
DRAWS = 8
ONE = np.repeat([1e-3, np.radians(0.1)], 3)  # of one link: m, rad


class Observed:
    """The information of rays in four poses about all unknowns, and of the priors."""

    def __init__(self, robot):
        self.unknowns = RobotUnknowns(robot.surfaces, SETTINGS, robot.nominal)
        self.count = len(self.unknowns.links)
        poses = [robot.sample("pose", dict(zip(JOINTS, values, strict=True)), {}, JOINTS) for values in POSES]
        self.by_rays = sum(mounted.pose_information(robot.surfaces, pose, robot.nominal, SETTINGS) for pose in poses)
        first = self.unknowns.first_link
        priors = 1.0 / self.unknowns.variances()[first:]
        self.before = np.diag(np.concatenate([np.full(first, 1e-3), priors]))

    def solved(self, random, origins, meshes, out=None, most_released=0):
        """Return the error (12,) of the extrinsics and the solution for a robot whose links
        are off by shares of ONE."""
        true = np.zeros(self.unknowns.size)
        for index in range(self.count):
            true[self.unknowns.of_link(index)] = origins * ONE * random.normal(size=6)
            true[self.unknowns.of_mesh(index)] = meshes * ONE * random.normal(size=6)
        if out is not None:
            true[self.unknowns.of_link(self.unknowns.links.index(out))] = 4.0 * ONE * np.sign(random.normal(size=6))
        values, vectors = np.linalg.eigh(self.by_rays)
        noise = vectors @ (np.sqrt(np.maximum(values, 0.0)) * random.normal(size=len(values)))
        found = with_model_errors(self.by_rays + self.before, self.by_rays @ true + noise, self.unknowns, most_released)
        return found.solution[: self.unknowns.first_link], found


@pytest.fixture(scope="module")
def robot(stretch):
    return mounted.MountedRobot(stretch)


@pytest.fixture(scope="module")
def observed(robot):
    return Observed(robot)


def nees(off, found, side):
    own = slice(6 * side, 6 * side + 6)
    return off[own] @ np.linalg.solve(found.covariance[own, own], off[own])


@pytest.mark.parametrize(("origins", "meshes", "least"), [
    (0.0, 0.0, 0.3), (0.7, 0.7, 1.5), *(pytest.param(*each, 1.5, marks=pytest.mark.long) for each in ((0, 1), (1, 0))),
])  # fmt: skip
def test_the_covariance_is_as_large_as_the_errors_whichever_errors_the_model_has(observed, origins, meshes, least):
    random = np.random.default_rng(3)
    drawn = [observed.solved(random, origins, meshes) for _ in range(DRAWS)]
    mean = np.mean([nees(off, found, side) for off, found in drawn for side in (0, 1)])
    assert least < mean < 12.0


@pytest.mark.long
def test_the_returns_determine_whether_joint_origins_or_meshes_are_off(observed):
    random = np.random.default_rng(4)
    turned, moved, exact = (
        [observed.solved(random, origins, meshes)[1] for _ in range(3)]
        for origins, meshes in ((1.0, 0.0), (0.0, 1.0), (0.0, 0.0))
    )
    assert np.mean([found.origin_scale for found in turned]) > 2 * np.mean([found.mesh_scale for found in turned])
    assert np.mean([found.mesh_scale for found in moved]) > 2 * np.mean([found.origin_scale for found in moved])
    assert max(max(found.origin_scale, found.mesh_scale) for found in exact) < 0.5


def test_one_link_that_is_off_among_many_that_are_not_is_released_alone(observed):
    random = np.random.default_rng(5)
    _, found = observed.solved(random, 0.0, 0.0, out="arm_l0_link", most_released=3)
    assert [observed.unknowns.links[index] for index in found.released] == ["arm_l0_link"]
    assert found.origin_scale < 0.5


def test_priors_are_of_the_joints_whole_errors_however_much_of_them_is_taken_out_already(observed):
    random = np.random.default_rng(8)
    true, reached = np.zeros(observed.unknowns.size), np.zeros(observed.unknowns.size)
    true[observed.unknowns.first_joint : observed.unknowns.first_near] = [0.002, -0.001, 0.003, 0.001, 0.002, -0.001]
    values, vectors = np.linalg.eigh(observed.by_rays)
    seen = observed.by_rays @ true + vectors @ (np.sqrt(np.maximum(values, 0.0)) * random.normal(size=len(values)))
    known = observed.by_rays + observed.before
    at_once = with_model_errors(known, seen, observed.unknowns).solution
    reached[observed.unknowns.first_joint : observed.unknowns.first_near] = [0.02, 0.01, -0.03, 0.01, 0.0, 0.02]
    left = with_model_errors(known, seen - known @ reached, observed.unknowns, reached=reached).solution
    assert left + reached == pytest.approx(at_once, abs=1e-9)


def test_a_system_without_links_has_none_to_release():
    unknowns = RobotUnknowns({}, MountSettings(), ("left", "right"))
    found = with_model_errors(np.eye(unknowns.size), np.ones(unknowns.size), unknowns)
    assert found.solution == pytest.approx(np.ones(unknowns.size)) and not found.released


LOW, NEAR = (0.2, 0.0, -1.1), (1.0, 0.45, 1.7)


def posed(robot, name, values):
    return robot.pose(name, dict(zip(JOINTS, values, strict=True)))


@pytest.fixture(scope="module")
def start(robot):
    unknowns = RobotUnknowns(robot.surfaces, SETTINGS, robot.nominal)
    lidars = map(np.linalg.inv, mount_covariances(robot.nominal))
    return block_diag(*lidars, np.diag(1.0 / unknowns.variances()[unknowns.first_link :]))


@pytest.fixture(scope="module")
def after_low(robot, start):
    return start + mounted.pose_information(robot.surfaces, posed(robot, "low", LOW), robot.nominal, SETTINGS)


def test_the_pose_proposed_is_the_one_that_is_missing_and_not_the_same_once_more(robot, start, after_low):
    before, after = (mounted.worst_deviation(information, robot.nominal) for information in (start, after_low))
    assert after < before / 3
    offered = [posed(robot, "low again", LOW), posed(robot, "near", NEAR)]
    best = mounted.best_next(after_low, robot.surfaces, offered, robot.nominal, SETTINGS)
    assert best.name == "near" and best.deviation < best.before


def test_what_a_joint_moves_is_that_of_the_kinematics(robot):
    joints = {"lift_joint": 0.5, "wrist_yaw_joint": 0.4}
    sample = robot.sample("pose", joints, {}, ("lift_joint", "wrist_yaw_joint"))
    turned = link_transform(robot.model, joints, "lift_link", "base_link")[:3, :3]
    axis, by_yaw = turned @ robot.model.joints["lift_joint"].unit_axis, sample.joint_motions["wrist_yaw_joint"]
    np.testing.assert_allclose(sample.joint_motions["lift_joint"]["wrist_link"][:3], axis, atol=1e-6)
    assert "lift_link" not in by_yaw
    assert np.linalg.norm(by_yaw["wrist_roll_link"][3:]) == pytest.approx(1.0, abs=1e-4)
