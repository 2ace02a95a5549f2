"""Faults that nobody announced: clean recordings of two lidars are edited, and what is accepted must be right.

    python benchmarks/faults.py [--cases 500] [--first-seed 9001] [--kinds stretch dome stage] [--edits WORDS]

A case is a simulated recording with one edit or two, drawn by its seed: of the Stretch with two kinds of lidars, and of
two 16-channel lidars in generated rooms, units drawn from the sensor files. Printed are, by edit, the worst first: what
was accepted and is wrong (further from the truth than what it says of itself allows, as improbable as four standard
deviations), what was accepted and right, what was refused, what was refused although the edit leaves it sound,
and tracebacks. Exit code 1 if anything was accepted and wrong, or ended in a traceback.
"""

import argparse
import collections
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from comparing import Effect, Recording
from scipy import ndimage, stats
from stage import Stage

import stretch_sim_cal as cal
from stretch_sim_cal import command
from stretch_sim_cal.errors import StretchSimCalError
from stretch_sim_cal.geometry.transforms import SIDES, apply, error, exp, inverse, log
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.sensor.sensor import load_sensor

FRAMES = 8
LIMIT = float(stats.chi2.isf(2.0 * stats.norm.sf(4.0), 6))  # of six values, as improbable as 4 sigma of one
KINDS = {"stretch": "jt128_sparse_real", "dome": "os0_32_sparse", "stage": "vlp16"}
LIKE = {"os0_32_sparse": "os0_32"}  # what is said of how units differ
MIRRORS = (np.diag([-1.0, 1.0, 1.0]), np.diag([1.0, -1.0, 1.0]), np.diag([1.0, 1.0, -1.0]), np.eye(3)[[1, 0, 2]])
WORLD, OTHER_WORLD = "furnished_room", "tables"
SHARES = 5  # every so manyth case has two edits
# What is unsure is no fault: bounds of what is accepted, m and rad.
ACCEPT = (0.05, np.radians(2.0))


@dataclass
class Case:
    """A recording: `clouds` by side, the `truth`s (4, 4) of which one is to be recovered, and the `rig`."""

    clouds: dict[str, list[np.ndarray]]
    truths: list[np.ndarray]
    rig: cal.Rig
    kind: str
    seed: int

    def change(self, sides: Iterator[str] | tuple[str, ...], edit: Callable[[np.ndarray, int], np.ndarray]) -> None:
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


def ranges_of(cloud: np.ndarray) -> np.ndarray:
    """Return the ranges (N,), none of them zero."""
    return np.maximum(np.linalg.norm(coordinates(cloud).astype(float), axis=1), 1e-6)


def azimuths_of(cloud: np.ndarray) -> np.ndarray:
    """Return the azimuths (N,) in rad."""
    return np.arctan2(cloud["y"], cloud["x"])


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
        shares = [way(frame / (FRAMES - 1)) for frame in range(FRAMES)]
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
    if case.kind == "stage" and sides == SIDES:
        case.truths = [transform @ truth @ inverse(transform) for truth in case.truths]
    return False


