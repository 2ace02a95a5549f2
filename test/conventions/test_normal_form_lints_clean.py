"""What `normalize` writes, `lint` has nothing to say about: for robots made at random, every profile, also prefixed."""

import icub_models
import numpy as np
import pytest
from described_robots import (
    added,
    arm_parts,
    edited,
    findings,
    icub_text,
    joint,
    joint_set,
    link,
    renamed,
    robot,
    stretch_text,
    text_of,
    without,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from random_robots import prefixed, random_arm, random_icub, random_stretch, random_tree

from stretch_sim_cal.conventions import PROFILES, normalized_files
from stretch_sim_cal.conventions.normal_form import Options, description, normalized, read_description
from stretch_sim_cal.conventions.profile import INFO, Finding, lint
from stretch_sim_cal.robot.description import load_model, parse_urdf

TOOLS = ("eoa_wrist_dw4_tool_sg4", "eoa_wrist_dw4_tool_pg4", "eoa_wrist_dw4_tool_nil")
SEEDS = st.integers(0, 2**32 - 1)
INCOMPLETE = {"rule-2", "rule-6-numbers", "rule-6-axis", "rule-4-optical-parent", "rule-4-place", "rule-6-place"}
"""What neither a name nor a turned frame settles: no arm, no wheels, a wheel that does not roll, a frame astray, a
lidar or wheel in the middle of the robot."""
AS_BUILT = {"rule-6-line"}
"""What the mechanism is: a wheel's axis that misses the base's centre."""


def said(found: list[Finding], prefix: str = "") -> set[tuple[str, str]]:
    return {(each.rule, each.name.removeprefix(prefix)) for each in found if each.level != INFO}


def assert_clean(text: str, profile: str, folder, accepted=frozenset()) -> None:
    """Normalize a robot; hold what is written against its profile, as it is, with a prefix, and normalized again."""
    options = Options(profile, number_links=profile == "rep199")
    normal = normalized(description(text), options)
    (main, *_), departure = normalized_files.write(normal, folder)
    assert departure <= 1e-9
    left = said(lint(load_model(main), PROFILES[profile]))
    assert {rule for rule, _ in left} <= accepted and left == said(normal.remaining)
    assert said(lint(load_model(main, {"prefix": "second_"}), PROFILES[profile]), "second_") == left
    assert normalized(read_description(main), options).unchanged
    other = normalized(description(prefixed(text, "p_")), options)
    assert said(other.remaining, "p_") == left and all(name.startswith("p_") for name in other.links.values())


@settings(max_examples=3, deadline=None)
@given(SEEDS, st.sampled_from(TOOLS))
def test_any_stretch(tmp_path_factory, seed, tool):
    text = random_stretch(np.random.default_rng(seed), tool)
    assert_clean(text, "stretch", tmp_path_factory.mktemp("out"), AS_BUILT)


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_any_tree_of_links_with_a_stretchs_names(tmp_path_factory, seed):
    text = random_tree(np.random.default_rng(seed))
    assert_clean(text, "stretch", tmp_path_factory.mktemp("out"), AS_BUILT | INCOMPLETE)


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_any_serial_arm(tmp_path_factory, seed):
    assert_clean(random_arm(np.random.default_rng(seed)), "rep199", tmp_path_factory.mktemp("out"))


@settings(max_examples=3, deadline=None)
@given(SEEDS)
def test_any_icub(tmp_path_factory, seed):
    assert_clean(random_icub(np.random.default_rng(seed)), "icub", tmp_path_factory.mktemp("out"))


@pytest.mark.parametrize("name", ["iCubLisboa01", "iCubGazeboV2_5"])
def test_a_real_icub(name, tmp_path):
    text = icub_models.get_model_file(name).read_text(encoding="utf-8")
    assert_clean(text, "icub", tmp_path)


def normal_text(text: str, options: Options = Options()) -> str:
    return text_of(normalized(description(text), options))


def test_an_oblique_wrist_axis_is_turned_by_rule_3_and_excused_by_rule_1():
    oblique = edited(stretch_text(), joint_set("wrist_pitch_joint", "axis", xyz="0.1 0.99 0"))
    assert ("error", "rule-3-primary", "wrist_pitch_joint") in findings(oblique, "stretch")
    text = normal_text(oblique)
    assert findings(text, "stretch") == set()
    assert ("info", "rule-1-oblique", "wrist_pitch_link") in findings(text, "stretch", infos=True)
    # Turned otherwise than Rule 3 asks, it breaks Rule 1.
    askew = edited(text, joint_set("wrist_pitch_joint", "origin", rpy="0.05 0 0.1"))
    assert ("error", "rule-1", "wrist_pitch_link") in findings(askew, "stretch")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("grasp_center_link", "link_grasp_center"), ("lidar_left_link", "link_lidar_left"),
        ("gripper_fingertip_left_link", "link_fingertip_left"),
    ],
)  # fmt: skip
def test_a_name_that_needs_no_change_gets_none(old, new):
    other = edited(stretch_text(), renamed("link", old, new))
    assert findings(other, "stretch") == set()
    assert normalized(description(other), Options()).unchanged


