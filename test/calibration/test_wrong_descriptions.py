"""What is said of clouds that do not fit the description: exchanged, in other axes, in another frame."""

from dataclasses import replace

import numpy as np
import pytest
from top_and_dome import top_and_dome

import stretch_sim_cal as cal
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply, from_xyz_rpy, inverse

TURNED = from_xyz_rpy((0, 0, 0), (0, 0, np.pi / 2))  # x right, y forward
UPSIDE_DOWN = from_xyz_rpy((0, 0, 0), (np.pi, 0, 0))


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return cal.simulate(robot=top_and_dome(tmp_path_factory.mktemp("robot"), third=True), seed=2, frames=3)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return cal.simulate(robot=top_and_dome(tmp_path_factory.mktemp("robot")), seed=2, frames=3)


def points(scene, **changes):
    """Return the clouds of every lidar, some of them moved by a transform (4, 4)."""
    return {
        name: [
            apply(changes.get(name, np.eye(4)), np.column_stack([cloud[axis] for axis in "xyz"]).astype(float))
            for cloud in clouds
        ]
        for name, clouds in scene.clouds.items()
    }


def refusals(scene, clouds):
    found = cal.calibrate(scene.rig, clouds, floor=False)
    assert not found.accepted
    return [finding for finding in found.findings if finding.severity == "error"]


@pytest.mark.parametrize(
    ("changes", "clouds", "turn"),
    [
        ({"left": TURNED, "right": TURNED}, "the clouds of lidars left and right", "-90 deg about z"),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (
            ({"right": TURNED}, "the right lidar's clouds", "-90 deg about z"),
            ({"left": UPSIDE_DOWN}, "the left lidar's clouds", "180 deg about x"),
        )),
    ],
    ids=["both turned", "right turned", "left upside down"],
)  # fmt: skip
def test_clouds_in_other_axes_than_described_are_named_with_the_turn(two, changes, clouds, turn):
    (found,) = refusals(two, points(two, **changes))
    assert found.code == "turned_clouds"
    assert f"{clouds} fit the description once they are turned by {turn}" in found.sentence
    assert "orientation in the description, or the driver's frame" in found.remedy


def test_clouds_that_are_in_the_base_frame_already_are_named(two):
    found = refusals(two, points(two, right=two.rig.base_from_right))
    assert found[0].code == "clouds_in_base_frame"
    assert "the right lidar's clouds are already in the base frame" in found[0].sentence


def test_exchanged_topics_of_a_robot_with_three_lidars_are_named(scene):
    clouds = points(scene)
    clouds["left"], clouds["right"] = clouds["right"], clouds["left"]
    untied = refusals(scene, clouds)[0]
    assert untied.code == "untied_lidar" and untied.remedy == "exchange left and right"
    assert "as if left and right were swapped" in untied.sentence


@pytest.mark.long
def test_a_third_lidar_that_fits_nothing_is_named_with_the_reason_and_leaves_the_others_as_sure_as_without_it(scene):
    result = cal.calibrate(scene.rig, scene.clouds, floor=False)
    untied = [finding for finding in result.findings if finding.code == "untied_lidar"]
    assert len(untied) == 1 and "(left and third)" in untied[0].sentence
    deviations = np.sqrt(np.diag(result.covariance_of("left", "right")))
    assert (deviations[[0, 1]] < 0.003).all() and (deviations[3:] < np.deg2rad(0.1)).all()
    truth = inverse(scene.simulator.base_from_lidar("left")) @ scene.simulator.base_from_lidar("right")
    assert (np.abs((result.transform("left", "right") - truth)[:2, 3]) < 4.0 * deviations[:2]).all()


def test_clouds_in_millimetres_are_not_silent_lidars(two):
    clouds = {name: [1000.0 * cloud for cloud in own] for name, own in points(two).items()}
    with pytest.raises(InputError, match=r"no usable return of the left lidar .* are its points in m\?"):
        cal.calibrate(two.rig, clouds)


@pytest.mark.long
def test_floor_that_no_lidar_looks_at_has_a_remedy_other_than_another_place(two):
    lidars = [two.simulator.base_from_lidar(name) for name in ("left", "right")]
    rig = replace(two.rig, base_from_left=lidars[0], base_from_right=lidars[1])
    found = cal.calibrate(rig, two.clouds, accept=(0.5, 0.1))
    one_side = [finding for finding in found.findings if finding.code == "floor_on_one_side"]
    assert one_side and "if no lidar looks there, tilt one down, or calibrate by driving" in one_side[0].remedy
