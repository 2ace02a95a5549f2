"""The errors of real lidars, one effect at a time: the recordings that `--effects` of the benchmarks simulates.

Every effect is a unit of a sensor (`sensor/unit.py` has the equations) for each lidar, written as a unit file and simulated
with all that its sensor file has: tables, noise, quantisation, dual returns, mixed pixels. The calibration is given the
plain sensor file, or what the effect says.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from tqdm import tqdm

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_text
from stretch_sim_cal.geometry.transforms import SIDES, inverse
from stretch_sim_cal.sensor.points import are_returns, coordinates
from stretch_sim_cal.sensor.sensor import Sensor, load_sensor
from stretch_sim_cal.sensor.unit import ECHO, HARMONICS, INCIDENCE, NEAR, OFFSET, SCALE, ErrorModel
from stretch_sim_cal.sensor.unit_file import values_to_mapping
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import BaseError, PoseError, SimulationSetup

REAL, IDEAL = "jt128", "jt128_ideal"
CORRECTED = {"distance_correction": True, "firing_time_correction": True}
# Puts an effect into the parameters (n,) of a unit: (values, model, 0 for left and 1 for right, random numbers).
Errors = Callable[[np.ndarray, ErrorModel, int, np.random.Generator], None]


@dataclass(frozen=True)
class Effect:
    """One row of the tables: `errors` of units of the `simulated` sensor (None: as its file says), behind a `driver`
    (corrections by the names of `Driver`); the calibration is told of its tables, and that units differ as those of `like`.
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
    """Simulated pairs of scans of a robot whose lidars are up to 5 mm and 1 deg, per axis, from where the description has
    them, and whose base is up to 5 mm raised and 0.5 deg tilted."""

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
        said = values_to_mapping(model, values)
        del said["optical_centre_share"], said["firing_time_share"]  # the driver's matter
        files[device] = folder / f"{device}.yaml"
        write_text(files[device], json.dumps({"sensor": effect.simulated, "driver": effect.driver, "values": said}))
    return files


def solved(
    methods: Mapping[str, object], pairs: Iterator[tuple[np.ndarray, np.ndarray]]
) -> dict[str, tuple[object, float]]:
    """Return what each method answers to the pairs, with the CPU time (s) that it took; ring and intensity are for those that
    say `takes_fields`, the others get coordinates alone."""
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
        "--effects", nargs="*", metavar="WORDS", help="only errors of real lidars, one by one: all of them, or those with "
        "one of these words in their name",
    )  # fmt: skip


def chosen(words: Sequence[str]) -> list[Effect]:
    """Return the effects with one of the words in their name, all without words."""
    found = [effect for effect in EFFECTS if not words or any(word in effect.name for word in words)]
    if not found:
        raise InputError(
            f"--effects {' '.join(words)}: no such effect; there are: {'; '.join(e.name for e in EFFECTS)}"
        )
    return found


def run_effects(
    compare: Callable[[Effect, int], dict], effects: Sequence[Effect], seeds: range, quantities: dict[str, str],
    out: Path, name: str,
) -> None:  # fmt: skip
    """Run `compare` for all effects and seeds, print the table, and write it with all single runs into the folder `out`.

    A run is a mapping: `errors` holds them by method (`ours` first) and by the keys of `quantities`, which say how they are
    written;     `nees` the normalised error squared over its degrees of freedom, `refusals` sentences, `bounds` two Cramer-Rao bounds of the
    errors (cramer_rao.py) where there are some.
    """
    results: dict[str, list[dict]] = {}
    with tqdm(total=len(effects) * len(seeds), unit="run", disable=None) as progress:
        for effect in effects:
            results[effect.name] = []
            for seed in seeds:
                results[effect.name].append({"seed": seed} | compare(effect, seed))
                progress.update()
            write_text(out / f"{name}.json", json.dumps(results, indent=1))
    table = effects_table(results, seeds, quantities)
    print(table)
    write_text(out / f"{name}.md", table + "\n")


def effects_table(results: dict[str, list[dict]], seeds: range, quantities: dict[str, str]) -> str:
    """Return the table as Markdown: median / worst of the errors, of refused results too."""
    bounded = any("bounds" in run for runs in results.values() for run in runs)
    honest = any("nees" in run for runs in results.values() for run in runs)
    methods = list(next(run["errors"] for runs in results.values() for run in runs))
    heads = ["effect"]
    for label in quantities.values():
        heads += [f"{label}, {methods[0]}", *methods[1:]] + (["rms over bounds"] if bounded else [])
    heads += (["NEES / dof"] if honest else []) + ["refused"]
    lines = [
        f"Seeds {seeds.start} to {seeds.stop - 1}; errors: median / worst"
        + (", rms error over the Cramer-Rao bounds: planes by patch / by face." if bounded else "."),
        "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"
    ]  # fmt: skip
    for name, runs in results.items():
        cells, accepted = [name], [run for run in runs if not run["refusals"]]
        for key in quantities:
            digits = 4 if key.endswith("deg") else 2
            for method in methods:
                values = [run["errors"][method][key] for run in runs]
                cells.append(f"{np.median(values):.{digits}f} / {np.max(values):.{digits}f}")
            if bounded:
                squares = sum(run["errors"]["ours"][key] ** 2 for run in accepted)
                ratios = [
                    np.sqrt(squares / sum(run["bounds"][k][key] ** 2 for run in accepted)) for k in (0, 1) if accepted
                ]
                cells.append(" / ".join(f"{ratio:.2f}" for ratio in ratios) or "-")
        if honest:
            cells.append(f"{np.mean([run['nees'] for run in accepted]):.2f}" if accepted else "-")
        lines.append(f"| {' | '.join(cells)} | {len(runs) - len(accepted)} |")
    said = sorted({(name, sentence.split(":")[0].split(";")[0]) for name, runs in results.items()
                   for run in runs for sentence in run["refusals"]})  # fmt: skip
    return "\n".join(lines + [""] * bool(said) + [f"- {name}: {sentence}" for name, sentence in said])
