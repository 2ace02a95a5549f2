"""Each convention's profile: its robots are clean, each broken rule is found, slips of its document are allowed."""

import runpy
from pathlib import Path

import described_robots as made
import icub_models
import pytest
from described_robots import added, edited, findings, hung, joint_set, renamed, robot, stretch_text, without

from stretch_sim_cal.conventions import PROFILES, kept
from stretch_sim_cal.conventions.icub import AXES
from stretch_sim_cal.conventions.profile import lint
from stretch_sim_cal.robot.description import load_model, parse_urdf
from stretch_sim_cal.robot.stretch import available_tools

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "convention_profile.py"
QUARTER = "1.5707963267948966"

SINGLE = robot(made.arm_parts())
WITH_TOOL = robot(
    made.arm_parts() + hung("eef_base_link", "flange", inside=made.BOX) + hung("eef_tcp", "flange")
    + hung("eef_link_1", "eef_base_link", "revolute")
)  # fmt: skip
TWO_GROUPS = robot(
    made.link("world") + made.arm_parts("robot_") + made.arm_parts("positioner_")
    + made.joint("a", "world", "robot_base_link") + made.joint("b", "world", "positioner_base_link", xyz="1 0 0")
)  # fmt: skip
TWO_ARMS = robot(
    made.link("base_link") + hung("base", "base_link") + made.arm_parts("left_") + made.arm_parts("right_")
    + made.joint("l", "base_link", "left_base_link") + made.joint("r", "base_link", "right_base_link")
)  # fmt: skip

BROKEN_STRETCH = [
    (renamed("base_link", "chassis_link"), "base-link", "base_footprint"),
    (joint_set("head_joint", rpy="0 0 0.01"), "rule-1", "head_link"),
    (renamed("arm_l2_link", "middle_link"), "rule-2", "arm_l2_link"),
    (joint_set("arm_l3_joint", parent="arm_l1_link"), "rule-2", "arm_l3_link"),
    (added(hung("arm_l5_link", "arm_l4_link")), "rule-2", "arm_l5_link"),
    (joint_set("lift_joint", axis="0 0 -1"), "rule-3-positive", "lift_joint"),
    (joint_set("wrist_yaw_joint", axis="0 0 2"), "rule-3-unit", "wrist_yaw_joint"),
    (joint_set("wrist_roll_joint", axis="0.8 0.6 0"), "rule-3-primary", "wrist_roll_joint"),
    (joint_set("gripper_camera_joint", rpy="0 0 3.1"), "rule-4-base-x", "gripper_camera_link"),
    (joint_set("camera_left_joint", rpy="1.5707963267949 0.820304748437337 0"), "rule-4-base-z", "camera_left_link"),
    (joint_set("camera_center_optical_joint", rpy="0 0 0"), "rule-4-optical", "camera_center_optical_link"),
    (without("line_sensor_1_optical_link"), "rule-4-optical-missing", "line_sensor_1_link"),
    (joint_set("camera_left_optical_joint", parent="head_link"), "rule-4-optical-parent", "camera_left_optical_link"),
    (joint_set("lidar_left_joint", rpy="0.5 0.5 0.5"), "rule-4-lidar-z", "lidar_left_link"),
    (joint_set("lidar_left_joint", rpy="3.054657 0.7816 -2.39203"), "rule-4-lidar-y", "lidar_left_link"),
    (joint_set("lidar_left_joint", rpy="-2.7417 -0.6956 0.2897"), "rule-4-lidar-x", "lidar_left_link"),
    (without("grasp_center_link"), "rule-5-center-missing", "quick_connect_interface_link"),
    (joint_set("grasp_center_joint", rpy="0 0.1 0"), "rule-5-center", "grasp_center_link"),
    (made.link_given("grasp_center_link", '<visual><geometry><sphere radius="0.01"/></geometry></visual>'),
     "rule-5-virtual", "grasp_center_link"),
    (joint_set("gripper_fingertip_left_joint", rpy="0 0 1.57"), "rule-5-tip-x", "gripper_fingertip_left_link"),
    (renamed("gripper_fingertip_left_link", "pad_left_link"), "rule-5-tip-missing", "gripper_finger_left_link"),
    (joint_set("wheel_2_joint", rpy=f"{QUARTER} 0 0"), "rule-6-z", "wheel_2_link"),
    (joint_set("wheel_2_joint", rpy=f"-{QUARTER} {QUARTER} 0"), "rule-6-x", "wheel_2_link"),
    (joint_set("wheel_1_joint", axis="1 0 0"), "rule-6-axis", "wheel_1_joint"),
    (made.all_of(*(renamed(f"wheel_{n}_link", f"caster_{n}_link") for n in range(3))), "rule-6-numbers", "base_link"),
    (renamed("mast_link", "mast"), "rule-7", "mast"),
    (renamed("wrist_aruco_link", "wrist_link_aruco_link"), "rule-7", "wrist_link_aruco_link"),
]  # fmt: skip

