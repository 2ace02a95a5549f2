"""Calibrates two lidars from arrays, without ROS: simulated clouds in, a calibration file out.

    python examples/calibrate_arrays.py [--sensor jt128] [--pairs 20] [--out calibration.yaml]

With lidars of your own, only `left_clouds`, `right_clouds` and the URDF are others.
"""

import argparse
from pathlib import Path

import numpy as np

import stretch_sim_cal as cal
from stretch_sim_cal.geometry.transforms import error, inverse
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import BaseError, PoseError, SimulationSetup


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sensor", default="jt128", help="a sensor file in config/, or a path; default: %(default)s")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of clouds to simulate; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("calibration.yaml"), help="default: %(default)s")
    options = parser.parse_args(arguments)

    # A robot whose lidars are not quite where its description has them, in a furnished room.
    simulator = EmbeddedSimulator(
        SimulationSetup(
            sensor=options.sensor,
            lidar_left_error=PoseError((0.002, -0.001, 0.003), tuple(np.radians([0.4, -0.3, 0.5]))),
            lidar_right_error=PoseError((-0.003, 0.002, 0.001), tuple(np.radians([-0.5, 0.6, -0.2]))),
            base_error=BaseError(0.003, *np.radians([0.4, -0.3])),
        )
    )
    # One structured array per scan, with x, y, z, ring and intensity; (N, 3) arrays would do as well.
    left_clouds = [simulator.scan("left", tick) for tick in range(options.pairs)]
    right_clouds = [simulator.scan("right", tick) for tick in range(options.pairs)]

    rig = cal.Rig.from_urdf(simulator.nominal_description, sensor=options.sensor)
    result = cal.calibrate(rig, left_clouds, right_clouds)
    print(result)
    if not result.accepted:
        return 1
    result.save(options.out)
    print(f"written to {options.out}")

    truth = inverse(simulator.base_from_lidar("left")) @ simulator.base_from_lidar("right")
    distance, angle = error(truth, result.left_from_right)
    print(f"left_from_right is {1e3 * distance:.2f} mm and {np.degrees(angle):.4f} deg from the truth")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
