"""Surfaces: primitives and meshes as triangles, and a head that does not blind its own lidars."""

import numpy as np
import pytest
import trimesh
from described_robots import link, robot

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply, from_xyz_rpy, inverse
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.surfaces import Surface, joined, link_surfaces, robot_surfaces


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


def test_a_shape_is_moved_by_its_origin():
    box = one_shape('<box size="2 0.2 0.2"/>', '<origin xyz="1 0 0" rpy="0 0 1.5707963267948966"/>')
    assert np.allclose(box.vertices.min(axis=0), [0.9, -1.0, -0.1])
    assert np.allclose(box.vertices.max(axis=0), [1.1, 1.0, 0.1])


def test_a_mirrored_mesh_keeps_its_outside_outside(stretch):
    mesh = stretch.links["base_link"].collisions[0].path
    plain, mirrored = (one_shape(f'<mesh filename="{mesh}" scale="{scale}"/>') for scale in ("1 1 1", "1 -1 1"))
    assert volume(plain) > 0
    assert np.isclose(volume(mirrored), volume(plain))
    assert np.allclose(mirrored.vertices, plain.vertices * [1, -1, 1])


def test_surfaces_are_joined_and_moved_without_losing_a_triangle(stretch):
    with pytest.raises(InputError, match="collision, visual"):
        link_surfaces(stretch, "inertial")
    parts = [link_surfaces(stretch)[name] for name in ("base_link", "lift_link")]
    pose = from_xyz_rpy((1, 2, 3), (0.1, 0.2, 0.3))
    both, expected = joined(parts), np.concatenate([part.triangles for part in parts])
    assert np.array_equal(both.triangles, expected)
    assert np.allclose(both.moved(pose).triangles[7, 1], apply(pose, expected[7])[1])
    some = both.with_faces(np.array([3, 5]))
    assert np.array_equal(some.triangles, expected[[3, 5]]) and len(some.vertices) <= 6


def test_the_head_is_its_visual_shape_without_the_lidars_housings(stretch):
    shell, visual = robot_surfaces(stretch)["head_link"], link_surfaces(stretch, "visual")["head_link"]
    kept = {triangle.tobytes() for triangle in shell.triangles}
    gone = np.array([triangle for triangle in visual.triangles if triangle.tobytes() not in kept])
    elsewhere = np.ones(len(gone), dtype=bool)
    for frame in stretch_profile().lidar_frames:
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
