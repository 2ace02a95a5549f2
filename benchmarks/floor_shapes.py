"""Floors that are no plane where the robot stands: what is accepted must be right, or unsure by as much.

    python benchmarks/floor_shapes.py [--cases 72] [--first-seed 6001] [--shapes NAME ...]

A case is a simulated recording (8 scans of each lidar, units drawn from the sensor file) on a floor whose shape its
seed draws. True is the plane under the wheels. Printed are, by shape, what was accepted and is wrong (further from the
truth than what it says of itself allows, as improbable as four standard deviations), what was accepted and right, what
was refused, and the errors (median / worst) of what was accepted, and of the published method on the same clouds. Exit
code 1 if anything was accepted and wrong.
"""

import argparse
import collections
import sys
from collections.abc import Callable

import comparing
import numpy as np
from comparing import Effect, Recording, drawn
from effects import CORRECTED
from floor import errors, known_and_true
from scipy import stats
from tqdm import tqdm

import stretch_sim_cal as cal
from stretch_sim_cal import command
from stretch_sim_cal.calibration.methods import floor_method
from stretch_sim_cal.geometry.planes import floor_between
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

FRAMES = 8
LIMIT = float(stats.chi2.isf(2.0 * stats.norm.sf(4.0), 3))  # of three values, as improbable as 4 sigma of one
WORLDS = ("furnished_room", "empty_hall", "tables")
WHEELS = np.array([(0.15, 0.087), (-0.15, 0.087), (0.0, -0.174)])  # m, in base_footprint
Heights = Callable[[np.ndarray, np.ndarray], np.ndarray]
Shape = Callable[[EmbeddedSimulator, np.random.Generator], None]


def box(simulator: EmbeddedSimulator, name: str, size, centre, yaw: float = 0.0) -> None:
    """Put a box on the floor; half of its height lies below it."""
    simulator.add_surface(name, Surface(*solids.box(np.array(size, float))).moved(from_xyz_rpy(centre, [0, 0, yaw])))


def stand(simulator: EmbeddedSimulator, heights: np.ndarray) -> None:
    """Put the robot on floor of these heights (3,) under its wheels."""
    along_x, along_y, at = np.linalg.solve(np.column_stack([WHEELS, np.ones(3)]), heights)
    simulator.move_base(from_xyz_rpy([0, 0, at], [np.arctan(along_y), -np.arctan(along_x), 0]))


def height_field(height: Heights, axis: np.ndarray) -> Surface:
    """Return a floor whose height is a function of x and y, at every pair of values of an axis (N,)."""
    x, y = np.meshgrid(axis, axis, indexing="ij")
    number = np.arange(x.size).reshape(x.shape)
    a, b, c, d = number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]
    faces = np.concatenate([np.stack(corners, -1).reshape(-1, 3) for corners in ((a, b, c), (a, c, d))])
    return Surface(np.stack([x, y, height(x, y)], -1).reshape(-1, 3), faces)


def floor_of(simulator: EmbeddedSimulator, height: Heights) -> None:
    """Give the world another floor, and put the robot on it."""
    axis = np.unique(np.r_[np.arange(-12, 12.1, 0.25), np.arange(-4, 4.01, 0.05)].round(4))
    origin = height(np.zeros(1), np.zeros(1))[0]
    for name in [name for name in simulator.world.surfaces if "floor" in name or "ground" in name]:
        del simulator.world.surfaces[name]
    simulator.add_surface("shaped", height_field(lambda x, y: height(x, y) - origin, axis))
    stand(simulator, height(*WHEELS.T) - origin)


def even(simulator: EmbeddedSimulator, random: np.random.Generator) -> None:
    """The floor of the world."""


def carpet_beside(simulator: EmbeddedSimulator, random: np.random.Generator) -> None:
    distance, height, bearing = random.uniform(0.32, 1.0), random.uniform(0.003, 0.02), random.uniform(-np.pi, np.pi)
    centre = (distance + 3.0) * np.cos(bearing), (distance + 3.0) * np.sin(bearing), 0.0
    box(simulator, "carpet", (6.0, 12.0, 2 * height), centre, bearing)


