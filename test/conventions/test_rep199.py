"""REP 199: its own example hierarchies keep it, and each broken rule is found at its level."""

import pytest
from described_robots import (
    BOX,
    added,
    all_of,
    arm_parts,
    edited,
    findings,
    joint,
    joint_set,
    link,
    link_given,
    renamed,
    robot,
    without,
)

from stretch_sim_cal.conventions import kept
from stretch_sim_cal.robot.description import parse_urdf

SINGLE = robot(arm_parts())
WITH_TOOL = robot(
    arm_parts() + link("eef_base_link", BOX) + joint("eef_mount", "flange", "eef_base_link") + link("eef_link_1")
    + joint("eef_joint_1", "eef_base_link", "eef_link_1", "revolute") + link("eef_tcp") + joint("tcp", "flange",
    "eef_tcp")
)  # fmt: skip
TWO_GROUPS = robot(
    link("world") + arm_parts("robot_") + arm_parts("positioner_") + joint("a", "world", "robot_base_link")
    + joint("b", "world", "positioner_base_link", xyz="1 0 0")
)  # fmt: skip
TWO_ARMS = robot(
    link("base_link") + link("base") + joint("base_link-base", "base_link",
    "base") + arm_parts("left_") + arm_parts("right_")
    + joint("l", "base_link", "left_base_link") + joint("r", "base_link", "right_base_link")
)  # fmt: skip


@pytest.mark.parametrize("text", [SINGLE, WITH_TOOL, TWO_GROUPS, TWO_ARMS], ids=["single", "tool", "groups", "arms"])
def test_the_texts_own_examples_are_clean(text):
    assert findings(text, "rep199", infos=True) == set()


BROKEN = {
    "base_link missing": (renamed("base_link", "pedestal"), "error", "base_link", "pedestal"),
    "base_link moves": (
        added(link("rail") + joint("slide", "rail", "base_link", "prismatic")), "error", "base_link", "base_link",
    ),
    "base missing": (without("base"), "error", "base", "base_link"),
    "base moves": (joint_set("base_link-base", type="continuous"), "error", "base", "base"),
    "base beyond a joint": (joint_set("base_link-base", parent="link_2"), "error", "base", "base"),
    "base with a shape": (link_given("base", BOX), "error", "no-geometry", "base"),
    "flange with a shape": (link_given("flange", BOX), "error", "no-geometry", "flange"),
    "tool0 with a shape": (link_given("tool0", BOX), "error", "no-geometry", "tool0"),
    "link misnamed": (renamed("link_3", "forearm"), "warning", "link_n", "forearm"),
    "link with a gap": (renamed("link_6", "link_8"), "warning", "link_n", "link_8"),
    "links swapped": (
        all_of(renamed("link_2", "x"), renamed("link_3", "link_2"), renamed("x", "link_3")),
        "warning", "link_n", "link_2",
    ),
    "link turned": (joint_set("joint_4", rpy="1.57 0 0"), "warning", "link_n-rep103", "link_4"),
    "flange missing": (
        all_of(joint_set("flange-tool0", parent="link_6"), without("flange")), "warning", "flange", "link_6",
    ),
    "flange moves": (joint_set("link_6-flange", type="continuous"), "error", "flange", "flange"),
    "flange inwards": (joint_set("link_6-flange", rpy="0 0 3.14159265358979"), "error", "flange-x", "flange"),
    "flange's z along the axis": (joint_set("link_6-flange", rpy="0 1.5708 0"), "error", "flange-x", "flange"),
    "flange rolled": (joint_set("link_6-flange", rpy="1 0 0"), "error", "flange-rep103", "flange"),
    "tool0 missing": (without("tool0"), "error", "tool0", "flange"),
    "tool0 moves": (joint_set("flange-tool0", type="continuous"), "error", "tool0", "tool0"),
    "tool0 on an earlier link": (joint_set("flange-tool0", parent="link_3"), "error", "tool0", "tool0"),
    "tool0 beside the flange": (joint_set("flange-tool0", parent="link_6"), "info", "tool0-parent", "tool0"),
    "tool0 away from the flange": (joint_set("flange-tool0", xyz="0 0 0.1"), "info", "tool0-origin", "tool0"),
    "tool frame below tool0": (added(link("tcp") + joint("t", "tool0", "tcp")), "warning", "tool-sibling", "tcp"),
    "toolN": (added(link("tool3") + joint("t", "flange", "tool3")), "warning", "toolN", "tool3"),
    "tool on the last link": (
        added(link("gripper") + joint("g", "link_6", "gripper")), "warning", "eef-flange", "gripper",
    ),
    "not a ROS name": (added(link("my frame") + joint("g", "flange", "my frame")), "warning", "ros-names", "my frame"),
    "left-handed frame": (
        added(link("link_2_left_handed") + joint("g", "link_2", "link_2_left_handed")), "info", "left-handed",
        "link_2_left_handed",
    ),
    "mirrored mesh": (
        link_given("link_2", '<visual><geometry><mesh filename="a.stl" scale="1 -1 1"/></geometry></visual>'),
        "warning", "left-handed", "link_2",
    ),
    "vendor's base": (added(link("ROBROOT") + joint("g", "base_link", "ROBROOT")), "info", "vendor-names", "ROBROOT"),
    "vendor's tool": (renamed("tool0", "TCP"), "info", "vendor-names", "TCP"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_found(case):
    change, level, rule, name = BROKEN[case]
    assert (level, rule, name) in findings(edited(SINGLE, change), "rep199", infos=True)


def test_a_flange_on_something_else_than_a_numbered_link_is_an_info():
    change = added(link("mount") + joint("m", "link_6", "mount"))
    text = edited(SINGLE, change, joint_set("link_6-flange", parent="mount"))
    assert findings(text, "rep199", infos=True) == {("info", "flange-parent", "flange")}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (robot(arm_parts() + arm_parts("left_") + joint("l", "base_link", "left_base_link")),
         ("warning", "prefix", "flange")),
        (edited(TWO_ARMS, renamed("left_link_3", "arm_link_3")), ("warning", "prefix", "arm_link_3")),
        (edited(TWO_ARMS, without("left_tool0")), ("error", "tool0", "left_flange")),
    ],
    ids=["an arm without prefix", "a link with another prefix", "an arm without a frame of its own"],
)  # fmt: skip
def test_arms_are_distinguished_by_their_prefixes(text, found):
    assert found in findings(text, "rep199")


def test_a_robot_that_is_no_industrial_arm_lacks_its_frames():
    text = robot(link("body") + link("leg") + joint("hip", "body", "leg", "revolute"))
    assert {rule for level, rule, _ in findings(text, "rep199") if level == "error"} == {"base_link", "base", "tool0"}


def test_a_base_without_an_arm_is_asked_for_nothing_and_keeps_no_convention():
    wheels = "".join(
        link(f"{side}_{part}") for side in ("left", "right") for part in ("spring", "wheel")
    ) + "".join(
        joint(f"{side}_spring", "base_link", f"{side}_spring", "prismatic")
        + joint(f"{side}_wheel", f"{side}_spring", f"{side}_wheel", "continuous")
        for side in ("left", "right")
    )  # fmt: skip
    base = robot(link("base_link") + wheels)
    assert findings(base, "rep199", infos=True) == {("info", "silent", "base_link")}
    assert kept(parse_urdf(base)) is None
    armed = robot(link("base_link") + wheels + link("arm") + joint("pan", "base_link", "arm", "revolute"))
    assert ("error", "tool0") in {each[:2] for each in findings(armed, "rep199")}
