"""Workspaces with known lengths, areas and volumes, and the orientations that are possible at a point."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.model import Joint, Limit, Link, robot_model
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.studies.orientations import orientations
from stretch_sim_cal.studies.workspace import workspace

X, Y, Z = np.eye(3)


def arm(*parts, at=None, elbow=None):
    """A chain of joints (type, axis, bounds), joint `elbow` 1 m along x from the last; `at`: a frame at its end."""
    parts = [*parts, *([("fixed", X, None)] if at else [])]
    joints = []
    for i, (kind, axis, bounds) in enumerate(parts):
        xyz = at if kind == "fixed" else (float(i == elbow), 0.0, 0.0)
        limit = Limit(*bounds, 1, 1) if bounds else None
        joints.append(Joint(f"q{i}", kind, f"l{i}", f"l{i + 1}", from_xyz_rpy(xyz), axis, limit))
    return robot_model("arm", [Link(f"l{i}") for i in range(len(parts) + 1)], joints, "arm")


RP = arm(("continuous", Z, None), ("prismatic", X, (1.0, 2.0)))
RRP = arm(("continuous", Z, None), ("continuous", Y, None), ("prismatic", X, (0.0, 1.0)))


@pytest.mark.parametrize(
    ("model", "dimension", "content", "hull", "median"),
    [
        (RP, 2, 3 * np.pi, 4 * np.pi, np.sqrt(2.5)),
        pytest.param(RRP, 3, 4 / 3 * np.pi, 4 / 3 * np.pi, 0.5 ** (1 / 3), marks=pytest.mark.long),
    ],
)
def test_points_cover_a_known_workspace_evenly(model, dimension, content, hull, median):
    reached = workspace(model, list(model.links)[-1], resolution=0.05)
    assert reached.dimension == dimension
    assert reached.measure == pytest.approx(content, rel=0.01) and reached.measure_error < 0.07 * content
    assert reached.hull_measure == pytest.approx(hull, rel=0.01)
    radii = np.linalg.norm(reached.points, axis=1)
    assert (radii > median).mean() == pytest.approx(0.5, abs=0.06)  # half of the content lies beyond this radius
    assert radii.max() <= (2.0 if model is RP else 1.0) + 1e-9


SLANTED = np.array([1.0, 1.0, 0.0]) / np.sqrt(2)
TURN = "continuous"
AT = (0.5, 0.0, 0.0)
SLIDE = "prismatic"
KNOWN = {
    "gantry": (arm((SLIDE, X, (0, 1)), (SLIDE, Y, (0, 1)), (SLIDE, Z, (0, 2))), 2.0),
    "annulus": (RP, 3 * np.pi), "ball": (RRP, 4 / 3 * np.pi),
    "shell": (arm((TURN, Z, None), (TURN, Y, None), (SLIDE, X, (0.5, 1))), 4 / 3 * np.pi * 7 / 8),
    "torus": (arm((TURN, Z, None), (SLIDE, Y, (0, 0)), (SLIDE, X, (1, 1.5)), (SLIDE, Z, (0, 0.5))), 0.625 * np.pi),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "resolution"),
    [
        ("shell", 0.2),
        ("gantry", None),
        ("annulus", None),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in (("gantry", 0.1), ("shell", 0.1), ("ball", 0.1), ("torus", 0.1), ("torus", None))
        ),
    ],
)
def test_the_error_bounds_the_difference_from_the_known_content(name, resolution):
    model, content = KNOWN[name]
    reached = workspace(model, list(model.links)[-1], resolution=resolution)
    assert reached.dimension == reached.hull_dimension
    assert abs(reached.measure - content) <= reached.measure_error + 1e-6 * content
    assert reached.measure <= reached.hull_measure <= reached.hull_bound
    assert reached.measure_error < (1e-6 if name == "gantry" and resolution is None else 0.25 * content)


@pytest.mark.parametrize(
    ("model", "dimension", "hull_dimension"),
    [
        (arm((TURN, Z, None), at=AT), 1, 2),
        pytest.param(arm((TURN, Z, None), (TURN, Y, None), at=AT), 2, 3, marks=pytest.mark.long),
        (arm((TURN, SLANTED, None), ("prismatic", Y, (0.0, 0.0)), at=AT), 1, 2),
    ],
)
def test_what_has_no_content_in_its_space_gets_none(model, dimension, hull_dimension):
    reached = workspace(model, list(model.links)[-1])
    assert (reached.dimension, reached.hull_dimension) == (dimension, hull_dimension)
    assert (reached.measure, reached.measure_error) == (0.0, 0.0)
    assert reached.hull_measure > 0.05


def test_held_joints_and_links_that_do_not_move():
    line = workspace(RP, "l2", fixed={"q0": 0.3})
    assert (line.dimension, [v.name for v in line.variables]) == (1, ["q1"])
    assert line.hull_measure == pytest.approx(1.0)
    assert line.measure == pytest.approx(1.0, rel=0.05)
    point = workspace(RP, "l2", fixed={"q0": 0.3, "q1": 1.5})
    assert (point.dimension, point.measure, len(point.points)) == (0, 0.0, 1)
    assert [v.name for v in workspace(RP, "l2", relative_to="l1").variables] == ["q1"]


ELBOW = arm((TURN, Z, None), (TURN, Z, None), at=AT, elbow=1)
SLIDES = [("prismatic", X, (0, 1)), ("prismatic", Y, (0, 1)), ("prismatic", Z, (0, 1))]


def test_an_elbow_reaches_a_point_in_two_orientations_and_its_rim_in_one():
    found = orientations(ELBOW, "l3", (1.2, 0.0, 0.0))
    assert found.dimension == 0
    angles = np.sort(Rotation.from_quat(found.quaternions).as_euler("xyz")[:, 2])
    # From the triangle with sides 1, 0.5 and 1.2: the forearm's angle against the line to the point.
    forearm = np.arccos((0.5**2 + 1.2**2 - 1.0) / (2 * 0.5 * 1.2))
    assert angles == pytest.approx([-forearm, forearm], abs=1e-4)
    assert len(orientations(ELBOW, "l3", (1.5, 0.0, 0.0)).quaternions) == 1
    beyond = orientations(ELBOW, "l3", (2.0, 0.0, 0.0))
    assert len(beyond.quaternions) == 0 and beyond.distance == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("model", "dimension", "share"),
    [
        (arm(*SLIDES, (TURN, Z, None)), 1, 0.0),
        (arm(*SLIDES, (TURN, Z, None), ("revolute", Y, (-np.pi / 2, 0.0)), (TURN, X, None)), 3, 0.5),
    ],
)
def test_what_a_wrist_on_a_gantry_can_do(model, dimension, share):
    found = orientations(model, list(model.links)[-1], (0.3, 0.4, 0.5))
    assert found.dimension == dimension
    assert found.share == pytest.approx(share, abs=0.1)


def test_without_collisions_less_is_reached_and_nothing_touches():
    model = load_model(nominal_description())
    fixed = {"lift_joint": 0.3, "wrist_pitch_joint": 0.0, "wrist_roll_joint": 0.0}
    collision = SelfCollision(model, floor=0.0)
    everything = workspace(model, "grasp_center_link", fixed=fixed, resolution=0.06)
    free = workspace(model, "grasp_center_link", fixed=fixed, resolution=0.06, collision=collision)
    assert everything.dimension == free.dimension == 2
    assert free.measure < 0.95 * everything.measure
    assert free.colliding > 0
    for configuration in free.configurations[::20]:
        positions = dict(zip((v.name for v in free.variables), configuration, strict=True))
        assert collision.colliding_pairs(fixed | positions) == []


def test_what_has_no_bounded_workspace_is_named():
    unlimited = robot_model("r", [Link("a"), Link("b")], [Joint("j", "prismatic", "a", "b", np.eye(4), X)], "r")
    with pytest.raises(InputError, match="joint 'j' has no limits"):
        workspace(unlimited, "b")
    with pytest.raises(InputError, match="resolution"):
        workspace(RP, "l2", resolution=1e-9)
    with pytest.raises(InputError, match="no collision shapes"):
        SelfCollision(RP)
