"""The Stretch's links and joints by the names of its URDF conventions, and the frames that the rules ask for."""

import re

import numpy as np
from scipy.spatial.transform import Rotation

from stretch_sim_cal.conventions.measures import FORWARD, LEFT, PRIMARY, UP, across, angle_deg, turn_deg, upright
from stretch_sim_cal.robot.model import Joint, RobotModel

BASE, FOOTPRINT, LIFT, WRIST, ROLL = "base_link", "base_footprint", "lift_link", "wrist_link", "wrist_roll_link"
TOOL_SITE = "tool_attachment_site_link"  # what tools hang on
ARM = tuple(f"arm_l{number}_link" for number in range(5))
ARM_JOINTS = tuple(f"arm_l{number}_joint" for number in range(5))
PRIMARY_LINKS = ("mast_link", "head_link", LIFT, *ARM, WRIST, TOOL_SITE, "quick_connect_interface_link")
"""Structural links without a joint of rotation: Rule 1's first sentence."""
ROTATING_LINKS = ("wrist_yaw_link", "wrist_pitch_link", ROLL)  # the wrist's links, whose zero position Rule 1 aligns
GRASP_CENTERS = ("grasp_center_link", "link_grasp_center")  # the second is how Rule 5 writes it
SIDEWAYS_CAMERAS = {"camera_right_link": -LEFT, "camera_center_link": -LEFT, "camera_left_link": LEFT}
"""The head's cameras, mounted turned by a quarter, and where Rule 4 points the z axis of their base frames."""

EXACT_DEG = 0.01  # frames that are meant to be parallel: CAD exports round far below this
MOUNT_DEG = 5.0  # how far a mounted or calibrated sensor may be from its nominal orientation
ROLLS_DEG = 45.0  # a link whose axis is nearer to the vertical steers or swivels, and is not a wheel of Rule 6
LIDAR_DEG = 10.0  # how far a lidar may be turned about its z axis, which the released model chooses to 5 deg
INWARDS_DEG, INCLINED_DEG, CALIBRATED_DEG = 55.0, 20.0, 3.0
"""Allowed by exceptions: of a lidar's y from the head's centre, a fingertip's x from inwards, a base's tilt."""
LEVELLED, LEVELLED_DEG = "gripper_*_optical_frame", 3.01
"""Optical frames that the vendor levels, and how far they may be from their camera's axes for that."""
Frames = dict[str, np.ndarray]  # base_link_from_link (4, 4) of every link at position zero

_SENSOR = re.compile(r"^(camera_\w+|line_sensor_\w+|gripper_camera)_link$")
_OPTICAL = re.compile(r"_optical(_link|_frame)?$")
_WHEEL = re.compile(r"^wheel_(\d+)(_link)?$")
_LIDAR = re.compile(r"^(lidar_(left|right)_link|link_lidar_(left|right))$")
_TIP = re.compile(r"^(?!aruco).*fingertip")
_FINGER = re.compile(r"finger(?!tip)")


def suffixed(name: str, kind: str) -> str:
    """Return the name of a link or joint (`kind`) as Rule 7 has it: one suffix _link or _joint, at the end."""
    stem = name.removesuffix(f"_{kind}")
    if stem != name and kind not in stem.split("_"):
        return name
    words = [word for word in name.split("_") if word not in (kind, "")]
    return "_".join([*words, kind]) if words else name


def is_optical(link: str) -> bool:
    return _OPTICAL.search(link) is not None


def sensors(model: RobotModel) -> list[str]:
    """Return the base frames of cameras and line sensors."""
    return [link for link in model.order if _SENSOR.match(link) and not is_optical(link)]


def optical_frames(model: RobotModel, sensor: str) -> list[str]:
    """Return the optical frames that hang on a sensor's base frame."""
    return [joint.child for joint in model.child_joints(sensor) if is_optical(joint.child)]


def lidars(model: RobotModel) -> list[str]:
    return [link for link in model.order if _LIDAR.match(link)]


def wheels(model: RobotModel) -> list[str]:
    """Return the wheels' links, by their numbers."""
    return sorted(filter(_WHEEL.match, model.order), key=lambda link: (int(_WHEEL.match(link)[1]), link))


def fingertips(model: RobotModel) -> list[str]:
    return [link for link in model.order if _TIP.match(link)]


def fingers(model: RobotModel) -> list[Joint]:
    return [joint for joint in model.joints.values() if joint.variables and _FINGER.search(joint.child)]


def grasp_center(model: RobotModel) -> str | None:
    """Return the grasp centre's link, whichever of its two names it has."""
    return next((name for name in GRASP_CENTERS if name in model.links), None)


LOOKS_DEG = 45.0
"""How far at most a sensor looks from the direction that its mounting gives it: beyond, another axis is nearer."""


