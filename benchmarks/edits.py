"""What may be wrong with a recording of two lidars, and nobody announced: edits of their clouds.

`EDITS` by name: of drivers, of lidars that are damaged or wrongly described, of lidars, robots and things that move, of
filters that somebody put between driver and calibration.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage

import stretch_sim_cal as cal
from stretch_sim_cal.geometry.transforms import SIDES, apply, exp, inverse
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.sensor.sensor import load_sensor

FRAMES = 8
MIRRORS = (np.diag([-1.0, 1.0, 1.0]), np.diag([1.0, -1.0, 1.0]), np.diag([1.0, 1.0, -1.0]), np.eye(3)[[1, 0, 2]])


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


def _moving(way: Callable[[float], float], turn: tuple[float, float], shift: tuple[float, float]) -> Edit:
    """Return the edit that moves one lidar while the frames are taken: `way` of the share of time, by a twist of so
    many deg and m, drawn between bounds."""

    def edit(case: Case, random: np.random.Generator) -> bool:
        (side,) = one_side(random)
        axes = random.normal(size=(2, 3))
        axes /= np.linalg.norm(axes, axis=1, keepdims=True)
        sizes = [low * (high / low) ** random.uniform() if low else 0.0 for low, high in (shift, np.radians(turn))]
        twist = np.concatenate([sizes[0] * axes[0], sizes[1] * axes[1]])
        frames = len(case.clouds[side])
        shares = [way(frame / max(frames - 1, 1)) for frame in range(frames)]
        case.change((side,), lambda cloud, frame: transformed(cloud, exp(shares[frame] * twist)))
        moved = [exp(share * twist) for share in (min(shares), float(np.mean(shares)), max(shares))]
        case.truths = [_after(truth, side, each) for truth in case.truths for each in moved]
        return False

    return edit


def _after(truth: np.ndarray, side: str, moved: np.ndarray) -> np.ndarray:
    """Return right_to_left (4, 4) once a lidar's clouds are at a transform (4, 4)."""
    return moved @ truth if side == "left" else truth @ inverse(moved)


def turned_for_good(case: Case, random: np.random.Generator) -> bool:
    """One lidar was always turned a little about its axis: another truth."""
    (side,) = one_side(random)
    moved = exp(np.r_[np.zeros(5), np.radians(random.uniform(-1.5, 1.5))])
    case.change((side,), lambda cloud, _: transformed(cloud, moved))
    case.truths = [_after(truth, side, moved) for truth in case.truths]
    return True


def mirrored(case: Case, random: np.random.Generator) -> bool:
    """x, y or z turned round, or x and y exchanged; both lidars' alike, where they stand side by side, are clouds of a
    mirrored room, and nobody can tell."""
    transform = np.eye(4)
    transform[:3, :3] = MIRRORS[random.integers(len(MIRRORS))]
    sides = some_sides(random)
    case.change(sides, lambda cloud, _: transformed(cloud, transform))
    if case.side_by_side and sides == SIDES:
        case.truths = [transform @ truth @ inverse(transform) for truth in case.truths]
    return False


def exchanged(case: Case, random: np.random.Generator) -> bool:
    """The lidars' clouds under each other's name; where the lidars stand side by side nobody can tell."""
    case.clouds = dict(zip(SIDES, reversed(case.clouds.values()), strict=True))
    if case.side_by_side:
        case.truths = [inverse(truth) for truth in case.truths]
    return False


def _ranges(low: float, high: float, offset: float = 0.0) -> Edit:
    def edit(case: Case, random: np.random.Generator) -> bool:
        factor, shift = 1.0 + random.choice([-1, 1]) * random.uniform(low, high), random.uniform(-offset, offset)
        # Of one lidar: if both err by one factor, the clouds are those of another, similar scene, and nobody can tell.
        sides = one_side(random) if high else some_sides(random)
        case.change(sides, lambda cloud, _: scaled(cloud, factor + shift / ranges_of(cloud)))
        return False

    return edit


