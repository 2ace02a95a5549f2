"""What the robot's drivers publish, from a room of boxes, by a thread of the test; any fault can be set."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import yaml
from described_robots import joint, link, robot
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage

from stretch_sim_cal.calibration.calibration_file import FLOOR, FOOTPRINT
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy, inverse, to_xyz_rpy
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.ros.messages import cloud_message, transforms_message
from stretch_sim_cal.sensor.points import POINT_DTYPE
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.optics import Hits, Scene

NORMAL = np.array([0.01, -0.005, 1.0]) / np.linalg.norm([0.01, -0.005, 1.0])
ROOM = [  # axis-aligned boxes (lower corner, upper corner) in m, in the floor's frame; the first is seen from inside
    [(-3.0, -2.5, 0.0), (3.5, 2.0, 2.6)],
    [(1.5, -1.8, 0.0), (2.3, -0.9, 0.75)],
    [(-2.6, 0.8, 0.0), (-1.9, 1.6, 1.4)],
    [(1.2, 1.0, 0.0), (1.7, 1.6, 0.45)],
    [(-1.5, -2.5, 0.0), (-0.9, -2.1, 1.9)],
]
OTHER_ROOM = [[(-1.8, -4.0, 0.0), (2.1, 3.1, 2.2)], [(0.9, -2.0, 0.0), (1.3, 1.6, 1.1)]]
BASE_HEIGHT = 0.028
# In base_link, at the head, looking outward, forward and 45 degrees down.
NOMINAL = {
    side: from_xyz_rpy((0.0387, sign * 0.1244, 1.5007), (sign * 2.56875531, 0.57215973, np.pi))
    for side, sign in (("left", 1.0), ("right", -1.0))
}
TRUE = NOMINAL | {"right": NOMINAL["right"] @ from_xyz_rpy((0.004, -0.003, 0.002), np.radians((0.4, -0.3, 0.5)))}
RIGHT_TO_LEFT = inverse(TRUE["left"]) @ TRUE["right"]
NOISE = 0.005
RATE, STAMP_OFFSET = 10.0, 0.01  # scans per second; of the right lidar's stamps against the left one's, in s
DTYPE = np.dtype([field for field in POINT_DTYPE.descr if field[0] != "ring"])
"""Points of a driver that does not say which channel measured them: the rays here are of no table."""


def description() -> str:
    """Return a URDF text with base_footprint, base_link and the two lidars at their nominal poses."""
    parts, frames = [link("base_footprint")], {f"lidar_{side}_link": ("base_link", NOMINAL[side]) for side in SIDES}
    for child, (parent, pose) in {"base_link": ("base_footprint", edge_transform("", "base_link")), **frames}.items():
        xyz, rpy = (" ".join(map(str, values)) for values in to_xyz_rpy(pose))
        parts += [link(child), joint(f"{child}_joint", parent, child, xyz=xyz, rpy=rpy)]
    return robot("".join(parts))


def scan(side: str, seed: int, floor_from_base: np.ndarray, room: list, rays: int = 4500) -> np.ndarray:
    """Return the returns (N, 3) float32 of one scan, in the lidar's own frame, with noise along the ray."""
    random = np.random.default_rng([seed, side == "right"])
    elevation = np.arcsin(random.uniform(np.sin(np.radians(-3.5)), 1.0, rays))
    azimuth = random.uniform(-np.pi, np.pi, rays)
    directions = np.stack(
        [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)], axis=1
    )
    floor_from_lidar = floor_from_base @ TRUE[side]
    boxes = {
        str(number): Surface(*solids.box(np.subtract(high, low))).moved(from_xyz_rpy(np.add(low, high) / 2))
        for number, (low, high) in enumerate(room)
    }
    ways = (directions @ floor_from_lidar[:3, :3].T).astype(np.float32)
    ranges = Hits(floor_from_lidar[:3, 3], ways, [Scene(boxes)]).distances + random.normal(0.0, NOISE, rays)
    return (directions * ranges[:, None]).astype(np.float32)


@dataclass
class Drivers:
    """What is published; the defaults are a healthy robot."""

    sides: Sequence = SIDES
    topics: dict = field(default_factory=lambda: {side: f"/lidar_points_{side}" for side in SIDES})
    frame_ids: dict = field(default_factory=lambda: {side: f"lidar_{side}_link" for side in SIDES})
    reliable: bool = True
    invalid_share: float = 0.05  # of the points: NaN and infinite ones
    scans: int = 4  # different ones, by turns
    empty: Sequence = ()  # sides whose every third cloud is empty
    organised: bool = False
    tilt_deg: Sequence = (0.0, 0.0)  # of the base on the floor: roll, pitch
    height: float = BASE_HEIGHT
    tf: Sequence = (
        ("base_footprint", "base_link"), ("base_link", "head_link"),
        ("head_link", "lidar_left_link"), ("head_link", "lidar_right_link"),
    )  # fmt: skip
    tf_latched: bool = True
    description: str = ""  # URDF text
    elsewhere: bool = False  # the right lidar's clouds are of another room


