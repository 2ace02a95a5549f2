"""A recording of two lidars to be edited, what its clouds are edited with, and the registry of edits."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

import stretch_sim_cal as cal
from stretch_sim_cal.geometry.transforms import SIDES, apply, inverse
from stretch_sim_cal.sensor.points import coordinates

FRAMES = 8


@dataclass
class Case:
    """A recording: `clouds` by side, the `truths` (4, 4) of which one is to be recovered, the `rig`, whether its lidars
    stand `side_by_side`, and what such lidars see `elsewhere`."""

    clouds: dict[str, list[np.ndarray]]
    truths: list[np.ndarray]
    rig: cal.Rig
    side_by_side: bool
    elsewhere: Callable[[], "Case"]

    def change(self, sides: Iterable[str], edit: Callable[[np.ndarray, int], np.ndarray]) -> None:
        """Replace the clouds of some sides by what `edit(cloud, frame)` makes of them."""
        for side in sides:
            self.clouds[side] = [edit(cloud.copy(), frame) for frame, cloud in enumerate(self.clouds[side])]


def placed(cloud: np.ndarray, points: np.ndarray) -> np.ndarray:
    for name, values in zip("xyz", points.T, strict=True):
        cloud[name] = values
    return cloud


def transformed(cloud: np.ndarray, transform: np.ndarray) -> np.ndarray:
    """Return a cloud at a transform (4, 4), which may mirror it."""
    return placed(cloud, apply(transform, coordinates(cloud).astype(float)))


def scaled(cloud: np.ndarray, factors: np.ndarray | float) -> np.ndarray:
    return placed(cloud, coordinates(cloud).astype(float) * np.reshape(factors, (-1, 1)))


def turned(cloud: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return a cloud with each return turned about the lidar's axis by an angle (N,) in rad."""
    points, cosine, sine = coordinates(cloud).astype(float), np.cos(angles), np.sin(angles)
    x, y = cosine * points[:, 0] - sine * points[:, 1], sine * points[:, 0] + cosine * points[:, 1]
    return placed(cloud, np.column_stack([x, y, points[:, 2]]))


def elevations_of(cloud: np.ndarray) -> np.ndarray:
    return np.arcsin(np.clip(coordinates(cloud).astype(float)[:, 2] / ranges_of(cloud), -1.0, 1.0))


def aimed(cloud: np.ndarray, elevations: np.ndarray) -> np.ndarray:
    """Return a cloud with other elevations (N,) in rad."""
    azimuths, ranges = azimuths_of(cloud), ranges_of(cloud)
    rays = [np.cos(elevations) * np.cos(azimuths), np.cos(elevations) * np.sin(azimuths), np.sin(elevations)]
    return placed(cloud, ranges[:, None] * np.column_stack(rays))


def ranges_of(cloud: np.ndarray) -> np.ndarray:
    """Return the ranges (N,), none of them zero."""
    return np.maximum(np.linalg.norm(coordinates(cloud).astype(float), axis=1), 1e-6)


def azimuths_of(cloud: np.ndarray) -> np.ndarray:
    return np.arctan2(cloud["y"], cloud["x"])


def too_long_near(ranges: np.ndarray, by: float, length: float) -> np.ndarray:
    """Return by which factor ranges (N,) in m are too long if the nearest are so by `by` (m), others less by `length`
    (m)."""
    return 1.0 + by * np.exp(-ranges / length) / ranges


def shares_of_scan(cloud: np.ndarray) -> np.ndarray:
    """Return the share (N,) of the scan, -0.5 to 0.5, at which each return was taken, by the first of its channel."""
    _, first, channel = np.unique(cloud["ring"], return_index=True, return_inverse=True)
    azimuths = azimuths_of(cloud)
    return (azimuths - azimuths[first][channel]) / (2.0 * np.pi) % 1.0 - 0.5


def one_side(random: np.random.Generator) -> tuple[str, ...]:
    return (SIDES[random.integers(2)],)


def some_sides(random: np.random.Generator) -> tuple[str, ...]:
    return (("left",), ("right",), SIDES)[random.integers(3)]


def sector(cloud: np.ndarray, centre: float, width: float) -> np.ndarray:
    """Return which returns (N,) are in a sector of azimuths."""
    return away_from(cloud, centre) < width / 2.0


def away_from(cloud: np.ndarray, azimuth: float) -> np.ndarray:
    """Return how far (N,) in rad the returns' azimuths are from one, to either side."""
    return np.abs((azimuths_of(cloud) - azimuth + np.pi) % (2.0 * np.pi) - np.pi)


def through_window(cloud: np.ndarray, middle: float, half: float) -> np.ndarray:
    """Return the shares (N,) that returns have of the error of a window that is largest at the azimuth of its middle
    and ends `half` (rad) beside it."""
    across = away_from(cloud, middle) / half
    return np.where(across < 1.0, np.cos(np.pi / 2.0 * across) ** 2, 0.0)


def after(truth: np.ndarray, side: str, moved: np.ndarray) -> np.ndarray:
    """Return right_to_left (4, 4) once a lidar's clouds are at a transform (4, 4)."""
    return moved @ truth if side == "left" else truth @ inverse(moved)


Random = np.random.Generator
Edit = Callable[[Case, Random], bool | None]
"""Edits a case; true if a sound calibration can still be expected."""
Clouds = Iterator[tuple[np.ndarray, int]]  # copies, and the numbers of their frames
Edited = Iterator[np.ndarray]
REGISTERED: dict[str, Edit] = {}


def of_case(name: str) -> Callable[[Edit], Edit]:
    """Register an edit of a whole case under a name."""
    return lambda edit: REGISTERED.setdefault(name, edit)


def of_clouds(name: str, sides: Callable[[Random], tuple[str, ...]] = some_sides, sound: bool = False) -> Callable:
    """Register the edit of all clouds of the `sides`, which are drawn after what the edit draws; `sound` as an `Edit`
    says it."""

    def register(change: Callable[[Random, Clouds], Edited]) -> Callable[[Random, Clouds], Edited]:
        def edit(case: Case, random: Random) -> bool:
            places: list[tuple[str, int]] = []

            def clouds() -> Clouds:
                for side in sides(random):
                    for frame, cloud in enumerate(case.clouds[side]):
                        places.append((side, frame))
                        yield cloud.copy(), frame

            for edited in change(random, clouds()):
                side, frame = places[-1]
                case.clouds[side][frame] = edited
            return sound

        REGISTERED[name] = edit
        return change

    return register
