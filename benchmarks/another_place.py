"""Whether what an alignment says a further standing place would gain is what it gains: the prediction beside the
standard deviations after the robot was turned by 90 deg in simulated rooms.

    python benchmarks/another_place.py [--sensor jt128_sparse_real] [--seed 1] [--frames 10] [WORLD ...]
"""

import argparse
import sys

import numpy as np
from watch import ERRORS

from stretch_sim_cal import command
from stretch_sim_cal.calibration.alignment.planes import PlaneAlignment
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy, inverse
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

WORLDS = ("furnished_room", "surfaces", "tables", "uneven")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("worlds", nargs="*", default=WORLDS)
    parser.add_argument("--sensor", default="jt128_sparse_real", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--frames", type=int, default=10, help="at each place; default: %(default)s")
    options = parser.parse_args()
    print(f"{'smaller by':<16}{'mm':>8}{'deg':>9}{'predicted':>16}{'turned by 90 deg':>20}")
    for world in options.worlds:
        mapping = {"world": world, "sensor": options.sensor, "seed": options.seed, **ERRORS}
        robot = EmbeddedSimulator(SimulationSetup.from_mapping(mapping, source="benchmark"))
        left, right = (robot.base_from_lidar(side, nominal=True) for side in SIDES)
        method = PlaneAlignment(inverse(left) @ right, AlignmentSettings(base_from_left=left, sensor=robot.sensor))
        for pair in robot.recorded_pairs(options.frames):
            method.add(*pair)
        before, predicted = deviations(method.solve().covariance), method.another_place().gain
        robot.move_base(from_xyz_rpy([0.0, 0.0, 0.0], [0.0, 0.0, np.pi / 2]))
        method.new_place()
        for pair in robot.recorded_pairs(options.frames, 200):
            method.add(*pair)
        gained = 1.0 - deviations(method.solve().covariance) / before
        shares = "".join(f"{f'{100 * gain[0]:.0f} %, {100 * gain[1]:.0f} %':>18}" for gain in (predicted, gained))
        print(f"{world:<16}{1e3 * before[0]:>8.3f}{np.degrees(before[1]):>9.4f}{shares}", flush=True)
    return 0


def deviations(covariance: np.ndarray) -> np.ndarray:
    """Return the root mean square standard deviations (2,) over the axes, in m and rad."""
    return np.sqrt(np.diag(covariance).reshape(2, 3).mean(axis=1))


if __name__ == "__main__":
    sys.exit(command.run(main))
