"""Real recordings decide: ours beside one GICP and the published method, on what users can fetch.

    python benchmarks/real_data.py --data DIR [--sets nebula ouster] [--guesses 2] [--jobs 2] [--json FILE]

DIR holds clones of the public repositories (list: docs/real_data.md). Every recording gives cases:
    scan      one lidar that stands still: one scan from another, turned about its axis by a known angle
    columns   the same, every second pair of firings of one scan from the others of another scan
    rings     the same, every second ring of one scan from the others of another scan: no beam in common, as of two
              lidars; of lidars with 32 rings or more
    halves    two lidars: the result of the first half of the scans from that of the second half
    answer    two lidars whose transform is known, to what is said of it
Each starts from guesses that are off by 1 deg and 1 cm, and by 5 deg and 20 cm, in directions drawn by seed. Ours runs
with the sensor file that fits, if there is one, and with an unknown sensor. Printed are, the worst first, how many were
refused, median and worst error of what was accepted, and NEES/6: the squared error in units of what the result (and the
other half, and the known answer) says of itself, over six degrees of freedom; 1 is honest, above 3 overconfident.
"""

import argparse
import json
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import small_gicp
from comparing import chi_square, drawn_twist
from recordings import SETS, Answer, Recorded, columns, rings
from scipy.spatial.transform import Rotation

import stretch_sim_cal as cal
from stretch_sim_cal import command
from stretch_sim_cal.calibration.published import PublishedAlignment
from stretch_sim_cal.errors import InputError, StretchSimCalError
from stretch_sim_cal.geometry.transforms import error, exp, from_rotation_translation
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.sensor.sensor import load_sensor

GUESSES = {"1 deg 1 cm": (0.01, np.radians(1.0)), "5 deg 20 cm": (0.2, np.radians(5.0))}  # m, rad
# One GICP: voxels, and correspondences from wide to narrow (m).
GICP_VOXEL, GICP_WIDTHS = 0.1, (1.0, 0.4)
# Pairs of scans, each with the one after it, that are taken of a lidar which stands still, and scans of each lidar that
# a half has at most.
MAX_PAIRS, MAX_HALF = 10, 5
OURS, UNKNOWN, GICP, PUBLISHED = "ours", "ours, sensor unknown", "one GICP", "published"
OVERCONFIDENT = 3.0
FIELDS = ("x", "y", "z", "intensity", "ring")
# What even and odd rings of one lidar differ in (m, rad): the hall's azimuths by 0.065 deg, its ranges by 3 mm.
OF_RINGS = (0.002, np.radians(0.04))
# A body that no return is on: these lidars are on no robot that is known.
NO_BODY = {"body_radius": 1e-3, "body_height": 1e-3}


@dataclass(frozen=True)
class Case:
    """Clouds of two lidars, once, or twice for halves; the transforms (4, 4) where the search begins; what is known."""

    name: str
    kind: str
    clouds: tuple[tuple[list[np.ndarray], list[np.ndarray]], ...]
    sensors: tuple[str | None, ...]
    guess: np.ndarray
    answer: Answer | None


@dataclass(frozen=True)
class Outcome:
    """What a method made of a case: errors in m and rad, NEES/6 (None without a covariance), reasons of a refusal."""

    case: str
    kind: str
    guess: str
    method: str
    distance: float
    angle: float
    nees: float | None
    refused: tuple[str, ...]


