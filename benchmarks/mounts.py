"""How well the lidars' mounts are found: error and coverage of the covariance over seeds, poses, noise, model error.

    python benchmarks/mounts.py --seeds 10                                # an exact model
    python benchmarks/mounts.py --seeds 10 --model-mm 1 --model-deg 0.1   # every mesh off
    python benchmarks/mounts.py --seeds 10 --origins-mm 1 --origins-deg 0.1   # every joint origin off
    python benchmarks/mounts.py --seeds 100 --start-mm 30 --start-deg 3 --sensor jt128_sparse --frames 2
    python benchmarks/mounts.py --seeds 10 --lidar-geometry visual        # lidars see other shapes than the model has
    python benchmarks/mounts.py --seeds 10 --joint-scale 0.005            # lift and arm move 0.5 % too far
    python benchmarks/mounts.py --seeds 10 --play-mm 1 --play-deg 0.3     # joints are off anew in every pose
    python benchmarks/mounts.py --seeds 10 --sag-deg 0.6 --lean-deg 0.2   # arm and mast bend with the reach
    python benchmarks/mounts.py --seeds 10 --near-mm -40                  # near ranges are too short

Simulates both lidars in a furnished room with mounts that are off in random directions, runs the calibration that the
node runs, and prints one line per seed and a summary. NEES: squared error in units of the covariance, 6 on average
if that is right. `optimum_rms`: what an estimate has if the errors of the links of that trial are known;
`said`: the standard deviations of the results, all axes together. Under errors of real lidars (effects.py) the
calibration is given what an alignment of 20 pairs observed, and the larger of both lidars' errors counts.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from comparing import ALIGNMENT_FRAMES, POSE, Comparison, Effect, Recording, aligned
from edited_clouds import too_long_near

from stretch_sim_cal import command
from stretch_sim_cal.calibration.mounts.method import calibrate_mounts
from stretch_sim_cal.calibration.mounts.residuals import RobotUnknowns
from stretch_sim_cal.calibration.mounts.result import MountSample, MountSettings, MountsResult, total_deviations
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, mount_settings
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.geometry.points import lengths
from stretch_sim_cal.geometry.transforms import SIDES, error, exp, from_xyz_rpy, inverse, log
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.sensor.points import return_columns
from stretch_sim_cal.sensor.sensor import DEFAULT_SENSOR, load_sensor
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup
from stretch_sim_cal.truth import nees

STILL = {"wrist_pitch_joint": 0.0, "wrist_roll_joint": 0.0, "gripper_joint": 0.0}
POSES = [
    {"lift_joint": lift, "arm_joint": arm, "wrist_yaw_joint": yaw} | STILL
    for yaw, lift, arm in [
        (1.7, 1.0, 0.45), (-1.1, 0.2, 0.0), (-1.1, 1.0, 0.0), (1.7, 0.2, 0.45),
        (1.7, 1.0, 0.0), (-1.1, 1.0, 0.45), (-1.1, 0.2, 0.45), (1.7, 0.2, 0.0),
    ]
]  # fmt: skip
"""Those of config/mounts.yaml, the most telling ones first."""
FULL_REACH = 0.5  # m, of the arm
NEAR_LENGTH = 0.3  # m
MODEL_ERRORS = 1.0, 0.1  # mm, deg, one sigma: what the calibration is told of the description's
ALIGNMENT_POSITION, ALIGNMENT_ANGLE = 3e-4, np.radians(0.01)  # one sigma per axis of a usual alignment


@dataclasses.dataclass(frozen=True)
class Trial:
    """One seed's outcome: errors (mm, deg) and NEES by side, s of computing, whether it was accepted, joints' offsets,
    the `optimum` (4,) and the standard `deviations` (2, 2) in m and rad."""

    seed: int
    translation_mm: tuple[float, float]
    rotation_deg: tuple[float, float]
    nees: tuple[float, float]
    seconds: float
    accepted: bool
    offsets: dict[str, float]
    optimum: np.ndarray
    deviations: list[tuple[float, float]]


def random_twist(random: np.random.Generator, distance: float, angle: float, by: str) -> np.ndarray:
    """Return a twist (6,): `distance` (m) and `angle` (rad) are one sigma per axis, or by
    `length` what it has in all."""
    if by == "axis":
        return random.normal(size=6) * np.repeat([distance, angle], 3)
    return log(PoseError.drawn(random, distance, angle).matrix)


def misplaced(surface: Surface, twist: np.ndarray) -> Surface:
    """Return a link's surface moved by a twist (6,) about its centre."""
    centre = from_xyz_rpy(surface.corners.mean(axis=0))
    return surface.moved(centre @ exp(twist) @ inverse(centre))


