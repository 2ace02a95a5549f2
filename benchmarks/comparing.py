"""Methods beside each other on simulated recordings: what they answer, and tables and pictures of their errors."""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from stretch_sim_cal.calibration.clouds import given_clouds
from stretch_sim_cal.calibration.methods import alignment_method
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.files import write_text
from stretch_sim_cal.geometry.transforms import SIDES, error, inverse, log
from stretch_sim_cal.sensor.sensor import Sensor, load_sensor
from stretch_sim_cal.sensor.unit import ErrorModel
from stretch_sim_cal.sensor.unit_file import write_simulated_unit
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import BaseError, PoseError, SimulationSetup

ALIGNMENT_FRAMES = 20
SMALLEST = 1e-5  # what is drawn for an error of zero
COLOURS = ("tab:blue", "tab:orange", "tab:green")
POSE = {"translation_mm": "translation, mm", "rotation_deg": "rotation, deg"}
# Puts an effect into the parameters (n,) of a unit: (values, model, 0 for left and 1 for right, random numbers).
Errors = Callable[[np.ndarray, ErrorModel, int, np.random.Generator], None]


@dataclass(frozen=True, eq=False)
class Effect:
    """One row of the tables of effects: `errors` of units of the `simulated` sensor (None: as its file says), behind a
    `driver` (corrections by the names of `Driver`); the calibration is told of its tables, and that units differ as
    those of `like`."""

    name: str
    errors: Errors | None
    driver: dict[str, bool]
    simulated: str = "jt128"
    like: str = "jt128"


def drawn(values: np.ndarray, model: ErrorModel, side: int, random: np.random.Generator) -> None:
    """Units as the sensor file says that they differ."""
    values += model.draw(random)


def mount_errors(random: np.random.Generator) -> dict[str, PoseError]:
    """Return errors of both mounts, up to 5 mm and 1 deg along and about each axis."""
    return {
        side: PoseError(tuple(random.uniform(-0.005, 0.005, 3)), tuple(np.radians(random.uniform(-1, 1, 3))))
        for side in SIDES
    }


class Recording:
    """Simulated pairs of scans of a robot whose mounts are off as `mount_errors` are, and whose base is up to 5 mm
    raised and 0.5 deg tilted."""

    def __init__(self, effect: Effect, seed: int, world: str = "furnished_room"):
        random = np.random.default_rng(seed)
        base = BaseError(random.uniform(-0.005, 0.005), *np.radians(random.uniform(-0.5, 0.5, 2)))
        self.effect, self.seed = effect, seed
        self.sensor = replace(sensor_named(effect.simulated), spread=sensor_named(effect.like).expected, unsaid=None)
        with tempfile.TemporaryDirectory() as folder:
            units = _unit_files(effect, random, Path(folder))
            setup = SimulationSetup(world, effect.simulated, seed, mount_errors(random), base, units=units)
            self.simulator = EmbeddedSimulator(setup, sensor_named(effect.simulated))
        self.pairs, self.right_to_left = self.simulator.recorded_pairs, right_to_left(self.simulator)


def right_to_left(simulator: EmbeddedSimulator, nominal: bool = False) -> np.ndarray:
    """Return the true transform (4, 4) between the lidars, or that of the description."""
    left, right = (simulator.base_from_lidar(side, nominal=nominal) for side in SIDES)
    return inverse(left) @ right


