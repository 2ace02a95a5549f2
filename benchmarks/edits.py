"""What may be wrong with a recording of two lidars, and nobody announced: edits of their clouds.

`EDITS` by name: of drivers and of filters that somebody put between driver and calibration, of lidars and robots that
move, and of what the files say, here; of the returns, in `edits_of_returns.py`.
"""

from collections.abc import Callable
from dataclasses import replace

import edits_of_returns as returns
import numpy as np
from edits_of_returns import (
    FRAMES,
    Case,
    Edit,
    azimuths_of,
    one_side,
    placed,
    ranges_of,
    scaled,
    shares_of_scan,
    some_sides,
    transformed,
)
from scipy import ndimage

from stretch_sim_cal.geometry.transforms import SIDES, apply, exp, inverse
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.sensor.sensor import load_sensor

MIRRORS = (np.diag([-1.0, 1.0, 1.0]), np.diag([1.0, -1.0, 1.0]), np.diag([1.0, 1.0, -1.0]), np.eye(3)[[1, 0, 2]])


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


def thinned(case: Case, random: np.random.Generator) -> bool:
    """Most returns lost."""
    share = random.uniform(0.1, 0.5)
    case.change(some_sides(random), lambda cloud, _: cloud[random.uniform(size=len(cloud)) < share])
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


def reversed_rings(case: Case, random: np.random.Generator) -> bool:
    """Channels numbered from the other end."""

    def edit(cloud: np.ndarray, _: int) -> np.ndarray:
        cloud["ring"] = cloud["ring"].max() - cloud["ring"]
        return cloud

    case.change(some_sides(random), edit)
    return False


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
    "ranges 0.1 to 1 % wrong": returns.wrong_ranges(0.001, 0.01),
    "ranges 1 to 3 % wrong": returns.wrong_ranges(0.01, 0.03),
    "ranges up to 30 mm wrong": returns.wrong_ranges(0.0, 0.0, 0.03),
    "frames dropped": dropped,
    "one frame repeated": repeated,
    "frames and returns reordered": reordered,
    "a sector blinded": returns.blinded,
    "a sector 2 to 20 cm too far": returns.wedge,
    "rings shuffled": shuffled_rings,
    "rings all the same": _field("ring", (0, 5)),
    "intensities all the same": _field("intensity", (0.0, 1.0, 255.0)),
    "returns that are none": returns.spoilt,
    "noise of 5 to 40 mm more": returns.noisy,
    "half to nine tenths of the returns lost": thinned,
    "ranges in steps of 5 to 50 mm": returns.quantised,
    "the robot sways": tilting,
    "rotor angles wrong": returns.encoder,
    "elevations wrong": returns.elevations,
    "three channels up to 8 cm wrong": returns.bad_channels,
    "another room in one lidar": another_room,
    "another room in one lidar for a while": another_room_for_a_while,
    "somebody in front of one lidar": returns.somebody,
    "millimetres": returns.millimetres,
    "only what is near, or far": near_or_far,
    "sensor unknown": unknown_sensor,
    "both lidars' returns in one's": merged,
    "means of voxels of 2 to 15 cm": voxels,
    "smoothed along channels": smoothed,
    "deskewed by up to millimetres for nothing": deskewed,
    "elevations of other channels": returns.another_table,
    "half of the channels 0.05 to 0.5 deg late": returns.late_block,
    "bright surfaces up to 4 cm wrong": returns.bright,
    "dust": returns.dust,
    "half floats": returns.half_floats,
    "earlier scans published again": averaged,
    "cropped by a plane": cropped,
    "one lidar's returns on both topics": copied,
    "ranges drift by up to 3 cm": returns.warming,
    "far returns look near": returns.folded,
    "things moved between the lidars' scans": returns.things_moved,
    "azimuths in steps of 0.2 to 2 deg": returns.coarse_azimuths,
    "returns interpolated": interpolated,
    "half a turn at a time": half_turns,
    "returns at random ranges": returns.outliers,
    "dual returns": twice,
    "packets and a channel lost": packets_lost,
    "two channels exchanged": returns.two_channels,
    "firing times of another model": returns.firing_order,
    "rings reversed": reversed_rings,
    "beam origin 5 to 40 mm wrong": returns.beam_origin,
    "distance unit of another model": returns.distance_unit,
    "a mirror": returns.looking_glass,
    "retro-reflectors": returns.blooming,
    "a mount shaken within scans": shaken,
    "optical frame": another_frame,
    "sensor file of another model": another_sensor,
    "azimuths that jump at 180 deg": returns.encoder_from_behind,
}