def joints_off(
    robot: MountedRobot, random: np.random.Generator, distance: float, angle: float, by: str
) -> dict[str, PoseError]:
    held = [link for link in robot.surfaces if link not in ("base_link", "head_link")] if distance or angle else []
    twists = {link: random_twist(random, distance, angle, by).tolist() for link in held}
    return {robot.model.parent_joint(link).name: PoseError(tuple(t[:3]), tuple(t[3:])) for link, t in twists.items()}


def optimum(result: MountsResult, robot: MountedRobot, settings: MountSettings, args: argparse.Namespace) -> np.ndarray:
    """Return the rms errors (m, rad) of the left and the right lidar that no linear estimate from these returns falls
    below, that knows how far links are off, but not in which direction."""
    unknowns = RobotUnknowns(robot.surfaces, settings, robot.nominal)
    share = np.sqrt(1 / 3) if args.by == "length" else 1.0
    off = [
        np.repeat([max(1e-3 * share * mm, 1e-7), max(np.radians(share * deg), 1e-7)], 3)
        for mm, deg in ((args.origins_mm, args.origins_deg), (args.model_mm, args.model_deg))
    ]
    exact = np.full(unknowns.size - unknowns.first_joint, 1e-7)
    true = np.concatenate([*(np.tile(one, len(unknowns.links)) for one in off), exact])
    information = result.information.copy()
    rest = np.arange(unknowns.first_link, unknowns.size)
    information[rest, rest] += true**-2 - 1.0 / unknowns.variances()[unknowns.first_link :]
    covariance = np.linalg.inv(information)
    poses = [(unknowns.of_lidar(name), pose) for name, pose in result.base_from_lidar.items()]
    return np.ravel([total_deviations(covariance[own, own], base_from_lidar) for own, base_from_lidar in poses])


def run_trial(seed: int, args: argparse.Namespace) -> Trial:
    random = np.random.default_rng(seed)
    pose_errors = [PoseError.drawn(random, 1e-3 * args.start_mm, np.radians(args.start_deg)) for _ in SIDES]
    sensor = dataclasses.replace(load_sensor(args.sensor), range_noise=args.noise)
    robot = MountedRobot(load_model(nominal_description()))
    setup = SimulationSetup(
        seed=seed, lidar_errors={"left": pose_errors[0], "right": pose_errors[1]},
        joint_errors=joints_off(robot, random, 1e-3 * args.origins_mm, np.radians(args.origins_deg), args.by),
        lidar_geometry=args.lidar_geometry,
    )  # fmt: skip
    simulators = [
        EmbeddedSimulator(dataclasses.replace(setup, joint_errors=setup.joint_errors | bent(robot, pose, args)), sensor)
        for pose in POSES[: args.poses if args.sag_deg or args.lean_deg else 1]
    ]
    simulator = simulators[0]
    surfaces = {
        link: misplaced(surface, random_twist(random, 1e-3 * args.model_mm, np.radians(args.model_deg), args.by))
        for link, surface in robot.surfaces.items()
    }
    samples = []
    for number, pose in enumerate(POSES[: args.poses]):
        own = simulators[number % len(simulators)]
        pairs = partial(too_long, own.point_pairs, 1e-3 * args.near_mm)
        samples.append(sample_of(robot, own, pairs, number, args.frames, misread(pose, random, args)))
    truth = {side: simulator.base_from_lidar(side) for side in SIDES}
    known = None
    if args.with_alignment:
        covariance = np.diag([ALIGNMENT_POSITION**2] * 3 + [ALIGNMENT_ANGLE**2] * 3)
        off = exp(random.multivariate_normal(np.zeros(6), covariance))
        known = Observations.of_known_poses((off @ inverse(truth["left"]) @ truth["right"],), covariance)
    settings = mount_settings(args.noise, args.uncertainty_mm, args.uncertainty_deg, args.with_joint_offsets)
    began = time.process_time()
    result = calibrate_mounts(surfaces, samples, robot.nominal, known, settings)
    seconds = time.process_time() - began
    return Trial(
        seed, *errors_of(truth, result), seconds, result.accepted,
        {offset.joint: offset.value for offset in result.joint_offsets}, optimum(result, robot, settings, args),
        [result.total_deviations_of(side) for side in SIDES],
    )  # fmt: skip


