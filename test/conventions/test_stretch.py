"""The Stretch's conventions: the vendor's models keep them, and each broken rule is found, alone;
the example of a new profile finds and exempts what it lists."""

import runpy
from pathlib import Path

import pytest
from described_robots import (
    added,
    all_of,
    edited,
    findings,
    joint,
    joint_set,
    link,
    link_given,
    renamed,
    stretch_text,
    without,
)

from stretch_sim_cal.conventions import PROFILES
from stretch_sim_cal.conventions.profile import lint
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.stretch import available_tools

QUARTER = "1.5707963267948966"


@pytest.mark.parametrize("tool", available_tools())
def test_the_vendors_model_keeps_the_conventions_with_every_tool(tool):
    assert findings(stretch_text(tool), "stretch") == set()


def test_what_the_document_contradicts_is_reported_with_its_reason():
    found = lint(load_model(stretch_text()), PROFILES["stretch"])
    listed = {(each.rule, each.name) for each in found if "listed exception" in each.message}
    assert {
        ("rule-4-lidar-x", "lidar_right_link"),
        ("rule-4-lidar-y", "lidar_left_link"),
        ("rule-5-names", "grasp_center_link"),
        ("rule-1", "wheel_0_link"),
        ("rule-7", "base_ref"),
        ("rule-7", "laser"),
        ("rule-7", "docking_contact_frame"),
        ("rule-7", "gripper_left_camera_color_optical_frame"),
    } <= listed


