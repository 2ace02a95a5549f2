"""The Stretch's names and poses, its model in a simulation, and whether it touches itself."""

import numpy as np
import pytest
from described_robots import joint, link, robot

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.collision import FLOOR, SelfCollision
from stretch_sim_cal.robot.description import load_model, parse_urdf
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.stretch import DEFAULT_TOOL, available_tools, nominal_description
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import PayloadBox, PoseError, SimulationSetup, simulated_description, true_link

STRETCH = stretch_profile()
TRUE_LINKS = [true_link(side) for side in ("left", "right")]


def posed(stretch, **commanded):
    """Return the description's joint positions at home with `commanded` ones in place of its own."""
    return STRETCH.joint_positions(stretch, STRETCH.home[0] | commanded)


def test_the_commanded_arm_is_four_segments_and_back(stretch):
    commanded = {"lift_joint": 0.4, "arm_joint": 0.2, "gripper_joint": 0.1}
    described = STRETCH.joint_positions(stretch, commanded)
    assert [described[name] for name in [f"arm_l{number}_joint" for number in (1, 2, 3, 4)]] == [0.05] * 4
    assert described["gripper_finger_left_joint"] == described["gripper_finger_right_joint"] == 0.1
    assert STRETCH.commanded_positions(stretch, described) == pytest.approx(commanded)
    described.pop("arm_l2_joint")
    assert "arm_joint" not in STRETCH.commanded_positions(stretch, described)
    newer = dict.fromkeys([f"arm_l{number}_joint" for number in (1, 2, 3, 4)], 0.1) | {"lift_joint": 0.5}
    assert STRETCH.named_positions(newer) == pytest.approx({"lift": 0.5, "arm": 0.4})
    older = {"arm_joint": 0.3, "joint_wrist_yaw": 1.0}
    assert STRETCH.named_positions(older) == pytest.approx({"arm": 0.3, "wrist_yaw": 1.0})
    assert STRETCH.named_positions({"arm_l1_joint": 0.1}) == {}
    extension = STRETCH.joint_positions(stretch, {"arm_joint": np.array([0.0, 0.52])})
    reach = link_transforms(stretch, extension, ["wrist_link"])["wrist_link"][:, 0, 3]
    assert np.isclose(np.diff(reach)[0], 0.52)


def test_commanded_limits_are_the_models(stretch):
    limits = STRETCH.commanded_limits(stretch)
    assert set(limits) == {joint.command for joint in STRETCH.joints}
    assert (limits["lift_joint"].upper, limits["lift_joint"].velocity) == (1.2, 0.5)
    assert limits["arm_joint"].upper == pytest.approx(0.52)
    assert limits["arm_joint"].velocity == pytest.approx(2.8)


@pytest.mark.parametrize(
    ("tool", "pose", "margin"),
    [*((tool, STRETCH.home[0], 0.01) for tool in available_tools()), (DEFAULT_TOOL, STRETCH.stowed, 0.012)],
)
def test_home_and_stowed_are_within_limits_and_free(tool, pose, margin):
    model = load_model(nominal_description(tool))
    limits = STRETCH.commanded_limits(model)
    pose = {name: value for name, value in pose.items() if name in limits}
    assert all(limits[name].lower <= value <= limits[name].upper for name, value in pose.items())
    assert SelfCollision(model, margin=margin, floor=0.0).colliding_pairs(STRETCH.joint_positions(model, pose)) == []


@pytest.mark.parametrize(
    "tool",
    [DEFAULT_TOOL, *(pytest.param(tool, marks=pytest.mark.long) for tool in available_tools() if tool != DEFAULT_TOOL)],
)
def test_without_errors_the_simulated_robot_is_the_nominal_one(tool):
    nominal = load_model(nominal_description(tool))
    simulated = load_model(simulated_description(SimulationSetup.from_mapping({"robot": "stretch4", "tool": tool})))
    ours, theirs = link_transforms(simulated), link_transforms(nominal)
    for name in nominal.links:
        assert np.abs(ours[name] - theirs[name]).max() < 1e-12
        assert all(geometry.path.is_file() for geometry in simulated.links[name].collisions)
    for true, believed in zip(TRUE_LINKS, STRETCH.lidar_links(nominal).values(), strict=True):
        assert np.abs(ours[true] - ours[believed]).max() < 1e-12
    assert (nominal.root, simulated.root) == ("base_footprint", "floor_link")
    assert set(simulated.links) - set(nominal.links) == {"floor_link", *TRUE_LINKS}