def exchanged(case: Case, random: np.random.Generator) -> bool:
    """The lidars' clouds under each other's name; where the lidars stand side by side nobody can tell."""
    case.clouds = dict(zip(SIDES, reversed(case.clouds.values()), strict=True))
    if case.kind == "stage":
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
        kept = np.sort(random.choice(FRAMES, FRAMES // 2, replace=False))
        case.clouds[side] = [case.clouds[side][number] for number in kept]
    return True


def repeated(case: Case, random: np.random.Generator) -> bool:
    """The same frame over and over, as of a driver that hangs: its noise is not averaged."""
    for side in some_sides(random):
        case.clouds[side] = [case.clouds[side][0]] * FRAMES
    return False


def reordered(case: Case, random: np.random.Generator) -> bool:
    """Frames, and returns within them, in another order."""
    for side in SIDES:
        case.clouds[side] = [random.permutation(case.clouds[side][number]) for number in random.permutation(FRAMES)]
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
    """A rotor whose angles are too large, or off by an eccentricity."""
    gain, bend = random.uniform(-0.002, 0.002), np.radians(random.uniform(0.0, 0.3))

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        azimuths = azimuths_of(cloud)
        turn = gain * azimuths + bend * np.sin(azimuths)
        points = coordinates(cloud).astype(float)
        x, y = points[:, 0].copy(), points[:, 1].copy()
        points[:, 0], points[:, 1] = np.cos(turn) * x - np.sin(turn) * y, np.sin(turn) * x + np.cos(turn) * y
        return placed(cloud, points)

    case.change(some_sides(random), edit)
    return False


def elevations(case: Case, random: np.random.Generator) -> bool:
    """A table of elevations that is stretched, or shifted for one lidar."""
    gain, shift = random.uniform(-0.01, 0.01), np.radians(random.uniform(-0.3, 0.3))

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        points, ranges = coordinates(cloud).astype(float), ranges_of(cloud)
        level = (1.0 + gain) * np.arcsin(np.clip(points[:, 2] / ranges, -1.0, 1.0)) + shift
        azimuths = azimuths_of(cloud)
        rays = [np.cos(level) * np.cos(azimuths), np.cos(level) * np.sin(azimuths), np.sin(level)]
        return placed(cloud, ranges[:, None] * np.column_stack(rays))

    case.change(some_sides(random), edit)
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
    case.clouds[side] = recorded(case.kind, case.seed + 7, OTHER_WORLD).clouds[side]
    return False


def another_room_for_a_while(case: Case, random: np.random.Generator) -> bool:
    """Part of one lidar's clouds come from another place."""
    (side,), start = one_side(random), int(random.integers(1, FRAMES))
    case.clouds[side][start:] = recorded(case.kind, case.seed + 7, OTHER_WORLD).clouds[side][start:]
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


def frozen(case: Case, random: np.random.Generator) -> bool:
    """A driver that publishes its first frame over and over."""
    for side in some_sides(random):
        case.clouds[side] = [case.clouds[side][0].copy() for _ in range(FRAMES)]
    return False


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
    """Returns moved by what an odometry says of a motion that was none, one side or both."""
    twist = np.r_[random.normal(0.0, 0.01, 3), np.radians(random.normal(0.0, 0.2, 3))]
    sides = some_sides(random)

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        points, shares = coordinates(cloud).astype(float), azimuths_of(cloud) / (2.0 * np.pi)
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
        points, ranges, azimuths = coordinates(cloud).astype(float), ranges_of(cloud), azimuths_of(cloud)
        level, rings = np.arcsin(np.clip(points[:, 2] / ranges, -1.0, 1.0)), cloud["ring"].astype(int)
        numbers = np.arange(rings.max() + 1)
        table = np.array([np.median(level[rings == n]) if (rings == n).any() else np.nan for n in numbers])
        other = np.minimum(numbers ^ 1 if exchanged else numbers + 1, len(numbers) - 1)
        level = level + np.nan_to_num(table[other] - table)[rings]
        rays = [np.cos(level) * np.cos(azimuths), np.cos(level) * np.sin(azimuths), np.sin(level)]
        return placed(cloud, ranges[:, None] * np.column_stack(rays))

    case.change(some_sides(random), edit)
    return False


def late_block(case: Case, random: np.random.Generator) -> bool:
    """Half of the channels fire later than the driver knows."""
    by, upper = np.radians(random.uniform(0.05, 0.5)), random.uniform() < 0.5

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        late = cloud["ring"] >= np.median(cloud["ring"]) if upper else cloud["ring"] % 2 == 1
        points = coordinates(cloud).astype(float)
        turned = apply(exp(np.r_[0.0, 0.0, 0.0, 0.0, 0.0, by]), points)
        return placed(cloud, np.where(late[:, None], turned, points))

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
        case.clouds[side] = [np.concatenate(clouds[max(0, n - depth + 1) : n + 1]) for n in range(FRAMES)]
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
        azimuths, flat = azimuths_of(cloud), np.hypot(cloud["x"], cloud["y"])
        rounded = np.round(azimuths / step) * step
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
    return True


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
    "the same frame always": frozen,
    "both lidars' returns in one's": merged,
    "means of voxels of 2 to 15 cm": voxels,
    "smoothed along channels": smoothed,
    "deskewed by up to centimetres for nothing": deskewed,
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
}


def _drawn(values: np.ndarray, model, side: int, random: np.random.Generator) -> None:
    values += model.draw(random)


def recorded(kind: str, seed: int, world: str = WORLD) -> Case:
    """Return a clean recording; that of the stage is of a generated room of its seed."""
    sensor = KINDS[kind]
    if kind == "stage":
        stage = Stage(load_sensor(sensor), seed, two_units=True, scans=FRAMES)
        rig = cal.Rig(np.eye(4), stage.guess(), sensor=stage.sensor)
        return Case(dict(stage.scans), [stage.truth], rig, kind, seed)
    recording = Recording(Effect(kind, _drawn, {}, sensor, LIKE.get(sensor, sensor)), seed, world)
    nominal = [recording.simulator.base_from_lidar(side, nominal=True) for side in SIDES]
    clouds = dict(zip(SIDES, map(list, zip(*recording.pairs(FRAMES), strict=True)), strict=True))
    return Case(clouds, [recording.right_to_left], cal.Rig(*nominal, sensor=recording.sensor), kind, seed)


@dataclass(frozen=True)
class Verdict:
    """What became of a case: `what` is "right", "wrong", "refused", "needless" (refused although sound) or
    "traceback"; in words, `detail`."""

    edit: str
    what: str
    detail: str


def verdict(kind: str, seed: int, names: tuple[str, ...]) -> Verdict:
    """Return what becomes of a recording under edits."""
    case, random, edit = recorded(kind, seed), np.random.default_rng(seed), " + ".join(names)
    sound = all([EDITS[name](case, random) for name in names])
    where = f"{kind} {seed}"
    try:
        found = cal.calibrate(case.rig, case.clouds["left"], case.clouds["right"], floor=False, accept=ACCEPT)
    except StretchSimCalError as problem:
        return Verdict(edit, "needless" if sound else "refused", f"{where}: {problem}")
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is what is looked for
        return Verdict(edit, "traceback", f"{where}: {type(problem).__name__}: {problem}")
    twists = [log(truth @ inverse(found.left_from_right)) for truth in case.truths]
    squared = min(float(twist @ np.linalg.solve(found.covariance, twist)) for twist in twists)
    distance, angle = min(error(truth, found.left_from_right) for truth in case.truths)
    codes = " ".join(finding.code for finding in found.findings)
    off = f"{where}: {1e3 * distance:.2f} mm {np.degrees(angle):.3f} deg, chi2 {squared:.0f}; {codes}"
    if not found.accepted:
        return Verdict(edit, "needless" if sound else "refused", off)
    return Verdict(edit, "wrong" if squared > LIMIT else "right", off)


def drawn_cases(args: argparse.Namespace) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Yield so many cases: kind, seed and the edits' names, each edit as often as any other."""
    names = [name for name in EDITS if not args.edits or any(word in name for word in args.edits)]
    for number in range(args.cases):
        random, seed = np.random.default_rng([args.first_seed, number]), args.first_seed + number
        chosen = [names[number % len(names)]]
        if number % SHARES == SHARES - 1 and not args.edits:
            chosen.append(str(random.choice([name for name in names if name != chosen[0]])))
        yield args.kinds[(number // len(names)) % len(args.kinds)], seed, tuple(chosen)


def main() -> int:
    """Print a row per edit; return 1 if something was accepted and wrong, or ended in a traceback."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--first-seed", type=int, default=9001, help="seeds below 9001 were used while developing")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--edits", nargs="+", default=[], metavar="WORDS", help="only those with one of these words")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    with ProcessPoolExecutor(args.jobs) as pool:
        for found in pool.map(verdict, *zip(*drawn_cases(args), strict=True)):
            counts["two edits" if " + " in found.edit else found.edit][found.what] += 1
            if found.what in ("wrong", "traceback", "needless"):
                print(f"{found.what}: {found.edit}: {found.detail}", file=sys.stderr, flush=True)
    kinds = ("wrong", "traceback", "needless", "refused", "right")
    rows = sorted(counts.items(), key=lambda row: [-row[1][kind] for kind in kinds])
    rows.append(("all", sum(counts.values(), collections.Counter())))
    print("| edit | accepted and wrong | traceback | refused for nothing | refused | accepted and right |")
    print("|---|---|---|---|---|---|")
    for name, found in rows:
        print(f"| {name} | " + " | ".join(str(found[kind]) for kind in kinds) + " |")
    return int(rows[-1][1]["wrong"] + rows[-1][1]["traceback"] > 0)


if __name__ == "__main__":
    sys.exit(command.run(main))
