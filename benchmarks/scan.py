"""What a simulated scan of 115 200 rays costs, of one core: ideal, with a unit's errors, and with all that jt128 has.

    python benchmarks/scan.py --scans 20

Figures are milliseconds of processor time, the least of the scans (other processes only add to it).
"""

import argparse
import dataclasses
import time

from stretch_sim_cal.sensor.sensor import Sensor, load_sensor
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup


def cost(sensor: Sensor, world: str, scans: int) -> tuple[float, int]:
    """Return the least processor time of a scan in ms, and the number of its points."""
    simulator = EmbeddedSimulator(SimulationSetup(world=world), sensor)
    times, points = [], 0
    for tick in range(scans + 1):  # the first one builds the scene
        began = time.process_time()
        points = len(simulator.scan("left", tick))
        times.append(time.process_time() - began)
    return 1e3 * min(times[1:]), points


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
    first = None
    print(f"{'':68}     ms  times ideal   points")
    for name, sensor, world in rows:
        milliseconds, points = cost(sensor, world, args.scans)
        first = first or milliseconds
        print(f"{name:68} {milliseconds:6.1f} {milliseconds / first:12.2f} {points:8d}", flush=True)


if __name__ == "__main__":
    main()
