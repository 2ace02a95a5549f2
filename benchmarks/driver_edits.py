"""Faults of drivers, of filters between driver and calibration, and of what files say of the lidars."""

from dataclasses import replace

import numpy as np
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
    shares_of_scan,
    some_sides,
    transformed,
    turned,
)
from scipy import ndimage

from stretch_sim_cal.geometry.transforms import SIDES, apply, exp, inverse
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.sensor.sensor import load_sensor

MIRRORS = (np.diag([-1.0, 1.0, 1.0]), np.diag([1.0, -1.0, 1.0]), np.diag([1.0, 1.0, -1.0]), np.eye(3)[[1, 0, 2]])


@of_case("nothing")
def nothing(case: Case, random: Random) -> bool:
    """As it was recorded."""
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
        case.truths = [after(case.truths[0], sides[0], exp(share * twist)) for share in (-0.5, 0.0, 0.5)]


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


@of_case("half of the channels 0.05 to 0.5 deg late")
def late_block(case: Case, random: Random) -> None:
    """They fire later than the driver knows. Whether these are wrong, or the others are early, or all by half of it,
    nothing shows but the sensor file: the mean pose of the channels is right, too."""
    by, upper, sides = np.radians(random.uniform(0.05, 0.5)), random.uniform() < 0.5, some_sides(random)

    def late(cloud: np.ndarray, _: int) -> np.ndarray:
        chosen = cloud["ring"] >= np.median(cloud["ring"]) if upper else cloud["ring"] % 2 == 1
        return turned(cloud, np.where(chosen, by, 0.0))

    case.change(sides, late)
    mean = exp(np.array([0.0, 0.0, 0.0, 0.0, 0.0, by / 2.0]))
    for side in sides:
        case.truths += [after(truth, side, mean) for truth in case.truths]


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


REGISTERED["beam origin 5 to 40 mm wrong"] = beam_origin(0.005, 0.04, 0.0)
REGISTERED["beams 3 to 30 mm aside of the axis"] = beam_origin(0.003, 0.03, np.pi / 2.0)


@of_clouds("distance unit of another model", one_side)  # both alike are clouds of another, similar scene
def distance_unit(random: Random, clouds: Clouds) -> Edited:
    """Half as far, or twice."""
    factor = random.choice([0.5, 2.0])
    return (scaled(cloud, factor) for cloud, _ in clouds)


@of_clouds("optical frame", one_side)
def another_frame(random: Random, clouds: Clouds) -> Edited:
    """Clouds of one lidar in its optical frame (z ahead), under the name of its own."""
    optical = np.eye(4)
    optical[:3, :3] = [[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]]
    return (transformed(cloud, optical) for cloud, _ in clouds)


@of_case("sensor file of another model")
def another_sensor(case: Case, random: Random) -> None:
    case.rig = replace(case.rig, sensor=load_sensor(random.choice(["vlp16", "os0_32", "jt128"])))


@of_clouds("coordinates cut to steps of 1 to 10 mm")
def cut_coordinates(random: Random, clouds: Clouds) -> Edited:
    """Towards zero, as by a conversion to whole numbers."""
    step = random.uniform(0.001, 0.01)
    return (placed(cloud, np.trunc(coordinates(cloud) / step) * step) for cloud, _ in clouds)
