"""Forward kinematics: against another library on the real robot, and properties that hold for any robot."""

import io
from dataclasses import replace

import icub_models
import numpy as np
import pytest
import yourdfpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy, inverse
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import jacobian, link_transform, link_transforms, random_positions
from stretch_sim_cal.robot.model import Joint, Link, Mimic, robot_model
from stretch_sim_cal.robot.stretch import available_tools, nominal_description

NUMBER = st.floats(-3, 3)
TRIPLE = st.tuples(NUMBER, NUMBER, NUMBER)
AXIS = TRIPLE.filter(lambda axis: np.linalg.norm(axis) > 0.1)


@st.composite
def joints(draw, kinds=("fixed", "revolute", "continuous", "prismatic", "helical", "planar", "spherical", "floating")):
    kind, origin = draw(st.sampled_from(kinds)), from_xyz_rpy(draw(TRIPLE), draw(TRIPLE))
    return Joint("joint", kind, "parent", "child", origin, np.array(draw(AXIS)), pitch=draw(NUMBER))


def one_joint(joint: Joint):
    return robot_model("one", [Link("parent"), Link("child")], [joint], "one")


@pytest.mark.parametrize("robot", [*available_tools()[:2], "iCubErzelli02", "left_hand_mk3"])
def test_the_vendors_robot_and_humanoids_move_as_in_yourdfpy(robot):
    vendors = robot in available_tools()
    text = nominal_description(robot) if vendors else icub_models.get_model_file(robot).read_text(encoding="utf-8")
    model, other = load_model(text), yourdfpy.URDF.load(io.StringIO(text), load_meshes=False)
    positions = random_positions(model, 5, seed=1)
    ours = link_transforms(model, positions)
    for index in range(5):
        other.update_cfg({name: float(values[index]) for name, values in positions.items()})
        for link, root_from_link in ours.items():
            expected = np.broadcast_to(root_from_link, (5, 4, 4))[index]
            assert np.abs(other.get_transform(link, model.root) - expected).max() < 1e-12


def planar(normal):
    return Joint("joint", "planar", "parent", "child", np.eye(4), np.array(normal))


@settings(max_examples=60)
@given(joints(("planar",)), TRIPLE)
@example(planar([1e-3, 0.0, -1.0]), (3.0, 4.0, 0.0))
@example(planar([3.9e-6, 0.0, -1.0]), (3.0, 4.0, 0.0))  # almost -z
@example(planar([1e-9, 0.0, -1.0]), (3.0, 4.0, 0.0))
@example(planar([0.0, 0.0, -1.0]), (3.0, 4.0, 0.0))
def test_a_planar_joint_stays_in_its_plane(joint, position):
    local = inverse(joint.parent_from_joint) @ link_transforms(one_joint(joint), {"joint": position})["child"]
    assert abs(local[:3, 3] @ joint.unit_axis) < 1e-12
    assert abs(np.linalg.norm(local[:3, 3]) - np.hypot(*position[:2])) < 1e-12
    assert np.allclose(local[:3, :3] @ joint.unit_axis, joint.unit_axis, atol=1e-9)


def test_planar_joints_take_x_y_and_angle_and_floating_ones_xyz_and_rpy():
    moved = link_transforms(one_joint(planar([0.0, 0.0, 2.0])), {"joint": [1.0, 2.0, np.pi / 2]})["child"]
    assert np.allclose(moved, from_xyz_rpy((1, 2, 0), (0, 0, np.pi / 2)))
    floating = Joint("joint", "floating", "parent", "child", from_xyz_rpy((1, 0, 0)), np.array([1.0, 0.0, 0.0]))
    moved = link_transforms(one_joint(floating), {"joint": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]})["child"]
    assert np.allclose(moved, from_xyz_rpy((1.1, 0.2, 0.3), (0.4, 0.5, 0.6)))
    with pytest.raises(InputError, match="takes 6 numbers"):
        link_transforms(one_joint(floating), {"joint": [0.0, 1.0]})


