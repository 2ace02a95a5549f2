"""A small robot of boxes, seen by two noisy lidars on its head: what the tests of body evidence look at."""

import numpy as np

from stretch_sim_cal.calibration.body.evidence import PoseReturns
from stretch_sim_cal.geometry.rays import RayTarget
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.simulation import solids

LIDARS = np.array([[0.04, 0.13, 1.5], [0.04, -0.13, 1.5]])
NOISE = 0.01
RAYS = 14_000  # per lidar and pose, aimed at the floor around the robot


def box(size, xyz=(0.0, 0.0, 0.0), rpy=(0.0, 0.0, 0.0)):
    """A box's surface with its centre at a pose."""
    return Surface(*solids.box(np.asarray(size))).moved(from_xyz_rpy(xyz, rpy))


def post(radius, height, x, y):
    """An upright cylinder that stands on the floor."""
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


def scan(links, room=(), seen_from_true=None, seed=0, rays=RAYS, noise=NOISE):
    """The returns of a robot (pairs of surface and frame) and a room (surfaces), with which lidar saw each.

    `seen_from_true` (4, 4) moves what is seen: a mount that is off. The same seed gives the same rays, whatever their
    noise.
    """
    random = np.random.default_rng(seed)
    floor = box((8.0, 8.0, 0.02), (0.0, 0.0, -0.01))
    posed = [(s.vertices @ f[:3, :3].T + f[:3, 3])[s.faces] for s, f in links]
    target = RayTarget(np.concatenate(posed + [s.vertices[s.faces] for s in (*room, floor)]))
    points, lidars = [], []
    for number, origin in enumerate(LIDARS):
        aims = np.column_stack([random.uniform(-1.4, 1.4, size=(rays, 2)), np.zeros(rays)])
        directions = (aims - origin) / np.linalg.norm(aims - origin, axis=1)[:, None]
        ranges = target.cast(origin, directions)[0] + noise * random.normal(size=rays)
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