BROKEN = {
    "no base_link": (renamed("base_link", "chassis_link"), "base-link", "base_footprint"),
    "head turned": (joint_set("head_joint", rpy="0 0 0.01"), "rule-1", "head_link"),
    "base tilted beyond a calibration": (joint_set("base_ref", rpy="0.1 0 0"), "rule-1", "base_footprint"),
    "arm link missing": (renamed("arm_l2_link", "middle_link"), "rule-2", "arm_l2_link"),
    "arm link out of order": (joint_set("arm_l3_joint", parent="arm_l1_link"), "rule-2", "arm_l3_link"),
    "arm joint misnamed": (renamed("arm_l3_joint", "telescope_joint"), "rule-2", "telescope_joint"),
    "arm_l0 not on the lift": (joint_set("arm_l0_joint", parent="mast_link"), "rule-2", "arm_l0_link"),
    "wrist not on arm_l4": (joint_set("wrist_joint", parent="arm_l3_link"), "rule-2", "wrist_link"),
    "sixth arm link": (
        added(link("arm_l5_link") + joint("arm_l5_joint", "arm_l4_link", "arm_l5_link")), "rule-2", "arm_l5_link",
    ),
    "negative axis": (joint_set("lift_joint", axis="0 0 -1"), "rule-3-positive", "lift_joint"),
    "axis of length 2": (joint_set("wrist_yaw_joint", axis="0 0 2"), "rule-3-unit", "wrist_yaw_joint"),
    "slanting axis": (joint_set("wrist_roll_joint", axis="0.8 0.6 0"), "rule-3-primary", "wrist_roll_joint"),
    "camera looks back": (joint_set("gripper_camera_joint", rpy="0 0 3.1"), "rule-4-base-x", "gripper_camera_link"),
    "camera on its side": (
        joint_set("gripper_camera_joint", rpy=f"{QUARTER} 0 0"), "rule-4-base-z", "gripper_camera_link",
    ),
    "head camera mounted the other way": (
        joint_set("camera_left_joint", rpy="1.5707963267949 0.820304748437337 0"), "rule-4-base-z", "camera_left_link",
    ),
    "line sensor looks inwards": (
        joint_set("line_sensor_3_joint", rpy="0 0.45 0"), "rule-4-base-x", "line_sensor_3_link",
    ),
    "optical frame not turned": (
        joint_set("camera_center_optical_joint", rpy="0 0 0"), "rule-4-optical", "camera_center_optical_link",
    ),
    "optical frame rolled": (
        joint_set("gripper_left_camera_color_optical_joint", rpy="0 0 -1.57"), "rule-4-optical",
        "gripper_left_camera_color_optical_frame",
    ),
    "optical frame missing": (without("line_sensor_1_optical_link"), "rule-4-optical-missing", "line_sensor_1_link"),
    "optical frame astray": (
        joint_set("camera_left_optical_joint", parent="head_link"), "rule-4-optical-parent", "camera_left_optical_link",
    ),
    "lidar looks inwards": (joint_set("lidar_left_joint", rpy="0.5 0.5 0.5"), "rule-4-lidar-z", "lidar_left_link"),
    "lidar's y outwards": (
        joint_set("lidar_left_joint", rpy="3.054657 0.7816 -2.39203"), "rule-4-lidar-y", "lidar_left_link",
    ),
    "lidar's x sideways": (
        joint_set("lidar_left_joint", rpy="-2.7417 -0.6956 0.2897"), "rule-4-lidar-x", "lidar_left_link",
    ),
    "grasp centre missing": (without("grasp_center_link"), "rule-5-center-missing", "quick_connect_interface_link"),
    "grasp centre turned": (joint_set("grasp_center_joint", rpy="0 0.1 0"), "rule-5-center", "grasp_center_link"),
    "grasp centre with a mass": (
        link_given("grasp_center_link", '<visual><geometry><sphere radius="0.01"/></geometry></visual>'),
        "rule-5-virtual", "grasp_center_link",
    ),
    "fingertip outwards": (
        joint_set("gripper_fingertip_left_joint", rpy="0 0 1.57"), "rule-5-tip-x", "gripper_fingertip_left_link",
    ),
    "fingertips missing": (
        renamed("gripper_fingertip_left_link", "pad_left_link"), "rule-5-tip-missing", "gripper_finger_left_link",
    ),
    "wheel's z outwards": (joint_set("wheel_2_joint", rpy=f"{QUARTER} 0 0"), "rule-6-z", "wheel_2_link"),
    "wheel's x up": (joint_set("wheel_2_joint", rpy=f"-{QUARTER} {QUARTER} 0"), "rule-6-x", "wheel_2_link"),
    "wheel about x": (joint_set("wheel_1_joint", axis="1 0 0"), "rule-6-axis", "wheel_1_joint"),
    "wheel fixed": (joint_set("wheel_1_joint", type="fixed"), "rule-6-axis", "wheel_1_joint"),
    "no wheels": (
        all_of(*(renamed(f"wheel_{n}_link", f"caster_{n}_link") for n in range(3))), "rule-6-numbers", "base_link",
    ),
    "link without suffix": (renamed("mast_link", "mast"), "rule-7", "mast"),
    "joint without suffix": (renamed("lift_joint", "joint_lift"), "rule-7", "joint_lift"),
    "suffix in the middle": (renamed("wrist_aruco_link", "wrist_link_aruco_link"), "rule-7", "wrist_link_aruco_link"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_found(case):
    change, rule, name = BROKEN[case]
    assert ("error", rule, name) in findings(edited(stretch_text(), change), "stretch")


def test_wheels_numbered_clockwise_are_found():
    swapped = edited(
        stretch_text(), renamed("wheel_0_link", "spare"), renamed("wheel_1_link", "wheel_0_link"),
        renamed("spare", "wheel_1_link"),
    )  # fmt: skip
    rules = {(rule, name) for _, rule, name in findings(swapped, "stretch")}
    assert rules == {("rule-6-numbers", "wheel_0_link"), ("rule-6-numbers", "wheel_1_link")}


def test_a_calibrated_base_and_lidar_are_no_departure():
    calibrated = edited(
        stretch_text(), joint_set("base_ref", rpy="0.012 -0.007 0"),
        joint_set("lidar_right_joint", rpy="-3.0446 0.7816 2.4"),
    )  # fmt: skip
    assert findings(calibrated, "stretch") == set()


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "convention_profile.py"


def test_the_examples_profile_excuses_the_vendors_robot_and_finds_a_tilted_footprint():
    profile = runpy.run_path(str(EXAMPLE))["MOBILE"]
    found = lint(load_model(stretch_text()), profile)
    assert [(each.level, each.rule) for each in found] == [("info", "virtual")]
    calibrated = edited(stretch_text(), joint_set("base_ref", rpy="0.012 0 0"))
    assert {each.level for each in lint(load_model(calibrated), profile)} == {"info"}
    tilted = edited(stretch_text(), joint_set("base_ref", rpy="0.2 0 0"))
    assert [each.rule for each in lint(load_model(tilted), profile) if each.level == "error"] == ["level"]
