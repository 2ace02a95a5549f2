"""Robot profiles: what stands where none is named, and what a bad one is told."""

from pathlib import Path

import numpy as np
import pytest
import trimesh
import yaml

from stretch_sim_cal import files
from stretch_sim_cal.calibration.surfaces import on_body
from stretch_sim_cal.cli import main
from stretch_sim_cal.commands.schema import MODELINE
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.harness.scenario import load_scenario, with_changes
from stretch_sim_cal.recording import JOINTS
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import load_profile, profile_from_mapping, stretch_profile
from stretch_sim_cal.robot.surfaces import body_settings, outline_surfaces, robot_surfaces
from stretch_sim_cal.ros.node_commands import NODE_COMMANDS

pytestmark = pytest.mark.usefixtures("cache")

PROFILES = files.share_directory() / "config" / "robots"
AMR = yaml.safe_load((PROFILES / "two_lidar_amr.yaml").read_text()) | {
    "description": {"file": str(files.share_directory() / "models" / "two_lidar_amr.urdf.xacro")}
}


def test_nodes_and_commands_know_the_names_of_the_stretchs_profile():
    defaults = stretch_profile().node_defaults
    for command in NODE_COMMANDS.values():
        for option in command.options:
            if option.name in defaults and option.default is not None:
                assert option.default == defaults[option.name], (command.executable, option.name)
    assert stretch_profile().planned_names == JOINTS


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.yaml")))
def test_every_profile_fits_its_description(name):
    robot = spawned_robot(named_robot(name))
    assert robot.notes[0].startswith("convention: ")
    assert len(robot.profile.lidar_links(robot.model)) == len(robot.profile.lidars)


def test_a_housing_that_is_a_link_is_seen_by_no_ray_and_belongs_to_the_body():
    robot = spawned_robot(named_robot("two_lidar_amr"))
    lidars = {"lidar_left_link", "lidar_right_link"}
    assert not lidars & set(robot_surfaces(robot.model, robot.profile))
    assert lidars <= set(outline_surfaces(robot.model, robot.profile))


def test_lidars_see_the_shapes_that_the_profile_names(tmp_path):
    description = """<robot name="r">
      <link name="base_link"><collision><geometry><box size="{0} 1 1"/></geometry></collision>
      <visual><geometry><box size="{1} 1 1"/></geometry></visual></link>
      <link name="mast"><collision><geometry><box size="0.1 0.1 {0}"/></geometry></collision></link>
      <joint name="fixed" type="fixed"><parent link="base_link"/><child link="mast"/></joint></robot>"""
    model, scan = parse_urdf(description.format(1.0, 1.2)), tmp_path / "scan.urdf"
    scan.write_text(description.format(1.3, 1.4).replace('"mast"', '"pole"'))

    def profile(geometry):
        return profile_from_mapping(AMR | {"lidar_geometry": geometry}, tmp_path / "robot.yaml")

    widths = {}
    for geometry in ("collision", "visual", "scan.urdf"):
        surfaces = outline_surfaces(model, profile(geometry))
        size = {link: np.ptp(surfaces[link].vertices, axis=0) for link in ("base_link", "mast")}
        widths[geometry] = [float(size["base_link"][0]), float(size["mast"][2])]
    # What has no visual shape, and what was not scanned, is seen by its collision shape.
    assert widths == {"collision": [1.0, 1.0], "visual": [1.2, 1.0], "scan.urdf": [1.3, 1.0]}
    with pytest.raises(InputError, match="lidar_geometry: 'other.urdf' is neither a file nor one of collision, visual"):
        profile("other.urdf")
    (tmp_path / "box.stl").write_bytes(trimesh.creation.box((1.5, 1.0, 1.0)).export(file_type="stl"))
    mesh = scan.read_text().replace('<box size="1.3 1 1"/>', '<mesh filename="package://own/box.stl"/>')
    (tmp_path / "mesh.urdf").write_text(mesh)
    own = {"description": AMR["description"] | {"packages": {"own": "."}}, "lidar_geometry": "mesh.urdf"}
    surfaces = outline_surfaces(model, profile_from_mapping(AMR | own, tmp_path / "robot.yaml"))
    assert np.ptp(surfaces["base_link"].vertices[:, 0]) == pytest.approx(1.5)
    scan.write_text(scan.read_text().replace('"base_link"', '"tail"'))
    with pytest.raises(InputError, match="has no shapes for the links of 'r'"):
        outline_surfaces(model, profile("scan.urdf"))


