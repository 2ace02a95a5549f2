"""How exactly the lidars are aligned: ours and the published method on the same data, over scenes and seeds.

    python benchmarks/alignment.py [--quick] [--seeds 20] [--first-seed 1001] [--row NAME] [--out out/benchmarks]
    python benchmarks/alignment.py --another-place jt128_sparse_real [--first-seed 2]

Prints the figures of docs/accuracy.md, and writes them with a plot and all single results into the folder. Every seed
has mount errors of its own (to 5 mm and 1 deg along and about each axis). Takes about an hour; --quick a few minutes.
With --another-place: what an alignment says that a further standing place would gain, beside what it gains to turn the
robot by 90 deg.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import comparing
import numpy as np
from comparing import ALIGNMENT_FRAMES, Comparison, Effect, Recording, chi_square, drawn_twist, right_to_left, solved
from cramer_rao import alignment_bound
from watch import ERRORS

from stretch_sim_cal import command
from stretch_sim_cal.calibration.methods import alignment_method
from stretch_sim_cal.calibration.published import PublishedAlignment
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.geometry.transforms import SIDES, exp, from_xyz_rpy
from stretch_sim_cal.sensor.sensor import DEFAULT_SENSOR, load_sensor
from stretch_sim_cal.sensor.unit import UnitSpread
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.setup import SimulationSetup


@dataclass(frozen=True)
class Row:
    """One line of a table. `guess_off` is how far (m, rad) the first guess is from the description; `anywhere` puts the
    robot to another place in every seed; `biases` are how far (m, one sigma) channels, and whole lidars, read wrong."""

    name: str
    world: str = "furnished_room"
    frames: int = 20
    range_noise: float = 0.01
    guess_off: tuple[float, float] = (0.0, 0.0)
    sensor: str = DEFAULT_SENSOR
    anywhere: bool = False
    biases: tuple[float, float] = (0.0, 0.0)


ROWS = (
    Row("furnished room"),
    Row("furnished room, the robot anywhere in it", anywhere=True),
    Row("furnished room, 1 frame", frames=1),
    Row("furnished room, 5 frames", frames=5),
    Row("furnished room, 100 frames", frames=100),
    Row("furnished room, noise 2 cm", range_noise=0.02),
    Row("furnished room, noise 5 mm", range_noise=0.005),
    Row("furnished room, first guess 10 cm 10 deg off", guess_off=(0.1, np.radians(10))),
    Row("furnished room, first guess 30 cm 30 deg off", guess_off=(0.3, np.radians(30))),
    Row("furnished room, channels 3 mm, lidars 2 mm biased", biases=(0.003, 0.002)),
    Row("furnished room, a sixth of the rays", sensor="jt128_sparse"),
    Row("tables, platform", world="tables"),
    Row("hall 12 m wide", world="empty_hall"),
    Row("uneven floor", world="uneven"),
)
# Scenes that do not say how the lidars stand to each other.
HOPELESS = (
    Row("long corridor", world="long_corridor"),
    Row("single wall", world="single_wall"),
    Row("open field", world="open_field"),
    Row("round room", world="round_room"),
)
QUANTITIES = comparing.POSE | {"cpu_s": "CPU, s"}
TARGETS = {"translation_mm": (0.15, 0.4), "rotation_deg": (0.003, 0.008)}
QUICK = ("furnished room", "furnished room, 5 frames", "tables, platform")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three seeds, and only the first few kinds of rows")
    names = [row.name for row in (*ROWS, *HOPELESS)]
    parser.add_argument("--row", action="append", choices=names, help="only this one; repeatable")
    parser.add_argument("--no-memory", action="store_true", help="do not measure memory, which takes 220 frames")
    parser.add_argument("--memory", type=int, metavar="FRAMES", help="only print this process's peak memory in MB")
    parser.add_argument("--another-place", metavar="SENSOR", help="only print what a further standing place would gain")
    comparing.add_arguments(parser, seeds=20, first_seed=1001)
    args = parser.parse_args()
    if args.another_place:
        another_place(args.another_place, args.first_seed)
        return 0
    if args.memory:
        print(peak_memory(args.memory))
        return 0
    names = args.row or (QUICK if args.quick else names)
    seeds = comparing.seeds_of(args)[: 3 if args.quick else None]
    if rows := [row for row in ROWS if row.name in names]:
        comparing.run([Comparison("alignment", compare, QUANTITIES, 0.95, TARGETS)], rows, seeds, args.out)
    if hopeless := [row for row in HOPELESS if row.name in names or args.quick]:
        few = seeds[: max(len(seeds) // 4, 1)]
        print()
        comparing.run([Comparison("alignment_refused", compare, QUANTITIES)], hopeless, few, args.out)
    if not args.no_memory:
        print("\n" + memory_line((20,) if args.quick else (20, 200)))
    return 0


def compare(row: Row, seed: int) -> dict:
    """Return the errors of both methods on one simulated recording; none of ours if it refuses."""
    random = np.random.default_rng(seed)
    setup = SimulationSetup(row.world, row.sensor, seed, comparing.mount_errors(random))
    simulator = EmbeddedSimulator(setup, replace(load_sensor(row.sensor), range_noise=row.range_noise))
    truth, base_from_left = right_to_left(simulator), simulator.base_from_lidar("left", nominal=True)
    guess = exp(drawn_twist(random, *row.guess_off)) @ right_to_left(simulator, nominal=True)
    if row.anywhere:
        x, y = random.uniform(-0.5, 0.5, 2)
        simulator.move_base(from_xyz_rpy((x, y, 0.0), (0.0, 0.0, random.uniform(-np.pi, np.pi))))
    biases = random.normal(size=(2, simulator.sensor.num_channels)) * row.biases[0]
    biases = biases + random.normal(size=(2, 1)) * row.biases[1]
    # The sensor as it is: ideal, but for the biases.
    spread = UnitSpread(channel_range=row.biases[0], range_offset=row.biases[1])
    settings = AlignmentSettings(base_from_left=base_from_left, sensor=replace(simulator.sensor, spread=spread))
    methods = {"ours": alignment_method()(guess, settings), "published": PublishedAlignment(guess)}
    found = compared(truth, solved(methods, clouds(simulator, row.frames, biases)))
    if found["refusals"]["ours"]:
        del found["errors"]["ours"]
    return found


def compared(truth: np.ndarray, found: Mapping[str, tuple[AlignmentResult, float]]) -> dict:
    judged: dict[str, dict] = {"errors": {}, "nees": {}, "refusals": {}}
    for name, (result, seconds) in found.items():
        judged["errors"][name] = comparing.pose_errors(truth, result.right_to_left) | {"cpu_s": seconds}
        judged["refusals"][name] = result.refusals
        if np.isfinite(result.covariance).all():
            judged["nees"][name] = chi_square(truth, result.right_to_left, result.covariance) / 6
    return judged


def compare_under(effect: Effect, seed: int) -> dict:
    recording, found = Recording(effect, seed), comparing.aligned(effect, seed)
    ours, bounds = found["ours"][0], (alignment_bound(recording, ALIGNMENT_FRAMES, whole) for whole in (False, True))
    return compared(recording.right_to_left, found) | {
        "standard_deviations": np.sqrt(np.diag(ours.covariance)).tolist(),
        "bounds": [
            {"translation_mm": 1e3 * rms(bound[:3, :3]), "rotation_deg": float(np.degrees(rms(bound[3:, 3:])))}
            for bound in bounds
        ],
        "warnings": ours.warnings,
    }


EFFECTS_TABLE = Comparison("alignment_effects", compare_under, comparing.POSE)


def rms(covariance: np.ndarray) -> float:
    """Return the root of the expected squared length of a vector with this covariance."""
    return float(np.sqrt(np.trace(covariance)))


def clouds(simulator: EmbeddedSimulator, count: int, biases: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of clouds (N, 3), the ranges too long by `biases` (2, channels) in m."""
    for tick in range(count):
        pair = []
        for name, own in zip(SIDES, biases, strict=True):
            scan = simulator.scan(name, tick)
            points = xyz(scan)
            pair.append(points * (1.0 + own[scan["ring"]] / np.linalg.norm(points, axis=1))[:, None])
        yield tuple(pair)