BROKEN_REP199 = [
    (renamed("base_link", "pedestal"), "error", "base_link", "pedestal"),
    (added(made.link("rail") + made.joint("a", "rail", "base_link", "prismatic")), "error", "base_link", "base_link"),
    (without("base"), "error", "base", "base_link"),
    (joint_set("base_link-base", type="continuous"), "error", "base", "base"),
    (made.link_given("base", made.BOX), "error", "no-geometry", "base"),
    (renamed("link_3", "forearm"), "warning", "link_n", "forearm"),
    (made.all_of(renamed("link_2", "x"), renamed("link_3", "link_2"), renamed("x", "link_3")), "warning", "link_n",
     "link_2"),
    (joint_set("joint_4", rpy="1.57 0 0"), "warning", "link_n-rep103", "link_4"),
    (made.all_of(joint_set("flange-tool0", parent="link_6"), without("flange")), "warning", "flange", "link_6"),
    (joint_set("link_6-flange", type="continuous"), "error", "flange", "flange"),
    (joint_set("link_6-flange", rpy="0 0 3.14159265358979"), "error", "flange-x", "flange"),
    (joint_set("link_6-flange", rpy="1 0 0"), "error", "flange-rep103", "flange"),
    (without("tool0"), "error", "tool0", "flange"),
    (joint_set("flange-tool0", type="continuous"), "error", "tool0", "tool0"),
    (joint_set("flange-tool0", parent="link_6"), "info", "tool0-parent", "tool0"),
    (joint_set("flange-tool0", xyz="0 0 0.1"), "info", "tool0-origin", "tool0"),
    (added(hung("tcp", "tool0")), "warning", "tool-sibling", "tcp"),
    (added(hung("tool3", "flange")), "warning", "toolN", "tool3"),
    (added(hung("gripper", "link_6")), "warning", "eef-flange", "gripper"),
    (added(hung("my frame", "flange")), "warning", "ros-names", "my frame"),
    (added(hung("link_2_left_handed", "link_2")), "info", "left-handed", "link_2_left_handed"),
    (made.link_given("link_2", '<visual><geometry><mesh filename="a.stl" scale="1 -1 1"/></geometry></visual>'),
     "warning", "left-handed", "link_2"),
    (renamed("tool0", "TCP"), "info", "vendor-names", "TCP"),
]  # fmt: skip

BROKEN_ICUB = [
    (renamed("l_knee", "l_kneee"), "error", "control-board", "l_knee"),
    (renamed("l_knee", "l_kneee"), "warning", "joint-name", "l_kneee"),
    (joint_set("neck_yaw", type="continuous"), "error", "joint-type", "neck_yaw"),
    (joint_set("l_arm_ft_sensor", type="continuous"), "error", "ft-sensor", "l_arm_ft_sensor"),
    (renamed("r_arm_ft_sensor", "r_arm_bolts"), "info", "ft-sensor", "r_arm_ft_sensor"),
    (renamed("l_upper_leg", "l_thigh"), "error", "link", "l_thigh"),
    (added(made.link("rail") + made.joint("r", "rail", "root_link", "prismatic")), "error", "link", "root_link"),
    (joint_set("r_wrist_pitch", parent="r_elbow_1"), "error", "parent-link", "r_wrist_1"),
    (renamed("r_knee", "r_knee_pitch"), "error", "parent-joint", "r_lower_leg"),
    (joint_set("r_hip_roll", axis="1 0 0.1"), "warning", "axis", "r_hip_roll"),
    (joint_set("l_shoulder_roll", axis="0 0 1"), "error", "axis", "l_shoulder_roll"),
    (joint_set("imu_frame_joint", parent="chest"), "error", "frame", "imu_frame"),
    (made.link_given("imu_frame", made.BOX), "warning", "frame", "imu_frame"),
    (joint_set("l_hand_dh_frame_joint", parent="l_wrist_1"), "error", "skin-frame", "l_hand_dh_frame"),
    (made.element_taken("l_upper_leg", "inertial"), "warning", "link-mass", "l_upper_leg"),
    (made.element_taken("root_link", "visual"), "warning", "link-shape", "root_link"),
    (joint_set("root_frame_joint", rpy="0 0 3.14159265358979"), "error", "axis", "l_hip_pitch"),
    (without("r_forearm_dh_frame"), "info", "skin-frame", "r_forearm_dh_frame"),
]  # fmt: skip

WHOLE = {"stretch": stretch_text, "rep199": lambda: SINGLE, "icub": made.icub_text}
BROKEN = [
    *(("stretch", change, ("error", rule, name)) for change, rule, name in BROKEN_STRETCH),
    *(("rep199", change, tuple(found)) for change, *found in BROKEN_REP199),
    *(("icub", change, tuple(found)) for change, *found in BROKEN_ICUB),
]


@pytest.mark.parametrize(("profile", "change", "finding"), BROKEN)
def test_a_broken_rule_is_found(profile, change, finding):
    assert finding in findings(edited(WHOLE[profile](), change), profile, infos=True)


