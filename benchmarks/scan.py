"""What a simulated scan of 115 200 rays costs, of one core: ideal, with a unit's errors, and with all that jt128 has.

    python benchmarks/scan.py --scans 20

Figures are milliseconds of processor time, the least of the scans (other processes only add to it).
"""

import argparse
import dataclasses
import time

import numpy as np

from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scans", type=int, default=20)
    args = parser.parse_args()
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
    times, points = np.full((args.scans + 1, len(rows)), np.inf), [0] * len(rows)
    for tick in range(args.scans + 1):  # in turn, so that all have the same neighbours; the first one builds the scene
        for row, simulator in enumerate(simulators):
            began = time.process_time()
            points[row] = len(simulator.scan("left", tick))
            times[tick, row] = 1e3 * (time.process_time() - began)
    least = times[1:].min(axis=0)
    print(f"{'':68}     ms  times ideal   points")
    for (name, _, _), milliseconds, count in zip(rows, least, points, strict=True):
        print(f"{name:68} {milliseconds:6.1f} {milliseconds / least[0]:12.2f} {count:8d}")


if __name__ == "__main__":
    main()