def test_upright_base_frames_of_the_head_cameras_are_found_and_turned():
    upright = edited(stretch_text(), joint_set("camera_right_joint", "origin", rpy="0 0.820304748437337 0"))
    assert findings(upright, "stretch") == {("error", "rule-4-base-z", "camera_right_link")}
    assert findings(normal_text(upright), "stretch") == set()


def test_a_grasp_centre_follows_an_oblique_wrist_roll():
    oblique = edited(stretch_text(), joint_set("wrist_roll_joint", "axis", xyz="0.99 0.1 0"))
    assert findings(normal_text(oblique), "stretch") == set()


def test_a_wheel_with_an_upright_axis_is_no_wheel():
    upright = edited(stretch_text(), joint_set("wheel_0_joint", "axis", xyz="0 1 0"))
    assert parse_urdf(upright).joints["wheel_0_joint"].axis.tolist() == [0, 1, 0]
    assert ("error", "rule-6-axis", "wheel_0_joint") in findings(upright, "stretch")
    normal = normalized(description(upright), Options())
    assert normal.links["wheel_0_link"] == "other_wheel_0_link"
    assert sorted(name for name in normal.links.values() if name.startswith("wheel")) == [
        "wheel_0_link",
        "wheel_1_link",
    ]
    assert not said(normal.remaining)


def test_a_prefixed_robot_is_held_against_the_convention_without_its_prefix():
    assert findings(prefixed(stretch_text(), "left_"), "stretch") == set()
    broken = prefixed(edited(stretch_text(), joint_set("lift_joint", "axis", xyz="0 0 -1")), "left_")
    assert findings(broken, "stretch") == {("error", "rule-3-positive", "left_lift_joint")}


def test_a_prefixed_robot_keeps_its_prefix_and_its_tool_file(tmp_path):
    normal = normalized(description(prefixed(stretch_text(), "left_")), Options())
    files, _ = normalized_files.write(normal, tmp_path, "sg4")
    assert "sg4.tool.xacro" in {file.name for file in files}
    assert "left_quick_connect_interface_link" not in load_model(files[0], {"tool": "none"}).links


def other_names(text: str) -> str:
    words = ("shoulder", "upper_arm", "elbow", "forearm", "wrist", "hand")
    return edited(text, *(renamed("link", f"link_{number}", word) for number, word in enumerate(words, 1)))


def test_the_links_of_an_arm_are_numbered_and_turned_on_request():
    plain = other_names(robot(arm_parts()))
    kept = normalized(description(plain), Options("rep199"))
    assert kept.unchanged and said(kept.remaining) == {("link_n", name) for name in list(kept.links)[2:8]}
    turned = edited(plain, joint_set("joint_4", "origin", rpy="1.5 0 0"))
    text = normal_text(turned, Options("rep199", number_links=True))
    assert findings(text, "rep199", infos=True) == set()
    assert [name for name in parse_urdf(text).links if name.startswith("link_")] == [f"link_{n}" for n in range(1, 7)]


def test_a_flange_that_points_elsewhere_is_turned_and_what_it_holds_stays():
    askew = edited(robot(arm_parts()), joint_set("link_6-flange", "origin", rpy="0.3 0.2 1"))
    assert ("error", "flange-x", "flange") in findings(askew, "rep199")
    assert findings(normal_text(askew, Options("rep199")), "rep199") == set()


def test_a_link_that_has_an_arms_number_gets_another_name():
    spare = added(link("link_2") + joint("spare", "base_link", "link_2"))
    text = edited(other_names(robot(arm_parts())), spare)
    normal = normalized(description(text), Options("rep199", number_links=True))
    assert normal.links["link_2"] == "other_link_2" and normal.links["upper_arm"] == "link_2"


def test_an_icub_gets_its_axes_signs_and_its_missing_frames():
    changed = edited(
        icub_text(), joint_set("l_knee", "axis", xyz="0 -1 0"), joint_set("torso_roll", "axis", xyz="1 0 0"),
        without("root_frame"), without("imu_frame"), without("l_leg_ft_frame"),
    )  # fmt: skip
    normal = normalized(description(changed), Options("icub"))
    assert (normal.joints["l_knee"].sign, normal.joints["torso_roll"].sign) == (-1, 1)
    assert {frame.link: frame.parent for frame in normal.added} == {
        "root_frame": "root_link", "imu_frame": "head", "l_leg_ft_frame": "l_hip_3",
    }  # fmt: skip
    assert "measure it" in next(frame.reason for frame in normal.added if frame.link == "imu_frame")
    assert not said(normal.remaining)
    knee = parse_urdf(text_of(normal)).joints["l_knee"]
    assert (knee.limit.lower, knee.limit.upper) == (-2.0, 1.0)