TWO = "left: {frame: lidar_left_link}, right: {frame: lidar_right_link}"
WHEEL = "{command: wheel_left_joint, limits: [-1, 1]}"
BAD = {
    "description: null": "description: is missing",
    "description: 'package://nowhere/a.urdf'": "package 'nowhere' is not found",
    "convention: ours": "convention: is 'ours'",
    "lidarz: 1": "did you mean lidars?",
    "base_frame: base_lnk": "base_frame: the description has no link 'base_lnk'; did you mean base_link",
    "lidars: {left: {frame: lidar_left_link, housing: {link: base_link, radius: 0.1}}}":
        "lidars: left: housing: heights: is missing",
    "lidars: {left: {frame: lidar_left_link}, right: {frame: laser}}": "lidars: right: frame",
    "lidars: {right: {frame: lidar_left_link}}": "lidars: left: is missing",
    "lidars: {left: {topic: /points}}": "lidars: left: frame: is missing",
    "lidars: {left: {frame: lidar_left_link}, right: {frame: lidar_left_link}}":
        "lidars: frame: is 'lidar_left_link' for both lidars",
    "lidars: {left: {frame: lidar_left_link}, mast: {frame: lidar_right_link}}":
        "lidars: right: is missing; the first two lidars are left and right, 'mast' a third",
    "lidars: {TWO, mast: {frame: lidar_left_link}}": "lidars: frame: is 'lidar_left_link' for the lidars left and mast",
    "lidars: {TWO, mast: {frame: base_footprint, sensor: no_mast}}": "no_mast",
    "sensor: 'os0_32,xt32'": "sensor: is 'os0_32,xt32'; name the sensor of each",
    "joints: {a: {command: wheel_left_joint, step: 0}}": "joints: a: step: is 0; expected a value from",
    "joints: {a: {tie: both}}": "joints: a: tie: is 'both', use one of sum, equal",
    "joints: {a: {command: wheel_left_joint}, b: {command: wheel_left_joint}}":
        "'wheel_left_joint' occurs twice, under a and b",
    "joints: {a: {command: x, parts: [y]}, b: {command: y, parts: [x]}}":
        "joints: a: parts: the joints depend on each other in a cycle: x -> y -> x",
    "joints: {a: {command: wheel_left_joint}}": "joints: a: has no limits",
    "{joints: {left: WHEEL}, stow: {left: 2.0}}": "stow: wheel_left_joint: 2 is not within its limits",
    "{joints: {left: WHEEL}, plans: {quick: {right: [0]}}}": "plans: quick: right: is not one of the joints",
    "body: {radius: 0.4}": "body: height: is None; expected a number",
    "accept: {translation_mm: 0, rotation_deg: 1}": "accept: translation_mm: is 0",
}  # fmt: skip


@pytest.mark.parametrize("changes, told", BAD.items(), ids=BAD)
def test_a_bad_profile_is_answered_with_one_line_that_names_the_key(tmp_path, capsys, changes, told):
    data = AMR | yaml.safe_load(changes.replace("TWO", TWO).replace("WHEEL", WHEEL))
    line = refusal(tmp_path, capsys, {key: value for key, value in data.items() if value is not None})
    assert told in line and "bad.yaml" in line


def described_otherwise(folder, old, new):
    """Write the AMR's description with something else in it, and return the file."""
    text = Path(AMR["description"]["file"]).read_text()
    assert old in text
    (folder / "robot.urdf.xacro").write_text(text.replace(old, new))
    return str(folder / "robot.urdf.xacro")


def refusal(folder, capsys, data):
    """Return the line with which a run of a robot of this profile is refused."""
    (folder / "bad.yaml").write_text(yaml.safe_dump(data))
    assert main(["run", "empty_hall", "--robot", str(folder / "bad.yaml"), "--out", str(folder / "out")]) == 2
    assert not (folder / "out").exists()
    [line] = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    "old, new, told",
    [
        ('xyz="0 0 ${post + 0.036}"', 'xyz="0 0 -0.1"', "lidars: left: frame: 'lidar_left_link' lies inside the body"),
        ('<box size="0.05 0.05 ${post}"/>', '<mesh filename="gone.stl"/>', "gone.stl: No such file"),
        ('"post_${side}_joint" type="fixed"', '"post_${side}_joint" type="continuous"', "moves with the joint"),
    ],
    ids=["a lidar inside the body", "a missing mesh", "a lidar on an arm"],
)
def test_a_description_that_does_not_do_is_answered_with_one_line(tmp_path, capsys, old, new, told):
    assert told in refusal(tmp_path, capsys, AMR | {"description": described_otherwise(tmp_path, old, new)})


