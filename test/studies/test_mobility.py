"""Mobility and forward kinematics of the textbook's mechanisms, trees and loops."""

from dataclasses import replace

import numpy as np
import pytest
import yaml

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import configuration_space, link_transforms
from stretch_sim_cal.robot.model import Joint, Link, robot_model
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.studies.mobility import load_mechanism, mechanism, mechanism_of, mobility

AXES = {"X": (1.0, 0.0, 0.0), "Y": (0.0, 1.0, 0.0), "Z": (0.0, 0.0, 1.0)}


def test_floating_and_mobile_bases_add_six_and_three():
    joints = [
        Joint(f"q{i}", "continuous", f"l{i}", f"l{i + 1}", from_xyz_rpy((0.5, 0, 0)), np.array(AXES[axis]))
        for i, axis in enumerate("ZYY")
    ]
    arm = robot_model("arm", [Link(f"l{i}") for i in range(4)], joints, "arm")
    assert [mobility(mechanism_of(arm, base)).mobility for base in ("fixed", "mobile", "floating")] == [3, 6, 9]
    assert [len(configuration_space(arm, base)) for base in ("fixed", "mobile", "floating")] == [3, 6, 9]
    assert [v.name for v in configuration_space(arm, "mobile")][:3] == ["base.x", "base.y", "base.angle"]
    with pytest.raises(InputError, match="fixed, mobile, floating"):
        mechanism_of(arm, "flying")


def test_the_stretchs_configuration_space_has_its_limits():
    space = {variable.name: variable for variable in configuration_space(load_model(nominal_description()))}
    assert (space["lift_joint"].kind, space["lift_joint"].upper) == ("translation", 1.2)
    assert (space["wheel_0_joint"].kind, space["wheel_0_joint"].upper) == ("unlimited turn", np.pi)
    assert len(space) == mobility(mechanism_of(load_model(nominal_description()))).mobility


def revolute(name, first, second, xyz, axis=(0.0, 0.0, 1.0)):
    return Joint(name, "revolute", first, second, from_xyz_rpy(xyz), np.array(axis))


FOUR_BAR = (
    revolute("a", "frame", "crank", (0, 0, 0)), revolute("b", "crank", "coupler", (0.2, 1.0, 0)),
    revolute("c", "rocker", "coupler", (1.5, 1.3, 0)), revolute("d", "frame", "rocker", (1.4, 0, 0)),
)  # fmt: skip
BODIES = ("frame", "crank", "coupler", "rocker")


def linkage(joints, *bodies):
    bodies = bodies or BODIES
    return mechanism("linkage", bodies, bodies[0], joints, "test")


def test_a_four_bar_linkage_has_one_degree_of_freedom_and_is_over_constrained_in_space():
    planar = mobility(linkage(FOUR_BAR), "planar")
    assert (planar.loops, planar.planar, planar.measured, planar.mobility) == (1, 1, 1, 1)
    assert not planar.over_constrained
    spatial = mobility(linkage(FOUR_BAR))
    assert (spatial.spatial, spatial.mobility, spatial.redundant) == (-2, 1, 3)
    assert spatial.over_constrained
    assert "over-constrained" in spatial.notes[0]
    unknown = [replace(c, parent_from_joint=np.full((4, 4), np.nan)) for c in FOUR_BAR]
    counted = mobility(linkage(unknown))
    assert (counted.mobility, counted.measured, counted.over_constrained) == (-2, None, True)
    assert mobility(linkage(unknown), "planar").mobility == 1


def test_what_is_not_planar_is_not_counted_in_a_plane():
    tilted = (*FOUR_BAR[:3], revolute("d", "frame", "rocker", (1.4, 0, 0), (0.0, 0.1, 1.0)))
    with pytest.raises(InputError, match="joint 'd' does not turn about the same direction"):
        mobility(linkage(tilted), "planar")


def four_bar_sdf(*bars: Joint) -> str:
    """Return the four-bar linkage's bodies, anywhere, with these of its joints, as a model that the world holds."""
    joints = "".join(
        f'<joint name="{each.name}" type="revolute">'
        f'<pose relative_to="__model__">{" ".join(map(str, each.parent_from_joint[:3, 3]))} 0 0 0</pose>'
        f"<parent>{each.parent.replace('frame', 'world')}</parent><child>{each.child}</child>"
        "<axis><xyz>0 0 1</xyz></axis></joint>"
        for each in bars
    )
    return f"""<sdf version="1.9"><model name="four_bar">
      <link name="crank"><pose>0.1 0.5 0 0 0 0.2</pose></link>
      <link name="coupler"><pose relative_to="crank">0.7 0.6 0 0 0 0</pose></link>
      <link name="rocker"><pose degrees="true">1.45 0.6 0 0 0 10</pose></link>{joints}</model></sdf>"""


