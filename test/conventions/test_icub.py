"""The iCub's conventions: a model as the tables have it is clean, each broken rule is found, slips are not punished."""

import icub_models
import pytest
from described_robots import (
    BOX,
    added,
    edited,
    element_taken,
    findings,
    icub_text,
    joint,
    joint_set,
    link,
    link_given,
    renamed,
    without,
)

from stretch_sim_cal.conventions import PROFILES
from stretch_sim_cal.conventions.icub import AXES
from stretch_sim_cal.conventions.profile import lint
from stretch_sim_cal.robot.description import load_model


def test_a_model_as_the_tables_have_it_is_clean():
    assert findings(icub_text(), "icub", infos=True) == set()


BROKEN = {
    "joint misnamed": (renamed("l_knee", "l_kneee"), "error", "control-board", "l_knee"),
    "joint unknown": (renamed("l_knee", "l_kneee"), "warning", "joint-name", "l_kneee"),
    "joint's type": (joint_set("neck_yaw", type="continuous"), "error", "joint-type", "neck_yaw"),
    "joint fixed": (joint_set("r_elbow", type="fixed"), "error", "joint-type", "r_elbow"),
    "sensor moves": (joint_set("l_arm_ft_sensor", type="continuous"), "error", "ft-sensor", "l_arm_ft_sensor"),
    "sensor absent": (renamed("r_arm_ft_sensor", "r_arm_bolts"), "info", "ft-sensor", "r_arm_ft_sensor"),
    "link misnamed": (renamed("l_upper_leg", "l_thigh"), "error", "link", "l_thigh"),
    "no root_link": (renamed("root_link", "pelvis"), "error", "link", "pelvis"),
    "root_link moves": (
        added(link("rail") + joint("r", "rail", "root_link", "prismatic")), "error", "link", "root_link",
    ),
    "parent link": (joint_set("r_wrist_pitch", parent="r_elbow_1"), "error", "parent-link", "r_wrist_1"),
    "parent joint": (renamed("r_knee", "r_knee_pitch"), "error", "parent-joint", "r_lower_leg"),
    "leg's axis off": (joint_set("r_hip_roll", axis="1 0 0.1"), "warning", "axis", "r_hip_roll"),
    "arm's axis wrong": (joint_set("l_shoulder_roll", axis="0 0 1"), "error", "axis", "l_shoulder_roll"),
    "imu's frame": (joint_set("imu_frame_joint", parent="chest"), "error", "frame", "imu_frame"),
    "frame with a shape": (link_given("imu_frame", BOX), "warning", "frame", "imu_frame"),
    "frame moves": (joint_set("l_foot_ft_frame_joint", type="continuous"), "error", "frame", "l_foot_ft_frame"),
    "skin's frame": (joint_set("l_hand_dh_frame_joint", parent="l_wrist_1"), "error", "skin-frame", "l_hand_dh_frame"),
    "link without mass": (element_taken("l_upper_leg", "inertial"), "warning", "link-mass", "l_upper_leg"),
    "root without shape": (element_taken("root_link", "visual"), "warning", "link-shape", "root_link"),
    "small link without mass": (element_taken("l_wrist_1", "inertial"), "info", "link-mass", "l_wrist_1"),
    "small link without shape": (element_taken("r_elbow_1", "visual"), "info", "link-shape", "r_elbow_1"),
    "skin's frame absent": (without("r_forearm_dh_frame"), "info", "skin-frame", "r_forearm_dh_frame"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_found(case):
    change, level, rule, name = BROKEN[case]
    assert (level, rule, name) in findings(edited(icub_text(), change), "icub", infos=True)


def test_every_axis_of_the_table_is_checked():
    for name, axis in AXES.items():
        reverse = joint_set(name, axis=" ".join(str(-value) for value in axis))
        level = "info" if name == "torso_roll" else "error"
        assert findings(edited(icub_text(), reverse), "icub", infos=True) == {(level, "axis", name)}


def test_an_arms_axis_is_reported_with_its_angle():
    text = edited(icub_text(), joint_set("l_shoulder_pitch", axis="-0.2588 -0.9659 0"))
    (found,) = lint(load_model(text), PROFILES["icub"])
    assert found.level == "info" and "15.0 deg" in found.message and "roughly" in found.message


def test_axes_are_expressed_in_the_root_frame_where_there_is_one():
    turned = edited(icub_text(), joint_set("root_frame_joint", rpy="0 0 3.14159265358979"))
    assert ("error", "axis", "l_hip_pitch") in findings(turned, "icub")


def test_a_robot_without_a_sensor_may_leave_its_link_out():
    def unbolt(root):
        without("l_arm_ft_frame")(root)
        without("l_upper_arm")(root)
        joint_set("l_elbow", parent="l_shoulder_3")(root)

    text = edited(icub_text(), joint_set("l_upper_arm_dh_frame_joint", parent="l_shoulder_3"), unbolt)
    assert not {found for found in findings(text, "icub") if found[1] == "parent-link"}


def test_slips_of_the_document_are_no_findings():
    other_necks = edited(icub_text(), renamed("neck_1", "neck_0"))
    assert findings(other_necks, "icub") == set()


def test_a_missing_board_is_no_fault_and_half_a_board_is():
    headless = edited(icub_text(), without("imu_frame"), without("head"), without("neck_2"))
    assert {found for found in findings(headless, "icub") if found[1] == "control-board"} == {
        ("error", "control-board", "neck_roll"), ("error", "control-board", "neck_yaw"),
    }  # fmt: skip
    assert ("info", "control-board", "head") in findings(edited(headless, without("neck_1")), "icub", infos=True)


def test_hands_are_left_out_as_the_text_leaves_them_out():
    text = edited(icub_text(), added(link("l_thumb_1") + joint("l_thumb_oppose", "l_hand", "l_thumb_1", "revolute")))
    assert findings(text, "icub") == set()


@pytest.mark.parametrize("name", ["iCubGenova03", "iCubGenova11", "iCubGazeboV2_5", "iCubErzelli02"])
def test_real_icubs_keep_the_conventions(name):
    assert findings(icub_models.get_model_file(name).read_text(encoding="utf-8"), "icub") == set()


def test_what_real_icubs_call_otherwise_is_found():
    found = findings(icub_models.get_model_file("iCubLisboa01").read_text(encoding="utf-8"), "icub")
    assert found == {("error", "link", "l_foot"), ("error", "link", "r_foot")}