def between_carpets(simulator: EmbeddedSimulator, random: np.random.Generator) -> None:
    height, distance, bearing = random.uniform(0.003, 0.015), random.uniform(0.35, 0.8), random.uniform(-np.pi, np.pi)
    for side in (distance + 2.0, -distance - 2.0):
        centre = -side * np.sin(bearing), side * np.cos(bearing), 0.0
        box(simulator, f"carpet {side}", (12.0, 4.0, 2 * height), centre, bearing)


def on_a_rug(simulator: EmbeddedSimulator, random: np.random.Generator) -> None:
    height = random.uniform(0.003, 0.02)
    stand(simulator, np.full(3, height))
    box(simulator, "rug", (*random.uniform(0.6, 3.0, 2), 2 * height), (*random.uniform(-0.2, 0.2, 2), 0.0))


def a_wheel_on_a_mat(simulator: EmbeddedSimulator, random: np.random.Generator) -> None:
    height = random.uniform(0.003, 0.012)
    stand(simulator, np.array([0.0, 0.0, height]))
    box(simulator, "mat", (*random.uniform(0.1, 1.0, 2), 2 * height), (*WHEELS[2], 0.0))


def ramp(simulator: EmbeddedSimulator, random: np.random.Generator) -> None:
    distance, bearing = random.uniform(0.32, 1.5), random.uniform(-np.pi, np.pi)
    slope = np.tan(np.radians(random.uniform(0.1, 2.0))) * random.choice((-1.0, 1.0))
    floor_of(simulator, lambda x, y: slope * np.maximum(x * np.cos(bearing) + y * np.sin(bearing) - distance, 0.0))


def drain(simulator: EmbeddedSimulator, random: np.random.Generator) -> None:
    distance, slope, bearing = random.uniform(0.4, 1.5), random.uniform(0.005, 0.015), random.uniform(-np.pi, np.pi)
    round_, x0, y0 = random.integers(2), distance * np.cos(bearing), distance * np.sin(bearing)
    apart = np.hypot if round_ else lambda x, y: np.maximum(np.abs(x), np.abs(y))
    floor_of(simulator, lambda x, y: slope * apart(x - x0, y - y0))


def dip(simulator: EmbeddedSimulator, random: np.random.Generator) -> None:
    depth, radius = random.uniform(0.001, 0.006), random.uniform(0.4, 2.0)
    floor_of(simulator, lambda x, y: -depth * np.exp(-(x**2 + y**2) / (2 * radius**2)))


