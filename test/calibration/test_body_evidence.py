"""What lidars see beyond the model of a small robot: payload, people, missing parts; and the projected outline."""

import dataclasses

import numpy as np
import pytest
import trimesh

from stretch_sim_cal.calibration.body.evidence import PoseReturns, SeenRobot, gather_evidence
from stretch_sim_cal.calibration.body.returns import (
    LOWEST,
    EvidenceSettings,
    RobotOutline,
    between_heights,
    robot_views,
)
from stretch_sim_cal.geometry.points import convex_hull
from stretch_sim_cal.geometry.rays import RayTarget
from stretch_sim_cal.geometry.shapes import ConvexPolygon
from stretch_sim_cal.geometry.transforms import error, from_xyz_rpy
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.simulation import solids

LIDARS = np.array([[0.04, 0.13, 1.5], [0.04, -0.13, 1.5]])
NOISE = 0.01
RAYS = 14_000  # per lidar and pose, aimed at the floor around the robot


def box(size, xyz=(0.0, 0.0, 0.0), rpy=(0.0, 0.0, 0.0)):
    """A box's surface with its centre at a pose."""
    return Surface(*solids.box(np.asarray(size))).moved(from_xyz_rpy(xyz, rpy))


def post(radius, height, x, y):
    return Surface(*solids.cylinder(radius, height)).moved(from_xyz_rpy((x, y, height / 2)))


ROBOT = {
    "base_link": post(0.2, 0.2, 0.0, 0.0),
    "mast": box((0.08, 0.08, 1.2), (-0.12, 0.0, 0.8)),
    "arm": box((0.5, 0.1, 0.1)),
    "hand": box((0.25, 0.07, 0.07), (0.125, 0.0, 0.0)),
}


def frames(lift, arm, yaw):
    """footprint_from_link of the robot's links; the arm is along x, 0.1 m to the right."""
    wrist = from_xyz_rpy((0.3 + arm, -0.1, lift)) @ from_xyz_rpy(rpy=(0.0, 0.0, yaw))
    return {"base_link": np.eye(4), "mast": np.eye(4), "arm": from_xyz_rpy((0.05 + arm, -0.1, lift)), "hand": wrist}


POSES = [(lift, arm, yaw) for lift in (0.4, 0.8) for arm in (0.05, 0.35) for yaw in (0.0, 1.2)]


def scan(links, room=(), seen_from_true=None, seed=0, rays=RAYS, noise=NOISE, incidence=(0.0, 0.0)):
    """The returns of a robot (pairs of surface and frame) and a room (surfaces), with which lidar saw each.

    `seen_from_true` (4, 4) moves what is seen: a mount that is off. Of the lidars, ranges are longer by `incidence` (m)
    at 60 deg. The same seed gives the same rays, whatever their noise.
    """
    random = np.random.default_rng(seed)
    floor = box((8.0, 8.0, 0.02), (0.0, 0.0, -0.01))
    posed = [(s.vertices @ f[:3, :3].T + f[:3, 3])[s.faces] for s, f in links]
    triangles = np.concatenate(posed + [s.vertices[s.faces] for s in (*room, floor)])
    target = RayTarget(triangles)
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    normals /= np.maximum(np.linalg.norm(normals, axis=1), 1e-30)[:, None]
    points, lidars = [], []
    for number, origin in enumerate(LIDARS):
        aims = np.column_stack([random.uniform(-1.4, 1.4, size=(rays, 2)), np.zeros(rays)])
        directions = (aims - origin) / np.linalg.norm(aims - origin, axis=1)[:, None]
        ranges, hit = target.cast(origin, directions)
        cosines = np.abs((normals[hit] * directions).sum(axis=1))
        ranges = ranges + noise * random.normal(size=rays)
        ranges += incidence[number] * (1.0 / np.maximum(cosines, 0.1) - 1.0)
        points.append(origin + ranges[:, None] * directions)
        lidars.append(np.full(rays, number))
    cloud = np.concatenate(points)
    if seen_from_true is not None:
        cloud = cloud @ seen_from_true[:3, :3].T + seen_from_true[:3, 3]
    return cloud, np.concatenate(lidars)


