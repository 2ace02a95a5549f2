"""Errors of the frame of a lidar's clouds in the lidar, of unknown lidars, and of lidars that differ from their sensor
file.

The mean of all channels' azimuths is part of a lidar's pose. If they differ by more than the sensor file allows (half
of the channels fire later than the driver assumes), it is unknown which of them are right.

Rays of an unknown lidar that begin beside the spin axis show a driver that does not correct the optical centre. Then
the shift of the clouds' frame along that axis and its rotation about it are unknown. They are the same for lidars of
one kind: between two with the same orientation they cancel, between two that are turned they do not.

Coordinates that a driver cut to whole multiples of a step, toward zero or down, are off by up to a step, and rounded
ones look like them.

If a lidar has only a sector of its view in common with others, the error of that sector against the whole is
unobservable: its rotor's angles may be wrong there, or its clouds may have moved during the scan.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stretch_sim_cal.geometry.transforms import adjoint
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.sensor.unit import SCAN_MOTION_DEVIATIONS

BESIDE_AXIS = 0.003  # m: rays of a corrected cloud begin nearer to the spin axis than this
# Firing times turn a cloud by so much (rad) if nobody corrects them; rays begin at most so far (m) along the axis.
FIRING = float(np.deg2rad(0.3))
ALONG = 0.03
ALONG_AND_ABOUT = [2, 5]
# The channels' azimuths differ by so many standard deviations of the sensor file by chance.
CHANCE_MARGIN = 1.2
UNKNOWN_AZIMUTHS = float(np.deg2rad(0.05))  # as of VLP-16, whose drivers have no table of the unit
# Standard deviations (m, rad) of a frame by coordinates in steps of 1 m: half a step, and as much at 5 m.
BY_STEP = np.repeat([0.5, 0.1], 3)
UPRIGHT = 0.1  # rad: spin axes that are nearer to each other are parallel
WRONG_ROTOR = float(np.deg2rad(0.15))  # more than the error of rotor angles once a turn by an encoder
# Standard deviations (m, rad) of a sector's pose against the whole: by the motion of a frame in any part of a scan, by
# errors of a table of angles, and about the spin axis by errors of rotor angles.
WRONG_TABLE = float(np.deg2rad(0.03))
OF_SECTOR = np.hypot(SCAN_MOTION_DEVIATIONS / np.sqrt(12.0), [0.0, 0.0, 0.0, *[WRONG_TABLE] * 3])
OF_SECTOR[5] = np.hypot(OF_SECTOR[5], WRONG_ROTOR / 3.0)


def beside_axis(numbers: Mapping[str, float], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return by lidar the distance (m) of the origin of its rays from its spin axis, with standard deviation, where
    that is significant, or nearer to another lidar's significant one than to none."""
    found = {}
    for name in names:
        keys = [f"optical_centre_{axis}_{name}" for axis in "xy"]
        if all(key in numbers for key in keys):
            found[name] = float(np.hypot(*map(numbers.get, keys))), max(numbers[f"{key}_std"] for key in keys)
    sure = [distance for distance, deviation in found.values() if distance - 3.0 * deviation >= BESIDE_AXIS]
    return {name: own for name, own in found.items() if any(abs(own[0] - other) < own[0] for other in sure)}


def covariance_of_frames(
    poses: Sequence[np.ndarray], numbers: Mapping[str, float], sensors: Sequence[Sensor | None], names: Sequence[str]
) -> np.ndarray:
    """Return the covariance (6L, 6L) of the twists of lidars at `poses` (4, 4) by the errors of their clouds' frames:
    an unknown shift and turn of unknown lidars whose optical centre is not corrected, an unknown turn of lidars whose
    channels differ by more than is expected, and what rounding hides. Lidars with the same kind and size of error share
    one, but for rounding."""
    beside = beside_axis(numbers, [name for name, sensor in zip(names, sensors, strict=True) if sensor is None])
    errors = [
        (lidar, error)
        for lidar, (sensor, name) in enumerate(zip(sensors, names, strict=True))
        for error in _errors_of_frame(numbers, sensor, name, beside.get(name))
    ]
    by_lidar = np.zeros((6 * len(poses), 2 * len(errors)))
    for lidar, error in errors:
        column = 2 * next(first for first, (_, other) in enumerate(errors) if error.is_like(other))
        rows = slice(6 * lidar, 6 * lidar + 6)
        by_lidar[rows, column : column + 2] += adjoint(poses[lidar])[:, ALONG_AND_ABOUT] * error.deviations
    return by_lidar @ by_lidar.T + _independent(poses, {n: by_step(numbers, name) for n, name in enumerate(names)})