def sample_of(
    robot: MountedRobot, simulator: EmbeddedSimulator, pairs: Callable, number: int, frames: int,
    true: Mapping[str, float], first: int = 0,
) -> MountSample:  # fmt: skip
    """Return what is seen in an arm pose by its number, in which the joints are where `true` says, with `frames` pairs
    of clouds; `pairs` yields them by count and first tick."""
    simulator.joints.place(true)
    seen = [np.concatenate(clouds) for clouds in zip(*pairs(frames, first + frames * number), strict=True)]
    columns = [cloud if cloud.dtype.names is None else return_columns(cloud) for cloud in seen]
    positions = stretch_profile().joint_positions(robot.model, POSES[number])
    return robot.sample(
        f"pose {number}", positions, dict(zip(SIDES, columns, strict=True)), tuple(stretch_profile().offset_joints)
    )


def too_long(pairs: Callable, by: float, *which: int) -> Iterator[list[np.ndarray]]:
    """Yield pairs of clouds (N, 3) of which ranges r are too long by `by` exp(-r / `NEAR_LENGTH`)."""
    for pair in pairs(*which):
        yield [cloud * too_long_near(np.maximum(lengths(cloud), 1e-6)[:, None], by, NEAR_LENGTH) for cloud in pair]


def misread(pose: Mapping[str, float], random: np.random.Generator, args: argparse.Namespace) -> dict[str, float]:
    """Return where the joints are that read as in `pose`."""
    true = dict(pose)
    for joint in ("lift_joint", "arm_joint"):
        true[joint] = max(0.0, (1.0 + args.joint_scale) * pose[joint] + 1e-3 * args.play_mm * random.normal())
    true["lift_joint"] += 1e-3 * args.lift_offset_mm
    true["wrist_yaw_joint"] += np.radians(args.play_deg) * random.normal()
    return true


def bent(robot: MountedRobot, pose: Mapping[str, float], args: argparse.Namespace) -> dict[str, PoseError]:
    """Return the errors of the joints that carry a bent arm: its segments turn down by `sag_deg` in all at full reach,
    the mast leans by `lean_deg`."""
    profile, errors = stretch_profile(), {}
    arm = next(joint for joint in profile.joints if joint.command == "arm_joint")
    sample = robot.sample("", profile.joint_positions(robot.model, pose), {}, ("arm_joint",))
    parts = profile.parts(robot.model, arm)
    outwards = sample.joint_motions["arm_joint"]["wrist_link"][:3]
    about = np.cross([0.0, 0.0, 1.0], outwards / np.linalg.norm(outwards)) * pose["arm_joint"] / FULL_REACH
    for joint, degrees in ({"lift_joint": args.lean_deg} | dict.fromkeys(parts, args.sag_deg / len(parts))).items():
        rotation = sample.joint_origins[robot.model.joints[joint].child][:3, :3]
        errors[joint] = PoseError(rpy=tuple(map(float, rotation.T @ about * np.radians(degrees))))
    return errors


def errors_of(truth: Mapping[str, np.ndarray], result: MountsResult) -> tuple[tuple[float, ...], ...]:
    """Return the errors in mm and in deg, and the NEES, of the left and the right lidar."""
    found = [error(truth[side], result.base_from_lidar[side]) for side in SIDES]
    twists = {side: log(truth[side] @ inverse(result.base_from_lidar[side])) for side in SIDES}
    squared = (6 * nees(twist, result.covariance_of(side)) for side, twist in twists.items())
    return tuple(1e3 * distance for distance, _ in found), tuple(float(np.degrees(a)) for _, a in found), tuple(squared)


def compare_under(effect: Effect, seed: int) -> dict:
    """Return the errors on one recording of lidars with an effect: an alignment, then the mounts, from eight poses of
    two pairs, with what it observed."""
    recording, alignment = Recording(effect, seed), aligned(effect, seed)["ours"][0]
    simulator, sensor = recording.simulator, recording.sensor
    robot = MountedRobot(load_model(nominal_description()))
    samples = [sample_of(robot, simulator, recording.pairs, number, 2, pose, ALIGNMENT_FRAMES)
               for number, pose in enumerate(POSES)]  # fmt: skip
    settings = mount_settings(sensor.range_noise, *MODEL_ERRORS, sensor=sensor)
    began = time.process_time()
    result = calibrate_mounts(robot.surfaces, samples, robot.nominal, alignment.known, settings)
    seconds = time.process_time() - began
    translation, rotation, squared = errors_of({side: simulator.base_from_lidar(side) for side in SIDES}, result)
    errors = {"translation_mm": max(translation), "rotation_deg": max(rotation), "cpu_s": seconds}
    return {
        "errors": {"ours": errors},
        "nees": {"ours": float(np.mean(squared)) / 6},
        "standard_deviations": [result.total_deviations_of(side) for side in SIDES],
        "refusals": {"ours": alignment.refusals + result.refusals},
    }


