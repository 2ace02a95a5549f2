"""Three lidars in one estimate: errors and normalised errors of every pair, all seeing all, and two that look apart.

    python benchmarks/lidars.py --seeds 8
    python benchmarks/lidars.py --seeds 8 --mounts    where they are on the robot, the third one by its transform

A mobile robot with three lidars (`three_lidar_amr`) of a kind, its mounts off by up to 3 mm and 0.5 deg, in a furnished
room. "apart": left and mast look opposite ways, each past what the other sees; right sees all.
"""

import argparse
import itertools

import numpy as np

import stretch_sim_cal as cal
from stretch_sim_cal.calibration.array import with_lidars
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import further_mounts
from stretch_sim_cal.calibration.mounts.result import spread
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, mount_settings, solve_samples
from stretch_sim_cal.geometry.transforms import error, inverse, log
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.sensor.points import return_columns, returns_of
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

ROBOT, NAMES = "three_lidar_amr", ("left", "right", "mast")
APART = {"left": (np.pi / 4, 1.55), "mast": (-np.pi / 2, 1.55)}  # bearing and half width in the lidar's frame, rad


def scene(seed: int, sensor: str, frames: int) -> tuple[EmbeddedSimulator, dict[str, list[np.ndarray]]]:
    """Return a simulator, and clouds of its lidars by name."""
    rng = np.random.default_rng(seed)
    errors = [
        {"xyz": rng.uniform(-0.003, 0.003, 3).tolist(), "rpy_deg": rng.uniform(-0.5, 0.5, 3).tolist()} for _ in NAMES
    ]
    setup = {"robot": ROBOT, "world": "furnished_room", "sensor": sensor, "seed": seed}
    setup |= {"lidar_left_error": errors[0], "lidar_right_error": errors[1], "lidar_errors": {"mast": errors[2]}}
    simulator = EmbeddedSimulator(SimulationSetup.from_mapping(setup))
    return simulator, {name: [simulator.scan(name, tick) for tick in range(frames)] for name in NAMES}


def cut(cloud: np.ndarray, bearing: float, width: float) -> np.ndarray:
    """Return what of a cloud lies within a half width (rad) of a bearing."""
    turn = np.angle(np.exp(1j * (np.arctan2(cloud["y"], cloud["x"]) - bearing)))
    return cloud[np.abs(turn) < width]


def mounts(args: argparse.Namespace) -> None:
    """Print a table of where the lidars are on the robot: the first two by their returns from it in one standing pose,
    which is all that a robot without an arm has, the third by its transform."""
    found: dict[str, list] = {name: [] for name in NAMES}
    for seed in range(args.first, args.first + args.seeds):
        simulator, clouds = scene(seed, args.sensor, args.frames)
        rig = cal.Rig.from_urdf(simulator.nominal_description, sensor=args.sensor, robot=ROBOT)
        file = with_lidars(CalibrationFile(), cal.calibrate(rig, clouds, floor=False).array, ROBOT)
        robot = MountedRobot(parse_urdf(simulator.nominal_description), simulator.profile)
        seen = [return_columns(returns_of(np.concatenate(clouds[name]))) for name in NAMES[:2]]
        settings = mount_settings(sensor=load_sensor(args.sensor), profile=simulator.profile)
        result = solve_samples(robot, [robot.sample("standing", {}, *seen)], file, settings)
        poses = {name: (result.base_from_lidar[name], result.covariance_of(name)) for name in NAMES[:2]}
        for name, (pose, covariance) in (poses | further_mounts(file, result)).items():
            twist = log(simulator.base_from_lidar(name) @ inverse(pose))
            off, said = error(simulator.base_from_lidar(name), pose), spread(covariance, pose)
            nees = twist @ np.linalg.solve(covariance, twist) / 6
            found[name].append((1e3 * off[0], np.degrees(off[1]), 1e3 * said[0], np.degrees(said[1]), nees))
    print(f"| {args.seeds} robots, {args.sensor} | mm, median (worst) | deg, median (worst) | said | NEES (worst) |")
    print("|---|---|---|---|---|")
    for name, rows in found.items():
        distances, angles, lengths, turns, nees = np.array(rows).T
        print(
            f"| {name} | {np.median(distances):.2f} ({distances.max():.2f}) | {np.median(angles):.3f} "
            f"({angles.max():.3f}) | {np.median(lengths):.2f} mm, {np.median(turns):.3f} deg | {nees.mean():.2f} "
            f"({nees.max():.2f}) |"
        )


def main() -> None:
    """Print a table: a row for each pair and view."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=21)
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--sensor", default="jt128_sparse_real")
    parser.add_argument("--mounts", action="store_true", help="where the lidars are on the robot")
    args = parser.parse_args()
    if args.mounts:
        return mounts(args)
    found: dict[tuple, list] = {}
    for seed in range(args.first, args.first + args.seeds):
        simulator, clouds = scene(seed, args.sensor, args.frames)
        rig = cal.Rig.from_urdf(simulator.nominal_description, sensor=args.sensor, robot=ROBOT)
        for view, cuts in (("all see all", {}), ("apart", APART)):
            seen = {name: [cut(one, *cuts[name]) if name in cuts else one for one in own]
                    for name, own in clouds.items()}  # fmt: skip
            result = cal.calibrate(rig, seen, floor=False)
            for pair in itertools.combinations(NAMES, 2):
                left, right = map(simulator.base_from_lidar, pair)
                true, covariance = inverse(left) @ right, result.covariance_of(*pair)
                distance, angle = error(true, result.transform(*pair))
                twist = log(true @ inverse(result.transform(*pair)))
                nees = twist @ np.linalg.solve(covariance, twist) / 6
                row = (1e3 * distance, np.degrees(angle), 1e3 * np.sqrt(np.trace(covariance[:3, :3])), nees)
                found.setdefault((view, pair), []).append((*row, result.accepted))
    print(f"| {args.seeds} robots, {args.sensor} | accepted | mm, median (worst) | deg, median (worst) | said | NEES |")
    print("|---|---|---|---|---|---|")
    for (view, pair), rows in found.items():
        distances, angles, said, nees, accepted = np.array(rows, dtype=float).T
        print(
            f"| {view}: {' - '.join(pair)} | {int(sum(accepted))} | {np.median(distances):.2f} ({max(distances):.2f}) "
            f"| {np.median(angles):.4f} ({angles.max():.4f}) | {np.median(said):.2f} | {nees.mean():.2f} |"
        )


if __name__ == "__main__":
    main()
