"""What may be wrong with a recording of two lidars, and nobody announced: `EDITS` of a case, by name. Of drivers and of
filters that somebody put between driver and calibration, of lidars and robots that move, of what the files say, and of
the returns: ranges, angles, noise, and what gets in the way."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from edited_clouds import (
    FRAMES,
    Case,
    aimed,
    azimuths_of,
    elevations_of,
    one_side,
    placed,
    ranges_of,
    scaled,
    sector,
    shares_of_scan,
    some_sides,
    through_window,
    transformed,
    turned,
)
from scipy import ndimage

from stretch_sim_cal.geometry.transforms import SIDES, apply, exp, inverse
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.sensor.sensor import load_sensor

Random = np.random.Generator
Edit = Callable[[Case, Random], bool | None]
"""Edits a case; true if a sound calibration can still be expected."""
Clouds = Iterator[tuple[np.ndarray, int]]  # copies, and the numbers of their frames
Edited = Iterator[np.ndarray]
EDITS: dict[str, Edit] = {}
WALL = 0.06  # m from its plane are still of a wall
MIRRORS = (np.diag([-1.0, 1.0, 1.0]), np.diag([1.0, -1.0, 1.0]), np.diag([1.0, 1.0, -1.0]), np.eye(3)[[1, 0, 2]])


def of_case(name: str) -> Callable[[Edit], Edit]:
    """Register an edit of a whole case under a name."""
    return lambda edit: EDITS.setdefault(name, edit)


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

        EDITS[name] = edit
        return change

    return register


@of_case("nothing")
def nothing(case: Case, random: Random) -> bool:
    """As it was recorded."""
    return True


def _after(truth: np.ndarray, side: str, moved: np.ndarray) -> np.ndarray:
    """Return right_to_left (4, 4) once a lidar's clouds are at a transform (4, 4)."""
    return moved @ truth if side == "left" else truth @ inverse(moved)


def moving(way: Callable[[float], float], turn: tuple[float, float], shift: tuple[float, float]) -> Edit:
    """Return the edit that moves one lidar while the frames are taken: `way` of the share of time, by a twist of so
    many deg and m, drawn between bounds."""

    def edit(case: Case, random: Random) -> None:
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

    return edit


def _jump(at: float) -> float:
    return float(at > 0.5)


EDITS["a lidar jumps, 0.1 to 5 deg"] = moving(_jump, (0.1, 5.0), (0.0, 0.0))
EDITS["a lidar drifts, 0.1 to 5 deg"] = moving(float, (0.1, 5.0), (0.0, 0.0))
EDITS["a lidar vibrates, 0.1 to 2 deg"] = moving(lambda at: float(np.sin(20.0 * at)), (0.1, 2.0), (0.0, 0.0))
EDITS["a lidar slides, 1 to 30 mm"] = moving(_jump, (0.0, 0.0), (0.001, 0.03))


@of_case("a lidar turned about its axis for good")
def turned_for_good(case: Case, random: Random) -> bool:
    """One lidar was always turned a little about its axis: another truth."""
    (side,) = one_side(random)
    moved = exp(np.r_[np.zeros(5), np.radians(random.uniform(-1.5, 1.5))])
    case.change((side,), lambda cloud, _: transformed(cloud, moved))
    case.truths = [_after(truth, side, moved) for truth in case.truths]
    return True


@of_case("mirrored")
def mirrored(case: Case, random: Random) -> None:
    """x, y or z turned round, or x and y exchanged; both lidars' alike, where they stand side by side, are clouds of a
    mirrored room, and nobody can tell."""
    transform = np.eye(4)
    transform[:3, :3] = MIRRORS[random.integers(len(MIRRORS))]
    sides = some_sides(random)
    case.change(sides, lambda cloud, _: transformed(cloud, transform))
    if case.side_by_side and sides == SIDES:
        case.truths = [transform @ truth @ inverse(transform) for truth in case.truths]


