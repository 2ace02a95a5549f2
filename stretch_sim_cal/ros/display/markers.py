"""RViz markers of outlines in the plane: lines, filled shapes, and the band between two outlines. Lengths in m.

Everything is in one frame and stamp, which are set on the whole array at the end (`marker_array`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from geometry_msgs.msg import Point, Point32, Polygon, PolygonStamped
from visualization_msgs.msg import Marker, MarkerArray

from stretch_sim_cal.ros.messages import time_message

DIRECTIONS = 90


class Colour(NamedTuple):
    """Red, green, blue and opacity, each 0 to 1."""

    red: float
    green: float
    blue: float
    opacity: float = 1.0


def line(namespace: str, outline: np.ndarray, height: float, colour: Colour, width: float) -> Marker:
    """Return a closed line along `outline` (N, 2) at a height over the frame's x-y plane."""
    marker = _marker(namespace, Marker.LINE_STRIP, colour)
    marker.scale.x = width
    marker.points = _points(np.concatenate([outline, outline[:1]]), height)
    return marker


def filled(namespace: str, outline: np.ndarray, height: float, colour: Colour) -> Marker:
    """Return the inside of a convex `outline` (N, 2), shaded from both sides."""
    centre = np.repeat(outline.mean(axis=0)[None], len(outline), axis=0)
    triangles = np.stack([centre, outline, np.roll(outline, -1, axis=0)], axis=1)
    return _triangles(namespace, triangles, height, colour)


def band(namespace: str, inner: np.ndarray, outer: np.ndarray, height: float, colour: Colour) -> Marker:
    """Return the region between two convex outlines (N, 2), (M, 2), the first inside the second, shaded."""
    centre = inner.mean(axis=0)
    angles = np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS)
    near, far = (centre + _reach(outline - centre, angles) for outline in (inner, outer))
    next_near, next_far = np.roll(near, -1, axis=0), np.roll(far, -1, axis=0)
    triangles = np.concatenate([np.stack([near, far, next_far], axis=1), np.stack([near, next_far, next_near], axis=1)])
    return _triangles(namespace, triangles, height, colour)


def marker_array(markers: Sequence[Marker], frame: str, stamp: int) -> MarkerArray:
    """Return markers as one message in `frame`, stamped `stamp` ns."""
    for marker in markers:
        marker.header.frame_id = frame
        marker.header.stamp = time_message(stamp)
    return MarkerArray(markers=list(markers))


def polygon(outline: np.ndarray, frame: str, stamp: int) -> PolygonStamped:
    """Return `outline` (N, 2) as a polygon in the x-y plane of `frame`, stamped `stamp` ns."""
    message = PolygonStamped(polygon=Polygon(points=[Point32(x=float(x), y=float(y)) for x, y in outline]))
    message.header.frame_id = frame
    message.header.stamp = time_message(stamp)
    return message


def _reach(outline: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return where rays from the origin at `angles` (K,) leave the convex `outline` (N, 2) around it, (K, 2)."""
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    start, edge = outline, np.roll(outline, -1, axis=0) - outline
    # direction * t == start + s * edge, solved for t by crossing both sides with the edge
    denominator = directions[:, None, 0] * edge[None, :, 1] - directions[:, None, 1] * edge[None, :, 0]
    numerator = (start[:, 0] * edge[:, 1] - start[:, 1] * edge[:, 0])[None]
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = numerator / denominator
    # A convex outline lies on one side of each of its edges: the first line that is met is the border.
    distance[~(distance > 0)] = np.inf
    return directions * distance.min(axis=1)[:, None]


def _triangles(namespace: str, triangles: np.ndarray, height: float, colour: Colour) -> Marker:
    marker = _marker(namespace, Marker.TRIANGLE_LIST, colour)
    marker.scale.x = marker.scale.y = marker.scale.z = 1.0
    both_sides = np.concatenate([triangles, triangles[:, ::-1]])
    marker.points = _points(both_sides.reshape(-1, 2), height)
    return marker


def _marker(namespace: str, kind: int, colour: Colour) -> Marker:
    marker = Marker(ns=namespace, id=0, type=kind, action=Marker.ADD)
    marker.pose.orientation.w = 1.0
    marker.color.r, marker.color.g, marker.color.b, marker.color.a = colour
    marker.frame_locked = True
    return marker


def _points(points: np.ndarray, height: float) -> list[Point]:
    return [Point(x=float(x), y=float(y), z=height) for x, y in points]
