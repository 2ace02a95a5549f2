"""Messages made of arrays and numbers: those of the robot's drivers, and markers of outlines in the plane for RViz.
Lengths in m; stamps in ns. Markers are in one frame and stamp, which `marker_array` sets on all at the end."""

from collections.abc import Mapping, Sequence

import numpy as np
import shapely
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, Point32, Polygon, PolygonStamped, Quaternion, Transform, TransformStamped, Vector3
from nav_msgs.msg import Odometry
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import JointState, PointCloud2, PointField
from std_msgs.msg import ColorRGBA, Header
from tf2_msgs.msg import TFMessage
from visualization_msgs.msg import Marker, MarkerArray

from stretch_sim_cal.calibration.zones import Zones
from stretch_sim_cal.recording.clouds import cloud_attributes, layout, message_bytes

BLUE, BLUE_SHADE = (ColorRGBA(r=0.24, g=0.55, b=1.0, a=opacity) for opacity in (1.0, 0.3))
RED, RED_SHADE = (ColorRGBA(r=0.9, g=0.15, b=0.15, a=opacity) for opacity in (1.0, 0.3))
SHADE_HEIGHT, LINE_HEIGHT = 0.004, 0.008  # above the floor and each other, so that none flickers in another
CORNERS = 180  # of an outline
SEGMENT = 0.03  # m, of the edges of a shaded area


def header(frame: str, stamp: int) -> Header:
    return Header(frame_id=frame, stamp=time_message(stamp))


def time_message(stamp: int) -> Time:
    seconds, nanoseconds = divmod(stamp, 1_000_000_000)
    return Time(sec=seconds, nanosec=nanoseconds)


def cloud_message(scan: np.ndarray, frame: str, stamp: int) -> PointCloud2:
    """Return a structured scan (N,) as a cloud in `frame`."""
    fields = [PointField(**field._asdict()) for field in layout(scan.dtype)]
    return PointCloud2(header=header(frame, stamp), fields=fields, data=message_bytes(scan), **cloud_attributes(scan))


def joint_state_message(positions: Mapping[str, float], velocities: Mapping[str, float], stamp: int) -> JointState:
    return JointState(
        header=header("", stamp), name=list(positions), position=list(map(float, positions.values())),
        velocity=[float(velocities.get(name, 0.0)) for name in positions],
    )  # fmt: skip


def transforms_message(transforms: Mapping[tuple[str, str], np.ndarray], stamp: int) -> TFMessage:
    """Return {(parent, child): parent_from_child (4, 4)} as a message for /tf or /tf_static."""
    matrices = np.array(list(transforms.values())).reshape(-1, 4, 4)
    translations = matrices[:, :3, 3].tolist()
    quaternions = Rotation.from_matrix(matrices[:, :3, :3]).as_quat(canonical=True).tolist()
    message = TFMessage()
    for (parent, child), xyz, xyzw in zip(transforms, translations, quaternions, strict=True):
        moved = Transform(
            translation=Vector3(**dict(zip("xyz", xyz, strict=True))),
            rotation=Quaternion(**dict(zip("xyzw", xyzw, strict=True))),
        )
        message.transforms.append(TransformStamped(header=header(parent, stamp), child_frame_id=child, transform=moved))
    return message


def odometry_message(pose: np.ndarray, twist: Sequence[float], frames: tuple[str, str], stamp: int) -> Odometry:
    """Return a pose (4, 4) of the second of two frames in the first, and velocities (x, y in m/s, yaw in rad/s) in the
    second, as odometry without covariances."""
    message = Odometry(header=header(frames[0], stamp), child_frame_id=frames[1])
    (placed,) = transforms_message({frames: pose}, stamp).transforms
    position, given = message.pose.pose.position, placed.transform.translation
    position.x, position.y, position.z = given.x, given.y, given.z
    message.pose.pose.orientation = placed.transform.rotation
    message.twist.twist.linear.x, message.twist.twist.linear.y = float(twist[0]), float(twist[1])
    message.twist.twist.angular.z = float(twist[2])
    return message


def zone_markers(zones: Zones) -> list[Marker]:
    """Return the markers of the zones, each in a namespace of its own so that RViz can switch it."""
    minimum, inner, outer = (shape.outline(CORNERS) for shape in (zones.minimum, zones.inner, zones.outer))
    return [
        shaded("minimum_model_shade", shapely.Polygon(minimum), BLUE_SHADE),
        line("minimum_model", minimum, BLUE, width=0.005),
        line("inner_boundary", inner, RED, width=0.01),
        line("outer_boundary", outer, RED, width=0.01),
        shaded("stop_zone", shapely.Polygon(outer, [inner]), RED_SHADE),
    ]


def line(namespace: str, outline: np.ndarray, colour: ColorRGBA, width: float) -> Marker:
    """Return a closed line along `outline` (N, 2)."""
    marker = _marker(namespace, Marker.LINE_STRIP, colour, np.concatenate([outline, outline[:1]]), LINE_HEIGHT)
    marker.scale.x = width
    return marker


def shaded(namespace: str, area: shapely.Polygon, colour: ColorRGBA) -> Marker:
    """Return an area, shaded from both sides. Its edges are cut into short ones, which no triangle crosses."""
    parts = shapely.get_parts(shapely.delaunay_triangles(shapely.segmentize(area, SEGMENT)))
    inside = parts[shapely.contains(area, shapely.centroid(parts))]
    triangles = shapely.get_coordinates(inside).reshape(-1, 4, 2)[:, :3]
    both_sides = np.concatenate([triangles, triangles[:, ::-1]]).reshape(-1, 2)
    marker = _marker(namespace, Marker.TRIANGLE_LIST, colour, both_sides, SHADE_HEIGHT)
    marker.scale = Vector3(x=1.0, y=1.0, z=1.0)
    return marker


def _marker(namespace: str, kind: int, colour: ColorRGBA, points: np.ndarray, height: float) -> Marker:
    placed = [Point(x=float(x), y=float(y), z=height) for x, y in points]
    # Its pose is the frame's.
    return Marker(ns=namespace, type=kind, action=Marker.ADD, color=colour, points=placed, frame_locked=True)


def marker_array(markers: Sequence[Marker], frame: str, stamp: int) -> MarkerArray:
    for marker in markers:
        marker.header = header(frame, stamp)
    return MarkerArray(markers=list(markers))


def polygon(outline: np.ndarray, frame: str, stamp: int) -> PolygonStamped:
    """Return a closed `outline` (N, 2) in `frame`."""
    points = [Point32(x=float(x), y=float(y)) for x, y in outline]
    return PolygonStamped(header=header(frame, stamp), polygon=Polygon(points=points))