def tiles(simulator: EmbeddedSimulator, random: np.random.Generator) -> None:
    size, lip, tilt = random.uniform(0.2, 0.6), random.uniform(0.0002, 0.001), random.uniform(0.0003, 0.0015)
    lips, tilts = random.normal(0.0, lip, (60, 60)), random.normal(0.0, tilt, (2, 60, 60))
    offset = random.uniform(0.0, size, 2)

    def height(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        u, v = (x + offset[0]) / size, (y + offset[1]) / size
        i, j = (np.clip(np.floor(each).astype(int) + 30, 0, 59) for each in (u, v))
        inside = tilts[0][i, j] * (u - np.floor(u) - 0.5) + tilts[1][i, j] * (v - np.floor(v) - 0.5)
        return lips[i, j] + size * inside

    floor_of(simulator, height)


def waves(simulator: EmbeddedSimulator, random: np.random.Generator) -> None:
    rms, length = random.uniform(0.0002, 0.002), random.uniform(1.0, 3.0)
    undulation = solids.Undulation.drawn(rms, (length, 2.0 * length), random)
    floor_of(simulator, lambda x, y: undulation.heights(np.stack([x, y], axis=-1)))


def rough(simulator: EmbeddedSimulator, random: np.random.Generator) -> None:
    # The spectral density of profiles goes with the square of the wavelength, as that of roads (ISO 8608).
    lengths, rms = np.geomspace(0.2, 6.4, 40), random.uniform(0.0002, 0.001)
    ways, phases = random.uniform(-np.pi, np.pi, 40), random.uniform(-np.pi, np.pi, 40)
    size = rms * np.sqrt(2.0 * lengths / lengths.sum())
    along, across = 2.0 * np.pi / lengths * np.array([np.cos(ways), np.sin(ways)])

    def height(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        heights: np.ndarray = np.cos(x[..., None] * along + y[..., None] * across + phases) @ size
        return heights

    floor_of(simulator, height)


SHAPES: dict[str, Shape] = {
    "even": even, "a carpet beside": carpet_beside, "a ramp": ramp, "between carpets": between_carpets,
    "on a rug": on_a_rug, "a wheel on a mat": a_wheel_on_a_mat, "a drain": drain, "a dip": dip, "tiles": tiles,
    "waves": waves, "rough": rough,
}  # fmt: skip


EFFECT = Effect("drawn", drawn, CORRECTED, "jt128_sparse_real", "jt128_sparse_real")


def judged(shape: str, seed: int) -> tuple[str, tuple[float, float], tuple[float, float]]:
    """Return the verdict over a case, and the errors (mm, deg) of ours and of the published method."""
    recording = Recording(EFFECT, seed, WORLDS[seed % len(WORLDS)])
    SHAPES[shape](recording.simulator, np.random.default_rng(seed))
    pairs = list(recording.pairs(FRAMES))
    nominal = [recording.simulator.base_from_lidar(side, nominal=True) for side in SIDES]
    footprint_from_base, truth = known_and_true(recording.simulator)
    rig = cal.Rig(*nominal, footprint_from_base=footprint_from_base, sensor=recording.sensor)
    result = cal.calibrate(rig, *map(list, zip(*pairs, strict=True)), accept=(0.05, np.radians(2.0)))
    published = floor_method("published")(nominal[0], recording.right_to_left, footprint_from_base)
    (theirs, _) = comparing.solved({"published": published}, pairs)["published"]
    found = result.floor
    verdict = "refused"
    if found is not None and result.accepted:
        off = floor_between(found.plane, truth)
        verdict = "wrong" if off @ np.linalg.solve(found.covariance, off) > LIMIT else "right"
    return verdict, *(_errors(each, truth) for each in (found, theirs))


def _errors(found, truth) -> tuple[float, float]:
    return (np.nan, np.nan) if found is None else tuple(errors(found.plane, truth).values())


def _summary(errors: list[tuple[float, float]]) -> str:
    """Return the median and the worst of errors in words."""
    if not errors:
        return ""
    median, worst = np.nanmedian(errors, axis=0), np.nanmax(errors, axis=0)
    return f"{median[0]:.1f}, {median[1]:.3f} / {worst[0]:.1f}, {worst[1]:.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=8 * len(SHAPES), help="(%(default)s)")
    parser.add_argument("--first-seed", type=int, default=6001, help="(%(default)s)")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="NAME", help="only these")
    args = parser.parse_args()
    verdicts: dict[str, list] = collections.defaultdict(list)
    for case in tqdm(range(args.cases), disable=None):
        shape = args.shapes[case % len(args.shapes)]
        verdicts[shape].append((args.first_seed + case, *judged(shape, args.first_seed + case)))
    print("| floor | wrong | right | refused | accepted: mm, deg | published: mm, deg |")
    print("|---|---|---|---|---|---|")
    for shape, cases in verdicts.items():
        counts = collections.Counter(verdict for _, verdict, *_ in cases)
        ours = _summary([ours for _, verdict, ours, _ in cases if verdict != "refused"])
        columns = *(counts[each] for each in ("wrong", "right", "refused")), ours, _summary([each[3] for each in cases])
        print(f"| {shape} | " + " | ".join(map(str, columns)) + " |")
        for seed, verdict, ours, _ in cases:
            if verdict == "wrong":
                print(f"  wrong: seed {seed}, {ours[0]:.2f} mm, {ours[1]:.3f} deg", file=sys.stderr)
    return int(any(verdict == "wrong" for cases in verdicts.values() for _, verdict, *_ in cases))


if __name__ == "__main__":
    sys.exit(command.run(main))
