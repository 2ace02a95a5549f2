"""How exactly the lidars are aligned: ours and the published method on the same data, over scenes and seeds.

    python benchmarks/alignment.py [--quick] [--seeds 20] [--first-seed 1001] [--row NAME] [--out out/benchmarks]

Prints the tables of docs/accuracy.md, and writes them with a plot and all single results into the folder. Every seed
has mount errors of its own (to 5 mm and 1 deg along and about each axis). Takes about an hour; --quick a few minutes.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from cramer_rao import alignment_bound
from effects import ALIGNMENT_FRAMES, Comparison, Effect, Recording, add_options, aligned, chosen, run_effects
from error_plot import Quantity, plot_errors
from tqdm import tqdm

from stretch_sim_cal import command
from stretch_sim_cal.calibration.methods import alignment_method
from stretch_sim_cal.calibration.published import PublishedAlignment
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.files import write_text
from stretch_sim_cal.geometry.transforms import error, exp, from_xyz_rpy, inverse, log
from stretch_sim_cal.sensor.sensor import DEFAULT_SENSOR, load_sensor
from stretch_sim_cal.sensor.unit import UnitSpread
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup


@dataclass(frozen=True)
class Row:
    """One line of a table. `guess_off` is how far (m, rad) the first guess is from the description; `anywhere` puts the
    robot to another place in every seed; `biases` are how far (m, one sigma) channels, and whole lidars, read wrong."""

    name: str
    world: str = "furnished_room"
    frames: int = 20
    range_noise: float = 0.01
    guess_off: tuple[float, float] = (0.0, 0.0)
    sensor: str = DEFAULT_SENSOR
    anywhere: bool = False
    biases: tuple[float, float] = (0.0, 0.0)


ROWS = (
    Row("furnished room"),
    Row("furnished room, the robot anywhere in it", anywhere=True),
    Row("furnished room, 1 frame", frames=1),
    Row("furnished room, 5 frames", frames=5),
    Row("furnished room, 100 frames", frames=100),
    Row("furnished room, noise 2 cm", range_noise=0.02),
    Row("furnished room, noise 5 mm", range_noise=0.005),
    Row("furnished room, first guess 10 cm 10 deg off", guess_off=(0.1, np.radians(10))),
    Row("furnished room, first guess 30 cm 30 deg off", guess_off=(0.3, np.radians(30))),
    Row("furnished room, channels 3 mm, lidars 2 mm biased", biases=(0.003, 0.002)),
    Row("furnished room, a sixth of the rays", sensor="jt128_sparse"),
    Row("tables, platform", world="tables"),
    Row("hall 12 m wide", world="empty_hall"),
    Row("uneven floor", world="uneven"),
)
# Scenes that do not say how the lidars stand to each other.
HOPELESS = (
    Row("long corridor", world="long_corridor"),
    Row("single wall", world="single_wall"),
    Row("open field", world="open_field"),
    Row("round room", world="round_room"),
)
QUANTITIES = (
    Quantity("translation_mm", "translation error / mm", (0.15, 0.4)),
    Quantity("rotation_deg", "rotation error / deg", (0.003, 0.008)),
)
QUICK = ("furnished room", "furnished room, 5 frames", "tables, platform")


def main() -> int:
    """Run the rows, print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three seeds, and only the first few kinds of rows")
    parser.add_argument("--seeds", type=int, help="so many (default: 20, with --effects 5)")
    parser.add_argument("--first-seed", type=int, default=1001, help="seeds below 1000 were used while developing")
    names = [row.name for row in (*ROWS, *HOPELESS)]
    parser.add_argument("--row", action="append", choices=names, help="only this one; repeatable")
    parser.add_argument("--no-memory", action="store_true", help="do not measure memory, which takes 220 frames")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--memory", type=int, metavar="FRAMES", help="only print this process's peak memory in MB")
    add_options(parser)
    args = parser.parse_args()
    if args.memory:
        print(peak_memory(args.memory))
        return 0
    if args.effects is not None:
        seeds = range(args.first_seed, args.first_seed + (args.seeds or 5))
        run_effects([EFFECTS_TABLE], chosen(args.effects, args.sparse), seeds, args.out)
        return 0
    names = args.row or (QUICK if args.quick else names)
    rows = [row for row in ROWS if row.name in names]
    hopeless = [row for row in HOPELESS if row.name in names or args.quick]
    seeds = range(args.first_seed, args.first_seed + (3 if args.quick else args.seeds or 20))
    few = seeds[: max(len(seeds) // 4, 1)]
    jobs = [(row, seed) for row in rows for seed in seeds] + [(row, seed) for row in hopeless for seed in few]
    results: dict[str, list[dict]] = {row.name: [] for row in (*rows, *hopeless)}
    for row, seed in tqdm(jobs, unit="alignment", disable=not sys.stderr.isatty()):
        results[row.name].append(compare(row, seed))
    accurate = {row.name: results[row.name] for row in rows}
    tables = [accuracy_table(accurate, seeds)]
    if hopeless:
        tables.append(refusal_table({row.name: results[row.name] for row in hopeless}, few))
    if not args.no_memory:
        tables.append(memory_line((20,) if args.quick else (20, 200)))
    tables = "\n\n".join(tables)
    print(tables)
    write_text(args.out / "alignment.md", tables + "\n")
    write_text(
        args.out / "alignment.json", json.dumps({"rows": [asdict(row) for row in rows], "results": results}, indent=1)
    )
    plot_errors(accurate, QUANTITIES, args.out / "alignment.png")
    return 0


def compare(row: Row, seed: int) -> dict:
    """Return the errors of both methods on one simulated recording."""
    random = np.random.default_rng(seed)
    left_error, right_error = (
        PoseError(tuple(random.uniform(-0.005, 0.005, 3)), tuple(np.radians(random.uniform(-1, 1, 3))))
        for _ in range(2)
    )
    setup = SimulationSetup(row.world, row.sensor, seed, left_error, right_error)
    simulator = EmbeddedSimulator(setup, replace(load_sensor(row.sensor), range_noise=row.range_noise))
    truth = inverse(simulator.base_from_lidar("left")) @ simulator.base_from_lidar("right")
    base_from_left = simulator.base_from_lidar("left", nominal=True)
    described = inverse(base_from_left) @ simulator.base_from_lidar("right", nominal=True)
    guess = exp(np.concatenate([size * _direction(random) for size in row.guess_off])) @ described
    if row.anywhere:
        x, y = random.uniform(-0.5, 0.5, 2)
        simulator.move_base(from_xyz_rpy((x, y, 0.0), (0.0, 0.0, random.uniform(-np.pi, np.pi))))
    biases = (
        random.normal(size=(2, simulator.sensor.num_channels)) * row.biases[0]
        + random.normal(size=(2, 1)) * row.biases[1]
    )

    # The sensor as it is: ideal, but for the biases.
    spread = UnitSpread(channel_range=row.biases[0], range_offset=row.biases[1])
    described = replace(simulator.sensor, spread=spread)
    ours, our_seconds = timed(
        alignment_method()(guess, AlignmentSettings(base_from_left=base_from_left, sensor=described)),
        clouds(simulator, row.frames, biases),
    )
    published, published_seconds = timed(PublishedAlignment(guess), clouds(simulator, row.frames, biases))
    twist = log(truth @ inverse(ours.right_to_left))
    return {
        "seed": seed,
        "ours": errors(truth, ours.right_to_left) | {"cpu_s": our_seconds, "refusals": ours.refusals},
        "published": errors(truth, published.right_to_left) | {"cpu_s": published_seconds},
        "normalised_error_squared": float(twist @ np.linalg.solve(ours.covariance, twist)) if ours.accepted else None,
    }


def compare_under(effect: Effect, seed: int) -> dict:
    """Return the errors of both methods on one recording of lidars with an effect."""
    recording, found = Recording(effect, seed), aligned(effect, seed)
    truth = recording.right_to_left
    twists = {name: log(truth @ inverse(result.right_to_left)) for name, (result, _) in found.items()}
    bounds = (alignment_bound(recording, ALIGNMENT_FRAMES, whole) for whole in (False, True))
    return {
        "errors": {
            name: errors(truth, result.right_to_left) | {"cpu_s": seconds} for name, (result, seconds) in found.items()
        },
        "nees": {
            name: float(twists[name] @ np.linalg.solve(result.covariance, twists[name])) / 6
            for name, (result, _) in found.items()
        },
        "standard_deviations": np.sqrt(np.diag(found["ours"][0].covariance)).tolist(),
        "bounds": [
            {"translation_mm": 1e3 * rms(bound[:3, :3]), "rotation_deg": float(np.degrees(rms(bound[3:, 3:])))}
            for bound in bounds
        ],
        "refusals": {name: result.refusals for name, (result, _) in found.items()},
        "warnings": found["ours"][0].warnings,
    }  # fmt: skip


EFFECTS_TABLE = Comparison(
    "alignment_effects", compare_under, {"translation_mm": "translation, mm", "rotation_deg": "rotation, deg"}
)


def rms(covariance: np.ndarray) -> float:
    """Return the root of the expected squared length of a vector with this covariance."""
    return float(np.sqrt(np.trace(covariance)))


def _direction(random: np.random.Generator) -> np.ndarray:
    direction = random.normal(size=3)
    return direction / np.linalg.norm(direction)


def clouds(simulator: EmbeddedSimulator, count: int, biases: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of clouds (N, 3), the ranges too long by `biases` (2, channels) in m."""
    for tick in range(count):
        pair = []
        for side, name in enumerate(("left", "right")):
            scan = simulator.scan(name, tick)
            points = xyz(scan)
            longer = biases[side, scan["ring"]] / np.linalg.norm(points, axis=1)
            pair.append(points * (1.0 + longer[:, None]))
        yield tuple(pair)


def timed(method, pairs) -> tuple:
    """Return what a method answers to the pairs, and the CPU time it took in s (without making the pairs)."""
    seconds = 0.0
    for left, right in pairs:
        start = time.process_time()
        method.add(left, right)
        seconds += time.process_time() - start
    start = time.process_time()
    return method.solve(), seconds + time.process_time() - start


def errors(truth: np.ndarray, estimate: np.ndarray) -> dict[str, float]:
    """Return translation error in mm and rotation error in deg."""
    translation, rotation = error(truth, estimate)
    return {"translation_mm": 1e3 * translation, "rotation_deg": float(np.degrees(rotation))}


def peak_memory(frames: int) -> int:
    """Return this process's peak memory in MB after aligning so many frames, simulator and libraries included."""
    simulator = EmbeddedSimulator(SimulationSetup())
    method = alignment_method()(inverse(simulator.base_from_lidar("left")) @ simulator.base_from_lidar("right"), None)
    timed(method, simulator.point_pairs(frames))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def memory_line(counts: tuple[int, ...]) -> str:
    """Return a sentence about the peak memory of a process of its own per number of frames."""
    script = [sys.executable, __file__, "--memory"]
    found = [(count, subprocess.check_output([*script, str(count)], text=True).strip()) for count in counts]
    return (
        "Peak memory, simulator and libraries included: " + ", ".join(f"{mb} MB ({n} frames)" for n, mb in found) + "."
    )


def accuracy_table(results: dict[str, list[dict]], seeds: range) -> str:
    """Return the table of errors as Markdown; what was refused counts as well."""
    lines = [
        f"Seeds {seeds.start} to {seeds.stop - 1}; translation in mm, rotation in deg: median / 95th percentile.",
        "",
        "| scene | translation, ours | published | rotation, ours | published | refused | NEES (6 is ideal) "
        "| CPU s, ours | published |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, runs in results.items():
        cells = []
        for key, digits in (("translation_mm", 3), ("rotation_deg", 4)):
            for method in ("ours", "published"):
                values = [run[method][key] for run in runs if method == "published" or not run["ours"]["refusals"]]
                both = (np.median(values), np.percentile(values, 95)) if values else (np.nan, np.nan)
                cells.append(f"{both[0]:.{digits}f} / {both[1]:.{digits}f}")
        nees = [run["normalised_error_squared"] for run in runs if run["normalised_error_squared"] is not None]
        refused = sum(bool(run["ours"]["refusals"]) for run in runs)
        seconds = [np.median([run[method]["cpu_s"] for run in runs]) for method in ("ours", "published")]
        honesty = f"{np.mean(nees):.1f}" if nees else "-"
        lines.append(f"| {name} | {' | '.join(cells)} | {refused} | {honesty} | {seconds[0]:.1f} | {seconds[1]:.1f} |")
    return "\n".join(lines)


def refusal_table(results: dict[str, list[dict]], seeds: range) -> str:
    """Return the table of the scenes that do not determine the transform as Markdown."""
    lines = [
        "| scene | ours refuses | saying | published answers all the same, off by |",
        "|---|---|---|---|",
    ]
    for name, runs in results.items():
        refused = [run["ours"]["refusals"] for run in runs if run["ours"]["refusals"]]
        said = "; ".join(sentence.split(":")[0] for sentence in refused[0]) if refused else "-"
        off = (
            max(run["published"]["translation_mm"] for run in runs),
            max(run["published"]["rotation_deg"] for run in runs),
        )
        lines.append(
            f"| {name} | {len(refused)} of {len(seeds)} | {said} | {off[0]:.0f} mm, {off[1]:.1f} deg at most |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(command.run(main))
