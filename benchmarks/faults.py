"""Faults that nobody announced: clean recordings of two lidars are edited, and what is accepted must be right.

    python benchmarks/faults.py [--cases 500] [--first-seed 9001] [--kinds stretch dome stage] [--edits WORDS]
    python benchmarks/faults.py --data DIR [--sets nebula pandar64]

A case is a simulated recording with one edit or two, drawn by its seed: of the Stretch with two kinds of lidars, and of
two 16-channel lidars in generated rooms, units drawn from the sensor files; or scans of one real lidar at rest, against
other ones of it that are turned about its axis. Printed are, by edit, the worst first: what was accepted and is wrong
(further from the truth than what it says of itself allows, as improbable as four standard deviations), what was
accepted and right, what was refused, what was refused although the edit leaves it sound, and tracebacks. Exit code 1 if
anything was accepted and wrong, or ended in a traceback.
"""

import argparse
import collections
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import driver_edits  # noqa: F401 - registers its edits
import lidar_edits  # noqa: F401
import numpy as np
from comparing import Effect, Recording, chi_square, drawn, drawn_twist
from edited_clouds import FRAMES, REGISTERED, Case, ranges_of
from real_data import GUESSES, NO_BODY, recordings, turned
from recordings import Recorded
from stage import LIMIT, Stage

import stretch_sim_cal as cal
from stretch_sim_cal import command
from stretch_sim_cal.command import only_with
from stretch_sim_cal.errors import InputError, StretchSimCalError
from stretch_sim_cal.geometry.transforms import SIDES, error, exp
from stretch_sim_cal.sensor.sensor import load_sensor

KINDS = {"stretch": "jt128_sparse_real", "dome": "os0_32_sparse", "stage": "vlp16"}
LIKE = {"os0_32_sparse": "os0_32"}  # what is said of how units differ
WORLD, OTHER_WORLD = "furnished_room", "tables"
# Recordings of single real lidars at rest, in every process.
REAL, STILL = "real", []
SHARES = 5  # every so manyth case has two edits
# What is unsure is no fault: bounds of what is accepted, m and rad.
ACCEPT = (0.05, np.radians(2.0))
# The edits, in the order in which they are drawn: in another one, a seed draws others.
EDITS = {name: REGISTERED[name] for name in (
    "nothing", "a lidar jumps, 0.1 to 5 deg", "a lidar drifts, 0.1 to 5 deg", "a lidar vibrates, 0.1 to 2 deg",
    "a lidar slides, 1 to 30 mm", "a lidar turned about its axis for good", "mirrored", "exchanged",
    "ranges 0.1 to 1 % wrong", "ranges 1 to 3 % wrong", "ranges up to 30 mm wrong", "frames dropped",
    "one frame repeated", "frames and returns reordered", "a sector blinded", "a sector 2 to 20 cm too far",
    "rings shuffled", "rings all the same", "intensities all the same", "returns that are none",
    "noise of 5 to 40 mm more", "half to nine tenths of the returns lost", "ranges in steps of 5 to 50 mm",
    "the robot sways", "rotor angles wrong", "elevations wrong", "three channels up to 8 cm wrong",
    "another room in one lidar", "another room in one lidar for a while", "somebody in front of one lidar",
    "millimetres", "only what is near, or far", "sensor unknown", "both lidars' returns in one's",
    "means of voxels of 2 to 15 cm", "smoothed along channels", "deskewed by up to millimetres for nothing",
    "elevations of other channels", "half of the channels 0.05 to 0.5 deg late", "bright surfaces up to 4 cm wrong",
    "dust", "half floats", "earlier scans published again", "cropped by a plane", "one lidar's returns on both topics",
    "ranges drift by up to 3 cm", "far returns look near", "things moved between the lidars' scans",
    "azimuths in steps of 0.2 to 2 deg", "returns interpolated", "half a turn at a time", "returns at random ranges",
    "dual returns", "packets and a channel lost", "two channels exchanged", "firing times of another model",
    "rings reversed", "beam origin 5 to 40 mm wrong", "beams 3 to 30 mm aside of the axis",
    "distance unit of another model", "a mirror", "retro-reflectors", "a mount shaken within scans", "optical frame",
    "sensor file of another model", "azimuths that jump at 180 deg", "a wall elsewhere for one lidar",
    "coordinates cut to steps of 1 to 10 mm", "a cover, 1 to 6 mm longer ranges in its middle",
    "ranges that err in waves of 0.2 to 3 m", "a rotor that cogs", "a spin axis that wobbles",
    "a window that bends rays by 0.03 to 0.3 deg", "images in the lidar's own window", "near ranges up to 5 cm wrong",
    "channels that err by 1 to 5 mm, near otherwise than far", "half of the channels 5 to 40 mm longer",
    "heights 0.2 to 2 % wrong",
)}  # fmt: skip


