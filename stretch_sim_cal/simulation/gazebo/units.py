"""What a unit of the sensor publishes of a scan that Gazebo cast exactly: its own errors, noise, quantisation, lost and late
returns, dual returns and misses, as of the embedded simulator's `Lidar`.

Gazebo's rays begin at the lidar's origin, in even rows without the channels' lead and lag, and say nothing of surfaces. So
a row stands for a channel; where the unit's ray would have begun and gone is worked out from the point that was hit;
incidence is that of the surface through the neighbouring points; and surfaces are of the sensor's reflectivity.
"""

import numpy as np

from stretch_sim_cal.sensor.unit import CENTRE, CENTRE_SHARE, FIRING_SHARE, HARMONICS, directions
from stretch_sim_cal.simulation.lidar import Echoes, Lidar, Rays

ITERATIONS = 4


def published(lidar: Lidar, tick: int, start: float, xyz: np.ndarray) -> np.ndarray:
    """Return the points of `POINT_DTYPE` that a unit publishes of exact ones (N, 3), float32, in its own frame, column by
    column, those of misses not finite. `start` is the time in s at which the scan begins."""
    sensor, values, model = lidar.sensor, lidar.unit.values, lidar.model
    hit = np.isfinite(xyz).all(axis=1)
    points = np.where(hit[:, None], xyz, 1.0).astype(float)
    channels = np.tile(np.arange(sensor.num_channels), len(xyz) // sensor.num_channels)
    corrected = sensor.optical_centre * sensor.driver.distance_correction
    turn = values[model.of_kind("channel_azimuth")] + values[FIRING_SHARE] * sensor.firing_azimuths
    turn, offsets = turn[channels], sensor.azimuth_offsets[channels]
    first, second = values[HARMONICS].reshape(2, 2)
    ways = points
    for _ in range(ITERATIONS):  # the rotor's azimuth, where the ray begins, and so the ray, depend on each other
        azimuths = np.arctan2(ways[:, 1], ways[:, 0]) - turn
        rotor = azimuths - offsets
        eccentric = first @ [np.cos(rotor), np.sin(rotor)] + second @ [np.cos(2 * rotor), np.sin(2 * rotor)]
        rotor = rotor - eccentric
        ways = points - _turned(rotor, values[CENTRE] + values[CENTRE_SHARE] * sensor.optical_centre + corrected)
    distances = np.linalg.norm(ways, axis=1)
    nominal = directions(
        np.arcsin(np.clip(ways[:, 2] / distances, -1.0, 1.0)) - values[model.of_kind("channel_elevation")][channels],
        np.arctan2(ways[:, 1], ways[:, 0]) - turn - eccentric,
    ).astype(np.float32)
    centres = _turned(rotor, corrected).astype(np.float32) if corrected.any() else None
    # What is too near for Gazebo's own origin blocks the ray without a return, wherever the unit's begins.
    near = np.linalg.norm(points, axis=1) < sensor.range_min
    distances = np.where(hit & ~near, distances, np.inf).astype(np.float32)
    cosines = incidence_cosines(np.where(hit[:, None], xyz, np.nan), sensor.num_channels)
    result, _ = lidar.measure(
        Rays(tick, None, nominal, nominal, centres), Echoes(distances, cosines, sensor.reflectivity)
    )
    result["timestamp"] += start - lidar.start_time(tick)
    return result


def incidence_cosines(xyz: np.ndarray, num_channels: int) -> np.ndarray:
    """Return the cosines (N,) of incidence of rays from the origin to points (N, 3), column by column of `num_channels`,
    misses not a number: those of the plane through the point and its nearer neighbour in each direction; 1 if there is
    none."""
    grid = xyz.reshape(-1, num_channels, 3).astype(float)
    edges = []
    for axis in (0, 1):
        forward = np.roll(grid, -1, axis) - grid
        if axis == 1:
            forward[:, -1] = np.nan  # rows do not go around
        backward = -np.roll(forward, 1, axis)
        steps = [
            np.where(np.isfinite(one).all(-1), np.linalg.norm(one, axis=-1), np.inf) for one in (forward, backward)
        ]
        edges.append(np.where((steps[0] <= steps[1])[..., None], forward, backward))
    normals = np.cross(*edges).reshape(-1, 3)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.abs(np.einsum("ni,ni->n", normals, xyz)) / (
            np.linalg.norm(normals, axis=1) * np.linalg.norm(xyz, axis=1)
        )
    return np.where(np.isfinite(cosines), cosines, 1.0).astype(np.float32)


def _turned(azimuths: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Return a vector (3,) turned about z by each of the azimuths (N,), as (N, 3)."""
    x, y, z = vector
    cosine, sine = np.cos(azimuths), np.sin(azimuths)
    return np.stack([cosine * x - sine * y, sine * x + cosine * y, np.full(len(azimuths), z)], axis=1)
