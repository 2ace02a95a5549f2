"""Three lidars in one estimate: errors and normalised errors of every pair, all seeing all, and two that look apart.

    python benchmarks/lidars.py --seeds 8
    python benchmarks/lidars.py --seeds 8 --mounts    where they are on the robot; --arm: of one with an arm

A mobile robot with three lidars (`three_lidar_amr`) of a kind, its mounts off by up to 3 mm and 0.5 deg, in a furnished
room. "apart": left and mast look opposite ways, each past what the other sees; right sees all.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

import stretch_sim_cal as cal
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.lidars import LidarAlignment, lidars_at, with_lidars
from stretch_sim_cal.calibration.mounts.file import each_mount
from stretch_sim_cal.calibration.mounts.result import MountSample, total_deviations
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, mount_settings, solve_samples
from stretch_sim_cal.calibration.pipeline import solved, together
from stretch_sim_cal.geometry.transforms import error, inverse, log
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.profile import load_profile
from stretch_sim_cal.sensor.points import return_columns, returns_of
from stretch_sim_cal.truth import nees

ARM = ("shoulder_pan_joint", "shoulder_lift_joint", "elbow_joint", "wrist_1_joint", "wrist_2_joint", "wrist_3_joint")
ROBOT, NAMES = "three_lidar_amr", ("left", "right", "mast")
APART = {"left": (np.pi / 4, 1.55), "mast": (-np.pi / 2, 1.55)}  # bearing and half width in the lidar's frame, rad


def scene(seed: int, sensor: str, frames: int, robot: str = ROBOT, joints: Sequence[str] = ()) -> cal.Simulated:
    """Return what a robot's lidars see; the origins of these joints are off."""
    rng = np.random.default_rng(seed)
    errors = {
        name: {"xyz": rng.uniform(-0.003, 0.003, 3).tolist(), "rpy_deg": rng.uniform(-0.5, 0.5, 3).tolist()}
        for name in NAMES
    }
    off = {joint: {"xyz": rng.normal(0, 5e-4, 3).tolist(), "rpy_deg": rng.normal(0, 0.05, 3).tolist()}
           for joint in joints}  # fmt: skip
    setup = {"joint_errors": off, "lidar_errors": errors}
    return cal.simulate(robot, "furnished_room", sensor, seed, frames=frames, mount_errors=None, simulation=setup)


def seen(sim: cal.Simulated, views: Mapping[str, tuple[float, float]]) -> dict[str, list[np.ndarray]]:
    """Return the lidars' clouds, those of some cut down to a bearing and a half width (rad)."""

    def cut(cloud: np.ndarray, bearing: float, width: float) -> np.ndarray:
        turn = np.angle(np.exp(1j * (np.arctan2(cloud["y"], cloud["x"]) - bearing)))
        return cloud[np.abs(turn) < width]

    return {name: [cut(cloud, *views[name]) if name in views else cloud for cloud in own]
            for name, own in sim.clouds.items()}  # fmt: skip