def by_step(numbers: Mapping[str, float], name: str) -> np.ndarray:
    """Return the standard deviations (6,) in m and rad of the frame of a lidar's clouds by its coordinates' step."""
    return BY_STEP * numbers.get(f"coordinate_step_{name}", 0.0)


def covariance_of_sectors(poses: Sequence[np.ndarray], narrow: Sequence[int]) -> np.ndarray:
    """Return the covariance (6L, 6L) of the twists of lidars at `poses` (4, 4) by the errors of the sectors that the
    `narrow` ones, by their numbers, have in common with others."""
    return _independent(poses, dict.fromkeys(narrow, OF_SECTOR))


def _independent(poses: Sequence[np.ndarray], errors: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return the covariance (6L, 6L) of the twists of lidars at `poses` (4, 4) by independent `errors` (6,) of the
    frames of some, by their numbers."""
    roots = np.zeros((6 * len(poses), 6 * len(poses)))
    for lidar, deviations in errors.items():
        rows = slice(6 * lidar, 6 * lidar + 6)
        roots[rows, rows] = adjoint(poses[lidar]) * deviations
    return roots @ roots.T


class _ErrorOfFrame(NamedTuple):
    """The standard `deviations` (m, rad) of a lidar's frame along the spin axis and about it, and the `size` of the
    effect that shows it, with its standard deviation: lidars with the same `what` and size share the error."""

    what: str
    deviations: tuple[float, float]
    size: tuple[float, float]

    def is_like(self, other: "_ErrorOfFrame") -> bool:
        apart, deviation = abs(self.size[0] - other.size[0]), np.hypot(self.size[1], other.size[1])
        return self.what == other.what and apart <= 3.0 * deviation


def _errors_of_frame(
    numbers: Mapping[str, float], sensor: Sensor | None, name: str, beside: tuple[float, float] | None
) -> Iterator[_ErrorOfFrame]:
    if beside is not None:
        yield _ErrorOfFrame("optical centre", (ALONG, FIRING), beside)
    differing = numbers.get(f"channel_azimuth_spread_{name}", 0.0)
    expected = UNKNOWN_AZIMUTHS if sensor is None else sensor.expected.channel_azimuth
    turn = float(np.sqrt(max(0.0, differing**2 - (CHANCE_MARGIN * expected) ** 2)))
    if turn:
        size = differing, 0.15 * differing  # so well a standard deviation is known by some tens of channels
        yield _ErrorOfFrame("azimuths" if sensor is None else f"azimuths of {sensor.name}", (0.0, turn), size)


def wrong_rotor_angles(
    poses: Sequence[np.ndarray], numbers: Mapping[str, float], names: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Return by lidar the amplitude (rad) of the error of its rotor's angles once a turn, with its standard deviation;
    of lidars with parallel axes only the difference: a common error moves none against another."""
    amplitudes, deviations = {}, {}
    for pose, name in zip(poses, names, strict=True):
        harmonics = [f"azimuth_{axis}_1_{name}" for axis in ("cos", "sin")]
        if all(each in numbers for each in harmonics):
            yaw = np.arctan2(pose[1, 0], pose[0, 0])
            amplitudes[name] = np.exp(1j * yaw) * complex(*(numbers[each] for each in harmonics))
            deviations[name] = max(numbers[f"{each}_std"] for each in harmonics)
    axes = [pose[:3, 2] for pose, name in zip(poses, names, strict=True) if name in amplitudes]
    sizes = {name: abs(value) for name, value in amplitudes.items()}
    if len(axes) > 1 and min(axis @ axes[0] for axis in axes) > np.cos(UPRIGHT):
        against = {name: max(abs(value - other) for other in amplitudes.values()) for name, value in amplitudes.items()}
        sizes = {name: min(size, against[name]) for name, size in sizes.items()}
    return {name: (size, deviations[name]) for name, size in sizes.items()}
