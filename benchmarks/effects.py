"""The errors of real lidars, one effect at a time: the recordings that `--effects` of the benchmarks simulates.

Every effect is a unit of a sensor (`sensor/unit.py` has the equations) for each lidar, written as a unit file and
simulated with all that its sensor file has: tables, noise, quantisation, dual returns, mixed pixels. The calibration is
given the plain sensor file, or what the effect says.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from stretch_sim_cal.calibration.methods import alignment_method
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_text
from stretch_sim_cal.geometry.transforms import SIDES, inverse
from stretch_sim_cal.sensor.points import are_returns, coordinates
from stretch_sim_cal.sensor.sensor import Sensor, load_sensor
from stretch_sim_cal.sensor.unit import ECHO, HARMONICS, INCIDENCE, NEAR, OFFSET, SCALE, ErrorModel
from stretch_sim_cal.sensor.unit_file import write_simulated_unit
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import BaseError, PoseError, SimulationSetup

REAL, IDEAL = "jt128", "jt128_ideal"
SPARSE = {REAL: "jt128_sparse_real", IDEAL: "jt128_sparse"}  # the same with a sixth of the rays
ALIGNMENT_FRAMES = 20
CORRECTED = {"distance_correction": True, "firing_time_correction": True}
# Puts an effect into the parameters (n,) of a unit: (values, model, 0 for left and 1 for right, random numbers).
Errors = Callable[[np.ndarray, ErrorModel, int, np.random.Generator], None]


@dataclass(frozen=True, eq=False)
class Effect:
    """One row of the tables: `errors` of units of the `simulated` sensor (None: as its file says), behind a `driver`
    (corrections by the names of `Driver`); the calibration is told of its tables, and that
    units differ as those of `like`.
    """

    name: str
    errors: Errors | None
    driver: dict[str, bool]
    simulated: str = REAL
    like: str = REAL


def _set(**sizes) -> Errors:
    """Return what sets scalars, by name, to a size for both lidars or to one for each."""
    index = {"offset": OFFSET, "scale": SCALE, "near": NEAR, "incidence": INCIDENCE, "echo": ECHO}

    def put(values, model, side, random):
        for name, size in sizes.items():
            values[index[name]] += size[side] if isinstance(size, tuple) else size

    return put


def _elevations(values, model: ErrorModel, side: int, random: np.random.Generator, size: float = 0.05) -> None:
    values[model.of_kind("channel_elevation")] += random.normal(0.0, np.radians(size), model.num_channels)


def _smooth_elevation(values, model: ErrorModel, side: int, random: np.random.Generator, size: float = 0.05) -> None:
    values[model.of_kind("channel_elevation")] += np.radians(size) * np.sin(2.0 * model.elevations + side)


def _harmonics(values, model: ErrorModel, side: int, random: np.random.Generator, size: float = 0.05) -> None:
    values[HARMONICS] += random.normal(0.0, np.radians(size), 4)


def _drawn(values, model: ErrorModel, side: int, random: np.random.Generator) -> None:
    values += model.draw(random)


def _together(values, model: ErrorModel, side: int, random: np.random.Generator) -> None:
    """Half of each single effect at once."""
    _set(incidence=LATE / 2, echo=0.003, scale=(0.0005, -0.0005), offset=(0.005, -0.005), near=0.0075)(
        values, model, side, random
    )
    for effect in (_elevations, _smooth_elevation, _harmonics):
        effect(values, model, side, random, 0.025)


# The error by incidence (m, times 1 / cos - 1) that is 12 mm at 80 deg.
LATE = 0.012 / (1.0 / np.cos(np.radians(80.0)) - 1.0)
EFFECTS = (
    Effect("none", _set(), CORRECTED),
    Effect("late at grazing incidence, 12 mm at 80 deg", _set(incidence=LATE), CORRECTED),
    Effect("weak echoes late, 6 mm", _set(echo=0.006), CORRECTED),
    Effect("channels' elevations 0.05 deg off", _elevations, CORRECTED),
    Effect("smooth elevation error of 0.05 deg", _smooth_elevation, CORRECTED),
    Effect("range scale 1.001 left, 0.999 right", _set(scale=(0.001, -0.001)), CORRECTED),
    Effect("ranges +10 mm left, -10 mm right", _set(offset=(0.01, -0.01)), CORRECTED),
    Effect("ranges +10 mm, both", _set(offset=0.01), CORRECTED),
    Effect("near range 15 mm * exp(-r / 1 m)", _set(near=0.015), CORRECTED),
    Effect("azimuth harmonics 0.05 deg", _harmonics, CORRECTED),
    Effect("optical centre uncorrected", _set(), CORRECTED | {"distance_correction": False}),
    Effect("firing times uncorrected", _set(), CORRECTED | {"firing_time_correction": False}),
    Effect("units drawn from the sensor file", _drawn, CORRECTED),
    Effect("half of each together, driver corrects nothing", _together, dict.fromkeys(CORRECTED, False)),
    Effect("ideal, described as real", None, {}, IDEAL),
    Effect("ideal, described as ideal", None, {}, IDEAL, IDEAL),
)


class Recording:
    """Simulated pairs of scans of a robot whose lidars are up to 5 mm and 1 deg, per axis, from where the description
    has them, and whose base is up to 5 mm raised and 0.5 deg tilted."""

    def __init__(self, effect: Effect, seed: int, world: str = "furnished_room"):
        random = np.random.default_rng(seed)
        off = (
            PoseError(tuple(random.uniform(-0.005, 0.005, 3)), tuple(np.radians(random.uniform(-1, 1, 3))))
            for _ in SIDES
        )
        base = BaseError(random.uniform(-0.005, 0.005), *np.radians(random.uniform(-0.5, 0.5, 2)))
        self.effect, self.seed = effect, seed
        self.sensor = replace(sensor_named(effect.simulated), spread=sensor_named(effect.like).spread)
        with tempfile.TemporaryDirectory() as folder:
            units = _unit_files(effect, random, Path(folder))
            setup = SimulationSetup(world, effect.simulated, seed, *off, base, units=units)
            self.simulator = EmbeddedSimulator(setup, sensor_named(effect.simulated))

    def pairs(self, count: int, first: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the returns, as the readers of recordings give them, of so many pairs of scans."""
        for tick in range(first, first + count):
            scans = (self.simulator.scan(device, tick) for device in SIDES)
            yield tuple(scan[are_returns(coordinates(scan))] for scan in scans)

    @property
    def right_to_left(self) -> np.ndarray:
        """The true transform (4, 4)."""
        left, right = (self.simulator.base_from_lidar(device) for device in SIDES)
        return inverse(left) @ right


