"""How exactly the lidars are aligned: ours and the published method on the same data, over scenes and seeds.

    python benchmarks/alignment.py [--seeds 20] [--first-seed 1001] [--out out/benchmarks]

Prints the table of docs/accuracy.md, and writes it with a plot and all single results into the folder. Every seed has
mount errors of its own (to 5 mm and 1 deg along and about each axis).
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from published.alignment import PublishedAlignment
from tqdm import tqdm

from stretch_sim_cal import command
from stretch_sim_cal.calibration.alignment_settings import AlignmentSettings
from stretch_sim_cal.calibration.methods import alignment_method
from stretch_sim_cal.files import write_text
from stretch_sim_cal.geometry.transforms import error, exp, inverse, log
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.sensor import load_sensor
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup


@dataclass(frozen=True)
class Row:
    """One line of the table; `guess_off` is how far (m, rad) the first guess is from the description."""

    name: str
    world: str = "furnished_room"
    frames: int = 20
    range_noise: float = 0.01
    guess_off: tuple[float, float] = (0.0, 0.0)


ROWS = (
    Row("furnished room"),
    Row("furnished room, 5 frames", frames=5),
    Row("furnished room, noise 2 cm", range_noise=0.02),
    Row("furnished room, first guess 10 cm 10 deg off", guess_off=(0.1, np.radians(10))),
    Row("tables, platform", world="tables"),
    Row("empty hall", world="empty_hall"),
)


def main() -> int:
    """Run the rows, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1001, help="seeds below 1000 were used while developing")
    parser.add_argument("--rows", type=int, default=len(ROWS), help="only the first so many rows")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    args = parser.parse_args()
    rows, seeds = ROWS[: args.rows], range(args.first_seed, args.first_seed + args.seeds)
    results = {row.name: [] for row in rows}
    with tqdm(total=len(rows) * len(seeds), unit="alignment", disable=not sys.stderr.isatty()) as progress:
        for row in rows:
            for seed in seeds:
                results[row.name].append(compare(row, seed))
                progress.update()
    table = format_table(results, seeds)
    print(table)
    write_text(args.out / "alignment.md", table + "\n")
    write_text(args.out / "alignment.json", json.dumps(results, indent=1))
    plot(results, args.out / "alignment.png")
    return 0


def compare(row: Row, seed: int) -> dict:
    """Return the errors of both methods on one simulated recording."""
    random = np.random.default_rng(seed)
    left_error, right_error = (
        PoseError(tuple(random.uniform(-0.005, 0.005, 3)), tuple(np.radians(random.uniform(-1, 1, 3)))) for _ in range(2)
    )
    setup = SimulationSetup(row.world, "jt128", seed, left_error, right_error)
    simulator = EmbeddedSimulator(setup, replace(load_sensor("jt128"), range_noise=row.range_noise))
    truth = inverse(simulator.base_from_lidar("left")) @ simulator.base_from_lidar("right")
    base_from_left = simulator.base_from_lidar("left", nominal=True)
    described = inverse(base_from_left) @ simulator.base_from_lidar("right", nominal=True)
    guess = exp(np.concatenate([size * _direction(random) for size in row.guess_off])) @ described

    pairs = list(simulator.point_pairs(row.frames))
    ours, our_seconds = timed(alignment_method()(guess, AlignmentSettings(base_from_left=base_from_left)), pairs)
    published, published_seconds = timed(PublishedAlignment(guess), pairs)
    twist = log(truth @ inverse(ours.right_to_left))
    return {
        "seed": seed,
        "ours": errors(truth, ours.right_to_left) | {"cpu_s": our_seconds, "refusals": ours.refusals},
        "published": errors(truth, published) | {"cpu_s": published_seconds},
        "normalised_error_squared": float(twist @ np.linalg.solve(ours.covariance, twist)) if ours.accepted else None,
    }


def _direction(random: np.random.Generator) -> np.ndarray:
    direction = random.normal(size=3)
    return direction / np.linalg.norm(direction)


def timed(method, pairs):
    """Return what a method answers to the pairs, and the CPU time it took in s."""
    start = time.process_time()
    for left, right in pairs:
        method.add(left, right)
    return method.solve(), time.process_time() - start


def errors(truth: np.ndarray, estimate: np.ndarray) -> dict[str, float]:
    """Return translation error in mm and rotation error in deg."""
    translation, rotation = error(truth, estimate)
    return {"translation_mm": 1e3 * translation, "rotation_deg": float(np.degrees(rotation))}


def format_table(results: dict[str, list[dict]], seeds: range) -> str:
    """Return the table as Markdown."""
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
                values = [run[method][key] for run in runs]
                cells.append(f"{np.median(values):.{digits}f} / {np.percentile(values, 95):.{digits}f}")
        nees = [run["normalised_error_squared"] for run in runs if run["normalised_error_squared"] is not None]
        refused = sum(bool(run["ours"]["refusals"]) for run in runs)
        seconds = [np.median([run[method]["cpu_s"] for run in runs]) for method in ("ours", "published")]
        honesty = f"{np.mean(nees):.1f}" if nees else "-"
        lines.append(f"| {name} | {' | '.join(cells)} | {refused} | {honesty} | {seconds[0]:.2f} | {seconds[1]:.2f} |")
    return "\n".join(lines)


def plot(results: dict[str, list[dict]], path: Path) -> None:
    """Draw every single error of both methods on logarithmic axes, row by row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
    labels = {"translation_mm": "translation error / mm", "rotation_deg": "rotation error / deg"}
    for axis, (key, label) in zip(axes, labels.items(), strict=True):
        for line, runs in enumerate(results.values()):
            for shift, method, colour in ((-0.15, "ours", "tab:blue"), (0.15, "published", "tab:orange")):
                values = [run[method][key] for run in runs]
                height = np.full(len(values), line + shift)
                axis.plot(values, height, ".", color=colour, alpha=0.6, label=None if line else method)
        axis.set(xscale="log", xlabel=label)
        axis.grid(True, axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(results)), list(results))
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(command.run(main))