def test_the_body_is_what_the_stowed_robots_description_has_unless_the_profile_has_a_cylinder():
    assert body_settings(stretch_profile(), None, pytest.fail) == {"body_radius": 0.4, "body_height": 1.8}
    robot, said = spawned_robot(named_robot("two_lidar_manipulator")), []
    body = body_settings(robot.profile, robot.text, pytest.fail)["body"]
    stowed = robot.profile.joint_positions(robot.model, robot.profile.stowed)
    for positions, on_it in ((stowed, True), ({}, False)):
        base_from_wrist = link_transform(robot.model, positions, "ur_link_6", robot.profile.base_frame)
        wrist = apply(base_from_wrist, outline_surfaces(robot.model, robot.profile)["ur_link_6"].vertices)
        assert on_body(wrist, body).all() == on_it
    assert body_settings(robot.profile, None, said.append) == {} and "no /robot_description" in said[0]


@pytest.mark.parametrize("size, off, said", [
    (500.0, 0.4, "link 'base_link': is 500 m in size; give it in m"),
    (0.5, 220.0, "joint 'lidar_joint': its origin is 220 m off; give it in m"),
])  # fmt: skip
def test_a_robot_in_mm_is_named_before_its_shapes_are_sampled(size, off, said):
    model = parse_urdf(
        f'<robot name="cart"><link name="base_link"><collision><geometry><box size="{size} 0.4 0.3"/></geometry>'
        '</collision></link><link name="laser"/><joint name="lidar_joint" type="fixed"><parent link="base_link"/>'
        f'<child link="laser"/><origin xyz="{off} 0 0"/></joint></robot>'
    )
    with pytest.raises(InputError, match=said):
        outline_surfaces(model, named_robot("two_lidar_amr"))


def test_a_tie_shares_its_value_or_gives_it_to_each(tmp_path):
    shared = {"command": "both", "parts": ["wheel_left_joint", "wheel_right_joint"], "limits": [-1, 1]}
    model = spawned_robot(named_robot("two_lidar_amr")).model
    for tie, value in (("sum", 0.2), ("equal", 0.4)):
        profile = profile_from_mapping(AMR | dict(joints={"both": shared | {"tie": tie}}), tmp_path / "tied.yaml")
        positions = profile.joint_positions(model, {"both": 0.4})
        assert positions == {"wheel_left_joint": value, "wheel_right_joint": value}
        assert profile.commanded_positions(model, positions) == profile.named_positions(positions) == {"both": 0.4}


def test_a_profile_that_was_changed_is_read_anew(tmp_path):
    path = tmp_path / "amr.yaml"
    for sensor in ("os0_32", "xt32"):
        path.write_text(yaml.safe_dump(AMR | {"sensor": sensor}))
        assert load_profile(path).sensor == sensor


def test_init_says_what_it_cannot_guess_and_overwrites_nothing(tmp_path, capsys):
    source = AMR["description"]["file"]
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    out = tmp_path / "link" / "amr.yaml"
    assert main(["robot", "init", source, "--sensor", "os0_32", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "open: lidars: topic" in told and "joints: none moves a large part" in told
    profile = load_profile(out)
    assert (
        tuple(each.frame for each in profile.lidars.values()) == ("lidar_left_link", "lidar_right_link")
        and not profile.planned
    )
    assert out.read_text().startswith(f"{MODELINE}{(PROFILES.parent / 'schema' / 'profile.json').as_uri()}\n")
    assert main(["robot", "init", source, "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_init_asks_for_the_lidars_if_they_are_not_two(tmp_path, capsys):
    description = described_otherwise(tmp_path, "lidar_${side}_link", "eye_${side}_link")
    arguments = ["robot", "init", description, "--sensor", "os0_32"]
    assert main(arguments) == 2
    assert "0 links could be lidars" in capsys.readouterr().err
    assert main([*arguments, "--left", "eye_left_link", "--right", "eye_right_link"]) == 0
    assert tuple(each.frame for each in load_profile(tmp_path / "robot.yaml").lidars.values()) == (
        "eye_left_link",
        "eye_right_link",
    )


def test_init_makes_a_profile_of_one_lidar_of_a_description_that_has_no_other(tmp_path, capsys):
    text = Path(AMR["description"]["file"]).read_text()
    right = next(line for line in text.splitlines() if '<xacro:lidar side="right"' in line)
    assert main(["robot", "init", described_otherwise(tmp_path, right, ""), "--sensor", "os0_32"]) == 0
    told = capsys.readouterr().out
    assert "lidars: one, lidar_left_link" in told and "open: lidars: one was found" in told
    profile = load_profile(tmp_path / "robot.yaml")
    assert profile.one_lidar and list(profile.lidars) == ["left"]
    scenario = with_changes(load_scenario("empty_hall"), 3, (5.0, 1.0), None, str(tmp_path / "robot.yaml"))
    assert list(scenario.simulation.lidar_errors) == ["left"]
    assert np.linalg.norm(scenario.simulation.lidar_errors["left"].xyz) == pytest.approx(0.005)
