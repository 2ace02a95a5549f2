"""How far links are off is learnt from the returns: whichever way a robot is misbuilt, the covariance is as large as the
errors, or somewhat larger where it is built better than one could know. Linear systems at the description's poses, with errors drawn as the model has them."""

import numpy as np
import pytest

from stretch_sim_cal.calibration.mounts.poses import pose_information, prior_information
from stretch_sim_cal.calibration.mounts.system import MOUNTS, RobotUnknowns, as_built, model_variances
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.ros.mounts_solve import MountedRobot, mount_settings

SETTINGS = mount_settings()
POSES = [(1.0, 0.45, 1.7), (0.2, 0.0, -1.1), (1.0, 0.0, -1.1), (0.2, 0.45, 1.7)]
DRAWS = 8
ONE = np.repeat([1e-3, np.radians(0.1)], 3)  # of one link: m, rad


class Told:
    """What rays in four poses tell of all unknowns, and what is believed of these beforehand."""

    def __init__(self):
        robot = MountedRobot(load_model(nominal_description()))
        self.unknowns = RobotUnknowns(robot.surfaces, SETTINGS)
        self.count = len(self.unknowns.links)
        joints = ("lift_joint", "arm_joint", "wrist_yaw_joint")
        poses = [robot.sample("pose", dict(zip(joints, values, strict=True)), np.empty((0, 3)), np.empty((0, 3)), joints)
                 for values in POSES]  # fmt: skip
        self.by_rays = sum(pose_information(robot.surfaces, pose, robot.nominal, SETTINGS) for pose in poses)
        self.before = prior_information(robot.surfaces, robot.nominal, SETTINGS)
        variances = model_variances(self.unknowns.size, SETTINGS)
        self.before[:MOUNTS, :MOUNTS] = np.eye(MOUNTS) * 1e-3
        assert np.allclose(np.diag(self.before)[MOUNTS:], 1.0 / variances[MOUNTS:])

    def built(self, random, bolts, surfaces, out=None, most_out=0):
        """Return the mounts' error (12,) and what is made of returns from a robot whose links are off by shares of ONE."""
        true = np.zeros(self.unknowns.size)
        for index in range(self.count):
            true[self.unknowns.of_link(index)] = bolts * ONE * random.normal(size=6)
            true[self.unknowns.of_surface(index)] = surfaces * ONE * random.normal(size=6)
        if out is not None:
            true[self.unknowns.of_link(self.unknowns.links.index(out))] = 4.0 * ONE * np.sign(random.normal(size=6))
        values, vectors = np.linalg.eigh(self.by_rays)
        noise = vectors @ (np.sqrt(np.maximum(values, 0.0)) * random.normal(size=len(values)))
        build = as_built(self.by_rays + self.before, self.by_rays @ true + noise, self.unknowns, SETTINGS, most_out)
        return build.solution[:MOUNTS], build


@pytest.fixture(scope="module")
def told():
    return Told()


def nees(off, build, side):
    own = slice(6 * side, 6 * side + 6)
    return off[own] @ np.linalg.solve(build.covariance[own, own], off[own])


@pytest.mark.parametrize(
    ("bolts", "surfaces", "least"),
    [(0.0, 0.0, 0.3), (0.0, 1.0, 1.5), (1.0, 0.0, 1.5), (0.7, 0.7, 1.5)],
)
def test_the_covariance_is_as_large_as_the_errors_however_the_robot_is_misbuilt(told, bolts, surfaces, least):
    random = np.random.default_rng(3)
    drawn = [told.built(random, bolts, surfaces) for _ in range(DRAWS)]
    mean = np.mean([nees(off, build, side) for off, build in drawn for side in (0, 1)])
    assert least < mean < 12.0


def test_the_returns_tell_which_of_bolts_and_surfaces_are_off(told):
    random = np.random.default_rng(4)
    bolted, moved, exact = (
        [told.built(random, bolts, surfaces)[1] for _ in range(3)]
        for bolts, surfaces in ((1.0, 0.0), (0.0, 1.0), (0.0, 0.0))
    )
    assert np.mean([build.bolts for build in bolted]) > 2 * np.mean([build.surfaces for build in bolted])
    assert np.mean([build.surfaces for build in moved]) > 2 * np.mean([build.bolts for build in moved])
    assert max(max(build.bolts, build.surfaces) for build in exact) < 0.5


def test_one_link_that_is_off_among_many_that_are_not_is_let_go_alone(told):
    random = np.random.default_rng(5)
    _, build = told.built(random, 0.0, 0.0, out="arm_l0_link", most_out=3)
    assert [told.unknowns.links[index] for index in build.standing_out] == ["arm_l0_link"]
    assert build.bolts < 0.5