def recording(
    payload=(), room=lambda number: (), really=lambda number, pose: pose, without=(), seen_from_true=None, seed=0, **how
):
    """One `PoseReturns` for each of `POSES`, seen with `rays` and `noise` (see `scan`) where these are given.

    `payload` are pairs of link and surface in its frame, `room` gives what stands around in a pose, `really` where the
    joints are in truth, `without` are links that are missing.
    """
    poses = []
    for number, pose in enumerate(POSES):
        true = frames(*really(number, pose))
        links = [(surface, true[name]) for name, surface in ROBOT.items() if name not in without]
        links += [(surface, true[link]) for link, surface in payload]
        cloud, lidars = scan(links, room(number), seen_from_true, seed=100 * seed + number, **how)
        poses.append(PoseReturns(f"sample {number}", cloud, lidars, frames(*pose)))
    return poses


BOX_ON_BASE = ("base_link", box((0.16, 0.2, 0.2), (0.0, 0.28, 0.22)))


def gathered(**scene):
    return gather_evidence(recording(**scene), ROBOT, LIDARS)


def sticks_out(evidence, payload, pose):
    """How far the true robot with its payload reaches out of the robot as it is seen, and how much larger that is."""
    seen = ConvexPolygon(SeenRobot(ROBOT, evidence, EvidenceSettings()).hulls(frames(*pose))[0])
    everything = ROBOT | {f"true {i}": surface for i, (_, surface) in enumerate(payload)}
    place = frames(*pose)
    place |= {f"true {i}": place[link] for i, (link, _) in enumerate(payload)}
    true = RobotOutline(everything).hull(place)
    return seen.protrusion(true), seen.area / ConvexPolygon(true).area


def test_the_robots_own_returns_are_found_and_freed_of_their_noise():
    """Held against the same rays without noise: what is hidden in a pose, up to a fifth of the outline, no lidar shows.

    A return needs neighbours to be freed of its noise, so a centimetre or two of what is seen is lost at the borders,
    here 3 to 8 % of the area, on the thin hand as well as on the mast, which is seen a hundred times as densely.
    """
    noisy, exact = recording(rays=40_000), recording(rays=40_000, noise=0.0)
    views = robot_views(ROBOT, [frames(*pose) for pose in POSES])
    gathered_returns = gather_evidence(noisy, ROBOT, LIDARS).returns
    for pose, view, returns, there in zip(POSES, views, gathered_returns, exact, strict=True):
        outline = ConvexPolygon(RobotOutline(ROBOT).hull(frames(*pose)))
        of_robot = np.abs(view.ahead(there.points, LIDARS[there.lidars])[0]) < 1e-3
        visible = ConvexPolygon(convex_hull(there.points[of_robot & (there.points[:, 2] > LOWEST), :2]))
        found = ConvexPolygon(returns)
        assert outline.protrusion(returns) < 0.01
        assert found.area > 0.9 * visible.area and found.protrusion(visible.corners) < 0.04


def test_where_the_robot_is_as_described_nothing_is_told_and_no_motion_is_seen_in_any_recording():
    """Over recordings with other noise the motion found is as large as its standard error says, and none is told."""
    ratios = []
    for seed in range(1, 3):
        evidence = gather_evidence(recording(seed=seed), ROBOT, LIDARS)
        ratios.append(evidence.registration.reach / evidence.registration.standard_error)
        assert evidence.warnings == [] and evidence.payloads == {} and evidence.registration.standard_error < 0.002
        np.testing.assert_array_equal(evidence.seen_from_model, np.eye(4))
    assert np.sqrt(np.mean(np.square(ratios))) < 1.5


@pytest.mark.long
def test_ranges_that_are_longer_at_grazing_incidence_move_no_robot():
    evidence = gathered(incidence=(-0.005, 0.004), rays=40_000)
    assert evidence.warnings == [] and evidence.registration.reach < 0.002


def test_a_payload_becomes_part_of_the_link_that_carries_it():
    payload = ("hand", box((0.1, 0.16, 0.1), (0.1, 0.0, 0.08)))
    evidence = gathered(payload=[payload])
    assert [link for link, _ in evidence.payloads.values()] == ["hand"]
    assert "moves with the robot but is not in its description" in "\n".join(evidence.warnings)
    for pose in (*POSES, (0.6, 0.2, -0.7)):  # also where it was not seen
        outside, larger = sticks_out(evidence, [payload], pose)
        assert outside < 0.01 and larger < 1.05


def test_a_joint_that_did_not_arrive_is_reported_by_sample_and_part():
    evidence = gathered(really=lambda number, pose: (pose[0], pose[1], pose[2] + 0.9) if number == 2 else pose)
    (through,) = (each for each in evidence.warnings if "see through" in each)
    assert through.startswith("sample 2: the lidars see through hand, off their joint values")
    told = "\n".join(evidence.warnings)
    assert "sample 2" in told and "check the joints" in told and evidence.payloads == {}