def looks(link: str, position: np.ndarray, inwards: np.ndarray | None = None) -> np.ndarray:
    """Return the unit direction (3,) in base_link in which a sensor at `position` (3,) is roughly mounted to look: a
    line sensor away from the base's centre, a head camera ahead and down, the gripper's ahead; a lidar (with `inwards`,
    the direction to the head's centre) ahead, outwards and down."""
    if inwards is not None:
        direction = FORWARD - UP - inwards / np.linalg.norm(inwards)
    elif link.startswith("line_sensor"):
        direction = across(position, UP)
    else:
        direction = FORWARD - UP if link in SIDEWAYS_CAMERAS else FORWARD
    return direction / np.linalg.norm(direction)


def sensor_upright(link: str, forward: np.ndarray) -> np.ndarray:
    """Return base_link_from_sensor (3, 3) of Rule 4 with x `forward`, z up; of the head's cameras sideways."""
    return upright(forward, SIDEWAYS_CAMERAS.get(link, UP))


OPTICAL_FROM_SENSOR = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
"""Rotation: an optical frame's z is its sensor's x, its x the sensor's -y, its y the sensor's -z."""


def lidar_upright(outwards: np.ndarray, inwards: np.ndarray) -> np.ndarray:
    """Return the rotation (3, 3) base_link_from_lidar with z `outwards` and x up or, if y would then point away from
    `inwards` (the direction to the head's centre), down: right-handed frames of the right lidar cannot have both."""
    up = across(UP, outwards)
    if np.linalg.norm(up) < 1e-9:  # it looks straight up or down
        up = across(FORWARD, outwards)
    x = up / np.linalg.norm(up)
    if np.dot(np.cross(outwards, x), inwards) < 0:
        x = -x
    return np.column_stack([x, np.cross(outwards, x), outwards])


def head_centre(frames: Frames, links: list[str], link: str) -> np.ndarray:
    """Return the middle (3,) between the lidars in base_link; of one, beside it in the robot's middle plane."""
    if len(links) > 1:
        return np.mean([frames[name][:3, 3] for name in links], axis=0)
    return frames[link][:3, 3] * [1.0, 0.0, 1.0]


def aligned(now: np.ndarray, axis: np.ndarray | None) -> np.ndarray:
    """Return the rotation (3, 3) base_link_from_link of Rules 1 and 3 for a structural link with the present one `now`
    (3, 3) and the axis of motion `axis` (3,) in base_link. Rule 1 asks for base_link's orientation; Rule 3 turns it the
    shortest way to an axis along a primary axis, of two equally near ones that of the present frame."""
    if axis is None:
        return np.eye(3)
    away = {name: angle_deg(axis, direction) for name, direction in PRIMARY.items()}
    nearest = [name for name in PRIMARY if away[name] <= min(away.values()) + EXACT_DEG]
    turned = [shortest(PRIMARY[name], axis) if away[name] > EXACT_DEG else np.eye(3) for name in nearest]
    return min(turned, key=lambda rotation: turn_deg(rotation.T @ now))


def shortest(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the rotation (3, 3) that takes one unit vector to another, less than 180 deg away, the shortest way."""
    return Rotation.align_vectors(end, start)[0].as_matrix()


def wheel_rotation(now: np.ndarray, axis: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Return the rotation (3, 3) base_link_from_wheel of Rule 6 for a wheel that turns about `axis` (3,), not vertical,
    in base_link: z along the axis towards the base's centre by `position` (3,), or as in `now` (3, 3) if neither
    direction leads there; x is the rolling direction, z cross up."""
    inwards = -across(position, UP)
    sideways = abs(angle_deg(axis, inwards) - 90.0) < MOUNT_DEG
    z = axis * (1.0 if axis @ (now[:, 2] if sideways else inwards) > 0 else -1.0)
    x = np.cross(z, UP) / np.linalg.norm(np.cross(z, UP))
    return np.column_stack([x, np.cross(z, x), z])


def rolls(joint: Joint | None, axis: np.ndarray) -> bool:
    """Return whether a joint lets a wheel roll: it turns about an `axis` (3,) in base_link that is not vertical."""
    upright = min(angle_deg(axis, UP), angle_deg(axis, -UP)) < ROLLS_DEG
    return joint is not None and joint.type in ("continuous", "revolute") and not upright


def wheel_order(positions: dict[str, np.ndarray]) -> list[str]:
    """Return wheels by their positions in base_link counter-clockwise from the one nearest to forward."""
    azimuth = {name: float(np.arctan2(position[1], position[0])) for name, position in positions.items()}
    # Two wheels may be equally near to forward, one on each side: then the left one is first, rounding aside.
    first = min(azimuth, key=lambda name: (round(abs(azimuth[name]), 6), -azimuth[name]))
    whole = round(2 * np.pi, 9)
    return sorted(azimuth, key=lambda name: round((azimuth[name] - azimuth[first]) % (2 * np.pi), 9) % whole)