def test_positions_broadcast(stretch):
    positions = {"lift_joint": np.zeros((3, 1)), "wrist_yaw_joint": np.linspace(-1, 4, 5)}
    grid = link_transforms(stretch, positions)
    assert {frame.shape for frame in grid.values()} == {(3, 5, 4, 4)}
    relative = link_transform(stretch, positions, "grasp_center_link", "lift_link")
    assert np.allclose(relative, inverse(grid["lift_link"]) @ grid["grasp_center_link"])
    assert link_transforms(stretch, {"lift_joint": np.zeros(0)})["lift_link"].shape == (0, 4, 4)


def test_a_mimic_joint_follows_and_may_be_overruled():
    fingers = [("lead", None), ("follow", Mimic("lead", -2.0, 0.5)), ("again", Mimic("follow", 10.0, 1.0))]
    joints = [
        Joint(name, "prismatic", "a", link, np.eye(4), np.array([1.0, 0.0, 0.0]), mimic=mimic)
        for link, (name, mimic) in zip("bcd", fingers, strict=True)
    ]
    model = robot_model("fingers", [Link(name) for name in "abcd"], joints, "fingers")
    frames = link_transforms(model, {"lead": [0.0, 1.0]})
    assert np.allclose(frames["c"][:, 0, 3], [0.5, -1.5])
    assert np.allclose(frames["d"][:, 0, 3], [6.0, -14.0])
    assert np.isclose(link_transforms(model)["d"][0, 3], 6.0)
    assert np.isclose(link_transforms(model, {"lead": 1.0, "follow": 0.1})["d"][0, 3], 2.0)


@pytest.mark.parametrize(
    ("positions", "mentions"),
    [
        ({"base_ref": 0.1}, "is fixed"),
        ({"lift_joint": "high"}, "not a number"),
        ({"lift_joint": [0, 1], "wrist_yaw_joint": [0, 1, 2]}, "cannot be broadcast together"),
    ],
)
def test_positions_that_cannot_be_are_named(stretch, positions, mentions):
    with pytest.raises(InputError, match=mentions):
        link_transforms(stretch, positions)


@st.composite
def chains(draw):
    """Four joints in a row, of which the last one may follow the first."""
    row = [replace(draw(joints()), name=f"j{i}", parent=f"l{i}", child=f"l{i + 1}") for i in range(4)]
    if row[0].variables == row[3].variables == 1:
        row[3] = replace(row[3], mimic=Mimic("j0", draw(NUMBER), draw(NUMBER)))
    return robot_model("chain", [Link(f"l{i}") for i in range(5)], row, "chain")


@given(chains(), st.integers(0, 2**32 - 1), st.sampled_from([("l4", "l0"), ("l4", "l2"), ("l1", "l4")]))
@settings(max_examples=60)
def test_the_jacobian_is_the_derivative_of_forward_kinematics(model, seed, frames):
    generator, step = np.random.default_rng(seed), 1e-6
    positions = {
        joint.name: generator.uniform(-1.5, 1.5, joint.variables if joint.variables > 1 else ())
        for joint in model.moving_joints()
    }
    columns, variables = jacobian(model, positions, *frames)
    assert columns.shape == (6, len(variables))
    for index, variable in enumerate(variables):
        place = [v.name for v in variables if v.joint == variable.joint].index(variable.name)

        def moved(change, name=variable.joint, place=place):
            position = np.array(positions[name], dtype=float)
            position.reshape(-1)[place] += change
            return link_transform(model, positions | {name: position}, *frames)

        slope = (moved(step) - moved(-step)) / (2 * step)
        spin = slope[:3, :3] @ moved(0.0)[:3, :3].T
        numeric = [*slope[:3, 3], spin[2, 1], spin[0, 2], spin[1, 0]]
        assert np.allclose(columns[:, index], numeric, atol=1e-6)