def mounts(args: argparse.Namespace) -> None:
    """Print a table of where the lidars are on the robot: the first two by their returns from it and the third by its
    transform, and all by their returns; in one standing pose, which is all that a robot without an arm has, or in the
    poses of the arm."""
    found: dict[str, list] = {}
    for seed in range(args.first, args.first + args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            robot = manipulator(Path(folder)) if args.arm else ROBOT
            sim = scene(seed, args.sensor, args.frames, robot, ARM if args.arm else ())
        simulator, profile = sim.simulator, sim.simulator.profile
        model = parse_urdf(simulator.nominal_description)
        lidars = lidars_at(sim.rig.base_from_lidar, simulator.sensor)
        aligned = solved(LidarAlignment(lidars, sim.rig.body), list(together(sim.clouds)))
        file = with_lidars(CalibrationFile(), aligned, ROBOT)
        mounted, settings = MountedRobot(model, profile), mount_settings(sensor=simulator.sensor, profile=profile)
        poses = [[*values] for values in itertools.product(*profile.plans["mounts"].values())] if args.arm else [[]]
        samples: list[MountSample] = []
        for number, values in enumerate(poses):
            pose = {profile.commands[joint]: value for joint, value in zip(profile.commands, values, strict=False)}
            simulator.joints.place(pose)
            scans = {
                name: [returns_of(simulator.scan(name, (number + 1) * args.frames + k)) for k in range(args.frames)]
                for name in NAMES
            }
            columns = {name: return_columns(np.concatenate(own)) for name, own in scans.items()}
            joints = profile.joint_positions(model, pose)
            samples.append(mounted.sample(f"pose {number}", joints, columns, settings.joint_offsets))
        for count in (2, len(NAMES)):
            kept = [replace(each, clouds={name: each.clouds[name] for name in NAMES[:count]}) for each in samples]
            result = solve_samples(mounted, kept, file, settings)
            covariances = each_mount(file, result)
            for name, (pose, covariance) in covariances.items():
                true = sim.truth.base_from_lidar[name]
                off, said = error(true, pose), total_deviations(covariance, pose)
                squared = nees(log(true @ inverse(pose)), covariance)
                row = (1e3 * off[0], np.degrees(off[1]), 1e3 * said[0], np.degrees(said[1]), squared, result.accepted)
                found.setdefault(f"by {count}: {name}", []).append(row)
                print(seed, count, name, *np.round(row, 3), flush=True, file=sys.stderr)
    print_table(args, found)


def manipulator(folder: Path) -> str:
    """Return the profile of a likeness of the two-lidar manipulator that has a third lidar, on the left rear corner."""
    shared = load_profile("two_lidar_manipulator")
    source = Path(shared.source)
    data = yaml.safe_load(source.read_text())
    model = (source.parent / data["description"]["file"]).read_text()
    rear = model.index('<xacro:lidar side="rear"')
    third = '<xacro:lidar side="mast" x="-0.44" y="0.35" yaw="${3 * math.pi / 4}"/>\n  '
    (folder / "robot.urdf.xacro").write_text(model[:rear] + third + model[rear:])
    data["description"] = {"file": "robot.urdf.xacro"}
    data["lidars"]["mast"] = {"frame": "mast_laser_link", "topic": "/mast_lidar/points"}
    path = folder / "three_lidar_manipulator.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=21)
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--sensor", default="jt128_sparse_real")
    parser.add_argument("--mounts", action="store_true", help="where the lidars are on the robot")
    parser.add_argument("--arm", action="store_true", help="with --mounts: of a robot with an arm, in six poses")
    args = parser.parse_args()
    if args.mounts:
        return mounts(args)
    found: dict[str, list] = {}
    for seed in range(args.first, args.first + args.seeds):
        sim = scene(seed, args.sensor, args.frames)
        for view, cuts in (("all see all", {}), ("apart", APART)):
            result = cal.calibrate(sim.rig, seen(sim, cuts), floor=False)
            for pair, off in result.errors(sim.truth).pairs.items():
                said = np.sqrt(np.diag(result.covariance_of(*pair)).reshape(2, 3).sum(axis=1))
                row = (off.mm, off.deg, 1e3 * said[0], np.degrees(said[1]), off.nees, result.accepted)
                found.setdefault(f"{view}: {' - '.join(pair)}", []).append(row)
    print_table(args, found)


def print_table(args: argparse.Namespace, found: dict[str, list]) -> None:
    """Print rows by name, of errors (mm, deg), standard deviations (mm, deg), NEES, and whether they are accepted."""
    print(f"| {args.seeds} robots, {args.sensor} | accepted | mm, median (worst) | deg, median (worst) | said | NEES |")
    print("|---|---|---|---|---|---|")
    for name, rows in found.items():
        distances, angles, lengths, turns, squares, accepted = np.array(rows, dtype=float).T
        print(
            f"| {name} | {int(accepted.sum())} | {np.median(distances):.2f} ({distances.max():.2f}) "
            f"| {np.median(angles):.4f} ({angles.max():.4f}) | {np.median(lengths):.2f} mm, {np.median(turns):.3f} deg "
            f"| {squares.mean():.2f} ({squares.max():.2f}) |"
        )


if __name__ == "__main__":
    main()
