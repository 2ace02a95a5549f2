"""Calibrates two lidars from arrays, without ROS: simulated clouds in, a calibration file out.

    python examples/calibrate_arrays.py [--sensor jt128] [--pairs 20] [--out calibration.yaml]

With lidars of your own, only `left_clouds`, `right_clouds` and the URDF are others.
"""

import argparse
from pathlib import Path

import stretch_sim_cal as cal


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sensor", default="jt128", help="a sensor file in config/, or a path; default: %(default)s")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of clouds to simulate; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("calibration.yaml"), help="default: %(default)s")
    options = parser.parse_args(arguments)

    # A robot whose lidars are not quite where its description has them, in a furnished room. Of each lidar one
    # structured array per scan, with x, y, z, ring and intensity; (N, 3) arrays would do as well.
    sim = cal.simulate(sensor=options.sensor, frames=options.pairs)
    left_clouds, right_clouds = sim.clouds["left"], sim.clouds["right"]

    rig = cal.Rig.from_urdf(sim.simulator.nominal_description, sensor=options.sensor)
    result = cal.calibrate(rig, left_clouds, right_clouds)
    print(result)
    if not result.accepted:
        return 1
    result.save(options.out)
    print(f"written to {options.out}")

    print(result.errors(sim.truth))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