@lru_cache
def sensor_named(name: str) -> Sensor:
    """Return a sensor file of `config/`, read once."""
    return load_sensor(name)


def _unit_files(effect: Effect, random: np.random.Generator, folder: Path) -> dict[str, Path]:
    """Write a unit of each lidar; none if the effect has none."""
    if effect.errors is None:
        return {}
    model = sensor_named(effect.simulated).error_model()
    files = {}
    for side, device in enumerate(SIDES):
        values = np.zeros(model.size)
        effect.errors(values, model, side, random)
        files[device] = folder / f"{device}.yaml"
        write_simulated_unit(files[device], effect.simulated, model, values, driver=effect.driver)
    return files


@lru_cache(maxsize=1)
def aligned(effect: Effect, seed: int) -> dict[str, tuple[Any, float]]:
    """Return what ours and the published method answer to the first pairs of a recording, as `solved` has it. All that
    comes after the alignment starts from these."""
    recording = Recording(effect, seed)
    left, right = (recording.simulator.base_from_lidar(device, nominal=True) for device in SIDES)
    settings = {"ours": AlignmentSettings(base_from_left=left, sensor=recording.sensor), "published": None}
    names = {"ours": "planes", "published": "published"}
    methods = {key: alignment_method(names[key])(inverse(left) @ right, settings[key]) for key in names}
    return solved(methods, recording.pairs(ALIGNMENT_FRAMES))


