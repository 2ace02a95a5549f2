"""Where the frame of a lidar's clouds is in the lidar, if nobody says what lidar it is, or if it is not as its sensor
file says.

The mean of all channels' azimuths is part of a lidar's pose. If they differ by more than the sensor file allows (half
of the channels fire later than the driver knows), nobody knows which of them are right.

Of an unknown lidar, rays that begin beside the spin axis show a driver that does not correct the optical centre. Then
nobody knows how far the clouds' frame is shifted along that axis, nor how far it is turned about it. All that is in one
lidar's clouds is in those of another of its kind: between two that stand alike it cancels, between two that are turned
it does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.geometry.transforms import adjoint
from stretch_sim_cal.sensor.sensor import Sensor

BESIDE_AXIS = 0.003  # m: rays of a corrected cloud begin nearer to the spin axis than this
# Firing times turn a cloud by so much (rad) if nobody corrects them; rays begin at most so far (m) along the axis.
FIRING = float(np.deg2rad(0.3))
ALONG = 0.03
ALONG_AND_ABOUT = [2, 5]
# The channels' azimuths differ by so many standard deviations of the sensor file by chance.
BY_CHANCE = 1.2
UPRIGHT = 0.1  # rad: spin axes that are nearer to each other are parallel


def beside_axis(numbers: Mapping[str, float], name: str) -> tuple[float, float] | None:
    """Return how far (m) beside its spin axis a lidar's rays begin, with its standard deviation, by `numbers` as in a
    result's diagnostics; None if they may begin on it."""
    names = [f"optical_centre_{axis}_{name}" for axis in "xy"]
    if any(each not in numbers for each in names):
        return None
    distance = float(np.hypot(*(numbers[each] for each in names)))
    deviation = max(numbers[f"{each}_std"] for each in names)
    return None if distance - 3.0 * deviation < BESIDE_AXIS else (distance, deviation)


def covariance_of_frames(
    poses: Sequence[np.ndarray], numbers: Mapping[str, float], sensors: Sequence[Sensor | None], names: Sequence[str]
) -> np.ndarray:
    """Return the covariance (6L, 6L) of the twists of lidars at `poses` (4, 4) by where the frames of their clouds are:
    an unknown shift and turn of unknown lidars, an unknown turn of known ones whose channels differ by more than their
    sensor file says. Lidars that err alike have the same one, others one each."""
    by_lidar = np.zeros((6 * len(poses), 2 * len(poses)))
    errors = [_error_of_frame(numbers, sensor, name) for sensor, name in zip(sensors, names, strict=True)]
    for lidar, (pose, error) in enumerate(zip(poses, errors, strict=True)):
        if error is None:
            continue
        alike = [other for other in range(lidar) if errors[other] is not None and error.is_like(errors[other])]
        own = 2 * min(alike, default=lidar)
        by_lidar[6 * lidar : 6 * lidar + 6, own : own + 2] = adjoint(pose)[:, ALONG_AND_ABOUT] * error.deviations
    return by_lidar @ by_lidar.T


@dataclass(frozen=True)
class _ErrorOfFrame:
    """The standard `deviations` (m, rad) of where a cloud's frame is along the spin axis and about it, for a lidar of
    that kind ("" if it is unknown), and the `size` of what shows it, with its standard deviation: lidars of one kind
    with the same size err alike."""

    kind: str
    deviations: tuple[float, float]
    size: tuple[float, float]

    def is_like(self, other: "_ErrorOfFrame") -> bool:
        apart, deviation = abs(self.size[0] - other.size[0]), np.hypot(self.size[1], other.size[1])
        return self.kind == other.kind and apart < 3.0 * deviation


def _error_of_frame(numbers: Mapping[str, float], sensor: Sensor | None, name: str) -> _ErrorOfFrame | None:
    if sensor is None:
        beside = beside_axis(numbers, name)
        return None if beside is None else _ErrorOfFrame("", (ALONG, FIRING), beside)
    differing = numbers.get(f"channel_azimuth_spread_{name}", 0.0)
    beyond = differing**2 - (BY_CHANCE * sensor.expected.channel_azimuth) ** 2
    # A standard deviation by so many channels.
    size = differing, differing / np.sqrt(2.0 * len(sensor.elevations))
    return None if beyond <= 0.0 else _ErrorOfFrame(sensor.name, (0.0, float(np.sqrt(beyond))), size)


def wrong_rotor_angles(
    poses: Sequence[np.ndarray], numbers: Mapping[str, float], names: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Return by lidar the amplitude (rad) of what its rotor's angles are off once a turn, with its standard deviation;
    of lidars whose axes are parallel only what they do not have in common: that moves none against another."""
    amplitudes, deviations = {}, {}
    for pose, name in zip(poses, names, strict=True):
        own = [f"azimuth_{axis}_1_{name}" for axis in ("cos", "sin")]
        if all(each in numbers for each in own):
            yaw = np.arctan2(pose[1, 0], pose[0, 0])
            amplitudes[name] = np.exp(1j * yaw) * complex(*(numbers[each] for each in own))
            deviations[name] = max(numbers[f"{each}_std"] for each in own)
    axes = [pose[:3, 2] for pose, name in zip(poses, names, strict=True) if name in amplitudes]
    sizes = {name: abs(value) for name, value in amplitudes.items()}
    if len(axes) > 1 and min(axis @ axes[0] for axis in axes) > np.cos(UPRIGHT):
        against = {name: max(abs(value - other) for other in amplitudes.values()) for name, value in amplitudes.items()}
        sizes = {name: min(size, against[name]) for name, size in sizes.items()}
    return {name: (size, deviations[name]) for name, size in sizes.items()}
