"""How well units of lidars are identified: drawn units against what their recordings say of them.

    python benchmarks/sensor.py [--units 20] [--first-seed 2001] [--turns 0 40 80 120] [--frames 10] [--no-twin]

Two units a seed: the robot stands in the furnished room and is turned in place between recordings. Of the
parameters that are said to be determined, at least 95 % have to lie within three standard deviations of the true
ones. With the unit files the simulator then has the same two units again, and from its recordings they are
identified once more. Takes ten minutes.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from comparing import chi_square, mount_errors, right_to_left
from tqdm import tqdm

from stretch_sim_cal import command
from stretch_sim_cal.calibration.identification import Identification, StationScans, identify
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.files import write_text
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy
from stretch_sim_cal.sensor.signature import Observer
from stretch_sim_cal.sensor.unit import CHANNEL_KINDS, SCALARS, ErrorModel
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

WITHIN = 3.0
WANTED = 0.95


def main() -> int:
    """Identify all units, print and write the table; exit code 1 if too few parameters are recovered."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=2001)
    parser.add_argument("--sensor", default="jt128_sparse_real")
    parser.add_argument("--turns", type=float, nargs="+", default=[0.0, 40.0, 80.0, 120.0], metavar="DEG")
    parser.add_argument("--frames", type=int, default=10, help="pairs of scans per recording")
    parser.add_argument("--no-twin", action="store_true", help="do not identify the units of the unit files again")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + (args.units + 1) // 2)
    drawn, twins, alignments = [], [], []
    for seed in tqdm(seeds, unit="pair of units", disable=not sys.stderr.isatty()):
        random = np.random.default_rng(seed)
        setup = SimulationSetup("furnished_room", args.sensor, seed, mount_errors(random))
        simulator = EmbeddedSimulator(setup)
        start = time.process_time()
        result = identified(simulator, args.turns, args.frames)
        seconds = time.process_time() - start
        drawn += [recovered(result, side, simulator) for side in (0, 1)]
        squared = chi_square(right_to_left(simulator), result.left_from_right, result.covariance)
        alignments.append((squared / 6, seconds))
        if not args.no_twin:
            twins += again(result, args, seed)
    titles = {"Drawn units": drawn, "Units of the unit files, identified again": twins}
    table = "\n\n".join(summary(title, units) for title, units in titles.items() if units)
    squared, seconds = np.mean(alignments, axis=0)
    table += f"\n\nLidar to lidar: NEES/6 {squared:.2f}. CPU {seconds:.0f} s a pair of units, scans included."
    print(table)
    write_text(args.out / "sensor.md", table + "\n")
    write_text(args.out / "sensor.json", json.dumps({"drawn": drawn, "twins": twins}))
    return 0 if min(share(rows) for rows in (drawn, twins) if rows) >= WANTED else 1


def identified(simulator: EmbeddedSimulator, turns: list[float], frames: int) -> Identification:
    """Return what is found from a recording at each of the robot's turns (deg)."""
    stations = []
    for tick, turn in zip(itertools.count(0, frames), turns, strict=False):
        simulator.move_base(from_xyz_rpy((0.0, 0.0, 0.0), (0.0, 0.0, np.radians(turn))))
        scans = {device: [simulator.scan(device, tick + k) for k in range(frames)] for device in SIDES}
        stations.append(station(simulator, scans, tick))
    return identify(stations, right_to_left(simulator, nominal=True))


def station(simulator: EmbeddedSimulator, scans: dict[str, list[np.ndarray]], first: int) -> StationScans:
    """Return the scans of a standing place, those of both lidars from tick `first` on."""
    signatures = []
    for device, own in scans.items():
        observer = Observer()
        for number, scan in enumerate(own):
            observer.add(scan, simulator.start_time(device, first + number))
        signatures.append(observer.signature([simulator.sensor]))
    settings = AlignmentSettings(base_from_left=simulator.base_from_lidar("left", nominal=True))
    found = StationScans(tuple(signatures), settings)
    for left, right in zip(*scans.values(), strict=True):
        found.add(left, right)
    return found


def again(result: Identification, args: argparse.Namespace, seed: int) -> list[dict]:
    """Return how well the units of the unit files are recovered from a simulation of them."""
    with tempfile.TemporaryDirectory() as folder:
        units = {device: Path(folder) / f"unit_{device}.yaml" for device in SIDES}
        for side, file in enumerate(units.values()):
            result.save(file, side)
        twin = EmbeddedSimulator(SimulationSetup("furnished_room", args.sensor, seed + 10_000, units=units))
        found = identified(twin, args.turns, args.frames)
    return [recovered(found, side, twin) for side in (0, 1)]


def recovered(result: Identification, side: int, simulator: EmbeddedSimulator) -> dict:
    """Return, by kind of parameter: how many a unit has, how many are determined, how many of them lie within
    three standard deviations of the truth, the sum of their squared errors over variances, and their
    deviations over the prior's."""
    true, unit, model = simulator.lidar(SIDES[side]).unit.values, result.units[side], result.models[side]
    determined, rows = result.determined(side), {}
    prior = np.sqrt(np.diag(model.prior_covariance()))
    for kind, own in kinds(model).items():
        chosen = determined[own]
        errors, deviations = (unit.values - true)[own][chosen], unit.standard_deviations[own][chosen]
        known = np.abs(errors) <= WITHIN * deviations + 1e-12  # what was decided has no deviation
        squares = (errors[deviations > 0] / deviations[deviations > 0]) ** 2
        rows[kind] = {
            "all": int(np.count_nonzero(prior[own])), "determined": int(chosen.sum()), "within": int(known.sum()),
            "squares": squares.tolist(), "share": (deviations / prior[own][chosen]).tolist(),
        }  # fmt: skip
    return rows


def kinds(model: ErrorModel) -> dict[str, slice | list[int]]:
    """Return where each scalar and each kind of channels' errors lies."""
    scalars = {}
    for index, name in enumerate(SCALARS):
        scalars.setdefault("azimuth harmonics" if name.startswith("azimuth") else name, []).append(index)
    return scalars | {kind: model.of_kind(kind) for kind in CHANNEL_KINDS}


def share(units: list[dict]) -> float:
    """Return the share of determined parameters that lie within three standard deviations."""
    rows = [row for unit in units for row in unit.values()]
    return sum(row["within"] for row in rows) / max(sum(row["determined"] for row in rows), 1)


def summary(title: str, units: list[dict]) -> str:
    lines = [
        f"{title}: {len(units)} units.", "",
        "| parameter | determined | within 3 standard deviations | NEES | standard deviation, share of the prior's |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for kind in units[0]:
        rows = [unit[kind] for unit in units]
        if not (total := sum(row["all"] for row in rows)):
            continue
        determined, within = (sum(row[key] for row in rows) for key in ("determined", "within"))
        squares, shares = (np.concatenate([row[key] for row in rows]) for key in ("squares", "share"))
        nees = f"{squares.mean():.2f}" if len(squares) else "-"
        size = f"{np.median(shares):.2f}" if len(shares) else "-"
        lines.append(f"| {kind.replace('_', ' ')} | {determined} of {total} | {within} | {nees} | {size} |")
    determined = sum(row["determined"] for unit in units for row in unit.values())
    lines.append(f"| all | {determined} | {100 * share(units):.2f} % | | |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(command.run(main))