@pytest.mark.parametrize(
    ("text", "profile"),
    [(text, "rep199") for text in (SINGLE, WITH_TOOL, TWO_GROUPS, TWO_ARMS)] + [(made.icub_text(), "icub")],
    ids=["single", "tool", "groups", "arms", "icub"],
)
def test_the_documents_own_examples_are_clean(text, profile):
    assert findings(text, profile, infos=True) == set()


CALIBRATED = joint_set("base_ref", rpy="0.012 -0.007 0"), joint_set("lidar_right_joint", rpy="-3.0446 0.7816 2.4")
HAND = added(hung("l_thumb_1", "l_hand", "revolute"))
KEPT = {
    **{f"the vendor's robot with {tool}": ("stretch", lambda tool=tool: stretch_text(tool))
       for tool in available_tools()},
    "a calibrated base and lidar": ("stretch", lambda: edited(stretch_text(), *CALIBRATED)),
    "a slip of the document": ("icub", lambda: edited(made.icub_text(), renamed("neck_1", "neck_0"))),
    "hands, which the text leaves out": ("icub", lambda: edited(made.icub_text(), HAND)),
    **{name: ("icub", lambda name=name: icub_models.get_model_file(name).read_text(encoding="utf-8"))
       for name in ("iCubGenova03", "iCubGenova11", "iCubGazeboV2_5", "iCubErzelli02")},
}  # fmt: skip


@pytest.mark.parametrize("title", KEPT)
def test_what_keeps_a_convention_has_infos_at_most(title):
    profile, text = KEPT[title]
    assert findings(text(), profile) == set()


def test_what_the_document_contradicts_is_reported_with_its_reason():
    found = lint(load_model(stretch_text()), PROFILES["stretch"])
    listed = {(each.rule, each.name) for each in found if "listed exception" in each.message}
    assert {
        ("rule-4-lidar-x", "lidar_right_link"), ("rule-4-lidar-y", "lidar_left_link"), ("rule-1", "wheel_0_link"),
        ("rule-5-names", "grasp_center_link"), ("rule-7", "base_ref"), ("rule-7", "laser"),
        ("rule-7", "docking_contact_frame"), ("rule-7", "gripper_left_camera_color_optical_frame"),
    } <= listed  # fmt: skip


def test_the_examples_profile_excuses_the_vendors_robot_and_finds_a_tilted_footprint():
    profile = runpy.run_path(str(EXAMPLE))["MOBILE"]
    found = lint(load_model(stretch_text()), profile)
    assert [(each.level, each.rule) for each in found] == [("info", "virtual")]
    calibrated = edited(stretch_text(), joint_set("base_ref", rpy="0.012 0 0"))
    assert {each.level for each in lint(load_model(calibrated), profile)} == {"info"}
    tilted = edited(stretch_text(), joint_set("base_ref", rpy="0.2 0 0"))
    assert [each.rule for each in lint(load_model(tilted), profile) if each.level == "error"] == ["level"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (robot(made.arm_parts() + made.arm_parts("left_") + made.joint("l", "base_link", "left_base_link")),
         ("warning", "prefix", "flange")),
        (edited(TWO_ARMS, renamed("left_link_3", "arm_link_3")), ("warning", "prefix", "arm_link_3")),
        (edited(TWO_ARMS, without("left_tool0")), ("error", "tool0", "left_flange")),
    ],
)  # fmt: skip
def test_arms_are_distinguished_by_their_prefixes(text, found):
    assert found in findings(text, "rep199")


def test_a_base_without_an_arm_is_asked_for_nothing_and_keeps_no_convention():
    parts = made.link("base_link")
    for side in ("left", "right"):
        parts += hung(f"{side}_spring", "base_link", "prismatic") + hung(
            f"{side}_wheel", f"{side}_spring", "continuous"
        )
    base = robot(parts)
    assert findings(base, "rep199", infos=True) == {("info", "silent", "base_link")}
    assert kept(parse_urdf(base)) is None
    armed = robot(parts + hung("arm", "base_link", "revolute"))
    assert ("error", "tool0") in {each[:2] for each in findings(armed, "rep199")}


def test_every_axis_of_the_table_is_checked():
    for name, axis in AXES.items():
        reverse = joint_set(name, axis=" ".join(str(-value) for value in axis))
        level = "info" if name == "torso_roll" else "error"
        assert findings(edited(made.icub_text(), reverse), "icub", infos=True) == {(level, "axis", name)}


def test_a_missing_board_is_no_fault_and_half_a_board_is():
    headless = edited(made.icub_text(), without("imu_frame"), without("head"), without("neck_2"))
    assert {found for found in findings(headless, "icub") if found[1] == "control-board"} == {
        ("error", "control-board", "neck_roll"), ("error", "control-board", "neck_yaw"),
    }  # fmt: skip
    assert ("info", "control-board", "head") in findings(edited(headless, without("neck_1")), "icub", infos=True)


def test_what_real_icubs_call_otherwise_is_found():
    found = findings(icub_models.get_model_file("iCubLisboa01").read_text(encoding="utf-8"), "icub")
    assert found == {("error", "link", "l_foot"), ("error", "link", "r_foot")}
