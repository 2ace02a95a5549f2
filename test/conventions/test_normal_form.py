"""The normalizer: scrambled robots come back as the same mechanism, rules kept; what would move anything is refused."""

from xml.etree import ElementTree

import described_robots as made
import icub_models
import numpy as np
import pytest
import yaml
from described_robots import added, edited, findings, joint_set, renamed, robot, stretch_text, text_of, without
from hypothesis import example, given
from hypothesis import strategies as st

from stretch_sim_cal.conventions import PROFILES, normalized_files
from stretch_sim_cal.conventions.normal_form import Options, description, normalized, read_description
from stretch_sim_cal.conventions.profile import INFO, Finding, lint
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.description import load_model, parse_urdf
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.urdf_elements import numbers, roll_pitch_yaw

SG4, PG4, NIL = "eoa_wrist_dw4_tool_sg4", "eoa_wrist_dw4_tool_pg4", "eoa_wrist_dw4_tool_nil"


@pytest.mark.parametrize(("tool", "seed"), [(SG4, 1), pytest.param(SG4, 2, marks=pytest.mark.long), (PG4, 4)])
def test_a_scrambled_stretch_comes_back(tool, seed, tmp_path):
    original = load_model(stretch_text(tool))
    crooked = made.scrambled(stretch_text(tool), seed)
    assert findings(crooked, "stretch")

    normal = normalized(description(crooked), Options())
    (main, *_), departure = normalized_files.write(normal, tmp_path / "out")
    restored = load_model(main)

    assert departure <= 1e-9  # of shapes, masses and joints, at random positions
    assert all(each.level == "info" for each in normal.remaining)
    assert findings(text_of(normal), "stretch") == set()
    # The parallel gripper has no fingertip frames, and those of its fingers are past telling.
    missing = {"fingertip_left_link", "fingertip_right_link"} if tool == PG4 else set()
    assert set(restored.links) == set(original.links) | missing
    there, here = link_transforms(original), link_transforms(restored)
    for name in ("lift_link", "arm_l3_link", "wrist_roll_link", "wheel_1_link", "camera_left_link", "lidar_left_link",
                 "camera_center_optical_link", "lidar_right_link", "line_sensor_3_link",
                 "gripper_left_camera_color_optical_frame"):  # fmt: skip
        np.testing.assert_allclose(here[name], there[name], atol=1e-9, err_msg=name)


def test_sensors_that_no_rule_can_turn_are_guessed_on_request_and_marked_so():
    crooked = made.scrambled(stretch_text(NIL), 6, sensors_too=True)
    stays = normalized(description(crooked), Options())
    assert not {"camera_left_link", "lidar_left_link"} & set(stays.reasons)
    assert {"camera_left_link", "lidar_left_link"} <= {each.name for each in stays.remaining if each.level == "error"}
    normal = normalized(description(crooked), Options(guess_sensors=True))
    text = text_of(normal)
    assert findings(text, "stretch") == set()
    assert "measure it" in normal.reasons["camera_left_link"] and "measure it" in normal.reasons["lidar_left_link"]
    assert normalized(description(text), Options()).unchanged


@pytest.mark.parametrize("tool", [SG4, PG4, NIL])
def test_the_vendors_model_stays_as_it_is(tool):
    given = description(stretch_text(tool))
    normal = normalized(given, Options())
    assert normal.unchanged and "Nothing was changed" in normalized_files.report_text(normal)
    before, after = (ElementTree.tostring(root) for root in (given.root, normal.root))
    assert ElementTree.canonicalize(after, strip_text=True) == ElementTree.canonicalize(before, strip_text=True)


def test_the_xacro_takes_a_tool_a_prefix_and_a_folder_of_meshes(tmp_path):
    (main, tool, *_), _ = normalized_files.write(
        normalized(description(stretch_text()), Options()), tmp_path / "out", "sg4"
    )
    assert (main.name, tool.name) == ("stretch.urdf.xacro", "sg4.tool.xacro")
    bare = load_model(main, {"tool": "none"})
    assert "quick_connect_interface_link" not in bare.links and "tool_attachment_site_link" in bare.links
    second = load_model(main, {"prefix": "second_", "mesh_dir": "file:///elsewhere"})
    assert all(name.startswith("second_") for name in (*second.links, *second.joints))
    assert str(second.links["second_mast_link"].visuals[0].path) == "/elsewhere/mast_link.STL"
    assert second.links["second_gripper_finger_left_link"].visuals[0].path.is_file()