def test_a_closed_loop_in_an_sdf_is_counted_and_refused_as_a_tree(tmp_path):
    path = tmp_path / "four_bar.sdf"
    path.write_text(four_bar_sdf(*FOUR_BAR))
    found = mobility(load_mechanism(path)[0])
    assert (found.loops, found.mobility, found.spatial, found.over_constrained) == (1, 1, -2, True)
    with pytest.raises(InputError, match="child of two joints"):
        load_model(path)


def test_screws_balls_and_universal_joints_of_an_sdf(tmp_path):
    path = tmp_path / "screw.sdf"
    path.write_text(
        """<sdf version="1.10"><model name="m">
        <link name="a"/><link name="b"/><link name="c"/><link name="d"/><link name="e"/>
        <joint name="new" type="screw"><parent>a</parent><child>b</child><axis><xyz>0 0 1</xyz></axis>
          <screw_thread_pitch>0.01</screw_thread_pitch></joint>
        <joint name="old" type="screw"><parent>b</parent><child>c</child><axis><xyz>0 0 1</xyz></axis>
          <thread_pitch>-100</thread_pitch></joint>
        <joint name="ball" type="ball"><parent>c</parent><child>d</child></joint>
        <joint name="cross" type="universal"><parent>d</parent><child>e</child>
          <axis><xyz>1 0 0</xyz></axis><axis2><xyz>0 1 0</xyz></axis2></joint>
        </model></sdf>"""
    )
    model = load_model(path)
    frames = link_transforms(model, {"new": 2 * np.pi, "old": 1.0})
    assert np.allclose(frames["b"][:3, 3], [0, 0, 0.01])
    assert np.isclose(frames["c"][2, 3], 0.02)
    assert model.joints["ball"].type == "spherical"
    assert mobility(mechanism_of(model)).mobility == 1 + 1 + 3 + 2
    assert mobility(load_mechanism(path)[0]).mobility == 6 + 7  # nothing joins it to the world


def test_a_mechanism_in_a_yaml_with_and_without_geometry(tmp_path):
    path = tmp_path / "four_bar.yaml"
    joints = [{"name": each.name, "type": "revolute", "parent": each.parent, "child": each.child} for each in FOUR_BAR]
    whole = {"name": "four_bar", "dimension": "planar", "links": list(BODIES), "joints": joints}
    path.write_text(yaml.safe_dump(whole))
    found, dimension = load_mechanism(path)
    assert dimension == "planar"
    assert mobility(found, dimension).mobility == 1
    for joint, each in zip(joints, FOUR_BAR, strict=True):
        joint |= {"xyz": each.parent_from_joint[:3, 3].tolist(), "axis": [0, 0, 2]}
    path.write_text(yaml.safe_dump(whole))
    assert mobility(load_mechanism(path)[0]).measured == 1
    assert mobility(load_mechanism(path, base="mobile")[0]).measured == 4


def in_sdf(body: str) -> tuple[str, str]:
    return "sdf", f'<sdf version="1.9"><model name="m">{body}</model></sdf>'


def in_yaml(links: str, *joints: str, further: str = "") -> tuple[str, str]:
    return "yaml", f"links: [{links}]\njoints: [{', '.join('{' + each + '}' for each in joints)}]\n{further}"


@pytest.mark.parametrize(
    ("file", "mentions"),
    [
        (in_sdf('<link name="a"/><joint name="j" type="ball"><parent>a</parent><child>b</child></joint>'),
         "'b' is not a link"),
        (in_sdf('<link name="a"><pose relative_to="a">0 0 0 0 0 0</pose></link>'), "a cycle"),
        (in_sdf('<link name="a"/><include><uri>x</uri></include>'), "nested <include>"),
        (in_sdf('<link name="a"/><joint name="j" type="ball"><parent>a</parent><child>world</child></joint>'),
         "'world'"),
        (in_yaml("a, b"), "no joint connects link 'b'"),
        (in_yaml("a, b", "name: j, type: hinge, parent: a, child: b"), "type 'hinge' is unknown"),
        (in_yaml("a", "name: j, type: fixed, parent: a, child: a"), "to itself"),
        (in_yaml("a, b", *["name: j, type: fixed, parent: a, child: b"] * 2), "two joints"),
        (in_yaml("a, b", "name: j, type: fixed, parent: a, child: b, xyz: [0, .nan, 0]"), "joints[0]: xyz[1]: is nan"),
        (in_yaml("a", further="speed: 1"), "unknown key 'speed'"),
        (in_yaml("a", further="base: flying"), "fixed, mobile, floating"),
    ],
)  # fmt: skip
def test_a_mechanism_that_cannot_be_read_is_named(tmp_path, file, mentions):
    kind, text = file
    path = tmp_path / f"broken.{kind}"
    path.write_text(text)
    with pytest.raises(InputError, match=f"broken.{kind}") as caught:
        load_mechanism(path)
    assert mentions in str(caught.value)
