"""A recording of two lidars to be edited, and edits of its returns: ranges, angles, noise, and what gets in the way."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

import stretch_sim_cal as cal
from stretch_sim_cal.geometry.transforms import SIDES, apply
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


Edit = Callable[[Case, np.random.Generator], bool]
"""Edits a case; says whether a sound calibration can still be expected."""


def placed(cloud: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return a cloud with other points (N, 3)."""
    for name, values in zip("xyz", points.T, strict=True):
        cloud[name] = values
    return cloud


def transformed(cloud: np.ndarray, transform: np.ndarray) -> np.ndarray:
    """Return a cloud at a transform (4, 4), which may mirror it."""
    return placed(cloud, apply(transform, coordinates(cloud).astype(float)))


def scaled(cloud: np.ndarray, factors: np.ndarray | float) -> np.ndarray:
    """Return a cloud with its ranges multiplied."""
    return placed(cloud, coordinates(cloud).astype(float) * np.reshape(factors, (-1, 1)))


def turned(cloud: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return a cloud with each return turned about the lidar's axis by an angle (N,) in rad."""
    points, cosine, sine = coordinates(cloud).astype(float), np.cos(angles), np.sin(angles)
    x, y = cosine * points[:, 0] - sine * points[:, 1], sine * points[:, 0] + cosine * points[:, 1]
    return placed(cloud, np.column_stack([x, y, points[:, 2]]))


def elevations_of(cloud: np.ndarray) -> np.ndarray:
    """Return the elevations (N,) in rad."""
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
    """Return the azimuths (N,) in rad."""
    return np.arctan2(cloud["y"], cloud["x"])


def shares_of_scan(cloud: np.ndarray) -> np.ndarray:
    """Return the share (N,) of the scan, -0.5 to 0.5, at which each return was taken, by the first of its channel."""
    _, first, channel = np.unique(cloud["ring"], return_index=True, return_inverse=True)
    azimuths = azimuths_of(cloud)
    return (azimuths - azimuths[first][channel]) / (2.0 * np.pi) % 1.0 - 0.5


def one_side(random: np.random.Generator) -> tuple[str, ...]:
    """Return one of the sides."""
    return (SIDES[random.integers(2)],)


def some_sides(random: np.random.Generator) -> tuple[str, ...]:
    """Return one of the sides, or both."""
    return (("left",), ("right",), SIDES)[random.integers(3)]


def sector(cloud: np.ndarray, centre: float, width: float) -> np.ndarray:
    """Return which returns (N,) are in a sector of azimuths."""
    return np.abs((azimuths_of(cloud) - centre + np.pi) % (2.0 * np.pi) - np.pi) < width / 2.0


def wrong_ranges(low: float, high: float, offset: float = 0.0) -> Edit:
    def edit(case: Case, random: np.random.Generator) -> bool:
        factor, shift = 1.0 + random.choice([-1, 1]) * random.uniform(low, high), random.uniform(-offset, offset)
        # Of one lidar: if both err by one factor, the clouds are those of another, similar scene, and nobody can tell.
        sides = one_side(random) if high else some_sides(random)
        case.change(sides, lambda cloud, _: scaled(cloud, factor + shift / ranges_of(cloud)))
        return False

    return edit


def blinded(case: Case, random: np.random.Generator) -> bool:
    """A sector without returns."""
    centre, width = random.uniform(-np.pi, np.pi), np.radians(random.uniform(20, 150))
    case.change(some_sides(random), lambda cloud, _: cloud[~sector(cloud, centre, width)])
    return False


def wedge(case: Case, random: np.random.Generator) -> bool:
    """A sector too far away, as behind glass."""
    centre, width, by = random.uniform(-np.pi, np.pi), np.radians(random.uniform(10, 90)), random.uniform(0.02, 0.2)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        return scaled(cloud, np.where(sector(cloud, centre, width), 1.0 + by / ranges_of(cloud), 1.0))

    case.change(one_side(random), edit)
    return False


def spoilt(case: Case, random: np.random.Generator) -> bool:
    """Some returns are no numbers, zero, infinite or a kilometre away."""
    value = random.choice([np.nan, 0.0, np.inf, 1000.0])
    share = random.uniform(0.01, 0.4)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        for name in "xyz":
            cloud[name][: int(share * len(cloud))] = value
        return cloud

    case.change(some_sides(random), lambda cloud, frame: edit(random.permutation(cloud), frame))
    return True


def noisy(case: Case, random: np.random.Generator) -> bool:
    """More range noise than the sensor has."""
    sigma = random.uniform(0.005, 0.04)
    case.change(
        some_sides(random),
        lambda cloud, _: scaled(cloud, 1.0 + random.normal(0.0, sigma, len(cloud)) / ranges_of(cloud)),
    )
    return True


def quantised(case: Case, random: np.random.Generator) -> bool:
    """Ranges in steps."""
    step = random.uniform(0.005, 0.05)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        ranges = ranges_of(cloud)
        return scaled(cloud, np.round(ranges / step) * step / ranges)

    case.change(some_sides(random), edit)
    return False


def encoder(case: Case, random: np.random.Generator) -> bool:
    """A rotor whose angles grow too fast in a scan, and an eccentricity."""
    return _encoder(case, random, shares_of_scan)


def encoder_from_behind(case: Case, random: np.random.Generator) -> bool:
    """The same, if the angles jump back at +-180 deg, wherever scans begin."""
    return _encoder(case, random, lambda cloud: azimuths_of(cloud) / (2.0 * np.pi))


def _encoder(case: Case, random: np.random.Generator, shares: Callable[[np.ndarray], np.ndarray]) -> bool:
    gain, bend = random.uniform(-0.002, 0.002), np.radians(random.uniform(0.0, 0.3))

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        return turned(cloud, gain * 2.0 * np.pi * shares(cloud) + bend * np.sin(azimuths_of(cloud)))

    case.change(some_sides(random), edit)
    return False


def elevations(case: Case, random: np.random.Generator) -> bool:
    """A table of elevations that is stretched, or shifted for one lidar."""
    gain, shift = random.uniform(-0.01, 0.01), np.radians(random.uniform(-0.3, 0.3))
    case.change(some_sides(random), lambda cloud, _: aimed(cloud, (1.0 + gain) * elevations_of(cloud) + shift))
    return False


def bad_channels(case: Case, random: np.random.Generator) -> bool:
    """A few channels that read centimetres wrong."""
    channels, by = random.choice(16, 3, replace=False), random.uniform(-0.08, 0.08)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        return scaled(cloud, 1.0 + np.isin(cloud["ring"] % 16, channels) * by / ranges_of(cloud))

    case.change(one_side(random), edit)
    return False


def somebody(case: Case, random: np.random.Generator) -> bool:
    """Somebody close to one lidar in some frames."""
    centre, width, distance = random.uniform(-np.pi, np.pi), np.radians(random.uniform(10, 40)), random.uniform(0.5, 2)
    present = random.uniform(size=FRAMES) < random.uniform(0.1, 1.0)

    def edit(cloud: np.ndarray, frame: int) -> np.ndarray:
        ranges = ranges_of(cloud)
        hidden = present[frame] & sector(cloud, centre, width) & (ranges > distance) & (np.abs(cloud["z"]) < ranges / 2)
        return scaled(cloud, np.where(hidden, (distance + random.normal(0.0, 0.01, len(cloud))) / ranges, 1.0))

    case.change(one_side(random), edit)
    return True


def another_table(case: Case, random: np.random.Generator) -> bool:
    """Elevations of the next channel, or of every second channel exchanged with the next."""
    exchanged = random.uniform() < 0.5

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        level, rings = elevations_of(cloud), cloud["ring"].astype(int)
        numbers = np.arange(rings.max() + 1)
        table = np.array([np.median(level[rings == n]) if (rings == n).any() else np.nan for n in numbers])
        other = np.minimum(numbers ^ 1 if exchanged else numbers + 1, len(numbers) - 1)
        return aimed(cloud, level + np.nan_to_num(table[other] - table)[rings])

    case.change(some_sides(random), edit)
    return False


def late_block(case: Case, random: np.random.Generator) -> bool:
    """Half of the channels fire later than the driver knows."""
    by, upper = np.radians(random.uniform(0.05, 0.5)), random.uniform() < 0.5

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        late = cloud["ring"] >= np.median(cloud["ring"]) if upper else cloud["ring"] % 2 == 1
        return turned(cloud, np.where(late, by, 0.0))

    case.change(some_sides(random), edit)
    return False


def bright(case: Case, random: np.random.Generator) -> bool:
    """Bright surfaces look nearer, or farther."""
    by, above = random.uniform(-0.04, 0.04), random.uniform(0.3, 0.8)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        bright = cloud["intensity"] > np.quantile(cloud["intensity"], above)
        return scaled(cloud, 1.0 + bright * by / ranges_of(cloud))

    case.change(some_sides(random), edit)
    return False


def dust(case: Case, random: np.random.Generator) -> bool:
    """Some returns come from near the lidar."""
    share = random.uniform(0.01, 0.1)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        ranges = ranges_of(cloud)
        near = np.minimum(random.uniform(0.3, 3.0, len(cloud)), ranges)
        return scaled(cloud, np.where(random.uniform(size=len(cloud)) < share, near / ranges, 1.0))

    case.change(some_sides(random), edit)
    return True


def half_floats(case: Case, random: np.random.Generator) -> bool:
    """Points stored in 16 bits."""
    case.change(some_sides(random), lambda cloud, _: placed(cloud, coordinates(cloud).astype(np.float16).astype(float)))
    return False


def warming(case: Case, random: np.random.Generator) -> bool:
    """Ranges that drift while the lidar warms up."""
    by = random.uniform(-0.03, 0.03)
    case.change(some_sides(random), lambda cloud, n: scaled(cloud, 1.0 + by * n / (FRAMES - 1) / ranges_of(cloud)))
    return False


def folded(case: Case, random: np.random.Generator) -> bool:
    """What is farther than the lidar can tell looks near."""
    bound = random.uniform(3.0, 8.0)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        ranges = ranges_of(cloud)
        return scaled(cloud, np.maximum(ranges % bound, 0.2) / ranges)

    case.change(some_sides(random), edit)
    return False


def things_moved(case: Case, random: np.random.Generator) -> bool:
    """Things that stood elsewhere when one lidar saw them."""
    (side,) = one_side(random)
    points = coordinates(case.clouds[side][0]).astype(float)
    places = points[random.integers(len(points), size=int(random.integers(1, 5)))]
    moves = random.normal(0.0, 0.15, (len(places), 3)) * [1.0, 1.0, 0.2]

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        points = coordinates(cloud).astype(float)
        for place, move in zip(places, moves, strict=True):
            points[np.linalg.norm(points - place, axis=1) < 0.6] += move
        return placed(cloud, points)

    case.change((side,), edit)
    return True


def coarse_azimuths(case: Case, random: np.random.Generator) -> bool:
    """Azimuths in steps."""
    step = np.radians(random.uniform(0.2, 2.0))

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        rounded, flat = np.round(azimuths_of(cloud) / step) * step, np.hypot(cloud["x"], cloud["y"])
        return placed(cloud, np.column_stack([flat * np.cos(rounded), flat * np.sin(rounded), cloud["z"]]))

    case.change(some_sides(random), edit)
    return False


def outliers(case: Case, random: np.random.Generator) -> bool:
    """Returns at random ranges: interference, sun."""
    share = random.uniform(0.005, 0.05)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        ranges, wild = ranges_of(cloud), random.uniform(size=len(cloud)) < share
        return scaled(cloud, np.where(wild, random.uniform(0.3, 15.0, len(cloud)) / ranges, 1.0))

    case.change(some_sides(random), edit)
    return True


def millimetres(case: Case, random: np.random.Generator) -> bool:
    """Points in millimetres."""
    case.change(some_sides(random), lambda cloud, _: scaled(cloud, 1000.0))
    return False


def two_channels(case: Case, random: np.random.Generator) -> bool:
    """Two neighbouring channels at each other's elevation."""
    first = int(random.integers(15))

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        level, rings = elevations_of(cloud), cloud["ring"]
        own = [rings == first, rings == first + 1]
        if all(each.any() for each in own):
            by = np.median(level[own[1]]) - np.median(level[own[0]])
            level += by * own[0] - by * own[1]
        return aimed(cloud, level)

    case.change(some_sides(random), edit)
    return False


def firing_order(case: Case, random: np.random.Generator) -> bool:
    """Firing times of another model: azimuths that are off in proportion to the channel's number, from the middle one:
    nobody can tell an offset of all."""
    by = np.radians(random.choice([-1, 1]) * random.uniform(0.05, 1.0))

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        return turned(cloud, by * (cloud["ring"] / max(cloud["ring"].max(), 1) - 0.5))

    case.change(some_sides(random), edit)
    return False


def beam_origin(case: Case, random: np.random.Generator) -> bool:
    """A driver without the distance between axis and beam origin, or with it twice: it turns with the rotor."""
    by = random.choice([-1, 1]) * random.uniform(0.005, 0.04)
    offsets = np.zeros(1) if case.rig.sensor is None else case.rig.sensor.azimuth_offsets
    ahead = offsets - np.median(offsets)  # of the usual channel

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        rotor = azimuths_of(cloud) - ahead[np.minimum(cloud["ring"], len(ahead) - 1)]
        origins = by * np.column_stack([np.cos(rotor), np.sin(rotor), np.zeros(len(rotor))])
        return placed(cloud, coordinates(cloud).astype(float) + origins)

    case.change(some_sides(random), edit)
    return False


def distance_unit(case: Case, random: np.random.Generator) -> bool:
    """Distances in the unit of another model: half as far, or twice."""
    factor = random.choice([0.5, 2.0])
    # Of one lidar: both alike are clouds of another, similar scene.
    case.change(one_side(random), lambda cloud, _: scaled(cloud, factor))
    return False


def looking_glass(case: Case, random: np.random.Generator) -> bool:
    """A mirror on an upright plane, that shows a wall behind the lidar."""
    centre, width, distance = random.uniform(-np.pi, np.pi), np.radians(random.uniform(10, 60)), random.uniform(0.5, 3)
    behind = random.uniform(0.5, 5.0)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        points, normal = coordinates(cloud).astype(float), np.array([np.cos(centre), np.sin(centre), 0.0])
        # The image of a wall behind the lidar: as far behind the mirror as the wall is in front of it.
        seen = sector(cloud, centre, width) & (points @ normal > distance)
        along = np.maximum(points @ normal, 1e-6)
        factors = (2.0 * distance + behind) / along
        return scaled(cloud, np.where(seen, factors, 1.0))

    case.change(one_side(random), edit)
    return True


def blooming(case: Case, random: np.random.Generator) -> bool:
    """Retro-reflectors: what is seen beside one is as far away as it is."""
    spots, width = int(random.integers(1, 6)), np.cos(np.radians(random.uniform(1.0, 6.0)))
    (side,) = one_side(random)
    points = coordinates(case.clouds[side][0]).astype(float)
    reflectors = points[random.integers(len(points), size=spots)]

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        ranges = ranges_of(cloud)
        rays, found = coordinates(cloud).astype(float) / ranges[:, None], ranges.copy()
        for reflector in reflectors:
            distance = np.linalg.norm(reflector)
            found[rays @ reflector > width * distance] = distance
        return scaled(cloud, found / ranges)

    case.change((side,), edit)
    return True