def test_a_missing_part_and_a_dataset_without_returns_from_the_robot_are_reported():
    evidence = gathered(without=("hand",))
    assert "the lidars see through hand: is a part of the description missing" in "\n".join(evidence.warnings)
    nothing = [dataclasses.replace(pose, points=pose.points[:0], lidars=pose.lidars[:0]) for pose in recording()]
    assert "too few returns are near the model" in gather_evidence(nothing, ROBOT, LIDARS).warnings[0]


def test_a_robot_that_is_seen_elsewhere_is_enclosed_where_it_is_seen():
    off = from_xyz_rpy((0.015, -0.01, 0.008), np.deg2rad((0.6, -0.5, 0.9)))
    evidence = gathered(seen_from_true=off)
    distance, angle = error(off, evidence.seen_from_model)
    assert distance < 0.004 and np.degrees(angle) < 0.2
    assert "left lidar's mount or the floor" in evidence.warnings[0]


@pytest.mark.long
def test_where_it_is_not_known_which_lidar_saw_a_point_a_payload_is_found_all_the_same():
    poses = [dataclasses.replace(pose, lidars=None) for pose in recording(payload=[BOX_ON_BASE])]
    evidence = gather_evidence(poses, ROBOT, LIDARS)
    assert len(evidence.payloads) == 1 and sticks_out(evidence, [BOX_ON_BASE], POSES[0])[0] < 0.015


CONE = Surface(*solids.cone(0.3, 0.5)).moved(from_xyz_rpy((0.0, 0.0, 0.25)))
BEAM = box((0.4, 0.1, 0.1))


def sampled(link_surface, transform, lowest, highest):
    mesh = trimesh.Trimesh(link_surface.vertices, link_surface.faces)
    points = trimesh.sample.sample_surface(mesh, 60_000, seed=1)[0] @ transform[:3, :3].T + transform[:3, 3]
    return points[(points[:, 2] >= lowest) & (points[:, 2] <= highest), :2]


def test_an_outline_holds_all_of_a_cut_surface_and_no_more():
    outline = RobotOutline({"cone": CONE, "box": BEAM}, lowest=0.06, highest=0.4)
    poses = {"cone": from_xyz_rpy((0.1, 0, -0.05), (0.4, 0.3, 0)), "box": from_xyz_rpy((0.3, 0.2, 0.07), (0, 0.9, 0.5))}
    hull = ConvexPolygon(outline.hull(poses))
    points = np.vstack([sampled(CONE, poses["cone"], 0.06, 0.4), sampled(BEAM, poses["box"], 0.06, 0.4)])
    assert hull.protrusion(points) < 1e-9
    distance = hull.signed_distance(points)
    assert all(np.hypot(*(points - corner).T).min() < 0.02 for corner in hull.corners) and distance.max() > -0.005


def test_only_what_is_between_the_heights_counts():
    outline = RobotOutline({"box": BEAM})
    corners = [len(outline.hull({"box": from_xyz_rpy((0, 0, height))})) for height in (0.0, 1.7, 1.0)]
    assert corners == [0, 0, 4]
    triangle = np.array([[[0.0, 0.0, -1.0], [1.0, 0.0, 3.0], [0.0, 1.0, 3.0]]])  # has four corners between them
    within = between_heights(triangle, 0.0, 1.0)
    np.testing.assert_allclose(sorted(within.tolist()), [[0, 0.25], [0, 0.5], [0.25, 0], [0.5, 0]])


def test_sets_of_poses_give_the_hull_around_all_poses_of_each():
    outline = RobotOutline({"base": CONE, "box": BEAM})
    base = np.repeat(from_xyz_rpy((0, 0, 0.2))[None], 3, axis=0)
    box = np.stack([from_xyz_rpy((x, 0.1, 0.08), (0, 0.4, x)) for x in (0.2, 0.5, 0.9)])
    one, two = outline.hulls({"base": base, "box": box}, [1, 2])
    for hull, chosen in ((one, [0]), (two, [1, 2])):
        alone = [outline.hull({"base": base[i], "box": box[i]}) for i in chosen]
        assert ConvexPolygon(hull).protrusion(np.concatenate(alone)) < 1e-12
        assert ConvexPolygon(np.concatenate(alone)).area == ConvexPolygon(hull).area