@of_case("exchanged")
def exchanged(case: Case, random: Random) -> None:
    """The lidars' clouds under each other's name; where the lidars stand side by side nobody can tell."""
    case.clouds = dict(zip(SIDES, reversed(case.clouds.values()), strict=True))
    if case.side_by_side:
        case.truths = [inverse(truth) for truth in case.truths]


def wrong_ranges(low: float, high: float, offset: float, random: Random, clouds: Clouds) -> Edited:
    factor, shift = 1.0 + random.choice([-1, 1]) * random.uniform(low, high), random.uniform(-offset, offset)
    return (scaled(cloud, factor + shift / ranges_of(cloud)) for cloud, _ in clouds)


# Of one lidar: if both err by one factor, the clouds are those of another, similar scene, and nobody can tell.
of_clouds("ranges 0.1 to 1 % wrong", one_side)(partial(wrong_ranges, 0.001, 0.01, 0.0))
of_clouds("ranges 1 to 3 % wrong", one_side)(partial(wrong_ranges, 0.01, 0.03, 0.0))
of_clouds("ranges up to 30 mm wrong")(partial(wrong_ranges, 0.0, 0.0, 0.03))


@of_case("frames dropped")
def dropped(case: Case, random: Random) -> bool:
    """Frames that never came, other ones of each lidar."""
    for side in SIDES:
        kept = np.sort(random.choice(len(case.clouds[side]), max(len(case.clouds[side]) // 2, 1), replace=False))
        case.clouds[side] = [case.clouds[side][number] for number in kept]
    return True


@of_case("one frame repeated")
def repeated(case: Case, random: Random) -> None:
    """The same frame over and over, as of a driver that hangs: its noise is not averaged."""
    for side in some_sides(random):
        case.clouds[side] = [case.clouds[side][0]] * len(case.clouds[side])


@of_case("frames and returns reordered")
def reordered(case: Case, random: Random) -> bool:
    """Frames, and returns within them, in another order."""
    for side in SIDES:
        clouds = case.clouds[side]
        case.clouds[side] = [random.permutation(clouds[number]) for number in random.permutation(len(clouds))]
    return True


@of_clouds("a sector blinded")
def blinded(random: Random, clouds: Clouds) -> Edited:
    """A sector without returns."""
    centre, width = random.uniform(-np.pi, np.pi), np.radians(random.uniform(20, 150))
    return (cloud[~sector(cloud, centre, width)] for cloud, _ in clouds)


@of_clouds("a sector 2 to 20 cm too far", one_side)
def wedge(random: Random, clouds: Clouds) -> Edited:
    """A sector too far away, as behind glass."""
    centre, width, by = random.uniform(-np.pi, np.pi), np.radians(random.uniform(10, 90)), random.uniform(0.02, 0.2)
    for cloud, _ in clouds:
        yield scaled(cloud, np.where(sector(cloud, centre, width), 1.0 + by / ranges_of(cloud), 1.0))


@of_case("rings shuffled")
def shuffled_rings(case: Case, random: Random) -> None:
    """Channels under each other's number."""
    order = random.permutation(1 + max(int(cloud["ring"].max()) for cloud in case.clouds["left"]))
    sides = some_sides(random)
    case.change(sides, lambda cloud, _: filled(cloud, "ring", order[np.minimum(cloud["ring"], len(order) - 1)]))


def filled(cloud: np.ndarray, name: str, values: np.ndarray | float) -> np.ndarray:
    cloud[name] = values
    return cloud


@of_clouds("rings all the same")
def one_ring(random: Random, clouds: Clouds) -> Edited:
    ring = random.choice((0, 5))
    return (filled(cloud, "ring", ring) for cloud, _ in clouds)


@of_clouds("intensities all the same")
def one_intensity(random: Random, clouds: Clouds) -> Edited:
    intensity = random.choice((0.0, 1.0, 255.0))
    return (filled(cloud, "intensity", intensity) for cloud, _ in clouds)


@of_clouds("returns that are none", sound=True)
def spoilt(random: Random, clouds: Clouds) -> Edited:
    """Some returns are no numbers, zero, infinite or a kilometre away."""
    value = random.choice([np.nan, 0.0, np.inf, 1000.0])
    share = random.uniform(0.01, 0.4)
    for cloud, _ in clouds:
        cloud = random.permutation(cloud)
        for name in "xyz":
            cloud[name][: int(share * len(cloud))] = value
        yield cloud


@of_clouds("noise of 5 to 40 mm more", sound=True)
def noisy(random: Random, clouds: Clouds) -> Edited:
    """More range noise than the sensor has."""
    sigma = random.uniform(0.005, 0.04)
    return (scaled(cloud, 1.0 + random.normal(0.0, sigma, len(cloud)) / ranges_of(cloud)) for cloud, _ in clouds)


@of_clouds("half to nine tenths of the returns lost")
def thinned(random: Random, clouds: Clouds) -> Edited:
    share = random.uniform(0.1, 0.5)
    return (cloud[random.uniform(size=len(cloud)) < share] for cloud, _ in clouds)


@of_clouds("ranges in steps of 5 to 50 mm")
def quantised(random: Random, clouds: Clouds) -> Edited:
    step = random.uniform(0.005, 0.05)
    for cloud, _ in clouds:
        ranges = ranges_of(cloud)
        yield scaled(cloud, np.round(ranges / step) * step / ranges)


@of_case("the robot sways")
def tilting(case: Case, random: Random) -> None:
    """Both lidars together, as one body about the left one."""
    twist = np.r_[random.normal(0.0, 0.003, 3), np.radians(random.normal(0.0, 0.2, 3))]
    shares = random.uniform(-1.0, 1.0, FRAMES)
    (truth,) = case.truths[:1]
    for side, base in (("left", np.eye(4)), ("right", truth)):
        case.change(
            (side,), lambda cloud, n, base=base: transformed(cloud, inverse(base) @ exp(shares[n] * twist) @ base)
        )


@of_clouds("rotor angles wrong")
def encoder(random: Random, clouds: Clouds, shares: Callable[[np.ndarray], np.ndarray] = shares_of_scan) -> Edited:
    """A rotor whose angles grow too fast in a scan, and an eccentricity."""
    gain, bend = random.uniform(-0.002, 0.002), np.radians(random.uniform(0.0, 0.3))
    for cloud, _ in clouds:
        yield turned(cloud, gain * 2.0 * np.pi * shares(cloud) + bend * np.sin(azimuths_of(cloud)))


@of_clouds("elevations wrong")
def elevations(random: Random, clouds: Clouds) -> Edited:
    """A table of elevations that is stretched, or shifted for one lidar."""
    gain, shift = random.uniform(-0.01, 0.01), np.radians(random.uniform(-0.3, 0.3))
    return (aimed(cloud, (1.0 + gain) * elevations_of(cloud) + shift) for cloud, _ in clouds)


@of_clouds("three channels up to 8 cm wrong", one_side)
def bad_channels(random: Random, clouds: Clouds) -> Edited:
    channels, by = random.choice(16, 3, replace=False), random.uniform(-0.08, 0.08)
    return (scaled(cloud, 1.0 + np.isin(cloud["ring"] % 16, channels) * by / ranges_of(cloud)) for cloud, _ in clouds)


@of_case("another room in one lidar")
def another_room(case: Case, random: Random) -> None:
    (side,) = one_side(random)
    case.clouds[side] = case.elsewhere().clouds[side]


@of_case("another room in one lidar for a while")
def another_room_for_a_while(case: Case, random: Random) -> None:
    (side,), start = one_side(random), int(random.integers(1, FRAMES))
    case.clouds[side][start:] = case.elsewhere().clouds[side][start:]


@of_clouds("somebody in front of one lidar", one_side, sound=True)
def somebody(random: Random, clouds: Clouds) -> Edited:
    """In some frames."""
    centre, width, distance = random.uniform(-np.pi, np.pi), np.radians(random.uniform(10, 40)), random.uniform(0.5, 2)
    present = random.uniform(size=FRAMES) < random.uniform(0.1, 1.0)
    for cloud, frame in clouds:
        ranges = ranges_of(cloud)
        hidden = present[frame] & sector(cloud, centre, width) & (ranges > distance) & (np.abs(cloud["z"]) < ranges / 2)
        yield scaled(cloud, np.where(hidden, (distance + random.normal(0.0, 0.01, len(cloud))) / ranges, 1.0))


@of_clouds("millimetres")
def millimetres(random: Random, clouds: Clouds) -> Edited:
    return (scaled(cloud, 1000.0) for cloud, _ in clouds)


@of_clouds("only what is near, or far")
def near_or_far(random: Random, clouds: Clouds) -> Edited:
    bound, near = random.uniform(1.5, 4.0), random.uniform() < 0.5
    return (cloud[(ranges_of(cloud) < bound) == near] for cloud, _ in clouds)


@of_case("sensor unknown")
def unknown_sensor(case: Case, random: Random) -> bool:
    """Nobody says which lidars they are."""
    case.rig = replace(case.rig, sensor=None)
    return True


@of_case("both lidars' returns in one's")
def merged(case: Case, random: Random) -> None:
    """A topic of all lidars' returns, brought together by the description, in place of one lidar's: those of this scan,
    or of the one before or after."""
    (side,) = one_side(random)
    (other,) = set(SIDES) - {side}
    nominal = case.rig.left_from_right
    to_side = nominal if side == "left" else inverse(nominal)
    order = np.roll(np.arange(len(case.clouds[other])), random.integers(-1, 2))
    case.clouds[side] = [
        np.concatenate([own, transformed(case.clouds[other][number].copy(), to_side)])
        for own, number in zip(case.clouds[side], order, strict=True)
    ]


@of_clouds("means of voxels of 2 to 15 cm")
def voxels(random: Random, clouds: Clouds) -> Edited:
    """A filter that gives the mean of the returns in each voxel, and the fields of one of them."""
    size = random.uniform(0.02, 0.15)
    for cloud, _ in clouds:
        points = coordinates(cloud).astype(float)
        _, first, number = np.unique(np.floor(points / size), axis=0, return_index=True, return_inverse=True)
        counts = np.bincount(number.ravel())
        means = [np.bincount(number.ravel(), column) / counts for column in points.T]
        yield placed(cloud[first], np.column_stack(means))


@of_clouds("smoothed along channels")
def smoothed(random: Random, clouds: Clouds) -> Edited:
    """A filter over the ranges of neighbouring firings of each channel."""
    width, of_median = 2 * int(random.integers(1, 6)) + 1, random.uniform() < 0.5
    run = ndimage.median_filter if of_median else ndimage.uniform_filter
    for cloud, _ in clouds:
        ranges, azimuths, new = ranges_of(cloud), azimuths_of(cloud), ranges_of(cloud)
        for ring in np.unique(cloud["ring"]):
            own = np.flatnonzero(cloud["ring"] == ring)
            own = own[np.argsort(azimuths[own])]
            new[own] = run(ranges[own], width, mode="wrap")
        yield scaled(cloud, new / ranges)


@of_case("deskewed by up to millimetres for nothing")
def deskewed(case: Case, random: Random) -> None:
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


@of_clouds("elevations of other channels")
def another_table(random: Random, clouds: Clouds) -> Edited:
    """Of the next channel, or of every second channel exchanged with the next."""
    exchanged = random.uniform() < 0.5
    for cloud, _ in clouds:
        level, rings = elevations_of(cloud), cloud["ring"].astype(int)
        numbers = np.arange(rings.max() + 1)
        table = np.array([np.median(level[rings == n]) if (rings == n).any() else np.nan for n in numbers])
        other = np.minimum(numbers ^ 1 if exchanged else numbers + 1, len(numbers) - 1)
        yield aimed(cloud, level + np.nan_to_num(table[other] - table)[rings])


@of_clouds("half of the channels 0.05 to 0.5 deg late")
def late_block(random: Random, clouds: Clouds) -> Edited:
    """They fire later than the driver knows."""
    by, upper = np.radians(random.uniform(0.05, 0.5)), random.uniform() < 0.5
    for cloud, _ in clouds:
        late = cloud["ring"] >= np.median(cloud["ring"]) if upper else cloud["ring"] % 2 == 1
        yield turned(cloud, np.where(late, by, 0.0))


@of_clouds("bright surfaces up to 4 cm wrong")
def bright(random: Random, clouds: Clouds) -> Edited:
    """They look nearer, or farther."""
    by, above = random.uniform(-0.04, 0.04), random.uniform(0.3, 0.8)
    for cloud, _ in clouds:
        bright = cloud["intensity"] > np.quantile(cloud["intensity"], above)
        yield scaled(cloud, 1.0 + bright * by / ranges_of(cloud))


@of_clouds("dust", sound=True)
def dust(random: Random, clouds: Clouds) -> Edited:
    """Some returns come from near the lidar."""
    share = random.uniform(0.01, 0.1)
    for cloud, _ in clouds:
        ranges = ranges_of(cloud)
        near = np.minimum(random.uniform(0.3, 3.0, len(cloud)), ranges)
        yield scaled(cloud, np.where(random.uniform(size=len(cloud)) < share, near / ranges, 1.0))


@of_clouds("half floats")
def half_floats(random: Random, clouds: Clouds) -> Edited:
    """Points stored in 16 bits."""
    return (placed(cloud, coordinates(cloud).astype(np.float16).astype(float)) for cloud, _ in clouds)


@of_case("earlier scans published again")
def averaged(case: Case, random: Random) -> None:
    """A driver that publishes the returns of its last scans, too."""
    depth = int(random.integers(2, FRAMES + 1))
    for side in some_sides(random):
        clouds = case.clouds[side]
        case.clouds[side] = [np.concatenate(clouds[max(0, n - depth + 1) : n + 1]) for n in range(len(clouds))]


@of_clouds("cropped by a plane")
def cropped(random: Random, clouds: Clouds) -> Edited:
    """A driver that gives what is above a height only, or below it, or on one side."""
    axis, sign = random.normal(size=3) * [1.0, 1.0, 2.0], random.uniform(-0.5, 0.5)
    axis /= np.linalg.norm(axis)
    return (cloud[coordinates(cloud).astype(float) @ axis > sign] for cloud, _ in clouds)


@of_case("one lidar's returns on both topics")
def copied(case: Case, random: Random) -> None:
    """Brought into the other's frame by the description."""
    case.clouds["left"] = [transformed(cloud.copy(), case.rig.left_from_right) for cloud in case.clouds["right"]]


@of_clouds("ranges drift by up to 3 cm")
def warming(random: Random, clouds: Clouds) -> Edited:
    """While the lidar warms up."""
    by = random.uniform(-0.03, 0.03)
    return (scaled(cloud, 1.0 + by * n / (FRAMES - 1) / ranges_of(cloud)) for cloud, n in clouds)


@of_clouds("far returns look near")
def folded(random: Random, clouds: Clouds) -> Edited:
    """What is farther than the lidar can tell."""
    bound = random.uniform(3.0, 8.0)
    for cloud, _ in clouds:
        ranges = ranges_of(cloud)
        yield scaled(cloud, np.maximum(ranges % bound, 0.2) / ranges)


@of_case("things moved between the lidars' scans")
def things_moved(case: Case, random: Random) -> bool:
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


@of_clouds("azimuths in steps of 0.2 to 2 deg")
def coarse_azimuths(random: Random, clouds: Clouds) -> Edited:
    step = np.radians(random.uniform(0.2, 2.0))
    for cloud, _ in clouds:
        rounded, flat = np.round(azimuths_of(cloud) / step) * step, np.hypot(cloud["x"], cloud["y"])
        yield placed(cloud, np.column_stack([flat * np.cos(rounded), flat * np.sin(rounded), cloud["z"]]))


@of_clouds("returns interpolated")
def interpolated(random: Random, clouds: Clouds) -> Edited:
    """A filter that adds the middle between neighbouring returns of a channel."""
    for cloud, _ in clouds:
        order = np.lexsort((azimuths_of(cloud), cloud["ring"]))
        between, points = cloud[order[:-1]].copy(), coordinates(cloud).astype(float)[order]
        placed(between, (points[1:] + points[:-1]) / 2.0)
        yield np.concatenate([cloud, between[cloud["ring"][order[1:]] == cloud["ring"][order[:-1]]]])


@of_case("half a turn at a time")
def half_turns(case: Case, random: Random) -> bool:
    """A driver that publishes half a turn at a time."""
    case.change(some_sides(random), lambda cloud, n: cloud[(azimuths_of(cloud) > 0.0) == n % 2])
    return len(case.clouds["left"]) > 3


@of_clouds("returns at random ranges", sound=True)
def outliers(random: Random, clouds: Clouds) -> Edited:
    """Interference, sun."""
    share = random.uniform(0.005, 0.05)
    for cloud, _ in clouds:
        ranges, wild = ranges_of(cloud), random.uniform(size=len(cloud)) < share
        yield scaled(cloud, np.where(wild, random.uniform(0.3, 15.0, len(cloud)) / ranges, 1.0))


@of_clouds("dual returns", sound=True)
def twice(random: Random, clouds: Clouds) -> Edited:
    """Every return twice, part of the last ones from farther away."""
    share = random.uniform(0.0, 0.05)
    for cloud, _ in clouds:
        behind = random.uniform(0.1, 2.0, len(cloud)) * (random.uniform(size=len(cloud)) < share)
        yield np.concatenate([cloud, scaled(cloud.copy(), 1.0 + behind / ranges_of(cloud))])


@of_clouds("packets and a channel lost", sound=True)
def packets_lost(random: Random, clouds: Clouds) -> Edited:
    """Packets lost in bursts, elsewhere in each frame, and a channel that is dead."""
    share, dead = random.uniform(0.02, 0.3), random.integers(16)
    for cloud, _ in clouds:
        lost = random.uniform(size=360) < share
        packet = ((azimuths_of(cloud) + np.pi) / (2.0 * np.pi) * len(lost)).astype(int) % len(lost)
        yield cloud[~lost[packet] & (cloud["ring"] != dead)]


@of_clouds("two channels exchanged")
def two_channels(random: Random, clouds: Clouds) -> Edited:
    """Two neighbouring channels at each other's elevation."""
    first = int(random.integers(15))
    for cloud, _ in clouds:
        level, rings = elevations_of(cloud), cloud["ring"]
        own = [rings == first, rings == first + 1]
        if all(each.any() for each in own):
            by = np.median(level[own[1]]) - np.median(level[own[0]])
            level += by * own[0] - by * own[1]
        yield aimed(cloud, level)


@of_clouds("firing times of another model")
def firing_order(random: Random, clouds: Clouds) -> Edited:
    """Azimuths that are off in proportion to the channel's number, from the middle one: nobody can tell an offset of
    all."""
    by = np.radians(random.choice([-1, 1]) * random.uniform(0.05, 1.0))
    return (turned(cloud, by * (cloud["ring"] / max(cloud["ring"].max(), 1) - 0.5)) for cloud, _ in clouds)


@of_clouds("rings reversed")
def reversed_rings(random: Random, clouds: Clouds) -> Edited:
    """Channels numbered from the other end."""
    return (filled(cloud, "ring", cloud["ring"].max() - cloud["ring"]) for cloud, _ in clouds)


def beam_origin(low: float, high: float, aside: float) -> Edit:
    """Return the edit by a driver that does not know where beams begin, or corrects it twice: so far (m) from the axis
    along them, or aside. It turns with the rotor."""

    def edit(case: Case, random: Random) -> None:
        by = random.choice([-1, 1]) * random.uniform(low, high)
        offsets = np.zeros(1) if case.rig.sensor is None else case.rig.sensor.azimuth_offsets
        ahead = offsets - np.median(offsets)  # of the usual channel

        def moved(cloud: np.ndarray, _: int) -> np.ndarray:
            rotor = azimuths_of(cloud) - ahead[np.minimum(cloud["ring"], len(ahead) - 1)] + aside
            origins = by * np.column_stack([np.cos(rotor), np.sin(rotor), np.zeros(len(rotor))])
            return placed(cloud, coordinates(cloud).astype(float) + origins)

        case.change(some_sides(random), moved)

    return edit


EDITS["beam origin 5 to 40 mm wrong"] = beam_origin(0.005, 0.04, 0.0)
EDITS["beams 3 to 30 mm aside of the axis"] = beam_origin(0.003, 0.03, np.pi / 2.0)


@of_clouds("distance unit of another model", one_side)  # both alike are clouds of another, similar scene
def distance_unit(random: Random, clouds: Clouds) -> Edited:
    """Half as far, or twice."""
    factor = random.choice([0.5, 2.0])
    return (scaled(cloud, factor) for cloud, _ in clouds)


@of_clouds("a mirror", one_side, sound=True)
def looking_glass(random: Random, clouds: Clouds) -> Edited:
    """On an upright plane, that shows a wall behind the lidar: as far behind the mirror as it is in front of it."""
    centre, width, distance = random.uniform(-np.pi, np.pi), np.radians(random.uniform(10, 60)), random.uniform(0.5, 3)
    behind, normal = random.uniform(0.5, 5.0), np.array([np.cos(centre), np.sin(centre), 0.0])
    for cloud, _ in clouds:
        along = coordinates(cloud).astype(float) @ normal
        seen = sector(cloud, centre, width) & (along > distance)
        yield scaled(cloud, np.where(seen, (2.0 * distance + behind) / np.maximum(along, 1e-6), 1.0))


@of_case("retro-reflectors")
def blooming(case: Case, random: Random) -> bool:
    """What is seen beside one is as far away as it is."""
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


@of_clouds("a mount shaken within scans", one_side)
def shaken(random: Random, clouds: Clouds) -> Edited:
    """A mount that vibrates while the lidar turns: many times in a revolution, with another phase in each."""
    twist = np.r_[random.normal(0.0, 0.001, 3), np.radians(random.normal(0.0, 0.1, 3))]
    times = random.uniform(1.5, 8.0)
    for cloud, _ in clouds:
        points, phase = coordinates(cloud).astype(float), random.uniform(0.0, 2.0 * np.pi)
        shares = np.sin(times * azimuths_of(cloud) + phase)[:, None]
        yield placed(cloud, points + shares * (twist[:3] + np.cross(twist[3:], points)))


@of_clouds("optical frame", one_side)
def another_frame(random: Random, clouds: Clouds) -> Edited:
    """Clouds of one lidar in its optical frame (z ahead), under the name of its own."""
    optical = np.eye(4)
    optical[:3, :3] = [[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]]
    return (transformed(cloud, optical) for cloud, _ in clouds)


@of_case("sensor file of another model")
def another_sensor(case: Case, random: Random) -> None:
    case.rig = replace(case.rig, sensor=load_sensor(random.choice(["vlp16", "os0_32", "jt128"])))


# As rotor angles that are wrong, if they jump back at +-180 deg, wherever scans begin.
of_clouds("azimuths that jump at 180 deg")(partial(encoder, shares=lambda cloud: azimuths_of(cloud) / (2.0 * np.pi)))


@of_case("a wall elsewhere for one lidar")
def wall_elsewhere(case: Case, random: Random) -> None:
    """A flat surface 4 to 40 mm nearer or further: a curtain, a whiteboard, a pane that one lidar sees through."""
    (side,), by = one_side(random), random.uniform(0.004, 0.04) * random.choice((-1.0, 1.0))
    points = np.concatenate([coordinates(cloud)[::7] for cloud in case.clouds[side]]).astype(float)
    flat = np.inf
    for point in points[random.integers(len(points), size=200)]:
        near = points[np.linalg.norm(points - point, axis=1) < 0.5]
        if len(near) < 20:
            continue
        values, axes = np.linalg.eigh(np.cov(near.T))
        on_it = np.abs((points - near.mean(axis=0)) @ axes[:, 0]) < WALL / 2.0
        # As upright as a wall, with a twentieth of the view or more.
        if values[0] < flat and values[1] > 0.01 and abs(axes[2, 0]) < 0.3 and on_it.mean() > 0.05:
            flat, middle, normal = values[0], near.mean(axis=0), axes[:, 0]
    if np.isfinite(flat):

        def moved(cloud: np.ndarray, _: int) -> np.ndarray:
            points = coordinates(cloud).astype(float)
            on_it = np.abs((points - middle) @ normal) < WALL
            return placed(cloud, points + by * on_it[:, None] * normal)

        case.change((side,), moved)


@of_clouds("coordinates cut to steps of 1 to 10 mm")
def cut_coordinates(random: Random, clouds: Clouds) -> Edited:
    """Towards zero, as by a conversion to whole numbers."""
    step = random.uniform(0.001, 0.01)
    return (placed(cloud, np.trunc(coordinates(cloud) / step) * step) for cloud, _ in clouds)


@of_clouds("a cover, 1 to 6 mm longer ranges in its middle", sides=one_side)
def uneven_cover(random: Random, clouds: Clouds) -> Edited:
    """A window before 40 to 120 deg of the view, thickest in its middle, or dirty."""
    by, middle = random.uniform(0.001, 0.006), random.uniform(-np.pi, np.pi)
    half = np.radians(random.uniform(20.0, 60.0))
    for cloud, _ in clouds:
        yield scaled(cloud, 1.0 + by * through_window(cloud, middle, half) / ranges_of(cloud))


@of_clouds("ranges that err in waves of 0.2 to 3 m")
def cyclic(random: Random, clouds: Clouds) -> Edited:
    """By up to 8 mm, as of clocks that divide time into steps."""
    by, length, phase = random.uniform(0.002, 0.008), 0.2 * 15.0 ** random.uniform(), random.uniform(0.0, 2.0 * np.pi)
    for cloud, _ in clouds:
        ranges = ranges_of(cloud)
        yield scaled(cloud, 1.0 + by * np.sin(2.0 * np.pi * ranges / length + phase) / ranges)


def in_waves(least: int, most: int, largest: float, change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable:
    """Return the edit by an error of so many waves a turn, a tenth of `largest` (deg) or more."""

    def edit(random: Random, clouds: Clouds) -> Edited:
        by, times = np.radians(largest * 10.0 ** -random.uniform()), int(random.integers(least, most + 1))
        phase = random.uniform(0.0, 2.0 * np.pi)
        return (change(cloud, by * np.cos(times * azimuths_of(cloud) + phase)) for cloud, _ in clouds)

    return edit


of_clouds("a rotor that cogs")(in_waves(3, 12, 0.2, turned))
of_clouds("a spin axis that wobbles")(in_waves(2, 3, 0.3, lambda cloud, by: aimed(cloud, elevations_of(cloud) + by)))


@of_clouds("a window that bends rays by 0.03 to 0.3 deg", sides=one_side)
def bent_window(random: Random, clouds: Clouds) -> Edited:
    """Before 40 to 120 deg of the view, most in its middle, aside or upwards."""
    by, middle = np.radians(0.3 * 10.0 ** -random.uniform()) * random.choice((-1, 1)), random.uniform(-np.pi, np.pi)
    half, upwards = np.radians(random.uniform(20.0, 60.0)), random.uniform() < 0.5
    for cloud, _ in clouds:
        bent = by * through_window(cloud, middle, half)
        yield aimed(cloud, elevations_of(cloud) + bent) if upwards else turned(cloud, bent)


@of_clouds("images in the lidar's own window", sound=True)
def own_window(random: Random, clouds: Clouds) -> Edited:
    """Some returns, once more at another azimuth."""
    share, by = random.uniform(0.02, 0.1), random.uniform(0.5, np.pi)
    for cloud, _ in clouds:
        images = cloud[random.uniform(size=len(cloud)) < share].copy()
        yield np.concatenate([cloud, turned(images, np.full(len(images), by))])