@pytest.mark.parametrize("name", ["lidar_left_joint", "elbow_joint"])
def test_an_error_of_a_joint_that_is_none_or_carries_a_lidar_is_named(name):
    with pytest.raises(InputError, match=f"'{name}' is not a joint, or carries a lidar"):
        simulated_description(SimulationSetup(joint_errors={name: PoseError()}))


@pytest.mark.parametrize(
    ("box", "mentions"),
    [(("bse_link", (1, 1, 1)), "did you mean base_link"), (("base_link", (1, 1, 0)), "greater than 0")],
)
def test_payloads_that_cannot_be_are_named(box, mentions):
    with pytest.raises(InputError, match=f"simulated description: .*{mentions}"):
        EmbeddedSimulator(SimulationSetup(payload=(PayloadBox(*box),)))


def test_a_gripper_in_the_base_the_arm_or_the_floor_is_seen(stretch):
    collision = SelfCollision(stretch, floor=0.0)
    down = STRETCH.joint_positions(stretch, STRETCH.stowed | {"lift_joint": 0.0, "wrist_yaw_joint": 3.14})
    assert any("base_link" in pair for pair in collision.colliding_pairs(down)) and not collision.is_free(down)
    pointing_down = posed(stretch, lift_joint=0.1, arm_joint=0.5, wrist_pitch_joint=1.5)
    assert ("gripper_fingertip_left_link", FLOOR) in collision.colliding_pairs(pointing_down)
    assert SelfCollision(stretch).is_free(pointing_down)
    folded = posed(stretch, wrist_pitch_joint=-1.1)
    assert ("wrist_link", "gripper_camera_link") in SelfCollision(stretch, margin=0.05).colliding_pairs(folded)


def test_a_still_joint_behind_a_telescope_does_not_make_its_parts_collide():
    tube = "<collision><geometry><box size='0.3 0.05 0.05'/></geometry></collision>"
    model = parse_urdf(robot(
        "".join(link(name, tube) for name in ("base", "outer", "inner", "wrist"))
        + joint("pan", "base", "outer", "revolute", "0.4 0 0") + joint("yaw", "inner", "wrist", "revolute", "0.2 0 0")
        + joint("slide", "outer", "inner", "prismatic", axis="1 0 0")
    ))  # fmt: skip
    retracted = {"pan": 0.0, "slide": 0.0, "yaw": 0.0}
    assert not SelfCollision(model, 0.0).is_free(retracted)  # the wrist that turns may reach the outer tube
    assert SelfCollision(model, 0.0, still=["yaw"]).is_free(retracted)


def test_two_boxes_collide_exactly_within_the_margin():
    box = '<collision><geometry><box size="0.2 0.2 0.2"/></geometry></collision>'
    axes = joint("x", "a", "m", "prismatic", axis="1 0 0") + joint("y", "m", "b", "prismatic", axis="0 1 0")
    model = parse_urdf(robot(link("a", box) + link("m") + link("b", box) + axes))
    collision, touching = (SelfCollision(model, margin=margin) for margin in (0.05, 0.0))
    for near, far in (({"x": 0.249}, {"x": 0.251}), ({"x": 0.234, "y": 0.234}, {"x": 0.236, "y": 0.236})):
        assert collision.colliding_pairs(near) == [("a", "b")] and collision.colliding_pairs(far) == []
    assert touching.is_free({"x": 0.201}) and not touching.is_free({"x": 0.199})
    with pytest.raises(InputError, match="margin"):
        SelfCollision(model, margin=-1.0)
