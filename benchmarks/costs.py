"""What parts cost in processor time of one core: a simulated scan, two scans sorted into zones, the start of a program.

    OMP_NUM_THREADS=1 python benchmarks/costs.py [scan] [zones] [startup] [--runs 20]

Scans have 115 200 rays: ideal, with a unit's errors, and with all that jt128 has. Zones get 230 400 points, one pair of
full scans, by kind of shape. Programs are started with `--version` and `--help`, all that Python itself does included.
Of scans and zones the least of the runs is printed (other processes only add to it), of programs the median.
"""

import argparse
import dataclasses
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.zones import Zones
from stretch_sim_cal.geometry.shapes import Circle, Ellipse, TaperedCapsule, circumscribed_polygon
from stretch_sim_cal.programs import PROGRAMS
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

POINTS = 230_400
CAPSULE = TaperedCapsule(0.0, 0.0, 0.23, 0.6, 0.05, 0.12)
SHAPES = {
    "tapered_capsule": CAPSULE,
    "ellipse": Ellipse(0.3, 0.0, 1.2, 0.6, 10.0),
    "circle": Circle(0.2, 0.0, 0.6),
    "convex_polygon, 16 vertices": circumscribed_polygon(CAPSULE, 16),
}
COMMAND = "stretch-sim-cal"
AIMED_AT = {"--version": 0.15, "--help": 0.3}  # s


def milliseconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return 1e3 * (time.process_time() - began)


def scan(runs: int) -> None:
    real = load_sensor("jt128")
    single = dataclasses.replace(real, dual_return=False, zero_misses=False, beam_divergence=0.0)
    rows = [
        ("jt128_ideal", load_sensor("jt128_ideal"), "furnished_room"),
        ("jt128, all of a unit's errors and noise, one return of a thin beam", single, "furnished_room"),
        ("jt128, dual returns and misses, thin beam", dataclasses.replace(real, beam_divergence=0.0), "furnished_room"),
        ("jt128", real, "furnished_room"),
        ("jt128 among mirrors, glass, reflectors, plants and people", real, "surfaces"),
    ]
    simulators = [EmbeddedSimulator(SimulationSetup(world=world), sensor) for _, sensor, world in rows]
    points = [len(simulator.scan("left", 0)) for simulator in simulators]  # the first one builds the scene
    # In turn, so that all have the same neighbours.
    times = [[milliseconds(lambda s=s, t=t: s.scan("left", t)) for s in simulators] for t in range(1, runs + 1)]
    least = np.min(times, axis=0)
    print(f"{'':68}     ms  times ideal   points")
    for (name, _, _), took, count in zip(rows, least, points, strict=True):
        print(f"{name:68} {took:6.1f} {took / least[0]:12.2f} {count:8d}")


def zones(runs: int) -> None:
    """Print what it costs to sort points around a robot in a room: half of them floor, a fifth on and around it."""
    random, near = np.random.default_rng(0), POINTS // 5
    points = random.uniform([-4, -4, 0.0], [4, 4, 2.5], size=(POINTS, 3))
    points[: POINTS // 2, 2] = random.normal(0.0, 0.01, POINTS // 2)
    points[-near:] = random.uniform([-0.5, -0.5, 0.0], [1.2, 0.6, 1.6], size=(near, 3))
    points = points.astype(np.float32)
    for name, shape in SHAPES.items():
        around = Zones.around(shape)
        spent = [milliseconds(lambda around=around: around.classes(points)) for _ in range(runs)]
        print(f"{name:28} {np.median(spent):5.1f} ms (best {min(spent):.1f}) for {POINTS} points")


def startup(runs: int) -> None:
    print("| command | CPU s | aimed at |\n|---|---|---|")
    programs = [name for name in PROGRAMS if name != COMMAND.replace("-", "_")]
    for words in ([COMMAND, "--version"], [COMMAND, "--help"], *([name, "--help"] for name in programs)):
        seconds = np.median([of_children(words) for _ in range(min(runs, 5))])
        print(f"| {' '.join(words)} | {seconds:.3f} | {AIMED_AT[words[1]]} |", flush=True)


def of_children(words: list[str]) -> float:
    """Return the CPU time in s that a program of this installation takes from start to end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([Path(sys.executable).parent / words[0], *words[1:]], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parts = {"scan": scan, "zones": zones, "startup": startup}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", default=list(parts), help=f"{', '.join(parts)}; default: all"
    )
    parser.add_argument("--runs", type=int, default=20, help="default: %(default)s; of programs at most 5")
    args = parser.parse_args()
    for name in args.parts:
        parts[name](args.runs)


if __name__ == "__main__":
    main()