def test_a_tool_is_attached(tmp_path):
    part = made.link("claw_link", '<visual><geometry><mesh filename="meshes/claw.stl"/></geometry></visual>')
    text = f'<robot name="claw">{made.link("quick_connect_interface_link")}{part}' + made.joint(
        "claw_joint", "quick_connect_interface_link", "claw_link", "revolute", axis="0 0 -1"
    )
    (tmp_path / "claw.urdf").write_text(text + "</robot>")
    tool = read_description(tmp_path / "claw.urdf")
    normal = normalized(description(stretch_text(NIL)), Options(tool=tool))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    files, _ = normalized_files.write(normal, tmp_path / "out", "claw")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine" and all(file.is_file() for file in files)
    model = load_model(files[0])
    assert model.parent_joints["quick_connect_interface_link"].parent == "tool_attachment_site_link"
    assert model.joints["claw_joint"].axis.tolist() == [0, 0, 1]
    assert model.links["claw_link"].visuals[0].path == tmp_path / "meshes" / "claw.stl"
    with pytest.raises(InputError, match="carries quick_connect_interface_link already"):
        normalized(description(stretch_text(SG4)), Options(tool=tool))


def test_a_negated_axis_swaps_limits_and_carries_followers_along(tmp_path):
    normal = normalized(description(made.with_leader_and_follower()), Options(zeros={"slider_joint": 0.04}))
    (main, mapping_file, report), departure = normalized_files.write(normal, tmp_path / "out")
    model = load_model(main)
    leader, follower = model.joints["slider_joint"], model.joints["follower_joint"]
    assert leader.axis.tolist() == [0, 0, 1]
    assert (leader.limit.lower, leader.limit.upper) == pytest.approx((-0.06, 0.34))
    assert follower.mimic.multiplier == -3 and follower.mimic.offset == pytest.approx(0.32)
    text = main.read_text()
    assert 'soft_lower_limit="-0.01' in text and 'rising="0.02"' in text
    mapping = yaml.safe_load(mapping_file.read_text())["joints"]["slider_joint"]
    assert mapping == {"name": "slider_joint", "sign": -1, "offset": 0.04}
    assert "polarity" in report.read_text() and departure <= 1e-9


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda root: root.find("link[@name='lift_link']/inertial/mass").set("value", "2.7"), "lift_link"),
        (lambda root: root.find("link[@name='mast_link']/collision/origin").set("xyz", "0 0 0.000000002"), "mast_link"),
        (made.element_taken("head_link", "visual"), "head_link"),
        (joint_set("wrist_yaw_joint", axis="0 0 -1"), "wrist_yaw_link|wrist_pitch_link"),
        (joint_set("lift_joint", upper="1.3"), "lift_joint"),
    ],
)
def test_what_is_not_the_same_mechanism_is_refused_and_nothing_is_written(change, named, tmp_path):
    normal = normalized(description(stretch_text()), Options())
    change(normal.root)
    with pytest.raises(Refused, match=named):
        normalized_files.write(normal, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


REP199_FRAMES = ("tool0", "flange", "base")


def test_rep199_frames_are_added_to_a_chain_whatever_its_links_are_called():
    bare = robot(made.arm_parts())
    numbered = [name for name in parse_urdf(bare).order if name.startswith("link_")]
    other_names = [renamed(name, f"segment_{index}") for index, name in enumerate(numbered)]
    text = edited(bare, *map(without, REP199_FRAMES), *other_names)
    normal = normalized(description(text), Options("rep199"))
    assert [(frame.link, frame.parent) for frame in normal.added][1] == ("flange", f"segment_{len(numbered) - 1}")
    forked = edited(text, added(made.hung("thumb", "base_link", "revolute")))
    with pytest.raises(InputError, match="not a single chain"):
        normalized(description(forked), Options("rep199"))


@given(st.lists(st.floats(-10.0, 10.0), min_size=3, max_size=3))
@example([0.3, np.pi / 2, 0.0])
@example([1.0, -np.pi / 2 + 1e-10, 2.0])  # two angles turn about one line
def test_any_rotation_is_written_exactly(rpy):
    rotation = from_xyz_rpy((0, 0, 0), rpy)[:3, :3]
    written = [float(word) for word in numbers(roll_pitch_yaw(rotation)).split()]
    np.testing.assert_allclose(from_xyz_rpy((0, 0, 0), written)[:3, :3], rotation, atol=1e-11)


# What `normalize` writes, `lint` has nothing to say about: for robots made at random, every profile, also prefixed.


def seeds(few: int, many: int) -> list:
    """Return `many` seeds, all but a `few` of which are marked long."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(few, many))]


INCOMPLETE = {"rule-2", "rule-6-numbers", "rule-6-axis", "rule-4-optical-parent", "rule-4-place", "rule-6-place"}
"""What neither a name nor a turned frame settles: no arm, no wheels, a wheel that does not roll, a frame astray, a
lidar or wheel in the middle of the robot."""
AS_BUILT = {"rule-6-line"}  # what the mechanism is: a wheel's axis that misses the base's centre


def problems(found: list[Finding], prefix: str = "") -> set[tuple[str, str]]:
    return {(each.rule, each.name.removeprefix(prefix)) for each in found if each.level != INFO}


def assert_clean(text: str, profile: str, folder, accepted=frozenset()) -> None:
    """Normalize a robot; hold what is written against its profile, as it is, with a prefix, and normalized again."""
    options = Options(profile, number_links=profile == "rep199", guess_sensors=True)
    normal = normalized(description(text), options)
    (main, *_), departure = normalized_files.write(normal, folder)
    assert departure <= 1e-9
    left = problems(lint(load_model(main), PROFILES[profile]))
    assert {rule for rule, _ in left} <= accepted and left == problems(normal.remaining)
    assert problems(lint(load_model(main, {"prefix": "second_"}), PROFILES[profile]), "second_") == left
    assert normalized(read_description(main), options).unchanged
    other = normalized(description(made.prefixed(text, "p_")), options)
    assert problems(other.remaining, "p_") == left and all(name.startswith("p_") for name in other.links.values())


@pytest.mark.parametrize("seed", seeds(2, 3))
def test_any_stretch(tmp_path, seed):
    text = made.random_stretch(np.random.default_rng(seed), (SG4, PG4, NIL)[seed])
    assert_clean(text, "stretch", tmp_path / "out", AS_BUILT)


@pytest.mark.parametrize("seed", seeds(3, 15))
def test_any_tree_of_links_with_a_stretchs_names(tmp_path, seed):
    text = made.random_tree(np.random.default_rng(seed))
    assert_clean(text, "stretch", tmp_path / "out", AS_BUILT | INCOMPLETE)


@pytest.mark.parametrize("seed", seeds(3, 15))
def test_any_serial_arm(tmp_path, seed):
    assert_clean(made.random_arm(np.random.default_rng(seed)), "rep199", tmp_path / "out")


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_any_icub(tmp_path, seed):
    assert_clean(made.random_icub(np.random.default_rng(seed)), "icub", tmp_path / "out")


@pytest.mark.parametrize("name", ["iCubLisboa01", pytest.param("iCubGazeboV2_5", marks=pytest.mark.long)])
def test_a_real_icub(name, tmp_path):
    assert_clean(icub_models.get_model_file(name).read_text(encoding="utf-8"), "icub", tmp_path)


def test_an_icub_gets_the_names_axes_and_frames_of_the_tables():
    crooked = edited(
        made.icub_text(), renamed("l_knee", "LeftKnee"), renamed("l_lower_leg", "shin_left"),
        renamed("root_link", "pelvis"), renamed("r_wrist_prosup", "right_wrist_prosup_joint"),
        joint_set("LeftKnee", axis="0 -1 0"), joint_set("torso_roll", axis="1 0 0"),
        *map(without, ("root_frame", "imu_frame", "l_leg_ft_frame")),
    )  # fmt: skip
    normal = normalized(description(crooked), Options("icub"))
    assert not problems(normal.remaining) and normal.links["shin_left"] == "l_lower_leg"
    knee, torso = (normal.joints[name] for name in ("LeftKnee", "torso_roll"))
    assert (knee.name, knee.sign, torso.sign) == ("l_knee", -1, 1)
    assert {frame.link: frame.parent for frame in normal.added} == {
        "root_frame": "root_link", "imu_frame": "head", "l_leg_ft_frame": "l_hip_3",
    }  # fmt: skip
    assert "measure it" in next(frame.reason for frame in normal.added if frame.link == "imu_frame")
    limit = parse_urdf(text_of(normal)).joints["l_knee"].limit
    assert (limit.lower, limit.upper) == (-2.0, 1.0)