def solved(
    methods: Mapping[str, object], pairs: Iterator[tuple[np.ndarray, np.ndarray]]
) -> dict[str, tuple[object, float]]:
    """Return what each method answers to the pairs, with the CPU time (s) that it took; ring and intensity are for
    those that say `takes_fields`, the others get coordinates alone."""
    seconds = dict.fromkeys(methods, 0.0)
    for pair in pairs:
        bare = tuple(coordinates(scan) for scan in pair)
        for name, method in methods.items():
            start = time.process_time()
            method.add(*(pair if getattr(method, "takes_fields", False) else bare))
            seconds[name] += time.process_time() - start
    answers = {}
    for name, method in methods.items():
        start = time.process_time()
        answer = method.solve()
        answers[name] = answer, seconds[name] + time.process_time() - start
    return answers


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the option that asks for the effects."""
    parser.add_argument(
        "--effects", nargs="*", metavar="WORDS",
        help="only errors of real lidars, one by one: all of them, or those with one of these words in their name; "
        "all benchmarks at once: effects_sweep.py",
    )  # fmt: skip
    parser.add_argument("--sparse", action="store_true", help="with --effects: lidars with a sixth of the rays")


def chosen(words: Sequence[str], sparse: bool = False) -> list[Effect]:
    """Return the effects with one of the words in their name, all without words, of full or `sparse` lidars."""
    found = [effect for effect in EFFECTS if not words or any(word in effect.name for word in words)]
    if not found:
        raise InputError(
            f"--effects {' '.join(words)}: no such effect; there are: {'; '.join(e.name for e in EFFECTS)}"
        )
    if sparse:
        found = [replace(effect, simulated=SPARSE[effect.simulated], like=SPARSE[effect.like]) for effect in found]
    return found


@dataclass(frozen=True)
class Comparison:
    """A table: `compare` gives one run of it, `quantities` say how its errors are written, by their keys.

    A run is a mapping of mappings by method, `ours` first: `errors` (none without a result) by the keys of
    `quantities`, `nees` the normalised error squared over its degrees of freedom, `refusals` sentences. `bounds` are
    two Cramer-Rao bounds of the errors (cramer_rao.py), if there are some.
    """

    name: str
    compare: Callable[[Effect, int], dict]
    quantities: dict[str, str]


def run_effects(
    comparisons: Sequence[Comparison], effects: Sequence[Effect], seeds: range, out: Path, resume: bool = False
) -> None:
    """Make and print the tables. After every run, all single runs and the tables so far are written into the folder
    `out`; what is there already is not run again if `resume` is set."""
    results: dict[str, dict[str, list[dict]]] = {}
    for comparison in comparisons:
        file = out / f"{comparison.name}.json"
        found = json.loads(file.read_text()) if resume and file.is_file() else {}
        results[comparison.name] = {effect.name: found.get(effect.name, []) for effect in effects}
    with tqdm(total=len(comparisons) * len(effects) * len(seeds), unit="run", disable=None) as progress:
        for seed in seeds:
            for effect in effects:
                for comparison in comparisons:
                    runs = results[comparison.name][effect.name]
                    if all(run["seed"] != seed for run in runs):
                        runs.append({"seed": seed} | comparison.compare(effect, seed))
                        _write(comparison, results[comparison.name], out)
                    progress.update()
    print("\n\n".join(effects_table(results[comparison.name], comparison.quantities) for comparison in comparisons))


def _write(comparison: Comparison, results: dict[str, list[dict]], out: Path) -> None:
    write_text(out / f"{comparison.name}.json", json.dumps(results, indent=1))
    write_text(out / f"{comparison.name}.md", effects_table(results, comparison.quantities) + "\n")


def effects_table(results: dict[str, list[dict]], quantities: dict[str, str]) -> str:
    """Return the table as Markdown: median / worst of the errors, of refused results too if there are any."""
    results = {name: runs for name, runs in results.items() if runs}
    everything = [run for runs in results.values() for run in runs]
    bounded = any("bounds" in run for run in everything)
    methods = list(dict.fromkeys(method for run in everything for method in run["errors"]))
    honest = [method for method in methods if any(method in run["nees"] for run in everything)]
    judging = [method for method in methods if any(method in run["refusals"] for run in everything)]
    heads = ["effect"]
    for label in quantities.values():
        heads += [f"{label}, {methods[0]}", *methods[1:]] + (["rms over bounds"] if bounded else [])
    heads += [f"NEES / dof, {method}" for method in honest] + [f"refused, {method}" for method in judging]
    seeds = sorted({run["seed"] for run in everything})
    lines = [
        f"Seeds {seeds[0]} to {seeds[-1]}; errors: median / worst"
        + (", rms error over the Cramer-Rao bounds: planes by patch / by face." if bounded else "."),
        "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"
    ]  # fmt: skip
    for name, runs in results.items():
        cells, accepted = [name], [run for run in runs if not run["refusals"]["ours"]]
        for key in quantities:
            digits = 4 if key.endswith("deg") else 3 if key.endswith("ratio") else 2
            for method in methods:
                values = [run["errors"][method][key] for run in runs if method in run["errors"]]
                cells.append(f"{np.median(values):.{digits}f} / {np.max(values):.{digits}f}" if values else "-")
            if bounded:
                squares = sum(run["errors"]["ours"][key] ** 2 for run in accepted)
                ratios = [
                    np.sqrt(squares / sum(run["bounds"][k][key] ** 2 for run in accepted)) for k in (0, 1) if accepted
                ]
                cells.append(" / ".join(f"{ratio:.2f}" for ratio in ratios) or "-")
        for method in honest:
            values = [run["nees"][method] for run in runs if method in run["nees"] and not run["refusals"].get(method)]
            cells.append(f"{np.mean(values):.2f}" if values else "-")
        cells += [f"{sum(bool(run['refusals'].get(method)) for run in runs)} of {len(runs)}" for method in judging]
        lines.append(f"| {' | '.join(cells)} |")
    said = sorted({
        (name, method, sentence.split(":")[0].split(";")[0])
        for name, runs in results.items() for run in runs for method in judging for sentence in run["refusals"][method]
    })  # fmt: skip
    return "\n".join(lines + [""] * bool(said) + [f"- {name}; {method}: {sentence}" for name, method, sentence in said])