def edge_transform(parent: str, child: str) -> np.ndarray:
    if child == "base_link":
        return from_xyz_rpy((0.0, 0.0, BASE_HEIGHT))
    return next((NOMINAL[side] for side in SIDES if side in child), np.eye(4))


def publisher(drivers: Drivers, node) -> Callable[[threading.Event], None]:
    """Make the publishers, send what is latched, and return what sends the rest until an event is set."""
    edges = {edge: edge_transform(*edge) for edge in drivers.tf}
    tf = publish_frames(node, edges, latched=drivers.tf_latched) if edges else None
    if drivers.description:
        latched = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        node.create_publisher(String, "/robot_description", latched).publish(String(data=drivers.description))
    reliability = ReliabilityPolicy.RELIABLE if drivers.reliable else ReliabilityPolicy.BEST_EFFORT
    publishers = {
        side: node.create_publisher(PointCloud2, drivers.topics[side], QoSProfile(depth=5, reliability=reliability))
        for side in drivers.sides
    }
    rooms = {"left": ROOM, "right": OTHER_ROOM if drivers.elsewhere else ROOM}
    floor_from_base = from_xyz_rpy((0.0, 0.0, drivers.height), np.radians([*drivers.tilt_deg, 0.0]))
    scans = {
        side: [scan(side, seed, floor_from_base, rooms[side]) for seed in range(drivers.scans)]
        for side in drivers.sides
    }

    def cloud(side: str, tick: int, stamp: float):
        points = scans[side][tick % drivers.scans].copy()
        bad = np.random.default_rng(tick).random(len(points)) < drivers.invalid_share
        points[bad] = np.where(np.arange(bad.sum()) % 2, np.nan, np.inf)[:, None]
        if side in drivers.empty and tick % 3 == 0:
            points = points[:0]
        records = np.zeros(len(points), DTYPE)
        records["x"], records["y"], records["z"] = points.T
        records["intensity"] = 20.0
        message = cloud_message(records, drivers.frame_ids[side], round(1e9 * stamp))
        if drivers.organised and len(points):
            message.height, message.width = 10, len(points) // 10
            message.row_step = message.width * message.point_step
        return message

    def publish(stop: threading.Event) -> None:
        start, tick = time.time(), 0
        while not stop.wait(max(0.0, start + tick / RATE - time.time())):
            at = start + tick / RATE
            if tf is not None and not drivers.tf_latched:
                tf.publish(transforms_message(edges, 0))
            for side, publisher in publishers.items():
                publisher.publish(cloud(side, tick, at + (STAMP_OFFSET if side == "right" else 0.0)))
            tick += 1

    return publish


def write_calibration(
    path, height: float | None, normal: np.ndarray = NORMAL, base_from_left: np.ndarray | None = None
) -> np.ndarray | None:
    """Write a calibration file with the true alignment and something else, with a floor and mounts if `height` (m) and
    `base_from_left` (4, 4) are given; return its base_link_from_floor_plane, if it has one."""
    entries, base_from_floor = {"other": {"kept": True}}, None
    entries["right_to_left_transform"] = {"data": RIGHT_TO_LEFT.tolist(), "robot_id": "stretch-test"}
    if height is not None:
        transform = footprint_from_base(Plane(normal, height))
        floor = {"normal": normal.tolist(), "distance": height}
        entries |= {
            FOOTPRINT: {"data": transform.tolist()},
            FLOOR: {"data": floor, "convention": "normal . p + distance = 0"},
        }
        base_from_floor = inverse(transform)
    if base_from_left is not None:
        poses = {"left": base_from_left.tolist(), "right": (base_from_left @ RIGHT_TO_LEFT).tolist()}
        entries["lidar_mounts"] = {"data": poses, "covariance": (1e-8 * np.eye(12)).tolist()}
    path.parent.mkdir(parents=True, exist_ok=True)
    replacement = path.with_suffix(".new")
    replacement.write_text(yaml.safe_dump(entries))
    replacement.replace(path)
    return base_from_floor


def publish_frames(node, transforms: dict, topic: str = "/tf_static", latched: bool = True):
    """Publish {(parent, child): parent_from_child (4, 4)} once, and return the publisher, which serves late comers if
    `latched`."""
    durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
    publisher = node.create_publisher(TFMessage, topic, QoSProfile(depth=10, durability=durability))
    publisher.publish(transforms_message(transforms, 0))
    return publisher


def calibrated_frames(truth) -> dict:
    """Return the transforms that ros_broadcast_calibration publishes of a perfect calibration of a simulated robot."""
    return {
        ("base_link", "floor_plane"): inverse(footprint_from_base(truth.floor)),
        ("lidar_left_link", "lidar_right_calibrated"): truth.to_left["right"],
    }