def dropped(case: Case, random: np.random.Generator) -> bool:
    """Frames that never came, other ones of each lidar."""
    for side in SIDES:
        kept = np.sort(random.choice(len(case.clouds[side]), max(len(case.clouds[side]) // 2, 1), replace=False))
        case.clouds[side] = [case.clouds[side][number] for number in kept]
    return True


def repeated(case: Case, random: np.random.Generator) -> bool:
    """The same frame over and over, as of a driver that hangs: its noise is not averaged."""
    for side in some_sides(random):
        case.clouds[side] = [case.clouds[side][0]] * len(case.clouds[side])
    return False


def reordered(case: Case, random: np.random.Generator) -> bool:
    """Frames, and returns within them, in another order."""
    for side in SIDES:
        clouds = case.clouds[side]
        case.clouds[side] = [random.permutation(clouds[number]) for number in random.permutation(len(clouds))]
    return True


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


def shuffled_rings(case: Case, random: np.random.Generator) -> bool:
    """Channels under each other's number."""
    order = random.permutation(1 + max(int(cloud["ring"].max()) for cloud in case.clouds["left"]))

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        cloud["ring"] = order[np.minimum(cloud["ring"], len(order) - 1)]
        return cloud

    case.change(some_sides(random), edit)
    return False


def _field(name: str, values: tuple[float, ...]) -> Edit:
    def edit(case: Case, random: np.random.Generator) -> bool:
        value = random.choice(values)

        def put(cloud: np.ndarray, _: int) -> np.ndarray:
            cloud[name] = value
            return cloud

        case.change(some_sides(random), put)
        return False

    return edit


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


def thinned(case: Case, random: np.random.Generator) -> bool:
    """Most returns lost."""
    share = random.uniform(0.1, 0.5)
    case.change(some_sides(random), lambda cloud, _: cloud[random.uniform(size=len(cloud)) < share])
    return False


def quantised(case: Case, random: np.random.Generator) -> bool:
    """Ranges in steps."""
    step = random.uniform(0.005, 0.05)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        ranges = ranges_of(cloud)
        return scaled(cloud, np.round(ranges / step) * step / ranges)

    case.change(some_sides(random), edit)
    return False


def tilting(case: Case, random: np.random.Generator) -> bool:
    """The robot sways: both lidars together, as one body about the left one."""
    twist = np.r_[random.normal(0.0, 0.003, 3), np.radians(random.normal(0.0, 0.2, 3))]
    shares = random.uniform(-1.0, 1.0, FRAMES)
    (truth,) = case.truths[:1]
    for side, base in (("left", np.eye(4)), ("right", truth)):
        case.change(
            (side,), lambda cloud, n, base=base: transformed(cloud, inverse(base) @ exp(shares[n] * twist) @ base)
        )
    return False


def encoder(case: Case, random: np.random.Generator) -> bool:
    """A rotor whose angles grow too fast in a scan, and an eccentricity."""
    gain, bend = random.uniform(-0.002, 0.002), np.radians(random.uniform(0.0, 0.3))

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        return turned(cloud, gain * 2.0 * np.pi * shares_of_scan(cloud) + bend * np.sin(azimuths_of(cloud)))

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


def another_room(case: Case, random: np.random.Generator) -> bool:
    """One lidar's clouds come from another place."""
    (side,) = one_side(random)
    case.clouds[side] = case.elsewhere().clouds[side]
    return False


def another_room_for_a_while(case: Case, random: np.random.Generator) -> bool:
    """Part of one lidar's clouds come from another place."""
    (side,), start = one_side(random), int(random.integers(1, FRAMES))
    case.clouds[side][start:] = case.elsewhere().clouds[side][start:]
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


def merged(case: Case, random: np.random.Generator) -> bool:
    """A topic of all lidars' returns, brought together by the description, in place of one lidar's."""
    (side,) = one_side(random)
    (other,) = set(SIDES) - {side}
    nominal = inverse(case.rig.base_from_left) @ case.rig.base_from_right
    to_side = nominal if side == "left" else inverse(nominal)
    case.clouds[side] = [
        np.concatenate([own, transformed(added.copy(), to_side)])
        for own, added in zip(case.clouds[side], case.clouds[other], strict=True)
    ]
    return False


def voxels(case: Case, random: np.random.Generator) -> bool:
    """A filter that gives the mean of the returns in each voxel, and the fields of one of them."""
    size = random.uniform(0.02, 0.15)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        points = coordinates(cloud).astype(float)
        _, first, number = np.unique(np.floor(points / size), axis=0, return_index=True, return_inverse=True)
        counts = np.bincount(number.ravel())
        means = [np.bincount(number.ravel(), column) / counts for column in points.T]
        return placed(cloud[first], np.column_stack(means))

    case.change(some_sides(random), edit)
    return False


def smoothed(case: Case, random: np.random.Generator) -> bool:
    """A filter over the ranges of neighbouring firings of each channel."""
    width, of_median = 2 * int(random.integers(1, 6)) + 1, random.uniform() < 0.5

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        ranges, azimuths, new = ranges_of(cloud), azimuths_of(cloud), ranges_of(cloud)
        for ring in np.unique(cloud["ring"]):
            own = np.flatnonzero(cloud["ring"] == ring)
            own = own[np.argsort(azimuths[own])]
            run = ndimage.median_filter if of_median else ndimage.uniform_filter
            new[own] = run(ranges[own], width, mode="wrap")
        return scaled(cloud, new / ranges)

    case.change(some_sides(random), edit)
    return False


def deskewed(case: Case, random: np.random.Generator) -> bool:
    """Returns moved by a motion that odometry reports and that was none."""
    twist = np.r_[random.normal(0.0, 0.003, 3), np.radians(random.normal(0.0, 0.05, 3))]
    sides = some_sides(random)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        points, shares = coordinates(cloud).astype(float), shares_of_scan(cloud)
        for begin in np.arange(-0.5, 0.5, 0.01):
            own = (shares >= begin) & (shares < begin + 0.01)
            points[own] = apply(exp((begin + 0.005) * twist), points[own])
        return placed(cloud, points)

    case.change(sides, edit)
    if len(sides) == 1:
        case.truths = [_after(case.truths[0], sides[0], exp(share * twist)) for share in (-0.5, 0.0, 0.5)]
    return False


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


def averaged(case: Case, random: np.random.Generator) -> bool:
    """A driver that publishes the returns of its last scans, too."""
    depth = int(random.integers(2, FRAMES + 1))
    for side in some_sides(random):
        clouds = case.clouds[side]
        case.clouds[side] = [np.concatenate(clouds[max(0, n - depth + 1) : n + 1]) for n in range(len(clouds))]
    return False


def cropped(case: Case, random: np.random.Generator) -> bool:
    """A driver that gives what is above a height only, or below it, or on one side."""
    axis, sign = random.normal(size=3) * [1.0, 1.0, 2.0], random.uniform(-0.5, 0.5)
    axis /= np.linalg.norm(axis)
    case.change(some_sides(random), lambda cloud, _: cloud[coordinates(cloud).astype(float) @ axis > sign])
    return False


def copied(case: Case, random: np.random.Generator) -> bool:
    """One lidar's returns on both topics, brought into the other's frame by the description."""
    nominal = inverse(case.rig.base_from_left) @ case.rig.base_from_right
    case.clouds["left"] = [transformed(cloud.copy(), nominal) for cloud in case.clouds["right"]]
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


def interpolated(case: Case, random: np.random.Generator) -> bool:
    """A filter that adds the middle between neighbouring returns of a channel."""

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        order = np.lexsort((azimuths_of(cloud), cloud["ring"]))
        between, points = cloud[order[:-1]].copy(), coordinates(cloud).astype(float)[order]
        placed(between, (points[1:] + points[:-1]) / 2.0)
        return np.concatenate([cloud, between[cloud["ring"][order[1:]] == cloud["ring"][order[:-1]]]])

    case.change(some_sides(random), edit)
    return False


def half_turns(case: Case, random: np.random.Generator) -> bool:
    """A driver that publishes half a turn at a time."""
    case.change(some_sides(random), lambda cloud, n: cloud[(azimuths_of(cloud) > 0.0) == n % 2])
    return len(case.clouds["left"]) > 3


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


def near_or_far(case: Case, random: np.random.Generator) -> bool:
    """A driver that gives only what is near, or far."""
    bound, near = random.uniform(1.5, 4.0), random.uniform() < 0.5
    case.change(some_sides(random), lambda cloud, _: cloud[(ranges_of(cloud) < bound) == near])
    return False


def twice(case: Case, random: np.random.Generator) -> bool:
    """A driver in dual-return mode: every return twice, part of the last ones from farther away."""
    share = random.uniform(0.0, 0.05)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        behind = random.uniform(0.1, 2.0, len(cloud)) * (random.uniform(size=len(cloud)) < share)
        return np.concatenate([cloud, scaled(cloud.copy(), 1.0 + behind / ranges_of(cloud))])

    case.change(some_sides(random), edit)
    return True


def packets_lost(case: Case, random: np.random.Generator) -> bool:
    """Packets lost in bursts, elsewhere in each frame, and a channel that is dead."""
    share, dead = random.uniform(0.02, 0.3), random.integers(16)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        lost = random.uniform(size=360) < share
        packet = ((azimuths_of(cloud) + np.pi) / (2.0 * np.pi) * len(lost)).astype(int) % len(lost)
        return cloud[~lost[packet] & (cloud["ring"] != dead)]

    case.change(some_sides(random), edit)
    return True


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


def reversed_rings(case: Case, random: np.random.Generator) -> bool:
    """Channels numbered from the other end."""

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        cloud["ring"] = cloud["ring"].max() - cloud["ring"]
        return cloud

    case.change(some_sides(random), edit)
    return False


def beam_origin(case: Case, random: np.random.Generator) -> bool:
    """A driver without the distance between axis and beam origin, or with it twice."""
    by = random.choice([-1, 1]) * random.uniform(0.005, 0.04)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        points, azimuths = coordinates(cloud).astype(float), azimuths_of(cloud)
        return placed(cloud, points + by * np.column_stack([np.cos(azimuths), np.sin(azimuths), 0.0 * azimuths]))

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


def shaken(case: Case, random: np.random.Generator) -> bool:
    """A mount that vibrates while the lidar turns: many times in a revolution, with another phase in each."""
    twist = np.r_[random.normal(0.0, 0.001, 3), np.radians(random.normal(0.0, 0.1, 3))]
    times = random.uniform(1.5, 8.0)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        points, phase = coordinates(cloud).astype(float), random.uniform(0.0, 2.0 * np.pi)
        shares = np.sin(times * azimuths_of(cloud) + phase)[:, None]
        return placed(cloud, points + shares * (twist[:3] + np.cross(twist[3:], points)))

    case.change(one_side(random), edit)
    return False


def another_frame(case: Case, random: np.random.Generator) -> bool:
    """Clouds of one lidar in its optical frame (z ahead), under the name of its own."""
    optical = np.eye(4)
    optical[:3, :3] = [[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]]
    case.change(one_side(random), lambda cloud, _: transformed(cloud, optical))
    return False


def another_sensor(case: Case, random: np.random.Generator) -> bool:
    """The sensor file of another model."""
    case.rig = replace(case.rig, sensor=load_sensor(random.choice(["vlp16", "os0_32", "jt128"])))
    return False


def unknown_sensor(case: Case, random: np.random.Generator) -> bool:
    """Nobody says which lidars they are."""
    case.rig = replace(case.rig, sensor=None)
    return True


def nothing(case: Case, random: np.random.Generator) -> bool:
    """As it was recorded."""
    return True


def _jump(at: float) -> float:
    return float(at > 0.5)


EDITS: dict[str, Edit] = {
    "nothing": nothing,
    "a lidar jumps, 0.1 to 5 deg": _moving(_jump, (0.1, 5.0), (0.0, 0.0)),
    "a lidar drifts, 0.1 to 5 deg": _moving(float, (0.1, 5.0), (0.0, 0.0)),
    "a lidar vibrates, 0.1 to 2 deg": _moving(lambda at: float(np.sin(20.0 * at)), (0.1, 2.0), (0.0, 0.0)),
    "a lidar slides, 1 to 30 mm": _moving(_jump, (0.0, 0.0), (0.001, 0.03)),
    "a lidar turned about its axis for good": turned_for_good,
    "mirrored": mirrored,
    "exchanged": exchanged,
    "ranges 0.1 to 1 % wrong": _ranges(0.001, 0.01),
    "ranges 1 to 3 % wrong": _ranges(0.01, 0.03),
    "ranges up to 30 mm wrong": _ranges(0.0, 0.0, 0.03),
    "frames dropped": dropped,
    "one frame repeated": repeated,
    "frames and returns reordered": reordered,
    "a sector blinded": blinded,
    "a sector 2 to 20 cm too far": wedge,
    "rings shuffled": shuffled_rings,
    "rings all the same": _field("ring", (0, 5)),
    "intensities all the same": _field("intensity", (0.0, 1.0, 255.0)),
    "returns that are none": spoilt,
    "noise of 5 to 40 mm more": noisy,
    "half to nine tenths of the returns lost": thinned,
    "ranges in steps of 5 to 50 mm": quantised,
    "the robot sways": tilting,
    "rotor angles wrong": encoder,
    "elevations wrong": elevations,
    "three channels up to 8 cm wrong": bad_channels,
    "another room in one lidar": another_room,
    "another room in one lidar for a while": another_room_for_a_while,
    "somebody in front of one lidar": somebody,
    "millimetres": millimetres,
    "only what is near, or far": near_or_far,
    "sensor unknown": unknown_sensor,
    "both lidars' returns in one's": merged,
    "means of voxels of 2 to 15 cm": voxels,
    "smoothed along channels": smoothed,
    "deskewed by up to millimetres for nothing": deskewed,
    "elevations of other channels": another_table,
    "half of the channels 0.05 to 0.5 deg late": late_block,
    "bright surfaces up to 4 cm wrong": bright,
    "dust": dust,
    "half floats": half_floats,
    "earlier scans published again": averaged,
    "cropped by a plane": cropped,
    "one lidar's returns on both topics": copied,
    "ranges drift by up to 3 cm": warming,
    "far returns look near": folded,
    "things moved between the lidars' scans": things_moved,
    "azimuths in steps of 0.2 to 2 deg": coarse_azimuths,
    "returns interpolated": interpolated,
    "half a turn at a time": half_turns,
    "returns at random ranges": outliers,
    "dual returns": twice,
    "packets and a channel lost": packets_lost,
    "two channels exchanged": two_channels,
    "firing times of another model": firing_order,
    "rings reversed": reversed_rings,
    "beam origin 5 to 40 mm wrong": beam_origin,
    "distance unit of another model": distance_unit,
    "a mirror": looking_glass,
    "retro-reflectors": blooming,
    "a mount shaken within scans": shaken,
    "optical frame": another_frame,
    "sensor file of another model": another_sensor,
}