def main() -> int:
    """Run all cases of the sets, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of clones")
    parser.add_argument("--sets", nargs="+", help=f"by default all that are there: {', '.join(SETS)}")
    parser.add_argument("--guesses", type=int, default=1, help="guesses of each size for every case (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="write what every method made of every case into this file")
    args = parser.parse_args()
    outcomes = []
    with ProcessPoolExecutor(args.jobs) as pool:
        work = [
            pool.submit(run, case, number, seed)
            for case in cases(args.data, args.sets)
            for number in range(len(GUESSES))
            for seed in range(args.guesses)
        ]
        for done in work:
            outcomes += done.result()
    if args.json:
        args.json.write_text(json.dumps([vars(one) for one in outcomes], indent=1))
    print(tables(outcomes))
    return 0


# Cases.


def cases(folder: Path, sets: list[str] | None) -> Iterator[Case]:
    """Yield the cases of the recordings in a folder. Raises `InputError` as of `recordings`."""
    for recorded in recordings(folder, sets):
        yield from (cases_of_one if recorded.still else cases_of_two)(recorded)


def recordings(folder: Path, sets: list[str] | None) -> Iterator[Recorded]:
    """Yield the recordings in a folder. Raises `InputError` if it has none, or one cannot be read."""
    if not folder.is_dir():
        raise InputError(f"--data {folder}: is not a folder")
    if unknown := set(sets or ()) - set(SETS):
        raise InputError(f"--sets {' '.join(sorted(unknown))}: no such set; there are: {', '.join(SETS)}")
    read, missing = 0, []
    for name in sets or SETS:
        try:
            for recorded in SETS[name](folder):
                read += 1
                yield recorded
        except InputError as problem:
            if sets:
                raise
            missing.append(f"{name}: {problem}")
    if not read:
        raise InputError(f"--data {folder}: holds no recording; {missing[0]}")
    for line in missing:
        print(f"left out: {line}", file=sys.stderr)


def cases_of_one(recorded: Recorded) -> Iterator[Case]:
    """Yield scan from scan, columns from columns, and rings from rings, of a lidar that stands still."""
    (frames,), (sensor,) = recorded.clouds.values(), recorded.sensors
    for first in range(min(len(frames), MAX_PAIRS)):
        second = (first + 1) % len(frames)
        if first < second or (len(frames) > 2 and first != second):
            yield turned(recorded.name, "scan", frames[first], frames[second], sensor, first)
        parts = [columns(frames[each]) for each in (first, second)]
        if parts[0] is not None and parts[1] is not None:
            left, right = frames[first][parts[0] // 2 % 2 == 0], frames[second][parts[1] // 2 % 2 == 1]
            yield turned(recorded.name, "columns", left, right, sensor, first)
        parts = [rings(frames[each]) for each in (first, second)]
        if parts[0] is not None and parts[1] is not None:
            left, right = frames[first][parts[0] % 2 == 0], frames[second][parts[1] % 2 == 1]
            # No sensor file is of half a lidar.
            case = turned(recorded.name, "rings", left, right, None, first)
            yield replace(case, answer=Answer(case.guess, *OF_RINGS))


def turned(name: str, kind: str, left: np.ndarray, right: np.ndarray, sensor: str | None, number: int) -> Case:
    """Return a case of two scans from one place. The second one is turned about the lidar's axis, which leaves it a
    scan of such a lidar, and leaves no grid of one on that of the other."""
    yaw = _rng(name, kind, number).uniform(-np.pi, np.pi)
    turn = from_rotation_translation(Rotation.from_euler("z", yaw).as_matrix(), np.zeros(3))
    turned = right.copy()
    turned["x"] = np.cos(yaw) * right["x"] + np.sin(yaw) * right["y"]
    turned["y"] = -np.sin(yaw) * right["x"] + np.cos(yaw) * right["y"]
    return Case(f"{name} {number}", kind, (([left], [turned]),), (sensor, sensor), turn, Answer(turn))


def cases_of_two(recorded: Recorded) -> Iterator[Case]:
    """Yield the halves of two lidars' scans, and all of them if the answer is known or there are no halves."""
    first, second = recorded.clouds.values()
    count = min(len(first), len(second))
    if (half := min(count // 2, MAX_HALF)) > 0:
        parts = ((first[:half], second[:half]), (first[count - half : count], second[count - half : count]))
        yield Case(recorded.name, "halves", parts, recorded.sensors, recorded.guess, None)
    if recorded.answer is not None:
        both = ((first[:count], second[:count]),)
        yield Case(recorded.name, "answer", both, recorded.sensors, recorded.guess, recorded.answer)


def _rng(*words) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(" ".join(map(str, words)).encode()))


# Methods.


def run(case: Case, number: int, seed: int) -> list[Outcome]:
    """Return what all methods make of a case from its guesses of one size."""
    size, (distance, angle) = list(GUESSES.items())[number]
    rng = _rng(case.name, case.kind, size, seed)
    starts = [exp(drawn_twist(rng, distance, angle)) @ case.guess for _ in case.clouds]
    methods = [(UNKNOWN, lambda *clouds: ours(*clouds, (None, None))), (GICP, gicp), (PUBLISHED, published)]
    if all(case.sensors):
        methods.insert(0, (OURS, lambda *clouds: ours(*clouds, case.sensors)))
    return [
        judged(case, size, name, [method(*both, start) for both, start in zip(case.clouds, starts, strict=True)])
        for name, method in methods
    ]


Found = tuple[np.ndarray, np.ndarray | None, tuple[str, ...]]
"""A transform (4, 4), its covariance (6, 6) if the method has one, and why it is refused."""


def ours(left: list[np.ndarray], right: list[np.ndarray], start: np.ndarray, sensors: tuple) -> Found:
    """Return what this package finds."""
    kinds = tuple(None if name is None else load_sensor(name) for name in sensors)
    rig = cal.Rig(np.eye(4), start, sensor=kinds, body=NO_BODY)
    clouds = [[cloud[[name for name in FIELDS if name in cloud.dtype.names]] for cloud in own] for own in (left, right)]
    try:
        found = cal.calibrate(rig, *clouds, floor=False)
    except StretchSimCalError as problem:
        return start, None, (str(problem),)
    refused = tuple(f"{one.code}: {one.sentence}" for one in found.findings if one.severity == "error")
    return found.left_from_right, found.covariance, refused


def gicp(left: list[np.ndarray], right: list[np.ndarray], start: np.ndarray) -> Found:
    """Return what one GICP of all scans together finds."""
    clouds = [np.concatenate([coordinates(cloud) for cloud in own]).astype(float) for own in (left, right)]
    for width in GICP_WIDTHS:
        start = small_gicp.align(
            *clouds, init_T_target_source=start, registration_type="GICP", downsampling_resolution=GICP_VOXEL,
            max_correspondence_distance=width, num_threads=1, max_iterations=50,
        ).T_target_source  # fmt: skip
    return start, None, ()


def published(left: list[np.ndarray], right: list[np.ndarray], start: np.ndarray) -> Found:
    """Return what the published method finds."""
    method = PublishedAlignment(start)
    for one, other in zip(left, right, strict=True):
        method.add(coordinates(one).astype(float), coordinates(other).astype(float))
    return method.solve().right_to_left, None, ()


def judged(case: Case, size: str, method: str, found: list[Found]) -> Outcome:
    """Return the error of a result from what is known, or of one half's from the other's."""
    transforms, covariances, refusals = zip(*found, strict=True)
    if case.answer is not None:
        truth, said = case.answer.first_from_other, np.zeros((6, 6))
        said[:3, :3], said[3:, 3:] = (
            std**2 * np.eye(3) for std in (case.answer.std_translation, case.answer.std_rotation)
        )
    else:
        truth, said = transforms[1], covariances[1]
    distance, angle = error(transforms[0], truth)
    nees = None
    if said is not None and covariances[0] is not None:
        nees = chi_square(truth, transforms[0], covariances[0] + said) / 6
    refused = tuple(dict.fromkeys(reason for own in refusals for reason in own))
    return Outcome(case.name, case.kind, size, method, float(distance), float(angle), nees, refused)


# Tables.


def tables(outcomes: list[Outcome]) -> str:
    """Return the tables as Markdown, the sets on which ours is worst beside the plain methods first."""
    groups: dict[tuple, list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault((one.case.split("/")[0].split(" ")[0], one.kind, one.guess), []).append(one)
    lines = [
        "| set | guess | method | cases | refused | median | worst accepted | NEES/6 median | over 3 |",
        "|---" * 9 + "|",
    ]
    for (name, kind, guess), own in sorted(groups.items(), key=lambda item: -_behind(item[1])):
        for method in (OURS, UNKNOWN, GICP, PUBLISHED):
            if some := [one for one in own if one.method == method]:
                lines.append(f"| {name}, {kind} | {guess} | {method} | {_row(some)} |")
    return "\n".join([*lines, "", *_worst(outcomes), "", *_refusals(outcomes)])


def _row(some: list[Outcome]) -> str:
    """Return the cells of one method: how many, refused, median (of all, accepted or not), worst accepted, NEES."""
    accepted = [one for one in some if not one.refused]
    nees = [one.nees for one in accepted if one.nees is not None]
    cells = [str(len(some)), str(len(some) - len(accepted)), _shown(*_medians(some))]
    cells.append(_shown(max(o.distance for o in accepted), max(o.angle for o in accepted)) if accepted else "-")
    if nees:
        cells += [f"{np.median(nees):.2f}", f"{100 * np.mean(np.array(nees) > OVERCONFIDENT):.0f} %"]
    else:
        cells += ["-", "-"]
    return " | ".join(cells)


def _medians(some: list[Outcome]) -> tuple[float, float]:
    return float(np.median([one.distance for one in some])), float(np.median([one.angle for one in some]))


def _shown(distance: float, angle: float) -> str:
    return f"{1e3 * distance:.2f} mm {np.degrees(angle):.3f} deg"


def _behind(own: list[Outcome]) -> float:
    """Return the median error of ours over that of the better of the plain methods, by the worse of mm and deg."""
    medians = {method: _medians([o for o in own if o.method == method]) for method in {o.method for o in own}}
    mine = np.array([medians[method] for method in (OURS, UNKNOWN) if method in medians]).max(axis=0)
    plain = np.array([medians[method] for method in (GICP, PUBLISHED)]).min(axis=0)
    return float(np.max(mine / np.maximum(plain, 1e-9)))


def _worst(outcomes: list[Outcome]) -> list[str]:
    """Return the ten accepted results of ours that are worst in units of what they say."""
    mine = [o for o in outcomes if o.method in (OURS, UNKNOWN) and not o.refused and o.nees is not None]
    mine.sort(key=lambda one: -(one.nees or 0.0))
    lines = ["| accepted, worst by NEES | case | guess | method | error | NEES/6 |", "|---" * 6 + "|"]
    for place, one in enumerate(mine[:10], 1):
        lines.append(
            f"| {place} | {one.case}, {one.kind} | {one.guess} | {one.method} | {_shown(one.distance, one.angle)} | "
            f"{one.nees:.1f} |"
        )
    return lines


def _refusals(outcomes: list[Outcome]) -> list[str]:
    """Return by how many refused results each code was said, and how wrong they were."""
    by_code: dict[str, list[Outcome]] = {}
    for one in outcomes:
        for code in {reason.split(":")[0] for reason in one.refused}:
            by_code.setdefault(code, []).append(one)
    lines = ["| refused for | results | median error of these |", "|---|---|---|"]
    for code, own in sorted(by_code.items(), key=lambda item: -len(item[1])):
        lines.append(f"| {code} | {len(own)} | {_shown(*_medians(own))} |")
    return lines


if __name__ == "__main__":
    sys.exit(command.run(main))
