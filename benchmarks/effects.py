"""The errors of real lidars, one effect at a time: four tables. Each recording is aligned once, and every other
calibration starts from that.

    nice python benchmarks/effects.py [--effects WORDS] [--sparse] [--tables alignment floor] [--seeds 5] [--resume]

Every effect is a unit of a sensor (`sensor/unit.py` has the equations) for each lidar, written as a unit file and
simulated with all that its sensor file has: tables, noise, quantisation, dual returns, mixed pixels. The calibration is
given the plain sensor file, or what the effect says. Runs seed by seed, and writes tables and single runs after each of
them: what is cut short has fewer seeds. The full tables take one and a half hours of one core.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

import alignment
import body_shape
import floor
import mounts
import numpy as np
from comparing import Effect, Errors, add_arguments, drawn, run, seeds_of

from stretch_sim_cal import command
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.sensor.unit import ECHO, HARMONICS, INCIDENCE, NEAR, OFFSET, SCALE, ErrorModel

TABLES = {module.__name__: module.EFFECTS_TABLE for module in (alignment, floor, mounts, body_shape)}
IDEAL = "jt128_ideal"
SPARSE = {"jt128": "jt128_sparse_real", IDEAL: "jt128_sparse"}  # the same with a sixth of the rays
CORRECTED = {"distance_correction": True, "firing_time_correction": True}


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
    Effect("units drawn from the sensor file", drawn, CORRECTED),
    Effect("half of each together, driver corrects nothing", _together, dict.fromkeys(CORRECTED, False)),
    Effect("ideal, described as real", None, {}, IDEAL),
    Effect("ideal, described as ideal", None, {}, IDEAL, IDEAL),
)


def chosen(words: Sequence[str], sparse: bool = False) -> list[Effect]:
    """Return the effects with one of the words in their name, all without words, of full or `sparse` lidars."""
    found = [effect for effect in EFFECTS if not words or any(word in effect.name for word in words)]
    if not found:
        known = "; ".join(effect.name for effect in EFFECTS)
        raise InputError(f"--effects {' '.join(words)}: no such effect; there are: {known}")
    if not sparse:
        return found
    return [replace(effect, simulated=SPARSE[effect.simulated], like=SPARSE[effect.like]) for effect in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser, seeds=5, first_seed=5001, developed=5001)
    parser.add_argument("--effects", nargs="+", default=[], metavar="WORDS", help="only those with one of these words")
    parser.add_argument("--sparse", action="store_true", help="lidars with a sixth of the rays")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--resume", action="store_true", help="go on with what --out holds, of the same code")
    args = parser.parse_args()
    effects = chosen(args.effects, args.sparse)
    run([TABLES[name] for name in args.tables], effects, seeds_of(args), args.out, args.resume)
    return 0


if __name__ == "__main__":
    sys.exit(command.run(main))