EFFECTS_TABLE = Comparison("mounts_effects", compare_under, POSE)


def summary(trials: list[Trial]) -> dict[str, float]:
    """Return what the trials say together, both lidars counted alike."""
    translations, rotations, squares = (
        np.ravel([getattr(t, key) for t in trials]) for key in ("translation_mm", "rotation_deg", "nees")
    )
    best, said = (np.mean([np.reshape(getattr(t, key), (2, 2)) for t in trials], axis=(0, 1)) for key in
                  ("optimum", "deviations"))  # fmt: skip
    converged = [max(t.translation_mm) < 5.0 and max(t.rotation_deg) < 0.5 for t in trials]
    return {
        "seeds": len(trials),
        "median_mm": float(np.median(translations)), "p95_mm": float(np.quantile(translations, 0.95)),
        "median_deg": float(np.median(rotations)), "p95_deg": float(np.quantile(rotations, 0.95)),
        "rms_mm": float(np.sqrt(np.mean(translations**2))), "rms_deg": float(np.sqrt(np.mean(rotations**2))),
        "optimum_rms_mm": 1e3 * float(best[0]), "optimum_rms_deg": float(np.degrees(best[1])),
        "said_mm": 1e3 * float(said[0]), "said_deg": float(np.degrees(said[1])),
        "mean_nees": float(np.mean(squares)), "converged": float(np.mean(converged)),
        "accepted": float(np.mean([t.accepted for t in trials])),
        "cpu_seconds": float(np.mean([t.seconds for t in trials])),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--seeds", type=int, default=5)
    add("--first-seed", type=int, default=1000)
    add("--sensor", default=DEFAULT_SENSOR)
    add("--noise", type=float, default=0.01, help="m along the ray (default: %(default)s)")
    add("--poses", type=int, default=8, choices=range(1, 9))
    add("--frames", type=int, default=5, help="per pose (default: %(default)s)")
    add("--start-mm", type=float, default=15.0, help="error of each mount (default: %(default)s)")
    add("--start-deg", type=float, default=1.5, help="error of each mount (default: %(default)s)")
    add("--model-mm", type=float, default=0.0, help="how far every link's surface is off")
    add("--model-deg", type=float, default=0.0, help="how far every link's surface is turned")
    add("--origins-mm", type=float, default=0.0, help="joint-origin error of every link (one sigma per axis)")
    add("--origins-deg", type=float, default=0.0, help="the same, its rotation")
    add(
        "--by", choices=("axis", "length"), default="axis",
        help="whether that is one sigma of each axis, or what every link is off by in all (default: %(default)s)",
    )  # fmt: skip
    for unit, size in zip(("mm", "deg"), MODEL_ERRORS, strict=True):
        add(f"--uncertainty-{unit}", type=float, default=size,
                            help="what the calibration is told of that (default: %(default)s)")  # fmt: skip
    add("--lidar-geometry", help="what the lidars see: visual, or a URDF (default: what the model has)")
    add("--lift-offset-mm", type=float, default=0.0, help="error of the lift's zero")
    add("--joint-scale", type=float, default=0.0, help="by which share lift and arm move further")
    add("--play-mm", type=float, default=0.0, help="of lift and arm in every pose, one sigma")
    add("--play-deg", type=float, default=0.0, help="of the wrist's yaw in every pose, one sigma")
    add("--sag-deg", type=float, default=0.0, help="by how much the arm turns down at full reach")
    add("--lean-deg", type=float, default=0.0, help="by how much the mast leans at full reach of the arm")
    add("--near-mm", type=float, default=0.0, help=f"of ranges r, times exp(-r / {NEAR_LENGTH} m)")
    add("--with-joint-offsets", action="store_true", help="hold the joints' zeros loosely, and report them")
    add("--with-alignment", action="store_true", help="give the calibration an alignment of usual quality")
    add("--json", action="store_true")
    args = parser.parse_args()
    trials = []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        trials.append(trial := run_trial(seed, args))
        if not args.json:
            print(
                f"seed {seed}: " + ", ".join(
                    f"{side} {trial.translation_mm[i]:.3f} mm {trial.rotation_deg[i]:.4f} deg NEES {trial.nees[i]:.1f}"
                    for i, side in enumerate(SIDES)
                ) + f", {trial.seconds:.1f} s"
                + "".join(f", {joint} {value:+.5f}" for joint, value in trial.offsets.items())
                + ("" if trial.accepted else ", refused"), flush=True,
            )  # fmt: skip
    found = summary(trials)
    print(json.dumps(found) if args.json else "  ".join(f"{key} {value:.4g}" for key, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(command.run(main))