def drawn_twist(random: np.random.Generator, distance: float, angle: float) -> np.ndarray:
    """Return a twist (6,) of a length (m) and an angle (rad) in random directions."""
    directions = random.normal(size=(2, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return np.concatenate([distance * directions[0], angle * directions[1]])


def chi_square(truth: np.ndarray, estimate: np.ndarray, covariance: np.ndarray) -> float:
    """Return the squared error of a transform (4, 4) over its covariance (6, 6): 6 on average if that is right."""
    twist = log(truth @ inverse(estimate))
    return float(twist @ np.linalg.solve(covariance, twist))


sensor_named = lru_cache(load_sensor)


def _unit_files(effect: Effect, random: np.random.Generator, folder: Path) -> dict[str, Path]:
    """Write a unit of each lidar; none if the effect has none."""
    model = sensor_named(effect.simulated).error_model()
    files = {device: folder / f"{device}.yaml" for device in SIDES} if effect.errors else {}
    for side, file in enumerate(files.values()):
        values = np.zeros(model.size)
        effect.errors(values, model, side, random)
        write_simulated_unit(file, effect.simulated, model, values, driver=effect.driver)
    return files


@lru_cache(maxsize=1)
def aligned(effect: Effect, seed: int) -> dict[str, tuple[Any, float]]:
    """Return what ours and the published method answer to the first pairs of a recording, as `solved` has it. All that
    comes after the alignment starts from these."""
    recording = Recording(effect, seed)
    methods = {"ours": described(recording.simulator, recording.sensor), "published": described(recording.simulator)}
    return solved(methods, recording.pairs(ALIGNMENT_FRAMES))


def described(simulator: EmbeddedSimulator, sensor: Sensor | None = None) -> Any:
    """Return our alignment method as description and sensor file have a robot; without a sensor the published one."""
    left, method = simulator.base_from_lidar("left", nominal=True), "published" if sensor is None else "planes"
    settings = None if sensor is None else AlignmentSettings(base_from_left=left, sensor=sensor)
    return alignment_method(method)(right_to_left(simulator, nominal=True), settings)


def solved(methods: Mapping[str, Any], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> dict[str, tuple[Any, float]]:
    """Return what each method answers to the pairs, with the CPU time (s) that it took."""
    seconds = dict.fromkeys(methods, 0.0)

    def timed(name: str, call: Callable, *arguments: Any) -> Any:
        start = time.process_time()
        answer = call(*arguments)
        seconds[name] += time.process_time() - start
        return answer

    for pair in pairs:
        for name, method in methods.items():
            timed(name, method.add, *given_clouds(method, *pair))
    answers = {name: timed(name, method.solve) for name, method in methods.items()}
    return {name: (answer, seconds[name]) for name, answer in answers.items()}


def pose_errors(truth: np.ndarray, estimate: np.ndarray) -> dict[str, float]:
    translation, rotation = error(truth, estimate)
    return {"translation_mm": 1e3 * translation, "rotation_deg": float(np.degrees(rotation))}


@dataclass(frozen=True)
class Comparison:
    """A table: `compare` gives one run of a case (a row, by its `name`) and a seed, `quantities` say how its errors are
    written, by their keys; beside the median stands the quantile `most`. A run is a mapping of mappings by method,
    `ours` first: `errors` (none without a result) by the keys of `quantities`, `nees` the normalised error squared over
    its degrees of freedom, `refusals` sentences. `bounds` are two Cramer-Rao bounds of the errors (cramer_rao.py), if
    there are some. Of the quantities with `targets` (aimed at for the median, and for the most) every single error is
    drawn."""

    name: str
    compare: Callable[[Any, int], dict]
    quantities: dict[str, str]
    most: float = 1.0
    targets: dict[str, tuple[float, float]] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser, seeds: int, first_seed: int, developed: int = 1000) -> None:
    """Declare `--seeds`, `--first-seed` and `--out`; seeds below `developed` were used while developing."""
    parser.add_argument("--seeds", type=int, default=seeds, help="so many (default: %(default)s)")
    parser.add_argument(
        "--first-seed", type=int, default=first_seed,
        help=f"default: %(default)s; seeds below {developed} were used while developing",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"), help="folder (default: %(default)s)")


def seeds_of(args: argparse.Namespace) -> range:
    return range(args.first_seed, args.first_seed + args.seeds)


def run(comparisons: Sequence[Comparison], cases: Sequence[Any], seeds: range, out: Path, resume: bool = False) -> None:
    """Make and print the tables. After every run, all single runs and the tables so far are written into the folder
    `out`; what is there already is not run again if `resume` is set."""
    results: dict[str, dict[str, list[dict]]] = {}
    for comparison in comparisons:
        file = out / f"{comparison.name}.json"
        found = json.loads(file.read_text()) if resume and file.is_file() else {}
        results[comparison.name] = {case.name: found.get(case.name, []) for case in cases}
    with tqdm(total=len(comparisons) * len(cases) * len(seeds), unit="run", disable=None) as progress:
        for seed in seeds:
            for case in cases:
                for comparison in comparisons:
                    runs = results[comparison.name][case.name]
                    if all(run["seed"] != seed for run in runs):
                        runs.append({"seed": seed} | comparison.compare(case, seed))
                        own = results[comparison.name]
                        write_text(out / f"{comparison.name}.json", json.dumps(own, indent=1))
                        write_text(out / f"{comparison.name}.md", table(own, comparison) + "\n")
                    progress.update()
    print("\n\n".join(table(results[comparison.name], comparison) for comparison in comparisons))
    for comparison in comparisons:
        if comparison.targets:
            draw(results[comparison.name], comparison, out / f"{comparison.name}.png")


def table(results: dict[str, list[dict]], comparison: Comparison) -> str:
    """Return the table as Markdown: median / worst (or a percentile) of the errors, of refused results too if there are
    any."""
    quantities = comparison.quantities
    results = {name: runs for name, runs in results.items() if runs}
    everything = [run for runs in results.values() for run in runs]
    bounded = any("bounds" in run for run in everything)
    methods = list(dict.fromkeys(method for run in everything for method in run["errors"]))
    honest = [method for method in methods if any(method in run["nees"] for run in everything)]
    judging = list(dict.fromkeys(method for run in everything for method in run["refusals"]))
    heads = ["case"]
    for label in quantities.values():
        heads += [f"{label}, {methods[0]}", *methods[1:]] + (["rms over bounds"] if bounded else [])
    heads += [f"NEES / dof, {method}" for method in honest] + [f"refused, {method}" for method in judging]
    seeds = sorted({run["seed"] for run in everything})
    most = "worst" if comparison.most == 1.0 else f"{100 * comparison.most:.0f}th percentile"
    lines = [
        f"Seeds {seeds[0]} to {seeds[-1]}; errors: median / {most}"
        + (", rms error over the Cramer-Rao bounds: planes by patch / by face." if bounded else "."),
        "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"
    ]  # fmt: skip
    for name, runs in results.items():
        cells, accepted = [name], [run for run in runs if not run["refusals"]["ours"]]
        for key in quantities:
            digits = 4 if key.endswith("deg") else 3
            for method in methods:
                values = [run["errors"][method][key] for run in runs if method in run["errors"]]
                both = (np.median(values), np.quantile(values, comparison.most)) if values else ()
                cells.append(" / ".join(f"{value:.{digits}f}" for value in both) or "-")
            if bounded:
                squares = sum(run["errors"]["ours"][key] ** 2 for run in accepted)
                bounds = [sum(run["bounds"][k][key] ** 2 for run in accepted) for k in (0, 1) if accepted]
                ratios = [np.sqrt(squares / bound) for bound in bounds]
                cells.append(" / ".join(f"{ratio:.2f}" for ratio in ratios) or "-")
        for method in honest:
            values = [run["nees"][method] for run in runs if method in run["nees"] and not run["refusals"].get(method)]
            cells.append(f"{np.mean(values):.2f}" if values else "-")
        cells += [f"{sum(bool(run['refusals'].get(method)) for run in runs)} of {len(runs)}" for method in judging]
        lines.append(f"| {' | '.join(cells)} |")
    said = sorted({
        (name, method, sentence.split(":")[0].split(";")[0])
        for name, runs in results.items() for run in runs for method in judging
        for sentence in run["refusals"].get(method, ())
    })  # fmt: skip
    return "\n".join(lines + [""] * bool(said) + [f"- {name}; {method}: {sentence}" for name, method, sentence in said])


def draw(results: Mapping[str, Sequence[dict]], comparison: Comparison, path: Path) -> None:
    """Draw every single error on logarithmic axes, row by row; what was refused is not drawn."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    targets = comparison.targets
    methods = list(dict.fromkeys(method for runs in results.values() for run in runs for method in run["errors"]))
    size = (12, 1.5 + 0.4 * len(results))
    figure, axes = pyplot.subplots(1, len(targets), figsize=size, sharey=True, layout="constrained")
    for axis, (key, aimed_at) in zip(axes, targets.items(), strict=True):
        for line, runs in enumerate(results.values()):
            for shift, method, colour in zip(np.linspace(-0.2, 0.2, len(methods)), methods, COLOURS, strict=False):
                shown = [run for run in runs if method in run["errors"] and not run["refusals"].get(method)]
                values = [max(run["errors"][method][key], SMALLEST) for run in shown]
                height = line + shift
                label = None if line else method
                axis.plot(values, np.full(len(values), height), ".", color=colour, alpha=0.6, label=label)
                axis.plot(np.median(values or [np.nan]), height, "|", color=colour, markersize=14, markeredgewidth=2)
        for target, style in zip(aimed_at, ("--", ":"), strict=True):
            axis.axvline(target, color="grey", linestyle=style, linewidth=1)
        axis.set(xscale="log", xlabel=comparison.quantities[key])
        axis.grid(True, axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(results)), list(results))
    axes[0].set_ylim(len(results) - 0.5, -0.5)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(methods))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
