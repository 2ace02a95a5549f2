"""How long it takes to sort two full scans into obstacle zones, on one core.

    OMP_NUM_THREADS=1 python benchmarks/zones.py

230 400 points are one pair of the JT128's scans; each kind of shape is timed on points around a robot in a room.
"""

import time

import numpy as np

from stretch_sim_cal.calibration.zones import Zones
from stretch_sim_cal.geometry.shapes import Circle, Ellipse, TaperedCapsule, circumscribed_polygon

POINTS, RUNS = 230_400, 30
CAPSULE = TaperedCapsule(0.0, 0.0, 0.23, 0.6, 0.05, 0.12)
SHAPES = {
    "tapered_capsule": CAPSULE,
    "ellipse": Ellipse(0.3, 0.0, 1.2, 0.6, 10.0),
    "circle": Circle(0.2, 0.0, 0.6),
    "convex_polygon, 16 vertices": circumscribed_polygon(CAPSULE, 16),
}


def room(random: np.random.Generator) -> np.ndarray:
    """Return points (N, 3) float32: half of them floor, a fifth on and around the robot, the rest walls."""
    points = random.uniform([-4, -4, 0.0], [4, 4, 2.5], size=(POINTS, 3))
    points[: POINTS // 2, 2] = random.normal(0.0, 0.01, POINTS // 2)
    near = POINTS // 5
    points[-near:] = random.uniform([-0.5, -0.5, 0.0], [1.2, 0.6, 1.6], size=(near, 3))
    return points.astype(np.float32)


def main() -> None:
    points = room(np.random.default_rng(0))
    for name, shape in SHAPES.items():
        zones, spent = Zones.around(shape), []
        for _ in range(RUNS):
            started = time.process_time()
            zones.classify(points)
            spent.append(1e3 * (time.process_time() - started))
        print(f"{name:28} {np.median(spent):5.1f} ms (best {min(spent):.1f}) for {POINTS} points")


if __name__ == "__main__":
    main()
