"""Descriptions: the real robot is read, every broken one ends in one line; surfaces as triangles."""

import os
from pathlib import Path

import numpy as np
import pytest
import trimesh
from described_robots import link, robot

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply, inverse
from stretch_sim_cal.robot.description import load_model, parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.robot.surfaces import Surface, link_surfaces, robot_surfaces

LINKS = '<link name="a"/><link name="b"/>'
LIMIT = '<limit lower="-1" upper="2" velocity="3" effort="4"/>'
INERTIA = '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'


def joint(body: str = LIMIT, kind: str = "revolute", name: str = "j", parent: str = "a", child: str = "b") -> str:
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{body}</joint>'


def shape(body: str) -> str:
    return link("a", f"<collision><geometry>{body}</geometry></collision>")


BOMB = (
    '<!DOCTYPE robot [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10 if i > 1 else "&a;" * 10}">' for i in range(1, 12))
    + "]>"
    + robot(link("a", "&a11;"))
)
FILE_ENTITY = '<!DOCTYPE robot [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + robot(link("a", "&x;"))

BROKEN = {
    "torn": ('<robot name="r"><link name="a"/>', "not well-formed"),
    "another root element": ("<sdf/>", "<sdf>"),
    "entity bomb": (BOMB, "entities"),
    "entity that reads a file": (FILE_ENTITY, "entities"),
    "no name": ("<robot><link name='a'/></robot>", "no name"),
    "no links": (robot(""), "no links"),
    "two links of a name": (robot('<link name="a"/><link name="a"/>'), "two links are called 'a'"),
    "two joints of a name": (robot(LINKS + '<link name="c"/>' + joint() + joint(child="c")), "two joints are called"),
    "loop": (robot('<link name="r"/>' + LINKS + joint() + joint(name="k", parent="b", child="a")), "loop"),
    "two roots": (robot(LINKS), "2 trees"),
    "two parents": (robot(LINKS + '<link name="c"/>' + joint() + joint(name="k", parent="c")), "child of two joints"),
    "missing parent": (robot('<link name="b_link"/>' + joint(parent="b_lnk", child="b_link")), "did you mean b_link"),
    "missing child": (robot('<link name="a"/>' + joint()), "child link 'b' does not exist"),
    "joint without child": (robot(LINKS + '<joint name="j" type="fixed"><parent link="a"/></joint>'), "has no <child>"),
    "unknown joint type": (robot(LINKS + joint(kind="ball")), "type 'ball' is not a URDF joint type"),
    "no limit": (robot(LINKS + joint("")), "needs a <limit>"),
    "limits reversed": (robot(LINKS + joint(LIMIT.replace("-1", "3"))), "lower limit 3 is above"),
    "negative velocity": (robot(LINKS + joint('<limit upper="1" velocity="-1" effort="1"/>')), "must not be negative"),
    "limit not finite": (robot(LINKS + joint('<limit upper="inf" velocity="1" effort="1"/>')), "not finite"),
    "origin not finite": (robot(LINKS + joint('<origin xyz="0 nan 0"/>' + LIMIT)), "three finite numbers"),
    "zero axis": (robot(LINKS + joint('<axis xyz="0 0 0"/>' + LIMIT)), "axis must not be zero"),
    "mimics nothing": (robot(LINKS + joint('<mimic joint="k"/>' + LIMIT)), "mimics 'k', which does not exist"),
    "a soft limit that is no number": (
        robot(LINKS + joint(LIMIT + '<safety_controller k_velocity="1,5"/>')), "<safety_controller> is not a number",
    ),
    "mimics itself": (robot(LINKS + joint('<mimic joint="j"/>' + LIMIT)), "mimics itself"),
    "mimics a fixed joint": (
        robot(LINKS + '<link name="c"/>' + joint('<mimic joint="k"/>' + LIMIT) + joint("", "fixed", "k", "b", "c")),
        "cannot mimic",
    ),
    "flat box": (robot(shape('<box size="1 0 1"/>')), "must be greater than 0"),
    "box without size": (robot(shape("<box/>")), "has no size"),
    "unknown shape": (robot(shape('<cone radius="1"/>')), "not a URDF shape"),
    "mesh without name": (robot(shape("<mesh/>")), "has no filename"),
    "mesh of a placeholder": (robot(shape('<mesh filename="package://[PACKAGE/a.stl"/>')), "of <mesh> is no URL"),
    "negative mass": (robot(link("a", f'<inertial><mass value="-1"/>{INERTIA}</inertial>')), "mass -1 is negative"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_description_is_refused_with_one_line_naming_the_fault(case):
    text, mentions = BROKEN[case]
    with pytest.raises(InputError, match="^here.urdf: ") as caught:
        parse_urdf(text, source="here.urdf")
    assert mentions in str(caught.value)
    assert "\n" not in str(caught.value)


def test_deeply_nested_and_long_descriptions_do_not_crash():
    deep = robot('<link name="a">' + "<x>" * 50_000 + "</x>" * 50_000 + "</link>")
    assert parse_urdf(deep).root == "a"
    chain = "".join(link(f"l{i}") for i in range(3000))
    chain += "".join(joint("", "fixed", f"j{i}", f"l{i}", f"l{i + 1}") for i in range(2999))
    assert len(parse_urdf(robot(chain)).chain("l2999")) == 2999


def test_defaults_follow_the_urdf_specification():
    model = parse_urdf(robot(LINKS + joint('<mimic joint="k"/>' + LIMIT) + link("c") + joint(name="k", child="c")))
    read = model.joints["j"]
    assert np.array_equal(read.parent_from_joint, np.eye(4))
    assert np.array_equal(read.axis, [1, 0, 0])
    assert (read.mimic.multiplier, read.mimic.offset) == (1.0, 0.0)
    assert [j.name for j in model.moving_joints()] == ["k"]
    assert [j.name for j in model.child_joints("a")] == ["j", "k"]


def test_a_frozen_joint_may_keep_its_mimic_tag():
    assert parse_urdf(robot(LINKS + joint('<mimic joint="gone"/>', "fixed"))).joints["j"].mimic is None


def test_meshes_are_found_by_package_file_and_relative_names(tmp_path, monkeypatch):
    mesh, folder = Path(load_model(nominal_description()).links["head_link"].collisions[0].path), tmp_path / "my robot"
    (folder / "meshes").mkdir(parents=True)
    (folder / "meshes" / "box.stl").write_bytes(mesh.read_bytes())
    package = "package://bot/meshes/box.stl"
    file = f"file://{str(folder).replace(' ', '%20')}/meshes/box.stl"
    for name in ("meshes/box.stl", package, file, f"{folder}/meshes/box.stl"):
        path = folder / "robot.urdf"
        path.write_text(robot(shape(f'<mesh filename="{name}" scale="2 2 2"/>')))
        surface = link_surfaces(load_model(path, mesh_folders={"bot": folder}))["a"]
        assert surface.faces.shape == (12, 3)
        assert np.allclose(np.ptp(surface.vertices, axis=0), [2 * 0.294, 2 * 0.308, 2 * 0.1], atol=0.01)
    monkeypatch.setenv("ROS_PACKAGE_PATH", str(tmp_path))
    os.rename(folder, tmp_path / "bot")
    model = parse_urdf(robot(shape(f'<mesh filename="{package}"/>')))
    assert len(link_surfaces(model)["a"].faces) == 12


@pytest.mark.parametrize(
    ("name", "mentions"),
    [
        ("file:///nowhere/box.stl", "/nowhere/box.stl"),
        ("package://unknown_bot/box.stl", "package://unknown_bot/box.stl"),
        ("https://example.com/box.stl", "https://example.com/box.stl"),
    ],
)
def test_a_missing_mesh_is_named_when_it_is_read_and_not_before(name, mentions):
    model = parse_urdf(robot(shape(f'<mesh filename="{name}"/>')))
    with pytest.raises(InputError, match="link 'a'") as caught:
        link_surfaces(model)
    assert mentions in str(caught.value)


def test_a_torn_mesh_is_named(tmp_path):
    (tmp_path / "torn.stl").write_bytes(b"solid torn\nfacet normal 0 0")
    (tmp_path / "robot.urdf").write_text(robot(shape('<mesh filename="torn.stl"/>')))
    with pytest.raises(InputError, match="torn.stl"):
        link_surfaces(load_model(tmp_path / "robot.urdf"))


XACRO = '<robot xmlns:xacro="http://www.ros.org/wiki/xacro" name="r">{}</robot>'


def test_a_xacro_is_expanded_with_arguments_and_includes(tmp_path):
    part = '<xacro:macro name="part" params="n"><link name="part_${n}"/></xacro:macro>'
    (tmp_path / "part.xacro").write_text(XACRO.format(part))
    path = tmp_path / "robot.urdf.xacro"
    path.write_text(XACRO.format(
        '<xacro:arg name="radius" default="1"/><xacro:include filename="part.xacro"/><xacro:part n="${1 + 1}"/>'
        '<link name="base"><collision><geometry><sphere radius="$(arg radius)"/></geometry></collision></link>'
        '<joint name="j" type="fixed"><parent link="base"/><child link="part_2"/></joint>'
    ))  # fmt: skip
    model = load_model(path, {"radius": 0.25})
    assert model.links["base"].collisions[0].radius == 0.25 and model.order == ("base", "part_2")
    assert load_model(path).links["base"].collisions[0].radius == 1.0


@pytest.mark.parametrize(
    ("body", "mentions"),
    [
        ("<link name='a'>", "not well-formed"),
        ("<link name='${undefined}'/>", "undefined"),
        ("<xacro:include filename='missing.xacro'/>", "missing.xacro"),
        ("<xacro:include filename='robot.xacro'/>", "robot.xacro"),
        ("<xacro:include filename='bomb.xacro'/>", "entities"),
    ],
)
def test_a_broken_xacro_is_refused_with_its_file(tmp_path, body, mentions):
    (tmp_path / "bomb.xacro").write_text(BOMB)
    path = tmp_path / "robot.xacro"
    path.write_text(XACRO.format(body))
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert str(tmp_path) in str(caught.value)
    assert mentions in str(caught.value)
    assert "\n" not in str(caught.value)


def test_arguments_for_what_is_no_xacro_are_refused(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(robot('<link name="a"/>'))
    with pytest.raises(InputError, match="is not a xacro"):
        load_model(path, {"tool": "x"})
    with pytest.raises(InputError, match="need a xacro file"):
        load_model(robot('<link name="a"/>'), {"tool": "x"})


def one_shape(shape: str, origin: str = "") -> Surface:
    text = robot(link("a", f"<collision>{origin}<geometry>{shape}</geometry></collision>"))
    return link_surfaces(parse_urdf(text))["a"]


def volume(surface: Surface) -> float:
    return trimesh.Trimesh(surface.vertices, surface.faces).volume


def test_primitives_are_as_large_as_they_say():
    box, cylinder = one_shape('<box size="1 2 3"/>'), one_shape('<cylinder radius="0.5" length="2"/>')
    sphere = one_shape('<sphere radius="0.5"/>')
    assert np.isclose(volume(box), 6.0)
    assert np.isclose(volume(cylinder), np.pi / 2, rtol=2e-3)
    assert np.isclose(volume(sphere), np.pi / 6, rtol=2e-2)
    assert np.allclose(np.linalg.norm(sphere.vertices, axis=1), 0.5)
    assert np.linalg.norm(sphere.triangles.mean(axis=1), axis=1).min() > 0.5 * (1 - 0.006)
    assert np.allclose(np.ptp(cylinder.vertices, axis=0), [1, 1, 2])


def test_a_mirrored_mesh_keeps_its_outside_outside(stretch):
    mesh = stretch.links["base_link"].collisions[0].path
    plain, mirrored = (one_shape(f'<mesh filename="{mesh}" scale="{scale}"/>') for scale in ("1 1 1", "1 -1 1"))
    assert volume(plain) > 0
    assert np.isclose(volume(mirrored), volume(plain))
    assert np.allclose(mirrored.vertices, plain.vertices * [1, -1, 1])


def test_the_head_is_its_visual_shape_without_the_lidars_housings(stretch):
    shell, visual = robot_surfaces(stretch)["head_link"], link_surfaces(stretch, "visual")["head_link"]
    kept = {triangle.tobytes() for triangle in shell.triangles}
    gone = np.array([triangle for triangle in visual.triangles if triangle.tobytes() not in kept])
    elsewhere = np.ones(len(gone), dtype=bool)
    for frame in (each.frame for each in stretch_profile().lidars.values()):
        in_lidar = apply(inverse(link_transform(stretch, {}, frame, "head_link")), gone.reshape(-1, 3)).reshape(
            -1, 3, 3
        )
        housing = (np.hypot(in_lidar[..., 0], in_lidar[..., 1]) < 0.041).all(axis=1)
        assert np.allclose(in_lidar[housing][..., 2].max(), 0.025, atol=1e-3)
        elsewhere &= ~housing
    assert not elsewhere.any()
    # Everything else of the head is still there.
    assert np.allclose(shell.vertices.min(axis=0)[:2], visual.vertices.min(axis=0)[:2], atol=2e-3)
    assert np.allclose(shell.vertices.max(axis=0), visual.vertices.max(axis=0), atol=2e-3)


def test_a_robot_without_lidars_is_its_collision_shapes():
    seen, solid = '<geometry><sphere radius="1"/></geometry>', '<geometry><box size="1 1 1"/></geometry>'
    model = parse_urdf(robot(link("head_link", f"<visual>{seen}</visual><collision>{solid}</collision>")))
    assert len(robot_surfaces(model)["head_link"].faces) == 12
