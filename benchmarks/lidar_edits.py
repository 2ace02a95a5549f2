"""Faults of lidars that move, of their ranges, angles and noise, and what gets in the way of their rays."""

from collections.abc import Callable
from functools import partial

import numpy as np
from comparing import drawn_twist
from edited_clouds import (
    FRAMES,
    REGISTERED,
    Case,
    Clouds,
    Edit,
    Edited,
    Random,
    after,
    aimed,
    azimuths_of,
    elevations_of,
    of_case,
    of_clouds,
    one_side,
    placed,
    ranges_of,
    scaled,
    sector,
    shares_of_scan,
    through_window,
    too_long_near,
    transformed,
    turned,
)

from stretch_sim_cal.geometry.transforms import SIDES, exp, inverse
from stretch_sim_cal.sensor.points import coordinates

WALL = 0.06  # m from its plane are still of a wall


def moving(way: Callable[[float], float], turn: tuple[float, float], shift: tuple[float, float]) -> Edit:
    """Return the edit that moves one lidar while the frames are taken: `way` of the share of time, by a twist of so
    many deg and m, drawn between bounds."""

    def edit(case: Case, random: Random) -> None:
        (side,) = one_side(random)
        ways = drawn_twist(random, 1.0, 1.0)
        sizes = [low * (high / low) ** random.uniform() if low else 0.0 for low, high in (shift, np.radians(turn))]
        twist = np.repeat(sizes, 3) * ways
        frames = len(case.clouds[side])
        shares = [way(frame / max(frames - 1, 1)) for frame in range(frames)]
        case.change((side,), lambda cloud, frame: transformed(cloud, exp(shares[frame] * twist)))
        moved = [exp(share * twist) for share in (min(shares), float(np.mean(shares)), max(shares))]
        case.truths = [after(truth, side, each) for truth in case.truths for each in moved]

    return edit


def _jump(at: float) -> float:
    return float(at > 0.5)


REGISTERED["a lidar jumps, 0.1 to 5 deg"] = moving(_jump, (0.1, 5.0), (0.0, 0.0))
REGISTERED["a lidar drifts, 0.1 to 5 deg"] = moving(float, (0.1, 5.0), (0.0, 0.0))
REGISTERED["a lidar vibrates, 0.1 to 2 deg"] = moving(lambda at: float(np.sin(20.0 * at)), (0.1, 2.0), (0.0, 0.0))
REGISTERED["a lidar slides, 1 to 30 mm"] = moving(_jump, (0.0, 0.0), (0.001, 0.03))


@of_case("a lidar turned about its axis for good")
def turned_for_good(case: Case, random: Random) -> bool:
    """One lidar was always turned a little about its axis: another truth."""
    (side,) = one_side(random)
    moved = exp(np.r_[np.zeros(5), np.radians(random.uniform(-1.5, 1.5))])
    case.change((side,), lambda cloud, _: transformed(cloud, moved))
    case.truths = [after(truth, side, moved) for truth in case.truths]
    return True


def wrong_ranges(low: float, high: float, offset: float, random: Random, clouds: Clouds) -> Edited:
    factor, shift = 1.0 + random.choice([-1, 1]) * random.uniform(low, high), random.uniform(-offset, offset)
    return (scaled(cloud, factor + shift / ranges_of(cloud)) for cloud, _ in clouds)


# Of one lidar: if both err by one factor, the clouds are those of another, similar scene, and nobody can tell.
of_clouds("ranges 0.1 to 1 % wrong", one_side)(partial(wrong_ranges, 0.001, 0.01, 0.0))
of_clouds("ranges 1 to 3 % wrong", one_side)(partial(wrong_ranges, 0.01, 0.03, 0.0))
of_clouds("ranges up to 30 mm wrong")(partial(wrong_ranges, 0.0, 0.0, 0.03))


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


@of_clouds("noise of 5 to 40 mm more", sound=True)
def noisy(random: Random, clouds: Clouds) -> Edited:
    """More range noise than the sensor has."""
    sigma = random.uniform(0.005, 0.04)
    return (scaled(cloud, 1.0 + random.normal(0.0, sigma, len(cloud)) / ranges_of(cloud)) for cloud, _ in clouds)


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


@of_clouds("returns at random ranges", sound=True)
def outliers(random: Random, clouds: Clouds) -> Edited:
    """Interference, sun."""
    share = random.uniform(0.005, 0.05)
    for cloud, _ in clouds:
        ranges, wild = ranges_of(cloud), random.uniform(size=len(cloud)) < share
        yield scaled(cloud, np.where(wild, random.uniform(0.3, 15.0, len(cloud)) / ranges, 1.0))


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


@of_clouds("near ranges up to 5 cm wrong")
def near_ranges(random: Random, clouds: Clouds) -> Edited:
    """By 1 to 5 cm at the lidar, less from 0.15 to 0.6 m on, alike for all lidars of one kind, or one alone."""
    by, length = random.choice((-1, 1)) * random.uniform(0.01, 0.05), random.uniform(0.15, 0.6)
    return (scaled(cloud, too_long_near(ranges_of(cloud), by, length)) for cloud, _ in clouds)


@of_clouds("channels that err by 1 to 5 mm, near otherwise than far", sides=lambda _: SIDES, sound=True)
def uneven_channels(random: Random, clouds: Clouds) -> Edited:
    """Each channel's ranges, from one wall to the next, as those of real lidars do (docs/real_data.md)."""
    by, knots = random.uniform(0.001, 0.005), np.log(0.5) + np.log(1.5) * np.arange(13)
    for cloud, frame in clouds:
        if frame == 0:
            errors = random.normal(0.0, by, (256, len(knots)))
        ranges = ranges_of(cloud)
        between = np.interp(np.log(ranges), knots, np.arange(len(knots)))
        number = np.minimum(between.astype(int), len(knots) - 2)
        share, channel = between - number, cloud["ring"] % 256
        error = (1.0 - share) * errors[channel, number] + share * errors[channel, number + 1]
        yield scaled(cloud, 1.0 + error / ranges)


@of_clouds("half of the channels 5 to 40 mm longer", one_side)
def boards(random: Random, clouds: Clouds) -> Edited:
    """The ranges of one of two boards of channels, or of every second channel."""
    by, on_boards = random.choice([-1, 1]) * random.uniform(0.005, 0.04), random.integers(2)
    for cloud, _ in clouds:
        number = cloud["ring"].astype(int)
        half = number >= (number.max() + 1) // 2 if on_boards else number % 2 == 1
        yield scaled(cloud, 1.0 + by * half / ranges_of(cloud))


@of_clouds("heights 0.2 to 2 % wrong", one_side)
def stretched(random: Random, clouds: Clouds) -> Edited:
    """Elevations in proportion, as of a table that is stretched."""
    by = np.array([1.0, 1.0, 1.0 + random.choice([-1, 1]) * random.uniform(0.002, 0.02)])
    return (placed(cloud, coordinates(cloud).astype(float) * by) for cloud, _ in clouds)


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