def recorded(kind: str, seed: int, world: str = WORLD) -> Case:
    """Return a clean recording; that of the stage is of a generated room of its seed, a real one of `_real`."""
    if kind == REAL:
        return _real(seed)

    def elsewhere() -> Case:
        return recorded(kind, seed + 7, OTHER_WORLD)

    sensor = KINDS[kind]
    if kind == "stage":
        stage = Stage(load_sensor(sensor), seed, two_units=True, scans=FRAMES)
        rig = cal.Rig(np.eye(4), stage.guess(), sensor=stage.sensor)
        return Case(dict(stage.scans), [stage.truth], rig, True, elsewhere)
    recording = Recording(Effect(kind, drawn, {}, sensor, LIKE.get(sensor, sensor)), seed, world)
    nominal = [recording.simulator.base_from_lidar(side, nominal=True) for side in SIDES]
    clouds = dict(zip(SIDES, map(list, zip(*recording.pairs(FRAMES), strict=True)), strict=True))
    rig = cal.Rig(*nominal, sensor=recording.sensor)
    return Case(clouds, [recording.right_to_left], rig, False, elsewhere)


def read(folder: Path, sets: list[str] | None) -> None:
    """Read the recordings of single lidars at rest. Raises `InputError` if there are none."""
    STILL[:] = [one for one in recordings(folder, sets) if one.still and len(next(iter(one.clouds.values()))) > 1]
    if not STILL:
        raise InputError(f"--data {folder}: holds no recording of a lidar at rest")


def _hand_over(recordings: list[Recorded]) -> None:
    STILL[:] = recordings


def _real(seed: int) -> Case:
    """Return scans of a real lidar against others of the same one, turned about its axis, from a guess 1 deg and 1 cm
    off, with its sensor file or without."""
    recording = STILL[seed % len(STILL)]
    (frames,), (sensor,) = recording.clouds.values(), recording.sensors
    pairs = [
        turned(recording.name, "scan", frames[number], frames[number + 1], sensor, seed)
        for number in range(0, min(len(frames) - 1, 2 * FRAMES), 2)
    ]
    clouds = {side: [_with_fields(pair.clouds[0][n][0]) for pair in pairs] for n, side in enumerate(SIDES)}
    known = sensor is not None and seed // len(STILL) % 2 == 0
    start = exp(drawn_twist(np.random.default_rng(seed), *GUESSES["1 deg 1 cm"])) @ pairs[0].guess
    rig = cal.Rig(np.eye(4), start, sensor=load_sensor(sensor) if known else None, body=NO_BODY)
    return Case(clouds, [pairs[0].guess], rig, True, lambda: _real(seed + 7 + len(STILL) // 2))


def _with_fields(cloud: np.ndarray) -> np.ndarray:
    """Return the returns of a cloud as a driver publishes them; rings and intensities 0 where there are none."""
    found = np.zeros(len(cloud), [(name, np.float32) for name in ("x", "y", "z", "intensity")] + [("ring", np.uint16)])
    for name in set(found.dtype.names) & set(cloud.dtype.names):
        found[name] = cloud[name]
    return found[ranges_of(found) > 0.1]


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
    squared = min(chi_square(truth, found.left_from_right, found.covariance) for truth in case.truths)
    distance, angle = min(error(truth, found.left_from_right) for truth in case.truths)
    codes = " ".join(finding.code for finding in found.findings)
    off = f"{where}: {1e3 * distance:.2f} mm {np.degrees(angle):.3f} deg, chi2 {squared:.0f}; {codes}"
    if not found.accepted:
        return Verdict(edit, "needless" if sound else "refused", off)
    return Verdict(edit, "wrong" if squared > LIMIT else "right", off)


def drawn_cases(args: argparse.Namespace) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Yield so many cases: kind, seed and the edits' names, each edit as often as any other."""
    names = [name for name in EDITS if not args.edits or any(word in name for word in args.edits)]
    kinds = args.kinds or list(KINDS)
    for number in range(args.cases):
        random, seed = np.random.default_rng([args.first_seed, number]), args.first_seed + number
        chosen = [names[number % len(names)]]
        if number % SHARES == SHARES - 1 and not args.edits:
            chosen.append(str(random.choice([name for name in names if name != chosen[0]])))
        yield kinds[(number // len(names)) % len(kinds)], seed, tuple(chosen)


def main() -> int:
    """Print a row per edit; return 1 if something was accepted and wrong, or ended in a traceback."""
    parser = command.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--first-seed", type=int, default=9001, help="seeds below 9001 were used while developing")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, help=f"default: {' '.join(KINDS)}")
    parser.add_argument("--data", type=Path, help="edit real recordings in this folder (docs/real_data.md) instead")
    parser.add_argument("--sets", nargs="+", help="with --data: only these sets")
    parser.add_argument("--edits", nargs="+", default=[], metavar="WORDS", help="only those with one of these words")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    if args.data:
        only_with(args, ["kinds"], "simulated recordings, not with --data,")
        read(args.data, args.sets)
        args.kinds = [REAL]
    else:
        only_with(args, ["sets"], "--data")
    with ProcessPoolExecutor(args.jobs, initializer=_hand_over, initargs=(list(STILL),)) as pool:
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
