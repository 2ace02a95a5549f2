"""The projected outline is exact: corners of triangles cut at the heights that count, in any set of poses."""

import numpy as np
import trimesh

from stretch_sim_cal.calibration.body.outline import RobotOutline, between_heights
from stretch_sim_cal.geometry.shapes import ConvexPolygon
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.surfaces import Surface


def surface(mesh):
    return Surface(np.asarray(mesh.vertices), np.asarray(mesh.faces))


CONE = surface(trimesh.creation.cone(radius=0.3, height=0.5, sections=48))
BOX = surface(trimesh.creation.box(extents=(0.4, 0.1, 0.1)))


def sampled(link_surface, transform, lowest, highest):
    mesh = trimesh.Trimesh(link_surface.vertices, link_surface.faces)
    points = trimesh.sample.sample_surface(mesh, 60_000, seed=1)[0] @ transform[:3, :3].T + transform[:3, 3]
    return points[(points[:, 2] >= lowest) & (points[:, 2] <= highest), :2]


def test_an_outline_holds_all_of_a_cut_surface_and_no_more():
    outline = RobotOutline({"cone": CONE, "box": BOX}, lowest=0.06, highest=0.4)
    poses = {
        "cone": from_xyz_rpy((0.1, 0.0, -0.05), (0.4, 0.3, 0.0)),
        "box": from_xyz_rpy((0.3, 0.2, 0.07), (0.0, 0.9, 0.5)),
    }
    hull = ConvexPolygon(outline.hull(poses))
    points = np.vstack([sampled(CONE, poses["cone"], 0.06, 0.4), sampled(BOX, poses["box"], 0.06, 0.4)])
    assert hull.protrusion(points) < 1e-9
    distance = hull.signed_distance(points)
    assert all(np.hypot(*(points - corner).T).min() < 0.02 for corner in hull.corners) and distance.max() > -0.005


def test_links_outside_the_heights_do_not_count():
    outline = RobotOutline({"box": BOX})
    assert len(outline.hull({"box": from_xyz_rpy((0, 0, 0.0))})) == 0
    assert len(outline.hull({"box": from_xyz_rpy((0, 0, 1.7))})) == 0
    assert len(outline.hull({"box": from_xyz_rpy((0, 0, 1.0))})) == 4


def test_sets_of_poses_give_the_hull_around_all_poses_of_each():
    outline = RobotOutline({"base": CONE, "box": BOX})
    base = np.repeat(from_xyz_rpy((0, 0, 0.2))[None], 3, axis=0)
    box = np.stack([from_xyz_rpy((x, 0.1, 0.08), (0, 0.4, x)) for x in (0.2, 0.5, 0.9)])
    one, two = outline.hulls({"base": base, "box": box}, [1, 2])
    for hull, chosen in ((one, [0]), (two, [1, 2])):
        alone = [outline.hull({"base": base[i], "box": box[i]}) for i in chosen]
        assert ConvexPolygon(hull).protrusion(np.concatenate(alone)) < 1e-12
        assert ConvexPolygon(np.concatenate(alone)).area == ConvexPolygon(hull).area


def test_a_triangle_across_both_heights_has_four_corners_between_them():
    triangle = np.array([[[0.0, 0.0, -1.0], [1.0, 0.0, 3.0], [0.0, 1.0, 3.0]]])
    corners = between_heights(triangle, 0.0, 1.0)
    np.testing.assert_allclose(sorted(corners.tolist()), [[0, 0.25], [0, 0.5], [0.25, 0], [0.5, 0]])