def peak_memory(frames: int) -> int:
    """Return this process's peak memory in MB after aligning so many frames, simulator and libraries included."""
    simulator = EmbeddedSimulator(SimulationSetup())
    solved({"ours": alignment_method()(right_to_left(simulator), None)}, simulator.point_pairs(frames))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def memory_line(counts: tuple[int, ...]) -> str:
    """Return a sentence about the peak memory of a process of its own per number of frames."""
    script = [sys.executable, __file__, "--memory"]
    found = [(count, subprocess.check_output([*script, str(count)], text=True).strip()) for count in counts]
    shown = ", ".join(f"{mb} MB ({n} frames)" for n, mb in found)
    return f"Peak memory, simulator and libraries included: {shown}."


def another_place(sensor: str, seed: int, frames: int = 10) -> None:
    """Print what is said of a further standing place, and what it gains, of so many frames at each place."""
    print(f"{'smaller by':<16}{'mm':>8}{'deg':>9}{'predicted':>16}{'turned by 90 deg':>20}")
    for world in ("furnished_room", "surfaces", "tables", "uneven"):
        mapping = {"world": world, "sensor": sensor, "seed": seed, **ERRORS}
        robot = EmbeddedSimulator(SimulationSetup.from_mapping(mapping, source="benchmark"))
        method = comparing.described(robot, robot.sensor)
        before, _ = solved({"": method}, robot.recorded_pairs(frames))[""]
        predicted = method.another_place().gain
        robot.move_base(from_xyz_rpy([0.0, 0.0, 0.0], [0.0, 0.0, np.pi / 2]))
        method.new_place()
        after, _ = solved({"": method}, robot.recorded_pairs(frames, 200))[""]
        # Root mean square standard deviations over the axes, in m and rad.
        was, now = (np.sqrt(np.diag(each.covariance).reshape(2, 3).mean(axis=1)) for each in (before, after))
        shares = "".join(f"{f'{100 * a:.0f} %, {100 * b:.0f} %':>18}" for a, b in (predicted, 1.0 - now / was))
        print(f"{world:<16}{1e3 * was[0]:>8.3f}{np.degrees(was[1]):>9.4f}{shares}", flush=True)


if __name__ == "__main__":
    sys.exit(command.run(main))
